//! The walks of a call in `docs/architecture.md`: each function is where the page says, and the
//! counts are those of the lines.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::product::repository;

/// A stay of a call in one file.
#[derive(Debug, Clone)]
struct Stay {
    room: String,
    file: String,
    functions: Vec<String>,
}

impl Stay {
    /// `ROOM FILE: FUNCTION …; what happens`
    fn read(line: &str) -> Stay {
        let (place, rest) = line.split_once(": ").expect("a file and its functions");
        let (room, file) = place.split_once(' ').expect("a room and a file");
        let (functions, _) = rest.split_once("; ").expect("functions and what happens");
        Stay {
            room: room.to_owned(),
            file: file.to_owned(),
            functions: functions.split(' ').map(str::to_owned).collect(),
        }
    }

    /// A room is a crate, or a folder of the daemon.
    fn path(&self) -> PathBuf {
        match self.room.strip_prefix("colibri-") {
            Some(_) => repository().join("crates").join(&self.room).join("src"),
            None => repository().join("colibri-mcpd/src").join(&self.room),
        }
        .join(&self.file)
    }
}

fn page() -> String {
    fs::read_to_string(repository().join("docs/architecture.md")).unwrap()
}

/// The walk of this name. `= WALK FIRST LAST` stands for lines of another one, from 1.
fn walk(page: &str, name: &str) -> Vec<Stay> {
    let (_, block) = page.split_once(&format!("```walk {name}\n")).expect(name);
    let (block, _) = block.split_once("\n```").expect(name);
    let mut stays = Vec::new();
    for line in block.lines() {
        let Some(other) = line.strip_prefix("= ") else {
            stays.push(Stay::read(line));
            continue;
        };
        let [other, first, last] = other.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        stays.extend_from_slice(&walk(page, other)[first - 1..last]);
    }
    stays
}

/// Files, rooms, and changes of room.
fn counts(stays: &[Stay]) -> [usize; 3] {
    let files: BTreeSet<_> = stays.iter().map(|stay| (&stay.room, &stay.file)).collect();
    let rooms: BTreeSet<_> = stays.iter().map(|stay| &stay.room).collect();
    let changes = stays.windows(2).filter(|two| two[0].room != two[1].room);
    [files.len(), rooms.len(), changes.count()]
}

const WALKS: [&str; 3] = ["lines", "http", "approval"];

#[test]
fn every_function_of_a_walk_is_in_its_file() {
    let page = page();
    for stay in WALKS.iter().flat_map(|name| walk(&page, name)) {
        let path = stay.path();
        let source = fs::read_to_string(&path);
        let source = source.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for function in &stay.functions {
            let is_there = ["(", "<"]
                .iter()
                .any(|after| source.contains(&format!("fn {function}{after}")));
            assert!(is_there, "{}: no fn {function}", path.display());
        }
    }
}

#[test]
fn the_counts_of_the_walks_are_those_of_their_lines() {
    let page = page();
    for name in WALKS {
        let [files, rooms, changes] = counts(&walk(&page, name));
        let row = format!("| {name} | {files} | {rooms} | {changes} |");
        assert!(page.contains(&row), "docs/architecture.md lacks {row}");
    }
}

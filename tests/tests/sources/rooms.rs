//! What `docs/architecture.md` says of the rooms is what the code does: each arrow of its figure
//! stands for a use, each use has its arrow, and neither rooms nor files use each other in a
//! circle.
//!
//! A room is a crate, or a folder (or a file) directly below `colibri-mcpd/src`. What stands below
//! `#[cfg(test)]` does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::product::repository;

/// A graph by names.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// One module of a crate: its file, its path below the crate, and what it names.
struct Module {
    krate: String,
    /// The module path: empty for the root.
    path: Vec<String>,
    /// What stands in `use` items: path, and whether it is exported again.
    imports: Vec<(Vec<String>, bool)>,
    /// Paths elsewhere in the code.
    inline: Vec<Vec<String>>,
}

/// Folders with the sources of programs and libraries, by crate name.
fn crates() -> Vec<(String, PathBuf)> {
    let root = repository();
    let mut found = vec![
        ("colibri_mcpd".to_owned(), root.join("colibri-mcpd/src")),
        (
            "colibri_jail_helper".to_owned(),
            root.join("colibri-jail-helper/src"),
        ),
    ];
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder
            .file_name()
            .unwrap()
            .to_string_lossy()
            .replace('-', "_");
        found.push((name, folder.join("src")));
    }
    found
}

fn files_in(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What the crate of a program is called where a library stands beside it.
const PROGRAM: &str = "_program";

/// The modules of the program where a library stands beside it in one folder.
fn programs_modules(source: &Path) -> BTreeSet<String> {
    let main = fs::read_to_string(source.join("main.rs")).unwrap_or_default();
    if !source.join("lib.rs").exists() || main.is_empty() {
        return BTreeSet::new();
    }
    let declared = main
        .lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    declared.chain(["main"]).map(str::to_owned).collect()
}

/// The product part of a source: without tests, comments and strings.
fn product(text: &str) -> String {
    let mut kept = String::new();
    let text = text
        .split("\n#[cfg(test)]\nmod ")
        .next()
        .unwrap_or_default();
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        let mut outside = true;
        for piece in code.split('"') {
            if outside {
                kept.push_str(piece);
            }
            outside = !outside;
        }
        kept.push('\n');
    }
    kept
}

/// The paths that a use tree names: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(tree: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    if let Some((head, rest)) = tree.split_once('{') {
        let mut before = before.to_vec();
        before.extend(names_in(head));
        let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in inner.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&inner[start..at], &before, found);
                    start = at + 1;
                }
                _ => {}
            }
        }
        return expand(&inner[start..], &before, found);
    }
    let plain = tree.split(" as ").next().unwrap_or_default();
    if !plain.is_empty() {
        let mut path = before.to_vec();
        let first = path.is_empty();
        path.extend(
            names_in(plain)
                .into_iter()
                .filter(|name| name != "self" || first),
        );
        found.push(path);
    }
}

fn names_in(path: &str) -> Vec<String> {
    path.split("::")
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

fn read(krate: &str, source: &Path, file: &Path) -> Module {
    let relative = file.strip_prefix(source).unwrap().with_extension("");
    let mut path: Vec<String> = relative
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if matches!(
        path.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        path.pop();
    }
    let code = product(&fs::read_to_string(file).unwrap());
    let (mut imports, mut rest) = (Vec::new(), String::new());
    for statement in code.split_inclusive(';') {
        let at = statement.match_indices("use ").find(|(at, _)| {
            let before = statement[..*at].chars().next_back();
            before.is_none_or(|letter| letter.is_whitespace())
        });
        let Some((at, _)) = at.filter(|_| statement.ends_with(';')) else {
            rest.push_str(statement);
            continue;
        };
        let exported = statement[..at]
            .trim_end()
            .rsplit(['}', '\n', ';'])
            .next()
            .unwrap_or_default();
        let exported = exported.trim_start().starts_with("pub");
        rest.push_str(&statement[..at]);
        let mut paths = Vec::new();
        expand(statement[at + 4..].trim_end_matches(';'), &[], &mut paths);
        imports.extend(paths.into_iter().map(|path| (path, exported)));
    }
    let inline = rest
        .split(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':'))
        .filter(|word| word.contains("::"))
        .map(names_in)
        .collect();
    Module {
        krate: krate.to_owned(),
        path,
        imports,
        inline,
    }
}

/// All modules of the product, by crate and path.
struct Tree(BTreeMap<(String, Vec<String>), Module>);

impl Tree {
    fn read() -> Tree {
        let mut modules = BTreeMap::new();
        for (krate, source) in crates() {
            let mut files = Vec::new();
            files_in(&source, &mut files);
            let programs = programs_modules(&source);
            for file in files {
                let first = file.strip_prefix(&source).unwrap().iter().next().unwrap();
                let first = first.to_string_lossy();
                let krate = match programs.contains(first.trim_end_matches(".rs")) {
                    true => format!("{krate}{PROGRAM}"),
                    false => krate.clone(),
                };
                let module = read(&krate, &source, &file);
                modules.insert((module.krate.clone(), module.path.clone()), module);
            }
        }
        Tree(modules)
    }

    /// The module in which what `path` names, as seen from `from`, is defined: exports are followed
    /// to where they lead.
    fn resolve(&self, from: &Module, path: &[String]) -> Option<(String, Vec<String>)> {
        let (krate, mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (from.krate.clone(), Vec::new(), &path[1..]),
            "self" => (from.krate.clone(), from.path.clone(), &path[1..]),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                let keep = from.path.len().checked_sub(ups)?;
                (from.krate.clone(), from.path[..keep].to_vec(), &path[ups..])
            }
            name if name.starts_with("colibri_") => (name.to_owned(), Vec::new(), &path[1..]),
            name => {
                let mut child = from.path.clone();
                child.push(name.to_owned());
                if !self.0.contains_key(&(from.krate.clone(), child.clone())) {
                    return None;
                }
                (from.krate.clone(), child, &path[1..])
            }
        };
        loop {
            let module = self.0.get(&(krate.clone(), at.clone()))?;
            let Some(name) = rest.first() else { break };
            let mut child = at.clone();
            child.push(name.clone());
            if self.0.contains_key(&(krate.clone(), child.clone())) {
                (at, rest) = (child, &rest[1..]);
                continue;
            }
            let export = module
                .imports
                .iter()
                .find(|(path, exported)| *exported && path.last() == Some(name));
            return match export {
                Some((path, _)) => self.resolve(module, path),
                None => Some((krate, at)),
            };
        }
        Some((krate, at))
    }

    /// What each file uses of others, exports of other files' names not counted.
    fn files(&self) -> Uses {
        let name = |krate: &str, path: &[String]| format!("{krate}/{}", path.join("/"));
        let mut uses = Uses::new();
        for module in self.0.values() {
            let imports = module
                .imports
                .iter()
                .filter(|(_, exported)| !exported)
                .map(|(path, _)| path);
            for path in imports.chain(&module.inline) {
                if let Some((krate, at)) = self.resolve(module, path)
                    && (&krate, &at) != (&module.krate, &module.path)
                {
                    uses.entry(name(&module.krate, &module.path))
                        .or_default()
                        .insert(name(&krate, &at));
                }
            }
        }
        uses
    }
}

/// The room of a file.
fn room(file: &str) -> String {
    let (krate, path) = file.split_once('/').unwrap();
    let krate = krate.trim_end_matches(PROGRAM).replace('_', "-");
    match path.split('/').next() {
        Some(folder) if krate == "colibri-mcpd" && !folder.is_empty() && folder != "bin" => {
            folder.to_owned()
        }
        _ => krate,
    }
}

fn rooms(files: &Uses) -> Uses {
    let mut rooms = Uses::new();
    for (from, to) in files {
        for to in to {
            let (from, to) = (room(from), room(to));
            if from != to {
                rooms.entry(from).or_default().insert(to);
            }
        }
    }
    rooms
}

/// The circles that a walk along the uses closes.
fn circles(uses: &Uses) -> Vec<String> {
    fn walk<'a>(
        uses: &'a Uses,
        at: &'a str,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
        found: &mut Vec<String>,
    ) {
        if let Some(start) = way.iter().position(|name| *name == at) {
            return found.push(way[start..].join(" → "));
        }
        if done.insert(at) {
            way.push(at);
            for next in uses.get(at).into_iter().flatten() {
                walk(uses, next, way, done, found);
            }
            way.pop();
        }
    }
    let (mut done, mut found) = (BTreeSet::new(), Vec::new());
    for start in uses.keys() {
        walk(uses, start, &mut Vec::new(), &mut done, &mut found);
    }
    found
}

/// The figure: a block of lines `room: rooms that it uses`.
fn figure() -> Uses {
    let page = fs::read_to_string(repository().join("docs/architecture.md")).unwrap();
    let figure = page
        .split("```rooms\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let mut uses = Uses::new();
    for line in figure.lines().filter(|line| !line.trim().is_empty()) {
        let (room, used) = line.split_once(':').unwrap();
        let used: BTreeSet<String> = used.split_whitespace().map(str::to_owned).collect();
        uses.insert(room.trim().to_owned(), used);
    }
    uses
}

#[test]
fn the_figure_of_the_rooms_is_what_the_code_does() {
    let (mut drawn, found) = (figure(), rooms(&Tree::read().files()));
    drawn.retain(|_, used| !used.is_empty());
    let lines = |uses: &Uses| {
        let line = |(room, used): (&String, &BTreeSet<String>)| {
            format!(
                "{room}: {}",
                used.iter().cloned().collect::<Vec<_>>().join(" ")
            )
        };
        uses.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    assert!(
        drawn == found,
        "docs/architecture.md has\n{}\n\nthe code has\n{}",
        lines(&drawn),
        lines(&found)
    );
    let circles = circles(&found);
    assert!(
        circles.is_empty(),
        "rooms use each other in a circle: {circles:#?}"
    );
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let circles = circles(&Tree::read().files());
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn a_circle_would_be_found() {
    let uses = |pairs: &[(&str, &str)]| {
        let mut uses = Uses::new();
        for (from, to) in pairs {
            uses.entry((*from).to_owned())
                .or_default()
                .insert((*to).to_owned());
        }
        uses
    };
    assert!(circles(&uses(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    assert_eq!(
        circles(&uses(&[("a", "b"), ("b", "c"), ("c", "b")])),
        ["b → c"]
    );
    let mut found = Vec::new();
    expand("crate::a::{self, B, c::{D, E as F}}", &[], &mut found);
    let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
    assert_eq!(
        found,
        [
            "crate::a",
            "crate::a::B",
            "crate::a::c::D",
            "crate::a::c::E"
        ]
    );
}

//! The promise of the store, tried: a process that writes without pause is killed at random
//! moments, and what it had been told is written is there, whole.

use super::{Actor, CatalogueEntry, CatalogueKey, Database};
use colibri_api::{NewTask, TaskStatus};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Set for the child: the state directory in which it writes.
const CHILD: &str = "COLIBRI_TEST_STORE_CHILD";

/// The number of times that the child is killed.
const ROUNDS: u64 = 25;

fn task(number: u64) -> NewTask {
    NewTask {
        title: format!("task {number}"),
        description: "x".repeat((number as usize * 37) % 9_000),
        source: "child".to_owned(),
        status: TaskStatus::Queued,
        required_capabilities: Vec::new(),
        priority: 5,
        created_by: 0,
        share: None,
        limits: Default::default(),
    }
}

/// A catalogue entry whose parts all tell `number`, so that a mixture of two shows.
fn entry(number: u64) -> CatalogueEntry {
    let mut entry = CatalogueEntry {
        protocol_version: number.to_string(),
        ..CatalogueEntry::default()
    };
    for index in 0..number % 40 {
        let feature = ["tool", "resource"][index as usize % 2].to_owned();
        let definition = format!("{{\"n\":{number}}}").into_bytes();
        entry.lists.entry(feature).or_default().push(definition);
    }
    entry
}

const KEY: CatalogueKey<'_> = CatalogueKey {
    server: "s",
    digest: "d",
    executable: "e",
};

/// Not a test by itself: the process that [`a_killed_writer_loses_nothing`] starts and kills.
#[test]
fn child_writes_until_killed() {
    let Some(state) = std::env::var_os(CHILD) else {
        return;
    };
    let store = Database::open(state.as_ref()).unwrap();
    let mut told = std::io::stderr();
    for number in 1.. {
        let id = store.added(task(number)).unwrap().id;
        writeln!(told, "written {id}").unwrap();
        store.put_catalogue(KEY, &entry(number)).unwrap();
    }
}

/// A file damaged by a power failure or a failing disk is refused with the remedy, or all of it is
/// there.
#[test]
fn a_damaged_file_is_refused_and_says_what_to_do() {
    const PAGE: usize = 4096;
    let temporary = tempfile::tempdir().unwrap();
    let all = |store: &Database| {
        let tasks: Vec<_> = (1..=60).map(|id| store.task(id).unwrap()).collect();
        (tasks, store.catalogue(KEY).unwrap())
    };
    let store = Database::open(temporary.path()).unwrap();
    for number in 1..=60 {
        store.added(task(number)).unwrap();
    }
    store.put_catalogue(KEY, &entry(39)).unwrap();
    let before = all(&store);
    drop(store);
    let whole = std::fs::read(temporary.path().join("colibri.db")).unwrap();
    let pages = whole.len() / PAGE;
    assert!(
        pages > 30 && whole.len().is_multiple_of(PAGE),
        "{}",
        whole.len()
    );
    let open = |bytes: &[u8]| {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("colibri.db"), bytes).unwrap();
        let store = Database::open(place.path()).map_err(|error| error.to_string());
        (place, store)
    };
    let says_what_to_do =
        |why: &str| why.contains("colibri.db") && why.contains("restore it from a backup");
    for left in [
        1,
        15,
        99,
        100,
        512,
        PAGE - 1,
        PAGE,
        whole.len() / 2,
        whole.len() - PAGE,
        whole.len() - 1,
    ] {
        let (_place, store) = open(&whole[..left]);
        assert!(
            store.as_ref().is_err_and(|why| says_what_to_do(why)),
            "{left} bytes: {store:?}"
        );
    }
    let mut refused = 0;
    for page in 0..pages {
        for bytes in [0x00, 0xff] {
            let mut damaged = whole.clone();
            damaged[page * PAGE..][..PAGE].fill(bytes);
            match open(&damaged) {
                (_place, Err(why)) => {
                    assert!(says_what_to_do(&why), "page {page}: {why}");
                    refused += 1;
                }
                // Nothing was in it.
                (_place, Ok(store)) => assert_eq!(all(&store), before, "page {page}"),
            }
        }
    }
    assert!(refused > pages, "{refused} of {pages}");
}

#[test]
fn a_killed_writer_loses_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let mut written = 0_i64;
    // A fixed sequence of "random" moments: lines to wait for, and then a few thousand turns of a
    // loop.
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "tests::child_writes_until_killed"])
            .env(CHILD, temporary.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut note = |line: &str| {
            if let Some(id) = line.strip_prefix("written ").and_then(|id| id.parse().ok()) {
                written = written.max(id);
            }
        };
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // Round 0 kills while the file is being made.
        for _ in 0..if round == 0 { 0 } else { 1 + (seed >> 60) } {
            note(&lines.next().expect("the child ended by itself").unwrap());
        }
        for turn in 0..seed >> 44 {
            std::hint::black_box(turn);
        }
        child.kill().unwrap();
        // What it said before it died, a torn last line apart, was written too.
        lines.map_while(Result::ok).for_each(|line| note(&line));
        child.wait().unwrap();

        let store = Database::open(temporary.path()).unwrap();
        let verdict: String = store
            .with(|c| c.query_row("PRAGMA integrity_check", [], |row| row.get(0)))
            .unwrap();
        assert_eq!(verdict, "ok");
        let orphans: i64 = store
            .with(|c| {
                c.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| {
                    row.get(0)
                })
            })
            .unwrap();
        assert_eq!(orphans, 0);
        let count = i64::try_from(store.task_counts(Actor::DAEMON).unwrap()[1].1).unwrap();
        // At most the one that was being written when the signal came may be there beyond what was
        // told.
        assert!(
            (written..=written + 1).contains(&count),
            "told {written}, found {count}"
        );
        written = count;
        if let Some(known) = store.catalogue(KEY).unwrap() {
            let number: u64 = known.protocol_version.parse().unwrap();
            assert_eq!(known.lists, entry(number).lists);
        }
    }
    assert!(written > 0);
}

//! The fuzzer's targets without the fuzzer: what they say of whatever bytes come holds of every
//! seed, and of what is made of the seeds, the same in every run. `.ci/fuzz` searches further.

#![allow(
    unreachable_pub,
    missing_docs,
    dead_code,
    reason = "they are a library for the fuzzer's programs and for the tests of others"
)]

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use colibri_mcp::importers::{ImportSource, bundle, read};

#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

/// How many inputs are made of one seed.
const MADE: u64 = 100;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .join("fuzz")
}

/// The seeds of a target, in the order of their names.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(directory().join("seeds").join(target)).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut seeds: Vec<_> = files
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(&path).unwrap())
        })
        .collect();
    seeds.sort();
    seeds
}

/// Numbers that look random and are the same each time (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }

    /// A range within so many bytes, short more often than long.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let longest = [1, 4, 32, length][self.below(4)];
        start..start + self.below(longest.min(length - start) + 1)
    }
}

/// Bytes that mean something to one reader or another.
const WORDS: [&[u8]; 16] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\r",
    b"\0",
    b"\xff",
    b"\xe2\x80\xae",
    b"null",
    b"1e400",
    b"-1",
];

/// An input made of a seed and of another.
fn made(seed: &[u8], other: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=numbers.below(4) {
        let range = numbers.range(bytes.len());
        let new = match numbers.below(6) {
            0 => Vec::new(),
            1 => vec![numbers.below(256) as u8],
            2 => WORDS[numbers.below(WORDS.len())].to_vec(),
            3 => bytes[range.clone()].repeat(2),
            4 => other[numbers.range(other.len())].to_vec(),
            _ => bytes[range.clone()]
                .iter()
                .map(|byte| byte ^ (1 << numbers.below(8)))
                .collect(),
        };
        bytes.splice(range, new);
    }
    bytes
}

/// Which inputs a target's own words do not hold of.
fn wrong(target: &str, run: fn(&[u8])) -> Vec<String> {
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "{target} has no seeds");
    let mut wrong = Vec::new();
    for (at, (name, seed)) in seeds.iter().enumerate() {
        for round in 0..=MADE {
            let mut numbers = Numbers(round << 32 | at as u64);
            let other = &seeds[numbers.below(seeds.len())].1;
            let input = if round == 0 {
                seed.clone()
            } else {
                made(seed, other, &mut numbers)
            };
            if catch_unwind(|| run(&input)).is_err() {
                wrong.push(format!("{target}/{name} {round}: {}", input.escape_ascii()));
            }
        }
    }
    wrong
}

#[test]
fn what_holds_of_every_input_holds_of_the_seeds_and_of_what_is_made_of_them() {
    let wrong: Vec<String> = thread::scope(|scope| {
        let started: Vec<_> = fuzz::TARGETS
            .iter()
            .map(|(target, run)| scope.spawn(|| wrong(target, *run)))
            .collect();
        started
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_target_has_a_program() {
    let manifest = fs::read_to_string(directory().join("Cargo.toml")).unwrap();
    let programs = manifest.split("[[bin]]\nname = \"").skip(1);
    let programs: Vec<&str> = programs.map(|bin| bin.split('"').next().unwrap()).collect();
    let targets: Vec<&str> = fuzz::TARGETS.iter().map(|(target, _)| *target).collect();
    assert_eq!(programs, targets);
    for target in targets {
        let program = directory()
            .join("fuzz_targets")
            .join(format!("{target}.rs"));
        assert!(
            fs::read_to_string(program)
                .unwrap()
                .contains(&format!("colibri_fuzz::{target}::run(data)"))
        );
    }
}

#[test]
fn every_source_of_servers_has_a_seed_with_servers_that_run() {
    let seeds = seeds("bring");
    for (at, source) in ImportSource::ALL.into_iter().enumerate() {
        let mut files = seeds.iter().filter(|(_, seed)| usize::from(seed[0]) == at);
        let runs = files.any(|(_, seed)| {
            let text = String::from_utf8_lossy(&seed[1..]);
            let servers = read(Some(source), Path::new("file"), &text);
            servers.is_ok_and(|(_, servers)| servers.iter().any(|server| server.runs.is_ok()))
        });
        assert!(runs, "{source:?}");
    }
    let mut bundles = seeds
        .iter()
        .filter(|(_, seed)| seed[1..].starts_with(b"PK"));
    assert!(bundles.any(|(_, seed)| {
        bundle(&seed[1..], "linux").is_ok_and(|found| found.proposal.runs.is_ok())
    }));
}

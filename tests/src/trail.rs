//! Reading a daemon's trail from its files, and holding it against what servers say that they
//! received.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use colibri_trail::{SegmentLimits, Trail, TrailHead, TrailOptions, Witness};
use serde_json::Value;

use crate::Place;

/// What the daemon says to a server on its own account, or about a call.
const OWN_WORDS: &[&str] = &[
    "initialize",
    "notifications/cancelled",
    "notifications/initialized",
    "server/discover",
    "subscriptions/listen",
    "tools/list",
];

/// One record, and where it stands.
#[derive(Debug, Clone)]
pub struct Record {
    /// The segment's file name.
    pub segment: String,
    /// Where its line ends in the file, in bytes.
    pub end: u64,
    /// The record itself.
    pub rec: Value,
}

impl Record {
    /// Its number.
    pub fn n(&self) -> u64 {
        self.rec["n"].as_u64().unwrap_or(u64::MAX)
    }

    /// Whether it is of this kind.
    pub fn is(&self, kind: &str) -> bool {
        self.rec["kind"] == kind
    }
}

/// All whole records in this directory, in order.
///
/// # Panics
/// If a line that has an end is not of the trail's form.
pub fn records_in(directory: &Path) -> Vec<Record> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "jsonl")
    });
    paths.sort();
    let mut records = Vec::new();
    for path in paths {
        let segment = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut end = 0;
        for line in fs::read(&path)
            .unwrap_or_default()
            .split_inclusive(|byte| *byte == b'\n')
        {
            end += line.len() as u64;
            if line.last() == Some(&b'\n') {
                let line: Value = serde_json::from_slice(line).expect("a line of the trail");
                let (segment, rec) = (segment.clone(), line["rec"].clone());
                records.push(Record { segment, end, rec });
            }
        }
    }
    records
}

impl Place {
    /// The directory of the daemon's trail.
    pub fn trail_directory(&self) -> PathBuf {
        self.path("state/trail")
    }

    /// All whole records of the daemon's trail, in order.
    pub fn records(&self) -> Vec<Record> {
        records_in(&self.trail_directory())
    }

    /// The same without their places.
    pub fn trail(&self) -> Vec<Value> {
        self.records()
            .into_iter()
            .map(|record| record.rec)
            .collect()
    }

    /// Runs `colibri-mcp trail …` on this place's trail.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn trail_command(&self, args: &[&str]) -> Output {
        let mut command = self.colibri_mcp(&["trail", "--state-dir"]);
        let output = command.arg(self.path("state")).args(args).output();
        output.expect("colibri-mcp can be started")
    }

    /// Checks that `colibri-mcp trail verify` finds nothing wrong.
    ///
    /// # Panics
    /// If it does.
    pub fn assert_trail_is_sound(&self) {
        let output = self.trail_command(&["verify"]);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
    }

    /// Holds the calls that the fixture of this name received against the trail. Each must have its
    /// `enter` record, told by the arguments (or, where it is no tool that is called, by the
    /// parameter `mark`), which therefore must not repeat and must be recorded in full; and if the
    /// fixture was told where the trail is, that record must have been written when the call
    /// arrived (unless the directory was not in its place then: the record went with it). Returns
    /// how many calls there were.
    ///
    /// # Panics
    /// If a call came without its record.
    pub fn assert_entered(&self, fixture: &str) -> usize {
        let records = self.records();
        let mut calls = 0;
        let mut trail_then = None;
        for (_, kind, bytes) in self.record(fixture) {
            match &*kind {
                "trail" => trail_then = Some(String::from_utf8(bytes).expect("our own line")),
                "line" => {
                    let then = trail_then.take();
                    let Ok(line) = serde_json::from_slice::<Value>(&bytes) else {
                        continue;
                    };
                    let method = line["method"].as_str().unwrap_or_default();
                    if OWN_WORDS.contains(&method) {
                        continue;
                    }
                    calls += 1;
                    let params = &line["params"];
                    let is_call = |record: &Record| match method {
                        "tools/call" => {
                            record.rec["tool"] == params["name"]
                                && record.rec["args_full"] == params["arguments"]
                        }
                        // What the daemon adds to such parameters is told from what the client
                        // wrote by the mark.
                        _ => {
                            record.rec["method"] == method
                                && record.rec["args_full"]["mark"] == params["mark"]
                        }
                    };
                    let entered = records.iter().find(|record| {
                        record.is("enter") && record.rec["server"] == fixture && is_call(record)
                    });
                    let Some(entered) = entered else {
                        panic!("{fixture} received a call that never entered: {line}");
                    };
                    let Some(then) = then.filter(|then| then != "none") else {
                        continue;
                    };
                    let (segment, length) = then.split_once(' ').expect("a segment and its length");
                    let length: u64 = length.parse().expect("a length");
                    let before = (&*entered.segment, entered.end) <= (segment, length);
                    assert!(
                        before,
                        "{fixture} received {line} before {entered:?}; the trail was {then}"
                    );
                }
                _ => {}
            }
        }
        calls
    }
}

/// A witness that keeps nothing.
struct Nowhere;

impl Witness for Nowhere {
    fn witness(&self, _: &TrailHead) -> std::io::Result<()> {
        Ok(())
    }
}

/// Opens the trail in a state directory without a daemon, with the key that is there or a new one.
///
/// # Panics
/// If it cannot be opened.
pub fn open_trail(state_dir: &Path) -> Trail {
    let options = TrailOptions {
        state_dir: state_dir.to_owned(),
        sync: false,
        witness: Arc::new(Nowhere),
        notify: |_, _| (),
        limits: SegmentLimits::default(),
    };
    Trail::open(options).expect("a trail")
}

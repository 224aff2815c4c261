//! Tests of the trail as a whole, and what they share.

mod appending;
mod campaign;
mod example;
mod hosts;
mod publishing;
mod refusing;
mod retaining;
mod showing;
mod verifying;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use crate::file::key_path;
use crate::*;

/// Keeps the heads it is given.
#[derive(Default)]
struct Memory {
    heads: Mutex<Vec<TrailHead>>,
    grown: Condvar,
}

impl Witness for Memory {
    fn witness(&self, head: &TrailHead) -> io::Result<()> {
        self.heads.lock().unwrap().push(head.clone());
        self.grown.notify_all();
        Ok(())
    }
}

impl Memory {
    fn heads(&self) -> WitnessedHeads {
        let mut found = WitnessedHeads::default();
        self.heads
            .lock()
            .unwrap()
            .iter()
            .for_each(|head| found.add(head.clone()));
        found
    }

    /// Waits until a head covers that many records.
    fn wait_for(&self, records: u64) {
        let heads = self.heads.lock().unwrap();
        let short =
            |heads: &mut Vec<TrailHead>| heads.last().is_none_or(|head| head.records < records);
        let (_heads, wait) = self
            .grown
            .wait_timeout_while(heads, Duration::from_secs(60), short)
            .unwrap();
        assert!(!wait.timed_out(), "no head covers {records} records");
    }
}

/// A small trail: segments, seals and heads come often.
fn small() -> SegmentLimits {
    SegmentLimits {
        segment_bytes: 6000,
        seal_records: 8,
        witness_records: 5,
        ..SegmentLimits::default()
    }
}

fn options(state_dir: &Path, limits: SegmentLimits) -> (TrailOptions, Arc<Memory>) {
    let memory = Arc::new(Memory::default());
    let witness = Arc::clone(&memory) as Arc<dyn Witness>;
    (
        TrailOptions {
            state_dir: state_dir.into(),
            sync: false,
            witness,
            notify: |_, _| (),
            limits,
        },
        memory,
    )
}

fn open(state_dir: &Path, limits: SegmentLimits) -> (Trail, Arc<Memory>) {
    let (options, memory) = options(state_dir, limits);
    (Trail::open(options).unwrap(), memory)
}

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_300_200 + seconds)
}

fn enter(seconds: u64, uid: u32, tool: &str) -> TrailRecord<'_> {
    TrailRecord::Enter(Enter {
        time: time(seconds),
        uid,
        gid: 1000,
        pid: Some(4242),
        connection: 1,
        continues: None,
        client: None,
        method: "tools/call",
        server: Some("demo"),
        tool: Some(tool),
        name: Some("demo__tool"),
        era: "modern",
        version: "2026-07-28",
        args: ContentDigest::of(tool.as_bytes()),
        args_full: None,
        traceparent: None,
        tracestate: None,
        validated: crate::Validation::Exact,
        through: None,
        task: None,
        within: None,
        caller: None,
    })
}

fn exit(seconds: u64, enter: u64, tool: &str, success: bool, millis: u64) -> TrailRecord<'_> {
    TrailRecord::Exit(ExitRecord {
        attempt: Attempt {
            time: time(seconds),
            enter,
            integration_id: "demo",
            operation: tool,
            attempt_number: 1,
            error_code: if success {
                None
            } else {
                Some("INTEGRATION_UNAVAILABLE")
            },
            error_class: if success { None } else { Some("transient") },
            latency: Duration::from_millis(millis),
        },
        success,
        output: Some(ContentDigest::of(b"result")),
        output_full: None,
        remote: None,
    })
}

/// Appends `calls` calls, two records each.
fn calls(trail: &Trail, calls: u64) {
    for i in 0..calls {
        let tool = format!("tool{}", i % 3);
        let first = trail
            .append([enter(i, 1000 + (i % 2) as u32, &tool)])
            .unwrap()
            .first;
        trail
            .append([exit(i, first, &tool, i % 4 != 0, i)])
            .unwrap();
    }
}

fn check(state_dir: &Path, heads: &WitnessedHeads) -> Report {
    let verifier = std::fs::read_to_string(verifier_path(state_dir))
        .unwrap()
        .parse()
        .unwrap();
    verify(&directory(state_dir), Extent::Whole, Some(&verifier), heads).unwrap()
}

/// Verifies a trail that nobody touched.
fn sound(state_dir: &Path, heads: &WitnessedHeads) -> Report {
    let report = check(state_dir, heads);
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(
        report.promised_records,
        heads.heads.keys().next_back().copied().unwrap_or(0)
    );
    report
}

fn segments(state_dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(directory(state_dir))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "jsonl"))
        .collect();
    paths.sort();
    paths
}

fn kinds(report: &Report) -> Vec<TrailFaultKind> {
    report.faults.iter().map(|fault| fault.kind).collect()
}

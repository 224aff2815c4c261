//! The example in `docs/trail-example`: what a stranger holds a verifier against, byte for byte
//! what is written here.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use super::*;
use crate::line::push_line;
use crate::segment::SegmentName;
use crate::signed_note::Signer;
use crate::state::{Torn, TrailState, push_opening, push_seal};

fn directory() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/trail-example"
    ))
}

/// A trail with fixed times and a fixed key: its files, and the lines of its log.
struct Example {
    signer: Signer,
    state: TrailState,
    files: Vec<(String, Vec<u8>)>,
    log: String,
}

impl Example {
    fn push(&mut self, rec: impl FnOnce(&mut Vec<u8>, &TrailState, &Signer)) {
        let Self {
            signer,
            state,
            files,
            ..
        } = self;
        let out = &mut files.last_mut().unwrap().1;
        let leaf = push_line(out, &mut state.head.clone(), |out| rec(out, state, signer));
        state.push(leaf);
    }

    fn begin(&mut self, name: &str, at: SystemTime, previous: Option<SegmentName>, torn: &[Torn]) {
        self.files.push((format!("{name}.jsonl"), Vec::new()));
        self.push(|out, state, _| push_opening(out, at, state, previous, torn));
    }

    fn record(&mut self, record: &TrailRecord<'_>) {
        self.push(|out, state, _| record.write(out, state.records()));
    }

    fn seal(&mut self, at: SystemTime, reason: &str) {
        self.push(|out, state, signer| push_seal(out, at, state, reason, signer));
        let head = self.head();
        self.log += &format!("Nov 21 22:30:00 host colibri-mcpd[4711]: {head}\n");
    }

    fn head(&self) -> TrailHead {
        let hash = merkle::from_hex(&self.state.head).unwrap();
        TrailHead::sign(
            &self.signer,
            self.state.records(),
            hash,
            self.state.tree.root(),
        )
    }
}

/// Makes it: one segment that ends with a seal and goes on, is torn, and a second one that was
/// opened to recover.
fn make() -> Vec<(String, Vec<u8>)> {
    let mut example = Example {
        signer: Signer::from_seed("colibri-mcp/trail/0011223344556677".into(), &[7; 32]),
        state: TrailState::default(),
        files: Vec::new(),
        log: String::new(),
    };
    let (first, second) = ("0000000001-20261121", "0000000002-20261121");
    example.begin(first, time(0), None, &[]);
    let details = [
        ("version", Detail::Text("0.1.0")),
        ("text", Detail::Text("\u{202e}\"é\n")),
    ];
    example.record(&TrailRecord::Event(EventRecord {
        time: time(1),
        event: "start",
        details: &details,
    }));
    example.record(&enter(2, 1001, "echo"));
    example.record(&exit(3, 2, "echo", true, 12));
    example.seal(time(4), "count");
    example.record(&enter(5, 1001, "echo"));
    let (name, bytes) = example.files.last_mut().unwrap();
    let offset = bytes.len() as u64;
    bytes.extend_from_slice(b"{\"hash\":\"0123");
    let previous = SegmentName::parse(name, "jsonl");
    let torn = Torn {
        segment: first.into(),
        offset,
        length: 13,
    };
    example.begin(second, time(60), previous, &[torn]);
    example.record(&exit(61, 5, "echo", false, 60_000));
    example.seal(time(62), "shutdown");
    let (head, key) = (example.head(), example.signer.verifier().to_string());
    let mut files = example.files;
    files.push(("auth.log".into(), example.log.into_bytes()));
    files.push(("trail.head".into(), format!("{head}\n").into_bytes()));
    files.push(("trail.pub".into(), format!("{key}\n").into_bytes()));
    files
}

#[test]
fn the_example_in_the_manual_is_what_is_written() {
    for (name, bytes) in make() {
        let there = fs::read(directory().join(&name)).unwrap_or_default();
        assert_eq!(
            String::from_utf8_lossy(&there),
            String::from_utf8_lossy(&bytes),
            "{name}"
        );
    }
}

#[test]
fn the_example_verifies_and_proves() {
    let dir = directory();
    let key: Verifier = fs::read_to_string(dir.join("trail.pub"))
        .unwrap()
        .parse()
        .unwrap();
    let log = fs::read(dir.join("auth.log")).unwrap();
    let mut heads = WitnessedHeads::read(&log[..], Some(&key)).unwrap();
    heads
        .read_note(&dir.join("trail.head"), Some(&key))
        .unwrap();
    let report = verify(&dir, Extent::Whole, Some(&key), &heads).unwrap();
    assert!(report.is_sound() && report.notes.is_empty(), "{report:#?}");
    assert_eq!(
        (report.records, report.checkpoints, report.promised_records),
        (9, 2, 9)
    );
    assert_eq!(report.vouched_by.len(), 2);
    let proof = prove(&dir, 2, None).unwrap();
    let text = proof.to_string();
    assert_eq!(
        fs::read_to_string(dir.join("record-2.tlog-proof")).unwrap_or_default(),
        text
    );
    check_proof(&text, None, Some(&key)).unwrap();
    let manual = fs::read_to_string(dir.join("../trail.md")).unwrap();
    for value in [
        &report.head,
        report.root.as_ref().unwrap(),
        &colibri_text::hex(&proof.tree().unwrap().1),
    ] {
        assert!(
            manual.contains(&value[..16]),
            "{value} is not in docs/trail.md"
        );
    }
}

//! Tampering, by the thousand, from fixed seeds: every change before the last witnessed head is
//! found, and no untouched trail is ever called damaged: 10,000 tamperings and 1,000 trails that
//! were only cut off. `COLIBRI_LONG=1` does ten times as much, `COLIBRI_SHORT=1` a twentieth.

use std::fs;
use std::ops::Range;
use std::path::Path;

use super::*;
use crate::line::{SegmentLine, push_line};
use crate::merkle::to_hex;
use crate::signed_note::Signer;
use crate::state::{StateRecord, TrailState};

/// Numbers that look random and are the same every time: SplitMix64 (Steele, Lea, Flood 2014).
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn within(&mut self, range: Range<usize>) -> usize {
        range.start + self.below(range.end - range.start)
    }
}

/// The number of rounds.
pub(super) fn rounds(usual: u64) -> u64 {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    match () {
        () if is_set("COLIBRI_LONG") => usual * 10,
        () if is_set("COLIBRI_SHORT") => usual / 20,
        () => usual,
    }
}

/// A trail in memory: segments with their names and lines.
#[derive(Clone, PartialEq)]
struct Copy {
    segments: Vec<(String, Vec<Vec<u8>>)>,
}

impl Copy {
    fn read(state_dir: &Path) -> Self {
        let segments = segments(state_dir).into_iter().map(|path| {
            let bytes = fs::read(&path).unwrap();
            let lines = bytes
                .split_inclusive(|b| *b == b'\n')
                .map(<[u8]>::to_vec)
                .collect();
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                lines,
            )
        });
        Self {
            segments: segments.collect(),
        }
    }

    fn write(&self, state_dir: &Path) {
        let dir = directory(state_dir);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        for (name, lines) in &self.segments {
            fs::write(dir.join(name), lines.concat()).unwrap();
        }
    }

    fn lines(&self) -> usize {
        self.segments.iter().map(|(_, lines)| lines.len()).sum()
    }

    fn place(&self, mut line: usize) -> (usize, usize) {
        for (at, (_, lines)) in self.segments.iter().enumerate() {
            if line < lines.len() {
                return (at, line);
            }
            line -= lines.len();
        }
        panic!("no such line");
    }

    fn line(&mut self, line: usize) -> &mut Vec<u8> {
        let (segment, at) = self.place(line);
        &mut self.segments[segment].1[at]
    }

    /// The records as they stand, whatever segment they are in.
    fn records(&self) -> Vec<Vec<u8>> {
        self.segments
            .iter()
            .flat_map(|(_, lines)| lines.clone())
            .collect()
    }

    /// The work of an attacker who has the files, this program and even the key: numbers, hashes,
    /// trees and checkpoints are made anew from the first changed line on.
    fn rehash(&mut self, signer: &Signer) {
        let mut state = TrailState::default();
        let mut previous: Option<String> = None;
        for (name, lines) in &mut self.segments {
            for (at, line) in lines.iter_mut().enumerate() {
                let Some(parsed) = line.strip_suffix(b"\n").and_then(SegmentLine::parse) else {
                    continue;
                };
                let Ok(mut rec) = serde_json::from_slice::<
                    serde_json::Map<String, serde_json::Value>,
                >(parsed.rec) else {
                    continue;
                };
                let n = state.records();
                let text = |hash: &[u8]| {
                    serde_json::Value::String(String::from_utf8(hash.to_vec()).unwrap())
                };
                if StateRecord::parse(&parsed).is_some() {
                    let peaks = state
                        .tree
                        .peaks()
                        .iter()
                        .map(|peak| text(&to_hex(peak)))
                        .collect();
                    rec.insert("tree_size".into(), n.into());
                    rec.insert("root".into(), text(&to_hex(&state.tree.root())));
                    rec.insert("head".into(), text(&state.head));
                    rec.insert("peaks".into(), serde_json::Value::Array(peaks));
                    if rec.contains_key("checkpoint") {
                        rec.insert(
                            "checkpoint".into(),
                            signer.checkpoint(n, &state.tree.root()).into(),
                        );
                    }
                    if let (0, Some(previous)) = (at, &previous) {
                        rec.insert("previous".into(), previous.clone().into());
                    }
                }
                let (kind, mut body) = (rec.remove("kind"), String::new());
                rec.remove("n");
                for (key, value) in &rec {
                    body += &format!(",\"{key}\":{value}");
                }
                let rec = format!("{{\"n\":{n},\"kind\":{}{body}}}", kind.unwrap());
                line.clear();
                let leaf = push_line(line, &mut state.head.clone(), |out| {
                    out.extend_from_slice(rec.as_bytes())
                });
                state.push(leaf);
            }
            previous = Some(name.strip_suffix(".jsonl").unwrap().to_owned());
        }
    }

    /// One random change that begins in the first `promised` lines.
    fn tamper(&mut self, random: &mut Seeded, promised: usize, other: &Self) -> String {
        let at = random.below(promised);
        let all = self.lines();
        let (segment, line) = self.place(at);
        match random.below(12) {
            0 => {
                let bytes = self.line(at);
                let byte = random.below(bytes.len());
                bytes[byte] ^= 1 << random.below(8);
                format!("flip a bit of byte {byte} in line {at}")
            }
            1 => {
                let bytes = self.line(at);
                let byte = random.below(bytes.len());
                bytes.remove(byte);
                format!("delete byte {byte} of line {at}")
            }
            2 => {
                let byte = random.next() as u8;
                let bytes = self.line(at);
                let to = random.below(bytes.len());
                bytes.insert(to, byte);
                format!("insert a byte in line {at}")
            }
            3 => {
                // What an attacker would really do: another user, another tool, another result.
                let text = String::from_utf8_lossy(self.line(at)).into_owned();
                let changed = text
                    .replace("\"uid\":1000", "\"uid\":1001")
                    .replace("\"result\":\"FAIL\"", "\"result\":\"SUCCESS\"")
                    .replace("\"operation\":\"tool1\"", "\"operation\":\"tool2\"");
                *self.line(at) = changed.into_bytes();
                format!("rewrite what line {at} says")
            }
            4 => {
                self.segments[segment].1.remove(line);
                format!("delete line {at}")
            }
            5 => {
                let until = random.within(line..self.segments[segment].1.len());
                self.segments[segment].1.drain(line..=until);
                format!("delete lines {line} to {until} of segment {segment}")
            }
            6 => {
                let copied = self.line(random.below(all)).clone();
                self.segments[segment].1.insert(line, copied);
                format!("insert a copy before line {at}")
            }
            7 => {
                let with = random.below(all);
                let kept = self.line(at).clone();
                *self.line(at) = std::mem::replace(self.line(with), kept);
                format!("swap lines {at} and {with}")
            }
            8 => {
                self.segments[segment].1.truncate(line);
                self.segments.truncate(segment + 1);
                if random.below(2) == 0 {
                    self.segments.retain(|(_, lines)| !lines.is_empty());
                }
                format!("cut the trail off at line {at}")
            }
            9 => {
                self.segments.remove(segment);
                format!("remove segment {segment}")
            }
            10 => {
                let with = random.below(self.segments.len());
                let kept = self.segments[segment].1.clone();
                self.segments[segment].1 = std::mem::replace(&mut self.segments[with].1, kept);
                format!("swap segments {segment} and {with}")
            }
            _ => {
                let from = other.records();
                let start = random.below(from.len());
                let end = random.within(start..from.len().min(start + 9)) + 1;
                let until = random.within(line..self.segments[segment].1.len());
                self.segments[segment]
                    .1
                    .splice(line..=until, from[start..end].iter().cloned());
                format!("splice lines {start} to {end} of another trail in at line {at}")
            }
        }
    }
}

#[test]
fn every_change_before_the_last_witnessed_head_is_found() {
    std::thread::scope(|scope| {
        for seed in 20_261_121..20_261_125 {
            scope.spawn(move || campaign(seed));
        }
    });
}

/// A quarter of the campaign.
fn campaign(seed: u64) {
    let rounds = rounds(2_500);
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, calls: u64| {
        let state_dir = dir.path().join(name);
        fs::create_dir(&state_dir).unwrap();
        let (trail, memory) = super::open(&state_dir, small());
        super::calls(&trail, calls);
        // What follows the last head is beyond the promise; the campaign must not count on the last
        // seal.
        memory.wait_for(calls * 2);
        let heads = memory.heads();
        super::calls(&trail, 2);
        drop(trail);
        (state_dir, heads)
    };
    let (state_dir, heads) = make("trail", 40);
    let (other, _) = make("other", 12);
    let (original, other) = (Copy::read(&state_dir), Copy::read(&other));
    sound(&state_dir, &heads);
    assert!(original.segments.len() > 5);
    let promised = *heads.heads.keys().next_back().unwrap() as usize;
    let signer = Signer::load_or_create(&key_path(&state_dir), "trail").unwrap();
    // Making all hashes anew must work, or the second half of the campaign would show nothing.
    let mut rehashed = original.clone();
    rehashed.rehash(&signer);
    rehashed.write(&state_dir);
    let report = check(&state_dir, &WitnessedHeads::default());
    assert!(report.is_sound(), "{report:#?}");

    let mut random = Seeded(seed);
    let (mut tampered, mut unwitnessed) = (0, 0);
    while tampered < rounds {
        let anew = tampered % 2 == 1;
        let mut copy = original.clone();
        let done = copy.tamper(&mut random, promised, &other);
        if copy == original {
            continue;
        }
        if anew {
            copy.rehash(&signer);
        }
        copy.write(&state_dir);
        let report = check(&state_dir, &heads);
        assert!(
            !report.is_sound(),
            "seed {seed}, round {tampered}, hashes anew {anew}: not found: {done}"
        );
        assert!(report.promised_records <= promised as u64);
        unwitnessed += u64::from(anew && check(&state_dir, &WitnessedHeads::default()).is_sound());
        tampered += 1;
    }
    // The witness is what finds many of them: without it some changes leave a trail that holds.
    assert!(unwitnessed > 0);
}

/// A trail cut at any byte is what SIGKILL, a power failure without reordering or a full disk
/// leave. It verifies up to the last whole record, the next process goes on, and the result
/// verifies too.
#[test]
fn a_trail_cut_at_any_byte_verifies_and_goes_on() {
    let rounds = rounds(600);
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    fs::create_dir(&whole).unwrap();
    let (trail, _) = super::open(&whole, small());
    calls(&trail, 20);
    drop(trail);
    let whole = Copy::read(&whole);
    let mut random = Seeded(1);
    for round in 0..rounds {
        let state_dir = dir.path().join(format!("{round}"));
        let mut copy = whole.clone();
        copy.segments
            .truncate(1 + random.below(whole.segments.len()));
        copy.write(&state_dir);
        let last = segments(&state_dir).pop().unwrap();
        let cut = random.next() % (fs::metadata(&last).unwrap().len() + 1);
        fs::OpenOptions::new()
            .write(true)
            .open(&last)
            .unwrap()
            .set_len(cut)
            .unwrap();
        let count = |state_dir: &Path| {
            let records = Copy::read(state_dir).records();
            records.iter().filter(|line| line.ends_with(b"\n")).count() as u64
        };
        let before = count(&state_dir);
        let report = verify(
            &directory(&state_dir),
            Extent::Whole,
            None,
            &WitnessedHeads::default(),
        )
        .unwrap();
        assert!(report.is_sound(), "cut at {cut}: {report:#?}");
        assert_eq!(report.records, before);
        for _ in 0..2 {
            let (trail, memory) = super::open(&state_dir, small());
            calls(&trail, 5);
            trail.close().unwrap();
            let verifier = trail.verifier().clone();
            // The seals before the cut were signed by another installation's key.
            let report =
                verify(&directory(&state_dir), Extent::Whole, None, &memory.heads()).unwrap();
            assert!(report.is_sound(), "cut at {cut}: {report:#?}");
            assert!(report.promised_records > before, "{report:#?}");
            assert_eq!(report.records, report.promised_records);
            assert!(
                memory
                    .heads()
                    .heads
                    .values()
                    .flatten()
                    .all(|head| head.is_signed_by(&verifier))
            );
        }
        fs::remove_dir_all(&state_dir).unwrap();
    }
}

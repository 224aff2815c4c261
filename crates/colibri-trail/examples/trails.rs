//! Makes honest trails of random shapes, for whoever tests a verifier: `trails DIRECTORY SEED
//! COUNT`.
//!
//! Each is a state directory `DIRECTORY/0000`, `0001`, … as a daemon leaves it, with the heads that
//! it handed out in `auth.log` beside its files: several runs, each ended or killed, whole segments
//! dropped, a clock that jumps. What is random comes from the seed; keys and the times at which
//! heads are written do not.

use std::error::Error;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use colibri_trail::{
    Attempt, ContentDigest, Detail, Enter, EventRecord, ExitRecord, RecordReference, SegmentLimits,
    Trail, TrailHead, TrailOptions, TrailRecord, Witness, directory, drop_segments, note_path,
};

const DAY: u64 = 86_400;

/// Texts that a writer must escape, or must not.
const TEXTS: [&str; 8] = [
    "echo",
    "a \"quoted\" one",
    "é ü 漢字",
    "\u{202e}turned",
    "line\nfeed\r\0",
    "\u{1f600} \u{fffd}",
    "{\"hash\":\"",
    "back\\slash \\u0041",
];

/// Numbers that look random and are the same every time: SplitMix64 (Steele, Lea, Flood 2014).
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn text(&mut self) -> &'static str {
        TEXTS[self.below(TEXTS.len() as u64) as usize]
    }
}

/// Keeps the heads it is given, as lines of a log.
#[derive(Default)]
struct Log(Mutex<String>);

impl Log {
    fn lines(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Witness for Log {
    fn witness(&self, head: &TrailHead) -> io::Result<()> {
        let line = format!("Nov 21 22:30:00 host colibri-mcpd[4711]: {head}\n");
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_str(&line);
        Ok(())
    }
}

/// A few calls and events; the clock goes on, and sometimes jumps.
fn append(
    trail: &Trail,
    random: &mut Seeded,
    clock: &mut SystemTime,
) -> Result<(), Box<dyn Error>> {
    for _ in 0..random.below(12) {
        *clock += Duration::from_millis(random.below(90_000));
        if random.one_in(6) {
            let days = random.below(4) * DAY;
            let ahead = random.one_in(2);
            *clock = if ahead {
                *clock + Duration::from_secs(days)
            } else {
                *clock - Duration::from_secs(days)
            };
        }
        let (time, text) = (*clock, random.text());
        if random.one_in(4) {
            let details = [
                ("text", Detail::Text(text)),
                ("number", Detail::Number(random.below(u64::MAX))),
                ("flag", Detail::Flag(random.one_in(2))),
            ];
            trail.append([TrailRecord::Event(EventRecord {
                time,
                event: "start",
                details: &details[..random.below(4) as usize],
            })])?;
            continue;
        }
        let full = serde_json::value::to_raw_value(&[text])?;
        let elsewhere = RecordReference {
            origin: text,
            n: random.below(1 << 32),
        };
        let first = trail.append([TrailRecord::Enter(Enter {
            time,
            uid: 1001,
            gid: 1000,
            pid: Some(4242),
            connection: random.below(9),
            continues: None,
            client: None,
            method: "tools/call",
            server: Some("demo"),
            tool: Some(text),
            name: None,
            era: "modern",
            version: "2026-07-28",
            args: ContentDigest::of(text.as_bytes()),
            args_full: random.one_in(3).then_some(&*full),
            traceparent: None,
            tracestate: None,
            validated: colibri_trail::Validation::Exact,
            through: None,
            task: random.one_in(3).then(|| random.below(1 << 32)),
            within: random.one_in(3).then(|| random.below(1 << 32)),
            caller: random.one_in(3).then_some(elsewhere),
        })])?;
        let attempt = |attempt_number, error_code| Attempt {
            time,
            enter: first.first,
            integration_id: "demo",
            operation: text,
            attempt_number,
            error_code,
            error_class: error_code.map(|_| "transient"),
            latency: Duration::from_micros(1500),
        };
        let success = random.one_in(2);
        let last = TrailRecord::Exit(ExitRecord {
            attempt: attempt(2, (!success).then_some("TIMEOUT")),
            success,
            output: success.then(|| ContentDigest::of(text.as_bytes())),
            output_full: None,
            remote: random.one_in(3).then_some(elsewhere),
        });
        trail.append([TrailRecord::Retry(attempt(1, Some("TIMEOUT"))), last])?;
    }
    Ok(())
}

/// Leaves the remains of a daemon that was killed in the middle of a write: some bytes of a line,
/// or a segment without a record.
fn interrupt(dir: &Path, random: &mut Seeded) -> io::Result<()> {
    let mut names: Vec<PathBuf> = fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    names.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "jsonl")
    });
    names.sort();
    let Some(last) = names.pop() else {
        return Ok(());
    };
    let line = format!(
        "{{\"hash\":\"{:064x}\",\"prev\":\"{0:064x}\",\"rec\":{{\"n\":",
        random.below(u64::MAX)
    );
    let part = &line.as_bytes()[..random.below(line.len() as u64 + 1) as usize];
    let path = if random.one_in(4) {
        let name = last.file_name().unwrap_or_default().to_string_lossy();
        let ordinal: u64 = name[..10].parse().unwrap_or_default();
        dir.join(format!("{:010}{}", ordinal + 1, &name[10..]))
    } else {
        last
    };
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)?
        .write_all(part)
}

/// The files as a process that is killed now leaves them. The note first: it may be older than the
/// segments, not newer.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(directory(to))?;
    for name in ["trail.head", "trail.key", "trail.pub"] {
        fs::copy(from.join(name), to.join(name))?;
    }
    for entry in fs::read_dir(directory(from))? {
        let entry = entry?;
        fs::copy(entry.path(), directory(to).join(entry.file_name()))?;
    }
    Ok(())
}

fn make(place: &Path, random: &mut Seeded) -> Result<(), Box<dyn Error>> {
    let limits = SegmentLimits {
        segment_bytes: 1500 + random.below(6000),
        seal_records: 3 + random.below(12),
        witness_records: 1 + random.below(9),
        ..SegmentLimits::default()
    };
    let mut clock = SystemTime::now() - Duration::from_secs(random.below(30) * DAY);
    let (mut log, mut state_dir) = (String::new(), place.with_extension("0"));
    fs::create_dir_all(&state_dir)?;
    for run in 1..=1 + random.below(5) {
        let witness = Arc::new(Log::default());
        let trail = Trail::open(TrailOptions {
            state_dir: state_dir.clone(),
            sync: random.one_in(8),
            witness: Arc::clone(&witness) as Arc<dyn Witness>,
            notify: |_, _| (),
            limits,
        })?;
        append(&trail, random, &mut clock)?;
        if random.one_in(2) {
            let next = place.with_extension(run.to_string());
            log += &witness.lines();
            copy(&state_dir, &next)?;
            drop(trail);
            fs::remove_dir_all(&state_dir)?;
            state_dir = next;
            if random.one_in(2) {
                interrupt(&directory(&state_dir), random)?;
            }
        } else {
            drop(trail);
            log += &witness.lines();
        }
        if random.one_in(3) {
            drop_segments(
                &directory(&state_dir),
                Duration::from_secs(random.below(3) * DAY),
                clock,
            )?;
        }
    }
    // The daemon's own note alone, and nobody, are witnesses too.
    if random.one_in(10) {
        fs::remove_file(note_path(&state_dir))?;
    }
    fs::write(state_dir.join("auth.log"), log)?;
    fs::rename(&state_dir, place)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [place, seed, count] = &arguments[..] else {
        return Err("usage: trails DIRECTORY SEED COUNT".into());
    };
    let seed: u64 = seed.parse()?;
    for number in 0..count.parse()? {
        let mut random = Seeded(seed.wrapping_mul(0x0001_0000_0001).wrapping_add(number));
        make(&Path::new(place).join(format!("{number:04}")), &mut random)?;
    }
    Ok(())
}

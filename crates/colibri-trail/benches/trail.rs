//! The cost of a record: `cargo bench -p colibri-trail --bench trail`.
//!
//! Time is told as a ratio to the least that such a trail could do: SHA-256 over each record and
//! one write(2) for each batch. Both sides run three times, in turn, and the medians count; on
//! Linux of the time that the thread had a processor, so that others on the machine disturb less.
//! Allocations are those of valgrind(1), of twice as many records less those of as many: they do
//! not depend on the machine's mood. The directory is that of `TMPDIR`: point it at the disk that
//! is to be measured.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use colibri_trail::{
    Attempt, ContentDigest, Enter, ExitRecord, SegmentLimits, Trail, TrailHead, TrailOptions,
    TrailRecord, Witness, directory,
};
use sha2::Sha256;

/// Records of one run.
const RECORDS: usize = 400_000;

const ONE_SEGMENT: SegmentLimits = SegmentLimits {
    segment_bytes: u64::MAX,
    seal_records: 4096,
    witness_records: 1000,
    witness_after: Duration::from_secs(10),
};

/// Set for the child that valgrind counts: how many records it appends.
const CHILD: &str = "COLIBRI_TRAIL_BENCH_RECORDS";

struct Nobody;

impl Witness for Nobody {
    fn witness(&self, _: &TrailHead) -> io::Result<()> {
        Ok(())
    }
}

fn enter(time: SystemTime, args: ContentDigest) -> TrailRecord<'static> {
    TrailRecord::Enter(Enter {
        time,
        uid: 1001,
        gid: 1001,
        pid: Some(4242),
        connection: 7,
        continues: None,
        client: None,
        method: "tools/call",
        server: Some("github"),
        tool: Some("create_issue"),
        name: Some("github__create_issue"),
        era: "legacy",
        version: "2025-11-25",
        args,
        args_full: None,
        traceparent: None,
        tracestate: None,
        validated: colibri_trail::Validation::Exact,
        through: None,
        task: None,
        within: None,
        caller: None,
    })
}

fn exit(time: SystemTime, enter: u64, output: ContentDigest) -> TrailRecord<'static> {
    TrailRecord::Exit(ExitRecord {
        attempt: Attempt {
            time,
            enter,
            integration_id: "github",
            operation: "create_issue",
            attempt_number: 1,
            error_code: None,
            error_class: None,
            latency: Duration::from_micros(1234),
        },
        success: true,
        output: Some(output),
        output_full: None,
        remote: None,
    })
}

/// The time that this thread had a processor, or where the system does not tell, the time that
/// passed.
fn clock(start: Instant) -> Duration {
    fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .map_or_else(|| start.elapsed(), Duration::from_nanos)
}

/// Appends so many records, in batches; returns how long each append took.
fn append(
    dir: &Path,
    sync: bool,
    limits: SegmentLimits,
    records: usize,
    batch: usize,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let trail = Trail::open(TrailOptions {
        state_dir: dir.into(),
        sync,
        witness: Arc::new(Nobody),
        notify: |_, what| eprintln!("{what}"),
        limits,
    })?;
    let digest = ContentDigest::of(b"{\"a\":1}");
    let mut times = Vec::with_capacity(records / batch);
    for round in 0..records / batch {
        let start = Instant::now();
        let time = SystemTime::now();
        let of_round = (0..batch).map(|i| match i % 2 {
            0 => enter(time, digest),
            _ => exit(time, (round * batch) as u64, digest),
        });
        trail.append(of_round)?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// Hashes each of these lines, and writes them in batches: what the trail does at the least.
fn bare(dir: &Path, lines: &[&[u8]], batch: usize) -> io::Result<Duration> {
    use sha2::Digest as _;
    let mut file = File::create(dir.join("bare"))?;
    let mut buffer = Vec::with_capacity(lines.iter().take(batch).map(|line| line.len() + 64).sum());
    let begin = Instant::now();
    let start = clock(begin);
    for lines in lines.chunks(batch) {
        buffer.clear();
        for line in lines {
            std::hint::black_box(Sha256::digest(&line[83..]));
            buffer.extend_from_slice(line);
        }
        file.write_all(&buffer)?;
    }
    Ok(clock(begin) - start)
}

fn median<T: Ord + Copy>(mut values: [T; 3]) -> T {
    values.sort_unstable();
    values[1]
}

fn time(batch: usize) -> Result<(), Box<dyn Error>> {
    let mut trails = [Duration::ZERO; 3];
    let mut bares = trails;
    let mut length = 0;
    for (trail, bare_time) in trails.iter_mut().zip(&mut bares) {
        let dir = tempfile::tempdir()?;
        let begin = Instant::now();
        let start = clock(begin);
        append(dir.path(), false, ONE_SEGMENT, RECORDS, batch)?;
        *trail = clock(begin) - start;
        let segment = fs::read_dir(directory(dir.path()))?
            .next()
            .ok_or("no segment")??;
        let text = fs::read(segment.path())?;
        let lines: Vec<&[u8]> = text
            .split_inclusive(|byte| *byte == b'\n')
            .take(RECORDS)
            .collect();
        length = text.len() / lines.len();
        *bare_time = bare(dir.path(), &lines, batch)?;
    }
    let each = |times: [Duration; 3]| median(times).as_secs_f64() * 1e9 / RECORDS as f64;
    let (trail, bare) = (each(trails), each(bares));
    println!(
        "batch {batch:3}  {trail:6.0} ns/record of {length} bytes  bare {bare:6.0} ns/record  ratio {:.2}",
        trail / bare
    );
    Ok(())
}

fn latency(batch: usize) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let mut times = append(dir.path(), true, ONE_SEGMENT, 300 * batch, batch)?;
    times.sort_unstable();
    let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
    println!(
        "batch {batch:3}  with fsync(2): append p50 {:?}  p99 {:?}",
        at(0.5),
        at(0.99)
    );
    Ok(())
}

/// The number of allocations of a child that appends so many records.
fn allocations(records: usize) -> Result<u64, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .arg("--leak-check=no")
        .arg(std::env::current_exe()?)
        .env(CHILD, records.to_string())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said
        .split_once("total heap usage: ")
        .and_then(|(_, rest)| rest.split_once(" allocs"))
        .ok_or_else(|| format!("valgrind did not count: {said}"))?;
    Ok(count.0.replace(',', "").parse()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Ok(records) = std::env::var(CHILD) {
        let limits = SegmentLimits {
            seal_records: u64::MAX,
            witness_records: u64::MAX,
            witness_after: Duration::MAX,
            ..ONE_SEGMENT
        };
        append(
            tempfile::tempdir()?.path(),
            false,
            limits,
            records.parse()?,
            64,
        )?;
        return Ok(());
    }
    for batch in [1, 2, 32, 256] {
        time(batch)?;
    }
    for batch in [1, 256] {
        latency(batch)?;
    }
    // Without seals and heads; what is left are notes of the head, ten a second.
    let (once, twice) = (allocations(40_960)?, allocations(81_920)?);
    println!(
        "allocations/record {:.2}",
        twice.saturating_sub(once) as f64 / 40_960.0
    );
    Ok(())
}

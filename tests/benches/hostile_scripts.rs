//! Ten thousand hostile scripts of sixteen families, and a neighbour who makes calls all the while.
//!
//! `cargo bench -p colibri-tests --bench hostile_scripts [-- COUNT [SEED]]`, after `cargo build
//! --release --workspace --bins`; `COLIBRI_TEST_PROGRAMS` names a directory that has the programs.
//! The scripts run in batches, four at a time; before each batch the neighbour is timed without
//! them. As root the neighbour is another user. It ends with 1 if a script ended as it may not, a
//! process was left, a call of the neighbour's was refused, or the 99th percentile of these is more
//! than three times that without scripts.
// A measurement: what fails ends it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use colibri_tests::hostile_scripts::{
    HostileEnds, HostileScript, place_for_hostile_scripts, run_hostile_scripts, wait_for_no_script,
};
use colibri_tests::{Client, Era, NEIGHBOUR, text_of};
use serde_json::json;

/// The scripts of a batch.
const BATCH: usize = 200;
/// The time before a batch in which the neighbour is timed without scripts.
const QUIET: Duration = Duration::from_secs(3);
/// The time from one call of the neighbour's to the next.
const PACE: Duration = Duration::from_millis(4);
/// The most that a call may take beside the scripts, of what it takes without.
const MOST: f64 = 3.0;

fn main() -> ExitCode {
    let arguments: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let count = arguments.first().map_or(10_000, |count| *count as usize);
    let seed = arguments.get(1).copied().unwrap_or(0x5eed);
    let (directory, place) = place_for_hostile_scripts();
    place.open_to_group();
    let all = json!({ "gates": ["external-call"], "servers": { "*": ["*"] } });
    place.clients(&json!({ "others": all }).to_string());
    let daemon = place.start(&["--log-level", "error"]);
    let mut neighbour = match nix::unistd::geteuid().is_root() {
        true => Client::over(daemon.stream_of(NEIGHBOUR)),
        false => daemon.connect(),
    };
    neighbour.era = Era::Modern;
    let mut times = Times::default();
    // The server starts, and the caches fill.
    call_until(&mut neighbour, &mut Times::default().without, |since| {
        since > QUIET
    });
    let (mut ends, begun, mut most) = (HostileEnds::default(), Instant::now(), 0);
    let mut scripts = HostileScript::many(seed, count);
    while !scripts.is_empty() {
        let batch = scripts.split_off(scripts.len().saturating_sub(BATCH));
        call_until(&mut neighbour, &mut times.without, |since| since > QUIET);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                call_until(&mut neighbour, &mut times.beside, |_| {
                    over.load(Ordering::Relaxed)
                })
            });
            run_hostile_scripts(batch, || daemon.modern(), &mut ends);
            over.store(true, Ordering::Relaxed);
        });
        wait_for_no_script(&directory);
        most = most.max(daemon.resident().unwrap_or(0));
        let ended = ends.counts.values().sum::<u32>() as usize + ends.wrong.len();
        println!(
            "{ended} of {count} in {:.0} s; p99 {:.2} / {:.2} ms, {} wrong",
            begun.elapsed().as_secs_f64(),
            at(99, &times.without),
            at(99, &times.beside),
            ends.wrong.len()
        );
    }
    daemon.stop();
    show(&ends);
    let ratio = at(99, &times.beside) / at(99, &times.without);
    println!(
        "{} calls of the neighbour without scripts, {} beside them: p50 {:.2} / {:.2} ms, p99 {:.2} / {:.2} ms, {ratio:.1} ×",
        times.without.len(),
        times.beside.len(),
        at(50, &times.without),
        at(50, &times.beside),
        at(99, &times.without),
        at(99, &times.beside),
    );
    println!("the daemon's memory, at most: {:.0} MB", most as f64 / 1e6);
    match ends.wrong.is_empty() && ratio <= MOST {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Milliseconds of the neighbour's calls.
#[derive(Default)]
struct Times {
    without: Vec<f64>,
    beside: Vec<f64>,
}

/// Makes calls until `is_over` says so of the time since the first.
fn call_until(client: &mut Client, times: &mut Vec<f64>, is_over: impl Fn(Duration) -> bool) {
    let first = Instant::now();
    for n in 0_u32.. {
        if is_over(first.elapsed()) {
            break;
        }
        // Not one after the other: a call that is late would keep others from being late.
        let due = PACE * n;
        thread::sleep(due.saturating_sub(first.elapsed()));
        let begun = Instant::now();
        let result = client.call("calm__echo", json!({ "text": "x".repeat(64) }));
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        assert!(text_of(&result).contains("xxxx"), "{result}");
    }
}

fn at(percent: usize, times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * percent / 100]
}

/// A table of the families and their ends.
fn show(ends: &HostileEnds) {
    let mut families = BTreeMap::<_, Vec<String>>::new();
    for ((family, end), count) in &ends.counts {
        families
            .entry(family)
            .or_default()
            .push(format!("{count} {end}"));
    }
    for (family, ends) in families {
        println!("| {family} | {} |", ends.join(", "));
    }
    for wrong in &ends.wrong {
        println!("WRONG: {wrong}");
    }
}

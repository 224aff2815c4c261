//! What a call costs the daemon's own process, counted: instructions, allocations, system calls;
//! and the private memory of a daemon and of a bridge at rest.
//!
//! ```text
//! colibri-cost [--hold FILE] [instructions] [syscalls] [memory]
//! ```
//!
//! Needs valgrind and strace, and colibri-mcpd and colibri-mcp beside it. No count depends on what
//! else the machine does. With `--hold` the least of the runs counts, and one that is over that of
//! FILE by more than 3 % is a failure: who means it to grow writes it there, and why into the
//! commit. A FILE is of one profile: `release.txt`, `dist.txt` beside the manifest. The count of a
//! call is (count of 2N calls - count of N calls) / N, the median of five, for a text of 64 bytes,
//! with one worker thread, so that what arrives together does not depend on which thread is
//! quicker. Besides, what a call costs on one of 64 connections with one call each, by lines and as
//! a POST.

#[path = "../../../colibri-mcpd/benches/support/crowd.rs"]
mod crowd;
#[path = "../../../colibri-mcpd/benches/support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use colibri_mcpd::relay::Recorder;
use colibri_mcpd::results::Results;
use colibri_trail::{SegmentLimits, Trail, TrailHead, TrailOptions, Witness};
use crowd::{CONNECTIONS, Crowd, Framing};
use support::{Daemon, Session, registry};

/// What is counted as an allocation.
const ALLOCATIONS: [&str; 5] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if support::played_a_part(&arguments) {
        return ExitCode::SUCCESS;
    }
    if arguments
        .get(1)
        .is_some_and(|first| first == "daemon-of-one-worker")
    {
        daemon_of_one_worker(&arguments[2] == "trail", &arguments[3..]);
        return ExitCode::SUCCESS;
    }
    let flags = Flags::parse_from(arguments);
    let held = flags.hold.as_deref().map(|file| {
        let text = std::fs::read_to_string(file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        text.lines().filter_map(read_count).collect::<Vec<_>>()
    });
    let counts = count(&flags);
    let (Some(file), Some(held)) = (&flags.hold, held) else {
        return ExitCode::SUCCESS;
    };
    let grown = grown(&counts, &held);
    if grown.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "more than {} allows, by over {MOST_GROWTH} %:",
        file.display()
    );
    grown.iter().for_each(|line| eprintln!("  {line}"));
    ExitCode::FAILURE
}

/// The command line.
#[derive(Parser)]
struct Flags {
    /// The file of counts over which none may be.
    #[arg(long)]
    hold: Option<PathBuf>,
    /// Runs of each setting.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// What is counted; all of it if nothing is named.
    #[arg(value_parser = ["instructions", "syscalls", "memory"])]
    what: Vec<String>,
}

/// The most by which a count may be over the one that is held, in percent.
const MOST_GROWTH: f64 = 3.0;

/// A count: its name with its setting, and how many a call.
type Count = (String, f64);

/// The counts over those that are held, a line each. A count that is not in the file is one.
fn grown(counts: &[Count], held: &[Count]) -> Vec<String> {
    let line = |(name, now): &Count| match held.iter().find(|(known, _)| known == name) {
        Some((_, before)) if *now <= before * (1.0 + MOST_GROWTH / 100.0) => None,
        Some((_, before)) => Some(format!("{name}: {now:.2}, held at {before}")),
        None => Some(format!("{name}: {now:.2}, not held")),
    };
    counts.iter().filter_map(line).collect()
}

/// Reads a line such as `allocations/call 2.10 (256 in flight, trail off)`.
fn read_count(line: &str) -> Option<Count> {
    let (what, rest) = line.split_once(' ')?;
    let (number, setting) = rest.split_once(' ')?;
    Some((format!("{what} {setting}"), number.parse().ok()?))
}

/// The daemon with one worker, with its trail or without.
fn daemon_of_one_worker(trail: bool, arguments: &[String]) {
    let arguments = std::iter::once("colibri-mcpd").chain(arguments.iter().map(String::as_str));
    let config = colibri_mcpd::config::DaemonFlags::parse_from(arguments)
        .resolve()
        .expect("flags");
    let recorder = if trail {
        Recorder::Trail(open_trail(&config.state_dir))
    } else {
        Recorder::Off
    };
    let sources = colibri_mcpd::run::read_sources(&config)
        .map_err(|(_, message)| message)
        .expect("files");
    let results = Results::open(&config.state_dir, sources.1.clients.limits()).expect("results");
    let results = Arc::new(results);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("runtime");
    if let Err((_, message)) =
        runtime.block_on(colibri_mcpd::run::run(config, sources, recorder, results))
    {
        eprintln!("{message}");
    }
}

fn open_trail(state_dir: &Path) -> Trail {
    Trail::open(TrailOptions {
        state_dir: state_dir.to_owned(),
        sync: false,
        witness: Arc::new(Nobody),
        notify: |_, what| eprintln!("{what}"),
        // No head by time: how many there were would depend on how long the calls take.
        limits: SegmentLimits {
            witness_after: Duration::from_secs(86_400),
            ..SegmentLimits::default()
        },
    })
    .expect("trail")
}

/// Heads go nowhere.
struct Nobody;

impl Witness for Nobody {
    fn witness(&self, _: &TrailHead) -> std::io::Result<()> {
        Ok(())
    }
}

struct Setting {
    from: From,
    trail: bool,
    calls: usize,
}

/// Who calls.
#[derive(Clone, Copy)]
enum From {
    /// One connection that writes lines, with so many calls in flight.
    One(usize),
    /// Many, with one call each.
    Crowd(Framing),
}

impl Setting {
    fn name(&self) -> String {
        let trail = if self.trail { "trail on" } else { "trail off" };
        match self.from {
            From::One(in_flight) => format!("{in_flight} in flight, {trail}"),
            From::Crowd(framing) => format!("{CONNECTIONS} connections, {framing:?}, {trail}"),
        }
    }
}

const SETTINGS: [Setting; 6] = [
    Setting {
        from: From::One(256),
        trail: false,
        calls: 5120,
    },
    Setting {
        from: From::One(256),
        trail: true,
        calls: 5120,
    },
    Setting {
        from: From::One(1),
        trail: false,
        calls: 1000,
    },
    Setting {
        from: From::One(1),
        trail: true,
        calls: 1000,
    },
    Setting {
        from: From::Crowd(Framing::Lines),
        trail: false,
        calls: 2560,
    },
    Setting {
        from: From::Crowd(Framing::Http),
        trail: false,
        calls: 2560,
    },
];

/// Counts and prints, and returns what it printed.
fn count(flags: &Flags) -> Vec<Count> {
    let wanted = |name: &str| flags.what.is_empty() || flags.what.iter().any(|what| what == name);
    // Whatever else runs adds to a count, and takes nothing away.
    let typical = if flags.hold.is_some() { least } else { median };
    let mut counts = Vec::new();
    let mut print = |what: &str, setting: &str, number: f64, decimals: usize| {
        println!("{what} {number:.decimals$} ({setting})");
        counts.push((format!("{what} ({setting})"), number));
    };
    for setting in &SETTINGS {
        if wanted("instructions") {
            let (mut instructions, mut allocations) = (Vec::new(), Vec::new());
            for _ in 0..flags.runs {
                let (once, twice) = (callgrind(setting, 1), callgrind(setting, 2));
                instructions.push((twice.0 - once.0) / setting.calls as f64);
                allocations.push((twice.1 - once.1) / setting.calls as f64);
            }
            print(
                "instructions/call",
                &setting.name(),
                typical(instructions),
                0,
            );
            print("allocations/call", &setting.name(), typical(allocations), 2);
        }
        if wanted("syscalls") {
            print(
                "syscalls/call",
                &setting.name(),
                typical(syscalls(setting, flags.runs)),
                2,
            );
        }
    }
    if wanted("memory") {
        let (daemons, bridges) = (0..flags.runs).map(|_| private_pages()).unzip();
        print("private-KiB", "daemon, 1 client", typical(daemons), 0);
        print("private-KiB", "bridge", typical(bridges), 0);
    }
    counts
}

/// Has glibc give back at once what is freed at the end of the heap. How much of it is kept
/// otherwise, some 200 KiB, differs from start to start and from machine to machine.
const GIVE_BACK: [(&str, &str); 2] = [("MALLOC_TOP_PAD_", "0"), ("MALLOC_TRIM_THRESHOLD_", "0")];

/// Private memory at rest, in KiB: of the daemon with a bridge as its one client, and of that
/// bridge.
fn private_pages() -> (f64, f64) {
    let directory = tempfile::tempdir().expect("temporary directory");
    std::fs::write(directory.path().join("registry.json"), registry()).expect("registry");
    let own = std::env::current_exe().expect("own path");
    let beside = |name: &str| own.with_file_name(name).display().to_string();
    let mut command = vec!["/usr/bin/env".to_owned()];
    command.extend(GIVE_BACK.map(|(name, value)| format!("{name}={value}")));
    command.push(beside("colibri-mcpd"));
    let daemon = Daemon::start(directory.path(), "pages", &command);
    let mut bridge = Command::new(beside("colibri-mcp"))
        .arg("--socket")
        .arg(&daemon.socket)
        .envs(GIVE_BACK)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start the bridge");
    let mut input = bridge.stdin.take().expect("stdin");
    let mut output = BufReader::new(bridge.stdout.take().expect("stdout"));
    let mut exchange = |request: &str| {
        input
            .write_all(request.as_bytes())
            .expect("write to the bridge");
        output
            .read_line(&mut String::new())
            .expect("read from the bridge");
    };
    exchange(support::INITIALIZE);
    exchange(&call(1));
    let pages = (resting_pages(daemon.child.id()), resting_pages(bridge.id()));
    drop(input);
    bridge.wait().expect("the bridge ends");
    pages
}

/// Anonymous memory of a process, in KiB, once it was the same ten times in a row, a tenth of a
/// second apart. Dirty pages of files are no measure: those of a program that was just linked are
/// dirty until the disk has them.
fn resting_pages(pid: u32) -> f64 {
    let (mut previous, mut same) = (None, 0);
    for _ in 0..300 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
            .expect("the maps of a process");
        let pages = text
            .lines()
            .find_map(|line| line.strip_prefix("Anonymous:")?.split_whitespace().next());
        let pages: f64 = pages
            .and_then(|pages| pages.parse().ok())
            .expect("a number of pages");
        same = if previous == Some(pages) { same + 1 } else { 0 };
        if same == 10 {
            return pages;
        }
        previous = Some(pages);
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("process {pid} does not come to rest within 30 s")
}

fn least(figures: Vec<f64>) -> f64 {
    figures.into_iter().fold(f64::INFINITY, f64::min)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn start(directory: &Path, setting: &Setting, before: &[String]) -> Daemon {
    std::fs::write(directory.join("registry.json"), registry()).expect("registry");
    let own = std::env::current_exe()
        .expect("own path")
        .display()
        .to_string();
    let trail = if setting.trail { "trail" } else { "off" };
    let command = [
        before,
        &[own, "daemon-of-one-worker".to_owned(), trail.to_owned()],
    ]
    .concat();
    Daemon::start(directory, "counted", &command)
}

/// Who makes the calls of a setting.
enum Caller {
    One(Session, usize),
    Crowd(Crowd),
}

impl Caller {
    fn of(setting: &Setting, daemon: &Daemon) -> Caller {
        match setting.from {
            From::One(in_flight) => Caller::One(Session::open(&daemon.socket), in_flight),
            From::Crowd(framing) => Caller::Crowd(Crowd::open(&daemon.socket, framing)),
        }
    }

    /// Makes so many calls.
    fn run(&mut self, calls: usize) {
        let (session, in_flight) = match self {
            Caller::One(session, in_flight) => (session, *in_flight),
            Caller::Crowd(crowd) => {
                crowd.run(|made| made < calls);
                return;
            }
        };
        let (mut sent, mut answered) = (0, 0);
        while answered < calls {
            let next = (answered + in_flight).min(calls);
            let lines: String = (sent..next).map(|id| call(id as u64)).collect();
            sent = next;
            session.send(lines.as_bytes());
            answered += session.read_lines(1);
        }
    }
}

/// Instructions and allocations of a daemon's whole life with `times` as many calls.
fn callgrind(setting: &Setting, times: usize) -> (f64, f64) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let out = directory.path().join("callgrind");
    let valgrind = [
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        "--quiet".to_owned(),
        format!("--callgrind-out-file={}", out.display()),
    ];
    let daemon = start(directory.path(), setting, &valgrind);
    let mut caller = Caller::of(setting, &daemon);
    caller.run(512);
    caller.run(times * setting.calls);
    drop(caller);
    drop(daemon);
    if let Ok(keep) = std::env::var("COLIBRI_COST_KEEP") {
        std::fs::copy(
            &out,
            PathBuf::from(keep).join(format!(
                "callgrind.out.{}",
                setting.name().replace(' ', "-")
            )),
        )
        .expect("keep");
    }
    let text = std::fs::read_to_string(&out).expect("what callgrind counted");
    let number = |line: &str| {
        line.split_whitespace()
            .nth(1)
            .and_then(|number| number.parse::<f64>().ok())
    };
    let total = text
        .lines()
        .filter(|line| line.starts_with("totals:"))
        .find_map(number);
    (total.expect("a total"), allocations(&text))
}

/// How often the functions that allocate were called. A function's name stands where it comes
/// first, then its number.
fn allocations(text: &str) -> f64 {
    let (mut numbers, mut counted, mut sum) = (Vec::new(), false, 0.0);
    for line in text.lines() {
        if let Some(calls) = line.strip_prefix("calls=") {
            if counted {
                sum += calls
                    .split(' ')
                    .next()
                    .and_then(|count| count.parse::<f64>().ok())
                    .unwrap_or(0.0);
            }
        } else if let Some(function) = line.strip_prefix("cfn=").or(line.strip_prefix("fn=")) {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            if ALLOCATIONS.contains(&name) {
                numbers.push(number.to_owned());
            }
            counted = numbers.iter().any(|known| known == number);
        }
    }
    sum
}

/// System calls a call of a daemon that runs.
fn syscalls(setting: &Setting, runs: usize) -> Vec<f64> {
    let directory = tempfile::tempdir().expect("temporary directory");
    let daemon = start(directory.path(), setting, &[]);
    let mut caller = Caller::of(setting, &daemon);
    caller.run(512);
    let mut traced = |calls: usize| {
        let out = directory.path().join("strace");
        let mut strace = Command::new("strace")
            .args(["-f", "-c", "-o"])
            .arg(&out)
            .args(["-p", &daemon.child.id().to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .expect("start strace");
        let mut said = BufReader::new(strace.stderr.take().expect("stderr")).lines();
        said.find(|line| line.as_ref().is_ok_and(|line| line.contains("attached")))
            .expect("attached")
            .expect("read");
        caller.run(calls);
        let _ = Command::new("kill")
            .args(["-INT", &strace.id().to_string()])
            .status();
        let _ = strace.wait();
        let text = std::fs::read_to_string(&out).expect("what strace counted");
        let total = text
            .lines()
            .find(|line| line.ends_with("total"))
            .expect("a total");
        total
            .split_whitespace()
            .nth(3)
            .and_then(|calls| calls.parse::<f64>().ok())
            .expect("a number")
    };
    // What is traced first was seen to be counted in part only.
    traced(setting.calls);
    (0..runs)
        .map(|_| (traced(2 * setting.calls) - traced(setting.calls)) / setting.calls as f64)
        .collect()
}

/// A call of the echo server's tool with a text of 64 bytes.
fn call(id: u64) -> String {
    let text = "x".repeat(64);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"echo__echo\",\"arguments\":\
         {{\"text\":\"{text}\"}}}}}}\n"
    )
}

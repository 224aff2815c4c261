//! Clients over both framings, servers of both eras, and everything that goes wrong: processes of
//! servers are killed, clients go in the middle of a call, the registry changes and is read again.
//! Every accepted request has to be answered once, nothing may grow, and nothing may be left.
//!
//! Growth is counted in objects that are alive, before and after, each time with no client and no
//! server: one that is kept of each request, each killed process or each reload is seen. So the
//! daemon is the library within this program, whose allocator counts. Resident memory is told
//! beside it: that is the system's allocator's too.
//!
//! `cargo bench -p colibri-tests --bench soak -- [SECONDS [CLIENTS [SERVERS]]]`; by default 20
//! seconds, 1,000 clients and 20 servers. It prints a report, and fails if a promise was broken.
// A measurement: what fails ends it.
#![allow(clippy::unwrap_used)]

mod sys;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use colibri_tests::http::Http;
use colibri_tests::{Daemon, LEGACY, Place, modern_meta, processes_with, program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// How long an answer may take on a machine that does a thousand other things.
const PATIENCE: Duration = Duration::from_secs(120);
/// Calls of a client that are in flight together.
const TOGETHER: u64 = 8;
/// Between two reloads.
const RELOADS: Duration = Duration::from_millis(500);
/// How long nothing more may go before all has gone that goes.
const QUIET: Duration = Duration::from_secs(15);
/// How many objects more may be alive: buffers of threads that came to be used, a statistic's new
/// row.
const MAY_GROW: i64 = 32;
/// The variable with the socket at which the daemon says how much of it is alive.
const COUNTS: &str = "COLIBRI_SOAK_COUNTS";

#[global_allocator]
static ALLOCATOR: sys::Counted = sys::Counted;

/// What happened, all clients together.
#[derive(Default)]
struct Counts {
    sessions: AtomicU64,
    broken_off: AtomicU64,
    requests: AtomicU64,
    results: AtomicU64,
    failures: AtomicU64,
    errors: AtomicU64,
    notifications: AtomicU64,
    kills: AtomicU64,
    reloads: AtomicU64,
    /// Broken promises, in words.
    wrong: Mutex<BTreeMap<String, u64>>,
}

impl Counts {
    fn add(&self, counter: impl Fn(&Counts) -> &AtomicU64) {
        counter(self).fetch_add(1, Ordering::Relaxed);
    }

    fn wrong(&self, what: impl Into<String>) {
        *self.wrong.lock().unwrap().entry(what.into()).or_default() += 1;
    }

    /// Counts an answer.
    fn answer(&self, message: &Value) {
        if message.get("error").is_some() {
            self.add(|counts| &counts.errors);
        } else if message["result"]["isError"] == true {
            self.add(|counts| &counts.failures);
        } else {
            self.add(|counts| &counts.results);
        }
    }
}

/// A xorshift generator: the same clients do the same things in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

struct Soak {
    socket: std::path::PathBuf,
    servers: u64,
    counts: Counts,
    over: AtomicBool,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    // The daemon, and what it starts as itself.
    if arguments
        .get(1)
        .is_some_and(|first| first == "--socket" || first == "keeper")
    {
        if let Some(counts) = std::env::var_os(COUNTS) {
            tell_counts(Path::new(&counts));
        }
        return colibri_mcpd::run::run_cli(arguments);
    }
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let number = |at: usize, usual| numbers.get(at).copied().unwrap_or(usual);
    soak(number(0, 20), number(1, 1000), number(2, 20));
    ExitCode::SUCCESS
}

fn soak(seconds: u64, clients: u64, servers: u64) {
    let place = Place::with_daemon(std::env::current_exe().unwrap());
    let counts = place.path("counts.sock").display().to_string();
    place.limits(json!({ "clients": 4 * clients, "clients_per_user": 4 * clients }));
    let flags = ["--external-call", "--log-level", "warn"];
    let daemon = place.start_in(&[(COUNTS, &counts)], &flags);
    let soak = Arc::new(Soak {
        socket: place.socket(),
        servers,
        counts: Counts::default(),
        over: AtomicBool::new(false),
    });
    let trouble = {
        let (soak, mark) = (Arc::clone(&soak), place.directory().display().to_string());
        thread::spawn(move || make_trouble(&soak, &mark))
    };
    // All kinds of work once: what is kept for good is kept from here on.
    work(&soak, &place, &daemon, clients, seconds.clamp(5, 30));
    let before = settled(&place, &daemon);
    work(&soak, &place, &daemon, clients, seconds);
    let after = settled(&place, &daemon);
    soak.over.store(true, Ordering::Relaxed);
    trouble.join().unwrap();
    report(&soak.counts, seconds, clients, servers, &before, &after);
    let log = daemon.log();
    // Fails if a process, the socket or a file is left.
    daemon.stop();
    let wrong = soak.counts.wrong.lock().unwrap();
    assert!(
        wrong.is_empty(),
        "broken promises: {wrong:#?}\nthe daemon's log:\n{log}"
    );
    let more = after.objects - before.objects;
    assert!(more <= MAY_GROW, "{more} objects more are alive");
    assert!(
        after.descriptors <= before.descriptors,
        "descriptors have grown"
    );
}

/// All clients for this long, while the registry changes: one server less, and then again one more.
fn work(soak: &Arc<Soak>, place: &Place, daemon: &Daemon<'_>, clients: u64, seconds: u64) {
    let time = Duration::from_secs(seconds);
    let deadline = Instant::now() + time;
    write_registry(place, soak.servers);
    daemon.signal(Signal::SIGHUP);
    thread::scope(|scope| {
        let others = scope.spawn(|| run_clients(soak, clients, time));
        while Instant::now() < deadline {
            thread::sleep(RELOADS);
            let left_out = soak.counts.reloads.fetch_add(1, Ordering::Relaxed) % 2;
            write_registry(place, soak.servers - left_out);
            daemon.signal(Signal::SIGHUP);
        }
        others.join().unwrap();
    });
}

/// Says to everybody who connects how many objects and bytes of this process are alive.
fn tell_counts(at: &Path) {
    let listener = UnixListener::bind(at).unwrap();
    thread::spawn(move || {
        for mut asked in listener.incoming().flatten() {
            let (objects, bytes) = sys::alive();
            let _ = write!(asked, "{objects} {bytes}");
        }
    });
}

/// What the daemon has.
struct Has {
    objects: i64,
    bytes: i64,
    resident: u64,
    descriptors: u64,
}

impl Has {
    fn now(place: &Place, daemon: &Daemon<'_>) -> Has {
        let mut counts = String::new();
        let mut asked = UnixStream::connect(place.path("counts.sock")).unwrap();
        asked.read_to_string(&mut counts).unwrap();
        let (objects, bytes) = counts.split_once(' ').unwrap();
        let descriptors = Path::new("/proc").join(daemon.pid().to_string()).join("fd");
        Has {
            objects: objects.parse().unwrap(),
            bytes: bytes.parse().unwrap(),
            resident: daemon.resident().unwrap_or_default(),
            descriptors: std::fs::read_dir(descriptors).map_or(0, Iterator::count) as u64,
        }
    }
}

/// What the daemon has when it has no client and no server: when fewest objects are alive, and none
/// less for a while.
fn settled(place: &Place, daemon: &Daemon<'_>) -> Has {
    place.registry(&json!({}));
    daemon.signal(Signal::SIGHUP);
    let mark = place.directory().display().to_string();
    let limit = Instant::now() + PATIENCE;
    while servers_of(&mark).next().is_some() && Instant::now() < limit {
        thread::sleep(Duration::from_millis(200));
    }
    let mut least = Has::now(place, daemon);
    let mut since = Instant::now();
    while since.elapsed() < QUIET && Instant::now() < limit {
        thread::sleep(Duration::from_millis(200));
        let now = Has::now(place, daemon);
        if now.objects < least.objects || now.descriptors < least.descriptors {
            since = Instant::now();
        }
        if now.objects <= least.objects {
            least = now;
        }
    }
    least
}

/// The processes of servers whose environment has this mark.
fn servers_of(mark: &str) -> impl Iterator<Item = i32> {
    let servers = processes_with("conformance-fixture")
        .into_iter()
        .map(|(pid, _)| pid);
    servers.filter(move |pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(mark)
    })
}

fn report(counts: &Counts, seconds: u64, clients: u64, servers: u64, before: &Has, after: &Has) {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut text = format!("soak: {seconds} s, {clients} clients, {servers} servers\n");
    for (name, counter) in [
        ("sessions", &counts.sessions),
        ("  broken off by the client", &counts.broken_off),
        ("requests", &counts.requests),
        ("  answered with a result", &counts.results),
        ("  with a failed tool", &counts.failures),
        ("  with an error", &counts.errors),
        ("notifications", &counts.notifications),
        ("processes of servers killed", &counts.kills),
        ("reloads", &counts.reloads),
    ] {
        let _ = writeln!(text, "  {name:<32}{:>10}", read(counter));
    }
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64);
    for (name, before, after) in [
        (
            "objects alive",
            before.objects.to_string(),
            after.objects.to_string(),
        ),
        (
            "  bytes of them",
            before.bytes.to_string(),
            after.bytes.to_string(),
        ),
        (
            "resident memory",
            mebibytes(before.resident),
            mebibytes(after.resident),
        ),
        (
            "descriptors",
            before.descriptors.to_string(),
            after.descriptors.to_string(),
        ),
    ] {
        let _ = writeln!(text, "  {name:<32}{before:>10}, after {after}");
    }
    println!("{text}");
}

/// Servers of both eras, with and without a prefix.
fn write_registry(place: &Place, servers: u64) {
    let entries = (0..servers).map(|number| {
        let era = ["legacy", "modern"][number as usize % 2];
        let name = format!("s{number}");
        // The mark by which the processes of this place are found.
        let env = json!({ "PLACE": place.directory() });
        (
            name,
            json!({ "command": program("conformance-fixture"), "args": [era, "--page", "1000"], "env": env }),
        )
    });
    place.registry(&Value::Object(entries.collect()));
}

/// Kills a random process of a server now and then.
fn make_trouble(soak: &Soak, mark: &str) {
    let mut random = Random(0x9e37_79b9);
    while !soak.over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50 + random.below(400)));
        let servers: Vec<i32> = servers_of(mark).collect();
        if servers.is_empty() {
            continue;
        }
        let pid = servers[random.below(servers.len() as u64) as usize];
        if kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
            soak.counts.add(|counts| &counts.kills);
        }
    }
}

/// So many clients, each of which comes and goes until the time is over.
fn run_clients(soak: &Arc<Soak>, clients: u64, time: Duration) {
    let deadline = Instant::now() + time;
    let threads: Vec<_> = (0..clients)
        .map(|number| {
            let soak = Arc::clone(soak);
            let work = move || {
                let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                while Instant::now() < deadline {
                    match random.below(3) {
                        0 => speak_http(&soak, &mut random),
                        era => speak_lines(&soak, &mut random, era == 1),
                    }
                    thread::sleep(Duration::from_millis(random.below(500)));
                }
            };
            thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(work)
                .unwrap()
        })
        .collect();
    for thread in threads {
        if thread.join().is_err() {
            soak.counts.wrong("a client gave up");
        }
    }
}

/// A request: method and params without `_meta`.
fn request(soak: &Soak, random: &mut Random) -> (&'static str, Value) {
    let server = random.below(soak.servers);
    let tool = |name: &str, arguments: Value| json!({ "name": format!("s{server}__{name}"), "arguments": arguments });
    match random.below(12) {
        0 => ("tools/list", json!({})),
        1 => (
            "resources/read",
            json!({ "uri": format!("s{server}+test://template/{}/data", random.below(1000)) }),
        ),
        2 => (
            "prompts/get",
            json!({ "name": format!("s{server}__test_simple_prompt") }),
        ),
        3 => (
            "tools/call",
            tool(
                "test_tool_with_progress",
                json!({ "steps": 1 + random.below(20) }),
            ),
        ),
        4 => (
            "tools/call",
            tool("test_hold", json!({ "file": "/dev/null" })),
        ),
        5 => ("tools/call", tool("test_error_handling", json!({}))),
        6 => (
            "tools/call",
            tool("slow_compute", json!({ "seconds": 0.05, "label": "x" })),
        ),
        7 => (
            "tools/call",
            json!({ "name": "no_such_tool", "arguments": {} }),
        ),
        _ => ("tools/call", tool("test_simple_text", json!({}))),
    }
}

/// The params with what a request of this era carries.
fn with_meta(mut params: Value, modern: bool, token: u64) -> Value {
    if modern {
        params["_meta"] = serde_json::from_str(&format!("{{{}}}", modern_meta())).unwrap();
    }
    params["_meta"]["progressToken"] = json!(token);
    params
}

fn connect(soak: &Soak) -> Option<UnixStream> {
    let stream = UnixStream::connect(&soak.socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    soak.counts.add(|counts| &counts.sessions);
    Some(stream)
}

/// One connection that speaks lines: some rounds of calls in flight together, of which some are
/// cancelled.
fn speak_lines(soak: &Soak, random: &mut Random, modern: bool) {
    let Some(mut stream) = connect(soak) else {
        soak.counts.wrong("a connection was refused");
        return;
    };
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut next = 1;
    let mut send = |message: Value| stream.write_all(format!("{message}\n").as_bytes()).is_ok();
    if !modern {
        let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": { "name": "soak", "version": "1" } });
        send(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return soak.counts.wrong("no answer to initialize");
        }
        send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }
    for _ in 0..1 + random.below(4) {
        // Whether each of the round was answered, and whether it was cancelled.
        let (mut open, mut cancelled) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..1 + random.below(TOGETHER) {
            let (method, params) = request(soak, random);
            let held = params["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("test_hold"));
            let id = next;
            next += 1;
            let params = with_meta(params, modern, id);
            if !send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })) {
                return soak.counts.wrong("the daemon closed a connection");
            }
            soak.counts.add(|counts| &counts.requests);
            open.insert(id);
            if held || random.below(20) == 0 {
                cancelled.insert(id);
            }
        }
        for id in &cancelled {
            send(
                json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }),
            );
        }
        if random.below(15) == 0 {
            // Gone, with everything in flight.
            soak.counts.add(|counts| &counts.broken_off);
            return;
        }
        // Lines are read in order: what was cancelled is not answered after this.
        let last = next;
        next += 1;
        let params = if modern {
            with_meta(json!({}), true, last)
        } else {
            json!({})
        };
        send(json!({ "jsonrpc": "2.0", "id": last, "method": "tools/list", "params": params }));
        let mut seen_last = false;
        while !seen_last || open.difference(&cancelled).next().is_some() {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) => {
                    return soak
                        .counts
                        .wrong("the daemon closed a connection with requests open");
                }
                Err(error) => return soak.counts.wrong(format!("no answer: {}", error.kind())),
                Ok(_) => {}
            }
            let Ok(message) = serde_json::from_str::<Value>(&line) else {
                return soak.counts.wrong("a line that is no JSON");
            };
            if message.get("method").is_some() {
                soak.counts.add(|counts| &counts.notifications);
                let token = message["params"]["progressToken"].as_u64();
                if token.is_some_and(|token| token < last && !open.contains(&token)) {
                    soak.counts.wrong("progress after its answer");
                }
                continue;
            }
            let id = message["id"].as_u64().unwrap_or_default();
            if id == last {
                seen_last = true;
            } else if !open.remove(&id) {
                soak.counts.wrong("an answer to nothing, or a second one");
            } else if seen_last && cancelled.contains(&id) {
                soak.counts
                    .wrong("an answer after its cancellation was read");
            } else {
                soak.counts.answer(&message);
            }
        }
    }
}

/// Some modern requests over HTTP, one after the other on a connection.
fn speak_http(soak: &Soak, random: &mut Random) {
    let Some(stream) = connect(soak) else {
        return soak.counts.wrong("a connection was refused");
    };
    let mut client = Http::over(stream);
    for id in 1..2 + random.below(6) {
        let (method, params) = request(soak, random);
        let held = params["name"]
            .as_str()
            .is_some_and(|name| name.ends_with("test_hold"));
        if !client.ask(json!(id), method, with_meta(params, true, id)) {
            return soak.counts.wrong("HTTP: the daemon closed a connection");
        }
        soak.counts.add(|counts| &counts.requests);
        if held || random.below(20) == 0 {
            // Closing the stream is the cancellation.
            soak.counts.add(|counts| &counts.broken_off);
            return;
        }
        let Some(response) = client.try_response() else {
            return soak.counts.wrong("HTTP: no answer");
        };
        let messages = if response.is_stream() {
            client
                .events()
                .into_iter()
                .map(|event| event.message)
                .collect()
        } else {
            vec![response.json()]
        };
        let (told, answers): (Vec<_>, Vec<_>) = messages
            .into_iter()
            .partition(|message| message.get("method").is_some());
        soak.counts
            .notifications
            .fetch_add(told.len() as u64, Ordering::Relaxed);
        match answers.as_slice() {
            [answer] if answer["id"] == id => soak.counts.answer(answer),
            answers => soak
                .counts
                .wrong(format!("HTTP: not one answer to one request: {answers:?}")),
        }
    }
}

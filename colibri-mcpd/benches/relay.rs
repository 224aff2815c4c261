//! What the daemon costs: one table of ratios, all measured in one run on one machine.
//!
//! `cargo bench -p colibri-mcpd --bench relay`, after `cargo build --release --workspace --bins`,
//! compares the same calls over: a server's own pipes (direct), a relay that does nothing but copy
//! bytes, the daemon's socket, daemon and bridge, and the daemon without its trail. Goals are those
//! of the design; where one is missed, the table says so. Absolute figures depend on the machine
//! and on what else it does; the ratios are what counts (`http` as an argument measures only many
//! connections by lines and by HTTP, `url` only a server behind a URL, `door` only an agent
//! socket). Users who do their worst are `cargo bench -p colibri-tests --bench neighbours`.

#[path = "support/crowd.rs"]
mod crowd;
#[path = "support/door.rs"]
mod door;
#[path = "../../tests/src/programs.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "a module of the tests, of which one function is used"
)]
mod programs;
mod support;
#[path = "support/web.rs"]
mod web;

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crowd::{Crowd, Framing};
use support::{Daemon, connect, registry};

const SMALL: usize = 64;
const LARGE: usize = 64 * 1024;
/// How often each side is measured: one after the other, again and again.
const ROUNDS: usize = 3;
/// How long each throughput is measured.
const SPAN: Duration = Duration::from_millis(1500);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if support::played_a_part(&arguments) {
        return;
    }
    match arguments.get(1).map(String::as_str) {
        Some("relay") => do_nothing_relay(Path::new(&arguments[2])),
        Some("http") => framings(),
        Some("url") => behind_url(),
        Some("door") => through_a_door(),
        Some("web-server") => web::serve(),
        _ => {
            compare();
            framings();
            behind_url();
            through_a_door();
        }
    }
}

fn echo_command() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command
        .arg("echo-server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// Copies bytes between one client and one server: what any relay costs at least.
fn do_nothing_relay(socket: &Path) {
    let listener = UnixListener::bind(socket).expect("bind");
    let (client, _) = listener.accept().expect("accept");
    let mut server = echo_command().spawn().expect("start the server");
    let (mut stdin, mut stdout) = (
        server.stdin.take().expect("stdin"),
        server.stdout.take().expect("stdout"),
    );
    let (mut from, mut to) = (client.try_clone().expect("clone"), client);
    std::thread::spawn(move || copy(&mut from, &mut stdin));
    copy(&mut stdout, &mut to);
    let _ = server.wait();
}

fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}

/// One way to the server.
struct Way {
    name: &'static str,
    to: Box<dyn Write + Send>,
    from: Box<dyn Read + Send>,
    tool: &'static str,
    next: u64,
    ends: Vec<Child>,
}

impl Way {
    fn new(
        name: &'static str,
        to: impl Write + Send + 'static,
        from: impl Read + Send + 'static,
        tool: &'static str,
    ) -> Way {
        let mut way = Way {
            name,
            to: Box::new(to),
            from: Box::new(from),
            tool,
            next: 1,
            ends: Vec::new(),
        };
        way.send_line(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}"#,
        );
        way.read_lines(1);
        way.send_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        way
    }

    fn send_line(&mut self, line: &str) {
        self.to
            .write_all(format!("{line}\n").as_bytes())
            .expect("write");
        self.to.flush().expect("flush");
    }

    fn request(&mut self, into: &mut Vec<u8>, text: &str) {
        let (id, tool) = (self.next, self.tool);
        self.next += 1;
        into.extend_from_slice(
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{{\"text\":\"{text}\"}}}}}}\n")
                .as_bytes(),
        );
    }

    /// Reads until this many answers have come, and tells how many it were.
    fn read_lines(&mut self, least: usize) -> usize {
        let mut buffer = vec![0; 256 * 1024];
        let mut lines = 0;
        while lines < least {
            let read = self.from.read(&mut buffer).expect("read");
            assert!(read > 0, "{} ended", self.name);
            lines += memchr::memchr_iter(b'\n', &buffer[..read]).count();
        }
        lines
    }

    /// Median time of one call after the other.
    fn latency(&mut self, size: usize) -> Duration {
        let text = "x".repeat(size);
        let mut times = Vec::new();
        let until = Instant::now() + SPAN;
        while Instant::now() < until {
            let mut request = Vec::with_capacity(size + 200);
            self.request(&mut request, &text);
            let start = Instant::now();
            self.to.write_all(&request).expect("write");
            self.to.flush().expect("flush");
            self.read_lines(1);
            times.push(start.elapsed());
        }
        times.sort();
        times[times.len() / 2]
    }

    /// Calls a second with this many in flight.
    fn throughput(&mut self, size: usize, in_flight: usize) -> f64 {
        let text = "x".repeat(size);
        let mut batch = Vec::new();
        for _ in 0..in_flight {
            self.request(&mut batch, &text);
        }
        // Requests are written by a thread of their own: with large ones both directions must flow
        // at once.
        let (mut to, start) = (
            std::mem::replace(&mut self.to, Box::new(io::sink())),
            Instant::now(),
        );
        let (orders, order) = std::sync::mpsc::channel::<Vec<u8>>();
        let writer = std::thread::spawn(move || {
            while let Ok(batch) = order.recv() {
                if to.write_all(&batch).and_then(|()| to.flush()).is_err() {
                    break;
                }
            }
            to
        });
        orders.send(batch).expect("writer");
        let (mut answered, mut waiting) = (0usize, in_flight);
        while start.elapsed() < SPAN {
            let lines = self.read_lines(1);
            answered += lines;
            let mut batch = Vec::new();
            for _ in 0..lines {
                self.request(&mut batch, &text);
            }
            orders.send(batch).expect("writer");
        }
        let rate = answered as f64 / start.elapsed().as_secs_f64();
        while waiting > 0 {
            waiting -= self.read_lines(1).min(waiting);
        }
        drop(orders);
        self.to = writer.join().expect("writer");
        rate
    }
}

fn compare() {
    let directory = tempfile::tempdir().expect("temporary directory");
    std::fs::write(directory.path().join("registry.json"), registry()).expect("registry");
    let mut rounds: Vec<Vec<(&str, Measured)>> = (0..ROUNDS)
        .map(|round| sides(directory.path(), round))
        .collect();
    let last = rounds.pop().expect("a round");
    let rows: Vec<(&str, Measured)> = last
        .into_iter()
        .map(|(name, measured)| {
            let others = rounds.iter().flatten().filter(|(of, _)| *of == name);
            let all: Vec<&Measured> = others
                .map(|(_, measured)| measured)
                .chain([&measured])
                .collect();
            (name, Measured::median(&all))
        })
        .collect();

    let daemon_path = env!("CARGO_BIN_EXE_colibri-mcpd").to_owned();
    let start = Instant::now();
    let daemon = Daemon::unused(
        directory.path(),
        "on",
        std::slice::from_ref(&daemon_path),
        &[],
    );
    let first_answer = start.elapsed();
    daemon.look();
    let first_call = {
        let start = Instant::now();
        let mut way = socket_way("first", &daemon.socket, "echo__echo");
        let mut request = Vec::new();
        way.request(&mut request, "x");
        way.to.write_all(&request).expect("write");
        way.read_lines(1);
        start.elapsed()
    };
    let resident_one = resident(daemon.child.id());
    let resident_bridge = {
        let (mut bridge, mut way) = bridge_way(&daemon.socket);
        way.to
            .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\"list\",\"method\":\"tools/list\"}\n")
            .expect("write");
        way.to.flush().expect("flush");
        way.read_lines(1);
        let resident = resident(bridge.id());
        drop(way);
        let _ = bridge.wait();
        resident
    };
    // What was queued for the last measurements is given back before memory is looked at.
    let idle: Vec<UnixStream> = (0..1000)
        .map(|_| UnixStream::connect(&daemon.socket).expect("connect"))
        .collect();
    let fresh = Daemon::start(directory.path(), "idle", &[daemon_path]);
    let crowd: Vec<Way> = (0..1000)
        .map(|_| socket_way("idle", &fresh.socket, "echo__echo"))
        .collect();
    let resident_crowd = resident(fresh.child.id());
    drop((idle, crowd, fresh));

    let pooled = {
        let mut way = socket_way("pooled", &daemon.socket, "echo__echo");
        way.latency(SMALL)
    };
    let per_call = {
        let mut way = socket_way("per call", &daemon.socket, "fresh__echo");
        way.latency(SMALL)
    };
    drop(daemon);
    print(
        &rows,
        &Other {
            first_answer,
            first_call,
            resident_one,
            resident_crowd,
            resident_bridge,
            pooled,
            per_call,
        },
    );
}

/// Many connections with one call each, by lines and by HTTP in turn.
fn framings() {
    let directory = tempfile::tempdir().expect("temporary directory");
    std::fs::write(directory.path().join("registry.json"), registry()).expect("registry");
    let daemon = Daemon::start(
        directory.path(),
        "http",
        &[env!("CARGO_BIN_EXE_colibri-mcpd").to_owned()],
    );
    let mut rounds: Vec<[f64; 2]> = (0..ROUNDS)
        .map(|_| [Framing::Lines, Framing::Http].map(|framing| crowd_rate(&daemon.socket, framing)))
        .collect();
    rounds.sort_by(|a, b| (a[1] / a[0]).total_cmp(&(b[1] / b[0])));
    let [lines, http] = rounds[ROUNDS / 2];
    println!(
        "\n{} connections with one call each: {lines:.0}/s by lines, {http:.0}/s by HTTP",
        crowd::CONNECTIONS
    );
    goal(
        "calls/s through HTTP, of as many line connections",
        http / lines,
        0.5,
        "x",
        true,
    );
}

/// Calls a second of all connections together.
fn crowd_rate(socket: &Path, framing: Framing) -> f64 {
    let mut crowd = Crowd::open(socket, framing);
    crowd.run(|made| made < 2 * crowd::CONNECTIONS);
    let start = Instant::now();
    let answered = crowd.run(|_| start.elapsed() < SPAN);
    answered as f64 / start.elapsed().as_secs_f64()
}

/// Calls of a server behind a URL, directly and through the daemon.
fn behind_url() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let daemon = [env!("CARGO_BIN_EXE_colibri-mcpd").to_owned()];
    let mut rounds: Vec<[f64; 2]> = (0..ROUNDS)
        .map(|round| {
            let seen = web::compare(&directory.path().join(round.to_string()), &daemon);
            [micros(seen.direct), micros(seen.through)]
        })
        .collect();
    rounds.sort_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0])));
    let [direct, through] = rounds[ROUNDS / 2];
    println!(
        "\na server behind a URL: p50 {direct:.0} us directly, {through:.0} us through the daemon"
    );
    goal("added to a call of it", through - direct, 60.0, "us", false);
}

/// Calls of one server through an agent socket and over the daemon's own socket, in turn.
fn through_a_door() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (daemon, socket) = door::open(
        directory.path(),
        &[env!("CARGO_BIN_EXE_colibri-mcpd").to_owned()],
    );
    let mut direct = socket_way("socket", &daemon.socket, "echo__echo");
    let mut through = socket_way("door", &socket, "echo__echo");
    let mut rounds: Vec<[f64; 2]> = (0..ROUNDS)
        .map(|_| [&mut direct, &mut through].map(|way| micros(way.latency(SMALL))))
        .collect();
    rounds.sort_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0])));
    let [direct, through] = rounds[ROUNDS / 2];
    println!(
        "\nan agent's door: p50 {direct:.1} us over the daemon's socket, {through:.1} us through the door"
    );
    goal(
        "added to a warm call of it",
        through - direct,
        10.0,
        "us",
        false,
    );
}

/// Measures each side once, one after the other.
fn sides(directory: &Path, round: usize) -> Vec<(&'static str, Measured)> {
    let at = |name: &str| directory.join(format!("{name}-{round}"));
    let mut rows = Vec::new();
    let mut server = echo_command().spawn().expect("start the server");
    let (stdin, stdout): (ChildStdin, ChildStdout) = (
        server.stdin.take().expect("stdin"),
        server.stdout.take().expect("stdout"),
    );
    rows.push((
        "direct",
        Measured::of(Way::new("direct", stdin, stdout, "echo")),
    ));
    let _ = server.wait();

    let relay_socket = at("relay");
    let mut relay = Command::new(std::env::current_exe().expect("own path"))
        .arg("relay")
        .arg(&relay_socket)
        .spawn()
        .expect("start the relay");
    rows.push((
        "do-nothing relay",
        Measured::of(socket_way("relay", &relay_socket, "echo")),
    ));
    let _ = relay.wait();

    let own = std::env::current_exe()
        .expect("own path")
        .display()
        .to_string();
    let without = [own, "daemon-without-trail".to_owned()];
    let daemon_path = [env!("CARGO_BIN_EXE_colibri-mcpd").to_owned()];
    for (name, command, more) in [
        ("daemon, trail off", &without[..], &[][..]),
        (
            "daemon, --trail-sync",
            &daemon_path[..],
            &["--trail-sync"][..],
        ),
        ("daemon", &daemon_path[..], &[][..]),
    ] {
        let key = format!("{}-{round}", name.replace([' ', ','], ""));
        let daemon = Daemon::start_with(directory, &key, command, more);
        rows.push((
            name,
            Measured::of(socket_way("daemon", &daemon.socket, "echo__echo")),
        ));
        if name != "daemon" {
            continue;
        }
        let (mut bridge, way) = bridge_way(&daemon.socket);
        rows.push(("daemon and bridge", Measured::of(way)));
        let _ = bridge.wait();
    }
    rows
}

fn socket_way(name: &'static str, socket: &Path, tool: &'static str) -> Way {
    let stream = connect(socket);
    let from = stream.try_clone().expect("clone");
    Way::new(name, stream, from, tool)
}

/// A bridge with an open session.
fn bridge_way(socket: &Path) -> (Child, Way) {
    let mut bridge = Command::new(programs::program("colibri-mcp"))
        .arg("--socket")
        .arg(socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the bridge");
    let (stdin, stdout) = (
        bridge.stdin.take().expect("stdin"),
        bridge.stdout.take().expect("stdout"),
    );
    (bridge, Way::new("bridge", stdin, stdout, "echo__echo"))
}

/// Resident memory in bytes.
fn resident(pid: u32) -> u64 {
    let output = Command::new("ps")
        .args(["-o", "rss=", "-p", &pid.to_string()])
        .output()
        .expect("ps");
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse::<u64>()
        .unwrap_or_default()
        * 1024
}

struct Measured {
    small: Duration,
    large: Duration,
    rates: [(usize, f64, f64); 3],
}

impl Measured {
    fn of(mut way: Way) -> Measured {
        // The first call starts the server.
        let mut warm = Vec::new();
        way.request(&mut warm, "warm");
        way.to.write_all(&warm).expect("write");
        way.to.flush().expect("flush");
        way.read_lines(1);
        let (small, large) = (way.latency(SMALL), way.latency(LARGE));
        let rates = [1, 16, 256].map(|n| {
            (
                n,
                way.throughput(SMALL, n),
                way.throughput(LARGE, n.min(64)),
            )
        });
        for mut child in way.ends.drain(..) {
            let _ = child.wait();
        }
        Measured {
            small,
            large,
            rates,
        }
    }
}

impl Measured {
    /// The median of each figure.
    fn median(all: &[&Measured]) -> Measured {
        let middle = |mut figures: Vec<f64>| {
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        let time = |of: fn(&Measured) -> Duration| {
            Duration::from_secs_f64(middle(
                all.iter()
                    .map(|measured| of(measured).as_secs_f64())
                    .collect(),
            ))
        };
        let rates = [0, 1, 2].map(|index| {
            let of = |which: fn(&(usize, f64, f64)) -> f64| {
                middle(
                    all.iter()
                        .map(|measured| which(&measured.rates[index]))
                        .collect(),
                )
            };
            (all[0].rates[index].0, of(|rate| rate.1), of(|rate| rate.2))
        });
        Measured {
            small: time(|measured| measured.small),
            large: time(|measured| measured.large),
            rates,
        }
    }
}

struct Other {
    first_answer: Duration,
    first_call: Duration,
    resident_one: u64,
    resident_crowd: u64,
    resident_bridge: u64,
    pooled: Duration,
    per_call: Duration,
}

fn print(rows: &[(&str, Measured)], other: &Other) {
    let find = |name: &str| &rows.iter().find(|row| row.0 == name).expect("measured").1;
    let (direct, nothing) = (find("direct"), find("do-nothing relay"));
    println!();
    println!(
        "{:22} {:>9} {:>9} {:>11} {:>11} {:>11} {:>11} {:>8} {:>8}",
        "", "p50 64 B", "64 KiB", "1 in flight", "16", "256", "64 KiB, 64", "x direct", "x relay"
    );
    for (name, measured) in rows {
        let [one, some, many] = measured.rates;
        println!(
            "{name:22} {:>6.1} us {:>6.1} us {:>9.0}/s {:>9.0}/s {:>9.0}/s {:>9.0}/s {:>8.2} {:>8.2}",
            micros(measured.small),
            micros(measured.large),
            one.1,
            some.1,
            many.1,
            many.2,
            many.1 / direct.rates[2].1,
            many.1 / nothing.rates[2].1,
        );
    }
    let (daemon, bridge, off) = (
        find("daemon"),
        find("daemon and bridge"),
        find("daemon, trail off"),
    );
    let many = daemon.rates[2].1;
    println!();
    goal(
        "p50 of a warm call, on the socket, of the do-nothing relay's",
        micros(daemon.small) / micros(nothing.small),
        1.2,
        "x",
        false,
    );
    goal(
        "p50 of a warm call, through the bridge, of the do-nothing relay's",
        micros(bridge.small) / micros(nothing.small),
        1.6,
        "x",
        false,
    );
    goal(
        "calls/s at 256 in flight, chain on, of the do-nothing relay's",
        many / nothing.rates[2].1,
        0.25,
        "x",
        true,
    );
    goal(
        "the same, trail off",
        off.rates[2].1 / nothing.rates[2].1,
        0.4,
        "x",
        true,
    );
    goal(
        "64 KiB answers, of direct",
        micros(daemon.large) / micros(direct.large),
        1.4,
        "x",
        false,
    );
    goal(
        "call of a pooled server vs. a process per call",
        other.per_call.as_secs_f64() / other.pooled.as_secs_f64(),
        100.0,
        "x",
        true,
    );
    goal(
        "resident memory, 1 client",
        other.resident_one as f64 / 1e6,
        12.0,
        "MB",
        false,
    );
    goal(
        "resident memory, 1,000 idle clients",
        other.resident_crowd as f64 / 1e6,
        17.0,
        "MB",
        false,
    );
    goal(
        "resident memory, an idle bridge",
        other.resident_bridge as f64 / 1e6,
        3.0,
        "MB",
        false,
    );
    goal(
        "daemon start to first answer",
        other.first_answer.as_secs_f64() * 1000.0,
        10.0,
        "ms",
        false,
    );
    println!(
        "first call of a server that does not run yet: {:.1} ms",
        other.first_call.as_secs_f64() * 1000.0
    );
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn goal(what: &str, found: f64, wanted: f64, unit: &str, at_least: bool) {
    let met = if at_least {
        found >= wanted
    } else {
        found <= wanted
    };
    let relation = if at_least { "at least" } else { "at most" };
    println!(
        "{:6} {what}: {found:.2} {unit} ({relation} {wanted} {unit})",
        if met { "ok" } else { "MISSED" }
    );
}

//! One user does their worst, and another user makes calls all the while.
//!
//! `cargo bench -p colibri-tests --bench neighbours [-- ATTACK]`, after `cargo build --release
//! --workspace --bins`, attacks the daemon in each way that `neighbour` knows, as a uid of its own:
//! needs root. `COLIBRI_TEST_PROGRAMS` names a directory that has the programs. Beside each attack
//! a third uid, an ordinary one too, calls a tool with 64 bytes, 64 KiB and 2 MB by lines, and with
//! 64 KiB over HTTP. What such an attack costs any program on this machine is measured in turn: the
//! same neighbour writes to a sink, a process that reads and throws away. No call may be lost or
//! refused, the 99th percentile may be three times that beside the sink, and the daemon's memory
//! its budget for messages and 64 MB. It ends with 1 if any of that is missed.
// A measurement: what fails ends it.
#![allow(clippy::unwrap_used)]

#[path = "../../colibri-mcpd/benches/support/echo.rs"]
mod echo;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use colibri_tests::http::Http;
use colibri_tests::model::ScriptedModel;
use colibri_tests::{Client, Daemon, LEGACY, NEIGHBOUR, Neighbour, Place, copy_program, wait_for};
use serde_json::json;

/// How often each side is measured, one after the other.
const ROUNDS: usize = 3;
/// How long each figure is measured in a round.
const SPAN: Duration = Duration::from_millis(1500);
/// The calls of another user: bytes of each and its answer, and how it is sent.
const CALLS: [(usize, &str); 4] = [
    (64, "lines"),
    (64 * 1024, "lines"),
    (2_000_000, "lines"),
    (64 * 1024, "http"),
];
/// That user.
const CALLER: u32 = 54_323;
/// A call that has no answer until then is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most that a call may take, of what it takes beside the sink.
const MOST: f64 = 3.0;
/// The daemon's budget for messages, and 64 MB, in megabytes.
const MEMORY: f64 = (256 << 20) as f64 / 1e6 + 64.0;

/// The bytes after which the sink closes a connection with a line that does not end: the daemon's
/// budget, shared by as many as attack. Otherwise the sink would have nothing to do once each has
/// sent its line.
const MOST_OF_A_LINE: u64 = (256 << 20) / 30;

/// An attack, how many of it, and what that is.
const ATTACKS: [(&str, usize, &str); 8] = [
    ("bodies", 250, "250 slow HTTP bodies of 1 MiB"),
    ("lines", 30, "30 unfinished lines of 15 MB"),
    ("connections", 1024, "1,024 connections"),
    ("lists", 200, "200 lists of 4 MB"),
    ("unread", 200, "answers never read, 200 connections"),
    ("noise", 1000, "a million lines on stderr a call"),
    ("pings", 100_000, "100,000 pings a second"),
    ("models", 16, "long model bodies of the caller's own agent"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("echo-server") => echo::echo_server(echo::ECHO, || ()),
        Some("wide-server") => echo::echo_server(&wide_tools(), || ()),
        Some("noise-server") => echo::echo_server(echo::ECHO, shout),
        Some("sink") => sink(Path::new(&arguments[1]), arguments[2].parse().unwrap()),
        Some("caller") => call(
            Path::new(&arguments[1]),
            arguments[2].parse().unwrap(),
            &arguments[3],
        ),
        _ => return measure_all(&arguments),
    }
    ExitCode::SUCCESS
}

fn measure_all(arguments: &[String]) -> ExitCode {
    assert!(
        nix::unistd::geteuid().is_root(),
        "another user's part is played as root"
    );
    let wanted = arguments.iter().find(|argument| !argument.starts_with('-'));
    let attacks = ATTACKS
        .iter()
        .filter(|(name, ..)| wanted.is_none_or(|wanted| wanted == name));
    println!("before: {}", said_by("uptime", &[]));
    println!(
        "\n| one user's | calls of | beside the sink, p50 / p99 | beside the daemon | p99, of the sink's | lost, refused | memory |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut missed = Vec::new();
    for (name, count, title) in attacks {
        let seen = beside(name, *count);
        for ((length, by), [sink, daemon]) in CALLS.iter().zip(&seen.calls) {
            let ratio = daemon.at(99) / sink.at(99);
            let failed = format!("{}, {}", daemon.lost, daemon.refused);
            println!(
                "| {title} | {length}, {by} | {:.2} / {:.2} ms | {:.2} / {:.2} ms | {ratio:.1} × | {failed} | {:.0} MB |",
                sink.at(50),
                sink.at(99),
                daemon.at(50),
                daemon.at(99),
                seen.resident,
            );
            if ratio > MOST {
                missed.push(format!(
                    "{title}, {length} bytes by {by}: p99 is {ratio:.1} ×, at most {MOST} ×"
                ));
            }
            if daemon.lost + daemon.refused > 0 {
                missed.push(format!(
                    "{title}, {length} bytes by {by}: lost, refused: {failed}"
                ));
            }
        }
        if !seen.said.is_empty() {
            println!("{title}: {}", seen.said);
        }
        if seen.resident > MEMORY {
            missed.push(format!(
                "{title}: {:.0} MB, at most {MEMORY:.0} MB",
                seen.resident
            ));
        }
    }
    println!("\nafter: {}", said_by("uptime", &[]));
    println!(
        "commit {}, {}",
        said_by("git", &["rev-parse", "--short", "HEAD"]),
        said_by("date", &["-u"])
    );
    if missed.is_empty() {
        println!("met: all");
        return ExitCode::SUCCESS;
    }
    println!("missed:\n{}", missed.join("\n"));
    ExitCode::FAILURE
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |error| error.to_string(),
        |said| String::from_utf8_lossy(&said.stdout).trim().to_owned(),
    )
}

/// A list of 4 MB.
fn wide_tools() -> String {
    let text = "x".repeat(500_000);
    let wide = (0..8).map(|index| {
        format!(",{{\"name\":\"wide{index}\",\"description\":\"{text}\",\"inputSchema\":{{\"type\":\"object\"}}}}")
    });
    echo::ECHO.to_owned() + &wide.collect::<String>()
}

/// Writes a million lines to stderr.
fn shout() {
    let mut stderr = io::BufWriter::new(io::stderr().lock());
    for line in 0..1_000_000 {
        // Who is not listened to shouts no more.
        if writeln!(stderr, "line {line}").is_err() {
            return;
        }
    }
}

/// Reads everything that anybody writes to this socket, and throws it away.
fn sink(socket: &Path, most: u64) {
    let listener = UnixListener::bind(socket).unwrap();
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    for stream in listener.incoming().flatten() {
        let reader = thread::Builder::new().stack_size(64 * 1024);
        reader
            .spawn(move || io::copy(&mut stream.take(most), &mut io::sink()))
            .unwrap();
    }
}

/// A sink that runs, and ends when this is dropped.
struct Sink {
    child: Child,
    socket: PathBuf,
}

impl Sink {
    /// One that closes a connection once it has read so many bytes.
    fn start(directory: &Path, most: u64) -> Sink {
        let socket = directory.join("sink.sock");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("sink").arg(&socket).arg(most.to_string());
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        wait_for("the sink", || UnixStream::connect(&socket).ok());
        Sink { child, socket }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // One that has ended already is no trouble.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What calls came to.
#[derive(Default)]
struct Calls {
    /// Milliseconds.
    times: Vec<f64>,
    lost: usize,
    refused: usize,
}

impl Calls {
    fn at(&self, percent: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times
            .get(times.len().saturating_sub(1) * percent / 100)
            .copied()
            .unwrap_or(f64::INFINITY)
    }
}

/// What was seen beside one attack.
#[derive(Default)]
struct Seen {
    /// Of [`CALLS`] each, beside the sink and beside the daemon.
    calls: [[Calls; 2]; CALLS.len()],
    /// Megabytes of the daemon, at most.
    resident: f64,
    /// What the neighbour says of its last attack on the daemon.
    said: String,
}

fn beside(name: &str, count: usize) -> Seen {
    let model = ScriptedModel::new();
    let place = Place::new();
    place.open_to_group();
    let own = std::env::current_exe().unwrap().display().to_string();
    let server = |part: &str| json!({ "command": own, "args": [part] });
    let mut servers = json!({ "echo": server("echo-server"), "noise": server("noise-server") });
    if name == "lists" {
        servers["wide"] = server("wide-server");
    }
    servers["fix"] = place.fixture("fix", &[], json!({}));
    let agent = json!({ "command": "/bin/sleep", "args": ["3600"], "users": [NEIGHBOUR.to_string()],
                        "model": model.entry("anthropic", json!({})) });
    place.registry_text(&json!({ "servers": servers, "agents": { "coder": agent } }).to_string());
    place.secret("model", "not-used");
    let all = json!({ "gates": ["write", "external-call"], "servers": { "*": ["*"] } });
    place.clients(&json!({ "others": all }).to_string());
    let daemon = place.start(&["--write", "--log-level", "error"]);
    let target = match name {
        "models" => relay_of_an_agent(&place, &daemon),
        _ => place.socket(),
    };
    copy_program(&std::env::current_exe().unwrap(), &place.path("caller"));
    let most = if name == "lines" {
        MOST_OF_A_LINE
    } else {
        u64::MAX
    };
    let sink = Sink::start(place.directory(), most);
    let mut seen = Seen::default();
    let (over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(daemon.resident().unwrap_or(0), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(50));
            }
        });
        for _ in 0..ROUNDS {
            for (side, socket) in [&sink.socket, &target].into_iter().enumerate() {
                // The way to the relay is the agent's, who is the daemon's user here; what it takes
                // is the neighbour's.
                let neighbour =
                    Neighbour::attack(place.directory(), socket, name, count, name != "models");
                for ((length, by), calls) in CALLS.iter().zip(&mut seen.calls) {
                    measure(&place, *length, by, &mut calls[side]);
                }
                seen.said = neighbour.end();
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    seen.resident = most.into_inner() as f64 / 1e6;
    drop(sink);
    daemon.stop();
    seen
}

/// The model relay of an agent that runs for the neighbour.
fn relay_of_an_agent(place: &Place, daemon: &Daemon<'_>) -> PathBuf {
    let mut neighbour = Client::over(daemon.stream_of(NEIGHBOUR));
    neighbour.initialize(LEGACY);
    let answer = neighbour.ask("colibri/spawn-agent", json!({ "agent": "coder" }));
    let session = answer["result"]["instance"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let socket = place.path("doors").join(session).join("model.sock");
    wait_for("the model's socket", || socket.exists().then_some(()));
    socket
}

/// Another user, on a connection of their own.
enum Caller {
    Lines {
        to: UnixStream,
        from: BufReader<UnixStream>,
        line: Vec<u8>,
    },
    Http(Box<Http>),
}

impl Caller {
    fn open(socket: &Path, by: &str) -> io::Result<Caller> {
        let to = UnixStream::connect(socket)?;
        if by == "http" {
            return Ok(Caller::Http(Box::new(Http::over(to))));
        }
        to.set_read_timeout(Some(PATIENCE))?;
        to.set_write_timeout(Some(PATIENCE))?;
        let from = BufReader::with_capacity(256 * 1024, to.try_clone()?);
        let line = Vec::new();
        let mut caller = Caller::Lines { to, from, line };
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": LEGACY,
                            "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } } });
        caller.ask(format!("{hello}\n").as_bytes())?;
        Ok(caller)
    }

    /// Writes a line, or makes the same call over HTTP. True if the answer has the text that was
    /// sent.
    fn ask(&mut self, call: &[u8]) -> io::Result<bool> {
        match self {
            Caller::Lines { to, from, line } => {
                to.write_all(call)?;
                line.clear();
                match from.read_until(b'\n', line)? {
                    0 => Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => Ok(is_echo(line)),
                }
            }
            Caller::Http(http) => {
                let params = serde_json::from_slice::<serde_json::Value>(call)?["params"].take();
                http.ask(json!(1), "tools/call", params);
                let answer = http.try_response().ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok(is_echo(&answer.body))
            }
        }
    }
}

/// True if an answer begins with the text that was sent.
fn is_echo(answer: &[u8]) -> bool {
    let head = &answer[..answer.len().min(512)];
    head.windows(16).any(|text| text == [b'x'; 16])
}

/// Makes calls for a while, and says of each how many milliseconds it took, or that it was lost or
/// refused.
fn call(socket: &Path, length: usize, by: &str) {
    let text = "x".repeat(length);
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                       "params": { "name": "echo__echo", "arguments": { "text": text } } });
    let call = format!("{call}\n").into_bytes();
    let until = Instant::now() + SPAN;
    let mut caller = None;
    while Instant::now() < until {
        let begun = Instant::now();
        let answered = match &mut caller {
            Some(caller) => Caller::ask(caller, &call),
            None => match Caller::open(socket, by) {
                Ok(open) => {
                    caller = Some(open);
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        match answered {
            Ok(true) => println!("{}", begun.elapsed().as_secs_f64() * 1e3),
            Ok(false) => println!("refused"),
            Err(_) => {
                println!("lost");
                caller = None;
            }
        }
    }
}

/// Has another user make calls of this length for a while.
fn measure(place: &Place, length: usize, by: &str, calls: &mut Calls) {
    let mut command = Command::new(place.path("caller"));
    command
        .arg("caller")
        .arg(place.socket())
        .arg(length.to_string())
        .arg(by);
    let output = command.uid(CALLER).gid(0).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for said in String::from_utf8(output.stdout).unwrap().lines() {
        match said {
            "lost" => calls.lost += 1,
            "refused" => calls.refused += 1,
            time => calls.times.push(time.parse().unwrap()),
        }
    }
}

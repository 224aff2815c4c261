//! What the benchmarks of whole processes share: a server that does as little as it can, and
//! daemons to measure.

#[path = "echo.rs"]
mod echo;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use colibri_confine::supervisor;
use colibri_mcpd::relay::Recorder;
use colibri_mcpd::results::Results;
use echo::{ECHO, echo_server};

/// Does what this process was started for, if it is not to measure.
pub(crate) fn played_a_part(arguments: &[String]) -> bool {
    match arguments.get(1).map(String::as_str) {
        Some("echo-server") => echo_server(ECHO, || ()),
        Some("daemon-without-trail") => daemon_without_trail(&arguments[2..]),
        Some(first) if first == supervisor::ARGUMENT => {
            let code = supervisor::main(std::env::args_os().skip(2));
            // ExitCode cannot be handed to the caller of a benchmark's main.
            std::process::exit(if code == ExitCode::SUCCESS { 0 } else { 1 });
        }
        _ => return false,
    }
    true
}

/// The daemon as it is, but with nowhere to record: shows what the trail costs.
fn daemon_without_trail(arguments: &[String]) {
    let arguments = std::iter::once("colibri-mcpd").chain(arguments.iter().map(String::as_str));
    let config = colibri_mcpd::config::DaemonFlags::parse_from(arguments)
        .resolve()
        .expect("flags");
    let sources = colibri_mcpd::run::read_sources(&config)
        .map_err(|(_, message)| message)
        .expect("files");
    let results = Results::open(&config.state_dir, sources.1.clients.limits()).expect("results");
    let results = Arc::new(results);
    let runtime = colibri_mcpd::run::runtime().expect("runtime");
    if let Err((_, message)) = runtime.block_on(colibri_mcpd::run::run(
        config,
        sources,
        Recorder::Off,
        results,
    )) {
        eprintln!("{message}");
    }
}

pub(crate) fn registry() -> String {
    let program = std::env::current_exe()
        .expect("own path")
        .display()
        .to_string();
    format!(
        "{{\"servers\":{{\"echo\":{{\"command\":\"{program}\",\"args\":[\"echo-server\"]}},\
         \"fresh\":{{\"command\":\"{program}\",\"args\":[\"echo-server\"],\"isolation\":\"call\"}}}}}}"
    )
}

pub(crate) fn connect(socket: &Path) -> UnixStream {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return stream,
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_micros(200)),
            Err(error) => panic!("{}: {error}", socket.display()),
        }
    }
}

/// A daemon with the servers of [`registry`], which has looked at them.
pub(crate) struct Daemon {
    /// Its process.
    pub(crate) child: Child,
    /// Its socket.
    pub(crate) socket: PathBuf,
}

impl Daemon {
    pub(crate) fn start(directory: &Path, name: &str, command: &[String]) -> Daemon {
        Daemon::start_with(directory, name, command, &[])
    }

    pub(crate) fn start_with(
        directory: &Path,
        name: &str,
        command: &[String],
        more: &[&str],
    ) -> Daemon {
        let daemon = Daemon::unused(directory, name, command, more);
        daemon.look();
        daemon
    }

    /// One that has answered its first message.
    pub(crate) fn unused(
        directory: &Path,
        name: &str,
        command: &[String],
        more: &[&str],
    ) -> Daemon {
        let socket = directory.join(format!("{name}.sock"));
        let state_dir = directory.join(format!("state-{name}"));
        std::fs::create_dir(&state_dir).expect("a state directory");
        let child = Command::new(&command[0])
            .args(&command[1..])
            .arg("--socket")
            .arg(&socket)
            .arg("--external-config")
            .arg(directory.join("registry.json"))
            .arg("--state-dir")
            .arg(state_dir)
            .args(["--external-call", "--allow-root", "--log-level", "error"])
            .args(more)
            .spawn()
            .expect("start the daemon");
        drop(Session::open(&socket));
        Daemon { child, socket }
    }

    /// Has it look at both servers once, so that calls find them in the catalogue.
    pub(crate) fn look(&self) {
        let mut session = Session::open(&self.socket);
        session.send(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        session.send(b"\n");
        session.read_lines(1);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let _ = self.child.wait();
    }
}

/// A connection after its handshake.
pub(crate) struct Session(UnixStream);

impl Session {
    /// Opens one.
    pub(crate) fn open(socket: &Path) -> Session {
        let mut session = Session(connect(socket));
        session.send(INITIALIZE.as_bytes());
        session.read_lines(1);
        session.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        session
    }

    /// Writes bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("write");
    }

    /// Reads until this many lines have come, and tells how many it were.
    pub(crate) fn read_lines(&mut self, least: usize) -> usize {
        let mut buffer = vec![0; 256 * 1024];
        let mut lines = 0;
        while lines < least {
            let read = self.0.read(&mut buffer).expect("read");
            assert!(read > 0, "the connection ended");
            lines += memchr::memchr_iter(b'\n', &buffer[..read]).count();
        }
        lines
    }
}

/// The first line of a session.
pub(crate) const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"b","version":"1"}}}"#,
    "\n"
);

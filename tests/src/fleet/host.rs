//! One of the campaign's hosts: a daemon with its own state, name, key and clock, and a cable of
//! its own to the database.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::{Value, json};

use super::cable::Cable;
use super::clock::wrong_clock;
use crate::{LEGACY, Place, Postgres, open_trail, processes_with, program, wait_for};

/// How long a call of a person's may take. A daemon that stands still answers none.
const CALL: Duration = Duration::from_secs(4);

/// A host.
pub(super) struct FleetHost {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) cable: Cable,
    faketime: PathBuf,
    daemon: Option<Child>,
    pub(super) is_stopped: bool,
}

/// Makes the three hosts. All that one has to know of the others belongs here.
pub(super) fn hosts(postgres: &Postgres, faketime: &std::path::Path) -> Vec<FleetHost> {
    let hosts = ["alpha", "beta", "gamma"].map(|name| FleetHost::new(name, postgres, faketime));
    let counted = hosts.each_ref().map(|host| {
        let key = open_trail(&host.place.path("state")).verifier().to_string();
        (
            host.name.to_owned(),
            json!({ "key": key, "persons": ["*"] }),
        )
    });
    let counted = json!({ "hosts": serde_json::Map::from_iter(counted) }).to_string();
    for host in &hosts {
        host.place.hosts(&counted);
    }
    hosts.into()
}

impl FleetHost {
    fn new(name: &'static str, postgres: &Postgres, faketime: &std::path::Path) -> FleetHost {
        let place = Place::new();
        let directory = place.directory().display().to_string();
        let user = Uid::effective().to_string();
        let agent = |name: &str, more: &[&str]| {
            let args = ["--dir", &directory, "--as", name, "--tool", "fix__echo"];
            let args = [&args, more].concat();
            json!({ "command": program("fixture-agent"), "args": args, "events": "pi", "autospawn": true,
                "max": 2, "tools": { "fix": { "allow": ["*"] } }, "users": [user] })
        };
        let servers = json!({ "fix": place.fixture("fix", &["--tool", "echo"], json!({})) });
        let agents =
            json!({ "long": agent("long", &[]), "brief": agent("brief", &["--tasks", "3"]) });
        place.registry_text(&json!({ "servers": servers, "agents": agents }).to_string());
        let all = json!({
            "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true, "person": "ann"
        });
        place.clients(&json!({ "users": { user: all } }).to_string());
        let host = FleetHost {
            name,
            cable: Cable::to(postgres.socket()),
            place,
            faketime: faketime.to_owned(),
            daemon: None,
            is_stopped: false,
        };
        host.set_clock("+0");
        host
    }

    fn clock(&self) -> PathBuf {
        self.place.path("clock")
    }

    /// Puts the daemon's clock so far off, now.
    pub(super) fn set_clock(&self, offset: &str) {
        fs::write(self.clock(), format!("{offset}\n")).expect("the clock's file");
    }

    /// Starts its daemon, and waits until it serves.
    pub(super) fn start(&mut self) {
        let url = self.cable.url("board");
        let gates = [
            "--write",
            "--external-call",
            "--autospawn",
            "--cost-mode",
            "max",
        ];
        let board = ["--host", self.name, "--board", &url];
        let mut command = self.place.command(&[&gates[..], &board].concat());
        if Uid::effective().is_root() {
            command.arg("--allow-root");
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.place.path("log"));
        command.envs(wrong_clock(&self.faketime, &self.clock()));
        command.stdout(Stdio::null()).stderr(log.expect("a log"));
        self.daemon = Some(command.spawn().expect("the daemon can be started"));
        wait_for("the daemon to serve", || {
            assert!(!self.has_ended(), "{} ended:\n{}", self.name, self.log());
            self.client().map(drop)
        });
    }

    /// True if its daemon runs or stands still.
    pub(super) fn is_there(&self) -> bool {
        self.daemon.is_some()
    }

    /// True if its daemon has ended although nobody ended it.
    pub(super) fn has_ended(&mut self) -> bool {
        let daemon = self.daemon.as_mut();
        daemon.is_some_and(|daemon| daemon.try_wait().expect("waiting").is_some())
    }

    /// Sends its daemon a signal; after one that ends it, waits for that.
    pub(super) fn signal(&mut self, signal: Signal) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        kill(Pid::from_raw(daemon.id().cast_signed()), signal).expect("the daemon runs");
        match signal {
            Signal::SIGSTOP => self.is_stopped = true,
            Signal::SIGCONT => self.is_stopped = false,
            _ => {
                let status = wait_for("the daemon's end", || daemon.try_wait().expect("waiting"));
                self.daemon = None;
                let is_right = signal == Signal::SIGKILL || status.success();
                assert!(
                    is_right,
                    "{} ended with {status}:\n{}",
                    self.name,
                    self.log()
                );
            }
        }
    }

    /// The processes of its agents.
    pub(super) fn agents(&self) -> Vec<i32> {
        let all = processes_with(&self.place.directory().display().to_string()).into_iter();
        let agents =
            all.filter(|(_, line)| line.contains("fixture-agent") && !line.contains(" keeper "));
        agents.map(|(pid, _)| pid).collect()
    }

    /// The last lines of its log.
    pub(super) fn log(&self) -> String {
        let bytes = fs::read(self.place.path("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// A connection of a person's, if the daemon answers.
    pub(super) fn client(&self) -> Option<PersonClient> {
        PersonClient::connect(self.place.socket())
    }
}

impl Drop for FleetHost {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = (daemon.kill(), daemon.wait());
        }
        for (pid, _) in processes_with(&self.place.directory().display().to_string()) {
            // It may have ended just now.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// A person's connection to a daemon that may be killed, or stand still, at any moment.
pub(super) struct PersonClient {
    stream: BufReader<UnixStream>,
    next: u64,
}

impl PersonClient {
    /// A connection, if the daemon answers in time.
    pub(super) fn connect(socket: PathBuf) -> Option<PersonClient> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(CALL)).ok()?;
        stream.set_write_timeout(Some(CALL)).ok()?;
        let mut client = PersonClient {
            stream: BufReader::new(stream),
            next: 1,
        };
        let own = json!({ "name": "campaign", "version": "1" });
        let open = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": own });
        client.ask("initialize", &open)?;
        Some(client)
    }

    /// Returns the answer's result; `None`: there is none, and whether it was done nobody knows.
    fn ask(&mut self, method: &str, params: &Value) -> Option<Value> {
        let id = self.next;
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.stream
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
            .ok()?;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).ok()?;
            let mut message: Value = serde_json::from_str(&line).ok()?;
            if message["id"] == id && message.get("method").is_none() {
                return Some(message["result"].take());
            }
        }
    }

    /// Calls a tool of Colibri's. `Some(Err)`: it is refused, with the reason.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Option<Result<Value, String>> {
        let mut result = self.ask(
            "tools/call",
            &json!({ "name": tool, "arguments": arguments }),
        )?;
        let is_done = result["structuredContent"].is_object() && result["isError"] != true;
        Some(match is_done {
            true => Ok(result["structuredContent"].take()),
            false => Err(crate::text_of(&result).to_owned()),
        })
    }
}

//! A campaign with agents on the host, as whoever runs it.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{AUTO, Ground, KEPT};
use crate::{Place, processes_with, program};

/// A private daemon, whose agents and servers run on the host.
pub struct Host {
    place: Place,
}

impl Host {
    /// A place with the two agents and a server.
    #[expect(clippy::new_without_default, reason = "a place is made on purpose")]
    pub fn new() -> Host {
        let place = Place::new();
        let directory = place.directory().display().to_string();
        let servers = json!({ "fix": place.fixture("fix", &[], json!({})) });
        let agents = agents(&directory, |_, mut entry| {
            entry["command"] = json!(program("fixture-agent"));
            entry
        });
        place.registry_text(&json!({ "servers": servers, "agents": agents }).to_string());
        Host { place }
    }

    /// The processes of this place whose line has this, and not that.
    fn processes(&self, with: &str, without: &str) -> Vec<i32> {
        let all = processes_with(&self.place.directory().display().to_string()).into_iter();
        let some = all.filter(|(_, line)| {
            line.contains(with) && (without.is_empty() || !line.contains(without))
        });
        some.map(|(pid, _)| pid).collect()
    }
}

/// The entries of both agents: what they have in common, and what `more` makes of it for each.
pub(super) fn agents(orders: &str, more: impl Fn(&str, Value) -> Value) -> Value {
    let entry = |name: &str, args: &[&str], autospawn: bool| {
        let mut all = vec!["--dir", orders, "--as", name, "--tool", "fix__echo"];
        all.extend(args);
        let entry = json!({ "command": "", "args": all, "events": "pi", "tools": { "fix": { "allow": ["*"] } },
            "users": [nix::unistd::geteuid().to_string()], "autospawn": autospawn });
        more(name, entry)
    };
    json!({ KEPT: entry(KEPT, &[], false), AUTO: entry(AUTO, &["--tasks", "4"], true) })
}

/// The flags of the daemon.
pub(super) const FLAGS: &[&str] = &["--write", "--external-call"];

/// The sockets and the doors at and below a directory.
pub(super) fn sockets(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let is_door = directory.file_name().is_some_and(|name| name == "doors");
        if kind.is_socket() || is_door {
            found.push(path.display().to_string());
        }
        if kind.is_dir() {
            sockets(&path, found);
        }
    }
}

impl Ground for Host {
    fn daemon(&self) -> Command {
        let mut command = self.place.command(FLAGS);
        if nix::unistd::geteuid().is_root() {
            command.arg("--allow-root");
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.place.path("log"));
        command.stdout(Stdio::null()).stderr(log.expect("a log"));
        command
    }

    fn socket(&self) -> PathBuf {
        self.place.socket()
    }

    fn state(&self) -> PathBuf {
        self.place.path("state")
    }

    fn log(&self) -> String {
        let bytes = fs::read(self.place.path("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn orders(&self) -> Vec<PathBuf> {
        vec![self.place.directory().to_owned()]
    }

    fn agents(&self) -> Vec<i32> {
        self.processes("fixture-agent", " keeper ")
    }

    fn supervisors(&self) -> Vec<i32> {
        self.processes(" keeper ", "")
    }

    fn servers(&self) -> Vec<i32> {
        self.processes("fixture-server", " keeper ")
    }

    fn left(&self) -> Vec<String> {
        let processes = processes_with(&self.place.directory().display().to_string());
        let mut left: Vec<String> = processes
            .into_iter()
            .map(|(pid, line)| format!("{pid} {line}"))
            .collect();
        sockets(self.place.directory(), &mut left);
        left
    }

    fn assert_trail_is_sound(&self) {
        self.place.assert_trail_is_sound();
    }
}

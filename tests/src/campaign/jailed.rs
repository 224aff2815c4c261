//! A campaign with agents in the development sandbox of Linux: the daemon as the user `colibri`,
//! the helper set-user-ID root, registry and policy at the paths that it trusts. Needs root.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::host::{FLAGS, agents, sockets};
use super::{AUTO, Ground, KEPT};
use crate::installed::{
    CONFIG, HELPER, Installed, OTHER_UID, ROOTS, RUN, SERVER_UID, STATE, install, names_in,
    processes_of, put_program, remove,
};
use crate::{processes_with, program};

/// The directory of the host that an agent sees, for its orders.
fn shared(name: &str) -> PathBuf {
    format!("/usr/local/colibri-test-orders-{name}").into()
}

/// The real daemon, whose agents run in jails and whose server runs on the host.
pub struct Jailed {
    system: Installed,
    directory: tempfile::TempDir,
    /// The network namespaces in which agents were seen.
    networks: RefCell<BTreeSet<PathBuf>>,
}

impl Jailed {
    /// Installs it all.
    ///
    /// # Panics
    /// If that fails.
    #[expect(
        clippy::new_without_default,
        reason = "an installation is made on purpose"
    )]
    pub fn new() -> Jailed {
        let system = Installed::set_up();
        let directory = tempfile::Builder::new()
            .prefix("colibri-campaign-")
            .tempdir();
        let directory = directory.expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        let open = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode")
        };
        open(directory.path(), 0o755);
        // The programs are copied: a user like colibri may not reach where they were built.
        for name in ["colibri-mcpd", "colibri-mcp", "fixture-server"] {
            install(&program(name), &at(name), 0, 0o755);
        }
        let make = |path: &Path, owner: (u32, u32), mode| {
            remove(path);
            fs::create_dir(path).expect("a directory");
            chown(path, Some(owner.0), Some(owner.1)).expect("its owner");
            open(path, mode);
        };
        for name in ["state", "server"] {
            make(&at(name), (system.caller, system.group), 0o700);
        }
        for (name, uid) in [(KEPT, SERVER_UID), (AUTO, OTHER_UID)] {
            make(&shared(name), (uid, uid), 0o755);
        }
        let mount = |name: &str, uid: u32| json!({ "path": shared(name), "owner": uid, "at": "/work", "write": true, "bounded": false });
        let mut policy: Value = serde_json::from_str(&system.policy()).expect("our own JSON");
        policy["mounts"] = json!([mount(KEPT, SERVER_UID), mount(AUTO, OTHER_UID)]);
        system.write_policy(&policy.to_string());
        let agents = agents("/work", |name, mut entry| {
            put_program(
                &program("fixture-agent"),
                &Path::new(ROOTS).join(name),
                "bin/fixture-agent",
            );
            entry["command"] = json!("/bin/fixture-agent");
            let mounts = json!([{ "path": shared(name), "at": "/work", "write": true }]);
            entry["jail"] = json!({ "path": format!("{ROOTS}/{name}"), "mounts": mounts });
            entry
        });
        let server = json!({ "command": at("fixture-server"), "args": ["--dir", at("server"), "--as", "fix"] });
        system
            .write_registry(&json!({ "servers": { "fix": server }, "agents": agents }).to_string());
        system.write_open_clients();
        Jailed {
            system,
            directory,
            networks: RefCell::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A program of the installation's as the user `colibri`.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.path(name));
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .current_dir("/")
            .uid(self.system.caller)
            .gid(self.system.group);
        command
    }

    /// The processes of the installation's directory whose line has this.
    fn processes(&self, with: &str) -> Vec<i32> {
        let all = processes_with(&self.directory.path().display().to_string()).into_iter();
        all.filter(|(_, line)| line.contains(with))
            .map(|(pid, _)| pid)
            .collect()
    }
}

impl Ground for Jailed {
    fn daemon(&self) -> Command {
        let mut command = self.command("colibri-mcpd");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"));
        command
            .args(FLAGS)
            .args(["--clients", &format!("{CONFIG}/clients.json")])
            .arg("--external-config")
            .arg(Path::new(CONFIG).join("external-mcp.json"))
            .arg("--socket")
            .arg(self.socket())
            .arg("--state-dir")
            .arg(self.state())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"));
        command
    }

    fn socket(&self) -> PathBuf {
        Path::new(RUN).join("colibri.sock")
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    fn log(&self) -> String {
        let bytes = fs::read(self.path("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn orders(&self) -> Vec<PathBuf> {
        vec![shared(KEPT), shared(AUTO)]
    }

    fn agents(&self) -> Vec<i32> {
        let agents = processes_of(&[SERVER_UID, OTHER_UID]);
        let networks = agents.iter().filter_map(|pid| network_of(&pid.to_string()));
        let own = network_of("self");
        let apart = networks.filter(|network| Some(network) != own.as_ref());
        self.networks.borrow_mut().extend(apart);
        agents
    }

    fn supervisors(&self) -> Vec<i32> {
        // Who merely names the helper is none.
        let helpers = processes_with(HELPER).into_iter();
        let helpers = helpers
            .filter(|(_, line)| line.starts_with(HELPER))
            .map(|(pid, _)| pid);
        helpers.chain(self.processes(" keeper ")).collect()
    }

    fn servers(&self) -> Vec<i32> {
        let all = self.processes("fixture-server").into_iter();
        let keepers = self.processes(" keeper ");
        all.filter(|pid| !keepers.contains(pid)).collect()
    }

    fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = names_in(STATE)
            .into_iter()
            .filter(|name| name.len() == 16)
            .map(|name| format!("record {name}"))
            .collect();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = |line: &&str| {
            ["colibri-jail", ROOTS, "nsfs"]
                .iter()
                .any(|of| line.contains(of))
        };
        left.extend(
            mounts
                .lines()
                .filter(ours)
                .map(|line| format!("mount {line}")),
        );
        let processes = [
            processes_of(&[SERVER_UID, OTHER_UID, self.system.caller]),
            self.supervisors(),
            self.processes(""),
        ];
        left.extend(
            processes
                .concat()
                .iter()
                .map(|pid| format!("process {pid}")),
        );
        let seen = self.networks.borrow();
        for pid in names_in("/proc") {
            let network = network_of(&pid).filter(|network| seen.contains(network));
            left.extend(network.map(|network| format!("network of {pid}: {}", network.display())));
        }
        sockets(Path::new(RUN), &mut left);
        left
    }

    fn assert_trail_is_sound(&self) {
        let mut command = self.command("colibri-mcp");
        let output = command
            .args(["trail", "--state-dir"])
            .arg(self.state())
            .arg("verify")
            .output();
        let output = output.expect("colibri-mcp can be started");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
    }
}

impl Drop for Jailed {
    fn drop(&mut self) {
        for name in [KEPT, AUTO] {
            remove(&shared(name));
        }
    }
}

/// The network namespace of a process.
fn network_of(pid: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

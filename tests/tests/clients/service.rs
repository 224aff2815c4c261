//! The service of a host and a user's own daemon: which of the two a command is about, and where
//! the service's files are. Each test has a host of its own: a mount namespace with its own `/etc`,
//! `/run` and `/usr/local`.
#![cfg(target_os = "linux")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use colibri_tests::{Place, copy_program, program};
use serde_json::{Value, json};

use super::bring::{client, json_of, users_own, words};

/// The unit, in a directory that counts less than the administrator's, as the package's does.
const UNIT: &str = "run/systemd/system/colibri-mcpd.service";
/// The unit in the administrator's directory, and the link by which it is enabled.
const OWN_UNIT: &str = "etc/systemd/system/colibri-mcpd.service";
const WANTS: &str = "etc/systemd/system/multi-user.target.wants/colibri-mcpd.service";
/// The group of the service's daemon there.
pub(super) const GROUP: u32 = 64_999;

/// A host on which the service's files lie. Whoever runs a command there is root.
pub(super) struct Host {
    pub(super) place: Place,
}

impl Host {
    pub(super) fn new() -> Host {
        let host = Host { place: users_own() };
        for directory in [
            "",
            "etc",
            "etc/systemd",
            "etc/systemd/system",
            "run",
            "run/systemd",
            "run/systemd/system",
            "libexec",
            "local-etc",
        ] {
            fs::create_dir(host.path(directory)).unwrap();
            fs::set_permissions(host.path(directory), Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(
            host.path("etc/group"),
            format!("root:x:0:\ncolibri:x:{GROUP}:\n"),
        )
        .unwrap();
        let users = format!(
            "root:x:0:0::/root:/bin/sh\ncolibri:x:{GROUP}:{GROUP}::/nonexistent:/usr/sbin/nologin\n"
        );
        fs::write(host.path("etc/passwd"), users).unwrap();
        fs::write(host.path(UNIT), "[Service]\n").unwrap();
        host
    }

    /// A path of the host: below `etc`, `run`, `libexec` or `local-etc`.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.place.path("host").join(path)
    }

    pub(super) fn enable(&self) {
        fs::create_dir_all(self.path(WANTS).parent().unwrap()).unwrap();
        symlink("/run/systemd/system/colibri-mcpd.service", self.path(WANTS)).unwrap();
    }

    /// Masks the unit, as systemctl(1) does.
    fn mask(&self) {
        symlink("/dev/null", self.path(OWN_UNIT)).unwrap();
    }

    /// A command that runs there.
    fn command(&self, program: &Path) -> Command {
        const HOST: &str = "set -e; umask 077; mkdir -p /usr/local/etc /usr/local/libexec
            for what in etc:/etc run:/run libexec:/usr/local/libexec local-etc:/usr/local/etc; do
                mount --bind \"$1/host/${what%%:*}\" \"${what#*:}\"
            done
            shift; exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", HOST, "sh"])
            .arg(self.place.path(""));
        command.arg(program).env_clear().stdin(Stdio::null());
        let client = client(&self.place, &[]);
        command.envs(
            client
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        command
            .env("COLIBRI_MCP_ALLOW_ROOT", "1")
            .env("COLIBRI_MCP_END_IDLE", "20");
        command
    }

    pub(super) fn run_with(
        &self,
        variables: &[(&str, &Path)],
        args: &[&str],
    ) -> (Option<i32>, String) {
        let mut command = self.command(&program("colibri-mcp"));
        command.args(args).envs(variables.iter().copied());
        said(command)
    }

    /// Runs the client: exit status, and all that it said.
    pub(super) fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        self.run_with(&[], args)
    }

    /// Runs the daemon's program, from where the service's user reaches it.
    fn run_daemon(&self, args: &[&str]) -> (Option<i32>, String) {
        let copy = self.path("libexec/colibri-mcpd");
        if !copy.exists() {
            copy_program(&program("colibri-mcpd"), &copy);
            fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = self.command(Path::new("/usr/local/libexec/colibri-mcpd"));
        command.args(args).env_remove("COLIBRI_MCP_ALLOW_ROOT");
        said(command)
    }

    /// Adds a server that works, to the registry that the flags and variables choose.
    fn add(&self, id: &str, variables: &[(&str, &Path)], flags: &[&str]) -> (Option<i32>, String) {
        let words = words(&self.place.fixture(id, &[], json!({})));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let args = [&["add", id, "--yes"], flags, &["--"], &words].concat();
        self.run_with(variables, &args)
    }

    /// The socket of root's own daemon there.
    fn own_socket(&self) -> PathBuf {
        self.place.path("colibri/colibri.sock")
    }

    fn own_servers(&self) -> Value {
        json_of(&self.place.path("external-mcp.json"))["servers"].clone()
    }

    /// Ends root's own daemon there.
    fn end(&self) {
        let (status, said) = self.run_with(
            &[("COLIBRI_MCP_SOCKET", &self.own_socket())],
            &["uninstall", "--yes"],
        );
        assert_eq!(status, Some(0), "{said}");
    }
}

fn said(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_service_that_is_not_in_use_closes_nothing() {
    let host = Host::new();
    for (state, id) in [("never enabled", "one"), ("masked", "two")] {
        if state == "masked" {
            host.enable();
            host.mask();
        }
        let (status, said) = host.add(id, &[], &[]);
        assert_eq!(status, Some(0), "{state}: {said}");
        // It says which one was chosen, and how the other is.
        assert!(said.contains("--service"), "{state}: {said}");
        assert!(host.own_servers().get(id).is_some(), "{state}");
        let (status, said) = host.run(&["call", id, "environment"]);
        assert_eq!(status, Some(0), "{state}: {said}");
    }
    assert!(!host.path("etc/colibri").exists());
    host.end();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_service_that_is_enabled_counts_and_a_socket_that_is_named_counts_more() {
    let host = Host::new();
    host.enable();
    let own = host.own_socket();
    let (status, said) = host.add("one", &[], &[]);
    assert_eq!(status, Some(77), "{said}");
    for part in [
        "multi-user.target.wants",
        "--service",
        "--socket",
        &own.display().to_string(),
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (status, said) = host.run(&["status"]);
    assert_eq!(status, Some(69), "{said}");
    assert!(said.contains("systemctl start colibri-mcpd"), "{said}");
    assert!(
        said.contains(&format!("--socket {}", own.display())),
        "{said}"
    );
    assert_eq!(host.own_servers(), json!({}));

    // Whoever names their own daemon has it, and it is started.
    let (status, said) = host.add("one", &[("COLIBRI_MCP_SOCKET", &own)], &[]);
    assert_eq!(status, Some(0), "{said}");
    let own = own.to_str().unwrap();
    let (status, said) = host.add("two", &[], &["--socket", own]);
    assert_eq!(status, Some(0), "{said}");
    for id in ["one", "two"] {
        assert!(host.own_servers().get(id).is_some());
        let (status, said) = host.run(&["--socket", own, "call", id, "environment"]);
        assert_eq!(status, Some(0), "{said}");
    }
    // And whoever names the service's socket has that.
    let (status, said) = host.add("three", &[], &["--socket", "/run/colibri/colibri.sock"]);
    assert!(status == Some(77) && said.contains("--service"), "{said}");
    host.end();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn every_command_about_the_service_is_about_the_same_file() {
    const REGISTRY: &str = "/etc/colibri/external-mcp.json";
    let host = Host::new();
    let check = |args: &[&str]| host.run_daemon(&[&["--check"], args].concat());
    // A file that is not there is no registry without servers.
    let (status, said) = check(&["--as", "colibri"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains(&format!("there is no {REGISTRY}")) && !said.contains("0 servers"),
        "{said}"
    );

    // Before it is enabled, as whoever sets it up does.
    let (status, said) = host.run(&["add", "time", "--service", "--yes", "--", "sh"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains(&format!("Added time to {REGISTRY}")),
        "{said}"
    );
    assert!(said.contains("systemctl start colibri-mcpd"), "{said}");
    assert!(
        json_of(&host.path("etc/colibri/external-mcp.json"))["servers"]
            .get("time")
            .is_some()
    );
    assert_eq!(host.own_servers(), json!({}));
    assert_eq!(fs::read_dir(host.path("local-etc")).unwrap().count(), 0);

    let (status, said) = check(&["--as", "colibri"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains(&format!("{REGISTRY}: 1 server, configuration is good")),
        "{said}"
    );
    let (_, said) = host.run(&["doctor", "--root", "--json"]);
    assert!(said.contains(&format!("{REGISTRY}: 1 server")), "{said}");
    assert!(said.contains("/run/colibri/colibri.sock"), "{said}");
    // Root's own is another one, and how the service's is checked is said.
    let (status, said) = check(&[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains(
            &host
                .place
                .path("colibri/external-mcp.json")
                .display()
                .to_string()
        ),
        "{said}"
    );
    assert!(
        said.contains("--check --as colibri") && said.contains(REGISTRY),
        "{said}"
    );

    let (status, said) = host.run(&["server", "disable", "time", "--service", "--yes"]);
    assert!(status == Some(0) && said.contains(REGISTRY), "{said}");
    let (status, said) = host.run(&["remove", "time", "--service", "--yes"]);
    assert!(status == Some(0) && said.contains(REGISTRY), "{said}");
}

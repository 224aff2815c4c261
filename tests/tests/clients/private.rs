//! The private daemon: started by who needs it first, for what its user agreed to, and gone when
//! nobody does any more.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use colibri_registry::sha256_hex;
use colibri_tests::{Bridge, Era, Place, copy_program, is_alive, program, wait_for};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::page::ServedPage;

/// What says on stderr that a daemon was started, before its process id.
const STARTED: &str = "started a daemon of your own (colibri-mcpd, process ";

/// A home directory that was empty, with a project in it in which everything is started.
struct Home {
    directory: tempfile::TempDir,
    /// How long a daemon waits for another client, in seconds.
    end_idle: &'static str,
    daemons: Mutex<Vec<i32>>,
}

/// What a command came to.
#[derive(Debug)]
struct Ran {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Home {
    fn new(end_idle: &'static str) -> Home {
        let home = Home {
            directory: tempfile::Builder::new()
                .prefix("colibri-home-")
                .tempdir()
                .unwrap(),
            end_idle,
            daemons: Mutex::default(),
        };
        // What a project brings along is never taken for the user's own.
        let project = home.path("project");
        fs::create_dir_all(project.join(".chibi")).unwrap();
        fs::create_dir_all(project.join("colibri")).unwrap();
        for name in ["external-mcp.json", "colibri/external-mcp.json"] {
            fs::write(
                project.join(name),
                r#"{"servers":{"evil":{"command":"/bin/false"}}}"#,
            )
            .unwrap();
        }
        fs::write(project.join(".chibi/mcp-bridge.toml"), "").unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The registry entry of a fixture server.
    fn entry(&self, name: &str, more: Value) -> String {
        let directory = self.directory.path().to_str().unwrap();
        let mut entry = json!({ "command": program("fixture-server"), "args": ["--dir", directory, "--as", name] });
        for (key, value) in more.as_object().into_iter().flatten() {
            entry[key] = value.clone();
        }
        entry.to_string()
    }

    /// Writes the registry.
    fn registry(&self, entries: &[(&str, &str)]) {
        let entries: Vec<_> = entries
            .iter()
            .map(|(id, entry)| format!("\"{id}\": {entry}"))
            .collect();
        self.own_file(
            ".config/colibri/external-mcp.json",
            &format!("{{ \"servers\": {{ {} }} }}", entries.join(",\n")),
        );
    }

    /// Notes that the user agrees to these entries.
    fn agree(&self, entries: &[(&str, &str)]) {
        let servers: serde_json::Map<_, _> = entries
            .iter()
            .map(|(id, entry)| ((*id).to_owned(), json!(sha256_hex(entry.as_bytes()))))
            .collect();
        self.own_file(
            ".local/state/colibri/consent.json",
            &json!({ "servers": servers }).to_string(),
        );
    }

    fn own_file(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", ".:/usr/local/bin:/usr/bin:/bin")
            // The user's home is what the user database says: this one is given by the XDG
            // variables.
            .env("HOME", "/nonexistent")
            .env("XDG_CONFIG_HOME", self.path(".config"))
            .env("XDG_STATE_HOME", self.path(".local/state"))
            .env("XDG_DATA_HOME", self.path(".local/share"))
            .env("COLIBRI_MCP_END_IDLE", self.end_idle)
            .env("COLIBRI_MCP_ALLOW_ROOT", "1")
            .current_dir(self.path("project"))
            .args(args)
            .stdin(Stdio::null());
        command
    }

    fn command(&self, args: &[&str]) -> Command {
        self.command_of(&program("colibri-mcp"), args)
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.ran(self.command(args))
    }

    fn ran(&self, mut command: Command) -> Ran {
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let ran = Ran {
            status: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        self.daemons
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(daemon_of(&ran.stderr));
        ran
    }

    /// Runs a command at a terminal, at which this was typed.
    fn at_terminal(&self, args: &[&str], typed: &str) -> Ran {
        let mut command = self.command(args);
        let (_master, terminal) = terminal(typed);
        command.stdin(terminal);
        self.ran(command)
    }

    /// Runs a command that is to succeed; what it printed.
    fn good(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.status, Some(0), "{args:?}: {ran:?}");
        ran.stdout
    }

    fn socket(&self) -> PathBuf {
        self.path(".local/state/colibri/colibri.sock")
    }

    /// Waits for a daemon that a bridge has started, which says so on a stderr that is a file.
    fn started(&self, stderr: &Path, which: usize) -> i32 {
        let pid = wait_for("a daemon", || {
            let text = fs::read_to_string(stderr).ok()?;
            text.lines().filter_map(daemon_of).nth(which)
        });
        self.daemons
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(pid);
        pid
    }
}

/// A terminal at which this was typed, for as long as its other end is kept.
fn terminal(typed: &str) -> (fs::File, Stdio) {
    let terminal = openpty(None, None).unwrap();
    let mut master = fs::File::from(terminal.master);
    master.write_all(typed.as_bytes()).unwrap();
    (master, Stdio::from(terminal.slave))
}

/// The process id of the daemon that was started.
fn daemon_of(stderr: &str) -> Option<i32> {
    let (_, rest) = stderr.split_once(STARTED)?;
    rest.split_once(')')?.0.parse().ok()
}

impl Drop for Home {
    fn drop(&mut self) {
        let daemons = self.daemons.lock().unwrap_or_else(PoisonError::into_inner);
        for pid in daemons.iter().copied().filter(|pid| is_alive(*pid)) {
            // It may end by itself just now.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        for pid in daemons.iter().copied() {
            wait_for("the daemon's end", || (!is_alive(pid)).then_some(()));
        }
    }
}

#[test]
fn a_server_that_is_added_and_does_not_start_is_no_success() {
    let home = Home::new("60");
    let script = "echo Traceback: >&2; seq 1000 9000 >&2; echo No module named mcp >&2; exit 1";
    let ran = home.run(&["add", "dead", "--yes", "--", "/bin/sh", "-c", script]);
    assert_eq!(ran.status, Some(69), "{ran:?}");
    assert!(ran.stdout.contains("Added dead to"), "{ran:?}");
    for part in [
        "dead is there and does not work",
        "Traceback:",
        "No module named mcp",
        "colibri-mcp remove",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    // When the daemon ends is as it was told, not as it usually is.
    assert!(
        ran.stderr
            .contains("it ends 1 minute after its last client"),
        "{ran:?}"
    );
    home.good(&["server", "disable", "dead", "--yes"]);
    assert_eq!(
        home.run(&["server", "enable", "dead", "--yes"]).status,
        Some(69)
    );
}

#[test]
fn the_accounts_of_an_entry_are_turned_on_and_off_and_taken_out_one_by_one() {
    let home = Home::new("60");
    let accounts = json!({ "work": { "env": { "TOKEN": "of-work" } }, "home": {} });
    let entry = home.entry("gh", json!({ "accounts": accounts }));
    home.registry(&[("gh", &entry)]);
    let stands = || {
        let text = fs::read(home.path(".config/colibri/external-mcp.json")).unwrap();
        serde_json::from_slice::<Value>(&text).unwrap()["servers"]["gh"]["accounts"].clone()
    };
    let works = |server: &str| home.run(&["call", server, "environment"]).status == Some(0);
    let said = home.good(&["server", "enable", "gh", "--yes"]);
    for part in [
        "gh-home\n",
        "gh-work\n",
        "TOKEN=of-work",
        "Enabled gh.",
        "gh-home offers",
        "gh-work offers",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        home.good(&["call", "gh-work", "environment"])
            .contains("of-work")
    );
    assert!(
        !home
            .good(&["call", "gh-home", "environment"])
            .contains("of-work")
    );
    let refused = home.run(&["call", "gh", "environment"]);
    assert!(
        refused.status != Some(0) && refused.stdout.contains("gh-home, gh-work"),
        "{refused:?}"
    );
    let status = home.good(&["status"]);
    assert!(
        status.contains("gh-home") && status.contains("gh-work"),
        "{status}"
    );

    // One alone, to whose entry the user goes on to agree.
    home.good(&["server", "disable", "gh-work", "--yes"]);
    assert!(!works("gh-work") && works("gh-home"));
    home.good(&["server", "disable", "gh-home", "--yes"]);
    let said = home.good(&["server", "enable", "gh-home", "--yes"]);
    assert!(
        said.contains("Enabled gh-home.") && !said.contains("gh-work"),
        "{said}"
    );
    assert!(!works("gh-work") && works("gh-home"));
    assert_eq!(stands()["home"], json!({ "disabled": false }));
    assert_eq!(stands()["work"]["disabled"], true);
    // All of them.
    home.good(&["server", "disable", "gh", "--yes"]);
    assert!(!works("gh-home"));
    let refused = home.run(&["server", "enable", "gh-work", "--yes"]);
    assert_eq!(refused.status, Some(65), "{refused:?}");
    assert!(
        refused.stderr.contains("colibri-mcp server enable gh\n"),
        "{refused:?}"
    );
    home.good(&["server", "enable", "gh", "--yes"]);
    assert!(!works("gh-work") && works("gh-home"));
    home.good(&["server", "enable", "gh-work", "--yes"]);
    assert!(works("gh-work") && works("gh-home"));
    // An edit to one is to be agreed to, and nothing but that.
    let mut edited = stands();
    edited["work"]["env"]["TOKEN"] = json!("of-somebody");
    home.registry(&[("gh", &home.entry("gh", json!({ "accounts": edited })))]);
    home.good(&["server", "reload"]);
    assert!(!works("gh-work") && works("gh-home"));
    assert!(
        home.good(&["status"])
            .contains("colibri-mcp server enable gh-work")
    );

    let taken = home.run(&["add", "gh-work", "--yes", "--", "/bin/true"]);
    assert!(
        taken.status != Some(0) && taken.stderr.contains("there is a server gh-work already"),
        "{taken:?}"
    );
    let said = home.good(&["remove", "gh-work", "--yes"]);
    assert!(said.contains("gh-work: an account of gh in"), "{said}");
    assert_eq!(stands(), json!({ "home": { "disabled": false } }));
    assert!(works("gh-home"));
    let last = home.run(&["remove", "gh-home", "--yes"]);
    assert!(
        last.status == Some(65) && last.stderr.contains("colibri-mcp remove gh\n"),
        "{last:?}"
    );
    home.good(&["remove", "gh", "--yes"]);
    assert!(!works("gh-home"));
}

#[test]
fn without_servers_of_ones_own_nothing_is_started() {
    let home = Home::new("60");
    let ran = home.run(&["status"]);
    assert_eq!(ran.status, Some(69), "{ran:?}");
    assert!(
        ran.stderr.contains("is not running") && ran.stderr.contains("colibri-mcp add"),
        "{ran:?}"
    );
    assert!(!home.path(".local").exists());
    // A socket that is named is somebody else's daemon, which is not started.
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    let named = home.path("other.sock");
    let ran = home.run(&["--socket", named.to_str().unwrap(), "status"]);
    assert_eq!(ran.status, Some(69), "{ran:?}");
    let mut command = home.command(&["status"]);
    command.env("COLIBRI_MCP_SOCKET", &named);
    assert_eq!(home.ran(command).status, Some(69));
    assert!(!home.path(".local").exists());
}

#[test]
fn places_where_others_could_put_files_are_refused() {
    let home = Home::new("60");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    let state = home.path(".local/state/colibri");
    // Another user was there first: a link by which a file of this user's would be emptied, a
    // socket that answers.
    let precious = home.path("precious");
    fs::write(&precious, "kept").unwrap();
    std::os::unix::fs::symlink(&precious, state.join("start.errors")).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(state.join("colibri.sock")).unwrap();
    for (open, mode) in [
        (".local/state/colibri", 0o702),
        (".local/state", 0o777),
        (".config", 0o777),
    ] {
        let before = home.path(open).metadata().unwrap().permissions();
        fs::set_permissions(home.path(open), Permissions::from_mode(mode)).unwrap();
        let ran = home.run(&["status"]);
        assert_eq!(ran.status, Some(69), "{open}: {ran:?}");
        assert!(
            ran.stderr.contains("others could put other files there"),
            "{open}: {ran:?}"
        );
        // Nor does a daemon that is started by hand.
        let ran = home.ran(home.command_of(&program("colibri-mcpd"), &["--private"]));
        assert_eq!(ran.status, Some(78), "{open}: {ran:?}");
        assert!(
            ran.stderr.contains("others could put other files there"),
            "{open}: {ran:?}"
        );
        fs::set_permissions(home.path(open), before).unwrap();
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
}

#[test]
fn what_the_user_agreed_to_is_served_and_nothing_else() {
    let home = Home::new("60");
    let (a, b) = (home.entry("a", json!({})), home.entry("b", json!({})));
    home.registry(&[("a", &a), ("b", &b)]);
    home.agree(&[("a", &a)]);

    let ran = home.run(&["call", "a", "echo", "word=hello"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("hello"), "{ran:?}");
    assert_eq!(ran.stderr.matches(STARTED).count(), 1, "{ran:?}");
    let ran = home.run(&["call", "b", "echo"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(
        ran.stdout.contains("not agreed") && ran.stdout.contains("colibri-mcp server enable b"),
        "{ran:?}"
    );
    assert_eq!(ran.stderr.matches(STARTED).count(), 0, "{ran:?}");
    assert!(!home.path("b.record").exists(), "b was started");
    let ran = home.run(&["call", "colibri", "colibri_create_task", "title=x"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(
        (ran.stdout.clone() + &ran.stderr).contains("write gate"),
        "{ran:?}"
    );
    let servers = home.good(&["status"]);
    assert!(!servers.contains("evil"), "{servers}");

    // What is changed afterwards is another entry, and what is only laid out otherwise elsewhere is
    // not.
    home.registry(&[("b", &b), ("a", &a)]);
    home.good(&["server", "reload"]);
    home.good(&["call", "a", "echo"]);
    let changed = home.entry("a", json!({ "timeout_ms": 9000 }));
    home.registry(&[("a", &changed)]);
    home.good(&["server", "reload"]);
    let ran = home.run(&["call", "a", "echo"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(
        ran.stdout.contains("changed since") && ran.stdout.contains("colibri-mcp server enable a"),
        "{ran:?}"
    );
    home.agree(&[("a", &changed)]);
    home.good(&["server", "reload"]);
    home.good(&["call", "a", "echo"]);
    let verified = home.good(&["trail", "verify"]);
    assert!(verified.contains("records"), "{verified}");
}

#[test]
fn trail_and_costs_are_those_of_the_daemon_that_is_named() {
    let home = Home::new("60");
    let own = home.entry("mine", json!({}));
    home.registry(&[("mine", &own)]);
    home.agree(&[("mine", &own)]);
    home.good(&["call", "mine", "echo"]);
    let place = Place::new();
    place.registry(&json!({ "theirs": place.fixture("theirs", &[], json!({})) }));
    let daemon = place.start(&[]);
    let there = |args: &[&str]| {
        let mut command = home.command(args);
        command.env("COLIBRI_MCP_SOCKET", place.socket());
        home.ran(command)
    };
    assert_eq!(there(&["call", "theirs", "echo"]).status, Some(0));
    let page = home.path("page.html");
    let page = page.to_str().unwrap();
    for args in [
        &["trail", "show", "--json"][..],
        &["trail", "stats"],
        &["costs", "--json"],
    ] {
        for (shown, theirs) in [(there(args), true), (home.run(args), false)] {
            assert_eq!(shown.status, Some(0), "{args:?}: {shown:?}");
            let names = ["theirs", "mine"].map(|name| shown.stdout.contains(name));
            assert_eq!(names, [theirs, !theirs], "{args:?}: {shown:?}");
        }
    }
    let state = place.path("state").display().to_string();
    let verified = there(&["trail", "verify"]);
    assert!(
        verified.status == Some(0) && verified.stdout.contains(&state),
        "{verified:?}"
    );
    assert_eq!(there(&["glasspane", "--html", page]).status, Some(0));
    assert!(fs::read_to_string(page).unwrap().contains(&state));
    let state_fact = |ran: &Ran| {
        let facts: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
        let is_state = |fact: &Value| {
            fact["fact"]
                .as_str()
                .unwrap()
                .starts_with("the state directory")
        };
        facts.into_iter().find(is_state).unwrap()
    };
    let fact = state_fact(&there(&["doctor", "--json"]));
    assert!(fact["seen"].as_str().unwrap().contains(&state), "{fact}");

    // Once it does not say any more where they are, the user's own are not shown in their place.
    daemon.stop();
    for args in [
        &["trail", "show"][..],
        &["trail", "verify"],
        &["glasspane", "--html", page],
    ] {
        let ran = there(args);
        assert_eq!(
            (ran.status, ran.stdout.as_str()),
            (Some(69), ""),
            "{args:?}: {ran:?}"
        );
        assert!(ran.stderr.contains("--state-dir"), "{args:?}: {ran:?}");
    }
    let fact = state_fact(&there(&["doctor", "--json"]));
    assert!(
        fact["outcome"] == "skipped" && fact["seen"].as_str().unwrap().contains("--state-dir"),
        "{fact}"
    );
    // To check a proof, no daemon is needed.
    place.start(&[]).stop();
    let proof = there(&["trail", "proof", "1", "--state-dir", &state]).stdout;
    fs::write(home.path("proof"), proof).unwrap();
    let file = home.path("proof").display().to_string();
    let key = format!("{state}/trail.pub");
    // The second line of what it says is the root.
    let checked = there(&["trail", "check-proof", &file, "--key", &key]).stdout;
    let root = checked.lines().nth(1).unwrap();
    let ran = there(&["trail", "check-proof", &file, "--root", root]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
}

#[test]
fn many_that_come_at_once_get_one_daemon() {
    let home = Home::new("60");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    let ran: Vec<Ran> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| home.run(&["status"])))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(ran.iter().all(|ran| ran.status == Some(0)), "{ran:?}");
    assert_eq!(
        ran.iter()
            .filter(|ran| daemon_of(&ran.stderr).is_some())
            .count(),
        1,
        "{ran:?}"
    );
}

#[test]
fn a_server_never_seen_is_learned_without_being_asked_for() {
    let home = Home::new("60");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    // Status alone asks no server for anything.
    home.good(&["status"]);
    wait_for("its tools", || {
        let servers: Value = serde_json::from_str(&home.good(&["status", "--json"])).unwrap();
        (servers["servers"][0]["tools"].as_u64()? > 0).then_some(())
    });
}

#[test]
fn what_is_added_is_known_before_an_agent_asks() {
    let home = Home::new("60");
    // Longer than a list waits for servers that were never seen.
    let slow = format!(
        "sleep 4; exec {} --dir {} --as slow",
        program("fixture-server").display(),
        home.directory.path().display()
    );
    let said = home.good(&["add", "slow", "--yes", "--", "/bin/sh", "-c", &slow]);
    assert!(said.contains("slow offers 27 tools."), "{said}");
    home.good(&["server", "disable", "slow", "--yes"]);
    let said = home.good(&["server", "enable", "slow", "--yes"]);
    assert!(said.contains("slow offers 27 tools."), "{said}");
    let mut bridge = Bridge::start(home.command(&[]));
    let listed = bridge.ask("tools/list", json!({}));
    assert!(listed.to_string().contains("slow__echo"), "{listed}");
    let fails = "echo the disk is full >&2; exit 7";
    let ran = home.run(&["add", "bad", "--yes", "--", "/bin/sh", "-c", fails]);
    assert_eq!(ran.status, Some(69), "{ran:?}");
    assert!(
        ran.stderr.contains("bad is ") && ran.stderr.contains("the disk is full"),
        "{ran:?}"
    );
    // What is turned off where it comes from stays so.
    let file = home.path("mcp.json");
    fs::write(
        &file,
        r#"{"mcpServers":{"off":{"command":"/bin/cat","disabled":true}}}"#,
    )
    .unwrap();
    let said = home.good(&["import", file.to_str().unwrap(), "--yes"]);
    assert!(
        said.contains("Added off") && !said.contains("not started"),
        "{said}"
    );
}

#[test]
fn it_is_nobodys_child_and_ends_with_no_editor() {
    let home = Home::new("60");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    let said = home.path("stderr");
    let mut command = home.command(&[]);
    command.stderr(fs::File::create(&said).unwrap());
    let mut bridge = Bridge::start(command);
    bridge.ask("tools/list", json!({}));
    let daemon = home.started(&said, 0);
    let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
    let parent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .unwrap();
    let parent = fs::read_to_string(format!("/proc/{}/comm", parent.trim())).unwrap();
    assert_ne!(parent.trim(), "colibri-mcp");
}

#[test]
fn it_ends_without_clients_and_comes_again() {
    let home = Home::new("1");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    let first = daemon_of(&home.run(&["call", "a", "echo"]).stderr).unwrap();
    wait_for("its end", || (!is_alive(first)).then_some(()));
    assert!(!home.socket().exists());
    let ran = home.run(&["call", "a", "echo"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert_ne!(daemon_of(&ran.stderr), Some(first));
}

#[test]
fn who_comes_while_it_ends_gets_the_next_one() {
    let home = Home::new("60");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    let first = daemon_of(&home.run(&["status"]).stderr).unwrap();
    kill(Pid::from_raw(first), Signal::SIGTERM).unwrap();
    wait_for("its end", || (!is_alive(first)).then_some(()));
    // As one that waits for its servers' ends: it listens no more, and has the state directory
    // still.
    let state = home.path(".local/state/colibri");
    let lock = fs::File::options()
        .write(true)
        .open(state.join("trail.lock"))
        .unwrap();
    lock.lock().unwrap();
    let ran = std::thread::scope(|scope| {
        let ran = scope.spawn(|| home.run(&["status"]));
        wait_for("the next one", || {
            let log = fs::read_to_string(state.join("colibri-mcpd.log")).ok()?;
            log.contains("an earlier daemon has not ended yet")
                .then_some(())
        });
        drop(lock);
        ran.join().unwrap()
    });
    assert_eq!(ran.status, Some(0), "{ran:?}");
}

#[test]
fn one_that_does_not_come_up_says_why() {
    let home = Home::new("60");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    let registry = home.path(".config/colibri/external-mcp.json");
    fs::set_permissions(&registry, Permissions::from_mode(0o666)).unwrap();
    let ran = home.run(&["status"]);
    assert_eq!(ran.status, Some(69), "{ran:?}");
    for part in [
        "could not be started",
        "exit status: 78",
        "group or others",
        "colibri-mcpd.log",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    fs::set_permissions(&registry, Permissions::from_mode(0o600)).unwrap();
    home.own_file(".local/state/colibri/consent.json", "{");
    let ran = home.run(&["status"]);
    assert!(ran.stderr.contains("consent.json:1"), "{ran:?}");
    fs::remove_file(home.path(".local/state/colibri/consent.json")).unwrap();
    // The bridge answers it to the editor, too.
    fs::set_permissions(&registry, Permissions::from_mode(0o666)).unwrap();
    let mut bridge = Bridge::start(home.command(&[]));
    let answer = bridge.ask("tools/list", json!({}));
    let text = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("could not be started"), "{answer}");
}

#[test]
fn a_bridge_outlives_its_daemon_and_an_upgrade_of_it() {
    let home = Home::new("1");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    for name in ["colibri-mcp", "colibri-mcpd"] {
        copy_program(&program(name), &home.path(name));
    }
    let said = home.path("stderr");
    let mut command = home.command_of(&home.path("colibri-mcp"), &[]);
    command.stderr(fs::File::create(&said).unwrap());
    let mut bridge = Bridge::start(command);
    let echoed = |bridge: &mut Bridge, word: &str| {
        let answer = bridge.call("a__echo", json!({ "word": word }));
        assert!(answer.to_string().contains(word), "{answer}");
    };
    echoed(&mut bridge, "one");
    let first = home.started(&said, 0);
    // The other end stays connected, so it is not idle.
    kill(Pid::from_raw(first), Signal::SIGTERM).unwrap();
    wait_for("its end", || (!is_alive(first)).then_some(()));
    echoed(&mut bridge, "two");
    let second = home.started(&said, 1);

    // A package is upgraded by putting other files in the place of the programs.
    for name in ["colibri-mcp", "colibri-mcpd"] {
        copy_program(&program(name), &home.path("new"));
        fs::rename(home.path("new"), home.path(name)).unwrap();
    }
    wait_for("the old program's end", || {
        (!is_alive(second)).then_some(())
    });
    echoed(&mut bridge, "three");
    home.started(&said, 2);
    assert!(bridge.end().success());
}

#[test]
fn the_one_user_approves_at_a_terminal_only() {
    let home = Home::new("60");
    let entry = home.entry("a", json!({ "tools": { "confirm": ["*"] } }));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    home.good(&["status"]);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| home.run(&["call", "a", "echo", "word=hello"]));
        let id = wait_for("a call that waits", || {
            let waiting: Value =
                serde_json::from_str(&home.good(&["approvals", "--json"])).unwrap();
            Some(waiting["approvals"][0]["id"].as_str()?.to_owned())
        });
        let ran = home.run(&["approvals", "approve", &id]);
        assert_eq!(ran.status, Some(77), "{ran:?}");
        assert!(ran.stderr.contains("at a terminal"), "{ran:?}");
        // Nor on a page that no terminal serves.
        let command = home.command(&["--json", "glasspane", "--open"]);
        let page = ServedPage::of(command, &home.path("tmp"), "/nonexistent/browser");
        assert_eq!(page.answer(&id, true), (403, false));
        drop(page);
        let ran = home.at_terminal(&["approvals", "approve", &id], "");
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let ran = call.join().unwrap();
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("hello"), "{ran:?}");
    });
}

#[test]
fn tasks_and_agents_are_on_after_one_question_at_a_terminal() {
    let home = Home::new("60");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    let mut bridge = Bridge::start(home.command(&[]));
    bridge.era = Era::Legacy;
    bridge.initialize("2025-11-25");
    let writes = |tools: Vec<String>| tools.iter().any(|tool| tool == "colibri_create_task");
    let tools = bridge.tools();
    assert!(
        tools.contains(&"a__echo".to_owned()) && tools.contains(&"colibri_get_task".to_owned())
    );
    assert!(!writes(tools), "what cannot be called is not listed");
    // A model that calls it all the same is told what its user can do.
    let refused = bridge.call("colibri_create_task", json!({ "title": "x" }));
    assert!(refused.to_string().contains("GATE_CLOSED"), "{refused}");
    assert!(
        refused.to_string().contains("colibri-mcp tasks enable")
            && !refused.to_string().contains("--write"),
        "{refused}"
    );
    let status = home.good(&["status"]);
    assert!(status.contains("colibri-mcp tasks enable"), "{status}");

    let off = home.run(&["tasks", "enable"]);
    assert_eq!(off.status, Some(77), "{off:?}");
    assert!(off.stderr.contains("at a terminal"), "{off:?}");
    let off = home.at_terminal(&["tasks", "enable"], "n\n");
    assert_eq!(off.status, Some(1), "{off:?}");
    assert!(off.stdout.contains("every program that uses it"), "{off:?}");
    assert_eq!(home.run(&["tasks", "create", "Not yet"]).status, Some(65));

    // Who is about to need it is asked there and then.
    let on = home.at_terminal(&["tasks", "create", "Tidy up"], "y\n\n");
    assert_eq!(on.status, Some(0), "{on:?}");
    assert!(on.stdout.contains("Created task 1"), "{on:?}");
    let consent = home.path(".local/state/colibri/consent.json");
    assert_eq!(
        consent.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    bridge.notification("notifications/tools/list_changed");
    assert!(writes(bridge.tools()));
    bridge.call("colibri_create_task", json!({ "title": "By a model" }));
    let status = home.good(&["status"]);
    assert!(status.contains("colibri-mcp tasks disable"), "{status}");
    let facts: Value = serde_json::from_str(&home.good(&["status", "--json"])).unwrap();
    assert_eq!(facts["status"]["gates"]["write"], true, "{facts}");

    // It stays with what is agreed to afterwards, and with the last entry gone.
    home.good(&["server", "disable", "a", "--yes"]);
    home.good(&["remove", "a", "--yes"]);
    home.good(&["tasks", "create", "Without servers"]);
    home.good(&["tasks", "disable"]);
    assert!(!writes(bridge.tools()));
    assert_eq!(home.run(&["tasks", "create", "Too late"]).status, Some(65));
    assert!(home.good(&["tasks"]).contains("By a model"));
    assert!(!consent.exists());
}

#[test]
fn no_file_that_others_wrote_opens_the_write_gate() {
    let home = Home::new("60");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    home.good(&["call", "a", "echo"]);
    let consent = home.path(".local/state/colibri/consent.json");
    let digest = sha256_hex(entry.as_bytes());
    for (text, mode, why) in [
        (
            json!({ "servers": { "a": digest }, "gates": ["write"] }),
            0o622,
            "0622",
        ),
        (
            json!({ "servers": { "a": digest }, "gates": ["all"] }),
            0o600,
            "must be write",
        ),
        (
            json!({ "servers": { "a": digest }, "write": true }),
            0o600,
            "write",
        ),
    ] {
        fs::write(&consent, text.to_string()).unwrap();
        fs::set_permissions(&consent, Permissions::from_mode(mode)).unwrap();
        let ran = home.run(&["server", "reload"]);
        assert!(ran.status != Some(0) && ran.stderr.contains(why), "{ran:?}");
        assert_eq!(home.run(&["tasks", "create", "x"]).status, Some(65));
    }
    // Nor does a variable of whoever starts the daemon.
    let mut command = home.command(&["tasks", "create", "x"]);
    command.env("COLIBRI_MCP_WRITE", "1");
    assert_eq!(home.ran(command).status, Some(65));
}

#[test]
fn an_agent_is_set_up_with_one_question_and_taken_out_again() {
    let home = Home::new("60");
    let entry = home.entry("a", json!({}));
    home.registry(&[("a", &entry)]);
    home.agree(&[("a", &entry)]);
    let add = |more: &[&str], key: Option<&str>, typed: Option<&str>| {
        let args = [&["agent", "add", "claude"][..], more].concat();
        let mut command = home.command(&args);
        let path = format!("{}:/usr/bin:/bin", home.path("bin").display());
        command
            .env("PATH", path)
            .envs(key.map(|key| ("ANTHROPIC_API_KEY", key)));
        let master = typed.map(terminal).map(|(master, terminal)| {
            command.stdin(terminal);
            master
        });
        let ran = home.ran(command);
        drop(master);
        ran
    };
    for args in [
        &["server", "enable", "claude", "--yes"][..],
        &["agent", "run", "claude", "Do it."],
    ] {
        let ran = home.run(args);
        assert_eq!(ran.status, Some(65), "{ran:?}");
        assert!(
            ran.stderr.contains("colibri-mcp agent add claude"),
            "{ran:?}"
        );
    }
    let ran = add(&["--yes"], Some("sk-1"), None);
    assert_eq!(ran.status, Some(65), "{ran:?}");
    assert!(
        ran.stderr
            .contains("npm install -g @anthropic-ai/claude-code"),
        "{ran:?}"
    );
    // It works on its task through its own socket, whose place it is told by the forwarder.
    let script = format!(
        "#!/bin/sh\nset -eu\nprintf '%s\\n' \"$@\" >{0}/words\nenv >{0}/variables\npwd >{0}/directory\n\
         id=$({1} tasks next --json | sed 's/.*\"id\"://; s/[^0-9].*//')\n\
         {1} tasks finish $id 1 \"a result\" >/dev/null\necho '{{\"type\":\"result\",\"subtype\":\"success\",\"result\":\"x\"}}'\n",
        home.directory.path().display(),
        program("colibri-mcp").display()
    );
    home.own_file("bin/claude", &script);
    fs::set_permissions(home.path("bin/claude"), Permissions::from_mode(0o700)).unwrap();
    let secret = home.path(".config/colibri/daemon-secrets/anthropic");
    let place = home.path(".local/share/colibri/agents/claude");
    for (more, key, why) in [
        (&["--yes"][..], None, "ANTHROPIC_API_KEY"),
        (&["--yes"], Some("two words"), "no key has"),
        (&["--yes", "--server", "b"], Some("sk-1"), "no such server"),
        (
            &["--yes", "--program", "external-mcp.json"],
            Some("sk-1"),
            "is no program",
        ),
        (&[], Some("sk-1"), "--yes writes without asking"),
    ] {
        let ran = add(more, key, None);
        assert!(ran.status != Some(0) && ran.stderr.contains(why), "{ran:?}");
    }
    let ran = add(&[], Some("sk-1"), Some("n\n"));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(!secret.exists() && !place.exists());

    let ran = add(&[], Some("sk-1"), Some("y\n"));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for part in [
        "every program that uses it",
        "by nothing of Colibri's",
        "never for the agent",
        "Added agent claude",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    assert!(!ran.stdout.contains("sk-1"), "{ran:?}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "sk-1");
    assert_eq!(
        secret.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    let ran = add(&["--yes"], Some("sk-1"), None);
    assert!(ran.stderr.contains("colibri-mcp remove claude"), "{ran:?}");
    let ran = home.run(&["agent", "run", "claude", "Do it.", "--follow"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let seen = |name: &str| fs::read_to_string(home.path(name)).unwrap();
    assert!(
        seen("words").contains("/doors/") && !seen("words").contains('@'),
        "{}",
        seen("words")
    );
    assert_eq!(
        Path::new(seen("directory").trim_end()),
        place.join("work").canonicalize().unwrap()
    );
    assert!(
        !seen("variables").contains("sk-1")
            && seen("variables").contains("ANTHROPIC_BASE_URL=http://127.0.0.1:")
    );

    // An entry that was edited is not run before it was agreed to as it stands.
    let registry = home.path(".config/colibri/external-mcp.json");
    let text = fs::read_to_string(&registry)
        .unwrap()
        .replace("\"minutes\": 60", "\"minutes\": 6");
    fs::write(&registry, text).unwrap();
    home.good(&["server", "reload"]);
    let ran = home.run(&["agent", "run", "claude", "Do it."]);
    assert!(
        ran.stderr.contains("colibri-mcp server enable claude"),
        "{ran:?}"
    );
    let enabled = home.good(&["server", "enable", "claude", "--yes"]);
    assert!(enabled.contains("Enabled claude."), "{enabled}");
    home.good(&["agent", "run", "claude", "Do it.", "--follow"]);
    let removed = home.good(&["remove", "claude", "--yes"]);
    assert!(
        removed.contains(place.to_str().unwrap()) && removed.contains(secret.to_str().unwrap()),
        "{removed}"
    );
    assert!(!secret.exists() && !place.exists());
    home.good(&["call", "a", "echo"]);
}

#[test]
fn all_that_is_colibris_goes_with_one_question_and_nothing_else() {
    let home = Home::new("60");
    let directory = home.path("h");
    fs::create_dir(&directory).unwrap();
    let run = |args: &[&str], typed: Option<&str>| {
        let mut command = home.command(args);
        command.env("HOME", &directory);
        let master = typed.map(terminal).map(|(master, terminal)| {
            command.stdin(terminal);
            master
        });
        let ran = home.ran(command);
        drop(master);
        ran
    };
    let named = run(&["--socket", "/nowhere", "uninstall", "--yes"], None);
    assert_eq!(named.status, Some(64), "{named:?}");
    let none = run(&["uninstall"], None);
    assert_eq!(none.status, Some(0), "{none:?}");
    assert!(
        none.stdout.contains("There is nothing of Colibri's"),
        "{none:?}"
    );
    let fixture = program("fixture-server").display().to_string();
    let at = home.directory.path().to_str().unwrap();
    for name in ["a", "b"] {
        home.good(&[
            "add", name, "--yes", "--", &fixture, "--dir", at, "--as", name,
        ]);
    }
    home.own_file("h/.cursor/mcp.json", "{}\n");
    home.own_file("h/.claude.json", "{ \"theme\": \"dark\" }\n");
    for args in [
        &["connect", "cursor", "--yes"][..],
        &["connect", "cursor", "--remove", "--yes"],
        &["connect", "claude-code", "--yes"],
    ] {
        assert_eq!(run(args, None).status, Some(0), "{args:?}");
    }
    home.own_file(
        ".config/colibri/skills/mine/SKILL.md",
        "---\nname: mine\n---\n",
    );
    let precious = home.path("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("kept"), "").unwrap();
    std::os::unix::fs::symlink(&precious, home.path(".local/state/colibri/link")).unwrap();
    let said = home.path("stderr");
    let mut command = home.command(&[]);
    command.stderr(fs::File::create(&said).unwrap());
    let mut bridge = Bridge::start(command);
    assert!(
        bridge
            .ask("tools/list", json!({}))
            .to_string()
            .contains("a__echo")
    );
    let daemon = home.daemons.lock().unwrap().first().copied();

    let settings = fs::read_to_string(directory.join(".claude.json")).unwrap();
    for (typed, why) in [(None, "--yes"), (Some("n\n"), "nothing was")] {
        let ran = run(&["uninstall"], typed);
        assert_eq!(ran.status, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(why), "{ran:?}");
    }
    assert!(home.socket().exists());
    let ran = run(&["uninstall"], Some("y\n"));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for part in [
        "your registry, with a, b",
        "trail, tasks, pins",
        "a backup of Cursor's",
        "Claude Code still starts the bridge",
        "colibri-mcp connect claude-code --remove",
        "the skills are your own",
        "The programs stay",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    wait_for("its end", || {
        daemon.is_none_or(|daemon| !is_alive(daemon)).then_some(())
    });
    // An editor that is still open starts no other one.
    let answer = bridge.ask("tools/list", json!({}));
    assert!(answer.to_string().contains("no servers yet"), "{answer}");
    let left = |name: &str| home.path(name).exists();
    assert!(!left(".local/state/colibri") && !left(".local/share/colibri"));
    assert!(left("precious/kept") && left(".config/colibri/skills/mine/SKILL.md"));
    let own: Vec<_> = fs::read_dir(home.path(".config/colibri"))
        .unwrap()
        .collect();
    assert_eq!(own.len(), 1, "{own:?}");
    assert_eq!(
        fs::read_to_string(directory.join(".claude.json")).unwrap(),
        settings
    );
    assert_eq!(
        fs::read_to_string(directory.join(".cursor/mcp.json")).unwrap(),
        "{}\n"
    );
    assert_eq!(fs::read_dir(directory.join(".cursor")).unwrap().count(), 1);
    let none = run(&["uninstall"], None);
    assert!(
        none.stdout.contains("nothing of Colibri's") && none.stdout.contains("Claude Code still"),
        "{none:?}"
    );
    // It can begin again.
    home.good(&[
        "add", "a", "--yes", "--", &fixture, "--dir", at, "--as", "a",
    ]);
}

#[test]
fn a_shell_is_offered_the_names_that_there_are_and_starts_nothing() {
    let home = Home::new("60");
    let (a, b) = (home.entry("a", json!({})), home.entry("big", json!({})));
    let tools = ["echo", "$(touch x)", "e\u{1b}[31m"]
        .map(|name| json!({ "name": name, "inputSchema": {"type": "object"} }));
    home.own_file("a.definitions", &json!(tools).to_string());
    home.registry(&[("a", &a), ("big", &b)]);
    home.agree(&[("a", &a), ("big", &b)]);
    // As bash asks it, by the script that the package installs.
    let script = home.path("script");
    fs::write(&script, home.good(&["completions", "bash"])).unwrap();
    let offered = |words: &str| {
        let ask = format!(
            "source {}; COMP_WORDS=({words} ''); [[ '{words}' == *' ' ]] || unset 'COMP_WORDS[-1]'; \
             COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _clap_complete_colibri_mcp colibri-mcp \"${{COMP_WORDS[-1]}}\" x; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let mut command = home.command_of(Path::new("/bin/bash"), &["-c", &ask]);
        let programs = program("colibri-mcp");
        command.env(
            "PATH",
            format!("{}:/usr/bin:/bin", programs.parent().unwrap().display()),
        );
        let ran = home.ran(command);
        assert_eq!(ran.status, Some(0), "{words}: {ran:?}");
        let words = ran
            .stdout
            .lines()
            .filter(|word| !word.starts_with("--") && !word.is_empty());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered("colibri-mcp server enable "), ["a", "big"]);
    assert_eq!(offered("colibri-mcp remove b"), ["big"]);
    assert_eq!(offered("colibri-mcp call a "), [""; 0]);
    assert!(
        !home.path(".local/state/colibri/colibri.sock").exists(),
        "no daemon was started"
    );
    assert_eq!(offered("colibri-mcp connect claude-c"), ["claude-code"]);

    home.good(&["tools", "a"]);
    assert_eq!(offered("colibri-mcp call a e"), ["echo"]);
    assert_eq!(offered("colibri-mcp tools a "), ["echo"]);
    assert!(!home.path("project/x").exists());
    home.at_terminal(&["tasks", "create", "Tidy up"], "y\n\n");
    assert_eq!(offered("colibri-mcp tasks show "), ["1"]);
    // What does not answer holds nobody up, and what is in the registry is there all the same.
    let stuck = home.path("stuck.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&stuck).unwrap();
    assert_eq!(
        offered(&format!("colibri-mcp --socket {} call a ", stuck.display())),
        [""; 0]
    );
}

//! `colibri-mcp` as people start it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use colibri_tests::program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The client with an environment of its own.
fn client(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program("colibri-mcp"));
    command
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("XDG_CONFIG_HOME", home.join(".config"))
        .env("XDG_STATE_HOME", home.join(".local/state"))
        .env("TMPDIR", home)
        .stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    client(home.path(), arguments).output().unwrap()
}

/// Starts the demo and reads until it shows `heading`; returns it, the daemon's directory, and all
/// it said so far.
fn demo_until(
    home: &Path,
    demo: &[&str],
    heading: &str,
) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut demo = client(home, demo)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains(heading) {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
    }
    (demo, lines, said)
}

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn the_demo_shows_everything_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let output = client(home.path(), &["demo"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), complaints.as_str()),
        (Some(0), ""),
        "{said}"
    );
    for part in [
        "demo__echo",
        "Hello from a hosted server",
        "20 progress messages before the answer",
        "met Colibri",
        "write gate is closed",
        "context_servers",
        "/trail: sound",
        "promise      none without a witness",
        "No process and no file of it is left.",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        said.lines().all(|line| line.chars().count() <= 110) && !said.contains('\x1b'),
        "{said}"
    );
    assert_eq!(entries(home.path()), 0);
}

#[test]
fn the_demo_of_an_agent_shows_a_task_from_its_creation_to_its_result_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let output = client(home.path(), &["demo", "agent"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), complaints.as_str()),
        (Some(0), ""),
        "{said}"
    );
    for part in [
        "The agent runs ",
        "Task 1 is queued",
        "working  calls colibri_next_task",
        "working  calls demo__write_note",
        "working  calls colibri_finish_task",
        "done     ends: The task is done.",
        "Task 1 is done; its result: {\"note\":\"from-the-agent\"",
        "4 requests, 4 of them with the key",
        "agents: 0 running, 1 ended",
        "SERVERS BEHIND THEM",
        "event  demo-agent         agent-started",
        " demo write_note SUCCESS",
        "/trail: sound",
        "No process and no file of it is left.",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        !said.contains('\x1b') && !said.contains("no-agent-sees"),
        "{said}"
    );
    assert_eq!(entries(home.path()), 0);
}

/// The processes in whose command line or environment this stands.
#[cfg(target_os = "linux")]
fn processes_of(mark: &Path) -> Vec<String> {
    let mark = mark.to_str().unwrap();
    let says = |pid: &Path, what: &str| {
        let text = std::fs::read(pid.join(what)).unwrap_or_default();
        String::from_utf8_lossy(&text).replace('\0', " ")
    };
    let found = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    found
        .filter(|pid| says(pid, "cmdline").contains(mark) || says(pid, "environ").contains(mark))
        .map(|pid| says(&pid, "cmdline"))
        .collect()
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_demo_takes_its_agent_with_it() {
    let home = tempfile::tempdir().unwrap();
    let (mut demo, _lines, _) =
        demo_until(home.path(), &["demo", "agent"], "calls colibri_next_task");
    assert!(
        processes_of(home.path())
            .iter()
            .any(|line| line.contains("demo-agent")),
        "{:?}",
        processes_of(home.path())
    );
    demo.kill().unwrap();
    demo.wait().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !processes_of(home.path()).is_empty() {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            processes_of(home.path())
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (mut demo, mut lines, _) = demo_until(home.path(), &["demo"], "3. A call");
    kill(Pid::from_raw(demo.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let mut complaints = String::new();
    demo.stderr
        .take()
        .unwrap()
        .read_to_string(&mut complaints)
        .unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130), "{complaints}");
    assert!(
        complaints.contains("everything was taken away again"),
        "{complaints}"
    );
    assert_eq!(entries(home.path()), 0);
}

#[test]
fn a_killed_demo_takes_its_daemon_with_it() {
    let home = tempfile::tempdir().unwrap();
    let (mut demo, _lines, said) = demo_until(home.path(), &["demo"], "3. A call");
    let socket = said
        .split("It listens on ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .to_owned();
    assert!(Path::new(&socket).exists());
    demo.kill().unwrap();
    demo.wait().unwrap();
    // Its stdin was the demo's pipe: the daemon ends, and removes its socket when it does.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while Path::new(&socket).exists() {
        assert!(
            std::time::Instant::now() < deadline,
            "the daemon still listens"
        );
        std::thread::yield_now();
    }
}

/// A daemon of the test's own, with the demo's server; killed when dropped.
struct Daemon {
    process: Child,
    // Kept open: the daemon goes on writing its log.
    _log: BufReader<std::process::ChildStderr>,
}

impl Daemon {
    fn start(home: &Path, flags: &[&str]) -> Daemon {
        let registry = home.join("registry.json");
        let entry = serde_json::json!({ "command": program("colibri-mcp"),
            "args": ["demo-server", "--notes", home.join("notes")] });
        std::fs::create_dir_all(home.join("notes")).unwrap();
        std::fs::write(
            &registry,
            serde_json::json!({ "servers": { "demo": entry } }).to_string(),
        )
        .unwrap();
        let mut command = Command::new(program("colibri-mcpd"));
        command
            .args(flags)
            .args(["--external-call", "--allow-root"]);
        for (flag, file) in [
            ("--socket", "socket"),
            ("--external-config", "registry.json"),
            ("--state-dir", "state"),
        ] {
            command.arg(flag).arg(home.join(file));
        }
        let mut process = command
            .env_clear()
            .env("HOME", home)
            .env("XDG_CONFIG_HOME", home.join(".config"))
            .env("XDG_STATE_HOME", home.join(".local/state"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("listening") {
            assert_ne!(log.read_line(&mut said).unwrap(), 0, "{said}");
        }
        Daemon { process, _log: log }
    }

    /// Ends it in order.
    fn stop(mut self) {
        kill(
            Pid::from_raw(self.process.id().try_into().unwrap()),
            Signal::SIGTERM,
        )
        .unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail where it has ended, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a command against the daemon and the trail in `home`, and returns what it said; its status
/// must be this one.
fn ask(home: &Path, arguments: &[&str], status: i32) -> String {
    let output = client(home, arguments)
        .env("COLIBRI_MCP_SOCKET", home.join("socket"))
        .env("COLIBRI_STATE_DIR", home.join("state"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        output.status.code(),
        Some(status),
        "{arguments:?}: {said}{:?}",
        output.stderr
    );
    said
}

#[test]
fn the_trail_of_a_daemon_can_be_shown_verified_proved_and_kept() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let daemon = Daemon::start(home, &[]);
    ask(home, &["call", "demo", "echo", "text=hello"], 0);
    ask(
        home,
        &[
            "call",
            "colibri",
            "colibri_create_task",
            "title=x",
            "description=y",
        ],
        1,
    );
    // The daemon still runs.
    assert!(ask(home, &["trail", "verify"], 0).contains(": sound\n"));
    let me = nix::unistd::User::from_uid(nix::unistd::getuid())
        .unwrap()
        .unwrap()
        .name;
    let shown = ask(home, &["trail", "show", "--user", &me, "--tool", "echo"], 0);
    assert!(
        shown.contains(&me) && shown.contains("demo echo") && shown.contains("SUCCESS"),
        "{shown}"
    );
    // It enters again when the tools of the server that it names are known.
    assert_eq!(shown.lines().count(), 3, "{shown}");
    let failed = ask(home, &["trail", "show", "--result", "fail", "--json"], 0);
    let failed: serde_json::Value = serde_json::from_str(&failed).unwrap();
    assert_eq!(
        (&failed["operation"], &failed["error_code"]),
        (&"colibri_create_task".into(), &"GATE_CLOSED".into())
    );
    let nobody = ask(home, &["trail", "show", "--user", "4294967294"], 0);
    assert_eq!(nobody, "");
    assert!(ask(home, &["trail", "stats", "--server", "demo"], 0).contains("demo echo"));

    // Killed without warning, a second one goes on in a new segment: the first is complete then.
    assert_eq!(ask(home, &["trail", "segments"], 0), "");
    drop(daemon);
    let daemon = Daemon::start(home, &[]);
    daemon.stop();
    let state = home.join("state");
    let state = state.to_str().unwrap();
    let segments = ask(home, &["trail", "segments", "--state-dir", state], 0);
    let name = segments.trim();
    assert_eq!(segments.lines().count(), 1, "{segments}");
    let archive = home.join("archive");
    std::fs::create_dir(&archive).unwrap();
    let segment = ask(home, &["trail", "export", "--state-dir", state, name], 0);
    assert!(segment.contains("\"echo\""), "{segment}");
    std::fs::write(archive.join(format!("{name}.jsonl")), &segment).unwrap();
    let seal = ask(
        home,
        &["trail", "export", "--state-dir", state, "--seal", name],
        0,
    );
    assert!(
        segment.contains(&seal) && seal.lines().count() == 1,
        "{seal}"
    );
    std::fs::write(archive.join(format!("{name}.seal")), &seal).unwrap();
    let archive = archive.to_str().unwrap();
    ask(
        home,
        &[
            "trail",
            "verify",
            "--state-dir",
            state,
            "--archive",
            archive,
            "--syslog",
            "-",
        ],
        0,
    );
    // Of today, so it stays.
    assert_eq!(
        ask(
            home,
            &["trail", "drop", "--state-dir", state, "--keep-days", "0"],
            0
        ),
        ""
    );

    let file = home.join("proof");
    let proof = ask(home, &["trail", "proof", "1"], 0);
    std::fs::write(&file, &proof).unwrap();
    let file = file.to_str().unwrap();
    let key = home.join("state/trail.pub");
    // The second line of what it says is the root.
    let checked = ask(home, &["trail", "check-proof", file], 0);
    let root = checked.lines().nth(1).unwrap();
    ask(home, &["trail", "check-proof", file, "--root", root], 0);
    ask(
        home,
        &["trail", "check-proof", file, "--key", key.to_str().unwrap()],
        0,
    );
    for (arguments, status) in [
        (
            &["trail", "check-proof", file, "--root", &"1".repeat(64)][..],
            1,
        ),
        (&["trail", "check-proof", file, "--root", "1"], 64),
        (&["trail", "check-proof", key.to_str().unwrap()], 65),
        (&["trail", "check-proof", "/nonexistent"], 66),
        (&["trail", "proof", "99999"], 65),
        (&["trail", "export", "../../etc/passwd"], 65),
        (&["trail", "show", "--since", "yesterday"], 64),
        (&["trail", "show", "--user", "no such user"], 64),
        (&["trail", "show", "--state-dir", "/nonexistent"], 66),
        (&["trail", "verify", "--syslog", "/nonexistent"], 66),
    ] {
        ask(home, arguments, status);
    }

    let path = Path::new(state).join("trail").join(format!("{name}.jsonl"));
    std::fs::write(&path, segment.replacen("\"echo\"", "\"ECHO\"", 1)).unwrap();
    let verdict = ask(home, &["trail", "verify"], 1);
    assert!(verdict.contains(name), "{verdict}");
}

#[test]
fn a_followed_trail_shows_calls_as_they_are_made() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let _daemon = Daemon::start(home, &[]);
    let mut follower = client(home, &["trail", "show", "-f", "--tool", "echo"])
        .env("COLIBRI_STATE_DIR", home.join("state"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    ask(home, &["call", "demo", "echo", "text=hello"], 0);
    let mut lines = BufReader::new(follower.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("SUCCESS") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert!(said.contains("enter") && said.contains("SUCCESS"), "{said}");
}

#[test]
fn an_ssh_key_gets_the_bridge_and_the_tools_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let _daemon = Daemon::start(home, &[]);
    let gate = |command: &str, flags: &[&str]| {
        let mut gate = client(home, &["ssh-gate"]);
        gate.args(flags)
            .env("COLIBRI_MCP_SOCKET", home.join("socket"))
            .env("SSH_ORIGINAL_COMMAND", command);
        gate
    };
    let tools = gate("/opt/x/colibri-mcp tools demo", &[]).output().unwrap();
    assert_eq!(tools.status.code(), Some(0), "{tools:?}");
    assert!(
        String::from_utf8_lossy(&tools.stdout).contains("echo"),
        "{tools:?}"
    );

    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__echo","arguments":{"text":"hi"},
        "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},
        "io.modelcontextprotocol/clientCapabilities":{}}}}"#
        .replace('\n', " ");
    for (command, flags, works) in [
        ("", &[][..], true),
        ("colibri-mcp", &[], true),
        ("colibri-mcp --read-only", &[], false),
        ("colibri-mcp", &["--read-only"], false),
    ] {
        let mut bridge = gate(command, flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(bridge.stdin.take().unwrap(), "{request}").unwrap();
        let output = bridge.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}: {said}");
        assert_eq!(
            said.contains("GATE_CLOSED"),
            !works,
            "{command} {flags:?}: {said}"
        );
        assert_eq!(
            said.contains("\"hi\""),
            works,
            "{command} {flags:?}: {said}"
        );
    }

    let touched = home.join("touched");
    for command in [
        "sh".to_owned(),
        format!("touch {}", touched.display()),
        format!("colibri-mcp; touch {}", touched.display()),
        "colibri-mcp call demo echo text=hi".to_owned(),
    ] {
        let refused = gate(&command, &[]).output().unwrap();
        let why = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(77), "{command}: {why}");
        assert!(
            why.contains("may only start the bridge") && refused.stdout.is_empty(),
            "{why}"
        );
    }
    assert!(!touched.exists());
}

#[test]
fn metrics_count_calls_and_name_no_user_and_no_tool() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let socket = home.join("metrics.sock");
    let daemon = Daemon::start(home, &["--metrics-socket", socket.to_str().unwrap()]);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    ask(home, &["call", "demo", "echo", "text=hello"], 0);
    ask(home, &["call", "demo", "echo", "text=hello"], 0);
    ask(
        home,
        &[
            "call",
            "colibri",
            "colibri_create_task",
            "title=x",
            "description=y",
        ],
        1,
    );
    let text = ask(home, &["status", "--metrics"], 0);
    for line in [
        "colibri_calls_total{server=\"demo\"} 2\n",
        "colibri_call_errors_total{server=\"colibri\",code=\"GATE_CLOSED\"} 1\n",
        "colibri_call_duration_seconds_bucket{le=\"+Inf\",server=\"demo\"} 2\n",
        "colibri_call_duration_seconds_count{server=\"demo\"} 2\n",
        "colibri_server_state{server=\"demo\",state=\"ready\"} 1\n",
        "colibri_server_state{server=\"demo\",state=\"backing_off\"} 0\n",
        "colibri_server_processes{server=\"demo\"} 1\n",
        "colibri_calls_in_flight 0\n",
        "colibri_queued_bytes ",
        "colibri_trail_failing 0\n",
        "# TYPE colibri_trail_records gauge\n",
        "process_resident_memory_bytes ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
    let me = nix::unistd::User::from_uid(nix::unistd::getuid())
        .unwrap()
        .unwrap()
        .name;
    for secret in ["echo", "hello", "create_task", "uid", &format!("\"{me}\"")] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }

    // Over HTTP; with bytes that are none; and from one who only listens.
    for (sent, http) in [
        ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", true),
        ("POST /\r\n\r\n", false),
        ("GE", false),
        ("", false),
    ] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let body = match answer.split_once("\r\n\r\n") {
            Some((head, body)) => {
                assert!(http && head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
                assert!(
                    head.contains(&format!("Content-Length: {}", body.len())),
                    "{head}"
                );
                body
            }
            None => {
                assert!(!http, "{answer}");
                &answer
            }
        };
        assert!(
            body.starts_with("# HELP") && body.ends_with("# EOF\n"),
            "{body}"
        );
    }
    daemon.stop();
    assert!(!socket.exists());
    ask(home, &["status", "--metrics"], 69);
    ask(home, &["status", "--metrics", "--json"], 64);
}

#[test]
fn exit_statuses_are_as_documented() {
    for (arguments, status) in [
        (&["--version"][..], 0),
        (&["connect", "cursor", "--print"], 0),
        (&["completions", "zsh"], 0),
        (&["--nonsense"], 64),
        (&["connect", "cursor", "--ssh", "-x"], 64),
        (&["status"], 69),
        (&["call", "a", "b", "c=d"], 69),
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {output:?}"
        );
    }
}

//! `colibri-mcp learn`: a server observed while it is used, and what is proposed for it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use colibri_tests::{processes_with, program, wait_for};
use serde_json::{Value, json};

/// A person with a server below `learn`. Its work is no temporary file of a jail's, and so not in
/// /tmp.
struct Learner {
    directory: tempfile::TempDir,
}

/// A session of an observed server.
struct LearnSession {
    child: Child,
    answers: BufReader<ChildStdout>,
    number: u64,
}

impl Learner {
    fn new() -> Learner {
        let directory = tempfile::Builder::new()
            .prefix("colibri-learn-")
            .tempdir_in("/var/tmp")
            .unwrap();
        fs::create_dir(directory.path().join("work")).unwrap();
        Learner { directory }
    }

    fn work(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("work")
    }

    fn learned(&self, name: &str) -> PathBuf {
        self.directory
            .path()
            .join("state/colibri/learned")
            .join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program("colibri-mcp"));
        command.env("XDG_STATE_HOME", self.directory.path().join("state"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command()
            .args(words)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn start(&self, flags: &[&str]) -> LearnSession {
        let mut command = self.command();
        command
            .arg("learn")
            .arg("fix")
            .args(flags)
            .arg("--")
            .arg(program("fixture-server"));
        command
            .arg("--dir")
            .arg(self.work())
            .args(["--as", "fix", "--speak", "2025-11-25"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut session = LearnSession {
            child,
            answers,
            number: 0,
        };
        let client = json!({ "name": "test", "version": "1" });
        session.request(
            "initialize",
            &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }),
        );
        session.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        session.request("tools/list", &json!({}));
        session
    }

    fn propose(&self) -> Value {
        let shown = self.run(&["--json", "learn", "fix", "--propose"]);
        assert!(shown.status.success(), "{shown:?}");
        serde_json::from_slice(&shown.stdout).unwrap()
    }
}

impl LearnSession {
    fn send(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.number += 1;
        let id = self.number;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(
                self.answers.read_line(&mut line).unwrap() > 0,
                "{method}: it has hung up"
            );
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == json!(id) {
                return answer;
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request(
            "tools/call",
            &json!({ "name": tool, "arguments": arguments }),
        )
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_server_is_used_observed_and_proposed_for_without_its_values() {
    let learner = Learner::new();
    let mut session = learner.start(&["--record"]);
    let answer = session.call("echo", &json!({ "canary-key": "canary-value" }));
    assert!(answer["result"].is_object(), "{answer}");
    session.end();
    let observation = learner.learned("fix.json");
    assert_eq!(mode(&observation), 0o600);
    assert_eq!(mode(observation.parent().unwrap()), 0o700);
    let text = fs::read_to_string(&observation).unwrap();
    assert!(
        text.contains("canary-key") && !text.contains("canary-value"),
        "{text}"
    );
    let record = learner.learned("fix.calls.jsonl");
    assert_eq!(mode(&record), 0o600);
    assert!(
        fs::read_to_string(&record)
            .unwrap()
            .contains("canary-value")
    );

    let proposal = learner.propose();
    let text = proposal.to_string();
    assert!(!text.contains("canary-value"), "{text}");
    assert_eq!(proposal["refused"], json!([]), "{text}");
    let jail = &proposal["entry"]["fix"]["jail"];
    assert_eq!(jail["mounts"][0]["at"], json!(learner.work()), "{text}");
    assert_eq!(jail["mounts"][0]["write"], true, "{text}");
    assert_eq!(jail["ip4"], Value::Null, "{text}");
    assert_eq!(
        proposal["entry"]["fix"]["tools"]["allow"],
        json!(["echo"]),
        "{text}"
    );
    let contract = &proposal["contract"]["tools"]["echo"]["when"];
    assert_eq!(
        contract["properties"]["canary-key"],
        json!({ "type": "string" }),
        "{text}"
    );
    let shown = learner.run(&["learn", "fix", "--propose"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("needed      mount, write") && shown.contains("named by argument 2"),
        "{shown}"
    );

    // Not said to be reading: without somebody to ask it is left alone.
    let tried = learner.run(&["learn", "fix", "--try"]);
    let said = String::from_utf8(tried.stdout).unwrap();
    assert!(
        tried.status.success() && said.contains("not repeated: echo"),
        "{said}"
    );
    let tried = learner.run(&["learn", "fix", "--try", "--yes"]);
    let said = String::from_utf8(tried.stdout).unwrap();
    assert!(
        tried.status.success() && said.contains("works with this proposal"),
        "{said}"
    );
}

#[test]
fn what_detaches_itself_ends_with_the_session() {
    let learner = Learner::new();
    let mut session = learner.start(&[]);
    session.call("fork_away", &json!({}));
    let mark = learner.work().display().to_string();
    wait_for("a process of its own", || {
        (processes_with(&mark).len() > 3).then_some(())
    });
    session.end();
    assert_eq!(processes_with(&mark), [], "something is left");
    let parts = learner.propose()["parts"].to_string();
    assert!(!parts.contains("\"value\":\"1\""), "{parts}");
}

#[test]
fn two_sessions_add_up_and_wrong_words_are_said() {
    let learner = Learner::new();
    for tool in ["echo", "count"] {
        let mut session = learner.start(&[]);
        session.call(tool, &json!({}));
        session.end();
    }
    let proposal = learner.propose();
    assert_eq!(proposal["sessions"], 2);
    assert_eq!(
        proposal["entry"]["fix"]["tools"]["allow"],
        json!(["count", "echo"])
    );
    for (words, status, said) in [
        (
            &["learn", "other", "--propose"][..],
            65,
            "nothing was learned of other yet",
        ),
        (&["learn", "fix", "--try"], 65, "were not recorded"),
        (&["learn", "Fix", "--propose"], 64, "a server's id"),
        (
            &["learn", "x", "--", "no-such-program"],
            65,
            "no such program",
        ),
    ] {
        let ran = learner.run(words);
        let text = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(
            ran.status.code() == Some(status) && text.contains(said),
            "{words:?}: {ran:?}"
        );
    }
    fs::write(learner.learned("fix.json"), "{").unwrap();
    let ran = learner.run(&["learn", "fix", "--propose"]);
    assert_eq!(ran.status.code(), Some(65), "{ran:?}");
}

#[test]
fn a_server_that_reaches_for_the_tracer_gets_no_proposal_and_leaves_nothing() {
    const TRACER: &str = "T=$(sed -n 's/TracerPid:[^0-9]*//p' /proc/$$/status)";
    let forged =
        r#"41  openat(AT_FDCWD<\x2f>, "\x2f", O_RDONLY) = 3<\x2f\x66\x6f\x72\x67\x65\x64>"#;
    for (way, said) in [
        (
            // Where the tracer has it. Pipes that this test inherited are higher, and opening one
            // may wait for its reader.
            format!(
                "{TRACER}; for f in /proc/$T/fd/[3-9]; do case $(readlink $f) in pipe:*) echo '{forged}' >$f;; esac; done 2>&-"
            ),
            "it has opened what the tracer writes to",
        ),
        (
            format!("{TRACER}; kill -9 $T; while :; do :; done"),
            "the tracer ended before the server did",
        ),
    ] {
        let learner = Learner::new();
        let mark = learner.work().display().to_string();
        let mut command = learner.command();
        command.args(["learn", "fix", "--", "/bin/sh", "-c", &way, &mark]);
        // It has its input as long as it likes: nothing ends it but itself, and what is learned.
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let _input = child.stdin.take();
        assert!(child.wait().unwrap().success(), "{way}");
        assert_eq!(processes_with(&mark), [], "something is left");
        let observation = fs::read_to_string(learner.learned("fix.json")).unwrap();
        assert!(!observation.contains("/forged"), "{observation}");
        let ran = learner.run(&["learn", "fix", "--propose"]);
        let text = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(
            ran.status.code() == Some(77) && text.contains(said),
            "{ran:?}"
        );
    }
}

//! Agents over the built programs, on the host: started, seen, followed, stopped, killed, and what
//! is left of them: nothing but what they wrote.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use colibri_tests::{
    Daemon, LEGACY, Place, code_of, processes_with, program, records_in, text_of, wait_for,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A registry with these agents and the fixture server `fix`.
pub(super) fn registry(place: &Place, agents: Value) {
    let servers = json!({ "fix": place.fixture("fix", &["--tool", "echo"], json!({})) });
    place.registry_text(&json!({ "servers": servers, "agents": agents }).to_string());
}

/// An entry of the fixture agent with these arguments and further keys.
pub(super) fn worker(place: &Place, args: &[&str], more: Value) -> Value {
    let directory = place.directory().display().to_string();
    let mut all = vec!["--dir".to_owned(), directory];
    all.extend(args.iter().map(|arg| (*arg).to_owned()));
    with(
        json!({ "command": program("fixture-agent"), "args": all, "events": "pi" }),
        more,
    )
}

/// An entry of a shell script; what it runs has the place in its command line.
fn script(place: &Place, text: &str, more: Value) -> Value {
    let args = json!(["-c", format!("{text}; : {}", place.directory().display())]);
    with(
        json!({ "command": "/bin/sh", "args": args, "events": "codex" }),
        more,
    )
}

fn with(mut entry: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        entry[key] = value.clone();
    }
    entry
}

fn run(place: &Place, args: &[&str]) -> (Option<i32>, String, String) {
    told(place.colibri_mcp(args).output().unwrap())
}

fn told(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Starts an instance, and returns its session.
pub(super) fn start(place: &Place, args: &[&str]) -> String {
    let all: Vec<&str> = ["--json", "agent", "run"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    let (status, out, err) = run(place, &all);
    assert_eq!(status, Some(0), "{out}{err}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    answer["instance"]["id"].as_str().unwrap().to_owned()
}

/// What the daemon says of an instance.
fn instance(place: &Place, session: &str) -> Value {
    let (status, out, err) = run(place, &["--json", "agent", "list"]);
    assert_eq!(status, Some(0), "{err}");
    let all: Value = serde_json::from_str(&out).unwrap();
    let mut instances = all["instances"].as_array().unwrap().iter();
    let found = instances.find(|instance| instance["id"] == session);
    found.cloned().unwrap_or_default()
}

/// Waits until it is so.
pub(super) fn until(
    place: &Place,
    session: &str,
    what: &str,
    so: impl Fn(&Value) -> bool,
) -> Value {
    wait_for(what, || Some(instance(place, session)).filter(&so))
}

/// Waits until an instance is in this state.
fn becomes(place: &Place, session: &str, state: &str) -> Value {
    until(place, session, state, |seen| seen["state"] == state)
}

fn task(daemon: &Daemon<'_>, id: u64) -> Value {
    let answer = daemon
        .legacy(LEGACY)
        .call("colibri_get_task", json!({ "task": id }));
    assert_ne!(answer["isError"], true, "{answer}");
    answer["structuredContent"].clone()
}

/// The doors that are there.
fn doors(place: &Place) -> Vec<String> {
    let Ok(entries) = fs::read_dir(place.path("doors")) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// The details of the events of this name in the trail.
fn events(place: &Place, name: &str) -> Vec<Value> {
    let records = records_in(&place.path("state/trail"));
    let events = records
        .into_iter()
        .filter(|record| record.rec["event"] == name);
    events.map(|record| record.rec["details"].clone()).collect()
}

#[test]
fn an_agent_is_followed_from_its_task_to_the_result_and_read_afterwards() {
    let place = Place::new();
    let tools = json!({ "fix": { "allow": ["*"] } });
    let keys = json!({ "tools": tools, "capabilities": ["rust"] });
    let args = ["--as", "w", "--tool", "fix__echo", "--tasks", "1"];
    registry(&place, json!({ "w": worker(&place, &args, keys) }));
    let daemon = place.start(&["--write"]);
    let (status, out, err) = run(
        &place,
        &["agent", "run", "w", "{\"do\":\"finish\"}", "--follow"],
    );
    assert_eq!(status, Some(0), "{out}{err}");
    for part in [
        " -- idle\n",
        " session  ",
        " -- working\n",
        " turn_start  ",
        " -- done\n",
        " agent_end  ",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(
        err.contains(": done (exit status 0), 3 events,") && err.contains("; task 1 is done"),
        "{err}"
    );

    let started = events(&place, "agent-started");
    let session = started[0]["session"].as_str().unwrap();
    let uid = nix::unistd::geteuid().as_raw();
    assert_eq!(
        (
            &started[0]["agent"],
            &started[0]["for"],
            &started[0]["task"]
        ),
        (&json!("w"), &json!(uid), &json!(1))
    );
    let found = task(&daemon, 1);
    assert_eq!(found["task"]["status"], "done");
    assert_eq!(found["result"]["task"], 1);

    // What it wrote is there afterwards, as it wrote it.
    let (status, logged, _) = run(&place, &["agent", "log", &session[..8]]);
    assert_eq!(status, Some(0));
    let plain: Vec<_> = out.lines().filter(|line| !line.contains("waits")).collect();
    assert_eq!(logged.lines().collect::<Vec<_>>(), plain);
    let (_, logged, _) = run(&place, &["--json", "agent", "log", session]);
    let mut hash = Sha256::new();
    for line in logged.lines() {
        let at = line.find("\"event\":").unwrap() + "\"event\":".len();
        hash.update(&line[at..line.len() - 1]);
        hash.update("\n");
    }
    let ended = events(&place, "agent-ended");
    let hex: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(ended[0]["sha256"], hex);
    assert_eq!(
        (&ended[0]["events"], &ended[0]["exit"]),
        (&json!(3), &json!("exit status 0"))
    );
    let calls = ended[0]["calls"].as_u64().unwrap();
    assert!(calls >= 4, "{ended:?}");

    let (_, list, _) = run(&place, &["agent", "list"]);
    assert!(
        list.contains("0 of 1") && list.contains("rust") && list.contains(session),
        "{list}"
    );
    assert_eq!(doors(&place), [""; 0]);
    daemon.stop();
}

#[test]
fn an_agent_that_ends_well_and_leaves_its_task_is_no_success() {
    let place = Place::new();
    let says_done = script(&place, "echo '{\"type\":\"turn.completed\"}'", json!({}));
    registry(&place, json!({ "sh": says_done }));
    let daemon = place.start(&["--write"]);
    let left = ": done (exit status 0), 1 event, 0 calls; task 1 is queued again: its agent ended without finishing it";
    let (status, out, err) = run(&place, &["agent", "run", "sh", "Do it.", "--follow"]);
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(err.contains(left), "{err}");
    daemon.stop();
    // The next daemon knows it, too.
    let daemon = place.start(&["--write"]);
    let session = events(&place, "agent-ended")[0]["session"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(instance(&place, &session)["task_status"], "queued");
    let (status, _, err) = run(&place, &["agent", "log", &session, "--follow"]);
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains(left), "{err}");
    daemon.stop();
}

#[test]
fn an_agent_that_hangs_is_stopped_and_its_task_is_there_for_another() {
    let place = Place::new();
    registry(
        &place,
        json!({ "w": worker(&place, &["--as", "w"], json!({})) }),
    );
    let daemon = place.start(&["--write"]);
    let session = start(&place, &["w", "{\"do\":\"hang\"}"]);
    let follow = place
        .colibri_mcp(&["agent", "log", &session, "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    becomes(&place, &session, "working");
    wait_for("the task to be begun", || {
        (task(&daemon, 1)["task"]["status"] == "started").then_some(())
    });
    assert_eq!(doors(&place), std::slice::from_ref(&session));
    let (status, full, err) = run(&place, &["agent", "run", "w"]);
    assert_eq!(status, Some(65), "{full}{err}");
    assert!(err.contains("1 of it run already"), "{err}");

    let (status, out, err) = run(&place, &["agent", "stop", &session[..8]]);
    assert_eq!(status, Some(0), "{err}");
    assert!(
        out.contains("has ended: error") && out.contains("stopped by uid"),
        "{out}"
    );
    let (status, out, err) = told(follow.wait_with_output().unwrap());
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(err.contains("stopped by uid"), "{err}");
    let (status, out, _) = run(&place, &["agent", "stop", &session]);
    assert!(
        status == Some(0) && out.contains("had ended already"),
        "{out}"
    );
    let found = task(&daemon, 1);
    assert_eq!(
        (&found["task"]["status"], &found["task"]["attempts"]),
        (&json!("queued"), &json!(1))
    );
    assert_eq!(doors(&place), [""; 0]);
    assert_eq!(events(&place, "agent-stopped").len(), 1);
    let (status, _, err) = run(&place, &["agent", "log", "0000000000000000"]);
    assert!(
        status == Some(65) && err.contains("colibri-mcp agent list"),
        "{err}"
    );
    daemon.stop();
}

#[test]
fn a_killed_daemon_leaves_no_agent_and_its_next_one_says_so() {
    let place = Place::new();
    let agents = json!({
        "w": worker(&place, &["--as", "w"], json!({})),
        "sh": script(&place, "trap '' TERM HUP INT; echo '{\"type\":\"turn.started\"}'; while :; do sleep 1; done", json!({})),
    });
    registry(&place, agents);
    let daemon = place.start(&["--write"]);
    let sessions = [
        start(&place, &["w", "{\"do\":\"hang\"}"]),
        start(&place, &["sh"]),
    ];
    for session in &sessions {
        becomes(&place, session, "working");
    }
    wait_for("the task to be begun", || {
        (task(&daemon, 1)["task"]["status"] == "started").then_some(())
    });
    assert_eq!(doors(&place).len(), 2);
    // Looks for processes itself.
    daemon.kill();

    let daemon = place.start(&["--write"]);
    wait_for("the doors to be gone", || {
        doors(&place).is_empty().then_some(())
    });
    for session in &sessions {
        let seen = instance(&place, session);
        assert_eq!(seen["state"], "error");
        assert!(
            seen["reason"]
                .as_str()
                .unwrap()
                .contains("the daemon was killed or crashed while it ran"),
            "{seen}"
        );
        let (status, out, _) = run(&place, &["agent", "log", session]);
        assert!(status == Some(0) && out.contains(" -- working"), "{out}");
    }
    assert_eq!(task(&daemon, 1)["task"]["status"], "queued");
    daemon.stop();
    // Once each, however often it starts again.
    place.start(&["--write"]).stop();
    let ended = events(&place, "agent-ended");
    let mut of: Vec<&str> = ended
        .iter()
        .filter_map(|ended| ended["session"].as_str())
        .collect();
    of.sort_unstable();
    let mut began: Vec<&str> = sessions.iter().map(String::as_str).collect();
    began.sort_unstable();
    assert_eq!(of, began);
    for ended in &ended {
        assert_eq!(
            ended["reason"], "the daemon was killed or crashed while it ran, and it ended with it",
            "{ended}"
        );
    }
}

#[test]
fn an_ending_daemon_ends_its_agents() {
    let place = Place::new();
    let stubborn =
        "trap '' TERM HUP INT; (while :; do sleep 1; done) & while :; do echo noise; done";
    let agents = json!({
        "w": worker(&place, &["--as", "w"], json!({ "max": 3 })),
        "sh": script(&place, stubborn, json!({})),
    });
    registry(&place, agents);
    let daemon = place.start(&["--write"]);
    let sessions = [
        start(&place, &["w", "{\"do\":\"hang\"}"]),
        start(&place, &["w"]),
        start(&place, &["sh"]),
    ];
    until(&place, &sessions[2], "noise", |seen| {
        seen["skipped_lines"].as_u64() > Some(1000)
    });
    daemon.stop();
    assert_eq!(doors(&place), [""; 0]);
    let ended = events(&place, "agent-ended");
    assert_eq!(ended.len(), 3);
    for ended in ended {
        assert_eq!(
            ended["reason"], "stopped: the daemon was shut down",
            "{ended}"
        );
    }
}

#[test]
fn an_agent_that_forks_and_floods_is_ended_with_all_it_started() {
    let place = Place::new();
    let forks = "i=0; while [ $i -lt 60 ]; do (trap '' TERM; while :; do sleep 1; done) & i=$((i+1)); done; \
                 echo '{\"type\":\"turn.started\"}'; exec 2>/dev/null; while :; do printf 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'; done";
    let agents = json!({
        "forks": script(&place, forks, json!({})),
        "quick": script(&place, "echo broken >&2; exit 3", json!({})),
        "gone": { "command": place.path("nothing-here"), "events": "claude" },
        "few": script(&place, "while :; do echo '{\"type\":\"turn.started\"}'; done", json!({ "budget": { "events": 100 } })),
    });
    registry(&place, agents);
    let daemon = place.start(&["--write"]);
    let session = start(&place, &["forks"]);
    becomes(&place, &session, "working");
    let mark = place.directory().display().to_string();
    wait_for("many processes", || {
        (processes_with(&mark).len() > 60).then_some(())
    });
    daemon.assert_serves("colibri_status");
    let (status, out, err) = run(&place, &["agent", "stop", &session]);
    assert_eq!(status, Some(0), "{out}{err}");
    let daemons = || processes_with(&mark).len();
    wait_for("nothing but the daemon", || (daemons() == 1).then_some(()));

    let (status, out, err) = run(&place, &["agent", "run", "quick", "--follow"]);
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(
        err.contains("it ended with exit status 3; on standard error: broken"),
        "{err}"
    );
    let (status, _, err) = run(&place, &["agent", "run", "gone"]);
    assert_eq!(status, Some(65));
    assert!(
        err.contains("gone is not started: cannot run") && err.contains("nothing-here"),
        "{err}"
    );
    let (status, out, err) = run(&place, &["agent", "run", "few", "--follow"]);
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains("its budget of 100 events is used up"), "{err}");
    assert_eq!(out.matches(" turn.started  ").count(), 100);
    daemon.stop();
}

#[test]
fn agents_are_started_while_the_write_gate_is_open_and_go_on_under_their_entry() {
    let place = Place::new();
    registry(
        &place,
        json!({ "w": worker(&place, &["--as", "w"], json!({})) }),
    );
    let closed = place.start(&[]);
    let (status, _, err) = run(&place, &["agent", "run", "w"]);
    assert_ne!(status, Some(0));
    assert!(err.contains("--write"), "{err}");
    closed.stop();
    let daemon = place.start(&["--write"]);
    let (status, _, err) = run(&place, &["--read-only", "agent", "run", "w"]);
    assert!(status != Some(0), "{err}");
    let session = start(&place, &["w"]);
    registry(
        &place,
        json!({ "w": worker(&place, &["--as", "w"], json!({ "max": 2 })) }),
    );
    daemon.reload();
    let seen = instance(&place, &session);
    assert!(
        seen["reason"]
            .as_str()
            .unwrap()
            .contains("its entry was changed; this instance keeps running"),
        "{seen}"
    );
    // The new entry holds for the next one.
    let second = start(&place, &["w"]);
    assert_eq!(instance(&place, &second)["reason"], Value::Null);
    daemon.stop();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn two_agents_at_once_see_only_what_their_persons_may() {
    let place = Place::new();
    let keys = json!({ "users": ["54321"], "max": 2, "tools": { "*": { "allow": ["*"] } } });
    registry(
        &place,
        json!({ "w": worker(&place, &["--as", "w", "--tool", "fix__echo"], keys), "root": worker(&place, &[], json!({})) }),
    );
    place.open_to_group();
    place.clients(r#"{"users":{"54321":{"gates":["write","external-call"],"servers":{}}}}"#);
    let daemon = place.start(&["--write"]);
    let stranger = |args: &[&str]| told(place.stranger(args).output().unwrap());
    let theirs = {
        let (status, out, err) = stranger(&["--json", "agent", "run", "w", "{\"do\":\"hang\"}"]);
        assert_eq!(status, Some(0), "{out}{err}");
        let answer: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(answer["instance"]["uid"], 54_321);
        answer["instance"]["id"].as_str().unwrap().to_owned()
    };
    let ours = start(&place, &["w", "{\"do\":\"hang\"}"]);
    for session in [&theirs, &ours] {
        becomes(&place, session, "working");
    }
    // Each took its own person's task.
    wait_for("both tasks to be begun", || {
        let begun = |id| task(&daemon, id)["task"]["claimed_session"].clone();
        (begun(1) == *theirs && begun(2) == *ours).then_some(())
    });
    let (status, out, _) = stranger(&["--json", "agent", "list"]);
    assert_eq!(status, Some(0));
    assert!(
        out.contains(&theirs) && !out.contains(&ours) && !out.contains("\"root\""),
        "{out}"
    );
    for command in [["agent", "log", &ours], ["agent", "stop", &ours]] {
        let (status, out, err) = stranger(&command);
        assert!(
            status == Some(65) && err.contains("no instance"),
            "{out}{err}"
        );
    }
    let (status, _, err) = stranger(&["agent", "run", "root"]);
    assert!(status == Some(65) && err.contains("no agent"), "{err}");
    let (status, out, _) = stranger(&["agent", "stop", &theirs]);
    assert!(
        status == Some(0) && out.contains("stopped by uid 54321"),
        "{out}"
    );
    assert_eq!(instance(&place, &ours)["state"], "working");
    daemon.stop();
}

#[test]
fn a_door_answers_nothing_of_the_operators() {
    let place = Place::new();
    let ask = "echo '{\"type\":\"turn.started\"}'; while :; do sleep 1; done";
    registry(&place, json!({ "sh": script(&place, ask, json!({})) }));
    let daemon = place.start(&["--write"]);
    let session = start(&place, &["sh"]);
    becomes(&place, &session, "working");
    let door = place.path("doors").join(&session).join("colibri.sock");
    let stream = std::os::unix::net::UnixStream::connect(Path::new(&door)).unwrap();
    let mut client = colibri_tests::Client::over(stream);
    client.initialize(LEGACY);
    for method in [
        "colibri/agents",
        "colibri/spawn-agent",
        "colibri/stop-agent",
        "colibri/agent-events",
    ] {
        let answer = client.ask(method, json!({ "id": session, "agent": "sh" }));
        assert!(answer["error"].is_object(), "{method}: {answer}");
        assert!(
            code_of(&answer).is_some() || answer["error"]["code"].is_i64(),
            "{answer}"
        );
    }
    let status = client.call("colibri_status", json!({}));
    assert_ne!(status["isError"], true, "{}", text_of(&status));
    assert_eq!(
        instance(&place, &session)["calls"]
            .as_u64()
            .map(|calls| calls >= 1),
        Some(true)
    );
    daemon.stop();
}

#[test]
fn interrupting_who_follows_leaves_the_agent_running() {
    let place = Place::new();
    registry(
        &place,
        json!({ "w": worker(&place, &["--as", "w"], json!({})) }),
    );
    let daemon = place.start(&["--write"]);
    let follow = place
        .colibri_mcp(&["agent", "run", "w", "{\"do\":\"hang\"}", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let session = wait_for("the start", || {
        let started = events(&place, "agent-started");
        Some(started.first()?["session"].as_str()?.to_owned())
    });
    becomes(&place, &session, "working");
    Command::new("/bin/kill")
        .args(["-INT", &follow.id().to_string()])
        .status()
        .unwrap();
    let (status, out, err) = told(follow.wait_with_output().unwrap());
    assert_eq!(status, Some(130), "{out}{err}");
    assert!(err.contains("goes on") && err.contains(&session), "{err}");
    assert_eq!(instance(&place, &session)["state"], "working");
    daemon.stop();
}

#[test]
fn status_metrics_and_check_tell_of_agents() {
    let place = Place::new();
    let nobody = json!({ "users": ["no-such-user"] });
    let agents = json!({
        "w": worker(&place, &["--as", "w"], json!({})),
        "gone": with(json!({ "command": place.path("nothing-here") }), nobody),
        "off": worker(&place, &[], json!({ "disabled": true })),
        "caged": { "command": "/bin/agent", "jail": { "path": "/roots/a" } },
    });
    registry(&place, agents);
    let (status, out, err) = told(place.command(&["--check"]).output().unwrap());
    let all = format!("{out}{err}");
    assert_eq!(status, Some(0), "{all}");
    for part in [
        "1 server; 4 agents, 2 of them not run",
        "agent gone would not start: cannot run",
        "agent gone: there is no user no-such-user",
        "agent caged would not be run: what is jailed must stand in",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    let metrics = place.path("metrics.sock");
    let daemon = place.start(&["--write", "--metrics-socket", metrics.to_str().unwrap()]);
    let session = start(&place, &["w", "{\"do\":\"hang\"}"]);
    becomes(&place, &session, "working");
    let (_, status, _) = run(&place, &["status"]);
    assert!(status.contains("1 working"), "{status}");
    let mut stream = std::os::unix::net::UnixStream::connect(&metrics).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
    for line in [
        "colibri_agents{state=\"working\"} 1",
        "colibri_agents{state=\"error\"} 0",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let (_, list, _) = run(&place, &["agent", "list"]);
    assert!(
        list.contains("caged: not started:") && list.contains("off: not started: it is disabled"),
        "{list}"
    );
    daemon.stop();
}

/// In the development sandbox, by the installed set-user-ID helper and a daemon that is the user
/// `colibri`.
#[cfg(target_os = "linux")]
mod jailed {
    use colibri_tests::campaign::{Ground, Jailed, KEPT};
    use colibri_tests::installed::HELPER;
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;

    fn run(ground: &Jailed, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(program("colibri-mcp"));
        command
            .env_clear()
            .arg("--socket")
            .arg(ground.socket())
            .args(args);
        told(command.output().unwrap())
    }

    fn start(ground: &Jailed) -> (std::process::Child, String) {
        let daemon = ground.daemon().spawn().unwrap();
        wait_for("the daemon's socket", || {
            std::os::unix::net::UnixStream::connect(ground.socket()).ok()
        });
        let (status, out, err) = run(
            ground,
            &["--json", "agent", "run", KEPT, "{\"do\":\"hang\"}"],
        );
        assert_eq!(status, Some(0), "{out}{err}{}", ground.log());
        let answer: Value = serde_json::from_str(&out).unwrap();
        let session = answer["instance"]["id"].as_str().unwrap().to_owned();
        assert_eq!(answer["instance"]["jail"], format!("colibri-{session}"));
        wait_for("the agent to work", || {
            let (_, out, _) = run(ground, &["agent", "log", &session]);
            (out.contains(" -- idle") && out.contains(" turn_start ")).then_some(())
        });
        (daemon, session)
    }

    /// No agent, and no helper that would have one.
    fn assert_none(ground: &Jailed) {
        wait_for("the agents to be gone", || {
            ground.agents().is_empty().then_some(())
        });
        let helpers = || processes_with(HELPER).into_iter().map(|(_, line)| line);
        wait_for("their helpers to be gone", || {
            (!helpers().any(|line| line.starts_with(HELPER))).then_some(())
        });
    }

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn an_agent_in_its_jail_is_started_seen_and_stopped_and_killed_with_its_daemon() {
        let ground = Jailed::new();
        let (mut daemon, session) = start(&ground);
        assert_eq!(ground.agents().len(), 1);
        let doors = ground.socket().with_file_name("doors");
        assert!(doors.join(&session).join("colibri.sock").exists());
        let (status, out, err) = run(&ground, &["agent", "stop", &session]);
        assert!(
            status == Some(0) && out.contains("stopped by uid 0"),
            "{out}{err}"
        );
        assert_none(&ground);
        assert!(!doors.join(&session).exists());

        let (status, out, err) = run(&ground, &["--json", "agent", "run", KEPT]);
        assert_eq!(status, Some(0), "{out}{err}");
        kill(Pid::from_raw(daemon.id() as i32), Signal::SIGKILL).unwrap();
        daemon.wait().unwrap();
        assert_none(&ground);

        let (mut daemon, _) = start(&ground);
        let (_, list, _) = run(&ground, &["agent", "list"]);
        assert!(
            list.contains("in a jail")
                && list.contains("the daemon was killed or crashed while it ran"),
            "{list}"
        );
        kill(Pid::from_raw(daemon.id() as i32), Signal::SIGTERM).unwrap();
        assert!(daemon.wait().unwrap().success());
        assert_none(&ground);
        wait_for("nothing to be left", || {
            ground.left().is_empty().then_some(())
        });
        ground.assert_trail_is_sound();
    }
}

//! How the daemon is run: socket, signals, reload, gates, processes of servers and their states.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use colibri_tests::{
    Client, Daemon, Era, LEGACY, MODERN, Place, code_of, is_alive, is_root, modern_meta, text_of, wait_for,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// A place with one fixture server called `fix`.
fn place(args: &[&str], more: Value) -> Place {
    let place = Place::new();
    place.registry(&json!({ "fix": place.fixture("fix", args, more) }));
    place
}

/// The flag that tests running as root have to give.
fn root_flag() -> &'static [&'static str] {
    if nix::unistd::geteuid().is_root() {
        &["--allow-root"]
    } else {
        &[]
    }
}

// The socket.

#[test]
fn a_stale_socket_is_replaced() {
    let place = Place::new();
    drop(UnixListener::bind(place.socket()).unwrap());
    let daemon = place.start(&[]);
    daemon.assert_serves("colibri_status");
    daemon.wait_for_log("replacing a stale socket");
}

#[test]
fn a_live_daemon_is_never_displaced() {
    let (place, other) = (Place::new(), Place::new());
    let daemon = place.start(&[]);
    let refused = other.command_at(&place.socket(), root_flag()).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(69), "{text}");
    assert!(text.contains("already listens"), "{text}");
    // Nor may two daemons write one state.
    let elsewhere = place.path("elsewhere.sock");
    let refused = place.command_at(&elsewhere, root_flag()).output().unwrap();
    assert!(!refused.status.success() && !elsewhere.exists());
    daemon.assert_serves("colibri_status");
}

#[test]
fn what_is_no_socket_is_never_removed() {
    let place = Place::new();
    fs::write(place.socket(), "precious").unwrap();
    let (status, text) = place.refused(root_flag());
    assert_eq!(status, Some(69), "{text}");
    assert!(text.contains("no socket"), "{text}");
    assert_eq!(fs::read_to_string(place.socket()).unwrap(), "precious");
    fs::remove_file(place.socket()).unwrap();
    // Neither is a link, wherever it leads.
    let elsewhere = place.path("elsewhere.sock");
    drop(UnixListener::bind(&elsewhere).unwrap());
    std::os::unix::fs::symlink(&elsewhere, place.socket()).unwrap();
    assert_eq!(place.refused(root_flag()).0, Some(69));
    assert!(place.socket().is_symlink() && elsewhere.exists());
}

#[test]
fn the_socket_is_for_owner_and_group_alone() {
    let place = Place::new();
    let _daemon = place.start(&[]);
    let facts = fs::symlink_metadata(place.socket()).unwrap();
    assert!(facts.file_type().is_socket());
    assert_eq!(facts.permissions().mode() & 0o7777, 0o660);
}

// Start and end.

#[test]
fn root_is_refused_unless_allowed() {
    if !is_root("root_is_refused_unless_allowed") {
        return;
    }
    let place = Place::new();
    let (status, text) = place.refused(&[]);
    assert_eq!(status, Some(77), "{text}");
    assert!(text.contains("--allow-root"), "{text}");
    assert!(!place.socket().exists());
    let daemon = place.start(&[]);
    assert!(daemon.log().contains("--allow-root"), "no warning: {}", daemon.log());
}

#[test]
fn check_tells_a_good_configuration_from_a_bad_one() {
    let place = place(&[], json!({}));
    let (status, text) = place.refused(&["--check"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("1 servers"), "{text}");
    for bad in [
        r#"{"servers":{"a":{"command":"/bin/sh","jial":{"name":"x"}}}}"#,
        r#"{"servers":{"a":{"command":"/bin/sh"},"a":{"command":"/bin/sh"}}}"#,
        r#"{"servers":{"a":{"command":"sh"}}}"#,
        r#"{"servers":{"#,
        "",
    ] {
        place.registry_text(bad);
        let (status, text) = place.refused(&["--check"]);
        assert_eq!(status, Some(78), "{bad}: {text}");
        assert!(text.contains("external-mcp.json:1:"), "{bad}: {text}");
    }
    place.registry_text(r#"{"servers":{"a":{"command":"/bin/sh","jial":{"name":"x"}}}}"#);
    assert!(
        place.refused(&["--check"]).1.contains("jail"),
        "the nearest key is named"
    );
    // A daemon does not start with it either.
    assert_eq!(place.refused(root_flag()).0, Some(78));
    assert_eq!(place.refused(&["--max-clients", "0"]).0, Some(64));
    assert!(!place.socket().exists());
}

#[test]
fn a_registry_that_others_could_change_is_refused() {
    let place = place(&[], json!({}));
    let path = place.path("external-mcp.json");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let (status, text) = place.refused(&["--check"]);
    assert_eq!(status, Some(78), "{text}");
    assert!(text.contains("chmod"), "{text}");
}

#[test]
fn sigterm_waits_for_calls_in_flight_and_leaves_nothing() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let place = place(&[], json!({}));
        let mut daemon = place.start(&[]);
        let mut client = daemon.quiet(LEGACY);
        let id = client.request_tool("fix__wait", json!({ "until": "told" }));
        wait_for("the call", || place.received("fix", "\"wait\"").pop());
        daemon.signal(signal);
        daemon.wait_for_log("ending clients=");
        // Whoever asks now is told why not, whatever it is.
        for (method, params) in [("ping", json!({})), ("tools/call", json!({ "name": "fix__pid" }))] {
            let late = client.request(method, params);
            let answer = client.answer(late);
            assert_eq!(answer["error"]["data"]["code"], "DAEMON_STOPPING", "{answer}");
        }
        place.release("told");
        let answer = client.answer(id);
        assert_eq!(text_of(&answer["result"]), "told", "{answer}");
        assert_eq!(client.read(), None);
        assert!(daemon.wait().success());
        assert!(!place.socket().exists());
    }
}

#[test]
fn sigterm_gives_up_calls_that_never_end() {
    let place = place(&[], json!({}));
    let mut daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.request_tool("fix__never", json!({}));
    wait_for("the call", || place.received("fix", "\"never\"").pop());
    daemon.signal(Signal::SIGTERM);
    while client.read().is_some() {}
    assert!(daemon.wait().success());
    assert!(!place.socket().exists());
    let cancelled = place.received("fix", "notifications/cancelled");
    assert_eq!(
        cancelled.len(),
        1,
        "the server was told before its input was closed: {cancelled:?}"
    );
}

#[test]
fn sigterm_closes_subscriptions_with_a_result() {
    let place = Place::new();
    let mut daemon = place.start(&[]);
    let mut client = daemon.modern();
    let id = client.request(
        "subscriptions/listen",
        json!({ "notifications": { "toolsListChanged": true } }),
    );
    client.notification("notifications/subscriptions/acknowledged");
    daemon.signal(Signal::SIGTERM);
    let answer = client.answer(id);
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert!(daemon.wait().success());
}

#[test]
fn sigkill_of_the_daemon_leaves_no_server() {
    let place = Place::new();
    place.registry(&json!({
        "fix": place.fixture("fix", &[], json!({})),
        "stubborn": place.fixture("stubborn", &["--at-eof", "stay"], json!({})),
        "forking": place.fixture("forking", &[], json!({})),
    }));
    let daemon = place.start(&[]);
    for tool in ["fix__pid", "stubborn__pid", "forking__fork_away"] {
        daemon.assert_serves(tool);
    }
    // Checks that nothing is left.
    daemon.kill();
    assert!(place.socket().exists(), "nobody could remove the socket");
    let daemon = place.start(&[]);
    daemon.assert_serves("fix__pid");
}

// Reload.

#[test]
fn a_bad_registry_keeps_the_old_one_and_says_why() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let pid = text_of(&client.call("fix__pid", json!({}))).to_owned();
    place.registry_text(r#"{"servers":{"fix":{"command":"/bin/sh","argz":[]}}}"#);
    daemon.reload();
    let status = client.call("colibri_status", json!({}));
    assert!(status.to_string().contains("argz"), "{status}");
    assert_eq!(text_of(&client.call("fix__pid", json!({}))), pid);
    place.registry(&json!({ "fix": place.fixture("fix", &[], json!({})) }));
    daemon.reload();
    let status = client.call("colibri_status", json!({}));
    assert!(!status.to_string().contains("argz"), "{status}");
    assert_eq!(
        text_of(&client.call("fix__pid", json!({}))),
        pid,
        "the same entry keeps its process"
    );
}

#[test]
fn removed_servers_end_after_their_calls() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let id = client.request_tool("fix__wait", json!({ "until": "removed" }));
    wait_for("the call", || place.received("fix", "\"wait\"").pop());
    place.registry(&json!({}));
    daemon.reload();
    client.notification("notifications/tools/list_changed");
    assert!(!client.tools().contains(&"fix__wait".to_owned()));
    let refused = client.ask("tools/call", json!({ "name": "fix__pid", "arguments": {} }));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    place.release("removed");
    assert_eq!(text_of(&client.answer(id)["result"]), "removed");
    for pid in place.started("fix") {
        wait_for("the server's end", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn changed_servers_restart_and_others_do_not() {
    let place = Place::new();
    let with = |word: &str| {
        json!({
            "fix": place.fixture("fix", &[], json!({ "env": { "WORD": word } })),
            "other": place.fixture("other", &[], json!({})),
        })
    };
    place.registry(&with("one"));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let mut look = || {
        let environment = client.call("fix__environment", json!({}));
        let environment: Value = serde_json::from_str(text_of(&environment)).unwrap();
        let other = text_of(&client.call("other__pid", json!({}))).to_owned();
        (environment["WORD"].as_str().unwrap().to_owned(), other)
    };
    let (word, other) = look();
    assert_eq!(word, "one");
    place.registry(&with("two"));
    daemon.reload();
    assert_eq!(look(), ("two".to_owned(), other));
}

// Clients and gates.

#[test]
fn the_client_over_the_limit_is_told_so() {
    let place = Place::new();
    let daemon = place.start(&["--max-clients", "2"]);
    // A connection that has just been closed, such as the one that waited for the daemon's start, may count still.
    let place_for_one = || {
        wait_for("a place for a client", || {
            let mut client = daemon.connect();
            let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": { "name": "e2e" } });
            client.ask("initialize", params).get("result").map(|_| client)
        })
    };
    let (mut first, _second) = (place_for_one(), place_for_one());
    let mut third = daemon.connect();
    let refused = third.ask("initialize", json!({ "protocolVersion": LEGACY, "capabilities": {} }));
    assert_eq!(code_of(&refused), Some("DAEMON_BUSY"), "{refused}");
    assert_eq!(third.read(), None);
    assert_eq!(first.ask("ping", json!({}))["result"], json!({}));
    drop(first);
    place_for_one();
}

#[test]
fn closed_gates_answer_with_what_to_set() {
    let place = place(&[], json!({}));
    let daemon = place.start_plain(&[]);
    for mut client in [daemon.legacy(LEGACY), daemon.modern()] {
        let tools = client.tools();
        assert!(!tools.iter().any(|name| name.starts_with("fix__")), "{tools:?}");
        assert!(tools.contains(&"colibri_external_mcp_call_tool".to_owned()));
        let relay = client.call(
            "colibri_external_mcp_call_tool",
            json!({ "server": "fix", "tool": "count", "arguments": {} }),
        );
        assert_eq!(code_of(&relay), Some("GATE_CLOSED"), "{relay}");
        assert!(text_of(&relay).contains("--external-call"), "{relay}");
        let direct = client.call("fix__count", json!({}));
        assert_eq!(code_of(&direct), Some("GATE_CLOSED"), "{direct}");
        let task = client.call("colibri_create_task", json!({ "title": "x" }));
        assert_eq!(code_of(&task), Some("GATE_CLOSED"), "{task}");
        assert!(text_of(&task).contains("--write"), "{task}");
    }
    assert!(place.started("fix").is_empty(), "a closed gate starts no server");
}

#[test]
fn open_gates_let_calls_through() {
    let place = place(&[], json!({}));
    let daemon = place.start(&["--write"]);
    let mut client = daemon.legacy(LEGACY);
    let task = client.call("colibri_create_task", json!({ "title": "x" }));
    assert_ne!(task["isError"], true, "{task}");
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
}

#[test]
fn a_hello_narrows_answers_and_not_lists() {
    let place = place(&[], json!({}));
    let daemon = place.start(&["--write"]);
    let mut open = daemon.quiet(LEGACY);
    let listed = open.tools();
    let narrowed = |words: &str| {
        let mut client = daemon.connect();
        client.send(format!("{{\"colibri\":1,\"narrow\":{words}}}"));
        client.initialize(LEGACY);
        assert_eq!(client.tools(), listed);
        let write = client.call("colibri_set_cost_mode", json!({ "mode": "fast" }));
        let external = client.call("fix__count", json!({}));
        [write, external].map(|result| code_of(&result) == Some("GATE_CLOSED"))
    };
    assert_eq!(narrowed("[]"), [false, false]);
    assert_eq!(narrowed(r#"["write"]"#), [true, false]);
    assert_eq!(narrowed(r#"["external"]"#), [false, true]);
    assert_eq!(narrowed(r#"["external","write"]"#), [true, true]);
    assert_eq!(
        narrowed(r#"["something new"]"#),
        [true, true],
        "what is not known closes everything"
    );
    // Only the first line is a hello: nothing widens, and nothing narrows later.
    open.send(r#"{"colibri":1,"narrow":["write"]}"#);
    assert_eq!(open.message()["error"]["code"], -32600);
    assert_eq!(
        code_of(&open.call("colibri_set_cost_mode", json!({ "mode": "max" }))),
        None
    );
}

// Processes of servers.

#[test]
fn a_server_starts_at_its_first_use_and_ends_when_idle() {
    let place = place(&[], json!({ "idle_timeout_s": 1 }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.call("colibri_status", json!({}));
    assert!(place.started("fix").is_empty());
    let first = text_of(&client.call("fix__pid", json!({}))).to_owned();
    daemon.wait_for_log("reason=\"idle\"");
    wait_for("the server's end", || (!is_alive(first.parse().unwrap())).then_some(()));
    assert_eq!(daemon.server("fix")["state"], "stopped");
    let second = text_of(&client.call("fix__pid", json!({}))).to_owned();
    assert_ne!(first, second);
}

#[test]
fn a_crash_is_answered_and_followed_by_a_restart() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let first = text_of(&client.call("fix__pid", json!({}))).to_owned();
    let lost = client.call("fix__exit", json!({}));
    assert_eq!(code_of(&lost), Some("SERVER_DIED"), "{lost}");
    assert!(text_of(&lost).contains("the last words of the fixture"), "{lost}");
    let second = client.call("fix__pid", json!({}));
    assert_ne!(second["isError"], true, "{second}");
    assert_ne!(text_of(&second), first);
    assert_eq!(daemon.server("fix")["state"], "ready");
}

#[test]
fn a_call_that_was_sent_is_never_sent_again() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let lost = client.call("fix__die_mid_answer", json!({}));
    // Its last words are an answer under this id that was cut off.
    assert_eq!(code_of(&lost), Some("SERVER_ANSWER_INVALID"), "{lost}");
    assert_eq!(place.received("fix", "die_mid_answer").len(), 1);
}

#[test]
fn backing_off_can_be_seen_with_its_reason() {
    let place = Place::new();
    place.registry(&json!({
        "bad": place.fixture("bad", &["--at-start", "exit"], json!({ "attempts": 1 })),
        "fix": place.fixture("fix", &[], json!({})),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let tools = client.tools();
    assert!(
        tools.contains(&"fix__pid".to_owned()),
        "one bad server hides no other: {tools:?}"
    );
    assert!(!tools.iter().any(|name| name.starts_with("bad__")));
    let call = json!({ "server": "bad", "tool": "pid", "arguments": {} });
    let refused = client.call("colibri_external_mcp_call_tool", call);
    assert_eq!(refused["isError"], true, "{refused}");
    let server = daemon.server("bad");
    assert_eq!(server["state"], "backing off", "{server}");
    let reason = server["reason"].as_str().unwrap();
    assert!(reason.contains("does not want to start"), "{reason}");
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
}

#[test]
fn a_server_that_never_gets_ready_times_out_and_hides_nobody() {
    let place = Place::new();
    place.registry(&json!({
        "mute": place.fixture("mute", &["--at-start", "silence"], json!({ "start_timeout_ms": 300, "attempts": 1 })),
        "fix": place.fixture("fix", &[], json!({})),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    assert!(client.tools().contains(&"fix__pid".to_owned()));
    wait_for("the time limit", || {
        let server = daemon.server("mute");
        server["reason"].as_str()?.contains("start_timeout_ms").then_some(())
    });
}

/// The processes that answer two connections, two calls each.
fn processes(daemon: &Daemon<'_>) -> Vec<String> {
    let mut clients = [daemon.legacy(LEGACY), daemon.modern()];
    let mut pids = Vec::new();
    for client in &mut clients {
        for _ in 0..2 {
            pids.push(text_of(&client.call("fix__pid", json!({}))).to_owned());
        }
    }
    pids
}

#[test]
fn isolation_decides_who_shares_a_process() {
    for (isolation, wanted) in [
        ("shared", [0, 0, 0, 0]),
        ("user", [0, 0, 0, 0]),
        ("client", [0, 0, 1, 1]),
        ("call", [0, 1, 2, 3]),
    ] {
        let place = place(&[], json!({ "isolation": isolation }));
        let daemon = place.start(&[]);
        // So that no process is started for the list's sake.
        daemon.legacy(LEGACY).tools();
        let pids = processes(&daemon);
        let mut seen: Vec<&String> = Vec::new();
        let places = pids
            .iter()
            .map(|pid| match seen.iter().position(|other| *other == pid) {
                Some(at) => at,
                None => {
                    seen.push(pid);
                    seen.len() - 1
                }
            });
        assert_eq!(places.collect::<Vec<_>>(), wanted, "{isolation}: {pids:?}");
        // A process of one connection or one call goes with it.
        if matches!(isolation, "client" | "call") {
            for pid in &pids {
                wait_for("the process's end", || (!is_alive(pid.parse().unwrap())).then_some(()));
            }
        }
    }
}

#[test]
fn users_do_not_share_processes() {
    if !is_root("users_do_not_share_processes") {
        return;
    }
    let place = place(&[], json!({}));
    place.open_to_group();
    let daemon = place.start(&[]);
    let own = text_of(&daemon.legacy(LEGACY).call("fix__pid", json!({}))).to_owned();
    // The bridge, as another user; copied, since that user may not reach where it was built.
    let program = place.path("colibri-mcp");
    fs::copy(colibri_tests::program("colibri-mcp"), &program).unwrap();
    let mut bridge = std::process::Command::new(&program);
    bridge
        .env_clear()
        .arg("--socket")
        .arg(place.socket())
        .uid(54_321)
        .gid(0);
    let mut bridge = bridge.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"fix__pid","arguments":{{}},"_meta":{{{}}}}}}}"#,
        modern_meta()
    );
    let mut input = bridge.stdin.take().unwrap();
    input.write_all(format!("{call}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(bridge.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    let other = text_of(&answer["result"]).to_owned();
    assert!(!other.is_empty() && other != own, "{answer}");
    let server = daemon.server("fix");
    let mut uids: Vec<_> = server["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["uid"].as_u64())
        .collect();
    uids.sort();
    assert_eq!(uids, [Some(0), Some(54_321)], "{server}");
    drop(input);
    assert!(bridge.wait().unwrap().success());
}

#[test]
fn the_environment_of_a_server_is_built_and_secrets_stay_secret() {
    let place = Place::new();
    place.secret("token", "hunter2-hunter2");
    let env = json!({ "LOG": "warn", "TOKEN": { "secret": "token" }, "LD_LIBRARY_PATH": "/nowhere" });
    place.registry(&json!({ "fix": place.fixture("fix", &[], json!({ "env": env })) }));
    let daemon = place.start(&["--log-level", "debug"]);
    let mut client = daemon.legacy(LEGACY);
    let result = client.call("fix__environment", json!({}));
    let found: BTreeMap<String, String> = serde_json::from_str(text_of(&result)).unwrap();
    let home = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .unwrap()
        .unwrap()
        .dir;
    let home = home.to_string_lossy().into_owned();
    let wanted = [
        (
            "HOME",
            found
                .get("HOME")
                .filter(|found| **found == home || place.directory().ends_with(found))
                .cloned(),
        ),
        ("LANG", Some("C.UTF-8".to_owned())),
        ("LD_LIBRARY_PATH", Some("/nowhere".to_owned())),
        ("LOG", Some("warn".to_owned())),
        ("PATH", Some("/usr/local/bin:/usr/bin:/bin".to_owned())),
        ("TOKEN", Some("hunter2-hunter2".to_owned())),
    ];
    let wanted: BTreeMap<String, String> = wanted
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    assert_eq!(found, wanted);
    let snapshot = client.call("colibri_snapshot", json!({})).to_string();
    assert!(!snapshot.contains("hunter2") && !daemon.log().contains("hunter2"));
}

// What is remembered.

#[test]
fn lists_come_from_what_was_seen_last() {
    let place = place(&["--tool", "extra"], json!({}));
    let daemon = place.start(&[]);
    let listed = daemon.legacy(LEGACY).tools();
    assert!(listed.contains(&"fix__extra".to_owned()), "{listed:?}");
    // What was learned is written behind the answer's back.
    wait_for("the catalogue on disk", || {
        let files = fs::read_dir(place.path("state")).unwrap().flatten();
        let mut found = files.filter_map(|file| fs::read(file.path()).ok());
        found
            .any(|bytes| bytes.windows(9).any(|window| window == b"fork_away"))
            .then_some(())
    });
    daemon.stop();
    let before = place.started("fix").len();
    let daemon = place.start(&[]);
    assert_eq!(daemon.legacy(LEGACY).tools(), listed);
    assert_eq!(daemon.modern().tools(), listed);
    assert_eq!(place.started("fix").len(), before, "a list started the server");
    assert_eq!(daemon.server("fix")["state"], "stopped");
    daemon.assert_serves("fix__extra");
}

/// The first line that each process of the server received.
fn first_lines(place: &Place) -> Vec<String> {
    let record = place.record("fix");
    let first = |pid: &i32| {
        let mut lines = record.iter().filter(|(other, kind, _)| other == pid && kind == "line");
        lines
            .next()
            .map(|(_, _, line)| String::from_utf8_lossy(line).into_owned())
    };
    place.started("fix").iter().filter_map(first).collect()
}

#[test]
fn the_era_of_a_server_is_found_once() {
    for (version, opening) in [
        (LEGACY, "\"initialize\""),
        ("2024-11-05", "\"initialize\""),
        (MODERN, "server/discover"),
    ] {
        let place = place(&["--speak", version], json!({ "isolation": "call" }));
        let daemon = place.start(&[]);
        daemon.assert_serves("fix__pid");
        daemon.assert_serves("fix__pid");
        wait_for("the catalogue on disk", || {
            let files = fs::read_dir(place.path("state")).unwrap().flatten();
            let mut found = files.filter_map(|file| fs::read(file.path()).ok());
            found
                .any(|bytes| bytes.windows(9).any(|window| window == b"fork_away"))
                .then_some(())
        });
        daemon.stop();
        let daemon = place.start(&[]);
        daemon.assert_serves("fix__pid");
        let lines = first_lines(&place);
        assert!(lines[0].contains("server/discover"), "{version}: {lines:?}");
        let (probe, others) = lines.split_at(1);
        assert!(
            others.iter().all(|line| line.contains(opening)),
            "{version}: {probe:?} {others:?}"
        );
        assert!(others.len() >= 2, "{version}: {lines:?}");
        drop(daemon);
    }
}

#[test]
fn a_legacy_server_may_die_of_being_asked_for_its_era() {
    let place = place(&["--at-probe", "exit"], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    assert_eq!(place.started("fix").len(), 2);
    let server = daemon.server("fix");
    assert_eq!(server["state"], "ready", "{server}");
    assert_eq!(server["reason"], Value::Null, "{server}");
}

#[test]
fn a_server_that_changes_its_era_is_found_out_again() {
    let place = place(&[], json!({}));
    let link = place.path("server");
    let script = |version: &str| {
        let fixture = colibri_tests::program("fixture-server");
        let text = format!("#!/bin/sh\nexec {} \"$@\" --speak {version}\n", fixture.display());
        let new = place.path("server.new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&new, &link).unwrap();
    };
    let mut entry = place.fixture("fix", &[], json!({ "isolation": "call" }));
    entry["command"] = json!(link);
    place.registry(&json!({ "fix": entry }));
    script(LEGACY);
    let daemon = place.start(&[]);
    daemon.assert_serves("fix__pid");
    script(MODERN);
    daemon.assert_serves("fix__pid");
    let mut client = daemon.modern();
    assert_ne!(client.call("fix__pid", json!({}))["isError"], true);
}

#[test]
fn changes_of_the_tools_are_told_to_both_eras() {
    for version in [LEGACY, MODERN] {
        let place = place(&["--speak", version], json!({}));
        let daemon = place.start(&[]);
        let mut caller = daemon.legacy(LEGACY);
        caller.tools();
        let mut legacy = daemon.legacy("2024-11-05");
        assert!(!legacy.tools().contains(&"fix__new".to_owned()));
        let mut modern = daemon.modern();
        let wanted = json!({ "notifications": { "toolsListChanged": true } });
        let id = modern.request("subscriptions/listen", wanted);
        modern.notification("notifications/subscriptions/acknowledged");
        let mut silent = daemon.modern();
        silent.ask("server/discover", json!({}));
        caller.call("fix__change_tools", json!({ "tools": ["new", "change_tools"] }));
        // What the first look found may still be told of; only then comes the change.
        for client in [&mut legacy, &mut modern] {
            loop {
                let told = client.notification("notifications/tools/list_changed");
                if client.era == Era::Modern {
                    let meta = &told["params"]["_meta"];
                    assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], id, "{told}");
                }
                let tools = client.tools();
                if tools.contains(&"fix__new".to_owned()) {
                    assert!(!tools.contains(&"fix__pid".to_owned()), "{tools:?}");
                    break;
                }
            }
        }
        silent.ask("server/discover", json!({}));
        assert!(
            silent.others.is_empty(),
            "told without having asked: {:?}",
            silent.others
        );
        assert_eq!(text_of(&caller.call("fix__new", json!({}))), "this is new");
    }
}

// Names.

#[test]
fn collisions_are_named_and_own_names_win() {
    let place = Place::new();
    let plain = json!({ "prefix": false });
    place.registry(&json!({
        "a": place.fixture("a", &["--only", "--tool", "search", "--tool", "colibri_status"], plain.clone()),
        "b": place.fixture("b", &["--only", "--tool", "search", "--tool", "read"], plain),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let tools = client.tools();
    assert_eq!(tools.iter().filter(|name| *name == "search").count(), 1, "{tools:?}");
    assert_eq!(
        tools.iter().filter(|name| *name == "colibri_status").count(),
        1,
        "{tools:?}"
    );
    assert_eq!(text_of(&client.call("read", json!({}))), "this is read");
    assert_eq!(text_of(&client.call("search", json!({}))), "this is search");
    assert_eq!(place.received("a", "\"search\"").len(), 1);
    let status = client.call("colibri_status", json!({})).to_string();
    assert!(status.contains("search of server b is not exposed"), "{status}");
    assert!(status.contains("colibri_status of server a is not exposed"), "{status}");
}

#[test]
fn strange_names_get_a_hash_and_keep_the_original() {
    let long = "n".repeat(100);
    let place = place(
        &["--only", "--tool", "lire.fichier", "--tool", &long, "--tool", "日本"],
        json!({}),
    );
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let answer = client.ask("tools/list", json!({}));
    let tools: Vec<_> = answer["result"]["tools"].as_array().unwrap().iter().collect();
    let mut found = 0;
    for original in ["lire.fichier", &long, "日本"] {
        let tool = tools
            .iter()
            .find(|tool| tool["_meta"]["org.colibri/name"] == original)
            .unwrap();
        let name = tool["name"].as_str().unwrap();
        assert!(name.starts_with("fix__") && name.len() <= 46, "{name}");
        assert!(
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
            "{name}"
        );
        assert_eq!(tool["title"], original);
        assert_eq!(tool["_meta"]["org.colibri/server"], "fix");
        assert_eq!(text_of(&client.call(name, json!({}))), format!("this is {original}"));
        found += 1;
    }
    assert_eq!(found, 3);
    assert!(tools.iter().any(|tool| tool["name"] == "fix__lire_fichier_60488aac"));
}

#[test]
fn the_general_tool_relays_arguments_as_they_are() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let inner = r#"{ "b":1e400,"a":18446744073709551616, "s":"\ud800" }"#;
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{{"name":"colibri_external_mcp_call_tool","arguments":{{"server":"fix","arguments":{inner},"tool":"count"}}}}}}"#
    );
    client.send(line);
    let answer = client.answer(77);
    assert_eq!(text_of(&answer["result"]), "counted", "{answer}");
    let received = place.received("fix", "\"count\"").pop().unwrap();
    assert!(
        received.ends_with(&format!(r#""params":{{"name":"count","arguments":{inner}}}}}"#)),
        "{received}"
    );
    for (server, tool) in [("fix", "nothing"), ("nobody", "count")] {
        let call = json!({ "server": server, "tool": tool, "arguments": {} });
        let refused = client.call("colibri_external_mcp_call_tool", call);
        assert_eq!(code_of(&refused), Some("NO_SUCH_TOOL"), "{refused}");
    }
}

// Calls.

#[test]
fn a_cancellation_reaches_the_server_and_nothing_is_answered() {
    for era in [Era::Legacy, Era::Modern] {
        let place = place(&[], json!({}));
        let daemon = place.start(&[]);
        let mut client = if era == Era::Legacy {
            daemon.legacy(LEGACY)
        } else {
            daemon.modern()
        };
        let id = client.request_tool("fix__wait", json!({ "until": "cancelled" }));
        let call = wait_for("the call", || place.received("fix", "\"wait\"").pop());
        let upstream = &serde_json::from_str::<Value>(&call).unwrap()["id"];
        client.notify(
            "notifications/cancelled",
            json!({ "requestId": id, "reason": "changed my mind" }),
        );
        let told = wait_for("the cancellation", || {
            place.received("fix", "notifications/cancelled").pop()
        });
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(
            told["params"],
            json!({ "requestId": upstream, "reason": "changed my mind" })
        );
        place.release("cancelled");
        client.call("fix__pid", json!({}));
        assert!(
            client.others.iter().all(|message| message["id"] != id),
            "{:?}",
            client.others
        );
    }
}

#[test]
fn progress_comes_in_order_and_before_its_answer() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    for token in ["\"my token\"", "7", "9007199254740993"] {
        let mut client = daemon.quiet(LEGACY);
        client.send(format!(
            r#"{{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{{"_meta":{{"progressToken":{token}}},"name":"fix__progress","arguments":{{"n":500}}}}}}"#
        ));
        let token: Value = serde_json::from_str(token).unwrap();
        for n in 1..=500 {
            let progress = client.message();
            assert_eq!(progress["method"], "notifications/progress", "{progress}");
            assert_eq!(progress["params"], json!({ "progressToken": token, "progress": n }));
        }
        assert_eq!(client.message()["id"], 50);
    }
}

#[test]
fn batches_belong_to_2025_03_26() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet("2025-03-26");
    client.call("fix__pid", json!({}));
    client.send(concat!(
        r#"[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","method":"notifications/whatever"},"#,
        r#"{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"fix__count","arguments":{}}},"#,
        r#"{"jsonrpc":"2.0","id":"c","method":"no/such"},17]"#
    ));
    let answers = client.message();
    let mut ids: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| answer["id"].to_string())
        .collect();
    ids.sort();
    assert_eq!(ids, ["\"a\"", "\"b\"", "\"c\"", "null"], "{answers}");
    // A batch that wants no answer gets none.
    client.send(r#"[{"jsonrpc":"2.0","method":"notifications/whatever"}]"#);
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    assert!(client.others.is_empty(), "{:?}", client.others);
}

#[test]
fn versions_and_eras_are_kept_apart() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY] {
        let mut client = daemon.legacy(version);
        assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
        assert_eq!(
            client.ask("server/discover", json!({}))["error"]["code"],
            -32601,
            "{version}"
        );
        assert_eq!(
            client.ask("initialize", json!({ "protocolVersion": version }))["error"]["code"],
            -32600
        );
    }
    let mut unknown = daemon.connect();
    let params = json!({ "protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": { "name": "e2e" } });
    assert_eq!(unknown.ask("initialize", params)["result"]["protocolVersion"], LEGACY);
    let mut modern = daemon.modern();
    assert_eq!(modern.call("fix__count", json!({}))["resultType"], "complete");
    for method in ["initialize", "ping", "logging/setLevel"] {
        assert_eq!(modern.ask(method, json!({}))["error"]["code"], -32601, "{method}");
    }
    let mut neither = daemon.connect();
    assert_eq!(neither.ask("tools/list", json!({}))["error"]["code"], -32602);
    let later = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2099-01-01" } });
    let refused = neither.ask("tools/list", later);
    assert_eq!(refused["error"]["code"], -32022, "{refused}");
    assert_eq!(refused["error"]["data"]["requested"], "2099-01-01");
}

#[test]
fn results_over_the_limit_are_replaced_whole() {
    let place = place(&[], json!({ "result_limit": 1000 }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    assert_eq!(text_of(&client.call("fix__huge", json!({ "bytes": 500 }))).len(), 500);
    let refused = client.call("fix__huge", json!({ "bytes": 5000 }));
    assert_eq!(code_of(&refused), Some("RESULT_TOO_LARGE"), "{refused}");
    assert!(text_of(&refused).len() < 4096);
}

// The bridge.

#[test]
fn the_bridge_passes_bytes_on_and_ends_with_its_input() {
    let place = place(&[], json!({}));
    let _daemon = place.start(&[]);
    let mut bridge = place
        .colibri_mcp(&[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = bridge.stdin.take().unwrap();
    for id in 1..=20 {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"fix__count","arguments":{{}},"_meta":{{{}}}}}}}"#,
            modern_meta()
        );
        input.write_all(format!("{call}\n").as_bytes()).unwrap();
    }
    // What is still pending is delivered although the input has ended.
    drop(input);
    let lines: Vec<String> = BufReader::new(bridge.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .collect();
    assert_eq!(lines.len(), 20, "{lines:?}");
    for line in lines {
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(text_of(&answer["result"]), "counted", "{answer}");
    }
    assert!(bridge.wait().unwrap().success());
}

#[test]
fn a_read_only_bridge_keeps_both_gates_closed() {
    let place = place(&[], json!({}));
    let _daemon = place.start(&["--write"]);
    let mut bridge = place.colibri_mcp(&["--read-only"]);
    let mut bridge = bridge.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = bridge.stdin.take().unwrap();
    for tool in ["fix__count", "colibri_create_task"] {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":"{tool}","method":"tools/call","params":{{"name":"{tool}","arguments":{{"title":"x"}},"_meta":{{{}}}}}}}"#,
            modern_meta()
        );
        input.write_all(format!("{call}\n").as_bytes()).unwrap();
    }
    drop(input);
    let lines: Vec<String> = BufReader::new(bridge.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .collect();
    let answers: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let closed = answers
        .iter()
        .filter(|answer| code_of(answer) == Some("GATE_CLOSED"))
        .count();
    assert_eq!((answers.len(), closed), (2, 2), "{answers:?}");
    assert!(bridge.wait().unwrap().success());
}

#[test]
fn the_bridge_answers_when_there_is_no_daemon() {
    let place = Place::new();
    let mut bridge = place
        .colibri_mcp(&[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = bridge.stdin.take().unwrap();
    input
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\"first\",\"method\":\"initialize\",\"params\":{}}\n")
        .unwrap();
    let mut line = String::new();
    BufReader::new(bridge.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(answer["id"], "first");
    assert_eq!(code_of(&answer), Some("DAEMON_UNREACHABLE"), "{answer}");
    drop(input);
    bridge.wait().unwrap();
}

#[test]
fn the_bridge_survives_a_restart_of_the_daemon() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut bridge = place
        .colibri_mcp(&[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = bridge.stdin.take().unwrap();
    let mut output = BufReader::new(bridge.stdout.take().unwrap());
    let mut say = |line: String| input.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut hear = |id: &str| loop {
        let mut line = String::new();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the bridge has ended");
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == id {
            return message;
        }
    };
    let request = |id: &str, method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    };
    let client = json!({ "name": "e2e", "version": "1" });
    say(request(
        "open",
        "initialize",
        json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client }),
    ));
    hear("open");
    say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned());
    say(request(
        "one",
        "tools/call",
        json!({ "name": "fix__count", "arguments": {} }),
    ));
    assert_eq!(text_of(&hear("one")["result"]), "counted");
    say(request(
        "lost",
        "tools/call",
        json!({ "name": "fix__never", "arguments": {} }),
    ));
    wait_for("the call", || place.received("fix", "\"never\"").pop());
    daemon.kill();
    let lost = hear("lost");
    assert_eq!(code_of(&lost), Some("CONNECTION_LOST"), "{lost}");
    let _daemon = place.start(&[]);
    say(request(
        "two",
        "tools/call",
        json!({ "name": "fix__count", "arguments": {} }),
    ));
    assert_eq!(text_of(&hear("two")["result"]), "counted");
    assert_eq!(
        place.received("fix", "\"never\"").len(),
        1,
        "a lost call is not made again"
    );
    drop(input);
    bridge.wait().unwrap();
}

#[test]
fn commands_end_with_the_documented_status() {
    let place = place(&[], json!({}));
    let run = |args: &[&str]| {
        let output = place.colibri_mcp(args).stdin(Stdio::null()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    assert_eq!(run(&["status"]).0, Some(69));
    let _daemon = place.start(&[]);
    assert_eq!(run(&["status"]).0, Some(0));
    let (status, text) = run(&["--json", "call", "fix", "echo", "--args", r#"{"a":1}"#]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("a"), "{text}");
    assert_eq!(run(&["call", "colibri", "no_such_tool"]).0, Some(65));
    assert_eq!(run(&["call", "fix", "exit"]).0, Some(1));
    assert_eq!(run(&["no-such-command"]).0, Some(64));
}

#[test]
fn a_client_that_says_nothing_is_no_trouble() {
    let place = Place::new();
    let daemon = place.start(&[]);
    let clients: Vec<Client> = (0..50).map(|_| daemon.connect()).collect();
    daemon.assert_serves("colibri_status");
    drop(clients);
    daemon.assert_serves("colibri_status");
}

// Contracts.

#[test]
fn an_entry_whose_contract_cannot_be_read_is_blocked() {
    let place = Place::new();
    let contract = place.path("contract.json");
    let write = |text: &str| {
        fs::write(&contract, text).unwrap();
        fs::set_permissions(&contract, fs::Permissions::from_mode(0o600)).unwrap();
    };
    let good = r#"{ "tools": { "echo": { "allow": "it is harmless" } } }"#;
    write(good);
    let entry = place.fixture("fix", &[], json!({ "contract": contract }));
    place.registry(&json!({ "fix": entry }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    assert_eq!(text_of(&client.call("fix__echo", json!({ "a": 1 }))), "{\"a\":1}");
    let arrived = place.received("fix", "\"echo\"").len();
    for (what, why) in [
        ("missing", "cannot read"),
        ("open to all", "group or others"),
        ("garbage", "contract.json:1:"),
    ] {
        match what {
            "missing" => fs::remove_file(&contract).unwrap(),
            "garbage" => write("{ \"tools\": "),
            _ => {
                write(good);
                fs::set_permissions(&contract, fs::Permissions::from_mode(0o666)).unwrap();
            }
        }
        let (status, text) = place.refused(&["--check"]);
        assert_eq!(status, Some(0), "{text}");
        assert!(
            text.contains("would be blocked: its contract") && text.contains(why),
            "{text}"
        );
        daemon.reload();
        let servers = client.call("colibri_external_mcp_servers", json!({}));
        let fix = &servers["structuredContent"]["servers"][0];
        assert_eq!(fix["state"], "blocked", "{what}: {servers}");
        assert!(fix["reason"].as_str().unwrap().contains(why), "{what}: {servers}");
        let result = client.call("fix__echo", json!({ "a": 1 }));
        assert_eq!(code_of(&result), Some("SERVER_UNSTARTABLE"), "{result}");
        assert!(text_of(&result).contains("its contract cannot be used"), "{result}");
        assert_eq!(place.received("fix", "\"echo\"").len(), arrived);
    }
    write(good);
    daemon.reload();
    assert_eq!(text_of(&client.call("fix__echo", json!({ "a": 1 }))), "{\"a\":1}");
}

// Methods beyond MCP's.

#[test]
fn a_method_that_is_not_mcps_reaches_only_the_server_whose_entry_lists_it() {
    let listed = json!({ "methods": ["fixture/method", "fixture/unknown"] });
    let place = Place::new();
    place.registry(&json!({
        "legacy": place.fixture("legacy", &[], listed.clone()),
        "other": place.fixture("other", &[], listed),
    }));
    let daemon = place.start(&[]);
    for (mut client, complete) in [(daemon.legacy(LEGACY), false), (daemon.modern(), true)] {
        let answer = client.ask("fixture/method", json!({ "value": [1, { "isError": "no" }] }));
        assert_eq!(answer["result"]["value"], json!([1, { "isError": "no" }]), "{answer}");
        assert_eq!(answer["result"]["resultType"] == "complete", complete, "{answer}");
        let error = client.ask("fixture/unknown", json!({}));
        assert_eq!(error["error"]["message"], "no such method", "{error}");
        let unlisted = client.ask("fixture/other", json!({}));
        assert_eq!(unlisted["error"]["code"], -32601, "{unlisted}");
    }
    assert_eq!(place.received("legacy", "fixture/method").len(), 2);
    assert!(place.received("legacy", "fixture/other").is_empty());
    // The first by id has it, which is said.
    assert!(place.received("other", "fixture/method").is_empty());
    daemon.wait_for_log("method fixture/method of other: legacy lists it too");
    // It is in the trail as any other call, and succeeded.
    let shown = place
        .colibri_mcp(&["trail", "show", "--json", "--server", "legacy", "--state-dir"])
        .arg(place.path("state"))
        .output()
        .unwrap();
    let records = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(records.matches("\"method\":\"fixture/method\"").count(), 2, "{records}");
}

#[test]
fn a_method_without_params_reaches_a_modern_server_with_those_it_wants() {
    let place = place(&["--speak", MODERN], json!({ "methods": ["fixture/method"] }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.send("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"fixture/method\"}");
    let answer = client.message();
    assert_eq!(
        (&answer["id"], &answer["result"]["value"]),
        (&json!("x"), &Value::Null),
        "{answer}"
    );
    let sent = place.received("fix", "fixture/method");
    assert!(sent[0].contains("io.modelcontextprotocol/protocolVersion"), "{sent:?}");
}

#[test]
fn a_method_beyond_mcps_is_behind_the_gate() {
    let place = place(&[], json!({ "methods": ["fixture/method"] }));
    let daemon = place.start_plain(&[]);
    let answer = daemon.legacy(LEGACY).ask("fixture/method", json!({}));
    assert_eq!(code_of(&answer), Some("GATE_CLOSED"), "{answer}");
    assert!(place.started("fix").is_empty());
}

/// A place with the fixture servers `seen` and `hidden`, of which the user of this test may see the first alone.
fn place_with_a_hidden_server() -> Place {
    let place = Place::new();
    place.registry(&json!({
        "seen": place.fixture("seen", &[], json!({})), "hidden": place.fixture("hidden", &[], json!({})) }));
    let me = nix::unistd::geteuid().to_string();
    let rule = json!({ "users": { me: { "gates": ["write", "external-call"], "servers": { "seen": ["*"] } } } });
    fs::write(place.path("clients.json"), rule.to_string()).unwrap();
    fs::set_permissions(place.path("clients.json"), fs::Permissions::from_mode(0o600)).unwrap();
    place
}

#[test]
fn nobody_starts_what_is_hidden_from_them() {
    let place = place_with_a_hidden_server();
    let try_all = |daemon: &Daemon<'_>| {
        let mut client = daemon.legacy(LEGACY);
        client.tools();
        client.ask("tools/call", json!({ "name": "hidden__echo", "arguments": {} }));
        client.ask("tools/call", json!({ "name": "nonsense", "arguments": {} }));
        let inner = json!({ "server": "hidden", "tool": "echo", "arguments": {} });
        client.call("colibri_external_mcp_call_tool", inner);
        client.call("colibri_external_mcp_list_tools", json!({}));
    };
    // With a closed gate nothing is started at all.
    let daemon = place.start_plain(&[]);
    try_all(&daemon);
    daemon.stop();
    assert!(place.started("seen").is_empty());
    let daemon = place.start(&[]);
    try_all(&daemon);
    daemon.stop();
    assert!(!place.started("seen").is_empty());
    assert!(place.started("hidden").is_empty());
}

#[test]
fn nobody_is_told_the_instructions_of_what_is_hidden_from_them() {
    let place = place_with_a_hidden_server();
    let aside = place.path("aside.json");
    fs::rename(place.path("clients.json"), &aside).unwrap();
    let instructions = |daemon: &Daemon<'_>| {
        let client = json!({ "name": "e2e", "version": "1" });
        let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client });
        let legacy = daemon.connect().ask("initialize", params);
        let modern = daemon.modern().ask("server/discover", json!({}));
        [legacy, modern].map(|answer| answer["result"]["instructions"].as_str().unwrap().to_owned())
    };
    let daemon = place.start(&[]);
    wait_for("both servers' tools", || {
        let tools = daemon.legacy(LEGACY).tools();
        ["seen__echo", "hidden__echo"]
            .iter()
            .all(|tool| tools.contains(&(*tool).to_owned()))
            .then_some(())
    });
    for text in instructions(&daemon) {
        assert!(
            text.contains("This is seen.") && text.contains("This is hidden."),
            "{text}"
        );
    }
    daemon.stop();
    fs::rename(&aside, place.path("clients.json")).unwrap();
    let daemon = place.start(&[]);
    for text in instructions(&daemon) {
        assert!(text.contains("This is seen.") && !text.contains("hidden"), "{text}");
    }
}

#[test]
fn neither_status_nor_the_general_tool_tells_of_what_is_hidden() {
    let place = place_with_a_hidden_server();
    let clients = place.path("clients.json");
    let aside = place.path("aside.json");
    fs::rename(&clients, &aside).unwrap();
    place.registry(&json!({
        "seen": place.fixture("seen", &[], json!({})),
        "hidden": place.fixture("hidden", &["--only", "--tool", "colibri_status"], json!({ "prefix": false })),
        "hidden-too": place.fixture("hidden-too", &["--at-start", "exit"], json!({})),
    }));
    let shown = |client: &mut Client| client.call("colibri_status", json!({})).to_string();
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    wait_for("the collision", || {
        shown(&mut client)
            .contains("colibri_status of server hidden")
            .then_some(())
    });
    daemon.stop();
    fs::rename(&aside, &clients).unwrap();
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let status = shown(&mut client);
    assert!(!status.contains("hidden"), "{status}");
    let mut answer = |server: &str| {
        let call = json!({ "server": server, "tool": "echo", "arguments": {} });
        let params = json!({ "name": "colibri_external_mcp_call_tool", "arguments": call });
        let answer = client.ask("tools/call", params);
        answer["result"].to_string().replace(server, "SERVER")
    };
    assert_eq!(answer("hidden-too"), answer("no-such-one"));
    assert_eq!(answer("hidden"), answer("no-such-one"));
}

#[test]
fn a_reload_takes_over_all_or_nothing_and_names_what_is_blocked() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    let two = json!({
        "fix": place.fixture("fix", &[], json!({})),
        "two": place.fixture("two", &[], json!({ "contract": place.path("no-such-contract") })),
    });
    place.registry(&two);
    let clients = place.path("clients.json");
    fs::write(&clients, r#"{"users":{"root":{"operater":true}}}"#).unwrap();
    fs::set_permissions(&clients, fs::Permissions::from_mode(0o600)).unwrap();
    let reload = || {
        let output = place.colibri_mcp(&["reload"]).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    let (status, text) = reload();
    assert_eq!(status, Some(65), "{text}");
    assert!(
        text.contains("nothing was taken over") && text.contains("operator"),
        "{text}"
    );
    let servers = client.call("colibri_external_mcp_servers", json!({})).to_string();
    assert!(!servers.contains("two"), "{servers}");
    let status = client.call("colibri_status", json!({})).to_string();
    assert!(status.contains("clients.json"), "{status}");
    fs::remove_file(&clients).unwrap();
    let (status, text) = reload();
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("two is blocked: its contract cannot be used"), "{text}");
}

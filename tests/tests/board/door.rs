//! Agents at their doors: what a hostile one tries there, against the built daemon that started it.
//! The one that tries is the test, which connects where the agent would. What rights it has is
//! shown beside the daemon, in `colibri-mcpd/tests/door`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use colibri_tests::{
    Client, Daemon, LEGACY, Place, code_of, kept_of, modern_meta, rule_of, text_of, wait_for,
};
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::{Value, json};

/// A place with a server `fix`, and an agent `coder` with these `tools` that does nothing and
/// stays.
fn place(tools: Value, more: Value) -> Place {
    let place = Place::new();
    let stays = "while :; do sleep 1; done";
    let mut coder = json!({ "command": "/bin/sh", "args": ["-c", stays, place.directory()], "stdin": "null",
        "events": "claude", "tools": tools, "max": 8 });
    for (key, value) in more.as_object().into_iter().flatten() {
        coder[key] = value.clone();
    }
    let registry = json!({ "servers": { "fix": place.fixture("fix", &[], json!({})) }, "agents": { "coder": coder } });
    place.registry_text(&registry.to_string());
    place
}

fn all() -> Value {
    json!({ "fix": { "allow": ["*"] } })
}

/// An instance that runs, and where its door is.
struct Instance {
    session: String,
    socket: PathBuf,
}

fn spawn(place: &Place, daemon: &Daemon<'_>) -> Instance {
    let answer = daemon
        .legacy(LEGACY)
        .ask("colibri/spawn-agent", json!({ "agent": "coder" }));
    let session = answer["result"]["instance"]["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"));
    Instance {
        session: session.to_owned(),
        socket: place.path("doors").join(session).join("colibri.sock"),
    }
}

impl Instance {
    fn connect(&self) -> Client {
        Client::over(UnixStream::connect(&self.socket).unwrap())
    }

    fn open(&self) -> Client {
        let mut client = self.connect();
        client.open(LEGACY);
        client
    }

    /// What the daemon says of it.
    fn facts(&self, daemon: &Daemon<'_>) -> Value {
        let mut answer = daemon.quiet(LEGACY).ask("colibri/agents", json!({}));
        let instances = answer["result"]["instances"].as_array_mut().unwrap();
        let own = instances
            .iter_mut()
            .find(|instance| instance["id"] == *self.session);
        own.unwrap().take()
    }
}

fn descriptors(daemon: &Daemon<'_>) -> Option<usize> {
    Some(
        fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
            .ok()?
            .count(),
    )
}

/// Sends a line with these descriptors.
fn send_with(stream: &UnixStream, line: &str, descriptors: &[RawFd]) {
    let line = format!("{line}\n");
    let with = [ControlMessage::ScmRights(descriptors)];
    let sent = sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(line.as_bytes())],
        &with,
        MsgFlags::empty(),
        None,
    );
    assert_eq!(sent.unwrap(), line.len());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn each_instance_has_its_own_door_and_it_goes_with_it() {
    let place = place(all(), json!({}));
    let daemon = place.start(&["--write"]);
    let (one, other) = (spawn(&place, &daemon), spawn(&place, &daemon));
    assert_ne!(one.session, other.session);
    assert_eq!(
        [
            mode(&place.path("doors")),
            mode(one.socket.parent().unwrap()),
            mode(&one.socket)
        ],
        [0o700, 0o755, 0o666]
    );
    for instance in [&one, &other] {
        let result = instance.open().call("fix__count", json!({}));
        assert_eq!(text_of(&result), "counted");
        assert_eq!(instance.facts(&daemon)["calls"], 1);
    }
    let own = nix::unistd::geteuid().as_raw();
    let entered: Vec<_> = place
        .trail()
        .into_iter()
        .filter(|record| record["session"].is_string())
        .collect();
    let sessions: BTreeSet<_> = entered
        .iter()
        .filter_map(|record| record["session"].as_str())
        .collect();
    assert_eq!(sessions, BTreeSet::from([&*one.session, &*other.session]));
    assert!(
        entered
            .iter()
            .all(|record| record["agent"] == "coder" && record["for"] == own)
    );

    let mut connected = one.open();
    let stopped = daemon
        .quiet(LEGACY)
        .ask("colibri/stop-agent", json!({ "id": one.session }));
    assert!(stopped["result"].is_object(), "{stopped}");
    wait_for("the door to close", || {
        (!one.socket.parent().unwrap().exists()).then_some(())
    });
    assert_eq!(connected.read(), None);
    assert_eq!(
        text_of(&other.open().call("fix__count", json!({}))),
        "counted"
    );
    daemon.stop();
    assert_eq!(fs::read_dir(place.path("doors")).unwrap().count(), 0);
    place.assert_trail_is_sound();
}

#[test]
fn doors_of_a_daemon_that_was_killed_are_removed_by_the_next() {
    let place = place(all(), json!({}));
    let daemon = place.start(&["--write"]);
    let left = spawn(&place, &daemon);
    daemon.kill();
    assert!(left.socket.exists());
    let daemon = place.start(&["--write"]);
    daemon.assert_serves("fix__count");
    assert!(!left.socket.parent().unwrap().exists());
    spawn(&place, &daemon).open();
    daemon.stop();
}

#[test]
fn one_that_connects_ten_thousand_times() {
    let place = place(all(), json!({}));
    let daemon = place.start(&["--write"]);
    let (agent, other) = (spawn(&place, &daemon), spawn(&place, &daemon));
    daemon.assert_serves("fix__count");
    other.open().call("fix__count", json!({}));
    let before = descriptors(&daemon);
    let mut held = Vec::new();
    for round in 0..10_000 {
        // A daemon that accepts no more has its queue full: the next one waits, and is not refused.
        held.push(UnixStream::connect(&agent.socket).unwrap());
        if held.len() > 100 {
            held.remove(round % 100);
        }
        if round % 2_500 == 0 {
            daemon.assert_serves("fix__count");
            assert_eq!(
                text_of(&other.open().call("fix__count", json!({}))),
                "counted"
            );
        }
    }
    if let (Some(before), Some(now)) = (before, descriptors(&daemon)) {
        // Of its own 16 are served and 16 told that there is no place.
        assert!(
            now <= before + 16 + 16 + 4 + 8,
            "{before} descriptors became {now}"
        );
    }
    drop(held);
    wait_for("its connections to go", || {
        (descriptors(&daemon) <= before).then_some(())
    });
    // Those that are gone may still be let in before it, one after the other.
    wait_for("a place of its own", || {
        let mut client = agent.connect();
        let id = client.request(
            "initialize",
            json!({ "protocolVersion": LEGACY, "capabilities": {},
            "clientInfo": { "name": "t", "version": "1" } }),
        );
        let answer: Value = serde_json::from_slice(&client.read()?).unwrap();
        (answer["id"] == id && answer["result"].is_object()).then_some(())
    });
    daemon.stop();
}

#[test]
fn one_that_has_seventeen_connections_is_told_so() {
    let place = place(all(), json!({}));
    let daemon = place.start(&["--write"]);
    let agent = spawn(&place, &daemon);
    let held: Vec<_> = (0..16).map(|_| agent.open()).collect();
    let mut late = agent.connect();
    let answer = late.ask("ping", json!({}));
    assert_eq!(code_of(&answer), Some("LIMIT_USER"), "{answer}");
    assert_eq!(late.read(), None);
    // Neither the person for whom it runs nor another agent is in its place.
    daemon.assert_serves("fix__count");
    spawn(&place, &daemon).open();
    drop(held);
    daemon.stop();
}

#[test]
fn one_that_sends_descriptors() {
    let place = place(all(), json!({}));
    let daemon = place.start(&["--write"]);
    let agent = spawn(&place, &daemon);
    let file = File::open("/dev/null").unwrap();
    let (end, far) = UnixStream::pair().unwrap();
    agent.open().call("fix__count", json!({}));
    let before = descriptors(&daemon);
    let stream = UnixStream::connect(&agent.socket).unwrap();
    let mut client = Client::over(stream.try_clone().unwrap());
    client.open(LEGACY);
    for id in 1000..1100 {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "fix__count", "arguments": {} } });
        send_with(&stream, &call.to_string(), &[file.as_raw_fd(); 20]);
        assert_eq!(text_of(&client.answer(id)["result"]), "counted");
    }
    if let (Some(before), Some(now)) = (before, descriptors(&daemon)) {
        assert!(now <= before + 1, "{before} descriptors became {now}");
    }
    // An end that nobody has any more is closed: what it was sent with kept no copy.
    send_with(
        &stream,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        &[far.as_raw_fd()],
    );
    client.answer(1);
    drop(far);
    end.set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .unwrap();
    assert_eq!((&end).read(&mut [0]).unwrap(), 0);
    // As the first that it says, before anybody knows what it speaks.
    let other = UnixStream::connect(&agent.socket).unwrap();
    send_with(&other, &modern_ping(7), &[file.as_raw_fd(); 20]);
    assert!(Client::over(other).answer(7)["error"].is_object());
    drop((client, stream));
    wait_for("its connections to go", || {
        (descriptors(&daemon) <= before).then_some(())
    });
    daemon.stop();
}

/// A request that a modern client may not make: its answer is an error.
fn modern_ping(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{{"_meta":{}}}}}"#,
        modern_meta()
    )
}

#[test]
fn one_that_says_it_is_another_or_an_operator() {
    let place = place(all(), json!({}));
    let daemon = place.start(&["--write"]);
    let (agent, other) = (spawn(&place, &daemon), spawn(&place, &daemon));
    let mut client = agent.connect();
    client.send(
        json!({ "colibri": 1, "narrow": [], "operator": true, "session": other.session, "for": 4711 }).to_string(),
    );
    client.open_with(
        LEGACY,
        json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": {} }),
    );
    let meta = json!({ "session": other.session, "agent": "x", "for": 4711, "org.colibri/session": other.session });
    let params = json!({ "name": "fix__count", "arguments": {}, "_meta": meta });
    assert_eq!(
        text_of(&client.ask("tools/call", params)["result"]),
        "counted"
    );
    for method in [
        "colibri/agents",
        "colibri/spawn-agent",
        "colibri/stop-agent",
        "colibri/agent-events",
        "colibri/approvals",
        "colibri/approve",
        "colibri/reload",
        "colibri/trail",
        "colibri/watch",
    ] {
        let answer = client.ask(
            method,
            json!({ "agent": "coder", "session": other.session, "id": "0" }),
        );
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    assert_eq!(other.facts(&daemon)["calls"], 0);
    let own = nix::unistd::geteuid().as_raw();
    for record in place
        .trail()
        .iter()
        .filter(|record| record["session"].is_string())
    {
        assert_eq!(
            (&record["session"], &record["for"]),
            (&json!(agent.session), &json!(own)),
            "{record}"
        );
    }
    assert!(other.open().call("fix__count", json!({}))["isError"].is_null());
    daemon.stop();
}

#[test]
fn one_that_approves_its_own_calls() {
    let place = place(json!({ "fix": { "confirm": ["count"] } }), json!({}));
    place.clients(
        &json!({ "users": { "0": { "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true } },
        "others": { "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true } })
        .to_string(),
    );
    let daemon = place.start(&["--write"]);
    let agent = spawn(&place, &daemon);
    let mut client = agent.connect();
    client.open_with(LEGACY, json!({ "elicitation": { "form": {} } }));
    let id = client.request_tool("fix__count", json!({}));
    let waiting = wait_for("the call to wait", || {
        let answer = daemon.quiet(LEGACY).ask("colibri/approvals", json!({}));
        answer["result"]["approvals"].get(0).cloned()
    });
    assert_eq!(
        (&waiting["agent"], &waiting["session"]),
        (&json!("coder"), &json!(agent.session))
    );
    let facts = agent.facts(&daemon);
    assert_eq!(
        (&facts["approvals"], &facts["state"]),
        (&json!(1), &json!("blocked")),
        "{facts}"
    );
    let asked = json!({ "id": waiting["id"] });
    // At its door, at the front door as the one for whom it runs, and as if it had been asked.
    assert_eq!(
        agent.open().ask("colibri/approve", asked.clone())["error"]["code"],
        -32601
    );
    let refused = daemon.quiet(LEGACY).ask("colibri/approve", asked.clone());
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("your own uid"),
        "{refused}"
    );
    for answer in [
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "accept" }),
    ] {
        for id in [json!(0), json!(1), json!(id), waiting["id"].clone()] {
            client.send(json!({ "jsonrpc": "2.0", "id": id, "result": answer }).to_string());
        }
    }
    client.ask("ping", json!({}));
    assert_eq!(
        place.received("fix", "tools/call").len(),
        0,
        "nothing came to the server"
    );
    daemon.quiet(LEGACY).ask("colibri/deny", asked);
    assert_eq!(code_of(&client.answer(id)), Some("APPROVAL_DENIED"));
    assert_eq!(agent.facts(&daemon)["approvals"], 0);
    daemon.stop();
}

#[test]
fn one_that_speaks_http() {
    let place = place(all(), json!({}));
    let daemon = place.start(&["--write"]);
    let agent = spawn(&place, &daemon);
    for request in [
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{",
        "GET /mcp HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "x",
    ] {
        let mut stream = UnixStream::connect(&agent.socket).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 403 "), "{request}: {said}");
        assert!(said.contains("one message a line, and no HTTP"), "{said}");
    }
    assert_eq!(
        place
            .trail()
            .iter()
            .filter(|record| record["session"].is_string())
            .count(),
        0
    );
    agent.open();
    daemon.stop();
}

#[test]
fn one_that_sends_frames_without_end_and_json_without_sense() {
    let place = place(all(), json!({}));
    place.limits(json!({ "message_bytes": "64K" }));
    let daemon = place.start(&["--write"]);
    let agent = spawn(&place, &daemon);
    let mut client = agent.open();
    let long = "x".repeat(100_000);
    client.send(format!(
        r#"{{"jsonrpc":"2.0","id":77,"method":"ping","params":{{"a":"{long}"}}}}"#
    ));
    let refused = client.answer(77);
    assert_eq!(code_of(&refused), Some("FRAME_TOO_LONG"));
    let rule = rule_of(&refused).unwrap();
    assert!(
        rule.ends_with("clients.json:1: limits.message_bytes"),
        "{rule}"
    );
    let deep = ["[".repeat(10_000), "]".repeat(10_000)].concat();
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":78,"method":"tools/call","params":{{"name":"fix__count","arguments":{{"a":{deep}}}}}}}"#
    );
    // What is nothing to the daemon goes on as it is.
    client.send(deep);
    assert_eq!(client.message()["id"], 78);
    for line in ["{", "\u{0}", "\u{feff}{}", r#"[{"jsonrpc":"2.0"}]"#, "1"] {
        client.send(line);
        let answer = client.message();
        assert!(
            matches!(answer["error"]["code"].as_i64(), Some(-32700 | -32600)),
            "{line}: {answer}"
        );
    }
    assert!(client.ask("ping", json!({}))["result"].is_object());
    // A line that does not end.
    let mut endless = UnixStream::connect(&agent.socket).unwrap();
    while endless.write_all(&[b' '; 65_536]).is_ok() {}
    assert_eq!(
        text_of(&agent.open().call("fix__count", json!({}))),
        "counted"
    );
    daemon.stop();
}

#[test]
fn one_with_too_many_calls_in_flight() {
    let place = place(all(), json!({}));
    let daemon = place.start(&["--write"]);
    let agent = spawn(&place, &daemon);
    let mut client = agent.open();
    let ids: Vec<_> = (0..256)
        .map(|_| client.request_tool("fix__wait", json!({ "until": "told" })))
        .collect();
    let answer = client.ask("ping", json!({}));
    assert_eq!(code_of(&answer), Some("LIMIT_IN_FLIGHT"), "{answer}");
    let rule = rule_of(&answer).unwrap();
    assert!(
        rule.ends_with("clients.json: limits.calls_per_client"),
        "{rule}"
    );
    // The person whose process of that server it is gets an answer.
    daemon.assert_serves("fix__count");
    place.release("told");
    let mut left: BTreeSet<u64> = ids.into_iter().collect();
    while !left.is_empty() {
        left.remove(&client.message()["id"].as_u64().unwrap_or_default());
    }
    assert_eq!(agent.facts(&daemon)["calls"], 256);
    daemon.stop();
}

#[test]
fn one_whose_budget_is_spent() {
    let place = place(all(), json!({ "budget": { "session_bytes": 100_000 } }));
    let daemon = place.start(&["--write", "--cost-mode", "max"]);
    let (agent, other) = (spawn(&place, &daemon), spawn(&place, &daemon));
    let mut client = agent.open();
    let long = client.call("fix__huge", json!({ "bytes": 100_000 }));
    assert!(kept_of(&long).is_some(), "{long}");
    let short = json!({ "name": "fix__huge", "arguments": { "bytes": 3_900 } });
    let mut answers = (0..100).map(|_| client.ask("tools/call", short.clone()));
    let refused = answers
        .find(|answer| code_of(answer) == Some("BUDGET_SPENT"))
        .unwrap();
    assert!(
        text_of(&refused["result"]).contains("colibri_finish_task"),
        "{refused}"
    );
    assert_eq!(
        code_of(
            &agent
                .open()
                .ask("tools/call", json!({ "name": "fix__count" }))
        ),
        Some("BUDGET_SPENT")
    );
    assert_eq!(
        text_of(&other.open().call("fix__count", json!({}))),
        "counted"
    );
    daemon.assert_serves("fix__count");
    assert!(agent.facts(&daemon)["bytes"].as_u64().unwrap() > 100_000);
    daemon.stop();
}

#[test]
fn a_script_has_the_rights_and_the_budget_of_its_agent() {
    let tools = json!({ "fix": { "allow": ["echo", "huge"] } });
    let place = place(tools, json!({ "budget": { "session_bytes": 100_000 } }));
    let daemon = place.start(&["--write", "--cost-mode", "max"]);
    let agent = spawn(&place, &daemon);
    let mut client = agent.open();
    let script = "const a = await tools.fix.echo({});
        let b; try { await tools.fix.count() } catch (e) { b = e.code }
        let c; try { await tools.colibri.create_task({ title: 'mine' }) } catch (e) { c = typeof e.code }
        return [a, b, c, (await tools.fix.huge({ bytes: 300000 })).length]";
    let result = client.call("colibri_run_script", json!({ "script": script }));
    let expected = r#"["{}","NO_SUCH_TOOL","number",300000]"#;
    assert_eq!(text_of(&result), expected, "{result}");
    // What the script read is none of the agent's budget.
    assert!(agent.facts(&daemon)["bytes"].as_u64().unwrap() < 10_000);
    let inner: Vec<_> = place
        .trail()
        .into_iter()
        .filter(|record| record["within"].is_u64())
        .collect();
    assert!(
        inner.len() >= 4 && inner.iter().all(|record| record["agent"] == "coder"),
        "{inner:#?}"
    );
    daemon.stop();
}

#[test]
fn one_that_fills_the_trail_locks_nobody_else_out() {
    let place = place(all(), json!({}));
    place.limits(json!({ "trail_bytes_per_user": 4096 }));
    let daemon = place.start(&["--write"]);
    let (agent, other) = (spawn(&place, &daemon), spawn(&place, &daemon));
    let mut client = agent.open();
    let refused = (0..1000).find_map(|_| {
        let answer = client.ask("ping", json!({}));
        (code_of(&answer) == Some("LIMIT_USER")).then_some(answer)
    });
    let message = refused.unwrap()["error"]["message"].to_string();
    assert!(message.contains("of this agent"), "{message}");
    assert!(other.open().ask("ping", json!({}))["result"].is_object());
    daemon.assert_serves("fix__count");
    daemon.stop();
}

#[test]
fn one_whose_daemon_ends() {
    let place = place(all(), json!({}));
    let mut daemon = place.start(&["--write"]);
    let agent = spawn(&place, &daemon);
    let mut client = agent.open();
    let id = client.request_tool("fix__never", json!({}));
    wait_for("the call", || place.received("fix", "\"never\"").pop());
    daemon.signal(Signal::SIGTERM);
    let answer = client.answer(id);
    assert_eq!(code_of(&answer), Some("DAEMON_STOPPING"), "{answer}");
    assert_eq!(client.read(), None);
    daemon.wait();
    assert_eq!(fs::read_dir(place.path("doors")).unwrap().count(), 0);
    daemon.stop();
}

//! The bridge and the commands beside it.

use super::*;

#[test]
fn the_bridge_passes_bytes_on_and_ends_with_its_input() {
    let place = Place::of_fixture(&[], json!({}));
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
    let place = Place::of_fixture(&[], json!({}));
    let _daemon = place.start(&["--write"]);
    let mut bridge = Bridge::start(place.colibri_mcp(&["--read-only"]));
    for tool in ["fix__count", "colibri_create_task"] {
        let result = bridge.call(tool, json!({ "title": "x" }));
        assert_eq!(code_of(&result), Some("GATE_CLOSED"), "{result}");
    }
    assert!(bridge.end().success());
}

#[test]
fn the_bridge_answers_when_there_is_no_daemon() {
    let place = Place::new();
    let mut bridge = Bridge::start(place.colibri_mcp(&[]));
    bridge.send(r#"{"jsonrpc":"2.0","id":"first","method":"initialize","params":{}}"#);
    let answer = bridge.message();
    assert_eq!(answer["id"], "first");
    assert_eq!(code_of(&answer), Some("DAEMON_UNREACHABLE"), "{answer}");
    bridge.end();
}

#[test]
fn the_bridge_survives_a_restart_of_the_daemon() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut bridge = Bridge::start(place.colibri_mcp(&[]));
    bridge.era = Era::Legacy;
    bridge.initialize(LEGACY);
    assert_eq!(text_of(&bridge.call("fix__count", json!({}))), "counted");
    let never = bridge.request_tool("fix__never", json!({}));
    wait_for("the call", || place.received("fix", "\"never\"").pop());
    daemon.kill();
    let lost = bridge.answer(never);
    assert_eq!(code_of(&lost), Some("CONNECTION_LOST"), "{lost}");
    let _daemon = place.start(&[]);
    assert_eq!(text_of(&bridge.call("fix__count", json!({}))), "counted");
    assert_eq!(
        place.received("fix", "\"never\"").len(),
        1,
        "a lost call is not made again"
    );
    bridge.end();
}

#[test]
fn commands_end_with_the_documented_status() {
    let place = Place::of_fixture(&[], json!({}));
    let run = |args: &[&str]| {
        let output = place
            .colibri_mcp(args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
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

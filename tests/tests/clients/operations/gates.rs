//! Clients, their limits and the gates.

use super::*;

#[test]
fn the_client_over_the_limit_is_told_so() {
    let place = Place::new();
    place.limits(json!({ "clients": 2 }));
    let daemon = place.start(&[]);
    // A connection that has just been closed, such as the one that waited for the daemon's start,
    // may count still.
    let place_for_one = || {
        wait_for("a place for a client", || {
            let mut client = daemon.connect();
            let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": { "name": "e2e" } });
            client
                .ask("initialize", params)
                .get("result")
                .map(|_| client)
        })
    };
    let (mut first, _second) = (place_for_one(), place_for_one());
    let mut third = daemon.connect();
    let refused = third.ask(
        "initialize",
        json!({ "protocolVersion": LEGACY, "capabilities": {} }),
    );
    assert_eq!(code_of(&refused), Some("DAEMON_BUSY"), "{refused}");
    assert_eq!(third.read(), None);
    assert_eq!(first.ask("ping", json!({}))["result"], json!({}));
    drop(first);
    place_for_one();
}

#[test]
fn closed_gates_answer_with_what_to_set() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start_plain(&[]);
    for mut client in [daemon.legacy(LEGACY), daemon.modern()] {
        let tools = client.tools();
        assert!(
            !tools.iter().any(|name| name.starts_with("fix__")),
            "{tools:?}"
        );
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
    assert!(
        place.started("fix").is_empty(),
        "a closed gate starts no server"
    );
}

#[test]
fn open_gates_let_calls_through() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&["--write"]);
    let mut client = daemon.legacy(LEGACY);
    let task = client.call("colibri_create_task", json!({ "title": "x" }));
    assert_ne!(task["isError"], true, "{task}");
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
}

#[test]
fn a_hello_narrows_answers_and_not_lists() {
    let place = Place::of_fixture(&[], json!({}));
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

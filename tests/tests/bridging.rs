//! What a server asks of the person's side, bridged between the eras, as a client sees it that speaks the modern one:
//! retries, calls that are held, and what is refused.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use colibri_tests::{Client, MODERN, Place, code_of, modern_meta, text_of};
use serde_json::{Value, json};

/// A retry of a call, or its first try: the whole answer. The client says that it can be asked for `can`.
fn call(client: &mut Client, tool: &str, arguments: &Value, can: &Value, retry: Option<(&Value, Value)>) -> Value {
    let id = begin(client, tool, arguments, can, retry);
    client.answer(id)
}

/// The same without waiting for the answer.
fn begin(client: &mut Client, tool: &str, arguments: &Value, can: &Value, retry: Option<(&Value, Value)>) -> u64 {
    let mut meta: Value = serde_json::from_str(&format!("{{{}}}", modern_meta())).unwrap();
    meta["io.modelcontextprotocol/clientCapabilities"] = can.clone();
    let mut params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    if let Some((asked, responses)) = retry {
        params["requestState"] = asked["result"]["requestState"].clone();
        params["inputResponses"] = responses;
    }
    let id = client.next_id();
    client.send(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string());
    id
}

fn elicitation() -> Value {
    json!({ "elicitation": {} })
}

fn accept(text: &str) -> Value {
    json!({ "k": { "action": "accept", "content": { "text": text } } })
}

fn is_input_required(answer: &Value) -> bool {
    answer["result"]["resultType"] == "input_required"
}

/// The error of a call, which has to be one of JSON-RPC, with its message.
fn refused(answer: &Value) -> (i64, &str) {
    let error = &answer["error"];
    (
        error["code"].as_i64().unwrap_or_default(),
        error["message"].as_str().unwrap_or_default(),
    )
}

#[test]
fn a_modern_servers_question_and_its_retry_pass() {
    let place = Place::new();
    place.registry(&json!({ "fix": place.fixture("fix", &["--speak", MODERN, "--tool", "ask"], json!({})) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let arguments = json!({ "times": 2, "params": { "message": "who?", "requestedSchema": { "type": "object" } } });
    let first = call(&mut client, "fix__ask", &arguments, &elicitation(), None);
    assert!(is_input_required(&first), "{first}");
    let asked = &first["result"]["inputRequests"]["k"];
    assert_eq!(asked["method"], "elicitation/create", "{first}");
    assert_eq!(asked["params"], arguments["params"], "{first}");
    // What the server wants to be told again is not for the client to read.
    let state = first["result"]["requestState"].as_str().unwrap();
    assert!(!state.contains("round"), "{state}");

    let second = call(
        &mut client,
        "fix__ask",
        &arguments,
        &elicitation(),
        Some((&first, accept("once"))),
    );
    assert!(is_input_required(&second), "{second}");
    assert_ne!(second["result"]["requestState"], first["result"]["requestState"]);
    let retry = place.received("fix", "round \\\"1").pop().unwrap();
    let retry: Value = serde_json::from_str(&retry).unwrap();
    assert_eq!(retry["params"]["requestState"], "round \"1", "{retry}");
    assert_eq!(retry["params"]["inputResponses"], accept("once"), "{retry}");
    assert_eq!(retry["params"]["name"], "ask", "{retry}");

    let last = call(
        &mut client,
        "fix__ask",
        &arguments,
        &elicitation(),
        Some((&second, accept("twice"))),
    );
    let told: Value = serde_json::from_str(text_of(&last["result"])).unwrap();
    assert_eq!(told, accept("twice"), "{last}");
}

#[test]
fn a_retry_is_taken_for_its_own_call_alone() {
    let place = Place::new();
    let args = ["--speak", MODERN, "--tool", "ask"];
    place.registry(&json!({
        "fix": place.fixture("fix", &args, json!({})),
        "other": place.fixture("other", &args, json!({})),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let arguments = json!({ "times": 1 });
    let asked = call(&mut client, "fix__ask", &arguments, &elicitation(), None);
    assert!(is_input_required(&asked), "{asked}");
    let before = place.received("fix", "tools/call").len();

    let mut forged = asked.clone();
    let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
    forged["result"]["requestState"] = json!(format!("{}A", &state[..state.len() - 1]));
    let mut raw = asked.clone();
    raw["result"]["requestState"] = json!("round \"1");
    for (tool, arguments, retried, why) in [
        ("fix__ask", json!({ "times": 1 }), &forged, "changed on the way"),
        ("fix__ask", json!({ "times": 1 }), &raw, "changed on the way"),
        ("fix__ask", json!({ "times": 2 }), &asked, "another call"),
        ("fix__echo", json!({ "times": 1 }), &asked, "another call"),
        ("other__ask", json!({ "times": 1 }), &asked, "another server"),
    ] {
        let answer = call(
            &mut client,
            tool,
            &arguments,
            &elicitation(),
            Some((retried, accept("x"))),
        );
        let (code, message) = refused(&answer);
        assert_eq!(code, -32602, "{answer}");
        assert!(message.contains(why), "{answer}");
    }
    assert_eq!(place.received("fix", "tools/call").len(), before);
    assert!(place.received("other", "tools/call").is_empty());
    // Nothing of that spoilt the retry itself.
    let answer = call(
        &mut client,
        "fix__ask",
        &arguments,
        &elicitation(),
        Some((&asked, accept("x"))),
    );
    assert!(text_of(&answer["result"]).contains("accept"), "{answer}");
}

#[test]
fn a_retry_is_recorded_as_continuing_its_call() {
    let place = Place::new();
    place.registry(&json!({ "fix": place.fixture("fix", &["--speak", MODERN, "--tool", "ask"], json!({})) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    client.tools();
    let arguments = json!({ "times": 1 });
    let asked = call(&mut client, "fix__ask", &arguments, &elicitation(), None);
    call(
        &mut client,
        "fix__ask",
        &arguments,
        &elicitation(),
        Some((&asked, accept("x"))),
    );
    daemon.stop();
    let records = place.records().into_iter();
    let enters: Vec<_> = records
        .filter(|record| record.is("enter") && record.rec["tool"] == "ask")
        .collect();
    assert_eq!(enters.len(), 2, "{enters:?}");
    assert_eq!(enters[0].rec.get("continues"), None);
    assert_eq!(enters[1].rec["continues"], enters[0].n(), "{enters:?}");
}

#[test]
fn a_modern_server_asks_no_more_than_its_client_declared() {
    let place = Place::new();
    place.registry(&json!({ "fix": place.fixture("fix", &["--speak", MODERN, "--tool", "ask"], json!({})) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let answer = call(&mut client, "fix__ask", &json!({}), &json!({}), None);
    assert_eq!(code_of(&answer), Some("SERVER_ANSWER_INVALID"), "{answer}");
    assert!(text_of(&answer["result"]).contains("elicitation/create"), "{answer}");
}

/// How often the fixture's `count` had its effect.
fn effects(place: &Place) -> usize {
    place
        .record("fix")
        .iter()
        .filter(|(_, kind, _)| kind == "effect")
        .count()
}

#[test]
fn a_person_is_asked_through_a_modern_client_whether_a_call_may_be_made() {
    let place = Place::new();
    let confirm = json!({ "tools": { "confirm": ["count", "ask"] } });
    let args = ["--speak", MODERN, "--tool", "ask"];
    place.registry(&json!({ "fix": place.fixture("fix", &args, confirm) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let arguments = json!({ "what": "\u{202e}tnega" });
    let answers = |action: &str| json!({ "confirm": { "action": action } });

    let asked = call(&mut client, "fix__count", &arguments, &elicitation(), None);
    assert!(is_input_required(&asked), "{asked}");
    let message = &asked["result"]["inputRequests"]["confirm"]["params"]["message"];
    let message = message.as_str().unwrap();
    assert!(message.starts_with("[fix] ") && message.contains("count"), "{message}");
    assert!(message.contains("\\u{202e}tnega"), "{message}");
    let retry = Some((&asked, answers("decline")));
    let answer = call(&mut client, "fix__count", &arguments, &elicitation(), retry);
    assert_eq!(code_of(&answer), Some("APPROVAL_DENIED"), "{answer}");
    assert_eq!(effects(&place), 0);
    // That was its answer: it is not asked twice under one state.
    let retry = Some((&asked, answers("accept")));
    let answer = call(&mut client, "fix__count", &arguments, &elicitation(), retry);
    assert_eq!(refused(&answer).0, -32602, "{answer}");

    let asked = call(&mut client, "fix__count", &arguments, &elicitation(), None);
    // A retry that says nothing is asked again.
    let again = call(
        &mut client,
        "fix__count",
        &arguments,
        &elicitation(),
        Some((&asked, json!({}))),
    );
    assert!(is_input_required(&again), "{again}");
    assert_eq!(effects(&place), 0);
    let retry = Some((&again, answers("accept")));
    let answer = call(&mut client, "fix__count", &arguments, &elicitation(), retry);
    assert_eq!(text_of(&answer["result"]), "counted", "{answer}");
    let retry = Some((&again, answers("accept")));
    let answer = call(&mut client, "fix__count", &arguments, &elicitation(), retry);
    assert!(refused(&answer).1.contains("used already"), "{answer}");
    assert_eq!(effects(&place), 1);
    assert!(place.received("fix", "\"confirm\"").is_empty());

    // Where the server asks too, one word is for one call.
    let arguments = json!({ "times": 1 });
    let asked = call(&mut client, "fix__ask", &arguments, &elicitation(), None);
    let retry = Some((&asked, answers("accept")));
    let asked = call(&mut client, "fix__ask", &arguments, &elicitation(), retry);
    assert_eq!(
        asked["result"]["inputRequests"]["k"]["method"], "elicitation/create",
        "{asked}"
    );
    let retry = Some((&asked, accept("x")));
    let answer = call(&mut client, "fix__ask", &arguments, &elicitation(), retry);
    assert!(text_of(&answer["result"]).contains("accept"), "{answer}");
    let retry = Some((&asked, accept("x")));
    let answer = call(&mut client, "fix__ask", &arguments, &elicitation(), retry);
    assert!(refused(&answer).1.contains("used already"), "{answer}");
}

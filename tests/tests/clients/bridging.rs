//! What a server asks of the person's side, bridged between the eras, as a client sees it that
//! speaks the modern one: retries, calls that are held, and what is refused.

use std::collections::BTreeSet;

use colibri_tests::{
    Bridge, Client, MODERN, Place, code_of, modern_meta, text_of, wait_as_a_person, wait_for,
};
use serde_json::{Value, json};

/// A retry of a call, or its first try: the whole answer. The client says that it can be asked for
/// `can`.
fn call(
    client: &mut Client,
    tool: &str,
    arguments: &Value,
    can: &Value,
    retry: Option<(&Value, Value)>,
) -> Value {
    let id = begin(client, tool, arguments, can, retry);
    client.answer(id)
}

/// The same without waiting for the answer.
fn begin(
    client: &mut Client,
    tool: &str,
    arguments: &Value,
    can: &Value,
    retry: Option<(&Value, Value)>,
) -> u64 {
    let mut meta: Value = serde_json::from_str(&format!("{{{}}}", modern_meta())).unwrap();
    meta["io.modelcontextprotocol/clientCapabilities"] = can.clone();
    let mut params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    if let Some((asked, responses)) = retry {
        params["requestState"] = asked["result"]["requestState"].clone();
        params["inputResponses"] = responses;
    }
    let id = client.next_id();
    client.send(
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string(),
    );
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

/// How many events of this name the trail has.
fn recorded(place: &Place, event: &str) -> usize {
    let records = place.records();
    records
        .iter()
        .filter(|record| record.rec["event"] == event)
        .count()
}

#[test]
fn a_modern_servers_question_and_its_retry_pass() {
    let place = Place::of_fixture(&["--speak", MODERN, "--tool", "ask"], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let arguments = json!({ "times": 2, "params": { "message": "who?", "requestedSchema": { "type": "object" } } });
    let first = call(&mut client, "fix__ask", &arguments, &elicitation(), None);
    assert!(is_input_required(&first), "{first}");
    let asked = &first["result"]["inputRequests"]["k"];
    assert_eq!(asked["method"], "elicitation/create", "{first}");
    let mut named = arguments["params"].clone();
    named["message"] = json!("[fix] who?");
    named["_meta"] = json!({ "org.colibri/server": "fix" });
    assert_eq!(asked["params"], named, "{first}");
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
    assert_ne!(
        second["result"]["requestState"],
        first["result"]["requestState"]
    );
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
    let other = if state.starts_with('A') { "B" } else { "A" };
    forged["result"]["requestState"] = json!(format!("{other}{}", &state[1..]));
    let mut raw = asked.clone();
    raw["result"]["requestState"] = json!("round \"1");
    for (tool, arguments, retried, why) in [
        (
            "fix__ask",
            json!({ "times": 1 }),
            &forged,
            "changed on the way",
        ),
        (
            "fix__ask",
            json!({ "times": 1 }),
            &raw,
            "changed on the way",
        ),
        ("fix__ask", json!({ "times": 2 }), &asked, "another call"),
        ("fix__echo", json!({ "times": 1 }), &asked, "another call"),
        (
            "other__ask",
            json!({ "times": 1 }),
            &asked,
            "another server",
        ),
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
    let place = Place::of_fixture(&["--speak", MODERN, "--tool", "ask"], json!({}));
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
fn a_modern_server_asks_no_more_than_its_client_declared_and_its_entry_allows() {
    let place = Place::new();
    // Whoever shares the process: what is asked in answer to a call is about that call.
    let shared = json!({ "isolation": "shared" });
    place.registry(
        &json!({ "fix": place.fixture("fix", &["--speak", MODERN, "--tool", "ask"], shared) }),
    );
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let answer = call(&mut client, "fix__ask", &json!({}), &json!({}), None);
    assert_eq!(code_of(&answer), Some("ASK_FAILED"), "{answer}");
    assert!(
        text_of(&answer["result"]).contains("elicitation/create"),
        "{answer}"
    );
    let sampling = asks(
        "sampling/createMessage",
        json!({ "messages": [], "maxTokens": 1 }),
        1,
    );
    let answer = call(
        &mut client,
        "fix__ask",
        &sampling,
        &json!({ "sampling": {} }),
        None,
    );
    assert_eq!(code_of(&answer), Some("POLICY_DENIED"), "{answer}");
    assert!(
        text_of(&answer["result"]).contains("sampling/createMessage"),
        "{answer}"
    );
    let answer = call(&mut client, "fix__ask", &json!({}), &elicitation(), None);
    assert!(is_input_required(&answer), "{answer}");
    let retry = Some((&answer, accept("x")));
    call(&mut client, "fix__ask", &json!({}), &elicitation(), retry);
    daemon.stop();
    let events = |event: &str| recorded(&place, event);
    assert_eq!((events("asked"), events("answered")), (1, 1));
}

#[test]
fn urls_that_a_legacy_server_wants_visited_first_are_asked_for() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let error = |elicitations: Value| {
        let data = json!({ "elicitations": elicitations });
        let error = json!({ "code": -32042, "message": "m", "data": data });
        format!(r#"{{"jsonrpc":"2.0","id":@ID@,"error":{error}}}"#)
    };
    let url = |which: &str| json!({ "mode": "url", "elicitationId": which, "url": format!("https://{which}/"), "message": "go" });
    place.frame("visit", error(json!([url("a"), url("b")])).as_bytes());
    let arguments = json!({ "case": "visit" });
    let can = json!({ "elicitation": { "url": {} } });
    let asked = call(&mut client, "fix__frame", &arguments, &can, None);
    assert!(is_input_required(&asked), "{asked}");
    let requests = &asked["result"]["inputRequests"];
    assert_eq!(requests["1"]["params"]["url"], "https://a/", "{asked}");
    assert_eq!(requests["2"]["params"]["message"], "[fix] go", "{asked}");
    // The call is made again, and answered.
    place.frame(
        "visit",
        br#"{"jsonrpc":"2.0","id":@ID@,"result":{"content":[{"type":"text","text":"seen"}]}}"#,
    );
    let both = json!({ "1": { "action": "accept" }, "2": { "action": "accept" } });
    let answer = call(
        &mut client,
        "fix__frame",
        &arguments,
        &can,
        Some((&asked, both)),
    );
    assert_eq!(text_of(&answer["result"]), "seen", "{answer}");
    assert!(place.received("fix", "inputResponses").is_empty());

    place.frame("visit", error(json!([url("a")])).as_bytes());
    let answer = call(&mut client, "fix__frame", &arguments, &elicitation(), None);
    assert_eq!(code_of(&answer), Some("ASK_FAILED"), "{answer}");
    for none in [
        json!([]),
        json!(7),
        json!([7]),
        Value::from_iter(vec![url("a"); 65]),
    ] {
        place.frame("visit", error(none).as_bytes());
        let answer = call(&mut client, "fix__frame", &arguments, &can, None);
        assert_eq!(code_of(&answer), Some("SERVER_ANSWER_INVALID"), "{answer}");
    }
}

#[test]
fn urls_that_a_resumed_call_wants_visited_are_asked_for_too() {
    let place = Place::new();
    place.registry(&json!({ "fix": place.fixture("fix", &[], json!({})) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let form =
        json!({ "message": "who?", "requestedSchema": { "type": "object", "properties": {} } });
    let ask =
        json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form });
    place.frame("ask", ask.to_string().as_bytes());
    let url = json!({ "mode": "url", "elicitationId": "a", "url": "https://a/", "message": "go" });
    let error = json!({ "code": -32042, "message": "m", "data": { "elicitations": [url] } });
    let visit = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"error":{error}}}"#);
    place.frame("visit", visit.as_bytes());
    let arguments = json!({ "case": "ask", "then": "visit" });
    let can = json!({ "elicitation": { "form": {}, "url": {} } });
    let yes = || json!({ "1": { "action": "accept", "content": {} } });
    let mut ask = |retry| call(&mut client, "fix__ask_raw", &arguments, &can, retry);

    // The call is held while a person fills in the form, goes on, and ends with the error.
    let held = ask(None);
    assert_eq!(
        held["result"]["inputRequests"]["1"]["params"]["message"], "[fix] who?",
        "{held}"
    );
    let visited = ask(Some((&held, yes())));
    assert!(is_input_required(&visited), "{visited}");
    let wanted = &visited["result"]["inputRequests"]["1"]["params"];
    assert_eq!(
        (&wanted["url"], &wanted["message"]),
        (&json!("https://a/"), &json!("[fix] go")),
        "{visited}"
    );
    assert_eq!(place.received("fix", "tools/call").len(), 1);
    // With the visit it is made again, from its beginning: another call of the server.
    let text = json!({ "content": [{ "type": "text", "text": "seen" }] });
    place.frame(
        "visit",
        format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{text}}}"#).as_bytes(),
    );
    let again = ask(Some((&visited, yes())));
    assert_eq!(
        again["result"]["inputRequests"]["1"]["params"]["message"], "[fix] who?",
        "{again}"
    );
    assert_eq!(place.received("fix", "tools/call").len(), 2);
    let answer = ask(Some((&again, yes())));
    assert_eq!(text_of(&answer["result"]), "seen", "{answer}");
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
    assert!(
        message.starts_with("[fix] ") && message.contains("count"),
        "{message}"
    );
    assert!(message.contains("\\u{202e}tnega"), "{message}");
    wait_as_a_person();
    let retry = Some((&asked, answers("decline")));
    let answer = call(&mut client, "fix__count", &arguments, &elicitation(), retry);
    assert_eq!(code_of(&answer), Some("APPROVAL_DENIED"), "{answer}");
    assert_eq!(place.recorded("fix", "effect").len(), 0);
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
    assert_eq!(place.recorded("fix", "effect").len(), 0);
    wait_as_a_person();
    let retry = Some((&again, answers("accept")));
    let answer = call(&mut client, "fix__count", &arguments, &elicitation(), retry);
    assert_eq!(text_of(&answer["result"]), "counted", "{answer}");
    let retry = Some((&again, answers("accept")));
    let answer = call(&mut client, "fix__count", &arguments, &elicitation(), retry);
    assert!(refused(&answer).1.contains("used already"), "{answer}");
    assert_eq!(place.recorded("fix", "effect").len(), 1);
    assert!(place.received("fix", "\"confirm\"").is_empty());

    // Where the server asks too, one word is for one call.
    let arguments = json!({ "times": 1 });
    let asked = call(&mut client, "fix__ask", &arguments, &elicitation(), None);
    wait_as_a_person();
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

/// How many processes of the fixture were called.
fn called(place: &Place) -> usize {
    let record = place.record("fix").into_iter();
    let calls = record.filter(|(_, kind, line)| {
        kind == "line" && String::from_utf8_lossy(line).contains("tools/call")
    });
    calls.map(|(pid, ..)| pid).collect::<BTreeSet<_>>().len()
}

/// What the fixture's `ask` is called with to ask this, so often.
fn asks(method: &str, params: Value, times: u64) -> Value {
    json!({ "method": method, "params": params, "times": times })
}

fn form() -> Value {
    json!({ "message": "who?", "requestedSchema": { "type": "object", "properties": {} } })
}

#[test]
fn a_legacy_servers_question_is_answered_by_a_retry() {
    let place = Place::new();
    let may = json!({ "may_ask": ["elicitation", "sampling", "roots"] });
    place.registry(&json!({ "fix": place.fixture("fix", &["--tool", "ask"], may) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let can = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} });
    let url = json!({ "mode": "url", "message": "go", "url": "https://example.org/x", "elicitationId": "e" });
    let sampling = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "?" } }],
        "maxTokens": 5, "systemPrompt": "p" });
    for (method, params, answer) in [
        (
            "elicitation/create",
            form(),
            json!({ "action": "accept", "content": { "name": "x" } }),
        ),
        ("elicitation/create", form(), json!({ "action": "decline" })),
        ("elicitation/create", url, json!({ "action": "accept" })),
        (
            "sampling/createMessage",
            sampling,
            json!({ "role": "assistant", "content": { "type": "text", "text": "!" }, "model": "m" }),
        ),
        (
            "roots/list",
            json!({}),
            json!({ "roots": [{ "uri": "file:///home/x" }] }),
        ),
    ] {
        // Twice, so that the retry is asked again.
        let arguments = asks(method, params.clone(), 2);
        let mut asked = call(&mut client, "fix__ask", &arguments, &can, None);
        for _ in 0..2 {
            assert!(is_input_required(&asked), "{asked}");
            let requests = asked["result"]["inputRequests"]
                .as_object()
                .unwrap()
                .clone();
            assert_eq!(requests.len(), 1, "{asked}");
            let (key, request) = requests.iter().next().unwrap();
            assert_eq!(request["method"], method, "{asked}");
            assert_eq!(
                request["params"]["_meta"]["org.colibri/server"], "fix",
                "{asked}"
            );
            if method == "elicitation/create" {
                let message = request["params"]["message"].as_str().unwrap();
                assert!(message.starts_with("[fix] "), "{asked}");
            }
            let mut responses = json!({});
            responses[key] = answer.clone();
            asked = call(
                &mut client,
                "fix__ask",
                &arguments,
                &can,
                Some((&asked, responses)),
            );
        }
        let told: Value = serde_json::from_str(text_of(&asked["result"])).unwrap();
        assert_eq!(told, answer, "{asked}");
        assert_eq!(asked["result"]["resultType"], "complete", "{asked}");
    }
    // One call each, and the same process for all.
    assert_eq!(place.received("fix", "tools/call").len(), 5);
    assert_eq!(called(&place), 1);
    daemon.stop();
    let records = place.records();
    let events = |event: &str| {
        records
            .iter()
            .filter(|record| record.rec["event"] == event)
            .count()
    };
    assert_eq!((events("asked"), events("answered")), (10, 10));
}

#[test]
fn nobody_is_asked_for_what_the_client_did_not_declare_or_the_entry_does_not_allow() {
    let place = Place::new();
    place.registry(&json!({
        "fix": place.fixture("fix", &["--tool", "ask"], json!({})),
        "mute": place.fixture("mute", &["--tool", "ask"], json!({ "may_ask": [] })),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let all = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    for (tool, method, can, why) in [
        (
            "fix__ask",
            "elicitation/create",
            json!({}),
            "did not declare",
        ),
        (
            "fix__ask",
            "elicitation/create",
            json!({ "sampling": {} }),
            "did not declare",
        ),
        (
            "fix__ask",
            "sampling/createMessage",
            all.clone(),
            "not declared",
        ),
        ("mute__ask", "elicitation/create", all, "not declared"),
    ] {
        let answer = call(&mut client, tool, &asks(method, form(), 1), &can, None);
        let text = text_of(&answer["result"]);
        assert!(
            text.starts_with("refused: ") && text.contains(why),
            "{answer}"
        );
    }
}

#[test]
fn a_held_call_is_taken_once_and_by_its_own_user_and_call() {
    let place = Place::of_fixture(&["--tool", "ask"], json!({}));
    let daemon = place.start(&[]);
    let (mut one, mut other) = (daemon.modern(), daemon.modern());
    let first = call(
        &mut one,
        "fix__ask",
        &asks("elicitation/create", form(), 1),
        &elicitation(),
        None,
    );
    let mut form_of_two = form();
    form_of_two["message"] = json!("and you?");
    let two = asks("elicitation/create", form_of_two, 1);
    let second = call(&mut other, "fix__ask", &two, &elicitation(), None);
    assert!(
        is_input_required(&first) && is_input_required(&second),
        "{first} {second}"
    );
    // A second call that may be asked about has a process of its own.
    assert_eq!(called(&place), 2);
    let one_says = json!({ "1": { "action": "accept", "content": { "who": "one" } } });
    let answer = call(
        &mut one,
        "fix__ask",
        &two,
        &elicitation(),
        Some((&first, one_says.clone())),
    );
    assert!(refused(&answer).1.contains("another call"), "{answer}");

    // Twice at once, by two connections of the user.
    let arguments = asks("elicitation/create", form(), 1);
    let at_one = begin(
        &mut one,
        "fix__ask",
        &arguments,
        &elicitation(),
        Some((&first, one_says.clone())),
    );
    let at_other = begin(
        &mut other,
        "fix__ask",
        &arguments,
        &elicitation(),
        Some((&first, one_says)),
    );
    let answers = [one.answer(at_one), other.answer(at_other)];
    let taken: Vec<_> = answers
        .iter()
        .filter(|answer| text_of(&answer["result"]).contains("one"))
        .collect();
    assert_eq!(taken.len(), 1, "{answers:?}");
    let not_taken = answers
        .iter()
        .find(|answer| answer.get("error").is_some())
        .unwrap();
    assert!(refused(not_taken).1.contains("used already"), "{not_taken}");

    let two_says = json!({ "1": { "action": "accept", "content": { "who": "two" } } });
    let answer = call(
        &mut other,
        "fix__ask",
        &two,
        &elicitation(),
        Some((&second, two_says)),
    );
    assert!(text_of(&answer["result"]).contains("two"), "{answer}");
}

#[test]
fn a_held_call_is_lost_with_its_process_and_its_retry_says_so() {
    let place = Place::of_fixture(&["--tool", "ask"], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let arguments = asks("elicitation/create", form(), 1);
    let asked = call(&mut client, "fix__ask", &arguments, &elicitation(), None);
    assert!(is_input_required(&asked), "{asked}");
    let called = place.record("fix").into_iter();
    let mut called =
        called.filter(|(_, _, line)| String::from_utf8_lossy(line).contains("tools/call"));
    let pid = called.next().unwrap().0;
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    let retry = Some((&asked, json!({ "1": { "action": "accept" } })));
    let answer = call(&mut client, "fix__ask", &arguments, &elicitation(), retry);
    assert_eq!(code_of(&answer), Some("SERVER_DIED"), "{answer}");
    assert!(text_of(&answer["result"]).contains("lost"), "{answer}");
}

#[test]
fn held_calls_end_with_the_last_connection_of_their_user() {
    let place = Place::of_fixture(&["--tool", "ask"], json!({}));
    let daemon = place.start(&[]);
    let arguments = asks("elicitation/create", form(), 1);
    let mut client = daemon.modern();
    let asked = call(&mut client, "fix__ask", &arguments, &elicitation(), None);
    assert!(is_input_required(&asked), "{asked}");
    // It belongs to the user: another connection takes it over.
    let mut other = daemon.modern();
    other.tools();
    drop(client);
    let asked = call(
        &mut other,
        "fix__ask",
        &arguments,
        &elicitation(),
        Some((&asked, json!({}))),
    );
    assert!(is_input_required(&asked), "{asked}");
    drop(other);
    wait_for("the server to be told", || {
        (place.received("fix", "notifications/cancelled").len() == 1).then_some(())
    });
    let mut late = daemon.modern();
    let retry = Some((&asked, json!({ "1": { "action": "accept" } })));
    let answer = call(&mut late, "fix__ask", &arguments, &elicitation(), retry);
    assert!(refused(&answer).1.contains("has ended"), "{answer}");
}

#[test]
fn who_holds_many_calls_gets_so_many_and_the_server_is_told_why_no_more() {
    let place = Place::new();
    let own = json!({ "isolation": "call" });
    place.registry(&json!({ "fix": place.fixture("fix", &["--tool", "ask"], own) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    client.tools();
    let mut held = 0;
    for number in 0..18 {
        let mut arguments = asks("elicitation/create", form(), 1);
        arguments["number"] = json!(number);
        let answer = call(&mut client, "fix__ask", &arguments, &elicitation(), None);
        if is_input_required(&answer) {
            held += 1;
        } else {
            assert!(
                text_of(&answer["result"]).contains("16 calls of this user"),
                "{answer}"
            );
        }
    }
    assert_eq!(held, 16);
}

/// What the fixture's `ask` is called with to ask for a form; each call another one.
fn numbered(number: u64) -> Value {
    let mut arguments = asks("elicitation/create", form(), 1);
    arguments["number"] = json!(number);
    arguments
}

#[test]
fn a_call_beside_as_many_held_ones_as_there_may_be_is_not_waited_for() {
    let place = Place::of_fixture(&["--tool", "ask"], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    client.tools();
    let held: Vec<_> = (0..4)
        .map(|number| {
            call(
                &mut client,
                "fix__ask",
                &numbered(number),
                &elicitation(),
                None,
            )
        })
        .collect();
    assert!(held.iter().all(is_input_required), "{held:?}");
    assert_eq!(called(&place), 4);
    // There is no process left in which it would be clear that a question is about this call.
    let late = call(&mut client, "fix__ask", &numbered(4), &elicitation(), None);
    let text = text_of(&late["result"]);
    assert!(
        text.starts_with("refused: ") && text.contains("limits.processes_per_user"),
        "{late}"
    );
    // Calls about which nothing is asked need none.
    for can in [elicitation(), json!({})] {
        let echoed = call(&mut client, "fix__echo", &json!({ "a": 1 }), &can, None);
        assert_eq!(text_of(&echoed["result"]), r#"{"a":1}"#);
    }
    // A process comes when another call is over.
    let retry = Some((&held[1], json!({ "1": { "action": "accept" } })));
    let answer = call(&mut client, "fix__ask", &numbered(1), &elicitation(), retry);
    assert!(text_of(&answer["result"]).contains("accept"), "{answer}");
    let answer = call(&mut client, "fix__ask", &numbered(5), &elicitation(), None);
    assert!(is_input_required(&answer), "{answer}");
    assert_eq!(called(&place), 4);
}

#[test]
fn a_call_that_was_held_for_its_time_gives_its_process_to_another() {
    let place = Place::new();
    let quick = json!({ "timeout_ms": 2000 });
    place.registry(&json!({ "fix": place.fixture("fix", &["--tool", "ask"], quick) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    client.tools();
    let hold = |client: &mut Client, number| {
        let asked = call(client, "fix__ask", &numbered(number), &elicitation(), None);
        assert!(is_input_required(&asked), "{asked}");
        asked
    };
    let held: Vec<_> = (0..4).map(|number| hold(&mut client, number)).collect();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let more: Vec<_> = (4..6).map(|number| hold(&mut client, number)).collect();
    let retry = |client: &mut Client, number: u64, asked: &Value| {
        let accepted = json!({ "1": { "action": "accept" } });
        call(
            client,
            "fix__ask",
            &numbered(number),
            &elicitation(),
            Some((asked, accepted)),
        )
    };
    for number in 0..2 {
        let answer = retry(&mut client, number, &held[number as usize]);
        assert_eq!(code_of(&answer), Some("ASK_FAILED"), "{answer}");
        assert!(text_of(&answer["result"]).contains("given up"), "{answer}");
    }
    // The others are where they were.
    for (number, asked) in [(2, &held[2]), (3, &held[3]), (4, &more[0]), (5, &more[1])] {
        let answer = retry(&mut client, number, asked);
        assert!(
            text_of(&answer["result"]).contains("accept"),
            "{number} {answer}"
        );
    }
    let told = place.received("fix", "notifications/cancelled");
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn a_held_call_of_a_client_over_http_outlives_its_connection() {
    let place = Place::of_fixture(&["--tool", "ask"], json!({}));
    let daemon = place.start(&[]);
    let arguments = asks("elicitation/create", form(), 1);
    let post = |retry: Option<(&Value, Value)>| {
        let mut meta: Value = serde_json::from_str(&format!("{{{}}}", modern_meta())).unwrap();
        meta["io.modelcontextprotocol/clientCapabilities"] = elicitation();
        let mut params = json!({ "name": "fix__ask", "arguments": arguments, "_meta": meta });
        if let Some((asked, responses)) = retry {
            params["requestState"] = asked["result"]["requestState"].clone();
            params["inputResponses"] = responses;
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let fields = [
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "fix__ask"),
        ];
        let mut http = daemon.http();
        http.post(&fields, &body.to_string());
        let response = http.response();
        assert_eq!(
            response.status,
            200,
            "{}",
            String::from_utf8_lossy(&response.body)
        );
        response.json()
    };
    let asked = post(None);
    assert!(is_input_required(&asked), "{asked}");
    // Nobody of the user is connected any more, and one who was goes.
    let mut passing = daemon.legacy("2025-06-18");
    passing.request_tool("fix__never", json!({}));
    passing.call("fix__echo", json!({}));
    let has_come = || !place.received("fix", "\"never\"").is_empty();
    wait_for("the call at the server", || has_come().then_some(()));
    drop(passing);
    let cancelled = || place.received("fix", "notifications/cancelled").len();
    wait_for("the end of all connections", || {
        (cancelled() == 1).then_some(())
    });
    let answer = post(Some((&asked, json!({ "1": { "action": "accept" } }))));
    assert!(text_of(&answer["result"]).contains("accept"), "{answer}");
    assert_eq!(cancelled(), 1);
    let answer = post(Some((&asked, json!({ "1": { "action": "accept" } }))));
    assert!(refused(&answer).1.contains("used already"), "{answer}");
}

#[test]
fn a_server_that_asks_ten_thousand_times_is_refused_but_for_a_few() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let ask = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": form() });
    let lines: Vec<_> = (0..10_000).map(|id| ask(id).to_string()).collect();
    place.frame("flood", lines.join("\n").as_bytes());
    let arguments = json!({ "case": "flood" });
    let asked = call(&mut client, "fix__frame", &arguments, &elicitation(), None);
    assert!(is_input_required(&asked), "{asked}");
    wait_for("the refusals", || {
        (place.received("fix", "\"error\"").len() == 10_000 - 64).then_some(())
    });
    // What was taken is asked for with the next retry, all at once.
    let answers = |asked: &Value| {
        let keys = asked["result"]["inputRequests"].as_object().unwrap().keys();
        Value::Object(
            keys.map(|key| (key.clone(), json!({ "action": "accept" })))
                .collect(),
        )
    };
    let first = answers(&asked);
    assert!(!first.as_object().unwrap().is_empty());
    let rest = call(
        &mut client,
        "fix__frame",
        &arguments,
        &elicitation(),
        Some((&asked, first.clone())),
    );
    let number = 64 - first.as_object().unwrap().len();
    assert_eq!(
        rest["result"]["inputRequests"].as_object().unwrap().len(),
        number,
        "{rest}"
    );
    begin(
        &mut client,
        "fix__frame",
        &arguments,
        &elicitation(),
        Some((&rest, answers(&rest))),
    );
    wait_for("the answers", || {
        (place.received("fix", "\"accept\"").len() == 64).then_some(())
    });
    daemon.stop();
    let events = |event: &str| recorded(&place, event);
    assert_eq!((events("asked"), events("answered")), (64, 64));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nobody_goes_on_with_another_users_call() {
    let place = Place::of_fixture(&["--tool", "ask"], json!({}));
    place.open_to_group();
    let daemon = place.start(&[]);
    let (mut client, mut other) = (daemon.modern(), Bridge::start(place.stranger(&[])));
    let arguments = asks("elicitation/create", form(), 1);
    let asked = call(&mut client, "fix__ask", &arguments, &elicitation(), None);
    assert!(is_input_required(&asked), "{asked}");
    let says = json!({ "1": { "action": "accept" } });
    let stolen = call(
        &mut other,
        "fix__ask",
        &arguments,
        &elicitation(),
        Some((&asked, says.clone())),
    );
    assert_eq!(refused(&stolen).0, -32602, "{stolen}");
    assert!(refused(&stolen).1.contains("another user"), "{stolen}");
    // Whoever goes ends only what is theirs.
    let theirs = call(&mut other, "fix__ask", &arguments, &elicitation(), None);
    assert!(is_input_required(&theirs), "{theirs}");
    other.end();
    wait_for("the end of theirs", || {
        (place.received("fix", "notifications/cancelled").len() == 1).then_some(())
    });
    let answer = call(
        &mut client,
        "fix__ask",
        &arguments,
        &elicitation(),
        Some((&asked, says)),
    );
    assert!(text_of(&answer["result"]).contains("accept"), "{answer}");
}

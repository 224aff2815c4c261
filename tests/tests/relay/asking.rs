//! What servers ask of the person's side, and what becomes of it.

use colibri_tests::{
    Client, Daemon, Era, HEADLESS, LEGACY, Place, code_of, headless_meta, text_of,
    wait_as_a_person, wait_for,
};
use serde_json::{Value, json};

/// What a client of the newest legacy version can be asked at most.
fn everything() -> Value {
    json!({
        "elicitation": { "form": {}, "url": {} },
        "sampling": { "tools": {}, "context": {} },
        "roots": { "listChanged": true },
    })
}

/// A place with one fixture server called `fix`, which may ask for everything, and has the tools
/// that do.
fn place(args: &[&str], more: Value) -> Place {
    let place = Place::new();
    let mut all = vec!["--tool", "say", "--tool", "need"];
    all.extend(args);
    let mut entry = json!({ "may_ask": ["elicitation", "sampling", "roots"] });
    for (key, value) in more.as_object().into_iter().flatten() {
        entry[key] = value.clone();
    }
    place.registry(&json!({ "fix": place.fixture("fix", &all, entry) }));
    place
}

/// A client that can be asked this.
fn able(daemon: &Daemon<'_>, version: &str, capabilities: Value) -> Client {
    let mut client = daemon.connect();
    client.open_with(version, capabilities);
    client
}

/// A request of a server's.
fn request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

const FORM: &str = r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{"n":{"type":"string"}}},"x":1e400}"#;

/// Answers a request with this result.
fn give(client: &mut Client, asked: &Value, result: &str) {
    client.send(format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
        asked["id"]
    ));
}

/// Has the server ask with these lines and wait for so many answers; the call's id.
fn ask(client: &mut Client, lines: &[String], wait: usize) -> u64 {
    client.request_tool("fix__say", json!({ "lines": lines, "wait": wait }))
}

/// The answers that the server got, as it says.
fn got(answer: &Value) -> Vec<Value> {
    serde_json::from_str(text_of(&answer["result"]))
        .unwrap_or_else(|_| panic!("no answers: {answer}"))
}

#[test]
fn what_a_legacy_server_asks_goes_to_the_person_and_back_byte_for_byte() {
    for isolation in ["user", "client", "call"] {
        let place = place(&[], json!({ "isolation": isolation }));
        let daemon = place.start(&[]);
        let mut client = able(&daemon, LEGACY, everything());
        let lines = [
            request("\"\\u0061 b\"", "elicitation/create", FORM),
            request(
                "7.50",
                "sampling/createMessage",
                r#"{"messages":[],"maxTokens":9}"#,
            ),
            r#"{"jsonrpc":"2.0","id":-1,"method":"roots/list"}"#.to_owned(),
        ];
        let call = ask(&mut client, &lines, 3);
        let form = client.read().unwrap();
        let form_text = String::from_utf8(form).unwrap();
        let form: Value = serde_json::from_str(&form_text.replace("1e400", "1")).unwrap();
        let expected = FORM.replace(
            "{\"message\":\"Who?",
            "{\"_meta\":{\"org.colibri/server\":\"fix\"},\"message\":\"[fix] Who?",
        );
        assert!(form_text.contains(&expected), "{form_text}");
        assert_eq!(form["method"], "elicitation/create");
        let sample = client.message();
        assert_eq!(sample["params"]["systemPrompt"], "[fix]", "{sample}");
        let roots = client.message();
        assert_eq!(roots["method"], "roots/list");
        assert_eq!(
            roots["params"],
            json!({ "_meta": { "org.colibri/server": "fix" } })
        );
        // Answered in another order than asked.
        give(
            &mut client,
            &roots,
            r#"{"roots":[{"uri":"file:///a"}],"y":1e400}"#,
        );
        give(
            &mut client,
            &sample,
            r#"{"role":"assistant","model":"m","content":{"type":"text","text":"t"}}"#,
        );
        give(
            &mut client,
            &form,
            r#"{"action":"accept","content":{"n":"\u0041"} }"#,
        );
        let answer = client.answer(call);
        assert!(text_of(&answer["result"]).contains("1e400"), "{answer}");
        let mut told = place.received("fix", "\"result\"");
        told.sort();
        assert_eq!(
            told,
            [
                r#"{"jsonrpc":"2.0","id":"\u0061 b","result":{"action":"accept","content":{"n":"\u0041"} }}"#,
                r#"{"jsonrpc":"2.0","id":-1,"result":{"roots":[{"uri":"file:///a"}],"y":1e400}}"#,
                r#"{"jsonrpc":"2.0","id":7.50,"result":{"role":"assistant","model":"m","content":{"type":"text","text":"t"}}}"#,
            ]
        );
        let declared = place.received("fix", "\"initialize\"").pop().unwrap();
        let declared: Value = serde_json::from_str(&declared).unwrap();
        assert_eq!(declared["params"]["capabilities"], everything());
        daemon.stop();
    }
}

#[test]
fn what_is_asked_is_recorded_before_it_goes_and_when_it_is_answered() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    for (reply, outcome) in [
        ("accept", "accept"),
        ("decline", "decline"),
        ("cancel", "cancel"),
    ] {
        let call = ask(&mut client, &[request("1", "elicitation/create", FORM)], 1);
        let line = String::from_utf8(client.read().unwrap())
            .unwrap()
            .replace("1e400", "1");
        let form: Value = serde_json::from_str(&line).unwrap();
        let records = place.records();
        let asked = records
            .iter()
            .rev()
            .find(|record| record.rec["event"] == "asked")
            .unwrap();
        assert_eq!(asked.rec["details"]["request"], form["id"]);
        give(&mut client, &form, &json!({ "action": reply }).to_string());
        client.answer(call);
        let records = place.records();
        let answered = records
            .iter()
            .rev()
            .find(|record| record.rec["event"] == "answered")
            .unwrap();
        let entered = records
            .iter()
            .rev()
            .find(|record| record.is("enter"))
            .unwrap();
        let details = &answered.rec["details"];
        assert_eq!(details["outcome"], outcome, "{details}");
        assert_eq!(details["call"], entered.n());
        for key in ["server", "method", "uid", "connection", "call", "request"] {
            assert_eq!(details[key], asked.rec["details"][key], "{key}");
        }
        assert_eq!(details["server"], "fix");
        assert_eq!(asked.rec["details"]["length"], FORM.len());
    }
    daemon.stop();
}

#[test]
fn nobody_is_asked_what_may_not_be_asked() {
    let none = "asked for";
    for (more, capabilities, lines, code) in [
        // The entry says no.
        (
            json!({ "may_ask": [] }),
            everything(),
            request("1", "elicitation/create", FORM),
            -32601,
        ),
        (
            json!({ "may_ask": ["roots"] }),
            everything(),
            request("1", "elicitation/create", FORM),
            -32601,
        ),
        // Many share the process.
        (
            json!({ "isolation": "shared" }),
            everything(),
            request("1", "elicitation/create", FORM),
            -32601,
        ),
        // The client cannot.
        (
            json!({}),
            json!({}),
            request("1", "elicitation/create", FORM),
            -32601,
        ),
        (
            json!({}),
            json!({ "elicitation": {} }),
            request(
                "1",
                "elicitation/create",
                r#"{"mode":"url","message":"m","url":"u","elicitationId":"e"}"#,
            ),
            -32602,
        ),
        // MCP has no such thing.
        (
            json!({}),
            everything(),
            request("1", "tools/list", "{}"),
            -32601,
        ),
        (
            json!({}),
            everything(),
            request("1", "elicitation/create", r#"{"mode":"other"}"#),
            -32601,
        ),
        (
            json!({}),
            everything(),
            request("1", "elicitation/create", r#"{"message":7}"#),
            -32602,
        ),
    ] {
        let place = place(&[], more.clone());
        let daemon = place.start(&[]);
        let mut client = able(&daemon, LEGACY, capabilities);
        let call = ask(&mut client, &[lines], 1);
        let answer = client.answer(call);
        assert_eq!(got(&answer)[0]["error"]["code"], code, "{more} {answer}");
        assert!(client.others.is_empty(), "{:?}", client.others);
        daemon.wait_for_log(none);
        daemon.stop();
    }
}

#[test]
fn a_call_waits_for_its_person_longer_than_for_its_server() {
    let place = place(&[], json!({ "timeout_ms": 300 }));
    let daemon = place.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    let call = ask(&mut client, &[request("1", "roots/list", "{}")], 1);
    let asked = client.message();
    let mut other = daemon.legacy(LEGACY);
    for _ in 0..3 {
        let late = other.ask(
            "tools/call",
            json!({ "name": "fix__wait", "arguments": { "until": "never" } }),
        );
        assert_eq!(code_of(&late), Some("TIMEOUT_CALL"), "{late}");
    }
    give(&mut client, &asked, r#"{"roots":[]}"#);
    assert_eq!(got(&client.answer(call))[0]["result"]["roots"], json!([]));
    // After that its time runs again.
    let call = ask(&mut client, &[request("1", "roots/list", "{}")], 2);
    let asked = client.message();
    give(&mut client, &asked, r#"{"roots":[]}"#);
    let answer = client.answer(call);
    assert_eq!(code_of(&answer), Some("TIMEOUT_CALL"), "{answer}");
    daemon.stop();
}

#[test]
fn a_person_who_never_answers_holds_nothing_for_ever() {
    let place = place(&[], json!({ "timeout_ms": 200, "total_timeout_ms": 700 }));
    let daemon = place.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    let call = ask(&mut client, &[request("1", "roots/list", "{}")], 1);
    let asked = client.message();
    let answer = client.answer(call);
    assert_eq!(code_of(&answer), Some("TIMEOUT_TOTAL"), "{answer}");
    let taken_back = client.notification("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], asked["id"]);
    let told = wait_for("the server to be told", || {
        place.received("fix", "ASK_FAILED").pop()
    });
    assert!(told.contains("\"id\":1"), "{told}");
    // Too late.
    give(&mut client, &asked, r#"{"roots":[]}"#);
    client.call("fix__pid", json!({}));
    assert!(place.received("fix", "\"roots\":[]").is_empty());
    daemon.stop();
}

#[test]
fn what_is_asked_ends_with_who_asks_and_who_is_asked() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    let line = request("1", "roots/list", "{}");
    // The server takes it back.
    let back = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let call = ask(
        &mut client,
        &[
            line.clone(),
            back.to_owned(),
            request("9", "roots/list", "{}"),
        ],
        1,
    );
    let (asked, other) = (client.message(), client.notification("roots/list"));
    let told = client.notification("notifications/cancelled");
    assert_eq!(told["params"]["requestId"], asked["id"]);
    give(&mut client, &asked, r#"{"roots":["late"]}"#);
    give(&mut client, &other, r#"{"roots":[]}"#);
    assert_eq!(got(&client.answer(call))[0]["id"], 9);
    // It answers its call before the person did.
    let call = ask(&mut client, std::slice::from_ref(&line), 0);
    let asked = client.message();
    client.answer(call);
    let told = client.notification("notifications/cancelled");
    assert_eq!(told["params"]["requestId"], asked["id"]);
    wait_for("the server to be told", || {
        place.received("fix", "is over").pop()
    });
    // The call is cancelled.
    let call = ask(&mut client, &[request("2", "roots/list", "{}")], 1);
    let asked = client.message();
    client.notify("notifications/cancelled", json!({ "requestId": call }));
    let told = client.notification("notifications/cancelled");
    assert_eq!(told["params"]["requestId"], asked["id"]);
    // It dies.
    let call = client.request_tool("fix__say", json!({ "lines": [line], "die": 1, "wait": 1 }));
    let asked = client.message();
    let told = client.notification("notifications/cancelled");
    assert_eq!(told["params"]["requestId"], asked["id"]);
    assert_eq!(code_of(&client.answer(call)), Some("SERVER_DIED"));
    // The client goes.
    ask(&mut client, &[request("3", "roots/list", "{}")], 1);
    client.message();
    drop(client);
    wait_for("the server to be told", || {
        place
            .received("fix", "ASK_FAILED")
            .into_iter()
            .find(|line| line.contains("\"id\":3"))
    });
    daemon.stop();
}

#[test]
fn hostile_answers_are_refused_to_the_server_and_strays_are_counted() {
    let place = place(&[], json!({}));
    place.limits(json!({ "message_bytes": "64K" }));
    let daemon = place.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    let mut other = able(&daemon, LEGACY, everything());
    for reply in [
        r#""result":{"roots":{}}"#.to_owned(),
        r#""result":{"roots":[],"Roots":[]}"#.to_owned(),
        r#""result":7"#.to_owned(),
        r#""result":{"roots":[]},"error":{}"#.to_owned(),
        r#""result":{"roots":[]},"Result":1"#.to_owned(),
        format!(r#""result":{{"roots":["{}"]}}"#, "x".repeat(70_000)),
    ] {
        let call = ask(&mut client, &[request("1", "roots/list", "{}")], 1);
        let asked = client.message();
        // Another id, another spelling, another connection.
        let id = &asked["id"];
        for stray in [
            format!("\"{id}\""),
            format!("{id}.0"),
            "1".to_owned(),
            "null".to_owned(),
        ] {
            client.send(format!(
                r#"{{"jsonrpc":"2.0","id":{stray},"result":{{"roots":[1]}}}}"#
            ));
        }
        other.send(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[2]}}}}"#
        ));
        other.ask("ping", json!({}));
        client.send(format!(r#"{{"jsonrpc":"2.0","id":{id},{reply}}}"#));
        // A second time.
        give(&mut client, &asked, r#"{"roots":[3]}"#);
        let answer = client.answer(call);
        assert_eq!(
            got(&answer)[0]["error"]["code"],
            207,
            "{reply:.80} {answer}"
        );
    }
    assert!(place.received("fix", "\"roots\":[").is_empty());
    // An error of the client's is the server's to see, as it is.
    let call = ask(&mut client, &[request("1", "roots/list", "{}")], 1);
    let id = client.message()["id"].clone();
    client.send(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"no","data":1e400}}}}"#
    ));
    client.answer(call);
    assert!(
        place
            .received("fix", r#""error":{"code":-1,"message":"no","data":1e400}"#)
            .len()
            == 1
    );
    daemon.stop();
}

#[test]
fn ten_thousand_requests_at_once_are_refused_but_for_a_few() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    let lines: Vec<String> = (0..10_000)
        .map(|id| request(&id.to_string(), "roots/list", "{}"))
        .collect();
    let call = ask(&mut client, &lines, 10_000);
    let asked: Vec<Value> = (0..32).map(|_| client.message()).collect();
    wait_for("the others to be refused", || {
        (place.received("fix", "ASK_FAILED").len() == 10_000 - 32).then_some(())
    });
    for asked in &asked {
        give(&mut client, asked, r#"{"roots":[]}"#);
    }
    assert_eq!(got(&client.answer(call)).len(), 10_000);
    assert!(client.others.is_empty());
    daemon.stop();
}

#[test]
fn who_is_asked_is_whose_call_it_is() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let (mut unable, mut able_one) = (daemon.quiet(LEGACY), able(&daemon, LEGACY, everything()));
    // One process serves both, and the one that can be asked is asked, although the other call is
    // later.
    let waiting = able_one.request_tool("fix__wait", json!({ "until": "done" }));
    wait_for("the call", || place.received("fix", "\"wait\"").pop());
    let call = ask(&mut unable, &[request("1", "elicitation/create", FORM)], 1);
    let line = String::from_utf8(able_one.read().unwrap())
        .unwrap()
        .replace("1e400", "1");
    let form: Value = serde_json::from_str(&line).unwrap();
    give(&mut able_one, &form, r#"{"action":"decline"}"#);
    assert_eq!(got(&unable.answer(call))[0]["result"]["action"], "decline");
    place.release("done");
    able_one.answer(waiting);
    assert_eq!(place.started("fix").len(), 2, "a probe and a process");
    daemon.stop();
}

/// A form whose message is this.
fn form_of(message: &str) -> String {
    let params =
        json!({ "message": message, "requestedSchema": { "type": "object", "properties": {} } });
    request(
        &json!(message).to_string(),
        "elicitation/create",
        &params.to_string(),
    )
}

/// Has the server ask a client, and the client answer; who was asked.
fn is_asked(client: &mut Client, message: &str) {
    let call = ask(client, &[form_of(message)], 1);
    let asked = client.message();
    assert_eq!(
        asked["params"]["message"],
        format!("[fix] {message}"),
        "{asked}"
    );
    give(client, &asked, r#"{"action":"decline"}"#);
    assert_eq!(got(&client.answer(call))[0]["result"]["action"], "decline");
}

#[test]
fn three_legacy_clients_at_once_are_each_asked_about_their_own_calls_alone() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut clients: Vec<Client> = (0..3)
        .map(|_| able(&daemon, LEGACY, everything()))
        .collect();
    is_asked(&mut clients[0], "first");
    for round in 0..50 {
        let message = |number: usize, which: char| format!("{number}{which}{round}");
        let calls: Vec<[u64; 2]> = clients
            .iter_mut()
            .enumerate()
            .map(|(number, client)| {
                ['a', 'b'].map(|which| ask(client, &[form_of(&message(number, which))], 1))
            })
            .collect();
        for (number, client) in clients.iter_mut().enumerate() {
            for _ in 0..2 {
                // The answer to the first may come before the second is asked.
                let asked = client.notification("elicitation/create");
                let text = asked["params"]["message"].as_str().unwrap();
                assert!(
                    text.starts_with(&format!("[fix] {number}"))
                        && text.ends_with(&round.to_string()),
                    "{asked}"
                );
                give(client, &asked, r#"{"action":"decline"}"#);
            }
        }
        for (client, calls) in clients.iter_mut().zip(calls) {
            for call in calls {
                assert_eq!(got(&client.answer(call))[0]["result"]["action"], "decline");
            }
        }
    }
    assert!(clients.iter().all(|client| client.others.is_empty()));
    assert_eq!(
        place.started("fix").len(),
        4,
        "a probe and a process for each"
    );
    daemon.stop();
}

#[test]
fn a_question_that_could_be_two_clients_reaches_neither_and_later_ones_their_own() {
    let place = place(&[], json!({}));
    let mut daemon = place.start(&[]);
    let (mut one, mut other) = (
        able(&daemon, LEGACY, everything()),
        able(&daemon, LEGACY, everything()),
    );
    let waiting = one.request_tool("fix__wait", json!({ "until": "first" }));
    wait_for("the call", || place.received("fix", "\"wait\"").pop());
    let call = ask(&mut other, &[form_of("x")], 1);
    let error = got(&other.answer(call))[0]["error"].clone();
    assert_eq!(error["code"], 207, "{error}");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("which of several calls"),
        "{error}"
    );
    place.release("first");
    one.answer(waiting);
    assert!(one.others.is_empty() && other.others.is_empty());
    for until in ["second", "third"] {
        let waiting = one.request_tool("fix__wait", json!({ "until": until }));
        wait_for("the call", || place.received("fix", until).pop());
        is_asked(&mut other, "own");
        // A client that cannot be asked is in nobody's way, and nobody is asked for it.
        let mut unable = daemon.quiet(LEGACY);
        let call = ask(&mut unable, &[form_of("y")], 1);
        assert_eq!(got(&unable.answer(call))[0]["error"]["code"], -32601);
        place.release(until);
        one.answer(waiting);
        assert!(one.others.is_empty() && other.others.is_empty());
        // It is remembered.
        drop((one, other));
        daemon.stop();
        daemon = place.start(&[]);
        (one, other) = (
            able(&daemon, LEGACY, everything()),
            able(&daemon, LEGACY, everything()),
        );
    }
    daemon.stop();
}

#[test]
fn what_a_server_still_asks_about_a_call_that_is_over_reaches_nobody_else() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let (mut one, mut other) = (
        able(&daemon, LEGACY, everything()),
        able(&daemon, LEGACY, everything()),
    );
    let pid = |client: &mut Client| text_of(&client.call("fix__pid", json!({}))).to_owned();
    is_asked(&mut one, "first");
    let first = pid(&mut one);
    assert_eq!(pid(&mut other), first);
    // It goes on all the same.
    let call = ask(&mut one, &[form_of("x")], 2);
    one.message();
    one.notify("notifications/cancelled", json!({ "requestId": call }));
    one.notification("notifications/cancelled");
    // Who cancelled it has the process still.
    assert_eq!(pid(&mut one), first);
    let second = pid(&mut other);
    assert_ne!(second, first);
    assert_eq!(pid(&mut one), second);
    daemon.stop();
}

#[test]
fn changed_roots_reach_the_servers_of_the_client_which_ask_for_them_again() {
    for isolation in ["user", "client"] {
        let place = place(&[], json!({ "isolation": isolation }));
        let daemon = place.start(&[]);
        let mut client = able(&daemon, LEGACY, everything());
        client.call("fix__pid", json!({}));
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed","x":1e400}"#);
        wait_for("the server to be told", || {
            place
                .received("fix", "roots/list_changed\",\"x\":1e400")
                .pop()
        });
        let mut silent = able(&daemon, LEGACY, json!({ "roots": {} }));
        silent.call("fix__pid", json!({}));
        silent.notify("notifications/roots/list_changed", json!({ "silent": 1 }));
        silent.ask("ping", json!({}));
        assert!(place.received("fix", "silent").is_empty());
        daemon.stop();
    }
}

#[test]
fn the_end_of_an_elicitation_by_url_is_told_to_the_client_that_was_asked() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    let mut other = able(&daemon, LEGACY, everything());
    let url = r#"{"mode":"url","message":"m","url":"https://h/","elicitationId":"e1"}"#;
    let call = ask(&mut client, &[request("1", "elicitation/create", url)], 1);
    let asked = client.message();
    assert_eq!(asked["params"]["elicitationId"], "e1");
    give(&mut client, &asked, r#"{"action":"accept"}"#);
    client.answer(call);
    // So is that of one that an error wants.
    let error = r#"{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32042,"message":"open it","data":{"elicitations":[{"mode":"url","message":"m","url":"https://h/","elicitationId":"e3"}]}}}"#;
    place.frame("urls", error.as_bytes());
    let call = client.request_tool("fix__frame", json!({ "case": "urls" }));
    let answer = client.answer(call);
    assert_eq!(
        answer["error"]["data"]["elicitations"][0]["message"], "[fix] m",
        "{answer}"
    );
    let done = r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e3"}}"#;
    let call = ask(&mut other, &[done.to_owned()], 0);
    other.answer(call);
    assert_eq!(client.read().unwrap(), done.as_bytes());
    let complete = r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e1","x":1e400}}"#;
    let unknown = complete.replace("e1\"", "e2\"");
    // The other client's call says so, and the first client is told, once.
    let call = ask(
        &mut other,
        &[unknown, complete.to_owned(), complete.to_owned()],
        0,
    );
    other.answer(call);
    assert_eq!(client.read().unwrap(), complete.as_bytes());
    client.ask("ping", json!({}));
    assert!(client.others.is_empty() && other.others.is_empty());
    daemon.stop();
}

#[test]
fn a_clients_progress_reaches_the_server_that_asked() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    let params = r#"{"_meta":{"progressToken":"p \u0061"}}"#;
    let call = ask(&mut client, &[request("1", "roots/list", params)], 1);
    let asked = client.message();
    let token = &asked["params"]["_meta"]["progressToken"];
    assert_eq!(token, &asked["id"]);
    // Another server's token is nobody's here.
    client.notify(
        "notifications/progress",
        json!({ "progressToken": "p a", "progress": 8 }),
    );
    client.notify(
        "notifications/progress",
        json!({ "progressToken": 1, "progress": 9 }),
    );
    client.notify(
        "notifications/progress",
        json!({ "progressToken": token, "progress": 1 }),
    );
    give(&mut client, &asked, r#"{"roots":[]}"#);
    client.answer(call);
    let told = place.received("fix", "notifications/progress");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains(r#""progressToken":"p \u0061""#),
        "{told:?}"
    );
    daemon.stop();
}

/// Has a modern server ask in these rounds; the call's id.
fn need(client: &mut Client, rounds: &[&str]) -> u64 {
    let id = client.next_id();
    client.send(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"fix__need","arguments":{{"rounds":[{}]}}}}}}"#,
        rounds.join(",")
    ));
    id
}

const MODERN: &[&str] = &["--speak", "2026-07-28"];

#[test]
fn what_a_modern_server_asks_goes_to_a_legacy_client_round_after_round() {
    let place = place(MODERN, json!({}));
    let daemon = place.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    let first = format!(
        r#"{{"a \u0022":{{"method":"elicitation/create","params":{FORM}}},"b":{{"method":"sampling/createMessage","params":{{"messages":[],"maxTokens":1}}}},"c":{{"method":"roots/list"}}}}"#
    );
    let second = r#"{"u":{"method":"elicitation/create","params":{"mode":"url","message":"Go","url":"https://h/"}}}"#;
    let call = need(&mut client, &[&first, second, "{}"]);
    let asked: Vec<Value> = (0..3)
        .map(|_| {
            let line = String::from_utf8(client.read().unwrap()).unwrap();
            serde_json::from_str(&line.replace("1e400", "1")).unwrap()
        })
        .collect();
    assert_eq!(asked[0]["params"]["message"], "[fix] Who?");
    assert_eq!(asked[1]["params"]["systemPrompt"], "[fix]");
    assert_eq!(asked[2]["params"]["_meta"]["org.colibri/server"], "fix");
    // In any order.
    give(&mut client, &asked[2], r#"{"roots":[],"z":1e400}"#);
    give(
        &mut client,
        &asked[0],
        r#"{"action":"accept","content":{"n":"\u0041"}}"#,
    );
    give(
        &mut client,
        &asked[1],
        r#"{"role":"assistant","model":"m","content":{"type":"text","text":"t"}}"#,
    );
    let url = client.message();
    assert_eq!(url["params"]["message"], "[fix] Go");
    assert_eq!(
        url["params"]["elicitationId"],
        format!("colibri-{}", url["id"])
    );
    let retry = place
        .received("fix", "\"requestState\":\"1\"")
        .pop()
        .unwrap();
    for answer in [
        r#""a \u0022":{"action":"accept","content":{"n":"\u0041"}}"#,
        r#""b":{"role":"assistant","model":"m","content":{"type":"text","text":"t"}}"#,
        r#""c":{"roots":[],"z":1e400}"#,
    ] {
        assert!(retry.contains(answer), "{retry}");
    }
    give(&mut client, &url, r#"{"action":"accept"}"#);
    // The third round asks for nothing but another try.
    let answer = client.answer(call);
    assert_eq!(text_of(&answer["result"]), "{}", "{answer}");
    assert!(
        place.received("fix", "\"requestState\":\"2\"")[0]
            .contains(r#""inputResponses":{"u":{"action":"accept"}}"#)
    );
    // What the server was told that it may ask for is what the client can be asked.
    let told: Value =
        serde_json::from_str(&place.received("fix", "tools/call")[0].replace("1e400", "1"))
            .unwrap();
    let mut declared = everything();
    declared["roots"] = json!({});
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"],
        declared
    );
    let events: Vec<Value> = place
        .records()
        .into_iter()
        .filter(|record| record.rec["event"] == "asked" || record.rec["event"] == "answered")
        .map(|record| record.rec["details"]["outcome"].clone())
        .collect();
    assert_eq!(events.len(), 8, "{events:?}");
    assert_eq!(events[..3], [Value::Null, Value::Null, Value::Null]);
    daemon.stop();
}

#[test]
fn a_modern_server_that_cannot_ask_is_refused_with_a_reason() {
    let form = format!(r#"{{"a":{{"method":"elicitation/create","params":{FORM}}}}}"#);
    let roots = r#"{"a":{"method":"roots/list"}}"#;
    for (more, capabilities, rounds, code, why) in [
        (
            json!({}),
            json!({}),
            vec![&*form],
            "ASK_FAILED",
            "did not declare",
        ),
        (
            json!({ "may_ask": ["roots"] }),
            everything(),
            vec![&*form],
            "POLICY_DENIED",
            "may_ask",
        ),
        (
            json!({}),
            everything(),
            vec![r#"{"a":{"method":"tools/list"}}"#],
            "SERVER_ANSWER_INVALID",
            "input_required",
        ),
        (
            json!({}),
            everything(),
            vec![r#"[]"#],
            "SERVER_ANSWER_INVALID",
            "input_required",
        ),
        (
            json!({}),
            everything(),
            vec!["{}"; 11],
            "ASK_FAILED",
            "10 times",
        ),
    ] {
        let place = place(MODERN, more.clone());
        let daemon = place.start(&[]);
        let mut client = able(&daemon, LEGACY, capabilities);
        let call = need(&mut client, &rounds);
        let answer = client.answer(call);
        assert_eq!(code_of(&answer), Some(code), "{more} {answer}");
        assert!(answer.to_string().contains(why), "{answer}");
        assert!(client.others.is_empty(), "{:?}", client.others);
        daemon.stop();
    }
    // The client says no with an error, something odd, or nothing at all until it goes.
    let place = place(MODERN, json!({}));
    let daemon = place.start(&[]);
    for reply in [
        r#""error":{"code":-1,"message":"no"}"#,
        r#""result":7"#,
        r#""result":{"roots":7}"#,
    ] {
        let mut client = able(&daemon, LEGACY, everything());
        let both = r#"{"a":{"method":"roots/list"},"b":{"method":"roots/list"}}"#;
        let call = need(&mut client, &[both]);
        let (asked, other) = (client.message(), client.message());
        client.send(format!(
            r#"{{"jsonrpc":"2.0","id":{},{reply}}}"#,
            asked["id"]
        ));
        let answer = client.answer(call);
        assert_eq!(code_of(&answer), Some("ASK_FAILED"), "{reply} {answer}");
        let told = client.notification("notifications/cancelled");
        assert_eq!(told["params"]["requestId"], other["id"]);
    }
    let mut client = able(&daemon, LEGACY, everything());
    let call = need(&mut client, &[roots]);
    let asked = client.message();
    client.notify("notifications/cancelled", json!({ "requestId": call }));
    let told = client.notification("notifications/cancelled");
    assert_eq!(told["params"]["requestId"], asked["id"]);
    need(&mut client, &[roots]);
    client.message();
    drop(client);
    wait_for("the call to end", || {
        let cancelled = |record: &colibri_tests::Record| record.rec["error_code"] == "CANCELLED";
        (place.records().into_iter().filter(cancelled).count() == 2).then_some(())
    });
    daemon.stop();
}

#[test]
fn confirm_asks_the_person_through_a_legacy_client_while_an_operator_may_decide() {
    let place = place(&[], json!({ "tools": { "confirm": ["count"] } }));
    // The operator is the same user as the caller here, which the file has to allow.
    let uid = nix::unistd::geteuid().to_string();
    let rights = json!({ "gates": ["external-call"], "servers": { "*": ["*"] }, "operator": true, "self_approve": true });
    place.clients(&json!({ "users": { uid: rights } }).to_string());
    let daemon = place.start(&[]);
    let decide = |what: &str| {
        let shown = place.colibri_mcp(&["approvals"]).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let is_id =
            |word: &&str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = shown
            .split_whitespace()
            .find(is_id)
            .unwrap_or_else(|| panic!("{shown}"));
        let decided = place
            .colibri_mcp(&["approvals", what, id])
            .output()
            .unwrap();
        assert!(decided.status.success(), "{decided:?}");
    };
    let effects = || place.recorded("fix", "effect").len();
    let mut client = able(&daemon, "2025-06-18", json!({ "elicitation": {} }));
    let arguments = json!({ "path": "/etc", "password": "s3cret" });
    for (reply, allowed) in [
        (r#""result":{"action":"accept","content":{}}"#, Some(true)),
        (r#""result":{"action":"decline"}"#, Some(false)),
        (r#""result":{"action":"cancel"}"#, Some(false)),
        // What cannot be read decides nothing: the operator does.
        (r#""result":{"action":"yes"}"#, None),
        (r#""error":{"code":-1,"message":"no"}"#, None),
    ] {
        let before = effects();
        let call = client.request_tool("fix__count", arguments.clone());
        let asked = client.message();
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("[fix] ") && message.contains("count") && message.contains("/etc"),
            "{message}"
        );
        assert!(
            message.contains("s3cret"),
            "nothing is hidden from who decides: {message}"
        );
        if allowed.is_some() {
            wait_as_a_person();
        }
        client.send(format!(
            r#"{{"jsonrpc":"2.0","id":{},{reply}}}"#,
            asked["id"]
        ));
        if allowed.is_none() {
            decide("approve");
        }
        let answer = client.answer(call);
        let is_allowed = allowed.unwrap_or(true);
        assert_eq!(
            code_of(&answer),
            (!is_allowed).then_some("APPROVAL_DENIED"),
            "{reply} {answer}"
        );
        assert_eq!(effects() - before, usize::from(is_allowed), "{reply}");
    }
    // The operator is first.
    for (what, code) in [("approve", None), ("deny", Some("APPROVAL_DENIED"))] {
        let call = client.request_tool("fix__count", arguments.clone());
        let asked = client.message();
        decide(what);
        assert_eq!(code_of(&client.answer(call)), code);
        let told = client.notification("notifications/cancelled");
        assert_eq!(told["params"]["requestId"], asked["id"]);
        give(&mut client, &asked, r#"{"action":"accept"}"#);
    }
    // Nobody is asked twice, and who goes is asked no more.
    let shown = place.colibri_mcp(&["approvals"]).output().unwrap();
    assert!(
        !String::from_utf8_lossy(&shown.stdout).contains("count"),
        "{shown:?}"
    );
    let before = effects();
    let call = client.request_tool("fix__count", arguments.clone());
    let asked = client.message();
    client.notify("notifications/cancelled", json!({ "requestId": call }));
    let told = client.notification("notifications/cancelled");
    assert_eq!(told["params"]["requestId"], asked["id"]);
    assert_eq!(effects(), before);
    daemon.stop();
}

/// Calls as a headless client, whose program replies with this action: the message that a person
/// should have read, and the id under which the call is answered.
fn reply_without_a_person(client: &mut Client, action: &str) -> (String, u64) {
    let mut meta = headless_meta();
    if client.era == Era::Modern {
        meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": HEADLESS, "version": "1" });
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    }
    let mut params =
        json!({ "name": "fix__count", "arguments": { "path": "/etc" }, "_meta": meta });
    let call = client.request("tools/call", params.clone());
    if client.era == Era::Legacy {
        let asked = client.notification("elicitation/create");
        give(client, &asked, &json!({ "action": action }).to_string());
        return (
            asked["params"]["message"].as_str().unwrap().to_owned(),
            call,
        );
    }
    let asked = client.answer(call)["result"].take();
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = json!({ "confirm": { "action": action } });
    let message = asked["inputRequests"]["confirm"]["params"]["message"]
        .as_str()
        .unwrap();
    (message.to_owned(), client.request("tools/call", params))
}

#[test]
fn what_a_headless_client_replies_leaves_its_call_to_an_operator() {
    let place = place(&[], json!({ "tools": { "confirm": ["count"] } }));
    let uid = nix::unistd::geteuid().to_string();
    let rights = json!({ "gates": ["external-call"], "servers": { "*": ["*"] }, "operator": true, "self_approve": true });
    place.clients(&json!({ "users": { uid: rights } }).to_string());
    let daemon = place.start(&[]);
    let replies = || {
        let records = place.records().into_iter();
        let answered = records.filter(|record| record.rec["event"] == "answered");
        answered
            .map(|record| record.rec["details"].clone())
            .collect::<Vec<_>>()
    };
    let mut operator = daemon.modern();
    let mut count = 0;
    let mut legacy = daemon.connect();
    legacy.open_as(HEADLESS, "2025-06-18", json!({ "elicitation": {} }));
    for mut client in [legacy, daemon.modern()] {
        for (action, command) in [
            ("decline", "approve"),
            ("cancel", "approve"),
            ("accept", "approve"),
            ("accept", "deny"),
        ] {
            let before = place.recorded("fix", "effect").len();
            let (message, call) = reply_without_a_person(&mut client, action);
            assert!(message.starts_with("[fix] "), "{message}");
            count += 1;
            let reply = wait_for("the reply", || replies().get(count - 1).cloned());
            assert_eq!(
                (&reply["outcome"], &reply["answered_by"]),
                (&json!(action), &json!("program")),
                "{reply}"
            );
            let waiting =
                operator.ask("colibri/approvals", json!({}))["result"]["approvals"].take();
            assert_eq!(
                (&waiting[0]["server"], &waiting[0]["tool"]),
                (&json!("fix"), &json!("count")),
                "{waiting}"
            );
            assert_eq!(place.recorded("fix", "effect").len(), before, "{action}");
            let id = waiting[0]["id"].as_str().unwrap();
            let decided = place
                .colibri_mcp(&["approvals", command, id])
                .output()
                .unwrap();
            assert!(decided.status.success(), "{decided:?}");
            let answer = client.answer(call);
            let is_allowed = command == "approve";
            assert_eq!(
                code_of(&answer),
                (!is_allowed).then_some("APPROVAL_DENIED"),
                "{action} {answer}"
            );
            assert_eq!(
                place.recorded("fix", "effect").len() - before,
                usize::from(is_allowed),
                "{action}"
            );
        }
    }
    daemon.stop();
    place.assert_trail_is_sound();
}

#[test]
fn what_a_modern_server_may_not_ask_reaches_no_modern_client_either() {
    let place = place(MODERN, json!({ "may_ask": ["roots"] }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    for (requests, code) in [
        (
            format!(r#"{{"a":{{"method":"elicitation/create","params":{FORM}}}}}"#),
            Some("POLICY_DENIED"),
        ),
        (r#"{"a":{"method":"roots/list"}}"#.to_owned(), None),
    ] {
        let id = client.next_id();
        let capabilities = r#"{"elicitation":{},"roots":{}}"#;
        let meta = colibri_tests::modern_meta().replace(
            "clientCapabilities\":{}",
            &format!("clientCapabilities\":{capabilities}"),
        );
        client.send(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"fix__need","arguments":{{"rounds":[{requests}]}},"_meta":{{{meta}}}}}}}"#
        ));
        let answer = client.answer(id);
        assert_eq!(code_of(&answer), code, "{answer}");
        let is_asked = answer["result"]["resultType"] == "input_required";
        assert_eq!(is_asked, code.is_none(), "{answer}");
    }
    let asked = |record: &colibri_tests::Record| record.rec["event"] == "asked";
    assert_eq!(place.records().into_iter().filter(asked).count(), 1);
    daemon.stop();
}

#[test]
fn over_http_a_request_comes_on_the_stream_of_its_call_and_is_answered_by_another_post() {
    let place = place(&[], json!({ "isolation": "client" }));
    let daemon = place.start(&[]);
    let (mut one, mut other) = (daemon.http(), daemon.http());
    let session = one.open(LEGACY);
    let lines = json!({ "lines": [request("1", "roots/list", "{}")], "wait": 1 });
    for round in 1..=2 {
        one.call_in(&session, round, "fix__say", lines.clone());
        assert!(one.response().is_stream());
        let asked = std::iter::from_fn(|| one.event())
            .find(|event| event.message["method"] == "roots/list");
        let asked = asked.expect("a request").message;
        let answer = |what: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[{what}]}}}}"#,
                asked["id"]
            )
        };
        // Another session's answer is a stray, whatever it says.
        let stranger = other.open(LEGACY);
        other.in_session(&stranger, &answer("7"));
        assert_eq!(other.response().status, 202);
        if round == 1 {
            other.in_session(&session, &answer(""));
            assert_eq!(other.response().status, 202);
            let events = one.events();
            assert!(
                events[0].message.to_string().contains("roots"),
                "{events:?}"
            );
        } else {
            // The session's end ends what it is asked.
            other.send(&colibri_tests::http::request(
                "DELETE",
                &[("Mcp-Session-Id", &session)],
                "",
            ));
            other.response();
            wait_for("the server to be told or ended", || {
                let ended = place
                    .record("fix")
                    .into_iter()
                    .any(|(_, kind, _)| kind == "eof");
                ended.then_some(())
            });
        }
    }
    assert!(place.received("fix", "[7]").is_empty());
    daemon.stop();
}

#[test]
fn a_person_is_asked_no_more_than_clients_json_lets_servers() {
    let denied = |place: &Place| {
        let records = place.records();
        let denied = records
            .iter()
            .filter(|record| record.rec["details"]["outcome"] == "denied");
        denied.count()
    };
    let rights = json!({ "gates": ["external-call"], "servers": { "*": ["*"] }, "ask": ["roots"] });
    let clients = json!({ "users": { nix::unistd::geteuid().to_string(): rights } }).to_string();
    // A legacy server hears that the client cannot be asked.
    let legacy = place(&[], json!({}));
    legacy.clients(&clients);
    let daemon = legacy.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    let lines = [
        request("1", "elicitation/create", FORM),
        request("2", "roots/list", "{}"),
    ];
    let call = ask(&mut client, &lines, 2);
    let asked = client.message();
    assert_eq!(asked["method"], "roots/list", "{asked}");
    give(&mut client, &asked, r#"{"roots":[]}"#);
    let answers = got(&client.answer(call));
    let refused = answers.iter().find(|answer| answer["id"] == 1).unwrap();
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    daemon.stop();
    assert_eq!(denied(&legacy), 1);
    // A modern one's answer that asks is not relayed, and says by which rule.
    let modern = place(MODERN, json!({}));
    modern.clients(&clients);
    let daemon = modern.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    let call = need(
        &mut client,
        &[&format!(
            r#"{{"a":{{"method":"elicitation/create","params":{FORM}}}}}"#
        )],
    );
    let answer = client.answer(call);
    assert_eq!(code_of(&answer), Some("POLICY_DENIED"), "{answer}");
    assert!(answer.to_string().contains(".ask"), "{answer}");
    daemon.stop();
    assert_eq!(denied(&modern), 1);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root, to be somebody else")]
fn two_users_of_one_server_are_never_asked_about_each_others_calls() {
    let place = place(&[], json!({}));
    place.open_to_group();
    let daemon = place.start(&[]);
    let mut client = able(&daemon, LEGACY, everything());
    // A call of the one who can be asked is in flight all the time.
    let waiting = client.request_tool("fix__wait", json!({ "until": "done" }));
    wait_for("the call", || place.received("fix", "\"wait\"").pop());
    let arguments = json!({ "lines": [request("1", "elicitation/create", FORM), request("2", "roots/list", "{}")],
        "wait": 2 });
    let stranger = place
        .stranger(&["call", "fix", "say", "--args", &arguments.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&stranger.stdout);
    // Their process is another one, and nobody of theirs can be asked.
    assert_eq!(said.matches("\"error\"").count(), 2, "{said} {stranger:?}");
    client.ask("ping", json!({}));
    assert!(client.others.is_empty(), "{:?}", client.others);
    place.release("done");
    client.answer(waiting);
    let asked = |record: &colibri_tests::Record| record.rec["event"] == "asked";
    assert!(!place.records().iter().any(asked));
    daemon.stop();
}

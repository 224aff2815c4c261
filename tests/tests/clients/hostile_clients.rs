//! Clients that break the rules: each gets an answer or a clean end, memory stays bounded, and the
//! other clients are served meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use colibri_tests::{Daemon, LEGACY, MODERN, Place, code_of, modern_meta, text_of, wait_for};
use serde_json::{Value, json};

/// The most memory that the daemon may ever use here.
const MAX_MEMORY: u64 = 400 * 1024 * 1024;

/// A place with one fixture server called `fix`.
fn place(more: Value) -> Place {
    Place::of_fixture(&[], more)
}

/// Another client is served, and the daemon is not larger than it may be.
fn assert_well(daemon: &Daemon<'_>) {
    daemon.assert_serves("fix__count");
    let resident = daemon.resident().unwrap_or(0);
    assert!(resident < MAX_MEMORY, "the daemon uses {resident} bytes");
}

/// A call of the fixture's tool `count` under this id.
fn call(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"fix__count","arguments":{{}}}}}}"#
    )
}

#[test]
fn one_that_never_reads() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut deaf = daemon.legacy(LEGACY);
    for _ in 0..100 {
        deaf.request_tool("fix__huge", json!({ "bytes": 1 << 20 }));
    }
    wait_for("the daemon to lose patience", || {
        assert_well(&daemon);
        daemon.log().contains("client does not read").then_some(())
    });
    while deaf.read_lossy().is_some() {}
    assert_well(&daemon);
}

#[test]
fn one_that_half_closes_gets_its_answers() {
    let place = place(json!({}));
    let daemon = place.start(&["--log-level", "warn"]);
    for round in 0..50 {
        let mut client = daemon.quiet(LEGACY);
        let count = round % 7;
        let ids: BTreeSet<u64> = (0..count)
            .map(|_| client.request_tool("fix__count", json!({})))
            .collect();
        client.half_close();
        let mut answered = BTreeSet::new();
        while let Some(line) = client.read() {
            let message: Value = serde_json::from_slice(&line).unwrap();
            answered.extend(message["id"].as_u64());
        }
        assert_eq!(answered, ids, "round {round}");
    }
    assert_well(&daemon);
}

#[test]
fn one_that_half_closes_in_the_middle_of_a_line() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    // The last line needs no end.
    client.send_raw(call("1000").as_bytes());
    client.half_close();
    assert_eq!(text_of(&client.answer(1000)["result"]), "counted");
    let mut client = daemon.quiet(LEGACY);
    client.send_raw(&call("1000").as_bytes()[..40]);
    client.half_close();
    let answer = client.message();
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    assert_eq!(client.read(), None);
    assert_well(&daemon);
}

#[test]
fn one_that_leaves_with_a_hundred_calls_in_flight() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    for _ in 0..100 {
        client.request_tool("fix__wait", json!({ "until": "never" }));
    }
    let calls = wait_for("the calls", || {
        let calls = place.received("fix", "\"wait\"");
        (calls.len() == 100).then_some(calls)
    });
    drop(client);
    let told = wait_for("the cancellations", || {
        let told = place.received("fix", "notifications/cancelled");
        (told.len() == 100).then_some(told)
    });
    let ids = |lines: &[String], path: &str| -> BTreeSet<u64> {
        let values = lines
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        values
            .map(|value| value.pointer(path).unwrap().as_u64().unwrap())
            .collect()
    };
    assert_eq!(ids(&calls, "/id"), ids(&told, "/params/requestId"));
    assert_well(&daemon);
    assert_eq!(
        place.received("fix", "notifications/cancelled").len(),
        100,
        "told more than once"
    );
}

/// It has read all that it was sent, so the system reports its end like that of a client which only
/// closed its side.
#[test]
fn one_that_leaves_quietly_with_a_call_in_flight() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    client.request_tool("fix__never", json!({}));
    wait_for("the call", || place.received("fix", "\"never\"").pop());
    drop(client);
    wait_for("the cancellation", || {
        place.received("fix", "notifications/cancelled").pop()
    });
    assert_well(&daemon);
}

#[test]
fn one_that_repeats_ids() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    client.send(
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fix__wait","arguments":{"until":"told"}}}"#,
    );
    wait_for("the call", || place.received("fix", "\"wait\"").pop());
    for _ in 0..3 {
        client.send(call("7"));
        let answer = client.answer(7);
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }
    // Another kind of value is another id.
    client.send(call("\"7\""));
    let answer = client.message();
    assert_eq!(
        (&answer["id"], text_of(&answer["result"])),
        (&json!("7"), "counted")
    );
    place.release("told");
    assert_eq!(text_of(&client.answer(7)["result"]), "told");
    client.send(call("7"));
    assert_eq!(text_of(&client.answer(7)["result"]), "counted");
    assert_well(&daemon);
}

#[test]
fn one_that_sends_ten_thousand_requests_at_once() {
    let place = place(json!({ "timeout_ms": 600_000 }));
    let daemon = place.start(&["--log-level", "warn"]);
    let mut client = daemon.legacy(LEGACY);
    client.call("fix__count", json!({}));
    let lines: String = (0..10_000)
        .map(|n| call(&format!("\"n{n}\"")) + "\n")
        .collect();
    client.send_raw(lines.as_bytes());
    let mut answers: BTreeMap<String, Value> = BTreeMap::new();
    while answers.len() < 10_000 {
        let message = client.message();
        let Some(id) = message["id"].as_str() else {
            continue;
        };
        assert!(
            answers.insert(id.to_owned(), message.clone()).is_none(),
            "answered twice: {message}"
        );
    }
    let counted = answers
        .values()
        .filter(|answer| text_of(&answer["result"]) == "counted")
        .count();
    let limited = answers
        .values()
        .filter(|answer| code_of(answer) == Some("LIMIT_IN_FLIGHT"))
        .count();
    assert_eq!(counted + limited, 10_000);
    assert!(counted >= 256, "only {counted} calls were made");
    // Effects are as many as answers say, and the one before.
    assert_eq!(place.recorded("fix", "effect").len(), counted + 1);
    assert_well(&daemon);
}

#[test]
fn one_over_its_limit_can_still_cancel() {
    let place = place(json!({}));
    place.limits(json!({ "calls_per_client": 2 }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let first = client.request_tool("fix__wait", json!({ "until": "never" }));
    let second = client.request_tool("fix__wait", json!({ "until": "told" }));
    let refused = client.ask(
        "tools/call",
        json!({ "name": "fix__count", "arguments": {} }),
    );
    assert_eq!(code_of(&refused), Some("LIMIT_IN_FLIGHT"), "{refused}");
    wait_for("the calls", || {
        (place.received("fix", "\"wait\"").len() == 2).then_some(())
    });
    client.notify("notifications/cancelled", json!({ "requestId": first }));
    wait_for("the cancellation", || {
        place.received("fix", "notifications/cancelled").pop()
    });
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    place.release("told");
    assert_eq!(text_of(&client.answer(second)["result"]), "told");
}

#[test]
fn one_that_sends_what_is_no_text() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    for (line, code) in [
        (b"\xff\xfe\xfd".as_slice(), -32700),
        (b"\x00\x01\x02\x1b[2J", -32700),
        (b"GET / HTTP/1.1", -32700),
        (b"\x16\x03\x01\x02\x00\x01", -32700),
        (b"{", -32700),
        (b"}", -32700),
        (b"\"text\"", -32600),
        (b"17", -32600),
        (b"null", -32600),
        (b"{}", -32600),
    ] {
        client.send(line);
        let answer = client.message();
        assert_eq!(
            answer["error"]["code"],
            code,
            "{}: {answer}",
            String::from_utf8_lossy(line)
        );
        assert_eq!(answer["id"], Value::Null);
    }
    // Empty lines say nothing, and a carriage return belongs to the line's end.
    client.send_raw(b"\n\r\n  \n\t\r\n");
    client.send_raw(format!("{}\r\n", call("5000")).as_bytes());
    assert_eq!(text_of(&client.answer(5000)["result"]), "counted");
    assert!(client.others.is_empty(), "{:?}", client.others);
    assert!(
        !daemon.log().contains('\u{1b}'),
        "a client's control characters reach the log"
    );
    assert_well(&daemon);
}

#[test]
fn one_that_sends_batches_where_there_are_none() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let batch = format!("[{},{}]", call("1"), call("2"));
    for version in ["2024-11-05", "2025-06-18", LEGACY] {
        let mut client = daemon.quiet(version);
        client.send(&batch);
        let answer = client.message();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&Value::Null, &json!(-32600)),
            "{version}: {answer}"
        );
        assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    }
    // Nor before any handshake, nor for modern requests.
    let mut fresh = daemon.connect();
    fresh.send(&batch);
    assert_eq!(fresh.message()["error"]["code"], -32600);
    let modern = call("1").replace(
        "\"arguments\":{}",
        &format!("\"_meta\":{{{}}}", modern_meta()),
    );
    assert!(modern.contains(MODERN));
    fresh.send(format!("[{modern}]"));
    assert_eq!(fresh.message()["error"]["code"], -32600);
    assert_eq!(
        place.received("fix", "\"count\"").len(),
        0,
        "a batch was run"
    );
    assert_well(&daemon);
}

#[test]
fn one_that_misuses_batches_where_there_are_some() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet("2025-03-26");
    client.send("[]");
    assert_eq!(client.message()["error"]["code"], -32600);
    let many = vec![call("1"); 1001].join(",");
    client.send(format!("[{many}]"));
    assert_eq!(client.message()["error"]["code"], -32600);
    client.send(format!("[[{}],{}]", call("3"), call("4")));
    let answers = client.message();
    assert_eq!(answers.as_array().unwrap().len(), 2, "{answers}");
    client.send(r#"[{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}]"#);
    let answers = client.message();
    assert!(answers[0]["error"].is_object(), "{answers}");
    // The same id twice in one batch: both are answered.
    client.send(format!("[{},{}]", call("6"), call("6")));
    assert_eq!(client.message().as_array().unwrap().len(), 2);
    // More than may be in flight: all are answered, together.
    let many: Vec<String> = (100..700).map(|n| call(&n.to_string())).collect();
    client.send(format!("[{}]", many.join(",")));
    assert_eq!(client.message().as_array().unwrap().len(), 600);
    assert_well(&daemon);
}

#[test]
fn one_with_keys_that_can_be_taken_for_one() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    for params in [
        r#"{"name":"colibri_status","NAME":"fix__count"}"#,
        r#"{"name":"colibri_status","nam\u0065":"fix__count"}"#,
        r#"{"name":"colibri_status","ｎame":"fix__count"}"#,
        r#"{"name":"colibri_status","n\u0000ame":"fix__count"}"#,
        r#"{"name":"fix__count","arguments":{},"Arguments":{"x":1}}"#,
        r#"{"name":"fix__count","_meta":{},"_Meta":{}}"#,
    ] {
        client.send(format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{params}}}"#
        ));
        let answer = client.answer(9);
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
    assert!(place.received("fix", "\"count\"").is_empty());
    assert_well(&daemon);
}

#[test]
fn one_that_sends_lines_over_the_limit() {
    let place = place(json!({}));
    place.limits(json!({ "message_bytes": "64K" }));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    for (before, id) in [
        (
            r#"{"jsonrpc":"2.0","id":"early","method":"tools/call","params":{"name":""#,
            json!("early"),
        ),
        (
            r#"{"method":"tools/call","params":{"id":1,"name":""#,
            json!("late"),
        ),
    ] {
        let after = if id == "late" {
            r#""},"id":"late","jsonrpc":"2.0"}"#
        } else {
            "\"}}"
        };
        client.send([before.as_bytes(), &vec![b'x'; 100_000], after.as_bytes()].concat());
        let answer = client.message();
        assert_eq!(
            (code_of(&answer), &answer["id"]),
            (Some("FRAME_TOO_LONG"), &id),
            "{answer}"
        );
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains("65536"),
            "{answer}"
        );
    }
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    // One that does not end at all is the end of the connection.
    let mut endless = daemon.quiet(LEGACY);
    let mut sent = 0u64;
    while endless.send_raw(&[b'x'; 65_536]) {
        sent += 65_536;
        assert!(sent < 1 << 30, "the daemon reads for ever");
    }
    let mut last = None;
    while let Some(line) = endless.read_lossy() {
        last = Some(line);
    }
    if let Some(line) = last {
        let answer: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(code_of(&answer), Some("FRAME_TOO_LONG"), "{answer}");
    }
    assert_well(&daemon);
}

#[test]
fn one_that_sends_endless_lines_of_the_usual_limit() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut endless = daemon.connect();
    let mut sent = 0u64;
    let chunk = vec![b'['; 1 << 20];
    while endless.send_raw(&chunk) {
        sent += chunk.len() as u64;
        assert!(sent < 1 << 30, "the daemon reads for ever");
        if sent.is_multiple_of(8 << 20) {
            assert_well(&daemon);
        }
    }
    assert_well(&daemon);
}

#[test]
fn ones_that_do_not_end_their_lines() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let chunk = vec![b'['; 1 << 20];
    let mut clients: Vec<_> = (0..30).map(|_| daemon.connect()).collect();
    for _ in 0..15 {
        for client in &mut clients {
            client.send_raw(&chunk);
        }
        assert_well(&daemon);
    }
    daemon.wait_for_log("the largest is let go");
    assert_well(&daemon);
}

#[test]
fn one_that_asks_for_long_lists_and_does_not_read() {
    let place = place(json!({}));
    let description = "x".repeat(100_000);
    let tools = (0..40).map(
        |index| json!({ "name": format!("t{index}"), "description": description, "inputSchema": { "type": "object" } }),
    );
    let count = json!({ "name": "count", "inputSchema": { "type": "object" } });
    let tools: Vec<_> = tools.chain([count]).collect();
    place.defines("fix", "definitions", &json!(tools).to_string());
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let first = client.request("tools/list", json!({}));
    assert!(client.answer(first).to_string().len() > 4_000_000);
    for _ in 0..250 {
        client.request("tools/list", json!({}));
    }
    for _ in 0..20 {
        assert_well(&daemon);
    }
    // It gets them all if it reads.
    let lines = std::iter::from_fn(|| client.read());
    // On a slow machine the list changes once more, as soon as its server has been read.
    let answers = lines.filter(|line| !String::from_utf8_lossy(line).ends_with("list_changed\"}"));
    for answer in answers.take(250) {
        assert!(
            answer.len() > 4_000_000,
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    assert_well(&daemon);
}

#[test]
fn one_with_strange_hellos() {
    let place = place(json!({}));
    let daemon = place.start(&["--write"]);
    // What is no hello is a message, and what is one closes at least what it names.
    for (line, narrowed) in [
        (r#"{"colibri":1,"narrow":["external"]}"#, true),
        (r#"{"colibri":2,"narrow":["external","else"]}"#, true),
        (
            r#" { "narrow" : [ "\u0065xternal" ] , "colibri" : null } "#,
            true,
        ),
        (r#"{"colibri":1,"narrow":[17]}"#, true),
        (r#"{"colibri":1}"#, false),
        (r#"{"colibri":1,"narrow":[]}"#, false),
    ] {
        let mut client = daemon.connect();
        client.send(line);
        client.open(LEGACY);
        let answer = client.call("fix__count", json!({}));
        assert_eq!(
            code_of(&answer) == Some("GATE_CLOSED"),
            narrowed,
            "{line}: {answer}"
        );
    }
    for line in [
        r#"{"hello":1}"#,
        r#"["colibri"]"#,
        r#"{"colibri":1"#,
        r#"{"colibri":1,"jsonrpc":"2.0"}"#,
    ] {
        let mut client = daemon.connect();
        client.send(line);
        assert!(client.message()["error"].is_object(), "{line}");
    }
    // A letter begins HTTP.
    let mut client = daemon.connect();
    client.send("colibri");
    assert!(client.read().unwrap().starts_with(b"HTTP/1.1 4"));
    // A hello that comes late closes and opens nothing, and is no message.
    let mut client = daemon.legacy(LEGACY);
    client.send(r#"{"colibri":1,"narrow":["external"]}"#);
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    assert_well(&daemon);
}

#[test]
fn ones_that_come_and_go_leave_nothing() {
    let place = place(json!({ "isolation": "client" }));
    let daemon = place.start(&["--log-level", "warn"]);
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
            .map(Iterator::count)
            .ok()
    };
    daemon.assert_serves("colibri_status");
    let before = descriptors();
    for n in 0..300 {
        let mut client = daemon.connect();
        match n % 4 {
            0 => {}
            1 => drop(client.send_raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"meth")),
            2 => drop(client.send(call("1"))),
            _ => client.open(LEGACY),
        }
    }
    if let Some(before) = before {
        wait_for("the descriptors to be given back", || {
            (descriptors()? <= before + 1).then_some(())
        });
    }
    assert_well(&daemon);
}

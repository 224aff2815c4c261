//! Streamable HTTP on the daemon's socket: what clients of both eras get, and what those get that
//! break the rules.

use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use colibri_tests::http::{Event, Http, meta, request};
use colibri_tests::{Daemon, LEGACY, MODERN, Place, copy_program, program, text_of, wait_for};
use serde_json::{Value, json};

/// A place with one fixture server called `fix`.
fn place() -> Place {
    Place::of_fixture(&[], json!({}))
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({ "name": format!("fix__{tool}"), "arguments": arguments })
}

/// What a client gets that has the fixture's `count` called.
fn assert_serves(daemon: &Daemon<'_>) {
    let response = daemon
        .http()
        .asked(json!(1), "tools/call", call("count", json!({})));
    assert_eq!(response.status, 200, "{}", response.json());
    assert_eq!(text_of(&response.json()["result"]), "counted");
}

/// The server of this name has received a cancellation.
fn wait_for_cancellation(place: &Place) {
    wait_for("a cancellation", || {
        let cancelled = place.received("fix", "notifications/cancelled");
        (!cancelled.is_empty()).then_some(())
    });
}

fn wait_for_call(place: &Place, tool: &str) {
    wait_for("a call", || {
        (!place.received("fix", &format!("\"{tool}\"")).is_empty()).then_some(())
    });
}

/// What the daemon says of itself.
fn facts(client: &mut Http) -> Value {
    let status = client.asked(json!(1), "tools/call", json!({ "name": "colibri_status" }));
    serde_json::from_str(
        status.json()["result"]["content"][1]["text"]
            .as_str()
            .unwrap(),
    )
    .unwrap()
}

/// Waits until so many clients are connected, this one among them.
fn wait_for_clients(client: &mut Http, number: u64) {
    wait_for("the connections", || {
        (facts(client)["clients"] == number).then_some(())
    });
}

// ---- modern ----

#[test]
fn an_answer_alone_is_json_and_anything_before_it_begins_a_stream() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    for id in [json!(7), json!("seven"), json!(7)] {
        let response = client.asked(id.clone(), "tools/call", call("echo", json!({ "a": "é" })));
        assert_eq!(
            (response.status, response.field("content-type")),
            (200, Some("application/json"))
        );
        assert_eq!(response.json()["id"], id);
        assert_eq!(response.json()["result"]["resultType"], "complete");
    }
    // On the same connection.
    let mut params = call("progress", json!({ "n": 50 }));
    params["_meta"] = json!({ "progressToken": "p" });
    client.ask(json!(1), "tools/call", params);
    let response = client.response();
    assert!(response.is_stream() && response.status == 200);
    assert_eq!(response.field("x-accel-buffering"), Some("no"));
    let events = client.events();
    let (answer, progress) = events.split_last().unwrap();
    let counted: Vec<_> = progress
        .iter()
        .map(|event| event.message["params"]["progress"].clone())
        .collect();
    assert_eq!(counted, (1..=50).map(|n| json!(n)).collect::<Vec<_>>());
    assert_eq!(
        (&answer.message["id"], text_of(&answer.message["result"])),
        (&json!(1), "done")
    );
    assert!(
        events.iter().all(|event| event.id.is_none()),
        "modern streams are not read on"
    );
    let again = client.asked(json!(2), "server/discover", json!({}));
    assert_eq!(again.json()["result"]["supportedVersions"], json!([MODERN]));
    daemon.stop();
}

#[test]
fn ids_are_a_posts_own() {
    let place = place();
    let daemon = place.start(&[]);
    let mut clients: Vec<_> = (0..20).map(|_| daemon.http()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask(
            json!(1),
            "tools/call",
            call("wait", json!({ "until": format!("w{}", number % 4) })),
        );
    }
    wait_for("all calls", || {
        (place.received("fix", "\"wait\"").len() == 20).then_some(())
    });
    for until in ["w3", "w1", "w2", "w0"] {
        place.release(until);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let answer = client.response().json();
        assert_eq!(
            (&answer["id"], text_of(&answer["result"])),
            (&json!(1), &*format!("w{}", number % 4))
        );
    }
    daemon.stop();
}

#[test]
fn head_and_body_have_to_say_the_same() {
    let place = place();
    place.defines(
        "fix",
        "definitions",
        r#"[{"name":"echo","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}},{"name":"count","inputSchema":{"type":"object"}}]"#,
    );
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    client.asked(json!(0), "tools/list", json!({}));
    let body = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": "i", "method": method, "params": params }).to_string()
    };
    let with_meta = |mut params: Value| {
        params["_meta"] = meta();
        params
    };
    let counted = body("tools/call", with_meta(json!({ "name": "fix__count" })));
    let (version, method, name) = (
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "fix__count"),
    );
    for (fields, body, status, error) in [
        (vec![version, method, name], counted.clone(), 200, None),
        (
            vec![
                ("mcp-PROTOCOL-version", MODERN),
                method,
                ("mcp-name", "  fix__count "),
            ],
            counted.clone(),
            200,
            None,
        ),
        (
            vec![version, method, ("Mcp-Name", "=?base64?Zml4X19jb3VudA==?=")],
            counted.clone(),
            200,
            None,
        ),
        (
            vec![version, method, ("Mcp-Name", "=?base64?Zml4X19jb3VudA?=")],
            counted.clone(),
            400,
            Some(-32020),
        ),
        (
            vec![version, method, ("Mcp-Name", "fix__echo")],
            counted.clone(),
            400,
            Some(-32020),
        ),
        (vec![version, method], counted.clone(), 400, Some(-32020)),
        (
            vec![version, ("Mcp-Method", "Tools/Call"), name],
            counted.clone(),
            400,
            Some(-32020),
        ),
        (vec![version, name], counted.clone(), 400, Some(-32020)),
        (vec![method, name], counted.clone(), 400, Some(-32020)),
        (
            vec![("MCP-Protocol-Version", LEGACY), method, name],
            counted.clone(),
            400,
            Some(-32020),
        ),
        (
            vec![("MCP-Protocol-Version", "2027-01-01"), method, name],
            counted.clone(),
            400,
            Some(-32020),
        ),
        (
            vec![version, ("Mcp-Method", "tools/list")],
            body("tools/list", json!({})),
            400,
            Some(-32602),
        ),
        (
            vec![version, ("Mcp-Method", "initialize")],
            body("initialize", with_meta(json!({}))),
            404,
            Some(-32601),
        ),
        (
            vec![version, ("Mcp-Method", "no/such")],
            body("no/such", with_meta(json!({}))),
            404,
            Some(-32601),
        ),
        (
            vec![version, ("Mcp-Method", "colibri/overview")],
            body("colibri/overview", with_meta(json!({}))),
            404,
            Some(-32601),
        ),
        (
            vec![
                ("MCP-Protocol-Version", "2027-01-01"),
                ("Mcp-Method", "tools/list"),
            ],
            body(
                "tools/list",
                json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2027-01-01",
                                                   "io.modelcontextprotocol/clientCapabilities": {} } }),
            ),
            400,
            Some(-32022),
        ),
        (vec![], body("tools/list", json!({})), 400, Some(-32600)),
        (vec![version], "{".to_owned(), 400, Some(-32700)),
        (vec![version], "[]".to_owned(), 400, Some(-32600)),
        (
            vec![version],
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
            400,
            Some(-32600),
        ),
    ] {
        client.post(&fields, &body);
        let response = client.response();
        assert_eq!(
            (response.status, response.error()),
            (status, error),
            "{fields:?} {body} {}",
            response.json()
        );
    }
    // A notification has nothing to answer.
    client.post(
        &[version],
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"i"}}"#,
    );
    let response = client.response();
    assert_eq!((response.status, response.body.len()), (202, 0));
    // What the tool's schema has repeated.
    for (said, argument, status) in [
        (Some("us-west1"), json!({ "region": "us-west1" }), 200),
        (
            Some("=?base64?dXMtd2VzdDE=?="),
            json!({ "region": "us-west1" }),
            200,
        ),
        (Some("us-east1"), json!({ "region": "us-west1" }), 400),
        (None, json!({ "region": "us-west1" }), 400),
        (None, json!({}), 200),
        (Some("us-west1"), json!({}), 400),
    ] {
        let fields: Vec<_> = said
            .iter()
            .map(|said| ("Mcp-Param-Region", *said))
            .collect();
        client.ask_with(
            &fields,
            json!(1),
            "tools/call",
            call("echo", argument.clone()),
        );
        let response = client.response();
        assert_eq!(response.status, status, "{said:?} {argument}");
        assert_eq!(response.error(), (status == 400).then_some(-32020));
    }
    // What was refused went nowhere, and is recorded.
    assert_eq!(place.received("fix", "\"echo\"").len(), 3);
    daemon.stop();
    let refused = place
        .trail()
        .iter()
        .filter(|record| record["error_code"] == "-32020")
        .count();
    assert!(refused > 10, "{refused} records of mismatches");
    place.assert_trail_is_sound();
}

#[test]
fn who_closes_a_modern_stream_cancels() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    client.ask(json!(1), "tools/call", call("never", json!({})));
    wait_for_call(&place, "never");
    drop(client);
    wait_for_cancellation(&place);
    assert_serves(&daemon);
    daemon.stop();
}

#[test]
fn who_closes_with_further_requests_under_way_cancels_as_well() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    client.ask(json!(1), "tools/call", call("never", json!({})));
    for id in 2..200 {
        client.ask(json!(id), "tools/call", call("count", json!({})));
    }
    wait_for_call(&place, "never");
    drop(client);
    wait_for_cancellation(&place);
    assert_serves(&daemon);
    assert_eq!(
        place.received("fix", "\"count\"").len(),
        1,
        "what came after it was not begun"
    );
    daemon.stop();
}

#[test]
fn pipelined_requests_are_answered_in_order_and_a_closed_side_gets_its_answers() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    for id in 0..100 {
        client.ask(json!(id), "tools/call", call("echo", json!({ "id": id })));
    }
    client.half_close();
    for id in 0..100 {
        assert_eq!(client.response().json()["id"], id);
    }
    assert!(client.is_closed());
    // One that waits, too.
    let mut client = daemon.http();
    client.ask(
        json!(1),
        "tools/call",
        call("wait", json!({ "until": "later" })),
    );
    client.half_close();
    wait_for_call(&place, "wait");
    assert_serves(&daemon);
    place.release("later");
    assert_eq!(text_of(&client.response().json()["result"]), "later");
    daemon.stop();
}

#[test]
fn a_subscription_is_a_stream_that_the_end_of_the_daemon_closes() {
    let place = place();
    let daemon = place.start(&[]);
    assert_serves(&daemon);
    let mut listener = daemon.http();
    listener.ask(
        json!("sub"),
        "subscriptions/listen",
        json!({ "notifications": { "toolsListChanged": true } }),
    );
    assert!(listener.response().is_stream());
    let first = listener.event().unwrap().message;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    daemon.http().asked(
        json!(1),
        "tools/call",
        call("change_tools", json!({ "tools": ["echo"] })),
    );
    let changed = listener.event().unwrap().message;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(
        changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "sub"
    );
    daemon.stop();
    let last = listener.events();
    assert_eq!(last.last().unwrap().message["id"], "sub", "{last:?}");
}

// ---- legacy ----

/// The messages of events without the one that only says where to read on.
fn messages(events: &[Event]) -> Vec<&Value> {
    events
        .iter()
        .map(|event| &event.message)
        .filter(|message| !message.is_null())
        .collect()
}

#[test]
fn a_session_lives_from_initialize_to_delete() {
    let place = place();
    let daemon = place.start(&[]);
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY] {
        let mut client = daemon.http();
        let session = client.open(version);
        assert!(session.len() == 32 && session.bytes().all(|byte| byte.is_ascii_hexdigit()));
        client.call_in(&session, 1, "fix__count", json!({}));
        let response = client.response();
        assert_eq!(
            (response.status, text_of(&response.json()["result"])),
            (200, "counted")
        );
        // An error is no end of the session.
        client.in_session(&session, r#"{"jsonrpc":"2.0","id":2,"method":"no/such"}"#);
        let response = client.response();
        assert_eq!((response.status, response.error()), (200, Some(-32601)));
        // A second handshake is none, under whatever id.
        let again = r#"{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
        client.in_session(&session, again);
        assert_eq!(client.response().status, 400);
        client.in_session("11111111111111111111111111111111", again);
        assert_eq!(client.response().status, 404);
        // The version may be said again, if it is one.
        let ping = r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#;
        client.post(
            &[
                ("Mcp-Session-Id", &session),
                ("MCP-Protocol-Version", version),
            ],
            ping,
        );
        assert_eq!(client.response().status, 200);
        // Another one that we know is no error: a client only should say the one that was agreed
        // on.
        client.post(
            &[
                ("Mcp-Session-Id", &session),
                ("MCP-Protocol-Version", "2025-06-18"),
            ],
            ping,
        );
        assert_eq!(client.response().status, 200);
        for wrong in ["1999-01-01", "2025-11-25x", "", MODERN] {
            client.post(
                &[
                    ("Mcp-Session-Id", &session),
                    ("MCP-Protocol-Version", wrong),
                ],
                ping,
            );
            assert_eq!(client.response().status, 400, "{wrong}");
        }
        client.in_session(&session, r#"{"jsonrpc":"2.0","id":99,"result":{}}"#);
        assert_eq!(client.response().status, 202, "an answer to nothing");
        client.send(&request("DELETE", &[("Mcp-Session-Id", &session)], ""));
        assert_eq!(client.response().status, 204);
        for method in ["DELETE", "GET"] {
            client.send(&request(method, &[("Mcp-Session-Id", &session)], ""));
            assert_eq!(client.response().status, 404, "{method}");
        }
        client.in_session(&session, ping);
        assert_eq!(client.response().status, 404);
    }
    let mut client = daemon.http();
    for (method, status) in [
        ("GET", 400),
        ("DELETE", 400),
        ("HEAD", 405),
        ("OPTIONS", 405),
        ("PUT", 405),
        ("PATCH", 405),
    ] {
        client.send(&request(method, &[], ""));
        // The head of the answer to HEAD says how long a body would be.
        let status_line = if method == "HEAD" {
            client.head()
        } else {
            client.response()
        };
        assert_eq!(status_line.status, status, "{method}");
        if status == 405 {
            assert_eq!(status_line.field("allow"), Some("GET, POST, DELETE"));
        }
    }
    client.send(&request("GET", &[("MCP-Protocol-Version", MODERN)], ""));
    assert_eq!(client.response().status, 405);
    daemon.stop();
}

#[test]
fn a_batch_is_answered_as_one_in_the_version_that_has_them() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    let session = client.open("2025-03-26");
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},
                    {"jsonrpc":"2.0","method":"notifications/initialized"},
                    {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"fix__count"}}]"#;
    client.in_session(&session, batch);
    let response = client.response();
    let mut ids: Vec<_> = response
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_i64().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!((response.status, ids), (200, vec![1, 2]));
    client.in_session(
        &session,
        r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#,
    );
    assert_eq!(client.response().status, 202);
    client.in_session(&session, "[]");
    assert_eq!(client.response().status, 400);
    let newer = client.open(LEGACY);
    client.in_session(&newer, batch);
    assert_eq!(client.response().status, 400);
    daemon.stop();
}

#[test]
fn a_broken_stream_cancels_nothing_and_is_read_on() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    let session = client.open(LEGACY);
    client.call_in(&session, 1, "fix__wait", json!({ "until": "on" }));
    // There is nothing to answer yet: the stream begins with where to read on.
    assert!(client.response().is_stream());
    let primed = client.event().unwrap();
    assert_eq!(primed.message, Value::Null);
    let at = primed.id.unwrap();
    drop(client);
    // It goes on, in nobody's connection.
    let mut other = daemon.http();
    wait_for_clients(&mut daemon.http(), 2);
    place.release("on");
    assert!(other.listen(&session, Some(&at)).is_stream());
    let events = other.events();
    assert_eq!(messages(&events).len(), 1);
    assert_eq!(text_of(&events[0].message["result"]), "on");
    assert!(place.received("fix", "notifications/cancelled").is_empty());
    // The same again: what is kept is sent again, after what was read nothing is.
    let mut third = daemon.http();
    assert!(third.listen(&session, Some(&at)).is_stream());
    assert_eq!(third.events(), events);
    assert!(third.listen(&session, events[0].id.as_deref()).is_stream());
    assert_eq!(third.events(), []);
    // What was never sent, or of another stream, is none.
    for wrong in [
        "",
        "x",
        "1",
        "9-1",
        "1-99",
        "1-",
        "-1",
        "1-1-1",
        "99999999999999999999-1",
    ] {
        assert_eq!(third.listen(&session, Some(wrong)).status, 400, "{wrong}");
    }
    daemon.stop();
}

#[test]
fn a_cancellation_reaches_the_post_that_has_the_id() {
    let place = place();
    let daemon = place.start(&[]);
    let (mut one, mut other) = (daemon.http(), daemon.http());
    let session = one.open(LEGACY);
    one.call_in(&session, 5, "fix__never", json!({}));
    wait_for_call(&place, "never");
    // The id is taken in the session, not in another.
    other.call_in(&session, 5, "fix__count", json!({}));
    assert_eq!(other.response().error(), Some(-32600));
    let stranger = other.open(LEGACY);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
    other.in_session(&stranger, cancel);
    assert_eq!(other.response().status, 202);
    other.in_session(&stranger, r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#);
    assert_eq!(other.response().status, 200);
    assert!(place.received("fix", "notifications/cancelled").is_empty());
    other.in_session(&session, cancel);
    assert_eq!(other.response().status, 202);
    wait_for_cancellation(&place);
    // Its response ends, without an answer.
    let response = one.response();
    assert!(response.status == 202 || messages(&one.events()).is_empty());
    daemon.stop();
}

#[test]
fn a_sessions_own_stream_has_what_belongs_to_no_request() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    let session = client.open(LEGACY);
    client.call_in(&session, 1, "fix__count", json!({}));
    client.response();
    let mut listener = daemon.http();
    assert!(listener.listen(&session, None).is_stream());
    client.call_in(
        &session,
        2,
        "fix__change_tools",
        json!({ "tools": ["echo"] }),
    );
    client.response();
    let changed = listener.event().unwrap();
    assert_eq!(
        changed.message["method"],
        "notifications/tools/list_changed"
    );
    // Who reads it anew reads it alone, from where the other was.
    drop(listener);
    client.call_in(
        &session,
        3,
        "fix__change_tools",
        json!({ "tools": ["echo", "count"] }),
    );
    client.response();
    let mut again = daemon.http();
    assert!(again.listen(&session, changed.id.as_deref()).is_stream());
    assert_eq!(
        again.event().unwrap().message["method"],
        "notifications/tools/list_changed"
    );
    // The end of the session ends it.
    client.send(&request("DELETE", &[("Mcp-Session-Id", &session)], ""));
    assert_eq!(client.response().status, 204);
    assert_eq!(again.event(), None);
    daemon.stop();
}

#[test]
fn a_server_of_a_client_is_a_sessions_own_and_a_modern_requests_is_its_users() {
    let place = Place::of_fixture(&[], json!({ "isolation": "client" }));
    let daemon = place.start(&[]);
    let pid = |client: &mut Http, session: Option<&str>| {
        match session {
            Some(session) => drop(client.call_in(session, 1, "fix__pid", json!({}))),
            None => drop(client.ask(json!(1), "tools/call", call("pid", json!({})))),
        }
        text_of(&client.response().json()["result"]).to_owned()
    };
    let (mut one, mut other) = (daemon.http(), daemon.http());
    let (a, b) = (one.open(LEGACY), one.open(LEGACY));
    let of_a = pid(&mut one, Some(&a));
    assert_eq!(pid(&mut other, Some(&a)), of_a, "whichever connection");
    assert_ne!(pid(&mut one, Some(&b)), of_a);
    let of_user = pid(&mut one, None);
    assert_eq!(pid(&mut other, None), of_user);
    assert_ne!(of_user, of_a);
    one.send(&request("DELETE", &[("Mcp-Session-Id", &a)], ""));
    assert_eq!(one.response().status, 204);
    let process = of_a.parse().unwrap();
    wait_for("the end of its process", || {
        (!colibri_tests::is_alive(process)).then_some(())
    });
    assert_eq!(pid(&mut one, None), of_user);
    daemon.stop();
}

// ---- what servers say ----

/// A place whose fixture `fix` speaks this version, logs, and has a resource.
fn telling_place(version: &str) -> Place {
    let place = Place::of_fixture(&["--speak", version, "--logs"], json!({}));
    std::fs::write(
        place.path("fix.resources"),
        r#"[{"uri":"file:///a","name":"a"}]"#,
    )
    .unwrap();
    place
}

fn log(level: &str) -> Value {
    json!({ "method": "message", "params": { "level": level, "data": level } })
}

#[test]
fn each_modern_request_says_how_grave_log_messages_have_to_be() {
    for version in [LEGACY, MODERN] {
        let place = telling_place(version);
        let daemon = place.start(&[]);
        let mut client = daemon.http();
        for (wanted, level, comes) in [
            (None, "emergency", false),
            (Some("warning"), "info", false),
            (Some("warning"), "warning", true),
            (Some("debug"), "debug", true),
            (None, "error", false),
        ] {
            let mut params = call("tell", log(level));
            if let Some(wanted) = wanted {
                params["_meta"]["io.modelcontextprotocol/logLevel"] = json!(wanted);
            }
            let response = client.asked(json!(1), "tools/call", params);
            assert_eq!(response.is_stream(), comes, "{version}: {wanted:?} {level}");
            if comes {
                let events = client.events();
                let messages = messages(&events);
                assert_eq!(messages[0]["params"]["level"], level, "{messages:?}");
                assert_eq!(
                    (messages.len(), &messages[1]["id"]),
                    (2, &json!(1)),
                    "{messages:?}"
                );
            }
        }
        daemon.stop();
    }
}

#[test]
fn a_session_is_told_log_messages_of_its_level_in_the_stream_of_the_call_or_its_own() {
    for version in [LEGACY, MODERN] {
        let place = telling_place(version);
        let daemon = place.start(&[]);
        let (mut client, mut listener) = (daemon.http(), daemon.http());
        let session = client.open(LEGACY);
        assert!(listener.listen(&session, None).is_stream());
        let level =
            r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}"#;
        client.in_session(&session, level);
        assert_eq!(client.response().json()["result"], json!({}));
        client.call_in(&session, 2, "fix__tell", log("critical"));
        assert!(client.response().is_stream());
        let events = client.events();
        let told: Vec<_> = messages(&events)
            .into_iter()
            .map(|message| &message["params"]["level"])
            .collect();
        assert_eq!(told, [&json!("critical"), &Value::Null]);
        // What is not grave enough does not come; what comes without a call, in the session's own
        // stream.
        for level in ["info", "alert"] {
            let later = json!({ "params": { "level": level, "data": level } });
            client.call_in(&session, 3, "fix__tell_later", later);
            let answer = client.response();
            let answer = match answer.is_stream() {
                true => messages(&client.events()).last().unwrap()["result"].clone(),
                false => answer.json()["result"].clone(),
            };
            assert_eq!(text_of(&answer), "later");
        }
        let mut told = std::iter::from_fn(|| listener.event());
        let told = told
            .find(|event| event.message["method"] == "notifications/message")
            .unwrap();
        assert_eq!(
            told.message["params"]["level"], "alert",
            "{version}: {told:?}"
        );
        daemon.stop();
    }
}

#[test]
fn updates_come_in_a_sessions_own_stream_and_in_the_stream_that_listens() {
    for version in [LEGACY, MODERN] {
        let place = telling_place(version);
        let daemon = place.start(&[]);
        let uri = "fix+file:///a";
        let (mut client, mut own, mut listener) = (daemon.http(), daemon.http(), daemon.http());
        let session = client.open(LEGACY);
        assert!(own.listen(&session, None).is_stream());
        let subscribe = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": { "uri": uri } });
        client.in_session(&session, &subscribe.to_string());
        client.response();
        let wanted = json!({ "notifications": { "resourceSubscriptions": [uri] } });
        assert!(
            listener
                .asked(json!("sub"), "subscriptions/listen", wanted)
                .is_stream()
        );
        let acknowledged = listener.event().unwrap().message;
        assert_eq!(
            acknowledged["params"]["notifications"]["resourceSubscriptions"],
            json!([uri])
        );
        client.call_in(
            &session,
            2,
            "fix__tell",
            json!({ "method": "resources/updated", "params": { "uri": "file:///a" } }),
        );
        client.response();
        let updated = |http: &mut Http| {
            let mut events = std::iter::from_fn(|| http.event()).map(|event| event.message);
            events
                .find(|message| message["method"] == "notifications/resources/updated")
                .unwrap()
        };
        let (of_session, of_listener) = (updated(&mut own), updated(&mut listener));
        assert_eq!(of_session["params"]["uri"], uri);
        assert_eq!(of_listener["params"]["uri"], uri);
        let subscription = |message: &Value| {
            message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone()
        };
        assert_eq!(
            (subscription(&of_session), subscription(&of_listener)),
            (Value::Null, json!("sub"))
        );
        daemon.stop();
    }
}

/// What is over a limit is answered with its error and advice, as everywhere, and that is no error
/// of HTTP.
#[test]
fn limits_are_answered_with_their_errors() {
    let place = place();
    place.limits(json!({ "calls_per_client": 1 }));
    let daemon = place.start(&[]);
    let (mut one, mut other) = (daemon.http(), daemon.http());
    let session = one.open(LEGACY);
    one.call_in(&session, 1, "fix__never", json!({}));
    wait_for_call(&place, "never");
    other.call_in(&session, 2, "fix__count", json!({}));
    let refused = other.response();
    let code = refused.json()["error"]["data"]["code"].clone();
    assert_eq!(
        (refused.status, code),
        (200, json!("LIMIT_IN_FLIGHT")),
        "{refused:?}"
    );
    daemon.stop();
}

// ---- what servers ask ----

/// A place whose fixture `fix` speaks this version and asks.
fn asking_place(version: &str) -> Place {
    let place = Place::new();
    let fixture = place.fixture("fix", &["--speak", version, "--tool", "ask"], json!({}));
    place.registry(&json!({ "fix": fixture }));
    place
}

#[test]
fn what_a_server_asks_comes_in_its_calls_stream_and_is_answered_by_any_post() {
    for version in [LEGACY, MODERN] {
        let place = asking_place(version);
        let socket = place.path("metrics.sock");
        let daemon = place.start(&["--metrics-socket", socket.to_str().unwrap()]);
        let (mut client, mut other) = (daemon.http(), daemon.http());
        let (session, stranger) = (client.open(LEGACY), other.open(LEGACY));
        client.call_in(&session, 1, "fix__ask", json!({}));
        assert!(client.response().is_stream());
        let asked = std::iter::from_fn(|| client.event())
            .find(|event| !event.message.is_null())
            .unwrap()
            .message;
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept", "content": {} } });
        // Another session's answer is none.
        other.in_session(&stranger, &answer.to_string());
        assert_eq!(other.response().status, 202);
        other.in_session(&session, &answer.to_string());
        assert_eq!(other.response().status, 202);
        let last = client.events();
        let said = text_of(&messages(&last).last().unwrap()["result"]).to_owned();
        assert!(said.contains("accept"), "{said}");
        // It is counted, with the server's others.
        let metrics = place
            .colibri_mcp(&["status", "--metrics", "--metrics-socket"])
            .arg(socket)
            .output()
            .unwrap();
        let metrics = String::from_utf8(metrics.stdout).unwrap();
        assert!(
            metrics.contains("colibri_asked_total{server=\"fix\"} 1\n"),
            "{metrics}"
        );
        daemon.stop();
    }
}

#[test]
fn what_a_server_asks_a_modern_client_is_answered_by_a_retry_on_any_connection() {
    for version in [LEGACY, MODERN] {
        let place = asking_place(version);
        let daemon = place.start(&[]);
        let capabilities =
            json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
        let mut params = call("ask", json!({}));
        params["_meta"] = capabilities;
        let mut client = daemon.http();
        let first = client.asked(json!(1), "tools/call", params.clone());
        assert_eq!(
            (first.status, first.field("content-type")),
            (200, Some("application/json"))
        );
        let first = first.json()["result"].clone();
        assert_eq!(first["resultType"], "input_required", "{first}");
        // Nothing but the retry or its expiry ends it.
        drop(client);
        wait_for_clients(&mut daemon.http(), 1);
        let asked = first["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .next()
            .unwrap()
            .clone();
        params["requestState"] = first["requestState"].clone();
        params["inputResponses"] = json!({ asked: { "action": "accept", "content": {} } });
        let second = daemon.http().asked(json!(9), "tools/call", params).json();
        assert!(text_of(&second["result"]).contains("accept"), "{second}");
        // Without the capability there is nobody to be asked.
        let refused = daemon
            .http()
            .asked(json!(1), "tools/call", call("ask", json!({})));
        assert_ne!(refused.json()["result"]["resultType"], "input_required");
        daemon.stop();
    }
}

// ---- rules ----

#[test]
fn gates_are_closed_by_a_header_as_by_the_hello() {
    let place = place();
    let daemon = place.start(&["--write"]);
    let mut client = daemon.http();
    let task = || json!({ "name": "colibri_create_task", "arguments": { "description": "x" } });
    let refused = |response: &colibri_tests::http::Response| {
        response.json()["result"]["_meta"]["org.colibri/error"]["code"] == "GATE_CLOSED"
    };
    for (narrow, write, external) in [
        ("write", true, false),
        ("external", false, true),
        ("write, external", true, true),
        ("what", true, true),
    ] {
        client.ask_with(
            &[("Colibri-Narrow", narrow)],
            json!(1),
            "tools/call",
            task(),
        );
        assert_eq!(refused(&client.response()), write, "{narrow}");
        client.ask_with(
            &[("Colibri-Narrow", narrow)],
            json!(1),
            "tools/call",
            call("count", json!({})),
        );
        assert_eq!(refused(&client.response()), external, "{narrow}");
    }
    // A request's own is not another's.
    assert!(!refused(&client.asked(json!(1), "tools/call", task())));
    // A session's is all its requests'.
    let params = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}"#;
    let body = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}"#);
    client.post(&[("Colibri-Narrow", "external")], &body);
    let session = client
        .response()
        .field("mcp-session-id")
        .unwrap()
        .to_owned();
    client.call_in(&session, 1, "fix__count", json!({}));
    assert!(refused(&client.response()));
    daemon.stop();
}

#[test]
fn only_pages_and_names_of_this_host_are_served() {
    let place = place();
    let daemon = place.start(&["--http-host", "mcp.example.org"]);
    let mut client = daemon.http();
    let get = |host: &str, more: &str| format!("GET /mcp HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
    for (bytes, status) in [
        (get("localhost", ""), 400),
        (
            get("mcp.example.org:443", "Origin: https://mcp.example.org\r\n"),
            400,
        ),
        (get("evil.example", ""), 403),
        (get("localhost", "Origin: http://evil.example\r\n"), 403),
        (get("localhost", "Origin: null\r\n"), 403),
        (
            "GET http://evil.example/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            403,
        ),
        (
            "GET http://localhost/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 404),
        (
            "GET /mcp/ HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            404,
        ),
        (
            "GET /%6dcp HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            404,
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            404,
        ),
    ] {
        client.send(bytes.as_bytes());
        assert_eq!(client.response().status, status, "{bytes}");
    }
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (fields, status) in [
        (vec![("Accept", "application/json")], 406),
        (vec![("Accept", "text/event-stream")], 406),
        (vec![("Accept", "*/*")], 400),
    ] {
        client.post(&fields, ping);
        assert_eq!(client.response().status, status, "{fields:?}");
    }
    client.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
    assert_eq!(client.response().status, 415);
    // It was read to its end.
    assert_eq!(
        client.asked(json!(1), "server/discover", json!({})).status,
        200
    );
    daemon.stop();
}

#[test]
fn bodies_come_whole_in_chunks_or_as_expected_or_not_at_all() {
    let place = place();
    place.limits(json!({ "message_bytes": "64K" }));
    let daemon = place.start(&[]);
    let discover = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": meta() } });
    let pretty = serde_json::to_string_pretty(&discover).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Method: server/discover\r\n\
         MCP-Protocol-Version: {MODERN}\r\n"
    );
    // In chunks, after which nothing is read.
    let mut client = daemon.http();
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes());
    for part in pretty.as_bytes().chunks(7) {
        client.send(format!("{:x}\r\n", part.len()).as_bytes());
        client.send(part);
        client.send(b"\r\n");
    }
    client.send(b"0\r\n\r\n");
    client.send(&request("GET", &[], ""));
    let response = client.response();
    assert_eq!(
        (response.status, response.field("connection")),
        (200, Some("close"))
    );
    assert!(client.try_response().is_none());
    // When it is asked for.
    let mut client = daemon.http();
    client.send(
        format!(
            "{head}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            pretty.len()
        )
        .as_bytes(),
    );
    client.send(pretty.as_bytes());
    assert_eq!(client.response().status, 200);
    // Byte by byte.
    for byte in format!("{head}Content-Length: {}\r\n\r\n{pretty}", pretty.len()).bytes() {
        client.send(&[byte]);
    }
    assert_eq!(client.response().status, 200);
    // Shorter than it says.
    client.send(format!("{head}Content-Length: {}\r\n\r\n{pretty}", pretty.len() + 1).as_bytes());
    client.half_close();
    assert!(
        client
            .try_response()
            .is_none_or(|response| response.status == 400)
    );
    // Longer than it says: what is left is no request.
    let mut client = daemon.http();
    client.send(format!("{head}Content-Length: {}\r\n\r\n{pretty}", pretty.len() - 1).as_bytes());
    assert_eq!(
        (client.response().status, client.response().status),
        (400, 400)
    );
    assert!(client.is_closed());
    // Over the limit, by what it says and by what comes.
    let mut client = daemon.http();
    client.send(format!("{head}Content-Length: 65537\r\n\r\n").as_bytes());
    assert_eq!(client.response().status, 413);
    let mut client = daemon.http();
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n10002\r\n").as_bytes());
    client.send(&[b' '; 0x10002]);
    assert_eq!(client.response().status, 413);
    assert!(client.is_closed());
    daemon.stop();
}

#[test]
fn what_two_readers_could_take_for_two_requests_is_refused_and_nothing_after_it_is_read() {
    let place = place();
    let daemon = place.start(&[]);
    let hidden = String::from_utf8(request("GET", &[], "")).unwrap();
    let chunks = format!("0\r\n\r\n{hidden}");
    for (fields, body, status) in [
        (
            format!(
                "Content-Length: {}\r\nTransfer-Encoding: chunked\r\n",
                chunks.len()
            ),
            &*chunks,
            400,
        ),
        (
            format!(
                "Transfer-Encoding: chunked\r\nContent-Length: {}\r\n",
                chunks.len()
            ),
            &*chunks,
            400,
        ),
        (
            format!("Content-Length: 0\r\nContent-Length: {}\r\n", hidden.len()),
            &*hidden,
            400,
        ),
        (
            format!("Content-Length: 0, {}\r\n", hidden.len()),
            &*hidden,
            400,
        ),
        (
            format!("Content-Length: +{}\r\n", hidden.len()),
            &*hidden,
            400,
        ),
        ("Transfer-Encoding: xchunked\r\n".to_owned(), &*chunks, 400),
        (
            "Transfer-Encoding: chunked, identity\r\n".to_owned(),
            &*chunks,
            400,
        ),
        (
            "Transfer-Encoding:\r\n chunked\r\n".to_owned(),
            &*chunks,
            400,
        ),
        ("Transfer-Encoding : chunked\r\n".to_owned(), &*chunks, 400),
        ("X: a\r\n b\r\n".to_owned(), "", 400),
        ("X: a\0b\r\n".to_owned(), "", 400),
        (
            "X: a\nTransfer-Encoding: chunked\r\n".to_owned(),
            &*chunks,
            400,
        ),
        ("Host: localhost\r\n".to_owned(), "", 400),
        ("Expect: more\r\n".to_owned(), "", 417),
        (format!("X: {}\r\n", "y".repeat(1 << 20)), "", 431),
        ("X: y\r\n".repeat(1000), "", 431),
    ] {
        let mut client = daemon.http();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}\r\n"
        );
        client.send(head.as_bytes());
        client.send(body.as_bytes());
        let shown = &fields[..fields.len().min(60)];
        let response = client
            .try_response()
            .unwrap_or_else(|| panic!("no response to {shown}"));
        assert_eq!(response.status, status, "{shown}");
        assert!(response.json()["error"]["message"].as_str().unwrap().len() > 10);
        assert!(client.try_response().is_none(), "{shown}");
    }
    for first in [
        "GET /mcp HTTP/2.0",
        "PRI * HTTP/2.0",
        "GET /mcp",
        "GET  /mcp HTTP/1.1",
        "GET /mcp HTTP/1.1 x",
    ] {
        let mut client = daemon.http();
        client.send(format!("{first}\r\nHost: localhost\r\n\r\n").as_bytes());
        let status = client.response().status;
        assert!(status == 400 || status == 505, "{first}: {status}");
    }
    assert_serves(&daemon);
    daemon.stop();
}

#[test]
fn lines_and_http_come_in_by_one_socket() {
    let place = place();
    let daemon = place.start(&[]);
    // A connection that says nothing yet may say either.
    let (mut lines, mut http, idle) = (daemon.connect(), daemon.http(), daemon.http());
    let mut first = daemon.http();
    wait_for_clients(&mut first, 4);
    lines.initialize(LEGACY);
    http.open(LEGACY);
    let facts = facts(&mut first);
    assert_eq!(
        (
            &facts["clients"],
            &facts["clients_http"],
            &facts["http_sessions"]
        ),
        (&json!(4), &json!(2), &json!(1))
    );
    // What is neither is answered as lines are.
    for first in ["\u{1}", "7", "\"", "\u{e9}"] {
        let mut client = daemon.connect();
        client.send_raw(format!("{first}\n").as_bytes());
        let answer = client.message();
        let code = answer["error"]["code"].as_i64();
        assert!(matches!(code, Some(-32700 | -32600)), "{first:?} {answer}");
    }
    drop(idle);
    daemon.stop();
}

#[test]
fn who_does_not_read_is_let_go_and_others_are_served() {
    let place = place();
    let daemon = place.start(&[]);
    let mut deaf = daemon.http();
    let session = deaf.open("2025-03-26");
    let params = call("huge", json!({ "bytes": 1 << 20 }));
    let huge = |id| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    deaf.in_session(
        &session,
        &json!((0..40).map(huge).collect::<Vec<_>>()).to_string(),
    );
    wait_for("the daemon to lose patience", || {
        assert_serves(&daemon);
        let said = daemon.log();
        said.contains("client does not read its answer over HTTP")
            .then_some(())
    });
    assert!(
        deaf.try_response()
            .is_none_or(|response| response.body.is_empty())
    );
    // Many that stay within what one may hold, together hold what the daemon has room for.
    let mut deaf: Vec<_> = (0..20).map(|_| daemon.http()).collect();
    for client in &mut deaf {
        client.ask(
            json!(1),
            "tools/call",
            call("huge", json!({ "bytes": 8 << 20 })),
        );
    }
    wait_for("all answers", || {
        (place.received("fix", "8388608").len() == 20).then_some(())
    });
    assert_serves(&daemon);
    let resident = daemon.resident().unwrap_or(0);
    assert!(
        resident < 500 * 1024 * 1024,
        "the daemon uses {resident} bytes"
    );
    drop(deaf);
    assert_serves(&daemon);
    daemon.stop();
}

#[test]
fn who_is_slow_to_ask_is_let_go() {
    let place = place();
    let daemon = place.start(&[]);
    let mut slow: Vec<_> = (0..50).map(|_| daemon.http()).collect();
    for (number, client) in slow.iter_mut().enumerate() {
        let bytes = request("POST", &[], r#"{"jsonrpc":"2.0","#);
        let part = if number % 2 == 0 {
            bytes.len() - 30
        } else {
            bytes.len() - 3
        };
        client.send(&bytes[..part]);
    }
    for client in &mut slow {
        assert_eq!(client.response().status, 408);
        assert!(client.is_closed());
    }
    assert_serves(&daemon);
    daemon.stop();
}

#[test]
fn sessions_are_bounded_and_the_one_that_was_idle_longest_goes() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    let (first, busy) = (client.open(LEGACY), client.open(LEGACY));
    let mut listener = daemon.http();
    assert!(listener.listen(&busy, None).is_stream());
    let mut last = String::new();
    for _ in 0..10_000 {
        last = client.open(LEGACY);
    }
    let ping = r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#;
    for (session, status) in [(&first, 404), (&busy, 200), (&last, 200)] {
        client.in_session(session, ping);
        assert_eq!(client.response().status, status);
    }
    let facts = client
        .asked(json!(1), "tools/call", json!({ "name": "colibri_status" }))
        .json();
    let facts: Value =
        serde_json::from_str(facts["result"]["content"][1]["text"].as_str().unwrap()).unwrap();
    assert_eq!(facts["http_sessions"], 256);
    let resident = daemon.resident().unwrap_or(0);
    assert!(
        resident < 200 * 1024 * 1024,
        "the daemon uses {resident} bytes"
    );
    // Nobody finds one by guessing.
    for number in 0..1000_u128 {
        client.in_session(&format!("{number:032x}"), ping);
        assert_eq!(client.response().status, 404);
    }
    daemon.stop();
}

#[test]
fn a_flood_of_resumptions_reads_one_stream_at_a_time() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    let session = client.open(LEGACY);
    client.call_in(&session, 1, "fix__progress", json!({ "n": 5000 }));
    assert!(client.response().is_stream());
    let at = client.event().unwrap().id.unwrap();
    let mut readers: Vec<_> = (0..100).map(|_| daemon.http()).collect();
    for reader in &mut readers {
        // Too old an event is told as that, once more than are kept have come.
        let response = reader.listen(&session, Some(&at));
        assert!(
            response.is_stream() || response.status == 400,
            "{}",
            response.status
        );
    }
    drop(readers);
    let resident = daemon.resident().unwrap_or(0);
    assert!(
        resident < 200 * 1024 * 1024,
        "the daemon uses {resident} bytes"
    );
    assert_serves(&daemon);
    daemon.stop();
}

#[test]
fn connections_of_a_user_are_bounded_and_told_so() {
    let place = place();
    place.limits(json!({ "clients": 20 }));
    let daemon = place.start(&[]);
    let mut clients = Vec::new();
    let mut turned_away = 0;
    // One after another: of more at once than a user may have waiting for it, the rest is only
    // closed.
    for _ in 0..30 {
        let mut client = daemon.http();
        let response = client.asked(json!(1), "server/discover", json!({}));
        match response.status {
            200 => {}
            503 => {
                turned_away += 1;
                let message = response.json()["error"]["message"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                assert!(message.contains("limits.clients"), "{message}");
            }
            other => panic!("{other}"),
        }
        clients.push(client);
    }
    assert_eq!(turned_away, 10);
    drop(clients);
    daemon.stop();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root, to be somebody else")]
fn a_session_is_nothing_to_another_user() {
    let place = place();
    place.open_to_group();
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    let session = client.open(LEGACY);
    client.call_in(&session, 1, "fix__wait", json!({ "until": "x" }));
    assert!(client.response().is_stream());
    let at = client.event().unwrap().id.unwrap();
    let copy = place.path("raw-client");
    copy_program(&program("raw-client"), &copy);
    let ping = r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#;
    for bytes in [
        request("POST", &[("Mcp-Session-Id", &session)], ping),
        request("GET", &[("Mcp-Session-Id", &session)], ""),
        request(
            "GET",
            &[("Mcp-Session-Id", &session), ("Last-Event-ID", &at)],
            "",
        ),
        request("DELETE", &[("Mcp-Session-Id", &session)], ""),
    ] {
        let mut command = std::process::Command::new(&copy);
        command.arg(place.socket()).uid(54_321).gid(0);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), &bytes).unwrap();
        drop(child.stdin.take());
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with("HTTP/1.1 404 "), "{text}");
    }
    place.release("x");
    assert_eq!(text_of(&client.event().unwrap().message["result"]), "x");
    daemon.stop();
}

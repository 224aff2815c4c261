//! What belongs to a call in flight: its progress comes complete, in order and before its answer,
//! its cancellation reaches the server, and nothing of it stays when its client goes.

use std::collections::{BTreeMap, BTreeSet};

use colibri_tests::http::Http;
use colibri_tests::{Client, Daemon, LEGACY, MODERN, Place, program, wait_for};
use serde_json::{Value, json};

/// Calls that are in flight together, and notifications of each.
const CALLS: usize = 100;
const STEPS: u64 = 100;

/// How a client speaks.
const CLIENTS: [fn(&Daemon<'_>) -> Client; 2] =
    [|daemon| daemon.legacy(LEGACY), |daemon| daemon.modern()];

/// Reads what comes for calls that were sent, until the last is answered: per token, the progress
/// that came. A notification that is late, strange or out of order is a failure.
fn read_progress(client: &mut Client, mut tokens: BTreeMap<u64, String>) -> BTreeMap<String, u64> {
    let mut seen: BTreeMap<String, u64> = tokens.values().map(|token| (token.clone(), 0)).collect();
    let mut answered = BTreeSet::new();
    while !tokens.is_empty() {
        let message = client.message();
        if message["method"] == "notifications/progress" {
            let token = message["params"]["progressToken"]
                .as_str()
                .unwrap()
                .to_owned();
            assert!(
                !answered.contains(&token),
                "progress after its answer: {message}"
            );
            let last = seen.get_mut(&token).expect("a token of ours");
            *last += 1;
            assert_eq!(
                message["params"]["progress"], *last,
                "out of order: {message}"
            );
        } else if let Some(token) = message["id"].as_u64().and_then(|id| tokens.remove(&id)) {
            assert!(message["result"]["content"].is_array(), "{message}");
            answered.insert(token);
        }
    }
    seen
}

#[test]
fn of_ten_thousand_notifications_none_is_lost_late_or_out_of_order() {
    let place = Place::new();
    let fixture = |era: &str| json!({ "command": program("conformance-fixture"), "args": [era], "prefix": false });
    for server in ["legacy", "modern"] {
        place.registry(&json!({ "fixture": fixture(server) }));
        let daemon = place.start(&[]);
        for connect in CLIENTS {
            // Two connections, so that the same tokens are in flight twice.
            let mut clients = [connect(&daemon), connect(&daemon)];
            let sent = clients.each_mut().map(|client| {
                let calls = (0..CALLS / 2).map(|number| {
                    let token = format!("call {number}");
                    let params = json!({
                        "name": "test_tool_with_progress",
                        "arguments": { "steps": STEPS },
                        "_meta": { "progressToken": token },
                    });
                    (client.request("tools/call", params), token)
                });
                calls.collect::<BTreeMap<_, _>>()
            });
            for (client, tokens) in clients.iter_mut().zip(sent) {
                let seen = read_progress(client, tokens);
                assert!(
                    seen.values().all(|count| *count == STEPS),
                    "{server}: lost: {seen:?}"
                );
                // What came late would come before this answer.
                client.ask("tools/list", json!({}));
                let late = client
                    .others
                    .iter()
                    .find(|message| message["method"] == "notifications/progress");
                assert!(late.is_none(), "{server}: {late:?}");
            }
        }
    }
}

#[test]
fn over_http_too_none_is_lost_late_or_out_of_order() {
    let place = Place::new();
    for server in ["legacy", "modern"] {
        let entry =
            json!({ "command": program("conformance-fixture"), "args": [server], "prefix": false });
        place.registry(&json!({ "fixture": entry }));
        let daemon = place.start(&[]);
        let mut clients: Vec<Http> = (0..CALLS).map(|_| daemon.http()).collect();
        for client in &mut clients {
            // The same token in all: a stream is one request's.
            let params = json!({
                "name": "test_tool_with_progress",
                "arguments": { "steps": STEPS },
                "_meta": { "progressToken": "the same" },
            });
            assert!(client.ask(json!(1), "tools/call", params));
        }
        for client in &mut clients {
            let response = client.response();
            assert!(response.is_stream(), "{response:?}");
            let messages: Vec<Value> = client
                .events()
                .into_iter()
                .map(|event| event.message)
                .collect();
            let (answer, told) = messages.split_last().expect("an answer");
            assert!(answer["result"]["content"].is_array(), "{server}: {answer}");
            let values: Vec<_> = told
                .iter()
                .map(|message| message["params"]["progress"].as_u64())
                .collect();
            assert_eq!(
                values,
                (1..=STEPS).map(Some).collect::<Vec<_>>(),
                "{server}"
            );
        }
    }
}

/// The ids of the requests for a tool that a fixture has received, and of the cancellations.
fn received(place: &Place, tool: &str) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let lines = |text: &str, key: fn(&Value) -> Option<u64>| {
        let lines = place.received("fix", text);
        let messages = lines
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        messages
            .filter_map(|message| key(&message))
            .collect::<BTreeSet<_>>()
    };
    let calls = lines(&format!("\"{tool}\""), |message| message["id"].as_u64());
    let cancelled = lines("notifications/cancelled", |message| {
        message["params"]["requestId"].as_u64()
    });
    (calls, cancelled)
}

#[test]
fn of_a_thousand_cancelled_calls_none_is_answered_and_each_reaches_its_server() {
    const ROUNDS: usize = 10;
    const A_ROUND: usize = 100;
    for version in [LEGACY, MODERN] {
        let place = Place::of_fixture(&["--speak", version], json!({ "prefix": false }));
        let daemon = place.start(&[]);
        for connect in CLIENTS {
            let mut client = connect(&daemon);
            client.call("pid", json!({}));
            for _ in 0..ROUNDS / 2 {
                // Every second call would be answered at once, so that answers and cancellations
                // cross.
                let ids: Vec<u64> = (0..A_ROUND)
                    .map(|number| client.request_tool(["never", "echo"][number % 2], json!({})))
                    .collect();
                for id in &ids {
                    client.notify("notifications/cancelled", json!({ "requestId": id }));
                }
                // Lines are read in order: when this is answered, the cancellations were read.
                client.ask("tools/list", json!({}));
                client.others.clear();
                client.call("pid", json!({}));
                let late: Vec<_> = client
                    .others
                    .iter()
                    .filter(|message| message.get("method").is_none())
                    .collect();
                assert!(
                    late.is_empty(),
                    "answered after their cancellation: {late:?}"
                );
            }
        }
        // The server answers none of these: each has to be told that nobody waits for it.
        wait_for("each cancellation to reach the server", || {
            let (calls, cancelled) = received(&place, "never");
            (!calls.is_empty() && calls.is_subset(&cancelled)).then_some(())
        });
    }
}

/// Waits until each held call was cancelled at the server, and nothing is in flight.
fn wait_for_the_end(place: &Place, daemon: &Daemon<'_>) {
    wait_for("each call to be cancelled", || {
        let (calls, cancelled) = received(place, "never");
        (calls == cancelled).then_some(())
    });
    wait_for("nothing to be in flight", || {
        (daemon.server("fix")["processes"][0]["in_flight"] == 0).then_some(())
    });
}

#[test]
fn nothing_stays_in_flight_when_a_client_goes() {
    const HELD: usize = 50;
    let place = Place::of_fixture(&[], json!({ "prefix": false }));
    let daemon = place.start(&[]);
    for (round, connect) in CLIENTS.into_iter().enumerate() {
        let mut client = connect(&daemon);
        for _ in 0..HELD {
            client.request_tool("never", json!({}));
        }
        let all = HELD * (round + 1);
        wait_for("the calls to reach the server", || {
            (received(&place, "never").0.len() == all).then_some(())
        });
        drop(client);
        wait_for_the_end(&place, &daemon);
    }
}

#[test]
fn nothing_stays_in_flight_when_a_modern_stream_is_closed() {
    const HELD: usize = 50;
    let place = Place::of_fixture(&[], json!({ "prefix": false }));
    let daemon = place.start(&[]);
    let mut clients: Vec<Http> = (0..HELD).map(|_| daemon.http()).collect();
    for client in &mut clients {
        assert!(client.ask(
            json!(1),
            "tools/call",
            json!({ "name": "never", "arguments": {} })
        ));
    }
    wait_for("the calls to reach the server", || {
        (received(&place, "never").0.len() == HELD).then_some(())
    });
    drop(clients);
    wait_for_the_end(&place, &daemon);
}

/// Cancels as a client of the version does that speaks HTTP, with as many calls in flight as there
/// are connections. The server would answer half of them afterwards.
#[test]
fn over_http_none_of_a_thousand_cancelled_calls_is_answered_and_each_reaches_its_server() {
    const ROUNDS: usize = 10;
    const A_ROUND: usize = 50;
    let tool = |number: usize| ["never", "wait"][number % 2];
    let reached =
        |place: &Place| received(place, "never").0.len() + received(place, "wait").0.len();
    for (server, legacy) in [(LEGACY, true), (MODERN, false)] {
        let place = Place::of_fixture(&["--speak", server], json!({ "prefix": false }));
        let daemon = place.start(&[]);
        let mut other = daemon.http();
        let session = legacy.then(|| other.open(LEGACY));
        for round in 0..ROUNDS {
            let until = format!("round-{round}");
            let mut clients: Vec<(u64, Http)> = (0..A_ROUND as u64)
                .map(|id| (id + 10, daemon.http()))
                .collect();
            for (number, (id, client)) in clients.iter_mut().enumerate() {
                let arguments = json!({ "until": until });
                match &session {
                    Some(session) => assert!(client.call_in(session, *id, tool(number), arguments)),
                    None => {
                        let params = json!({ "name": tool(number), "arguments": arguments });
                        assert!(client.ask(json!(*id), "tools/call", params));
                    }
                }
            }
            wait_for("the calls to reach the server", || {
                (reached(&place) == (round + 1) * A_ROUND).then_some(())
            });
            let Some(session) = &session else {
                // Closing the connection is the cancellation, and who closed it reads no answer.
                drop(clients);
                wait_for("the cancellations to reach the server", || {
                    (received(&place, "never").1.len() == (round + 1) * A_ROUND).then_some(())
                });
                place.release(&until);
                continue;
            };
            for (id, _) in &clients {
                let params = json!({ "requestId": id });
                let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
                other.in_session(session, &cancel.to_string());
                assert_eq!(other.response().status, 202, "it was read");
            }
            place.release(&until);
            for (id, mut client) in clients {
                let response = client.response();
                match response.is_stream() {
                    true => assert!(
                        client.events().iter().all(|event| event.message.is_null()),
                        "{id} was answered"
                    ),
                    false => assert_eq!(
                        (response.status, response.body.len()),
                        (202, 0),
                        "{id} was answered"
                    ),
                }
                // What came late would come before this answer.
                client.in_session(session, r#"{"jsonrpc":"2.0","id":"after","method":"ping"}"#);
                assert_eq!(client.response().json()["id"], "after");
            }
        }
        wait_for("each cancellation to reach the server", || {
            let (mut calls, cancelled) = received(&place, "never");
            calls.extend(received(&place, "wait").0);
            (calls.len() == ROUNDS * A_ROUND && calls == cancelled).then_some(())
        });
        wait_for("nothing to be in flight", || {
            (daemon.server("fix")["processes"][0]["in_flight"] == 0).then_some(())
        });
    }
}

/// Streams of legacy clients that break again and again: what was sent is read on, all of it, once.
#[test]
fn a_stream_that_breaks_is_read_on_without_loss_and_cancels_nothing() {
    const ALL: u64 = 600;
    let place = Place::new();
    let entry =
        json!({ "command": program("conformance-fixture"), "args": ["legacy"], "prefix": false });
    place.registry(&json!({ "fixture": entry }));
    let daemon = place.start(&[]);
    let mut client = daemon.http();
    let session = client.open(LEGACY);
    let params = json!({
        "name": "test_tool_with_progress",
        "arguments": { "steps": ALL },
        "_meta": { "progressToken": "p" },
    });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    client.in_session(&session, &call.to_string());
    assert!(client.response().is_stream());
    let (mut seen, mut last, mut answer) = (Vec::new(), None, Value::Null);
    while answer.is_null() {
        // After every hundred events the connection is lost.
        for _ in 0..100 {
            let Some(event) = client.event() else { break };
            last = event.id;
            if event.message["method"] == "notifications/progress" {
                seen.extend(event.message["params"]["progress"].as_u64());
            } else if !event.message.is_null() {
                answer = event.message;
            }
        }
        drop(client);
        client = daemon.http();
        if answer.is_null() {
            let response = client.listen(&session, last.as_deref());
            assert!(response.is_stream(), "{last:?}: {response:?}");
        }
    }
    assert_eq!(seen, (1..=ALL).collect::<Vec<_>>());
    assert!(answer["result"]["content"].is_array(), "{answer}");
}

/// The end of a session cancels what its broken streams did not.
#[test]
fn nothing_stays_in_flight_when_a_session_ends() {
    const HELD: usize = 50;
    let place = Place::of_fixture(&[], json!({ "prefix": false }));
    let daemon = place.start(&[]);
    let mut other = daemon.http();
    let session = other.open(LEGACY);
    let mut clients: Vec<Http> = (0..HELD).map(|_| daemon.http()).collect();
    for (id, client) in (1..).zip(&mut clients) {
        assert!(client.call_in(&session, id, "never", json!({})));
    }
    wait_for("the calls to reach the server", || {
        (received(&place, "never").0.len() == HELD).then_some(())
    });
    drop(clients);
    // They go on, and are found by their ids.
    other.call_in(&session, 1, "count", json!({}));
    assert_eq!(
        other.response().error(),
        Some(-32600),
        "it is still in flight"
    );
    assert!(
        received(&place, "never").1.is_empty(),
        "a broken stream cancelled"
    );
    other.send(&colibri_tests::http::request(
        "DELETE",
        &[("Mcp-Session-Id", &session)],
        "",
    ));
    assert_eq!(other.response().status, 204);
    wait_for_the_end(&place, &daemon);
}

//! Servers behind a URL: that they are servers like any, and what becomes of calls where HTTP fails.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use colibri_tests::remote::{Port, answer, json_answer};
use colibri_tests::{Client, Daemon, LEGACY, MODERN, Place, code_of, text_of};
use serde_json::{Value, json};

/// A daemon that another reaches over HTTP: its server `fix` alone, under its own names.
fn behind(place: &Place, args: &[&str]) -> Value {
    place.fixture("fix", args, json!({}))
}

/// What a call is answered, without what names the server.
fn of(client: &mut Client, server: &str, tool: &str, arguments: Value) -> String {
    let answer = client.call(&format!("{server}__{tool}"), arguments);
    answer.to_string().replace(&format!("{server}__"), "SERVER__")
}

fn clients(daemon: &Daemon<'_>) -> [Client; 2] {
    [daemon.legacy(LEGACY), daemon.modern()]
}

#[test]
fn a_url_server_and_a_process_are_told_apart_by_name_alone() {
    for version in [LEGACY, MODERN] {
        let args = &["--speak", version];
        let inner = Place::new();
        inner.registry(&json!({ "fix": behind(&inner, args) }));
        let far = inner.start(&[]);
        let port = Port::to(&inner.socket(), version == LEGACY);
        let place = Place::new();
        let rules = json!({ "tools": { "deny": ["pid"] }, "timeout_ms": 20_000 });
        place.registry(&json!({
            "near": place.fixture("near", args, rules.clone()),
            "web": port.entry("/mcp/fix", rules),
        }));
        let daemon = place.start(&[]);
        for mut client in clients(&daemon) {
            let tools = client.ask("tools/list", json!({}));
            let of_server = |server: &str| {
                let tools = tools["result"]["tools"].as_array().unwrap().iter();
                let own = tools.filter(|tool| tool["name"].as_str().unwrap().starts_with(&format!("{server}__")));
                own.map(|tool| tool.to_string().replace(server, "SERVER"))
                    .collect::<Vec<_>>()
            };
            assert_eq!(of_server("near"), of_server("web"), "{args:?}");
            assert!(of_server("web").len() > 10, "{tools}");
            for (tool, arguments) in [
                (
                    "echo",
                    json!({ "text": "ä\u{1F600}\n", "big": 12_345_678_901_234_567_890_u64, "f": 1.0 }),
                ),
                ("pid", json!({})),
                ("huge", json!({ "bytes": 300_000 })),
            ] {
                let [near, web] = ["near", "web"]
                    .map(|server| of(&mut client, server, tool, arguments.clone()).replace(server, "SERVER"));
                assert_eq!(near, web, "{args:?} {tool}");
            }
        }
        // Status says the same of both, and so does the trail, line by line.
        let facts = ["near", "web"].map(|server| {
            let mut facts = daemon.server(server);
            assert_eq!(facts["processes"][0]["version"], version, "{facts}");
            for own in ["id", "transport", "since", "processes"] {
                facts[own] = Value::Null;
            }
            facts
        });
        assert_eq!(facts[0], facts[1]);
        daemon.stop();
        let records = place.records();
        let shape = |server: &str| {
            let name = format!("\"{server}\"");
            let of = |record: &&colibri_tests::Record| record.rec.to_string().contains(&name);
            let keys =
                |record: &colibri_tests::Record| record.rec.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            records.iter().filter(of).map(keys).collect::<Vec<_>>()
        };
        assert_eq!(shape("near"), shape("web"));
        assert!(shape("web").len() >= 12, "{records:?}");
        drop(far);
    }
}

/// A daemon with one modern server `web` that answers calls as told. `more`: further keys of its entry.
struct Far {
    place: Place,
    port: Port,
    calls: Arc<AtomicUsize>,
}

impl Far {
    fn new(
        more: Value,
        call: impl Fn(usize, &colibri_tests::remote::Request, &mut std::net::TcpStream) -> bool + Send + Sync + 'static,
    ) -> Far {
        let calls: Arc<AtomicUsize> = Arc::default();
        let counted = calls.clone();
        let port = Port::answering(move |request, stream| match request.usual() {
            Some(usual) => json_answer(stream, &usual),
            None => call(counted.fetch_add(1, Ordering::SeqCst), request, stream),
        });
        let place = Place::new();
        place.registry(&json!({ "web": port.entry("/mcp", more) }));
        Far { place, port, calls }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

#[test]
fn a_call_that_may_have_been_read_is_not_sent_again() {
    // The connection ends after the request, in the middle of the answer, or with fewer bytes than it says.
    for part in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"jsonrpc\"",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"jsonrpc\"",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 7\ndata:\n\n",
    ] {
        let far = Far::new(json!({}), move |_, _, stream| {
            std::io::Write::write_all(stream, part.as_bytes()).unwrap();
            false
        });
        let daemon = far.place.start(&[]);
        let died = daemon.modern().call("web__echo", json!({}));
        assert_eq!(code_of(&died), Some("SERVER_DIED"), "{part}: {died}");
        assert_eq!(far.calls(), 1, "{part}");
    }
    // Unless the operator says that it may be.
    let more = json!({ "tools": { "idempotent": ["echo"] } });
    let far = Far::new(more, |number, request, stream| {
        number > 0 && json_answer(stream, &request.text("second"))
    });
    let daemon = far.place.start(&[]);
    let answered = daemon.modern().call("web__echo", json!({}));
    assert_eq!(text_of(&answered), "second", "{answered}");
}

#[test]
fn a_call_that_was_refused_unprocessed_waits_as_it_is_told() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let far = Far::new(json!({}), move |number, request, stream| match number {
            0 => answer(stream, status, "Retry-After: 1\r\n", "slow down"),
            _ => json_answer(stream, &request.text("later")),
        });
        let daemon = far.place.start(&[]);
        let answered = daemon.modern().call("web__echo", json!({}));
        assert_eq!(text_of(&answered), "later", "{answered}");
        assert_eq!(far.calls(), 2);
        // A longer wait than there is time, and one that is not named, are answered now.
        for (head, seconds) in [("Retry-After: 600\r\n", "600 s"), ("", "30 s")] {
            let far = Far::new(json!({}), move |_, _, stream| answer(stream, status, head, "slow down"));
            let daemon = far.place.start(&[]);
            let refused = daemon.modern().call("web__echo", json!({}));
            assert_eq!(code_of(&refused), Some("INTEGRATION_UNAVAILABLE"), "{refused}");
            let told = refused["_meta"]["org.colibri/error"]["do"].to_string();
            assert!(
                told.contains(seconds) && text_of(&refused).contains("slow down"),
                "{refused}"
            );
            assert_eq!(far.calls(), 1);
        }
    }
}

#[test]
fn what_the_server_says_of_a_failure_is_told_without_secrets() {
    let more = json!({ "headers": { "Authorization": { "secret": "web" } } });
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = told.clone();
    let far = Far::new(more, move |number, request, stream| {
        let authorization = request.field("authorization").unwrap().to_owned();
        let body = format!("no {authorization}\n\x1b[31m");
        heard.lock().unwrap().push(authorization);
        let status = ["500 Oops", "404 Not Found", "401 Who", "403 No", "200 OK"][number.min(4)];
        answer(stream, status, "Content-Type: text/plain\r\n", &body)
    });
    far.place.secret("web", "Bearer abcdefgh");
    let daemon = far.place.start(&[]);
    let mut client = daemon.modern();
    for (code, what) in [
        ("SERVER_ANSWER_INVALID", "500"),
        ("SERVER_ANSWER_INVALID", "404"),
        ("SERVER_UNSTARTABLE", "401"),
        ("SERVER_UNSTARTABLE", "403"),
        ("SERVER_ANSWER_INVALID", "neither JSON nor events"),
    ] {
        let refused = client.call("web__echo", json!({}));
        assert_eq!(code_of(&refused), Some(code), "{refused}");
        let text = text_of(&refused);
        assert!(
            text.contains(what) && !text.contains("abcdefgh") && !text.contains('\x1b'),
            "{text}"
        );
    }
    assert!(told.lock().unwrap().iter().all(|told| told == "Bearer abcdefgh"));
    assert!(!daemon.log().contains("abcdefgh"));
}

#[test]
fn nothing_is_sent_to_an_address_that_the_entry_does_not_allow() {
    let port = Port::answering(|_, _| false);
    let place = Place::new();
    place.registry(&json!({
        "named": { "url": port.url("/mcp") },
        "number": { "url": port.url("/mcp").replace("localhost", "127.0.0.1"), "allow_addresses": ["private"] },
        "mapped": { "url": port.url("/mcp").replace("localhost", "[::ffff:127.0.0.1]") },
    }));
    let daemon = place.start_in(
        &[("http_proxy", &port.url("")), ("HTTP_PROXY", &port.url(""))],
        &["--external-call"],
    );
    let mut client = daemon.modern();
    for server in ["named", "number", "mapped"] {
        let refused = client.call(
            "colibri_external_mcp_call_tool",
            json!({ "server": server, "tool": "x" }),
        );
        assert!(refused.to_string().contains("allow_addresses"), "{refused}");
        assert_eq!(daemon.server(server)["state"], "failed");
    }
    assert_eq!(port.connections(), 0);
}

#[test]
fn calls_over_one_session_share_its_connection() {
    let far = Far::new(json!({}), |number, request, stream| {
        json_answer(stream, &request.text(&number.to_string()))
    });
    let daemon = far.place.start(&[]);
    let mut client = daemon.modern();
    for number in 0..50 {
        let answered = client.call("web__echo", json!({}));
        assert_eq!(text_of(&answered), number.to_string());
    }
    assert!(far.port.connections() <= 3, "{}", far.port.connections());
}

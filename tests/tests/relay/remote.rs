//! Servers behind a URL: that they are servers like any, and what becomes of calls where HTTP
//! fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use colibri_tests::remote::{Far, Port, answer, json_answer};
use colibri_tests::{Client, Daemon, LEGACY, MODERN, Place, code_of, text_of};
use serde_json::{Value, json};

/// A daemon that another reaches over HTTP: its server `fix` alone, under its own names.
fn behind(place: &Place, args: &[&str]) -> Value {
    place.fixture("fix", args, json!({}))
}

/// What a call is answered, without what names the server.
fn of(client: &mut Client, server: &str, tool: &str, arguments: Value) -> String {
    let answer = client.call(&format!("{server}__{tool}"), arguments);
    answer
        .to_string()
        .replace(&format!("{server}__"), "SERVER__")
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
                let own = tools.filter(|tool| {
                    tool["name"]
                        .as_str()
                        .unwrap()
                        .starts_with(&format!("{server}__"))
                });
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
                let [near, web] = ["near", "web"].map(|server| {
                    of(&mut client, server, tool, arguments.clone()).replace(server, "SERVER")
                });
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
            let keys = |record: &colibri_tests::Record| {
                record
                    .rec
                    .as_object()
                    .unwrap()
                    .keys()
                    .cloned()
                    .collect::<Vec<_>>()
            };
            records.iter().filter(of).map(keys).collect::<Vec<_>>()
        };
        assert_eq!(shape("near"), shape("web"));
        assert!(shape("web").len() >= 12, "{records:?}");
        drop(far);
    }
}

#[test]
fn a_call_that_may_have_been_read_is_not_sent_again() {
    // The connection ends after the request, in the middle of the answer, or with fewer bytes than
    // it says.
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
            let far = Far::new(json!({}), move |_, _, stream| {
                answer(stream, status, head, "slow down")
            });
            let daemon = far.place.start(&[]);
            let refused = daemon.modern().call("web__echo", json!({}));
            assert_eq!(
                code_of(&refused),
                Some("INTEGRATION_UNAVAILABLE"),
                "{refused}"
            );
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
        ("SERVER_FAILED", "500"),
        ("SERVER_ANSWER_INVALID", "404"),
        ("SERVER_DENIED", "401"),
        ("SERVER_DENIED", "403"),
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
    assert!(
        told.lock()
            .unwrap()
            .iter()
            .all(|told| told == "Bearer abcdefgh")
    );
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

/// A legacy server over HTTP, in as few words as there can be. It notes what it is asked.
struct Legacy {
    place: Place,
    port: Port,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Legacy {
    fn new(
        call: impl Fn(usize, &colibri_tests::remote::Request, &mut std::net::TcpStream) -> bool
        + Send
        + Sync
        + 'static,
    ) -> Legacy {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let (told, sessions, calls) = (heard.clone(), AtomicUsize::new(0), AtomicUsize::new(0));
        let port = Port::answering(move |request, stream| {
            let session = request.field("mcp-session-id").unwrap_or("-");
            let version = request.field("mcp-protocol-version").unwrap_or("-");
            let verb = request.line.split(' ').next().unwrap();
            let after = request.field("last-event-id").unwrap_or("");
            let what = request.method();
            told.lock()
                .unwrap()
                .push(format!("{verb} {what}{after} {session} {version}"));
            let id = &request.body["id"];
            let result = match (verb, what) {
                ("POST", "server/discover") => return answer(stream, "400 Bad Request", "", ""),
                ("POST", "initialize") => {
                    let head = format!(
                        "Content-Type: application/json\r\nMcp-Session-Id: s{}\r\n",
                        sessions.fetch_add(1, Ordering::SeqCst)
                    );
                    let says = json!({ "jsonrpc": "2.0", "id": id, "result": { "protocolVersion": LEGACY,
                        "capabilities": { "tools": {} }, "serverInfo": { "name": "far", "version": "1" } } });
                    return answer(stream, "200 OK", &head, &says.to_string());
                }
                ("POST", "tools/list") => {
                    json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] })
                }
                ("POST", "tools/call") => {
                    return call(calls.fetch_add(1, Ordering::SeqCst), request, stream);
                }
                ("POST", _) => return answer(stream, "202 Accepted", "", ""),
                ("GET", _) if !after.is_empty() => {
                    return call(calls.fetch_add(1, Ordering::SeqCst), request, stream);
                }
                ("DELETE", _) => return answer(stream, "204 No Content", "", ""),
                _ => return answer(stream, "405 Method Not Allowed", "", ""),
            };
            json_answer(
                stream,
                &json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            )
        });
        let place = Place::new();
        place.registry(&json!({ "web": port.entry("/mcp", json!({})) }));
        Legacy { place, port, heard }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    fn has_heard(&self, what: &str) -> bool {
        self.heard().iter().any(|heard| heard == what)
    }
}

#[test]
fn a_legacy_session_has_its_id_and_version_and_is_ended() {
    let far = Legacy::new(|_, request, stream| json_answer(stream, &request.text("hello")));
    let daemon = far.place.start(&[]);
    assert_eq!(
        text_of(&daemon.modern().call("web__echo", json!({}))),
        "hello"
    );
    daemon.stop();
    let heard = far.heard();
    let at = |what: &str| {
        heard
            .iter()
            .position(|heard| heard == what)
            .unwrap_or_else(|| panic!("{what}: {heard:?}"))
    };
    let v = LEGACY;
    assert!(at("POST initialize - -") < at(&format!("POST notifications/initialized s0 {v}")));
    assert!(
        at(&format!("POST notifications/initialized s0 {v}"))
            < at(&format!("POST tools/list s0 {v}"))
    );
    assert!(at(&format!("POST tools/list s0 {v}")) < at(&format!("POST tools/call s0 {v}")));
    assert_eq!(heard.last().unwrap(), &format!("DELETE  s0 {v}"));
    at(&format!("GET  s0 {v}"));
}

#[test]
fn a_session_that_the_server_forgot_is_begun_anew() {
    let far = Legacy::new(|number, request, stream| match number {
        1 => answer(
            stream,
            "404 Not Found",
            "Content-Type: text/plain\r\n",
            "who?",
        ),
        _ => json_answer(
            stream,
            &request.text(request.field("mcp-session-id").unwrap()),
        ),
    });
    let daemon = far.place.start(&[]);
    let mut client = daemon.modern();
    for session in ["s0", "s1", "s1"] {
        assert_eq!(text_of(&client.call("web__echo", json!({}))), session);
    }
}

#[test]
fn a_stream_that_ends_early_is_read_on() {
    use std::io::Write as _;
    let first = Arc::new(Mutex::new(Value::Null));
    let far = Legacy::new(move |number, request, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        let text = match number {
            0 => {
                *first.lock().unwrap() = request.text("at last");
                format!("{head}id: e1\nretry: 10\ndata:\n\n")
            }
            // Nothing new, then the answer.
            1 => format!("{head}: still nothing\n\n"),
            _ => format!("{head}id: e2\ndata: {}\n\n", first.lock().unwrap()),
        };
        stream.write_all(text.as_bytes()).unwrap();
        false
    });
    let daemon = far.place.start(&[]);
    assert_eq!(
        text_of(&daemon.modern().call("web__echo", json!({}))),
        "at last"
    );
    let resumed = format!("GET e1 s0 {LEGACY}");
    assert_eq!(
        far.heard()
            .iter()
            .filter(|heard| **heard == resumed)
            .count(),
        2,
        "{:?}",
        far.heard()
    );
    assert!(far.port.connections() > 2);
}

#[test]
fn a_cancelled_call_is_told_to_a_legacy_server_and_ends_the_stream_of_a_modern_one() {
    use std::io::{Read as _, Write as _};
    let far = Legacy::new(|_, _, stream| {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: wait\n\n");
        true
    });
    let daemon = far.place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let id = client.request_tool("web__echo", json!({}));
    colibri_tests::wait_for("the call", || {
        far.has_heard(&format!("POST tools/call s0 {LEGACY}"))
            .then_some(())
    });
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    colibri_tests::wait_for("its cancellation", || {
        far.has_heard(&format!("POST notifications/cancelled s0 {LEGACY}"))
            .then_some(())
    });
    let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (note_begun, note_ended) = (begun.clone(), ended.clone());
    let far = Far::new(json!({}), move |_, _, stream| {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: wait\n\n");
        note_begun.fetch_add(1, Ordering::SeqCst);
        if matches!(stream.read(&mut [0]), Ok(0) | Err(_)) {
            note_ended.fetch_add(1, Ordering::SeqCst);
        }
        false
    });
    let daemon = far.place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let id = client.request_tool("web__echo", json!({}));
    colibri_tests::wait_for("the call", || {
        (begun.load(Ordering::SeqCst) == 1).then_some(())
    });
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    colibri_tests::wait_for("the end of its stream", || {
        (ended.load(Ordering::SeqCst) == 1).then_some(())
    });
}

#[test]
fn arguments_are_mirrored_and_a_tool_that_may_not_mirror_is_left_out() {
    let heard: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let told = heard.clone();
    let port = Port::answering(move |request, stream| {
        if request.method() == "tools/list" {
            let property = |header: &str| {
                json!({ "type": "object", "properties": {
                "region": { "type": "string", "x-mcp-header": header } } })
            };
            let tools = json!([
                { "name": "good", "inputSchema": property("Region") },
                { "name": "bad", "inputSchema": property("not a name") },
            ]);
            let mut listed = request.usual().unwrap();
            listed["result"]["tools"] = tools;
            return json_answer(stream, &listed);
        }
        match request.usual() {
            Some(usual) => json_answer(stream, &usual),
            None => {
                let fields = [
                    "mcp-method",
                    "mcp-name",
                    "mcp-param-region",
                    "mcp-protocol-version",
                ];
                told.lock()
                    .unwrap()
                    .extend(fields.map(|name| request.field(name).map(str::to_owned)));
                json_answer(stream, &request.text("done"))
            }
        }
    });
    let place = Place::new();
    place.registry(&json!({ "web": port.entry("/mcp", json!({})) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    assert_eq!(
        text_of(&client.call("web__good", json!({ "region": "Zürich" }))),
        "done"
    );
    let expected = ["tools/call", "good", "=?base64?WsO8cmljaA==?=", MODERN]
        .map(|field| Some(field.to_owned()));
    assert_eq!(*heard.lock().unwrap(), expected);
    let tools = client.tools();
    assert!(
        tools.contains(&"web__good".to_owned()) && !tools.contains(&"web__bad".to_owned()),
        "{tools:?}"
    );
    let reason = daemon.server("web")["reason"].to_string();
    assert!(reason.contains("bad: its x-mcp-header"), "{reason}");
}

#[test]
fn a_call_that_was_refused_for_its_header_fields_is_sent_once_more_after_the_tools_were_listed() {
    // How often it is refused, and whether the server lists another definition then.
    for (refused, changes, expected) in [
        (1, false, None),
        (9, false, Some("SERVER_ANSWER_INVALID")),
        (1, true, Some("PIN_CHANGED")),
    ] {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = heard.clone();
        let calls = AtomicUsize::new(0);
        let port = Port::answering(move |request, stream| {
            told.lock().unwrap().push(request.method().to_owned());
            let Some(mut usual) = request.usual() else {
                if calls.fetch_add(1, Ordering::SeqCst) >= refused {
                    return json_answer(stream, &request.text("done"));
                }
                let error = json!({ "code": -32020, "message": "Mcp-Param-Region is missing" });
                let error = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
                let kind = "Content-Type: application/json\r\n";
                return answer(stream, "400 Bad Request", kind, &error.to_string());
            };
            if request.method() == "tools/list" && changes && calls.load(Ordering::SeqCst) > 0 {
                let region = json!({ "type": "string", "x-mcp-header": "Region" });
                usual["result"]["tools"][0]["inputSchema"]["properties"] =
                    json!({ "region": region });
            }
            json_answer(stream, &usual)
        });
        let place = Place::new();
        place.registry(&json!({ "web": port.entry("/mcp", json!({})) }));
        let daemon = place.start(&[]);
        let answered = daemon.modern().call("web__echo", json!({}));
        assert_eq!(code_of(&answered), expected, "{answered}");
        let heard = heard.lock().unwrap();
        let first = heard
            .iter()
            .position(|heard| heard == "tools/call")
            .unwrap();
        let after = match expected {
            Some("PIN_CHANGED") => &["tools/call", "tools/list"][..],
            _ => &["tools/call", "tools/list", "tools/call"],
        };
        assert_eq!(heard[first..], *after);
    }
}

#[test]
fn the_transport_of_2024_11_05_is_spoken_where_the_entry_says_so() {
    use std::io::Write as _;
    let stream_of: Arc<Mutex<Option<std::net::TcpStream>>> = Arc::default();
    let port = Port::answering(move |request, stream| {
        if request.line.starts_with("GET ") {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: endpoint\ndata: /to?s=1\n\n";
            // Whoever has read this posts on another connection, which looks for the stream.
            *stream_of.lock().unwrap() = Some(stream.try_clone().unwrap());
            stream.write_all(head.as_bytes()).unwrap();
            return true;
        }
        assert!(
            request.line.starts_with("POST /to?s=1 "),
            "{}",
            request.line
        );
        answer(stream, "202 Accepted", "", "");
        let id = &request.body["id"];
        let result = match request.method() {
            "initialize" => {
                json!({ "protocolVersion": "2024-11-05", "capabilities": { "tools": {} },
                "serverInfo": { "name": "old", "version": "1" } })
            }
            "tools/list" => {
                json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] })
            }
            "tools/call" => json!({ "content": [{ "type": "text", "text": "old" }] }),
            _ => return true,
        };
        let message = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        let mut events = stream_of.lock().unwrap();
        write!(
            events.as_mut().unwrap(),
            "event: message\r\ndata: {message}\r\n\r\n"
        )
        .is_ok()
    });
    let place = Place::new();
    place.registry(&json!({ "web": port.entry("/sse", json!({ "type": "sse" })) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    assert_eq!(text_of(&client.call("web__echo", json!({}))), "old");
    // The stream is the session: it is begun anew when it ends.
    port.cut();
    colibri_tests::wait_for("a new session", || {
        (text_of(&client.call("web__echo", json!({}))) == "old").then_some(())
    });
}

//! Servers behind a URL that break the rules of HTTP or TLS: each call ends in an answer or an
//! error that says why, within its limits, nothing goes where it was not meant to, and a server
//! that behaves again is served again.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use colibri_tests::remote::{Authority, Far, Port, answer, json_answer};
use colibri_tests::{Place, code_of, text_of};
use serde_json::{Value, json};

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
/// The most memory that a daemon may use beside endless answers: its own, and a few messages.
const MAX_MEMORY: u64 = 100 * 1024 * 1024;

/// Waits until the other side is gone.
fn hang(stream: &mut TcpStream) -> bool {
    while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {}
    false
}

/// Writes the same again and again, until nobody takes it any more.
fn flood(stream: &mut TcpStream, head: &str, again: &str) -> bool {
    let again = again.repeat(4096 / again.len() + 1);
    let mut open = stream.write_all(head.as_bytes()).is_ok();
    while open {
        open = stream.write_all(again.as_bytes()).is_ok();
    }
    false
}

/// Its first call is answered in this way, the next as it should be: what becomes of both.
fn first(more: Value, odd: impl Fn(&mut TcpStream) -> bool + Send + Sync + 'static) -> Value {
    let far = Far::new(more, move |number, request, stream| match number {
        0 => odd(stream),
        _ => json_answer(stream, &request.text("well")),
    });
    far.place.limits(json!({ "message_bytes": "1M" }));
    let daemon = far.place.start(&[]);
    let mut client = daemon.modern();
    let answered = client.ask(
        "tools/call",
        json!({ "name": "web__echo", "arguments": {} }),
    );
    assert_eq!(far.calls(), 1, "{answered}");
    let next = client.call("web__echo", json!({}));
    assert_eq!(text_of(&next), "well", "{next}");
    if let Some(resident) = daemon.resident() {
        assert!(resident < MAX_MEMORY, "{resident}");
    }
    answered
}

#[test]
fn one_that_stalls_is_given_up_in_time() {
    let chunk = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\n{{\"js");
    let body = format!("{HEAD}Content-Length: 100\r\n\r\n{{\"jsonrpc\"");
    let event = format!("{EVENTS}data: {{\"jsonrpc\":");
    for (part, code) in [
        ("", "TIMEOUT_CALL"),
        ("HTTP/1.1 200 O", "TIMEOUT_CALL"),
        (HEAD, "TIMEOUT_CALL"),
        (body.as_str(), "TIMEOUT_CALL"),
        (&chunk, "TIMEOUT_CALL"),
        (EVENTS, "TIMEOUT_CALL"),
        (&event, "TIMEOUT_CALL"),
    ] {
        let part = part.to_owned();
        let answered = first(json!({ "timeout_ms": 700 }), move |stream| {
            stream.write_all(part.as_bytes()).unwrap();
            hang(stream)
        });
        assert_eq!(code_of(&answered), Some(code), "{answered}");
    }
}

#[test]
fn one_that_never_ends_is_given_up_within_its_limits() {
    let chunked = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n");
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"none","progress":1}}"#;
    for (head, again, code) in [
        // A head, a body, an event and what looks like nothing.
        (HEAD, "X: y\r\n".to_owned(), "SERVER_DIED"),
        ("HTTP/1.1 200 OK\r\nX: ", "x".to_owned(), "SERVER_DIED"),
        (
            "",
            "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
            "TIMEOUT_CALL",
        ),
        (&chunked, "4\r\n    \r\n".to_owned(), "FRAME_TOO_LONG"),
        (&chunked, "1;x=y\r\n \r\n".to_owned(), "SERVER_DIED"),
        (EVENTS, "data: x\n".to_owned(), "FRAME_TOO_LONG"),
        (EVENTS, "x".to_owned(), "FRAME_TOO_LONG"),
        (EVENTS, ": still here\n\n".to_owned(), "TIMEOUT_CALL"),
        (EVENTS, format!("data: {progress}\n\n"), "TIMEOUT_CALL"),
    ] {
        let (head, repeated) = (head.to_owned(), again.clone());
        // What is refused for its length has the time to be as long on a busy machine.
        let total = if code == "TIMEOUT_CALL" { 4000 } else { 60_000 };
        let limits = json!({ "timeout_ms": total / 2, "total_timeout_ms": total });
        let answered = first(limits, move |stream| flood(stream, &head, &repeated));
        assert_eq!(code_of(&answered), Some(code), "{again}: {answered}");
    }
}

#[test]
fn a_connection_that_is_reset_is_a_call_that_was_lost() {
    for part in ["", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let answered = first(json!({}), move |stream| {
            stream.write_all(part.as_bytes()).unwrap();
            let linger = libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger)
                .unwrap();
            false
        });
        assert_eq!(code_of(&answered), Some("SERVER_DIED"), "{answered}");
    }
}

#[test]
fn an_answer_that_is_not_what_it_says_is_none() {
    for (answer, code) in [
        (
            format!("{HEAD}Content-Length: 40\r\n\r\n{{}}"),
            "SERVER_DIED",
        ),
        (
            format!("{HEAD}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}}}"),
            "SERVER_DIED",
        ),
        (
            format!("{HEAD}Content-Length: -2\r\n\r\n{{}}"),
            "SERVER_DIED",
        ),
        (
            format!("{HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n"),
            "SERVER_DIED",
        ),
        (
            format!("{HEAD}Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{{}}\r\n"),
            "SERVER_DIED",
        ),
        (
            format!("{HEAD}Content-Length: 2\r\n\r\n{{}}"),
            "SERVER_ANSWER_INVALID",
        ),
        (
            format!("{HEAD}Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\u{1f}\u{8}"),
            "SERVER_DIED",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<p>".to_owned(),
            "SERVER_ANSWER_INVALID",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
            "SERVER_ANSWER_INVALID",
        ),
        (
            "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            "SERVER_ANSWER_INVALID",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
                .to_owned(),
            "SERVER_ANSWER_INVALID",
        ),
        ("SSH-2.0-OpenSSH_10\r\n".to_owned(), "SERVER_DIED"),
    ] {
        let said = answer.clone();
        let answered = first(json!({}), move |stream| {
            stream.write_all(said.as_bytes()).unwrap();
            false
        });
        assert_eq!(code_of(&answered), Some(code), "{answer}: {answered}");
    }
}

#[test]
fn a_connection_that_brought_another_calls_answer_is_used_no_more() {
    // All but the first call of a connection get the answer of the call before.
    let last: Mutex<BTreeMap<SocketAddr, String>> = Mutex::default();
    let far = Far::new(json!({}), move |number, request, stream| {
        let answer = request.text(&number.to_string()).to_string();
        let before = last
            .lock()
            .unwrap()
            .insert(stream.peer_addr().unwrap(), answer.clone());
        let answer = before.unwrap_or(answer);
        write!(
            stream,
            "{HEAD}Content-Length: {}\r\n\r\n{answer}",
            answer.len()
        )
        .is_ok()
    });
    let daemon = far.place.start(&[]);
    let mut client = daemon.modern();
    for number in 0..10 {
        let answered = client.call("web__echo", json!({}));
        if number % 2 == 0 {
            assert_eq!(text_of(&answered), number.to_string(), "{answered}");
        } else {
            assert_eq!(
                code_of(&answered),
                Some("SERVER_ANSWER_INVALID"),
                "{answered}"
            );
        }
    }
}

#[test]
fn no_redirect_leads_elsewhere_or_on_and_on() {
    let other = Port::answering(|_, stream| answer(stream, "200 OK", "", ""));
    let at_other = other.url("/mcp");
    for (place, why) in [
        (at_other.as_str(), "is not followed"),
        ("https://localhost/mcp", "is not followed"),
        ("http://127.0.0.1/mcp", "is not followed"),
        ("http://169.254.169.254/latest/meta-data", "is not followed"),
        ("http://[::1]:1/", "is not followed"),
        ("//localhost:1/", "is not followed"),
        ("file:///etc/passwd", "file"),
        ("/mcp", "over and over"),
    ] {
        let head = format!("Location: {place}\r\n");
        let more = json!({ "headers": { "Authorization": { "secret": "web" } } });
        let far = Far::new(more, move |_, _, stream| {
            answer(stream, "307 Temporary Redirect", &head, "")
        });
        far.place.secret("web", "Bearer abcdefgh");
        let daemon = far.place.start(&[]);
        let refused = daemon.modern().call("web__echo", json!({}));
        assert_eq!(code_of(&refused), Some("SERVER_UNSTARTABLE"), "{refused}");
        assert!(text_of(&refused).contains(why), "{place}: {refused}");
    }
    assert_eq!(other.connections(), 0);
}

#[test]
fn a_certificate_is_looked_at_for_each_connection() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let good = authority.shows("localhost", 2999);
    let shown = Arc::new(Mutex::new(good.clone()));
    let port = Port::secure(&shown, |request| {
        request.usual().unwrap_or_else(|| request.text("well"))
    });
    let place = Place::new();
    let file = place.path("authority.pem");
    std::fs::write(&file, authority.pem()).unwrap();
    let entry = |more| {
        port.entry("/mcp", more)
            .to_string()
            .replace("http:", "https:")
    };
    let entries: [Value; 2] =
        [json!({ "ca": file }), json!({})].map(|more| serde_json::from_str(&entry(more)).unwrap());
    place.registry(&json!({ "web": entries[0], "unknown": entries[1] }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    assert_eq!(text_of(&client.call("web__echo", json!({}))), "well");
    // An authority of its own is believed where the entry names it, and nowhere else.
    let refused = client.call(
        "colibri_external_mcp_call_tool",
        json!({ "server": "unknown", "tool": "echo" }),
    );
    assert!(
        refused
            .to_string()
            .contains("no authority that is believed here"),
        "{refused}"
    );
    for (shows, why) in [
        (
            stranger.shows("localhost", 2999),
            "no authority that is believed here",
        ),
        (
            authority.shows("elsewhere.example", 2999),
            "not valid for name",
        ),
        (authority.shows("localhost", 2020), "expired"),
    ] {
        // It changes while a session is open: the next connection is refused, before anything is
        // said.
        *shown.lock().unwrap() = shows;
        port.cut();
        let refused = client.call("web__echo", json!({}));
        assert_eq!(code_of(&refused), Some("SERVER_UNSTARTABLE"), "{refused}");
        let text = text_of(&refused);
        assert!(
            text.contains("the TLS certificate of localhost is not believed") && text.contains(why),
            "{text}"
        );
        *shown.lock().unwrap() = good.clone();
        let answered = client.call("web__echo", json!({}));
        assert_eq!(text_of(&answered), "well", "{answered}");
    }
}

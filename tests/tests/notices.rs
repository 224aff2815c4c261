//! Notices over the built programs: who is told what happens, and that nothing else is told.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use colibri_tests::{LEGACY, Place, wait_for};
use serde_json::{Value, json};

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// The bodies that a receiver got.
type Got = Arc<Mutex<Vec<Value>>>;

fn take(stream: TcpStream, got: &Got) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut fields, mut line) = (0, 0, String::new());
        while stream.read_line(&mut line).ok()? > 2 {
            let lower = line.to_ascii_lowercase();
            if let Some(number) = lower.strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
            fields += usize::from(lower.starts_with("colibri-"));
            line.clear();
        }
        if length == 0 {
            return None;
        }
        assert_eq!(fields, 2, "a time and a signature");
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        got.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
        stream.get_mut().write_all(answer).ok()?;
    }
}

/// A receiver, and what it got.
fn receiver() -> (String, Got) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/t0ken", listener.local_addr().unwrap());
    let got = Got::default();
    let seen = got.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = seen.clone();
            std::thread::spawn(move || take(stream, &seen));
        }
    });
    (url, got)
}

fn first(got: &Got, event: &str) -> Value {
    wait_for(event, || {
        got.lock().unwrap().iter().find(|body| body["event"] == event).cloned()
    })
}

#[test]
fn what_happens_is_told_to_a_webhook_and_to_who_watches() {
    let (url, got) = receiver();
    let place = Place::of_fixture(&[], json!({ "tools": { "confirm": ["count"] } }));
    let own = nix::unistd::geteuid().as_raw();
    let rights = json!({ "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true });
    place.clients(&json!({ "users": { own.to_string(): rights } }).to_string());
    place.secret("webhook", KEY);
    let flags = ["--write", "--webhook", &url, "--webhook-allow", "loopback"];
    let daemon = place.start(&flags);
    let mut watcher = daemon.quiet(LEGACY);
    watcher.request("colibri/watch-notices", json!({}));
    watcher.notification("colibri/watching-notices");

    // A task, whose words stay at home.
    let mut client = daemon.quiet(LEGACY);
    client.call("colibri_create_task", json!({ "title": "w0rds of people" }));
    let next = client.call("colibri_next_task", json!({}))["structuredContent"]["task"].take();
    let finish = json!({ "task": next["id"], "claim": next["claim"], "result": "w0rds, too" });
    client.call("colibri_finish_task", finish);
    let told = watcher.notification("colibri/notice")["params"]["notice"].take();
    assert_eq!(told["event"], "task.completed", "{told}");
    assert_eq!(told["facts"], json!({ "task": 1, "status": "done", "created_by": own }));
    assert_eq!(first(&got, "task.completed"), told, "everybody is told the same");

    // A call that waits for a person: that it does, and nothing of what it says.
    let waiting = client.request_tool("fix__count", json!({ "mark": "w0rds" }));
    let told = watcher.notification("colibri/notice")["params"]["notice"].take();
    assert_eq!(told["event"], "approval.waiting", "{told}");
    assert_eq!(
        (&told["facts"]["server"], &told["facts"]["tool"], &told["facts"]["uid"]),
        (&json!("fix"), &json!("count"), &json!(own))
    );
    first(&got, "approval.waiting");
    client.notify("notifications/cancelled", json!({ "requestId": waiting }));

    let log = daemon.log();
    assert!(
        log.contains("task.completed") && log.contains("approval.waiting"),
        "{log}"
    );
    // A daemon that is killed tells nothing; the next one does.
    daemon.kill();
    let daemon = place.start(&flags);
    let told = first(&got, "error.critical");
    assert_eq!(told["facts"]["what"], "crash", "{told}");
    let log = log + &daemon.log();
    let bodies = json!(*got.lock().unwrap()).to_string();
    for secret in ["w0rds", "t0ken", KEY] {
        assert!(
            !log.contains(secret) && !bodies.contains(secret),
            "{secret}: {log} {bodies}"
        );
    }
    daemon.stop();
}

#[test]
fn a_receiver_that_never_answers_holds_up_nobody() {
    // Connections are made, and nobody ever takes them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let place = Place::of_fixture(&[], json!({}));
    place.secret("webhook", KEY);
    let daemon = place.start(&["--write", "--webhook", &url, "--webhook-allow", "loopback"]);
    let mut client = daemon.quiet(LEGACY);
    for _ in 0..300 {
        let created = client.call("colibri_create_task", json!({ "title": "t" }));
        let next = client.call("colibri_next_task", json!({}))["structuredContent"]["task"].take();
        assert_eq!(next["status"], "claimed", "{created}");
        let finish = json!({ "task": next["id"], "claim": next["claim"], "result": 1 });
        assert_ne!(client.call("colibri_finish_task", finish)["isError"], true);
    }
    daemon.assert_serves("fix__count");
    // It ends in time, too.
    daemon.stop();
    drop(listener);
}

#[test]
fn a_webhook_without_a_key_is_refused_with_what_to_do() {
    let place = Place::of_fixture(&[], json!({}));
    let url = "https://hooks.example.org/t0ken";
    for flags in [&["--webhook", url][..], &["--check", "--webhook", url]] {
        let root = if nix::unistd::geteuid().is_root() {
            &["--allow-root"][..]
        } else {
            &[]
        };
        let (status, said) = place.refused(&[flags, root].concat());
        assert_eq!(status, Some(78), "{said}");
        assert!(
            said.contains("has no key") && said.contains("openssl rand -hex 32"),
            "{said}"
        );
        assert!(!said.contains("t0ken"), "{said}");
    }
    for (flags, part) in [
        (&["--webhook", "ftp://x/t0ken"][..], "https://"),
        (&["--webhook", "https://user:t0ken@x/"], "user"),
        (&["--webhook", url, "--webhook-allow", "lan"], "loopback"),
        (&["--webhook-allow", "loopback"], "--webhook"),
    ] {
        let (status, said) = place.refused(flags);
        assert!(status == Some(64) && said.contains(part), "{status:?} {said}");
        assert!(!said.contains("t0ken"), "{said}");
    }
}

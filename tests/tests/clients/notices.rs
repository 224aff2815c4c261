//! Notices over the built programs: who is told what happens, and that nothing else is told.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use colibri_tests::{Daemon, LEGACY, Mounted, Place, Record, code_of, wait_for};
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
        got.lock()
            .unwrap()
            .push(serde_json::from_slice(&body).unwrap());
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
        got.lock()
            .unwrap()
            .iter()
            .find(|body| body["event"] == event)
            .cloned()
    })
}

#[test]
fn what_happens_is_told_to_a_webhook_and_to_who_watches() {
    let (url, got) = receiver();
    let place = Place::of_fixture(&[], json!({ "tools": { "confirm": ["count"] } }));
    let own = nix::unistd::geteuid().as_raw();
    let rights =
        json!({ "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true });
    place.clients(&json!({ "users": { own.to_string(): rights } }).to_string());
    place.secret("webhook", KEY);
    let flags = ["--write", "--webhook", &url, "--webhook-allow", "loopback"];
    let daemon = place.start(&flags);
    let mut watcher = daemon.quiet(LEGACY);
    watcher.request("colibri/watch", json!({ "topic": "notices" }));
    watcher.notification("colibri/watching");

    // A task, whose words stay at home.
    let mut client = daemon.quiet(LEGACY);
    client.call("colibri_create_task", json!({ "title": "w0rds of people" }));
    let next = client.call("colibri_next_task", json!({}))["structuredContent"]["task"].take();
    let finish = json!({ "task": next["id"], "claim": next["claim"], "result": "w0rds, too" });
    client.call("colibri_finish_task", finish);
    let told = watcher.notification("colibri/notice")["params"]["notice"].take();
    assert_eq!(told["event"], "task.completed", "{told}");
    assert_eq!(
        told["facts"],
        json!({ "task": 1, "status": "done", "created_by": own })
    );
    assert_eq!(
        first(&got, "task.completed"),
        told,
        "everybody is told the same"
    );

    // A call that waits for a person: that it does, and nothing of what it says.
    let waiting = client.request_tool("fix__count", json!({ "mark": "w0rds" }));
    let told = watcher.notification("colibri/notice")["params"]["notice"].take();
    assert_eq!(told["event"], "approval.waiting", "{told}");
    assert_eq!(
        (
            &told["facts"]["server"],
            &told["facts"]["tool"],
            &told["facts"]["uid"]
        ),
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

/// A daemon whose notices a receiver gets.
fn told(place: &Place) -> (Daemon<'_>, Got) {
    let (url, got) = receiver();
    if !place.path("daemon-secrets/webhook").exists() {
        place.secret("webhook", KEY);
    }
    let daemon = place.start(&["--write", "--webhook", &url, "--webhook-allow", "loopback"]);
    (daemon, got)
}

/// What was said so far to be critical.
fn critical(got: &Got) -> Vec<Value> {
    let got = got.lock().unwrap();
    let errors = got.iter().filter(|body| body["event"] == "error.critical");
    errors.map(|body| body["facts"].clone()).collect()
}

/// Waits until this is said to be critical, once; why it is.
fn becomes_critical(got: &Got, what: &str) -> String {
    let is_so = |facts: &Value| facts["what"] == what;
    wait_for(what, || critical(got).into_iter().find(is_so))["why"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_trail_and_a_store_that_fail_are_told_of_once() {
    let place = Place::of_fixture(&[], json!({}));
    let (daemon, got) = told(&place);
    let mut client = daemon.quiet(LEGACY);
    let mut is_refused = || {
        let answer = client.ask(
            "tools/call",
            json!({ "name": "fix__count", "arguments": {} }),
        );
        code_of(&answer) == Some("TRAIL_UNAVAILABLE")
    };
    assert!(!is_refused());
    fs::remove_dir_all(place.trail_directory()).unwrap();
    // For a millisecond it is not seen.
    wait_for("a refusal", || is_refused().then_some(()));
    let why = becomes_critical(&got, "trail");
    assert!(why.contains("trail"), "{why}");
    assert!((0..20).all(|_| is_refused()));
    fs::create_dir(place.trail_directory()).unwrap();
    wait_for("an answer", || (!is_refused()).then_some(()));

    // What the daemon writes at the same time can make a store of it again.
    wait_for("the store to fail", || {
        for file in fs::read_dir(place.path("state")).unwrap().flatten() {
            if file.file_name().to_string_lossy().starts_with("colibri.db") {
                fs::write(file.path(), [b'x'; 65536]).unwrap();
            }
        }
        let call = json!({ "name": "colibri_create_task", "arguments": { "title": "w0rds" } });
        let answer = client.ask("tools/call", call);
        (code_of(&answer) == Some("STORE_UNAVAILABLE")).then_some(())
    });
    let why = becomes_critical(&got, "store");
    assert!(!why.is_empty() && !why.contains("w0rds"), "{why}");
    assert_eq!(critical(&got).len(), 2);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_disk_that_is_nearly_full_is_told_of() {
    let place = Place::of_fixture(&[], json!({}));
    let _small = Mounted::on(&place.path("state"), "size=32m,mode=0700");
    // An eighth of it is the trail's.
    std::fs::write(place.path("state").join("ballast"), vec![0; 29 << 20]).unwrap();
    let (daemon, got) = told(&place);
    let why = becomes_critical(&got, "disk");
    assert!(why.contains("MiB are left"), "{why}");
    daemon.stop();
}

#[test]
fn a_seal_is_told_of() {
    let place = Place::of_fixture(&[], json!({}));
    let (daemon, got) = told(&place);
    let mut client = daemon.quiet(LEGACY);
    // Two records a call, and 4,096 until a seal.
    for _ in 0..21 {
        let calls: Vec<u64> = (0..100)
            .map(|_| client.request_tool("fix__count", json!({})))
            .collect();
        for call in calls {
            assert_eq!(client.answer(call).get("error"), None);
        }
    }
    let told = first(&got, "trail.sealed");
    let seals: Vec<u64> = place
        .records()
        .iter()
        .filter(|record| record.is("seal"))
        .map(Record::n)
        .collect();
    assert_eq!(told["facts"], json!({ "records": seals[0] + 1 }));
    daemon.stop();
}

/// An entry of an agent that is a script; what it runs has the place in its command line.
fn script(place: &Place, text: &str) -> Value {
    let args = json!(["-c", format!("{text}; : {}", place.directory().display())]);
    json!({ "command": "/bin/sh", "args": args, "events": "codex" })
}

/// Starts an agent, and returns its session.
fn spawn(place: &Place, agent: &str) -> Value {
    let run = place
        .colibri_mcp(&["--json", "agent", "run", agent])
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    serde_json::from_slice::<Value>(&run.stdout).unwrap()["instance"]["id"].take()
}

/// What was told of an agent that wants attention.
fn attention(got: &Got, session: &Value) -> Vec<Value> {
    let got = got.lock().unwrap();
    let told = got.iter().filter(|body| body["event"] == "agent.attention");
    let facts = told.map(|body| body["facts"].clone());
    facts.filter(|facts| facts["session"] == *session).collect()
}

#[test]
fn an_agent_that_fails_is_told_of_and_one_that_went_with_its_daemon() {
    let place = Place::new();
    let hangs =
        "trap '' TERM HUP INT; echo '{\"type\":\"turn.started\"}'; while :; do sleep 1; done";
    let agents = json!({ "fails": script(&place, "exit 3"), "hangs": script(&place, hangs) });
    place.registry_text(&json!({ "servers": {}, "agents": agents }).to_string());
    let (daemon, got) = told(&place);
    let own = nix::unistd::geteuid().as_raw();
    let failed = spawn(&place, "fails");
    let facts = wait_for("the notice", || attention(&got, &failed).pop());
    let expected = json!({ "agent": "fails", "session": failed, "for": own, "state": "error", "stalled": false });
    assert_eq!(facts, expected);

    let left = spawn(&place, "hangs");
    daemon.kill();
    let before = attention(&got, &failed).len();
    let (daemon, got) = told(&place);
    let facts = wait_for("the notice", || attention(&got, &left).pop());
    assert_eq!(
        (&facts["state"], &facts["for"]),
        (&json!("error"), &json!(own))
    );
    // What was told is not told again.
    assert_eq!((before, attention(&got, &failed).len()), (1, 0));
    daemon.stop();
    let (daemon, got) = told(&place);
    let told = spawn(&place, "fails");
    wait_for("the notice", || attention(&got, &told).pop());
    assert!(attention(&got, &left).is_empty());
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
        assert!(
            status == Some(64) && said.contains(part),
            "{status:?} {said}"
        );
        assert!(!said.contains("t0ken"), "{said}");
    }
}

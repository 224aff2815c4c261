//! Servers that break the rules: every call ends in an answer or an error within its limit, memory
//! stays bounded, and the clients of other servers notice nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use colibri_tests::{
    Daemon, LEGACY, Place, code_of, is_alive, processes_with, program, text_of, wait_for,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The most memory that the daemon may ever use here: a few frames of 16 MiB and what queues may
/// hold.
const MAX_MEMORY: u64 = 400 * 1024 * 1024;

/// A place with a server that misbehaves, `bad`, and one that does not, `good`.
fn place(args: &[&str], more: Value) -> Place {
    let place = Place::new();
    place.registry(&json!({
        "bad": place.fixture("bad", args, more),
        "good": place.fixture("good", &[], json!({})),
    }));
    place
}

/// Does `work` while another client calls the good server again and again, and checks the daemon's
/// memory.
fn while_others_are_served<T>(daemon: &Daemon<'_>, work: impl FnOnce() -> T) -> T {
    daemon.assert_serves("good__count");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut client = daemon.legacy(LEGACY);
            let (mut calls, mut most) = (0, 0);
            while !over.load(Ordering::Acquire) || calls == 0 {
                assert_eq!(text_of(&client.call("good__count", json!({}))), "counted");
                calls += 1;
                most = most.max(daemon.resident().unwrap_or(0));
                sleep(Duration::from_millis(5));
            }
            most
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Release);
        let most = other.join().expect("the other client was served");
        assert!(most < MAX_MEMORY, "the daemon used {most} bytes");
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn one_that_never_answers() {
    let place = place(&[], json!({ "timeout_ms": 500 }));
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        let mut client = daemon.legacy(LEGACY);
        let late = client.call("bad__never", json!({}));
        assert_eq!(code_of(&late), Some("TIMEOUT_CALL"), "{late}");
        assert!(text_of(&late).contains("500 ms"), "{late}");
        // The server is told, under the id that it knows.
        let call: Value = serde_json::from_str(&place.received("bad", "\"never\"")[0]).unwrap();
        let told = wait_for("the cancellation", || {
            place.received("bad", "notifications/cancelled").pop()
        });
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["params"]["requestId"], call["id"]);
        assert_eq!(text_of(&client.call("bad__count", json!({}))), "counted");
    });
    assert_eq!(
        place
            .started("bad")
            .iter()
            .filter(|pid| is_alive(**pid))
            .count(),
        1,
        "it was not ended for it"
    );
}

#[test]
fn one_whose_progress_never_leads_to_an_answer() {
    let place = place(
        &[],
        json!({ "total_timeout_ms": 700, "timeout_ms": 60_000 }),
    );
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        let late = daemon.legacy(LEGACY).call("bad__never", json!({}));
        assert_eq!(code_of(&late), Some("TIMEOUT_TOTAL"), "{late}");
    });
}

#[test]
fn a_daemon_that_was_stopped_says_which_limit_came_first() {
    let place = place(&[], json!({ "timeout_ms": 400, "total_timeout_ms": 800 }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let call = client.request(
        "tools/call",
        json!({ "name": "bad__never", "arguments": {} }),
    );
    wait_for("the call", || place.received("bad", "\"never\"").pop());
    daemon.signal(Signal::SIGSTOP);
    // Both limits pass while it stands still.
    sleep(Duration::from_millis(1000));
    daemon.signal(Signal::SIGCONT);
    let late = client.answer(call);
    assert_eq!(code_of(&late), Some("TIMEOUT_CALL"), "{late}");
}

#[test]
fn one_that_answers_twice() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        let mut client = daemon.legacy(LEGACY);
        for _ in 0..20 {
            assert_eq!(
                text_of(&client.call("bad__answer_twice", json!({}))),
                "once"
            );
        }
        assert_eq!(text_of(&client.call("bad__count", json!({}))), "counted");
        let answers = client
            .others
            .iter()
            .filter(|message| message.get("id").is_some());
        assert_eq!(answers.count(), 0, "{:?}", client.others);
    });
}

#[test]
fn one_that_answers_unknown_ids() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        let mut client = daemon.legacy(LEGACY);
        let waiting = client.request_tool("bad__wait", json!({ "until": "told" }));
        assert_eq!(
            text_of(&client.call("bad__unknown_id", json!({}))),
            "to you"
        );
        place.release("told");
        assert_eq!(text_of(&client.answer(waiting)["result"]), "told");
    });
    assert!(daemon.log().contains("never asked"));
}

#[test]
fn one_that_dies_in_the_middle_of_an_answer() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        let mut client = daemon.legacy(LEGACY);
        let waiting: Vec<u64> = (0..10)
            .map(|_| client.request_tool("bad__wait", json!({ "until": "never" })))
            .collect();
        wait_for("the calls", || {
            (place.received("bad", "\"wait\"").len() == 10).then_some(())
        });
        let cut = client.call("bad__die_mid_answer", json!({}));
        assert_eq!(cut["isError"], true, "{cut}");
        for id in waiting {
            let lost = client.answer(id);
            assert_eq!(code_of(&lost), Some("SERVER_DIED"), "{lost}");
        }
        assert_eq!(text_of(&client.call("bad__count", json!({}))), "counted");
    });
}

#[test]
fn one_that_writes_garbage_between_messages() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        let mut client = daemon.legacy(LEGACY);
        for _ in 0..10 {
            assert_eq!(
                text_of(&client.call("bad__garbage", json!({}))),
                "after garbage"
            );
        }
    });
    assert_eq!(
        place
            .started("bad")
            .iter()
            .filter(|pid| is_alive(**pid))
            .count(),
        1
    );
    let complaints = daemon.log().matches("WARN").count();
    assert!(complaints < 40, "garbage fills the log: {complaints} lines");
}

#[test]
fn one_that_writes_an_endless_line() {
    let place = place(&[], json!({ "timeout_ms": 600_000 }));
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        let mut client = daemon.legacy(LEGACY);
        let lost = client.call("bad__endless_line", json!({}));
        assert_eq!(code_of(&lost), Some("SERVER_DIED"), "{lost}");
        assert!(text_of(&lost).contains("does not end"), "{lost}");
        let first = *place.started("bad").last().unwrap();
        wait_for("its end", || (!is_alive(first)).then_some(()));
        assert_eq!(text_of(&client.call("bad__count", json!({}))), "counted");
    });
}

#[test]
fn one_that_ignores_term_and_the_end_of_its_input() {
    let place = Place::new();
    let mut entry = place.fixture("bad", &["--at-eof", "stay"], json!({}));
    let mut args = vec![
        json!("-c"),
        json!("trap '' TERM HUP INT; exec \"$0\" \"$@\""),
        json!(program("fixture-server")),
    ];
    args.extend(entry["args"].as_array().unwrap().iter().cloned());
    entry["args"] = json!(args);
    entry["command"] = json!("/bin/sh");
    let good = place.fixture("good", &[], json!({}));
    place.registry(&json!({ "bad": entry, "good": good }));
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        daemon.assert_serves("bad__count");
        place.registry(&json!({ "good": good }));
        daemon.reload();
        for pid in place.started("bad") {
            wait_for("its end", || (!is_alive(pid)).then_some(()));
        }
    });
    place.registry(&json!({ "bad": entry, "good": good }));
    daemon.reload();
    daemon.assert_serves("bad__count");
    // Checks that nothing is left.
    daemon.stop();
}

#[test]
fn one_that_forks_away() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let away = || {
        processes_with(&format!(
            "{} --as bad --away second",
            place.directory().display()
        ))
        .len()
    };
    while_others_are_served(&daemon, || {
        daemon.assert_serves("bad__fork_away");
        daemon.assert_serves("bad__fork_away");
        wait_for("what forked away", || (away() == 2).then_some(()));
        // The server's own end takes them along.
        daemon.legacy(LEGACY).call("bad__exit", json!({}));
        wait_for("their end", || (away() == 0).then_some(()));
    });
    daemon.assert_serves("bad__fork_away");
    wait_for("what forked away", || (away() == 1).then_some(()));
    // Checks that nothing is left.
    daemon.stop();
}

#[test]
fn one_that_floods_a_million_notifications() {
    let place = place(&[], json!({ "timeout_ms": 600_000 }));
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        let mut client = daemon.legacy(LEGACY);
        let id = client.request_tool("bad__flood", json!({ "thousands": 1000 }));
        assert_eq!(text_of(&client.answer(id)["result"]), "flooded");
    });
    assert!(
        daemon.log().len() < 1_000_000,
        "the flood went into the log"
    );
}

#[test]
fn one_that_never_reads_its_input() {
    let place = place(&[], json!({ "timeout_ms": 1000 }));
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        let mut client = daemon.legacy(LEGACY);
        assert_eq!(
            text_of(&client.call("bad__deaf", json!({}))),
            "deaf from now on"
        );
        let text = "x".repeat(4 << 20);
        let ids: Vec<u64> = (0..12)
            .map(|_| client.request_tool("bad__echo", json!({ "text": text })))
            .collect();
        for id in ids {
            let lost = client.answer(id);
            let code = code_of(&lost);
            assert!(
                matches!(code, Some("TIMEOUT_CALL" | "INTEGRATION_UNAVAILABLE")),
                "{lost}"
            );
        }
    });
    daemon.stop();
}

#[test]
fn one_that_cannot_be_started() {
    let place = Place::new();
    let good = place.fixture("good", &[], json!({}));
    let text = place.path("text");
    std::fs::write(&text, "no program").unwrap();
    place.registry(&json!({
        "gone": { "command": place.path("nothing-here") },
        "text": { "command": text },
        "directory": { "command": place.directory() },
        "good": good,
    }));
    let daemon = place.start(&[]);
    while_others_are_served(&daemon, || {
        let mut client = daemon.legacy(LEGACY);
        for server in ["gone", "text", "directory"] {
            let call = json!({ "server": server, "tool": "x", "arguments": {} });
            let refused = client.call("colibri_external_mcp_call_tool", call);
            assert_eq!(refused["isError"], true, "{refused}");
            let state = wait_for("its state", || {
                let state = daemon.server(server);
                state["reason"].is_string().then_some(state)
            });
            assert!(
                matches!(state["state"].as_str(), Some("failed" | "backing off")),
                "{state}"
            );
        }
    });
}

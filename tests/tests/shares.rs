//! What one user may take of what all users have in common: connections, bytes of trail.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use colibri_tests::{Bridge, Client, LEGACY, Place, code_of};
use serde_json::{Value, json};

/// A connection of a user who is no operator.
fn stranger(place: &Place) -> Bridge {
    Bridge::start(place.stranger(&[]))
}

fn list(client: &mut Client) -> Value {
    client.ask("tools/list", json!({}))
}

fn place() -> Place {
    let place = Place::new();
    place.open_to_group();
    let all = json!({ "gates": ["external-call"], "servers": { "*": ["*"] } });
    place.clients(&json!({ "others": all }).to_string());
    place
}

#[test]
fn one_user_does_not_take_the_connections_of_others() {
    let place = place();
    let limits = [
        "--max-clients",
        "8",
        "--keep-clients",
        "2",
        "--max-clients-per-user",
        "4",
    ];
    let daemon = place.start(&limits);
    let mut strangers: Vec<_> = (0..4).map(|_| stranger(&place)).collect();
    for stranger in &mut strangers {
        assert!(list(stranger).get("result").is_some());
    }
    let mut fifth = stranger(&place);
    let refused = list(&mut fifth);
    assert_eq!(code_of(&refused), Some("LIMIT_USER"), "{refused}");
    assert!(refused.to_string().contains("--max-clients-per-user"), "{refused}");
    fifth.end();
    if nix::unistd::geteuid().is_root() {
        let mut operators: Vec<_> = (0..4).map(|_| daemon.connect()).collect();
        for operator in &mut operators {
            assert!(operator.ask("ping", json!({})).get("result").is_some());
        }
        let full = daemon.connect().ask("ping", json!({}));
        assert_eq!(code_of(&full), Some("DAEMON_BUSY"), "{full}");
        drop(operators);
    }
    strangers.pop().unwrap().end();
    // What a stranger leaves is free again, as soon as the daemon has seen it.
    colibri_tests::wait_for("a place", || {
        let mut fourth = stranger(&place);
        let served = list(&mut fourth).get("result").is_some();
        fourth.end();
        served.then_some(())
    });
    for stranger in strangers {
        stranger.end();
    }
    daemon.stop();
}

#[test]
fn one_user_does_not_fill_the_trail() {
    let place = place();
    let daemon = place.start(&["--max-trail-per-user", "1000"]);
    let mut stranger = stranger(&place);
    let answers: Vec<_> = (0..40).map(|_| list(&mut stranger)).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.get("error").is_some()).collect();
    assert!(refused.len() > 10, "{} of 40 were refused", refused.len());
    for answer in &refused {
        assert_eq!(code_of(answer), Some("LIMIT_USER"), "{answer}");
        assert!(answer.to_string().contains("--max-trail-per-user"), "{answer}");
    }
    assert!(answers[0].get("result").is_some(), "{}", answers[0]);
    if nix::unistd::geteuid().is_root() {
        let mut operator = daemon.legacy(LEGACY);
        for _ in 0..40 {
            assert!(operator.ask("ping", json!({})).get("result").is_some());
        }
    }
    stranger.end();
    daemon.stop();
    let entered = place
        .trail()
        .iter()
        .filter(|rec| rec["kind"] == "enter" && rec["method"] == "tools/list")
        .count();
    assert_eq!(
        entered,
        answers.len() - refused.len(),
        "what is refused leaves no record"
    );
}

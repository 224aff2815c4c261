//! What one user may take of what all users have in common: connections, bytes of trail, bytes of
//! messages.

use colibri_tests::http::Http;
use colibri_tests::{
    Bridge, Client, LEGACY, NEIGHBOUR, Neighbour, Place, code_of, rule_of, text_of,
};
use serde_json::{Value, json};

/// The most memory that the daemon may use beside an attack: its budget for messages, and what a
/// debug build takes.
const MAX_MEMORY: u64 = 400 << 20;

/// Another ordinary user than the neighbour: no operator, for whom places are kept.
const VICTIM: u32 = 54_323;

/// A connection of a user who is no operator.
fn stranger(place: &Place) -> Bridge {
    Bridge::start(place.stranger(&[]))
}

/// Limits of a daemon with 8 connections: 4 for each user, and 2 that are kept for operators.
fn connections() -> Value {
    json!({ "clients": 8, "clients_for_operators": 2, "clients_per_user": 4 })
}

fn list(client: &mut Client) -> Value {
    client.ask("tools/list", json!({}))
}

fn place(limits: Value) -> Place {
    let place = Place::new();
    place.open_to_group();
    let all = json!({ "gates": ["external-call"], "servers": { "*": ["*"] } });
    place.clients(&json!({ "limits": limits, "others": all }).to_string());
    place
}

#[test]
fn one_user_does_not_take_the_connections_of_others() {
    let place = place(connections());
    let daemon = place.start(&[]);
    let mut strangers: Vec<_> = (0..4).map(|_| stranger(&place)).collect();
    for stranger in &mut strangers {
        assert!(list(stranger).get("result").is_some());
    }
    let mut fifth = stranger(&place);
    let refused = list(&mut fifth);
    assert_eq!(code_of(&refused), Some("LIMIT_USER"), "{refused}");
    let rule = rule_of(&refused).unwrap();
    assert!(
        rule.ends_with("clients.json:1: limits.clients_per_user"),
        "{rule}"
    );
    assert!(
        refused.to_string().contains("limits.clients_per_user"),
        "{refused}"
    );
    fifth.end();
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
    let place = place(json!({ "trail_bytes_per_user": 1000 }));
    let daemon = place.start(&[]);
    let mut stranger = stranger(&place);
    let answers: Vec<_> = (0..40).map(|_| list(&mut stranger)).collect();
    let refused: Vec<_> = answers
        .iter()
        .filter(|answer| answer.get("error").is_some())
        .collect();
    assert!(refused.len() > 10, "{} of 40 were refused", refused.len());
    for answer in &refused {
        assert_eq!(code_of(answer), Some("LIMIT_USER"), "{answer}");
        assert!(
            answer.to_string().contains("limits.trail_bytes_per_user"),
            "{answer}"
        );
    }
    assert!(answers[0].get("result").is_some(), "{}", answers[0]);
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

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_operator_has_what_no_user_may_take() {
    let mut limits = connections();
    limits["trail_bytes_per_user"] = json!(1000);
    let place = place(limits);
    let daemon = place.start(&[]);
    let mut strangers: Vec<_> = (0..4).map(|_| stranger(&place)).collect();
    // Once each is answered, all four are connected.
    for stranger in &mut strangers {
        assert_ne!(code_of(&list(stranger)), Some("DAEMON_BUSY"));
    }
    for _ in 0..40 {
        list(&mut strangers[0]);
    }
    assert_eq!(code_of(&list(&mut strangers[0])), Some("LIMIT_USER"));
    let mut operators: Vec<_> = (0..4).map(|_| daemon.connect()).collect();
    for operator in &mut operators {
        for _ in 0..40 {
            assert!(operator.ask("ping", json!({})).get("result").is_some());
        }
    }
    let full = daemon.connect().ask("ping", json!({}));
    assert_eq!(code_of(&full), Some("DAEMON_BUSY"), "{full}");
    drop(operators);
    for stranger in strangers {
        stranger.end();
    }
    daemon.stop();
}

/// Every call of another user is answered while a neighbour does this, whatever its length, by
/// lines and over HTTP; and those whose connections are cut off are the neighbour's.
fn others_are_served_beside(attack: &str, count: usize) {
    let place = Place::of_fixture(&[], json!({}));
    place.open_to_group();
    let all = json!({ "gates": ["external-call"], "servers": { "*": ["*"] } });
    place.clients(&json!({ "others": all }).to_string());
    let daemon = place.start(&[]);
    let mut lines = Client::over(daemon.stream_of(VICTIM));
    lines.initialize(LEGACY);
    let mut http = Http::over(daemon.stream_of(VICTIM));
    let neighbour = Neighbour::attack(place.directory(), &place.socket(), attack, count, true);
    for round in 1..=3 {
        for length in [64, 64 << 10, 1_200_000, 2_000_000] {
            let text = "x".repeat(length);
            let result = lines.call("fix__echo", json!({ "text": text }));
            let echoed = length + r#"{"text":""}"#.len();
            assert_eq!(text_of(&result).len(), echoed, "{attack}");
            let call = json!({ "name": "fix__echo", "arguments": { "text": text } });
            let answer = http.asked(json!(round), "tools/call", call).json();
            assert_eq!(
                text_of(&answer["result"]).len(),
                echoed,
                "{attack} over HTTP"
            );
        }
    }
    let resident = daemon.resident().unwrap_or(0);
    assert!(resident < MAX_MEMORY, "the daemon uses {resident} bytes");
    drop(neighbour);
    let log = daemon.log();
    let let_go: Vec<_> = log
        .lines()
        .filter(|line| line.contains("the largest is let go"))
        .collect();
    let theirs = format!("uid={NEIGHBOUR}");
    assert!(
        let_go.iter().all(|line| line.contains(&theirs)),
        "{let_go:?}"
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn bodies_over_http_that_do_not_end_cost_their_user_alone() {
    others_are_served_beside("bodies", 250);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn lines_that_do_not_end_cost_their_user_alone() {
    others_are_served_beside("lines", 30);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn answers_that_are_not_read_cost_their_user_alone() {
    others_are_served_beside("unread", 30);
}

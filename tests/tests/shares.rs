//! What one user may take of what all users have in common: connections, bytes of trail.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use colibri_tests::{LEGACY, Place, code_of, modern_meta};
use serde_json::{Value, json};

/// A connection of a user who is no operator, through the bridge.
struct Stranger {
    bridge: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Stranger {
    fn new(place: &Place) -> Stranger {
        let bridge = place.stranger(&[]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut bridge = bridge.unwrap();
        Stranger {
            input: bridge.stdin.take().unwrap(),
            output: BufReader::new(bridge.stdout.take().unwrap()),
            bridge,
        }
    }

    fn ask(&mut self) -> Value {
        let meta = modern_meta();
        let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{{meta}}}}}}}"#);
        self.input.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn leave(mut self) {
        drop(self.input);
        self.bridge.wait().unwrap();
    }
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
    let mut strangers: Vec<_> = (0..4).map(|_| Stranger::new(&place)).collect();
    for stranger in &mut strangers {
        assert!(stranger.ask().get("result").is_some());
    }
    let mut fifth = Stranger::new(&place);
    let refused = fifth.ask();
    assert_eq!(code_of(&refused), Some("LIMIT_USER"), "{refused}");
    assert!(refused.to_string().contains("--max-clients-per-user"), "{refused}");
    fifth.leave();
    if nix::unistd::geteuid().is_root() {
        let mut operators: Vec<_> = (0..4).map(|_| daemon.connect()).collect();
        for operator in &mut operators {
            assert!(operator.ask("ping", json!({})).get("result").is_some());
        }
        let full = daemon.connect().ask("ping", json!({}));
        assert_eq!(code_of(&full), Some("DAEMON_BUSY"), "{full}");
        drop(operators);
    }
    strangers.pop().unwrap().leave();
    // What a stranger leaves is free again, as soon as the daemon has seen it.
    colibri_tests::wait_for("a place", || {
        let mut fourth = Stranger::new(&place);
        let served = fourth.ask().get("result").is_some();
        fourth.leave();
        served.then_some(())
    });
    for stranger in strangers {
        stranger.leave();
    }
    daemon.stop();
}

#[test]
fn one_user_does_not_fill_the_trail() {
    let place = place();
    let daemon = place.start(&["--max-trail-per-user", "1000"]);
    let mut stranger = Stranger::new(&place);
    let answers: Vec<_> = (0..40).map(|_| stranger.ask()).collect();
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
    stranger.leave();
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

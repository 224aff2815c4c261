//! Limits that come while a call is on its way: while it waits for a person, while its server waits
//! for input, and between two attempts. Each is set by a file, by a server or by other calls.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use colibri_policy::Limit;
use colibri_tests::{
    Client, Daemon, LEGACY, MODERN, Place, modern_meta, wait_as_a_person, wait_for,
};
use serde_json::{Value, json};

use super::{
    Caller, Outcome, ToolRoad, change_definitions, decide, define, expected_to_fail, open_breaker,
    policy, spend_budget,
};

/// The point at which a call stands when the limit comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// It waits for a person, who then allows it.
    Approval,
    /// It was allowed and sent, and its client is to answer its server by a retry.
    InputRetry,
    /// It was sent, and a legacy client is to answer its server.
    Elicitation,
    /// It failed, and its next attempt is due in a while.
    Attempt,
}

/// The end of a call, and the calls of the tool that its server got after the limit came.
type End = (Outcome, usize);

/// The tools of the server.
const TOOLS: [&str; 5] = ["ask", "change_tools", "echo", "frame", "pid"];

/// The limits that can come meanwhile.
const LIMITS: [Limit; 9] = [
    Limit::Budget,
    Limit::Gate,
    Limit::Rights,
    Limit::RuleDeny,
    Limit::Label,
    Limit::Pin,
    Limit::Contract,
    Limit::Account,
    Limit::Breaker,
];

impl Pause {
    fn tool(self) -> &'static str {
        match self {
            Pause::Approval => "pid",
            Pause::InputRetry | Pause::Elicitation => "ask",
            Pause::Attempt => "frame",
        }
    }
}

/// Writes the registry, in which `server` has this limit.
fn register(place: &Place, pause: Pause, limit: Option<Limit>) {
    let tool = pause.tool();
    let mut contract = json!({ "tools": {} });
    for name in TOOLS {
        contract["tools"][name] = json!({ "allow": "it is free" });
    }
    let retries = json!({ "LOCKED": [4000], "BROKEN": [1] });
    contract["tools"]["frame"]["retries"] = retries;
    let mut keys = json!({ "attempts": 3 });
    if matches!(pause, Pause::Approval | Pause::InputRetry) {
        keys["tools"]["confirm"] = json!([tool]);
    }
    match limit {
        Some(Limit::RuleDeny) => keys["tools"]["deny"] = json!([tool]),
        Some(Limit::Label) => keys["flow"] = json!({ "untrusted": ["no_such"] }),
        Some(Limit::Contract) => contract["tools"][tool] = json!({ "deny": "it is for people" }),
        Some(Limit::Account) => {
            place.secret("work", "w");
            place.secret("home", "h");
            let of = |name: &str| json!({ "env": { "TOKEN": { "secret": name } } });
            keys["accounts"] = json!({ "work": of("work"), "home": of("home") });
        }
        _ => {}
    }
    let path = place.path("contract.json");
    fs::write(&path, contract.to_string()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    // A reload replaces each entry that has a contract, with whatever is on its way.
    if pause == Pause::Attempt || matches!(limit, Some(Limit::Contract | Limit::Breaker)) {
        keys["contract"] = json!(path);
    }
    place.registry(&json!({
        "server": place.fixture("server", &["--speak", MODERN], keys),
        "plain": place.fixture("plain", &[], json!({})),
    }));
}

/// Sets a limit, and waits until it holds for others.
fn impose(place: &Place, daemon: &Daemon<'_>, pause: Pause, limit: Limit) {
    let mut other = Caller::new(place, daemon, ToolRoad::Lines);
    match limit {
        Limit::Budget => spend_budget(&mut other),
        Limit::Gate => place.clients(&policy(&json!({ "gates": ["write"] })).to_string()),
        Limit::Rights => {
            place.clients(&policy(&json!({ "deny": { "server": ["*"] } })).to_string());
        }
        Limit::Pin => change_definitions(&mut other, "server", &TOOLS),
        Limit::Breaker => open_breaker(&mut other, "server"),
        Limit::RuleDeny | Limit::Label | Limit::Contract | Limit::Account => {
            register(place, pause, Some(limit));
        }
        _ => unreachable!("{limit:?} is no limit that comes meanwhile"),
    }
    if !matches!(limit, Limit::Budget | Limit::Pin | Limit::Breaker) {
        daemon.reload();
    }
}

/// A call or a retry of a client of 2026-07-28 that can be asked.
fn retry(client: &mut Client, tool: &str, of: Option<(&Value, Value)>) -> Value {
    let mut meta: Value = serde_json::from_str(&format!("{{{}}}", modern_meta())).unwrap();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    let mut params =
        json!({ "name": format!("server__{tool}"), "arguments": { "times": 1 }, "_meta": meta });
    if let Some((asked, responses)) = of {
        params["requestState"] = asked["result"]["requestState"].clone();
        params["inputResponses"] = responses;
    }
    let id = client.next_id();
    client.send(
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string(),
    );
    client.answer(id)
}

/// Makes a call that pauses, has the limit come, and lets the call go on.
fn go_on(pause: Pause, limit: Option<Limit>) -> End {
    let place = Place::new();
    define(&place, "server", &TOOLS, "a text");
    register(
        &place,
        pause,
        limit.filter(|limit| *limit == Limit::Breaker),
    );
    place.clients(&policy(&json!({ "cost": { "mode": "max" } })).to_string());
    for (case, code) in [("locked", "LOCKED"), ("broken", "BROKEN")] {
        let error = json!({ "code": code, "message": "no", "transient": true });
        let failed = json!({ "content": [], "isError": true, "resultType": "complete",
            "structuredContent": { "error": error } });
        let failed = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{failed}}}"#);
        place.frame(case, failed.as_bytes());
    }
    let daemon = place.start(&["--write"]);
    daemon.legacy(LEGACY).tools();
    let tool = pause.tool();
    let named = match pause {
        Pause::Attempt => "\"locked\"".to_owned(),
        _ => format!("\"name\":\"{tool}\""),
    };
    let sent = || place.received("server", &named).len();
    let mut before = 0;
    let mut change = || {
        before = sent();
        if let Some(limit) = limit {
            impose(&place, &daemon, pause, limit);
        }
    };
    let accept = |key: &str| {
        let mut accepted = json!({});
        accepted[key] = json!({ "action": "accept", "content": { "text": "x" } });
        accepted
    };
    let answer = match pause {
        Pause::Approval => {
            let mut client = daemon.quiet(LEGACY);
            let id = client.request_tool("server__pid", json!({}));
            wait_for("the call to wait", || {
                let answer = daemon.quiet(LEGACY).ask("colibri/approvals", json!({}));
                answer["result"]["approvals"].get(0).cloned()
            });
            change();
            decide(&daemon, "approve");
            client.answer(id)
        }
        Pause::InputRetry => {
            let mut client = daemon.connect();
            let confirm = retry(&mut client, tool, None);
            wait_as_a_person();
            let asked = retry(&mut client, tool, Some((&confirm, accept("confirm"))));
            assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
            change();
            retry(&mut client, tool, Some((&asked, accept("k"))))
        }
        Pause::Elicitation => {
            let mut client = daemon.connect();
            client.open_with(LEGACY, json!({ "elicitation": {} }));
            let form = json!({ "message": "who?", "requestedSchema": { "type": "object", "properties": {} } });
            let id = client.request_tool("server__ask", json!({ "times": 1, "params": form }));
            let asked = client.notification("elicitation/create");
            change();
            let content = json!({ "action": "accept", "content": {} });
            client.send(
                json!({ "jsonrpc": "2.0", "id": asked["id"], "result": content }).to_string(),
            );
            client.answer(id)
        }
        Pause::Attempt => {
            let mut client = daemon.quiet(LEGACY);
            let id = client.request_tool("server__frame", json!({ "case": "locked" }));
            wait_for("the first attempt to fail", || {
                let records = place.trail();
                records
                    .iter()
                    .any(|record| record["kind"] == "retry")
                    .then_some(())
            });
            change();
            client.answer(id)
        }
    };
    let end = (Outcome::of(&answer), sent() - before);
    daemon.stop();
    end
}

/// Shows that a call goes on where nothing comes, and that each of these limits holds it where the
/// limit comes.
fn assert_all_hold(pause: Pause, limits: &[Limit]) {
    let (outcome, sent) = go_on(pause, None);
    assert!(sent > 0, "{pause:?} goes on: {outcome:?}");
    for limit in limits {
        let (outcome, sent) = go_on(pause, Some(*limit));
        assert_eq!(sent, 0, "{pause:?} {limit:?}: {outcome:?}");
    }
}

/// Shows that this limit is forgotten where a call goes on, which is a row of `docs/attacks.md`.
fn assert_forgotten(row: &str, pause: Pause, limit: Limit) {
    let (outcome, sent) = go_on(pause, Some(limit));
    expected_to_fail(row, || assert_eq!(sent, 0, "{outcome:?}"));
}

#[test]
fn what_comes_while_a_call_waits_for_a_person_holds() {
    assert_all_hold(Pause::Approval, &LIMITS);
}

#[test]
fn what_comes_while_a_server_waits_for_a_retry_holds() {
    assert_all_hold(Pause::InputRetry, &LIMITS);
}

#[test]
fn what_a_server_or_its_entry_says_holds_an_answer_to_the_server() {
    let limits = [
        Limit::RuleDeny,
        Limit::Label,
        Limit::Pin,
        Limit::Contract,
        Limit::Account,
    ];
    assert_all_hold(Pause::Elicitation, &limits);
}

#[test]
fn a_spent_budget_holds_an_answer_to_the_server() {
    assert_forgotten("R1", Pause::Elicitation, Limit::Budget);
}

#[test]
fn a_closed_gate_holds_an_answer_to_the_server() {
    assert_forgotten("R1", Pause::Elicitation, Limit::Gate);
}

#[test]
fn a_right_that_is_gone_holds_an_answer_to_the_server() {
    assert_forgotten("R1", Pause::Elicitation, Limit::Rights);
}

#[test]
fn an_open_breaker_holds_an_answer_to_the_server() {
    assert_forgotten("R1", Pause::Elicitation, Limit::Breaker);
}

#[test]
fn what_a_server_or_its_entry_says_holds_the_next_attempt() {
    let limits = [
        Limit::RuleDeny,
        Limit::Label,
        Limit::Pin,
        Limit::Contract,
        Limit::Account,
    ];
    assert_all_hold(Pause::Attempt, &limits);
}

#[test]
fn a_spent_budget_holds_the_next_attempt() {
    assert_forgotten("R2", Pause::Attempt, Limit::Budget);
}

#[test]
fn an_open_breaker_holds_the_next_attempt() {
    assert_forgotten("R2", Pause::Attempt, Limit::Breaker);
}

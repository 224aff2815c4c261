//! The limits that refuse a call whoever has to be asked: one server for each in one policy, and on
//! each road one call of each.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use colibri_policy::Limit;
use colibri_tests::http::Http;
use colibri_tests::{Client, LEGACY, Place, code_of, wait_for};
use serde_json::{Value, json};

use super::{
    Caller, Link, Outcome, ToolRoad, exhaust, expected_to_fail, policy, received, spend_budget,
    with_agent,
};

/// A call that a limit refuses.
struct Refusal {
    limit: Limit,
    /// The server whose entry has the limit, and the tool of it.
    server: &'static str,
    tool: &'static str,
    /// Further members of the parameters.
    more: Value,
    /// The codes of the refusal. A script and `colibri_call_tool` say of what is denied that it is
    /// not there.
    codes: &'static [&'static str],
}

fn refusals(road: ToolRoad) -> Vec<Refusal> {
    let of = |limit, server, tool, codes| Refusal {
        limit,
        server,
        tool,
        more: json!({}),
        codes,
    };
    let hidden = &["POLICY_DENIED", "NO_SUCH_TOOL"];
    let mut all = vec![
        of(Limit::Rights, "denied", "pid", hidden),
        of(Limit::RuleDeny, "ruled", "pid", hidden),
        of(
            Limit::Label,
            "labelled",
            "pid",
            &["POLICY_DENIED", "NO_SUCH_TOOL", "SERVER_BLOCKED"],
        ),
        of(
            Limit::Pin,
            "pinned",
            "pid",
            &["PIN_CHANGED", "NO_SUCH_TOOL"],
        ),
        of(Limit::Contract, "contracted", "pid", &["CONTRACT_DENIED"]),
        of(Limit::Schema, "schema", "pid", &["SCHEMA_INVALID"]),
        Refusal {
            more: json!({ "task": {} }),
            ..of(Limit::TaskParameter, "plain", "pid", &["NOT_SUPPORTED_YET"])
        },
        of(
            Limit::Account,
            "several",
            "pid",
            &["POLICY_DENIED", "NO_SUCH_TOOL"],
        ),
        of(
            Limit::Breaker,
            "unstartable",
            "pid",
            &["INTEGRATION_UNAVAILABLE"],
        ),
    ];
    if road.is_script() {
        // A script has no way to say `params.task`.
        all.retain(|refusal| refusal.limit != Limit::TaskParameter);
    }
    if road.is_agents() {
        all.push(of(Limit::AgentTools, "barred", "pid", hidden));
    }
    all
}

/// A file that only its owner reads.
fn write(place: &Place, name: &str, text: &str) -> std::path::PathBuf {
    let path = place.path(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A place in which each limit has a server of its own, beside `plain` that has none.
fn place() -> Place {
    let place = Place::new();
    let tool = |description: &str, schema: Value| {
        json!([{ "name": "pid", "description": description, "inputSchema": schema }]).to_string()
    };
    let any = || json!({ "type": "object" });
    place.defines("pinned", "definitions", &tool("hidden \u{202e}", any()));
    let demanding = json!({ "type": "object", "required": ["x"] });
    place.defines("schema", "definitions", &tool("", demanding));
    let contract = json!({ "tools": { "pid": { "deny": "it is for people" } } });
    let contract = write(&place, "contract.json", &contract.to_string());
    let retries = json!({ "frame": { "allow": "it is tried", "retries": { "BROKEN": [1] } } });
    let tried = write(
        &place,
        "tried.json",
        &json!({ "tools": retries }).to_string(),
    );
    let error = json!({ "code": "BROKEN", "message": "no", "transient": true });
    let failed = json!({ "content": [], "isError": true, "structuredContent": { "error": error } });
    let failed = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{failed}}}"#);
    place.frame("broken", failed.as_bytes());
    let account = |name: &str| {
        place.secret(name, &format!("token-of-{name}"));
        json!({ "env": { "TOKEN": { "secret": name } } })
    };
    let accounts = json!({ "accounts": { "work": account("work"), "home": account("home") } });
    let servers = json!({
        "plain": place.fixture("plain", &[], json!({})),
        "denied": place.fixture("denied", &[], json!({})),
        "ruled": place.fixture("ruled", &[], json!({ "tools": { "deny": ["pid"] } })),
        "labelled": place.fixture("labelled", &[], json!({ "flow": { "untrusted": ["no_such"] } })),
        "pinned": place.fixture("pinned", &[], json!({})),
        "contracted": place.fixture("contracted", &[], json!({ "contract": contract })),
        "schema": place.fixture("schema", &[], json!({})),
        "several": place.fixture("several", &[], accounts),
        "unstartable": place.fixture("unstartable", &["--at-start", "exit"], json!({})),
        "failing": place.fixture("failing", &[], json!({ "contract": tried })),
    });
    let mut servers = servers;
    servers["barred"] = place.fixture("barred", &[], json!({}));
    let tools = json!({ "*": { "allow": ["*"] }, "barred": { "deny": ["*"] } });
    with_agent(&place, &servers, &json!({ "tools": tools }));
    place.clients(&policy(&json!({ "deny": { "denied": ["*"] } })).to_string());
    place
}

/// Walks a road: each limit refuses its call, no server gets one, and the call without a limit
/// passes.
fn walk(road: ToolRoad) {
    let place = place();
    let daemon = place.start(&["--write"]);
    daemon.legacy(LEGACY).tools();
    walk_on(&place, &mut Caller::new(&place, &daemon, road));
    daemon.stop();
}

fn walk_on(place: &Place, caller: &mut Caller<'_>) {
    let mut wrong = Vec::new();
    for refusal in refusals(caller.road) {
        let Refusal {
            limit,
            server,
            tool,
            more,
            codes,
        } = &refusal;
        let outcome = caller.call_with(server, tool, json!({}), more);
        if !codes.contains(&outcome.code()) {
            wrong.push(format!("{limit:?}: {outcome:?}"));
        }
        let sent = place.received(server, "tools/call");
        if !sent.is_empty() {
            wrong.push(format!("{limit:?}: {sent:?} reached its server"));
        }
    }
    wrong.extend(breaker_fault(place, caller));
    let free = caller.call("plain", "pid", json!({}));
    if !matches!(free, Outcome::Text(_)) {
        wrong.push(format!("{free:?}"));
    }
    assert!(wrong.is_empty(), "{:?}: {wrong:#?}", caller.road);
}

/// Has a server fail until its breaker opens; what is wrong with that, if something is.
fn breaker_fault(place: &Place, caller: &mut Caller<'_>) -> Option<String> {
    let mut fail = || caller.call("failing", "frame", json!({ "case": "broken" }));
    let opened = (0..50).any(|_| fail().code() == "INTEGRATION_UNAVAILABLE");
    let sent = received(place, "failing", "tools/call");
    let outcome = fail();
    if opened && received(place, "failing", "tools/call") == sent {
        return None;
    }
    Some(format!("Breaker: {opened} {outcome:?}"))
}

#[test]
fn by_lines() {
    walk(ToolRoad::Lines);
}

#[test]
fn by_a_session_over_http() {
    walk(ToolRoad::HttpSession);
}

#[test]
fn by_requests_over_http() {
    walk(ToolRoad::HttpRequest);
}

#[test]
fn by_an_agent_socket() {
    walk(ToolRoad::AgentSocket);
}

#[test]
fn by_a_script() {
    walk(ToolRoad::Script);
}

#[test]
fn by_an_agents_script() {
    walk(ToolRoad::AgentScript);
}

#[test]
fn by_colibri_call_tool() {
    walk(ToolRoad::CallTool);
}

#[test]
fn by_colibri_external_mcp_call_tool() {
    walk(ToolRoad::ExternalCallTool);
}

#[test]
fn by_colibri_call_tool_of_an_agent() {
    walk(ToolRoad::AgentCallTool);
}

#[test]
fn by_colibri_external_mcp_call_tool_of_an_agent() {
    walk(ToolRoad::AgentExternalCallTool);
}

#[test]
fn by_the_gate_of_an_ssh_key() {
    walk(ToolRoad::SshGate);
}

#[test]
fn by_a_redirect() {
    for road in [ToolRoad::Lines, ToolRoad::AgentSocket] {
        let place = place();
        let daemon = place.start(&["--write"]);
        // No server was seen: the first call of each is entered before its server is known.
        walk_on(&place, &mut Caller::new(&place, &daemon, road));
        let records = place.trail();
        let continued = records.iter().filter(|record| record["continues"].is_u64());
        assert!(continued.count() >= 5, "{records:#?}");
        daemon.stop();
    }
}

#[test]
fn a_closed_gate_closes_every_road() {
    let place = place();
    let daemon = place.start_plain(&["--write"]);
    for road in ToolRoad::ALL {
        let outcome = Caller::new(&place, &daemon, road).call("plain", "pid", json!({}));
        assert_eq!(outcome.code(), "GATE_CLOSED", "{road:?}: {outcome:?}");
    }
    assert!(place.received("plain", "tools/call").is_empty());
    daemon.stop();
}

#[test]
fn a_spent_budget_refuses_on_every_road() {
    let place = place();
    let servers = json!({ "plain": place.fixture("plain", &[], json!({})) });
    with_agent(
        &place,
        &servers,
        &json!({ "budget": { "session_bytes": 2000 } }),
    );
    place.clients(&policy(&json!({ "cost": { "mode": "max" } })).to_string());
    let daemon = place.start(&["--write"]);
    let mut lines = Caller::new(&place, &daemon, ToolRoad::Lines);
    spend_budget(&mut lines);
    for road in ToolRoad::ALL {
        let mut caller = Caller::new(&place, &daemon, road);
        // An agent's budget is its own, of which its first result leaves nothing.
        match road {
            ToolRoad::AgentSocket | ToolRoad::AgentCallTool | ToolRoad::AgentExternalCallTool => {
                spend_budget(&mut caller);
            }
            ToolRoad::AgentScript => {
                for _ in 0..50 {
                    caller.own("plain__huge", json!({ "bytes": 900_000 }));
                }
            }
            _ => {}
        }
        let sent = place.received("plain", "tools/call").len();
        let outcome = caller.call("plain", "pid", json!({}));
        assert_eq!(outcome.code(), "BUDGET_SPENT", "{road:?}: {outcome:?}");
        assert_eq!(place.received("plain", "tools/call").len(), sent);
    }
    daemon.stop();
}

#[test]
fn what_an_agents_script_reads_counts_for_the_budget_of_its_entry() {
    let place = place();
    let servers = json!({ "plain": place.fixture("plain", &[], json!({})) });
    with_agent(
        &place,
        &servers,
        &json!({ "budget": { "session_bytes": 100_000 } }),
    );
    place.clients(&policy(&json!({})).to_string());
    let daemon = place.start(&["--write", "--cost-mode", "max"]);
    let mut agent = Caller::new(&place, &daemon, ToolRoad::AgentScript);
    let script = "let read = 0; try { for (let i = 0; i < 4; i += 1) \
        read += (await tools.plain.huge({ bytes: 90000 })).length } catch (e) { return e.code } return read";
    let answer = agent.own("colibri_run_script", json!({ "script": script }));
    assert!(code_of(&answer).is_none(), "{answer}");
    let outcome = Outcome::of(&answer);
    expected_to_fail("B15", || {
        assert_eq!(outcome, Outcome::Text("BUDGET_SPENT".to_owned()));
    });
    daemon.stop();
}

#[test]
fn the_quota_of_the_trail_refuses_an_agent_on_every_road() {
    for road in ToolRoad::OF_AGENTS {
        let place = place();
        place.limits(json!({ "trail_bytes_per_user": 4096 }));
        let daemon = place.start(&["--write"]);
        let mut caller = Caller::new(&place, &daemon, road);
        exhaust(&mut caller, "pid", &json!({}), "LIMIT_USER");
        daemon.stop();
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_quota_of_the_trail_refuses_a_person_on_every_road() {
    for road in [
        ToolRoad::Lines,
        ToolRoad::HttpSession,
        ToolRoad::HttpRequest,
        ToolRoad::Script,
        ToolRoad::CallTool,
        ToolRoad::ExternalCallTool,
    ] {
        let place = place();
        place.open_to_group();
        place.limits(json!({ "trail_bytes_per_user": 4096 }));
        let daemon = place.start(&["--write"]);
        let stream = daemon.stream_of(54_321);
        let mut caller = Caller::new(&place, &daemon, road);
        caller.link = match caller.link {
            Link::Session(..) => {
                let mut http = Http::over(stream);
                let session = http.open(LEGACY);
                Link::Session(http, session)
            }
            Link::Request(_) => Link::Request(Http::over(stream)),
            Link::Lines(_) | Link::Gate(_) => {
                let mut client = Client::over(stream);
                client.open(LEGACY);
                Link::Lines(client)
            }
        };
        exhaust(&mut caller, "pid", &json!({}), "LIMIT_USER");
        daemon.stop();
    }
}

/// A place with an entry of two accounts, of which policy chooses one, with these further rights
/// and keys of the agent.
fn place_of_accounts(rights: Value, agent: Value) -> Place {
    let place = Place::new();
    let account = |name: &str| {
        place.secret(name, &format!("token-of-{name}"));
        json!({ "env": { "TOKEN": { "secret": name } } })
    };
    let accounts = json!({ "accounts": { "work": account("work"), "home": account("home") } });
    with_agent(
        &place,
        &json!({ "entry": place.fixture("entry", &[], accounts) }),
        &agent,
    );
    place.clients(&policy(&rights).to_string());
    place
}

/// The outcomes of a call of the entry's tool under the account's name by a person and by an agent.
fn calls_of_an_account(place: &Place) -> [Outcome; 2] {
    let daemon = place.start(&["--write"]);
    daemon.legacy(LEGACY).tools();
    let outcomes = [ToolRoad::Lines, ToolRoad::AgentSocket]
        .map(|road| Caller::new(place, &daemon, road).call("entry-work", "pid", json!({})));
    daemon.stop();
    outcomes
}

#[test]
fn what_an_agents_entry_denies_of_an_entry_holds_for_its_accounts() {
    let tools = json!({ "*": { "allow": ["*"] }, "entry": { "deny": ["pid"] } });
    let place = place_of_accounts(json!({}), json!({ "tools": tools }));
    let [person, agent] = calls_of_an_account(&place);
    assert_eq!(person.code(), "");
    expected_to_fail("B10", || assert_ne!(agent.code(), ""));
}

#[test]
fn what_a_user_is_denied_of_an_entry_holds_for_its_accounts() {
    let place = place_of_accounts(json!({ "deny": { "entry": ["pid"] } }), json!({}));
    let [person, agent] = calls_of_an_account(&place);
    expected_to_fail("R7", || {
        assert_ne!(person.code(), "");
        assert_ne!(agent.code(), "");
    });
}

#[test]
fn a_user_who_has_another_server_alone_has_no_account_of_an_entry() {
    let place = place_of_accounts(json!({ "servers": { "other": ["*"] } }), json!({}));
    for outcome in calls_of_an_account(&place) {
        assert_ne!(outcome.code(), "", "{outcome:?}");
    }
}

#[test]
fn by_a_schedule() {
    let place = place();
    let daemon = place.start(&["--write"]);
    daemon.legacy(LEGACY).tools();
    // A schedule has no way to say `params.task`.
    let mut refusals = refusals(ToolRoad::Lines);
    refusals.retain(|refusal| refusal.limit != Limit::TaskParameter);
    let servers: Vec<_> = refusals.iter().map(|refusal| refusal.server).collect();
    for server in servers.iter().chain(&["plain"]) {
        let tool = format!("{server}__pid");
        let args = ["tasks", "schedule", "--every", "86400", "--tool", &tool];
        let made = place.colibri_mcp(&args).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    daemon.stop();
    let store = rusqlite::Connection::open(place.path("state/colibri.db")).unwrap();
    store
        .execute_batch("UPDATE schedules SET next_at = 1")
        .unwrap();
    drop(store);
    let daemon = place.start(&["--write"]);
    let listed = wait_for("every schedule to have an outcome", || {
        let listed = place.colibri_mcp(&["tasks", "schedules"]).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let is_made = !place.received("plain", "tools/call").is_empty();
        (listed.matches("failed:").count() >= servers.len() && is_made).then_some(listed)
    });
    for server in servers {
        let sent = place.received(server, "tools/call");
        assert!(sent.is_empty(), "{server}: {sent:?}\n{listed}");
    }
    daemon.stop();
}

//! What an agent may do at its agent socket: never more than the person for whom it runs, and of
//! that what its entry says.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::world::{PERSON, Peer, World, code};
use crate::{ALL, OPEN, REGISTRY, SESSION, open_with_operator};
use colibri_policy::Caller;

/// Colibri's own tools that an agent has.
const OWN: [&str; 18] = [
    "colibri_call_tool",
    "colibri_external_mcp_call_tool",
    "colibri_external_mcp_list_tools",
    "colibri_external_mcp_servers",
    "colibri_fail_task",
    "colibri_find_tools",
    "colibri_finish_task",
    "colibri_get_task",
    "colibri_list_skills",
    "colibri_list_tasks",
    "colibri_next_task",
    "colibri_read_result",
    "colibri_release_task",
    "colibri_run_script",
    "colibri_snapshot",
    "colibri_start_task",
    "colibri_status",
    "colibri_tool_schema",
];

async fn tools(peer: &mut Peer) -> Vec<String> {
    let all = peer.names("tools/list", "tools", "name").await;
    all.into_iter()
        .filter(|name| !name.starts_with("colibri_"))
        .collect()
}

/// What is answered, but for the id and the name that was asked for.
fn said(answer: &Value, name: &str) -> String {
    let mut answer = answer.clone();
    answer["id"] = Value::Null;
    answer.to_string().replace(name, "NAME")
}

#[tokio::test]
async fn an_agent_has_the_narrower_of_its_entry_and_its_person() {
    let clients = r#"{"users":{"91001":{"gates":["external-call"],"servers":{"git":["*"]},"deny":{"git":["status"]}}},
        "others":{"gates":["write","external-call"],"servers":{"*":["*"]}}}"#;
    let world = World::new(REGISTRY, clients).await;
    let agent = world.agent(
        SESSION,
        r#"{"git":{"allow":["read_*","status","file:///a","review"],"confirm":["push"]},"fs":{"allow":["*"]}}"#,
    );
    let mut peer = agent.connect().await;
    assert_eq!(tools(&mut peer).await, ["git__push", "git__read_log"]);
    assert_eq!(
        peer.names("prompts/list", "prompts", "name").await,
        ["git__review"]
    );
    let uris = peer.names("resources/list", "resources", "uri").await;
    assert!(
        uris.len() == 1 && uris[0].ends_with("file:///a"),
        "{uris:?}"
    );
    let read = peer.ask("resources/read", json!({"uri": uris[0]})).await;
    assert!(read["result"].is_object(), "{read}");

    let unknown = peer.call("git__no_such", json!({})).await;
    assert!(
        unknown["error"]["message"]
            .as_str()
            .unwrap()
            .contains("nknown tool"),
        "{unknown}"
    );
    // By its entry, by its person, and of a server that its person has not: as a name that is no
    // tool's and as near to others.
    for (forbidden, unknown) in [
        ("git__big", "git__bag"),
        ("git__status", "git__statis"),
        ("fs__read_log", "fs__reed_log"),
    ] {
        let (answer, missing) = (
            peer.call(forbidden, json!({"n": 1})).await,
            peer.call(unknown, json!({"n": 1})).await,
        );
        assert_eq!(said(&answer, forbidden), said(&missing, unknown));
    }
    let call = |server: &str, tool: &str| json!({"server": server, "tool": tool, "arguments": {}});
    for (server, unknown, forbidden) in [
        ("git", "bag", "big"),
        ("git", "statis", "status"),
        ("fs", "statis", "status"),
    ] {
        let unknown_answer = peer
            .call("colibri_external_mcp_call_tool", call(server, unknown))
            .await;
        let answer = peer
            .call("colibri_external_mcp_call_tool", call(server, forbidden))
            .await;
        assert_eq!(code(&answer), "NO_SUCH_TOOL", "{answer}");
        assert_eq!(said(&answer, forbidden), said(&unknown_answer, unknown));
    }
    // By its entry, by its person, of another server, and what no agent has of Colibri itself.
    let through = |tool: &str| json!({"tool": tool, "arguments": {"n": 1}});
    for tool in ["colibri_call_tool", "colibri_tool_schema"] {
        let asked = |name: &str| {
            if tool == "colibri_call_tool" {
                through(name)
            } else {
                json!({"tool": name})
            }
        };
        let unknown = peer.call(tool, asked("git__no_such")).await;
        assert_eq!(code(&unknown), "NO_SUCH_TOOL", "{unknown}");
        for forbidden in [
            "git__big",
            "git__status",
            "fs__read_log",
            "colibri_create_task",
            "colibri_set_cost_mode",
        ] {
            let answer = peer.call(tool, asked(forbidden)).await;
            assert_eq!(
                said(&answer, forbidden),
                said(&unknown, "git__no_such"),
                "{tool}"
            );
        }
    }
    let answer = peer
        .call("colibri_call_tool", through("git__read_log"))
        .await;
    assert_eq!(
        answer["result"]["content"][0]["text"], "read_log {\"n\":1}",
        "{answer}"
    );
    let answer = peer
        .call("colibri_call_tool", through("colibri_call_tool"))
        .await;
    assert_eq!(code(&answer), "SCHEMA_INVALID", "{answer}");
    let unknown = peer
        .ask("prompts/get", json!({"name": "git__sicret"}))
        .await;
    let answer = peer
        .ask("prompts/get", json!({"name": "git__secret"}))
        .await;
    assert_eq!(said(&answer, "git__secret"), said(&unknown, "git__sicret"));
    let key = uris[0].replace("file:///a", "file:///key");
    let none = uris[0].replace("file:///a", "file:///no");
    let unknown = peer.ask("resources/read", json!({"uri": none})).await;
    let answer = peer.ask("resources/read", json!({"uri": key})).await;
    assert!(answer["error"].is_object(), "{answer}");
    assert_eq!(said(&answer, &key), said(&unknown, &none));

    let answer = peer.call("git__read_log", json!({})).await;
    assert_eq!(
        answer["result"]["content"][0]["text"], "read_log {}",
        "{answer}"
    );
    world.end().await;
}

#[tokio::test]
async fn an_entry_without_tools_has_none_and_a_closed_gate_stays_closed() {
    let world = World::new(REGISTRY, r#"{"others":{"gates":[],"servers":{"*":["*"]}}}"#).await;
    let all = world.agent(SESSION, ALL);
    let mut peer = all.connect().await;
    assert_eq!(tools(&mut peer).await, [""; 0]);
    let answer = peer.call("git__status", json!({})).await;
    assert!(answer["error"].is_object(), "{answer}");
    world.end().await;

    let world = World::new(REGISTRY, OPEN).await;
    let none = world.agent(SESSION, "{}");
    let mut peer = none.connect().await;
    assert_eq!(tools(&mut peer).await, [""; 0]);
    assert!(peer.call("git__status", json!({})).await["error"].is_object());
    let servers = peer.call("colibri_external_mcp_servers", json!({})).await;
    assert!(!servers.to_string().contains("git"), "{servers}");
    world.end().await;
}

#[tokio::test]
async fn an_agent_of_an_operator_is_no_operator_and_has_no_method_of_ours() {
    let world = World::new(REGISTRY, &open_with_operator()).await;
    let root = Caller {
        uid: 0,
        gid: 0,
        pid: None,
    };
    let agent = world.agent_for(SESSION, ALL, root, None);
    let mut peer = agent.connect().await;
    for method in [
        "colibri/approvals",
        "colibri/approve",
        "colibri/reload",
        "colibri/end",
        "colibri/pins",
        "colibri/watch",
        "colibri/agents",
        "colibri/spawn-agent",
        "colibri/login",
        "colibri/tasks",
        "colibri/no-such",
    ] {
        let answer = peer.ask(method, json!({"id": "0"})).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let mut operator = world.operator().await;
    assert!(operator.ask("colibri/approvals", json!({})).await["result"].is_object());
    // Nor does an operator end a service.
    let answer = operator.ask("colibri/end", json!({})).await;
    assert!(answer.to_string().contains("no client ends it"), "{answer}");
    assert!(operator.ask("colibri/approvals", json!({})).await["result"].is_object());
    world.end().await;
}

#[tokio::test]
async fn of_our_own_tools_an_agent_has_those_that_read_and_end_its_task() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, "{}");
    let mut peer = agent.connect().await;
    assert_eq!(peer.names("tools/list", "tools", "name").await, OWN);
    let unknown = peer.call("colibri_no_such", json!({})).await;
    for (tool, arguments) in [
        ("colibri_create_task", json!({"title": "t"})),
        ("colibri_intake_task", json!({"text": "t"})),
        ("colibri_set_cost_mode", json!({"mode": "max"})),
    ] {
        let answer = peer.call(tool, arguments).await;
        assert_eq!(said(&answer, tool), said(&unknown, "colibri_no_such"));
    }
    for tool in [
        "colibri_status",
        "colibri_snapshot",
        "colibri_list_tasks",
        "colibri_list_skills",
    ] {
        let answer = peer.call(tool, json!({})).await;
        assert!(
            answer["result"]["structuredContent"].is_object(),
            "{tool}: {answer}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn what_is_kept_for_an_instance_is_its_own_and_not_its_persons() {
    let world = World::new(
        r#"{"servers":{"git":{"command":"/m/git","result_limit":"1K"}}}"#,
        OPEN,
    )
    .await;
    let person = Caller {
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        pid: None,
    };
    let tools = r#"{"git":{"allow":["big"]}}"#;
    let agents = [
        world.agent_for(SESSION, tools, person, None),
        world.agent_for("00000000000000bb", tools, person, None),
    ];
    let mut peers = [
        agents[0].connect().await,
        agents[1].connect().await,
        world.operator().await,
    ];
    let mut handles = Vec::new();
    for peer in &mut peers {
        let answer = peer.call("git__big", json!({"n": 5000})).await;
        let said = &answer["result"]["_meta"]["org.colibri/kept"];
        assert!(said["bytes"].as_u64().unwrap() > 5000);
        handles.push(said["handle"].as_str().unwrap().to_owned());
    }
    for (mine, peer) in peers.iter_mut().enumerate() {
        let guessed = peer
            .call("colibri_read_result", json!({"handle": "0".repeat(32)}))
            .await;
        assert_eq!(code(&guessed), "NO_SUCH_RESULT", "{guessed}");
        for (whose, handle) in handles.iter().enumerate() {
            let read = peer
                .call("colibri_read_result", json!({"handle": handle, "lines": 1}))
                .await;
            match mine == whose {
                true => assert!(read["result"]["content"][0]["text"].is_string(), "{read}"),
                false => assert_eq!(read["result"], guessed["result"]),
            }
        }
    }
    world.end().await;
}

#[tokio::test]
async fn a_hello_narrows_and_never_widens() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, r#"{"git":{"allow":["status"]}}"#);
    for hello in [
        r#"{"colibri":1,"only":"git"}"#,
        r#"{"colibri":1,"only":"fs"}"#,
        r#"{"colibri":1,"narrow":[],"operator":true,"session":"fedcba9876543210","for":0,"tools":{"*":{}}}"#,
    ] {
        let mut peer = Peer::fresh(&agent.socket()).await;
        peer.send(hello).await;
        let only_fs = hello.contains("fs");
        let shake = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = peer.ask("initialize", shake).await;
        assert_eq!(answer["error"].is_object(), only_fs, "{hello}: {answer}");
        if !only_fs {
            let own = if hello.contains("git") {
                "status"
            } else {
                "git__status"
            };
            assert_eq!(tools(&mut peer).await, [own], "{hello}");
        }
        for name in ["fs__status", "push", "git__push"] {
            assert!(
                peer.call(name, json!({})).await["error"].is_object(),
                "{hello}: {name}"
            );
        }
    }
    // It closes gates for itself.
    let mut peer = Peer::fresh(&agent.socket()).await;
    peer.send(r#"{"colibri":1,"narrow":["external"]}"#).await;
    peer.hands(json!({})).await;
    let answer = peer.call("git__status", json!({})).await;
    assert_eq!(code(&answer), "GATE_CLOSED", "{answer}");
    world.end().await;
}

/// Waits until so many calls wait for a person, and shows them.
async fn waiting(operator: &mut Peer, count: usize) -> Vec<Value> {
    loop {
        let answer = operator.ask("colibri/approvals", json!({})).await;
        let list = answer["result"]["approvals"].as_array().unwrap().clone();
        if list.len() == count {
            return list;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_is_to_be_confirmed_waits_for_an_operator_who_is_not_the_person() {
    let own = nix::unistd::geteuid().as_raw();
    let registry = r#"{"servers":{"git":{"command":"/m/git","tools":{"confirm":["status"]}},"fs":{"command":"/m/fs"}}}"#;
    let world = World::new(registry, &open_with_operator()).await;
    let tools = r#"{"*":{"allow":["*"],"confirm":["push"]}}"#;
    let agent = world.agent(SESSION, tools);
    let mine = Caller {
        uid: own,
        gid: own,
        pid: None,
    };
    let own_agent = world.agent_for("fedcba9876543210", tools, mine, None);
    let mut operator = world.operator().await;
    let mut peer = Peer::fresh(&agent.socket()).await;
    // Whatever it says it can be asked: it is not.
    peer.hands(json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}}))
        .await;

    // By its own entry, and by the server's.
    for (tool, rule) in [
        ("push", "agents:1: tools.*.confirm \"push\""),
        ("status", "registry:1: servers.git.tools.confirm \"status\""),
    ] {
        let id = peer
            .begin(
                "tools/call",
                json!({"name": format!("git__{tool}"), "arguments": {}}),
            )
            .await;
        let shown = waiting(&mut operator, 1).await.remove(0);
        assert_eq!(
            (
                &shown["agent"],
                &shown["session"],
                &shown["uid"],
                &shown["rule"]
            ),
            (
                &json!("coder"),
                &json!(SESSION),
                &json!(91001),
                &json!(rule)
            )
        );
        assert_eq!(agent.door.spent.waiting.load(Ordering::Relaxed), 1);
        let approved = operator
            .ask("colibri/approve", json!({"id": shown["id"]}))
            .await;
        assert!(
            approved["result"]["approved"].as_bool().unwrap(),
            "{approved}"
        );
        // That the server's tools are known now may be told at any time.
        let message = loop {
            let message = peer.message().await;
            if message["method"] != "notifications/tools/list_changed" {
                break message;
            }
        };
        assert_eq!(message["id"], id, "nothing was asked of it: {message}");
        assert_eq!(
            message["result"]["content"][0]["text"],
            format!("{tool} {{}}")
        );
        let approval = world
            .trail()
            .into_iter()
            .rev()
            .find(|record| record["event"] == "approval")
            .unwrap();
        assert_eq!(approval["details"]["session"], SESSION, "{approval}");
    }
    assert_eq!(agent.door.spent.waiting.load(Ordering::Relaxed), 0);

    // Through the tool that calls tools it waits as well.
    let call = json!({"name": "colibri_external_mcp_call_tool", "arguments": {"server": "git", "tool": "push"}});
    let id = peer.begin("tools/call", call).await;
    let shown = waiting(&mut operator, 1).await.remove(0);
    operator
        .ask("colibri/deny", json!({"id": shown["id"]}))
        .await;
    assert_eq!(code(&peer.answer(id).await), "APPROVAL_DENIED");

    // The operator for whom an agent runs is not the one to say.
    let mut peer = own_agent.connect().await;
    peer.begin("tools/call", json!({"name": "git__push", "arguments": {}}))
        .await;
    let shown = waiting(&mut operator, 1).await.remove(0);
    let refused = operator
        .ask("colibri/approve", json!({"id": shown["id"]}))
        .await;
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("your own uid"),
        "{refused}"
    );
    // Nor is the agent itself, at any of its connections.
    let answer = own_agent
        .connect()
        .await
        .ask("colibri/approve", json!({"id": shown["id"]}))
        .await;
    assert_eq!(answer["error"]["code"], -32601);
    drop(peer);
    waiting(&mut operator, 0).await;
    assert_eq!(own_agent.door.spent.waiting.load(Ordering::Relaxed), 0);
    world.end().await;
}

#[tokio::test]
async fn an_agent_is_asked_nothing_and_answers_nothing() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let mut peer = Peer::fresh(&agent.socket()).await;
    peer.hands(
        json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": true}}),
    )
    .await;
    let id = peer
        .begin("tools/call", json!({"name": "git__ask", "arguments": {}}))
        .await;
    let message = peer.message().await;
    assert_eq!(
        message["id"], id,
        "its server's question did not come here: {message}"
    );
    for answer in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{}}}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{"action":"accept"}}"#,
        r#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}"#,
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"x"}}"#,
    ] {
        peer.send(answer).await;
    }
    assert!(peer.ask("ping", json!({})).await["result"].is_object());

    // A modern request that answers at once what nobody asked.
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}});
    let call = |more: Value| {
        let mut params = json!({"name": "git__status", "arguments": {}, "_meta": meta});
        params
            .as_object_mut()
            .unwrap()
            .append(&mut more.as_object().unwrap().clone());
        params
    };
    let mut peer = Peer::fresh(&agent.socket()).await;
    assert!(peer.ask("tools/call", call(json!({}))).await["result"].is_object());
    let answers = json!({"inputResponses": {"confirm": {"action": "accept"}}});
    let answer = peer.ask("tools/call", call(answers)).await;
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("nobody is asked"),
        "{answer}"
    );
    let answer = peer
        .ask("tools/call", call(json!({"requestState": "AAAA"})))
        .await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    world.end().await;
}

#[tokio::test]
async fn a_modern_server_is_not_told_that_an_agent_can_be_asked() {
    let world = World::new(r#"{"servers":{"modern":{"command":"/m/modern"}}}"#, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let mut peer = Peer::fresh(&agent.socket()).await;
    let extensions = json!({"io.modelcontextprotocol/tasks": {}, "org.example/x": {"y": 1}});
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "progressToken": "p", "t": 1,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities":
            {"elicitation": {"form": {}}, "sampling": {}, "roots": {}, "extensions": extensions}});
    let call = json!({"name": "modern__meta", "arguments": {}, "_meta": meta});
    let answer = peer.ask("tools/call", call).await;
    let text = answer["result"]["content"][0]["text"].as_str();
    let seen: Value = serde_json::from_str(text.unwrap_or_else(|| panic!("{answer}"))).unwrap();
    assert_eq!(
        seen["io.modelcontextprotocol/clientCapabilities"],
        json!({"extensions": extensions}),
        "{seen}"
    );
    assert_eq!(seen["t"], 1, "{seen}");
    assert_ne!(seen["progressToken"], "p", "{seen}");
    // A task that asks is answered by nobody either.
    let update =
        json!({"taskId": "0", "inputResponses": {"q": {"action": "accept"}}, "_meta": meta});
    let answer = peer.ask("tasks/update", update).await;
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("nobody is asked"), "{answer}");
    world.end().await;
}

#[tokio::test]
async fn what_an_agent_says_of_itself_is_nothing() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    world.agent("fedcba9876543210", ALL);
    let mut peer = agent.connect().await;
    let meta = json!({"session": "fedcba9876543210", "agent": "other", "for": 0, "uid": 0,
        "org.colibri/session": "fedcba9876543210", "org.colibri/agent": "other"});
    let call = json!({"name": "git__status", "arguments": {}, "_meta": meta});
    assert!(peer.ask("tools/call", call).await["result"].is_object());
    let trail = world.trail();
    let entered: Vec<_> = trail
        .iter()
        .filter(|record| record["session"].is_string())
        .collect();
    assert!(entered.len() >= 2);
    for record in entered {
        assert_eq!(
            (&record["session"], &record["agent"], &record["for"]),
            (&json!(SESSION), &json!("coder"), &json!(PERSON.uid))
        );
    }
    world.end().await;
}

#[tokio::test]
async fn a_spent_budget_ends_calls_and_leaves_the_end_of_the_task() {
    let clients = r#"{"others":{"gates":["write","external-call"],"servers":{"*":["*"]},"cost":{"mode":"max"}}}"#;
    let world = World::new(REGISTRY, clients).await;
    let agent = world.agent_for(SESSION, ALL, PERSON, Some(60_000));
    let other = world.agent_for("fedcba9876543210", ALL, PERSON, Some(60_000));
    let mut peer = agent.connect().await;
    let listed = tools(&mut peer).await;
    let before = agent.door.spent.bytes.load(Ordering::Relaxed);
    assert!(before > 0 && before < 60_000, "{before}");
    assert_eq!(
        agent.door.spent.calls.load(Ordering::Relaxed),
        0,
        "lists are no calls"
    );

    let answer = peer.call("git__big", json!({"n": 60_000})).await;
    assert!(
        answer["result"]["_meta"]["org.colibri/kept"]["handle"].is_string(),
        "one result is no way around it"
    );
    let text = answer["result"]["content"][1]["text"].as_str().unwrap();
    assert!(text.contains("what is left of the budget"), "{text}");
    let before = agent.door.spent.bytes.load(Ordering::Relaxed);
    let left = 60_000 - before;
    let answer = peer.call("git__big", json!({"n": left - 50})).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text.len() as u64, left - 50);
    let after = agent.door.spent.bytes.load(Ordering::Relaxed);
    assert_eq!(after - before, answer.to_string().len() as u64);
    assert_eq!(agent.door.spent.calls.load(Ordering::Relaxed), 2);

    let uri = "mcp+git:file:///a";
    for (method, params) in [
        (
            "tools/call",
            json!({"name": "git__status", "arguments": {}}),
        ),
        (
            "tools/call",
            json!({"name": "colibri_external_mcp_call_tool", "arguments": {"server": "git", "tool": "status"}}),
        ),
        (
            "tools/call",
            json!({"name": "colibri_snapshot", "arguments": {}}),
        ),
        ("prompts/get", json!({"name": "git__review"})),
        ("resources/read", json!({"uri": uri})),
    ] {
        let answer = peer.ask(method, params.clone()).await;
        if method == "tools/call" {
            assert_eq!(code(&answer), "BUDGET_SPENT", "{answer}");
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            assert!(
                text.contains("colibri_finish_task") && text.contains("60000"),
                "{text}"
            );
            assert_eq!(
                answer["result"]["_meta"]["org.colibri/error"]["rule"],
                "agents.coder.budget.session_bytes"
            );
        } else {
            assert!(answer["error"].is_object(), "{answer}");
        }
    }
    // At another connection it is the same, and it can say how its task ends.
    let mut second = agent.connect().await;
    assert_eq!(tools(&mut second).await, listed);
    assert_eq!(
        code(&second.call("git__status", json!({})).await),
        "BUDGET_SPENT"
    );
    for tool in [
        "colibri_finish_task",
        "colibri_fail_task",
        "colibri_release_task",
    ] {
        assert_ne!(code(&second.call(tool, json!({})).await), "BUDGET_SPENT");
    }
    assert!(
        other.connect().await.call("git__status", json!({})).await["result"]["isError"].is_null()
    );
    let mut person = world.operator().await;
    assert!(person.call("git__status", json!({})).await["result"]["isError"].is_null());
    world.end().await;
}

#[tokio::test]
async fn an_agent_sees_and_ends_no_tasks_but_its_persons() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, "{}");
    let mut operator = world.operator().await;
    let made = operator
        .call("colibri_create_task", json!({"title": "root's own"}))
        .await;
    assert!(made["result"]["structuredContent"].is_object(), "{made}");
    let mut peer = agent.connect().await;
    let listed = peer.call("colibri_list_tasks", json!({})).await;
    assert!(!listed.to_string().contains("root's own"), "{listed}");
    let snapshot = peer.call("colibri_snapshot", json!({})).await;
    assert!(!snapshot.to_string().contains("root's own"), "{snapshot}");
    let counts = &snapshot["result"]["structuredContent"]["tasks_by_status"];
    assert!(
        counts["queued"] == 0 && counts["intake"] == 0,
        "how many others have: {snapshot}"
    );
    let id = made["result"]["structuredContent"]["task"]["id"].clone();
    assert!(id.is_u64(), "{made}");
    let seen = peer.call("colibri_get_task", json!({"task": id})).await;
    assert_eq!(
        code(&seen),
        code(&peer.call("colibri_get_task", json!({"task": 4711})).await),
        "{seen}"
    );
    assert!(!seen.to_string().contains("root's own"), "{seen}");
    for arguments in [json!({}), json!({"task": id})] {
        let next = peer.call("colibri_next_task", arguments).await;
        assert!(!next.to_string().contains("root's own"), "{next}");
    }
    for (tool, key) in [
        ("colibri_finish_task", "result"),
        ("colibri_fail_task", "reason"),
        ("colibri_release_task", "reason"),
    ] {
        let answer = peer
            .call(tool, json!({"task": id, "claim": 1, key: "x"}))
            .await;
        assert!(
            answer["result"]["isError"] == true && code(&answer) != "SCHEMA_INVALID",
            "{tool}: {answer}"
        );
    }
    let answer = peer
        .call("colibri_start_task", json!({"task": id, "claim": 1}))
        .await;
    assert!(
        answer["result"]["isError"] == true && code(&answer) != "SCHEMA_INVALID",
        "{answer}"
    );
    let seen = operator.call("colibri_get_task", json!({"task": id})).await;
    assert_eq!(
        seen["result"]["structuredContent"]["task"]["status"], "queued",
        "{seen}"
    );
    world.end().await;
}

//! What answers may cost: of an agent's instance at its agent socket, and of the person, at the
//! daemon's own socket.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::retries;
use crate::world::{PATIENCE, PERSON, Peer, World, code};
use crate::{ALL, OPEN, REGISTRY, SESSION};
use colibri_api::{CostDay, CostMode, CostSetBy, NewTask, TaskStatus};
use colibri_mcpd::board::BoardActor;
use colibri_mcpd::relay::{
    Call, CallMetrics, CallOutcome, CallRequest, CallTarget, Client, Destination, RequestParts,
    ServerAnswer, TargetDescription, TargetRules, Upstream,
};
use colibri_peer::{ByteBudget, Outbox};
use colibri_policy::{Clients, DailyUsage, Road, SystemAccounts, Terms};
use colibri_protocol::{Feature, Method, Version};
use colibri_store::CostQuery;
use colibri_wire::{Envelope, EnvelopeKind, RequestId};

/// A client policy that says this of the cost of the agent's person and of the one who runs the
/// test.
fn policy(cost: &Value) -> String {
    let rule = json!({"gates": ["write", "external-call"], "servers": {"*": ["*"]}, "operator": true, "cost": cost});
    let own = nix::unistd::geteuid().to_string();
    json!({"users": {"91001": rule, own: rule}}).to_string()
}

/// What `colibri_status` says of the one who asks, and the mode in force.
async fn spending(peer: &mut Peer) -> (Value, String) {
    let mut answer = peer.call("colibri_status", json!({})).await;
    let status = &mut answer["result"]["structuredContent"];
    let mode = status["cost_mode"]
        .as_str()
        .unwrap_or_else(|| panic!("{status}"));
    (status["spending"].clone(), mode.to_owned())
}

/// True if a result of so many bytes of text comes whole.
async fn comes_whole(peer: &mut Peer, bytes: u64) -> bool {
    let answer = peer.call("git__big", json!({"n": bytes})).await;
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}")).len() as u64 == bytes
}

fn own_spent(world: &World) -> u64 {
    let share = world
        .daemon
        .host
        .shares()
        .of(nix::unistd::geteuid().as_raw());
    share.spent_on(CostDay::of(SystemTime::now())).bytes
}

#[tokio::test]
async fn unset_a_mode_acts_for_agents_alone() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let mut peer = agent.connect().await;
    assert!(comes_whole(&mut peer, 15_000).await && !comes_whole(&mut peer, 16_001).await);
    let (said, mode) = spending(&mut peer).await;
    assert_eq!(
        (&said["acts"], &said["set_by"], mode.as_str()),
        (&json!(true), &json!("nobody"), "smart")
    );
    let spent = said["spent_bytes"].as_u64().unwrap();
    assert_eq!(said["left_bytes"], 2_000_000 - spent);
    assert!(spent > 15_000 && said["until"].is_null(), "{said}");

    let mut person = world.operator().await;
    assert!(comes_whole(&mut person, 1_000_000).await);
    let (said, mode) = spending(&mut person).await;
    assert_eq!((&said["acts"], mode.as_str()), (&json!(false), "smart"));
    assert!(
        said["left_bytes"].is_null() && said["spent_bytes"].as_u64().unwrap() > 1_000_000,
        "{said}"
    );
    world.end().await;
}

#[tokio::test]
async fn an_agent_sets_no_mode_and_has_its_persons() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let mut peer = agent.connect().await;
    let unknown = peer.call("colibri_no_such", json!({"mode": "max"})).await;
    let refused = peer
        .call("colibri_set_cost_mode", json!({"mode": "max"}))
        .await;
    assert!(refused["error"].is_object(), "{refused}");
    assert_eq!(
        refused["error"]["message"]
            .to_string()
            .replace("colibri_set_cost_mode", "X"),
        unknown["error"]["message"]
            .to_string()
            .replace("colibri_no_such", "X")
    );
    let through =
        json!({"server": "colibri", "tool": "colibri_set_cost_mode", "arguments": {"mode": "max"}});
    assert_eq!(
        code(&peer.call("colibri_external_mcp_call_tool", through).await),
        "NO_SUCH_TOOL"
    );
    assert_eq!(spending(&mut peer).await.1, "smart");

    let person = world.daemon.host.shares().of(PERSON.uid);
    person.choose(Some(CostMode::Fast), 0);
    assert!(!comes_whole(&mut peer, 4_001).await);
    let (said, mode) = spending(&mut peer).await;
    assert_eq!((&said["set_by"], mode.as_str()), (&json!("user"), "fast"));
    person.choose(Some(CostMode::Max), 0);
    assert!(comes_whole(&mut peer, 500_000).await);
    world.end().await;
}

#[tokio::test]
async fn a_mode_that_its_person_chooses_counts_an_instance_from_then_on() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let bounded = world.agent_for("fedcba9876543210", ALL, PERSON, Some(700_000));
    let (mut peer, mut other) = (agent.connect().await, bounded.connect().await);
    for door in [&agent.door, &bounded.door] {
        door.spent.bytes.store(640_000, Ordering::Relaxed);
    }
    let person = world.daemon.host.shares().of(PERSON.uid);
    person.choose(Some(CostMode::Fast), 0);
    assert!(
        comes_whole(&mut peer, 3_000).await,
        "it had more than fast allows, and is not locked"
    );
    let (said, mode) = spending(&mut peer).await;
    let spent = said["spent_bytes"].as_u64().unwrap();
    assert_eq!(
        (&said["before_bytes"], mode.as_str()),
        (&json!(640_000), "fast")
    );
    assert_eq!(said["left_bytes"], 640_000 + 500_000 - spent);
    // Its entry counts all of its life.
    assert_eq!(spending(&mut other).await.0["left_bytes"], 60_000);

    agent.door.spent.bytes.store(1_140_000, Ordering::Relaxed);
    let refused = peer.call("git__status", json!({})).await;
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        code(&refused) == "BUDGET_SPENT"
            && text.contains("since its person chose the mode this agent has had 500000"),
        "{refused}"
    );
    person.choose(Some(CostMode::Fast), 1);
    assert_eq!(
        code(&peer.call("git__status", json!({})).await),
        "BUDGET_SPENT",
        "the same again gives nothing back"
    );
    person.choose(None, 2);
    assert!(comes_whole(&mut peer, 3_000).await);
    assert_eq!(spending(&mut peer).await.1, "smart");
    world.end().await;
}

#[tokio::test]
async fn policys_mode_counts_all_of_an_instances_life() {
    let world = World::new(REGISTRY, &policy(&json!({"mode": "smart"}))).await;
    let agent = world.agent(SESSION, ALL);
    let mut peer = agent.connect().await;
    agent.door.spent.bytes.store(1_990_000, Ordering::Relaxed);
    let person = world.daemon.host.shares().of(PERSON.uid);
    person.choose(Some(CostMode::Fast), 0);
    let (said, mode) = spending(&mut peer).await;
    assert_eq!(
        (said["left_bytes"].as_u64(), mode.as_str()),
        (Some(10_000), "fast")
    );
    person.choose(None, 1);
    assert!(spending(&mut peer).await.0["left_bytes"].as_u64().unwrap() < 10_000);
    world.end().await;
}

#[tokio::test]
async fn images_reach_an_agent_whatever_their_size_and_count_as_what_they_cost() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let mut peer = agent.connect().await;
    let image = json!({"n": 600_000, "image": true});
    for _ in 0..6 {
        let answer = peer.call("git__big", image.clone()).await;
        let block = &answer["result"]["content"][0];
        assert!(
            block["type"] == "image" && block["data"].as_str().unwrap().len() == 600_000,
            "{}",
            answer["result"]["content"].as_array().unwrap().len()
        );
    }
    let spent = agent.door.spent.bytes.load(Ordering::Relaxed);
    assert!((6 * 8_192..60_000).contains(&spent), "{spent}");
    // Where less is left than one costs it is kept, and none of it comes as text.
    agent
        .door
        .spent
        .bytes
        .store(2_000_000 - 7_000, Ordering::Relaxed);
    let answer = peer.call("git__big", image).await;
    let note = answer["result"]["content"][1]["text"].as_str().unwrap();
    assert!(
        note.contains("1 data block not among it (\"block\":0 is the first)")
            && answer.to_string().len() < 2_000,
        "{answer}"
    );
    let block =
        json!({"handle": answer["result"]["_meta"]["org.colibri/kept"]["handle"], "block": 0});
    let refused = peer.call("colibri_read_result", block.clone()).await;
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("block 0 counts for 8"), "{text}");
    agent
        .door
        .spent
        .bytes
        .store(2_000_000 - 9_000, Ordering::Relaxed);
    let read = peer.call("colibri_read_result", block).await;
    assert_eq!(
        read["result"]["content"][0]["data"].as_str().unwrap().len(),
        600_000
    );
    let spent = agent.door.spent.bytes.load(Ordering::Relaxed);
    assert!((1_999_000..2_000_000).contains(&spent), "{spent}");
    world.end().await;
}

#[tokio::test]
async fn a_tool_that_was_called_is_never_said_to_be_called_again() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let mut peer = agent.connect().await;
    let left = |bytes: u64| {
        agent
            .door
            .spent
            .bytes
            .store(2_000_000 - bytes, Ordering::Relaxed)
    };
    for is_kept in [true, false] {
        if !is_kept {
            std::fs::remove_dir_all(world.path().join("results")).unwrap();
            std::fs::write(world.path().join("results"), "no directory").unwrap();
        }
        // Structured content within the limit passes, however little is left beside it.
        left(20_000);
        let answer = peer
            .call("git__rows", json!({"text": 100_000, "rows": 15_000}))
            .await;
        let result = &answer["result"];
        assert!(
            result["isError"].is_null()
                && result["structuredContent"]["rows"].as_str().unwrap().len() == 15_000,
            "{answer}"
        );
        let note = result["content"][1]["text"].as_str().unwrap();
        assert!(note.contains("do not make it again"), "{note}");
        assert_eq!(
            result["_meta"]["org.colibri/kept"]["handle"].is_string(),
            is_kept
        );

        left(20_000);
        let answer = peer
            .call("git__rows", json!({"text": 100, "rows": 30_000}))
            .await;
        assert_eq!(code(&answer), "RESULT_TOO_LARGE", "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(
            text.contains("the call was carried out, do not make it again: the tool succeeded"),
            "{text}"
        );
        let error = &answer["result"]["_meta"]["org.colibri/error"];
        let (advice, begins) = (
            error["do"].as_str().unwrap(),
            match is_kept {
                true => "read it with colibri_read_result",
                false => "do not make the call again",
            },
        );
        assert!(advice.starts_with(begins), "{advice}");
        assert_eq!(error["kept"]["handle"].is_string(), is_kept, "{error}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_spent_day_leaves_all_that_costs_nothing_of_servers() {
    let servers: Value = (0..8)
        .map(|n| (format!("s{n}"), json!({"command": "/m/s"})))
        .collect();
    let world = World::new(
        &json!({"servers": servers}).to_string(),
        &policy(&json!({"mode": "fast"})),
    )
    .await;
    let shares = world.daemon.host.shares();
    let uid = nix::unistd::geteuid().as_raw();
    let mut peer = world.operator().await;
    peer.names("tools/list", "tools", "name").await;
    let spent = |bytes| DailyUsage {
        day: CostDay::of(SystemTime::now()),
        bytes,
        own: None,
    };
    shares.recall([(uid, spent(490_000))]);
    let kept = peer
        .call("colibri_external_mcp_list_tools", json!({}))
        .await;
    assert_eq!(code(&kept), "RESULT_TOO_LARGE", "by the mode: {kept}");
    shares.recall([(uid, spent(500_000))]);
    let whole = peer
        .call("colibri_external_mcp_list_tools", json!({}))
        .await;
    assert!(
        whole["result"]["structuredContent"]["tools"]
            .as_array()
            .is_some_and(|tools| tools.len() == 64),
        "what is kept could not be read: {whole}"
    );
    world.end().await;
}

#[tokio::test]
async fn an_agent_at_its_modes_budget_can_end_its_task_and_see_how_it_stands() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent_for(SESSION, ALL, PERSON, Some(3_000_000));
    let other = world.agent("fedcba9876543210", ALL);
    let mut peer = agent.connect().await;
    agent.door.spent.bytes.store(1_999_999, Ordering::Relaxed);
    assert!(peer.call("git__status", json!({})).await["result"]["isError"].is_null());
    let refused = peer.call("git__status", json!({})).await;
    assert_eq!(code(&refused), "BUDGET_SPENT");
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("cost mode smart") && text.contains("colibri_finish_task"),
        "{text}"
    );
    // Others write as much into these as they like.
    for tool in [
        "colibri_snapshot",
        "colibri_list_tasks",
        "colibri_list_skills",
        "colibri_next_task",
        "colibri_read_result",
        "colibri_external_mcp_servers",
        "colibri_external_mcp_list_tools",
    ] {
        assert_eq!(
            code(&peer.call(tool, json!({})).await),
            "BUDGET_SPENT",
            "{tool}"
        );
    }
    for (tool, arguments) in [
        ("colibri_status", json!({})),
        ("colibri_find_tools", json!({"query": "log", "limit": 1})),
        ("colibri_tool_schema", json!({"tool": "git__status"})),
    ] {
        let answer = peer.call(tool, arguments).await;
        assert!(answer["result"]["isError"].is_null(), "{answer}");
    }
    for tool in [
        "colibri_finish_task",
        "colibri_fail_task",
        "colibri_release_task",
    ] {
        assert_ne!(code(&peer.call(tool, json!({})).await), "BUDGET_SPENT");
    }
    // A task is no way around it: what others wrote there has 4,000 bytes at most.
    for (description, code_of) in [
        ("short".to_owned(), ""),
        ("d".repeat(5_000), "RESULT_TOO_LARGE"),
    ] {
        let new = NewTask {
            title: "t".to_owned(),
            description,
            source: "manual".to_owned(),
            status: TaskStatus::Queued,
            required_capabilities: Vec::new(),
            priority: 5,
            created_by: PERSON.uid,
            share: None,
            limits: Default::default(),
        };
        let who = BoardActor {
            uid: PERSON.uid,
            agent: None,
            operator: false,
            groups: None,
        };
        let task = world.daemon.board.create(who, new, None).unwrap().id;
        let answer = peer.call("colibri_get_task", json!({"task": task})).await;
        assert_eq!(code(&answer), code_of, "{answer}");
        let kept = &answer["result"]["_meta"]["org.colibri/error"]["kept"];
        assert!(
            kept.is_null() && answer.to_string().len() < 4_000,
            "{answer}"
        );
    }
    // What it asks of its model is another matter, and so is every other instance, and its person.
    let tokens = &agent.door.spent;
    assert_eq!(
        [&tokens.tokens_in, &tokens.tokens_out].map(|count| count.load(Ordering::Relaxed)),
        [0, 0]
    );
    assert!(
        other.connect().await.call("git__status", json!({})).await["result"]["isError"].is_null()
    );
    assert!(
        world
            .daemon
            .host
            .shares()
            .of(PERSON.uid)
            .spent_on(CostDay::of(SystemTime::now()))
            .bytes
            == 0
    );
    world.end().await;
}

#[tokio::test]
async fn a_persons_day_ends_with_what_to_do_and_begins_anew() {
    let world = World::new(REGISTRY, &policy(&json!({"mode": "fast"}))).await;
    let shares = world.daemon.host.shares();
    let uid = nix::unistd::geteuid().as_raw();
    let mut peer = world.operator().await;
    assert!(comes_whole(&mut peer, 3_000).await && !comes_whole(&mut peer, 4_001).await);
    let today = CostDay::of(SystemTime::now());
    let spent = |day, bytes| DailyUsage {
        day,
        bytes,
        own: None,
    };
    shares.recall([(uid, spent(today, 499_999))]);
    assert!(
        peer.call("git__status", json!({})).await["result"]["isError"].is_null(),
        "a byte was left"
    );
    let listed = peer.call("colibri_list_tasks", json!({})).await;
    assert!(
        listed["result"]["isError"].is_null(),
        "it costs nothing of servers: {listed}"
    );
    let kept = json!({"handle": "0".repeat(32)});
    for (tool, arguments) in [("git__status", json!({})), ("colibri_read_result", kept)] {
        let refused = peer.call(tool, arguments).await;
        assert_eq!(code(&refused), "BUDGET_SPENT");
        let text = refused["result"]["content"][0]["text"].as_str().unwrap();
        assert!(
            text.contains("00:00 UTC") && text.contains("cost in clients.json"),
            "{text}"
        );
        let rule = &refused["result"]["_meta"]["org.colibri/error"]["rule"];
        assert_eq!(*rule, format!("clients.json:1: users.{uid}.cost"));
    }
    // Neither is above what the operator gave, nor is it set.
    let above = peer
        .call("colibri_set_cost_mode", json!({"mode": "smart"}))
        .await;
    assert_eq!(code(&above), "POLICY_DENIED");
    let (said, mode) = spending(&mut peer).await;
    assert_eq!((&said["left_bytes"], mode.as_str()), (&json!(0), "fast"));
    assert_eq!(said["until"], today.end_ms());
    assert!(
        peer.ask("tools/list", json!({})).await["result"].is_object(),
        "lists are no calls"
    );
    assert!(
        peer.ask("colibri/overview", json!({"tail": 0})).await["result"].is_object(),
        "an operator's way stays"
    );

    shares.recall([(uid, spent(CostDay(today.0 - 1), 9_000_000))]);
    assert!(
        peer.call("git__status", json!({})).await["result"]["isError"].is_null(),
        "another day"
    );
    assert!(own_spent(&world) < 1_000);
    world.end().await;
}

#[tokio::test]
async fn a_mode_goes_up_once_where_the_operator_lets_it_and_that_is_recorded() {
    let world = World::new(
        REGISTRY,
        &policy(&json!({"mode": "fast", "escalate": true})),
    )
    .await;
    let uid = nix::unistd::geteuid().as_raw();
    let today = CostDay::of(SystemTime::now());
    let spent = DailyUsage {
        day: today,
        bytes: 499_990,
        own: None,
    };
    world.daemon.host.shares().recall([(uid, spent)]);
    // Many calls at once, of several connections: each is answered, and one of them is the one that
    // goes beyond.
    let mut peers = Vec::new();
    for _ in 0..4 {
        peers.push(world.operator().await);
    }
    for peer in &mut peers {
        for _ in 0..50 {
            peer.begin(
                "tools/call",
                json!({"name": "git__status", "arguments": {}}),
            )
            .await;
        }
    }
    for peer in &mut peers {
        for _ in 0..50 {
            assert!(peer.message().await["result"]["isError"].is_null());
        }
    }
    let raised = || {
        let events = world
            .trail()
            .into_iter()
            .filter(|record| record["event"] == "cost-mode");
        events
            .map(|record| record["details"].clone())
            .collect::<Vec<_>>()
    };
    let first = raised();
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(
        (&first[0]["uid"], &first[0]["from"], &first[0]["to"]),
        (&json!(uid), &json!("fast"), &json!("smart"))
    );
    let (said, mode) = spending(&mut peers[0]).await;
    assert_eq!((&said["set"], mode.as_str()), (&json!("fast"), "smart"));
    assert_eq!(
        said["left_bytes"],
        8_000_000 - said["spent_bytes"].as_u64().unwrap()
    );
    assert!(comes_whole(&mut peers[0], 15_000).await);

    // The same for an agent, up to the end.
    let agent = world.agent(SESSION, ALL);
    let mut peer = agent.connect().await;
    for (bytes, before, after) in [(499_999, "fast", "smart"), (1_999_999, "smart", "max")] {
        agent
            .door
            .spent
            .bytes
            .store(bytes - 5_000, Ordering::Relaxed);
        assert_eq!(spending(&mut peer).await.1, before);
        agent.door.spent.bytes.store(bytes, Ordering::Relaxed);
        peer.call("git__status", json!({})).await;
        assert_eq!(spending(&mut peer).await.1, after);
    }
    let last = raised().pop().unwrap();
    assert_eq!(
        (&last["agent"], &last["session"]),
        (&json!("coder"), &json!(SESSION))
    );
    agent.door.spent.bytes.store(8_000_000, Ordering::Relaxed);
    assert_eq!(
        code(&peer.call("git__status", json!({})).await),
        "BUDGET_SPENT"
    );
    world.end().await;
}

#[tokio::test]
async fn calls_at_once_overrun_a_budget_by_no_more_than_small_results() {
    let world = World::new(REGISTRY, &policy(&json!({"mode": "max"}))).await;
    let uid = nix::unistd::geteuid().as_raw();
    let spent = DailyUsage {
        day: CostDay::of(SystemTime::now()),
        bytes: 7_900_000,
        own: None,
    };
    world.daemon.host.shares().recall([(uid, spent)]);
    let mut peer = world.operator().await;
    let mut left = BTreeSet::new();
    for _ in 0..200 {
        left.insert(
            peer.begin(
                "tools/call",
                json!({"name": "git__big", "arguments": {"n": 50_000}}),
            )
            .await,
        );
    }
    let mut whole = 0;
    while !left.is_empty() {
        let answer = peer.message().await;
        if !answer["id"].as_u64().is_some_and(|id| left.remove(&id)) {
            continue;
        }
        let text = answer["result"]["content"][0]["text"].as_str();
        whole += u64::from(text.is_some_and(|text| text.len() == 50_000));
    }
    let spent = own_spent(&world);
    assert!((1..=2).contains(&whole), "{whole} of 200 came whole");
    assert!(spent < 8_000_000 + 200 * 5_000, "{spent}");
    assert_eq!(
        code(&peer.call("git__status", json!({})).await),
        "BUDGET_SPENT"
    );
    world.end().await;
}

/// A server whose answers take their shape only once two calls are at that, or one has been for a
/// while.
#[derive(Default)]
struct SlowServer {
    shaped: Mutex<u32>,
    more: Condvar,
    metrics: CallMetrics,
}

impl Upstream for SlowServer {
    fn prefix(&self) -> Option<&str> {
        let mut shaped = self.shaped.lock().unwrap();
        *shaped += 1;
        self.more.notify_all();
        let _waited = self
            .more
            .wait_timeout_while(shaped, Duration::from_millis(500), |shaped| *shaped < 2);
        None
    }

    fn redact(&self, text: &str) -> String {
        text.to_owned()
    }

    fn result_limit(&self) -> Option<u64> {
        None
    }

    fn relays_whole(&self) -> bool {
        false
    }

    fn metrics(&self) -> &CallMetrics {
        &self.metrics
    }
}

/// A call that is in flight, and a result of so many bytes of text for it.
fn answered(
    client: &Arc<Client>,
    target: Arc<CallTarget>,
    id: u64,
    length: usize,
) -> (Box<Call>, CallOutcome) {
    let frame = Bytes::from(format!(
        r#"{{"id":{id},"result":{{"content":[{{"text":"{}"}}]}}}}"#,
        "x".repeat(length)
    ));
    let request = Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#
    ));
    let EnvelopeKind::Request { id: asked, .. } = Envelope::parse(&request).unwrap().kind else {
        panic!("it is a request");
    };
    client.admit(&RequestId::of(asked)).unwrap();
    let at = |text: &str| {
        frame
            .windows(text.len())
            .position(|part| part == text.as_bytes())
            .unwrap()
            + text.len()
    };
    let request = CallRequest {
        client: client.clone(),
        id: RequestId::of(asked),
        batch: None,
        client_info: None,
        version: Version::V2025_11_25,
        method: Some(Method::ToolsCall),
        parts: RequestParts {
            id: asked.span(),
            ..RequestParts::default()
        },
        frame: request.clone(),
        held: 0,
        trace: None,
        entered: tokio::time::Instant::now(),
        time: SystemTime::now(),
    };
    let mut call = Call::new(request, target, Road::Lines);
    call.entry.terms = Terms {
        mode: Some(CostMode::Max),
        set_by: CostSetBy::User,
        escalates: false,
        cap: None,
        chosen_at: 0,
    };
    let relayed = ServerAnswer {
        id: 6..6 + id.to_string().len(),
        outcome: Ok(at(r#""result":"#)..frame.len() - 1),
        frame: frame.clone(),
        says_error: false,
        edits: None,
        version: Version::V2025_11_25,
        is_interim: false,
    };
    (Box::new(call), CallOutcome::Relayed(relayed))
}

#[tokio::test]
async fn answers_that_leave_together_do_not_spend_the_same_remainder() {
    let world = World::new(REGISTRY, OPEN).await;
    let share = world.daemon.host.shares().of(PERSON.uid);
    let today = CostDay::of(SystemTime::now());
    share.spend(today, 8_000_000 - 100_000);
    let outbox = Outbox::new(1 << 20, Arc::new(ByteBudget::new(1 << 30)));
    let client = Arc::new(Client::new(1, PERSON, outbox, 9).sharing(share.clone()));
    let server = Arc::new(SlowServer::default());
    let of = (&"slow".into(), server as Arc<dyn Upstream>);
    let description = TargetDescription::of_server(of, Feature::Tool, "big");
    let target = CallTarget::new(
        description,
        TargetRules::default(),
        Destination::Known(Default::default()),
    );
    let finished = [1, 2].map(|id| {
        let call = answered(&client, target.clone(), id, 60_000);
        let chain = world.daemon.chain.clone();
        tokio::task::spawn_blocking(move || chain.finish(vec![call]))
    });
    for one in finished {
        one.await.unwrap();
    }
    client.all_landed().await;
    let spent = share.spent_on(today).bytes;
    assert!(
        (7_960_000..7_980_000).contains(&spent),
        "of one the beginning went out: {spent}"
    );
    world.end().await;
}

#[tokio::test]
async fn an_error_is_no_way_around_a_limit_or_a_budget() {
    let world = World::new(
        r#"{"servers":{"git":{"command":"/m/git","result_limit":"1K"}}}"#,
        OPEN,
    )
    .await;
    let agent = world.agent_for(SESSION, ALL, PERSON, Some(200_000));
    let (mut person, mut peer) = (world.operator().await, agent.connect().await);
    let fails = |n: u64| json!({"n": n, "fails": true});
    // What cannot be kept may be longer.
    let passed = person.call("git__big", fails(100_000)).await;
    assert_eq!(passed["error"]["message"].as_str().unwrap().len(), 100_000);
    for (peer, n, most) in [
        (&mut person, 1 << 20, "1048576"),
        (&mut peer, 200_000, "the limit is 1"),
    ] {
        let refused = peer.call("git__big", fails(n)).await;
        assert_eq!(code(&refused), "RESULT_TOO_LARGE", "{refused}");
        let text = refused["result"]["content"][0]["text"].as_str().unwrap();
        assert!(
            text.contains(most) && text.contains("an error of") && text.len() < 4_000,
            "{text}"
        );
    }
    assert!(agent.door.spent.bytes.load(Ordering::Relaxed) < 20_000);
    let passed = peer.call("git__big", fails(100_000)).await;
    assert!(passed["error"].is_object(), "{passed}");
    world.end().await;
}

#[tokio::test]
async fn a_models_tokens_count_whatever_becomes_of_its_result() {
    let world = retries::world(json!({ "result_limit": "1K" })).await;
    let mut peer = world.operator().await;
    peer.names("tools/list", "tools", "name").await;
    let seen = || {
        world
            .daemon
            .chain
            .ledger
            .write(&world.daemon.store)
            .unwrap();
        let query = CostQuery {
            since: CostDay(0),
            uid: None,
            by: &[],
            unused: false,
            limit: 1,
        };
        let sum = world.daemon.store.ledger(&query).unwrap().sum;
        let records = world.trail();
        let records = records
            .iter()
            .filter(|record| record["event"] == "model_call");
        (
            sum.model_requests,
            sum.tokens_in,
            sum.tokens_out,
            records.count(),
        )
    };
    let ask = |long: u64| retries::arguments(json!({ "failures": 0, "long": long }));
    let whole = peer.call("api__complete", ask(10)).await;
    assert!(whole["result"]["isError"].is_null(), "{whole}");
    assert_eq!(seen(), (1, 3, 2, 1));
    let kept = peer.call("api__complete", ask(5_000)).await;
    assert!(
        kept["result"]["_meta"]["org.colibri/kept"]["handle"].is_string(),
        "{kept}"
    );
    assert_eq!(seen(), (2, 6, 4, 2));
    std::fs::remove_dir_all(world.path().join("results")).unwrap();
    std::fs::write(world.path().join("results"), "no directory").unwrap();
    let lost = peer.call("api__complete", ask(6_000)).await;
    let text = lost["result"]["content"][1]["text"].as_str().unwrap();
    assert!(text.contains("The rest is not kept"), "{text}");
    assert_eq!(seen(), (3, 9, 6, 3));
    world.end().await;
}

#[tokio::test]
async fn what_servers_list_takes_no_more_than_a_tenth_of_a_budget() {
    let servers: Value = (0..8)
        .map(|n| (format!("s{n}"), json!({"command": "/m/s"})))
        .collect();
    let world = World::new(&json!({"servers": servers}).to_string(), OPEN).await;
    let agent = world.agent_for(SESSION, ALL, PERSON, Some(100_000));
    let mut peer = agent.connect().await;
    for _ in 0..30 {
        assert!(peer.ask("tools/list", json!({})).await["result"].is_object());
    }
    let spent = agent.door.spent.bytes.load(Ordering::Relaxed);
    assert!((10_000..12_000).contains(&spent), "{spent}");
    // What is asked of us of what servers wrote is kept as their own results are.
    let whole = peer
        .call("colibri_external_mcp_list_tools", json!({}))
        .await;
    assert!(
        whole["result"]["structuredContent"]["tools"].is_array(),
        "{whole}"
    );
    let length = whole["result"].to_string().len() as u64;
    agent
        .door
        .spent
        .bytes
        .store(100_000 - length + 1, Ordering::Relaxed);
    let kept = peer
        .call("colibri_external_mcp_list_tools", json!({}))
        .await;
    assert!(
        length > 4_000 && code(&kept) == "RESULT_TOO_LARGE",
        "{length}: {kept}"
    );
    let kept = &kept["result"]["_meta"]["org.colibri/error"]["kept"];
    let read = peer.call(
        "colibri_read_result",
        json!({"handle": kept["handle"], "json_pointer": "/structuredContent/tools/0/tool"}),
    );
    assert_eq!(read.await["result"]["content"][0]["text"], "\"ask\"");
    world.end().await;
}

#[tokio::test]
async fn one_users_sums_and_searches_wait_for_each_other_and_nobody_elses() {
    let world = World::new(REGISTRY, OPEN).await;
    let own = nix::unistd::geteuid().as_raw();
    let mut peer = world.operator().await;
    peer.names("tools/list", "tools", "name").await;
    let status = json!({"name": "colibri_status", "arguments": {}});
    let find = json!({"name": "colibri_find_tools", "arguments": {"query": "log"}});
    for (turns, method, params) in [
        (&world.daemon.sums, "colibri/costs", json!({})),
        (&world.daemon.searches, "tools/call", find),
    ] {
        let mine = turns.of(own, None).await;
        let waits = [0, 1, 2].map(|_| (method, params.clone()));
        let mut ids = Vec::new();
        for (method, params) in waits {
            ids.push(peer.begin(method, params).await);
        }
        for _ in 0..20 {
            let id = peer.begin("tools/call", status.clone()).await;
            assert_eq!(peer.message().await["id"], id, "they wait");
        }
        let others = timeout(PATIENCE, turns.of(own + 1, None)).await.unwrap();
        drop((mine, others));
        // A slot is free before the answer is written, so two answers may change places.
        while !ids.is_empty() {
            let answer = peer.message().await;
            assert!(answer["result"].is_object(), "{answer}");
            let at = ids.iter().position(|id| answer["id"] == *id);
            ids.remove(at.unwrap_or_else(|| panic!("{answer}")));
        }
    }
    world.end().await;
}

#[tokio::test]
async fn a_policy_that_is_read_again_counts_from_the_next_call_on() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let (mut peer, mut person) = (agent.connect().await, world.operator().await);
    assert!(comes_whole(&mut person, 10_000).await && comes_whole(&mut peer, 10_000).await);
    for (cost, whole) in [
        (json!({"mode": "fast"}), false),
        (json!({"mode": "max"}), true),
        (json!({"mode": "fast", "escalate": true}), false),
        (json!({"escalate": true}), true),
    ] {
        let clients = Clients::parse(
            policy(&cost).as_bytes(),
            "clients.json",
            Box::new(SystemAccounts),
        )
        .unwrap();
        world.daemon.chain.rules.clients.store(Arc::new(clients));
        assert_eq!(comes_whole(&mut person, 10_000).await, whole, "{cost}");
        assert_eq!(comes_whole(&mut peer, 10_000).await, whole, "{cost}");
    }
    world.end().await;
}

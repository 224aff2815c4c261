//! What calls at an agent socket leave to the board: its person's tasks, in its name, and never all
//! that there may be.

use serde_json::{Value, json};

use crate::world::{PERSON, Peer, World, code};
use crate::{ALL, OPEN, SESSION};
use colibri_policy::Caller;

/// A world whose server `git` has a contract that leaves pushes to people.
async fn world() -> World {
    let directory = tempfile::Builder::new().prefix("cd-").tempdir().unwrap();
    let contract = json!({ "others": { "allow": "harmless" }, "tools": { "push": { "deny": "pushing is for people",
        "task": { "title": "Push a branch", "fields": { "branch": "/branch" } } } } });
    let path = directory.path().join("git.json");
    std::fs::write(&path, contract.to_string()).unwrap();
    let registry = json!({ "servers": { "git": { "command": "/m/git", "contract": path } } });
    World::within(directory, &registry.to_string(), OPEN).await
}

/// The task that a refused push is now, if it is one.
async fn push(peer: &mut Peer, branch: &str) -> Option<u64> {
    let answer = peer.call("git__push", json!({ "branch": branch })).await;
    assert_eq!(code(&answer), "CONTRACT_DENIED", "{answer}");
    answer["result"]["_meta"]["org.colibri/error"]["deferred"]["task"].as_u64()
}

/// The tasks that are shown, newest first.
async fn tasks(peer: &mut Peer) -> Vec<Value> {
    let answer = peer.call("colibri_list_tasks", json!({})).await;
    let tasks = answer["result"]["structuredContent"]["tasks"].as_array();
    tasks.unwrap_or_else(|| panic!("{answer}")).clone()
}

#[tokio::test]
async fn what_an_agents_call_leaves_is_its_persons_and_in_its_name() {
    let world = world().await;
    let agent = world.agent(SESSION, ALL);
    let mut peer = agent.connect().await;
    assert_eq!(push(&mut peer, "feature/a").await, Some(1));
    let shown = tasks(&mut peer).await;
    assert_eq!(
        (
            &shown[0]["created_by"],
            &shown[0]["source"],
            &shown[0]["status"]
        ),
        (&json!(PERSON.uid), &json!("deferred:git"), &json!("queued"))
    );
    let trail = world.trail();
    let event = |name: &str| {
        let found = trail.iter().find(|record| record["event"] == name);
        found.unwrap_or_else(|| panic!("{name}: {trail:?}"))["details"].clone()
    };
    let made = event("task");
    assert_eq!(
        (&made["by"], &made["session"]),
        (&json!(PERSON.uid), &json!(SESSION)),
        "{made}"
    );
    let deferred = event("deferred");
    assert_eq!(
        (&deferred["task"], &deferred["uid"]),
        (&json!(1), &json!(PERSON.uid)),
        "{deferred}"
    );
    // It is for a person, and not for the agent to take.
    let next = peer.call("colibri_next_task", json!({})).await;
    assert_eq!(
        next["result"]["structuredContent"]["task"],
        Value::Null,
        "{next}"
    );
    // Another instance of the same person is told the same, somebody else's agent has nothing of
    // it.
    let second = world.agent("fedcba9876543210", ALL);
    assert_eq!(
        push(&mut second.connect().await, "feature/a").await,
        Some(1)
    );
    let other = Caller {
        uid: 1002,
        gid: 1002,
        pid: None,
    };
    let theirs = world.agent_for("00000000000000aa", ALL, other, None);
    let mut theirs = theirs.connect().await;
    assert_eq!(tasks(&mut theirs).await, Vec::<Value>::new());
    assert_eq!(push(&mut theirs, "feature/a").await, Some(2));
    assert_eq!(tasks(&mut peer).await.len(), 1);
    world.end().await;
}

#[tokio::test]
async fn an_agent_that_pushes_without_end_leaves_its_person_half_of_the_tasks() {
    let world = world().await;
    let own = nix::unistd::geteuid().as_raw();
    let person = Caller {
        uid: own,
        gid: nix::unistd::getegid().as_raw(),
        pid: None,
    };
    let agent = world.agent_for(SESSION, ALL, person, None);
    let mut peer = agent.connect().await;
    for n in 1..=40 {
        assert_eq!(
            push(&mut peer, &format!("feature/{n}")).await,
            (n <= 16).then_some(n)
        );
    }
    assert_eq!(
        push(&mut peer, "feature/7").await,
        Some(7),
        "what is open is named again"
    );
    let mut operator = world.operator().await;
    for n in 41..=60 {
        assert_eq!(
            push(&mut operator, &format!("feature/{n}")).await,
            (n <= 56).then_some(n - 24)
        );
    }
    assert_eq!(tasks(&mut operator).await.len(), 32);
    world.end().await;
}

#[tokio::test]
async fn a_call_made_for_a_task_says_which() {
    let world = World::new(super::REGISTRY, super::OPEN).await;
    let own = Caller {
        uid: nix::unistd::geteuid().as_raw(),
        ..PERSON
    };
    let agent = world.agent_for(SESSION, ALL, own, None);
    let (mut peer, mut person) = (agent.connect().await, world.operator().await);
    for title in ["one", "two"] {
        person
            .call("colibri_create_task", json!({ "title": title }))
            .await;
    }
    peer.call("git__status", json!({})).await;
    let claimed = peer.call("colibri_next_task", json!({})).await;
    assert_eq!(
        claimed["result"]["structuredContent"]["task"]["id"], 1,
        "{claimed}"
    );
    peer.call("git__status", json!({})).await;
    let finish = json!({ "task": 1, "claim": 1, "result": "done" });
    peer.call("colibri_finish_task", finish).await;
    peer.call("git__status", json!({})).await;

    // A person's assistant says it, and what is no claim of that person's is not recorded.
    let claimed = person.call("colibri_next_task", json!({})).await;
    assert_eq!(
        claimed["result"]["structuredContent"]["task"]["id"], 2,
        "{claimed}"
    );
    let status = |task: Value| json!({ "name": "git__status", "arguments": {}, "_meta": { "org.colibri/task": task } });
    for task in [json!(2), json!(1), json!(3), json!("2")] {
        person.ask("tools/call", status(task)).await;
    }
    person.call("git__status", json!({})).await;
    person
        .call("colibri_cancel_task", json!({ "task": 2 }))
        .await;
    person.ask("tools/call", status(json!(2))).await;

    let trail = world.trail();
    // The first call has two records: nobody had looked at the server.
    let entered = trail
        .iter()
        .filter(|record| record["kind"] == "enter" && record["continues"].is_null());
    let said: Vec<_> = entered
        .filter(|record| record["server"] == "git" || record["tool"] == "colibri_finish_task")
        .map(|record| record["task"].as_u64())
        .collect();
    let expected = [
        None,
        Some(1),
        Some(1),
        None,
        Some(2),
        None,
        None,
        None,
        None,
        None,
    ];
    assert_eq!(said, expected);
    world.end().await;
}

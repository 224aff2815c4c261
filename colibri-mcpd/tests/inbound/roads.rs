//! The limits of `docs/roads.md` that need a clock or a lease of ours.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use colibri_policy::{Clients, SystemAccounts};
use serde_json::json;

use super::retries;
use super::world::{Peer, World};

/// Runs an assertion that is red because of a row of `docs/attacks.md`.
///
/// # Panics
/// If the assertion holds: the row is closed.
fn expected_to_fail(row: &str, body: impl FnOnce()) {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    assert!(
        outcome.is_err(),
        "row {row} is closed: make this an ordinary test"
    );
}

/// Changes what policy says while a call waits for its next attempt: the result and the attempt
/// that its record has at its end.
async fn next_attempt_after(change: fn(&World)) -> (String, u64) {
    next_attempt(async |world, _| change(world)).await
}

/// The same, where the client of the call has a part in it.
async fn next_attempt(change: impl AsyncFnOnce(&World, &mut Peer)) -> (String, u64) {
    let world = retries::world(json!({})).await;
    let mut peer = world.operator().await;
    peer.names("tools/list", "tools", "name").await;
    let says = json!({ "code": "MODEL_BUSY", "after": 100, "failures": 1 });
    let params = json!({ "name": "api__complete", "arguments": retries::arguments(says) });
    let id = peer.begin("tools/call", params).await;
    let has_failed = || world.trail().iter().any(|record| record["kind"] == "retry");
    while !has_failed() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    change(&world, &mut peer).await;
    peer.answer(id).await;
    let records = world.trail();
    let exit = records
        .iter()
        .rfind(|record| record["kind"] == "exit")
        .unwrap();
    let end = (
        exit["result"].as_str().unwrap().to_owned(),
        exit["attempt_number"].as_u64().unwrap_or_default(),
    );
    world.end().await;
    end
}

#[tokio::test(start_paused = true)]
async fn an_attempt_follows_where_nothing_has_changed() {
    let end = next_attempt_after(|_| {}).await;
    assert_eq!(end, ("SUCCESS".to_owned(), 2));
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_is_closed_holds_the_next_attempt() {
    let (result, _) =
        next_attempt_after(|world| world.daemon.chain.rules.gates.store(Arc::default())).await;
    expected_to_fail("R2", || assert_eq!(result, "FAIL"));
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_gone_holds_the_next_attempt() {
    fn deny(world: &World) {
        let uid = nix::unistd::geteuid().to_string();
        let none = json!({ "gates": ["external-call"], "servers": {} });
        let text = json!({ "users": { uid: none } }).to_string();
        let clients =
            Clients::parse(text.as_bytes(), "clients.json", Box::new(SystemAccounts)).unwrap();
        world.daemon.chain.rules.clients.store(Arc::new(clients));
    }
    let (result, _) = next_attempt_after(deny).await;
    expected_to_fail("R2", || assert_eq!(result, "FAIL"));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_claimed_meanwhile_holds_the_next_attempt() {
    let (result, _) = next_attempt(async |_, peer| {
        let task = json!({ "title": "t", "may": [] });
        let made = peer.ask("colibri/create-task", task).await;
        assert!(made.get("error").is_none(), "{made}");
        let claimed = peer.call("colibri_next_task", json!({})).await;
        assert!(claimed["result"]["isError"].is_null(), "{claimed}");
    })
    .await;
    expected_to_fail("R2", || assert_eq!(result, "FAIL"));
}

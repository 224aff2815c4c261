//! What an integration's contract has tried again, by a clock that is ours.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::world::World;

/// A world whose server `api` has the contract that ships, and answers `complete` as the call says.
/// What is given up is no task here, so that a call's records are of its attempts alone.
pub(crate) async fn world(more: Value) -> World {
    world_of(more, |term| drop(term.remove("task"))).await
}

/// The same with another term of the contract for `complete`.
async fn world_of(more: Value, edit: impl Fn(&mut serde_json::Map<String, Value>)) -> World {
    let contract = std::fs::canonicalize(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../etc/contracts/model-api.json"
    ))
    .unwrap();
    let directory = tempfile::Builder::new().prefix("cd-").tempdir().unwrap();
    // Of a checkout that others may write the daemon would take none.
    let own = directory.path().join("model-api.json");
    let mut contract: Value = serde_json::from_slice(&std::fs::read(contract).unwrap()).unwrap();
    edit(contract["tools"]["complete"].as_object_mut().unwrap());
    std::fs::write(&own, contract.to_string()).unwrap();
    let mut entry = json!({ "command": "/x", "contract": own });
    entry
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let registry = json!({ "servers": { "api": entry } });
    World::within(
        directory,
        &registry.to_string(),
        &super::open_with_operator(),
    )
    .await
}

pub(crate) fn arguments(says: Value) -> Value {
    json!({ "task_id": says.to_string(), "context": "x", "max_tokens": 10, "temperature": 0,
            "model": "ratatoskr:free/text-generation" })
}

/// The records of the last call: their kinds with result, attempt and code, and the typed ones.
fn records(world: &World) -> Vec<String> {
    let records = world.trail();
    let begin = records
        .iter()
        .rposition(|record| record["kind"] == "enter")
        .unwrap();
    let told = |record: &Value| match record["kind"].as_str().unwrap() {
        "event" => format!(
            "{} {}",
            record["event"].as_str().unwrap(),
            record["details"]["tokens_in"]
        ),
        kind => format!(
            "{kind} {} {} {} {}",
            record["result"], record["attempt_number"], record["error_code"], record["error_class"]
        ),
    };
    records[begin + 1..].iter().map(told).collect()
}

#[tokio::test(start_paused = true)]
async fn each_further_attempt_waits_as_the_contract_says_and_is_recorded() {
    let world = world(json!({})).await;
    let mut peer = world.operator().await;
    assert_eq!(
        peer.names("tools/list", "tools", "name")
            .await
            .iter()
            .filter(|name| *name == "api__complete")
            .count(),
        1
    );
    for (code, after, failures, waits) in [
        ("MODEL_FAILED", None, 0, &[][..]),
        ("MODEL_FAILED", None, 2, &[1, 4]),
        ("MODEL_FAILED", None, 9, &[1, 4, 15, 60]),
        ("MODEL_BUSY", None, 9, &[30, 30, 30, 30]),
        ("MODEL_BUSY", Some(7), 3, &[7, 7, 7]),
        ("MODEL_BUSY", Some(3600), 3, &[]),
        ("MODEL_REFUSED", None, 3, &[]),
        ("INTEGRATION_UNAVAILABLE", None, 9, &[1, 4, 15, 60]),
        // What stays is not tried again, whatever the contract says of its code.
        ("STAYS", None, 3, &[]),
    ] {
        let good =
            json!({ "code": "MODEL_FAILED", "failures": 0, "before": [code, after, failures] });
        peer.call("api__complete", arguments(good)).await;
        let says = json!({ "code": code, "after": after, "failures": failures });
        let begun = Instant::now();
        let answer = peer.call("api__complete", arguments(says)).await;
        let waited: u64 = waits.iter().sum();
        let took = begun.elapsed();
        assert!(
            took >= Duration::from_secs(waited) && took < Duration::from_secs(waited + 1),
            "{code} {after:?}: {took:?}"
        );
        let has_succeeded = failures <= waits.len();
        assert_eq!(
            answer["result"]["isError"] != true,
            has_succeeded,
            "{answer}"
        );
        let attempts = waits.len() + 1;
        let mut expected: Vec<String> = (1..attempts)
            .map(|at| format!("retry \"RETRY\" {at} \"{code}\" \"transient\""))
            .collect();
        match has_succeeded {
            true => expected.extend([
                format!("exit \"SUCCESS\" {attempts} null null"),
                "model_call 3".to_owned(),
            ]),
            false => {
                // One that the contract has not tried again is an error of the tool's as any.
                let end = match code {
                    "MODEL_REFUSED" => "\"TOOL_ERROR\" \"unknown\"".to_owned(),
                    "STAYS" => "\"MODEL_FAILED\" \"permanent\"".to_owned(),
                    _ => format!("\"{code}\" \"transient\""),
                };
                expected.push(format!("exit \"FAIL\" {attempts} {end}"));
            }
        }
        assert_eq!(records(&world), expected);
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_next_attempt_can_be_cancelled() {
    let world = world(json!({})).await;
    let mut peer = world.operator().await;
    peer.names("tools/list", "tools", "name").await;
    let says = json!({ "code": "MODEL_BUSY", "after": 500, "failures": 9 });
    let begun = Instant::now();
    let id = peer
        .begin(
            "tools/call",
            json!({ "name": "api__complete", "arguments": arguments(says) }),
        )
        .await;
    while !records(&world)
        .iter()
        .any(|record| record.starts_with("retry"))
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    peer.send(&cancelled.to_string()).await;
    while !records(&world)
        .iter()
        .any(|record| record.starts_with("exit \"FAIL\""))
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(
        records(&world).last().unwrap(),
        "exit \"FAIL\" 2 \"CANCELLED\" null"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_integration_whose_calls_are_given_up_is_left_alone() {
    let world = world(json!({})).await;
    let mut peer = world.operator().await;
    peer.names("tools/list", "tools", "name").await;
    let says = |n: u32| json!({ "code": "MODEL_FAILED", "failures": 99, "n": n });
    for n in 0..3 {
        let begun = Instant::now();
        let answer = peer.call("api__complete", arguments(says(n))).await;
        assert!(
            answer.to_string().contains("MODEL_FAILED") && begun.elapsed().as_secs() == 80,
            "{answer}"
        );
    }
    let begun = Instant::now();
    let answer = peer.call("api__complete", arguments(says(3))).await;
    assert!(
        answer
            .to_string()
            .contains("given up, the last with MODEL_FAILED"),
        "{answer}"
    );
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(
        records(&world),
        ["exit \"FAIL\" 1 \"INTEGRATION_UNAVAILABLE\" \"transient\""]
    );
    // A trial has one attempt; one that is answered ends it.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let begun = Instant::now();
    peer.call("api__complete", arguments(says(4))).await;
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(
        records(&world),
        ["exit \"FAIL\" 1 \"MODEL_FAILED\" \"transient\""]
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    let good = json!({ "code": "MODEL_FAILED", "failures": 0 });
    assert_ne!(
        peer.call("api__complete", arguments(good)).await["result"]["isError"],
        true
    );
    let begun = Instant::now();
    peer.call("api__complete", arguments(says(5))).await;
    assert_eq!(begun.elapsed().as_secs(), 80);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_late_is_recorded_so_and_asked_once() {
    let world = world_of(json!({}), |_| ()).await;
    let mut peer = world.operator().await;
    peer.names("tools/list", "tools", "name").await;
    let late = arguments(json!({ "code": "MODEL_TIMEOUT", "failures": 9 }));
    peer.call("api__complete", late).await;
    let records = world.trail();
    assert!(
        records.iter().all(|record| record["kind"] != "retry"),
        "{records:?}"
    );
    let exit = records
        .iter()
        .rfind(|record| record["kind"] == "exit")
        .unwrap();
    assert_eq!(
        (
            &exit["error_code"],
            &exit["error_class"],
            &exit["attempt_number"]
        ),
        (&json!("MODEL_TIMEOUT"), &json!("transient"), &json!(1)),
        "{exit}"
    );
    // It is counted so, too.
    peer.begin("colibri/overview", json!({})).await;
    let overview = peer.message().await;
    assert!(
        overview.to_string().contains(r#"["MODEL_TIMEOUT",1]"#),
        "{overview}"
    );
    world.end().await;
}

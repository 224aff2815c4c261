//! Clients that are woken: by a task that is ready, a decision about a call, a notice; each by its
//! own user's alone.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use colibri_tests::{Client, Daemon, LEGACY, Place};
use serde_json::{Value, json};

const CHANGED: &str = "notifications/tools/list_changed";

/// A modern client that listens, and wants log messages from this level on.
fn listening(daemon: &Daemon<'_>, filter: Value, level: Option<&str>) -> (Client, u64) {
    let mut client = daemon.modern();
    let mut params = json!({ "notifications": filter });
    if let Some(level) = level {
        params["_meta"]["io.modelcontextprotocol/logLevel"] = json!(level);
    }
    let id = client.request("subscriptions/listen", params);
    client.notification("notifications/subscriptions/acknowledged");
    (client, id)
}

/// The data of the next log message.
fn woken(client: &mut Client) -> Value {
    let params = client.notification("notifications/message")["params"].take();
    assert_eq!(
        (&params["level"], &params["logger"]),
        (&json!("notice"), &json!("colibri")),
        "{params}"
    );
    params["data"].clone()
}

/// Asserts that nothing has come but the answer to a request that is made now.
fn assert_still(client: &mut Client, why: &str) {
    client.ask("tools/list", json!({}));
    assert_eq!(client.others, VecDeque::new(), "{why}");
}

fn ok(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let result = client.call(tool, arguments);
    assert!(result["isError"].is_null(), "{tool}: {result}");
    result["structuredContent"].clone()
}

#[test]
fn a_ready_task_wakes_clients_of_either_era() {
    let place = Place::new();
    let daemon = place.start(&["--write"]);
    let mut legacy = daemon.legacy(LEGACY);
    legacy.ask("ping", json!({}));
    let (mut modern, id) = listening(&daemon, json!({}), Some("info"));
    let (mut lists, _) = listening(&daemon, json!({ "toolsListChanged": true }), None);
    let mut creator = daemon.quiet(LEGACY);
    // Those that do not want it.
    let mut errors = daemon.legacy(LEGACY);
    errors.ask("logging/setLevel", json!({ "level": "error" }));
    let (mut grave, _) = listening(&daemon, json!({}), Some("warning"));
    let mut took: Vec<Duration> = Vec::new();
    for number in 1..=50_u64 {
        let began = Instant::now();
        ok(
            &mut creator,
            "colibri_create_task",
            json!({ "title": "words that stay at home" }),
        );
        let ready = json!({ "event": "task.ready", "task": number });
        assert_eq!(woken(&mut modern), ready);
        took.push(began.elapsed());
        assert_eq!(woken(&mut legacy), ready);
        legacy.notification(CHANGED);
        lists.notification(CHANGED);
    }
    took.sort_unstable();
    println!(
        "from the call that creates a task until a client is woken: p50 {:?}, most {:?}",
        took[24], took[49]
    );
    assert_still(&mut grave, "a level over notice");
    errors.notification(CHANGED);
    errors.ask("ping", json!({}));
    assert!(
        errors.others.iter().all(|other| other["method"] == CHANGED),
        "{:?}",
        errors.others
    );
    assert_still(&mut creator, "it has not said that it is there");
    // What was claimed and came back is ready again, and what is done is a notice. What is claimed
    // wakes nobody.
    let task = ok(&mut creator, "colibri_next_task", json!({}))["task"].take();
    let claim = json!({ "task": task["id"], "claim": task["claim"], "reason": "later" });
    ok(&mut creator, "colibri_release_task", claim);
    assert_eq!(
        woken(&mut modern),
        json!({ "event": "task.ready", "task": task["id"] })
    );
    let task = ok(&mut creator, "colibri_next_task", json!({}))["task"].take();
    let result = json!({ "task": task["id"], "claim": task["claim"], "result": "words" });
    ok(&mut creator, "colibri_finish_task", result);
    let done = woken(&mut modern);
    assert_eq!(
        (&done["event"], &done["status"]),
        (&json!("task.completed"), &json!("done")),
        "{done}"
    );
    assert!(!done.to_string().contains("words"));
    // A subscription that has ended is told nothing.
    modern.notify("notifications/cancelled", json!({ "requestId": id }));
    modern.ask("tools/list", json!({}));
    ok(
        &mut creator,
        "colibri_create_task",
        json!({ "title": "one more" }),
    );
    lists.notification(CHANGED);
    assert_still(&mut modern, "it does not listen any more");
    daemon.stop();
}

#[test]
fn a_message_on_a_subscription_names_it() {
    let place = Place::new();
    let daemon = place.start(&["--write"]);
    let (mut modern, id) = listening(&daemon, json!({}), Some("debug"));
    ok(
        &mut daemon.quiet(LEGACY),
        "colibri_create_task",
        json!({ "title": "t" }),
    );
    let message = modern.notification("notifications/message");
    assert_eq!(
        message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id,
        "{message}"
    );
    daemon.stop();
}

#[test]
fn clients_over_http_are_woken_in_the_stream_that_they_read() {
    let place = Place::new();
    let daemon = place.start(&["--write"]);
    let (mut client, mut own, mut modern) = (daemon.http(), daemon.http(), daemon.http());
    let session = client.open(LEGACY);
    assert!(own.listen(&session, None).is_stream());
    let level = json!({ "io.modelcontextprotocol/logLevel": "info" });
    let wanted = json!({ "notifications": { "toolsListChanged": true }, "_meta": level });
    assert!(
        modern
            .asked(json!("wake"), "subscriptions/listen", wanted)
            .is_stream()
    );
    modern.event().unwrap();
    let mut creator = daemon.quiet(LEGACY);
    for number in 1..=3 {
        ok(&mut creator, "colibri_create_task", json!({ "title": "t" }));
        for stream in [&mut own, &mut modern] {
            let mut events = std::iter::from_fn(|| stream.event()).map(|event| event.message);
            let told = events
                .find(|message| message["method"] == "notifications/message")
                .unwrap();
            assert_eq!(
                told["params"]["data"],
                json!({ "event": "task.ready", "task": number })
            );
            assert_eq!(events.next().unwrap()["method"], CHANGED);
        }
    }
    daemon.stop();
}

#[test]
fn many_tasks_are_no_flood_of_lists() {
    let place = Place::new();
    let daemon = place.start(&["--write"]);
    let mut legacy = daemon.legacy(LEGACY);
    let mut creator = daemon.quiet(LEGACY);
    let began = Instant::now();
    for _ in 0..200 {
        creator.request_tool("colibri_create_task", json!({ "title": "t" }));
    }
    let mut told: Vec<u64> = (0..200)
        .map(|_| woken(&mut legacy)["task"].as_u64().unwrap())
        .collect();
    let rounds = began.elapsed().as_millis() / 20 + 2;
    legacy.ask("ping", json!({}));
    told.dedup();
    assert_eq!(told, (1..=200).collect::<Vec<_>>());
    let lists = legacy
        .others
        .iter()
        .filter(|other| other["method"] == CHANGED)
        .count();
    println!("200 tasks: {lists} changed lists");
    assert!(
        (1..=rounds).contains(&(lists as u128)),
        "{lists} of {rounds}"
    );
    daemon.stop();
}

#[test]
fn an_approval_wakes_its_caller() {
    let place = Place::of_fixture(&[], json!({ "tools": { "confirm": ["count"] } }));
    let own = nix::unistd::geteuid().as_raw();
    let rights = json!({ "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true, "self_approve": true });
    place.clients(&json!({ "users": { own.to_string(): rights } }).to_string());
    let daemon = place.start(&[]);
    let (mut modern, _) = listening(&daemon, json!({}), Some("notice"));
    let mut caller = daemon.quiet(LEGACY);
    let mut operator = daemon.quiet(LEGACY);
    let (mut waited, mut decided) = (Vec::new(), Vec::new());
    for approve in [true, false, true] {
        let began = Instant::now();
        let call = caller.request_tool("fix__count", json!({ "n": 1 }));
        let waiting = woken(&mut modern);
        waited.push(began.elapsed());
        assert_eq!(
            (&waiting["event"], &waiting["tool"]),
            (&json!("approval.waiting"), &json!("count")),
            "{waiting}"
        );
        let method = if approve {
            "colibri/approve"
        } else {
            "colibri/deny"
        };
        let began = Instant::now();
        operator.ask(method, json!({ "id": waiting["approval"] }));
        let told = woken(&mut modern);
        decided.push(began.elapsed());
        let expected = json!({ "event": "approval.decided", "approval": waiting["approval"], "approved": approve,
            "server": "fix", "tool": "count" });
        assert_eq!(told, expected);
        caller.answer(call);
    }
    println!("until a client is woken: by a call that waits {waited:?}, by a decision {decided:?}");
    assert_still(&mut operator, "it has not said that it is there");
    daemon.stop();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nobody_is_woken_by_what_is_anothers() {
    let place = Place::new();
    place.open_to_group();
    place.clients(&json!({ "others": { "gates": ["write"], "servers": {} } }).to_string());
    let daemon = place.start(&["--write"]);
    let of = |uid: u32| {
        let mut client = Client::over(daemon.stream_of(uid));
        client.initialize(LEGACY);
        client.ask("logging/setLevel", json!({ "level": "debug" }));
        client
    };
    let (mut alice, mut bob, mut root) = (of(54_321), of(54_322), daemon.legacy(LEGACY));
    root.ask("ping", json!({}));
    // Shared or not: it is hers, and what others may take is not theirs to do.
    ok(
        &mut alice,
        "colibri_create_task",
        json!({ "title": "hers" }),
    );
    let shared = place
        .stranger(&["tasks", "create", "hers", "--share", "all"])
        .output()
        .unwrap();
    assert!(shared.status.success(), "{shared:?}");
    for task in [1, 2] {
        assert_eq!(woken(&mut alice)["task"], task);
    }
    for (client, who) in [(&mut bob, "another user"), (&mut root, "an operator")] {
        assert_still(client, who);
    }
    ok(&mut bob, "colibri_create_task", json!({ "title": "his" }));
    assert_eq!(woken(&mut bob)["event"], "task.ready");
    daemon.stop();
}

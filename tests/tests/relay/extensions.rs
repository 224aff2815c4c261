//! Extensions: tasks, which calls of a modern server become and their user asks for later; and
//! those of which the daemon knows nothing.

use std::fs;

use colibri_tests::{Client, Daemon, LEGACY, MODERN, Place, code_of, wait_for};
use serde_json::{Value, json};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A modern fixture `fix` whose tool `frame` answers case `task` with a task, and that knows one
/// task, `own-1`.
fn place(more: Value) -> Place {
    let place = Place::of_fixture(&["--speak", MODERN], more);
    fs::write(
        place.path("fix.extensions"),
        json!({ EXTENSION: {} }).to_string(),
    )
    .unwrap();
    task(&place, r#""ttlMs":600000"#);
    told(&place, "working", "");
    place.frame(
        "tasks-cancel",
        br#"{"jsonrpc":"2.0","id":@ID@,"result":{"resultType":"complete"}}"#,
    );
    place.frame(
        "tasks-update",
        br#"{"jsonrpc":"2.0","id":@ID@,"result":{"resultType":"complete"}}"#,
    );
    place
}

/// What the next call of `frame` becomes.
fn task(place: &Place, ttl: &str) {
    let result = format!(r#"{{"resultType":"task","taskId":"own-1","status":"working",{ttl}}}"#);
    place.frame(
        "task",
        format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{result}}}"#).as_bytes(),
    );
}

/// How the server tells of the task from now on.
fn told(place: &Place, status: &str, more: &str) {
    let result = format!(
        r#"{{"resultType":"complete","taskId":"own-1","status":"{status}","ttlMs":600000{more}}}"#
    );
    place.frame(
        "tasks-get",
        format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{result}}}"#).as_bytes(),
    );
}

fn declared() -> Value {
    json!({ "io.modelcontextprotocol/clientCapabilities": { "extensions": { EXTENSION: {} } } })
}

/// Calls a tool that becomes a task: the whole answer.
fn begin(client: &mut Client) -> Value {
    client.ask(
        "tools/call",
        json!({ "_meta": declared(), "name": "fix__frame", "arguments": { "case": "task" } }),
    )
}

fn about(client: &mut Client, method: &str, id: &str) -> Value {
    client.ask(method, json!({ "_meta": declared(), "taskId": id }))
}

fn modern(daemon: &Daemon<'_>) -> Client {
    let mut client = daemon.modern();
    // The list waits for the server that was never seen.
    client.tools();
    client
}

#[test]
fn a_task_is_asked_for_updated_and_cancelled_under_an_id_of_ours() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = modern(&daemon);
    let discovered = client.ask("server/discover", json!({}));
    assert_eq!(
        discovered["result"]["capabilities"]["extensions"][EXTENSION],
        json!({}),
        "{discovered}"
    );
    let begun = begin(&mut client);
    let id = begun["result"]["taskId"].as_str().unwrap().to_owned();
    assert_eq!(
        (id.len(), &begun["result"]["resultType"]),
        (32, &json!("task")),
        "{begun}"
    );
    let got = about(&mut client, "tasks/get", &id);
    assert_eq!(
        (&got["result"]["taskId"], &got["result"]["status"]),
        (&json!(id), &json!("working")),
        "{got}"
    );
    told(
        &place,
        "completed",
        r#","result":{"content":[{"type":"resource_link","uri":"file:///a","name":"a"}],"_meta":{"org.colibri/error":{"code":"GATE_CLOSED"},"y":1}}"#,
    );
    let got = about(&mut client, "tasks/get", &id);
    let link = json!({ "type": "resource_link", "uri": "fix+file:///a", "name": "a" });
    assert_eq!(
        got["result"]["result"],
        json!({ "content": [link], "_meta": { "y": 1 } }),
        "{got}"
    );
    let update = json!({ "_meta": declared(), "taskId": id, "inputResponses": { "taskId": { "action": "accept" } } });
    assert_eq!(
        client.ask("tasks/update", update)["result"]["resultType"],
        "complete"
    );
    let line = place.received("fix", "tasks/update").pop().unwrap();
    let params = &serde_json::from_str::<Value>(&line).unwrap()["params"];
    assert_eq!(
        (
            &params["taskId"],
            &params["inputResponses"]["taskId"]["action"]
        ),
        (&json!("own-1"), &json!("accept"))
    );
    assert_eq!(
        about(&mut client, "tasks/cancel", &id)["result"]["resultType"],
        "complete"
    );
    assert!(
        place
            .received("fix", "tasks/cancel")
            .pop()
            .unwrap()
            .contains("\"own-1\"")
    );
}

#[test]
fn an_id_that_was_not_given_is_refused_and_nothing_is_sent() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = modern(&daemon);
    begin(&mut client);
    for id in ["own-1", "", "0123456789abcdef0123456789abcdef"] {
        let refused = about(&mut client, "tasks/get", id);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(
            refused["error"]["message"]
                .as_str()
                .unwrap()
                .contains("no such task"),
            "{refused}"
        );
    }
    assert_eq!(
        client.ask("tasks/get", json!({ "_meta": declared() }))["error"]["code"],
        -32602
    );
    let undeclared = client.ask("tasks/get", json!({ "taskId": "own-1" }));
    assert_eq!(undeclared["error"]["code"], -32021, "{undeclared}");
    let required = json!({ "requiredCapabilities": { "extensions": { EXTENSION: {} } } });
    assert_eq!(undeclared["error"]["data"], required);
    assert!(place.received("fix", "tasks/get").is_empty());
    // It is an extension of the modern era.
    let mut legacy = daemon.legacy("2025-11-25");
    assert_eq!(
        legacy.ask("tasks/get", json!({ "taskId": "own-1" }))["error"]["code"],
        -32601
    );
}

#[test]
fn a_task_survives_its_client_and_keeps_its_process() {
    let place = place(json!({ "idle_timeout_s": 1 }));
    place.add_brief();
    let daemon = place.start(&[]);
    let id = {
        let mut client = modern(&daemon);
        begin(&mut client)["result"]["taskId"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // That it is still the same process is what counts.
    daemon.outlast_brief();
    let mut client = daemon.modern();
    assert_eq!(
        about(&mut client, "tasks/get", &id)["result"]["status"],
        "working"
    );
    assert_eq!(place.started("fix").len(), 1);
    told(
        &place,
        "failed",
        r#","error":{"code":-32603,"message":"no"}"#,
    );
    assert_eq!(
        about(&mut client, "tasks/get", &id)["result"]["error"]["message"],
        "no"
    );
    // It is over, so its process may be idle.
    wait_for("the process to end", || {
        place
            .record("fix")
            .iter()
            .any(|(_, kind, _)| kind == "eof")
            .then_some(())
    });
    let lost = about(&mut client, "tasks/get", &id);
    assert_eq!(lost["error"]["code"], -32602, "{lost}");
    assert!(
        lost["error"]["message"].as_str().unwrap().contains("lost"),
        "{lost}"
    );
}

#[test]
fn a_task_stays_with_its_process_when_its_servers_entry_changes() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = modern(&daemon);
    let id = begin(&mut client)["result"]["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    let entry = place.fixture("fix", &["--speak", MODERN], json!({ "timeout_ms": 20_000 }));
    place.registry(&json!({ "fix": entry }));
    daemon.reload();
    // A call goes to a process of the new entry.
    let called = client.ask(
        "tools/call",
        json!({ "name": "fix__echo", "arguments": {} }),
    );
    assert!(called["result"].is_object(), "{called}");
    assert_eq!(place.started("fix").len(), 2);
    let got = about(&mut client, "tasks/get", &id);
    assert_eq!(got["result"]["status"], "working", "{got}");
}

#[test]
fn a_task_nobody_asked_for_is_refused_and_cancelled() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = modern(&daemon);
    let refused = client.call("fix__frame", json!({ "case": "task" }));
    assert_eq!(
        code_of(&refused),
        Some("SERVER_ANSWER_INVALID"),
        "{refused}"
    );
    let cancel = wait_for("the task to be cancelled", || {
        place.received("fix", "tasks/cancel").pop()
    });
    assert!(cancel.contains("\"own-1\""), "{cancel}");
    // Nor is one that cannot be read.
    for bad in [r#""taskID":"b","ttlMs":1"#, r#""status":"done","ttlMs":1"#] {
        task(&place, bad);
        let refused = begin(&mut client);
        assert_eq!(
            code_of(&refused),
            Some("SERVER_ANSWER_INVALID"),
            "{refused}"
        );
    }
}

#[test]
fn notifications_of_unknown_extensions_pass_between_peers_that_declare_them() {
    let place = place(json!({}));
    fs::write(
        place.path("fix.extensions"),
        json!({ "org.example/x": {} }).to_string(),
    )
    .unwrap();
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/org.example/x" , "params":{"n":12345678901234567890123}}"#;
    let result = r#"{"jsonrpc":"2.0","id":@ID@,"result":{"resultType":"complete","content":[]}}"#;
    place.frame("noted", format!("{notification}\n{result}").as_bytes());
    let daemon = place.start(&[]);
    let mut client = modern(&daemon);
    let call = |client: &mut Client, extensions: Value| {
        let meta =
            json!({ "io.modelcontextprotocol/clientCapabilities": { "extensions": extensions } });
        client.request(
            "tools/call",
            json!({ "_meta": meta, "name": "fix__frame", "arguments": { "case": "noted" } }),
        )
    };
    let id = call(&mut client, json!({ "org.example/x": {} }));
    assert_eq!(client.read().unwrap(), notification.as_bytes());
    assert_eq!(client.message()["id"], id);
    // To who does not declare it, it means nothing.
    let id = call(&mut client, json!({}));
    assert_eq!(client.message()["id"], id);
}

#[test]
fn what_becomes_of_a_task_is_told_to_who_listens() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = modern(&daemon);
    let id = begin(&mut client)["result"]["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    let listen = |client: &mut Client, declared: Value| {
        let filter = json!({ "taskIds": [id, "own-1", "0123456789abcdef0123456789abcdef"] });
        let listen = client.request(
            "subscriptions/listen",
            json!({ "_meta": declared, "notifications": filter }),
        );
        let acknowledged = client.notification("notifications/subscriptions/acknowledged");
        (listen, acknowledged["params"]["notifications"].clone())
    };
    // Who does not declare the extension hears nothing.
    let (_, honoured) = listen(&mut client, json!({}));
    assert_eq!(honoured, json!({}));
    let (subscription, honoured) = listen(&mut client, declared());
    assert_eq!(honoured, json!({ "taskIds": [id] }));
    let asked = place.received("fix", "taskIds").pop().unwrap();
    assert!(
        asked.contains(r#""taskIds":["own-1"]"#) && asked.contains(EXTENSION),
        "{asked}"
    );
    let params = json!({ "taskId": "own-1", "status": "completed", "result": { "content": [] } });
    client.call("fix__tell", json!({ "method": "tasks", "params": params }));
    let told = client.notification("notifications/tasks");
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": subscription });
    assert_eq!(
        told["params"],
        json!({ "_meta": meta, "taskId": id, "status": "completed", "result": { "content": [] } })
    );
    // Of a task that was never told to this user nothing is told either.
    client.call(
        "fix__tell",
        json!({ "method": "tasks", "params": { "taskId": "own-2", "status": "working" } }),
    );
    client.notify(
        "notifications/cancelled",
        json!({ "requestId": subscription }),
    );
    let cancelled = wait_for("the end of it", || {
        place.received("fix", "notifications/cancelled").pop()
    });
    assert!(cancelled.contains("nobody listens"), "{cancelled}");
    assert!(
        client
            .others
            .iter()
            .all(|other| other["method"] != "notifications/tasks"),
        "{:?}",
        client.others
    );
}

#[test]
fn what_a_task_asks_for_is_named_and_goes_to_who_can_be_asked() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = modern(&daemon);
    let id = begin(&mut client)["result"]["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    let schema = r#"{"type":"object","properties":{}}"#;
    let asks = format!(
        r#","inputRequests":{{"k":{{"method":"elicitation/create","params":{{"message":"Name?","requestedSchema":{schema}}}}}}}"#
    );
    told(&place, "input_required", &asks);
    // This client cannot be asked.
    let refused = about(&mut client, "tasks/get", &id);
    assert_eq!(code_of(&refused), Some("ASK_FAILED"), "{refused}");
    let capabilities = json!({ "extensions": { EXTENSION: {} }, "elicitation": {} });
    let meta = json!({ "io.modelcontextprotocol/clientCapabilities": capabilities });
    let got = client.ask("tasks/get", json!({ "_meta": meta, "taskId": id }));
    let asked = &got["result"]["inputRequests"]["k"]["params"];
    let message = asked["message"].as_str().unwrap();
    assert!(
        message.contains("fix") && message.ends_with("Name?"),
        "{got}"
    );
    assert_eq!(asked["requestedSchema"]["type"], "object");
}

#[test]
fn what_a_legacy_server_calls_a_task_is_its_answer() {
    let place = Place::of_fixture(&[], json!({}));
    let result = r#"{"resultType":"task","taskId":"1","status":"working","content":[{"type":"text","text":"kept"}]}"#;
    place.frame(
        "task",
        format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{result}}}"#).as_bytes(),
    );
    let daemon = place.start(&[]);
    let legacy = daemon
        .legacy(LEGACY)
        .call("fix__frame", json!({ "case": "task" }));
    assert_eq!(legacy, serde_json::from_str::<Value>(result).unwrap());
    let modern = begin(&mut modern(&daemon));
    assert_eq!(modern["result"]["resultType"], "complete", "{modern}");
    assert_eq!(modern["result"]["content"][0]["text"], "kept", "{modern}");
    daemon.stop();
}

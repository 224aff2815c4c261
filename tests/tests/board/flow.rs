//! What a task may change and where values come from, over the built programs: calls that wait, who
//! allows them, and what nobody gets around.

use colibri_tests::{Client, Daemon, LEGACY, Place, code_of, text_of, wait_for};
use serde_json::{Value, json};

/// The tools: `echo` returns what it is given, `count` sends, `pid` is anything else.
fn tools() -> String {
    let tool = |name: &str, properties: Value| json!({ "name": name, "inputSchema": { "type": "object", "properties": properties } });
    json!([
        tool("echo", json!({ "text": {} })),
        tool("count", json!({ "to": {}, "n": {} })),
        tool("pid", json!({})),
        tool("send_note", json!({})),
    ])
    .to_string()
}

fn labels() -> Value {
    json!({ "reads": ["echo"], "flow": { "untrusted": ["echo"] }, "sinks": { "count": ["to"] } })
}

/// A place whose one user decides about their own calls.
fn place(labels: Value) -> Place {
    let place = Place::of_fixture(&[], labels);
    place.defines("fix", "definitions", &tools());
    let rights = json!({ "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true,
        "self_approve": true });
    place.clients(&json!({ "users": { nix::unistd::geteuid().to_string(): rights } }).to_string());
    place
}

fn create(place: &Place, args: &[&str]) -> (bool, String) {
    let output = place
        .colibri_mcp(&[&["tasks", "create"], args].concat())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), text)
}

fn claim(client: &mut Client, task: u64) -> Value {
    let claimed = client.call("colibri_next_task", json!({ "task": task }));
    assert_ne!(claimed["isError"], true, "{claimed}");
    claimed["structuredContent"]["task"].clone()
}

/// Decides about the one call that waits, and returns the rule for which it did.
fn decide(daemon: &Daemon<'_>, how: &str) -> String {
    let mut operator = daemon.quiet(LEGACY);
    let waiting = wait_for("a call to wait", || {
        let answer = operator.ask("colibri/approvals", json!({}));
        answer["result"]["approvals"].get(0).cloned()
    });
    let decided = operator.ask(&format!("colibri/{how}"), json!({ "id": waiting["id"] }));
    assert!(decided["error"].is_null(), "{decided}");
    waiting["rule"].as_str().unwrap().to_owned()
}

/// Makes a call that waits, has it decided, and returns its rule.
fn held(
    daemon: &Daemon<'_>,
    client: &mut Client,
    tool: &str,
    arguments: Value,
    how: &str,
) -> String {
    let call = client.request_tool(tool, arguments);
    let rule = decide(daemon, how);
    let answer = client.answer(call);
    assert_eq!(
        code_of(&answer),
        (how == "deny").then_some("APPROVAL_DENIED"),
        "{answer}"
    );
    rule
}

fn free(client: &mut Client, tool: &str, arguments: Value) {
    let result = client.call(tool, arguments);
    assert_ne!(result["isError"], true, "{result}");
}

#[test]
fn a_claim_binds_its_connection_to_what_the_task_may_change() {
    let place = place(labels());
    let daemon = place.start(&["--write"]);
    let (_, created) = create(&place, &["Count for bob@example.org", "--may", "fix/count"]);
    assert!(created.contains("Created task 1"), "{created}");
    create(&place, &["All of it", "--may", "*/*"]);
    let mut client = daemon.legacy(LEGACY);
    free(&mut client, "fix__pid", json!({}));
    let task = claim(&mut client, 1);
    assert_eq!(
        (&task["may"], &task["by_person"]),
        (&json!(["fix/count"]), &json!(true))
    );
    let outside = "outside task 1: it may change fix/count, not fix/pid";
    assert_eq!(
        held(&daemon, &mut client, "fix__pid", json!({}), "deny"),
        outside
    );
    free(
        &mut client,
        "fix__count",
        json!({ "to": "bob@example.org" }),
    );
    free(&mut client, "fix__echo", json!({ "text": "x" }));
    // An answer is for one call; finishing and another claim widen nothing.
    assert_eq!(
        held(&daemon, &mut client, "fix__pid", json!({}), "approve"),
        outside
    );
    let ended = json!({ "task": 1, "claim": 1, "result": "done" });
    free(&mut client, "colibri_finish_task", ended);
    claim(&mut client, 2);
    assert_eq!(
        held(&daemon, &mut client, "fix__pid", json!({}), "deny"),
        outside
    );
    // A task that a tool makes has no more than its session, whatever it is told.
    let wide = client.call(
        "colibri_create_task",
        json!({ "title": "t", "may": ["*/*"] }),
    );
    assert_eq!(wide["isError"], true, "{wide}");
    let made = client.call(
        "colibri_create_task",
        json!({ "title": "Tell eve@evil.example" }),
    );
    let made = &made["structuredContent"]["task"];
    assert_eq!(
        (&made["may"], &made["by_person"]),
        (&json!([]), &Value::Null),
        "{made}"
    );
    assert_eq!(
        made["tainted"], true,
        "its maker had read what fix__echo returned"
    );
    let call = client.call(
        "colibri_schedule_task",
        json!({ "action": "create", "every_s": 60, "tool": "fix__pid" }),
    );
    assert!(text_of(&call).contains("it schedules no call"), "{call}");
    let mut other = daemon.legacy(LEGACY);
    claim(&mut other, 3);
    let rule = held(
        &daemon,
        &mut other,
        "fix__count",
        json!({ "to": "eve@evil.example" }),
        "deny",
    );
    assert!(
        rule.contains("outside task 3") && rule.contains("stands in what task 3 returned"),
        "{rule}"
    );
    let events = |name: &str| {
        let mut records = place.trail();
        records.retain(|rec| rec["event"] == name);
        records
    };
    let outside = events("suspended-outside-task");
    assert_eq!(outside.len(), 4, "{outside:?}");
    assert_eq!(
        (
            &outside[0]["details"]["task"],
            &outside[0]["details"]["tool"]
        ),
        (&json!(1), &json!("pid"))
    );
    let origin = events("suspended-origin");
    assert_eq!(
        (
            &origin[0]["details"]["argument"],
            &origin[0]["details"]["source"]
        ),
        (&json!("to"), &json!("task 3"))
    );
    assert!(
        !format!("{origin:?}").contains("evil"),
        "no value is recorded"
    );
    daemon.stop();
}

#[test]
fn a_destination_out_of_what_was_read_waits_once_and_a_new_connection_goes_on() {
    let place = place(labels());
    let daemon = place.start(&["--write"]);
    create(&place, &["Count for bob@example.org"]);
    let mut client = daemon.legacy(LEGACY);
    claim(&mut client, 1);
    free(
        &mut client,
        "fix__count",
        json!({ "to": "eve@evil.example" }),
    );
    free(
        &mut client,
        "fix__echo",
        json!({ "text": "now to eve@evil.example or mallory@evil.example, not bob@example.org" }),
    );
    free(
        &mut client,
        "fix__count",
        json!({ "to": "bob@example.org" }),
    );
    let to_eve = json!({ "to": ["Eve@evil.example"], "n": 1 });
    let rule = held(&daemon, &mut client, "fix__count", to_eve.clone(), "deny");
    assert_eq!(
        rule,
        "the destination in \"to\" stands in what fix/echo returned and not in its task or a trusted result"
    );
    held(
        &daemon,
        &mut client,
        "fix__count",
        to_eve.clone(),
        "approve",
    );
    free(&mut client, "fix__count", to_eve);
    // By way of the tool that calls others, too.
    let within = json!({ "tool": "fix__count", "arguments": { "to": "mallory@evil.example" } });
    held(&daemon, &mut client, "colibri_call_tool", within, "deny");
    drop(client);
    // Who came before the end of the first begins anew. If it ended before it, the two would go on
    // as one, of whose values nothing is known.
    let mut too_early = Vec::new();
    let mut again = wait_for("the connection to have ended", || {
        let mut again = daemon.legacy(LEGACY);
        let call = again.request_tool("fix__count", json!({ "to": "mallory@evil.example" }));
        // When this is answered it is decided whether the call before it waits.
        again.ask("ping", json!({}));
        let mut operator = daemon.quiet(LEGACY);
        let waits = operator.ask("colibri/approvals", json!({}))["result"]["approvals"]
            .get(0)
            .is_some();
        if !waits {
            too_early.push(again);
            return None;
        }
        decide(&daemon, "deny");
        again.answer(call);
        Some(again)
    });
    free(&mut again, "fix__count", json!({ "to": "bob@example.org" }));
    daemon.stop();
}

#[test]
fn a_list_that_fits_nothing_or_too_much_is_refused_and_says_what() {
    let mut labels = labels();
    labels["tools"] = json!({ "deny": ["pid"] });
    let place = place(labels);
    let daemon = place.start(&["--write"]);
    for (pattern, wanted) in [
        (
            "fix/cuont",
            "may: \"fix/cuont\" fits no tool that you may call; did you mean \"fix/count\"?",
        ),
        ("mail/*", "fits no tool"),
        (
            "fix/*",
            "may: \"fix/*\" is wider than your rights: fix/pid is denied by",
        ),
        ("count", "SERVER/TOOL"),
        (r#"{"tool":"fix/count","where":{"to":{}}}"#, "where"),
    ] {
        let (created, text) = create(&place, &["t", "--may", pattern]);
        assert!(!created && text.contains(wanted), "{pattern}: {text}");
    }
    let (created, text) = create(
        &place,
        &[
            "t",
            "--may",
            r#"{"tool":"fix/count","where":{"to":["bob"]}}"#,
        ],
    );
    assert!(created, "{text}");
    let proposed = daemon.quiet(LEGACY).ask(
        "colibri/propose-may",
        json!({ "text": "Echo the text. Then inform Bob, and read the pid." }),
    );
    let tools = proposed["result"]["tools"].as_array().unwrap();
    assert_eq!(
        (tools.len(), &tools[0]["tool"]),
        (1, &json!("fix/send_note")),
        "{proposed}"
    );
    let mut client = daemon.legacy(LEGACY);
    claim(&mut client, 1);
    free(&mut client, "fix__count", json!({ "to": "bob" }));
    let rule = held(
        &daemon,
        &mut client,
        "fix__count",
        json!({ "to": "eve" }),
        "deny",
    );
    assert!(
        rule.ends_with("not fix/count with these arguments"),
        "{rule}"
    );
    daemon.stop();
}

#[test]
fn a_label_about_no_tool_blocks_its_server_and_names_its_place() {
    let mut wrong = labels();
    wrong["flow"]["private"] = json!(["ecoh"]);
    let place = place(wrong);
    let daemon = place.start(&["--write"]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    let server = wait_for("the server to be known", || {
        let server = daemon.server("fix");
        (server["state"] == "blocked").then_some(server)
    });
    let reason = server["reason"].as_str().unwrap();
    let place_in_file =
        "servers.fix.flow.private[0]: \"ecoh\" is no tool of this server; did you mean \"echo\"?";
    assert!(
        reason.contains("external-mcp.json:1:") && reason.contains(place_in_file),
        "{reason}"
    );
    let refused = client.call("fix__echo", json!({}));
    assert!(text_of(&refused).contains("ecoh"), "{refused}");
    let rule = &refused["_meta"]["org.colibri/error"]["rule"];
    let in_file = "external-mcp.json:1: servers.fix.flow.private[0]";
    assert!(rule.as_str().unwrap().ends_with(in_file), "{rule}");
    daemon.stop();
}

#[test]
fn an_agents_entry_binds_each_of_its_instances() {
    let place = place(json!({}));
    let stays = "while :; do sleep 1; done";
    let coder = json!({ "command": "/bin/sh", "args": ["-c", stays, place.directory()], "stdin": "null",
        "events": "claude", "tools": { "fix": { "allow": ["*"] } }, "may": ["fix/count"] });
    let fix = place.fixture("fix", &[], labels());
    place.registry_text(
        &json!({ "servers": { "fix": fix }, "agents": { "coder": coder } }).to_string(),
    );
    let daemon = place.start(&["--write"]);
    let spawned = daemon
        .legacy(LEGACY)
        .ask("colibri/spawn-agent", json!({ "agent": "coder" }));
    let session = spawned["result"]["instance"]["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{spawned}"));
    let socket = place.path("doors").join(session).join("colibri.sock");
    for _ in 0..2 {
        let mut agent = Client::over(std::os::unix::net::UnixStream::connect(&socket).unwrap());
        agent.open(LEGACY);
        free(&mut agent, "fix__count", json!({}));
        let rule = held(&daemon, &mut agent, "fix__pid", json!({}), "deny");
        assert_eq!(
            rule,
            format!(
                "outside {}:1: agents.coder.may: it may change fix/count, not fix/pid",
                place.path("external-mcp.json").display()
            )
        );
        // A person's own command, of which agents have none.
        let made = agent.ask(
            "colibri/create-task",
            json!({ "title": "t", "may": ["*/*"] }),
        );
        assert_eq!(made["error"]["code"], -32601, "{made}");
    }
    daemon.stop();
}

//! Cost modes over the built programs: people of two uids and an agent, restarts, kills, days, and
//! a policy that is read again. What each rule says is shown beside the daemon, in
//! `colibri-mcpd/tests/inbound/cost.rs`.

use std::os::unix::net::UnixStream;

use colibri_tests::{Client, Daemon, LEGACY, Place, code_of, text_of, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// What `colibri_status` says of the one who asks, and the mode in force.
fn spending(client: &mut Client) -> (Value, String) {
    let mut status = client.call("colibri_status", json!({}))["structuredContent"].take();
    let mode = status["cost_mode"]
        .as_str()
        .unwrap_or_else(|| panic!("{status}"));
    let mode = mode.to_owned();
    (status["spending"].take(), mode)
}

fn spent(client: &mut Client) -> u64 {
    spending(client).0["spent_bytes"].as_u64().unwrap()
}

/// Whether a result of so many bytes of text comes whole.
fn comes_whole(client: &mut Client, bytes: usize) -> bool {
    let result = client.call("fix__huge", json!({ "bytes": bytes }));
    result["isError"] != true && text_of(&result).len() == bytes
}

fn set(client: &mut Client, mode: &str) -> Value {
    client.call("colibri_set_cost_mode", json!({ "mode": mode }))
}

fn store(place: &Place) -> rusqlite::Connection {
    let store = rusqlite::Connection::open(place.path("state/colibri.db")).unwrap();
    store
        .busy_timeout(std::time::Duration::from_secs(30))
        .unwrap();
    store
}

/// The uid of [`Place::stranger`].
fn stranger() -> u32 {
    let own = nix::unistd::geteuid();
    if own.is_root() { 54_321 } else { own.as_raw() }
}

#[test]
fn what_a_person_set_and_spent_outlasts_the_daemon_and_a_day_does_not() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&["--write"]);
    let mut client = daemon.legacy(LEGACY);
    assert!(comes_whole(&mut client, 100_000), "nobody has set a mode");
    let (said, mode) = spending(&mut client);
    assert_eq!(
        (&said["acts"], &said["left_bytes"], mode.as_str()),
        (&json!(false), &Value::Null, "smart")
    );
    assert_eq!(
        set(&mut client, "fast")["structuredContent"]["mode"],
        "fast"
    );
    assert!(!comes_whole(&mut client, 4_001) && comes_whole(&mut client, 3_000));
    let before = spent(&mut client);
    daemon.stop();

    // What the daemon's configuration says for all is farther away than what the person said.
    let mut daemon = place.start_in(
        &[("COLIBRI_COST_MODE", "max")],
        &["--write", "--external-call"],
    );
    let mut client = daemon.legacy(LEGACY);
    let (said, mode) = spending(&mut client);
    assert_eq!((&said["set_by"], mode.as_str()), (&json!("user"), "fast"));
    assert!(said["spent_bytes"].as_u64().unwrap() >= before, "{said}");
    assert_eq!(
        set(&mut client, "default")["structuredContent"]["mode"],
        "max"
    );
    assert!(comes_whole(&mut client, 300_000));
    assert_eq!(
        set(&mut client, "fast")["structuredContent"]["mode"],
        "fast"
    );
    // It is kept while the daemon runs, too.
    let kept = || {
        let kept =
            store(&place).query_row("SELECT bytes FROM cost", [], |row| row.get::<_, i64>(0));
        kept.unwrap().unsigned_abs()
    };
    wait_for("what was spent on the disk", || {
        (kept() > before + 300_000).then_some(())
    });
    daemon.signal(Signal::SIGKILL);
    daemon.wait();

    let daemon = place.start(&["--write"]);
    let mut client = daemon.legacy(LEGACY);
    assert!(
        spent(&mut client) > before + 300_000,
        "a kill gives nothing back that was on the disk"
    );
    daemon.stop();
    store(&place)
        .execute("UPDATE cost SET bytes = 500000, bytes_before = 0", [])
        .unwrap();

    let daemon = place.start(&["--write"]);
    let mut client = daemon.legacy(LEGACY);
    let refused = client.call("fix__count", json!({}));
    assert_eq!(code_of(&refused), Some("BUDGET_SPENT"), "{refused}");
    for part in [
        "colibri_set_cost_mode",
        "UTC, when the mode was chosen",
        "until 00:00 UTC",
    ] {
        assert!(text_of(&refused).contains(part), "{refused}");
    }
    let found = client.call("colibri_find_tools", json!({ "query": "count" }));
    assert!(
        found["isError"].is_null(),
        "what costs nothing is not locked: {found}"
    );
    let by_hand = place
        .colibri_mcp(&["call", "fix", "count"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[by_hand.stdout, by_hand.stderr].concat()).into_owned();
    assert!(
        !by_hand.status.success() && text.contains("BUDGET_SPENT"),
        "{text}"
    );
    let shown = place.colibri_mcp(&["status"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("nothing left"), "{shown}");
    // It says itself what to do, and that helps.
    assert_eq!(
        set(&mut client, "smart")["structuredContent"]["mode"],
        "smart"
    );
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    // A mode that is chosen acts on what comes after.
    assert_eq!(set(&mut client, "fast")["isError"], Value::Null);
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    daemon.stop();
    let daemon = place.start(&["--write"]);
    let mut client = daemon.legacy(LEGACY);
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    daemon.stop();
    store(&place)
        .execute("UPDATE cost SET day = day - 1", [])
        .unwrap();

    let daemon = place.start(&["--write"]);
    let mut client = daemon.legacy(LEGACY);
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    let (said, mode) = spending(&mut client);
    assert_eq!((&said["set_by"], mode.as_str()), (&json!("user"), "fast"));
    assert!(said["spent_bytes"].as_u64().unwrap() < 10_000, "{said}");
    daemon.stop();
}

#[test]
fn to_take_a_mode_back_locks_nobody_out_and_a_definition_is_read_on_a_spent_day() {
    let place = Place::new();
    let tool = json!({ "name": "t", "description": "d".repeat(6_000), "inputSchema": { "type": "object" } });
    let says = json!({ "capabilities": { "tools": {} }, "tools/list": { "tools": [tool] },
        "tools/call t": { "content": [{ "type": "text", "text": "x".repeat(600_000) }] } });
    place.registry(&json!({ "fix": place.library("fix", LEGACY, json!({}), &says) }));
    let daemon = place.start(&["--write", "--cost-mode", "fast"]);
    let mut client = daemon.legacy(LEGACY);
    set(&mut client, "max");
    let whole = client.call("fix__t", json!({}));
    assert_eq!(text_of(&whole).len(), 600_000);
    let told = set(&mut client, "default");
    assert!(
        text_of(&told).contains("before the mode was chosen at"),
        "{told}"
    );
    let (said, mode) = spending(&mut client);
    let (spent, before) = (&said["spent_bytes"], &said["before_bytes"]);
    assert!(
        before.as_u64() > Some(600_000) && spent.as_u64() >= before.as_u64() && mode == "fast",
        "{said}"
    );
    assert!(said["left_bytes"].as_u64() > Some(490_000), "{said}");
    assert_eq!(
        code_of(&client.call("fix__t", json!({}))),
        None,
        "not locked"
    );
    let shown = place.colibri_mcp(&["status"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let words: Vec<_> = shown.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("of them before the mode was chosen at"),
        "{shown}"
    );
    daemon.stop();
    let daemon = place.start(&["--write", "--cost-mode", "fast"]);
    let mut client = daemon.legacy(LEGACY);
    assert!(
        spending(&mut client).0["left_bytes"].as_u64() > Some(480_000),
        "the choice is kept"
    );
    daemon.stop();

    // Nothing is left, and what costs nothing is there whole: what is kept could not be read.
    let spend_all = "UPDATE cost SET bytes = 900000, bytes_before = 0";
    store(&place).execute(spend_all, []).unwrap();
    let daemon = place.start(&["--write", "--cost-mode", "fast"]);
    let mut client = daemon.legacy(LEGACY);
    assert_eq!(
        code_of(&client.call("fix__t", json!({}))),
        Some("BUDGET_SPENT")
    );
    let schema = client.call("colibri_tool_schema", json!({ "tool": "fix__t" }));
    assert!(text_of(&schema).contains(&"d".repeat(6_000)), "{schema}");
    daemon.stop();
}

#[test]
fn two_people_have_a_day_each_and_a_reload_changes_both() {
    let place = Place::of_fixture(&[], json!({}));
    place.open_to_group();
    let own = nix::unistd::geteuid().as_raw();
    let policy = |cost: Value| {
        let all = json!({ "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true });
        let mut theirs = all.clone();
        theirs["cost"] = cost;
        let mut users = json!({ own.to_string(): all });
        users[stranger().to_string()] = theirs;
        place.clients(&json!({ "users": users }).to_string());
    };
    policy(json!({ "mode": "fast" }));
    let daemon = place.start(&["--write"]);
    let mut person = daemon.legacy(LEGACY);
    let theirs = |bytes: usize| {
        let mut call = place.stranger(&[
            "call",
            "fix",
            "huge",
            "--args",
            &json!({ "bytes": bytes }).to_string(),
        ]);
        let output = call.output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let refused = text.contains("All of it is kept");
        assert!(output.status.success(), "{text}");
        !refused
    };
    assert!(theirs(3_000) && !theirs(5_000));
    let mut raise = place.stranger(&["call", "colibri", "colibri_set_cost_mode", "mode=max"]);
    let refused = raise.output().unwrap();
    let text = String::from_utf8_lossy(&[refused.stdout, refused.stderr].concat()).into_owned();
    assert!(
        !refused.status.success()
            && text.contains("POLICY_DENIED")
            && text.contains("cost mode fast"),
        "{text}"
    );
    if stranger() != own {
        assert!(
            comes_whole(&mut person, 100_000),
            "another's mode is none of theirs"
        );
    }
    let top = place
        .colibri_mcp(&["glasspane", "--servers", "--once"])
        .output()
        .unwrap();
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(
        top.contains("SPENT") && top.contains("left of cost mode fast"),
        "{top}"
    );

    policy(json!({ "mode": "smart" }));
    daemon.reload();
    assert!(theirs(5_000) && !theirs(17_000));
    policy(json!({ "mode": "cheap" }));
    let status = place.colibri_mcp(&["server", "reload"]).output().unwrap();
    let text = String::from_utf8_lossy(&[status.stdout, status.stderr].concat()).into_owned();
    assert!(
        !status.status.success() && text.contains("must be fast, smart or max"),
        "{text}"
    );
    assert!(
        theirs(5_000) && !theirs(17_000),
        "a bad file changes nothing"
    );
    daemon.stop();
}

fn spawn(place: &Place, daemon: &Daemon<'_>) -> Client {
    let mut person = daemon.legacy(LEGACY);
    let answer = person.ask("colibri/spawn-agent", json!({ "agent": "coder" }));
    let session = answer["result"]["instance"]["id"].as_str();
    let session = session.unwrap_or_else(|| panic!("{answer}"));
    let socket = place.path("doors").join(session).join("colibri.sock");
    let mut client = Client::over(UnixStream::connect(socket).unwrap());
    client.open(LEGACY);
    client
}

#[test]
fn an_agent_has_its_persons_mode_and_sets_none() {
    let place = Place::new();
    let stays = "while :; do sleep 1; done";
    let coder = json!({ "command": "/bin/sh", "args": ["-c", stays, place.directory()], "stdin": "null",
        "events": "claude", "tools": { "fix": { "allow": ["*"] } }, "max": 2 });
    let registry = json!({ "servers": { "fix": place.fixture("fix", &[], json!({})) }, "agents": { "coder": coder } });
    place.registry_text(&registry.to_string());
    let daemon = place.start(&["--write"]);
    let (mut agent, mut person) = (spawn(&place, &daemon), daemon.legacy(LEGACY));
    assert!(comes_whole(&mut agent, 10_000) && !comes_whole(&mut agent, 17_000));
    assert!(
        comes_whole(&mut person, 17_000),
        "of the person nothing is held back"
    );
    let before = spent(&mut person);
    let refused = agent.ask(
        "tools/call",
        json!({ "name": "colibri_set_cost_mode", "arguments": { "mode": "max" } }),
    );
    assert!(refused["error"].is_object(), "{refused}");
    assert_eq!(spending(&mut agent).1, "smart");
    assert!(comes_whole(&mut agent, 10_000));
    assert!(
        spent(&mut person) - before < 8_000,
        "an agent's bytes are not its person's"
    );

    set(&mut person, "fast");
    assert!(!comes_whole(&mut agent, 10_000) && comes_whole(&mut agent, 3_000));
    let mut last = Value::Null;
    let answered = (0..200).take_while(|_| {
        last = agent.call("fix__huge", json!({ "bytes": 3_900 }));
        code_of(&last) != Some("BUDGET_SPENT")
    });
    let answered = answered.count();
    assert!(
        (100..=130).contains(&answered),
        "{answered} of 4 kB in 500 kB: {last}"
    );
    assert!(text_of(&last).contains("colibri_finish_task"), "{last}");
    assert!(
        comes_whole(&mut spawn(&place, &daemon), 3_000),
        "another instance has its own"
    );
    let top = place
        .colibri_mcp(&["glasspane", "--servers", "--once"])
        .output()
        .unwrap();
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(
        // What follows is cut where the user's name is long.
        top.contains("NOTHING left") && top.contains("coder"),
        "{top}"
    );
    daemon.stop();
}

//! The ledger: its bytes are exactly those that clients sent and received, it survives what daemons
//! and disks do, and a person sees their own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;

use colibri_tests::http::{Http, meta};
use colibri_tests::{Client, Daemon, LEGACY, MODERN, Mounted, Place, wait_for};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The version that has batches.
const BATCHES: &str = "2025-03-26";

/// What is asked for costs, by tool: looking costs nothing.
struct Told {
    rows: Vec<Value>,
}

impl Told {
    fn of(daemon: &Daemon<'_>) -> Told {
        let mut answer = daemon.connect().ask("colibri/costs", json!({}));
        assert!(answer["result"]["unwritten"].is_null(), "{answer}");
        let rows: Vec<Value> = serde_json::from_value(answer["result"]["rows"].take()).unwrap();
        Told { rows }
    }

    fn sum(&self, figure: &str) -> u64 {
        self.rows
            .iter()
            .map(|row| row[figure].as_u64().unwrap())
            .sum()
    }

    /// Of one method, or one tool of a server.
    fn one(&self, server: &str, name: &str) -> &Value {
        let is = |row: &&Value| {
            row["server"] == server
                && (row["tool"] == name || row["tool"].is_null() && row["method"] == name)
        };
        let found = self.rows.iter().find(is);
        found.unwrap_or_else(|| panic!("{server} {name}: {:?}", self.rows))
    }
}

/// What a client sent and received: requests, and the answers to them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Sums {
    calls: u64,
    sent: u64,
    received: u64,
}

impl Sums {
    fn sends(&mut self, request: &str) {
        self.calls += 1;
        self.sent += request.len() as u64;
    }

    /// Whether there was an answer in this.
    fn receives(&mut self, text: &[u8]) -> bool {
        let text = text.trim_ascii_end();
        if text.starts_with(b"[") {
            let all: Vec<&RawValue> = serde_json::from_slice(text).unwrap();
            return all
                .iter()
                .filter(|one| self.receives(one.get().as_bytes()))
                .count()
                > 0;
        }
        let message: BTreeMap<String, &RawValue> = serde_json::from_slice(text).unwrap();
        let is_answer = !message.contains_key("method");
        self.received += if is_answer { text.len() as u64 } else { 0 };
        is_answer
    }

    /// Waits until the ledger has all of it.
    fn are_told(&self, daemon: &Daemon<'_>) -> Told {
        let told = wait_for("the ledger to have all calls", || {
            let told = Told::of(daemon);
            (told.sum("calls") >= self.calls).then_some(told)
        });
        let sums = Sums {
            calls: told.sum("calls"),
            sent: told.sum("bytes_in"),
            received: told.sum("bytes_out"),
        };
        assert_eq!(sums, *self, "{:#?}", told.rows);
        told
    }
}

/// A request; `id` is a text with what has to be escaped, so that no byte of it can be counted in
/// another form.
fn request(n: u64, method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc": "2.0",  "id":"é {n}","method":"{method}","params":{params}}}"#)
}

fn call(n: u64, tool: &str, arguments: Value) -> String {
    request(
        n,
        "tools/call",
        &json!({ "name": tool, "arguments": arguments }),
    )
}

fn initialize(version: &str) -> Value {
    json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "e2e", "version": "1" } })
}

/// Requests of all kinds that are answered one by one: good, refused, malformed, redirected, lists.
fn requests(version: &str) -> Vec<String> {
    let calls = [
        ("fix__echo", json!({ "text": "ü\u{1f426}\"\\" })),
        ("fix__huge", json!({ "bytes": 100_000 })),
        ("fix__no_such", json!({})),
        ("no such tool \u{202e}", json!({ "x": 1 })),
        ("colibri_status", json!({})),
        ("colibri_create_task", json!({ "title": "x" })),
        ("colibri_create_task", json!({ "nothing": 1 })),
        (
            "colibri_external_mcp_list_tools",
            json!({ "server": "fix" }),
        ),
        (
            "colibri_external_mcp_call_tool",
            json!({ "server": "fix", "tool": "echo", "arguments": { "a": 1 } }),
        ),
        ("colibri_external_mcp_call_tool", json!({ "server": "fix" })),
    ];
    let calls = calls.map(|(tool, arguments)| {
        (
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
    });
    let others = [
        ("tools/list", json!({})),
        ("tools/list", json!({})),
        ("tools/list", json!({ "cursor": "none of ours" })),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/read", json!({ "uri": "file:///no/such" })),
        ("prompts/get", json!({ "name": "none" })),
        ("completion/complete", json!({ "ref": 1 })),
        ("tools/call", json!({ "name": 7 })),
        ("no/such", json!({})),
        ("colibri/no-such", json!({})),
    ];
    let with_meta = |mut params: Value| {
        if version == MODERN {
            params["_meta"] = meta();
        }
        params
    };
    let all = calls.into_iter().chain(others).enumerate();
    all.map(|(n, (method, params))| request(n as u64, method, &with_meta(params)))
        .collect()
}

/// Sends requests one after the other, and reads until each is answered.
fn over_lines(client: &mut Client, sums: &mut Sums, requests: &[String]) {
    for request in requests {
        sums.sends(request);
        client.send(request);
        while !sums.receives(&client.read().unwrap()) {}
    }
}

fn over_http(
    http: &mut Http,
    sums: &mut Sums,
    fields: &[(&str, &str)],
    requests: &[String],
) -> Option<String> {
    for request in requests {
        sums.sends(request);
    }
    let body = match requests {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    http.post(fields, &body);
    let response = http.response();
    if response.is_stream() {
        for event in http.events() {
            sums.receives(event.data.as_bytes());
        }
    } else {
        sums.receives(&response.body);
    }
    response.field("mcp-session-id").map(str::to_owned)
}

#[test]
fn the_bytes_are_those_that_a_client_sent_and_received_over_lines() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut sums = Sums::default();
    for version in [LEGACY, MODERN] {
        let mut client = daemon.connect();
        if version != MODERN {
            over_lines(
                &mut client,
                &mut sums,
                &[request(0, "initialize", &initialize(version))],
            );
        }
        over_lines(&mut client, &mut sums, &requests(version));
    }
    let told = sums.are_told(&daemon);
    // Under the names of those who answered, whatever they were called by; no word of a client is a
    // name.
    let echo = told.one("fix", "echo");
    assert_eq!(
        (&echo["calls"], &echo["errors"]),
        (&json!(4), &json!(0)),
        "{echo}"
    );
    let none = told.one("colibri", "tools/call");
    assert_eq!(
        (&none["tool"], &none["errors"]),
        (&Value::Null, &none["calls"])
    );
    assert_eq!(told.one("colibri", "other")["calls"], 4);
    assert_eq!(told.one("colibri", "colibri_create_task")["errors"], 4);
    assert!(
        !told
            .rows
            .iter()
            .any(|row| row.to_string().contains("no such tool"))
    );
    // Lists are counted by the tools in them too.
    assert_eq!(echo["lists"], 4, "{echo}");
    let listed = told.sum("listed_bytes");
    let lists = told.one("colibri", "tools/list")["bytes_out"]
        .as_u64()
        .unwrap();
    assert!(
        listed > lists * 9 / 10 && listed < lists,
        "{listed} of {lists}"
    );
    daemon.stop();
}

#[test]
fn the_bytes_of_batches_and_of_cancelled_calls_are_those_that_passed() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let (mut client, mut sums) = (daemon.connect(), Sums::default());
    over_lines(
        &mut client,
        &mut sums,
        &[request(0, "initialize", &initialize(BATCHES))],
    );
    let batch = [
        call(1, "fix__echo", json!({ "text": "one" })),
        call(2, "fix__no_such", json!({})),
        request(3, "tools/list", &json!({})),
        call(4, "fix__wait", json!({ "until": "in a batch" })),
    ];
    batch.iter().for_each(|request| sums.sends(request));
    client.send(format!("[{}]", batch.join(" , ")));
    wait_for("the call", || place.received("fix", "in a batch").pop());
    client.send(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"é 4"}}"#,
    );
    while !sums.receives(&client.read().unwrap()) {}
    // One that is cancelled, and one whose client goes: requests came, no answers left.
    for (n, until) in [(5, "cancelled"), (6, "gone")] {
        let request = call(n, "fix__wait", json!({ "until": until }));
        sums.sends(&request);
        client.send(request);
        wait_for("the call", || place.received("fix", until).pop());
    }
    client.send(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"é 5"}}"#,
    );
    drop(client);
    let told = sums.are_told(&daemon);
    let waits = told.one("fix", "wait");
    let figures = ["calls", "errors", "bytes_out"].map(|figure| waits[figure].as_u64().unwrap());
    assert_eq!(figures, [3, 3, 0], "{waits}");
    place.release("in a batch");
    daemon.stop();
}

#[test]
fn the_bytes_are_those_that_a_client_sent_and_received_over_http() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let (mut http, mut sums) = (daemon.http(), Sums::default());
    for (n, (method, name, params)) in [
        (
            "tools/call",
            Some("fix__echo"),
            json!({ "name": "fix__echo", "arguments": { "text": "é" } }),
        ),
        (
            "tools/call",
            Some("fix__progress"),
            json!({ "name": "fix__progress", "arguments": { "n": 3 } }),
        ),
        ("tools/call", Some("none"), json!({ "name": "none" })),
        ("tools/list", None, json!({})),
        ("no/such", None, json!({})),
    ]
    .into_iter()
    .enumerate()
    {
        let mut params = params;
        params["_meta"] = meta();
        params["_meta"]["progressToken"] = 1.into();
        let mut fields = vec![("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)];
        fields.extend(name.map(|name| ("Mcp-Name", name)));
        over_http(
            &mut http,
            &mut sums,
            &fields,
            &[request(n as u64, method, &params)],
        );
    }
    let handshake = [request(0, "initialize", &initialize(BATCHES))];
    let session = over_http(&mut http, &mut sums, &[], &handshake).unwrap();
    let fields = [("Mcp-Session-Id", &*session)];
    http.post(
        &fields,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    );
    assert_eq!(http.response().status, 202);
    let batch = [
        call(1, "fix__echo", json!({ "text": "one" })),
        call(2, "fix__no_such", json!({})),
        request(3, "tools/list", &json!({})),
    ];
    over_http(&mut http, &mut sums, &fields, &batch);
    over_http(&mut http, &mut sums, &fields, &batch[..1]);
    let told = sums.are_told(&daemon);
    assert_eq!(told.one("fix", "echo")["calls"], 3);
    daemon.stop();
}

#[test]
fn tools_that_were_listed_and_never_called_are_named() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let listed = client.tools();
    client.call("fix__echo", json!({}));
    client.call("colibri_status", json!({}));
    let output = place
        .colibri_mcp(&["costs", "--unused", "--json"])
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let unused: Vec<(&str, &str)> = (told["rows"].as_array().unwrap().iter())
        .map(|row| {
            (
                row["server"].as_str().unwrap(),
                row["tool"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(unused.len(), listed.len() - 2, "{unused:?}");
    assert!(unused.contains(&("fix", "wait")) && unused.contains(&("colibri", "colibri_snapshot")));
    assert!(!unused.contains(&("fix", "echo")) && !unused.contains(&("colibri", "colibri_status")));
    let output = place
        .colibri_mcp(&["costs", "--by", "server,day"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("fix") && text.contains("of everybody"),
        "{text}"
    );
    for wrong in [&["--by", "week"][..], &["--since", "yesterday"]] {
        let output = place
            .colibri_mcp(&[&["costs"], wrong].concat())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
    }
    let answer = client.ask("colibri/costs", json!({ "by": ["day"], "unused": true }));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    daemon.stop();
}

#[test]
fn a_client_that_invents_names_makes_the_ledger_no_longer() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let (mut client, mut sums) = (daemon.connect(), Sums::default());
    over_lines(
        &mut client,
        &mut sums,
        &[request(0, "initialize", &initialize(LEGACY))],
    );
    let long = "x".repeat(2000);
    let invented: Vec<String> = (1..=1000)
        .flat_map(|n| {
            let arguments =
                json!({ "server": "fix", "tool": format!("none {n}"), "arguments": {} });
            [
                call(n, &format!("fix__{n}{long}"), json!({})),
                call(n, "colibri_external_mcp_call_tool", arguments),
                request(n, &format!("no/such{n}"), &json!({})),
                request(n, &format!("colibri/{n}"), &json!({})),
                request(
                    n,
                    "resources/read",
                    &json!({ "uri": format!("file:///{n}") }),
                ),
                request(n, "prompts/get", &json!({ "name": format!("p{n}") })),
            ]
        })
        .collect();
    over_lines(&mut client, &mut sums, &invented);
    let told = sums.are_told(&daemon);
    assert!(told.rows.len() < 10, "{:#?}", told.rows);
    daemon.stop();
}

/// A connection of a client that gives itself this name.
fn named(daemon: &Daemon<'_>, name: &str) -> Client {
    let mut client = daemon.connect();
    let info = json!({ "name": name, "version": "1.2" });
    client.ask(
        "initialize",
        json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info }),
    );
    client
}

#[test]
fn record_and_ledger_name_the_client_that_called() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    for (name, calls) in [("claude-code", 3), ("codex", 1)] {
        let mut client = named(&daemon, name);
        for _ in 0..calls {
            client.call("fix__echo", json!({}));
        }
    }
    // A modern client, which may be another in each request; a session over HTTP; and a hostile
    // name.
    let mut modern = daemon.connect();
    for name in ["gemini-cli", "goose"] {
        let mut meta = meta();
        meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": name });
        modern.ask(
            "tools/call",
            json!({ "name": "fix__echo", "arguments": {}, "_meta": meta }),
        );
    }
    let mut http = daemon.http();
    let session = http.open(LEGACY);
    http.call_in(&session, 1, "fix__echo", json!({}));
    http.response();
    named(
        &daemon,
        "evil\u{1b}[2J\r\n\u{202e}   exit  git  push  SUCCESS",
    )
    .call("fix__echo", json!({}));
    let records = place.records();
    let calls = records.iter().filter(|record| {
        record.is("enter") && record.rec["tool"] == "echo" && record.rec["continues"].is_null()
    });
    let clients: Vec<&str> = calls
        .map(|record| record.rec["client"]["name"].as_str().unwrap())
        .collect();
    let evil = "evil\\u{1b}[2J \\u{202e} exit git push SUCCESS";
    let claude = "claude-code";
    assert_eq!(
        clients,
        [
            claude,
            claude,
            claude,
            "codex",
            "gemini-cli",
            "goose",
            "e2e",
            evil
        ]
    );
    // The first record of a connection is its handshake.
    let first = records.iter().find(|record| record.is("enter")).unwrap();
    assert_eq!(
        (&first.rec["method"], &first.rec["client"]),
        (
            &json!("initialize"),
            &json!({ "name": claude, "version": "1.2" })
        )
    );
    let text = |args: &[&str]| {
        let output = place.colibri_mcp(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let state = place.path("state").display().to_string();
    let shown = text(&["trail", "--state-dir", &state, "show", "--client", "codex"]);
    assert!(
        shown.lines().count() >= 4 && shown.lines().all(|line| line.contains("  codex 1.2 ")),
        "{shown}"
    );
    let shown = text(&["trail", "--state-dir", &state, "show"]);
    assert!(!shown.contains(['\u{1b}', '\r', '\u{202e}']), "{shown}");
    let costs = text(&["costs", "--by", "client"]);
    let row = |name: &str| {
        costs
            .lines()
            .find(|line| line.starts_with(name))
            .map(|line| line.split_whitespace().nth(1))
    };
    // Four and two: the handshake is a call as well.
    assert_eq!(
        (row("claude-code"), row("codex")),
        (Some(Some("4")), Some(Some("2"))),
        "{costs}"
    );
    assert!(!costs.contains(['\u{1b}', '\r', '\u{202e}']), "{costs}");
    let panes = text(&["glasspane", "--servers", "--once"]);
    assert!(
        panes.contains(" codex ") || panes.contains(" evil"),
        "{panes}"
    );
    daemon.stop();
}

#[test]
fn a_client_that_names_itself_anew_in_each_connection_makes_the_ledger_no_longer() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    named(&daemon, "honest").call("fix__echo", json!({}));
    for number in 0..200 {
        named(&daemon, &format!("client {number}")).call("fix__echo", json!({}));
    }
    named(&daemon, "honest").call("fix__echo", json!({}));
    let answer = daemon
        .connect()
        .ask("colibri/costs", json!({ "by": ["client"] }));
    let rows = answer["result"]["rows"].as_array().unwrap();
    assert!(rows.len() <= 65, "{}", rows.len());
    let calls = |name: Option<&str>| {
        let row = rows.iter().find(|row| row["client"].as_str() == name);
        row.map(|row| row["calls"].as_u64().unwrap())
    };
    assert_eq!(calls(Some("honest")), Some(4));
    assert_eq!(
        calls(None),
        Some(2 * (200 - 63)),
        "they are counted, without a name"
    );
    daemon.stop();
}

#[test]
fn looking_is_no_call() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.call("fix__echo", json!({}));
    let before = place.records().len();
    let mut watcher = daemon.connect();
    for _ in 0..100 {
        for method in [
            "colibri/overview",
            "colibri/agents",
            "colibri/servers",
            "colibri/costs",
        ] {
            let answer = watcher.ask(method, json!({}));
            assert!(answer["error"].is_null(), "{answer}");
        }
    }
    // One that does not work is a look as well, and counted as one that failed.
    watcher.ask("colibri/agent-events", json!({ "id": "none", "from": 1 }));
    drop(watcher);
    let looked = wait_for("the end of the looks", || {
        let records = place.records();
        let is_end = |record: &&colibri_tests::Record| record.rec["event"] == "look-ended";
        records
            .iter()
            .any(|record| is_end(&record))
            .then_some(records)
    });
    let looked: Vec<&Value> = looked[before..].iter().map(|record| &record.rec).collect();
    let events: Vec<&Value> = looked.iter().map(|record| &record["event"]).collect();
    assert_eq!(events, ["look", "look-ended"], "{looked:?}");
    assert_eq!(looked[0]["details"]["method"], "colibri/overview");
    let details = &looked[1]["details"];
    assert_eq!(
        (&details["looks"], &details["failed"]),
        (&json!(401), &json!(1)),
        "{details}"
    );
    let costs = Told::of(&daemon);
    assert!(
        costs
            .rows
            .iter()
            .all(|row| !row["method"].as_str().unwrap().starts_with("colibri/"))
    );
    assert_eq!(costs.sum("calls"), 2, "handshake and call");
    client.call("fix__echo", json!({}));
    place.assert_trail_is_sound();
    daemon.stop();
}

#[test]
fn what_a_killed_daemon_had_written_is_kept_and_what_one_that_ends_has_counted() {
    let place = Place::of_fixture(&[], json!({}));
    let count = |daemon: &Daemon<'_>, calls: u64| {
        let mut client = daemon.legacy(LEGACY);
        for _ in 0..calls {
            client.call("fix__echo", json!({}));
        }
    };
    let echoes = |daemon: &Daemon<'_>| {
        Told::of(daemon).one("fix", "echo")["calls"]
            .as_u64()
            .unwrap()
    };
    let daemon = place.start(&[]);
    count(&daemon, 3);
    // Who asks has written what was counted.
    assert_eq!(echoes(&daemon), 3);
    count(&daemon, 2);
    daemon.kill();
    let daemon = place.start(&[]);
    let kept = echoes(&daemon);
    assert!(
        (3..=5).contains(&kept),
        "{kept}: what is lost is at most the last interval"
    );
    count(&daemon, 4);
    daemon.stop();
    let daemon = place.start(&[]);
    assert_eq!(echoes(&daemon), kept + 4, "one that ends loses nothing");
    daemon.stop();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_person_sees_their_own_costs_alone() {
    let place = Place::of_fixture(&[], json!({}));
    place.open_to_group();
    let daemon = place.start(&[]);
    daemon.legacy(LEGACY).call("fix__echo", json!({}));
    let theirs = |args: &[&str]| -> Value {
        let output = place
            .stranger(&[&["--json", "costs"], args].concat())
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    };
    assert_eq!(theirs(&[])["everybody"], false);
    let output = place.stranger(&["status"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for by in [
        "tool",
        "server",
        "agent",
        "client",
        "model",
        "task",
        "person",
        "day",
        "person,tool",
    ] {
        let told = theirs(&["--by", by]);
        assert!(!told.to_string().contains("fix"), "{told}");
        for row in told["rows"].as_array().unwrap() {
            assert!(row["uid"].is_null() || row["uid"] == 54_321, "{told}");
        }
    }
    // Nobody is asked for by name.
    let all = daemon
        .connect()
        .ask("colibri/costs", json!({ "uid": 54_321 }));
    assert_eq!(all["error"]["code"], -32602, "{all}");
    let all = daemon
        .connect()
        .ask("colibri/costs", json!({ "by": ["person"] }));
    let uids: Vec<&Value> = all["result"]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["uid"])
        .collect();
    assert!(
        uids.contains(&&json!(0)) && uids.contains(&&json!(54_321)),
        "{all}"
    );
    daemon.stop();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_full_disk_stops_no_call_and_loses_no_count() {
    let place = Place::of_fixture(&[], json!({}));
    let state = place.path("state");
    // The trail has room, the database has none: without a trail nothing would be called.
    let full = Mounted::on(&state, "size=1m,mode=0700");
    let _trail = Mounted::on(&place.trail_directory(), "size=8m,mode=0750");
    let daemon = place.start(&[]);
    let (mut client, mut sums) = (daemon.connect(), Sums::default());
    // The server is seen, and pinned, while there is room.
    let begin = [
        request(0, "initialize", &initialize(LEGACY)),
        call(1, "fix__echo", json!({})),
    ];
    over_lines(&mut client, &mut sums, &begin);
    sums.are_told(&daemon);
    let ballast = full.0.join("ballast");
    let mut file = File::create(&ballast).unwrap();
    while file.write_all(&[b'x'; 512]).is_ok() {}
    let calls: Vec<String> = (1..50)
        .map(|n| call(n, "fix__echo", json!({ "n": n })))
        .collect();
    let answer = wait_for("the database to be full", || {
        over_lines(&mut client, &mut sums, &calls);
        let answer = daemon.connect().ask("colibri/costs", json!({}));
        (!answer["result"]["unwritten"].is_null()).then_some(answer)
    });
    let why = answer["result"]["unwritten"].as_str().unwrap();
    assert!(why.contains("full"), "{why}");
    drop(file);
    fs::remove_file(ballast).unwrap();
    let told = sums.are_told(&daemon);
    assert!(told.one("fix", "echo")["calls"].as_u64().unwrap() >= 49);
    daemon.stop();
}

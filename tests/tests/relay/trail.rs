//! The trail against real processes: nothing gets past it, nothing happens that it cannot record,
//! and what a killed daemon leaves of it verifies.
//!
//! What is done to its bytes afterwards is `trail/campaign.rs` in the daemon's own tests.

#![cfg_attr(
    not(target_os = "linux"),
    allow(
        dead_code,
        unused_imports,
        reason = "mounts, and paths of an installation, are changed on Linux alone"
    )
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use colibri_tests::{
    Client, Daemon, Era, LEGACY, MODERN, Place, Record, code_of, text_of, wait_for,
};
use serde_json::{Value, json};

/// A fixture server whose calls are recorded in full, and which looks at the trail whenever it
/// receives something.
fn watched(place: &Place, name: &str, args: &[&str], mut more: Value) -> Value {
    let trail = place.trail_directory();
    let mut all = vec!["--trail", trail.to_str().unwrap()];
    all.extend(args);
    more["record"] = json!("full");
    place.fixture(name, &all, more)
}

/// A place with one such server, `fix`.
fn place() -> Place {
    let place = Place::new();
    place.registry(&json!({ "fix": watched(&place, "fix", &[], json!({})) }));
    place
}

/// Writes a file that the daemon believes, and returns its path.
fn trusted(place: &Place, name: &str, content: &Value) -> PathBuf {
    let path = place.path(name);
    fs::write(&path, content.to_string()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// How a record ends a call, or an attempt, in one line.
fn ending(record: &Record) -> String {
    let text = |key: &str| record.rec[key].as_str().unwrap_or_default().to_owned();
    let ending = format!(
        "{} {}:{} {}",
        text("result"),
        text("integration_id"),
        text("operation"),
        text("error_code")
    );
    ending.trim_end().to_owned()
}

/// The records that follow the first `before`, once as many calls have ended as have begun. Each
/// end must be that of a call that began there, and each beginning must have its one end; a
/// beginning that goes on in another one has it there.
fn calls_since(place: &Place, before: usize) -> Vec<String> {
    let new = wait_for("every call's end", || {
        let new = place.records().split_off(before);
        let count = |kind: &str| new.iter().filter(|record| record.is(kind)).count();
        let continued = new
            .iter()
            .filter(|record| record.rec["continues"].is_u64())
            .count();
        (count("enter") == count("exit") + continued).then_some(new)
    });
    let mut open = BTreeMap::new();
    let mut endings = Vec::new();
    for record in &new {
        match record.rec["kind"].as_str().unwrap() {
            "enter" => {
                if let Some(n) = record.rec["continues"].as_u64() {
                    open.remove(&n).expect("what goes on has begun");
                }
                open.insert(record.n(), ());
            }
            "retry" => {
                assert!(
                    open.contains_key(&record.rec["enter"].as_u64().unwrap()),
                    "{record:?}"
                );
                endings.push(ending(record));
            }
            "exit" => {
                open.remove(&record.rec["enter"].as_u64().unwrap())
                    .expect("what ends has begun");
                endings.push(ending(record));
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{new:?}");
    endings
}

/// Does something and returns how the calls ended that the trail holds of it.
fn recorded(place: &Place, work: impl FnOnce()) -> Vec<String> {
    let before = place.records().len();
    work();
    calls_since(place, before)
}

// No way around it.

/// The names in the daemon's own table of methods, so that a method that comes later is not
/// forgotten here.
fn methods() -> Vec<&'static str> {
    let source = include_str!("../../../crates/colibri-protocol/src/method.rs");
    let rows = source.split("facts(").map(str::trim_start);
    let names: Vec<_> = rows
        .filter_map(|row| Some(row.strip_prefix('"')?.split_once('"')?.0))
        .collect();
    let said = source
        .split_once("ALL: [Method; ")
        .and_then(|(_, rest)| rest.split_once(']'));
    assert_eq!(
        said.unwrap().0,
        names.len().to_string(),
        "the table is not as this test reads it: {names:?}"
    );
    names
}

/// The operator's methods, from the sources that answer them, with names of notifications among
/// them: no methods, those.
fn operator_methods() -> Vec<&'static str> {
    let sources = [
        include_str!("../../../colibri-mcpd/src/ops/agents.rs"),
        include_str!("../../../colibri-mcpd/src/ops/costs.rs"),
        include_str!("../../../colibri-mcpd/src/ops/operator.rs"),
        include_str!("../../../colibri-mcpd/src/ops/overview.rs"),
        include_str!("../../../colibri-mcpd/src/ops/servers.rs"),
        include_str!("../../../colibri-mcpd/src/ops/watch.rs"),
    ];
    let texts = sources.into_iter().flat_map(|source| source.split('"'));
    let mut names: Vec<_> = texts.filter(|text| text.starts_with("colibri/")).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| *name != "colibri/" && !name.ends_with('\\'));
    assert!(
        names.contains(&"colibri/approve") && names.len() >= 4,
        "{names:?}"
    );
    names
}

/// Methods that only look at the daemon's state.
const LOOKS: [&str; 4] = [
    "colibri/agents",
    "colibri/costs",
    "colibri/overview",
    "colibri/servers",
];

/// Parameters with which a method does something where it exists.
fn params_of(method: &str) -> Value {
    match method {
        "initialize" => {
            json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": { "name": "e2e" } })
        }
        "tools/call" => json!({ "name": "fix__count", "arguments": { "mark": "every method" } }),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            json!({ "uri": "file:///x" })
        }
        "prompts/get" => json!({ "name": "fix__prompt" }),
        "completion/complete" => {
            json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "a", "value": "b" } })
        }
        "logging/setLevel" => json!({ "level": "info" }),
        "subscriptions/listen" => json!({ "notifications": { "toolsListChanged": true } }),
        "colibri/watch" => json!({ "topic": "notices" }),
        _ => json!({}),
    }
}

#[test]
fn every_method_of_both_eras_leaves_its_records() {
    let place = place();
    let daemon = place.start(&["--write"]);
    let mut answered = 0;
    let mut all = methods();
    all.extend(operator_methods());
    all.extend([
        "no/such",
        "tasks/get",
        "colibri/no-such",
        "notifications/no-notification",
        "",
    ]);
    for method in all {
        for era in [Era::Legacy, Era::Modern] {
            let mut client = match (era, method) {
                (Era::Modern, _) => daemon.modern(),
                (Era::Legacy, "initialize") => daemon.connect(),
                (Era::Legacy, _) => daemon.legacy(LEGACY),
            };
            let before = place.records().len();
            let id = client.request(method, params_of(method));
            let streams = match (era, method) {
                (Era::Modern, "subscriptions/listen") => {
                    Some("notifications/subscriptions/acknowledged")
                }
                // Whoever runs a daemon without a client policy is its operator.
                (_, "colibri/watch") => Some("colibri/watching"),
                _ => None,
            };
            if let Some(begun) = streams {
                client.notification(begun);
                client.notify("notifications/cancelled", json!({ "requestId": id }));
            } else {
                let answer = client.answer(id);
                answered += usize::from(answer.get("result").is_some());
            }
            let endings = calls_since(&place, before);
            let enters: Vec<Record> = place.records().split_off(before);
            if LOOKS.contains(&method) {
                let look = enters.iter().find(|record| record.rec["event"] == "look");
                assert_eq!(
                    look.map(|look| &look.rec["details"]["method"]),
                    Some(&json!(method))
                );
                assert_eq!(endings.len(), 0, "{method}: {endings:?}");
                continue;
            }
            let enters: Vec<_> = enters.iter().filter(|record| record.is("enter")).collect();
            let first = enters
                .first()
                .unwrap_or_else(|| panic!("{method} left no record"));
            assert_eq!(first.rec["method"], method, "{endings:?}");
            assert_eq!(endings.len(), 1, "{method}: {endings:?}");
        }
    }
    assert!(answered >= 8, "only {answered} methods did something");
    assert_eq!(place.assert_entered("fix"), 2);
    daemon.stop();
    place.assert_trail_is_sound();
}

/// A place with servers and rules for everything that can become of a call, and its daemon's flags.
fn busy_place() -> Place {
    let place = Place::new();
    let definitions = json!([
        { "name": "strict", "inputSchema": { "type": "object", "properties": { "n": { "type": "integer" } } } },
        { "name": "count", "inputSchema": { "type": "object" } },
        { "name": "other", "inputSchema": { "type": "object" } },
    ]);
    place.defines("strict", "definitions", &definitions.to_string());
    let contract = json!({ "tools": {
        "count": { "reason": "n is small", "when": { "properties": {
            "n": { "maximum": 9 }, "mark": { "type": "string" } } } },
        "strict": { "allow": "its schema is strict enough" },
    } });
    let contract = trusted(&place, "contract.json", &contract);
    let own = nix::unistd::geteuid().to_string();
    let rights = json!({ "gates": ["write", "external-call"], "servers": { "*": ["*"] },
        "deny": { "fix": ["forbidden", "fixture/forbidden"] }, "operator": true, "self_approve": true });
    trusted(&place, "clients.json", &json!({ "users": { own: rights } }));
    // Fails once, then serves.
    let mut shy = watched(&place, "shy", &[], json!({}));
    let failed = place.path("failed-once");
    let script = format!(
        "[ -e {0} ] || {{ : >{0}; exit 1; }}; exec \"$0\" \"$@\"",
        failed.display()
    );
    let mut args = vec![json!("-c"), json!(script), shy["command"].clone()];
    args.extend(shy["args"].as_array().unwrap().iter().cloned());
    (shy["command"], shy["args"]) = (json!("/bin/sh"), json!(args));
    let tools = json!({ "deny": ["die"], "confirm": ["pid"], "idempotent": ["exit"] });
    place.registry(&json!({
        "fix": watched(&place, "fix", &["--tool", "forbidden"],
            json!({ "tools": tools, "methods": ["fixture/method", "fixture/unknown", "fixture/forbidden"] })),
        "modern": watched(&place, "modern", &["--speak", MODERN], json!({})),
        "slow": watched(&place, "slow", &[], json!({ "timeout_ms": 300 })),
        "small": watched(&place, "small", &[], json!({ "result_limit": 1000 })),
        "strict": watched(&place, "strict", &[], json!({ "contract": contract })),
        "shy": shy,
    }));
    place
}

#[test]
fn every_way_a_call_can_go_leaves_its_records() {
    let place = busy_place();
    let daemon = place.start(&["--write"]);
    // Servers are started for the list's sake; one of them not at once.
    let endings = recorded(&place, || drop(daemon.modern().tools()));
    assert_eq!(endings, ["SUCCESS colibri:tools/list"]);
    let shy = recorded(&place, || {
        wait_for("the shy server", || {
            let call = json!({ "server": "shy", "tool": "count", "arguments": { "mark": "shy" } });
            let result = daemon.modern().call("colibri_external_mcp_call_tool", call);
            (result["isError"] != true).then_some(())
        });
    });
    assert_eq!(shy.last().unwrap(), "SUCCESS shy:count", "{shy:?}");

    let expect = |what: &str, wanted: &[&str], work: &mut dyn FnMut()| {
        let endings = recorded(&place, work);
        assert_eq!(endings, wanted, "{what}");
    };
    let mut legacy = daemon.legacy(LEGACY);
    let mut modern = daemon.modern();

    // What Colibri answers itself.
    let own = modern
        .tools()
        .into_iter()
        .filter(|name| name.starts_with("colibri_"));
    let own: Vec<String> = own.collect();
    assert!(own.len() >= 10, "{own:?}");
    for tool in own {
        for client in [&mut legacy, &mut modern] {
            let endings = recorded(&place, || drop(client.call(&tool, json!({}))));
            assert!(
                endings.len() == 1 && endings[0].contains(&format!(" colibri:{tool}")),
                "{tool}: {endings:?}"
            );
        }
    }

    // What servers answer, for clients and servers of both eras.
    for (n, server) in ["fix", "modern"].into_iter().enumerate() {
        for client in [&mut legacy, &mut modern] {
            let (tool, mark) = (format!("{server}__count"), format!("{n} {:?}", client.era));
            let wanted = format!("SUCCESS {server}:count");
            expect("a call", &[&wanted], &mut || {
                drop(client.call(&tool, json!({ "mark": mark })))
            });
            let call = json!({ "server": server, "tool": "count", "arguments": { "mark": mark, "general": true } });
            expect("a general call", &[&wanted], &mut || {
                drop(client.call("colibri_external_mcp_call_tool", call.clone()));
            });
        }
    }
    // Methods that are not MCP's, and that the entry lists.
    for client in [&mut legacy, &mut modern] {
        let mark = format!("method {:?}", client.era);
        expect("a method", &["SUCCESS fix:fixture/method"], &mut || {
            client.ask("fixture/method", json!({ "mark": mark }));
        });
        expect(
            "a method unknown to the server",
            &["FAIL fix:fixture/unknown -32601"],
            &mut || {
                client.ask("fixture/unknown", json!({ "mark": mark }));
            },
        );
        expect(
            "a method that is forbidden",
            &["FAIL fix:fixture/forbidden POLICY_DENIED"],
            &mut || {
                client.ask("fixture/forbidden", json!({ "mark": mark }));
            },
        );
        expect(
            "a method that is not listed",
            &["FAIL colibri:fixture/other -32601"],
            &mut || {
                client.ask("fixture/other", json!({ "mark": mark }));
            },
        );
    }
    assert_eq!(place.received("fix", "\"fixture/").len(), 4);
    let mut old = daemon.quiet("2025-03-26");
    expect(
        "a batch",
        &[
            "SUCCESS colibri:ping",
            "FAIL colibri:no/such -32601",
            "SUCCESS fix:count",
        ],
        &mut || {
            old.send(concat!(
                r#"[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","id":"c","method":"no/such"},"#,
                r#"{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"fix__count","#,
                r#""arguments":{"mark":"batch"}}},{"jsonrpc":"2.0","method":"notifications/whatever"}]"#
            ));
            assert_eq!(old.message().as_array().unwrap().len(), 3);
        },
    );
    expect("progress", &["SUCCESS fix:progress"], &mut || {
        let params = json!({ "name": "fix__progress", "arguments": { "n": 3, "mark": "progress" },
            "_meta": { "progressToken": "t" } });
        legacy.ask("tools/call", params);
    });

    // Calls that end otherwise.
    expect(
        "an error of the tool's",
        &["FAIL fix:frame TOOL_ERROR"],
        &mut || {
            place.frame(
                "error",
                br#"{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"isError":true}}"#,
            );
            legacy.call("fix__frame", json!({ "case": "error" }));
        },
    );
    expect(
        "a cancelled call",
        &["FAIL fix:wait CANCELLED"],
        &mut || {
            let id = legacy.request_tool(
                "fix__wait",
                json!({ "until": "never", "mark": "cancelled" }),
            );
            wait_for("the call", || place.received("fix", "\"cancelled\"").pop());
            legacy.notify("notifications/cancelled", json!({ "requestId": id }));
        },
    );
    expect(
        "a call that takes too long",
        &["FAIL slow:never TIMEOUT_CALL"],
        &mut || {
            legacy.call("slow__never", json!({ "mark": "late" }));
        },
    );
    expect(
        "a result that is too large",
        &["SUCCESS small:huge"],
        &mut || {
            legacy.call("small__huge", json!({ "bytes": 2000 }));
        },
    );
    expect(
        "a client that leaves",
        &["SUCCESS colibri:initialize", "FAIL fix:wait CANCELLED"],
        &mut || {
            let mut client = daemon.legacy(LEGACY);
            client.request_tool("fix__wait", json!({ "until": "never", "mark": "left" }));
            wait_for("the call", || place.received("fix", "\"left\"").pop());
        },
    );
    let lost = "fix:exit SERVER_DIED";
    let (again, end) = (format!("RETRY {lost}"), format!("FAIL {lost}"));
    let wanted = [&*again, &again, &again, &end];
    expect("a call that is tried again", &wanted, &mut || {
        legacy.call("fix__exit", json!({ "mark": "again" }));
    });
    assert_eq!(place.received("fix", "\"again\"").len(), 4);

    // Refusals, by everything that can refuse; none of them reaches the server.
    let sent = place.assert_entered("fix");
    expect(
        "a closed gate",
        &["SUCCESS colibri:initialize", "FAIL fix:count GATE_CLOSED"],
        &mut || {
            let mut narrow = daemon.connect();
            narrow.send(r#"{"colibri":1,"narrow":["external"]}"#);
            narrow.open(LEGACY);
            narrow.call("fix__count", json!({ "mark": "narrow" }));
        },
    );
    expect(
        "a rule of clients.json",
        &["FAIL fix:forbidden POLICY_DENIED"],
        &mut || {
            legacy.call("fix__forbidden", json!({ "mark": "client policy" }));
        },
    );
    expect(
        "a rule of the entry",
        &["FAIL fix:die POLICY_DENIED"],
        &mut || {
            legacy.call("fix__die", json!({ "mark": "rule" }));
        },
    );
    expect(
        "a contract",
        &["FAIL strict:count CONTRACT_DENIED"],
        &mut || {
            legacy.call("strict__count", json!({ "n": 10, "mark": "contract" }));
        },
    );
    expect(
        "a schema",
        &["FAIL strict:strict SCHEMA_INVALID"],
        &mut || {
            legacy.call("strict__strict", json!({ "n": "none" }));
        },
    );
    expect(
        "a contract that names other tools",
        &["FAIL strict:other CONTRACT_DENIED"],
        &mut || {
            legacy.call("strict__other", json!({ "mark": "contract" }));
        },
    );
    // The server that ended so often is started again once it need not back off any more.
    wait_for("the server", || {
        let answer = legacy.call("fix__count", json!({ "mark": "ready" }));
        code_of(&answer).is_none().then_some(())
    });
    assert_eq!(
        place.assert_entered("fix"),
        sent + 1,
        "the call that found it ready"
    );
    let sent = sent + 1;
    for (what, decision, ends) in [
        ("an approval", Some(true), "SUCCESS fix:pid"),
        ("a denial", Some(false), "FAIL fix:pid APPROVAL_DENIED"),
        (
            "a call that is cancelled while it waits",
            None,
            "FAIL fix:pid CANCELLED",
        ),
    ] {
        let endings = recorded(&place, || {
            let id = legacy.request_tool("fix__pid", json!({ "mark": what }));
            let waiting = wait_for("the question", || {
                let waiting = modern.ask("colibri/approvals", json!({}));
                waiting["result"]["approvals"][0]["id"]
                    .as_str()
                    .map(str::to_owned)
            });
            match decision {
                None => legacy.notify("notifications/cancelled", json!({ "requestId": id })),
                Some(approve) => {
                    let method = if approve {
                        "colibri/approve"
                    } else {
                        "colibri/deny"
                    };
                    let decided = modern.ask(method, json!({ "id": waiting }));
                    assert!(decided.get("result").is_some(), "{decided}");
                    legacy.answer(id);
                }
            }
        });
        assert!(endings.contains(&ends.to_owned()), "{what}: {endings:?}");
    }
    let received = place.received("fix", "\"tools/call\"");
    let refused = [
        "narrow",
        "client policy",
        "rule",
        "a denial",
        "a call that is cancelled while it waits",
    ];
    for mark in refused {
        assert!(
            !received
                .iter()
                .any(|line| line.contains(&format!("{mark:?}"))),
            "{mark} reached the server"
        );
    }
    assert_eq!(place.assert_entered("fix"), sent + 1, "the approved call");

    // What is wrong in itself, and still can be answered.
    for (params, wanted) in [
        (json!({}), "FAIL colibri:tools/call -32602"),
        (json!({ "name": 7 }), "FAIL colibri:tools/call -32602"),
        (
            json!({ "name": "fix__count", "arguments": [] }),
            "FAIL colibri:tools/call -32602",
        ),
        (
            json!({ "name": "fix__no_such" }),
            "FAIL colibri:fix__no_such -32602",
        ),
        (
            json!({ "name": "colibri_external_mcp_call_tool", "arguments": { "server": "fix" } }),
            "FAIL colibri:colibri_external_mcp_call_tool TOOL_ERROR",
        ),
    ] {
        expect(&params.to_string(), &[wanted], &mut || {
            drop(legacy.ask("tools/call", params.clone()))
        });
    }
    expect(
        "a bad cursor",
        &["FAIL colibri:tools/list -32602"],
        &mut || {
            legacy.ask("tools/list", json!({ "cursor": "no cursor" }));
        },
    );
    // What is no request, or none that may be made now, asks nobody for anything: it has an answer
    // and no record.
    expect("what is no request", &[], &mut || {
        let waits = r#"{"jsonrpc":"2.0","id":7,"method":7}"#;
        for line in [
            "no JSON",
            "{}",
            waits,
            r#"{"jsonrpc":"2.0","id":8,"id":9,"method":"ping"}"#,
        ] {
            legacy.send(line);
            assert!(legacy.message()["error"].is_object());
        }
        legacy.notify("notifications/cancelled", json!({ "requestId": "none" }));
        legacy.notify("notifications/whatever", json!({ "mark": "notification" }));
        legacy.send(r#"{"jsonrpc":"2.0","id":"never asked","result":{}}"#);
    });
    assert_eq!(place.assert_entered("fix"), sent + 1);

    let servers = ["fix", "modern", "slow", "small", "strict", "shy"];
    for server in servers {
        assert!(
            place.assert_entered(server) > 0 || server == "strict",
            "{server} was never called"
        );
        // Beside calls a server hears only what the daemon itself has to say, and cancellations of
        // calls.
        for (_, kind, line) in place.record(server) {
            let message: Value = serde_json::from_slice(&line).unwrap_or_default();
            let method = message["method"].as_str().unwrap_or_default();
            let own = [
                "initialize",
                "server/discover",
                "notifications/initialized",
                "tools/list",
                "notifications/cancelled",
                "subscriptions/listen",
            ];
            let known = own.contains(&method)
                || ["tools/call", "fixture/method", "fixture/unknown"].contains(&method);
            assert!(kind != "line" || known, "{server} received {message}");
        }
    }
    drop((legacy, modern, old));
    daemon.stop();
    place.assert_trail_is_sound();
}

#[test]
fn the_first_call_of_a_server_never_seen_is_entered_under_its_name() {
    for general in [false, true] {
        let place = Place::new();
        let tools = json!({ "deny": ["pid"] });
        place.registry(&json!({ "fix": watched(&place, "fix", &[], json!({ "tools": tools })) }));
        let daemon = place.start(&[]);
        let mut client = daemon.modern();
        let mut call = |tool: &str, mark: &str| {
            let arguments = json!({ "mark": mark });
            if general {
                let call = json!({ "server": "fix", "tool": tool, "arguments": arguments });
                client.call("colibri_external_mcp_call_tool", call)
            } else {
                client.call(&format!("fix__{tool}"), arguments)
            }
        };
        let endings = recorded(&place, || {
            let denied = call("pid", "first");
            assert_eq!(code_of(&denied), Some("POLICY_DENIED"), "{denied}");
        });
        assert_eq!(endings, ["FAIL fix:pid POLICY_DENIED"]);
        assert_eq!(place.assert_entered("fix"), 0);
        daemon.stop();
        // Once more on another state, where the first call may be made.
        fs::remove_dir_all(place.path("state")).unwrap();
        let daemon = place.start(&[]);
        client = daemon.modern();
        let mut call = |tool: &str, mark: &str| {
            let arguments = json!({ "mark": mark });
            if general {
                let call = json!({ "server": "fix", "tool": tool, "arguments": arguments });
                client.call("colibri_external_mcp_call_tool", call)
            } else {
                client.call(&format!("fix__{tool}"), arguments)
            }
        };
        let endings = recorded(&place, || {
            assert_eq!(text_of(&call("count", "second")), "counted")
        });
        assert_eq!(endings, ["SUCCESS fix:count"]);
        assert_eq!(place.assert_entered("fix"), 1);
        daemon.stop();
        place.assert_trail_is_sound();
    }
}

// What cannot be recorded does not happen.

#[test]
fn the_daemon_tells_its_own_state_although_nothing_can_be_recorded() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&["--write"]);
    let mut client = daemon.quiet(LEGACY);
    fs::remove_dir_all(place.trail_directory()).unwrap();
    for (tool, part) in [
        ("colibri_status", "uptime_s"),
        ("colibri_external_mcp_servers", "fix"),
    ] {
        let result = client.call(tool, json!({}));
        assert!(
            result.to_string().contains(part) && result["isError"] != true,
            "{result}"
        );
    }
    for tool in ["fix__count", "colibri_snapshot", "colibri_list_tasks"] {
        let answer = client.ask("tools/call", json!({ "name": tool, "arguments": {} }));
        assert_eq!(
            code_of(&answer),
            Some("TRAIL_UNAVAILABLE"),
            "{tool}: {answer}"
        );
    }
    let output = place.colibri_mcp(&["status"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::create_dir(place.trail_directory()).unwrap();
    client.call("colibri_list_tasks", json!({}));
    daemon.stop();
}

/// Files of the state directory, cut off as a power failure may leave them: the daemon starts, or
/// says what to do.
#[test]
fn what_a_power_failure_can_leave_starts_or_says_what_to_do() {
    let place = Place::new();
    let servers = json!({ "fix": place.fixture("fix", &[], json!({ "result_limit": 1000 })) });
    let said = r#"echo '{"type":"turn.started"}'"#;
    let agents = json!({ "sh": { "command": "/bin/sh", "args": ["-c", said], "events": "codex" } });
    place.registry_text(&json!({ "servers": servers, "agents": agents }).to_string());
    let daemon = place.start(&["--write"]);
    let mut client = daemon.quiet(LEGACY);
    client.call("fix__huge", json!({ "bytes": 5000 }));
    for (tool, arguments) in [
        ("colibri_create_task", json!({ "title": "t" })),
        (
            "colibri_schedule_task",
            json!({ "action": "create", "every_s": 86_400, "title": "t" }),
        ),
    ] {
        let answer = client.call(tool, arguments);
        assert_ne!(answer["isError"], true, "{answer}");
    }
    // Until its end; it finishes no task.
    place
        .colibri_mcp(&["agent", "run", "sh", "--follow"])
        .output()
        .unwrap();
    daemon.stop();
    let state = place.path("state");
    let mut files = vec![];
    let mut directories = vec![state.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path)
            } else {
                files.push(path)
            }
        }
    }
    assert!(files.len() >= 8, "{files:?}");
    for kind in ["agents", "results", "trail"] {
        assert!(
            files.iter().any(|file| file.starts_with(state.join(kind))),
            "{kind}: {files:?}"
        );
    }
    // A daemon that ends in order closes its store, and then has all in one file.
    let is_closed = !files.contains(&state.join("colibri.db-wal"));
    for file in files {
        let whole = fs::read(&file).unwrap();
        let name = file
            .strip_prefix(&state)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        for left in [0, whole.len() / 2] {
            let copy = place.path("before");
            let copied = Command::new("cp").arg("-a").arg(&state).arg(&copy).status();
            assert!(copied.unwrap().success());
            fs::write(&file, &whole[..left]).unwrap();
            let remedy = match (name.as_str(), left) {
                ("pins.json", _) => Some("pin list --waiting"),
                ("trail.key", _) => Some("put it back from a backup"),
                ("colibri.db", 1..) if is_closed => Some("restore it from a backup"),
                // Not what a power failure leaves, since the note is never ahead of the disk.
                (segment, _) if segment.starts_with("trail/") => Some("put back what is missing"),
                _ => None,
            };
            match remedy {
                Some(remedy) => {
                    let (status, says) = place.refused(&["--allow-root"]);
                    let told =
                        says.contains(remedy) && says.contains(name.split('/').next().unwrap());
                    assert!(
                        status == Some(78) && told,
                        "{name} {left}: {status:?} {says}"
                    );
                }
                None => {
                    let daemon = place.start(&[]);
                    assert_eq!(
                        text_of(&daemon.quiet(LEGACY).call("fix__count", json!({}))),
                        "counted"
                    );
                    // What is cut off of a longer one is in its log; a file without that is
                    // `store/tests.rs`'s.
                    if name == "colibri.db" && left == 0 {
                        daemon.wait_for_log("is empty, as a power failure may leave it");
                    }
                    daemon.stop();
                }
            }
            fs::remove_dir_all(&state).unwrap();
            fs::rename(&copy, &state).unwrap();
        }
    }
}

/// A small file system on the trail's directory; unmounted when dropped. The state directory beside
/// it stays usable: its database keeps files open, and a file system with open files cannot be made
/// read-only.
struct Small(PathBuf);

impl Small {
    fn mount(place: &Place) -> Small {
        let trail = place.trail_directory();
        fs::create_dir_all(&trail).unwrap();
        fs::set_permissions(place.path("state"), fs::Permissions::from_mode(0o700)).unwrap();
        let small = Small(trail);
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=128k,mode=0750", "tmpfs"])
            .arg(&small.0)
            .status();
        assert!(status.unwrap().success(), "a tmpfs can be mounted");
        small
    }

    /// Whether mount(8) did it: a file that is still open for writing keeps a file system writable.
    fn remount(&self, options: &str) -> bool {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(&self.0)
            .stderr(std::process::Stdio::null())
            .status();
        status.unwrap().success()
    }

    /// Leaves no room.
    fn fill(&self) {
        let mut ballast = File::create(self.0.join("ballast")).unwrap();
        while ballast.write_all(&[b'x'; 512]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Calls that a client makes one after the other, each with arguments that no other has.
struct Caller {
    client: Client,
    next: u64,
}

impl Caller {
    fn new(daemon: &Daemon<'_>) -> Caller {
        let client = daemon.quiet(LEGACY);
        Caller { client, next: 0 }
    }

    /// The message of the refusal, if the call is refused because of the trail.
    fn call(&mut self) -> Result<(), String> {
        self.next += 1;
        let arguments =
            json!({ "mark": format!("{} {}", self.client.era == Era::Modern, self.next) });
        let id = self.client.request_tool("fix__count", arguments);
        let answer = self.client.answer(id);
        if answer.get("error").is_none() {
            assert_eq!(text_of(&answer["result"]), "counted", "{answer}");
            return Ok(());
        }
        assert_eq!(code_of(&answer), Some("TRAIL_UNAVAILABLE"), "{answer}");
        let advice = answer["error"]["data"]["do"].as_str().unwrap_or_default();
        assert!(advice.contains("resume by themselves"), "{answer}");
        Err(answer["error"]["message"].as_str().unwrap().to_owned())
    }

    /// Calls until one is refused, and checks that it is so for everything else too, and that
    /// nothing reaches the server any more.
    fn until_refused(&mut self, place: &Place, daemon: &Daemon<'_>, why: &str) {
        let mut last = String::new();
        wait_for(why, || {
            last = self.call().err()?;
            last.contains(why).then_some(())
        });
        let sent = place.assert_entered("fix");
        let written = (
            place.records().len(),
            fs::read_dir(place.trail_directory()).unwrap().count(),
        );
        for _ in 0..20 {
            let refusal = self
                .call()
                .expect_err("a call whose record cannot be written");
            assert!(refusal.contains(why), "{refusal}");
        }
        for method in ["tools/list", "ping", "colibri/approvals", "no/such"] {
            let refused = self.client.ask(method, json!({}));
            assert_eq!(
                code_of(&refused),
                Some("TRAIL_UNAVAILABLE"),
                "{method}: {refused}"
            );
        }
        let mut modern = daemon.modern();
        let refused = modern.ask(
            "tools/call",
            json!({ "name": "colibri_snapshot", "arguments": {} }),
        );
        assert_eq!(code_of(&refused), Some("TRAIL_UNAVAILABLE"), "{refused}");
        // Operators read the reason where they look: in status, which needs no record, and in the
        // metrics.
        let told = modern.call("colibri_status", json!({}));
        assert!(
            told["structuredContent"]["trail_error"]
                .as_str()
                .unwrap()
                .contains(why),
            "{told}"
        );
        let status = place.colibri_mcp(&["status"]).output().unwrap();
        let text = String::from_utf8_lossy(&[status.stdout, status.stderr].concat()).into_owned();
        assert!(
            status.status.success() && text.contains(why) && text.contains("calls are refused"),
            "{text}"
        );
        let page = place.path("page.html");
        let page = ["glasspane", "--html", page.to_str().unwrap(), "--replace"];
        for shown in [
            &["glasspane", "--servers", "--once"][..],
            &["glasspane", "--once"],
            &["costs"],
            &page,
        ] {
            let output = place.colibri_mcp(shown).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let words: Vec<_> = text.split_whitespace().collect();
            let says = words.join(" ").contains(why) || !shown.contains(&"--once");
            assert!(output.status.success() && says, "{shown:?}: {output:?}");
        }
        // As glasspane asks for it, again and again.
        assert!(modern.ask("colibri/overview", json!({ "tail": 10 }))["result"].is_object());
        let doctor = place.colibri_mcp(&["doctor", "--json"]).output().unwrap();
        let facts: Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let room = "the trail has room to be written";
        let room = facts
            .as_array()
            .unwrap()
            .iter()
            .find(|fact| fact["fact"] == room)
            .unwrap();
        assert!(
            room["outcome"] == "bad"
                && room["seen"]
                    .as_str()
                    .unwrap()
                    .contains("trail: 0 bytes free"),
            "{room}"
        );
        assert_eq!(metric(place, "colibri_trail_failing"), "1");
        daemon.wait_for_log("calls are refused from now on: ");
        // What the daemon says of its own accord is no call.
        assert_eq!(
            place.assert_entered("fix"),
            sent,
            "something reached the server"
        );
        let now = (
            place.records().len(),
            fs::read_dir(place.trail_directory()).unwrap().count(),
        );
        assert_eq!(now, written, "attempts leave neither records nor files");
    }

    fn until_served(&mut self, place: &Place) {
        wait_for("the trail to be written again", || self.call().ok());
        for _ in 0..3 {
            self.call().unwrap();
        }
        assert_eq!(metric(place, "colibri_trail_failing"), "0");
        place.assert_entered("fix");
    }
}

/// A metric without labels, as its socket serves it: that is no call, and needs no record.
fn metric(place: &Place, name: &str) -> String {
    let socket = place.path("metrics.sock");
    let output = place
        .colibri_mcp(&["status", "--metrics", "--metrics-socket"])
        .arg(socket)
        .output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {output:?}"))
        .to_owned()
}

/// Starts a daemon that also serves metrics.
fn start<'a>(place: &'a Place, more: &[&str]) -> Daemon<'a> {
    let socket = place.path("metrics.sock");
    let mut flags = vec!["--metrics-socket", socket.to_str().unwrap()];
    flags.extend(more);
    place.start(&flags)
}

#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_full_and_a_read_only_disk_refuse_calls_until_they_are_not() {
    for flags in [&[][..], &["--trail-sync"]] {
        let place = place();
        let small = Small::mount(&place);
        let daemon = start(&place, flags);
        let mut caller = Caller::new(&daemon);
        caller.call().unwrap();
        small.fill();
        caller.until_refused(&place, &daemon, "No space left on device");
        assert!(caller.call().unwrap_err().contains("free space"));
        small.make_room();
        caller.until_served(&place);

        // A call that was on its way when the disk became full has been made; its answer is held
        // back, since what became of it cannot be recorded.
        let mut early = daemon.quiet(LEGACY);
        let until = format!("full {}", flags.len());
        let id = early.request_tool("fix__wait", json!({ "until": until }));
        wait_for("the call", || place.received("fix", &until).pop());
        small.fill();
        caller.until_refused(&place, &daemon, "No space left on device");
        place.release(&until);
        let held = early.answer(id);
        assert_eq!(code_of(&held), Some("TRAIL_UNAVAILABLE"), "{held}");
        assert!(held.to_string().contains("the call was made"), "{held}");
        // What was partly written is left behind, and closed as soon as it is on the disk.
        wait_for("a read-only file system", || {
            small.remount("ro").then_some(())
        });
        caller.until_refused(&place, &daemon, "Read-only file system");
        assert!(
            caller
                .call()
                .unwrap_err()
                .contains("mount that file system")
        );
        assert!(small.remount("rw,size=1m"));
        caller.until_served(&place);
        daemon.stop();
        place.assert_trail_is_sound();
        let torn = |record: &Record| {
            record.is("recovered") && record.rec["torn"][0]["segment"].is_string()
        };
        assert!(
            place.records().iter().any(torn),
            "what was cut short is named"
        );
        drop(small);
    }
}

#[test]
fn a_removed_and_a_moved_directory_refuse_calls_until_they_are_back() {
    for flags in [&[][..], &["--trail-sync"]] {
        let place = place();
        let daemon = start(&place, flags);
        let mut caller = Caller::new(&daemon);
        caller.call().unwrap();
        let (trail, aside) = (place.trail_directory(), place.path("aside"));
        fs::rename(&trail, &aside).unwrap();
        // That it is gone is seen after a moment; until then records are written where it went.
        wait_for("a refusal", || caller.call().err());
        fs::rename(&aside, &trail).unwrap();
        caller.until_served(&place);
        fs::rename(&trail, &aside).unwrap();
        wait_for("a refusal", || caller.call().err());
        fs::rename(&aside, &trail).unwrap();
        wait_for("the trail to be written again", || caller.call().ok());
        place.assert_trail_is_sound();

        // What is removed is gone: kept here, so that calls can be held against it.
        fs::create_dir(&aside).unwrap();
        for file in fs::read_dir(&trail).unwrap().flatten() {
            fs::copy(file.path(), aside.join(file.file_name())).unwrap();
        }
        fs::remove_dir_all(&trail).unwrap();
        let lines = place.record("fix").len();
        for _ in 0..10 {
            let refusal = caller.call().unwrap_err();
            assert!(
                refusal.contains("was removed") || refusal.contains("make the directory again"),
                "{refusal}"
            );
        }
        assert_eq!(
            place.record("fix").len(),
            lines,
            "something reached the server"
        );
        assert_eq!(metric(&place, "colibri_trail_failing"), "1");
        fs::create_dir(&trail).unwrap();
        fs::set_permissions(&trail, fs::Permissions::from_mode(0o750)).unwrap();
        wait_for("the trail to be written again", || caller.call().ok());
        let first = place.records().remove(0);
        assert!(first.is("recovered"), "{first:?}");
        daemon.stop();
        // Whoever removed the older segments is found out. With copies of them in place all is
        // there but a record that was on its way into the removed file when that was noticed, if
        // one was.
        assert!(!place.trail_command(&["verify"]).status.success());
        for file in fs::read_dir(&aside).unwrap().flatten() {
            fs::copy(file.path(), trail.join(file.file_name())).unwrap();
        }
        place.assert_entered("fix");
        let verified = place.trail_command(&["verify"]);
        let text = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert!(
            verified.status.success()
                || text.contains("1 fault") && text.contains("damaged tail: 0 bytes follow"),
            "{text}"
        );
    }
}

#[test]
fn a_daemon_without_a_trail_does_not_start() {
    let place = place();
    fs::create_dir(place.path("state")).unwrap();
    fs::set_permissions(place.path("state"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(place.trail_directory(), "no directory").unwrap();
    let (status, text) = place.refused(&["--allow-root"]);
    assert_eq!(status, Some(78), "{text}");
    assert!(text.contains("trail"), "{text}");
    assert!(!place.socket().exists());
}

// What a killed daemon leaves.

#[test]
fn a_killed_daemon_leaves_a_trail_that_verifies_and_goes_on() {
    let place = place();
    let mut random = 20_261_122u64;
    for round in 0..8 {
        let flags: &[&str] = if round % 2 == 0 {
            &[]
        } else {
            &["--trail-sync"]
        };
        let daemon = place.start(flags);
        let before = place.records();
        let opening = before
            .iter()
            .rfind(|record| record.is("open") || record.is("recovered"));
        let wanted = if round == 0 { "open" } else { "recovered" };
        assert!(opening.unwrap().is(wanted), "round {round}: {opening:?}");
        // xorshift: another number of calls each time, the same in each run.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let calls = random % 300;
        let (made, over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (made, over) = (&made, &over);
                let mut client = daemon.quiet(LEGACY);
                scope.spawn(move || {
                    for n in 0.. {
                        let mark = format!("{round} {thread} {n}");
                        let call = json!({ "name": "fix__count", "arguments": { "mark": mark } });
                        let call = json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call", "params": call });
                        if !client.send(call.to_string()) {
                            break;
                        }
                        // Several in flight at any moment.
                        if n >= 8 && client.read_lossy().is_none() {
                            break;
                        }
                        made.fetch_add(1, Ordering::Release);
                    }
                    over.store(true, Ordering::Release);
                });
            }
            wait_for("the calls", || {
                (made.load(Ordering::Acquire) >= calls).then_some(())
            });
            assert!(
                !over.load(Ordering::Acquire),
                "a client gave up before the daemon was killed"
            );
            daemon.kill();
        });
        place.assert_trail_is_sound();
        assert_eq!(
            place.records().split_at(before.len()).0.last().unwrap().rec,
            before.last().unwrap().rec
        );
    }
    assert!(place.assert_entered("fix") > 100);
    place.start(&[]).stop();
    assert!(place.records().last().unwrap().is("seal"));
    place.assert_trail_is_sound();
}

// What root does with it once a day.

const SCRIPT: &str = include_str!("../../../port/files/490.colibri-trail.in");
const CLIENT: &str = "/usr/local/bin/colibri-mcp";
const DAEMON: &str = "/usr/local/sbin/colibri-mcpd";
const SYSLOG: &str = "/dev/log";

/// The paths of an installed Colibri that the script uses, and a syslogd. What was there before
/// comes back at the end.
#[cfg(target_os = "linux")]
struct Installed {
    _lock: File,
    aside: Vec<(PathBuf, PathBuf)>,
}

#[cfg(target_os = "linux")]
impl Installed {
    /// Installs the client; every head that a daemon logs is appended to `log`.
    fn new(log: PathBuf) -> Installed {
        use colibri_tests::installed::{group, user};
        let lock = File::options()
            .create(true)
            .append(true)
            .open("/tmp/colibri-installed.lock");
        let lock = lock.unwrap();
        lock.lock().unwrap();
        user("colibri", group("colibri"));
        let mut aside = Vec::new();
        for path in [CLIENT, DAEMON, SYSLOG].map(PathBuf::from) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let kept = path.with_file_name(format!("{name}.before-trail-test"));
            if fs::symlink_metadata(&path).is_ok() {
                fs::rename(&path, &kept).unwrap();
            }
            aside.push((path, kept));
        }
        colibri_tests::copy_program(&colibri_tests::program("colibri-mcp"), Path::new(CLIENT));
        colibri_tests::copy_program(&colibri_tests::program("colibri-mcpd"), Path::new(DAEMON));
        let socket = std::os::unix::net::UnixDatagram::bind(SYSLOG).unwrap();
        let mut log = File::options().create(true).append(true).open(log).unwrap();
        // Ends with the test's process; nobody writes to its socket once that is taken away.
        std::thread::spawn(move || {
            let mut line = [0; 8192];
            while let Ok(length) = socket.recv(&mut line) {
                let _ = log.write_all(&[&line[..length], b"\n"].concat());
            }
        });
        Installed { _lock: lock, aside }
    }
}

#[cfg(target_os = "linux")]
impl Drop for Installed {
    fn drop(&mut self) {
        for (path, kept) in &self.aside {
            let _ = fs::remove_file(path);
            let _ = fs::rename(kept, path);
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_daily_script_verifies_archives_and_says_what_is_wrong() {
    use std::os::unix::fs::MetadataExt as _;
    let place = place();
    let auth_log = place.path("auth.log");
    let _installed = Installed::new(auth_log.clone());
    let script = place.path("490.colibri-trail");
    fs::write(&script, SCRIPT.replace("%%PREFIX%%", "/usr/local")).unwrap();
    // The tools of FreeBSD that Linux has not.
    let (tools, flagged) = (place.path("tools"), place.path("flagged"));
    fs::create_dir(&tools).unwrap();
    if !Path::new("/bin/chflags").exists() {
        println!(
            "SKIPPED: there is no chflags(1) here, so that copies get the flag sappnd is only noted"
        );
        let chflags = format!("#!/bin/sh\necho \"$@\" >> {}\n", flagged.display());
        fs::write(tools.join("chflags"), chflags).unwrap();
        fs::set_permissions(tools.join("chflags"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    // The daemon's user has to get there.
    fs::set_permissions(place.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    // Two complete segments, since a killed daemon's is not gone on with, and the one in use.
    for kill in [true, true, false] {
        let daemon = place.start(&[]);
        let mut caller = Caller::new(&daemon);
        for _ in 0..20 {
            caller.call().unwrap();
        }
        if kill { daemon.kill() } else { daemon.stop() }
    }
    let heads = || fs::read_to_string(&auth_log).unwrap_or_default();
    wait_for("the last head", || {
        heads().contains("trail-head records=").then_some(())
    });
    let owned = |path: &Path| {
        let status = Command::new("chown")
            .args(["-R", "colibri:colibri"])
            .arg(path)
            .status();
        assert!(status.unwrap().success());
    };
    owned(&place.path("state"));
    let archive = place.path("archive");
    let run = |settings: &[(&str, &str)]| {
        let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", tools.display());
        let mut command = Command::new("/bin/sh");
        command
            .arg(&script)
            .env_clear()
            .env("PATH", path)
            .env("SHELL", "/bin/sh")
            .env("LC_ALL", "C.UTF-8");
        command
            .env("daily_colibri_trail_enable", "YES")
            .env("daily_colibri_trail_state", place.path("state"))
            .env(
                "daily_colibri_trail_logs",
                format!("{} /nowhere.bz2", auth_log.display()),
            )
            .env("daily_colibri_trail_archive", &archive);
        for (name, value) in settings {
            command.env(format!("daily_colibri_trail_{name}"), value);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    let archived = || {
        let names = fs::read_dir(&archive).into_iter().flatten().flatten();
        let mut names: Vec<String> = names
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names.retain(|name| !name.starts_with('.'));
        names
    };

    assert_eq!(run(&[("enable", "NO")]), (Some(0), String::new()));
    let state = place.path("state/archive");
    assert_eq!(
        run(&[("archive", state.to_str().unwrap())]).0,
        Some(2),
        "an archive where the daemon can write"
    );
    assert_eq!(run(&[("keep_days", "7; touch pwned")]).0, Some(2));
    assert_eq!(archived(), Vec::<String>::new());

    let (status, text) = run(&[("keep_days", "7")]);
    assert_eq!(status, Some(0), "{text}");
    assert!(
        text.contains("promise") && !text.contains("none without a witness"),
        "{text}"
    );
    let names = archived();
    assert_eq!(names.len(), 4, "{names:?}: {text}");
    for name in &names {
        let facts = fs::metadata(archive.join(name)).unwrap();
        assert_eq!((facts.uid(), facts.mode() & 0o7777), (0, 0o440), "{name}");
        if name.ends_with(".jsonl") {
            let original = fs::read(place.trail_directory().join(name)).unwrap();
            assert_eq!(fs::read(archive.join(name)).unwrap(), original, "{name}");
        }
        if flagged.exists() {
            let wanted = format!("sappnd {}", archive.join(name).display());
            assert!(
                fs::read_to_string(&flagged).unwrap().contains(&wanted),
                "{name}"
            );
        }
    }
    assert_eq!(
        place.records().len(),
        colibri_tests::records_in(&place.trail_directory()).len()
    );
    // Nothing new, nothing copied.
    let (status, text) = run(&[]);
    assert_eq!(
        (status, text.contains("\narchived ")),
        (Some(0), false),
        "{text}"
    );
    // Old copies go; copies that are younger stay.
    let old = archive.join(names.iter().find(|name| name.ends_with(".jsonl")).unwrap());
    let aged = Command::new("touch")
        .args(["-d", "2020-01-01"])
        .arg(&old)
        .status();
    assert!(aged.unwrap().success());
    let (status, text) = run(&[("archive_keep_days", "30")]);
    assert_eq!(status, Some(0), "{text}");
    assert!(
        !old.exists() && text.contains("removed ") && archived().len() == 3,
        "{text}"
    );

    // What colibri leads to by links, root does not follow: the copy is made with colibri's rights.
    let secret = place.path("secret-of-root");
    fs::write(&secret, "root's alone\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let last = fs::read_dir(place.trail_directory())
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let last = last
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .max()
        .unwrap();
    let planted = place.trail_directory().join("0000000000-20200101.jsonl");
    std::os::unix::fs::symlink(&secret, &planted).unwrap();
    let (status, text) = run(&[("keep_days", "7")]);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("none is dropped"), "{text}");
    for name in archived() {
        assert!(
            !fs::read_to_string(archive.join(&name))
                .unwrap()
                .contains("root's alone"),
            "{name}"
        );
    }
    fs::remove_file(&planted).unwrap();
    assert_eq!(run(&[]).0, Some(0));

    // A record that is not what it was is found, by the chain and by the heads that root has.
    let whole = fs::read_to_string(&last).unwrap();
    fs::write(&last, whole.replacen("\"uid\":0", "\"uid\":7", 1)).unwrap();
    let (status, text) = run(&[]);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("edited record"), "{text}");
    let lines: Vec<&str> = whole.lines().collect();
    fs::write(&last, format!("{}\n", lines[..3].join("\n"))).unwrap();
    let (status, text) = run(&[]);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("truncated"), "{text}");
}

#[test]
fn calls_made_for_a_task_are_shown_with_what_became_of_it() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&["--write"]);
    let mut client = daemon.legacy(LEGACY);
    // A call of a server that nobody has looked at has two records.
    client.call("fix__count", json!({}));
    client.call("colibri_create_task", json!({ "title": "one" }));
    client.call("colibri_next_task", json!({}));
    for meta in [
        json!({ "org.colibri/task": 1 }),
        json!({ "org.colibri/task": 2 }),
        json!({}),
    ] {
        let call = json!({ "name": "fix__echo", "arguments": {}, "_meta": meta });
        assert!(client.ask("tools/call", call)["result"]["isError"] != true);
    }
    client.call(
        "colibri_finish_task",
        json!({ "task": 1, "claim": 1, "result": "done" }),
    );
    let output = place.trail_command(&["show", "--task", "1"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(shown.matches("for task 1").count(), 1, "{shown}");
    assert_eq!(
        shown.matches("fix echo").count(),
        2,
        "its enter and its exit: {shown}"
    );
    assert_eq!(
        shown.matches(" task").count(),
        3 + 1,
        "created, claimed, done: {shown}"
    );
    daemon.stop();
    place.assert_trail_is_sound();
}

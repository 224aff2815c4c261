//! The failure tables of `docs/errors.md`, row by row: each of Colibri's own codes as real
//! processes bring it about, each number of JSON-RPC and MCP as it is sent and as it is relayed,
//! and the breaker in front of each server.
//!
//! The rows are read from the page, so one without a test here is a failure.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use colibri_tests::remote::{Far, Port, answer};
use colibri_tests::{Bridge, Client, Daemon, LEGACY, MODERN, Place, code_of, text_of, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../docs/errors.md");

/// The cells of the rows of a table, which is the one below this heading.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, below) = PAGE.split_once(heading).unwrap();
    let below = below.split("\n## ").next().unwrap();
    let rows = below.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// An entry for the fixture as `fix` that notes each start of it in the file `starts`, and does
/// something else instead for as long as there is a file `broken`.
fn toggled(place: &Place, instead: &str, more: Value) -> Value {
    let mut entry = place.fixture("fix", &[], more);
    let (starts, broken) = (place.path("starts"), place.path("broken"));
    let script = format!(
        "echo >> {}; [ ! -e {} ] || {{ {instead}; }}; exec \"$0\" \"$@\"",
        starts.display(),
        broken.display()
    );
    let mut args = vec![json!("-c"), json!(script), entry["command"].clone()];
    args.extend(entry["args"].as_array().unwrap().iter().cloned());
    (entry["command"], entry["args"]) = (json!("/bin/sh"), json!(args));
    entry
}

/// How a row's failure comes about, or why no process outside can bring it about.
enum Shown {
    /// The answer that a client got.
    By(Value),
    /// Shown by another test.
    Elsewhere,
}

/// The answer to a call of the fixture's tool on a daemon with these flags.
fn called(place: &Place, flags: &[&str], tool: &str, arguments: Value) -> Value {
    let daemon = place.start(flags);
    let mut client = daemon.quiet(LEGACY);
    client.ask(
        "tools/call",
        json!({ "name": format!("fix__{tool}"), "arguments": arguments }),
    )
}

/// The answer to the general tool's call of `fix`, whose tools need not be known.
fn called_by_origin(client: &mut Client) -> Value {
    let call = json!({ "server": "fix", "tool": "count", "arguments": {} });
    client.ask(
        "tools/call",
        json!({ "name": "colibri_external_mcp_call_tool", "arguments": call }),
    )
}

/// What the bridge answers to a call of the fixture's tool while `meanwhile` goes on.
fn bridged(place: &Place, tool: &str, meanwhile: impl FnOnce()) -> Value {
    let mut bridge = Bridge::start(place.colibri_mcp(&[]));
    let id = bridge.request_tool(&format!("fix__{tool}"), json!({}));
    meanwhile();
    let answer = bridge.answer(id);
    bridge.end();
    answer
}

/// What is answered to a call of `count` under a contract that says this of it.
fn counted_under(term: &str) -> Value {
    let place = Place::new();
    let contract = place.path("contract.json");
    fs::write(&contract, format!(r#"{{"tools":{{"count":{term}}}}}"#)).unwrap();
    fs::set_permissions(&contract, fs::Permissions::from_mode(0o600)).unwrap();
    place.registry(&json!({ "fix": place.fixture("fix", &[], json!({ "contract": contract })) }));
    called(&place, &[], "count", json!({}))
}

/// Brings a failure about.
fn bring_about(code: &str) -> Shown {
    let answer = match code {
        "FRAME_TOO_LONG" => {
            let place = Place::new();
            place.limits(json!({ "message_bytes": "64K" }));
            let daemon = place.start(&[]);
            let mut client = daemon.quiet(LEGACY);
            client.ask("tools/call", json!({ "name": "x".repeat(100_000) }))
        }
        "LIMIT_IN_FLIGHT" => {
            let place = Place::of_fixture(&[], json!({}));
            place.limits(json!({ "calls_per_client": 1 }));
            let daemon = place.start(&[]);
            let mut client = daemon.quiet(LEGACY);
            client.request_tool("fix__wait", json!({ "until": "never" }));
            client.ask("tools/call", json!({ "name": "colibri_status" }))
        }
        "DAEMON_BUSY" => {
            let place = Place::new();
            place.limits(json!({ "clients": 1 }));
            let daemon = place.start(&[]);
            // The connection that waited for the daemon's start may count for a moment still.
            let _first = wait_for("room for one", || {
                let mut first = daemon.connect();
                first.ask("ping", json!({})).get("result").map(|_| first)
            });
            daemon.connect().ask("ping", json!({}))
        }
        "DAEMON_STOPPING" => {
            let place = Place::of_fixture(&[], json!({}));
            let daemon = place.start(&[]);
            let mut client = daemon.quiet(LEGACY);
            client.request_tool("fix__never", json!({}));
            wait_for("the call", || place.received("fix", "\"never\"").pop());
            daemon.signal(Signal::SIGTERM);
            daemon.wait_for_log("ending clients=");
            client.ask("ping", json!({}))
        }
        "TASK_REFUSED" => {
            let place = Place::new();
            let daemon = place.start(&["--write"]);
            let given =
                json!({ "name": "colibri_start_task", "arguments": { "task": 7, "claim": 1 } });
            daemon.quiet(LEGACY).ask("tools/call", given)
        }
        "DAEMON_UNREACHABLE" => bridged(&Place::new(), "count", || {}),
        "CONNECTION_LOST" => {
            let place = Place::of_fixture(&[], json!({}));
            let daemon = place.start(&[]);
            bridged(&place, "never", || {
                wait_for("the call", || place.received("fix", "\"never\"").pop());
                daemon.kill();
            })
        }
        "TRAIL_UNAVAILABLE" => {
            let place = Place::of_fixture(&[], json!({}));
            let daemon = place.start(&[]);
            let mut client = daemon.quiet(LEGACY);
            fs::remove_dir_all(place.trail_directory()).unwrap();
            client.ask(
                "tools/call",
                json!({ "name": "fix__count", "arguments": {} }),
            )
        }
        "STORE_UNAVAILABLE" => {
            let place = Place::new();
            let daemon = place.start(&["--write"]);
            let mut client = daemon.quiet(LEGACY);
            for file in fs::read_dir(place.path("state")).unwrap().flatten() {
                if file.file_name().to_string_lossy().starts_with("colibri.db") {
                    fs::write(file.path(), [b'x'; 65536]).unwrap();
                }
            }
            client.ask(
                "tools/call",
                json!({ "name": "colibri_create_task", "arguments": { "title": "x" } }),
            )
        }
        "NOT_SUPPORTED_YET" => {
            let place = Place::of_fixture(&["--speak", MODERN], json!({}));
            let daemon = place.start(&[]);
            let mut client = daemon.quiet(LEGACY);
            client.ask(
                "tools/call",
                json!({ "name": "fix__echo", "arguments": {}, "task": {} }),
            )
        }
        "ASK_FAILED" => {
            let place = Place::of_fixture(&["--speak", MODERN], json!({ "may_ask": ["roots"] }));
            let asks = r#"{"jsonrpc":"2.0","id":@ID@,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}}"#;
            place.frame("asks", asks.as_bytes());
            called(&place, &[], "frame", json!({ "case": "asks" }))
        }
        "GATE_CLOSED" => {
            let place = Place::of_fixture(&[], json!({}));
            let daemon = place.start_plain(&[]);
            let mut client = daemon.quiet(LEGACY);
            client.ask(
                "tools/call",
                json!({ "name": "colibri_create_task", "arguments": { "title": "x" } }),
            )
        }
        "POLICY_DENIED" => called(
            &Place::of_fixture(&[], json!({ "tools": { "deny": ["count"] } })),
            &[],
            "count",
            json!({}),
        ),
        "SCHEMA_INVALID" => {
            let place = Place::new();
            let schema = json!({ "type": "object", "required": ["n"] });
            let definitions = json!([{ "name": "count", "inputSchema": schema }]).to_string();
            place.defines("fix", "definitions", &definitions);
            place.registry(&json!({ "fix": place.fixture("fix", &[], json!({})) }));
            called(&place, &[], "count", json!({}))
        }
        "CONTRACT_DENIED" => counted_under(r#"{ "deny": "nobody counts here" }"#),
        "RESULT_REFUSED" => {
            counted_under(r#"{ "allow": "it counts", "result": { "schema": {} } }"#)
        }
        "APPROVAL_DENIED" => {
            let place = Place::of_fixture(&[], json!({ "tools": { "confirm": ["count"] } }));
            let daemon = place.start(&[]);
            let mut client = daemon.quiet(LEGACY);
            let id = client.request_tool("fix__count", json!({}));
            let mut operator = daemon.modern();
            let waiting = wait_for("the question", || {
                let waiting = operator.ask("colibri/approvals", json!({}));
                waiting["result"]["approvals"][0]["id"]
                    .as_str()
                    .map(str::to_owned)
            });
            operator.ask("colibri/deny", json!({ "id": waiting }));
            client.answer(id)
        }
        "RESULT_TOO_LARGE" => {
            let place = Place::of_fixture(&[], json!({}));
            let list = json!({ "name": "colibri_external_mcp_list_tools", "arguments": {} });
            place
                .start(&["--cost-mode", "fast"])
                .quiet(LEGACY)
                .ask("tools/call", list)
        }
        "NO_SUCH_RESULT" => {
            let place = Place::new();
            let given =
                json!({ "name": "colibri_read_result", "arguments": { "handle": "0".repeat(32) } });
            place.start(&[]).quiet(LEGACY).ask("tools/call", given)
        }
        "NO_SUCH_TOOL" => {
            let place = Place::new();
            called_by_origin(&mut place.start(&[]).quiet(LEGACY))
        }
        "NOT_OFFERED" => {
            let place = Place::new();
            let says = json!({ "capabilities": { "prompts": {} }, "prompts/list": { "prompts": [{ "name": "p" }] } });
            place.registry(&json!({ "fix": place.library("fix", LEGACY, json!({}), &says) }));
            let of = json!({ "ref": { "type": "ref/prompt", "name": "fix__p" }, "argument": { "name": "a", "value": "" } });
            place
                .start(&[])
                .quiet(LEGACY)
                .ask("completion/complete", of)
        }
        "INTEGRATION_UNAVAILABLE" => {
            let place = Place::of_fixture(&["--at-start", "exit"], json!({ "attempts": 1 }));
            let daemon = place.start(&[]);
            let mut client = daemon.quiet(LEGACY);
            wait_for("the breaker to open", || {
                // Anything else is what it is not available for.
                let answer = called_by_origin(&mut client);
                (code_of(&answer) == Some(code)).then_some(answer)
            })
        }
        "SERVER_DIED" => called(&Place::of_fixture(&[], json!({})), &[], "exit", json!({})),
        "SERVER_ANSWER_INVALID" => called(
            &Place::of_fixture(&[], json!({})),
            &[],
            "die_mid_answer",
            json!({}),
        ),
        "SERVER_FAILED" => {
            let far = Far::new(json!({}), |_, _, stream| {
                answer(stream, "502 Bad Gateway", "", "")
            });
            far.place.start(&[]).modern().ask(
                "tools/call",
                json!({ "name": "web__echo", "arguments": {} }),
            )
        }
        "SERVER_DENIED" => {
            let port = Port::answering(|_, stream| answer(stream, "401 Unauthorized", "", ""));
            let place = Place::new();
            place.registry(&json!({ "fix": port.entry("/mcp", json!({})) }));
            let daemon = place.start(&[]);
            called_by_origin(&mut daemon.quiet(LEGACY))
        }
        "SERVER_UNSTARTABLE" => {
            let place = Place::new();
            place.registry(&json!({ "fix": { "command": place.path("nothing-here") } }));
            called_by_origin(&mut place.start(&[]).quiet(LEGACY))
        }
        "TIMEOUT_START" => {
            let place = Place::new();
            let entry = toggled(
                &place,
                "sleep 3600",
                json!({ "start_timeout_ms": 2000, "idle_timeout_s": 1 }),
            );
            place.registry(&json!({ "fix": entry }));
            let daemon = place.start(&[]);
            daemon.assert_serves("fix__count");
            daemon.wait_for_log("reason=\"idle\"");
            fs::write(place.path("broken"), "").unwrap();
            let mut client = daemon.quiet(LEGACY);
            client.ask(
                "tools/call",
                json!({ "name": "fix__count", "arguments": {} }),
            )
        }
        "TIMEOUT_CALL" => called(
            &Place::of_fixture(&[], json!({ "timeout_ms": 200 })),
            &[],
            "never",
            json!({}),
        ),
        "TIMEOUT_TOTAL" => called(
            &Place::of_fixture(&[], json!({ "total_timeout_ms": 200 })),
            &[],
            "never",
            json!({}),
        ),
        "SCRIPT_FAILED" => script("throw new Error('on purpose')"),
        "SCRIPT_LIMIT" => script("const deeper = () => deeper() + 1; return deeper()"),
        // What a person is asked, and what changed definitions do, is shown in pins.rs; agents'
        // doors are in door.rs.
        "LIMIT_USER" | "PIN_CHANGED" | "BUDGET_SPENT" => return Shown::Elsewhere,
        // Nobody can bring about a fault that nobody knows of.
        "INTERNAL" => return Shown::Elsewhere,
        other => panic!("no test brings {other} about: add one above"),
    };
    Shown::By(answer)
}

fn check_row(row: &[&str]) {
    let [code, number, sent_as, _, what_to_do] = row else {
        panic!("{row:?}")
    };
    let code = code.trim_matches('`');
    let answer = match bring_about(code) {
        Shown::By(answer) => answer,
        Shown::Elsewhere => return,
    };
    assert_eq!(code_of(&answer), Some(code), "{answer}");
    let about = if *sent_as == "error" {
        assert_eq!(answer["error"]["code"].to_string(), *number, "{answer}");
        assert!(
            answer["error"]["message"].as_str().unwrap().len() > 10,
            "{answer}"
        );
        &answer["error"]["data"]
    } else {
        assert_eq!(*sent_as, "result");
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        // A model reads the text alone.
        let text = text_of(&answer["result"]);
        assert!(text.contains(code), "{text}");
        assert!(
            text.contains(
                answer["result"]["_meta"]["org.colibri/error"]["do"]
                    .as_str()
                    .unwrap()
            ),
            "{text}"
        );
        &answer["result"]["_meta"]["org.colibri/error"]
    };
    let advice = about["do"].as_str().unwrap();
    assert!(advice.len() > 10 && !what_to_do.is_empty(), "{answer}");
}

/// The answer to a script.
fn script(script: &str) -> Value {
    let given = json!({ "name": "colibri_run_script", "arguments": { "script": script } });
    Place::new()
        .start(&[])
        .quiet(LEGACY)
        .ask("tools/call", given)
}

/// The rows in a few tests, so that they run side by side.
fn check_rows(part: usize) {
    let rows = rows("## Our own codes");
    assert!(rows.len() >= 24, "{rows:?}");
    for row in rows.iter().skip(part).step_by(3) {
        check_row(row);
    }
}

#[test]
fn every_code_of_our_own_first_part() {
    check_rows(0);
}

#[test]
fn every_code_of_our_own_second_part() {
    check_rows(1);
}

#[test]
fn every_code_of_our_own_third_part() {
    check_rows(2);
}

/// What a client of either era is sent under this number, if anything sends it.
fn sent(daemon: &Daemon<'_>, number: i64) -> Option<Value> {
    let mut legacy = daemon.quiet(LEGACY);
    let mut modern = daemon.modern();
    Some(match number {
        -32700 => {
            legacy.send("no JSON");
            legacy.message()
        }
        -32600 => legacy.ask(
            "initialize",
            json!({ "protocolVersion": LEGACY, "capabilities": {} }),
        ),
        -32601 => modern.ask("ping", json!({})),
        -32602 => legacy.ask("tools/call", json!({ "name": "no_such_tool" })),
        -32020 => {
            let mut http = daemon.http();
            let listed = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": colibri_tests::http::meta() } });
            http.post(
                &[("MCP-Protocol-Version", MODERN), ("Mcp-Method", "ping")],
                &listed.to_string(),
            );
            http.response().json()
        }
        -32022 => {
            let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2099-01-01",
                "io.modelcontextprotocol/clientCapabilities": {} });
            legacy.ask("tools/list", json!({ "_meta": meta }))
        }
        _ => return None,
    })
}

/// What becomes of a server's error on its way: the same number, another one, or one of our own
/// codes.
fn relayed(
    number: i64,
    server_is_modern: bool,
    client_is_modern: bool,
) -> Result<i64, &'static str> {
    match (number, server_is_modern, client_is_modern) {
        (-32002, _, true) => Ok(-32602),
        (-32042, _, true) => Err("ASK_FAILED"),
        (-32020 | -32022, true, _) => Err("SERVER_ANSWER_INVALID"),
        (-32022..=-32020, false, true) => Ok(-32603),
        _ => Ok(number),
    }
}

#[test]
fn every_number_of_json_rpc_and_mcp() {
    let place = Place::new();
    place.registry(&json!({
        "legacy": place.fixture("legacy", &[], json!({})),
        "modern": place.fixture("modern", &["--speak", MODERN], json!({})),
    }));
    let daemon = place.start(&[]);
    let rows = rows("## JSON-RPC's and MCP's numbers");
    assert_eq!(rows.len(), 10);
    let numbers: BTreeSet<i64> = rows
        .iter()
        .map(|row| row[0].trim_matches('`').parse().unwrap())
        .collect();
    for row in &rows {
        let number: i64 = row[0].trim_matches('`').parse().unwrap();
        let never = row[2].starts_with("never") || row[2] == "the fault is ours";
        match sent(&daemon, number) {
            Some(answer) => assert_eq!(answer["error"]["code"], number, "{answer}"),
            None => assert!(
                never,
                "nothing here shows that {number} is sent, and the page says it is: {}",
                row[2]
            ),
        }
        let error =
            json!({ "code": number, "message": "m", "data": { "requiredCapabilities": {} } });
        let frame = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"error":{error}}}"#);
        place.frame("error", frame.as_bytes());
        for server in ["legacy", "modern"] {
            for mut client in [daemon.quiet(LEGACY), daemon.modern()] {
                let modern = client.era == colibri_tests::Era::Modern;
                let call =
                    json!({ "name": format!("{server}__frame"), "arguments": { "case": "error" } });
                let answer = client.ask("tools/call", call);
                match relayed(number, server == "modern", modern) {
                    Ok(other) => assert_eq!(
                        answer["error"]["code"], other,
                        "{number} of {server}: {answer}"
                    ),
                    Err(code) => assert_eq!(
                        code_of(&answer),
                        Some(code),
                        "{number} of {server}: {answer}"
                    ),
                }
            }
        }
    }
    assert_eq!(numbers.len(), rows.len());
}

/// Starts of the server's process, counted by the process itself before it fails or serves.
fn starts(place: &Place) -> usize {
    fs::read_to_string(place.path("starts"))
        .unwrap_or_default()
        .lines()
        .count()
}

#[test]
fn the_breaker_opens_is_half_open_and_closes() {
    let place = Place::new();
    let broken = place.path("broken");
    fs::write(&broken, "").unwrap();
    let entry = toggled(
        &place,
        "echo it is broken >&2; exit 1",
        json!({ "attempts": 1 }),
    );
    place.registry(&json!({ "fix": entry, "good": place.fixture("good", &[], json!({})) }));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    // An attempt to start a server whose era is not known takes two processes: it may be legacy,
    // and have died of the question.
    const ATTEMPT: usize = 2;
    // How many processes a call starts, and what becomes of it.
    let mut call = || {
        let before = starts(&place);
        let answer = called_by_origin(&mut client);
        assert_eq!(
            code_of(&answer),
            Some("INTEGRATION_UNAVAILABLE"),
            "{answer}"
        );
        let text = text_of(&answer["result"]).to_owned();
        assert!(text.contains("it is broken"), "{text}");
        (starts(&place) - before, text)
    };
    // It opens: calls are refused, with the reason, without a process. Five seconds is the longest
    // pause: in it there is time to look.
    wait_for("four failures", || {
        call();
        (starts(&place) >= 4 * ATTEMPT).then_some(())
    });
    let (started, text) = wait_for("a pause", || {
        Some(call()).filter(|(started, _)| *started == 0)
    });
    assert!(started == 0 && text.contains("left alone for"), "{text}");
    let server = daemon.server("fix");
    assert_eq!(server["state"], "backing off", "{server}");
    assert!(
        server["reason"].as_str().unwrap().contains("it is broken"),
        "{server}"
    );
    assert_eq!(
        text_of(&daemon.quiet(LEGACY).call("good__count", json!({}))),
        "counted",
        "each server has its own"
    );
    // It is half-open: when the pause is over one process is tried, and when that fails there is
    // another pause.
    let (started, _) = wait_for("the end of the pause", || {
        Some(call()).filter(|(started, _)| *started > 0)
    });
    assert_eq!(started, ATTEMPT);
    wait_for("another pause", || (call().0 == 0).then_some(()));
    let before = starts(&place);
    fs::remove_file(&broken).unwrap();
    let ids: Vec<u64> = wait_for("the end of the pause", || {
        let call = json!({ "server": "fix", "tool": "count", "arguments": {} });
        let call = |client: &mut Client| {
            client.request_tool("colibri_external_mcp_call_tool", call.clone())
        };
        let ids: Vec<u64> = (0..20).map(|_| call(&mut client)).collect();
        let answers: Vec<Value> = ids.iter().map(|id| client.answer(*id)).collect();
        let counted = answers
            .iter()
            .filter(|answer| text_of(&answer["result"]) == "counted")
            .count();
        // The pause may end between any two of them.
        (counted > 0).then_some(ids)
    });
    assert_eq!(ids.len(), 20);
    // One attempt for all who waited. It is closed: that process serves, and nothing of the
    // failures is left.
    assert_eq!(starts(&place) - before, ATTEMPT);
    let server = daemon.server("fix");
    assert_eq!(
        (&server["state"], &server["reason"]),
        (&json!("ready"), &Value::Null),
        "{server}"
    );
    let before = starts(&place);
    client.ask(
        "tools/call",
        json!({ "name": "fix__exit", "arguments": {} }),
    );
    assert_eq!(
        text_of(&client.call("fix__count", json!({}))),
        "counted",
        "the first failure is no reason to wait"
    );
    assert_eq!(starts(&place), before + 1);
}

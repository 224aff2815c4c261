//! Scripts: one call that makes many, each with all that holds for calls, in a process that can do
//! nothing else.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use colibri_tests::{
    Client, Daemon, LEGACY, Place, code_of, copy_program, processes_with, program, text_of,
    wait_for,
};
use serde_json::{Value, json};

const RUN: &str = "colibri_run_script";

/// Two fixtures, the second with these keys of its entry.
fn place(more: Value) -> Place {
    let place = Place::new();
    fill(&place, more);
    place
}

fn fill(place: &Place, more: Value) {
    place.registry(&json!({
        "one": place.fixture("one", &[], json!({})),
        "two": place.fixture("two", &[], more),
    }));
}

fn run(client: &mut Client, script: &str) -> Value {
    client.call(RUN, json!({ "script": script, "timeout_s": 30 }))
}

/// What a script returns, which must not fail.
fn returned(client: &mut Client, script: &str) -> Value {
    let result = run(client, script);
    assert_ne!(result["isError"], true, "{result}");
    serde_json::from_str(text_of(&result)).unwrap_or_else(|_| text_of(&result).into())
}

/// The code and the text of a script's failure.
fn failure(client: &mut Client, script: &str) -> (String, String) {
    let result = run(client, script);
    assert_eq!(result["isError"], true, "{result}");
    let code = result["_meta"]["org.colibri/error"]["code"]
        .as_str()
        .unwrap_or_default();
    (code.to_owned(), text_of(&result).to_owned())
}

/// How a client speaks.
const CLIENTS: [fn(&Daemon<'_>) -> Client; 2] =
    [|daemon| daemon.legacy(LEGACY), |daemon| daemon.modern()];

#[test]
fn a_script_makes_many_calls_and_only_what_it_returns_is_answered() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    for connect in CLIENTS {
        let mut client = connect(&daemon);
        let before = place.records().len();
        let script = "
            const all = await Promise.all([1, 2, 3].map((n) => tools.one.echo({ n })));
            console.log('seen', all.length);
            const counted = await tools.two.count();
            const named = await tools.two__echo({ b: 'x'.repeat(3000) });
            return { sum: all.map((text) => JSON.parse(text).n).reduce((a, b) => a + b), counted, length: named.length };
        ";
        let result = run(&mut client, script);
        assert_eq!(
            text_of(&result),
            r#"{"sum":6,"counted":"counted","length":3008}"#,
            "{result}"
        );
        assert_eq!(result["content"][1]["text"], "[printed]\nseen 3");
        let meta = &result["_meta"]["org.colibri/script"];
        assert_eq!((&meta["calls"], &meta["failed"]), (&json!(5), &json!(0)));
        assert!(meta["bytes"].as_u64().unwrap() > 3008, "{meta}");
        // Each call has its records, under that of the script.
        let records: Vec<Value> = place
            .records()
            .into_iter()
            .skip(before)
            .map(|record| record.rec)
            .collect();
        let outer = records.iter().find(|record| record["tool"] == RUN).unwrap();
        // A call of a tool that was only looked at then enters twice: the second record continues
        // the first.
        let continued = |n: &Value| records.iter().any(|record| record["continues"] == *n);
        let inner: Vec<_> = records
            .iter()
            .filter(|record| record["within"] == outer["n"])
            .collect();
        let inner: Vec<_> = inner
            .into_iter()
            .filter(|record| !continued(&record["n"]))
            .collect();
        assert_eq!(inner.len(), 5, "{records:#?}");
        for enter in &inner {
            assert_eq!(
                (&enter["connection"], &enter["uid"]),
                (&outer["connection"], &outer["uid"])
            );
            let exits = records
                .iter()
                .filter(|record| record["kind"] == "exit" && record["enter"] == enter["n"]);
            assert_eq!(
                exits.map(|exit| &exit["result"]).collect::<Vec<_>>(),
                ["SUCCESS"]
            );
        }
        let event = records
            .iter()
            .find(|record| record["event"] == "script")
            .unwrap();
        assert_eq!(
            (&event["details"]["call"], &event["details"]["calls"]),
            (&outer["n"], &json!(5))
        );
        assert_eq!(event["details"]["returned"], text_of(&result).len());
    }
    place.assert_trail_is_sound();
    assert_eq!(place.recorded("one", "effect").len(), 0);
    assert_eq!(place.recorded("two", "effect").len(), 2);
}

#[test]
fn tools_are_found_shown_and_read_and_a_script_can_return_content() {
    let place = place(json!({ "result_limit": 500 }));
    let image = json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" });
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    assert_eq!(
        returned(
            &mut client,
            "return (await find('echo'))[0].name.endsWith('echo')"
        ),
        true
    );
    assert_eq!(
        returned(&mut client, "return (await schema('one.echo')).name"),
        "one__echo"
    );
    assert_eq!(
        returned(&mut client, "return Object.keys(tools)"),
        json!(["one", "two"])
    );
    assert_eq!(
        returned(
            &mut client,
            "return Object.keys(tools.one).includes('echo')"
        ),
        true
    );
    // What is too long for a model is not for a script.
    assert_eq!(
        returned(
            &mut client,
            "return (await tools.two.huge({ bytes: 100000 })).length"
        ),
        100_000
    );
    let result = run(&mut client, &format!("return {image}"));
    assert_eq!(result["content"], json!([image]));
    let result = run(&mut client, "export default 'exported'");
    assert_eq!(text_of(&result), "exported");
    assert_eq!(returned(&mut client, "const a = 1"), Value::Null);
    assert_eq!(
        returned(
            &mut client,
            "return await tools.colibri.status().then((status) => typeof status.gates)"
        ),
        "object"
    );
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_the_way_out() {
    let contract = json!([{ "name": "strict", "description": "Takes a number", "inputSchema": { "type": "object",
        "properties": { "n": { "type": "integer" } }, "required": ["n"], "additionalProperties": false } }]);
    let place = Place::new();
    place.defines("two", "definitions", &contract.to_string());
    fill(&place, json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    for (script, code, words) in [
        (
            "const a = 1;\nconst b = ;",
            "SCRIPT_FAILED",
            &["line 2, column", "SyntaxError"][..],
        ),
        (
            "const a = 1;\nlet b: number = 2;",
            "SCRIPT_FAILED",
            &["line 2", "TypeScript"],
        ),
        (
            "import fs from 'node:fs'",
            "SCRIPT_FAILED",
            &["no modules to import"],
        ),
        (
            "\n  a.b",
            "SCRIPT_FAILED",
            &["line 2, column 3: ReferenceError"],
        ),
        (
            "await tools.one.ecko()",
            "SCRIPT_FAILED",
            &["NO_SUCH_TOOL", "tools.one.ecko", "did you mean \"echo\"?"],
        ),
        (
            "await tools.onne.echo()",
            "SCRIPT_FAILED",
            &["NO_SUCH_TOOL", "did you mean \"one\"?"],
        ),
        (
            "await tools.two.strict({ n: 'x' })",
            "SCRIPT_FAILED",
            &["SCHEMA_INVALID", "n"],
        ),
        (
            "await tools.one.echo(5)",
            "SCRIPT_FAILED",
            &["one object with its arguments"],
        ),
        (
            "console.log('before'); throw new Error('mine')",
            "SCRIPT_FAILED",
            &["Error: mine", "it printed: before"],
        ),
        (
            "await new Promise(() => {})",
            "SCRIPT_FAILED",
            &["nothing settles"],
        ),
        (
            "await tools.colibri.run_script({ script: '1' })",
            "SCRIPT_FAILED",
            &["cannot run another script"],
        ),
        (
            "const a = []; for (;;) a.push('x'.repeat(1e5) + a.length)",
            "SCRIPT_LIMIT",
            &["memory (64 MiB)"],
        ),
        ("const f = () => f() + 1; f()", "SCRIPT_LIMIT", &["depth ("]),
        (
            "let a = []; for (let i = 0; i < 200; i++) a = [a]; return a",
            "SCRIPT_LIMIT",
            &["depth ("],
        ),
        (
            "return 'x'.repeat(5e6)",
            "SCRIPT_LIMIT",
            &["output (4096 KiB)"],
        ),
        (
            "for (let i = 0; i < 1001; i++) await tools.one.pid()",
            "SCRIPT_LIMIT",
            &["calls (1000)", "one.pid"],
        ),
    ] {
        let (said, text) = failure(&mut client, script);
        assert_eq!(said, code, "{script}: {text}");
        for word in words {
            assert!(text.contains(word), "{script}: {text}");
        }
    }
    for (arguments, word) in [
        (json!({}), "script"),
        (json!({ "script": "" }), "script"),
        (json!({ "script": "1", "timeout_s": 0 }), "timeout_s"),
        (json!({ "script": "1", "files": true }), "files"),
    ] {
        let result = client.call(RUN, arguments);
        assert!(
            result["isError"] == true && text_of(&result).contains(word),
            "{result}"
        );
    }
    let result = client.call(RUN, json!({ "script": "for (;;);", "timeout_s": 1 }));
    assert!(text_of(&result).contains("limit time (1 s)"), "{result}");
    let result = client.call(
        RUN,
        json!({ "script": "await tools.one.never()", "timeout_s": 1 }),
    );
    assert!(
        text_of(&result).contains("limit time (1 s)") && text_of(&result).contains("one.never"),
        "{result}"
    );
    // Errors can be caught, and have a code and advice.
    let caught = "try { await tools.one.ecko() } catch (e) { return [e.name, e.code, e.server, e.tool, e.advice] }";
    assert_eq!(
        returned(&mut client, caught),
        json!([
            "ToolError",
            "NO_SUCH_TOOL",
            "one",
            "ecko",
            "did you mean \"echo\"?"
        ])
    );
    place.assert_trail_is_sound();
}

#[test]
fn calls_at_once_are_bounded_and_the_rest_wait() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let script = "return (await Promise.all(Array.from({ length: 40 }, (_, n) => tools.one.wait({ until: 'all', n })))).length";
    let id = client.request_tool(RUN, json!({ "script": script }));
    let sent = wait_for("the first calls", || {
        let sent = place.received("one", "\"until\":\"all\"").len();
        (sent >= 16).then_some(sent)
    });
    assert_eq!(sent, 16);
    client.ask("tools/list", json!({}));
    assert_eq!(place.received("one", "\"until\":\"all\"").len(), 16);
    place.release("all");
    assert_eq!(text_of(&client.answer(id)["result"]), "40");
}

#[test]
fn a_gate_that_is_closed_closes_scripts_and_policy_holds_within() {
    let place = place(json!({ "tools": { "deny": ["count"] } }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let (code, text) = failure(&mut client, "await tools.two.count()");
    assert!(
        code == "SCRIPT_FAILED" && text.contains("POLICY_DENIED"),
        "{text}"
    );
    assert_eq!(place.recorded("two", "effect").len(), 0);
    drop(client);
    let mut closed = daemon.connect();
    closed.send(r#"{"colibri":1,"narrow":["external"]}"#);
    closed.open(LEGACY);
    assert_eq!(failure(&mut closed, "return 1").0, "GATE_CLOSED");
}

#[test]
fn a_call_of_a_script_waits_for_a_person_and_goes_on() {
    let place = place(json!({ "tools": { "confirm": ["count"] } }));
    let rule = json!({ "gates": ["external-call"], "servers": { "*": ["*"] }, "operator": true, "self_approve": true });
    let me = nix::unistd::geteuid().to_string();
    place.clients(&json!({ "users": { me: rule } }).to_string());
    let daemon = place.start(&[]);
    for (connect, approve) in CLIENTS.into_iter().zip([true, false]) {
        let (mut client, mut operator) = (connect(&daemon), daemon.modern());
        let before = place.recorded("two", "effect").len();
        let script = "const a = await tools.one.echo({});
            let b; try { b = await tools.two.count() } catch (e) { b = e.code }
            return [a, b]";
        let id = client.request_tool(RUN, json!({ "script": script }));
        let waiting = wait_for("the question", || {
            let waiting = operator.ask("colibri/approvals", json!({}));
            waiting["result"]["approvals"][0]["id"]
                .as_str()
                .map(str::to_owned)
        });
        assert_eq!(place.recorded("two", "effect").len(), before);
        let method = if approve {
            "colibri/approve"
        } else {
            "colibri/deny"
        };
        let decided = operator.ask(method, json!({ "id": waiting }));
        assert!(decided["result"].is_object(), "{decided}");
        let answer = client.answer(id);
        let expected = if approve {
            r#"["{}","counted"]"#
        } else {
            r#"["{}","APPROVAL_DENIED"]"#
        };
        assert_eq!(text_of(&answer["result"]), expected, "{answer}");
    }
    place.assert_trail_is_sound();
}

#[test]
fn a_cancelled_script_cancels_its_calls_and_progress_says_which_runs() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    for connect in CLIENTS {
        let mut client = connect(&daemon);
        let before = place.records().len();
        let script = "await tools.one.echo({}); await Promise.all([tools.one.never({ a: 1 }), tools.two.never({ a: 2 })])";
        let params = json!({ "name": RUN, "arguments": { "script": script }, "_meta": { "progressToken": "here" } });
        let id = client.request("tools/call", params);
        let messages: Vec<String> = (0..3)
            .map(|_| client.notification("notifications/progress")["params"]["message"].to_string())
            .collect();
        assert!(messages[0].contains("call 1: one.echo"), "{messages:?}");
        assert!(
            messages[1].contains("call 2: one.never") && messages[2].contains("call 3: two.never"),
            "{messages:?}"
        );
        for server in ["one", "two"] {
            wait_for("the call at its server", || {
                (!place.received(server, "\"never\"").is_empty()).then_some(())
            });
        }
        client.notify("notifications/cancelled", json!({ "requestId": id }));
        let records = wait_for("the end of all calls", || {
            let records: Vec<Value> = place
                .records()
                .into_iter()
                .skip(before)
                .map(|record| record.rec)
                .collect();
            let ended = records
                .iter()
                .filter(|record| record["error_code"] == "CANCELLED")
                .count();
            (ended == 3 && records.iter().any(|record| record["event"] == "script"))
                .then_some(records)
        });
        let event = records
            .iter()
            .find(|record| record["event"] == "script")
            .unwrap();
        assert_eq!(
            (&event["details"]["calls"], &event["details"]["cancelled"]),
            (&json!(3), &json!(2))
        );
        for server in ["one", "two"] {
            wait_for("the server's notice", || {
                (!place.received(server, "notifications/cancelled").is_empty()).then_some(())
            });
        }
        client.ask("tools/list", json!({}));
    }
    wait_for("the processes' end", || {
        script_processes(&daemon).is_empty().then_some(())
    });
}

/// The processes of this daemon's scripts.
fn script_processes(daemon: &Daemon<'_>) -> Vec<i32> {
    let parent = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(") ")
            .next()?
            .split(' ')
            .nth(1)?
            .parse::<i32>()
            .ok()
    };
    let all = processes_with("colibri-script")
        .into_iter()
        .map(|(pid, _)| pid);
    all.filter(|pid| parent(*pid).and_then(parent) == Some(daemon.pid()))
        .collect()
}

#[test]
#[cfg(target_os = "linux")]
fn a_process_that_dies_is_an_error_with_its_last_call() {
    let place = place(json!({}));
    let mut daemon = place.start(&[]);
    let mut client = daemon.modern();
    let never = json!({ "script": "console.log('here'); await tools.one.echo({}); await tools.two.never({ mark: 1 })" });
    let id = client.request_tool(RUN, never.clone());
    wait_for("the last call", || {
        (!place.received("two", "\"mark\":1").is_empty()).then_some(())
    });
    let [process] = script_processes(&daemon)[..] else {
        panic!("one process")
    };
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(process),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    let answer = client.answer(id);
    assert_eq!(code_of(&answer), Some("SCRIPT_FAILED"), "{answer}");
    let text = text_of(&answer["result"]);
    assert!(
        text.contains("its last call of 2: two.never")
            && text.contains("signal 9")
            && text.contains("here"),
        "{text}"
    );
    // One that runs when the daemon is killed dies with it.
    client.request_tool(RUN, never);
    wait_for("the last call", || {
        (place.received("two", "\"mark\":1").len() == 2).then_some(())
    });
    let running = script_processes(&daemon);
    assert_eq!(running.len(), 1);
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    daemon.wait();
    wait_for("the process's end", || {
        (!colibri_tests::is_alive(running[0])).then_some(())
    });
}

/// A daemon beside which this stands as `colibri-script`.
fn place_with(script_program: &str) -> (tempfile::TempDir, Place) {
    let directory = tempfile::tempdir().unwrap();
    let daemon: PathBuf = directory.path().join("colibri-mcpd");
    copy_program(&program("colibri-mcpd"), &daemon);
    let beside = directory.path().join("colibri-script");
    std::fs::write(&beside, script_program).unwrap();
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o755)).unwrap();
    let place = Place::with_daemon(daemon);
    fill(&place, json!({}));
    (directory, place)
}

#[test]
fn a_hostile_process_gets_no_more_than_a_script_may() {
    let call = |id: u32, more: &str| {
        format!(r#"{{"call":{{"id":{id},"server":"two","tool":"count","arguments":{{}}{more}}}}}"#)
    };
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    // Of a message that is not too long as a whole.
    let long = "x".repeat((4 << 20) + 1);
    let cases = [
        ("no JSON", "hello".to_owned()),
        ("an unknown message", r#"{"spawn":"sh"}"#.to_owned()),
        ("a number that is not the next", call(2, "")),
        (
            "a number twice",
            format!("{}\n{}", call(1, ""), call(1, "")),
        ),
        (
            "a member that there is not",
            call(1, r#","confirmed":true"#),
        ),
        (
            "arguments that are no object",
            call(1, "").replace("\"arguments\":{}", "\"arguments\":[1]"),
        ),
        (
            "deep arguments",
            call(1, "").replace(
                "\"arguments\":{}",
                &format!("\"arguments\":{{\"a\":{deep}}}"),
            ),
        ),
        (
            "long arguments",
            call(1, "").replace(
                "\"arguments\":{}",
                &format!("\"arguments\":{{\"a\":\"{long}\"}}"),
            ),
        ),
        (
            "a long result",
            format!(r#"{{"done":{{"value":"{long}","unawaited":0}}}}"#),
        ),
        (
            "a deep result",
            format!(r#"{{"done":{{"value":{deep},"unawaited":0}}}}"#),
        ),
        (
            "too many calls at once",
            (1..=17)
                .map(|id| call(id, "").replace("count", "never"))
                .collect::<Vec<_>>()
                .join("\n"),
        ),
        (
            "too much printed",
            vec![format!(r#"{{"log":"{}"}}"#, "x".repeat(60_000)); 3].join("\n"),
        ),
    ];
    for (what, lines) in cases {
        let (_directory, place) = place_with(&format!(
            "#!/bin/sh\nread -r line\ncat <<'END'\n{lines}\nEND\nread -r line\nsleep 60\n"
        ));
        let daemon = place.start(&[]);
        let mut client = daemon.modern();
        let (code, text) = failure(&mut client, "1");
        assert!(
            code == "SCRIPT_FAILED" && text.contains("wrote what it must not"),
            "{what}: {code} {text}"
        );
        daemon.assert_serves("one__echo");
    }
    // One call after the other, more of them than a script may make.
    let one = call(1, "").replace("\"id\":1", "\"id\":'$n'");
    let (_directory, place) = place_with(&format!(
        "#!/bin/sh\nn=0\nwhile [ $n -lt 1001 ] && read -r line; do n=$((n + 1)); echo '{one}'; done\nsleep 60\n"
    ));
    let daemon = place.start(&[]);
    let (_, text) = failure(&mut daemon.modern(), "1");
    assert!(text.contains("more calls than it may"), "{text}");
    daemon.assert_serves("one__echo");
    // A line without an end, a flood, and nothing at all.
    for (what, program, limit, words) in [
        (
            "a long line",
            "#!/bin/sh\nhead -c 30000000 /dev/zero | tr '\\0' x\necho\nsleep 60\n",
            60,
            "too long",
        ),
        ("an early end", "#!/bin/sh\nexit 9\n", 60, "exit status 9"),
        ("silence", "#!/bin/sh\nsleep 60\n", 1, "limit time (1 s)"),
    ] {
        let (_directory, place) = place_with(program);
        let daemon = place.start(&[]);
        let result = daemon
            .modern()
            .call(RUN, json!({ "script": "1", "timeout_s": limit }));
        assert!(text_of(&result).contains(words), "{what}: {result}");
        daemon.assert_serves("one__echo");
    }
}

#[test]
fn people_try_scripts_with_the_client() {
    let place = place(json!({}));
    let _daemon = place.start(&[]);
    let file = place.path("try.js");
    std::fs::write(&file, "return await tools.one.echo({ a: 1 })").unwrap();
    let output = place
        .colibri_mcp(&["script", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "{\"a\":1}",
        "{output:?}"
    );
    let output = place
        .colibri_mcp(&["script", "/nowhere.js"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    std::fs::write(&file, "nothing.there").unwrap();
    let output = place
        .colibri_mcp(&["script", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(
        output.status.code() == Some(1)
            && String::from_utf8_lossy(&output.stdout).contains("line 1"),
        "{output:?}"
    );
}

#[test]
fn four_scripts_of_a_user_run_at_once_and_a_place_comes_back() {
    let place = place(json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let never = json!({ "script": "await tools.one.never({ mark: 'here' })" });
    let ids: Vec<u64> = (0..4)
        .map(|_| client.request_tool(RUN, never.clone()))
        .collect();
    wait_for("the calls", || {
        (place.received("one", "\"here\"").len() == 4).then_some(())
    });
    let mut other = daemon.modern();
    let refused = other.ask(
        "tools/call",
        json!({ "name": RUN, "arguments": { "script": "return 1" } }),
    );
    assert_eq!(code_of(&refused), Some("LIMIT_USER"), "{refused}");
    client.notify("notifications/cancelled", json!({ "requestId": ids[0] }));
    wait_for("a place", || {
        let answer = other.ask(
            "tools/call",
            json!({ "name": RUN, "arguments": { "script": "return 1" } }),
        );
        (text_of(&answer["result"]) == "1").then_some(())
    });
    drop(client);
    wait_for("the end of all", || {
        script_processes(&daemon).is_empty().then_some(())
    });
}

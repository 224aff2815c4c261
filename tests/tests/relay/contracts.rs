//! What a contract says of how calls end: results that are not as it says, records of what it
//! refuses, and what is left to the board, against servers that answer well, wrongly and to
//! deceive.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use colibri_tests::{Client, Daemon, LEGACY, MODERN, Place, code_of, kept_of, rule_of, text_of};
use serde_json::{Value, json};

const SHA: &str = "0123456789abcdef0123456789abcdef01234567";
const BRANCH: &str = "feature/p0.3.2";
const SECRET: &str = "hunter2-hunter2";

/// A place with a server `git` under a contract, whose tool `frame` is what commits.
fn place(speak: &str, more: Value) -> Place {
    let place = Place::new();
    let contract = json!({ "tools": {
        "frame": {
            "when": { "required": ["case"], "properties": { "case": { "type": "string" },
                "branch": { "type": "string", "pattern": "^feature/" }, "token": { "type": "string" } } },
            "reason": "only feature branches",
            "result": { "schema": { "required": ["branch", "sha"], "properties": {
                            "branch": { "type": "string" }, "sha": { "type": "string", "pattern": "^[0-9a-f]{40}$" },
                            "note": { "type": "string" } } },
                        "same": { "/branch": "/branch" }, "reason": "a commit is of the branch that was asked for" },
            "record": { "event": "vcs_commit", "fields": { "branch": "/branch", "sha": "/sha" } },
            "refused": { "event": "vcs_commit_refused", "fields": { "branch": "/branch" } },
            "retries": { "GIT_LOCKED": [1, 1] },
            "task": { "title": "Commit what was left", "fields": { "branch": "/branch" },
                      "codes": ["GIT_LOCKED", "RESULT_REFUSED"], "capabilities": ["git", "person"] } },
        "count": { "deny": "pushing is for people",
            "refused": { "event": "vcs_push_refused", "fields": { "branch": "/branch", "force": "/force" } },
            "task": { "title": "Push a branch that is ready", "fields": { "branch": "/branch" } } },
        "exit": { "allow": "it ends", "task": { "title": "Look after it", "codes": ["SERVER_DIED"] } },
        "echo": { "allow": "it is harmless" } } });
    let path = place.path("contract.json");
    fs::write(&path, contract.to_string()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    place.secret("token", SECRET);
    let mut keys = json!({ "contract": path, "env": { "TOKEN": { "secret": "token" } } });
    for (key, value) in more.as_object().into_iter().flatten() {
        keys[key] = value.clone();
    }
    place.registry(&json!({ "git": place.fixture("git", &["--speak", speak], keys) }));
    place
}

/// What the server answers: a result with these members.
fn answers(place: &Place, speak: &str, members: &str) {
    let kind = if speak == MODERN {
        r#""resultType":"complete","#
    } else {
        ""
    };
    let frame = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{{kind}{members}}}}}"#);
    place.frame("answer", frame.as_bytes());
}

fn commit(client: &mut Client) -> Value {
    let arguments = json!({ "case": "answer", "branch": BRANCH });
    client.ask(
        "tools/call",
        json!({ "name": "git__frame", "arguments": arguments }),
    )
}

fn push(client: &mut Client, branch: &str) -> Value {
    client.ask(
        "tools/call",
        json!({ "name": "git__count", "arguments": { "branch": branch, "force": true, "token": SECRET } }),
    )
}

fn good() -> String {
    format!(r#""content":[],"structuredContent":{{"branch":"{BRANCH}","sha":"{SHA}"}}"#)
}

/// The details of the events of this name.
fn events(place: &Place, name: &str) -> Vec<Value> {
    let of = |record: Value| (record["event"] == name).then(|| record["details"].clone());
    place.trail().into_iter().filter_map(of).collect()
}

/// How the last call ended.
fn last_exit(place: &Place) -> (String, String) {
    let exits = place
        .trail()
        .into_iter()
        .rfind(|record| record["kind"] == "exit")
        .unwrap();
    let text = |key: &str| exits[key].as_str().unwrap_or_default().to_owned();
    (text("result"), text("error_code"))
}

/// The task that an answer names.
fn task_of(answer: &Value) -> Option<u64> {
    let result = &answer["result"];
    let said = [
        &result["_meta"]["org.colibri/error"]["deferred"],
        &result["_meta"]["org.colibri/kept"]["deferred"],
        &result["structuredContent"]["deferred"],
    ];
    let task = said.into_iter().find_map(|said| said["task"].as_u64())?;
    let sentence = format!("Deferred: this is task {task} of the board");
    assert!(
        result["content"].to_string().contains(&sentence),
        "{answer}"
    );
    Some(task)
}

/// The tasks of the board, oldest first.
fn tasks(daemon: &Daemon<'_>) -> Vec<Value> {
    let result = daemon
        .quiet(LEGACY)
        .call("colibri_list_tasks", json!({ "limit": 100 }));
    let mut tasks = result["structuredContent"]["tasks"]
        .as_array()
        .unwrap()
        .clone();
    tasks.reverse();
    tasks
}

#[test]
fn a_result_that_is_not_as_the_contract_says_is_not_relayed() {
    for speak in [LEGACY, MODERN] {
        let place = place(speak, json!({}));
        let daemon = place.start(&[]);
        let (mut legacy, mut modern, mut old) = (
            daemon.quiet(LEGACY),
            daemon.modern(),
            daemon.quiet("2024-11-05"),
        );
        answers(&place, speak, &good());
        for client in [&mut legacy, &mut modern, &mut old] {
            let answer = commit(client);
            assert_eq!(
                answer["result"]["structuredContent"]["sha"], SHA,
                "{answer}"
            );
            assert_eq!(last_exit(&place).0, "SUCCESS");
        }
        let committed = events(&place, "vcs_commit");
        assert_eq!(committed.len(), 3);
        assert_eq!(
            (&committed[0]["branch"], &committed[0]["sha"]),
            (&json!(BRANCH), &json!(SHA))
        );
        let structured = |text: &str| format!(r#""content":[],"structuredContent":{text}"#);
        for (members, why) in [
            (
                structured(&format!(r#"{{"branch":"main","sha":"{SHA}"}}"#)),
                "/branch is not the /branch",
            ),
            (
                structured(&format!(
                    r#"{{"branch":"{BRANCH}","sha":"{}"}}"#,
                    SHA.to_uppercase()
                )),
                "/sha: ",
            ),
            (
                structured(&format!(
                    r#"{{"branch":"{BRANCH}","sha":"{SHA}","sha":"{SHA}"}}"#
                )),
                "twice",
            ),
            (
                structured(&format!(
                    r#"{{"branch":"{BRANCH}","sha":"{SHA}","Sha":"x"}}"#
                )),
                "two keys",
            ),
            (
                structured(&format!(
                    r#"{{"branch":"{BRANCH}","sha":"{SHA}","pushed":true}}"#
                )),
                "pushed",
            ),
            (
                structured(&format!(
                    r#"{{"branch":"{BRANCH}","sha":{}}}"#,
                    "9".repeat(40)
                )),
                "beyond 64 bits",
            ),
            (
                structured(&format!(
                    r#"{{"branch":"{BRANCH}","sha":"{SHA}","note":"\ud800"}}"#
                )),
                "lone surrogate",
            ),
            (
                format!(r#"{},"isError":true,"isError":false"#, good()),
                "twice",
            ),
            (
                format!(r#"{},"isError":false,"isError":true"#, good()),
                "twice",
            ),
            (
                format!(r#"{},"ISERROR":true"#, good()),
                "some readers take for another one",
            ),
            (
                format!(r#"{},"isError":1"#, good()),
                "neither true nor false",
            ),
            (format!(r#"{},"structuredContent":{{}}"#, good()), "twice"),
            (
                r#""content":[{"type":"text","text":"committed"}]"#.to_owned(),
                "no structuredContent",
            ),
            (
                structured(&format!(r#"{{"branch":"{}"}}"#, "x".repeat(5 << 20))),
                "more than 4 MiB",
            ),
            (structured("[]"), "other than an object"),
        ] {
            answers(&place, speak, &members);
            let shown = &members[..members.len().min(300)];
            for client in [&mut legacy, &mut modern, &mut old] {
                let answer = commit(client);
                assert_eq!(
                    code_of(&answer),
                    Some("RESULT_REFUSED"),
                    "{shown}: {answer}"
                );
                let text = text_of(&answer["result"]);
                assert!(
                    text.contains("the tool did run") && text.contains(why),
                    "{shown}: {text}"
                );
                assert!(answer["result"]["structuredContent"].is_null(), "{answer}");
                assert_eq!(
                    last_exit(&place),
                    ("FAIL".to_owned(), "RESULT_REFUSED".to_owned())
                );
                assert_eq!(task_of(&answer), Some(1), "{answer}");
            }
        }
        // However the tool is called.
        let arguments = json!({ "server": "git", "tool": "frame", "arguments": { "case": "answer", "branch": BRANCH } });
        let answer = legacy.call("colibri_external_mcp_call_tool", arguments);
        assert_eq!(code_of(&answer), Some("RESULT_REFUSED"), "{answer}");
        // A failure is one, whatever it holds.
        answers(
            &place,
            speak,
            r#""content":[],"isError":true,"structuredContent":{"ok":false,"error":{"code":"NO"}}"#,
        );
        let answer = commit(&mut legacy);
        assert_eq!(
            (code_of(&answer), &answer["result"]["isError"]),
            (None, &json!(true))
        );
        assert_eq!(last_exit(&place).0, "FAIL");
        assert_eq!(
            (events(&place, "vcs_commit").len(), tasks(&daemon).len()),
            (3, 1)
        );
        drop(daemon);
        place.assert_trail_is_sound();
    }
}

#[test]
fn what_is_no_result_yet_is_no_success() {
    let place = place(MODERN, json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let frame = |members: &str| {
        place.frame(
            "answer",
            format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{{members}}}}}"#).as_bytes(),
        );
    };
    let asks = r#""resultType":"input_required","inputRequests":{},"requestState":"s""#;
    frame(asks);
    assert_eq!(
        commit(&mut client)["result"]["resultType"],
        "input_required"
    );
    // With what a careless client takes for the result.
    for result in [
        good(),
        r#""Content":[]"#.to_owned(),
        format!(r#""structured\u0043ontent":{{"sha":"{SHA}"}}"#),
    ] {
        frame(&format!("{asks},{result}"));
        let answer = commit(&mut client);
        assert_eq!(code_of(&answer), Some("RESULT_REFUSED"), "{answer}");
        assert!(!answer.to_string().contains(SHA), "{answer}");
    }
    frame(&format!(
        r#"{},"resultType":"task","taskId":"t","status":"working","createdAt":"2026-11-23T00:00:00Z","lastUpdatedAt":"2026-11-23T00:00:00Z","ttlMs":null"#,
        good()
    ));
    let answer = commit(&mut client);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let declared = json!({ "io.modelcontextprotocol/clientCapabilities":
        { "extensions": { "io.modelcontextprotocol/tasks": {} } } });
    let arguments = json!({ "case": "answer", "branch": BRANCH });
    let answer = client.ask(
        "tools/call",
        json!({ "name": "git__frame", "arguments": arguments, "_meta": declared }),
    );
    assert_eq!(code_of(&answer), Some("RESULT_REFUSED"), "{answer}");
    assert_eq!(events(&place, "vcs_commit"), Vec::<Value>::new());
}

#[test]
fn a_result_is_checked_before_it_is_kept() {
    let place = place(LEGACY, json!({ "result_limit": 300 }));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    let long = |sha: &str| {
        let note = "n".repeat(500);
        answers(
            &place,
            LEGACY,
            &format!(
                r#""content":[],"structuredContent":{{"branch":"{BRANCH}","sha":"{sha}","note":"{note}"}}"#
            ),
        );
    };
    long("no");
    assert_eq!(code_of(&commit(&mut client)), Some("RESULT_REFUSED"));
    assert_eq!(events(&place, "vcs_commit"), Vec::<Value>::new());
    long(SHA);
    let answer = commit(&mut client);
    assert!(
        kept_of(&answer["result"]).is_some() && code_of(&answer).is_none(),
        "{answer}"
    );
    assert_eq!(
        (
            events(&place, "vcs_commit").len(),
            events(&place, "result-kept").len()
        ),
        (1, 1)
    );
}

#[test]
fn a_failure_that_is_kept_is_told_with_the_task_that_its_call_became() {
    for speak in [LEGACY, MODERN] {
        let place = place(speak, json!({ "result_limit": 300 }));
        let daemon = place.start(&[]);
        let message = "m".repeat(500);
        let error =
            format!(r#"{{"ok":false,"error":{{"code":"GIT_LOCKED","message":"{message}"}}}}"#);
        answers(
            &place,
            speak,
            &format!(r#""content":[],"isError":true,"structuredContent":{error}"#),
        );
        for mut client in [daemon.quiet(LEGACY), daemon.modern()] {
            let answer = commit(&mut client);
            assert_eq!(
                (&answer["result"]["isError"], task_of(&answer)),
                (&json!(true), Some(1))
            );
            let handle = kept_of(&answer["result"]).unwrap_or_else(|| panic!("{answer}"));
            let whole = client.call(
                "colibri_read_result",
                json!({ "handle": handle, "offset": 0 }),
            );
            assert!(
                whole.to_string().contains("this is task 1 of the board"),
                "{whole}"
            );
        }
    }
}

#[test]
fn one_that_pushes_without_end_leaves_one_task_and_a_record_each_time() {
    let place = place(LEGACY, json!({}));
    // The gate for writing is closed.
    let daemon = place.start(&[]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = daemon.quiet(LEGACY);
                for _ in 0..25 {
                    let answer = push(&mut client, BRANCH);
                    assert_eq!(
                        (code_of(&answer), task_of(&answer)),
                        (Some("CONTRACT_DENIED"), Some(1)),
                        "{answer}"
                    );
                }
            });
        }
    });
    let refused = events(&place, "vcs_push_refused");
    assert_eq!((refused.len(), tasks(&daemon).len()), (100, 1));
    assert_eq!(
        (&refused[0]["branch"], &refused[0]["force"]),
        (&json!(BRANCH), &json!(true))
    );
    let deferred = events(&place, "deferred");
    assert!(deferred.len() == 100 && deferred.iter().all(|details| details["task"] == 1));
    let task = &tasks(&daemon)[0];
    assert_eq!(
        task["title"],
        format!("Push a branch that is ready ({BRANCH})")
    );
    assert_eq!(
        (
            &task["source"],
            &task["status"],
            &task["required_capabilities"]
        ),
        (&json!("deferred:git"), &json!("queued"), &json!(["person"]))
    );
    // It names a call, by a number under which the trail has it.
    let description = task["description"].as_str().unwrap();
    let number = description
        .split("It is record ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let records = place.trail();
    let entered = &records[number.parse::<usize>().unwrap()];
    assert_eq!(
        (&entered["kind"], &entered["tool"]),
        (&json!("enter"), &json!("count"))
    );
    assert!(
        description.contains("A call of count of the server git ended with CONTRACT_DENIED."),
        "{description}"
    );
    assert!(
        description.contains(&format!("branch: {BRANCH}\n")),
        "{description}"
    );
    let mine = nix::unistd::geteuid().as_raw();
    let created = events(&place, "task");
    assert_eq!(
        (created.len(), &created[0]["by"], &created[0]["to"]),
        (1, &json!(mine), &json!("queued"))
    );
    // What an attacker would have others read.
    let mut client = daemon.quiet(LEGACY);
    let odd = format!("\u{1b}[2J\u{202e}{SECRET} {}", "x".repeat(5000));
    assert_eq!(task_of(&push(&mut client, &odd)), Some(2));
    let shown = tasks(&daemon)[1].to_string();
    assert!(
        !shown.contains(SECRET) && !shown.contains(['\u{1b}', '\u{202e}']) && shown.len() < 2000,
        "{shown}"
    );
    let recorded = events(&place, "vcs_push_refused")
        .pop()
        .unwrap()
        .to_string();
    assert!(
        !recorded.contains(SECRET) && !recorded.contains('\u{202e}') && recorded.len() < 2000,
        "{recorded}"
    );
    // Not what one reader and another see differently.
    let twice = r#"{"jsonrpc":"2.0","id":7000,"method":"tools/call","params":{"name":"git__count","arguments":{"branch":"a","branch":"b"}}}"#;
    client.send(twice);
    assert_eq!(task_of(&client.answer(7000)), Some(3));
    assert_eq!(tasks(&daemon)[2]["title"], "Push a branch that is ready");
    assert!(events(&place, "vcs_push_refused").pop().unwrap()["branch"].is_null());
    // Branch after branch: 32 of one person, and no more.
    for n in 3..40 {
        let answer = push(&mut client, &format!("feature/{n}"));
        assert_eq!(task_of(&answer).is_some(), n < 32, "{n}: {answer}");
        if n >= 32 {
            assert!(
                text_of(&answer["result"]).contains("Not deferred to the board: 32 tasks"),
                "{answer}"
            );
        }
    }
    assert_eq!(tasks(&daemon).len(), 32);
    // What is named already is named again, and when it is over there is a new one.
    assert_eq!(task_of(&push(&mut client, BRANCH)), Some(1));
    drop(daemon);
    let daemon = place.start(&["--write"]);
    let mut client = daemon.quiet(LEGACY);
    let done = client.call(
        "colibri_cancel_task",
        json!({ "task": 1, "reason": "pushed" }),
    );
    assert_ne!(done["isError"], true, "{done}");
    assert_eq!(task_of(&push(&mut client, BRANCH)), Some(33));
    assert_eq!(events(&place, "vcs_push_refused").len(), 100 + 2 + 37 + 2);
    assert_eq!(
        place.received("git", "git__count").len() + place.received("git", "\"count\"").len(),
        0
    );
    drop(daemon);
    place.assert_trail_is_sound();
}

#[test]
fn what_differs_where_no_title_shows_it_is_another_task() {
    let place = place(LEGACY, json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    let branch = |end: &str| format!("feature/{}{end}", "x".repeat(300));
    for (end, task) in [("a", 1), ("b", 2), ("a", 1), ("b", 2)] {
        assert_eq!(
            task_of(&push(&mut client, &branch(end))),
            Some(task),
            "{end}"
        );
    }
    let titles: Vec<Value> = tasks(&daemon)
        .into_iter()
        .map(|task| task["title"].clone())
        .collect();
    assert!(
        titles
            .iter()
            .all(|title| title.as_str().unwrap().chars().count() <= 200),
        "{titles:?}"
    );
}

#[test]
fn what_when_refuses_is_recorded_and_what_fails_for_good_is_deferred() {
    for speak in [LEGACY, MODERN] {
        let place = place(speak, json!({ "attempts": 1 }));
        let daemon = place.start(&[]);
        let (mut legacy, mut modern, mut old) = (
            daemon.quiet(LEGACY),
            daemon.modern(),
            daemon.quiet("2024-11-05"),
        );
        let arguments = json!({ "case": "answer", "branch": "main" });
        let answer = legacy.ask(
            "tools/call",
            json!({ "name": "git__frame", "arguments": arguments }),
        );
        // CONTRACT_DENIED is none of its codes.
        assert_eq!(
            (code_of(&answer), task_of(&answer)),
            (Some("CONTRACT_DENIED"), None),
            "{answer}"
        );
        assert_eq!(events(&place, "vcs_commit_refused")[0]["branch"], "main");
        // Each attempt but the last is a retry; then it is a task.
        answers(
            &place,
            speak,
            r#""content":[{"type":"text","text":"locked"}],"isError":true,"structuredContent":{"ok":false,
               "error":{"code":"GIT_LOCKED","message":"m"},"deferred":{"task":999}},"_meta":{"org.colibri/x":1,"y":1}"#
                .replace('\n', "")
                .as_str(),
        );
        for client in [&mut legacy, &mut modern, &mut old] {
            let answer = commit(client);
            let result = &answer["result"];
            assert_eq!(
                (task_of(&answer), &result["isError"]),
                (Some(1), &json!(true)),
                "{answer}"
            );
            assert_eq!(
                result["structuredContent"]["error"]["code"], "GIT_LOCKED",
                "{answer}"
            );
            assert_eq!(text_of(result), "locked");
            assert_eq!(result["content"].as_array().unwrap().len(), 2);
            assert_eq!(
                (&result["_meta"]["y"], &result["_meta"]["org.colibri/x"]),
                (&json!(1), &Value::Null)
            );
        }
        let retries = place
            .trail()
            .into_iter()
            .filter(|record| record["kind"] == "retry")
            .count();
        assert_eq!((retries, last_exit(&place).0.as_str()), (6, "FAIL"));
        let of = |task: &Value| (task["title"].clone(), task["required_capabilities"].clone());
        assert_eq!(
            tasks(&daemon).iter().map(of).collect::<Vec<_>>(),
            [(
                json!(format!("Commit what was left ({BRANCH})")),
                json!(["git", "person"])
            )]
        );
        // Another failure is only told, and names no task of the server's own making.
        for key in ["deferred", "Deferred"] {
            let told = r#""content":[],"isError":true,"structuredContent":{"KEY":{"task":1},"error":{"code":"GIT_OTHER"}}"#;
            answers(&place, speak, &told.replace("KEY", key));
            for client in [&mut legacy, &mut modern, &mut old] {
                let answer = commit(client);
                assert_eq!(
                    answer["result"]["structuredContent"]["error"]["code"], "GIT_OTHER",
                    "{answer}"
                );
                assert!(
                    !answer.to_string().to_lowercase().contains("deferred"),
                    "{answer}"
                );
            }
        }
        // What the daemon says of the server.
        let answer = legacy.ask(
            "tools/call",
            json!({ "name": "git__exit", "arguments": {} }),
        );
        assert_eq!(
            (code_of(&answer), task_of(&answer)),
            (Some("SERVER_DIED"), Some(2)),
            "{answer}"
        );
        // And what no contract says anything of.
        assert_ne!(
            modern.call("git__echo", json!({ "text": "x" }))["isError"],
            true
        );
        drop(daemon);
        place.assert_trail_is_sound();
    }
}

#[test]
fn a_string_that_spells_a_number_reaches_a_server_as_it_is() {
    let place = Place::new();
    let tool = json!([{ "name": "count", "inputSchema": { "type": "object", "properties": {
        "mark": { "type": "integer" }, "deep": { "anyOf": [{ "type": "boolean" }, { "type": "null" }] } } } }]);
    for name in ["lax", "strict"] {
        place.defines(name, "definitions", &tool.to_string());
    }
    place.registry(&json!({
        "lax": place.fixture("lax", &[], json!({})),
        "strict": place.fixture("strict", &[], json!({ "validate": "strict" })),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let quoted = json!({ "deep": "true", "mark": "3" });
    assert_eq!(
        text_of(&client.call("lax__count", quoted.clone())),
        "counted"
    );
    assert_eq!(
        place.received("lax", r#"{"deep":"true","mark":"3"}"#).len(),
        1
    );
    assert_eq!(
        text_of(&client.call("lax__count", json!({ "mark": 3 }))),
        "counted"
    );
    let calls = place
        .trail()
        .into_iter()
        .filter(|rec| rec["name"] == "lax__count");
    let found: Vec<Value> = calls
        .map(|rec| rec["validated"].clone())
        .filter(|said| !said.is_null())
        .collect();
    assert!(
        found.ends_with(&[json!("lenient"), json!(true)]),
        "{found:?}"
    );
    for (tool, arguments) in [
        ("strict__count", quoted),
        ("lax__count", json!({ "mark": "3.0" })),
    ] {
        let refused = client.call(tool, arguments);
        assert_eq!(code_of(&refused), Some("SCHEMA_INVALID"), "{refused}");
        assert_eq!(rule_of(&refused), Some("inputSchema"));
    }
    assert_eq!(place.received("strict", "tools/call").len(), 0);
    daemon.stop();
    place.assert_trail_is_sound();
}

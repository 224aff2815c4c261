//! Through the daemon, with the contract that ships: what is recorded, what is tried again, what
//! becomes a task.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use colibri_tests::remote::{Port, Request, answer};
use colibri_tests::{Client, LEGACY, Place, code_of, program};
use serde_json::{Value, json};

use super::stage::Stage;

/// A place whose server `git` is the adapter over the stage's repository, with the contract that
/// ships but for waits of a moment.
fn place(stage: &Stage, origin: &str) -> Place {
    place_of(stage, origin, |_, _| {})
}

/// The same with other words of the adapter's command line.
fn place_of(stage: &Stage, origin: &str, edit: impl Fn(&mut Vec<String>, &Place)) -> Place {
    let place = Place::new();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/contracts/git.json");
    let mut contract: Value = serde_json::from_slice(&fs::read(shipped).unwrap()).unwrap();
    for (_, term) in contract["tools"].as_object_mut().unwrap() {
        for (_, waits) in term
            .get_mut("retries")
            .and_then(Value::as_object_mut)
            .into_iter()
            .flatten()
        {
            assert_eq!(*waits, json!([200, 1000, 5000]));
            *waits = json!([1, 1, 1]);
        }
    }
    let path = place.path("contract.json");
    fs::write(&path, contract.to_string()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let mut args = stage.arguments();
    let at = args
        .iter()
        .position(|argument| argument == "--origin")
        .unwrap();
    args[at + 1] = origin.to_owned();
    edit(&mut args, &place);
    place.registry(
        &json!({ "git": { "command": program("colibri-mcp"), "args": args, "contract": path } }),
    );
    place
}

fn call(client: &mut Client, tool: &str, arguments: Value) -> Value {
    client.ask(
        "tools/call",
        json!({ "name": format!("git__{tool}"), "arguments": arguments }),
    )
}

fn done(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let answer = call(client, tool, arguments);
    assert!(answer["result"]["isError"] != true, "{tool}: {answer}");
    answer["result"]["structuredContent"].clone()
}

/// The details of the records of a kind.
fn told(place: &Place, event: &str) -> Vec<Value> {
    let records = place.trail();
    let of_it = records.iter().filter(|record| record["event"] == event);
    of_it.map(|record| record["details"].clone()).collect()
}

#[test]
fn branches_and_commits_are_recorded_and_a_refused_push_is_a_task() {
    let stage = Stage::new();
    let place = place(&stage, &stage.origin());
    let daemon = place.start(&["--write"]);
    let mut client = daemon.quiet(LEGACY);
    done(&mut client, "git_fetch", json!({}));
    let made = done(&mut client, "git_worktree_add", json!({ "slug": "p0.3.2" }));
    stage.write(&format!("{}/new", stage.tree("p0.3.2")), "x");
    let commit = json!({ "slug": "p0.3.2", "message": "Add new", "paths": ["."] });
    let committed = done(&mut client, "git_commit", commit.clone());
    assert_eq!(
        committed["sha"],
        stage.git("repo", &["rev-parse", "feature/p0.3.2"])
    );
    for (tool, arguments) in [
        ("git_status", json!({ "slug": "p0.3.2" })),
        (
            "git_diff",
            json!({ "slug": "p0.3.2", "against": "origin/main" }),
        ),
        ("git_log", json!({ "slug": "p0.3.2", "count": 5 })),
        ("git_log", json!({})),
        (
            "git_log",
            json!({ "slug": "p0.3.2", "paths": ["tab\there"] }),
        ),
        ("git_diff", json!({ "slug": "p0.3.2", "paths": ["new"] })),
        ("git_show", json!({ "commit": committed["sha"] })),
        ("git_blame", json!({ "slug": "p0.3.2", "path": "a.txt" })),
        ("git_worktrees", json!({})),
        (
            "git_update",
            json!({ "slug": "p0.3.2", "action": "rebase" }),
        ),
    ] {
        done(&mut client, tool, arguments);
    }
    let updates = told(&place, "vcs_update");
    assert_eq!(
        (updates.len(), &updates[0]["update"]),
        (1, &json!("current")),
        "{updates:?}"
    );
    done(&mut client, "git_worktree_add", json!({ "slug": "other" }));
    let removed = done(
        &mut client,
        "git_worktree_remove",
        json!({ "slug": "other" }),
    );
    let details = told(&place, "vcs_branch_removed");
    assert_eq!(
        (details.len(), &details[0]["sha"]),
        (1, &removed["sha"]),
        "{details:?}"
    );
    for (event, count, said) in [("vcs_branch", 2, &made), ("vcs_commit", 1, &committed)] {
        let details = told(&place, event);
        assert_eq!(details.len(), count, "{details:?}");
        assert_eq!(
            (&details[0]["branch"], &details[0]["sha"]),
            (&json!("feature/p0.3.2"), &said["sha"])
        );
        assert_eq!(
            (&details[0]["server"], details[0]["call"].is_u64()),
            (&json!("git"), true)
        );
    }

    // A push is refused, whatever else is said with it; twice is one task.
    let sha = &committed["sha"];
    let mut tasks = Vec::new();
    for more in [
        json!({}),
        json!({ "force": true, "remote": "ext::sh -c id" }),
    ] {
        let mut arguments = json!({ "branch": "feature/p0.3.2", "sha": sha });
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let answer = call(&mut client, "git_push", arguments);
        assert_eq!(code_of(&answer), Some("CONTRACT_DENIED"), "{answer}");
        let error = &answer["result"]["_meta"]["org.colibri/error"];
        tasks.push(
            error["deferred"]["task"]
                .as_u64()
                .unwrap_or_else(|| panic!("{answer}")),
        );
    }
    assert_eq!(tasks[0], tasks[1]);
    let details = told(&place, "vcs_push_refused");
    assert_eq!(details.len(), 2);
    assert_eq!(
        (&details[0]["branch"], &details[0]["sha"]),
        (&json!("feature/p0.3.2"), sha)
    );
    let task = client
        .call("colibri_get_task", json!({ "task": tasks[0] }))
        .to_string();
    assert!(
        task.contains("feature/p0.3.2") && task.contains("person"),
        "{task}"
    );
    assert_eq!(
        stage.git("origin.git", &["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main"
    );

    // What the contract says of messages and paths.
    for (key, value) in [
        (
            "message",
            json!("Add\n\nSigned-off-by: Linus <l@example.org>"),
        ),
        ("message", json!("Add\n\nco-authored-by: A <a@b>")),
        ("message", json!("Add [skip ci]")),
        ("message", json!("Add\n\nskip-checks: true")),
        ("message", json!("fixup! Add new")),
        ("message", json!("\n fixup! Add new")),
        ("message", json!("-----BEGIN OPENSSH PRIVATE KEY-----")),
        ("message", json!("x".repeat(5_001))),
        ("paths", json!(["/etc/passwd"])),
        ("paths", json!([".git/config"])),
        ("paths", json!(["a/../../b"])),
        ("slug", json!("../main")),
        ("slug", json!("x.lock")),
        ("amend", json!(true)),
    ] {
        let mut odd = commit.clone();
        odd[key] = value;
        let answer = call(&mut client, "git_commit", odd);
        assert_eq!(code_of(&answer), Some("CONTRACT_DENIED"), "{key}: {answer}");
    }
    for (tool, arguments) in [
        ("git_worktree_add", json!({ "slug": "y", "force": true })),
        ("git_fetch", json!({ "remote": "x" })),
        ("git_log", json!({ "count": 201 })),
        ("git_log", json!({ "paths": ["../x"] })),
        ("git_show", json!({ "commit": "--all" })),
        (
            "git_blame",
            json!({ "slug": "p0.3.2", "path": "/etc/passwd" }),
        ),
        (
            "git_worktree_remove",
            json!({ "slug": "p0.3.2", "discard": "yes" }),
        ),
        (
            "git_update",
            json!({ "slug": "p0.3.2", "action": "merge", "onto": "main" }),
        ),
        ("git_update", json!({ "slug": "p0.3.2", "action": "reset" })),
        (
            "git_diff",
            json!({ "slug": "p0.3.2", "against": "--output=x" }),
        ),
    ] {
        let answer = call(&mut client, tool, arguments);
        assert_eq!(
            code_of(&answer),
            Some("CONTRACT_DENIED"),
            "{tool}: {answer}"
        );
    }
    assert_eq!(told(&place, "vcs_commit").len(), 1);
    drop(daemon);
    place.assert_trail_is_sound();
}

#[test]
fn what_may_pass_is_tried_four_times_and_then_somebodys_task() {
    let stage = Stage::new();
    let port = Port::answering(|request: &Request, stream: &mut TcpStream| {
        let status = match &request.line {
            line if line.contains("/denied.git/") => "403 Forbidden",
            line if line.contains("/gone.git/") => "404 Not Found",
            _ => "503 Busy",
        };
        answer(stream, status, "", "")
    });
    for (path, code, attempts) in [
        ("/p.git", "GIT_UNREACHABLE", 4),
        ("/denied.git", "GIT_DENIED", 1),
        ("/gone.git", "GIT_FAILED", 1),
    ] {
        let place = place(&stage, &port.url(path));
        let daemon = place.start(&["--write"]);
        let mut client = daemon.quiet(LEGACY);
        let before = port.connections();
        let answer = call(&mut client, "git_fetch", json!({}));
        let said = &answer["result"]["structuredContent"];
        assert_eq!(said["error"]["code"], code, "{answer}");
        assert_eq!(port.connections() - before, attempts, "{code}");
        let records = place.trail();
        let retries: Vec<&Value> = records
            .iter()
            .filter(|record| record["kind"] == "retry")
            .collect();
        assert_eq!(retries.len(), attempts - 1, "{code}");
        assert!(
            retries.iter().all(|record| record["error_code"] == code),
            "{retries:?}"
        );
        assert!(said["deferred"]["task"].is_u64(), "{answer}");
        let class = if attempts > 1 {
            "transient"
        } else {
            "permanent"
        };
        let exit = records
            .iter()
            .rfind(|record| record["operation"] == "git_fetch")
            .unwrap();
        assert_eq!(
            (&exit["error_code"], &exit["error_class"]),
            (&json!(code), &json!(class)),
            "{exit}"
        );
    }
    // Where git is not connected, too, which nothing tries again that stays.
    let unconnected = place(&stage, &stage.origin());
    let daemon = unconnected.start(&["--write"]);
    let (refs, away) = (stage.path("repo/.git/refs"), stage.path("repo/.git/away"));
    std::fs::rename(&refs, &away).unwrap();
    let answer = call(&mut daemon.quiet(LEGACY), "git_fetch", json!({}));
    std::fs::rename(&away, &refs).unwrap();
    let said = &answer["result"]["structuredContent"];
    assert_eq!(said["error"]["code"], "INTEGRATION_UNAVAILABLE", "{answer}");
    assert!(said["deferred"]["task"].is_u64(), "{answer}");
    assert!(
        unconnected
            .trail()
            .iter()
            .all(|record| record["kind"] != "retry")
    );
    drop(daemon);
    // What passes is tried again: here git's program is being written.
    let busy = place_of(&stage, &stage.origin(), |args, place| {
        let own = place.path("git");
        let script = b"#!/bin/sh\n";
        fs::write(&own, script).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        let at = args
            .iter()
            .position(|argument| argument == "--git")
            .unwrap();
        args[at + 1] = own.display().to_string();
    });
    let writing = fs::OpenOptions::new()
        .append(true)
        .open(busy.path("git"))
        .unwrap();
    let daemon = busy.start(&["--write"]);
    let answer = call(&mut daemon.quiet(LEGACY), "git_fetch", json!({}));
    drop(writing);
    let said = &answer["result"]["structuredContent"];
    assert_eq!(
        (&said["error"]["code"], &said["error"]["transient"]),
        (&json!("INTEGRATION_UNAVAILABLE"), &json!(true)),
        "{answer}"
    );
    assert!(said["deferred"]["task"].is_u64(), "{answer}");
    let records = busy.trail();
    assert_eq!(
        records
            .iter()
            .filter(|record| record["kind"] == "retry")
            .count(),
        3
    );
    let exit = records
        .iter()
        .rfind(|record| record["operation"] == "git_fetch")
        .unwrap();
    assert_eq!(exit["error_class"], "transient", "{exit}");
    drop(daemon);
    let place = place(&stage, &stage.origin());
    let daemon = place.start(&["--write"]);
    let mut client = daemon.quiet(LEGACY);
    done(&mut client, "git_worktree_add", json!({ "slug": "x" }));
    stage.write(&format!("{}/new", stage.tree("x")), "x");
    stage.write("repo/.git/worktrees/x/index.lock", "");
    let answer = call(
        &mut client,
        "git_commit",
        json!({ "slug": "x", "message": "m", "paths": ["new"] }),
    );
    assert_eq!(
        answer["result"]["structuredContent"]["error"]["code"], "GIT_BUSY",
        "{answer}"
    );
    assert!(
        answer["result"]["structuredContent"]["deferred"]["task"].is_u64(),
        "{answer}"
    );
    let retries = place
        .trail()
        .into_iter()
        .filter(|record| record["kind"] == "retry")
        .count();
    assert_eq!(retries, 3);
    // What is refused as things stand is the adapter's own failure too.
    call(&mut client, "git_status", json!({ "slug": "none" }));
    let records = place.trail();
    let exit = records
        .iter()
        .rfind(|record| record["operation"] == "git_status")
        .unwrap();
    assert_eq!(
        (&exit["error_code"], &exit["error_class"]),
        (&json!("GIT_REFUSED"), &json!("permanent")),
        "{exit}"
    );
}

#[test]
fn a_wrong_command_line_is_the_operators_and_not_tried_again() {
    let place = Place::new();
    let args = [
        "integration",
        "git",
        "--repository",
        "/nowhere",
        "--origin",
        "ssh://h/p",
    ];
    place.registry(&json!({ "git": { "command": program("colibri-mcp"), "args": args } }));
    let daemon = place.start(&["--write"]);
    let mut client = daemon.quiet(LEGACY);
    let answer = call(&mut client, "git_fetch", json!({}));
    assert_eq!(code_of(&answer), Some("SERVER_UNSTARTABLE"), "{answer}");
    let text = answer.to_string();
    assert!(
        text.contains("exit status 64") && text.contains("--origin must begin with"),
        "{text}"
    );
    let is_retry = |record: &Value| record["kind"] == "retry";
    assert!(!place.trail().iter().any(is_retry));
}

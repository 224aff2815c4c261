//! Processes of servers: when they start, who shares one, how they end, what they are given.

use super::*;

#[test]
fn a_server_starts_at_its_first_use_and_ends_when_idle() {
    let place = Place::of_fixture(&[], json!({ "idle_timeout_s": 1 }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.call("colibri_status", json!({}));
    assert!(place.started("fix").is_empty());
    let first = text_of(&client.call("fix__pid", json!({}))).to_owned();
    daemon.wait_for_log("reason=\"idle\"");
    wait_for("the server's end", || {
        (!is_alive(first.parse().unwrap())).then_some(())
    });
    assert_eq!(daemon.server("fix")["state"], "stopped");
    let second = text_of(&client.call("fix__pid", json!({}))).to_owned();
    assert_ne!(first, second);
}

#[test]
fn a_crash_is_answered_and_followed_by_a_restart() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let first = text_of(&client.call("fix__pid", json!({}))).to_owned();
    let lost = client.call("fix__exit", json!({}));
    assert_eq!(code_of(&lost), Some("SERVER_DIED"), "{lost}");
    assert!(
        text_of(&lost).contains("the last words of the fixture"),
        "{lost}"
    );
    let second = client.call("fix__pid", json!({}));
    assert_ne!(second["isError"], true, "{second}");
    assert_ne!(text_of(&second), first);
    assert_eq!(daemon.server("fix")["state"], "ready");
}

#[test]
fn a_call_that_was_sent_is_never_sent_again() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let lost = client.call("fix__die_mid_answer", json!({}));
    // Its last words are an answer under this id that was cut off.
    assert_eq!(code_of(&lost), Some("SERVER_ANSWER_INVALID"), "{lost}");
    assert_eq!(place.received("fix", "die_mid_answer").len(), 1);
}

#[test]
fn backing_off_can_be_seen_with_its_reason() {
    let place = Place::new();
    place.registry(&json!({
        "bad": place.fixture("bad", &["--at-start", "exit"], json!({ "attempts": 1 })),
        "fix": place.fixture("fix", &[], json!({})),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let tools = client.tools();
    assert!(
        tools.contains(&"fix__pid".to_owned()),
        "one bad server hides no other: {tools:?}"
    );
    assert!(!tools.iter().any(|name| name.starts_with("bad__")));
    let call = json!({ "server": "bad", "tool": "pid", "arguments": {} });
    let refused = client.call("colibri_external_mcp_call_tool", call);
    assert_eq!(refused["isError"], true, "{refused}");
    let server = daemon.server("bad");
    assert_eq!(server["state"], "backing off", "{server}");
    let reason = server["reason"].as_str().unwrap();
    assert!(reason.contains("does not want to start"), "{reason}");
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
}

#[test]
fn a_server_that_never_gets_ready_times_out_and_hides_nobody() {
    let place = Place::new();
    place.registry(&json!({
        "mute": place.fixture("mute", &["--at-start", "silence"], json!({ "start_timeout_ms": 300, "attempts": 1 })),
        "fix": place.fixture("fix", &[], json!({})),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    assert!(client.tools().contains(&"fix__pid".to_owned()));
    wait_for("the time limit", || {
        let server = daemon.server("mute");
        server["reason"]
            .as_str()?
            .contains("start_timeout_ms")
            .then_some(())
    });
}

/// The processes that answer two connections, two calls each.
fn processes(daemon: &Daemon<'_>) -> Vec<String> {
    let mut clients = [daemon.legacy(LEGACY), daemon.modern()];
    let mut pids = Vec::new();
    for client in &mut clients {
        for _ in 0..2 {
            pids.push(text_of(&client.call("fix__pid", json!({}))).to_owned());
        }
    }
    pids
}

#[test]
fn isolation_decides_who_shares_a_process() {
    for (isolation, wanted) in [
        ("shared", [0, 0, 0, 0]),
        ("user", [0, 0, 0, 0]),
        ("client", [0, 0, 1, 1]),
        ("call", [0, 1, 2, 3]),
    ] {
        let place = Place::of_fixture(&[], json!({ "isolation": isolation }));
        let daemon = place.start(&[]);
        // So that no process is started for the list's sake.
        daemon.legacy(LEGACY).tools();
        let pids = processes(&daemon);
        let mut seen: Vec<&String> = Vec::new();
        let places = pids
            .iter()
            .map(|pid| match seen.iter().position(|other| *other == pid) {
                Some(at) => at,
                None => {
                    seen.push(pid);
                    seen.len() - 1
                }
            });
        assert_eq!(places.collect::<Vec<_>>(), wanted, "{isolation}: {pids:?}");
        // A process of one connection or one call goes with it.
        if matches!(isolation, "client" | "call") {
            for pid in &pids {
                wait_for("the process's end", || {
                    (!is_alive(pid.parse().unwrap())).then_some(())
                });
            }
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn users_do_not_share_processes() {
    let place = Place::of_fixture(&[], json!({}));
    place.open_to_group();
    let daemon = place.start(&[]);
    let own = text_of(&daemon.legacy(LEGACY).call("fix__pid", json!({}))).to_owned();
    let mut bridge = Bridge::start(place.stranger(&[]));
    let answer = bridge.call("fix__pid", json!({}));
    let other = text_of(&answer).to_owned();
    assert!(!other.is_empty() && other != own, "{answer}");
    let server = daemon.server("fix");
    let mut uids: Vec<_> = server["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["uid"].as_u64())
        .collect();
    uids.sort();
    assert_eq!(uids, [Some(0), Some(54_321)], "{server}");
    assert!(bridge.end().success());
}

#[test]
fn the_environment_of_a_server_is_built_and_secrets_stay_secret() {
    let place = Place::new();
    place.secret("token", "hunter2-hunter2");
    let env =
        json!({ "LOG": "warn", "TOKEN": { "secret": "token" }, "LD_LIBRARY_PATH": "/nowhere" });
    place.registry(&json!({ "fix": place.fixture("fix", &[], json!({ "env": env })) }));
    let daemon = place.start(&["--log-level", "debug"]);
    let mut client = daemon.legacy(LEGACY);
    let result = client.call("fix__environment", json!({}));
    let found: BTreeMap<String, String> = serde_json::from_str(text_of(&result)).unwrap();
    let home = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .unwrap()
        .unwrap()
        .dir;
    let home = home.to_string_lossy().into_owned();
    let wanted = [
        (
            "HOME",
            found
                .get("HOME")
                .filter(|found| **found == home || place.directory().ends_with(found))
                .cloned(),
        ),
        ("LANG", Some("C.UTF-8".to_owned())),
        ("LD_LIBRARY_PATH", Some("/nowhere".to_owned())),
        ("LOG", Some("warn".to_owned())),
        ("PATH", Some("/usr/local/bin:/usr/bin:/bin".to_owned())),
        ("TOKEN", Some("hunter2-hunter2".to_owned())),
    ];
    let wanted: BTreeMap<String, String> = wanted
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    assert_eq!(found, wanted);
    let snapshot = client.call("colibri_snapshot", json!({})).to_string();
    assert!(!snapshot.contains("hunter2") && !daemon.log().contains("hunter2"));
}

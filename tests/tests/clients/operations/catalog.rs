//! What is remembered of servers, and the names their tools get.

use super::*;

#[test]
fn lists_come_from_what_was_seen_last() {
    let place = Place::of_fixture(&["--tool", "extra"], json!({}));
    let daemon = place.start(&[]);
    let listed = daemon.legacy(LEGACY).tools();
    assert!(listed.contains(&"fix__extra".to_owned()), "{listed:?}");
    place.wait_for_state("fork_away");
    daemon.stop();
    let before = place.started("fix").len();
    let daemon = place.start(&[]);
    assert_eq!(daemon.legacy(LEGACY).tools(), listed);
    assert_eq!(daemon.modern().tools(), listed);
    assert_eq!(
        place.started("fix").len(),
        before,
        "a list started the server"
    );
    assert_eq!(daemon.server("fix")["state"], "stopped");
    daemon.assert_serves("fix__extra");
}

/// The first line that each process of the server received.
fn first_lines(place: &Place) -> Vec<String> {
    let record = place.record("fix");
    let first = |pid: &i32| {
        let mut lines = record
            .iter()
            .filter(|(other, kind, _)| other == pid && kind == "line");
        lines
            .next()
            .map(|(_, _, line)| String::from_utf8_lossy(line).into_owned())
    };
    place.started("fix").iter().filter_map(first).collect()
}

#[test]
fn the_era_of_a_server_is_found_once() {
    for (version, opening) in [
        (LEGACY, "\"initialize\""),
        ("2024-11-05", "\"initialize\""),
        (MODERN, "server/discover"),
    ] {
        let place = Place::of_fixture(&["--speak", version], json!({ "isolation": "call" }));
        let daemon = place.start(&[]);
        daemon.assert_serves("fix__pid");
        daemon.assert_serves("fix__pid");
        place.wait_for_state("fork_away");
        daemon.stop();
        let daemon = place.start(&[]);
        daemon.assert_serves("fix__pid");
        let lines = first_lines(&place);
        assert!(lines[0].contains("server/discover"), "{version}: {lines:?}");
        let (probe, others) = lines.split_at(1);
        assert!(
            others.iter().all(|line| line.contains(opening)),
            "{version}: {probe:?} {others:?}"
        );
        assert!(others.len() >= 2, "{version}: {lines:?}");
        drop(daemon);
    }
}

#[test]
fn a_legacy_server_may_die_of_being_asked_for_its_era() {
    let place = Place::of_fixture(&["--at-probe", "exit"], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    assert_eq!(place.started("fix").len(), 2);
    let server = daemon.server("fix");
    assert_eq!(server["state"], "ready", "{server}");
    assert_eq!(server["reason"], Value::Null, "{server}");
}

#[test]
fn a_server_that_changes_its_era_is_found_out_again() {
    let place = Place::of_fixture(&[], json!({}));
    let link = place.path("server");
    let script = |version: &str| {
        let fixture = colibri_tests::program("fixture-server");
        let text = format!(
            "#!/bin/sh\nexec {} \"$@\" --speak {version}\n",
            fixture.display()
        );
        let new = place.path("server.new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&new, &link).unwrap();
    };
    let mut entry = place.fixture("fix", &[], json!({ "isolation": "call" }));
    entry["command"] = json!(link);
    place.registry(&json!({ "fix": entry }));
    script(LEGACY);
    let daemon = place.start(&[]);
    daemon.assert_serves("fix__pid");
    script(MODERN);
    daemon.assert_serves("fix__pid");
    let mut client = daemon.modern();
    assert_ne!(client.call("fix__pid", json!({}))["isError"], true);
}

#[test]
fn changes_of_the_tools_are_told_to_both_eras() {
    for version in [LEGACY, MODERN] {
        let place = Place::of_fixture(&["--speak", version], json!({}));
        let daemon = place.start(&[]);
        let mut caller = daemon.legacy(LEGACY);
        caller.tools();
        let mut legacy = daemon.legacy("2024-11-05");
        assert!(!legacy.tools().contains(&"fix__new".to_owned()));
        let mut modern = daemon.modern();
        let wanted = json!({ "notifications": { "toolsListChanged": true } });
        let id = modern.request("subscriptions/listen", wanted);
        modern.notification("notifications/subscriptions/acknowledged");
        let mut silent = daemon.modern();
        silent.ask("server/discover", json!({}));
        caller.call(
            "fix__change_tools",
            json!({ "tools": ["new", "change_tools"] }),
        );
        // What the first look found may still be told of; only then comes the change.
        for client in [&mut legacy, &mut modern] {
            loop {
                let told = client.notification("notifications/tools/list_changed");
                if client.era == Era::Modern {
                    let meta = &told["params"]["_meta"];
                    assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], id, "{told}");
                }
                let tools = client.tools();
                if tools.contains(&"fix__new".to_owned()) {
                    assert!(!tools.contains(&"fix__pid".to_owned()), "{tools:?}");
                    break;
                }
            }
        }
        silent.ask("server/discover", json!({}));
        assert!(
            silent.others.is_empty(),
            "told without having asked: {:?}",
            silent.others
        );
        assert_eq!(text_of(&caller.call("fix__new", json!({}))), "this is new");
    }
}

#[test]
fn collisions_are_named_and_own_names_win() {
    let place = Place::new();
    let plain = json!({ "prefix": false });
    place.registry(&json!({
        "a": place.fixture("a", &["--only", "--tool", "search", "--tool", "colibri_status"], plain.clone()),
        "b": place.fixture("b", &["--only", "--tool", "search", "--tool", "read"], plain),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let tools = client.tools();
    assert_eq!(
        tools.iter().filter(|name| *name == "search").count(),
        1,
        "{tools:?}"
    );
    assert_eq!(
        tools
            .iter()
            .filter(|name| *name == "colibri_status")
            .count(),
        1,
        "{tools:?}"
    );
    assert_eq!(text_of(&client.call("read", json!({}))), "this is read");
    assert_eq!(text_of(&client.call("search", json!({}))), "this is search");
    assert_eq!(place.received("a", "\"search\"").len(), 1);
    let status = client.call("colibri_status", json!({})).to_string();
    assert!(
        status.contains("search of server b is not exposed"),
        "{status}"
    );
    assert!(
        status.contains("colibri_status of server a is not exposed"),
        "{status}"
    );
}

#[test]
fn strange_names_get_a_hash_and_keep_the_original() {
    let long = "n".repeat(100);
    let place = Place::of_fixture(
        &[
            "--only",
            "--tool",
            "lire.fichier",
            "--tool",
            &long,
            "--tool",
            "日本",
        ],
        json!({}),
    );
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let answer = client.ask("tools/list", json!({}));
    let tools: Vec<_> = answer["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    let mut found = 0;
    for original in ["lire.fichier", &long, "日本"] {
        let tool = tools
            .iter()
            .find(|tool| tool["_meta"]["org.colibri/name"] == original)
            .unwrap();
        let name = tool["name"].as_str().unwrap();
        assert!(name.starts_with("fix__") && name.len() <= 46, "{name}");
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
            "{name}"
        );
        assert_eq!(tool["title"], original);
        assert_eq!(tool["_meta"]["org.colibri/server"], "fix");
        assert_eq!(
            text_of(&client.call(name, json!({}))),
            format!("this is {original}")
        );
        found += 1;
    }
    assert_eq!(found, 3);
    assert!(
        tools
            .iter()
            .any(|tool| tool["name"] == "fix__lire_fichier_60488aac")
    );
}

#[test]
fn the_general_tool_relays_arguments_as_they_are() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let inner = r#"{ "b":1e400,"a":18446744073709551616, "s":"\ud800" }"#;
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{{"name":"colibri_external_mcp_call_tool","arguments":{{"server":"fix","arguments":{inner},"tool":"count"}}}}}}"#
    );
    client.send(line);
    let answer = client.answer(77);
    assert_eq!(text_of(&answer["result"]), "counted", "{answer}");
    let received = place.received("fix", "\"count\"").pop().unwrap();
    assert!(
        received.ends_with(&format!(
            r#""params":{{"name":"count","arguments":{inner}}}}}"#
        )),
        "{received}"
    );
    for (server, tool) in [("fix", "nothing"), ("nobody", "count")] {
        let call = json!({ "server": server, "tool": tool, "arguments": {} });
        let refused = client.call("colibri_external_mcp_call_tool", call);
        assert_eq!(code_of(&refused), Some("NO_SUCH_TOOL"), "{refused}");
    }
}

//! Reloading registry and client policy.

use super::*;

#[test]
fn a_bad_registry_keeps_the_old_one_and_says_why() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let pid = text_of(&client.call("fix__pid", json!({}))).to_owned();
    place.registry_text(r#"{"servers":{"fix":{"command":"/bin/sh","argz":[]}}}"#);
    daemon.reload();
    let status = client.call("colibri_status", json!({}));
    assert!(status.to_string().contains("argz"), "{status}");
    assert_eq!(text_of(&client.call("fix__pid", json!({}))), pid);
    place.registry(&json!({ "fix": place.fixture("fix", &[], json!({})) }));
    daemon.reload();
    let status = client.call("colibri_status", json!({}));
    assert!(!status.to_string().contains("argz"), "{status}");
    assert_eq!(
        text_of(&client.call("fix__pid", json!({}))),
        pid,
        "the same entry keeps its process"
    );
}

#[test]
fn removed_servers_end_after_their_calls() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let id = client.request_tool("fix__wait", json!({ "until": "removed" }));
    wait_for("the call", || place.received("fix", "\"wait\"").pop());
    place.registry(&json!({}));
    daemon.reload();
    client.notification("notifications/tools/list_changed");
    assert!(!client.tools().contains(&"fix__wait".to_owned()));
    let refused = client.ask("tools/call", json!({ "name": "fix__pid", "arguments": {} }));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    place.release("removed");
    assert_eq!(text_of(&client.answer(id)["result"]), "removed");
    for pid in place.started("fix") {
        wait_for("the server's end", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn changed_servers_restart_and_others_do_not() {
    let place = Place::new();
    let with = |word: &str| {
        json!({
            "fix": place.fixture("fix", &[], json!({ "env": { "WORD": word } })),
            "other": place.fixture("other", &[], json!({})),
        })
    };
    place.registry(&with("one"));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let mut look = || {
        let environment = client.call("fix__environment", json!({}));
        let environment: Value = serde_json::from_str(text_of(&environment)).unwrap();
        let other = text_of(&client.call("other__pid", json!({}))).to_owned();
        (environment["WORD"].as_str().unwrap().to_owned(), other)
    };
    let (word, other) = look();
    assert_eq!(word, "one");
    place.registry(&with("two"));
    daemon.reload();
    assert_eq!(look(), ("two".to_owned(), other));
}

#[test]
fn a_reload_takes_over_all_or_nothing_and_names_what_is_blocked() {
    let place = Place::of_fixture(&[], json!({}));
    let all = json!({ "others": { "gates": ["external-call"], "servers": { "*": ["*"] }, "operator": true } });
    place.clients(&all.to_string());
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    let two = json!({
        "fix": place.fixture("fix", &[], json!({})),
        "two": place.fixture("two", &[], json!({ "contract": place.path("no-such-contract") })),
    });
    place.registry(&two);
    place.clients(r#"{"users":{"root":{"operater":true}}}"#);
    let reload = || {
        let output = place.colibri_mcp(&["server", "reload"]).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    let (status, text) = reload();
    assert_eq!(status, Some(65), "{text}");
    assert!(
        text.contains("nothing was taken over") && text.contains("operator"),
        "{text}"
    );
    let servers = client
        .call("colibri_external_mcp_servers", json!({}))
        .to_string();
    assert!(!servers.contains("two"), "{servers}");
    let status = client.call("colibri_status", json!({})).to_string();
    assert!(status.contains("clients.json"), "{status}");
    place.clients(&all.to_string());
    let (status, text) = reload();
    assert_eq!(status, Some(0), "{text}");
    assert!(
        text.contains("two is blocked: its contract cannot be used"),
        "{text}"
    );
}

#[test]
fn a_policy_or_registry_that_is_gone_is_not_taken_for_none() {
    let place = hidden::place_with_a_hidden_server();
    let registry = place.path("external-mcp.json");
    let listed = |daemon: &Daemon<'_>| {
        let mut tools = daemon.legacy(LEGACY).tools();
        tools.retain(|tool| tool.ends_with("__echo"));
        tools
    };
    let daemon = place.start(&[]);
    assert_eq!(listed(&daemon), ["seen__echo"]);
    for name in ["clients.json", "external-mcp.json"] {
        let aside = place.path("aside");
        fs::rename(place.path(name), &aside).unwrap();
        daemon.reload();
        assert!(
            daemon
                .log()
                .contains(&format!("there is no {}", place.path(name).display()))
        );
        assert_eq!(listed(&daemon), ["seen__echo"], "without {name}");
        fs::rename(aside, place.path(name)).unwrap();
    }
    daemon.stop();
    // Nobody names the file any more, and it was there.
    fs::create_dir_all(place.path(".config/colibri")).unwrap();
    let default = place.path(".config/colibri/clients.json");
    fs::rename(place.path("clients.json"), &default).unwrap();
    let mistyped = place.path("mistyped.json").display().to_string();
    let aside = place.path("aside");
    for check in [&["--check"][..], &[]] {
        let (status, text) =
            place.refused(&[&["--clients", &mistyped][..], check, root_flag()].concat());
        assert_eq!(status, Some(78), "{text}");
        assert!(text.contains(&format!("there is no {mistyped}")), "{text}");
        fs::rename(&registry, &aside).unwrap();
        let (status, text) = place.refused(&[check, root_flag()].concat());
        assert_eq!(status, Some(78), "{text}");
        assert!(
            text.contains("external-mcp.json, which --external-config"),
            "{text}"
        );
        fs::rename(&aside, &registry).unwrap();
    }
    if cfg!(target_os = "freebsd") {
        // There the default path is the system's.
        return;
    }
    let daemon = place.start(&[]);
    assert_eq!(listed(&daemon), ["seen__echo"]);
    daemon.stop();
    fs::remove_file(&default).unwrap();
    for check in [&["--check"][..], &[]] {
        let (status, text) = place.refused(&[check, root_flag()].concat());
        assert_eq!(status, Some(78), "{text}");
        assert!(
            text.contains("clients.json is gone") && text.contains("files-in-force"),
            "{text}"
        );
    }
    // Said in so many words, it is left out.
    let memory = place.path("state/files-in-force");
    let kept = fs::read_to_string(&memory).unwrap();
    let rest: String = kept
        .lines()
        .filter(|line| !line.ends_with(".config/colibri/clients.json"))
        .collect();
    fs::write(&memory, rest).unwrap();
    let daemon = place.start(&[]);
    assert_eq!(listed(&daemon), ["hidden__echo", "seen__echo"]);
    daemon.stop();
}

/// The arenas of glibc's allocator beside its first: 64 MiB that are mapped where 64 MiB begin,
/// some for use and the rest set aside.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn arenas(daemon: &Daemon<'_>) -> usize {
    const ARENA: u64 = 64 << 20;
    let maps = fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).unwrap();
    let mut mappings = Vec::new();
    for line in maps.lines() {
        let (range, what) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        mappings.push((address(from), address(to), what[..4].to_owned()));
    }
    let is_arena = |pair: &&[(u64, u64, String)]| {
        let [(from, middle, used), (next, to, rest)] = pair else {
            return false;
        };
        from % ARENA == 0
            && middle == next
            && to - from == ARENA
            && used == "rw-p"
            && rest == "---p"
    };
    mappings.windows(2).filter(is_arena).count()
}

/// Each arena keeps what any thread freed in it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
#[cfg_attr(not(root), ignore = "needs root, to see the daemon's memory")]
fn no_thread_keeps_an_arena_of_memory_that_others_freed() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    daemon.assert_serves("fix__count");
    daemon.reload();
    daemon.assert_serves("fix__count");
    assert_eq!(arenas(&daemon), 0);
}

#[test]
fn other_limits_hold_from_the_next_start_which_a_reload_says() {
    let place = Place::new();
    place.limits(json!({ "calls_per_client": 9 }));
    let daemon = place.start(&[]);
    let reloaded = || {
        String::from_utf8(
            place
                .colibri_mcp(&["server", "reload"])
                .output()
                .unwrap()
                .stdout,
        )
        .unwrap()
    };
    assert_eq!(reloaded(), "Reloaded.\n");
    place.limits(json!({ "calls_per_client": 8 }));
    // As often as it is asked, until they hold.
    for _ in 0..2 {
        assert!(reloaded().contains("hold from the daemon's next start"));
    }
    daemon.wait_for_log("others than those that hold");
    place.limits(json!({ "calls_per_client": 0 }));
    let refused = place.colibri_mcp(&["server", "reload"]).output().unwrap();
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.contains("limits.calls_per_client: must be from 1 to"),
        "{refused}"
    );
    assert_eq!(place.refused(&["--check"]).0, Some(78));
    daemon.stop();
}

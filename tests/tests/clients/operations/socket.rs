//! The socket, the daemon's start and its end.

use super::*;

#[test]
fn a_stale_socket_is_replaced() {
    let place = Place::new();
    drop(UnixListener::bind(place.socket()).unwrap());
    let daemon = place.start(&[]);
    daemon.assert_serves("colibri_status");
    daemon.wait_for_log("replacing a stale socket");
}

#[test]
fn a_live_daemon_is_never_displaced() {
    let (place, other) = (Place::new(), Place::new());
    let daemon = place.start(&[]);
    let refused = other
        .command_at(&place.socket(), root_flag())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(69), "{text}");
    assert!(text.contains("already listens"), "{text}");
    // Nor may two daemons write one state.
    let elsewhere = place.path("elsewhere.sock");
    let refused = place.command_at(&elsewhere, root_flag()).output().unwrap();
    assert!(!refused.status.success() && !elsewhere.exists());
    daemon.assert_serves("colibri_status");
}

#[test]
fn what_is_no_socket_is_never_removed() {
    let place = Place::new();
    fs::write(place.socket(), "precious").unwrap();
    let (status, text) = place.refused(root_flag());
    assert_eq!(status, Some(69), "{text}");
    assert!(text.contains("no socket"), "{text}");
    assert_eq!(fs::read_to_string(place.socket()).unwrap(), "precious");
    fs::remove_file(place.socket()).unwrap();
    // Neither is a link, wherever it leads.
    let elsewhere = place.path("elsewhere.sock");
    drop(UnixListener::bind(&elsewhere).unwrap());
    std::os::unix::fs::symlink(&elsewhere, place.socket()).unwrap();
    assert_eq!(place.refused(root_flag()).0, Some(69));
    assert!(place.socket().is_symlink() && elsewhere.exists());
}

#[test]
fn the_socket_is_for_owner_and_group_alone() {
    let place = Place::new();
    let _daemon = place.start(&[]);
    let facts = || fs::symlink_metadata(place.socket()).unwrap();
    assert!(facts().file_type().is_socket());
    // It is there before it is opened to its group.
    wait_for("the socket's mode", || {
        (facts().permissions().mode() & 0o7777 == 0o660).then_some(())
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn root_is_refused_unless_allowed() {
    let place = Place::new();
    let (status, text) = place.refused(&[]);
    assert_eq!(status, Some(77), "{text}");
    assert!(text.contains("--allow-root"), "{text}");
    assert!(!place.socket().exists());
    let daemon = place.start(&[]);
    assert!(
        daemon.log().contains("--allow-root"),
        "no warning: {}",
        daemon.log()
    );
}

#[test]
fn check_tells_a_good_configuration_from_a_bad_one() {
    let place = Place::of_fixture(&[], json!({}));
    let (status, text) = place.refused(&["--check"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains(": 1 server, configuration"), "{text}");
    for bad in [
        r#"{"servers":{"a":{"command":"/bin/sh","jial":{"name":"x"}}}}"#,
        r#"{"servers":{"a":{"command":"/bin/sh"},"a":{"command":"/bin/sh"}}}"#,
        r#"{"servers":{"#,
        "",
    ] {
        place.registry_text(bad);
        let (status, text) = place.refused(&["--check"]);
        assert_eq!(status, Some(78), "{bad}: {text}");
        assert!(text.contains("external-mcp.json:1:"), "{bad}: {text}");
    }
    place.registry_text(r#"{"servers":{"a":{"command":"/bin/sh","jial":{"name":"x"}}}}"#);
    assert!(
        place.refused(&["--check"]).1.contains("jail"),
        "the nearest key is named"
    );
    // A daemon does not start with it either.
    assert_eq!(place.refused(root_flag()).0, Some(78));
    assert_eq!(place.refused(&["--timeout", "0"]).0, Some(64));
    assert!(!place.socket().exists());
}

#[test]
fn a_variable_that_is_empty_is_one_that_is_not_set() {
    let place = Place::of_fixture(&[], json!({}));
    // Those that the manual page names, which is compared with --help elsewhere.
    let page = include_str!("../../../../docs/man/colibri-mcpd.8");
    let lines = page.lines().filter_map(|line| line.strip_prefix(".It Ev "));
    let variables: Vec<&str> = lines.flat_map(|line| line.split(" , ")).collect();
    assert!(
        variables.len() > 20 && variables.contains(&"COLIBRI_MCP_TIMEOUT"),
        "{variables:?}"
    );
    for variable in &variables {
        let output = place
            .command(&["--check"])
            .env(variable, "")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{variable}: {said}");
    }
    let mut all = place.command(&["--check"]);
    all.envs(variables.iter().map(|variable| (variable, "")));
    assert_eq!(all.output().unwrap().status.code(), Some(0));
    // The client's own.
    let socket = place.socket();
    for variable in [
        "COLIBRI_MCP_WRITE",
        "COLIBRI_MCP_EXTERNAL_CALL",
        "COLIBRI_MCP_EXTERNAL_CONFIG",
        "COLIBRI_STATE_DIR",
    ] {
        let output = place
            .colibri_mcp(&["trail", "show"])
            .env(variable, "")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_ne!(
            output.status.code(),
            Some(64),
            "{variable} at {}: {said}",
            socket.display()
        );
    }
}

#[test]
fn a_registry_that_others_could_change_is_refused() {
    let place = Place::of_fixture(&[], json!({}));
    let path = place.path("external-mcp.json");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let (status, text) = place.refused(&["--check"]);
    assert_eq!(status, Some(78), "{text}");
    assert!(text.contains("chmod"), "{text}");
}

#[test]
fn sigterm_waits_for_calls_in_flight_and_leaves_nothing() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let place = Place::of_fixture(&[], json!({}));
        let mut daemon = place.start(&[]);
        let mut client = daemon.quiet(LEGACY);
        let id = client.request_tool("fix__wait", json!({ "until": "told" }));
        wait_for("the call", || place.received("fix", "\"wait\"").pop());
        daemon.signal(signal);
        daemon.wait_for_log("ending clients=");
        // Whoever asks now is told why not, whatever it is.
        for (method, params) in [
            ("ping", json!({})),
            ("tools/call", json!({ "name": "fix__pid" })),
        ] {
            let late = client.request(method, params);
            let answer = client.answer(late);
            assert_eq!(
                answer["error"]["data"]["code"], "DAEMON_STOPPING",
                "{answer}"
            );
        }
        place.release("told");
        let answer = client.answer(id);
        assert_eq!(text_of(&answer["result"]), "told", "{answer}");
        assert_eq!(client.read(), None);
        assert!(daemon.wait().success());
        assert!(!place.socket().exists());
    }
}

#[test]
fn a_supervisor_that_was_stopped_ends_its_server_with_the_daemon() {
    let place = Place::of_fixture(&[], json!({}));
    let mut daemon = place.start(&[]);
    daemon.assert_serves("fix__count");
    let supervisor = daemon.server("fix")["processes"][0]["pid"]
        .as_i64()
        .unwrap();
    kill(Pid::from_raw(supervisor as i32), Signal::SIGSTOP).unwrap();
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    // That no process is left is looked at where the daemon is dropped.
    let log = daemon.log();
    assert!(!log.contains("given up"), "{log}");
}

#[test]
fn sigterm_gives_up_calls_that_never_end() {
    let place = Place::of_fixture(&[], json!({}));
    let mut daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let id = client.request_tool("fix__never", json!({}));
    wait_for("the call", || place.received("fix", "\"never\"").pop());
    daemon.signal(Signal::SIGTERM);
    let answer = client.answer(id);
    assert_eq!(code_of(&answer), Some("DAEMON_STOPPING"), "{answer}");
    assert!(answer.to_string().contains("is not known"), "{answer}");
    assert_eq!(client.read(), None);
    assert!(daemon.wait().success());
    assert!(!place.socket().exists());
    let cancelled = place.received("fix", "notifications/cancelled");
    assert_eq!(
        cancelled.len(),
        1,
        "the server was told before its input was closed: {cancelled:?}"
    );
}

#[test]
fn sigterm_closes_subscriptions_with_a_result() {
    let place = Place::new();
    let mut daemon = place.start(&[]);
    let mut client = daemon.modern();
    let id = client.request(
        "subscriptions/listen",
        json!({ "notifications": { "toolsListChanged": true } }),
    );
    client.notification("notifications/subscriptions/acknowledged");
    daemon.signal(Signal::SIGTERM);
    let answer = client.answer(id);
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert!(daemon.wait().success());
}

#[test]
fn sigkill_of_the_daemon_leaves_no_server() {
    let place = Place::new();
    place.registry(&json!({
        "fix": place.fixture("fix", &[], json!({})),
        "stubborn": place.fixture("stubborn", &["--at-eof", "stay"], json!({})),
        "forking": place.fixture("forking", &[], json!({})),
    }));
    let daemon = place.start(&[]);
    for tool in ["fix__pid", "stubborn__pid", "forking__fork_away"] {
        daemon.assert_serves(tool);
    }
    // Checks that nothing is left.
    daemon.kill();
    assert!(place.socket().exists(), "nobody could remove the socket");
    let daemon = place.start(&[]);
    daemon.assert_serves("fix__pid");
}

#[test]
fn check_tells_what_single_servers_lack() {
    let place = Place::new();
    place.registry(&json!({
        "good": { "command": "/bin/sh" },
        "gone": { "command": "/no/such/program" },
        "nowhere": { "command": "/bin/sh", "cwd": "/no/such/directory" },
        "secretive": { "command": "/bin/sh", "env": { "TOKEN": { "secret": "missing" } } },
        "off": { "command": "/no/such/program", "disabled": true },
        "pasted_one": { "command": "npx" },
    }));
    let (status, text) = place.refused(&["--check"]);
    assert_eq!(status, Some(0), "{text}");
    let line = |id: &str| {
        text.lines()
            .find(|line| line.contains(&format!("server {id} ")))
            .unwrap_or_default()
    };
    assert!(
        line("gone").contains("would not start: cannot run /no/such/program"),
        "{text}"
    );
    assert!(line("nowhere").contains("/no/such/directory"), "{text}");
    assert!(line("secretive").contains("daemon-secrets"), "{text}");
    assert!(
        line("pasted_one").contains("would be blocked") && line("pasted_one").contains("rename it"),
        "{text}"
    );
    assert_eq!((line("good"), line("off")), ("", ""), "{text}");
    assert!(
        text.contains("6 servers, 1 of them disabled, 1 of them blocked, configuration is good"),
        "{text}"
    );
}

#[test]
fn check_names_an_open_quote_and_a_group_that_is_not_there() {
    let place = Place::new();
    place.registry_text("{\"servers\":{\"a\":{\"command\":\"/bin/sh,\n\"args\":[]}}}");
    let (status, text) = place.refused(&["--check"]);
    assert_eq!(status, Some(78), "{text}");
    assert!(
        text.contains("1:28") && text.contains("not closed"),
        "{text}"
    );
    place.registry(&json!({}));
    let (status, text) = place.refused(&["--check", "--socket-group", "no-such-group"]);
    assert_eq!(status, Some(78), "{text}");
    assert!(text.contains("no-such-group"), "{text}");
    let own = nix::unistd::Group::from_gid(nix::unistd::getegid())
        .unwrap()
        .unwrap()
        .name;
    let (status, text) = place.refused(&["--check", "--socket-group", &own]);
    assert_eq!(status, Some(0), "{text}");
}

#[cfg_attr(not(root), ignore = "needs root")]
#[test]
fn a_socket_group_that_changed_is_told() {
    let place = Place::new();
    let own = nix::unistd::Group::from_gid(nix::unistd::getegid())
        .unwrap()
        .unwrap()
        .name;
    let daemon = place.start(&["--socket-group", &own]);
    assert!(!daemon.log().contains("has the group"), "{}", daemon.log());
    std::os::unix::fs::chown(place.directory(), None, Some(54_321)).unwrap();
    daemon.reload();
    daemon.wait_for_log("has the group 54321");
    let (status, text) = place.refused(&["--check", "--socket-group", &own]);
    assert_eq!(status, Some(78), "{text}");
    assert!(text.contains("54321") && text.contains("chgrp"), "{text}");
    daemon.stop();
}

#[test]
fn a_second_daemon_says_that_one_runs() {
    let place = Place::new();
    let daemon = place.start(&[]);
    let other = place.path("other.sock");
    let output = place.command_at(&other, root_flag()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(69), "{text}");
    assert!(text.contains("already running"), "{text}");
    daemon.stop();
}

#[cfg_attr(not(root), ignore = "needs root")]
#[test]
fn a_start_on_a_full_disk_says_what_and_where_and_what_to_do() {
    let place = Place::new();
    let state = place.path("state");
    fs::create_dir(&state).unwrap();
    let mount = |arguments: &[&str]| {
        let status = std::process::Command::new(arguments[0])
            .args(&arguments[1..])
            .arg(&state)
            .status();
        assert!(status.unwrap().success(), "{arguments:?}");
    };
    // The trail has its place, the database none.
    mount(&["mount", "-t", "tmpfs", "-o", "size=48k,mode=0700", "tmpfs"]);
    let (status, text) = place.refused(root_flag());
    mount(&["umount", "-l"]);
    assert_eq!(status, Some(78), "{text}");
    assert!(
        text.contains("colibri.db") && text.contains("free space"),
        "{text}"
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_registry_or_client_policy_of_another_owner_is_refused() {
    let place = Place::of_fixture(&[], json!({}));
    let clients = place.path("clients.json");
    fs::write(&clients, "{}").unwrap();
    fs::set_permissions(&clients, fs::Permissions::from_mode(0o600)).unwrap();
    let flags = ["--check", "--allow-root"];
    for file in [clients.clone(), place.path("external-mcp.json")] {
        std::os::unix::fs::chown(&file, Some(12345), None).unwrap();
        let (status, text) = place.refused(&flags);
        assert_eq!(status, Some(78), "{text}");
        assert!(
            text.contains("owner") && text.contains(file.to_str().unwrap()),
            "{text}"
        );
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
    }
    assert_eq!(place.refused(&flags).0, Some(0));
}

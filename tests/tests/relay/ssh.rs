//! Servers of another host, through a real sshd(8): two daemons, two trails, and what stands in the
//! way.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use colibri_tests::{LEGACY, MODERN, Place, Sshd, processes_with, program, text_of, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Debian's user for what nobody owns: another one than the tester's, where that is root.
fn other_user() -> Option<u32> {
    nix::unistd::geteuid().is_root().then_some(65_534)
}

/// The other host: a place with a server `git` that has a contract.
fn build1() -> Place {
    let place = Place::new();
    let words = json!({ "type": "object", "properties": { "text": { "type": "string", "pattern": "^[a-z]*$" } } });
    let contract = json!({ "tools": {
        "echo": { "when": words, "reason": "build1 takes plain words" },
        "count": { "allow": "it counts" }, "wait": { "allow": "it waits" } } });
    let path = place.path("contract.json");
    fs::write(&path, contract.to_string()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    place.registry(
        &json!({ "git": place.fixture("git", &["--speak", MODERN], json!({ "contract": path })) }),
    );
    place
}

/// The forced command of a key that reaches this server of the other host.
fn gate(place: &Place, server: &str) -> String {
    let program = program("colibri-mcp");
    format!(
        "{} --socket {} ssh-gate {server}",
        program.display(),
        place.socket().display()
    )
}

fn entry(config: &Path, more: Value) -> Value {
    let mut entry = json!({ "ssh": { "host": "build1", "server": "git", "config": config } });
    for (key, value) in more.as_object().into_iter().flatten() {
        entry[key] = value.clone();
    }
    entry
}

/// This host, as another user where the test may choose one, with these servers.
fn here(sshd: &Sshd, servers: &Value) -> Place {
    let place = Place::of_user(other_user());
    place.registry(servers);
    if let Some(uid) = other_user() {
        for file in fs::read_dir(sshd.directory()).unwrap().flatten() {
            std::os::unix::fs::chown(file.path(), Some(uid), Some(uid)).unwrap();
        }
        // sshd's host key stays root's, as sshd wants it.
        std::os::unix::fs::chown(sshd.directory().join("host"), Some(0), Some(0)).unwrap();
        std::os::unix::fs::chown(sshd.directory().join("authorized_keys"), Some(0), Some(0))
            .unwrap();
    }
    place
}

fn origin(place: &Place) -> String {
    let key = fs::read_to_string(place.path("state/trail.pub")).unwrap();
    key.split('+').next().unwrap().to_owned()
}

/// The pairs of records of calls of this tool: where the call entered, for its real target, and
/// where it ended.
fn calls(place: &Place, tool: &str) -> Vec<(Value, Value)> {
    let records = place.trail();
    let of_tool = |record: &&Value| record["kind"] == "enter" && record["tool"] == tool;
    let is_end = |record: &Value, n: &Value| record["kind"] == "exit" && record["enter"] == *n;
    let pair = |enter: &Value| {
        Some((
            enter.clone(),
            records
                .iter()
                .find(|record| is_end(record, &enter["n"]))?
                .clone(),
        ))
    };
    records.iter().filter(of_tool).filter_map(pair).collect()
}

/// Show 3 of the many hosts: a call through ssh, one that the other's policy refuses, and both
/// trails.
#[test]
#[cfg_attr(not(sshd), ignore = "needs openssh-server")]
fn two_hosts_record_a_call_under_each_others_numbers() {
    let there = build1();
    let daemon_there = there.start(&[]);
    let sshd = Sshd::start(&[("user", &gate(&there, "git"))]);
    let config = sshd.config("user", "known_hosts", "");
    let here = here(&sshd, &json!({ "there": entry(&config, json!({})) }));
    let daemon_here = here.start(&[]);
    for mut client in [daemon_here.legacy(LEGACY), daemon_here.modern()] {
        let answer = client.call("there__echo", json!({ "text": "plain" }));
        assert_eq!(
            text_of(&answer),
            r#"{"text":"plain"}"#,
            "{answer}\n{}",
            sshd.log()
        );
        assert!(
            !answer.to_string().contains("org.colibri/record"),
            "{answer}"
        );
        let refused = client.call("there__echo", json!({ "text": "NOT PLAIN" }));
        assert!(
            text_of(&refused).starts_with("CONTRACT_DENIED"),
            "{refused}"
        );
        assert!(
            text_of(&refused).contains("build1 takes plain words"),
            "{refused}"
        );
    }
    let (ours, theirs) = (calls(&here, "echo"), calls(&there, "echo"));
    assert_eq!((ours.len(), theirs.len()), (4, 4));
    for ((enter, exit), (enter_there, exit_there)) in ours.iter().zip(&theirs) {
        assert_eq!(
            exit["remote"],
            json!({ "origin": origin(&there), "n": enter_there["n"] })
        );
        assert_eq!(
            enter_there["caller"],
            json!({ "origin": origin(&here), "n": enter["n"] })
        );
        assert_eq!(exit["result"], exit_there["result"]);
        assert!(enter.get("caller").is_none() && exit_there.get("remote").is_none());
    }
    assert_eq!(ours[1].1["result"], "FAIL");
    assert_eq!(theirs[1].1["error_code"], "CONTRACT_DENIED");
    // A client that says it has a record learns ours, and a server that says so teaches nobody.
    let mut client = daemon_there.legacy(LEGACY);
    let meta = json!({ "org.colibri/record": { "origin": "elsewhere", "n": 77 } });
    let params = json!({ "name": "git__echo", "arguments": {}, "_meta": meta });
    let answer = client.ask("tools/call", params);
    let (enter, _) = calls(&there, "echo").pop().unwrap();
    assert_eq!(
        answer["result"]["_meta"]["org.colibri/record"]["n"], enter["n"],
        "{answer}"
    );
    assert_eq!(enter["caller"], json!({ "origin": "elsewhere", "n": 77 }));
    // The table says as whom the other host sees them all.
    let elsewhere = json!({ "host": "build1", "server": "git", "keys": false });
    assert_eq!(daemon_here.server("there")["elsewhere"], elsewhere);
    let status = here.colibri_mcp(&["status"]).output().unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.contains("ssh build1 (git)") && status.contains("client for all"),
        "{status}"
    );
    here.assert_trail_is_sound();
    there.assert_trail_is_sound();
    daemon_here.stop();
    daemon_there.stop();
}

/// A file of ssh_config(5) that wants all that it can want, and a host with a banner: the call is
/// made, and nothing else.
#[test]
#[cfg_attr(not(sshd), ignore = "needs openssh-server")]
fn a_hostile_configuration_gets_nothing() {
    let there = build1();
    let daemon_there = there.start(&[]);
    let sshd = Sshd::start(&[("user", &gate(&there, "git"))]);
    let bait = sshd.directory().join("bait");
    let more = format!(
        "StrictHostKeyChecking no\nBatchMode no\nPermitLocalCommand yes\nLocalCommand touch {0}\nRemoteCommand touch {0}\n\
         RequestTTY force\nForwardAgent yes\nForwardX11 yes\nLocalForward 127.0.0.1:1 127.0.0.1:2\n\
         RemoteForward 127.0.0.1:3 127.0.0.1:4\nExitOnForwardFailure yes\nControlMaster auto\nControlPath {0}.mux\n\
         ControlPersist yes\nForkAfterAuthentication yes\nStdinNull yes\nSessionType none\nEscapeChar ~\nTunnel yes\n\
         UpdateHostKeys yes\nKnownHostsCommand /usr/bin/touch {0}\nSendEnv *\nLogLevel DEBUG3\nAddKeysToAgent yes\n",
        bait.display()
    );
    let config = sshd.config("user", "known_hosts", &more);
    let unknown = sshd.config("user", "no_hosts", &more);
    let here = here(
        &sshd,
        &json!({ "there": entry(&config, json!({})), "unknown": entry(&unknown, json!({})) }),
    );
    let daemon_here = here.start(&[]);
    let mut client = daemon_here.legacy(LEGACY);
    assert_eq!(
        text_of(&client.call("there__count", json!({}))),
        "counted",
        "{}",
        sshd.log()
    );
    let refused = client.call("unknown__count", json!({}));
    assert!(
        refused.to_string().contains("ssh-keyscan build1"),
        "{refused}"
    );
    assert!(!bait.exists() && !sshd.directory().join("bait.mux").exists());
    daemon_here.stop();
    daemon_there.stop();
}

/// Whatever stands in the way says what, where and what to do, and no call hangs.
#[test]
#[cfg_attr(not(sshd), ignore = "needs openssh-server")]
fn each_failure_is_named_with_its_remedy() {
    let there = build1();
    let daemon_there = there.start(&[]);
    let old = "echo 'this SSH key may only start the bridge' >&2; exit 77";
    let keys = [
        ("user", &*gate(&there, "git")),
        ("password", ""),
        ("missing", "/nonexistent/colibri-mcp ssh-gate git"),
        ("older", old),
        ("docs", &*gate(&there, "docs")),
        ("any", &*gate(&there, "")),
        ("silent", "exec cat >/dev/null"),
        ("garbage", "yes '{]' | head -c 200000; exec cat >/dev/null"),
        ("endless", "exec cat /dev/zero"),
    ];
    let sshd = Sshd::start(&keys);
    let brief = json!({ "start_timeout_ms": 4000, "attempts": 1 });
    let mut servers = json!({});
    let mut wanted = vec![
        (
            "changed",
            sshd.config("user", "changed_hosts", ""),
            "fingerprint",
        ),
        (
            "unknown",
            sshd.config("user", "no_hosts", ""),
            "known_hosts",
        ),
        (
            "closed",
            sshd.directory().join("closed"),
            "build1 was not reached",
        ),
    ];
    fs::write(
        sshd.directory().join("closed"),
        "Host build1\nHostName 127.0.0.1\nPort 1\n",
    )
    .unwrap();
    for (key, remedy) in [
        ("password", "passwords are never asked for"),
        ("missing", "install it there"),
        ("older", "older than"),
        ("docs", "names another one"),
        ("silent", "said nothing of MCP"),
        ("garbage", "said nothing of MCP"),
        ("endless", "does not end"),
    ] {
        wanted.push((key, sshd.config(key, "known_hosts", ""), remedy));
    }
    for (id, config, _) in &wanted {
        servers[*id] = entry(config, brief.clone());
    }
    servers["endless"]["start_timeout_ms"] = json!(60_000);
    let mut hidden = entry(&sshd.config("any", "known_hosts", ""), brief.clone());
    hidden["ssh"]["server"] = json!("hidden");
    servers["hidden"] = hidden;
    let mut lost = entry(&sshd.config("user", "known_hosts", ""), brief.clone());
    lost["ssh"]["server"] = json!("git");
    servers["lost"] = lost;
    let here = here(&sshd, &servers);
    let daemon_here = here.start(&[]);
    let mut client = daemon_here.legacy(LEGACY);
    for (id, _, remedy) in &wanted {
        let refused = client.call(&format!("{id}__count"), json!({}));
        assert!(
            text_of(&refused).contains(remedy),
            "{id}: {refused}\n{}",
            sshd.log()
        );
        assert!(
            text_of(&refused).contains("build1") || *id == "endless",
            "{id}: {refused}"
        );
    }
    let refused = client.call("hidden__count", json!({}));
    assert!(text_of(&refused).contains("that you may see"), "{refused}");
    // The host goes away in the middle of a call.
    assert_eq!(text_of(&client.call("lost__count", json!({}))), "counted");
    let waiting = client.request_tool("lost__wait", json!({ "until": "never" }));
    wait_for("the call there", || there.received("git", "\"wait\"").pop());
    // This daemon's gates alone.
    for (pid, _) in processes_with(&format!("{} ssh-gate git", there.socket().display())) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let answer = client.answer(waiting);
    let text = answer.to_string();
    assert!(
        text.contains("the call was lost") && text.contains("build1 was not reached"),
        "{text}"
    );
    // And is there again for the next one.
    assert_eq!(text_of(&client.call("lost__count", json!({}))), "counted");
    there.release("never");
    daemon_here.stop();
    daemon_there.stop();
}

/// A key a user: each is seen under their own, and who has none is told.
#[test]
#[cfg_attr(not(sshd), ignore = "needs openssh-server")]
fn each_user_shows_their_own_key() {
    let there = build1();
    let daemon_there = there.start(&[]);
    let sshd = Sshd::start(&[("user", &gate(&there, "git")), ("password", "")]);
    // The file names a key that is not taken there.
    let config = sshd.config("password", "known_hosts", "");
    let keys = sshd.directory().join("keys");
    fs::create_dir(&keys).unwrap();
    let mut own = entry(&config, json!({ "attempts": 1 }));
    own["ssh"]["keys"] = json!(keys);
    let here = here(&sshd, &json!({ "there": own }));
    let daemon_here = here.start(&[]);
    let refused = daemon_here.legacy(LEGACY).call("there__count", json!({}));
    assert!(
        text_of(&refused).contains("has no key for build1"),
        "{refused}"
    );
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .unwrap()
        .unwrap();
    let key = keys.join(&user.name);
    fs::copy(sshd.directory().join("user"), &key).unwrap();
    if let Some(uid) = other_user() {
        std::os::unix::fs::chown(&key, Some(uid), Some(uid)).unwrap();
    }
    wait_for("the server's next start", || {
        let answer = daemon_here.legacy(LEGACY).call("there__count", json!({}));
        (text_of(&answer) == "counted").then_some(())
    });
    assert_eq!(daemon_here.server("there")["elsewhere"]["keys"], true);
    daemon_here.stop();
    daemon_there.stop();
}

#[test]
fn an_address_becomes_an_entry() {
    let place = Place::new();
    let home = |args: &[&str]| {
        let mut command = place.colibri_mcp(args);
        let output = command.env("COLIBRI_MCP_END_IDLE", "1").output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    for wrong in [
        "ssh://build1",
        "ssh://a@build1/git",
        "ssh://-oX=y/git",
        "ssh://build1/Git",
        "ssh://build1:22/git",
    ] {
        let said = home(&["add", wrong, "--yes"]);
        assert!(
            said.contains("ssh://HOST/SERVER") || said.contains("a server's id is"),
            "{wrong}: {said}"
        );
    }
    let said = home(&["add", "git"]);
    assert!(said.contains("ssh://HOST/ID"), "{said}");
    let said = home(&["add", "ssh://build1.invalid/git", "--yes"]);
    let written = fs::read_to_string(place.path(".config/colibri/external-mcp.json"))
        .unwrap_or_else(|_| panic!("{said}"));
    let written: Value = serde_json::from_str(&written).unwrap();
    let ssh = json!({ "host": "build1.invalid", "server": "git" });
    assert_eq!(written["servers"]["git"]["ssh"], ssh, "{written}");
    assert!(said.contains("known_hosts"), "{said}");
}

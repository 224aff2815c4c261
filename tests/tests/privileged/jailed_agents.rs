//! Agents inside the development sandbox, started by the installed set-user-ID helper: what one
//! gets, its door, what the helper refuses of a door, and what an agent that is hostile reaches:
//! nothing.
#![cfg(target_os = "linux")]
// Helpers outside #[test] functions are tests too.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use colibri_tests::installed::*;
use colibri_tests::program;
use nix::sys::stat::Mode;

/// Answers the first who comes to a door.
fn answer(door: &Door, with: &str) -> String {
    door.listener.set_nonblocking(true).unwrap();
    let mut came = None;
    until("somebody at the door", || {
        came = door.listener.accept().ok();
        came.is_some()
    });
    let (stream, _) = came.unwrap();
    stream.set_nonblocking(false).unwrap();
    let mut asked = String::new();
    BufReader::new(&stream).read_line(&mut asked).unwrap();
    (&stream).write_all(format!("{with}\n").as_bytes()).unwrap();
    asked
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_agent_talks_through_its_door_and_to_itself() {
    let mut system = Installed::set_up();
    for (keys, loopback) in [("", "loopback false"), (MODEL, "loopback true")] {
        system.write_registry(&agent_of(r#"["agent"]"#, keys));
        let (call, session, door) = system.run_agent("one");
        let mut running = call.start();
        running.await_output("input");
        assert_eq!(answer(&door, "build it"), "what shall I do?\n");
        let told = running.await_output("loopback ");
        assert!(told.starts_with("input \"\"\ntold build it\n"), "{told}");
        running.await_output(loopback);
        let outcome = running.end();
        assert_eq!(outcome.code(), Some(0), "{outcome:?}");
        assert_eq!(outcome.stderr, "helper: started jid=0\n");
        let audit = system.audit();
        assert!(
            audit[0].contains("event=start entry=one") && audit[0].contains(&session),
            "{audit:?}"
        );
        assert!(audit[1].contains("left=nothing"), "{audit:?}");
        assert!(
            names_in(door.directory.to_str().unwrap()) == ["colibri.sock"],
            "the door stays as it was"
        );
        system.assert_nothing_left("agent");
    }
}

/// Asserts that a start is refused at its door, after this was done to it.
fn assert_door_refused(
    system: &mut Installed,
    what: &str,
    word: &str,
    spoil: impl FnOnce(&Installed, &Path),
) {
    system.write_registry(&agent_of(r#"["agent"]"#, ""));
    let (call, _, door) = system.run_agent("one");
    spoil(system, &door.directory);
    let outcome = system.assert_refused(what, call, FILE, "rule 'door'");
    assert!(outcome.stderr.contains(word), "{what}: {outcome:?}");
    let named = ["secret-name", "passwd"]
        .iter()
        .any(|name| outcome.stderr.contains(name));
    assert!(
        !named,
        "{what}: what is in the caller's directory is not told: {outcome:?}"
    );
    remove(&Path::new(RUN).join("doors"));
}

/// Moves a path aside and puts a link to `to` in its place.
fn replaced_by_link(path: &Path, to: &Path) {
    fs::rename(path, aside(path)).unwrap();
    link(to.to_str().unwrap(), path);
}

fn aside(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.aside", path.display()))
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_door_that_is_missing_is_refused() {
    let mut system = Installed::set_up();
    assert_door_refused(&mut system, "no door", "does not exist", |_, door| {
        remove(door)
    });
    assert_door_refused(&mut system, "no doors", "does not exist", |_, door| {
        remove(door.parent().unwrap())
    });
    let as_file = |_: &Installed, door: &Path| {
        remove(door);
        fs::write(door, b"x").unwrap();
    };
    assert_door_refused(&mut system, "a file", "not a directory", as_file);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_door_behind_a_symlink_is_refused() {
    let mut system = Installed::set_up();
    let elsewhere = |_: &Installed, door: &Path| replaced_by_link(door, Path::new("/etc"));
    assert_door_refused(&mut system, "the session, to /etc", "symlink", elsewhere);
    let itself = |_: &Installed, door: &Path| replaced_by_link(door, &aside(door));
    assert_door_refused(
        &mut system,
        "the session, to a good door",
        "symlink",
        itself,
    );
    let doors = |_: &Installed, door: &Path| {
        let doors = door.parent().unwrap();
        replaced_by_link(doors, &aside(doors));
    };
    assert_door_refused(&mut system, "doors", "symlink", doors);
    remove(&aside(&Path::new(RUN).join("doors")));
    let whole = |_: &Installed, _: &Path| replaced_by_link(Path::new(RUN), &aside(Path::new(RUN)));
    assert_door_refused(&mut system, "the directory of the socket", "symlink", whole);
    remove(&aside(Path::new(RUN)));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_door_of_somebody_elses_is_refused() {
    let mut system = Installed::set_up();
    for owner in [0, SERVER_UID] {
        let given = |_: &Installed, door: &Path| chown(door, Some(owner), None).unwrap();
        assert_door_refused(&mut system, "another's door", "owned by", given);
    }
    let doors =
        |_: &Installed, door: &Path| chown(door.parent().unwrap(), Some(SERVER_UID), None).unwrap();
    assert_door_refused(&mut system, "another's doors", "owned by", doors);
    for mode in [0o775, 0o757, 0o1777] {
        let open = |_: &Installed, door: &Path| {
            fs::set_permissions(door, fs::Permissions::from_mode(mode)).unwrap()
        };
        assert_door_refused(&mut system, "a door that others write to", "writable", open);
    }
    // Root may ask too; the door is the caller's all the same.
    system.write_registry(&agent_of(r#"["agent"]"#, ""));
    let (_, session, door) = system.run_agent("one");
    chown(&door.directory, Some(0), Some(0)).unwrap();
    let digest = system.digest("one");
    let call = system.call_root(&["run", "--session", &session, "--digest", &digest, "one"]);
    system.assert_refused("root's own door", call, FILE, "rule 'door'");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_door_with_anything_but_a_few_sockets_is_refused() {
    let mut system = Installed::set_up();
    let other = "something else than a socket";
    let name = "secret-name";
    let file = |_: &Installed, door: &Path| fs::write(door.join(name), b"x").unwrap();
    assert_door_refused(&mut system, "a file", other, file);
    let hidden = |_: &Installed, door: &Path| fs::write(door.join(".x"), b"x").unwrap();
    assert_door_refused(&mut system, "a hidden file", other, hidden);
    let directory = |_: &Installed, door: &Path| fs::create_dir(door.join(name)).unwrap();
    assert_door_refused(&mut system, "a directory", other, directory);
    let fifo =
        |_: &Installed, door: &Path| nix::unistd::mkfifo(&door.join(name), Mode::S_IRUSR).unwrap();
    assert_door_refused(&mut system, "a FIFO", other, fifo);
    let to_socket = |_: &Installed, door: &Path| link("colibri.sock", &door.join(name));
    assert_door_refused(&mut system, "a link to a socket", other, to_socket);
    let away = |_: &Installed, door: &Path| link("/etc/passwd", &door.join(name));
    assert_door_refused(&mut system, "a link to a file", other, away);
    let device = |_: &Installed, door: &Path| {
        let kind = nix::sys::stat::SFlag::S_IFCHR;
        let null = nix::sys::stat::makedev(1, 3);
        nix::sys::stat::mknod(&door.join(name), kind, Mode::S_IRUSR, null).unwrap();
    };
    assert_door_refused(&mut system, "a device", other, device);
    let anothers = |system: &Installed, door: &Path| {
        system.listen_in(door, name);
        chown(door.join(name), Some(0), None).unwrap();
    };
    assert_door_refused(
        &mut system,
        "a socket of root's",
        "somebody else's",
        anothers,
    );
    let many = |system: &Installed, door: &Path| {
        for number in 0..8 {
            system.listen_in(door, &format!("{number}.sock"));
        }
    };
    assert_door_refused(&mut system, "nine sockets", "more sockets", many);
    // Eight are a door.
    let (call, _, door) = system.run_agent("one");
    let _open: Vec<UnixListener> = (0..7)
        .map(|number| system.listen_in(&door.directory, &format!("{number}.sock")))
        .collect();
    let mut running = call.start();
    answer(&door, "x");
    running.await_output("told x");
    running.end();
    system.assert_nothing_left("eight sockets");
}

/// While another process swaps the door, the caller's to rename, against what must not be shown:
/// what is shown is the door that was looked at, or nothing is.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_door_that_is_swapped_is_the_one_that_was_looked_at() {
    let mut system = Installed::set_up();
    system.write_registry(&agent_of(r#"["list","/var/run/colibri"]"#, ""));
    let digest = system.digest("one");
    let (mut shown, mut refused) = (0, 0);
    for (what, is_link) in [("a directory with a file", false), ("a link to /etc", true)] {
        for _ in 0..40 {
            let session = session();
            let door = system.door(&session).directory;
            let bad = aside(&door);
            if is_link {
                link("/etc", &bad);
            } else {
                fs::DirBuilder::new().mode(0o755).create(&bad).unwrap();
                fs::write(bad.join("passwd"), b"x").unwrap();
                chown(&bad, Some(system.caller), Some(system.group)).unwrap();
            }
            let done = AtomicBool::new(false);
            let outcome = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let flags = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
                        let here = nix::fcntl::AT_FDCWD;
                        nix::fcntl::renameat2(here, &door, here, &bad, flags).unwrap();
                    }
                });
                let mut call =
                    system.call(&["run", "--session", &session, "--digest", &digest, "one"]);
                let outcome = call.finish();
                done.store(true, Ordering::Relaxed);
                outcome
            });
            match outcome.code() {
                Some(0) => {
                    shown += 1;
                    assert_eq!(
                        outcome.stdout, b"list colibri.sock\nend\n",
                        "{what}: {outcome:?}"
                    );
                }
                Some(FILE) => refused += 1,
                _ => panic!("{what}: {outcome:?}"),
            }
            remove(&Path::new(RUN).join("doors"));
        }
    }
    assert!(shown > 0 && refused > 0, "{shown} shown, {refused} refused");
    system.audit();
    system.assert_nothing_left("swapped doors");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_root_without_the_doors_place_is_refused() {
    let mut system = Installed::set_up();
    system.write_registry(&agent_of(r#"["agent"]"#, ""));
    let place = Path::new(ROOTS).join("one/var/run/colibri");
    type Spoil = fn(&Path);
    let spoils: [(&str, Spoil); 4] = [
        ("missing", |place| remove(place)),
        ("a link", |place| {
            remove(place);
            link("/tmp", place);
        }),
        ("another's", |place| {
            chown(place, Some(SERVER_UID), None).unwrap()
        }),
        ("var/run is a link", |place| {
            remove(place.parent().unwrap());
            link("/run", place.parent().unwrap());
        }),
    ];
    for (what, spoil) in spoils {
        spoil(&place);
        let (call, _, _door) = system.run_agent("one");
        let outcome = system.assert_refused(what, call, FILE, "/var/run");
        assert!(
            outcome.stderr.contains("rule 'files'"),
            "{what}: {outcome:?}"
        );
        remove(&Path::new(ROOTS).join("one/var"));
        system.make_root("one");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn policy_decides_over_agents_as_over_servers() {
    let mut system = Installed::set_up();
    let policy = system.policy();
    let agent = agent_of(r#"["agent"]"#, "");
    let own_users = agent.replace(r#""jail":{"#, r#""jail":{"user":"two","#);
    let with_server = own_users.replace(
        r#"{"agents""#,
        &format!(r#"{{"servers":{{"two":{{"command":"/bin/inmate","jail":{{"path":"{ROOTS}/two"}}}}}},"agents""#),
    );
    let mounted = agent.replace(
        r#""jail":{"#,
        r#""jail":{"mounts":[{"path":"/usr/local/colibri-test-shared","at":"/var"}],"#,
    );
    let over_door = policy.replace(r#""at":"/work""#, r#""at":"/var""#);
    for (what, policy, registry, rule) in [
        (
            "a model without loopback in the policy",
            policy.replace(r#","loopback""#, ""),
            agent_of(r#"["agent"]"#, MODEL),
            "network",
        ),
        ("the uid of a server", policy.clone(), with_server, "users"),
        (
            "not listed",
            policy.replace(r#""one","two"],"max""#, r#""two"],"max""#),
            agent.clone(),
            "servers",
        ),
        (
            "a root that is not listed",
            policy.clone(),
            agent.replace("/one\"", "/three\""),
            "ephemeral",
        ),
        ("a mount over the door", over_door, mounted, "mounts"),
        (
            "disabled",
            policy.clone(),
            agent_of(r#"["agent"]"#, r#","disabled":true"#),
            "disabled",
        ),
        (
            "no jail",
            policy.clone(),
            r#"{"agents":{"one":{"command":"/bin/inmate"}}}"#.to_owned(),
            "jail",
        ),
    ] {
        system.write_policy(&policy);
        system.write_registry(&registry);
        let (call, _, _door) = system.run_agent("one");
        let outcome = system.assert_refused(what, call, POLICY, &format!("rule '{rule}'"));
        assert_eq!(
            outcome.stderr,
            format!("helper: refused by rule '{rule}'\n"),
            "{what}: the rule alone"
        );
    }
    system.write_policy(&policy);
    system.write_registry(&agent);
    let (_, session, _door) = system.run_agent("one");
    let call = system.call(&[
        "run",
        "--session",
        &session,
        "--digest",
        &"0".repeat(64),
        "one",
    ]);
    system.assert_refused("another digest", call, LATER, "registry changed");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn without_a_pipe_of_its_own_an_agent_ends_with_the_lifeline() {
    let mut system = Installed::set_up();
    system.write_registry(&agent_of(r#"["hang"]"#, ""));
    let (call, _, _door) = system.run_agent("one");
    let mut running = call.start();
    running.await_output("ready");
    let agent = processes_of(&[SERVER_UID]);
    assert_eq!(agent.len(), 1);
    let input = |pid: i32| fs::read_link(format!("/proc/{pid}/fd/0")).unwrap();
    assert_eq!(input(agent[0]), Path::new("/dev/null"));
    // And not the one that a root could have put there.
    let null = fs::metadata(format!("/proc/{}/fd/0", agent[0])).unwrap();
    assert_eq!(
        std::os::unix::fs::MetadataExt::rdev(&null),
        nix::sys::stat::makedev(1, 3)
    );
    assert!(
        input(running.supervisor())
            .to_string_lossy()
            .starts_with("pipe:")
    );
    assert_eq!(running.end().code(), Some(143));
    assert!(system.audit()[1].contains("cause=lifeline"));
    system.assert_nothing_left("hang");
    // Closed before there was an agent.
    let (mut call, _, _door) = system.run_agent("one");
    let outcome = call.finish();
    assert_eq!(outcome.code(), Some(143), "{outcome:?}");
    assert!(system.audit()[1].contains("cause=lifeline"));
    // With a pipe the agent reads what comes, and its end.
    system.write_registry(&agent_of(r#"["echo"]"#, r#","stdin":"pipe""#));
    let (call, _, _door) = system.run_agent("one");
    let outcome = call.with_stdin(b"a task\n").finish();
    assert_eq!(
        (outcome.code(), outcome.stdout.as_slice()),
        (Some(0), &b"a task\n"[..]),
        "{outcome:?}"
    );
    system.assert_nothing_left("pipe");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_agent_gets_what_entry_and_policy_say_and_its_door() {
    let system = Installed::set_up();
    system.write_registry(&agent_of(r#"["facts"]"#, r#","env":{"A":"1"}"#));
    let (mut call, session, _door) = system.run_agent("one");
    call.command
        .env("COLIBRI_MCP_SOCKET", "/evil")
        .env("LD_PRELOAD", "/evil.so");
    let outcome = call.finish();
    let facts = String::from_utf8(outcome.stdout).unwrap();
    let environment: Vec<&str> = facts
        .lines()
        .filter(|line| line.starts_with("env "))
        .collect();
    let expected = [
        "env A=1",
        "env COLIBRI_MCP_SOCKET=/var/run/colibri/colibri.sock",
        "env HOME=/tmp",
        "env LANG=C.UTF-8",
        "env PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin",
    ];
    assert_eq!(environment, expected);
    for expected in [
        "uid 7871 7871",
        "groups 0",
        "fds 0 1 2",
        "limit core 0 0",
        "limit nproc 40 40",
    ] {
        assert!(
            facts.lines().any(|line| line == expected),
            "{expected}: {facts}"
        );
    }
    assert!(
        !facts.contains(&session),
        "an agent is not told its session"
    );
    system.assert_nothing_left("facts");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_door_is_shown_to_be_neither_written_nor_executed() {
    let system = Installed::set_up();
    system.write_registry(&agent_of(r#"["hang"]"#, MODEL));
    let (call, _, _door) = system.run_agent("one");
    let mut running = call.start();
    running.await_output("ready");
    let agent = processes_of(&[SERVER_UID])[0];
    let mounts = fs::read_to_string(format!("/proc/{agent}/mounts")).unwrap();
    let door: Vec<&str> = mounts
        .lines()
        .filter(|line| line.contains(" /var/run/colibri "))
        .collect();
    assert_eq!(door.len(), 1, "{mounts}");
    let options: Vec<&str> = door[0].split(' ').nth(3).unwrap().split(',').collect();
    for option in ["ro", "nosuid", "nodev", "noexec"] {
        assert!(options.contains(&option), "{option}: {door:?}");
    }
    running.end();
    system.assert_nothing_left("mounts");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn plan_and_check_tell_root_of_agents() {
    let system = Installed::set_up();
    system.write_registry(&agent_of(r#"["agent"]"#, MODEL));
    let planned = system.call_root(&["plan", "one"]).finish();
    let plan: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(plan["agent"], "one");
    assert_eq!(plan["stdin"], "null");
    assert_eq!(plan["place"]["ephemeral"]["network"], "loopback");
    assert_eq!(plan["door"]["at"], "/var/run/colibri");
    assert_eq!(plan["door"]["owner"], system.caller);
    let checked = system.call_root(&["check"]).finish();
    assert_eq!(
        (checked.code(), checked.stdout.as_slice()),
        (Some(0), &b"one: good\n"[..]),
        "{checked:?}"
    );
    remove(&Path::new(ROOTS).join("one/var/run/colibri"));
    let checked = system.call_root(&["check"]).finish();
    assert_eq!(checked.code(), Some(FILE));
    let told = String::from_utf8(checked.stdout).unwrap();
    assert!(
        told.starts_with("one: refused by rule 'files': ") && told.contains("/var/run/colibri"),
        "{told}"
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_killed_supervisor_leaves_no_agent() {
    let system = Installed::set_up();
    system.write_registry(&agent_of(r#"["detach"]"#, MODEL));
    let (call, _, door) = system.run_agent("one");
    let mut running = call.start();
    running.await_output("ready");
    let pid = nix::unistd::Pid::from_raw(running.supervisor());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    running.wait();
    until("the agent's end", || processes_of(&[SERVER_UID]).is_empty());
    assert_eq!(system.call(&["sweep"]).finish().code(), Some(0));
    assert!(
        door.directory.join("colibri.sock").exists(),
        "the door is the daemon's to remove"
    );
    system.assert_nothing_left("killed");
}

// The ways out: what `docs/attacks.md` lists under "An agent in its jail".

/// Runs an agent with a model, which has the most that an agent can have, and has it try these ways
/// out. Returns what each came to.
fn came_of(system: &Installed, ways: &[&str]) -> BTreeMap<String, String> {
    let args: Vec<&str> = ["ways"].iter().chain(ways).copied().collect();
    system.write_registry(&agent_of(&serde_json::to_string(&args).unwrap(), MODEL));
    let (mut call, _, door) = system.run_agent("one");
    let outcome = call.finish();
    let told = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(told.ends_with("end\n"), "{outcome:?}");
    assert_eq!(
        names_in(door.directory.to_str().unwrap()),
        ["colibri.sock"],
        "{told}"
    );
    let lines = told.lines().filter_map(|line| line.rsplit_once(": "));
    lines
        .map(|(way, came)| (way.to_owned(), came.to_owned()))
        .collect()
}

/// Asserts that each of these ways is denied, and how.
fn assert_denied(system: &Installed, ways: &[(&str, &str)]) {
    let names: Vec<&str> = ways.iter().map(|(way, _)| *way).collect();
    let came = came_of(system, &names);
    for (way, how) in ways {
        let came = came.get(*way).map_or("not tried", String::as_str);
        assert!(
            how.split('|').any(|how| how == came),
            "{way}: {came}, not {how}"
        );
    }
}

/// An address of this machine that is not of its loopback interface.
fn own_address() -> std::net::IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Sends nothing: the kernel chooses the address that it would be sent from.
    match socket.connect("192.0.2.1:9") {
        Ok(()) => socket.local_addr().unwrap().ip(),
        Err(_) => "192.0.2.1".parse().unwrap(),
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_jailed_agent_has_no_network_but_its_own() {
    use std::os::linux::net::SocketAddrExt;
    let system = Installed::set_up();
    let (four, six) = (
        TcpListener::bind("0.0.0.0:0").unwrap(),
        TcpListener::bind("[::]:0").ok(),
    );
    let port = four.local_addr().unwrap().port();
    let port_six = six
        .as_ref()
        .map_or(port, |six| six.local_addr().unwrap().port());
    let name = format!("colibri-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    assert_denied(
        &system,
        &[
            (&format!("connect=127.0.0.1:{port}"), "ECONNREFUSED"),
            (
                &format!("connect=[::1]:{port_six}"),
                "ECONNREFUSED|EADDRNOTAVAIL",
            ),
            (&format!("connect={}:{port}", own_address()), "ENETUNREACH"),
            (
                &format!("connect=[::ffff:127.0.0.1]:{port}"),
                "ECONNREFUSED",
            ),
            (&format!("abstract={name}"), "ECONNREFUSED"),
            ("raw-socket", "EPERM"),
            ("packet-socket", "EPERM"),
            ("change-network", "EPERM"),
        ],
    );
    system.assert_nothing_left("network");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_jailed_agent_has_no_socket_but_its_doors() {
    let system = Installed::set_up();
    let daemon = system.listen_in(Path::new(RUN), "colibri.sock");
    daemon.set_nonblocking(true).unwrap();
    let other = system.door(&session());
    other.listener.set_nonblocking(true).unwrap();
    let of_other = other.directory.join("colibri.sock");
    let from_own = format!(
        "/var/run/colibri/../{}/colibri.sock",
        names_in("/run/colibri/doors")[0]
    );
    assert_denied(
        &system,
        &[
            ("talk=/run/colibri/colibri.sock", "ENOENT"),
            (
                "talk=/var/run/colibri/../colibri/doors/../../colibri.sock",
                "ENOENT",
            ),
            (&format!("talk={}", of_other.display()), "ENOENT"),
            (&format!("talk=/var{}", of_other.display()), "ENOENT"),
            (&format!("talk={from_own}"), "ENOENT"),
            ("talk=/dev/log", "ENOENT"),
            ("listen-in-door", "EROFS|EACCES"),
            ("unlink-in-door", "EROFS|EACCES"),
            ("rename-in-door", "EROFS|EACCES"),
            ("link-in-door", "EXDEV|EPERM"),
            ("write=/var/run/colibri/own", "EROFS|EACCES"),
        ],
    );
    assert!(
        daemon.accept().is_err() && other.listener.accept().is_err(),
        "nobody came there"
    );
    system.assert_nothing_left("sockets");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn two_jailed_agents_do_not_meet() {
    let system = Installed::set_up();
    let ways = r#"["ways","talk=/tmp/meet","abstract=meet","connect=127.0.0.1:7777","list=/proc"]"#;
    let agent = |name: &str, args: &str| {
        format!(
            r#""{name}":{{"command":"/bin/inmate","args":{args},"jail":{{"path":"{ROOTS}/{name}"}}{MODEL}}}"#
        )
    };
    let agents = [agent("one", r#"["listen"]"#), agent("two", ways)].join(",");
    system.write_registry(&format!(r#"{{"agents":{{{agents}}}}}"#));
    let (call, _, _door) = system.run_agent("one");
    let mut one = call.start();
    one.await_output("ready");
    let (mut call, _, _other_door) = system.run_agent("two");
    let outcome = call.finish();
    let expected = "talk=/tmp/meet: ENOENT\nabstract=meet: ECONNREFUSED\nconnect=127.0.0.1:7777: ECONNREFUSED\n\
                    list=/proc: ENOENT\nend\n";
    assert_eq!(
        String::from_utf8_lossy(&outcome.stdout),
        expected,
        "{outcome:?}"
    );
    one.end();
    system.assert_nothing_left("two agents");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_jailed_agent_reaches_no_process_of_others() {
    let system = Installed::set_up();
    let mut server = system.run("two").0.start();
    server.send("a\n");
    server.await_output("a\n");
    let (mine, supervisor) = (std::process::id(), server.supervisor());
    assert_denied(
        &system,
        &[
            (&format!("read=/proc/{mine}/environ"), "ENOENT"),
            ("list=/proc/1/root", "ENOENT"),
            ("list=/proc/self/fd", "ENOENT"),
            (&format!("kill={mine}"), "ESRCH"),
            (&format!("stop={supervisor}"), "ESRCH"),
            (&format!("trace={supervisor}"), "ESRCH"),
            (&format!("memory={supervisor}"), "ESRCH"),
            // Process 1 of the sandbox is the helper's.
            ("kill=1", "EPERM"),
            ("stop=1", "EPERM"),
            ("trace=1", "EPERM"),
            ("memory=1", "EPERM"),
            ("join-others", "EPERM"),
            // And nobody else is there.
            ("kill=-1", "ESRCH|EPERM"),
        ],
    );
    server.send("b\n");
    server.await_output("b\n");
    server.end();
    system.assert_nothing_left("processes");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_jailed_agent_reaches_no_file_of_the_host() {
    let system = Installed::set_up();
    system.write("secrets/anthropic", b"sk-of-the-model\n", 0o400);
    assert_denied(
        &system,
        &[
            ("write=/written", "EROFS|EACCES"),
            ("write=/bin/inmate", "EROFS|EACCES|ETXTBSY"),
            ("write=/dev/written", "EROFS|EACCES"),
            ("read=/etc/passwd", "ENOENT"),
            (&format!("read={CONFIG}/external-mcp.json"), "ENOENT"),
            (&format!("read={CONFIG}/secrets/anthropic"), "ENOENT"),
            (&format!("list={STATE}"), "ENOENT"),
            ("chroot", "EPERM"),
            ("out-by-directory", "ENOENT"),
            ("file-by-handle", "EPERM"),
            ("device-node", "EPERM"),
            ("read=/dev/mem", "ENOENT"),
            ("read=/dev/kmsg", "ENOENT"),
            ("list=/sys", "ENOENT"),
            ("mount", "EPERM"),
            ("unmount=/var/run/colibri", "EPERM"),
            ("unmount=/tmp", "EPERM"),
            ("new-confinement", "EPERM"),
            // A namespace of its own the kernel may give, and in it nothing that was kept from the
            // agent.
            ("root-of-own-namespace", "EPERM|EINVAL|ENOSPC|EACCES"),
        ],
    );
    system.assert_nothing_left("files");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_jailed_agent_gains_no_right() {
    let system = Installed::set_up();
    let program = Path::new(ROOTS).join("one/bin/as-root");
    fs::copy(Path::new(ROOTS).join("one/bin/inmate"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_denied(
        &system,
        &[
            ("become-root", "EPERM"),
            ("root-group", "EPERM"),
            ("set-user-id=/bin/as-root", "same user"),
            ("raise-limit", "EPERM"),
            ("load-module", "EPERM|ENOSYS"),
            ("set-clock", "EPERM"),
            ("set-hostname", "EPERM"),
        ],
    );
    system.assert_nothing_left("rights");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_jailed_agent_inherits_nothing_of_the_callers() {
    let system = Installed::set_up();
    // A segment on the host that everybody may use, and a key in the keyring of the session that
    // the helper is started from.
    let key = std::process::id() as i32;
    let segment = colibri_tests::installed::sys::share_memory(key);
    let args = format!(
        r#"["ways","shared-memory={key}","key-of-session","read=/dev/tty","push-into-terminal","core-dump"]"#
    );
    system.write_registry(&agent_of(&args, MODEL));
    let (call, _, _door) = system.run_agent("one");
    let outcome = call.prepared(|| sys::keep_key(c"colibri-test")).finish();
    let told = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let expected = [
        &format!("shared-memory={key}: ENOENT"),
        "key-of-session: ENOKEY",
        "read=/dev/tty: ENOENT",
        "push-into-terminal: ENOTTY",
        "core-dump: no core",
        "end",
    ];
    drop(segment);
    assert_eq!(told.lines().collect::<Vec<_>>(), expected, "{outcome:?}");
    system.assert_nothing_left("inherited");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_jailed_agent_takes_no_more_than_its_share() {
    let system = Installed::set_up();
    for (args, most) in [(r#"["forkbomb"]"#, 40), (r#"["hog"]"#, 1024)] {
        system.write_registry(&agent_of(args, r#","stdin":"pipe""#));
        let (call, _, _door) = system.run_agent("one");
        let mut running = call.start();
        let told = running.await_output("\n");
        let number: u64 = told.trim().rsplit(' ').next().unwrap().parse().unwrap();
        assert!((1..=most).contains(&number), "{told}");
        running.end();
        system.assert_nothing_left(args);
    }
}

/// The model's key, which the registry names and the daemon's relay adds outside: looked for as
/// root in all that the sandbox's processes have.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_models_key_is_nowhere_in_an_agents_jail() {
    let system = Installed::set_up();
    let key = "sk-a-key-that-stands-nowhere-else";
    system.write("secrets/anthropic", key.as_bytes(), 0o400);
    let model = MODEL.replace(
        r#""api":"#,
        r#""headers":{"x-api-key":{"secret":"anthropic"}},"api":"#,
    );
    system.write_registry(&agent_of(r#"["hang"]"#, &model));
    let (call, _, _door) = system.run_agent("one");
    let mut running = call.start();
    running.await_output("ready");
    let supervisor = running.supervisor();
    let init = children_of(supervisor);
    let agent = processes_of(&[SERVER_UID]);
    assert_eq!((init.len(), agent.len()), (1, 1));
    for pid in [supervisor, init[0], agent[0]] {
        for file in ["environ", "cmdline"] {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap();
            assert!(!holds(&bytes, key.as_bytes()), "{file} of {pid}");
        }
        assert!(!holds(&memory_of(pid), key.as_bytes()), "memory of {pid}");
    }
    // The search finds what is there.
    assert!(holds(&memory_of(agent[0]), b"COLIBRI_MCP_SOCKET"));
    running.end();
    system.assert_nothing_left("key");
}

fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// All of a process's memory that can be read.
fn memory_of(pid: i32) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut all = Vec::new();
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))
        .unwrap()
        .lines()
    {
        let (range, rest) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let (from, to) = (
            u64::from_str_radix(from, 16).unwrap(),
            u64::from_str_radix(to, 16).unwrap(),
        );
        let mut piece = vec![0; (to - from) as usize];
        if rest.starts_with("rw") && memory.read_exact_at(&mut piece, from).is_ok() {
            all.extend(piece);
        }
    }
    all
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_demo_of_an_agent_runs_it_in_the_sandbox() {
    let system = Installed::set_up();
    for name in ["demo", "demo-agent"] {
        let root = system.make_root(name);
        put_program(&program("colibri-mcp"), &root, "bin/colibri-mcp");
    }
    // A port that nobody has: the one of the entry is the demo's model's.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    system.write_registry(&format!(
        r#"{{"servers":{{"demo":{{"command":"/bin/colibri-mcp","args":["demo-server","--notes","/tmp"],
               "jail":{{"path":"{ROOTS}/demo"}}}}}},
            "agents":{{"demo-agent":{{"command":"/bin/colibri-mcp","args":["door","--","/bin/colibri-mcp","demo-agent"],
               "jail":{{"path":"{ROOTS}/demo-agent"}},"events":"claude",
               "model":{{"url":"http://127.0.0.1:{port}","api":"anthropic","allow_addresses":["loopback"],
                 "headers":{{"x-api-key":"the-demos-own-key-which-no-agent-sees"}}}},
               "tools":{{"demo":{{"allow":["write_note"]}}}}}}}}}}"#
    ));
    system.write_policy(&format!(
        r#"{{"caller":"colibri","audit":"require","servers":["demo","demo-agent"],"starts_per_minute":1000,
            "ephemeral":["{ROOTS}/demo","{ROOTS}/demo-agent"],"network":["loopback"],
            "users":{{"demo":{{"uid":{SERVER_UID},"gid":{SERVER_UID}}},
              "demo-agent":{{"uid":{OTHER_UID},"gid":{OTHER_UID}}}}},
            "limits":{{"memory":"1G","processes":40,"open_files":64,"file_size":"8M","tmp":"2M"}}}}"#
    ));
    let home = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(program("colibri-mcp"))
        .args(["demo", "agent"])
        .env_clear()
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), &*complaints),
        (Some(0), ""),
        "{said}"
    );
    for part in [
        "The agent runs in the helper's development sandbox",
        "working  calls demo__write_note",
        "Task 1 is done; its result: {\"note\":\"from-the-agent\"",
        "4 requests, 4 of them with the key",
        "own jail",
        "jail ephemeral",
        "/trail: sound",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(names_in(home.path().to_str().unwrap()).is_empty());
    // As the service leaves it: the directory of doors, without one.
    assert!(
        names_in(RUN).iter().all(|name| name == "doors"),
        "{:?}",
        names_in(RUN)
    );
    assert!(names_in(&format!("{RUN}/doors")).is_empty());
    system.assert_nothing_left("the demo");
}

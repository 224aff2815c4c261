//! Servers inside the development sandbox, started by the installed set-user-ID helper: what a good
//! one gets, what a bad one does not, and that nothing of either is left.
#![cfg(target_os = "linux")]
// Helpers outside #[test] functions are tests too.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use colibri_tests::installed::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_answers_and_its_end_is_relayed() {
    let mut system = Installed::set_up();
    let (call, _) = system.run("one");
    let outcome = call.with_stdin(b"hello\nworld\n").finish();
    assert_eq!(
        outcome.stdout,
        b"hello\nworld\n",
        "{outcome:?} {:?}",
        system.audit()
    );
    assert_eq!(outcome.stderr, "helper: started jid=0\n");
    assert_eq!(outcome.code(), Some(0));
    let audit = system.audit();
    assert_eq!(audit.len(), 2, "{audit:?}");
    assert!(
        audit[0].starts_with("<38>colibri-jail-helper[")
            && audit[0].contains("event=start entry=one digest=")
    );
    assert!(
        audit[1].contains("event=end entry=one")
            && audit[1].contains("status=0")
            && audit[1].contains("left=nothing")
    );
    system.assert_nothing_left("echo");
}

/// Runs the inmate with these arguments as server `one` and closes its stdin at once.
fn run_inmate(system: &Installed, args: &str) -> Outcome {
    system.write_registry(&default_registry(args));
    system.run("one").0.finish()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn exit_codes_and_signals_are_exact() {
    let mut system = Installed::set_up();
    for (args, code) in [
        (r#"["exit","0"]"#, 0),
        (r#"["exit","1"]"#, 1),
        (r#"["exit","77"]"#, 77),
        (r#"["exit","127"]"#, 127),
        (r#"["exit","255"]"#, 255),
        (r#"["signal","9"]"#, 137),
        (r#"["signal","15"]"#, 143),
        (r#"["signal","6"]"#, 134),
        (r#"["signal","40"]"#, 168),
    ] {
        let outcome = run_inmate(&system, args);
        assert_eq!(outcome.code(), Some(code), "{args}: {outcome:?}");
        assert_eq!(outcome.stderr, "helper: started jid=0\n");
        assert!(
            system.audit()[1].contains(&format!("status={code} ")),
            "{args}"
        );
    }
    system.assert_nothing_left("exits");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_gets_what_the_entry_and_the_policy_say_and_nothing_else() {
    let system = Installed::set_up();
    system.write("secrets/token", b"s3cret-t0ken\n", 0o400);
    system.write_registry(&registry_of(&format!(
        r#"{{"command":"/bin/inmate","args":["facts"],"cwd":"/work",
            "env":{{"A":"one two","TOKEN":{{"secret":"token"}},"EMPTY":""}},"jail":{{"path":"{ROOTS}/one"}}}}"#
    )));
    let (call, session) = system.run("one");
    let mut call = call.prepared(|| {
        sys::umask(0);
        sys::leak(c"/", 3..20);
        sys::leak(c"/etc/passwd", 900..904);
        sys::signals(true, true);
    });
    call.command
        .env("LD_PRELOAD", "/evil.so")
        .env("HOME", "/root")
        .env("SECRET", "x");
    let outcome = call.finish();
    let facts = String::from_utf8(outcome.stdout).unwrap();
    let lines: Vec<&str> = facts.lines().collect();
    for expected in [
        "uid 7871 7871",
        "gid 7871 7871",
        "groups 0",
        "fds 0 1 2",
        "limit core 0 0",
        "limit cpu infinity infinity",
        "limit fsize 8388608 8388608",
        "limit nofile 64 64",
        "limit nproc 40 40",
        "limit as 1073741824 1073741824",
        "umask 2",
        "blocked 0",
        "ignored 0",
        "timer 0 0",
        "leader true",
        "cwd /work",
        "ls /dev null random urandom zero",
        "ls /tmp ",
    ] {
        assert!(lines.contains(&expected), "{expected}: {facts}");
    }
    let environment: Vec<&&str> = lines
        .iter()
        .filter(|line| line.starts_with("env "))
        .collect();
    let expected = [
        "env A=one two",
        "env EMPTY=",
        "env HOME=/tmp",
        "env LANG=C.UTF-8",
        "env PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin",
        "env TOKEN=s3cret-t0ken",
    ];
    assert_eq!(environment, expected.iter().collect::<Vec<_>>());
    assert!(!facts.contains(&session));
    system.assert_nothing_left("facts");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_hostile_server_reaches_nothing() {
    let system = Installed::set_up();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let directory = Path::new("/run/colibri-test-socket");
    remove(directory);
    std::fs::create_dir(directory).unwrap();
    let socket = directory.join("colibri.sock");
    let _daemon = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let args = format!(
        r#"["attack","127.0.0.1:{port}","[::1]:{port}","{}","/etc/passwd","{CONFIG}/external-mcp.json","/proc/1","/home",
            "{STATE}","/run","/sys"]"#,
        socket.display()
    );
    let outcome = run_inmate(&system, &args);
    let told = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(told.ends_with("end\n"), "{outcome:?}");
    let worked: Vec<&str> = told
        .lines()
        .filter(|line| line.ends_with("WORKED"))
        .collect();
    assert_eq!(worked, ["write to /tmp: WORKED"], "{told}");
    // Its user has ids of its own and no group, so that a change of group list to none changes
    // nothing.
    system.assert_nothing_left("attack");
    remove(directory);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_does_not_want_to_end_is_ended() {
    let mut system = Installed::set_up();
    for args in [r#"["hang"]"#, r#"["stubborn"]"#, r#"["detach"]"#] {
        system.write_registry(&default_registry(args));
        let mut running = system.run("one").0.start();
        running.await_output("ready");
        assert!(!processes_of(&[SERVER_UID]).is_empty());
        let outcome = running.end();
        let expected = match args {
            r#"["hang"]"# => 143,
            r#"["stubborn"]"# => 137,
            _ => 0,
        };
        assert_eq!(outcome.code(), Some(expected), "{args}: {outcome:?}");
        system.assert_nothing_left(args);
        let audit = system.audit();
        assert!(
            audit[1].contains("cause=lifeline") || args.contains("detach"),
            "{audit:?}"
        );
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_end_of_the_caller_is_told_from_its_order() {
    let mut system = Installed::set_up();
    // That nobody reads stderr is no order to end.
    let mut running = system.run("one").0.start();
    running.send("a\n");
    running.await_output("a\n");
    drop(running.child.as_mut().unwrap().stderr.take());
    running.send("b\n");
    running.await_output("b\n");
    running.end();
    // With the end of stdin it means that the daemon is gone, and what does not want to end has
    // less time for it.
    system.write_registry(&default_registry(r#"["stubborn"]"#));
    let mut running = system.run("one").0.start();
    running.await_output("ready");
    system.audit();
    drop(running.child.as_mut().unwrap().stderr.take());
    assert_eq!(running.end().code(), Some(137));
    let audit = system.audit();
    assert!(audit[0].contains("cause=abandoned"), "{audit:?}");
    system.assert_nothing_left("abandoned");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_fork_bomb_stays_within_its_limits_and_another_server_answers() {
    let system = Installed::set_up();
    system.write_registry(&default_registry(r#"["forkbomb"]"#));
    let mut bomb = system.run("one").0.start();
    let told = bomb.await_output("children ");
    let children: u32 = told
        .split("children ")
        .nth(1)
        .unwrap()
        .trim()
        .parse()
        .unwrap_or(0);
    assert!((1..=40).contains(&children), "{told}");
    let (call, _) = system.run("two");
    let outcome = call.with_stdin(b"still here\n").finish();
    assert_eq!(outcome.stdout, b"still here\n", "{outcome:?}");
    assert_eq!(bomb.end().code(), Some(0));
    system.assert_nothing_left("fork bomb");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_memory_hog_is_bounded() {
    let system = Installed::set_up();
    system.write_registry(&default_registry(r#"["hog"]"#));
    let mut hog = system.run("one").0.start();
    hog.await_output("held ");
    let told = hog.await_output("\n");
    let held: u64 = told
        .trim()
        .strip_prefix("held ")
        .and_then(|n| n.parse().ok())
        .unwrap_or(u64::MAX);
    assert!(held <= 1024, "{held} MiB");
    hog.end();
    system.assert_nothing_left("hog");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_shown_directory_is_the_one_the_policy_names() {
    let system = Installed::set_up();
    let shared = Path::new("/usr/local/colibri-test-shared");
    remove(shared);
    std::fs::create_dir(shared).unwrap();
    chown(shared, Some(SERVER_UID), Some(SERVER_UID)).unwrap();
    std::fs::write(shared.join("there"), b"x").unwrap();
    let entry = |write: bool| {
        registry_of(&format!(
            r#"{{"command":"/bin/inmate","args":["attack","/work/there"],"jail":{{"path":"{ROOTS}/one",
                "mounts":[{{"path":"{}","at":"/work","write":{write}}}]}}}}"#,
            shared.display()
        ))
    };
    system.write_registry(&entry(true));
    let outcome = system.run("one").0.finish();
    assert!(
        String::from_utf8_lossy(&outcome.stdout).contains("see /work/there: WORKED"),
        "{outcome:?}"
    );
    // Its owner swaps it for a link into a directory of somebody else's.
    std::fs::rename(shared, "/usr/local/colibri-test-shared.away").unwrap();
    link("/etc", shared);
    let outcome = system.run("one").0.finish();
    assert_eq!(outcome.code(), Some(78), "{outcome:?}");
    assert!(outcome.stderr.contains("symlink"), "{outcome:?}");
    remove(shared);
    remove(Path::new("/usr/local/colibri-test-shared.away"));
    system.assert_nothing_left("mounts");
}

/// A mount point that is gone when this is.
struct MountedAt<'a>(&'a Path);

impl<'a> MountedAt<'a> {
    fn new(at: &'a Path, arguments: &[&str]) -> MountedAt<'a> {
        let status = Command::new("mount")
            .args(arguments)
            .arg(at)
            .status()
            .unwrap();
        assert!(status.success(), "mount {arguments:?}");
        MountedAt(at)
    }
}

impl Drop for MountedAt<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// Whoever can rename a directory in a source on the host lets a jail out that has it open: so a
/// source is the root of a file system, unless the policy takes that risk by name. What is proved
/// of it is in `tests/freebsd/mounts.sh`.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_source_is_the_root_of_a_file_system_of_its_own() {
    let mut system = Installed::set_up();
    let shared = Path::new("/usr/local/colibri-test-shared");
    remove(shared);
    std::fs::create_dir(shared).unwrap();
    chown(shared, Some(SERVER_UID), Some(SERVER_UID)).unwrap();
    system.write_policy(&system.policy().replace(r#","bounded":false"#, ""));
    system.write_registry(&registry_of(&format!(
        r#"{{"command":"/bin/inmate","args":["attack","/work/there"],"jail":{{"path":"{ROOTS}/one",
            "mounts":[{{"path":"{}","at":"/work","write":true}}]}}}}"#,
        shared.display()
    )));
    let assert_unbounded = |system: &mut Installed, what: &str| {
        let (call, _) = system.run("one");
        let outcome = system.assert_refused(what, call, FILE, "files");
        for part in ["file system of its own", "make-root.sh -w", "bounded"] {
            assert!(outcome.stderr.contains(part), "{what}: {outcome:?}");
        }
    };
    assert_unbounded(&mut system, "a directory of the host's own file system");
    {
        let bound = shared.with_extension("bound");
        std::fs::create_dir(&bound).unwrap();
        let _mounted = MountedAt::new(shared, &["--bind", &bound.to_string_lossy()]);
        chown(shared, Some(SERVER_UID), Some(SERVER_UID)).unwrap();
        assert_unbounded(&mut system, "a view of a directory of that file system");
        remove(&bound);
    }
    {
        // Its group may write there, since who can write in it can move nothing out of it.
        let options = format!("uid={SERVER_UID},gid={OTHER_UID},mode=2775,size=1m");
        let _mounted = MountedAt::new(shared, &["-t", "tmpfs", "-o", &options, "tmpfs"]);
        std::fs::write(shared.join("there"), b"x").unwrap();
        let outcome = system.run("one").0.finish();
        let seen = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert!(seen.contains("see /work/there: WORKED"), "{outcome:?}");
        chown(shared, Some(OTHER_UID), Some(SERVER_UID)).unwrap();
        let (call, _) = system.run("one");
        let outcome = system.assert_refused("somebody else's", call, FILE, "files");
        assert!(
            outcome.stderr.contains("not owned by the uid"),
            "{outcome:?}"
        );
    }
    // Whoever takes the risk is reminded of it at each start.
    system.write_policy(&system.policy());
    chown(shared, Some(SERVER_UID), Some(SERVER_UID)).unwrap();
    let outcome = system.run("one").0.finish();
    assert_eq!(outcome.stderr, "helper: started jid=0 bounded=no\n");
    remove(shared);
    system.assert_nothing_left("sources");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_root_has_no_var_tmp_that_others_can_write_to() {
    let mut system = Installed::set_up();
    system.write_registry(&default_registry(r#"["attack","/tmp"]"#));
    let var = Path::new(ROOTS).join("one/var");
    let place = var.join("tmp");
    std::fs::create_dir_all(&place).unwrap();
    for (path, owner, mode) in [
        (&place, 0, 0o1777),
        (&place, 0, 0o775),
        (&place, OTHER_UID, 0o755),
        (&var, 0, 0o777),
    ] {
        chown(path, Some(owner), Some(0)).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        let (call, _) = system.run("one");
        let outcome = system.assert_refused(&format!("{path:?} {mode:o}"), call, FILE, "files");
        assert!(outcome.stderr.contains("lets the jail out"), "{outcome:?}");
        chown(path, Some(0), Some(0)).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert!(
        system
            .run("one")
            .0
            .finish()
            .stderr
            .contains("helper: started")
    );
    std::fs::remove_dir(&place).unwrap();
    // As many have it: what is there is covered.
    std::os::unix::fs::symlink("/tmp", &place).unwrap();
    assert!(
        system
            .run("one")
            .0
            .finish()
            .stderr
            .contains("helper: started")
    );
    remove(&place);
    system.assert_nothing_left("var/tmp");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn killing_the_supervisor_leaves_what_sweep_removes() {
    let mut system = Installed::set_up();
    system.write_registry(&default_registry(r#"["detach"]"#));
    let mut running = system.run("one").0.start();
    running.await_output("ready");
    let live = system.run("two").0.start();
    until("the second instance", || {
        processes_of(&[OTHER_UID]).len() == 1
    });
    kill(Pid::from_raw(running.supervisor()), Signal::SIGKILL).unwrap();
    let outcome = running.wait();
    // As the supervisor died, so does the process that the daemon watches.
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&outcome.status),
        Some(9),
        "{outcome:?}"
    );
    until("the sandbox's end", || {
        processes_of(&[SERVER_UID]).is_empty()
    });
    assert_eq!(names_in(STATE).iter().filter(|n| n.len() == 16).count(), 2);
    system.audit();
    let swept = system.call(&["sweep"]).finish();
    assert_eq!(swept.code(), Some(0), "{swept:?}");
    let audit = system.audit();
    assert!(
        audit[0].contains("event=sweep") && audit[0].contains("swept=1 live=1"),
        "{audit:?}"
    );
    assert_eq!(
        names_in(STATE).iter().filter(|n| n.len() == 16).count(),
        1,
        "the live one is not touched"
    );
    assert_eq!(processes_of(&[OTHER_UID]).len(), 1);
    assert_eq!(live.end().code(), Some(0));
    system.assert_nothing_left("sweep");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn killing_the_outer_process_ends_nothing() {
    let system = Installed::set_up();
    let mut running = system.run("one").0.start();
    let supervisor = {
        running.send("a\n");
        running.await_output("a\n");
        running.supervisor()
    };
    kill(Pid::from_raw(running.pid()), Signal::SIGKILL).unwrap();
    running.send("b\n");
    running.await_output("b\n");
    running.end();
    until("the supervisor's end", || {
        !Path::new(&format!("/proc/{supervisor}")).exists()
    });
    system.assert_nothing_left("outer killed");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn stop_ends_one_instance() {
    let mut system = Installed::set_up();
    system.write_registry(&default_registry(r#"["stubborn"]"#));
    let (call, session) = system.run("one");
    let mut running = call.start();
    running.await_output("ready");
    let other = system.run("two").0.start();
    until("the second instance", || {
        processes_of(&[OTHER_UID]).len() == 1
    });
    let stopped = system.call(&["stop", "--session", &session]).finish();
    assert_eq!(stopped.code(), Some(0), "{stopped:?}");
    assert_eq!(running.wait().code(), Some(137));
    assert_eq!(processes_of(&[OTHER_UID]).len(), 1);
    // Again, and of one that never was: nothing to do, and no error.
    for session in [session.as_str(), "ffffffffffffffff"] {
        let stopped = system.call(&["stop", "--session", session]).finish();
        assert_eq!(
            (stopped.code(), stopped.stderr.as_str()),
            (Some(0), ""),
            "{stopped:?}"
        );
    }
    other.end();
    system.assert_nothing_left("stop");
    assert!(
        system
            .audit()
            .iter()
            .any(|line| line.contains("cause=order"))
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_stop_that_leaves_something_is_no_success() {
    let mut system = Installed::set_up();
    system.write_registry(&default_registry(r#"["stubborn"]"#));
    for verb in [&["stop", "--session"][..], &["stop", "--all"], &["sweep"]] {
        let (call, session) = system.run("one");
        let mut running = call.start();
        running.await_output("ready");
        // What is in use cannot be removed.
        let root = Path::new(STATE).join(&session).join("root");
        let kept = MountedAt::new(&root, &["-t", "tmpfs", "tmpfs"]);
        if verb == ["sweep"] {
            kill(Pid::from_raw(running.supervisor()), Signal::SIGKILL).unwrap();
            until("the sandbox's end", || {
                processes_of(&[SERVER_UID]).is_empty()
            });
        }
        system.audit();
        let mut arguments = verb.to_vec();
        arguments.extend(verb.contains(&"--session").then_some(session.as_str()));
        let stopped = system.call_root(&arguments).finish();
        assert_eq!(stopped.code(), Some(SYSTEM), "{verb:?}: {stopped:?}");
        assert!(
            stopped.stderr.contains("left behind: "),
            "{verb:?}: {stopped:?}"
        );
        let audit = system.audit();
        assert!(
            audit.iter().any(|line| line.contains("left=something")),
            "{verb:?}: {audit:?}"
        );
        assert!(
            names_in(STATE).contains(&session),
            "{verb:?}: its record stays"
        );
        running.wait();
        // Once it can be undone it is.
        drop(kept);
        assert_eq!(system.call(&["sweep"]).finish().code(), Some(0), "{verb:?}");
        system.assert_nothing_left(verb[0]);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_supervisor_is_small_and_holds_no_pipe_of_the_servers() {
    let system = Installed::set_up();
    let mut running = system.run("one").0.start();
    running.send("a\n");
    running.await_output("a\n");
    for pid in [running.pid(), running.supervisor()] {
        let kib = resident_kib(pid);
        assert!(kib < 4096, "resident: {kib} KiB");
        let stdout = std::fs::read_link(format!("/proc/{pid}/fd/1")).unwrap();
        assert_eq!(stdout, Path::new("/dev/null"));
    }
    assert_eq!(running.end().code(), Some(0));
}

/// A limit that a newer kernel has is shown by its number, and has to be bounded as well.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn every_limit_that_the_kernel_knows_is_finite() {
    let system = Installed::set_up();
    system.write_registry(&default_registry(r#"["facts"]"#));
    let (call, _) = system.run("one");
    let outcome = call.with_stdin(b"").finish();
    let facts = String::from_utf8(outcome.stdout).unwrap();
    let limits: Vec<Vec<&str>> = facts
        .lines()
        .filter_map(|line| line.strip_prefix("limit "))
        .map(|line| line.split(' ').collect())
        .collect();
    assert!(limits.len() >= 16, "{facts}");
    for limit in limits {
        // Processor time has no default.
        let finite = limit[1].parse::<u64>().is_ok() && limit[2].parse::<u64>().is_ok();
        assert!(finite || limit[0] == "cpu", "{limit:?}");
        assert!(
            limit[0].parse::<u32>().is_err(),
            "a limit that the helper does not know: {limit:?}"
        );
    }
    for expected in [
        "limit data 1073741824 1073741824",
        "limit fsize 8388608 8388608",
        "limit msgqueue 819200 819200",
    ] {
        assert!(facts.contains(expected), "{expected}: {facts}");
    }
    system.assert_nothing_left("limits");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_only_freebsd_can_do_says_so() {
    let mut system = Installed::set_up();
    for jail in [
        r#""name":"build0""#.to_owned(),
        format!(r#""path":"{ROOTS}/one","ip4":["192.0.2.7"]"#),
        format!(r#""path":"{ROOTS}/one","limits":{{"memory":"64M"}}"#),
    ] {
        system.write_registry(&registry_of(&format!(
            r#"{{"command":"/bin/inmate","jail":{{{jail}}}}}"#
        )));
        let (call, _) = system.run("one");
        system.assert_refused(&jail, call, 78, "FreeBSD only");
    }
    let linux = registry_of(&format!(
        r#"{{"command":"/bin/inmate","jail":{{"path":"{ROOTS}/one","abi":"linux"}}}}"#
    ));
    system.write_registry(&linux);
    let (call, _) = system.run("one");
    system.assert_refused(
        "linux where the policy has freebsd alone",
        call,
        77,
        "'abi'",
    );
    let both = r#""abi":["freebsd","linux"],"network":["#;
    system.write_policy(&system.policy().replace(r#""network":["#, both));
    let (call, _) = system.run("one");
    system.assert_refused("linux", call, 78, "FreeBSD only");
}

//! What the installed helper promises beyond the list of hostile callers: no terminal and no lock
//! can hold it, teardown needs nothing but records, nothing inherited weakens it.
#![cfg(target_os = "linux")]
// Helpers outside #[test] functions are tests too.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use colibri_tests::installed::*;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A server that answers, so that it runs.
fn echoing(system: &Installed) -> (Running, String) {
    let (call, session) = system.run("one");
    let mut running = call.start();
    running.send("hello\n");
    running.await_output("hello\n");
    (running, session)
}

/// The fields of /proc/PID/stat from the third on (state, parent, group, session, terminal…).
fn stat(pid: i32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = text.rsplit_once(") ").unwrap();
    rest.split_whitespace().map(str::to_owned).collect()
}

/// The lock, as a helper that somebody has stopped holds it.
fn hold_lock(says: &str) -> Flock<fs::File> {
    fs::create_dir_all(STATE).unwrap();
    fs::set_permissions(STATE, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(format!("{STATE}/lock"));
    let mut lock = Flock::lock(file.unwrap(), FlockArg::LockExclusive).unwrap();
    lock.write_all(says.as_bytes()).unwrap();
    lock
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_verb_on_a_terminal_works_in_a_session_of_its_own() {
    let system = Installed::set_up();
    for verb in [
        "sweep",
        "check",
        "plan one",
        "stop --all",
        "stop --session ffffffffffffffff",
    ] {
        let lock = hold_lock("");
        let report = matches!(verb, "check" | "plan one");
        let mut terminal = Command::new("script")
            .args(["-qec", &format!("{HELPER} {verb}"), "/dev/null"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        if !report {
            // The outer process, on the terminal, and the inner one that waits for the lock.
            let mut pids = (0, 0);
            until("the helper", || {
                let below = |pid| children_of(pid).first().copied();
                let outer = below(terminal.id() as i32).and_then(|shell| {
                    let name =
                        fs::read_to_string(format!("/proc/{shell}/comm")).unwrap_or_default();
                    if name.starts_with("colibri-jail") {
                        Some(shell)
                    } else {
                        below(shell)
                    }
                });
                let inner = outer.and_then(below);
                pids = (outer.unwrap_or(0), inner.unwrap_or(0));
                inner.is_some_and(|inner| stat(inner)[3] == inner.to_string())
            });
            let inner = stat(pids.1);
            assert_eq!(
                inner[3],
                pids.1.to_string(),
                "{verb}: leads a session: {inner:?}"
            );
            assert_eq!(inner[4], "0", "{verb}: has no terminal: {inner:?}");
        }
        drop(lock);
        assert_eq!(terminal.wait().unwrap().code(), Some(0), "{verb}");
    }
    system.assert_nothing_left("terminals");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_lock_is_not_waited_for_without_end_and_its_holder_is_named() {
    let mut system = Installed::set_up();
    let _lock = hold_lock("4242 (sweep)\n");
    let (call, _) = system.run("one");
    let outcome = system.assert_refused("a lock that is kept", call, LATER, "rule 'lock'");
    assert!(
        outcome.stderr.contains("process 4242 (sweep)"),
        "{outcome:?}"
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_lifeline_that_cannot_break_is_refused() {
    let mut system = Installed::set_up();
    let fifo = Path::new("/run/colibri-test-fifo");
    remove(fifo);
    nix::unistd::mkfifo(fifo, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    let both = fs::File::options()
        .read(true)
        .write(true)
        .open(fifo)
        .unwrap();
    let (mut call, _) = system.run("one");
    call.command.stdin(stream(both));
    system.assert_refused(
        "a FIFO opened to be read and written",
        call,
        USAGE,
        "descriptor 0 is not a pipe",
    );
    remove(fifo);
    let (reader, writer) = std::io::pipe().unwrap();
    let (mut call, _) = system.run("one");
    call.command.stdin(stream(reader)).stdout(stream(writer));
    system.assert_refused("the two ends of one pipe", call, USAGE, "are one pipe");
    let (reader, writer) = std::io::pipe().unwrap();
    let (mut call, _) = system.run("one");
    call.command.stdin(stream(writer));
    system.assert_refused(
        "an end to write as stdin",
        call,
        USAGE,
        "descriptor 0 is the wrong end",
    );
    drop(reader);
    // A pipe's end opened again, to be read and written, through /proc.
    let (reader, _writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    let both = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let (mut call, _) = system.run("one");
    call.command.stdin(stream(both));
    system.assert_refused(
        "a pipe opened again",
        call,
        USAGE,
        "descriptor 0 is the wrong end",
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn root_ends_everything_at_once() {
    let mut system = Installed::set_up();
    let call = system.call(&["stop", "--all"]);
    system.assert_refused("stop --all by the caller", call, POLICY, "rule 'root'");
    // One whose lifeline is held, one whose supervisor somebody has stopped, and what a killed one
    // left.
    let (held, _) = echoing(&system);
    let (stopped, _) = echoing(&system);
    kill(Pid::from_raw(stopped.supervisor()), Signal::SIGSTOP).unwrap();
    let (killed, _) = echoing(&system);
    kill(Pid::from_raw(killed.supervisor()), Signal::SIGKILL).unwrap();
    let outcome = system.call_root(&["stop", "--all"]).finish();
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    system.assert_nothing_left("stop --all");
    for running in [held, stopped] {
        assert_eq!(running.wait().code(), Some(143));
    }
    killed.wait();
    assert!(
        system
            .audit()
            .iter()
            .any(|line| line.contains("swept=1 live=0"))
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_supervisor_that_does_not_obey_is_killed() {
    let system = Installed::set_up();
    let (running, session) = echoing(&system);
    // No order reaches it, and it never ends by itself: the FIFO is somebody else's now.
    let fifo = format!("{STATE}/{session}/stop");
    remove(Path::new(&fifo));
    nix::unistd::mkfifo(
        Path::new(&fifo),
        nix::sys::stat::Mode::from_bits_truncate(0o600),
    )
    .unwrap();
    let outcome = system.call_root(&["stop", "--all"]).finish();
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    running.wait();
    system.assert_nothing_left("a deaf supervisor");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn teardown_needs_no_policy() {
    let mut system = Installed::set_up();
    let policy = Path::new(CONFIG).join("jail-policy.json");
    for broken in [Some("{ nonsense"), None] {
        system.write_policy(&system.policy());
        let (killed, _) = echoing(&system);
        let (live, session) = echoing(&system);
        kill(Pid::from_raw(killed.supervisor()), Signal::SIGKILL).unwrap();
        killed.wait();
        match broken {
            Some(text) => system.write_policy(text),
            None => remove(&policy),
        }
        // Who may ask besides root stands in the policy.
        system.audit();
        let call = system.call(&["sweep"]);
        assert_eq!(call.start().wait().code(), Some(FILE), "the caller");
        for args in [
            &["sweep"][..],
            &["stop", "--session", &session],
            &["stop", "--all"],
        ] {
            let outcome = system.call_root(args).finish();
            assert_eq!(outcome.code(), Some(0), "{args:?}: {outcome:?}");
        }
        live.wait();
        system.assert_nothing_left("a broken policy");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nobody_parks_root_by_not_reading() {
    let system = Installed::set_up();
    for args in [&["check"][..], &["plan", "one"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        fill(&writer);
        let mut call = system.call_root(args);
        call.command.stdout(stream(writer));
        assert_eq!(call.start().wait().code(), Some(SYSTEM), "{args:?}");
        drop(reader);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_callers_scheduling_is_not_the_supervisors() {
    let system = Installed::set_up();
    let all = status_line("self", "Cpus_allowed:");
    let (call, _) = system.run("one");
    let mut running = call.prepared(sys::become_unimportant).start();
    running.send("hello\n");
    running.await_output("hello\n");
    let supervisor = running.supervisor();
    let server = processes_of(&[SERVER_UID])[0];
    for pid in [supervisor, server] {
        let fields = stat(pid);
        // nice and policy (proc(5)): fields 19 and 41 of the whole line.
        assert_eq!(
            (fields[16].as_str(), fields[38].as_str()),
            ("0", "0"),
            "{fields:?}"
        );
        assert_eq!(status_line(&pid.to_string(), "Cpus_allowed:"), all);
    }
    running.end();
}

fn status_line(pid: &str, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines()
        .find(|line| line.starts_with(field))
        .unwrap()
        .to_owned()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_pending_real_time_signal_kills_nobody() {
    let mut system = Installed::set_up();
    let (call, _) = system.run("one");
    let outcome = call
        .prepared(sys::pend_realtime)
        .with_stdin(b"hello\n")
        .finish();
    assert_eq!(
        (outcome.code(), outcome.stdout.as_slice()),
        (Some(0), &b"hello\n"[..]),
        "{outcome:?}"
    );
    assert_eq!(system.audit().len(), 2);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn each_instance_of_a_range_has_a_uid_of_its_own() {
    let mut system = Installed::set_up();
    let range = format!("\"uids\":[{SERVER_UID},{OTHER_UID}]");
    let policy = system
        .policy()
        .replace("7872,\"gid\":7872", "7900,\"gid\":7900");
    system.write_policy(&policy.replace(&format!("\"uid\":{SERVER_UID}"), &range));
    let (first, _) = echoing(&system);
    let (second, _) = echoing(&system);
    for uid in [SERVER_UID, OTHER_UID] {
        assert_eq!(processes_of(&[uid]).len(), 1, "{uid}");
    }
    let (call, _) = system.run("one");
    let outcome = call.start().wait();
    assert_eq!(outcome.code(), Some(LIMIT), "{outcome:?}");
    assert!(outcome.stderr.contains("rule 'uids'"), "{outcome:?}");
    first.end();
    let (third, _) = echoing(&system);
    third.end();
    second.end();
    let audit = system.audit();
    assert!(
        audit
            .iter()
            .any(|line| line.contains(&format!("as={OTHER_UID}:{SERVER_UID}"))),
        "{audit:?}"
    );
    system.assert_nothing_left("a range");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn one_server_leaves_starts_to_others() {
    let system = Installed::set_up();
    system.write_policy(
        &system
            .policy()
            .replace("\"starts_per_minute\":10000", "\"starts_per_minute\":4"),
    );
    for _ in 0..3 {
        assert_eq!(system.run("one").0.finish().code(), Some(0));
    }
    let outcome = system.run("one").0.finish();
    assert_eq!(outcome.code(), Some(LIMIT), "{outcome:?}");
    assert!(outcome.stderr.contains("for others"), "{outcome:?}");
    assert_eq!(system.run("two").0.finish().code(), Some(0));
    assert_eq!(system.run("two").0.finish().code(), Some(LIMIT));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_list_that_the_mode_does_not_show_is_refused() {
    let mut system = Installed::set_up();
    system.write_registry(&default_registry(r#"["echo"]"#));
    let text = fs::read(format!("{CONFIG}/external-mcp.json")).unwrap();
    system.write("external-mcp.json", &text, 0o644);
    if !sys::add_acl(c"/usr/local/etc/colibri/external-mcp.json", 65534) {
        eprintln!("SKIPPED: this file system has no access control lists");
        return;
    }
    let (call, _) = system.run("one");
    system.assert_refused("a list on the registry", call, FILE, "access control list");
    system.write_registry(&default_registry(r#"["echo"]"#));
    fs::set_permissions(CONFIG, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(sys::add_acl(c"/usr/local/etc/colibri", 65534));
    let (call, _) = system.run("one");
    system.assert_refused(
        "a list on a directory above",
        call,
        FILE,
        "access control list",
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_way_to_root_tells_no_more() {
    let mut system = Installed::set_up();
    let caller = system.caller.to_string();
    // As sudo(8) starts it for the caller.
    for (args, word) in [
        (&["check"][..], "rule 'root'"),
        (&["plan", "one"], "rule 'root'"),
    ] {
        let mut call = system.call_root(args);
        call.command.env("SUDO_UID", &caller);
        let outcome = system.assert_refused("through sudo", call, POLICY, word);
        assert!(!outcome.stderr.contains("7871"), "{outcome:?}");
    }
    // For a person that uses sudo it is root.
    let mut call = system.call_root(&["check"]);
    call.command.env("SUDO_UID", "1001");
    assert_eq!(call.finish().code(), Some(0));
    // Through mdo(1) nothing tells the caller from root: what runs a server has neither told the
    // detail.
    system.write_policy(&system.policy().replace("[\"one\",\"two\"]", "[]"));
    let digest = system.digest("one");
    let call = system.call_root(&["run", "--session", &session(), "--digest", &digest, "one"]);
    let outcome = system.assert_refused("through mdo", call, POLICY, "rule 'servers'");
    assert_eq!(outcome.stderr, "helper: refused by rule 'servers'\n");
    // The audit says for whom it was.
    system.write_policy(&system.policy());
    let mut call = system.call_root(&["check"]);
    call.command.env("SUDO_UID", &caller);
    call.finish();
    let audit = system.audit();
    assert!(audit[0].contains(&format!("uid={caller} ")), "{audit:?}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_full_disk_leaves_no_half_an_instance() {
    let system = Installed::set_up();
    // The directory itself, lock, starts, the instance's, its record: the FIFO is one too many.
    for inodes in 4..=6 {
        fs::create_dir_all(STATE).unwrap();
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("mode=0700,nr_inodes={inodes}"),
                "tmpfs",
                STATE,
            ])
            .status();
        assert!(mounted.unwrap().success());
        let outcome = system.run("one").0.finish();
        let left: Vec<String> = names_in(STATE)
            .into_iter()
            .filter(|name| name.len() == 16)
            .collect();
        assert!(
            Command::new("umount")
                .arg(STATE)
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(outcome.code(), Some(SYSTEM), "{inodes}: {outcome:?}");
        assert_eq!(left, Vec::<String>::new(), "{inodes}: {outcome:?}");
    }
}

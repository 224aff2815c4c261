//! The hostile callers of FREEBSD.md §7, item by item, against the installed set-user-ID binary:
//! each is refused with its own exit code, one line and one audit line, or is harmless; and nothing
//! is left in either case. Where the kernel refuses before `main`, the expected outcome is "not
//! started".
//!
//! What is about jails, mounts and teardown of FreeBSD is in `tests/freebsd/run.sh`; nothing here
//! proves it.
#![cfg(target_os = "linux")]
// Helpers outside #[test] functions are tests too.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use colibri_tests::installed::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A call that must succeed: an echoed line, exit 0, the `started` line alone on stderr, nothing
/// left.
fn assert_harmless(system: &mut Installed, what: &str, call: Call) {
    let outcome = call.with_stdin(b"hello\n").finish();
    assert_eq!(outcome.code(), Some(0), "{what}: {outcome:?}");
    assert_eq!(outcome.stdout, b"hello\n", "{what}");
    assert_eq!(outcome.stderr, "helper: started jid=0\n", "{what}");
    let audit = system.audit();
    assert!(
        audit.len() == 2 && audit[0].contains("event=start") && audit[1].contains("left=nothing"),
        "{audit:?}"
    );
    system.assert_nothing_left(what);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_01_arguments() {
    let mut system = Installed::set_up();
    let digest = system.digest("one");
    let session = session();
    let many: Vec<&str> = vec!["x"; 10_000];
    // The kernel takes at most 128 KiB in one argument (MAX_ARG_STRLEN); beyond it nothing starts.
    let large = "a".repeat(100 << 10);
    let run = |more: &[&'static str]| {
        let mut args = vec![
            "run",
            "--session",
            session.as_str(),
            "--digest",
            digest.as_str(),
        ];
        args.extend_from_slice(more);
        args.iter().map(|a| a.to_string()).collect::<Vec<_>>()
    };
    for (what, args) in [
        ("nothing", vec![]),
        ("an empty argument", vec![String::new()]),
        ("a large argument", vec!["plan".to_owned(), large]),
        (
            "many arguments",
            many.iter().map(|a| a.to_string()).collect(),
        ),
        ("--", vec!["--".to_owned()]),
        ("-- before the name", run(&["--", "one"])),
        ("an option as the name", run(&["--version"])),
        ("a repeated option", run(&["--digest", "one"])),
        ("two names", run(&["one", "two"])),
        (
            "a path as the session",
            vec!["stop".into(), "--session".into(), "../../../etc/aa".into()],
        ),
        ("help", vec!["--help".to_owned()]),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let call = system.call(&args);
        system.assert_refused(what, call, USAGE, "usage");
    }
    let mut call = system.call(&["plan"]);
    call.command
        .arg(OsString::from_vec(vec![0xff, 0xfe, b'\n']));
    system.assert_refused("bytes that are not UTF-8", call, USAGE, "usage");
    let mut call = system.call(&["plan"]);
    call.command.arg("a".repeat(256 << 10));
    assert!(
        call.command.spawn().is_err(),
        "the kernel refuses an argument of 256 KiB"
    );
    for (what, first) in [("argc 0", None), ("an empty argv[0]", Some(c""))] {
        let call = system
            .call(&[])
            .prepared(move || sys::execute_bare(c"/usr/local/libexec/colibri-jail-helper", first));
        system.assert_refused(what, call, USAGE, "usage");
    }
    let mut call = system.call(&[]);
    std::os::unix::process::CommandExt::arg0(&mut call.command, "z".repeat(64 << 10));
    system.assert_refused("a huge argv[0]", call, USAGE, "usage");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_02_names() {
    let mut system = Installed::set_up();
    let lengths = [33, 63, 64, 256].map(|n| "a".repeat(n));
    let names = [
        "",
        "0",
        "-1",
        "+3",
        " 3",
        "007",
        "*",
        "a.*",
        "a.b",
        "../x",
        "a/b",
        "a=b",
        "a\nb",
        "a\tb",
        "a\u{202e}b",
        "e\u{301}",
        "One",
    ];
    for name in names.into_iter().chain(lengths.iter().map(String::as_str)) {
        let digest = "0".repeat(64);
        let session = session();
        let call = system.call(&["run", "--session", &session, "--digest", &digest, name]);
        system.assert_refused(name, call, USAGE, "a server's id");
    }
    let (call, _) = system.run("absent");
    system.assert_refused("a name that no entry has", call, FILE, "no entry");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_03_registry_and_policy_values() {
    let mut system = Installed::set_up();
    let jail = |more: &str| {
        registry_of(&format!(
            r#"{{"command":"/bin/inmate","args":["echo"],"jail":{{"path":"{ROOTS}/one"{more}}}}}"#
        ))
    };
    for more in [
        r#","exec.prestart":"touch /hacked""#,
        r#","EXEC.start":"x""#,
        r#","allow.raw_sockets":true"#,
        r#","path":"/""#,
        r#","ip4":["em0|192.0.2.7"]"#,
        r#","ip4":["192.0.2.7,192.0.2.8"]"#,
        r#","user":"one=0""#,
        r#","user":"root\n""#,
        r#","limits":{"processes":0}"#,
        r#","limits":{"processes":-1}"#,
        r#","limits":{"processes":18446744073709551617}"#,
        r#","limits":{"memory":"1e400"}"#,
        r#","allow":["noraw_sockets"]"#,
    ] {
        system.write_registry(&jail(more));
        let (call, _) = system.run("one");
        system.assert_refused(more, call, FILE, "external-mcp.json:1:");
    }
    for (more, rule) in [
        (r#","allow":["raw_sockets"]"#, "allow"),
        (r#","ip4":"inherit""#, "network"),
        (r#","ip4":["192.0.2.8"]"#, "network"),
        (r#","user":"daemon""#, "users"),
        (r#","mounts":[{"path":"/home","at":"/work"}]"#, "mounts"),
    ] {
        system.write_registry(&jail(more));
        let (call, _) = system.run("one");
        let outcome = system.assert_refused(more, call, POLICY, rule);
        assert_eq!(
            outcome.stderr,
            format!("helper: refused by rule '{rule}'\n"),
            "the caller learns the rule alone"
        );
    }
    system.write_registry(&default_registry(r#"["echo"]"#));
    let good = system.policy();
    for (from, to) in [
        ("\"max\":60", "\"maximum\":60"),
        ("\"max\":60", "\"max\":60,\"max\":61"),
        ("\"allow\":[]", "\"allow\":[\"mount.nullfs\"]"),
        ("7871,\"gid\":7871", "0,\"gid\":7871"),
        ("\"192.0.2.7\"", "\"em0|192.0.2.7\""),
        ("\"persistent\":[\"build0\"]", "\"persistent\":[\"*\"]"),
    ] {
        system.write_policy(&good.replacen(from, to, 1));
        let (call, _) = system.run("one");
        system.assert_refused(to, call, FILE, "jail-policy.json:");
    }
    system.write_policy(&good.replace("[\"one\",\"two\"]", "[\"two\"]"));
    let (call, _) = system.run("one");
    system.assert_refused(
        "a server that the policy does not list",
        call,
        POLICY,
        "servers",
    );
    system.write_policy(&good);
    let (mut call, _) = system.run("one");
    let text = default_registry(r#"["exit","0"]"#);
    system.write_registry(&text);
    call.command.env("X", "1");
    system.assert_refused(
        "an entry that changed",
        call,
        LATER,
        "registry changed, run service colibri_mcp reload",
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_04_descriptors() {
    let mut system = Installed::set_up();
    for (what, closed) in [
        ("stdin", vec![0]),
        ("stdout", vec![1]),
        ("all", vec![0, 1, 2]),
        ("stdin and stdout", vec![0, 1]),
    ] {
        let (call, _) = system.run("one");
        let mut call = call.prepared(move || closed.iter().for_each(|fd| sys::close(*fd)));
        system.audit();
        let outcome = call.finish();
        assert_eq!(outcome.code(), Some(USAGE), "{what}: {outcome:?}");
        let audit = system.audit();
        assert!(
            audit.len() == 1 && audit[0].contains("rule=pipes"),
            "{what}: {audit:?}"
        );
        system.assert_nothing_left(what);
    }
    let (call, _) = system.run("one");
    let mut call = call.prepared(|| sys::close(2));
    let outcome = call.finish();
    assert_eq!(outcome.code(), Some(USAGE), "stderr closed: {outcome:?}");
    system.audit();
    for (what, stdin) in [
        ("a directory as stdin", stream(fs::File::open("/").unwrap())),
        (
            "a file as stdin",
            stream(fs::File::open("/etc/passwd").unwrap()),
        ),
        (
            "a socket as stdin",
            stream(std::os::unix::net::UnixStream::pair().unwrap().0),
        ),
        ("/dev/null as stdin", Stdio::null()),
    ] {
        let (mut call, _) = system.run("one");
        call.command.stdin(stdin);
        system.assert_refused(what, call, USAGE, "descriptor 0 is not a pipe");
    }
    let (call, _) = system.run("one");
    let call = call.prepared(|| {
        sys::leak(c"/", 3..500);
        sys::leak(c"/etc/passwd", 500..1000);
    });
    assert_harmless(&mut system, "3 to 1000 open, directories among them", call);
    // A stdout that nobody reads fills up; the server waits, the lifeline still ends it.
    system.write_registry(&default_registry(r#"["flood"]"#));
    let running = system.run("one").0.start();
    until("the server's start", || {
        !processes_of(&[SERVER_UID]).is_empty()
    });
    let outcome = running.end();
    assert!(
        [Some(143), Some(0)].contains(&outcome.code()),
        "{:?}",
        outcome.status
    );
    system.assert_nothing_left("a full stdout");
    // A stderr that nobody reads must not hold the helper.
    let (reader, writer) = std::io::pipe().unwrap();
    fill(&writer);
    let mut call = system.call(&["plan", "0"]);
    call.command.stderr(stream(writer));
    let status = call.command.status().unwrap();
    assert_eq!(status.code(), Some(USAGE));
    drop(reader);
    // A stdout whose reader is gone.
    system.write_registry(&default_registry(r#"["echo"]"#));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (mut call, _) = system.run("one");
    call.command.stdout(stream(writer));
    let outcome = call.with_stdin(b"hello\n").finish();
    assert!(outcome.stderr.starts_with("helper: started"), "{outcome:?}");
    system.assert_nothing_left("a broken stdout");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_05_environment() {
    let mut system = Installed::set_up();
    system.write_registry(&registry_of(&format!(
        r#"{{"command":"/bin/inmate","args":["facts"],"env":{{"B":"2"}},"jail":{{"path":"{ROOTS}/one"}}}}"#
    )));
    let (mut call, _) = system.run("one");
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "PATH",
        "IFS",
        "HOME",
        "TMPDIR",
        "TZ",
        "MALLOC_CONF",
        "MALLOC_TOP_PAD_",
        "GLIBC_TUNABLES",
        "RUST_BACKTRACE",
        "RUST_LOG",
        "RUST_MIN_STACK",
        "LOCPATH",
        "NLSPATH",
        "GCONV_PATH",
        "B",
        "COLIBRI_MCP_EXTERNAL_CONFIG",
    ] {
        call.command.env(name, "/nonexistent:../\n%n");
    }
    for number in 0..16 {
        call.command
            .env(format!("LARGE{number}"), "x".repeat(60 << 10));
    }
    let outcome = call.finish();
    let facts = String::from_utf8(outcome.stdout.clone()).unwrap();
    let environment: Vec<&str> = facts
        .lines()
        .filter_map(|line| line.strip_prefix("env "))
        .collect();
    assert_eq!(
        environment,
        [
            "B=2",
            "HOME=/tmp",
            "LANG=C.UTF-8",
            "PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
        ],
        "{outcome:?}"
    );
    // Entries without `=` come with execute_bare, in group 1.
    system.audit();
    system.assert_nothing_left("environment");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_06_limits() {
    let mut system = Installed::set_up();
    // Root without CAP_SYS_RESOURCE cannot lift a hard limit, and then refuses; with it, limits are
    // harmless.
    let capable = fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .any(|line| {
            line.strip_prefix("CapEff:")
                .is_some_and(|hex| u64::from_str_radix(hex.trim(), 16).unwrap() & (1 << 24) != 0)
        });
    for (what, which, most) in [
        ("file size 0", libc::RLIMIT_FSIZE, 0),
        ("descriptors 3", libc::RLIMIT_NOFILE, 3),
        ("CPU 1 s", libc::RLIMIT_CPU, 1),
        ("address space 64 MiB", libc::RLIMIT_AS, 64 << 20),
        ("stack 64 KiB", libc::RLIMIT_STACK, 64 << 10),
        ("processes 0", libc::RLIMIT_NPROC, 0),
        ("core unlimited", libc::RLIMIT_CORE, libc::RLIM_INFINITY),
    ] {
        let (call, _) = system.run("one");
        let call = call.prepared(move || sys::limit(which, most));
        let harmless = capable || which == libc::RLIMIT_CORE;
        // NPROC does not hold root back, so that the helper itself works; the server has its own.
        if harmless || which == libc::RLIMIT_NPROC {
            let outcome = call.with_stdin(b"hello\n").finish();
            let good = outcome.stdout == b"hello\n";
            assert!(
                good || (!harmless && outcome.code() == Some(SYSTEM)),
                "{what}: {outcome:?}"
            );
        } else if which == libc::RLIMIT_NOFILE {
            // The dynamic linker needs a fourth descriptor: not started.
            let mut call = call;
            assert_ne!(call.finish().code(), Some(0), "{what}");
        } else {
            system.assert_refused(what, call, SYSTEM, "lift limits");
        }
        system.audit();
        system.assert_nothing_left(what);
    }
    system.write_registry(&default_registry(r#"["facts"]"#));
    let (call, _) = system.run("one");
    let outcome = call
        .prepared(|| sys::limit(libc::RLIMIT_CORE, libc::RLIM_INFINITY))
        .finish();
    assert!(
        String::from_utf8_lossy(&outcome.stdout).contains("limit core 0 0"),
        "{outcome:?}"
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_07_state() {
    let mut system = Installed::set_up();
    fs::create_dir_all("/tmp/colibri-gone").unwrap();
    fs::create_dir_all("/tmp/colibri-dark").unwrap();
    fs::set_permissions("/tmp/colibri-gone", fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions("/tmp/colibri-dark", fs::Permissions::from_mode(0o711)).unwrap();
    let states: [(&str, fn()); 10] = [
        ("umask 0", || sys::umask(0)),
        ("umask 0777", || sys::umask(0o777)),
        ("a deleted working directory", || {
            sys::chdir(c"/tmp/colibri-gone");
            sys::rmdir(c"/tmp/colibri-gone");
        }),
        ("an unreadable working directory", || {
            sys::chdir(c"/tmp/colibri-dark")
        }),
        ("every signal blocked", || sys::signals(true, false)),
        ("every signal ignored", || sys::signals(false, true)),
        ("every signal blocked and ignored", || {
            sys::signals(true, true)
        }),
        ("a pending TERM", || {
            sys::signals(true, false);
            sys::pend_term();
        }),
        ("an interval timer with SIGALRM ignored until main", || {
            sys::signals(true, false);
            sys::timer(libc::ITIMER_REAL, 1000);
        }),
        ("a virtual timer", || {
            sys::signals(true, false);
            sys::timer(libc::ITIMER_VIRTUAL, 1000);
        }),
    ];
    for (what, state) in states {
        let (call, _) = system.run("one");
        assert_harmless(&mut system, what, call.prepared(state));
    }
    fs::remove_dir("/tmp/colibri-dark").unwrap();
    remove(Path::new("/tmp/colibri-gone"));
    // A timer that fires before main ends the program there; one that fires later finds it cleared.
    // No third outcome.
    for micros in [200, 500, 1000, 2000, 5000] {
        let (call, _) = system.run("one");
        let outcome = call
            .prepared(move || sys::timer(libc::ITIMER_REAL, micros))
            .with_stdin(b"hello\n")
            .finish();
        let not_started = outcome.status.signal() == Some(Signal::SIGALRM as i32);
        assert!(
            not_started || outcome.stdout == b"hello\n",
            "{micros}: {outcome:?}"
        );
        system.assert_nothing_left("an interval timer");
    }
    // The caller may not stop or signal what it started.
    let mut running = system.run("one").0.start();
    running.send("a\n");
    running.await_output("a\n");
    for pid in [running.pid(), running.supervisor()] {
        for signal in ["STOP", "KILL", "TERM"] {
            let mut command = Command::new("/bin/kill");
            command
                .args([&format!("-{signal}"), &pid.to_string()])
                .stderr(Stdio::null());
            let (uid, gid) = (system.caller, system.group);
            sys::before_exec(&mut command, move || {
                sys::groups(&[]);
                sys::become_user(uid, gid);
            });
            assert!(!command.status().unwrap().success(), "{signal}");
        }
    }
    running.send("b\n");
    running.await_output("b\n");
    assert_eq!(running.end().code(), Some(0));
    system.assert_nothing_left("signals from the caller");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_08_identity() {
    let mut system = Installed::set_up();
    let session = session();
    let digest = system.digest("one");
    let args = ["run", "--session", &session, "--digest", &digest, "one"];
    let mut call = system.call_as(65534, system.group, &[]);
    call.command.args(args);
    system.assert_refused("a wrong uid in the right group", call, POLICY, "caller");
    let mut call = system.call_as(system.caller, 65534, &[]);
    call.command.args(args);
    let refused = call.command.spawn().expect_err("the kernel refuses");
    assert_eq!(
        refused.kind(),
        std::io::ErrorKind::PermissionDenied,
        "the right uid in the wrong group: not started"
    );
    let (call, _) = system.run("one");
    let call = call.prepared(sys::no_new_privs);
    system.assert_refused("no_new_privs", call, SYSTEM, "no_new_privs");
    // A copy without the bit, and one on a file system mounted nosuid.
    let copy = Path::new("/usr/local/libexec/colibri-jail-helper.copy");
    install(Path::new(HELPER), copy, system.group, 0o550);
    let mut call = system.call(&args);
    call.command = rebase(call.command, copy, &system);
    system.assert_refused("a copy without the bit", call, SYSTEM, "4550 root:colibri");
    remove(copy);
    let mount = Path::new("/usr/local/libexec/colibri-nosuid");
    fs::create_dir_all(mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "nosuid", "tmpfs"])
        .arg(mount)
        .status()
        .unwrap();
    assert!(mounted.success());
    let copy = mount.join("colibri-jail-helper");
    install(Path::new(HELPER), &copy, system.group, 0o4550);
    let mut call = system.call(&args);
    call.command = rebase(call.command, &copy, &system);
    system.assert_refused("a file system mounted nosuid", call, SYSTEM, "nosuid");
    assert!(
        Command::new("umount")
            .arg(mount)
            .status()
            .unwrap()
            .success()
    );
    fs::remove_dir(mount).unwrap();
    // By another name the program is the same.
    for hard in [true, false] {
        let other = Path::new("/usr/local/libexec/colibri-other-name");
        if hard {
            fs::hard_link(HELPER, other).unwrap()
        } else {
            link(HELPER, other)
        }
        let mut call = system.call(&args);
        call.command = rebase(call.command, other, &system);
        assert_harmless(&mut system, "a link", call);
        remove(other);
    }
    // Supplementary groups of the caller do not reach the server.
    system.write_registry(&default_registry(r#"["facts"]"#));
    let digest = system.digest("one");
    let mut call = system.call_as(system.caller, system.group, &[4, 6, 27]);
    call.command
        .args(["run", "--session", &session, "--digest", &digest, "one"]);
    let outcome = call.finish();
    assert!(
        String::from_utf8_lossy(&outcome.stdout).contains("\ngroups 0\n"),
        "{outcome:?}"
    );
    system.audit();
    // Root may ask, and is told more.
    let mut call = system.call_as(0, 0, &[]);
    call.command.args(["plan", "one"]);
    let outcome = call.finish();
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    assert!(
        String::from_utf8_lossy(&outcome.stdout).contains("\"uid\": 7871"),
        "{outcome:?}"
    );
    system.write_policy(&system.policy().replace("[\"one\",\"two\"]", "[]"));
    let mut call = system.call_as(0, 0, &[]);
    call.command.args(["plan", "one"]);
    system.assert_refused(
        "root is told the detail",
        call,
        POLICY,
        "the policy's servers do not list",
    );
    // A server never has the caller's ids.
    let caller = format!("\"uid\":{}", system.caller);
    system.write_policy(&system.policy().replace("\"uid\":7871", &caller));
    let (call, _) = system.run("one");
    system.assert_refused("a server with the caller's uid", call, POLICY, "users");
}

/// The same call of another path to the program.
fn rebase(command: Command, program: &Path, system: &Installed) -> Command {
    let mut other = Command::new(program);
    other
        .args(command.get_args())
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (uid, gid) = (system.caller, system.group);
    sys::before_exec(&mut other, move || {
        sys::groups(&[]);
        sys::become_user(uid, gid);
    });
    other
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_09_policy_and_registry_files() {
    let mut system = Installed::set_up();
    let good_policy = system.policy();
    let good_registry = default_registry(r#"["echo"]"#);
    for (name, good) in [
        ("jail-policy.json", &good_policy),
        ("external-mcp.json", &good_registry),
    ] {
        let path = Path::new(CONFIG).join(name);
        let digest = system.digest("one");
        let cut = &good.as_bytes()[..good.len() / 2];
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let marked = [b"\xef\xbb\xbf", good.as_bytes()].concat();
        let trailing = format!("{good} x");
        let contents: [(&str, &[u8]); 6] = [
            ("empty", b""),
            ("cut off", cut),
            ("deeply nested", deep.as_bytes()),
            ("a byte-order mark", &marked),
            ("trailing data", trailing.as_bytes()),
            ("not UTF-8", b"{\"\xff\":1}"),
        ];
        let try_it = |system: &mut Installed, what: &str| {
            let session = session();
            let call = system.call(&["run", "--session", &session, "--digest", &digest, "one"]);
            system.assert_refused(&format!("{name}: {what}"), call, FILE, name);
            remove(&path);
        };
        for (what, bytes) in contents {
            system.write(name, bytes, 0o644);
            try_it(&mut system, what);
        }
        try_it(&mut system, "missing");
        fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
        try_it(&mut system, "1 GiB");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
        try_it(&mut system, "a FIFO");
        let device = nix::sys::stat::makedev(1, 5);
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o644);
        nix::sys::stat::mknod(&path, nix::sys::stat::SFlag::S_IFCHR, mode, device).unwrap();
        try_it(&mut system, "a device");
        fs::create_dir(&path).unwrap();
        try_it(&mut system, "a directory");
        system.write("elsewhere", good.as_bytes(), 0o644);
        link("elsewhere", &path);
        try_it(&mut system, "a symlink");
        system.write(name, good.as_bytes(), 0o644);
        chown(&path, Some(65534), None).unwrap();
        try_it(&mut system, "a wrong owner");
        for mode in [0o664, 0o646, 0o666] {
            system.write(name, good.as_bytes(), mode);
            try_it(&mut system, "writable by others");
        }
        system.write(name, good.as_bytes(), 0o644);
    }
    // A writable directory anywhere above.
    for directory in ["/usr/local/etc/colibri", "/usr/local/etc", "/usr/local"] {
        let before = fs::metadata(directory).unwrap().permissions();
        for mode in [0o775, 0o757, 0o1777] {
            fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
            let (call, _) = system.run("one");
            system.assert_refused(directory, call, FILE, "writable by its group or by others");
        }
        fs::set_permissions(directory, before).unwrap();
    }
    chown(CONFIG, Some(65534), None).unwrap();
    let (call, _) = system.run("one");
    system.assert_refused(
        "a directory of somebody else's",
        call,
        FILE,
        "owned by somebody else",
    );
    chown(CONFIG, Some(0), None).unwrap();
    // Replaced while it is read: every call sees the one or the other, whole.
    let path = Path::new(CONFIG).join("jail-policy.json");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let next = Path::new(CONFIG).join("next");
            for number in 0.. {
                let text = if number % 2 == 0 {
                    good_policy.clone()
                } else {
                    good_policy.replace("[\"one\",\"two\"]", "[]")
                };
                fs::write(&next, text).unwrap();
                fs::rename(&next, &path).unwrap();
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
            }
        });
        let outcomes: Vec<_> = (0..200)
            .map(|_| system.call_root(&["plan", "one"]).finish())
            .collect();
        // Before anything is asserted: a scope waits for its threads even when it panics.
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for outcome in outcomes {
            assert!(
                [Some(0), Some(POLICY)].contains(&outcome.code()),
                "{outcome:?}"
            );
        }
    });
    // Secrets: only root's, only 0400.
    system.write_policy(&good_policy);
    system.write_registry(&registry_of(&format!(
        r#"{{"command":"/bin/inmate","args":["echo"],"env":{{"T":{{"secret":"token"}}}},"jail":{{"path":"{ROOTS}/one"}}}}"#
    )));
    let (call, _) = system.run("one");
    system.assert_refused(
        "a missing secret",
        call,
        FILE,
        "secrets/token: does not exist",
    );
    for mode in [0o440, 0o404, 0o600] {
        system.write("secrets/token", b"s3cret", mode);
        let (call, _) = system.run("one");
        system.assert_refused("a secret that others read", call, FILE, "secrets/token");
    }
    system.write("secrets/token", b"s3cret", 0o400);
    fs::set_permissions(
        format!("{CONFIG}/secrets"),
        fs::Permissions::from_mode(0o750),
    )
    .unwrap();
    let (call, _) = system.run("one");
    system.assert_refused(
        "a directory of secrets that others read",
        call,
        FILE,
        "0700",
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_10_jail_paths() {
    let mut system = Installed::set_up();
    let of = |path: &str| {
        registry_of(&format!(
            r#"{{"command":"/bin/inmate","args":["echo"],"jail":{{"path":"{path}"}}}}"#
        ))
    };
    for path in ["relative", "/a/../b", "/a//b", "/a/", "/", "/a/.", ""] {
        system.write_registry(&of(path));
        let (call, _) = system.run("one");
        system.assert_refused(path, call, FILE, "external-mcp.json:1:");
    }
    let listed = |system: &Installed, path: &str| {
        system.write_policy(
            &system
                .policy()
                .replace(&format!("\"{ROOTS}/one\""), &format!("\"{path}\"")),
        );
        system.write_registry(&of(path));
    };
    for (component, what) in [
        (ROOTS.to_owned(), "the directory above"),
        (format!("{ROOTS}/one"), "the root itself"),
    ] {
        let aside = format!("{component}.aside");
        fs::rename(&component, &aside).unwrap();
        link(&aside, Path::new(&component));
        let (call, _) = system.run("one");
        let call = {
            system.write_registry(&of(&format!("{ROOTS}/one")));
            drop(call);
            system.run("one").0
        };
        system.assert_refused(what, call, FILE, "symlink");
        remove(Path::new(&component));
        fs::rename(&aside, &component).unwrap();
    }
    for point in ["dev", "tmp"] {
        let path = format!("{ROOTS}/one/{point}");
        fs::remove_dir(&path).unwrap();
        let (call, _) = system.run("one");
        system.assert_refused("a missing mount point", call, FILE, "does not exist");
        link("/etc", Path::new(&path));
        let (call, _) = system.run("one");
        system.assert_refused("a mount point that is a symlink", call, FILE, "symlink");
        remove(Path::new(&path));
        fs::create_dir(&path).unwrap();
    }
    fs::write(format!("{ROOTS}/file"), b"x").unwrap();
    listed(&system, &format!("{ROOTS}/file"));
    let (call, _) = system.run("one");
    system.assert_refused("a file", call, FILE, "not a directory");
    listed(&system, &format!("{ROOTS}/absent"));
    let (call, _) = system.run("one");
    system.assert_refused("nothing", call, FILE, "does not exist");
    listed(&system, "/tmp/colibri-root");
    fs::create_dir_all("/tmp/colibri-root").unwrap();
    let (call, _) = system.run("one");
    system.assert_refused(
        "below a sticky world-writable directory",
        call,
        FILE,
        "writable",
    );
    remove(Path::new("/tmp/colibri-root"));
    // Swapped by another process between the real directory and a link to /etc, 10,000 times: never
    // /etc.
    system.write_policy(&system.policy());
    system.write_registry(&registry_of(&format!(
        r#"{{"command":"/bin/inmate","args":["attack","/passwd"],"jail":{{"path":"{ROOTS}/one"}}}}"#
    )));
    let (real, aside) = (format!("{ROOTS}/one"), format!("{ROOTS}/aside"));
    let enough = std::sync::atomic::AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let mut rounds = 0;
            while rounds < 10_000 || !enough.load(std::sync::atomic::Ordering::Relaxed) {
                fs::rename(&real, &aside).unwrap();
                link("/etc", Path::new(&real));
                remove(Path::new(&real));
                fs::rename(&aside, &real).unwrap();
                rounds += 1;
            }
            rounds
        });
        let outcomes: Vec<_> = (0..40).map(|_| system.run("one").0.finish()).collect();
        enough.store(true, std::sync::atomic::Ordering::Relaxed);
        for outcome in outcomes {
            assert!(
                !String::from_utf8_lossy(&outcome.stdout).contains("see /passwd: WORKED"),
                "{outcome:?}"
            );
            assert!(
                [Some(0), Some(FILE)].contains(&outcome.code()),
                "{outcome:?}"
            );
        }
        swapper.join().unwrap()
    });
    assert!(rounds >= 10_000);
    system.assert_nothing_left("swapped roots");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_11_children() {
    let system = Installed::set_up();
    for (args, code) in [
        (r#"["exit","0"]"#, 0),
        (r#"["exit","1"]"#, 1),
        (r#"["exit","127"]"#, 127),
        (r#"["signal","15"]"#, 143),
        (r#"["hang"]"#, 143),
        (r#"["stubborn"]"#, 137),
        (r#"["detach"]"#, 0),
    ] {
        system.write_registry(&default_registry(args));
        let outcome = system.run("one").0.finish();
        assert_eq!(outcome.code(), Some(code), "{args}: {outcome:?}");
        system.assert_nothing_left(args);
    }
    // A command that is not there, or not a program: the exit code is the helper's, and nothing was
    // started.
    for command in ["/bin/absent", "/bin", "/dev/null"] {
        system.write_registry(&registry_of(&format!(
            r#"{{"command":"{command}","jail":{{"path":"{ROOTS}/one"}}}}"#
        )));
        let outcome = system.run("one").0.finish();
        assert_eq!(outcome.code(), Some(FILE), "{command}: {outcome:?}");
        assert!(
            !outcome.stderr.contains("started") && outcome.stderr.lines().count() == 1,
            "{command}: {outcome:?}"
        );
        system.assert_nothing_left(command);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_12_parallel() {
    let mut system = Installed::set_up();
    // The 40 processes of the policy are the uid's, so 40 instances of one server are the most that
    // fit; ask for 30.
    let mut running: Vec<Running> = (0..30).map(|_| system.run("one").0.start()).collect();
    for (number, instance) in running.iter_mut().enumerate() {
        instance.send(&format!("hello {number}\n"));
        assert_eq!(instance.await_output("\n"), format!("hello {number}\n"));
    }
    for instance in running {
        assert_eq!(instance.end().code(), Some(0));
    }
    system.assert_nothing_left("thirty at once");
    // One more than the policy allows.
    system.write_policy(
        &system
            .policy()
            .replace("\"max_per_server\":55", "\"max_per_server\":1"),
    );
    let mut first = system.run("one").0.start();
    first.send("a\n");
    first.await_output("a\n");
    let (mut call, _) = system.run("one");
    let outcome = call.finish();
    assert_eq!(outcome.code(), Some(LIMIT), "{outcome:?}");
    assert!(outcome.stderr.contains("max_per_server"), "{outcome:?}");
    assert_eq!(first.end().code(), Some(0));
    system.write_policy(
        &system
            .policy()
            .replace("\"starts_per_minute\":10000", "\"starts_per_minute\":1"),
    );
    let (call, _) = system.run("one");
    system.assert_refused("starts_per_minute", call, LIMIT, "starts_per_minute");
    system.write_policy(&system.policy());
    // A session that lives cannot be had again.
    let (call, session) = system.run("one");
    let mut first = call.start();
    first.send("a\n");
    first.await_output("a\n");
    let digest = system.digest("one");
    let outcome = system
        .call(&["run", "--session", &session, "--digest", &digest, "one"])
        .finish();
    assert_eq!(outcome.code(), Some(LATER), "{outcome:?}");
    // Torn down twice at the same time.
    let mut stops: Vec<_> = (0..4)
        .map(|_| system.call(&["stop", "--session", &session]).start())
        .collect();
    for stop in stops.drain(..) {
        assert_eq!(stop.wait().code(), Some(0));
    }
    first.wait();
    system.assert_nothing_left("four teardowns");
    // Killed at any moment of making, then swept.
    for round in 0..25u64 {
        let mut running = system.run("one").0.start();
        let outer = running.pid();
        if round % 5 != 0 {
            until("the supervisor", || {
                !children_of(outer).is_empty() || !Path::new(&format!("/proc/{outer}/exe")).exists()
            });
        }
        std::thread::sleep(std::time::Duration::from_micros(round * 400));
        for pid in children_of(outer).into_iter().chain([outer]) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        running.stdin.take();
        running.wait();
        until("the end of all", || processes_of(&[SERVER_UID]).is_empty());
        until("a clean sweep", || {
            let swept = system.call(&["sweep"]).finish();
            assert_eq!(swept.code(), Some(0), "{swept:?}");
            names_in(STATE).iter().all(|name| name.len() != 16)
        });
        system.assert_nothing_left("killed while making");
    }
    system.audit();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn group_13_logs() {
    let mut system = Installed::set_up();
    system.write("secrets/token", b"hunter2-secret", 0o400);
    system.write_registry(&registry_of(&format!(
        r#"{{"command":"/bin/inmate","args":["echo"],"env":{{"T":{{"secret":"token"}},"P":"hunter2-plain"}},
             "jail":{{"path":"{ROOTS}/one"}}}}"#
    )));
    let outcome = system.run("one").0.finish();
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    let plan = system.call_root(&["plan", "one"]).finish();
    let mut said = vec![
        outcome.stderr,
        String::from_utf8_lossy(&plan.stdout).into_owned(),
    ];
    // Keys with control characters, and a value of a megabyte, in a registry that is refused.
    for text in [
        "{\"servers\":{\"one\\u001b[2J\\n\\u202e\":{\"command\":\"/hunter2-value\"}}}".to_owned(),
        format!(
            "{{\"servers\":{{\"one\":{{\"command\":\"/x\",\"k\\u0007\":\"hunter2-{}\"}}}}}}",
            "x".repeat(900_000)
        ),
        format!(
            "{{\"servers\":{{\"one\":{{\"{}\":\"hunter2-value\"}}}}}}",
            "k".repeat(900_000)
        ),
    ] {
        system.write_registry(&text);
        let call = system.call_root(&["plan", "one"]);
        let outcome = system.assert_refused("a strange registry", call, FILE, "external-mcp.json");
        assert!(outcome.stderr.len() <= 512);
        assert!(
            outcome
                .stderr
                .trim_end()
                .bytes()
                .all(|b| (b' '..=b'~').contains(&b)),
            "{outcome:?}"
        );
        said.push(outcome.stderr);
    }
    said.extend(system.audit());
    for text in said {
        assert!(!text.contains("hunter2"), "{text}");
    }
    // Without a syslogd a policy that requires one starts nothing; one that does not, does.
    fs::remove_file("/dev/log").unwrap();
    system.write_registry(&default_registry(r#"["echo"]"#));
    let outcome = system.run("one").0.finish();
    assert_eq!(outcome.code(), Some(SYSTEM), "{outcome:?}");
    assert!(outcome.stderr.contains("syslogd"), "{outcome:?}");
    system.assert_nothing_left("no syslogd");
    system.write_policy(&system.policy().replace("\"require\"", "\"best-effort\""));
    let outcome = system.run("one").0.finish();
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
}

//! Real processes below a real supervisor: what is started, with what, and that nothing is left of
//! it.
//!
//! The test binary is also the supervisor, the servers and the stand-in daemon, so it has its own
//! `main` and runs its tests one after the other. Arguments without a dash select tests whose name
//! contains one of them; with `--exact`, those that have it. `--list` prints the names, as
//! cargo-nextest asks for them.

// clippy.toml allows unwrap in tests, but does not know that this file is one. The servers leave
// processes to nobody on purpose: collecting them is what is tested.
#![allow(clippy::unwrap_used, clippy::zombie_processes)]

use colibri_api::PrivMode;
use colibri_confine::{
    LaunchSettings, LaunchSpec, ServerExit, SpawnError, SpawnedServer, Spawner as _, SystemSpawner,
    supervisor,
};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, setsid};
use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

/// No test waits longer than this for what must happen; none measures anything by it.
const GENEROUS: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|first| first.to_str()) {
        Some(supervisor::ARGUMENT) => supervisor::main(arguments),
        Some("daemon") => daemon(),
        Some("server") => server(&std::env::args().nth(2).unwrap()),
        _ => run_tests(),
    }
}

macro_rules! named {
    ($($test:ident),* $(,)?) => { &[$((stringify!($test), $test)),*] };
}

const TESTS: &[(&str, fn())] = named![
    closed_stdin_ends_the_whole_tree,
    a_server_that_obeys_is_not_signalled,
    term_reaches_a_server_that_ignores_the_end_of_input,
    the_rest_of_the_tree_ends_with_the_server,
    a_storm_of_forks_ends,
    nothing_outlives_a_killed_daemon,
    a_keeper_that_nobody_listens_to_keeps_on,
    term_to_the_keeper_ends_the_tree,
    the_server_dies_with_a_killed_keeper,
    exit_statuses_are_exact,
    unread_input_does_not_hide_the_end,
    the_environment_is_exactly_the_built_one,
    nothing_is_inherited,
    words_of_server_and_keeper_do_not_mix,
    stdout_ends_when_the_server_closes_it,
    a_hardened_process_cannot_be_dumped,
    what_cannot_be_started_is_said,
    dropping_the_start_ends_it,
    the_keeper_refuses_to_run_without_a_lifeline,
];

fn run_tests() -> ExitCode {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let has_flag = |flag: &str| std::env::args().any(|argument| argument == flag);
    let is_exact = has_flag("--exact");
    let selects = |word: &String, name: &str| {
        if is_exact {
            name == word
        } else {
            name.contains(word.as_str())
        }
    };
    let selected = TESTS
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|word| selects(word, name)));
    if has_flag("--list") {
        // None is ignored.
        if !has_flag("--ignored") {
            selected.for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, test) in selected {
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u8::from(!passed);
    }
    ExitCode::from(failed)
}

// The servers.

fn myself() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn say(text: impl std::fmt::Display) {
    println!("{text}");
    std::io::stdout().flush().unwrap();
}

/// Blocks TERM, which is then never delivered: no handler, and so no `unsafe`, is needed to ignore
/// it.
fn ignore_term() {
    SigSet::from(Signal::SIGTERM).thread_block().unwrap();
}

fn sleep_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Starts this program as another server that inherits everything.
fn another(kind: &str) -> std::process::Child {
    Command::new(myself())
        .args(["server", kind])
        .spawn()
        .unwrap()
}

fn server(kind: &str) -> ExitCode {
    match kind {
        "obedient" => {
            say(std::process::id());
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
            ExitCode::from(7)
        }
        "deaf" => {
            say(std::process::id());
            sleep_for_ever()
        }
        "stubborn" => {
            ignore_term();
            say(std::process::id());
            sleep_for_ever()
        }
        // Ends at once and leaves a process that belongs to nobody, in a session of its own.
        "detach" => {
            setsid().unwrap();
            another("stubborn");
            ExitCode::SUCCESS
        }
        "tree" => {
            ignore_term();
            say(std::process::id());
            another("stubborn");
            another("detach").wait().unwrap();
            sleep_for_ever()
        }
        "leader" => {
            another("stubborn");
            another("detach").wait().unwrap();
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).unwrap();
            ExitCode::from(3)
        }
        "storm" => {
            ignore_term();
            say(std::process::id());
            for _ in 0..4 {
                another("drizzle");
            }
            sleep_for_ever()
        }
        "drizzle" => {
            ignore_term();
            for round in 1u64.. {
                let _ = another("detach-quietly").wait();
                if round == 5 {
                    say(std::process::id());
                }
            }
            unreachable!()
        }
        "detach-quietly" => {
            ignore_term();
            setsid().unwrap();
            Command::new("/bin/sleep").arg("1000").spawn().unwrap();
            ExitCode::SUCCESS
        }
        "crash" => {
            kill(Pid::this(), Signal::SIGKILL).unwrap();
            sleep_for_ever()
        }
        "environment" => {
            for (name, value) in std::env::vars() {
                println!("{name}={value}");
            }
            ExitCode::SUCCESS
        }
        "state" => {
            let mut open: Vec<String> = std::fs::read_dir("/dev/fd")
                .unwrap()
                .filter_map(|entry| {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    // The directory that is being read is in its own list.
                    let read = std::fs::read_link(format!("/dev/fd/{name}")).unwrap_or_default();
                    (!read.ends_with("fd")).then_some(name)
                })
                .collect();
            open.sort();
            println!("descriptors={}", open.join(","));
            println!(
                "leads_session={}",
                nix::unistd::getsid(None).unwrap() == Pid::this()
            );
            println!("directory={}", std::env::current_dir().unwrap().display());
            if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
                for line in status
                    .lines()
                    .filter(|line| line.starts_with("Sig") || line.starts_with("NoNewPrivs"))
                {
                    println!("{}", line.replace(":\t", "="));
                }
            }
            ExitCode::SUCCESS
        }
        "hardened" => {
            colibri_confine::harden::harden().unwrap();
            #[cfg(target_os = "linux")]
            assert!(!nix::sys::prctl::get_dumpable().unwrap());
            say("hardened");
            ExitCode::SUCCESS
        }
        "close-stdout" => {
            let null = std::fs::File::options()
                .write(true)
                .open("/dev/null")
                .unwrap();
            nix::unistd::dup2_stdout(null).unwrap();
            eprintln!("closed");
            sleep_for_ever()
        }
        other => panic!("no such server: {other}"),
    }
}

/// The stand-in daemon: starts a tree, passes on what it says, and waits to be killed.
fn daemon() -> ExitCode {
    runtime().block_on(async {
        let spawned = SystemSpawner::new(PrivMode::Helper)
            .unwrap()
            .spawn(order("tree"))
            .await
            .unwrap();
        say(spawned.process.pid());
        for pid in pids(spawned.stdout, 3).await {
            say(pid);
        }
        std::future::pending::<ExitCode>().await
    })
}

// What the tests share.

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Runs a test's future, but not for ever.
fn run(test: impl Future<Output = ()>) {
    runtime().block_on(async {
        tokio::time::timeout(GENEROUS, test)
            .await
            .expect("the test hangs")
    });
}

fn order(kind: &str) -> LaunchSpec {
    LaunchSpec::Host {
        server: "fixture".to_owned(),
        program: myself(),
        arguments: vec!["server".to_owned(), kind.to_owned()],
        environment: BTreeMap::new(),
        directory: None,
        stdin: colibri_registry::Stdin::Pipe,
    }
}

fn settings() -> LaunchSettings {
    LaunchSettings {
        grace: Duration::from_millis(200),
        ..LaunchSettings::new(PrivMode::Helper, myself())
    }
}

async fn spawn(order: LaunchSpec) -> SpawnedServer {
    SystemSpawner::with(settings()).spawn(order).await.unwrap()
}

async fn pids(stdout: impl tokio::io::AsyncRead + Unpin, number: usize) -> Vec<i32> {
    let mut lines = BufReader::new(stdout).lines();
    let mut pids = Vec::new();
    while pids.len() < number {
        pids.push(
            lines
                .next_line()
                .await
                .unwrap()
                .expect("the server ended early")
                .parse()
                .unwrap(),
        );
    }
    pids
}

/// True if the process runs; one that only waits to be collected by somebody does not.
fn runs(pid: i32) -> bool {
    let zombie = std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'))
    });
    kill(Pid::from_raw(pid), None).is_ok() && !zombie
}

/// Waits until all of them are gone; kills what is left if that takes too long.
fn all_gone(pids: &[i32]) -> Duration {
    let start = Instant::now();
    while pids.iter().any(|&pid| runs(pid)) {
        if start.elapsed() > GENEROUS {
            let left: Vec<i32> = pids.iter().copied().filter(|&pid| runs(pid)).collect();
            for &pid in &left {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            panic!("left behind: {left:?}");
        }
        std::thread::yield_now();
    }
    start.elapsed()
}

async fn text(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

// The tests.

fn closed_stdin_ends_the_whole_tree() {
    run(async {
        let mut spawned = spawn(order("tree")).await;
        let pids = pids(spawned.stdout, 3).await;
        assert!(pids.iter().all(|&pid| runs(pid)));
        drop(spawned.stdin);
        assert_eq!(spawned.process.wait().await, ServerExit::Status(137));
        assert_eq!(
            spawned.process.wait().await,
            ServerExit::Status(137),
            "waiting again says the same"
        );
        // The supervisor has ended, so it has already seen the end of each of them.
        assert!(!pids.iter().any(|&pid| runs(pid)));
    });
}

fn a_server_that_obeys_is_not_signalled() {
    run(async {
        let settings = LaunchSettings {
            grace: GENEROUS * 10,
            ..settings()
        };
        let mut spawned = SystemSpawner::with(settings)
            .spawn(order("obedient"))
            .await
            .unwrap();
        drop(spawned.stdin);
        assert_eq!(spawned.process.wait().await, ServerExit::Status(7));
    });
}

fn term_reaches_a_server_that_ignores_the_end_of_input() {
    run(async {
        let mut spawned = spawn(order("deaf")).await;
        pids(spawned.stdout, 1).await;
        drop(spawned.stdin);
        assert_eq!(spawned.process.wait().await, ServerExit::Status(128 + 15));
    });
}

fn the_rest_of_the_tree_ends_with_the_server() {
    run(async {
        // The grace would last longer than the test: nobody gets it once the server itself has
        // ended.
        let settings = LaunchSettings {
            grace: GENEROUS * 10,
            ..settings()
        };
        let mut spawned = SystemSpawner::with(settings)
            .spawn(order("leader"))
            .await
            .unwrap();
        let pids = pids(spawned.stdout, 2).await;
        spawned.stdin.write_all(b"go\n").await.unwrap();
        assert_eq!(spawned.process.wait().await, ServerExit::Status(3));
        assert!(!pids.iter().any(|&pid| runs(pid)));
    });
}

fn a_storm_of_forks_ends() {
    run(async {
        let mut spawned = spawn(order("storm")).await;
        // Each of the four has rained a little: the supervisor has orphans of orphans to find.
        pids(spawned.stdout, 5).await;
        drop(spawned.stdin);
        assert_eq!(spawned.process.wait().await, ServerExit::Status(137));
    });
}

fn nothing_outlives_a_killed_daemon() {
    let mut daemon = Command::new(myself())
        .arg("daemon")
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(daemon.stdout.take().unwrap()).lines();
    let pids: Vec<i32> = lines
        .take(4)
        .map(|line| line.unwrap().parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|&pid| runs(pid)));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    println!(
        "     gone {} ms after the daemon was killed",
        all_gone(&pids).as_millis()
    );
}

fn a_keeper_that_nobody_listens_to_keeps_on() {
    // As when the daemon is killed while the server is being started: writing fails, and must not
    // stop the supervisor.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut supervisor = Command::new(myself())
        .args([
            "keeper",
            "--grace-ms",
            "50",
            "--parent",
            "1",
            "--session",
            "shared",
            "--stdin",
            "pipe",
            "--",
        ])
        .arg(myself())
        .args(["server", "tree"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(supervisor.stdout.take().unwrap()).lines();
    let pids: Vec<i32> = lines
        .take(3)
        .map(|line| line.unwrap().parse().unwrap())
        .collect();
    drop(supervisor.stdin.take());
    assert_eq!(supervisor.wait().unwrap().code(), Some(137));
    assert!(!pids.iter().any(|&pid| runs(pid)));
}

fn term_to_the_keeper_ends_the_tree() {
    run(async {
        let mut spawned = spawn(order("tree")).await;
        let pids = pids(spawned.stdout, 3).await;
        kill(Pid::from_raw(spawned.process.pid() as i32), Signal::SIGTERM).unwrap();
        assert_eq!(spawned.process.wait().await, ServerExit::Status(137));
        assert!(!pids.iter().any(|&pid| runs(pid)));
    });
}

fn the_server_dies_with_a_killed_keeper() {
    run(async {
        let mut spawned = spawn(order("stubborn")).await;
        let pids = pids(spawned.stdout, 1).await;
        kill(Pid::from_raw(spawned.process.pid() as i32), Signal::SIGKILL).unwrap();
        assert_eq!(
            spawned.process.wait().await,
            ServerExit::SupervisorKilled(9)
        );
        all_gone(&pids);
    });
}

fn exit_statuses_are_exact() {
    run(async {
        for status in [0u8, 1, 2, 127, 200, 255] {
            let order = LaunchSpec::Host {
                server: "sh".to_owned(),
                program: "/bin/sh".into(),
                arguments: vec!["-c".to_owned(), format!("exit {status}")],
                environment: BTreeMap::new(),
                directory: None,
                stdin: colibri_registry::Stdin::Pipe,
            };
            let mut spawned = spawn(order).await;
            assert_eq!(spawned.process.wait().await, ServerExit::Status(status));
        }
        assert_eq!(
            spawn(order("crash")).await.process.wait().await,
            ServerExit::Status(137)
        );
    });
}

fn unread_input_does_not_hide_the_end() {
    run(async {
        let mut spawned = spawn(order("deaf")).await;
        spawned.stdin.write_all(&[b'x'; 1000]).await.unwrap();
        spawned.stdin.flush().await.unwrap();
        drop(spawned.stdin);
        assert_eq!(spawned.process.wait().await, ServerExit::Status(128 + 15));
    });
}

fn the_environment_is_exactly_the_built_one() {
    run(async {
        let mut order = order("environment");
        let LaunchSpec::Host { environment, .. } = &mut order else {
            unreachable!()
        };
        environment.insert("TOKEN".to_owned(), "a=b c".to_owned().into());
        environment.insert("LANG".to_owned(), "de_AT.UTF-8".to_owned().into());
        // It would break the supervisor if it worked there.
        environment.insert(
            "LD_LIBRARY_PATH".to_owned(),
            "/nonexistent".to_owned().into(),
        );
        let spawned = spawn(order).await;
        let found = text(spawned.stdout).await;
        let mut found: Vec<&str> = found.lines().collect();
        found.sort_unstable();
        let home = format!("HOME={}", settings().home);
        let wanted = [
            home.as_str(),
            "LANG=de_AT.UTF-8",
            "LD_LIBRARY_PATH=/nonexistent",
            "PATH=/usr/local/bin:/usr/bin:/bin",
            "TOKEN=a=b c",
        ];
        assert_eq!(found, wanted);
    });
}

fn nothing_is_inherited() {
    run(async {
        // A descriptor that execve(2) does not close, and a blocked signal.
        let leaked = nix::unistd::dup(std::io::stderr()).unwrap();
        SigSet::from(Signal::SIGUSR1).thread_block().unwrap();
        let spawned = spawn(order("state")).await;
        let found = text(spawned.stdout).await;
        SigSet::from(Signal::SIGUSR1).thread_unblock().unwrap();
        drop(leaked);
        assert!(found.contains("descriptors=0,1,2\n"), "{found}");
        assert!(found.contains("leads_session=true\n"), "{found}");
        assert!(found.contains("directory=/\n"), "{found}");
        if cfg!(target_os = "linux") {
            assert!(found.contains("NoNewPrivs=1\n"), "{found}");
            assert!(found.contains("SigBlk=0000000000000000\n"), "{found}");
            let ignored = found
                .lines()
                .find_map(|line| line.strip_prefix("SigIgn="))
                .unwrap();
            let ignored = u64::from_str_radix(ignored, 16).unwrap() & 0x7fff_ffff;
            // Rust's runtime ignores SIGPIPE in the fixture itself; nothing else may be.
            assert_eq!(ignored, 1 << (13 - 1), "{found}");
        }
    });
}

fn words_of_server_and_keeper_do_not_mix() {
    run(async {
        let order = LaunchSpec::Host {
            server: "sh".to_owned(),
            program: "/bin/sh".into(),
            arguments: vec![
                "-c".to_owned(),
                "printf half >&2; read _; echo line >&2".to_owned(),
            ],
            environment: BTreeMap::new(),
            directory: None,
            stdin: colibri_registry::Stdin::Pipe,
        };
        let mut spawned = spawn(order).await;
        spawned.stdin.write_all(b"\n").await.unwrap();
        let said = text(spawned.stderr).await;
        // The supervisor's line is gone, whether it came before the server's first words or after.
        assert!(said == "halfline\n" || said == "half\nline\n", "{said:?}");
        spawned.process.wait().await;
    });
}

fn stdout_ends_when_the_server_closes_it() {
    run(async {
        let mut spawned = spawn(order("close-stdout")).await;
        assert_eq!(text(spawned.stdout).await, "");
        drop(spawned.stdin);
        assert_eq!(spawned.process.wait().await, ServerExit::Status(128 + 15));
    });
}

fn a_hardened_process_cannot_be_dumped() {
    run(async {
        assert_eq!(
            text(spawn(order("hardened")).await.stdout).await,
            "hardened\n"
        )
    });
}

fn what_cannot_be_started_is_said() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let broken = directory.path().join("broken");
        // What it asks for is there, and is no program.
        let interpreter = directory.path().join("interpreter");
        std::fs::write(&interpreter, "").unwrap();
        std::fs::write(&broken, format!("#!{}\n", interpreter.display())).unwrap();
        Command::new("/bin/chmod")
            .arg("755")
            .arg(&broken)
            .status()
            .unwrap();
        let host = |program: PathBuf, cwd: Option<PathBuf>| LaunchSpec::Host {
            server: "s".to_owned(),
            program,
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            directory: cwd,
            stdin: colibri_registry::Stdin::Pipe,
        };
        let spawner = SystemSpawner::with(settings());
        let error = spawner
            .spawn(host(broken.clone(), None))
            .await
            .err()
            .unwrap();
        assert!(
            matches!(&error, SpawnError::Keeper { detail } if detail.contains("cannot run")),
            "{error}"
        );
        std::fs::write(&broken, "#!/nonexistent/interpreter\n").unwrap();
        let error = spawner.spawn(host(broken, None)).await.err().unwrap();
        assert!(
            matches!(&error, SpawnError::Interpreter { interpreter, .. } if interpreter == "/nonexistent/interpreter"),
            "{error}"
        );
        let error = spawner
            .spawn(host("/bin/sh".into(), Some("/nonexistent".into())))
            .await
            .err()
            .unwrap();
        assert!(matches!(error, SpawnError::Directory { .. }), "{error}");
        let error = spawner
            .spawn(host("/nonexistent".into(), None))
            .await
            .err()
            .unwrap();
        assert!(matches!(error, SpawnError::Program { .. }), "{error}");
        let gone = SystemSpawner::with(LaunchSettings {
            supervisor: "/nonexistent".into(),
            ..settings()
        });
        let error = gone
            .spawn(host("/bin/sh".into(), None))
            .await
            .err()
            .unwrap();
        assert!(matches!(error, SpawnError::Supervisor { .. }), "{error}");
    });
}

fn dropping_the_start_ends_it() {
    run(async {
        // A supervisor that never says that it has started.
        let directory = tempfile::tempdir().unwrap();
        let supervisor = directory.path().join("keeper");
        let file = directory.path().join("pid");
        let script = format!(
            "#!/bin/sh\necho $$ >{0}.new\nmv {0}.new {0}\nexec cat\n",
            file.display()
        );
        std::fs::write(&supervisor, script).unwrap();
        Command::new("/bin/chmod")
            .arg("755")
            .arg(&supervisor)
            .status()
            .unwrap();
        let spawner = SystemSpawner::with(LaunchSettings {
            supervisor,
            ..settings()
        });
        let start = spawner.spawn(order("obedient"));
        let pid = async {
            loop {
                if let Ok(pid) = std::fs::read_to_string(&file) {
                    break pid.trim().parse::<i32>().unwrap();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let pid = tokio::select! {
            _ = start => panic!("started"),
            pid = pid => pid,
        };
        // `cat` sees the end of its input.
        all_gone(&[pid]);
    });
}

fn the_keeper_refuses_to_run_without_a_lifeline() {
    let run = |arguments: &[&str], stdin: Stdio| {
        let mut child = Command::new(myself())
            .args(arguments)
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (child.wait().unwrap().code(), said)
    };
    let good = [
        "keeper",
        "--grace-ms",
        "1",
        "--parent",
        "1",
        "--session",
        "own",
        "--stdin",
        "pipe",
        "--",
        "/bin/sh",
    ];
    let (code, said) = run(&good, Stdio::null());
    assert_eq!(code, Some(71));
    assert!(said.contains("must be a pipe"), "{said}");
    for length in 1..good.len() {
        assert_eq!(run(&good[..length], Stdio::piped()).0, Some(64), "{length}");
    }
    let bad = [
        "keeper",
        "--grace-ms",
        "-1",
        "--parent",
        "1",
        "--session",
        "own",
        "--stdin",
        "pipe",
        "--",
        "/bin/sh",
    ];
    assert_eq!(run(&bad, Stdio::piped()).0, Some(64));
}

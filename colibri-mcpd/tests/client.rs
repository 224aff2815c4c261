//! `colibri-mcp` as people start it.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not take for tests"
)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The client with an environment of its own.
fn client(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colibri-mcp"));
    command
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("TMPDIR", home)
        .stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    client(home.path(), arguments).output().unwrap()
}

/// Starts the demo and reads until it shows `heading`; returns it, the daemon's directory, and all it said so far.
fn demo_until(home: &Path, heading: &str) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut demo = client(home, &["demo"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains(heading) {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
    }
    (demo, lines, said)
}

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn the_demo_shows_everything_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let output = client(home.path(), &["demo"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), complaints.as_str()), (Some(0), ""), "{said}");
    for part in [
        "demo__echo",
        "Hello from a hosted server",
        "20 progress messages before the answer",
        "met Colibri",
        "write gate is closed",
        "context_servers",
        "No process and no file of it is left.",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        said.lines().all(|line| line.chars().count() <= 110) && !said.contains('\x1b'),
        "{said}"
    );
    assert_eq!(entries(home.path()), 0);
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (mut demo, mut lines, _) = demo_until(home.path(), "3. A call");
    kill(Pid::from_raw(demo.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let mut complaints = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130), "{complaints}");
    assert!(complaints.contains("everything was taken away again"), "{complaints}");
    assert_eq!(entries(home.path()), 0);
}

#[test]
fn a_killed_demo_takes_its_daemon_with_it() {
    let home = tempfile::tempdir().unwrap();
    let (mut demo, _lines, said) = demo_until(home.path(), "3. A call");
    let socket = said
        .split("It listens on ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .to_owned();
    assert!(Path::new(&socket).exists());
    demo.kill().unwrap();
    demo.wait().unwrap();
    // Its stdin was the demo's pipe: the daemon ends, and removes its socket when it does.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while Path::new(&socket).exists() {
        assert!(std::time::Instant::now() < deadline, "the daemon still listens");
        std::thread::yield_now();
    }
}

#[test]
fn exit_statuses_are_as_documented() {
    for (arguments, status) in [
        (&["--version"][..], 0),
        (&["connect", "cursor", "--print"], 0),
        (&["completions", "zsh"], 0),
        (&["--nonsense"], 64),
        (&["connect", "cursor", "--ssh", "-x"], 64),
        (&["status"], 69),
        (&["call", "a", "b", "c=d"], 69),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
    }
}

//! The ways out of the process that runs a script: none is open, and each step that gives up rights
//! closes some by itself, so that one that was taken out would be noticed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use colibri_tests::program;

/// The signal by which the kernel ends a process at a system call that its filter does not let
/// through.
const KILLED: &str = "killed by signal 31";

fn ways() -> Vec<String> {
    let output = Command::new(program("ways-out"))
        .arg("list")
        .output()
        .unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().map(str::to_owned).collect()
}

/// What becomes of one attempt, with two pipes and, at 7, a descriptor that was left open.
fn attempt(steps: &str, way: &str) -> String {
    let output = Command::new("sh")
        .args([
            "-c",
            "exec \"$0\" \"$@\" 7>&1",
            program("ways-out").to_str().unwrap(),
            steps,
            way,
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match (output.status.signal(), output.status.code()) {
        (Some(signal), _) => format!("killed by signal {signal}"),
        // The inherited descriptor is standard output, too.
        (None, Some(0)) if said.trim_start_matches('x').starts_with("open") => "open".to_owned(),
        (None, Some(0)) => said,
        (_, code) => panic!(
            "{steps}, {way}: {code:?} {}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

/// What becomes of all of them. What those leave behind that are open is removed.
fn attempts(steps: &str) -> BTreeMap<String, String> {
    let of = |way: String| (way.clone(), attempt(steps, &way));
    let attempts = ways().into_iter().map(of).collect();
    let _ = (
        fs::remove_file("/tmp/ways-out"),
        fs::remove_dir("/tmp/ways-out-directory"),
    );
    attempts
}

#[test]
fn no_way_out_is_open() {
    let before = attempts("none");
    let open: Vec<_> = before
        .iter()
        .filter(|(_, said)| *said == "open")
        .map(|(way, _)| way)
        .collect();
    println!(
        "{} ways, of which {} are open without the sandbox",
        before.len(),
        open.len()
    );
    for (way, said) in &before {
        println!("{way}: {said}");
    }
    // Some are closed by the machine that runs the tests, by its containers for example.
    assert!(open.len() >= 25, "{before:#?}");
    for (way, said) in attempts("all") {
        assert_ne!(said, "open", "{way}");
        if cfg!(target_os = "linux") && way != "three gigabytes" {
            assert_eq!(said, KILLED, "{way}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn each_step_by_itself_closes_its_ways() {
    // The filter of system calls closes all but one by itself: a call that it let through would be
    // seen here.
    for (way, said) in attempts("calls") {
        if way != "three gigabytes" {
            assert_eq!(said, KILLED, "{way}");
        }
    }
    let denied = |steps: &str, ways: &[(&str, &str)]| {
        for (way, expected) in ways {
            let said = attempt(steps, way);
            assert!(said.contains(expected), "{steps}, {way}: {said}");
        }
    };
    let of_landlock = [
        ("read a file", "Permission denied"),
        ("create a file", "Permission denied"),
        ("open a directory", "Permission denied"),
        ("make a directory", "Permission denied"),
        ("connect", "Permission denied"),
        ("a signal to the parent", "not permitted"),
    ];
    // A kernel that has it closes some, even if one of its rules were missing.
    if of_landlock
        .iter()
        .all(|(way, _)| attempt("files", way) == "open")
    {
        println!("this kernel has no Landlock: its step is not tried");
    } else {
        denied("files", &of_landlock);
    }
    denied(
        "limits",
        &[
            ("an internet socket", "Too many open files"),
            ("a new pipe", "Too many open files"),
            ("three gigabytes", "Cannot allocate memory"),
        ],
    );
    for (steps, ways) in [
        (
            "limits",
            &[
                "a dump to a file",
                "processor time without end",
                "longer files",
                "locked memory",
                "more processes",
                "more descriptors",
            ][..],
        ),
        ("descriptors", &["an inherited descriptor"]),
        ("privileges", &["new privileges"]),
        (
            "manners",
            &["a dump of its memory", "the first place in line"],
        ),
    ] {
        for way in ways {
            assert_ne!(attempt(steps, way), "open", "{steps}, {way}");
        }
    }
    for way in [
        "an inherited descriptor",
        "new privileges",
        "a dump of its memory",
        "the first place in line",
    ] {
        assert_eq!(
            attempt("none", way),
            "open",
            "{way}: the test proves nothing"
        );
    }
}

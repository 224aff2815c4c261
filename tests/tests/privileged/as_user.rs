//! What root has run as another user (`colibri-mcpd as`, `--check --as`) never has root's terminal,
//! nor anything else of root's.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use colibri_tests::program;

/// What a program can tell of where it is: terminals first.
const PROBE: &str = r#"
(: </dev/tty) 2>/dev/null && echo opens-tty
for fd in 0 1 2; do [ -t $fd ] && echo tty-at-$fd; done
echo terminal $(cut -d' ' -f7 /proc/$$/stat) leads $([ $$ = "$(cut -d' ' -f6 /proc/$$/stat)" ] && echo yes)
[ -e /proc/$$/fd/9 ] && echo inherits-descriptor
grep -E '^(Uid|Gid|Groups|CapPrm):' /proc/$$/status
echo secret=$SSH_AUTH_SOCK colibri=$COLIBRI_MCP_LOG home=$HOME at=$(pwd)
printf 'moved \033[2J\n'
exit 7
"#;

/// Runs words in a shell that has a terminal of its own, as root's has; what it prints there, and
/// its status.
fn at_a_terminal(words: &[&str], directory: &Path) -> Output {
    let quoted: Vec<String> = words
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
        .collect();
    Command::new("script")
        .args([
            "-qec",
            &format!("{} 9</etc/shadow", quoted.join(" ")),
            "/dev/null",
        ])
        .current_dir(directory)
        .env("SSH_AUTH_SOCK", "/root/agent")
        .env("COLIBRI_MCP_LOG", "debug")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The programs where an ordinary user can execute them.
fn installed() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let daemon = directory.path().join("colibri-mcpd");
    colibri_tests::copy_program(&program("colibri-mcpd"), &daemon);
    (directory, daemon)
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_runs_as_another_user_has_no_terminal_and_nothing_of_roots() {
    let (directory, daemon) = installed();
    let daemon = daemon.to_str().unwrap();
    // The probe sees a terminal where there is one.
    let output = at_a_terminal(&["/bin/sh", "-c", PROBE], directory.path());
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        seen.contains("opens-tty") && seen.contains("tty-at-1"),
        "{seen}"
    );
    assert!(seen.contains("inherits-descriptor"), "{seen}");
    let output = at_a_terminal(
        &[daemon, "as", "nobody", "--", "/bin/sh", "-c", PROBE],
        directory.path(),
    );
    let seen = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert_eq!(output.status.code(), Some(7), "{seen}");
    assert!(
        !seen.contains("tty") && !seen.contains("inherits"),
        "{seen}"
    );
    for expected in [
        "terminal 0 leads yes\n",
        "Uid:\t65534\t65534\t65534\t65534\n",
        "Gid:\t65534\t65534\t65534\t65534\n",
        "Groups:\t65534 \n",
        "CapPrm:\t0000000000000000\n",
        "secret= colibri=debug home=/nonexistent at=/\n",
        "moved \\u{1b}[2J\n",
    ] {
        assert!(seen.contains(expected), "{expected:?} in {seen}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn output_and_input_that_are_no_terminal_pass_byte_for_byte() {
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("input");
    fs::write(&input, &bytes).unwrap();
    let output = Command::new(program("colibri-mcpd"))
        .args([
            "as",
            "nobody",
            "--",
            "/bin/sh",
            "-c",
            "cat; echo to-stderr >&2; kill -9 $$",
        ])
        .stdin(fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(128 + 9));
    assert!(output.stdout == bytes, "{} bytes", output.stdout.len());
    assert_eq!(output.stderr, b"to-stderr\n");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_configuration_is_checked_as_the_daemons_user() {
    let (directory, daemon) = installed();
    let registry = directory.path().join("external-mcp.json");
    let check = |user: &str| {
        let state = directory.path().join("state");
        let words = [
            daemon.to_str().unwrap(),
            "--check",
            "--as",
            user,
            "--external-config",
        ];
        let more = [
            registry.to_str().unwrap(),
            "--state-dir",
            state.to_str().unwrap(),
        ];
        let output = at_a_terminal(&[&words[..], &more].concat(), directory.path());
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    fs::write(&registry, r#"{"servers":{}}"#).unwrap();
    fs::set_permissions(&registry, fs::Permissions::from_mode(0o644)).unwrap();
    let (status, text) = check("nobody");
    assert_eq!(status, Some(0), "{text}");
    // What root could read and the daemon could not is found.
    fs::set_permissions(&registry, fs::Permissions::from_mode(0o600)).unwrap();
    let (status, text) = check("nobody");
    assert_eq!(status, Some(78), "{text}");
    assert!(text.contains("external-mcp.json"), "{text}");
    assert_eq!(check("root").0, Some(64));
    assert_eq!(check("no-such-user").0, Some(67));
}

/// su(1) leaves root's terminal to whatever it runs.
#[test]
fn nothing_that_is_installed_goes_through_su() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files: Vec<PathBuf> = vec![top.join("port/pkg-deinstall")];
    for directory in ["etc", "port/files", "docs/man", "docs/guide"] {
        let entries = fs::read_dir(top.join(directory)).unwrap();
        files.extend(
            entries
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.is_file()),
        );
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for word in ["su -m", "su -l", "/usr/bin/su", "su colibri"] {
            assert!(!text.contains(word), "{}: {word}", file.display());
        }
    }
}

//! The built program: what it answers without a daemon.

use std::process::{Command, Output};

fn client(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_colibri-mcp"))
        .args(args)
        .output()
        .expect("the client starts")
}

#[test]
fn version_names_program_and_version() {
    let output = client(&["--version"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        text.trim(),
        concat!("colibri-mcp ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn an_unknown_command_is_a_usage_error() {
    let output = client(&["no-such-command"]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert!(
        output.stdout.is_empty() && !output.stderr.is_empty(),
        "{output:?}"
    );
}

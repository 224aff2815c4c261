//! The built program: what it says before it listens.

use std::process::{Command, Output};

fn bridge(home: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chibi-mcp-bridge"))
        .args(args)
        .env("CHIBI_HOME", home)
        .output()
        .expect("the bridge starts")
}

#[test]
fn version_names_program_and_version() {
    let output = bridge("/nowhere", &["--version"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        text.trim(),
        concat!("chibi-mcp-bridge ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_home_that_depends_on_the_directory_is_refused() {
    let output = bridge("a/project", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    assert_eq!(
        said,
        "[mcp-bridge] a/project: CHIBI_HOME must be an absolute path\n"
    );
}

//! The built program as it stands in `target`, not installed: what it answers before anything of a
//! system is touched.

use std::process::{Command, Output};

fn helper(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_colibri-jail-helper"))
        .args(args)
        .output()
        .expect("the helper starts")
}

#[test]
fn version_prints_the_contract() {
    let output = helper(&["--version"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("contract"),
        "{output:?}"
    );
}

#[test]
fn what_is_no_verb_is_a_usage_error_in_one_line() {
    for args in [
        &[][..],
        &["jail"],
        &["run"],
        &["stop"],
        &["--version", "--version"],
    ] {
        let output = helper(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {output:?}");
        assert!(
            output.stdout.is_empty() && text.lines().count() == 1,
            "{args:?}: {output:?}"
        );
    }
}

//! The executables that the tests run: built from the sources as they are now, in the profile of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A directory with the built executables, for machines without the sources or a compiler: nothing is built then.
const READY_MADE: &str = "COLIBRI_TEST_PROGRAMS";

/// The path of an executable of the workspace. The first caller in a process has them built.
///
/// # Panics
/// If they cannot be built.
pub fn program(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| match std::env::var_os(READY_MADE) {
        Some(directory) => PathBuf::from(directory),
        None => build(),
    });
    let path = directory.join(name);
    assert!(path.is_file(), "there is no {}", path.display());
    path
}

/// Builds all executables of the workspace into the directory above the test's own, and returns it. Cargo sees to it
/// that only one of several test processes does so at a time, and that nothing is built which is there already.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own path");
    let directory = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut target = directory.parent().expect("target/PROFILE");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--quiet", "--workspace", "--bins"])
        // One test beside the executables: cargo then enables the same features of dependencies as `cargo test` does,
        // and the two do not undo each other's work.
        .args(["--test", "fidelity"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")])
        .args(["--profile", &profile(&name(directory))]);
    // One level more is there when a target was named.
    if name(target).starts_with(&format!("{}-", std::env::consts::ARCH)) {
        build.args(["--target", &name(target)]);
        target = target.parent().expect("target/TRIPLE/PROFILE");
    }
    build.arg("--target-dir").arg(target);
    let status = build.status().expect("cargo can be started");
    assert!(status.success(), "the executables could not be built: {status}");
    directory.to_owned()
}

/// The profile that puts its output into a directory of this name.
fn profile(directory: &str) -> String {
    match directory {
        "debug" => "dev".to_owned(),
        other => other.to_owned(),
    }
}

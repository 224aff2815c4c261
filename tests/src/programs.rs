//! The executables that the tests run: those that `cargo test --workspace` built beside the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// A directory with the built executables, for machines without the sources or a compiler.
const READY_MADE: &str = "COLIBRI_TEST_PROGRAMS";

/// The path of an executable of the workspace.
///
/// # Panics
/// If it was not built, or if a source was changed since: `cargo test -p colibri-tests` alone does
/// not build the programs of other packages.
pub fn program(name: &str) -> PathBuf {
    if let Some(directory) = std::env::var_os(READY_MADE) {
        return Path::new(&directory).join(name);
    }
    let test = std::env::current_exe().expect("the test knows its own path");
    let directory = test
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE/deps/TEST");
    let path = directory.join(name);
    let changed = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified()).ok();
    let built = changed(&path);
    let sources = fs::read_to_string(directory.join(format!("{name}.d"))).unwrap_or_default();
    let newer = sources_in(&sources)
        .find(|source| changed(source) > built.or(Some(SystemTime::UNIX_EPOCH)));
    assert!(
        built.is_some() && newer.is_none(),
        "{} is missing or older than {newer:?}: run `cargo build --workspace --bins` first, in the profile of the tests",
        path.display()
    );
    path
}

/// Copies an executable by cp(1). A descriptor of the copy that this process writes itself may be
/// inherited by a child that another thread starts at that moment, and until that child executes,
/// the copy is "Text file busy".
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp")
        .arg(from)
        .arg(to)
        .status()
        .expect("cp can be started");
    assert!(
        copied.success(),
        "{} is not copied to {}",
        from.display(),
        to.display()
    );
}

/// The sources that a file of dependencies names, `TARGET: SOURCE…` with spaces in names escaped.
fn sources_in(text: &str) -> impl Iterator<Item = PathBuf> + '_ {
    let line = text.lines().next().unwrap_or_default();
    let sources = line.split_once(": ").map_or("", |(_, sources)| sources);
    let unescaped = sources.replace("\\ ", "\0");
    let paths: Vec<PathBuf> = unescaped
        .split_whitespace()
        .map(|path| path.replace('\0', " ").into())
        .collect();
    paths.into_iter()
}

//! The daemon's program. It is installed with this one, or cargo builds it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::CommandError;
use crate::terminal;

/// The daemon's program.
pub(super) const NAME: &str = "colibri-mcpd";

/// Returns the path of the daemon's program: beside this one, or in the package's place.
///
/// `cargo run` builds this program alone. If the daemon is missing then, the whole workspace is
/// built, with the features of the `cargo run`: nothing is compiled twice, and nothing is left for
/// the next build of the workspace.
///
/// # Errors
/// The program is neither there nor built.
pub(crate) fn daemon_program() -> Result<PathBuf, CommandError> {
    let own = std::env::current_exe().map_err(|error| {
        CommandError::Machine(format!("cannot find out where this program is: {error}"))
    })?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    let beside = directory.join(NAME);
    let installed = directory.with_file_name("sbin").join(NAME);
    if let Some(found) = [&beside, &installed]
        .into_iter()
        .find(|path| path.is_file())
    {
        return Ok(found.clone());
    }
    let missing =
        |reason: &str| CommandError::Machine(format!("there is no {}: {reason}", beside.display()));
    let (Some(cargo), Some(package)) = (
        std::env::var_os("CARGO"),
        std::env::var_os("CARGO_MANIFEST_DIR"),
    ) else {
        return Err(missing("install the daemon beside this program"));
    };
    let mut arguments = vec!["build"];
    if directory.ends_with("release") {
        arguments.push("--release");
    }
    arguments.extend(["--workspace", "--bins"]);
    let command_line = arguments.join(" ");
    terminal::print(&format!(
        "The daemon is not built yet. Building the workspace, once: cargo {command_line}\n"
    ))?;
    let mut build = Command::new(cargo);
    build
        .args(arguments)
        .arg("--manifest-path")
        .arg(Path::new(&package).join("../../Cargo.toml"))
        .stdin(Stdio::null());
    if let Some(target) = directory.parent() {
        build.arg("--target-dir").arg(target);
    }
    remove_cargo_variables(&mut build, std::env::vars_os().map(|(name, _)| name));
    match build.status() {
        Ok(status) if status.success() && beside.is_file() => Ok(beside),
        Ok(_) => Err(missing("cargo did not build it")),
        Err(error) => Err(missing(&format!("cargo cannot be started: {error}"))),
    }
}

/// Removes from the environment of `command` the variables that cargo set for this program.
///
/// Build scripts depend on some of them: that of ring on `CARGO_MANIFEST_DIR`. With their values of
/// this program, cargo would build ring again, and all that uses it, each time that a shell's cargo
/// and this one take turns.
fn remove_cargo_variables(command: &mut Command, names: impl Iterator<Item = impl AsRef<OsStr>>) {
    for name in names {
        if is_set_by_cargo(name.as_ref()) {
            command.env_remove(name);
        }
    }
}

/// True if cargo sets this variable for a program that it builds or runs
/// (<https://doc.rust-lang.org/cargo/reference/environment-variables.html>). Cargo's own settings,
/// as `CARGO_TARGET_DIR`, are not among them.
fn is_set_by_cargo(name: &OsStr) -> bool {
    const NAMES: [&str; 5] = [
        "CARGO",
        "CARGO_CRATE_NAME",
        "CARGO_PRIMARY_PACKAGE",
        "CARGO_TARGET_TMPDIR",
        "OUT_DIR",
    ];
    const PREFIXES: [&str; 3] = ["CARGO_BIN_", "CARGO_MANIFEST_", "CARGO_PKG_"];
    let name = name.as_encoded_bytes();
    NAMES.iter().any(|known| known.as_bytes() == name)
        || PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A nested cargo gets the environment of a shell: its settings, and none of what cargo set for
    /// this program.
    #[test]
    fn cargo_variables_are_removed() {
        let set_by_cargo = [
            "CARGO",
            "CARGO_BIN_EXE_colibri-mcp",
            "CARGO_BIN_NAME",
            "CARGO_CRATE_NAME",
            "CARGO_MANIFEST_DIR",
            "CARGO_MANIFEST_LINKS",
            "CARGO_MANIFEST_PATH",
            "CARGO_PKG_NAME",
            "CARGO_PKG_VERSION_PRE",
            "CARGO_PRIMARY_PACKAGE",
            "CARGO_TARGET_TMPDIR",
            "OUT_DIR",
        ];
        let set_by_people = [
            "CARGO_BUILD_JOBS",
            "CARGO_HOME",
            "CARGO_INCREMENTAL",
            "CARGO_NET_OFFLINE",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_TARGET_DIR",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
            "CARGO_TERM_COLOR",
            "HOME",
            "PATH",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
        ];
        let mut command = Command::new("cargo");
        remove_cargo_variables(&mut command, set_by_cargo.iter().chain(&set_by_people));
        let removed: BTreeSet<_> = command
            .get_envs()
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| name)
            .collect();
        assert_eq!(removed, set_by_cargo.iter().map(OsStr::new).collect());
    }
}

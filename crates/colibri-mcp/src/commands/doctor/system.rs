//! The facts of the system: kernel variables, mounts, the output of its programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// The value of a kernel variable (sysctl(3)); `None` where there is none of this name.
#[cfg(target_os = "freebsd")]
pub(super) fn kernel(name: &str) -> Option<String> {
    use sysctl::Sysctl as _;
    let value = sysctl::Ctl::new(name).ok()?.value_string().ok()?;
    Some(value.trim_end_matches('\0').to_owned())
}

/// Linux has other names for other things.
#[cfg(not(target_os = "freebsd"))]
pub(super) fn kernel(_name: &str) -> Option<String> {
    None
}

/// The output of a system's program, and its exit.
pub(super) struct Ran {
    /// Exit status; `None` after a signal.
    pub status: Option<i32>,
    /// Standard output, trimmed.
    pub out: String,
    /// Standard error, trimmed.
    pub err: String,
}

/// Runs a program by its absolute path, without input and with an environment of nothing but
/// `PATH`.
pub(super) fn run(program: &str, arguments: &[&str]) -> anyhow::Result<Ran> {
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/sbin:/bin:/usr/sbin:/usr/bin")
        .stdin(Stdio::null())
        .output()
        .with_context(|| program.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(Ran {
        status: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    })
}

/// Every mount point.
pub(super) fn mount_points() -> anyhow::Result<Vec<PathBuf>> {
    let table = if cfg!(target_os = "freebsd") {
        run("/sbin/mount", &["-p"])?.out
    } else {
        std::fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?
    };
    Ok(second_words(&table))
}

/// The second field of each line, as fstab(5) writes it: blanks as octal escapes.
fn second_words(table: &str) -> Vec<PathBuf> {
    let words = table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    words
        .map(|word| PathBuf::from(word.replace("\\040", " ")))
        .collect()
}

/// True if a path lies on a tmpfs, which the next boot empties.
pub(super) fn is_on_tmpfs(path: &Path) -> anyhow::Result<bool> {
    let facts = nix::sys::statfs::statfs(path).with_context(|| path.display().to_string())?;
    #[cfg(target_os = "freebsd")]
    return Ok(facts.filesystem_type_name() == "tmpfs");
    #[cfg(not(target_os = "freebsd"))]
    return Ok(facts.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_tables_are_read() {
        let table = "/dev/ada0p2\t\t/\t\tufs\trw\t1 1\ntmpfs /a\\040b tmpfs rw 0 0\n";
        assert_eq!(
            second_words(table),
            [PathBuf::from("/"), PathBuf::from("/a b")]
        );
        assert!(mount_points().unwrap().contains(&PathBuf::from("/")));
    }

    #[test]
    fn programs_run_without_the_callers_environment() {
        let ran = run("/usr/bin/env", &[]).unwrap();
        assert_eq!(
            (ran.status, ran.out.as_str()),
            (Some(0), "PATH=/sbin:/bin:/usr/sbin:/usr/bin")
        );
        assert_eq!(
            run("/bin/sh", &["-c", "echo no >&2; exit 3"])
                .unwrap()
                .status,
            Some(3)
        );
        assert!(run("/nonexistent/program", &[]).is_err());
    }

    #[test]
    fn a_tmpfs_is_known_by_its_kind() {
        assert_eq!(
            is_on_tmpfs(Path::new("/proc")).ok(),
            Path::new("/proc").exists().then_some(false)
        );
        assert!(is_on_tmpfs(Path::new("/nonexistent")).is_err());
    }
}

//! Other programs that are run while something is installed, never when a server is started.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::failure::CommandError;
use crate::interrupt;
use colibri_text::visible;

/// The most lines of what a program said before it failed.
const LINES: usize = 6;
/// The words of pip(1) for the versions of Python that a package requires.
const REQUIRES: &str = "Requires-Python ";
/// Between two looks whether a program has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs a program to its end; what it wrote to stdout. Where its directory does not matter it is
/// `/`: Python looks for modules where it is started, and that may be somebody else's project.
///
/// # Errors
/// It cannot be started, or says that it failed.
pub(super) fn run(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    run_whole(command).map(|(out, _)| out)
}

/// The same; what it wrote to stderr too.
///
/// # Errors
/// As above.
pub(super) fn run_whole(command: &mut Command) -> anyhow::Result<(Vec<u8>, String)> {
    let name = command.get_program().to_string_lossy().into_owned();
    if command.get_current_dir().is_none() {
        command.current_dir("/");
    }
    let (status, out, err) = wait_for(command).with_context(|| format!("{name} cannot be run"))?;
    if interrupt::is_told() {
        return Err(CommandError::Interrupted.into());
    }
    let said = String::from_utf8_lossy(&err);
    if status.success() {
        return Ok((out, said.into_owned()));
    }
    Err(anyhow!(
        "{name}: {status}\n  {}",
        reason(&said).join("\n  ")
    ))
}

/// The lines that say why a program failed: npm(1) begins with that, others end with it. Where the
/// reason is the version of Python, that is the last line, in place of pip(1)'s list of all
/// versions that want another.
fn reason(said: &str) -> Vec<String> {
    let wanted = wanted_python(said);
    let is_told =
        |line: &&str| !line.trim().is_empty() && (wanted.is_none() || !line.contains(REQUIRES));
    let lines = said.lines().filter(is_told);
    let mut lines: Vec<String> = lines.map(|line| visible(line).into_owned()).collect();
    match lines.iter().position(|line| line.starts_with("npm error")) {
        Some(first) => lines.drain(..first),
        None => lines.drain(..lines.len().saturating_sub(LINES)),
    };
    lines.truncate(LINES);
    lines
        .into_iter()
        .map(without_versions)
        .chain(wanted)
        .collect()
}

/// A line of pip(1)'s without the list of all versions that there are, which hides why none of them
/// will do.
fn without_versions(line: String) -> String {
    const LIST: &str = "(from versions: ";
    let Some((before, (list, after))) = line
        .split_once(LIST)
        .and_then(|(before, rest)| Some((before, rest.split_once(')')?)))
    else {
        return line;
    };
    let mut versions = list.split(", ");
    match (versions.next(), versions.last()) {
        (Some(first), Some(last)) => format!("{before}{LIST}{first} to {last}){after}"),
        _ => line,
    }
}

/// The version of Python that a package wants, where pip(1) passes over its versions for want of
/// it.
fn wanted_python(said: &str) -> Option<String> {
    let line = said.lines().find(|line| line.contains(REQUIRES))?;
    let wanted = line.rsplit_once(REQUIRES)?.1.trim();
    (!wanted.is_empty()).then(|| format!("it needs Python {}", visible(wanted)))
}

/// Runs a program, and ends it and all that it started when this is to end.
fn wait_for(command: &mut Command) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    command.stdin(Stdio::null()).process_group(0);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (out, err) = (read(child.stdout.take()), read(child.stderr.take()));
    let group = Pid::from_raw(child.id().cast_signed());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if interrupt::is_told() {
            // It is not reaped yet, so the group is still its own.
            killpg(group, Signal::SIGKILL)?;
            break child.wait()?;
        }
        std::thread::sleep(PAUSE);
    };
    Ok((
        status,
        out.join().unwrap_or_default(),
        err.join().unwrap_or_default(),
    ))
}

/// Reads to the end, on a thread of its own.
fn read(from: Option<impl io::Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut said = Vec::new();
        // What was read until then is what there is.
        let _ = from.map(|mut from| from.read_to_end(&mut said));
        said
    })
}

/// The path of a program on PATH, of which relative parts do not count.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    directories
        .map(|directory| directory.join(program))
        .find(|path| is_executable(path))
}

/// The same, or what to do.
///
/// # Errors
/// It is not there.
pub(super) fn need(program: &str, package: &str) -> anyhow::Result<PathBuf> {
    find(program).with_context(|| format!("{program} is not on PATH: install {package} first"))
}

/// The program that Node.js really is: what is on PATH may be a script that chooses one.
///
/// # Errors
/// There is none.
pub(super) fn node() -> anyhow::Result<PathBuf> {
    let node = need("node", "Node.js")?;
    let said = run(Command::new(node).args(["-p", "process.execPath"]))?;
    Ok(PathBuf::from(String::from_utf8_lossy(&said).trim()))
}

/// True if a file may be executed.
pub(crate) fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// An absolute path as text.
///
/// # Errors
/// It is not UTF-8, which no registry can name.
pub(super) fn text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str();
    text.map(str::to_owned)
        .with_context(|| format!("the path {} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_run_in_the_directory_that_a_person_happens_to_be_in() {
        let said = |command: &mut Command| String::from_utf8(run(command).unwrap()).unwrap();
        assert_eq!(said(&mut Command::new("/bin/pwd")), "/\n");
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let meant = said(Command::new("/bin/pwd").current_dir(&place));
        assert_eq!(meant.trim_end(), place.to_str().unwrap());
    }

    #[test]
    fn what_is_shown_says_why() {
        let npm = "npm warn x\nnpm error code E404\nnpm error 404 Not Found - GET https://r/p\n\nnpm error a\nnpm error b\n\
                   npm error c\nnpm error d\nnpm error A complete log\n";
        let shown = reason(npm);
        assert_eq!(
            (shown.len(), shown[0].as_str()),
            (LINES, "npm error code E404")
        );
        let pip: String = (0..20).map(|n| format!("WARNING {n}\n")).collect();
        let shown = reason(&format!("{pip}ERROR: No matching distribution\u{1b}[0m\n"));
        assert_eq!(
            shown.last().unwrap(),
            "ERROR: No matching distribution\\u{1b}[0m"
        );
        // As pip 24 says it of a package that wants another Python.
        let pip = "ERROR: Ignored the following versions that require a different python version: 0.1 Requires-Python \
                   >=3.11; 1.2.0 Requires-Python >=3.12\nERROR: Could not find a version that satisfies the requirement \
                   x==1.2.0 (from versions: 0.0.1, 0.0.2, 0.0.3, 0.0.9)\nERROR: No matching distribution found for x\n";
        let shown = reason(pip);
        assert_eq!(shown.len(), 3, "{shown:?}");
        assert!(
            shown[0].ends_with("x==1.2.0 (from versions: 0.0.1 to 0.0.9)"),
            "{shown:?}"
        );
        assert_eq!(shown[2], "it needs Python >=3.12");
        for none in [
            "",
            "Requires-Python ",
            "(from versions: none)",
            "(from versions: ",
        ] {
            assert_eq!(
                (wanted_python(none), without_versions(none.to_owned())),
                (None, none.to_owned())
            );
        }
    }
}

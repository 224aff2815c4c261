//! Running a program as an ordinary user, for root at a terminal: `colibri-mcpd as USER -- PROGRAM
//! ARGS…`.
//!
//! What su(1) runs keeps the terminal of the one who called it, and may type into root's shell
//! (TIOCSTI). Here the program has a session of its own, no descriptor of a terminal, and root's
//! ids nowhere; its output comes through pipes, and what goes to a terminal can move no cursor.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use colibri_text::visible_lines;
use nix::unistd::{User, geteuid, getgrouplist};

use super::sys;

/// The first argument that makes the daemon's program a runner.
pub const ARGUMENT: &str = "as";

/// The search path of what is run.
const PATH: &str = "/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin";

/// Once the program has ended: how long something that it left may keep its pipes open.
const MAX_AFTER_THE_END: Duration = Duration::from_secs(2);

/// The most bytes of a line that are held back to be shown whole on a terminal.
const MAX_LINE: u64 = 8192;

/// The reason for which nothing was run, or the text with which the program ended.
struct ExitWithText(u8, String);

/// The runner: `arguments` come after [`ARGUMENT`].
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let ended = match arguments.as_slice() {
        [user, dashes, program, rest @ ..] if dashes == "--" => run(user, program, rest),
        _ => Err(ExitWithText(
            64,
            "expected: as USER -- PROGRAM ARGUMENTS…".into(),
        )),
    };
    exit_code(ended)
}

/// Runs this same program as `user`, with these arguments but for `--as` and its value.
pub fn again(user: &str, arguments: &[OsString]) -> ExitCode {
    let mut left: Vec<OsString> = Vec::with_capacity(arguments.len());
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        if word == "--as" {
            words.next();
        } else if !word.to_string_lossy().starts_with("--as=") {
            left.push(word.clone());
        }
    }
    exit_code(match std::env::current_exe() {
        Ok(program) => run(OsStr::new(user), program.as_os_str(), &left),
        Err(error) => Err(ExitWithText(
            71,
            format!("cannot tell where this program stands: {error}"),
        )),
    })
}

fn exit_code(ended: Result<ExitStatus, ExitWithText>) -> ExitCode {
    match ended {
        Ok(status) => {
            let code = status
                .code()
                .or_else(|| status.signal().map(|signal| 128 + signal));
            ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(71))
        }
        Err(ExitWithText(status, why)) => {
            eprintln!("colibri-mcpd: {why}");
            ExitCode::from(status)
        }
    }
}

fn run(user: &OsStr, program: &OsStr, arguments: &[OsString]) -> Result<ExitStatus, ExitWithText> {
    sys::close_above_standard()
        .map_err(|error| ExitWithText(71, format!("cannot close what was inherited: {error}")))?;
    let user = identity(user)?;
    let stdin = io::stdin();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir("/")
        .env_clear()
        .env("PATH", PATH);
    command.env("HOME", &user.home);
    for (name, value) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if shown.starts_with("COLIBRI_")
            || shown.starts_with("LC_")
            || shown == "LANG"
            || shown == "TZ"
        {
            command.env(name, value);
        }
    }
    if stdin.is_terminal() {
        command.stdin(Stdio::null());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::become_user_in_own_session(&mut command, user.identity);
    let shown = program.display();
    let mut child = command.spawn().map_err(|error| {
        ExitWithText(71, format!("cannot run {shown} as {}: {error}", user.name))
    })?;
    let (ended, pumps) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        let ended = ended.clone();
        std::thread::spawn(move || ended.send(pump(stdout, io::stdout())));
    }
    if let Some(stderr) = child.stderr.take() {
        std::thread::spawn(move || ended.send(pump(stderr, io::stderr())));
    }
    let status = child
        .wait()
        .map_err(|error| ExitWithText(71, format!("cannot wait for {shown}: {error}")))?;
    // An error of a pump is the reader's own going away.
    while pumps.recv_timeout(MAX_AFTER_THE_END).is_ok() {}
    Ok(status)
}

/// A user of this system.
struct SystemUser {
    name: String,
    home: std::path::PathBuf,
    identity: sys::ProcessIdentity,
}

fn identity(user: &OsStr) -> Result<SystemUser, ExitWithText> {
    let name = user.to_string_lossy();
    let found = User::from_name(&name)
        .map_err(|error| ExitWithText(71, format!("cannot look {name} up: {error}")))?;
    let found = found.ok_or_else(|| ExitWithText(67, format!("there is no user {name}")))?;
    if found.uid.is_root() {
        return Err(ExitWithText(
            64,
            format!("{name} is root: name an ordinary user"),
        ));
    }
    if !geteuid().is_root() {
        return Err(ExitWithText(
            77,
            format!("only root can run a program as {name}"),
        ));
    }
    let failed = |error| ExitWithText(71, format!("cannot list the groups of {name}: {error}"));
    let c_name = std::ffi::CString::new(found.name.as_str())
        .map_err(|_| failed(nix::errno::Errno::EINVAL))?;
    let groups = getgrouplist(&c_name, found.gid).map_err(failed)?;
    Ok(SystemUser {
        name: found.name,
        home: found.dir,
        identity: sys::ProcessIdentity {
            uid: found.uid,
            gid: found.gid,
            groups,
        },
    })
}

/// Copies to the end: byte for byte, but line by line and with control characters escaped to a
/// terminal.
fn pump(mut from: impl Read, mut to: impl Write + IsTerminal) -> io::Result<()> {
    if !to.is_terminal() {
        io::copy(&mut from, &mut to)?;
        return to.flush();
    }
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        if from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        to.write_all(shown(&line).as_bytes())?;
        to.flush()?;
    }
}

/// A line without anything that a terminal would obey, or that hides.
fn shown(line: &[u8]) -> String {
    visible_lines(&String::from_utf8_lossy(line)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_shown() {
        assert_eq!(
            shown("a\u{1b}[2J\u{9b}1m\r\tü\n".as_bytes()),
            "a\\u{1b}[2J\\u{9b}1m\\r\tü\n"
        );
        assert_eq!(shown(b"\xff\n"), "\u{fffd}\n");
    }
}

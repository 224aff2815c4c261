//! Programs that end at once in the midst of their writing, as in a power cut. Linux alone: the
//! system tells after each system call of a program that is traced (ptrace(2)).

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Runs a command whose input is empty, and ends it once the value of `look` has changed `changes`
/// times. `None`: it was ended so; else it had ended before.
///
/// # Panics
/// If it cannot be started or traced.
pub fn run_to_change<T: PartialEq>(
    command: &Command,
    mut look: impl FnMut() -> T,
    changes: usize,
) -> Option<ExitStatus> {
    // It waits until it is traced.
    let mut traced = Command::new("/bin/sh");
    traced
        .args(["-c", "read go; exec \"$@\"", "sh"])
        .arg(command.get_program());
    traced.args(command.get_args()).env_clear();
    traced.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    traced
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = traced.spawn().expect("a shell");
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    ptrace::attach(pid).expect("tracing it");
    waitpid(pid, None).expect("its stop");
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(pid, options).expect("tracing its system calls");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(b"go\n").expect("letting it go");
    drop(input);
    let (mut last, mut seen, mut signal) = (look(), 0, None);
    let status = loop {
        ptrace::syscall(pid, signal.take()).expect("its next system call");
        match waitpid(pid, None).expect("its next stop") {
            WaitStatus::PtraceSyscall(_) => {
                let now = look();
                seen += usize::from(now != last);
                last = now;
                if seen == changes {
                    kill(pid, Signal::SIGKILL).expect("ending it");
                    break None;
                }
            }
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            WaitStatus::Stopped(_, other) => signal = Some(other),
            WaitStatus::Exited(_, code) => break Some(ExitStatus::from_raw(code << 8)),
            other => panic!("it did not end by itself: {other:?}"),
        }
    };
    // One that ended by itself was waited for above.
    let _ = child.wait();
    status
}

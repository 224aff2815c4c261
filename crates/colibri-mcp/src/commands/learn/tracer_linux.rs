//! The tracer below which a server is observed on Linux: strace(1), as the user.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use colibri_files::{LineBuffer, LinePiece, each_line};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;

use super::access::ObservedAccess;
use super::observation::SessionNotes;
use super::strace::{CALLS, StraceReader};
use crate::failure::CommandError;
use crate::install::find_program;

/// The longest line of a tracer: two paths and a path of a descriptor, in hex, are far below.
const MAX_TRACE_LINE: usize = 1024 * 1024;
/// The bytes of a message that are shown: a question to a name server.
const MESSAGE_BYTES: &str = "600";
/// The most of a process's status that is read: its tracer stands near the beginning.
const MAX_STATUS: u64 = 4096;
/// The descriptors that a shell can close by one digit.
const FREE: std::ops::RangeInclusive<i32> = 3..=9;

/// A server below its tracer.
#[derive(Debug)]
pub(super) struct StraceProcess {
    /// The tracer.
    pub child: Child,
    trace: File,
    pipe: String,
}

impl StraceProcess {
    /// Starts a server below strace(1). Its standard error is this program's.
    ///
    /// # Errors
    /// There is no strace(1), or it cannot be started.
    pub(super) fn start(
        words: &[String],
        variables: &[(String, String)],
        directory: &Path,
    ) -> Result<StraceProcess, CommandError> {
        let strace = find_program("strace").ok_or_else(|| {
            CommandError::Machine(
                "strace is not on PATH, and a server is observed by it: install strace".to_owned(),
            )
        })?;
        let failed = |error: std::io::Error| {
            CommandError::Machine(format!("cannot start {}: {error}", strace.display()))
        };
        let (trace, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
            .map_err(|errno| failed(errno.into()))?;
        let pipe =
            std::fs::read_link(format!("/proc/self/fd/{}", trace.as_raw_fd())).map_err(failed)?;
        // The tracer inherits a copy; the shell below it closes that before it becomes the server.
        let number = fcntl(&writer, FcntlArg::F_DUPFD(*FREE.start()))
            .map_err(|errno| failed(errno.into()))?;
        // What outlives its tracer comes to this process, and is found.
        nix::sys::prctl::set_child_subreaper(true).map_err(|errno| failed(errno.into()))?;
        let child = (|| {
            if !FREE.contains(&number) {
                return Err(std::io::Error::other("too many files are open"));
            }
            Command::new(&strace)
                .args([
                    "-f",
                    "-y",
                    "-xx",
                    "-q",
                    "--seccomp-bpf",
                    "-s",
                    MESSAGE_BYTES,
                    "-e",
                    CALLS,
                    "-o",
                ])
                .arg(format!("/proc/self/fd/{number}"))
                .args([
                    "--",
                    "/bin/sh",
                    "-c",
                    &format!("exec \"$@\" {number}>&-"),
                    "sh",
                ])
                .args(words)
                .env_clear()
                .envs(variables.iter().map(|(name, value)| (name, value)))
                .current_dir(directory)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        })();
        let _ = nix::unistd::close(number);
        drop::<OwnedFd>(writer);
        Ok(StraceProcess {
            child: child.map_err(failed)?,
            trace: File::from(trace),
            pipe: pipe.to_string_lossy().into_owned(),
        })
    }

    /// Takes the trace, to be read by [`read_trace`].
    ///
    /// # Errors
    /// The system's.
    pub(super) fn trace(&self) -> std::io::Result<StraceOutput> {
        Ok(StraceOutput {
            file: self.trace.try_clone()?,
            pipe: self.pipe.clone(),
        })
    }
}

/// The output of a tracer.
#[derive(Debug)]
pub(super) struct StraceOutput {
    file: File,
    pipe: String,
}

/// Reads a trace to its end, and notes what it reports. Sets `ends` when the server's first process
/// has ended, or when nothing more is believed.
pub(super) fn read_trace(
    source: StraceOutput,
    start: PathBuf,
    notes: &Arc<Mutex<SessionNotes>>,
    ends: &Arc<AtomicBool>,
) {
    let mut reader = StraceReader::new(source.pipe, start);
    let mut file = source.file;
    let mut lines = LineBuffer::new(MAX_TRACE_LINE);
    loop {
        let length = match lines.read(&mut file) {
            Ok(LinePiece::Lines(piece)) => {
                let mut notes = notes.lock();
                for (_, line) in each_line(piece) {
                    let line = String::from_utf8_lossy(line);
                    reader.read(line.trim_end_matches('\n'), &mut |access| {
                        notes.note(access)
                    });
                }
                if reader.has_ended || !notes.seen.escapes.is_empty() {
                    ends.store(true, Ordering::Relaxed);
                }
                piece.len()
            }
            Ok(LinePiece::Nothing | LinePiece::TooLong(_)) => 0,
            Ok(LinePiece::End(_)) | Err(_) => break,
        };
        lines.consume(length);
    }
    if !reader.has_ended {
        let why = "the tracer ended before the server did".to_owned();
        notes.lock().note(ObservedAccess::Escape { why });
    }
}

/// Kills all that the tracer has, whatever detached itself as well: it follows each process that is
/// made. If it has ended, all that it left, which comes to this process ([`StraceProcess::start`]).
/// True if there was something.
pub(super) fn kill_traced(server: &StraceProcess) -> bool {
    let (tracer, own) = (server.child.id(), std::process::id());
    let mut found = false;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let mut status = String::new();
        let file = File::open(entry.path().join("status"));
        if file
            .and_then(|file| file.take(MAX_STATUS).read_to_string(&mut status))
            .is_err()
        {
            continue;
        }
        let is = |key: &str, number: u32| {
            let mut values = status.lines().filter_map(|line| line.strip_prefix(key));
            values
                .next()
                .is_some_and(|value| value.trim().parse() == Ok(number))
        };
        let is_left =
            is("PPid:", own) && process.unsigned_abs() != tracer && !status.contains("State:\tZ");
        if is("TracerPid:", tracer) || is_left {
            found = true;
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
    }
    found
}

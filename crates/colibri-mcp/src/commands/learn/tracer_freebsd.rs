//! The tracer below which a server is observed on FreeBSD: ktrace(1), as the user. It reports no
//! contents, and so no names that are looked up.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::access::ObservedAccess;
use super::ktrace::KtraceReader;
use super::observation::SessionNotes;
use crate::failure::CommandError;

/// Between two looks at the trace.
const PAUSE: Duration = Duration::from_millis(50);
/// The most bytes of a trace, which stands on the disk until the session ends.
const MAX_TRACE: u64 = 2 * 1024 * 1024 * 1024;
/// The most of a trace that is read at once.
const PIECE: usize = 256 * 1024;

/// A server below its tracer.
#[derive(Debug)]
pub(super) struct KtraceProcess {
    /// The server: ktrace(1) becomes it.
    pub child: Child,
    place: TempDir,
    trace: File,
    living: Arc<Mutex<Vec<i32>>>,
}

/// The output of a tracer.
#[derive(Debug)]
pub(super) struct KtraceOutput {
    file: File,
    path: PathBuf,
    living: Arc<Mutex<Vec<i32>>>,
}

impl KtraceProcess {
    /// Starts a server below ktrace(1). Its standard error is this program's.
    ///
    /// # Errors
    /// The tracer cannot be started.
    pub(super) fn start(
        words: &[String],
        variables: &[(String, String)],
        directory: &Path,
    ) -> Result<KtraceProcess, CommandError> {
        let failed = |error: std::io::Error| {
            CommandError::Machine(format!("cannot start /usr/bin/ktrace: {error}"))
        };
        let place = tempfile::Builder::new()
            .prefix("colibri-learn-")
            .tempdir()
            .map_err(failed)?;
        let path = place.path().join("trace");
        let trace = File::options()
            .read(true)
            .append(true)
            .create_new(true)
            .open(&path)
            .map_err(failed)?;
        let child = Command::new("/usr/bin/ktrace")
            // Without -a it makes another file in the place of the one that is read.
            .args(["-a", "-i", "-t", "cnt", "-f"])
            .arg(&path)
            .args(words)
            .env_clear()
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        Ok(KtraceProcess {
            child,
            place,
            trace,
            living: Arc::default(),
        })
    }

    /// Takes the trace, to be read by [`read_trace`].
    ///
    /// # Errors
    /// The system's.
    pub(super) fn trace(&self) -> std::io::Result<KtraceOutput> {
        Ok(KtraceOutput {
            file: self.trace.try_clone()?,
            path: self.place.path().join("trace"),
            living: Arc::clone(&self.living),
        })
    }
}

/// Reads a trace to its end, and notes what it reports. Sets `ends` when the server's first process
/// has ended, or when nothing more is believed.
pub(super) fn read_trace(
    source: KtraceOutput,
    start: PathBuf,
    notes: &Arc<Mutex<SessionNotes>>,
    ends: &Arc<AtomicBool>,
) {
    let mut reader = KtraceReader::new(start);
    let mut file = source.file;
    let mut piece = vec![0; PIECE];
    let mut read = 0;
    loop {
        // Once all have ended, what is read after that is the rest.
        let is_over = ends.load(Ordering::Relaxed) && reader.living().is_empty();
        let length = file.read(&mut piece).unwrap_or_default();
        if length > 0 {
            if read == 0 {
                // The kernel has it open; nobody else is to find it.
                let _ = std::fs::remove_file(&source.path);
            }
            read += length as u64;
            let mut notes = notes.lock();
            reader.read(&piece[..length], &mut |access| {
                notes.note(match access {
                    ObservedAccess::Read { path, .. } | ObservedAccess::Write { path }
                        if path == source.path =>
                    {
                        ObservedAccess::Escape {
                            why: "it has opened what the tracer writes to".to_owned(),
                        }
                    }
                    other => other,
                });
            });
            if read > MAX_TRACE {
                notes.note(ObservedAccess::Escape {
                    why: "it did more than can be traced: use it for a shorter time".to_owned(),
                });
            }
            if reader.has_ended || !notes.seen.escapes.is_empty() {
                ends.store(true, Ordering::Relaxed);
            }
            drop(notes);
            *source.living.lock() = reader.living();
        } else if is_over {
            return;
        } else {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Kills all that the tracer has reported, whatever detached itself as well. A process that cannot
/// be killed any more has ended. True if there was something.
pub(super) fn kill_traced(server: &KtraceProcess) -> bool {
    let mut living = server.living.lock();
    living.retain(|process| kill(Pid::from_raw(*process), Signal::SIGKILL).is_ok());
    !living.is_empty()
}

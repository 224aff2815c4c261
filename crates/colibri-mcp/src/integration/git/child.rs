//! A child process that is bounded: in time, in what it may say, and by the call that it is for.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// The part of stderr that is kept, in bytes.
pub(super) const MAX_ERR: usize = 512;
/// The time in which a child must end by itself once it is to: git(1) takes its locks away
/// meanwhile.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Between two looks whether a child that says nothing more has ended.
const PAUSE: Duration = Duration::from_millis(5);
/// The same while it may still say something.
const LOOK: Duration = Duration::from_millis(200);

/// Until when children of a call may run: a time, and as long as the call is wanted.
pub(super) struct ChildBounds {
    pub(super) until: Instant,
    wanted: PipeReader,
}

impl ChildBounds {
    /// Bounds that end after `patience`, or when what is returned beside them is dropped.
    ///
    /// # Errors
    /// There is no pipe to be had.
    pub(super) fn new(patience: Duration) -> io::Result<(ChildBounds, PipeWriter)> {
        let (wanted, want) = io::pipe()?;
        let until = Instant::now() + patience;
        Ok((ChildBounds { until, wanted }, want))
    }
}

/// The end of a child.
pub(super) struct ChildOutcome {
    pub(super) status: ExitStatus,
    pub(super) out: Vec<u8>,
    /// There was more than may be said, and the child was ended for it.
    pub(super) is_cut: bool,
    /// The first 512 bytes.
    pub(super) err: Vec<u8>,
}

/// The reason for which a child was ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum StopReason {
    #[error("it took too long")]
    Late,
    #[error("nobody wants it any more")]
    Unwanted,
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Runs a command in a process group of its own, of which nothing is left afterwards; `most` bytes
/// of what it says count.
///
/// # Errors
/// It cannot be run, or was ended.
pub(super) fn run(
    command: &mut Command,
    most: usize,
    bounds: &ChildBounds,
) -> Result<ChildOutcome, StopReason> {
    command
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn()?;
    let mut group = ProcessGroup {
        leader: Pid::from_raw(child.id().cast_signed()),
        child,
    };
    let said = group.listen(most, bounds);
    if !matches!(said, Ok((_, _, false))) {
        group.ask_to_end();
    }
    let status = group.end()?;
    let (out, err, is_cut) = said?;
    Ok(ChildOutcome {
        status,
        out,
        is_cut,
        err,
    })
}

/// A child that leads a group. Until it is reaped the group's number is its own.
struct ProcessGroup {
    leader: Pid,
    child: Child,
}

impl ProcessGroup {
    /// The output of the child until it has ended; true if it was too much.
    fn listen(
        &mut self,
        most: usize,
        bounds: &ChildBounds,
    ) -> Result<(Vec<u8>, Vec<u8>, bool), StopReason> {
        let (mut out, mut err) = (self.child.stdout.take(), self.child.stderr.take());
        let (mut said, mut complaints) = (Vec::new(), Vec::new());
        loop {
            let mut waiting = vec![PollFd::new(bounds.wanted.as_fd(), PollFlags::POLLIN)];
            waiting.extend(
                out.as_ref()
                    .map(|out| PollFd::new(out.as_fd(), PollFlags::POLLIN)),
            );
            waiting.extend(
                err.as_ref()
                    .map(|err| PollFd::new(err.as_fd(), PollFlags::POLLIN)),
            );
            let left = bounds.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StopReason::Late);
            }
            let pause = if waiting.len() == 1 { PAUSE } else { LOOK };
            let timeout = PollTimeout::try_from(left.min(pause)).unwrap_or(PollTimeout::ZERO);
            match poll(&mut waiting, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            let ready: Vec<bool> = waiting.iter().map(|fd| fd.any().unwrap_or(true)).collect();
            if ready.first() == Some(&true) {
                return Err(StopReason::Unwanted);
            }
            let mut ready = ready.into_iter().skip(1);
            if out.is_some() && ready.next() == Some(true) {
                read(&mut out, &mut said, usize::MAX)?;
                if said.len() > most {
                    said.truncate(most);
                    return Ok((said, complaints, true));
                }
            }
            if err.is_some() && ready.next() == Some(true) {
                read(&mut err, &mut complaints, MAX_ERR)?;
            }
            if self.has_ended() {
                if out.is_none() && err.is_none() {
                    return Ok((said, complaints, false));
                }
                // What it left behind would keep the pipes open.
                let _ = killpg(self.leader, Signal::SIGKILL);
            }
        }
    }

    fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        !matches!(
            waitid(Id::Pid(self.leader), flags),
            Ok(WaitStatus::StillAlive)
        )
    }

    /// Signals all of the group to end, and waits a moment for its leader.
    fn ask_to_end(&mut self) {
        let _ = killpg(self.leader, Signal::SIGTERM);
        let until = Instant::now() + GRACE;
        while !self.has_ended() && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }

    /// Ends what is left of the group, and reaps its leader.
    fn end(&mut self) -> io::Result<ExitStatus> {
        let _ = killpg(self.leader, Signal::SIGKILL);
        self.child.wait()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // Reaped already, unless something failed before: then this is its end.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.end();
        }
    }
}

/// Reads once, and keeps at most so many bytes; at the end there is nothing more to read from.
fn read(from: &mut Option<impl Read>, into: &mut Vec<u8>, most: usize) -> io::Result<()> {
    let Some(source) = from else { return Ok(()) };
    let mut buffer = [0; 16 * 1024];
    match source.read(&mut buffer) {
        Ok(0) => *from = None,
        Ok(length) => {
            let room = most.saturating_sub(into.len()).min(length);
            into.extend_from_slice(&buffer[..room]);
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

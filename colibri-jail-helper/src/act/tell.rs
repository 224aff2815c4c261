//! Lines on the helper's standard error: whole lines, short enough to be written at once or not at
//! all.

use std::os::fd::AsFd;
use std::time::Duration;

use colibri_text::ascii_bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys;

/// POSIX's least PIPE_BUF: a pipe takes this much whole, and between no one else's bytes.
const MAX_LINE: usize = 512;

/// Writes `helper: <text>` as one line, control characters escaped. Waits for a full pipe for as
/// long as `patience` says and then gives the line up: a caller that does not read must not hold a
/// program of root's.
///
/// Returns whether the line was written.
pub(crate) fn line(text: &str, patience: PollTimeout) -> bool {
    whole_line(&format!("helper: {text}"), patience)
}

/// [`line`] of a text that has its beginning already.
pub(crate) fn whole_line(text: &str, patience: PollTimeout) -> bool {
    let mut line = ascii_bytes(text.as_bytes(), 408);
    line.truncate(MAX_LINE - 1);
    line.push('\n');
    let stderr = std::io::stderr();
    let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    let writable = poll(&mut ready, patience).is_ok_and(|n| n == 1)
        && ready[0]
            .revents()
            .is_some_and(|events| events.contains(PollFlags::POLLOUT));
    writable && nix::unistd::write(stderr.as_fd(), line.as_bytes()).is_ok_and(|n| n == line.len())
}

/// [`line`] with one second of patience, for refusals; a terminal that takes no more has another.
pub(crate) fn refusal(text: &str) {
    let _ = sys::within(Duration::from_secs(2), || {
        line(text, PollTimeout::from(1000u16))
    });
}

//! `colibri-mcp status --metrics`: what Prometheus would read.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::commands::context::CommandContext;
use crate::failure::CommandError;
use crate::terminal;
use colibri_text::visible_lines;

/// The longest time for the daemon's answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer that is read, bytes.
const MAX_TEXT: u64 = 16 << 20;

/// Prints the metrics that the daemon serves at a socket, or beside its own.
pub(super) fn print(socket: Option<PathBuf>, context: &CommandContext) -> Result<(), CommandError> {
    if context.json {
        return Err(CommandError::Usage(
            "metrics are text for Prometheus: there is no --json".to_owned(),
        ));
    }
    let beside = || context.place.socket.with_file_name("metrics.sock");
    let socket = socket.unwrap_or_else(beside);
    let text = read(&socket).map_err(|source| CommandError::Metrics { socket, source })?;
    terminal::print(visible_lines(text.trim_end()).as_ref())
}

fn read(socket: &std::path::Path) -> io::Result<String> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    // Nothing is asked, so the daemon need not wait for a request.
    stream.shutdown(Shutdown::Write)?;
    let mut text = String::new();
    stream.take(MAX_TEXT).read_to_string(&mut text)?;
    Ok(text)
}

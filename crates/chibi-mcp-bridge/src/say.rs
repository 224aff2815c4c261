//! Words for the person, on standard error: nothing is ever said on standard output.

use std::io::{self, Write as _};

/// Says something, in one line.
pub(crate) fn say(text: &str) {
    let line = format!("[mcp-bridge] {}\n", colibri_text::visible(text));
    // Whoever started the bridge may have stopped reading, and a disk may be full: no reason to
    // end.
    let _ = io::stderr().write_all(line.as_bytes());
}

//! Words for the person, on standard error: nothing is ever said on standard output.

/// Says something, in one line.
pub(crate) fn say(text: &str) {
    eprintln!("[mcp-bridge] {}", colibri_text::visible(text));
}

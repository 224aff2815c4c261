//! The server behind every relay that is measured. It needs nothing but the standard library.

use std::io::{self, BufRead, BufReader, Write};

/// The one tool, as it is listed.
pub(crate) const ECHO: &str =
    r#"{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}"#;

/// An MCP server that answers each call with its text, and does as little else as it can: `before`
/// a call is answered it does that. It lists these `tools`.
pub(crate) fn echo_server(tools: &str, before: fn()) {
    let mut input = BufReader::with_capacity(256 * 1024, io::stdin().lock());
    let mut output = io::stdout().lock();
    let (mut line, mut answers) = (Vec::new(), Vec::new());
    while input
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        let text = std::str::from_utf8(&line).unwrap_or_default();
        let id = id_of(text).unwrap_or("null");
        let result = if text.contains("\"method\":\"initialize\"") {
            Some(r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"e","version":"1"}}"#.to_owned())
        } else if text.contains("\"method\":\"tools/list\"") {
            Some(format!("{{\"tools\":[{tools}]}}"))
        } else {
            if text.contains("\"method\":\"tools/call\"") {
                before();
            }
            between(text, "\"text\":\"", "\"")
                .map(|said| format!("{{\"content\":[{{\"type\":\"text\",\"text\":\"{said}\"}}]}}"))
        };
        match result {
            Some(result) => answers
                .extend_from_slice(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n").as_bytes()),
            None if text.contains("\"id\":") => answers.extend_from_slice(
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32601,\"message\":\"no\"}}}}\n")
                    .as_bytes(),
            ),
            None => {}
        }
        line.clear();
        if !input.buffer().contains(&b'\n') {
            if output
                .write_all(&answers)
                .and_then(|()| output.flush())
                .is_err()
            {
                return;
            }
            answers.clear();
        }
    }
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let start = text.find(before)? + before.len();
    let rest = &text[start..];
    Some(&rest[..rest.find(after)?])
}

/// The id, which stands first or last.
fn id_of(text: &str) -> Option<&str> {
    let rest = text.split_once("\"id\":")?.1;
    Some(&rest[..rest.find([',', '}'])?])
}

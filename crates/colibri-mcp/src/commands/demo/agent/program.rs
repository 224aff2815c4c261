//! The demo's agent: it asks its model, calls the tools that the model asks for, and writes what
//! happens as `claude -p --output-format stream-json` does. Small enough to read as an example.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::super::super::context::CommandContext;
use crate::connection::DaemonConnection;
use crate::failure::CommandError;
use crate::terminal;

/// The most turns with the model.
const TURNS: usize = 20;
/// The longest answer of the model, bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// Runs the agent. It has ended well where its model said so.
pub(crate) fn run(context: &CommandContext) -> Result<ExitCode, CommandError> {
    let (said, failed) = match work(context) {
        Ok(said) => (said, false),
        Err(failure) => (failure.to_string(), true),
    };
    let subtype = if failed {
        "error_during_execution"
    } else {
        "success"
    };
    event(&json!({ "type": "result", "subtype": subtype, "is_error": failed, "result": said }))?;
    Ok(ExitCode::from(u8::from(failed)))
}

fn event(event: &Value) -> Result<(), CommandError> {
    terminal::print(&event.to_string())
}

/// Runs the agent and returns the model's last words.
fn work(context: &CommandContext) -> Result<String, CommandError> {
    let mut connection = context.connect()?;
    let listed: Value = connection.ask("tools/list", &json!({}))?.0;
    let listed = listed["tools"].as_array().into_iter().flatten();
    let tools: Vec<_> = listed
        .map(|tool| json!({ "name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"] }))
        .collect();
    let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
    let session = format!("demo-{}", std::process::id());
    event(&json!({ "type": "system", "subtype": "init", "session_id": session, "tools": names }))?;
    let mut messages = vec![json!({ "role": "user", "content": "Take a task, do it, finish it." })];
    for _ in 0..TURNS {
        let content = ask(&json!({
            "model": "scripted", "max_tokens": 1000, "stream": true, "messages": messages, "tools": tools }))?;
        let message = json!({ "role": "assistant", "content": content });
        event(&json!({ "type": "assistant", "message": message, "session_id": session }))?;
        messages.push(message);
        let mut results = Vec::new();
        for block in content.iter().filter(|block| block["type"] == "tool_use") {
            results.push(call(&mut connection, block)?);
        }
        if results.is_empty() {
            return Ok(content
                .iter()
                .filter_map(|block| block["text"].as_str())
                .collect());
        }
        let message = json!({ "role": "user", "content": results });
        event(&json!({ "type": "user", "message": message, "session_id": session }))?;
        messages.push(message);
    }
    Err(CommandError::Machine(format!(
        "the model did not come to an end in {TURNS} turns"
    )))
}

/// Calls a tool through the agent socket. What is wrong with a call is the model's to read.
fn call(connection: &mut DaemonConnection, asked: &Value) -> Result<Value, CommandError> {
    let arguments =
        to_raw_value(&asked["input"]).map_err(|error| CommandError::Machine(error.to_string()))?;
    let result = connection.call_tool(
        asked["name"].as_str().unwrap_or_default(),
        &arguments,
        &mut |_| {},
    )?;
    let content = match &result.structured {
        Some(structured) => structured.get().to_owned(),
        None => result.readable(),
    };
    Ok(
        json!({ "type": "tool_result", "tool_use_id": asked["id"], "content": content, "is_error": result.is_error }),
    )
}

/// Sends a request to the model, which answers with a stream of events: the blocks of its message.
fn ask(request: &Value) -> Result<Vec<Value>, CommandError> {
    let wrong = |why: &str| CommandError::Machine(format!("the model's answer: {why}"));
    let url = std::env::var("ANTHROPIC_BASE_URL")
        .map_err(|_| wrong("ANTHROPIC_BASE_URL does not say where it is"))?;
    let host = url
        .strip_prefix("http://")
        .unwrap_or(&url)
        .trim_end_matches('/');
    let body = request.to_string();
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "POST /v1/messages HTTP/1.1\r\nhost: {host}\r\nx-api-key: none\r\nanthropic-version: 2023-06-01\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    let answer = String::from_utf8(answer).map_err(|_| wrong("it is not UTF-8"))?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| wrong("it has no head"))?;
    if head.split(' ').nth(1) != Some("200") {
        return Err(wrong(&format!(
            "{} {body}",
            head.lines().next().unwrap_or_default()
        )));
    }
    let is_chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = if is_chunked {
        unchunked(body)
    } else {
        Some(body.to_owned())
    };
    blocks(&body.ok_or_else(|| wrong("it breaks off"))?).map_err(|error| wrong(&error.to_string()))
}

/// The chunks of a body, joined (RFC 9112, 7.1).
fn unchunked(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        match usize::from_str_radix(size.trim(), 16).ok()? {
            0 => return Some(whole),
            size => whole.push_str(rest.get(..size)?),
        }
        body = rest
            .get(usize::from_str_radix(size.trim(), 16).ok()?..)?
            .strip_prefix("\r\n")?;
    }
}

/// The blocks of a message that comes in pieces.
fn blocks(events: &str) -> serde_json::Result<Vec<Value>> {
    let mut blocks: Vec<(Value, String)> = Vec::new();
    for data in events.lines().filter_map(|line| line.strip_prefix("data:")) {
        let event: Value = serde_json::from_str(data)?;
        match (event["type"].as_str(), blocks.last_mut()) {
            (Some("content_block_start"), _) => {
                blocks.push((event["content_block"].clone(), String::new()))
            }
            (Some("content_block_delta"), Some((_, pieces))) => {
                let delta = &event["delta"];
                pieces.push_str(
                    delta["text"]
                        .as_str()
                        .or(delta["partial_json"].as_str())
                        .unwrap_or_default(),
                );
            }
            (Some("error"), _) => {
                return Err(serde_json::Error::io(io::Error::other(
                    event["error"].to_string(),
                )));
            }
            _ => {}
        }
    }
    let whole = |(mut block, pieces): (Value, String)| {
        match block["type"] == "tool_use" {
            true => block["input"] = serde_json::from_str(&pieces)?,
            false => block["text"] = json!(pieces),
        }
        Ok(block)
    };
    blocks.into_iter().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_comes_in_chunks_and_pieces_is_whole() {
        let events = concat!(
            "event: x\ndata: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"It \"}}\n\n",
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"is\"}}\n\n",
            "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"n\"}}\n\n",
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"partial_json\":\"{\\\"a\\\":\"}}\n\n",
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"partial_json\":\"1}\"}}\n\n",
        );
        let (one, two) = events.split_at(37);
        let chunked = format!(
            "{:x}\r\n{one}\r\n{:X}\r\n{two}\r\n0\r\n\r\n",
            one.len(),
            two.len()
        );
        assert_eq!(
            blocks(&unchunked(&chunked).unwrap()).unwrap(),
            [
                json!({ "type": "text", "text": "It is" }),
                json!({ "type": "tool_use", "id": "t", "name": "n", "input": { "a": 1 } })
            ]
        );
        assert_eq!(unchunked("5\r\nabc"), None);
        assert!(blocks("data: {\"type\":\"error\",\"error\":{\"message\":\"no\"}}\n").is_err());
    }
}

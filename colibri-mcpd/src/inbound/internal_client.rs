//! Calls that the daemon makes itself: as a client of somebody would, on a connection within the
//! daemon, so that they pass all that any call passes.

use std::sync::Arc;
use std::time::Duration;

use colibri_peer::{Frame, FrameReader};
use colibri_protocol::Version;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::time::timeout;

use super::connection::InboundConnection;
use super::lines;
use crate::daemon::Daemon;
use colibri_policy::{Caller, Road};

/// The longest time that a call may take, with a person's approval.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Bytes on their way between the two ends.
const PIPE: usize = 64 << 10;

/// A call that got no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InternalCallError {
    /// The connection ended first.
    #[error("no answer: the daemon closed the connection")]
    Closed,
    /// The answer is longer than a message may be.
    #[error("the answer has {length} bytes, the limit is {limit} (limits.message_bytes)")]
    TooLong {
        /// Its bytes.
        length: u64,
        /// The most bytes of a message.
        limit: usize,
    },
    /// It took too long.
    #[error("no answer within an hour")]
    Timeout,
}

/// The one line that is said, by a client of this name.
fn request(name: &str, tool: &str, arguments: &str) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": Version::LATEST.as_str(),
        "io.modelcontextprotocol/clientInfo": { "name": name, "version": env!("CARGO_PKG_VERSION") },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":{},\"arguments\":{arguments},\
         \"_meta\":{meta}}}}}\n",
        Value::from(tool)
    )
}

/// Calls a tool for this caller, by this road: the whole answer. Dropped before that, the call is
/// cancelled.
///
/// # Errors
/// Why there is none.
pub(super) async fn call(
    daemon: Arc<Daemon>,
    caller: Caller,
    (name, road): (&str, Road),
    (tool, arguments): (&str, &str),
) -> Result<Value, InternalCallError> {
    let line = request(name, tool, arguments);
    let limit = daemon.limits.frame;
    let visitor = InboundConnection::enter_by(daemon, caller, road);
    let ((mut to, reader), (from, writer)) = (tokio::io::duplex(PIPE), tokio::io::duplex(PIPE));
    // It ends when this end is dropped.
    tokio::spawn(lines::serve(visitor, reader, writer));
    let answered = async move {
        let sent = to.write_all(line.as_bytes()).await;
        sent.map_err(|_| InternalCallError::Closed)?;
        read_answer(from, limit).await
    };
    match timeout(PATIENCE, answered).await {
        Ok(answer) => answer,
        Err(_) => Err(InternalCallError::Timeout),
    }
}

/// Reads up to the answer to the one request. What comes before it is passed over.
///
/// # Errors
/// There is none, or it is longer than `limit`.
async fn read_answer(
    input: impl AsyncRead + Unpin,
    limit: usize,
) -> Result<Value, InternalCallError> {
    let mut frames = FrameReader::new(input, limit);
    loop {
        let filled = frames.fill().await;
        let is_open = filled.map_err(|_| InternalCallError::Closed)?;
        while let Some(frame) = frames.pop() {
            match frame {
                Frame::Line(line) => {
                    let message: Value = serde_json::from_slice(&line).unwrap_or_default();
                    if message["id"] == 1 && message.get("method").is_none() {
                        return Ok(message);
                    }
                }
                // The id of a long message may stand where it is not found; there is one request.
                Frame::TooLong {
                    length,
                    id,
                    request: false,
                } if id.as_deref().is_none_or(|id| id == "1") => {
                    return Err(InternalCallError::TooLong { length, limit });
                }
                Frame::TooLong { .. } | Frame::Endless { .. } => {}
            }
        }
        if !is_open {
            return Err(InternalCallError::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(input: &str) -> Result<Value, InternalCallError> {
        read_answer(input.as_bytes(), 100).await
    }

    #[tokio::test]
    async fn an_answer_over_the_limit_is_an_error_at_once() {
        let long = "x".repeat(500);
        let notification =
            format!("{{\"method\":\"n\",\"params\":{{\"id\":1,\"x\":\"{long}\"}}}}\n");
        let answer = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
        let input = format!("{notification}{{\"id\":2,\"result\":{{}}}}\n{answer}");
        assert_eq!(read(&input).await.unwrap()["result"], json!({}));
        let long_answer = format!("{{\"id\":1,\"result\":\"{long}\"}}\n");
        // The connection stays open: nothing more comes.
        let (mut to, from) = tokio::io::duplex(PIPE);
        to.write_all(long_answer.as_bytes()).await.unwrap();
        let refused = read_answer(from, 100).await.unwrap_err();
        assert!(
            matches!(refused, InternalCallError::TooLong { limit: 100, .. }),
            "{refused}"
        );
        let cut_off = read(&notification).await.unwrap_err();
        assert_eq!(cut_off, InternalCallError::Closed);
    }
}

//! Calls that the daemon makes itself: as a client of somebody would, on a connection within the
//! daemon, so that they pass all that any call passes.

use std::sync::Arc;
use std::time::Duration;

use colibri_protocol::Version;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use super::connection::InboundConnection;
use super::lines;
use crate::daemon::Daemon;
use colibri_policy::Caller;

/// The longest time that a call may take, with a person's approval.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Bytes on their way between the two ends.
const PIPE: usize = 64 << 10;

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

/// Calls a tool for this caller: the whole answer. Dropped before that, the call is cancelled.
///
/// # Errors
/// Why there is none.
pub(super) async fn call(
    daemon: Arc<Daemon>,
    caller: Caller,
    name: &str,
    (tool, arguments): (&str, &str),
) -> Result<Value, String> {
    let line = request(name, tool, arguments);
    let longest = daemon.limits.frame as u64;
    let visitor = InboundConnection::enter(daemon, caller);
    let ((mut to, reader), (from, writer)) = (tokio::io::duplex(PIPE), tokio::io::duplex(PIPE));
    // It ends when this end is dropped.
    tokio::spawn(lines::serve(visitor, reader, writer));
    let answered = async move {
        to.write_all(line.as_bytes()).await.ok()?;
        let mut from = BufReader::new(from);
        loop {
            let mut line = Vec::new();
            if (&mut from)
                .take(longest)
                .read_until(b'\n', &mut line)
                .await
                .ok()?
                == 0
            {
                return None;
            }
            let message: Value = serde_json::from_slice(&line).unwrap_or_default();
            if message["id"] == 1 && message.get("method").is_none() {
                return Some(message);
            }
        }
    };
    match timeout(PATIENCE, answered).await {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err("no answer: the daemon closed the connection".to_owned()),
        Err(_) => Err("no answer within an hour".to_owned()),
    }
}

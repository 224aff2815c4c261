//! MCP on stdin and stdout for one of our own servers: its tools listed, its calls made side by
//! side and cancelled.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use colibri_files::{LineBuffer, LinePiece};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::connection::MAX_LINE;
use crate::failure::CommandError;

/// The versions with a handshake, newest first, and the one without.
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const MODERN: &str = "2026-07-28";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// The most calls at a time; of more each is answered that there is no room.
const MAX_CALLS: usize = 64;
/// The lifetime of a list: it is the program's own.
const TTL_MS: u64 = 3_600_000;

/// A server of tools.
pub(super) trait ToolServer: Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;
    /// The time in which threads must end calls that are given up, at the end.
    const GRACE: Duration = Duration::ZERO;

    /// Their definitions.
    fn list(&self) -> Value;

    /// Makes a call and gives its result; `None`: there is no such tool.
    fn call(&self, name: &str, arguments: &Value) -> impl Future<Output = Option<Value>> + Send;
}

/// Serves until stdin ends; calls that are not over then are given up.
pub(super) fn run<T: ToolServer>(tools: T) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime
        .map_err(|error| CommandError::Machine(format!("cannot begin to serve: {error}")))?;
    let (sender, inbox) = mpsc::channel(MAX_CALLS);
    // Nothing waits for this thread: it ends with stdin, or with the program.
    std::thread::spawn(move || read(&mut io::stdin().lock(), &sender));
    runtime.block_on(serve(Arc::new(tools), inbox));
    // What a name server keeps waiting is not waited for.
    runtime.shutdown_timeout(T::GRACE);
    Ok(ExitCode::SUCCESS)
}

/// Passes on what is read, a message or why it is none.
fn read(from: &mut impl io::Read, sender: &mpsc::Sender<anyhow::Result<Value>>) {
    let mut buffer = LineBuffer::new(MAX_LINE);
    loop {
        let (messages, length) = match buffer.read(from) {
            Ok(LinePiece::Lines(lines)) => {
                let each = lines
                    .split(|byte| *byte == b'\n')
                    .filter(|line| !line.trim_ascii().is_empty());
                let parsed =
                    each.map(|line| serde_json::from_slice(line).map_err(anyhow::Error::from));
                (parsed.collect::<Vec<_>>(), lines.len())
            }
            Ok(LinePiece::Nothing) => continue,
            Ok(LinePiece::TooLong(_)) => {
                (vec![Err(anyhow!("a message is over {MAX_LINE} bytes"))], 0)
            }
            Ok(LinePiece::End(_)) | Err(_) => return,
        };
        buffer.consume(length);
        for message in messages {
            if sender.blocking_send(message).is_err() {
                return;
            }
        }
    }
}

async fn serve(tools: Arc<impl ToolServer>, inbox: mpsc::Receiver<anyhow::Result<Value>>) {
    let mut calls = JoinSet::new();
    answer_all(tools, inbox, &mut calls).await;
    // They are gone then, and what they had done on threads knows that it is not wanted.
    calls.shutdown().await;
}

/// Until there is nothing more to read, or nobody to answer.
async fn answer_all(
    tools: Arc<impl ToolServer>,
    mut inbox: mpsc::Receiver<anyhow::Result<Value>>,
    calls: &mut JoinSet<(Value, Value)>,
) {
    let mut running: HashMap<String, AbortHandle> = HashMap::new();
    loop {
        let message = tokio::select! {
            message = inbox.recv() => message,
            Some(ended) = calls.join_next() => {
                if let Ok((id, reply)) = ended {
                    running.remove(&id.to_string());
                    if write(&reply).is_err() {
                        return;
                    }
                }
                continue;
            }
        };
        let message: Value = match message {
            None => return,
            Some(Ok(message)) => message,
            Some(Err(why)) => {
                let _ = write(&error(&Value::Null, -32700, &format!("{why:#}")));
                continue;
            }
        };
        let (id, params) = (message["id"].clone(), &message["params"]);
        let reply = match message["method"].as_str() {
            Some("notifications/cancelled") => {
                if let Some(call) = running.remove(&params["requestId"].to_string()) {
                    call.abort();
                }
                None
            }
            // Another notification, or an answer to nothing that was asked.
            _ if message.get("id").is_none() || message.get("method").is_none() => None,
            Some("tools/call") if running.len() >= MAX_CALLS => Some(error(
                &id,
                -32603,
                &format!("{MAX_CALLS} calls are being made, which is the most"),
            )),
            Some("tools/call") => {
                let (tools, params, key) = (tools.clone(), params.clone(), id.to_string());
                let handle = calls.spawn(async move {
                    let name = params["name"].as_str().unwrap_or_default();
                    let reply = match tools.call(name, &params["arguments"]).await {
                        Some(result) => answer(&id, result, &params),
                        None => error(&id, -32602, "no such tool"),
                    };
                    (id, reply)
                });
                running.insert(key, handle);
                None
            }
            method => Some(plain(&*tools, method.unwrap_or_default(), &id, params)),
        };
        if let Some(reply) = reply
            && write(&reply).is_err()
        {
            return;
        }
    }
}

/// The answer to a request that is no call.
fn plain<T: ToolServer>(tools: &T, method: &str, id: &Value, params: &Value) -> Value {
    let server = json!({ "name": T::NAME, "version": env!("CARGO_PKG_VERSION") });
    let result = match (method, is_modern(params)) {
        ("initialize", _) => {
            let known = LEGACY
                .into_iter()
                .find(|version| params["protocolVersion"] == *version);
            let version = known.unwrap_or(LEGACY[0]);
            json!({ "protocolVersion": version, "capabilities": { "tools": {} }, "serverInfo": server })
        }
        ("ping", false) => json!({}),
        (_, true) if params["_meta"][VERSION_KEY] != MODERN => {
            let data = json!({ "supported": [MODERN], "requested": params["_meta"][VERSION_KEY] });
            let mut refusal = error(id, -32022, "unsupported protocol version");
            refusal["error"]["data"] = data;
            return refusal;
        }
        ("server/discover", true) => {
            json!({ "supportedVersions": [MODERN], "capabilities": { "tools": {} }, "ttlMs": TTL_MS, "cacheScope": "public" })
        }
        ("tools/list", true) => {
            json!({ "tools": tools.list(), "ttlMs": TTL_MS, "cacheScope": "public" })
        }
        ("tools/list", false) => json!({ "tools": tools.list() }),
        _ => return error(id, -32601, "no such method"),
    };
    let mut answer = answer(id, result, params);
    if is_modern(params) {
        answer["result"]["_meta"] = json!({ "io.modelcontextprotocol/serverInfo": server });
    }
    answer
}

fn is_modern(params: &Value) -> bool {
    params["_meta"].get(VERSION_KEY).is_some()
}

fn answer(id: &Value, mut result: Value, params: &Value) -> Value {
    if is_modern(params) {
        result["resultType"] = json!("complete");
    }
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

fn write(message: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{message}\n").as_bytes())?;
    out.flush()
}

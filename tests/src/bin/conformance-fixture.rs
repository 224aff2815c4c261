//! The server that the official conformance suite is pointed at: an MCP server over stdio with the tools which the
//! suite's tool scenarios ask for, in the era its only argument names: `legacy` (the `initialize` handshake, up to
//! 2025-11-25) or `modern` (`_meta` on each request, 2026-07-28).
//!
//! It is a test's peer, so it shares no code with the daemon: plain blocking reads, one thread a tool call, and the
//! protocol written out again by hand. Two mistakes would have to be made twice to go unseen.
//!
//! Resources, prompts and completion are not served: the suite's scenarios for them come with the daemon's support.

use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The version of the modern era, as `_meta` carries it.
const MODERN: &str = "2026-07-28";
/// Versions opened by `initialize`; the last is answered to a client that asks for one we do not know.
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// A red pixel, as PNG.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// Two samples of silence, as WAV.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA==";

/// Between two messages of a tool that sends several: long enough that a client which reads them late would be seen.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a tool waits for the client's answer to a request of ours.
const PATIENCE: Duration = Duration::from_secs(20);

/// A JSON-RPC error object: code, message and data.
struct RpcError(i64, String, Option<Value>);

impl RpcError {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self(code, message.into(), None)
    }
}

/// What the threads of one connection share.
#[derive(Default)]
struct State {
    /// The legacy handshake was made.
    handshake: bool,
    /// Capabilities the legacy client declared.
    capabilities: Map<String, Value>,
    /// Open `subscriptions/listen` requests that want tool changes, by id.
    listeners: Vec<Value>,
    /// Whether the tool that comes and goes is there.
    extra_tool: bool,
    /// Our own requests to the client that wait for an answer.
    waiting: HashMap<u64, Sender<Value>>,
    last_id: u64,
}

struct Server {
    /// Which of the two eras is served; a peer of the other one gets an error.
    modern: bool,
    state: Mutex<State>,
    out: Mutex<io::Stdout>,
}

/// Who calls, and how it may be answered.
struct Caller {
    modern: bool,
    capabilities: Map<String, Value>,
    meta: Map<String, Value>,
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one message as one line. The client having gone is no error: the reader sees the end of its input.
    fn send(&self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        let mut line = message.to_string();
        line.push('\n');
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }

    fn notify(&self, method: &str, params: Value) {
        self.send(json!({ "method": method, "params": params }));
    }

    /// Asks the legacy client and waits for its answer, at most [`PATIENCE`].
    fn ask(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let (sender, receiver) = channel();
        let id = {
            let mut state = self.state();
            state.last_id += 1;
            let id = state.last_id;
            state.waiting.insert(id, sender);
            id
        };
        self.send(json!({ "id": id, "method": method, "params": params }));
        let answer = receiver.recv_timeout(PATIENCE);
        self.state().waiting.remove(&id);
        answer.map_err(|_| RpcError::new(-32603, format!("the client did not answer {method}")))
    }

    /// Checks that a request is of our era, and says who made it (2026-07-28, basic, "Request metadata").
    fn caller(&self, method: &str, params: &Value) -> Result<Caller, RpcError> {
        let meta = params["_meta"].as_object().cloned().unwrap_or_default();
        if !self.modern {
            let state = self.state();
            if !state.handshake && !matches!(method, "initialize" | "ping" | "server/discover") {
                return Err(RpcError::new(-32602, "no initialize came before"));
            }
            let capabilities = state.capabilities.clone();
            return Ok(Caller {
                modern: false,
                capabilities,
                meta,
            });
        }
        let Some(version) = meta.get(META_VERSION) else {
            return Err(RpcError::new(-32602, format!("_meta lacks {META_VERSION}")));
        };
        if version != MODERN {
            let data = json!({ "supported": [MODERN], "requested": version });
            return Err(RpcError(-32022, "Unsupported protocol version".into(), Some(data)));
        }
        let Some(capabilities) = meta.get(META_CAPABILITIES).and_then(Value::as_object).cloned() else {
            return Err(RpcError::new(-32602, format!("_meta lacks {META_CAPABILITIES}")));
        };
        Ok(Caller {
            modern: true,
            capabilities,
            meta,
        })
    }

    /// Answers one request; `None` is a request that stays open.
    fn answer(&self, id: &Value, method: &str, params: &Value) -> Result<Option<Value>, RpcError> {
        let caller = self.caller(method, params)?;
        let result = match (method, caller.modern) {
            ("initialize", false) => self.initialize(params),
            ("ping" | "logging/setLevel", false) => json!({}),
            ("server/discover", true) => json!({
                "supportedVersions": [MODERN],
                "capabilities": { "tools": { "listChanged": true }, "logging": {} },
                "ttlMs": 60_000,
                "cacheScope": "public",
                "_meta": { META_SERVER_INFO: server_info() },
            }),
            ("tools/list", modern) => {
                let mut result = json!({ "tools": self.tools() });
                if modern {
                    result["ttlMs"] = json!(60_000);
                    result["cacheScope"] = json!("public");
                }
                result
            }
            ("tools/call", _) => self.call(&caller, params)?,
            ("subscriptions/listen", true) => {
                self.listen(id, params);
                return Ok(None);
            }
            _ => return Err(RpcError::new(-32601, format!("Method not found: {method}"))),
        };
        Ok(Some(result))
    }

    fn initialize(&self, params: &Value) -> Value {
        let mut state = self.state();
        state.handshake = true;
        state.capabilities = params["capabilities"].as_object().cloned().unwrap_or_default();
        let asked = params["protocolVersion"].as_str().unwrap_or_default();
        let version = LEGACY.into_iter().find(|known| *known == asked).unwrap_or(LEGACY[3]);
        json!({
            "protocolVersion": version,
            "capabilities": { "tools": { "listChanged": true }, "logging": {} },
            "serverInfo": server_info(),
        })
    }

    fn listen(&self, id: &Value, params: &Value) {
        let wants_tools = params["notifications"]["toolsListChanged"] == json!(true);
        let honoured = if wants_tools {
            json!({ "toolsListChanged": true })
        } else {
            json!({})
        };
        // Under the lock, so that no change can be told before the acknowledgement.
        let mut state = self.state();
        let params = json!({ "notifications": honoured, "_meta": { META_SUBSCRIPTION: id } });
        self.notify("notifications/subscriptions/acknowledged", params);
        if wants_tools {
            state.listeners.push(id.clone());
        }
    }

    fn tools(&self) -> Vec<Value> {
        let plain = |name: &str, description: &str| json!({ "name": name, "description": description, "inputSchema": { "type": "object", "properties": {} } });
        let asks = |name: &str, argument: &str, description: &str| {
            let schema = json!({
                "type": "object",
                "properties": { argument: { "type": "string" } },
                "required": [argument],
            });
            json!({ "name": name, "description": description, "inputSchema": schema })
        };
        let mut tools = vec![
            plain("test_simple_text", "Returns one text"),
            plain("test_image_content", "Returns one image"),
            plain("test_audio_content", "Returns one sound"),
            plain("test_embedded_resource", "Returns one embedded resource"),
            plain("test_multiple_content_types", "Returns a text, an image and a resource"),
            plain("test_error_handling", "Always fails"),
            plain(
                "test_tool_with_logging",
                "Logs three messages while it runs (legacy era)",
            ),
            plain(
                "test_logging_tool",
                "Logs a message if the request asks for log messages (modern era)",
            ),
            plain("test_tool_with_progress", "Reports progress three times"),
            asks("test_sampling", "prompt", "Asks the client's model (legacy era)"),
            asks("test_elicitation", "message", "Asks the person (legacy era)"),
            plain("test_missing_capability", "Needs the client's sampling capability"),
            plain(
                "test_streaming_elicitation",
                "Asks the person with input_required (modern era)",
            ),
            plain("test_trigger_tool_change", "Adds or removes the tool test_extra_tool"),
            json!({
                "name": "json_schema_2020_12_tool",
                "description": "Has an input schema that uses much of JSON Schema 2020-12",
                "inputSchema": schema_2020_12(),
            }),
        ];
        if self.state().extra_tool {
            tools.push(plain("test_extra_tool", "Comes and goes with test_trigger_tool_change"));
        }
        tools
    }

    fn call(&self, caller: &Caller, params: &Value) -> Result<Value, RpcError> {
        let name = params["name"].as_str().unwrap_or_default();
        let argument = |key: &str| params["arguments"][key].as_str().unwrap_or_default().to_owned();
        let result = match name {
            "test_simple_text" => text("This is a simple text response for testing."),
            "test_image_content" => content(json!([image()])),
            "test_audio_content" => content(json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }])),
            "test_embedded_resource" => content(json!([{
                "type": "resource",
                "resource": {
                    "uri": "test://embedded-resource",
                    "mimeType": "text/plain",
                    "text": "This is an embedded resource content.",
                },
            }])),
            "test_multiple_content_types" => content(json!([
                { "type": "text", "text": "Multiple content types test:" },
                image(),
                {
                    "type": "resource",
                    "resource": {
                        "uri": "test://mixed-content-resource",
                        "mimeType": "application/json",
                        "text": "{\"test\":\"data\",\"value\":123}",
                    },
                },
            ])),
            "test_error_handling" => {
                let mut result = text("This tool intentionally returns an error for testing");
                result["isError"] = json!(true);
                result
            }
            "test_tool_with_logging" => {
                if !caller.modern {
                    self.log("Tool execution started");
                    std::thread::sleep(PAUSE);
                    self.log("Tool processing data");
                    std::thread::sleep(PAUSE);
                    self.log("Tool execution completed");
                }
                text("Tool with logging executed successfully")
            }
            "test_logging_tool" => {
                if caller.meta.contains_key(META_LOG_LEVEL) {
                    self.log("Asked for by the request's log level");
                }
                text("Logging evaluated")
            }
            "test_tool_with_progress" => {
                for progress in [0, 50, 100] {
                    if let Some(token) = caller.meta.get("progressToken") {
                        let params = json!({ "progressToken": token, "progress": progress, "total": 100 });
                        self.notify("notifications/progress", params);
                    }
                    if progress < 100 {
                        std::thread::sleep(PAUSE);
                    }
                }
                text("Tool with progress executed successfully")
            }
            "test_sampling" => self.sample(caller, &argument("prompt"))?,
            "test_elicitation" => self.elicit(caller, &argument("message"))?,
            "test_missing_capability" => {
                require(caller, "sampling")?;
                text("The client has the sampling capability")
            }
            "test_streaming_elicitation" => {
                if params["inputResponses"].is_object() {
                    text("The person has answered")
                } else {
                    require(caller, "elicitation")?;
                    return Ok(json!({
                        "resultType": "input_required",
                        "inputRequests": {
                            "name": {
                                "method": "elicitation/create",
                                "params": {
                                    "message": "What is your name?",
                                    "requestedSchema": {
                                        "type": "object",
                                        "properties": { "name": { "type": "string" } },
                                        "required": ["name"],
                                    },
                                },
                            },
                        },
                    }));
                }
            }
            "test_trigger_tool_change" => {
                self.change_tools();
                text("The tool list has changed")
            }
            "test_extra_tool" if self.state().extra_tool => text("The extra tool answers"),
            "json_schema_2020_12_tool" => text("Called with arguments that match its schema"),
            _ => return Err(RpcError::new(-32602, format!("Unknown tool: {name}"))),
        };
        Ok(result)
    }

    fn log(&self, data: &str) {
        self.notify(
            "notifications/message",
            json!({ "level": "info", "logger": "fixture", "data": data }),
        );
    }

    fn sample(&self, caller: &Caller, prompt: &str) -> Result<Value, RpcError> {
        require_legacy(caller, "sampling")?;
        let params = json!({
            "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }],
            "maxTokens": 100,
        });
        let answer = self.ask("sampling/createMessage", params)?;
        let said = answer["result"]["content"]["text"]
            .as_str()
            .unwrap_or("nothing")
            .to_owned();
        Ok(text(&format!("LLM response: {said}")))
    }

    fn elicit(&self, caller: &Caller, message: &str) -> Result<Value, RpcError> {
        require_legacy(caller, "elicitation")?;
        let field = |description: &str| json!({ "type": "string", "description": description });
        let params = json!({
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": { "username": field("User's response"), "email": field("User's email address") },
                "required": ["username", "email"],
            },
        });
        let answer = self.ask("elicitation/create", params)?;
        Ok(text(&format!("User response: {}", answer["result"])))
    }

    fn change_tools(&self) {
        let mut state = self.state();
        state.extra_tool = !state.extra_tool;
        let method = "notifications/tools/list_changed";
        if state.handshake {
            self.send(json!({ "method": method }));
        }
        for id in &state.listeners {
            self.notify(method, json!({ "_meta": { META_SUBSCRIPTION: id } }));
        }
    }

    /// Takes one message that was read. Requests other than the handshake run on a thread of their own, so that a slow
    /// one holds nothing up.
    fn take(self: &Arc<Self>, mut message: Value) {
        let id = message["id"].take();
        let params = message["params"].take();
        let Some(method) = message["method"].as_str().map(str::to_owned) else {
            let waiting = id.as_u64().and_then(|id| self.state().waiting.remove(&id));
            if let Some(sender) = waiting {
                let _ = sender.send(message);
            }
            return;
        };
        if id.is_null() {
            if method == "notifications/cancelled" {
                self.state()
                    .listeners
                    .retain(|listener| *listener != params["requestId"]);
            }
            return;
        }
        let server = Arc::clone(self);
        let work = move || match server.answer(&id, &method, &params) {
            Ok(None) => {}
            Ok(Some(mut result)) => {
                if server.modern && result.get("resultType").is_none() {
                    result["resultType"] = json!("complete");
                }
                server.send(json!({ "id": id, "result": result }));
            }
            Err(RpcError(code, text, data)) => {
                let mut error = json!({ "code": code, "message": text });
                if let Some(data) = data {
                    error["data"] = data;
                }
                server.send(json!({ "id": id, "error": error }));
            }
        };
        if message["method"] == "tools/call" {
            std::thread::spawn(work);
        } else {
            work();
        }
    }
}

fn server_info() -> Value {
    json!({ "name": "colibri-conformance-fixture", "version": env!("CARGO_PKG_VERSION") })
}

fn content(items: Value) -> Value {
    json!({ "content": items })
}

fn text(text: &str) -> Value {
    content(json!([{ "type": "text", "text": text }]))
}

fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

/// -32021 where the client did not declare a capability that the call needs.
fn require(caller: &Caller, capability: &str) -> Result<(), RpcError> {
    if caller.capabilities.contains_key(capability) {
        return Ok(());
    }
    let text = format!("The client did not declare the capability {capability}");
    if !caller.modern {
        return Err(RpcError::new(-32602, text));
    }
    let data = json!({ "requiredCapabilities": { capability: {} } });
    Err(RpcError(-32021, text, Some(data)))
}

/// For the tools that send a request of their own, which the modern era does not have.
fn require_legacy(caller: &Caller, capability: &str) -> Result<(), RpcError> {
    if caller.modern {
        return Err(RpcError::new(
            -32602,
            "this tool asks by a request, which 2026-07-28 has not",
        ));
    }
    require(caller, capability)
}

/// The schema of the suite's scenario `json-schema-2020-12`, keyword for keyword.
fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

fn main() -> io::Result<()> {
    let modern = match std::env::args().nth(1).as_deref() {
        Some("legacy") => false,
        Some("modern") => true,
        _ => return Err(io::Error::other("usage: conformance-fixture legacy|modern")),
    };
    let server = Arc::new(Server {
        modern,
        state: Mutex::default(),
        out: Mutex::new(io::stdout()),
    });
    for line in io::stdin().lock().lines() {
        match serde_json::from_str::<Value>(&line?) {
            Ok(message) if message.is_object() => server.take(message),
            _ => server.send(json!({ "id": null, "error": { "code": -32700, "message": "Parse error" } })),
        }
    }
    Ok(())
}

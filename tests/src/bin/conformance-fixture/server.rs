//! What belongs to the connection: who calls, which method is meant, what is sent back.

use crate::asking::Secret;
use crate::content::Stop;
use crate::skills;
use crate::tasks::Task;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The version of the modern era, as `_meta` carries it.
pub(crate) const MODERN: &str = "2026-07-28";
/// Versions opened by `initialize`; the last is answered to a client that asks for one we do not
/// know.
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";
const INSTRUCTIONS: &str = "Call test_simple_text first.";
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// What the threads of one connection share.
#[derive(Default)]
pub(crate) struct State {
    /// The legacy handshake was made.
    pub(crate) handshake: bool,
    /// Capabilities the legacy client declared.
    capabilities: Map<String, Value>,
    /// The least level of log messages that the legacy client wants, of [`LEVELS`].
    level: usize,
    /// Open `subscriptions/listen` requests: id and the notifications that were promised.
    listeners: Vec<(Value, Value)>,
    /// URIs that the legacy client subscribed to.
    pub(crate) subscribed: HashSet<String>,
    /// Which things that come and go are there, by kind: "tools", "prompts", "resources".
    pub(crate) extras: BTreeSet<(&'static str, String)>,
    /// Our own requests to the client that wait for an answer.
    pub(crate) waiting: HashMap<u64, Sender<Value>>,
    pub(crate) last_id: u64,
    /// Requests that the client has cancelled; they get no answer.
    cancelled: Vec<Value>,
    /// Requests that are worked on.
    running: Vec<Value>,
    pub(crate) tasks: HashMap<String, Task>,
    /// URL elicitations that were asked for by an error.
    pub(crate) asked_urls: HashSet<String>,
}

pub(crate) struct Server {
    /// Which of the two eras is served; a peer of the other one gets an error.
    pub(crate) modern: bool,
    /// Entries on a page of a list.
    pub(crate) page: usize,
    /// Resources that are there beside the others, to fill pages.
    pub(crate) many: usize,
    pub(crate) secret: Secret,
    state: Mutex<State>,
    /// Something in [`State`] that somebody may wait for has changed.
    pub(crate) changed: Condvar,
    out: Mutex<io::Stdout>,
}

/// Who calls, and how it may be answered.
pub(crate) struct Caller {
    pub(crate) modern: bool,
    pub(crate) capabilities: Map<String, Value>,
    pub(crate) meta: Map<String, Value>,
    /// The request's id.
    pub(crate) id: Value,
}

impl Caller {
    pub(crate) fn speaks_tasks(&self) -> bool {
        self.modern
            && self
                .capabilities
                .get("extensions")
                .is_some_and(|extensions| extensions[TASKS].is_object())
    }

    /// -32021 where the client did not declare a capability that the call needs; `path` has a dot
    /// between levels.
    pub(crate) fn require(&self, path: &str) -> Result<(), Stop> {
        let mut at = Value::Object(self.capabilities.clone());
        let declared = path.split('.').all(|key| {
            at = at[key].take();
            !at.is_null()
        });
        if declared {
            return Ok(());
        }
        let needed = path
            .rsplit('.')
            .fold(json!({}), |inner, key| json!({ key: inner }));
        Err(self.lacks(path, needed))
    }

    pub(crate) fn lacks(&self, what: &str, needed: Value) -> Stop {
        let text = format!("The client did not declare the capability {what}");
        if !self.modern {
            return Stop::error(-32602, text);
        }
        Stop::Error(
            -32021,
            text,
            Some(json!({ "requiredCapabilities": needed })),
        )
    }
}

impl Server {
    pub(crate) fn new(modern: bool, page: usize, many: usize) -> Self {
        Self {
            modern,
            page,
            many,
            secret: Secret::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            out: Mutex::new(io::stdout()),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one message as one line. The client having gone is no error: the reader sees the end
    /// of its input.
    pub(crate) fn send(&self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        let mut line = message.to_string();
        line.push('\n');
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.send(json!({ "method": method, "params": params }));
    }

    /// A log message, if whoever calls wants it.
    pub(crate) fn log(&self, caller: &Caller, level: &str, data: &str) {
        let place = |name: &str| LEVELS.iter().position(|known| *known == name);
        let wanted = if caller.modern {
            caller
                .meta
                .get(META_LOG_LEVEL)
                .and_then(Value::as_str)
                .and_then(place)
        } else {
            Some(self.state().level)
        };
        if wanted.is_some_and(|least| place(level) >= Some(least)) {
            self.notify(
                "notifications/message",
                json!({ "level": level, "logger": "fixture", "data": data }),
            );
        }
    }

    pub(crate) fn progress(&self, caller: &Caller, progress: u64, total: u64) {
        if let Some(token) = caller.meta.get("progressToken") {
            let params = json!({ "progressToken": token, "progress": progress, "total": total });
            self.notify("notifications/progress", params);
        }
    }

    /// Adds a tool, prompt or resource, or removes the one that is there already, and tells whoever
    /// listens.
    pub(crate) fn change(&self, kind: &'static str, name: String) {
        let mut state = self.state();
        let extra = (kind, name);
        if !state.extras.remove(&extra) {
            state.extras.insert(extra);
        }
        let key = format!("{kind}ListChanged");
        let method = format!("notifications/{kind}/list_changed");
        self.tell(&state, &method, json!({}), |wants| {
            wants[&key] == json!(true)
        });
        if state.handshake {
            self.send(json!({ "method": method }));
        }
    }

    /// The names of this kind that were added.
    pub(crate) fn extras(&self, kind: &str) -> Vec<String> {
        let state = self.state();
        let extras = state.extras.iter().filter(|(known, _)| *known == kind);
        extras.map(|(_, name)| name.clone()).collect()
    }

    /// Tells whoever subscribed to it that a resource has changed.
    pub(crate) fn update(&self, uri: &str) {
        let state = self.state();
        let method = "notifications/resources/updated";
        self.tell(&state, method, json!({ "uri": uri }), |wants| {
            names(wants, "resourceSubscriptions", uri)
        });
        if state.subscribed.contains(uri) {
            self.notify(method, json!({ "uri": uri }));
        }
    }

    /// Tells the listeners of a task what has become of it.
    pub(crate) fn tell_of_task(&self, state: &State, id: &str, task: Value) {
        self.tell(state, "notifications/tasks", task, |wants| {
            names(wants, "taskIds", id)
        });
    }

    fn tell(&self, state: &State, method: &str, params: Value, wanted: impl Fn(&Value) -> bool) {
        for (id, _) in state.listeners.iter().filter(|(_, wants)| wanted(wants)) {
            let mut params = params.clone();
            params["_meta"] = json!({ META_SUBSCRIPTION: id });
            self.notify(method, params);
        }
    }

    /// Waits until the request is cancelled.
    pub(crate) fn wait_for_cancellation(&self, id: &Value) {
        let mut state = self.state();
        while !state.cancelled.contains(id) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until no request is worked on that was cancelled: it may still have to write that
    /// down.
    pub(crate) fn wait_for_cancelled(&self) {
        let mut state = self.state();
        while state.running.iter().any(|id| state.cancelled.contains(id)) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Checks that a request is of our era, and says who made it (2026-07-28, basic, "Request
    /// metadata").
    fn caller(&self, id: &Value, method: &str, params: &Value) -> Result<Caller, Stop> {
        let meta = params["_meta"].as_object().cloned().unwrap_or_default();
        let id = id.clone();
        if !self.modern {
            let state = self.state();
            if !state.handshake && !matches!(method, "initialize" | "ping" | "server/discover") {
                return Err(Stop::error(-32602, "no initialize came before"));
            }
            let capabilities = state.capabilities.clone();
            return Ok(Caller {
                modern: false,
                capabilities,
                meta,
                id,
            });
        }
        let Some(version) = meta.get(META_VERSION) else {
            return Err(Stop::error(-32602, format!("_meta lacks {META_VERSION}")));
        };
        if version != MODERN {
            let data = json!({ "supported": [MODERN], "requested": version });
            return Err(Stop::Error(
                -32022,
                "Unsupported protocol version".into(),
                Some(data),
            ));
        }
        let Some(capabilities) = meta
            .get(META_CAPABILITIES)
            .and_then(Value::as_object)
            .cloned()
        else {
            return Err(Stop::error(
                -32602,
                format!("_meta lacks {META_CAPABILITIES}"),
            ));
        };
        Ok(Caller {
            modern: true,
            capabilities,
            meta,
            id,
        })
    }

    /// Answers one request; `None` is a request that stays open.
    fn answer(
        self: &Arc<Self>,
        id: &Value,
        method: &str,
        params: &Value,
    ) -> Result<Option<Value>, Stop> {
        let caller = self.caller(id, method, params)?;
        let result = match (method, caller.modern) {
            ("initialize", false) => self.initialize(params),
            ("ping", false) => json!({}),
            ("logging/setLevel", false) => self.set_level(params)?,
            ("resources/subscribe", false) => self.subscribe(params, true)?,
            ("resources/unsubscribe", false) => self.subscribe(params, false)?,
            ("server/discover", true) => self.discover(),
            ("subscriptions/listen", true) => {
                self.listen(&caller, params)?;
                return Ok(None);
            }
            ("tools/list", _) => self.list("tools", self.tools(), params)?,
            ("tools/call", _) => self.call(&caller, params)?,
            ("prompts/list", _) => self.list("prompts", self.prompts(), params)?,
            ("prompts/get", _) => self.prompt(&caller, params)?,
            ("resources/list", _) => self.list("resources", self.resources(), params)?,
            ("resources/templates/list", _) => {
                self.list("resourceTemplates", self.templates(), params)?
            }
            ("resources/read", _) => self.read(&caller, params)?,
            ("completion/complete", _) => complete(params)?,
            ("skills/list", _) => self.list("skills", vec![skills::entry()], params)?,
            ("skills/get", _) => skills::get(&caller, params)?,
            ("resources/directory/read", _) => skills::directory(&caller, params)?,
            ("tasks/get" | "tasks/update" | "tasks/cancel", true) => {
                self.task(&caller, method, params)?
            }
            _ => return Err(Stop::error(-32601, format!("Method not found: {method}"))),
        };
        Ok(Some(result))
    }

    fn initialize(&self, params: &Value) -> Value {
        let mut state = self.state();
        state.handshake = true;
        state.capabilities = params["capabilities"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let asked = params["protocolVersion"].as_str().unwrap_or_default();
        let version = LEGACY
            .into_iter()
            .find(|known| *known == asked)
            .unwrap_or(LEGACY[3]);
        json!({
            "protocolVersion": version,
            "capabilities": capabilities(),
            "serverInfo": server_info(),
            "instructions": INSTRUCTIONS,
        })
    }

    fn discover(&self) -> Value {
        let mut capabilities = capabilities();
        capabilities["extensions"][TASKS] = json!({});
        cached(json!({
            "supportedVersions": [MODERN],
            "capabilities": capabilities,
            "instructions": INSTRUCTIONS,
            "_meta": { META_SERVER_INFO: server_info() },
        }))
    }

    fn set_level(&self, params: &Value) -> Result<Value, Stop> {
        let level = LEVELS
            .iter()
            .position(|known| params["level"] == json!(known));
        self.state().level = level.ok_or_else(|| Stop::error(-32602, "no such log level"))?;
        Ok(json!({}))
    }

    fn subscribe(&self, params: &Value, on: bool) -> Result<Value, Stop> {
        let uri = params["uri"]
            .as_str()
            .ok_or_else(|| Stop::error(-32602, "params lack uri"))?;
        let subscribed = &mut self.state().subscribed;
        if on {
            subscribed.insert(uri.into());
        } else {
            subscribed.remove(uri);
        }
        Ok(json!({}))
    }

    fn listen(&self, caller: &Caller, params: &Value) -> Result<(), Stop> {
        let known = [
            "toolsListChanged",
            "promptsListChanged",
            "resourcesListChanged",
            "resourceSubscriptions",
            "taskIds",
        ];
        let mut honoured = params["notifications"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        honoured.retain(|key, value| known.contains(&key.as_str()) && *value != json!(false));
        if honoured.contains_key("taskIds") && !caller.speaks_tasks() {
            return Err(caller.lacks(TASKS, json!({ "extensions": { TASKS: {} } })));
        }
        let honoured = Value::Object(honoured);
        // Under the lock, so that no change can be told before the acknowledgement.
        let mut state = self.state();
        let params =
            json!({ "notifications": honoured, "_meta": { META_SUBSCRIPTION: caller.id } });
        self.notify("notifications/subscriptions/acknowledged", params);
        state.listeners.push((caller.id.clone(), honoured));
        Ok(())
    }

    /// A page of a list, from where the cursor of `params` says.
    fn list(&self, key: &str, entries: Vec<Value>, params: &Value) -> Result<Value, Stop> {
        let start = match params["cursor"].as_str() {
            None => 0,
            Some(cursor) => cursor
                .strip_prefix("from-")
                .and_then(|number| number.parse().ok())
                .filter(|start| (1..entries.len()).contains(start))
                .ok_or_else(|| Stop::error(-32602, "no such cursor"))?,
        };
        let end = entries.len().min(start.saturating_add(self.page));
        let mut result = json!({ key: entries[start..end] });
        if end < entries.len() {
            result["nextCursor"] = json!(format!("from-{end}"));
        }
        Ok(if self.modern { cached(result) } else { result })
    }

    /// Takes one message that was read. Requests that may take time run on a thread of their own,
    /// so that a slow one holds nothing up.
    pub(crate) fn take(self: &Arc<Self>, mut message: Value) {
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
                let mut state = self.state();
                state
                    .listeners
                    .retain(|(listener, _)| *listener != params["requestId"]);
                state.cancelled.push(params["requestId"].clone());
                self.changed.notify_all();
            }
            return;
        }
        let server = Arc::clone(self);
        let slow = matches!(
            method.as_str(),
            "tools/call" | "prompts/get" | "resources/read"
        );
        {
            let mut state = self.state();
            // An id may be used again after its request was cancelled.
            state.cancelled.retain(|cancelled| *cancelled != id);
            state.running.push(id.clone());
        }
        let work = move || {
            let answer = match server.answer(&id, &method, &params) {
                Ok(None) => None,
                Ok(Some(result)) | Err(Stop::Input(result)) => {
                    Some(json!({ "id": id, "result": server.typed(result) }))
                }
                Err(Stop::Error(code, text, None)) => {
                    Some(json!({ "id": id, "error": { "code": code, "message": text } }))
                }
                Err(Stop::Error(code, text, data)) => Some(
                    json!({ "id": id, "error": { "code": code, "message": text, "data": data } }),
                ),
            };
            let is_cancelled = {
                let mut state = server.state();
                state.running.retain(|running| *running != id);
                server.changed.notify_all();
                state.cancelled.contains(&id)
            };
            if let Some(answer) = answer.filter(|_| !is_cancelled) {
                server.send(answer);
            }
        };
        if slow {
            std::thread::spawn(work);
        } else {
            work();
        }
    }

    /// A result with the type that every modern one has.
    fn typed(&self, mut result: Value) -> Value {
        if self.modern && result.get("resultType").is_none() {
            result["resultType"] = json!("complete");
        }
        result
    }
}

/// Whether a listener asked for a name in one of its lists.
fn names(wants: &Value, key: &str, name: &str) -> bool {
    wants[key]
        .as_array()
        .is_some_and(|names| names.contains(&json!(name)))
}

/// A modern result with what a client needs to keep it.
pub(crate) fn cached(mut result: Value) -> Value {
    result["ttlMs"] = json!(60_000);
    result["cacheScope"] = json!("public");
    result
}

fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "completions": {},
        "logging": {},
        "extensions": { "io.modelcontextprotocol/skills": { "directoryRead": true } },
    })
}

fn server_info() -> Value {
    json!({ "name": "colibri-conformance-fixture", "version": env!("CARGO_PKG_VERSION") })
}

/// Completes the argument of a prompt or of a template.
fn complete(params: &Value) -> Result<Value, Stop> {
    let (reference, argument) = (&params["ref"], &params["argument"]);
    let known: &[&str] = match (reference["type"].as_str(), argument["name"].as_str()) {
        (Some("ref/prompt"), Some("arg1")) if reference["name"] == "test_prompt_with_arguments" => {
            &["paris", "park", "party"]
        }
        (Some("ref/prompt"), Some(_)) if reference["name"] == "test_prompt_with_arguments" => &[],
        (Some("ref/resource"), Some("id")) if reference["uri"] == crate::resources::TEMPLATE => {
            &["123", "124", "200"]
        }
        _ => return Err(Stop::error(-32602, "nothing of that name can be completed")),
    };
    let begun = argument["value"].as_str().unwrap_or_default();
    let values: Vec<_> = known
        .iter()
        .filter(|value| value.starts_with(begun))
        .collect();
    Ok(json!({ "completion": { "values": values, "total": values.len(), "hasMore": false } }))
}

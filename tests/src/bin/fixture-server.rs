//! A server that behaves as badly as a test wants. Its tools are its behaviours, by name; the
//! arguments of a process say how it starts:
//!
//! ```text
//! fixture-server --dir DIR --as NAME [--speak VERSION] [--tool NAME]… [--only] [--at-start exit|silence]
//!                [--at-probe exit] [--at-eof stay] [--turn-after N] [--trail DIR] [--offer-all]
//! ```
//!
//! `DIR/NAME.definitions`, a JSON array, is its list of tools where it is there, read anew for each
//! answer, as bytes; so are `DIR/NAME.instructions` its instructions, and `DIR/frames/METHOD`, with
//! `-` for `/` and `@ID@` for the id, its answers to methods that it does not have.
//! `DIR/NAME.extensions` are the extensions that it declares. With `--turn-after N` the file is
//! `DIR/NAME.turned` from the Nth call on, and the server says with that call that its list has
//! changed.
//!
//! Where `DIR/NAME.prompts`, `DIR/NAME.resources` or `DIR/NAME.templates` are there at its
//! handshake, JSON arrays, it declares these and lists them, read anew for each answer; a resource
//! that it lists can be read and subscribed to, unless its URI ends with `!`. With `--logs` it
//! declares logging.
//!
//! Where `DIR/NAME.skills` is there, a JSON array of entries, it declares the skills extension, and
//! lists them; so it answers `skills/get` with those, and with the entries of `DIR/NAME.unlisted`.
//! `DIR/NAME.files` is an object: the URI of each file that can be read, and its text.
//! `DIR/NAME.experimental` are the experimental capabilities that it declares.
//!
//! With `--offer-all` it has a prompt `frame`, a template `frame:{case}` and completions too, which
//! answer with what is in a file, as the tool of that name does. A request with `fixture/tells` in
//! its `_meta` is told progress before its answer.
//!
//! Everything that happens to it goes to `DIR/NAME.record`, a line each: process id, kind (`start`,
//! `line`, `eof`, `effect`, …), the bytes as received. With `--trail` a line of kind `trail` stands
//! before each `line`: the newest segment in that directory and its length, as they were when the
//! line had been received. It shares no code with the daemon, and changes no byte of what it is
//! told to answer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The version of the modern era.
const MODERN: &str = "2026-07-28";

/// The behaviours, which are also the names of the tools.
const TOOLS: &[&str] = &[
    "answer_twice",
    "ask_raw",
    "tell_raw",
    "change_tools",
    "count",
    "deaf",
    "die",
    "die_mid_answer",
    "echo",
    "endless_line",
    "environment",
    "exit",
    "flood",
    "fork_away",
    "frame",
    "garbage",
    "hang_up",
    "huge",
    "never",
    "pid",
    "progress",
    "stderr",
    "step",
    "tell",
    "tell_later",
    "unknown_id",
    "wait",
];

/// Raw members of an object, by key.
type Members<'a> = BTreeMap<String, &'a RawValue>;

struct Fixture {
    directory: PathBuf,
    name: String,
    version: String,
    /// A legacy server ends when it is asked for something before the handshake.
    dies_of_probe: bool,
    /// The trail's directory, if it is to be looked at.
    trail: Option<PathBuf>,
    /// Whether it declares logging.
    logs: bool,
    /// After how many calls it shows another face.
    turn_after: Option<u64>,
    /// Has prompts and resources too.
    offers_all: bool,
    state: Mutex<State>,
    out: Mutex<io::Stdout>,
}

struct State {
    tools: Vec<String>,
    calls: u64,
    /// The id of the `subscriptions/listen` in flight, as written.
    listener: Option<String>,
    /// The requests of our own in flight by their ids.
    asked: BTreeMap<u64, Asked>,
    next: u64,
    /// The call of `ask_raw` that waits for an answer, and the frame that it is answered with then,
    /// if there is one.
    asking: Option<(String, String)>,
    /// Calls that wait for answers to what this server asked.
    saying: Vec<Saying>,
}

/// A request of our own, made for a call of `ask`.
struct Asked {
    /// The call's id, as written.
    call: String,
    /// How often it is still to be asked.
    left: u64,
    /// What is asked.
    method: String,
    params: String,
}

/// A call that waits for answers.
struct Saying {
    id: String,
    left: u64,
    answers: Vec<String>,
}

fn main() {
    let mut fixture = Fixture {
        directory: PathBuf::from("."),
        name: "fixture".to_owned(),
        version: "2025-11-25".to_owned(),
        dies_of_probe: false,
        trail: None,
        logs: false,
        turn_after: None,
        offers_all: false,
        state: Mutex::new(State {
            tools: TOOLS.iter().map(|tool| (*tool).to_owned()).collect(),
            calls: 0,
            listener: None,
            asked: BTreeMap::new(),
            next: 1,
            asking: None,
            saying: Vec::new(),
        }),
        out: Mutex::new(io::stdout()),
    };
    let (mut at_start, mut stay, mut away) = (String::new(), false, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_default();
        match arg.as_str() {
            "--dir" => fixture.directory = value().into(),
            "--as" => fixture.name = value(),
            "--speak" => fixture.version = value(),
            "--tool" => {
                let tool = value();
                fixture.state().tools.push(tool);
            }
            "--trail" => fixture.trail = Some(value().into()),
            "--logs" => fixture.logs = true,
            "--only" => fixture.state().tools.clear(),
            "--at-start" => at_start = value(),
            "--at-probe" => fixture.dies_of_probe = value() == "exit",
            "--at-eof" => stay = value() == "stay",
            "--turn-after" => fixture.turn_after = value().parse().ok(),
            "--away" => away = Some(value()),
            "--offer-all" => fixture.offers_all = true,
            other => {
                eprintln!("unknown argument {other}");
                exit(64);
            }
        }
    }
    match away.as_deref() {
        Some("first") => fork_away(&fixture, "second"),
        Some(_) => forever(),
        None => {}
    }
    fixture.record("start", b"");
    match at_start.as_str() {
        "" => {}
        "exit" => {
            eprintln!("the fixture does not want to start");
            exit(7);
        }
        "silence" => forever(),
        other => {
            eprintln!("unknown start {other}");
            exit(64);
        }
    }
    serve(&Arc::new(fixture));
    if stay {
        forever();
    }
}

/// Does nothing until it is killed.
fn forever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Starts another process of this program, the second of them in a session of its own and without a
/// parent.
fn fork_away(fixture: &Fixture, which: &str) {
    // The one that is a session's leader already stays in it.
    let _ = nix::unistd::setsid();
    let program = std::env::current_exe().unwrap_or_default();
    let mut command = Command::new(program);
    command
        .arg("--dir")
        .arg(&fixture.directory)
        .args(["--as", &fixture.name, "--away", which]);
    match command.spawn() {
        Ok(mut child) if which == "first" => drop(child.wait()),
        Ok(_) => exit(0),
        Err(error) => {
            eprintln!("cannot fork away: {error}");
            exit(71);
        }
    }
}

/// Reads and answers until the end of the input.
fn serve(fixture: &Arc<Fixture>) {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return fixture.record("eof", b""),
            Ok(_) => {}
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if let Some(trail) = &fixture.trail {
            fixture.record("trail", newest_segment(trail).as_bytes());
        }
        fixture.record("line", &line);
        let Ok(text) = std::str::from_utf8(&line) else {
            continue;
        };
        let Ok(message) = serde_json::from_str::<Members<'_>>(text) else {
            continue;
        };
        let Some(method) = message.get("method").map(|method| string(method)) else {
            let raw = fixture.state().asking.take();
            match raw {
                Some((id, then)) if then.is_empty() => fixture.text(&id, "asked"),
                Some((id, then)) => fixture.frame(&id, &then),
                None => fixture.answered(&message),
            }
            fixture.heard(text);
            continue;
        };
        let Some(id) = message.get("id").map(|id| id.get()) else {
            continue;
        };
        let params: Members<'_> = members(message.get("params").copied());
        fixture.request(id, &method, &params);
    }
}

/// The name and length of the newest segment of a trail, or `none`.
fn newest_segment(trail: &Path) -> String {
    let entries = std::fs::read_dir(trail).into_iter().flatten().flatten();
    let segments = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let length = entry.metadata().ok()?.len();
        name.ends_with(".jsonl").then(|| format!("{name} {length}"))
    });
    segments.max().unwrap_or_else(|| "none".to_owned())
}

fn members(raw: Option<&RawValue>) -> Members<'_> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}

fn string(raw: &RawValue) -> String {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

impl Fixture {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, kind: &str, bytes: &[u8]) {
        let mut line = format!("{} {kind} ", std::process::id()).into_bytes();
        line.extend_from_slice(bytes);
        line.push(b'\n');
        let path = self.directory.join(format!("{}.record", self.name));
        // One write(2) to a file that is appended to: the lines of several processes do not mix.
        let file = File::options().create(true).append(true).open(path);
        if file.and_then(|mut file| file.write_all(&line)).is_err() {
            exit(74);
        }
    }

    fn is_modern(&self) -> bool {
        self.version == MODERN
    }

    /// Writes bytes as they are. A daemon that is gone is seen at the input.
    fn write(&self, bytes: &[u8]) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    fn result(&self, id: &str, result: &str) {
        self.write(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n").as_bytes());
    }

    fn error(&self, id: &str, code: i64, message: &str) {
        let error = json!({ "code": code, "message": message });
        self.write(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n").as_bytes());
    }

    /// A tool's result with one text.
    fn text(&self, id: &str, text: &str) {
        let mut result = json!({ "content": [{ "type": "text", "text": text }] });
        if self.is_modern() {
            result["resultType"] = json!("complete");
        }
        self.result(id, &result.to_string());
    }

    fn request(self: &Arc<Self>, id: &str, method: &str, params: &Members<'_>) {
        let info = json!({ "name": self.name, "version": "1" });
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        if self.file("prompts").is_some() {
            capabilities["prompts"] = json!({ "listChanged": true });
        }
        if self.file("resources").is_some() || self.file("templates").is_some() {
            capabilities["resources"] = json!({ "subscribe": true, "listChanged": true });
        }
        if self.logs {
            capabilities["logging"] = json!({});
        }
        if self.offers_all {
            for feature in ["prompts", "resources", "completions"] {
                capabilities[feature] = json!({});
            }
        }
        if let Some(declared) = self.file("extensions") {
            capabilities["extensions"] = serde_json::from_str(&declared).unwrap_or_default();
        }
        if self.file("skills").is_some() {
            capabilities["resources"] = json!({ "listChanged": true });
            capabilities["extensions"]["io.modelcontextprotocol/skills"] = json!({});
        }
        if let Some(declared) = self.file("experimental") {
            capabilities["experimental"] = serde_json::from_str(&declared).unwrap_or_default();
        }
        let instructions = self
            .file("instructions")
            .unwrap_or_else(|| format!("This is {}.", self.name));
        let meta = members(params.get("_meta").copied());
        if let (true, Some(token)) = (
            meta.contains_key("fixture/tells"),
            meta.get("progressToken"),
        ) {
            self.notify(
                "progress",
                &format!("{{\"progressToken\":{token},\"progress\":0}}"),
            );
        }
        match (method, self.is_modern()) {
            ("initialize", false) => {
                let result = json!({ "protocolVersion": self.version, "capabilities": capabilities,
                    "serverInfo": info, "instructions": instructions });
                self.result(id, &result.to_string());
            }
            ("server/discover", true) => {
                let result = json!({ "resultType": "complete", "supportedVersions": [MODERN],
                    "capabilities": capabilities, "instructions": instructions,
                    "ttlMs": 1000, "cacheScope": "private",
                    "_meta": { "io.modelcontextprotocol/serverInfo": info } });
                self.result(id, &result.to_string());
            }
            ("server/discover", false) if self.dies_of_probe => exit(9),
            ("ping", false) => self.result(id, "{}"),
            ("tools/list", _) => self.list(id),
            ("prompts/list", _) if self.file("prompts").is_some() => {
                self.listed(id, "prompts", "prompts")
            }
            ("resources/list", _) if self.file("resources").is_some() => {
                self.listed(id, "resources", "resources")
            }
            ("resources/templates/list", _) if self.file("templates").is_some() => {
                self.listed(id, "templates", "resourceTemplates");
            }
            ("skills/list", _) if self.file("skills").is_some() => {
                self.listed(id, "skills", "skills")
            }
            ("skills/get", _) if self.file("skills").is_some() => {
                let uri = params.get("uri").map(|uri| string(uri)).unwrap_or_default();
                let entries = ["skills", "unlisted"]
                    .map(|file| self.file(file).unwrap_or_else(|| "[]".to_owned()));
                let mut entries = entries.iter().flat_map(|file| {
                    serde_json::from_str::<Vec<Box<RawValue>>>(file).unwrap_or_default()
                });
                let is_it = |entry: &RawValue| {
                    serde_json::from_str::<Value>(entry.get())
                        .is_ok_and(|entry| entry["uri"] == uri.as_str())
                };
                let Some(entry) = entries.find(|entry| is_it(entry)) else {
                    return self.error(id, -32602, "no such skill");
                };
                let modern =
                    ",\"resultType\":\"complete\",\"ttlMs\":1000,\"cacheScope\":\"private\"";
                let rest = if self.is_modern() { modern } else { "" };
                self.result(id, &format!("{{\"skill\":{}{rest}}}", entry.get()));
            }
            ("resources/read", _) if self.file("files").is_some() => {
                let uri = params.get("uri").map(|uri| string(uri)).unwrap_or_default();
                let files = self.file("files").unwrap_or_default();
                let files: BTreeMap<String, String> =
                    serde_json::from_str(&files).unwrap_or_default();
                match files.get(&uri) {
                    Some(text) => {
                        self.entries(id, "contents", json!([{ "uri": uri, "text": text }]))
                    }
                    None => self.error(id, -32602, "no such file"),
                }
            }
            ("resources/list", _) if self.file("skills").is_some() => {
                self.entries(id, "resources", json!([]))
            }
            ("resources/subscribe" | "resources/unsubscribe", false)
                if self.file("resources").is_some() =>
            {
                let uri = params.get("uri").map(|uri| string(uri)).unwrap_or_default();
                if uri.ends_with('!') {
                    return self.error(id, -32002, "no such resource");
                }
                self.record(method, uri.as_bytes());
                self.result(id, "{}");
            }
            ("logging/setLevel", false) if self.logs => {
                self.record(
                    "level",
                    params
                        .get("level")
                        .map_or("", |level| level.get())
                        .as_bytes(),
                );
                self.result(id, "{}");
            }
            ("subscriptions/listen", true) => {
                self.state().listener = Some(id.to_owned());
                let filter = params
                    .get("notifications")
                    .map_or("{}", |filter| filter.get());
                let mut filter: Value = serde_json::from_str(filter).unwrap_or_default();
                if let Some(uris) = filter
                    .get_mut("resourceSubscriptions")
                    .and_then(Value::as_array_mut)
                {
                    uris.retain(|uri| !uri.as_str().unwrap_or_default().ends_with('!'));
                }
                self.record("listen", filter.to_string().as_bytes());
                let meta = format!("\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{id}}}");
                let notification = format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\
                     \"params\":{{{meta},\"notifications\":{filter}}}}}\n"
                );
                self.write(notification.as_bytes());
            }
            ("tools/call", _) => self.call(id, params),
            ("prompts/list", _) if self.offers_all => {
                let argument = json!({ "name": "case", "required": true });
                self.entries(
                    id,
                    "prompts",
                    json!([{ "name": "frame", "arguments": [argument] }]),
                );
            }
            ("resources/list", _) if self.offers_all => self.entries(id, "resources", json!([])),
            ("resources/templates/list", _) if self.offers_all => {
                let template = json!([{ "uriTemplate": "frame:{case}", "name": "frame" }]);
                self.entries(id, "resourceTemplates", template);
            }
            ("resources/read", _) if self.offers_all => {
                let uri = params.get("uri").map(|uri| string(uri)).unwrap_or_default();
                self.frame(id, uri.strip_prefix("frame:").unwrap_or_default());
            }
            ("prompts/get" | "completion/complete", _) if self.offers_all => {
                let within = members(params.get("arguments").or(params.get("argument")).copied());
                let case = within
                    .get("case")
                    .or(within.get("value"))
                    .map(|case| string(case));
                self.frame(id, &case.unwrap_or_default());
            }
            // Beyond MCP's. What it says would be a failed tool's, if it were a tool's.
            ("fixture/method", _) => {
                let value = params.get("value").map_or("null", |value| value.get());
                let complete = if self.is_modern() {
                    "\"resultType\":\"complete\","
                } else {
                    ""
                };
                self.result(
                    id,
                    &format!("{{{complete}\"isError\":true,\"value\":{value}}}"),
                );
            }
            // What a test wants to be answered, if it says so.
            _ => {
                match std::fs::read(self.directory.join("frames").join(method.replace('/', "-"))) {
                    Ok(frame) => self.write(
                        &[replaced(&frame, b"@ID@", id.as_bytes()), b"\n".to_vec()].concat(),
                    ),
                    Err(_) => self.error(id, -32601, "no such method"),
                }
            }
        }
    }

    /// What a file of this server holds, if it is there.
    fn file(&self, what: &str) -> Option<String> {
        std::fs::read_to_string(self.directory.join(format!("{}.{what}", self.name))).ok()
    }

    /// Answers with what a file holds.
    fn frame(&self, id: &str, case: &str) {
        self.write(
            &[
                replaced(&self.read_frame(case), b"@ID@", id.as_bytes()),
                b"\n".to_vec(),
            ]
            .concat(),
        );
    }

    fn read_frame(&self, case: &str) -> Vec<u8> {
        std::fs::read(self.directory.join("frames").join(case)).unwrap_or_default()
    }

    /// Answers with a list.
    fn entries(&self, id: &str, key: &str, entries: Value) {
        let mut result = json!({ key: entries });
        if self.is_modern() {
            result["resultType"] = json!("complete");
            result["ttlMs"] = json!(1000);
            result["cacheScope"] = json!("private");
        }
        self.result(id, &result.to_string());
    }

    fn list(&self, id: &str) {
        let turned = self
            .turn_after
            .is_some_and(|after| self.state().calls >= after);
        let defined = self.file(if turned { "turned" } else { "definitions" });
        let tools = defined.unwrap_or_else(|| {
            let state = self.state();
            let tools = state.tools.iter();
            let tools =
                tools.map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
            Value::from_iter(tools).to_string()
        });
        let modern = ",\"resultType\":\"complete\",\"ttlMs\":1000,\"cacheScope\":\"private\"";
        let rest = if self.is_modern() { modern } else { "" };
        self.result(id, &format!("{{\"tools\":{tools}{rest}}}"));
    }

    /// `ask`: wants to know something of the client's side, `times` over, and answers with what it
    /// was told last. A modern client is told what it has to say again.
    fn ask(&self, id: &str, params: &Members<'_>, arguments: &Members<'_>) {
        let get = |key: &str, or: &str| {
            arguments
                .get(key)
                .map_or(or.to_owned(), |value| value.get().to_owned())
        };
        let method = get("method", "\"elicitation/create\"");
        let asked = get(
            "params",
            r#"{"message":"m","requestedSchema":{"type":"object","properties":{}}}"#,
        );
        let times = get("times", "1").parse().unwrap_or(1);
        if !self.is_modern() {
            return self.ask_client(Asked {
                call: id.to_owned(),
                left: times,
                method,
                params: asked,
            });
        }
        let state = params
            .get("requestState")
            .map(|state| string(state))
            .unwrap_or_default();
        let round = state
            .strip_prefix("round \"")
            .and_then(|state| state.parse().ok())
            .unwrap_or(0);
        if round >= times {
            let answers = params
                .get("inputResponses")
                .map_or("{}", |answers| answers.get());
            return self.text(id, answers);
        }
        let state = json!(format!("round \"{}", round + 1));
        self.result(
            id,
            &format!(
                r#"{{"resultType":"input_required","inputRequests":{{"k" : {{"method":{method},"params":{asked}}}}},"requestState":{state}}}"#
            ),
        );
    }

    /// Makes a request of our own.
    fn ask_client(&self, asked: Asked) {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let (method, params) = (asked.method.clone(), asked.params.clone());
        state.asked.insert(id, asked);
        drop(state);
        self.write(
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{method},\"params\":{params}}}\n"
            )
            .as_bytes(),
        );
    }

    /// A request of our own was answered.
    fn answered(&self, message: &Members<'_>) {
        let id = message
            .get("id")
            .and_then(|id| id.get().parse().ok())
            .unwrap_or(0);
        let Some(mut asked) = self.state().asked.remove(&id) else {
            return;
        };
        asked.left -= 1;
        match message.get("result") {
            Some(_) if asked.left > 0 => self.ask_client(asked),
            Some(result) => self.text(&asked.call, result.get()),
            None => {
                let error = message.get("error").map_or("null", |error| error.get());
                self.text(&asked.call, &format!("refused: {error}"));
            }
        }
    }

    /// Answers with a list that a file holds.
    fn listed(&self, id: &str, what: &str, member: &str) {
        let list = self.file(what).unwrap_or_else(|| "[]".to_owned());
        let modern = ",\"resultType\":\"complete\",\"ttlMs\":1000,\"cacheScope\":\"private\"";
        let rest = if self.is_modern() { modern } else { "" };
        self.result(id, &format!("{{\"{member}\":{list}{rest}}}"));
    }

    fn call(self: &Arc<Self>, id: &str, params: &Members<'_>) {
        let name = params
            .get("name")
            .map(|name| string(name))
            .unwrap_or_default();
        let calls = {
            let mut state = self.state();
            state.calls += 1;
            state.calls
        };
        if self.turn_after == Some(calls) {
            self.tell_changed();
        }
        let arguments = members(params.get("arguments").copied());
        let text = |key: &str| {
            arguments
                .get(key)
                .map(|value| string(value))
                .unwrap_or_default()
        };
        let number = |key: &str| {
            arguments
                .get(key)
                .and_then(|value| value.get().parse::<u64>().ok())
        };
        match name.as_str() {
            "ask" => self.ask(id, params, &arguments),
            "echo" => self.text(
                id,
                params
                    .get("arguments")
                    .map_or("{}", |arguments| arguments.get()),
            ),
            "pid" => self.text(id, &std::process::id().to_string()),
            "environment" => {
                let environment: BTreeMap<String, String> = std::env::vars().collect();
                self.text(id, &json!(environment).to_string());
            }
            "frame" => self.frame(id, &text("case")),
            // A message of its own before the answer, or after it; what it asks with it, is
            // answered first.
            "tell_raw" | "ask_raw" => {
                let meta = members(params.get("_meta").copied());
                let token = meta.get("progressToken").map_or("0", |token| token.get());
                let frame = replaced(
                    &self.read_frame(&text("case")),
                    b"@TOKEN@",
                    token.as_bytes(),
                );
                let listener = self.state().listener.clone().unwrap_or_default();
                let frame = replaced(&frame, b"@LISTENER@", listener.as_bytes());
                let after = arguments
                    .get("after")
                    .is_some_and(|after| after.get() == "true");
                if after {
                    self.text(id, "told");
                }
                if name == "ask_raw" {
                    self.state().asking = Some((id.to_owned(), text("then")));
                }
                self.write(&[frame, b"\n".to_vec()].concat());
                if name == "tell_raw" && !after {
                    self.text(id, "told");
                }
            }
            "count" => {
                self.record("effect", b"");
                self.text(id, "counted");
            }
            // A call in five steps, of which it takes as many as it is told and then waits to be
            // killed.
            "step" => {
                let last = text("last");
                if last != "before" {
                    self.record("effect", b"");
                }
                let result =
                    json!({ "content": [{ "type": "text", "text": "stepped" }] }).to_string();
                let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
                match &*last {
                    "before" | "effect" => {}
                    "half" => self.write(&answer.as_bytes()[..answer.len() / 2]),
                    _ => self.write(answer.as_bytes()),
                }
                self.record("step", last.as_bytes());
                if last != "done" {
                    forever();
                }
            }
            "stderr" => {
                let bytes = self.read_frame(&text("case"));
                // Nobody reads it any more where this fails.
                let _ = io::stderr().write_all(&bytes);
                self.text(id, "said");
            }
            "wait" => {
                let (fixture, id, until) = (self.clone(), id.to_owned(), text("until"));
                std::thread::spawn(move || {
                    let file = fixture.directory.join(format!("release-{until}"));
                    while !file.exists() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    fixture.text(&id, &until);
                });
            }
            "huge" => {
                let text = "x".repeat(number("bytes").unwrap_or(0) as usize);
                self.text(id, &text);
            }
            "progress" => {
                let meta = members(params.get("_meta").copied());
                let token = meta.get("progressToken").map_or("0", |token| token.get());
                for n in 1..=number("n").unwrap_or(3) {
                    self.notify(
                        "progress",
                        &format!("{{\"progressToken\":{token},\"progress\":{n}}}"),
                    );
                }
                self.text(id, "done");
            }
            "never" => {}
            // Writes lines of the test's, waits for so many answers, and gives them as its own.
            "say" => {
                let lines: Vec<String> = arguments
                    .get("lines")
                    .and_then(|lines| serde_json::from_str(lines.get()).ok())
                    .unwrap_or_default();
                let left = number("wait").unwrap_or(0);
                if left > 0 {
                    let (id, answers) = (id.to_owned(), Vec::new());
                    self.state().saying.push(Saying { id, left, answers });
                }
                for line in lines {
                    self.write(format!("{line}\n").as_bytes());
                }
                if arguments.contains_key("die") {
                    exit(3);
                }
                if left == 0 {
                    self.text(id, "[]");
                }
            }
            // Asks for input in so many rounds, and then tells what it was told last.
            "need" => {
                let rounds: Vec<&RawValue> = arguments
                    .get("rounds")
                    .and_then(|rounds| serde_json::from_str(rounds.get()).ok())
                    .unwrap_or_default();
                let round = params.get("requestState").map(|state| string(state));
                let round: usize = round.and_then(|state| state.parse().ok()).unwrap_or(0);
                match rounds.get(round) {
                    Some(requests) => self.result(
                        id,
                        &format!(
                            "{{\"resultType\":\"input_required\",\"inputRequests\":{requests},\"requestState\":\"{}\"}}",
                            round + 1
                        ),
                    ),
                    None => self.text(id, params.get("inputResponses").map_or("{}", |said| said.get())),
                }
            }
            "answer_twice" => {
                self.text(id, "once");
                self.text(id, "twice");
            }
            "unknown_id" => {
                for other in [
                    "999999999",
                    "\"a\"",
                    "null",
                    "-1",
                    "1.5",
                    "99999999999999999999999999",
                ] {
                    self.text(other, "to nobody");
                }
                self.text(id, "to you");
            }
            "garbage" => {
                self.write(
                    b"\xff\xfe\x00 no text\n{\n[]\n\n   \nnull\n{}\n\"a\"\n{\"jsonrpc\":\"2.0\"}\n[{\"id\":1}]\n",
                );
                self.write(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"roots/list\"}\n");
                self.text(id, "after garbage");
            }
            "die" => {
                self.text(id, "dying");
                exit(3);
            }
            "die_mid_answer" => {
                self.write(
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"ty")
                        .as_bytes(),
                );
                exit(3);
            }
            "exit" => {
                eprintln!("the last words of the fixture");
                exit(3);
            }
            "endless_line" => loop {
                self.write(&[b'x'; 65536]);
            },
            "flood" => {
                let line = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\"}}\n";
                let lines = line.repeat(1000);
                for _ in 0..number("thousands").unwrap_or(0) {
                    self.write(lines.as_bytes());
                }
                self.text(id, "flooded");
            }
            "fork_away" => {
                fork_away(self, "first");
                self.text(id, "forked");
            }
            "deaf" => {
                self.text(id, "deaf from now on");
                forever();
            }
            // Says something as often as it is told to, and then answers.
            "tell" => {
                let method = text("method");
                let mut params: Value = arguments
                    .get("params")
                    .and_then(|params| serde_json::from_str(params.get()).ok())
                    .unwrap_or_else(|| json!({}));
                let listener = self
                    .state()
                    .listener
                    .clone()
                    .filter(|_| method != "message");
                if let Some(id) = listener.and_then(|id| serde_json::from_str::<Value>(&id).ok()) {
                    params["_meta"]["io.modelcontextprotocol/subscriptionId"] = id;
                }
                for _ in 0..number("times").unwrap_or(1) {
                    self.notify(&method, &params.to_string());
                }
                self.text(id, "told");
            }
            // Says something after it has answered.
            "tell_later" => {
                self.text(id, "later");
                std::thread::sleep(Duration::from_millis(300));
                self.notify(
                    "message",
                    arguments.get("params").map_or("{}", |params| params.get()),
                );
            }
            // Ends the `subscriptions/listen` that it was asked for, as a server does that ends it
            // by itself.
            "hang_up" => {
                if let Some(listener) = self.state().listener.take() {
                    let meta = format!("{{\"io.modelcontextprotocol/subscriptionId\":{listener}}}");
                    self.result(
                        &listener,
                        &format!("{{\"resultType\":\"complete\",\"_meta\":{meta}}}"),
                    );
                }
                self.text(id, "hung up");
            }
            "change_tools" => {
                let tools = arguments
                    .get("tools")
                    .and_then(|tools| serde_json::from_str(tools.get()).ok());
                self.state().tools = tools.unwrap_or_default();
                self.tell_changed();
                self.text(id, "changed");
            }
            _ => self.text(id, &format!("this is {name}")),
        }
    }

    /// Gives an answer to the call that waits for it longest.
    fn heard(&self, answer: &str) {
        let mut state = self.state();
        let Some(saying) = state.saying.first_mut() else {
            return;
        };
        saying.answers.push(answer.to_owned());
        saying.left -= 1;
        if saying.left == 0 {
            let over = state.saying.remove(0);
            drop(state);
            self.text(&over.id, &format!("[{}]", over.answers.join(",")));
        }
    }

    /// Says that the list of tools has changed.
    fn tell_changed(&self) {
        let listener = self.state().listener.clone();
        let params = listener
            .map(|id| format!("{{\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{id}}}}}"))
            .unwrap_or_else(|| "{}".to_owned());
        self.notify("tools/list_changed", &params);
    }

    fn notify(&self, method: &str, params: &str) {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{method}\",\"params\":{params}}}\n"
        );
        self.write(line.as_bytes());
    }
}

/// The bytes with the first `what` replaced.
fn replaced(bytes: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    match bytes.windows(what.len()).position(|window| window == what) {
        Some(at) => [&bytes[..at], with, &bytes[at + what.len()..]].concat(),
        None => bytes.to_vec(),
    }
}

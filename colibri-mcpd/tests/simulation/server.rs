//! Simulated servers: well-behaved ones of every version, and ones that do what servers do on a bad
//! day.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use colibri_confine::{
    BoxFuture, LaunchSpec, ServerExit, ServerProcess, SpawnError, SpawnedServer, Spawner,
};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::rng::Rng;
use crate::world::{Lifeline, Lines, World, pipe};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// The resources of a server that tells of updates.
pub(crate) const RESOURCES: [&str; 2] = ["mem:a", "mem:b"];

/// What a server of the registry is like.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// The version that its processes speak.
    pub version: &'static str,
    /// How a legacy one takes a request that it does not know before its handshake.
    pub probe: Probe,
    /// Tools beside `echo`.
    pub tools: u64,
    /// True if its list comes in pages.
    pub pages: bool,
    /// Who shares a process, as the registry has it.
    pub isolation: &'static str,
    /// True if it ever misbehaves.
    pub faulty: bool,
    /// The most processes of it that may run at a time.
    pub limit: Option<usize>,
    /// True if it tells of updates of its resources.
    pub resources: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Probe {
    Error,
    Exit,
    Silence,
}

/// Starts simulated servers.
pub(crate) struct SimulatedSpawner {
    pub world: Arc<World>,
    pub profiles: BTreeMap<String, Profile>,
    pub rng: Mutex<(Rng, u32)>,
}

impl Spawner for SimulatedSpawner {
    fn spawn(&self, order: LaunchSpec) -> BoxFuture<'_, Result<SpawnedServer, SpawnError>> {
        Box::pin(async move {
            let server = order.server().to_owned();
            let (mut rng, pid) = {
                let mut state = self.rng.lock().unwrap();
                state.1 += 1;
                (state.0.fork(), state.1)
            };
            let mut profile = self.profiles[&server].clone();
            sleep(rng.millis(200)).await;
            let running = *self
                .world
                .books()
                .running
                .entry(server.clone())
                .or_default();
            if profile.limit.is_some_and(|limit| running >= limit) {
                self.world.count("process that has to wait its turn");
                let detail = "as many instances run as may".to_owned();
                return Err(SpawnError::Limit { detail });
            }
            if profile.faulty && rng.chance(5) {
                self.world.count("process that could not be started");
                let program = PathBuf::from("/simulated");
                let error = io::Error::from(io::ErrorKind::OutOfMemory);
                return Err(if rng.chance(70) {
                    SpawnError::Supervisor { program, error }
                } else {
                    SpawnError::Program { program, error }
                });
            }
            if profile.faulty && rng.chance(4) {
                self.world.count("server of another version than before");
                profile.version = match profile.version {
                    MODERN => LEGACY[3],
                    _ => MODERN,
                };
            }
            let (stdin, their_stdin) = pipe(rng.between(16, 4096) as usize);
            let (their_stdout, stdout) = pipe(rng.between(16, 4096) as usize);
            let (their_stderr, stderr) = pipe(256);
            let (exit, exited) = watch::channel(None);
            let (alive, lifeline) = watch::channel(());
            let name = format!("{server}#{pid}");
            self.world.books().processes += 1;
            *self
                .world
                .books()
                .running
                .entry(server.clone())
                .or_default() += 1;
            self.world.count("process");
            self.world
                .note(&name, &format!("started, speaks {}", profile.version));
            let life = Life {
                world: self.world.clone(),
                lifeline,
                name,
                server,
                profile,
                rng,
                stdout: Some(their_stdout),
                stderr: Some(their_stderr),
                seen: BTreeSet::new(),
                calls: BTreeMap::new(),
                plan: BTreeMap::new(),
                planned: 0,
                era: None,
                greeted: false,
                owner: None,
                asked: 0,
                waiting: BTreeMap::new(),
                subscribed: BTreeMap::new(),
                listening: None,
            };
            tokio::spawn(life.live(Some(Lines::new(their_stdin)), exit));
            Ok(SpawnedServer {
                stdin: Box::new(Lifeline {
                    pipe: stdin,
                    _alive: alive,
                }),
                stdout: Box::new(stdout),
                stderr: Box::new(stderr),
                process: Box::new(SimulatedProcess { pid, exited }),
            })
        })
    }
}

struct SimulatedProcess {
    pid: u32,
    exited: watch::Receiver<Option<ServerExit>>,
}

impl ServerProcess for SimulatedProcess {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn wait(&mut self) -> BoxFuture<'_, ServerExit> {
        Box::pin(async {
            match self.exited.wait_for(Option::is_some).await {
                Ok(exit) => exit.unwrap_or(ServerExit::Unknown),
                Err(_) => ServerExit::Unknown,
            }
        })
    }
}

/// A call that a process has.
struct Call {
    tag: String,
    token: Option<Value>,
    progress: u64,
    answered: bool,
    cancelled: bool,
    asked: bool,
}

/// What a process will do.
enum Step {
    /// Writes a line.
    Write(String),
    /// Tells progress of a call, unless it was answered or cancelled.
    Progress(u64),
    /// Answers a call.
    Answer(u64, Shape),
    /// Asks the person of a call for something first.
    Ask(u64, Shape),
    /// Tells that a resource was updated, if somebody wants to know.
    Update(String),
    /// Dies, perhaps in the middle of an answer.
    Die(Option<u64>),
    CloseInput,
    CloseOutput,
}

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Result,
    IsError,
    Error,
    Twice,
    Batch,
    /// No JSON, but the id can be made out.
    Broken,
}

/// One process.
struct Life {
    world: Arc<World>,
    /// Ends with the daemon's end of its input.
    lifeline: watch::Receiver<()>,
    name: String,
    server: String,
    profile: Profile,
    rng: Rng,
    stdout: Option<DuplexStream>,
    stderr: Option<DuplexStream>,
    /// Ids that it was given.
    seen: BTreeSet<u64>,
    calls: BTreeMap<u64, Call>,
    plan: BTreeMap<(Instant, u64), Step>,
    planned: u64,
    /// True if its first message was a modern one.
    era: Option<bool>,
    greeted: bool,
    /// Whose it is, where it must be one's alone: uid and connection of the first call.
    owner: Option<(u32, String)>,
    asked: u64,
    /// The calls that its own requests are about, and how they are answered then.
    waiting: BTreeMap<String, (u64, Shape)>,
    /// The resources that it was subscribed to, and whether it still is.
    subscribed: BTreeMap<String, bool>,
    /// A modern one's subscription, the newest.
    listening: Option<u64>,
}

impl Life {
    async fn live(
        mut self,
        mut stdin: Option<Lines<DuplexStream>>,
        exit: watch::Sender<Option<ServerExit>>,
    ) {
        if self.profile.faulty && self.rng.chance(20) {
            self.tell_stderr("a word of warning\n").await;
        }
        let mut deaf = false;
        let mut lifeline = self.lifeline.clone();
        let status = loop {
            let next = self.plan.first_key_value().map(|((at, _), _)| *at);
            let read = async {
                match stdin.as_mut() {
                    Some(stdin) => stdin.next().await,
                    None => {
                        // Nothing is ever sent, so this is the end.
                        let _ = lifeline.changed().await;
                        None
                    }
                }
            };
            let due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                line = read => match line {
                    Some(line) => self.line(&line),
                    None => break ServerExit::Status(0),
                },
                () = due => match self.plan.pop_first().map(|(_, step)| step) {
                    Some(Step::CloseInput) => {
                        self.world.note(&self.name, "closes its standard input");
                        stdin = None;
                        deaf = true;
                    }
                    Some(step) => if let Some(status) = self.step(step).await {
                        break status;
                    },
                    None => {}
                },
            }
        };
        if status == ServerExit::Status(0) {
            self.told_to_end(deaf).await;
        }
        self.world.note(&self.name, &format!("ends with {status}"));
        // The end of the process and the end of its output are seen in either order.
        if self.rng.chance(50) {
            self.world.books().processes -= 1;
            *self
                .world
                .books()
                .running
                .entry(self.server.clone())
                .or_default() -= 1;
            exit.send_replace(Some(status));
            sleep(self.rng.millis(50)).await;
            drop((stdin, self.stdout.take(), self.stderr.take()));
        } else {
            drop((stdin, self.stdout.take(), self.stderr.take()));
            sleep(self.rng.millis(300)).await;
            self.world.books().processes -= 1;
            *self
                .world
                .books()
                .running
                .entry(self.server.clone())
                .or_default() -= 1;
            exit.send_replace(Some(status));
        }
    }

    /// Its input was closed: it ends in its own time, perhaps with a last word.
    async fn told_to_end(&mut self, deaf: bool) {
        let lost: Vec<_> = self
            .calls
            .values()
            .filter(|call| !call.answered && !call.cancelled)
            .collect();
        let alone = self.profile.isolation == "client";
        if !lost.is_empty() && !alone && !deaf && self.stdout.is_some() {
            let tags: Vec<_> = lost.iter().map(|call| call.tag.as_str()).collect();
            let message = format!(
                "was told to end with calls that nobody cancelled: {}",
                tags.join(", ")
            );
            self.world.fail(&self.name, &message);
        }
        sleep(self.rng.millis(3000)).await;
        if self.profile.faulty && self.rng.chance(20) {
            self.tell_stderr("interrupted\n").await;
            self.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}")
                .await;
        }
    }

    async fn tell_stderr(&mut self, text: &str) {
        if let Some(stderr) = self.stderr.as_mut() {
            // Whoever does not listen misses it.
            let _ = stderr.write_all(text.as_bytes()).await;
        }
    }

    async fn write(&mut self, line: &str) {
        self.world.note(&self.name, &format!("> {line}"));
        if let Some(stdout) = self.stdout.as_mut() {
            // The daemon may have let go of it.
            let _ = stdout.write_all(format!("{line}\n").as_bytes()).await;
        }
    }

    fn plan_at(&mut self, at: Instant, step: Step) {
        self.planned += 1;
        self.plan.insert((at, self.planned), step);
    }

    fn plan_in(&mut self, wait: Duration, step: Step) {
        self.plan_at(Instant::now() + wait, step);
    }

    fn reply(&mut self, wait: Duration, id: &Value, result: Value) {
        let line = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        self.plan_in(wait, Step::Write(line));
    }

    fn refuse(&mut self, wait: Duration, id: &Value, code: i64) {
        let line = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}})
            .to_string();
        self.plan_in(wait, Step::Write(line));
    }

    /// Does what was planned; tells how it ended, if it did.
    async fn step(&mut self, step: Step) -> Option<ServerExit> {
        match step {
            Step::Write(line) => self.write(&line).await,
            Step::Progress(id) => {
                let call = self.calls.get_mut(&id).filter(|call| !call.answered)?;
                let token = call.token.clone()?;
                call.progress += 1;
                let params =
                    json!({"progressToken": token, "progress": call.progress, "message": call.tag});
                let line =
                    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
                self.write(&line.to_string()).await;
            }
            Step::Answer(id, shape) => {
                let call = self.calls.get_mut(&id).filter(|call| !call.answered)?;
                call.answered = true;
                let text = match call.asked {
                    true => format!("{} asked", call.tag),
                    false => format!("{} progress={}", call.tag, call.progress),
                };
                let modern = self.profile.version == MODERN;
                let result = |text: &str| {
                    let mut result = json!({"content": [{"type": "text", "text": text}]});
                    if modern {
                        result["resultType"] = json!("complete");
                    }
                    result
                };
                let answer = |result: Value| {
                    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
                };
                let lines = match shape {
                    Shape::Result => vec![answer(result(&text))],
                    Shape::IsError => {
                        let mut failed = result(&text);
                        failed["isError"] = json!(true);
                        vec![answer(failed)]
                    }
                    Shape::Error => {
                        let error = json!({"code": -32000, "message": text});
                        vec![json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()]
                    }
                    Shape::Twice => vec![
                        answer(result(&text)),
                        answer(result(&format!("{text} again"))),
                    ],
                    Shape::Batch => vec![format!("[{}]", answer(result(&text)))],
                    Shape::Broken => vec![format!(
                        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{broken}}}}"
                    )],
                };
                for line in lines {
                    self.write(&line).await;
                }
            }
            Step::Ask(id, shape) => {
                let call = self.calls.get_mut(&id).filter(|call| !call.answered)?;
                call.asked = true;
                self.asked += 1;
                self.world.count("person asked about a call");
                let own = format!("q{}", self.asked);
                let line = json!({"jsonrpc": "2.0", "id": own, "method": "elicitation/create",
                    "params": {"message": call.tag, "requestedSchema": {"type": "object", "properties": {}}}});
                self.waiting.insert(own, (id, shape));
                self.write(&line.to_string()).await;
            }
            Step::Update(uri) => {
                if self.subscribed.get(&uri) == Some(&true) {
                    self.world.count("update of a resource");
                    let mut params = json!({"uri": uri});
                    if let Some(listening) = self.listening {
                        params["_meta"] = json!({META_SUBSCRIPTION: listening});
                    }
                    let method = "notifications/resources/updated";
                    self.write(
                        &json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string(),
                    )
                    .await;
                }
            }
            Step::Die(in_the_middle_of) => {
                if let Some(call) = in_the_middle_of.and_then(|id| self.calls.get(&id)) {
                    let half = format!("{{\"jsonrpc\":\"2.0\",\"id\":{:?},\"resu", call.tag);
                    if let Some(stdout) = self.stdout.as_mut() {
                        let _ = stdout.write_all(half.as_bytes()).await;
                    }
                }
                return Some(ServerExit::Status(self.rng.between(1, 139) as u8));
            }
            Step::CloseOutput => {
                self.world.note(&self.name, "closes its standard output");
                self.stdout = None;
            }
            // Where its input is known.
            Step::CloseInput => {}
        }
        None
    }

    fn line(&mut self, line: &[u8]) {
        self.world
            .note(&self.name, &format!("< {}", String::from_utf8_lossy(line)));
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return self.world.fail(&self.name, "got a line that is no JSON");
        };
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let id = message.get("id").cloned();
        let modern = message["params"]["_meta"].get(META_VERSION).is_some();
        match (&id, method.as_str()) {
            (Some(_), "") => {
                if self.asked == 0 {
                    self.world
                        .fail(&self.name, "got an answer to nothing it asked");
                }
                self.told(&message);
                return;
            }
            (Some(_), _) => {
                let locked = *self.era.get_or_insert(modern);
                if locked != modern {
                    self.world
                        .fail(&self.name, "got a request of the other era than its first");
                }
            }
            (None, _) => {}
        }
        if let Some(id) = &id {
            match id.as_u64() {
                Some(number) if self.seen.insert(number) => {}
                _ => self
                    .world
                    .fail(&self.name, "got an id that is not new, or no number"),
            }
        }
        let id = id.unwrap_or(Value::Null);
        let faulty = self.profile.faulty;
        let is_modern = self.profile.version == MODERN;
        match method.as_str() {
            "server/discover" if is_modern => {
                let wait = self.handshake_wait();
                self.greeted = true;
                let can = self.capabilities();
                self.reply(
                    wait,
                    &id,
                    json!({"resultType": "complete", "supportedVersions": [MODERN], "ttlMs": 1000, "cacheScope": "private",
                           "capabilities": can}),
                );
            }
            "server/discover" => match self.profile.probe {
                Probe::Error => self.refuse(Duration::ZERO, &id, -32601),
                Probe::Exit => self.plan_in(Duration::ZERO, Step::Die(None)),
                Probe::Silence => {}
            },
            "initialize" if is_modern => self.refuse(Duration::ZERO, &id, -32022),
            "initialize" => {
                let wait = self.handshake_wait();
                match self.rng.below(100) {
                    0..4 if faulty => self.refuse(wait, &id, -32603),
                    4..6 if faulty => {
                        self.reply(wait, &id, json!({"protocolVersion": "1999-01-01"}))
                    }
                    _ => {
                        let (version, can) = (self.profile.version, self.capabilities());
                        self.reply(
                            wait,
                            &id,
                            json!({"protocolVersion": version, "capabilities": can,
                                   "serverInfo": {"name": "simulated", "version": "1"}}),
                        );
                    }
                }
            }
            "notifications/initialized" => self.greeted = true,
            "tools/list" => self.list(&id, message["params"]["cursor"].as_str()),
            "resources/list" | "resources/templates/list" => {
                let key = if method == "resources/list" {
                    "resources"
                } else {
                    "resourceTemplates"
                };
                let all = RESOURCES.iter().map(|uri| json!({"uri": uri, "name": uri}));
                let all: Vec<Value> = all.filter(|_| key == "resources").collect();
                let mut result = json!({key: all});
                if is_modern {
                    result["resultType"] = json!("complete");
                    result["ttlMs"] = json!(1000);
                    result["cacheScope"] = json!("private");
                }
                let wait = self.rng.millis(200);
                self.reply(wait, &id, result);
            }
            "resources/subscribe" | "resources/unsubscribe" => {
                let uri = message["params"]["uri"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                let wait = self.rng.millis(300);
                let begins = method == "resources/subscribe";
                self.world.count(if begins {
                    "subscription to a resource"
                } else {
                    "end of one"
                });
                let before = self.subscribed.insert(uri.clone(), begins);
                if !self.profile.resources || !RESOURCES.contains(&&*uri) {
                    self.world
                        .fail(&self.name, &format!("got {method} of {uri:?}"));
                }
                let is_odd = if begins {
                    before == Some(true)
                } else {
                    before.is_none()
                };
                if is_odd {
                    self.world.fail(
                        &self.name,
                        &format!("got {method} of {uri} after {before:?}"),
                    );
                }
                if begins
                    && !self
                        .world
                        .books()
                        .asked_for
                        .contains(&(self.server.clone(), uri.clone()))
                {
                    self.world.fail(
                        &self.name,
                        &format!("is subscribed to {uri}, which nobody wants"),
                    );
                }
                match self.rng.below(100) {
                    0..5 if faulty && begins => {
                        self.subscribed.remove(&uri);
                        self.refuse(wait, &id, -32603);
                    }
                    _ => self.reply(wait, &id, json!({})),
                }
            }
            "subscriptions/listen" => {
                let wanted = &message["params"]["notifications"];
                let uris = wanted["resourceSubscriptions"].as_array();
                let uris: Vec<&str> = uris
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                self.subscribed = uris.iter().map(|uri| ((*uri).to_owned(), true)).collect();
                self.listening = id.as_u64();
                if !uris.is_empty() {
                    self.world
                        .count("subscription to resources of a modern server");
                }
                if uris
                    .iter()
                    .any(|uri| !self.profile.resources || !RESOURCES.contains(uri))
                {
                    self.world
                        .fail(&self.name, &format!("is to tell of {uris:?}"));
                }
                if !faulty || self.rng.chance(90) {
                    let params = json!({"_meta": {META_SUBSCRIPTION: id}, "notifications": wanted});
                    let method = "notifications/subscriptions/acknowledged";
                    let line =
                        json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
                    let wait = self.rng.millis(200);
                    self.plan_in(wait, Step::Write(line));
                }
                if self.profile.faulty && self.rng.chance(30) {
                    let wait = self.rng.millis(8000);
                    self.change(wait);
                }
            }
            "tools/call" => self.call(&message),
            "notifications/cancelled" => {
                let known = message["params"]["requestId"]
                    .as_u64()
                    .filter(|id| self.seen.contains(id));
                let Some(id) = known else {
                    return self.world.fail(
                        &self.name,
                        "was told that a request is cancelled that it never got",
                    );
                };
                // One in three goes on all the same, so that late answers happen.
                let stops = self.rng.chance(66);
                if let Some(call) = self.calls.get_mut(&id) {
                    self.world.count("call cancelled at its server");
                    call.cancelled = true;
                    call.answered |= stops;
                }
            }
            other => self.world.fail(&self.name, &format!("got {other:?}")),
        }
    }

    fn capabilities(&self) -> Value {
        let mut can = json!({"tools": {"listChanged": true}});
        if self.profile.resources {
            can["resources"] = json!({"subscribe": true});
        }
        can
    }

    fn handshake_wait(&mut self) -> Duration {
        if self.profile.faulty && self.rng.chance(10) {
            self.world.count("slow handshake");
            return self.rng.millis(25_000);
        }
        self.rng.millis(300)
    }

    /// Its tools become others, and it says so.
    fn change(&mut self, wait: Duration) {
        *self
            .world
            .books()
            .changes
            .entry(self.server.clone())
            .or_default() += 1;
        self.world.count("list_changed of a server");
        let line = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}";
        self.plan_in(wait, Step::Write(line.to_owned()));
    }

    fn list(&mut self, id: &Value, cursor: Option<&str>) {
        let changes = self
            .world
            .books()
            .changes
            .get(&self.server)
            .copied()
            .unwrap_or_default();
        let mut names = vec!["echo".to_owned()];
        names.extend((0..self.profile.tools).map(|index| format!("tool{index}")));
        names.extend((changes > 0).then(|| format!("new{changes}")));
        let page: usize = cursor
            .and_then(|cursor| cursor.parse().ok())
            .unwrap_or_default();
        let (shown, next) = match names.get(page) {
            Some(name) if self.profile.pages => (
                vec![name.clone()],
                (page + 1 < names.len()).then_some(page + 1),
            ),
            _ => (names, None),
        };
        let tools: Vec<_> = shown
            .iter()
            .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
            .collect();
        let mut result = json!({"tools": tools});
        if self.profile.version == MODERN {
            result["resultType"] = json!("complete");
            result["ttlMs"] = json!(1000);
            result["cacheScope"] = json!("private");
        }
        if let Some(next) = next {
            result["nextCursor"] = json!(next.to_string());
        }
        let wait = self.rng.millis(200);
        match self.rng.below(100) {
            0..3 if self.profile.faulty => self.refuse(wait, id, -32603),
            3..5 if self.profile.faulty => {}
            _ => self.reply(wait, id, result),
        }
    }

    /// What it asked was answered: the call goes on.
    fn told(&mut self, message: &Value) {
        let own = message["id"].as_str().unwrap_or_default();
        if !own.starts_with('q') {
            return;
        }
        let Some((id, shape)) = self.waiting.remove(own) else {
            let text = format!("got a second answer to {own}, or one to what it did not ask");
            return self.world.fail(&self.name, &text);
        };
        if let Some(result) = message.get("result") {
            self.world.count("person's answer to a server");
            if result["action"] != "accept" {
                self.world.fail(&self.name, &format!("was told {result}"));
            }
        }
        let wait = self.rng.millis(500);
        self.plan_in(wait, Step::Answer(id, shape));
    }

    /// Checks a call against the books and plans what becomes of it.
    fn call(&mut self, message: &Value) {
        let arguments = &message["params"]["arguments"];
        let tag = arguments["tag"].as_str().unwrap_or_default().to_owned();
        let id = message["id"].as_u64().unwrap_or_default();
        let token = message["params"]["_meta"].get("progressToken").cloned();
        let state = message["params"].get("requestState");
        let is_retry = state.is_some();
        if state.is_some_and(|state| *state != format!("state of {tag}")) {
            self.world.fail(
                &self.name,
                &format!("got a retry with another's state: {state:?}"),
            );
        }
        if !self.greeted {
            self.world
                .fail(&self.name, "got a call before its handshake was done");
        }
        if token
            .as_ref()
            .is_some_and(|token| token.as_u64() != Some(id))
        {
            self.world.fail(
                &self.name,
                "got a progress token that is not the daemon's own",
            );
        }
        let (uid, connection) = {
            let mut books = self.world.books();
            match books.calls.get_mut(&tag) {
                None => {
                    drop(books);
                    return self
                        .world
                        .fail(&self.name, &format!("got a call that nobody made: {tag:?}"));
                }
                Some(made) => {
                    made.arrived += u32::from(!is_retry);
                    let (too_often, narrow) = (made.arrived > made.times, made.narrow);
                    let who = (made.uid, made.connection.clone());
                    drop(books);
                    if too_often {
                        self.world.fail(
                            &self.name,
                            &format!("{tag} came once more than it was made"),
                        );
                    }
                    if narrow {
                        self.world
                            .fail(&self.name, &format!("{tag} came through a closed gate"));
                    }
                    who
                }
            }
        };
        let first = self.owner.is_none();
        let (owner_uid, owner_connection) =
            self.owner.get_or_insert((uid, connection.clone())).clone();
        let shared_right = match self.profile.isolation {
            "shared" => true,
            "user" => owner_uid == uid,
            "client" => owner_connection == connection,
            _ => first,
        };
        if !shared_right {
            let message = format!(
                "{tag} came to a process that is another's ({})",
                self.profile.isolation
            );
            self.world.fail(&self.name, &message);
        }
        let call = Call {
            tag,
            token,
            progress: 0,
            answered: false,
            cancelled: false,
            asked: is_retry,
        };
        let can_be_asked = message["params"]["_meta"][META_CAPABILITIES]
            .get("elicitation")
            .is_some();
        if can_be_asked && !is_retry && self.rng.chance(30) {
            self.world.count("call answered with a question");
            // Its retry may come to a process of another version, which gets it as a call.
            if let Some(made) = self.world.books().calls.get_mut(&call.tag) {
                made.arrived = 0;
            }
            let wait = self.rng.millis(400);
            let params = json!({"message": call.tag, "requestedSchema": {"type": "object", "properties": {}}});
            let requests = json!({"k": {"method": "elicitation/create", "params": params}});
            let state = format!("state of {}", call.tag);
            let asks = json!({"resultType": "input_required", "inputRequests": requests, "requestState": state});
            return self.reply(wait, &message["id"], asks);
        }
        self.calls.insert(id, call);
        self.behave(id);
    }

    fn behave(&mut self, id: u64) {
        let most = if self.profile.faulty { 2500 } else { 400 };
        let mut wait = self.rng.millis(most);
        for _ in 0..self.rng.below(5) {
            let at = wait.mul_f64(0.9);
            self.plan_in(at, Step::Progress(id));
        }
        if self.rng.chance(80) {
            let uri = (*self.rng.pick(&RESOURCES)).to_owned();
            let at = self.rng.millis(most);
            self.plan_in(at, Step::Update(uri));
        }
        let fault = if self.profile.faulty {
            self.rng.below(100)
        } else {
            99
        };
        let mut shape = Shape::Result;
        match fault {
            0..4 => {
                self.world.count("call that is never answered");
                return;
            }
            4..8 => {
                self.world.count("death before an answer");
                return self.plan_in(wait, Step::Die(None));
            }
            8..12 => {
                self.world.count("death in the middle of an answer");
                return self.plan_in(wait, Step::Die(Some(id)));
            }
            12..16 => {
                self.world.count("answer given twice");
                shape = Shape::Twice;
            }
            16..20 => {
                self.world.count("garbage");
                let garbage = *self.rng.pick(&[
                    "",
                    "garbage",
                    "{\"jsonrpc\":\"2.0\"}",
                    "[1,2",
                    "null",
                    "{\"id\":{}}",
                ]);
                self.plan_in(wait, Step::Write(garbage.to_owned()));
            }
            20..24 => {
                self.world.count("answer under an unknown id");
                let other = *self.rng.pick(&[
                    "999999",
                    "\"1\"",
                    "-1",
                    "1.5",
                    "18446744073709551615",
                    "null",
                ]);
                let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{other},\"result\":{{}}}}");
                self.plan_in(wait, Step::Write(line));
            }
            24..28 => self.change(wait),
            28..32 => {
                self.world.count("request of a server");
                self.asked += 1;
                let method = *self
                    .rng
                    .pick(&["ping", "sampling/createMessage", "roots/list"]);
                let line = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":\"ask{}\",\"method\":\"{method}\"}}",
                    self.asked
                );
                self.plan_in(wait, Step::Write(line));
            }
            32..34 => {
                self.world.count("input closed by a server");
                self.plan_in(wait, Step::CloseInput);
            }
            34..36 => {
                self.world.count("output closed by a server");
                return self.plan_in(wait, Step::CloseOutput);
            }
            36..40 => {
                self.world.count("late answer");
                wait += Duration::from_secs(self.rng.between(3, 8));
            }
            40..43 => {
                self.world.count("answer that is no JSON");
                shape = Shape::Broken;
            }
            43..46 => shape = Shape::Error,
            46..49 => shape = Shape::IsError,
            49..52 => {
                self.world.count("progress of nothing");
                let token = *self.rng.pick(&["999999", "\"1\"", "null", "{}"]);
                let params = format!("{{\"progressToken\":{token},\"progress\":1}}");
                let line = format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{params}}}"
                );
                self.plan_in(wait, Step::Write(line));
            }
            52..60 if self.profile.version == LEGACY[1] => {
                self.world.count("answer in a batch");
                shape = Shape::Batch;
            }
            _ => {}
        }
        // Where there may be few processes, none waits for a person: in a calm world everybody's
        // turn comes.
        let may_ask = self.profile.version != MODERN && self.profile.limit.is_none();
        if may_ask
            && shape != Shape::Broken
            && self.profile.isolation != "shared"
            && self.rng.chance(20)
        {
            return self.plan_in(wait, Step::Ask(id, shape));
        }
        self.plan_in(wait, Step::Answer(id, shape));
    }
}

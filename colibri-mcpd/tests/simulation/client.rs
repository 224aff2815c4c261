//! Simulated clients, and the model of what each of them may be answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use colibri_mcpd::daemon::Daemon;
use colibri_mcpd::inbound::InboundConnection;
use colibri_mcpd::inbound::lines::serve;
use colibri_policy::Caller;
use colibri_protocol::uri::exposed;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::rng::Rng;
use crate::server::{LEGACY, MODERN, RESOURCES};
use crate::world::{FOREVER, Lines, Made, World, pipe};

const META: &str = "io.modelcontextprotocol/";
/// No request may take longer: three attempts of which each may wait for a start, and a call.
const MAX_LENGTH: Duration = Duration::from_secs(180);
/// Bytes under way are read within this time by one that reads.
const SOON: Duration = Duration::from_millis(100);
/// How long the daemon waits for calls in flight when it ends.
const DRAIN: Duration = Duration::from_secs(5);
/// The code of the answer to what is asked of a daemon that ends.
const STOPPING: i64 = 105;

/// A person's client, which connects as often as it likes.
pub(crate) struct Person {
    pub world: Arc<World>,
    pub daemon: Arc<Daemon>,
    pub name: String,
    pub uid: u32,
    pub servers: Vec<String>,
    /// Those that can be subscribed to.
    pub telling: BTreeSet<String>,
    pub rng: Rng,
}

impl Person {
    pub(crate) async fn live(mut self) {
        for number in 0..self.rng.between(1, 3) {
            sleep(self.rng.millis(4000)).await;
            if self.world.is_ending() {
                return;
            }
            let mut rng = self.rng.fork();
            let version = match rng.below(5) {
                index @ 0..4 => LEGACY[index as usize],
                _ => MODERN,
            };
            let answers = rng.chance(60);
            let (to_daemon, reader) = pipe(rng.between(32, 4096) as usize);
            let (writer, from_daemon) = pipe(rng.between(32, 4096) as usize);
            let caller = Caller {
                uid: self.uid,
                gid: self.uid,
                pid: None,
            };
            let visitor = InboundConnection::enter(self.daemon.clone(), caller);
            let served = tokio::spawn(serve(visitor, reader, writer));
            let connection = Connection {
                world: self.world.clone(),
                name: format!("{}.{number}", self.name),
                uid: self.uid,
                servers: self.servers.clone(),
                telling: self.telling.clone(),
                version,
                rng,
                to_daemon: Some(to_daemon),
                narrow: false,
                said_hello: false,
                next: 1,
                open: BTreeMap::new(),
                reusable: Vec::new(),
                batches: Vec::new(),
                garbage: 0,
                null_answers: 0,
                duplicates: BTreeMap::new(),
                subscribed: BTreeSet::new(),
                watched: BTreeMap::new(),
                paused_until: Instant::now(),
                questions: Vec::new(),
                answers: version >= LEGACY[2] && version != MODERN && answers,
                asked_of_it: BTreeSet::new(),
                to_say: Vec::new(),
                last: String::new(),
            };
            self.world.count("connection");
            connection.live(Lines::new(from_daemon)).await;
            match timeout(FOREVER, served).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self
                    .world
                    .fail(&self.name, &format!("serving it failed: {error}")),
                Err(_) => self
                    .world
                    .fail(&self.name, "is still served although it is gone"),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Initialize,
    Discover,
    Ping,
    List,
    Call,
    /// A call of a tool that there is not.
    NoTool,
    /// A method that there is not.
    NoMethod,
    Subscribe,
    /// To a resource, as legacy clients do.
    Watch,
    Unwatch,
}

/// A request that waits for its answer.
struct Asked {
    kind: Kind,
    tag: String,
    token: Option<Value>,
    progress: u64,
    at: Instant,
    cancelled: Option<Instant>,
    batch: Option<usize>,
    /// What is called, so that it can be called again, and whether that says that the person can be
    /// asked.
    call: Value,
    can_be_asked: bool,
    retry: Option<Retry>,
}

/// How a call is made again whose answer was a question.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Retry {
    /// As it should be.
    Right,
    /// One of two.
    Twice,
    /// Without an answer.
    Silent,
    /// With a state that is not what was given.
    Forged,
}

/// A question that waits for a person.
struct Question {
    call: Value,
    tag: String,
    state: String,
    responses: Value,
}

struct Connection {
    world: Arc<World>,
    name: String,
    uid: u32,
    servers: Vec<String>,
    telling: BTreeSet<String>,
    version: &'static str,
    rng: Rng,
    to_daemon: Option<DuplexStream>,
    narrow: bool,
    said_hello: bool,
    next: u64,
    /// By id as it is written.
    open: BTreeMap<String, Asked>,
    /// Ids of requests that were answered.
    reusable: Vec<Value>,
    /// The ids that an answer to each batch must hold.
    batches: Vec<BTreeSet<String>>,
    /// Lines sent that are no message.
    garbage: u64,
    null_answers: u64,
    /// How often each id was used for a second request while the first was open.
    duplicates: BTreeMap<String, u64>,
    /// Subscriptions that were acknowledged, as written.
    subscribed: BTreeSet<String>,
    /// The resources that a legacy one asked to be told of, as it knows them.
    watched: BTreeMap<String, Watch>,
    paused_until: Instant,
    questions: Vec<Question>,
    /// True if it is a legacy one that answers what servers ask.
    answers: bool,
    /// The ids under which it was asked.
    asked_of_it: BTreeSet<String>,
    /// Its answers that were not sent yet.
    to_say: Vec<String>,
    /// The id of the last request, as written.
    last: String,
}

/// How a subscription to a resource stands.
#[derive(Clone, Copy, PartialEq)]
enum Watch {
    /// It was asked for, or its end was.
    Changing,
    /// It is told.
    Told,
    /// Who cancelled one of the two cannot know.
    Unknown,
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq)]
enum Farewell {
    HalfClose,
    Vanish,
    /// Stays until the daemon ends, if it does.
    Stay,
}

impl Connection {
    fn note(&self, what: &str) {
        self.world.note(&self.name, what);
    }

    fn fail(&self, what: &str) {
        self.world.fail(&self.name, what);
    }

    async fn live(mut self, mut lines: Lines<DuplexStream>) {
        self.note(&format!("connects, speaks {}", self.version));
        let farewell = match self.rng.below(10) {
            0..6 => Farewell::HalfClose,
            6..9 => Farewell::Vanish,
            _ => Farewell::Stay,
        };
        if self.rng.chance(8) {
            self.narrow = true;
            self.say("{\"colibri\":1,\"narrow\":[\"external\"]}".to_owned())
                .await;
        }
        if self.version != MODERN {
            let can = if self.answers {
                json!({"elicitation": {}})
            } else {
                json!({})
            };
            let params = json!({"protocolVersion": self.version, "capabilities": can, "clientInfo": {"name": "s", "version": "1"}});
            self.ask(Kind::Initialize, "initialize", params, None).await;
            self.said_hello = true;
            self.say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}".to_owned())
                .await;
        }
        let mut left = self.rng.between(3, 16);
        let mut next = Instant::now();
        loop {
            // What came is read before anything else is done, but not by one that pauses.
            let now = Instant::now();
            if self.paused_until > now {
                sleep_until(self.paused_until).await;
            }
            tokio::select! {
                biased;
                line = lines.next() => match line {
                    Some(line) => self.line_and_answer(&line).await,
                    None => return self.cut_off(),
                },
                () = sleep_until(next) => {
                    if left == 0 {
                        break;
                    }
                    left -= 1;
                    self.act().await;
                    next = Instant::now() + self.rng.millis(900);
                }
            }
        }
        match farewell {
            Farewell::Vanish => {
                self.world.count("client that vanished");
                self.note("vanishes");
                return;
            }
            Farewell::HalfClose => {
                self.world.count("client that closed its side");
                self.note("closes its side");
                self.to_daemon = None;
            }
            Farewell::Stay => {}
        }
        // A subscription ends with the connection, so one that stays open for good is cancelled.
        let patience = Instant::now()
            + if farewell == Farewell::Stay {
                Duration::from_secs(60)
            } else {
                FOREVER
            };
        loop {
            tokio::select! {
                biased;
                line = lines.next() => match line {
                    Some(line) => self.line_and_answer(&line).await,
                    None if farewell == Farewell::HalfClose => {
                        self.note("was served to its end");
                        return self.all_answered();
                    }
                    None => return self.cut_off(),
                },
                () = sleep_until(patience) => {
                    if farewell == Farewell::Stay {
                        self.note("goes at last");
                        return;
                    }
                    return self.fail(&format!("was never let go; open: {}", self.open_requests()));
                }
            }
        }
    }

    /// The daemon closed the connection: only one that ends may.
    fn cut_off(&mut self) {
        self.note("is cut off");
        match self.world.is_ending() {
            true => self.all_answered(),
            false => self.fail("was cut off for no reason"),
        }
    }

    fn open_requests(&self) -> String {
        self.open
            .iter()
            .map(|(id, asked)| format!("{id} ({:?} {})", asked.kind, asked.tag))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Nothing more will come: what was asked must have been answered, unless it was cancelled, or
    /// the daemon ends and had no time for it because servers or this client kept it waiting.
    fn all_answered(&mut self) {
        let shutdown = self.world.books().shutdown;
        let given_up = shutdown.is_some_and(|at| at.elapsed() >= DRAIN || self.paused_until >= at);
        self.open.retain(|_, asked| {
            let too_late = shutdown.is_some_and(|at| asked.at + SOON >= at) || given_up;
            asked.cancelled.is_none() && !too_late
        });
        if !self.open.is_empty() {
            self.fail(&format!("was never answered: {}", self.open_requests()));
        }
        if shutdown.is_none() && self.garbage != self.null_answers {
            let (sent, got) = (self.garbage, self.null_answers);
            self.fail(&format!(
                "sent {sent} lines that are no message and was told so {got} times"
            ));
        }
    }

    async fn say(&mut self, line: String) {
        self.note(&format!("> {line}"));
        if let Some(to_daemon) = self.to_daemon.as_mut() {
            // Whether the daemon is gone is seen when reading.
            let _ = to_daemon.write_all(format!("{line}\n").as_bytes()).await;
        }
    }

    fn new_id(&mut self) -> Value {
        if self.rng.chance(10)
            && let Some(id) = self.reusable.pop()
        {
            return id;
        }
        self.next += 1;
        if self.rng.chance(50) {
            json!(self.next)
        } else {
            json!(format!("id-{}", self.next))
        }
    }

    /// Notes a request and returns its line.
    fn request(
        &mut self,
        kind: Kind,
        method: &str,
        mut params: Value,
        tag: Option<String>,
        batch: Option<usize>,
    ) -> String {
        let id = self.new_id();
        let mut token = None;
        let tag = tag.unwrap_or_default();
        let call = params.clone();
        let can_be_asked = kind == Kind::Call && self.version == MODERN && self.rng.chance(50);
        if self.version == MODERN {
            params["_meta"] = json!({
                format!("{META}protocolVersion"): MODERN,
                format!("{META}clientInfo"): {"name": "s", "version": "1"},
                format!("{META}clientCapabilities"): if can_be_asked { json!({"elicitation": {}}) } else { json!({}) },
            });
        }
        if kind == Kind::Call && self.rng.chance(70) {
            // Everybody uses the same ones, so that a mix-up would be seen.
            let value = if self.rng.chance(50) {
                json!(self.next)
            } else {
                json!(format!("t{}", self.next))
            };
            if !self
                .open
                .values()
                .any(|asked| asked.token.as_ref() == Some(&value))
            {
                params["_meta"]["progressToken"] = value.clone();
                token = Some(value);
            }
        }
        let asked = Asked {
            kind,
            tag,
            token,
            progress: 0,
            at: Instant::now(),
            cancelled: None,
            batch,
            call,
            can_be_asked,
            retry: None,
        };
        self.world.count("request");
        if let Some(batch) = batch {
            self.batches[batch].insert(id.to_string());
        }
        self.last = id.to_string();
        self.open.insert(id.to_string(), asked);
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    }

    async fn ask(&mut self, kind: Kind, method: &str, params: Value, tag: Option<String>) {
        let line = self.request(kind, method, params, tag, None);
        self.say(line).await;
    }

    /// A call of a server's tool, by its exposed name or through our own.
    fn tool_call(&mut self, batch: Option<usize>) -> String {
        let server = self.rng.pick(&self.servers).clone();
        let number = self.world.books().calls.len();
        let tag = format!("{}-{number}", self.name);
        let arguments = json!({"tag": tag});
        let made = Made {
            uid: self.uid,
            connection: self.name.clone(),
            narrow: self.narrow,
            times: 1,
            arrived: 0,
        };
        self.world.books().calls.insert(tag.clone(), made);
        self.world.count("call of a server's tool");
        let params = if self.rng.chance(75) {
            json!({"name": format!("{server}__echo"), "arguments": arguments})
        } else {
            json!({"name": "colibri_external_mcp_call_tool",
                   "arguments": {"server": server, "tool": "echo", "arguments": arguments}})
        };
        self.request(Kind::Call, "tools/call", params, Some(tag), batch)
    }

    /// Answers a question by calling again, rightly or not.
    async fn retry(&mut self) {
        let at = self.rng.below(self.questions.len() as u64) as usize;
        let question = self.questions.remove(at);
        let how = match self.rng.below(10) {
            0..6 => Retry::Right,
            6..8 => Retry::Twice,
            8 => Retry::Silent,
            _ => Retry::Forged,
        };
        self.world.count("retry");
        if let Some(made) = self
            .world
            .books()
            .calls
            .get_mut(&question.tag)
            .filter(|_| how == Retry::Twice)
        {
            made.times = 2;
        }
        for _ in 0..if how == Retry::Twice { 2 } else { 1 } {
            let mut params = question.call.clone();
            let (mut state, mut responses) = (question.state.clone(), question.responses.clone());
            match how {
                Retry::Silent => responses = json!({}),
                Retry::Forged => {
                    state.replace_range(..1, if state.starts_with('A') { "B" } else { "A" })
                }
                Retry::Right | Retry::Twice => {}
            }
            params["requestState"] = json!(state);
            params["inputResponses"] = responses;
            let line = self.request(
                Kind::Call,
                "tools/call",
                params,
                Some(question.tag.clone()),
                None,
            );
            let id = self.last.clone();
            if let Some(asked) = self.open.get_mut(&id) {
                asked.retry = Some(how);
                asked.call = question.call.clone();
            }
            self.say(line).await;
        }
    }

    /// A call was answered with a question: it is asked to the right person, and can be answered.
    fn asked(&mut self, asked: &Asked, result: &Value) -> bool {
        self.world.count("question to a client");
        if !asked.can_be_asked {
            self.fail(&format!(
                "was asked about {} although it cannot be",
                asked.tag
            ));
        }
        let mut responses = json!({});
        for (key, request) in result["inputRequests"].as_object().into_iter().flatten() {
            let message = request["params"]["message"].as_str().unwrap_or_default();
            let tag = message.rsplit(' ').next().unwrap_or_default();
            let uid = self.world.books().calls.get(tag).map(|made| made.uid);
            if uid != Some(self.uid) {
                self.fail(&format!("was asked about {tag}, a call of {uid:?}"));
            }
            responses[key] = json!({"action": "accept", "content": {}});
        }
        self.questions.push(Question {
            call: asked.call.clone(),
            tag: asked.tag.clone(),
            state: result["requestState"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            responses,
        });
        asked.retry != Some(Retry::Forged)
    }

    async fn act(&mut self) {
        if !self.questions.is_empty() && self.rng.chance(70) {
            return self.retry().await;
        }
        match self.rng.below(100) {
            0..55 => {
                let line = self.tool_call(None);
                self.say(line).await;
            }
            55..62 => self.ask(Kind::List, "tools/list", json!({}), None).await,
            62..66 if self.version == MODERN => {
                self.ask(Kind::Discover, "server/discover", json!({}), None)
                    .await
            }
            62..66 => self.ask(Kind::Ping, "ping", json!({}), None).await,
            66..68 => self.ask(Kind::NoMethod, "no/such", json!({}), None).await,
            68..70 => {
                self.ask(
                    Kind::NoTool,
                    "tools/call",
                    json!({"name": "colibri_nothing"}),
                    None,
                )
                .await
            }
            70..80 => self.cancel().await,
            80..83 => {
                self.world.count("line that is no message");
                self.garbage += 1;
                let garbage = *self.rng.pick(&[
                    "garbage",
                    "{\"jsonrpc\":\"2.0\"",
                    "[]",
                    "1",
                    "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
                ]);
                self.say(garbage.to_owned()).await;
            }
            83..86 if !self.subscribed.is_empty() => {
                // A second request under an id in flight is refused under that id. Only a
                // subscription is in flight for certain: any other answer may be under way.
                let ids: Vec<String> = self.subscribed.iter().cloned().collect();
                let id = self.rng.pick(&ids).clone();
                if self
                    .open
                    .get(&id)
                    .is_some_and(|asked| asked.cancelled.is_none())
                {
                    self.world.count("id used twice at once");
                    *self.duplicates.entry(id.clone()).or_default() += 1;
                    self.say(format!(
                        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"no/such\"}}"
                    ))
                    .await;
                }
            }
            86..90 if self.version == MODERN => {
                let uris: Vec<String> = (0..self.rng.below(3)).map(|_| self.resource()).collect();
                let tools = self.rng.chance(80);
                let params = json!({"notifications": {"toolsListChanged": tools, "resourceSubscriptions": uris}});
                self.world.count("subscription");
                self.ask(Kind::Subscribe, "subscriptions/listen", params, None)
                    .await;
            }
            86..93 if self.version == LEGACY[1] && self.said_hello => self.batch().await,
            86..94 if self.version != MODERN => self.watch().await,
            90..96 => {
                self.world.count("client that does not read for a while");
                self.note("pauses");
                self.paused_until = Instant::now() + self.rng.millis(3000);
            }
            _ => {
                for _ in 0..self.rng.between(2, 6) {
                    let line = self.tool_call(None);
                    self.say(line).await;
                }
            }
        }
    }

    /// A resource of a server, as clients know it.
    fn resource(&mut self) -> String {
        let (server, uri) = (
            self.rng.pick(&self.servers).clone(),
            *self.rng.pick(&RESOURCES),
        );
        let asked_for = (server.clone(), uri.to_owned());
        self.world.books().asked_for.insert(asked_for);
        exposed(&server, uri)
    }

    /// Has itself told of a resource, or no longer.
    async fn watch(&mut self) {
        let uri = self.resource();
        let kind = match self.watched.get(&uri) {
            None => Kind::Watch,
            Some(Watch::Told) => Kind::Unwatch,
            Some(_) => return,
        };
        self.watched.insert(uri.clone(), Watch::Changing);
        let method = match kind {
            Kind::Watch => "resources/subscribe",
            _ => "resources/unsubscribe",
        };
        self.ask(kind, method, json!({"uri": uri}), None).await;
    }

    async fn cancel(&mut self) {
        let ids: Vec<String> = self
            .open
            .iter()
            .filter(|(_, asked)| asked.cancelled.is_none() && asked.kind != Kind::Initialize)
            .map(|(id, _)| id.clone())
            .collect();
        let id = if ids.is_empty() || self.rng.chance(10) {
            "\"nothing\"".to_owned()
        } else {
            self.rng.pick(&ids).clone()
        };
        let params = if self.version == MODERN && self.rng.chance(50) {
            format!("{{\"requestId\":{id},\"reason\":\"changed my mind\"}}")
        } else {
            format!("{{\"requestId\":{id}}}")
        };
        self.world.count("cancellation");
        self.say(format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{params}}}"
        ))
        .await;
        if let Some(asked) = self.open.get_mut(&id) {
            asked.cancelled = Some(Instant::now());
            if let (Kind::Watch | Kind::Unwatch, Some(uri)) =
                (asked.kind, asked.call["uri"].as_str())
            {
                self.watched.insert(uri.to_owned(), Watch::Unknown);
            }
        }
    }

    async fn batch(&mut self) {
        self.world.count("batch");
        let batch = self.batches.len();
        self.batches.push(BTreeSet::new());
        let mut parts = Vec::new();
        for _ in 0..self.rng.between(1, 5) {
            parts.push(match self.rng.below(10) {
                0..6 => self.tool_call(Some(batch)),
                6..8 => self.request(Kind::Ping, "ping", json!({}), None, Some(batch)),
                8 => self.request(Kind::NoMethod, "no/such", json!({}), None, Some(batch)),
                _ => "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}"
                    .to_owned(),
            });
        }
        self.say(format!("[{}]", parts.join(","))).await;
    }

    async fn line_and_answer(&mut self, line: &[u8]) {
        self.line(line);
        for answer in std::mem::take(&mut self.to_say) {
            self.say(answer).await;
        }
    }

    /// A server asks something: of one that can be asked, about a call of its user, under an id of
    /// its own.
    fn question(&mut self, message: &Value) {
        self.world.count("question to a legacy client");
        if !self.answers {
            self.fail("was asked although it cannot be");
        }
        if message["method"] != "elicitation/create" {
            self.fail(&format!("was asked for {}", message["method"]));
        }
        let text = message["params"]["message"].as_str().unwrap_or_default();
        let tag = text.rsplit(' ').next().unwrap_or_default();
        let uid = self.world.books().calls.get(tag).map(|made| made.uid);
        if uid != Some(self.uid) || !text.starts_with('[') {
            self.fail(&format!("was asked {text:?}, about a call of {uid:?}"));
        }
        if !self.asked_of_it.insert(message["id"].to_string()) {
            self.fail(&format!("was asked under {} before", message["id"]));
        }
        if self.world.calm || self.rng.chance(80) {
            let result = json!({"action": "accept", "content": {}});
            let answer =
                json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
            let twice = !self.world.calm && self.rng.chance(20);
            self.to_say
                .extend(std::iter::repeat_n(answer, 1 + usize::from(twice)));
        }
    }

    fn line(&mut self, line: &[u8]) {
        self.note(&format!("< {}", String::from_utf8_lossy(line)));
        match serde_json::from_slice::<Value>(line) {
            Ok(Value::Array(parts)) => self.batch_answer(&parts),
            Ok(message) => self.message(&message, None),
            Err(error) => self.fail(&format!("was sent a line that is no JSON: {error}")),
        }
    }

    fn batch_answer(&mut self, parts: &[Value]) {
        let first = parts
            .first()
            .map(|part| part["id"].to_string())
            .unwrap_or_default();
        let Some(batch) = self.open.get(&first).and_then(|asked| asked.batch) else {
            return self.fail("was answered in a batch that answers none of its own");
        };
        // What is in flight when the daemon has waited long enough is left out.
        let given_up = self
            .world
            .books()
            .shutdown
            .is_some_and(|at| at.elapsed() >= DRAIN);
        let got: BTreeSet<String> = parts.iter().map(|part| part["id"].to_string()).collect();
        for id in self.batches[batch].clone() {
            let cancelled = self
                .open
                .get(&id)
                .is_some_and(|asked| asked.cancelled.is_some());
            if !got.contains(&id) && !cancelled && !given_up {
                self.fail(&format!("missed {id} in the answer to its batch"));
            }
        }
        for part in parts {
            self.message(part, Some(batch));
        }
        // What was cancelled and is not in it will never come.
        self.open.retain(|_, asked| asked.batch != Some(batch));
    }

    fn message(&mut self, message: &Value, batch: Option<usize>) {
        if message["jsonrpc"] != "2.0" {
            return self.fail("was sent a message without its version");
        }
        match message["method"].as_str() {
            Some(_) if message.get("id").is_some() => self.question(message),
            Some(method) => self.notified(method, &message["params"]),
            None => self.answered(message, batch),
        }
    }

    fn notified(&mut self, method: &str, params: &Value) {
        let subscription = params["_meta"]
            .get(format!("{META}subscriptionId"))
            .map(Value::to_string);
        match method {
            "notifications/progress" => self.progressed(params),
            // It need not answer any more.
            "notifications/cancelled"
                if self.asked_of_it.contains(&params["requestId"].to_string()) => {}
            "notifications/subscriptions/acknowledged" => {
                let id = subscription.unwrap_or_default();
                match self.open.get(&id) {
                    Some(asked) if asked.kind == Kind::Subscribe => {
                        self.subscribed.insert(id);
                    }
                    _ => self.fail("was told that a subscription is taken that it has not"),
                }
            }
            "notifications/resources/updated" => {
                self.world.count("update of a resource to a client");
                let uri = params["uri"].as_str().unwrap_or_default();
                let is_wanted = match &subscription {
                    None => self.version != MODERN && self.watched.contains_key(uri),
                    Some(id) => self.open.get(id).is_some_and(|asked| {
                        let uris = asked.call["notifications"]["resourceSubscriptions"].as_array();
                        let names = uris.is_some_and(|uris| uris.iter().any(|one| one == uri));
                        names
                            && self.subscribed.contains(id)
                            && !late(asked, Instant::now(), self.paused_until)
                    }),
                };
                if !is_wanted {
                    self.fail(&format!(
                        "was told of {uri:?} under {subscription:?}, which it did not want"
                    ));
                }
            }
            "notifications/tools/list_changed" | "notifications/resources/list_changed" => {
                self.world.count("list_changed to a client");
                match subscription {
                    None if self.version == MODERN => {
                        self.fail("was told of changed tools outside a subscription")
                    }
                    None => {}
                    Some(id) => {
                        let open = self
                            .open
                            .get(&id)
                            .is_some_and(|asked| asked.kind == Kind::Subscribe);
                        if !open || !self.subscribed.contains(&id) {
                            self.fail(
                                "was told of changed tools under a subscription that it has not",
                            );
                        }
                    }
                }
            }
            other => self.fail(&format!("was sent {other:?}")),
        }
    }

    fn progressed(&mut self, params: &Value) {
        let now = Instant::now();
        let token = &params["progressToken"];
        let found = self
            .open
            .values_mut()
            .find(|asked| asked.token.as_ref() == Some(token));
        let Some(asked) = found else {
            return self.fail(&format!(
                "was told of progress under {token}, which is no open request's"
            ));
        };
        self.world.count("progress");
        asked.progress += 1;
        let (right, number) = (params["message"] == asked.tag.as_str(), asked.progress);
        let late = late(asked, now, self.paused_until);
        if !right {
            self.fail(&format!("was told of another's progress under {token}"));
        }
        if params["progress"] != number {
            self.fail(&format!(
                "was told of progress out of order under {token}: not {number}"
            ));
        }
        if late {
            self.fail(&format!(
                "was told of progress under {token} long after its cancellation"
            ));
        }
    }

    fn answered(&mut self, message: &Value, batch: Option<usize>) {
        let id = message["id"].to_string();
        let (result, error) = (message.get("result"), message.get("error"));
        if result.is_some() == error.is_some() {
            return self.fail("was answered with both a result and an error, or with neither");
        }
        if message["id"].is_null() {
            self.null_answers += 1;
            if error.is_none() {
                self.fail("was answered with a result under no id");
            }
            return;
        }
        if let Some(count) = self.duplicates.get_mut(&id)
            && *count > 0
            && error.is_some_and(|error| error["code"] == -32600)
        {
            *count -= 1;
            return;
        }
        let Some(asked) = self.open.remove(&id) else {
            return self.fail(&format!(
                "was answered under {id}, which is no open request"
            ));
        };
        self.world.count("answer");
        if asked.batch != batch {
            self.fail(&format!("was answered {id} outside its batch"));
        }
        let now = Instant::now();
        // The answers of a batch leave together: one that was there before the cancellation may
        // have waited for others.
        if batch.is_none() && late(&asked, now, self.paused_until) {
            self.fail(&format!("was answered {id} long after its cancellation"));
        }
        if asked.kind != Kind::Subscribe && now - asked.at > MAX_LENGTH {
            self.fail(&format!("waited for {id} longer than any limit allows"));
        }
        let asks = result.is_some_and(|result| {
            asked.kind == Kind::Call && result["resultType"] == "input_required"
        });
        if self.version == MODERN
            && !asks
            && result.is_some_and(|result| result["resultType"] != "complete")
        {
            self.fail(&format!("was answered {id} without resultType"));
        }
        if asked.cancelled.is_none() {
            self.reusable.push(message["id"].clone());
        }
        let code = error.and_then(|error| error["code"].as_i64());
        let shutdown = self.world.books().shutdown;
        if code == Some(STOPPING) {
            self.world.count("request refused by a daemon that ends");
            if shutdown.is_none() {
                self.fail(&format!("was refused {id} by a daemon that does not end"));
            }
            return;
        }
        if shutdown.is_some_and(|at| asked.at > at) {
            self.fail(&format!(
                "was answered {id}, which it asked a daemon that was ending"
            ));
        }
        let right = match asked.kind {
            Kind::Initialize => {
                result.is_some_and(|result| result["protocolVersion"] == self.version)
            }
            Kind::Discover => result.is_some_and(|result| result["supportedVersions"].is_array()),
            Kind::Ping => result.is_some(),
            Kind::List => result.is_some_and(|result| is_list(&result["tools"])),
            // Whether there is such a tool is nothing for one that closed the gate to know.
            Kind::NoTool => code == Some(-32602) || self.narrow && result.is_some(),
            Kind::NoMethod => code == Some(-32601),
            Kind::Subscribe => {
                self.subscribed.remove(&id);
                result.is_some_and(|result| {
                    result["_meta"][format!("{META}subscriptionId")] == message["id"]
                })
            }
            Kind::Watch => {
                let uri = asked.call["uri"].as_str().unwrap_or_default();
                let server = uri.split('+').next().unwrap_or_default();
                let has = self.telling.contains(server) && !self.narrow;
                let is_sure = asked.cancelled.is_none();
                match result {
                    Some(_) if is_sure => drop(self.watched.insert(uri.to_owned(), Watch::Told)),
                    None if is_sure => drop(self.watched.remove(uri)),
                    _ => {}
                }
                result.is_some() == has || result.is_none() && !self.world.calm
            }
            Kind::Unwatch => {
                let uri = asked.call["uri"].as_str().unwrap_or_default();
                if asked.cancelled.is_none() {
                    self.watched.remove(uri);
                }
                result.is_some() || !self.world.calm
            }
            Kind::Call if asks => self.asked(&asked, result.unwrap_or(&Value::Null)),
            Kind::Call => self.call_answered(&asked, result, error),
        };
        if !right {
            self.fail(&format!(
                "was answered {id} wrongly ({:?} {})",
                asked.kind, asked.tag
            ));
        }
    }

    /// The answer to a call is its own tool's with all its progress before it, or an error of ours
    /// that says so.
    fn call_answered(&self, asked: &Asked, result: Option<&Value>, error: Option<&Value>) -> bool {
        let ours = result.is_some_and(|result| {
            result["isError"] == true && result["_meta"].get("org.colibri/error").is_some()
        });
        let text = match (result, error) {
            (Some(result), _) => &result["content"][0]["text"],
            (None, Some(error)) => &error["message"],
            (None, None) => return false,
        };
        let text = text.as_str().unwrap_or_default();
        if text.contains("requestState is refused") {
            self.world.count("retry refused");
            return match asked.retry {
                Some(Retry::Forged | Retry::Twice) => true,
                // What waited may be over: the process has died, or the last of its user has gone.
                Some(Retry::Right | Retry::Silent) => !self.world.calm,
                None => false,
            };
        }
        if ours || error.is_some_and(|error| error["code"] != -32000) {
            self.world.count("call answered with an error of ours");
            // A question about it may have gone to another call of its user, in the same process.
            let unasked = !asked.can_be_asked && text.starts_with("TIMEOUT_CALL");
            // Who has closed its side cannot answer a question.
            let closed = self.to_daemon.is_none() && text.starts_with("ASK_FAILED");
            let excused = self.narrow || !self.world.calm || unasked || closed;
            if !excused {
                self.fail(&format!(
                    "was refused {} in a calm world: {text}",
                    asked.tag
                ));
            }
            return true;
        }
        if asked.retry == Some(Retry::Forged) {
            return false;
        }
        self.world.count("call answered by its tool");
        if self.narrow {
            self.fail("reached a tool behind the gate that it closed");
        }
        if text == format!("{} asked", asked.tag) {
            return true;
        }
        if asked.retry.is_some() && text.starts_with(&format!("{} progress=", asked.tag)) {
            // Its server went on without the answer, to what it had asked about another call:
            // progress went nowhere.
            return true;
        }
        let progress = if asked.token.is_some() {
            asked.progress
        } else {
            0
        };
        text == format!("{} progress={progress}", asked.tag)
    }
}

/// True if something about a request comes long after its cancellation was read.
fn late(asked: &Asked, now: Instant, paused_until: Instant) -> bool {
    asked
        .cancelled
        .is_some_and(|at| now > at + SOON && now > paused_until + SOON)
}

/// True if these are tools in a stable order, each once.
fn is_list(tools: &Value) -> bool {
    let Some(tools) = tools.as_array() else {
        return false;
    };
    let names: Vec<_> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    names.len() == tools.len() && names.windows(2).all(|pair| pair[0] < pair[1])
}

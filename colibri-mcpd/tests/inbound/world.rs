//! A daemon in this process with servers in memory, and agent sockets at real sockets.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use clap::Parser as _;
use colibri_confine::{
    BoxFuture, LaunchSpec, ServerExit, ServerProcess, SpawnError, SpawnedServer, Spawner,
};
use colibri_mcpd::agents::{self, AgentRoster, ListenGuard};
use colibri_mcpd::catalog::ServerHost;
use colibri_mcpd::config::DaemonFlags;
use colibri_mcpd::daemon::Daemon;
use colibri_mcpd::daemon::sources::SourceMetadata;
use colibri_mcpd::inbound::{AgentDoors, Listener};
use colibri_mcpd::model::{ModelRelays, RecordEvent};
use colibri_mcpd::registry::secrets::SecretStore;
use colibri_mcpd::registry::{LoadedRegistry, RegisteredServer as Entry, parse};
use colibri_mcpd::relay::request_state::RequestStates;
use colibri_mcpd::relay::{AgentSocket, AgentUsage, CallMetrics, CallRules, Chain, Recorder};
use colibri_mcpd::servers;
use colibri_peer::{ByteBudget, Frame, FrameReader};
use colibri_policy::{
    AgentTools, ApprovalQueue, Caller, Clients, DEFAULT_EXPIRY, Gates, RulePlace, SystemAccounts,
    UserQuotas,
};
use colibri_store::Database;
use colibri_store::cost_ledger::CostLedger;
use colibri_trail::{SegmentLimits, Trail, TrailHead, TrailOptions, Witness};
use colibri_wire::{Envelope, EnvelopeKind};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything takes on a busy machine, and than a virtual clock is moved on by what is
/// waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// The one for whom agents run here: nobody who may run these tests, as a first person with uid
/// 1001 may.
pub(crate) const PERSON: Caller = Caller {
    uid: 91001,
    gid: 91001,
    pid: None,
};
const PIPE: usize = 4 << 20;
/// What the server in memory lists, whatever it is called.
const TOOLS: [&str; 8] = [
    "read_log", "status", "push", "big", "wait", "ask", "complete", "rows",
];

struct Nobody;

impl Witness for Nobody {
    fn witness(&self, _: &TrailHead) -> std::io::Result<()> {
        Ok(())
    }
}

struct InMemory;

/// A process that lasts as long as its server does.
pub(crate) struct Task(pub(crate) JoinHandle<()>);

impl ServerProcess for Task {
    fn pid(&self) -> u32 {
        1
    }

    fn wait(&mut self) -> BoxFuture<'_, ServerExit> {
        Box::pin(async {
            let _ = (&mut self.0).await;
            ServerExit::Status(0)
        })
    }
}

impl Spawner for InMemory {
    fn spawn(&self, spec: LaunchSpec) -> BoxFuture<'_, Result<SpawnedServer, SpawnError>> {
        if let LaunchSpec::Host {
            server, arguments, ..
        } = &spec
            && let [starts, calls] = &arguments[..]
        {
            return Box::pin(std::future::ready(super::failures::spawn(
                server, starts, calls,
            )));
        }
        let (stdin, requests) = tokio::io::duplex(PIPE);
        let (answers, stdout) = tokio::io::duplex(PIPE);
        let is_modern = matches!(&spec, LaunchSpec::Host { server, .. } if server == "modern");
        let task = Task(match is_modern {
            true => tokio::spawn(serve_modern(requests, answers)),
            false => tokio::spawn(serve(requests, answers)),
        });
        let spawned = SpawnedServer {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(tokio::io::empty()),
            process: Box::new(task),
        };
        Box::pin(std::future::ready(Ok(spawned)))
    }
}

/// A server of 2026-07-28 whose one tool says what stood in the `_meta` of its call.
async fn serve_modern(requests: DuplexStream, mut answers: DuplexStream) {
    let mut lines = BufReader::new(requests).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let request: Value = serde_json::from_str(&line).unwrap();
        let mut result = match request["method"].as_str() {
            Some("server/discover") => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
            }
            Some("tools/list") => {
                json!({"tools": [{"name": "meta", "inputSchema": {"type": "object"}}]})
            }
            _ => {
                json!({"content": [{"type": "text", "text": request["params"]["_meta"].to_string()}]})
            }
        };
        if request.get("id").is_none() {
            continue;
        }
        for (key, value) in [
            ("resultType", json!("complete")),
            ("ttlMs", json!(0)),
            ("cacheScope", json!("private")),
        ] {
            result[key] = value;
        }
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        if answers
            .write_all(format!("{answer}\n").as_bytes())
            .await
            .is_err()
        {
            return;
        }
    }
}

/// A legacy server with tools, a prompt and a resource.
async fn serve(requests: DuplexStream, mut answers: DuplexStream) {
    let mut reader = FrameReader::new(requests, PIPE);
    // How often each call was made.
    let mut attempts = std::collections::BTreeMap::<String, u64>::new();
    while reader.fill().await.unwrap_or(false) {
        while let Some(Frame::Line(line)) = reader.pop() {
            let Ok(EnvelopeKind::Request { id, method, params }) =
                Envelope::parse(&line).map(|envelope| envelope.kind)
            else {
                continue;
            };
            let params: Value = params.map_or(Value::Null, |params| {
                serde_json::from_str(params.text()).unwrap()
            });
            let said = match &*method.as_str().unwrap_or_default() {
                "initialize" => {
                    json!({"result": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "m", "version": "1"},
                    "capabilities": {"tools": {}, "prompts": {}, "resources": {}}}})
                }
                "tools/list" => {
                    let tool = |name| match name {
                        "rows" => {
                            json!({"name": name, "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}})
                        }
                        _ => json!({"name": name, "inputSchema": {"type": "object"}}),
                    };
                    json!({"result": {"tools": TOOLS.map(tool)}})
                }
                "prompts/list" => {
                    json!({"result": {"prompts": [{"name": "review"}, {"name": "secret"}]}})
                }
                "resources/list" => {
                    json!({"result": {"resources": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///key", "name": "k"}]}})
                }
                "resources/templates/list" => json!({"result": {"resourceTemplates": []}}),
                "prompts/get" => json!({"result": {"messages": []}}),
                "resources/read" => json!({"result": {"contents": []}}),
                "tools/call" => match params["name"].as_str().unwrap() {
                    "wait" => continue,
                    "complete" => {
                        let says = params["arguments"]["task_id"].as_str().unwrap();
                        let attempt = attempts.entry(says.to_owned()).or_default();
                        *attempt += 1;
                        let says: Value = serde_json::from_str(says).unwrap();
                        match *attempt > says["failures"].as_u64().unwrap() {
                            true => {
                                let text =
                                    "x".repeat(says["long"].as_u64().unwrap_or_default() as usize);
                                json!({"result": {"content": [{"type": "text", "text": text}],
                                    "structuredContent": {"tokens_in": 3, "tokens_out": 2, "tokens_cached": 0,
                                        "tokens_cache_write": 0, "model_used": "m", "stop_reason": "stop", "completion": ""}}})
                            }
                            false => {
                                let mut error = match says["code"] == "STAYS" {
                                    true => {
                                        json!({"code": "MODEL_FAILED", "message": "no", "transient": false})
                                    }
                                    false => {
                                        json!({"code": says["code"], "message": "no", "transient": true})
                                    }
                                };
                                if says["after"].is_u64() {
                                    error["retry_after_s"] = says["after"].clone();
                                }
                                json!({"result": {"content": [], "isError": true, "structuredContent": {"ok": false, "error": error}}})
                            }
                        }
                    }
                    "big" if params["arguments"]["fails"] == true => {
                        json!({"error": {"code": 1, "message": "x".repeat(params["arguments"]["n"].as_u64().unwrap() as usize)}})
                    }
                    "big" if params["arguments"]["image"] == true => {
                        let data =
                            "iVBO".repeat(params["arguments"]["n"].as_u64().unwrap() as usize / 4);
                        json!({"result": {"content": [{"type": "image", "mimeType": "image/png", "data": data}]}})
                    }
                    "rows" => {
                        let of = |what: &str| {
                            "x".repeat(params["arguments"][what].as_u64().unwrap() as usize)
                        };
                        json!({"result": {"content": [{"type": "text", "text": of("text")}], "structuredContent": {"rows": of("rows")}}})
                    }
                    "big" => {
                        json!({"result": {"content": [{"type": "text", "text": "x".repeat(params["arguments"]["n"].as_u64().unwrap() as usize)}]}})
                    }
                    "ask" => {
                        let ask = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}});
                        answers
                            .write_all(format!("{ask}\n").as_bytes())
                            .await
                            .unwrap();
                        json!({"result": {"content": [{"type": "text", "text": "asked"}]}})
                    }
                    name => {
                        json!({"result": {"content": [{"type": "text", "text": format!("{name} {}", params["arguments"])}]}})
                    }
                },
                _ => json!({"error": {"code": -32601, "message": "no"}}),
            };
            let mut answer = said;
            answer["jsonrpc"] = json!("2.0");
            answer["id"] = serde_json::from_str(id.text()).unwrap();
            if answers
                .write_all(format!("{answer}\n").as_bytes())
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

/// The daemon.
pub(crate) struct World {
    pub(crate) daemon: Arc<Daemon>,
    directory: tempfile::TempDir,
}

/// An agent that runs.
pub(crate) struct Agent {
    pub(crate) door: Arc<AgentSocket>,
    pub(crate) directory: PathBuf,
    open: Option<Box<dyn ListenGuard>>,
}

/// The servers of a registry, none of which is refused.
fn loaded(registry: &str) -> LoadedRegistry {
    let entries = parse(registry.as_bytes(), "registry").unwrap().servers;
    let entry = |(id, entry)| {
        let entry = Arc::new(entry);
        (
            id,
            Entry {
                entry,
                refusal: None,
            },
        )
    };
    LoadedRegistry {
        servers: entries.into_iter().map(entry).collect(),
        ..LoadedRegistry::default()
    }
}

impl World {
    /// One with this registry and this client policy, whose socket is listened at too.
    pub(crate) async fn new(registry: &str, clients: &str) -> World {
        World::within(
            tempfile::Builder::new().prefix("cd-").tempdir().unwrap(),
            registry,
            clients,
        )
        .await
    }

    /// The same in a directory that is there already.
    pub(crate) async fn within(
        directory: tempfile::TempDir,
        registry: &str,
        clients: &str,
    ) -> World {
        let path = directory.path();
        let trail = Trail::open(TrailOptions {
            state_dir: path.to_owned(),
            sync: false,
            witness: Arc::new(Nobody),
            notify: |_, _| {},
            limits: SegmentLimits::default(),
        })
        .unwrap();
        let socket = path.join("colibri.sock").display().to_string();
        let state = path.display().to_string();
        let config = DaemonFlags::try_parse_from([
            "colibri-mcpd",
            "--external-call",
            "--write",
            "--socket",
            &socket,
            "--state-dir",
            &state,
            "--skills",
            &state,
        ])
        .unwrap()
        .resolve()
        .unwrap();
        let clients =
            Clients::parse(clients.as_bytes(), "clients.json", Box::new(SystemAccounts)).unwrap();
        let results = colibri_mcpd::results::Results::open(path, clients.limits()).unwrap();
        let limits = *clients.limits();
        let budget = Arc::new(ByteBudget::new(1 << 30));
        let store = Arc::new(Database::open(path).unwrap());
        let spawner = Arc::new(InMemory);
        let secrets = Arc::new(SecretStore::beside(&path.join("external-mcp.json")));
        let recorder = Arc::new(Recorder::Trail(trail));
        let rules = Arc::new(CallRules {
            gates: ArcSwap::from_pointee(Gates::new(true, true)),
            clients: ArcSwap::from_pointee(clients),
        });
        let results = Arc::new(results);
        let ledger = Arc::new(CostLedger::default());
        let unrecorded: Box<RecordEvent> = Box::new(|_| Ok(()));
        let agents = AgentRoster::new(agents::AgentDependencies {
            spawner: spawner.clone(),
            recorder: recorder.clone(),
            rules: rules.clone(),
            results: results.clone(),
            secrets: secrets.clone(),
            socket: config.socket.clone(),
            state_dir: path.to_owned(),
            store: store.clone(),
            models: Arc::new(ModelRelays::new(
                unrecorded,
                ledger.clone(),
                budget.clone(),
                secrets.clone(),
            )),
            autospawn: false,
        })
        .unwrap();
        let chain = Arc::new(Chain {
            recorder,
            rules,
            metrics: CallMetrics::default(),
            ledger,
            approvals: ApprovalQueue::new(DEFAULT_EXPIRY),
            states: RequestStates::of_this_process().unwrap(),
            tickets: Default::default(),
            results,
            flows: Default::default(),
            catalog: Default::default(),
            board: agents.board().clone(),
        });
        let host = ServerHost::new(servers::ServerDependencies {
            spawner,
            store: store.clone(),
            chain: chain.clone(),
            budget: budget.clone(),
            max_frame: PIPE,
            secrets,
            tokens: Arc::new(colibri_outbound::oauth::TokenStore::below(path)),
            call_timeout: Duration::from_secs(300),
            pins: None,
            shares: Arc::new(UserQuotas::new(limits.quota(None))),
        });
        host.load(&loaded(registry));
        let sources = SourceMetadata::recall(&config).unwrap();
        let daemon = Daemon::new(
            config,
            sources,
            chain,
            (host, agents),
            store,
            budget,
            AgentDoors::beside,
        );
        let listener = Listener::bind(&daemon.config.socket).unwrap();
        let serving = daemon.clone();
        tokio::spawn(async move { listener.accept(&serving).await });
        World { daemon, directory }
    }

    /// Takes over another registry, as a reload does.
    pub(crate) fn load(&self, registry: &str) {
        self.daemon.host.load(&loaded(registry));
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Ends it, and leaves its directory.
    pub(crate) async fn end(self) -> tempfile::TempDir {
        self.daemon.end().await;
        self.daemon.chain.close().unwrap();
        self.directory
    }

    /// An agent that runs for [`PERSON`] with these `tools` of its entry.
    pub(crate) fn agent(&self, session: &str, tools: &str) -> Agent {
        self.agent_for(session, tools, PERSON, None)
    }

    pub(crate) fn agent_for(
        &self,
        session: &str,
        tools: &str,
        person: Caller,
        max_bytes: Option<u64>,
    ) -> Agent {
        let tools = format!(r#"{{"tools":{tools}}}"#);
        let document = colibri_json::Document::parse(tools.as_bytes(), "agents").unwrap();
        let keys = document.root().object(&["tools"]).unwrap();
        let door = Arc::new(AgentSocket {
            agent: "coder".into(),
            session: session.into(),
            tools: AgentTools::read(keys.get("tools").unwrap()).unwrap(),
            shared_tasks: false,
            max_bytes,
            max_bytes_place: RulePlace::outside_files("agents.coder.budget.session_bytes"),
            max_tokens: None,
            flow: Default::default(),
            spent: AgentUsage::default(),
            lease: Default::default(),
        });
        let (directory, open) = self.daemon.doors.open(door.clone(), person).unwrap();
        Agent {
            door,
            directory: directory.into_path_buf(),
            open: Some(open),
        }
    }

    /// Somebody who connects to the daemon's own socket as the one who runs the test.
    pub(crate) async fn operator(&self) -> Peer {
        Peer::connect(&self.daemon.config.socket).await
    }

    /// The lines of the trail so far.
    pub(crate) fn trail(&self) -> Vec<Value> {
        let mut segments: Vec<_> = std::fs::read_dir(self.path().join("trail"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "jsonl")
            })
            .collect();
        segments.sort();
        let lines = segments
            .iter()
            .map(|path| std::fs::read_to_string(path).unwrap());
        lines
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .map(|line| serde_json::from_str::<Value>(&line).unwrap()["rec"].take())
            .collect()
    }
}

impl Agent {
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("colibri.sock")
    }

    /// A connection to its agent socket that has shaken hands.
    pub(crate) async fn connect(&self) -> Peer {
        Peer::connect(&self.socket()).await
    }

    pub(crate) fn mode(&self) -> [u32; 3] {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        [
            mode(self.directory.parent().unwrap()),
            mode(&self.directory),
            mode(&self.socket()),
        ]
    }

    pub(crate) fn close(&mut self) {
        self.open = None;
    }
}

/// A client of either socket.
pub(crate) struct Peer {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    next: u64,
}

impl Peer {
    pub(crate) async fn connect(socket: &Path) -> Peer {
        let mut caller = Peer::fresh(socket).await;
        caller.hands(json!({})).await;
        caller
    }

    /// One that has said nothing yet.
    pub(crate) async fn fresh(socket: &Path) -> Peer {
        let (reader, writer) = UnixStream::connect(socket).await.unwrap().into_split();
        Peer {
            reader: BufReader::new(reader),
            writer,
            next: 1,
        }
    }

    /// Shakes hands with these capabilities.
    pub(crate) async fn hands(&mut self, capabilities: Value) {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}});
        assert!(self.ask("initialize", params).await["result"].is_object());
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string())
            .await;
    }

    pub(crate) async fn send(&mut self, line: &str) {
        self.writer
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// The next line; `None` at the end.
    pub(crate) async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = timeout(PATIENCE, self.reader.read_line(&mut line))
            .await
            .expect("no line");
        (read.unwrap_or(0) > 0).then_some(line)
    }

    /// The next message, past that a list has changed, which is told when a server's start is over.
    pub(crate) async fn message(&mut self) -> Value {
        loop {
            let message: Value =
                serde_json::from_str(&self.line().await.expect("it is closed")).unwrap();
            let method = message["method"].as_str().unwrap_or_default();
            if !method.ends_with("/list_changed") {
                return message;
            }
        }
    }

    /// Sends a request, and does not wait.
    pub(crate) async fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        )
        .await;
        id
    }

    /// The answer to a request, past whatever else is told.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.message().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(id).await
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }
    /// The names in a list.
    pub(crate) async fn names(&mut self, list: &str, within: &str, key: &str) -> Vec<String> {
        let answer = self.ask(list, json!({})).await;
        let items = answer["result"][within]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"));
        items
            .iter()
            .map(|item| item[key].as_str().unwrap().to_owned())
            .collect()
    }
}

/// The code of Colibri's own error in a result.
pub(crate) fn code(answer: &Value) -> &str {
    answer["result"]["_meta"]["org.colibri/error"]["code"]
        .as_str()
        .unwrap_or_default()
}

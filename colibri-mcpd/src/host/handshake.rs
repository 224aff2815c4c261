//! Opening a server process: started, its era found out or remembered, its handshake done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};

use super::Host;
use super::catalogue::{Catalogue, Definition};
use super::pool::{ProcessKey, Server, Tie};
use super::session::Session;
use crate::confine::{SpawnError, Spawned};
use crate::wire::Outbox;
use colibri_protocol::upstream::{self, Probe, ServerSays, Unusable, Walk};
use colibri_protocol::{Code, Failure, Version};
use colibri_text::visible;

/// How long a server may take to answer the probe before it counts as legacy.
const PROBE: Duration = Duration::from_secs(5);

/// Between two tries of who waits its turn, unless a process ends meanwhile.
const BETWEEN_TRIES: Duration = Duration::from_millis(500);
/// However many end.
const LEAST_BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Why there is no process.
pub(super) enum NotStarted {
    /// The server failed. The message is the cause alone.
    Failed(Failure),
    /// It is not now its turn: a limit is reached, or the helper says so. No failure of the server.
    NotNow(Failure),
}

impl From<Failure> for NotStarted {
    fn from(failure: Failure) -> NotStarted {
        NotStarted::Failed(failure)
    }
}

/// Starts a process of a server, opens it in the era that it speaks, and asks it for its tools: a process whose
/// definitions were not judged is given to nobody.
pub(super) async fn start(host: &Arc<Host>, server: &Arc<Server>, key: ProcessKey) -> Result<Arc<Session>, NotStarted> {
    let until = Instant::now() + server.limits.start;
    let limit = server.limits.start.as_millis();
    let turn = Turn::default();
    let start = async {
        let opening = open(host, server, key, &turn).await?;
        let session = &opening.session;
        listen(session);
        let catalogue = walk_tools(session, server.limits.start).await?;
        server.learned(session, catalogue).await?;
        Ok(opening.keep())
    };
    let late = |message: String| Failure::new(Code::TimeoutStart, message).of_server(&*server.id);
    match timeout_at(until, start).await {
        // No call is lost with a process that has none yet.
        Ok(Err(NotStarted::Failed(failure))) if failure.code == Code::ServerDied => {
            Err(broken(server, &failure.message).into())
        }
        Ok(result) => result,
        Err(_) => Err(match turn.waits_for() {
            Some(why) => NotStarted::NotNow(late(format!(
                "its turn did not come within {limit} ms (start_timeout_ms): {why}"
            ))),
            None => late(format!("not ready within {limit} ms (start_timeout_ms)")).into(),
        }),
    }
}

/// What a start waits for that is over a limit.
#[derive(Default)]
struct Turn(Mutex<Option<String>>);

impl Turn {
    fn set(&self, why: Option<String>) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = why;
    }

    fn waits_for(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// Who of a server's starts waits for its turn, in the order in which they came.
#[derive(Default)]
pub(super) struct Queue {
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

/// One that waits, until it is dropped.
struct Waiting<'a>(&'a Queue);

impl<'a> Waiting<'a> {
    fn new(queue: &'a Queue) -> Waiting<'a> {
        queue.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(queue)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Has a process started. What is over a limit waits its turn: behind those who wait already, and one asks for all.
async fn spawned(host: &Host, server: &Server, turn: &Turn) -> Result<Spawned, NotStarted> {
    let queue = &server.queue;
    if queue.waiting.load(Ordering::Acquire) == 0 {
        match host.spawner.spawn(host.order(server)?).await {
            Err(error) if error.is_limit() => turn.set(Some(error.to_string())),
            other => return other.map_err(|error| not_started(host, server, &error)),
        }
    } else {
        turn.set(Some("others wait for theirs".to_owned()));
    }
    let _waiting = Waiting::new(queue);
    let _turn = queue.turn.lock().await;
    let mut processes = host.processes.subscribe();
    loop {
        processes.mark_unchanged();
        match host.spawner.spawn(host.order(server)?).await {
            Err(error) if error.is_limit() => turn.set(Some(error.to_string())),
            other => {
                turn.set(None);
                return other.map_err(|error| not_started(host, server, &error));
            }
        }
        sleep(LEAST_BETWEEN_TRIES).await;
        let _ = timeout(BETWEEN_TRIES, processes.changed()).await;
    }
}

fn not_started(host: &Host, server: &Server, error: &SpawnError) -> NotStarted {
    let code = if error.is_transient() {
        Code::IntegrationUnavailable
    } else {
        Code::ServerUnstartable
    };
    let failure = Failure::new(code, host.redact(&error.to_string())).of_server(&*server.id);
    match error {
        SpawnError::TryLater { .. } => NotStarted::NotNow(failure),
        _ => NotStarted::Failed(failure),
    }
}

/// A process that is being opened. Unless it is kept it ends, whatever became of opening it.
struct Opening {
    session: Arc<Session>,
    kept: bool,
}

impl Opening {
    fn keep(mut self) -> Arc<Session> {
        self.kept = true;
        self.session.clone()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if !self.kept {
            self.session.end("its handshake failed");
        }
    }
}

async fn open(host: &Arc<Host>, server: &Arc<Server>, key: ProcessKey, turn: &Turn) -> Result<Opening, NotStarted> {
    if let Some(version) = server.version() {
        let opening = spawn(host, server, key, turn, version).await?;
        match greet(&opening.session, version).await {
            Ok(()) => return Ok(opening),
            Err(failure) => {
                info!(
                    server = &*server.id,
                    "what was known of its era does not hold: {}", failure.message
                );
                server.set_version(None);
            }
        }
    }
    // The era is found out on a process of its own: a legacy server may exit on the probe, and a process is locked to
    // the era of its first message.
    let opening = spawn(host, server, key, turn, Version::LATEST).await?;
    let probe = opening.session.ask(upstream::discover, PROBE, Code::TimeoutStart).await;
    let legacy = match &probe {
        Ok(answered) => {
            let outcome = match answered.outcome() {
                Ok(result) => Ok(result.ok_or_else(|| broken(server, "an empty answer"))?),
                Err(error) => Err(error.ok_or_else(|| broken(server, "an empty answer"))?),
            };
            match upstream::read_probe(outcome).map_err(|error| unusable(server, &error))? {
                Probe::Modern(says) => {
                    learn(server, &opening.session, &says);
                    false
                }
                Probe::Legacy => true,
            }
        }
        Err(failure) => {
            debug!(server = &*server.id, "no answer to the probe: {}", failure.message);
            true
        }
    };
    if !legacy {
        return Ok(opening);
    }
    opening.session.end("it was only asked which MCP versions it speaks");
    drop(opening);
    let opening = spawn(host, server, key, turn, Version::LATEST_LEGACY).await?;
    greet(&opening.session, Version::LATEST_LEGACY).await?;
    Ok(opening)
}

/// The handshake of a version's era.
async fn greet(session: &Arc<Session>, version: Version) -> Result<(), Failure> {
    let server = session.owner();
    let message = if version.is_modern() {
        upstream::discover
    } else {
        upstream::initialize
    };
    let answered = session.ask(message, server.limits.start, Code::TimeoutStart).await?;
    match answered.outcome() {
        Ok(Some(result)) if version.is_modern() => {
            match upstream::read_probe(Ok(result)).map_err(|error| unusable(&server, &error))? {
                Probe::Modern(says) => learn(&server, session, &says),
                Probe::Legacy => return Err(broken(&server, "it is not modern any more")),
            }
        }
        Ok(Some(result)) => {
            let says = upstream::read_initialize_result(result).map_err(|error| unusable(&server, &error))?;
            learn(&server, session, &says);
            session.tell(&upstream::initialized());
        }
        Err(Some(error)) => {
            // Before it is cut: half a secret is not recognised.
            let text: String = server.redact(error.text()).chars().take(300).collect();
            return Err(broken(
                &server,
                &format!("it refused the handshake: {}", visible(&text)),
            ));
        }
        Ok(None) | Err(None) => return Err(broken(&server, "an empty answer")),
    }
    Ok(())
}

fn learn(server: &Server, session: &Session, says: &ServerSays<'_>) {
    session.set_version(says.version);
    session.set_says(Said {
        tools: says.tools,
        tools_list_changed: says.tools_list_changed,
        capabilities: says
            .capabilities
            .map(|json| Bytes::copy_from_slice(json.text().as_bytes())),
        server_info: says
            .server_info
            .map(|json| Bytes::copy_from_slice(json.text().as_bytes())),
        instructions: says.instructions.as_deref().map(str::to_owned),
    });
    server.set_version(Some(says.version));
    info!(
        server = &*server.id,
        pid = session.pid,
        version = says.version.as_str(),
        peer = says.label(),
        "server ready"
    );
}

/// What a server said of itself in its handshake.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// It has tools.
    pub tools: bool,
    /// It tells when they change.
    pub tools_list_changed: bool,
    /// `capabilities`, as it wrote them.
    pub capabilities: Option<Bytes>,
    /// `serverInfo`, as it wrote it.
    pub server_info: Option<Bytes>,
    /// Its instructions.
    pub instructions: Option<String>,
}

async fn spawn(
    host: &Arc<Host>,
    server: &Arc<Server>,
    key: ProcessKey,
    turn: &Turn,
    version: Version,
) -> Result<Opening, NotStarted> {
    let spawned = spawned(host, server, turn).await?;
    let outbox = Arc::new(Outbox::new(super::session::MOST_UNREAD, host.budget.clone()));
    let session = Session::new(
        server.clone(),
        host.next_process(),
        &*spawned.process,
        version,
        outbox,
        server.allowance(key),
        host.chain(),
    );
    host.process_started();
    let tie = Arc::new(Tie {
        server: server.clone(),
        key,
    });
    tokio::spawn(session.clone().run(spawned, host.max_frame, host.secrets.clone(), tie));
    Ok(Opening { session, kept: false })
}

fn broken(server: &Server, what: &str) -> Failure {
    // What a server says of itself may hold what it was given.
    let what = server.redact(what);
    Failure::new(Code::IntegrationUnavailable, what).of_server(&*server.id)
}

fn unusable(server: &Server, error: &Unusable) -> Failure {
    broken(server, &error.to_string())
}

/// Reads all pages of a server's tools.
pub(super) async fn walk_tools(session: &Arc<Session>, limit: Duration) -> Result<Catalogue, Failure> {
    let said = session.says();
    let mut catalogue = Catalogue {
        seen: true,
        version: Some(session.version()),
        capabilities: said.capabilities,
        server_info: said.server_info,
        instructions: said.instructions,
        ..Catalogue::default()
    };
    if !said.tools {
        return Ok(catalogue);
    }
    let version = session.version();
    let mut walk = Walk::default();
    let mut cursor: Option<String> = None;
    loop {
        let at = cursor.take();
        let ask = |number| upstream::tools_list(number, version, at.as_deref());
        let answered = session.ask(ask, limit, Code::TimeoutCall).await?;
        let result = match answered.outcome() {
            Ok(Some(result)) => result,
            Err(Some(error)) => {
                let text: String = error.text().chars().take(300).collect();
                return Err(broken(&session.owner(), &format!("tools/list: {}", visible(&text))));
            }
            Ok(None) | Err(None) => return Err(broken(&session.owner(), "tools/list: an empty answer")),
        };
        let page = walk
            .read_tools(result)
            .map_err(|error| unusable(&session.owner(), &error))?;
        if page.left_out > 0 {
            let reasons = page.reasons.join("; ");
            warn!(
                server = &*session.owner().id,
                left_out = page.left_out,
                "tools that cannot be offered: {reasons}"
            );
        }
        catalogue.tools.extend(page.tools.iter().map(|tool| Definition {
            name: tool.name.clone().into_owned(),
            raw: Bytes::copy_from_slice(tool.definition.text().as_bytes()),
        }));
        catalogue.ttl_ms = match (catalogue.ttl_ms, page.ttl_ms) {
            (Some(least), Some(ttl)) => Some(least.min(ttl)),
            (least, ttl) => least.or(ttl),
        };
        match page.next_cursor {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(catalogue),
        }
    }
}

/// Asks a modern server to tell when its tools change.
fn listen(session: &Session) {
    let said = session.says();
    if session.version().is_modern() && said.tools_list_changed {
        session.ask_without_answer(upstream::listen_to_tools);
    }
}

//! Opening a server process: started, its era found out or remembered, its handshake done.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};

use super::Host;
use super::catalogue::{Catalogue, Definition};
use super::pool::{ProcessKey, Server, Tie};
use super::session::Session;
use crate::wire::Outbox;
use colibri_protocol::upstream::{self, Probe, ServerSays, Unusable, Walk};
use colibri_protocol::{Code, Failure, Version};
use colibri_text::visible;

/// How long a server may take to answer the probe before it counts as legacy.
const PROBE: Duration = Duration::from_secs(5);

/// Starts a process of a server, opens it in the era that it speaks, and asks it for its tools: a process whose
/// definitions were not judged is given to nobody.
pub(super) async fn start(host: &Arc<Host>, server: &Arc<Server>, key: ProcessKey) -> Result<Arc<Session>, Failure> {
    let until = Instant::now() + server.limits.start;
    let limit = server.limits.start.as_millis();
    let start = async {
        // No call is lost with a process that has none yet.
        let of_start = |failure: Failure| match failure.code {
            Code::ServerDied => broken(server, &failure.message),
            _ => failure,
        };
        let opening = open(host, server, key).await.map_err(of_start)?;
        let session = &opening.session;
        listen(session);
        let catalogue = walk_tools(session, server.limits.start).await.map_err(of_start)?;
        server.learned(session, catalogue).await?;
        Ok(opening.keep())
    };
    timeout_at(until, start).await.unwrap_or_else(|_| {
        let message = format!("{}: not ready within {limit} ms (start_timeout_ms)", server.id);
        Err(Failure::new(Code::TimeoutStart, message).of_server(&*server.id))
    })
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

async fn open(host: &Arc<Host>, server: &Arc<Server>, key: ProcessKey) -> Result<Opening, Failure> {
    if let Some(version) = server.version() {
        let opening = spawn(host, server, key, version).await?;
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
    let opening = spawn(host, server, key, Version::LATEST).await?;
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
    let opening = spawn(host, server, key, Version::LATEST_LEGACY).await?;
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

async fn spawn(host: &Arc<Host>, server: &Arc<Server>, key: ProcessKey, version: Version) -> Result<Opening, Failure> {
    let order = host.order(server)?;
    let spawned = host.spawner.spawn(order).await.map_err(|error| {
        let code = if error.is_transient() {
            Code::IntegrationUnavailable
        } else {
            Code::ServerUnstartable
        };
        let message = host.redact(&error.to_string());
        Failure::new(code, format!("{} was not started: {message}", server.id)).of_server(&*server.id)
    })?;
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
    Failure::new(Code::IntegrationUnavailable, format!("{}: {what}", server.id)).of_server(&*server.id)
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

//! Opening a server's process: its era found out or remembered, its handshake done, its tools asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tracing::{debug, info, warn};

use super::instance::{PeerInfo, Session};
use super::launch::{Launch, NotStarted, Opening};
use super::listing::{Catalogue, Definition, Listing};
use colibri_protocol::upstream::{self, Probe, ServerSays, Walk};
use colibri_protocol::{Code, Failure, Feature, Version};
use colibri_text::visible;

/// How long a server may take to answer the probe before it counts as legacy.
const PROBE: Duration = Duration::from_secs(5);

/// Starts a process of a server, opens it in the era that it speaks, and asks it for its tools.
///
/// # Errors
/// Why there is no process.
pub(super) async fn start(launch: &Launch) -> Result<(Opening, Catalogue), NotStarted> {
    let opening = open(launch).await?;
    listen(&opening.session);
    let said = walk_tools(&opening.session, launch.limits.start).await?;
    Ok((opening, said))
}

/// Opens a process in the era that its server speaks.
async fn open(launch: &Launch) -> Result<Opening, NotStarted> {
    if let Some(version) = launch.version() {
        let opening = launch.process(version).await?;
        match greet(launch, &opening.session, version).await {
            Ok(()) => return Ok(opening),
            Err(failure) => {
                info!(
                    server = &*launch.server,
                    "what was known of its era does not hold: {}", failure.message
                );
                launch.set_version(None);
            }
        }
    }
    // The era is found out on a process of its own: a legacy server may exit on the probe, and a process is locked to
    // the era of its first message.
    let opening = launch.process(Version::LATEST).await?;
    let probe = opening.session.ask(upstream::discover, PROBE, Code::TimeoutStart).await;
    let legacy = match &probe {
        Ok(answered) => {
            let outcome = match answered.outcome() {
                Ok(result) => Ok(result.ok_or_else(|| launch.broken("an empty answer"))?),
                Err(error) => Err(error.ok_or_else(|| launch.broken("an empty answer"))?),
            };
            match upstream::read_probe(outcome).map_err(|error| launch.broken(&error.to_string()))? {
                Probe::Modern(says) => {
                    learn(launch, &opening.session, &says);
                    false
                }
                Probe::Legacy => true,
            }
        }
        Err(failure) => {
            debug!(server = &*launch.server, "no answer to the probe: {}", failure.message);
            true
        }
    };
    if !legacy {
        return Ok(opening);
    }
    opening.session.end("it was only asked which MCP versions it speaks");
    drop(opening);
    let opening = launch.process(Version::LATEST_LEGACY).await?;
    greet(launch, &opening.session, Version::LATEST_LEGACY).await?;
    Ok(opening)
}

/// The handshake of a version's era.
async fn greet(launch: &Launch, session: &Session, version: Version) -> Result<(), Failure> {
    let message = if version.is_modern() {
        upstream::discover
    } else {
        upstream::initialize
    };
    let answered = session.ask(message, launch.limits.start, Code::TimeoutStart).await?;
    match answered.outcome() {
        Ok(Some(result)) if version.is_modern() => {
            match upstream::read_probe(Ok(result)).map_err(|error| launch.broken(&error.to_string()))? {
                Probe::Modern(says) => learn(launch, session, &says),
                Probe::Legacy => return Err(launch.broken("it is not modern any more")),
            }
        }
        Ok(Some(result)) => {
            let says = upstream::read_initialize_result(result).map_err(|error| launch.broken(&error.to_string()))?;
            learn(launch, session, &says);
            session.tell(&upstream::initialized());
        }
        Err(Some(error)) => {
            // Before it is cut: half a secret is not recognised.
            let text: String = launch.context.redact(error.text()).chars().take(300).collect();
            return Err(launch.broken(&format!("it refused the handshake: {}", visible(&text))));
        }
        Ok(None) | Err(None) => return Err(launch.broken("an empty answer")),
    }
    Ok(())
}

fn learn(launch: &Launch, session: &Session, says: &ServerSays<'_>) {
    session.set_version(says.version);
    session.set_says(PeerInfo {
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
    launch.set_version(Some(says.version));
    info!(
        server = &*launch.server,
        pid = session.pid,
        version = says.version.as_str(),
        peer = says.label(),
        "server ready"
    );
}

/// Reads all pages of a server's tools.
pub(super) async fn walk_tools(session: &Session, limit: Duration) -> Result<Catalogue, Failure> {
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
    let mut tools = Listing::default();
    let mut cursor: Option<String> = None;
    loop {
        let at = cursor.take();
        let ask = |number| upstream::tools_list(number, version, at.as_deref());
        let answered = session.ask(ask, limit, Code::TimeoutCall).await?;
        let result = match answered.outcome() {
            Ok(Some(result)) => result,
            Err(Some(error)) => {
                let text: String = error.text().chars().take(300).collect();
                return Err(broken(session, &format!("tools/list: {}", visible(&text))));
            }
            Ok(None) | Err(None) => return Err(broken(session, "tools/list: an empty answer")),
        };
        let page = walk
            .read_tools(result)
            .map_err(|error| broken(session, &error.to_string()))?;
        if page.left_out > 0 {
            let reasons = page.reasons.join("; ");
            warn!(
                server = &*session.server,
                left_out = page.left_out,
                "tools that cannot be offered: {reasons}"
            );
        }
        tools.definitions.extend(page.tools.iter().map(|tool| Definition {
            name: tool.name.clone().into_owned(),
            raw: Bytes::copy_from_slice(tool.definition.text().as_bytes()),
        }));
        tools.ttl_ms = match (tools.ttl_ms, page.ttl_ms) {
            (Some(least), Some(ttl)) => Some(least.min(ttl)),
            (least, ttl) => least.or(ttl),
        };
        match page.next_cursor {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    catalogue.lists[Feature::Tool.index()] = Arc::new(tools);
    Ok(catalogue)
}

/// Asks a modern server to tell when its tools change.
fn listen(session: &Session) {
    let said = session.says();
    if session.version().is_modern() && said.tools_list_changed {
        session.ask_without_answer(upstream::listen_to_tools);
    }
}

fn broken(session: &Session, what: &str) -> Failure {
    // What a server says of itself may hold what it was given.
    let what = session.redact(what);
    Failure::new(Code::IntegrationUnavailable, what).of_server(&*session.server)
}

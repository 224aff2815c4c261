//! Opening a server's process: its era found out or remembered, its handshake done, its lists read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tracing::{debug, info, warn};

use super::launch::{Launch, NotStarted, Opening};
use super::listing::{Catalogue, ServerDefinition, ServerList};
use super::session::{OwnReply, PeerInfo, ServerSession};
use super::ssh;
use crate::registry::EntryTransport;
use colibri_outbound::EndpointTransport as Spoken;
use colibri_protocol::rpc_error::METHOD_NOT_FOUND;
use colibri_protocol::upstream::{self, ListPage, ListWalk, Probe, ServerSays};
use colibri_protocol::{Code, Failure, Feature, Features, Method, MirroredArgument, Version};
use colibri_text::{brief, visible};
use colibri_wire::Json;
use tokio::time::timeout;

/// The time in which a server must answer the probe before it counts as legacy.
const PROBE: Duration = Duration::from_secs(5);
/// The time for which a start waits for the lists other than the tools.
const OTHERS: Duration = Duration::from_secs(2);
/// The most that are named of what a server lists and cannot be offered.
const MAX_LEFT_OUT: usize = 10;

/// Starts a process of a server, opens it in the era that it speaks, and asks it what it offers.
/// `known` is what its server was known to offer.
///
/// # Errors
/// Why there is no process.
pub(super) async fn start(
    launch: &Launch,
    known: &Catalogue,
) -> Result<(Opening, Catalogue), NotStarted> {
    let opening = open(launch).await?;
    opening.session.listen_first();
    let said = read_first(&opening.session, known, launch.spec.limits.start).await?;
    Ok((opening, said))
}

/// Opens a process in the era that its server speaks.
async fn open(launch: &Launch) -> Result<Opening, NotStarted> {
    if let Some(version) = launch.spec.version() {
        let opening = launch.process(version).await?;
        match greet(launch, &opening.session, version).await {
            Ok(()) => return Ok(opening),
            Err(failure) => {
                info!(
                    server = &*launch.spec.id,
                    "what was known of its era does not hold: {}", failure.message
                );
                launch.spec.set_version(None);
            }
        }
    }
    if matches!(
        &launch.spec.entry.transport,
        EntryTransport::Http {
            spoken: Spoken::Events,
            ..
        }
    ) {
        // It is a transport of the legacy era.
        let opening = launch.process(Version::LATEST_LEGACY).await?;
        greet(launch, &opening.session, Version::LATEST_LEGACY).await?;
        return Ok(opening);
    }
    // The era is found out on a process of its own: a legacy server may exit on the probe, and a
    // process is locked to the era of its first message.
    let opening = launch.process(Version::LATEST).await?;
    // Behind a URL silence is a slow network, and no legacy server's way to answer.
    let elsewhere = launch.spec.entry.ssh();
    let patience = match elsewhere {
        // A daemon answers there, of the modern era, once ssh(1) is through.
        Some(_) => launch.spec.limits.start * 3 / 4,
        None if opening.session.is_remote => launch.spec.limits.start / 2,
        None => PROBE,
    };
    let ask = || {
        opening
            .session
            .ask(upstream::discover, patience, Code::TimeoutStart)
    };
    let mut probe = ask().await;
    if probe.as_ref().is_ok_and(contradicts_itself) {
        // It refused the version that it names as supported: it is asked for that one once more.
        probe = ask().await;
    }
    let legacy = match &probe {
        Ok(answered) => {
            let outcome = match answered.outcome() {
                Ok(result) => {
                    Ok(result.ok_or_else(|| launch.spec.server_failure("an empty answer"))?)
                }
                Err(error) => {
                    Err(error.ok_or_else(|| launch.spec.server_failure("an empty answer"))?)
                }
            };
            match upstream::read_probe(outcome)
                .map_err(|error| launch.spec.server_failure(&error.to_string()))?
            {
                Probe::Modern(says) => {
                    learn(launch, &opening.session, &says);
                    false
                }
                Probe::Legacy => true,
            }
        }
        // Nothing reached a server behind a URL, or it wants to know who asks: another era would be
        // no use.
        Err(failure)
            if opening.session.is_remote
                && matches!(
                    failure.code,
                    Code::IntegrationUnavailable
                        | Code::ServerUnstartable
                        | Code::ServerDenied
                        | Code::ServerDied
                ) =>
        {
            return Err(failure.clone().into());
        }
        Err(failure) if let Some(target) = elsewhere => {
            return Err(ssh::unanswered(target, failure.clone()).into());
        }
        Err(failure) => {
            debug!(
                server = &*launch.spec.id,
                "no answer to the probe: {}", failure.message
            );
            true
        }
    };
    if !legacy {
        return Ok(opening);
    }
    opening
        .session
        .end("it was only asked which MCP versions it speaks");
    drop(opening);
    let opening = launch.process(Version::LATEST_LEGACY).await?;
    greet(launch, &opening.session, Version::LATEST_LEGACY).await?;
    Ok(opening)
}

/// True if an answer to the probe is none that can be used.
fn contradicts_itself(answered: &OwnReply) -> bool {
    let outcome = match answered.outcome() {
        Ok(result) => result.map(Ok),
        Err(error) => error.map(Err),
    };
    outcome.is_some_and(|outcome| upstream::read_probe(outcome).is_err())
}

/// The handshake of a version's era.
async fn greet(launch: &Launch, session: &ServerSession, version: Version) -> Result<(), Failure> {
    let may_ask = launch.may_ask.what;
    let message = |number| match version.is_modern() {
        true => upstream::discover(number),
        false => upstream::initialize(number, may_ask),
    };
    let answered = session
        .ask(message, launch.spec.limits.start, Code::TimeoutStart)
        .await?;
    match answered.outcome() {
        Ok(Some(result)) if version.is_modern() => {
            match upstream::read_probe(Ok(result))
                .map_err(|error| launch.spec.server_failure(&error.to_string()))?
            {
                Probe::Modern(says) => learn(launch, session, &says),
                Probe::Legacy => {
                    return Err(launch.spec.server_failure("it is not modern any more"));
                }
            }
        }
        Ok(Some(result)) => {
            let says = upstream::read_initialize_result(result)
                .map_err(|error| launch.spec.server_failure(&error.to_string()))?;
            learn(launch, session, &says);
            session.push(&upstream::initialized());
        }
        Err(Some(error)) => {
            // Before it is cut: half a secret is not recognised.
            let text: String = launch.spec.redact(error.text()).chars().take(300).collect();
            return Err(launch
                .spec
                .server_failure(&format!("it refused the handshake: {}", visible(&text))));
        }
        Ok(None) | Err(None) => return Err(launch.spec.server_failure("an empty answer")),
    }
    Ok(())
}

fn learn(launch: &Launch, session: &ServerSession, says: &ServerSays<'_>) {
    session.set_version(says.version);
    session.set_says(PeerInfo {
        can: says.can,
        capabilities: says
            .capabilities
            .map(|json| Bytes::copy_from_slice(json.text().as_bytes())),
        server_info: says
            .server_info
            .map(|json| Bytes::copy_from_slice(json.text().as_bytes())),
        instructions: says.instructions.as_deref().map(str::to_owned),
    });
    launch.spec.set_version(Some(says.version));
    info!(
        server = &*launch.spec.id,
        pid = session.pid,
        version = says.version.as_str(),
        peer = says.label(),
        "server ready"
    );
}

/// The facts of a process from its handshake and these lists.
fn introduced(session: &ServerSession, lists: [Arc<ServerList>; Feature::COUNT]) -> Catalogue {
    let said = session.says();
    Catalogue {
        seen: true,
        asks: false,
        version: Some(session.version()),
        lists,
        instructions: said.instructions,
        capabilities: said.capabilities,
        server_info: said.server_info,
    }
}

/// Reads a server's lists when it starts. Without its tools there is no start; the others are
/// waited for a little while, and those that do not come are what they were known to be: they are
/// read once more later.
async fn read_first(
    session: &ServerSession,
    known: &Catalogue,
    limit: Duration,
) -> Result<Catalogue, Failure> {
    let others = async |feature| match timeout(OTHERS, walk(session, feature, limit)).await {
        Ok(Ok(list)) => Some(list),
        Ok(Err(failure)) => {
            warn_of(session, feature, &failure);
            None
        }
        Err(_) => {
            session.definitions.changed(Features::from(feature));
            None
        }
    };
    let (tools, prompts, resources, templates, skills) = tokio::join!(
        walk(session, Feature::Tool, limit),
        others(Feature::Prompt),
        others(Feature::Resource),
        others(Feature::Template),
        others(Feature::Skill),
    );
    let or_known = |feature: Feature, read: Option<ServerList>| match read {
        Some(list) => Arc::new(list),
        None => known.lists[feature.index()].clone(),
    };
    let lists = [
        Arc::new(tools?),
        or_known(Feature::Prompt, prompts),
        or_known(Feature::Resource, resources),
        or_known(Feature::Template, templates),
        or_known(Feature::Skill, skills),
    ];
    Ok(introduced(session, lists))
}

/// Reads these lists of a process again; one that cannot be read stays as it was.
pub(super) async fn read_again(
    session: &ServerSession,
    features: Features,
    limit: Duration,
) -> Catalogue {
    let said = session.definitions.said().unwrap_or_default();
    let mut lists = said.lists.clone();
    for feature in features.iter() {
        match walk(session, feature, limit).await {
            Ok(list) => lists[feature.index()] = Arc::new(list),
            Err(failure) => warn_of(session, feature, &failure),
        }
    }
    introduced(session, lists)
}

fn warn_of(session: &ServerSession, feature: Feature, failure: &Failure) {
    let noun = feature.noun();
    warn!(
        server = &*session.spec.id,
        "could not read the list of its {noun}s: {failure}"
    );
}

/// Reads all pages of a server's list.
async fn walk(
    session: &ServerSession,
    feature: Feature,
    limit: Duration,
) -> Result<ServerList, Failure> {
    let mut list = ServerList::default();
    if !session.says().can.of(feature).offered {
        return Ok(list);
    }
    let (version, method) = (session.version(), Method::list_of(feature).as_str());
    let mut walk = ListWalk::of(feature);
    let mut cursor: Option<String> = None;
    loop {
        let at = cursor.take();
        let ask = |number| upstream::list(number, feature, version, at.as_deref());
        let answered = session.ask(ask, limit, Code::TimeoutCall).await?;
        let result = match answered.outcome() {
            Ok(Some(result)) => result,
            // Resources are declared as one with their templates, of which many servers have none.
            Err(Some(error)) if feature == Feature::Template && is_not_found(error) => {
                return Ok(list);
            }
            Err(Some(error)) => {
                let text: String = error.text().chars().take(300).collect();
                return Err(session
                    .spec
                    .server_failure(&format!("{method}: {}", visible(&text))));
            }
            Ok(None) | Err(None) => {
                return Err(session
                    .spec
                    .server_failure(&format!("{method}: an empty answer")));
            }
        };
        let mut page = walk
            .read(result)
            .map_err(|error| session.spec.server_failure(&error.to_string()))?;
        if feature == Feature::Tool {
            if session.is_remote && version.is_modern() {
                leave_out(&mut page, MirroredArgument::check_tool);
            } else if version == Version::V2025_11_25 {
                leave_out(&mut page, check_needs_no_task);
            }
        }
        if page.left_out > 0 {
            let (reasons, noun) = (page.reasons.join("; "), feature.noun());
            warn!(
                server = &*session.spec.id,
                left_out = page.left_out,
                "{noun}s that cannot be offered: {reasons}"
            );
        }
        list.left_out
            .extend(page.reasons.iter().map(|why| session.redact(why)));
        list.left_out.truncate(MAX_LEFT_OUT);
        list.definitions
            .extend(page.entries.iter().map(|entry| ServerDefinition {
                name: entry.name.clone().into_owned(),
                raw: Bytes::copy_from_slice(entry.definition.text().as_bytes()),
            }));
        list.ttl_ms = match (list.ttl_ms, page.ttl_ms) {
            (Some(least), Some(ttl)) => Some(least.min(ttl)),
            (least, ttl) => least.or(ttl),
        };
        match page.next_cursor {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(list),
        }
    }
}

/// Checks that a tool can be called otherwise than as a task (2025-11-25, basic/utilities/tasks,
/// `taskSupport`). One that cannot would be listed and never be called, since that version's tasks
/// are not relayed.
fn check_needs_no_task(definition: Json<'_>) -> Result<(), String> {
    let support = definition
        .get("execution")
        .and_then(|execution| execution.get("taskSupport"));
    match support.is_some_and(|support| support.is_string("required")) {
        true => {
            Err("it runs as a task only, and tasks of MCP 2025-11-25 are not relayed".to_owned())
        }
        false => Ok(()),
    }
}

/// Leaves out of a page the tools that a check is against.
fn leave_out(page: &mut ListPage<'_>, check: impl Fn(Json<'_>) -> Result<(), String>) {
    page.entries.retain(|entry| match check(entry.definition) {
        Ok(()) => true,
        Err(why) => {
            page.left_out += 1;
            if page.reasons.len() < MAX_LEFT_OUT {
                page.reasons
                    .push(format!("{}: {why}", brief(&entry.name, 100)));
            }
            false
        }
    });
}

fn is_not_found(error: Json<'_>) -> bool {
    let code = error
        .get("code")
        .and_then(|code| code.text().parse::<i64>().ok());
    code == Some(METHOD_NOT_FOUND)
}

//! `colibri/agents`, `colibri/spawn-agent`, `colibri/stop-agent`, `colibri/agent-events`: agents
//! are run by operators and by those whom their entries name, each for himself; what an instance
//! does is for the one it runs for, and operators.

use std::sync::Arc;
use std::time::Duration;

use colibri_api::{
    AgentEventsRequest, AgentsResponse, OneAgent, SpawnAgentRequest, StopAgentRequest,
};
use colibri_protocol::{AnswerBody, RpcError};
use colibri_wire::json::string;
use serde::Serialize;
use serde::de::IgnoredAny;
use tokio::time::sleep;

use super::method::{DaemonMethod, MethodCall};
use super::stream::AnswerStream;
use crate::agents::{AgentOrder, AgentWork, EventReader, Instance};
use crate::daemon::Daemon;
use crate::relay::{Call, CallOutcome, Client};
use colibri_policy::Gate;

/// The interval at which an instance is checked for a call that waits for a person, or for a stall:
/// no line says so.
const LOOK: Duration = Duration::from_millis(500);

/// `colibri/agents`: the agents and instances that the caller may see.
pub(super) struct ListAgents;

impl DaemonMethod for ListAgents {
    const NAME: &'static str = "colibri/agents";
    const IS_LOOK: bool = true;
    type Parameters = IgnoredAny;

    fn start(_: IgnoredAny, request: MethodCall) {
        request.finish_blocking(|daemon, call| {
            let caller = OperatorCaller::of(daemon, &call.client);
            let host = daemon.store.board().shown_host().map(str::to_owned);
            let mut instances = daemon.agents.list(caller.uid, caller.operator);
            for instance in &mut instances {
                instance.host.clone_from(&host);
            }
            instances.extend(daemon.agents.elsewhere(caller.uid, caller.operator));
            told(&AgentsResponse {
                agents: daemon.agents.facts(caller.uid, caller.operator),
                instances,
                host,
            })
        });
    }
}

/// `colibri/spawn-agent`: an instance is started.
pub(super) struct SpawnAgent;

impl DaemonMethod for SpawnAgent {
    const NAME: &'static str = "colibri/spawn-agent";
    /// An agent works, as tools that change something do.
    const GATE: Gate = Gate::Write;
    const STRICT: bool = true;
    type Parameters = SpawnAgentRequest;

    fn check(asked: &SpawnAgentRequest) -> Result<(), RpcError> {
        if asked.task.is_some() && asked.prompt.is_some() {
            return Err(RpcError::invalid_params(
                "params: either task or prompt, not both",
            ));
        }
        Ok(())
    }

    fn start(asked: SpawnAgentRequest, request: MethodCall) {
        tokio::spawn(async move {
            let caller = OperatorCaller::of(&request.daemon, &request.call.client);
            let outcome = spawn(&request.daemon, &request.call, &caller, asked).await;
            request.finish(outcome);
        });
    }
}

/// `colibri/stop-agent`: an instance is ended.
pub(super) struct StopAgent;

impl DaemonMethod for StopAgent {
    const NAME: &'static str = "colibri/stop-agent";
    const STRICT: bool = true;
    type Parameters = StopAgentRequest;

    fn start(asked: StopAgentRequest, request: MethodCall) {
        request.finish_blocking(move |daemon, call| {
            let caller = OperatorCaller::of(daemon, &call.client);
            match daemon.agents.stop(&asked.id, caller.uid, caller.operator) {
                Ok(instance) => told(&OneAgent { instance }),
                Err(why) => wrong(format!("{why:#}")),
            }
        });
    }
}

/// `colibri/agent-events`: the events of an instance, as a stream.
pub(super) struct AgentEvents;

impl DaemonMethod for AgentEvents {
    const NAME: &'static str = "colibri/agent-events";
    const IS_LOOK: bool = true;
    const STRICT: bool = true;
    type Parameters = AgentEventsRequest;

    fn start(asked: AgentEventsRequest, request: MethodCall) {
        tokio::spawn(async move {
            let caller = OperatorCaller::of(&request.daemon, &request.call.client);
            match open(&request.daemon, &caller, &asked.id).await {
                Ok((instance, reader)) => {
                    let stream = AnswerStream::begin(request);
                    events(stream, caller, instance, reader, asked).await;
                }
                Err(why) => request.finish(wrong(why)),
            }
        });
    }
}

/// The requesting user.
#[derive(Clone, Copy)]
struct OperatorCaller {
    uid: u32,
    operator: bool,
}

impl OperatorCaller {
    fn of(daemon: &Daemon, client: &Client) -> OperatorCaller {
        OperatorCaller {
            uid: client.caller.uid,
            operator: daemon.chain.rules.rights(client).operator,
        }
    }
}

fn told(answer: &impl Serialize) -> CallOutcome {
    match serde_json::to_vec(answer) {
        Ok(result) => CallOutcome::result(result),
        Err(error) => wrong(format!("the answer cannot be written: {error}")),
    }
}

fn wrong(why: String) -> CallOutcome {
    CallOutcome::error(RpcError::invalid_params(why))
}

async fn spawn(
    daemon: &Daemon,
    call: &Call,
    caller: &OperatorCaller,
    asked: SpawnAgentRequest,
) -> CallOutcome {
    let order = AgentOrder {
        person: call.client.caller,
        operator: caller.operator,
        by: Some(caller.uid),
    };
    let work = match (asked.task, asked.prompt) {
        (Some(task), _) => AgentWork::Task(task),
        (None, Some(prompt)) => AgentWork::Prompt(prompt),
        (None, None) => AgentWork::Next,
    };
    match daemon
        .agents
        .spawn(&asked.agent, order, work, &*daemon.doors)
        .await
    {
        Ok(instance) => told(&OneAgent {
            instance: daemon.agents.view(&instance),
        }),
        Err(why) => wrong(format!("{why:#}")),
    }
}

/// The instance, if it runs, and its events.
async fn open(
    daemon: &Arc<Daemon>,
    caller: &OperatorCaller,
    session: &str,
) -> Result<(Option<Arc<Instance>>, EventReader), String> {
    let (agents, session, caller) = (daemon.agents.clone(), session.to_owned(), *caller);
    let opened = tokio::task::spawn_blocking(move || {
        if agents.one(&session, caller.uid, caller.operator).is_none() {
            return Err(agents.missing_instance(&session, (caller.uid, caller.operator), "log"));
        }
        let instance = agents.instance(&session);
        let reader = agents.events_of(&session);
        let reader =
            reader.map_err(|error| format!("its events are not kept any more: {error}"))?;
        Ok((instance, reader))
    });
    opened.await.map_err(|error| error.to_string())?
}

/// Streams the events of an instance: those that are kept, and with `follow` those that come, until
/// it has ended.
async fn events(
    stream: AnswerStream,
    caller: OperatorCaller,
    instance: Option<Arc<Instance>>,
    mut reader: EventReader,
    asked: AgentEventsRequest,
) {
    let agents = stream.daemon.agents.clone();
    let mut news = instance.as_ref().map(|instance| instance.news());
    let mut state = None;
    loop {
        let now = OperatorCaller::of(&stream.daemon, &stream.client);
        if caller.operator && !now.operator && agents.one(&asked.id, caller.uid, false).is_none() {
            return stream.end("you are no operator any more");
        }
        // Looked at before the events are: after its last word there is none.
        let seen = agents.one(&asked.id, caller.uid, now.operator);
        let ended = seen.as_ref().is_none_or(|seen| seen.ended_at.is_some());
        if let Some(news) = &mut news {
            news.mark_unchanged();
        }
        if let Some(seen) = seen {
            let looks = Some((seen.state, seen.stalled, seen.reason.clone(), seen.ended_at));
            if state != looks && !ended {
                state = looks;
                if !stream.send("colibri/agent-state", &OneAgent { instance: seen }) {
                    return;
                }
            }
        }
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let lines = reader.more();
                (reader, lines)
            });
            let Ok((back, lines)) = read.await else {
                return stream.end("its events could not be read");
            };
            reader = back;
            let lines = match lines {
                Ok(lines) if lines.is_empty() => break,
                Ok(lines) => lines,
                Err(error) => return stream.end(&format!("its events could not be read: {error}")),
            };
            for line in lines {
                if number(&line) < asked.from {
                    continue;
                }
                if !stream.has_room().await || !stream.push(&as_notification(&asked.id, &line)) {
                    return;
                }
            }
        }
        if ended || !asked.follow {
            break;
        }
        let Some(news) = &mut news else { break };
        tokio::select! {
            biased;
            () = stream.held.over() => return,
            _ = news.changed() => {}
            () = sleep(LOOK) => {}
        }
    }
    if asked.follow {
        tokio::select! {
            biased;
            () = stream.held.over() => return,
            () = agents.over(&asked.id) => {}
        }
    }
    match agents.one(&asked.id, caller.uid, caller.operator) {
        Some(instance) => match serde_json::to_vec(&OneAgent { instance }) {
            Ok(result) => stream.answer(AnswerBody::Result(result)),
            Err(error) => stream.end(&error.to_string()),
        },
        None => stream.end("the instance is not known any more"),
    }
}

/// The number of an event as it is kept.
fn number(line: &[u8]) -> u64 {
    let digits = line.strip_prefix(b"{\"n\":").unwrap_or_default();
    let end = digits
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or_default();
    let digits = std::str::from_utf8(&digits[..end]);
    digits
        .ok()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default()
}

/// An event as it is kept, as the notification that tells it: the agent's own line stays as it was
/// written.
fn as_notification(session: &str, line: &[u8]) -> Vec<u8> {
    let head = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"colibri/agent-event\",\"params\":{{\"id\":{},",
        string(session)
    );
    let mut message = head.into_bytes();
    message.extend_from_slice(line.get(1..).unwrap_or_default());
    message.push(b'}');
    message
}

#[cfg(test)]
mod tests {
    use super::super::method::read_parameters;
    use super::*;
    use colibri_wire::Json;

    #[test]
    fn parameters_are_read_strictly() {
        fn is_read<M: DaemonMethod>(params: &str) -> bool {
            read_parameters::<M>(Json::parse(params.as_bytes()).ok()).is_ok()
        }
        assert_eq!(SpawnAgent::GATE, Gate::Write);
        assert!(is_read::<SpawnAgent>(r#"{"agent":"a","task":3}"#));
        for wrong in [
            "{}",
            r#"{"agent":"a","task":3,"prompt":"p"}"#,
            r#"{"agent":"a","uid":0}"#,
        ] {
            assert!(!is_read::<SpawnAgent>(wrong), "{wrong}");
        }
        assert!(!is_read::<StopAgent>("{}"));
        let with_meta =
            r#"{"id":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        assert!(is_read::<StopAgent>(with_meta));
        assert!(!is_read::<AgentEvents>(r#"{"id":"x","from":-1}"#));
    }

    #[test]
    fn a_kept_line_is_told_as_it_was_written() {
        let line = br#"{"n":12,"at":5,"state":"working","event":{"a":1e400,"a": "\ud800"}}"#;
        assert_eq!(number(line), 12);
        let told = as_notification("0123", line);
        let text = String::from_utf8(told).unwrap();
        assert!(
            text.ends_with(
                r#""params":{"id":"0123","n":12,"at":5,"state":"working","event":{"a":1e400,"a": "\ud800"}}}"#
            )
        );
        assert_eq!(number(b"{}"), 0);
    }
}

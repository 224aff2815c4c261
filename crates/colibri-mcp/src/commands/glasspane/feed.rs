//! The thread that asks the daemon, again and again and when a person wants something.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use colibri_api::{
    AgentEvent, AgentEventsRequest, AgentsResponse, OneAgent, Overview, OverviewRequest, Servers,
    SpawnAgentRequest, StopAgentRequest,
};
use colibri_protocol::Code;
use serde_json::json;

use super::super::screen::News;
use super::model::{FeedEvent, GlasspaneState};
use crate::connection::{DaemonAddress, DaemonConnection, RequestError, read};
use crate::failure::CommandError;

/// Records of the trail that are asked for, as many as there are to be had: those of agents are few
/// among them.
const TAIL: u64 = 200;
/// Events of an instance that are asked for: more than a screen has lines.
const EVENTS: u64 = 100;

/// A person's order to the daemon.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FeedOrder {
    /// News now.
    Refresh,
    /// This instance's events too, from now on.
    Detail(Option<String>),
    /// An instance of this agent.
    Spawn(String),
    /// The end of this instance.
    Stop(String),
}

pub(super) struct GlasspaneFeed {
    pub place: DaemonAddress,
    pub read_only: bool,
    pub every: Duration,
    pub orders: Receiver<FeedOrder>,
    /// The instance whose events are wanted.
    pub detail: Option<String>,
}

impl GlasspaneFeed {
    /// Until the connection ends, which is a failure, or nobody wants news any more.
    pub(super) fn listen(&mut self, news: &Sender<News<FeedEvent>>) -> Result<(), CommandError> {
        let mut connection = DaemonConnection::open(&self.place, self.read_only)?;
        loop {
            let seen = look(&mut connection, self.detail.as_deref())?;
            if news
                .send(News::Heard(FeedEvent::Seen(Box::new(seen))))
                .is_err()
            {
                return Ok(());
            }
            let said = match self.orders.recv_timeout(self.every) {
                Ok(FeedOrder::Spawn(agent)) => spawn(&mut connection, agent)?,
                Ok(FeedOrder::Stop(id)) => stop(&mut connection, id)?,
                Ok(FeedOrder::Detail(id)) => {
                    self.detail = id;
                    continue;
                }
                Ok(FeedOrder::Refresh) | Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            if news.send(News::Heard(FeedEvent::Said(said))).is_err() {
                return Ok(());
            }
        }
    }
}

/// Looks at everything once, and at the events of one instance.
pub(super) fn look(
    connection: &mut DaemonConnection,
    detail: Option<&str>,
) -> Result<GlasspaneState, CommandError> {
    let (agents, _) = connection.ask::<AgentsResponse>("colibri/agents", &json!({}))?;
    let (servers, _) = connection.ask::<Servers>("colibri/servers", &json!({}))?;
    let asked = OverviewRequest { tail: TAIL };
    let overview = match connection.ask::<Overview>("colibri/overview", &asked) {
        Ok((overview, _)) => Some(overview),
        // Who is no operator sees the agents, and not the calls.
        Err(RequestError::Refused { code, .. }) if code == Code::PolicyDenied.row().number => None,
        Err(error) => return Err(error.into()),
    };
    let instance = agents
        .instances
        .iter()
        .find(|instance| Some(instance.id.as_str()) == detail);
    let events = match instance {
        Some(instance) => Some((
            instance.id.clone(),
            last_events(connection, &instance.id, instance.events)?,
        )),
        None => None,
    };
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Ok(GlasspaneState {
        time: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        agents,
        servers: servers.servers,
        overview,
        events,
    })
}

fn last_events(
    connection: &mut DaemonConnection,
    id: &str,
    count: u64,
) -> Result<Vec<AgentEvent>, CommandError> {
    let asked = AgentEventsRequest {
        id: id.to_owned(),
        from: count.saturating_sub(EVENTS) + 1,
        follow: false,
    };
    let mut events = Vec::new();
    let answer = connection.listen("colibri/agent-events", &asked, |_, name, params| {
        if name == "colibri/agent-event" && events.len() < 2 * EVENTS as usize {
            events.push(read(name, params)?);
        }
        Ok::<_, RequestError>(ControlFlow::Continue(()))
    });
    match answer {
        // It, or its log, is gone.
        Ok(_) | Err(RequestError::Refused { .. }) => Ok(events),
        Err(error) => Err(error.into()),
    }
}

fn spawn(connection: &mut DaemonConnection, agent: String) -> Result<String, CommandError> {
    let asked = SpawnAgentRequest {
        agent,
        task: None,
        prompt: None,
    };
    let answer = connection.ask::<OneAgent>("colibri/spawn-agent", &asked);
    said(
        answer.map(|(OneAgent { instance }, _)| {
            format!("started {} {}", instance.agent, instance.id)
        }),
    )
}

fn stop(connection: &mut DaemonConnection, id: String) -> Result<String, CommandError> {
    let answer = connection.ask::<OneAgent>("colibri/stop-agent", &StopAgentRequest { id });
    said(
        answer.map(|(OneAgent { instance }, _)| {
            format!("stopped {} {}", instance.agent, instance.id)
        }),
    )
}

/// A refusal is said; what ends the connection is a failure.
fn said(answer: Result<String, RequestError>) -> Result<String, CommandError> {
    match answer {
        Ok(said) => Ok(said),
        Err(refused @ (RequestError::Refused { .. } | RequestError::Tool(_))) => {
            Ok(format!("refused: {refused}"))
        }
        Err(error) => Err(error.into()),
    }
}

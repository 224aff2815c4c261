//! The daemon's present state, in bounded form.

use colibri_api::{AgentInstance, AgentState, Approval, ServerFacts, ServerState, ServerTransport};
use serde::Serialize;

use super::super::model::GlasspaneState;
use super::day::NAME;
use crate::terminal;
use colibri_text::brief;

/// The most agents, servers and waiting calls that are shown, each.
const MAX_ROWS: usize = 200;

/// The present state. Text in it has been made visible and is bounded.
#[derive(Debug, Serialize)]
pub(super) struct Now {
    /// The facts that only operators are shown.
    daemon: Option<DaemonNow>,
    agents: Vec<AgentNow>,
    servers: Vec<ServerNow>,
    waiting: Vec<ApprovalNow>,
    /// The number of these in all.
    counts: [usize; 3],
}

#[derive(Debug, Serialize)]
struct DaemonNow {
    version: String,
    uptime_s: u64,
    write_gate: bool,
    external_gate: bool,
    clients: u64,
    in_flight: u64,
}

#[derive(Debug, Serialize)]
struct AgentNow {
    id: String,
    agent: String,
    user: String,
    state: AgentState,
    attention: bool,
    stalled: bool,
    reason: Option<String>,
    task: Option<u64>,
    /// Its own events' name of its session.
    session: Option<String>,
    /// Milliseconds since the epoch.
    ended: Option<u64>,
    last_event: Option<u64>,
    calls: u64,
    /// Calls of it that wait for a person.
    approvals: u64,
    bytes: u64,
    tokens_in: u64,
    tokens_out: u64,
    jail: Option<String>,
    unbounded: bool,
    cwd: String,
}

#[derive(Debug, Serialize)]
struct ServerNow {
    id: String,
    transport: ServerTransport,
    state: ServerState,
    reason: Option<String>,
    tools: u64,
    blocked: u64,
    processes: usize,
    jail: Option<String>,
    unbounded: bool,
    network: Option<String>,
}

#[derive(Debug, Serialize)]
struct ApprovalNow {
    user: String,
    agent: Option<String>,
    server: String,
    tool: String,
    rule: String,
    /// Milliseconds since the epoch.
    asked: u64,
}

impl Now {
    pub(super) fn of(seen: &GlasspaneState) -> Now {
        let approvals: &[Approval] = seen.overview.as_ref().map_or(&[], |overview| &overview.approvals);
        let instances = &seen.agents.instances;
        Now {
            daemon: seen.overview.as_ref().map(|overview| DaemonNow {
                version: brief(&overview.version, NAME),
                uptime_s: overview.uptime_s,
                write_gate: overview.write_gate,
                external_gate: overview.external_gate,
                clients: overview.clients,
                in_flight: overview.in_flight,
            }),
            agents: instances.iter().take(MAX_ROWS).map(agent).collect(),
            servers: seen.servers.iter().take(MAX_ROWS).map(server).collect(),
            waiting: approvals.iter().take(MAX_ROWS).map(waiting).collect(),
            counts: [instances.len(), seen.servers.len(), approvals.len()],
        }
    }
}

fn some(text: Option<&String>) -> Option<String> {
    text.map(|text| brief(text, NAME))
}

fn agent(of: &AgentInstance) -> AgentNow {
    AgentNow {
        id: brief(&of.id, NAME),
        agent: brief(&of.agent, NAME),
        user: terminal::user(of.uid),
        state: of.state,
        attention: of.attention,
        stalled: of.stalled,
        reason: some(of.reason.as_ref().or(of.exit.as_ref())),
        task: of.task,
        session: some(of.session_id.as_ref()),
        ended: of.ended_at,
        last_event: of.last_event_at,
        calls: of.calls,
        approvals: of.approvals,
        bytes: of.bytes,
        tokens_in: of.tokens_in,
        tokens_out: of.tokens_out,
        jail: some(of.jail.as_ref()),
        unbounded: of.unbounded,
        cwd: brief(&of.cwd, NAME),
    }
}

fn server(of: &ServerFacts) -> ServerNow {
    ServerNow {
        id: brief(&of.id, NAME),
        transport: of.transport,
        state: of.state,
        reason: of.reason.as_deref().map(|reason| brief(reason, 4 * NAME)),
        tools: of.tools,
        blocked: of.tools_blocked,
        processes: of.processes.len(),
        jail: some(of.jail.as_ref().map(|jail| &jail.name)),
        unbounded: of.is_unbounded(),
        network: some(of.jail.as_ref().map(|jail| &jail.network)),
    }
}

fn waiting(of: &Approval) -> ApprovalNow {
    ApprovalNow {
        user: terminal::user(of.uid),
        agent: some(of.agent.as_ref()),
        server: brief(&of.server, NAME),
        tool: brief(&of.tool, NAME),
        rule: brief(&of.rule, NAME),
        asked: of.asked.saturating_mul(1000),
    }
}

//! The daemon's present state, in bounded form.

use colibri_api::{
    AgentInstance, AgentState, Approval, ServerFacts, ServerState, ServerTransport, Task,
    TaskStatus,
};
use serde::Serialize;

use super::super::model::GlasspaneState;
use super::names::NAME;
use super::table::PageTable;
use super::time::utc;
use crate::terminal;
use colibri_text::{brief, visible_lines};

/// The most agents, servers and waiting calls that are shown, each.
const MAX_ROWS: usize = 200;
/// The most characters of a waiting call's arguments. A call with longer ones is not approved from
/// the page.
const MAX_ARGUMENTS: usize = 20_000;

/// The present state. Text in it has been made visible and is bounded.
#[derive(Debug, Serialize)]
pub(super) struct Now {
    /// The facts that only operators are shown.
    daemon: Option<DaemonNow>,
    agents: Vec<AgentNow>,
    servers: Vec<ServerNow>,
    waiting: Vec<ApprovalNow>,
    board: Vec<BoardTask>,
    /// The number of agents, servers and waiting calls in all.
    counts: [usize; 3],
}

#[derive(Debug, Serialize)]
struct DaemonNow {
    version: String,
    /// To ten seconds, so that it stays the same.
    started: u64,
    write_gate: bool,
    external_gate: bool,
    clients: u64,
    in_flight: u64,
}

#[derive(Debug, Serialize)]
struct AgentNow {
    id: String,
    agent: String,
    /// Where several hosts share the board.
    host: Option<String>,
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
    /// By which it is approved or denied.
    approval: String,
    user: String,
    agent: Option<String>,
    instance: Option<String>,
    server: String,
    tool: String,
    rule: String,
    arguments: String,
    /// True if not all of the arguments are shown.
    cut: bool,
    /// Milliseconds since the epoch.
    asked: u64,
    expires: u64,
}

/// A task of the board.
#[derive(Debug, Serialize)]
struct BoardTask {
    id: u64,
    title: String,
    status: TaskStatus,
    priority: u8,
    creator: String,
    /// Where several hosts share the board.
    host: Option<String>,
    created: u64,
    updated: u64,
    /// The reason for its status, or for which nobody takes it.
    why: Option<String>,
}

impl Now {
    pub(super) fn of(seen: &GlasspaneState, tasks: &[Task]) -> Now {
        let approvals: &[Approval] = seen
            .overview
            .as_ref()
            .map_or(&[], |overview| &overview.approvals);
        let instances = &seen.agents.instances;
        Now {
            daemon: seen.overview.as_ref().map(|overview| DaemonNow {
                version: brief(&overview.version, NAME),
                started: (overview.time / 1000).saturating_sub(overview.uptime_s) / 10 * 10_000,
                write_gate: overview.write_gate,
                external_gate: overview.external_gate,
                clients: overview.clients,
                in_flight: overview.in_flight,
            }),
            agents: instances.iter().take(MAX_ROWS).map(agent).collect(),
            servers: seen.servers.iter().take(MAX_ROWS).map(server).collect(),
            waiting: approvals.iter().take(MAX_ROWS).map(waiting).collect(),
            board: tasks.iter().take(MAX_ROWS).map(board_task).collect(),
            counts: [instances.len(), seen.servers.len(), approvals.len()],
        }
    }
}

impl Now {
    /// Its tables.
    pub(super) fn tables(&self) -> Vec<PageTable> {
        let has_hosts = self.agents.iter().any(|one| one.host.is_some())
            || self.board.iter().any(|one| one.host.is_some());
        let with_host = |mut row: Vec<String>, host: &Option<String>| {
            if has_hosts {
                row.insert(1, host.clone().unwrap_or_default());
            }
            row
        };
        let (agents, tasks): (&'static [&'static str], &'static [&'static str]) = match has_hosts {
            false => (
                &["Agent", "For", "State", "Reason", "Task", "Calls"],
                &["Task", "Title", "Status", "Reason", "Changed (UTC)"],
            ),
            true => (
                &["Agent", "Host", "For", "State", "Reason", "Task", "Calls"],
                &["Task", "Host", "Title", "Status", "Reason", "Changed (UTC)"],
            ),
        };
        let or_none = |text: &Option<String>| text.clone().unwrap_or_default();
        let waiting = |one: &ApprovalNow| {
            let who = format!("{} {}", one.user, or_none(&one.agent));
            let what = format!("{} {}", one.server, one.tool);
            let (arguments, approval) = (one.arguments.clone(), one.approval.clone());
            vec![
                utc(one.asked),
                who,
                what,
                one.rule.clone(),
                arguments,
                approval,
            ]
        };
        let agent = |one: &AgentNow| {
            let state = format!(
                "{}{}",
                if one.ended.is_some() { "ended, " } else { "" },
                one.state
            );
            let task = one.task.map_or(String::new(), |task| format!("#{task}"));
            let agent = format!("{} {}", one.agent, one.id);
            let calls = one.calls.to_string();
            let row = vec![
                agent,
                one.user.clone(),
                state,
                or_none(&one.reason),
                task,
                calls,
            ];
            with_host(row, &one.host)
        };
        let server = |one: &ServerNow| {
            let (reason, jail) = (or_none(&one.reason), or_none(&one.jail));
            vec![
                one.id.clone(),
                one.state.to_string(),
                reason,
                jail,
                one.tools.to_string(),
            ]
        };
        let task = |one: &BoardTask| {
            let (id, status) = (format!("#{}", one.id), one.status.to_string());
            let row = vec![
                id,
                one.title.clone(),
                status,
                or_none(&one.why),
                utc(one.updated),
            ];
            with_host(row, &one.host)
        };
        vec![
            PageTable::of(
                "Calls that wait for a person",
                &[
                    "Since (UTC)",
                    "Who",
                    "Server, tool",
                    "Rule",
                    "Arguments",
                    "colibri-mcp approvals approve",
                ],
                self.waiting.iter().map(waiting),
            ),
            PageTable::of("Agents", agents, self.agents.iter().map(agent)),
            PageTable::of(
                "Servers",
                &["Server", "State", "Reason", "Jail", "Tools"],
                self.servers.iter().map(server),
            ),
            PageTable::of("Tasks", tasks, self.board.iter().map(task)),
        ]
    }
}

fn some(text: Option<&String>) -> Option<String> {
    text.map(|text| brief(text, NAME))
}

fn agent(of: &AgentInstance) -> AgentNow {
    AgentNow {
        id: brief(&of.id, NAME),
        agent: brief(&of.agent, NAME),
        host: some(of.host.as_ref()),
        user: some(of.person.as_ref()).unwrap_or_else(|| terminal::user(of.uid)),
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
    let arguments = brief_lines(&of.arguments, MAX_ARGUMENTS);
    ApprovalNow {
        approval: brief(&of.id, NAME),
        user: terminal::user(of.uid),
        agent: some(of.agent.as_ref()),
        instance: some(of.session.as_ref()),
        server: brief(&of.server, NAME),
        tool: brief(&of.tool, NAME),
        rule: brief(&of.rule, 4 * NAME),
        cut: arguments.is_none(),
        arguments: arguments.unwrap_or_else(|| brief(&of.arguments, MAX_ARGUMENTS)),
        asked: of.asked.saturating_mul(1000),
        expires: of.expires.saturating_mul(1000),
    }
}

/// Text of several lines with nothing hidden in it; `None`: it is longer.
fn brief_lines(text: &str, most: usize) -> Option<String> {
    let shown = visible_lines(text);
    (shown.chars().count() <= most).then(|| shown.into_owned())
}

fn board_task(of: &Task) -> BoardTask {
    BoardTask {
        id: of.id,
        title: brief(&of.said.title, NAME),
        status: of.said.status,
        priority: of.said.priority,
        creator: some(of.person.as_ref()).unwrap_or_else(|| terminal::user(of.said.created_by)),
        host: some(of.host.as_ref()),
        created: of.created_at,
        updated: of.updated_at,
        why: match &of.foreign {
            Some(why) => Some(brief(&format!("foreign: {why}"), NAME)),
            None => some(of.reason.as_ref().or(of.waiting.as_ref())),
        },
    }
}

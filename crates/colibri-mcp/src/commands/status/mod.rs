//! `colibri-mcp status`: the daemon and its servers at a glance.

mod metrics;
mod servers;

use std::path::PathBuf;

use serde_json::json;

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::terminal::{Style, TextTable, bytes, clock, duration};
use colibri_api::{Servers, Status, UNBOUNDED_MOUNT};
use colibri_text::counted;

/// The form of the answer.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowStatusArguments {
    /// Shows the daemon's metrics instead, as Prometheus reads them
    #[arg(long)]
    metrics: bool,
    /// The socket given to `colibri-mcpd --metrics-socket` [default: metrics.sock beside the
    /// daemon's socket]
    #[arg(long, value_name = "PATH", requires = "metrics")]
    metrics_socket: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &ShowStatusArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    if arguments.metrics {
        return metrics::print(arguments.metrics_socket.clone(), context);
    }
    let mut connection = context.connect()?;
    let (status, raw_status) = connection.own_tool::<Status>("colibri_status", &json!({}))?;
    let (hosted, raw_hosted) =
        connection.own_tool::<Servers>("colibri_external_mcp_servers", &json!({}))?;
    let mut facts = json!({ "status": raw_status, "servers": raw_hosted });
    facts["servers"] = facts["servers"]["servers"].take();
    context.answer(
        &facts,
        &format!("{}\n\n{}", show(&status), servers::show(&hosted)),
    )
}

fn show(status: &Status) -> String {
    let daemon = &status.daemon;
    let gate = |open| {
        if open {
            ("open", Style::Good)
        } else {
            ("closed", Style::Plain)
        }
    };
    let mut states: Vec<_> = status
        .servers
        .by_state
        .iter()
        .filter(|(_, n)| **n > 0)
        .collect();
    states.sort_by_key(|(state, _)| state.name());
    let states: Vec<_> = states
        .iter()
        .map(|(state, n)| format!("{n} {state}"))
        .collect();
    let servers = match states.as_slice() {
        [] => status.servers.total.to_string(),
        states => format!("{} ({})", status.servers.total, states.join(", ")),
    };
    let result = daemon
        .budgets
        .tool_result_bytes
        .map_or("unlimited".to_owned(), bytes);
    let budgets = format!(
        "{}: session {}, {} uncompacted turns, tool result {result}",
        daemon.cost_mode.name(),
        bytes(daemon.budgets.session_bytes),
        daemon.budgets.uncompacted_turns,
    );
    let spending = &daemon.spending;
    let left = match spending.left_bytes {
        Some(0) => {
            let larger = spending.larger.map_or_else(String::new, |larger| {
                format!(", or until cost mode {larger} is set (colibri_set_cost_mode)")
            });
            let left =
                format!(", nothing left: tools of servers are refused until 00:00 UTC{larger}");
            (left, Style::Bad)
        }
        Some(left) => (format!(", {} left", bytes(left)), Style::Plain),
        None => (", nothing is held back".to_owned(), Style::Plain),
    };
    let before = match (spending.before_bytes, spending.chosen_at) {
        (0, _) | (_, None) => String::new(),
        (before, Some(at)) => {
            let at = &clock(at)[.."HH:MM".len()];
            format!(
                ", {} of them before the mode was chosen at {at} UTC",
                bytes(before)
            )
        }
    };
    let spent = format!(
        "{} today (UTC){before}{}",
        bytes(spending.spent_bytes),
        left.0
    );
    let mut table = TextTable::new(&["colibri-mcpd", &daemon.version]);
    table.row(&[
        ("up", Style::Plain),
        (&duration(daemon.uptime_s), Style::Plain),
    ]);
    table.row(&[("socket", Style::Plain), (&daemon.socket, Style::Plain)]);
    let lines = daemon.clients.saturating_sub(daemon.clients_http);
    let clients = format!(
        "{} ({lines} by lines, {} by HTTP with {})",
        daemon.clients,
        daemon.clients_http,
        counted(daemon.http_sessions, "session"),
    );
    table.row(&[("clients", Style::Plain), (&clients, Style::Plain)]);
    let write = match (daemon.private, daemon.gates.write) {
        (false, open) => gate(open),
        (true, true) => (
            "open, as you agreed; colibri-mcp tasks disable closes it",
            Style::Good,
        ),
        (true, false) => (
            "closed: no tasks and agents before colibri-mcp tasks enable",
            Style::Plain,
        ),
    };
    table.row(&[("write gate", Style::Plain), write]);
    table.row(&[
        ("external-call gate", Style::Plain),
        gate(daemon.gates.external_call),
    ]);
    let jail = if daemon.require_jail {
        "required"
    } else {
        "not required"
    };
    table.row(&[("jails", Style::Plain), (jail, Style::Plain)]);
    table.row(&[("servers", Style::Plain), (&servers, Style::Plain)]);
    let agents = daemon
        .agents_by_state
        .iter()
        .map(|(state, n)| format!("{n} {state}"));
    let agents: Vec<_> = agents.collect();
    if !agents.is_empty() {
        table.row(&[("agents", Style::Plain), (&agents.join(", "), Style::Plain)]);
    }
    table.row(&[("cost mode", Style::Plain), (&budgets, Style::Plain)]);
    table.row(&[("answers", Style::Plain), (&spent, left.1)]);
    table.row(&[
        ("registry", Style::Plain),
        (&daemon.registry.path, Style::Plain),
    ]);
    if let Some(error) = &daemon.registry.error {
        table.row(&[("registry error", Style::Bad), (error, Style::Bad)]);
    }
    if let Some(error) = &daemon.trail_error {
        table.row(&[("calls are refused", Style::Bad), (error, Style::Bad)]);
    }
    if daemon.approvals_waiting > 0 {
        let waiting = format!("{}: colibri-mcp approvals", daemon.approvals_waiting);
        table.row(&[("calls that wait", Style::Odd), (&waiting, Style::Odd)]);
    }
    let counts = &status.servers;
    if counts.tools_blocked + counts.others_blocked + counts.instructions_blocked > 0 {
        let others = match counts.others_blocked {
            0 => String::new(),
            count => format!(", prompts and resources {count}"),
        };
        let blocked = format!(
            "tools {}{others}, instructions {}: colibri-mcp pin list --waiting",
            counts.tools_blocked, counts.instructions_blocked
        );
        table.row(&[("blocked by pins", Style::Bad), (&blocked, Style::Bad)]);
    }
    for (count, kind, command) in [
        (counts.unbounded, "server", "status"),
        (daemon.agents_unbounded, "agent", "agent list"),
    ] {
        if count > 0 {
            let where_to = format!("{}: colibri-mcp {command}", counted(count, kind));
            table.row(&[(UNBOUNDED_MOUNT, Style::Odd), (&where_to, Style::Odd)]);
        }
    }
    for warning in &daemon.look_alikes {
        table.row(&[("look-alike", Style::Odd), (warning, Style::Odd)]);
    }
    for collision in &daemon.collisions {
        table.row(&[("name collision", Style::Bad), (collision, Style::Bad)]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_is_wrong_as_well() {
        let status: Status = serde_json::from_value(json!({
            "version": "0.1.0", "uptime_s": 240, "socket": "/s", "gates": {"write": false, "external_call": true},
            "require_jail": false, "clients": 2, "clients_http": 1, "http_sessions": 3, "cost_mode": "max",
            "agents_by_state": {"working": 2, "blocked": 1}, "agents_unbounded": 2, "future": {"field": 1},
            "budgets": {"session_bytes": 8_000_000, "uncompacted_turns": 100, "tool_result_bytes": null},
            "spending": {"acts": true, "set_by": "policy", "set": "fast", "escalates": true, "spent_bytes": 2_000_001,
                         "left_bytes": 5_999_999, "until": 1},
            "servers": {"total": 3, "by_state": {"ready": 2, "failed": 1, "stopped": 0}, "tools_blocked": 4,
                        "instructions_blocked": 0, "unbounded": 1},
            "look_alikes": ["servers docs and d0cs"],
            "registry": {"path": "/r", "error": "line 3: \u{1b}[31munknown key"}, "collisions": ["a__b"],
        }))
        .unwrap();
        let text = show(&status);
        for part in [
            "0.1.0",
            "4 min",
            "closed",
            "open",
            "2 (1 by lines, 1 by HTTP with 3 sessions)",
            "3 (1 failed, 2 ready)",
            "2 working, 1 blocked",
            "unlimited",
            "2,000,001 bytes today (UTC), 5,999,999 bytes left",
            "\\u{1b}",
            "a__b",
            "tools 4, instructions 0",
            "d0cs",
            "1 server: colibri-mcp status",
            "2 agents: colibri-mcp agent list",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn says_since_when_a_mode_counts_and_advises_a_larger_one_where_there_is_one() {
        let shown = |spending| {
            let status: Status = serde_json::from_value(json!({
                "version": "0.1.0", "uptime_s": 1, "socket": "/s", "gates": {"write": false, "external_call": true},
                "require_jail": false, "clients": 1, "clients_http": 0, "http_sessions": 0, "cost_mode": "fast",
                "budgets": {"session_bytes": 500_000, "uncompacted_turns": 5, "tool_result_bytes": 4_000},
                "spending": spending, "servers": {"total": 0, "by_state": {}, "tools_blocked": 0,
                                                  "instructions_blocked": 0, "unbounded": 0},
                "registry": {"path": "/r", "error": null}, "collisions": [], "look_alikes": [],
            }))
            .unwrap();
            // However wide the table is.
            show(&status)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let mut spending = json!({"acts": true, "set_by": "user", "set": "fast", "escalates": false,
            "spent_bytes": 3_200_000, "before_bytes": 3_200_000, "chosen_at": 50_700_000, "left_bytes": 500_000,
            "until": 86_400_000});
        let text = shown(spending.clone());
        let says = "3,200,000 bytes today (UTC), 3,200,000 bytes of them before the mode was chosen at 14:05 UTC, \
                    500,000 bytes left";
        assert!(text.contains(says), "{text}");
        spending["left_bytes"] = json!(0);
        let text = shown(spending.clone());
        assert!(
            text.contains("refused until 00:00 UTC registry")
                && !text.contains("colibri_set_cost_mode"),
            "{text}"
        );
        spending["larger"] = json!("smart");
        let text = shown(spending);
        assert!(
            text.contains("or until cost mode smart is set (colibri_set_cost_mode)"),
            "{text}"
        );
    }
}

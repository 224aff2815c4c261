//! The hosted servers, their states and processes.

use crate::terminal::{Style, TextTable, since};
use colibri_api::{
    ServerElsewhere, ServerProcess, ServerState, ServerTransport, Servers, UNBOUNDED_MOUNT,
};
use colibri_text::{counted, visible};

/// The place of a server that another host has, and as whom that host sees its callers.
fn elsewhere(place: Option<&ServerElsewhere>) -> String {
    match place {
        Some(place) if place.keys => format!("ssh {} ({}), a key a user", place.host, place.server),
        Some(place) => format!("ssh {} ({}), one client for all", place.host, place.server),
        None => "ssh".to_owned(),
    }
}

/// The servers as a table, and under it what is wrong with some.
pub(super) fn show(answer: &Servers) -> String {
    if answer.servers.is_empty() {
        return "No servers: the registry is empty.".to_owned();
    }
    let mut table = TextTable::new(&["server", "state", "tools", "runs", "isolation", "processes"]);
    let mut reasons = String::new();
    for server in &answer.servers {
        let style = match server.state {
            ServerState::Ready => Style::Good,
            ServerState::Blocked | ServerState::Failed => Style::Bad,
            ServerState::Starting | ServerState::BackingOff => Style::Odd,
            ServerState::Stopped => Style::Plain,
        };
        let place = match (&server.jail, server.transport) {
            (None, ServerTransport::Ssh) => elsewhere(server.elsewhere.as_ref()),
            (Some(jail), _) if jail.network.is_empty() => format!("jail {}", jail.name),
            (Some(jail), _) => format!("jail {}, network {}", jail.name, jail.network),
            (None, ServerTransport::Host) => "on the host".to_owned(),
            (None, ServerTransport::Jail) => "a jail".to_owned(),
            (None, ServerTransport::Url) => "url".to_owned(),
        };
        let state = format!("{} {}", server.state, since(server.since));
        let mut tools = format!("{}{}", server.tools, server.others());
        let mut tools_style = Style::Plain;
        let blocked = server.tools_blocked + server.others_blocked;
        if blocked > 0 {
            tools.push_str(&format!(", {blocked} blocked"));
            tools_style = Style::Bad;
        }
        if blocked > 0 || server.instructions_blocked {
            let of = if server.others_blocked == 0 {
                "tools"
            } else {
                "definitions"
            };
            let what = match (blocked, server.instructions_blocked) {
                (0, _) => "its instructions".to_owned(),
                (count, true) => format!("{count} of its {of} and its instructions"),
                (count, false) => format!("{count} of its {of}"),
            };
            let id = visible(&server.id);
            reasons.push_str(&format!(
                "\n{id}: blocked, not as approved: {what}; colibri-mcp pin diff {id}"
            ));
        }
        let processes: Vec<_> = server.processes.iter().map(process_text).collect();
        table.row(&[
            (&server.id, Style::Plain),
            (&state, style),
            (&tools, tools_style),
            (&place, Style::Plain),
            (server.isolation.name(), Style::Plain),
            (
                &if processes.is_empty() {
                    "-".to_owned()
                } else {
                    processes.join("; ")
                },
                Style::Plain,
            ),
        ]);
        if let Some(reason) = server.reason.as_deref().filter(|reason| !reason.is_empty()) {
            let (id, reason) = (visible(&server.id), visible(reason));
            reasons.push_str(&format!("\n{id}: {reason}"));
        }
    }
    if reasons.is_empty() {
        table.text()
    } else {
        format!("{}\n{reasons}", table.text())
    }
}

fn process_text(process: &ServerProcess) -> String {
    let mut text = process.pid.map_or("?".to_owned(), |pid| pid.to_string());
    if let Some(jail) = &process.jail {
        text.push_str(&format!(" in {jail}"));
    }
    if let Some(jid) = process.jid {
        text.push_str(&format!(" jid {jid}"));
    }
    if process.unbounded {
        text.push_str(&format!(", {UNBOUNDED_MOUNT}"));
    }
    match process.count {
        Some(count) => text.push_str(&format!(", {}", counted(count, "process"))),
        None => text.push_str(", processes unknown"),
    }
    if let Some(uid) = process.uid {
        text.push_str(&format!(" for uid {uid}"));
    }
    if process.in_flight > 0 {
        text.push_str(&format!(", {} in flight", process.in_flight));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shows_states_places_processes_and_reasons() {
        let answer: Servers = serde_json::from_value(json!({"servers": [
            {"id": "git", "transport": "host", "state": "ready", "reason": null, "since": 0, "isolation": "user",
             "tools": 12, "tools_blocked": 2, "instructions_blocked": true, "jail": null,
             "processes": [{"pid": 41, "uid": 1001, "in_flight": 2, "version": "2025-11-25", "count": 3,
                "jail": null, "jid": null}]},
            {"id": "one", "transport": "jail", "state": "ready", "since": 0, "tools": 1,
             "jail": {"name": "ephemeral", "network": "none"},
             "processes": [{"pid": 7, "count": 1, "jail": "colibri-0123456789abcdef", "jid": 4, "unbounded": true},
                {"pid": 8}]},
            {"id": "mcp0", "transport": "jail", "state": "failed", "reason": "exit 127: \u{9b}31m no such file",
             "since": 0, "isolation": "call", "tools": 0, "processes": [], "jail": {"name": "build0"}},
        ]}))
        .unwrap();
        let text = show(&answer);
        for part in [
            "git",
            "41,",
            "jail",
            "ephemeral, ",
            "12, 2 blocked",
            "git: blocked, not as approved: 2 of its tools and its instructions; colibri-mcp pin diff git",
            "on the host",
            "jail build0",
            "mcp0: exit 127: \\u{9b}31m no such file",
        ] {
            assert!(text.replace("\n", " ").contains(part), "{part}: {text}");
        }
        let processes: Vec<_> = answer
            .servers
            .iter()
            .flat_map(|server| &server.processes)
            .collect();
        assert_eq!(
            processes.into_iter().map(process_text).collect::<Vec<_>>(),
            [
                "41, 3 processes for uid 1001, 2 in flight",
                "7 in colibri-0123456789abcdef jid 4, unbounded mount, 1 process",
                "8, processes unknown",
            ]
        );
        assert!(
            show(&Servers {
                servers: Vec::new()
            })
            .contains("No servers")
        );
    }
}

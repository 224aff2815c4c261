//! `colibri-mcp servers`: the hosted servers, their states and processes.

use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, Failure};
use crate::terminal::{Style, Table, duration};

/// What `colibri_external_mcp_servers` answers, as far as it is shown.
#[derive(Debug, Deserialize)]
pub struct Servers {
    /// One entry a server.
    pub servers: Vec<Server>,
}

/// One hosted server.
#[derive(Debug, Deserialize)]
pub struct Server {
    /// Its id in the registry.
    pub id: String,
    transport: String,
    /// What it is doing: `ready`, `blocked` and so on.
    pub state: String,
    /// Why, where there is something to say.
    pub reason: Option<String>,
    /// Milliseconds since the epoch.
    since: i64,
    isolation: Option<String>,
    tools: Option<u64>,
    /// How many of its tools are not as approved, and neither listed nor callable.
    #[serde(default)]
    pub tools_blocked: u64,
    #[serde(default)]
    instructions_blocked: bool,
    /// Its running processes.
    #[serde(default)]
    pub processes: Vec<Process>,
    jail: Option<Value>,
}

/// A process of a server.
#[derive(Debug, Deserialize)]
pub struct Process {
    /// Its process id, where it runs on this host.
    pub pid: Option<i32>,
    uid: Option<u32>,
    in_flight: Option<u64>,
    /// Processes of which it consists.
    pub count: Option<u64>,
    jail: Option<String>,
    jid: Option<i64>,
}

/// Runs the command.
pub fn run(context: &Context) -> Result<(), Failure> {
    context.show("colibri_external_mcp_servers", &json!({}), show)
}

fn show(answer: &Servers) -> String {
    if answer.servers.is_empty() {
        return "No servers: the registry is empty. `colibri-mcp status` says where it is.".to_owned();
    }
    let mut table = Table::new(&["server", "state", "tools", "runs", "isolation", "processes"]);
    let mut reasons = String::new();
    for server in &answer.servers {
        let style = match server.state.as_str() {
            "ready" => Style::Good,
            "blocked" | "failed" => Style::Bad,
            "starting" | "backing off" => Style::Odd,
            _ => Style::Plain,
        };
        let place = match (&server.jail, server.transport.as_str()) {
            (Some(jail), _) => jail_text(jail),
            (None, "host") => "on the host".to_owned(),
            (None, other) => other.to_owned(),
        };
        let state = format!("{} {}", server.state, since(server.since));
        let mut tools = server.tools.map_or("?".to_owned(), |tools| tools.to_string());
        let mut tools_mood = Style::Plain;
        if server.tools_blocked > 0 {
            tools.push_str(&format!(", {} blocked", server.tools_blocked));
            tools_mood = Style::Bad;
        }
        if server.tools_blocked > 0 || server.instructions_blocked {
            let what = match (server.tools_blocked, server.instructions_blocked) {
                (0, _) => "its instructions".to_owned(),
                (tools, true) => format!("{tools} of its tools and its instructions"),
                (tools, false) => format!("{tools} of its tools"),
            };
            let id = crate::terminal::line(&server.id);
            reasons.push_str(&format!(
                "\n{id}: blocked, not as approved: {what}; colibri-mcp pin diff {id}"
            ));
        }
        let processes: Vec<_> = server.processes.iter().map(process_text).collect();
        table.row(&[
            (&server.id, Style::Plain),
            (&state, style),
            (&tools, tools_mood),
            (&place, Style::Plain),
            (server.isolation.as_deref().unwrap_or("-"), Style::Plain),
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
            let (id, reason) = (crate::terminal::line(&server.id), crate::terminal::line(reason));
            reasons.push_str(&format!("\n{id}: {reason}"));
        }
    }
    if reasons.is_empty() {
        table.text()
    } else {
        format!("{}\n{reasons}", table.text())
    }
}

/// For how long, by this machine's clock.
fn since(ms: i64) -> String {
    let then = UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or_default());
    duration(then.elapsed().map_or(0, |elapsed| elapsed.as_secs()))
}

fn jail_text(jail: &Value) -> String {
    let name = jail
        .as_str()
        .or_else(|| jail["name"].as_str())
        .or_else(|| jail["path"].as_str());
    match (name, jail["network"].as_str()) {
        (Some(name), Some(network)) => format!("jail {name}, network {network}"),
        (Some(name), None) => format!("jail {name}"),
        (None, _) => "a jail".to_owned(),
    }
}

fn process_text(process: &Process) -> String {
    let mut text = process.pid.map_or("?".to_owned(), |pid| pid.to_string());
    if let Some(jail) = &process.jail {
        text.push_str(&format!(" in {jail}"));
    }
    if let Some(jid) = process.jid {
        text.push_str(&format!(" jid {jid}"));
    }
    match process.count {
        Some(1) => text.push_str(", 1 process"),
        Some(count) => text.push_str(&format!(", {count} processes")),
        None => text.push_str(", processes unknown"),
    }
    if let Some(uid) = process.uid {
        text.push_str(&format!(" for uid {uid}"));
    }
    if let Some(in_flight) = process.in_flight.filter(|n| *n > 0) {
        text.push_str(&format!(", {in_flight} in flight"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_states_places_processes_and_reasons() {
        let answer: Servers = serde_json::from_value(json!({"servers": [
            {"id": "git", "transport": "host", "state": "ready", "reason": null, "since": 0, "isolation": "user",
             "tools": 12, "tools_blocked": 2, "instructions_blocked": true, "jail": null,
             "processes": [{"pid": 41, "uid": 1001, "in_flight": 2, "version": "2025-11-25", "count": 3,
                "jail": null, "jid": null}]},
            {"id": "one", "transport": "jail", "state": "ready", "since": 0, "tools": 1,
             "jail": {"name": "ephemeral", "network": "none"},
             "processes": [{"pid": 7, "count": 1, "jail": "colibri-0123456789abcdef", "jid": 4}, {"pid": 8}]},
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
        let processes: Vec<_> = answer.servers.iter().flat_map(|server| &server.processes).collect();
        assert_eq!(
            processes.into_iter().map(process_text).collect::<Vec<_>>(),
            [
                "41, 3 processes for uid 1001, 2 in flight",
                "7 in colibri-0123456789abcdef jid 4, 1 process",
                "8, processes unknown",
            ]
        );
        assert!(show(&Servers { servers: Vec::new() }).contains("No servers"));
    }
}

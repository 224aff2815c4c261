//! `colibri-mcp servers`: the hosted servers, their states and processes.

use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, Failure};
use crate::client::terminal::{Mood, Table, duration};

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
        let mood = match server.state.as_str() {
            "ready" => Mood::Good,
            "blocked" | "failed" => Mood::Bad,
            "starting" | "backing off" => Mood::Odd,
            _ => Mood::Plain,
        };
        let place = match (&server.jail, server.transport.as_str()) {
            (Some(jail), _) => jail_text(jail),
            (None, "host") => "on the host".to_owned(),
            (None, other) => other.to_owned(),
        };
        let state = format!("{} {}", server.state, since(server.since));
        let tools = server.tools.map_or("?".to_owned(), |tools| tools.to_string());
        let processes: Vec<_> = server.processes.iter().map(process_text).collect();
        table.row(&[
            (&server.id, Mood::Plain),
            (&state, mood),
            (&tools, Mood::Plain),
            (&place, Mood::Plain),
            (server.isolation.as_deref().unwrap_or("-"), Mood::Plain),
            (
                &if processes.is_empty() {
                    "-".to_owned()
                } else {
                    processes.join("; ")
                },
                Mood::Plain,
            ),
        ]);
        if let Some(reason) = server.reason.as_deref().filter(|reason| !reason.is_empty()) {
            let (id, reason) = (
                crate::client::terminal::line(&server.id),
                crate::client::terminal::line(reason),
            );
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
        (Some(name), Some(network)) => format!("jail {name}, {network}"),
        (Some(name), None) => format!("jail {name}"),
        (None, _) => "a jail".to_owned(),
    }
}

fn process_text(process: &Process) -> String {
    let mut text = process.pid.map_or("?".to_owned(), |pid| pid.to_string());
    if let Some(jid) = process.jid {
        text.push_str(&format!(" jid {jid}"));
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
             "tools": 12, "jail": null,
             "processes": [{"pid": 41, "uid": 1001, "in_flight": 2, "version": "2025-11-25", "jid": null}]},
            {"id": "mcp0", "transport": "jail", "state": "failed", "reason": "exit 127: \u{9b}31m no such file",
             "since": 0, "isolation": "call", "tools": 0, "processes": [], "jail": {"name": "build0"}},
        ]}))
        .unwrap();
        let text = show(&answer);
        for part in [
            "git",
            "41 for uid 1001, 2",
            "on the host",
            "jail build0",
            "mcp0: exit 127: \\u{9b}31m no such file",
        ] {
            assert!(text.replace("\n", " ").contains(part), "{part}: {text}");
        }
        assert!(show(&Servers { servers: Vec::new() }).contains("No servers"));
    }
}

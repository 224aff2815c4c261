//! The output of `glasspane --json`, for programs: `colibri.glasspane.snapshot.v1`.

use colibri_api::{AgentInstance, AgentState, AgentsResponse};
use serde::Serialize;

/// The name of this form.
const SCHEMA: &str = "colibri.glasspane.snapshot.v1";

#[derive(Debug, Serialize)]
pub(super) struct GlasspaneSnapshot<'a> {
    schema: &'static str,
    /// The machine's name.
    host: String,
    /// Milliseconds since the epoch.
    time: u64,
    panes: Vec<AgentPane<'a>>,
}

/// An instance of an agent.
#[derive(Debug, Serialize)]
struct AgentPane<'a> {
    id: &'a str,
    agent: &'a str,
    state: AgentState,
    /// Its own events' name of its session.
    session_id: Option<&'a str>,
    /// Milliseconds since the epoch.
    last_event_at: Option<u64>,
    cwd: &'a str,
    stalled: bool,
    attention: bool,
    /// In and out.
    tokens: u64,
    calls: u64,
    waiting_approvals: u64,
    /// Its name; null: on the host.
    jail: Option<&'a str>,
}

impl GlasspaneSnapshot<'_> {
    pub(super) fn of(agents: &AgentsResponse, time: u64) -> GlasspaneSnapshot<'_> {
        let host = nix::unistd::gethostname().unwrap_or_default();
        GlasspaneSnapshot {
            schema: SCHEMA,
            host: host.to_string_lossy().into_owned(),
            time,
            // The form is of one host's panes.
            panes: (agents.instances.iter())
                .filter(|instance| instance.host == agents.host)
                .map(pane)
                .collect(),
        }
    }
}

fn pane(instance: &AgentInstance) -> AgentPane<'_> {
    AgentPane {
        id: &instance.id,
        agent: &instance.agent,
        state: instance.state,
        session_id: instance.session_id.as_deref(),
        last_event_at: instance.last_event_at,
        cwd: &instance.cwd,
        stalled: instance.stalled,
        attention: instance.attention,
        tokens: instance.tokens_in.saturating_add(instance.tokens_out),
        calls: instance.calls,
        waiting_approvals: instance.approvals,
        jail: instance.jail.as_deref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pane_has_exactly_what_its_form_says() {
        let agents: AgentsResponse = serde_json::from_value(json!({ "agents": [], "instances": [{
            "id": "0123456789abcdef", "agent": "coder", "uid": 1001, "task": 3, "state": "blocked", "stalled": false,
            "attention": true, "reason": null, "session_id": "s\u{1b}", "started_at": 1, "ended_at": null, "exit": null,
            "last_event_at": 7, "events": 2, "skipped_lines": 0, "calls": 5, "approvals": 1, "bytes": 10,
            "tokens_in": 40, "tokens_out": 2, "jail": "colibri-0123456789abcdef", "cwd": "/work" }] }))
        .unwrap();
        let mut snapshot = serde_json::to_value(GlasspaneSnapshot::of(&agents, 9)).unwrap();
        assert!(snapshot["host"].take().is_string());
        assert_eq!(
            snapshot,
            json!({ "schema": "colibri.glasspane.snapshot.v1", "host": null, "time": 9, "panes": [{
                "id": "0123456789abcdef", "agent": "coder", "state": "blocked", "session_id": "s\u{1b}",
                "last_event_at": 7, "cwd": "/work", "stalled": false, "attention": true, "tokens": 42, "calls": 5,
                "waiting_approvals": 1, "jail": "colibri-0123456789abcdef" }] })
        );
    }
}

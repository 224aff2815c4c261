//! The state of agents, and of the calls that they made.

use std::collections::{BTreeMap, HashMap};

use colibri_api::{AgentEvent, AgentInstance, AgentsResponse, Overview, ServerFacts, TrailRow};

use crate::terminal;

/// The most records of agents that are remembered.
const MAX_RECORDS: usize = 2000;

/// An event of the daemon's feed.
pub(super) enum FeedEvent {
    /// The whole state.
    Seen(Box<GlasspaneState>),
    /// The outcome of a person's order.
    Said(String),
}

/// Everything at one time.
#[derive(Default)]
pub(super) struct GlasspaneState {
    /// Milliseconds since the epoch.
    pub time: u64,
    /// The agents and their instances.
    pub agents: AgentsResponse,
    /// The servers.
    pub servers: Vec<ServerFacts>,
    /// The operators' part: the end of the trail, the calls that wait.
    pub overview: Option<Overview>,
    /// The last events of the instance that is looked at closely, which is named.
    pub events: Option<(String, Vec<AgentEvent>)>,
}

/// All that is known.
#[derive(Default)]
pub(super) struct GlasspaneModel {
    /// The whole state.
    pub now: GlasspaneState,
    /// The reason for which there is no news.
    pub trouble: Option<String>,
    /// The outcome of the person's last order.
    pub said: Option<String>,
    /// Records of agents' calls by their numbers, each with the instance.
    records: BTreeMap<u64, (String, TrailRow)>,
    users: HashMap<u32, String>,
}

impl GlasspaneModel {
    /// Takes in what was heard.
    pub(super) fn update(&mut self, heard: FeedEvent) {
        let mut seen = match heard {
            FeedEvent::Seen(seen) => *seen,
            FeedEvent::Said(said) => {
                self.said = Some(said);
                return;
            }
        };
        let trail = seen
            .overview
            .as_mut()
            .and_then(|overview| overview.trail.as_mut());
        for mut row in trail
            .map(|trail| std::mem::take(&mut trail.agents))
            .unwrap_or_default()
        {
            let begun = || row.enter.and_then(|enter| self.records.get(&enter));
            let named = || {
                row.details
                    .get("session")
                    .and_then(|session| session.as_str())
            };
            let session = row.session.as_deref().or_else(named);
            let session = session.or_else(|| begun().map(|(session, _)| session.as_str()));
            if let Some(session) = session.map(str::to_owned) {
                // These are said of each record anyway.
                for said in ["agent", "for", "session"] {
                    row.details.remove(said);
                }
                self.records.insert(row.n, (session, row));
            }
        }
        while self.records.len() > MAX_RECORDS {
            self.records.pop_first();
        }
        let of_records = self.records.values().filter_map(|(_, row)| row.uid);
        let of_agents = seen.agents.instances.iter().map(|instance| instance.uid);
        for uid in of_records.chain(of_agents) {
            self.users.entry(uid).or_insert_with(|| terminal::user(uid));
        }
        self.now = seen;
    }

    /// A user's name.
    pub(super) fn user(&self, uid: Option<u32>) -> &str {
        uid.and_then(|uid| self.users.get(&uid))
            .map_or("-", String::as_str)
    }

    /// An instance.
    pub(super) fn instance(&self, id: &str) -> Option<&AgentInstance> {
        self.now
            .agents
            .instances
            .iter()
            .find(|instance| instance.id == id)
    }

    /// The records of this instance, or of all, in their order, each with its instance.
    pub(super) fn records(
        &self,
        session: Option<&str>,
    ) -> impl DoubleEndedIterator<Item = (&str, &TrailRow)> {
        let records = self.records.values().map(|(of, row)| (of.as_str(), row));
        records.filter(move |(of, _)| session.is_none_or(|session| session == *of))
    }

    /// The servers that this instance called, or that any did, as far as the records tell.
    pub(super) fn servers(&self, session: Option<&str>) -> impl Iterator<Item = &ServerFacts> {
        let called = move |id: &str| {
            self.records(session)
                .any(|(_, row)| row.server.as_deref() == Some(id))
        };
        self.now
            .servers
            .iter()
            .filter(move |server| called(&server.id))
    }

    /// The last events of an instance, if it is looked at closely.
    pub(super) fn events(&self, id: &str) -> &[AgentEvent] {
        match &self.now.events {
            Some((of, events)) if of == id => events,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seen(tail: Value) -> FeedEvent {
        let overview = serde_json::from_value(json!({
            "version": "1", "time": 1, "uptime_s": 1, "write_gate": false, "external_gate": true, "clients": 1,
            "in_flight": 0, "resident": null, "registry_error": null, "approvals": [], "servers": [],
            "trail": { "records": 9, "witnessed": 9, "failing": null, "tail": [], "agents": tail } }));
        FeedEvent::Seen(Box::new(GlasspaneState {
            overview: Some(overview.unwrap()),
            ..GlasspaneState::default()
        }))
    }

    fn row(n: u64, more: Value) -> Value {
        let mut row = json!({ "n": n, "kind": "enter", "timestamp": "", "uid": null, "server": null, "tool": null,
            "method": null, "result": null, "error_code": null, "event": null });
        row.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        row
    }

    #[test]
    fn a_calls_end_belongs_to_the_agent_that_began_it_and_others_are_left_out() {
        let mut model = GlasspaneModel::default();
        model.update(seen(json!([
            row(1, json!({ "session": "a", "agent": "coder", "for": 1001 })),
            row(2, json!({})),
            row(
                3,
                json!({ "kind": "event", "event": "agent-started", "details": { "session": "b" } })
            ),
        ])));
        // The beginning is not in what is read later.
        model.update(seen(json!([
            row(4, json!({ "kind": "exit", "enter": 1 })),
            row(5, json!({ "kind": "exit", "enter": 2 })),
        ])));
        let of = |session| {
            model
                .records(session)
                .map(|(_, row)| row.n)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (of(Some("a")), of(Some("b")), of(None)),
            (vec![1, 4], vec![3], vec![1, 3, 4])
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut model = GlasspaneModel::default();
        for piece in 0..3 {
            let rows = (0..1000).map(|n| row(piece * 1000 + n, json!({ "session": "a" })));
            model.update(seen(rows.collect()));
        }
        assert_eq!(model.records(None).count(), MAX_RECORDS);
        assert_eq!(
            model.records(None).next_back().map(|(_, row)| row.n),
            Some(2999)
        );
    }
}

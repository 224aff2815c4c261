//! Agents that are started by themselves, when a task fits them.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::listeners::Doors;
use super::roster::{AgentRoster, is_user};
use super::start::{AgentOrder, AgentWork};
use crate::board::{AgentDirectory, AgentStarter, Candidate};
use colibri_policy::{Caller, Gate};
use colibri_store::HostPlaces;

/// For how long no start is tried where one failed, unless the registry is read again.
const AGAIN: Duration = Duration::from_secs(25);

/// Starts agents of the roster for tasks, each with an agent socket.
pub struct TaskAgents {
    agents: Arc<AgentRoster>,
    doors: Arc<dyn Doors>,
}

impl TaskAgents {
    /// The agents of this roster.
    pub fn new(agents: Arc<AgentRoster>, doors: Arc<dyn Doors>) -> Arc<TaskAgents> {
        Arc::new(TaskAgents { agents, doors })
    }
}

impl AgentStarter for TaskAgents {
    fn start(&self, agent: &str, person: u32, task: u64) -> anyhow::Result<()> {
        let caller = Caller::of_account(person)?;
        let order = AgentOrder {
            person: caller,
            operator: false,
            by: None,
        };
        let begun = self.agents.begin(agent, order, AgentWork::Task(task))?;
        let (agents, doors, agent) = (self.agents.clone(), self.doors.clone(), agent.to_owned());
        tokio::spawn(async move {
            if let Err(why) = agents.start(begun, &*doors).await {
                warn!(agent, task, "autospawn: {why:#}");
            }
        });
        Ok(())
    }
}

impl AgentDirectory for AgentRoster {
    fn candidates(&self, person: u32) -> Vec<Candidate> {
        let write = self.parts.rules.gates.load().is_open(Gate::Write);
        let entries = self.entries();
        let mut sessions = self.sessions();
        let known = entries
            .iter()
            .filter(|(_, agent)| self.refusal(agent).is_none());
        let candidates = known.filter_map(|(id, agent)| {
            let sessions = sessions.remove(id).unwrap_or_default();
            let named = is_user(&agent.entry, person);
            if !named && !sessions.iter().any(|(_, uid)| *uid == person) {
                return None;
            }
            let failed = self
                .failed_starts()
                .get(id)
                .is_some_and(|at| at.elapsed() < AGAIN);
            let may = !failed && self.parts.autospawn && write && named && agent.entry.autospawn;
            let free = agent.entry.max.saturating_sub(sessions.len() as u32);
            Some(Candidate {
                agent: id.clone(),
                capabilities: agent.entry.capabilities.clone(),
                sessions: sessions.into_iter().map(|(session, _)| session).collect(),
                starts: if may { free } else { 0 },
            })
        });
        candidates.collect()
    }

    fn places(&self) -> HostPlaces {
        let (entries, sessions) = (self.entries(), self.sessions());
        let mut free = 0_u32;
        let mut agents = serde_json::Map::new();
        for (id, agent) in entries
            .iter()
            .filter(|(_, agent)| self.refusal(agent).is_none())
        {
            agents.insert(id.clone(), agent.entry.capabilities.clone().into());
            let running = sessions.get(id).map_or(0, Vec::len) as u32;
            let may = self.parts.autospawn && agent.entry.autospawn;
            free += if may {
                agent.entry.max.saturating_sub(running)
            } else {
                0
            };
        }
        HostPlaces {
            agents: serde_json::Value::from(agents).to_string(),
            free,
            instances: self.running_as_json(),
        }
    }
}

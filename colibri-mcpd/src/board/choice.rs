//! The choice of the agent for a task: the one with most of the needed capabilities, then the one
//! with fewer tasks, then by name.

use std::cmp::Reverse;
use std::collections::HashMap;

use colibri_api::{PERSON, Task};

use colibri_store::HostPlaces;

/// An agent that may have a person's tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidate {
    /// Its id in the registry.
    pub agent: String,
    /// The capabilities it has.
    pub capabilities: Vec<String>,
    /// The sessions of all its running instances, whoever they run for.
    pub sessions: Vec<String>,
    /// The number of further instances that may be started automatically for this person now.
    pub starts: u32,
}

/// The agents as the board knows them.
pub trait AgentDirectory: Send + Sync {
    /// The agents that may have this person's tasks: those that this person may have run, disabled
    /// ones left out.
    fn candidates(&self, person: u32) -> Vec<Candidate>;

    /// What this host can run, for the other hosts of the board.
    fn places(&self) -> HostPlaces {
        HostPlaces::default()
    }
}

/// Starts agents for tasks.
pub trait AgentStarter: Send + Sync {
    /// Starts an instance for a task of this person, after [`super::Board::reserve`] has kept the
    /// task for it. Does not wait until it runs: of one that fails, `start_failed` is told.
    ///
    /// # Errors
    /// Why it is not started; the task then is not reserved.
    fn start(&self, agent: &str, person: u32, task: u64) -> anyhow::Result<()>;
}

/// The number of a task's needs that an agent meets. The score is |required ∩ capabilities| /
/// |required|; of one task all have the same denominator, so that this is the order of the scores.
/// What requires nothing fits everybody the same.
fn met(required: &[String], capabilities: &[String]) -> usize {
    if required.is_empty() {
        return 1;
    }
    required
        .iter()
        .filter(|need| capabilities.contains(need))
        .count()
}

/// The best of those who can do something of what is required, of whom `load` says how many tasks
/// they have.
pub(super) fn best<'a>(
    required: &[String],
    candidates: impl Iterator<Item = &'a Candidate>,
    load: &HashMap<&str, usize>,
) -> Option<&'a Candidate> {
    candidates
        .map(|candidate| (met(required, &candidate.capabilities), candidate))
        .filter(|(met, _)| *met > 0)
        .min_by_key(|(met, candidate)| {
            let tasks = load.get(candidate.agent.as_str()).copied().unwrap_or(0);
            (Reverse(*met), tasks, candidate.agent.as_str())
        })
        .map(|(_, candidate)| candidate)
}

/// The reason for which no agent takes a queued task now.
pub(super) fn waiting(task: &Task, candidates: &[Candidate]) -> String {
    let required = &task.said.required_capabilities;
    let fits = |candidate: &&Candidate| met(required, &candidate.capabilities) > 0;
    let fitting: Vec<_> = candidates.iter().filter(fits).collect();
    if fitting.is_empty() && matches!(&required[..], [person] if person == PERSON) {
        return "it is for a person".to_owned();
    }
    if candidates.is_empty() {
        return format!("no agent is there for uid {}", task.said.created_by);
    }
    if fitting.is_empty() {
        return format!("no agent can do any of {}", required.join(", "));
    }
    if fitting.iter().any(|candidate| candidate.starts > 0) {
        return "an agent is being started".to_owned();
    }
    let names: Vec<_> = fitting
        .iter()
        .map(|candidate| candidate.agent.as_str())
        .take(4)
        .collect();
    let runs = fitting
        .iter()
        .any(|candidate| !candidate.sessions.is_empty());
    let why = if runs { "has work" } else { "is not running" };
    format!("{} can do it, and {why}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(agent: &str, capabilities: &[&str]) -> Candidate {
        Candidate {
            agent: agent.to_owned(),
            capabilities: capabilities.iter().map(|one| (*one).to_owned()).collect(),
            ..Candidate::default()
        }
    }

    #[test]
    fn the_highest_score_then_fewer_tasks_then_the_name() {
        let all = [
            candidate("d", &["rust", "freebsd", "c"]),
            candidate("c", &["rust"]),
            candidate("b", &["freebsd", "rust", "rust"]),
            candidate("a", &["cobol"]),
        ];
        let chosen = |required: &[&str], load: &[(&'static str, usize)]| {
            let required: Vec<_> = required.iter().map(|one| (*one).to_owned()).collect();
            let load = load.iter().copied().collect();
            best(&required, all.iter(), &load).map(|candidate| candidate.agent.as_str())
        };
        assert_eq!(
            chosen(&["rust", "freebsd"], &[("b", 1)]),
            Some("d"),
            "fewer tasks"
        );
        assert_eq!(chosen(&["rust", "freebsd"], &[]), Some("b"), "the name");
        assert_eq!(
            chosen(&["rust", "freebsd"], &[("b", 9), ("d", 9)]),
            Some("b"),
            "c can do less"
        );
        assert_eq!(chosen(&["rust"], &[("b", 1), ("d", 1)]), Some("c"));
        assert_eq!(
            chosen(&["cobol", "ada", "rust"], &[]),
            Some("a"),
            "a third is a third"
        );
        assert_eq!(chosen(&["ada"], &[]), None, "0 is never chosen");
        assert_eq!(
            chosen(&[], &[("a", 1)]),
            Some("b"),
            "nothing required: 1 for each"
        );
    }
}

//! The agent socket that a call came in on, as far as the call has to know it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::flow_slot::FlowSlot;
use colibri_policy::{AgentTools, RulePlace, Terms};
use colibri_store::HostLease;
use parking_lot::Mutex;

/// One instance of an agent. Which socket a connection came in on says which: it needs no secret,
/// and forges nothing.
#[derive(Debug)]
pub struct AgentSocket {
    /// The agent's id in the registry.
    pub agent: Arc<str>,
    /// The instance: sixteen lower-case hex digits.
    pub session: Arc<str>,
    /// The tools that its entry lets it use; the person for whom it runs may be allowed less.
    pub tools: AgentTools,
    /// True if it may have tasks that are shared with its person.
    pub shared_tasks: bool,
    /// The most bytes of answers; `None`: any number.
    pub max_bytes: Option<u64>,
    /// The place of that limit.
    pub max_bytes_place: RulePlace,
    /// The most tokens of its model, in and out; `None`: any number.
    pub max_tokens: Option<u64>,
    /// The limits of what it changes and where it sends things.
    pub flow: FlowSlot,
    /// Its usage.
    pub spent: AgentUsage,
    /// The lease under which it runs.
    pub lease: AgentLease,
}

/// The lease of this host under which an instance was started. Where the board is this host's own
/// it does not end.
#[derive(Debug, Clone)]
pub struct AgentLease {
    lease: Arc<HostLease>,
    number: u64,
}

impl Default for AgentLease {
    fn default() -> AgentLease {
        AgentLease::of(&Arc::new(HostLease::permanent()))
    }
}

impl AgentLease {
    /// The one that is in force now.
    pub fn of(lease: &Arc<HostLease>) -> AgentLease {
        AgentLease {
            lease: lease.clone(),
            number: lease.number(),
        }
    }

    /// Looks whether it still is in force.
    ///
    /// # Errors
    /// It is over, and another host may have the instance's task.
    pub fn check(&self) -> Result<(), LeaseOver> {
        if self.lease.is_in_force(self.number) {
            Ok(())
        } else {
            Err(LeaseOver)
        }
    }
}

/// The lease under which an instance runs is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this host's lease on the board is over: the agent's task is another's now, and the agent ends"
)]
pub struct LeaseOver;

/// The usage of an agent's instance, and its current task.
#[derive(Debug, Default)]
pub struct AgentUsage {
    /// The task that it has claimed; 0: none.
    pub task: AtomicU64,
    /// Calls through its agent socket.
    pub calls: AtomicU64,
    /// Calls of it that wait for a person now.
    pub waiting: AtomicU64,
    /// Bytes of answers through its agent socket.
    pub bytes: AtomicU64,
    /// The time of its person's last choice of a cost mode, and the bytes by then.
    pub at_choice: Mutex<(u64, u64)>,
    /// Tokens that its model read.
    pub tokens_in: AtomicU64,
    /// Tokens that its model wrote.
    pub tokens_out: AtomicU64,
}

impl AgentUsage {
    /// Bytes that the mode in these terms does not count: those before the first call after its
    /// person's choice.
    pub fn before(&self, terms: &Terms) -> u64 {
        let Some(chosen_at) = terms.counts_from() else {
            return 0;
        };
        let mut known = self.at_choice.lock();
        // A call that came before the choice says nothing of it.
        if chosen_at > known.0 {
            *known = (chosen_at, self.bytes.load(Ordering::Relaxed));
        }
        known.1
    }
}

/// A call of an agent that waits for a person; it is counted for as long as this is there.
pub struct WaitsForPerson(Arc<AgentSocket>);

impl AgentSocket {
    /// The number of the task that it has claimed.
    pub fn task(&self) -> Option<u64> {
        Some(self.spent.task.load(Ordering::Relaxed)).filter(|task| *task > 0)
    }

    /// Counts a call that waits for a person.
    pub fn waits(self: &Arc<Self>) -> WaitsForPerson {
        self.spent.waiting.fetch_add(1, Ordering::Relaxed);
        WaitsForPerson(self.clone())
    }
}

impl Drop for WaitsForPerson {
    fn drop(&mut self) {
        self.0.spent.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

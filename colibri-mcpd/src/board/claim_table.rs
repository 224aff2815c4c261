//! Claims in force, in memory: which task calls are made for.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use colibri_api::{Task, TaskStatus};

use crate::relay::AgentSocket;

/// The claimer of a task.
#[derive(Debug)]
enum ClaimHolder {
    Person(u32),
    Instance(String),
}

/// Claims in force.
#[derive(Debug, Default)]
pub(super) struct ClaimTable {
    /// By the tasks' numbers.
    holders: HashMap<u64, ClaimHolder>,
    /// The agents' instances, by their sessions. Each is told its task, so that its calls need not
    /// look here.
    instances: HashMap<String, Weak<AgentSocket>>,
}

impl ClaimTable {
    /// Notes a task as it is now. Changes of one task must come in their order.
    pub(super) fn note(&mut self, task: &Task) {
        if let Some(ClaimHolder::Instance(session)) = self.holders.remove(&task.id) {
            self.tell(&session, 0);
        }
        if !matches!(task.said.status, TaskStatus::Claimed | TaskStatus::Started) {
            return;
        }
        let holder = match (&task.claimed_session, task.claimed_by) {
            (Some(session), _) => {
                self.tell(session, task.id);
                ClaimHolder::Instance(session.clone())
            }
            (None, Some(uid)) => ClaimHolder::Person(uid),
            (None, None) => return,
        };
        self.holders.insert(task.id, holder);
    }

    /// An instance has one task at a time.
    fn tell(&self, session: &str, task: u64) {
        if let Some(door) = self.instances.get(session).and_then(Weak::upgrade) {
            door.spent.task.store(task, Ordering::Relaxed);
        }
    }

    /// From now on an instance is told which task it has.
    pub(super) fn begin(&mut self, door: &Arc<AgentSocket>) {
        self.instances
            .insert(door.session.to_string(), Arc::downgrade(door));
    }

    /// An instance has ended.
    pub(super) fn end(&mut self, session: &str) {
        self.instances.remove(session);
    }

    /// True if a person has claimed this task.
    pub(super) fn is_of(&self, uid: u32, task: u64) -> bool {
        matches!(self.holders.get(&task), Some(ClaimHolder::Person(holder)) if *holder == uid)
    }
}

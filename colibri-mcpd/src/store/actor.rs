//! A user, or an agent's instance for one, and the tasks that it may see.

use colibri_api::Task;
use rusqlite::types::Value;

/// A person, or an agent's instance for one.
#[derive(Debug, Clone, Copy)]
pub struct Actor<'a> {
    /// The person.
    pub uid: u32,
    /// The agent's instance.
    pub session: Option<&'a str>,
    /// True if the person sees and may cancel the tasks of others.
    pub operator: bool,
}

impl Actor<'_> {
    /// The daemon itself, which sees all tasks.
    pub const DAEMON: Actor<'static> = Actor {
        uid: u32::MAX,
        session: None,
        operator: true,
    };

    /// True if this actor may see a task. `Actor::condition` is the same in SQL.
    pub fn sees(self, task: &Task) -> bool {
        self.operator || task.said.created_by == self.uid || self.has_claim(task)
    }

    /// True if this actor has the task, or had it when it ended; a person has what their agents have.
    fn has_claim(self, task: &Task) -> bool {
        match self.session {
            Some(session) => task.claimed_session.as_deref() == Some(session),
            None => task.claimed_by == Some(self.uid),
        }
    }

    /// The SQL condition for the tasks that this actor may see. Its parameters are added to `values`.
    pub(super) fn condition(self, values: &mut Vec<Value>) -> String {
        if self.operator {
            return "TRUE".to_owned();
        }
        let uid = bind(values, i64::from(self.uid));
        let claim = match self.session {
            Some(session) => format!("claimed_session = {}", bind(values, session.to_owned())),
            None => format!("claimed_by = {uid}"),
        };
        format!("(created_by = {uid} OR {claim})")
    }
}

/// Adds a parameter of a statement, and returns its name.
pub(super) fn bind(values: &mut Vec<Value>, value: impl Into<Value>) -> String {
    values.push(value.into());
    format!("?{}", values.len())
}

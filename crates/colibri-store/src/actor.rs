//! A user, or an agent's instance for one, and the tasks that it may see.

use colibri_api::{Task, TaskShare};
use rusqlite::types::Value;

use super::database::Database;
use super::error::StoreError;

/// A person, or an agent's instance for one.
#[derive(Debug, Clone, Copy)]
pub struct Actor<'a> {
    /// The person.
    pub uid: u32,
    /// The agent's instance.
    pub session: Option<&'a str>,
    /// True if the person sees and may cancel the tasks of others.
    pub operator: bool,
    /// The groups whose shared tasks this actor sees, besides those shared with all; `None`: no
    /// shared task.
    pub groups: Option<&'a [u32]>,
}

impl Actor<'_> {
    /// The daemon itself, which sees all tasks.
    pub const DAEMON: Actor<'static> = Actor {
        uid: u32::MAX,
        session: None,
        operator: true,
        groups: None,
    };

    /// True if this actor may see a task. `Actor::condition` is the same in SQL.
    pub fn sees(self, task: &Task) -> bool {
        self.sees_result(task) || self.shares(task)
    }

    /// True if this actor may see the result of a task: who only shares it does not.
    pub fn sees_result(self, task: &Task) -> bool {
        self.operator || task.said.created_by == self.uid || self.has_claim(task)
    }

    /// True if a task is shared with this actor.
    pub(super) fn shares(self, task: &Task) -> bool {
        self.groups.is_some_and(|groups| match task.said.share {
            None => false,
            Some(TaskShare::All) => true,
            Some(TaskShare::Group(gid)) => groups.contains(&gid),
        })
    }

    /// True if this actor has the task, or had it when it ended; a person has what their agents
    /// have.
    fn has_claim(self, task: &Task) -> bool {
        match self.session {
            Some(session) => task.claimed_session.as_deref() == Some(session),
            None => task.claimed_by == Some(self.uid),
        }
    }

    /// The SQL condition for the tasks that this actor may see. Its parameters are added to
    /// `values`.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    pub(super) fn condition(
        self,
        store: &Database,
        values: &mut Vec<Value>,
    ) -> Result<String, StoreError> {
        if self.operator {
            return Ok("TRUE".to_owned());
        }
        let person = bind(values, store.storage.person(self.uid)?);
        let claim = match self.session {
            Some(session) => format!(
                "claimed_session = {}",
                bind(values, store.storage.session_name(session))
            ),
            None => format!("claimed_by = {person}"),
        };
        let shared = self.shared_condition(store, values)?;
        Ok(format!("(created_by = {person} OR {claim} OR {shared})"))
    }

    /// The SQL condition for the tasks that are shared with this actor.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    pub(super) fn shared_condition(
        self,
        store: &Database,
        values: &mut Vec<Value>,
    ) -> Result<String, StoreError> {
        let Some(groups) = self.groups else {
            return Ok("FALSE".to_owned());
        };
        let mut shares = vec![bind(values, SHARED_WITH_ALL)];
        for gid in groups {
            shares.push(bind(values, store.storage.group(*gid)?));
        }
        Ok(format!("share IN ({})", shares.join(", ")))
    }
}

/// The value of the column `share` for all; else it has a gid.
const SHARED_WITH_ALL: i64 = -1;

/// With whom a task is shared, as the column `share` has it.
///
/// # Errors
/// [`StoreError::Board`].
pub(super) fn share_number(
    store: &Database,
    share: Option<TaskShare>,
) -> Result<Option<i64>, StoreError> {
    share
        .map(|share| match share {
            TaskShare::All => Ok(SHARED_WITH_ALL),
            TaskShare::Group(gid) => store.storage.group(gid),
        })
        .transpose()
}

/// Reads the column `share`.
pub(super) fn read_share(number: Option<i64>) -> Option<TaskShare> {
    number.map(|number| match u32::try_from(number) {
        Ok(gid) => TaskShare::Group(gid),
        Err(_) => TaskShare::All,
    })
}

/// Adds a parameter of a statement, and returns its name.
pub(super) fn bind(values: &mut Vec<Value>, value: impl Into<Value>) -> String {
    values.push(value.into());
    format!("?{}", values.len())
}

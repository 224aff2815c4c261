//! Changes of tasks: each is a record of the trail before it is made, and is told to those who
//! watch after it.

use colibri_api::{Task, TaskShare, TaskStatus};
use colibri_trail::{Detail, TrailEvent};

use crate::relay::Recorder;

/// A change of a task.
#[derive(Debug, Clone)]
pub struct TaskChange {
    /// The task after it.
    pub task: Task,
    /// Its former status; `None`: it is new.
    pub from: Option<TaskStatus>,
}

/// The author of a change: a person, an agent's instance for a person, or the daemon itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct By<'a> {
    pub uid: Option<u32>,
    pub session: Option<&'a str>,
}

/// The daemon itself.
pub(super) const DAEMON: By<'_> = By {
    uid: None,
    session: None,
};

/// Records a change.
///
/// # Errors
/// It cannot be written.
pub(super) fn record(recorder: &Recorder, change: &TaskChange, by: By<'_>) -> Result<(), String> {
    let TaskChange { task, from } = change;
    let share = task
        .said
        .share
        .filter(|_| from.is_none())
        .map(|share| match share {
            TaskShare::All => Detail::Text("all"),
            TaskShare::Group(gid) => Detail::Number(gid.into()),
        });
    recorder
        .event(TrailEvent::Task {
            id: task.id,
            to: task.said.status.name(),
            claim: task.claim,
            from: from.map(TaskStatus::name),
            share,
            by: by.uid,
            session: by.session,
            reason: task.reason.as_deref(),
        })
        .map_err(|error| error.to_string())
}

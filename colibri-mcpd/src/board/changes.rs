//! Changes of tasks: each is a record of the trail before it is made, and is told to those who watch after it.

use colibri_api::{Task, TaskShare, TaskStatus};
use colibri_trail::{Detail, EventName};

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
    let mut details = vec![
        ("id", Detail::Number(task.id)),
        ("to", Detail::Text(task.said.status.name())),
        ("claim", Detail::Number(task.claim)),
    ];
    if let Some(from) = from {
        details.push(("from", Detail::Text(from.name())));
    }
    match task.said.share.filter(|_| from.is_none()) {
        None => {}
        Some(TaskShare::All) => details.push(("share", Detail::Text("all"))),
        Some(TaskShare::Group(gid)) => details.push(("share", Detail::Number(gid.into()))),
    }
    if let Some(uid) = by.uid {
        details.push(("by", Detail::Number(uid.into())));
    }
    if let Some(session) = by.session {
        details.push(("session", Detail::Text(session)));
    }
    if let Some(reason) = &task.reason {
        details.push(("reason", Detail::Text(reason)));
    }
    recorder
        .event(EventName::Task, &details)
        .map_err(|error| error.to_string())
}

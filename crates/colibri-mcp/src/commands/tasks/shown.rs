//! The shared parts of the commands of tasks: arguments, and the display of tasks.

use std::io::{self, Read as _};

use serde_json::{Value, json};

use crate::failure::CommandError;
use crate::terminal::{group, user};
use colibri_api::{Task, TaskShare};
use colibri_text::visible;

/// Adds an argument that was given.
pub(super) fn put(arguments: &mut Value, key: &str, value: &Option<impl serde::Serialize>) {
    if let Some(value) = value {
        arguments[key] = json!(value);
    }
}

/// A text of the command line, or of standard input for `-`.
pub(super) fn text_of(given: &str) -> Result<String, CommandError> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    // One byte more than any text may have, for the daemon to refuse.
    io::stdin().take(1 << 20).read_to_string(&mut text)?;
    Ok(text)
}

/// The note on a task beside its status: its holder, the reason for which it waits, the reason of
/// its end.
pub(crate) fn note(task: &Task) -> String {
    let mut notes = Vec::new();
    match (&task.claimed_session, task.claimed_by, &task.for_session) {
        (Some(session), ..) => notes.push(format!("agent's instance {session}")),
        (None, Some(uid), _) => notes.push(person(task.claimed_person.as_deref(), uid)),
        (None, None, Some(session)) => notes.push(format!("for the agent's instance {session}")),
        (None, None, None) => {}
    }
    notes.extend(task.foreign.as_ref().map(|why| format!("foreign: {why}")));
    notes.extend(origin(task));
    notes.extend(task.reason.clone());
    notes.extend(task.waiting.clone());
    notes.join("; ")
}

/// The creator of a task that is somebody else's or shared, and those with whom it is shared.
pub(super) fn origin(task: &Task) -> Option<String> {
    let with = match task.said.share {
        None if task.said.created_by == nix::unistd::getuid().as_raw() => return None,
        None => String::new(),
        Some(TaskShare::All) => ", shared with all".to_owned(),
        Some(TaskShare::Group(gid)) => format!(", shared with group {}", group(gid)),
    };
    let creator = person(task.person.as_deref(), task.said.created_by);
    Some(format!("from {creator}{with}"))
}

/// A person's name on a board of many hosts, else that of the account.
fn person(name: Option<&str>, uid: u32) -> String {
    name.map_or_else(|| user(uid), |name| visible(name).into_owned())
}

/// A line on what may be changed in a task's name, if its maker said so.
pub(super) fn may_line(task: &Task) -> String {
    let Some(may) = &task.said.limits.may else {
        return String::new();
    };
    let list: Vec<String> = may
        .iter()
        .map(|pattern| visible(&pattern.to_string()).into_owned())
        .collect();
    let list = if list.is_empty() {
        "nothing".to_owned()
    } else {
        list.join(", ")
    };
    format!("\nMay change: {list}")
}

/// A task's number, status and title.
pub(crate) fn line(task: &Task) -> String {
    let title = visible(&task.said.title);
    format!("{} [{}] {title}", task.id, task.said.status.name())
}

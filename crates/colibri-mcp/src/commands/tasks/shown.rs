//! What the commands of tasks have in common: arguments as they are given, and tasks as they are shown.

use std::io::{self, Read as _};

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::terminal::user;
use colibri_api::Task;
use colibri_text::visible;

/// Adds an argument that was given.
pub(super) fn put(arguments: &mut Value, key: &str, value: &Option<impl serde::Serialize>) {
    if let Some(value) = value {
        arguments[key] = json!(value);
    }
}

/// A text of the command line, or of standard input for `-`.
pub(super) fn text_of(given: &str) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    // One byte more than any text may have, for the daemon to refuse.
    io::stdin().take(1 << 20).read_to_string(&mut text)?;
    Ok(text)
}

/// What there is to say of a task beside its status: who has it, why it waits, why it ended.
pub(super) fn note(task: &Task) -> String {
    let mut notes = Vec::new();
    match (&task.claimed_session, task.claimed_by, &task.for_session) {
        (Some(session), ..) => notes.push(format!("agent's instance {session}")),
        (None, Some(uid), _) => notes.push(user(uid)),
        (None, None, Some(session)) => notes.push(format!("for the agent's instance {session}")),
        (None, None, None) => {}
    }
    notes.extend(task.reason.clone());
    notes.extend(task.waiting.clone());
    notes.join("; ")
}

/// A task's number, status and title.
pub(super) fn line(task: &Task) -> String {
    let title = visible(&task.said.title);
    format!("{} [{}] {title}", task.id, task.said.status.name())
}

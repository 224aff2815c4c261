//! `colibri-mcp watch tasks`: changes of tasks as they are made.

use std::ops::ControlFlow;

use colibri_api::{Task, TaskChanged, TaskStatus, WatchRequest, WatchSubscribed};
use serde_json::value::RawValue;

use super::print::{explain_end, lagged, print};
use crate::commands::context::CommandContext;
use crate::commands::tasks::shown::{line, note};
use crate::connection::read;
use crate::failure::CommandError;
use colibri_text::visible;

/// The tasks to watch.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchTasksArguments {
    /// Only this task, until it has ended
    task: Option<u64>,
}

/// Runs the command until the one task has ended, too.
pub(super) fn run(
    arguments: &WatchTasksArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    let wanted = arguments.task;
    let ended = connection.listen(
        "colibri/watch",
        &WatchRequest::Tasks { task: wanted },
        |_, name, params| {
            let told = tell(name, params, context.json)?;
            let is_over = wanted.is_some() && told.is_some_and(TaskStatus::has_ended);
            Ok::<_, CommandError>(match is_over {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        },
    )?;
    explain_end(ended.as_deref())
}

/// Shows what the daemon tells, and returns the status of the task that it tells of.
fn tell(name: &str, params: &RawValue, json: bool) -> Result<Option<TaskStatus>, CommandError> {
    let (text, status) = match name {
        "colibri/watching" => {
            let WatchSubscribed { task, .. } = read(name, params)?;
            let Some(task) = task else { return Ok(None) };
            (shown(None, &task), Some(task.said.status))
        }
        "colibri/task" => {
            let TaskChanged { from, task, .. } = read(name, params)?;
            (shown(from, &task), Some(task.said.status))
        }
        "colibri/dropped" => (lagged(params, "changes")?.0, None),
        _ => return Ok(None),
    };
    print(params, &text, json)?;
    Ok(status)
}

/// A line for a change.
fn shown(from: Option<TaskStatus>, task: &Task) -> String {
    let from = from.map_or(String::new(), |from| format!("{} -> ", from.name()));
    let note = note(task);
    let note = if note.is_empty() {
        note
    } else {
        format!("  ({})", visible(&note))
    };
    format!("{from}{}{note}", line(task))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_line() {
        let mut task: Task = serde_json::from_str(
            r#"{"id":7,"title":"a\u001b","description":"","source":"","status":"claimed","required_capabilities":[],
                "priority":5,"created_by":0,"created_at":0,"updated_at":0,"claimed_session":"00000000000000aa"}"#,
        )
        .unwrap();
        task.said.created_by = nix::unistd::getuid().as_raw();
        assert_eq!(
            shown(Some(TaskStatus::Queued), &task),
            "queued -> 7 [claimed] a\\u{1b}  (agent's instance 00000000000000aa)"
        );
    }
}

//! `colibri-mcp tasks watch`: changes of tasks as they are made.

use std::ops::ControlFlow;

use colibri_api::{StreamEnded, Task, TaskChanged, TaskStatus, TasksLagged, TasksSubscribed, WatchTasksRequest};
use serde_json::value::RawValue;

use super::shown::{line, note};
use crate::commands::context::CommandContext;
use crate::connection::read;
use crate::failure::CommandError;
use crate::terminal;
use colibri_text::visible;

/// The tasks to watch.
#[derive(Debug, clap::Args)]
pub(super) struct WatchArguments {
    /// Only this task, until it has ended
    task: Option<u64>,
}

/// Runs the command until it is interrupted, or the one task has ended.
pub(super) fn run(arguments: &WatchArguments, context: &CommandContext) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    let asked = WatchTasksRequest { task: arguments.task };
    let ended = connection.listen("colibri/watch-tasks", &asked, |_, name, params| {
        let told = tell(name, params, context.json)?;
        let is_over = asked.task.is_some() && told.is_some_and(TaskStatus::has_ended);
        Ok::<_, CommandError>(match is_over {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    })?;
    if let Some(result) = ended {
        let why = read::<StreamEnded>("colibri/watch-tasks", &result)?.ended;
        eprintln!("colibri-mcp: {}", visible(&why));
    }
    Ok(())
}

/// Shows what the daemon tells; where the task stands that it tells of.
fn tell(name: &str, params: &RawValue, json: bool) -> Result<Option<TaskStatus>, CommandError> {
    let (text, status) = match name {
        "colibri/watching-tasks" => {
            let TasksSubscribed { task, .. } = read(name, params)?;
            let Some(task) = task else { return Ok(None) };
            (shown(None, &task), Some(task.said.status))
        }
        "colibri/task" => {
            let TaskChanged { from, task, .. } = read(name, params)?;
            (shown(from, &task), Some(task.said.status))
        }
        "colibri/tasks-dropped" => {
            let TasksLagged { changes, .. } = read(name, params)?;
            let count = changes.map_or_else(String::new, |changes| format!("{changes} "));
            (
                format!("-- {count}changes were made faster than they could be shown"),
                None,
            )
        }
        _ => return Ok(None),
    };
    match json {
        true => terminal::print(&colibri_text::json(params.get()))?,
        false => terminal::print(&text)?,
    }
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

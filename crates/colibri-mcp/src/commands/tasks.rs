//! `colibri-mcp tasks`: the task list.

use serde_json::json;

use super::context::Context;
use crate::failure::Failure;
use crate::terminal::{Style, Table};
use colibri_api::{TaskStatus, Tasks};
use colibri_text::visible;

/// Which tasks to list.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only tasks in this state: intake, queued, claimed, started, done, failed, cancelled
    #[arg(long)]
    status: Option<String>,
    /// Only tasks from this source
    #[arg(long)]
    source: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Goes on where the list before ended
    #[arg(long)]
    cursor: Option<String>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let mut query = json!({ "limit": arguments.limit });
    let optional = [
        ("status", &arguments.status),
        ("source", &arguments.source),
        ("cursor", &arguments.cursor),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            query[key] = json!(value);
        }
    }
    context.show("colibri_list_tasks", &query, show)
}

fn show(answer: &Tasks) -> String {
    if answer.tasks.is_empty() {
        return "No tasks.".to_owned();
    }
    let mut table = Table::new(&["id", "status", "priority", "source", "title"]);
    for task in &answer.tasks {
        let style = match task.said.status {
            TaskStatus::Done => Style::Good,
            TaskStatus::Failed => Style::Bad,
            _ => Style::Plain,
        };
        table.row(&[
            (&task.id.to_string(), Style::Plain),
            (task.said.status.name(), style),
            (&task.said.priority.to_string(), Style::Plain),
            (&task.said.source, Style::Plain),
            (&task.said.title, Style::Plain),
        ]);
    }
    match &answer.next_cursor {
        Some(cursor) => format!("{}\n\nMore: --cursor {}", table.text(), visible(cursor)),
        None => table.text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_tasks_and_how_to_go_on() {
        let answer: Tasks = serde_json::from_value(json!({
            "tasks": [{"id": 7, "status": "queued", "priority": 3, "title": "Write\nit", "source": "", "description": "",
                "required_capabilities": [], "created_by": 1001, "created_at": 0, "updated_at": 0}],
            "next_cursor": "abc",
        }))
        .unwrap();
        let text = show(&answer);
        assert!(
            text.contains("queued") && text.contains("Write\\nit") && text.ends_with("--cursor abc"),
            "{text}"
        );
    }
}

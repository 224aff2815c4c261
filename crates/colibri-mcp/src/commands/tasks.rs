//! `colibri-mcp tasks`: the task list.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Context, Failure};
use crate::terminal::{Style, Table};

/// Which tasks to list.
#[derive(Debug, clap::Args)]
pub struct Arguments {
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

#[derive(Debug, Deserialize)]
struct Tasks {
    tasks: Vec<Map<String, Value>>,
    next_cursor: Option<String>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
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
        let field = |key: &str| match task.get(key) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let status = field("status");
        let style = match status.as_str() {
            "done" => Style::Good,
            "failed" => Style::Bad,
            _ => Style::Plain,
        };
        table.row(&[
            (&field("id"), Style::Plain),
            (&status, style),
            (&field("priority"), Style::Plain),
            (&field("source"), Style::Plain),
            (&field("title"), Style::Plain),
        ]);
    }
    match &answer.next_cursor {
        Some(cursor) => format!("{}\n\nMore: --cursor {}", table.text(), crate::terminal::line(cursor)),
        None => table.text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_tasks_and_how_to_go_on() {
        let answer: Tasks = serde_json::from_value(json!({
            "tasks": [{"id": 7, "status": "queued", "priority": 3, "title": "Write\nit", "source": null}],
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

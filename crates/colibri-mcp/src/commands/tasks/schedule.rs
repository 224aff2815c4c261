//! `colibri-mcp tasks schedule` and `schedules`.

use serde_json::{Value, json};

use super::shown::{put, text_of};
use crate::commands::context::CommandContext;
use crate::failure::CommandError;
use crate::terminal::{Style, TextTable};
use colibri_api::{Schedule, Schedules};

/// The times, and the work.
#[derive(Debug, clap::Args)]
pub(super) struct CreateScheduleArguments {
    #[command(flatten)]
    when: ScheduleTimes,
    #[command(flatten)]
    what: ScheduledTask,
    /// All that somebody needs to know to do the task; `-` reads it from standard input
    #[arg(long, requires = "title")]
    description: Option<String>,
    /// 0 is the lowest, 9 the highest
    #[arg(long, requires = "title")]
    priority: Option<u32>,
    /// A capability that its taker needs
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CAPABILITY",
        requires = "title"
    )]
    capabilities: Option<Vec<String>>,
    /// The tool's arguments, a JSON object
    #[arg(long, value_name = "JSON", requires = "tool")]
    args: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct ScheduleTimes {
    /// Minute, hour, day, month and weekday as cron has them, in UTC: "0 3 * * mon"
    #[arg(long)]
    cron: Option<String>,
    /// Every so many seconds
    #[arg(long, value_name = "SECONDS")]
    every: Option<u64>,
    /// Once, at this time: 2026-11-24T03:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct ScheduledTask {
    /// The work: the title of the task to create
    title: Option<String>,
    /// The tool to call, by the name that you see
    #[arg(long)]
    tool: Option<String>,
}

/// The schedules.
#[derive(Debug, clap::Args)]
pub(super) struct ListSchedulesArguments {
    /// Deletes this one
    #[arg(long, value_name = "ID")]
    delete: Option<u64>,
}

/// Creates one.
pub(super) fn create(
    create: &CreateScheduleArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let mut given = json!({ "action": "create" });
    put(&mut given, "cron", &create.when.cron);
    put(&mut given, "every_s", &create.when.every);
    put(&mut given, "at", &create.when.at);
    put(&mut given, "title", &create.what.title);
    put(&mut given, "tool", &create.what.tool);
    put(&mut given, "priority", &create.priority);
    put(&mut given, "required_capabilities", &create.capabilities);
    if let Some(description) = &create.description {
        given["description"] = json!(text_of(description)?);
    }
    if let Some(arguments) = &create.args {
        let arguments: Value = serde_json::from_str(arguments)
            .map_err(|error| CommandError::Usage(format!("--args is no JSON: {error}")))?;
        given["arguments"] = arguments;
    }
    context.show("colibri_schedule_task", &given, show)
}

impl ListSchedulesArguments {
    /// True if one is deleted.
    pub(super) fn deletes(&self) -> bool {
        self.delete.is_some()
    }
}

/// Lists them, or deletes one.
pub(super) fn list(
    which: &ListSchedulesArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let given = match which.delete {
        Some(id) => json!({ "action": "delete", "schedule": id }),
        None => json!({ "action": "list" }),
    };
    context.show(
        "colibri_schedule_task",
        &given,
        |answer: &Schedules| match which.delete {
            Some(id) => format!("Deleted schedule {id}."),
            None => show(answer),
        },
    )
}

fn show(answer: &Schedules) -> String {
    if answer.schedules.is_empty() {
        return "No schedules.".to_owned();
    }
    let mut table = TextTable::new(&["id", "when", "what", "runs", "last"]);
    for Schedule {
        id,
        timing,
        work,
        runs,
        last_outcome,
        foreign,
        next_at,
        ..
    } in &answer.schedules
    {
        let when = match (&timing.cron, timing.every_s) {
            (Some(cron), _) => cron.clone(),
            (_, Some(every)) => format!("every {every} s"),
            _ => timing.at.clone().unwrap_or_default(),
        };
        let when = if next_at.is_none() {
            format!("{when} (over)")
        } else {
            when
        };
        let what = match (&work.task, &work.call) {
            (Some(task), _) => format!("task: {}", task.title),
            (_, Some(call)) => format!("call: {}", call.tool),
            _ => String::new(),
        };
        let last = match foreign {
            Some(why) => format!("foreign: {why}"),
            None => last_outcome.clone().unwrap_or_default(),
        };
        table.row(&[
            (&id.to_string(), Style::Plain),
            (&when, Style::Plain),
            (&what, Style::Plain),
            (&runs.to_string(), Style::Plain),
            (&last, Style::Plain),
        ]);
    }
    table.text()
}

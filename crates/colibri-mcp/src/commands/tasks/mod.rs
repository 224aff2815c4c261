//! `colibri-mcp tasks`: the board, as people use it.

mod may;
mod schedule;
pub(crate) mod shown;

use clap::Subcommand;
use serde_json::{Value, json};

use self::shown::{line, may_line, note, origin, put, text_of};
use super::context::CommandContext;
use super::write_gate;
use crate::failure::CommandError;
use crate::terminal::{Style, TextTable};
use colibri_api::{CreatedTask, NextTask, OneTask, TaskStatus, Tasks};
use colibri_text::visible;

/// The tasks to list, or the action on one.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct TasksArguments {
    #[command(subcommand)]
    order: Option<TaskOrder>,
    #[command(flatten)]
    list: ListTasksArguments,
}

/// The tasks to list.
#[derive(Debug, clap::Args)]
struct ListTasksArguments {
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

#[derive(Debug, Subcommand)]
enum TaskOrder {
    /// Lists the tasks
    List(ListTasksArguments),
    /// Creates a task
    Create(CreateTaskArguments),
    /// Takes a request in free text in, to be looked at later
    Intake {
        /// The request; its first line becomes the title; `-` reads it from standard input
        text: String,
        #[command(flatten)]
        needs: TaskNeeds,
    },
    /// Shows a task and its result
    Show(TaskArguments),
    /// Claims the next task, or one that is named
    Next {
        /// This task
        task: Option<u64>,
        /// If there is none of your own, one that others share with you: what it says is theirs
        #[arg(long, conflicts_with = "task")]
        shared: bool,
        /// Only one that needs one of these, or nothing
        #[arg(
            long,
            value_delimiter = ',',
            value_name = "CAPABILITY",
            conflicts_with = "task"
        )]
        capabilities: Option<Vec<String>>,
    },
    /// Says that work on a claimed task begins, or goes on
    Start(ClaimedTaskArguments),
    /// Ends a claimed task with its result
    Finish {
        #[command(flatten)]
        claimed: ClaimedTaskArguments,
        /// The result; `-` reads it from standard input
        result: String,
        /// The result is JSON, not text
        #[arg(long)]
        as_json: bool,
    },
    /// Ends a claimed task that cannot be done
    Fail {
        #[command(flatten)]
        claimed: ClaimedTaskArguments,
        /// The reason
        reason: String,
    },
    /// Gives a claimed task back, or queues a request that was taken in
    Release {
        /// The task's number
        task: u64,
        /// The claim's number; none for a request that was taken in
        claim: Option<u64>,
        /// The reason
        #[arg(long)]
        reason: Option<String>,
    },
    /// Ends a task that is not to be done any more
    Cancel {
        /// The task's number
        task: u64,
        /// The reason
        #[arg(long)]
        reason: Option<String>,
    },
    /// Creates a task, or calls a tool, at given times
    Schedule(schedule::CreateScheduleArguments),
    /// Shows your schedules, or deletes one; operators see all
    Schedules(schedule::ListSchedulesArguments),
    /// Switches tasks and agents on for your own daemon, after a question at a terminal
    Enable,
    /// Switches tasks and agents off for your own daemon
    Disable,
}

impl TaskOrder {
    /// True if the write gate has to be open for it.
    fn changes_board(&self) -> bool {
        match self {
            TaskOrder::List(_) | TaskOrder::Show(_) | TaskOrder::Enable | TaskOrder::Disable => {
                false
            }
            TaskOrder::Schedules(which) => which.deletes(),
            _ => true,
        }
    }
}

#[derive(Debug, clap::Args)]
struct CreateTaskArguments {
    /// The work, in one line
    title: String,
    /// All that somebody needs to know to do it; `-` reads it from standard input
    #[arg(long)]
    description: Option<String>,
    /// 0 is the lowest, 9 the highest
    #[arg(long)]
    priority: Option<u32>,
    /// The group to share it with: `all`, or a group of yours
    #[arg(long, value_name = "GROUP")]
    share: Option<String>,
    /// The tools that may change something in its name: SERVER/TOOL with `*`, JSON with the values
    /// of arguments, `none`, or `any`; without it a list is proposed at a terminal
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    may: Vec<String>,
    #[command(flatten)]
    needs: TaskNeeds,
}

#[derive(Debug, clap::Args)]
struct TaskNeeds {
    /// A capability that its taker needs, for example rust
    #[arg(long, value_delimiter = ',', value_name = "CAPABILITY")]
    capabilities: Option<Vec<String>>,
    /// Its source, for example a project
    #[arg(long)]
    source: Option<String>,
}

#[derive(Debug, clap::Args)]
struct TaskArguments {
    /// The task's number
    task: u64,
}

#[derive(Debug, clap::Args)]
struct ClaimedTaskArguments {
    /// The task's number
    task: u64,
    /// The claim's number, as `next` showed it
    claim: u64,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &TasksArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let Some(order) = &arguments.order else {
        return list(&arguments.list, context);
    };
    if order.changes_board() {
        write_gate::ensure_open(context)?;
    }
    let one = |tool, given: &Value| context.show::<OneTask>(tool, given, show_one);
    match order {
        TaskOrder::List(which) => list(which, context),
        // Not by the tool, which models call: what a person shares here is shared without asking
        // anybody.
        TaskOrder::Create(create) => {
            let (created, raw) =
                context.ask::<CreatedTask>("colibri/create-task", &create.arguments(context)?)?;
            context.print(&raw, || format!("Created task {}.", line(&created.task)))
        }
        TaskOrder::Intake { text, needs } => {
            let mut given = json!({ "text": text_of(text)? });
            put(&mut given, "capabilities", &needs.capabilities);
            put(&mut given, "source", &needs.source);
            let taken = |taken: &CreatedTask| format!("Took in task {}.", line(&taken.task));
            context.show("colibri_intake_task", &given, taken)
        }
        TaskOrder::Show(TaskArguments { task }) => {
            one("colibri_get_task", &json!({ "task": task }))
        }
        TaskOrder::Next {
            task,
            shared,
            capabilities,
        } => {
            let mut given = json!({ "shared": shared });
            put(&mut given, "task", task);
            put(&mut given, "capabilities", capabilities);
            context.show("colibri_next_task", &given, show_next)
        }
        TaskOrder::Start(claimed) => one("colibri_start_task", &claimed.arguments()),
        TaskOrder::Finish {
            claimed,
            result,
            as_json,
        } => {
            let mut given = claimed.arguments();
            let text = text_of(result)?;
            given["result"] = match as_json {
                false => json!(text),
                true => serde_json::from_str(&text).map_err(|error| {
                    CommandError::Usage(format!("the result is no JSON: {error}"))
                })?,
            };
            one("colibri_finish_task", &given)
        }
        TaskOrder::Fail { claimed, reason } => {
            let mut given = claimed.arguments();
            given["reason"] = json!(reason);
            one("colibri_fail_task", &given)
        }
        TaskOrder::Release {
            task,
            claim,
            reason,
        } => {
            let mut given = json!({ "task": task });
            put(&mut given, "claim", claim);
            put(&mut given, "reason", reason);
            one("colibri_release_task", &given)
        }
        TaskOrder::Cancel { task, reason } => {
            let mut given = json!({ "task": task });
            put(&mut given, "reason", reason);
            one("colibri_cancel_task", &given)
        }
        TaskOrder::Schedule(create) => schedule::create(create, context),
        TaskOrder::Schedules(which) => schedule::list(which, context),
        TaskOrder::Enable => write_gate::enable(context),
        TaskOrder::Disable => write_gate::disable(context),
    }
}

impl CreateTaskArguments {
    fn arguments(&self, context: &CommandContext) -> Result<Value, CommandError> {
        let mut given = json!({ "title": self.title });
        let description = self.description.as_deref().map(text_of).transpose()?;
        let text = format!(
            "{}\n{}",
            self.title,
            description.as_deref().unwrap_or_default()
        );
        put(&mut given, "description", &description);
        put(&mut given, "may", &may::of_task(&self.may, &text, context)?);
        put(&mut given, "priority", &self.priority);
        put(
            &mut given,
            "required_capabilities",
            &self.needs.capabilities,
        );
        put(&mut given, "source", &self.needs.source);
        put(&mut given, "share", &self.share);
        Ok(given)
    }
}

impl ClaimedTaskArguments {
    fn arguments(&self) -> Value {
        json!({ "task": self.task, "claim": self.claim })
    }
}

fn list(which: &ListTasksArguments, context: &CommandContext) -> Result<(), CommandError> {
    let mut query = json!({ "limit": which.limit });
    put(&mut query, "status", &which.status);
    put(&mut query, "source", &which.source);
    put(&mut query, "cursor", &which.cursor);
    context.show("colibri_list_tasks", &query, show)
}

fn style(status: TaskStatus) -> Style {
    match status {
        TaskStatus::Done => Style::Good,
        TaskStatus::Failed => Style::Bad,
        _ => Style::Plain,
    }
}

fn show(answer: &Tasks) -> String {
    if answer.tasks.is_empty() {
        return "No tasks.".to_owned();
    }
    // Where several hosts share the board.
    let has_hosts = answer.tasks.iter().any(|task| task.host.is_some());
    let host: &[&str] = if has_hosts { &["host"] } else { &[] };
    let titles = [
        &["id"],
        host,
        &["status", "priority", "source", "title", "note"],
    ]
    .concat();
    let mut table = TextTable::new(&titles);
    for task in &answer.tasks {
        let (id, priority, note) = (
            task.id.to_string(),
            task.said.priority.to_string(),
            note(task),
        );
        let mut cells = vec![(id.as_str(), Style::Plain)];
        if has_hosts {
            cells.push((task.host.as_deref().unwrap_or("-"), Style::Plain));
        }
        let style = match task.foreign {
            Some(_) => Style::Bad,
            None => style(task.said.status),
        };
        cells.push((task.said.status.name(), style));
        let rest = [&priority, &task.said.source, &task.said.title, &note];
        cells.extend(rest.map(|text| (text.as_str(), Style::Plain)));
        table.row(&cells);
    }
    match &answer.next_cursor {
        Some(cursor) => format!("{}\n\nMore: --cursor {}", table.text(), visible(cursor)),
        None => table.text(),
    }
}

fn show_next(answer: &NextTask) -> String {
    let Some(task) = &answer.task else {
        return "No task can be claimed now.".to_owned();
    };
    let mut text = format!("Claim {} of task {}", task.claim, line(task));
    if let Some(origin) = origin(task) {
        text.push_str(&format!("\n{}", visible(&origin)));
    }
    text.push_str(&may_line(task));
    if !task.said.description.is_empty() {
        text.push_str(&format!("\n\n{}", lines(&task.said.description)));
    }
    let (id, claim) = (task.id, task.claim);
    text.push_str(&format!(
        "\n\nEnd it: colibri-mcp tasks finish {id} {claim} RESULT"
    ));
    text
}

fn show_one(answer: &OneTask) -> String {
    let task = &answer.task;
    let mut text = format!("Task {}", line(task));
    let note = note(task);
    if !note.is_empty() {
        text.push_str(&format!("\n{}", visible(&note)));
    }
    text.push_str(&may_line(task));
    if !task.said.description.is_empty() {
        text.push_str(&format!("\n\n{}", lines(&task.said.description)));
    }
    if let Some(result) = &answer.result {
        let result = match serde_json::from_str::<Value>(result.get()) {
            Ok(Value::String(said)) => lines(&said),
            _ => colibri_text::json(result.get()).into_owned(),
        };
        text.push_str(&format!("\n\nResult:\n{result}"));
    }
    text
}

/// Text of several lines with nothing in it that a terminal acts on.
fn lines(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| visible(line.trim_end_matches('\r')).into_owned());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(more: Value) -> Value {
        let mut task = json!({"id": 7, "status": "queued", "priority": 3, "title": "Write\nit", "source": "",
            "description": "", "required_capabilities": [], "created_at": 0, "updated_at": 0,
            "created_by": nix::unistd::getuid().as_raw()});
        task.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        task
    }

    #[test]
    fn shows_tasks_and_how_to_go_on() {
        let answer: Tasks = serde_json::from_value(json!({
            "tasks": [task(json!({"waiting": "no agent can do any of cobol"}))], "next_cursor": "abc",
        }))
        .unwrap();
        let text = show(&answer);
        assert!(
            text.contains("queued")
                && text.contains("Write\\nit")
                && text.ends_with("--cursor abc"),
            "{text}"
        );
        assert!(text.contains("no agent can do any of cobol"), "{text}");
    }

    #[test]
    fn shows_a_claim_and_a_result_and_nothing_that_a_terminal_acts_on() {
        let next = json!({"task": task(json!({"status": "claimed", "claim": 2, "description": "a\n\u{1b}[2Jb"}))});
        let text = show_next(&serde_json::from_value(next).unwrap());
        assert!(
            text.starts_with("Claim 2 of task 7 [claimed] Write\\nit"),
            "{text}"
        );
        assert!(text.contains("\n\na\n\\u{1b}[2Jb\n"), "{text}");
        assert!(
            text.ends_with("colibri-mcp tasks finish 7 2 RESULT"),
            "{text}"
        );
        let shown = |result: &str| {
            let of = task(json!({"status": "done", "claimed_session": "00000000000000aa"}));
            let answer = format!("{{\"task\":{of},\"result\":{result}}}");
            show_one(&serde_json::from_str(&answer).unwrap())
        };
        assert!(shown("\"x\\u001b\\ny\"").ends_with("Result:\nx\\u{1b}\ny"));
        let text = shown("{\"n\":\"\\u001b\"}");
        assert!(
            text.ends_with("Result:\n{\"n\":\"\\u001b\"}")
                && text.contains("instance 00000000000000aa"),
            "{text}"
        );
        assert_eq!(
            show_next(&NextTask { task: None }),
            "No task can be claimed now."
        );
    }
}

//! The answers of tools: structured content, and a readable summary of it.

use std::fmt::Write;

use colibri_api::{
    CreatedTask, DaemonFacts, OneTask, ServerFacts, Task, UNBOUNDED_MOUNT, UnseenServer,
};
use colibri_protocol::{AnswerBody, Code, Failure, Method, Version};
use colibri_text::{brief, counted, visible};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::cost_summary::cost;
use crate::board::origin;
use crate::relay::CallOutcome;

/// The most lines of a list in a summary.
const MAX_SUMMARY_LINES: usize = 200;
/// The most characters of one piece of other people's text in a summary.
pub(super) const MAX_SUMMARY_TEXT: usize = 160;

/// The answer to a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// The raw JSON of a `CallToolResult`, on one line.
    pub result: Vec<u8>,
    /// True if `isError` is true in it.
    pub is_error: bool,
}

impl From<ToolOutcome> for CallOutcome {
    fn from(outcome: ToolOutcome) -> CallOutcome {
        CallOutcome::Own {
            answer: AnswerBody::Result(outcome.result),
            failed: outcome.is_error,
        }
    }
}

impl ToolOutcome {
    /// A successful result.
    pub(super) fn of(result: impl Into<Vec<u8>>) -> ToolOutcome {
        ToolOutcome {
            result: result.into(),
            is_error: false,
        }
    }
}

/// The answer to a call that is not carried out. The newest legacy form: what later versions demand
/// of every result is added with theirs.
pub(super) fn refused(failure: Failure) -> ToolOutcome {
    // Messages repeat what callers and servers wrote.
    let failure = Failure {
        message: visible(&failure.message).into_owned(),
        ..failure
    };
    let result = match failure.answer(Some(Method::ToolsCall), Version::LATEST_LEGACY) {
        AnswerBody::Result(result) => result,
        // Not for a code that is delivered as a result, which all of ours are.
        AnswerBody::Error(error) => error.to_json().into_bytes(),
    };
    ToolOutcome {
        result,
        is_error: true,
    }
}

/// A successful result: the summary, and the whole as JSON for clients that know no structured
/// content (MCP asks for it, "Tools: Structured Content").
pub(super) fn outcome(summary: &str, structured: &impl Serialize) -> Result<ToolOutcome, Failure> {
    let json = to_raw_value(structured).map_err(unwritable)?;
    written(&[summary.trim_end(), json.get()], Some(&json))
}

/// A result of these texts.
pub(super) fn written(
    texts: &[&str],
    structured: Option<&impl Serialize>,
) -> Result<ToolOutcome, Failure> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CallToolResult<'a, T> {
        content: Vec<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        structured_content: Option<&'a T>,
    }
    #[derive(Serialize)]
    struct Text<'a> {
        r#type: &'static str,
        text: &'a str,
    }
    let content = texts.iter().map(|text| Text {
        r#type: "text",
        text,
    });
    let made = serde_json::to_vec(&CallToolResult {
        content: content.collect(),
        structured_content: structured,
    });
    made.map(ToolOutcome::of).map_err(unwritable)
}

/// The failure to write an answer as JSON.
pub(super) fn unwritable(error: serde_json::Error) -> Failure {
    Failure::new(
        Code::Internal,
        format!("the answer cannot be written as JSON: {error}"),
    )
}

/// The description of the daemon in status and snapshot.
pub(super) fn daemon_summary(daemon: &DaemonFacts) -> String {
    let gate = |open| if open { "open" } else { "closed" };
    let mut text = format!(
        "colibri-mcpd {}, up {}, {} connected, socket {}\nGates: write {}, external-call {}\nCost mode: {}\n",
        daemon.version,
        duration(daemon.uptime_s),
        counted(daemon.clients, "client"),
        visible(&daemon.socket),
        gate(daemon.gates.write),
        gate(daemon.gates.external_call),
        cost(daemon),
    );
    if daemon.require_jail {
        text.push_str("Only jailed servers are started.\n");
    }
    if let Some(error) = &daemon.registry.error {
        push_line(
            &mut text,
            &format!(
                "The last reload failed, and the registry and client policy before it stay in force: {}",
                brief(error, MAX_SUMMARY_TEXT)
            ),
        );
    }
    if let Some(error) = &daemon.trail_error {
        push_line(
            &mut text,
            &format!(
                "Calls are refused because they cannot be recorded: {}",
                brief(error, MAX_SUMMARY_TEXT)
            ),
        );
    }
    if daemon.approvals_waiting > 0 {
        let waiting = counted(daemon.approvals_waiting, "call");
        push_line(
            &mut text,
            &format!("Waiting for approval: {waiting}. Run: colibri-mcp approvals"),
        );
    }
    push_list(&mut text, &daemon.collisions, |collision| {
        brief(collision, MAX_SUMMARY_TEXT)
    });
    push_list(&mut text, &daemon.look_alikes, |warning| {
        brief(warning, MAX_SUMMARY_TEXT)
    });
    text
}

/// ` (2 ready, 1 failed)`, or nothing if there is nothing to count.
pub(super) fn counts(named: impl Iterator<Item = (&'static str, u64)>) -> String {
    let some: Vec<_> = named
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    if some.is_empty() {
        String::new()
    } else {
        format!(" ({})", some.join(", "))
    }
}

/// A line for each server.
pub(super) fn server_lines(servers: &[ServerFacts]) -> String {
    let mut text = format!("{}\n", counted(servers.len() as u64, "external server"));
    push_list(&mut text, servers, |server| {
        let mut line = format!("{}: {}", server.id, server.state.name());
        if let Some(reason) = &server.reason {
            line.push_str(&format!(" ({})", brief(reason, MAX_SUMMARY_TEXT)));
        }
        line.push_str(&format!(
            ", {}{}, {}",
            counted(server.tools, "tool"),
            server.others(),
            counted(server.processes.len() as u64, "process"),
        ));
        if let Some(jail) = &server.jail {
            line.push_str(&format!(", jail {}, network {}", jail.name, jail.network));
        }
        if server.is_unbounded() {
            line.push_str(&format!(", {UNBOUNDED_MOUNT}"));
        }
        if let Some(blocked) = blocked(server) {
            line.push_str(&format!(", {blocked}"));
        }
        line
    });
    text
}

/// The items of a server that its pins block, if there are any.
pub(super) fn blocked(server: &ServerFacts) -> Option<String> {
    let what = match (
        server.tools_blocked + server.others_blocked,
        server.instructions_blocked,
    ) {
        (0, false) => return None,
        (0, true) => "its instructions are".to_owned(),
        (count, instructions) => {
            let more = if instructions {
                " and its instructions"
            } else {
                ""
            };
            let are = if count == 1 && !instructions {
                "is"
            } else {
                "are"
            };
            let noun = if server.others_blocked == 0 {
                "tool"
            } else {
                "definition"
            };
            format!("{}{more} {are}", counted(count, noun))
        }
    };
    Some(format!(
        "{what} blocked: not as approved. Run: colibri-mcp pin diff {}",
        server.id
    ))
}

/// The line of a server whose tools are not known.
pub(super) fn unseen_line(unseen: &UnseenServer) -> String {
    let reason = unseen
        .reason
        .as_ref()
        .map(|reason| format!(": {}", brief(reason, MAX_SUMMARY_TEXT)));
    let (server, state, reason) = (
        &unseen.server,
        unseen.state.name(),
        reason.unwrap_or_default(),
    );
    format!("{server} ({state}): its tools are not known yet{reason}")
}

/// The line of a task.
pub(super) fn task_line(task: &Task, viewer: u32) -> String {
    let mut line = format!(
        "{} [{}, priority {}] {}",
        task.id,
        task.said.status.name(),
        task.said.priority,
        brief(&task.said.title, MAX_SUMMARY_TEXT)
    );
    if let Some(origin) = origin(task, viewer) {
        line.push_str(&format!(" ({origin})"));
    }
    if let Some(why) = &task.foreign {
        line.push_str(&format!(" (foreign: {})", brief(why, MAX_SUMMARY_TEXT)));
    }
    for why in [&task.reason, &task.waiting].into_iter().flatten() {
        line.push_str(&format!(" ({})", brief(why, MAX_SUMMARY_TEXT)));
    }
    line
}

/// The answer with a new task.
pub(super) fn created(task: Task, viewer: u32) -> Result<ToolOutcome, Failure> {
    outcome(
        &format!("Created task {}", task_line(&task, viewer)),
        &CreatedTask { task },
    )
}

/// The answer with one task, and its result if it has one.
pub(super) fn one_task(
    task: Task,
    result: Option<String>,
    viewer: u32,
) -> Result<ToolOutcome, Failure> {
    let result = result
        .map(RawValue::from_string)
        .transpose()
        .map_err(|error| {
            let why = format!(
                "the result of task {} in the store is no JSON: {error}",
                task.id
            );
            Failure::new(Code::StoreUnavailable, why)
        })?;
    outcome(
        &format!("Task {}", task_line(&task, viewer)),
        &OneTask { task, result },
    )
}

/// `3 d 4 h`, `4 h 5 min`, `5 min 6 s`, `6 s`.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Adds a line, without characters that hide or forge text.
pub(super) fn push_line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", visible(line));
}

/// A line each, up to [`MAX_SUMMARY_LINES`].
pub(super) fn push_list<T>(text: &mut String, items: &[T], line: impl Fn(&T) -> String) {
    for item in items.iter().take(MAX_SUMMARY_LINES) {
        push_line(text, &format!("- {}", line(item)));
    }
    if items.len() > MAX_SUMMARY_LINES {
        push_line(
            text,
            &format!("- and {} more", items.len() - MAX_SUMMARY_LINES),
        );
    }
}

//! The tools' answers: structured content, and a readable summary of it.

use super::arguments::{ObjectMembers, quoted};
use super::cost_summary::cost;
use super::facts::{AdvertisedTools, DaemonView, ExternalTool};
use crate::board::origin;
use crate::results::ResultPiece;
use colibri_api::{
    CostModeSet, CreatedTask, DaemonFacts, FoundTools, NextTask, OneTask, Schedule, Schedules, ServerCounts,
    ServerFacts, ServerState, Servers, Skills, Snapshot, Status, Task, TaskStatus, Tasks, UNBOUNDED_MOUNT,
    UnseenServer,
};
use colibri_protocol::{AnswerBody, Code, Failure, Method, Version};
use colibri_text::{brief, counted, visible};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The most bytes of the structured content of `colibri_external_mcp_list_tools`. With its copy as text, in which each
/// byte may become two, the result stays under the frame limit of 16 MiB.
const MAX_TOOLS_BYTES: usize = 4 << 20;

/// The most lines of a list in a summary.
const MAX_SUMMARY_LINES: usize = 200;

/// The most characters of one piece of other people's text in a summary.
const MAX_SUMMARY_TEXT: usize = 160;

/// The answer to a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// The raw JSON of a `CallToolResult`, on one line.
    pub result: Vec<u8>,
    /// True if `isError` is true in it.
    pub is_error: bool,
}

/// The answer to a call that is not carried out. The newest legacy form: what later versions demand of every result is
/// added with theirs.
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
    ToolOutcome { result, is_error: true }
}

/// A successful result.
fn outcome(summary: &str, structured: &impl Serialize) -> Result<ToolOutcome, Failure> {
    let json = to_raw_value(structured).map_err(unwritable)?;
    written(&[summary.trim_end(), json.get()], Some(&json))
}

/// A result of these texts.
fn written(texts: &[&str], structured: Option<&impl Serialize>) -> Result<ToolOutcome, Failure> {
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
    let content = texts.iter().map(|text| Text { r#type: "text", text });
    let made = serde_json::to_vec(&CallToolResult {
        content: content.collect(),
        structured_content: structured,
    });
    made.map(|result| ToolOutcome {
        result,
        is_error: false,
    })
    .map_err(unwritable)
}

fn unwritable(error: serde_json::Error) -> Failure {
    Failure::new(Code::Internal, format!("the answer cannot be written as JSON: {error}"))
}

/// The answer of `colibri_read_result`: the piece as it is, once, and then where the next begins. `_meta` has that for
/// programs.
pub(super) fn piece(piece: &ResultPiece) -> Result<ToolOutcome, Failure> {
    let text = to_raw_value(&piece.text).map_err(unwritable)?;
    let more = piece.next.map(|next| {
        format!(
            ",{{\"type\":\"text\",\"text\":\"[Colibri] More follows at offset {next}.\"}}],\
             \"_meta\":{{\"org.colibri/next\":{next}}}}}"
        )
    });
    let more = more.as_deref().unwrap_or("]}");
    Ok(ToolOutcome {
        result: format!("{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}{more}").into_bytes(),
        is_error: false,
    })
}

/// The answer of `colibri_read_result` with a block of a result's content, as its server wrote it.
pub(super) fn block(block: &str) -> Result<ToolOutcome, Failure> {
    Ok(ToolOutcome {
        result: format!("{{\"content\":[{block}]}}").into_bytes(),
        is_error: false,
    })
}

/// The description of the daemon in status and snapshot.
fn daemon_summary(daemon: &DaemonFacts) -> String {
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
                "Registry {} is not loaded as it stands: {}",
                daemon.registry.path,
                brief(error, MAX_SUMMARY_TEXT)
            ),
        );
    }
    if let Some(error) = &daemon.trail_error {
        push_line(
            &mut text,
            &format!("Calls are refused: {}", brief(error, MAX_SUMMARY_TEXT)),
        );
    }
    if daemon.approvals_waiting > 0 {
        let waiting = counted(daemon.approvals_waiting, "call");
        push_line(
            &mut text,
            &format!("Waiting for a person: {waiting}; colibri-mcp approvals"),
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

/// The answer of `colibri_status`.
pub(super) fn status(view: DaemonView) -> Result<ToolOutcome, Failure> {
    let DaemonView { daemon, servers } = view;
    let count = |state| servers.iter().filter(|server| server.state == state).count() as u64;
    let status = Status {
        daemon,
        servers: ServerCounts {
            total: servers.len() as u64,
            by_state: ServerState::ALL.map(|state| (state, count(state))).into(),
            tools_blocked: servers.iter().map(|server| server.tools_blocked).sum(),
            others_blocked: servers.iter().map(|server| server.others_blocked).sum(),
            instructions_blocked: servers.iter().filter(|server| server.instructions_blocked).count() as u64,
            unbounded: servers.iter().filter(|server| server.is_unbounded()).count() as u64,
        },
    };
    let by_state = status.servers.by_state.iter();
    let mut summary = format!(
        "{}Servers: {}{}\n",
        daemon_summary(&status.daemon),
        servers.len(),
        counts(by_state.map(|(state, count)| (state.name(), *count)))
    );
    for server in &servers {
        if let Some(blocked) = blocked(server) {
            push_line(&mut summary, &format!("- {}: {blocked}", server.id));
        }
    }
    outcome(&summary, &status)
}

/// The answer of `colibri_snapshot`.
pub(super) fn snapshot(view: DaemonView, tasks: &[(TaskStatus, u64)]) -> Result<ToolOutcome, Failure> {
    let snapshot = Snapshot {
        daemon: view.daemon,
        servers: view.servers,
        tasks_by_status: tasks.iter().copied().collect(),
    };
    let summary = format!(
        "{}Tasks: {}{}\n{}",
        daemon_summary(&snapshot.daemon),
        tasks.iter().map(|(_, count)| count).sum::<u64>(),
        counts(tasks.iter().map(|(status, count)| (status.name(), *count))),
        server_lines(&snapshot.servers)
    );
    outcome(&summary, &snapshot)
}

/// ` (2 ready, 1 failed)`, or nothing if there is nothing to count.
fn counts(named: impl Iterator<Item = (&'static str, u64)>) -> String {
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

/// The answer of `colibri_external_mcp_servers`.
pub(super) fn servers(servers: Vec<ServerFacts>) -> Result<ToolOutcome, Failure> {
    outcome(&server_lines(&servers), &Servers { servers })
}

fn server_lines(servers: &[ServerFacts]) -> String {
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
fn blocked(server: &ServerFacts) -> Option<String> {
    let what = match (
        server.tools_blocked + server.others_blocked,
        server.instructions_blocked,
    ) {
        (0, false) => return None,
        (0, true) => "its instructions are".to_owned(),
        (count, instructions) => {
            let more = if instructions { " and its instructions" } else { "" };
            let are = if count == 1 && !instructions { "is" } else { "are" };
            let noun = if server.others_blocked == 0 {
                "tool"
            } else {
                "definition"
            };
            format!("{}{more} {are}", counted(count, noun))
        }
    };
    Some(format!(
        "{what} blocked, not as approved: colibri-mcp pin diff {}",
        server.id
    ))
}

/// The answer of `colibri_external_mcp_list_tools`.
pub(super) fn external_tools(offered: AdvertisedTools, server: Option<&str>) -> Result<ToolOutcome, Failure> {
    /// [`colibri_api::ServerTools`], its tools as they were written.
    #[derive(Serialize)]
    struct RawServerTools {
        tools: Vec<Box<RawValue>>,
        left_out: usize,
        not_seen: Vec<UnseenServer>,
    }
    if let Some(server) = server
        && !offered.servers.iter().any(|id| id == server)
    {
        let ids: Vec<_> = offered.servers.iter().map(String::as_str).take(20).collect();
        let why = format!("there is no server {}, known are: {}", quoted(server), ids.join(", "));
        return Err(Failure::new(Code::NoSuchTool, why));
    }
    let is_asked = |id: &str| server.is_none_or(|server| id == server);
    let mut answer = RawServerTools {
        tools: Vec::new(),
        left_out: 0,
        not_seen: offered.unseen,
    };
    answer.not_seen.retain(|unseen| is_asked(&unseen.server));
    let mut lines = Vec::new();
    let asked = || offered.tools.iter().filter(|tool| is_asked(&tool.server));
    let servers: BTreeSet<&str> = asked().map(|tool| &*tool.server).collect();
    // However much one lists, there is room for the others.
    let each = MAX_TOOLS_BYTES / servers.len().max(1);
    let mut rooms: BTreeMap<&str, usize> = servers.into_iter().map(|server| (server, each)).collect();
    for tool in asked() {
        let room = rooms.entry(&tool.server).or_default();
        let listed = listed(tool);
        match listed.and_then(|(entry, line)| Some((room.checked_sub(entry.get().len() + 1)?, entry, line))) {
            Some((left, entry, line)) => {
                *room = left;
                answer.tools.push(entry);
                lines.push(line);
            }
            None => answer.left_out += 1,
        }
    }
    let mut text = format!("{}\n", counted(answer.tools.len() as u64, "external tool"));
    if answer.left_out > 0 {
        push_line(
            &mut text,
            &format!(
                "{} left out for want of room: ask for one server at a time",
                answer.left_out
            ),
        );
    }
    push_list(&mut text, &lines, String::clone);
    push_list(&mut text, &answer.not_seen, unseen_line);
    outcome(&text, &answer)
}

fn unseen_line(unseen: &UnseenServer) -> String {
    let reason = unseen
        .reason
        .as_ref()
        .map(|reason| format!(": {}", brief(reason, MAX_SUMMARY_TEXT)));
    let (server, state, reason) = (&unseen.server, unseen.state.name(), reason.unwrap_or_default());
    format!("{server}: its tools are not known, it is {state}{reason}")
}

/// The answer of `colibri_find_tools`. Whoever asks pays for every byte of it: no second text repeats it.
pub(super) fn found(found: FoundTools) -> Result<ToolOutcome, Failure> {
    let mut text = String::new();
    push_list(&mut text, &found.tools, |tool| match &*tool.description {
        "" => tool.name.clone(),
        description => format!("{}: {description}", tool.name),
    });
    if found.tools.is_empty() {
        push_line(&mut text, "No tool fits. Try other words, or fewer.");
    }
    if found.left_out > 0 {
        push_line(&mut text, &format!("{} more fit, not so well.", found.left_out));
    }
    if found.words_left_out > 0 {
        let words = counted(found.words_left_out, "word");
        push_line(
            &mut text,
            &format!("The query is long: its last {words} counted for nothing."),
        );
    }
    push_list(&mut text, &found.not_seen, unseen_line);
    written(&[text.trim_end()], Some(&found))
}

/// The answer of `colibri_tool_schema`: the definition alone, since whoever asks pays for every byte of it.
pub(super) fn definition(json: &[u8]) -> Result<ToolOutcome, Failure> {
    written(&[&String::from_utf8_lossy(json)], None::<&()>)
}

/// A tool's entry in the list, and its line in the summary; `None` if its definition is no JSON object.
fn listed(tool: &ExternalTool) -> Option<(Box<RawValue>, String)> {
    #[derive(Serialize)]
    struct RawListedTool<'a> {
        name: &'a str,
        server: &'a str,
        tool: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a RawValue>,
        input_schema: &'a RawValue,
    }
    // A url server may send its JSON on several lines, ours is one; in valid JSON a line end is never part of a string.
    let mut definition = Cow::Borrowed(&tool.definition[..]);
    if definition.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        definition
            .to_mut()
            .iter_mut()
            .filter(|byte| matches!(byte, b'\n' | b'\r'))
            .for_each(|byte| *byte = b' ');
    }
    let ObjectMembers(members) = serde_json::from_slice(&definition).ok()?;
    // Of members with the same name the last counts, as for JavaScript and Python clients; values stay as written.
    let member = |name: &str, first: char| {
        let (_, value) = members.iter().rev().find(|(given, _)| given == name)?;
        value.get().starts_with(first).then_some(*value)
    };
    let nothing = RawValue::from_string("{}".to_owned()).ok()?;
    let description = member("description", '"');
    let entry = to_raw_value(&RawListedTool {
        name: &tool.name,
        server: &tool.server,
        tool: &tool.tool,
        title: member("title", '"'),
        description,
        input_schema: member("inputSchema", '{').unwrap_or(&nothing),
    })
    .ok()?;
    let mut line = tool.name.clone();
    let description = description.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    if let Some(first) = description.as_deref().and_then(|text| text.trim().lines().next()) {
        line.push_str(&format!(": {}", brief(first, MAX_SUMMARY_TEXT)));
    }
    Some((entry, line))
}

/// The answer of `colibri_list_tasks`.
pub(super) fn tasks(page: &Tasks, viewer: u32) -> Result<ToolOutcome, Failure> {
    let mut text = counted(page.tasks.len() as u64, "task");
    text.push_str(if page.next_cursor.is_some() {
        ", more follow\n"
    } else {
        "\n"
    });
    push_list(&mut text, &page.tasks, |task| task_line(task, viewer));
    outcome(&text, page)
}

/// The answer of `colibri_create_task` and `colibri_intake_task`.
pub(super) fn task(task: Task, viewer: u32) -> Result<ToolOutcome, Failure> {
    outcome(
        &format!("Created task {}", task_line(&task, viewer)),
        &CreatedTask { task },
    )
}

/// The answer of `colibri_next_task`.
pub(super) fn next_task(task: Option<Task>, viewer: u32) -> Result<ToolOutcome, Failure> {
    let text = match &task {
        Some(task) => format!("Claim {} of task {}", task.claim, task_line(task, viewer)),
        None => "There is no task to be had now.".to_owned(),
    };
    outcome(&text, &NextTask { task })
}

/// The answer of `colibri_get_task` and of what changes a task.
pub(super) fn one_task(task: Task, result: Option<String>, viewer: u32) -> Result<ToolOutcome, Failure> {
    let result = result.map(RawValue::from_string).transpose().map_err(|error| {
        let why = format!("the result of task {} in the store is no JSON: {error}", task.id);
        Failure::new(Code::StoreUnavailable, why)
    })?;
    outcome(&format!("Task {}", task_line(&task, viewer)), &OneTask { task, result })
}

/// The answer of `colibri_schedule_task`.
pub(super) fn schedules(schedules: Vec<Schedule>) -> Result<ToolOutcome, Failure> {
    let mut text = format!("{}\n", counted(schedules.len() as u64, "schedule"));
    push_list(&mut text, &schedules, |schedule| {
        let Schedule { id, timing, work, .. } = schedule;
        let when = match (&timing.cron, timing.every_s, &timing.at) {
            (Some(cron), ..) => cron.clone(),
            (_, Some(every), _) => format!("every {every} s"),
            (_, _, at) => at.clone().unwrap_or_default(),
        };
        let what = match (&work.task, &work.call) {
            (Some(task), _) => format!("creates {}", brief(&task.title, MAX_SUMMARY_TEXT)),
            (_, call) => format!("calls {}", call.as_ref().map_or("nothing", |call| &call.tool)),
        };
        let outcome = schedule
            .last_outcome
            .as_deref()
            .map(|last| format!(" ({})", brief(last, MAX_SUMMARY_TEXT)));
        format!("{id} [{when}] {what}{}", outcome.unwrap_or_default())
    });
    outcome(&text, &Schedules { schedules })
}

fn task_line(task: &Task, viewer: u32) -> String {
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
    for why in [&task.reason, &task.waiting].into_iter().flatten() {
        line.push_str(&format!(" ({})", brief(why, MAX_SUMMARY_TEXT)));
    }
    line
}

/// The answer of `colibri_list_skills`.
pub(super) fn skills(found: &Skills) -> Result<ToolOutcome, Failure> {
    let mut text = format!("{}\n", counted(found.skills.len() as u64, "skill"));
    push_list(&mut text, &found.skills, |skill| {
        format!("{}: {}", skill.name, brief(&skill.description, MAX_SUMMARY_TEXT))
    });
    push_list(&mut text, &found.problems, |problem| {
        format!("cannot be used: {}: {}", problem.path, problem.why)
    });
    outcome(&text, found)
}

/// The answer of `colibri_set_cost_mode`.
pub(super) fn cost_mode(daemon: &DaemonFacts) -> Result<ToolOutcome, Failure> {
    let set = CostModeSet {
        mode: daemon.cost_mode,
        budgets: daemon.budgets,
        spending: daemon.spending,
    };
    outcome(&format!("Cost mode is now {}", cost(daemon)), &set)
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

fn push_line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", visible(line));
}

/// A line each, up to [`MAX_SUMMARY_LINES`].
fn push_list<T>(text: &mut String, items: &[T], line: impl Fn(&T) -> String) {
    for item in items.iter().take(MAX_SUMMARY_LINES) {
        push_line(text, &format!("- {}", line(item)));
    }
    if items.len() > MAX_SUMMARY_LINES {
        push_line(text, &format!("- and {} more", items.len() - MAX_SUMMARY_LINES));
    }
}

//! The arguments of each tool, with what clients see of them.

use colibri_api::{CostMode, TaskStatus};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::arguments::{LABEL_PATTERN, bounded, given, label, labels, line, name, some_labels, some_line, text, whole};
use crate::store::{
    MAX_CAPABILITIES, MAX_CAPABILITY, MAX_DESCRIPTION, MAX_LABEL, MAX_PAGE, MAX_PRIORITY, MAX_TITLE, PAGE_DEFAULT,
    PRIORITY_DEFAULT,
};

/// The most characters of a server id.
const MAX_SERVER_ID: usize = 32;
/// The most characters of an external tool's own name.
const MAX_EXTERNAL_TOOL_NAME: usize = 1024;

/// A tool that takes none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListTasks {
    /// Only tasks of this status.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "TaskStatus")]
    pub status: Option<TaskStatus>,
    /// Only tasks from this source.
    #[serde(default, deserialize_with = "label::<_, _, MAX_LABEL>")]
    #[schemars(with = "String", length(min = 1, max = MAX_LABEL), regex(pattern = LABEL_PATTERN))]
    pub source: Option<String>,
    /// The most tasks of the page.
    #[serde(default = "page", deserialize_with = "whole::<_, _, 1, MAX_PAGE>")]
    #[schemars(range(min = 1, max = MAX_PAGE))]
    pub limit: u32,
    /// next_cursor of the page before, with the same status and source.
    #[serde(default, deserialize_with = "name::<_, _, 1, 64>")]
    #[schemars(with = "String", length(min = 1, max = 64))]
    pub cursor: Option<String>,
}

fn page() -> u32 {
    PAGE_DEFAULT
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTask {
    /// What is to be done, in one line.
    #[serde(deserialize_with = "line::<_, 1, MAX_TITLE>")]
    #[schemars(length(min = 1, max = MAX_TITLE))]
    pub title: String,
    /// All that somebody needs to know to do it.
    #[serde(default, deserialize_with = "text::<_, 0, MAX_DESCRIPTION>")]
    #[schemars(length(min = 0, max = MAX_DESCRIPTION))]
    pub description: String,
    /// Where the task comes from, for example a project or an issue.
    #[serde(default = "source", deserialize_with = "label::<_, _, MAX_LABEL>")]
    #[schemars(length(min = 1, max = MAX_LABEL), regex(pattern = LABEL_PATTERN))]
    pub source: String,
    /// 0 is the lowest, 9 the highest.
    #[serde(default = "priority", deserialize_with = "whole::<_, _, 0, { MAX_PRIORITY as u32 }>")]
    #[schemars(range(min = 0, max = MAX_PRIORITY))]
    pub priority: u32,
    /// What somebody must be able to do to take the task, for example rust or github:write.
    #[serde(default, deserialize_with = "labels::<_, MAX_CAPABILITIES, MAX_CAPABILITY>")]
    #[schemars(length(max = MAX_CAPABILITIES), extend("uniqueItems" = true))]
    #[schemars(inner(length(min = 1, max = MAX_CAPABILITY), regex(pattern = LABEL_PATTERN)))]
    pub required_capabilities: Vec<String>,
    /// With whom others than its creator the task is shared: all, or the name of a group of the creator's. A person is
    /// asked first.
    #[serde(default, deserialize_with = "name::<_, _, 1, MAX_GROUP>")]
    #[schemars(with = "String", length(min = 1, max = MAX_GROUP))]
    pub share: Option<String>,
}

fn source() -> String {
    "mcp".to_owned()
}

fn priority() -> u32 {
    PRIORITY_DEFAULT.into()
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct IntakeTask {
    /// The request, as it came. Its first line becomes the title.
    #[serde(deserialize_with = "text::<_, 1, MAX_DESCRIPTION>")]
    #[schemars(length(min = 1, max = MAX_DESCRIPTION))]
    pub text: String,
    /// Where the task comes from, for example a project or an issue.
    #[serde(default = "source", deserialize_with = "label::<_, _, MAX_LABEL>")]
    #[schemars(length(min = 1, max = MAX_LABEL), regex(pattern = LABEL_PATTERN))]
    pub source: String,
    /// What somebody must be able to do to take the task, for example rust or github:write.
    #[serde(default, deserialize_with = "labels::<_, MAX_CAPABILITIES, MAX_CAPABILITY>")]
    #[schemars(length(max = MAX_CAPABILITIES), extend("uniqueItems" = true))]
    #[schemars(inner(length(min = 1, max = MAX_CAPABILITY), regex(pattern = LABEL_PATTERN)))]
    pub capabilities: Vec<String>,
}

/// The most characters of a group's name.
const MAX_GROUP: usize = 64;
/// The most characters of a reason.
const MAX_REASON: usize = 1000;
/// The most bytes of a result, as JSON.
pub(super) const MAX_RESULT: usize = 64 << 10;

/// The number of a task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetTask {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub task: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NextTaskArguments {
    /// This task, not the next one; for people. An agent gets the one that is next for it.
    #[serde(default, deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 1, max = u32::MAX))]
    pub task: Option<u32>,
    /// Only a task that needs one of these, or nothing; for people. What an agent can do stands in its entry.
    #[serde(default, deserialize_with = "some_labels::<_, MAX_CAPABILITIES, MAX_CAPABILITY>")]
    #[schemars(with = "Vec<String>", length(max = MAX_CAPABILITIES), extend("uniqueItems" = true))]
    #[schemars(inner(length(min = 1, max = MAX_CAPABILITY), regex(pattern = LABEL_PATTERN)))]
    pub capabilities: Option<Vec<String>>,
    /// Where there is none of your own, one that others share with you: what it says is theirs. For people.
    #[serde(default)]
    pub shared: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StartTask {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub task: u64,
    /// The number of your claim, as colibri_next_task gave it.
    #[serde(deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(range(min = 0, max = u32::MAX))]
    pub claim: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FinishTask<'a> {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub task: u64,
    /// The number of your claim, as colibri_next_task gave it.
    #[serde(deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(range(min = 0, max = u32::MAX))]
    pub claim: u64,
    /// What came of it, for who created the task: text, or any JSON, at most 64 KiB of it.
    #[serde(borrow, deserialize_with = "bounded::<_, MAX_RESULT>")]
    #[schemars(with = "serde_json::Value")]
    pub result: &'a RawValue,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FailTask {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub task: u64,
    /// The number of your claim, as colibri_next_task gave it.
    #[serde(deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(range(min = 0, max = u32::MAX))]
    pub claim: u64,
    /// Why it cannot be done.
    #[serde(deserialize_with = "text::<_, 1, MAX_REASON>")]
    #[schemars(length(min = 1, max = MAX_REASON))]
    pub reason: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseTask {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub task: u64,
    /// The number of your claim, as colibri_next_task gave it. Left out, a request that was taken in is queued.
    #[serde(default, deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 0, max = u32::MAX))]
    pub claim: Option<u32>,
    /// Why it is given back.
    #[serde(default, deserialize_with = "text::<_, 0, MAX_REASON>")]
    #[schemars(length(min = 0, max = MAX_REASON))]
    pub reason: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelTask {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub task: u64,
    /// Why it is not to be done any more.
    #[serde(default, deserialize_with = "text::<_, 0, MAX_REASON>")]
    #[schemars(length(min = 0, max = MAX_REASON))]
    pub reason: String,
}

/// What is to be done with schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ScheduleAction {
    Create,
    List,
    Delete,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleTask<'a> {
    /// Create one, list yours, or delete one.
    pub action: ScheduleAction,
    /// The number of the schedule to delete.
    #[serde(default, deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 1, max = u32::MAX))]
    pub schedule: Option<u32>,
    /// When: minute, hour, day, month and weekday as cron has them, in UTC.
    #[serde(default, deserialize_with = "name::<_, _, 9, 200>")]
    #[schemars(with = "String", length(min = 9, max = 200))]
    pub cron: Option<String>,
    /// When: every so many seconds.
    #[serde(default, deserialize_with = "whole::<_, _, 1, 31_622_400>")]
    #[schemars(with = "u64", range(min = 1, max = 31_622_400))]
    pub every_s: Option<u32>,
    /// When: once, at this time, for example 2026-11-24T03:00:00Z.
    #[serde(default, deserialize_with = "name::<_, _, 20, 25>")]
    #[schemars(with = "String", length(min = 20, max = 25))]
    pub at: Option<String>,
    /// Create a task: what is to be done, in one line.
    #[serde(default, deserialize_with = "some_line::<_, 1, MAX_TITLE>")]
    #[schemars(with = "String", length(min = 1, max = MAX_TITLE))]
    pub title: Option<String>,
    /// All that somebody needs to know to do the task.
    #[serde(default, deserialize_with = "text::<_, 0, MAX_DESCRIPTION>")]
    #[schemars(length(min = 0, max = MAX_DESCRIPTION))]
    pub description: String,
    /// Where the task comes from.
    #[serde(default = "schedule_source", deserialize_with = "label::<_, _, MAX_LABEL>")]
    #[schemars(length(min = 1, max = MAX_LABEL), regex(pattern = LABEL_PATTERN))]
    pub source: String,
    /// 0 is the lowest, 9 the highest.
    #[serde(default = "priority", deserialize_with = "whole::<_, _, 0, { MAX_PRIORITY as u32 }>")]
    #[schemars(range(min = 0, max = MAX_PRIORITY))]
    pub priority: u32,
    /// What somebody must be able to do to take the task.
    #[serde(default, deserialize_with = "labels::<_, MAX_CAPABILITIES, MAX_CAPABILITY>")]
    #[schemars(length(max = MAX_CAPABILITIES), extend("uniqueItems" = true))]
    #[schemars(inner(length(min = 1, max = MAX_CAPABILITY), regex(pattern = LABEL_PATTERN)))]
    pub required_capabilities: Vec<String>,
    /// Or call this tool, as you, with all that stands in front of it.
    #[serde(default, deserialize_with = "name::<_, _, 1, 128>")]
    #[schemars(with = "String", length(min = 1, max = 128))]
    pub tool: Option<String>,
    /// The tool's arguments.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub arguments: Option<&'a RawValue>,
}

fn schedule_source() -> String {
    "schedule".to_owned()
}

/// The most characters of a handle: what is none is looked for, too.
const MAX_HANDLE: usize = 100;
/// The most characters of a JSON pointer or a pattern.
const MAX_SOUGHT: usize = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadResult {
    /// The handle, as the answer to the call gave it.
    #[serde(deserialize_with = "name::<_, _, 0, MAX_HANDLE>")]
    #[schemars(length(max = MAX_HANDLE))]
    pub handle: String,
    /// So many lines of the text, from line offset on; all of them if nothing else is given. One of over 1000 bytes counts
    /// as several.
    #[serde(default, deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 1, max = u32::MAX))]
    pub lines: Option<u32>,
    /// The offset to begin at: a line of the text; with length or json_pointer, a byte of the JSON. 0 is the first.
    #[serde(default, deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(range(min = 0, max = u32::MAX))]
    pub offset: u64,
    /// The most bytes of the piece, no more than the cost mode allows. Alone, the piece is one of the result's JSON.
    #[serde(default, deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 1, max = u32::MAX))]
    pub length: Option<u32>,
    /// Only the value at this JSON pointer, for example /structuredContent/rows/0. offset still counts the bytes of all.
    #[serde(default, deserialize_with = "name::<_, _, 0, MAX_SOUGHT>")]
    #[schemars(with = "String", length(max = MAX_SOUGHT))]
    pub json_pointer: Option<String>,
    /// Only the lines of the text that this regular expression matches, each after its number.
    #[serde(default, deserialize_with = "name::<_, _, 1, MAX_SOUGHT>")]
    #[schemars(with = "String", length(min = 1, max = MAX_SOUGHT))]
    pub pattern: Option<String>,
    /// Only the block at this place, as it is: an image, sound, a file. 0 is the first of a tool's content, of a resource's
    /// contents, or of a prompt's messages.
    #[serde(default, deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 0, max = u32::MAX))]
    pub block: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetCostMode {
    /// From small to large budgets; default: whatever the operator gave.
    pub mode: CostChoice,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum CostChoice {
    Fast,
    Smart,
    Max,
    Default,
}

impl CostChoice {
    /// The mode; `None`: the operator's.
    pub(super) fn chosen(self) -> Option<CostMode> {
        match self {
            CostChoice::Fast => Some(CostMode::Fast),
            CostChoice::Smart => Some(CostMode::Smart),
            CostChoice::Max => Some(CostMode::Max),
            CostChoice::Default => None,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListTools {
    /// The server's id, as colibri_external_mcp_servers gives it.
    #[serde(default, deserialize_with = "name::<_, _, 1, MAX_SERVER_ID>")]
    #[schemars(with = "String", length(min = 1, max = MAX_SERVER_ID))]
    pub server: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CallTool<'a> {
    /// The server's id, as colibri_external_mcp_servers gives it.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_SERVER_ID>")]
    #[schemars(length(min = 1, max = MAX_SERVER_ID))]
    pub server: String,
    /// The server's own name of the tool.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_EXTERNAL_TOOL_NAME>")]
    #[schemars(length(min = 1, max = MAX_EXTERNAL_TOOL_NAME))]
    pub tool: String,
    /// The tool's arguments.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub arguments: Option<&'a RawValue>,
}

/// The most characters of a query.
pub(super) const MAX_QUERY: usize = 4000;
/// The most tools that are found at once.
const MAX_FOUND: u32 = 50;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FindTools {
    /// What is to be done, in a few words.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_QUERY>")]
    #[schemars(length(min = 1, max = MAX_QUERY))]
    pub query: String,
    /// The most tools to name.
    #[serde(default = "found", deserialize_with = "whole::<_, _, 1, MAX_FOUND>")]
    #[schemars(range(min = 1, max = MAX_FOUND))]
    pub limit: u32,
    /// Only tools of this server.
    #[serde(default, deserialize_with = "name::<_, _, 1, MAX_SERVER_ID>")]
    #[schemars(with = "String", length(min = 1, max = MAX_SERVER_ID))]
    pub server: Option<String>,
}

fn found() -> u32 {
    10
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolSchema {
    /// The tool's name, as lists and colibri_find_tools give it.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_EXTERNAL_TOOL_NAME>")]
    #[schemars(length(min = 1, max = MAX_EXTERNAL_TOOL_NAME))]
    pub tool: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CallNamed<'a> {
    /// The tool's name, as lists and colibri_find_tools give it.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_EXTERNAL_TOOL_NAME>")]
    #[schemars(length(min = 1, max = MAX_EXTERNAL_TOOL_NAME))]
    pub tool: String,
    /// The tool's arguments, as its schema wants them.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub arguments: Option<&'a RawValue>,
}

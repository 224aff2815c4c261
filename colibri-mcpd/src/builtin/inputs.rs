//! The arguments of each tool, with what clients see of them.

use colibri_api::{CostMode, TaskStatus};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::arguments::{LABEL_PATTERN, given, label, labels, line, name, text, whole};
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
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetCostMode {
    /// From small to large budgets.
    pub mode: CostMode,
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

//! The arguments of each tool, with what clients see of them.

use colibri_api::{CostMode, TaskStatus};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::arguments::{Label, Labels, Line, Name, Text, Whole, given};
use crate::store::{
    CAPABILITIES_MAX, CAPABILITY_MAX, DESCRIPTION_MAX, LABEL_MAX, PAGE_DEFAULT, PAGE_MAX, PRIORITY_DEFAULT,
    PRIORITY_MAX, TITLE_MAX,
};

/// The most characters of a server id.
const SERVER_ID_MAX: usize = 32;
/// The most characters of an external tool's own name.
const EXTERNAL_TOOL_NAME_MAX: usize = 1024;

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
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Label<LABEL_MAX>")]
    pub source: Option<Label<LABEL_MAX>>,
    /// The most tasks of the page.
    #[serde(default = "page")]
    pub limit: Whole<1, PAGE_MAX>,
    /// next_cursor of the page before, with the same status and source.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Name<1, 64>")]
    pub cursor: Option<Name<1, 64>>,
}

fn page() -> Whole<1, PAGE_MAX> {
    Whole(PAGE_DEFAULT)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTask {
    /// What is to be done, in one line.
    pub title: Line<1, TITLE_MAX>,
    /// All that somebody needs to know to do it.
    #[serde(default = "nothing_more")]
    pub description: Text<0, DESCRIPTION_MAX>,
    /// Where the task comes from, for example a project or an issue.
    #[serde(default = "source")]
    pub source: Label<LABEL_MAX>,
    /// 0 is the lowest, 9 the highest.
    #[serde(default = "priority")]
    pub priority: Whole<0, { PRIORITY_MAX as u32 }>,
    /// What somebody must be able to do to take the task, for example rust or github:write.
    #[serde(default)]
    pub required_capabilities: Labels<CAPABILITIES_MAX, CAPABILITY_MAX>,
}

fn nothing_more() -> Text<0, DESCRIPTION_MAX> {
    Text(String::new())
}

fn source() -> Label<LABEL_MAX> {
    Label("mcp".to_owned())
}

fn priority() -> Whole<0, { PRIORITY_MAX as u32 }> {
    Whole(PRIORITY_DEFAULT.into())
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct IntakeTask {
    /// The request, as it came. Its first line becomes the title.
    pub text: Text<1, DESCRIPTION_MAX>,
    /// Where the task comes from, for example a project or an issue.
    #[serde(default = "source")]
    pub source: Label<LABEL_MAX>,
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
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Name<1, SERVER_ID_MAX>")]
    pub server: Option<Name<1, SERVER_ID_MAX>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CallTool<'a> {
    /// The server's id, as colibri_external_mcp_servers gives it.
    pub server: Name<1, SERVER_ID_MAX>,
    /// The server's own name of the tool.
    pub tool: Name<1, EXTERNAL_TOOL_NAME_MAX>,
    /// The tool's arguments.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub arguments: Option<&'a RawValue>,
}

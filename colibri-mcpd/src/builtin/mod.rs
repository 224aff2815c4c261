//! The built-in tools: `colibri_*`.
//!
//! [`definitions()`] is what `tools/list` shows of them. A call goes to [`call`], except that of
//! `EXTERNAL_CALL_TOOL` and `CALL_TOOL`, which `parse_external_call` and `parse_named_call` read
//! and the relay answers, and that of `RUN_SCRIPT`, which `scripts/` answers. Each tool is one file
//! of `tools/`, with its arguments, its rules and its answer.

mod arguments;
mod context;
mod cost_summary;
mod skills;
mod store_failure;
mod summary;
mod tool;
mod tools;

pub use arguments::ArgumentError;
pub use context::{AdvertisedTools, BuiltinContext, DaemonView, ExternalTool};
pub use skills::SkillDirectories;
pub(crate) use skills::skill_front_matter;
pub(crate) use store_failure::store_failure;
pub use summary::ToolOutcome;
pub(crate) use tool::{AnswerBound, ToolSlots};
pub use tool::{BuiltinDefinition, BuiltinRoute};
pub(crate) use tools::{
    EXTERNAL_CALL_TOOL, FIND_TOOLS, create_task, parse_external_call, parse_named_call,
    parse_run_script,
};
pub use tools::{definition, definitions};

use arguments::quoted;
use colibri_protocol::{Code, Failure};
use summary::refused;

use crate::relay;
use crate::results::NotRead;

/// Answers a call of a tool. `arguments` is the raw JSON of `params.arguments`, if there is one.
/// The gate was checked before.
pub fn call(
    tool: &BuiltinDefinition,
    arguments: Option<&[u8]>,
    context: &BuiltinContext<'_>,
) -> ToolOutcome {
    let answered = match tool.route {
        BuiltinRoute::Here(answer) => answer(arguments, context),
        BuiltinRoute::Relay | BuiltinRoute::Named | BuiltinRoute::Script => {
            Err(relay::no_such_tool(tool.name))
        }
    };
    answered.unwrap_or_else(refused)
}

impl ArgumentError {
    /// The answer to the call: an error result.
    pub fn outcome(self) -> ToolOutcome {
        refused(self.into())
    }
}

impl From<ArgumentError> for Failure {
    fn from(error: ArgumentError) -> Self {
        Failure::new(Code::SchemaInvalid, error.to_string()).by_rule("inputSchema")
    }
}

impl From<NotRead> for Failure {
    fn from(error: NotRead) -> Self {
        match error {
            NotRead::Unknown => Failure::new(Code::NoSuchResult, error.to_string()),
            NotRead::Missing(why) => ArgumentError(why).into(),
            NotRead::Disk(_) => Failure::new(Code::StoreUnavailable, format!("the result {error}")),
        }
    }
}

/// The failure of an external call to a tool that does not exist. `known`: the server is, and only
/// the tool is not.
pub fn no_such_tool(server: &str, tool: &str, known: bool) -> Failure {
    if known {
        let why = format!("server {} has no tool {}", quoted(server), quoted(tool));
        Failure::new(Code::NoSuchTool, why).of_server(server)
    } else {
        Failure::new(
            Code::NoSuchTool,
            format!("there is no server {}", quoted(server)),
        )
    }
}

#[cfg(test)]
mod tests;

//! `colibri_tool_schema`.

use super::super::arguments::name;
use super::super::summary::written;
use super::super::tool::AnswerBound;
use super::prelude::*;
use crate::relay::no_such_tool;

/// The arguments of `colibri_tool_schema`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolSchema {
    /// Its name.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_EXTERNAL_TOOL_NAME>")]
    #[schemars(length(min = 1, max = MAX_EXTERNAL_TOOL_NAME))]
    tool: String,
}

impl BuiltinTool for ToolSchema {
    const NAME: &'static str = "colibri_tool_schema";
    const TITLE: &'static str = "Show a tool's arguments";
    const DESCRIPTION: &'static str = "Shows a tool's description and arguments.";
    const ACCESS: Access = Access::Read;
    const RULES: BuiltinRules = BuiltinRules::CATALOG
        .free_for_agents()
        .bounded(AnswerBound::Always)
        .always_listed();
    const ANSWER_SCHEMA: Option<fn() -> Value> = None;

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let definition =
            (context.definition)(&self.tool).ok_or_else(|| no_such_tool(&self.tool))?;
        // The definition alone: whoever asks pays for every byte.
        written(&[&String::from_utf8_lossy(&definition)], None::<&()>)
    }
}

//! `colibri_run_script`, which runs a script that calls tools.

use colibri_api::schema::of_arguments;
use colibri_api::script::{MAX_SCRIPT, MAX_SECONDS, RUN_SCRIPT};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::arguments::{ArgumentError, name, read, whole};
use super::super::tool::{Access, AnswerBound, BuiltinDefinition, BuiltinRoute, BuiltinRules};

const DESCRIPTION: &str = "Runs JavaScript: await tools.SERVER.TOOL(arguments) calls a tool and throws if it fails; \
    find(query), schema(name), results.read(handle), console.log. Return only what you need.";

/// The arguments of `colibri_run_script`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunScriptArguments {
    /// A module or a function's body.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_SCRIPT>")]
    #[schemars(length(min = 1, max = MAX_SCRIPT))]
    pub(crate) script: String,
    /// The most seconds.
    #[serde(
        default = "seconds",
        deserialize_with = "whole::<_, _, 1, MAX_SECONDS>"
    )]
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub(crate) timeout_s: u32,
}

/// The tool's definition. The room `scripts/` answers its calls.
pub(super) fn definition() -> BuiltinDefinition {
    let rules = BuiltinRules::READING_RESULTS.bounded(AnswerBound::Always);
    BuiltinDefinition::new(
        [RUN_SCRIPT, "Run a script", DESCRIPTION],
        (
            BuiltinRoute::Script,
            Access::External,
            rules.always_listed(),
        ),
        of_arguments::<RunScriptArguments>(),
        None,
    )
}

/// # Errors
/// What is wrong with the arguments.
pub(crate) fn parse_run_script(arguments: &[u8]) -> Result<RunScriptArguments, ArgumentError> {
    read(Some(arguments))
}

fn seconds() -> u32 {
    60
}

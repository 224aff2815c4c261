//! `colibri_call_tool`, which calls another tool by its name in lists.

use colibri_api::schema::of_arguments;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::arguments::{ArgumentError, given, name, object, read};
use super::super::tool::{Access, BuiltinDefinition, BuiltinRoute, BuiltinRules};
use super::external_call::EXTERNAL_CALL_TOOL;
use super::prelude::MAX_EXTERNAL_TOOL_NAME;

/// The tool's name.
pub(in super::super) const CALL_TOOL: &str = "colibri_call_tool";
const DESCRIPTION: &str = "Calls any tool by its name. Needs the external-call gate.";

/// The arguments of `colibri_call_tool`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NamedCallArguments<'a> {
    /// Its name.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_EXTERNAL_TOOL_NAME>")]
    #[schemars(length(min = 1, max = MAX_EXTERNAL_TOOL_NAME))]
    tool: String,
    /// Its arguments.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    arguments: Option<&'a RawValue>,
}

/// The tool's definition. The target of the named tool answers its calls.
pub(super) fn definition() -> BuiltinDefinition {
    BuiltinDefinition::new(
        [CALL_TOOL, "Call a tool", DESCRIPTION],
        (
            BuiltinRoute::Named,
            Access::External,
            BuiltinRules::STORED.always_listed(),
        ),
        of_arguments::<NamedCallArguments<'static>>(),
        None,
    )
}

/// A call that `CALL_TOOL` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedCall<'a> {
    /// The tool's name in lists; it may not exist.
    pub tool: String,
    /// As [`super::external_call::ExternalCall::arguments`].
    pub arguments: Option<&'a [u8]>,
}

/// # Errors
/// What is wrong with them, or that the tool it names calls others, as this one does.
pub(crate) fn parse_named_call(arguments: Option<&[u8]>) -> Result<NamedCall<'_>, ArgumentError> {
    let NamedCallArguments { tool, arguments } = read(arguments)?;
    if let Some(named) = [EXTERNAL_CALL_TOOL, CALL_TOOL]
        .into_iter()
        .find(|name| *name == tool)
    {
        let why = format!("argument tool: {named} cannot be called through {CALL_TOOL}");
        return Err(ArgumentError(why));
    }
    Ok(NamedCall {
        tool,
        arguments: object(arguments)?,
    })
}

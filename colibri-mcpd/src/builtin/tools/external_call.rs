//! `colibri_external_mcp_call_tool`, which relays to a server's own name of a tool.

use colibri_api::schema::of_arguments;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::arguments::{ArgumentError, given, name, object, read};
use super::super::tool::{Access, BuiltinDefinition, BuiltinRoute, BuiltinRules};
use super::prelude::{MAX_EXTERNAL_TOOL_NAME, MAX_SERVER_ID};

/// The tool's name.
pub(crate) const EXTERNAL_CALL_TOOL: &str = "colibri_external_mcp_call_tool";
const DESCRIPTION: &str = "Calls a tool of an external MCP server and returns its result unchanged. Needs the \
    external-call gate.";

/// The arguments of `colibri_external_mcp_call_tool`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExternalCallArguments<'a> {
    /// The server's id, as colibri_external_mcp_servers gives it.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_SERVER_ID>")]
    #[schemars(length(min = 1, max = MAX_SERVER_ID))]
    server: String,
    /// The server's own name of the tool.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_EXTERNAL_TOOL_NAME>")]
    #[schemars(length(min = 1, max = MAX_EXTERNAL_TOOL_NAME))]
    tool: String,
    /// The tool's arguments.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    arguments: Option<&'a RawValue>,
}

/// The tool's definition. The relay answers its calls.
pub(super) fn definition() -> BuiltinDefinition {
    BuiltinDefinition::new(
        [EXTERNAL_CALL_TOOL, "Call an external MCP tool", DESCRIPTION],
        (BuiltinRoute::Relay, Access::External, BuiltinRules::STORED),
        of_arguments::<ExternalCallArguments<'static>>(),
        None,
    )
}

/// A call that `EXTERNAL_CALL_TOOL` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExternalCall<'a> {
    /// The server's id; it may not exist.
    pub server: String,
    /// The server's own name of the tool; it may not exist.
    pub tool: String,
    /// The raw JSON object of the arguments, a part of the bytes that were parsed; `None` if none were given.
    pub arguments: Option<&'a [u8]>,
}

/// # Errors
/// What is wrong with them; [`ArgumentError::outcome`] makes the answer.
pub(crate) fn parse_external_call(
    arguments: Option<&[u8]>,
) -> Result<ExternalCall<'_>, ArgumentError> {
    let ExternalCallArguments {
        server,
        tool,
        arguments,
    } = read(arguments)?;
    Ok(ExternalCall {
        server,
        tool,
        arguments: object(arguments)?,
    })
}

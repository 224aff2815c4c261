//! The names, bounds and defaults that several tools need.

pub(super) use super::super::context::BuiltinContext;
pub(super) use super::super::store_failure::store_failure;
pub(super) use super::super::summary::{ToolOutcome, outcome};
pub(super) use super::super::tool::{Access, BuiltinRules, BuiltinTool};
pub(super) use colibri_api::schema::of_answer;
pub(super) use colibri_protocol::Failure;
pub(super) use schemars::JsonSchema;
pub(super) use serde::Deserialize;
pub(super) use serde_json::Value;

use colibri_store::PRIORITY_DEFAULT;

/// The most characters of a server id.
pub(super) const MAX_SERVER_ID: usize = 32;
/// The most characters of an external tool's own name.
pub(super) const MAX_EXTERNAL_TOOL_NAME: usize = 1024;
/// The most characters of a reason.
pub(super) const MAX_REASON: usize = 1000;

/// The default source of a task.
pub(super) fn source() -> String {
    "mcp".to_owned()
}

/// The default priority of a task.
pub(super) fn priority() -> u32 {
    PRIORITY_DEFAULT.into()
}

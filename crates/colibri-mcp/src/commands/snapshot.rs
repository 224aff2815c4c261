//! `colibri-mcp snapshot`: what an assistant learns of the daemon in one call.

use serde_json::json;
use serde_json::value::to_raw_value;

use super::context::CommandContext;
use crate::connection::RequestError;
use crate::failure::CommandError;
use colibri_text::visible_lines;

/// Runs the command. Without `--json` it prints the text that an assistant reads.
pub(crate) fn run(context: &CommandContext) -> Result<(), CommandError> {
    let arguments = to_raw_value(&json!({})).map_err(|error| CommandError::Machine(error.to_string()))?;
    let result = context
        .connect()?
        .call_tool("colibri_snapshot", &arguments, &mut |_| {})?;
    let text = result.readable();
    if result.is_error {
        return Err(RequestError::Tool(text).into());
    }
    let raw = result.structured.unwrap_or(result.raw);
    context.print(&raw, || visible_lines(&text).trim_end().to_owned())
}

//! `colibri-mcp tools [SERVER]`: what an editor would list, or what one server offers.

use serde_json::Value;
use serde_json::value::to_raw_value;

use super::context::CommandContext;
use super::missing;
use super::tool_list::{OWN, ToolDefinition, exposed, of_server};
use crate::connection::RequestError;
use crate::failure::CommandError;
use crate::terminal::{Style, TextTable};
use colibri_text::{visible, visible_lines};

/// The tools to list.
#[derive(Debug, clap::Args)]
pub(crate) struct ToolsArguments {
    /// Only this server's tools; `colibri` stands for Colibri's own
    pub server: Option<String>,
    /// Only this tool, with all that its server says of it and its arguments
    pub tool: Option<String>,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &ToolsArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    let (tools, raw) = match arguments.server.as_deref() {
        Some(server) if server != OWN => match of_server(&mut connection, server) {
            Err(error @ RequestError::Tool(_)) => {
                return Err(
                    missing::server(&mut connection, server)?.unwrap_or_else(|| error.into())
                );
            }
            listed => listed?,
        },
        own => exposed(&mut connection, own.is_some())?,
    };
    match (&arguments.server, &arguments.tool) {
        (Some(server), Some(name)) => {
            let Some(tool) = tools.iter().find(|tool| tool.name == *name) else {
                let why = missing::tool(&mut connection, server, name, context)?;
                return Err(why.unwrap_or_else(|| {
                    CommandError::Machine(format!("the tools of {server} changed just now"))
                }));
            };
            let whole =
                to_raw_value(tool).map_err(|error| CommandError::Machine(error.to_string()))?;
            context.print(&whole, || show_one(tool))
        }
        (Some(server), None) if tools.is_empty() => {
            context.print(&raw, || "No tools.".to_owned())?;
            missing::tools(&mut connection, server, context)?.map_or(Ok(()), Err)
        }
        (Some(_), None) => context.print(&raw, || show(&tools)),
        (None, _) => {
            let absent = if context.json {
                Vec::new()
            } else {
                missing::servers_without_tools(&mut connection, context)?
            };
            context.print(&raw, || {
                absent.iter().fold(show(&tools), |text, line| {
                    format!("{text}\n{}", visible(line))
                })
            })
        }
    }
}

fn show(tools: &[ToolDefinition]) -> String {
    if tools.is_empty() {
        return "No tools.".to_owned();
    }
    let mut table = TextTable::new(&["tool", "what it does"]);
    for tool in tools {
        table.row(&[(&tool.name, Style::Plain), (&tool.summary(), Style::Plain)]);
    }
    table.text()
}

/// All that is known of a tool: its description, and a line for each argument.
fn show_one(tool: &ToolDefinition) -> String {
    let mut text = visible(&tool.name).into_owned();
    if let Some(title) = &tool.title {
        text.push_str(&format!(" ({})", visible(title)));
    }
    if let Some(description) = &tool.description {
        text.push_str(&format!("\n\n{}", visible_lines(description.trim())));
    }
    let required: Vec<&str> = tool.input_schema["required"]
        .as_array()
        .map_or_else(Vec::new, |names| {
            names.iter().filter_map(Value::as_str).collect()
        });
    let Some(properties) = tool.input_schema["properties"]
        .as_object()
        .filter(|all| !all.is_empty())
    else {
        return text + "\n\nIt takes no arguments.";
    };
    let mut table = TextTable::new(&["argument", "type", "", "what it is"]);
    for (name, schema) in properties {
        let needed = if required.contains(&name.as_str()) {
            "required"
        } else {
            ""
        };
        table.row(&[
            (name, Style::Plain),
            (&kind(schema), Style::Plain),
            (needed, Style::Plain),
            (
                schema["description"].as_str().unwrap_or_default(),
                Style::Plain,
            ),
        ]);
    }
    format!("{text}\n\n{}", table.text())
}

/// The type of an argument, in a word or two.
fn kind(schema: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<String> = choices
            .iter()
            .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
            .collect();
        return choices.join("|");
    }
    match &schema["type"] {
        Value::String(one) => one.clone(),
        Value::Array(many) => many
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join("|"),
        _ => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_tool_is_shown_with_its_whole_description_and_its_arguments() {
        let tool: ToolDefinition = serde_json::from_value(
            json!({ "name": "write", "title": "Write", "description": "One.\nTwo.\u{1b}",
            "inputSchema": { "type": "object", "required": ["path"], "properties": {
                "path": { "type": "string", "description": "Where" },
                "mode": { "enum": ["a", "w"] }, "n": { "type": ["integer", "null"] } } } }),
        )
        .unwrap();
        let text = show_one(&tool);
        for part in [
            "write (Write)",
            "One.\nTwo.\\u{1b}",
            "string",
            "required",
            "Where",
            "a|w",
            "integer|null",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let none: ToolDefinition = serde_json::from_value(json!({ "name": "x" })).unwrap();
        assert!(show_one(&none).contains("no arguments"));
    }

    #[test]
    fn shows_names_and_summaries() {
        let tools: Vec<ToolDefinition> = serde_json::from_value(json!([
            {"name": "git__log", "description": "Shows the log.\nLong text", "inputSchema": {}},
            {"name": "x\u{1b}[2J", "title": "A title"},
        ]))
        .unwrap();
        let text = show(&tools);
        assert!(
            text.contains("Shows the log.") && !text.contains("Long text"),
            "{text}"
        );
        assert!(
            text.contains("x\\u{1b}[2J") && text.contains("A title"),
            "{text}"
        );
    }
}

//! `colibri-mcp tools [SERVER]`: what an editor would list, or what one server offers.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{Context, Failure, missing};
use crate::connection::{Connection, Params, RequestError};
use crate::terminal::{Style, Table};
use colibri_api::ServerTools;

/// The name by which commands address Colibri's own tools; no server can have it.
pub const OWN: &str = "colibri";

/// More pages than any daemon has: a list that does not end is an error.
const MOST_PAGES: usize = 1000;

/// What to list.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only this server's tools; `colibri` stands for Colibri's own
    pub server: Option<String>,
    /// Only this tool, with all that its server says of it and its arguments
    pub tool: Option<String>,
}

/// A tool's definition, as far as commands need it.
#[derive(Debug, Deserialize, Serialize)]
pub struct Tool {
    /// The name it is called by.
    pub name: String,
    title: Option<String>,
    description: Option<String>,
    /// JSON Schema of its arguments.
    #[serde(rename = "inputSchema", default)]
    pub input_schema: Value,
}

impl Tool {
    /// What the tool does, in a line.
    pub fn summary(&self) -> String {
        summary(
            self.description
                .as_deref()
                .or(self.title.as_deref())
                .unwrap_or_default(),
        )
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let mut connection = context.connect()?;
    let (tools, raw) = match arguments.server.as_deref() {
        Some(server) if server != OWN => match of_server(&mut connection, server) {
            Err(error @ RequestError::Tool(_)) => {
                return Err(missing::server(&mut connection, server)?.unwrap_or_else(|| error.into()));
            }
            listed => listed?,
        },
        own => exposed(&mut connection, own.is_some())?,
    };
    match (&arguments.server, &arguments.tool) {
        (Some(server), Some(name)) => {
            let Some(tool) = tools.iter().find(|tool| tool.name == *name) else {
                let why = missing::tool(&mut connection, server, name, context)?;
                return Err(why.unwrap_or_else(|| Failure::Machine(format!("the tools of {server} changed just now"))));
            };
            let whole = to_raw_value(tool).map_err(|error| Failure::Machine(error.to_string()))?;
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
                    format!("{text}\n{}", crate::terminal::line(line))
                })
            })
        }
    }
}

/// The tools that clients see, all pages of them; with `own`, only Colibri's own.
pub fn exposed(connection: &mut Connection, own: bool) -> Result<(Vec<Tool>, Box<RawValue>), RequestError> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(borrow)]
        tools: Vec<&'a RawValue>,
        #[serde(rename = "nextCursor")]
        next_cursor: Option<String>,
    }
    let unreadable = |why: String| RequestError::Unreadable {
        method: "tools/list".to_owned(),
        why,
    };
    let mut raw: Vec<Box<RawValue>> = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MOST_PAGES {
        let mut params = Params::new();
        if let Some(cursor) = &cursor {
            params.insert(
                "cursor",
                to_raw_value(cursor).map_err(|error| unreadable(error.to_string()))?,
            );
        }
        let result = connection.request("tools/list", params)?;
        let page: Page<'_> = serde_json::from_str(result.get()).map_err(|error| unreadable(error.to_string()))?;
        raw.extend(page.tools.into_iter().map(ToOwned::to_owned));
        if page.next_cursor.is_none() || page.next_cursor == cursor {
            let mut tools = Vec::new();
            let mut kept = Vec::new();
            for text in raw {
                let tool: Tool = serde_json::from_str(text.get()).map_err(|error| unreadable(error.to_string()))?;
                if !own || tool.name.starts_with("colibri_") {
                    tools.push(tool);
                    kept.push(text);
                }
            }
            let all = to_raw_value(&Listed { tools: &kept }).map_err(|error| unreadable(error.to_string()))?;
            return Ok((tools, all));
        }
        cursor = page.next_cursor;
    }
    Err(unreadable(format!("the list does not end within {MOST_PAGES} pages")))
}

#[derive(Serialize)]
struct Listed<'a> {
    tools: &'a [Box<RawValue>],
}

/// The tools of one external server by its own names, also while the external gate is closed.
pub fn of_server(connection: &mut Connection, server: &str) -> Result<(Vec<Tool>, Box<RawValue>), RequestError> {
    let (answer, raw) =
        connection.own_tool::<ServerTools>("colibri_external_mcp_list_tools", &json!({ "server": server }))?;
    let tools = answer.tools.into_iter().map(|entry| Tool {
        name: entry.tool,
        title: entry.title,
        description: entry.description,
        input_schema: entry.input_schema,
    });
    Ok((tools.collect(), raw))
}

fn show(tools: &[Tool]) -> String {
    if tools.is_empty() {
        return "No tools.".to_owned();
    }
    let mut table = Table::new(&["tool", "what it does"]);
    for tool in tools {
        table.row(&[(&tool.name, Style::Plain), (&tool.summary(), Style::Plain)]);
    }
    table.text()
}

/// All that is known of a tool: its description, and a line for each argument.
fn show_one(tool: &Tool) -> String {
    use crate::terminal::{block, line};
    let mut text = line(&tool.name).into_owned();
    if let Some(title) = &tool.title {
        text.push_str(&format!(" ({})", line(title)));
    }
    if let Some(description) = &tool.description {
        text.push_str(&format!("\n\n{}", block(description.trim())));
    }
    let required: Vec<&str> = tool.input_schema["required"]
        .as_array()
        .map_or_else(Vec::new, |names| names.iter().filter_map(Value::as_str).collect());
    let Some(properties) = tool.input_schema["properties"]
        .as_object()
        .filter(|all| !all.is_empty())
    else {
        return text + "\n\nIt takes no arguments.";
    };
    let mut table = Table::new(&["argument", "type", "", "what it is"]);
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
            (schema["description"].as_str().unwrap_or_default(), Style::Plain),
        ]);
    }
    format!("{text}\n\n{}", table.text())
}

/// What an argument may be, in a word or two.
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
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
        _ => "any".to_owned(),
    }
}

/// The first sentence or paragraph of a description, at most 160 characters.
fn summary(description: &str) -> String {
    const MOST: usize = 160;
    let first = description.trim_start().split(['\n', '\r']).next().unwrap_or_default();
    let sentence = first.find(". ").map_or(first, |end| &first[..=end]);
    match sentence.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}{}", &sentence[..cut], crate::terminal::mark()),
        None => sentence.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_cut_to_what_a_table_holds() {
        assert_eq!(summary("  Does it. And more.\nMuch more."), "Does it.");
        assert_eq!(summary("One line\nand another"), "One line");
        assert_eq!(summary(&"ä".repeat(500)).chars().count(), 161);
        assert_eq!(summary(""), "");
    }

    #[test]
    fn one_tool_is_shown_with_its_whole_description_and_its_arguments() {
        let tool: Tool = serde_json::from_value(
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
        let none: Tool = serde_json::from_value(json!({ "name": "x" })).unwrap();
        assert!(show_one(&none).contains("no arguments"));
    }

    #[test]
    fn shows_names_and_summaries() {
        let tools: Vec<Tool> = serde_json::from_value(json!([
            {"name": "git__log", "description": "Shows the log.\nLong text", "inputSchema": {}},
            {"name": "x\u{1b}[2J", "title": "A title"},
        ]))
        .unwrap();
        let text = show(&tools);
        assert!(text.contains("Shows the log.") && !text.contains("Long text"), "{text}");
        assert!(text.contains("x\\u{1b}[2J") && text.contains("A title"), "{text}");
    }
}

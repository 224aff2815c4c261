//! The tools that there are: all that clients see, or those of one server; and lists of all kinds,
//! page by page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::connection::{DaemonConnection, RequestError, read, unreadable};
use crate::terminal;
use colibri_api::ServerTools;

/// The name by which commands address Colibri's own tools; no server can have it.
pub(crate) const OWN: &str = "colibri";

/// More pages than any daemon has: a list that does not end is an error.
const MAX_PAGES: usize = 1000;

/// Longest summary, in characters.
const MAX_SUMMARY: usize = 160;

/// The request for all of them.
const LIST: &str = "tools/list";

/// A tool's definition, as far as commands need it.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ToolDefinition {
    /// The name it is called by.
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    #[serde(rename = "inputSchema", default)]
    pub input_schema: Value,
}

impl ToolDefinition {
    /// The purpose of the tool, in a line.
    pub(crate) fn summary(&self) -> String {
        summary(
            self.description
                .as_deref()
                .or(self.title.as_deref())
                .unwrap_or_default(),
        )
    }
}

/// The tools that clients see; with `own`, only Colibri's own.
pub(crate) fn exposed(
    connection: &mut DaemonConnection,
    own: bool,
) -> Result<(Vec<ToolDefinition>, Box<RawValue>), RequestError> {
    let (mut tools, mut kept) = (Vec::new(), Vec::new());
    for text in all(connection, LIST, "tools")? {
        let tool: ToolDefinition = read(LIST, &text)?;
        if !own || tool.name.starts_with("colibri_") {
            tools.push(tool);
            kept.push(text);
        }
    }
    let all = to_raw_value(&ListedDefinition { tools: &kept })
        .map_err(|error| unreadable(LIST, error))?;
    Ok((tools, all))
}

/// All entries of a list, which stand under `member` of its pages.
pub(crate) fn all(
    connection: &mut DaemonConnection,
    method: &str,
    member: &str,
) -> Result<Vec<Box<RawValue>>, RequestError> {
    let mut entries: Vec<Box<RawValue>> = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let params = match &cursor {
            Some(cursor) => json!({ "cursor": cursor }),
            None => json!({}),
        };
        let result = connection.request(method, &params)?;
        let page: BTreeMap<String, &RawValue> = read(method, &result)?;
        let listed = page
            .get(member)
            .ok_or_else(|| unreadable(method, format!("it has no {member}")))?;
        entries.extend(read::<Vec<Box<RawValue>>>(method, listed)?);
        let next = page
            .get("nextCursor")
            .map(|next| read::<Option<String>>(method, next));
        let next = next.transpose()?.flatten();
        if next.is_none() || next == cursor {
            return Ok(entries);
        }
        cursor = next;
    }
    Err(unreadable(
        method,
        format!("the list does not end within {MAX_PAGES} pages"),
    ))
}

#[derive(Serialize)]
struct ListedDefinition<'a> {
    tools: &'a [Box<RawValue>],
}

/// The tools of one external server by its own names, also while the external-call gate is closed.
pub(crate) fn of_server(
    connection: &mut DaemonConnection,
    server: &str,
) -> Result<(Vec<ToolDefinition>, Box<RawValue>), RequestError> {
    let (answer, raw) = connection.own_tool::<ServerTools>(
        "colibri_external_mcp_list_tools",
        &json!({ "server": server }),
    )?;
    let tools = answer.tools.into_iter().map(|entry| ToolDefinition {
        name: entry.tool,
        title: entry.title,
        description: entry.description,
        input_schema: entry.input_schema,
    });
    Ok((tools.collect(), raw))
}

/// The first sentence or paragraph of a description, at most [`MAX_SUMMARY`].
pub(crate) fn summary(description: &str) -> String {
    let first = description
        .trim_start()
        .split(['\n', '\r'])
        .next()
        .unwrap_or_default();
    let sentence = first.find(". ").map_or(first, |end| &first[..=end]);
    match sentence.char_indices().nth(MAX_SUMMARY) {
        Some((cut, _)) => format!("{}{}", &sentence[..cut], terminal::mark()),
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
}

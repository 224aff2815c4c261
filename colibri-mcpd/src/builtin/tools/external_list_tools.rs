//! `colibri_external_mcp_list_tools`.

use super::super::arguments::{ObjectMembers, name, quoted};
use super::super::context::ExternalTool;
use super::super::summary::{MAX_SUMMARY_TEXT, push_line, push_list, unseen_line};
use super::super::tool::AnswerBound;
use super::prelude::*;
use colibri_api::{ServerTools, UnseenServer};
use colibri_protocol::Code;
use colibri_text::{brief, counted};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The most bytes of the structured content. With its copy as text, in which each byte may become two, the result stays
/// under the frame limit of 16 MiB.
const MAX_TOOLS_BYTES: usize = 4 << 20;

/// [`colibri_api::ServerTools`], its tools as they were written.
#[derive(Serialize)]
struct RawServerTools {
    tools: Vec<Box<RawValue>>,
    left_out: usize,
    unlistable: usize,
    not_seen: Vec<UnseenServer>,
}

/// The arguments of `colibri_external_mcp_list_tools`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListTools {
    /// The server's id, as colibri_external_mcp_servers gives it.
    #[serde(default, deserialize_with = "name::<_, _, 1, MAX_SERVER_ID>")]
    #[schemars(with = "String", length(min = 1, max = MAX_SERVER_ID))]
    server: Option<String>,
}

impl BuiltinTool for ListTools {
    const NAME: &'static str = "colibri_external_mcp_list_tools";
    const TITLE: &'static str = "External MCP tools";
    const DESCRIPTION: &'static str = "Lists the tools of the external MCP servers, of all or of one, with their input \
    schemas. Starts only servers whose tools are not known yet.";
    const ACCESS: Access = Access::Read;
    const RULES: BuiltinRules = BuiltinRules::CATALOG.bounded(AnswerBound::Always);
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<ServerTools>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let server = self
            .server
            .map(|server| (context.server_meant)(&server))
            .transpose()?;
        let (offered, server) = ((context.offered)(), server.as_deref());
        if let Some(server) = server
            && !offered.servers.iter().any(|id| id == server)
        {
            let ids: Vec<_> = offered
                .servers
                .iter()
                .map(String::as_str)
                .take(20)
                .collect();
            let why = format!(
                "there is no server {}, known are: {}",
                quoted(server),
                ids.join(", ")
            );
            return Err(Failure::new(Code::NoSuchTool, why));
        }
        let is_asked = |id: &str| server.is_none_or(|server| id == server);
        let mut answer = RawServerTools {
            tools: Vec::new(),
            left_out: 0,
            unlistable: 0,
            not_seen: offered.unseen,
        };
        answer.not_seen.retain(|unseen| is_asked(&unseen.server));
        let mut lines = Vec::new();
        let asked = || offered.tools.iter().filter(|tool| is_asked(&tool.server));
        let servers: BTreeSet<&str> = asked().map(|tool| &*tool.server).collect();
        // However much one lists, there is room for the others.
        let each = MAX_TOOLS_BYTES / servers.len().max(1);
        let mut rooms: BTreeMap<&str, usize> =
            servers.into_iter().map(|server| (server, each)).collect();
        for tool in asked() {
            let room = rooms.entry(&tool.server).or_default();
            let Some((entry, line)) = listed(tool) else {
                answer.unlistable += 1;
                continue;
            };
            match room.checked_sub(entry.get().len() + 1) {
                Some(left) => {
                    *room = left;
                    answer.tools.push(entry);
                    lines.push(line);
                }
                None => answer.left_out += 1,
            }
        }
        let mut text = format!("{}\n", counted(answer.tools.len() as u64, "external tool"));
        if answer.left_out > 0 {
            let left_out = format!(
                "{} not listed: the answer is full; call again with `server`",
                answer.left_out
            );
            push_line(&mut text, &left_out);
        }
        if answer.unlistable > 0 {
            let unlistable = format!(
                "{} not listed: their definitions are no JSON objects",
                answer.unlistable
            );
            push_line(&mut text, &unlistable);
        }
        push_list(&mut text, &lines, String::clone);
        push_list(&mut text, &answer.not_seen, unseen_line);
        outcome(&text, &answer)
    }
}

/// A tool's entry in the list, and its line in the summary; `None` if its definition is no JSON object.
fn listed(tool: &ExternalTool) -> Option<(Box<RawValue>, String)> {
    #[derive(Serialize)]
    struct RawListedTool<'a> {
        name: &'a str,
        server: &'a str,
        tool: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a RawValue>,
        input_schema: &'a RawValue,
    }
    // A url server may send its JSON on several lines, ours is one; in valid JSON a line end is never part of a string.
    let mut definition = Cow::Borrowed(&tool.definition[..]);
    if definition.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        definition
            .to_mut()
            .iter_mut()
            .filter(|byte| matches!(byte, b'\n' | b'\r'))
            .for_each(|byte| *byte = b' ');
    }
    let ObjectMembers(members) = serde_json::from_slice(&definition).ok()?;
    // Of members with the same name the last counts, as for JavaScript and Python clients; values stay as written.
    let member = |name: &str, first: char| {
        let (_, value) = members.iter().rev().find(|(given, _)| given == name)?;
        value.get().starts_with(first).then_some(*value)
    };
    let nothing = RawValue::from_string("{}".to_owned()).ok()?;
    let description = member("description", '"');
    let entry = to_raw_value(&RawListedTool {
        name: &tool.name,
        server: &tool.server,
        tool: &tool.tool,
        title: member("title", '"'),
        description,
        input_schema: member("inputSchema", '{').unwrap_or(&nothing),
    })
    .ok()?;
    let mut line = tool.name.clone();
    let description = description.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    if let Some(first) = description
        .as_deref()
        .and_then(|text| text.trim().lines().next())
    {
        line.push_str(&format!(": {}", brief(first, MAX_SUMMARY_TEXT)));
    }
    Some((entry, line))
}

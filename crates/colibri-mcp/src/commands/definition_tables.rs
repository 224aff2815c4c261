//! `colibri-mcp prompts` and `colibri-mcp resources`: what servers have beyond tools, as clients
//! see it.

use std::collections::BTreeMap;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::context::CommandContext;
use super::tool_list::{all, summary};
use crate::connection::{DaemonConnection, RequestError, read, unreadable};
use crate::failure::CommandError;
use crate::terminal::{Style, TextTable};
use colibri_text::{counted, visible, visible_lines};

/// The commands for prompts.
#[derive(Debug, clap::Args)]
pub(crate) struct Prompts {
    #[command(subcommand)]
    command: Option<PromptsCommand>,
}

#[derive(Debug, Subcommand)]
enum PromptsCommand {
    /// Lists the prompts, with their arguments
    List,
    /// Gets a prompt's messages
    Get {
        /// The prompt's name, as the list shows it
        name: String,
        /// Arguments as KEY=VALUE; all of them are text
        #[arg(value_name = "KEY=VALUE")]
        pairs: Vec<String>,
    },
}

/// The commands for resources.
#[derive(Debug, clap::Args)]
pub(crate) struct Resources {
    #[command(subcommand)]
    command: Option<ResourcesCommand>,
}

#[derive(Debug, Subcommand)]
enum ResourcesCommand {
    /// Lists the resources, and the templates of more
    List,
    /// Reads a resource
    Read {
        /// Its URI, as the list shows it or as a template gives it
        uri: String,
    },
}

/// A definition, as far as its table shows it.
#[derive(Debug, Deserialize)]
struct DefinitionRow {
    name: String,
    title: Option<String>,
    description: Option<String>,
    uri: Option<String>,
    #[serde(rename = "uriTemplate")]
    template: Option<String>,
    #[serde(rename = "mimeType")]
    mime_type: Option<String>,
    #[serde(default)]
    arguments: Vec<PromptArgument>,
}

#[derive(Debug, Deserialize)]
struct PromptArgument {
    name: String,
    #[serde(default)]
    required: bool,
}

impl DefinitionRow {
    fn what(&self) -> String {
        let named = self.title.as_deref().unwrap_or(&self.name);
        summary(self.description.as_deref().unwrap_or(named))
    }
}

/// Runs `prompts`.
pub(crate) fn prompts(arguments: &Prompts, context: &CommandContext) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    match arguments.command.as_ref().unwrap_or(&PromptsCommand::List) {
        PromptsCommand::List => {
            let raw = all(&mut connection, "prompts/list", "prompts")?;
            let prompts = entries(&raw)?;
            context.print(&whole(&[("prompts", &raw)])?, || prompt_table(&prompts))
        }
        PromptsCommand::Get { name, pairs } => {
            let params = json!({ "name": name, "arguments": texts(pairs)? });
            let raw = ask(&mut connection, "prompts/get", &params)?;
            let got: Value = read("prompts/get", &raw)?;
            context.print(&raw, || messages(&got))
        }
    }
}

/// Runs `resources`.
pub(crate) fn resources(
    arguments: &Resources,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    match arguments
        .command
        .as_ref()
        .unwrap_or(&ResourcesCommand::List)
    {
        ResourcesCommand::List => {
            let raw = all(&mut connection, "resources/list", "resources")?;
            let templates = all(
                &mut connection,
                "resources/templates/list",
                "resourceTemplates",
            )?;
            let (mut found, more) = (entries(&raw)?, entries(&templates)?);
            found.extend(more);
            let answer = whole(&[("resources", &raw), ("resourceTemplates", &templates)])?;
            context.print(&answer, || resource_table(&found))
        }
        ResourcesCommand::Read { uri } => {
            let raw = ask(&mut connection, "resources/read", &json!({ "uri": uri }))?;
            let got: Value = read("resources/read", &raw)?;
            context.print(&raw, || contents(&got))
        }
    }
}

/// Sends the request, and accepts no input request in place of an answer.
fn ask(
    connection: &mut DaemonConnection,
    method: &str,
    params: &Value,
) -> Result<Box<RawValue>, RequestError> {
    #[derive(Deserialize)]
    struct DefinitionKind {
        #[serde(rename = "resultType")]
        kind: Option<String>,
    }
    let (said, raw) = connection.ask::<DefinitionKind>(method, params)?;
    if said.kind.is_some_and(|kind| kind == "input_required") {
        return Err(RequestError::InputRequired);
    }
    Ok(raw)
}

fn entries(raw: &[Box<RawValue>]) -> Result<Vec<DefinitionRow>, RequestError> {
    raw.iter().map(|entry| read("list", entry)).collect()
}

/// Lists as one object, their entries as they came.
fn whole(lists: &[(&str, &[Box<RawValue>])]) -> Result<Box<RawValue>, RequestError> {
    let lists: BTreeMap<&str, &[Box<RawValue>]> = lists.iter().copied().collect();
    to_raw_value(&lists).map_err(|error| unreadable("list", error))
}

/// `KEY=VALUE` pairs: arguments of prompts are text (2026-07-28, schema.ts,
/// `GetPromptRequestParams`).
fn texts(pairs: &[String]) -> Result<BTreeMap<&str, &str>, CommandError> {
    let mut texts = BTreeMap::new();
    for pair in pairs {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| CommandError::Usage(format!("{pair:?} is not KEY=VALUE")))?;
        if texts.insert(key, value).is_some() {
            return Err(CommandError::Usage(format!("{key} is given twice")));
        }
    }
    Ok(texts)
}

fn prompt_table(prompts: &[DefinitionRow]) -> String {
    if prompts.is_empty() {
        return "No prompts. Servers' are listed while the external-call gate is open.".to_owned();
    }
    let mut table = TextTable::new(&["prompt", "arguments", "what it is"]);
    for prompt in prompts {
        let arguments = prompt
            .arguments
            .iter()
            .map(|argument| match argument.required {
                true => argument.name.clone(),
                false => format!("[{}]", argument.name),
            });
        let arguments = arguments.collect::<Vec<_>>().join(" ");
        table.row(&[
            (&prompt.name, Style::Plain),
            (&arguments, Style::Plain),
            (&prompt.what(), Style::Plain),
        ]);
    }
    table.text()
}

fn resource_table(resources: &[DefinitionRow]) -> String {
    if resources.is_empty() {
        return "No resources. Servers' are listed while the external-call gate is open."
            .to_owned();
    }
    let mut table = TextTable::new(&["resource", "type", "what it is"]);
    for resource in resources {
        let uri = resource.uri.as_deref().or(resource.template.as_deref());
        table.row(&[
            (uri.unwrap_or_default(), Style::Plain),
            (
                resource.mime_type.as_deref().unwrap_or_default(),
                Style::Plain,
            ),
            (&resource.what(), Style::Plain),
        ]);
    }
    table.text()
}

/// The content that was read: its texts; of anything else its type and length.
fn contents(got: &Value) -> String {
    let all = got["contents"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut text = String::new();
    for content in all {
        if all.len() > 1 {
            text.push_str(&format!(
                "{}\n",
                visible(content["uri"].as_str().unwrap_or_default())
            ));
        }
        text.push_str(&held(content));
        text.push('\n');
    }
    text.trim_end_matches('\n').to_owned()
}

/// The text in a resource's contents, or what there is in its place.
fn held(content: &Value) -> String {
    match (content["text"].as_str(), content["blob"].as_str()) {
        (Some(text), _) => visible_lines(text).into_owned(),
        (None, Some(blob)) => format!(
            "[{}, {} of base64: --json shows it]",
            visible(content["mimeType"].as_str().unwrap_or("of no stated type")),
            counted(blob.len() as u64, "byte")
        ),
        (None, None) => "[nothing]".to_owned(),
    }
}

/// A prompt's messages, each under the role that speaks.
fn messages(got: &Value) -> String {
    let mut text = String::new();
    for message in got["messages"].as_array().into_iter().flatten() {
        let role = visible(message["role"].as_str().unwrap_or_default());
        text.push_str(&format!("{role}:\n{}\n\n", block(&message["content"])));
    }
    text.trim_end_matches('\n').to_owned()
}

fn block(content: &Value) -> String {
    match content["type"].as_str() {
        Some("text") => visible_lines(content["text"].as_str().unwrap_or_default()).into_owned(),
        Some("resource") => {
            let resource = &content["resource"];
            let uri = visible(resource["uri"].as_str().unwrap_or_default());
            format!("[resource {uri}]\n{}", held(resource))
        }
        Some("resource_link") => format!(
            "[resource {}]",
            visible(content["uri"].as_str().unwrap_or_default())
        ),
        other => format!(
            "[{}: --json shows it]",
            visible(other.unwrap_or("something"))
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_say_how_to_ask_for_what_there_is() {
        let prompts: Vec<DefinitionRow> =
            serde_json::from_value(json!([{ "name": "git__review\u{1b}", "title": "Review",
            "arguments": [{ "name": "file", "required": true }, { "name": "style" }] }]))
            .unwrap();
        let text = prompt_table(&prompts);
        assert!(
            text.contains("git__review\\u{1b}")
                && text.contains("file [style]")
                && text.contains("Review")
        );
        let resources: Vec<DefinitionRow> = serde_json::from_value(json!([
            { "name": "a", "uri": "fs+file:///a", "mimeType": "text/plain", "description": "One. Two." },
            { "name": "files", "uriTemplate": "fs+file:///{path}" }]))
        .unwrap();
        let text = resource_table(&resources);
        for part in [
            "fs+file:///a",
            "text/plain",
            "One.",
            "fs+file:///{path}",
            "files",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("Two."));
    }

    #[test]
    fn what_was_read_is_shown_as_text() {
        let one = json!({ "contents": [{ "uri": "a", "text": "x\u{1b}\ny\n" }] });
        assert_eq!(contents(&one), "x\\u{1b}\ny");
        let two = json!({ "contents": [{ "uri": "a", "text": "x" }, { "uri": "b", "mimeType": "image/png", "blob": "YQ==" }] });
        assert_eq!(
            contents(&two),
            "a\nx\nb\n[image/png, 4 bytes of base64: --json shows it]"
        );
        assert_eq!(contents(&json!({})), "");
    }

    #[test]
    fn messages_stand_under_who_speaks() {
        let got = json!({ "messages": [
            { "role": "user", "content": { "type": "text", "text": "Look:" } },
            { "role": "user", "content": { "type": "resource", "resource": { "uri": "fs+a:", "text": "x" } } },
            { "role": "assistant", "content": { "type": "resource_link", "uri": "fs+b:" } },
            { "role": "assistant", "content": { "type": "audio" } } ] });
        assert_eq!(
            messages(&got),
            "user:\nLook:\n\nuser:\n[resource fs+a:]\nx\n\nassistant:\n[resource fs+b:]\n\nassistant:\n[audio: --json shows it]"
        );
    }

    #[test]
    fn arguments_of_prompts_are_text() {
        let pairs = ["a=1", "b=x=y", "c="].map(str::to_owned);
        assert_eq!(
            texts(&pairs).unwrap(),
            BTreeMap::from([("a", "1"), ("b", "x=y"), ("c", "")])
        );
        assert!(texts(&["a".to_owned()]).is_err());
        assert!(texts(&["a=1", "a=2"].map(str::to_owned)).is_err());
    }
}

//! The answer to a request: one JSON object for one JSON object.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use colibri_client::{RawMembers, members};
use serde_json::json;

use crate::config::BridgeConfig;
use crate::say::say;
use crate::sources::{SourceTool, SourceTools, ToolSources};
use crate::summaries::ToolSummaries;

/// The longest time for the first list.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);

/// All that answers are made from.
#[derive(Debug)]
pub(crate) struct AnswerSources {
    sources: Arc<ToolSources>,
    /// `None`: descriptions stay as servers wrote them.
    summaries: Option<ToolSummaries>,
}

/// A request, as it was read.
#[derive(Debug)]
enum ChibiRequest {
    List,
    Call {
        server: String,
        tool: String,
        args: String,
    },
    Schema {
        server: String,
        tool: String,
    },
}

impl AnswerSources {
    /// Those of a home.
    pub(crate) fn new(home: &Path, config: BridgeConfig) -> AnswerSources {
        let sources = Arc::new(ToolSources::new(home, config.servers));
        let summaries = config
            .summaries
            .then(|| ToolSummaries::new(home, config.model, sources.clone()));
        AnswerSources { sources, summaries }
    }

    /// Has daemons and servers started before the first request.
    pub(crate) fn begin(self: &Arc<Self>) {
        let own = self.clone();
        std::thread::spawn(
            move || match own.sources.tools(Instant::now() + BEGIN_LIMIT) {
                Ok(listing) => {
                    let count = listing.tools.len() as u64;
                    say(&format!(
                        "{} at the start",
                        colibri_text::counted(count, "tool")
                    ));
                    own.describe(&listing.tools);
                }
                Err(why) => say(&format!("no tools at the start: {why:#}")),
            },
        );
    }

    /// The answer to a request, made by `until`.
    pub(crate) fn answer(&self, request: &str, until: Instant) -> String {
        match self.result(request, until) {
            Ok(answer) => answer,
            Err(why) => failure(&format!("{why:#}")),
        }
    }

    fn result(&self, request: &str, until: Instant) -> anyhow::Result<String> {
        match ChibiRequest::read(request)? {
            ChibiRequest::List => {
                let SourceTools { tools, notes } = self.sources.tools(until)?;
                let descriptions = self.describe(&tools);
                let listed: Vec<String> = tools
                    .iter()
                    .zip(descriptions)
                    .map(|(tool, text)| listed(tool, &text))
                    .collect();
                let notes = match notes.is_empty() {
                    true => String::new(),
                    false => format!(",\"notes\":{}", json!(notes)),
                };
                Ok(format!(
                    "{{\"ok\":true,\"tools\":[{}]{notes}}}",
                    listed.join(",")
                ))
            }
            ChibiRequest::Call { server, tool, args } => {
                let result = self.sources.call(&server, &tool, &args, until)?;
                match result.is_error {
                    true => Err(anyhow!("tool error: {}", result.text)),
                    false => Ok(json!({ "ok": true, "result": result.text }).to_string()),
                }
            }
            ChibiRequest::Schema { server, tool } => {
                let tool = self.sources.tool(&server, &tool, until)?;
                // As the server wrote it.
                Ok(format!(
                    "{{\"ok\":true,\"schema\":{}}}",
                    tool.listed.input_schema.get()
                ))
            }
        }
    }

    fn describe(&self, tools: &[SourceTool]) -> Vec<String> {
        match &self.summaries {
            Some(summaries) => summaries.describe(tools),
            None => tools
                .iter()
                .map(|tool| tool.listed.description.clone())
                .collect(),
        }
    }
}

/// An answer that something failed.
pub(crate) fn failure(why: &str) -> String {
    json!({ "ok": false, "error": why }).to_string()
}

fn listed(tool: &SourceTool, description: &str) -> String {
    format!(
        "{{\"server\":{},\"name\":{},\"description\":{},\"parameters\":{}}}",
        json!(tool.server),
        json!(tool.listed.tool),
        json!(description),
        tool.listed.input_schema.get()
    )
}

impl ChibiRequest {
    fn read(text: &str) -> anyhow::Result<ChibiRequest> {
        let members = members(text).context("the request is not a JSON object")?;
        let string = |key: &str| {
            let value = members
                .get(key)
                .and_then(|value| serde_json::from_str::<String>(value.get()).ok());
            value.with_context(|| format!("the request has no string {key:?}"))
        };
        match string("op")?.as_str() {
            "list_tools" => Ok(ChibiRequest::List),
            "call_tool" => {
                let (server, tool) = (string("server")?, string("tool")?);
                let args = args(&members)?;
                Ok(ChibiRequest::Call { server, tool, args })
            }
            "get_schema" => {
                let (server, tool) = (string("server")?, string("tool")?);
                Ok(ChibiRequest::Schema { server, tool })
            }
            op => Err(anyhow!("unknown op: {}", colibri_text::brief(op, 80))),
        }
    }
}

/// The arguments of a call, as they were written.
fn args(members: &RawMembers) -> anyhow::Result<String> {
    match members.get("args").map(|args| args.get()) {
        None | Some("null") => Ok("{}".to_owned()),
        Some(args) if args.starts_with('{') => Ok(args.to_owned()),
        Some(_) => Err(anyhow!("args must be a JSON object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn said(text: &str) -> String {
        ChibiRequest::read(text)
            .map_or_else(|why| format!("{why:#}"), |request| format!("{request:?}"))
    }

    #[test]
    fn requests_are_read_as_clients_write_them() {
        assert_eq!(said(r#"{"op":"list_tools"}"#), "List");
        assert_eq!(said(" {\"op\" : \"list_tools\", \"more\": 1}\r"), "List");
        let call = said(r#"{"op":"call_tool","server":"s","tool":"t","args":{"n":1e400,"a":[1]}}"#);
        assert_eq!(
            call,
            r#"Call { server: "s", tool: "t", args: "{\"n\":1e400,\"a\":[1]}" }"#
        );
        assert_eq!(
            said(r#"{"op":"get_schema","server":"s","tool":"t"}"#),
            r#"Schema { server: "s", tool: "t" }"#
        );
    }

    #[test]
    fn anything_else_is_an_error_that_says_what() {
        for (text, wanted) in [
            ("", "not a JSON object"),
            ("hello", "not a JSON object"),
            ("[]", "not a JSON object"),
            ("{\"op\":\"list_tools\"", "not a JSON object"),
            ("{}", "no string \"op\""),
            ("{\"op\":1}", "no string \"op\""),
            ("{\"op\":\"x\"}", "unknown op: x"),
            (
                "{\"op\":\"call_tool\",\"tool\":\"t\"}",
                "no string \"server\"",
            ),
            (
                "{\"op\":\"get_schema\",\"server\":\"s\"}",
                "no string \"tool\"",
            ),
            (
                "{\"op\":\"call_tool\",\"server\":\"s\",\"tool\":\"t\",\"args\":[]}",
                "args must be",
            ),
        ] {
            assert!(said(text).contains(wanted), "{text}: {}", said(text));
        }
        let answer: Value = serde_json::from_str(&failure("a \"b\"\n")).unwrap();
        assert_eq!(answer, json!({ "ok": false, "error": "a \"b\"\n" }));
    }
}

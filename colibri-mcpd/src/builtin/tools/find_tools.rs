//! `colibri_find_tools`.

use super::super::arguments::{name, whole};
use super::super::summary::{push_line, push_list, unseen_line, written};
use super::super::tool::AnswerBound;
use super::prelude::*;
use colibri_api::FoundTools;
use colibri_text::counted;

/// The tool's name.
pub(crate) const FIND_TOOLS: &str = "colibri_find_tools";
/// The most characters of a query.
const MAX_QUERY: usize = 4000;
/// The most tools that are found at once.
const MAX_FOUND: u32 = 50;

/// The arguments of `colibri_find_tools`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FindTools {
    /// A few words.
    #[serde(deserialize_with = "name::<_, _, 1, MAX_QUERY>")]
    #[schemars(length(min = 1, max = MAX_QUERY))]
    query: String,
    /// The most tools.
    #[serde(default = "found", deserialize_with = "whole::<_, _, 1, MAX_FOUND>")]
    #[schemars(range(min = 1, max = MAX_FOUND))]
    limit: u32,
    /// Only of this server.
    #[serde(default, deserialize_with = "name::<_, _, 1, MAX_SERVER_ID>")]
    #[schemars(with = "String", length(min = 1, max = MAX_SERVER_ID))]
    server: Option<String>,
}

impl BuiltinTool for FindTools {
    const NAME: &'static str = FIND_TOOLS;
    const TITLE: &'static str = "Find tools";
    const DESCRIPTION: &'static str = "Finds tools of all servers. Search in English: what the tool does, and to what. \
    colibri_tool_schema then shows its arguments.";
    const ACCESS: Access = Access::Read;
    const RULES: BuiltinRules = BuiltinRules::CATALOG
        .free_for_agents()
        .bounded(AnswerBound::WithoutBudget)
        .always_listed();
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<FoundTools>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let found = (context.find)(&self.query, self.server.as_deref(), self.limit as usize)?;
        let mut text = String::new();
        push_list(&mut text, &found.tools, |tool| match &*tool.description {
            "" => tool.name.clone(),
            description => format!("{}: {description}", tool.name),
        });
        if found.tools.is_empty() {
            push_line(&mut text, "No tool fits. Try other or fewer words.");
        }
        if found.left_out > 0 {
            push_line(
                &mut text,
                &format!("{} more fit, not so well.", found.left_out),
            );
        }
        if found.words_left_out > 0 {
            let words = counted(found.words_left_out, "word");
            push_line(
                &mut text,
                &format!("The query is long: its last {words} counted for nothing."),
            );
        }
        push_list(&mut text, &found.not_seen, unseen_line);
        // Whoever asks pays for every byte: no second text repeats the structured content.
        written(&[text.trim_end()], Some(&found))
    }
}

fn found() -> u32 {
    10
}

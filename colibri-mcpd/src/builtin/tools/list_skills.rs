//! `colibri_list_skills`.

use super::super::summary::{MAX_SUMMARY_TEXT, push_list};
use super::prelude::*;
use colibri_api::Skills;
use colibri_text::{brief, counted};

/// The arguments of `colibri_list_skills`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListSkills {}

impl BuiltinTool for ListSkills {
    const NAME: &'static str = "colibri_list_skills";
    const TITLE: &'static str = "List skills";
    const DESCRIPTION: &'static str = "Lists the skills installed for this daemon: directories with a SKILL.md, to be read when \
    their description fits the work. Also lists those that cannot be used, and why.";
    const ACCESS: Access = Access::Read;
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<Skills>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let found = context.skills.scan();
        let mut text = format!("{}\n", counted(found.skills.len() as u64, "skill"));
        push_list(&mut text, &found.skills, |skill| {
            format!(
                "{}: {}",
                skill.name,
                brief(&skill.description, MAX_SUMMARY_TEXT)
            )
        });
        push_list(&mut text, &found.problems, |problem| {
            format!("cannot be used: {}: {}", problem.path, problem.why)
        });
        outcome(&text, &found)
    }
}

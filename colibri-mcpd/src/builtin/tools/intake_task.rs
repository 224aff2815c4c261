//! `colibri_intake_task`.

use super::super::arguments::{ArgumentError, LABEL_PATTERN, label, labels, text};
use super::super::summary::created;
use super::prelude::*;
use colibri_api::{CreatedTask, NewTask, TaskStatus};
use colibri_store::{
    MAX_CAPABILITIES, MAX_CAPABILITY, MAX_DESCRIPTION, MAX_LABEL, MAX_TITLE, PRIORITY_DEFAULT,
};

/// The arguments of `colibri_intake_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct IntakeTask {
    /// The request, as it came. Its first line becomes the title.
    #[serde(deserialize_with = "text::<_, 1, MAX_DESCRIPTION>")]
    #[schemars(length(min = 1, max = MAX_DESCRIPTION))]
    text: String,
    /// Where the task comes from, for example a project or an issue.
    #[serde(default = "source", deserialize_with = "label::<_, _, MAX_LABEL>")]
    #[schemars(length(min = 1, max = MAX_LABEL), regex(pattern = LABEL_PATTERN))]
    source: String,
    /// What somebody must be able to do to take the task, for example rust or github:write.
    #[serde(
        default,
        deserialize_with = "labels::<_, MAX_CAPABILITIES, MAX_CAPABILITY>"
    )]
    #[schemars(length(max = MAX_CAPABILITIES), extend("uniqueItems" = true))]
    #[schemars(inner(length(min = 1, max = MAX_CAPABILITY), regex(pattern = LABEL_PATTERN)))]
    capabilities: Vec<String>,
}

impl BuiltinTool for IntakeTask {
    const NAME: &'static str = "colibri_intake_task";
    const TITLE: &'static str = "Take in a request";
    const DESCRIPTION: &'static str = "Stores a request in free text as a task of status intake, for later triage. Needs the write gate.";
    const ACCESS: Access = Access::Add;
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<CreatedTask>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let mut lines = self.text.lines().map(str::trim);
        let first = lines.find(|line| !line.is_empty());
        let first = first.ok_or_else(|| ArgumentError("argument text is blank".to_owned()))?;
        let title = first
            .chars()
            .map(|c| if c == '\t' || c == '\r' { ' ' } else { c })
            .take(MAX_TITLE)
            .collect();
        let who = context.who;
        let new = NewTask {
            title,
            source: self.source,
            description: self.text,
            status: TaskStatus::Intake,
            required_capabilities: self.capabilities,
            priority: PRIORITY_DEFAULT,
            created_by: who.uid,
            share: None,
            limits: context.inherited(),
        };
        created(
            context
                .board
                .create(who, new, None)
                .map_err(store_failure)?,
            who.uid,
        )
    }
}

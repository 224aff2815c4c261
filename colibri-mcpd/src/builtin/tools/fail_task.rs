//! `colibri_fail_task`.

use super::super::arguments::{text, whole};
use super::super::summary::one_task;
use super::prelude::*;
use colibri_api::OneTask;

/// The arguments of `colibri_fail_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FailTask {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    task: u64,
    /// The claim's number from colibri_next_task.
    #[serde(deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(range(min = 0, max = u32::MAX))]
    claim: u64,
    /// Why it cannot be done.
    #[serde(deserialize_with = "text::<_, 1, MAX_REASON>")]
    #[schemars(length(min = 1, max = MAX_REASON))]
    reason: String,
}

impl BuiltinTool for FailTask {
    const NAME: &'static str = "colibri_fail_task";
    const TITLE: &'static str = "Fail a task";
    const DESCRIPTION: &'static str =
        "Ends a claimed task that cannot be done, with the reason. Needs the write gate.";
    const ACCESS: Access = Access::Work;
    const RULES: BuiltinRules = BuiltinRules::STORED.free_for_agents();
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<OneTask>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let task = context
            .board
            .fail(context.who, self.task, self.claim, &self.reason)
            .map_err(store_failure)?;
        one_task(task, None, context.who.uid)
    }
}

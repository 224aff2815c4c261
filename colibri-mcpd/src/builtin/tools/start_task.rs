//! `colibri_start_task`.

use super::super::arguments::whole;
use super::super::summary::one_task;
use super::prelude::*;
use colibri_api::OneTask;

/// The arguments of `colibri_start_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StartTask {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    task: u64,
    /// The number of your claim, as colibri_next_task gave it.
    #[serde(deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(range(min = 0, max = u32::MAX))]
    claim: u64,
}

impl BuiltinTool for StartTask {
    const NAME: &'static str = "colibri_start_task";
    const TITLE: &'static str = "Start a task";
    const DESCRIPTION: &'static str = "Marks a claimed task as started, or says that work on it goes on; renews a person's claim. Needs the \
    write gate.";
    const ACCESS: Access = Access::Work;
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<OneTask>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let task = context
            .board
            .start(context.who, self.task, self.claim)
            .map_err(store_failure)?;
        context.claims(&task);
        one_task(task, None, context.who.uid)
    }
}

//! `colibri_cancel_task`.

use super::super::arguments::{text, whole};
use super::super::summary::one_task;
use super::prelude::*;
use colibri_api::OneTask;

/// The arguments of `colibri_cancel_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelTask {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    task: u64,
    /// Why it is not to be done any more.
    #[serde(default, deserialize_with = "text::<_, 0, MAX_REASON>")]
    #[schemars(length(min = 0, max = MAX_REASON))]
    reason: String,
}

impl BuiltinTool for CancelTask {
    const NAME: &'static str = "colibri_cancel_task";
    const TITLE: &'static str = "Cancel a task";
    const DESCRIPTION: &'static str = "Cancels a task that you created, even if it is claimed. Operators may end \
    everybody's. Needs the write gate.";
    const ACCESS: Access = Access::Set;
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<OneTask>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let task = context
            .board
            .cancel(context.who, self.task, &self.reason)
            .map_err(store_failure)?;
        one_task(task, None, context.who.uid)
    }
}

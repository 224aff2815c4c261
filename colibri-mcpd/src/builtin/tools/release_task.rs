//! `colibri_release_task`.

use super::super::arguments::{ArgumentError, text, whole};
use super::super::summary::one_task;
use super::prelude::*;
use colibri_api::OneTask;

/// The arguments of `colibri_release_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseTask {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    task: u64,
    /// The number of your claim, as colibri_next_task gave it. Left out, a task of status intake is queued.
    #[serde(default, deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 0, max = u32::MAX))]
    claim: Option<u32>,
    /// Why it is given back.
    #[serde(default, deserialize_with = "text::<_, 0, MAX_REASON>")]
    #[schemars(length(min = 0, max = MAX_REASON))]
    reason: String,
}

impl BuiltinTool for ReleaseTask {
    const NAME: &'static str = "colibri_release_task";
    const TITLE: &'static str = "Release a task";
    const DESCRIPTION: &'static str = "Gives a claimed task back to the queue; the third time, the task fails instead. Without a \
    claim, queues a task of status intake. Needs the write gate.";
    const ACCESS: Access = Access::Work;
    const RULES: BuiltinRules = BuiltinRules::STORED.free_for_agents();
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<OneTask>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let who = context.who;
        if who.agent.is_some() && self.claim.is_none() {
            return Err(ArgumentError("argument claim is missing".to_owned()).into());
        }
        let task = context
            .board
            .release(who, self.task, self.claim.map(u64::from), &self.reason)
            .map_err(store_failure)?;
        one_task(task, None, who.uid)
    }
}

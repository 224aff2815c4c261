//! `colibri_finish_task`.

use super::super::arguments::{bounded, whole};
use super::super::summary::one_task;
use super::prelude::*;
use colibri_api::OneTask;
use serde_json::value::RawValue;

/// The most bytes of a result, as JSON.
const MAX_RESULT: usize = 64 << 10;

/// The arguments of `colibri_finish_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FinishTask {
    /// Its number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    task: u64,
    /// The claim's number.
    #[serde(deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(range(min = 0, max = u32::MAX))]
    claim: u64,
    /// Text, or any JSON.
    #[serde(deserialize_with = "bounded::<_, MAX_RESULT>")]
    #[schemars(with = "serde_json::Value")]
    result: Box<RawValue>,
}

impl BuiltinTool for FinishTask {
    const NAME: &'static str = "colibri_finish_task";
    const TITLE: &'static str = "Finish a task";
    const DESCRIPTION: &'static str = "Ends a claimed task with its result, at most 64 KiB; colibri_fail_task ends one without. Needs the write gate.";
    const ACCESS: Access = Access::Work;
    const RULES: BuiltinRules = BuiltinRules::STORED.free_for_agents().always_listed();
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<OneTask>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        // In valid JSON a line end is never part of a string; an answer is one line.
        let result = self.result.get().replace(['\n', '\r'], " ");
        let task = context
            .board
            .finish(context.who, self.task, self.claim, &result)
            .map_err(store_failure)?;
        one_task(task, None, context.who.uid)
    }
}

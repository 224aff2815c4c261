//! `colibri_get_task`.

use super::super::arguments::whole;
use super::super::summary::one_task;
use super::super::tool::AnswerBound;
use super::prelude::*;
use colibri_api::OneTask;

/// The arguments of `colibri_get_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetTask {
    /// The task's number.
    #[serde(deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(range(min = 1, max = u32::MAX))]
    task: u64,
}

impl BuiltinTool for GetTask {
    const NAME: &'static str = "colibri_get_task";
    const TITLE: &'static str = "Get a task";
    const DESCRIPTION: &'static str = "Shows one task, with its result if it is done. If you hold the claim, this call renews it.";
    const ACCESS: Access = Access::Read;
    const RULES: BuiltinRules = BuiltinRules::STORED
        .free_for_agents()
        .bounded(AnswerBound::WithoutBudget);
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<OneTask>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let (task, result) = context
            .board
            .task(context.who, self.task)
            .map_err(store_failure)?;
        if let Some(flow) = context.flow {
            flow.read([&task]);
            result
                .iter()
                .for_each(|result| flow.read_result(&task, result));
        }
        one_task(task, result, context.who.uid)
    }
}

//! `colibri_create_task`.

use super::super::arguments::{LABEL_PATTERN, label, labels, line, name, read, text, whole};
use super::super::context::ParseShare;
use super::super::summary::created;
use super::prelude::*;
use crate::board::{Board, BoardActor};
use crate::relay::ConfirmRule;
use colibri_api::{CreatedTask, NewTask, Task, TaskLimits, TaskStatus};
use colibri_store::{
    MAX_CAPABILITIES, MAX_CAPABILITY, MAX_DESCRIPTION, MAX_LABEL, MAX_PRIORITY, MAX_TITLE,
};

/// The most characters of a group's name.
const MAX_GROUP: usize = 64;

/// The arguments of `colibri_create_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTask {
    /// What is to be done, in one line.
    #[serde(deserialize_with = "line::<_, 1, MAX_TITLE>")]
    #[schemars(length(min = 1, max = MAX_TITLE))]
    title: String,
    /// All that somebody needs to know to do it.
    #[serde(default, deserialize_with = "text::<_, 0, MAX_DESCRIPTION>")]
    #[schemars(length(min = 0, max = MAX_DESCRIPTION))]
    description: String,
    /// Where the task comes from, for example a project or an issue.
    #[serde(default = "source", deserialize_with = "label::<_, _, MAX_LABEL>")]
    #[schemars(length(min = 1, max = MAX_LABEL), regex(pattern = LABEL_PATTERN))]
    source: String,
    /// 0 is the lowest, 9 the highest.
    #[serde(
        default = "priority",
        deserialize_with = "whole::<_, _, 0, { MAX_PRIORITY as u32 }>"
    )]
    #[schemars(range(min = 0, max = MAX_PRIORITY))]
    priority: u32,
    /// What somebody must be able to do to take the task, for example rust or github:write.
    #[serde(
        default,
        deserialize_with = "labels::<_, MAX_CAPABILITIES, MAX_CAPABILITY>"
    )]
    #[schemars(length(max = MAX_CAPABILITIES), extend("uniqueItems" = true))]
    #[schemars(inner(length(min = 1, max = MAX_CAPABILITY), regex(pattern = LABEL_PATTERN)))]
    required_capabilities: Vec<String>,
    /// With whom others than its creator the task is shared: all, or the name of a group of the creator's. A person is
    /// asked first.
    #[serde(default, deserialize_with = "name::<_, _, 1, MAX_GROUP>")]
    #[schemars(with = "String", length(min = 1, max = MAX_GROUP))]
    share: Option<String>,
}

impl BuiltinTool for CreateTask {
    const NAME: &'static str = "colibri_create_task";
    const TITLE: &'static str = "Create a task";
    const DESCRIPTION: &'static str =
        "Creates a queued task, which is yours alone unless you share it. Needs the write gate.";
    const ACCESS: Access = Access::Add;
    const RULES: BuiltinRules = BuiltinRules {
        confirm: Some(ConfirmRule {
            rule: "colibri_create_task: share",
            applies: shares_task,
        }),
        ..BuiltinRules::STORED
    };
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<CreatedTask>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        created(
            create(
                context.board,
                context.who,
                self,
                context.share,
                context.inherited(),
            )?,
            context.who.uid,
        )
    }
}

/// Creates the task that the arguments of `colibri_create_task` describe, with these limits.
///
/// # Errors
/// They are wrong, or it cannot be stored.
pub(crate) fn create_task(
    board: &Board,
    who: BoardActor<'_>,
    arguments: Option<&[u8]>,
    share: &ParseShare<'_>,
    limits: TaskLimits,
) -> Result<Task, Failure> {
    create(board, who, read(arguments)?, share, limits)
}

fn create(
    board: &Board,
    who: BoardActor<'_>,
    given: CreateTask,
    share: &ParseShare<'_>,
    limits: TaskLimits,
) -> Result<Task, Failure> {
    let new = NewTask {
        title: given.title,
        description: given.description,
        source: given.source,
        status: TaskStatus::Queued,
        required_capabilities: given.required_capabilities,
        priority: u8::try_from(given.priority).unwrap_or(MAX_PRIORITY),
        created_by: who.uid,
        share: given.share.as_deref().map(share).transpose()?,
        limits,
    };
    board.create(who, new, None).map_err(store_failure)
}

/// True if the arguments share the task with others. A model may have been told to, with others' assistants in the end.
fn shares_task(arguments: &[u8]) -> bool {
    let given = read::<CreateTask>(Some(arguments));
    given.is_ok_and(|given| given.share.is_some())
}

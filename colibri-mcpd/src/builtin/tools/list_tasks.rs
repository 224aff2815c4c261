//! `colibri_list_tasks`.

use super::super::arguments::{LABEL_PATTERN, given, label, name, whole};
use super::super::summary::{push_list, task_line};
use super::prelude::*;
use colibri_api::{TaskStatus, Tasks};
use colibri_store::{MAX_LABEL, MAX_PAGE, PAGE_DEFAULT, TaskFilter};
use colibri_text::counted;

/// The arguments of `colibri_list_tasks`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListTasks {
    /// Only tasks of this status.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "TaskStatus")]
    status: Option<TaskStatus>,
    /// Only tasks from this source.
    #[serde(default, deserialize_with = "label::<_, _, MAX_LABEL>")]
    #[schemars(with = "String", length(min = 1, max = MAX_LABEL), regex(pattern = LABEL_PATTERN))]
    source: Option<String>,
    /// The most tasks of the page.
    #[serde(default = "page", deserialize_with = "whole::<_, _, 1, MAX_PAGE>")]
    #[schemars(range(min = 1, max = MAX_PAGE))]
    limit: u32,
    /// next_cursor of the page before, with the same status and source.
    #[serde(default, deserialize_with = "name::<_, _, 1, 64>")]
    #[schemars(with = "String", length(min = 1, max = 64))]
    cursor: Option<String>,
}

impl BuiltinTool for ListTasks {
    const NAME: &'static str = "colibri_list_tasks";
    const TITLE: &'static str = "List tasks";
    const DESCRIPTION: &'static str =
        "Lists your tasks, newest first, a page at a time; to operators, everybody's.";
    const ACCESS: Access = Access::Read;
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<Tasks>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let filter = TaskFilter {
            status: self.status,
            source: self.source,
        };
        let BuiltinContext { board, who, .. } = context;
        let page = board
            .tasks(*who, &filter, self.limit, self.cursor.as_deref())
            .map_err(store_failure)?;
        if let Some(flow) = context.flow {
            flow.read(&page.tasks);
        }
        let mut text = counted(page.tasks.len() as u64, "task");
        text.push_str(if page.next_cursor.is_some() {
            ", more follow\n"
        } else {
            "\n"
        });
        push_list(&mut text, &page.tasks, |task| task_line(task, who.uid));
        outcome(&text, &page)
    }
}

fn page() -> u32 {
    PAGE_DEFAULT
}

//! Calls that are deferred to the task board, and their mention in answers.

use super::members::{Change, rewrite};
use colibri_wire::json::string;
use colibri_wire::keys::fold;
use colibri_wire::{Edits, Json};

/// The key in an answer for the number of the task.
const KEY: &str = "deferred";

/// The task board's part in a call that was refused, or failed for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeferredTask {
    /// The number of the task; `None` if there is no task.
    pub task: Option<u64>,
    /// The same as a sentence for the caller.
    pub told: String,
}

impl DeferredTask {
    /// The value as a member of an object: `"deferred":{"task":7}`. `None` if there is no task.
    pub fn member(&self) -> Option<String> {
        self.task
            .map(|task| format!("\"{KEY}\":{{\"task\":{task}}}"))
    }

    /// The edits that add the deferred call to a tool's result: a member of its structured content,
    /// and a text block after the others. A member of the server's own under the same key is
    /// replaced.
    pub fn edits(&self, result: Json<'_>) -> Edits {
        let mut edits = named_instead(result, &self.member().unwrap_or_default());
        let contents = result
            .members()
            .filter(|member| member.key.is_string("content"));
        for content in contents
            .map(|member| member.value)
            .filter(|value| value.text().starts_with('['))
        {
            let comma = if content.elements().next().is_some() {
                ","
            } else {
                ""
            };
            let block = format!(
                "{comma}{{\"type\":\"text\",\"text\":{}}}",
                string(&self.told)
            );
            edits.insert(content.span().end - 1, block);
        }
        edits
    }

    /// The edits that remove the server's own `deferred` from a failed tool's result: only Colibri
    /// may set it.
    pub fn none(result: Json<'_>) -> Edits {
        named_instead(result, "")
    }
}

/// The edits that replace each `deferred` of the structured content by `member`, in each spelling
/// of the key.
fn named_instead(result: Json<'_>, member: &str) -> Edits {
    let mut edits = Edits::new();
    let structured = result
        .members()
        .filter(|member| member.key.is_string("structuredContent"));
    for structured in structured
        .map(|member| member.value)
        .filter(Json::is_object)
    {
        rewrite(&mut edits, structured, member, |member, _| {
            match member.key.as_str().is_some_and(|key| fold(&key) == KEY) {
                true => Change::Remove,
                false => Change::Keep,
            }
        });
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_in_tests::{apply, json};
    use proptest::prelude::*;
    use serde_json::Value;

    fn told(task: Option<u64>) -> DeferredTask {
        let told = "It is \"task\" 7.".to_owned();
        DeferredTask { task, told }
    }

    #[test]
    fn a_failed_result_names_the_task_that_its_call_became() {
        let block = r#"{"type":"text","text":"It is \"task\" 7."}"#;
        for (result, said) in [
            (
                r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"ok":false},"isError":true}"#
                    .to_owned(),
                format!(
                    r#"{{"content":[{{"type":"text","text":"x"}},{block}],"structuredContent":{{"deferred":{{"task":7}},"ok":false}},"isError":true}}"#
                ),
            ),
            (
                r#"{"structuredContent":{"deferred":{"task":1},"a":1e400,"\u0064eferred":2},"content":[ ]}"#.to_owned(),
                format!(r#"{{"structuredContent":{{"deferred":{{"task":7}},"a":1e400}},"content":[ {block}]}}"#),
            ),
            (
                // Some readers take these keys for the same one.
                r#"{"structuredContent":{"a":1,"Deferred":{"task":9},"DEFERRE\u0044":2,"de\u017fferred":3},"content":[]}"#
                    .to_owned(),
                format!(
                    r#"{{"structuredContent":{{"deferred":{{"task":7}},"a":1,"de\u017fferred":3}},"content":[{block}]}}"#
                ),
            ),
            (
                r#"{"structuredContent":{"deferred":0},"structuredContent":{}}"#.to_owned(),
                r#"{"structuredContent":{"deferred":{"task":7}},"structuredContent":{"deferred":{"task":7}}}"#
                    .to_owned(),
            ),
            (
                r#"{"content":"x","structuredContent":[]}"#.to_owned(),
                r#"{"content":"x","structuredContent":[]}"#.to_owned(),
            ),
            ("7".to_owned(), "7".to_owned()),
        ] {
            assert_eq!(apply(&result, &told(Some(7)).edits(json(&result))), said);
        }
        let none = r#"{"structuredContent":{"deferred":{"task":1}},"content":[]}"#;
        assert_eq!(
            apply(none, &DeferredTask::none(json(none))),
            r#"{"structuredContent":{},"content":[]}"#
        );
        assert_eq!(
            apply(none, &told(None).edits(json(none))),
            format!(r#"{{"structuredContent":{{}},"content":[{block}]}}"#)
        );
    }

    proptest! {
        #[test]
        fn what_it_makes_of_a_result_is_json(text in r#"\{("(content|structuredContent|deferred)":([0-9]|\[[0-9]?\]|\{("deferred":1)?\}),?){0,4}\}"#) {
            let text = text.replace(",}", "}");
            if serde_json::from_str::<Value>(&text).is_ok() {
                let edited = apply(&text, &told(Some(7)).edits(json(&text)));
                prop_assert!(serde_json::from_str::<Value>(&edited).is_ok(), "{}", edited);
            }
        }
    }
}

//! The messages of the tasks extension. A server answers `tools/call` with a task, whose result the
//! client fetches later (<https://github.com/modelcontextprotocol/ext-tasks>, specification of the
//! extension).

use std::borrow::Cow;

use super::RpcError;
use super::answer::META_SUBSCRIPTION_ID;
use super::request::META_CLIENT_CAPABILITIES;
use super::version::Version;
use colibri_wire::json::JsonKind;
use colibri_wire::{Edits, Json};

/// The extension's name in `capabilities.extensions`.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// The longest task id of a server, in bytes.
pub(crate) const ID_LIMIT: usize = 1024;

/// The fault of a task that a server reports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTask {
    /// Two members could be taken for this key.
    #[error("two members of the task can be read as \"{0}\"")]
    AmbiguousKey(&'static str),
    /// The task's id is missing, no string, or too long.
    #[error("the task has no \"taskId\" that is a string of at most {ID_LIMIT} bytes")]
    NoId,
}

/// A task as its server reports it.
#[derive(Debug, Clone)]
pub struct UpstreamTask<'a> {
    /// The server's own id of the task.
    pub id: Cow<'a, str>,
    /// The place of that id in the message.
    at: Json<'a>,
    /// True if the task has ended: `completed`, `failed` or `cancelled`.
    pub is_over: bool,
    /// The time after its creation for which the task can be fetched, in milliseconds. `None` if it
    /// has no limit.
    pub ttl_ms: Option<u64>,
    /// The result of the call, once the task has ended.
    result: Option<Json<'a>>,
}

impl<'a> UpstreamTask<'a> {
    /// Reads a task: the result of a call that became one, the result of `tasks/get`, or the
    /// `params` of a notification.
    ///
    /// # Errors
    /// The fault of the task.
    pub fn read(object: Json<'a>) -> Result<UpstreamTask<'a>, InvalidTask> {
        if let Some(key) = object.ambiguous(&["taskId", "status", "resultType", "result"]) {
            return Err(InvalidTask::AmbiguousKey(key));
        }
        let at = object
            .get("taskId")
            .filter(|id| id.kind() == JsonKind::String && id.text().len() <= ID_LIMIT);
        let Some((at, id)) = at.and_then(|at| Some((at, at.as_str()?))) else {
            return Err(InvalidTask::NoId);
        };
        let status = object
            .get("status")
            .and_then(|status| status.as_str())
            .unwrap_or_default();
        Ok(UpstreamTask {
            id,
            at,
            is_over: matches!(&*status, "completed" | "failed" | "cancelled"),
            ttl_ms: object.get("ttlMs").and_then(|ttl| ttl.as_u64()),
            result: object.get("result").filter(Json::is_object),
        })
    }

    /// The edits that replace the server's task id by the daemon's, and that remove Colibri's own
    /// keys from the result inside the task. Their places count from the message that the object
    /// was read from.
    pub fn edits(&self, ours: &str) -> Edits {
        let mut edits = Edits::new();
        edits.replace(self.at.span(), super::quoted(ours));
        if let Some(result) = self.result {
            edits.append_at(0, super::inspect_result(result, Version::V2026_07_28).edits);
        }
        edits
    }
}

/// The edits to the `params` of a server's `notifications/tasks`: the daemon's id of the task, and
/// the client's subscription id as written.
pub fn told_edits(
    params: Json<'_>,
    task: &UpstreamTask<'_>,
    ours: &str,
    subscription: &str,
) -> Edits {
    let mut edits = task.edits(ours);
    let id = params
        .get("_meta")
        .and_then(|meta| meta.get(META_SUBSCRIPTION_ID));
    if let Some(id) = id {
        edits.replace(id.span(), subscription.to_owned());
    }
    edits
}

/// The answer to a request about a task from a client that does not declare the extension.
pub fn undeclared() -> RpcError {
    let required = format!("{{\"extensions\":{{\"{EXTENSION}\":{{}}}}}}");
    RpcError::missing_capability(
        format!("the request does not declare the extension {EXTENSION}"),
        &required,
    )
}

/// True if the client of this request accepts a task as the answer. Clients declare this in each
/// request (`params` is the request's).
pub fn is_declared(params: Option<Json<'_>>) -> bool {
    let capabilities = || {
        params?
            .get("_meta")?
            .get(META_CLIENT_CAPABILITIES)?
            .get("extensions")?
            .get(EXTENSION)
    };
    capabilities().is_some_and(|extension| extension.is_object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_in_tests::json;

    #[test]
    fn a_task_is_read_and_its_id_replaced() {
        let text = r#"{"resultType":"complete","taskId":"\u0061b","status":"completed","ttlMs":60000,"x":1e400,"result":{"content":[],"_meta":{"org.colibri/x":1,"y":2}}}"#;
        let task = UpstreamTask::read(json(text)).unwrap();
        assert_eq!(
            (&*task.id, task.is_over, task.ttl_ms),
            ("ab", true, Some(60_000))
        );
        let edited = String::from_utf8(task.edits("ours").apply(text.as_bytes())).unwrap();
        assert_eq!(
            edited,
            r#"{"resultType":"complete","taskId":"ours","status":"completed","ttlMs":60000,"x":1e400,"result":{"content":[],"_meta":{"y":2}}}"#
        );
        for (status, is_over) in [
            ("working", false),
            ("input_required", false),
            ("failed", true),
            ("cancelled", true),
        ] {
            let text = format!(r#"{{"taskId":"t","status":"{status}","ttlMs":null}}"#);
            let task = UpstreamTask::read(json(&text)).unwrap();
            assert_eq!((task.is_over, task.ttl_ms), (is_over, None), "{status}");
        }
    }

    #[test]
    fn what_is_told_of_a_task_names_the_clients_subscription() {
        let text = r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7,"x":1},"taskId":"a","status":"working"}"#;
        let task = UpstreamTask::read(json(text)).unwrap();
        let edited = told_edits(json(text), &task, "ours", "\"s\"").apply(text.as_bytes());
        assert_eq!(
            String::from_utf8(edited).unwrap(),
            r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"s","x":1},"taskId":"ours","status":"working"}"#
        );
    }

    #[test]
    fn what_is_no_task_is_refused() {
        let long = format!(r#"{{"taskId":"{}"}}"#, "x".repeat(ID_LIMIT));
        for text in [
            "{}",
            "[]",
            r#"{"taskId":7}"#,
            r#"{"taskId":"a","TaskId":"b"}"#,
            r#"{"taskId":"a","taskId":"b"}"#,
            r#"{"taskId":"\ud800"}"#,
            &long,
        ] {
            assert!(UpstreamTask::read(json(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn who_takes_tasks_says_so() {
        let with = r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}"#;
        assert!(is_declared(Some(json(with))));
        for without in ["{}", r#"{"_meta":{}}"#, &with.replace("{}}}}}", "true}}}}")] {
            assert!(!is_declared(Some(json(without))), "{without}");
        }
        assert!(!is_declared(None));
    }
}

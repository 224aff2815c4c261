//! The tasks extension: what stands where in its messages. A server answers `tools/call` with a task, whose result the
//! client asks for later (<https://github.com/modelcontextprotocol/ext-tasks>, specification of the extension).

use std::borrow::Cow;

use super::RpcError;
use super::answer::META_SUBSCRIPTION_ID;
use super::request::META_CLIENT_CAPABILITIES;
use super::version::Version;
use colibri_wire::json::Kind;
use colibri_wire::{Edits, Json};

/// Its name in `capabilities.extensions`.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// How long a server's own id of a task may be, in bytes.
pub(crate) const ID_LIMIT: usize = 1024;

/// A task as its server tells of it.
#[derive(Debug, Clone)]
pub struct Task<'a> {
    /// The server's own id of it.
    pub id: Cow<'a, str>,
    /// Where that stands.
    at: Json<'a>,
    /// Whether it has come to its end: `completed`, `failed` or `cancelled`.
    pub is_over: bool,
    /// For how long after its creation it may be asked for, in milliseconds. `None`: without an end.
    pub ttl_ms: Option<u64>,
    /// What the call came to that it stands for, once it is over.
    result: Option<Json<'a>>,
}

impl<'a> Task<'a> {
    /// Reads a task: the result of a call that became one, the result of `tasks/get`, or the `params` of a
    /// notification.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn read(object: Json<'a>) -> Result<Task<'a>, String> {
        if let Some(key) = object.ambiguous(&["taskId", "status", "resultType", "result"]) {
            return Err(format!("two members of the task can be read as \"{key}\""));
        }
        let at = object
            .get("taskId")
            .filter(|id| id.kind() == Kind::String && id.text().len() <= ID_LIMIT);
        let Some((at, id)) = at.and_then(|at| Some((at, at.as_str()?))) else {
            return Err(format!(
                "the task has no \"taskId\" that is a string of at most {ID_LIMIT} bytes"
            ));
        };
        let status = object
            .get("status")
            .and_then(|status| status.as_str())
            .unwrap_or_default();
        Ok(Task {
            id,
            at,
            is_over: matches!(&*status, "completed" | "failed" | "cancelled"),
            ttl_ms: object.get("ttlMs").and_then(|ttl| ttl.as_u64()),
            result: object.get("result").filter(Json::is_object),
        })
    }

    /// The edits that put our id of it in place of the server's, and take out of the result inside what no server has
    /// to say. Places are those of the message that the object was read from.
    pub fn edits(&self, ours: &str) -> Edits {
        let mut edits = Edits::new();
        edits.replace(self.at.span(), super::quoted(ours));
        if let Some(result) = self.result {
            edits.append_at(0, super::inspect_result(result, Version::V2026_07_28).edits);
        }
        edits
    }
}

/// The edits to the `params` of a server's `notifications/tasks`: our id of the task, and the client's subscription as
/// its id was written.
pub fn told_edits(params: Json<'_>, task: &Task<'_>, ours: &str, subscription: &str) -> Edits {
    let mut edits = task.edits(ours);
    let id = params.get("_meta").and_then(|meta| meta.get(META_SUBSCRIPTION_ID));
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

/// Whether the client of this request takes a task for an answer: it says so in each (`params` is the request's).
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
        let task = Task::read(json(text)).unwrap();
        assert_eq!((&*task.id, task.is_over, task.ttl_ms), ("ab", true, Some(60_000)));
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
            let task = Task::read(json(&text)).unwrap();
            assert_eq!((task.is_over, task.ttl_ms), (is_over, None), "{status}");
        }
    }

    #[test]
    fn what_is_told_of_a_task_names_the_clients_subscription() {
        let text = r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7,"x":1},"taskId":"a","status":"working"}"#;
        let task = Task::read(json(text)).unwrap();
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
            assert!(Task::read(json(text)).is_err(), "{text}");
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

//! The result of an integration's call, or of its failure.

use std::time::Duration;

use serde_json::{Value, json};

/// The reason for which a call has no other result.
#[derive(Debug, Clone)]
pub(super) struct ToolCallError {
    pub(super) code: &'static str,
    pub(super) message: String,
    /// True if it may go away by itself.
    pub(super) transient: bool,
    /// The time for which the other side wants to be left alone.
    pub(super) after: Option<Duration>,
}

impl ToolCallError {
    pub(super) fn permanent(code: &'static str, message: impl Into<String>) -> ToolCallError {
        ToolCallError {
            code,
            message: message.into(),
            transient: false,
            after: None,
        }
    }

    pub(super) fn transient(code: &'static str, message: impl Into<String>) -> ToolCallError {
        ToolCallError {
            transient: true,
            ..ToolCallError::permanent(code, message)
        }
    }

    fn result(&self) -> Value {
        let mut error =
            json!({ "code": self.code, "message": self.message, "transient": self.transient });
        if let Some(after) = self.after {
            error["retry_after_s"] = json!(after.as_secs());
        }
        let text = format!("{}: {}", self.code, self.message);
        json!({ "content": [{ "type": "text", "text": text }], "isError": true,
                "structuredContent": { "ok": false, "error": error } })
    }
}

/// The result of a call: what it came to, which is `told` in words as well, or how it failed.
pub(super) fn result(
    outcome: Result<Value, ToolCallError>,
    told: impl FnOnce(&Value) -> String,
) -> Value {
    match outcome {
        Ok(said) => {
            json!({ "content": [{ "type": "text", "text": told(&said) }], "structuredContent": said })
        }
        Err(failed) => failed.result(),
    }
}

/// The schema of results that have these properties, the required ones all, or say how the call
/// failed.
pub(super) fn output_schema(mut properties: Value, required: &[&str]) -> Value {
    let seconds = json!({ "type": "integer", "minimum": 0, "description": "How long the other side wants to be left alone, in seconds" });
    properties["ok"] = json!({ "const": false });
    properties["error"] = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" },
            "message": { "type": "string" },
            "transient": { "type": "boolean", "description": "Whether it may go away by itself" },
            "retry_after_s": seconds,
        },
        "required": ["code", "message", "transient"],
    });
    json!({ "type": "object", "properties": properties,
            "anyOf": [{ "required": required }, { "required": ["ok", "error"] }] })
}

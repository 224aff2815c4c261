//! Blocks of content, and errors.

use serde_json::{Value, json};

/// A red pixel, as PNG.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// Two samples of silence, as WAV.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA==";

/// Why a request has no result of its own.
pub(crate) enum Stop {
    /// A JSON-RPC error: code, message and data.
    Error(i64, String, Option<Value>),
    /// The client's side is asked first (modern era): the whole `input_required` result.
    Input(Value),
}

impl Stop {
    pub(crate) fn error(code: i64, message: impl Into<String>) -> Self {
        Self::Error(code, message.into(), None)
    }
}

pub(crate) fn content(items: Value) -> Value {
    json!({ "content": items })
}

pub(crate) fn text(text: &str) -> Value {
    content(json!([{ "type": "text", "text": text }]))
}

pub(crate) fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

pub(crate) fn audio() -> Value {
    json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })
}

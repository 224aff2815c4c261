//! JSON-RPC's error, and the numbers of MCP.

use super::prefix;
use super::version::Version;
use colibri_text::brief;
use colibri_wire::json::string;

pub use colibri_wire::envelope::{INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR};

/// MCP up to 2025-11-25: no such resource. 2026-07-28 says -32602 instead and never sends this one.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// MCP 2025-11-25: the person has to visit a URL first. 2026-07-28 says `input_required` and never sends this one.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
/// MCP 2026-07-28: HTTP headers and body disagree.
pub const HEADER_MISMATCH: i64 = -32020;
/// MCP 2026-07-28: the client lacks a capability; `data.requiredCapabilities` says which.
pub const MISSING_REQUIRED_CLIENT_CAPABILITY: i64 = -32021;
/// MCP 2026-07-28: no such version here; `data.supported` and `data.requested` say which.
pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;

/// A JSON-RPC error as we send it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// JSON-RPC's, MCP's, or the positive number of a [`super::Code`].
    pub code: i64,
    /// One sentence: what was wrong, where, and what to do.
    pub message: String,
    /// JSON text.
    pub data: Option<String>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// -32602
    pub fn invalid_params(message: impl Into<String>) -> RpcError {
        RpcError::new(INVALID_PARAMS, message)
    }

    /// -32601: `version` has no such method, or we do not offer it.
    pub fn method_not_found(method: &str, version: Version) -> RpcError {
        RpcError::new(
            METHOD_NOT_FOUND,
            format!("no method \"{}\" for MCP {version} here", brief(method, 200)),
        )
    }

    /// -32021: the request needs a capability that its client does not declare; `required` is `ClientCapabilities` that
    /// would do (2026-07-28, `schema.ts`, `MissingRequiredClientCapabilityError`).
    pub(crate) fn missing_capability(message: impl Into<String>, required: &str) -> RpcError {
        RpcError {
            code: MISSING_REQUIRED_CLIENT_CAPABILITY,
            message: message.into(),
            data: Some(format!("{{\"requiredCapabilities\":{required}}}")),
        }
    }

    /// -32602: nobody here has a tool or a prompt (`noun`) of that name, or the client may not know of it (server/tools
    /// and server/prompts, "Error Handling").
    pub fn unknown(noun: &str, name: &str, why: Option<&str>) -> RpcError {
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        RpcError::invalid_params(format!("unknown {noun}: \"{}\"{why}", brief(name, 200)))
    }

    /// -32002, to a modern client -32602: nobody here has that resource, or the client may not know of it
    /// (server/resources, "Error Handling").
    pub fn unknown_resource(uri: &str, why: Option<&str>, version: Version) -> RpcError {
        let code = if version.is_modern() {
            INVALID_PARAMS
        } else {
            RESOURCE_NOT_FOUND
        };
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        RpcError {
            code,
            message: format!("unknown resource: \"{}\"{why}", brief(uri, 200)),
            data: Some(format!("{{\"uri\":{}}}", string(uri))),
        }
    }

    /// -32022, with the versions that a modern request can name.
    pub(crate) fn unsupported_version(requested: &str) -> RpcError {
        let requested = clip(requested);
        let supported = Version::MODERN.map(|version| string(version.as_str())).join(",");
        RpcError {
            code: UNSUPPORTED_PROTOCOL_VERSION,
            message: format!(
                "unsupported protocol version \"{}\": use one of `supported`, or open the connection with \"initialize\" for \
                 {} and older",
                brief(&requested, 200),
                Version::LATEST_LEGACY
            ),
            data: Some(format!(
                "{{\"supported\":[{supported}],\"requested\":{}}}",
                string(&requested)
            )),
        }
    }

    /// The error object.
    pub fn to_json(&self) -> String {
        let data = self
            .data
            .as_ref()
            .map(|data| format!(",\"data\":{data}"))
            .unwrap_or_default();
        format!("{{\"code\":{},\"message\":{}{data}}}", self.code, string(&self.message))
    }
}

/// What a peer sent, short enough to be repeated in a message to it or to a log.
fn clip(text: &str) -> String {
    let start = prefix(text, 200);
    if start.len() < text.len() {
        format!("{start}…")
    } else {
        text.to_owned()
    }
}

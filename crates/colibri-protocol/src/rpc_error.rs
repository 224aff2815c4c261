//! JSON-RPC's error object, and MCP's error codes.

use super::prefix;
use super::version::Version;
use colibri_text::brief;
use colibri_wire::json::string;

pub use colibri_wire::envelope::{
    INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR,
};

/// MCP up to 2025-11-25: no such resource. 2026-07-28 uses -32602 instead.
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
/// MCP 2025-11-25: the person has to visit a URL first. 2026-07-28 uses `input_required` instead.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
/// MCP 2026-07-28: HTTP headers and body disagree.
pub const HEADER_MISMATCH: i64 = -32020;
/// MCP 2026-07-28: the client lacks a capability, named in `data.requiredCapabilities`.
pub const MISSING_REQUIRED_CLIENT_CAPABILITY: i64 = -32021;
/// MCP 2026-07-28: an unsupported version; `data.supported` lists the supported ones,
/// `data.requested` has the client's.
pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;

/// A JSON-RPC error that the daemon sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// A code of JSON-RPC or MCP, or the positive number of a [`super::Code`].
    pub code: i64,
    /// One sentence: the fault, its place, and a remedy.
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

    /// -32601: `version` has no such method, or the daemon does not offer it.
    pub fn method_not_found(method: &str, version: Version) -> RpcError {
        RpcError::new(
            METHOD_NOT_FOUND,
            format!(
                "no method \"{}\" for MCP {version} here",
                brief(method, 200)
            ),
        )
    }

    /// -32021: the request needs a capability that its client does not declare. `required` is the
    /// `ClientCapabilities` that would be enough (2026-07-28, `schema.ts`,
    /// `MissingRequiredClientCapabilityError`).
    pub(crate) fn missing_capability(message: impl Into<String>, required: &str) -> RpcError {
        RpcError {
            code: MISSING_REQUIRED_CLIENT_CAPABILITY,
            message: message.into(),
            data: Some(format!("{{\"requiredCapabilities\":{required}}}")),
        }
    }

    /// -32602: no tool or prompt (`noun`) with that name exists, or the client may not see it
    /// (server/tools and server/prompts, "Error Handling").
    pub fn unknown(noun: &str, name: &str, why: Option<&str>) -> RpcError {
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        RpcError::invalid_params(format!("unknown {noun}: \"{}\"{why}", brief(name, 200)))
    }

    /// -32002, for a modern client -32602: no such resource exists, or the client may not see it
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

    /// -32022, with the versions that a modern request may declare.
    pub(crate) fn unsupported_version(requested: &str) -> RpcError {
        let requested = clip(requested);
        let supported = Version::MODERN
            .map(|version| string(version.as_str()))
            .join(",");
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
        format!(
            "{{\"code\":{},\"message\":{}{data}}}",
            self.code,
            string(&self.message)
        )
    }
}

/// A text of a peer, short enough for a message to it or for a log.
fn clip(text: &str) -> String {
    let start = prefix(text, 200);
    if start.len() < text.len() {
        format!("{start}…")
    } else {
        text.to_owned()
    }
}

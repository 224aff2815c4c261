//! The model interfaces as data: the requests that pass, the permitted parts of their bodies, and
//! the form of their errors.

use hyper::{Method, StatusCode};
use serde_json::json;

use crate::rules::ModelAllow as Allow;
use crate::rules::ModelApi as Api;

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelRequestKind {
    /// An answer of the model, which costs tokens.
    Generate,
    /// Counts the tokens of a request.
    Count,
    /// Lists the models.
    List,
}

/// A request that passes: method, path and what it asks for. `{}` is one name.
pub(super) type ModelRoute = (Method, &'static str, ModelRequestKind);

/// The requests that pass.
pub(super) fn routes(api: Api) -> &'static [ModelRoute] {
    use ModelRequestKind::{Count, Generate, List};
    match api {
        Api::Anthropic => &[
            (Method::POST, "/v1/messages", Generate),
            (Method::POST, "/v1/messages/count_tokens", Count),
            (Method::GET, "/v1/models", List),
            (Method::GET, "/v1/models/{}", List),
        ],
        Api::OpenAiResponses => &[
            (Method::POST, "/v1/responses", Generate),
            (Method::GET, "/v1/models", List),
            (Method::GET, "/v1/models/{}", List),
        ],
        Api::OpenAiChat => &[
            (Method::POST, "/v1/chat/completions", Generate),
            (Method::GET, "/v1/models", List),
            (Method::GET, "/v1/models/{}", List),
        ],
        Api::Gemini => &[
            (Method::POST, "/v1beta/models/{}:generateContent", Generate),
            (
                Method::POST,
                "/v1beta/models/{}:streamGenerateContent",
                Generate,
            ),
            (Method::POST, "/v1beta/models/{}:countTokens", Count),
            (Method::GET, "/v1beta/models", List),
            (Method::GET, "/v1beta/models/{}", List),
        ],
    }
}

/// The permitted values of a query parameter.
#[derive(Debug, Clone, Copy)]
pub(super) enum Parameter {
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A word: letters, digits and what tokens of pages are made of.
    Word,
    /// A key from inside, which is left out.
    LeftOut,
}

/// The parameters that a query may have.
pub(super) fn parameters(api: Api) -> &'static [(&'static str, Parameter)] {
    use Parameter::{LeftOut, OneOf, Word};
    match api {
        Api::Anthropic => &[
            ("beta", OneOf(&["true"])),
            ("limit", Word),
            ("after_id", Word),
            ("before_id", Word),
        ],
        Api::OpenAiResponses | Api::OpenAiChat => &[("client_version", Word)],
        Api::Gemini => &[
            ("alt", OneOf(&["sse", "json"])),
            ("key", LeftOut),
            ("pageSize", Word),
            ("pageToken", Word),
        ],
    }
}

/// Header fields of requests that pass; every other is dropped.
pub(super) const REQUEST_FIELDS: [&str; 6] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "openai-beta",
    "user-agent",
];

/// Header fields of answers that pass; every other is dropped. A `*` stands for the rest of a name.
pub const ANSWER_FIELDS: [&str; 8] = [
    "content-type",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "request-id",
    "x-request-id",
    "anthropic-ratelimit-*",
    "x-ratelimit-*",
];

/// Betas that pass, in header fields of these names, and what the entry has to allow for them.
/// Every other is left out, unless the entry names it.
pub(super) const BETAS: &[(&str, &[&str], Option<Allow>)] = &[
    (
        "anthropic-beta",
        &[
            "advanced-tool-use-*",
            "cache-diagnosis-*",
            "claude-code-*",
            "compact-*",
            "computer-use-*",
            "context-management-*",
            "dev-full-thinking-*",
            "effort-*",
            "extended-cache-ttl-*",
            "fine-grained-tool-streaming-*",
            "interleaved-thinking-*",
            "mid-conversation-output-config-*",
            "mid-conversation-system-*",
            "model-context-window-exceeded-*",
            "output-128k-*",
            "pdfs-*",
            "prompt-caching-*",
            "redact-thinking-*",
            "structured-outputs-*",
            "task-budgets-*",
            "thinking-binding-controls-*",
            "thinking-display-updates-*",
            "thinking-token-count-*",
            "token-counting-*",
            "token-efficient-tools-*",
            "tool-search-tool-*",
        ],
        None,
    ),
    (
        "anthropic-beta",
        &[
            "advisor-tool-*",
            "context-1m-*",
            "fallback-credit-*",
            "fast-mode-*",
            "output-300k-*",
            "server-side-fallback-*",
        ],
        Some(Allow::ExtraCost),
    ),
    (
        "anthropic-beta",
        &["code-execution-*", "skills-*"],
        Some(Allow::CodeExecution),
    ),
    ("anthropic-beta", &["files-api-*"], Some(Allow::Files)),
    ("anthropic-beta", &["mcp-*"], Some(Allow::RemoteMcp)),
    (
        "anthropic-beta",
        &["message-threads-*"],
        Some(Allow::Stored),
    ),
    ("anthropic-beta", &["web-fetch-*"], Some(Allow::WebFetch)),
    ("anthropic-beta", &["web-search-*"], Some(Allow::WebSearch)),
    ("openai-beta", &["responses=experimental"], None),
    (
        "openai-beta",
        &["responses_websockets*"],
        Some(Allow::Stored),
    ),
];

/// True if a name is the pattern, which may end in a `*`.
pub fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// An error as the interface has it.
pub fn error_body(api: Api, status: StatusCode, message: &str) -> String {
    let (anthropic, gemini) = match status.as_u16() {
        403 => ("permission_error", "PERMISSION_DENIED"),
        404 => ("not_found_error", "NOT_FOUND"),
        413 => ("request_too_large", "INVALID_ARGUMENT"),
        429 => ("rate_limit_error", "RESOURCE_EXHAUSTED"),
        500.. => ("api_error", "UNAVAILABLE"),
        _ => ("invalid_request_error", "INVALID_ARGUMENT"),
    };
    let body = match api {
        Api::Anthropic => {
            json!({ "type": "error", "error": { "type": anthropic, "message": message } })
        }
        Api::OpenAiResponses | Api::OpenAiChat => {
            json!({ "error": { "message": message, "type": anthropic, "param": null, "code": "colibri_relay" } })
        }
        Api::Gemini => {
            json!({ "error": { "code": status.as_u16(), "message": message, "status": gemini } })
        }
    };
    body.to_string()
}

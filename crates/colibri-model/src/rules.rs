//! What an agent's entry says of requests to its model.

/// The rules of an entry for requests.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestRules {
    /// The interface.
    pub api: ModelApi,
    /// Permissions of requests beyond text.
    pub permits: ModelPermissions,
    /// The most tokens that the model reads: what a request is taken to cost at most where it holds
    /// documents.
    pub context_tokens: u64,
    /// The assumed largest cost of an answer whose request names no maximum, in tokens.
    pub max_tokens_default: u64,
}

/// Permissions of requests to a model beyond text. Names may end in a `*`, which stands for the
/// rest of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelPermissions {
    /// Egress from the jail.
    pub allow: Vec<ModelAllow>,
    /// The models that may be used; empty: every one that does not search by itself.
    pub models: Vec<String>,
    /// Betas that pass besides those that the relay knows.
    pub betas: Vec<String>,
}

/// An interface of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelApi {
    /// Anthropic's messages.
    Anthropic,
    /// OpenAI's responses.
    OpenAiResponses,
    /// OpenAI's chat completions, which many others speak too.
    OpenAiChat,
    /// Google's generateContent.
    Gemini,
}

impl ModelApi {
    /// All of them.
    pub const ALL: [ModelApi; 4] = [
        ModelApi::Anthropic,
        ModelApi::OpenAiResponses,
        ModelApi::OpenAiChat,
        ModelApi::Gemini,
    ];

    /// As an entry names it.
    pub fn name(self) -> &'static str {
        match self {
            ModelApi::Anthropic => "anthropic",
            ModelApi::OpenAiResponses => "openai-responses",
            ModelApi::OpenAiChat => "openai-chat",
            ModelApi::Gemini => "gemini",
        }
    }
}

/// Something that a request has the provider do or look up: a way out of the jail, unless the entry
/// allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelAllow {
    /// The provider searches the web.
    WebSearch,
    /// The provider fetches addresses that the model or the request names.
    WebFetch,
    /// The provider runs code, in containers of its own.
    CodeExecution,
    /// The provider calls other MCP servers and connectors.
    RemoteMcp,
    /// The request names images or documents by their address.
    Urls,
    /// The request names files that the provider keeps.
    Files,
    /// The request has the provider keep it, or continues what it kept.
    Stored,
    /// The request costs more than its tokens at the usual price: other tiers, speeds, regions and
    /// models, pictures and sound made.
    ExtraCost,
}

impl ModelAllow {
    /// All of them.
    pub const ALL: [ModelAllow; 8] = [
        ModelAllow::WebSearch,
        ModelAllow::WebFetch,
        ModelAllow::CodeExecution,
        ModelAllow::RemoteMcp,
        ModelAllow::Urls,
        ModelAllow::Files,
        ModelAllow::Stored,
        ModelAllow::ExtraCost,
    ];

    /// As an entry names it.
    pub fn name(self) -> &'static str {
        match self {
            ModelAllow::WebSearch => "web-search",
            ModelAllow::WebFetch => "web-fetch",
            ModelAllow::CodeExecution => "code-execution",
            ModelAllow::RemoteMcp => "remote-mcp",
            ModelAllow::Urls => "urls",
            ModelAllow::Files => "files",
            ModelAllow::Stored => "stored",
            ModelAllow::ExtraCost => "extra-cost",
        }
    }
}

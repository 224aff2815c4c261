//! What the bodies of requests may hold, as data, an interface each: what is not listed here is refused, since it may be
//! a way out that nobody thought of yet.

use crate::registry::ModelAllow as Allow;
use crate::registry::ModelApi as Api;

/// What stands at a key of a body, wherever the provider reads keys.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    /// What the agent's own tools take and give, schemas: nothing of it is the provider's to act on.
    Opaque,
    /// Allowed where the entry allows one of these, or where it is null, false or empty.
    Needs(&'static [Allow]),
    /// A picture or document as a `data:` URL; another one is an address.
    DataUrl,
    /// The same, or the data themselves.
    Inline,
    /// Objects with these keys alone.
    Only(&'static str),
    /// A name of a model: of some the name says that they search the web.
    ModelName,
    /// What kind of thing this is: one of the [`Grammar::kinds`].
    Type,
    /// The most tokens of an answer.
    Maximum,
    /// How many answers are asked for.
    Copies,
}

/// What a body may hold. Names stand in one text, with spaces between them; keys in lower case without underscores, as
/// they are compared.
pub(super) struct Grammar {
    /// The keys of the body itself.
    pub top: &'static str,
    /// What stands at a key at any depth.
    pub keys: &'static [(&'static str, Rule)],
    /// The values of `type` that pass: what the agent itself runs, parts of messages, settings. A `*` stands for the
    /// rest of a name.
    pub kinds: &'static str,
    /// Those that the entry has to allow; they are looked at first. All others are refused.
    pub kinds_if: &'static [(&'static str, Allow)],
}

/// What the body of a request may hold.
pub(super) fn grammar(api: Api) -> &'static Grammar {
    match api {
        Api::Anthropic => &ANTHROPIC,
        Api::OpenAiResponses => &RESPONSES,
        Api::OpenAiChat => &CHAT,
        Api::Gemini => &GEMINI,
    }
}

const ANTHROPIC: Grammar = Grammar {
    top: "model messages system maxtokens stopsequences stream temperature topk topp tools toolchoice \
        thinking metadata servicetier contextmanagement outputconfig outputformat mcpservers \
        container inferencegeo speed cachecontrol betas requests",
    keys: &[
        ("type", Rule::Type),
        ("maxtokens", Rule::Maximum),
        ("input", Rule::Opaque),
        ("inputschema", Rule::Opaque),
        ("inputexamples", Rule::Opaque),
        ("schema", Rule::Opaque),
        ("metadata", Rule::Opaque),
        ("requests", Rule::Needs(&[Allow::Batches])),
        ("mcpservers", Rule::Needs(&[Allow::RemoteMcp])),
        ("container", Rule::Needs(&[Allow::CodeExecution])),
        ("fileid", Rule::Needs(&[Allow::Files, Allow::CodeExecution])),
        ("url", Rule::Needs(&[Allow::Urls, Allow::WebSearch, Allow::WebFetch])),
    ],
    kinds: "custom bash_* text_editor_* computer_* memory_* tool_search_* tool_reference server_tool_use \
        text image document base64 content tool_use tool_result thinking redacted_thinking \
        search_result compaction char_location page_location content_block_location \
        search_result_location direct ephemeral enabled disabled adaptive auto any tool none \
        json_schema clear_tool_uses_* clear_thinking_* compact_* input_tokens tool_uses \
        thinking_turns all",
    kinds_if: &[
        ("url", Allow::Urls),
        ("file", Allow::Files),
        ("container_upload", Allow::Files),
        ("web_search_*", Allow::WebSearch),
        ("web_fetch_*", Allow::WebFetch),
        ("code_execution_*", Allow::CodeExecution),
        ("bash_code_execution_*", Allow::CodeExecution),
        ("text_editor_code_execution_*", Allow::CodeExecution),
        ("mcp_*", Allow::RemoteMcp),
    ],
};

const RESPONSES: Grammar = Grammar {
    top: "model input instructions tools toolchoice paralleltoolcalls reasoning store stream \
        streamoptions include servicetier promptcachekey promptcacheretention text temperature topp \
        toplogprobs maxoutputtokens maxtoolcalls metadata user safetyidentifier truncation \
        background previousresponseid conversation prompt clientmetadata contextmanagement",
    keys: &[
        ("type", Rule::Type),
        ("model", Rule::ModelName),
        ("maxoutputtokens", Rule::Maximum),
        ("parameters", Rule::Opaque),
        ("schema", Rule::Opaque),
        ("metadata", Rule::Opaque),
        ("clientmetadata", Rule::Opaque),
        ("action", Rule::Opaque),
        ("operation", Rule::Opaque),
        ("arguments", Rule::Opaque),
        ("imageurl", Rule::DataUrl),
        ("filedata", Rule::Inline),
        ("fileurl", Rule::Needs(&[Allow::Urls])),
        ("fileid", Rule::Needs(&[Allow::Files])),
        ("fileids", Rule::Needs(&[Allow::Files])),
        ("vectorstoreids", Rule::Needs(&[Allow::Files])),
        ("containerid", Rule::Needs(&[Allow::CodeExecution])),
        ("serverurl", Rule::Needs(&[Allow::RemoteMcp])),
        ("connectorid", Rule::Needs(&[Allow::RemoteMcp])),
        ("url", Rule::Needs(&[Allow::Urls, Allow::WebSearch])),
        ("store", Rule::Needs(&[Allow::Stored])),
        ("background", Rule::Needs(&[Allow::Stored])),
        ("previousresponseid", Rule::Needs(&[Allow::Stored])),
        ("conversation", Rule::Needs(&[Allow::Stored])),
        ("prompt", Rule::Needs(&[Allow::Stored])),
    ],
    kinds: "function custom namespace additional_tools local_shell shell local apply_patch computer* tool_search* \
        allowed_tools message input_text output_text text refusal summary_text reasoning_text \
        input_image input_file input_audio function_call function_call_output custom_tool_call \
        custom_tool_call_output local_shell_call local_shell_call_output shell_call \
        shell_call_output exit timeout apply_patch_call apply_patch_call_output reasoning \
        compaction* grammar json_object json_schema auto",
    kinds_if: &[
        ("web_search*", Allow::WebSearch),
        ("url_citation", Allow::WebSearch),
        ("approximate", Allow::WebSearch),
        ("file_search*", Allow::Files),
        ("file_citation", Allow::Files),
        ("file_path", Allow::Files),
        ("code_interpreter*", Allow::CodeExecution),
        ("container_*", Allow::CodeExecution),
        ("mcp*", Allow::RemoteMcp),
        ("item_reference", Allow::Stored),
    ],
};

const CHAT: Grammar = Grammar {
    top: "model messages tools toolchoice functions functioncall stream streamoptions maxtokens \
        maxcompletiontokens temperature topp topk minp n stop seed user metadata store logprobs \
        toplogprobs logitbias responseformat paralleltoolcalls presencepenalty frequencypenalty \
        repetitionpenalty reasoningeffort reasoning includereasoning thinking enablethinking \
        thinkingbudget chattemplatekwargs servicetier prediction modalities audio verbosity \
        promptcachekey promptcacheretention safetyidentifier websearchoptions usage",
    keys: &[
        ("type", Rule::Type),
        ("model", Rule::ModelName),
        ("maxtokens", Rule::Maximum),
        ("maxcompletiontokens", Rule::Maximum),
        ("n", Rule::Copies),
        ("parameters", Rule::Opaque),
        ("schema", Rule::Opaque),
        ("metadata", Rule::Opaque),
        ("logitbias", Rule::Opaque),
        ("arguments", Rule::Opaque),
        ("chattemplatekwargs", Rule::Opaque),
        ("imageurl", Rule::DataUrl),
        ("videourl", Rule::DataUrl),
        ("audiourl", Rule::DataUrl),
        ("url", Rule::DataUrl),
        ("filedata", Rule::Inline),
        ("fileurl", Rule::Needs(&[Allow::Urls])),
        ("fileid", Rule::Needs(&[Allow::Files])),
        ("store", Rule::Needs(&[Allow::Stored])),
        ("websearchoptions", Rule::Needs(&[Allow::WebSearch])),
    ],
    kinds: "function custom allowed_tools text image_url video_url audio_url input_audio file refusal \
        content reasoning.* grammar json_object json_schema ephemeral enabled disabled adaptive auto",
    kinds_if: &[
        ("web_search*", Allow::WebSearch),
        ("builtin_function", Allow::WebSearch),
        ("url_citation", Allow::WebSearch),
        ("file_search", Allow::Files),
        ("retrieval", Allow::Files),
        ("code_interpreter", Allow::CodeExecution),
        ("mcp", Allow::RemoteMcp),
    ],
};

const GEMINI: Grammar = Grammar {
    top: "contents tools toolconfig safetysettings systeminstruction generationconfig cachedcontent \
        model generatecontentrequest",
    keys: &[
        ("maxoutputtokens", Rule::Maximum),
        ("candidatecount", Rule::Copies),
        ("args", Rule::Opaque),
        ("response", Rule::Opaque),
        ("parameters", Rule::Opaque),
        ("parametersjsonschema", Rule::Opaque),
        ("responseschema", Rule::Opaque),
        ("responsejsonschema", Rule::Opaque),
        ("cachedcontent", Rule::Needs(&[Allow::Stored])),
        ("filedata", Rule::Needs(&[Allow::Urls])),
        ("fileuri", Rule::Needs(&[Allow::Urls])),
        ("executablecode", Rule::Needs(&[Allow::CodeExecution])),
        ("codeexecutionresult", Rule::Needs(&[Allow::CodeExecution])),
        ("codeexecution", Rule::Needs(&[Allow::CodeExecution])),
        ("googlesearch", Rule::Needs(&[Allow::WebSearch])),
        ("googlesearchretrieval", Rule::Needs(&[Allow::WebSearch])),
        ("urlcontext", Rule::Needs(&[Allow::WebFetch])),
        ("mcpservers", Rule::Needs(&[Allow::RemoteMcp])),
        (
            "tools",
            Rule::Only(
                "functiondeclarations computeruse codeexecution googlesearch googlesearchretrieval \
                urlcontext mcpservers",
            ),
        ),
        (
            "parts",
            Rule::Only(
                "text inlinedata filedata functioncall functionresponse executablecode \
                codeexecutionresult thought thoughtsignature videometadata mediaresolution",
            ),
        ),
    ],
    kinds: "",
    kinds_if: &[],
};

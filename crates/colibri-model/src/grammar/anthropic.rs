//! Anthropic's messages.

use super::shape::BodyShape::{self, *};
use super::shape::{BodyMember, Grammar, Variant};
use crate::rules::ModelAllow as Allow;

pub(super) static GRAMMAR: Grammar = Grammar {
    answer: BODY,
    count: BODY,
    has_camel_case: false,
    picture_tokens: 5_000,
};

const BODY: BodyShape = Object(&[
    ("model", Model),
    ("messages", List(&MESSAGE)),
    (
        "system",
        OneOf(&[Text, List(&Tagged(&[(&["text"], Object(TEXT))]))]),
    ),
    ("max_tokens", Maximum),
    ("stop_sequences", List(&Text)),
    ("stream", Stream),
    ("temperature", Number),
    ("top_k", Number),
    ("top_p", Number),
    ("tools", List(&TOOL)),
    ("tool_choice", TOOL_CHOICE),
    ("thinking", THINKING),
    ("metadata", Object(&[("user_id", Text)])),
    ("cache_control", CACHE_CONTROL),
    ("context_management", CONTEXT_MANAGEMENT),
    (
        "compaction",
        Object(&[("type", Word(&["summarize"], &[])), ("instructions", Text)]),
    ),
    ("diagnostics", DIAGNOSTICS),
    ("output_config", OUTPUT_CONFIG),
    ("output_format", OUTPUT_FORMAT),
    ("service_tier", Word(&["auto", "standard_only"], &[])),
    ("speed", SPEED),
    (
        "inference_geo",
        Word(&["global"], &[("*", Allow::ExtraCost)]),
    ),
    (
        "fallbacks",
        Needs(&[Allow::ExtraCost], &OneOf(&[Text, List(&FALLBACK)])),
    ),
    ("fallback_credit_token", Needs(&[Allow::ExtraCost], &Json)),
    ("billing_policy", Needs(&[Allow::ExtraCost], &Json)),
    ("container", Needs(&[Allow::CodeExecution], &Json)),
    ("mcp_servers", Needs(&[Allow::RemoteMcp], &Json)),
    ("thread", Needs(&[Allow::Stored], &Json)),
]);

const MESSAGE: BodyShape = Object(&[
    ("role", Word(&["user", "assistant", "system"], &[])),
    ("content", OneOf(&[Text, List(&BLOCK)])),
    ("clear_at", Text),
    ("output_config", Object(&[("effort", Text)])),
]);

const CACHE_CONTROL: BodyShape = Object(&[
    ("type", Word(&["ephemeral"], &[])),
    ("ttl", Word(&["5m", "1h"], &[])),
    ("scope", Text),
]);

/// The provider compares the request with an earlier one, which it keeps.
const DIAGNOSTICS: BodyShape = Object(&[("previous_message_id", Needs(&[Allow::Stored], &Text))]);
const SPEED: BodyShape = Word(&["standard"], &[("*", Allow::ExtraCost)]);

const BLOCK: BodyShape = Tagged(&[
    (&["text"], Object(TEXT)),
    (&["image"], Object(IMAGE)),
    (&["document"], Object(DOCUMENT)),
    (&["search_result"], Object(SEARCH_RESULT)),
    (
        &["thinking"],
        Object(&[("thinking", Text), ("signature", Text)]),
    ),
    (&["redacted_thinking"], Object(&[("data", Text)])),
    (
        &["tool_use"],
        Object(&[
            ("id", Text),
            ("name", Text),
            ("input", Json),
            ("cache_control", CACHE_CONTROL),
            ("caller", CALLER),
            ("toolset_name", Text),
        ]),
    ),
    (
        &["tool_result"],
        Object(&[
            ("tool_use_id", Text),
            ("content", OneOf(&[Text, List(&RESULT_BLOCK)])),
            ("is_error", Flag),
            ("cache_control", CACHE_CONTROL),
            ("toolset_name", Text),
        ]),
    ),
    (
        &["server_tool_use"],
        Object(&[
            ("id", Text),
            ("name", SERVER_TOOL),
            ("input", Json),
            ("cache_control", CACHE_CONTROL),
            ("caller", CALLER),
        ]),
    ),
    (
        &["tool_search_tool_result"],
        Object(&[
            ("tool_use_id", Text),
            ("content", TOOLS_FOUND),
            ("cache_control", CACHE_CONTROL),
        ]),
    ),
    (
        &["compaction"],
        Object(&[
            ("content", Text),
            ("encrypted_content", Text),
            ("signature", Text),
            ("cache_control", CACHE_CONTROL),
        ]),
    ),
    (
        &["container_upload"],
        Needs(
            &[Allow::Files],
            &Object(&[("file_id", Text), ("cache_control", CACHE_CONTROL)]),
        ),
    ),
    (
        &["web_search_tool_result"],
        Needs(&[Allow::WebSearch], &Json),
    ),
    (&["web_fetch_tool_result"], Needs(&[Allow::WebFetch], &Json)),
    (
        &[
            "code_execution_tool_result",
            "bash_code_execution_tool_result",
            "text_editor_code_execution_tool_result",
        ],
        Needs(&[Allow::CodeExecution], &Json),
    ),
    (
        &["mcp_tool_use", "mcp_tool_result", "mcp_tool_listing"],
        Needs(&[Allow::RemoteMcp], &Json),
    ),
    (
        &["advisor_tool_result", "fallback"],
        Needs(&[Allow::ExtraCost], &Json),
    ),
]);

/// The blocks of a tool's result.
const RESULT_BLOCK: BodyShape = Tagged(&[
    (&["text"], Object(TEXT)),
    (&["image"], Object(IMAGE)),
    (&["document"], Object(DOCUMENT)),
    (&["search_result"], Object(SEARCH_RESULT)),
    (&["tool_reference"], Object(TOOL_REFERENCE)),
]);

/// The blocks of a document that consists of such.
const DOCUMENT_BLOCK: BodyShape = Tagged(&[(&["text"], Object(TEXT)), (&["image"], Object(IMAGE))]);

const TEXT: &[BodyMember] = &[
    ("text", Text),
    ("cache_control", CACHE_CONTROL),
    ("citations", List(&CITATION)),
];

const CITATION: BodyShape = Tagged(&[
    (
        &[
            "char_location",
            "page_location",
            "content_block_location",
            "search_result_location",
        ],
        Object(&[
            ("cited_text", Text),
            ("document_index", Number),
            ("document_title", Text),
            ("file_id", Needs(&[Allow::Files], &Text)),
            ("start_char_index", Number),
            ("end_char_index", Number),
            ("start_page_number", Number),
            ("end_page_number", Number),
            ("start_block_index", Number),
            ("end_block_index", Number),
            ("search_result_index", Number),
            ("source", Text),
            ("title", Text),
        ]),
    ),
    (
        &["web_search_result_location"],
        Needs(&[Allow::WebSearch], &Json),
    ),
]);

const IMAGE: &[BodyMember] = &[
    ("source", IMAGE_SOURCE),
    ("cache_control", CACHE_CONTROL),
    ("transformations", Object(&[("oversized_image", Text)])),
];

const DOCUMENT: &[BodyMember] = &[
    ("source", SOURCE),
    ("cache_control", CACHE_CONTROL),
    ("citations", Object(&[("enabled", Flag)])),
    ("context", Text),
    ("title", Text),
];

/// `source` is a label for the model; nobody fetches it.
const SEARCH_RESULT: &[BodyMember] = &[
    ("content", List(&Tagged(&[(&["text"], Object(TEXT))]))),
    ("source", Text),
    ("title", Text),
    ("cache_control", CACHE_CONTROL),
    ("citations", Object(&[("enabled", Flag)])),
];

const IMAGE_SOURCE: BodyShape = Tagged(&[BASE64_SOURCE, URL_SOURCE, FILE_SOURCE]);

const SOURCE: BodyShape = Tagged(&[
    BASE64_SOURCE,
    URL_SOURCE,
    FILE_SOURCE,
    (
        &["text"],
        Object(&[("media_type", MediaType), ("data", Text)]),
    ),
    (
        &["content"],
        Object(&[("content", OneOf(&[Text, List(&DOCUMENT_BLOCK)]))]),
    ),
]);

const BASE64_SOURCE: Variant = (
    &["base64"],
    Object(&[("media_type", MediaType), ("data", Base64)]),
);
const URL_SOURCE: Variant = (&["url"], Needs(&[Allow::Urls], &Object(&[("url", Text)])));
const FILE_SOURCE: Variant = (
    &["file"],
    Needs(&[Allow::Files], &Object(&[("file_id", Text)])),
);

const CALLER: BodyShape = Tagged(&[
    (&["direct"], Object(&[])),
    (
        &["code_execution_*"],
        Needs(&[Allow::CodeExecution], &Object(&[("tool_id", Text)])),
    ),
]);

/// Tools that the provider runs. To look through the request's own tools is harmless.
const SERVER_TOOL: BodyShape = Word(
    &["tool_search_tool_regex", "tool_search_tool_bm25"],
    &[
        ("web_search", Allow::WebSearch),
        ("web_fetch", Allow::WebFetch),
        ("code_execution", Allow::CodeExecution),
        ("bash_code_execution", Allow::CodeExecution),
        ("text_editor_code_execution", Allow::CodeExecution),
        ("advisor", Allow::ExtraCost),
    ],
);

const TOOL_REFERENCE: &[BodyMember] = &[("tool_name", Text), ("cache_control", CACHE_CONTROL)];

const TOOLS_FOUND: BodyShape = Tagged(&[
    (
        &["tool_search_tool_search_result"],
        Object(&[(
            "tool_references",
            List(&Tagged(&[(&["tool_reference"], Object(TOOL_REFERENCE))])),
        )]),
    ),
    (
        &["tool_search_tool_result_error"],
        Object(&[("error_code", Text), ("error_message", Text)]),
    ),
]);

/// A tool without `type` is one of the agent.
const TOOL: BodyShape = Tagged(&[
    (
        &["", "custom"],
        Object(&[
            ("name", Text),
            ("description", Text),
            ("input_schema", Schema),
            ("cache_control", CACHE_CONTROL),
            ("defer_loading", Flag),
            ("eager_input_streaming", Flag),
            ("input_examples", List(&Json)),
            ("strict", Flag),
            ("allowed_callers", ALLOWED_CALLERS),
        ]),
    ),
    // What the provider defines and the agent runs.
    (
        &["bash_2*", "text_editor_2*", "computer_2*", "memory_2*"],
        Object(&[
            ("name", Text),
            ("cache_control", CACHE_CONTROL),
            ("defer_loading", Flag),
            ("input_examples", List(&Json)),
            ("strict", Flag),
            ("allowed_callers", ALLOWED_CALLERS),
            ("max_characters", Number),
            ("display_width_px", Number),
            ("display_height_px", Number),
            ("display_number", Number),
            ("enable_zoom", Flag),
        ]),
    ),
    (
        &["tool_search_tool_*"],
        Object(&[
            ("name", Text),
            ("cache_control", CACHE_CONTROL),
            ("defer_loading", Flag),
            ("strict", Flag),
            ("allowed_callers", ALLOWED_CALLERS),
        ]),
    ),
    (&["web_search_2*"], Needs(&[Allow::WebSearch], &Json)),
    (&["web_fetch_2*"], Needs(&[Allow::WebFetch], &Json)),
    (
        &["code_execution_2*"],
        Needs(&[Allow::CodeExecution], &Json),
    ),
    (&["mcp_toolset"], Needs(&[Allow::RemoteMcp], &Json)),
    (
        &["advisor_2*"],
        Needs(
            &[Allow::ExtraCost],
            &Object(&[
                ("name", Text),
                ("model", Model),
                ("cache_control", CACHE_CONTROL),
                ("caching", CACHE_CONTROL),
                ("max_tokens", Number),
                ("max_uses", Number),
                ("defer_loading", Flag),
                ("strict", Flag),
                ("allowed_callers", ALLOWED_CALLERS),
            ]),
        ),
    ),
]);

const ALLOWED_CALLERS: BodyShape = List(&Word(
    &["direct"],
    &[("code_execution_*", Allow::CodeExecution)],
));

const TOOL_CHOICE: BodyShape = Tagged(&[
    (
        &["auto", "any", "none"],
        Object(&[("disable_parallel_tool_use", Flag)]),
    ),
    (
        &["tool"],
        Object(&[("name", Text), ("disable_parallel_tool_use", Flag)]),
    ),
]);

const THINKING: BodyShape = Tagged(&[(
    &["enabled", "disabled", "adaptive", "between_tools"],
    Object(&[
        ("budget_tokens", Number),
        ("display", Text),
        (
            "block_binding",
            Object(&[("prefix_mismatch_behavior", Text)]),
        ),
    ]),
)]);

const CONTEXT_MANAGEMENT: BodyShape = Object(&[(
    "edits",
    List(&Tagged(&[
        (
            &["clear_tool_uses_2*"],
            Object(&[
                ("trigger", AMOUNT),
                ("keep", AMOUNT),
                ("clear_at_least", AMOUNT),
                ("clear_tool_inputs", OneOf(&[Flag, List(&Text)])),
                ("exclude_tools", List(&Text)),
            ]),
        ),
        (
            &["clear_thinking_2*"],
            Object(&[("keep", OneOf(&[Text, AMOUNT]))]),
        ),
        (
            &["compact_2*"],
            Object(&[
                ("trigger", AMOUNT),
                ("instructions", Text),
                ("pause_after_compaction", Flag),
            ]),
        ),
    ])),
)]);

const AMOUNT: BodyShape = Tagged(&[
    (
        &["input_tokens", "tool_uses", "thinking_turns"],
        Object(&[("value", Number)]),
    ),
    (&["all"], Object(&[])),
]);

const OUTPUT_CONFIG: BodyShape = Object(&[
    ("effort", Text),
    ("format", OUTPUT_FORMAT),
    (
        "task_budget",
        Object(&[
            ("type", Word(&["tokens"], &[])),
            ("total", Number),
            ("remaining", Number),
        ]),
    ),
]);

const OUTPUT_FORMAT: BodyShape = Tagged(&[(&["json_schema"], Object(&[("schema", Schema)]))]);

const FALLBACK: BodyShape = Object(&[
    ("model", Model),
    ("max_tokens", Maximum),
    ("output_config", OUTPUT_CONFIG),
    ("speed", SPEED),
    ("thinking", THINKING),
]);

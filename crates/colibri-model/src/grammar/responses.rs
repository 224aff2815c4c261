//! OpenAI's responses.

use super::shape::BodyShape::{self, *};
use super::shape::{BodyMember, Grammar};
use crate::rules::ModelAllow as Allow;

pub(super) static GRAMMAR: Grammar = Grammar {
    answer: BODY,
    count: BODY,
    has_camel_case: false,
    picture_tokens: 16_384,
};

const BODY: BodyShape = Object(&[
    ("model", Model),
    ("input", OneOf(&[Text, List(&ITEM)])),
    ("instructions", Text),
    ("tools", List(&TOOL)),
    (
        "tool_choice",
        OneOf(&[Word(&["none", "auto", "required"], &[]), CHOICE]),
    ),
    ("parallel_tool_calls", Flag),
    ("max_tool_calls", Number),
    ("max_output_tokens", Maximum),
    ("reasoning", REASONING),
    ("text", TEXT_CONFIG),
    ("stream", Stream),
    ("stream_options", Object(&[("include_obfuscation", Flag)])),
    ("include", List(&Text)),
    ("temperature", Number),
    ("top_p", Number),
    ("top_logprobs", Number),
    ("truncation", Text),
    ("metadata", Map(&Text)),
    ("client_metadata", Map(&Text)),
    ("user", Text),
    ("safety_identifier", Text),
    ("context_management", List(&CONTEXT_MANAGEMENT)),
    ("prompt_cache_key", Text),
    (
        "prompt_cache_retention",
        Word(&["in_memory", "in-memory"], &[("*", Allow::Stored)]),
    ),
    (
        "prompt_cache_options",
        Object(&[("mode", Text), ("ttl", CACHE_TIME)]),
    ),
    (
        "service_tier",
        Word(&["auto", "default", "flex"], &[("*", Allow::ExtraCost)]),
    ),
    ("store", Store),
    ("background", Needs(&[Allow::Stored], &Flag)),
    ("background_options", Needs(&[Allow::Stored], &Json)),
    ("previous_response_id", Needs(&[Allow::Stored], &Text)),
    ("conversation", Needs(&[Allow::Stored], &Json)),
    (
        "prompt",
        Needs(
            &[Allow::Stored],
            &Object(&[
                ("id", Text),
                ("version", Text),
                ("variables", Map(&OneOf(&[Text, PART]))),
            ]),
        ),
    ),
]);

const REASONING: BodyShape = Object(&[
    ("effort", Text),
    ("summary", Text),
    ("generate_summary", Text),
    ("context", Text),
]);

const TEXT_CONFIG: BodyShape = Object(&[
    ("verbosity", Text),
    (
        "format",
        Tagged(&[
            (&["text", "json_object"], Object(&[])),
            (
                &["json_schema"],
                Object(&[
                    ("name", Text),
                    ("description", Text),
                    ("schema", Schema),
                    ("strict", Flag),
                ]),
            ),
        ]),
    ),
]);

const CONTEXT_MANAGEMENT: BodyShape =
    Tagged(&[(&["compaction"], Object(&[("compact_threshold", Number)]))]);
const CACHE_TIME: BodyShape = Word(&["30m"], &[("*", Allow::Stored)]);
const CACHE_BREAKPOINT: BodyShape = Object(&[("mode", Text), ("ttl", CACHE_TIME)]);
const FILE_ID: BodyShape = Needs(&[Allow::Files], &Text);

/// An element without `type` is a message; with an `id` alone it would name one that the provider
/// keeps.
const ITEM: BodyShape = Tagged(&[
    (
        &["", "message"],
        Object(&[
            ("id", Text),
            ("role", Text),
            ("content", Must(&OneOf(&[Text, List(&PART)]))),
            ("status", Text),
            ("phase", Text),
        ]),
    ),
    (
        &["reasoning"],
        Object(&[
            ("id", Text),
            ("summary", Must(&List(&PART))),
            ("content", List(&PART)),
            ("encrypted_content", Text),
            ("status", Text),
        ]),
    ),
    (
        &["function_call"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("name", Text),
            ("namespace", Text),
            ("arguments", Must(&Text)),
            ("status", Text),
            ("async", Flag),
            ("caller", CALLER),
        ]),
    ),
    (
        &["custom_tool_call"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("name", Text),
            ("namespace", Text),
            ("input", Must(&Text)),
            ("status", Text),
            ("async", Flag),
            ("caller", CALLER),
        ]),
    ),
    (
        &["function_call_output", "custom_tool_call_output"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("name", Text),
            ("namespace", Text),
            ("output", Must(&OneOf(&[Text, List(&PART)]))),
            ("status", Text),
            ("caller", CALLER),
        ]),
    ),
    (
        &["local_shell_call_output"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("output", Must(&Text)),
            ("status", Text),
        ]),
    ),
    (
        &["local_shell_call", "shell_call"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("action", Must(&Json)),
            ("status", Text),
            ("environment", ENVIRONMENT),
            ("caller", CALLER),
        ]),
    ),
    (
        &["shell_call_output"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("output", Must(&List(&Json))),
            ("max_output_length", Number),
            ("status", Text),
            ("caller", CALLER),
        ]),
    ),
    (
        &["apply_patch_call"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("operation", Must(&Json)),
            ("status", Text),
            ("caller", CALLER),
        ]),
    ),
    (
        &["apply_patch_call_output"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("output", Text),
            ("status", Must(&Text)),
            ("caller", CALLER),
        ]),
    ),
    (
        &["computer_call"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("action", Json),
            ("actions", List(&Json)),
            ("pending_safety_checks", Must(&List(&Json))),
            ("status", Text),
        ]),
    ),
    (
        &["computer_call_output"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("output", Must(&PART)),
            ("acknowledged_safety_checks", List(&Json)),
            ("status", Text),
        ]),
    ),
    (
        &["tool_search_call"],
        Object(&[
            ("id", Text),
            ("call_id", Text),
            ("execution", Text),
            ("arguments", Must(&Json)),
            ("status", Text),
        ]),
    ),
    (
        &["tool_search_output", "additional_tools"],
        Object(&[
            ("role", Text),
            ("id", Text),
            ("call_id", Text),
            ("execution", Text),
            ("tools", Must(&List(&TOOL))),
            ("status", Text),
        ]),
    ),
    (
        &["configuration_update"],
        Object(&[
            ("id", Text),
            ("reasoning", REASONING),
            ("text", TEXT_CONFIG),
        ]),
    ),
    (
        &["compaction", "compaction_summary"],
        Object(&[("id", Text), ("encrypted_content", Must(&Text))]),
    ),
    (&["compaction_trigger"], Object(&[("id", Text)])),
    (
        &["item_reference"],
        Needs(&[Allow::Stored], &Object(&[("id", Text)])),
    ),
    (&["web_search_call"], Needs(&[Allow::WebSearch], &Json)),
    (&["file_search_call"], Needs(&[Allow::Files], &Json)),
    (
        &["code_interpreter_call", "program", "program_output"],
        Needs(&[Allow::CodeExecution], &Json),
    ),
    (
        &[
            "mcp_call",
            "mcp_list_tools",
            "mcp_approval_request",
            "mcp_approval_response",
        ],
        Needs(&[Allow::RemoteMcp], &Json),
    ),
    (
        &["image_generation_call"],
        Needs(&[Allow::ExtraCost], &Json),
    ),
]);

const PART: BodyShape = Tagged(&[
    (
        &["input_text", "text", "summary_text", "reasoning_text"],
        Object(&[
            ("text", Text),
            ("prompt_cache_breakpoint", CACHE_BREAKPOINT),
        ]),
    ),
    (
        &["output_text"],
        Object(&[
            ("text", Text),
            ("annotations", List(&ANNOTATION)),
            ("logprobs", Json),
        ]),
    ),
    (&["refusal"], Object(&[("refusal", Text)])),
    (
        &["input_image", "computer_screenshot"],
        Object(&[
            ("image_url", DataUrl),
            ("file_id", FILE_ID),
            ("detail", Text),
            ("prompt_cache_breakpoint", CACHE_BREAKPOINT),
        ]),
    ),
    (
        &["input_file"],
        Object(&[
            ("file_data", Inline),
            ("filename", Text),
            ("detail", Text),
            ("file_id", FILE_ID),
            ("file_url", Needs(&[Allow::Urls], &Text)),
            ("prompt_cache_breakpoint", CACHE_BREAKPOINT),
        ]),
    ),
    (
        &["input_audio"],
        Object(&[("input_audio", Object(&[("data", Inline), ("format", Text)]))]),
    ),
]);

const ANNOTATION: BodyShape = Tagged(&[
    (&["url_citation"], Needs(&[Allow::WebSearch], &Json)),
    (
        &["file_citation", "file_path"],
        Needs(&[Allow::Files], &Json),
    ),
    (
        &["container_file_citation"],
        Needs(&[Allow::CodeExecution], &Json),
    ),
]);

const CALLER: BodyShape = Tagged(&[
    (&["direct"], Object(&[])),
    (
        &["program"],
        Needs(&[Allow::CodeExecution], &Object(&[("caller_id", Text)])),
    ),
]);

const TOOL: BodyShape = Tagged(&[
    (&["function"], Object(FUNCTION)),
    (&["custom"], Object(CUSTOM)),
    (
        &["namespace"],
        Object(&[
            ("name", Text),
            ("description", Text),
            (
                "tools",
                List(&Tagged(&[
                    (&["function"], Object(FUNCTION)),
                    (&["custom"], Object(CUSTOM)),
                ])),
            ),
        ]),
    ),
    // What the provider defines and the agent runs.
    (
        &[
            "local_shell",
            "apply_patch",
            "computer",
            "computer_use_preview",
        ],
        Object(&[
            ("display_width", Number),
            ("display_height", Number),
            ("environment", Text),
            ("allowed_callers", ALLOWED_CALLERS),
        ]),
    ),
    (
        &["shell"],
        Object(&[
            ("environment", ENVIRONMENT),
            ("allowed_callers", ALLOWED_CALLERS),
        ]),
    ),
    // It looks through the request's own tools.
    (
        &["tool_search"],
        Object(&[
            ("execution", Text),
            ("description", Text),
            ("parameters", Schema),
        ]),
    ),
    (
        &["web_search", "web_search_2*", "web_search_preview*"],
        Needs(&[Allow::WebSearch], &Json),
    ),
    (&["file_search"], Needs(&[Allow::Files], &Json)),
    (
        &["code_interpreter"],
        Needs(
            &[Allow::CodeExecution],
            &Object(&[
                (
                    "container",
                    OneOf(&[Text, Tagged(&[(&["auto"], Object(CONTAINER))])]),
                ),
                ("allowed_callers", ALLOWED_CALLERS),
            ]),
        ),
    ),
    (
        &["programmatic_tool_calling"],
        Needs(&[Allow::CodeExecution], &Object(&[])),
    ),
    (&["mcp"], Needs(&[Allow::RemoteMcp], &Json)),
    (
        &["image_generation"],
        Needs(
            &[Allow::ExtraCost],
            &Object(&[
                ("action", Text),
                ("background", Text),
                ("input_fidelity", Text),
                ("model", Model),
                ("moderation", Text),
                ("output_compression", Number),
                ("output_format", Text),
                ("partial_images", Number),
                ("quality", Text),
                ("size", Text),
            ]),
        ),
    ),
]);

const FUNCTION: &[BodyMember] = &[
    ("name", Text),
    ("description", Text),
    ("parameters", Schema),
    ("output_schema", Schema),
    ("strict", Flag),
    ("defer_loading", Flag),
    ("async", Flag),
    ("allowed_callers", ALLOWED_CALLERS),
];

const CUSTOM: &[BodyMember] = &[
    ("name", Text),
    ("description", Text),
    (
        "format",
        Tagged(&[
            (&["text"], Object(&[])),
            (
                &["grammar"],
                Object(&[("syntax", Text), ("definition", Text)]),
            ),
        ]),
    ),
    ("defer_loading", Flag),
    ("async", Flag),
    ("allowed_callers", ALLOWED_CALLERS),
];

const ALLOWED_CALLERS: BodyShape = List(&Word(
    &["direct"],
    &[("programmatic", Allow::CodeExecution)],
));

/// The place where a shell runs: the agent's own machine, or a container of the provider.
const ENVIRONMENT: BodyShape = Tagged(&[
    (&["local"], Object(&[("skills", List(&LOCAL_SKILL))])),
    (
        &["container_auto"],
        Needs(&[Allow::CodeExecution], &Object(CONTAINER)),
    ),
    (
        &["container_reference"],
        Needs(&[Allow::CodeExecution], &Object(&[("container_id", Text)])),
    ),
]);

/// A directory of the agent's own machine.
const LOCAL_SKILL: BodyShape = Object(&[("name", Text), ("description", Text), ("path", Text)]);

/// A container with a network is one more way out.
const CONTAINER: &[BodyMember] = &[
    ("memory_limit", Text),
    ("file_ids", Needs(&[Allow::Files], &List(&Text))),
    (
        "network_policy",
        Tagged(&[
            (&["disabled"], Object(&[])),
            (&["allowlist"], Needs(&[Allow::WebFetch], &Json)),
        ]),
    ),
    ("skills", Json),
];

const CHOICE: BodyShape = Object(&[
    ("type", TOOL_TYPE),
    ("name", Text),
    ("namespace", Text),
    ("server_label", Text),
    ("mode", Text),
    (
        "tools",
        List(&Object(&[
            ("type", TOOL_TYPE),
            ("name", Text),
            ("namespace", Text),
            ("server_label", Text),
        ])),
    ),
]);

const TOOL_TYPE: BodyShape = Word(
    &[
        "allowed_tools",
        "function",
        "custom",
        "namespace",
        "local_shell",
        "shell",
        "apply_patch",
        "computer*",
        "tool_search",
    ],
    &[
        ("web_search*", Allow::WebSearch),
        ("file_search", Allow::Files),
        ("code_interpreter", Allow::CodeExecution),
        ("programmatic_tool_calling", Allow::CodeExecution),
        ("mcp", Allow::RemoteMcp),
        ("image_generation", Allow::ExtraCost),
    ],
);

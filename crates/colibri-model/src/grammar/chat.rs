//! OpenAI's chat completions, with what others that speak them add for their models.

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
    ("messages", List(&MESSAGE)),
    ("tools", List(&TOOL)),
    (
        "tool_choice",
        OneOf(&[Word(&["none", "auto", "required", "any"], &[]), CHOICE]),
    ),
    ("parallel_tool_calls", Flag),
    ("functions", List(&Object(FUNCTION))),
    (
        "function_call",
        OneOf(&[Word(&["none", "auto"], &[]), Object(&[("name", Text)])]),
    ),
    ("max_tokens", Maximum),
    ("max_completion_tokens", Maximum),
    ("n", Copies),
    ("stop", OneOf(&[Text, List(&Text)])),
    ("stream", Stream),
    (
        "stream_options",
        StreamOptions(&[("include_usage", Flag), ("include_obfuscation", Flag)]),
    ),
    ("temperature", Number),
    ("top_p", Number),
    ("top_k", Number),
    ("min_p", Number),
    ("seed", Number),
    ("presence_penalty", Number),
    ("frequency_penalty", Number),
    ("repetition_penalty", Number),
    ("logit_bias", Map(&Number)),
    ("logprobs", Flag),
    ("top_logprobs", Number),
    ("response_format", RESPONSE_FORMAT),
    ("reasoning_effort", Text),
    (
        "reasoning",
        Object(&[
            ("effort", Text),
            ("max_tokens", Maximum),
            ("exclude", Flag),
            ("enabled", Flag),
        ]),
    ),
    ("include_reasoning", Flag),
    (
        "thinking",
        Tagged(&[(
            &["enabled", "disabled", "adaptive", "auto"],
            Object(&[("budget_tokens", Number), ("clear_thinking", Flag)]),
        )]),
    ),
    ("enable_thinking", Flag),
    ("thinking_budget", Number),
    ("chat_template_kwargs", Map(&OneOf(&[Flag, Number, Text]))),
    ("verbosity", Text),
    (
        "modalities",
        List(&Word(&["text"], &[("*", Allow::ExtraCost)])),
    ),
    (
        "audio",
        Needs(
            &[Allow::ExtraCost],
            &Object(&[("voice", Text), ("format", Text)]),
        ),
    ),
    (
        "prediction",
        Tagged(&[(
            &["content"],
            Object(&[("content", OneOf(&[Text, List(&PART)]))]),
        )]),
    ),
    ("metadata", Map(&Text)),
    ("user", Text),
    ("safety_identifier", Text),
    ("usage", Object(&[("include", Flag)])),
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
    ("store", Needs(&[Allow::Stored], &Flag)),
    ("web_search_options", Needs(&[Allow::WebSearch], &Json)),
]);

const CACHE_TIME: BodyShape = Word(&["30m"], &[("*", Allow::Stored)]);
const CACHE_BREAKPOINT: BodyShape = Object(&[("mode", Text), ("ttl", CACHE_TIME)]);
const CACHE_CONTROL: BodyShape = Object(&[
    ("type", Word(&["ephemeral"], &[])),
    ("ttl", Word(&["5m", "1h"], &[])),
]);

const MESSAGE: BodyShape = Object(&[
    ("role", Text),
    ("content", OneOf(&[Text, List(&PART)])),
    ("name", Text),
    ("refusal", Text),
    ("tool_call_id", Text),
    ("tool_calls", List(&CALL)),
    (
        "function_call",
        Object(&[("name", Text), ("arguments", Text)]),
    ),
    ("annotations", List(&ANNOTATION)),
    // An answer in sound that the provider keeps.
    ("audio", Needs(&[Allow::Stored], &Object(&[("id", Text)]))),
    ("reasoning", Text),
    ("reasoning_content", Text),
    ("reasoning_details", List(&REASONING_DETAIL)),
    ("cache_control", CACHE_CONTROL),
    ("prefix", Flag),
]);

const PART: BodyShape = Tagged(&[
    (
        &["text"],
        Object(&[
            ("text", Text),
            ("cache_control", CACHE_CONTROL),
            ("prompt_cache_breakpoint", CACHE_BREAKPOINT),
        ]),
    ),
    (&["refusal"], Object(&[("refusal", Text)])),
    (
        &["image_url"],
        Object(&[
            ("image_url", URL),
            ("cache_control", CACHE_CONTROL),
            ("prompt_cache_breakpoint", CACHE_BREAKPOINT),
        ]),
    ),
    (
        &["video_url"],
        Object(&[("video_url", URL), ("cache_control", CACHE_CONTROL)]),
    ),
    (
        &["audio_url"],
        Object(&[("audio_url", URL), ("cache_control", CACHE_CONTROL)]),
    ),
    (
        &["input_audio"],
        Object(&[
            ("input_audio", Object(&[("data", Inline), ("format", Text)])),
            ("cache_control", CACHE_CONTROL),
            ("prompt_cache_breakpoint", CACHE_BREAKPOINT),
        ]),
    ),
    (
        &["file"],
        Object(&[
            (
                "file",
                Object(&[
                    ("file_data", Inline),
                    ("filename", Text),
                    ("file_id", Needs(&[Allow::Files], &Text)),
                ]),
            ),
            ("cache_control", CACHE_CONTROL),
            ("prompt_cache_breakpoint", CACHE_BREAKPOINT),
        ]),
    ),
]);

const URL: BodyShape = OneOf(&[DataUrl, Object(&[("url", DataUrl), ("detail", Text)])]);

const ANNOTATION: BodyShape = Tagged(&[
    (&["url_citation"], Needs(&[Allow::WebSearch], &Json)),
    (&["file_citation", "file"], Needs(&[Allow::Files], &Json)),
]);

const REASONING_DETAIL: BodyShape = Tagged(&[(
    &["reasoning.text", "reasoning.summary", "reasoning.encrypted"],
    Object(&[
        ("id", Text),
        ("format", Text),
        ("index", Number),
        ("text", Text),
        ("summary", Text),
        ("data", Text),
        ("signature", Text),
    ]),
)]);

const CALL: BodyShape = Tagged(&[
    (
        &["", "function"],
        Object(&[
            ("id", Text),
            ("index", Number),
            ("function", Object(&[("name", Text), ("arguments", Text)])),
            (
                "extra_content",
                Object(&[("google", Object(&[("thought_signature", Text)]))]),
            ),
        ]),
    ),
    (
        &["custom"],
        Object(&[
            ("id", Text),
            ("index", Number),
            ("custom", Object(&[("name", Text), ("input", Text)])),
        ]),
    ),
]);

const TOOL: BodyShape = Tagged(&[
    (
        &["function"],
        Object(&[
            ("function", Object(FUNCTION)),
            ("cache_control", CACHE_CONTROL),
        ]),
    ),
    (
        &["custom"],
        Object(&[(
            "custom",
            Object(&[("name", Text), ("description", Text), ("format", FORMAT)]),
        )]),
    ),
    (
        &["web_search*", "builtin_function"],
        Needs(&[Allow::WebSearch], &Json),
    ),
    (&["file_search", "retrieval"], Needs(&[Allow::Files], &Json)),
    (&["code_interpreter"], Needs(&[Allow::CodeExecution], &Json)),
    (&["mcp"], Needs(&[Allow::RemoteMcp], &Json)),
]);

const FUNCTION: &[BodyMember] = &[
    ("name", Text),
    ("description", Text),
    ("parameters", Schema),
    ("strict", Flag),
    ("cache_control", CACHE_CONTROL),
];

const FORMAT: BodyShape = Tagged(&[
    (&["text"], Object(&[])),
    (
        &["grammar"],
        Object(&[("grammar", Object(&[("syntax", Text), ("definition", Text)]))]),
    ),
]);

const CHOSEN: &[BodyMember] = &[
    ("function", Object(&[("name", Text)])),
    ("custom", Object(&[("name", Text)])),
];

const CHOICE: BodyShape = Tagged(&[
    (&["function", "custom"], Object(CHOSEN)),
    (
        &["allowed_tools"],
        Object(&[(
            "allowed_tools",
            Object(&[
                ("mode", Text),
                (
                    "tools",
                    List(&Tagged(&[(&["function", "custom"], Object(CHOSEN))])),
                ),
            ]),
        )]),
    ),
]);

const RESPONSE_FORMAT: BodyShape = Tagged(&[
    (&["text", "json_object"], Object(&[])),
    (
        &["json_schema"],
        Object(&[(
            "json_schema",
            Object(&[
                ("name", Text),
                ("description", Text),
                ("schema", Schema),
                ("strict", Flag),
            ]),
        )]),
    ),
]);

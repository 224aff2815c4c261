//! Gemini's generateContent. Its JSON is that of Protocol Buffers: each key also in camel case.

use super::shape::BodyShape::{self, *};
use super::shape::{BodyMember, Grammar};
use crate::rules::ModelAllow as Allow;

pub(super) static GRAMMAR: Grammar = Grammar {
    answer: BODY,
    count: Object(&[
        ("contents", List(&CONTENT)),
        ("generate_content_request", BODY),
    ]),
    has_camel_case: true,
    picture_tokens: 16_384,
};

const BODY: BodyShape = Object(&[
    ("model", Model),
    ("contents", List(&CONTENT)),
    ("system_instruction", CONTENT),
    ("tools", List(&TOOL)),
    ("tool_config", TOOL_CONFIG),
    ("generation_config", GENERATION_CONFIG),
    (
        "safety_settings",
        List(&Object(&[
            ("category", Text),
            ("threshold", Text),
            ("method", Text),
        ])),
    ),
    ("cached_content", Needs(&[Allow::Stored], &Text)),
    ("store", Needs(&[Allow::Stored], &Flag)),
    (
        "service_tier",
        Word(
            &["unspecified", "standard", "flex"],
            &[("*", Allow::ExtraCost)],
        ),
    ),
]);

const CONTENT: BodyShape = Object(&[("role", Text), ("parts", List(&PART))]);

const PART: BodyShape = Object(&[
    ("text", Text),
    ("thought", Flag),
    ("thought_signature", Text),
    ("inline_data", DATA),
    ("file_data", FILE),
    (
        "function_call",
        Object(&[("id", Text), ("name", Text), ("args", Json)]),
    ),
    (
        "function_response",
        Object(&[
            ("id", Text),
            ("name", Text),
            ("response", Json),
            ("will_continue", Flag),
            ("scheduling", Text),
            (
                "parts",
                List(&Object(&[("inline_data", DATA), ("file_data", FILE)])),
            ),
        ]),
    ),
    ("executable_code", Needs(&[Allow::CodeExecution], &Json)),
    (
        "code_execution_result",
        Needs(&[Allow::CodeExecution], &Json),
    ),
    ("tool_call", Needs(PROVIDER_TOOLS, &Json)),
    ("tool_response", Needs(PROVIDER_TOOLS, &Json)),
    (
        "video_metadata",
        Object(&[
            ("start_offset", Text),
            ("end_offset", Text),
            ("fps", Number),
        ]),
    ),
    (
        "media_resolution",
        OneOf(&[Text, Object(&[("level", Text), ("num_tokens", Number)])]),
    ),
    ("part_metadata", Json),
]);

const PROVIDER_TOOLS: &[Allow] = &[
    Allow::WebSearch,
    Allow::WebFetch,
    Allow::CodeExecution,
    Allow::Files,
];

const DATA: BodyShape = Object(&[
    ("mime_type", MediaType),
    ("data", Base64),
    ("display_name", Text),
]);

const FILE: BodyShape = Needs(
    &[Allow::Urls],
    &Object(&[
        ("mime_type", MediaType),
        ("file_uri", Text),
        ("display_name", Text),
    ]),
);

const TOOL: BodyShape = Object(&[
    ("function_declarations", List(&Object(FUNCTION))),
    (
        "computer_use",
        Object(&[
            ("environment", Text),
            ("excluded_predefined_functions", List(&Text)),
        ]),
    ),
    ("google_search", Needs(&[Allow::WebSearch], &Json)),
    ("google_search_retrieval", Needs(&[Allow::WebSearch], &Json)),
    ("enterprise_web_search", Needs(&[Allow::WebSearch], &Json)),
    ("google_maps", Needs(&[Allow::WebSearch], &Json)),
    ("url_context", Needs(&[Allow::WebFetch], &Json)),
    ("code_execution", Needs(&[Allow::CodeExecution], &Json)),
    ("file_search", Needs(&[Allow::Files], &Json)),
    ("mcp_servers", Needs(&[Allow::RemoteMcp], &Json)),
]);

const FUNCTION: &[BodyMember] = &[
    ("name", Text),
    ("description", Text),
    ("parameters", Schema),
    ("parameters_json_schema", Schema),
    ("response", Schema),
    ("response_json_schema", Schema),
    ("behavior", Text),
];

const TOOL_CONFIG: BodyShape = Object(&[
    (
        "function_calling_config",
        Object(&[
            ("mode", Text),
            ("allowed_function_names", List(&Text)),
            ("stream_function_call_arguments", Flag),
        ]),
    ),
    (
        "retrieval_config",
        Object(&[
            (
                "lat_lng",
                Object(&[("latitude", Number), ("longitude", Number)]),
            ),
            ("language_code", Text),
        ]),
    ),
    ("include_server_side_tool_invocations", Flag),
]);

const GENERATION_CONFIG: BodyShape = Object(&[
    ("max_output_tokens", Maximum),
    ("candidate_count", Copies),
    ("temperature", Number),
    ("top_p", Number),
    ("top_k", Number),
    ("seed", Number),
    ("presence_penalty", Number),
    ("frequency_penalty", Number),
    ("stop_sequences", List(&Text)),
    ("response_mime_type", Text),
    ("response_schema", Schema),
    ("response_json_schema", Schema),
    (
        "response_modalities",
        List(&Word(&["TEXT", "Text", "text"], &[("*", Allow::ExtraCost)])),
    ),
    ("response_logprobs", Flag),
    ("logprobs", Number),
    ("audio_timestamp", Flag),
    ("enable_enhanced_civic_answers", Flag),
    ("media_resolution", Text),
    (
        "thinking_config",
        Object(&[
            ("include_thoughts", Flag),
            ("thinking_budget", Number),
            ("thinking_level", Text),
        ]),
    ),
    ("speech_config", Needs(&[Allow::ExtraCost], &SPEECH_CONFIG)),
    (
        "image_config",
        Needs(
            &[Allow::ExtraCost],
            &Object(&[("aspect_ratio", Text), ("image_size", Text)]),
        ),
    ),
]);

const SPEECH_CONFIG: BodyShape = Object(&[
    ("language_code", Text),
    (
        "voice_config",
        Object(&[("prebuilt_voice_config", Object(&[("voice_name", Text)]))]),
    ),
]);

//! A table of the things that the published interfaces of models can make a provider fetch, run, store or bill. The relay
//! refuses each of them in every place of a request, however it is spelt, unless the agent's entry allows it.
//!
//! The table is not made of the relay's own: it was taken from the providers' references and libraries (November 2026).

use colibri_mcpd::model::read_body;
use colibri_mcpd::registry::{ModelAllow, ModelApi, ModelPermissions};
use serde_json::Value;

/// An interface, as this table has it.
struct Interface {
    api: ModelApi,
    /// A request with something in each place that requests have. It passes.
    body: &'static str,
    /// Keys below which everything is the agent's own: schemas, what its tools take and answer.
    own: &'static [&'static str],
    /// Members that must not stand in any object.
    members: &'static [(&'static str, &'static str)],
    /// Elements that must not stand in any list.
    elements: &'static [&'static str],
    /// Keys whose values are data, and must be no address.
    data: &'static [&'static str],
}

const INTERFACES: [Interface; 4] = [
    Interface {
        api: ModelApi::Anthropic,
        body: r#"{"model":"m","max_tokens":9,"stream":true,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}],
            "metadata":{"user_id":"u"},"thinking":{"type":"enabled","budget_tokens":5},"tool_choice":{"type":"tool","name":"t"},
            "context_management":{"edits":[{"type":"clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":1}}]},
            "output_config":{"effort":"high","format":{"type":"json_schema","schema":{}}},
            "tools":[{"name":"t","description":"d","input_schema":{"type":"object"}},{"type":"bash_20250124","name":"bash"},
                {"type":"tool_search_tool_regex_20251119","name":"tool_search_tool_regex"}],
            "messages":[{"role":"user","content":[{"type":"text","text":"x","citations":[{"type":"char_location","cited_text":"x"}]},
                {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},
                {"type":"document","title":"t","citations":{"enabled":true},"source":{"type":"content","content":[{"type":"text","text":"x"}]}},
                {"type":"search_result","title":"t","content":[{"type":"text","text":"x"}],"citations":{"enabled":false}}]},
              {"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"s"},{"type":"tool_use","id":"1","name":"t","input":{},"caller":{"type":"direct"}},
                {"type":"server_tool_use","id":"2","name":"tool_search_tool_regex","input":{}},
                {"type":"tool_search_tool_result","tool_use_id":"2","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"t"}]}}]},
              {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","is_error":false,"content":[{"type":"text","text":"x"},
                {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"tool_reference","tool_name":"t"}]}]}]}"#,
        own: &["input", "input_schema", "schema", "input_examples"],
        members: &[
            ("container", "\"c_1\""),
            ("container", "{\"skills\":[{\"type\":\"custom\",\"skill_id\":\"s\"}]}"),
            (
                "mcp_servers",
                "[{\"type\":\"url\",\"url\":\"https://evil.example\",\"name\":\"e\"}]",
            ),
            ("mcp_server_name", "\"e\""),
            ("server_name", "\"e\""),
            ("betas", "[\"mcp-client-2025-11-20\"]"),
            ("thread", "{\"type\":\"continue\",\"previous_message_id\":\"m\"}"),
            (
                "billing_policy",
                "{\"type\":\"billing_policy\",\"bill_to\":\"user_profile\"}",
            ),
            ("fallbacks", "[{\"model\":\"dear\"}]"),
            ("fallbacks", "\"default\""),
            ("fallback_credit_token", "\"t\""),
            ("user_profile_id", "\"u\""),
            ("workspace_id", "\"w\""),
            ("file_id", "\"file_1\""),
            ("file", "{\"file_id\":\"file_1\"}"),
            ("url", "\"https://evil.example/?secret\""),
            ("image", "\"https://evil.example/?secret\""),
            ("image_url", "{\"url\":\"https://evil.example\"}"),
            ("skills", "[{\"type\":\"anthropic\",\"skill_id\":\"pptx\"}]"),
            ("authorization_token", "\"t\""),
            ("allowed_domains", "[\"evil.example\"]"),
            ("environment", "{\"type\":\"container_auto\"}"),
            ("service_tier", "\"priority\""),
            ("speed", "\"fast\""),
            ("inference_geo", "\"us\""),
            ("store", "true"),
            ("background", "true"),
            ("requests", "[{\"custom_id\":\"1\",\"params\":{}}]"),
            ("googleSearch", "{}"),
            ("web_search_options", "{}"),
            ("plugins", "[{\"id\":\"web\"}]"),
        ],
        elements: &[
            r#"{"type":"web_search_20250305","name":"web_search"}"#,
            r#"{"type":"web_fetch_20250910","name":"web_fetch"}"#,
            r#"{"type":"code_execution_20250825","name":"code_execution"}"#,
            r#"{"type":"mcp_toolset","mcp_server_name":"e"}"#,
            r#"{"type":"mcp","server_url":"https://evil.example"}"#,
            r#"{"type":"advisor_20260301","name":"advisor","model":"dear"}"#,
            r#"{"name":"t","url":"https://evil.example"}"#,
            r#"{"name":"web_search","max_uses":5}"#,
            r#"{"type":"image","source":{"type":"url","url":"https://evil.example"}}"#,
            r#"{"type":"image","source":{"type":"file","file_id":"f"}}"#,
            r#"{"type":"image","source":"https://evil.example"}"#,
            r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"https://evil.example"}}"#,
            r#"{"type":"image","source":{"type":"base64","media_type":"image/svg+xml","data":"AA=="}}"#,
            r#"{"type":"document","source":{"type":"url","url":"https://evil.example"}}"#,
            r#"{"type":"container_upload","file_id":"f"}"#,
            r#"{"type":"server_tool_use","id":"1","name":"web_fetch","input":{"url":"https://evil.example"}}"#,
            r#"{"type":"mcp_tool_use","id":"1","name":"t","server_name":"e","input":{}}"#,
            r#"{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_search_20250305","name":"web_search"}}}"#,
            r#"{"type":"video","url":"https://evil.example"}"#,
            r#"{"googleSearch":{}}"#,
            r#"{"id":"msg_1"}"#,
        ],
        data: &["data"],
    },
    Interface {
        api: ModelApi::OpenAiResponses,
        body: r#"{"model":"m","max_output_tokens":9,"stream":true,"store":false,"instructions":"i","parallel_tool_calls":true,
            "include":["reasoning.encrypted_content"],"reasoning":{"effort":"low","summary":"auto"},"client_metadata":{"a":"b"},
            "text":{"verbosity":"low","format":{"type":"json_schema","name":"n","schema":{},"strict":true}},
            "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"t"}]},
            "context_management":[{"type":"compaction","compact_threshold":9}],
            "tools":[{"type":"function","name":"t","parameters":{},"strict":false},{"type":"namespace","name":"n","tools":[{"type":"function","name":"u"}]},
                {"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"x"}},{"type":"local_shell"},
                {"type":"shell","environment":{"type":"local"}},{"type":"tool_search","execution":"client"}],
            "input":[{"role":"user","content":"x"},{"type":"message","role":"user","content":[{"type":"input_text","text":"x"},
                {"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"},{"type":"input_file","filename":"f","file_data":"data:application/pdf;base64,AA=="},
                {"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}]},
                {"type":"message","role":"assistant","id":"m","content":[{"type":"output_text","text":"x","annotations":[]}]},
                {"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"x"}],"encrypted_content":"e"},
                {"type":"function_call","call_id":"1","name":"t","arguments":"{}","caller":{"type":"direct"}},
                {"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"x"}]},
                {"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"v"}]}]}"#,
        own: &["parameters", "schema", "client_metadata"],
        members: &[
            ("previous_response_id", "\"resp_1\""),
            ("conversation", "\"conv_1\""),
            ("conversation", "{\"id\":\"conv_1\"}"),
            ("prompt", "{\"id\":\"p_1\"}"),
            ("store", "true"),
            ("background", "true"),
            ("background_options", "{\"continuation_id\":\"c\"}"),
            ("container", "\"c_1\""),
            ("container_id", "\"c_1\""),
            (
                "environment",
                "{\"type\":\"container_auto\",\"skills\":[{\"type\":\"skill_reference\",\"skill_id\":\"s\"}]}",
            ),
            (
                "environment",
                "{\"type\":\"container_reference\",\"container_id\":\"c\"}",
            ),
            (
                "network_policy",
                "{\"type\":\"allowlist\",\"allowed_domains\":[\"evil.example\"]}",
            ),
            ("skills", "[{\"type\":\"skill_reference\",\"skill_id\":\"s\"}]"),
            ("file_id", "\"file_1\""),
            ("file_ids", "[\"file_1\"]"),
            ("file_url", "\"https://evil.example\""),
            ("vector_store_ids", "[\"vs_1\"]"),
            ("server_url", "\"https://evil.example\""),
            ("connector_id", "\"connector_gmail\""),
            ("tunnel_id", "\"t\""),
            ("mcp_servers", "[{\"url\":\"https://evil.example\"}]"),
            ("authorization", "\"t\""),
            ("service_tier", "\"priority\""),
            ("prompt_cache_retention", "\"24h\""),
            ("moderation", "{\"model\":\"m\"}"),
            ("plugins", "[{\"id\":\"web\"}]"),
            ("web_search_options", "{}"),
            ("models", "[\"dear\"]"),
            ("image_url", "\"https://evil.example\""),
            ("image", "\"https://evil.example\""),
            ("url", "\"https://evil.example\""),
            ("googleSearch", "{}"),
        ],
        elements: &[
            r#"{"id":"msg_1"}"#,
            r#"{"type":"item_reference","id":"msg_1"}"#,
            r#"{"type":null,"id":"msg_1"}"#,
            r#"{"type":"message","id":"msg_1"}"#,
            r#"{"type":"message","id":"msg_1","content":null}"#,
            r#"{"type":"reasoning","id":"rs_1"}"#,
            r#"{"type":"web_search"}"#,
            r#"{"type":"web_search_preview"}"#,
            r#"{"type":"web_search_2025_08_26"}"#,
            r#"{"type":"file_search","vector_store_ids":["v"]}"#,
            r#"{"type":"code_interpreter","container":{"type":"auto"}}"#,
            r#"{"type":"programmatic_tool_calling"}"#,
            r#"{"type":"image_generation"}"#,
            r#"{"type":"mcp","server_label":"e","server_url":"https://evil.example"}"#,
            r#"{"type":"shell","environment":{"type":"container_auto","network_policy":{"type":"allowlist","allowed_domains":["evil.example"]}}}"#,
            r#"{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}"#,
            r#"{"type":"tool_search_output","tools":[{"type":"mcp","server_url":"https://evil.example"}]}"#,
            r#"{"type":"mcp_approval_response","approval_request_id":"1","approve":true}"#,
            r#"{"type":"code_interpreter_call","id":"1","container_id":"c","code":"x"}"#,
            r#"{"type":"input_image","image_url":"https://evil.example"}"#,
            r#"{"type":"input_image","file_id":"f"}"#,
            r#"{"type":"input_file","file_url":"https://evil.example"}"#,
            r#"{"type":"input_file","file_data":"https://evil.example"}"#,
            r#"{"type":"computer_call_output","call_id":"1","output":{"type":"computer_screenshot","image_url":"https://evil.example"}}"#,
            r#"{"role":"user","content":[{"type":"input_image","image_url":{"url":"https://evil.example"}}]}"#,
            r#"{"type":"message","role":"user","content":[{"type":"image_url","image_url":{"url":"https://evil.example"}}]}"#,
            r#"{"url_context":{}}"#,
        ],
        data: &["image_url", "file_data", "data"],
    },
    Interface {
        api: ModelApi::OpenAiChat,
        body: r#"{"model":"m","max_tokens":9,"stream":true,"stream_options":{"include_usage":true},"n":1,"parallel_tool_calls":true,
            "response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},"strict":true}},"thinking":{"type":"enabled"},
            "reasoning":{"effort":"low"},"prediction":{"type":"content","content":[{"type":"text","text":"x"}]},"usage":{"include":true},
            "tool_choice":{"type":"function","function":{"name":"t"}},"logit_bias":{"1":1},"metadata":{"a":"b"},
            "tools":[{"type":"function","function":{"name":"t","description":"d","parameters":{},"strict":true}},{"type":"custom","custom":{"name":"c","format":{"type":"text"}}}],
            "messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},
                {"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}},{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}},
                {"type":"file","file":{"filename":"f","file_data":"data:application/pdf;base64,AA=="}}]},
                {"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.text","text":"x"}],
                 "tool_calls":[{"id":"1","type":"function","function":{"name":"t","arguments":"{}"}}]},
                {"role":"tool","tool_call_id":"1","content":"x"}]}"#,
        own: &["parameters", "schema", "logit_bias", "metadata"],
        members: &[
            ("web_search_options", "{}"),
            ("store", "true"),
            ("plugins", "[{\"id\":\"web\"}]"),
            ("models", "[\"dear\"]"),
            ("route", "\"fallback\""),
            ("provider", "{\"order\":[\"x\"]}"),
            ("transforms", "[\"middle-out\"]"),
            ("search_parameters", "{\"mode\":\"on\"}"),
            ("enable_search", "true"),
            ("data_sources", "[{\"type\":\"azure_search\"}]"),
            ("extra_body", "{\"google\":{\"cached_content\":\"c\"}}"),
            ("cached_content", "\"c\""),
            ("chat_template", "\"{{ x }}\""),
            ("documents", "[{\"url\":\"https://evil.example\"}]"),
            ("mcp_servers", "[{\"url\":\"https://evil.example\"}]"),
            ("service_tier", "\"priority\""),
            ("prompt_cache_retention", "\"24h\""),
            ("background", "true"),
            ("conversation", "\"c\""),
            ("previous_response_id", "\"r\""),
            ("file_id", "\"f\""),
            ("path", "\"file:///etc/passwd\""),
            ("image", "\"https://evil.example\""),
            ("video", "\"https://evil.example\""),
            ("url", "\"https://evil.example\""),
            ("image_url", "\"https://evil.example\""),
            ("googleSearch", "{}"),
            ("google_search", "{}"),
            ("codeExecution", "{}"),
            ("container", "\"c\""),
        ],
        elements: &[
            r#"{"googleSearch":{}}"#,
            r#"{"google_search":{}}"#,
            r#"{"urlContext":{}}"#,
            r#"{"url_context":{}}"#,
            r#"{"codeExecution":{}}"#,
            r#"{"code_execution":{}}"#,
            r#"{"type":"web_search"}"#,
            r#"{"type":"builtin_function","function":{"name":"$web_search"}}"#,
            r#"{"type":"retrieval","retrieval":{"knowledge_id":"k"}}"#,
            r#"{"type":"mcp","server_url":"https://evil.example"}"#,
            r#"{"type":"code_interpreter"}"#,
            r#"{"type":"browser_search"}"#,
            r#"{"image":"https://evil.example"}"#,
            r#"{"image_url":"https://evil.example"}"#,
            r#"{"type":"image_url","image_url":"https://evil.example"}"#,
            r#"{"type":"image_url","image_url":{"url":"//evil.example"}}"#,
            r#"{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}"#,
            r#"{"type":"image_url","image_url":{"url":"data:image/svg+xml;base64,AA=="}}"#,
            r#"{"type":"video_url","video_url":{"url":"https://evil.example"}}"#,
            r#"{"type":"video_url","video_url":{"url":"data:application/vnd.apple.mpegurl;base64,AA=="}}"#,
            r#"{"type":"input_audio","input_audio":{"data":"https://evil.example","format":"wav"}}"#,
            r#"{"type":"file","file":{"file_id":"f"}}"#,
            r#"{"type":"file","file":{"path":"file:///etc/passwd"}}"#,
            r#"{"type":"file","file":{"file_data":"https://evil.example"}}"#,
            r#"{"role":"assistant","audio":{"id":"audio_1"}}"#,
            r#"{"type":"document","document":{"url":"https://evil.example"}}"#,
        ],
        data: &["url", "file_data", "data"],
    },
    Interface {
        api: ModelApi::Gemini,
        body: r#"{"contents":[{"role":"user","parts":[{"text":"x"},{"inlineData":{"mimeType":"image/png","data":"AA=="}},
                {"functionResponse":{"id":"1","name":"t","response":{},"parts":[{"inline_data":{"mime_type":"image/png","data":"AA=="}}]}}]},
                {"role":"model","parts":[{"functionCall":{"name":"t","args":{}},"thoughtSignature":"s"}]}],
            "systemInstruction":{"parts":[{"text":"x"}]},"safetySettings":[{"category":"c","threshold":"t"}],
            "tools":[{"functionDeclarations":[{"name":"t","parametersJsonSchema":{}}]}],
            "toolConfig":{"functionCallingConfig":{"mode":"AUTO","allowedFunctionNames":["t"]}},
            "generationConfig":{"maxOutputTokens":9,"candidateCount":1,"thinkingConfig":{"includeThoughts":true},"responseSchema":{},
                "speechConfig":{"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"v"}}}}}"#,
        own: &["response", "parametersJsonSchema", "args", "responseSchema"],
        members: &[
            ("cached_content", "\"cachedContents/1\""),
            ("file_data", "{\"fileUri\":\"https://evil.example\"}"),
            ("file_data", "{\"file_uri\":\"gs://bucket/x\"}"),
            ("file_uri", "\"https://evil.example\""),
            ("gcs_uri", "\"gs://bucket/x\""),
            ("google_search", "{}"),
            ("google_search_retrieval", "{}"),
            ("enterprise_web_search", "{}"),
            ("parallel_ai_search", "{\"apiKey\":\"k\"}"),
            ("google_maps", "{}"),
            ("url_context", "{}"),
            ("code_execution", "{}"),
            ("file_search", "{\"fileSearchStoreNames\":[\"s\"]}"),
            ("retrieval", "{\"externalApi\":{\"endpoint\":\"https://evil.example\"}}"),
            (
                "mcp_servers",
                "[{\"streamableHttpTransport\":{\"url\":\"https://evil.example\"}}]",
            ),
            ("executable_code", "{\"code\":\"x\",\"language\":\"PYTHON\"}"),
            ("code_execution_result", "{\"output\":\"x\"}"),
            ("tool_call", "{\"toolType\":\"GOOGLE_SEARCH\"}"),
            ("store", "true"),
            ("service_tier", "\"priority\""),
            ("response_format", "[{\"video\":{\"gcsUri\":\"gs://bucket/x\"}}]"),
            ("routing_config", "{\"manualMode\":{\"modelName\":\"dear\"}}"),
            ("model_armor_config", "{}"),
            ("continuation_token", "\"t\""),
            ("labels", "{\"a\":\"b\"}"),
            ("plugins", "[]"),
            ("url", "\"https://evil.example\""),
            ("image", "\"https://evil.example\""),
        ],
        elements: &[
            r#"{"googleSearch":{}}"#,
            r#"{"google_search":{}}"#,
            r#"{"urlContext":{}}"#,
            r#"{"codeExecution":{}}"#,
            r#"{"functionDeclarations":[],"googleSearch":{}}"#,
            r#"{"fileData":{"fileUri":"https://evil.example"}}"#,
            r#"{"text":"x","file_data":{"file_uri":"https://evil.example"}}"#,
            r#"{"parts":[{"fileData":{"fileUri":"https://evil.example"}}]}"#,
            r#"{"functionResponse":{"name":"t","parts":[{"fileData":{"fileUri":"https://evil.example"}}]}}"#,
            r#"{"inlineData":{"mimeType":"image/png","data":"https://evil.example"}}"#,
            r#"{"inlineData":{"mimeType":"application/x-mpegurl","data":"AA=="}}"#,
            r#"{"inlineData":{"mimeType":"image/svg+xml","data":"AA=="}}"#,
            r#"{"executableCode":{"code":"x"}}"#,
            r#"{"type":"web_search"}"#,
            r#"{"id":"msg_1"}"#,
        ],
        data: &["data"],
    },
];

/// Addresses in spellings that some reader takes for one.
const ADDRESSES: [&str; 9] = [
    "https://evil.example/?secret",
    "//evil.example/x",
    "file:///etc/passwd",
    "gs://bucket/x",
    " data:image/png;base64,AA==",
    "data:text/uri-list,https://evil.example",
    "evil.example",
    "data:https://evil.example/,",
    "\u{feff}https://evil.example",
];

/// A name as lenient readers may take it for the same, as it stands in JSON.
fn spellings(name: &str) -> Vec<String> {
    let capitals = |is_first: bool| {
        let mut text = String::new();
        let mut is_capital = is_first;
        for letter in name.chars() {
            match letter {
                '_' => is_capital = true,
                letter if is_capital => {
                    text.extend(letter.to_uppercase());
                    is_capital = false;
                }
                letter => text.push(letter),
            }
        }
        text
    };
    let (first, rest) = name.split_at(1);
    let code = u32::from(first.as_bytes()[0]);
    vec![
        name.to_owned(),
        capitals(false),
        capitals(true),
        name.to_uppercase(),
        name.replace('_', "-"),
        name.replace('_', ""),
        format!("\\u{code:04x}{rest}"),
        format!("{}{rest}", char::from_u32(code + 0xfee0).unwrap_or(' ')),
        format!("{name}\\u0000"),
        format!("{name} "),
        name.replace('s', "ſ").replace('k', "\u{212a}"),
    ]
}

/// The places of a value in which the provider reads: pointers, in order.
fn places(value: &Value, own: &[&str], at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(key, _)| !own.contains(&key.as_str()));
            members.for_each(|(key, value)| places(value, own, &format!("{at}/{key}"), found));
        }
        Value::Array(elements) => {
            let elements = elements.iter().enumerate();
            elements.for_each(|(index, value)| places(value, own, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

/// The text that stands for the key, or for the value, which is put into a body.
const HOLE: &str = "@@";

fn filled(body: &Value, hole: &str, with: &str) -> String {
    body.to_string().replacen(hole, with, 1)
}

/// Requests that must be refused where nothing is allowed, each behind the place and the text of what is wrong with it.
fn requests(interface: &Interface) -> Vec<(String, String)> {
    let whole: Value = serde_json::from_str(interface.body).expect("JSON");
    let mut found = Vec::new();
    places(&whole, interface.own, "", &mut found);
    let mut requests = Vec::new();
    for place in found {
        let mut with = |change: &dyn Fn(&mut Value), hole: &str, new: &str| {
            let mut body = whole.clone();
            change(body.pointer_mut(&place).expect("a place"));
            let what = if new.is_empty() {
                body.pointer(&place).map(Value::to_string)
            } else {
                Some(new.to_owned())
            };
            requests.push((
                format!("{place}: {}", what.unwrap_or_default()),
                filled(&body, hole, new),
            ));
        };
        let quoted = format!("\"{HOLE}\"");
        let key = place.rsplit('/').next().unwrap_or_default();
        match whole.pointer(&place).expect("a place") {
            Value::Object(_) => {
                for (name, value) in interface.members {
                    let value: Value = serde_json::from_str(value).expect("JSON");
                    for name in spellings(name) {
                        let put = |object: &mut Value| object[HOLE] = value.clone();
                        with(&put, &quoted, &format!("\"{name}\""));
                    }
                }
                // What says which of its kinds it is.
                for element in interface.elements {
                    let element: Value = serde_json::from_str(element).expect("JSON");
                    if let Some(kind) = element["type"].as_str().filter(|kind| is_providers(kind)) {
                        for kind in spellings(kind) {
                            let put = |object: &mut Value| object["type"] = HOLE.into();
                            with(&put, &quoted, &format!("\"{kind}\""));
                        }
                    }
                }
                if !["content", "tool_choice"].contains(&key) {
                    let put = |object: &mut Value| *object = ADDRESSES[0].into();
                    with(&put, HOLE, "");
                }
            }
            Value::Array(_) => {
                for element in interface.elements {
                    let put = |list: &mut Value| list.as_array_mut().expect("a list").push(HOLE.into());
                    with(&put, &quoted, element);
                }
            }
            Value::String(_) if interface.data.contains(&key) => {
                for address in ADDRESSES {
                    with(&|text: &mut Value| *text = address.into(), HOLE, "");
                }
            }
            Value::String(_) => {}
            // What is no text is not read as text.
            scalar => {
                let text = scalar.to_string();
                with(&|value: &mut Value| *value = text.as_str().into(), HOLE, "");
            }
        }
    }
    requests
}

/// True if a kind is one of the provider's alone, whatever else its object says.
fn is_providers(kind: &str) -> bool {
    let parts = [
        "web",
        "code",
        "mcp",
        "file_search",
        "container",
        "advisor",
        "retrieval",
        "programmatic",
        "reference",
    ];
    parts.iter().any(|part| kind.contains(part)) || kind == "image_generation"
}

/// The requests of an interface that pass though they must not.
pub fn passing(api: ModelApi) -> Vec<String> {
    let interface = INTERFACES.iter().find(|interface| interface.api == api);
    let requests = interface.map(requests).unwrap_or_default();
    assert!(requests.len() > 1000, "a table with {} requests", requests.len());
    let nothing = ModelPermissions::default();
    let mut passing = Vec::new();
    for (what, body) in requests {
        match read_body(api, &nothing, body.as_bytes()) {
            Ok(_) => passing.push(what),
            Err(refusal) => assert!(refusal.message.starts_with("body"), "{}", refusal.message),
        }
    }
    passing
}

/// The body of an interface that has something in each place.
pub fn whole(api: ModelApi) -> &'static str {
    INTERFACES
        .iter()
        .find(|interface| interface.api == api)
        .map_or("{}", |interface| interface.body)
}

/// The entry of the fuzzer: where nothing is allowed, a body that passes has nothing of the table in it, in whatever place,
/// and however it was come by.
pub fn run(data: &[u8]) {
    let Some((how, data)) = data.split_first() else {
        return;
    };
    let interface = &INTERFACES[usize::from(how & 3)];
    let requests = |permits: &ModelPermissions| read_body(interface.api, permits, data);
    if requests(&ModelPermissions::default()).is_err() {
        return;
    }
    let all = ModelPermissions {
        allow: ModelAllow::ALL.to_vec(),
        ..ModelPermissions::default()
    };
    assert!(requests(&all).is_ok(), "what needs nothing passes where all is allowed");
    let value: Value = serde_json::from_slice(data).expect("what passes is JSON");
    let mut found = Vec::new();
    places(&value, OWN, "", &mut found);
    for place in found {
        let Some(Value::Object(object)) = value.pointer(&place) else {
            continue;
        };
        for (name, way) in interface.members {
            let way: Value = serde_json::from_str(way).expect("JSON");
            assert!(
                object.iter().all(|(key, value)| !is_same(key, name) || *value != way),
                "{place} has {name}"
            );
        }
        for way in interface.elements {
            let way: Value = serde_json::from_str(way).expect("JSON");
            assert!(
                way != value.pointer(&place).cloned().unwrap_or_default(),
                "{place} is {way}"
            );
        }
    }
}

/// Keys below which everything is the agent's own, in all interfaces and spellings.
const OWN: &[&str] = &[
    "action",
    "actions",
    "acknowledged_safety_checks",
    "args",
    "arguments",
    "chat_template_kwargs",
    "client_metadata",
    "input_examples",
    "input_schema",
    "logit_bias",
    "logprobs",
    "metadata",
    "operation",
    "output_schema",
    "parameters",
    "parametersJsonSchema",
    "parameters_json_schema",
    "partMetadata",
    "part_metadata",
    "pending_safety_checks",
    "response",
    "responseJsonSchema",
    "responseSchema",
    "response_json_schema",
    "response_schema",
    "schema",
];

fn is_same(key: &str, name: &str) -> bool {
    let plain = |text: &str| text.to_lowercase().replace(['_', '-'], "");
    plain(key) == plain(name)
}

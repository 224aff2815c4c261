//! Requests that agents send, requests that have the provider do more, and the cost of both.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::api::{ModelRequestKind, fits, routes};
use super::body::judge;
use super::grammar::{BodyMember, BodyShape, Grammar, grammar};
use super::names::judge_model;
use super::request::{ModelRequest, judge_request};
use super::rules::{ModelAllow, ModelApi, ModelPermissions, RequestRules};
use super::{BodyFacts, ModelRefusal, ways_out};

fn read(
    api: ModelApi,
    permits: &ModelPermissions,
    body: &Value,
) -> Result<BodyFacts, ModelRefusal> {
    judge(
        api,
        ModelRequestKind::Generate,
        permits,
        body.to_string().as_bytes(),
    )
}

fn allowing(allow: &[ModelAllow]) -> ModelPermissions {
    ModelPermissions {
        allow: allow.to_vec(),
        ..ModelPermissions::default()
    }
}

fn refusal(api: ModelApi, body: &Value) -> ModelRefusal {
    let read = read(api, &ModelPermissions::default(), body);
    read.err().unwrap_or_else(|| panic!("it passes: {body}"))
}

#[test]
fn what_agents_send_passes() {
    use ModelApi::{Anthropic, Gemini, OpenAiChat, OpenAiResponses};
    for (api, name, body) in [
        (
            Anthropic,
            "claude-code",
            include_str!("fixtures/claude-code.json"),
        ),
        (
            Anthropic,
            "claude-code-haiku",
            include_str!("fixtures/claude-code-haiku.json"),
        ),
        (
            OpenAiResponses,
            "codex",
            include_str!("fixtures/codex.json"),
        ),
        (
            OpenAiResponses,
            "codex-gpt-5.5",
            include_str!("fixtures/codex-gpt-5.5.json"),
        ),
        (
            OpenAiResponses,
            "codex-gpt-5.6",
            include_str!("fixtures/codex-gpt-5.6.json"),
        ),
        (
            OpenAiChat,
            "opencode-title",
            include_str!("fixtures/opencode-title.json"),
        ),
        (
            OpenAiChat,
            "opencode",
            include_str!("fixtures/opencode.json"),
        ),
        (
            Gemini,
            "gemini-cli",
            include_str!("fixtures/gemini-cli.json"),
        ),
    ] {
        let facts = judge(
            api,
            ModelRequestKind::Generate,
            &ModelPermissions::default(),
            body.as_bytes(),
        );
        let facts = facts.unwrap_or_else(|refusal| panic!("{name}: {}", refusal.message));
        assert!(
            facts.splices.is_empty() && !facts.has_documents,
            "{name}: {facts:?}"
        );
    }
    // As their entries are shipped.
    for (id, sample, names) in [
        (
            "claude",
            include_str!("../../../etc/agents/claude.json"),
            &[
                "claude-opus-4-8",
                "claude-sonnet-5",
                "claude-haiku-4-5-20251001",
            ][..],
        ),
        (
            "codex",
            include_str!("../../../etc/agents/codex.json"),
            &["gpt-5", "gpt-5.5", "gpt-5.6-sol"],
        ),
        (
            "gemini",
            include_str!("../../../etc/agents/gemini.json"),
            &["gemini-2.5-flash", "gemini-2.5-flash-lite"],
        ),
        (
            "opencode",
            include_str!("../../../etc/agents/opencode.json"),
            &["gpt-5"],
        ),
    ] {
        let sample: Value = serde_json::from_str(sample).unwrap();
        let model = &sample["registry"]["agents"][id]["model"];
        let names_of = |key: &str| -> Vec<String> {
            let list = model[key].as_array().into_iter().flatten();
            list.map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        let allow = names_of("allow");
        let permits = ModelPermissions {
            allow: ModelAllow::ALL
                .into_iter()
                .filter(|kind| allow.iter().any(|name| name == kind.name()))
                .collect(),
            models: names_of("models"),
            betas: names_of("betas"),
        };
        for name in names {
            judge_model(name, &permits).unwrap_or_else(|why| panic!("{id}: {why}"));
        }
        for dear in [
            "o3-pro",
            "gpt-5-pro",
            "claude-mythos-5",
            "gemini-2.5-flash-image",
            "any",
        ] {
            assert!(judge_model(dear, &permits).is_err(), "{id}: {dear}");
        }
    }
    let count = r#"{"contents":[{"parts":[{"functionResponse":{"id":"1","name":"t","response":{}}},
        {"inlineData":{"data":"AA==","mimeType":"image/png"}}],"role":"user"}]}"#;
    judge(
        Gemini,
        ModelRequestKind::Count,
        &ModelPermissions::default(),
        count.as_bytes(),
    )
    .unwrap();
}

#[test]
fn nothing_that_a_provider_can_be_made_to_do_passes_in_any_place_or_spelling() {
    std::thread::scope(|scope| {
        for api in ModelApi::ALL {
            scope.spawn(move || {
                let passing = ways_out::passing(api);
                let shown: Vec<&String> = passing.iter().take(50).collect();
                assert!(passing.is_empty(), "{api:?} {}: {shown:#?}", passing.len());
            });
        }
    });
}

#[test]
fn what_passes_has_no_way_out_however_it_was_made() {
    const ROUNDS: usize = 400;
    let mut number = 1_u64;
    let mut byte = || {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (number >> 56) as u8
    };
    let mut made = || -> Vec<u8> {
        [byte() | 0x40]
            .into_iter()
            .chain((0..41).map(|_| byte()))
            .collect()
    };
    let passed = (0..ROUNDS).filter(|_| ways_out::holds(&made())).count();
    assert!(passed > ROUNDS / 5, "{passed}");
}

/// The objects and kinds of objects of a table that are reached, or not, in some bodies.
struct Reach {
    grammar: &'static Grammar,
    /// By what they are: where they stand, and whether they were reached.
    found: BTreeMap<String, (String, bool)>,
}

impl Reach {
    fn note(&mut self, name: &str, shape: BodyShape, at: &str, is_reached: bool) {
        let found = self.found.entry(format!("{name} {shape:?}"));
        found.or_insert_with(|| (format!("{at}/{name}"), false)).1 |= is_reached;
    }

    fn members(&mut self, members: &'static [BodyMember], at: &str, values: &[&Value]) {
        for (name, shape) in members {
            let of = values.iter().filter_map(|value| value.as_object());
            let of = of.flat_map(|members| {
                members
                    .iter()
                    .filter(|(key, _)| self.grammar.is_key(name, key))
            });
            let of: Vec<&Value> = of.map(|(_, value)| value).collect();
            self.walk(*shape, name, at, &of);
        }
    }

    fn walk(&mut self, shape: BodyShape, name: &str, at: &str, values: &[&Value]) {
        match shape {
            BodyShape::OneOf(shapes) => shapes
                .iter()
                .for_each(|shape| self.walk(*shape, name, at, values)),
            BodyShape::Must(shape) => self.walk(*shape, name, at, values),
            BodyShape::List(shape) => {
                let elements: Vec<&Value> = values
                    .iter()
                    .filter_map(|value| value.as_array())
                    .flatten()
                    .collect();
                self.walk(*shape, name, at, &elements);
            }
            BodyShape::Map(shape) => {
                let elements = values.iter().filter_map(|value| value.as_object());
                let elements: Vec<&Value> = elements.flat_map(|members| members.values()).collect();
                self.walk(*shape, name, at, &elements);
            }
            BodyShape::Object(members) | BodyShape::StreamOptions(members) => {
                self.note(
                    name,
                    shape,
                    at,
                    values.iter().any(|value| value.is_object()),
                );
                self.members(members, &format!("{at}/{name}"), values);
            }
            BodyShape::Tagged(variants) => {
                for (tags, shape) in variants {
                    for tag in *tags {
                        let is_tagged = |value: &&&Value| match value["type"].as_str() {
                            Some(kind) => !tag.is_empty() && fits(tag, kind),
                            None => tag.is_empty() && value.is_object(),
                        };
                        let of: Vec<&Value> = values.iter().filter(is_tagged).copied().collect();
                        match shape {
                            BodyShape::Object(members) => {
                                self.note(
                                    &format!("<{tag}>"),
                                    *shape,
                                    &format!("{at}/{name}"),
                                    !of.is_empty(),
                                );
                                self.members(members, &format!("{at}/{name}<{tag}>"), &of);
                            }
                            shape => self.walk(*shape, name, at, &of),
                        }
                    }
                }
            }
            // What has to be allowed is in no body that passes without.
            _ => {}
        }
    }
}

#[test]
fn bodies_reach_each_object_of_each_table() {
    for api in ModelApi::ALL {
        for (number, asks) in (0_u8..).zip([ModelRequestKind::Generate, ModelRequestKind::Count]) {
            if routes(api).iter().all(|(_, _, routed)| *routed != asks) {
                continue;
            }
            let grammar = grammar(api);
            let shape = match asks {
                ModelRequestKind::Count => grammar.count,
                _ => grammar.answer,
            };
            let bodies = ways_out::bodies(api, asks);
            for body in &bodies {
                let how = api as u8 | (number << 2);
                assert!(
                    ways_out::holds(&[&[how][..], body.to_string().as_bytes()].concat()),
                    "{body}"
                );
            }
            let found = BTreeMap::new();
            let mut reach = Reach { grammar, found };
            reach.walk(shape, "", "", &bodies.iter().collect::<Vec<_>>());
            let missing: Vec<_> = reach
                .found
                .values()
                .filter(|(_, is_reached)| !is_reached)
                .collect();
            assert!(
                missing.is_empty() && reach.found.len() > 2,
                "{api:?} {asks:?}: {missing:#?}"
            );
        }
    }
}

#[test]
fn what_the_entry_allows_passes_and_a_refusal_names_it() {
    use ModelAllow::{
        CodeExecution, ExtraCost, Files, RemoteMcp, Stored, Urls, WebFetch, WebSearch,
    };
    use ModelApi::{Anthropic, Gemini, OpenAiChat, OpenAiResponses};
    let tool = |tool: Value| json!({ "tools": [tool] });
    let block = |block: Value| json!({ "messages": [{ "role": "user", "content": [block] }] });
    let item = |item: Value| json!({ "input": [item] });
    let part = |part: Value| json!({ "contents": [{ "parts": [part] }] });
    let config = |config: Value| json!({ "generationConfig": config });
    for (api, allow, body) in [
        (
            Anthropic,
            WebSearch,
            tool(json!({ "type": "web_search_20250305", "name": "web_search", "max_uses": 5 })),
        ),
        (
            Anthropic,
            WebFetch,
            tool(json!({ "type": "web_fetch_20250910", "name": "web_fetch" })),
        ),
        (
            Anthropic,
            CodeExecution,
            tool(json!({ "type": "code_execution_20250825", "name": "code_execution" })),
        ),
        (
            Anthropic,
            CodeExecution,
            json!({ "container": { "skills": [] } }),
        ),
        (
            Anthropic,
            RemoteMcp,
            json!({ "mcp_servers": [{ "type": "url", "url": "https://x.example", "name": "x" }] }),
        ),
        (
            Anthropic,
            Urls,
            block(
                json!({ "type": "image", "source": { "type": "url", "url": "https://x.example" } }),
            ),
        ),
        (
            Anthropic,
            Files,
            block(json!({ "type": "document", "source": { "type": "file", "file_id": "f" } })),
        ),
        (Anthropic, ExtraCost, json!({ "speed": "fast" })),
        (
            Anthropic,
            ExtraCost,
            json!({ "fallbacks": [{ "model": "m" }] }),
        ),
        (Anthropic, Stored, json!({ "thread": { "type": "create" } })),
        (
            Anthropic,
            Stored,
            json!({ "diagnostics": { "previous_message_id": "msg_1" } }),
        ),
        (
            OpenAiResponses,
            WebSearch,
            tool(json!({ "type": "web_search", "external_web_access": true })),
        ),
        (
            OpenAiResponses,
            WebSearch,
            item(json!({ "type": "web_search_call", "id": "1", "action": { "type": "search" } })),
        ),
        (
            OpenAiResponses,
            Files,
            tool(json!({ "type": "file_search", "vector_store_ids": ["v"] })),
        ),
        (
            OpenAiResponses,
            CodeExecution,
            tool(json!({ "type": "code_interpreter", "container": { "type": "auto" } })),
        ),
        (
            OpenAiResponses,
            CodeExecution,
            tool(json!({ "type": "shell", "environment": { "type": "container_auto" } })),
        ),
        (
            OpenAiResponses,
            RemoteMcp,
            tool(json!({ "type": "mcp", "server_url": "https://x.example" })),
        ),
        (OpenAiResponses, Stored, json!({ "store": true })),
        (
            OpenAiResponses,
            Stored,
            json!({ "previous_response_id": "r" }),
        ),
        (OpenAiResponses, Stored, item(json!({ "id": "msg_1" }))),
        (
            OpenAiResponses,
            Stored,
            item(json!({ "type": "item_reference", "id": "msg_1" })),
        ),
        (
            OpenAiResponses,
            Stored,
            json!({ "prompt_cache_retention": "24h" }),
        ),
        (
            OpenAiResponses,
            ExtraCost,
            json!({ "service_tier": "priority" }),
        ),
        (
            OpenAiResponses,
            ExtraCost,
            tool(json!({ "type": "image_generation" })),
        ),
        (
            OpenAiChat,
            ExtraCost,
            json!({ "modalities": ["text", "audio"] }),
        ),
        (OpenAiChat, ExtraCost, json!({ "modalities": ["IMAGE"] })),
        (
            OpenAiChat,
            ExtraCost,
            json!({ "audio": { "voice": "v", "format": "mp3" } }),
        ),
        (OpenAiChat, WebSearch, json!({ "web_search_options": {} })),
        (
            OpenAiChat,
            WebSearch,
            json!({ "model": "gpt-4o-search-preview" }),
        ),
        (
            OpenAiChat,
            WebSearch,
            json!({ "model": "o3-deep-research-2025-06-26" }),
        ),
        (OpenAiChat, WebSearch, json!({ "model": "x/y:online" })),
        (
            OpenAiChat,
            Urls,
            block(json!({ "type": "image_url", "image_url": "https://x.example" })),
        ),
        (
            OpenAiChat,
            Files,
            block(json!({ "type": "file", "file": { "file_id": "f" } })),
        ),
        (
            OpenAiChat,
            Urls,
            tool(
                json!({ "type": "function", "function": { "name": "t", "parameters":
            { "properties": { "a": { "$ref": "https://x.example/schema" } } } } }),
            ),
        ),
        (Gemini, WebSearch, tool(json!({ "googleSearch": {} }))),
        (Gemini, WebSearch, tool(json!({ "google_search": {} }))),
        (Gemini, WebFetch, tool(json!({ "urlContext": {} }))),
        (Gemini, CodeExecution, tool(json!({ "codeExecution": {} }))),
        (
            Gemini,
            Urls,
            part(
                json!({ "fileData": { "fileUri": "https://x.example", "mimeType": "image/png" } }),
            ),
        ),
        (
            Gemini,
            Stored,
            json!({ "cachedContent": "cachedContents/1" }),
        ),
        (Gemini, ExtraCost, json!({ "serviceTier": "priority" })),
        (
            Gemini,
            ExtraCost,
            config(json!({ "responseModalities": ["TEXT", "IMAGE"] })),
        ),
        (
            Gemini,
            ExtraCost,
            config(json!({ "response_modalities": ["AUDIO"] })),
        ),
        (
            Gemini,
            ExtraCost,
            config(json!({ "imageConfig": { "imageSize": "4K" } })),
        ),
        (
            Gemini,
            ExtraCost,
            config(json!({ "speechConfig": { "languageCode": "en" } })),
        ),
    ] {
        let refusal = refusal(api, &body);
        assert_eq!(
            refusal.status,
            StatusCode::FORBIDDEN,
            "{body}: {}",
            refusal.message
        );
        assert!(
            refusal.message.contains(allow.name()),
            "{body}: {}",
            refusal.message
        );
        let passes = read(api, &allowing(&[allow]), &body);
        assert!(passes.is_ok(), "{body}: {}", passes.unwrap_err().message);
    }
    // A container with a network is two ways out.
    let body = tool(
        json!({ "type": "shell", "environment": { "type": "container_auto",
        "network_policy": { "type": "allowlist", "allowed_domains": ["x.example"] } } }),
    );
    assert!(
        read(OpenAiResponses, &allowing(&[CodeExecution]), &body)
            .unwrap_err()
            .message
            .contains("web-fetch")
    );
    read(
        OpenAiResponses,
        &allowing(&[CodeExecution, WebFetch]),
        &body,
    )
    .unwrap();
}

#[test]
fn a_cache_lasts_as_long_as_its_usual_prices_go() {
    for (api, ttl, passes) in [
        (ModelApi::Anthropic, "5m", true),
        (ModelApi::Anthropic, "1h", true),
        (ModelApi::Anthropic, "30d", false),
        (ModelApi::OpenAiChat, "1h", true),
        (ModelApi::OpenAiChat, "30d", false),
    ] {
        let cached = json!({ "type": "text", "text": "x", "cache_control": { "type": "ephemeral", "ttl": ttl } });
        let body = json!({ "messages": [{ "role": "user", "content": [cached] }] });
        assert_eq!(
            read(api, &ModelPermissions::default(), &body).is_ok(),
            passes,
            "{api:?} {ttl}"
        );
    }
}

#[test]
fn a_refusal_says_where_without_letting_the_agent_write_it() {
    let body = json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "a/b~\u{1b}[2J": 1 }] }] });
    let message = refusal(ModelApi::Anthropic, &body).message;
    assert!(
        message.starts_with("body /messages/0/content/0/a~1b~0"),
        "{message}"
    );
    assert!(!message.contains('\u{1b}'), "{message}");
    let mut deep = json!(1);
    for _ in 0..60 {
        deep = json!({ "k".repeat(200): deep });
    }
    let body = format!(
        r#"{{"tools":[{{"name":"t","input_schema":{}}}]}}"#,
        deep.to_string().replace(":1}", r#":1,"x":1,"x":1}"#)
    );
    let message = judge(
        ModelApi::Anthropic,
        ModelRequestKind::Generate,
        &ModelPermissions::default(),
        body.as_bytes(),
    );
    let message = message.unwrap_err().message;
    assert!(
        message.starts_with("body …/") && message.len() < 1500,
        "{message}"
    );
}

#[test]
fn names_of_models_are_those_of_the_entry() {
    let only = |models: &[&str]| ModelPermissions {
        models: models.iter().map(|&name| name.to_owned()).collect(),
        ..ModelPermissions::default()
    };
    let chat = |name: &str, permits: &ModelPermissions| {
        read(ModelApi::OpenAiChat, permits, &json!({ "model": name }))
    };
    for (models, name, passes) in [
        (&[][..], "gpt-5", true),
        (&[], "GPT-4o-Search-Preview", false),
        (&[], "sonar-pro", false),
        (&["gpt-5*"], "gpt-5.5", true),
        (&["gpt-5*"], "gpt-4o", false),
        (&["gpt-*"], "gpt-4o-search-preview", false),
        (&["gpt-4o-search-preview"], "gpt-4o-search-preview", true),
    ] {
        assert_eq!(
            chat(name, &only(models)).is_ok(),
            passes,
            "{models:?} {name}"
        );
    }
    // Where the name stands in the path.
    let mut rules = rules(ModelApi::Gemini);
    rules.permits.models = vec!["gemini-2.5-flash".to_owned()];
    let ask = |rules: &RequestRules, name: &str| {
        let path = format!("/v1beta/models/{name}:generateContent");
        judge_request(rules, request(&path, r#"{"contents":[]}"#.to_owned()))
    };
    assert!(ask(&rules, "gemini-2.5-flash").is_ok());
    assert!(
        ask(&rules, "gemini-2.5-pro")
            .unwrap_err()
            .message
            .contains("models")
    );
    rules.permits = ModelPermissions::default();
    assert!(
        ask(&rules, "deep-research-pro-preview")
            .unwrap_err()
            .message
            .contains("web-search")
    );
}

#[test]
fn betas_are_those_that_are_known() {
    let sent = "claude-code-20250219,effort-2025-11-24,extended-cache-ttl-2025-04-11,files-api-2025-04-14,\
        new-way-out-2027-01-01,fast-mode-2026-02-01,context-1m-2025-08-07,output-300k-2026-03-24";
    let passed = |permits: ModelPermissions| {
        let mut request = request("/v1/messages", r#"{"max_tokens":1}"#.to_owned());
        request
            .fields
            .push(("anthropic-beta".to_owned(), sent.to_owned()));
        request
            .fields
            .push(("openai-beta".to_owned(), "claude-code-1".to_owned()));
        let headers = judge_request(
            &RequestRules {
                permits,
                ..rules(ModelApi::Anthropic)
            },
            request,
        )
        .unwrap()
        .headers;
        assert!(!headers.contains_key("openai-beta"));
        headers["anthropic-beta"].to_str().unwrap().to_owned()
    };
    assert_eq!(
        passed(ModelPermissions::default()),
        "claude-code-20250219,effort-2025-11-24,extended-cache-ttl-2025-04-11"
    );
    assert_eq!(
        passed(ModelPermissions {
            betas: vec!["new-way-out-*".to_owned()],
            ..allowing(&[ModelAllow::Files, ModelAllow::ExtraCost])
        }),
        sent
    );
}

/// The rules of an entry that says nothing of requests but their interface.
fn rules(api: ModelApi) -> RequestRules {
    RequestRules {
        api,
        permits: ModelPermissions::default(),
        context_tokens: 2_000_000,
        max_tokens_default: 32_000,
    }
}

fn request(target: &str, body: String) -> ModelRequest {
    let fields = [("host", "localhost"), ("content-type", "application/json")];
    ModelRequest {
        method: "POST".to_owned(),
        target: target.to_owned(),
        fields: fields
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        body: body.into(),
    }
}

#[test]
fn what_is_reserved_is_never_less_than_what_the_model_reads() {
    let reserved = |rules: &RequestRules, content: Value| {
        let body =
            json!({ "max_tokens": 10, "messages": [{ "role": "user", "content": content }] })
                .to_string();
        let cost = judge_request(rules, request("/v1/messages", body))
            .unwrap()
            .cost;
        assert_eq!(cost.written, 10);
        cost.read
    };
    let rules = RequestRules {
        context_tokens: 100_000,
        ..rules(ModelApi::Anthropic)
    };
    // Each byte of dense text may be a token.
    for text in [
        "\u{1f98e}".repeat(1000),
        "7 ".repeat(2000),
        "\u{7}".repeat(1000),
    ] {
        assert!(reserved(&rules, json!(text)) >= text.len() as u64);
    }
    // A picture of a few bytes is thousands, one of many is no more; a document may be all that
    // fits.
    let inline = |media: &str, data: String| json!([{ "type": "image", "source": { "type": "base64", "media_type": media, "data": data } }]);
    let few = reserved(&rules, inline("image/png", "AA==".to_owned()));
    let many = reserved(&rules, inline("image/png", "A".repeat(1 << 20)));
    assert!(few >= 5_000 && few == many, "{few} {many}");
    assert_eq!(
        reserved(&rules, inline("application/pdf", "AA==".to_owned())),
        100_000
    );
    // More than the model reads it cannot cost.
    assert_eq!(reserved(&rules, json!("x".repeat(200_000))), 100_000);
}

#[test]
fn a_maximum_of_none_is_no_maximum() {
    let facts = read(
        ModelApi::OpenAiChat,
        &ModelPermissions::default(),
        &json!({ "max_tokens": 0 }),
    )
    .unwrap();
    assert_eq!(facts.maximum, None);
    for wrong in [
        json!({ "stream": "true" }),
        json!({ "stream": 1 }),
        json!({ "max_tokens": "9" }),
    ] {
        assert_eq!(
            refusal(ModelApi::OpenAiChat, &wrong).status,
            StatusCode::BAD_REQUEST
        );
    }
}

#[test]
fn schemas_refer_to_nothing_outside() {
    let with = |schema: Value| json!({ "tools": [{ "name": "t", "input_schema": schema }] });
    for schema in [
        json!({ "$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://x.example/own", "$ref": "#/$defs/a" }),
        json!({ "properties": { "$ref": { "type": "string" }, "url": {}, "URL": {} } }),
    ] {
        read(
            ModelApi::Anthropic,
            &ModelPermissions::default(),
            &with(schema),
        )
        .unwrap();
    }
    for schema in [
        json!({ "$ref": "https://evil.example" }),
        json!({ "items": { "$dynamicRef": "other.json#x" } }),
        json!({ "items": { "$id": "https://evil.example", "$ref": "#/a" } }),
    ] {
        assert!(
            refusal(ModelApi::Anthropic, &with(schema))
                .message
                .contains("urls")
        );
    }
}

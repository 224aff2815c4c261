//! The interfaces of models: what is asked, and what an answer that is there whole says.

use anyhow::bail;
use serde_json::{Value, json};

/// The most tokens that a call can have cost: a provider that tells of more tells nothing.
const MAX_TOKENS: u64 = 1 << 32;

/// The interface of a model; the names are those of an agent's `model.api`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Api {
    /// Messages of Anthropic
    Anthropic,
    /// Responses of OpenAI
    #[value(name = "openai-responses")]
    Responses,
    /// Chat completions, as most other servers have them
    #[value(name = "openai-chat")]
    Chat,
    /// generateContent of Gemini
    Gemini,
}

/// The question to a model.
pub(super) struct ModelQuestion<'a> {
    pub(super) model: &'a str,
    pub(super) context: &'a str,
    /// Tokens that it may write at most.
    pub(super) max_tokens: u64,
    pub(super) temperature: f64,
}

/// The answer of a model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModelAnswer {
    pub(super) model: Option<String>,
    /// Tokens that it read, from a cache or not, and that it wrote, thoughts among them.
    pub(super) tokens_in: u64,
    pub(super) tokens_out: u64,
    /// Those of `tokens_in` that came from the provider's cache, and that went to it.
    pub(super) tokens_cached: u64,
    pub(super) tokens_cache_write: u64,
    /// The reason for which it stopped, in its own word.
    pub(super) stop_reason: String,
    pub(super) completion: String,
}

impl Api {
    /// As the command line has it.
    pub(super) fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Path and body of a request.
    ///
    /// # Errors
    /// The model's name cannot stand in a path of this interface.
    pub(super) fn request(self, asked: &ModelQuestion<'_>) -> anyhow::Result<(String, Value)> {
        let (model, context, most, temperature) = (
            asked.model,
            asked.context,
            asked.max_tokens,
            asked.temperature,
        );
        let messages = json!([{ "role": "user", "content": context }]);
        Ok(match self {
            Api::Anthropic => (
                "/v1/messages".to_owned(),
                json!({ "model": model, "max_tokens": most, "temperature": temperature, "messages": messages }),
            ),
            Api::Responses => (
                "/v1/responses".to_owned(),
                json!({ "model": model, "max_output_tokens": most, "temperature": temperature, "input": messages, "store": false }),
            ),
            Api::Chat => (
                "/v1/chat/completions".to_owned(),
                json!({ "model": model, "max_tokens": most, "temperature": temperature, "messages": messages }),
            ),
            Api::Gemini => {
                let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
                if !model.bytes().all(legal) || model.starts_with('.') {
                    bail!("a model of this interface has a name of letters, digits, -, _ and .");
                }
                (
                    format!("/v1beta/models/{model}:generateContent"),
                    json!({ "contents": [{ "role": "user", "parts": [{ "text": context }] }],
                            "generationConfig": { "maxOutputTokens": most, "temperature": temperature } }),
                )
            }
        })
    }

    /// The header fields of every request: who asks, and which version of the interface is meant.
    pub(super) fn fields(self, key: Option<&str>) -> Vec<(&'static str, String)> {
        let mut fields = match (self, key) {
            (_, None) => Vec::new(),
            (Api::Anthropic, Some(key)) => vec![("x-api-key", key.to_owned())],
            (Api::Gemini, Some(key)) => vec![("x-goog-api-key", key.to_owned())],
            (Api::Responses | Api::Chat, Some(key)) => {
                vec![("authorization", format!("Bearer {key}"))]
            }
        };
        if self == Api::Anthropic {
            fields.push(("anthropic-version", "2023-06-01".to_owned()));
        }
        fields
    }

    /// Reads an answer. `None`: it is none of this interface, or does not say what it cost, or what
    /// nothing can cost.
    pub(super) fn read(self, answer: &Value) -> Option<ModelAnswer> {
        let mut said = self.told(answer)?;
        // More than was read is in no cache.
        said.tokens_cached = said.tokens_cached.min(said.tokens_in);
        said.tokens_cache_write = said
            .tokens_cache_write
            .min(said.tokens_in - said.tokens_cached);
        (said.tokens_in <= MAX_TOKENS && said.tokens_out <= MAX_TOKENS).then_some(said)
    }

    fn told(self, answer: &Value) -> Option<ModelAnswer> {
        let number = |at: &str| answer.pointer(at).and_then(Value::as_u64);
        let optional = |at: &str| number(at).unwrap_or(0);
        let text = |at: &str| {
            answer
                .pointer(at)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let list = |at: &str| {
            answer
                .pointer(at)
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice)
        };
        // The texts of the parts of one kind, joined: models cut where they like.
        let joined = |parts: &[Value], kind: Option<&str>| -> String {
            let wanted = parts.iter().filter(|part| {
                kind.is_none_or(|kind| part["type"] == kind) && part["thought"] != true
            });
            wanted.filter_map(|part| part["text"].as_str()).collect()
        };
        Some(match self {
            Api::Anthropic => ModelAnswer {
                model: text("/model"),
                tokens_in: number("/usage/input_tokens")?
                    .saturating_add(optional("/usage/cache_creation_input_tokens"))
                    .saturating_add(optional("/usage/cache_read_input_tokens")),
                tokens_out: number("/usage/output_tokens")?,
                tokens_cached: optional("/usage/cache_read_input_tokens"),
                tokens_cache_write: optional("/usage/cache_creation_input_tokens"),
                stop_reason: text("/stop_reason")?,
                completion: joined(answer.get("content")?.as_array()?, Some("text")),
            },
            Api::Responses => {
                let messages = answer
                    .get("output")?
                    .as_array()?
                    .iter()
                    .filter(|item| item["type"] == "message");
                let texts = messages.filter_map(|item| item["content"].as_array());
                ModelAnswer {
                    model: text("/model"),
                    tokens_in: number("/usage/input_tokens")?,
                    tokens_out: number("/usage/output_tokens")?,
                    tokens_cached: optional("/usage/input_tokens_details/cached_tokens"),
                    tokens_cache_write: optional("/usage/input_tokens_details/cache_write_tokens"),
                    stop_reason: text("/incomplete_details/reason").or_else(|| text("/status"))?,
                    completion: texts
                        .map(|parts| joined(parts, Some("output_text")))
                        .collect(),
                }
            }
            Api::Chat => ModelAnswer {
                model: text("/model"),
                tokens_in: number("/usage/prompt_tokens")?,
                tokens_out: number("/usage/completion_tokens")?,
                tokens_cached: optional("/usage/prompt_tokens_details/cached_tokens"),
                // Gateways have it that count the writes of other interfaces in this one.
                tokens_cache_write: optional("/usage/prompt_tokens_details/cache_write_tokens"),
                stop_reason: text("/choices/0/finish_reason")?,
                completion: text("/choices/0/message/content").unwrap_or_default(),
            },
            Api::Gemini => ModelAnswer {
                model: text("/modelVersion"),
                tokens_in: number("/usageMetadata/promptTokenCount")?,
                tokens_out: optional("/usageMetadata/candidatesTokenCount")
                    .saturating_add(optional("/usageMetadata/thoughtsTokenCount")),
                tokens_cached: optional("/usageMetadata/cachedContentTokenCount"),
                // What is put there is a request of its own.
                tokens_cache_write: 0,
                // A prompt that is refused has no candidate.
                stop_reason: text("/candidates/0/finishReason")
                    .or_else(|| text("/promptFeedback/blockReason"))?,
                completion: joined(list("/candidates/0/content/parts"), None),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Api; 4] = [Api::Anthropic, Api::Responses, Api::Chat, Api::Gemini];

    #[test]
    fn an_answer_of_each_interface_says_the_same() {
        let answers = [
            json!({ "type": "message", "model": "m-1", "stop_reason": "end_turn",
                "content": [{ "type": "thinking", "thinking": "hm" }, { "type": "text", "text": "a" }, { "type": "text", "text": "b" }],
                "usage": { "input_tokens": 4, "cache_creation_input_tokens": 3, "cache_read_input_tokens": null, "output_tokens": 5 } }),
            json!({ "status": "completed", "incomplete_details": null, "model": "m-1",
                "output": [{ "type": "reasoning", "content": [{ "type": "reasoning_text", "text": "hm" }] },
                    { "type": "message", "content": [{ "type": "output_text", "text": "ab" }, { "type": "refusal" }] }],
                "usage": { "input_tokens": 7, "output_tokens": 5 } }),
            json!({ "model": "m-1", "choices": [{ "finish_reason": "stop", "message": { "content": "ab" } }],
                "usage": { "prompt_tokens": 7, "completion_tokens": 5 } }),
            json!({ "modelVersion": "m-1", "candidates": [{ "finishReason": "STOP",
                "content": { "parts": [{ "text": "hm", "thought": true }, { "text": "a" }, { "text": "b" }] } }],
                "usageMetadata": { "promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": 3 } }),
        ];
        for ((api, answer), stop) in
            ALL.into_iter()
                .zip(answers)
                .zip(["end_turn", "completed", "stop", "STOP"])
        {
            let expected = ModelAnswer {
                model: Some("m-1".to_owned()),
                tokens_in: 7,
                tokens_out: 5,
                tokens_cached: 0,
                tokens_cache_write: if api == Api::Anthropic { 3 } else { 0 },
                stop_reason: stop.to_owned(),
                completion: "ab".to_owned(),
            };
            assert_eq!(api.read(&answer), Some(expected), "{api:?}");
        }
    }

    #[test]
    fn cached_tokens_are_a_part_of_those_that_were_read() {
        let of = |api: Api, usage: Value| {
            let answer = json!({ "type": "message", "status": "completed", "stop_reason": "end_turn", "content": [],
                "output": [], "choices": [{ "finish_reason": "stop" }], "candidates": [{ "finishReason": "STOP" }],
                "usage": usage, "usageMetadata": usage });
            let said = api.read(&answer).unwrap();
            (said.tokens_in, said.tokens_cached, said.tokens_cache_write)
        };
        // As the providers' own pages show them.
        let anthropic = json!({ "input_tokens": 50, "cache_creation_input_tokens": 248, "cache_read_input_tokens": 1800,
            "cache_creation": { "ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100 }, "output_tokens": 503 });
        assert_eq!(of(Api::Anthropic, anthropic), (2098, 1800, 248));
        let responses = json!({ "input_tokens": 125, "input_tokens_details": { "cached_tokens": 98 }, "output_tokens": 48,
            "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 173 });
        assert_eq!(of(Api::Responses, responses), (125, 98, 0));
        let chat = json!({ "prompt_tokens": 10339, "completion_tokens": 60, "total_tokens": 10399,
            "prompt_tokens_details": { "cached_tokens": 10318, "cache_write_tokens": 20, "audio_tokens": 0 } });
        assert_eq!(of(Api::Chat, chat), (10339, 10318, 20));
        let gemini = json!({ "promptTokenCount": 696219, "cachedContentTokenCount": 696190, "candidatesTokenCount": 214,
            "totalTokenCount": 696433 });
        assert_eq!(of(Api::Gemini, gemini), (696_219, 696_190, 0));
        // One that tells more of its cache than it read.
        let odd = json!({ "prompt_tokens": 7, "completion_tokens": 1,
            "prompt_tokens_details": { "cached_tokens": 99, "cache_write_tokens": 99 } });
        assert_eq!(of(Api::Chat, odd), (7, 7, 0));
        let none =
            json!({ "prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": null });
        assert_eq!(of(Api::Chat, none), (7, 0, 0));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for api in ALL {
            for odd in [
                json!(null),
                json!([]),
                json!("text"),
                json!({}),
                json!({ "usage": { "input_tokens": -1, "output_tokens": "5" } }),
                json!({ "content": {}, "output": {}, "choices": {}, "candidates": {}, "usage": [], "usageMetadata": 7 }),
                json!({ "stop_reason": 7, "status": 7, "usage": { "input_tokens": 1, "output_tokens": 1 }, "content": [7], "output": [7] }),
            ] {
                assert_eq!(api.read(&odd), None, "{api:?} {odd}");
            }
        }
    }

    #[test]
    fn no_model_leads_to_another_path() {
        let asked = |model| ModelQuestion {
            model,
            context: "x",
            max_tokens: 5,
            temperature: 0.0,
        };
        assert_eq!(
            Api::Gemini.request(&asked("gemini-2.5-pro")).unwrap().0,
            "/v1beta/models/gemini-2.5-pro:generateContent"
        );
        for odd in ["../x", "a/b", "a?b", "..", "a:b", "ä", "a b", "%2e"] {
            assert!(Api::Gemini.request(&asked(odd)).is_err(), "{odd}");
            assert!(
                !Api::Chat.request(&asked(odd)).unwrap().0.contains(odd),
                "{odd}"
            );
        }
    }
}

//! The number of tokens that an answer cost, from its last usage member, read while it passes.

use std::collections::VecDeque;

use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;

use crate::rules::ModelApi;
use colibri_http::sse::{Parser, SseEvent, TooLong};

/// The most bytes of an event, or of an answer that is no stream, of which the usage is read.
const MAX_READ: usize = 16 << 20;

/// Tokens in and out. Interfaces name cached tokens differently, and only Anthropic's counts them
/// beside the others: here they are part of what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenCounts {
    /// The tokens that the model read.
    pub read: u64,
    /// The tokens that it wrote.
    pub written: u64,
    /// Those of `read` that came from the provider's cache.
    pub cached: u64,
    /// Those of `read` that went to the provider's cache.
    pub cache_write: u64,
}

impl TokenCounts {
    /// Both.
    pub fn sum(self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

/// Reads the usage of one answer.
pub struct Meter {
    api: ModelApi,
    form: UsageForm,
    read: Option<u64>,
    written: Option<u64>,
    cached: u64,
    cache_write: u64,
    /// The answer said that it is over.
    over: bool,
}

/// The bytes in the name of every usage member, whatever the interface calls it.
const USAGE: &[u8] = b"sage";
/// The end of a stream of [`ModelApi::OpenAiChat`].
const DONE: &[u8] = b"[DONE]";
/// The most bytes without an event's end that are kept before the parser reads them.
const MAX_KEPT: usize = 64 * 1024;

/// The events of a stream that can have a usage: most are a few words of text, and those are never
/// parsed.
struct UsageEvents {
    parser: Parser,
    /// The bytes since the last event's end, if the parser has not read them.
    kept: Vec<u8>,
}

impl UsageEvents {
    fn new() -> UsageEvents {
        UsageEvents {
            parser: Parser::new(MAX_READ),
            kept: Vec::new(),
        }
    }

    fn feed(&mut self, part: &[u8]) -> Result<VecDeque<SseEvent>, TooLong> {
        let mut events = VecDeque::new();
        // In the midst of an event that was too long to be kept.
        if self.parser.held() > 0 {
            self.parser.feed(part, &mut events)?;
            return Ok(events);
        }
        let seen = self.kept.len().saturating_sub(3);
        self.kept.extend_from_slice(part);
        let new = &self.kept[seen..];
        let ends =
            [&b"\n\n"[..], b"\r\n\r\n"].map(|end| Some(memmem::rfind(new, end)? + end.len()));
        match ends.into_iter().flatten().max() {
            Some(end) => {
                let whole = &self.kept[..seen + end];
                if [USAGE, DONE]
                    .iter()
                    .any(|word| memmem::find(whole, word).is_some())
                {
                    self.parser.feed(whole, &mut events)?;
                }
                self.kept.drain(..seen + end);
            }
            None if self.kept.len() > MAX_KEPT => {
                self.parser.feed(&self.kept, &mut events)?;
                self.kept = Vec::new();
            }
            None => {}
        }
        Ok(events)
    }
}

enum UsageForm {
    Events(Box<UsageEvents>),
    Whole(Vec<u8>),
    /// Too long to be read.
    Unread,
}

impl Meter {
    /// Of an answer of this interface; `events`: it is a stream of events.
    pub fn new(api: ModelApi, events: bool) -> Meter {
        Meter {
            api,
            form: match events {
                true => UsageForm::Events(Box::new(UsageEvents::new())),
                false => UsageForm::Whole(Vec::new()),
            },
            read: None,
            written: None,
            cached: 0,
            cache_write: 0,
            over: false,
        }
    }

    /// Reads the next part.
    pub fn feed(&mut self, part: &[u8]) {
        match &mut self.form {
            UsageForm::Events(events) => match events.feed(part) {
                Ok(events) => events.iter().for_each(|event| self.event(event)),
                Err(TooLong) => self.form = UsageForm::Unread,
            },
            UsageForm::Whole(whole) if whole.len() + part.len() > MAX_READ => {
                self.form = UsageForm::Unread
            }
            UsageForm::Whole(whole) => whole.extend_from_slice(part),
            UsageForm::Unread => {}
        }
    }

    /// The tokens that the model read, where the answer said so already, at its beginning or in its
    /// midst.
    pub fn read_so_far(&self) -> Option<u64> {
        self.read
    }

    /// The cost of the answer; `None` if it did not come to its end, or does not say. `ended`: all
    /// of it came.
    pub fn end(mut self, ended: bool) -> Option<TokenCounts> {
        if matches!(self.form, UsageForm::Unread) {
            return None;
        }
        if let UsageForm::Whole(whole) = std::mem::replace(&mut self.form, UsageForm::Unread)
            && ended
        {
            self.message(&whole);
        }
        let read = self.read?;
        let cached = self.cached.min(read);
        let tokens = TokenCounts {
            read,
            written: self.written?,
            cached,
            cache_write: self.cache_write.min(read - cached),
        };
        (ended || self.over).then_some(tokens)
    }

    fn event(&mut self, event: &SseEvent) {
        let is_end = match self.api {
            ModelApi::OpenAiChat => event.data == DONE,
            _ => false,
        };
        self.over |= is_end;
        if memmem::find(&event.data, USAGE).is_some() {
            self.message(&event.data);
        }
    }

    fn message(&mut self, text: &[u8]) {
        match self.api {
            ModelApi::Anthropic => self.anthropic(text),
            ModelApi::OpenAiResponses => self.responses(text),
            ModelApi::OpenAiChat => self.chat(text),
            ModelApi::Gemini => self.gemini(text),
        }
    }

    fn anthropic(&mut self, text: &[u8]) {
        #[derive(Deserialize)]
        struct Message {
            #[serde(default)]
            r#type: String,
            message: Option<Inner>,
            usage: Option<Usage>,
        }
        #[derive(Deserialize)]
        struct Inner {
            usage: Option<Usage>,
        }
        #[derive(Deserialize)]
        struct Usage {
            input_tokens: Option<u64>,
            cache_creation_input_tokens: Option<u64>,
            cache_read_input_tokens: Option<u64>,
            output_tokens: Option<u64>,
        }
        let Ok(message) = serde_json::from_slice::<Message>(text) else {
            return;
        };
        let begins = message.r#type == "message_start";
        let usage = match message.r#type.as_str() {
            "message_start" => message.message.and_then(|inner| inner.usage),
            "message_delta" | "message" => message.usage,
            "message_stop" => {
                self.over = true;
                None
            }
            _ => None,
        };
        let Some(usage) = usage else { return };
        let parts = [
            usage.input_tokens,
            usage.cache_creation_input_tokens,
            usage.cache_read_input_tokens,
        ];
        if parts.iter().any(Option::is_some) {
            let sum = parts.into_iter().flatten().fold(0, u64::saturating_add);
            // Of those who tell it twice some tell nothing at the beginning.
            self.read = Some(self.read.unwrap_or(0).max(sum));
            self.cached = self.cached.max(usage.cache_read_input_tokens.unwrap_or(0));
            self.cache_write = self
                .cache_write
                .max(usage.cache_creation_input_tokens.unwrap_or(0));
        }
        // What the beginning says is a word or two: the last one counts, which stands at the end.
        if !begins {
            self.written = usage.output_tokens.or(self.written);
        }
    }

    fn responses(&mut self, text: &[u8]) {
        #[derive(Deserialize)]
        struct Message {
            r#type: Option<String>,
            response: Option<Inner>,
            usage: Option<Usage>,
        }
        #[derive(Deserialize)]
        struct Inner {
            usage: Option<Usage>,
        }
        #[derive(Deserialize)]
        struct Usage {
            input_tokens: u64,
            output_tokens: u64,
            #[serde(default)]
            input_tokens_details: Value,
        }
        let Ok(message) = serde_json::from_slice::<Message>(text) else {
            return;
        };
        let usage = match message.r#type.as_deref() {
            None => message.usage,
            Some("response.completed" | "response.incomplete" | "response.failed") => {
                self.over = true;
                message.response.and_then(|inner| inner.usage)
            }
            Some(_) => None,
        };
        if let Some(usage) = usage {
            (self.read, self.written) = (Some(usage.input_tokens), Some(usage.output_tokens));
            (self.cached, self.cache_write) = cached_of(&usage.input_tokens_details);
        }
    }

    fn chat(&mut self, text: &[u8]) {
        #[derive(Deserialize)]
        struct Message {
            usage: Option<Usage>,
        }
        #[derive(Deserialize)]
        struct Usage {
            prompt_tokens: u64,
            completion_tokens: u64,
            #[serde(default)]
            prompt_tokens_details: Value,
        }
        if let Ok(Message { usage: Some(usage) }) = serde_json::from_slice(text) {
            (self.read, self.written) = (Some(usage.prompt_tokens), Some(usage.completion_tokens));
            (self.cached, self.cache_write) = cached_of(&usage.prompt_tokens_details);
        }
    }

    fn gemini(&mut self, text: &[u8]) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Message {
            usage_metadata: Option<Usage>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Usage {
            prompt_token_count: Option<u64>,
            cached_content_token_count: Option<u64>,
            candidates_token_count: Option<u64>,
            thoughts_token_count: Option<u64>,
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Messages {
            One(Message),
            Many(Vec<Message>),
        }
        let Ok(messages) = serde_json::from_slice(text) else {
            return;
        };
        let messages = match messages {
            Messages::One(message) => vec![message],
            Messages::Many(messages) => messages,
        };
        for usage in messages
            .into_iter()
            .filter_map(|message| message.usage_metadata)
        {
            self.read = usage.prompt_token_count.or(self.read);
            self.cached = usage.cached_content_token_count.unwrap_or(self.cached);
            let written = [usage.candidates_token_count, usage.thoughts_token_count];
            self.written = Some(written.into_iter().flatten().fold(0, u64::saturating_add));
        }
    }
}

/// The tokens in the details of OpenAI's interfaces that came from a cache, and that went to one,
/// which gateways add to count the writes of other interfaces. Whatever else stands there, the
/// tokens beside it count.
fn cached_of(details: &Value) -> (u64, u64) {
    let number = |key: &str| details.get(key).and_then(Value::as_u64).unwrap_or(0);
    (number("cached_tokens"), number("cache_write_tokens"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cached tokens of an answer: read from the provider's cache, written to it.
    fn cached(api: ModelApi, answer: &str) -> (u64, u64, u64) {
        let mut meter = Meter::new(api, answer.contains("data:"));
        meter.feed(answer.as_bytes());
        let tokens = meter.end(true).unwrap();
        (tokens.read, tokens.cached, tokens.cache_write)
    }

    #[test]
    fn cached_tokens_are_part_of_what_was_read() {
        use ModelApi::{Anthropic, Gemini, OpenAiChat, OpenAiResponses};
        let begins = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\
            \"cache_creation_input_tokens\":5,\"cache_read_input_tokens\":100,\"output_tokens\":1}}}\n\n\
            data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n";
        assert_eq!(cached(Anthropic, begins), (115, 100, 5));
        // The streams of the others, with their usage at the end, as the providers send it.
        let responses = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\
            \"completed\",\"usage\":{\"input_tokens\":125,\"input_tokens_details\":{\"cached_tokens\":98},\
            \"output_tokens\":48,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":173}}}\n\n";
        assert_eq!(cached(OpenAiResponses, responses), (125, 98, 0));
        let chat = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10339,\"completion_tokens\":60,\"prompt_tokens_details\":\
            {\"cached_tokens\":10000,\"cache_write_tokens\":200,\"audio_tokens\":0}}}\n\ndata: [DONE]\n\n";
        assert_eq!(cached(OpenAiChat, chat), (10339, 10000, 200));
        let gemini = "data: {\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":900,\"cachedContentTokenCount\":\
            800,\"totalTokenCount\":900}}\n\ndata: {\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":900,\
            \"cachedContentTokenCount\":800,\"candidatesTokenCount\":4,\"thoughtsTokenCount\":5}}\n\n";
        assert_eq!(cached(Gemini, gemini), (900, 800, 0));
        for (api, answer, expected) in [
            (
                OpenAiResponses,
                r#"{"usage":{"input_tokens":7,"output_tokens":8,"input_tokens_details":{"cached_tokens":6}}}"#,
                (7, 6, 0),
            ),
            (
                OpenAiChat,
                r#"{"usage":{"prompt_tokens":7,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":4}}}"#,
                (7, 4, 0),
            ),
            // What is odd about the details is no reason to count nothing; more than was read is
            // not cached.
            (
                OpenAiChat,
                r#"{"usage":{"prompt_tokens":7,"completion_tokens":8,"prompt_tokens_details":"?"}}"#,
                (7, 0, 0),
            ),
            (
                OpenAiChat,
                r#"{"usage":{"prompt_tokens":7,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":99}}}"#,
                (7, 7, 0),
            ),
            (
                Gemini,
                r#"{"usageMetadata":{"promptTokenCount":7,"cachedContentTokenCount":5,"candidatesTokenCount":8}}"#,
                (7, 5, 0),
            ),
        ] {
            assert_eq!(cached(api, answer), expected, "{answer}");
        }
    }

    /// The tokens of a stream that ended, and of one that was broken off.
    fn counted(api: ModelApi, stream: &str) -> [Option<(u64, u64)>; 2] {
        [true, false].map(|ended| {
            let events = stream.contains("data:");
            let mut meter = Meter::new(api, events);
            stream
                .as_bytes()
                .chunks(7)
                .for_each(|part| meter.feed(part));
            meter.end(ended).map(|tokens| (tokens.read, tokens.written))
        })
    }

    #[test]
    fn the_last_usage_counts() {
        let anthropic = "event: message_start\n\
            data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"cache_creation_input_tokens\":5,\
            \"cache_read_input_tokens\":100,\"output_tokens\":1}}}\n\n\
            data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"usage\"},\"usage\":{\"output_tokens\":900}}\n\n\
            data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n\
            data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":42}}\n\n";
        assert_eq!(
            counted(ModelApi::Anthropic, anthropic),
            [Some((115, 42)), None]
        );
        let begun = &anthropic[..anthropic.find("data: {\"type\":\"message_delta").unwrap()];
        assert_eq!(counted(ModelApi::Anthropic, begun), [None, None]);
        let whole = r#"{"type":"message","usage":{"input_tokens":3,"cache_read_input_tokens":null,"output_tokens":4}}"#;
        assert_eq!(counted(ModelApi::Anthropic, whole), [Some((3, 4)), None]);

        let responses = "data: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n\
            data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":8,\
            \"input_tokens_details\":{\"cached_tokens\":6}}}}\n\n";
        assert_eq!(
            counted(ModelApi::OpenAiResponses, responses),
            [Some((7, 8)); 2]
        );

        let chat = "data: {\"usage\":null,\"choices\":[]}\n\n\
            data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":8},\"choices\":[]}\n\n";
        assert_eq!(counted(ModelApi::OpenAiChat, chat), [Some((7, 8)), None]);
        let done = format!("{chat}data: [DONE]\n\n");
        assert_eq!(counted(ModelApi::OpenAiChat, &done), [Some((7, 8)); 2]);

        let gemini = "data: {\"usageMetadata\":{\"promptTokenCount\":7,\"totalTokenCount\":7}}\r\n\r\n\
            data: {\"usageMetadata\":{\"promptTokenCount\":7,\"candidatesTokenCount\":8,\"thoughtsTokenCount\":9}}\r\n\r\n";
        assert_eq!(counted(ModelApi::Gemini, gemini), [Some((7, 17)), None]);
        let list = r#"[{"usageMetadata":{"promptTokenCount":1}},{"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":8}}]"#;
        assert_eq!(counted(ModelApi::Gemini, list), [Some((7, 8)), None]);
    }

    #[test]
    fn a_usage_is_found_wherever_it_stands_in_a_stream_and_however_that_comes() {
        let word = "data: {\"choices\":[\"word\"]}\n\n";
        let usage = "data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":8}}\n\n";
        let long = format!("data: {{\"choices\":[\"{}\"],", "x".repeat(3 * MAX_KEPT));
        let long_usage = format!("{long}{}", &usage["data: {".len()..]);
        let returns = |text: &str, end: &str| text.replace('\n', end);
        for stream in [
            format!("{word}{usage}{word}"),
            format!("\u{feff}{usage}{}", word.repeat(9)),
            format!("{word}{long}}}\n\n{usage}{word}"),
            format!("{word}{long_usage}{word}"),
            returns(&format!("{word}{usage}{word}"), "\r\n"),
            returns(&format!("{word}{long_usage}{word}"), "\r"),
            format!("{}{usage}", returns(&word.repeat(9), "\r")),
        ] {
            for length in [1, 2, 3, 5, 64, 4096, stream.len()] {
                let mut meter = Meter::new(ModelApi::OpenAiChat, true);
                let stream = format!("{stream}data: [DONE]\n\n");
                stream
                    .as_bytes()
                    .chunks(length)
                    .for_each(|part| meter.feed(part));
                let tokens = meter.end(false).map(|tokens| (tokens.read, tokens.written));
                assert_eq!(tokens, Some((7, 8)), "{length}: {:.80}", stream);
            }
        }
    }

    #[test]
    fn an_answer_without_a_usage_has_no_count() {
        for api in ModelApi::ALL {
            for answer in [
                "",
                "{}",
                "data: {}\n\n",
                "data: [DONE]\n\n",
                r#"{"usage":{"input_tokens":1.5}}"#,
                r#"{"usage":{"output_tokens":-1}}"#,
            ] {
                assert_eq!(counted(api, answer), [None, None], "{answer}");
            }
        }
    }

    #[test]
    fn what_is_too_long_is_not_read() {
        let mut meter = Meter::new(ModelApi::OpenAiChat, false);
        for _ in 0..=MAX_READ / (1 << 20) {
            meter.feed(&vec![b' '; 1 << 20]);
        }
        meter.feed(br#"{"usage":{"prompt_tokens":1,"completion_tokens":1}}"#);
        assert_eq!(meter.end(true), None);
    }
}

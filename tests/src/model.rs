//! A scripted model on loopback that speaks four interfaces, streamed and whole, counts its own
//! tokens, and misbehaves where a test says so.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::remote::{Port, Request, answer};

/// What it does instead of answering as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing else.
    #[default]
    None,
    /// Sends the client elsewhere.
    Redirect,
    /// Changes to another protocol.
    Upgrade,
    /// Compresses what was asked for as it is.
    Encoded,
    /// Breaks a stream off after this many events.
    BreaksOff(usize),
    /// Never ends.
    Endless,
    /// Repeats all header fields that it got, in its own and in its body, and sets a cookie.
    Echo,
    /// Has no time.
    Busy,
    /// Forgets to say what it cost.
    Uncounted,
}

/// Tokens as the model counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Read, from a cache or not.
    pub read: u64,
    /// Written, thoughts among them.
    pub written: u64,
    /// Those of the read ones that came from a cache.
    pub cached: u64,
    /// Those of the read ones that went to a cache, where the interface says so.
    pub kept: u64,
}

impl Counted {
    /// True if a row of `colibri/costs` has these tokens, and so many requests.
    ///
    /// # Panics
    /// If a figure is not in the row.
    pub fn is_in(&self, row: &Value, requests: u64) -> bool {
        let figures = [
            "tokens_in",
            "tokens_out",
            "tokens_cached",
            "tokens_cache_write",
            "model_requests",
        ];
        let figures = figures.map(|figure| row[figure].as_u64().expect("a figure"));
        figures == [self.read, self.written, self.cached, self.kept, requests]
    }
}

#[derive(Default)]
struct State {
    fault: Fault,
    counted: Counted,
    seen: Vec<Request>,
    sent: Vec<String>,
}

/// The model. It calls the first tool that it is offered, once, and then says some words.
pub struct ScriptedModel {
    /// Where it listens.
    pub port: Port,
    state: Arc<Mutex<State>>,
}

impl ScriptedModel {
    /// # Panics
    /// If there is no port.
    #[expect(clippy::new_without_default, reason = "a model is made on purpose")]
    pub fn new() -> ScriptedModel {
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = state.clone();
        let port = Port::answering(move |request, stream| serve(&shared, request, stream));
        ScriptedModel { port, state }
    }

    /// The key `model` of an agent's entry, with further keys.
    ///
    /// # Panics
    /// If `more` is no object.
    pub fn entry(&self, api: &str, more: Value) -> Value {
        let entry = json!({ "api": api, "headers": { "x-api-key": { "secret": "model" } } });
        let mut entry = self.port.entry("", entry);
        let keys = entry.as_object_mut().expect("an object");
        keys.extend(more.as_object().expect("an object").clone());
        entry
    }

    /// From now on it misbehaves so.
    pub fn fault(&self, fault: Fault) {
        lock(&self.state).fault = fault;
    }

    /// What all its answers cost.
    pub fn counted(&self) -> Counted {
        lock(&self.state).counted
    }

    /// How many requests it got.
    pub fn requests(&self) -> usize {
        lock(&self.state).seen.len()
    }

    /// What it got last, looked at.
    ///
    /// # Panics
    /// If it got nothing.
    pub fn last<T>(&self, look: impl FnOnce(&Request) -> T) -> T {
        look(lock(&self.state).seen.last().expect("a request"))
    }

    /// The body of the last answer, as it was sent.
    pub fn sent(&self) -> String {
        lock(&self.state).sent.last().cloned().unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is to be said, in an interface's own shape.
struct Say {
    /// The first tool that is offered, if it was not called yet.
    tool: Option<String>,
    words: Vec<&'static str>,
    /// Tokens read, of which so many came from a cache and so many went into it.
    read: u64,
    cached: u64,
    kept: u64,
    written: u64,
    thoughts: u64,
}

impl Say {
    fn to(request: &Request) -> Say {
        let text = &request.text;
        let is_answered = [
            "tool_result",
            "function_call_output",
            "\"tool\"",
            "functionResponse",
        ]
        .iter()
        .any(|word| text.contains(word));
        let tools = &request.body["tools"];
        let names = [
            &tools[0]["name"],
            &tools[0]["function"]["name"],
            &tools[0]["functionDeclarations"][0]["name"],
        ];
        let tool = names
            .iter()
            .find_map(|name| name.as_str())
            .map(str::to_owned);
        let read = text.len() as u64 / 5 + 1;
        Say {
            tool: tool.filter(|_| !is_answered),
            words: vec![
                "It ",
                "was a dark ",
                "and stormy night; ",
                "the usage of tokens was great.",
            ],
            read,
            cached: read / 3,
            kept: read / 7,
            written: 23 + text.len() as u64 % 11,
            thoughts: 4,
        }
    }

    fn anthropic(&self) -> Vec<Value> {
        let (id, fresh) = ("msg_1", self.read - self.cached - self.kept);
        let begin = json!({ "type": "message_start", "message": { "id": id, "type": "message", "role": "assistant",
            "model": "m", "content": [], "usage": { "input_tokens": fresh, "cache_creation_input_tokens": self.kept,
            "cache_read_input_tokens": self.cached, "output_tokens": 1 } } });
        let (block, deltas) = match &self.tool {
            Some(tool) => (
                json!({ "type": "tool_use", "id": "toolu_1", "name": tool, "input": {} }),
                vec![json!({ "type": "input_json_delta", "partial_json": "{}" })],
            ),
            None => (
                json!({ "type": "text", "text": "" }),
                self.words
                    .iter()
                    .map(|word| json!({ "type": "text_delta", "text": word }))
                    .collect(),
            ),
        };
        let mut events = vec![
            begin,
            json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        ];
        events.extend(
            deltas
                .into_iter()
                .map(|delta| json!({ "type": "content_block_delta", "index": 0, "delta": delta })),
        );
        let reason = if self.tool.is_some() {
            "tool_use"
        } else {
            "end_turn"
        };
        let written = self.written + self.thoughts;
        // Cumulative: the last one counts.
        for so_far in [written / 2, written] {
            events.push(
                json!({ "type": "message_delta", "delta": { "stop_reason": reason },
                "usage": { "output_tokens": so_far } }),
            );
        }
        events.push(json!({ "type": "message_stop" }));
        events
    }

    fn responses(&self) -> Vec<Value> {
        let item = match &self.tool {
            Some(tool) => {
                json!({ "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool, "arguments": "{}" })
            }
            None => json!({ "type": "message", "id": "msg_1", "role": "assistant",
                "content": [{ "type": "output_text", "text": self.words.concat(), "annotations": [] }] }),
        };
        let mut events = vec![
            json!({ "type": "response.created", "response": { "id": "resp_1", "usage": null } }),
        ];
        events.extend(
            self.words
                .iter()
                .map(|word| json!({ "type": "response.output_text.delta", "delta": word })),
        );
        events
            .push(json!({ "type": "response.output_item.done", "output_index": 0, "item": item }));
        events.push(json!({ "type": "response.completed", "response": self.response(&item) }));
        events
    }

    fn response(&self, item: &Value) -> Value {
        let usage = json!({ "input_tokens": self.read, "input_tokens_details": { "cached_tokens": self.cached },
            "output_tokens": self.written + self.thoughts, "output_tokens_details": { "reasoning_tokens": self.thoughts } });
        json!({ "id": "resp_1", "output": [item], "usage": usage })
    }

    fn chat_usage(&self) -> Value {
        let details = json!({ "cached_tokens": self.cached, "cache_write_tokens": self.kept });
        json!({ "prompt_tokens": self.read, "prompt_tokens_details": details, "completion_tokens": self.written + self.thoughts })
    }

    fn chat(&self, has_usage: bool) -> Vec<Value> {
        let chunk = |choices: Value| json!({ "id": "c1", "object": "chat.completion.chunk", "choices": choices, "usage": null });
        let deltas: Vec<Value> = match &self.tool {
            Some(tool) => vec![
                json!({ "tool_calls": [{ "index": 0, "id": "call_1", "type": "function",
                "function": { "name": tool, "arguments": "{}" } }] }),
            ],
            None => self
                .words
                .iter()
                .map(|word| json!({ "content": word }))
                .collect(),
        };
        let mut events: Vec<Value> = deltas
            .into_iter()
            .map(|delta| chunk(json!([{ "index": 0, "delta": delta }])))
            .collect();
        events.push(chunk(
            json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }]),
        ));
        if has_usage {
            let mut last = chunk(json!([]));
            last["usage"] = self.chat_usage();
            events.push(last);
        }
        events
    }

    fn gemini(&self) -> Vec<Value> {
        let part = |part: Value| {
            json!({ "candidates": [{ "content": { "role": "model", "parts": [part] }, "index": 0 }],
            "usageMetadata": { "promptTokenCount": self.read } })
        };
        let mut events: Vec<Value> = match &self.tool {
            Some(tool) => vec![part(
                json!({ "functionCall": { "name": tool, "args": {} } }),
            )],
            None => self
                .words
                .iter()
                .map(|word| part(json!({ "text": word })))
                .collect(),
        };
        let mut last = part(json!({ "text": "" }));
        last["usageMetadata"] = json!({ "promptTokenCount": self.read, "cachedContentTokenCount": self.cached,
            "candidatesTokenCount": self.written, "thoughtsTokenCount": self.thoughts });
        events.push(last);
        events
    }
}

fn serve(state: &Mutex<State>, request: &Request, stream: &mut TcpStream) -> bool {
    let path = request
        .line
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .to_owned();
    let fault = {
        let mut state = lock(state);
        state.seen.push(Request {
            line: request.line.clone(),
            fields: request.fields.clone(),
            text: request.text.clone(),
            body: request.body.clone(),
        });
        state.fault
    };
    match fault {
        Fault::Redirect => return answer(stream, "302 Found", "Location: /elsewhere\r\n", ""),
        Fault::Upgrade => {
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            // It is over either way.
            let _ = stream.write_all(head.as_bytes());
            return false;
        }
        Fault::Encoded => {
            return answer(
                stream,
                "200 OK",
                "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
                "xx",
            );
        }
        Fault::Busy => {
            let head = "Content-Type: application/json\r\nRetry-After: 7\r\n";
            return answer(
                stream,
                "429 Too Many Requests",
                head,
                "{\"error\":\"busy\"}",
            );
        }
        Fault::Echo => return echo(request, stream),
        Fault::Endless => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
            let mut goes_on = stream.write_all(head.as_bytes()).is_ok();
            while goes_on {
                goes_on = stream
                    .write_all(&b"data: {\"type\":\"ping\"}\n\n".repeat(1000))
                    .is_ok();
            }
            return false;
        }
        Fault::None | Fault::BreaksOff(_) | Fault::Uncounted => {}
    }
    if path.contains("count_tokens") || path.contains("countTokens") {
        return said(
            state,
            stream,
            &json!({ "input_tokens": 7, "totalTokens": 7 }).to_string(),
        );
    }
    if request.line.starts_with("GET ") {
        return said(
            state,
            stream,
            &json!({ "object": "list", "data": [], "models": [] }).to_string(),
        );
    }
    let say = Say::to(request);
    let streams = request.body["stream"] == true || path.contains("streamGenerateContent");
    let has_usage =
        request.body["stream_options"]["include_usage"] == true && fault != Fault::Uncounted;
    let events = match path.split('?').next().unwrap_or_default() {
        "/v1/messages" => say.anthropic(),
        "/v1/responses" => say.responses(),
        "/v1/chat/completions" => say.chat(has_usage),
        _ => say.gemini(),
    };
    {
        let mut state = lock(state);
        state.counted.read += say.read;
        state.counted.written += say.written + say.thoughts;
        state.counted.cached += say.cached;
        let says_kept = ["/v1/messages", "/v1/chat"]
            .iter()
            .any(|start| path.starts_with(start));
        state.counted.kept += if says_kept { say.kept } else { 0 };
    }
    if streams {
        return streamed(state, stream, &path, &events, fault);
    }
    let written = say.written + say.thoughts;
    let usage = json!({ "input_tokens": say.read - say.cached - say.kept, "cache_creation_input_tokens": say.kept,
        "cache_read_input_tokens": say.cached, "output_tokens": written });
    let words = say.words.concat();
    let whole = match path.split('?').next().unwrap_or_default() {
        "/v1/messages" => {
            json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                "content": [{ "type": "text", "text": words }], "usage": usage })
        }
        "/v1/responses" => {
            let text = json!({ "type": "output_text", "text": words, "annotations": [] });
            let mut response =
                say.response(&json!({ "type": "message", "role": "assistant", "content": [text] }));
            (response["model"], response["status"]) = (json!("m"), json!("completed"));
            response
        }
        "/v1/chat/completions" => {
            let choice = json!({ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": words } });
            json!({ "id": "c1", "model": "m", "choices": [choice], "usage": say.chat_usage() })
        }
        _ => {
            let mut last = events.last().cloned().unwrap_or_default();
            last["modelVersion"] = json!("m");
            last["candidates"][0]["finishReason"] = json!("STOP");
            last["candidates"][0]["content"]["parts"] = json!([{ "text": words }]);
            last
        }
    };
    said(state, stream, &whole.to_string())
}

fn said(state: &Mutex<State>, stream: &mut TcpStream, body: &str) -> bool {
    lock(state).sent.push(body.to_owned());
    let head = "Content-Type: application/json\r\nSet-Cookie: a=b\r\nAlt-Svc: h3=\":443\"\r\nRequest-Id: req_1\r\n";
    answer(stream, "200 OK", head, body)
}

fn streamed(
    state: &Mutex<State>,
    stream: &mut TcpStream,
    path: &str,
    events: &[Value],
    fault: Fault,
) -> bool {
    let named = path.starts_with("/v1/messages") || path.starts_with("/v1/responses");
    let mut texts: Vec<String> = events
        .iter()
        .map(|event| match event["type"].as_str().filter(|_| named) {
            Some(name) => format!("event: {name}\ndata: {event}\n\n"),
            None => format!("data: {event}\r\n\r\n"),
        })
        .collect();
    if path.starts_with("/v1/chat") {
        texts.push("data: [DONE]\n\n".to_owned());
    }
    let kept = match fault {
        Fault::BreaksOff(kept) => kept.min(texts.len()),
        _ => texts.len(),
    };
    lock(state).sent.push(texts[..kept].concat());
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut goes_on = stream.write_all(head.as_bytes()).is_ok();
    for text in &texts[..kept] {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        goes_on = goes_on && stream.write_all(chunk.as_bytes()).is_ok();
    }
    if matches!(fault, Fault::BreaksOff(_)) {
        return false;
    }
    goes_on && stream.write_all(b"0\r\n\r\n").is_ok()
}

/// Shows what it was sent, wherever it can.
fn echo(request: &Request, stream: &mut TcpStream) -> bool {
    let fields: Vec<String> = request
        .fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let key = request.field("x-api-key").unwrap_or_default();
    let head = format!(
        "Content-Type: application/json; was={key}\r\nRequest-Id: {key}\r\nSet-Cookie: key={key}\r\nX-Ratelimit-Key: {key}\r\n"
    );
    answer(
        stream,
        "400 Bad Request",
        &head,
        &json!({ "error": fields.join("\n") }).to_string(),
    )
}

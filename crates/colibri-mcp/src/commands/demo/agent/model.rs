//! The demo's model: it says what a script says, as Anthropic's interface streams it, and counts
//! what it would charge.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::stage::KEY;

/// The longest request, bytes.
const MAX_REQUEST: u64 = 4 << 20;
/// Between two pieces of an answer.
const PAUSE: Duration = Duration::from_millis(20);
/// The note that it has written.
pub(super) const NOTE: &str = "A door, a jail, a task";

/// The requests that the model got, and their cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ModelTraffic {
    pub requests: u64,
    /// Those that came with its key.
    pub with_key: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
}

/// The model, as long as the program runs.
pub(super) struct DemoModel {
    pub address: SocketAddr,
    seen: Arc<Mutex<ModelTraffic>>,
}

impl DemoModel {
    /// Listens on loopback; 0 is any port.
    pub(super) fn start(port: u16) -> io::Result<DemoModel> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(ModelTraffic::default()));
        let shared = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = shared.clone();
                // Who asks is told by the end of its connection that something went wrong.
                std::thread::spawn(move || serve(stream, &seen));
            }
        });
        Ok(DemoModel { address, seen })
    }

    /// The requests so far.
    pub(super) fn seen(&self) -> ModelTraffic {
        *self.seen.lock()
    }
}

fn serve(stream: TcpStream, seen: &Mutex<ModelTraffic>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?.take(MAX_REQUEST));
    let (mut length, mut has_key, mut line) = (0, false, String::new());
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let (name, value) = match line.trim_end() {
            "" => break,
            header => header.split_once(": ").unwrap_or_default(),
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or_default(),
            "x-api-key" => has_key |= value == KEY,
            _ => {}
        }
    }
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    let request: Value = serde_json::from_slice(&body)?;
    let answer = answer(&request);
    let (tokens_in, tokens_out) = (length / 4, answer.to_string().len() as u64 / 4);
    {
        let mut seen = seen.lock();
        seen.requests += 1;
        seen.with_key += u64::from(has_key);
        seen.tokens_in += tokens_in;
        seen.tokens_out += tokens_out;
    }
    let mut out = &stream;
    out.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
    )?;
    for event in events(&answer, tokens_in, tokens_out) {
        let event = format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or_default()
        );
        write!(out, "{:x}\r\n{event}\r\n", event.len())?;
        std::thread::sleep(PAUSE);
    }
    out.write_all(b"0\r\n\r\n")
}

/// The model's next answer: the blocks of a message.
fn answer(request: &Value) -> Value {
    let blocks = request["messages"].as_array().into_iter().flatten();
    let blocks = blocks
        .filter_map(|message| message["content"].as_array())
        .flatten();
    let results: Vec<&Value> = blocks
        .filter(|block| block["type"] == "tool_result")
        .collect();
    let say = |text: &str| json!({ "type": "text", "text": text });
    let call = |name: &str, input: Value| json!({ "type": "tool_use", "id": format!("call-{}", results.len()), "name": name, "input": input });
    if let Some(refused) = results.iter().find(|result| result["is_error"] == true) {
        return json!([say(&format!("I was refused: {}", refused["content"]))]);
    }
    let taken = results
        .first()
        .and_then(|result| result["content"].as_str());
    let taken: Value = taken
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let task = &taken["task"];
    match results.len() {
        0 => json!([say("I take a task."), call("colibri_next_task", json!({}))]),
        1 => json!([
            say("It wants a note: I write it."),
            call(
                "demo__write_note",
                json!({ "name": "from-the-agent", "text": NOTE })
            )
        ]),
        2 => json!([
            say("It is written: I finish the task."),
            call(
                "colibri_finish_task",
                json!({ "task": task["id"], "claim": task["claim"],
                "result": { "note": "from-the-agent", "text": NOTE } })
            )
        ]),
        _ => json!([say("The task is done.")]),
    }
}

/// A message in pieces, with what it costs.
fn events(blocks: &Value, tokens_in: u64, tokens_out: u64) -> Vec<Value> {
    let usage = json!({ "input_tokens": tokens_in, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "output_tokens": 1 });
    let mut events = vec![
        json!({ "type": "message_start", "message": { "id": "msg", "type": "message",
        "role": "assistant", "model": "scripted", "content": [], "usage": usage } }),
    ];
    let mut stop = "end_turn";
    for (index, block) in blocks.as_array().into_iter().flatten().enumerate() {
        let (begun, delta) = match block["text"].as_str() {
            Some(text) => (
                json!({ "type": "text", "text": "" }),
                json!({ "type": "text_delta", "text": text }),
            ),
            None => {
                stop = "tool_use";
                let mut begun = block.clone();
                begun["input"] = json!({});
                (
                    begun,
                    json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() }),
                )
            }
        };
        events
            .push(json!({ "type": "content_block_start", "index": index, "content_block": begun }));
        events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    events.push(
        json!({ "type": "message_delta", "delta": { "stop_reason": stop },
        "usage": { "output_tokens": tokens_out } }),
    );
    events.push(json!({ "type": "message_stop" }));
    events
}

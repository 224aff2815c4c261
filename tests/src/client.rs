//! A client that works on raw lines: it can send whatever a hostile one would.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::PATIENCE;

/// The newest legacy version.
pub const LEGACY: &str = "2025-11-25";
/// The modern version.
pub const MODERN: &str = "2026-07-28";

/// How requests are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Nothing is added.
    Legacy,
    /// The required `_meta` is added.
    Modern,
}

/// The members of `_meta` that every modern request carries, without braces.
pub fn modern_meta() -> String {
    format!(
        "\"io.modelcontextprotocol/protocolVersion\":\"{MODERN}\",\
         \"io.modelcontextprotocol/clientInfo\":{{\"name\":\"e2e\",\"version\":\"1\"}},\
         \"io.modelcontextprotocol/clientCapabilities\":{{}}"
    )
}

/// The name of a client that runs without a person, if its calls have [`headless_meta`].
pub const HEADLESS: &str = "codex-mcp-client";

/// The member of a call's `_meta` by which `codex exec` says that no person is there.
pub fn headless_meta() -> Value {
    json!({ "x-codex-turn-metadata": { "turn_trigger": "exec" } })
}

/// Waits until a reply can be a person's: what comes sooner is the client's own.
pub fn wait_as_a_person() {
    thread::sleep(Duration::from_millis(500));
}

/// The name of Colibri's own error in a message: a JSON-RPC error, or a tool's result.
pub fn code_of(message: &Value) -> Option<&str> {
    let places = [
        &message["error"]["data"]["code"],
        &message["result"]["_meta"]["org.colibri/error"]["code"],
        &message["_meta"]["org.colibri/error"]["code"],
    ];
    places.into_iter().find_map(Value::as_str)
}

/// The handle under which the rest of a tool's result is kept, of which this is the beginning.
pub fn kept_of(result: &Value) -> Option<&str> {
    result["_meta"]["org.colibri/kept"]["handle"].as_str()
}

/// The text of the last block of a tool's result: of one that is kept, what Colibri says of it.
///
/// # Panics
/// If there is none.
pub fn last_text_of(result: &Value) -> &str {
    let content = result["content"]
        .as_array()
        .and_then(|content| content.last());
    let text = content.and_then(|block| block["text"].as_str());
    text.unwrap_or_else(|| panic!("no text at the end: {result}"))
}

/// The text of the first content block of a tool's result.
pub fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

/// The rule that an error of Colibri's own names, in an answer or a result.
pub fn rule_of(message: &Value) -> Option<&str> {
    let places = [
        &message["error"]["data"]["rule"],
        &message["result"]["_meta"]["org.colibri/error"]["rule"],
        &message["_meta"]["org.colibri/error"]["rule"],
    ];
    places.into_iter().find_map(Value::as_str)
}

/// A connection to a daemon.
pub struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    next: u64,
    /// How [`Client::request`] makes requests.
    pub era: Era,
    /// Messages that came while another one was waited for, in order.
    pub others: VecDeque<Value>,
}

impl Client {
    /// A client on this stream.
    ///
    /// # Panics
    /// If the stream cannot be given time limits.
    pub fn over(stream: UnixStream) -> Client {
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a time limit");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("a time limit");
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        Client {
            stream,
            reader,
            next: 1,
            era: Era::Legacy,
            others: VecDeque::new(),
        }
    }

    /// Sends bytes as they are. `false`: the daemon has closed the connection.
    ///
    /// # Panics
    /// If the daemon does not take them in time.
    pub fn send_raw(&mut self, bytes: &[u8]) -> bool {
        match self.stream.write_all(bytes) {
            Ok(()) => true,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ) =>
            {
                false
            }
            Err(error) => panic!("sending: {error}"),
        }
    }

    /// Sends one line.
    pub fn send(&mut self, line: impl AsRef<[u8]>) -> bool {
        let mut bytes = line.as_ref().to_vec();
        bytes.push(b'\n');
        self.send_raw(&bytes)
    }

    /// The next line without its end; `None` when the daemon has closed the connection.
    ///
    /// # Panics
    /// If none comes in time.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => {
                assert_eq!(line.pop(), Some(b'\n'), "a line without an end");
                Some(line)
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// The next line of a connection that may break off anywhere.
    ///
    /// # Panics
    /// If nothing comes in time.
    pub fn read_lossy(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(_) if line.pop() == Some(b'\n') => Some(line),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer: {error}"),
            _ => None,
        }
    }

    /// The next message.
    ///
    /// # Panics
    /// If the connection is closed instead, or the line is not JSON.
    pub fn message(&mut self) -> Value {
        let line = self.read().expect("the daemon closed the connection");
        serde_json::from_slice(&line).expect("a JSON message")
    }

    /// Closes the direction towards the daemon.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn half_close(&mut self) {
        self.stream
            .shutdown(Shutdown::Write)
            .expect("closing one direction");
    }

    /// An id that was not used before on this connection.
    pub fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Sends a request and returns its id. What `_meta` of a modern one has already stays.
    pub fn request(&mut self, method: &str, mut params: Value) -> u64 {
        let id = self.next_id();
        if self.era == Era::Modern {
            let meta: Value =
                serde_json::from_str(&format!("{{{}}}", modern_meta())).expect("our own JSON");
            for (key, value) in meta.as_object().into_iter().flatten() {
                if params["_meta"].get(key).is_none() {
                    params["_meta"][key] = value.clone();
                }
            }
        }
        self.send(
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        );
        id
    }

    /// Sends a request for a tool and returns its id.
    pub fn request_tool(&mut self, tool: &str, arguments: Value) -> u64 {
        self.request(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Waits for the answer to a request; other messages are kept in [`Client::others`].
    pub fn answer(&mut self, id: u64) -> Value {
        self.find(|message| message["id"] == id && message.get("method").is_none())
    }

    /// Waits for a notification, or a request, of this method; other messages are kept in
    /// [`Client::others`].
    pub fn notification(&mut self, method: &str) -> Value {
        self.find(|message| message["method"] == method)
    }

    fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.others.iter().position(&wanted) {
            return self.others.remove(at).unwrap_or_default();
        }
        loop {
            let message = self.message();
            if wanted(&message) {
                return message;
            }
            self.others.push_back(message);
        }
    }

    /// Sends a request and waits for its answer: the whole message.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    /// Calls a tool: its result.
    ///
    /// # Panics
    /// If the answer is a JSON-RPC error.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.request_tool(tool, arguments);
        let mut answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{tool}: {answer}");
        answer["result"].take()
    }

    /// The names that `tools/list` gives, in its order.
    ///
    /// # Panics
    /// If it gives none.
    pub fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"]
            .as_array()
            .expect("a list of tools");
        let names = tools.iter().filter_map(|tool| tool["name"].as_str());
        names.map(str::to_owned).collect()
    }

    /// Makes the handshake of a legacy version.
    pub fn initialize(&mut self, version: &str) {
        self.open(version);
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// Makes the handshake of a legacy version but for its last step: the daemon tells nothing that
    /// was not asked for.
    ///
    /// # Panics
    /// If another version is agreed on.
    pub fn open(&mut self, version: &str) {
        self.open_with(version, json!({}));
    }

    /// The same as a client that can be asked what these capabilities say.
    ///
    /// # Panics
    /// If another version is agreed on.
    pub fn open_with(&mut self, version: &str, capabilities: Value) {
        self.open_as("e2e", version, capabilities);
    }

    /// The same under this name.
    ///
    /// # Panics
    /// If another version is agreed on.
    pub fn open_as(&mut self, name: &str, version: &str, capabilities: Value) {
        let client = json!({ "name": name, "version": "1" });
        let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": client });
        let answer = self.ask("initialize", params);
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
    }
}

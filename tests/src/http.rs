//! A client that speaks HTTP on raw bytes: it can send whatever a hostile one would.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::{LEGACY, MODERN, PATIENCE};

/// A response whose head was read, and its body, if it has one that ends.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The header fields, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body; nothing yet of a stream.
    pub body: Vec<u8>,
}

impl Response {
    /// A header field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none.
    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {text}", self.status))
    }

    /// The number of the error in it.
    pub fn error(&self) -> Option<i64> {
        self.json()["error"]["code"].as_i64()
    }

    /// Whether it is a stream of events.
    pub fn is_stream(&self) -> bool {
        self.field("content-type") == Some("text/event-stream")
    }
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its id, if it has one.
    pub id: Option<String>,
    /// What it says, as it stands there.
    pub data: String,
    /// The same as a message; null for one without, and for what no `Value` holds.
    pub message: Value,
}

/// A connection that speaks HTTP.
pub struct Http {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    /// What came of a stream and is no whole event.
    partial: Vec<u8>,
}

impl Http {
    /// On this connection.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn over(stream: UnixStream) -> Http {
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("a time-out");
        Http {
            reader: BufReader::new(stream.try_clone().expect("a second handle")),
            stream,
            partial: Vec::new(),
        }
    }

    /// Sends bytes; `false`: the other side does not take them any more.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends no more.
    pub fn half_close(&self) {
        // It may be closed by the other side already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends a POST with these header fields.
    pub fn post(&mut self, fields: &[(&str, &str)], body: &str) -> bool {
        self.send(&request("POST", fields, body))
    }

    /// Sends a modern request with what belongs in its head and its `_meta`.
    pub fn ask(&mut self, id: Value, method: &str, params: Value) -> bool {
        self.ask_with(&[], id, method, params)
    }

    /// The same with more header fields.
    pub fn ask_with(
        &mut self,
        more: &[(&str, &str)],
        id: Value,
        method: &str,
        mut params: Value,
    ) -> bool {
        let name = ["name", "uri", "taskId"]
            .iter()
            .find_map(|key| params[*key].as_str());
        let name = name.map(str::to_owned);
        let mut fields = vec![("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)];
        fields.extend(name.as_deref().map(|name| ("Mcp-Name", name)));
        fields.extend(more);
        for (key, value) in meta().as_object().into_iter().flatten() {
            if params["_meta"][key].is_null() {
                params["_meta"][key] = value.clone();
            }
        }
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.post(&fields, &body.to_string())
    }

    /// The same, and the response.
    pub fn asked(&mut self, id: Value, method: &str, params: Value) -> Response {
        self.ask(id, method, params);
        self.response()
    }

    /// Opens a legacy session of this version, as far as its handshake goes: its id.
    ///
    /// # Panics
    /// If it gets none.
    pub fn open(&mut self, version: &str) -> String {
        let capabilities = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
        let params = json!({ "protocolVersion": version, "capabilities": capabilities,
                             "clientInfo": { "name": "e2e", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        self.post(&[], &body.to_string());
        let response = self.response();
        assert_eq!(response.json()["result"]["protocolVersion"], version);
        let session = response
            .field("mcp-session-id")
            .expect("a session id")
            .to_owned();
        self.in_session(
            &session,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        assert_eq!(self.response().status, 202);
        session
    }

    /// Sends a message of a legacy session.
    pub fn in_session(&mut self, session: &str, body: &str) -> bool {
        self.post(&[("Mcp-Session-Id", session)], body)
    }

    /// Calls a tool in a legacy session.
    pub fn call_in(&mut self, session: &str, id: u64, tool: &str, arguments: Value) -> bool {
        let params =
            json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        self.in_session(session, &body.to_string())
    }

    /// Reads a session's stream, after an event if one is given.
    pub fn listen(&mut self, session: &str, after: Option<&str>) -> Response {
        let mut fields = vec![
            ("Mcp-Session-Id", session),
            ("MCP-Protocol-Version", LEGACY),
        ];
        fields.extend(after.map(|event| ("Last-Event-ID", event)));
        self.send(&request("GET", &fields, ""));
        self.response()
    }

    /// The next response: its head, and its body if that ends.
    ///
    /// # Panics
    /// If there is none.
    pub fn response(&mut self) -> Response {
        self.try_response().expect("a response")
    }

    /// The head of the next response.
    ///
    /// # Panics
    /// If there is none.
    pub fn head(&mut self) -> Response {
        self.try_head().expect("the head of a response")
    }

    /// The next response, unless the connection ends.
    pub fn try_response(&mut self) -> Option<Response> {
        let mut response = self.try_head()?;
        if let Some(length) = response.field("content-length").map(str::to_owned) {
            response.body = vec![0; length.parse().ok()?];
            self.reader.read_exact(&mut response.body).ok()?;
        }
        Some(response)
    }

    fn try_head(&mut self) -> Option<Response> {
        let mut line = self.line()?;
        if line.starts_with("HTTP/1.1 100 ") {
            assert_eq!(self.line()?, "");
            line = self.line()?;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':')?;
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Some(Response {
            status,
            fields,
            body: Vec::new(),
        })
    }

    /// The next event of a stream, as the standard reads one; none at its end.
    pub fn event(&mut self) -> Option<Event> {
        let (mut id, mut data) = (None, None::<String>);
        loop {
            let line = self.stream_line()?;
            if line.is_empty() {
                let Some(data) = data.take() else { continue };
                let message = serde_json::from_str(&data).unwrap_or(Value::Null);
                return Some(Event { id, data, message });
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match (field, &mut data) {
                ("id", _) => id = Some(value.to_owned()),
                ("data", Some(data)) => *data += &format!("\n{value}"),
                ("data", None) => data = Some(value.to_owned()),
                _ => {}
            }
        }
    }

    /// The next line of a stream: a line feed ends it, a carriage return, or both.
    fn stream_line(&mut self) -> Option<String> {
        loop {
            let end = self
                .partial
                .iter()
                .position(|byte| matches!(byte, b'\r' | b'\n'));
            let ends = end.map(|end| (self.partial[end], self.partial.get(end + 1)));
            let length = match ends {
                None | Some((b'\r', None)) => None,
                Some((b'\r', Some(b'\n'))) => Some(2),
                Some(_) => Some(1),
            };
            if let (Some(end), Some(length)) = (end, length) {
                let rest = self.partial.split_off(end + length);
                let line = std::mem::replace(&mut self.partial, rest);
                return String::from_utf8(line[..end].to_vec()).ok();
            }
            let size = usize::from_str_radix(&self.line()?, 16).ok()?;
            let mut chunk = vec![0; size];
            self.reader.read_exact(&mut chunk).ok()?;
            self.line()?;
            if size == 0 {
                return None;
            }
            self.partial.extend_from_slice(&chunk);
        }
    }

    /// All events until the end of the stream.
    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.event()).collect()
    }

    /// Whether the other side has closed the connection, with nothing more to read.
    pub fn is_closed(&mut self) -> bool {
        self.reader.fill_buf().is_ok_and(<[u8]>::is_empty)
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.reader
            .read_line(&mut line)
            .ok()
            .filter(|length| *length > 0)?;
        Some(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// What every modern request has in its `_meta`.
pub fn meta() -> Value {
    json!({ "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {} })
}

/// The bytes of a request, with what every request has in its head.
pub fn request(method: &str, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head = format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\n");
    if !body.is_empty() {
        head += &format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
    }
    if !fields
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("accept"))
    {
        head += "Accept: application/json, text/event-stream\r\n";
    }
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    format!("{head}\r\n{body}").into_bytes()
}

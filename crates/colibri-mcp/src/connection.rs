//! A connection to the daemon: MCP over its Unix socket, one JSON-RPC message a line.
//!
//! Commands speak protocol 2026-07-28: every request carries its version, so there is no handshake,
//! and a command is one line out and one line back.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{private, sandbox};
use colibri_api::paths::{self, SERVICE};
use colibri_files::{LineBuffer, LinePiece, each_line};

/// The most bytes of a line to or from the daemon, its newline not counted: 16 MiB, the daemon's own
/// frame limit (DESIGN §3).
pub(crate) const MAX_LINE: usize = 16 * 1024 * 1024;

/// The protocol version that commands speak.
pub(crate) const PROTOCOL_VERSION: &str = "2026-07-28";

/// The first line of every connection: what it does without, whatever the daemon allows (DESIGN
/// §5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Both gates stay closed.
    pub read_only: bool,
    /// Of all servers there is this one alone, under its own names.
    pub only: Option<String>,
}

impl Hello {
    fn line(&self) -> String {
        let narrow: &[&str] = if self.read_only {
            &["write", "external"]
        } else {
            &[]
        };
        let mut hello = json!({ "colibri": 1, "narrow": narrow });
        if let Some(only) = &self.only {
            hello["only"] = json!(only);
        }
        format!("{hello}\n")
    }
}

/// The reason for which the daemon cannot be reached. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub(crate) struct Unavailable {
    /// The socket that was tried.
    pub socket: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// The daemon's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaemonAddress {
    /// Its socket.
    pub socket: PathBuf,
    /// It is the user's own, and is started when it does not run.
    pub private: bool,
}

impl From<PathBuf> for DaemonAddress {
    fn from(socket: PathBuf) -> DaemonAddress {
        let private = false;
        DaemonAddress { socket, private }
    }
}

impl DaemonAddress {
    /// The socket that a flag or the environment names; else the service's, where it is in use;
    /// else the user's own.
    pub(crate) fn find(flag: Option<PathBuf>) -> DaemonAddress {
        DaemonAddress::choose(paths::named_socket(flag), || SERVICE.in_use().is_some())
    }

    /// The socket that a flag or the environment names, else the service's, in use or not.
    pub(crate) fn of_service(flag: Option<PathBuf>) -> DaemonAddress {
        DaemonAddress::choose(paths::named_socket(flag), || true)
    }

    fn choose(named: Option<PathBuf>, is_service: impl FnOnce() -> bool) -> DaemonAddress {
        let own = paths::private().socket;
        let socket = match named {
            Some(named) => named,
            None if is_service() => PathBuf::from(SERVICE.socket),
            None => own.clone(),
        };
        let private = socket == own;
        DaemonAddress { socket, private }
    }

    /// True if it is the service's.
    pub(crate) fn is_service(&self) -> bool {
        !self.private && SERVICE.is_socket(&self.socket)
    }

    /// Connects and says hello.
    pub(crate) fn dial(&self, hello: &Hello) -> Result<UnixStream, Unavailable> {
        let failed = |why| Unavailable {
            socket: self.socket.clone(),
            source: io::Error::other(why),
        };
        if self.private {
            // Who listens there is whoever could make the socket.
            paths::private().check().map_err(failed)?;
        }
        match dial(&self.socket, hello) {
            Err(error) if self.private && private::is_absent(&error.source) => {
                private::start().map_err(|error| failed(format!("{error:#}")))?;
                dial(&self.socket, hello)
            }
            other => other,
        }
    }
}

/// The command that starts the daemon at a socket.
pub(crate) fn start_command(socket: &Path) -> &'static str {
    match cfg!(target_os = "freebsd") || SERVICE.is_socket(socket) {
        true => SERVICE.start,
        false => "colibri-mcpd",
    }
}

impl Unavailable {
    /// True if the caller may not open the socket.
    pub(crate) fn is_denied(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }

    fn text(&self) -> String {
        let (socket, source) = (self.socket.display(), &self.source);
        if let Some(inside) = sandbox::explains(source.kind()) {
            return format!("colibri-mcpd cannot be reached on {socket} ({source}). {inside}");
        }
        match source.kind() {
            io::ErrorKind::PermissionDenied => format!(
                "no permission to open {socket} ({source}). Ask the administrator to add you to the group mcpusers, then \
                 log in again"
            ),
            io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::WouldBlock => {
                let start = start_command(&self.socket);
                let other = match SERVICE.is_socket(&self.socket) {
                    true => format!(
                        ". That is the service's; a daemon of your own: --socket {}",
                        paths::private().socket.display()
                    ),
                    false => String::new(),
                };
                format!(
                    "colibri-mcpd is not running: nothing listens on {socket} ({source}). Start it with `{start}`{other}"
                )
            }
            io::ErrorKind::Other => source.to_string(),
            _ => format!(
                "cannot connect to colibri-mcpd on {socket}: {source}. Is `--socket` right?"
            ),
        }
    }
}

/// Opens the socket and sends the hello line.
fn dial(socket: &Path, hello: &Hello) -> Result<UnixStream, Unavailable> {
    let explain = |source| Unavailable {
        socket: socket.to_owned(),
        source,
    };
    let mut stream = UnixStream::connect(socket).map_err(explain)?;
    stream.write_all(hello.line().as_bytes()).map_err(explain)?;
    Ok(stream)
}

/// The reason for which a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The connection ended before the answer.
    #[error(
        "colibri-mcpd closed the connection before it answered {method}: {source}. Its log says why"
    )]
    Lost {
        /// The request.
        method: String,
        /// The system's error.
        source: io::Error,
    },
    /// The answer is not what the protocol says.
    #[error(
        "colibri-mcpd's answer to {method} cannot be read: {why}. Do its version and this program's match?"
    )]
    Unreadable {
        /// The request.
        method: String,
        /// The fault.
        why: String,
    },
    /// The daemon answered with a JSON-RPC error.
    #[error("{message} (error {code})")]
    Refused {
        /// The JSON-RPC error code.
        code: i64,
        /// The error's text.
        message: String,
    },
    /// The tool ran, or was refused by the daemon's rules, and says so.
    #[error("{0}")]
    Tool(String),
    /// The server asks the person something, which a command cannot do.
    #[error("the tool asks for input, which only an editor or agent can give: call it from there")]
    InputRequired,
}

/// The progress of a request (`notifications/progress`).
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RequestProgress {
    /// The request's, which is its id.
    #[serde(rename = "progressToken")]
    pub token: u64,
    /// The amount done, in the tool's own unit.
    pub progress: f64,
    /// The amount in all, if known.
    pub total: Option<f64>,
    /// A word for people.
    pub message: Option<String>,
    /// More about it.
    #[serde(default, rename = "_meta")]
    pub meta: ProgressMeta,
}

/// The daemon's own members.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ProgressMeta {
    /// The id by which the call is approved for which it waits.
    #[serde(rename = "org.colibri/approval")]
    pub approval: Option<String>,
}

/// The result of a `tools/call`.
#[derive(Debug)]
pub(crate) struct ToolCallResult {
    /// The whole result, as it came.
    pub raw: Box<RawValue>,
    /// The tool says that it failed.
    pub is_error: bool,
    /// The texts for people, one piece a content item.
    pub texts: Vec<String>,
    /// The code of the daemon's own error, if it is one.
    pub own_code: Option<String>,
    /// The structured content for programs.
    pub structured: Option<Box<RawValue>>,
}

impl ToolCallResult {
    /// The text for a person: the texts, without the copy of the structured content that many tools
    /// add for old clients.
    pub(crate) fn readable(&self) -> String {
        let structured = self.structured.as_ref().map(|structured| structured.get());
        let texts = self.texts.iter().map(String::as_str);
        let other: Vec<_> = texts.filter(|text| Some(*text) != structured).collect();
        if other.is_empty() {
            self.texts.join("\n")
        } else {
            other.join("\n")
        }
    }
}

/// A connection for commands: one request at a time, blocking.
#[derive(Debug)]
pub(crate) struct DaemonConnection {
    stream: UnixStream,
    buffer: LineBuffer,
    current: Arc<AtomicU64>,
    trace: TraceContext,
}

/// Cancels whatever request a connection waits for, from another thread.
#[derive(Debug)]
pub(crate) struct Canceller {
    stream: UnixStream,
    current: Arc<AtomicU64>,
}

impl Canceller {
    /// Sends `notifications/cancelled` for the request in flight.
    pub(crate) fn cancel(&mut self) -> io::Result<()> {
        let cancelled = json!({
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": { "requestId": self.current.load(Ordering::SeqCst), "reason": "interrupted" },
        });
        self.stream.write_all(format!("{cancelled}\n").as_bytes())
    }

    /// Closes the connection: who waits for an answer is told that it is lost.
    pub(crate) fn hang_up(&self) {
        // A connection that is closed already is as it should be.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl DaemonConnection {
    /// Connects and says hello.
    pub(crate) fn open(
        place: &DaemonAddress,
        read_only: bool,
    ) -> Result<DaemonConnection, Unavailable> {
        DaemonConnection::open_as(
            place,
            &Hello {
                read_only,
                only: None,
            },
        )
    }

    /// Connects with this hello.
    pub(crate) fn open_as(
        place: &DaemonAddress,
        hello: &Hello,
    ) -> Result<DaemonConnection, Unavailable> {
        Ok(DaemonConnection {
            stream: place.dial(hello)?,
            buffer: LineBuffer::new(MAX_LINE),
            current: Arc::new(AtomicU64::new(0)),
            trace: None,
        })
    }

    /// Sends this trace context (W3C) with each request from now on.
    pub(crate) fn trace(&mut self, parent: String, state: String) {
        self.trace = Some((parent, state));
    }

    /// A handle to cancel requests with.
    pub(crate) fn canceller(&self) -> io::Result<Canceller> {
        Ok(Canceller {
            stream: self.stream.try_clone()?,
            current: self.current.clone(),
        })
    }

    /// Sends a request and waits for its result.
    pub(crate) fn request(
        &mut self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Box<RawValue>, RequestError> {
        let answer: Result<_, RequestError> =
            self.listen(method, params, |_, _, _| Ok(ControlFlow::Continue(())));
        answer?.ok_or_else(|| unreadable(method, "there is none"))
    }

    /// Sends a request and waits for its result, read and as it came.
    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<(T, Box<RawValue>), RequestError> {
        let raw = self.request(method, params)?;
        Ok((read(method, &raw)?, raw))
    }

    /// Sends a request, hands over what the daemon tells meanwhile (the request's id, the
    /// notification's name and parameters), and waits for its result. `None`: whoever was told has
    /// had enough.
    pub(crate) fn listen<E: From<RequestError>>(
        &mut self,
        method: &str,
        params: &impl Serialize,
        mut on_notification: impl FnMut(u64, &str, &RawValue) -> Result<ControlFlow<()>, E>,
    ) -> Result<Option<Box<RawValue>>, E> {
        let id = self.current.fetch_add(1, Ordering::SeqCst) + 1;
        let line = request_line(id, method, params, &self.trace)
            .map_err(|error| unreadable(method, error))?;
        let lost = |source| RequestError::Lost {
            method: method.to_owned(),
            source,
        };
        self.stream.write_all(&line).map_err(lost)?;
        let mut handle = |line: &[u8]| -> Result<ListenStep, E> {
            Ok(match read_line(line, id, method)? {
                DaemonMessage::Notification(name, params) => {
                    match on_notification(id, &name, params)? {
                        ControlFlow::Continue(()) => ListenStep::Waiting,
                        ControlFlow::Break(()) => ListenStep::Stopped,
                    }
                }
                DaemonMessage::Answer(result) => ListenStep::Answered(result.to_owned()),
                DaemonMessage::Nothing => ListenStep::Waiting,
            })
        };
        loop {
            let mut consumed = 0;
            let step = match self.buffer.read(&mut self.stream).map_err(lost)? {
                LinePiece::Nothing => Ok(ListenStep::Waiting),
                LinePiece::Lines(piece) => {
                    let mut step = Ok(ListenStep::Waiting);
                    for (range, line) in each_line(piece) {
                        consumed = range.end;
                        step = handle(line);
                        if !matches!(step, Ok(ListenStep::Waiting)) {
                            break;
                        }
                    }
                    step
                }
                LinePiece::TooLong(_) => {
                    return Err(unreadable(
                        method,
                        format!("a line is longer than {MAX_LINE} bytes"),
                    )
                    .into());
                }
                LinePiece::End(_) => return Err(lost(io::ErrorKind::UnexpectedEof.into()).into()),
            };
            // What was handled must not come again: the next request reads the same buffer.
            self.buffer.consume(consumed);
            match step? {
                ListenStep::Waiting => {}
                ListenStep::Stopped => return Ok(None),
                ListenStep::Answered(result) => return Ok(Some(result)),
            }
        }
    }

    /// Calls a tool by its exposed name.
    pub(crate) fn call_tool(
        &mut self,
        name: &str,
        arguments: &RawValue,
        on_progress: &mut dyn FnMut(&RequestProgress),
    ) -> Result<ToolCallResult, RequestError> {
        #[derive(Serialize)]
        struct ToolCallParams<'a> {
            name: &'a str,
            arguments: &'a RawValue,
        }
        let answer: Result<_, RequestError> = self.listen(
            "tools/call",
            &ToolCallParams { name, arguments },
            |id, name, params| {
                if name == "notifications/progress"
                    && let Ok(progress) = read::<RequestProgress>(name, params)
                    && progress.token == id
                {
                    on_progress(&progress);
                }
                Ok(ControlFlow::Continue(()))
            },
        );
        read_tool_result(answer?.ok_or_else(|| unreadable("tools/call", "there is none"))?)
    }

    /// Calls one of Colibri's own tools; its structured content, read and as it came.
    pub(crate) fn own_tool<T: DeserializeOwned>(
        &mut self,
        name: &str,
        arguments: &Value,
    ) -> Result<(T, Box<RawValue>), RequestError> {
        let arguments = to_raw_value(arguments).map_err(|error| unreadable(name, error))?;
        let result = self.call_tool(name, &arguments, &mut |_| {})?;
        if result.is_error {
            return Err(RequestError::Tool(result.readable()));
        }
        let structured = result
            .structured
            .ok_or_else(|| unreadable(name, "it has no structuredContent"))?;
        Ok((read(name, &structured)?, structured))
    }
}

/// Reads what the daemon said, in an answer to `method` or before it.
pub(crate) fn read<'a, T: Deserialize<'a>>(
    method: &str,
    raw: &'a RawValue,
) -> Result<T, RequestError> {
    serde_json::from_str(raw.get()).map_err(|error| unreadable(method, error))
}

pub(crate) fn unreadable(method: &str, why: impl ToString) -> RequestError {
    RequestError::Unreadable {
        method: method.to_owned(),
        why: why.to_string(),
    }
}

/// `traceparent` and `tracestate`, where requests have them.
type TraceContext = Option<(String, String)>;

fn request_line(
    id: u64,
    method: &str,
    params: &impl Serialize,
    trace: &TraceContext,
) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct RequestLine<'a, P> {
        jsonrpc: &'static str,
        id: u64,
        method: &'a str,
        params: Params<'a, P>,
    }
    #[derive(Serialize)]
    struct Params<'a, P> {
        #[serde(flatten)]
        own: &'a P,
        #[serde(rename = "_meta")]
        meta: Value,
    }
    // The per-request fields of 2026-07-28 (basic/index, "_meta"); the token asks for progress.
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "colibri-mcp", "version": env!("CARGO_PKG_VERSION") },
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": id,
    });
    if let Some((parent, state)) = trace {
        meta["traceparent"] = json!(parent);
        meta["tracestate"] = json!(state);
    }
    let mut line = serde_json::to_vec(&RequestLine {
        jsonrpc: "2.0",
        id,
        method,
        params: Params { own: params, meta },
    })?;
    line.push(b'\n');
    Ok(line)
}

/// The kind of one line from the daemon.
enum DaemonMessage<'a> {
    /// A notification: its name and parameters.
    Notification(Cow<'a, str>, &'a RawValue),
    /// The result that was asked for.
    Answer(&'a RawValue),
    /// Nothing of interest.
    Nothing,
}

/// The state of a request after a line from the daemon.
enum ListenStep {
    /// The answer has not come.
    Waiting,
    /// The caller wants to hear no more.
    Stopped,
    /// The result has come.
    Answered(Box<RawValue>),
}

/// Reads one line from the daemon while the answer to the request `id` is awaited.
fn read_line<'a>(line: &'a [u8], id: u64, method: &str) -> Result<DaemonMessage<'a>, RequestError> {
    #[derive(Deserialize)]
    struct DaemonLine<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        method: Option<Cow<'a, str>>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        error: Option<JsonRpcError>,
    }
    #[derive(Deserialize)]
    struct JsonRpcError {
        code: i64,
        message: String,
        data: Option<Value>,
    }
    let line: DaemonLine<'a> =
        serde_json::from_slice(line).map_err(|error| unreadable(method, error))?;
    if let (Some(name), Some(params), None) = (&line.method, line.params, line.id) {
        return Ok(DaemonMessage::Notification(name.clone(), params));
    }
    if let Some(error) = line.error {
        // An error without an id can only be about the one request in flight.
        if line
            .id
            .is_none_or(|given| given.get() == "null" || given.get() == id.to_string())
        {
            let mut message = error.message;
            // What to do, where the daemon says so.
            if let Some(advice) = error.data.as_ref().and_then(|data| data["do"].as_str()) {
                message = format!("{message}; {advice}");
            }
            return Err(RequestError::Refused {
                code: error.code,
                message,
            });
        }
        return Ok(DaemonMessage::Nothing);
    }
    match (line.id, line.result) {
        (Some(given), Some(result)) if given.get() == id.to_string() => {
            #[derive(Deserialize)]
            struct ResultKind {
                #[serde(rename = "resultType")]
                kind: Option<String>,
            }
            let kind: ResultKind =
                serde_json::from_str(result.get()).map_err(|error| unreadable(method, error))?;
            match kind.kind.as_deref() {
                None | Some("complete") => Ok(DaemonMessage::Answer(result)),
                Some("input_required") => Err(RequestError::InputRequired),
                Some(other) => Err(unreadable(method, format!("its resultType is {other:?}"))),
            }
        }
        _ => Ok(DaemonMessage::Nothing),
    }
}

fn read_tool_result(raw: Box<RawValue>) -> Result<ToolCallResult, RequestError> {
    #[derive(Deserialize)]
    struct ResponseShape<'a> {
        #[serde(borrow, default)]
        content: Vec<&'a RawValue>,
        #[serde(rename = "isError", default)]
        is_error: bool,
        #[serde(borrow, rename = "structuredContent")]
        structured: Option<&'a RawValue>,
        #[serde(borrow, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct ClientMeta {
        #[serde(rename = "org.colibri/error")]
        error: OwnError,
    }
    #[derive(Deserialize)]
    struct OwnError {
        code: String,
    }
    let shape: ResponseShape<'_> =
        serde_json::from_str(raw.get()).map_err(|error| unreadable("tools/call", error))?;
    let (is_error, structured) = (shape.is_error, shape.structured.map(ToOwned::to_owned));
    let meta = shape
        .meta
        .and_then(|meta| serde_json::from_str::<ClientMeta>(meta.get()).ok());
    let texts = shape
        .content
        .iter()
        .map(|item| readable_content(item))
        .collect();
    Ok(ToolCallResult {
        is_error,
        structured,
        texts,
        own_code: meta.map(|meta| meta.error.code),
        raw,
    })
}

/// A content item as text: what it says if it is text, else what it is.
fn readable_content(item: &RawValue) -> String {
    #[derive(Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Content {
        Text {
            text: String,
        },
        Image {
            #[serde(rename = "mimeType")]
            mime_type: String,
            data: String,
        },
        Audio {
            #[serde(rename = "mimeType")]
            mime_type: String,
            data: String,
        },
        ResourceLink {
            uri: String,
        },
        Resource {
            resource: EmbeddedResource,
        },
    }
    #[derive(Deserialize)]
    struct EmbeddedResource {
        uri: String,
        text: Option<String>,
    }
    match serde_json::from_str(item.get()) {
        Ok(Content::Text { text }) => text,
        Ok(Content::Image { mime_type, data } | Content::Audio { mime_type, data }) => {
            format!("[{mime_type}, {} bytes: see --json]", data.len() / 4 * 3)
        }
        Ok(Content::ResourceLink { uri }) => uri,
        Ok(Content::Resource { resource }) => resource
            .text
            .unwrap_or(format!("[{}: see --json]", resource.uri)),
        // A content type this program does not know, or one with text that no `String` holds: as it
        // came.
        Err(_) => item.get().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    /// A daemon that answers the n-th request with the n-th list of lines; `ID` in them is the
    /// request's id.
    fn daemon(
        answers: Vec<Vec<&'static str>>,
    ) -> (
        tempfile::TempDir,
        PathBuf,
        std::thread::JoinHandle<Vec<String>>,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap())
                .lines()
                .map(Result::unwrap);
            let mut seen = vec![lines.next().unwrap()];
            for answer in answers {
                let request = lines.next().unwrap();
                let id = serde_json::from_str::<Value>(&request).unwrap()["id"].to_string();
                seen.push(request);
                for line in answer {
                    stream
                        .write_all(line.replace("ID", &id).as_bytes())
                        .unwrap();
                    stream.write_all(b"\n").unwrap();
                }
            }
            seen
        });
        (dir, socket, thread)
    }

    #[test]
    fn lines_after_the_one_that_stopped_a_request_are_read_by_the_next_request() {
        let both = "{\"jsonrpc\":\"2.0\",\"method\":\"n/one\",\"params\":{}}\n\
                    {\"jsonrpc\":\"2.0\",\"method\":\"n/two\",\"params\":{}}";
        let (_dir, socket, thread) = daemon(vec![
            vec![both],
            vec![r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#],
        ]);
        let mut connection = DaemonConnection::open(&socket.into(), false).unwrap();
        let mut names = Vec::new();
        for stop in ["n/one", "never"] {
            let listened: Result<_, RequestError> =
                connection.listen("m", &json!({}), |_, name, _| {
                    names.push(name.to_owned());
                    Ok(match name == stop {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    })
                });
            assert_eq!(listened.unwrap().is_some(), stop == "never");
        }
        assert_eq!(names, ["n/one", "n/two"]);
        thread.join().unwrap();
    }

    #[test]
    fn says_hello_then_requests_with_what_the_protocol_demands() {
        let (_dir, socket, daemon) = daemon(vec![vec![
            r#"{"jsonrpc":"2.0","id":ID,"result":{"n":1e400}}"#,
        ]]);
        let mut connection = DaemonConnection::open(&socket.clone().into(), true).unwrap();
        let result = connection.request("tools/list", &json!({})).unwrap();
        assert_eq!(result.get(), r#"{"n":1e400}"#);
        let seen = daemon.join().unwrap();
        assert_eq!(seen[0], r#"{"colibri":1,"narrow":["write","external"]}"#);
        let request: Value = serde_json::from_str(&seen[1]).unwrap();
        assert_eq!(
            request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"],
            PROTOCOL_VERSION
        );
        assert!(
            request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_object()
        );
    }

    #[test]
    fn reports_progress_of_its_own_request_only_and_skips_what_it_does_not_know() {
        let (_dir, socket, daemon) = daemon(vec![vec![
            r#"{"method":"notifications/progress","params":{"progressToken":99,"progress":9}}"#,
            r#"{"method":"notifications/progress","params":{"progressToken":ID,"progress":1,"total":2,"message":"m"}}"#,
            r#"{"method":"notifications/else"}"#,
            r#"{"jsonrpc":"2.0","id":"ID","result":{"content":[]}}"#,
            r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"t"},{"type":"new","x":1}],"isError":true}}"#,
        ]]);
        let mut connection = DaemonConnection::open(&socket.clone().into(), false).unwrap();
        let mut seen = Vec::new();
        let arguments = to_raw_value(&json!({})).unwrap();
        let result = connection
            .call_tool("t", &arguments, &mut |p| seen.push((p.progress, p.total)))
            .unwrap();
        assert_eq!(seen, [(1.0, Some(2.0))]);
        assert!(result.is_error);
        assert_eq!(result.texts, ["t", r#"{"type":"new","x":1}"#]);
        daemon.join().unwrap();
    }

    #[test]
    fn people_are_spared_the_copy_of_the_structured_content() {
        let result = |texts: &[&str]| ToolCallResult {
            raw: to_raw_value(&0).unwrap(),
            is_error: false,
            texts: texts.iter().map(|text| text.to_string()).collect(),
            own_code: None,
            structured: Some(RawValue::from_string(r#"{"a":1}"#.to_owned()).unwrap()),
        };
        assert_eq!(result(&["one", r#"{"a":1}"#, "two"]).readable(), "one\ntwo");
        assert_eq!(result(&[r#"{"a":1}"#]).readable(), r#"{"a":1}"#);
    }

    #[test]
    fn each_way_to_fail_has_its_own_error() {
        let (_dir, socket, daemon) = daemon(vec![
            vec![r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no such tool"}}"#],
            vec![r#"{"jsonrpc":"2.0","id":ID,"result":{"resultType":"input_required"}}"#],
            vec![r#"{"jsonrpc":"2.0","id":ID,"result":{"resultType":"later"}}"#],
            vec!["garbage"],
            vec![],
        ]);
        let mut connection = DaemonConnection::open(&socket.clone().into(), false).unwrap();
        let mut next = || connection.request("m", &json!({})).unwrap_err();
        assert!(
            matches!(next(), RequestError::Refused { code: -32602, message } if message == "no such tool")
        );
        assert!(matches!(next(), RequestError::InputRequired));
        assert!(matches!(next(), RequestError::Unreadable { .. }));
        assert!(matches!(next(), RequestError::Unreadable { .. }));
        assert!(matches!(next(), RequestError::Lost { .. }));
        daemon.join().unwrap();
    }

    #[test]
    fn where_the_service_is_in_use_nothing_else_is_started() {
        let named = DaemonAddress::choose(Some("/s".into()), || false);
        assert_eq!(named, PathBuf::from("/s").into());
        assert_eq!(DaemonAddress::choose(Some("/s".into()), || true), named);
        let service = DaemonAddress::choose(None, || true);
        assert_eq!(service, PathBuf::from(SERVICE.socket).into());
        assert!(service.is_service() && !named.is_service());
        let own = DaemonAddress::choose(None, || false);
        assert!(own.private && !own.is_service());
        assert_eq!(
            DaemonAddress::choose(Some(own.socket.clone()), || true),
            own,
            "it is named"
        );
        // One that is down says how it is started.
        let down = Unavailable {
            socket: service.socket,
            source: io::ErrorKind::NotFound.into(),
        };
        for part in [SERVICE.start, "--socket", &own.socket.display().to_string()] {
            assert!(down.to_string().contains(part), "{part}: {down}");
        }
    }

    #[test]
    fn says_how_to_start_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let error = DaemonConnection::open(&dir.path().join("none").into(), false).unwrap_err();
        assert!(error.to_string().contains("is not running"), "{error}");
        assert!(
            error.to_string().contains(start_command(&error.socket)),
            "{error}"
        );
        let denied = Unavailable {
            source: io::ErrorKind::PermissionDenied.into(),
            ..error
        };
        assert!(denied.to_string().contains("group mcpusers"), "{denied}");
    }
}

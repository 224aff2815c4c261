//! The daemon's socket, without the bridge: MCP 2026-07-28, one JSON-RPC message a line, one
//! request at a time.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use colibri_files::{LineRead, read_line};
use colibri_paths::SERVICE;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::ClientError;

/// The protocol's version.
const VERSION: &str = "2026-07-28";
/// No line of the daemon is longer, in bytes.
const MAX_LINE: usize = 64 << 20;
/// The most pages of a list.
const MAX_PAGES: usize = 1000;

/// The members of a JSON object, each as it was written.
pub type RawMembers = BTreeMap<String, Box<RawValue>>;

/// Reads a JSON object no deeper than its members, so that nothing in them is written anew.
///
/// # Errors
/// What is wrong with the text.
pub fn members(text: &str) -> Result<RawMembers, serde_json::Error> {
    serde_json::from_str(text)
}

/// A connection to the daemon, for one program that asks one thing after another.
///
/// ```no_run
/// # use std::time::{Duration, Instant};
/// # use colibri_client::Daemon;
/// let mut daemon = Daemon::connect(&Daemon::socket(), Instant::now() + Duration::from_secs(30))?;
/// let result = daemon.call_tool("git__log", r#"{"count": 3}"#)?;
/// println!("{}", result.text);
/// # Ok::<(), colibri_client::ClientError>(())
/// ```
#[derive(Debug)]
pub struct Daemon {
    input: BufReader<DeadlineStream>,
    socket: PathBuf,
    next: u64,
    /// The reason that it last gave for which a request waits.
    waits: Option<String>,
}

/// A tool as the daemon lists it.
#[derive(Debug, Clone)]
pub struct DaemonTool {
    /// `server__tool`: by which it is called.
    pub name: String,
    /// The server's id; `None`: it is Colibri's own.
    pub server: Option<String>,
    /// The server's own name of it.
    pub tool: String,
    /// Its purpose; empty if nothing is said.
    pub description: String,
    /// The JSON Schema of its arguments, as the server wrote it.
    pub input_schema: Box<RawValue>,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// Its text blocks, joined by line ends; other blocks are named in brackets (`[image:
    /// image/png]`).
    pub text: String,
    /// The tool, or the daemon's rules, say that it failed.
    pub is_error: bool,
    /// The daemon's code of that failure (docs/errors.md), if it is one of its own.
    pub code: Option<String>,
    /// The structured content for programs, or null.
    pub structured: Value,
}

fn named_socket() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let named = named("COLIBRI_MCP_SOCKET").or_else(|| named("COLIBRI_DAEMON_SOCKET"));
    named.map(PathBuf::from)
}

impl Daemon {
    /// The socket of the daemon: the path in `COLIBRI_MCP_SOCKET` or `COLIBRI_DAEMON_SOCKET`, else
    /// the service's socket.
    pub fn socket() -> PathBuf {
        named_socket().unwrap_or_else(|| PathBuf::from(SERVICE.socket))
    }

    /// The same where a daemon is expected: the environment names one, or the service is enabled or
    /// runs. A service that is enabled may be down.
    pub fn expected_socket() -> Option<PathBuf> {
        let service = || SERVICE.in_use().map(|_| PathBuf::from(SERVICE.socket));
        named_socket().or_else(service)
    }

    /// Connects. Whatever is asked over the connection is answered by `until`, or is an error.
    ///
    /// # Errors
    /// [`ClientError::Io`]: nobody listens, or this user may not connect.
    pub fn connect(socket: &Path, until: Instant) -> Result<Daemon, ClientError> {
        let failed = || ClientError::io(format!("connecting to {}", socket.display()));
        let mut stream = UnixStream::connect(socket).map_err(failed())?;
        stream
            .write_all(b"{\"colibri\":1,\"narrow\":[]}\n")
            .map_err(failed())?;
        Ok(Daemon {
            input: BufReader::with_capacity(64 << 10, DeadlineStream { stream, until }),
            socket: socket.to_owned(),
            next: 1,
            waits: None,
        })
    }

    /// Sends a request and returns its result; `params` is a JSON object without line ends.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: the daemon answered with an error. [`ClientError::TimedOut`], [`ClientError::Io`],
    /// [`ClientError::Unreadable`].
    pub fn request(&mut self, method: &str, params: &str) -> Result<Box<RawValue>, ClientError> {
        let id = self.next;
        self.next += 1;
        // The per-request fields (basic/index, "_meta"); the token asks for progress.
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": { "name": "colibri-client", "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": id,
        });
        let inner = params
            .trim()
            .strip_prefix('{')
            .and_then(|params| params.strip_suffix('}'));
        let inner = inner.filter(|inner| !inner.contains('\n')).map(str::trim);
        let inner = inner.ok_or_else(|| {
            ClientError::Unreadable(format!(
                "the parameters of {method} are no object in a line"
            ))
        })?;
        let comma = if inner.is_empty() { "" } else { "," };
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{},\"params\":{{{inner}{comma}\"_meta\":{meta}}}}}\n",
            json!(method)
        );
        self.waits = None;
        self.input
            .get_mut()
            .send(line.as_bytes())
            .map_err(|source| self.failed(method, source))?;
        loop {
            let line = self.line().map_err(|source| self.failed(method, source))?;
            if let Some(answer) = self.said(&line, id, method)? {
                return Ok(answer);
            }
        }
    }

    /// The result in a line, if it is the answer.
    fn said(
        &mut self,
        line: &str,
        id: u64,
        method: &str,
    ) -> Result<Option<Box<RawValue>>, ClientError> {
        let unreadable =
            |why: &str| ClientError::Unreadable(format!("the daemon's to {method}: {why}"));
        let mut said = members(line).map_err(|error| unreadable(&error.to_string()))?;
        if said.contains_key("method") {
            let params = said
                .get("params")
                .and_then(|params| serde_json::from_str::<Value>(params.get()).ok());
            let params = params.unwrap_or_default();
            if params["_meta"]["org.colibri/approval"].is_string() {
                self.waits = params["message"].as_str().map(str::to_owned);
            }
            return Ok(None);
        }
        if said
            .get("id")
            .is_none_or(|said| said.get() != id.to_string())
        {
            return Ok(None);
        }
        if let Some(error) = said.get("error") {
            let error: Value = serde_json::from_str(error.get()).unwrap_or_default();
            return Err(ClientError::Refused(
                error["message"]
                    .as_str()
                    .unwrap_or("it does not say why")
                    .to_owned(),
            ));
        }
        said.remove("result")
            .map(Some)
            .ok_or_else(|| unreadable("it has no result"))
    }

    fn failed(&self, method: &str, source: io::Error) -> ClientError {
        let mut doing = format!("asking {} for {method}", self.socket.display());
        if let Some(waits) = &self.waits {
            doing = format!("{doing} ({waits})");
        }
        ClientError::io(doing)(source)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        // One byte more than a line may have: a longer one is an error at once.
        let mut input = (&mut self.input).take(MAX_LINE as u64 + 1);
        match read_line(&mut input, MAX_LINE, &mut line)? {
            LineRead::Line => {
                String::from_utf8(line).map_err(|_| io::Error::other("a line is not UTF-8"))
            }
            LineRead::TooLong { .. } => Err(io::Error::other("a line is over 64 MiB")),
            LineRead::Unterminated | LineRead::End => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// All tools that this user is listed.
    ///
    /// # Errors
    /// Those of [`Daemon::request`].
    pub fn tools(&mut self) -> Result<Vec<DaemonTool>, ClientError> {
        let unreadable = |why: &dyn std::fmt::Display| {
            ClientError::Unreadable(format!("the daemon's list of tools: {why}"))
        };
        let mut tools = Vec::new();
        let mut params = "{}".to_owned();
        for _ in 0..MAX_PAGES {
            let page = self.request("tools/list", &params)?;
            let page = members(page.get()).map_err(|error| unreadable(&error))?;
            let listed = page.get("tools").map_or("[]", |tools| tools.get());
            let listed: Vec<RawMembers> =
                serde_json::from_str(listed).map_err(|error| unreadable(&error))?;
            for tool in &listed {
                tools.push(
                    DaemonTool::read(tool)
                        .ok_or_else(|| unreadable(&"a tool has no name or schema"))?,
                );
            }
            match page.get("nextCursor") {
                Some(cursor) => params = format!("{{\"cursor\":{}}}", cursor.get()),
                None => return Ok(tools),
            }
        }
        Err(unreadable(&"it has no end"))
    }

    /// Calls a tool by the name under which the daemon lists it, `server__tool`. `arguments` is a
    /// JSON object without line ends, and is passed on as it is.
    ///
    /// # Errors
    /// Those of [`Daemon::request`]. A tool that fails is no error here: [`ToolResult::is_error`].
    pub fn call_tool(&mut self, name: &str, arguments: &str) -> Result<ToolResult, ClientError> {
        members(arguments).map_err(|error| {
            ClientError::Unreadable(format!("the arguments of {name}: {error}"))
        })?;
        let params = format!("{{\"name\":{},\"arguments\":{arguments}}}", json!(name));
        let raw = self.request("tools/call", &params)?;
        let result: Value = serde_json::from_str(raw.get()).map_err(|error| {
            ClientError::Unreadable(format!("the daemon's result of {name}: {error}"))
        })?;
        if result["resultType"] == "input_required" {
            return Err(ClientError::Refused(format!(
                "{name} asks for input, which only an editor or agent can give"
            )));
        }
        let code = result["_meta"]["org.colibri/error"]["code"].as_str();
        Ok(ToolResult {
            text: text(&result),
            is_error: result["isError"] == true,
            code: code.map(str::to_owned),
            structured: result["structuredContent"].clone(),
        })
    }
}

impl DaemonTool {
    fn read(tool: &RawMembers) -> Option<DaemonTool> {
        let value = |key: &str| serde_json::from_str::<Value>(tool.get(key)?.get()).ok();
        let text = |key: &str| value(key)?.as_str().map(str::to_owned);
        let meta = value("_meta").unwrap_or_default();
        let of_server = |key: &str| meta[key].as_str().map(str::to_owned);
        let name = text("name")?;
        Some(DaemonTool {
            server: of_server("org.colibri/server"),
            tool: of_server("org.colibri/name").unwrap_or_else(|| name.clone()),
            description: text("description").unwrap_or_default(),
            input_schema: tool.get("inputSchema")?.clone(),
            name,
        })
    }
}

/// The text of a tool's result: its text blocks, joined by line ends, and other blocks named in
/// brackets.
fn text(result: &Value) -> String {
    let blocks = result["content"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if blocks.is_empty() && !result["structuredContent"].is_null() {
        return result["structuredContent"].to_string();
    }
    let blocks: Vec<String> = blocks.iter().map(block).collect();
    blocks.join("\n")
}

fn block(block: &Value) -> String {
    let kind = block["type"].as_str().unwrap_or("unknown");
    let detail = match kind {
        "text" => return block["text"].as_str().unwrap_or_default().to_owned(),
        "resource" => &block["resource"]["uri"],
        "resource_link" => &block["uri"],
        _ => &block["mimeType"],
    };
    match detail.as_str() {
        Some(detail) => format!("[{kind}: {detail}]"),
        None => format!("[{kind}]"),
    }
}

/// A connection on which each read and write ends by a deadline.
#[derive(Debug)]
struct DeadlineStream {
    stream: UnixStream,
    until: Instant,
}

impl DeadlineStream {
    fn remaining(&self) -> io::Result<Duration> {
        let remaining = self.until.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(remaining)
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.remaining()?))?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.remaining()?))?;
        self.stream.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    /// A daemon that says these lines after each request, with the request's id for `ID`; what it
    /// was asked.
    fn daemon(socket: &Path, answers: Vec<String>) -> std::thread::JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut asked = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut all = vec![asked.next().unwrap().unwrap()];
            for answer in answers {
                let line = asked.next().unwrap().unwrap();
                let id = members(&line).unwrap()["id"].get().to_owned();
                all.push(line);
                (&stream)
                    .write_all(answer.replace("ID", &id).as_bytes())
                    .unwrap();
            }
            all
        })
    }

    fn answer(result: &str) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{result}}}\n")
    }

    #[test]
    fn a_tool_is_listed_and_called_and_nothing_is_written_anew() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("s");
        let schema = r#"{"b":1e400,"a":123456789012345678901234567890}"#;
        let tool = format!(
            r#"{{"name":"s__t","inputSchema":{schema},"_meta":{{"org.colibri/server":"s","org.colibri/name":"t"}}}}"#
        );
        let own = r#"{"name":"colibri_status","description":"d","inputSchema":{}}"#;
        let content = r#"[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":""},
            {"type":"resource_link","uri":"x:y"},{"type":"strange"},{"type":"text","text":"b"}]"#;
        let served = daemon(
            &socket,
            vec![
                answer(&format!(r#"{{"tools":[{tool}],"nextCursor":"c\"1"}}"#)),
                answer(&format!(r#"{{"tools":[{own}]}}"#)),
                // What is told meanwhile, and what answers another, is not the answer.
                "{\"method\":\"notifications/message\"}\n{\"id\":999,\"result\":{}}\n".to_owned()
                    + &answer(&format!(r#"{{"content":{content}}}"#).replace('\n', "")),
                answer(
                    r#"{"content":[],"isError":true,"structuredContent":{"x":1},"_meta":{"org.colibri/error":{"code":"GATE_CLOSED"}}}"#,
                ),
                "{\"id\":ID,\"error\":{\"code\":1,\"message\":\"no\"}}\n".to_owned(),
            ],
        );
        let mut daemon =
            Daemon::connect(&socket, Instant::now() + Duration::from_secs(30)).unwrap();
        let tools = daemon.tools().unwrap();
        assert_eq!(tools[0].input_schema.get(), schema);
        assert_eq!(
            (tools[0].server.as_deref(), tools[0].tool.as_str()),
            (Some("s"), "t")
        );
        assert_eq!(
            (tools[1].server.as_deref(), tools[1].tool.as_str()),
            (None, "colibri_status")
        );
        let result = daemon.call_tool("s__t", r#"{"n":1e400}"#).unwrap();
        assert_eq!(
            result.text,
            "a\n[image: image/png]\n[resource_link: x:y]\n[strange]\nb"
        );
        assert!(!result.is_error);
        let result = daemon.call_tool("s__t", "{}").unwrap();
        assert_eq!(
            (result.is_error, result.code.as_deref()),
            (true, Some("GATE_CLOSED"))
        );
        assert_eq!(result.text, r#"{"x":1}"#);
        let error = daemon.call_tool("s__t", "{}").unwrap_err();
        assert!(
            matches!(&error, ClientError::Refused(said) if said == "no"),
            "{error}"
        );
        let asked = served.join().unwrap();
        assert_eq!(asked[0], r#"{"colibri":1,"narrow":[]}"#);
        assert!(asked[2].contains(r#""cursor":"c\"1""#), "{}", asked[2]);
        assert!(
            asked[3].contains(r#""arguments":{"n":1e400}"#),
            "{}",
            asked[3]
        );
    }

    #[test]
    fn one_line_never_becomes_two() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        let mut daemon =
            Daemon::connect(&socket, Instant::now() + Duration::from_millis(50)).unwrap();
        for params in ["[]", "{", "", "{\n}"] {
            assert!(
                matches!(daemon.request("x", params), Err(ClientError::Unreadable(_))),
                "{params}"
            );
        }
        assert!(matches!(
            daemon.request("x", "{}"),
            Err(ClientError::TimedOut(_))
        ));
    }
}

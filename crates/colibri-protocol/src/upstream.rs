//! The daemon as the client of a server process: what it sends, and what it makes of the answers.
//!
//! Messages are whole, without a line end. Ids towards a server are the daemon's own integers. Nothing that a server
//! answers is trusted: a wrong type, an endless list, a cursor that comes back are ordinary cases here.

use std::borrow::Cow;
use std::collections::HashSet;

use super::answer::{NAME, TITLE, VERSION};
use super::error::{
    HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY, RpcError, UNSUPPORTED_PROTOCOL_VERSION,
};
use super::rewrites::modern_meta;
use super::version::Version;
use super::{Answer, prefix};
use colibri_text::brief;
use colibri_wire::Json;
use colibri_wire::json::{Kind, string};

/// How many tools of one server are taken; those after are left out and counted.
pub const TOOLS_LIMIT: usize = 10_000;
/// How many pages of one list are walked.
pub const PAGES_LIMIT: usize = 1_000;
/// How long one tool's definition may be, in bytes.
pub const DEFINITION_LIMIT: usize = 1024 * 1024;
/// How many bytes of definitions of one server are taken; those after are left out and counted.
pub const LIST_LIMIT: usize = 16 * 1024 * 1024;
/// How long a cursor may be that is sent back, in bytes.
pub const CURSOR_LIMIT: usize = 8 * 1024;
/// The longest time a server's list counts as fresh, in milliseconds: a day.
pub const TTL_LIMIT_MS: u64 = 24 * 60 * 60 * 1000;

/// How many tools that were left out are named, each with its reason.
const NAMED_LIMIT: usize = 20;

/// `initialize`, in the newest legacy version. No capability is declared: there is no way to know which client a
/// request of the server would be for.
pub fn initialize(id: u64) -> Vec<u8> {
    let version = Version::LATEST_LEGACY;
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"initialize\",\"params\":{{\"protocolVersion\":{},\
         \"capabilities\":{{}},\"clientInfo\":{{\"name\":{},\"title\":{},\"version\":{}}}}}}}",
        string(version.as_str()),
        string(NAME),
        string(TITLE),
        string(VERSION)
    )
    .into_bytes()
}

/// `notifications/initialized`, the last step of the handshake.
pub fn initialized() -> Vec<u8> {
    br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec()
}

/// `server/discover`, which finds out the era of a server ([`read_probe`]) and what it offers.
pub fn discover(id: u64) -> Vec<u8> {
    request(id, "server/discover", Version::LATEST, "")
}

/// `tools/list`. `cursor` is `nextCursor` of the page before, as the server wrote it.
pub fn tools_list(id: u64, server: Version, cursor: Option<&str>) -> Vec<u8> {
    let cursor = cursor.map(|cursor| format!("\"cursor\":{cursor}")).unwrap_or_default();
    request(id, "tools/list", server, &cursor)
}

/// `subscriptions/listen` for changes of the tool list, which a modern server tells to nobody else.
pub fn listen_to_tools(id: u64) -> Vec<u8> {
    request(
        id,
        "subscriptions/listen",
        Version::LATEST,
        "\"notifications\":{\"toolsListChanged\":true}",
    )
}

/// `notifications/cancelled` for a request of the daemon's. `initialize` must never be cancelled.
pub fn cancelled(id: u64, reason: &str) -> Vec<u8> {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":{}}}}}",
        string(reason)
    )
    .into_bytes()
}

/// The answer to a request that the *server* made: success for a legacy server's `ping`, else -32601, since nothing
/// that would allow it to ask was declared. `id` is as the server wrote it.
pub fn answer_server(id: &str, method: &str, server: Version) -> Vec<u8> {
    let answer = if method == "ping" && !server.is_modern() {
        Answer::Result(b"{}".to_vec())
    } else {
        let method = prefix(method, 100);
        let message = format!(
            "{} was not declared by this client; it takes no such request",
            string(method)
        );
        Answer::Error(RpcError::new(METHOD_NOT_FOUND, message))
    };
    answer.to_message(Some(id))
}

fn request(id: u64, method: &str, server: Version, members: &str) -> Vec<u8> {
    let meta = if server.is_modern() {
        format!("\"_meta\":{{{}}}", modern_meta(server))
    } else {
        String::new()
    };
    let comma = if meta.is_empty() || members.is_empty() { "" } else { "," };
    let params = if meta.is_empty() && members.is_empty() {
        String::new()
    } else {
        format!(",\"params\":{{{members}{comma}{meta}}}")
    };
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"{params}}}").into_bytes()
}

/// A notification that a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification {
    /// Progress of the daemon's request with this token.
    Progress {
        /// The daemon's own token.
        token: u64,
    },
    /// Its tools are others now.
    ToolsListChanged,
    /// Something for its log.
    Message,
}

/// Reads a server's notification; `None` for one that is unknown, malformed, or about a token that no daemon gave out.
pub fn read_notification(method: &str, params: Option<Json<'_>>) -> Option<Notification> {
    match method {
        "notifications/progress" => {
            let params = params.filter(|params| params.ambiguous(&["progressToken"]).is_none())?;
            Some(Notification::Progress {
                token: params.get("progressToken")?.as_u64()?,
            })
        }
        "notifications/tools/list_changed" => Some(Notification::ToolsListChanged),
        "notifications/message" => Some(Notification::Message),
        _ => None,
    }
}

/// Why a server's answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It breaks the protocol.
    #[error("{method}: {what}")]
    Invalid {
        /// Which request it was the answer to.
        method: &'static str,
        /// What is wrong, and where.
        what: String,
    },
    /// It speaks no version of MCP that the daemon does.
    #[error("{method}: the server speaks MCP {spoken}, and the daemon none of these: update one of them")]
    Version {
        /// Which request it was the answer to.
        method: &'static str,
        /// Its versions, shortened.
        spoken: String,
    },
}

/// What a server says of itself, by either era's way.
#[derive(Debug, Clone)]
pub struct ServerSays<'a> {
    /// The version to speak with it.
    pub version: Version,
    /// Whether it has tools.
    pub tools: bool,
    /// Whether it tells when its tools change.
    pub tools_list_changed: bool,
    /// `capabilities` as written.
    pub capabilities: Option<Json<'a>>,
    /// Its `Implementation` as written: for people to read, never for decisions.
    pub server_info: Option<Json<'a>>,
    /// Its instructions; not where they are no string that can be read.
    pub instructions: Option<Cow<'a, str>>,
}

impl<'a> ServerSays<'a> {
    fn read(version: Version, result: Json<'a>, server_info: Option<Json<'a>>) -> ServerSays<'a> {
        let capabilities = result.get("capabilities").filter(Json::is_object);
        let tools = capabilities
            .and_then(|capabilities| capabilities.get("tools"))
            .filter(Json::is_object);
        ServerSays {
            version,
            tools: tools.is_some(),
            tools_list_changed: tools
                .and_then(|tools| tools.get("listChanged"))
                .and_then(|yes| yes.as_bool())
                == Some(true),
            capabilities,
            server_info: server_info.filter(Json::is_object),
            instructions: result.get("instructions").and_then(|text| text.as_str()),
        }
    }

    /// `name version` of the server, short and fit for a log line.
    pub fn label(&self) -> String {
        let field = |key| {
            let text = self
                .server_info
                .and_then(|info| info.get(key))
                .and_then(|value| value.as_str());
            brief(&text.unwrap_or_default(), 80)
        };
        format!("{} {}", field("name"), field("version")).trim().to_owned()
    }
}

/// Reads the result of `initialize`.
///
/// # Errors
/// A version that we do not speak, or an answer that is not one to `initialize`.
pub fn read_initialize_result(result: Json<'_>) -> Result<ServerSays<'_>, Unusable> {
    const METHOD: &str = "initialize";
    let Some(answered) = result.get("protocolVersion").and_then(|version| version.as_str()) else {
        return Err(invalid(
            METHOD,
            "the result has no \"protocolVersion\" that is a string",
        ));
    };
    match Version::parse(&answered).filter(|version| !version.is_modern()) {
        Some(version) => Ok(ServerSays::read(version, result, result.get("serverInfo"))),
        None => Err(Unusable::Version {
            method: METHOD,
            spoken: brief(&answered, 40),
        }),
    }
}

/// What a server's answer to `server/discover` tells of its era.
#[derive(Debug, Clone)]
pub enum Probe<'a> {
    /// It is modern, and this is what it says.
    Modern(ServerSays<'a>),
    /// It is modern but speaks only legacy versions, or is legacy: `initialize` it.
    Legacy,
}

/// Reads the answer to [`discover`] (2026-07-28, basic/transports/stdio, "Backward Compatibility"): a discover result
/// and the errors of the modern era are a modern server's, everything else is a legacy one's.
///
/// # Errors
/// [`Unusable::Version`] for a modern server that shares no version with the daemon.
pub fn read_probe<'a>(outcome: Result<Json<'a>, Json<'a>>) -> Result<Probe<'a>, Unusable> {
    const METHOD: &str = "server/discover";
    let (result, versions) = match outcome {
        Ok(result) => (Some(result), result.get("supportedVersions")),
        Err(error) => match error.get("code").and_then(|code| code.text().parse::<i64>().ok()) {
            Some(UNSUPPORTED_PROTOCOL_VERSION) => (None, error.get("data").and_then(|data| data.get("supported"))),
            Some(code @ (HEADER_MISMATCH | MISSING_REQUIRED_CLIENT_CAPABILITY)) => {
                return Err(invalid(
                    METHOD,
                    &format!("refused with {code}, which this request gives no reason for"),
                ));
            }
            _ => return Ok(Probe::Legacy),
        },
    };
    let Some(versions) = versions.filter(|versions| versions.kind() == Kind::Array) else {
        return Ok(Probe::Legacy);
    };
    let mut spoken = String::new();
    let mut best: Option<Version> = None;
    for version in versions.elements().take(100).filter_map(|version| version.as_str()) {
        best = best.max(Version::parse(&version));
        if spoken.len() < 100 {
            spoken.push_str(if spoken.is_empty() { "" } else { ", " });
            spoken.push_str(&brief(&version, 40));
        }
    }
    match (best, result) {
        (Some(version), Some(result)) if version.is_modern() => {
            let info = result
                .get("_meta")
                .and_then(|meta| meta.get(super::answer::META_SERVER_INFO));
            // Drafts before 2026-07-28 had it as a member of the result.
            Ok(Probe::Modern(ServerSays::read(
                version,
                result,
                info.or(result.get("serverInfo")),
            )))
        }
        (Some(version), None) if version.is_modern() => {
            Err(invalid(METHOD, &format!("refused {version} and names it as supported")))
        }
        (Some(_), _) => Ok(Probe::Legacy),
        (None, _) if spoken.is_empty() => Err(invalid(METHOD, "the server names no version that it speaks")),
        (None, _) => Err(Unusable::Version { method: METHOD, spoken }),
    }
}

fn invalid(method: &'static str, what: &str) -> Unusable {
    Unusable::Invalid {
        method,
        what: what.to_owned(),
    }
}

/// One tool of a server.
#[derive(Debug, Clone)]
pub struct Tool<'a> {
    /// The server's own name of it.
    pub name: Cow<'a, str>,
    /// The definition as written.
    pub definition: Json<'a>,
}

/// One page of a server's `tools/list`.
#[derive(Debug, Clone)]
pub struct ToolsPage<'a> {
    /// What can be offered, in the server's order.
    pub tools: Vec<Tool<'a>>,
    /// How many entries were left out.
    pub left_out: usize,
    /// The first of them, each with the reason, fit for a log line.
    pub reasons: Vec<String>,
    /// Where the next page begins, as the server wrote it; `None` on the last one.
    pub next_cursor: Option<&'a str>,
    /// For how long the page may be kept, in milliseconds; `None` where the server does not say, 0 where it says
    /// nonsense.
    pub ttl_ms: Option<u64>,
}

/// A walk over the pages of a server's `tools/list`: what it has seen, so that it ends.
#[derive(Debug, Default)]
pub struct Walk {
    names: HashSet<String>,
    cursors: HashSet<String>,
    pages: usize,
    bytes: usize,
}

impl Walk {
    /// Reads the next page: the result of [`tools_list`].
    ///
    /// One bad entry hides only itself: it is left out, and named. A name that came before is one too. The walk ends at
    /// a page without `nextCursor`, at a cursor that came before, and at the limits.
    ///
    /// # Errors
    /// Where the result has no list of tools at all.
    pub fn read_tools<'a>(&mut self, result: Json<'a>) -> Result<ToolsPage<'a>, Unusable> {
        const METHOD: &str = "tools/list";
        if let Some(key) = result.ambiguous(&["tools", "nextCursor"]) {
            return Err(invalid(
                METHOD,
                &format!("two members of the result can be read as \"{key}\""),
            ));
        }
        let Some(list) = result.get("tools").filter(|list| list.kind() == Kind::Array) else {
            return Err(invalid(METHOD, "the result has no \"tools\" that is an array"));
        };
        self.pages += 1;
        let mut page = ToolsPage {
            tools: Vec::new(),
            left_out: 0,
            reasons: Vec::new(),
            next_cursor: None,
            ttl_ms: result.get("ttlMs").map(read_ttl),
        };
        for (index, definition) in list.elements().enumerate() {
            match self.take_tool(definition) {
                Ok(tool) => page.tools.push(tool),
                Err(reason) => {
                    page.left_out += 1;
                    if page.reasons.len() < NAMED_LIMIT {
                        page.reasons
                            .push(format!("tool {index} of page {}: {reason}", self.pages));
                    }
                }
            }
        }
        let cursor = result
            .get("nextCursor")
            .filter(|cursor| cursor.kind() == Kind::String)
            .map(|cursor| cursor.text());
        page.next_cursor = cursor.filter(|cursor| {
            cursor.len() <= CURSOR_LIMIT
                && self.pages < PAGES_LIMIT
                && self.names.len() < TOOLS_LIMIT
                && self.bytes < LIST_LIMIT
                && self.cursors.insert((*cursor).to_owned())
        });
        Ok(page)
    }

    fn take_tool<'a>(&mut self, definition: Json<'a>) -> Result<Tool<'a>, String> {
        const KEYS: [&str; 7] = [
            "name",
            "title",
            "description",
            "inputSchema",
            "outputSchema",
            "annotations",
            "_meta",
        ];
        if !definition.is_object() {
            return Err("it is no object".to_owned());
        }
        if let Some(key) = definition.ambiguous(&KEYS) {
            return Err(format!("two of its members can be read as \"{key}\""));
        }
        let Some(name) = definition
            .get("name")
            .and_then(|name| name.as_str())
            .filter(|name| !name.is_empty())
        else {
            return Err("it has no \"name\" that is a string".to_owned());
        };
        let shown = || brief(&name, 80);
        if !definition.get("inputSchema").is_some_and(|schema| schema.is_object()) {
            return Err(format!("{}: it has no \"inputSchema\" that is an object", shown()));
        }
        let length = definition.text().len();
        if length > DEFINITION_LIMIT {
            return Err(format!(
                "{}: its definition is longer than {DEFINITION_LIMIT} bytes",
                shown()
            ));
        }
        if self.bytes + length > LIST_LIMIT {
            return Err(format!(
                "{}: the server's definitions are longer than {LIST_LIMIT} bytes together",
                shown()
            ));
        }
        if self.names.len() >= TOOLS_LIMIT {
            return Err(format!("{}: the server has more than {TOOLS_LIMIT} tools", shown()));
        }
        if !self.names.insert(name.clone().into_owned()) {
            return Err(format!("{}: another tool has that name", shown()));
        }
        self.bytes += length;
        Ok(Tool { name, definition })
    }
}

/// `ttlMs` as a whole number within reason. 2026-07-28, server/utilities/caching: a negative one counts as 0.
fn read_ttl(ttl: Json<'_>) -> u64 {
    let number = if ttl.kind() == Kind::Number {
        ttl.text().parse::<f64>().unwrap_or(0.0)
    } else {
        0.0
    };
    // A float cast saturates: negative and NaN become 0.
    (number as u64).min(TTL_LIMIT_MS)
}

#[cfg(test)]
mod tests {
    use super::super::request::{self, Session};
    use super::Version::*;
    use super::*;
    use colibri_wire::{Envelope, envelope};
    use serde_json::{Value, json};

    fn json(text: &str) -> Json<'_> {
        Json::parse(text.as_bytes()).unwrap()
    }

    fn value(bytes: &[u8]) -> Value {
        assert!(Envelope::parse(bytes).is_ok());
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn what_is_sent_is_what_the_daemon_itself_would_take() {
        let classified = |message: &[u8], session| {
            let envelope::Kind::Request { method, params, .. } = Envelope::parse(message).unwrap().kind else {
                panic!()
            };
            request::classify(
                session,
                &[super::super::Capability::Tools],
                &method.as_str().unwrap(),
                params,
            )
            .unwrap()
            .version
        };
        assert_eq!(classified(&initialize(1), Session::Fresh), V2025_11_25);
        assert_eq!(classified(&discover(1), Session::Fresh), V2026_07_28);
        assert_eq!(
            classified(&tools_list(1, V2026_07_28, Some("\"c\"")), Session::Fresh),
            V2026_07_28
        );
        for version in &Version::ALL[..4] {
            assert_eq!(
                classified(&tools_list(1, *version, None), Session::Legacy(*version)),
                *version
            );
        }
        let message = listen_to_tools(1);
        assert_eq!(classified(&message, Session::Fresh), V2026_07_28);
        let envelope::Kind::Request { params, .. } = Envelope::parse(&message).unwrap().kind else {
            panic!()
        };
        assert!(request::read_listen(params).unwrap().tools_list_changed);
        let message = initialize(1);
        let envelope::Kind::Request { params, .. } = Envelope::parse(&message).unwrap().kind else {
            panic!()
        };
        assert_eq!(request::read_initialize(params).unwrap().version, V2025_11_25);
        let message = cancelled(7, "timed \"out\"");
        let envelope::Kind::Notification { method, params } = Envelope::parse(&message).unwrap().kind else {
            panic!()
        };
        let read = request::read_notification(&method.as_str().unwrap(), params);
        assert!(matches!(read, Some(request::Notification::Cancelled { request }) if request.text() == "7"));
    }

    #[test]
    fn messages_to_servers() {
        assert_eq!(
            tools_list(3, V2025_06_18, None),
            br#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#
        );
        assert_eq!(
            tools_list(3, V2025_06_18, Some(r#""\u0061""#)),
            br#"{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"\u0061"}}"#
        );
        assert_eq!(
            value(&tools_list(3, V2026_07_28, Some("\"a\"")))["params"]["cursor"],
            "a"
        );
        assert_eq!(value(&initialize(0))["params"]["capabilities"], json!({}));
        assert_eq!(value(&initialized())["method"], "notifications/initialized");
    }

    #[test]
    fn requests_of_a_server_are_answered() {
        assert_eq!(
            answer_server("\"p\"", "ping", V2025_11_25),
            br#"{"jsonrpc":"2.0","id":"p","result":{}}"#
        );
        for (method, version) in [
            ("ping", V2026_07_28),
            ("sampling/createMessage", V2025_11_25),
            ("x\"\n", V2024_11_05),
        ] {
            assert_eq!(value(&answer_server("1", method, version))["error"]["code"], -32601);
        }
        assert!(answer_server("1", &"m".repeat(1 << 20), V2025_11_25).len() < 400);
    }

    #[test]
    fn reads_notifications_of_a_server() {
        let read = |method, params: &'static str| read_notification(method, Some(json(params)));
        let progress = "notifications/progress";
        assert_eq!(
            read(progress, r#"{"progressToken":7,"progress":1}"#),
            Some(Notification::Progress { token: 7 })
        );
        for params in [
            "{}",
            r#"{"progressToken":"7"}"#,
            r#"{"progressToken":7.0}"#,
            r#"{"progressToken":-7}"#,
            r#"{"progressToken":18446744073709551616}"#,
            r#"{"progressToken":7,"progressTOKEN":8}"#,
            "[]",
        ] {
            assert_eq!(read(progress, params), None, "{params}");
        }
        assert_eq!(read_notification(progress, None), None);
        let changed = read_notification("notifications/tools/list_changed", None);
        assert_eq!(changed, Some(Notification::ToolsListChanged));
        assert_eq!(read("notifications/message", "{}"), Some(Notification::Message));
        assert_eq!(read("notifications/nonsense", "{}"), None);
    }

    #[test]
    fn reads_an_initialize_result() {
        let text = r#"{"protocolVersion":"2025-03-26","capabilities":{"tools":{"listChanged":true},"x":1e400},
            "serverInfo":{"name":"n\u001b[31m","version":"1"},"instructions":"Use \u0069t."}"#;
        let says = read_initialize_result(json(text)).unwrap();
        assert_eq!(
            (says.version, says.tools, says.tools_list_changed),
            (V2025_03_26, true, true)
        );
        assert_eq!(says.instructions.as_deref(), Some("Use it."));
        assert_eq!(says.label(), "n\\u{1b}[31m 1");
        assert_eq!(
            says.capabilities.unwrap().text(),
            r#"{"tools":{"listChanged":true},"x":1e400}"#
        );
    }

    #[test]
    fn reads_hostile_initialize_results() {
        for (text, tools) in [
            (r#"{"protocolVersion":"2024-11-05"}"#, false),
            (
                r#"{"protocolVersion":"2024-11-05","capabilities":[],"serverInfo":7,"instructions":{}}"#,
                false,
            ),
            (
                r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":true},"instructions":"\ud800"}"#,
                false,
            ),
            (
                r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":"yes"}}}"#,
                true,
            ),
        ] {
            let says = read_initialize_result(json(text)).unwrap();
            assert_eq!(
                (says.tools, says.tools_list_changed, says.instructions),
                (tools, false, None),
                "{text}"
            );
        }
        for text in [
            "{}",
            "null",
            "[]",
            r#"{"protocolVersion":20251125}"#,
            r#"{"protocolVersion":"\ud800"}"#,
        ] {
            assert!(
                matches!(read_initialize_result(json(text)), Err(Unusable::Invalid { .. })),
                "{text}"
            );
        }
        for text in [
            r#"{"protocolVersion":"2026-07-28"}"#,
            r#"{"protocolVersion":"1.0\u0007"}"#,
        ] {
            assert!(
                matches!(read_initialize_result(json(text)), Err(Unusable::Version { .. })),
                "{text}"
            );
        }
        let long = format!(r#"{{"protocolVersion":"{}"}}"#, "9".repeat(1 << 20));
        assert!(read_initialize_result(json(&long)).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn probes_tell_the_era() {
        let modern = r#"{"resultType":"complete","supportedVersions":["2099-01-01","2026-07-28","2025-11-25"],"capabilities":{"tools":{}},
            "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2"}},"instructions":"Hi"}"#;
        let Probe::Modern(says) = read_probe(Ok(json(modern))).unwrap() else {
            panic!()
        };
        assert_eq!(
            (says.version, says.tools, says.label()),
            (V2026_07_28, true, "s 2".to_owned())
        );
        for result in [
            "{}",
            "null",
            r#"{"supportedVersions":"2026-07-28"}"#,
            r#"{"supportedVersions":["2025-11-25"]}"#,
            r#"{"supportedVersions":{"0":"2026-07-28"}}"#,
        ] {
            assert!(matches!(read_probe(Ok(json(result))), Ok(Probe::Legacy)), "{result}");
        }
        for error in [
            r#"{"code":-32601,"message":"no"}"#,
            r#"{"code":-32602,"message":"no"}"#,
            r#"{"code":-32000,"message":"not initialized"}"#,
            r#"{"code":"x"}"#,
            "null",
            r#"{"code":-32022,"message":"a legacy server's own meaning"}"#,
            r#"{"code":-32022,"data":{"supported":["2025-11-25"],"requested":"2026-07-28"}}"#,
        ] {
            assert!(matches!(read_probe(Err(json(error))), Ok(Probe::Legacy)), "{error}");
        }
        for (error, is_version) in [
            (r#"{"code":-32022,"data":{"supported":["2099-01-01"]}}"#, true),
            (r#"{"code":-32022,"data":{"supported":[1,null,{}]}}"#, false),
            (r#"{"code":-32022,"data":{"supported":["2026-07-28"]}}"#, false),
            (r#"{"code":-32021}"#, false),
        ] {
            let unusable = read_probe(Err(json(error))).unwrap_err();
            assert_eq!(
                matches!(unusable, Unusable::Version { .. }),
                is_version,
                "{error}: {unusable}"
            );
        }
        let only_unknown = read_probe(Ok(json(r#"{"supportedVersions":["2099-01-01","\u0000"]}"#))).unwrap_err();
        assert!(
            only_unknown.to_string().contains("2099-01-01, \\u{0}"),
            "{only_unknown}"
        );
        let endless = format!(r#"{{"supportedVersions":[{}"x"]}}"#, "\"2099-01-01\",".repeat(100_000));
        assert!(read_probe(Ok(json(&endless))).unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn reads_a_page_of_tools() {
        let text = r#"{"tools":[{"name":"a","inputSchema":{"type":"object"},"x":1e400},{"n\u0061me":"\u0062","inputSchema":{}}],"nextCursor":"\u0063","ttlMs":1500.7,"cacheScope":"public"}"#;
        let page = Walk::default().read_tools(json(text)).unwrap();
        assert_eq!(
            page.tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(
            page.tools[0].definition.text(),
            r#"{"name":"a","inputSchema":{"type":"object"},"x":1e400}"#
        );
        assert_eq!(
            (page.next_cursor, page.ttl_ms, page.left_out),
            (Some(r#""\u0063""#), Some(1500), 0)
        );
    }

    #[test]
    fn one_bad_entry_hides_only_itself() {
        let good = r#"{"name":"good","inputSchema":{}}"#;
        for bad in [
            "null",
            "[]",
            "{}",
            r#"{"name":7,"inputSchema":{}}"#,
            r#"{"name":"","inputSchema":{}}"#,
            r#"{"name":"\ud800","inputSchema":{}}"#,
            r#"{"name":"x","name":"y","inputSchema":{}}"#,
            r#"{"name":"x","NAME":"y","inputSchema":{}}"#,
            r#"{"name":"x","inputSchema":{},"inputSchema":{}}"#,
            r#"{"name":"x","_meta":{},"_Meta":{},"inputSchema":{}}"#,
            r#"{"name":"x"}"#,
            r#"{"name":"x","inputSchema":true}"#,
            good,
        ] {
            let text = format!(r#"{{"tools":[{good},{bad},{{"name":"last","inputSchema":{{}}}}]}}"#);
            let page = Walk::default().read_tools(json(&text)).unwrap();
            let names: Vec<_> = page.tools.iter().map(|tool| tool.name.as_ref()).collect();
            assert_eq!(names, ["good", "last"], "{bad}");
            assert_eq!((page.left_out, page.reasons.len()), (1, 1), "{bad}");
            assert!(page.reasons[0].starts_with("tool 1 of page 1: "), "{}", page.reasons[0]);
        }
    }

    #[test]
    fn lists_that_are_none_are_refused() {
        for text in [
            "{}",
            "null",
            "[]",
            r#"{"tools":{}}"#,
            r#"{"tools":null}"#,
            r#"{"tools":[],"Tools":[]}"#,
        ] {
            assert!(Walk::default().read_tools(json(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn endless_lists_end() {
        let nothing = format!(r#"{{"tools":[{}{{}}]}}"#, "{},".repeat(1_000_000));
        let page = Walk::default().read_tools(json(&nothing)).unwrap();
        assert_eq!(
            (page.tools.len(), page.left_out, page.reasons.len()),
            (0, 1_000_001, NAMED_LIMIT)
        );
        let many: Vec<String> = (0..TOOLS_LIMIT + 5)
            .map(|n| format!(r#"{{"name":"{n}","inputSchema":{{}}}}"#))
            .collect();
        let many = format!(r#"{{"tools":[{}],"nextCursor":"x"}}"#, many.join(","));
        let page = Walk::default().read_tools(json(&many)).unwrap();
        assert_eq!(
            (page.tools.len(), page.left_out, page.next_cursor),
            (TOOLS_LIMIT, 5, None)
        );
        let mut walk = Walk::default();
        let mut pages = 0;
        loop {
            pages += 1;
            let text = format!(r#"{{"tools":[],"nextCursor":"{pages}"}}"#);
            if walk.read_tools(json(&text)).unwrap().next_cursor.is_none() {
                break;
            }
        }
        assert_eq!(pages, PAGES_LIMIT);
    }

    #[test]
    fn long_definitions_are_left_out() {
        let tool = |name: &str, length: usize| {
            format!(
                r#"{{"name":"{name}","inputSchema":{{}},"description":"{}"}}"#,
                "x".repeat(length)
            )
        };
        let text = format!(
            r#"{{"tools":[{},{}]}}"#,
            tool("long", DEFINITION_LIMIT),
            tool("short", 10)
        );
        let page = Walk::default().read_tools(json(&text)).unwrap();
        assert_eq!((page.tools[0].name.as_ref(), page.left_out), ("short", 1));
        let mut walk = Walk::default();
        let mut taken = 0;
        for number in 0.. {
            let tools: Vec<String> = (0..10)
                .map(|n| tool(&format!("{number}.{n}"), DEFINITION_LIMIT - 100))
                .collect();
            let text = format!(r#"{{"tools":[{}],"nextCursor":"{number}"}}"#, tools.join(","));
            let page = walk.read_tools(json(&text)).unwrap();
            taken += page
                .tools
                .iter()
                .map(|tool| tool.definition.text().len())
                .sum::<usize>();
            if page.left_out > 0 {
                break;
            }
        }
        assert!((LIST_LIMIT - DEFINITION_LIMIT..=LIST_LIMIT).contains(&taken), "{taken}");
    }

    #[test]
    fn a_repeated_cursor_ends_the_walk() {
        let mut walk = Walk::default();
        let mut next = |text: &'static str| walk.read_tools(json(text)).unwrap().next_cursor;
        assert_eq!(next(r#"{"tools":[],"nextCursor":"a"}"#), Some("\"a\""));
        assert_eq!(
            next(r#"{"tools":[],"nextCursor":""}"#),
            Some("\"\""),
            "an empty cursor is one"
        );
        assert_eq!(next(r#"{"tools":[],"nextCursor":"a"}"#), None);
        for last in [
            r#"{"tools":[]}"#,
            r#"{"tools":[],"nextCursor":null}"#,
            r#"{"tools":[],"nextCursor":{}}"#,
        ] {
            assert_eq!(next(last), None, "{last}");
        }
        let long = format!(r#"{{"tools":[],"nextCursor":"{}"}}"#, "c".repeat(CURSOR_LIMIT));
        assert_eq!(Walk::default().read_tools(json(&long)).unwrap().next_cursor, None);
    }

    #[test]
    fn ttl_is_a_whole_number_within_reason() {
        for (text, ttl) in [
            ("0", 0),
            ("-5", 0),
            ("60000", 60_000),
            ("1e400", TTL_LIMIT_MS),
            ("1e3", 1_000),
            ("-1e400", 0),
            ("\"60000\"", 0),
            ("null", 0),
            ("123456789012345678901234567890", TTL_LIMIT_MS),
        ] {
            assert_eq!(read_ttl(json(text)), ttl, "{text}");
        }
    }
}

//! A client's frame: its era and version, its method, its `_meta`, and the reasons for which it is
//! refused.

use std::borrow::Cow;

use super::answer::Capability;
use super::logging::Level;
use super::method::Method;
use super::rpc_error::{INVALID_REQUEST, RpcError};
use super::version::Version;
use colibri_wire::Json;
use colibri_wire::json::JsonKind;

/// `_meta` of a modern request: the protocol version. Required.
pub const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta` of a modern request: the client's capabilities. Required.
pub const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta` of a modern request: the client's name and version. Optional (2026-07-28, basic,
/// "Per-request protocol fields").
pub const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta` of a modern request: the lowest level of log messages to send. Optional.
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// `_meta` of any request: the token for progress notifications. Optional.
pub(crate) const META_PROGRESS_TOKEN: &str = "progressToken";

/// The keys of `_meta` that are read here. Two members that could be taken for the same key make a
/// request ambiguous.
const META_KEYS: [&str; 5] = [
    META_PROTOCOL_VERSION,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROGRESS_TOKEN,
];

/// The keys of `params` that policy, routing or a rewrite reads, here or in later stages.
const PARAMS_KEYS: [&str; 17] = [
    "_meta",
    "name",
    "arguments",
    "task",
    "requestState",
    "inputResponses",
    "uri",
    "ref",
    "cursor",
    "protocolVersion",
    "capabilities",
    "clientInfo",
    "requestId",
    "progressToken",
    "notifications",
    "level",
    "taskId",
];

/// The number of [`PARAMS_KEYS`] that are read of each request: the first ones.
const READ_PARAMS: usize = 6;

/// The handshake state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionPhase {
    /// No handshake yet: only modern requests, `initialize` and `ping` are accepted.
    Fresh,
    /// A handshake for this legacy version. Modern requests are still accepted: each request
    /// declares its own version.
    Legacy(Version),
}

impl SessionPhase {
    /// True if the connection accepts JSON-RPC batches. Before the handshake it does not:
    /// `initialize` must not be part of a batch (2025-03-26, basic/lifecycle), and it must come
    /// first.
    pub fn takes_batches(self) -> bool {
        matches!(self, SessionPhase::Legacy(version) if version.has_batches())
    }
}

/// The parts of a request's `_meta` that are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestMeta<'a> {
    /// The `_meta` object.
    pub object: Option<Json<'a>>,
    /// A string or a number.
    pub progress_token: Option<Json<'a>>,
    /// An object; modern only. The client's own claim of its identity: for logs, never for
    /// decisions.
    pub client_info: Option<Json<'a>>,
    /// An object; always present in a modern request.
    pub client_capabilities: Option<Json<'a>>,
    /// One of the eight levels; modern only.
    pub log_level: Option<Level>,
}

/// A valid request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The version in which the request is answered.
    pub version: Version,
    /// `None` for a method of no version of MCP: a method of the operators, of an extension, or an
    /// unknown one.
    pub method: Option<Method>,
    /// The request's `_meta`.
    pub meta: RequestMeta<'a>,
    /// `params.name`, not checked.
    pub name: Option<Json<'a>>,
    /// `params.arguments`, not checked.
    pub arguments: Option<Json<'a>>,
    /// `params.task`, not checked: the caller wants a task and fetches its result later.
    pub task: Option<Json<'a>>,
    /// `params.requestState` and `params.inputResponses`, not checked: for
    /// [`super::input::read_retry`].
    pub retry: [Option<Json<'a>>; 2],
}

/// Reads a request on a connection. `offered` is what [`super::answer::ServerIdentity`] told
/// clients.
///
/// # Errors
/// The error to answer with: -32602 for ambiguous or missing keys and for a request that is of
/// neither era, -32022 for an unknown version, -32601 for a method that the request's version does
/// not have or that is not offered, -32600 for a second handshake.
pub fn classify<'a>(
    session: SessionPhase,
    offered: &[Capability],
    method: &str,
    params: Option<Json<'a>>,
) -> Result<Request<'a>, RpcError> {
    let known = Method::parse(method);
    let [meta_object, name, arguments, task, state, responses] = read_params(params)?;
    let declared = match meta_object.and_then(|meta| meta.get(META_PROTOCOL_VERSION)) {
        Some(value) => Some(
            value
                .as_str()
                .ok_or_else(|| must_be(META_PROTOCOL_VERSION, "a string"))?,
        ),
        None => None,
    };
    let version = match (session, declared.as_deref().map(Version::parse)) {
        (_, Some(Some(version))) if version.is_modern() => version,
        // A legacy client may repeat the version that it negotiated.
        (SessionPhase::Legacy(agreed), Some(Some(version))) if version == agreed => agreed,
        (_, Some(_)) => {
            return Err(RpcError::unsupported_version(
                declared.as_deref().unwrap_or_default(),
            ));
        }
        (SessionPhase::Legacy(agreed), None) => agreed,
        (SessionPhase::Fresh, None) => match known {
            // Version 2025-11-25, basic/lifecycle: "requests other than pings" have to wait for the
            // handshake.
            Some(Method::Initialize | Method::Ping) => Version::LATEST_LEGACY,
            _ => return Err(neither_era()),
        },
    };
    let meta = read_meta(meta_object, version)?;
    match known {
        Some(Method::Initialize) if !version.is_modern() && session != SessionPhase::Fresh => {
            Err(RpcError::new(
                INVALID_REQUEST,
                "this connection is initialized already: open another one",
            ))
        }
        Some(known)
            if !known.is_in(version)
                || !known.capability().is_none_or(|it| offered.contains(&it)) =>
        {
            Err(RpcError::method_not_found(method, version))
        }
        _ => Ok(Request {
            version,
            method: known,
            meta,
            name,
            arguments,
            task,
            retry: [state, responses],
        }),
    }
}

/// The parameters of `initialize`.
#[derive(Debug, Clone)]
pub struct Initialize<'a> {
    /// The version to answer with.
    pub version: Version,
    /// The version that the client requested.
    pub requested: Cow<'a, str>,
    /// `ClientCapabilities`: an object, or `None`.
    pub capabilities: Option<Json<'a>>,
    /// `Implementation`: an object, or `None`. The client's own claim of its identity: for logs,
    /// never for decisions.
    pub client_info: Option<Json<'a>>,
}

/// Reads the parameters of `initialize`.
///
/// # Errors
/// -32602 if they are missing or of the wrong type.
pub fn read_initialize(params: Option<Json<'_>>) -> Result<Initialize<'_>, RpcError> {
    let params = params.ok_or_else(|| must_be("params", "an object"))?;
    let requested = params
        .get("protocolVersion")
        .and_then(|version| version.as_str())
        .ok_or_else(|| must_be("protocolVersion", "a string such as \"2025-11-25\""))?;
    Ok(Initialize {
        version: Version::negotiate(&requested),
        requested,
        capabilities: object(params, "capabilities")?,
        client_info: object(params, "clientInfo")?,
    })
}

/// A notification that a client sends to a server.
#[derive(Debug, Clone, Copy)]
pub enum ClientNotification<'a> {
    /// The end of the handshake.
    Initialized,
    /// The client will not use the answer to the request with this id, which is a string or a
    /// number.
    Cancelled {
        /// The id as written.
        request: Json<'a>,
    },
    /// Progress of the daemon's request with this token.
    Progress {
        /// The daemon's own token.
        token: u64,
    },
    /// The client's roots have changed.
    RootsListChanged,
}

/// Reads a notification. `None` for an unknown or malformed one, which is ignored (2026-07-28,
/// basic/patterns/cancellation, "Error Handling").
pub fn read_notification<'a>(
    method: &str,
    params: Option<Json<'a>>,
) -> Option<ClientNotification<'a>> {
    match method {
        "notifications/initialized" => Some(ClientNotification::Initialized),
        "notifications/progress" => {
            let params = params.filter(|params| params.ambiguous(&PARAMS_KEYS).is_none())?;
            let token = params.get("progressToken")?.as_u64()?;
            Some(ClientNotification::Progress { token })
        }
        "notifications/roots/list_changed" => Some(ClientNotification::RootsListChanged),
        "notifications/cancelled" => {
            let params = params?;
            if params.ambiguous(&PARAMS_KEYS).is_some() {
                return None;
            }
            let request = params.get("requestId").filter(is_id)?;
            Some(ClientNotification::Cancelled { request })
        }
        _ => None,
    }
}

/// True if a value can be a request id or a progress token.
pub(crate) fn is_id(value: &Json<'_>) -> bool {
    matches!(value.kind(), JsonKind::String | JsonKind::Number)
}

/// Reads the [`PARAMS_KEYS`] that each request needs: `_meta`, which must be an object, and the
/// others of the first [`READ_PARAMS`].
fn read_params(params: Option<Json<'_>>) -> Result<[Option<Json<'_>>; READ_PARAMS], RpcError> {
    let Some(params) = params else {
        return Ok([None; READ_PARAMS]);
    };
    if !params.is_object() {
        return Err(must_be("params", "an object"));
    }
    let picked = params.pick::<READ_PARAMS>(&PARAMS_KEYS);
    if let Some(key) = picked.ambiguous {
        return Err(ambiguous("params", key));
    }
    let meta = picked.values[0];
    if meta.is_some_and(|meta| !meta.is_object()) {
        return Err(must_be("_meta", "an object"));
    }
    if let Some(key) = meta.and_then(|meta| meta.ambiguous(&META_KEYS)) {
        return Err(ambiguous("params._meta", key));
    }
    Ok(picked.values)
}

fn read_meta(object: Option<Json<'_>>, version: Version) -> Result<RequestMeta<'_>, RpcError> {
    let mut meta = RequestMeta {
        object,
        ..RequestMeta::default()
    };
    let Some(members) = object else {
        return Ok(meta);
    };
    if let Some(token) = members
        .get(META_PROGRESS_TOKEN)
        .filter(|token| token.kind() != JsonKind::Null)
    {
        if !is_id(&token) {
            return Err(must_be("_meta.progressToken", "a string or a number"));
        }
        meta.progress_token = Some(token);
    }
    if version.is_modern() {
        meta.client_capabilities = self::object(members, META_CLIENT_CAPABILITIES)?;
        if meta.client_capabilities.is_none() {
            return Err(must_be(
                META_CLIENT_CAPABILITIES,
                "there, as an object ({} for none)",
            ));
        }
        meta.client_info = self::object(members, META_CLIENT_INFO)?;
        if let Some(level) = members.get(META_LOG_LEVEL) {
            let level = Level::read(level);
            meta.log_level =
                Some(level.ok_or_else(|| {
                    must_be(META_LOG_LEVEL, &format!("one of {}", Level::names()))
                })?);
        }
    }
    Ok(meta)
}

/// The object under a key; `None` if the key is missing.
pub(super) fn object<'a>(parent: Json<'a>, key: &str) -> Result<Option<Json<'a>>, RpcError> {
    match parent.get(key) {
        Some(value) if value.is_object() => Ok(Some(value)),
        Some(_) => Err(must_be(key, "an object")),
        None => Ok(None),
    }
}

pub(super) fn must_be(key: &str, what: &str) -> RpcError {
    RpcError::invalid_params(format!("invalid params: \"{key}\" must be {what}"))
}

fn ambiguous(place: &str, key: &str) -> RpcError {
    RpcError::invalid_params(format!(
        "refused: two members of {place} can be read as \"{key}\""
    ))
}

fn neither_era() -> RpcError {
    RpcError::invalid_params(format!(
        "this connection is not initialized and the request names no version: send \"initialize\" first ({} and older), \
         or put \"{META_PROTOCOL_VERSION}\" and \"{META_CLIENT_CAPABILITIES}\" in the _meta of each request ({})",
        Version::LATEST_LEGACY,
        Version::LATEST
    ))
}

#[cfg(test)]
mod tests {
    use super::super::rpc_error::{INVALID_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION};
    use super::Version::*;
    use super::*;
    use crate::read_in_tests::json;

    const ALL: [Capability; 6] = [
        Capability::Tools,
        Capability::Prompts,
        Capability::Resources,
        Capability::Completions,
        Capability::Logging,
        Capability::Skills,
    ];

    const MODERN: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#;

    fn code(session: SessionPhase, method: &str, params: &str) -> Result<Version, i64> {
        classify(session, &ALL, method, Some(json(params)))
            .map(|request| request.version)
            .map_err(|error| error.code)
    }

    #[test]
    fn the_request_decides_its_era() {
        let legacy = SessionPhase::Legacy(V2025_06_18);
        for (session, method, params, expected) in [
            (SessionPhase::Fresh, "initialize", "{}", Ok(V2025_11_25)),
            (SessionPhase::Fresh, "ping", "{}", Ok(V2025_11_25)),
            (
                SessionPhase::Fresh,
                "server/discover",
                MODERN,
                Ok(V2026_07_28),
            ),
            (SessionPhase::Fresh, "tools/call", MODERN, Ok(V2026_07_28)),
            (legacy, "tools/call", "{}", Ok(V2025_06_18)),
            (legacy, "ping", "{}", Ok(V2025_06_18)),
            (legacy, "tools/call", MODERN, Ok(V2026_07_28)),
            (legacy, "server/discover", MODERN, Ok(V2026_07_28)),
            (SessionPhase::Fresh, "tools/call", "{}", Err(INVALID_PARAMS)),
            (
                SessionPhase::Fresh,
                "server/discover",
                "{}",
                Err(INVALID_PARAMS),
            ),
            (SessionPhase::Fresh, "whatever", "{}", Err(INVALID_PARAMS)),
            (legacy, "initialize", "{}", Err(INVALID_REQUEST)),
            (legacy, "server/discover", "{}", Err(METHOD_NOT_FOUND)),
            (legacy, "subscriptions/listen", "{}", Err(METHOD_NOT_FOUND)),
        ] {
            assert_eq!(
                code(session, method, params),
                expected,
                "{session:?} {method} {params}"
            );
        }
        assert_eq!(
            classify(SessionPhase::Fresh, &ALL, "tools/list", None)
                .unwrap_err()
                .code,
            INVALID_PARAMS
        );
        assert_eq!(
            classify(legacy, &ALL, "tools/list", None).unwrap().version,
            V2025_06_18
        );
    }

    #[test]
    fn methods_that_the_modern_era_removed_are_not_found() {
        for session in [SessionPhase::Fresh, SessionPhase::Legacy(V2025_11_25)] {
            for method in [
                "initialize",
                "ping",
                "logging/setLevel",
                "resources/subscribe",
                "resources/unsubscribe",
            ] {
                assert_eq!(
                    code(session, method, MODERN),
                    Err(METHOD_NOT_FOUND),
                    "{method}"
                );
            }
        }
    }

    #[test]
    fn methods_that_are_not_offered_are_not_found() {
        for method in Method::ALL {
            let found = |offered: &[Capability], version: Version| {
                let (session, params) = if version.is_modern() {
                    (SessionPhase::Fresh, Some(json(MODERN)))
                } else {
                    (SessionPhase::Legacy(version), None)
                };
                classify(session, offered, method.as_str(), params).map_err(|error| error.code)
            };
            for version in Version::ALL
                .into_iter()
                .filter(|version| method.is_in(*version))
            {
                if method.capability().is_some() {
                    assert_eq!(
                        found(&[], version).unwrap_err(),
                        METHOD_NOT_FOUND,
                        "{}",
                        method.as_str()
                    );
                }
                // 2024-11-05 has completion without a capability for it.
                let is_there = method != Method::Initialize;
                assert_eq!(
                    found(&ALL, version).is_ok(),
                    is_there,
                    "{} {version}",
                    method.as_str()
                );
            }
        }
    }

    #[test]
    fn methods_of_nobody_are_left_to_the_caller() {
        let request = classify(
            SessionPhase::Legacy(V2025_11_25),
            &ALL,
            "colibri/trail",
            None,
        )
        .unwrap();
        assert_eq!(request.method, None);
        assert_eq!(
            classify(
                SessionPhase::Fresh,
                &ALL,
                "tasks/result",
                Some(json(MODERN))
            )
            .unwrap()
            .method,
            None
        );
    }

    #[test]
    fn unknown_versions_are_refused_with_those_that_are_known() {
        for (session, requested) in [
            (SessionPhase::Fresh, "2099-01-01"),
            (SessionPhase::Fresh, "2025-11-25"),
            (SessionPhase::Legacy(V2025_06_18), "2025-11-25"),
            (SessionPhase::Fresh, ""),
        ] {
            let params = MODERN.replace("2026-07-28", requested);
            let error = classify(session, &ALL, "tools/list", Some(json(&params))).unwrap_err();
            assert_eq!(error.code, UNSUPPORTED_PROTOCOL_VERSION, "{requested}");
            assert!(
                error
                    .data
                    .unwrap()
                    .contains(r#""supported":["2026-07-28"]"#)
            );
        }
        // A legacy session knows its negotiated version, so the request needs none of the modern
        // keys.
        let params = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}"#;
        assert_eq!(
            code(SessionPhase::Legacy(V2025_11_25), "tools/list", params),
            Ok(V2025_11_25)
        );
    }

    #[test]
    fn required_keys_of_a_modern_request() {
        for params in [
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":20260728,"io.modelcontextprotocol/clientCapabilities":{}}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":null}}"#,
            r#"{"_meta":[]}"#,
            r#"{"_meta":null}"#,
            r#"[]"#,
        ] {
            assert_eq!(
                code(SessionPhase::Fresh, "tools/list", params),
                Err(INVALID_PARAMS),
                "{params}"
            );
        }
        let with = |more: &str| MODERN.replace("{}}}", &format!("{{}},{more}}}}}"));
        for (more, served) in [
            (
                r#""io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}"#,
                true,
            ),
            (r#""io.modelcontextprotocol/clientInfo":"x""#, false),
            (r#""io.modelcontextprotocol/logLevel":"debug""#, true),
            (r#""io.modelcontextprotocol/logLevel":"loud""#, false),
            (r#""io.modelcontextprotocol/logLevel":3"#, false),
            (r#""progressToken":"p""#, true),
            (r#""progressToken":1e400"#, true),
            (r#""progressToken":null"#, true),
            (r#""progressToken":{}"#, false),
            (r#""org.example/x":[1]"#, true),
        ] {
            let params = with(more);
            let expected = if served {
                Ok(V2026_07_28)
            } else {
                Err(INVALID_PARAMS)
            };
            assert_eq!(
                code(SessionPhase::Fresh, "tools/list", &params),
                expected,
                "{params}"
            );
        }
    }

    #[test]
    fn meta_is_handed_on_in_place() {
        let params = r#"{"_meta":{"progressToken":"p","io.modelcontextprotocol/logLevel":"info","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}"#;
        let meta = classify(SessionPhase::Fresh, &ALL, "tools/call", Some(json(params)))
            .unwrap()
            .meta;
        assert_eq!(meta.progress_token.unwrap().text(), "\"p\"");
        assert_eq!(meta.log_level.unwrap().as_str(), "info");
        assert_eq!(meta.client_info.unwrap().text(), r#"{"name":"x"}"#);
        assert_eq!(
            meta.client_capabilities.unwrap().text(),
            r#"{"elicitation":{}}"#
        );
        assert_eq!(
            &params[meta.object.unwrap().span()],
            meta.object.unwrap().text()
        );
    }

    #[test]
    fn keys_that_two_readers_take_differently_are_refused() {
        for params in [
            r#"{"name":"a","Name":"b"}"#,
            r#"{"name":"a","name":"b"}"#,
            r#"{"_meta":{},"_m\u0065ta":{}}"#,
            r#"{"arguments":{},"ARGUMENTS":{}}"#,
            r#"{"_meta":{"progressToken":1,"progresstoken":2}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25","IO.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
        ] {
            let error = classify(
                SessionPhase::Legacy(V2025_11_25),
                &ALL,
                "tools/call",
                Some(json(params)),
            )
            .unwrap_err();
            assert_eq!(error.code, INVALID_PARAMS, "{params}");
            assert!(
                error.message.contains("can be read as"),
                "{params}: {error}"
            );
        }
    }

    #[test]
    fn batches_only_where_their_version_was_negotiated() {
        for version in &Version::ALL[..4] {
            assert_eq!(
                SessionPhase::Legacy(*version).takes_batches(),
                *version == V2025_03_26,
                "{version}"
            );
        }
        assert!(!SessionPhase::Fresh.takes_batches());
        assert!(
            classify(SessionPhase::Legacy(V2025_03_26), &ALL, "initialize", None).is_err(),
            "never inside a batch"
        );
    }

    #[test]
    fn reads_initialize() {
        let params = r#"{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"x","version":"1"},"more":1}"#;
        let read = read_initialize(Some(json(params))).unwrap();
        assert_eq!(
            (read.version, read.requested.as_ref()),
            (V2025_06_18, "2025-06-18")
        );
        assert_eq!(read.capabilities.unwrap().text(), r#"{"roots":{}}"#);
        assert_eq!(
            read.client_info.unwrap().get("name").unwrap().text(),
            "\"x\""
        );
        assert_eq!(
            read_initialize(Some(json(r#"{"protocolVersion":"2099-01-01"}"#)))
                .unwrap()
                .version,
            V2025_11_25
        );
        for params in [
            "{}",
            r#"{"protocolVersion":1}"#,
            r#"{"protocolVersion":null}"#,
            r#"{"protocolVersion":"\ud800"}"#,
            r#"{"protocolVersion":"2025-06-18","capabilities":[]}"#,
            r#"{"protocolVersion":"2025-06-18","clientInfo":"x"}"#,
        ] {
            assert_eq!(
                read_initialize(Some(json(params))).unwrap_err().code,
                INVALID_PARAMS,
                "{params}"
            );
        }
        assert_eq!(read_initialize(None).unwrap_err().code, INVALID_PARAMS);
    }

    #[test]
    fn reads_notifications() {
        let cancelled = |params: &'static str| match read_notification(
            "notifications/cancelled",
            Some(json(params)),
        ) {
            Some(ClientNotification::Cancelled { request }) => Some(request.text()),
            _ => None,
        };
        assert_eq!(
            cancelled(r#"{"requestId":"\u0061","reason":"x"}"#),
            Some(r#""\u0061""#)
        );
        assert_eq!(cancelled(r#"{"requestId":7}"#), Some("7"));
        for params in [
            r#"{"requestId":null}"#,
            r#"{"requestId":{}}"#,
            "{}",
            r#"{"requestId":1,"requestID":2}"#,
        ] {
            assert_eq!(cancelled(params), None, "{params}");
        }
        assert!(matches!(
            read_notification("notifications/initialized", None),
            Some(ClientNotification::Initialized)
        ));
        let progress = |text| read_notification("notifications/progress", Some(json(text)));
        assert!(matches!(
            progress(r#"{"progressToken":7,"progress":1}"#),
            Some(ClientNotification::Progress { token: 7 })
        ));
        assert!(progress(r#"{"progressToken":"7"}"#).is_none());
        assert!(progress(r#"{"progressToken":7,"ProgressToken":8}"#).is_none());
        assert!(matches!(
            read_notification("notifications/roots/list_changed", None),
            Some(ClientNotification::RootsListChanged)
        ));
        assert!(read_notification("notifications/nonsense", None).is_none());
        assert!(read_notification("notifications/cancelled", None).is_none());
    }
}

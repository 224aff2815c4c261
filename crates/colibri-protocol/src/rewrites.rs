//! Answers of one version translated for a peer of another: the edits of `docs/rewrites.md` that a
//! version demands.
//!
//! Between equal versions nothing is edited. This case is found first, since it is the hot path. A
//! server older than a legacy client needs no edit either: the versions of the legacy era only ever
//! added to results. A field that an old version does not know does no harm (results and
//! definitions are open objects in every version). A *value* that it cannot parse does, since its
//! reader then drops the whole message. Only such values are changed or removed.

use super::answer::TTL_MS;
use super::error::{Code, Failure};
use super::links::{self, Links, may_hold_links};
use super::members::{Change, rewrite};
use super::method::Method;
use super::rpc_error::{
    HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION, URL_ELICITATION_REQUIRED,
};
use super::version::Version;
use colibri_wire::json::string;
use colibri_wire::{Edits, Json};

/// The most content blocks of one result that are turned into text for an older client. Each takes
/// many times its own size in memory, which a hostile server could abuse.
pub(crate) const CONVERTED_LIMIT: usize = 10_000;

/// The method and the versions of an answer.
#[derive(Debug, Clone, Copy)]
pub struct AnswerShape<'a> {
    /// The method of the request; `None` for a method that MCP does not have.
    pub method: Option<Method>,
    /// The version of the server.
    pub server: Version,
    /// The version of the request.
    pub client: Version,
    /// The id of the server if its URIs stand behind its prefix.
    pub prefix: Option<&'a str>,
}

impl AnswerShape<'_> {
    /// True if such a result may need edits or may be refused. Most results are relayed without a
    /// parse.
    pub fn may_edit(&self, result: &[u8]) -> bool {
        let by_version = if self.server == self.client {
            self.method == Some(Method::ResourcesRead) && self.client.is_modern()
        } else {
            self.server > self.client || self.client.is_modern()
        };
        by_version || self.prefix.is_some() && may_hold_links(result)
    }

    fn links(&self) -> Option<Links<'_>> {
        self.prefix.map(Links::of)
    }
}

/// The edits to a server's `result` on its way to a client. Needed only if
/// [`AnswerShape::may_edit`] is true.
///
/// # Errors
/// The error to answer with, if the client's version cannot express the result.
pub fn result_edits(shape: &AnswerShape<'_>, result: Json<'_>) -> Result<Edits, Failure> {
    let AnswerShape {
        method,
        server,
        client,
        ..
    } = *shape;
    if server == client || server < client && !client.is_modern() {
        return if !result.is_object() {
            Ok(Edits::new())
        } else if method == Some(Method::ResourcesRead) && client.is_modern() {
            keep_private(shape, result)
        } else {
            same_era(shape, result)
        };
    }
    if !result.is_object() {
        return Err(Failure::new(
            Code::ServerAnswerInvalid,
            format!(
                "the result of {} is no object",
                method.map_or("the method", Method::as_str)
            ),
        ));
    }
    if client.is_modern() {
        to_modern(shape, result)
    } else {
        to_older(shape, result)
    }
}

/// The facts that are read of every result.
#[derive(Debug, Default)]
pub struct ResultFindings {
    /// True if a tool's result reports that the tool failed (`isError`).
    pub says_error: bool,
    /// True if the result is a task (see [`super::tasks`]). Only of a modern server.
    pub is_task: bool,
    /// True if the result requests input (see [`super::input`]). Only of a modern server. If a
    /// repeated `resultType` has several values, one of them is enough.
    pub asks: bool,
    /// The edits that remove Colibri's own keys from the result's `_meta`: a server must not set
    /// them.
    pub edits: Edits,
}

/// Inspects the result of a server of this version. `resultType` belongs to 2026-07-28: a legacy
/// server may use the name for its own data, which has no meaning here.
pub fn inspect_result(result: Json<'_>, server: Version) -> ResultFindings {
    let (mut is_error, mut is_task, mut asks) = (None, false, false);
    let mut edits = Edits::new();
    for member in result.members() {
        if member.key.is_string("isError") {
            is_error = is_error.or(Some(member.value.as_bool() == Some(true)));
        } else if server.is_modern() && member.key.is_string("resultType") {
            is_task |= member.value.is_string("task");
            asks |= member.value.is_string("input_required");
        } else if member.key.is_string("_meta") && member.value.is_object() {
            rewrite(&mut edits, member.value, "", |member, _| {
                if claims_ours(&member.key) {
                    Change::Remove
                } else {
                    Change::Keep
                }
            });
        }
    }
    ResultFindings {
        says_error: is_error.unwrap_or(false),
        is_task,
        asks,
        edits,
    }
}

/// The prefix of Colibri's own keys of `_meta`.
const META_OURS: &str = "org.colibri/";

/// True if a key of `_meta` is one of Colibri's own.
pub(crate) fn claims_ours(key: &Json<'_>) -> bool {
    key.as_str().is_some_and(|key| key.starts_with(META_OURS))
}

/// The time for which a modern client may cache a legacy server's answer: a list as long as the
/// daemon's own lists, anything else not at all (2026-07-28, server/utilities/caching, "If `ttlMs`
/// is absent").
fn legacy_ttl(method: Option<Method>) -> u64 {
    if method == Some(Method::ResourcesRead) {
        0
    } else {
        TTL_MS
    }
}

/// The edits to a legacy server's result for a modern client.
fn to_modern(shape: &AnswerShape<'_>, result: Json<'_>) -> Result<Edits, Failure> {
    let (method, mut links) = (shape.method, shape.links());
    let mut edits = Edits::new();
    let is_cacheable = method.is_some_and(Method::is_cacheable);
    let insert = if is_cacheable {
        format!(
            "\"resultType\":\"complete\",\"ttlMs\":{},\"cacheScope\":\"private\"",
            legacy_ttl(method)
        )
    } else {
        "\"resultType\":\"complete\"".to_owned()
    };
    rewrite(&mut edits, result, &insert, |member, edits| {
        // A legacy server uses these names for its own data; the client would take them for the
        // protocol's.
        let is_ours = member.key.is_string("resultType")
            || is_cacheable
                && (member.key.is_string("ttlMs") || member.key.is_string("cacheScope"));
        if is_ours {
            return Change::Remove;
        }
        if let Some(links) = &mut links {
            links.result_member(edits, method, member);
        }
        Change::Keep
    });
    bounded(links)?;
    Ok(edits)
}

/// The edits to a server's result that its client's version can parse as it is.
fn same_era(shape: &AnswerShape<'_>, result: Json<'_>) -> Result<Edits, Failure> {
    let (mut edits, mut links) = (Edits::new(), shape.links());
    if let Some(links) = &mut links {
        for member in result.members() {
            links.result_member(&mut edits, shape.method, &member);
        }
    }
    bounded(links)?;
    Ok(edits)
}

fn bounded(links: Option<Links<'_>>) -> Result<(), Failure> {
    links.map_or(Ok(()), |links| links.bounded())
}

/// True if a modern server's result requests input.
pub(crate) fn is_input_required(result: Json<'_>) -> bool {
    result
        .get("resultType")
        .is_some_and(|kind| kind.is_string("input_required"))
}

/// The edits to a modern server's `resources/read` for a modern client: its cache scope must not be
/// `public`, since the resource may be visible to one user only.
fn keep_private(shape: &AnswerShape<'_>, result: Json<'_>) -> Result<Edits, Failure> {
    let (mut edits, mut links) = (Edits::new(), shape.links());
    if is_input_required(result) {
        return Ok(edits);
    }
    let mut insert = Vec::new();
    if result.get("ttlMs").is_none() {
        insert.push("\"ttlMs\":0");
    }
    if result.get("cacheScope").is_none() {
        insert.push("\"cacheScope\":\"private\"");
    }
    rewrite(&mut edits, result, &insert.join(","), |member, edits| {
        if member.key.is_string("cacheScope") && !member.value.is_string("private") {
            return Change::Replace("\"private\"".to_owned());
        }
        if let Some(links) = &mut links {
            links.result_member(edits, shape.method, member);
        }
        Change::Keep
    });
    bounded(links)?;
    Ok(edits)
}

/// The edits to a newer server's result for an older, legacy client.
fn to_older(shape: &AnswerShape<'_>, result: Json<'_>) -> Result<Edits, Failure> {
    let AnswerShape {
        method,
        server,
        client,
        ..
    } = *shape;
    if server.is_modern() {
        for member in result
            .members()
            .filter(|member| member.key.is_string("resultType"))
        {
            refuse_unless_complete(member.value, client)?;
        }
    }
    let is_tools = method == Some(Method::ToolsCall);
    // With empty content and without structured content, the result would be empty.
    let is_silent = is_tools
        && result
            .get("content")
            .is_none_or(|content| content.elements().next().is_none());
    let (mut edits, mut links) = (Edits::new(), shape.links());
    let mut spoken = None;
    let mut converted = 0;
    let mut content_span = None;
    rewrite(&mut edits, result, "", |member, edits| {
        if is_tools && member.key.is_string("content") {
            content_span.get_or_insert(member.value.span());
        } else if is_tools
            && member.key.is_string("structuredContent")
            && !member.value.is_object()
            && !client.has_free_output()
        {
            spoken = Some(member.value.text());
            return Change::Remove;
        }
        let mut has_blocks = false;
        links::each_block(method, member, &mut |block| {
            has_blocks = true;
            let text = || block_as_text(block, client, links.as_ref());
            if let Some(text) = (converted <= CONVERTED_LIMIT).then(text).flatten() {
                converted += 1;
                edits.replace(block.span(), text);
            } else if let Some(links) = &mut links {
                links.block(edits, block, 0);
            }
        });
        if let Some(links) = links.as_mut().filter(|_| !has_blocks) {
            links.result_member(edits, method, member);
        }
        Change::Keep
    });
    bounded(links)?;
    if converted > CONVERTED_LIMIT {
        let message = format!(
            "more than {CONVERTED_LIMIT} content blocks are of types that MCP {client} does not have"
        );
        return Err(Failure::new(Code::ResultTooLarge, message));
    }
    if let Some(text) = spoken.filter(|_| is_silent) {
        let content = format!("[{{\"type\":\"text\",\"text\":{}}}]", string(text));
        match content_span {
            Some(span) => edits.replace(span, content),
            None => return Ok(without_structured(result, &content)),
        }
    }
    Ok(edits)
}

/// The edits to a result without `content`: structured content that the client cannot parse becomes
/// `content`.
fn without_structured(result: Json<'_>, content: &str) -> Edits {
    let mut edits = Edits::new();
    rewrite(
        &mut edits,
        result,
        &format!("\"content\":{content}"),
        |member, _| {
            let goes = member.key.is_string("structuredContent") && !member.value.is_object();
            if goes { Change::Remove } else { Change::Keep }
        },
    );
    edits
}

fn refuse_unless_complete(kind: Json<'_>, client: Version) -> Result<(), Failure> {
    if kind.is_string("complete") {
        Ok(())
    } else {
        let message = format!("the server's result is of a type that MCP {client} does not have");
        Err(Failure::new(Code::ServerAnswerInvalid, message))
    }
}

/// A content block that the client's version cannot parse, as a text block; `None` for other
/// blocks. The `type` decides. If `type` is repeated, one unknown value is enough, since readers
/// differ in which one they take.
pub(crate) fn block_as_text(
    block: Json<'_>,
    client: Version,
    links: Option<&Links<'_>>,
) -> Option<String> {
    let mut unknown = None;
    for member in block
        .members()
        .filter(|member| member.key.is_string("type"))
    {
        let kind = member.value.as_str().unwrap_or_default();
        if !client.knows_content(&kind) {
            unknown.get_or_insert(kind);
        }
    }
    let kind = unknown?;
    let field = |key: &str| {
        block
            .get(key)
            .and_then(|value| value.as_str())
            .filter(|text| !text.is_empty())
    };
    let text = match kind.as_ref() {
        "audio" => format!(
            "[audio, {}, {} bytes of base64: MCP {client} has no audio]",
            field("mimeType").as_deref().unwrap_or("of no stated type"),
            field("data").map_or(0, |data| data.len())
        ),
        "resource_link" => {
            let uri = field("uri").unwrap_or_default();
            let uri = links.map_or(uri.clone(), |links| links.exposed(&uri).into());
            let mut text = format!("[resource {uri}]");
            for key in ["title", "name", "mimeType", "description"] {
                if let Some(value) = field(key) {
                    text.push_str(&format!("\n{key}: {value}"));
                }
            }
            text
        }
        _ => block.text().to_owned(),
    };
    let annotations = block
        .get("annotations")
        .filter(Json::is_object)
        .map(|annotations| format!(",\"annotations\":{}", annotations.text()))
        .unwrap_or_default();
    Some(format!(
        "{{\"type\":\"text\",\"text\":{}{annotations}}}",
        string(&text)
    ))
}

/// The edits to a server's `error` on its way to a client.
///
/// # Errors
/// The error to answer with, if the server's error is about the daemon's own connection to the
/// server, or requests input.
pub fn error_edits(shape: &AnswerShape<'_>, error: Json<'_>) -> Result<Edits, Failure> {
    let AnswerShape {
        method,
        server,
        client,
        prefix,
    } = *shape;
    let mut edits = Edits::new();
    for member in error.members() {
        if let Some(prefix) = prefix.filter(|_| method == Some(Method::ResourcesRead)) {
            links::error_member(&mut edits, prefix, &member);
        }
        if !member.key.is_string("code") {
            continue;
        }
        let Ok(code) = member.value.text().parse::<i64>() else {
            continue;
        };
        match code {
            // Versions and headers between the daemon and the server do not concern the client. If
            // such an error were relayed, one server could make the client disconnect from all the
            // others.
            HEADER_MISMATCH | UNSUPPORTED_PROTOCOL_VERSION if server.is_modern() => {
                let message = format!("the server refused the daemon's request with {code}");
                return Err(Failure::new(Code::ServerAnswerInvalid, message));
            }
            URL_ELICITATION_REQUIRED if client.is_modern() => {
                let message =
                    format!("the server asks back with {code}, which MCP {client} says otherwise");
                return Err(Failure::new(Code::NotSupportedYet, message));
            }
            RESOURCE_NOT_FOUND if client.is_modern() => {
                edits.replace(member.value.span(), INVALID_PARAMS.to_string());
            }
            // Numbers that have no meaning for a legacy server have one for a modern client.
            -32099..=-32020 if client.is_modern() && !server.is_modern() => {
                edits.replace(member.value.span(), INTERNAL_ERROR.to_string());
            }
            _ => {}
        }
    }
    Ok(edits)
}

#[cfg(test)]
mod tests {
    use super::super::elicitation_support::Askable;
    use super::super::request::META_CLIENT_INFO;
    use super::super::towards::{
        Towards, cancelled_edits, params_edits, progress_edits, rename_edit,
    };
    use super::Version::*;
    use super::*;
    use crate::read_in_tests::{apply, json};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn shape(method: Method, server: Version, client: Version) -> AnswerShape<'static> {
        AnswerShape {
            method: Some(method),
            server,
            client,
            prefix: None,
        }
    }

    fn errors(server: Version, client: Version, error: Json<'_>) -> Result<Edits, Failure> {
        error_edits(&shape(Method::ToolsCall, server, client), error)
    }

    fn shaped(method: Method, server: Version, client: Version, text: &str) -> String {
        apply(
            text,
            &result_edits(&shape(method, server, client), json(text)).unwrap(),
        )
    }

    #[test]
    fn what_is_colibris_own_is_taken_out_of_results() {
        let stripped = |text: &str| {
            let inspected = inspect_result(json(text), V2025_11_25);
            (inspected.says_error, apply(text, &inspected.edits))
        };
        for (result, left) in [
            (
                r#"{"_meta":{"org.colibri/error":{"code":"GATE_CLOSED"}},"content":[]}"#,
                r#"{"_meta":{},"content":[]}"#,
            ),
            (
                r#"{"_meta" : {"a":1e400, "org.colibri\/state":"x" ,"b":2}}"#,
                r#"{"_meta" : {"a":1e400, "b":2}}"#,
            ),
            (
                r#"{"\u005fmeta":{"\u006frg.colibri/x":1},"_meta":{"org.colibri/":2}}"#,
                r#"{"\u005fmeta":{},"_meta":{}}"#,
            ),
            (
                r#"{"_meta":{"org.colibrix":1},"content":[{"_meta":7}]}"#,
                r#"{"_meta":{"org.colibrix":1},"content":[{"_meta":7}]}"#,
            ),
            (
                r#"{"_meta":"org.colibri/error"}"#,
                r#"{"_meta":"org.colibri/error"}"#,
            ),
            ("7", "7"),
        ] {
            assert_eq!(stripped(result), (false, left.to_owned()));
        }
        assert!(stripped(r#"{"isError":true,"_meta":{}}"#).0);
        assert!(
            !stripped(r#"{"isError":false,"isError":true}"#).0 && !stripped(r#"{"isError":1}"#).0
        );
    }

    #[test]
    fn a_result_type_is_read_of_modern_servers_alone() {
        for version in Version::ALL {
            let inspected = |text: &str| inspect_result(json(text), version);
            let task = inspected(r#"{"resultType":"task","taskId":"1","content":[]}"#);
            let asks = inspected(r#"{"resultType":"input_required"}"#);
            assert_eq!(
                (task.is_task, task.asks),
                (version.is_modern(), false),
                "{version}"
            );
            assert_eq!(
                (asks.is_task, asks.asks),
                (false, version.is_modern()),
                "{version}"
            );
        }
    }

    fn refused(method: Method, server: Version, client: Version, text: &str) -> Code {
        result_edits(&shape(method, server, client), json(text))
            .unwrap_err()
            .code
    }

    fn call(server: Version, client: Version, text: &str) -> String {
        shaped(Method::ToolsCall, server, client, text)
    }

    /// Results that a relay with typed structures would alter.
    const NASTY: [&str; 8] = [
        "{}",
        "5",
        "null",
        r#"{ "b":1e400,"a":123456789012345678901234567890,"a":"\ud800" ,"content":[{"type":"video"}]}"#,
        r#"{"content":[{"type":"audio","data":"","mimeType":"x"}],"structuredContent":7,"resultType":"input_required"}"#,
        r#"{"tools":[]}"#,
        r#"{"resultType":3,"ttlMs":"x"}"#,
        r#"{"content":"none"}"#,
    ];

    #[test]
    fn same_version_changes_nothing() {
        for version in Version::ALL {
            for method in Method::ALL {
                for text in NASTY {
                    if method != Method::ResourcesRead || !version.is_modern() {
                        assert_eq!(shaped(method, version, version, text), text);
                    }
                }
            }
            let error = r#"{"code":-32042,"message":"","data":{}}"#;
            if !version.is_modern() {
                assert!(errors(version, version, json(error)).unwrap().is_empty());
            }
            let params =
                r#"{"name":"n\u0061me","arguments":{"x":1e400},"_meta":{"progressToken":null}}"#;
            let towards = Towards {
                client: version,
                server: version,
                progress_token: Some(3),
                may_ask: Askable::NOTHING,
                log_level: None,
            };
            assert!(params_edits(json(params), &towards).is_empty());
        }
    }

    #[test]
    fn an_older_legacy_server_changes_nothing() {
        for (index, server) in Version::ALL[..4].iter().enumerate() {
            for client in &Version::ALL[index..4] {
                for text in NASTY {
                    assert_eq!(call(*server, *client, text), text);
                }
            }
        }
    }

    #[test]
    fn result_type_is_added_for_modern_clients() {
        for server in &Version::ALL[..4] {
            for (text, expected) in [
                ("{}", r#"{"resultType":"complete"}"#),
                (
                    r#"{ "content":[] }"#,
                    r#"{"resultType":"complete", "content":[] }"#,
                ),
                (
                    r#"{"a":1,"resultType":"input_required"}"#,
                    r#"{"resultType":"complete","a":1}"#,
                ),
                (
                    r#"{"resultTyp\u0065":"x","resultType":5}"#,
                    r#"{"resultType":"complete"}"#,
                ),
                (
                    r#"{"x":{"resultType":"deep"}}"#,
                    r#"{"resultType":"complete","x":{"resultType":"deep"}}"#,
                ),
            ] {
                assert_eq!(call(*server, V2026_07_28, text), expected);
            }
            for text in ["5", "[]", "null", "\"x\""] {
                assert_eq!(
                    refused(Method::ToolsCall, *server, V2026_07_28, text),
                    Code::ServerAnswerInvalid
                );
            }
        }
    }

    #[test]
    fn cacheable_results_of_legacy_servers_say_for_how_long() {
        for server in &Version::ALL[..4] {
            for method in Method::ALL {
                let text = r#"{"x":1,"ttlMs":"mine","cacheScope":"public"}"#;
                let result: Value =
                    serde_json::from_str(&shaped(method, *server, V2026_07_28, text)).unwrap();
                let expected = match method {
                    Method::ResourcesRead => json!([0, "private"]),
                    method if method.is_cacheable() => json!([30000, "private"]),
                    _ => json!(["mine", "public"]),
                };
                assert_eq!(
                    json!([result["ttlMs"], result["cacheScope"]]),
                    expected,
                    "{}",
                    method.as_str()
                );
            }
        }
    }

    #[test]
    fn what_a_modern_server_read_is_never_public() {
        let read = |text| shaped(Method::ResourcesRead, V2026_07_28, V2026_07_28, text);
        for (text, expected) in [
            (
                r#"{"ttlMs":5,"cacheScope":"public"}"#,
                r#"{"ttlMs":5,"cacheScope":"private"}"#,
            ),
            (
                r#"{"ttlMs":5,"cacheScope":"private"}"#,
                r#"{"ttlMs":5,"cacheScope":"private"}"#,
            ),
            (r#"{"ttlMs":5}"#, r#"{"cacheScope":"private","ttlMs":5}"#),
            ("{}", r#"{"ttlMs":0,"cacheScope":"private"}"#),
            (
                r#"{"resultType":"input_required"}"#,
                r#"{"resultType":"input_required"}"#,
            ),
        ] {
            assert_eq!(read(text), expected);
        }
    }

    /// One row per client version, one cell per content type: true if the client gets the block
    /// unchanged.
    #[test]
    fn newer_content_types_become_text() {
        const BLOCKS: [&str; 6] = [
            r#"{"type":"text","text":"t"}"#,
            r#"{"type":"image","data":"aQ==","mimeType":"image/png"}"#,
            r#"{"type":"resource","resource":{"uri":"x:y","text":"t"}}"#,
            r#"{"type":"audio","data":"YQ==","mimeType":"audio/wav"}"#,
            r#"{"type":"resource_link","uri":"file:///a","name":"a"}"#,
            r#"{"type":"hologram","data":[1e400]}"#,
        ];
        for (client, relayed) in [
            (V2024_11_05, [true, true, true, false, false, false]),
            (V2025_03_26, [true, true, true, true, false, false]),
            (V2025_06_18, [true, true, true, true, true, false]),
            (V2025_11_25, [true, true, true, true, true, false]),
        ] {
            for server in Version::ALL.into_iter().filter(|server| *server > client) {
                for (block, relayed) in BLOCKS.iter().zip(relayed) {
                    let text = format!(
                        r#"{{"content":[ {block} , {{"type":"text","text":"{{[,"}}],"isError":false}}"#
                    );
                    let result = call(server, client, &text);
                    if relayed {
                        assert_eq!(result, text, "{client}");
                    } else {
                        let value: Value = serde_json::from_str(&result).unwrap();
                        assert_eq!(value["content"][0]["type"], "text", "{client} {block}");
                        assert_eq!(value["content"].as_array().unwrap().len(), 2);
                        assert!(
                            result
                                .ends_with(r#" , {"type":"text","text":"{[,"}],"isError":false}"#),
                            "{result}"
                        );
                    }
                    // A prompt's message holds one block. Only a draft allows several.
                    for content in [(*block).to_owned(), format!("[{block}]")] {
                        let text = format!(
                            r#"{{"messages":[{{"role":"user","content":{content}}}],"content":[{block}]}}"#
                        );
                        let result = shaped(Method::PromptsGet, server, client, &text);
                        let tail = format!(r#","content":[{block}]}}"#);
                        assert!(
                            result.ends_with(&tail),
                            "only the messages are a prompt's: {result}"
                        );
                        assert_eq!(result == text, relayed, "{client} {block}");
                        assert!(relayed || result.contains(r#""type":"text""#), "{result}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_newer_block_says_is_kept_as_text() {
        let text_of = |block: &str, client| {
            let result = call(V2026_07_28, client, &format!(r#"{{"content":[{block}]}}"#));
            serde_json::from_str::<Value>(&result).unwrap()["content"][0].clone()
        };
        let audio = r#"{"type":"audio","data":"YWJj","mimeType":"audio/wav","annotations":{"priority":0.50}}"#;
        assert_eq!(
            text_of(audio, V2024_11_05),
            json!({"type": "text", "annotations": {"priority": 0.5},
                   "text": "[audio, audio/wav, 4 bytes of base64: MCP 2024-11-05 has no audio]"})
        );
        let link = r#"{"type":"resource_link","uri":"file:///a\"b","name":"a","description":"d","size":3}"#;
        assert_eq!(
            text_of(link, V2025_03_26)["text"],
            "[resource file:///a\"b]\nname: a\ndescription: d"
        );
        let unknown = r#"{"type":"hologram","depth":1e400}"#;
        assert_eq!(text_of(unknown, V2025_11_25)["text"], unknown);
        // Two types: readers differ in which one they take.
        let double = r#"{"type":"text","type":"hologram","text":"t"}"#;
        assert_eq!(text_of(double, V2025_11_25)["text"], double);
        // No type, or no object: no version can parse it, so it is not converted.
        for same in [r#"{"text":"t"}"#, "7", "null", "[]"] {
            let text = format!(r#"{{"content":[{same}]}}"#);
            assert_eq!(call(V2026_07_28, V2024_11_05, &text), text);
        }
    }

    #[test]
    fn too_many_newer_blocks_are_refused() {
        let blocks = |count: usize| {
            let known = r#"{"type":"text","text":""},"#.repeat(20_000);
            format!(
                r#"{{"content":[{known}{}7]}}"#,
                r#"{"type":"x"},"#.repeat(count)
            )
        };
        assert_eq!(
            refused(
                Method::ToolsCall,
                V2026_07_28,
                V2025_11_25,
                &blocks(1_000_000)
            ),
            Code::ResultTooLarge
        );
        assert_eq!(
            refused(
                Method::ToolsCall,
                V2026_07_28,
                V2025_11_25,
                &blocks(CONVERTED_LIMIT + 1)
            ),
            Code::ResultTooLarge
        );
        assert!(call(V2026_07_28, V2025_11_25, &blocks(CONVERTED_LIMIT)).len() > 20_000);
    }

    #[test]
    fn structured_content_that_is_no_object_is_dropped_for_legacy_clients() {
        for client in &Version::ALL[..4] {
            for (text, expected) in [
                (
                    r#"{"content":[{"type":"text","text":"7"}],"structuredContent":7}"#,
                    r#"{"content":[{"type":"text","text":"7"}]}"#,
                ),
                (
                    r#"{"structuredContent":[1] , "content":[{"type":"text","text":"7"}]}"#,
                    r#"{"content":[{"type":"text","text":"7"}]}"#,
                ),
                (
                    r#"{"content":[ ],"structuredContent":["a\n"],"isError":false}"#,
                    r#"{"content":[{"type":"text","text":"[\"a\\n\"]"}],"isError":false}"#,
                ),
                (
                    r#"{"structuredContent":1e400}"#,
                    r#"{"content":[{"type":"text","text":"1e400"}]}"#,
                ),
                (
                    r#"{"content":[],"structuredContent":{"a":1}}"#,
                    r#"{"content":[],"structuredContent":{"a":1}}"#,
                ),
            ] {
                assert_eq!(call(V2026_07_28, *client, text), expected, "{client}");
            }
        }
        let text = r#"{"structuredContent":7}"#;
        assert_eq!(
            call(V2025_11_25, V2026_07_28, text),
            r#"{"resultType":"complete","structuredContent":7}"#
        );
    }

    #[test]
    fn results_that_are_not_complete_are_refused_for_legacy_clients() {
        for client in &Version::ALL[..4] {
            for text in [
                // Results that request input are handled before this function.
                r#"{"resultType":"input_required","inputRequests":{}}"#,
                r#"{"resultType":"complete","resultType":"input_required"}"#,
                r#"{"resultType":"task","taskId":"x"}"#,
                r#"{"resultType":null}"#,
            ] {
                for method in [Method::ToolsCall, Method::PromptsGet] {
                    let code = refused(method, V2026_07_28, *client, text);
                    assert_eq!(code, Code::ServerAnswerInvalid, "{text}");
                }
            }
            let complete = r#"{"resultType":"complete","content":[]}"#;
            assert_eq!(call(V2026_07_28, *client, complete), complete);
        }
    }

    #[test]
    fn error_codes_become_the_modern_ones() {
        for server in &Version::ALL[..4] {
            for (code, modern) in [
                ("-32002", "-32602"),
                ("-32021", "-32603"),
                ("-32022", "-32603"),
                ("-32099", "-32603"),
                ("-32602", "-32602"),
                ("-32000", "-32000"),
                ("-32100", "-32100"),
                ("7", "7"),
                ("1e400", "1e400"),
                ("\"x\"", "\"x\""),
            ] {
                let text =
                    format!(r#"{{"message":"m", "code": {code} ,"data":{{"code":{code}}}}}"#);
                let expected =
                    format!(r#"{{"message":"m", "code": {modern} ,"data":{{"code":{code}}}}}"#);
                let edits = errors(*server, V2026_07_28, json(&text)).unwrap();
                assert_eq!(apply(&text, &edits), expected);
                assert!(errors(*server, *server, json(&text)).unwrap().is_empty());
            }
        }
        for text in ["5", "{}", "null"] {
            assert!(
                errors(V2025_11_25, V2026_07_28, json(text))
                    .unwrap()
                    .is_empty()
            );
        }
    }

    #[test]
    fn errors_that_ask_back_are_refused_for_modern_clients() {
        let text = r#"{"code":-32042,"message":"m","data":{"elicitations":[]}}"#;
        for server in Version::ALL {
            let refused = errors(server, V2026_07_28, json(text)).unwrap_err();
            assert_eq!(refused.code, Code::NotSupportedYet);
        }
        assert!(
            errors(V2025_11_25, V2024_11_05, json(text))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn errors_about_our_own_hop_are_not_relayed() {
        for client in Version::ALL {
            for code in [HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION] {
                let text = format!(
                    r#"{{"code":{code},"message":"m","data":{{"supported":["2024-11-05"]}}}}"#
                );
                let refused = errors(V2026_07_28, client, json(&text)).unwrap_err();
                assert_eq!(refused.code, Code::ServerAnswerInvalid);
            }
            let text = r#"{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}"#;
            assert!(errors(V2026_07_28, client, json(text)).unwrap().is_empty());
        }
    }

    #[test]
    fn id_becomes_the_daemons_own_and_the_clients_again() {
        use colibri_wire::{Envelope, EnvelopeKind};
        let frame = r#" {"method":"tools/call" ,"params":{"name":"x","id":1,"_meta":{"progressToken":1}},"id": "\u0061","jsonrpc":"2.0"} "#;
        let EnvelopeKind::Request { id, params, .. } =
            Envelope::parse(frame.as_bytes()).unwrap().kind
        else {
            panic!()
        };
        let towards = Towards {
            client: V2025_11_25,
            server: V2025_11_25,
            progress_token: Some(42),
            may_ask: Askable::NOTHING,
            log_level: None,
        };
        let mut edits = params_edits(params.unwrap(), &towards);
        let name = params.unwrap().get("name").unwrap().span();
        rename_edit(&mut edits, frame.as_bytes(), name, "own name");
        edits.replace(id.span(), "7");
        assert_eq!(
            apply(frame, &edits),
            r#" {"method":"tools/call" ,"params":{"name":"own name","id":1,"_meta":{"progressToken":42}},"id": 7,"jsonrpc":"2.0"} "#
        );
        let frame = r#"{"id":7,"jsonrpc":"2.0","result":{"id":7,"content":[]}}"#;
        let EnvelopeKind::Answer {
            id: Some(id),
            outcome: Ok(result),
        } = Envelope::parse(frame.as_bytes()).unwrap().kind
        else {
            panic!()
        };
        let mut edits =
            result_edits(&shape(Method::ToolsCall, V2025_11_25, V2026_07_28), result).unwrap();
        edits.replace(id.span(), r#""\u0061""#);
        assert_eq!(
            apply(frame, &edits),
            r#"{"id":"\u0061","jsonrpc":"2.0","result":{"resultType":"complete","id":7,"content":[]}}"#
        );
    }

    fn any_value() -> impl Strategy<Value = String> {
        let key = prop_oneof![
            Just("content".to_owned()),
            Just("structuredContent".to_owned()),
            Just("resultType".to_owned()),
            Just("type".to_owned()),
            Just("_meta".to_owned()),
            Just("name".to_owned()),
            Just("code".to_owned()),
            Just("ttlMs".to_owned()),
            Just("cacheScope".to_owned()),
            Just("progressToken".to_owned()),
            Just(META_CLIENT_INFO.to_owned()),
            ".{0,4}",
        ];
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("-32002".to_owned()),
            Just("1e400".to_owned()),
            Just(r#""\ud800\"""#.to_owned()),
            Just("\"complete\"".to_owned()),
            Just("\"audio\"".to_owned()),
            Just("\"public\"".to_owned()),
            ".{0,6}".prop_map(|text| string(&text)),
        ];
        leaf.prop_recursive(4, 48, 6, move |inner| {
            prop_oneof![
                1 => proptest::collection::vec(inner.clone(), 0..5).prop_map(|all| format!("[ {} ]", all.join("\t, "))),
                3 => proptest::collection::vec((key.clone(), inner), 0..7).prop_map(|all| {
                    let members: Vec<String> = all.iter().map(|(key, value)| format!("{} :{value}", string(key))).collect();
                    format!("{{ {} }}", members.join(" ,"))
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn edits_keep_the_json_valid_and_all_else_identical(
            text in any_value(),
            method in 0..Method::ALL.len(),
            server in 0..5usize,
            client in 0..5usize,
        ) {
            let (method, server, client) = (Method::ALL[method], Version::ALL[server], Version::ALL[client]);
            let padded = format!("   {text} ");
            let read = Json::parse(padded.as_bytes()).unwrap();
            let towards = Towards { client, server, progress_token: Some(1), may_ask: Askable::NOTHING, log_level: None };
            let all = [
                result_edits(&shape(method, server, client), read).ok(),
                errors(server, client, read).ok(),
                read.is_object().then(|| params_edits(read, &towards)),
                read.is_object().then(|| cancelled_edits(read, 1)),
                read.is_object().then(|| progress_edits(read, "1")),
            ];
            for edits in all.into_iter().flatten() {
                let edited = edits.apply(padded.as_bytes());
                prop_assert!(Json::parse(&edited).is_ok(), "{}", String::from_utf8_lossy(&edited));
                // Edits are in order and do not overlap. The text between two edits stands between
                // their replacements.
                let (mut from, mut to) = (0, 0);
                for edit in edits.iter() {
                    prop_assert!(from <= edit.span.start && edit.span.start <= edit.span.end);
                    let untouched = &padded.as_bytes()[from..edit.span.start];
                    prop_assert_eq!(untouched, &edited[to..to + untouched.len()]);
                    to += untouched.len();
                    prop_assert_eq!(&edit.with[..], &edited[to..to + edit.with.len()]);
                    to += edit.with.len();
                    from = edit.span.end;
                }
                prop_assert_eq!(&padded.as_bytes()[from..], &edited[to..]);
            }
        }
    }
}

//! A server's elicitation, sampling or roots request on its way to a client, and the client's
//! answer on its way back. The message to the person names the server. Parts that the client's
//! version cannot parse are changed or refused. `docs/rewrites.md` has a row for each edit.

use super::answer::META_SERVER;
use super::elicitation_kind::ElicitationKind;
use super::elicitation_support::Askable;
use super::input::REQUESTS_LIMIT;
use super::links::Links;
use super::members::{Change, rewrite};
use super::request::{META_PROGRESS_TOKEN, is_id};
use super::rewrites::{CONVERTED_LIMIT, block_as_text, claims_ours};
use super::rpc_error::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcError};
use super::version::Version;
use colibri_wire::json::{JsonKind, string};
use colibri_wire::{Edits, Json};

/// The keys of the request's `params` that are read here. Two members that could be taken for the
/// same key make the request ambiguous.
const PARAMS_KEYS: [&str; 12] = [
    "_meta",
    "task",
    "message",
    "mode",
    "requestedSchema",
    "url",
    "elicitationId",
    "messages",
    "systemPrompt",
    "includeContext",
    "tools",
    "toolChoice",
];

/// The server and the client of one request.
#[derive(Debug, Clone, Copy)]
pub struct Wording<'a> {
    /// The server's id, which is shown to the person.
    pub server: &'a str,
    /// The client's version.
    pub client: Version,
    /// The kinds of input that the client declares.
    pub can: Askable,
    /// The daemon's own number of the request. It is the request's id for the client, and its
    /// progress token.
    pub number: u64,
    /// True if the server's URIs stand behind its prefix.
    pub is_exposed: bool,
}

impl Wording<'_> {
    /// The text in front of the message that is shown to the person.
    fn name(&self) -> String {
        format!("[{}] ", self.server)
    }

    fn meta(&self) -> String {
        format!("\"{META_SERVER}\":{}", string(self.server))
    }

    /// The `params` of a request that has none of its own.
    pub fn params(&self) -> String {
        format!("{{\"_meta\":{{{}}}}}", self.meta())
    }

    /// The edits to the `params` of a server's request.
    ///
    /// # Errors
    /// The answer for the server: the client does not support this kind of input, or the request
    /// breaks the protocol.
    pub fn edits(&self, ask: ElicitationKind, params: Json<'_>) -> Result<Edits, RpcError> {
        if let Some(error) = self.refusal(ask) {
            return Err(error);
        }
        if !params.is_object() {
            return Err(invalid("params is no object"));
        }
        if let Some(key) = params.ambiguous(&PARAMS_KEYS) {
            return Err(invalid(&format!(
                "two members of params can be read as \"{key}\""
            )));
        }
        let has =
            |key: &str, kind: JsonKind| params.get(key).is_some_and(|value| value.kind() == kind);
        let missing = match ask {
            ElicitationKind::Form | ElicitationKind::Url if !has("message", JsonKind::String) => {
                Some("message, a string")
            }
            ElicitationKind::Form if !has("requestedSchema", JsonKind::Object) => {
                Some("requestedSchema, an object")
            }
            ElicitationKind::Url if !has("url", JsonKind::String) => Some("url, a string"),
            ElicitationKind::Sampling | ElicitationKind::SamplingTools
                if !has("messages", JsonKind::Array) =>
            {
                Some("messages, an array")
            }
            _ => None,
        };
        if let Some(missing) = missing {
            return Err(invalid(&format!("params lacks {missing}")));
        }
        let mut insert = Vec::new();
        if !has("_meta", JsonKind::Object) {
            insert.push(format!("\"_meta\":{{{}}}", self.meta()));
        }
        if ask == ElicitationKind::Url
            && !self.client.is_modern()
            && params.get("elicitationId").is_none()
        {
            insert.push(format!("\"elicitationId\":\"colibri-{}\"", self.number));
        }
        let samples = matches!(
            ask,
            ElicitationKind::Sampling | ElicitationKind::SamplingTools
        );
        if samples && !has("systemPrompt", JsonKind::String) {
            insert.push(format!(
                "\"systemPrompt\":{}",
                string(self.name().trim_end())
            ));
        }
        let mut edits = Edits::new();
        let mut refused = None;
        rewrite(&mut edits, params, &insert.join(","), |member, edits| {
            let key = |key: &str| member.key.is_string(key);
            if key("_meta") {
                if !member.value.is_object() {
                    return Change::Remove;
                }
                self.edit_meta(edits, member.value);
            } else if key("task") {
                // Clients do not see tasks of the daemon's own requests.
                return Change::Remove;
            } else if !samples && key("message") || samples && key("systemPrompt") {
                match member.value.after("") {
                    Some(at) => edits.insert(at, self.name()),
                    None => return Change::Remove,
                }
            } else if ask == ElicitationKind::Form && key("requestedSchema") {
                refused = self
                    .edit_schema(edits, member.value)
                    .err()
                    .or(refused.take());
            } else if samples && key("messages") {
                refused = self
                    .edit_messages(edits, member.value)
                    .err()
                    .or(refused.take());
            } else if samples
                && key("includeContext")
                && !self.can.has_context()
                && !member.value.is_string("none")
            {
                return Change::Remove;
            }
            Change::Keep
        });
        match refused {
            Some(error) => Err(error),
            None => Ok(edits),
        }
    }

    /// The edits to a server's error -32042 for a legacy client: each `message` gets the name of
    /// the server that wants the person to open a URL. Entries that are no elicitation stay as they
    /// are.
    pub fn url_error_edits(&self, error: Json<'_>) -> Edits {
        let mut edits = Edits::new();
        for elicitation in elicitations(error) {
            let messages = elicitation
                .members()
                .filter(|member| member.key.is_string("message"));
            for at in messages.filter_map(|member| member.value.after("")) {
                edits.insert(at, self.name());
            }
        }
        edits
    }

    /// The answer for a server that requests input of a kind that this client does not support
    /// (2025-11-25, client/elicitation and client/sampling, "Error Handling": -32602 for a mode or
    /// `tools` that was not declared).
    fn refusal(&self, ask: ElicitationKind) -> Option<RpcError> {
        if self.can.can(ask) {
            return None;
        }
        let what = match ask {
            ElicitationKind::Form => "forms (elicitation)",
            ElicitationKind::Url => "elicitation of mode url",
            ElicitationKind::Sampling => "sampling",
            ElicitationKind::SamplingTools => "sampling with tools",
            ElicitationKind::Roots => "roots",
        };
        let why = if self.client < ask.since() {
            format!("it speaks MCP {}, which does not have that", self.client)
        } else {
            "it did not declare that".to_owned()
        };
        let is_part = match ask {
            ElicitationKind::Url => self.can.can(ElicitationKind::Form),
            ElicitationKind::Form => self.can.can(ElicitationKind::Url),
            ElicitationKind::SamplingTools => self.can.can(ElicitationKind::Sampling),
            ElicitationKind::Sampling | ElicitationKind::Roots => false,
        };
        let code = if is_part {
            INVALID_PARAMS
        } else {
            METHOD_NOT_FOUND
        };
        Some(RpcError::new(
            code,
            format!("the client that this is for cannot be asked for {what}: {why}"),
        ))
    }

    fn edit_meta(&self, edits: &mut Edits, meta: Json<'_>) {
        rewrite(edits, meta, &self.meta(), |member, _| {
            if claims_ours(&member.key) {
                Change::Remove
            } else if member.key.is_string(META_PROGRESS_TOKEN) {
                // A modern client sends no progress.
                if is_id(&member.value) && !self.client.is_modern() {
                    Change::Replace(self.number.to_string())
                } else {
                    Change::Remove
                }
            } else {
                Change::Keep
            }
        });
    }

    /// Before 2025-11-25 a choice was an `enum` with `enumNames`, and a choice of several values
    /// did not exist.
    fn edit_schema(&self, edits: &mut Edits, schema: Json<'_>) -> Result<(), RpcError> {
        if self.client >= Version::V2025_11_25 {
            return Ok(());
        }
        let properties = schema
            .members()
            .filter(|member| member.key.is_string("properties"));
        for property in properties.flat_map(|member| member.value.members()) {
            let definition = property.value;
            if definition
                .get("type")
                .is_some_and(|kind| kind.is_string("array"))
            {
                return Err(self.lacks("a choice of several things"));
            }
            let Some(choices) = definition.get("oneOf") else {
                continue;
            };
            let (mut values, mut names) = (Vec::new(), Vec::new());
            for choice in choices.elements() {
                let value = choice
                    .get("const")
                    .filter(|value| value.kind() == JsonKind::String);
                let Some(value) = value else {
                    return Err(self.lacks("a choice of things that are no strings"));
                };
                let name = choice
                    .get("title")
                    .filter(|title| title.kind() == JsonKind::String);
                values.push(value.text());
                names.push(name.unwrap_or(value).text());
            }
            let insert = format!(
                "\"enum\":[{}],\"enumNames\":[{}]",
                values.join(","),
                names.join(",")
            );
            rewrite(edits, definition, &insert, |member, _| {
                let goes = ["oneOf", "enum", "enumNames"]
                    .iter()
                    .any(|key| member.key.is_string(key));
                if goes { Change::Remove } else { Change::Keep }
            });
        }
        Ok(())
    }

    /// Edits messages for a client before 2025-11-25: a message with several blocks becomes several
    /// messages, and a block of an unknown type becomes text. URIs become those that clients see.
    fn edit_messages(&self, edits: &mut Edits, messages: Json<'_>) -> Result<(), RpcError> {
        let mut count = 0;
        for message in messages.elements() {
            let Some(content) = message
                .get("content")
                .filter(|_| message.ambiguous(&["role", "content"]).is_none())
            else {
                return Err(invalid(
                    "a message has no content, or two members that can be read as one",
                ));
            };
            let is_list = content.kind() == JsonKind::Array;
            let blocks: Vec<_> = if is_list {
                content.elements().collect()
            } else {
                vec![content]
            };
            count += blocks.len();
            if count > CONVERTED_LIMIT {
                return Err(invalid(&format!(
                    "over {CONVERTED_LIMIT} content blocks in messages"
                )));
            }
            let uses_tools = |block: &Json<'_>| {
                let kind = block.get("type");
                kind.is_some_and(|kind| kind.is_string("tool_use") || kind.is_string("tool_result"))
            };
            if blocks.iter().any(uses_tools) && !self.can.can(ElicitationKind::SamplingTools) {
                return Err(self
                    .refusal(ElicitationKind::SamplingTools)
                    .unwrap_or_else(|| self.lacks("sampling with tools")));
            }
            let is_old = self.client < Version::V2025_11_25;
            if is_list && is_old {
                if blocks.is_empty() {
                    return Err(self.lacks("a message without content"));
                }
                let own = message.detached();
                let at = content.span().start - message.span().start;
                let part = |block: &Json<'_>| {
                    let mut alone = Edits::new();
                    alone.replace(at..at + content.text().len(), self.block(*block));
                    String::from_utf8(alone.apply(own.text().as_bytes())).unwrap_or_default()
                };
                let parts: Vec<_> = blocks.iter().map(part).collect();
                edits.replace(message.span(), parts.join(","));
                continue;
            }
            for block in blocks {
                match block_as_text(block, self.client, None).filter(|_| is_old) {
                    Some(text) => edits.replace(block.span(), text),
                    None => self.expose(edits, block),
                }
            }
        }
        Ok(())
    }

    /// A block of content as an older client reads it.
    fn block(&self, block: Json<'_>) -> String {
        if let Some(text) = block_as_text(block, self.client, None) {
            return text;
        }
        let own = block.detached();
        let mut edits = Edits::new();
        self.expose(&mut edits, own);
        String::from_utf8(edits.apply(own.text().as_bytes()))
            .unwrap_or_else(|_| own.text().to_owned())
    }

    /// Exposes the URIs of resources in a block, and in the result of a tool inside it.
    fn expose(&self, edits: &mut Edits, block: Json<'_>) {
        if self.is_exposed {
            Links::of(self.server).block(edits, block, 0);
        }
    }

    fn lacks(&self, what: &str) -> RpcError {
        RpcError::invalid_params(format!(
            "the client that this is for speaks MCP {}, which does not have {what}",
            self.client
        ))
    }
}

/// The elicitations in an error -32042, up to the limit (2025-11-25, client/elicitation, "URL
/// Elicitation Required Error").
pub fn elicitations(error: Json<'_>) -> impl Iterator<Item = Json<'_>> {
    let named = error.get("data").and_then(|data| data.get("elicitations"));
    named
        .into_iter()
        .flat_map(|named| named.elements())
        .take(REQUESTS_LIMIT)
}

fn invalid(what: &str) -> RpcError {
    RpcError::invalid_params(format!("invalid params: {what}"))
}

/// The client's response to a request for input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientReply {
    /// The person accepted.
    Accept,
    /// The person declined.
    Decline,
    /// The person cancelled.
    Cancel,
    /// The result of a request that needs no consent.
    Answer,
}

impl ClientReply {
    /// The response as one word: MCP's own word if it has one.
    pub fn name(self) -> &'static str {
        match self {
            ClientReply::Accept => "accept",
            ClientReply::Decline => "decline",
            ClientReply::Cancel => "cancel",
            ClientReply::Answer => "answer",
        }
    }
}

/// Reads a client's result for a server of this version, and the edits that the server's version
/// needs.
///
/// # Errors
/// The reason for which the result is invalid.
pub fn read_response(
    ask: ElicitationKind,
    result: Json<'_>,
    server: Version,
) -> Result<(ClientReply, Edits), String> {
    let mut edits = Edits::new();
    if !result.is_object() {
        return Err("the client's answer is no object".to_owned());
    }
    if let Some(key) = result.ambiguous(&["action", "content", "role", "model", "roots"]) {
        return Err(format!(
            "two members of the client's answer can be read as \"{key}\""
        ));
    }
    let kind = |key: &str| result.get(key).map(|value| value.kind());
    let wrong = |what: &str| Err(format!("the client's answer {what}"));
    match ask {
        ElicitationKind::Form | ElicitationKind::Url => {
            let action = result.get("action");
            let is = |word: &str| action.is_some_and(|action| action.is_string(word));
            let said = [
                ClientReply::Accept,
                ClientReply::Decline,
                ClientReply::Cancel,
            ]
            .into_iter()
            .find(|said| is(said.name()));
            match said {
                None => wrong("has no action that is accept, decline or cancel"),
                Some(ClientReply::Accept)
                    if !matches!(
                        kind("content"),
                        None | Some(JsonKind::Object | JsonKind::Null)
                    ) =>
                {
                    wrong("has content that is no object")
                }
                Some(said) => Ok((said, edits)),
            }
        }
        ElicitationKind::Sampling | ElicitationKind::SamplingTools => {
            if kind("role") != Some(JsonKind::String) || kind("model") != Some(JsonKind::String) {
                return wrong("lacks role or model, both strings");
            }
            let Some(content) = result.get("content") else {
                return wrong("has no content");
            };
            let block = match content.kind() {
                JsonKind::Object => content,
                JsonKind::Array if server >= Version::V2025_11_25 => {
                    return Ok((ClientReply::Answer, edits));
                }
                JsonKind::Array => {
                    let mut blocks = content.elements();
                    match (blocks.next(), blocks.next()) {
                        (Some(block), None) => {
                            edits.replace(content.span(), block.text());
                            block
                        }
                        _ => {
                            return Err(format!(
                                "the client answered with several blocks of content or none, and MCP {server}, which the \
                                 server speaks, takes one"
                            ));
                        }
                    }
                }
                _ => return wrong("has content that is neither an object nor an array"),
            };
            if server < Version::V2025_11_25
                && let Some(text) = block_as_text(block, server, None)
            {
                edits = Edits::new();
                edits.replace(content.span(), text);
            }
            Ok((ClientReply::Answer, edits))
        }
        ElicitationKind::Roots if kind("roots") == Some(JsonKind::Array) => {
            Ok((ClientReply::Answer, edits))
        }
        ElicitationKind::Roots => wrong("has no roots that are an array"),
    }
}

#[cfg(test)]
mod tests {
    use super::Version::*;
    use super::*;
    use crate::read_in_tests::json;

    /// A client of this version that supports all kinds of input of its version.
    fn able(client: Version) -> Wording<'static> {
        let all = Askable::named(["elicitation", "sampling", "roots"]).declaration(V2025_11_25);
        let can = if client < V2025_11_25 {
            r#"{"elicitation":{},"sampling":{},"roots":{}}"#.to_owned()
        } else {
            all
        };
        Wording {
            server: "fs",
            client,
            can: Askable::read(client, Some(json(&can))),
            number: 7,
            is_exposed: true,
        }
    }

    fn asked(asking: &Wording<'_>, ask: ElicitationKind, params: &str) -> Result<String, RpcError> {
        let edits = asking.edits(ask, json(params))?;
        let text = String::from_utf8(edits.apply(params.as_bytes())).unwrap();
        assert!(Json::parse(text.as_bytes()).is_ok(), "{text}");
        Ok(text)
    }

    const META: &str = r#""_meta":{"org.colibri/server":"fs"}"#;

    #[test]
    fn the_server_is_named_to_the_person() {
        let asking = able(V2025_11_25);
        for (ask, params, expected) in [
            (
                ElicitationKind::Form,
                r#"{"message":"Hi\u0021 \ud83d\ude00","requestedSchema":{"type":"object","properties":{}},"x":1e400}"#,
                r#"{META,"message":"[fs] Hi\u0021 \ud83d\ude00","requestedSchema":{"type":"object","properties":{}},"x":1e400}"#,
            ),
            (
                ElicitationKind::Url,
                r#"{"mode":"url","m\u0065ssage":"","url":"https://h/","elicitationId":"e"}"#,
                r#"{META,"mode":"url","m\u0065ssage":"[fs] ","url":"https://h/","elicitationId":"e"}"#,
            ),
            (
                ElicitationKind::Sampling,
                r#"{"messages":[],"systemPrompt":"Be brief"}"#,
                r#"{META,"messages":[],"systemPrompt":"[fs] Be brief"}"#,
            ),
            (
                ElicitationKind::Sampling,
                r#"{"messages":[]}"#,
                r#"{META,"systemPrompt":"[fs]","messages":[]}"#,
            ),
            (ElicitationKind::Roots, "{}", "{META}"),
            (
                ElicitationKind::Roots,
                r#"{"_meta":{"org.colibri/server":"other","k":1}}"#,
                r#"{"_meta":{"org.colibri/server":"fs","k":1}}"#,
            ),
            (ElicitationKind::Roots, r#"{"_meta":7}"#, "{META}"),
        ] {
            let expected = expected.replace("META", META);
            assert_eq!(asked(&asking, ask, params).unwrap(), expected);
        }
        assert_eq!(asking.params(), format!("{{{META}}}"));
    }

    #[test]
    fn what_a_server_wants_of_its_own_hop_stays_there() {
        let asking = able(V2025_11_25);
        let meta = r#"{"_meta":{"progressToken":"p","k":1},"task":{"ttl":1}}"#;
        assert_eq!(
            asked(&asking, ElicitationKind::Roots, meta).unwrap(),
            r#"{"_meta":{"org.colibri/server":"fs","progressToken":7,"k":1}}"#
        );
        let meta = r#"{"_meta":{"progressToken":{}}}"#;
        assert_eq!(
            asked(&asking, ElicitationKind::Roots, meta).unwrap(),
            format!("{{{META}}}")
        );
    }

    /// One cell for each kind of input and version.
    #[test]
    fn what_a_version_does_not_have_is_refused_with_its_reason() {
        for client in Version::ALL {
            for ask in ElicitationKind::ALL {
                let params = match ask {
                    ElicitationKind::Form => r#"{"message":"m","requestedSchema":{}}"#,
                    ElicitationKind::Url => r#"{"message":"m","mode":"url","url":"u"}"#,
                    ElicitationKind::Sampling => r#"{"messages":[]}"#,
                    ElicitationKind::SamplingTools => r#"{"messages":[],"tools":[]}"#,
                    ElicitationKind::Roots => "{}",
                };
                let answer = asked(&able(client), ask, params);
                assert_eq!(
                    answer.is_ok(),
                    client >= ask.since(),
                    "{client} {ask:?} {answer:?}"
                );
                if let Err(error) = answer {
                    assert!(error.message.contains(client.as_str()), "{}", error.message);
                }
                let nothing = Wording {
                    can: Askable::NOTHING,
                    ..able(client)
                };
                assert!(asked(&nothing, ask, params).is_err(), "{client} {ask:?}");
            }
        }
        let forms = Wording {
            can: Askable::read(
                V2025_11_25,
                Some(json(r#"{"elicitation":{},"sampling":{}}"#)),
            ),
            ..able(V2025_11_25)
        };
        let code = |ask, params| asked(&forms, ask, params).unwrap_err().code;
        assert_eq!(code(ElicitationKind::Url, "{}"), INVALID_PARAMS);
        assert_eq!(code(ElicitationKind::SamplingTools, "{}"), INVALID_PARAMS);
        assert_eq!(code(ElicitationKind::Roots, "{}"), METHOD_NOT_FOUND);
    }

    /// One cell for each kind of property and version that has forms.
    #[test]
    fn forms_are_what_older_clients_can_show() {
        let form = |property: &str| {
            format!(
                r#"{{{META},"message":"m","requestedSchema":{{"type":"object","properties":{{"p":{property}}}}}}}"#
            )
        };
        let shown = form;
        for (property, old) in [
            (r#"{"type":"string","format":"email","default":"a"}"#, None),
            (r#"{"type":"number","minimum":0}"#, None),
            (r#"{"type":"boolean","default":true}"#, None),
            (r#"{"type":"string","enum":["a"],"enumNames":["A"]}"#, None),
            (
                r#"{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"\u0062"}],"default":"a"}"#,
                Some(Some(
                    r#"{"enum":["a","\u0062"],"enumNames":["A","\u0062"],"type":"string","default":"a"}"#,
                )),
            ),
            (r#"{"type":"string","oneOf":[{"const":1}]}"#, Some(None)),
            (
                r#"{"type":"array","items":{"type":"string","enum":["a"]}}"#,
                Some(None),
            ),
        ] {
            for client in [V2025_06_18, V2025_11_25] {
                let expected = match old {
                    Some(old) if client == V2025_06_18 => old,
                    _ => Some(property),
                };
                let params = form(property).replacen(&format!("{META},"), "", 1);
                let answer = asked(&able(client), ElicitationKind::Form, &params);
                let expected =
                    expected.map(|property| shown(property).replace("\"m\"", "\"[fs] m\""));
                assert_eq!(answer.ok(), expected, "{client} {property}");
            }
        }
    }

    /// One cell for each version of clients.
    #[test]
    fn sampling_messages_are_what_older_clients_can_read() {
        let two = r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"audio","data":"AA","mimeType":"audio/wav"}],"k":1}"#;
        for client in Version::ALL {
            let params = format!(r#"{{"messages":[{two}],"includeContext":"thisServer"}}"#);
            let answer = asked(&able(client), ElicitationKind::Sampling, &params).unwrap();
            let audio = if client >= V2025_03_26 {
                r#"{"type":"audio","data":"AA","mimeType":"audio/wav"}"#.to_owned()
            } else {
                let text = "[audio, audio/wav, 2 bytes of base64: MCP 2024-11-05 has no audio]";
                format!(r#"{{"type":"text","text":"{text}"}}"#)
            };
            let messages = if client >= V2025_11_25 {
                two.to_owned()
            } else {
                let one = |block: &str| format!(r#"{{"role":"user","content":{block},"k":1}}"#);
                format!("{},{}", one(r#"{"type":"text","text":"a"}"#), one(&audio))
            };
            let head = format!(r#"{{{META},"systemPrompt":"[fs]","messages":[{messages}]"#);
            assert_eq!(
                answer,
                format!(r#"{head},"includeContext":"thisServer"}}"#),
                "{client}"
            );
        }
        let no_context = Wording {
            can: Askable::read(V2025_11_25, Some(json(r#"{"sampling":{}}"#))),
            ..able(V2025_11_25)
        };
        for (context, left) in [("thisServer", ""), ("none", r#","includeContext":"none""#)] {
            let params = format!(r#"{{"messages":[],"includeContext":"{context}"}}"#);
            let expected = format!(r#"{{{META},"systemPrompt":"[fs]","messages":[]{left}}}"#);
            assert_eq!(
                asked(&no_context, ElicitationKind::Sampling, &params).unwrap(),
                expected
            );
        }
        for hostile in [
            r#"{"messages":[{"role":"user"}]}"#,
            r#"{"messages":[{"role":"user","content":{},"Content":{}}]}"#,
            r#"{"messages":[7]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"tool_use","id":"1","name":"n","input":{}}}]}"#,
        ] {
            assert!(
                asked(&no_context, ElicitationKind::Sampling, hostile).is_err(),
                "{hostile}"
            );
        }
        let empty = r#"{"messages":[{"role":"user","content":[]}]}"#;
        assert!(asked(&able(V2025_06_18), ElicitationKind::Sampling, empty).is_err());
        assert!(asked(&able(V2025_11_25), ElicitationKind::Sampling, empty).is_ok());
    }

    #[test]
    fn uris_that_a_server_samples_with_are_those_that_clients_see() {
        let params = r#"{"messages":[{"role":"user","content":[{"type":"tool_result","toolUseId":"1","content":[
            {"type":"resource_link","uri":"file:///a"},{"type":"resource","resource":{"uri":"ui://x"}},{"type":"text","text":"file:///a"}]}]}],"tools":[]}"#;
        let shown = asked(&able(V2025_11_25), ElicitationKind::SamplingTools, params).unwrap();
        assert!(
            shown.contains(r#""uri":"fs+file:///a""#) && shown.contains(r#""uri":"ui://fs/x""#),
            "{shown}"
        );
        assert!(shown.contains(r#""text":"file:///a""#), "{shown}");
        let bare = Wording {
            is_exposed: false,
            ..able(V2025_11_25)
        };
        assert!(
            asked(&bare, ElicitationKind::SamplingTools, params)
                .unwrap()
                .contains(r#""uri":"file:///a""#)
        );
    }

    #[test]
    fn an_elicitation_by_url_has_an_id_where_the_clients_version_wants_one() {
        let params = r#"{"mode":"url","message":"m","url":"u"}"#;
        let legacy = asked(&able(V2025_11_25), ElicitationKind::Url, params).unwrap();
        assert!(
            legacy.contains(r#""elicitationId":"colibri-7""#),
            "{legacy}"
        );
        let modern = asked(&able(V2026_07_28), ElicitationKind::Url, params).unwrap();
        assert!(!modern.contains("elicitationId"), "{modern}");
    }

    #[test]
    fn an_error_that_wants_urls_opened_names_its_server() {
        let text = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"message":"\u0041","url":"u"},7,{"message":1}],"x":1e400}}"#;
        let edits = able(V2025_11_25).url_error_edits(json(text));
        let named = text.replace(r#""\u0041""#, r#""[fs] \u0041""#);
        assert_eq!(
            String::from_utf8(edits.apply(text.as_bytes())).unwrap(),
            named
        );
        for other in [
            "{}",
            "null",
            r#"{"data":{"elicitations":{}}}"#,
            r#"{"data":[]}"#,
        ] {
            assert!(
                able(V2025_11_25).url_error_edits(json(other)).is_empty(),
                "{other}"
            );
        }
        let many = format!(
            r#"{{"data":{{"elicitations":[{}{{}}]}}}}"#,
            r#"{"message":"m"},"#.repeat(1000)
        );
        assert_eq!(
            able(V2025_11_25)
                .url_error_edits(json(&many))
                .iter()
                .count(),
            REQUESTS_LIMIT
        );
    }

    #[test]
    fn hostile_requests_are_refused() {
        for (ask, params) in [
            (ElicitationKind::Form, "[]"),
            (ElicitationKind::Form, "{}"),
            (
                ElicitationKind::Form,
                r#"{"message":7,"requestedSchema":{}}"#,
            ),
            (
                ElicitationKind::Form,
                r#"{"message":"m","requestedSchema":[]}"#,
            ),
            (
                ElicitationKind::Form,
                r#"{"message":"m","Message":"n","requestedSchema":{}}"#,
            ),
            (
                ElicitationKind::Form,
                r#"{"message":"m","message":"n","requestedSchema":{}}"#,
            ),
            (ElicitationKind::Url, r#"{"mode":"url","message":"m"}"#),
            (
                ElicitationKind::Url,
                r#"{"mode":"url","message":"m","url":{}}"#,
            ),
            (ElicitationKind::Sampling, r#"{"messages":{}}"#),
        ] {
            let error = asked(&able(V2025_11_25), ask, params).unwrap_err();
            assert_eq!(error.code, INVALID_PARAMS, "{params}");
        }
    }

    #[test]
    fn answers_are_read_and_hostile_ones_refused() {
        for (ask, text, expected) in [
            (
                ElicitationKind::Form,
                r#"{"action":"accept","content":{"a":1e400}}"#,
                Some(ClientReply::Accept),
            ),
            (
                ElicitationKind::Url,
                r#"{"action":"accept"}"#,
                Some(ClientReply::Accept),
            ),
            (
                ElicitationKind::Form,
                r#"{"action":"decline"}"#,
                Some(ClientReply::Decline),
            ),
            (
                ElicitationKind::Form,
                r#"{"action":"c\u0061ncel","content":null}"#,
                Some(ClientReply::Cancel),
            ),
            (ElicitationKind::Form, r#"{"action":"yes"}"#, None),
            (
                ElicitationKind::Form,
                r#"{"action":"accept","content":[]}"#,
                None,
            ),
            (
                ElicitationKind::Form,
                r#"{"action":"decline","Action":"accept"}"#,
                None,
            ),
            (ElicitationKind::Form, "[]", None),
            (ElicitationKind::Form, "null", None),
            (ElicitationKind::Form, "{}", None),
            (
                ElicitationKind::Roots,
                r#"{"roots":[]}"#,
                Some(ClientReply::Answer),
            ),
            (ElicitationKind::Roots, r#"{"roots":{}}"#, None),
            (ElicitationKind::Roots, "{}", None),
            (
                ElicitationKind::Sampling,
                r#"{"role":"assistant","model":"m","content":{"type":"text","text":"t"}}"#,
                Some(ClientReply::Answer),
            ),
            (
                ElicitationKind::Sampling,
                r#"{"role":"assistant","model":"m"}"#,
                None,
            ),
            (
                ElicitationKind::Sampling,
                r#"{"role":"assistant","content":{}}"#,
                None,
            ),
            (
                ElicitationKind::Sampling,
                r#"{"role":"assistant","model":"m","content":"t"}"#,
                None,
            ),
        ] {
            let read = read_response(ask, json(text), V2025_11_25);
            assert_eq!(
                read.as_ref().ok().map(|(said, _)| *said),
                expected,
                "{text}"
            );
            assert!(read.is_err() || read.is_ok_and(|(_, edits)| edits.is_empty()));
        }
    }

    /// One cell for each version of servers.
    #[test]
    fn sampled_messages_are_what_older_servers_can_read() {
        let answer = |content: &str| {
            format!(r#"{{"role":"assistant","model":"m","content":{content},"x":1}}"#)
        };
        let block = r#"{"type":"text","text":"t"}"#;
        let audio = r#"{"type":"audio","data":"AA","mimeType":"audio/wav"}"#;
        for server in Version::ALL {
            let read = |content: &str| {
                let text = answer(content);
                let (_, edits) =
                    read_response(ElicitationKind::Sampling, json(&text), server).ok()?;
                Some(String::from_utf8(edits.apply(text.as_bytes())).unwrap())
            };
            let is_new = server >= V2025_11_25;
            let list = format!("[{block}]");
            assert_eq!(read(block), Some(answer(block)), "{server}");
            assert_eq!(
                read(&list),
                Some(answer(if is_new { &list } else { block })),
                "{server}"
            );
            let two = format!("[{block},{block}]");
            assert_eq!(read(&two), is_new.then(|| answer(&two)), "{server}");
            for audio in [audio.to_owned(), format!("[{audio}]")] {
                let shown = read(&audio).unwrap();
                assert_eq!(
                    shown.contains("no audio"),
                    server == V2024_11_05,
                    "{server} {shown}"
                );
            }
        }
    }
}

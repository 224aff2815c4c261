//! Requests of clients, and notifications about them, translated for a peer of another version.

use std::ops::Range;

use super::answer::{NAME, VERSION};
use super::elicitation_support::Askable;
use super::logging::Level;
use super::members::{Change, rewrite};
use super::request::{
    META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_LOG_LEVEL, META_PROGRESS_TOKEN,
    META_PROTOCOL_VERSION,
};
use super::version::Version;
use colibri_wire::json::{JsonKind, string};
use colibri_wire::splice::With;
use colibri_wire::{Edits, Json};

/// The versions of a call's two ends, and the values that it carries to the server.
#[derive(Debug, Clone, Copy)]
pub struct Towards {
    /// The version of the request.
    pub client: Version,
    /// The version that was negotiated with the server process.
    pub server: Version,
    /// The daemon's own progress token. A request without a token gets none.
    pub progress_token: Option<u64>,
    /// The input that the server may request from a legacy client. A modern client declares this
    /// itself.
    pub may_ask: Askable,
    /// The level of log messages that a legacy client has set.
    pub log_level: Option<Level>,
}

/// The edits to the `params` of a client's request on its way to a server.
///
/// `params` is an object whose `_meta` is an object or missing, as checked by
/// [`super::request::classify`].
pub fn params_edits(params: Json<'_>, towards: &Towards) -> Edits {
    let mut edits = Edits::new();
    if towards.client == towards.server && towards.progress_token.is_none() {
        return edits;
    }
    let to_modern = towards.server.is_modern() && !towards.client.is_modern();
    let to_legacy = !towards.server.is_modern() && towards.client.is_modern();
    let required = if to_modern {
        let mut meta = modern_meta(towards.server, towards.may_ask);
        if let Some(level) = towards.log_level {
            meta.push_str(&format!(",\"{META_LOG_LEVEL}\":\"{}\"", level.as_str()));
        }
        meta
    } else {
        String::new()
    };
    let lacks_meta = || !params.get("_meta").is_some_and(|meta| meta.is_object());
    let insert = if to_modern && lacks_meta() {
        format!("\"_meta\":{{{required}}}")
    } else {
        String::new()
    };
    rewrite(&mut edits, params, &insert, |member, edits| {
        if member.key.is_string("_meta") && member.value.is_object() {
            rewrite(edits, member.value, &required, |member, _| {
                let is_modern_key = [
                    META_PROTOCOL_VERSION,
                    META_CLIENT_CAPABILITIES,
                    META_CLIENT_INFO,
                    META_LOG_LEVEL,
                ]
                .iter()
                .any(|key| member.key.is_string(key));
                match towards.progress_token {
                    _ if is_modern_key && (to_legacy || to_modern) => Change::Remove,
                    Some(token)
                        if member.key.is_string(META_PROGRESS_TOKEN)
                            && member.value.kind() != JsonKind::Null =>
                    {
                        Change::Replace(token.to_string())
                    }
                    _ => Change::Keep,
                }
            });
        }
        Change::Keep
    });
    edits
}

/// The edits to the `params` of a modern request on its way to a modern server if nobody can answer
/// requests for input: only the extensions of the client's declaration are passed on.
pub fn mute_edits(params: Json<'_>) -> Edits {
    let mut edits = Edits::new();
    rewrite(&mut edits, params, "", |member, edits| {
        if member.key.is_string("_meta") && member.value.is_object() {
            rewrite(edits, member.value, "", |member, _| {
                if !member.key.is_string(META_CLIENT_CAPABILITIES) {
                    return Change::Keep;
                }
                let extensions = member.value.get("extensions").map(|it| it.text());
                Change::Replace(
                    extensions.map_or("{}".to_owned(), |it| format!("{{\"extensions\":{it}}}")),
                )
            });
        }
        Change::Keep
    });
    edits
}

/// The `params` of a request that has none of its own, for a server of this modern version: it
/// requires `_meta`.
pub fn required_params(server: Version, may_ask: Askable) -> String {
    format!("{{\"_meta\":{{{}}}}}", modern_meta(server, may_ask))
}

/// The members that `_meta` of each request to a server of this modern version has.
pub(crate) fn modern_meta(version: Version, may_ask: Askable) -> String {
    meta_declaring(version, &may_ask.declaration(version))
}

/// The same members with these `ClientCapabilities`.
pub(crate) fn meta_declaring(version: Version, capabilities: &str) -> String {
    format!(
        "\"{META_PROTOCOL_VERSION}\":{},\"{META_CLIENT_INFO}\":{{\"name\":{},\"version\":{}}},\
         \"{META_CLIENT_CAPABILITIES}\":{capabilities}",
        string(version.as_str()),
        string(NAME),
        string(VERSION)
    )
}

/// The edit to the name or URI in a request, a string at `at`: it becomes the server's own.
pub fn rename_edit(edits: &mut Edits, frame: &[u8], at: Range<usize>, own: &str) {
    let written = frame.get(at.clone()).unwrap_or_default();
    let inner = written
        .get(1..written.len().saturating_sub(1))
        .unwrap_or_default();
    let is_own = match memchr::memchr(b'\\', inner) {
        None => inner == own.as_bytes(),
        Some(_) => Json::part(frame, at.clone()).is_some_and(|written| written.is_string(own)),
    };
    if !is_own {
        edits.replace(at, quoted(own));
    }
}

/// The edits to the `params` of a client's `notifications/cancelled`: the request's id becomes the
/// daemon's own.
pub fn cancelled_edits(params: Json<'_>, request: u64) -> Edits {
    let mut edits = Edits::new();
    rewrite(&mut edits, params, "", |member, _| {
        if member.key.is_string("requestId") {
            Change::Replace(request.to_string())
        } else {
            Change::Keep
        }
    });
    edits
}

/// The edits to the `params` of a server's `notifications/progress`: the daemon's token becomes the
/// client's `token`, as written.
pub fn progress_edits(params: Json<'_>, token: &str) -> Edits {
    let mut edits = Edits::new();
    rewrite(&mut edits, params, "", |member, _| {
        if member.key.is_string(META_PROGRESS_TOKEN) {
            Change::Replace(token.to_owned())
        } else {
            Change::Keep
        }
    });
    edits
}

/// A string as JSON, with quotes. A short string without escapes needs no allocation.
pub fn quoted(text: &str) -> With {
    let plain = text
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\');
    let mut short = [b'"'; 30];
    match short.get_mut(1..=text.len()) {
        Some(inner) if plain && text.len() + 2 <= 30 => {
            inner.copy_from_slice(text.as_bytes());
            With::from(&short[..text.len() + 2])
        }
        _ => With::from(string(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::Version::*;
    use super::*;
    use crate::read_in_tests::{apply, json};
    use serde_json::{Value, json};

    fn towards(client: Version, server: Version) -> Towards {
        Towards {
            client,
            server,
            progress_token: Some(42),
            may_ask: Askable::named(["elicitation"]),
            log_level: None,
        }
    }

    #[test]
    fn tool_name_becomes_the_servers_own() {
        let text = r#"{"arguments":{"name":"x"},"n\u0061me": "server__own-name" ,"more":1}"#;
        let renamed = |text: &str| {
            let (mut edits, at) = (Edits::new(), json(text).get("name").unwrap().span());
            rename_edit(&mut edits, text.as_bytes(), at, "own name");
            apply(text, &edits)
        };
        assert_eq!(
            renamed(text),
            r#"{"arguments":{"name":"x"},"n\u0061me": "own name" ,"more":1}"#
        );
        let same = r#"{"name":"own\u0020name"}"#;
        assert_eq!(renamed(same), same);
    }

    #[test]
    fn progress_token_becomes_the_daemons_own() {
        for token in ["\"p\"", "7", "1e400", "\"\\ud800\""] {
            let text = format!(
                r#"{{"_meta":{{"a":1,"progressToken":{token}}},"progressToken":"not this one"}}"#
            );
            let edits = params_edits(json(&text), &towards(V2025_11_25, V2025_11_25));
            assert_eq!(apply(&text, &edits), text.replace(token, "42"));
        }
    }

    #[test]
    fn one_who_cannot_be_asked_declares_extensions_alone() {
        let with = |capabilities: &str| {
            format!(
                r#"{{"_meta":{{"t":1,"io.modelcontextprotocol/clientCapabilities":{capabilities},"progressToken":7}},"name":"x"}}"#
            )
        };
        for (declared, passed) in [
            (
                r#"{"elicitation":{"form":{}},"sampling":{},"roots":{}}"#,
                "{}",
            ),
            (r#"{"Elicitation":{},"new":{}}"#, "{}"),
            (
                r#"{"roots":{}, "extensions": {"a/b":{"x":1e400}}}"#,
                r#"{"extensions":{"a/b":{"x":1e400}}}"#,
            ),
        ] {
            let text = with(declared);
            assert_eq!(apply(&text, &mute_edits(json(&text))), with(passed));
        }
    }

    #[test]
    fn progress_token_of_the_client_comes_back() {
        let text = r#"{"progress":0.50,"progressToken": 42 ,"x":{"progressToken":42}}"#;
        assert_eq!(
            apply(text, &progress_edits(json(text), "\"\\u0061\"")),
            r#"{"progress":0.50,"progressToken": "\u0061" ,"x":{"progressToken":42}}"#
        );
    }

    #[test]
    fn cancelled_request_id_becomes_the_daemons_own() {
        let text = r#"{"reason":"x","requestId":"a\"b"}"#;
        assert_eq!(
            apply(text, &cancelled_edits(json(text), 9)),
            r#"{"reason":"x","requestId":9}"#
        );
    }

    #[test]
    fn the_log_level_of_a_legacy_client_is_told_to_modern_servers() {
        let level = Level::read(json("\"warning\""));
        for (params, client, expected) in [
            (
                r#"{"name":"x","_meta":{"t":1}}"#,
                V2025_11_25,
                Some(json!("warning")),
            ),
            (
                r#"{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}"#,
                V2024_11_05,
                Some(json!("warning")),
            ),
            ("{}", V2025_06_18, Some(json!("warning"))),
        ] {
            let towards = Towards {
                log_level: level,
                ..towards(client, V2026_07_28)
            };
            let edited = apply(params, &params_edits(json(params), &towards));
            let value: Value = serde_json::from_str(&edited).unwrap();
            assert_eq!(
                value["_meta"].get(META_LOG_LEVEL),
                expected.as_ref(),
                "{edited}"
            );
            assert_eq!(edited.matches(META_LOG_LEVEL).count(), 1);
        }
        // A legacy server gets it by logging/setLevel.
        let towards = Towards {
            log_level: level,
            ..towards(V2026_07_28, V2025_11_25)
        };
        let params = r#"{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}"#;
        let edited = apply(params, &params_edits(json(params), &towards));
        assert!(!edited.contains(META_LOG_LEVEL), "{edited}");
    }

    #[test]
    fn required_meta_is_added_for_modern_servers() {
        for client in &Version::ALL[..4] {
            for (params, expected_rest) in [
                (r#"{"name":"own name"}"#, json!({})),
                (r#"{"name":"own name","_meta":{}}"#, json!({})),
                (
                    r#"{"name":"own name","_meta":{"progressToken":"p","t":1}}"#,
                    json!({"progressToken": 42, "t": 1}),
                ),
                (
                    // A legacy client may write these keys, but they must not replace the daemon's.
                    r#"{"name":"own name","_meta":{"io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"t":1,"io.modelcontextprotocol/logLevel":"info"}}"#,
                    json!({"t": 1}),
                ),
            ] {
                let edits = params_edits(json(params), &towards(*client, V2026_07_28));
                let edited = apply(params, &edits);
                let mut value: Value = serde_json::from_str(&edited).unwrap();
                let meta = value["_meta"].as_object_mut().unwrap();
                assert_eq!(
                    meta.remove(META_PROTOCOL_VERSION),
                    Some(json!("2026-07-28"))
                );
                let may_ask = json!({"elicitation": {"form": {}, "url": {}}});
                assert_eq!(meta.remove(META_CLIENT_CAPABILITIES), Some(may_ask));
                assert_eq!(
                    meta.remove(META_CLIENT_INFO),
                    Some(json!({"name": NAME, "version": VERSION}))
                );
                assert_eq!(value["_meta"], expected_rest, "{edited}");
                assert_eq!(edited.matches(META_CLIENT_CAPABILITIES).count(), 1);
                let session = super::super::SessionPhase::Fresh;
                assert!(
                    super::super::request::classify(
                        session,
                        &[super::super::Capability::Tools],
                        "tools/call",
                        Some(json(&edited))
                    )
                    .is_ok()
                );
            }
        }
        assert_eq!(
            apply(
                "{}",
                &params_edits(json("{}"), &towards(V2025_11_25, V2026_07_28))
            ),
            required_params(V2026_07_28, Askable::named(["elicitation"]))
        );
    }

    #[test]
    fn a_request_without_params_gets_those_that_a_modern_server_wants() {
        let params = required_params(V2026_07_28, Askable::NOTHING);
        let (session, params) = (super::super::SessionPhase::Fresh, Some(json(&params)));
        let read = super::super::request::classify(session, &[], "files/watch", params).unwrap();
        assert_eq!((read.version, read.method), (V2026_07_28, None));
    }

    #[test]
    fn modern_meta_is_taken_out_for_legacy_servers() {
        let text = format!(
            r#"{{"name":"own name","_meta":{{"traceparent":"t",{},"io.modelcontextprotocol/logLevel":"info","progressToken":1}}}}"#,
            modern_meta(V2026_07_28, Askable::NOTHING)
        );
        for server in &Version::ALL[..4] {
            let edits = params_edits(json(&text), &towards(V2026_07_28, *server));
            assert_eq!(
                apply(&text, &edits),
                r#"{"name":"own name","_meta":{"traceparent":"t","progressToken":42}}"#
            );
        }
    }
}

//! What is changed in a message on its way: the result is JSON again, and what no rule names is as
//! it was.
//!
//! Input: client's version, server's version, what to rewrite, options (a byte each), the JSON.

use colibri_protocol::lists::{Exposure, definition_edits};
use colibri_protocol::{
    AnswerShape, Askable, Capability, Feature, Method, SessionPhase, Towards, Version, classify,
    error_edits, params_edits, rename_edit, result_edits,
};
use colibri_wire::{Edits, Json};

/// Applies edits and reads the outcome.
fn apply(text: &str, edits: &Edits) -> Vec<u8> {
    let mut at = 0;
    for edit in edits.iter() {
        assert!(
            at <= edit.span.start
                && edit.span.start <= edit.span.end
                && edit.span.end <= text.len()
        );
        at = edit.span.end;
    }
    let edited = edits.apply(text.as_bytes());
    assert_eq!(edited.len(), edits.edited_length(text.len()));
    if let Err(error) = Json::parse(&edited) {
        panic!(
            "{error}: {text} became {}",
            String::from_utf8_lossy(&edited)
        );
    }
    edited
}

/// A member's text, if there is exactly one.
fn only<'a>(json: Json<'a>, key: &str) -> Option<&'a str> {
    let mut found = json.members().filter(|member| member.key.is_string(key));
    let first = found.next()?.value.text();
    found.next().is_none().then_some(first)
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((head, frame)) = data.split_first_chunk::<4>() else {
        return;
    };
    let version = |byte: u8| Version::ALL[usize::from(byte) % Version::ALL.len()];
    let (client, server, options) = (version(head[0]), version(head[1]), head[3]);
    let Ok(json) = Json::parse(frame) else {
        return;
    };
    let json = json.detached();
    let text = json.text();
    let methods = [
        Method::ToolsCall,
        Method::ToolsList,
        Method::ResourcesRead,
        Method::PromptsGet,
        Method::Initialize,
    ];
    match head[2] % 4 {
        0 => {
            let session = if client.is_modern() {
                SessionPhase::Fresh
            } else {
                SessionPhase::Legacy(client)
            };
            let Ok(request) = classify(session, &[Capability::Tools], "tools/call", Some(json))
            else {
                return;
            };
            if !json.is_object() {
                return;
            }
            let towards = Towards {
                client: request.version,
                server,
                progress_token: request.meta.progress_token.map(|_| 7),
                may_ask: Askable::NOTHING,
                log_level: None,
            };
            let name = (options & 1 != 0).then_some("a \"name\"\n");
            let mut edits = params_edits(json, &towards);
            if let (Some(name), Some(at)) = (name, request.name) {
                rename_edit(&mut edits, text.as_bytes(), at.span(), name);
            }
            let edited = apply(text, &edits);
            let after = Json::parse(&edited).expect("seen to be JSON");
            assert_eq!(only(json, "arguments"), only(after, "arguments"));
            if let (Some(name), Some(_)) = (
                name,
                only(json, "name").filter(|name| name.starts_with('"')),
            ) {
                assert!(after.get("name").is_some_and(|value| value.is_string(name)));
            }
            let token = after
                .get("_meta")
                .and_then(|meta| meta.get("progressToken"));
            if towards.progress_token.is_some() {
                assert_eq!(token.map(|token| token.text()), Some("7"));
            }
            let says = after
                .get("_meta")
                .and_then(|meta| meta.get("io.modelcontextprotocol/protocolVersion"));
            if server.is_modern() && !request.version.is_modern() {
                assert!(says.is_some_and(|version| version.is_string(server.as_str())));
            }
            if !server.is_modern() && request.version.is_modern() {
                assert!(says.is_none());
            }
        }
        1 => {
            let method = methods[usize::from(options) % methods.len()];
            let shape = AnswerShape {
                method: Some(method),
                server,
                client,
                prefix: (options & 128 != 0).then_some("server"),
            };
            let Ok(edits) = result_edits(&shape, json) else {
                return;
            };
            let edited = apply(text, &edits);
            let after = Json::parse(&edited).expect("seen to be JSON");
            if client.is_modern() && !server.is_modern() {
                assert!(after.get("resultType").is_some());
            }
            if client == server && method == Method::ToolsCall && shape.prefix.is_none() {
                assert_eq!(edited, text.as_bytes());
            }
        }
        2 => {
            let shape = AnswerShape {
                method: Some(Method::ToolsCall),
                server,
                client,
                prefix: Some("server"),
            };
            if let Ok(edits) = error_edits(&shape, json) {
                let edited = apply(text, &edits);
                let after = Json::parse(&edited).expect("seen to be JSON");
                assert_eq!(only(json, "data"), only(after, "data"));
            }
        }
        _ => {
            let keys = [
                "name",
                "title",
                "description",
                "inputSchema",
                "outputSchema",
                "annotations",
                "_meta",
            ];
            if !json.is_object() || json.ambiguous(&keys).is_some() || json.get("name").is_none() {
                return;
            }
            let exposure = Exposure {
                server: "server",
                name: "server__tool",
                original: "tool",
                changed: options & 1 != 0,
                state: (options & 2 != 0).then_some("failed"),
            };
            let exposure = (options & 4 == 0).then_some(&exposure);
            let edited = apply(
                text,
                &definition_edits(Feature::Tool, json, (server, client), exposure),
            );
            let after = Json::parse(&edited).expect("seen to be JSON");
            assert_eq!(only(json, "inputSchema"), only(after, "inputSchema"));
            assert_eq!(only(json, "description"), only(after, "description"));
            if exposure.is_some() {
                assert!(
                    after
                        .get("name")
                        .is_some_and(|name| name.is_string("server__tool"))
                );
            }
        }
    }
}

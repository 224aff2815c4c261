//! Rewrites the URIs in a server's answers into URIs that clients can send back: in blocks that
//! link to or embed a resource, in resource contents, in `_meta` that names an app's page, and in
//! errors.
//!
//! Only these places are edited; URIs in plain text stay as the server wrote them. Each edit is an
//! insertion ([`uri::expose`]).

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::error::{Code, Failure};
use super::method::Method;
use super::uri;
use colibri_wire::json::JsonMember;
use colibri_wire::{Edits, Json};

/// The most URIs of one message that are changed. Each edit takes several times its own size in
/// memory.
pub(crate) const LINKS_LIMIT: usize = 100_000;
/// The deepest nesting of blocks that is read: a sampling message's tool result holds the blocks of
/// a tool's answer.
const DEPTH_LIMIT: usize = 3;

/// The texts that each result with a URI contains: the end of `uri`, `resourceUri` and
/// `ui/resourceUri`, the end of `openai/outputTemplate`, and the escapes that could hide such a
/// key.
static NEEDLES: LazyLock<[Finder<'static>; 4]> =
    LazyLock::new(|| ["ri\"", "outputTemplate\"", "\\u", "\\/"].map(Finder::new));

/// True if a result may hold a URI that has to be changed. Most results hold none and are not
/// parsed for it.
pub(crate) fn may_hold_links(result: &[u8]) -> bool {
    NEEDLES.iter().any(|needle| needle.find(result).is_some())
}

/// The URI edits of one message of one server, whose URIs stand behind its prefix.
pub(crate) struct Links<'s> {
    server: &'s str,
    changed: usize,
}

impl<'s> Links<'s> {
    pub(crate) fn of(server: &'s str) -> Links<'s> {
        Links { server, changed: 0 }
    }

    /// # Errors
    /// There were more than are changed.
    pub(crate) fn bounded(&self) -> Result<(), Failure> {
        if self.changed > LINKS_LIMIT {
            let message = format!("more than {LINKS_LIMIT} links to resources in one message");
            return Err(Failure::new(Code::ResultTooLarge, message));
        }
        Ok(())
    }

    /// The URI as the client sees it.
    pub(crate) fn exposed(&self, uri: &str) -> String {
        uri::exposed(self.server, uri)
    }

    fn uri(&mut self, edits: &mut Edits, uri: Json<'_>) {
        self.changed += 1;
        if self.changed <= LINKS_LIMIT {
            uri::expose(edits, self.server, uri);
        }
    }

    fn uris(&mut self, edits: &mut Edits, object: Json<'_>) {
        for member in object
            .members()
            .filter(|member| member.key.is_string("uri"))
        {
            self.uri(edits, member.value);
        }
    }

    /// Edits a member of a result.
    pub(crate) fn result_member(
        &mut self,
        edits: &mut Edits,
        method: Option<Method>,
        member: &JsonMember<'_>,
    ) {
        if member.key.is_string("_meta") {
            return self.meta(edits, member.value);
        }
        if method == Some(Method::TasksGet) && member.key.is_string("result") {
            // The result of the call that became the task.
            for within in member.value.members() {
                self.result_member(edits, Some(Method::ToolsCall), &within);
            }
        } else if method == Some(Method::ResourcesRead) && member.key.is_string("contents") {
            member
                .value
                .elements()
                .for_each(|content| self.uris(edits, content));
        } else if method == Some(Method::DirectoryRead) && member.key.is_string("resources") {
            member
                .value
                .elements()
                .for_each(|child| self.uris(edits, child));
        } else {
            each_block(method, member, &mut |block| self.block(edits, block, 0));
        }
    }

    /// Edits a content block. Readers differ in which one of several members with the same name
    /// they take, so each of them is edited.
    pub(crate) fn block(&mut self, edits: &mut Edits, block: Json<'_>, depth: usize) {
        if self.changed > LINKS_LIMIT {
            return;
        }
        let is = |kind: &str| {
            let mut types = block
                .members()
                .filter(|member| member.key.is_string("type"));
            types.any(|member| member.value.is_string(kind))
        };
        let (links, embeds, holds) = (is("resource_link"), is("resource"), is("tool_result"));
        if !links && !embeds && !holds {
            return;
        }
        for member in block.members() {
            if links && member.key.is_string("uri") {
                self.uri(edits, member.value);
            } else if embeds && member.key.is_string("resource") {
                self.uris(edits, member.value);
            } else if holds && depth < DEPTH_LIMIT && member.key.is_string("content") {
                member
                    .value
                    .elements()
                    .for_each(|block| self.block(edits, block, depth + 1));
            }
        }
    }

    /// Edits a `_meta`, which may name an app's page (ext-apps, "Resource Discovery"; OpenAI's Apps
    /// SDK, "Component templates").
    pub(crate) fn meta(&mut self, edits: &mut Edits, meta: Json<'_>) {
        meta.members()
            .for_each(|member| self.meta_member(edits, &member));
    }

    /// Edits a member of a `_meta`.
    pub(crate) fn meta_member(&mut self, edits: &mut Edits, member: &JsonMember<'_>) {
        if member.key.is_string("ui/resourceUri") || member.key.is_string("openai/outputTemplate") {
            self.uri(edits, member.value);
        } else if member.key.is_string("ui") {
            let pages = member
                .value
                .members()
                .filter(|member| member.key.is_string("resourceUri"));
            pages.for_each(|page| self.uri(edits, page.value));
        }
    }
}

/// Calls `each` with the content blocks in a member of a result.
pub(crate) fn each_block<'a>(
    method: Option<Method>,
    member: &JsonMember<'a>,
    each: &mut impl FnMut(Json<'a>),
) {
    match method {
        Some(Method::ToolsCall) if member.key.is_string("content") => {
            member.value.elements().for_each(each)
        }
        Some(Method::PromptsGet) if member.key.is_string("messages") => {
            member
                .value
                .elements()
                .for_each(|message| each_content(message, each));
        }
        _ => {}
    }
}

/// Calls `each` with the content of a message: one block, or several.
fn each_content<'a>(message: Json<'a>, each: &mut impl FnMut(Json<'a>)) {
    for member in message
        .members()
        .filter(|member| member.key.is_string("content"))
    {
        if member.value.is_object() {
            each(member.value);
        } else {
            member.value.elements().for_each(&mut *each);
        }
    }
}

/// Edits the URI that an error is about (2025-11-25, server/resources, "Error Handling").
pub(crate) fn error_member(edits: &mut Edits, server: &str, member: &JsonMember<'_>) {
    if member.key.is_string("data") {
        Links::of(server).uris(edits, member.value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rewrites::{self, AnswerShape};
    use super::super::version::Version::{self, *};
    use super::*;
    use proptest::prelude::*;

    fn edits(
        method: Method,
        server: Version,
        client: Version,
        text: &str,
    ) -> Result<Edits, Failure> {
        let shape = AnswerShape {
            method: Some(method),
            server,
            client,
            prefix: Some("fs"),
        };
        rewrites::result_edits(&shape, Json::parse(text.as_bytes()).unwrap())
    }

    fn shown(method: Method, server: Version, client: Version, text: &str) -> String {
        let edits = edits(method, server, client, text).unwrap();
        String::from_utf8(edits.apply(text.as_bytes())).unwrap()
    }

    /// Checks a result between all pairs of versions that change nothing else in it.
    fn check(method: Method, text: &str, expected: &str) {
        for version in [V2025_06_18, V2025_11_25] {
            for client in [V2025_06_18, V2025_11_25] {
                assert_eq!(
                    shown(method, version, client, text),
                    expected,
                    "{version} {client}"
                );
            }
            let modern = shown(method, version, V2026_07_28, text);
            assert!(modern.ends_with(&expected[1..]), "{modern}");
        }
        if method != Method::ResourcesRead {
            assert_eq!(shown(method, V2026_07_28, V2026_07_28, text), expected);
        }
        for client in [V2025_06_18, V2025_11_25] {
            assert_eq!(shown(method, V2026_07_28, client, text), expected);
        }
    }

    #[test]
    fn links_and_embedded_resources_of_tools_read_back_from_their_server() {
        check(
            Method::ToolsCall,
            r#"{ "content":[{"type":"resource_link","uri":"file:\/\/a","name":"uri","x":1e400},{"type":"text","text":"file://a","uri":"u"},
              {"resource":{"uri":"ui://a/b","text":"\ud800","y":{"uri":"z"}},"type":"resourc\u0065"},{"uri":"u"},7,null],
              "structuredContent":{"uri":"x","content":[{"type":"resource_link","uri":"x"}]}}"#,
            r#"{ "content":[{"type":"resource_link","uri":"fs+file:\/\/a","name":"uri","x":1e400},{"type":"text","text":"file://a","uri":"u"},
              {"resource":{"uri":"ui://fs/a/b","text":"\ud800","y":{"uri":"z"}},"type":"resourc\u0065"},{"uri":"u"},7,null],
              "structuredContent":{"uri":"x","content":[{"type":"resource_link","uri":"x"}]}}"#,
        );
    }

    #[test]
    fn links_and_embedded_resources_of_prompts_read_back_from_their_server() {
        check(
            Method::PromptsGet,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:b"}}},{"content":[{"type":"resource_link","ur\u0069":"c:d"}]},1]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"fs+a:b"}}},{"content":[{"type":"resource_link","ur\u0069":"fs+c:d"}]},1]}"#,
        );
    }

    #[test]
    fn what_was_read_stands_under_the_uri_that_clients_use() {
        check(
            Method::ResourcesRead,
            r#"{"contents":[{"uri":"a:b","text":"a:b"},{"uri":7},{"blob":"","uri":"ui://c"}],"uri":"x"}"#,
            r#"{"contents":[{"uri":"fs+a:b","text":"a:b"},{"uri":7},{"blob":"","uri":"ui://fs/c"}],"uri":"x"}"#,
        );
        assert_eq!(
            shown(
                Method::ResourcesRead,
                V2026_07_28,
                V2026_07_28,
                r#"{"contents":[{"uri":"a:b"}],"cacheScope":"public"}"#
            ),
            r#"{"ttlMs":0,"contents":[{"uri":"fs+a:b"}],"cacheScope":"private"}"#
        );
    }

    #[test]
    fn a_result_names_the_page_of_an_app_where_clients_read_it() {
        check(
            Method::ToolsCall,
            r#"{"_meta":{"ui":{"resourceUri":"ui://a","x":1},"ui/resourceUri":"ui://a"},"content":[]}"#,
            r#"{"_meta":{"ui":{"resourceUri":"ui://fs/a","x":1},"ui/resourceUri":"ui://fs/a"},"content":[]}"#,
        );
        check(
            Method::ToolsCall,
            r#"{"_meta":{"openai\/outputTemplate":"ui://a/b.html","openai/widgetCSP":{"uris":[]}},"content":[]}"#,
            r#"{"_meta":{"openai\/outputTemplate":"ui://fs/a/b.html","openai/widgetCSP":{"uris":[]}},"content":[]}"#,
        );
    }

    #[test]
    fn other_results_and_servers_without_a_prefix_keep_their_uris() {
        let text = r#"{"content":[{"type":"resource_link","uri":"a"}],"contents":[{"uri":"a"}],"messages":[{"content":{"type":"resource_link","uri":"a"}}]}"#;
        for method in [Method::Complete, Method::PromptsList] {
            assert_eq!(shown(method, V2025_11_25, V2025_11_25, text), text);
        }
        let bare = AnswerShape {
            method: Some(Method::ToolsCall),
            server: V2025_11_25,
            client: V2025_11_25,
            prefix: None,
        };
        let json = Json::parse(text.as_bytes()).unwrap();
        assert!(rewrites::result_edits(&bare, json).unwrap().is_empty());
        assert!(!bare.may_edit(text.as_bytes()));
        for (text, may) in [
            (text, true),
            (r#"{"\u0075\u0072\u0069":""}"#, true),
            (r#"{"ui/resourceUri":""}"#, true),
            (r#"{"openai/outputTemplate":""}"#, true),
            (r#"{"content":[{"type":"text","text":"a uri\n"}]}"#, false),
        ] {
            assert_eq!(may_hold_links(text.as_bytes()), may, "{text}");
        }
    }

    #[test]
    fn a_link_that_becomes_text_says_where_it_is_read() {
        let text = r#"{"content":[{"type":"resource_link","uri":"ui://a","name":"n"},{"type":"resource","resource":{"uri":"b:"}}]}"#;
        assert_eq!(
            shown(Method::ToolsCall, V2025_06_18, V2025_03_26, text),
            r#"{"content":[{"type":"text","text":"[resource ui://fs/a]\nname: n"},{"type":"resource","resource":{"uri":"fs+b:"}}]}"#
        );
    }

    #[test]
    fn the_uri_of_an_error_is_the_one_that_was_asked_for() {
        let error = r#"{"code":-32002,"message":"no a:b","data":{"uri":"a:b","more":1}}"#;
        let edited = |method, client| {
            let shape = AnswerShape {
                method: Some(method),
                server: V2025_11_25,
                client,
                prefix: Some("fs"),
            };
            let edits =
                rewrites::error_edits(&shape, Json::parse(error.as_bytes()).unwrap()).unwrap();
            String::from_utf8(edits.apply(error.as_bytes())).unwrap()
        };
        assert_eq!(
            edited(Method::ResourcesRead, V2026_07_28),
            r#"{"code":-32602,"message":"no a:b","data":{"uri":"fs+a:b","more":1}}"#
        );
        assert_eq!(edited(Method::ToolsCall, V2025_11_25), error);
    }

    #[test]
    fn links_inside_tasks_read_back_too() {
        let text = r#"{"resultType":"complete","status":"completed","result":{"content":[{"type":"resource_link","uri":"a:"}],"result":{"content":[{"type":"resource_link","uri":"x"}]}}}"#;
        let expected = text.replace("\"a:", "\"fs+a:");
        assert_eq!(
            shown(Method::TasksGet, V2026_07_28, V2026_07_28, text),
            expected
        );
    }

    #[test]
    fn hostile_results_cost_no_more_than_a_bound() {
        let block = r#"{"type":"resource_link","uri":"a","uri":"a"}"#;
        let blocks = |count: usize| format!("{{\"content\":[{}]}}", vec![block; count].join(","));
        let call = |text: &str| edits(Method::ToolsCall, V2025_11_25, V2025_11_25, text);
        assert_eq!(
            call(&blocks(LINKS_LIMIT / 2)).unwrap().iter().count(),
            LINKS_LIMIT
        );
        assert_eq!(
            call(&blocks(LINKS_LIMIT / 2 + 1)).unwrap_err().code,
            Code::ResultTooLarge
        );
        assert_eq!(
            call(&blocks(1_000_000)).unwrap_err().code,
            Code::ResultTooLarge
        );
        let plain = format!(
            "{{\"content\":[{}]}}",
            vec![r#"{"type":"text"}"#; 100_000].join(",")
        );
        assert!(call(&plain).unwrap().is_empty());
        let deep = "{\"type\":\"tool_result\",\"content\":[".repeat(20_000);
        let deep = format!("{{\"content\":[{deep}{}]}}", "]}".repeat(20_000));
        assert!(call(&deep).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn nothing_else_is_changed(
            kinds in prop::collection::vec((0..4usize, 0..4usize, any::<bool>()), 0..6),
            server in 0..5usize,
            client in 0..5usize,
        ) {
            const TYPES: [&str; 4] = ["resource_link", "resource", "text", "audio"];
            const URIS: [&str; 4] = ["\"a:b\"", "\"ui:\\/\\/x\"", "7", "{}"];
            let blocks: Vec<String> = kinds
                .iter()
                .map(|(kind, uri, inside)| {
                    let uri = format!("\"uri\":{}", URIS[*uri]);
                    let place = if *inside { format!("\"resource\":{{{uri}}}") } else { uri };
                    format!("{{{place},\"type\":\"{}\"}}", TYPES[*kind])
                })
                .collect();
            let text = format!("{{\"content\":[{}]}}", blocks.join(" , "));
            let (server, client) = (Version::ALL[server], Version::ALL[client]);
            let edited = shown(Method::ToolsCall, server, client, &text);
            prop_assert!(Json::parse(edited.as_bytes()).is_ok(), "{edited}");
            if server == client {
                let undone = edited.replace("fs+", "").replace("ui:\\/\\/fs/", "ui:\\/\\/");
                prop_assert_eq!(undone, text);
            }
        }
    }
}

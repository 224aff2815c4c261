//! Definitions of tools, prompts, resources, templates and skills as a client sees them, and the
//! pages of their lists.

use std::ops::Range;

use super::answer::{META_SERVER, META_SERVER_INFO, TTL_MS, server_info};
use super::feature::Feature;
use super::links::Links;
use super::members::{Change, rewrite};
use super::rewrites::claims_ours;
use super::rpc_error::RpcError;
use super::uri;
use super::version::Version;
use colibri_text::{hex, unhex};
use colibri_wire::json::{string, write_string};
use colibri_wire::{Edits, Json};

/// The most entries of one page. The limit is high because several clients read only the first
/// page.
pub(crate) const PAGE_ENTRIES: usize = 1_000;
/// The most bytes of definitions in one page. A longer definition gets a page of its own.
pub(crate) const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// The key in a definition's `_meta` for the server's own name, URI or template.
pub(crate) const META_NAME: &str = "org.colibri/name";
/// The key in a definition's `_meta` for the state of a server that is unavailable now.
pub(crate) const META_STATE: &str = "org.colibri/state";

/// The name, URI or template under which clients see a definition of a server.
#[derive(Debug, Clone, Copy)]
pub struct Exposure<'a> {
    /// The id of the server.
    pub server: &'a str,
    /// The name that clients see. Not used for resources and templates, since it follows from their
    /// own URI.
    pub name: &'a str,
    /// The server's own name, URI or template.
    pub original: &'a str,
    /// True if `name` is not just the prefix and `original`, but shortened or with other
    /// characters. The original is then also the `title`, if the server gave none.
    pub changed: bool,
    /// The state of the server if it is unavailable now.
    pub state: Option<&'a str>,
}

/// The edits to a server's definition for a client of a version. `exposure` is `None` for a server
/// with `"prefix": false`, whose names stay unchanged.
///
/// `definition` is an object with the feature's identifier, as checked by
/// [`super::upstream::ListWalk::read`].
pub fn definition_edits(
    feature: Feature,
    definition: Json<'_>,
    (server, client): (Version, Version),
    exposure: Option<&Exposure<'_>>,
) -> Edits {
    let mut edits = Edits::new();
    let strict_schemas =
        feature == Feature::Tool && server.has_free_output() && !client.has_free_output();
    if exposure.is_none() && !strict_schemas {
        return edits;
    }
    let ours = exposure.map(our_meta).unwrap_or_default();
    let insert = exposure
        .map(|exposure| inserted(definition, exposure, &ours))
        .unwrap_or_default();
    rewrite(&mut edits, definition, &insert, |member, edits| {
        let (key, value) = (member.key, member.value);
        if let Some(exposure) = exposure {
            if key.is_string(feature.identifier()) {
                if matches!(
                    feature,
                    Feature::Resource | Feature::Template | Feature::Skill
                ) {
                    uri::expose(edits, exposure.server, value);
                    return Change::Keep;
                }
                return if value.is_string(exposure.name) {
                    Change::Keep
                } else {
                    Change::Replace(string(exposure.name))
                };
            }
            if feature == Feature::Skill && key.is_string("resources") {
                let files = value.elements().flat_map(|file| file.members());
                for uri in files.filter(|member| member.key.is_string("uri")) {
                    uri::expose(edits, exposure.server, uri.value);
                }
                return Change::Keep;
            }
            if key.is_string("_meta") {
                if !value.is_object() {
                    return Change::Replace(format!("{{{ours}}}"));
                }
                rewrite(edits, value, &ours, |member, edits| {
                    if claims_ours(&member.key) {
                        return Change::Remove;
                    }
                    Links::of(exposure.server).meta_member(edits, member);
                    Change::Keep
                });
            }
        }
        if strict_schemas && key.is_string("outputSchema") && !is_object_schema(value) {
            return Change::Remove;
        }
        if strict_schemas && (key.is_string("inputSchema") || key.is_string("outputSchema")) {
            plain_properties(value, edits);
        }
        Change::Keep
    });
    edits
}

fn our_meta(exposure: &Exposure<'_>) -> String {
    let mut members = format!(
        "{}:{},{}:{}",
        string(META_SERVER),
        string(exposure.server),
        string(META_NAME),
        string(exposure.original)
    );
    if let Some(state) = exposure.state {
        members.push_str(&format!(",{}:{}", string(META_STATE), string(state)));
    }
    members
}

/// The members that are added to a definition.
fn inserted(definition: Json<'_>, exposure: &Exposure<'_>, ours: &str) -> String {
    let mut insert = Vec::new();
    let annotated_title = definition
        .get("annotations")
        .and_then(|annotations| annotations.get("title"));
    if exposure.changed && definition.get("title").or(annotated_title).is_none() {
        insert.push(format!("\"title\":{}", string(exposure.original)));
    }
    if definition.get("_meta").is_none() {
        insert.push(format!("\"_meta\":{{{ours}}}"));
    }
    insert.join(",")
}

/// True if the legacy versions allow a schema as `outputSchema`: an object whose `type` is
/// `"object"`.
fn is_object_schema(schema: Json<'_>) -> bool {
    schema
        .get("type")
        .is_some_and(|kind| kind.is_string("object"))
}

/// Replaces the property schemas `true` and `false` by schema objects with the same meaning. Legacy
/// versions allow only objects there, and their readers drop the whole list over one boolean.
fn plain_properties(schema: Json<'_>, edits: &mut Edits) {
    for properties in schema
        .members()
        .filter(|member| member.key.is_string("properties"))
    {
        for property in properties.value.members() {
            match property.value.as_bool() {
                Some(true) => edits.replace(property.value.span(), "{}"),
                Some(false) => edits.replace(property.value.span(), "{\"not\":{}}"),
                None => {}
            }
        }
    }
}

/// The shortest time for which a list joined from several servers may be cached, in milliseconds. A
/// modern server counts with its own time (0 if it gives none); legacy servers and the daemon's own
/// tools count with [`TTL_MS`].
pub fn least_ttl(servers: impl IntoIterator<Item = (Version, Option<u64>)>) -> u64 {
    servers
        .into_iter()
        .map(|(version, ttl)| {
            if version.is_modern() {
                ttl.unwrap_or(0)
            } else {
                TTL_MS
            }
        })
        .fold(TTL_MS, u64::min)
}

/// The start of a page: after the entry with this name or URI. Opaque to clients. A cursor holds a
/// name and no index, so that it stays valid when the list changes in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCursor {
    after: String,
}

impl ListCursor {
    /// Reads the cursor in the `params` of a list request, if there is one.
    ///
    /// # Errors
    /// -32602 for a cursor that the daemon did not make (server/utilities/pagination, "Error
    /// Handling").
    pub fn read(params: Option<Json<'_>>) -> Result<Option<ListCursor>, RpcError> {
        let Some(cursor) = params.and_then(|params| params.get("cursor")) else {
            return Ok(None);
        };
        if cursor.text() == "null" {
            return Ok(None);
        }
        let decoded = cursor
            .as_str()
            .filter(|text| !text.is_empty())
            .and_then(|text| unhex(text.as_bytes()))
            .and_then(|bytes| String::from_utf8(bytes).ok());
        match decoded {
            Some(after) => Ok(Some(ListCursor { after })),
            None => Err(RpcError::invalid_params(
                "invalid params: this cursor is not from here: list again from the beginning",
            )),
        }
    }

    /// The cursor's text, as in `nextCursor`.
    pub fn encode(&self) -> String {
        hex(self.after.as_bytes())
    }
}

/// The result of a list request: one page of `entries`, and the range of entries that it has.
///
/// An entry is a name, URI or template as clients see it, and a definition in the shape of the
/// client's version. Entries must be **in ascending order of their names**, each name once: this is
/// the order of the list, and it keeps cursors valid.
pub fn page<'a>(
    feature: Feature,
    client: Version,
    ttl_ms: u64,
    cursor: Option<&ListCursor>,
    entries: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> (Vec<u8>, Range<usize>) {
    let after = cursor.map(|cursor| cursor.after.as_str());
    let mut page = Vec::new();
    let kind = if client.is_modern() {
        "\"resultType\":\"complete\","
    } else {
        ""
    };
    page.extend_from_slice(format!("{{{kind}\"{}\":[", feature.member()).as_bytes());
    let start = page.len();
    let mut last: Option<&str> = None;
    let mut listed = 0..0;
    let mut more = false;
    for (at, (name, definition)) in entries.into_iter().enumerate() {
        debug_assert!(
            last.is_none_or(|last| last < name),
            "entries are in ascending order of their names"
        );
        if after.is_some_and(|after| name <= after) {
            continue;
        }
        if listed.len() == PAGE_ENTRIES
            || !listed.is_empty() && page.len() - start + 1 + definition.len() > PAGE_BYTES
        {
            more = true;
            break;
        }
        if listed.is_empty() {
            listed.start = at;
        } else {
            page.push(b',');
        }
        page.extend_from_slice(definition);
        listed.end = at + 1;
        last = Some(name);
    }
    page.push(b']');
    if let Some(last) = last.filter(|_| more) {
        page.extend_from_slice(b",\"nextCursor\":");
        write_string(
            &mut page,
            &ListCursor {
                after: last.to_owned(),
            }
            .encode(),
        );
    }
    if client.is_modern() {
        page.extend_from_slice(
            format!(
                ",\"ttlMs\":{ttl_ms},\"cacheScope\":\"private\",\"_meta\":{{\"{META_SERVER_INFO}\":{}}}",
                server_info(client)
            )
            .as_bytes(),
        );
    }
    page.push(b'}');
    (page, listed)
}

#[cfg(test)]
mod tests {
    use super::Version::*;
    use super::*;
    use crate::read_in_tests::json;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn edited(
        text: &str,
        server: Version,
        client: Version,
        exposure: Option<&Exposure<'_>>,
    ) -> String {
        let edits = definition_edits(Feature::Tool, json(text), (server, client), exposure);
        String::from_utf8(edits.apply(text.as_bytes())).unwrap()
    }

    const PLAIN: Exposure<'_> = Exposure {
        server: "git",
        name: "git__log",
        original: "log",
        changed: false,
        state: None,
    };
    const CHANGED: Exposure<'_> = Exposure {
        server: "git",
        name: "git__log_ab12",
        original: "log all/\"it\"",
        changed: true,
        state: None,
    };

    #[test]
    fn tools_without_a_prefix_stay_as_they_are() {
        let text = r#"{ "name":"a b","x":1e400,"outputSchema":{"type":"array"},"_meta":{"org.colibri/name":"z"} }"#;
        for client in Version::ALL {
            assert_eq!(edited(text, client, client, None), text);
            assert_eq!(edited(text, V2025_11_25, client, None), text);
        }
    }

    #[test]
    fn listed_name_is_the_exposed_one_and_the_original_is_kept() {
        assert_eq!(
            edited(
                r#"{"inputSchema":{"name":"log"}, "name" : "log" }"#,
                V2025_06_18,
                V2025_06_18,
                Some(&PLAIN)
            ),
            r#"{"_meta":{"org.colibri/server":"git","org.colibri/name":"log"},"inputSchema":{"name":"log"}, "name" : "git__log" }"#
        );
        assert_eq!(
            edited(
                r#"{"n\u0061me":"log","_meta":{"x":1e400}}"#,
                V2025_06_18,
                V2025_06_18,
                Some(&PLAIN)
            ),
            r#"{"n\u0061me":"git__log","_meta":{"org.colibri/server":"git","org.colibri/name":"log","x":1e400}}"#
        );
    }

    #[test]
    fn prompts_resources_and_templates_are_listed_as_what_leads_back_to_them() {
        for (feature, text, expected) in [
            (
                Feature::Prompt,
                r#"{"name":"log","arguments":[{"name":"log"}],"icons":[]}"#,
                r#"{"_meta":{"org.colibri/server":"git","org.colibri/name":"log"},"name":"git__log","arguments":[{"name":"log"}],"icons":[]}"#,
            ),
            (
                Feature::Resource,
                r#"{"name":"log","uri":"file:\/\/log","size":1e3,"_meta":{"uri":"x"}}"#,
                r#"{"name":"log","uri":"git+file:\/\/log","size":1e3,"_meta":{"org.colibri/server":"git","org.colibri/name":"log","uri":"x"}}"#,
            ),
            (
                Feature::Template,
                r#"{"name":"log","uriTemplate":"ui://{a}","uri":"x"}"#,
                r#"{"_meta":{"org.colibri/server":"git","org.colibri/name":"log"},"name":"log","uriTemplate":"ui://git/{a}","uri":"x"}"#,
            ),
        ] {
            for client in Version::ALL {
                let edits =
                    definition_edits(feature, json(text), (client, V2025_11_25), Some(&PLAIN));
                assert_eq!(
                    String::from_utf8(edits.apply(text.as_bytes())).unwrap(),
                    expected
                );
                let as_it_is = definition_edits(feature, json(text), (V2026_07_28, client), None);
                assert!(as_it_is.is_empty(), "{client}");
            }
        }
    }

    #[test]
    fn pages_of_apps_that_tools_name_are_read_from_their_server() {
        let text = r#"{"name":"git__log","_meta":{"ui":{"resourceUri":"ui://a/b","visibility":["app"]},"ui\/resourceUri":"ui://a","openai/outputTemplate":"ui://w/c.html"}}"#;
        assert_eq!(
            edited(text, V2025_11_25, V2026_07_28, Some(&PLAIN)),
            r#"{"name":"git__log","_meta":{"org.colibri/server":"git","org.colibri/name":"log","ui":{"resourceUri":"ui://git/a/b","visibility":["app"]},"ui\/resourceUri":"ui://git/a","openai/outputTemplate":"ui://git/w/c.html"}}"#
        );
        assert_eq!(edited(text, V2025_11_25, V2026_07_28, None), text);
    }

    #[test]
    fn a_server_cannot_speak_in_our_meta() {
        for meta in [
            r#"{"org.colibri/name":"evil","org.colibri\/state":"x","x":1,"org.colibri/server":"other"}"#,
            r#"{"org.colibri/anything":{}}"#,
            "null",
            "[1]",
            "{}",
        ] {
            let text = format!(r#"{{"name":"log","_meta":{meta},"z":1}}"#);
            let value: Value =
                serde_json::from_str(&edited(&text, V2025_11_25, V2025_11_25, Some(&PLAIN)))
                    .unwrap();
            let mut expected = json!({"org.colibri/server": "git", "org.colibri/name": "log"});
            if meta.contains("\"x\":1") {
                expected["x"] = json!(1);
            }
            assert_eq!(value["_meta"], expected, "{meta}");
        }
    }

    #[test]
    fn original_name_becomes_the_title_where_there_is_none() {
        for (text, title) in [
            (r#"{"name":"log"}"#, json!("log all/\"it\"")),
            (r#"{"name":"log","title":"Log"}"#, json!("Log")),
            (
                r#"{"name":"log","annotations":{"title":"Log"}}"#,
                Value::Null,
            ),
            (
                r#"{"name":"log","annotations":{"readOnlyHint":true}}"#,
                json!("log all/\"it\""),
            ),
        ] {
            let value: Value =
                serde_json::from_str(&edited(text, V2025_11_25, V2025_11_25, Some(&CHANGED)))
                    .unwrap();
            assert_eq!(value["title"], title, "{text}");
            assert_eq!(value["_meta"][META_NAME], "log all/\"it\"");
        }
        let value: Value = serde_json::from_str(&edited(
            r#"{"name":"log"}"#,
            V2025_11_25,
            V2025_11_25,
            Some(&PLAIN),
        ))
        .unwrap();
        assert!(value.get("title").is_none(), "a mere prefix needs no title");
    }

    #[test]
    fn state_of_an_absent_server_stands_in_meta() {
        let exposure = Exposure {
            state: Some("failed"),
            ..PLAIN
        };
        let value: Value = serde_json::from_str(&edited(
            r#"{"name":"log"}"#,
            V2025_11_25,
            V2025_11_25,
            Some(&exposure),
        ))
        .unwrap();
        assert_eq!(value["_meta"][META_STATE], "failed");
    }

    /// One row per client version, one cell per schema: true if the definition keeps its
    /// `outputSchema`.
    #[test]
    fn output_schemas_that_are_no_objects_are_dropped_for_legacy_clients() {
        for (schema, is_object) in [
            (r#"{"type":"object"}"#, true),
            (r#"{"$schema":"x","type":"object","properties":{}}"#, true),
            (r#"{"type":"array"}"#, false),
            (r#"{"type":["object","null"]}"#, false),
            (r#"{"oneOf":[{"type":"object"}]}"#, false),
            ("true", false),
            ("null", false),
        ] {
            let text = format!(r#"{{"name":"log", "outputSchema" : {schema} ,"title":"t"}}"#);
            for client in Version::ALL {
                let expected = if is_object || client.is_modern() {
                    text.as_str()
                } else {
                    r#"{"name":"log", "title":"t"}"#
                };
                assert_eq!(
                    edited(&text, V2026_07_28, client, None),
                    expected,
                    "{client} {schema}"
                );
                assert_eq!(
                    edited(&text, V2025_11_25, client, None),
                    text,
                    "a legacy server's is the client's affair"
                );
            }
        }
    }

    #[test]
    fn boolean_properties_become_objects_for_legacy_clients() {
        let text = r#"{"name":"log","inputSchema":{"type":"object","properties":{"a": true,"b":false,"c":{"items":true}}},"outputSchema":{"type":"object","properties":{"d":true}}}"#;
        for client in &Version::ALL[..4] {
            assert_eq!(
                edited(text, V2026_07_28, *client, None),
                r#"{"name":"log","inputSchema":{"type":"object","properties":{"a": {},"b":{"not":{}},"c":{"items":true}}},"outputSchema":{"type":"object","properties":{"d":{}}}}"#
            );
        }
        assert_eq!(edited(text, V2026_07_28, V2026_07_28, None), text);
        assert_eq!(edited(text, V2025_11_25, V2025_06_18, None), text);
    }

    #[test]
    fn the_least_ttl_counts() {
        assert_eq!(least_ttl([]), TTL_MS);
        assert_eq!(
            least_ttl([(V2025_11_25, Some(1)), (V2026_07_28, Some(90_000))]),
            TTL_MS
        );
        assert_eq!(
            least_ttl([(V2026_07_28, Some(5_000)), (V2024_11_05, None)]),
            5_000
        );
        assert_eq!(least_ttl([(V2026_07_28, None)]), 0);
    }

    fn listed(
        client: Version,
        cursor: Option<&ListCursor>,
        tools: &BTreeMap<String, Vec<u8>>,
    ) -> Value {
        let tools = tools
            .iter()
            .map(|(name, definition)| (name.as_str(), definition.as_slice()));
        serde_json::from_slice(&page(Feature::Tool, client, 5, cursor, tools).0).unwrap()
    }

    fn next(page: &Value) -> Option<ListCursor> {
        let params = json!({"cursor": page.get("nextCursor")?}).to_string();
        ListCursor::read(Some(json(&params))).unwrap()
    }

    fn definition(name: &str, padding: usize) -> Vec<u8> {
        format!(
            "{{\"name\":{},\"description\":\"{}\"}}",
            string(name),
            "x".repeat(padding)
        )
        .into_bytes()
    }

    #[test]
    fn lists_say_how_long_they_are_good_to_modern_clients() {
        let tools = BTreeMap::from([("a".to_owned(), definition("a", 0))]);
        for client in &Version::ALL[..4] {
            assert_eq!(
                listed(*client, None, &tools),
                json!({"tools": [{"name": "a", "description": ""}]})
            );
        }
        let modern = listed(V2026_07_28, None, &tools);
        assert_eq!(
            (
                &modern["resultType"],
                &modern["ttlMs"],
                &modern["cacheScope"]
            ),
            (&json!("complete"), &json!(5), &json!("private"))
        );
        assert_eq!(modern["_meta"][META_SERVER_INFO]["name"], "colibri-mcp");
        assert_eq!(
            listed(V2025_11_25, None, &BTreeMap::new()),
            json!({"tools": []})
        );
    }

    #[test]
    fn pages_hold_a_thousand_tools_or_eight_mebibytes() {
        let mut tools: BTreeMap<String, Vec<u8>> = (0..2_500)
            .map(|n| format!("tool {n:04}"))
            .map(|name| (name.clone(), definition(&name, 0)))
            .collect();
        let walk = |tools: &BTreeMap<String, Vec<u8>>| {
            let (mut pages, mut names, mut cursor) = (Vec::new(), Vec::new(), None);
            loop {
                let page = listed(V2026_07_28, cursor.as_ref(), tools);
                let names_here: Vec<String> = page["tools"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|tool| tool["name"].as_str().unwrap().into())
                    .collect();
                pages.push(names_here.len());
                names.extend(names_here);
                cursor = next(&page);
                if cursor.is_none() {
                    return (pages, names);
                }
            }
        };
        let (pages, names) = walk(&tools);
        assert_eq!(pages, [1000, 1000, 500]);
        assert_eq!(names, tools.keys().cloned().collect::<Vec<_>>());
        tools.retain(|name, _| name.as_str() < "tool 0005");
        tools.insert("tool 0001".into(), definition("tool 0001", 3 * 1024 * 1024));
        tools.insert("tool 0002".into(), definition("tool 0002", 6 * 1024 * 1024));
        tools.insert("tool 0003".into(), definition("tool 0003", 9 * 1024 * 1024));
        assert_eq!(walk(&tools).0, [2, 1, 1, 1]);
    }

    #[test]
    fn a_cursor_stays_good_when_the_list_changes() {
        let mut tools: BTreeMap<String, Vec<u8>> = (0..1_500)
            .map(|n| format!("t{n:04}"))
            .map(|name| (name.clone(), definition(&name, 0)))
            .collect();
        let cursor = next(&listed(V2025_11_25, None, &tools)).unwrap();
        tools.remove("t0999");
        tools.insert("a first one".into(), definition("a first one", 0));
        assert_eq!(
            listed(V2025_11_25, Some(&cursor), &tools)["tools"][0]["name"],
            "t1000"
        );
    }

    #[test]
    fn cursors_of_others_are_refused() {
        for params in [
            r#"{"cursor":""}"#,
            r#"{"cursor":"x"}"#,
            r#"{"cursor":"zz"}"#,
            r#"{"cursor":"4A"}"#,
            r#"{"cursor":"ff"}"#,
            r#"{"cursor":7}"#,
            r#"{"cursor":"\ud800"}"#,
        ] {
            assert_eq!(
                ListCursor::read(Some(json(params))).unwrap_err().code,
                -32602,
                "{params}"
            );
        }
        for params in ["{}", r#"{"cursor":null}"#] {
            assert_eq!(ListCursor::read(Some(json(params))).unwrap(), None);
        }
        assert_eq!(ListCursor::read(None).unwrap(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn cursors_read_back(after in ".{1,40}") {
            let cursor = ListCursor { after };
            let params = format!("{{\"cursor\":\"{}\"}}", cursor.encode());
            prop_assert_eq!(ListCursor::read(Some(json(&params))).unwrap(), Some(cursor));
        }

        #[test]
        fn edited_definitions_stay_valid(
            members in proptest::collection::vec((0..8usize, 0..8usize, " {0,2}"), 0..8),
            server in 0..5usize,
            client in 0..5usize,
            exposed in any::<bool>(),
        ) {
            const KEYS: [&str; 8] =
                ["name", "_meta", "title", "outputSchema", "inputSchema", "annotations", "n\\u0061me", "x"];
            const VALUES: [&str; 8] = [
                "\"log\"", "{}", r#"{"org.colibri/name":1,"a":2}"#, r#"{"type":"object","properties":{"p":true,"q":false}}"#,
                r#"{"type":"array"}"#, "null", "[{},true]", r#"{"title":"t","org.colibri/x":[]}"#,
            ];
            let text: Vec<String> =
                members.iter().map(|(key, value, space)| format!("{space}\"{}\":{space}{}", KEYS[*key], VALUES[*value])).collect();
            let text = format!(" {{{}}} ", text.join(","));
            let (server, client) = (Version::ALL[server], Version::ALL[client]);
            let edits = definition_edits(Feature::Tool, json(&text), (server, client), exposed.then_some(&CHANGED));
            let result = edits.apply(text.as_bytes());
            let value: Value = serde_json::from_slice(&result).unwrap();
            if exposed {
                prop_assert_eq!(&value["_meta"][META_NAME], "log all/\"it\"");
                if value.get("name").is_some() {
                    prop_assert_eq!(&value["name"], "git__log_ab12");
                }
            } else if !server.is_modern() || client.is_modern() {
                prop_assert_eq!(result, text.as_bytes());
            }
        }
    }
}

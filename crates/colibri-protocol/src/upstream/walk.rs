//! A walk over the pages of one list of a server.

use std::borrow::Cow;
use std::collections::HashSet;

use super::super::feature::Feature;
use super::super::method::Method;
use super::super::skills;
use super::says::{Unusable, invalid};
use colibri_text::brief;
use colibri_wire::Json;
use colibri_wire::json::JsonKind;

/// The most entries of one list that are read. Later ones are left out and counted.
const ENTRIES_LIMIT: usize = 10_000;
/// The most pages of one list that are read.
const PAGES_LIMIT: usize = 1_000;
/// The longest definition, in bytes.
const DEFINITION_LIMIT: usize = 1024 * 1024;
/// The most bytes of definitions of one list that are read. Later ones are left out and counted.
const LIST_LIMIT: usize = 16 * 1024 * 1024;
/// The longest cursor that is sent back, in bytes.
const CURSOR_LIMIT: usize = 8 * 1024;
/// The longest time for which a server's list counts as fresh, in milliseconds: a day.
const TTL_LIMIT_MS: u64 = 24 * 60 * 60 * 1000;

/// The most entries that were left out and are reported, each with its reason.
const NAMED_LIMIT: usize = 20;

/// One entry of a list.
#[derive(Debug, Clone)]
pub struct ListEntry<'a> {
    /// The entry's identifier: its name, its URI, or the template.
    pub name: Cow<'a, str>,
    /// The definition as written.
    pub definition: Json<'a>,
}

/// One page of a server's list.
#[derive(Debug, Clone)]
pub struct ListPage<'a> {
    /// The valid entries, in the server's order.
    pub entries: Vec<ListEntry<'a>>,
    /// The number of entries that were left out.
    pub left_out: usize,
    /// The first entries that were left out, each with the reason, fit for a log line.
    pub reasons: Vec<String>,
    /// The cursor of the next page, as the server wrote it; `None` on the last page.
    pub next_cursor: Option<&'a str>,
    /// The time for which the page may be cached, in milliseconds. `None` if the server does not
    /// give it, 0 if the value is invalid.
    pub ttl_ms: Option<u64>,
}

/// A walk over the pages of a server's list of one feature. It remembers the names and cursors of
/// earlier pages, so that it ends. Each walk has limits of its own: an endless list does not affect
/// the others.
#[derive(Debug)]
pub struct ListWalk {
    feature: Feature,
    names: HashSet<String>,
    cursors: HashSet<String>,
    pages: usize,
    bytes: usize,
}

impl Feature {
    /// The members of an entry that Colibri or a client acts on. None of them may be repeated.
    fn members(self) -> &'static [&'static str] {
        match self {
            Feature::Tool => &[
                "name",
                "title",
                "description",
                "inputSchema",
                "outputSchema",
                "annotations",
                "_meta",
            ],
            Feature::Prompt => &["name", "title", "description", "arguments", "_meta"],
            Feature::Resource => &[
                "uri",
                "name",
                "title",
                "description",
                "mimeType",
                "annotations",
                "_meta",
            ],
            Feature::Template => &[
                "uriTemplate",
                "name",
                "title",
                "description",
                "mimeType",
                "annotations",
                "_meta",
            ],
            Feature::Skill => &["uri", "frontmatter", "resources", "_meta"],
        }
    }

    /// The member that an entry must have besides its identifier, and its type.
    fn required(self) -> Option<(&'static str, JsonKind)> {
        match self {
            Feature::Tool => Some(("inputSchema", JsonKind::Object)),
            Feature::Prompt => None,
            Feature::Resource | Feature::Template => Some(("name", JsonKind::String)),
            Feature::Skill => Some(("frontmatter", JsonKind::Object)),
        }
    }
}

impl ListWalk {
    /// A walk over the list of a feature.
    pub fn of(feature: Feature) -> ListWalk {
        ListWalk {
            feature,
            names: HashSet::new(),
            cursors: HashSet::new(),
            pages: 0,
            bytes: 0,
        }
    }

    /// Reads the next page: the result of [`super::list`].
    ///
    /// An invalid entry, or one with a repeated name, is left out and reported; the others stay.
    /// The walk ends at a page without `nextCursor`, at a repeated cursor, and at the limits.
    ///
    /// # Errors
    /// The result has no list of the feature at all.
    pub fn read<'a>(&mut self, result: Json<'a>) -> Result<ListPage<'a>, Unusable> {
        let (method, member) = (
            Method::list_of(self.feature).as_str(),
            self.feature.member(),
        );
        if let Some(key) = result.ambiguous(&[member, "nextCursor"]) {
            return Err(invalid(
                method,
                &format!("two members of the result can be read as \"{key}\""),
            ));
        }
        let Some(list) = result
            .get(member)
            .filter(|list| list.kind() == JsonKind::Array)
        else {
            return Err(invalid(
                method,
                &format!("the result has no \"{member}\" that is an array"),
            ));
        };
        self.pages += 1;
        let mut page = ListPage {
            entries: Vec::new(),
            left_out: 0,
            reasons: Vec::new(),
            next_cursor: None,
            ttl_ms: result.get("ttlMs").map(read_ttl),
        };
        let noun = self.feature.noun();
        for (index, definition) in list.elements().enumerate() {
            match self.take(definition) {
                Ok(entry) => page.entries.push(entry),
                Err(reason) => {
                    page.left_out += 1;
                    if page.reasons.len() < NAMED_LIMIT {
                        page.reasons
                            .push(format!("{noun} {index} of page {}: {reason}", self.pages));
                    }
                }
            }
        }
        let cursor = result
            .get("nextCursor")
            .filter(|cursor| cursor.kind() == JsonKind::String)
            .map(|cursor| cursor.text());
        page.next_cursor = cursor.filter(|cursor| {
            cursor.len() <= CURSOR_LIMIT
                && self.pages < PAGES_LIMIT
                && self.names.len() < ENTRIES_LIMIT
                && self.bytes < LIST_LIMIT
                && self.cursors.insert((*cursor).to_owned())
        });
        Ok(page)
    }

    fn take<'a>(&mut self, definition: Json<'a>) -> Result<ListEntry<'a>, String> {
        let (noun, identifier) = (self.feature.noun(), self.feature.identifier());
        if !definition.is_object() {
            return Err("it is no object".to_owned());
        }
        if let Some(key) = definition.ambiguous(self.feature.members()) {
            return Err(format!("two of its members can be read as \"{key}\""));
        }
        let name = definition.get(identifier).and_then(|name| name.as_str());
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Err(format!("it has no \"{identifier}\" that is a string"));
        };
        let shown = || brief(&name, 80);
        if let Some((member, kind)) = self.feature.required()
            && definition
                .get(member)
                .is_none_or(|value| value.kind() != kind)
        {
            let wanted = if kind == JsonKind::Object {
                "an object"
            } else {
                "a string"
            };
            return Err(format!(
                "{}: it has no \"{member}\" that is {wanted}",
                shown()
            ));
        }
        if self.feature == Feature::Skill {
            skills::check_entry(&name, definition).map_err(|why| format!("{}: {why}", shown()))?;
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
                "{}: the server's {noun} definitions are longer than {LIST_LIMIT} bytes together",
                shown()
            ));
        }
        if self.names.len() >= ENTRIES_LIMIT {
            return Err(format!(
                "{}: the server has more than {ENTRIES_LIMIT} of them",
                shown()
            ));
        }
        if !self.names.insert(name.clone().into_owned()) {
            return Err(format!("{}: another {noun} has that {identifier}", shown()));
        }
        self.bytes += length;
        Ok(ListEntry { name, definition })
    }
}

/// `ttlMs` as a whole number within the limit. A negative one counts as 0 (2026-07-28,
/// server/utilities/caching).
fn read_ttl(ttl: Json<'_>) -> u64 {
    let number = if ttl.kind() == JsonKind::Number {
        ttl.text().parse::<f64>().unwrap_or(0.0)
    } else {
        0.0
    };
    // A float cast saturates: negative numbers and NaN become 0.
    (number as u64).min(TTL_LIMIT_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_in_tests::json;

    fn tools() -> ListWalk {
        ListWalk::of(Feature::Tool)
    }

    #[test]
    fn reads_a_page_of_tools() {
        let text = r#"{"tools":[{"name":"a","inputSchema":{"type":"object"},"x":1e400},{"n\u0061me":"\u0062","inputSchema":{}}],"nextCursor":"\u0063","ttlMs":1500.7,"cacheScope":"public"}"#;
        let page = tools().read(json(text)).unwrap();
        assert_eq!(
            page.entries
                .iter()
                .map(|tool| tool.name.as_ref())
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(
            page.entries[0].definition.text(),
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
            let text =
                format!(r#"{{"tools":[{good},{bad},{{"name":"last","inputSchema":{{}}}}]}}"#);
            let page = tools().read(json(&text)).unwrap();
            let names: Vec<_> = page.entries.iter().map(|tool| tool.name.as_ref()).collect();
            assert_eq!(names, ["good", "last"], "{bad}");
            assert_eq!((page.left_out, page.reasons.len()), (1, 1), "{bad}");
            assert!(
                page.reasons[0].starts_with("tool 1 of page 1: "),
                "{}",
                page.reasons[0]
            );
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
            assert!(tools().read(json(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn endless_lists_end() {
        let nothing = format!(r#"{{"tools":[{}{{}}]}}"#, "{},".repeat(1_000_000));
        let page = tools().read(json(&nothing)).unwrap();
        assert_eq!(
            (page.entries.len(), page.left_out, page.reasons.len()),
            (0, 1_000_001, NAMED_LIMIT)
        );
        let many: Vec<String> = (0..ENTRIES_LIMIT + 5)
            .map(|n| format!(r#"{{"name":"{n}","inputSchema":{{}}}}"#))
            .collect();
        let many = format!(r#"{{"tools":[{}],"nextCursor":"x"}}"#, many.join(","));
        let page = tools().read(json(&many)).unwrap();
        assert_eq!(
            (page.entries.len(), page.left_out, page.next_cursor),
            (ENTRIES_LIMIT, 5, None)
        );
        let mut walk = tools();
        let mut pages = 0;
        loop {
            pages += 1;
            let text = format!(r#"{{"tools":[],"nextCursor":"{pages}"}}"#);
            if walk.read(json(&text)).unwrap().next_cursor.is_none() {
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
        let page = tools().read(json(&text)).unwrap();
        assert_eq!((page.entries[0].name.as_ref(), page.left_out), ("short", 1));
        let mut walk = tools();
        let mut taken = 0;
        for number in 0.. {
            let tools: Vec<String> = (0..10)
                .map(|n| tool(&format!("{number}.{n}"), DEFINITION_LIMIT - 100))
                .collect();
            let text = format!(
                r#"{{"tools":[{}],"nextCursor":"{number}"}}"#,
                tools.join(",")
            );
            let page = walk.read(json(&text)).unwrap();
            taken += page
                .entries
                .iter()
                .map(|tool| tool.definition.text().len())
                .sum::<usize>();
            if page.left_out > 0 {
                break;
            }
        }
        assert!(
            (LIST_LIMIT - DEFINITION_LIMIT..=LIST_LIMIT).contains(&taken),
            "{taken}"
        );
    }

    #[test]
    fn a_repeated_cursor_ends_the_walk() {
        let mut walk = tools();
        let mut next = |text: &'static str| walk.read(json(text)).unwrap().next_cursor;
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
        let long = format!(
            r#"{{"tools":[],"nextCursor":"{}"}}"#,
            "c".repeat(CURSOR_LIMIT)
        );
        assert_eq!(tools().read(json(&long)).unwrap().next_cursor, None);
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

    #[test]
    fn each_list_has_its_own_members() {
        for (feature, good, bad) in [
            (
                Feature::Prompt,
                r#"{"name":"a"}"#,
                &[
                    r#"{"title":"a"}"#,
                    r#"{"name":"b","arguments":[],"Arguments":[]}"#,
                ][..],
            ),
            (
                Feature::Resource,
                r#"{"uri":"file:///a","name":"a"}"#,
                &[
                    r#"{"name":"a"}"#,
                    r#"{"uri":"file:///b"}"#,
                    r#"{"uri":"file:///c","name":7}"#,
                    r#"{"uri":"","name":"a"}"#,
                    r#"{"uri":"file:///d","URI":"file:///e","name":"a"}"#,
                    r#"{"uri":"file:///a","name":"again"}"#,
                    r#"{"uriTemplate":"file:///a","name":"a"}"#,
                ],
            ),
            (
                Feature::Template,
                r#"{"uriTemplate":"file:///{a}","name":"a"}"#,
                &[
                    r#"{"uri":"file:///a","name":"a"}"#,
                    r#"{"uriTemplate":"file:///{b}"}"#,
                    r#"{"uriTemplate":"file:///{c}","name":"a","name":"b"}"#,
                    r#"{"uriTemplate":"file:///{\u0061}","name":"again"}"#,
                ],
            ),
        ] {
            for bad in bad {
                let text = format!("{{\"{}\":[{good},{bad}],\"ttlMs\":7}}", feature.member());
                let page = ListWalk::of(feature).read(json(&text)).unwrap();
                assert_eq!(
                    (page.entries.len(), page.left_out, page.ttl_ms),
                    (1, 1, Some(7)),
                    "{bad}"
                );
                assert!(page.reasons[0].starts_with(&format!("{} 1 of page 1: ", feature.noun())));
            }
            for other in Feature::ALL.into_iter().filter(|other| *other != feature) {
                let text = format!("{{\"{}\":[{good}]}}", other.member());
                assert!(ListWalk::of(feature).read(json(&text)).is_err(), "{text}");
            }
        }
    }
}

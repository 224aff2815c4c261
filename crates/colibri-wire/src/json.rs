//! A JSON text that is validated once and then walked in place, one level at a time.
//!
//! Values are decoded only on request: numbers keep their digits, strings their escapes, objects
//! their order and their repeated keys. `serde_json` validates the text. It does not recurse for a
//! raw value, so depth costs nothing.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

use super::keys::{UnescapedChars, find};
use super::scan::{ScannedMember, ScannedMembers, Tape};

/// One value inside a validated JSON text, with its place in it.
#[derive(Debug, Clone, Copy)]
pub struct Json<'a> {
    text: &'a str,
    at: usize,
    /// The recorded places of the value's members, if there are any.
    noted: Option<NotedMembers<'a>>,
}

/// Members whose places were recorded when the text was read.
#[derive(Debug, Clone, Copy)]
struct NotedMembers<'a> {
    /// All recorded entries.
    entries: &'a ScannedMembers,
    /// The index of the value's own first member. Each member is followed by its own members.
    from: u8,
    to: u8,
    level: u8,
}

/// The reason for which a text is not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// Some byte sequence is not UTF-8.
    #[error("not UTF-8 at byte {0}")]
    Utf8(usize),
    /// The grammar is broken (RFC 8259).
    #[error("not JSON: {0}")]
    Syntax(String),
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonKind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// Digits of any size.
    Number,
    /// `true`, `false`
    Bool,
    /// `null`
    Null,
}

/// A member of an object.
#[derive(Debug, Clone, Copy)]
pub struct JsonMember<'a> {
    /// The key, as a JSON string with its quotes.
    pub key: Json<'a>,
    /// The value.
    pub value: Json<'a>,
}

impl<'a> Json<'a> {
    /// Validates a whole text.
    ///
    /// # Errors
    /// The place at which it is not JSON.
    pub fn parse(bytes: &'a [u8]) -> Result<Json<'a>, SyntaxError> {
        let text =
            std::str::from_utf8(bytes).map_err(|error| SyntaxError::Utf8(error.valid_up_to()))?;
        let raw: &RawValue =
            serde_json::from_str(text).map_err(|error| SyntaxError::Syntax(error.to_string()))?;
        let at = text.len() - text.trim_start_matches(WHITE).len();
        Ok(Json {
            text: raw.get(),
            at,
            noted: None,
        })
    }

    /// Validates like [`Json::parse`], and records the places of the outer members, which need not
    /// be searched later.
    ///
    /// # Errors
    /// The place at which it is not JSON.
    pub fn read(bytes: &'a [u8], tape: &'a mut Tape) -> Result<Json<'a>, SyntaxError> {
        let whole =
            std::str::from_utf8(bytes).map_err(|error| SyntaxError::Utf8(error.valid_up_to()))?;
        let Some((start, end)) = tape.read(whole) else {
            return Json::parse(bytes);
        };
        let (entries, count) = tape.entries();
        Ok(Json {
            text: &whole[start..end],
            at: start,
            noted: Some(NotedMembers {
                entries,
                from: 0,
                to: count,
                level: 1,
            }),
        })
    }

    /// A part of a text that was parsed before, by its [`Json::span`]. Spans count from the part's
    /// first byte. `None` if the bytes cannot be a value.
    pub fn part(frame: &'a [u8], span: Range<usize>) -> Option<Json<'a>> {
        let text = std::str::from_utf8(frame.get(span)?).ok()?;
        let closed = match text.as_bytes() {
            [b'{', .., b'}'] | [b'[', .., b']'] | [b'"', .., b'"'] => true,
            [b'{' | b'[' | b'"', ..] | [] => false,
            _ => true,
        };
        closed.then_some(Json {
            text,
            at: 0,
            noted: None,
        })
    }

    /// The value's text, without white space around it.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The place of the value in the parsed text, in bytes.
    pub fn span(&self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }

    /// The value as a text of its own: spans count from its first byte.
    pub fn detached(&self) -> Json<'a> {
        Json {
            text: self.text,
            at: 0,
            noted: None,
        }
    }

    /// The type of the value, by its first byte.
    pub fn kind(&self) -> JsonKind {
        match self.text.as_bytes().first() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::String,
            Some(b't' | b'f') => JsonKind::Bool,
            Some(b'n') => JsonKind::Null,
            _ => JsonKind::Number,
        }
    }

    /// True for an object.
    pub fn is_object(&self) -> bool {
        self.kind() == JsonKind::Object
    }

    /// The members of an object in their order, repeated keys included; none for any other value.
    pub fn members(&self) -> JsonMembers<'a> {
        match self.noted {
            Some(noted) => JsonMembers(MemberSource::Noted(*self, noted)),
            None => JsonMembers(MemberSource::Walked(JsonWalk::into(self, JsonKind::Object))),
        }
    }

    /// The elements of an array; none for any other value.
    pub fn elements(&self) -> Elements<'a> {
        Elements {
            walk: JsonWalk::into(self, JsonKind::Array),
        }
    }

    /// The first member with this key, compared unescaped.
    pub fn get(&self, key: &str) -> Option<Json<'a>> {
        self.members()
            .find(|member| member.key.is_string(key))
            .map(|member| member.value)
    }

    /// The value of a string; `None` for other values and for strings with lone surrogates, which
    /// no `str` can hold.
    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        if self.kind() != JsonKind::String {
            return None;
        }
        let inner = &self.text[1..self.text.len() - 1];
        if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
            return Some(Cow::Borrowed(inner));
        }
        serde_json::from_str::<String>(self.text)
            .ok()
            .map(Cow::Owned)
    }

    /// True for a string equal to `wanted`, compared unescaped. The comparison ends at the first
    /// difference.
    pub fn is_string(&self, wanted: &str) -> bool {
        let inner = self.text.as_bytes();
        if inner.len() < wanted.len() + 2 || inner[0] != b'"' {
            return false;
        }
        let inner = &inner[1..inner.len() - 1];
        if inner == wanted.as_bytes() {
            return !wanted.bytes().any(|byte| byte == b'\\');
        }
        // Without an escape the text is as written, and a first character other than `\` stands for
        // itself.
        let differs = inner.first() != wanted.as_bytes().first() && inner.first() != Some(&b'\\');
        if differs || !inner.contains(&b'\\') {
            return false;
        }
        UnescapedChars(self.inner()).eq_text(wanted)
    }

    /// The place in the frame after `start`, for a string that begins with `start` (compared
    /// unescaped).
    pub fn after(&self, start: &str) -> Option<usize> {
        if self.kind() != JsonKind::String {
            return None;
        }
        let mut characters = UnescapedChars(self.inner());
        for wanted in start.chars() {
            if !matches!(characters.next(), Some(Ok(is)) if is == wanted) {
                return None;
            }
        }
        Some(self.span().end - 1 - characters.0.len())
    }

    /// The text between the quotes of a string.
    fn inner(&self) -> &'a str {
        &self.text[1..self.text.len() - 1]
    }

    /// The value of an integer that fits.
    pub fn as_u64(&self) -> Option<u64> {
        if self.kind() == JsonKind::Number {
            self.text.parse().ok()
        } else {
            None
        }
    }

    /// The value of `true` and `false`.
    pub fn as_bool(&self) -> Option<bool> {
        match self.text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The first of `keys` that two members of this object could be taken for: their keys are equal
    /// to it after case folding, NFKC and removal of NUL. A reader that folds keys sees another
    /// message than one that does not, so such a message is refused.
    pub fn ambiguous<'k>(&self, keys: &[&'k str]) -> Option<&'k str> {
        debug_assert!(keys.len() <= 64 && keys.iter().all(|key| key.is_ascii()));
        let mut seen = 0u64;
        for member in self.members() {
            let Some((index, _)) = find(member.key.inner().as_bytes(), keys) else {
                continue;
            };
            if seen & (1 << index) != 0 {
                return Some(keys[index]);
            }
            seen |= 1 << index;
        }
        None
    }

    /// [`Json::get`] for each of the first `N` keys, and [`Json::ambiguous`] for all of them, in
    /// one walk.
    pub fn pick<const N: usize>(&self, keys: &[&'static str]) -> PickedMembers<'a, N> {
        let mut picked = PickedMembers {
            values: [None; N],
            ambiguous: None,
        };
        let mut seen = 0u64;
        let mut meet = |found: Option<(usize, bool)>, value: &dyn Fn() -> Json<'a>| {
            let Some((index, is_exact)) = found else {
                return;
            };
            if seen & (1 << index) != 0 {
                picked.ambiguous.get_or_insert(keys[index]);
            }
            seen |= 1 << index;
            if let Some(place @ None) = picked.values.get_mut(index)
                && is_exact
            {
                *place = Some(value());
            }
        };
        match self.noted {
            Some(mut noted) => {
                while let Some((entry, inside)) = noted.next() {
                    let (from, to) = (
                        entry.key.0 as usize - self.at,
                        entry.key.1 as usize - self.at,
                    );
                    let found = find(&self.text.as_bytes()[from + 1..to - 1], keys);
                    meet(found, &|| self.noted_value(entry, inside));
                }
            }
            None => {
                for member in self.members() {
                    meet(find(member.key.inner().as_bytes(), keys), &|| member.value);
                }
            }
        }
        picked
    }
}

/// The result of [`Json::pick`].
#[derive(Debug, Clone, Copy)]
pub struct PickedMembers<'a, const N: usize> {
    /// The first member with each key, in the order of the keys.
    pub values: [Option<Json<'a>>; N],
    /// A key that two members could be taken for.
    pub ambiguous: Option<&'static str>,
}

const WHITE: [char; 4] = [' ', '\t', '\n', '\r'];

/// A walk over the content of an object or array of validated text.
#[derive(Debug, Clone)]
struct JsonWalk<'a> {
    /// The object or array.
    text: &'a str,
    /// The place of the object or array in the parsed text.
    start: usize,
    /// The position of the walk in `text`.
    at: usize,
    /// The end of the content in `text`.
    end: usize,
}

impl<'a> JsonWalk<'a> {
    fn into(value: &Json<'a>, kind: JsonKind) -> JsonWalk<'a> {
        let end = if value.kind() == kind {
            value.text.len() - 1
        } else {
            1
        };
        JsonWalk {
            text: value.text,
            start: value.at,
            at: 1,
            end,
        }
    }

    fn value(&mut self) -> Option<Json<'a>> {
        let rest = self.text.as_bytes().get(self.at..self.end)?;
        // White space, commas and colons. The text is valid, so each of them is at a valid place.
        let skipped = rest
            .iter()
            .position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':'))?;
        let from = self.at + skipped;
        self.at = from + value_length(&rest[skipped..]);
        Some(Json {
            text: &self.text[from..self.at],
            at: self.start + from,
            noted: None,
        })
    }
}

/// Length of the value that valid text begins with.
fn value_length(bytes: &[u8]) -> usize {
    match bytes[0] {
        b'"' => string_length(bytes),
        b'{' | b'[' => {
            let mut depth = 0usize;
            let mut at = 0;
            while at < bytes.len() {
                match bytes[at] {
                    b'"' => {
                        at += string_length(&bytes[at..]);
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return at + 1;
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
            bytes.len()
        }
        _ => bytes
            .iter()
            .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'))
            .unwrap_or(bytes.len()),
    }
}

/// Length of the string, quotes included, that valid text begins with.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = bytes.get(at..).and_then(quote_or_backslash) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// The first `"` or `\`. Most strings are short: a plain loop over a few bytes is faster than the
/// start of a vector search.
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    const FEW: usize = 24;
    let (near, far) = bytes.split_at(bytes.len().min(FEW));
    let found = near.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    found.or_else(|| memchr::memchr2(b'"', b'\\', far).map(|found| near.len() + found))
}

/// Iterator of [`Json::members`].
#[derive(Debug, Clone)]
pub struct JsonMembers<'a>(MemberSource<'a>);

#[derive(Debug, Clone)]
enum MemberSource<'a> {
    Noted(Json<'a>, NotedMembers<'a>),
    Walked(JsonWalk<'a>),
}

impl<'a> NotedMembers<'a> {
    /// The next entry, and the recorded members of its value.
    fn next(&mut self) -> Option<(&'a ScannedMember, NotedMembers<'a>)> {
        if self.from >= self.to {
            return None;
        }
        let entry = &self.entries[usize::from(self.from)];
        let inside = NotedMembers {
            entries: self.entries,
            from: self.from + 1,
            to: entry.after,
            level: self.level + 1,
        };
        self.from = entry.after;
        Some((entry, inside))
    }
}

impl<'a> Json<'a> {
    /// The value at a recorded place inside this value.
    fn place(&self, (from, to): (u32, u32)) -> Json<'a> {
        let (from, to) = (from as usize, to as usize);
        Json {
            text: &self.text[from - self.at..to - self.at],
            at: from,
            noted: None,
        }
    }

    /// The value of a recorded entry inside this value.
    fn noted_value(&self, entry: &ScannedMember, inside: NotedMembers<'a>) -> Json<'a> {
        let value = self.place(entry.value);
        // Below the last recorded level, members are searched.
        let is_noted = usize::from(inside.level) <= Tape::NOTED && value.is_object();
        Json {
            noted: is_noted.then_some(inside),
            ..value
        }
    }
}

impl<'a> Iterator for JsonMembers<'a> {
    type Item = JsonMember<'a>;

    fn next(&mut self) -> Option<JsonMember<'a>> {
        match &mut self.0 {
            MemberSource::Noted(whole, noted) => {
                let (entry, inside) = noted.next()?;
                Some(JsonMember {
                    key: whole.place(entry.key),
                    value: whole.noted_value(entry, inside),
                })
            }
            MemberSource::Walked(walk) => {
                let key = walk.value()?;
                let value = walk.value()?;
                Some(JsonMember { key, value })
            }
        }
    }
}

/// Iterator of [`Json::elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    walk: JsonWalk<'a>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Json<'a>;

    fn next(&mut self) -> Option<Json<'a>> {
        self.walk.value()
    }
}

/// Appends `text` as a JSON string, quotes included.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    // Writing a `str` to a `Vec` cannot fail. The fallback keeps the output valid in any case.
    if serde_json::to_writer(&mut *out, text).is_err() {
        out.extend_from_slice(b"\"\"");
    }
}

/// `text` as a JSON string, quotes included.
pub fn string(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    write_string(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::keys::{FOLDED, LOOKED_UP, fold};
    use super::*;
    use proptest::prelude::*;

    fn json(text: &str) -> Json<'_> {
        Json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_folds_to_ascii_is_where_it_is_looked_for() {
        for character in '\u{80}'..=char::MAX {
            let folded = fold(character.encode_utf8(&mut [0; 4]));
            assert!(!folded.is_empty(), "{character:?}");
            let listed = FOLDED.binary_search_by_key(&character, |(from, _)| *from);
            let bytes = listed.map(|at| FOLDED[at].1).unwrap_or_default();
            let known: Vec<u8> = bytes.into_iter().filter(|byte| *byte != 0).collect();
            let expected = if folded.is_ascii() {
                folded.as_bytes()
            } else {
                b""
            };
            assert!(known == expected, "{character:?} {folded:?}");
        }
        assert!(FOLDED.is_sorted_by_key(|(from, _)| *from));
    }

    /// The cost is counted, not timed.
    #[test]
    fn folding_keys_is_no_more_work_than_reading_them() {
        let keys = [
            "_meta",
            "progressToken",
            "io.modelcontextprotocol/protocolVersion",
            "task",
        ];
        let repeated = |member: &str, size: usize| {
            let mut text = String::from("{");
            while text.len() < size {
                text.push_str(member);
            }
            text.pop();
            text + "}"
        };
        let size = 15 * 1024 * 1024;
        let long = format!("{{\"{}\":1}}", "\u{fdfa}".repeat(size / 3));
        for (text, most) in [
            (repeated("\"\u{e9}\":1,", size), size / 4),
            (repeated("\"\\u00e9\":1,", size), size / 4),
            (
                repeated("\"\u{ff54}\u{ff41}\u{ff53}\u{ff4c}\":1,", size),
                size / 4,
            ),
            (long, 1),
        ] {
            let parsed = json(&text);
            LOOKED_UP.set(0);
            assert_eq!(parsed.ambiguous(&keys), None);
            assert!(
                LOOKED_UP.get() <= most,
                "{} of {}",
                LOOKED_UP.get(),
                text.len()
            );
        }
    }

    #[test]
    fn walks_members_with_their_spans() {
        let text = " { \"a\" : [1, {\"b\":\"}\"}] ,\"c\\\"\":null, \"n\":-1.5e400 } ";
        let root = json(text);
        let members: Vec<_> = root
            .members()
            .map(|m| (&text[m.key.span()], &text[m.value.span()], m.value.kind()))
            .collect();
        assert_eq!(
            members,
            [
                ("\"a\"", "[1, {\"b\":\"}\"}]", JsonKind::Array),
                ("\"c\\\"\"", "null", JsonKind::Null),
                ("\"n\"", "-1.5e400", JsonKind::Number)
            ]
        );
        let elements: Vec<_> = root
            .get("a")
            .unwrap()
            .elements()
            .map(|e| e.text())
            .collect();
        assert_eq!(elements, ["1", "{\"b\":\"}\"}"]);
    }

    #[test]
    fn accepts_what_typed_parsers_choke_on() {
        let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
        for text in [
            "1e400",
            "\"\\ud800\"",
            "123456789012345678901234567890",
            "{\"a\":1,\"a\":2}",
            &deep,
        ] {
            assert_eq!(json(text).text(), text);
        }
    }

    #[test]
    fn refuses_what_is_not_json() {
        for text in [
            "",
            "{",
            "{}}",
            "{\"a\"}",
            "01",
            "nul",
            "\"\\x\"",
            "\"a\nb\"",
            "[1,]",
            "{\"a\":1,}",
            "\u{feff}{}",
        ] {
            assert!(Json::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert_eq!(Json::parse(b"\"\xff\"").unwrap_err(), SyntaxError::Utf8(1));
    }

    #[test]
    fn compares_keys_unescaped() {
        assert_eq!(json(r#"{"n\u0061me":1}"#).get("name").unwrap().text(), "1");
        assert!(json(r#"{"\ud800":1}"#).get("name").is_none());
        assert!(!json(r#""a\u0062""#).is_string(r"a\u0062"));
    }

    #[test]
    fn finds_keys_that_two_readers_take_differently() {
        let keys = ["name", "method", "_meta", "task"];
        for text in [
            r#"{"name":1,"name":2}"#,
            r#"{"name":1,"Name":2}"#,
            r#"{"name":1,"n\u0061me":2}"#,
            r#"{"name":1,"name\u0000":2}"#,
            r#"{"ｎame":1,"name":2}"#,
            r#"{"tasK":1,"task":2}"#,
            r#"{"taſk":1,"task":2}"#,
            r#"{"METHOD":1,"MeThOd":2}"#,
        ] {
            assert!(json(text).ambiguous(&keys).is_some(), "{text}");
        }
        for text in [
            r#"{"name":1,"names":2}"#,
            r#"{"x":1,"x":2}"#,
            r#"{"Name":1}"#,
            r#"{"\ud800":1,"name":1}"#,
            "[]",
        ] {
            assert!(json(text).ambiguous(&keys).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn walk_agrees_with_serde(text in any_json()) {
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            check(json(&text), &value, &text);
        }

        #[test]
        fn what_is_noted_is_what_a_walk_finds(text in any_json(), place in any::<proptest::sample::Index>(), byte in any::<u8>()) {
            let mut tape = Tape::default();
            let message = format!("{{\"a\":{text},\"b\" : {{ \"c\":{text} ,\"d\":{{\"e\":{text}}} }}}}");
            let noted = Json::read(message.as_bytes(), &mut tape).unwrap();
            prop_assert!(noted.noted.is_some() || tape_is_too_small(&message));
            same(json(&message), noted);
            // Each text that the pass accepts is JSON.
            let mut broken = message.clone().into_bytes();
            let at = place.index(broken.len());
            broken[at] = byte;
            if let Ok(broken) = std::str::from_utf8(&broken) {
                prop_assert!(tape.read(broken).is_none() || Json::parse(broken.as_bytes()).is_ok(), "{}", broken);
            }
            let cut = &broken[..at];
            if let Ok(cut) = std::str::from_utf8(cut) {
                prop_assert!(tape.read(cut).is_none() || Json::parse(cut.as_bytes()).is_ok(), "{}", cut);
            }
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(root) = Json::parse(&bytes) {
                root.members().for_each(|m| { m.value.as_str(); });
                root.elements().for_each(|e| { e.as_u64(); });
                root.ambiguous(&["a"]);
            }
        }

        #[test]
        fn picking_is_getting_each_and_looking_for_look_alikes(
            keys in proptest::collection::vec(
                proptest::sample::select(vec!["name", "Name", "n\\u0061me", "\\uff4eame", "_meta", "other", "\\ud800"]), 0..6),
        ) {
            let members: Vec<_> = keys.iter().enumerate().map(|(value, key)| format!("\"{key}\":{value}")).collect();
            let text = format!("{{{}}}", members.join(","));
            let wanted = ["name", "_meta"];
            let picked = json(&text).pick::<2>(&wanted);
            for (key, value) in wanted.iter().zip(picked.values) {
                prop_assert_eq!(value.map(|value| value.text()), json(&text).get(key).map(|value| value.text()));
            }
            prop_assert_eq!(picked.ambiguous, json(&text).ambiguous(&wanted));
        }

        #[test]
        fn a_key_folds_as_whole_texts_do(text in "[a-cſıİKｎame\\u{0}\\u{301}\\u{345}Σσﬁ㏘\\u{fdfa}⑽ßŉ]{0,6}") {
            let keys = ["name", "fi", "p.m.", "(10)", "s", "k", "ss", "a", "i"];
            let folded = fold(&text);
            let key = string(&text);
            let expected = keys.iter().position(|wanted| *wanted == folded);
            prop_assert_eq!(find(json(&key).inner().as_bytes(), &keys).map(|(index, _)| index), expected);
            let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            let key = format!("\"{escaped}\"");
            prop_assert_eq!(find(json(&key).inner().as_bytes(), &keys).map(|(index, _)| index), expected);
            prop_assert!(json(&key).is_string(&text));
        }

        #[test]
        fn written_strings_read_back(text in ".*") {
            let written = string(&text);
            prop_assert_eq!(json(&written).as_str().unwrap().into_owned(), text);
        }
    }

    #[test]
    fn the_pass_takes_what_serde_takes() {
        let mut tape = Tape::default();
        for value in [
            "1e400",
            "-0",
            "0.5E-7",
            "-1.0e+2",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "0x1",
            "nul",
            "true",
            "tru",
            "\"\\u12g4\"",
            "\"\\ud800\"",
            "\"\\x\"",
            "\"\t\"",
            "\"\u{7f}\"",
            "\"\\\"",
            "[1,]",
            "[,]",
            "[",
            "[]]",
            "{}",
            "{\"a\"}",
            "{\"a\":}",
            "{,}",
            "{\"a\":1,}",
            "{1:2}",
            "[1 2]",
            "[]",
            "[[],{}]",
            "{\"a\":[{}]}",
            "",
            ",",
        ] {
            for text in [
                format!("{{\"x\":{value}}}"),
                format!(" {{ \"x\" : {value} , \"y\":[{value}] }}\r\n"),
            ] {
                let serde = Json::parse(text.as_bytes()).is_ok();
                assert_eq!(tape.read(&text).is_some(), serde, "{text}");
            }
        }
        for text in [
            "",
            "[]",
            "1",
            "\"\"",
            "{}}",
            "{} {}",
            "\u{feff}{}",
            "{",
            "{\"a\":1",
        ] {
            assert_eq!(tape.read(text), None, "{text}");
        }
        let deep =
            |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(tape.read(&deep(62)).is_some());
        assert!(tape.read(&deep(63)).is_none());
    }

    /// True if a text may have more outer members than the tape has room for.
    fn tape_is_too_small(text: &str) -> bool {
        text.matches(':').count() > 30 || text.matches(['[', '{']).count() > 60
    }

    fn same(walked: Json<'_>, noted: Json<'_>) {
        assert_eq!((walked.text(), walked.span()), (noted.text(), noted.span()));
        let (walked, noted) = (walked.members(), noted.members());
        assert_eq!(walked.clone().count(), noted.clone().count());
        for (walked, noted) in walked.zip(noted) {
            assert_eq!(
                (walked.key.text(), walked.key.span()),
                (noted.key.text(), noted.key.span())
            );
            same(walked.value, noted.value);
        }
    }

    fn check(json: Json<'_>, value: &serde_json::Value, root: &str) {
        assert_eq!(&root[json.span()], json.text());
        match value {
            serde_json::Value::Object(map) => {
                let last: std::collections::BTreeMap<_, _> = json
                    .members()
                    .map(|m| (m.key.as_str().unwrap().into_owned(), m.value))
                    .collect();
                assert_eq!(last.len(), map.len());
                map.iter()
                    .for_each(|(key, value)| check(last[key], value, root));
            }
            serde_json::Value::Array(items) => {
                let elements: Vec<_> = json.elements().collect();
                assert_eq!(elements.len(), items.len());
                elements
                    .into_iter()
                    .zip(items)
                    .for_each(|(element, item)| check(element, item, root));
            }
            serde_json::Value::String(text) => assert_eq!(json.as_str().unwrap(), text.as_str()),
            other => assert_eq!(
                &serde_json::from_str::<serde_json::Value>(json.text()).unwrap(),
                other
            ),
        }
    }

    fn any_json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|b| b.to_string()),
            any::<i64>().prop_map(|n| n.to_string()),
            ".{0,8}".prop_map(|s| string(&s)),
            "[a\"\\\\]{0,70}".prop_map(|s| string(&s)),
            Just(r#""\"\\\u00e9{[,:""#.to_owned()),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5)
                    .prop_map(|v| format!("[ {} ]", v.join(" ,\t"))),
                proptest::collection::vec((".{0,5}", inner), 0..5).prop_map(|v| format!(
                    "{{{}}}",
                    v.iter()
                        .map(|(k, v)| format!("{} : {v}", string(k)))
                        .collect::<Vec<_>>()
                        .join(", ")
                )),
            ]
        })
    }
}

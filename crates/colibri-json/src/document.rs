//! Configuration files, read whole.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::iter::once;
use std::ops::RangeInclusive;

use crate::near::nearest;
use crate::read::{JsonFault, JsonReader, PathStep, ValueKind};

/// The most bytes a file may have: 1 MiB.
pub const MAX_BYTES: usize = 1 << 20;

/// The deepest nesting of arrays and objects. It also bounds the stack that the parser needs.
pub const MAX_DEPTH: usize = 64;

/// The most characters of a key that an error shows.
const SHOWN_KEY: usize = 64;

/// The reason for which a file was refused, and its place. Shows keys, never values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError {
    /// The name of the file, as its reader passed it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The keys from the top to the place, such as `servers.github.args[2]`; empty at the top.
    /// Control characters are escaped.
    pub path: String,
    /// The fault and a remedy.
    pub message: String,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for DocumentError {}

/// A parsed file.
pub struct Document<'b> {
    source: SourceText<'b>,
    root: DocumentNode<'b>,
}

struct SourceText<'b> {
    file: &'b str,
    bytes: &'b [u8],
    /// The offsets at which lines begin.
    lines: Vec<usize>,
}

impl<'b> SourceText<'b> {
    fn new(bytes: &'b [u8], file: &'b str) -> Self {
        let newlines = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let lines = newlines.map(|(offset, _)| offset + 1);
        SourceText {
            file,
            bytes,
            lines: once(0).chain(lines).collect(),
        }
    }

    fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset)
    }

    fn error(&self, offset: usize, path: &str, message: impl Into<String>) -> DocumentError {
        let line = self.line(offset);
        let before = &self.bytes[self.lines[line - 1]..offset.min(self.bytes.len())];
        DocumentError {
            file: self.file.to_owned(),
            line,
            // Continuation bytes of UTF-8 do not begin a character.
            column: before.iter().filter(|byte| **byte & 0xc0 != 0x80).count() + 1,
            path: path.to_owned(),
            message: message.into(),
        }
    }
}

struct DocumentNode<'b> {
    start: usize,
    end: usize,
    value: DocumentValue<'b>,
}

enum DocumentValue<'b> {
    Null,
    Bool(bool),
    /// A number, as written: the range `start..end` of the node.
    Number,
    String(Cow<'b, str>),
    Array(Vec<DocumentNode<'b>>),
    Object(Vec<DocumentMember<'b>>),
}

struct DocumentMember<'b> {
    key: Cow<'b, str>,
    key_start: usize,
    value: DocumentNode<'b>,
}

impl<'b> Document<'b> {
    /// Parses `bytes`. Errors name the file as `file`.
    ///
    /// # Errors
    /// More than [`MAX_BYTES`], a byte-order mark, bytes that are not UTF-8, anything outside the
    /// grammar of RFC 8259, trailing data, nesting beyond [`MAX_DEPTH`], a lone surrogate, or a
    /// repeated key in one object (keys are compared unescaped).
    pub fn parse(bytes: &'b [u8], file: &'b str) -> Result<Self, DocumentError> {
        let source = SourceText::new(bytes, file);
        let fail = |offset: usize, message: &str| Err(source.error(offset, "", message));
        if bytes.len() > MAX_BYTES {
            return fail(0, "the file is larger than 1 MiB, which is the limit");
        }
        if bytes.starts_with(b"\xef\xbb\xbf") {
            return fail(
                0,
                "the file begins with a byte-order mark; save it as UTF-8 without one",
            );
        }
        if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
            return fail(0, "the file is UTF-16; save it as UTF-8");
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|bad| source.error(bad.valid_up_to(), "", "not UTF-8"))?;
        if text.trim_matches([' ', '\t', '\n', '\r']).is_empty() {
            return fail(text.len(), "the file is empty; a JSON object was expected");
        }
        let mut reader = JsonReader::new(
            text,
            MAX_DEPTH,
            "nested deeper than 64 levels, which is the limit",
        );
        let root = node(&mut reader)
            .and_then(|root| reader.end().map(|()| root))
            .map_err(|fault| {
                let mut path = String::new();
                for step in fault.steps.iter().rev() {
                    match step {
                        PathStep::Key(key) => path = join(&path, key),
                        PathStep::Index(index) => path.push_str(&format!("[{index}]")),
                    }
                }
                source.error(fault.at, &path, fault.why)
            })?;
        Ok(Self { source, root })
    }

    /// The value of the whole file.
    pub fn root(&self) -> ValueCursor<'_> {
        ValueCursor {
            source: &self.source,
            node: &self.root,
            path: String::new(),
        }
    }
}

/// A value of a [`Document`], with its place in it.
#[derive(Clone)]
pub struct ValueCursor<'d> {
    source: &'d SourceText<'d>,
    node: &'d DocumentNode<'d>,
    path: String,
}

impl<'d> ValueCursor<'d> {
    /// An error at this value. `message` must not repeat the value.
    pub fn error(&self, message: impl Into<String>) -> DocumentError {
        self.source.error(self.node.start, &self.path, message)
    }

    /// The keys from the top to this value, as errors show them.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The name of the file, as its reader passed it.
    pub fn file(&self) -> &'d str {
        self.source.file
    }

    /// The line on which this value begins, from 1.
    pub fn line(&self) -> usize {
        self.source.line(self.node.start)
    }

    /// The bytes of this value exactly as they stand in the file.
    pub fn raw(&self) -> &'d [u8] {
        &self.source.bytes[self.node.start..self.node.end]
    }

    /// True for a string. For keys that accept several types.
    pub fn is_string(&self) -> bool {
        matches!(self.node.value, DocumentValue::String(_))
    }

    /// True for an object. For keys that accept several types.
    pub fn is_object(&self) -> bool {
        matches!(self.node.value, DocumentValue::Object(_))
    }

    /// Reads an object whose keys are all known.
    ///
    /// # Errors
    /// Not an object, or a key that is not in `known`; the error names the nearest known one.
    pub fn object(&self, known: &[&str]) -> Result<Object<'d>, DocumentError> {
        let members = self.members()?;
        for member in &members {
            if !known.contains(&member.key) {
                return Err(member.key_error(unknown_key(member.key, known)));
            }
        }
        Ok(Object {
            members,
            owner: self.clone(),
        })
    }

    /// The members of an object with arbitrary keys, in the order of the file.
    ///
    /// # Errors
    /// Not an object.
    pub fn members(&self) -> Result<Vec<NamedValue<'d>>, DocumentError> {
        let DocumentValue::Object(members) = &self.node.value else {
            return Err(self.expected("an object"));
        };
        Ok(members
            .iter()
            .map(|member| NamedValue {
                key: &member.key,
                key_start: member.key_start,
                value: ValueCursor {
                    node: &member.value,
                    path: join(&self.path, &member.key),
                    ..self.clone()
                },
            })
            .collect())
    }

    /// An array, in order.
    ///
    /// # Errors
    /// Not an array.
    pub fn array(&self) -> Result<Vec<ValueCursor<'d>>, DocumentError> {
        let DocumentValue::Array(items) = &self.node.value else {
            return Err(self.expected("an array"));
        };
        Ok(items
            .iter()
            .enumerate()
            .map(|(index, node)| ValueCursor {
                node,
                path: format!("{}[{index}]", self.path),
                ..self.clone()
            })
            .collect())
    }

    /// A string, unescaped, with any content.
    ///
    /// # Errors
    /// Not a string.
    pub fn string(&self) -> Result<&'d str, DocumentError> {
        match &self.node.value {
            DocumentValue::String(text) => Ok(text),
            _ => Err(self.expected("a string")),
        }
    }

    /// A string without control characters (NUL, newline, escape, …). No name, path or argument
    /// needs them, and they can forge log lines or cut C strings short.
    ///
    /// # Errors
    /// Not a string, or one with a control character.
    pub fn text(&self) -> Result<&'d str, DocumentError> {
        let text = self.string()?;
        if text.chars().any(char::is_control) {
            return Err(self.error("control characters (NUL, newline, …) are not allowed here"));
        }
        Ok(text)
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Anything else.
    pub fn boolean(&self) -> Result<bool, DocumentError> {
        match self.node.value {
            DocumentValue::Bool(value) => Ok(value),
            _ => Err(self.expected("true or false")),
        }
    }

    /// A whole number within `range`, written in digits alone. `3e4`, `30000.0` and `-0` are
    /// refused as ambiguous.
    ///
    /// # Errors
    /// Not a number, not a whole one, or out of range.
    pub fn integer(&self, range: RangeInclusive<u64>) -> Result<u64, DocumentError> {
        if !matches!(self.node.value, DocumentValue::Number) {
            return Err(self.expected("a whole number"));
        }
        let digits = self.raw();
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(self.error(format!(
                "must be a whole number from {} to {}, in digits alone",
                range.start(),
                range.end()
            )));
        }
        // More digits than u64 holds fail to parse, and are out of every range.
        std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse::<u64>().ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| self.error(format!("must be from {} to {}", range.start(), range.end())))
    }

    fn expected(&self, wanted: &str) -> DocumentError {
        let found = match self.node.value {
            DocumentValue::Null => "null",
            DocumentValue::Bool(_) => "true or false",
            DocumentValue::Number => "a number",
            DocumentValue::String(_) => "a string",
            DocumentValue::Array(_) => "an array",
            DocumentValue::Object(_) => "an object",
        };
        self.error(format!("must be {wanted}, not {found}"))
    }
}

/// A member of an object with arbitrary keys.
#[derive(Clone)]
pub struct NamedValue<'d> {
    /// The key, unescaped.
    pub key: &'d str,
    /// Its value.
    pub value: ValueCursor<'d>,
    key_start: usize,
}

impl NamedValue<'_> {
    /// An error at the key instead of the value.
    pub fn key_error(&self, message: impl Into<String>) -> DocumentError {
        let value = &self.value;
        value.source.error(self.key_start, &value.path, message)
    }
}

/// An object whose keys are all known.
pub struct Object<'d> {
    members: Vec<NamedValue<'d>>,
    owner: ValueCursor<'d>,
}

impl<'d> Object<'d> {
    /// The object with the members of another after its own.
    #[must_use]
    pub fn followed_by(self, other: Object<'d>) -> Object<'d> {
        Object {
            members: self.members.into_iter().chain(other.members).collect(),
            owner: self.owner,
        }
    }

    /// The object itself.
    pub fn owner(&self) -> &ValueCursor<'d> {
        &self.owner
    }

    /// The value of `key`, if the file has it.
    pub fn get(&self, key: &str) -> Option<&ValueCursor<'d>> {
        self.members
            .iter()
            .find(|member| member.key == key)
            .map(|member| &member.value)
    }

    /// The value of `key` read with `read`, if the file has the key.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&ValueCursor<'d>) -> Result<T, DocumentError>,
    ) -> Result<Option<T>, DocumentError> {
        self.get(key).map(read).transpose()
    }

    /// The value of a required `key`.
    ///
    /// # Errors
    /// The file does not have the key.
    pub fn need(&self, key: &str) -> Result<&ValueCursor<'d>, DocumentError> {
        self.get(key)
            .ok_or_else(|| self.owner.error(format!("the key {key:?} is missing")))
    }
}

fn join(path: &str, key: &str) -> String {
    let key = colibri_text::ascii(key, SHOWN_KEY);
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

fn unknown_key(key: &str, known: &[&str]) -> String {
    match nearest(key, known) {
        Some(name) => format!("unknown key; did you mean {name:?}?"),
        None => format!("unknown key; known here: {}", known.join(", ")),
    }
}

fn node<'b>(reader: &mut JsonReader<'b>) -> Result<DocumentNode<'b>, JsonFault> {
    let kind = reader.kind()?;
    let start = reader.at();
    let value = match kind {
        ValueKind::Null => reader.null().map(|()| DocumentValue::Null)?,
        ValueKind::Bool => DocumentValue::Bool(reader.boolean()?),
        ValueKind::Number => reader.number().map(|_| DocumentValue::Number)?,
        ValueKind::String => DocumentValue::String(reader.string()?),
        ValueKind::Array => DocumentValue::Array(elements(reader)?),
        ValueKind::Object => DocumentValue::Object(members(reader)?),
    };
    let end = reader.at();
    Ok(DocumentNode { start, end, value })
}

fn elements<'b>(reader: &mut JsonReader<'b>) -> Result<Vec<DocumentNode<'b>>, JsonFault> {
    let mut elements = Vec::new();
    reader.enter()?;
    while reader.element(elements.is_empty())? {
        elements.push(node(reader).map_err(|fault| fault.in_element(elements.len()))?);
    }
    Ok(elements)
}

fn members<'b>(reader: &mut JsonReader<'b>) -> Result<Vec<DocumentMember<'b>>, JsonFault> {
    let mut members: Vec<DocumentMember<'b>> = Vec::new();
    let mut keys = BTreeSet::new();
    reader.enter()?;
    while let Some((key_start, key)) = reader.key(members.is_empty())? {
        if !keys.insert(key.clone()) {
            let fault = reader.fault(
                key_start,
                "this key stands twice in the same object; remove one",
            );
            return Err(fault.in_key(&key));
        }
        let value = reader
            .colon()
            .and_then(|()| node(reader))
            .map_err(|fault| fault.in_key(&key))?;
        members.push(DocumentMember {
            key,
            key_start,
            value,
        });
    }
    Ok(members)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(text: &str) -> DocumentError {
        match Document::parse(text.as_bytes(), "f.json") {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error,
        }
    }

    #[test]
    fn errors_give_file_line_column_and_path() {
        let error = refusal("{\n  \"a\": [1, {\"b\": x}]\n}");
        assert_eq!(
            (error.line, error.column, error.path.as_str()),
            (2, 18, "a[1].b")
        );
        assert!(
            error.to_string().starts_with("f.json:2:18: a[1].b: "),
            "{error}"
        );
    }

    #[test]
    fn columns_are_characters() {
        assert_eq!(refusal("{\"ä€😀\": x}").column, 9);
    }

    #[test]
    fn refuses_what_is_outside_the_grammar() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\" 1}",
            "{'a':1}",
            "[1 2]",
            "nul",
            "True",
            "NaN",
            "Infinity",
            "+1",
            ".5",
            "1.",
            "01",
            "-01",
            "-",
            "1e",
            "1e+",
            "0x10",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "\"\\ud800x\"",
            "\"a\nb\"",
            "\"\u{0}\"",
            "// x\n{}",
            "{} {}",
            "{}x",
            "[1]]",
            "\u{a0}{}",
            "{}\u{0}",
        ] {
            refusal(text);
        }
    }

    #[test]
    fn reads_what_the_grammar_allows() {
        let text = r#" {"a":[0,-0,1.5,1e400,-2E-3,123456789012345678901234567890],"é":"\"\\\/\b\f\n\r\t\u0041\ud83d\ude00",
            "n":null,"t":true,"f":false,"e":{},"l":[]} "#;
        let document = Document::parse(text.as_bytes(), "f").unwrap();
        let root = document
            .root()
            .object(&["a", "é", "n", "t", "f", "e", "l"])
            .unwrap();
        assert_eq!(
            root.need("é").unwrap().string().unwrap(),
            "\"\\/\u{8}\u{c}\n\r\tA😀"
        );
        assert_eq!(root.need("a").unwrap().array().unwrap().len(), 6);
        assert!(root.need("t").unwrap().boolean().unwrap());
        assert!(root.need("n").unwrap().boolean().is_err());
    }

    #[test]
    fn refuses_duplicate_keys_also_when_written_differently() {
        for text in [
            "{\"a\":1,\"a\":1}",
            "{\"a\":1,\"b\":2,\"\\u0061\":3}",
            "[{\"k\":{\"x\":1,\"\\u0078\":1}}]",
        ] {
            assert!(refusal(text).message.contains("twice"), "{text}");
        }
        Document::parse(b"{\"a\":{\"a\":1},\"b\":{\"a\":1}}", "f").unwrap();
    }

    #[test]
    fn refuses_marks_other_encodings_and_sizes() {
        assert!(refusal("\u{feff}{}").message.contains("byte-order mark"));
        let utf16 = Document::parse(b"\xff\xfe{\0}\0", "f").err().unwrap();
        assert!(utf16.message.contains("UTF-16"));
        let bytes = Document::parse(b"{\"a\": \"\xc3\x28\"}", "f")
            .err()
            .unwrap();
        assert_eq!((bytes.message.as_str(), bytes.column), ("not UTF-8", 8));
        let mut large = vec![b' '; MAX_BYTES - 2];
        large.extend(b"{}");
        Document::parse(&large, "f").unwrap();
        large.push(b' ');
        assert!(
            Document::parse(&large, "f")
                .err()
                .unwrap()
                .message
                .contains("1 MiB")
        );
    }

    #[test]
    fn depth_is_bounded() {
        let nest = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        Document::parse(nest(MAX_DEPTH).as_bytes(), "f").unwrap();
        assert!(refusal(&nest(MAX_DEPTH + 1)).message.contains("deeper"));
        assert!(refusal(&"[".repeat(MAX_BYTES)).message.contains("deeper"));
        assert!(
            refusal(&"{\"a\":".repeat(200_000))
                .message
                .contains("deeper")
        );
    }

    #[test]
    fn names_the_nearest_known_key() {
        let known = ["command", "args", "jail", "timeout_ms"];
        for (key, hint) in [
            ("jial", "did you mean \"jail\"?"),
            ("Jail", "did you mean \"jail\"?"),
            ("timeout", "did you mean \"timeout_ms\"?"),
            ("comand", "did you mean \"command\"?"),
            ("x", "known here: command, args, jail, timeout_ms"),
        ] {
            let text = format!("{{\"{key}\": \"hush\"}}");
            let document = Document::parse(text.as_bytes(), "f").unwrap();
            let error = document.root().object(&known).err().unwrap();
            assert!(error.message.ends_with(hint), "{error}");
            assert_eq!((error.path.as_str(), error.column), (key, 2));
        }
    }

    #[test]
    fn keys_in_errors_are_escaped_and_cut() {
        let error = refusal(&format!(
            "{{\"a\\u001b\\n\u{202e}{}\": x}}",
            "k".repeat(1000)
        ));
        assert!(
            error.path.starts_with("a\\u{1b}\\u{a}\\u{202e}kkk") && error.path.ends_with('…'),
            "{error}"
        );
        assert!(error.path.len() < 200);
    }

    #[test]
    fn integers_are_whole_and_in_range() {
        let read = |text: &str| {
            Document::parse(text.as_bytes(), "f")
                .unwrap()
                .root()
                .integer(1..=100)
        };
        assert_eq!(read("1").unwrap(), 1);
        assert_eq!(read("100").unwrap(), 100);
        for text in [
            "0",
            "101",
            "-1",
            "1.0",
            "1e1",
            "-0",
            "99999999999999999999999",
            "\"5\"",
            "null",
            "true",
            "[5]",
        ] {
            let error = read(text).unwrap_err();
            assert!(!error.message.contains("999999"), "{error}");
        }
    }

    pub(crate) fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn same(cursor: &ValueCursor<'_>, value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::Null => matches!(cursor.node.value, DocumentValue::Null),
            serde_json::Value::Bool(wanted) => cursor.boolean().is_ok_and(|found| found == *wanted),
            serde_json::Value::Number(number) => cursor.raw() == number.to_string().as_bytes(),
            serde_json::Value::String(wanted) => cursor.string().is_ok_and(|found| found == wanted),
            serde_json::Value::Array(wanted) => cursor.array().is_ok_and(|found| {
                found.len() == wanted.len()
                    && found
                        .iter()
                        .zip(wanted)
                        .all(|(found, wanted)| same(found, wanted))
            }),
            serde_json::Value::Object(wanted) => cursor.members().is_ok_and(|found| {
                found.len() == wanted.len()
                    && found.iter().all(|found| {
                        wanted
                            .get(found.key)
                            .is_some_and(|wanted| same(&found.value, wanted))
                    })
            }),
        }
    }

    proptest! {
        #[test]
        fn reads_all_that_serde_json_writes(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let document = Document::parse(text.as_bytes(), "f").unwrap();
            prop_assert!(same(&document.root(), &value));
        }

        #[test]
        fn never_panics_and_never_accepts_what_serde_json_refuses(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..64),
                "[\\[\\]{}\",:0-9eE+.\\\\ut rfalsn\n-]{0,48}".prop_map(String::into_bytes),
            ],
        ) {
            if Document::parse(&bytes, "f").is_ok() {
                prop_assert!(serde_json::from_slice::<&serde_json::value::RawValue>(&bytes).is_ok());
            }
        }

        #[test]
        fn a_cut_off_file_is_refused(value in json(), cut in any::<prop::sample::Index>()) {
            let text = serde_json::to_string(&vec![value]).unwrap();
            let end = cut.index(text.len());
            prop_assert!(Document::parse(&text.as_bytes()[..end], "f").is_err());
        }

        #[test]
        fn errors_never_show_a_value(secret in "SECRET[a-z]{8}", at in 0usize..6) {
            let text = [
                format!("{{\"a\": \"{secret}\" x}}"),
                format!("{{\"a\": \"{secret}"),
                format!("{{\"a\": {secret}}}"),
                format!("{{\"a\": \"{secret}\\q\"}}"),
                format!("{{\"a\": \"{secret}\", \"a\": \"{secret}\"}}"),
                format!("[\"{secret}\"]]"),
            ][at].clone();
            prop_assert!(!refusal(&text).to_string().contains(&secret));
        }
    }
}

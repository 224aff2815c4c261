//! Strict JSON reading for files that decide what runs.
//!
//! A general JSON library forgives what a configuration file must not contain: a key that nobody reads, a key twice
//! (the last wins), a number that loses digits. Here each of these is an error with its place in the file, and no error
//! ever shows a value: a registry may hold tokens that somebody pasted, and the message goes to logs and terminals.
//!
//! [`Document::parse`] reads the grammar of RFC 8259 and nothing beyond it; [`Cursor`] walks the result and remembers
//! where it is, so that whoever finds a bad value only says what is wrong with it.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

/// The most bytes a file may have: 1 MiB.
pub const MAX_BYTES: usize = 1 << 20;

/// How deep arrays and objects may be nested. It also bounds the stack that reading takes.
pub const MAX_DEPTH: usize = 64;

/// The most characters of a key that an error shows.
const SHOWN_KEY: usize = 64;

/// Why a file was refused, and where. Shows keys, never values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The file, as its reader called it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Keys from the top to the place, such as `servers.github.args[2]`; empty at the top. Control characters are
    /// escaped.
    pub path: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A file that was read whole.
pub struct Document<'b> {
    file: &'b str,
    bytes: &'b [u8],
    root: Node,
}

struct Node {
    start: usize,
    end: usize,
    kind: Kind,
}

enum Kind {
    Null,
    Bool(bool),
    /// As written: `start..end` of the node is the number.
    Number,
    String(String),
    Array(Vec<Node>),
    Object(Vec<Member>),
}

struct Member {
    key: String,
    key_start: usize,
    value: Node,
}

impl<'b> Document<'b> {
    /// Reads `bytes`; `file` is the name that errors give.
    ///
    /// # Errors
    /// More than [`MAX_BYTES`], a byte-order mark, bytes that are not UTF-8, anything outside the grammar of RFC 8259,
    /// trailing data, nesting beyond [`MAX_DEPTH`], a lone surrogate, or a key that stands twice in one object, also
    /// when the two are only equal once unescaped.
    pub fn parse(bytes: &'b [u8], file: &'b str) -> Result<Self, Error> {
        let fail = |offset: usize, message: &str| Err(error(file, bytes, offset, "", message.to_owned()));
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
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(bad) => return fail(bad.valid_up_to(), "not UTF-8"),
        };
        let mut parser = Parser {
            text,
            file,
            at: 0,
            depth: 0,
            path: Vec::new(),
        };
        parser.space();
        if parser.peek().is_none() {
            return parser.fail("the file is empty; a JSON object was expected");
        }
        let root = parser.value()?;
        parser.space();
        if parser.peek().is_some() {
            return parser.fail("trailing data after the end of the JSON value");
        }
        Ok(Self { file, bytes, root })
    }

    /// The value of the whole file.
    pub fn root(&self) -> Cursor<'_> {
        Cursor {
            file: self.file,
            bytes: self.bytes,
            node: &self.root,
            path: String::new(),
        }
    }
}

/// A value of a [`Document`], with its place in it.
#[derive(Clone)]
pub struct Cursor<'d> {
    file: &'d str,
    bytes: &'d [u8],
    node: &'d Node,
    path: String,
}

impl<'d> Cursor<'d> {
    /// An error at this value. `message` must not repeat the value.
    pub fn error(&self, message: impl Into<String>) -> Error {
        error(self.file, self.bytes, self.node.start, &self.path, message.into())
    }

    /// The keys from the top to this value, as errors show them.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The bytes of this value exactly as they stand in the file.
    pub fn raw(&self) -> &'d [u8] {
        &self.bytes[self.node.start..self.node.end]
    }

    /// Whether this is a string, for keys that take one of several kinds of value.
    pub fn is_string(&self) -> bool {
        matches!(self.node.kind, Kind::String(_))
    }

    /// Whether this is an object, for keys that take one of several kinds of value.
    pub fn is_object(&self) -> bool {
        matches!(self.node.kind, Kind::Object(_))
    }

    /// An object of which every key is known.
    ///
    /// # Errors
    /// Not an object, or a key that is not in `known`; the error names the nearest known one.
    pub fn object(&self, known: &[&str]) -> Result<Object<'d>, Error> {
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

    /// An object whose keys are names that the file chooses, in the order of the file.
    ///
    /// # Errors
    /// Not an object.
    pub fn members(&self) -> Result<Vec<NamedValue<'d>>, Error> {
        let Kind::Object(members) = &self.node.kind else {
            return Err(self.expected("an object"));
        };
        Ok(members
            .iter()
            .map(|member| NamedValue {
                key: &member.key,
                key_start: member.key_start,
                value: Cursor {
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
    pub fn array(&self) -> Result<Vec<Cursor<'d>>, Error> {
        let Kind::Array(items) = &self.node.kind else {
            return Err(self.expected("an array"));
        };
        Ok(items
            .iter()
            .enumerate()
            .map(|(index, node)| Cursor {
                node,
                path: format!("{}[{index}]", self.path),
                ..self.clone()
            })
            .collect())
    }

    /// A string, unescaped, whatever it holds.
    ///
    /// # Errors
    /// Not a string.
    pub fn string(&self) -> Result<&'d str, Error> {
        match &self.node.kind {
            Kind::String(text) => Ok(text),
            _ => Err(self.expected("a string")),
        }
    }

    /// A string without control characters (NUL, newline, escape, …), which no name, path or argument needs and which
    /// forge log lines or cut C strings short.
    ///
    /// # Errors
    /// Not a string, or one with a control character.
    pub fn text(&self) -> Result<&'d str, Error> {
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
    pub fn boolean(&self) -> Result<bool, Error> {
        match self.node.kind {
            Kind::Bool(value) => Ok(value),
            _ => Err(self.expected("true or false")),
        }
    }

    /// A whole number within `range`, written in digits alone: `3e4`, `30000.0` and `-0` are refused, since they leave
    /// open what was meant.
    ///
    /// # Errors
    /// Not a number, not a whole one, or out of range.
    pub fn integer(&self, range: RangeInclusive<u64>) -> Result<u64, Error> {
        if !matches!(self.node.kind, Kind::Number) {
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

    fn expected(&self, wanted: &str) -> Error {
        let found = match self.node.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "true or false",
            Kind::Number => "a number",
            Kind::String(_) => "a string",
            Kind::Array(_) => "an array",
            Kind::Object(_) => "an object",
        };
        self.error(format!("must be {wanted}, not {found}"))
    }
}

/// A member of an object whose keys the file chooses.
pub struct NamedValue<'d> {
    /// The key, unescaped.
    pub key: &'d str,
    /// Its value.
    pub value: Cursor<'d>,
    key_start: usize,
}

impl NamedValue<'_> {
    /// An error at the key rather than at the value.
    pub fn key_error(&self, message: impl Into<String>) -> Error {
        let value = &self.value;
        error(value.file, value.bytes, self.key_start, &value.path, message.into())
    }
}

/// An object of which every key is known.
pub struct Object<'d> {
    members: Vec<NamedValue<'d>>,
    owner: Cursor<'d>,
}

impl<'d> Object<'d> {
    /// The value of `key`, if the file has it.
    pub fn get(&self, key: &str) -> Option<&Cursor<'d>> {
        self.members
            .iter()
            .find(|member| member.key == key)
            .map(|member| &member.value)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// The file does not have it.
    pub fn need(&self, key: &str) -> Result<&Cursor<'d>, Error> {
        self.get(key)
            .ok_or_else(|| self.owner.error(format!("the key {key:?} is missing")))
    }
}

/// `key` as messages show it: control, invisible and non-ASCII characters escaped, long ones cut.
pub fn shown(key: &str) -> String {
    let mut shown: String = key
        .chars()
        .take(SHOWN_KEY)
        .flat_map(|c| {
            let plain = c.is_ascii_graphic() || c == ' ';
            let escaped = (!plain).then(|| c.escape_unicode());
            escaped.into_iter().flatten().chain(plain.then_some(c))
        })
        .collect();
    if key.chars().nth(SHOWN_KEY).is_some() {
        shown.push('…');
    }
    shown
}

fn join(path: &str, key: &str) -> String {
    let key = shown(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

fn unknown_key(key: &str, known: &[&str]) -> String {
    match nearest(key, known) {
        Some(name) => format!("unknown key; did you mean {name:?}?"),
        None => format!("unknown key; known here: {}", known.join(", ")),
    }
}

/// The known name that may have been meant, if one is near enough.
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let nearest = known.iter().min_by_key(|known| distance(name, known))?;
    (distance(name, nearest) <= nearest.len().max(2) / 2).then_some(nearest)
}

/// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`, without regard to ASCII case.
fn distance(a: &str, b: &str) -> usize {
    // Keys of the file may be a megabyte long; what is far beyond a known key's length is far away in any case.
    let a: Vec<char> = a.chars().take(2 * SHOWN_KEY).map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

fn error(file: &str, bytes: &[u8], offset: usize, path: &str, message: String) -> Error {
    let before = &bytes[..offset.min(bytes.len())];
    let line_start = before
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |newline| newline + 1);
    // Continuation bytes of UTF-8 do not begin a character.
    let column = before[line_start..].iter().filter(|&&b| b & 0xc0 != 0x80).count() + 1;
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    Error {
        file: file.to_owned(),
        line,
        column,
        path: path.to_owned(),
        message,
    }
}

enum Step {
    Key(String),
    Index(usize),
}

struct Parser<'b> {
    text: &'b str,
    file: &'b str,
    at: usize,
    depth: usize,
    path: Vec<Step>,
}

impl Parser<'_> {
    fn fail<T>(&self, message: &str) -> Result<T, Error> {
        self.fail_at(self.at, message)
    }

    fn fail_at<T>(&self, offset: usize, message: &str) -> Result<T, Error> {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) => path = join(&path, key),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        Err(error(
            self.file,
            self.text.as_bytes(),
            offset,
            &path,
            message.to_owned(),
        ))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<Node, Error> {
        let start = self.at;
        let kind = match self.peek() {
            None => return self.fail("the file ends where a value was expected"),
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'"') => Kind::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true", Kind::Bool(true))?,
            Some(b'f') => self.literal("false", Kind::Bool(false))?,
            Some(b'n') => self.literal("null", Kind::Null)?,
            Some(b'/') => return self.fail("comments are not part of JSON"),
            Some(b']' | b'}') => return self.fail("a value was expected; is there a comma too many?"),
            Some(_) => return self.fail("a value was expected (strings stand in double quotes)"),
        };
        Ok(Node {
            start,
            end: self.at,
            kind,
        })
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Kind, Error>) -> Result<Kind, Error> {
        if self.depth == MAX_DEPTH {
            return self.fail("nested deeper than 64 levels, which is the limit");
        }
        self.depth += 1;
        self.at += 1;
        let kind = read(self)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn object(&mut self) -> Result<Kind, Error> {
        let mut members: Vec<Member> = Vec::new();
        let mut keys = BTreeSet::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Kind::Object(members));
        }
        loop {
            self.space();
            let key_start = self.at;
            match self.peek() {
                Some(b'"') => {}
                Some(b'}') => return self.fail("a key was expected; is there a comma too many?"),
                None => return self.fail("the file ends inside an object"),
                Some(_) => return self.fail("a key in double quotes was expected"),
            }
            let key = self.string()?;
            self.path.push(Step::Key(key.clone()));
            if !keys.insert(key.clone()) {
                return self.fail_at(key_start, "this key stands twice in the same object; remove one");
            }
            self.space();
            if self.peek() != Some(b':') {
                return self.fail("a colon was expected after the key");
            }
            self.at += 1;
            self.space();
            let value = self.value()?;
            self.path.pop();
            members.push(Member { key, key_start, value });
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Kind::Object(members));
                }
                None => return self.fail("the file ends inside an object"),
                Some(_) => return self.fail("a comma or } was expected"),
            }
        }
    }

    fn array(&mut self) -> Result<Kind, Error> {
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Kind::Array(items));
        }
        loop {
            self.space();
            self.path.push(Step::Index(items.len()));
            items.push(self.value()?);
            self.path.pop();
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Kind::Array(items));
                }
                None => return self.fail("the file ends inside an array"),
                Some(_) => return self.fail("a comma or ] was expected"),
            }
        }
    }

    fn literal(&mut self, word: &str, kind: Kind) -> Result<Kind, Error> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(kind)
        } else {
            self.fail("a value was expected (strings stand in double quotes)")
        }
    }

    fn number(&mut self) -> Result<Kind, Error> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        match self.digits() {
            0 => return self.fail_at(start, "not a number as JSON writes it"),
            2.. if leading_zero => return self.fail_at(start, "a number must not begin with 0"),
            _ => {}
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return self.fail_at(start, "not a number as JSON writes it");
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return self.fail_at(start, "not a number as JSON writes it");
            }
        }
        Ok(Kind::Number)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn string(&mut self) -> Result<String, Error> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let plain = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            text.push_str(&self.text[plain..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(b'\n' | b'\r') => return self.fail_at(start, "this string is not closed on its line"),
                Some(_) => return self.fail("a control character inside a string; write it as an escape"),
                None => return self.fail_at(start, "this string is not closed"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        let start = self.at;
        self.at += 2;
        Ok(match self.text.as_bytes().get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let unit = self.hex(start)?;
                let code = match unit {
                    0xd800..=0xdbff => {
                        let paired = self.text.as_bytes()[self.at..].starts_with(b"\\u");
                        self.at += 2;
                        let low = if paired { self.hex(start)? } else { 0 };
                        if !(0xdc00..=0xdfff).contains(&low) {
                            return self.fail_at(start, "half of a surrogate pair");
                        }
                        0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00)
                    }
                    unit => unit,
                };
                match char::from_u32(code) {
                    Some(c) => c,
                    None => return self.fail_at(start, "half of a surrogate pair"),
                }
            }
            _ => return self.fail_at(start, "not an escape that JSON knows"),
        })
    }

    fn hex(&mut self, escape: usize) -> Result<u32, Error> {
        let mut unit = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|b| char::from(b).to_digit(16)) else {
                return self.fail_at(escape, "four hexadecimal digits must follow \\u");
            };
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(text: &str) -> Error {
        match Document::parse(text.as_bytes(), "f.json") {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error,
        }
    }

    #[test]
    fn errors_give_file_line_column_and_path() {
        let error = refusal("{\n  \"a\": [1, {\"b\": x}]\n}");
        assert_eq!((error.line, error.column, error.path.as_str()), (2, 18, "a[1].b"));
        assert!(error.to_string().starts_with("f.json:2:18: a[1].b: "), "{error}");
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
        let root = document.root().object(&["a", "é", "n", "t", "f", "e", "l"]).unwrap();
        assert_eq!(root.need("é").unwrap().string().unwrap(), "\"\\/\u{8}\u{c}\n\r\tA😀");
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
        let bytes = Document::parse(b"{\"a\": \"\xc3\x28\"}", "f").err().unwrap();
        assert_eq!((bytes.message.as_str(), bytes.column), ("not UTF-8", 8));
        let mut large = vec![b' '; MAX_BYTES - 2];
        large.extend(b"{}");
        Document::parse(&large, "f").unwrap();
        large.push(b' ');
        assert!(Document::parse(&large, "f").err().unwrap().message.contains("1 MiB"));
    }

    #[test]
    fn depth_is_bounded() {
        let nest = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        Document::parse(nest(MAX_DEPTH).as_bytes(), "f").unwrap();
        assert!(refusal(&nest(MAX_DEPTH + 1)).message.contains("deeper"));
        assert!(refusal(&"[".repeat(MAX_BYTES)).message.contains("deeper"));
        assert!(refusal(&"{\"a\":".repeat(200_000)).message.contains("deeper"));
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
        let error = refusal(&format!("{{\"a\\u001b\\n\u{202e}{}\": x}}", "k".repeat(1000)));
        assert!(
            error.path.starts_with("a\\u{1b}\\u{a}\\u{202e}kkk") && error.path.ends_with('…'),
            "{error}"
        );
        assert!(error.path.len() < 200);
    }

    #[test]
    fn integers_are_whole_and_in_range() {
        let read = |text: &str| Document::parse(text.as_bytes(), "f").unwrap().root().integer(1..=100);
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

    fn json() -> impl Strategy<Value = serde_json::Value> {
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

    fn same(cursor: &Cursor<'_>, value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::Null => matches!(cursor.node.kind, Kind::Null),
            serde_json::Value::Bool(wanted) => cursor.boolean().is_ok_and(|found| found == *wanted),
            serde_json::Value::Number(number) => cursor.raw() == number.to_string().as_bytes(),
            serde_json::Value::String(wanted) => cursor.string().is_ok_and(|found| found == wanted),
            serde_json::Value::Array(wanted) => cursor.array().is_ok_and(|found| {
                found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| same(found, wanted))
            }),
            serde_json::Value::Object(wanted) => cursor.members().is_ok_and(|found| {
                found.len() == wanted.len()
                    && found
                        .iter()
                        .all(|found| wanted.get(found.key).is_some_and(|wanted| same(&found.value, wanted)))
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

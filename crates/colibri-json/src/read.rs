//! The grammar of RFC 8259.

use std::borrow::Cow;

/// The error for a string with half of a surrogate pair in its escapes.
pub const HALF_SURROGATE: &str = "half of a surrogate pair";

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// `null`
    Null,
    /// `true`, `false`
    Bool,
    /// Digits of any size.
    Number,
    /// `"…"`
    String,
    /// `[…]`
    Array,
    /// `{…}`
    Object,
}

/// A step from a value to one inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    /// To the value of a key.
    Key(String),
    /// To an element, counted from 0.
    Index(usize),
}

/// A fault of a text, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonFault {
    /// The place in bytes.
    pub at: usize,
    /// The fault, without any part of the text.
    pub why: &'static str,
    /// The path to the place, innermost step first.
    pub steps: Vec<PathStep>,
}

impl JsonFault {
    /// Adds the key of the value in which the fault is.
    #[must_use]
    pub fn in_key(mut self, key: &str) -> JsonFault {
        self.steps.push(PathStep::Key(key.to_owned()));
        self
    }

    /// Adds the index of the element in which the fault is.
    #[must_use]
    pub fn in_element(mut self, index: usize) -> JsonFault {
        self.steps.push(PathStep::Index(index));
        self
    }
}

/// Reads a text value by value, from its beginning to its end.
///
/// An object or array is read in steps: enter it, then read key after key or element after element
/// until none is left. Each value in it must be read. The caller has to check for repeated keys.
#[derive(Debug, Clone)]
pub struct JsonReader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    max_depth: usize,
    too_deep: &'static str,
}

/// A part of a string.
enum StringPiece<'t> {
    Plain(&'t str),
    Escaped(char),
}

type Result<T> = std::result::Result<T, JsonFault>;

impl<'t> JsonReader<'t> {
    /// A reader of arrays and objects nested up to `max_depth`. `too_deep` is the message for
    /// deeper ones.
    #[must_use]
    pub fn new(text: &'t str, max_depth: usize, too_deep: &'static str) -> JsonReader<'t> {
        JsonReader {
            text,
            at: 0,
            depth: 0,
            max_depth,
            too_deep,
        }
    }

    /// The place up to which the text was read, in bytes. After [`JsonReader::kind`]: the place of
    /// the next value.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// A fault at a place.
    #[must_use]
    pub fn fault(&self, at: usize, why: &'static str) -> JsonFault {
        JsonFault {
            at,
            why,
            steps: Vec::new(),
        }
    }

    fn fail<T>(&self, why: &'static str) -> Result<T> {
        Err(self.fault(self.at, why))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The type of the next value, by its first byte.
    ///
    /// # Errors
    /// There is no value.
    pub fn kind(&mut self) -> Result<ValueKind> {
        self.space();
        match self.peek() {
            Some(b'{') => Ok(ValueKind::Object),
            Some(b'[') => Ok(ValueKind::Array),
            Some(b'"') => Ok(ValueKind::String),
            Some(b'-' | b'0'..=b'9') => Ok(ValueKind::Number),
            Some(b't' | b'f') => Ok(ValueKind::Bool),
            Some(b'n') => Ok(ValueKind::Null),
            None => self.fail("the file ends where a value was expected"),
            Some(b'/') => self.fail("comments are not part of JSON"),
            Some(b']' | b'}') => self.fail("a value was expected; is there a comma too many?"),
            Some(_) => self.fail(NO_VALUE),
        }
    }

    /// Checks that the text has ended.
    ///
    /// # Errors
    /// The text goes on.
    pub fn end(&mut self) -> Result<()> {
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fail("trailing data after the end of the JSON value"),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Another value.
    pub fn boolean(&mut self) -> Result<bool> {
        match self.peek() {
            Some(b't') => self.word("true").map(|()| true),
            _ => self.word("false").map(|()| false),
        }
    }

    /// `null`.
    ///
    /// # Errors
    /// Another value.
    pub fn null(&mut self) -> Result<()> {
        self.word("null")
    }

    fn word(&mut self, word: &str) -> Result<()> {
        if !self.text[self.at..].starts_with(word) {
            return self.fail(NO_VALUE);
        }
        self.at += word.len();
        Ok(())
    }

    /// A number, as written.
    ///
    /// # Errors
    /// Not a number of RFC 8259.
    pub fn number(&mut self) -> Result<&'t str> {
        const NO_NUMBER: &str = "not a number as JSON writes it";
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let leading_zero = self.peek() == Some(b'0');
        match self.digits() {
            0 => return Err(self.fault(start, NO_NUMBER)),
            2.. if leading_zero => return Err(self.fault(start, "a number must not begin with 0")),
            _ => {}
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.fault(start, NO_NUMBER));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return Err(self.fault(start, NO_NUMBER));
            }
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    /// A string, unescaped.
    ///
    /// # Errors
    /// Not a string, or one with a bare control character, a wrong escape or half of a surrogate
    /// pair.
    pub fn string(&mut self) -> Result<Cow<'t, str>> {
        let inside = self.text.as_bytes().get(self.at + 1..).unwrap_or_default();
        let length = plain_length(inside);
        if self.peek() == Some(b'"') && inside.get(length) == Some(&b'"') {
            let start = self.at + 1;
            self.at = start + length + 1;
            return Ok(Cow::Borrowed(&self.text[start..start + length]));
        }
        let mut text = Cow::Borrowed("");
        self.pieces(|piece| match piece {
            StringPiece::Plain(plain) if text.is_empty() => text = Cow::Borrowed(plain),
            StringPiece::Plain(plain) => text.to_mut().push_str(plain),
            StringPiece::Escaped(c) => text.to_mut().push(c),
        })?;
        Ok(text)
    }

    /// Skips a string.
    ///
    /// # Errors
    /// The errors of [`JsonReader::string`].
    pub fn pass_string(&mut self) -> Result<()> {
        self.pieces(|_| {})
    }

    /// Skips a string and counts its characters.
    ///
    /// # Errors
    /// The errors of [`JsonReader::string`].
    pub fn characters(&mut self) -> Result<usize> {
        let mut characters = 0;
        self.pieces(|piece| {
            characters += match piece {
                // Continuation bytes of UTF-8 do not begin a character.
                StringPiece::Plain(plain) => {
                    plain.bytes().filter(|byte| byte & 0xc0 != 0x80).count()
                }
                StringPiece::Escaped(_) => 1,
            };
        })?;
        Ok(characters)
    }

    fn pieces(&mut self, mut piece: impl FnMut(StringPiece<'t>)) -> Result<()> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return self.fail(NO_VALUE);
        }
        self.at += 1;
        loop {
            let plain = self.at;
            self.at += plain_length(&self.text.as_bytes()[plain..]);
            piece(StringPiece::Plain(&self.text[plain..self.at]));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => piece(StringPiece::Escaped(self.escape()?)),
                Some(b'\n' | b'\r') => {
                    return Err(self.fault(start, "this string is not closed on its line"));
                }
                Some(_) => {
                    return self.fail("a control character inside a string; write it as an escape");
                }
                None => return Err(self.fault(start, "this string is not closed")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
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
                let unit = self.unit(start)?;
                let code = match unit {
                    0xd800..=0xdbff => {
                        let paired = self.text.as_bytes()[self.at..].starts_with(b"\\u");
                        self.at += 2;
                        let low = if paired { self.unit(start)? } else { 0 };
                        if !(0xdc00..=0xdfff).contains(&low) {
                            return Err(self.fault(start, HALF_SURROGATE));
                        }
                        0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00)
                    }
                    unit => unit,
                };
                char::from_u32(code).ok_or_else(|| self.fault(start, HALF_SURROGATE))?
            }
            _ => return Err(self.fault(start, "not an escape that JSON knows")),
        })
    }

    /// The UTF-16 unit of four hexadecimal digits, of the escape at `start`.
    fn unit(&mut self, start: usize) -> Result<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return Err(self.fault(start, "four hexadecimal digits must follow \\u"));
            };
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }

    /// Enters an object or array, after [`JsonReader::kind`] has returned its type.
    ///
    /// # Errors
    /// It is nested too deep.
    pub fn enter(&mut self) -> Result<()> {
        if self.depth == self.max_depth {
            return self.fail(self.too_deep);
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    /// The next key of the entered object, with its place; `None` at the end of the object. `first`
    /// is true if no key of it was read yet. [`JsonReader::colon`] follows.
    ///
    /// # Errors
    /// No key, or no comma before it.
    pub fn key(&mut self, first: bool) -> Result<Option<(usize, Cow<'t, str>)>> {
        const ENDS: &str = "the file ends inside an object";
        self.space();
        match self.peek() {
            Some(b'}') => {
                self.at += 1;
                self.depth -= 1;
                return Ok(None);
            }
            None => return self.fail(ENDS),
            Some(b',') if !first => {
                self.at += 1;
                self.space();
            }
            Some(_) if !first => return self.fail("a comma or } was expected"),
            Some(_) => {}
        }
        let at = self.at;
        match self.peek() {
            Some(b'"') => Ok(Some((at, self.string()?))),
            Some(b'}') => self.fail("a key was expected; is there a comma too many?"),
            None => self.fail(ENDS),
            Some(_) => self.fail("a key in double quotes was expected"),
        }
    }

    /// The colon after a key.
    ///
    /// # Errors
    /// No colon.
    pub fn colon(&mut self) -> Result<()> {
        self.space();
        if self.peek() != Some(b':') {
            return self.fail("a colon was expected after the key");
        }
        self.at += 1;
        Ok(())
    }

    /// True if the entered array has another element. `first` is true if none of it was read yet.
    ///
    /// # Errors
    /// No comma before the element.
    pub fn element(&mut self, first: bool) -> Result<bool> {
        self.space();
        match self.peek() {
            Some(b']') => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            _ if first => Ok(true),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            None => self.fail("the file ends inside an array"),
            Some(_) => self.fail("a comma or ] was expected"),
        }
    }
}

const NO_VALUE: &str = "a value was expected (strings stand in double quotes)";

/// Finds bytes that end the plain part of a string (a quotation mark, a backslash, a control
/// character) among eight bytes, read as a little-endian number. The lowest bit that is set is the
/// top bit of the first such byte. Higher bits may be set in error.
#[must_use]
#[inline]
pub fn string_stops(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (is(b'"') | is(b'\\') | below(word, b' ')) & (ONES << 7)
}

/// The number of bytes before the first quotation mark, backslash or control character. Eight bytes
/// are checked at a time.
fn plain_length(bytes: &[u8]) -> usize {
    let mut length = 0;
    while let Some(chunk) = bytes[length..].first_chunk::<8>() {
        let stops = string_stops(u64::from_le_bytes(*chunk));
        if stops != 0 {
            return length + (stops.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    let rest = &bytes[length..];
    length
        + rest
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))
            .unwrap_or(rest.len())
}

//! Escapes for text that is shown or logged.

use std::borrow::Cow;

use crate::hex::hex_into;
use crate::is_hidden;
use crate::ordinary::hidden_in;

/// A text on one line. Characters that hide something are written as `\u{…}`, line feed, carriage
/// return and tab as `\n`, `\r` and `\t`. Hidden characters that are ordinary at their place
/// ([`first_hidden`](crate::first_hidden)) stay.
///
/// The result is the same on a terminal and in a pipe, since the pipe may be `ssh` and end on a
/// terminal.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\r' | '\t'))
}

/// Like [`visible`], over several lines: line feeds and tabs stay.
#[must_use]
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\r')
}

/// Escapes characters that hide something; of line feed, carriage return and tab, those for which
/// `also` is true.
fn escaped(text: &str, also: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let mut hidden = hidden_in(text).map(|(at, _)| at).peekable();
    let mut out = String::new();
    let mut copied = 0;
    for (at, c) in text.char_indices() {
        let is_hidden_here = hidden.next_if_eq(&at).is_some();
        if is_hidden_here || also(c) {
            out.push_str(&text[copied..at]);
            match c {
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c => out.extend(c.escape_unicode()),
            }
            copied = at + c.len_utf8();
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The first `max` characters of a text as [`visible`], with `…` after them if there are more. For
/// names and values in messages.
#[must_use]
pub fn brief(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => visible(&text[..end]).into_owned() + "…",
        None => visible(text).into_owned(),
    }
}

/// A text as a label: at most `max` bytes, hidden characters escaped wherever they stand, words one
/// space apart. For names that a stranger chose, so that they forge no column of a table.
#[must_use]
pub fn label(text: &str, max: usize) -> String {
    // No word needs more: an escape is longer than its character.
    let beginning = text
        .char_indices()
        .take_while(|(at, c)| at + c.len_utf8() <= max);
    let beginning: String = beginning.map(|(_, c)| c).collect();
    let words: Vec<&str> = beginning.split_whitespace().collect();
    let mut label = String::with_capacity(max);
    for c in words.join(" ").chars() {
        let before = label.len();
        match is_hidden(c) {
            true => label.extend(c.escape_unicode()),
            false => label.push(c),
        }
        if label.len() > max {
            label.truncate(before);
            break;
        }
    }
    label.truncate(label.trim_end().len());
    label
}

/// The last `max` characters of a text as [`visible`], with `…` before them if there are more. For
/// texts with the reason at the end.
#[must_use]
pub fn brief_end(text: &str, max: usize) -> String {
    match text.char_indices().rev().nth(max) {
        Some((before, first)) => format!("…{}", visible(&text[before + first.len_utf8()..])),
        None => visible(text).into_owned(),
    }
}

/// Equivalent JSON in which every hidden character is `\u…`. Such a character can only be part of a
/// string. Line feed, carriage return and tab, which stand between tokens, stay.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    let is_to_be_escaped = |c: char| is_hidden(c) && !matches!(c, '\n' | '\r' | '\t');
    if !text.chars().any(is_to_be_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_to_be_escaped(c) {
            out.extend(json_escape(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Appends a JSON string, quoted and escaped (RFC 8259 §7), with every hidden character as `\u…`.
pub fn push_json_string(out: &mut Vec<u8>, value: &str) {
    out.push(b'"');
    let mut rest = value;
    // Nearly all text is plain ASCII. Only other characters are checked one by one.
    while let Some(at) = rest
        .bytes()
        .position(|b| matches!(b, 0..=0x1f | b'"' | b'\\' | 0x7f..))
    {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain.as_bytes());
        let mut chars = tail.chars();
        match chars.next() {
            Some('"') => out.extend_from_slice(b"\\\""),
            Some('\\') => out.extend_from_slice(b"\\\\"),
            Some(c) if is_hidden(c) => out.extend(json_escape(c).map(|c| c as u8)),
            Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            None => {}
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'"');
}

/// The one or two `\u…` for a character in a JSON string.
pub fn json_escape(c: char) -> impl Iterator<Item = char> {
    let mut units = [0; 2];
    let length = c.encode_utf16(&mut units).len();
    units.into_iter().take(length).flat_map(|unit| {
        let mut escape = *b"\\u0000";
        hex_into(&unit.to_be_bytes(), &mut escape[2..]);
        escape.map(char::from)
    })
}

/// The first `max` characters of a text, with `…` after them if there are more. All characters
/// except printable ASCII become `\u{…}`. For names that must be ASCII, so that a look-alike letter
/// is recognised.
#[must_use]
pub fn ascii(text: &str, max: usize) -> String {
    let mut shown = String::new();
    let mut chars = text.chars();
    for c in chars.by_ref().take(max) {
        match c {
            ' '..='~' => shown.push(c),
            _ => shown.extend(c.escape_unicode()),
        }
    }
    if !chars.as_str().is_empty() {
        shown.push('…');
    }
    shown
}

/// Unknown bytes for a quoted field of a log: printable ASCII stays, `\` and `"` get a backslash,
/// all others become `\xNN`. At most `max` bytes are read; a cut is shown as `...`.
#[must_use]
pub fn ascii_bytes(bytes: &[u8], max: usize) -> String {
    let mut out = String::with_capacity(bytes.len().min(max) + 8);
    for &byte in bytes.iter().take(max) {
        match byte {
            b'\\' | b'"' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                let mut digits = [0; 2];
                hex_into(&[byte], &mut digits);
                out.push_str("\\x");
                out.extend(digits.map(char::from));
            }
        }
    }
    if bytes.len() > max {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::first_hidden;
    use proptest::prelude::*;

    /// All escapes use the one table: they agree on all of Unicode.
    #[test]
    fn what_is_in_the_table_is_escaped_and_nothing_else() {
        for c in '\0'..=char::MAX {
            let text = format!("read{c}file");
            let mut quoted = Vec::new();
            push_json_string(&mut quoted, &text);
            let quoted = String::from_utf8(quoted).unwrap();
            let is_break = matches!(c, '\n' | '\r' | '\t');
            let hidden = is_hidden(c);
            assert_eq!(visible(&text) != text, hidden, "{c:?}");
            assert_eq!(
                visible_lines(&text) != text,
                hidden && c != '\n' && c != '\t',
                "{c:?}"
            );
            assert_eq!(json(&text) != text, hidden && !is_break, "{c:?}");
            assert_eq!(quoted.contains(c), !hidden, "{c:?}");
            assert_eq!(first_hidden(&text).is_some(), hidden && !is_break, "{c:?}");
            assert!(
                !visible(&text).contains(is_hidden) && !quoted.contains(is_hidden),
                "{c:?}"
            );
            if hidden && !is_break {
                assert_eq!(visible(&text), format!("read\\u{{{:x}}}file", u32::from(c)));
            }
        }
    }

    #[test]
    fn each_place_has_its_form() {
        let text = "a\x1b[31mb\n\u{9b}\u{202e}\u{e0041}\t\"é\\";
        assert_eq!(
            visible(text),
            "a\\u{1b}[31mb\\n\\u{9b}\\u{202e}\\u{e0041}\\t\"é\\"
        );
        assert_eq!(visible_lines("a\n\tb\r"), "a\n\tb\\r");
        assert_eq!(
            json("[\"\u{e0041}\",\n\"é\u{9b}\"]"),
            "[\"\\udb40\\udc41\",\n\"é\\u009b\"]"
        );
        let mut quoted = Vec::new();
        push_json_string(&mut quoted, text);
        assert_eq!(
            String::from_utf8_lossy(&quoted),
            r#""a\u001b[31mb\u000a\u009b\u202e\udb40\udc41\u0009\"é\\""#
        );
        assert_eq!(ascii("jаil\u{a}xyz", 5), "j\\u{430}il\\u{a}…");
        assert_eq!(ascii_bytes(b"a\"\\\n\xff-", 5), "a\\\"\\\\\\x0a\\xff...");
        assert_eq!(
            (brief("abc", 3).as_str(), brief("a\nbc", 2).as_str()),
            ("abc", "a\\n…")
        );
        assert!(matches!(visible("größer 日本 👩‍🚀"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_label_moves_no_cursor_and_forges_no_column() {
        for (text, max, expected) in [
            ("claude-code", 128, "claude-code"),
            ("Visual Studio Code", 13, "Visual Studio"),
            ("Visual Studio Code", 14, "Visual Studio"),
            (
                "a\u{1b}[2J\u{202e}\r\n   7  exit\u{2003}b\u{0}",
                128,
                "a\\u{1b}[2J\\u{202e} 7 exit b\\u{0}",
            ),
            ("aé", 2, "a"),
            ("a\u{202e}", 8, "a"),
            (" \t ", 8, ""),
        ] {
            assert_eq!(label(text, max), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_label_is_bounded(text in any::<String>(), max in 0_usize..200) {
            let label = label(&text, max);
            prop_assert!(label.len() <= max && !label.contains("  ") && label.trim() == label);
            prop_assert!(!label.contains(is_hidden));
        }

        #[test]
        fn what_is_shown_hides_nothing(text in any::<String>(), plain in "[ -~äöü漢]{0,40}") {
            prop_assert_eq!(first_hidden(&visible(&text)), None);
            prop_assert_eq!(first_hidden(&visible_lines(&text)), None);
            prop_assert!(!json(&text).contains(|c| is_hidden(c) && !matches!(c, '\n' | '\r' | '\t')));
            prop_assert_eq!(visible(&plain), plain.as_str());
        }

        #[test]
        fn bytes_are_told_apart_below_the_cut(a in any::<Vec<u8>>(), b in any::<Vec<u8>>()) {
            prop_assert_eq!(ascii_bytes(&a, 200) == ascii_bytes(&b, 200), a == b);
            prop_assert!(ascii_bytes(&a, 200).bytes().all(|byte| matches!(byte, b' '..=b'~')));
        }
    }
}

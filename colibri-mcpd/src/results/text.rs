//! The text of a result, as a model would read it, and its lines.

use std::borrow::Cow;
use std::ops::Range;

use colibri_wire::Json;

use super::blocks::{blocks, is_media};

/// The most bytes of a line; a longer one counts as several.
pub(super) const MAX_LINE: usize = 1000;
/// The most bytes of a line as it is [`written`], likewise: the smallest answer that there may be
/// has room for it.
const MAX_WRITTEN: u64 = 3_500;

/// The texts of a result, one after the other, each on lines of its own: of the content of a tool
/// call, of a resource, of the messages of a prompt, the values of a completion. The JSON itself
/// where it has none of these and no image or the like, or is none.
pub(super) fn text_of(json: &str) -> Cow<'_, str> {
    let (mut texts, mut has_media) = (String::new(), false);
    if let Ok(result) = Json::parse(json.as_bytes()) {
        for block in blocks(&result) {
            push_block(&mut texts, &block);
            has_media |= is_media(&block);
        }
        let values = result
            .get("completion")
            .and_then(|completion| completion.get("values"));
        for value in values.iter().flat_map(Json::elements) {
            push(&mut texts, &value);
        }
    }
    match texts.is_empty() && !has_media {
        true => Cow::Borrowed(json),
        false => Cow::Owned(texts),
    }
}

fn push_block(texts: &mut String, block: &Json<'_>) {
    let text = block
        .get("text")
        .or_else(|| block.get("resource")?.get("text"));
    if let Some(text) = text {
        push(texts, &text);
    }
}

fn push(texts: &mut String, value: &Json<'_>) {
    // No text can hold a lone surrogate: such a string stays as it is written.
    let text = value.as_str().unwrap_or(Cow::Borrowed(value.text()));
    if !texts.is_empty() && !texts.ends_with('\n') {
        texts.push('\n');
    }
    texts.push_str(&text);
}

/// A line, or a part of a long one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextLine {
    /// The place in the text, without its line end.
    pub(super) span: Range<usize>,
    /// The end of the whole line of which it may be a part.
    pub(super) whole_ends: usize,
}

/// The lines of a text, none of more than [`MAX_LINE`] bytes.
pub(super) fn lines(text: &str) -> impl Iterator<Item = TextLine> {
    let mut at = 0;
    let mut whole_ends = None;
    std::iter::from_fn(move || {
        if at >= text.len() {
            return None;
        }
        let ends = *whole_ends.get_or_insert_with(|| {
            let rest = &text.as_bytes()[at..];
            memchr::memchr(b'\n', rest).map_or(text.len(), |end| at + end)
        });
        let end = floor(text, ends.min(at + MAX_LINE));
        // Most lines are short whatever is escaped in them.
        let end = match (end - at) as u64 * MOST_WRITTEN > MAX_WRITTEN {
            true => at + fitting(&text[at..end], MAX_WRITTEN),
            false => end,
        };
        let line = TextLine {
            span: at..end,
            whole_ends: ends,
        };
        at = end;
        if end == ends {
            whole_ends = None;
            at += 1;
        }
        Some(line)
    })
}

/// The bytes that a text costs in an answer, in which it is escaped as JSON has it.
pub(super) fn written(text: &str) -> u64 {
    text.bytes().map(byte_written).sum()
}

/// The most that a byte costs.
const MOST_WRITTEN: u64 = 6;

fn byte_written(byte: u8) -> u64 {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => MOST_WRITTEN,
        _ => 1,
    }
}

/// The end of the longest beginning of a text that costs no more than this, or of its first
/// character.
pub(super) fn fitting(text: &str, room: u64) -> usize {
    let mut cost = 0;
    let beyond = text.bytes().position(|byte| {
        cost += byte_written(byte);
        cost > room
    });
    let first = text.chars().next().map_or(0, char::len_utf8);
    beyond.map_or(text.len(), |end| floor(text, end).max(first))
}

/// The last place at or before this one where a character begins or the text ends.
pub(super) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_each_kind_has_its_text() {
        for (json, text) in [
            (
                r#"{"content":[{"type":"text","text":"a\nb"},{"type":"image","data":"AA"},{"text":"c"}]}"#,
                "a\nb\nc",
            ),
            (
                r#"{"content":[{"type":"resource","resource":{"uri":"u","text":"in it"}}],"isError":true}"#,
                "in it",
            ),
            (
                r#"{"contents":[{"uri":"a","text":"one\n"},{"uri":"b","blob":"AA"},{"uri":"c","text":"two"}]}"#,
                "one\ntwo",
            ),
            (
                r#"{"messages":[{"role":"user","content":{"type":"text","text":"hi"}},
                 {"role":"user","content":[{"type":"text","text":"you"}]}]}"#,
                "hi\nyou",
            ),
            (r#"{"completion":{"values":["x","y"]}}"#, "x\ny"),
            (r#"{"content":[{"text":"\ud800"}]}"#, r#""\ud800""#),
        ] {
            assert_eq!(text_of(json), text, "{json}");
        }
        for none in [
            r#"{"structuredContent":{"text":"x"}}"#,
            "[1]",
            "{",
            "",
            "\"s\"",
            r#"{"content":[{"data":"AA"}]}"#,
        ] {
            assert_eq!(text_of(none), none);
        }
    }

    #[test]
    fn lines_are_of_a_bounded_length_and_leave_nothing_out() {
        let spans = |text: &str| {
            lines(text)
                .map(|line| (line.span.start, line.span.end))
                .collect::<Vec<_>>()
        };
        assert!(spans("").is_empty());
        assert_eq!(spans("a\n\nb"), [(0, 1), (2, 2), (3, 4)]);
        assert_eq!(spans("a\n"), [(0, 1)], "no line after the last line end");
        let long = format!("x{}\ny", "é".repeat(1200));
        assert_eq!(
            spans(&long),
            [(0, 999), (999, 1999), (1999, 2401), (2402, 2403)]
        );
        assert!(lines(&long).take(3).all(|line| line.whole_ends == 2401));
        assert_eq!(spans(&"z".repeat(MAX_LINE)), [(0, MAX_LINE)]);
        assert_eq!(
            spans(&format!("{}\n", "z".repeat(MAX_LINE))),
            [(0, MAX_LINE)]
        );
        // What is longer as it is written ends earlier.
        assert_eq!(spans(&"\u{1}".repeat(700)), [(0, 583), (583, 700)]);
    }

    proptest::proptest! {
        #[test]
        fn what_a_text_costs_is_what_serde_writes(text in "(\\PC|[\"\\\\/\\s]|[\u{0}-\u{1f}\u{7f}]){0,100}") {
            let once = serde_json::to_string(&text).unwrap();
            proptest::prop_assert_eq!(written(&text), (once.len() - 2) as u64);
            let fits = fitting(&text, 50);
            proptest::prop_assert!(written(&text[..fits]) <= 50 || text[..fits].chars().count() == 1);
        }
    }
}

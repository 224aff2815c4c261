//! Lines of text in their columns, cut or broken to the room there is.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use crate::terminal::mark;
use colibri_text::visible;

/// The most characters of one text that are looked at.
const MAX_LENGTH: usize = 500;
/// The style of headings.
pub(crate) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// The abilities of the terminal: nothing is told by colour alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    /// True if there is colour.
    pub colour: bool,
    /// The mark for text that was cut off.
    pub mark: &'static str,
}

impl Palette {
    pub(crate) fn new(colour: bool) -> Palette {
        Palette {
            colour,
            mark: mark(),
        }
    }

    /// A style with this colour, where there is any.
    pub(crate) fn style(self, colour: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.colour { style.fg(colour) } else { style }
    }

    /// Something is broken.
    pub(crate) fn bad(self) -> Style {
        self.style(Color::Red, Modifier::BOLD)
    }

    /// Worth a look.
    pub(crate) fn odd(self) -> Style {
        self.style(Color::Yellow, Modifier::empty())
    }

    /// All is well.
    pub(crate) fn good(self) -> Style {
        self.style(Color::Green, Modifier::empty())
    }
}

/// A line to draw: pieces of text, each with its column and style.
pub(crate) struct StyledLine {
    pieces: Vec<(usize, Cow<'static, str>, Style)>,
}

impl StyledLine {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>, style: Style) -> StyledLine {
        StyledLine {
            pieces: vec![(0, text.into(), style)],
        }
    }

    pub(crate) fn and(
        mut self,
        column: usize,
        text: impl Into<Cow<'static, str>>,
        style: Style,
    ) -> StyledLine {
        self.pieces.push((column, text.into(), style));
        self
    }

    pub(crate) fn draw(&self, area: Rect, y: u16, buffer: &mut Buffer) {
        let mark = mark();
        if area.y + y >= area.bottom() {
            return;
        }
        let width = usize::from(area.width);
        for (index, (column, text, style)) in self.pieces.iter().enumerate() {
            // A piece ends a column before the next one begins.
            let next = self
                .pieces
                .get(index + 1)
                .map_or(width, |(next, ..)| next.saturating_sub(1));
            let room = next.min(width).saturating_sub(*column);
            if let Ok(x) = u16::try_from(*column)
                && room > 0
            {
                buffer.set_stringn(
                    area.x + x,
                    area.y + y,
                    fitted(text, room, mark),
                    room,
                    *style,
                );
            }
        }
    }
}

/// Text of others: one line, escaped, not endless. A terminal that does not read UTF-8 could take a
/// byte of a character for a control of its own: there everything beyond ASCII is escaped, too.
pub(crate) fn text(text: &str) -> String {
    let cut: String = text.chars().take(MAX_LENGTH).collect();
    shown(&cut, mark().is_ascii())
}

fn shown(text: &str, only_ascii: bool) -> String {
    let escape = |c: char| match c.is_ascii() {
        true => c.to_string(),
        false => c.escape_unicode().to_string(),
    };
    match only_ascii {
        true => visible(text).chars().map(escape).collect(),
        false => visible(text).into_owned(),
    }
}

/// Text that takes at most so many columns; where it is cut its end is a mark.
fn fitted<'a>(text: &'a str, room: usize, mark: &str) -> Cow<'a, str> {
    if Span::raw(text).width() <= room {
        return Cow::Borrowed(text);
    }
    let mut end = 0;
    for (at, c) in text.char_indices() {
        let next = at + c.len_utf8();
        if Span::raw(&text[..next]).width() >= room {
            break;
        }
        end = next;
    }
    Cow::Owned(format!("{}{mark}", &text[..end]))
}

/// Text in lines of at most so many columns, broken at spaces where that is possible.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let room = room.max(1);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word;
        while let Some(line) = lines.last_mut() {
            let glue = if line.is_empty() { "" } else { " " };
            if Span::raw(line.as_str()).width() + glue.len() + Span::raw(word).width() <= room {
                line.push_str(glue);
                line.push_str(word);
                break;
            }
            if line.is_empty() {
                // Longer than a line: as much of it as there is room for, and at least one
                // character.
                let mut end = word.chars().next().map_or(0, char::len_utf8);
                for (at, c) in word.char_indices() {
                    if Span::raw(&word[..at + c.len_utf8()]).width() > room {
                        break;
                    }
                    end = end.max(at + c.len_utf8());
                }
                line.push_str(&word[..end]);
                word = &word[end..];
            }
            lines.push(String::new());
        }
    }
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Text in lines that are indented, at most so many.
pub(crate) fn indented(
    text: &str,
    indent: usize,
    style: Style,
    width: u16,
    most: usize,
) -> impl Iterator<Item = StyledLine> {
    let lines = wrapped(text, usize::from(width).saturating_sub(indent));
    lines
        .into_iter()
        .take(most)
        .map(move |line| StyledLine::new(format!("{:indent$}{line}", ""), style))
}

/// A buffer as lines of text.
pub(crate) fn as_text(buffer: &Buffer, area: Rect) -> String {
    let lines: Vec<String> = (0..area.height).map(|y| row(buffer, area, y)).collect();
    lines.join("\n").trim_end().to_owned()
}

/// One row of a buffer as text.
fn row(buffer: &Buffer, area: Rect, y: u16) -> String {
    let mut row = String::new();
    let mut x = area.x;
    while x < area.right() {
        let symbol = buffer[(x, y)].symbol();
        row.push_str(symbol);
        // What is wide covers the cells behind it.
        x += Span::raw(symbol).width().max(1) as u16;
    }
    row.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_ends_with_a_mark() {
        assert_eq!(fitted("日本語日本語", 5, "…"), "日本…");
        assert_eq!(fitted("abcdef", 5, "~"), "abcd~");
    }

    #[test]
    fn in_an_ascii_locale_no_byte_is_above_ascii() {
        assert_eq!(shown("a\u{db}\u{9b}31m", true), "a\\u{db}\\u{9b}31m");
        assert_eq!(shown("日\u{1b}", false), "日\\u{1b}");
    }

    #[test]
    fn long_texts_are_broken_where_they_can_be() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(
            wrapped("a longest-word b", 5),
            ["a", "longe", "st-wo", "rd b"]
        );
        assert_eq!(wrapped("日本語", 5), ["日本", "語"]);
        assert_eq!(wrapped("日本", 1), ["日", "本"]);
        assert!(wrapped("", 5).is_empty());
        for room in 0..10 {
            assert_eq!(
                wrapped("some words here", room).concat().replace(' ', ""),
                "somewordshere"
            );
        }
    }
}

//! A table of which a part is seen, and which of its rows a person chose.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::styled_line::{Palette, StyledLine};

/// The chosen one of the rows that were drawn last, by their ids.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowSelection {
    id: Option<String>,
    order: Vec<String>,
}

impl RowSelection {
    /// These are the rows now, in their order.
    pub(crate) fn rows(&mut self, order: impl IntoIterator<Item = String>) {
        self.order = order.into_iter().collect();
    }

    /// Chooses a row further down (or up, if negative).
    pub(crate) fn step(&mut self, step: isize) {
        let last = self.order.len().saturating_sub(1);
        let at = self.order.iter().position(|id| self.is(id));
        let at = match at {
            Some(at) => at.saturating_add_signed(step).min(last),
            None if step > 0 => 0,
            None => last,
        };
        self.id = self.order.get(at).cloned();
    }

    /// Chooses the next row for which this holds, in a circle; the one before, if not `forward`.
    pub(crate) fn next(&mut self, forward: bool, holds: impl Fn(&str) -> bool) {
        let count = self.order.len();
        let at = self.order.iter().position(|id| self.is(id));
        let places = (1..=count).map(|step| match (at, forward) {
            (Some(at), true) => (at + step) % count,
            (Some(at), false) => (at + count - step) % count,
            (None, true) => step - 1,
            (None, false) => count - step,
        });
        let found = places
            .filter_map(|at| self.order.get(at))
            .find(|id| holds(id))
            .cloned();
        if found.is_some() {
            self.id = found;
        }
    }

    /// True if it is this one.
    pub(crate) fn is(&self, id: &str) -> bool {
        self.id.as_deref() == Some(id)
    }

    /// Its id.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// A table.
pub(crate) struct Rows {
    /// The names of the columns.
    pub head: StyledLine,
    /// The lines below; a row may have several.
    pub lines: Vec<StyledLine>,
    /// The last line of the chosen row.
    pub selected: Option<usize>,
    /// Rows to look at, each with its first line.
    pub unwell: Vec<(usize, String)>,
    /// The text for those.
    pub unwell_are: &'static str,
}

impl Rows {
    /// A table without rows.
    pub(crate) fn new(head: StyledLine, unwell_are: &'static str) -> Rows {
        Rows {
            head,
            lines: Vec::new(),
            selected: None,
            unwell: Vec::new(),
            unwell_are,
        }
    }

    /// Draws it in so many lines from the line `y` of the area on; which line is the next.
    pub(crate) fn draw(
        &self,
        area: Rect,
        mut y: u16,
        room: u16,
        palette: Palette,
        buffer: &mut Buffer,
    ) -> u16 {
        let end = y.saturating_add(room).min(area.height);
        self.head.draw(area, y, buffer);
        let (first, shown, more) = self.part(usize::from(room.saturating_sub(1)), palette);
        for line in self.lines.iter().skip(first).take(shown).chain(&more) {
            y += 1;
            if y < end {
                line.draw(area, y, buffer);
            }
        }
        y + 1
    }

    /// The lines shown in so much room, and the note on the others: the number of the first line,
    /// the number of all, and the mark.
    fn part(&self, room: usize, palette: Palette) -> (usize, usize, Option<StyledLine>) {
        if self.lines.len() <= room {
            return (0, room, None);
        }
        let shown = room.saturating_sub(1);
        let first = self.selected.map_or(0, |at| (at + 1).saturating_sub(shown));
        let mut more = format!(
            "  {} {} more lines: up/down",
            palette.mark,
            self.lines.len() - shown
        );
        let hidden = |at: &usize| !(first..first + shown).contains(at);
        let ids: Vec<&str> = (self.unwell.iter())
            .filter(|(at, _)| hidden(at))
            .map(|(_, id)| id.as_str())
            .collect();
        if !ids.is_empty() {
            more.push_str(&format!("; {}: {}", self.unwell_are, ids.join(", ")));
        }
        (first, shown, Some(StyledLine::new(more, palette.bad())))
    }
}

/// Adds texts that end where their columns end; `widths` are those of the columns, the first of
/// which begins at `at`.
pub(crate) fn to_the_right(
    mut line: StyledLine,
    mut at: usize,
    widths: impl IntoIterator<Item = usize>,
    texts: impl IntoIterator<Item = String>,
    style: Style,
) -> StyledLine {
    for (width, text) in widths.into_iter().zip(texts) {
        let pad = width.saturating_sub(text.chars().count());
        line = line.and(at + pad, text, style);
        at += width;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_that_holds_is_found_in_a_circle() {
        let mut chosen = RowSelection::default();
        chosen.next(true, |_| true);
        assert_eq!(chosen.id(), None, "there is none");
        chosen.rows(["a", "b", "c", "d"].map(str::to_owned));
        let holds = |id: &str| id == "b" || id == "d";
        let mut seen = Vec::new();
        for forward in [true, true, true, false, false] {
            chosen.next(forward, holds);
            seen.push(chosen.id().unwrap_or_default().to_owned());
        }
        assert_eq!(seen, ["b", "d", "b", "d", "b"]);
        chosen.next(true, |_| false);
        assert_eq!(chosen.id(), Some("b"), "nothing else to choose");
        let mut chosen = RowSelection { id: None, ..chosen };
        chosen.next(false, |_| true);
        assert_eq!(chosen.id(), Some("d"));
    }
}

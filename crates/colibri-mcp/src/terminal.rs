//! Output to a person's terminal: tables, and text from servers made harmless.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, UNIX_EPOCH};

use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement};
use nix::unistd::{Group, User};
use serde_json::Value;

use crate::failure::CommandError;
use colibri_text::visible;

/// Columns of a table when nothing says how wide the terminal is.
const WIDTH: u16 = 80;

/// Writes to stdout, with a newline. A reader that has gone is a [`CommandError`], not a panic.
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// The meaning of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Nothing particular.
    Plain,
    /// All is well.
    Good,
    /// Worth a look.
    Odd,
    /// Broken.
    Bad,
}

/// A table without lines, as wide as the terminal at most.
#[derive(Debug)]
pub(crate) struct TextTable {
    table: comfy_table::Table,
}

impl TextTable {
    /// A table with these headings.
    pub(crate) fn new(headings: &[&str]) -> TextTable {
        let mut table = comfy_table::Table::new();
        table
            .load_style(comfy_table::presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(
                headings
                    .iter()
                    .map(|heading| Cell::new(heading.to_uppercase()))
                    .collect::<Vec<_>>(),
            );
        if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
            table.force_no_tty();
        }
        // A terminal that does not say how wide it is has a width of 0 (ioctl_tty(2), ssh -tt
        // without a terminal).
        if !io::stdout().is_terminal() || table.width().is_none_or(|width| width == 0) {
            table.set_width(columns().unwrap_or(WIDTH).max(40));
        }
        TextTable { table }
    }

    /// Adds a row. Unsafe characters are escaped here, so no caller can forget it.
    pub(crate) fn row(&mut self, cells: &[(&str, Style)]) {
        let cells: Vec<Cell> = cells
            .iter()
            .map(|(text, style)| {
                let cell = Cell::new(visible(text));
                match style {
                    Style::Plain => cell,
                    Style::Good => cell.fg(Color::Green),
                    Style::Odd => cell.fg(Color::Yellow),
                    Style::Bad => cell.fg(Color::Red),
                }
            })
            .collect();
        self.table.add_row(cells);
    }

    /// Has the first column, of what is copied into a command, stand on one line in each row,
    /// however narrow the others become.
    pub(crate) fn keep_first_whole(&mut self) {
        if let Some(first) = self.table.column_mut(0) {
            first.set_constraint(ColumnConstraint::ContentWidth);
        }
    }

    /// The text as a terminal of so many columns shows it.
    #[cfg(test)]
    pub(crate) fn text_in(&mut self, columns: u16) -> String {
        self.table.force_no_tty().set_width(columns);
        self.text()
    }

    /// The table's text, without spaces at line ends.
    pub(crate) fn text(&mut self) -> String {
        if let Some(first) = self.table.column_mut(0) {
            first.set_padding((0, 1));
        }
        self.table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// The columns of whatever reads what is written here, if somebody says how many there are.
pub(crate) fn columns() -> Option<u16> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}

/// A user's name on this machine, or the number where there is none: what is shown may come from
/// another machine, and a look-up that fails is no reason to show nothing.
pub(crate) fn user(uid: u32) -> String {
    match User::from_uid(uid.into()) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => uid.to_string(),
    }
}

/// The same of a group.
pub(crate) fn group(gid: u32) -> String {
    match Group::from_gid(gid.into()) {
        Ok(Some(group)) => group.name,
        Ok(None) | Err(_) => format!("gid {gid}"),
    }
}

/// More of an event of the trail: ` key=value` for each.
pub(crate) fn details(details: &BTreeMap<String, Value>) -> String {
    let one = |(key, value): (&String, &Value)| match value {
        Value::String(text) => format!(" {key}={text}"),
        other => format!(" {key}={other}"),
    };
    details.iter().map(one).collect()
}

/// The mark for text that was cut off. Not every terminal has the usual character.
pub(crate) fn mark() -> &'static str {
    mark_in(|name| std::env::var(name).ok())
}

/// The sign between an event's text and the tools that it calls, in characters of the locale.
pub(crate) fn arrow() -> &'static str {
    if mark().is_ascii() { "->" } else { "→" }
}

fn mark_in(variable: impl Fn(&str) -> Option<String>) -> &'static str {
    // The order of setlocale(3).
    let named = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(variable);
    let locale = named
        .into_iter()
        .find(|value| !value.is_empty())
        .unwrap_or_default()
        .to_ascii_uppercase();
    if locale.contains("UTF-8") || locale.contains("UTF8") {
        "…"
    } else {
        "~"
    }
}

/// Seconds as people say them.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The time of day in UTC, to the millisecond, as the trail has it.
pub(crate) fn clock(ms: u64) -> String {
    let day = ms % 86_400_000;
    let (hours, minutes) = (day / 3_600_000, day / 60_000 % 60);
    format!(
        "{hours:02}:{minutes:02}:{:02}.{:03}Z",
        day / 1000 % 60,
        day % 1000
    )
}

/// For how long it is so since that many milliseconds since the epoch, by this machine's clock.
pub(crate) fn since(ms: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_millis(ms);
    duration(then.elapsed().map_or(0, |elapsed| elapsed.as_secs()))
}

/// Bytes as people say them.
pub(crate) fn bytes(bytes: u64) -> String {
    let digits = bytes.to_string();
    let groups: Vec<_> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(String::from_utf8_lossy)
        .collect();
    format!("{} bytes", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_never_wider_than_its_terminal() {
        let mut table = TextTable::new(&["name", "what it does"]);
        table.row(&[
            ("github__create_issue", Style::Plain),
            (&"words and more words ".repeat(20), Style::Good),
        ]);
        table.row(&[("x\x1b]0;title\x07", Style::Bad), ("", Style::Odd)]);
        let text = table.text_in(80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(!text.contains('\x1b'));
        assert!(
            text.starts_with(" NAME") || text.starts_with("NAME"),
            "{text}"
        );
    }

    #[test]
    fn an_id_that_is_copied_into_a_command_stands_on_one_line() {
        let mut table = TextTable::new(&[
            "instance", "agent", "state", "for", "task", "events", "calls", "tokens",
        ]);
        table.keep_first_whole();
        let (state, user) = (
            "done, ended 12 s ago after 140 min",
            "somebody-with-a-long-name",
        );
        table.row(
            &[
                "0123456789abcdef",
                "coder",
                state,
                user,
                "12345",
                "1000",
                "1000",
                "100000",
            ]
            .map(|cell| (cell, Style::Plain)),
        );
        let text = table.text_in(80);
        assert!(text.contains("0123456789abcdef"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn what_is_cut_is_marked_in_characters_of_the_locale() {
        let set = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                pairs
                    .iter()
                    .find(|(set, _)| *set == name)
                    .map(|(_, value)| (*value).to_owned())
            }
        };
        assert_eq!(mark_in(set(&[("LANG", "en_US.UTF-8")])), "…");
        assert_eq!(
            mark_in(set(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")])),
            "~"
        );
        assert_eq!(mark_in(set(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")])), "…");
        assert_eq!(mark_in(set(&[])), "~");
    }

    #[test]
    fn numbers_are_said_as_people_do() {
        assert_eq!(
            (duration(59).as_str(), duration(7300).as_str()),
            ("59 s", "2 h")
        );
        assert_eq!(
            (bytes(500_000).as_str(), bytes(16).as_str()),
            ("500,000 bytes", "16 bytes")
        );
    }
}

//! A table of the page for a browser without JavaScript.

/// A table: its title, its headings, and the text of its cells.
#[derive(Debug)]
pub(super) struct PageTable {
    pub title: &'static str,
    pub headings: &'static [&'static str],
    pub rows: Vec<Vec<String>>,
}

impl PageTable {
    /// The table of these rows.
    pub(super) fn of(
        title: &'static str,
        headings: &'static [&'static str],
        rows: impl Iterator<Item = Vec<String>>,
    ) -> PageTable {
        PageTable {
            title,
            headings,
            rows: rows.collect(),
        }
    }
}

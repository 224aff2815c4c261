//! The page's tables for a browser without JavaScript. With it the script draws the same.

use std::fmt::{Display, Write as _};

use super::data::PageData;
use super::table::PageTable;

/// The most rows of a table.
const MAX_ROWS: usize = 200;

/// A cell's text, which is no markup.
struct EscapedText<T>(T);

impl<T: Display> Display for EscapedText<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.to_string().chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// All tables.
pub(crate) fn tables(data: &PageData) -> String {
    let mut out = String::new();
    if let Some(live) = data
        .head
        .live
        .as_ref()
        .map(|_| "It does not change by itself: load it again for news. ")
    {
        let _ = write!(out, "<p>{live}</p>");
    }
    for trouble in [&data.record.trail_trouble, &data.present.now_trouble]
        .into_iter()
        .flatten()
    {
        let _ = write!(out, "<p class=\"note\">{}</p>", EscapedText(trouble));
    }
    let now = data.present.now.iter().flat_map(|now| now.tables());
    for one in now.chain(data.record.day.iter().flat_map(|day| day.tables())) {
        table(&mut out, &one);
    }
    if let Some(verdict) = &data.head.verdict {
        let sound = if verdict.sound {
            "The trail verifies"
        } else {
            "The trail does not verify"
        };
        let rows = verdict.faults.iter().chain(&verdict.notes);
        let _ = write!(
            out,
            "<h2>The trail</h2><p>{sound}: {} records.</p>",
            verdict.records
        );
        let rows = rows.map(|row| vec![row.clone()]);
        table(
            &mut out,
            &PageTable::of("Faults and notes", &["What"], rows),
        );
    }
    out
}

fn table(
    out: &mut String,
    PageTable {
        title,
        headings,
        rows,
    }: &PageTable,
) {
    let _ = write!(out, "<h3>{}</h3>", EscapedText(title));
    if rows.is_empty() {
        out.push_str("<p class=\"none\">None.</p>");
        return;
    }
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for heading in *headings {
        let _ = write!(out, "<th scope=\"col\">{}</th>", EscapedText(heading));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows.iter().take(MAX_ROWS) {
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<td><bdi>{}</bdi></td>", EscapedText(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    if rows.len() > MAX_ROWS {
        let _ = write!(out, "<p>{} more.</p>", rows.len() - MAX_ROWS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_markup_and_tables_are_bounded() {
        let mut out = String::new();
        let rows = std::iter::repeat_n(vec!["<script>&\"".to_owned()], 300);
        table(&mut out, &PageTable::of("<b>", &["A"], rows));
        assert!(!out.contains("<script") && !out.contains("<b>"), "{out}");
        assert!(out.contains("&lt;script&gt;&amp;&quot;") && out.contains("100 more."));
    }
}

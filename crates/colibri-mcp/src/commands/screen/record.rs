//! A record of the trail in one line.

use colibri_api::TrailRow;

use super::styled_line::text;
use crate::terminal::details;

/// The text of a record; `user` names its caller.
pub(crate) fn said(record: &TrailRow, user: &str) -> String {
    let clock = record.timestamp.get(11..19).unwrap_or_default();
    let join = |parts: &[&Option<String>]| {
        let parts: Vec<&str> = parts.iter().filter_map(|part| part.as_deref()).collect();
        parts.join(" ")
    };
    let what = match record.kind.as_str() {
        "enter" => join(&[
            &record.server,
            if record.tool.is_some() {
                &record.tool
            } else {
                &record.method
            },
        ]),
        "exit" | "retry" => format!(
            "{}  {:.1} ms",
            join(&[&record.server, &record.tool, &record.result, &record.error_code]),
            record.latency_ms
        ),
        "event" => join(&[&record.event]) + &details(&record.details),
        _ => String::new(),
    };
    text(format!("  {clock} {:>7} {:<6} {user:<9} {what}", record.n, record.kind).trim_end())
}

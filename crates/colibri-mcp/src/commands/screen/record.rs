//! A record of the trail in one line.

use colibri_api::TrailRow;

use super::styled_line::text;
use crate::terminal::{details, mark};

/// The most characters of a client's name.
const CLIENT: usize = 7;

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
            join(&[
                &record.server,
                &record.tool,
                &record.result,
                &record.error_code
            ]),
            record.latency_ms
        ),
        "event" => join(&[&record.event]) + &details(&record.details),
        _ => String::new(),
    };
    let client = match (&record.client, record.kind.as_str()) {
        (Some(client), _) => fitted(client),
        (None, "enter" | "exit" | "retry") => "-".to_owned(),
        (None, _) => String::new(),
    };
    text(
        format!(
            "  {clock} {:>7} {:<6} {user:<9} {client:<CLIENT$} {what}",
            record.n, record.kind
        )
        .trim_end(),
    )
}

/// A client's name in its column.
fn fitted(name: &str) -> String {
    match name.chars().nth(CLIENT) {
        Some(_) => name.chars().take(CLIENT - 1).collect::<String>() + mark(),
        None => name.to_owned(),
    }
}

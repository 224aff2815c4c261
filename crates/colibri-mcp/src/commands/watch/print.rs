//! What every topic prints: events, what was left out, the end.

use colibri_api::{StreamEnded, WatchLagged};
use serde_json::value::RawValue;

use crate::connection::read;
use crate::failure::CommandError;
use crate::terminal;
use colibri_text::visible;

/// Prints what the daemon told, as it came, or as the text for a person.
pub(super) fn print(params: &RawValue, text: &str, json: bool) -> Result<(), CommandError> {
    match json {
        true => terminal::print(&colibri_text::json(params.get())),
        false => terminal::print(text),
    }
}

/// The line for a person about notifications that were left out, and their number.
pub(super) fn lagged(params: &RawValue, what: &str) -> Result<(String, u64), CommandError> {
    let WatchLagged { dropped, .. } = read("colibri/dropped", params)?;
    let count = dropped.map_or_else(String::new, |count| format!("{count} "));
    let text = format!("-- {count}{what} came faster than they could be shown");
    Ok((text, dropped.unwrap_or_default()))
}

/// Says why the daemon ended the watch, if it did.
pub(super) fn explain_end(ended: Option<&RawValue>) -> Result<(), CommandError> {
    if let Some(result) = ended {
        let why = read::<StreamEnded>("colibri/watch", result)?.ended;
        eprintln!("colibri-mcp: {}", visible(&why));
    }
    Ok(())
}

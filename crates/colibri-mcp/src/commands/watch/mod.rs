//! `colibri-mcp watch`: what happens, shown as it does.

mod messages;
mod notices;
mod tasks;

use clap::Subcommand;
use colibri_api::{StreamEnded, WatchLagged};
use serde_json::value::RawValue;

use super::context::CommandContext;
use crate::connection::read;
use crate::failure::CommandError;
use crate::terminal;
use colibri_text::visible;

/// The topic.
#[derive(Debug, Subcommand)]
pub(crate) enum WatchCommand {
    /// Shows what somebody may want to know: ended tasks, waiting calls, errors (operators)
    Notices,
    /// Shows changes of your tasks; operators see those of all
    Tasks(tasks::WatchTasksArguments),
    /// Shows the messages between the daemon and a server (operators)
    Messages(messages::WatchMessagesArguments),
}

/// Runs the command until it is interrupted, or the daemon ends it.
pub(crate) fn run(topic: &WatchCommand, context: &CommandContext) -> Result<(), CommandError> {
    match topic {
        WatchCommand::Notices => notices::run(context),
        WatchCommand::Tasks(arguments) => tasks::run(arguments, context),
        WatchCommand::Messages(arguments) => messages::run(arguments, context),
    }
}

/// Prints what the daemon told, as it came, or as the text for a person.
fn print(params: &RawValue, text: &str, json: bool) -> Result<(), CommandError> {
    match json {
        true => terminal::print(&colibri_text::json(params.get())),
        false => terminal::print(text),
    }
}

/// The line for a person about notifications that were left out, and their number.
fn lagged(params: &RawValue, what: &str) -> Result<(String, u64), CommandError> {
    let WatchLagged { dropped, .. } = read("colibri/dropped", params)?;
    let count = dropped.map_or_else(String::new, |count| format!("{count} "));
    let text = format!("-- {count}{what} came faster than they could be shown");
    Ok((text, dropped.unwrap_or_default()))
}

/// Says why the daemon ended the watch, if it did.
fn explain_end(ended: Option<&RawValue>) -> Result<(), CommandError> {
    if let Some(result) = ended {
        let why = read::<StreamEnded>("colibri/watch", result)?.ended;
        eprintln!("colibri-mcp: {}", visible(&why));
    }
    Ok(())
}

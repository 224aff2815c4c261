//! `colibri-mcp watch`: what happens, shown as it does.

mod messages;
mod notices;
mod print;
mod tasks;

use clap::Subcommand;

use super::context::CommandContext;
use crate::failure::CommandError;

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

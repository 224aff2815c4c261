//! `colibri-mcp approvals`: calls that wait for a person, and the answers to them.

use std::io::{self, IsTerminal};

use clap::Subcommand;
use serde_json::json;

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::terminal;
use colibri_api::{Approval, ApprovalsResponse, DecisionRequest, DecisionResponse};
use colibri_text::visible;

/// The action.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// Shows the calls that wait
    List,
    /// Lets a waiting call be made
    Approve(Decide),
    /// Refuses a waiting call
    Deny(Decide),
}

/// Runs the command.
pub(crate) fn run(
    command: Option<&ApprovalsCommand>,
    context: &CommandContext,
) -> Result<(), CommandError> {
    match command {
        None | Some(ApprovalsCommand::List) => list(context),
        Some(ApprovalsCommand::Approve(call)) => decide(call, true, context),
        Some(ApprovalsCommand::Deny(call)) => decide(call, false, context),
    }
}

/// The call that is decided about.
#[derive(Debug, clap::Args)]
pub(crate) struct Decide {
    /// The id that `colibri-mcp approvals` shows
    id: String,
}

/// Lists the calls that wait.
fn list(context: &CommandContext) -> Result<(), CommandError> {
    let (waiting, raw): (ApprovalsResponse, _) = context.ask("colibri/approvals", &json!({}))?;
    context.print(&raw, || {
        show(
            &waiting,
            terminal::columns().map_or(100, |columns| columns.max(40).into()),
        )
    })
}

fn show(waiting: &ApprovalsResponse, width: usize) -> String {
    if waiting.approvals.is_empty() {
        return "No call waits for approval.".to_owned();
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let one = |call: &Approval| {
        let user = match (&call.agent, &call.session) {
            (Some(agent), Some(session)) => format!(
                "agent {} {} for {}",
                visible(agent),
                visible(session),
                terminal::user(call.uid)
            ),
            _ => terminal::user(call.uid),
        };
        format!(
            "{}  {} {} by {user}, {} s left\n  rule: {}{}",
            visible(&call.id),
            visible(&call.server),
            visible(&call.tool),
            call.expires.saturating_sub(now),
            visible(&call.rule),
            arguments(&call.arguments, width),
        )
    };
    waiting
        .approvals
        .iter()
        .map(one)
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// The arguments for an approver, short ones first, such as a path or a name; long ones are broken
/// into lines. Nothing is left out.
fn arguments(arguments: &str, width: usize) -> String {
    let room = width.saturating_sub(4).max(20);
    let mut lines: Vec<String> = arguments
        .lines()
        .map(|line| visible(line).into_owned())
        .collect();
    lines.sort_by_key(|line| line.chars().count() > room);
    let mut text = String::new();
    for line in lines {
        let characters: Vec<char> = line.chars().collect();
        for (at, piece) in characters.chunks(room).enumerate() {
            let indent = if at == 0 { "\n  " } else { "\n    " };
            text.push_str(indent);
            text.extend(piece);
        }
    }
    text
}

/// The reason for which nothing can be approved from here: standard input is no terminal, and the
/// daemon a person's own.
pub(crate) fn terminal_needed(context: &CommandContext) -> Option<&'static str> {
    let why = "you alone approve what waits here, so it is done at a terminal: an agent that could do it would need no \
               approval";
    (context.place.private && !io::stdin().is_terminal()).then_some(why)
}

/// Approves or denies a call.
fn decide(decide: &Decide, approve: bool, context: &CommandContext) -> Result<(), CommandError> {
    if let Some(why) = terminal_needed(context).filter(|_| approve) {
        return Err(CommandError::Refused(why.to_owned()));
    }
    let method = if approve {
        "colibri/approve"
    } else {
        "colibri/deny"
    };
    let asked = DecisionRequest {
        id: decide.id.clone(),
    };
    let (DecisionResponse { decided, .. }, raw) = context.ask(method, &asked)?;
    let what = if approve { "Approved" } else { "Denied" };
    context.print(&raw, || {
        format!(
            "{what}: {} {}",
            visible(&decided.server),
            visible(&decided.tool)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_stands_before_what_is_long_and_nothing_is_left_out() {
        let long = "x".repeat(3000);
        let waiting = ApprovalsResponse {
            approvals: vec![Approval {
                id: "0badcafe".to_owned(),
                uid: 0,
                agent: Some("coder".to_owned()),
                session: Some("0123456789abcdef".to_owned()),
                server: "fs".to_owned(),
                tool: "write".to_owned(),
                rule: "confirm".to_owned(),
                arguments: format!("content: \"{long}\"\npath: \"/home/op/\u{1b}x\""),
                asked: 0,
                expires: 0,
            }],
        };
        let text = show(&waiting, 80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let (path, content) = (text.find("path: "), text.find("content: "));
        assert!(path.is_some() && path < content, "{text}");
        assert_eq!(text.matches('x').count(), 3001, "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(
            text.contains("by agent coder 0123456789abcdef for "),
            "{text}"
        );
    }
}

//! `colibri-mcp approvals`, `approve`, `deny` and `reload`: what operators do.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use super::{Context, Failure};
use crate::connection::Params;
use crate::terminal;

/// Which call is decided about.
#[derive(Debug, clap::Args)]
pub struct Decide {
    /// The id that `colibri-mcp approvals` shows
    id: String,
}

#[derive(Debug, Deserialize)]
struct Waiting {
    approvals: Vec<Pending>,
}

#[derive(Debug, Deserialize)]
struct Reloaded {
    blocked: Vec<Blocked>,
}

#[derive(Debug, Deserialize)]
struct Blocked {
    server: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Decided {
    decided: Pending,
}

#[derive(Debug, Deserialize)]
struct Pending {
    id: String,
    uid: u32,
    server: String,
    tool: String,
    rule: String,
    arguments: String,
    expires: u64,
}

/// Lists the calls that wait.
pub fn list(context: &Context) -> Result<(), Failure> {
    let raw = context.ask("colibri/approvals", Params::new())?;
    let waiting: Waiting = read(&raw)?;
    context.print(&raw, || show(&waiting))
}

fn show(waiting: &Waiting) -> String {
    if waiting.approvals.is_empty() {
        return "No call waits for approval.".to_owned();
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let one = |call: &Pending| {
        let user = nix::unistd::User::from_uid(call.uid.into()).ok().flatten();
        let user = user.map_or_else(|| call.uid.to_string(), |user| user.name);
        let arguments: String = call
            .arguments
            .lines()
            .map(|line| format!("\n  {}", terminal::line(line)))
            .collect();
        format!(
            "{}  {} {} by {user}, {} s left\n  rule: {}{arguments}",
            terminal::line(&call.id),
            terminal::line(&call.server),
            terminal::line(&call.tool),
            call.expires.saturating_sub(now),
            terminal::line(&call.rule),
        )
    };
    waiting.approvals.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

fn read<T: DeserializeOwned>(raw: &RawValue) -> Result<T, Failure> {
    serde_json::from_str(raw.get()).map_err(|error| Failure::Machine(format!("the daemon's answer: {error}")))
}

/// Approves or denies a call.
pub fn decide(decide: &Decide, approve: bool, context: &Context) -> Result<(), Failure> {
    let mut params = Params::new();
    let id = to_raw_value(&decide.id).map_err(|error| Failure::Machine(error.to_string()))?;
    params.insert("id", id);
    let raw = context.ask(if approve { "colibri/approve" } else { "colibri/deny" }, params)?;
    let Decided { decided } = read(&raw)?;
    let what = if approve { "Approved" } else { "Denied" };
    context.print(&raw, || {
        format!(
            "{what}: {} {}",
            terminal::line(&decided.server),
            terminal::line(&decided.tool)
        )
    })
}

/// Has the daemon read registry and client policy again.
pub fn reload(context: &Context) -> Result<(), Failure> {
    let raw = context.ask("colibri/reload", Params::new())?;
    let reloaded: Reloaded = read(&raw)?;
    context.print(&raw, || {
        let blocked = reloaded.blocked.iter().map(|blocked| {
            let (server, reason) = (terminal::line(&blocked.server), terminal::line(&blocked.reason));
            format!("\n{server} is blocked: {reason}")
        });
        format!("Reloaded.{}", blocked.collect::<String>())
    })
}

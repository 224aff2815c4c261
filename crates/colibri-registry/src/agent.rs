//! An agent: a program that talks to a model, in a jail whose one agent socket is the daemon's.

use colibri_json::{DocumentError, Object, ValueCursor};

use crate::command::{StdioCommand, command};
use crate::jail::Network;
use crate::value::one_of;

/// One agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentEntry {
    /// SHA-256 of the entry's value exactly as it stands in the file, lower-case hex: what the
    /// daemon passes to the helper as `--digest`.
    pub digest: String,
    /// Its process.
    pub command: Box<StdioCommand>,
    /// Its standard input.
    pub stdin: Stdin,
    /// It has a model behind the daemon's relay, and so a network of its own with a loopback
    /// interface alone, where a forwarder listens (`colibri-mcp door`).
    pub loopback: bool,
    /// It has a model, and the entry leaves the choice of its name to the agent: it has no
    /// `models`.
    pub chooses_model: bool,
    /// `true`: the entry is read and checked, but no instance is started.
    pub disabled: bool,
}

/// An agent's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stdin {
    /// `/dev/null`. Its supervisor alone keeps the pipe that is the lifeline: some programs wait
    /// for the end of an open one.
    #[default]
    Null,
    /// The pipe, over which the task comes as one line.
    Pipe,
}

/// The keys that an agent may have.
pub(crate) const AGENT_KEYS: &[&str] = &[
    "command",
    "args",
    "env",
    "cwd",
    "jail",
    "stdin",
    "events",
    "capabilities",
    "model",
    "tools",
    "accounts",
    "may",
    "budget",
    "max",
    "users",
    "autospawn",
    "shared_tasks",
    "stall_after_s",
    "disabled",
];

pub(crate) fn agent(
    cursor: &ValueCursor<'_>,
    keys: &Object<'_>,
    digest: String,
) -> Result<AgentEntry, DocumentError> {
    let command = command(cursor, keys)?
        .ok_or_else(|| cursor.error("an agent needs a command (absolute path)"))?;
    let loopback = keys.get("model").is_some();
    let names_models = keys.read("model", has_models)?.unwrap_or_default();
    if loopback
        && let (Some(jail), Some(at)) = (&command.jail, keys.get("jail"))
        && (jail.ip4 != Network::Disable || jail.ip6 != Network::Disable)
    {
        return Err(at.error(
            "an agent with a model has a network of its own, with a loopback interface alone: leave out ip4 and ip6",
        ));
    }
    Ok(AgentEntry {
        digest,
        command,
        stdin: keys
            .read("stdin", |v| {
                one_of(v, &[("null", Stdin::Null), ("pipe", Stdin::Pipe)])
            })?
            .unwrap_or_default(),
        loopback,
        chooses_model: loopback && !names_models,
        disabled: keys
            .read("disabled", ValueCursor::boolean)?
            .unwrap_or_default(),
    })
}

/// True if a `model` names models under its key `models`. The rest of it is the daemon's to
/// understand.
fn has_models(model: &ValueCursor<'_>) -> Result<bool, DocumentError> {
    let has_names = |list: &ValueCursor<'_>| list.array().is_ok_and(|names| !names.is_empty());
    let members = if model.is_object() {
        model.members()?
    } else {
        Vec::new()
    };
    Ok(members
        .iter()
        .any(|member| member.key == "models" && has_names(&member.value)))
}

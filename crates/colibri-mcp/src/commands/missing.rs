//! The reasons for which a server or a tool is not there: for `call` and `tools`.

use colibri_json::nearest;
use serde_json::json;

use super::context::CommandContext;
use super::tool_list::{OWN, exposed, of_server};
use crate::connection::{DaemonConnection, RequestError};
use crate::failure::CommandError;
use colibri_api::{ServerFacts, ServerState, Snapshot};
use colibri_protocol::Code;
use colibri_text::counted;

/// The most names in a message.
const MAX_NAMES: usize = 40;

/// The reason for which there is no such server; `None`: there is one.
///
/// # Errors
/// The daemon cannot be asked.
pub(crate) fn server(
    connection: &mut DaemonConnection,
    id: &str,
) -> Result<Option<CommandError>, CommandError> {
    let known = snapshot(connection)?;
    Ok(is_absent(&known, id).then(|| no_server(id, &known)))
}

/// The reason for which a server has no such tool; `None`: it has. What may still change is the
/// daemon's answer that the call failed; what is not there at all is a request that it refuses.
///
/// # Errors
/// The daemon cannot be asked.
pub(crate) fn tool(
    connection: &mut DaemonConnection,
    id: &str,
    name: &str,
    context: &CommandContext,
) -> Result<Option<CommandError>, CommandError> {
    let known = snapshot(connection)?;
    let server = find(&known, id);
    if is_absent(&known, id) {
        return Ok(Some(no_server(id, &known)));
    }
    if id != OWN && server.is_none() {
        return Ok(None);
    }
    let (tools, _) = if id == OWN {
        exposed(connection, true)?
    } else {
        of_server(connection, id)?
    };
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    if names.contains(&name) {
        return Ok(None);
    }
    let closed = !known.daemon.gates.external_call && names.is_empty();
    let why = server.and_then(|server| Some((server, absent(server, closed, context)?)));
    Ok(Some(match why {
        Some((server, why))
            if matches!(server.state, ServerState::Ready | ServerState::Stopped) && !closed =>
        {
            refused(format!("{}; {why}", no_such_tool(id, name, &names)))
        }
        Some((_, why)) => later(format!(
            "{why}; whether it has a tool {name} cannot be known now"
        )),
        None => refused(no_such_tool(id, name, &names)),
    }))
}

/// The reason for which a server that is there shows no tools; `None`: it is well, and has none.
///
/// # Errors
/// The daemon cannot be asked.
pub(crate) fn tools(
    connection: &mut DaemonConnection,
    id: &str,
    context: &CommandContext,
) -> Result<Option<CommandError>, CommandError> {
    let known = snapshot(connection)?;
    let closed = !known.daemon.gates.external_call;
    Ok(find(&known, id)
        .and_then(|server| absent(server, closed, context))
        .map(later))
}

/// The servers whose tools are not in the list of all, a line each with the reason.
///
/// # Errors
/// The daemon cannot be asked.
pub(crate) fn servers_without_tools(
    connection: &mut DaemonConnection,
    context: &CommandContext,
) -> Result<Vec<String>, CommandError> {
    let known = snapshot(connection)?;
    let closed = !known.daemon.gates.external_call;
    let absent = |server| absent(server, closed, context);
    Ok(known.servers.iter().filter_map(absent).collect())
}

/// The reason for which a server's tools are not there, if they are not, or not all.
fn absent(server: &ServerFacts, closed: bool, context: &CommandContext) -> Option<String> {
    let id = &server.id;
    match server.state {
        ServerState::Blocked | ServerState::Failed | ServerState::BackingOff => {
            let why = server.reason.as_deref().filter(|why| !why.is_empty());
            Some(format!(
                "server {id} is {}: {}",
                server.state,
                why.unwrap_or("no reason is known")
            ))
        }
        _ if closed && context.read_only => Some(format!(
            "the tools of server {id} are not there: the external-call gate is closed by --read-only"
        )),
        _ if closed => Some(format!(
            "the tools of server {id} are not there: the external-call gate is closed; ask the operator to open it \
             (colibri-mcpd --external-call)"
        )),
        ServerState::Starting => Some(format!(
            "server {id} is still starting: try again in a moment"
        )),
        _ if server.tools_blocked > 0 => Some(format!(
            "server {id}: {} blocked, not as approved: colibri-mcp pin list --waiting",
            counted(server.tools_blocked, "tool")
        )),
        _ => None,
    }
}

/// Servers and gates, in one call.
fn snapshot(connection: &mut DaemonConnection) -> Result<Snapshot, CommandError> {
    Ok(connection.own_tool("colibri_snapshot", &json!({}))?.0)
}

/// True if there is no such server, nor any that may be an account of it: of those the daemon says
/// more.
fn is_absent(known: &Snapshot, id: &str) -> bool {
    let is_account = |server: &ServerFacts| {
        server
            .id
            .strip_prefix(id)
            .is_some_and(|rest| rest.starts_with('-'))
    };
    id != OWN && find(known, id).is_none() && !known.servers.iter().any(is_account)
}

fn find<'a>(known: &'a Snapshot, id: &str) -> Option<&'a ServerFacts> {
    known.servers.iter().find(|server| server.id == id)
}

/// The daemon's rules, or the state of things, stand against the call.
fn later(why: String) -> CommandError {
    RequestError::Tool(why).into()
}

fn no_server(id: &str, known: &Snapshot) -> CommandError {
    let ids: Vec<&str> = known
        .servers
        .iter()
        .map(|server| server.id.as_str())
        .collect();
    refused(no_such_server(id, ids))
}

fn no_such_server(id: &str, mut known: Vec<&str>) -> String {
    known.push(OWN);
    format!("there is no server {id}{}", meant(id, &known, "there are"))
}

fn no_such_tool(id: &str, name: &str, known: &[&str]) -> String {
    format!(
        "server {id} has no tool {name}{}",
        meant(name, known, "it has")
    )
}

fn refused(message: String) -> CommandError {
    RequestError::Refused {
        code: Code::NoSuchTool.row().number,
        message,
    }
    .into()
}

/// The names that may have been meant, or that there are.
fn meant(name: &str, known: &[&str], there_are: &str) -> String {
    if let Some(nearest) = nearest(name, known) {
        return format!("; did you mean {nearest}?");
    }
    match known {
        [] => format!("; {there_are} none"),
        _ if known.len() > MAX_NAMES => format!("; {there_are} {} others", known.len()),
        _ => format!("; {there_are}: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_tools_says_why() {
        let server = |state: &str, blocked: u64| -> ServerFacts {
            serde_json::from_value(
                json!({ "id": "git", "transport": "host", "state": state, "since": 0,
                "reason": "exit 127", "tools_blocked": blocked, "jail": null }),
            )
            .unwrap()
        };
        let context = |read_only| CommandContext {
            place: std::path::PathBuf::from("/s").into(),
            chosen: None,
            read_only,
            json: false,
        };
        let open = context(false);
        assert_eq!(absent(&server("ready", 0), false, &open), None);
        for (state, closed, part) in [
            ("failed", false, "git is failed: exit 127"),
            ("blocked", true, "git is blocked: exit 127"),
            ("stopped", true, "colibri-mcpd --external-call"),
            ("starting", false, "still starting"),
        ] {
            let said = absent(&server(state, 0), closed, &open).unwrap();
            assert!(said.contains(part), "{said}");
        }
        let read_only = context(true);
        assert!(
            absent(&server("ready", 0), true, &read_only)
                .unwrap()
                .contains("--read-only")
        );
        assert!(
            absent(&server("ready", 1), false, &open)
                .unwrap()
                .contains("1 tool blocked")
        );
    }

    #[test]
    fn a_near_name_is_named_and_else_all_of_them() {
        let said = no_such_server("gti", vec!["git", "time"]);
        assert!(said.contains("no server gti; did you mean git?"), "{said}");
        let said = no_such_server("zzzzzz", vec!["git", "time"]);
        assert!(said.contains("there are: git, time, colibri"), "{said}");
        let said = no_such_tool("git", "x", &[]);
        assert!(
            said.contains("server git has no tool x; it has none"),
            "{said}"
        );
        let many: Vec<String> = (0..99).map(|n| format!("quite-another-name-{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(no_such_tool("git", "x", &many).contains("it has 99 others"));
        assert_eq!(
            (
                refused(String::new()).exit_code(),
                later(String::new()).exit_code()
            ),
            (65, 1)
        );
    }
}

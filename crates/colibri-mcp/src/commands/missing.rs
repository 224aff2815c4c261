//! Why a server or a tool is not there: for `call` and `tools`.

use colibri_json::nearest;
use serde_json::json;

use super::tools::{self, OWN};
use super::{Context, Failure};
use crate::connection::{Connection, Gate, RequestError};
use crate::terminal::counted;
use colibri_api::{ServerFacts, ServerState, Snapshot};
use colibri_protocol::Code;

/// The most names in a message.
const MOST_NAMES: usize = 40;

/// Why there is no such server; `None`: there is one.
///
/// # Errors
/// The daemon cannot be asked.
pub fn server(connection: &mut Connection, id: &str) -> Result<Option<Failure>, Failure> {
    let known = snapshot(connection)?;
    let ids: Vec<&str> = known.servers.iter().map(|server| server.id.as_str()).collect();
    Ok((id != OWN && !ids.contains(&id)).then(|| no_server(id, &ids)))
}

/// Why a server has no such tool; `None`: it has. What may still change is the daemon's answer that the call failed;
/// what is not there at all is a request that it refuses.
///
/// # Errors
/// The daemon cannot be asked.
pub fn tool(connection: &mut Connection, id: &str, name: &str, context: &Context) -> Result<Option<Failure>, Failure> {
    let known = snapshot(connection)?;
    let server = known.servers.iter().find(|server| server.id == id);
    if id != OWN && server.is_none() {
        let ids: Vec<&str> = known.servers.iter().map(|server| server.id.as_str()).collect();
        return Ok(Some(no_server(id, &ids)));
    }
    let (tools, _) = if id == OWN {
        tools::exposed(connection, true)?
    } else {
        tools::of_server(connection, id)?
    };
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    if names.contains(&name) {
        return Ok(None);
    }
    let Some(server) = server else {
        return Ok(Some(no_tool(id, name, &names)));
    };
    let closed = !known.daemon.gates.external_call && names.is_empty();
    let why = server
        .reason
        .as_deref()
        .filter(|why| !why.is_empty())
        .unwrap_or("no reason is known");
    Ok(Some(match server.state {
        ServerState::Blocked | ServerState::Failed | ServerState::BackingOff => later(format!(
            "server {id} is {}: {why}; whether it has a tool {name} cannot be known now",
            server.state
        )),
        _ if closed && context.narrow.contains(&Gate::External) => later(format!(
            "the external call gate is closed by --read-only, so server {id}, which was never seen, is not started"
        )),
        _ if closed => later(format!(
            "the external call gate is closed, so server {id}, which was never seen, is not started: ask the operator to \
             open it (colibri-mcpd --external-call)"
        )),
        ServerState::Starting => later(format!(
            "server {id} is still starting, its tools are not known yet: try again in a moment"
        )),
        _ if server.tools_blocked > 0 => refused(format!(
            "server {id} has no tool {name} that may be called ({} of its tools blocked: \
             colibri-mcp pin list --waiting){}",
            server.tools_blocked,
            meant(name, &names, "it has")
        )),
        _ => no_tool(id, name, &names),
    }))
}

/// Why a server that is there shows no tools; `None`: it is well, and has none.
///
/// # Errors
/// The daemon cannot be asked.
pub fn tools(connection: &mut Connection, id: &str, context: &Context) -> Result<Option<Failure>, Failure> {
    let known = snapshot(connection)?;
    let Some(server) = known.servers.iter().find(|server| server.id == id) else {
        return Ok(None);
    };
    let closed = !known.daemon.gates.external_call;
    Ok(absent(server, closed, context).map(later))
}

/// The servers whose tools are not in the list of all, a line each with the reason.
///
/// # Errors
/// The daemon cannot be asked.
pub fn servers_without_tools(connection: &mut Connection, context: &Context) -> Result<Vec<String>, Failure> {
    let known = snapshot(connection)?;
    if known.servers.is_empty() {
        return Ok(Vec::new());
    }
    let closed = !known.daemon.gates.external_call;
    let absent = |server| absent(server, closed, context);
    Ok(known.servers.iter().filter_map(absent).collect())
}

/// Why a server's tools are not there, if they are not, or not all.
fn absent(server: &ServerFacts, closed: bool, context: &Context) -> Option<String> {
    let id = &server.id;
    let why = server
        .reason
        .as_deref()
        .filter(|why| !why.is_empty())
        .unwrap_or("no reason is known");
    match server.state {
        ServerState::Blocked | ServerState::Failed | ServerState::BackingOff => {
            Some(format!("server {id} is {}: {why}", server.state))
        }
        _ if closed && context.narrow.contains(&Gate::External) => Some(format!(
            "the tools of server {id} are not there: the external call gate is closed by --read-only"
        )),
        _ if closed => Some(format!(
            "the tools of server {id} are not there: the external call gate is closed; ask the operator to open it \
             (colibri-mcpd --external-call)"
        )),
        ServerState::Starting => Some(format!("server {id} is still starting: try again in a moment")),
        _ if server.tools_blocked > 0 => Some(format!(
            "server {id}: {} blocked, not as approved: colibri-mcp pin list --waiting",
            counted(server.tools_blocked, "tool")
        )),
        _ => None,
    }
}

/// Servers and gates, in one call.
fn snapshot(connection: &mut Connection) -> Result<Snapshot, Failure> {
    Ok(connection.own_tool("colibri_snapshot", &json!({}))?.0)
}

/// The daemon's rules, or the state of things, stand against the call.
fn later(why: String) -> Failure {
    RequestError::Tool(why).into()
}

fn no_server(id: &str, known: &[&str]) -> Failure {
    let known_to_all: Vec<&str> = known.iter().copied().chain([OWN]).collect();
    refused(format!(
        "there is no server {id}{}",
        meant(id, &known_to_all, "there are")
    ))
}

fn no_tool(id: &str, name: &str, known: &[&str]) -> Failure {
    refused(format!(
        "server {id} has no tool {name}{}",
        meant(name, known, "it has")
    ))
}

fn refused(message: String) -> Failure {
    RequestError::Refused {
        code: Code::NoSuchTool.row().number,
        message,
    }
    .into()
}

/// What may have been meant, or what there is.
fn meant(name: &str, known: &[&str], there_are: &str) -> String {
    if let Some(nearest) = nearest(name, known) {
        return format!("; did you mean {nearest}?");
    }
    match known {
        [] => format!("; {there_are} none"),
        _ if known.len() > MOST_NAMES => format!("; {there_are} {} others", known.len()),
        _ => format!("; {there_are}: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_tools_says_why() {
        let server = |state: &str, blocked: u64| -> ServerFacts {
            serde_json::from_value(json!({ "id": "git", "transport": "host", "state": state, "since": 0,
                "reason": "exit 127", "tools_blocked": blocked, "jail": null }))
            .unwrap()
        };
        let context = |narrow: Vec<Gate>| Context {
            socket: "/s".into(),
            chosen: None,
            narrow,
            json: false,
        };
        let open = context(Vec::new());
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
        let read_only = context(vec![Gate::External]);
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
        let text = |failure: Failure| (failure.exit_code(), failure.to_string());
        let (status, said) = text(no_server("gti", &["git", "time"]));
        assert_eq!(
            (status, said.contains("no server gti; did you mean git?")),
            (65, true),
            "{said}"
        );
        let (_, said) = text(no_server("zzzzzz", &["git", "time"]));
        assert!(said.contains("there are: git, time, colibri"), "{said}");
        let (status, said) = text(no_tool("git", "x", &[]));
        assert_eq!(
            (status, said.contains("server git has no tool x; it has none")),
            (65, true),
            "{said}"
        );
        let many: Vec<String> = (0..99).map(|n| format!("quite-another-name-{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(text(no_tool("git", "x", &many)).1.contains("it has 99 others"));
        assert_eq!(later(String::new()).exit_code(), 1);
    }
}

//! Why a server or a tool is not there: for `call` and `tools`.

use colibri_json::nearest;
use serde_json::json;

use super::servers::Servers;
use super::status::Status;
use super::tools::{self, OWN};
use super::{Context, Failure};
use crate::connection::{Connection, Gate, RequestError};
use colibri_protocol::Code;

/// The most names in a message.
const MOST_NAMES: usize = 40;

/// Why there is no such server; `None`: there is one.
///
/// # Errors
/// The daemon cannot be asked.
pub fn server(connection: &mut Connection, id: &str) -> Result<Option<Failure>, Failure> {
    let known = servers(connection)?;
    let ids: Vec<&str> = known.servers.iter().map(|server| server.id.as_str()).collect();
    Ok((id != OWN && !ids.contains(&id)).then(|| no_server(id, &ids)))
}

/// Why a server has no such tool; `None`: it has. What may still change is the daemon's answer that the call failed;
/// what is not there at all is a request that it refuses.
///
/// # Errors
/// The daemon cannot be asked.
pub fn tool(connection: &mut Connection, id: &str, name: &str, context: &Context) -> Result<Option<Failure>, Failure> {
    let servers = servers(connection)?;
    let server = servers.servers.iter().find(|server| server.id == id);
    if id != OWN && server.is_none() {
        let ids: Vec<&str> = servers.servers.iter().map(|server| server.id.as_str()).collect();
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
    let (status, _) = connection.own_tool::<Status>("colibri_status", &json!({}))?;
    let closed = !status.gates.external_call && names.is_empty();
    let why = server
        .reason
        .as_deref()
        .filter(|why| !why.is_empty())
        .unwrap_or("no reason is known");
    Ok(Some(match server.state.as_str() {
        "blocked" | "failed" | "backing off" => later(format!(
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
        "starting" => later(format!(
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

fn servers(connection: &mut Connection) -> Result<Servers, Failure> {
    let (servers, _) = connection.own_tool("colibri_external_mcp_servers", &json!({}))?;
    Ok(servers)
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

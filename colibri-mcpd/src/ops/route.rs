//! Who answers a call: Colibri itself, or a server.

use std::sync::Arc;

use super::own::Own;
use crate::builtin::{self, Route};
use crate::catalog::Wanted;
use crate::daemon::Daemon;
use crate::policy::Gate;
use crate::relay::{Arguments, Client, Parts, Target};
use colibri_protocol::RpcError;
use colibri_wire::Json;

/// Who answers a tool call.
pub(crate) fn tool(
    daemon: &Arc<Daemon>,
    name: &str,
    params: Json<'_>,
    parts: &mut Parts,
    client: &Client,
) -> Result<Arc<dyn Target>, RpcError> {
    if let Some(definition) = builtin::definition(name) {
        return match definition.route {
            Route::Here(tool) => Ok(Own::tool(daemon.clone(), definition, tool)),
            Route::Relay => external_call(daemon, definition, params, parts, client),
        };
    }
    let known = daemon.host.exposed(name);
    Ok(known.unwrap_or_else(|| external_tool(daemon, name, Wanted::Exposed(name.to_owned()), client)))
}

/// Who answers a call of an external tool, by whatever name.
fn external_tool(daemon: &Daemon, operation: &str, wanted: Wanted, client: &Client) -> Arc<dyn Target> {
    let rights = daemon.chain.rules.rights(client);
    let found = daemon.host.find(wanted, &rights);
    found.unwrap_or_else(|outcome| Own::over(operation, Gate::None, outcome))
}

/// Who answers a method that MCP does not know: the server whose entry lists it.
pub(crate) fn method(daemon: &Daemon, name: &str) -> Option<Arc<dyn Target>> {
    let table = daemon.host.table();
    let method = table.method(name)?;
    Some(method.clone())
}

/// The target of `colibri_external_mcp_call_tool`.
fn external_call(
    daemon: &Arc<Daemon>,
    definition: &builtin::Definition,
    params: Json<'_>,
    parts: &mut Parts,
    client: &Client,
) -> Result<Arc<dyn Target>, RpcError> {
    let arguments = params.get("arguments");
    let parsed = builtin::parse_external_call(arguments.map(|arguments| arguments.text().as_bytes()));
    let (call, outer) = match (parsed, arguments) {
        (Ok(call), Some(outer)) => (call, outer),
        (Err(error), _) => return Ok(Own::done(definition, error.outcome())),
        (Ok(_), None) => return Err(RpcError::invalid_params("params.arguments must be an object")),
    };
    let wanted = Wanted::Origin(call.server, call.tool);
    let target = external_tool(daemon, definition.name, wanted, client);
    let inner = call.arguments.map(|inner| {
        let at = outer.span().start + (inner.as_ptr() as usize - outer.text().as_ptr() as usize);
        at..at + inner.len()
    });
    parts.arguments = Arguments::Within {
        outer: outer.span(),
        inner,
    };
    Ok(target)
}

//! Where tools come from: the private daemon of the file's servers, and this machine's service, if there is one. A
//! server that both have is the file's.

use std::path::{Path, PathBuf};
use std::time::Instant;

use colibri_api::paths;
use colibri_client::{Daemon, DaemonTool, Error, ToolResult};
use serde_json::json;

use crate::config::Server;
use crate::own_servers::OwnServers;
use crate::say::say;

/// What the daemon says where there is no such server or tool.
const NO_SUCH_TOOL: &str = "NO_SUCH_TOOL";

/// All of them.
#[derive(Debug)]
pub(crate) struct Sources {
    own: OwnServers,
    /// The service's socket.
    service: Option<PathBuf>,
}

/// A tool of one of them.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    /// Its server's id.
    pub server: String,
    /// As the daemon lists it.
    pub listed: DaemonTool,
}

impl Sources {
    /// Those of a home.
    pub(crate) fn new(home: &Path, servers: Vec<Server>) -> Sources {
        let service = || paths::service().map(|_| PathBuf::from(paths::SERVICE_SOCKET));
        Sources {
            own: OwnServers::new(home, servers),
            service: paths::named_socket(None).or_else(service),
        }
    }

    /// The tools of all. What one daemon does not say is said on standard error.
    ///
    /// # Errors
    /// None of them says anything.
    pub(crate) fn tools(&self, until: Instant) -> Result<Vec<Tool>, String> {
        let of = |daemon: Result<Daemon, String>| {
            daemon.and_then(|mut daemon| daemon.tools().map_err(|error| error.to_string()))
        };
        let (own, service) = std::thread::scope(|scope| {
            let service = self
                .service
                .as_ref()
                .map(|socket| scope.spawn(|| of(reach(socket, until))));
            let own = self.own.run().then(|| of(self.own.connect(until)));
            (own, service.and_then(|service| service.join().ok()))
        });
        let asked = [own.as_ref(), service.as_ref()];
        asked
            .into_iter()
            .flatten()
            .filter_map(|said| said.as_ref().err())
            .for_each(|why| say(why));
        if let (Some(Err(why)), None | Some(Err(_))) | (None, Some(Err(why))) = (&own, &service) {
            return Err(why.clone());
        }
        let listed = |said: Option<Result<Vec<DaemonTool>, String>>| said.and_then(Result::ok).unwrap_or_default();
        let own = listed(own).into_iter().filter_map(Tool::of);
        let service = listed(service).into_iter().filter_map(Tool::of);
        Ok(own
            .chain(service.filter(|tool| self.own.id(&tool.server).is_none()))
            .collect())
    }

    /// One tool, by its server's id or name and its own name.
    ///
    /// # Errors
    /// `unknown server: X`, `unknown tool: X`, or why it cannot be found out.
    pub(crate) fn tool(&self, server: &str, name: &str, until: Instant) -> Result<Tool, String> {
        let (id, mut daemon) = self.daemon_of(server, until)?;
        let tools = daemon.tools().map_err(|error| error.to_string())?;
        let mut of_server = tools
            .into_iter()
            .filter_map(Tool::of)
            .filter(|tool| tool.server == id)
            .peekable();
        if of_server.peek().is_none() && self.own.id(server).is_none() {
            return Err(unknown_server(server));
        }
        of_server
            .find(|tool| tool.listed.tool == name)
            .ok_or_else(|| format!("unknown tool: {name}"))
    }

    /// Calls a tool; `args` is a JSON object in a line.
    ///
    /// # Errors
    /// As above; or the call has no answer.
    pub(crate) fn call(&self, server: &str, name: &str, args: &str, until: Instant) -> Result<ToolResult, String> {
        let (id, mut daemon) = self.daemon_of(server, until)?;
        let arguments = format!(
            "{{\"server\":{},\"tool\":{},\"arguments\":{args}}}",
            json!(id),
            json!(name)
        );
        let result = daemon.call_tool("colibri_external_mcp_call_tool", &arguments);
        let result = result.map_err(|error| match error {
            Error::TimedOut(doing) => format!("{server}/{name} did not answer in time: {doing}"),
            error => error.to_string(),
        })?;
        if result.is_error && result.code.as_deref() == Some(NO_SUCH_TOOL) {
            self.tool(server, name, until)?;
        }
        Ok(result)
    }

    /// A server's id, and its daemon.
    fn daemon_of(&self, server: &str, until: Instant) -> Result<(String, Daemon), String> {
        match (self.own.id(server), &self.service) {
            (Some(id), _) => match self.own.is_out(id) {
                Some(why) => Err(format!("{server} does not run: {why}")),
                None => Ok((id.to_owned(), self.own.connect(until)?)),
            },
            (None, Some(socket)) => Ok((server.to_owned(), reach(socket, until)?)),
            (None, None) => Err(unknown_server(server)),
        }
    }
}

impl Tool {
    /// `None`: it is Colibri's own, and of no server.
    fn of(listed: DaemonTool) -> Option<Tool> {
        let server = listed.server.clone()?;
        Some(Tool { server, listed })
    }
}

fn unknown_server(name: &str) -> String {
    format!("unknown server: {name}")
}

fn reach(socket: &Path, until: Instant) -> Result<Daemon, String> {
    Daemon::connect(socket, until).map_err(|error| error.to_string())
}

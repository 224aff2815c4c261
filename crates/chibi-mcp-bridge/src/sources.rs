//! The sources of tools: the private daemon of the file's servers, and this machine's service, if
//! there is one. A server that both have is the file's.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{anyhow, bail};
use colibri_api::{ServerFacts, ServerState, Servers};
use colibri_client::{ClientError, Daemon, DaemonTool, ToolResult};
use colibri_text::{brief, counted};
use parking_lot::Mutex;
use serde_json::json;

use crate::config::ConfiguredServer;
use crate::own_servers::OwnServers;
use crate::say::say;

/// The daemon's error where there is no such server or tool.
const NO_SUCH_TOOL: &str = "NO_SUCH_TOOL";

/// The most characters of one note.
const MAX_NOTE: usize = 1000;

/// The tools of all daemons, and what keeps others from being there.
#[derive(Debug)]
pub(crate) struct SourceTools {
    /// The tools.
    pub tools: Vec<SourceTool>,
    /// A sentence for each daemon or server that is not there, or not whole.
    pub notes: Vec<String>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct ToolSources {
    own: OwnServers,
    /// The socket of the service, or of the daemon that the environment names.
    service: Option<PathBuf>,
    /// The last message on standard error.
    said: Mutex<Vec<String>>,
}

/// A tool of one of them.
#[derive(Debug, Clone)]
pub(crate) struct SourceTool {
    /// Its server's id.
    pub server: String,
    /// As the daemon lists it.
    pub listed: DaemonTool,
}

/// The list of one daemon: its tools, and a sentence for each server that is not there.
type DaemonTools = (Vec<DaemonTool>, Vec<String>);

impl ToolSources {
    /// Those of a home.
    pub(crate) fn new(home: &Path, servers: Vec<ConfiguredServer>) -> ToolSources {
        ToolSources {
            own: OwnServers::new(home, servers),
            service: Daemon::expected_socket(),
            said: Mutex::default(),
        }
    }

    /// The tools of all. What keeps others from being there is said on standard error too, once.
    ///
    /// # Errors
    /// None of them says anything.
    pub(crate) fn tools(&self, until: Instant) -> anyhow::Result<SourceTools> {
        let of = |daemon: anyhow::Result<Daemon>, own: bool| -> anyhow::Result<DaemonTools> {
            let mut daemon = daemon?;
            let tools = daemon.tools()?;
            Ok((tools, self.absences(&mut daemon, own, None)))
        };
        let (own, service) = std::thread::scope(|scope| {
            let service = self
                .service
                .as_ref()
                .map(|socket| scope.spawn(|| of(reach(socket, until), false)));
            let own = self.own.run().then(|| of(self.own.connect(until), true));
            (own, service.and_then(|service| service.join().ok()))
        });
        let answers = [own.as_ref(), service.as_ref()].into_iter().flatten();
        let notes: Vec<String> = answers
            .flat_map(|answer| match answer {
                Ok((_, absences)) => absences.clone(),
                Err(why) => vec![format!("{why:#}")],
            })
            .collect();
        self.say_once(&notes);
        if let (Some(Err(why)), None | Some(Err(_))) | (None, Some(Err(why))) = (&own, &service) {
            bail!("{why:#}");
        }
        let listed = |answer: Option<anyhow::Result<DaemonTools>>| {
            let (tools, _) = answer.and_then(Result::ok).unwrap_or_default();
            tools.into_iter().filter_map(SourceTool::of)
        };
        let (own, service) = (listed(own), listed(service));
        let tools = own
            .chain(service.filter(|tool| self.own.id(&tool.server).is_none()))
            .collect();
        Ok(SourceTools { tools, notes })
    }

    /// Says what was not said before.
    fn say_once(&self, notes: &[String]) {
        let mut said = self.said.lock();
        notes
            .iter()
            .filter(|note| !said.contains(note))
            .for_each(|note| say(note));
        *said = notes.to_vec();
    }

    /// The reasons for which servers of a daemon, or this one of them, show no tools or not all. A
    /// daemon that does not say has none.
    fn absences(&self, daemon: &mut Daemon, own: bool, only: Option<&str>) -> Vec<String> {
        let facts = daemon.call_tool("colibri_external_mcp_servers", "{}").ok();
        let facts =
            facts.and_then(|facts| serde_json::from_value::<Servers>(facts.structured).ok());
        let servers = facts.map(|facts| facts.servers).unwrap_or_default();
        let is_meant = |server: &&ServerFacts| {
            let is_shown = own || self.own.id(&server.id).is_none();
            is_shown && only.is_none_or(|only| only == server.id)
        };
        let option = own.then(|| format!(" --socket {}", self.own.socket().display()));
        let absence = |server: &ServerFacts| absence(server, option.as_deref().unwrap_or_default());
        servers
            .iter()
            .filter(is_meant)
            .filter_map(absence)
            .collect()
    }

    /// One tool, by its server's id or name and its own name.
    ///
    /// # Errors
    /// `unknown server: X`, `unknown tool: X`, or why it cannot be found out.
    pub(crate) fn tool(
        &self,
        server: &str,
        name: &str,
        until: Instant,
    ) -> anyhow::Result<SourceTool> {
        let (id, mut daemon) = self.daemon_of(server, until)?;
        let tools = daemon.tools()?;
        let mut of_server = tools
            .into_iter()
            .filter_map(SourceTool::of)
            .filter(|tool| tool.server == id)
            .peekable();
        let is_own = self.own.id(server).is_some();
        let is_listed = of_server.peek().is_some();
        of_server
            .find(|tool| tool.listed.tool == name)
            .ok_or_else(|| {
                let why = self.absences(&mut daemon, is_own, Some(&id));
                match why.first() {
                    Some(why) => anyhow!("unknown tool: {name}; {why}"),
                    None if is_own || is_listed => anyhow!("unknown tool: {name}"),
                    None => unknown_server(server),
                }
            })
    }

    /// Calls a tool; `args` is a JSON object in a line.
    ///
    /// # Errors
    /// As above; or the call has no answer.
    pub(crate) fn call(
        &self,
        server: &str,
        name: &str,
        args: &str,
        until: Instant,
    ) -> anyhow::Result<ToolResult> {
        let (id, mut daemon) = self.daemon_of(server, until)?;
        let arguments = format!(
            "{{\"server\":{},\"tool\":{},\"arguments\":{args}}}",
            json!(id),
            json!(name)
        );
        let result = daemon.call_tool("colibri_external_mcp_call_tool", &arguments);
        let result = result.map_err(|error| match error {
            ClientError::TimedOut(doing) => {
                anyhow!("{server}/{name} did not answer in time: {doing}")
            }
            error => error.into(),
        })?;
        if result.is_error && result.code.as_deref() == Some(NO_SUCH_TOOL) {
            self.tool(server, name, until)?;
        }
        Ok(result)
    }

    /// A server's id, and its daemon.
    fn daemon_of(&self, server: &str, until: Instant) -> anyhow::Result<(String, Daemon)> {
        match (self.own.id(server), &self.service) {
            (Some(id), _) => match self.own.is_out(id) {
                Some(why) => Err(anyhow!("{server} does not run: {why}")),
                None => Ok((id.to_owned(), self.own.connect(until)?)),
            },
            (None, Some(socket)) => Ok((server.to_owned(), reach(socket, until)?)),
            (None, None) => Err(unknown_server(server)),
        }
    }
}

impl SourceTool {
    /// `None`: it is Colibri's own, and of no server.
    fn of(listed: DaemonTool) -> Option<SourceTool> {
        let server = listed.server.clone()?;
        Some(SourceTool { server, listed })
    }
}

/// The reason for which a server shows no tools or not all; `option` is the flag with which
/// `colibri-mcp` finds its daemon.
fn absence(server: &ServerFacts, option: &str) -> Option<String> {
    let id = &server.id;
    let reason = server.reason.as_deref().filter(|reason| !reason.is_empty());
    let why = match server.state {
        _ if server.tools_blocked > 0 => format!(
            "{} blocked: the definitions differ from the approved ones, as after an upgrade. `colibri-mcp{option} pin \
             diff {id}` shows the changes and the command that accepts them",
            counted(server.tools_blocked, "tool")
        ),
        ServerState::Blocked | ServerState::Failed | ServerState::BackingOff => {
            format!(
                "it is {}: {}",
                server.state,
                reason.unwrap_or("no reason was given")
            )
        }
        _ => reason?.to_owned(),
    };
    Some(format!("server {id}: {}", brief(&why, MAX_NOTE)))
}

fn unknown_server(name: &str) -> anyhow::Error {
    anyhow!("unknown server: {name}")
}

fn reach(socket: &Path, until: Instant) -> anyhow::Result<Daemon> {
    Ok(Daemon::connect(socket, until)?)
}

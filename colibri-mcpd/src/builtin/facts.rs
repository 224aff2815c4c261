//! The tools' view of the daemon for the caller of one call: servers and tools that policy hides from this caller are
//! not in it.

use bytes::Bytes;
use colibri_api::{DaemonFacts, ServerFacts, UnseenServer};

/// The daemon and its servers.
#[derive(Debug, Clone)]
pub struct DaemonView {
    /// The daemon.
    pub daemon: DaemonFacts,
    /// The servers, by id. All text is shown to users: no secret value may be in it.
    pub servers: Vec<ServerFacts>,
}

/// The advertised tools of external servers.
#[derive(Debug, Clone)]
pub struct AdvertisedTools {
    /// The ids of all servers.
    pub servers: Vec<String>,
    /// The tools in the order of `tools/list`.
    pub tools: Vec<ExternalTool>,
    /// The servers whose tools are not known.
    pub unseen: Vec<UnseenServer>,
}

/// A tool of an external server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalTool {
    /// The exposed name, `server__tool`.
    pub name: String,
    /// The server's id.
    pub server: String,
    /// The server's own name of the tool.
    pub tool: String,
    /// The raw JSON of its definition, as the server sent it.
    pub definition: Bytes,
}

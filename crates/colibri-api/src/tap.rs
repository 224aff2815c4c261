//! The operators' watches: the parameters of `colibri/tap` and `colibri/overview`, and the frames of a tap.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::named::named;
use crate::servers::ServerState;

/// The parameters of `colibri/tap`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapRequest {
    /// The server.
    pub server: String,
    /// True if frames are shown whole.
    #[serde(default)]
    pub full: bool,
}

/// The parameters of `colibri/overview`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverviewRequest {
    /// The interval, milliseconds; without it, one overview, as the result.
    #[serde(default)]
    pub every_ms: Option<u64>,
    /// Records of the trail.
    #[serde(default)]
    pub tail: u64,
}

/// `colibri/tapping`, the first notification of a tap.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tapping {
    /// The id of the request, as it stands in every notification of it.
    pub tap: Box<RawValue>,
    /// The server.
    pub server: String,
    /// Its state.
    pub state: ServerState,
    /// Its processes.
    pub processes: u64,
}

named! {
    /// The direction of a frame.
    pub enum Direction {
        /// From the daemon.
        ToServer = "to-server",
        /// From the server.
        FromServer = "from-server",
    }
}

/// `colibri/frame`: a frame that passed. Everything in it can be written to a terminal.
#[derive(Debug, Serialize, Deserialize)]
pub struct TapFrame {
    /// The id of the request.
    pub tap: Box<RawValue>,
    /// Milliseconds since the epoch.
    pub time: u64,
    /// Its direction.
    pub direction: Direction,
    /// The daemon's number of the process.
    pub process: u64,
    /// The process id.
    pub pid: u32,
    /// `request`, `notification`, `result`, `error`, or why it is none of them.
    pub kind: String,
    /// The id between daemon and server; of a notification that speaks of a call, that call's.
    pub id: Option<Box<RawValue>>,
    /// The user of the call.
    pub client: Option<TapClient>,
    /// The method, of an answer that of its request.
    pub method: Option<String>,
    /// The server's own name of the tool.
    pub tool: Option<String>,
    /// Its bytes as it passed.
    pub length: u64,
    /// True if not all of it is shown.
    pub cut: bool,
    /// The frame, secrets taken out.
    pub frame: String,
}

/// The caller of a frame's call.
#[derive(Debug, Serialize, Deserialize)]
pub struct TapClient {
    /// The client's connection.
    pub connection: u64,
    /// The user.
    pub uid: u32,
    /// The client's process, where the system tells.
    pub pid: Option<i32>,
    /// The client's id of the call.
    pub id: Box<RawValue>,
}

/// `colibri/dropped`: frames that passed faster than they could be shown.
#[derive(Debug, Serialize, Deserialize)]
pub struct TapLagged {
    /// The id of the request.
    pub tap: Box<RawValue>,
    /// The number of bytes.
    pub frames: u64,
}

/// The result of a stream that the daemon ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnded {
    /// The reason.
    pub ended: String,
}

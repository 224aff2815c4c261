//! `colibri/watch`: its parameters, what tells that it has begun, and the messages of a server that
//! pass.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::named::named;
use crate::servers::ServerState;
use crate::tasks::Task;

/// The parameters of `colibri/watch`, by their topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "topic", rename_all = "lowercase")]
pub enum WatchRequest {
    /// Notices, for operators.
    Notices,
    /// Changes of tasks: an operator is told of all tasks, anybody else of those they may see.
    Tasks {
        /// Only this task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<u64>,
    },
    /// The messages between the daemon and a server, for operators.
    Messages {
        /// The server.
        server: String,
        /// True if messages are shown whole.
        #[serde(default)]
        full: bool,
    },
}

/// `colibri/watching`, the first notification of a watch.
#[derive(Debug, Serialize, Deserialize)]
pub struct WatchSubscribed {
    /// The id of the request, as it stands in every notification of it.
    pub watch: Box<RawValue>,
    /// The one task that is watched, as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// The server whose messages are watched, as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<WatchedServer>,
}

/// A server whose messages are watched.
#[derive(Debug, Serialize, Deserialize)]
pub struct WatchedServer {
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: ServerState,
    /// The number of its processes.
    pub processes: u64,
}

/// `colibri/dropped`: more came than was read.
#[derive(Debug, Serialize, Deserialize)]
pub struct WatchLagged {
    /// The id of the request.
    pub watch: Box<RawValue>,
    /// The number of notifications that were left out. Of changes of tasks, whoever's they are:
    /// told to operators alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
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
    pub watch: Box<RawValue>,
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

/// The result of a stream that the daemon ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnded {
    /// The reason.
    pub ended: String,
}

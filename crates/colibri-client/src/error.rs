//! The errors of the crate.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::peer::PeerError;

/// The reason for which something was not done. Each text says what was wrong and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// No bridge runs for this home; the text says what of its lock file shows that.
    NotRunning(String),
    /// The bridge could not be started.
    NotStarted(String),
    /// The listener at the bridge's address is not this user's, or cannot be seen. Nothing was
    /// sent.
    NotOurs {
        /// The address.
        address: SocketAddr,
        /// The fault in the system's table.
        source: PeerError,
    },
    /// There was no answer in time.
    TimedOut(String),
    /// The system refused something.
    Io {
        /// The action that failed.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
    /// An answer is not what the protocol says.
    Unreadable(String),
    /// The bridge, the daemon or the tool answered that it failed: its words.
    Refused(String),
    /// A path that is not `mcp://server/tool`.
    NotATool(String),
}

impl ClientError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> ClientError {
        let doing = doing.into();
        move |source| match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::TimedOut(doing),
            _ => ClientError::Io { doing, source },
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NotRunning(why) => write!(f, "no bridge runs: {why}"),
            ClientError::NotStarted(why) => write!(f, "the bridge could not be started: {why}"),
            ClientError::NotOurs { address, source } => {
                write!(f, "nothing was sent to {address}: {source}")
            }
            ClientError::TimedOut(doing) => write!(f, "{doing}: it took too long"),
            ClientError::Io { doing, source } => write!(f, "{doing}: {source}"),
            ClientError::Unreadable(why) => {
                write!(f, "an answer cannot be read: {why}. Do the versions match?")
            }
            ClientError::Refused(said) => f.write_str(said),
            ClientError::NotATool(path) => {
                write!(f, "{path:?} is no tool's path: mcp://SERVER/TOOL")
            }
        }
    }
}

// The message has the cause already.
impl std::error::Error for ClientError {}

//! The connection on which the calls of a script are made.

use bytes::Bytes;
use tokio::io::DuplexStream;

use crate::relay::Call;

/// The connection within the daemon on which the calls of one script are made. Dropping it cancels
/// those in flight.
pub trait ScriptConnection: Send + Sync {
    /// Sends a request.
    fn send(&self, request: Bytes);
}

/// Makes such connections.
pub trait ScriptConnector: Send + Sync {
    /// A connection for the script that a call runs, and the stream of what is answered on it.
    fn connect(&self, call: &Call) -> Option<(Box<dyn ScriptConnection>, DuplexStream)>;
}

//! What a request came to that has no answer which could be relayed.

use std::time::Duration;

use colibri_http::Error;

/// What became of a message that was to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The id of the request. `None`: it concerns all.
    pub id: Option<u64>,
    /// What it means.
    pub kind: FaultKind,
    /// What happened. What the server said is cut and escaped, and may hold what it was given.
    pub message: String,
}

/// What a [`Fault`] means for who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Nothing was sent; it may go another time.
    Unsent,
    /// Nothing was sent, and nothing will be until somebody changes something.
    Impossible,
    /// The server refused it unprocessed (429, 503) and names the time to wait, or does not (`None`).
    Busy(Option<Duration>),
    /// The server forgot the session (404): it processed nothing, and begins anew with who comes next.
    Forgotten,
    /// The server wants to know who asks, or does not allow it (401, 403).
    Denied,
    /// The server failed at it (5xx, 408), or what stands before it did: whether it had an effect is not known.
    Failed,
    /// The server refused it with another status.
    Status,
    /// The server refused a call unprocessed (400 with -32020): its header fields are not what the tool asks for now.
    Mismatched,
    /// It was sent, and no whole answer came: whether it had an effect is not known.
    Lost,
    /// The answer is over the limit of a message.
    TooLong,
    /// The answer is not as MCP has it.
    Invalid,
}

/// Why a message has no answer.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) kind: FaultKind,
    pub(super) message: String,
}

impl Failed {
    pub(super) fn new(kind: FaultKind, message: impl Into<String>) -> Failed {
        Failed {
            kind,
            message: message.into(),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let kind = match &error {
            Error::TooLong { .. } => FaultKind::TooLong,
            error if error.is_permanent() => FaultKind::Impossible,
            error if error.was_sent() => FaultKind::Lost,
            _ => FaultKind::Unsent,
        };
        Failed::new(kind, error.to_string())
    }
}

//! The end of a request that has no answer to relay.

use std::time::Duration;

use colibri_http::HttpError;

/// The failure of a message that was to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendError {
    /// The id of the request. `None`: it concerns all.
    pub id: Option<u64>,
    /// Its meaning.
    pub kind: SendErrorKind,
    /// An event of the audit log. What the server said is cut and escaped, and may hold what it was
    /// given.
    pub message: String,
}

/// The meaning of a [`SendError`] for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendErrorKind {
    /// Nothing was sent; it may go another time.
    Unsent,
    /// Nothing was sent, and nothing will be until somebody changes something.
    Impossible,
    /// The server refused it unprocessed (429, 503) and names the time to wait, or does not
    /// (`None`).
    Busy(Option<Duration>),
    /// The server forgot the session (404): it processed nothing, and begins anew with who comes
    /// next.
    Forgotten,
    /// The server wants to know who asks, or does not allow it (401, 403).
    Denied,
    /// The server failed at it (5xx, 408), or what stands before it did: whether it had an effect
    /// is not known.
    Failed,
    /// The server refused it with another status.
    Status,
    /// The server refused a call unprocessed (400 with -32020): its header fields are not what the
    /// tool asks for now.
    Mismatched,
    /// It was sent, and no whole answer came: whether it had an effect is not known.
    Lost,
    /// The answer is over the limit of a message.
    TooLong,
    /// The answer is not as MCP has it.
    Invalid,
}

/// The reason for which a message has no answer.
#[derive(Debug)]
pub(super) struct ExchangeError {
    pub(super) kind: SendErrorKind,
    pub(super) message: String,
}

impl ExchangeError {
    pub(super) fn new(kind: SendErrorKind, message: impl Into<String>) -> ExchangeError {
        ExchangeError {
            kind,
            message: message.into(),
        }
    }
}

impl From<HttpError> for ExchangeError {
    fn from(error: HttpError) -> ExchangeError {
        let kind = match &error {
            HttpError::TooLong { .. } => SendErrorKind::TooLong,
            error if error.is_permanent() => SendErrorKind::Impossible,
            error if error.was_sent() => SendErrorKind::Lost,
            _ => SendErrorKind::Unsent,
        };
        ExchangeError::new(kind, error.to_string())
    }
}

//! Why a request is not passed on.

use hyper::StatusCode;

/// Why a request is not passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status of HTTP.
    pub status: StatusCode,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal {
            status,
            message: message.into(),
        }
    }
}

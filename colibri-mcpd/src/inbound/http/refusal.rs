//! Refusals of requests over HTTP.

use hyper::StatusCode;

use colibri_protocol::{AnswerBody, RpcError};
use colibri_wire::envelope::INVALID_REQUEST;

/// The refusal of a request: the status, and an error for people that belongs to no request id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRefusal {
    /// The status of HTTP.
    pub status: StatusCode,
    /// The error of JSON-RPC.
    pub error: RpcError,
}

impl HttpRefusal {
    /// One that has no other number than that of an invalid request.
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> HttpRefusal {
        HttpRefusal {
            status,
            error: RpcError::new(INVALID_REQUEST, message),
        }
    }

    /// The body that says so.
    pub(super) fn to_body(&self) -> Vec<u8> {
        AnswerBody::Error(self.error.clone()).to_message(None)
    }

    /// The whole response, after which the connection is closed.
    pub(super) fn to_response(&self) -> Vec<u8> {
        let body = self.to_body();
        let mut response = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.status.as_u16(),
            self.status.canonical_reason().unwrap_or_default(),
            body.len()
        )
        .into_bytes();
        response.extend_from_slice(&body);
        response
    }
}

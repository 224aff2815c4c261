//! Refusals of requests to the model.

use std::borrow::Cow;

use colibri_json::JsonFault;
use hyper::StatusCode;

use crate::rules::ModelAllow;

/// Refusals of requests to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRefusal {
    /// The status of HTTP.
    pub status: StatusCode,
    /// The fault, and the remedy.
    pub message: String,
}

impl ModelRefusal {
    /// A refusal with this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> ModelRefusal {
        ModelRefusal {
            status,
            message: message.into(),
        }
    }
}

/// The reason for which a body is not read further.
pub(super) enum BodyRefusal {
    Fault(JsonFault),
    Refused(StatusCode, Cow<'static, str>),
}

impl From<JsonFault> for BodyRefusal {
    fn from(fault: JsonFault) -> BodyRefusal {
        BodyRefusal::Fault(fault)
    }
}

/// A refusal of something that the relay does not pass.
///
/// # Errors
/// Always.
pub(super) fn refused<T>(why: impl Into<Cow<'static, str>>) -> Result<T, BodyRefusal> {
    Err(BodyRefusal::Refused(StatusCode::FORBIDDEN, why.into()))
}

/// A refusal of something that is no request of the interface.
///
/// # Errors
/// Always.
pub(super) fn wrong<T>(why: impl Into<Cow<'static, str>>) -> Result<T, BodyRefusal> {
    Err(BodyRefusal::Refused(StatusCode::BAD_REQUEST, why.into()))
}

/// A refusal of what the entry has to allow.
pub(super) fn needs(needed: &[ModelAllow], why: &str) -> String {
    let names: Vec<&str> = needed.iter().map(|allow| allow.name()).collect();
    format!(
        "{why}; the agent's entry does not allow it (\"allow\" of its \"model\": {})",
        names.join(" or ")
    )
}

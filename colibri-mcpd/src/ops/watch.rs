//! `colibri/watch`: a stream of one topic.
//!
//! The request is acknowledged by its first notification, `colibri/watching`, followed by others
//! until its client cancels it, which has no answer, or goes away, or until the daemon ends it with
//! a result that says why. A client that reads slowly gets less, is told so by `colibri/dropped`,
//! and never holds up anybody.

use colibri_api::WatchRequest;

use super::method::{DaemonMethod, MethodCall};
use super::{watch_messages, watch_notices, watch_tasks};

/// `colibri/watch`.
pub(super) struct WatchMethod;

impl DaemonMethod for WatchMethod {
    const NAME: &'static str = "colibri/watch";
    type Parameters = WatchRequest;

    /// Tasks are told to whoever sees them.
    fn is_for_operators(asked: &WatchRequest) -> bool {
        !matches!(asked, WatchRequest::Tasks { .. })
    }

    fn start(asked: WatchRequest, request: MethodCall) {
        match asked {
            WatchRequest::Notices => watch_notices::watch(request),
            WatchRequest::Tasks { task } => watch_tasks::watch(task, request),
            WatchRequest::Messages { server, full } => {
                watch_messages::watch(&server, full, request)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::method::read_parameters;
    use super::*;
    use colibri_wire::Json;

    #[test]
    fn parameters_are_read_strictly() {
        let read =
            |params: &str| read_parameters::<WatchMethod>(Json::parse(params.as_bytes()).ok());
        let server = "git".to_owned();
        for (params, asked) in [
            (r#"{"topic":"notices","_meta":{}}"#, WatchRequest::Notices),
            (r#"{"topic":"tasks"}"#, WatchRequest::Tasks { task: None }),
            (
                r#"{"topic":"tasks","task":3}"#,
                WatchRequest::Tasks { task: Some(3) },
            ),
            (
                r#"{"topic":"messages","server":"git","full":true}"#,
                WatchRequest::Messages { server, full: true },
            ),
        ] {
            assert_eq!(read(params).unwrap(), asked, "{params}");
        }
        for wrong in [
            r#"{}"#,
            r#"{"topic":"calls"}"#,
            r#"{"topic":"tasks","task":"3"}"#,
            r#"{"topic":"messages"}"#,
            r#"{"topic":"messages","server":1}"#,
            r#"{"topic":"messages","server":"git","full":1}"#,
            "[]",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

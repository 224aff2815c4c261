//! `colibri/end`: the user of a private daemon ends it.

use serde::de::IgnoredAny;
use serde_json::json;

use super::method::{DaemonMethod, MethodCall, check_operator};
use crate::relay::CallOutcome;
use colibri_protocol::{Code, Failure};

/// `colibri/end`: the daemon ends, as at SIGTERM. A service is ended by whoever started it.
pub(super) struct EndMethod;

impl DaemonMethod for EndMethod {
    const NAME: &'static str = "colibri/end";
    /// It ends although nothing can be recorded: a full disk keeps nobody from removing it.
    const UNRECORDED: bool = true;
    const STRICT: bool = true;
    type Parameters = IgnoredAny;

    fn start(_: IgnoredAny, request: MethodCall) {
        let daemon = request.daemon.clone();
        let refusal = match check_operator(&daemon, &request.call.client) {
            Err(failure) => Some(failure),
            Ok(_) if daemon.config.consent.is_none() => Some(
                Failure::new(
                    Code::PolicyDenied,
                    "this daemon is a service, and no client ends it",
                )
                .by_rule("private")
                .advising("stop the service"),
            ),
            Ok(_) => None,
        };
        match refusal {
            Some(failure) => request.finish(CallOutcome::Failed(failure)),
            None => {
                request.finish(CallOutcome::result(json!({}).to_string().into_bytes()));
                daemon.told_to_end.notify_one();
            }
        }
    }
}

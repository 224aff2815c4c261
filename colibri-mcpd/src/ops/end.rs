//! `colibri/end`: the user of a private daemon ends it.

use serde::de::IgnoredAny;
use serde_json::json;

use super::method::{DaemonMethod, MethodCall};
use crate::relay::CallOutcome;
use colibri_protocol::{Code, Failure};

/// `colibri/end`: the daemon ends, as at SIGTERM. A service is ended by whoever started it.
pub(super) struct EndMethod;

impl DaemonMethod for EndMethod {
    const NAME: &'static str = "colibri/end";
    const FOR_OPERATORS: bool = true;
    /// It ends although nothing can be recorded: a full disk keeps nobody from removing it.
    const UNRECORDED: bool = true;
    const STRICT: bool = true;
    type Parameters = IgnoredAny;

    fn start(_: IgnoredAny, request: MethodCall) {
        let daemon = request.daemon.clone();
        if daemon.config.consent.is_none() {
            let why = "this daemon is a service, and no client ends it";
            let failure = Failure::new(Code::PolicyDenied, why)
                .by_rule("private")
                .advising("stop the service");
            return request.finish(CallOutcome::Failed(failure));
        }
        request.finish(CallOutcome::result(json!({}).to_string().into_bytes()));
        daemon.told_to_end.notify_one();
    }
}

//! `colibri/servers`: the external servers that the caller may see, as the tool of that name shows
//! them to a model.

use colibri_api::Servers;
use serde::de::IgnoredAny;

use super::method::{DaemonMethod, MethodCall};
use super::status::CallerFacts;
use crate::relay::CallOutcome;
use colibri_protocol::{Code, Failure};

/// `colibri/servers`.
pub(super) struct ListServers;

impl DaemonMethod for ListServers {
    const NAME: &'static str = "colibri/servers";
    const IS_LOOK: bool = true;
    type Parameters = IgnoredAny;

    fn start(_: IgnoredAny, request: MethodCall) {
        request.finish_blocking(|daemon, call| {
            let servers = CallerFacts::new(daemon.clone(), call.client.clone()).servers();
            match serde_json::to_vec(&Servers { servers }) {
                Ok(servers) => CallOutcome::result(servers),
                Err(error) => CallOutcome::Failed(Failure::new(Code::Internal, error.to_string())),
            }
        });
    }
}

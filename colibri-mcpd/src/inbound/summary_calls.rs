//! Calls that are made for summaries of tools: as the daemon's own user.

use std::sync::Arc;

use super::internal_client;
use crate::daemon::Daemon;
use crate::summaries::{CallFuture, InternalCalls};
use colibri_policy::{Caller, Road};

/// Makes calls for summaries.
pub struct SummaryCalls(Arc<Daemon>);

impl SummaryCalls {
    /// In this daemon.
    pub fn new(daemon: &Arc<Daemon>) -> Arc<SummaryCalls> {
        Arc::new(SummaryCalls(daemon.clone()))
    }
}

impl InternalCalls for SummaryCalls {
    fn call(&self, tool: &str, arguments: &str) -> CallFuture<'_> {
        let (tool, arguments) = (tool.to_owned(), arguments.to_owned());
        Box::pin(async move {
            let call = (&*tool, &*arguments);
            let answer = internal_client::call(
                self.0.clone(),
                Caller::of_daemon(),
                ("colibri-summaries", Road::Summary),
                call,
            );
            answer.await.map_err(|error| error.to_string())
        })
    }
}

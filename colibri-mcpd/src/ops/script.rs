//! Calls of `colibri_run_script`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::status::CallerFacts;
use crate::builtin;
use crate::daemon::Daemon;
use crate::relay::{Call, Chain};

/// The most known tools that a script is told: all others are there under their names, too.
const MAX_TOLD: usize = 2000;

/// Runs a script for a call.
pub(super) fn run(daemon: Arc<Daemon>, chain: Arc<Chain>, call: Box<Call>) {
    // All tools are looked at: not on a thread that serves clients.
    tokio::task::spawn_blocking(move || {
        let request = match builtin::parse_run_script(call.arguments()) {
            Ok(request) => request,
            Err(error) => return chain.finish(vec![(call, error.outcome().into())]),
        };
        let facts = CallerFacts::new(daemon.clone(), call.client.clone());
        let mut tools: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for tool in facts.offered().tools.into_iter().take(MAX_TOLD) {
            tools.entry(tool.server).or_default().push(tool.tool);
        }
        daemon
            .scripts
            .run(&chain, call, (request.script, request.timeout_s), tools);
    });
}

//! Calls that schedules make: for the person who created the schedule.

use std::sync::Arc;

use serde_json::Value;
use tokio::runtime::Handle;

use super::internal_client;
use crate::board::ScheduledToolCaller;
use crate::daemon::Daemon;
use colibri_policy::{Caller, Road};

/// Makes calls for schedules.
pub struct ScheduledCalls {
    daemon: Arc<Daemon>,
    runtime: Handle,
}

impl ScheduledCalls {
    /// On the runtime that it is made on.
    pub fn new(daemon: &Arc<Daemon>) -> Arc<ScheduledCalls> {
        Arc::new(ScheduledCalls {
            daemon: daemon.clone(),
            runtime: Handle::current(),
        })
    }
}

impl ScheduledToolCaller for ScheduledCalls {
    fn call(&self, person: u32, tool: &str, arguments: &str, done: Box<dyn FnOnce(&str) + Send>) {
        let (daemon, tool, arguments) =
            (self.daemon.clone(), tool.to_owned(), arguments.to_owned());
        self.runtime.spawn(async move {
            let outcome = match Caller::of_account(person) {
                Ok(caller) => {
                    let call = (&*tool, &*arguments);
                    let client = ("colibri-schedule", Road::Schedule);
                    let answer = internal_client::call(daemon, caller, client, call).await;
                    answer.map_or_else(|error| error.to_string(), |message| outcome(&message))
                }
                Err(error) => format!("{error:#}"),
            };
            // The outcome is written to the store: not on a thread that serves clients.
            let _ = tokio::task::spawn_blocking(move || done(&outcome)).await;
        });
    }
}

/// The outcome, in a few words.
fn outcome(message: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let result = &message["result"];
    match (message.get("error"), result["isError"] == true) {
        (Some(error), _) => format!("failed: {}", text(&error["message"])),
        (None, true) => format!("failed: {}", text(&result["content"][0]["text"])),
        (None, false) => "called".to_owned(),
    }
}

//! Notifications that a process was asked to send.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use colibri_peer::Outbox;
use colibri_protocol::RpcError;
use colibri_protocol::logging::Level;
use colibri_protocol::rpc_error::INTERNAL_ERROR;
use colibri_protocol::subscription::SubscriptionFilter;
use colibri_wire::Json;

/// The notifications that a process was asked to send.
#[derive(Default)]
pub(super) struct ProcessSubscriptions {
    /// The resources that it is subscribed to.
    pub(super) uris: BTreeSet<Box<str>>,
    /// The `subscriptions/listen` of a modern one.
    pub(super) listening: Option<(u64, SubscriptionFilter)>,
    pub(super) acknowledged: Option<oneshot::Sender<Result<SubscriptionFilter, RpcError>>>,
    /// The level of log messages that each client's session wants, and where a legacy one gets
    /// those of no call.
    pub(super) levels: BTreeMap<u64, (Level, Option<Arc<Outbox>>)>,
    /// The sessions that see the server without a prefix, and where each gets what it sends of
    /// `claude/channel`.
    pub(super) channels: BTreeMap<u64, Arc<Outbox>>,
    /// The one that a legacy server was told last.
    pub(super) level: Option<Level>,
    /// The `subscriptions/listen` about tasks, each for a client.
    pub(super) tasks: BTreeMap<u64, TaskListener>,
}

/// A client that listens to what becomes of tasks.
pub(super) struct TaskListener {
    pub(super) uid: u32,
    pub(super) outbox: Arc<Outbox>,
    /// The id of its `subscriptions/listen`, as it is written.
    pub(super) subscription: Box<str>,
    /// Receives the subscriptions that the server honours, by its own ids.
    pub(super) acknowledged: Option<oneshot::Sender<Vec<String>>>,
}

impl ProcessSubscriptions {
    /// The server answers the `subscriptions/listen` with this number, which is over with that.
    /// `false`: it is none.
    pub(super) fn is_over(&mut self, number: u64, error: Option<Json<'_>>) -> bool {
        if self.tasks.remove(&number).is_some() {
            return true;
        }
        if self.listening.as_ref().is_none_or(|(of, _)| *of != number) {
            return false;
        }
        self.listening = None;
        self.uris.clear();
        if let (Some(waiting), Some(error)) = (self.acknowledged.take(), error) {
            let _ = waiting.send(Err(as_error(error)));
        }
        true
    }
}

/// A server's error as it is answered to a client.
pub(super) fn as_error(error: Json<'_>) -> RpcError {
    let code = error.get("code").and_then(|code| code.text().parse().ok());
    let message = error.get("message").and_then(|message| message.as_str());
    RpcError::new(
        code.unwrap_or(INTERNAL_ERROR),
        message.unwrap_or_default().into_owned(),
    )
}

//! Clients that listen to what becomes of tasks: a `subscriptions/listen` of a client is one at
//! each process that has some of them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::process_subscriptions::TaskListener;
use super::session::ServerSession;
use crate::relay::{Client, SubscriptionGuard};
use colibri_protocol::subscription::SubscriptionFilter;
use colibri_protocol::tasks::{UpstreamTask, told_edits};
use colibri_protocol::upstream;
use colibri_wire::Json;

/// The time in which a server must say which subscriptions it honours.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most subscriptions of one process.
const MAX_LISTENS: usize = 1_000;

/// Ends the subscription at the process when it is dropped.
struct TaskListenGuard {
    session: Weak<ServerSession>,
    number: u64,
}

impl Drop for TaskListenGuard {
    fn drop(&mut self) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        let mut state = session.state();
        if state.watching.tasks.remove(&self.number).is_some() {
            session.push(&upstream::cancelled(self.number, "nobody listens any more"));
        }
    }
}

impl ServerSession {
    /// Has the server tell a client of tasks, which are this server's own ids: those that it
    /// honours, and what lasts as long as it is told. `None`: of none.
    pub async fn listen_to_tasks(
        self: &Arc<Self>,
        client: &Client,
        subscription: &str,
        own: Vec<String>,
    ) -> Option<(Vec<String>, SubscriptionGuard)> {
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut state = self.state();
            if state.ending.is_some() || state.watching.tasks.len() >= MAX_LISTENS {
                return None;
            }
            let number = state.pending.reserve()?;
            let listener = TaskListener {
                uid: client.caller.uid,
                outbox: client.outbox.clone(),
                subscription: subscription.into(),
                acknowledged: Some(sender),
            };
            state.watching.tasks.insert(number, listener);
            self.push(&upstream::listen_to_tasks(number, own));
            state.pending.give_back(number);
            number
        };
        let listening = Box::new(TaskListenGuard {
            session: Arc::downgrade(self),
            number,
        });
        let honoured = timeout(PATIENCE, receiver).await.ok()?.ok()?;
        (!honoured.is_empty()).then_some((honoured, listening as SubscriptionGuard))
    }

    /// The server says which tasks it tells of. `false`: that is not what it was asked under this
    /// number.
    pub(super) fn tasks_acknowledged(&self, number: u64, honoured: &SubscriptionFilter) -> bool {
        let mut state = self.state();
        let Some(listener) = state.watching.tasks.get_mut(&number) else {
            return false;
        };
        if let Some(waiting) = listener.acknowledged.take() {
            let _ = waiting.send(honoured.tasks_told.clone());
        }
        true
    }

    /// Notifies the listening client of a task's outcome.
    pub(super) fn task_told(self: &Arc<Self>, number: u64, frame: &Bytes, params: Json<'_>) {
        let task = match UpstreamTask::read(params) {
            Ok(task) => task,
            Err(why) => return self.complain(&format!("told of a task: {why}")),
        };
        let state = self.state();
        let Some(listener) = state.watching.tasks.get(&number) else {
            return;
        };
        // What was never told to this user is no task of theirs.
        let Some(ours) = self
            .spec
            .context
            .tasks()
            .known(self.number, listener.uid, &task)
        else {
            return;
        };
        // What a client does not read it can ask for.
        if listener.outbox.over_since().is_none() {
            let edits = told_edits(params, &task, &ours, &listener.subscription);
            listener.outbox.push_edited(frame, &edits);
        }
    }
}

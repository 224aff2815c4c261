//! An answer that is a stream: notifications until its client cancels the request, goes away, or
//! the daemon ends it.

use std::sync::Arc;
use std::time::Duration;

use colibri_api::{Task, WatchLagged, WatchSubscribed, WatchedServer};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::frames::{notification, raw};
use super::method::MethodCall;
use crate::daemon::Daemon;
use crate::daemon::connections::stream_ended;
use crate::relay::{CallOutcome, Chain, Client, SuspendedCall};
use colibri_protocol::AnswerBody;

/// Bytes queued for a client from which on it gets no more until it has read.
const AHEAD: usize = 1024 * 1024;
/// The interval after which a client that is behind is looked at again.
const LOOK: Duration = Duration::from_millis(20);

/// A streaming answer.
pub(super) struct AnswerStream {
    /// The server that has it.
    pub(super) daemon: Arc<Daemon>,
    chain: Arc<Chain>,
    /// The notified client.
    pub(super) client: Arc<Client>,
    /// The call that it answers.
    pub(super) held: Arc<SuspendedCall>,
    id: Box<str>,
}

impl AnswerStream {
    /// Begins to answer a call so.
    pub(super) fn begin(request: MethodCall) -> AnswerStream {
        let MethodCall {
            daemon,
            chain,
            call,
        } = request;
        let (client, id) = (call.client.clone(), Box::<str>::from(call.id_text()));
        let held = SuspendedCall::hold(&chain, call);
        daemon.connections.hold(&client, &held);
        AnswerStream {
            daemon,
            chain,
            client,
            held,
            id,
        }
    }

    /// Waits until the client has read most of what it was sent. `false`: the stream is over.
    pub(super) async fn has_room(&self) -> bool {
        while self.client.outbox.queued() > AHEAD {
            tokio::select! {
                biased;
                () = self.held.over() => return false,
                () = sleep(LOOK) => {}
            }
        }
        true
    }

    /// Queues a notification. `false`: the client is gone.
    pub(super) fn send(&self, method: &str, params: &impl Serialize) -> bool {
        self.push(&notification(method, params))
    }

    /// Queues a message that is written already. `false`: the client is gone.
    pub(super) fn push(&self, message: &[u8]) -> bool {
        self.client.outbox.push(message)
    }

    /// Says that the watch has begun, and how what is watched is now. `false`: the client is gone.
    pub(super) fn tell_subscribed(
        &self,
        task: Option<Task>,
        server: Option<WatchedServer>,
    ) -> bool {
        let watch = self.id();
        self.send(
            "colibri/watching",
            &WatchSubscribed {
                watch,
                task,
                server,
            },
        )
    }

    /// Says that so many notifications were left out. `false`: the client is gone.
    pub(super) fn tell_dropped(&self, dropped: Option<u64>) -> bool {
        let watch = self.id();
        self.send("colibri/dropped", &WatchLagged { watch, dropped })
    }

    /// Ends the stream unless its client is an operator still: the right can be taken away. `true`:
    /// it has ended.
    pub(super) fn end_unless_operator(&self) -> bool {
        let rights = self.daemon.chain.rules.rights(&self.client);
        let is_refused = rights.check_operator().is_err();
        if is_refused {
            self.end("you are no operator any more");
        }
        is_refused
    }

    /// Ends the stream and says why.
    pub(super) fn end(&self, why: &str) {
        self.answer(stream_ended(why));
    }

    /// Ends the stream with this answer.
    pub(super) fn answer(&self, answer: AnswerBody) {
        if let Some(call) = self.held.take() {
            self.chain.finish(vec![(
                call,
                CallOutcome::Own {
                    answer,
                    failed: false,
                },
            )]);
        }
    }

    /// The id of the request, as JSON.
    pub(super) fn id(&self) -> Box<RawValue> {
        raw(&self.id)
    }
}

//! A server's reactions to events of its processes: calls that were not sent or are lost, changed lists, ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tracing::debug;

use super::breaker::Breaker;
use super::handshake;
use super::retry;
use super::server::HostedServer;
use super::session::{Crash, ServerSession, SessionObserver};
use super::slots::ProcessSlot;
use super::state::ProcessKey;
use crate::relay::{Call, CallOutcome, SuspendedCall};
use colibri_protocol::logging::Level;
use colibri_protocol::{AttemptFailure, Code, Failure, FailureCause, FailureClass, Feature, Features, Method};
use colibri_wire::Json;

/// The longest time for a burst of changes to a server's tools before they are read.
const SETTLE: Duration = Duration::from_millis(200);

impl HostedServer {
    /// Reads the lists of a process that changed, until they are as it says them now. Who begins it reads them alone.
    pub(super) fn read_lists(self: &Arc<Self>, session: Arc<ServerSession>) {
        let mut features = session.definitions.to_read();
        if features.is_empty() {
            return;
        }
        let server = self.clone();
        tokio::spawn(async move {
            while !features.is_empty() && session.is_open() {
                let said = handshake::read_again(&session, features, server.spec.limits.start).await;
                if server.offer.learned(&session, said).await.is_err() {
                    return;
                }
                // A server that changes them without end is not read without end.
                tokio::time::sleep(SETTLE).await;
                features = session.definitions.to_read();
            }
        });
    }
}

/// The events of one process, reported to its server.
pub(super) struct Supervision {
    pub(super) server: Arc<HostedServer>,
    /// The callers of the process.
    pub(super) key: ProcessKey,
}

impl Supervision {
    /// Sends a call once more, after this wait.
    fn call_later(&self, call: Box<Call>, failed: AttemptFailure, wait: Duration) {
        self.call_after(call, failed, wait, tokio::time::sleep(wait));
    }

    /// Sends a call once more, after something, of which so much is a wait, since its last attempt failed so; it can be
    /// cancelled until then.
    fn call_after(
        &self,
        mut call: Box<Call>,
        failed: AttemptFailure,
        wait: Duration,
        after: impl Future<Output = ()> + Send + 'static,
    ) {
        let (server, key) = (self.server.clone(), self.key);
        let chain = server.spec.context.parts.chain.clone();
        if !call.client.unsent(&call.id) {
            return chain.finish(vec![(call, CallOutcome::Cancelled)]);
        }
        chain.retry(&mut call, failed, wait);
        tokio::spawn(async move {
            if let Some(call) = SuspendedCall::until(after, &chain, call).await {
                server.call_later(key, call).await;
            }
        });
    }
}

impl Supervision {
    /// Notes that a call is given up, whose failure could pass: it has no further attempt, or the breaker is open. False if
    /// it goes on.
    fn gives_up(&self, call: &mut Call, has_attempts: bool, failed: &AttemptFailure) -> bool {
        let mut inner = self.server.inner();
        let uid = call.client.caller.uid;
        if has_attempts && !inner.breakers.get(&uid).is_some_and(Breaker::is_open) {
            return false;
        }
        let is_open = inner.breakers.entry(uid).or_default().give_up(&failed.code);
        drop(inner);
        call.given_up = true;
        self.server.ailing.store(true, Ordering::Release);
        if is_open {
            self.server.note_state();
        }
        true
    }
}

impl SessionObserver for Supervision {
    fn lists_changed(&self, session: &Arc<ServerSession>, changed: Features) {
        if !session.definitions.changed(changed) {
            return;
        }
        let (server, session) = (self.server.clone(), session.clone());
        tokio::spawn(async move {
            // A burst is read once.
            tokio::time::sleep(SETTLE).await;
            server.read_lists(session);
        });
    }

    fn updated(&self, frame: &Bytes, params: Json<'_>, uri: &str) {
        self.server.updated(self.key, frame, params, uri);
    }

    fn logged(&self, session: &Arc<ServerSession>, frame: &Bytes, level: Level) {
        // Of a process of several users nobody knows whose calls it writes about.
        if self.key.uid().is_some() {
            session.log_message(frame, level);
        }
    }

    fn asks(&self) {
        self.server.offer.seen_to_ask();
    }

    fn unheard(&self, session: &Arc<ServerSession>) {
        self.server.listen_again(self.key, session);
    }

    fn ended(&self, session: &Arc<ServerSession>, crash: Option<Crash>) {
        let mut inner = self.server.inner();
        if matches!(inner.slots.get(&self.key), Some(ProcessSlot::Ready(current)) if Arc::ptr_eq(current, session)) {
            inner.slots.remove(&self.key);
            if let Some(Crash { reason, wrote }) = crash {
                let health = inner.health.entry(self.key.uid()).or_default();
                health.failed(&reason, wrote, FailureCause::Ours(Code::ServerDied));
                self.server.ailing.store(true, Ordering::Release);
            }
        }
        drop(inner);
        self.server.freed.notify_waiters();
        self.server.note_state();
        debug!(server = &*self.server.spec.id, process = session.number, "process gone");
        self.server.spec.context.process_gone();
        if !self.server.is_over() {
            self.server.tell_again(self.key);
        }
    }

    fn again(&self, call: Box<Call>) {
        self.server.send(call);
    }

    fn failed(&self, mut call: Box<Call>, failed: AttemptFailure, wait: Option<Duration>) -> Result<(), Box<Call>> {
        let may_pass = failed.class == Some(FailureClass::Transient);
        if self.server.is_over() || may_pass && self.gives_up(&mut call, wait.is_some(), &failed) {
            return Err(call);
        }
        match wait {
            Some(wait) => {
                self.call_later(call, failed, wait);
                Ok(())
            }
            None => Err(call),
        }
    }

    fn unsent(&self, mut call: Box<Call>, failure: Failure, after: Option<Duration>) {
        let server = &self.server;
        let wait = after.unwrap_or_else(|| retry::wait_after(call.attempt, server.spec.context.next_retry()));
        let left = (call.entered + server.spec.limits.call).saturating_duration_since(Instant::now());
        let failed = FailureCause::Ours(failure.code).attempt();
        let has_attempts = call.attempt < server.spec.entry.attempts && wait < left;
        // A session that the server forgot is no failure of it: the next attempt opens another.
        let is_forgotten = has_attempts && wait.is_zero();
        if server.is_over() || !is_forgotten && self.gives_up(&mut call, has_attempts, &failed) {
            let failure = match after.filter(|after| !after.is_zero()) {
                Some(after) => failure.advising(format!("call it again in {} s", after.as_secs().max(1))),
                None => failure,
            };
            let chain = &server.spec.context.parts.chain;
            return chain.finish(vec![(call, CallOutcome::Failed(failure))]);
        }
        self.call_later(call, failed, wait);
    }

    fn mismatched(&self, session: &Arc<ServerSession>, call: Box<Call>, failure: Failure) {
        let server = self.server.clone();
        if call.attempt > 1 || call.attempt >= server.spec.entry.attempts || server.is_over() {
            let chain = &server.spec.context.parts.chain;
            return chain.finish(vec![(call, CallOutcome::Failed(failure))]);
        }
        let session = session.clone();
        // The reading goes on if the call is cancelled meanwhile.
        let read = tokio::spawn(async move {
            if !session.definitions.changed(Feature::Tool.into()) {
                // Somebody reads them already.
                return tokio::time::sleep(SETTLE).await;
            }
            let features = session.definitions.to_read();
            let said = handshake::read_again(&session, features, server.spec.limits.start).await;
            if server.offer.learned(&session, said).await.is_ok() {
                server.read_lists(session);
            }
        });
        let failed = FailureCause::Ours(failure.code).attempt();
        self.call_after(call, failed, Duration::ZERO, async { drop(read.await) });
    }

    fn spoiled(&self, mut call: Box<Call>, cause: FailureCause) -> Result<(), Box<Call>> {
        let server = &self.server;
        // Who only reads is asked again where the process was lost, or the server failed. What a server answers is its
        // answer, and a time-out is said at once: each further attempt would take seconds, and its progress be told twice.
        let is_lost = matches!(cause, FailureCause::Ours(Code::ServerDied | Code::ServerFailed));
        let is_said = call.method != Some(Method::ToolsCall) && !is_lost;
        if is_said || !call.target.is_idempotent() || server.is_over() {
            return Err(call);
        }
        let goes_on = retry::goes_on(&call, cause, server.spec.entry.attempts);
        // What a server answers, be it an error, shows that it works.
        let may_pass = matches!(cause, FailureCause::Ours(_)) && cause.class() == FailureClass::Transient;
        if !goes_on && !may_pass || may_pass && self.gives_up(&mut call, goes_on, &cause.attempt()) {
            return Err(call);
        }
        let wait = retry::wait_after(call.attempt, server.spec.context.next_retry());
        self.call_later(call, cause.attempt(), wait);
        Ok(())
    }

    fn makes_place(&self) {
        let Some(uid) = self.key.uid() else { return };
        let inner = self.server.inner();
        let mut of_users = BTreeMap::<u32, Vec<&Arc<ServerSession>>>::new();
        for (key, session) in inner.running() {
            of_users.entry(key.uid().unwrap_or(uid)).or_default().push(session);
        }
        // One at a time, and only for a user who has none.
        if of_users.contains_key(&uid) || of_users.values().flatten().any(|session| !session.is_open()) {
            return;
        }
        let most = of_users
            .values()
            .filter(|own| own.len() > 1)
            .max_by_key(|own| own.len());
        if let Some(session) = most.and_then(|own| own.iter().min_by_key(|session| session.in_flight())) {
            session.drain();
        }
    }

    fn answered(&self, given_up: bool) {
        if self.server.ailing.load(Ordering::Acquire) {
            let mut inner = self.server.inner();
            inner.health.remove(&self.key.uid());
            // A process that answers one works for all whom it serves.
            match self.key.uid() {
                _ if given_up => {}
                Some(uid) => drop(inner.breakers.remove(&uid)),
                None => inner.breakers.clear(),
            }
            let is_ailing = !inner.health.is_empty() || !inner.breakers.is_empty();
            self.server.ailing.store(is_ailing, Ordering::Release);
        }
    }
}

//! A server's reactions to events of its processes: calls that were not sent or are lost, changed
//! lists, ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use super::breaker::Breaker;
use super::handshake;
use super::retry;
use super::server::HostedServer;
use super::session::{CallFailure, Crash, ServerSession, SessionEvent, SessionObserver};
use super::slots::ProcessSlot;
use super::state::ProcessKey;
use crate::relay::{Call, CallOutcome, SuspendedCall};
use colibri_protocol::{
    AttemptFailure, Code, FailureCause, FailureClass, Feature, Features, Method,
};

/// The longest time for a burst of changes to a server's tools before they are read.
const SETTLE: Duration = Duration::from_millis(200);

impl HostedServer {
    /// Reads the lists of a process that changed, until they are as it says them now. Who begins it
    /// reads them alone.
    pub(super) fn read_lists(self: &Arc<Self>, session: Arc<ServerSession>) {
        let mut features = session.definitions.to_read();
        if features.is_empty() {
            return;
        }
        let server = self.clone();
        tokio::spawn(async move {
            while !features.is_empty() && session.is_open() {
                let said =
                    handshake::read_again(&session, features, server.spec.limits.start).await;
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

impl HostedServer {
    /// The handler of the events of a process for these callers.
    pub(super) fn observer(self: &Arc<Self>, key: ProcessKey) -> SessionObserver {
        let supervision = Supervision {
            server: self.clone(),
            key,
        };
        Arc::new(move |session, event| supervision.handle(session, event))
    }

    /// Has a user who has several processes of this server give one up, for a user who has none.
    pub(super) fn make_place(&self, key: ProcessKey) {
        let Some(uid) = key.uid() else { return };
        let inner = self.inner();
        let mut of_users = BTreeMap::<u32, Vec<&Arc<ServerSession>>>::new();
        for (key, session) in inner.running() {
            of_users
                .entry(key.uid().unwrap_or(uid))
                .or_default()
                .push(session);
        }
        // One at a time, and only for a user who has none.
        if of_users.contains_key(&uid)
            || of_users
                .values()
                .flatten()
                .any(|session| !session.is_open())
        {
            return;
        }
        let most = of_users
            .values()
            .filter(|own| own.len() > 1)
            .max_by_key(|own| own.len());
        if let Some(session) =
            most.and_then(|own| own.iter().min_by_key(|session| session.in_flight()))
        {
            session.drain();
        }
    }
}

/// One process and its server, which handles the events of the process.
struct Supervision {
    server: Arc<HostedServer>,
    /// The callers of the process.
    key: ProcessKey,
}

impl Supervision {
    /// Handles an event. Returns the call that failed if no attempt follows.
    fn handle(&self, session: &Arc<ServerSession>, event: SessionEvent<'_>) -> Option<Box<Call>> {
        match event {
            SessionEvent::ListsChanged(changed) => self.lists_changed(session, changed),
            SessionEvent::ResourceUpdated { frame, params, uri } => {
                self.server.updated(self.key, frame, params, uri)
            }
            // Nobody knows about whose calls a process of several users writes.
            SessionEvent::LogMessage { frame, level } if self.key.uid().is_some() => {
                session.log_message(frame, level)
            }
            // A process of several users: nothing says whose it is.
            SessionEvent::ChannelMessage(frame) if self.key.uid().is_some() => {
                session.channel_message(frame)
            }
            SessionEvent::LogMessage { .. } | SessionEvent::ChannelMessage(_) => {}
            SessionEvent::ElicitationRequest => self.server.offer.seen_to_ask(),
            SessionEvent::SubscriptionEnded => self.server.listen_again(self.key, session),
            SessionEvent::Answered { given_up } => self.answered(given_up),
            SessionEvent::Ended(crash) => self.ended(session, crash),
            SessionEvent::InputComplete(call) => self.server.send(call),
            SessionEvent::CallFailed(call, failure) => {
                return self.retry(session, call, failure).err();
            }
        }
        None
    }

    /// Makes another attempt at a call that failed, if one is due.
    ///
    /// # Errors
    /// The call, if no attempt follows.
    fn retry(
        &self,
        session: &Arc<ServerSession>,
        mut call: Box<Call>,
        failure: CallFailure,
    ) -> Result<(), Box<Call>> {
        if self.server.is_over() {
            return Err(call);
        }
        let (failed, wait) = match failure {
            CallFailure::Reported { failed, wait } => {
                let may_pass = failed.class == Some(FailureClass::Transient);
                if may_pass && self.gives_up(&mut call, wait.is_some(), &failed) {
                    return Err(call);
                }
                (failed, wait)
            }
            CallFailure::Unsent { cause, after } => {
                let wait = after.unwrap_or_else(|| self.wait_after(&call));
                let left = (call.entered + self.server.spec.limits.call)
                    .saturating_duration_since(Instant::now());
                let has_attempts =
                    call.attempt.number < self.server.spec.entry.attempts && wait < left;
                // A session that the server forgot is no failure of it: the next attempt opens
                // another.
                let is_forgotten = has_attempts && wait.is_zero();
                if !is_forgotten && self.gives_up(&mut call, has_attempts, &cause.attempt()) {
                    return Err(call);
                }
                (cause.attempt(), Some(wait))
            }
            CallFailure::Mismatched(cause) => return self.retry_mismatched(session, call, cause),
            CallFailure::Uncertain(cause) => {
                let wait = self.wait_if_uncertain(&mut call, cause);
                (cause.attempt(), wait)
            }
        };
        match wait {
            Some(wait) => {
                self.call_after(call, failed, wait, tokio::time::sleep(wait));
                Ok(())
            }
            None => Err(call),
        }
    }

    /// The wait before another attempt at a call.
    fn wait_after(&self, call: &Call) -> Duration {
        retry::wait_after(call.attempt.number, self.server.spec.context.next_retry())
    }

    /// The wait before another attempt at a call that the server may have processed; `None`: no
    /// attempt follows.
    fn wait_if_uncertain(&self, call: &mut Call, cause: FailureCause) -> Option<Duration> {
        // A call that only reads is made again where the process was lost, or the server failed. An
        // error that a server answers is its answer, and a time-out is reported at once: each
        // further attempt would take seconds, and its progress would be reported twice.
        let is_lost = matches!(
            cause,
            FailureCause::Ours(Code::ServerDied | Code::ServerFailed)
        );
        if call.method != Some(Method::ToolsCall) && !is_lost
            || !call.target.description().is_idempotent
        {
            return None;
        }
        let goes_on = retry::goes_on(call, cause, self.server.spec.entry.attempts);
        // A server that answers, be it with an error, works.
        let may_pass =
            matches!(cause, FailureCause::Ours(_)) && cause.class() == FailureClass::Transient;
        if !goes_on && !may_pass || may_pass && self.gives_up(call, goes_on, &cause.attempt()) {
            return None;
        }
        Some(self.wait_after(call))
    }

    /// Has the server's tools listed, and the call sent again after that.
    fn retry_mismatched(
        &self,
        session: &Arc<ServerSession>,
        call: Box<Call>,
        cause: FailureCause,
    ) -> Result<(), Box<Call>> {
        let server = self.server.clone();
        if call.attempt.number > 1 || call.attempt.number >= server.spec.entry.attempts {
            return Err(call);
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
        let failed = cause.attempt();
        self.call_after(call, failed, Duration::ZERO, async { drop(read.await) });
        Ok(())
    }

    /// Sends a call once more, after something, of which so much is a wait, since its last attempt
    /// failed so; it can be cancelled until then.
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

    /// Notes that a call is given up, whose failure could pass: it has no further attempt, or the
    /// breaker is open. False if it goes on.
    fn gives_up(&self, call: &mut Call, has_attempts: bool, failed: &AttemptFailure) -> bool {
        let mut inner = self.server.inner();
        let uid = call.client.caller.uid;
        if has_attempts && !inner.breakers.get(&uid).is_some_and(Breaker::is_open) {
            return false;
        }
        let is_open = inner.breakers.entry(uid).or_default().give_up(&failed.code);
        drop(inner);
        call.attempt.given_up = true;
        self.server.ailing.store(true, Ordering::Release);
        if is_open {
            self.server.note_state();
        }
        true
    }

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

    fn ended(&self, session: &Arc<ServerSession>, crash: Option<Crash>) {
        let mut inner = self.server.inner();
        if matches!(inner.slots.get(&self.key), Some(ProcessSlot::Ready(current)) if Arc::ptr_eq(current, session))
        {
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
        debug!(
            server = &*self.server.spec.id,
            process = session.number,
            "process gone"
        );
        self.server.spec.context.process_gone();
        if !self.server.is_over() {
            self.server.tell_again(self.key);
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

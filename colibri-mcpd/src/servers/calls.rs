//! Calls to one server: which of its processes gets a call, and what is done where there is none or
//! it takes no more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::breaker::Breaker;
use super::elicitation::exclusive_slots::SlotHolder;
use super::retry::{self, Health};
use super::server::HostedServer;
use super::session::ServerSession;
use super::state::ProcessKey;
use super::tasks::TaskOwner;
use crate::relay::{Call, CallHandler, CallOutcome, Chain, ServerCall, SuspendedCall};
use colibri_protocol::{Askable, Code, Failure, FailureCause, Method, Route, Version};

/// The time beyond a start's limit for which a call waits, so that the start gives the reason of
/// its failure.
const SAYING: Duration = Duration::from_millis(100);

/// The process that has a task; `None`: the task went with it.
pub(crate) fn process_of(task: &TaskOwner) -> Option<Arc<ServerSession>> {
    let process = task.process.clone()?.downcast::<ServerSession>().ok()?;
    (!process.has_ended()).then_some(process)
}

impl CallHandler for HostedServer {
    /// Sends a call to a process for its caller, started if need be, unless the breaker is open. A
    /// call of which no byte was sent is tried again.
    fn handle(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) -> Option<ServerCall> {
        match call.method {
            Some(Method::ResourcesSubscribe | Method::ResourcesUnsubscribe) => {
                self.subscription(call);
            }
            Some(method) if method.route() == Route::Task => self.task_request(call),
            _ => match self.held_off(&call) {
                Some(failure) => chain.finish(vec![(call, CallOutcome::Failed(failure))]),
                None => self.send(call),
            },
        }
        None
    }
}

impl HostedServer {
    /// Sends a request about a task to the process that has it, as long as it is there.
    fn task_request(&self, call: Box<Call>) {
        let tasks = self.spec.context.tasks();
        let task = call
            .name()
            .and_then(|id| tasks.find(call.client.caller.uid, &id));
        let sent = match task.as_ref().and_then(process_of) {
            Some(process) => process.send(call),
            None => Err(call),
        };
        if let Err(call) = sent {
            let message =
                "the task is lost: the process that had it has ended; call the tool again";
            let failure = self.spec.failure(Code::ServerDied, message);
            let outcome = CallOutcome::Failed(failure);
            self.spec.chain().finish(vec![(call, outcome)]);
        }
    }

    /// The answer to a call that is not made: its user's breaker is open, and they had their trial.
    fn held_off(&self, call: &Call) -> Option<Failure> {
        if !self.ailing.load(Ordering::Acquire) {
            return None;
        }
        let mut inner = self.inner();
        let breaker = inner.breakers.get_mut(&call.client.caller.uid)?;
        let wait = breaker.admit().err()?;
        Some(self.left_alone(breaker, wait))
    }

    /// The failure of a call that comes before the next trial, after this wait.
    pub(super) fn left_alone(&self, breaker: &Breaker, wait: Duration) -> Failure {
        let (wait, reason) = (wait.as_secs_f64().ceil(), breaker.reason());
        let failure = self.unavailable(format!("{reason}; your next trial is in {wait} s"));
        failure.advising(format!(
            "call it again in {wait} s; an operator can see what is wrong: colibri-mcp status"
        ))
    }

    /// Sends a call to a process for its caller, started if need be.
    pub(super) fn send(self: &Arc<Self>, call: Box<Call>) {
        let key = self.key(&call.client.caller, call.client.session.owner());
        let is_asked = call.parts.declares || self.offer.asks();
        match is_asked.then(|| self.takes_turns(key, &call)).flatten() {
            Some(whose) => self.call_in_turn(key, whose, call),
            None => self.call_at(key, call),
        }
    }

    /// The kinds of requests that its entry allows.
    pub(super) fn may_ask(&self) -> Askable {
        Askable::named(self.spec.entry.may_ask.iter().map(String::as_str))
    }

    /// True if it matters who else has calls in the process of a call: nothing else says which call
    /// a legacy server's request is about, and a modern client is asked in answer to that call. It
    /// does for those of modern clients always, for others once the server was seen to ask.
    fn takes_turns(&self, key: ProcessKey, call: &Call) -> Option<SlotHolder> {
        let is_modern = || self.spec.version().is_some_and(Version::is_modern);
        let whose = SlotHolder::of(call, self.may_ask());
        let matters = match (key, whose) {
            (ProcessKey::Uid(_) | ProcessKey::Connection(..), SlotHolder::Call) => true,
            (ProcessKey::Uid(_), _) | (ProcessKey::Connection(..), SlotHolder::Nobody) => {
                self.offer.asks()
            }
            _ => false,
        };
        (matters && !is_modern()).then_some(whose)
    }

    /// Sends a call to a process in which it does not matter which call its server asks about. If
    /// all are others' it goes to one that is for all of these: there nobody is asked if it
    /// matters.
    fn call_in_turn(self: &Arc<Self>, key: ProcessKey, whose: SlotHolder, mut call: Box<Call>) {
        let most = self
            .spec
            .context
            .shares()
            .limits()
            .processes_per_user
            .max(1);
        let take = || self.turns.take(key, most - 1, whose);
        let turn = take().or_else(|| {
            self.give_up_oldest(key);
            take()
        });
        let Some(turn) = turn else {
            return self.call_at(key.beside(most - 1), call);
        };
        let key = turn.key;
        if let Some(session) = self.ready(key).filter(|session| session.has_left(whose)) {
            // What the server still asks about a call that is over would be taken to be about this
            // one.
            session.drain();
        }
        call.attempt.place = Some(Box::new(turn));
        self.call_at(key, call);
    }

    /// Gives up the call that is held longest in the processes beside this one, if it had its time:
    /// another call needs a process.
    fn give_up_oldest(&self, first: ProcessKey) {
        let sessions = self
            .sessions()
            .into_iter()
            .filter(|(key, _)| key.is_beside(first));
        let held = sessions.filter_map(|(_, session)| {
            let (since, ticket) = session.oldest_held()?;
            Some((since, ticket, session))
        });
        let patience = self.spec.limits.call;
        let oldest = held.min_by_key(|(since, ..)| *since);
        let Some((_, ticket, session)) = oldest.filter(|(since, ..)| since.elapsed() >= patience)
        else {
            return;
        };
        let message = format!(
            "the call was given up: it was not answered for {} ms (timeout_ms), and another call needed its process \
             (limits.processes_per_user); call again",
            patience.as_millis()
        );
        let failure = Failure::new(Code::AskFailed, message).of_server(&*self.spec.id);
        session.give_up(
            &ticket,
            "nobody answered, and another call needs the process",
            Some(&failure),
        );
        session.drain();
    }

    /// Sends a call to this process, started if need be.
    fn call_at(self: &Arc<Self>, key: ProcessKey, call: Box<Call>) {
        let call = match self.ready(key) {
            None => call,
            Some(session) => match self.give(&session, call) {
                Ok(()) => return,
                Err(call) => call,
            },
        };
        tokio::spawn(self.clone().call_later(key, call));
    }

    /// Gives a call to a process, unless the process says something of what is asked for that is
    /// not approved. The call is given back if the process takes no more.
    fn give(&self, session: &Arc<ServerSession>, call: Box<Call>) -> Result<(), Box<Call>> {
        let described = call.target.description();
        let (feature, name) = (described.feature, &*described.operation);
        let is_defined = call.method.is_some_and(Method::may_ask_back);
        let against = || session.definitions.against(&self.spec.id, feature, name);
        let Some(failure) = is_defined.then(against).flatten() else {
            return session.send(call);
        };
        if !session.is_open() {
            return Err(call);
        }
        // A process asked later says what is approved: this one has fallen behind, and the next
        // call is not for it.
        if self.offer.definitions().1.of(feature, name).is_approved() {
            session.drain();
        }
        self.spec
            .context
            .parts
            .chain
            .finish(vec![(call, CallOutcome::Failed(failure))]);
        Ok(())
    }

    /// Gives a call to a process, started if need be.
    pub(super) async fn call_later(self: Arc<Self>, key: ProcessKey, call: Box<Call>) {
        let server = self.clone();
        self.with_process(key, call, move |session, call| server.give(session, call))
            .await;
    }

    /// Has a process for a call, started if need be, and does `then` with both, which gives the
    /// call back if the process takes no more. A start that failed is tried again, as often as the
    /// entry says and within the start limit of the call; once alone where the server failed
    /// before.
    pub(crate) async fn with_process(
        self: Arc<Self>,
        key: ProcessKey,
        mut call: Box<Call>,
        then: impl Fn(&Arc<ServerSession>, Box<Call>) -> Result<(), Box<Call>>,
    ) {
        let chain = &self.spec.context.parts.chain;
        let until = Instant::now() + self.spec.limits.start;
        let is_half_open = call.attempt.number == 1 && self.inner().health.contains_key(&key.uid());
        loop {
            if call.client.is_cancelled(&call.id) {
                return chain.finish(vec![(call, CallOutcome::Cancelled)]);
            }
            // A start that ends at its own limit says why.
            let opened = timeout_at(until + SAYING, self.open(key, &call.client)).await;
            let failure = match opened.unwrap_or_else(|_| Err(self.late().into())) {
                Ok(session) => match then(&session, call) {
                    Ok(()) => {
                        if matches!(key, ProcessKey::Call(..)) {
                            session.drain();
                        }
                        return;
                    }
                    Err(back) => {
                        call = back;
                        self.unavailable("its process ended as soon as it was there")
                    }
                },
                Err(not_started) => not_started.failure(),
            };
            // No attempt comes to anything while the server is left alone.
            let pause = self
                .inner()
                .health
                .get(&key.uid())
                .and_then(Health::backing_off);
            let wait = retry::wait_after(call.attempt.number, self.spec.context.next_retry())
                .max(pause.unwrap_or_default());
            if is_half_open
                || Instant::now() + wait >= until
                || self.is_over()
                || !retry::goes_on(
                    &call,
                    FailureCause::Ours(failure.code),
                    self.spec.entry.attempts,
                )
            {
                return chain.finish(vec![(call, CallOutcome::Failed(failure))]);
            }
            chain.retry(&mut call, FailureCause::Ours(failure.code).attempt(), wait);
            match SuspendedCall::until(tokio::time::sleep(wait), chain, call).await {
                Some(back) => call = back,
                None => return,
            }
        }
    }

    /// The failure of a call that waited for a start as long as it may.
    fn late(&self) -> Failure {
        let message = format!(
            "{} was not started: the call waited {} ms for it (start_timeout_ms), and it is not ready",
            self.spec.id,
            self.spec.limits.start.as_millis()
        );
        Failure::new(Code::TimeoutStart, message).of_server(&*self.spec.id)
    }
}

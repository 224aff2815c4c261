//! Calls to one server: which of its processes gets a call, and what is done where there is none or it takes no more.

use std::sync::Arc;

use super::instance::Session;
use super::retry;
use super::server::Server;
use super::state::ProcessKey;
use super::turns::Turn;
use crate::relay::{Call, HeldCall, Outcome};
use colibri_protocol::{Askable, Code, Failure, Method, Version};

impl Server {
    /// Sends a call to a process for its caller, started if need be. A call of which no byte was sent is tried again.
    pub fn call(self: &Arc<Self>, call: Box<Call>) {
        if let Some(Method::ResourcesSubscribe | Method::ResourcesUnsubscribe) = call.method {
            return self.subscription(call);
        }
        let key = self.key(&call.client.caller, call.client.session.owner());
        if call.parts.declares && self.takes_turns(key, &call) {
            return self.call_in_turn(key, call);
        }
        self.call_at(key, call);
    }

    /// What its entry lets it ask for.
    pub(super) fn may_ask(&self) -> Askable {
        Askable::named(self.entry.may_ask.iter().map(String::as_str))
    }

    /// Whether such a call is alone of its kind in a process: nothing else says which call a legacy server's request is
    /// about, and a modern client is asked in answer to that call.
    fn takes_turns(&self, key: ProcessKey, call: &Call) -> bool {
        let is_shared = matches!(key, ProcessKey::Uid(_) | ProcessKey::Connection(..));
        let is_modern = || {
            let version = self.version.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            version.is_some_and(Version::is_modern)
        };
        is_shared && self.may_ask().both(call.askable()) != Askable::NOTHING && !is_modern()
    }

    /// Sends a call to a process in which no other is that its server may ask about, once there is one.
    fn call_in_turn(self: &Arc<Self>, key: ProcessKey, call: Box<Call>) {
        let most = self.context.shares().limits().processes_per_user;
        let waits = match self.turns.take(key, most) {
            Ok(turn) => return self.call_at_turn(turn, call),
            Err(waits) => waits,
        };
        let (server, chain) = (self.clone(), self.context.parts.chain.clone());
        let held = HeldCall::hold(&chain, call);
        tokio::spawn(async move {
            let turn = tokio::select! {
                turn = tokio::time::timeout(server.limits.start, waits) => turn,
                () = held.over() => return,
            };
            let Some(call) = held.take() else { return };
            let outcome = match turn {
                Ok(Ok(turn)) if call.client.unsent(&call.id) => return server.call_at_turn(turn, call),
                Ok(Ok(_)) => Outcome::Cancelled,
                Ok(Err(_)) | Err(_) => {
                    let message = format!(
                        "its turn did not come within the start limit: {most} calls of this user are in flight that {} may \
                         ask about, each in a process of its own (--max-processes-per-user)",
                        server.id
                    );
                    Outcome::Failed(Failure::new(Code::LimitUser, message).of_server(&*server.id))
                }
            };
            chain.finish(vec![(call, outcome)]);
        });
    }

    fn call_at_turn(self: &Arc<Self>, turn: Turn, mut call: Box<Call>) {
        let key = turn.key;
        call.place = Some(Box::new(turn));
        self.call_at(key, call);
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

    /// Gives a call to a process, unless the process says something of what is asked for that is not approved. The call is given
    /// back if the process takes no more.
    fn give(&self, session: &Arc<Session>, call: Box<Call>) -> Result<(), Box<Call>> {
        let described = call.target.describe();
        let (feature, name) = (described.feature, described.operation);
        let is_defined = matches!(
            call.method,
            Some(Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
        );
        let against = || session.definitions.against(&self.id, feature, name);
        let Some(failure) = is_defined.then(against).flatten() else {
            return session.send(call);
        };
        if !session.is_open() {
            return Err(call);
        }
        // A process asked later says what is approved: this one has fallen behind, and the next call is not for it.
        if self.offer.definitions().1.of(feature, name).is_approved() {
            session.drain();
        }
        self.context.parts.chain.finish(vec![(call, Outcome::Failed(failure))]);
        Ok(())
    }

    /// Gives a call to a process, started if need be.
    pub(super) async fn call_later(self: Arc<Self>, key: ProcessKey, call: Box<Call>) {
        let server = self.clone();
        self.with_process(key, call, move |session, call| server.give(session, call))
            .await;
    }

    /// Has a process for a call, started if need be, and does `then` with both, which gives the call back if the process
    /// takes no more. A start that failed is tried again, as often as the entry says.
    pub async fn with_process(
        self: Arc<Self>,
        key: ProcessKey,
        mut call: Box<Call>,
        then: impl Fn(&Arc<Session>, Box<Call>) -> Result<(), Box<Call>>,
    ) {
        let chain = &self.context.parts.chain;
        loop {
            if call.client.is_cancelled(&call.id) {
                return chain.finish(vec![(call, Outcome::Cancelled)]);
            }
            let failure = match self.open(key, &call.client).await {
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
                Err(failure) => failure,
            };
            if call.attempt >= self.entry.attempts || retry::class(&failure) == retry::Class::Permanent {
                return chain.finish(vec![(call, Outcome::Failed(failure))]);
            }
            chain.retry(&mut call, &failure);
            tokio::time::sleep(retry::wait_after(call.attempt - 1, self.context.next_retry())).await;
        }
    }
}

//! Calls that are held: a legacy server asks for something while it serves a modern client, which
//! is asked in answer to its call and says the rest in a retry.
//!
//! Meanwhile the call has no id of a client's, and its clocks stand still. Its number towards the
//! server stays: the retry takes its place under it.

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::session::{PendingReply, ServerSession};
use super::open_elicitations::failed;
use super::suspended_call::{SuspendedElicitation, SuspendedServerCall, Ticket};
use crate::relay::pending_work::{MAX_OF_ONE, PendingWork, TICKET, TooMany, WAIT};
use crate::relay::request_state::{RetryPurpose as State, RetryRefusal};
use crate::relay::{Call, CallOutcome, Chain, Client, Waits, refused};
use colibri_protocol::{
    self as protocol, AnswerBody, ClientReply, Code, Failure, RpcError, upstream,
};
use colibri_wire::{Envelope, EnvelopeKind, Json};

/// The reason for which a call ends that was suspended for too long.
pub(in crate::servers) const EXPIRED: &str = "nobody answered in time";

/// The reason for which a server's request fails, where the retry withdraws the consent of the
/// call.
const MUTE: &str =
    "the retry of the call neither answers it nor declares that the client can be asked for it";

/// The work that waits for the retry of a suspended call.
struct SuspendedRetry {
    session: Weak<ServerSession>,
    ticket: Arc<Ticket>,
}

impl PendingWork for SuspendedRetry {
    fn over(&self, why: &'static str) {
        if let Some(session) = self.session.upgrade() {
            session.give_up(&self.ticket, why, None);
        }
    }
}

impl Waits for SuspendedRetry {
    fn resume(self: Arc<Self>, chain: &Arc<Chain>, retry: Box<Call>) {
        match self.session.upgrade() {
            Some(session) => session.resume(&self.ticket, retry),
            None => is_lost(&self.ticket, chain, retry),
        }
    }
}

/// Answers a retry whose call is not held any more.
fn is_lost(ticket: &Ticket, chain: &Arc<Chain>, retry: Box<Call>) {
    let outcome = match ticket.lost.get() {
        Some(failure) => CallOutcome::Failed(failure.clone()),
        None => refused(RetryRefusal::Used),
    };
    chain.finish(vec![(retry, outcome)]);
}

fn ticket(number: u64) -> Arc<Ticket> {
    Arc::new(Ticket {
        number,
        ..Ticket::default()
    })
}

impl ServerSession {
    fn retry_of(self: &Arc<Self>, ticket: &Arc<Ticket>) -> Arc<SuspendedRetry> {
        Arc::new(SuspendedRetry {
            session: Arc::downgrade(self),
            ticket: ticket.clone(),
        })
    }

    /// True if there is room to hold a call of a client for something that is asked about it.
    ///
    /// # Errors
    /// What to answer the server: there is none.
    pub(in crate::servers) fn may_hold(
        &self,
        number: u64,
        client: &Client,
    ) -> Result<(), RpcError> {
        if let Some(PendingReply::Held(held)) = self.state().pending.get_mut(number) {
            return held.has_room();
        }
        match self.spec.chain().tickets.of(client.caller.uid) {
            MAX_OF_ONE.. => Err(failed(TooMany.to_string())),
            _ => Ok(()),
        }
    }

    /// Sends the modern client of a call input requests, in answer to the call, which is suspended
    /// until the retry.
    ///
    /// # Errors
    /// What to answer the server: nobody is asked.
    pub(in crate::servers) fn hold(
        self: &Arc<Self>,
        number: u64,
        asked: SuspendedElicitation,
    ) -> Result<(), RpcError> {
        let client = match self.state().pending.get_mut(number) {
            Some(PendingReply::Held(held)) => return held.ask(asked),
            Some(PendingReply::Call { call, .. }) => call.client.clone(),
            Some(PendingReply::Internal { .. }) | None => return Err(over()),
        };
        let ticket = ticket(number);
        let id = self.spec.chain().ticket(&client, self.retry_of(&ticket));
        let id = id.map_err(|why| failed(why.to_string()))?;
        let mut state = self.state();
        let now = Instant::now();
        let held = match state.pending.get_mut(number) {
            Some(PendingReply::Call {
                call,
                deadline,
                total,
            }) => {
                let mut held = SuspendedServerCall {
                    ticket,
                    id: Some(id),
                    until: now + WAIT,
                    left: (deadline.duration_since(now), total.duration_since(now)),
                    asked: Vec::new(),
                    count: 0,
                    answered: None,
                    client,
                    version: call.version,
                    can: call.askable(),
                    call: (call.entry.number, call.entered),
                    place: call.attempt.place.take(),
                };
                held.ask(asked).map(|()| Box::new(held))
            }
            _ => Err(over()),
        };
        let held = match held {
            Ok(held) => held,
            Err(error) => {
                drop(state);
                self.spec.chain().tickets.take(&id);
                return Err(error);
            }
        };
        let pending = state.pending.get_mut(number);
        let replaced = pending.map(|pending| std::mem::replace(pending, PendingReply::Held(held)));
        drop(state);
        if let Some(PendingReply::Call { call, .. }) = replaced {
            self.ask_in_answer(call, number, &id);
        }
        self.attention.notify_one();
        Ok(())
    }

    /// Answers a call, or a retry of it, with what is asked about it.
    fn ask_in_answer(&self, call: Box<Call>, number: u64, id: &[u8; TICKET]) {
        let state = self
            .spec
            .chain()
            .seal(State::Held, &call, id, SystemTime::now() + WAIT);
        let result = match self.state().pending.get_mut(number) {
            Some(PendingReply::Held(held)) => Some(held.result(&self.spec.id, &state)),
            _ => None,
        };
        let outcome = match result {
            Some(result) => CallOutcome::result(result),
            // It was cancelled just now.
            None => CallOutcome::Cancelled,
        };
        self.spec.chain().finish(vec![(call, outcome)]);
    }

    /// Resumes a suspended call with its retry.
    fn resume(self: &Arc<Self>, of: &Arc<Ticket>, retry: Box<Call>) {
        let mut state = self.state();
        let version = state.version;
        let Some(PendingReply::Held(held)) = state
            .pending
            .get_mut(of.number)
            .filter(|pending| is_of(pending, of))
        else {
            drop(state);
            return is_lost(of, self.spec.chain(), retry);
        };
        held.id = None;
        if !retry.client.sent(&retry.id, self.clone(), of.number) {
            drop(state);
            self.give_up(of, "its retry was cancelled", None);
            return self
                .spec
                .chain()
                .finish(vec![(retry, CallOutcome::Cancelled)]);
        }
        held.can = retry.askable();
        let (mut told, mut mute) = (Vec::new(), Vec::new());
        for (key, asked) in std::mem::take(&mut held.asked) {
            let response = retry.response(&key).map(|response| response.detached());
            match response.map(|response| {
                (
                    response,
                    protocol::read_response(asked.ask, response, version),
                )
            }) {
                Some((response, Ok((said, edits)))) => {
                    told.push((asked, said, edits.apply(response.text().as_bytes())))
                }
                // What is missing, or cannot be read, is asked for again.
                Some((_, Err(_))) | None if held.can.can(asked.ask) => {
                    held.asked.push((key, asked))
                }
                Some((_, Err(_))) | None => mute.push(asked),
            }
        }
        if !held.asked.is_empty() {
            let ticket = ticket(of.number);
            held.ticket = ticket.clone();
            held.until = Instant::now() + WAIT;
            drop(state);
            self.tell_answers(told);
            self.tell_nothing(mute, MUTE);
            return self.ask_again(retry, &ticket);
        }
        let now = Instant::now();
        let mut call = Some(retry);
        let mut answered = None;
        if let Some(pending) = state.pending.get_mut(of.number)
            && let PendingReply::Held(held) = pending
        {
            answered = held.answered.take();
            let (left, total) = held.left;
            if let Some(mut call) = call.take() {
                call.attempt.place = held.place.take();
                *pending = PendingReply::Call {
                    call,
                    deadline: now + left,
                    total: now + total,
                };
            }
        }
        drop(state);
        self.attention.notify_one();
        self.tell_answers(told);
        self.tell_nothing(mute, MUTE);
        if let Some(frame) = answered {
            self.outbox.let_go(frame.len());
            self.answer_late(frame);
        }
    }

    /// Repeats the input requests that a client's retry did not answer.
    fn ask_again(self: &Arc<Self>, retry: Box<Call>, ticket: &Arc<Ticket>) {
        let id = match self
            .spec
            .chain()
            .ticket(&retry.client, self.retry_of(ticket))
        {
            Ok(id) => id,
            Err(why) => {
                self.give_up(ticket, "the client cannot be asked again", None);
                let failure = self.spec.failure(Code::LimitUser, why.to_string());
                return self
                    .spec
                    .chain()
                    .finish(vec![(retry, CallOutcome::Failed(failure))]);
            }
        };
        if let Some(PendingReply::Held(held)) = self.state().pending.get_mut(ticket.number)
            && Arc::ptr_eq(&held.ticket, ticket)
        {
            held.id = Some(id);
        }
        self.attention.notify_one();
        self.ask_in_answer(retry, ticket.number, &id);
    }

    /// Sends the server the answers to its requests.
    fn tell_answers(&self, told: Vec<(SuspendedElicitation, ClientReply, Vec<u8>)>) {
        for (asked, said, result) in told {
            let answer =
                match asked
                    .record
                    .ends(&self.spec.chain().recorder, said.name(), Some(&result))
                {
                    Ok(()) => AnswerBody::Result(result),
                    Err(failure) => AnswerBody::Error(failed(failure.message)),
                };
            self.push(&answer.to_message(Some(&asked.id)));
        }
    }

    /// Reports to the server that its requests fail.
    fn tell_nothing(&self, asked: impl IntoIterator<Item = SuspendedElicitation>, why: &str) {
        for asked in asked {
            // Where that cannot be recorded, there is no answer that may not be told.
            let _ = asked
                .record
                .ends(&self.spec.chain().recorder, "given up", None);
            self.push(&AnswerBody::Error(failed(why.to_owned())).to_message(Some(&asked.id)));
        }
    }

    /// The answer to a held call came before its retry: it waits.
    pub(in crate::servers) fn keep_answer(&self, held: &mut SuspendedServerCall, frame: Bytes) {
        if held.answered.is_none() && self.outbox.hold(frame.len()) {
            held.answered = Some(frame);
        }
    }

    /// Handles an answer that came while its call was held.
    fn answer_late(self: &Arc<Self>, frame: Bytes) {
        let mut finished = Vec::new();
        if let Ok(Envelope {
            kind: EnvelopeKind::Answer { id, outcome },
            ..
        }) = Envelope::parse(&frame)
        {
            let number = id.and_then(|id| Some((id.span(), id.as_u64()?)));
            self.answer(frame.clone(), number, outcome, true, &mut finished);
        }
        self.spec.chain().finish(finished);
    }

    /// Since when the call is held that is held longest, and what its retry finds.
    pub(in crate::servers) fn oldest_held(&self) -> Option<(Instant, Arc<Ticket>)> {
        let state = self.state();
        let held = state
            .pending
            .iter()
            .filter_map(|(_, pending)| match pending {
                PendingReply::Held(held) if held.id.is_some() => {
                    Some((held.until - WAIT, held.ticket.clone()))
                }
                _ => None,
            });
        held.min_by_key(|(since, _)| *since)
    }

    /// Ends a suspended call and reports it to the server. `lost`: the answer to its retry.
    pub(in crate::servers) fn give_up(&self, of: &Ticket, why: &str, lost: Option<&Failure>) {
        let mut state = self.state();
        let is_its = |pending: &&mut PendingReply| matches!(pending, PendingReply::Held(held) if std::ptr::eq(&*held.ticket, of));
        if state.pending.get_mut(of.number).filter(is_its).is_none() {
            return;
        }
        let pending = self.leave(&mut state, of.number);
        self.push(&upstream::cancelled(of.number, why));
        self.rest(&mut state);
        drop(state);
        if let Some(PendingReply::Held(held)) = pending {
            self.end_held(*held, why, lost);
        }
        self.attention.notify_one();
    }

    /// Ends the requests of a suspended call. `lost`: what its retry is answered with.
    pub(in crate::servers) fn end_held(
        &self,
        held: SuspendedServerCall,
        why: &str,
        lost: Option<&Failure>,
    ) {
        if let Some(frame) = &held.answered {
            self.outbox.let_go(frame.len());
        }
        self.tell_nothing(held.asked.into_iter().map(|(_, asked)| asked), why);
        match lost {
            Some(failure) => drop(held.ticket.lost.set(failure.clone())),
            None => drop(held.id.and_then(|id| self.spec.chain().tickets.take(&id))),
        }
    }

    /// A server takes back what it asked about a held call. `false`: it asked for no such thing.
    pub(in crate::servers) fn takes_back(&self, id: Json<'_>) -> bool {
        let mut state = self.state();
        let mut taken = None;
        for pending in state.pending.values_mut() {
            if let PendingReply::Held(held) = pending
                && let Some(at) = held
                    .asked
                    .iter()
                    .position(|(_, asked)| *asked.id == *id.text())
            {
                taken = Some(held.asked.remove(at).1);
            }
        }
        drop(state);
        if let Some(asked) = &taken {
            let _ = asked
                .record
                .ends(&self.spec.chain().recorder, "taken back", None);
        }
        taken.is_some()
    }
}

fn is_of(pending: &PendingReply, of: &Arc<Ticket>) -> bool {
    matches!(pending, PendingReply::Held(held) if Arc::ptr_eq(&held.ticket, of))
}

/// The refusal of a server that asks about a call that is over.
fn over() -> RpcError {
    failed("the call that this is about is over".to_owned())
}

//! The stages, one after the other.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::call::{Call, CallTarget, Chain, Destination};
use super::call_outcome::CallOutcome;
use super::charge::{self, charge};
use super::client::Client;
use super::oversized_result::{self, OversizedResult};
use super::recorder::Recorder;
use super::request_state::{self, RetryBinding, RetryRefusal};
use super::target::Upstream;
use super::target_rules::ConfirmationRule;
use super::{cost, exit, outcome_check, record};
use colibri_peer::together;
use colibri_policy::{CallDecision, Rights, Road, SuspensionReasons};
use colibri_protocol::{AttemptFailure, Code, Failure};
use colibri_trail::{TrailError, TrailEvent};
use colibri_wire::Json;

impl Chain {
    /// Takes calls in that arrived together: each is checked and recorded, then sent to its target
    /// or answered with what stands against it.
    pub fn accept(self: &Arc<Chain>, calls: &mut Vec<Box<Call>>) {
        if !calls.is_empty() {
            together(|| self.take_in(calls));
        }
    }

    fn take_in(self: &Arc<Chain>, calls: &mut Vec<Box<Call>>) {
        // What arrives together is one client's, as a rule: what policy lets it do is looked up
        // once.
        let mut known: Option<(Arc<Client>, Arc<Rights>)> = None;
        for call in calls.iter_mut() {
            let rights = match &known {
                Some((client, rights)) if Arc::ptr_eq(client, &call.client) => rights,
                _ => {
                    let rights = self.rules.rights(&call.client);
                    &known.insert((call.client.clone(), rights)).1
                }
            };
            call.entry.terms = cost::terms(rights, &call.client);
            let decision = self.decide(rights, call);
            call.entry.validated = decision.validation();
            call.entry.decision = Some(decision);
        }
        let recorded = record::entered(&self.recorder, calls);
        let mut refused = Vec::new();
        for mut call in calls.drain(..) {
            let decision = match call.entry.decision.take() {
                Some(decision) => decision,
                None => self.decide_again(&mut call),
            };
            match (decision, &recorded) {
                (CallDecision::Refuses(failure), Ok(())) => {
                    refused.push((call, CallOutcome::Refused(*failure)));
                }
                (decision, Ok(())) => self.dispatch(call, decision),
                (decision @ CallDecision::Passes(_), Err(_))
                    if call.target.description().free.unrecorded =>
                {
                    self.dispatch(call, decision);
                }
                (_, Err(failure)) => refused.push((call, CallOutcome::Failed(failure.clone()))),
            }
        }
        match recorded {
            Ok(()) => self.finish(refused),
            // Their ends cannot be recorded either.
            Err(_) => {
                let shaped = refused.into_iter().map(|(call, outcome)| {
                    let answer = self.shape(&call, outcome);
                    (call, answer)
                });
                self.leave(&shaped.collect::<Vec<_>>());
            }
        }
    }

    /// The third stage: the call goes to who answers it, which sees whether it was cancelled
    /// meanwhile, or waits for a person; a retry that something waits for, there.
    fn dispatch(self: &Arc<Chain>, call: Box<Call>, decision: CallDecision) {
        // One that was allowed has been there.
        let resumed = call.entry.resumes.as_ref();
        let resumed = resumed.filter(|_| call.entry.allowed.is_none());
        if let Some(ticket) = resumed.and_then(|resumed| resumed.ticket()) {
            return match self.tickets.take(&ticket) {
                Some(waits) => waits.resume(self, call),
                None => self.finish(vec![(call, refused(RetryRefusal::Used))]),
            };
        }
        self.note_sent(&call);
        self.carry_out(call, decision);
    }

    /// Does with a call what was decided about it.
    fn carry_out(self: &Arc<Chain>, call: Box<Call>, decision: CallDecision) {
        match decision {
            CallDecision::Passes(_) => self.send(call),
            CallDecision::Waits(_) if call.client.is_cancelled(&call.id) => {
                self.finish(vec![(call, CallOutcome::Cancelled)]);
            }
            CallDecision::Waits(wait) => {
                for limit in &wait.reasons.limits {
                    self.record_hold(&call, limit);
                }
                self.hold_for_person(call, wait.reasons);
            }
            CallDecision::Refuses(failure) => {
                self.finish(vec![(call, CallOutcome::Refused(*failure))]);
            }
        }
    }

    /// The call leaves for whoever answers it: from here alone.
    pub fn send(self: &Arc<Chain>, call: Box<Call>) {
        let target = call.target.clone();
        let mut next = match &target.destination {
            Destination::Handler(handler) => Some((call, handler.clone())),
            Destination::Known(outcome) => {
                let known = match call.client.is_cancelled(&call.id) {
                    true => None,
                    false => outcome.lock().take(),
                };
                let outcome = exit::fit(known.unwrap_or(CallOutcome::Cancelled), &call);
                return self.finish(vec![(call, outcome)]);
            }
        };
        while let Some((call, handler)) = next {
            next = handler.handle(self, call);
        }
    }

    /// A call that waited for a person, who has allowed this, goes on: if policy still lets it, and
    /// nothing else holds it by now.
    pub(super) fn release(self: &Arc<Chain>, mut call: Box<Call>, reasons: SuspensionReasons) {
        let mut allowed = call.entry.allowed.take().unwrap_or_default();
        allowed.extend(reasons);
        call.entry.allowed = Some(allowed);
        call.entry.road = Road::Approval;
        let decision = self.decide_again(&mut call);
        if let CallDecision::Passes(_) = decision {
            self.note_allowed(&call);
        }
        self.carry_out(call, decision);
    }

    /// A call that was allowed, sent, and suspended because its server asked something, goes on at
    /// its server: if policy still lets it. What holds it by now does not: a person would be asked
    /// about what the server has begun.
    pub(super) fn resume_sent(self: &Arc<Chain>, mut call: Box<Call>, allowed: SuspensionReasons) {
        call.entry.allowed = Some(Box::new(allowed));
        call.entry.road = Road::InputRetry;
        let decision = self.decide_again(&mut call);
        self.carry_out(call, decision);
    }

    /// Decides about a call as its target, its rules and its caller's rights are now.
    fn decide_again(&self, call: &mut Call) -> CallDecision {
        match self.present_target(call) {
            Ok(Some(target)) => call.target = target,
            Ok(None) => {}
            Err(failure) => return CallDecision::Refuses(Box::new(failure)),
        }
        let rights = self.rules.rights(&call.client);
        call.entry.terms = cost::terms(&rights, &call.client);
        self.decide(&rights, call)
    }

    fn present_target(&self, call: &Call) -> Result<Option<Arc<CallTarget>>, Failure> {
        let catalog = self.catalog.get().and_then(Weak::upgrade);
        match (catalog, call.target.rules.confirmation) {
            (Some(catalog), ConfirmationRule::Entry) => catalog.present(&call.target),
            _ => Ok(None),
        }
    }

    /// The `requestState` that asks the client of a call for a retry of it.
    pub fn seal(
        &self,
        kind: request_state::RetryPurpose,
        call: &Call,
        inner: &[u8],
        until: SystemTime,
    ) -> String {
        let described = call.target.description();
        let params = call.parts.params.clone();
        let params = params.and_then(|params| Json::part(&call.frame, params));
        let method = call
            .method
            .map_or(&*described.operation, |method| method.as_str());
        let bound = RetryBinding {
            uid: call.client.caller.uid,
            server: &described.server,
            digest: request_state::digest(method, params, call.client.asker().session),
        };
        self.states
            .seal(kind, &bound, call.entry.number, inner, until)
    }

    /// Sends a call that has entered to another target than it was entered for: what it named is
    /// known only now. It enters again, under the name of the one that gets it, in a record that
    /// says which one it continues.
    pub fn redirect(self: &Arc<Chain>, mut call: Box<Call>, target: Arc<CallTarget>) {
        call.target = target;
        call.entry.road = Road::Redirect;
        self.accept(&mut vec![call]);
    }

    /// Records the end and seals the trail. Nothing is taken in afterwards.
    ///
    /// # Errors
    /// What could not be written.
    pub fn close(&self) -> Result<(), TrailError> {
        let Recorder::Trail(trail) = &*self.recorder else {
            return Ok(());
        };
        self.recorder.event(TrailEvent::Stop {})?;
        trail.close()
    }

    /// Records that an attempt failed so, and another follows, after this wait.
    pub fn retry(&self, call: &mut Call, failed: AttemptFailure, wait: Duration) {
        record::retried(&self.recorder, call, &failed);
        call.attempt.number += 1;
        call.attempt.began = Instant::now() + wait;
        call.attempt.failed.push(failed.code);
    }

    /// Ends calls: the answers are shaped, recorded and delivered, in this order.
    /// A result over its limit is kept first, and what a contract leaves to the board is left
    /// there: such a call ends when that is done.
    pub fn finish(self: &Arc<Chain>, mut calls: Vec<(Box<Call>, CallOutcome)>) {
        let shaped = |(call, outcome): (Box<Call>, CallOutcome)| {
            let outcome = match outcome {
                CallOutcome::Cancelled if call.client.is_given_up(&call.id) => {
                    CallOutcome::Failed(given_up())
                }
                outcome => outcome,
            };
            if let CallOutcome::Relayed(relayed) = &outcome {
                self.note_answer(&call, relayed);
            }
            let outcome = match call.target.checks_outcomes() {
                false => outcome,
                true => {
                    if let CallOutcome::Relayed(relayed) = &outcome
                        && let Some(facts) = record::facts(&call, relayed)
                    {
                        charge::model(&self.ledger, &call, &facts);
                    }
                    let outcome = outcome_check::checked(&call, outcome);
                    if let Some(left) = outcome_check::left(&call, &outcome) {
                        self.defer(call, outcome, left);
                        return None;
                    }
                    outcome_check::taskless(&call, outcome)
                }
            };
            match self.measure(&call, outcome) {
                Ok(answer) => Some((call, answer)),
                Err(over) => {
                    self.keep(call, over);
                    None
                }
            }
        };
        together(|| match calls.len() {
            0 => {}
            // As most are: without a list.
            1 => calls
                .drain(..)
                .filter_map(shaped)
                .for_each(|one| self.end(&mut [one])),
            _ => self.end(&mut calls.into_iter().filter_map(shaped).collect::<Vec<_>>()),
        });
    }

    fn end(&self, answers: &mut [(Box<Call>, exit::ExitAnswer)]) {
        if let Err(failure) = record::left(&self.recorder, answers) {
            for (call, answer) in answers
                .iter_mut()
                .filter(|(call, _)| !call.target.description().free.unrecorded)
            {
                *answer = exit::shape(call, CallOutcome::Failed(failure.clone()));
            }
        }
        self.leave(answers);
    }

    /// Shapes an answer, unless it is a result over its limit.
    ///
    /// # Errors
    /// It is one, and has to be kept.
    fn measure(
        &self,
        call: &Call,
        outcome: CallOutcome,
    ) -> Result<exit::ExitAnswer, Box<OversizedResult>> {
        let _alone = cost::alone(call, &outcome);
        Ok(self.shape(call, oversized_result::within_limit(call, outcome)?))
    }

    /// Shapes an answer and counts it at once, so that what is shaped next, be it together with it,
    /// sees what is left.
    fn shape(&self, call: &Call, outcome: CallOutcome) -> exit::ExitAnswer {
        let answer = exit::shape(call, outcome);
        let length = answer.message.length();
        let uncounted = match cost::weighs_media(call, length) {
            true => answer.message.uncounted(),
            false => 0,
        };
        let raised = match &answer.message {
            exit::ClientMessage::Page(..) => cost::listed(call, length),
            _ => cost::answered(call, length - uncounted),
        };
        if let Some(raised) = raised {
            self.note_raised(call, raised);
        }
        answer
    }

    /// Records that a cost mode has gone up. The call itself is recorded, whatever becomes of this.
    fn note_raised(&self, call: &Call, raised: cost::CostModeRaise) {
        let door = call.client.door.as_deref();
        let event = TrailEvent::CostMode {
            uid: call.client.caller.uid,
            from: raised.from.name(),
            to: raised.to.name(),
            bytes: raised.spent,
            agent: door.map(|door| &*door.agent),
            session: door.map(|door| &*door.session),
        };
        if let Err(error) = self.recorder.event(event) {
            tracing::error!("a cost mode that went up was not recorded: {error}");
        }
    }

    /// Counts calls and delivers their answers. Every call passes here once, at its end.
    fn leave(&self, calls: &[(Box<Call>, exit::ExitAnswer)]) {
        let now = Instant::now();
        for (call, answer) in calls {
            if call.target.description().is_look {
                if !answer.success {
                    call.client.session.note_failed_look();
                }
                exit::deliver(call, answer, || None);
                continue;
            }
            let metrics = call
                .target
                .description()
                .upstream()
                .map_or(&self.metrics, Upstream::metrics);
            let took = now.duration_since(call.entered);
            metrics.count(answer.code(), took);
            let queued = exit::deliver(call, answer, || self.recorder.reference(call.entry.number));
            charge(&self.ledger, call, answer, took, queued);
        }
    }
}

/// The answer to a retry that is not taken.
pub fn refused(why: RetryRefusal) -> CallOutcome {
    CallOutcome::error(why.into())
}

fn given_up() -> Failure {
    let message = "the daemon ended before the call did; whether it had an effect is not known";
    Failure::new(Code::DaemonStopping, message)
        .advising("look at what it would have changed before sending it again")
}

//! The stages, one after the other.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use super::call::{Call, Chain, Outcome, Target, Upstream};
use super::client::Client;
use super::recorder::Recorder;
use super::request_state::{self, Bound, Refused};
use super::{exit, record, validate};
use crate::peer::together;
use crate::policy::Rights;
use colibri_protocol::{Answer, Code, Failure};
use colibri_trail::TrailError;
use colibri_wire::Json;

impl Chain {
    /// Takes calls in that arrived together: each is checked and recorded, then sent to its target or answered with
    /// what stands against it.
    pub fn accept(self: &Arc<Chain>, calls: &mut Vec<Box<Call>>) {
        if !calls.is_empty() {
            together(|| self.take_in(calls));
        }
    }

    fn take_in(self: &Arc<Chain>, calls: &mut Vec<Box<Call>>) {
        // What arrives together is one client's, as a rule: what policy lets it do is looked up once.
        let mut known: Option<(Arc<Client>, Arc<Rights>)> = None;
        for call in calls.iter_mut() {
            let rights = match &known {
                Some((client, rights)) if Arc::ptr_eq(client, &call.client) => rights,
                _ => {
                    let rights = self.rules.rights(&call.client);
                    &known.insert((call.client.clone(), rights)).1
                }
            };
            call.against = validate::validate(&self.rules, rights, call).err().map(Box::new);
        }
        let recorded = record::entered(&self.recorder, calls);
        if let Err(failure) = recorded {
            let mut refused = Vec::new();
            for call in calls.drain(..) {
                if call.against.is_none() && call.target.tells_own_state() {
                    self.dispatch(call);
                } else {
                    let answer = exit::shape(&call, Outcome::Failed(failure.clone()));
                    refused.push((call, answer));
                }
            }
            return self.leave(&refused);
        }
        let mut refused = Vec::new();
        for mut call in calls.drain(..) {
            match call.against.take() {
                None => self.dispatch(call),
                Some(failure) => refused.push((call, Outcome::Failed(*failure))),
            }
        }
        self.finish(refused);
    }

    /// The third stage: the call goes to who answers it, which sees whether it was cancelled meanwhile; a retry that
    /// something waits for, there.
    fn dispatch(self: &Arc<Chain>, call: Box<Call>) {
        if let Some(ticket) = call.resumes.as_ref().and_then(|resumed| resumed.ticket()) {
            return match self.tickets.take(&ticket) {
                Some(waits) => waits.resume(self, call),
                None => self.finish(vec![(call, refused(Refused::Used))]),
            };
        }
        let target = call.target.clone();
        target.send(self, call);
    }

    /// The `requestState` that asks the client of a call for a retry of it.
    pub fn seal(&self, kind: request_state::Kind, call: &Call, inner: &[u8], until: SystemTime) -> String {
        let described = call.target.describe();
        let params = call.parts.params.clone();
        let params = params.and_then(|params| Json::part(&call.frame, params));
        let method = call.method.map_or(described.operation, |method| method.as_str());
        let bound = Bound {
            uid: call.client.caller.uid,
            server: described.server,
            digest: request_state::digest(method, params),
        };
        self.states.seal(kind, &bound, call.number, inner, until)
    }

    /// Sends a call that has entered to another target than it was entered for: what it named is known only now. It
    /// enters again, under the name of the one that gets it, in a record that says which one it continues.
    pub fn redirect(self: &Arc<Chain>, mut call: Box<Call>, target: Arc<dyn Target>) {
        call.target = target;
        self.accept(&mut vec![call]);
    }

    /// Records the end and seals the trail. Nothing is taken in afterwards.
    ///
    /// # Errors
    /// What could not be written.
    pub fn close(&self) -> Result<(), TrailError> {
        let Recorder::Trail(trail) = &self.recorder else {
            return Ok(());
        };
        self.recorder.event("stop", &[])?;
        trail.close()
    }

    /// Records that an attempt failed and another follows.
    pub fn retry(&self, call: &mut Call, failure: &Failure) {
        record::retried(&self.recorder, call, failure);
        call.attempt += 1;
    }

    /// Ends calls: the answers are shaped, recorded and delivered, in this order.
    pub fn finish(&self, mut calls: Vec<(Box<Call>, Outcome)>) {
        let shaped = |(call, outcome): (Box<Call>, Outcome)| {
            let outcome = match outcome {
                Outcome::Cancelled if call.client.is_given_up(&call.id) => Outcome::Failed(given_up()),
                outcome => outcome,
            };
            let answer = exit::shape(&call, outcome);
            (call, answer)
        };
        together(|| match calls.len() {
            0 => {}
            // As most are: without a list.
            1 => calls.drain(..).map(shaped).for_each(|one| self.end(&mut [one])),
            _ => self.end(&mut calls.into_iter().map(shaped).collect::<Vec<_>>()),
        });
    }

    fn end(&self, answers: &mut [(Box<Call>, exit::Answer)]) {
        if let Err(failure) = record::left(&self.recorder, answers) {
            for (call, answer) in answers.iter_mut().filter(|(call, _)| !call.target.tells_own_state()) {
                *answer = exit::shape(call, Outcome::Failed(failure.clone()));
            }
        }
        self.leave(answers);
    }

    /// Counts calls and delivers their answers. Every call passes here once, at its end.
    fn leave(&self, calls: &[(Box<Call>, exit::Answer)]) {
        let now = Instant::now();
        for (call, answer) in calls {
            let metrics = call.target.upstream().map_or(&self.metrics, Upstream::metrics);
            metrics.count(answer.code.as_deref(), now.duration_since(call.entered));
            exit::deliver(call, answer);
        }
    }
}

/// The answer to a retry that is not taken.
pub fn refused(why: Refused) -> Outcome {
    Outcome::Own {
        answer: Answer::Error(why.into()),
        failed: true,
    }
}

fn given_up() -> Failure {
    let message = "the daemon ended before the call did; whether it had an effect is not known";
    Failure::new(Code::DaemonStopping, message).advising("look at what it would have changed before sending it again")
}

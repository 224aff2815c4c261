//! The five stages every call passes, one file a stage: [`enter`], [`validate`], [`dispatch`], exit ([`exit`]) and
//! [`record`].
//!
//! There is no way around them: a session only makes [`Call`]s and hands them to [`Chain::accept`]; a target only
//! ends them with [`Chain::finish`]. Both take what arrived together in one go, so that a busy connection pays for one
//! record write per batch instead of one per call.

pub mod dispatch;
pub mod enter;
pub mod exit;
pub mod metrics;
pub mod park;
pub mod record;
pub mod validate;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::time::Instant;

pub use dispatch::{Described, Target};
pub use enter::{Batch, Client, Limit};
pub use exit::{Outcome, Page, Relayed};
pub use park::Parked;
pub use record::Recorder;

use crate::policy::Approvals;
use crate::wire::together;
pub use colibri_protocol::Failure;
use colibri_protocol::{Code, Method, Version};
use colibri_trail::TrailError;
use colibri_wire::{Id, Json};
use metrics::CallMetrics;

/// A request on its way.
pub struct Call {
    /// Who asks, and where the answer goes.
    pub client: Arc<Client>,
    /// The client's id, to find the call again.
    pub id: Id,
    /// The batch it came in.
    pub batch: Option<Arc<Batch>>,
    /// The version that the client speaks in this request.
    pub version: Version,
    /// What is asked; `None` for a method that no version of MCP has.
    pub method: Option<Method>,
    /// The request as it came.
    pub frame: Bytes,
    /// Bytes that it has of the daemon's budget while it is in flight.
    pub held: usize,
    /// The places in it that the relay changes.
    pub parts: Parts,
    /// Its W3C trace context.
    pub trace: Option<Box<Trace>>,
    /// Who answers.
    pub target: Arc<dyn Target>,
    /// When it was read.
    pub entered: Instant,
    /// The same, by the clock on the wall.
    pub time: SystemTime,
    /// The number of its last `enter` record; 0, which is never one, before it has entered.
    pub number: u64,
    /// Attempts made so far, the current one included.
    pub attempt: u32,
    /// Whether its arguments were checked against a schema that they fit.
    pub validated: bool,
    /// What stands against it.
    pub against: Option<Box<Failure>>,
}

/// A request's W3C trace context, as its `_meta` has it (<https://www.w3.org/TR/trace-context/>).
#[derive(Debug, Clone)]
pub struct Trace {
    /// `traceparent`.
    pub parent: Box<str>,
    /// `tracestate`.
    pub state: Option<Box<str>>,
}

/// Places in a request.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    /// The value of `id`.
    pub id: Range<usize>,
    /// The value of `params`.
    pub params: Option<Range<usize>>,
    /// The name of the tool that is called, with its quotes.
    pub name: Option<Range<usize>>,
    /// The value of `progressToken` in `_meta`.
    pub progress_token: Option<Range<usize>>,
    /// The arguments of a tool call.
    pub arguments: Arguments,
    /// Whether a tool call is to become a task, whose result is asked for later.
    pub task: bool,
}

/// Where the arguments of a tool call stand.
#[derive(Debug, Clone, Default)]
pub enum Arguments {
    /// There are none.
    #[default]
    Missing,
    /// Where the server reads them too.
    At(Range<usize>),
    /// Inside the arguments of `colibri_external_mcp_call_tool`, which stand at `outer`.
    Within {
        /// What the server is to read instead of.
        outer: Range<usize>,
        /// The arguments, if there are any.
        inner: Option<Range<usize>>,
    },
}

impl Drop for Call {
    fn drop(&mut self) {
        self.client.outbox.let_go(self.held);
    }
}

impl Call {
    /// The id as the client wrote it.
    pub fn id_text(&self) -> &str {
        self.text(&self.parts.id)
    }

    /// The name of the tool that the client used, as far as a record holds it.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        let name = Json::part(&self.frame, self.parts.name.clone()?)?.as_str()?;
        match name.char_indices().nth(200) {
            Some((end, _)) => Some(Cow::Owned(name[..end].to_owned())),
            None => Some(name),
        }
    }

    fn text(&self, span: &Range<usize>) -> &str {
        let bytes = self.frame.get(span.clone()).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The arguments of a tool call as the client wrote them.
    pub fn arguments(&self) -> &[u8] {
        let span = match &self.parts.arguments {
            Arguments::At(span) | Arguments::Within { inner: Some(span), .. } => Some(span.clone()),
            Arguments::Missing | Arguments::Within { inner: None, .. } => None,
        };
        span.and_then(|span| self.frame.get(span)).unwrap_or(b"{}")
    }
}

/// The stages, with what they need.
pub struct Chain {
    /// Where records go.
    pub recorder: Recorder,
    /// What is checked before a call goes on.
    pub rules: validate::Rules,
    /// What was counted of the calls that the daemon answers itself.
    pub metrics: CallMetrics,
    /// The calls that wait for a person.
    pub approvals: Approvals,
}

impl Chain {
    /// Takes calls in that arrived together: each is checked and recorded, then sent to its target or answered with
    /// what stands against it.
    pub fn accept(self: &Arc<Chain>, calls: &mut Vec<Box<Call>>) {
        if !calls.is_empty() {
            together(|| self.take_in(calls));
        }
    }

    fn take_in(self: &Arc<Chain>, calls: &mut Vec<Box<Call>>) {
        for call in calls.iter_mut() {
            call.against = validate::validate(&self.rules, call).err().map(Box::new);
        }
        let recorded = record::entered(&self.recorder, calls);
        if let Err(failure) = recorded {
            let mut refused = Vec::new();
            for call in calls.drain(..) {
                if call.against.is_none() && call.target.tells_own_state() {
                    dispatch::dispatch(self, call);
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
                None => dispatch::dispatch(self, call),
                Some(failure) => refused.push((call, Outcome::Failed(*failure))),
            }
        }
        self.finish(refused);
    }

    /// Sends a call that has entered to another target than it was entered for: what it named is known only now. It
    /// enters again, under the name of the one that gets it, in a record that says which one it continues.
    pub fn redirect(self: &Arc<Chain>, mut call: Box<Call>, target: Arc<dyn Target>) {
        call.target = target;
        self.accept(&mut vec![call]);
    }

    /// Records the end and seals the trail. Nothing is taken in afterwards.
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
            let metrics = call.target.metrics().unwrap_or(&self.metrics);
            metrics.count(answer.code.as_deref(), now.duration_since(call.entered));
            exit::deliver(call, answer);
        }
    }
}

fn given_up() -> Failure {
    let message = "the daemon ended before the call did; whether it had an effect is not known";
    Failure::new(Code::DaemonStopping, message).advising("look at what it would have changed before sending it again")
}

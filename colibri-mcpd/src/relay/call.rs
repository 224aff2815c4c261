//! A call on its way, its target, and the stages that it passes.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::call_outcome::CallOutcome;
use super::call_request::CallRequest;
use super::counters::CallMetrics;
use super::deferred_call::Defers;
use super::flow_slot::FlowTable;
use super::pending_work::{PendingWork, Tickets};
use super::recorder::Recorder;
use super::request_state::{RequestStates, ResumedCall};
use super::road::road_of;
use super::rules::CallRules;
use super::target::{TargetDescription, Upstream};
use super::target_rules::TargetRules;
use crate::results::Results;
use colibri_policy::{
    ApprovalQueue, CallDecision, ReportedFailure, Road, SuspensionReasons, Terms,
};
use colibri_protocol::{Code, DeferredTask, Failure};
use colibri_store::cost_ledger::CostLedger;
use colibri_trail::Validation;
use colibri_wire::Json;

/// A call on its way: the request, which stays as it came, its target, and what each stage adds.
pub struct Call {
    /// The request.
    pub request: CallRequest,
    /// The target that answers.
    pub target: Arc<CallTarget>,
    /// What was decided and recorded as it entered.
    pub entry: CallEntry,
    /// The attempt that its server makes.
    pub attempt: CallAttempt,
    /// The deferred task, where the work is left to the board at its end.
    pub deferred: Option<Box<DeferredTask>>,
}

/// What the first two stages note of a call.
pub struct CallEntry {
    /// The road by which it was decided last.
    pub road: Road,
    /// The number of its last `enter` record; 0, which is never one, before it has entered.
    pub number: u64,
    /// The decision about it, until it is carried out.
    pub(super) decision: Option<CallDecision>,
    /// The outcome of the check of its arguments against the tool's schema.
    pub validated: Validation,
    /// The cost mode under which it was decided last.
    pub terms: Terms,
    /// The retry that it is of a call that asked for input.
    pub resumes: Option<Box<ResumedCall>>,
    /// What a person has allowed of it.
    pub allowed: Option<Box<SuspensionReasons>>,
}

/// An attempt at a call, and those before it.
pub struct CallAttempt {
    /// Attempts made so far, the current one included.
    pub number: u32,
    /// The time at which the current attempt began, or will.
    pub began: Instant,
    /// The codes with which those before failed.
    pub failed: Vec<Cow<'static, str>>,
    /// The last one failed in a way that could pass, and no other follows.
    pub given_up: bool,
    /// The value that is released when the call is over.
    pub place: Option<Box<dyn Send + Sync>>,
}

/// The target of a call.
pub struct CallTarget {
    pub(super) description: TargetDescription,
    pub(super) rules: TargetRules,
    pub(super) destination: Destination,
}

/// Who answers.
pub enum Destination {
    /// A server, or a part of the daemon.
    Handler(Arc<dyn CallHandler>),
    /// Nobody: the outcome is known.
    Known(Mutex<Option<CallOutcome>>),
}

/// Who answers calls: a server, or a part of the daemon.
pub trait CallHandler: Send + Sync {
    /// Takes a call over, which may have been cancelled. Whatever happens to it, it ends in
    /// [`Chain::finish`], once; unless it is given back, for this server.
    fn handle(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) -> Option<ServerCall>;
}

/// A call that a server is to answer.
pub type ServerCall = (Box<Call>, Arc<dyn CallHandler>);

/// The catalog of targets.
pub trait TargetCatalog: Send + Sync {
    /// The target as it is now, with its present rules, for a call that waited. `None`: it does not
    /// change, or its server, which is gone, says so itself.
    ///
    /// # Errors
    /// Its server no longer has it.
    fn present(self: Arc<Self>, target: &CallTarget) -> Result<Option<Arc<CallTarget>>, Failure>;
}

/// A call is asked for what its request says, which no stage changes.
impl std::ops::Deref for Call {
    type Target = CallRequest;

    fn deref(&self) -> &CallRequest {
        &self.request
    }
}

impl Call {
    /// A request that came by a road, and goes to this target: whatever makes a call names its road.
    pub fn new(request: CallRequest, target: Arc<CallTarget>, road: Road) -> Call {
        let entry = CallEntry {
            road: road_of(&request, &target.description, road),
            number: 0,
            decision: None,
            validated: Validation::default(),
            terms: Terms::default(),
            resumes: None,
            allowed: None,
        };
        let attempt = CallAttempt {
            number: 1,
            began: request.entered,
            failed: Vec::new(),
            given_up: false,
            place: None,
        };
        Call {
            request,
            target,
            entry,
            attempt,
            deferred: None,
        }
    }

    /// The failure that a tool's result reports. Any server can write one into a result: it is
    /// taken from an integration of ours, and where the contract names its code.
    pub(crate) fn reported_failure(&self, result: Json<'_>) -> Option<ReportedFailure> {
        let reported = ReportedFailure::read(result)?;
        let description = self.target.description();
        let is_ours = description.upstream().is_some_and(Upstream::is_integration);
        let is_named = || {
            let answers = description.answers.as_ref();
            answers.is_some_and(|answers| answers.names(&reported.code))
        };
        (is_ours || is_named()).then_some(reported)
    }
}

impl CallTarget {
    /// A target.
    pub fn new(
        description: TargetDescription,
        rules: TargetRules,
        destination: Destination,
    ) -> Arc<CallTarget> {
        Arc::new(CallTarget {
            description,
            rules,
            destination,
        })
    }

    /// A target that this answers.
    pub fn handled(
        description: TargetDescription,
        rules: TargetRules,
        by: Arc<dyn CallHandler>,
    ) -> Arc<CallTarget> {
        CallTarget::new(description, rules, Destination::Handler(by))
    }

    /// The facts about it.
    pub fn description(&self) -> &TargetDescription {
        &self.description
    }

    /// The rules on it.
    pub fn rules(&self) -> &TargetRules {
        &self.rules
    }

    /// True if the ends of its calls are checked: by a contract on its answers, or against the
    /// skills that it belongs to.
    pub(super) fn checks_outcomes(&self) -> bool {
        self.description.answers.is_some() || self.rules.skills.is_some()
    }

    /// True if who finds tools by their names is not told of this refusal: what policy denies is to
    /// them as if nobody had it. The accounts of an entry are theirs.
    pub(super) fn is_hidden_by(&self, failure: &Failure) -> bool {
        failure.code == Code::PolicyDenied && self.rules.account_refusal.is_none()
    }

    /// Checks the content of a resource that the server answered with.
    ///
    /// # Errors
    /// It is not what was approved.
    pub(super) fn check_content(&self, result: Json<'_>) -> Result<(), Failure> {
        match &self.rules.skills {
            Some(skills) => skills.check_content(result),
            None => Ok(()),
        }
    }
}

/// The stages, with what they need.
pub struct Chain {
    /// Writes records.
    pub recorder: Arc<Recorder>,
    /// The rules that are checked before a call goes on.
    pub rules: Arc<CallRules>,
    /// The counts of calls that the daemon answers itself.
    pub metrics: CallMetrics,
    /// The ledger of every call's cost.
    pub ledger: Arc<CostLedger>,
    /// The calls that wait for a person.
    pub approvals: ApprovalQueue,
    /// Seals the `requestState` that clients are given.
    pub states: RequestStates,
    /// The work that waits for a retry.
    pub tickets: Tickets<dyn Waits>,
    /// Results that were over their limit.
    pub results: Arc<Results>,
    /// The board for deferred calls.
    pub board: Arc<dyn Defers>,
    /// The flow limits of connections that ended.
    pub flows: Arc<FlowTable>,
    /// The catalog of targets; set once the servers are there.
    pub catalog: OnceLock<Weak<dyn TargetCatalog>>,
}

/// A call that waits for its retry.
pub trait Waits: PendingWork {
    /// Its retry is here, and passed what every call has to pass. Whatever happens to it, it ends
    /// in [`Chain::finish`], once.
    fn resume(self: Arc<Self>, chain: &Arc<Chain>, retry: Box<Call>);
}

//! The target of a call, as a value: what decides about the call, and who answers it.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;

use super::call::{Call, CallOutcome, Chain};
use super::target::{TargetDescription, Upstream};
use colibri_policy::{
    CompiledCheck, Contract, PinStatus, RuleVerdict, SkillFacts, SuspensionFacts, TargetFacts,
};
use colibri_protocol::{Code, Failure, Method};
use colibri_wire::Json;

/// The target of a call.
pub struct CallTarget {
    pub(super) description: TargetDescription,
    pub(super) rules: TargetRules,
    pub(super) destination: Destination,
}

/// The rules on a target. What it has no part of is empty, and holds no call.
#[derive(Default)]
pub struct TargetRules {
    /// True if it is a method for operators.
    pub is_for_operators: bool,
    /// The reason for which it is not known which account of an entry is meant.
    pub account_refusal: Option<Box<Failure>>,
    /// The verdict of its entry's rules.
    pub verdict: RuleVerdict,
    /// True if it could answer with a task, which nobody could ask for.
    pub refuses_tasks: bool,
    /// The status of its definition's pin.
    pub pin: Option<PinStatus>,
    /// The contract on a prompt.
    pub prompt_contract: Option<Arc<Contract>>,
    /// The checks of a tool's arguments.
    pub check: Option<Arc<dyn CompiledCheck + Send + Sync>>,
    /// The skills that a resource belongs to.
    pub skills: Option<Box<dyn SkillFiles>>,
    /// What a person can be asked about it.
    pub confirmation: ConfirmationRule,
}

/// What a person can be asked about a target.
#[derive(Clone, Copy, Default)]
pub enum ConfirmationRule {
    /// Nothing.
    #[default]
    Nothing,
    /// The rules of its entry and of an agent's, and the limits of the session.
    Entry,
    /// The rule of a tool of the daemon's own.
    OwnTool(ConfirmRule),
}

/// A rule by which a person has to allow a call of a tool of the daemon's own first.
#[derive(Debug, Clone, Copy)]
pub struct ConfirmRule {
    /// Its name in records.
    pub rule: &'static str,
    /// True if the rule applies to a call with these arguments.
    pub applies: fn(&[u8]) -> bool,
}

/// Who answers.
pub enum Destination {
    /// A server.
    Server(Arc<dyn Upstream>),
    /// A part of the daemon.
    Handler(Arc<dyn CallHandler>),
    /// Nobody: the outcome is known.
    Known(Mutex<Option<CallOutcome>>),
}

/// A call that a server is to answer.
pub type ServerCall = (Box<Call>, Arc<dyn Upstream>);

/// A part of the daemon that answers calls.
pub trait CallHandler: Send + Sync {
    /// Takes a call over. Whatever happens to it, it ends in [`Chain::finish`], once; unless it is
    /// given back, for this server.
    fn handle(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) -> Option<ServerCall>;
}

/// The skills of a server to which a resource belongs.
pub trait SkillFiles: Send + Sync {
    /// The facts about them. `is_read`: the resource is to be read as a file of theirs.
    fn facts(&self, is_read: bool) -> Vec<SkillFacts<'_>>;

    /// Checks the content with which the server answered.
    ///
    /// # Errors
    /// It is not what was approved.
    fn check_content(&self, result: Json<'_>) -> Result<(), Failure>;
}

/// The catalog of targets.
pub trait TargetCatalog: Send + Sync {
    /// The target as it is now, with its present rules, for a call that waited. `None`: it does not
    /// change, or its server, which is gone, says so itself.
    ///
    /// # Errors
    /// Its server no longer has it.
    fn present(self: Arc<Self>, target: &CallTarget) -> Result<Option<Arc<CallTarget>>, Failure>;
}

impl CallTarget {
    /// A target that this answers.
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

    /// A target of the server that it is described to be of.
    pub fn of_server(
        description: TargetDescription,
        rules: TargetRules,
        upstream: Arc<dyn Upstream>,
    ) -> Arc<CallTarget> {
        CallTarget::new(description, rules, Destination::Server(upstream))
    }

    /// The facts about it.
    pub fn description(&self) -> &TargetDescription {
        &self.description
    }

    /// The rules on it.
    pub fn rules(&self) -> &TargetRules {
        &self.rules
    }

    /// The facts by which a call of it is decided.
    pub fn facts<'a>(&'a self, call: &'a Call) -> TargetFacts<'a> {
        let (described, rules) = (&self.description, &self.rules);
        TargetFacts {
            server: &described.server,
            is_own: described.is_ours(),
            feature: described.feature,
            name: &described.operation,
            gate: described.gate,
            is_counted: described.is_counted(call.method),
            is_free_for_people: described.free.by_people,
            is_free_for_agents: described.free.by_agents,
            is_for_operators: rules.is_for_operators,
            account_refusal: rules.account_refusal.as_deref(),
            verdict: Cow::Borrowed(&rules.verdict),
            refuses_tasks: rules.refuses_tasks,
            pin: rules.pin.as_ref(),
            skills: match (&rules.skills, call.method) {
                (Some(skills), Some(Method::ResourcesRead)) => skills.facts(true),
                (Some(skills), Some(Method::DirectoryRead)) => skills.facts(false),
                _ => Vec::new(),
            },
            prompt_contract: (rules.prompt_contract.as_deref())
                .filter(|_| call.method == Some(Method::PromptsGet)),
            argument_check: match &rules.check {
                Some(check) => Some(&**check),
                None => None,
            },
            lacks_completions: call.method == Some(Method::Complete)
                && (described.upstream()).is_some_and(|server| !server.completes()),
            suspension: match (rules.confirmation, call.method) {
                // Who wants to be told no more asks for nothing.
                (_, Some(Method::ResourcesUnsubscribe)) => SuspensionFacts::Nothing,
                (ConfirmationRule::Nothing, _) => SuspensionFacts::Nothing,
                (ConfirmationRule::Entry, _) => SuspensionFacts::Item(call.flow_of(described)),
                (ConfirmationRule::OwnTool(own), _) => {
                    SuspensionFacts::OwnRule((own.applies)(call.arguments()).then_some(own.rule))
                }
            },
        }
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

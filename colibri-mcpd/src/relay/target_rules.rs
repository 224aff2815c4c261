//! The rules on the target of a call.

use std::sync::Arc;

use colibri_policy::{CompiledCheck, Contract, PinStatus, RuleVerdict, SkillFacts};
use colibri_protocol::Failure;
use colibri_wire::Json;

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

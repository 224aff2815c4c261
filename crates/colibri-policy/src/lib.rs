//! Who may call what, and what a call may say: the rules of the operator's files, and the state
//! that they need.
//!
//! [`Clients`] is `clients.json`, from which a [`Caller`] gets [`Rights`] and passes [`Gates`].
//! [`ServerRules`], [`AgentTools`] and [`Contract`] narrow the tools of servers and agents,
//! [`ToolCheck`] a call's arguments, [`Pins`] the definitions themselves. [`SessionFlow`] knows
//! what a session may change and has read. [`ApprovalQueue`] holds what waits for a person.
//! [`UserQuotas`], [`UserSlots`] and [`Choice`] limit what one user takes from all.
//!
//! Its promises:
//! - what a file does not name is refused, and a word in it that would not be applied is an error
//!   with its line and column;
//! - whatever refuses a call or makes it wait names its rule by file, line and key
//!   ([`RulePlace`]), or says which rule it is where no file sets it;
//! - a denial wins over every grant, and only a clear yes of a person lets a call pass that waits
//!   for one;
//! - rules are immutable: a reload builds new ones and swaps them whole;
//! - every check is bounded in work, whatever a server's schema or a client's arguments are like.
//!
//! It sends nothing, starts nothing and records nothing; whom it refuses, the relay tells. It opens
//! the operator's files ([`mod@file`]) and the file of pins, nothing else.

mod agent_tools;
mod answer_contract;
mod approvals;
mod check;
mod clients;
mod confusables;
mod consent;
mod contract;
mod decision;
mod deferral;
pub mod file;
mod flow_labels;
mod gates;
mod hosts;
mod limits;
mod list_mode;
mod may;
mod origin_values;
mod persons;
mod pins;
mod place;
pub mod quota;
mod reported_failure;
mod result_term;
mod rule_scope;
mod rules;
mod schema;
mod session_flow;
mod strict_json;
mod terms;
mod tool_rules;
mod usage;
mod user_database;
mod user_slots;

pub use agent_tools::AgentTools;
pub use answer_contract::{AnswerContract, FieldFact, Redact, ResultFacts};
pub use approvals::{
    ApprovalCaller, ApprovalChange, ApprovalQueue, DEFAULT_EXPIRY, DecideError, Decision,
    PendingApproval, sounds_secret, summary,
};
pub use check::{SchemaCheck, ToolCheck};
pub use clients::{Clients, Rights};
pub use confusables::{LookAlike, look_alikes};
pub use consent::UserConsent;
pub use contract::Contract;
pub use decision::{
    BudgetStatus, CallDecision, CallFacts, CallingAgent, ClientFacts, CompiledCheck, Limit, Road,
    SkillFacts, SuspensionFacts, SuspensionReasons, TargetFacts, Wait, decide, not_as_approved,
    time_on,
};
pub use deferral::Left;
pub use file::FileError;
pub use flow_labels::{FlowLabels, ToolLabels};
pub use gates::{Caller, CallerGates, Gate, GateState, Gates};
pub use hosts::BoardHosts;
pub use limits::DaemonLimits;
pub use list_mode::ListMode;
pub use may::{MayList, PatternScope};
pub use pins::{PinCheck, PinError, PinStatus, Pins, TrustMode, canonical};
pub use place::{PlacedPattern, RulePlace};
pub use quota::{UserQuotas, UserUsage};
pub use reported_failure::ReportedFailure;
pub use rules::{RuleVerdict, ServerRules};
pub use schema::{Fit, Schema, SchemaError};
pub use session_flow::{BoundMay, FlowCall, FlowSuspension, MayPlace, SessionFlow};
pub use strict_json::{Exact, Inexact};
pub use tool_rules::ToolRules;
pub use usage::{Choice, CostRule, DailyUsage, Terms};
pub use user_database::{SystemAccounts, UserDatabase};
pub use user_slots::{UserSlot, UserSlots};

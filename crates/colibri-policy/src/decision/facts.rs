//! The facts about a call that decide.

use std::borrow::Cow;

use colibri_api::{CostDay, CostMode};
use colibri_protocol::{Failure, Feature};

use crate::agent_tools::AgentTools;
use crate::check::ToolCheck;
use crate::clients::Rights;
use crate::contract::Contract;
use crate::gates::{Gate, Gates};
use crate::pins::PinStatus;
use crate::place::RulePlace;
use crate::rules::RuleVerdict;
use crate::session_flow::{FlowCall, SessionFlow};
use crate::usage::Terms;

use super::road::Road;
use super::suspension::SuspensionReasons;

/// The facts about a call that decide.
pub struct CallFacts<'a> {
    /// The road by which it comes.
    pub road: Road,
    /// Who makes it.
    pub caller: ClientFacts<'a>,
    /// What it is for.
    pub target: TargetFacts<'a>,
    /// The arguments of a tool or prompt, which are JSON text.
    pub arguments: &'a [u8],
    /// True if a tool call is to become a task (`params.task`).
    pub as_task: bool,
    /// The limits of its session, looked up where something could be held by them.
    pub session_flow: &'a dyn Fn() -> Option<&'a SessionFlow>,
    /// The reason for which its server would take no call now, looked up before a person is asked.
    pub unavailable: &'a dyn Fn() -> Option<Failure>,
    /// What a person has allowed of it, where it is released after it waited.
    pub allowed: Option<&'a SuspensionReasons>,
}

/// The client of a call.
pub struct ClientFacts<'a> {
    /// Its rights by the client policy, an agent's tools among them.
    pub rights: &'a Rights,
    /// The gates of the daemon.
    pub daemon_gates: Gates,
    /// Those that are left for its connection.
    pub connection_gates: Gates,
    /// The agent that it is, if it is one.
    pub agent: Option<CallingAgent<'a>>,
    /// The bytes of answers that it had, and may have.
    pub budget: BudgetStatus,
}

/// The agent whose instance makes a call.
#[derive(Clone, Copy)]
pub struct CallingAgent<'a> {
    /// Its id in the registry.
    pub id: &'a str,
    /// The tools that its entry lets it use.
    pub tools: &'a AgentTools,
    /// The most bytes of answers by its entry; `None`: any number.
    pub max_bytes: Option<u64>,
    /// The place of that limit.
    pub max_bytes_place: &'a RulePlace,
    /// The reason for which this host's lease on its task is over; `None`: it is in force.
    pub lease_over: Option<&'a str>,
}

/// The target of a call. What a target has no part of is `None`, and the step passes.
pub struct TargetFacts<'a> {
    /// The server's id; `colibri` for what the daemon answers itself.
    pub server: &'a str,
    /// True if the daemon answers itself.
    pub is_own: bool,
    /// The kind of item.
    pub feature: Feature,
    /// The server's own name or URI, or the method.
    pub name: &'a str,
    /// The gate in front of it.
    pub gate: Gate,
    /// True if it costs bytes of a budget.
    pub is_counted: bool,
    /// True if a person can call it where their budget is spent.
    pub is_free_for_people: bool,
    /// True if an agent can call it where its budget is spent.
    pub is_free_for_agents: bool,
    /// True if it is a method for operators.
    pub is_for_operators: bool,
    /// The reason for which it is not known which account of an entry is meant.
    pub account_refusal: Option<&'a Failure>,
    /// The verdict of its entry's rules; a denial where a label of the entry cannot be applied.
    pub verdict: Cow<'a, RuleVerdict>,
    /// True if it could answer with a task, which nobody could ask for: tasks are not relayed.
    pub refuses_tasks: bool,
    /// The status of its definition's pin.
    pub pin: Option<&'a PinStatus>,
    /// The skills that a resource belongs to.
    pub skills: Vec<SkillFacts<'a>>,
    /// The contract on a prompt.
    pub prompt_contract: Option<&'a Contract>,
    /// The checks of a tool's arguments.
    pub argument_check: Option<&'a dyn CompiledCheck>,
    /// The server that is asked for completions and declares none.
    pub lacks_completions: bool,
    /// What a person can be asked about it.
    pub suspension: SuspensionFacts<'a>,
}

/// A skill that a resource belongs to.
pub struct SkillFacts<'a> {
    /// Its URI.
    pub name: &'a str,
    /// The status of its pin.
    pub pin: &'a PinStatus,
    /// True if the resource is to be read as a file of it and it lists no such file.
    pub lacks_file: bool,
}

/// What a person can be asked about a target.
#[derive(Debug, Clone, Copy)]
pub enum SuspensionFacts<'a> {
    /// Nothing: it changes nothing, or goes on with what was allowed.
    Nothing,
    /// A tool of the daemon's own that says so itself: its rule, if these arguments need it.
    OwnRule(Option<&'a str>),
    /// The rules of its entry and of an agent's, and the limits of the session, which look at this.
    Item(FlowCall<'a>),
}

/// The checks of a tool's arguments, compiled when they are first needed: a call that is refused
/// before compiles nothing.
pub trait CompiledCheck {
    /// The compiled checks.
    fn compiled(&self) -> &ToolCheck;
}

/// The state of a client's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetStatus {
    /// The day, UTC.
    pub day: CostDay,
    /// The cost mode that is set.
    pub terms: Terms,
    /// Bytes of answers: of a person on one day, of an agent's instance since its start.
    pub spent: u64,
    /// Of these, bytes from before its user chose the mode, which that does not count.
    pub before: u64,
    /// The most; `None`: any number.
    pub most: Option<u64>,
}

impl BudgetStatus {
    /// The mode in force; `None`: none acts.
    pub fn mode(&self) -> Option<CostMode> {
        self.terms.in_force(self.spent.saturating_sub(self.before))
    }

    /// The bytes that are left; `None`: any number.
    pub fn left(&self) -> Option<u64> {
        self.most.map(|most| most.saturating_sub(self.spent))
    }
}

//! Whether a call may go: the one place that decides.
//!
//! [`decide`] is asked when a call enters, again when its target becomes known (a redirect), and
//! again when it is released after it waited for a person. It is a list of named steps, each of
//! which takes what the one before it yields, so that none can be left out or moved. The order:
//!
//! 1. lease: the host still has the agent's task;
//! 2. budget: the reader of the answer has bytes left;
//! 3. gate: open for the daemon, the connection and the user;
//! 4. rights: the client policy, and what an agent's entry gives it;
//! 5. rule: the entry's rules on the item, and labels that can be applied;
//! 6. task: `params.task` is refused where nobody could ask for the result;
//! 7. pin: the definition, and that of the skills that a resource belongs to, is as approved;
//! 8. arguments: the contract's terms, then the tool's own schema;
//! 9. completion: the server declares what is asked for.
//!
//! Only a call that all of these let through can wait for a person, so that nobody is asked about
//! what is refused anyway: for the rule of the entry or of the agent's, and for the limits of its
//! session (what it may change, where its destinations come from).
//!
//! It has no effects: what is recorded, counted, remembered or asked is the relay's, afterwards.

mod budget;

use std::borrow::Cow;

use colibri_protocol::{Code, Failure, Feature};
use colibri_text::brief;
use colibri_trail::Validation;

use super::agent_tools::AgentTools;
use super::check::ToolCheck;
use super::clients::Rights;
use super::contract::Contract;
use super::gates::{CallerGates, Gate, Gates};
use super::pins::PinStatus;
use super::rules::RuleVerdict;
use super::session_flow::{FlowCall, FlowSuspension, SessionFlow};
pub use budget::{BudgetStatus, time_on};

/// The facts about a call that decide.
pub struct CallFacts<'a> {
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
    pub agent: Option<AgentFacts<'a>>,
    /// The bytes of answers that it had, and may have.
    pub budget: BudgetStatus,
}

/// The agent whose instance makes a call.
#[derive(Clone, Copy)]
pub struct AgentFacts<'a> {
    /// Its id in the registry.
    pub id: &'a str,
    /// The tools that its entry lets it use.
    pub tools: &'a AgentTools,
    /// The most bytes of answers by its entry; `None`: any number.
    pub max_bytes: Option<u64>,
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
    /// The verdict of its entry's rules; a denial where a label of the entry cannot be applied.
    pub verdict: Cow<'a, RuleVerdict>,
    /// True if it could answer with a task, which nobody could ask for: tasks are not relayed.
    pub refuses_tasks: bool,
    /// The status of its definition's pin.
    pub pin: Option<Cow<'a, PinStatus>>,
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

/// The decision about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallDecision {
    /// It goes to its target.
    Passes(Validation),
    /// It goes once a person has allowed it.
    Waits(Wait),
    /// It does not go: the code, the rule and its place are the failure's.
    Refuses(Box<Failure>),
}

impl CallDecision {
    /// The outcome of the check of the call's arguments, as far as it came.
    pub fn validation(&self) -> Validation {
        match self {
            CallDecision::Passes(validation) => *validation,
            CallDecision::Waits(wait) => wait.validation,
            CallDecision::Refuses(_) => Validation::default(),
        }
    }
}

/// The reasons for which a call waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The outcome of the check of its arguments.
    pub validation: Validation,
    /// What it waits for.
    pub reasons: SuspensionReasons,
}

/// The reasons for which a person has to allow a call, or has allowed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuspensionReasons {
    /// The rule of the entry, or of the agent's, and its place.
    pub rule: Option<String>,
    /// The limits of its session.
    pub limits: Vec<FlowSuspension>,
}

impl SuspensionReasons {
    fn is_empty(&self) -> bool {
        self.rule.is_none() && self.limits.is_empty()
    }

    /// Adds what a person was asked before.
    pub fn extend(&mut self, other: SuspensionReasons) {
        self.rule = other.rule.or(self.rule.take());
        self.limits.extend(other.limits);
    }
}

/// The reasons, as the person gets to read them.
impl std::fmt::Display for SuspensionReasons {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut separator = "";
        if let Some(rule) = &self.rule {
            f.write_str(rule)?;
            separator = "; ";
        }
        for limit in &self.limits {
            write!(f, "{separator}{limit}")?;
            separator = "; ";
        }
        Ok(())
    }
}

/// Decides whether a call may go.
pub fn decide(call: &CallFacts<'_>) -> CallDecision {
    match check_refusals(call) {
        Err(failure) => CallDecision::Refuses(Box::new(failure)),
        Ok(cleared) => check_suspension(call, cleared),
    }
}

/// A call that no step refuses.
struct Cleared(Validation);

/// The steps, in their order.
fn check_refusals(call: &CallFacts<'_>) -> Result<Cleared, Failure> {
    let leased = check_lease(&call.caller)?;
    let afforded = check_budget(leased, call)?;
    let open = check_gate(afforded, call)?;
    let granted = check_rights(open, call)?;
    let ruled = check_rule(granted, &call.target)?;
    let untasked = check_task(ruled, call)?;
    let pinned = check_pins(untasked, &call.target)?;
    let validated = check_arguments(pinned, call)?;
    check_completion(validated, &call.target)
}

struct Leased;
struct Afforded;
struct Open;
struct Granted;
struct Ruled;
struct Untasked;
struct Pinned;
struct Validated(Validation);

fn check_lease(caller: &ClientFacts<'_>) -> Result<Leased, Failure> {
    match caller.agent.and_then(|agent| agent.lease_over) {
        Some(reason) => Err(Failure::new(Code::StoreUnavailable, reason)),
        None => Ok(Leased),
    }
}

fn check_budget(_: Leased, call: &CallFacts<'_>) -> Result<Afforded, Failure> {
    let (caller, target) = (&call.caller, &call.target);
    let is_free = match caller.agent {
        Some(_) => target.is_free_for_agents,
        None => target.is_free_for_people,
    };
    if !target.is_counted || is_free || caller.budget.left() != Some(0) {
        return Ok(Afforded);
    }
    Err(budget::spent(caller))
}

fn check_gate(_: Afforded, call: &CallFacts<'_>) -> Result<Open, Failure> {
    let (caller, target) = (&call.caller, &call.target);
    if target.gate == Gate::None {
        return Ok(Open);
    }
    let gates = CallerGates::of(caller.daemon_gates, caller.connection_gates, caller.rights);
    match gates.check(target.gate) {
        Ok(()) => Ok(Open),
        Err(failure) => Err(failure.of_server(target.server)),
    }
}

fn check_rights(_: Open, call: &CallFacts<'_>) -> Result<Granted, Failure> {
    let target = &call.target;
    if !target.is_own {
        let rights = call.caller.rights;
        rights.may(target.server, target.feature, target.name)?;
    }
    Ok(Granted)
}

fn check_rule(_: Granted, target: &TargetFacts<'_>) -> Result<Ruled, Failure> {
    match target.verdict.failure(target.server, target.feature) {
        Some(failure) => Err(failure),
        None => Ok(Ruled),
    }
}

fn check_task(_: Ruled, call: &CallFacts<'_>) -> Result<Untasked, Failure> {
    if !call.as_task || !call.target.refuses_tasks {
        return Ok(Untasked);
    }
    let why = "tasks are not relayed: params.task is refused before anything is sent";
    Err(Failure::new(Code::NotSupportedYet, why)
        .of_server(call.target.server)
        .advising("call the tool without params.task"))
}

fn check_pins(_: Untasked, target: &TargetFacts<'_>) -> Result<Pinned, Failure> {
    let TargetFacts {
        server,
        feature,
        name,
        ..
    } = *target;
    if let Some(failure) = target
        .pin
        .as_ref()
        .and_then(|pin| pin.failure(server, feature, name))
    {
        return Err(failure);
    }
    for skill in &target.skills {
        if let Some(failure) = skill.pin.failure(server, Feature::Skill, skill.name) {
            return Err(failure);
        }
        if skill.lacks_file {
            let why = "it is not among the files of the skill";
            return Err(not_as_approved(server, name, skill.name, why));
        }
    }
    Ok(Pinned)
}

/// The failure of a resource that is not what was approved of its skill.
pub fn not_as_approved(server: &str, uri: &str, skill: &str, why: &str) -> Failure {
    let message = format!(
        "{} is not what was approved of skill {}: {why}",
        brief(uri, 100),
        brief(skill, 100)
    );
    Failure::new(Code::PinChanged, message)
        .of_server(server)
        .advising(
            "ask for the skill again with skills/get; if it changed, an operator has to accept it",
        )
}

fn check_arguments(_: Pinned, call: &CallFacts<'_>) -> Result<Validated, Failure> {
    let target = &call.target;
    if let Some(contract) = target.prompt_contract {
        contract.check_prompt(target.server, target.name, call.arguments)?;
    }
    match target.argument_check {
        Some(check) => Ok(Validated(check.compiled().check(call.arguments)?)),
        None => Ok(Validated(Validation::default())),
    }
}

fn check_completion(
    Validated(validation): Validated,
    target: &TargetFacts<'_>,
) -> Result<Cleared, Failure> {
    if !target.lacks_completions {
        return Ok(Cleared(validation));
    }
    let why = format!(
        "server {} declares no completions, so it is not asked for any",
        target.server
    );
    Err(Failure::new(Code::NotOffered, why).of_server(target.server))
}

/// Whether a person has to allow the call first.
fn check_suspension(call: &CallFacts<'_>, Cleared(validation): Cleared) -> CallDecision {
    let mut reasons = match call.target.suspension {
        SuspensionFacts::Nothing => SuspensionReasons::default(),
        SuspensionFacts::OwnRule(rule) => SuspensionReasons {
            rule: rule.map(str::to_owned),
            limits: Vec::new(),
        },
        SuspensionFacts::Item(flow) => SuspensionReasons {
            rule: confirm_rule(call),
            limits: match (call.session_flow)() {
                Some(session) => session.judge(&flow),
                None => Vec::new(),
            },
        },
    };
    if let Some(allowed) = call.allowed {
        if reasons.rule == allowed.rule {
            reasons.rule = None;
        }
        reasons
            .limits
            .retain(|limit| !allowed.limits.contains(limit));
    }
    if reasons.is_empty() {
        CallDecision::Passes(validation)
    } else {
        CallDecision::Waits(Wait {
            validation,
            reasons,
        })
    }
}

/// The rule of the entry that a person has to allow the call, else that of the agent's entry.
fn confirm_rule(call: &CallFacts<'_>) -> Option<String> {
    if let RuleVerdict::Confirm { rule } = &*call.target.verdict {
        return Some(rule.clone());
    }
    let agent = call.caller.agent?;
    match agent.tools.judge(call.target.server, call.target.name) {
        RuleVerdict::Confirm { rule } => Some(rule),
        RuleVerdict::Allow | RuleVerdict::Deny { .. } => None,
    }
}

#[cfg(test)]
mod tests;

//! Whether a call may go: the one place that decides.
//!
//! [`decide`] is asked when a call enters, again when its target becomes known (a redirect), and
//! again when it is released after it waited for a person; of each resource that a subscription
//! names, too. It is a list of named steps, each of
//! which takes what the one before it yields, so that none can be left out or moved. The order:
//!
//! 1. lease: the host still has the agent's task;
//! 2. budget: the reader of the answer has bytes left;
//! 3. gate: open for the daemon, the connection and the user;
//! 4. operator: methods for operators are theirs alone;
//! 5. account: it is known which account of an entry is meant;
//! 6. rights: the client policy, and what an agent's entry gives it;
//! 7. rule: the entry's rules on the item, and labels that can be applied;
//! 8. task: `params.task` is refused where nobody could ask for the result;
//! 9. pin: the definition, and that of the skills that a resource belongs to, is as approved;
//! 10. arguments: the contract's terms, then the tool's own schema;
//! 11. completion: the server declares what is asked for.
//!
//! Only a call that all of these let through, and whose server takes calls at all, can wait for a
//! person, so that nobody is asked about what is refused anyway: for the rule of the entry, of the
//! agent's or of a tool of Colibri's own, and for the limits of its session (what it may change,
//! where its destinations come from). What a person has allowed holds a call no second time;
//! another reason does. Nothing holds the retry of a call whose server has asked for input: it has
//! begun.
//!
//! Every refusal by a rule names it: with file, line and key where a file sets it
//! ([`crate::RulePlace`]), else what it is, such as `inputSchema`.
//!
//! It has no effects: what is recorded, counted, remembered or asked is the relay's, afterwards.
//! Three facts are made at their first use: the compiled checks, the limits of a session, and
//! whether the server takes calls.

mod budget;
mod facts;
mod road;
mod suspension;

use colibri_protocol::{Code, Failure, Feature};
use colibri_text::brief;
use colibri_trail::Validation;

use crate::gates::Gate;
use crate::place::RulePlace;
use crate::rules::RuleVerdict;
pub use budget::time_on;
pub use facts::{
    BudgetStatus, CallFacts, CallingAgent, ClientFacts, CompiledCheck, SkillFacts, SuspensionFacts,
    TargetFacts,
};
pub use road::{Limit, Road};
pub use suspension::SuspensionReasons;

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

/// Decides whether a call may go.
pub fn decide(call: &CallFacts<'_>) -> CallDecision {
    match check_refusals(call) {
        Err(failure) => CallDecision::Refuses(Box::new(failure)),
        Ok(cleared) => check_suspension(call, cleared),
    }
}

/// A call that no step refuses.
struct Clearance(Validation);

/// The steps, in their order.
fn check_refusals(call: &CallFacts<'_>) -> Result<Clearance, Failure> {
    let leased = check_lease(&call.caller)?;
    let afforded = check_budget(leased, call)?;
    let open = check_gate(afforded, call)?;
    let entitled = check_operator(open, call)?;
    let named = check_account(entitled, &call.target)?;
    let granted = check_rights(named, call)?;
    let ruled = check_rule(granted, &call.target)?;
    let untasked = check_task(ruled, call)?;
    let pinned = check_pins(untasked, &call.target)?;
    let validated = check_arguments(pinned, call)?;
    check_completion(validated, &call.target)
}

struct LeaseProof;
struct BudgetProof;
struct GateProof;
struct OperatorProof;
struct AccountProof;
struct RightsProof;
struct RuleProof;
struct TaskProof;
struct PinProof;
struct ArgumentProof(Validation);

fn check_lease(caller: &ClientFacts<'_>) -> Result<LeaseProof, Failure> {
    let over = caller
        .agent
        .and_then(|agent| Some((agent.id, agent.lease_over?)));
    match over {
        Some((agent, reason)) => {
            Err(Failure::new(Code::StoreUnavailable, reason).by_rule(format!("lease:{agent}")))
        }
        None => Ok(LeaseProof),
    }
}

fn check_budget(_: LeaseProof, call: &CallFacts<'_>) -> Result<BudgetProof, Failure> {
    let (caller, target) = (&call.caller, &call.target);
    let is_free = match caller.agent {
        Some(_) => target.is_free_for_agents,
        None => target.is_free_for_people,
    };
    if !target.is_counted || is_free || caller.budget.left() != Some(0) {
        return Ok(BudgetProof);
    }
    Err(budget::spent(caller))
}

fn check_gate(_: BudgetProof, call: &CallFacts<'_>) -> Result<GateProof, Failure> {
    let (caller, target) = (&call.caller, &call.target);
    if target.gate == Gate::None {
        return Ok(GateProof);
    }
    let (daemon, connection) = (caller.daemon_gates, caller.connection_gates);
    let state = caller.rights.gate_state(target.gate, daemon, connection);
    match state.check(target.gate) {
        Ok(()) => Ok(GateProof),
        Err(failure) => Err(failure.of_server(target.server)),
    }
}

fn check_operator(_: GateProof, call: &CallFacts<'_>) -> Result<OperatorProof, Failure> {
    if call.target.is_for_operators {
        call.caller.rights.check_operator()?;
    }
    Ok(OperatorProof)
}

fn check_account(_: OperatorProof, target: &TargetFacts<'_>) -> Result<AccountProof, Failure> {
    match target.account_refusal {
        Some(failure) => Err(failure.clone()),
        None => Ok(AccountProof),
    }
}

fn check_rights(_: AccountProof, call: &CallFacts<'_>) -> Result<RightsProof, Failure> {
    let target = &call.target;
    if !target.is_own {
        let rights = call.caller.rights;
        rights.may(target.server, target.feature, target.name)?;
    }
    Ok(RightsProof)
}

fn check_rule(_: RightsProof, target: &TargetFacts<'_>) -> Result<RuleProof, Failure> {
    match target.verdict.failure(target.server, target.feature) {
        Some(failure) => Err(failure),
        None => Ok(RuleProof),
    }
}

fn check_task(_: RuleProof, call: &CallFacts<'_>) -> Result<TaskProof, Failure> {
    if !call.as_task || !call.target.refuses_tasks {
        return Ok(TaskProof);
    }
    let why = "tasks are not relayed: params.task is refused before anything is sent";
    Err(Failure::new(Code::NotSupportedYet, why)
        .of_server(call.target.server)
        .by_rule("params.task")
        .advising("call the tool without params.task"))
}

fn check_pins(_: TaskProof, target: &TargetFacts<'_>) -> Result<PinProof, Failure> {
    let TargetFacts {
        server,
        feature,
        name,
        ..
    } = *target;
    if let Some(failure) = target
        .pin
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
    Ok(PinProof)
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
        .by_rule(format!("pin:{server}/{}", brief(skill, 100)))
        .advising(
            "ask for the skill again with skills/get; if it changed, an operator has to accept it",
        )
}

fn check_arguments(_: PinProof, call: &CallFacts<'_>) -> Result<ArgumentProof, Failure> {
    let target = &call.target;
    if let Some(contract) = target.prompt_contract {
        contract.check_prompt(target.server, target.name, call.arguments)?;
    }
    match target.argument_check {
        Some(check) => Ok(ArgumentProof(check.compiled().check(call.arguments)?)),
        None => Ok(ArgumentProof(Validation::default())),
    }
}

fn check_completion(
    ArgumentProof(validation): ArgumentProof,
    target: &TargetFacts<'_>,
) -> Result<Clearance, Failure> {
    if !target.lacks_completions {
        return Ok(Clearance(validation));
    }
    let why = format!(
        "server {} declares no completions, so it is not asked for any",
        target.server
    );
    Err(Failure::new(Code::NotOffered, why)
        .of_server(target.server)
        .by_rule("capabilities.completions"))
}

/// Whether a person has to allow the call first, beside what was allowed of it.
fn check_suspension(call: &CallFacts<'_>, Clearance(validation): Clearance) -> CallDecision {
    let (allowed_rule, allowed_limits) = match call.allowed {
        Some(allowed) => (allowed.rule.as_ref(), &*allowed.limits),
        None => (None, &[][..]),
    };
    let (rule, limits) = match call.target.suspension {
        SuspensionFacts::Nothing => (None, Vec::new()),
        SuspensionFacts::OwnRule(rule) => (rule.map(RulePlace::outside_files), Vec::new()),
        SuspensionFacts::Item(flow) => {
            let session = (call.session_flow)();
            let limits = session.map(|session| session.judge(&flow, allowed_limits));
            (confirm_rule(call), limits.unwrap_or_default())
        }
    };
    let reasons = SuspensionReasons {
        rule: rule.filter(|rule| allowed_rule != Some(rule)),
        limits,
    };
    // A call that its server has begun is held no more: the person would be asked about what has
    // happened already.
    if reasons.is_empty() || call.road.is_begun() {
        return CallDecision::Passes(validation);
    }
    match (call.unavailable)() {
        Some(failure) => CallDecision::Refuses(Box::new(failure)),
        None => CallDecision::Waits(Wait {
            validation,
            reasons,
        }),
    }
}

/// The rule of the entry that a person has to allow the call, else that of the agent's entry.
fn confirm_rule(call: &CallFacts<'_>) -> Option<RulePlace> {
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

//! The budget step: the bytes of answers that a caller may still have.

use std::time::{Duration, SystemTime};

use colibri_api::{CostDay, CostMode, CostSetBy};
use colibri_protocol::{Code, Failure};

use super::facts::{BudgetStatus, ClientFacts};
use crate::usage::Terms;

/// The refusal of a person whose budget is spent, with the time until which it holds.
const UNTIL_MIDNIGHT: &str =
    "; until 00:00 UTC tools of servers are refused, Colibri's own tools are not";

/// The failure of a call whose caller has spent its budget.
pub(super) fn spent(caller: &ClientFacts<'_>) -> Failure {
    let BudgetStatus {
        day,
        terms,
        spent,
        before,
        most,
    } = caller.budget;
    if let Some(agent) = caller.agent
        && agent.max_bytes == most
    {
        let most = most.unwrap_or_default();
        let message = format!(
            "this agent has had {spent} bytes of answers of the {most} that its entry allows"
        );
        let rule = agent.max_bytes_place.to_string();
        return Failure::new(Code::BudgetSpent, message).by_rule(rule);
    }
    let uncapped = Terms { cap: None, ..terms };
    let capped = terms
        .cap
        .filter(|_| terms.most(before) < uncapped.most(before));
    let mode = capped.or(caller.budget.mode()).unwrap_or_default();
    let counted = match capped {
        None => spent.saturating_sub(before),
        Some(_) => spent,
    };
    let since = terms.counts_from().filter(|_| capped.is_none());
    let budget = mode.budgets().session_bytes;
    let rule = match terms.set_by {
        CostSetBy::User if capped.is_none() => "this user's choice".to_owned(),
        CostSetBy::User | CostSetBy::Policy => caller.rights.cost_place(),
        CostSetBy::Daemon => "--cost-mode (COLIBRI_COST_MODE)".to_owned(),
        CostSetBy::Nobody => "the cost mode of agents for which none is set".to_owned(),
    };
    let is_agent = caller.agent.is_some();
    let chosen_at = since.and_then(|at| time_on(day, at));
    let (whose, until) = match (is_agent, chosen_at) {
        (true, _) if counted < spent => (
            "since its person chose the mode this agent has".to_owned(),
            "",
        ),
        (true, _) => ("this agent has".to_owned(), ""),
        (false, Some(time)) => (
            format!("since {time} UTC, when the mode was chosen, this user has"),
            UNTIL_MIDNIGHT,
        ),
        (false, None) => ("since 00:00 UTC this user has".to_owned(), UNTIL_MIDNIGHT),
    };
    let message = format!(
        "{whose} had {counted} bytes of answers of the {budget} of cost mode {mode}, by {rule}{until}"
    );
    let failure = Failure::new(Code::BudgetSpent, message).by_rule(rule);
    if is_agent {
        return failure;
    }
    let more = match (caller.rights.cost.larger(mode, spent), mode) {
        (Some(larger), _) => {
            format!("or set cost mode {larger} now with colibri_set_cost_mode (write gate)")
        }
        (None, CostMode::Max) => "ask for less from then on".to_owned(),
        (None, _) => "or ask the operator for a larger mode: cost in clients.json".to_owned(),
    };
    failure.advising(format!("go on after 00:00 UTC, {more}"))
}

/// Hour and minute (UTC) of a time in milliseconds since the epoch, if it is of this day.
pub fn time_on(day: CostDay, at: u64) -> Option<String> {
    let minutes = at / 60_000 % (24 * 60);
    let is_on_day = CostDay::of(SystemTime::UNIX_EPOCH + Duration::from_millis(at)) == day;
    is_on_day.then(|| format!("{:02}:{:02}", minutes / 60, minutes % 60))
}

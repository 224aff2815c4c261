//! The cost of answers to their reader: checked as calls enter, counted as they leave. A person has
//! a budget for each day (UTC), an agent's instance one for its life.

use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::call::Call;
use super::call_outcome::CallOutcome;
use super::client::Client;
use super::target::Upstream;
use crate::results::MOST_COUNTED;
use colibri_api::{CostDay, CostMode};
use colibri_policy::{BudgetStatus, Rights, Terms, time_on};

/// Results up to so many bytes are relayed whole however little is left. It bounds what calls that
/// are on their way when a budget ends can spend beyond it.
const SMALL: u64 = 4_000;
/// The part of a budget that lists may take: servers make them as long as they like, and have them
/// read again whenever they report a change.
const OF_LISTS: u64 = 10;
/// The most bytes, if the limit is not more, of what is no result and cannot be kept: four times
/// what a question's `requestState` may have, for forms and prompts, and no way around the limit.
const UNKEPT: u64 = 1 << 20;

/// The present state of the budget of a client with this cost mode.
pub fn budget_of(client: &Client, terms: Terms) -> BudgetStatus {
    let day = today();
    let (spent, before, of_entry) = match (&client.door, client.share()) {
        (Some(door), _) => {
            let before = door.spent.before(&terms);
            (
                door.spent.bytes.load(Ordering::Relaxed),
                before,
                door.max_bytes,
            )
        }
        (None, Some(share)) => {
            let spent = share.spent_on(day);
            (spent.bytes, spent.before(&terms), None)
        }
        (None, None) => (0, 0, None),
    };
    BudgetStatus {
        day,
        terms,
        spent,
        before,
        most: least([of_entry, terms.most(before)]),
    }
}

/// By the clock, and not by when a call came in: one that lasts for days is no way back into a day
/// that is over.
fn today() -> CostDay {
    CostDay::of(SystemTime::now())
}

fn least<const N: usize>(limits: [Option<u64>; N]) -> Option<u64> {
    limits.into_iter().flatten().min()
}

/// The cost mode that is set for a client that policy lets do this.
pub fn terms(rights: &Rights, client: &Client) -> Terms {
    client
        .share()
        .map(|share| share.terms(rights.cost))
        .unwrap_or_default()
}

/// True if nothing is left of the budget of a call's client.
pub(crate) fn is_spent(call: &Call) -> bool {
    budget_of(&call.client, call.entry.terms).left() == Some(0)
}

/// Hour and minute of a time (UTC) in milliseconds since the epoch, if it is of today.
pub(crate) fn time_of_today(at: u64) -> Option<String> {
    time_on(today(), at)
}

/// The most bytes that a server's answer to a call may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerLimit {
    /// The most of a result that is relayed whole.
    pub result: u64,
    /// The origin of the limit.
    pub of: &'static str,
    /// The most of what is no result and cannot be kept: an error, a question, the name of a task.
    pub unkept: u64,
    /// The most of all that counts of a result, its images and the like included: what is left of
    /// the budget. `None`: any number.
    pub whole: Option<u64>,
}

/// The limit of a result that a script reads, and no model.
const OF_SCRIPTS: AnswerLimit = AnswerLimit {
    result: 4 << 20,
    of: "of what a script gets at once",
    unkept: UNKEPT,
    whole: None,
};

/// The limit by a server's entry, by the client's cost mode, and by what is left of the client's
/// budget; `None`: there is none.
pub fn limit(call: &Call) -> Option<AnswerLimit> {
    let upstream = call.target.description().upstream();
    if upstream.is_some_and(Upstream::relays_whole) {
        return None;
    }
    if call.client.outer.is_some() {
        return Some(OF_SCRIPTS);
    }
    let of_entry = upstream.and_then(Upstream::result_limit);
    let (of_mode, left) = match has_budget(call) {
        false => (None, None),
        true => {
            let standing = budget_of(&call.client, call.entry.terms);
            let of_mode = standing
                .mode()
                .and_then(|mode| mode.budgets().tool_result_bytes);
            let is_free = call.client.door.is_none() && call.target.description().free.by_people;
            match (is_free, standing.left()) {
                // What is kept could not be read.
                (true, Some(0)) => (None, None),
                (true, _) => (of_mode, None),
                (false, left) => (of_mode, left.map(|left| left.max(SMALL))),
            }
        }
    };
    let limits = [
        (of_entry, "result_limit of the entry"),
        (of_mode, "of the cost mode"),
        (left, "what is left of the budget"),
    ];
    let limits = limits
        .into_iter()
        .filter_map(|(most, of)| Some((most?, of)));
    let (result, of) = limits.min_by_key(|(most, _)| *most)?;
    let set = least([of_entry, of_mode]).map(|set| set.max(UNKEPT));
    let unkept = least([set, left])?;
    Some(AnswerLimit {
        result,
        of,
        unkept,
        whole: left,
    })
}

fn has_budget(call: &Call) -> bool {
    call.entry.terms.mode.is_some() || call.client.door.is_some()
}

/// True if an answer of so many bytes can have images and the like that do not count as they are
/// sent.
pub(crate) fn weighs_media(call: &Call, length: usize) -> bool {
    length > MOST_COUNTED && has_budget(call)
}

/// Locked while an answer is measured and counted that could go beyond its client's budget: of
/// answers that come at the same time each finds what those before it have left.
pub fn alone<'a>(call: &'a Call, outcome: &CallOutcome) -> Option<MutexGuard<'a, ()>> {
    let CallOutcome::Relayed(relayed) = outcome else {
        return None;
    };
    let (Ok(span) | Err(span)) = &relayed.outcome;
    let could = has_budget(call) && span.len() as u64 > SMALL;
    could
        .then(|| call.client.share())
        .flatten()
        .map(|share| share.alone())
}

/// A cost mode that has gone up because its budget is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModeRaise {
    /// The mode before.
    pub from: CostMode,
    /// The kind of item.
    pub to: CostMode,
    /// Bytes of answers by now.
    pub spent: u64,
}

/// Counts a list that was answered in so many bytes, as far as lists count.
pub fn listed(call: &Call, bytes: usize) -> Option<CostModeRaise> {
    let share = call.client.share()?;
    let of_mode = call
        .entry
        .terms
        .mode
        .unwrap_or_default()
        .budgets()
        .session_bytes;
    let of_entry = call.client.door.as_ref().and_then(|door| door.max_bytes);
    let most = least([of_entry, Some(of_mode)]).unwrap_or(of_mode) / OF_LISTS;
    let counts = share.of_list(today(), bytes as u64, most);
    answered(call, usize::try_from(counts).unwrap_or(usize::MAX))
}

/// Counts a call that was answered in so many bytes. Of calls that end at the same time one sees
/// the mode go up.
pub fn answered(call: &Call, bytes: usize) -> Option<CostModeRaise> {
    // A script's model reads what the script returns.
    let bytes = if call.client.outer.is_some() {
        0
    } else {
        bytes as u64
    };
    let before = match (&call.client.door, call.client.share()) {
        (Some(door), _) => {
            door.spent.calls.fetch_add(
                call.target.description().is_counted(call.method).into(),
                Ordering::Relaxed,
            );
            let stood = door.spent.bytes.fetch_add(bytes, Ordering::Relaxed);
            stood.saturating_sub(door.spent.before(&call.entry.terms))
        }
        // Operators' methods are no model's.
        (None, Some(share)) if call.method.is_some() || !call.target.description().is_ours() => {
            let stood = share.spend(today(), bytes);
            stood.bytes - stood.before(&call.entry.terms)
        }
        (None, _) => return None,
    };
    let spent = before.saturating_add(bytes);
    let (from, to) = (
        call.entry.terms.in_force(before)?,
        call.entry.terms.in_force(spent)?,
    );
    (from != to).then_some(CostModeRaise { from, to, spent })
}

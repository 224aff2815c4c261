//! Usage: the bytes of answers that people and agents have, and the cost mode that says how many
//! they may have.
//!
//! A mode that goes up at its budget is not kept anywhere: it follows from what was set and what is
//! spent, so that it stands after a restart as it stood before, and goes no way but up until the
//! day is over.

use std::time::{Duration, SystemTime};

use colibri_api::{CostDay, CostMode, CostSetBy};
use colibri_json::ValueCursor;
use parking_lot::Mutex;

/// The cost rule of a caller in the client policy: `cost` of `clients.json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CostRule {
    /// The mode; `None`: it says nothing of it.
    pub mode: Option<CostMode>,
    /// True if the mode goes up where its budget is spent.
    pub escalates: bool,
}

impl CostRule {
    /// Reads it.
    ///
    /// # Errors
    /// An unknown key, an unknown mode, nothing at all.
    pub(super) fn read(cursor: &ValueCursor<'_>) -> Result<CostRule, colibri_json::DocumentError> {
        let keys = cursor.object(&["mode", "escalate"])?;
        let mode = keys.read("mode", |mode| {
            let known = mode.text()?.parse::<CostMode>();
            known.map_err(|_| mode.error("must be fast, smart or max"))
        })?;
        let escalate = keys.read("escalate", ValueCursor::boolean)?;
        if mode.is_none() && escalate.is_none() {
            return Err(cursor.error("an empty object says nothing; leave the key out"));
        }
        Ok(CostRule {
            mode,
            escalates: escalate.unwrap_or_default(),
        })
    }

    /// The rule of two entries that apply to one caller: the more generous of both.
    #[must_use]
    pub(super) fn or(self, other: CostRule) -> CostRule {
        CostRule {
            mode: self.mode.max(other.mode),
            escalates: self.escalates || other.escalates,
        }
    }

    /// True if a caller may choose this mode: none above what policy gives, unless that goes up by
    /// itself anyway.
    pub fn lets(&self, wanted: CostMode) -> bool {
        self.escalates || self.mode.is_none_or(|given| wanted <= given)
    }

    /// The least mode above this one that a caller may choose now, and that leaves something where
    /// so many bytes are spent on this day.
    pub fn larger(&self, mode: CostMode, spent: u64) -> Option<CostMode> {
        let leaves = |wanted: &CostMode| {
            let most = Terms::of(*self, Some(*wanted), None).most(spent);
            *wanted > mode && self.lets(*wanted) && most > Some(spent)
        };
        CostMode::ALL.into_iter().find(leaves)
    }
}

/// The mode that is set for a caller, and whether it goes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// The mode; `None`: none is set, and nothing is held back.
    pub mode: Option<CostMode>,
    /// Its setter.
    pub set_by: CostSetBy,
    /// True if it goes up where its budget is spent.
    pub escalates: bool,
    /// The mode that policy gives where its user has chosen another: its budget holds for the whole
    /// day.
    pub cap: Option<CostMode>,
    /// The time of its user's last choice, be it to have no mode of their own, in milliseconds
    /// since the epoch; 0: never. A later choice has a larger one.
    pub chosen_at: u64,
}

impl Terms {
    /// The start of the budget's period; `None`: the day's, or that of the agent's instance.
    /// Policy's mode counts all of that, any other what comes after the choice.
    pub fn counts_from(&self) -> Option<u64> {
        Some(self.chosen_at).filter(|at| *at > 0 && self.set_by != CostSetBy::Policy)
    }

    fn of(rule: CostRule, own: Option<CostMode>, default: Option<CostMode>) -> Terms {
        let own = own.filter(|own| rule.lets(*own));
        let (mode, set_by) = match (own, rule.mode, default) {
            (Some(own), ..) => (Some(own), CostSetBy::User),
            (None, Some(given), _) => (Some(given), CostSetBy::Policy),
            (None, None, Some(default)) => (Some(default), CostSetBy::Daemon),
            (None, None, None) => (None, CostSetBy::Nobody),
        };
        Terms {
            mode,
            set_by,
            escalates: rule.escalates,
            cap: rule.mode.filter(|_| own.is_some()),
            chosen_at: 0,
        }
    }

    /// The same for an agent of theirs: for it some mode always acts.
    #[must_use]
    pub(super) fn of_agent(self) -> Terms {
        Terms {
            mode: Some(self.mode.unwrap_or_default()),
            ..self
        }
    }

    /// The mode in force where so many bytes are spent since it was chosen; `None`: nothing is held
    /// back.
    pub fn in_force(&self, spent: u64) -> Option<CostMode> {
        let mut mode = self.mode?;
        while self.escalates && spent >= mode.budgets().session_bytes {
            match mode {
                CostMode::Fast => mode = CostMode::Smart,
                CostMode::Smart => mode = CostMode::Max,
                CostMode::Max => break,
            }
        }
        Some(mode)
    }

    /// The most bytes that may be spent in all, of which so many were spent before the mode was
    /// chosen; `None`: any number.
    pub fn most(&self, before: u64) -> Option<u64> {
        let budget = |mode| {
            if self.escalates { CostMode::Max } else { mode }
                .budgets()
                .session_bytes
        };
        let own = before.saturating_add(budget(self.mode?));
        Some(self.cap.map_or(own, |cap| own.min(budget(cap))))
    }
}

/// The usage of one person today, and the mode that they chose.
#[derive(Debug)]
pub(super) struct UserBudget {
    /// The daemon's mode for all.
    default: Option<CostMode>,
    inner: Mutex<UserBudgetInner>,
}

#[derive(Debug, Default)]
struct UserBudgetInner {
    now: DailyUsage,
    /// As it is kept on the disk.
    kept: DailyUsage,
    /// Bytes of lists that count, and on which day.
    lists: (CostDay, u64),
}

/// The usage of a person on a day, and the mode that they chose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DailyUsage {
    /// The day.
    pub day: CostDay,
    /// Bytes of answers on that day.
    pub bytes: u64,
    /// Their choice, until they choose again.
    pub own: Option<Choice>,
}

/// A person's choice of a cost mode. It acts on what comes after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The mode; `None`: they took back what they had chosen.
    pub mode: Option<CostMode>,
    /// The time of the choice, in milliseconds since the epoch; later than the choice before it.
    pub at: u64,
    /// Bytes of the day that were spent before that.
    pub before: u64,
}

impl DailyUsage {
    /// Bytes of the day that the mode in these terms does not count.
    pub fn before(&self, terms: &Terms) -> u64 {
        let own = self.own.filter(|_| terms.counts_from().is_some());
        own.map_or(0, |own| own.before)
    }

    /// On another day nothing is spent. Who looked at the clock just before midnight brings no day
    /// back, and neither does a clock that is set right by less than a day.
    fn on(&mut self, day: CostDay) {
        if day > self.day || day.0.saturating_add(1) < self.day.0 {
            let own = self.own.map(|own| Choice { before: 0, ..own });
            *self = DailyUsage { day, bytes: 0, own };
        }
    }
}

impl UserBudget {
    /// Nothing spent, nothing chosen.
    pub(super) fn new(default: Option<CostMode>) -> UserBudget {
        UserBudget {
            default,
            inner: Mutex::default(),
        }
    }

    pub(super) fn terms(&self, rule: CostRule) -> Terms {
        let own = self.inner.lock().now.own;
        Terms {
            chosen_at: own.map_or(0, |own| own.at),
            ..Terms::of(rule, own.and_then(|own| own.mode), self.default)
        }
    }

    /// The state on a day.
    pub(super) fn on(&self, day: CostDay) -> DailyUsage {
        let mut inner = self.inner.lock();
        inner.now.on(day);
        inner.now
    }

    /// Adds an answer, and returns how it stood before it.
    pub(super) fn add(&self, day: CostDay, bytes: u64) -> DailyUsage {
        let mut inner = self.inner.lock();
        inner.now.on(day);
        let before = inner.now;
        inner.now.bytes = before.bytes.saturating_add(bytes);
        before
    }

    /// The bytes of a list that count on a day, on which all lists count for so many at most.
    pub(super) fn of_list(&self, day: CostDay, bytes: u64, most: u64) -> u64 {
        let lists = &mut self.inner.lock().lists;
        if lists.0 != day {
            *lists = (day, 0);
        }
        let counts = bytes.min(most.saturating_sub(lists.1));
        lists.1 += counts;
        counts
    }

    /// Sets the mode that a person chose at a time, in milliseconds since the epoch. One that they
    /// have already goes on.
    pub(super) fn choose(&self, mode: Option<CostMode>, at: u64) {
        let mut inner = self.inner.lock();
        inner.now.on(CostDay::of(
            SystemTime::UNIX_EPOCH + Duration::from_millis(at),
        ));
        let (before, own) = (inner.now.bytes, inner.now.own);
        if own.and_then(|own| own.mode) != mode {
            let at = at.max(own.map_or(0, |own| own.at) + 1);
            inner.now.own = Some(Choice { mode, at, before });
        }
    }

    pub(super) fn recall(&self, kept: DailyUsage) {
        let mut inner = self.inner.lock();
        (inner.now, inner.kept) = (kept, kept);
    }

    /// The usage that is still to be stored, if any.
    pub(super) fn unkept(&self) -> Option<DailyUsage> {
        let inner = self.inner.lock();
        (inner.now != inner.kept).then_some(inner.now)
    }

    pub(super) fn is_kept(&self, kept: DailyUsage) {
        self.inner.lock().kept = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CostMode::{Fast, Max, Smart};

    const SAYS_NOTHING: CostRule = CostRule {
        mode: None,
        escalates: false,
    };

    fn rule(mode: Option<CostMode>, escalates: bool) -> CostRule {
        CostRule { mode, escalates }
    }

    #[test]
    fn the_nearest_word_counts_and_none_goes_above_what_policy_gives() {
        use CostSetBy::{Daemon, Nobody, Policy, User};
        let set = |rule, own, default| {
            let terms = Terms::of(rule, own, default);
            (terms.mode, terms.set_by)
        };
        assert_eq!(set(SAYS_NOTHING, None, None), (None, Nobody));
        assert_eq!(set(SAYS_NOTHING, None, Some(Max)), (Some(Max), Daemon));
        assert_eq!(
            set(rule(Some(Smart), false), None, Some(Max)),
            (Some(Smart), Policy)
        );
        assert_eq!(
            set(rule(Some(Smart), false), Some(Fast), None),
            (Some(Fast), User)
        );
        assert_eq!(
            set(rule(Some(Smart), false), Some(Max), None),
            (Some(Smart), Policy)
        );
        assert_eq!(
            set(rule(Some(Smart), true), Some(Max), None),
            (Some(Max), User)
        );
        assert_eq!(set(SAYS_NOTHING, Some(Max), Some(Fast)), (Some(Max), User));
        assert!(
            !rule(Some(Fast), false).lets(Smart)
                && rule(Some(Fast), true).lets(Max)
                && SAYS_NOTHING.lets(Max)
        );
        assert_eq!(
            Terms::default().of_agent().mode,
            Some(Smart),
            "an agent is never without"
        );
        assert_eq!(
            rule(Some(Fast), true)
                .or(rule(Some(Max), false))
                .or(SAYS_NOTHING),
            rule(Some(Max), true)
        );
    }

    #[test]
    fn a_mode_goes_up_at_its_budget_only_where_it_may() {
        let up = Terms::of(rule(Some(Fast), true), None, None);
        let stays = Terms::of(rule(Some(Fast), false), None, None);
        for (spent, risen) in [
            (0, Fast),
            (499_999, Fast),
            (500_000, Smart),
            (1_999_999, Smart),
            (2_000_000, Max),
            (u64::MAX, Max),
        ] {
            assert_eq!(up.in_force(spent), Some(risen), "{spent}");
            assert_eq!(stays.in_force(spent), Some(Fast), "{spent}");
        }
        assert_eq!(
            (up.most(0), stays.most(0)),
            (Some(8_000_000), Some(500_000))
        );
        let free = Terms::of(rule(None, true), None, None);
        assert_eq!((free.in_force(u64::MAX), free.most(0)), (None, None));
    }

    #[test]
    fn a_day_begins_with_nothing_spent_and_none_comes_back() {
        let spending = UserBudget::new(None);
        let add = |day, bytes| spending.add(CostDay(day), bytes).bytes;
        spending.choose(Some(Fast), 0);
        let own = spending.on(CostDay(20_000)).own;
        assert_eq!((add(20_000, 7), add(20_000, 1)), (0, 7));
        assert_eq!(add(20_001, 5), 0, "another day");
        assert_eq!(add(20_000, 2), 5, "who looked at the clock before midnight");
        assert_eq!(spending.on(CostDay(20_001)).bytes, 7);
        assert_eq!(
            (spending.on(CostDay(20_001)).own, own.unwrap().mode),
            (own, Some(Fast)),
            "the mode stays"
        );
        // A clock that ran far ahead and was set right does not lock anybody out for ever.
        spending.add(CostDay(90_000), 9);
        assert_eq!(
            spending.on(CostDay(20_001)),
            DailyUsage {
                day: CostDay(20_001),
                bytes: 0,
                own,
            }
        );
    }

    #[test]
    fn a_mode_that_is_chosen_counts_from_then_on_and_policys_counts_the_day() {
        const DAY: u64 = 86_400_000;
        let day = CostDay(20_000);
        let spending = UserBudget::new(None);
        spending.add(day, 3_200_000);
        spending.choose(Some(Fast), 20_000 * DAY + 7);
        let left = |rule| {
            let (terms, spent) = (spending.terms(rule), spending.on(day));
            terms
                .most(spent.before(&terms))
                .map(|most| most.saturating_sub(spent.bytes))
        };
        assert_eq!(left(SAYS_NOTHING), Some(500_000));
        assert_eq!(left(rule(Some(Max), false)), Some(500_000));
        assert_eq!(
            left(rule(Some(Smart), false)),
            Some(0),
            "policy's budget is spent"
        );
        assert_eq!(left(rule(Some(Smart), true)), Some(4_800_000));
        spending.add(day, 400_000);
        spending.choose(Some(Fast), 20_000 * DAY + 8);
        assert_eq!(
            left(SAYS_NOTHING),
            Some(100_000),
            "the same again gives nothing back"
        );
        assert_eq!(spending.on(CostDay(20_001)).own.unwrap().before, 0);
        assert_eq!(spending.terms(SAYS_NOTHING).of_agent().cap, None);
    }

    #[test]
    fn to_take_a_mode_back_is_a_choice_too() {
        let day = CostDay(20_000);
        let spending = UserBudget::new(Some(Fast));
        let left = |rule| {
            let (terms, spent) = (spending.terms(rule), spending.on(day));
            terms
                .most(spent.before(&terms))
                .map(|most| most.saturating_sub(spent.bytes))
        };
        spending.choose(None, day.end_ms() - 9);
        assert_eq!(spending.on(day).own, None, "nothing was chosen");
        spending.choose(Some(Max), day.end_ms() - 8);
        spending.add(day, 3_200_000);
        spending.choose(None, day.end_ms() - 8);
        assert_eq!(
            left(SAYS_NOTHING),
            Some(500_000),
            "the daemon's mode counts from then on"
        );
        assert_eq!(
            left(rule(Some(Smart), false)),
            Some(0),
            "policy's counts the day"
        );
        let first = spending.terms(SAYS_NOTHING);
        spending.choose(None, day.end_ms() - 7);
        assert_eq!(
            spending.terms(SAYS_NOTHING),
            first,
            "the same again is none"
        );
        spending.choose(Some(Fast), day.end_ms() - 8);
        assert!(
            spending.terms(SAYS_NOTHING).chosen_at > first.chosen_at,
            "each choice is later"
        );
    }

    #[test]
    fn a_larger_mode_is_one_that_leaves_something() {
        assert_eq!(SAYS_NOTHING.larger(Fast, 500_000), Some(Smart));
        assert_eq!(SAYS_NOTHING.larger(Max, 8_000_000), None);
        assert_eq!(
            rule(Some(Fast), false).larger(Fast, 500_000),
            None,
            "above what policy gives"
        );
        assert_eq!(rule(Some(Max), false).larger(Fast, 2_500_000), Some(Smart));
        assert_eq!(
            rule(Some(Smart), false).larger(Fast, 2_000_000),
            None,
            "policy's day is spent"
        );
        assert_eq!(rule(Some(Fast), true).larger(Smart, 2_000_000), Some(Max));
    }

    #[test]
    fn lists_count_up_to_a_bound_each_day() {
        let spending = UserBudget::new(None);
        let counts = [(1, 70), (1, 70), (1, 70), (2, 10), (2, u64::MAX)]
            .map(|(day, bytes)| spending.of_list(CostDay(day), bytes, 100));
        assert_eq!(counts, [70, 30, 0, 10, 90]);
    }

    #[test]
    fn what_changed_is_kept_once() {
        let spending = UserBudget::new(None);
        assert_eq!(spending.unkept(), None);
        spending.add(CostDay(3), 10);
        let first = spending.unkept().unwrap();
        spending.add(CostDay(3), 1);
        spending.is_kept(first);
        let second = spending.unkept().unwrap();
        assert_eq!(
            (first.bytes, second.bytes),
            (10, 11),
            "what came meanwhile is not lost"
        );
        spending.is_kept(second);
        assert_eq!(spending.unkept(), None);
    }
}

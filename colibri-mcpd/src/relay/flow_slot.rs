//! The places where sessions have their flow limits, and what goes on of those that ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use colibri_api::Task;
use parking_lot::Mutex;
use tokio::time::Instant;

use colibri_policy::{BoundMay, SessionFlow, ToolLabels};

/// The time for which the limits of a connection that ended go on for the next one of its user and
/// program.
const GOES_ON: Duration = Duration::from_secs(15 * 60);
/// The most sessions that ended whose values are remembered; of others only that they had read
/// something is.
const MAX_REMEMBERED: usize = 32;
/// The most programs of one user that are told apart.
const MAX_PROGRAMS: usize = 32;
/// Stands for all programs that are not told apart.
const OTHERS: &str = "*";

/// The limits of a tool that its entry or contract says something about.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFlow {
    /// Its labels.
    pub labels: Option<Arc<ToolLabels>>,
    /// The contract's list of what may be changed.
    pub contract: Option<Arc<BoundMay>>,
}

impl ToolFlow {
    /// The same, if it says anything.
    pub(crate) fn any(self) -> Option<Arc<ToolFlow>> {
        (self.labels.is_some() || self.contract.is_some()).then(|| Arc::new(self))
    }
}

/// The place of a session's limits, once it has some.
#[derive(Debug, Default)]
pub struct FlowSlot(OnceLock<OpenFlow>);

#[derive(Debug)]
struct OpenFlow {
    flow: Arc<SessionFlow>,
    /// Where it goes on for another connection.
    table: Option<(Arc<FlowTable>, FlowOwner)>,
}

/// The session before, with which one goes on.
pub(super) struct PreviousSession<'a> {
    pub(super) table: &'a Arc<FlowTable>,
    pub(super) owner: FlowOwner,
    /// True if the new session outlives its request.
    pub(super) stays: bool,
    /// True if the user has claimed this task.
    pub(super) is_claimed: &'a dyn Fn(u64) -> bool,
}

/// The user of a connection, and the program by its own account.
pub(super) type FlowOwner = (u32, Box<str>);

impl FlowSlot {
    /// That of an instance whose entry has a list of what it may change.
    pub(crate) fn bound(bound: Option<BoundMay>) -> FlowSlot {
        let slot = FlowSlot::default();
        if let Some(bound) = bound {
            slot.open(None).bind(bound);
        }
        slot
    }

    /// The instance is to have a task: it is bound by its list, if that has one.
    pub(crate) fn claim(&self, task: &Task, person: u32) {
        let limits = &task.said.limits;
        if limits.may.is_some() || limits.tainted {
            self.open(None).claim(task, person);
        }
    }

    pub(super) fn get(&self) -> Option<&Arc<SessionFlow>> {
        self.0.get().map(|open| &open.flow)
    }

    /// The limits, made if there are none.
    pub(super) fn open(&self, goes_on: Option<PreviousSession<'_>>) -> &Arc<SessionFlow> {
        let open = self.0.get_or_init(|| match goes_on {
            None => OpenFlow {
                flow: Arc::default(),
                table: None,
            },
            Some(goes_on) => OpenFlow {
                flow: goes_on.table.begin(&goes_on),
                table: Some((goes_on.table.clone(), goes_on.owner)),
            },
        });
        &open.flow
    }
}

/// The session has ended.
impl Drop for OpenFlow {
    fn drop(&mut self) {
        if let Some((table, owner)) = self.table.take() {
            table.keep(owner, &self.flow);
        }
    }
}

/// The limits of connections that ended: whoever connects again goes on with them.
#[derive(Debug, Default)]
pub struct FlowTable {
    ended: Mutex<HashMap<FlowOwner, EndedFlow>>,
    /// True once an entry has labels.
    is_labelled: AtomicBool,
}

#[derive(Debug)]
struct EndedFlow {
    flow: Arc<SessionFlow>,
    until: Instant,
}

impl FlowTable {
    /// An entry has labels.
    pub(crate) fn set_labelled(&self) {
        self.is_labelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_labelled(&self) -> bool {
        self.is_labelled.load(Ordering::Relaxed)
    }

    /// The limits of a new session: those of the one before, but for the lists of tasks that are
    /// not claimed any more. Requests without a session share theirs.
    fn begin(&self, new: &PreviousSession<'_>) -> Arc<SessionFlow> {
        let mut ended = self.ended.lock();
        let now = Instant::now();
        let others = (new.owner.0, OTHERS.into());
        let owner = if ended.contains_key(&new.owner) {
            &new.owner
        } else {
            &others
        };
        let known = ended.get_mut(owner).filter(|known| known.until > now);
        if let Some(known) = known {
            known.until = now + GOES_ON;
            if let Some(less) = known.flow.without_ended(new.is_claimed) {
                known.flow = Arc::new(less);
            }
            return known.flow.clone();
        }
        let flow = Arc::default();
        if !new.stays {
            insert(&mut ended, new.owner.clone(), &flow, now);
        }
        flow
    }

    /// A user's claim of before the daemon's start: whoever of theirs connects is bound by it, and
    /// what its session had read is not known.
    pub(crate) fn recall(&self, task: &Task) {
        let (Some(uid), None, Some(_)) = (
            task.claimed_by,
            &task.claimed_session,
            &task.said.limits.may,
        ) else {
            return;
        };
        let flow = Arc::new(SessionFlow::default());
        let mut task = task.clone();
        task.said.limits.tainted = true;
        flow.claim(&task, uid);
        self.keep((uid, OTHERS.into()), &flow);
    }

    fn keep(&self, owner: FlowOwner, flow: &Arc<SessionFlow>) {
        let mut ended = self.ended.lock();
        insert(&mut ended, owner, flow, Instant::now());
    }
}

/// Nothing is forgotten for want of room: the values of the oldest become the mere fact that there
/// were some.
fn insert(
    ended: &mut HashMap<FlowOwner, EndedFlow>,
    (uid, name): FlowOwner,
    flow: &Arc<SessionFlow>,
    now: Instant,
) {
    ended.retain(|_, ended| ended.until > now);
    let programs = ended.keys().filter(|(of, _)| *of == uid).count();
    let is_known = ended.contains_key(&(uid, name.clone()));
    let name = if is_known || programs < MAX_PROGRAMS {
        name
    } else {
        OTHERS.into()
    };
    let until = now + GOES_ON;
    match ended.get_mut(&(uid, name.clone())) {
        Some(known) => {
            known.flow.absorb(flow);
            known.until = until;
        }
        None => {
            let flow = flow.clone();
            ended.insert((uid, name), EndedFlow { flow, until });
        }
    }
    if ended.len() > MAX_REMEMBERED {
        let oldest = ended
            .values_mut()
            .filter(|ended| ended.flow.remembers_values());
        if let Some(oldest) = oldest.min_by_key(|ended| ended.until) {
            let facts = SessionFlow::default();
            facts.absorb(&oldest.flow);
            oldest.flow = Arc::new(facts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_api::{MayPattern, TaskLimits};
    use colibri_policy::{MayList, MayPlace};

    fn owner(name: &str) -> FlowOwner {
        (1001, name.into())
    }

    fn bound(task: u64) -> BoundMay {
        BoundMay {
            by: MayPlace::Task(task),
            may: Arc::new(MayList::new(vec![MayPattern::Tools(format!("s/{task}"))])),
        }
    }

    fn open_as<'s>(
        slot: &'s FlowSlot,
        table: &Arc<FlowTable>,
        name: &str,
        stays: bool,
    ) -> &'s Arc<SessionFlow> {
        slot.open(Some(PreviousSession {
            table,
            owner: owner(name),
            stays,
            is_claimed: &|task| task == 7,
        }))
    }

    fn open<'s>(slot: &'s FlowSlot, table: &Arc<FlowTable>, name: &str) -> &'s Arc<SessionFlow> {
        open_as(slot, table, name, true)
    }

    #[test]
    fn who_connects_again_goes_on_with_what_held_before() {
        let table = Arc::<FlowTable>::default();
        let first = FlowSlot::default();
        open(&first, &table, "editor").bind(bound(7));
        open(&first, &table, "editor").distrust("web/open", "x");
        let beside = FlowSlot::default();
        assert_eq!(
            open(&beside, &table, "editor").inherited(),
            TaskLimits::default(),
            "the first is still there"
        );
        drop(first);
        let (second, other) = (FlowSlot::default(), FlowSlot::default());
        let inherited = open(&second, &table, "editor").inherited();
        assert!(inherited.tainted && inherited.may.is_some());
        assert_eq!(
            open(&other, &table, "another").inherited(),
            TaskLimits::default()
        );
        second.get().unwrap().bind(bound(8));
        let third = FlowSlot::default();
        let inherited = open(&third, &table, "editor").inherited();
        assert_eq!(
            inherited.may.unwrap().len(),
            1,
            "nobody claims task 8 any more"
        );
        assert_eq!(
            second.get().unwrap().inherited().may.unwrap().len(),
            0,
            "the session itself is bound until it ends"
        );
    }

    #[test]
    fn requests_without_a_session_share_their_limits() {
        let table = Arc::<FlowTable>::default();
        let (one, other) = (FlowSlot::default(), FlowSlot::default());
        open_as(&one, &table, "web", false).bind(bound(7));
        assert!(
            open_as(&other, &table, "web", false)
                .inherited()
                .may
                .is_some()
        );
    }

    #[test]
    fn what_is_too_much_to_remember_leaves_the_fact_that_something_was_read() {
        let table = Arc::<FlowTable>::default();
        for number in 0..3 * MAX_PROGRAMS {
            let slot = FlowSlot::default();
            open(&slot, &table, &format!("program{number}")).distrust("web/open", "x");
        }
        let ended = table.ended.lock();
        assert!(ended.len() <= MAX_PROGRAMS + 1, "{}", ended.len());
        assert!(ended.values().all(|ended| ended.flow.inherited().tainted));
        assert!(
            ended
                .values()
                .filter(|ended| ended.flow.remembers_values())
                .count()
                <= MAX_REMEMBERED
        );
        assert!(ended.contains_key(&owner(OTHERS)));
    }
}

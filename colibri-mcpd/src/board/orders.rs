//! Operations of people, agents and the daemon on tasks.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use colibri_api::{NewTask, Task, TaskStatus};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, broadcast};
use tracing::{info, warn};

use super::change_order::{ChangeKey, ChangeOrder, TakenKey};
use super::changes::{By, DAEMON, TaskChange, record};
use super::choice::{AgentDirectory, Candidate};
use super::claim_table::ClaimTable;
use crate::relay::{AgentSocket, CallRules, Recorder};
use colibri_store::{Actor, ClaimOrder, Database, HostPlaces, Seeks, StoreError, Tell, now_ms};

/// The time for which a person's claim lasts without a call of theirs on the task.
pub(crate) const LEASE: Duration = Duration::from_secs(15 * 60);
/// Changes that are kept for who watches slowly.
const KEPT_CHANGES: usize = 256;
/// Instances that have ended that are known as such: far more than can have a call on its way.
const KEPT_OVER: usize = 1024;

/// The actor on the board: a person, or an agent's instance for one.
#[derive(Debug, Clone, Copy)]
pub struct BoardActor<'a> {
    /// The person.
    pub uid: u32,
    /// The agent and its instance.
    pub agent: Option<(&'a str, &'a str)>,
    /// True if the person is an operator.
    pub operator: bool,
    /// The person's groups, whose shared tasks are there too; `None`: no shared tasks, for an agent
    /// whose entry does not say `shared_tasks`.
    pub groups: Option<&'a [u32]>,
}

impl<'a> BoardActor<'a> {
    fn session(self) -> Option<&'a str> {
        self.agent.map(|(_, session)| session)
    }

    pub(super) fn actor(self) -> Actor<'a> {
        Actor {
            uid: self.uid,
            session: self.session(),
            operator: self.operator,
            groups: self.groups,
        }
    }

    pub(super) fn by(self) -> By<'a> {
        By {
            uid: Some(self.uid),
            session: self.session(),
        }
    }
}

/// An instance that asked for a task when there was none.
pub(super) struct WaitingInstance {
    pub agent: String,
    pub uid: u32,
    pub at: u64,
}

/// Is told of each claim that a person has when the board is first there.
type ClaimObserver = Box<dyn Fn(&Task) + Send + Sync>;

/// The board.
pub struct Board {
    pub(super) store: Arc<Database>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) rules: Arc<CallRules>,
    agents: Weak<dyn AgentDirectory>,
    clock: fn() -> u64,
    askers: Mutex<HashMap<String, WaitingInstance>>,
    /// Instances that ended lately: a call of theirs may still be on its way.
    over: Mutex<VecDeque<String>>,
    /// Instances that are gone, and why, whose tasks are not taken back yet; without a reason,
    /// those that never ran.
    gone: Mutex<Vec<(String, Option<String>)>>,
    /// What follows from changes of one task does so in their order.
    pub(super) order: ChangeOrder,
    /// The last lease under which what instances had was taken back; 0, that of a board of this
    /// host alone, at the start.
    begun: Mutex<u64>,
    on_begin: OnceLock<ClaimObserver>,
    claimed: Mutex<ClaimTable>,
    changes: broadcast::Sender<Arc<TaskChange>>,
    /// Something has changed: the scheduler is to look.
    pub(super) changed: Notify,
    claims: AtomicU64,
    claims_of_others: AtomicU64,
    requeues: AtomicU64,
}

/// Counts of tasks' outcomes since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCounters {
    /// Claims.
    pub claims: u64,
    /// Those of them of a task that another user created.
    pub claims_of_others: u64,
    /// Tasks that came back to the queue.
    pub requeues: u64,
}

impl Board {
    /// The board over this store, for these agents.
    pub fn new(
        store: Arc<Database>,
        recorder: Arc<Recorder>,
        rules: Arc<CallRules>,
        agents: Weak<dyn AgentDirectory>,
    ) -> Arc<Board> {
        Board::with_clock(store, recorder, rules, agents, now_ms)
    }

    pub(super) fn with_clock(
        store: Arc<Database>,
        recorder: Arc<Recorder>,
        rules: Arc<CallRules>,
        agents: Weak<dyn AgentDirectory>,
        clock: fn() -> u64,
    ) -> Arc<Board> {
        Arc::new(Board {
            store,
            recorder,
            rules,
            agents,
            clock,
            askers: Mutex::default(),
            over: Mutex::default(),
            gone: Mutex::default(),
            order: ChangeOrder::default(),
            begun: Mutex::default(),
            on_begin: OnceLock::new(),
            claimed: Mutex::default(),
            changes: broadcast::Sender::new(KEPT_CHANGES),
            changed: Notify::new(),
            claims: AtomicU64::new(0),
            claims_of_others: AtomicU64::new(0),
            requeues: AtomicU64::new(0),
        })
    }

    /// The changes from now on.
    pub fn watch(&self) -> broadcast::Receiver<Arc<TaskChange>> {
        self.changes.subscribe()
    }

    /// Counts of tasks' outcomes since the start.
    pub fn counters(&self) -> TaskCounters {
        TaskCounters {
            claims: self.claims.load(Ordering::Relaxed),
            claims_of_others: self.claims_of_others.load(Ordering::Relaxed),
            requeues: self.requeues.load(Ordering::Relaxed),
        }
    }

    /// The time: the database's, where many hosts share the board.
    pub(super) fn now(&self) -> u64 {
        self.store
            .board()
            .lease()
            .board_time()
            .unwrap_or_else(self.clock)
    }

    pub(super) fn lease(&self, who: BoardActor<'_>) -> Option<u64> {
        let until = self.now().saturating_add(LEASE.as_millis() as u64);
        who.agent.is_none().then_some(until)
    }

    pub(super) fn askers(&self) -> MutexGuard<'_, HashMap<String, WaitingInstance>> {
        self.askers.lock()
    }

    pub(super) fn claimed(&self) -> MutexGuard<'_, ClaimTable> {
        self.claimed.lock()
    }

    /// From now on an agent's instance is told which task it has.
    pub fn serve(&self, door: &Arc<AgentSocket>) {
        self.claimed().begin(door);
    }

    /// Makes changes, each recorded before it is made and told after it.
    pub(super) fn change<T>(
        &self,
        by: By<'_>,
        work: impl FnOnce(Tell<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let made = RefCell::new(Vec::new());
        let keys = RefCell::new(Vec::new());
        let done = work(&|task, from| {
            // Nobody else changes this task in the store until this is committed: who is waited for
            // here has done so, and needs nothing of the store any more.
            let key = ChangeKey::Task(task.id);
            if !keys
                .borrow()
                .iter()
                .any(|taken: &TakenKey<'_>| taken.key == key)
            {
                keys.borrow_mut().push(self.order.take(key));
            }
            let mut change = TaskChange {
                task: task.clone(),
                from,
            };
            self.store.show_host(&mut change.task);
            record(&self.recorder, &change, by)?;
            made.borrow_mut().push(change);
            Ok(())
        })?;
        let mut left = Vec::new();
        for change in made.into_inner() {
            let (from, to) = (change.from, change.task.said.status);
            if to == TaskStatus::Claimed {
                self.claims.fetch_add(1, Ordering::Relaxed);
                if by.uid != Some(change.task.said.created_by) {
                    self.claims_of_others.fetch_add(1, Ordering::Relaxed);
                }
            }
            if from.is_some_and(|from| from != TaskStatus::Intake) && to == TaskStatus::Queued {
                self.requeues.fetch_add(1, Ordering::Relaxed);
            }
            self.claimed().note(&change.task);
            if !to.has_ended() {
                let instances = [&change.task.claimed_session, &change.task.for_session];
                left.extend(instances.into_iter().flatten().cloned());
            }
            // Nobody has to watch.
            let _ = self.changes.send(Arc::new(change));
            self.changed.notify_one();
        }
        drop(keys);
        // An instance that ended while this was being committed: what was taken back from it then
        // did not include this.
        self.take_back_of_ended(&left);
        Ok(done)
    }

    /// Adds a task for somebody; where a session is named, it is kept for that instance.
    ///
    /// # Errors
    /// [`StoreError::OpenTasks`], [`StoreError::Full`], [`StoreError::Sqlite`],
    /// [`StoreError::Unrecorded`].
    pub fn create(
        &self,
        who: BoardActor<'_>,
        new: NewTask,
        for_session: Option<&str>,
    ) -> Result<Task, StoreError> {
        self.begin_under_lease()?;
        let key = self.order.take(ChangeKey::Creator(who.uid));
        let added = |tell: Tell<'_>| self.store.add_task(new, for_session, self.now(), tell);
        let added = self.change(who.by(), added);
        drop(key);
        let mut task = added.inspect_err(|error| self.doubt_reserved(for_session, error))?;
        self.explain(std::slice::from_mut(&mut task));
        Ok(task)
    }

    /// Keeps a queued task that `who` created, or that is shared with them, for an instance that is
    /// about to start.
    ///
    /// # Errors
    /// [`StoreError::Task`] where it is not queued, kept for another, or another person's;
    /// [`StoreError::Sqlite`].
    pub fn reserve(
        &self,
        who: BoardActor<'_>,
        task: u64,
        session: &str,
    ) -> Result<Task, StoreError> {
        self.begin_under_lease()?;
        let reserved = self
            .store
            .reserve(task, (who.actor(), session), None, self.now());
        reserved.inspect_err(|error| self.doubt_reserved(Some(session), error))
    }

    /// Frees what may be kept for an instance that is not started: the database may have done it,
    /// and only its answer was lost.
    fn doubt_reserved(&self, session: Option<&str>, error: &StoreError) {
        if let (Some(session), StoreError::Board { .. }) = (session, error) {
            self.free_reserved(session);
        }
    }

    /// Claims a task: this one, or the next for somebody with these capabilities, of those shared
    /// with them, too, if they say so. An instance that has one already is told that one again;
    /// what it can do, and whether it gets shared ones, is what its entry says.
    ///
    /// # Errors
    /// [`StoreError::Task`] for a task that cannot be had; [`StoreError::Sqlite`],
    /// [`StoreError::Unrecorded`].
    pub fn next(
        &self,
        who: BoardActor<'_>,
        task: Option<u64>,
        capabilities: Option<&[String]>,
        shared: bool,
    ) -> Result<Option<Task>, StoreError> {
        self.begin_under_lease()?;
        // Where many hosts share the board their schedulers do it: here it would be six statements
        // more a claim.
        if !self.store.board().is_shared() {
            self.requeue_lapsed()?;
        }
        let now = self.now();
        let lease_until = self.lease(who);
        let Some((agent, session)) = who.agent else {
            return match task {
                Some(id) => self
                    .order(id, who, ClaimOrder::Claim(lease_until))
                    .map(Some),
                None => {
                    let seeks = Seeks {
                        capabilities,
                        lease_until,
                        shared,
                    };
                    self.change(who.by(), |tell| {
                        self.store.claim_next(who.actor(), seeks, now, tell)
                    })
                }
            };
        };
        let known = self.candidates(who.uid);
        let known = known.iter().find(|candidate| candidate.agent == agent);
        let seeks = Seeks {
            capabilities: Some(known.map_or(&[], |candidate| &candidate.capabilities)),
            lease_until,
            shared: who.groups.is_some(),
        };
        // An instance has one task at a time, however many it asks for at once.
        let key = self.order.take(ChangeKey::Instance(session.to_owned()));
        let claimed = self.change(who.by(), |tell| {
            let tell = |task: &Task, from| {
                if self.is_over(session) {
                    return Err(format!("instance {session} has ended, and gets no task"));
                }
                tell(task, from)
            };
            self.store.claim_next(who.actor(), seeks, now, &tell)
        })?;
        drop(key);
        let claimed = match claimed {
            Some(claimed) => Some(claimed),
            None => self.store.held_by(session)?,
        };
        let mut askers = self.askers();
        askers.remove(session);
        if claimed.is_none() {
            let agent = agent.to_owned();
            let uid = who.uid;
            askers.insert(
                session.to_owned(),
                WaitingInstance {
                    agent,
                    uid,
                    at: now,
                },
            );
        }
        Ok(claimed)
    }

    /// Says that work on a task begins, or goes on, under a claim.
    ///
    /// # Errors
    /// [`StoreError::Task`] where the claim is not in force; [`StoreError::Sqlite`],
    /// [`StoreError::Unrecorded`].
    pub fn start(&self, who: BoardActor<'_>, task: u64, claim: u64) -> Result<Task, StoreError> {
        self.order(task, who, ClaimOrder::Start(claim, self.lease(who)))
    }

    /// Records a task's result, which is JSON, under a claim. There is never a second one.
    ///
    /// # Errors
    /// As [`Board::start`].
    pub fn finish(
        &self,
        who: BoardActor<'_>,
        task: u64,
        claim: u64,
        result: &str,
    ) -> Result<Task, StoreError> {
        self.order(task, who, ClaimOrder::Finish(claim, result))
    }

    /// Gives a task up for good under a claim.
    ///
    /// # Errors
    /// As [`Board::start`].
    pub fn fail(
        &self,
        who: BoardActor<'_>,
        task: u64,
        claim: u64,
        reason: &str,
    ) -> Result<Task, StoreError> {
        self.order(task, who, ClaimOrder::Fail(claim, reason))
    }

    /// Gives a task back to the queue under a claim; without one, puts a request that was taken in
    /// there.
    ///
    /// # Errors
    /// As [`Board::start`].
    pub fn release(
        &self,
        who: BoardActor<'_>,
        task: u64,
        claim: Option<u64>,
        reason: &str,
    ) -> Result<Task, StoreError> {
        self.order(
            task,
            who,
            claim.map_or(ClaimOrder::Queue, |claim| {
                ClaimOrder::Release(claim, reason)
            }),
        )
    }

    /// Ends a task that is not to be done any more.
    ///
    /// # Errors
    /// [`StoreError::Task`] where it has ended, or another person created it;
    /// [`StoreError::Sqlite`], [`StoreError::Unrecorded`].
    pub fn cancel(&self, who: BoardActor<'_>, task: u64, reason: &str) -> Result<Task, StoreError> {
        self.order(task, who, ClaimOrder::Cancel(reason))
    }

    fn order(
        &self,
        task: u64,
        who: BoardActor<'_>,
        order: ClaimOrder<'_>,
    ) -> Result<Task, StoreError> {
        self.change(who.by(), |tell| {
            self.store.order(task, who.actor(), order, self.now(), tell)
        })
    }

    pub(super) fn candidates(&self, person: u32) -> Vec<Candidate> {
        let agents = self.agents.upgrade();
        agents
            .map(|agents| agents.candidates(person))
            .unwrap_or_default()
    }

    pub(super) fn places(&self) -> HostPlaces {
        let agents = self.agents.upgrade();
        agents.map(|agents| agents.places()).unwrap_or_default()
    }

    /// An instance is gone: what it had, or was to have, goes back to the queue, and it gets no
    /// other.
    pub(crate) fn instance_ended(&self, session: &str, why: &str) {
        self.ends(session);
        self.askers().remove(session);
        self.gone
            .lock()
            .push((session.to_owned(), Some(why.to_owned())));
        self.take_back();
        // A place for another instance is free, whether this one had a task or not.
        self.changed.notify_one();
    }

    /// An instance has not come to run: what it was to have never left the queue, and has lost no
    /// attempt.
    pub(crate) fn start_failed(&self, session: &str) {
        self.free_reserved(session);
        self.changed.notify_one();
    }

    /// Keeps nothing for an instance that does not run. What cannot be done now is done at a later
    /// look.
    fn free_reserved(&self, session: &str) {
        self.ends(session);
        self.gone.lock().push((session.to_owned(), None));
        self.take_back();
    }

    /// True if an instance has ended lately.
    fn is_over(&self, session: &str) -> bool {
        self.over.lock().iter().any(|over| over == session)
    }

    /// From now on an instance claims nothing.
    fn ends(&self, session: &str) {
        self.claimed().end(session);
        let mut over = self.over.lock();
        over.push_back(session.to_owned());
        while over.len() > KEPT_OVER {
            over.pop_front();
        }
    }

    /// Takes back what those of these instances have that ended before they got it.
    pub(super) fn take_back_of_ended<'s>(&self, sessions: impl IntoIterator<Item = &'s String>) {
        for session in sessions.into_iter().filter(|session| self.is_over(session)) {
            let why = "its agent had ended".to_owned();
            self.gone.lock().push((session.clone(), Some(why)));
            self.take_back();
        }
    }

    /// Takes back what instances had that are gone; what cannot be taken back now is tried again at
    /// the next look.
    pub(super) fn take_back(&self) {
        let gone = std::mem::take(&mut *self.gone.lock());
        for (session, why) in gone {
            let back = match &why {
                Some(why) => {
                    let back =
                        |tell: Tell<'_>| self.store.requeue_of(&session, why, self.now(), tell);
                    self.change(DAEMON, back).map(drop)
                }
                None => self.store.free_of(&session, self.now()),
            };
            if let Err(error) = back {
                warn!("what instance {session} had is not taken back yet: {error}");
                self.gone.lock().push((session, why));
            }
        }
    }

    /// Begins at the daemon's start, and tells `observer` the claims that people have. A board that
    /// is shared may be away then: it begins with the first lease of this host.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`], [`StoreError::Unrecorded`].
    pub(crate) fn begin_at_start(
        &self,
        observer: impl Fn(&Task) + Send + Sync + 'static,
    ) -> Result<(), StoreError> {
        if self.store.board().is_shared() {
            // The daemon starts once.
            let _ = self.on_begin.set(Box::new(observer));
            return Ok(());
        }
        self.begin()?.iter().for_each(observer);
        Ok(())
    }

    /// Takes back, once for each lease of this host, what its instances had before.
    pub(super) fn begin_under_lease(&self) -> Result<(), StoreError> {
        let lease = self.store.board().lease();
        let number = lease.number();
        let mut begun = self.begun.lock();
        if *begun == number || !lease.is_in_force(number) {
            return Ok(());
        }
        let claimed = self.begin()?;
        if let Some(observer) = self.on_begin.get() {
            claimed.iter().for_each(observer);
        }
        *begun = number;
        Ok(())
    }

    /// The daemon has started: no instance of before is there any more, and people have what they
    /// had. Returns the tasks that people have claimed.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`], [`StoreError::Unrecorded`].
    pub fn begin(&self) -> Result<Vec<Task>, StoreError> {
        if self.store.board().is_shared() {
            self.requeue_lapsed()?;
        }
        let why = "its agent ended with the daemon";
        let back = self.change(DAEMON, |tell| {
            self.store.requeue_all_instances(why, self.now(), tell)
        })?;
        if !back.is_empty() {
            info!(
                tasks = back.len(),
                "taken back from agents that ended with the daemon before"
            );
        }
        let claimed = self.store.claimed()?;
        for task in &claimed {
            self.claimed().note(task);
        }
        Ok(claimed)
    }

    pub(super) fn requeue_lapsed(&self) -> Result<(), StoreError> {
        let now = self.now();
        self.change(DAEMON, |tell| self.store.requeue_lapsed(now, tell))?;
        self.change(DAEMON, |tell| self.store.requeue_of_lost_hosts(now, tell))?;
        Ok(())
    }
}

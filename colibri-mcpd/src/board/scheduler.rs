//! The scheduler: looks at the board every 30 s and at each change, and gives queued tasks to the
//! agents that fit them best: to an instance that asked for one when there was none, or to one that
//! is started for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::choice::{AgentStarter, Candidate, best};
use super::orders::Board;
use colibri_store::{Actor, StoreError};

/// The interval at which the scheduler looks if nothing changes.
const EVERY: Duration = Duration::from_secs(30);
/// The interval at which this host says what it has, where others share the board: as often as it
/// renews its lease.
const REPORT: Duration = Duration::from_secs(3);
/// The least time between two looks, so that many changes at once are one.
const PAUSE: Duration = Duration::from_millis(20);
/// The least time until something that is due is looked for again.
const LEAST: Duration = Duration::from_millis(200);
/// The time for which an instance that found no task counts as a candidate, and for which a task is
/// reserved for it.
const ASKED_MS: u64 = 60_000;
const KEPT_MS: u64 = 30_000;

/// Calls tools for people who are not there.
pub trait ScheduledToolCaller: Send + Sync {
    /// Calls a tool as this person, through all that stands in front of it, and says what came of
    /// it.
    fn call(&self, person: u32, tool: &str, arguments: &str, done: Box<dyn FnOnce(&str) + Send>);
}

/// Gives the board's tasks to agents, and runs its schedules.
pub struct Scheduler {
    pub(super) board: Arc<Board>,
    agents: Arc<dyn AgentStarter>,
    calls: Arc<dyn ScheduledToolCaller>,
    /// The schedules whose call is not answered.
    pub(super) calling: Mutex<HashSet<u64>>,
}

impl Scheduler {
    /// A scheduler of this board, which starts agents and calls tools by these.
    pub fn new(
        board: Arc<Board>,
        agents: Arc<dyn AgentStarter>,
        calls: Arc<dyn ScheduledToolCaller>,
    ) -> Arc<Scheduler> {
        Arc::new(Scheduler {
            board,
            agents,
            calls,
            calling: Mutex::default(),
        })
    }

    /// Looks, and has other hosts of the board see what this one has, for as long as the daemon
    /// runs.
    pub async fn run(self: &Arc<Self>) {
        tokio::join!(self.look_on(), self.report_on());
    }

    async fn report_on(&self) {
        let board = self.board.store.board();
        while board.is_shared() {
            board.report_places(self.board.places());
            sleep(REPORT).await;
        }
    }

    async fn look_on(self: &Arc<Self>) {
        loop {
            let scheduler = self.clone();
            // The store waits for the disk: not on a thread that serves clients.
            let looked = tokio::task::spawn_blocking(move || {
                // The renewal of the lease says that the database is away, and wakes this when it
                // is back.
                if scheduler.board.store.board().is_away() {
                    return Ok(None);
                }
                scheduler.look()
            });
            let due = match looked.await {
                Ok(Ok(due)) => due,
                Ok(Err(error)) => {
                    warn!("the scheduler cannot look at the board: {error}");
                    None
                }
                Err(error) => {
                    warn!("the scheduler broke off: {error}");
                    None
                }
            };
            sleep(PAUSE).await;
            let until = due.map_or(EVERY, |due| {
                Duration::from_millis(due.saturating_sub(self.board.now()))
            });
            // Time that is over is a reason to look, too.
            let change = async {
                tokio::select! {
                    () = self.board.changed.notified() => {}
                    () = self.board.store.board().changes_elsewhere().notified() => {}
                }
            };
            let _ = timeout(until.clamp(LEAST, EVERY), change).await;
        }
    }

    /// One look. Returns the time of the next schedule that is due.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn look(self: &Arc<Self>) -> Result<Option<u64>, StoreError> {
        self.board.begin_under_lease()?;
        self.board.take_back();
        self.board.requeue_lapsed()?;
        let due = self.run_due()?;
        self.assign()?;
        Ok(due)
    }

    fn assign(&self) -> Result<(), StoreError> {
        let (board, store) = (&*self.board, &self.board.store);
        let now = board.now();
        board
            .askers()
            .retain(|_, asker| now.saturating_sub(asker.at) < ASKED_MS);
        let busy: HashSet<String> = store.busy_sessions(now)?.into_iter().collect();
        // By a change of whose commit nobody heard: the database was away just then.
        board.take_back_of_ended(&busy);
        for person in store.waiting_creators(now)? {
            let creator = Actor {
                uid: person,
                session: None,
                operator: false,
                groups: None,
            };
            let mut candidates = board.candidates(person);
            let mut idle = self.idle(person, &candidates, &busy);
            let mut load: HashMap<String, usize> = HashMap::new();
            for candidate in &candidates {
                let tasks = candidate
                    .sessions
                    .iter()
                    .filter(|session| busy.contains(*session))
                    .count();
                load.insert(candidate.agent.clone(), tasks);
            }
            let mut after = None;
            // A task at a time: each changes who has how many.
            loop {
                let free: Vec<Candidate> = candidates
                    .iter()
                    .filter(|one| {
                        one.starts > 0 || idle.get(&one.agent).is_some_and(|idle| !idle.is_empty())
                    })
                    .cloned()
                    .collect();
                let can: Vec<String> = free
                    .iter()
                    .flat_map(|one| one.capabilities.iter().cloned())
                    .collect();
                if free.is_empty() {
                    break;
                }
                let Some(task) = store.next_waiting(person, &can, after, now)? else {
                    break;
                };
                after = Some((task.said.priority, task.id));
                if task.foreign.is_some() {
                    continue;
                }
                let counts = load
                    .iter()
                    .map(|(agent, count)| (agent.as_str(), *count))
                    .collect();
                let Some(chosen) = best(&task.said.required_capabilities, free.iter(), &counts)
                else {
                    continue;
                };
                let agent = chosen.agent.clone();
                let given = match idle.get_mut(&agent).and_then(Vec::pop) {
                    Some(session) => {
                        let kept =
                            store.reserve(task.id, (creator, &session), Some(now + KEPT_MS), now);
                        kept.map(drop).map_err(anyhow::Error::from)
                    }
                    None => {
                        let one = candidates.iter_mut().find(|one| one.agent == agent);
                        let started = self.agents.start(&agent, person, task.id);
                        if let Some(one) = one {
                            // Where one start fails the next would, too.
                            one.starts = if started.is_ok() {
                                one.starts.saturating_sub(1)
                            } else {
                                0
                            };
                        }
                        started
                    }
                };
                match given {
                    Ok(()) => {
                        info!(task = task.id, agent, uid = person, "chosen for the task");
                        *load.entry(agent).or_default() += 1;
                    }
                    Err(why) => warn!(
                        task = task.id,
                        agent,
                        uid = person,
                        "not given to the agent: {why:#}"
                    ),
                }
            }
        }
        Ok(())
    }

    /// Calls a tool for a schedule, and gives the outcome to `noted`.
    pub(super) fn call(
        self: &Arc<Self>,
        schedule: u64,
        (person, tool, arguments): (u32, &str, &str),
        noted: impl FnOnce(&Board, &str) + Send + 'static,
    ) {
        self.calling.lock().insert(schedule);
        let scheduler = self.clone();
        let done = move |outcome: &str| {
            scheduler.calling.lock().remove(&schedule);
            noted(&scheduler.board, outcome);
        };
        self.calls.call(person, tool, arguments, Box::new(done));
    }

    /// The instances of this person that asked in vain and have nothing, by agent.
    fn idle(
        &self,
        person: u32,
        candidates: &[Candidate],
        busy: &HashSet<String>,
    ) -> HashMap<String, Vec<String>> {
        let mut idle: HashMap<String, Vec<String>> = HashMap::new();
        for (session, asker) in self
            .board
            .askers()
            .iter()
            .filter(|(_, asker)| asker.uid == person)
        {
            let runs = |one: &Candidate| one.agent == asker.agent && one.sessions.contains(session);
            if !busy.contains(session) && candidates.iter().any(runs) {
                idle.entry(asker.agent.clone())
                    .or_default()
                    .push(session.clone());
            }
        }
        idle
    }
}

//! Schedules: created, shown and deleted by people, and run when they are due.

use std::sync::Arc;

use colibri_api::{Schedule, ScheduledCall, ScheduledWork, TaskStatus, Timing};
use colibri_trail::TrailEvent;
use tracing::{info, warn};

use super::changes::By;
use super::orders::{Board, BoardActor};
use super::scheduler::Scheduler;
use super::timing;
use colibri_policy::{Caller, Gate};
use colibri_store::StoreError;

/// The most characters of an outcome that are kept.
const MAX_OUTCOME: usize = 400;

impl Board {
    /// Creates a schedule.
    ///
    /// # Errors
    /// [`StoreError::Timing`] for a timing that is none or never comes; [`StoreError::Schedules`],
    /// [`StoreError::Sqlite`], [`StoreError::Unrecorded`].
    pub(crate) fn schedule_work(
        &self,
        who: BoardActor<'_>,
        timing: Timing,
        work: ScheduledWork,
    ) -> Result<Schedule, StoreError> {
        let now = self.now();
        let next_at =
            timing::next(&timing, now).map_err(|error| StoreError::Timing(format!("{error:#}")))?;
        if next_at.is_none() {
            return Err(StoreError::Timing(
                "that time never comes, or is over".to_owned(),
            ));
        }
        let new = Schedule {
            id: 0,
            timing,
            work,
            created_by: who.uid,
            created_at: now,
            next_at,
            last_at: None,
            foreign: None,
            last_task: None,
            last_outcome: None,
            runs: 0,
        };
        let schedule = self.store.add_schedule(&new)?;
        self.changed.notify_one();
        Ok(schedule)
    }

    /// The schedules of this person; for an operator, all.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn schedules(&self, who: BoardActor<'_>) -> Result<Vec<Schedule>, StoreError> {
        self.store
            .schedules((!who.operator).then_some(who.uid), None)
    }

    /// Deletes a schedule.
    ///
    /// # Errors
    /// [`StoreError::Task`] where it is not this person's; [`StoreError::Sqlite`].
    pub(crate) fn unschedule(&self, who: BoardActor<'_>, id: u64) -> Result<Schedule, StoreError> {
        self.store.delete_schedule(id, who.uid, who.operator)
    }

    /// Notes what came of a call.
    fn called(&self, id: u64, outcome: &str) {
        if let Err(error) = self
            .store
            .note_outcome(id, &colibri_text::brief(outcome, MAX_OUTCOME))
        {
            warn!(schedule = id, "what came of a run was not noted: {error}");
        }
    }
}

impl Scheduler {
    /// Runs what is due: once, however often it was due while nobody looked. Returns the time of
    /// the next that is due, which is over where something could not be run just now.
    pub(super) fn run_due(self: &Arc<Self>) -> Result<Option<u64>, StoreError> {
        let now = self.board.now();
        let mut is_behind = false;
        let store = &self.board.store;
        for schedule in store.schedules(None, Some(now))? {
            let id = schedule.id;
            // Another host runs it, on which its creator has an account.
            let is_foreign = store.board().is_foreign(schedule.created_by);
            if is_foreign || schedule.foreign.is_some() {
                continue;
            }
            if let Err(error) = self.run_schedule(&schedule, now) {
                warn!(schedule = id, "not run yet: {error}");
                is_behind = true;
            }
        }
        match is_behind {
            true => Ok(Some(now)),
            false => store.next_due(now),
        }
    }

    fn run_schedule(self: &Arc<Self>, schedule: &Schedule, now: u64) -> Result<(), StoreError> {
        let (id, person) = (schedule.id, schedule.created_by);
        let next_at = match schedule.timing.at {
            Some(_) => None,
            None => timing::next(&schedule.timing, now).unwrap_or_default(),
        };
        let by = By {
            uid: Some(person),
            session: None,
        };
        let pass_over = |why: &str| {
            let noted = |tell: &dyn Fn(&_, _) -> _| {
                self.board
                    .store
                    .run_schedule(schedule, next_at, (why, None), now, tell)
            };
            self.board.change(by, noted).map(drop)
        };
        if let Some(why) = self.hinders(schedule)? {
            return pass_over(&format!("passed over: {why}"));
        }
        self.board
            .recorder
            .event(TrailEvent::ScheduleRun { id, person })
            .map_err(|error| StoreError::Unrecorded(error.to_string()))?;
        match &schedule.work {
            ScheduledWork {
                task: Some(task), ..
            } => {
                let task = Some(task.clone());
                let created = self.board.change(by, |tell| {
                    self.board.store.run_schedule(
                        schedule,
                        next_at,
                        ("created a task", task),
                        now,
                        tell,
                    )
                });
                match created {
                    Err(error @ (StoreError::OpenTasks(_) | StoreError::Full)) => {
                        pass_over(&format!("passed over: {error}"))?
                    }
                    created => {
                        created?;
                        info!(schedule = id, "run");
                    }
                }
            }
            ScheduledWork {
                call: Some(ScheduledCall { tool, arguments }),
                ..
            } => {
                // Noted before it is called: a call is made once at the most.
                let noted = self.board.change(by, |tell| {
                    self.board.store.run_schedule(
                        schedule,
                        next_at,
                        ("is running", None),
                        now,
                        tell,
                    )
                })?;
                if noted.is_some() {
                    let noted = move |board: &Board, outcome: &str| board.called(id, outcome);
                    self.call(id, (person, tool, arguments.get()), noted);
                }
            }
            ScheduledWork { .. } => pass_over("there is nothing to do")?,
        }
        Ok(())
    }

    /// The reason for which a schedule is not run now.
    fn hinders(&self, schedule: &Schedule) -> Result<Option<String>, StoreError> {
        if self.calling.lock().contains(&schedule.id) {
            return Ok(Some("its last call is not answered yet".to_owned()));
        }
        if let Some(last) = schedule.last_task
            && let Ok((task, _)) = self.board.store.task(last)
            && !task.said.status.has_ended()
            && task.said.status != TaskStatus::Intake
        {
            return Ok(Some(format!("task {last} has not ended yet")));
        }
        if schedule.work.task.is_none() {
            // The chain says what else stands against a call.
            return Ok(None);
        }
        let caller = match Caller::of_account(schedule.created_by) {
            Ok(caller) => caller,
            Err(why) => return Ok(Some(format!("{why:#}"))),
        };
        let rules = &self.board.rules;
        let (daemon, rights) = (**rules.gates.load(), rules.clients.load().rights(&caller));
        let write = rights.caller_gates(daemon, daemon).check(Gate::Write);
        Ok(write
            .err()
            .map(|_| "the write gate is closed for who created it".to_owned()))
    }
}

//! Tasks as their callers may see them: their own, and what they have claimed; operators all.

use std::collections::HashMap;

use colibri_api::{Task, TaskStatus, Tasks};

use super::choice;
use super::orders::{Board, Doer};
use crate::store::{Actor, Error, TaskFilter, TaskRefusal};

impl Board {
    /// True if `who` may see a task. To anybody else it is as if there were none of its number.
    pub fn sees(&self, who: Doer<'_>, task: &Task) -> bool {
        who.actor().sees(task)
    }

    /// A task, and its result as JSON. Who has claimed it has so much longer.
    ///
    /// # Errors
    /// [`Error::Task`] where there is none that this caller may see; [`Error::Sqlite`].
    pub fn task(&self, who: Doer<'_>, id: u64) -> Result<(Task, Option<String>), Error> {
        let (mut task, result) = self.store.task(id)?;
        if !self.sees(who, &task) {
            return Err(TaskRefusal::Missing(id).into());
        }
        let is_held = matches!(task.said.status, TaskStatus::Claimed | TaskStatus::Started);
        if is_held && who.agent.is_none() && task.claimed_session.is_none() && task.claimed_by == Some(who.uid) {
            task.lease_until = self.lease(who);
            self.store.renew(&task)?;
        }
        self.explain(std::slice::from_mut(&mut task));
        Ok((task, result))
    }

    /// A page of the tasks that `who` may see; see [`Store::tasks`](crate::store::Store::tasks).
    ///
    /// # Errors
    /// [`Error::Cursor`], [`Error::Sqlite`].
    pub fn tasks(&self, who: Doer<'_>, filter: &TaskFilter, limit: u32, cursor: Option<&str>) -> Result<Tasks, Error> {
        let mut page = self.store.tasks(who.actor(), filter, limit, cursor)?;
        self.explain(&mut page.tasks);
        Ok(page)
    }

    /// How many of the tasks that `who` may see stand where; `None`: of all.
    ///
    /// # Errors
    /// [`Error::Sqlite`].
    pub fn task_counts(&self, who: Option<Doer<'_>>) -> Result<[(TaskStatus, u64); 7], Error> {
        self.store.task_counts(who.map_or(Actor::DAEMON, Doer::actor))
    }

    /// Says of queued tasks why they wait.
    pub(super) fn explain(&self, tasks: &mut [Task]) {
        let mut known = HashMap::new();
        for task in tasks {
            if task.said.status == TaskStatus::Queued && task.for_session.is_none() {
                let creator = task.said.created_by;
                let candidates = known.entry(creator).or_insert_with(|| self.candidates(creator));
                task.waiting = Some(choice::waiting(task, candidates));
            }
        }
    }
}

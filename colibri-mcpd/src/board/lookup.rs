//! Tasks as their callers may see them: their own, what they have claimed, and what is shared with
//! them; operators all.

use std::collections::HashMap;

use colibri_api::{Task, TaskShare, TaskStatus, Tasks};
use colibri_text::visible;
use nix::unistd::{Group, User};

use super::choice;
use super::orders::{Board, BoardActor};
use colibri_store::{Actor, StoreError, TaskFilter, TaskRefusal};

/// The creator of a task, for a viewer who is somebody else or may take it for their own: what the
/// task says is that user's word. `None`: it is the viewer's own, and not shared.
pub fn origin(task: &Task, viewer: u32) -> Option<String> {
    let uid = task.said.created_by;
    if uid == viewer && task.said.share.is_none() {
        return None;
    }
    let user = User::from_uid(uid.into()).ok().flatten();
    let account = || {
        user.map_or_else(
            || format!("uid {uid}"),
            |user| format!("{} (uid {uid})", user.name),
        )
    };
    let user = task.person.clone().unwrap_or_else(account);
    let with = match task.said.share {
        None => String::new(),
        Some(TaskShare::All) => ", shared with all".to_owned(),
        Some(TaskShare::Group(gid)) => match Group::from_gid(gid.into()).ok().flatten() {
            Some(group) => format!(", shared with group {}", group.name),
            None => format!(", shared with gid {gid}"),
        },
    };
    Some(visible(&format!("from {user}{with}")).into_owned())
}

/// True if a task is foreign and `who` an agent: no agent is given its words.
fn is_kept_from(who: BoardActor<'_>, task: &Task) -> bool {
    who.agent.is_some() && task.foreign.is_some()
}

impl Board {
    /// True if `who` may see a task. To anybody else it is as if there were none of its number.
    pub fn sees(&self, who: BoardActor<'_>, task: &Task) -> bool {
        who.actor().sees(task)
    }

    /// A task, and its result as JSON, which its creator, who claimed it and operators see. Who has
    /// claimed it has so much longer.
    ///
    /// # Errors
    /// [`StoreError::Task`] where there is none that this caller may see; [`StoreError::Sqlite`].
    pub fn task(&self, who: BoardActor<'_>, id: u64) -> Result<(Task, Option<String>), StoreError> {
        let (mut task, result) = self.store.task(id)?;
        if !self.sees(who, &task) || is_kept_from(who, &task) {
            return Err(TaskRefusal::Missing(id).into());
        }
        let result = result.filter(|_| who.actor().sees_result(&task));
        let is_held = matches!(task.said.status, TaskStatus::Claimed | TaskStatus::Started);
        if is_held
            && who.agent.is_none()
            && task.claimed_session.is_none()
            && task.claimed_by == Some(who.uid)
        {
            task.lease_until = self.lease(who);
            self.store.renew(&task)?;
        }
        self.explain(std::slice::from_mut(&mut task));
        Ok((task, result))
    }

    /// The status of a task, whoever may see it.
    ///
    /// # Errors
    /// [`StoreError::Task`] where there is none; [`StoreError::Sqlite`].
    pub(crate) fn status_of(&self, id: u64) -> Result<TaskStatus, StoreError> {
        match self.store.task(id)?.0 {
            Task {
                foreign: Some(why), ..
            } => Err(TaskRefusal::Foreign { id, why }.into()),
            task => Ok(task.said.status),
        }
    }

    /// A page of the tasks that `who` may see; see [`Store::tasks`](colibri_store::Database::tasks).
    ///
    /// # Errors
    /// [`StoreError::Cursor`], [`StoreError::Sqlite`].
    pub fn tasks(
        &self,
        who: BoardActor<'_>,
        filter: &TaskFilter,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Tasks, StoreError> {
        let mut page = self.store.tasks(who.actor(), filter, limit, cursor)?;
        page.tasks.retain(|task| !is_kept_from(who, task));
        self.explain(&mut page.tasks);
        Ok(page)
    }

    /// The number of tasks by status: of those that `who` may see, or of all for `None`.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub(crate) fn task_counts(
        &self,
        who: Option<BoardActor<'_>>,
    ) -> Result<[(TaskStatus, u64); 7], StoreError> {
        self.store
            .task_counts(who.map_or(Actor::DAEMON, BoardActor::actor))
    }

    /// Says of queued tasks why they wait, and of which hosts tasks are, where there are several.
    pub(super) fn explain(&self, tasks: &mut [Task]) {
        let mut known = HashMap::new();
        for task in tasks {
            self.store.show_host(task);
            // Whose words it has nobody knows.
            if task.foreign.is_some() {
                (task.said.limits.by_person, task.said.limits.tainted) = (false, true);
            }
            if task.said.status == TaskStatus::Queued
                && task.for_session.is_none()
                && task.foreign.is_none()
            {
                let creator = task.said.created_by;
                if self.store.board().is_foreign(creator) {
                    task.waiting = Some("its person has no account on this host".to_owned());
                    continue;
                }
                let candidates = known
                    .entry(creator)
                    .or_insert_with(|| self.candidates(creator));
                task.waiting = Some(choice::waiting(task, candidates));
            }
        }
    }
}

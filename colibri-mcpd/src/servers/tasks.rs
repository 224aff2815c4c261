//! The tasks that servers have, and the ids by which clients know them.
//!
//! A task's id towards clients is a random number of ours: it says nothing of the server's own id,
//! and whoever else has it can do nothing with it, since it is good for the user alone whose call
//! became the task. A task that is open counts as in flight: its process is not ended for being
//! idle.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use colibri_text::hex;
use parking_lot::Mutex;
use tokio::time::Instant;

use colibri_protocol::tasks;

/// The most tasks of one user that are remembered.
const MAX_OF_ONE: usize = 1_000;
/// The most in all.
const MAX_TASKS: usize = 10_000;
/// The time for which a task is remembered whose server reports a longer life, or none.
const MAX_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// The tasks of all servers.
pub struct ServerTasks {
    known: Mutex<KnownTask>,
    /// The number of remembered tasks, to be read without a lock.
    count: AtomicUsize,
}

struct KnownTask {
    /// By our ids.
    tasks: HashMap<Box<str>, ServerTask>,
    /// Our ids by process, user and the server's own id.
    ours: HashMap<(u64, u32, Box<str>), Box<str>>,
}

struct ServerTask {
    uid: u32,
    server: Arc<str>,
    tool: Box<str>,
    /// The process that has it. It may be one that gets no new calls, and of a server that its
    /// entry's change replaced.
    process: (u64, Weak<ProcessHandle>),
    own: Box<str>,
    until: Instant,
    is_over: bool,
}

/// A process, whose type the sessions know: they use this file.
type ProcessHandle = dyn Any + Send + Sync;

/// A task that a client asks for.
pub struct TaskOwner {
    /// The id of the server that has it.
    pub server: Arc<str>,
    /// The server's own name of the tool that was called.
    pub tool: Box<str>,
    /// The server's own id of the task.
    pub own: Box<str>,
    /// The process that has it. `None`: it is gone, and the task with it.
    pub process: Option<Arc<ProcessHandle>>,
}

impl KnownTask {
    fn forget(&mut self, goes: impl Fn(&ServerTask) -> bool) {
        let ours = &mut self.ours;
        self.tasks.retain(|_, task| {
            if !goes(task) {
                return true;
            }
            ours.remove(&(task.process.0, task.uid, task.own.clone()));
            false
        });
    }

    fn is_full(&self, uid: u32) -> bool {
        let own = self.tasks.values().filter(|task| task.uid == uid).count();
        own >= MAX_OF_ONE || self.tasks.len() >= MAX_TASKS
    }
}

impl Default for ServerTasks {
    fn default() -> ServerTasks {
        let known = KnownTask {
            tasks: HashMap::new(),
            ours: HashMap::new(),
        };
        ServerTasks {
            known: Mutex::new(known),
            count: AtomicUsize::new(0),
        }
    }
}

impl ServerTasks {
    /// Our id of a task that a process, with its number and its server's id, tells a user of, who
    /// called this tool of it. A new one is remembered.
    ///
    /// # Errors
    /// As many are remembered as may be: how many.
    pub(super) fn seen(
        &self,
        (process, number, server): (Arc<ProcessHandle>, u64, &Arc<str>),
        uid: u32,
        tool: &str,
        task: &tasks::UpstreamTask<'_>,
    ) -> Result<Box<str>, usize> {
        let life = task
            .ttl_ms
            .map_or(MAX_LIFE, Duration::from_millis)
            .min(MAX_LIFE);
        let until = Instant::now() + life;
        let mut known = self.known.lock();
        let key = (number, uid, Box::from(&*task.id));
        if let Some(ours) = known.ours.get(&key).cloned() {
            if let Some(seen) = known.tasks.get_mut(&ours) {
                seen.is_over |= task.is_over;
            }
            return Ok(ours);
        }
        if known.is_full(uid) {
            let now = Instant::now();
            known.forget(|task| task.until <= now);
            if known.is_full(uid) {
                known.forget(|task| task.uid == uid && task.is_over);
            }
        }
        let mut bytes = [0; 16];
        if known.is_full(uid) || getrandom::fill(&mut bytes).is_err() {
            return Err(MAX_OF_ONE);
        }
        let ours: Box<str> = hex(&bytes).into();
        let task = ServerTask {
            uid,
            server: server.clone(),
            tool: tool.into(),
            process: (number, Arc::downgrade(&process)),
            own: key.2.clone(),
            until,
            is_over: task.is_over,
        };
        known.ours.insert(key, ours.clone());
        known.tasks.insert(ours.clone(), task);
        self.count.store(known.tasks.len(), Ordering::Release);
        Ok(ours)
    }

    /// Our id of a task that a process tells a user of, if the user knows it.
    pub(super) fn known(
        &self,
        process: u64,
        uid: u32,
        task: &tasks::UpstreamTask<'_>,
    ) -> Option<Box<str>> {
        let mut known = self.known.lock();
        let ours = known
            .ours
            .get(&(process, uid, Box::from(&*task.id)))
            .cloned()?;
        if let Some(seen) = known.tasks.get_mut(&ours) {
            seen.is_over |= task.is_over;
        }
        Some(ours)
    }

    /// The task with this id of ours, if it is this user's.
    pub fn find(&self, uid: u32, ours: &str) -> Option<TaskOwner> {
        let known = self.known.lock();
        let task = known.tasks.get(ours).filter(|task| task.uid == uid)?;
        Some(TaskOwner {
            server: task.server.clone(),
            tool: task.tool.clone(),
            own: task.own.clone(),
            process: task.process.1.upgrade(),
        })
    }

    /// Until when a process has a task that is not over; `None`: it has none.
    pub(super) fn open_until(&self, process: u64) -> Option<Instant> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let known = self.known.lock();
        let open = known
            .tasks
            .values()
            .filter(|task| task.process.0 == process && !task.is_over);
        open.map(|task| task.until)
            .max()
            .filter(|until| *until > Instant::now())
    }
}

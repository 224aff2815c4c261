//! Conditions of which people are notified: they are looked for here, so that nothing on a call's
//! path has to report them.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;

use super::Daemon;
use crate::board::TaskChange;
use crate::notices::name;
use crate::relay::Recorder;
use colibri_api::{AgentInstance, Approval, NoticeEvent, TaskStatus};
use colibri_policy::ApprovalChange;
use colibri_text::brief;
use colibri_trail::reserve::{Reserve, Use};

/// The interval of the checks while calls are in flight, or agents run.
const EVERY: Duration = Duration::from_secs(1);
/// The interval while nothing happens.
const IDLE_EVERY: Duration = Duration::from_secs(10);
/// The interval at which the free space of the disk is checked.
const DISK_EVERY: Duration = Duration::from_secs(30);
/// Characters of the reason of an error.
const MAX_REASON: usize = 300;

/// The conditions that were notified already.
struct NotifiedConditions {
    approvals: BTreeSet<String>,
    agents: BTreeSet<String>,
    sealed: Option<u64>,
    trail_fails: bool,
    store_fails: bool,
}

impl Daemon {
    /// Sends notices of conditions, for as long as it is waited for.
    pub(crate) async fn notice_always(self: &Arc<Daemon>) {
        // A file system that hangs is no reason to tell nothing else.
        tokio::select! {
            () = self.look_always() => {}
            () = self.look_at_disk_always() => {}
        }
    }

    async fn look_always(self: &Arc<Daemon>) {
        let mut tasks = self.board.watch();
        let mut approvals = self.chain.approvals.watch();
        let mut seen = self.seen_at_first();
        let mut next = pin!(sleep(Duration::ZERO));
        loop {
            tokio::select! {
                change = tasks.recv() => match change {
                    Ok(change) => self.notice_task(&change),
                    // Which they were the trail says.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
                change = approvals.recv() => match change {
                    Ok(ApprovalChange::Waiting) | Err(RecvError::Lagged(_)) => self.look(&mut seen),
                    Ok(ApprovalChange::Decided { .. }) => {}
                    Err(RecvError::Closed) => return,
                },
                () = &mut next => {
                    self.look(&mut seen);
                    let is_idle = self.connections.load().in_flight == 0 && self.agents.count() == 0;
                    next.set(sleep(if is_idle { IDLE_EVERY } else { EVERY }));
                }
            }
        }
    }

    /// The conditions at the start: only new ones are notified, and that an earlier daemon ended
    /// without sealing the trail, with what was lost.
    fn seen_at_first(&self) -> NotifiedConditions {
        let mut sealed = None;
        if let Recorder::Trail(trail) = &*self.chain.recorder {
            let status = trail.status();
            sealed = status.sealed;
            if status.recovered {
                let why = "the daemon before this one did not end in order: it was killed, it panicked, or the system went down";
                self.critical("crash", why);
            }
        }
        let is_old =
            |agent: &AgentInstance| agent.ended_at.is_some() && !self.agents.was_left(&agent.id);
        let ended = self.agents.list(0, true).into_iter().filter(is_old);
        NotifiedConditions {
            approvals: BTreeSet::new(),
            agents: ended.map(|agent| agent.id).collect(),
            sealed,
            trail_fails: false,
            store_fails: false,
        }
    }

    fn critical(&self, what: &'static str, why: &str) {
        let facts = [
            ("what", what.into()),
            ("why", brief(why, MAX_REASON).into()),
        ];
        self.notices.tell(NoticeEvent::ErrorCritical, facts);
    }

    fn notice_task(&self, change: &TaskChange) {
        let task = &change.task;
        let status = task.said.status;
        if !matches!(status, TaskStatus::Done | TaskStatus::Failed) || change.from == Some(status) {
            return;
        }
        let mut facts: Vec<(&'static str, Value)> = vec![
            ("task", task.id.into()),
            ("status", status.name().into()),
            ("created_by", task.said.created_by.into()),
        ];
        if let Some(session) = &task.claimed_session {
            facts.push(("session", name(session)));
        }
        self.notices.tell(NoticeEvent::TaskCompleted, facts);
    }

    fn look(&self, seen: &mut NotifiedConditions) {
        let approvals = self.chain.approvals.list();
        for approval in approvals
            .iter()
            .filter(|approval| !seen.approvals.contains(&approval.id))
        {
            self.notices
                .tell(NoticeEvent::ApprovalWaiting, of_approval(approval));
        }
        seen.approvals = approvals.into_iter().map(|approval| approval.id).collect();

        let agents = self
            .agents
            .list(0, true)
            .into_iter()
            .filter(|agent| agent.attention);
        let mut attention = BTreeSet::new();
        for agent in agents {
            if !seen.agents.contains(&agent.id) {
                let mut facts: Vec<(&'static str, Value)> = vec![
                    ("agent", name(&agent.agent)),
                    ("session", agent.id.clone().into()),
                    ("for", agent.uid.into()),
                    ("state", agent.state.name().into()),
                    ("stalled", agent.stalled.into()),
                ];
                if let Some(task) = agent.task {
                    facts.push(("task", task.into()));
                }
                self.notices.tell(NoticeEvent::AgentAttention, facts);
            }
            attention.insert(agent.id);
        }
        seen.agents = attention;

        if let Recorder::Trail(trail) = &*self.chain.recorder {
            let status = trail.status();
            if let Some(records) = status.sealed.filter(|_| status.sealed != seen.sealed) {
                self.notices
                    .tell(NoticeEvent::TrailSealed, [("records", records.into())]);
            }
            seen.sealed = status.sealed;
            if let Some(why) = status.failing.as_ref().filter(|_| !seen.trail_fails) {
                self.critical("trail", why);
            }
            seen.trail_fails = status.failing.is_some();
        }
        let failing = self.store.failing();
        if let Some(why) = failing.as_ref().filter(|_| !seen.store_fails) {
            self.critical("store", why);
        }
        seen.store_fails = failing.is_some();
    }

    async fn look_at_disk_always(&self) {
        let mut is_low = false;
        loop {
            let reserve = Reserve::of(&self.config.state_dir);
            // Nor must it hang a thread that serves clients.
            let space = tokio::task::spawn_blocking(move || reserve.space()).await;
            if let Ok(Ok(space)) = space {
                if space.free < space.kept_from(Use::Stored) && !is_low {
                    self.disk_is_low(space.free);
                }
                let wanted = if is_low { Use::Cached } else { Use::Stored };
                is_low = space.free < space.kept_from(wanted);
            }
            sleep(DISK_EVERY).await;
        }
    }

    fn disk_is_low(&self, left: u64) {
        let why = format!(
            "{} MiB are left on the file system of {}: free space there; calls are refused once nothing can be recorded",
            left >> 20,
            self.config.state_dir.display()
        );
        self.critical("disk", &why);
    }
}

/// Never its arguments.
fn of_approval(approval: &Approval) -> Vec<(&'static str, Value)> {
    let mut facts = vec![
        ("approval", approval.id.clone().into()),
        ("uid", approval.uid.into()),
        ("server", name(&approval.server)),
        ("tool", name(&approval.tool)),
        ("expires", approval.expires.into()),
    ];
    if let (Some(agent), Some(session)) = (&approval.agent, &approval.session) {
        facts.extend([("agent", name(agent)), ("session", name(session))]);
    }
    facts
}

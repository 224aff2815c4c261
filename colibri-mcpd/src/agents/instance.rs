//! One instance of an agent: what it was started as, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use colibri_api::{AgentInstance, AgentState, TaskStatus};
use colibri_text::brief_end;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::report::AgentReport;
use crate::registry::AgentEntry;
use crate::relay::AgentSocket;
use colibri_confine::ServerExit;

/// An instance.
pub struct Instance {
    /// Its agent socket, by which it is known.
    pub door: Arc<AgentSocket>,
    /// As it was when it was started.
    pub(super) entry: Arc<AgentEntry>,
    /// For whom it runs.
    pub uid: u32,
    /// The task that it works on.
    pub task: Option<u64>,
    /// The jail's name.
    pub(super) jail: Option<String>,
    started: (Instant, SystemTime),
    known: Mutex<InstanceFacts>,
    /// The reason for which it is to end.
    order: Mutex<Option<Ending>>,
    ordered: Notify,
    /// Counts what is new about it.
    news: watch::Sender<u64>,
}

/// The facts known of an instance so far.
#[derive(Default)]
pub(super) struct InstanceFacts {
    pub told: AgentReport,
    pub last_event: Option<(Instant, SystemTime)>,
    pub events: u64,
    pub skipped: u64,
    /// Events that are not kept any more.
    pub unkept: u64,
    /// The reason for its state, where its own lines do not give one.
    pub reason: Option<String>,
    /// The policy says `"bounded": false` of a mount of its jail.
    pub is_unbounded: bool,
    pub exit: Option<String>,
    pub ended: Option<SystemTime>,
    /// The status of its task after its end.
    pub task_status: Option<TaskStatus>,
}

/// The reason for which an instance is ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// By this user's order.
    Stopped(u32),
    /// A budget of its entry is spent: which.
    Spent(String),
    /// It is done, and waits for more on its standard input.
    Done,
    /// The daemon ends.
    Daemon,
    /// This host has lost its lease on the board.
    LeaseLost,
}

impl Ending {
    /// As people are told.
    pub(super) fn reason(&self) -> String {
        match self {
            Ending::Stopped(by) => format!("stopped by uid {by}"),
            Ending::Spent(which) => format!("stopped: its budget of {which} is used up"),
            Ending::Done => "it was done".to_owned(),
            Ending::Daemon => "stopped: the daemon was shut down".to_owned(),
            Ending::LeaseLost => "stopped: its host lost its lease on the board".to_owned(),
        }
    }
}

/// Milliseconds since the epoch.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

impl Instance {
    /// One that starts now.
    pub(super) fn new(
        door: Arc<AgentSocket>,
        entry: Arc<AgentEntry>,
        uid: u32,
        task: Option<u64>,
        jail: Option<String>,
    ) -> Instance {
        Instance {
            door,
            entry,
            uid,
            task,
            jail,
            started: (Instant::now(), SystemTime::now()),
            known: Mutex::default(),
            order: Mutex::default(),
            ordered: Notify::new(),
            news: watch::Sender::new(0),
        }
    }

    /// Its session.
    pub fn session(&self) -> &Arc<str> {
        &self.door.session
    }

    pub(super) fn known(&self) -> MutexGuard<'_, InstanceFacts> {
        self.known.lock()
    }

    /// Has it ended. The first reason stays.
    pub(super) fn end(&self, why: Ending) {
        self.order.lock().get_or_insert(why);
        self.ordered.notify_one();
    }

    /// The reason for which it is to end, if it is.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.order.lock().clone()
    }

    /// Waits until it is to end.
    pub(super) async fn ordered(&self) {
        while self.ending().is_none() {
            self.ordered.notified().await;
        }
    }

    /// Somebody may want to look at it.
    pub(super) fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    /// Notifies of every change of the instance.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// True if it has ended.
    pub fn has_ended(&self) -> bool {
        self.known().ended.is_some()
    }

    /// The end of its longest run time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let minutes = self.entry.budget.minutes?;
        self.started
            .0
            .checked_add(Duration::from_secs(minutes.saturating_mul(60)))
    }

    /// Its process has ended, which says the last word about its state.
    pub(super) fn ended(&self, exit: ServerExit, wrote: Option<String>) {
        let ending = self.ending();
        let mut known = self.known();
        known.exit = Some(exit.to_string());
        known.ended = Some(SystemTime::now());
        let said = known.told.state;
        let (state, reason) = match &ending {
            None if exit == ServerExit::Status(0) && said != AgentState::Error => {
                (AgentState::Done, None)
            }
            None if exit == ServerExit::Status(0) => (AgentState::Error, None),
            None => {
                let wrote =
                    wrote.map(|wrote| format!("; on standard error: {}", brief_end(&wrote, 500)));
                let ended = match exit {
                    ServerExit::Status(_) => format!("it ended with {exit}"),
                    _ => exit.to_string(),
                };
                let reason = format!("{ended}{}", wrote.unwrap_or_default());
                (AgentState::Error, Some(reason))
            }
            Some(Ending::Done) => (AgentState::Done, None),
            Some(why) => (AgentState::Error, Some(why.reason())),
        };
        known.told.state = state;
        if state != AgentState::Error {
            known.told.reason = None;
        }
        if let Some(reason) = reason {
            known.reason = Some(match known.told.reason.take() {
                Some(said) => format!("{reason}; its last error: {said}"),
                None => reason,
            });
        }
        drop(known);
        self.tell();
    }

    /// As it is now. `entry` is what the registry has of the agent by now.
    pub(super) fn view(&self, entry: Option<&AgentEntry>) -> AgentInstance {
        let known = self.known();
        let spent = &self.door.spent;
        let waiting = spent.waiting.load(Ordering::Relaxed);
        let runs = known.ended.is_none();
        let state = match known.told.state {
            _ if runs && waiting > 0 => AgentState::Blocked,
            state => state,
        };
        let quiet_since = known.last_event.map_or(self.started.0, |(at, _)| at);
        let stalled = runs && quiet_since.elapsed() >= self.entry.stall_after;
        let mut reasons: Vec<String> = known
            .reason
            .iter()
            .chain(&known.told.reason)
            .cloned()
            .collect();
        if runs {
            if waiting > 0 {
                reasons
                    .push("a call waits for approval: colibri-mcp approvals shows it".to_owned());
            }
            if let Some(why) = self.ending() {
                reasons.push(format!("it is being ended ({})", why.reason()));
            }
            match entry {
                None => reasons.push("its entry was removed from the registry; this instance keeps running with the entry it was started with".to_owned()),
                Some(entry) if entry.digest != self.entry.digest => {
                    reasons.push("its entry was changed; this instance keeps running with the entry it was started with".to_owned());
                }
                Some(_) => {}
            }
        }
        AgentInstance {
            id: self.door.session.to_string(),
            agent: self.door.agent.to_string(),
            uid: self.uid,
            host: None,
            person: None,
            task: self.task,
            task_status: known.task_status,
            state,
            stalled,
            attention: stalled || matches!(state, AgentState::Error | AgentState::Blocked),
            reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
            session_id: known.told.session_id.clone(),
            started_at: milliseconds(self.started.1),
            ended_at: known.ended.map(milliseconds),
            exit: known.exit.clone(),
            last_event_at: known.last_event.map(|(_, at)| milliseconds(at)),
            events: known.events,
            skipped_lines: known.skipped,
            calls: spent.calls.load(Ordering::Relaxed),
            approvals: waiting,
            bytes: spent.bytes.load(Ordering::Relaxed),
            tokens_in: spent.tokens_in.load(Ordering::Relaxed),
            tokens_out: spent.tokens_out.load(Ordering::Relaxed),
            jail: self.jail.clone(),
            unbounded: known.is_unbounded,
            cwd: self
                .entry
                .command
                .cwd
                .as_ref()
                .map_or_else(|| "/".to_owned(), |cwd| cwd.display().to_string()),
        }
    }
}

//! A server's processes: which there are, which are being started, which failed, and how that
//! looks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::breaker::Breaker;
use super::launch::NotStarted;
use super::retry::{Discovery, Health};
use super::session::ServerSession;
use super::state::{ProcessKey, State, Viewer};
use super::stderr::Allowance;
use crate::registry::Isolation;

/// The result of a start.
pub(super) type StartResult = Result<Arc<ServerSession>, NotStarted>;

/// A process, or the start of one.
pub(super) enum ProcessSlot {
    Starting {
        /// The calls that wait for it, in the order in which they came.
        waiting: Vec<oneshot::Sender<StartResult>>,
        task: AbortHandle,
        /// True if it had its turn: before that there is no process.
        has_begun: bool,
    },
    Ready(Arc<ServerSession>),
}

impl ProcessSlot {
    /// Ends its process. `false`: there was none yet, and there will be none.
    pub(super) fn end(&self, reason: &'static str) -> bool {
        match self {
            ProcessSlot::Ready(session) => session.end(reason),
            ProcessSlot::Starting { task, .. } => task.abort(),
        }
        matches!(self, ProcessSlot::Ready(_))
    }
}

/// The processes of one server, and what became of those before.
pub(super) struct Slots {
    /// Those that run or are being started.
    pub slots: BTreeMap<ProcessKey, ProcessSlot>,
    /// Of the processes of each user, or of all; those that work are not in it.
    pub health: BTreeMap<Option<u32>, Health>,
    /// Of the calls that each user has there.
    pub breakers: BTreeMap<u32, Breaker>,
    /// The parts of their standard error that may be logged.
    pub allowances: BTreeMap<Option<u32>, Arc<Allowance>>,
    /// Finding out what the server offers.
    pub discovery: Discovery,
    /// The reason for which none may be started.
    pub blocked: Option<String>,
    /// None is wanted any more but for calls in flight.
    pub retired: bool,
    /// The reason for which no process is wanted any more, not even for calls in flight.
    pub ended: Option<&'static str>,
    /// The state that an operator saw last, and its beginning.
    pub shown: (State, SystemTime),
}

impl Slots {
    /// None; `blocked` forbids one.
    pub(super) fn new(blocked: Option<String>) -> Slots {
        Slots {
            slots: BTreeMap::new(),
            health: BTreeMap::new(),
            breakers: BTreeMap::new(),
            allowances: BTreeMap::new(),
            discovery: Discovery::default(),
            blocked,
            retired: false,
            ended: None,
            shown: (State::Stopped, SystemTime::now()),
        }
    }

    /// Those that run.
    pub(super) fn running(&self) -> impl Iterator<Item = (ProcessKey, &Arc<ServerSession>)> {
        self.slots.iter().filter_map(|(key, slot)| match slot {
            ProcessSlot::Ready(session) => Some((*key, session)),
            ProcessSlot::Starting { .. } => None,
        })
    }

    /// True if one is being started.
    pub(super) fn is_starting(&self) -> bool {
        self.slots
            .values()
            .any(|slot| matches!(slot, ProcessSlot::Starting { .. }))
    }

    /// True if a process is to be started for a user so that the server's tools become known, or is
    /// being started. `None`: neither, and none may be started now.
    pub(super) fn wants_discovery(&self, of: Option<u32>) -> Option<bool> {
        let ill = self.health.get(&of).is_some_and(Health::is_backing_off);
        if self.blocked.is_some() || self.retired {
            None
        } else if self.is_starting() {
            Some(false)
        } else {
            (!ill && self.discovery.may_begin()).then_some(true)
        }
    }

    /// Begins the start of `of` if the user has fewer processes than this; else tells how many.
    pub(super) fn begin(&mut self, uid: u32, of: ProcessKey, most: usize) -> Result<(), usize> {
        let is_running = |(key, slot): (&ProcessKey, &ProcessSlot)| {
            key.uid() == Some(uid)
                && *key != of
                && !matches!(
                    slot,
                    ProcessSlot::Starting {
                        has_begun: false,
                        ..
                    }
                )
        };
        let running = self.slots.iter().filter(|slot| is_running(*slot)).count();
        if running >= most {
            return Err(running);
        }
        if let Some(ProcessSlot::Starting { has_begun, .. }) = self.slots.get_mut(&of) {
            *has_begun = true;
        }
        Ok(())
    }

    /// The state of the server, the reason for it, and its beginning: as an operator sees it, or a
    /// user.
    pub(super) fn look(
        &mut self,
        viewer: Viewer,
        isolation: Isolation,
    ) -> (State, Option<String>, SystemTime) {
        let (state, reason) = self.state(viewer, isolation);
        if matches!(viewer, Viewer::Operator(_)) && self.shown.0 != state {
            self.shown = (state, SystemTime::now());
        }
        // Since when it is so for others is no user's to see.
        let since = match (state, self.health_for(viewer, isolation)) {
            (State::BackingOff | State::Failed, Some((_, health))) => health.since(),
            _ => None,
        };
        (state, reason, since.unwrap_or(self.shown.1))
    }

    fn state(&self, viewer: Viewer, isolation: Isolation) -> (State, Option<String>) {
        if let Some(reason) = &self.blocked {
            return (State::Blocked, Some(reason.clone()));
        }
        let any = |of: &dyn Fn(&ProcessKey) -> bool| {
            let slots = || {
                self.slots
                    .iter()
                    .filter(|(key, _)| of(key))
                    .map(|(_, slot)| slot)
            };
            let ready = slots().any(|slot| matches!(slot, ProcessSlot::Ready(_)));
            let state = if ready { State::Ready } else { State::Starting };
            slots().next().map(|_| state)
        };
        let own = |key: &ProcessKey| match viewer {
            Viewer::Operator(_) => true,
            Viewer::User(uid) => key.uid().is_none_or(|of| of == uid),
        };
        let failed = self.health_for(viewer, isolation);
        if let Some(breaker) = self.open_breaker_for(viewer).filter(|_| failed.is_none()) {
            return (State::BackingOff, Some(breaker.reason()));
        }
        let reason = failed.map(|(of, health)| match viewer {
            Viewer::Operator(uid) if of.is_some() && of != uid => health.reason().to_owned(),
            Viewer::Operator(_) | Viewer::User(_) => health.whole_reason(),
        });
        match (any(&own), failed) {
            (Some(State::Ready), _) => (State::Ready, None),
            (Some(state), _) => (state, reason),
            (None, Some((_, health))) if health.is_permanent() => (State::Failed, reason),
            (None, Some(_)) => (State::BackingOff, reason),
            (None, None) => (any(&|_| true).unwrap_or(State::Stopped), None),
        }
    }

    /// The open breaker that counts for a viewer: for an operator anybody's.
    fn open_breaker_for(&self, viewer: Viewer) -> Option<&Breaker> {
        let breaker = match viewer {
            Viewer::Operator(_) => self.breakers.values().find(|breaker| breaker.is_open()),
            Viewer::User(uid) => self.breakers.get(&uid),
        };
        breaker.filter(|breaker| breaker.is_open())
    }

    /// The failures that count for a viewer: for an operator those of whoever's processes failed
    /// last.
    fn health_for(&self, viewer: Viewer, isolation: Isolation) -> Option<(Option<u32>, &Health)> {
        match viewer {
            Viewer::Operator(_) => {
                let all = self.health.iter().map(|(of, health)| (*of, health));
                all.max_by_key(|(_, health)| health.since())
            }
            Viewer::User(uid) => {
                let of = ProcessKey::holder(isolation, uid);
                self.health.get(&of).map(|health| (of, health))
            }
        }
    }
}

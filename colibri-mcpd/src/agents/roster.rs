//! All agents of the registry, and their instances.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, bail};
use arc_swap::ArcSwap;
use colibri_api::paths::SERVICE;
use colibri_api::{AgentFacts, AgentInstance, AgentState};
use colibri_trail::TrailEvent;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio::time::timeout;
use tracing::{error, warn};

use super::instance::{Ending, Instance};
use super::listeners::Models;
use super::record_store::{AgentRecordStore, EventReader};
use crate::board::Board;
use crate::registry::secrets::SecretStore;
use crate::registry::{AgentEntry, LoadedRegistry, RegisteredAgent};
use crate::relay::{CallRules, Recorder};
use crate::results::Results;
use colibri_confine::Spawner;
use colibri_policy::{SystemAccounts, UserDatabase as _};
use colibri_store::Database;

/// The most instances of a host that other hosts show.
const MAX_SHOWN: usize = 200;
/// The most instances that have ended and are still shown.
const MAX_ENDED: usize = 256;

/// The daemon's parts that agents need.
pub struct AgentDependencies {
    /// Starts processes.
    pub spawner: Arc<dyn Spawner>,
    /// Records starts and ends.
    pub recorder: Arc<Recorder>,
    /// The gates, and the groups of users.
    pub rules: Arc<CallRules>,
    /// The stored results, which go with their instance.
    pub results: Arc<Results>,
    /// The secrets of host agents.
    pub secrets: Arc<SecretStore>,
    /// The daemon's own socket.
    pub socket: PathBuf,
    /// The daemon's state directory.
    pub state_dir: PathBuf,
    /// The store of the task board.
    pub store: Arc<Database>,
    /// Makes the relays to models.
    pub models: Arc<dyn Models>,
    /// Agents are started by themselves where their entries say so.
    pub autospawn: bool,
}

/// All agents.
pub struct AgentRoster {
    pub(super) parts: AgentDependencies,
    pub(super) shelf: AgentRecordStore,
    pub(super) board: Arc<Board>,
    entries: ArcSwap<BTreeMap<String, RegisteredAgent>>,
    instances: Mutex<Instances>,
    /// The sessions that the daemon before this one left running.
    left: BTreeSet<String>,
    /// The agents whose last start failed, and when that was.
    failed_starts: Mutex<BTreeMap<String, Instant>>,
    /// The number of instances that run or are being started.
    count: watch::Sender<usize>,
}

#[derive(Default)]
struct Instances {
    /// Those that run or are being started, by session.
    running: BTreeMap<String, AgentSlot>,
    /// Those that have ended, the oldest first.
    ended: Vec<AgentInstance>,
    /// No more are started.
    closed: bool,
}

/// One that runs, or is being started.
struct AgentSlot {
    agent: Arc<str>,
    /// For whom.
    uid: u32,
    /// `None`: it is being started.
    instance: Option<Arc<Instance>>,
}

/// The place of an instance among those that run, until it is dropped.
pub(super) struct AgentPlace {
    agents: Arc<AgentRoster>,
    session: String,
}

impl Drop for AgentPlace {
    fn drop(&mut self) {
        let mut instances = self.agents.instances.lock();
        let instance = instances
            .running
            .remove(&self.session)
            .and_then(|slot| slot.instance);
        if let Some(instance) = instance {
            let ended = instance.view(None);
            instances.ended.push(ended);
            let over = instances.ended.len().saturating_sub(MAX_ENDED);
            instances.ended.drain(..over);
        }
        let running = instances.running.len();
        drop(instances);
        self.agents.count.send_replace(running);
    }
}

impl AgentRoster {
    /// None yet, but for the instances of earlier daemons, and the board for all;
    /// [`AgentRoster::load`] gives it agents.
    ///
    /// # Errors
    /// The directory for events cannot be made.
    pub fn new(parts: AgentDependencies) -> std::io::Result<Arc<AgentRoster>> {
        let shelf = AgentRecordStore::open(&parts.state_dir)?;
        let mut ended = shelf.recall();
        let mut were_left = BTreeSet::new();
        for instance in ended
            .iter_mut()
            .filter(|instance| instance.ended_at.is_none())
        {
            left(instance, &parts.recorder, &shelf);
            were_left.insert(instance.id.clone());
        }
        let over = ended.len().saturating_sub(MAX_ENDED);
        ended.drain(..over);
        shelf.tidy(|_| false);
        let instances = Instances {
            ended,
            ..Instances::default()
        };
        Ok(Arc::new_cyclic(|roster: &Weak<AgentRoster>| AgentRoster {
            board: Board::new(
                parts.store.clone(),
                parts.recorder.clone(),
                parts.rules.clone(),
                roster.clone(),
            ),
            parts,
            shelf,
            entries: ArcSwap::default(),
            instances: Mutex::new(instances),
            left: were_left,
            failed_starts: Mutex::default(),
            count: watch::Sender::new(0),
        }))
    }

    /// Takes over a registry. Instances that run go on as they were started.
    pub fn load(&self, loaded: &LoadedRegistry) {
        for (id, agent) in &loaded.agents {
            if let Some(why) = &agent.refusal {
                warn!(
                    agent = id,
                    "this agent is refused and cannot be started: {why}"
                );
            }
        }
        self.entries.store(Arc::new(loaded.agents.clone()));
        self.failed_starts().clear();
    }

    pub(super) fn failed_starts(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.failed_starts.lock()
    }

    /// The agents of the registry.
    pub(super) fn entries(&self) -> Arc<BTreeMap<String, RegisteredAgent>> {
        self.entries.load_full()
    }

    /// The sessions of the instances that run or are being started, and for whom, by agent.
    pub(super) fn sessions(&self) -> BTreeMap<String, Vec<(String, u32)>> {
        let mut sessions: BTreeMap<String, Vec<(String, u32)>> = BTreeMap::new();
        for (session, slot) in &self.instances.lock().running {
            let of = sessions.entry(slot.agent.to_string()).or_default();
            of.push((session.clone(), slot.uid));
        }
        sessions
    }

    /// An instance that was being started runs. `false`: the daemon ends.
    pub(super) fn runs(&self, instance: &Arc<Instance>) -> bool {
        let mut instances = self.instances.lock();
        if let Some(slot) = instances.running.get_mut(&**instance.session()) {
            slot.instance = Some(instance.clone());
        }
        !instances.closed
    }

    /// The task board.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The instances that run.
    pub fn running(&self) -> Vec<Arc<Instance>> {
        let instances = self.instances.lock();
        let running = instances
            .running
            .values()
            .filter_map(|slot| slot.instance.clone());
        running.collect()
    }

    /// The instance of this session, if it runs.
    pub fn instance(&self, session: &str) -> Option<Arc<Instance>> {
        self.instances.lock().running.get(session)?.instance.clone()
    }

    /// Waits until all that follows an instance's end is done: its task is another's, its end is
    /// recorded, and its place is free.
    pub async fn over(&self, session: &str) {
        let mut count = self.count.subscribe();
        let _ = count.wait_for(|_| self.instance(session).is_none()).await;
    }

    /// The agents that this caller may have run.
    pub fn facts(&self, uid: u32, operator: bool) -> Vec<AgentFacts> {
        let entries = self.entries.load();
        let running = self.sessions();
        let seen = entries
            .iter()
            .filter(|(_, agent)| operator || is_user(&agent.entry, uid));
        let facts = seen.map(|(id, agent)| AgentFacts {
            agent: id.clone(),
            capabilities: agent.entry.capabilities.clone(),
            max: agent.entry.max,
            running: running.get(id).map_or(0, |sessions| sessions.len() as u32),
            jailed: agent.entry.command.jail.is_some(),
            model: agent.entry.model.is_some(),
            autospawn: agent.entry.autospawn,
            refusal: self.refusal(agent),
        });
        facts.collect()
    }

    /// The instances that this caller may see: those that run first, the newest first.
    pub fn list(&self, uid: u32, operator: bool) -> Vec<AgentInstance> {
        let instances = self.instances.lock();
        let running = instances
            .running
            .values()
            .filter_map(|slot| slot.instance.as_ref());
        let mut list: Vec<_> = running.map(|instance| self.view(instance)).collect();
        list.sort_by_key(|instance| std::cmp::Reverse(instance.started_at));
        list.extend(instances.ended.iter().rev().cloned());
        drop(instances);
        list.retain(|instance| operator || instance.uid == uid);
        list
    }

    /// The instance of this session as it is now, running or ended, if this caller may see it.
    pub fn one(&self, session: &str, uid: u32, operator: bool) -> Option<AgentInstance> {
        let found = match self.instance(session) {
            Some(instance) => self.view(&instance),
            None => {
                let instances = self.instances.lock();
                instances
                    .ended
                    .iter()
                    .find(|ended| ended.id == session)?
                    .clone()
            }
        };
        (operator || found.uid == uid).then_some(found)
    }

    /// The instances that run, as other hosts of the board show them: JSON.
    pub(super) fn running_as_json(&self) -> String {
        let board = self.parts.store.board();
        let mut shown: Vec<_> = self
            .running()
            .iter()
            .map(|instance| self.view(instance))
            .collect();
        shown.sort_by_key(|instance| std::cmp::Reverse(instance.started_at));
        shown.truncate(MAX_SHOWN);
        for instance in &mut shown {
            instance.person = board.person_name(instance.uid);
        }
        serde_json::to_string(&shown).unwrap_or_default()
    }

    /// The instances on other hosts of the board that this caller may see, as those hosts say; none
    /// while the board is away. It waits for the database.
    pub fn elsewhere(&self, uid: u32, operator: bool) -> Vec<AgentInstance> {
        let board = self.parts.store.board();
        let person = board.person_name(uid);
        let mut found = Vec::new();
        for (host, shown) in board.instances_elsewhere().unwrap_or_default() {
            let shown: Vec<AgentInstance> = serde_json::from_str(&shown).unwrap_or_default();
            let seen = shown.into_iter().take(MAX_SHOWN);
            let seen = seen.filter(|one| operator || person.is_some() && one.person == person);
            found.extend(seen.map(|instance| AgentInstance {
                host: Some(host.clone()),
                ..instance
            }));
        }
        found
    }

    /// The reason for which an instance is not this caller's to see or stop here. It waits for the
    /// database.
    pub(crate) fn missing_instance(
        &self,
        session: &str,
        (uid, operator): (u32, bool),
        command: &str,
    ) -> String {
        let elsewhere = self.elsewhere(uid, operator);
        let found = elsewhere.iter().find(|instance| instance.id == session);
        let session = colibri_text::brief(session, 40);
        match found.and_then(|instance| instance.host.as_deref()) {
            Some(host) => format!(
                "the instance {session} runs on the host {host}: ssh {host} colibri-mcp agent {command} {session}"
            ),
            None => {
                format!(
                    "there is no instance {session} of yours: colibri-mcp agent list shows those there are"
                )
            }
        }
    }

    /// True if the daemon before this one left the instance of this session running.
    pub(crate) fn was_left(&self, session: &str) -> bool {
        self.left.contains(session)
    }

    /// An instance as it is now.
    pub fn view(&self, instance: &Instance) -> AgentInstance {
        let entries = self.entries.load();
        instance.view(
            entries
                .get(&*instance.door.agent)
                .map(|agent| &*agent.entry),
        )
    }

    /// The events of an instance as they are kept.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn events_of(&self, session: &str) -> std::io::Result<EventReader> {
        EventReader::open(&self.shelf.events(session))
    }

    /// The reason for which no instance of an agent is started, whoever requests it.
    pub(super) fn refusal(&self, agent: &RegisteredAgent) -> Option<String> {
        if let Some(why) = &agent.refusal {
            return Some(why.clone());
        }
        if agent.entry.disabled {
            return Some("it is disabled in the registry (\"disabled\": true)".to_owned());
        }
        let jailed = agent.entry.command.jail.is_some();
        (jailed && !is_where_jails_look(&self.parts.socket)).then(|| {
            format!(
                "a jailed agent needs the daemon's socket in {}, where the helper looks for the agent socket; the daemon's is \
                 {}: start colibri-mcpd with a --socket there",
                SERVICE.socket_directory().display(),
                self.parts.socket.display()
            )
        })
    }

    /// A place among those that run, if there is one.
    pub(super) fn take_place(
        self: &Arc<Self>,
        id: &str,
        session: &str,
        (entry, uid): (&AgentEntry, u32),
    ) -> anyhow::Result<AgentPlace> {
        let mut instances = self.instances.lock();
        if instances.closed {
            bail!("the daemon is ending and starts no agents");
        }
        let running = instances
            .running
            .values()
            .filter(|slot| *slot.agent == *id)
            .count();
        if running >= entry.max as usize {
            bail!(
                "{id} is not started: {} of it run already, and \"max\" of its entry is {}: stop one, or wait until one ends",
                running,
                entry.max
            );
        }
        let slot = AgentSlot {
            agent: id.into(),
            uid,
            instance: None,
        };
        instances.running.insert(session.to_owned(), slot);
        let count = instances.running.len();
        drop(instances);
        self.count.send_replace(count);
        Ok(AgentPlace {
            agents: self.clone(),
            session: session.to_owned(),
        })
    }

    /// Has an instance ended. It is on its way when this returns.
    ///
    /// # Errors
    /// There is none that this caller may stop.
    pub fn stop(&self, session: &str, by: u32, operator: bool) -> anyhow::Result<AgentInstance> {
        let unknown = || self.missing_instance(session, (by, operator), "stop");
        let seen = self.one(session, by, operator).with_context(unknown)?;
        let Some(instance) = self
            .instance(session)
            .filter(|instance| !instance.has_ended())
        else {
            return Ok(seen);
        };
        if let Err(error) = self.parts.recorder.event(TrailEvent::AgentStopped {
            agent: &seen.agent,
            session: &seen.id,
            person: seen.uid,
            by,
        }) {
            error!(
                session,
                "this stop is not in the trail, and the instance is stopped all the same: {error}"
            );
        }
        instance.end(Ending::Stopped(by));
        Ok(self.view(&instance))
    }

    /// Ends all instances, and starts no more. `false`: some have not ended in time.
    pub async fn end(&self, within: Duration) -> bool {
        self.instances.lock().closed = true;
        for instance in self.running() {
            instance.end(Ending::Daemon);
        }
        let mut count = self.count.subscribe();
        timeout(within, count.wait_for(|count| *count == 0))
            .await
            .is_ok()
    }

    /// Ends the instances whose lease is over.
    pub(crate) fn end_without_lease(&self) {
        for instance in self.running() {
            if instance.door.lease.check().is_err() {
                instance.end(Ending::LeaseLost);
            }
        }
    }

    /// The number of instances that run or are being started.
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// The number of running instances by state: of all, or of those that run for this user.
    pub fn by_state(&self, uid: Option<u32>) -> BTreeMap<AgentState, u64> {
        let mut counts = BTreeMap::new();
        for instance in self.running_for(uid) {
            *counts.entry(instance.state).or_default() += 1;
        }
        counts
    }

    /// The number of running instances whose jail has an unbounded mount: of all, or of those that
    /// run for this user.
    pub fn unbounded(&self, uid: Option<u32>) -> u64 {
        self.running_for(uid)
            .filter(|instance| instance.unbounded)
            .count() as u64
    }

    fn running_for(&self, uid: Option<u32>) -> impl Iterator<Item = AgentInstance> {
        let running = self.running().into_iter();
        let counted = running.filter(move |instance| uid.is_none_or(|uid| instance.uid == uid));
        counted.map(|instance| self.view(&instance))
    }
}

/// An instance that an earlier daemon left running when it was killed, and that went with it: it is
/// recorded, and noted.
fn left(instance: &mut AgentInstance, recorder: &Recorder, shelf: &AgentRecordStore) {
    let reason = "the daemon was killed or crashed while it ran, and it ended with it";
    instance.ended_at = Some(instance.last_event_at.unwrap_or(instance.started_at));
    instance.state = AgentState::Error;
    instance.attention = true;
    instance.reason = Some(reason.to_owned());
    // What it took was in the memory of that daemon.
    if let Err(error) = recorder.event(TrailEvent::AgentEnded {
        agent: &instance.agent,
        session: &instance.id,
        person: instance.uid,
        state: instance.state.name(),
        reason,
        exit: "not seen",
        events: None,
        sha256: None,
        calls: None,
        tokens_in: None,
        tokens_out: None,
    }) {
        // Not noted either: the next start records it.
        return error!(
            session = instance.id,
            "the end of an instance is not in the trail: {error}"
        );
    }
    if let Err(error) = shelf.note(instance) {
        warn!(
            session = instance.id,
            "the record of an instance could not be saved: {error}"
        );
    }
}

/// True if an entry names this user.
pub(super) fn is_user(entry: &AgentEntry, uid: u32) -> bool {
    entry.users.iter().any(|user| match user.parse::<u32>() {
        Ok(number) => number == uid,
        Err(_) => SystemAccounts.uid(user) == Some(uid),
    })
}

fn is_where_jails_look(socket: &Path) -> bool {
    let directory = socket
        .parent()
        .and_then(|directory| directory.canonicalize().ok());
    directory.is_some() && directory == SERVICE.socket_directory().canonicalize().ok()
}

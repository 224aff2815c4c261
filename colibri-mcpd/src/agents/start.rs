//! The start of an instance: its task, its ways out, its process; and what follows its end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use colibri_api::{Task, TaskStatus};
use colibri_registry::{Stdin, StdioCommand};
use colibri_trail::{Detail, TrailEvent};
use secrecy::SecretString;
use tokio::time::{Instant, timeout};
use tracing::{error, info, warn};

use super::instance::{Ending, Instance};
use super::life::Life;
use super::listeners::{Doors, ListenGuard};
use super::prompt::{prompt_line, task_of};
use super::roster::{AgentPlace, AgentRoster, is_user};
use crate::board::BoardActor;
use crate::registry::AgentEntry;
use crate::relay::{AgentLease, AgentSocket, AgentUsage, FlowSlot};
use crate::results::ResultOwner;
use crate::servers::{Allowance, Stderr, StderrExcerpt};
use colibri_confine::{JailConfig, LaunchSpec, SpawnedServer, session_id};
use colibri_policy::Caller;

/// The longest time in which an instance's process may start.
const START: Duration = Duration::from_secs(60);

/// For whom an instance is to be started, and by whose order.
#[derive(Debug, Clone, Copy)]
pub struct AgentOrder {
    /// For whom.
    pub person: Caller,
    /// True if that is an operator.
    pub operator: bool,
    /// The user who gave the order; `None`: the daemon, because a task fits the agent.
    pub by: Option<u32>,
}

/// The directory of an instance's ways out, and what is open there.
type InstanceListeners = (Box<Path>, Vec<Box<dyn ListenGuard>>);

/// The work for which an instance is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentWork {
    /// Whatever is next.
    Next,
    /// A queued task of the person's.
    Task(u64),
    /// The text of the work, which becomes a task.
    Prompt(String),
}

/// An instance that is about to be started.
pub(super) struct StartingInstance {
    agent: Arc<str>,
    session: Arc<str>,
    entry: Arc<AgentEntry>,
    order: AgentOrder,
    /// Its task was made of a prompt, for it alone.
    prompted: bool,
    task: Option<Task>,
    place: AgentPlace,
}

impl AgentRoster {
    /// Starts an instance, and returns it once its program runs.
    ///
    /// # Errors
    /// Why there is none, for the one who asked.
    pub async fn spawn(
        self: &Arc<Self>,
        id: &str,
        order: AgentOrder,
        work: AgentWork,
        doors: &dyn Doors,
    ) -> anyhow::Result<Arc<Instance>> {
        let (agents, agent) = (self.clone(), id.to_owned());
        // The board waits for the disk: not on a thread that serves clients.
        let begun = tokio::task::spawn_blocking(move || agents.begin(&agent, order, work)).await;
        let begun = begun.with_context(|| {
            format!("{id} is not started: the start broke off, or the daemon ends")
        })??;
        self.clone().start(begun, doors).await
    }

    /// Prepares a start: checks that it is allowed, and takes a place, a session and its task.
    pub(super) fn begin(
        self: &Arc<Self>,
        id: &str,
        order: AgentOrder,
        work: AgentWork,
    ) -> anyhow::Result<StartingInstance> {
        let person = order.person;
        let entries = self.entries();
        let agent = entries
            .get(id)
            .filter(|agent| order.operator || is_user(&agent.entry, person.uid))
            .with_context(|| {
                let id = colibri_text::brief(id, 64);
                format!("there is no agent \"{id}\" that you may run: colibri-mcp agent list shows those there are")
            })?;
        if let Some(why) = self.refusal(agent) {
            bail!("{id} is not started: {why}");
        }
        let new = match &work {
            AgentWork::Prompt(prompt) => Some(task_of(prompt, person.uid)?),
            _ => None,
        };
        let session = session_id().with_context(|| {
            format!("{id} is not started: the system has no random number for its session")
        })?;
        let place = self.take_place(id, &session, (&agent.entry, person.uid))?;
        let board = &self.board;
        let groups = agent
            .entry
            .shared_tasks
            .then(|| self.parts.rules.clients.load().groups(&person));
        let doer = BoardActor {
            groups: groups.as_deref(),
            ..doer(order)
        };
        let task = match (&work, new) {
            (AgentWork::Task(task), _) => board.reserve(doer, *task, &session).map(Some),
            (_, Some(new)) => board.create(doer, new, Some(&session)).map(Some),
            (_, None) => Ok(None),
        };
        let task = task.with_context(|| format!("{id} is not started"))?;
        Ok(StartingInstance {
            agent: id.into(),
            session: session.into(),
            entry: agent.entry.clone(),
            order,
            prompted: matches!(work, AgentWork::Prompt(_)),
            task,
            place,
        })
    }

    /// Starts what was begun. Where that fails, what it was to do is as it was before.
    pub(super) async fn start(
        self: Arc<Self>,
        begun: StartingInstance,
        doors: &dyn Doors,
    ) -> anyhow::Result<Arc<Instance>> {
        let (session, order) = (begun.session.clone(), begun.order);
        let made = begun
            .task
            .as_ref()
            .filter(|_| begun.prompted)
            .map(|task| task.id);
        let agent = begun.agent.to_string();
        let started = self.clone().start_process(begun, doors).await;
        if started.is_ok() {
            self.failed_starts().remove(&agent);
        }
        if let Err(why) = &started {
            self.failed_starts().insert(agent, Instant::now());
            let (agents, why) = (self.clone(), format!("{why:#}"));
            let undone = tokio::task::spawn_blocking(move || {
                let board = &agents.board;
                board.start_failed(&session);
                let cancelled = made.map(|task| board.cancel(doer(order), task, &why));
                if let Some(Err(error)) = cancelled {
                    warn!(
                        session = &*session,
                        "the task of an instance that did not start could not be cancelled: {error}"
                    );
                }
            });
            let _ = undone.await;
        }
        started
    }

    async fn start_process(
        self: Arc<Self>,
        begun: StartingInstance,
        doors: &dyn Doors,
    ) -> anyhow::Result<Arc<Instance>> {
        let StartingInstance {
            agent: id,
            session,
            entry,
            order,
            task,
            place,
            ..
        } = begun;
        let uid = order.person.uid;
        let door = Arc::new(AgentSocket {
            agent: id.clone(),
            session: session.clone(),
            tools: entry.tools.clone(),
            flow: FlowSlot::bound(entry.may.clone()),
            shared_tasks: entry.shared_tasks,
            max_bytes: entry.budget.session_bytes,
            max_bytes_place: entry.budget.session_bytes_place.clone(),
            max_tokens: entry.budget.tokens,
            spent: AgentUsage::default(),
            lease: AgentLease::of(self.parts.store.board().lease()),
        });
        if let Some(task) = &task {
            door.flow.claim(task, uid);
        }
        let (directory, opened) = self.open_ways(doors, &door, &entry, order.person)?;
        let spec = self.launch_spec(&door, &entry, &directory)?;
        let jail = entry.command.jail.as_ref();
        let jail = jail.map(|jail| {
            jail.name
                .clone()
                .unwrap_or_else(|| format!("colibri-{session}"))
        });
        let prompt =
            (entry.stdin == Stdin::Pipe).then(|| prompt_line(&session, uid, task.as_ref()));
        let instance = Instance::new(door, entry, uid, task.map(|task| task.id), jail);
        let instance = Arc::new(instance);
        let writer = self.shelf.writer(&session);
        let writer =
            writer.with_context(|| format!("{id} is not started: its events cannot be kept"))?;
        self.record_start(&instance, order)
            .inspect_err(|_| self.shelf.forget(&session))?;
        // Before it runs: whatever becomes of this daemon, the next one knows of it.
        if let Err(error) = self.shelf.note(&self.view(&instance)) {
            warn!(
                agent = &*id,
                session = &*session,
                "the record of an instance could not be saved: {error}"
            );
        }
        let started = timeout(START, self.parts.spawner.spawn(spec)).await;
        let spawned = match started {
            Ok(Ok(spawned)) => spawned,
            other => {
                let why = match other {
                    Ok(Err(error)) => error.to_string(),
                    _ => format!("its process did not start within {} s", START.as_secs()),
                };
                let why = self.parts.secrets.redactor().redact(&why).into_owned();
                self.record_end(&instance, &why, "");
                self.shelf.forget(&session);
                bail!("{id} is not started: {why}");
            }
        };
        instance.known().is_unbounded = spawned.process.is_unbounded();
        let pid = spawned.process.pid();
        info!(agent = &*id, session = &*session, uid, pid, "agent started");
        let excerpt = Arc::<StderrExcerpt>::default();
        let life = Life {
            instance: instance.clone(),
            stderr: Stderr {
                server: id.clone(),
                pid,
                secrets: self.parts.secrets.clone(),
                allowance: Arc::<Allowance>::default(),
                excerpt: excerpt.clone(),
            },
            excerpt,
            writer,
            prompt,
        };
        if !self.runs(&instance) {
            instance.end(Ending::Daemon);
        }
        tokio::spawn(self.clone().live(life, spawned, opened, place));
        Ok(instance)
    }

    /// An instance's life and what follows it.
    async fn live(
        self: Arc<Self>,
        life: Life,
        spawned: SpawnedServer,
        opened: Vec<Box<dyn ListenGuard>>,
        place: AgentPlace,
    ) {
        let instance = life.instance.clone();
        let sha256 = life.run(spawned).await;
        drop(opened);
        let mut seen = instance.view(None);
        let reason = seen.reason.clone().unwrap_or_default();
        let reason = self.parts.secrets.redactor().redact(&reason).into_owned();
        let (agents, ended) = (self.clone(), instance.clone());
        let finished = tokio::task::spawn_blocking(move || {
            let why = if reason.is_empty() {
                "its agent ended without finishing it"
            } else {
                &reason
            };
            // First: no step of it is recorded after its end.
            agents.board.instance_ended(&seen.id, why);
            seen.task_status = seen.task.and_then(|task| agents.status_of(task));
            ended.known().task_status = seen.task_status;
            agents.record_end(&ended, &reason, &sha256);
            if let Err(error) = agents.shelf.note(&seen) {
                warn!(
                    session = seen.id,
                    "the record of an instance could not be saved: {error}"
                );
            }
            agents
                .shelf
                .tidy(|session| agents.instance(session).is_some());
            info!(
                agent = seen.agent,
                session = seen.id,
                state = seen.state.name(),
                reason,
                "agent ended"
            );
        });
        let _ = finished.await;
        drop(place);
    }

    /// The status of a task, if the board says.
    fn status_of(&self, task: u64) -> Option<TaskStatus> {
        let status = self.board.status_of(task);
        status
            .inspect_err(|error| warn!(task, "the status of a task cannot be read: {error}"))
            .ok()
    }

    /// Opens the ways out of an instance: its agent socket, and the relay to its model if it has
    /// one.
    fn open_ways(
        &self,
        doors: &dyn Doors,
        door: &Arc<AgentSocket>,
        entry: &Arc<AgentEntry>,
        person: Caller,
    ) -> anyhow::Result<InstanceListeners> {
        let id = &door.agent;
        let made = doors.open(door.clone(), person);
        let (directory, open) =
            made.with_context(|| format!("{id} is not started: its agent socket cannot be made"))?;
        let mut opened = vec![open];
        if entry.model.is_some() {
            let relay =
                self.parts
                    .models
                    .open(&directory.join("model.sock"), entry, door.clone(), person);
            opened.push(relay.with_context(|| {
                format!("{id} is not started: the relay to its model cannot be opened")
            })?);
        }
        Ok((directory, opened))
    }

    /// The process to start.
    fn launch_spec(
        &self,
        door: &AgentSocket,
        entry: &AgentEntry,
        directory: &Path,
    ) -> anyhow::Result<LaunchSpec> {
        let command: &StdioCommand = &entry.command;
        if command.jail.is_some() {
            return Ok(LaunchSpec::Jailed(JailConfig {
                session: door.session.to_string(),
                server: door.agent.to_string(),
                digest: entry.digest.clone(),
            }));
        }
        let resolved = self.parts.secrets.resolve(&command.env);
        let mut environment = resolved.with_context(|| format!("{} is not started", door.agent))?;
        let directory = std::path::absolute(directory)
            .with_context(|| format!("{} is not started: {}", door.agent, directory.display()))?;
        let mut name = |variable: &str, socket: &str| {
            let path = directory.join(socket).display().to_string();
            environment
                .entry(variable.to_owned())
                .or_insert_with(|| SecretString::from(path));
        };
        name("COLIBRI_MCP_SOCKET", "colibri.sock");
        if entry.model.is_some() {
            name("COLIBRI_MODEL_SOCKET", "model.sock");
        }
        Ok(LaunchSpec::Host {
            server: door.agent.to_string(),
            program: command.program.clone(),
            arguments: command.args.clone(),
            environment,
            directory: command.cwd.clone(),
            stdin: entry.stdin,
        })
    }

    fn record_start(&self, instance: &Instance, order: AgentOrder) -> anyhow::Result<()> {
        let (agent, session) = (&instance.door.agent, instance.session());
        let recorded = self.parts.recorder.event(TrailEvent::AgentStarted {
            agent,
            session,
            person: instance.uid,
            by: order
                .by
                .map_or(Detail::Text("daemon"), |by| Detail::Number(by.into())),
            task: instance.task,
            jail: instance.jail.as_deref(),
        });
        recorded.with_context(|| format!("{agent} is not started: its start cannot be recorded"))
    }

    fn record_end(&self, instance: &Instance, reason: &str, sha256: &str) {
        let seen = instance.view(None);
        if let Err(error) = self.parts.recorder.event(TrailEvent::AgentEnded {
            agent: &seen.agent,
            session: &seen.id,
            person: seen.uid,
            state: seen.state.name(),
            reason,
            exit: seen.exit.as_deref().unwrap_or("never ran"),
            events: Some(seen.events),
            sha256: Some(sha256),
            calls: Some(seen.calls),
            tokens_in: Some(seen.tokens_in),
            tokens_out: Some(seen.tokens_out),
        }) {
            error!(
                session = seen.id,
                "the end of an instance is not in the trail: {error}"
            );
        }
        // Nobody else can read what was kept for it. Files are removed: not on a thread that serves
        // clients.
        let results = self.parts.results.clone();
        let owner = ResultOwner {
            uid: instance.uid,
            session: Some(instance.door.session.clone()),
        };
        drop(tokio::task::spawn_blocking(move || results.forget(&owner)));
    }
}

fn doer(order: AgentOrder) -> BoardActor<'static> {
    BoardActor {
        uid: order.person.uid,
        agent: None,
        operator: order.operator,
        groups: None,
    }
}

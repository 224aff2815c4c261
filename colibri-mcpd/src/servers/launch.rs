//! Starting a server's process: what is started, whose turn it is, and what ends if it comes to nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::context::ServerContext;
use super::open_elicitations::ElicitationRights;
use super::remote::{self, Faults, RemoteAccess};
use super::session::{self, ServerLimits, ServerSession, SessionObserver};
use super::stderr::Allowance;
use super::tap::Taps;
use crate::confine::{JailConfig, LaunchSpec, SpawnError, SpawnedServer, session_id};
use crate::oauth::OauthAccount;
use crate::outbound::{Anonymous, EndpointTransport as Spoken};
use crate::peer::{Outbox, Tenant};
use crate::registry::{EntryTransport, ServerSpec};
use crate::relay::{CallMetrics, Client};
use colibri_http::ConnectionRules;
use colibri_protocol::{Code, Failure, Version};
use colibri_registry::{EntryValue, Stdin, StdioCommand};

/// Between two tries of who waits its turn, unless a process ends meanwhile.
const BETWEEN_TRIES: Duration = Duration::from_millis(500);
/// However many end.
const MIN_BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// The reason for which there is no process.
#[derive(Debug, Clone)]
pub(super) enum NotStarted {
    /// The server failed. The message is the cause alone.
    Failed(Failure),
    /// It is not now its turn: a limit is reached, or the helper says so. No failure of the server.
    NotNow(Failure),
}

impl NotStarted {
    /// The failure.
    pub(super) fn failure(self) -> Failure {
        match self {
            NotStarted::Failed(failure) | NotStarted::NotNow(failure) => failure,
        }
    }

    /// The same, in other words.
    pub(super) fn saying(mut self, say: impl FnOnce(&str) -> String) -> NotStarted {
        let (NotStarted::Failed(failure) | NotStarted::NotNow(failure)) = &mut self;
        failure.message = say(&failure.message);
        self
    }
}

impl From<Failure> for NotStarted {
    fn from(failure: Failure) -> NotStarted {
        NotStarted::Failed(failure)
    }
}

/// A process that is being opened. Unless it is kept it ends, whatever became of opening it.
pub(super) struct Opening {
    pub session: Arc<ServerSession>,
    kept: bool,
}

impl Opening {
    pub(super) fn keep(mut self) -> Arc<ServerSession> {
        self.kept = true;
        self.session.clone()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if !self.kept {
            self.session.end("its handshake failed");
        }
    }
}

/// The queue of a server's starts, in the order in which they came.
#[derive(Default)]
pub(super) struct StartQueue {
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

/// One that waits, until it is dropped.
struct QueuedStart<'a>(&'a StartQueue);

impl<'a> QueuedStart<'a> {
    fn new(queue: &'a StartQueue) -> QueuedStart<'a> {
        queue.waiting.fetch_add(1, Ordering::AcqRel);
        QueuedStart(queue)
    }
}

impl Drop for QueuedStart<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One start of a server: as many processes as it takes to find out how to speak to it.
pub(super) struct Launch {
    pub context: Arc<ServerContext>,
    /// The server's id.
    pub server: Arc<str>,
    pub entry: Arc<ServerSpec>,
    /// SHA-256 of the entry as it is written now.
    pub digest: Arc<ArcSwap<String>>,
    pub limits: ServerLimits,
    pub taps: Arc<Taps>,
    pub allowance: Arc<Allowance>,
    /// The counts of answers that nobody waits for.
    pub metrics: Arc<CallMetrics>,
    pub queue: Arc<StartQueue>,
    /// The version that the server speaks, once it is known.
    pub version: Arc<Mutex<Option<Version>>>,
    /// The persons and kinds of the process's requests.
    pub may_ask: ElicitationRights,
    /// The user whose process it is; `None`: all share it.
    pub person: Option<u32>,
    /// The client for which it is started.
    pub client: Arc<Client>,
    /// Its login, where there are some.
    pub account: Option<Arc<OauthAccount>>,
    /// The observer of the processes.
    pub observer: Arc<dyn SessionObserver>,
    /// The limit that it waits for.
    pub waits_for: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Launch {
    /// The version that the server's processes speak, if it is known.
    pub(super) fn version(&self) -> Option<Version> {
        *lock(&self.version)
    }

    /// Remembers it, or forgets it.
    pub(super) fn set_version(&self, version: Option<Version>) {
        *lock(&self.version) = version;
    }

    /// A failure of the server, of which `what` is the cause.
    pub(super) fn broken(&self, what: &str) -> Failure {
        // What a server says of itself may hold what it was given.
        let what = self.context.redact(what);
        Failure::new(Code::IntegrationUnavailable, what).of_server(&*self.server)
    }

    /// The work of the start, within its limit.
    ///
    /// # Errors
    /// Why there is no process.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = Result<T, NotStarted>>) -> Result<T, NotStarted> {
        let limit = self.limits.start.as_millis();
        let late = |message: String| Failure::new(Code::TimeoutStart, message).of_server(&*self.server);
        match timeout_at(Instant::now() + self.limits.start, work).await {
            // No call is lost with a process that has none yet.
            Ok(Err(NotStarted::Failed(failure))) if matches!(failure.code, Code::ServerDied | Code::ServerFailed) => {
                Err(self.broken(&failure.message).into())
            }
            Ok(result) => result,
            Err(_) => Err(match &*lock(&self.waits_for) {
                Some(why) => NotStarted::NotNow(late(format!(
                    "its turn did not come within {limit} ms (start_timeout_ms): {why}"
                ))),
                None => late(format!("not ready within {limit} ms (start_timeout_ms)")).into(),
            }),
        }
    }

    /// Starts a process that is to be spoken to in this version first.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn process(&self, version: Version) -> Result<Opening, NotStarted> {
        let (spawned, faults) = match &self.entry.transport {
            EntryTransport::Http {
                url,
                headers,
                spoken,
                rules,
                ..
            } => self.connected(url, headers, *spoken, rules)?,
            EntryTransport::Stdio(command) => (self.spawned(command).await?, None),
        };
        let tenant = Tenant::Server {
            id: self.server.clone(),
            person: self.person,
        };
        let outbox = Outbox::charged(session::MAX_UNREAD, &self.context.parts.budget, tenant);
        let of = session::ProcessOwner {
            server: self.server.clone(),
            limits: self.limits,
            taps: self.taps.clone(),
            secrets: self.context.parts.secrets.clone(),
            allowance: self.allowance.clone(),
            metrics: self.metrics.clone(),
            tasks: self.context.tasks().clone(),
            may_ask: self.may_ask,
            is_remote: faults.is_some(),
        };
        let number = self.context.next_process();
        let chain = self.context.parts.chain.clone();
        let session = ServerSession::new(of, number, &*spawned.process, version, outbox, chain);
        session.used_by(&self.client);
        self.context.process_started();
        tokio::spawn(
            session
                .clone()
                .run(spawned, faults, self.context.parts.max_frame, self.observer.clone()),
        );
        Ok(Opening { session, kept: false })
    }

    /// Has a process started. What is over a limit waits its turn: behind those who wait already, and one asks for all.
    async fn spawned(&self, command: &StdioCommand) -> Result<SpawnedServer, NotStarted> {
        let waits_for = |why: Option<String>| *lock(&self.waits_for) = why;
        if self.queue.waiting.load(Ordering::Acquire) == 0 {
            match self.context.parts.spawner.spawn(self.launch_spec(command)?).await {
                Err(error @ SpawnError::Limit { .. }) => waits_for(Some(error.to_string())),
                other => return other.map_err(|error| self.not_started(&error)),
            }
        } else {
            waits_for(Some("others wait for theirs".to_owned()));
        }
        let _waiting = QueuedStart::new(&self.queue);
        let _turn = self.queue.turn.lock().await;
        loop {
            match self.context.parts.spawner.spawn(self.launch_spec(command)?).await {
                Err(error @ SpawnError::Limit { .. }) => {
                    waits_for(Some(error.to_string()));
                    self.observer.makes_place();
                }
                other => {
                    waits_for(None);
                    return other.map_err(|error| self.not_started(&error));
                }
            }
            sleep(MIN_BETWEEN_TRIES).await;
            let _ = timeout(BETWEEN_TRIES, self.context.freed()).await;
        }
    }

    fn not_started(&self, error: &SpawnError) -> NotStarted {
        let code = if error.is_transient() {
            Code::IntegrationUnavailable
        } else {
            Code::ServerUnstartable
        };
        let cause = self.context.redact(&error.to_string());
        let failure = Failure::new(code, cause).of_server(&*self.server);
        match error {
            SpawnError::Limit { .. } | SpawnError::TryLater { .. } => NotStarted::NotNow(failure),
            _ => NotStarted::Failed(failure),
        }
    }

    fn unstartable(&self, why: String) -> Failure {
        Failure::new(Code::ServerUnstartable, why).of_server(&*self.server)
    }

    /// Begins a session with a server behind a URL.
    fn connected(
        &self,
        url: &str,
        headers: &BTreeMap<String, EntryValue>,
        spoken: Spoken,
        rules: &ConnectionRules,
    ) -> Result<(SpawnedServer, Faults), Failure> {
        let headers = self.context.parts.secrets.resolve(headers);
        let reached = RemoteAccess {
            url,
            headers: headers.map_err(|error| self.unstartable(error.to_string()))?,
            spoken,
            rules,
            authorizer: match &self.account {
                Some(account) => account.clone(),
                None => Arc::new(Anonymous),
            },
            max_frame: self.context.parts.max_frame,
            silence: self.limits.total,
        };
        remote::connect(reached).map_err(|why| self.unstartable(why))
    }

    /// The process to start.
    fn launch_spec(&self, command: &StdioCommand) -> Result<LaunchSpec, Failure> {
        if command.jail.is_some() {
            let session = session_id().map_err(|error| self.unstartable(format!("no session id: {error}")))?;
            return Ok(LaunchSpec::Jailed(JailConfig {
                session,
                server: self.server.to_string(),
                digest: self.digest.load().to_string(),
            }));
        }
        let environment = match self.context.parts.secrets.resolve(&command.env) {
            Ok(environment) => environment,
            Err(error) => return Err(self.unstartable(error.to_string())),
        };
        Ok(LaunchSpec::Host {
            server: self.server.to_string(),
            program: command.program.clone(),
            arguments: command.args.clone(),
            environment,
            directory: command.cwd.clone(),
            stdin: Stdin::Pipe,
        })
    }
}

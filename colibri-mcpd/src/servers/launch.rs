//! Starting a server's process: what is started, whose turn it is, and what ends if it comes to
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::elicitation::open_elicitations::ElicitationRights;
use super::remote::{self, Faults, RemoteAccess};
use super::session::{self, ServerSession, SessionObserver};
use super::specification::ServerSpecification;
use super::ssh;
use super::stderr::Allowance;
use crate::registry::EntryTransport;
use crate::relay::Client;
use colibri_confine::{JailConfig, LaunchSpec, SpawnError, SpawnedServer, session_id};
use colibri_http::ConnectionRules;
use colibri_outbound::oauth::OauthAccount;
use colibri_outbound::{Anonymous, EndpointTransport as Spoken};
use colibri_peer::{Outbox, Tenant};
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

/// One start of a server: as many processes as it takes to find out how to speak to it.
pub(super) struct Launch {
    pub spec: Arc<ServerSpecification>,
    /// The part of the standard error of these processes that may be logged.
    pub allowance: Arc<Allowance>,
    /// The persons and kinds of the process's requests.
    pub may_ask: ElicitationRights,
    /// The user whose process it is; `None`: all share it.
    pub person: Option<u32>,
    /// The client for which it is started.
    pub client: Arc<Client>,
    /// Its login, where there are some.
    pub account: Option<Arc<OauthAccount>>,
    /// Handles the events of the processes.
    pub observer: SessionObserver,
    /// Has users who have several processes of the server give one up: the helper has no place for
    /// this one.
    pub make_place: Box<dyn Fn() + Send + Sync>,
    /// The limit that it waits for.
    pub waits_for: Mutex<Option<String>>,
}

impl Launch {
    /// The work of the start, within its limit.
    ///
    /// # Errors
    /// Why there is no process.
    pub(super) async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, NotStarted>>,
    ) -> Result<T, NotStarted> {
        let limit = self.spec.limits.start.as_millis();
        let late = |message: String| self.spec.failure(Code::TimeoutStart, message);
        match timeout_at(Instant::now() + self.spec.limits.start, work).await {
            // No call is lost with a process that has none yet.
            Ok(Err(NotStarted::Failed(failure)))
                if matches!(failure.code, Code::ServerDied | Code::ServerFailed) =>
            {
                Err(self.spec.server_failure(&failure.message).into())
            }
            Ok(result) => result,
            Err(_) => Err(match &*self.waits_for.lock() {
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
        let (spawned, faults) = match &self.spec.entry.transport {
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
            id: self.spec.id.clone(),
            person: self.person,
        };
        let outbox = Outbox::charged(session::MAX_UNREAD, &self.spec.context.parts.budget, tenant);
        let number = self.spec.context.next_process();
        let session = ServerSession::new(
            self.spec.clone(),
            (number, version),
            (&*spawned.process, faults.is_some()),
            outbox,
            (self.allowance.clone(), self.may_ask),
            self.observer.clone(),
        );
        session.used_by(&self.client);
        self.spec.context.process_started();
        let max_frame = self.spec.context.parts.max_frame;
        tokio::spawn(session.clone().run(spawned, faults, max_frame));
        Ok(Opening {
            session,
            kept: false,
        })
    }

    /// Has a process started. A start that is over a limit waits for its place behind those that
    /// wait already; the first of them asks for all.
    async fn spawned(&self, command: &StdioCommand) -> Result<SpawnedServer, NotStarted> {
        let spec = &self.spec;
        let waits_for = |why: Option<String>| *self.waits_for.lock() = why;
        let spawn = async || match spec
            .context
            .parts
            .spawner
            .spawn(self.launch_spec(command)?)
            .await
        {
            Err(error @ SpawnError::Limit { .. }) => {
                waits_for(Some(error.to_string()));
                Ok(None)
            }
            other => other.map(Some).map_err(|error| self.not_started(&error)),
        };
        if spec.queue.is_empty() {
            if let Some(spawned) = spawn().await? {
                return Ok(spawned);
            }
        } else {
            waits_for(Some("others wait for theirs".to_owned()));
        }
        let as_first = async {
            loop {
                if let Some(spawned) = spawn().await? {
                    waits_for(None);
                    return Ok(spawned);
                }
                (self.make_place)();
                sleep(MIN_BETWEEN_TRIES).await;
                let _ = timeout(BETWEEN_TRIES, spec.context.freed()).await;
            }
        };
        spec.queue.as_first(as_first).await
    }

    fn not_started(&self, error: &SpawnError) -> NotStarted {
        let code = if error.is_transient() {
            Code::IntegrationUnavailable
        } else {
            Code::ServerUnstartable
        };
        let cause = self.spec.redact(&error.to_string());
        let failure = self.spec.failure(code, cause);
        match error {
            SpawnError::Limit { .. } | SpawnError::TryLater { .. } => NotStarted::NotNow(failure),
            _ => NotStarted::Failed(failure),
        }
    }

    fn unstartable(&self, why: String) -> Failure {
        self.spec.failure(Code::ServerUnstartable, why)
    }

    /// Begins a session with a server behind a URL.
    fn connected(
        &self,
        url: &str,
        headers: &BTreeMap<String, EntryValue>,
        spoken: Spoken,
        rules: &ConnectionRules,
    ) -> Result<(SpawnedServer, Faults), Failure> {
        let headers = self.spec.context.parts.secrets.resolve(headers);
        let reached = RemoteAccess {
            url,
            headers: headers.map_err(|error| self.unstartable(error.to_string()))?,
            spoken,
            rules,
            authorizer: match &self.account {
                Some(account) => account.clone(),
                None => Arc::new(Anonymous),
            },
            max_frame: self.spec.context.parts.max_frame,
            silence: self.spec.limits.total,
        };
        remote::connect(reached).map_err(|error| self.unstartable(format!("{error:#}")))
    }

    /// The process to start.
    fn launch_spec(&self, command: &StdioCommand) -> Result<LaunchSpec, Failure> {
        if command.jail.is_some() {
            let session = session_id()
                .map_err(|error| self.unstartable(format!("no session id: {error}")))?;
            return Ok(LaunchSpec::Jailed(JailConfig {
                session,
                server: self.spec.id.to_string(),
                digest: self.spec.digest.load().to_string(),
            }));
        }
        let arguments = match &command.ssh {
            None => command.args.clone(),
            Some(target) => {
                let owner = ssh::key_owner(target, self.person)
                    .map_err(|error| self.unstartable(format!("{error:#}")))?;
                target.arguments(owner.as_deref())
            }
        };
        let environment = match self.spec.context.parts.secrets.resolve(&command.env) {
            Ok(environment) => environment,
            Err(error) => return Err(self.unstartable(error.to_string())),
        };
        Ok(LaunchSpec::Host {
            server: self.spec.id.to_string(),
            program: command.program.clone(),
            arguments,
            environment,
            directory: command.cwd.clone(),
            stdin: Stdin::Pipe,
        })
    }
}

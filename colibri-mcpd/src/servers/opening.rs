//! A caller's way to a process of a server: the one that runs, or one that is started for all that
//! wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{info, warn};

use super::elicitation::open_elicitations::ElicitationRights;
use super::handshake;
use super::launch::{Launch, NotStarted};
use super::retry::Discovery;
use super::server::HostedServer;
use super::session::ServerSession;
use super::slots::{ProcessSlot, Slots, StartResult};
use super::state::ProcessKey;
use crate::relay::Client;
use colibri_policy::Caller;
use colibri_protocol::{Askable, Code, Failure, FailureCause};

impl HostedServer {
    /// The process for these callers, started if need be for this client.
    ///
    /// # Errors
    /// Why there is none: the server is blocked, left alone for a while, or could not be started.
    pub(super) async fn open(
        self: &Arc<Self>,
        key: ProcessKey,
        client: &Arc<Client>,
    ) -> StartResult {
        let (sender, receiver) = oneshot::channel();
        {
            let mut inner = self.inner();
            if let Some(reason) = &inner.blocked {
                return Err(self.blocked(reason).into());
            }
            if inner.retired {
                return Err(self.unavailable("it was removed from the registry").into());
            }
            match inner.slots.get_mut(&key) {
                Some(ProcessSlot::Ready(session)) if session.is_open() => {
                    return Ok(session.clone());
                }
                Some(ProcessSlot::Starting { waiting, .. }) => waiting.push(sender),
                _ => {
                    if let Some(health) = inner
                        .health
                        .get(&key.uid())
                        .filter(|health| health.is_backing_off())
                    {
                        return Err(self.unavailable(health.left_alone()).into());
                    }
                    self.begin(&mut inner, key, client, vec![sender]);
                }
            }
        }
        let given_up = |_| Err(self.unavailable("starting it was given up").into());
        receiver.await.unwrap_or_else(given_up)
    }

    /// Starts a process so that its tools become known, unless one is being started, or starting it
    /// failed not long ago. Until when it is worth waiting for: the first time alone.
    pub fn discover(self: &Arc<Self>, client: &Arc<Client>) -> Option<Instant> {
        if self.offer.is_in_table() {
            return None;
        }
        let mut inner = self.inner();
        if inner.wants_discovery(self.holder(&client.caller))? {
            let key = self.key(&client.caller, client.session.owner());
            self.begin(&mut inner, key, client, Vec::new());
        }
        inner.discovery.worth_waiting()
    }

    /// The user to whom a caller's failures are charged.
    pub(super) fn holder(&self, caller: &Caller) -> Option<u32> {
        ProcessKey::holder(self.spec.isolation, caller.uid)
    }

    /// Begins to start a process.
    fn begin(
        self: &Arc<Self>,
        inner: &mut Slots,
        key: ProcessKey,
        client: &Arc<Client>,
        waiting: Vec<oneshot::Sender<StartResult>>,
    ) {
        // It takes the lock when it is done, so it cannot be done before its slot is there.
        let task = tokio::spawn(self.clone().start(key, client.clone())).abort_handle();
        let slot = ProcessSlot::Starting {
            waiting,
            task,
            has_begun: false,
        };
        inner.slots.insert(key, slot);
        inner.discovery.begin();
    }

    async fn start(self: Arc<Self>, key: ProcessKey, client: Arc<Client>) {
        let result = match self.turn(key, &client).await {
            Ok(()) => self.process(key, client).await,
            Err(failure) => Err(NotStarted::NotNow(failure)),
        };
        // Whoever subscribes once the process can be found has missed nothing.
        let subscribers = self.subscriptions.all(key);
        let waiting = {
            let mut inner = self.inner();
            let waiting = match inner.slots.remove(&key) {
                Some(ProcessSlot::Starting { waiting, .. }) => waiting,
                Some(ProcessSlot::Ready(_)) | None => Vec::new(),
            };
            match &result {
                Ok(session) if session.is_open() => {
                    if key.uid().is_none() {
                        session.is_shared();
                    }
                    inner.discovery = Discovery::default();
                    inner.slots.insert(key, ProcessSlot::Ready(session.clone()));
                }
                // It ended right after its handshake.
                Ok(_) => {}
                Err(NotStarted::NotNow(failure)) => {
                    info!(
                        server = &*self.spec.id,
                        "could not be started now: {}", failure.message
                    );
                }
                Err(NotStarted::Failed(failure)) => {
                    warn!(
                        server = &*self.spec.id,
                        "could not be started: {}", failure.message
                    );
                    let health = inner.health.entry(key.uid()).or_default();
                    health.failed(&failure.message, None, FailureCause::Ours(failure.code));
                    inner.discovery.failed();
                    self.ailing.store(true, Ordering::Release);
                }
            }
            if let Ok(session) = &result {
                let nobodys = matches!(key, ProcessKey::Call(..)) && waiting.is_empty();
                match inner.ended {
                    Some(reason) => session.end(reason),
                    None if inner.retired || nobodys => session.drain(),
                    None => {}
                }
            }
            waiting
        };
        self.freed.notify_waiters();
        self.note_state();
        match &result {
            Ok(session) => {
                self.read_lists(session.clone());
                self.resume_telling(key, session, subscribers);
            }
            Err(_) => self.spec.context.learned(false),
        }
        let opened = result.map_err(|error| {
            error.saying(|why| format!("{} was not started: {why}", self.spec.id))
        });
        for waiting in waiting {
            // Who does not wait any more needs no answer.
            let _ = waiting.send(opened.clone());
        }
    }

    /// Waits until it is the turn of a user to have another process: the helper, which bounds the
    /// processes of jailed servers and their starts, does not know for whom they are.
    async fn turn(&self, key: ProcessKey, client: &Client) -> Result<(), Failure> {
        let Some(uid) = key.uid().filter(|_| self.spec.entry.is_jailed()) else {
            return Ok(());
        };
        let limits = self.spec.context.shares().limits();
        // An agent has starts of its own, and leaves a process to the person for whom it runs.
        let agents = client.share().filter(|_| client.door.is_some()).cloned();
        let most = match &agents {
            Some(_) => limits.processes_per_user.saturating_sub(1).max(1),
            None => limits.processes_per_user,
        };
        let share = agents.unwrap_or_else(|| self.spec.context.shares().of(uid));
        let until = Instant::now() + self.spec.limits.start;
        loop {
            let freed = self.freed.notified();
            let begun = self.inner().begin(uid, key, most);
            let (until_then, limit, key) = match begun.map(|()| share.start()) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(wait)) => {
                    let (most, key) = (limits.starts_per_user, "starts_per_user");
                    let limit = format!(
                        "the calls of this user have started {most} jailed servers in a minute (limits.{key})"
                    );
                    (Instant::now() + wait, limit, key)
                }
                Err(running) => {
                    let limit = format!(
                        "this user has {running} processes of it (limits.processes_per_user)"
                    );
                    (until, limit, "processes_per_user")
                }
            };
            let is_over = tokio::select! {
                () = freed => false,
                () = tokio::time::sleep_until(until_then.min(until)) => Instant::now() >= until,
            };
            if is_over {
                let message = format!("its turn did not come within its start limit: {limit}");
                let rule = self.spec.chain().rules.clients.load().limit_place(key);
                return Err(Failure::new(Code::LimitUser, message)
                    .of_server(&*self.spec.id)
                    .by_rule(rule));
            }
        }
    }

    /// A process that was opened and asked for its tools: one whose definitions were not judged is
    /// given to nobody.
    async fn process(
        self: &Arc<Self>,
        key: ProcessKey,
        client: Arc<Client>,
    ) -> Result<Arc<ServerSession>, NotStarted> {
        let launch = Launch {
            spec: self.spec.clone(),
            allowance: self
                .inner()
                .allowances
                .entry(key.uid())
                .or_default()
                .clone(),
            may_ask: ElicitationRights {
                what: match key {
                    ProcessKey::All => Askable::NOTHING,
                    _ => self.may_ask(),
                },
                in_answer: self.may_ask(),
                one_client: key.connection().is_some(),
                is_exposed: self.spec.entry.prefix,
            },
            account: self.account(client.caller.uid),
            person: key.uid(),
            client,
            observer: self.observer(key),
            make_place: Box::new({
                let server = self.clone();
                move || server.make_place(key)
            }),
            waits_for: Mutex::default(),
        };
        let work = async {
            let (opening, said) = handshake::start(&launch, &self.offer.catalogue()).await?;
            self.offer.learned(&opening.session, said).await?;
            Ok(opening.keep())
        };
        launch.in_time(work).await
    }
}

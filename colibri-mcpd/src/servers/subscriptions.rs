//! Subscriptions to resources: who is told of updates, and by which process.
//!
//! A process is subscribed to a resource once, however many clients are, and to nothing that nobody
//! wants any more. What is wanted of it belongs to whom its calls are of, not to the process:
//! another one in its place is subscribed again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::process_subscriptions::as_error;
use super::server::HostedServer;
use super::session::ServerSession;
use super::state::ProcessKey;
use super::subscribers::{Subscriber, Teller};
use crate::relay::{Call, CallOutcome, SubscriptionGuard, SuspendedCall, Upstream};
use colibri_protocol::rpc_error::INTERNAL_ERROR;
use colibri_protocol::subscription::{SubscriptionFilter, URI_LIMIT, URIS_LIMIT, updated_edits};
use colibri_protocol::upstream::{self, Capabilities};
use colibri_protocol::{Code, Failure, Method, RpcError, empty_result};
use colibri_wire::Json;

/// The wait before a process is started again whose clients are subscribed, and its maximum.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// The reason for which there is no subscription.
pub enum SubscriptionRefusal {
    /// The server says so.
    ByServer(RpcError),
    /// There is no process, or it cannot.
    Failed(Failure),
}

impl ServerSession {
    /// The notifications that it is to send, as far as it declares that it does.
    fn told_of_itself(can: &Capabilities) -> SubscriptionFilter {
        SubscriptionFilter {
            tools: can.tools.tells_changes,
            prompts: can.prompts.tells_changes,
            resources: can.resources.tells_changes,
            uris: Vec::new(),
            tasks_told: Vec::new(),
        }
    }

    /// Subscribes to the list changes of a modern server. Nobody waits for it.
    pub(super) fn listen_first(&self) {
        let filter = ServerSession::told_of_itself(&self.says().can);
        if self.version().is_modern() && !filter.is_empty() {
            self.listen(filter);
        }
    }

    /// Subscribes to this at a modern server, in place of the subscription before.
    fn listen(
        &self,
        filter: SubscriptionFilter,
    ) -> Option<oneshot::Receiver<Result<SubscriptionFilter, RpcError>>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        let number = state.pending.reserve()?;
        self.push(&upstream::listen(number, &filter));
        state.pending.give_back(number);
        if let Some((before, _)) = state.watching.listening.replace((number, filter)) {
            // Only now: nothing is missed meanwhile.
            self.push(&upstream::cancelled(
                before,
                "another subscription takes its place",
            ));
        }
        state.watching.acknowledged = Some(sender);
        Some(receiver)
    }

    /// The server says what it honours.
    pub(super) fn acknowledged(&self, number: u64, honoured: SubscriptionFilter) {
        let mut state = self.state();
        let watching = &mut state.watching;
        if watching
            .listening
            .as_ref()
            .is_some_and(|(of, _)| *of == number)
            && let Some(waiting) = watching.acknowledged.take()
        {
            let _ = waiting.send(Ok(honoured));
        }
    }
}

impl HostedServer {
    /// It is the one that tells now. What was subscribed to is subscribed to again.
    pub fn tells(self: &Arc<Self>) {
        let server: Weak<HostedServer> = Arc::downgrade(self);
        let keys = self.subscriptions.belong_to(server);
        for key in keys {
            self.tell_again(key);
        }
    }

    /// Subscribes somebody to a resource of the server, by its own URI, at the process that answers
    /// these calls.
    ///
    /// # Errors
    /// Why not.
    pub async fn subscribe(
        self: &Arc<Self>,
        key: ProcessKey,
        uri: &str,
        subscriber: Arc<Subscriber>,
    ) -> Result<SubscriptionGuard, SubscriptionRefusal> {
        let cannot = |why: &str, rule: &str| {
            let failure = Failure::new(Code::NotSupportedYet, format!("{} {why}", self.spec.id))
                .of_server(&*self.spec.id)
                .by_rule(rule);
            Err(SubscriptionRefusal::Failed(
                failure.advising("read the resource again when it is needed"),
            ))
        };
        if matches!(key, ProcessKey::Call(..)) {
            return cannot(
                "has a process for each call (isolation), so there is none that could tell of updates",
                &self.spec.entry.isolation_place.to_string(),
            );
        }
        let opened = self.open(key, &subscriber.client).await;
        let session = opened.map_err(|error| SubscriptionRefusal::Failed(error.failure()))?;
        if !session.says().can.subscribe {
            return cannot(
                "does not tell of updates of its resources (resources.subscribe)",
                "capabilities.resources.subscribe",
            );
        }
        let subscription = self.subscriptions.subscribe(key, uri, subscriber);
        let mut refused = self.bring_in_line(key, &session).await;
        match refused.remove(uri) {
            None => Ok(subscription),
            Some(why) => Err(why),
        }
    }

    /// Has a process subscribed to what is wanted of it, and to nothing else: what of it is
    /// refused.
    async fn bring_in_line(
        &self,
        key: ProcessKey,
        session: &Arc<ServerSession>,
    ) -> BTreeMap<Box<str>, SubscriptionRefusal> {
        let changing = self.subscriptions.changing(key);
        let one_at_a_time = changing.lock().await;
        let wanted = self.subscriptions.uris(key);
        let have = session.state().watching.uris.clone();
        let refused = if session.version().is_modern() {
            self.listen_to(session, wanted).await
        } else {
            self.ask_for(session, &wanted, &have).await
        };
        drop(one_at_a_time);
        self.subscriptions.changed(key, changing);
        refused
    }

    async fn ask_for(
        &self,
        session: &Arc<ServerSession>,
        wanted: &BTreeSet<Box<str>>,
        have: &BTreeSet<Box<str>>,
    ) -> BTreeMap<Box<str>, SubscriptionRefusal> {
        for uri in have.difference(wanted) {
            session.state().watching.uris.remove(uri);
            session.ask_without_answer(|number| {
                upstream::subscribe(number, Method::ResourcesUnsubscribe, uri)
            });
        }
        let mut refused = BTreeMap::new();
        for uri in wanted.difference(have) {
            let ask = |number| upstream::subscribe(number, Method::ResourcesSubscribe, uri);
            // From now on: an update may come before the answer, and is not idle either.
            session.state().watching.uris.insert(uri.clone());
            let why = match session
                .ask(ask, self.spec.limits.call, Code::TimeoutCall)
                .await
            {
                Ok(answered) => match answered.outcome() {
                    Ok(_) => continue,
                    Err(error) => SubscriptionRefusal::ByServer(
                        error.map_or_else(|| RpcError::new(INTERNAL_ERROR, ""), as_error),
                    ),
                },
                Err(failure) => SubscriptionRefusal::Failed(failure),
            };
            session.state().watching.uris.remove(uri);
            refused.insert(uri.clone(), why);
        }
        refused
    }

    async fn listen_to(
        &self,
        session: &Arc<ServerSession>,
        wanted: BTreeSet<Box<str>>,
    ) -> BTreeMap<Box<str>, SubscriptionRefusal> {
        let filter = SubscriptionFilter {
            uris: wanted.iter().map(|uri| uri.to_string()).collect(),
            ..ServerSession::told_of_itself(&session.says().can)
        };
        let is_same = {
            let state = session.state();
            let before = state.watching.listening.as_ref();
            before.map_or(filter.is_empty(), |(_, before)| *before == filter)
                && state.watching.uris == wanted
        };
        if is_same {
            return BTreeMap::new();
        }
        let unavailable = |why: &str| {
            let failure = Failure::new(
                Code::IntegrationUnavailable,
                format!("{}: {why}", self.spec.id),
            );
            failure.of_server(&*self.spec.id)
        };
        let acknowledged = match session.listen(filter) {
            Some(acknowledged) => timeout(self.spec.limits.call, acknowledged)
                .await
                .map(Result::ok),
            None => Ok(None),
        };
        let (honoured, why) = match acknowledged {
            Ok(Some(Ok(honoured))) => (honoured.uris, None),
            Ok(Some(Err(error))) => (Vec::new(), Some(SubscriptionRefusal::ByServer(error))),
            Ok(None) => (
                Vec::new(),
                Some(SubscriptionRefusal::Failed(unavailable(
                    "its process ended",
                ))),
            ),
            Err(_) => {
                let why = "it did not acknowledge the subscription in time";
                (
                    Vec::new(),
                    Some(SubscriptionRefusal::Failed(unavailable(why))),
                )
            }
        };
        let honoured: BTreeSet<Box<str>> =
            honoured.into_iter().map(String::into_boxed_str).collect();
        let refused = wanted.difference(&honoured).map(|uri| {
            let refused = match &why {
                Some(SubscriptionRefusal::ByServer(error)) => {
                    SubscriptionRefusal::ByServer(error.clone())
                }
                Some(SubscriptionRefusal::Failed(failure)) => {
                    SubscriptionRefusal::Failed(failure.clone())
                }
                None => SubscriptionRefusal::Failed(unavailable(
                    "it does not honour a subscription to this resource",
                )),
            };
            (uri.clone(), refused)
        });
        let refused = refused.collect();
        session.state().watching.uris = wanted.intersection(&honoured).cloned().collect();
        refused
    }

    /// A process is there: it is subscribed to what these wanted of the one before it, of whose
    /// resources nobody knows what became meanwhile.
    pub(super) fn resume_telling(
        self: &Arc<Self>,
        key: ProcessKey,
        session: &Arc<ServerSession>,
        subscribers: Vec<Arc<Subscriber>>,
    ) {
        if subscribers.is_empty() {
            return;
        }
        let (server, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            for (uri, _) in server.bring_in_line(key, &session).await {
                warn!(
                    server = &*server.spec.id,
                    uri = &*uri,
                    "could not be subscribed to again"
                );
            }
            // Clients decide how many there are: each is looked up, not searched for.
            let before: HashSet<_> = subscribers.iter().map(Arc::as_ptr).collect();
            let still = server.subscriptions.all(key);
            let still = still
                .iter()
                .filter(|subscriber| before.contains(&Arc::as_ptr(subscriber)));
            still.for_each(|subscriber| subscriber.tell(None));
        });
    }

    /// A process is gone that somebody is subscribed at: another one is started.
    pub(super) fn tell_again(self: &Arc<Self>, key: ProcessKey) {
        if self.subscriptions.uris(key).is_empty() {
            return;
        }
        let server = self.clone();
        tokio::spawn(async move {
            let (mut wait, most) = AGAIN;
            loop {
                sleep(wait).await;
                let Some(subscriber) = server.subscriptions.all(key).first().cloned() else {
                    return;
                };
                if server.is_over() || server.open(key, &subscriber.client).await.is_ok() {
                    return;
                }
                wait = (wait * 2).min(most);
            }
        });
    }

    /// The server ended what it tells: it is asked for it again.
    pub(super) fn listen_again(self: &Arc<Self>, key: ProcessKey, session: &Arc<ServerSession>) {
        let (server, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            // One that ends it at once each time is not asked without end.
            sleep(Duration::from_secs(5)).await;
            if session.is_open() {
                drop(server.bring_in_line(key, &session).await);
            }
        });
    }

    /// Notifies the subscribers of a resource of its update.
    pub(super) fn updated(&self, key: ProcessKey, frame: &Bytes, params: Json<'_>, own: &str) {
        for subscriber in self.subscriptions.concerned(key, own) {
            // Who sees the server alone knows its own URIs.
            let prefix = self.prefix().filter(|_| subscriber.is_prefixed);
            let edits = updated_edits(params, prefix, subscriber.subscription.as_deref());
            subscriber.tell(Some((frame, &edits)));
        }
    }

    /// Answers a legacy client's `resources/subscribe` or `resources/unsubscribe`.
    pub(super) fn subscription(self: &Arc<Self>, call: Box<Call>) {
        let chain = self.spec.context.parts.chain.clone();
        let session = call.client.session.clone();
        let shown = call
            .parts
            .name
            .clone()
            .and_then(|at| Json::part(&call.frame, at));
        let shown = shown
            .and_then(|uri| Some(uri.as_str()?.into_owned()))
            .unwrap_or_default();
        let version = call.version;
        let done = move || CallOutcome::result(empty_result(version));
        if call.method == Some(Method::ResourcesUnsubscribe) {
            return chain.finish(vec![(call, done())]);
        }
        if shown.len() > URI_LIMIT || session.subscribed() >= URIS_LIMIT {
            let why = format!(
                "a client can subscribe to {URIS_LIMIT} resources, whose URIs have {URI_LIMIT} bytes"
            );
            return chain.finish(vec![(
                call,
                CallOutcome::error(RpcError::invalid_params(why)),
            )]);
        }
        let own = call
            .target
            .description()
            .own_name
            .as_deref()
            .map_or_else(|| shown.clone(), str::to_owned);
        let key = self.key(&call.client.caller, session.owner());
        let Some(subscriber) = Subscriber::of_session(call.client.clone(), (&shown, shown != own))
        else {
            let failure = Failure::new(
                Code::DaemonBusy,
                "the daemon has no room for another subscription",
            );
            return chain.finish(vec![(call, CallOutcome::Failed(failure))]);
        };
        let held = SuspendedCall::hold(&chain, call);
        let server = self.clone();
        tokio::spawn(async move {
            let subscribed = server.subscribe(key, &own, subscriber).await;
            let Some(call) = held.take() else {
                return debug!(
                    server = &*server.spec.id,
                    "a subscription was cancelled before it was there"
                );
            };
            let outcome = match subscribed {
                Ok(lasting) => {
                    session.subscribe(shown, lasting);
                    done()
                }
                Err(SubscriptionRefusal::ByServer(error)) => CallOutcome::error(error),
                Err(SubscriptionRefusal::Failed(failure)) => CallOutcome::Failed(failure),
            };
            chain.finish(vec![(call, outcome)]);
        });
    }
}

impl Teller for HostedServer {
    fn wants_less(self: Arc<Self>, key: ProcessKey) {
        // Whoever drops the last one may be anywhere.
        if let (Some(session), Ok(runtime)) = (self.ready(key), Handle::try_current()) {
            runtime.spawn(async move { drop(self.bring_in_line(key, &session).await) });
        }
    }
}

//! `subscriptions/listen`: what a modern client is told without asking.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::catalog::LookupKey;
use crate::daemon::Daemon;
use crate::relay::{Call, CallTarget, Chain, Client, SubscriptionGuard, SuspendedCall};
use crate::servers::{HostedServer, ServerSession, Subscriber};
use colibri_policy::{CallDecision, RuleVerdict, SuspensionFacts, TargetFacts};
use colibri_protocol::Feature;
use colibri_protocol::logging::Level;
use colibri_protocol::subscription::{SubscriptionFilter, acknowledged};
use colibri_protocol::tasks::is_declared;
use colibri_protocol::uri;
use colibri_wire::{Json, RequestId};

/// A resource that a client wants to be told of.
struct ResourceSubscription {
    /// The URI by which the client knows it.
    shown: String,
    server: Arc<HostedServer>,
    /// The server's own URI of it.
    own: String,
}

/// Begins to tell a client what it wants to hear. Whose a URI is that names no server is known when
/// all were seen.
pub(super) fn start(
    daemon: &Arc<Daemon>,
    chain: &Arc<Chain>,
    call: Box<Call>,
    id: &RequestId,
    filter: &SubscriptionFilter,
) {
    let awaited = match filter.uris.iter().any(|uri| uri::original(uri).is_none()) {
        true => daemon.discover(&call),
        false => Vec::new(),
    };
    if awaited.is_empty() {
        return begin(daemon, chain, call, id, filter);
    }
    let (daemon, chain, id, filter) = (daemon.clone(), chain.clone(), id.clone(), filter.clone());
    tokio::spawn(async move {
        daemon.host.discovered(awaited).await;
        begin(&daemon, &chain, call, &id, &filter);
    });
}

/// Acknowledges the subscription, and keeps the call open: every list, and the resources of servers
/// that it may read and whose server takes the subscription.
fn begin(
    daemon: &Arc<Daemon>,
    chain: &Arc<Chain>,
    call: Box<Call>,
    id: &RequestId,
    filter: &SubscriptionFilter,
) {
    let asked = resources(daemon, chain, &call, filter);
    let tasks = tasks(daemon, &call, filter);
    let (client, text, log_level) = (
        call.client.clone(),
        Box::<str>::from(call.id_text()),
        call.log_level(),
    );
    let lists = SubscriptionFilter {
        uris: Vec::new(),
        tasks_told: Vec::new(),
        ..filter.clone()
    };
    let held = SuspendedCall::hold(chain, call);
    daemon.connections.hold(&client, &held);
    let listen = Listen {
        client,
        id: id.clone(),
        text,
        log_level,
        held,
    };
    if asked.is_empty() && tasks.is_empty() {
        listen.take_place(lists, Vec::new());
    } else {
        tokio::spawn(subscribe(listen, lists, (asked, tasks)));
    }
}

/// A subscription that is to be.
struct Listen {
    client: Arc<Client>,
    id: RequestId,
    /// The id as it is written.
    text: Box<str>,
    /// The least level of the log messages that it wants.
    log_level: Option<Level>,
    held: Arc<SuspendedCall>,
}

impl Listen {
    /// It is acknowledged and there, unless it has ended already: the end is the last that is told
    /// of it.
    fn take_place(self, honoured: SubscriptionFilter, lasting: Vec<SubscriptionGuard>) -> bool {
        self.held.while_held(|| {
            self.client
                .outbox
                .push(&acknowledged(&self.text, &honoured));
            self.client
                .listens(self.id, self.text, (honoured, self.log_level), lasting);
        })
    }
}

async fn subscribe(
    listen: Listen,
    mut honoured: SubscriptionFilter,
    (asked, tasks): (Vec<ResourceSubscription>, Vec<ProcessTasks>),
) {
    let (client, text) = (listen.client.clone(), listen.text.clone());
    let mut waiting = JoinSet::new();
    for ResourceSubscription { shown, server, own } in asked {
        let subscriber = Subscriber::listening(&client, &text, (&shown, shown != own));
        let key = server.key(&client.caller, client.session.owner());
        waiting.spawn(async move {
            let lasting = server.subscribe(key, &own, subscriber.clone()).await.ok()?;
            Some((shown, subscriber, lasting))
        });
    }
    let mut listening = JoinSet::new();
    for ProcessTasks { process, ids } in tasks {
        let (client, text) = (client.clone(), text.clone());
        listening.spawn(async move {
            let own = ids.keys().cloned().collect();
            let (honoured, lasting) = process.listen_to_tasks(&client, &text, own).await?;
            let shown = honoured
                .iter()
                .filter_map(|own| ids.get(own).cloned())
                .collect::<Vec<_>>();
            Some((shown, lasting))
        });
    }
    let subscribed: Vec<_> = waiting.join_all().await.into_iter().flatten().collect();
    let (mut subscribers, mut lasting) = (Vec::new(), Vec::new());
    for (shown, subscriber, lasts) in subscribed {
        honoured.uris.push(shown);
        subscribers.push(subscriber);
        lasting.push(lasts);
    }
    for (shown, lasts) in listening.join_all().await.into_iter().flatten() {
        honoured.tasks_told.extend(shown);
        lasting.push(lasts);
    }
    honoured.tasks_told.sort_unstable();
    honoured.uris.sort_unstable();
    if listen.take_place(honoured, lasting) {
        subscribers.iter().for_each(|subscriber| subscriber.open());
    }
}

/// Tasks that one process has.
struct ProcessTasks {
    process: Arc<ServerSession>,
    /// The ids by which the client knows them, by the server's own.
    ids: BTreeMap<String, String>,
}

/// The tasks of a filter that are the client's, by the processes that have them. Who does not
/// declare the extension has none.
fn tasks(daemon: &Daemon, call: &Call, filter: &SubscriptionFilter) -> Vec<ProcessTasks> {
    let params = call
        .parts
        .params
        .clone()
        .and_then(|at| Json::part(&call.frame, at));
    let mut tasks: BTreeMap<u64, ProcessTasks> = BTreeMap::new();
    let rights = daemon.chain.rules.rights(&call.client);
    for shown in filter.tasks_told.iter().filter(|_| is_declared(params)) {
        if let Some((process, own)) = daemon
            .host
            .open_task(call.client.caller.uid, shown, &rights)
        {
            let of = tasks.entry(process.number).or_insert_with(|| ProcessTasks {
                process,
                ids: BTreeMap::new(),
            });
            of.ids.insert(own, shown.clone());
        }
    }
    tasks.into_values().collect()
}

/// The resources of a filter that the client may read, and that some server has.
fn resources(
    daemon: &Arc<Daemon>,
    chain: &Arc<Chain>,
    call: &Call,
    filter: &SubscriptionFilter,
) -> Vec<ResourceSubscription> {
    let rights = chain.rules.rights(&call.client);
    let servers = daemon.host.servers();
    let mut asked: Vec<ResourceSubscription> = Vec::new();
    for shown in &filter.uris {
        let wanted = match call.client.session.only() {
            Some(only) => LookupKey::Own(Feature::Resource, only.clone(), shown.clone()),
            None => LookupKey::Uri(Feature::Resource, shown.clone()),
        };
        let Ok(target) = daemon.host.find(wanted, &rights, call.version) else {
            continue;
        };
        let described = target.description();
        let Some(server) = servers.get(&*described.server) else {
            continue;
        };
        let own = own_uri(&target, shown);
        let facts = target.facts(call);
        let facts = TargetFacts {
            verdict: match &*facts.verdict {
                // Of a server that was never seen it is not known yet.
                RuleVerdict::Allow => {
                    Cow::Owned(server.spec.rules.judge(Feature::Resource, &own, b""))
                }
                RuleVerdict::Deny { .. } | RuleVerdict::Confirm { .. } => facts.verdict,
            },
            suspension: SuspensionFacts::Item(call.flow_of(described)),
            ..facts
        };
        // What a person has to confirm is not told of by the way: nobody is asked for a part of a
        // request.
        let decision = chain.decide_about(&rights, call, &target, facts);
        if !matches!(decision, CallDecision::Passes(_)) {
            continue;
        }
        if asked.iter().all(|other| other.shown != *shown) {
            asked.push(ResourceSubscription {
                shown: shown.clone(),
                server: server.clone(),
                own,
            });
        }
    }
    asked
}

/// The server's own URI of a resource. One of a server that was never seen stands in the URI that
/// the client knows.
fn own_uri(target: &CallTarget, shown: &str) -> String {
    let renamed = target.description().own_name.as_deref().map(str::to_owned);
    let written = || uri::original(shown).map(|(_, own)| own.into_owned());
    renamed.or_else(written).unwrap_or_else(|| shown.to_owned())
}

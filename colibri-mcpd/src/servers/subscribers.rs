//! The subscribers to updates of one server's resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::state::ProcessKey;
use crate::relay::{Client, SubscriptionGuard};
use colibri_peer::Outbox;
use colibri_protocol::subscription::{URI_LIMIT, updated};
use colibri_wire::Edits;

/// The number of notifications that a subscriber gets of one resource in this time as the server
/// sends them; later ones become one, when the time is over: it matters only that it was updated.
const PACE: (u32, Duration) = (16, Duration::from_millis(100));
/// The most parts of a URI that are looked at to find what it is a part of.
const MAX_PARENTS: usize = 64;
/// A server whose processes tell of updates.
pub(super) trait Teller: Send + Sync {
    /// Less is wanted of the process that gets these calls.
    fn wants_less(self: Arc<Self>, key: ProcessKey);
}

/// One who is told of updates of one resource.
pub struct Subscriber {
    /// The subscriber. Its subscriptions end with it.
    pub(super) client: Arc<Client>,
    outbox: Arc<Outbox>,
    /// The id of the `subscriptions/listen`, as it is written; none of a legacy client.
    pub(super) subscription: Option<Box<str>>,
    /// The URI by which the client knows it.
    shown: String,
    /// True if that is not the server's own.
    pub(super) is_prefixed: bool,
    /// Bytes that it has of the daemon's budget.
    held: usize,
    told: Mutex<SubscriberState>,
}

struct SubscriberState {
    /// Nothing may be told before the subscription was acknowledged.
    open: bool,
    since: Instant,
    count: u32,
    /// Something is to be told yet.
    owed: bool,
}

impl Subscriber {
    /// One who is told at once. `None`: the daemon has no room for another.
    pub(super) fn of_session(client: Arc<Client>, shown: (&str, bool)) -> Option<Arc<Subscriber>> {
        let outbox = client
            .session
            .stream()
            .unwrap_or_else(|| client.outbox.clone());
        // The URI stands here, with the session, and with the process.
        let held = 3 * shown.0.len() + size_of::<Subscriber>();
        let has_room = outbox.hold(held);
        has_room.then(|| Subscriber::new((client, outbox), None, shown, (true, held)))
    }

    /// One who listens, and is told nothing before [`Subscriber::open`]. Its request is in the
    /// budget.
    pub fn listening(
        client: &Arc<Client>,
        subscription: &str,
        shown: (&str, bool),
    ) -> Arc<Subscriber> {
        let to = (client.clone(), client.outbox.clone());
        Subscriber::new(to, Some(subscription.into()), shown, (false, 0))
    }

    fn new(
        (client, outbox): (Arc<Client>, Arc<Outbox>),
        subscription: Option<Box<str>>,
        (shown, is_prefixed): (&str, bool),
        (open, held): (bool, usize),
    ) -> Arc<Subscriber> {
        Arc::new(Subscriber {
            client,
            outbox,
            subscription,
            shown: shown.to_owned(),
            is_prefixed,
            held,
            told: Mutex::new(SubscriberState {
                open,
                since: Instant::now(),
                count: 0,
                owed: false,
            }),
        })
    }

    /// The subscription was acknowledged.
    pub fn open(&self) {
        let mut told = self.told.lock();
        told.open = true;
        if std::mem::take(&mut told.owed) {
            self.say();
        }
    }

    fn say(&self) {
        self.outbox
            .push(&updated(&self.shown, self.subscription.as_deref()));
    }

    /// Notifies of an update in the server's own words, with these edits.
    pub(super) fn tell(self: &Arc<Self>, words: Option<(&Bytes, &Edits)>) {
        let mut told = self.told.lock();
        if !told.open {
            told.owed = true;
            return;
        }
        let (most, time) = PACE;
        if told.since.elapsed() >= time {
            (told.since, told.count) = (Instant::now(), 0);
        }
        told.count = told.count.saturating_add(1);
        if told.count <= most {
            match words {
                Some((frame, edits)) => drop(self.outbox.push_edited(frame, edits)),
                None => self.say(),
            }
            return;
        }
        if !std::mem::replace(&mut told.owed, true) {
            let (subscriber, until) = (Arc::downgrade(self), told.since + time);
            tokio::spawn(async move {
                tokio::time::sleep_until(until).await;
                if let Some(subscriber) = subscriber.upgrade() {
                    subscriber.told.lock().owed = false;
                    subscriber.say();
                }
            });
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.outbox.let_go(self.held);
    }
}

/// Whoever is subscribed to something of one server.
pub(super) struct Subscriptions {
    /// The server, as the registry has it now.
    server: Mutex<Option<Weak<dyn Teller>>>,
    wanted: Mutex<BTreeMap<ProcessKey, DesiredSubscriptions>>,
}

/// The subscriptions that are wanted of one process, whichever it is.
#[derive(Default)]
struct DesiredSubscriptions {
    uris: BTreeMap<Box<str>, Vec<Arc<Subscriber>>>,
    /// Locked while a process is brought in line with that.
    changing: Arc<tokio::sync::Mutex<()>>,
}

impl Subscriptions {
    pub(super) fn new() -> Arc<Subscriptions> {
        Arc::new(Subscriptions {
            server: Mutex::new(None),
            wanted: Mutex::default(),
        })
    }

    /// This is the server now: the processes that something is wanted of.
    pub(super) fn belong_to(&self, server: Weak<dyn Teller>) -> Vec<ProcessKey> {
        *self.server.lock() = Some(server);
        self.wanted.lock().keys().copied().collect()
    }

    /// Subscribes somebody, for as long as it is kept.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        key: ProcessKey,
        uri: &str,
        subscriber: Arc<Subscriber>,
    ) -> SubscriptionGuard {
        self.add(key, uri, &subscriber);
        Box::new(Subscription {
            subscriptions: self.clone(),
            key,
            uri: uri.into(),
            subscriber,
        })
    }

    /// The lock that is held while the process of these calls is brought in line.
    pub(super) fn changing(&self, key: ProcessKey) -> Arc<tokio::sync::Mutex<()>> {
        self.wanted.lock().entry(key).or_default().changing.clone()
    }

    /// Nobody brings it in line any more.
    pub(super) fn changed(&self, key: ProcessKey, changing: Arc<tokio::sync::Mutex<()>>) {
        let mut wanted = self.wanted.lock();
        drop(changing);
        let is_over =
            |of: &DesiredSubscriptions| of.uris.is_empty() && Arc::strong_count(&of.changing) == 1;
        if wanted.get(&key).is_some_and(is_over) {
            wanted.remove(&key);
        }
    }

    /// Whoever is subscribed to something of it.
    pub(super) fn all(&self, key: ProcessKey) -> Vec<Arc<Subscriber>> {
        let wanted = self.wanted.lock();
        let subscribers = wanted
            .get(&key)
            .into_iter()
            .flat_map(|of| of.uris.values().flatten());
        subscribers.cloned().collect()
    }

    fn add(&self, key: ProcessKey, uri: &str, subscriber: &Arc<Subscriber>) {
        let mut wanted = self.wanted.lock();
        let uris = &mut wanted.entry(key).or_default().uris;
        uris.entry(uri.into()).or_default().push(subscriber.clone());
    }

    fn remove(&self, key: ProcessKey, uri: &str, subscriber: &Arc<Subscriber>) {
        let mut wanted = self.wanted.lock();
        let Some(of) = wanted.get_mut(&key) else {
            return;
        };
        if let Some(subscribers) = of.uris.get_mut(uri) {
            subscribers.retain(|other| !Arc::ptr_eq(other, subscriber));
            if subscribers.is_empty() {
                of.uris.remove(uri);
            }
        }
        // Who brings its process in line holds it.
        if of.uris.is_empty() && Arc::strong_count(&of.changing) == 1 {
            wanted.remove(&key);
        }
    }

    pub(super) fn uris(&self, key: ProcessKey) -> BTreeSet<Box<str>> {
        let wanted = self.wanted.lock();
        wanted
            .get(&key)
            .map(|of| of.uris.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// The subscribers to be notified of this update: those of the resource, or of one that it is a
    /// part of (2025-11-25, schema.ts, `ResourceUpdatedNotification`: "This might be a sub-resource
    /// of the one that the client actually subscribed to").
    pub(super) fn concerned(&self, key: ProcessKey, updated: &str) -> Vec<Arc<Subscriber>> {
        let wanted = self.wanted.lock();
        let Some(of) = wanted.get(&key).filter(|_| updated.len() <= URI_LIMIT) else {
            return Vec::new();
        };
        let ends = updated.match_indices(['/', '?', '#']).take(MAX_PARENTS);
        let parents = ends.flat_map(|(at, end)| {
            let inclusive = (end == "/").then_some(&updated[..=at]);
            [Some(&updated[..at]), inclusive]
        });
        let names: BTreeSet<&str> = parents.flatten().chain([updated]).collect();
        let found = names.into_iter().filter_map(|name| of.uris.get(name));
        found.flatten().cloned().collect()
    }
}

/// A subscription of one client, for as long as it is kept.
struct Subscription {
    subscriptions: Arc<Subscriptions>,
    key: ProcessKey,
    uri: Box<str>,
    subscriber: Arc<Subscriber>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.subscriptions
            .remove(self.key, &self.uri, &self.subscriber);
        let server = self
            .subscriptions
            .server
            .lock()
            .as_ref()
            .and_then(Weak::upgrade);
        if let Some(server) = server {
            server.wants_less(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lost(Mutex<Vec<ProcessKey>>);

    impl Teller for Lost {
        fn wants_less(self: Arc<Self>, key: ProcessKey) {
            self.0.lock().push(key);
        }
    }

    #[test]
    fn an_update_concerns_a_resource_and_what_it_is_part_of() {
        for (subscribed, updated, concerned) in [
            ("file:///a", "file:///a", true),
            ("file:///a", "file:///a/b", true),
            ("file:///a/", "file:///a/b", true),
            ("file:///a", "file:///a#x", true),
            ("file:///a", "file:///a?x", true),
            ("file:///a", "file:///ab", false),
            ("file:///a/b", "file:///a", false),
            ("", "file:///a", false),
        ] {
            let (subscriptions, key) = (Subscriptions::new(), ProcessKey::Uid(1));
            let subscriber = Subscriber::listening(&Client::unread(9), "1", (subscribed, false));
            let _subscription = subscriptions.subscribe(key, subscribed, subscriber);
            let found = subscriptions.concerned(key, updated).len();
            assert_eq!(found == 1, concerned, "{subscribed} {updated}");
        }
    }

    #[test]
    fn who_is_subscribed_is_told_of_it_and_of_its_parts_until_it_leaves() {
        let (subscriptions, key) = (Subscriptions::new(), ProcessKey::Uid(1));
        let lost = Arc::new(Lost(Mutex::default()));
        let server: Weak<Lost> = Arc::downgrade(&lost);
        assert!(subscriptions.belong_to(server).is_empty());
        let client = Client::unread(9);
        let subscribe = |uri: &str| {
            let subscriber = Subscriber::listening(&client, "1", (uri, false));
            subscriptions.subscribe(key, uri, subscriber)
        };
        let (first, second, other) = (subscribe("f:/a"), subscribe("f:/a"), subscribe("f:/b/"));
        let concerned = |uri: &str| subscriptions.concerned(key, uri).len();
        for (uri, count) in [
            ("f:/a", 2),
            ("f:/a/x/y", 2),
            ("f:/a?x", 2),
            ("f:/a#x", 2),
            ("f:/ab", 0),
            ("f:/b", 0),
            ("f:/b/c", 1),
            ("", 0),
        ] {
            assert_eq!(concerned(uri), count, "{uri}");
        }
        assert_eq!(concerned(&"/".repeat(URI_LIMIT + 1)), 0);
        assert_eq!(subscriptions.concerned(ProcessKey::Uid(2), "f:/a").len(), 0);
        assert_eq!(subscriptions.uris(key).len(), 2);
        drop(first);
        assert_eq!(concerned("f:/a"), 1);
        drop((second, other));
        assert_eq!((concerned("f:/a"), subscriptions.uris(key).len()), (0, 0));
        assert_eq!(*lost.0.lock(), [key; 3]);
        assert!(
            subscriptions.wanted.lock().is_empty(),
            "nothing is kept of who is gone"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_told_now_and_then_and_at_last() {
        let client = Client::unread(9);
        let subscriber = Subscriber::of_session(client.clone(), ("f:a", false)).unwrap();
        let before = client.outbox.queued();
        for _ in 0..1_000 {
            subscriber.tell(None);
        }
        let one = updated("f:a", None).len() + 1;
        assert_eq!(client.outbox.queued() - before, PACE.0 as usize * one);
        tokio::time::sleep(2 * PACE.1).await;
        assert_eq!(client.outbox.queued() - before, (PACE.0 as usize + 1) * one);
        subscriber.tell(None);
        assert_eq!(client.outbox.queued() - before, (PACE.0 as usize + 2) * one);
    }

    #[test]
    fn who_listens_is_told_nothing_before_it_was_acknowledged() {
        let client = Client::unread(9);
        let subscriber = Subscriber::listening(&client, "\"s\"", ("f:a", false));
        subscriber.tell(None);
        subscriber.tell(None);
        assert_eq!(client.outbox.queued(), 0);
        subscriber.open();
        assert_eq!(
            client.outbox.queued(),
            updated("f:a", Some("\"s\"")).len() + 1
        );
    }
}

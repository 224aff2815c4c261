//! Sessions of legacy clients over HTTP (2025-11-25, basic/transports, "Session Management"): each
//! is one user's, has an id that nobody guesses, and ends by DELETE, or when it was idle for long.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use super::checks::Narrow;
use super::stream::{HttpEventStream, ReplayBudget, StreamReader};
use crate::daemon::Daemon;
use crate::daemon::connections::ConnectionKind;
use crate::relay::{AdmissionLimit, Client, ClientSession};
use colibri_peer::Tenant;
use colibri_policy::Caller;
use colibri_text::hex;
use colibri_wire::RequestId;

/// The longest time for which a session may be idle.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// The time for which a stream without a reader can be resumed.
const RESUMABLE: Duration = Duration::from_secs(300);
/// The interval at which expired streams and sessions are removed.
const ROUND: Duration = Duration::from_secs(1);
/// The most sessions of one user; the one that was idle longest goes.
const MAX_SESSIONS: usize = 256;
/// The most streams of a session that nobody reads any more and whose calls are over.
const MAX_FINISHED: usize = 64;

/// A session.
pub(super) struct HttpSession {
    /// The client's id for it.
    pub(super) id: String,
    /// The session's agreement.
    pub(super) shared: Arc<ClientSession>,
    /// The stream of messages that belong to no request.
    pub(super) own: Arc<HttpEventStream>,
    /// The gates that it closed when it began.
    pub(super) narrow: Narrow,
    daemon: Arc<Daemon>,
    kept: Arc<ReplayBudget>,
    inner: Mutex<HttpSessionInner>,
}

struct HttpSessionInner {
    /// Those of requests, by number.
    streams: BTreeMap<u64, Arc<HttpEventStream>>,
    next: u64,
    used: Instant,
    begun: bool,
    ended: bool,
}

impl HttpSession {
    fn inner(&self) -> MutexGuard<'_, HttpSessionInner> {
        self.inner.lock()
    }

    /// The one server that its client sees, if it sees but one.
    pub(super) fn only(&self) -> Option<&str> {
        self.shared.only().map(|only| &**only)
    }

    /// True if its client knows its id.
    pub(super) fn has_begun(&self) -> bool {
        self.inner().begun
    }

    /// A stream for a request, whose calls are a client's of their own.
    pub(super) fn open(&self) -> Arc<HttpEventStream> {
        let client = client(&self.daemon, self.own.client.caller, self.shared.clone());
        self.narrow.apply(&client);
        self.daemon
            .connections
            .enter(client.clone(), ConnectionKind::Request);
        let mut inner = self.inner();
        inner.used = Instant::now();
        inner.next += 1;
        let stream = HttpEventStream::new(
            inner.next,
            client,
            self.daemon.clone(),
            self.kept.clone(),
            true,
        );
        if inner.ended {
            stream.client.close_admission();
        } else {
            inner.streams.insert(stream.number, stream.clone());
        }
        stream
    }

    /// A stream is over and nobody will read it on.
    pub(super) fn forget(&self, stream: &HttpEventStream) {
        self.inner().streams.remove(&stream.number);
        stream.end();
    }

    /// The stream of a number that was given out.
    pub(super) fn stream(&self, number: u64) -> Option<Arc<HttpEventStream>> {
        let mut inner = self.inner();
        inner.used = Instant::now();
        if number == self.own.number {
            return Some(self.own.clone());
        }
        inner.streams.get(&number).cloned()
    }

    fn streams(&self) -> Vec<Arc<HttpEventStream>> {
        self.inner().streams.values().cloned().collect()
    }

    /// True if one more request with this id may be in flight: ids are the session's, and so is the
    /// limit.
    ///
    /// # Errors
    /// What is against it.
    pub(super) fn admit(&self, id: &RequestId) -> Result<(), AdmissionLimit> {
        let limit = self.daemon.limits.in_flight;
        let mut in_flight = 0;
        for stream in self.inner().streams.values() {
            let (calls, same_id) = stream.client.in_flight_with(id);
            if same_id {
                return Err(AdmissionLimit::SameId);
            }
            in_flight += calls;
        }
        if in_flight >= limit {
            Err(AdmissionLimit::InFlight(limit))
        } else {
            Ok(())
        }
    }

    /// Cancels the request with this id, whichever POST it came in.
    pub(super) fn cancel(
        &self,
        id: &RequestId,
        notification: (&bytes::Bytes, std::ops::Range<usize>),
    ) {
        for stream in self.streams() {
            if stream.client.is_in_flight(id) {
                stream.client.cancel(id, notification.clone());
            }
        }
    }

    /// Reads what belongs to no request.
    pub(super) fn read(&self) -> StreamReader {
        self.inner().used = Instant::now();
        self.own.read()
    }

    /// Since when nothing has been going on in it; none while something is.
    fn idle(&self) -> Option<Instant> {
        let inner = self.inner();
        let mut since = inner.used;
        for stream in inner.streams.values().chain([&self.own]) {
            since = since.max(stream.alone()?);
            if stream.client.in_flight() > 0 {
                return None;
            }
        }
        Some(since)
    }

    /// Keeps what nobody reads within bounds.
    fn tidy(&self) {
        self.own.gather();
        let streams = self.streams();
        let mut finished = 0;
        for stream in streams.iter().rev() {
            stream.gather();
            let Some(alone) = stream.alone().filter(|_| stream.client.in_flight() == 0) else {
                continue;
            };
            finished += 1;
            if finished > MAX_FINISHED || alone.elapsed() > RESUMABLE {
                self.forget(stream);
            }
        }
    }

    fn end(&self) {
        let streams = {
            let mut inner = self.inner();
            inner.ended = true;
            std::mem::take(&mut inner.streams)
        };
        // What it is asked it answers no more.
        self.shared.asked.end();
        for stream in streams.values().chain([&self.own]) {
            stream.end();
        }
        self.daemon.leave(&self.own.client);
        debug!(session = self.shared.number, "session over HTTP is over");
    }
}

impl Drop for HttpSession {
    fn drop(&mut self) {
        self.end();
    }
}

fn client(daemon: &Arc<Daemon>, caller: Caller, session: Arc<ClientSession>) -> Arc<Client> {
    let outbox = daemon.queue_for(Tenant::Person(caller.uid));
    let client = Client::new(
        daemon.connections.next_number(),
        caller,
        outbox,
        daemon.limits.in_flight,
    );
    let share = daemon.host.shares().of(caller.uid);
    Arc::new(client.sharing(share).within(session))
}

/// All sessions.
pub(super) struct Sessions {
    daemon: Arc<Daemon>,
    inner: Mutex<HttpSessionTable>,
    /// A session has begun.
    begun: Arc<Notify>,
}

#[derive(Default)]
struct HttpSessionTable {
    by_id: HashMap<String, Arc<HttpSession>>,
    /// The replay budget of each user: it lives as long as the daemon, as quotas do.
    kept: HashMap<u32, Arc<ReplayBudget>>,
}

impl Sessions {
    /// None yet. Those that are idle for long end for as long as this is there.
    pub(super) fn new(daemon: Arc<Daemon>) -> Arc<Sessions> {
        let sessions = Arc::new(Sessions {
            daemon,
            inner: Mutex::default(),
            begun: Arc::default(),
        });
        tokio::spawn(Sessions::watch(
            Arc::downgrade(&sessions),
            sessions.begun.clone(),
        ));
        sessions
    }

    fn inner(&self) -> MutexGuard<'_, HttpSessionTable> {
        self.inner.lock()
    }

    /// A session that is not begun: nobody finds it before [`Sessions::begin`]. `None`: the system
    /// has no randomness.
    pub(super) fn prepare(
        &self,
        caller: Caller,
        narrow: Narrow,
        only: Option<&str>,
    ) -> Option<Arc<HttpSession>> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let number = self.daemon.connections.next_number();
        let outbox = self.daemon.queue_for(Tenant::Person(caller.uid));
        let client = Client::new(number, caller, outbox, self.daemon.limits.in_flight);
        let client = Arc::new(client.sharing(self.daemon.host.shares().of(caller.uid)));
        client.session.told_on(client.outbox.clone());
        narrow.apply(&client);
        if let Some(only) = only {
            client.session.show_only(only);
        }
        let limit = self.daemon.limits.frame + self.daemon.limits.ahead;
        let mut inner = self.inner();
        let kept = inner
            .kept
            .entry(caller.uid)
            .or_insert_with(|| Arc::new(ReplayBudget::new(limit)));
        Some(Arc::new(HttpSession {
            id: hex(&random),
            shared: client.session.clone(),
            own: HttpEventStream::new(0, client, self.daemon.clone(), kept.clone(), false),
            narrow,
            daemon: self.daemon.clone(),
            kept: kept.clone(),
            inner: Mutex::new(HttpSessionInner {
                streams: BTreeMap::new(),
                next: 0,
                used: Instant::now(),
                begun: false,
                ended: false,
            }),
        }))
    }

    /// From now on a session is found. One too many of its user's ends the one that was idle
    /// longest; `false`: none of them is idle.
    pub(super) fn begin(&self, session: &Arc<HttpSession>) -> bool {
        let uid = session.own.client.caller.uid;
        let mut inner = self.inner();
        let of_user = inner
            .by_id
            .values()
            .filter(|other| other.own.client.caller.uid == uid);
        let of_user: Vec<_> = of_user.cloned().collect();
        let mut goes = None;
        if of_user.len() >= MAX_SESSIONS {
            let idle = of_user
                .iter()
                .filter_map(|other| Some((other.idle()?, other)));
            let Some((_, oldest)) = idle.min_by_key(|(since, _)| *since) else {
                return false;
            };
            goes = inner.by_id.remove(&oldest.id);
        }
        self.daemon
            .connections
            .enter(session.own.client.clone(), ConnectionKind::Session);
        inner.by_id.insert(session.id.clone(), session.clone());
        drop(inner);
        session.inner().begun = true;
        self.begun.notify_one();
        if let Some(oldest) = goes {
            info!(
                uid,
                "a user has {MAX_SESSIONS} sessions over HTTP: the one that was idle longest ends"
            );
            oldest.end();
        }
        true
    }

    /// A user's session.
    pub(super) fn find(&self, id: &str, uid: u32) -> Option<Arc<HttpSession>> {
        let found = self.inner().by_id.get(id).cloned();
        found.filter(|session| session.own.client.caller.uid == uid)
    }

    /// Ends a session.
    pub(super) fn end(&self, session: &HttpSession) {
        self.inner().by_id.remove(&session.id);
        session.end();
    }

    async fn watch(sessions: Weak<Sessions>, begun: Arc<Notify>) {
        loop {
            begun.notified().await;
            loop {
                sleep(ROUND).await;
                let Some(sessions) = sessions.upgrade() else {
                    return;
                };
                let all: Vec<_> = sessions.inner().by_id.values().cloned().collect();
                if all.is_empty() {
                    break;
                }
                for session in all {
                    if session.idle().is_some_and(|since| since.elapsed() > IDLE) {
                        sessions.end(&session);
                    } else {
                        session.tidy();
                    }
                }
            }
        }
    }
}

//! The first stage: a request is admitted under its id, with its client's limits.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::agent_socket::AgentSocket;
use super::client_session::{ClientSession, ReducedRights};
use super::subscription_guard::SubscriptionGuard;
use crate::results::ResultOwner;
use colibri_peer::Outbox;
use colibri_policy::{ApprovalCaller, Caller, Gate, Gates, Rights, UserUsage};
use colibri_protocol::Feature;
use colibri_protocol::logging::Level;
use colibri_protocol::subscription::SubscriptionFilter;
use colibri_wire::RequestId;

/// The client side of calls: a connection, or one request over HTTP.
pub struct Client {
    /// The session's agreement and abilities.
    pub session: Arc<ClientSession>,
    /// The connection's number, never used twice by one daemon.
    pub connection: u64,
    /// For whom it calls: who it is as the kernel says, or the person for whom an agent runs.
    pub caller: Caller,
    /// The peer, as the kernel says.
    pub peer: Caller,
    /// The agent socket that it came through, if it did.
    pub door: Option<Arc<AgentSocket>>,
    /// The script whose calls these are, if a script makes them.
    pub outer: Option<OuterCall>,
    /// The agent's part of the person's rights.
    rights: ReducedRights,
    /// The outbox for its answers.
    pub outbox: Arc<Outbox>,
    /// Calls in flight at once.
    limit: usize,
    /// Its user's usage.
    share: Option<Arc<UserUsage>>,
    flights: Mutex<Flights>,
    /// Gates that the connection itself closed.
    narrowed: AtomicU8,
    gone: AtomicBool,
    /// The daemon is ending: no further request is admitted.
    closed: AtomicBool,
    /// The `subscriptions/listen` requests in flight.
    subscriptions: Mutex<BTreeMap<RequestId, ListenHandle>>,
    /// The last call in flight has landed.
    quiet: Notify,
    /// Nothing more is queued for it once that has happened.
    ends_with_its_calls: AtomicBool,
    /// The code of the JSON-RPC error that it was answered with last; 0, which is none, before
    /// that.
    error: AtomicI64,
}

/// The call of `colibri_run_script` for which a client's calls are made. Every rule that is another
/// for such calls asks for it: `relay/cost.rs` (what a model does not read), `relay/charge.rs`,
/// `relay/record.rs`, `relay/flow.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OuterCall {
    /// The number of its `enter` record; 0: nothing is recorded.
    pub record: u64,
}

/// A `subscriptions/listen` in flight.
struct ListenHandle {
    /// Its id as it is written.
    id: Box<str>,
    /// The notifications that it subscribes to.
    filter: SubscriptionFilter,
    /// The least level of the log messages that it wants, if any.
    log_level: Option<Level>,
    /// Its subscriptions at servers.
    _lasting: Vec<SubscriptionGuard>,
}

type Flights = HashMap<RequestId, Flight, BuildHasherDefault<ShortHash>>;

/// A hash (FNV-1a) that is quick for what is short. Who chooses ids that fall together slows down
/// only their own calls, of which there are few.
struct ShortHash(u64);

impl Default for ShortHash {
    fn default() -> ShortHash {
        ShortHash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for ShortHash {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_usize(&mut self, _: usize) {}

    fn write_isize(&mut self, which: isize) {
        self.0 ^= which as u64;
    }

    fn finish(&self) -> u64 {
        // The table takes the top bits and the bottom ones.
        self.0 ^ self.0.rotate_left(32)
    }
}

/// A call in flight.
enum Flight {
    /// Nobody can be told yet that it is cancelled.
    Admitted,
    /// At a target that can be told.
    Sent(Arc<dyn CancelReason>, u64),
    /// Cancelled before it was sent.
    Cancelled,
    /// Cancelled by the daemon, which ends: its client still waits for an answer.
    GivenUp,
}

/// A target that can be told that a call is cancelled.
pub trait CancelReason: Send + Sync {
    /// The call with this number of the target's is cancelled. `notification` is the client's
    /// message with the place of its `params`; without one the client is gone.
    fn cancel(&self, number: u64, notification: Option<(&bytes::Bytes, std::ops::Range<usize>)>);
}

/// The reason for which a request is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionLimit {
    /// The client has this many calls in flight already.
    InFlight(usize),
    /// A call with the same id is still in flight.
    SameId,
    /// The daemon is ending.
    Closed,
    /// The user's calls fill the trail faster than this many bytes a second.
    Trail(u64),
}

impl Client {
    /// A client with nothing in flight, in a session of its own.
    pub fn new(connection: u64, caller: Caller, outbox: Arc<Outbox>, limit: usize) -> Client {
        Client {
            session: Arc::new(ClientSession::new(connection)),
            connection,
            caller,
            peer: caller,
            door: None,
            outer: None,
            rights: ReducedRights::default(),
            outbox,
            limit,
            share: None,
            flights: Mutex::default(),
            narrowed: AtomicU8::new(0),
            gone: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            subscriptions: Mutex::default(),
            quiet: Notify::new(),
            ends_with_its_calls: AtomicBool::new(false),
            error: AtomicI64::new(0),
        }
    }

    /// A client for the calls of a script that a call of this client runs: with this client's
    /// rights, and no more.
    pub(crate) fn for_script(
        &self,
        connection: u64,
        outer: OuterCall,
        outbox: Arc<Outbox>,
    ) -> Client {
        Client {
            session: self.session.clone(),
            peer: self.peer,
            door: self.door.clone(),
            share: self.share.clone(),
            outer: Some(outer),
            narrowed: AtomicU8::new(self.narrowed.load(Ordering::Acquire)),
            ..Client::new(connection, self.caller, outbox, self.limit)
        }
    }

    /// The same, as part of this session.
    pub fn within(mut self, session: Arc<ClientSession>) -> Client {
        self.session = session;
        self
    }

    /// The same, come through an agent socket for the caller, as this process.
    pub fn through(mut self, door: Arc<AgentSocket>, peer: Caller) -> Client {
        self.peer = peer;
        self.door = Some(door);
        self
    }

    /// The caller whose calls wait for a person.
    pub fn asker(&self) -> ApprovalCaller<'_> {
        ApprovalCaller {
            uid: self.caller.uid,
            agent: self.door.as_ref().map(|door| &*door.agent),
            session: self.door.as_ref().map(|door| &*door.session),
        }
    }

    /// The owner of the results that are stored for it.
    pub fn owner(&self) -> ResultOwner {
        ResultOwner {
            uid: self.caller.uid,
            session: self.door.as_ref().map(|door| door.session.clone()),
        }
    }

    /// The part of its caller's rights that is left to it.
    pub(super) fn lessened(&self, rights: Arc<Rights>) -> Arc<Rights> {
        let rights = match &self.door {
            Some(door) => self
                .rights
                .of(&rights, |rights| rights.of_agent(&door.tools)),
            None => rights,
        };
        self.session.narrowed(rights)
    }

    /// The same, taking from this user's share.
    pub fn sharing(mut self, share: Arc<UserUsage>) -> Client {
        self.share = Some(share);
        self
    }

    /// Its user's usage.
    pub fn share(&self) -> Option<&Arc<UserUsage>> {
        self.share.as_ref()
    }

    /// From now on the request with this id is told of this, and what lasts with it does.
    pub fn listens(
        &self,
        id: RequestId,
        id_text: Box<str>,
        (filter, log_level): (SubscriptionFilter, Option<Level>),
        lasting: Vec<SubscriptionGuard>,
    ) {
        let listening = ListenHandle {
            id: id_text,
            filter,
            log_level,
            _lasting: lasting,
        };
        self.subscriptions.lock().insert(id, listening);
    }

    /// No more.
    pub(crate) fn end_subscription(&self, id: &RequestId) {
        let ended = self.subscriptions.lock().remove(id);
        drop(ended);
    }

    /// The ids, as they are written, of the subscriptions that are told when the list of a feature
    /// changes.
    pub(crate) fn told_of(&self, feature: Feature) -> Vec<Box<str>> {
        let subscriptions = self.subscriptions.lock();
        let wanting = subscriptions.values().filter(|of| of.filter.wants(feature));
        wanting.map(|of| of.id.clone()).collect()
    }

    /// The ids, as they are written, of the subscriptions that are told log messages of a level.
    pub(crate) fn logged_to(&self, level: Level) -> Vec<Box<str>> {
        let subscriptions = self.subscriptions.lock();
        let wanting = subscriptions
            .values()
            .filter(|of| of.log_level.is_some_and(|least| level >= least));
        wanting.map(|of| of.id.clone()).collect()
    }

    /// Admits a request.
    ///
    /// # Errors
    /// Which limit is reached, or that the id is in use.
    pub fn admit(&self, id: &RequestId) -> Result<(), AdmissionLimit> {
        let mut flights = self.flights.lock();
        let count = flights.len();
        match flights.entry(id.clone()) {
            Entry::Occupied(_) => Err(AdmissionLimit::SameId),
            Entry::Vacant(_) if self.closed.load(Ordering::Relaxed) => Err(AdmissionLimit::Closed),
            Entry::Vacant(_) if count >= self.limit => Err(AdmissionLimit::InFlight(self.limit)),
            Entry::Vacant(place) => {
                place.insert(Flight::Admitted);
                Ok(())
            }
        }
    }

    /// Admits no further request; those in flight go on.
    pub(crate) fn close_admission(&self) {
        // Under the lock, so that nothing is in flight any more once somebody has seen that nothing
        // is.
        let _flights = self.flights.lock();
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Notes who is to be told if the call is cancelled. `false`: it was cancelled already.
    pub fn sent(&self, id: &RequestId, to: Arc<dyn CancelReason>, number: u64) -> bool {
        match self.flights.lock().get_mut(id) {
            Some(Flight::Cancelled | Flight::GivenUp) | None => false,
            Some(flight) => {
                *flight = Flight::Sent(to, number);
                true
            }
        }
    }

    /// Notes that the call waits again, for another attempt. `false`: it was cancelled already.
    pub fn unsent(&self, id: &RequestId) -> bool {
        match self.flights.lock().get_mut(id) {
            Some(Flight::Cancelled | Flight::GivenUp) | None => false,
            Some(flight) => {
                *flight = Flight::Admitted;
                true
            }
        }
    }

    /// True if the call was cancelled before it was sent.
    pub fn is_cancelled(&self, id: &RequestId) -> bool {
        matches!(
            self.flights.lock().get(id),
            Some(Flight::Cancelled | Flight::GivenUp) | None
        )
    }

    /// True if the daemon has given the call up because it ends.
    pub(crate) fn is_given_up(&self, id: &RequestId) -> bool {
        matches!(self.flights.lock().get(id), Some(Flight::GivenUp))
    }

    /// The call is over: `deliver` hands its answer over, unless it is told `false`: the call was
    /// cancelled, so nobody waits for an answer. The call counts as in flight until that is done:
    /// whoever waits for all to have landed may close the connection next.
    pub(crate) fn land(&self, id: &RequestId, deliver: impl FnOnce(bool)) {
        let mut flights = self.flights.lock();
        let flight = flights.remove(id);
        deliver(!matches!(flight, Some(Flight::Cancelled) | None));
        if flights.is_empty() {
            self.quiet.notify_waiters();
            if self.ends_with_its_calls.load(Ordering::Relaxed) {
                self.outbox.close();
            }
        }
    }

    /// Has its queue closed as soon as no call is in flight: it was a client for those alone.
    pub(crate) fn end_with_its_calls(&self) {
        let flights = self.flights.lock();
        self.ends_with_its_calls.store(true, Ordering::Relaxed);
        if flights.is_empty() {
            self.outbox.close();
        }
    }

    /// It is answered with a JSON-RPC error of this code.
    pub(crate) fn note_error(&self, code: i64) {
        self.error.store(code, Ordering::Relaxed);
    }

    /// The code of the JSON-RPC error that it was answered with last, if it was.
    pub fn error(&self) -> Option<i64> {
        Some(self.error.load(Ordering::Relaxed)).filter(|code| *code != 0)
    }

    /// Waits until no call is in flight.
    pub async fn all_landed(&self) {
        loop {
            let quiet = self.quiet.notified();
            if self.flights.lock().is_empty() {
                return;
            }
            quiet.await;
        }
    }

    /// Cancels a call, if it is in flight.
    pub fn cancel(&self, id: &RequestId, notification: (&bytes::Bytes, std::ops::Range<usize>)) {
        let told = match self.flights.lock().get_mut(id) {
            None => None,
            Some(flight) => match std::mem::replace(flight, Flight::Cancelled) {
                Flight::Sent(target, number) => Some((target, number)),
                Flight::Admitted | Flight::Cancelled | Flight::GivenUp => None,
            },
        };
        if let Some((target, number)) = told {
            target.cancel(number, Some(notification));
        }
    }

    /// The connection is gone: everything in flight is cancelled.
    pub fn disconnect(&self) {
        self.gone.store(true, Ordering::Release);
        self.cancel_all(|_| Flight::Cancelled);
    }

    /// The daemon is ending: everything in flight is cancelled, and answered with that.
    pub fn give_up(&self) {
        self.cancel_all(|flight| match flight {
            Flight::Cancelled => Flight::Cancelled,
            Flight::Admitted | Flight::Sent(..) | Flight::GivenUp => Flight::GivenUp,
        });
    }

    fn cancel_all(&self, becomes: impl Fn(&Flight) -> Flight) {
        let sent: Vec<_> = self
            .flights
            .lock()
            .values_mut()
            .filter_map(|flight| {
                let after = becomes(flight);
                match std::mem::replace(flight, after) {
                    Flight::Sent(target, number) => Some((target, number)),
                    Flight::Admitted | Flight::Cancelled | Flight::GivenUp => None,
                }
            })
            .collect();
        for (target, number) in sent {
            target.cancel(number, None);
        }
    }

    /// True if the connection is gone.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// True if the request with this id is in flight.
    pub(crate) fn is_in_flight(&self, id: &RequestId) -> bool {
        self.flights.lock().contains_key(id)
    }

    /// Calls in flight, and whether one of them has this id.
    pub(crate) fn in_flight_with(&self, id: &RequestId) -> (usize, bool) {
        let flights = self.flights.lock();
        (flights.len(), flights.contains_key(id))
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.lock().len()
    }

    /// Closes a gate for this connection, for good.
    pub fn narrow(&self, gate: Gate) {
        self.narrowed.fetch_or(gate.bit(), Ordering::AcqRel);
    }

    /// The gates that the connection itself leaves open.
    pub fn narrowed(&self, gates: Gates) -> Gates {
        gates.without(self.narrowed.load(Ordering::Acquire))
    }
}

/// The answers of a JSON-RPC batch, which go out together.
pub struct BatchAnswers {
    client: Arc<Outbox>,
    state: Mutex<(usize, Vec<u8>)>,
}

impl BatchAnswers {
    /// A batch that waits for this many answers.
    pub fn new(client: Arc<Outbox>, expected: usize) -> BatchAnswers {
        BatchAnswers {
            client,
            state: Mutex::new((expected, Vec::new())),
        }
    }

    /// One request of the batch is over; `None` where it gets no answer. Whether there is one that
    /// goes out.
    pub fn answer(&self, answer: Option<&[u8]>) -> bool {
        let mut state = self.state.lock();
        let (expected, answers) = &mut *state;
        // A client that has no room left gets nothing more anyway: its connection ends.
        let goes_out = answer.filter(|answer| {
            self.client
                .keep(answers.len(), answers.len() + answer.len() + 1)
        });
        if let Some(answer) = goes_out {
            answers.push(if answers.is_empty() { b'[' } else { b',' });
            answers.extend_from_slice(answer);
        }
        *expected = expected.saturating_sub(1);
        if *expected == 0 && !answers.is_empty() {
            self.client.keep(answers.len(), 0);
            answers.push(b']');
            self.client.push(answers);
            *answers = Vec::new();
        }
        goes_out.is_some()
    }
}

impl Drop for BatchAnswers {
    fn drop(&mut self) {
        let (_, answers) = self.state.get_mut();
        self.client.keep(answers.len(), 0);
    }
}

#[cfg(test)]
impl Client {
    /// One whose answers nobody reads, with so many calls in flight at once.
    pub(crate) fn unread(limit: usize) -> Arc<Client> {
        let caller = Caller {
            uid: 1,
            gid: 1,
            pid: None,
        };
        let outbox = Outbox::new(1 << 20, Arc::default());
        Arc::new(Client::new(1, caller, outbox, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_wire::Json;

    struct Told(Mutex<Vec<u64>>);

    impl CancelReason for Told {
        fn cancel(&self, number: u64, _: Option<(&bytes::Bytes, std::ops::Range<usize>)>) {
            self.0.lock().push(number);
        }
    }

    /// True if somebody waited for the answer.
    fn landed(client: &Client, id: &RequestId) -> bool {
        let mut waited_for = None;
        client.land(id, |waited| waited_for = Some(waited));
        waited_for.unwrap()
    }

    fn id(text: &str) -> RequestId {
        RequestId::of(Json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn admits_up_to_the_limit_and_each_id_once() {
        let client = Client::unread(2);
        assert_eq!(client.admit(&id("1")), Ok(()));
        assert_eq!(client.admit(&id("1")), Err(AdmissionLimit::SameId));
        assert_eq!(client.admit(&id("\"1\"")), Ok(()));
        assert_eq!(client.admit(&id("2")), Err(AdmissionLimit::InFlight(2)));
        assert!(landed(&client, &id("1")));
        assert!(!landed(&client, &id("1")));
        assert_eq!(client.admit(&id("2")), Ok(()));
    }

    #[test]
    fn a_closed_client_admits_nothing_and_what_is_in_flight_goes_on() {
        let client = Client::unread(9);
        client.admit(&id("1")).unwrap();
        client.close_admission();
        assert_eq!(client.admit(&id("2")), Err(AdmissionLimit::Closed));
        assert_eq!(client.admit(&id("1")), Err(AdmissionLimit::SameId));
        assert!(landed(&client, &id("1")));
        assert_eq!(client.admit(&id("1")), Err(AdmissionLimit::Closed));
    }

    #[test]
    fn a_cancelled_call_gets_no_answer_and_its_target_is_told_once() {
        let client = Client::unread(9);
        let told = Arc::new(Told(Mutex::default()));
        let frame = bytes::Bytes::from_static(b"1");
        for number in 1..=3 {
            client.admit(&id(&number.to_string())).unwrap();
        }
        assert!(client.sent(&id("1"), told.clone(), 10));
        client.cancel(&id("1"), (&frame, 0..1));
        client.cancel(&id("1"), (&frame, 0..1));
        assert!(!landed(&client, &id("1")));
        client.cancel(&id("2"), (&frame, 0..1));
        assert!(client.is_cancelled(&id("2")));
        assert!(!client.sent(&id("2"), told.clone(), 20));
        assert!(client.sent(&id("3"), told.clone(), 30));
        client.disconnect();
        assert_eq!(*told.0.lock(), [10, 30]);
        assert!(client.is_gone());
    }

    #[test]
    fn one_that_is_there_for_its_calls_alone_ends_with_the_last_of_them() {
        let client = Client::unread(9);
        client.admit(&id("1")).unwrap();
        client.admit(&id("2")).unwrap();
        client.end_with_its_calls();
        client.land(&id("1"), |_| assert!(client.outbox.push(b"1")));
        assert!(client.outbox.push(b"progress"), "another is in flight");
        client.land(&id("2"), |_| assert!(client.outbox.push(b"2")));
        assert!(!client.outbox.push(b"late"));
        let idle = super::tests::Client::unread(9);
        idle.end_with_its_calls();
        assert!(!idle.outbox.push(b"late"));
    }

    #[test]
    fn a_call_that_is_given_up_still_gets_its_answer() {
        let client = Client::unread(9);
        let told = Arc::new(Told(Mutex::default()));
        for number in 1..=3 {
            client.admit(&id(&number.to_string())).unwrap();
        }
        assert!(client.sent(&id("1"), told.clone(), 10));
        client.cancel(&id("3"), (&bytes::Bytes::from_static(b"3"), 0..1));
        client.give_up();
        assert_eq!(*told.0.lock(), [10]);
        assert!(
            client.is_cancelled(&id("2"))
                && client.is_given_up(&id("2"))
                && !client.is_given_up(&id("3"))
        );
        assert!(!client.sent(&id("2"), told.clone(), 20));
        assert!(
            landed(&client, &id("1")) && landed(&client, &id("2")) && !landed(&client, &id("3"))
        );
    }

    #[test]
    fn a_call_is_in_flight_until_its_answer_is_delivered() {
        use std::future::Future as _;
        use std::task::{Context, Poll, Waker};
        let client = Client::unread(9);
        client.admit(&id("1")).unwrap();
        let mut all = std::pin::pin!(client.all_landed());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(all.as_mut().poll(&mut context), Poll::Pending);
        client.land(&id("1"), |_| {
            // Nobody is told, and nobody can look either while the answer is handed over.
            assert!(client.flights.try_lock().is_none());
        });
        assert_eq!(all.as_mut().poll(&mut context), Poll::Ready(()));
    }

    #[test]
    fn a_batch_is_answered_once_and_whole() {
        let client = Client::unread(9);
        let batch = BatchAnswers::new(client.outbox.clone(), 3);
        batch.answer(Some(b"1"));
        batch.answer(None);
        assert_eq!(client.outbox.queued(), 0);
        batch.answer(Some(b"3"));
        assert_eq!(client.outbox.queued(), "[1,3]\n".len());
        BatchAnswers::new(client.outbox.clone(), 1).answer(None);
        assert_eq!(client.outbox.queued(), "[1,3]\n".len());
    }
}

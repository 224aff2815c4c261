//! A stream of events of a legacy session: it outlives the connection that reads it, and can be
//! read on from any event that is kept (2025-11-25, basic/transports, "Resumability and
//! Redelivery").

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::reply::{Source, TakenEvents, events};
use crate::daemon::Daemon;
use crate::relay::Client;
use colibri_peer::OutboxBatch;
use colibri_policy::quota::ConnectionPermit;

/// The most events of a stream that are kept.
const MAX_EVENTS: usize = 1000;

/// The bytes of events that are kept for a user, and how many they may be.
#[derive(Debug)]
pub(super) struct ReplayBudget {
    bytes: AtomicUsize,
    limit: usize,
}

impl ReplayBudget {
    pub(super) fn new(limit: usize) -> ReplayBudget {
        ReplayBudget {
            bytes: AtomicUsize::new(0),
            limit,
        }
    }

    fn is_too_much(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.limit
    }
}

/// A stream of events: of a request, or of the session itself.
pub(super) struct HttpEventStream {
    pub(super) number: u64,
    pub(super) client: Arc<Client>,
    daemon: Arc<Daemon>,
    kept: Arc<ReplayBudget>,
    /// True if its calls go on, in a place of their own, when nobody reads it.
    is_request: bool,
    state: Mutex<HttpEventStreamState>,
}

#[derive(Default)]
struct HttpEventStreamState {
    /// The number of the last event.
    last: u64,
    /// The last events, oldest first.
    ring: VecDeque<BufferedEvent>,
    bytes: usize,
    /// The number of readers so far: only the last one reads on.
    readers: u64,
    /// Since when nobody reads it.
    alone: Option<Instant>,
    place: Option<ConnectionPermit>,
}

struct BufferedEvent {
    number: u64,
    pieces: Vec<Bytes>,
    length: usize,
}

impl HttpEventStream {
    pub(super) fn new(
        number: u64,
        client: Arc<Client>,
        daemon: Arc<Daemon>,
        kept: Arc<ReplayBudget>,
        is_request: bool,
    ) -> Arc<HttpEventStream> {
        let state = HttpEventStreamState {
            alone: Some(Instant::now()),
            ..HttpEventStreamState::default()
        };
        Arc::new(HttpEventStream {
            number,
            client,
            daemon,
            kept,
            is_request,
            state: Mutex::new(state),
        })
    }

    /// Since when nobody reads it; none while somebody does.
    pub(super) fn alone(&self) -> Option<Instant> {
        self.state.lock().alone
    }

    /// From now on this reader reads it, and no earlier one.
    pub(super) fn read(self: &Arc<HttpEventStream>) -> StreamReader {
        let mut state = self.state.lock();
        state.readers += 1;
        state.alone = None;
        state.place = None;
        StreamReader {
            number: state.readers,
            stream: self.clone(),
            again: None,
        }
    }

    /// The same, from after an event on; `None` if events since then are not kept.
    pub(super) fn read_after(self: &Arc<HttpEventStream>, event: u64) -> Option<StreamReader> {
        let again = {
            let state = self.state.lock();
            let oldest = state
                .ring
                .front()
                .map_or(state.last + 1, |oldest| oldest.number);
            if event > state.last || event + 1 < oldest {
                return None;
            }
            let missed = state.ring.iter().filter(|kept| kept.number > event);
            missed.map(|kept| kept.pieces.clone()).collect()
        };
        let mut reader = self.read();
        reader.again = Some(again);
        Some(reader)
    }

    /// Takes what nobody reads out of the queue, as far as events are kept.
    pub(super) fn gather(&self) {
        let mut state = self.state.lock();
        let mut context = Context::from_waker(Waker::noop());
        if state.alone.is_none() {
            return;
        }
        if let Poll::Ready(Some(taken)) = self.client.outbox.poll_taken(&mut context) {
            self.note(&mut state, taken);
        }
    }

    /// An event without a message, which tells the client from where to read on.
    pub(super) fn prime(&self) -> TakenEvents {
        let mut state = self.state.lock();
        state.last += 1;
        let text = format!("id: {}-{}\nretry: 1000\ndata:\n\n", self.number, state.last);
        let (number, pieces) = (state.last, vec![Bytes::from(text)]);
        self.keep(&mut state, number, pieces.clone());
        TakenEvents {
            events: VecDeque::from([pieces]),
            charge: None,
        }
    }

    /// Makes events of what was taken, and keeps them.
    pub(super) fn note_taken(&self, taken: OutboxBatch) -> TakenEvents {
        self.note(&mut self.state.lock(), taken)
    }

    fn note(&self, state: &mut HttpEventStreamState, taken: OutboxBatch) -> TakenEvents {
        let first = state.last + 1;
        let noted = events(taken, |head: &mut BytesMut| {
            state.last += 1;
            head.extend_from_slice(format!("id: {}-{}\n", self.number, state.last).as_bytes());
        });
        for (number, pieces) in (first..).zip(&noted.events) {
            self.keep(state, number, pieces.clone());
        }
        noted
    }

    fn keep(&self, state: &mut HttpEventStreamState, number: u64, pieces: Vec<Bytes>) {
        let before = state.bytes;
        let length = pieces.iter().map(Bytes::len).sum();
        state.ring.push_back(BufferedEvent {
            number,
            pieces,
            length,
        });
        state.bytes += length;
        self.kept.bytes.fetch_add(length, Ordering::Relaxed);
        while state.ring.len() > MAX_EVENTS || self.kept.is_too_much() {
            let Some(oldest) = state.ring.pop_front() else {
                break;
            };
            state.bytes -= oldest.length;
            self.kept.bytes.fetch_sub(oldest.length, Ordering::Relaxed);
        }
        // One for which there is no room is cut off by that: its queue says so.
        self.client.outbox.keep(before, state.bytes);
    }

    /// Its reader is gone, which cancels nothing: its calls go on, in a place of their user's.
    fn left(&self, reader: u64) {
        let mut state = self.state.lock();
        if state.readers != reader {
            return;
        }
        state.alone = Some(Instant::now());
        if !self.is_request || self.client.in_flight() == 0 {
            return;
        }
        let rights = self.daemon.chain.rules.rights(&self.client);
        let shares = self.daemon.host.shares();
        match shares.admit(self.client.caller.uid, rights.operator) {
            Ok(place) => state.place = Some(place),
            Err(_) => {
                drop(state);
                self.client.disconnect();
            }
        }
    }

    /// Ends it, with its calls.
    pub(super) fn end(&self) {
        self.client.disconnect();
        self.client.outbox.close();
        self.daemon.connections.leave(&self.client);
    }
}

impl Drop for HttpEventStream {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.kept.bytes.fetch_sub(state.bytes, Ordering::Relaxed);
    }
}

/// The reader of a stream.
pub(super) struct StreamReader {
    stream: Arc<HttpEventStream>,
    number: u64,
    /// The events that it missed.
    again: Option<VecDeque<Vec<Bytes>>>,
}

impl StreamReader {
    /// The stream that it reads.
    pub(super) fn stream(&self) -> &Arc<HttpEventStream> {
        &self.stream
    }

    /// The next event of the queue; `None` when the stream is over, or another reader reads on.
    pub(super) fn poll_taken(&mut self, context: &mut Context<'_>) -> Poll<Option<OutboxBatch>> {
        let state = self.stream.state.lock();
        if state.readers != self.number {
            return Poll::Ready(None);
        }
        self.stream.client.outbox.poll_taken(context)
    }
}

impl Source for StreamReader {
    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<TakenEvents>> {
        if let Some(events) = self.again.take() {
            return Poll::Ready(Some(TakenEvents {
                events,
                charge: None,
            }));
        }
        let taken = ready!(self.poll_taken(context));
        Poll::Ready(taken.map(|taken| self.stream.note_taken(taken)))
    }

    fn is_cut_off(&self) -> bool {
        self.stream.client.outbox.is_discarded()
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.stream.left(self.number);
    }
}

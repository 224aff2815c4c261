//! Writing frames: one first-in-first-out queue per direction, bounded in bytes.
//!
//! Who queues writes at once, as far as the peer takes it; what it does not take is left to the
//! queue's own task. Within [`together`] that is done once, at the end, for all that was queued.
//!
//! Pushing never waits, so that nobody is held up by a peer that does not read. What is queued is
//! counted: for the peer, whose owner disconnects it when it stays over its budget, and for the
//! whole daemon, whose budget is asked before anything is queued.
//!
//! A peer that is no byte stream, as a request over HTTP, has no such task: what is queued for it
//! is taken ([`Outbox::poll_taken`]).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::budget::{BudgetHolder, ByteBudget, SharedBytes, Tenant};
use colibri_wire::splice::Edits;

/// Pieces of a frame from this size on are queued by reference, smaller ones are copied together.
const BY_REFERENCE: usize = 8 * 1024;
/// The most pieces handed to one writev(2).
const MAX_SLICES: usize = 16;
/// The most bytes of a buffer that is kept for the next frames of anybody.
const MAX_SPARE: usize = 256 * 1024;
/// The most such buffers of a thread.
const MAX_SPARES: usize = 8;

thread_local! {
    /// The queues to write when the work that is done together is over, if there is such work.
    static TOGETHER: RefCell<Option<Vec<Arc<Outbox>>>> = const { RefCell::new(None) };
    /// Buffers that are kept, so that none is made for each frame; an idle peer has none.
    static SPARE: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
    static THREAD: ThreadId = thread::current().id();
    /// The list of [`TOGETHER`] while nothing is done together.
    static LIST: RefCell<Vec<Arc<Outbox>>> = const { RefCell::new(Vec::new()) };
}

/// Does work that may queue many frames: each queue is written once, when it is done.
pub fn together<R>(work: impl FnOnce() -> R) -> R {
    struct OutboxClosed;
    impl Drop for OutboxClosed {
        fn drop(&mut self) {
            let Some(mut queues) = TOGETHER.take() else {
                return;
            };
            for queue in queues.drain(..) {
                queue.write_now();
            }
            LIST.set(queues);
        }
    }
    if TOGETHER.with_borrow(Option::is_some) {
        return work();
    }
    TOGETHER.set(Some(LIST.take()));
    let _end = OutboxClosed;
    work()
}

fn spare() -> BytesMut {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

fn keep_spare(mut buffer: BytesMut) {
    buffer.clear();
    if buffer.capacity() > 0 && buffer.capacity() <= MAX_SPARE {
        SPARE.with_borrow_mut(|spares| {
            if spares.len() < MAX_SPARES {
                spares.push(buffer);
            }
        });
    }
}

/// The queue towards one peer.
#[derive(Debug)]
pub struct Outbox {
    inner: Mutex<OutboxInner>,
    work: Notify,
    budget: Arc<ByteBudget>,
    tenant: Tenant,
    /// Bytes over which the peer is too far behind.
    limit: usize,
    /// Bytes queued and kept for this peer, to be read without the lock.
    held: AtomicUsize,
    /// The bytes of its messages in flight beside that.
    in_flight: AtomicUsize,
    cut_off: AtomicBool,
}

#[derive(Debug, Default)]
struct OutboxInner {
    /// The pieces to write first.
    ready: VecDeque<QueuedPiece>,
    /// The bytes that follow them.
    tail: BytesMut,
    /// The sink, once there is a task that writes what is not written at once.
    to: Option<Sink>,
    /// The task that takes the output instead, and waits for some.
    taker: Option<Waker>,
    /// Frames of which nothing was written or taken.
    frames: usize,
    /// True if that task has to write: the peer took no more, or there is an end to be seen.
    waits: bool,
    /// The thread that writes it with others, later: one that comes later itself does not wait for
    /// that.
    listed: Option<ThreadId>,
    failed: Option<io::Error>,
    /// Bytes pushed and not yet written.
    queued: usize,
    /// Those of them that were taken out of the budget.
    counted: usize,
    /// Bytes that are kept for the peer beside those.
    kept: usize,
    over_since: Option<Instant>,
    closed: bool,
    broken: bool,
}

struct Sink(Box<dyn AsyncWrite + Send + Unpin>);

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}

#[derive(Debug)]
struct QueuedPiece {
    bytes: Bytes,
    /// True if the queue took them out of the budget.
    counted: bool,
}

/// The pieces that were taken out of a queue.
#[derive(Debug)]
pub struct OutboxBatch {
    /// Its bytes, with a line end after each frame.
    pub pieces: Vec<Bytes>,
    /// The number of frames.
    pub frames: usize,
    /// As long as this is there, they count as queued.
    pub charge: Charge,
}

/// Bytes that count as queued although they were taken out of the queue.
#[derive(Debug)]
pub struct Charge {
    outbox: Arc<Outbox>,
    queued: usize,
    counted: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.outbox.taken_is_gone(self.queued, self.counted);
    }
}

impl Outbox {
    /// An empty queue, over its budget above `limit` bytes, of the daemon itself: it is not cut off
    /// for others.
    pub fn new(limit: usize, budget: Arc<ByteBudget>) -> Arc<Outbox> {
        Arc::new(Outbox::empty(limit, budget, Tenant::Daemon))
    }

    fn empty(limit: usize, budget: Arc<ByteBudget>, tenant: Tenant) -> Outbox {
        Outbox {
            inner: Mutex::default(),
            work: Notify::new(),
            budget,
            tenant,
            limit,
            held: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            cut_off: AtomicBool::new(false),
        }
    }

    /// An empty queue towards a peer that may be cut off when the budget is used up: if this tenant
    /// holds most, and of its peers this one.
    pub fn charged(limit: usize, budget: &Arc<ByteBudget>, tenant: Tenant) -> Arc<Outbox> {
        let outbox = Arc::new(Outbox::empty(limit, budget.clone(), tenant));
        let peer: Arc<dyn BudgetHolder> = outbox.clone();
        budget.enter(Arc::downgrade(&peer));
        outbox
    }

    /// Bytes that others may get too: they are taken out of the budget once, for this peer. `None`:
    /// there is no room.
    pub fn share(&self, bytes: Vec<u8>) -> Option<SharedBytes> {
        let taken = self.budget.take(bytes.len(), self);
        taken.then(|| SharedBytes::taken(bytes, self.budget.clone()))
    }

    /// Queues a frame; its line end is added. `false`: the queue is closed, the frame goes nowhere.
    pub fn push(self: &Arc<Outbox>, frame: &[u8]) -> bool {
        let length = frame.len() + 1;
        self.put(length, length, |inner| {
            inner.tail.extend_from_slice(frame);
            inner.tail.extend_from_slice(b"\n");
        })
    }

    /// Queues a frame that others get too, between a head and a tail of its own.
    pub fn push_shared(self: &Arc<Outbox>, head: &[u8], shared: &SharedBytes, tail: &[u8]) -> bool {
        let own = head.len() + tail.len() + 1;
        self.put(own + shared.bytes().len(), own, |inner| {
            inner.tail.extend_from_slice(head);
            inner.by_reference(shared.bytes().clone(), false);
            inner.tail.extend_from_slice(tail);
            inner.tail.extend_from_slice(b"\n");
        })
    }

    /// Queues an edited frame; what stays of it is not copied where it is large.
    pub fn push_edited(self: &Arc<Outbox>, frame: &Bytes, edits: &Edits) -> bool {
        let length = edits.edited_length(frame.len()) + 1;
        self.put(length, length, |inner| {
            edits.pieces(frame.len(), |piece| match piece {
                Ok(range) if range.len() >= BY_REFERENCE => {
                    inner.by_reference(frame.slice(range), true)
                }
                Ok(range) => inner.tail.extend_from_slice(&frame[range]),
                Err(with) => inner.tail.extend_from_slice(with),
            });
            inner.tail.extend_from_slice(b"\n");
        })
    }

    /// Queues `length` bytes, `own` of which are not counted elsewhere.
    fn put(
        self: &Arc<Outbox>,
        length: usize,
        own: usize,
        write: impl FnOnce(&mut OutboxInner),
    ) -> bool {
        let together = TOGETHER.with_borrow(|list| list.as_ref().map(|_| THREAD.with(|id| *id)));
        let mut to_write = false;
        let put = self.change(own, |inner| {
            if inner.closed {
                return false;
            }
            if inner.tail.capacity() == 0 {
                inner.tail = spare();
            }
            write(inner);
            inner.frames += 1;
            inner.queued += length;
            inner.counted += own;
            // One that waits for the peer, or for the end of what is done together, is written
            // then.
            to_write = !inner.waits && (together.is_none() || inner.listed != together);
            if to_write {
                inner.listed = together.or(inner.listed);
            }
            true
        });
        if to_write {
            let later = TOGETHER.with_borrow_mut(|list| match list {
                Some(list) => {
                    list.push(self.clone());
                    true
                }
                None => false,
            });
            if !later {
                self.write_now();
            }
        }
        put
    }

    /// Writes what the peer takes; leaves the rest to the queue's task.
    fn write_now(&self) {
        let mut inner = self.inner.lock();
        inner.listed = None;
        if inner.waits || inner.broken {
            return;
        }
        let (done, counted) = inner.write(&mut Context::from_waker(Waker::noop()));
        inner.waits = !matches!(done, Poll::Ready(Ok(())));
        let waits = inner.waits;
        if let Poll::Ready(Err(error)) = done {
            inner.failed = Some(error);
        }
        self.note(&mut inner);
        let taker = inner.taker.take();
        drop(inner);
        self.budget.give_back(counted);
        match taker {
            Some(taker) => taker.wake(),
            None if waits => self.work.notify_one(),
            None => {}
        }
    }

    /// Notes that `now` bytes are kept for the peer beside what is queued, after `before`: what it
    /// began to say, or answers that go out together. `false`: the peer is gone, or was cut off
    /// since the budget has no room for them.
    pub fn keep(&self, before: usize, now: usize) -> bool {
        let kept = self.change(now.saturating_sub(before), |inner| {
            inner.kept = inner.kept + now - before;
            true
        });
        if kept && now < before {
            self.budget.give_back(before - now);
        }
        kept
    }

    /// Takes the bytes of a message out of the daemon's budget, for as long as it is in flight.
    /// `false`: there is no room for it, and the peer itself holds most, or was cut off.
    pub fn hold(&self, length: usize) -> bool {
        if self.was_cut_off() || !self.budget.take(length, self) {
            return false;
        }
        self.in_flight.fetch_add(length, Ordering::Relaxed);
        true
    }

    /// A message is not in flight any more: gives back what [`Outbox::hold`] took.
    pub fn let_go(&self, length: usize) {
        let less = |had: usize| Some(had.saturating_sub(length));
        let had = self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let had = had.unwrap_or_default();
        // Of one that was cut off everything was given back then.
        self.budget.give_back(had.min(length));
    }

    /// Takes bytes out of the daemon's budget for a change of the queue; a peer for which it has
    /// none is cut off.
    fn change(&self, length: usize, change: impl FnOnce(&mut OutboxInner) -> bool) -> bool {
        // Without the lock: others may be cut off for it.
        if length > 0 && !self.budget.take(length, self) {
            self.cut_off();
            return false;
        }
        let mut inner = self.inner.lock();
        if inner.broken || !change(&mut inner) {
            drop(inner);
            self.budget.give_back(length);
            return false;
        }
        self.note(&mut inner);
        true
    }

    /// Notes what is held, and since when it is too much.
    fn note(&self, inner: &mut OutboxInner) {
        self.held
            .store(inner.queued + inner.kept, Ordering::Relaxed);
        if inner.queued + inner.kept <= self.limit {
            inner.over_since = None;
        } else if inner.over_since.is_none() {
            inner.over_since = Some(Instant::now());
        }
    }

    /// True if the peer was cut off: the daemon's budget is used up, and it had most of it.
    pub fn was_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// Sees to it that the daemon's budget has this many more bytes for the peer. `false`: it has
    /// not, since what is held for the peer's tenant is most.
    pub fn make_room(&self, length: usize) -> bool {
        let has_room = self.budget.take(length, self);
        if has_room {
            self.budget.give_back(length);
        }
        has_room
    }

    /// Since when the peer has been over its budget without a break.
    pub fn over_since(&self) -> Option<Instant> {
        self.inner.lock().over_since
    }

    /// Bytes not yet written.
    pub fn queued(&self) -> usize {
        self.inner.lock().queued
    }

    /// Takes no more; [`Outbox::drive`] ends when everything is written.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        self.tell(inner);
    }

    /// True if it takes no more and there is nothing left to be taken out.
    pub fn is_over(&self) -> bool {
        let inner = self.inner.lock();
        inner.closed && inner.is_empty()
    }

    /// True if what was queued was forgotten.
    pub fn is_discarded(&self) -> bool {
        self.inner.lock().broken
    }

    /// Wakes who writes or takes.
    fn tell(&self, mut inner: MutexGuard<'_, OutboxInner>) {
        let taker = inner.taker.take();
        drop(inner);
        self.work.notify_one();
        if let Some(taker) = taker {
            taker.wake();
        }
    }

    /// Takes no more and forgets what is queued.
    pub fn discard(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.broken = true;
        self.forget(&mut inner);
        self.tell(inner);
    }

    fn forget(&self, inner: &mut OutboxInner) {
        self.budget.give_back(inner.counted + inner.kept);
        (inner.queued, inner.counted, inner.kept) = (0, 0, 0);
        inner.ready.clear();
        inner.tail = BytesMut::new();
        inner.frames = 0;
        self.note(inner);
    }

    /// Writes what is queued, and what will be, until the queue is closed and empty, discarded, or
    /// the peer is gone. The writer is shut down at the end.
    ///
    /// # Errors
    /// What the system says: the peer is gone.
    pub async fn drive(&self, io: impl AsyncWrite + Unpin + Send + 'static) -> io::Result<()> {
        self.inner.lock().to = Some(Sink(Box::new(io)));
        let result = loop {
            tokio::select! {
                biased;
                result = poll_fn(|context| self.poll_write(context)) => break result,
                () = self.work.notified() => {}
            }
        };
        self.discard();
        let io = self.inner.lock().to.take();
        if let Some(mut io) = io {
            // A peer that is gone cannot be shut down; that it is gone is what `result` says.
            let _ = io.0.shutdown().await;
        }
        result
    }

    /// Takes what is queued, in order; nothing once the queue is closed and empty, or discarded.
    /// Who got something asks again until there is nothing to take: only then it is woken for more.
    pub fn poll_taken(self: &Arc<Outbox>, context: &mut Context<'_>) -> Poll<Option<OutboxBatch>> {
        let mut inner = self.inner.lock();
        if inner.is_empty() || inner.broken {
            if inner.closed {
                return Poll::Ready(None);
            }
            inner.waits = false;
            inner.taker = Some(context.waker().clone());
            return Poll::Pending;
        }
        inner.end_tail();
        let (mut queued, mut counted) = (0, 0);
        let ready = std::mem::take(&mut inner.ready).into_iter();
        let pieces = ready.map(|piece| {
            queued += piece.bytes.len();
            counted += if piece.counted { piece.bytes.len() } else { 0 };
            piece.bytes
        });
        Poll::Ready(Some(OutboxBatch {
            pieces: pieces.collect(),
            frames: std::mem::take(&mut inner.frames),
            charge: Charge {
                outbox: self.clone(),
                queued,
                counted,
            },
        }))
    }

    /// Accounts for pieces that were taken and are gone.
    fn taken_is_gone(&self, queued: usize, counted: usize) {
        let mut inner = self.inner.lock();
        // Of a queue that was discarded everything was given back then.
        let counted = counted.min(inner.counted);
        inner.queued = inner.queued.saturating_sub(queued);
        inner.counted -= counted;
        self.note(&mut inner);
        drop(inner);
        self.budget.give_back(counted);
    }

    /// Ready when there is nothing more to write, ever.
    fn poll_write(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner.lock();
        if inner.broken {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = inner.failed.take() {
            return Poll::Ready(Err(error));
        }
        let (done, counted) = inner.write(context);
        inner.waits = done.is_pending();
        self.note(&mut inner);
        let over = inner.closed && done.is_ready();
        drop(inner);
        self.budget.give_back(counted);
        match done {
            Poll::Ready(Ok(())) if !over => Poll::Pending,
            done => done,
        }
    }
}

impl BudgetHolder for Outbox {
    fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed) + self.in_flight.load(Ordering::Relaxed)
    }

    fn cut_off(&self) {
        self.cut_off.store(true, Ordering::Relaxed);
        self.discard();
        // Its calls are cancelled as soon as its connection sees that.
        self.budget
            .give_back(self.in_flight.swap(0, Ordering::Relaxed));
    }
}

impl OutboxInner {
    /// Writes until nothing is left or the peer takes no more; tells how many bytes that the queue
    /// had counted are gone.
    fn write(&mut self, context: &mut Context<'_>) -> (Poll<io::Result<()>>, usize) {
        let before = self.counted;
        let done = self.write_all(context);
        (done, before - self.counted)
    }

    fn write_all(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.queued > 0 {
            let Some(to) = &mut self.to else {
                return Poll::Pending;
            };
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let pieces = self
                .ready
                .iter()
                .map(|piece| &piece.bytes[..])
                .chain([&self.tail[..]]);
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(pieces) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            let written = std::task::ready!(
                Pin::new(&mut to.0).poll_write_vectored(context, &slices[..count])
            )?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.wrote(written);
        }
        keep_spare(std::mem::take(&mut self.tail));
        Poll::Ready(Ok(()))
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.tail.is_empty()
    }

    fn wrote(&mut self, written: usize) {
        self.queued -= written;
        let mut rest = written;
        while let Some(front) = self.ready.front_mut().filter(|_| rest > 0) {
            let step = rest.min(front.bytes.len());
            front.bytes.advance(step);
            rest -= step;
            if front.counted {
                self.counted -= step;
            }
            if front.bytes.is_empty() {
                self.ready.pop_front();
            }
        }
        if rest == self.tail.len() {
            // Not moved forward: the whole buffer is there for the next frames.
            self.tail.clear();
        } else {
            self.tail.advance(rest);
        }
        self.counted -= rest;
    }

    fn end_tail(&mut self) {
        let bytes = self.tail.split().freeze();
        if !bytes.is_empty() {
            self.ready.push_back(QueuedPiece {
                bytes,
                counted: true,
            });
        }
    }

    fn by_reference(&mut self, bytes: Bytes, counted: bool) {
        self.end_tail();
        self.ready.push_back(QueuedPiece { bytes, counted });
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        let held = inner.counted + inner.kept + *self.in_flight.get_mut();
        self.budget.give_back(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn outbox(limit: usize) -> (Arc<Outbox>, Arc<ByteBudget>) {
        let budget = Arc::new(ByteBudget::default());
        (Outbox::new(limit, budget.clone()), budget)
    }

    #[tokio::test]
    async fn writes_in_order_and_ends_when_closed() {
        let (outbox, budget) = outbox(1 << 20);
        let big = Bytes::from(vec![b'x'; 3 * BY_REFERENCE]);
        let mut edits = Edits::new();
        edits.replace(0..1, "[");
        edits.replace(2 * BY_REFERENCE..2 * BY_REFERENCE + 1, "]");
        assert!(outbox.push(b"first"));
        assert!(outbox.push_edited(&big, &edits));
        assert!(outbox.push(b"last"));
        assert_eq!(budget.queued(), outbox.queued());
        outbox.close();
        assert!(!outbox.push(b"late"));
        let (near, mut far) = tokio::io::duplex(100);
        let mut got = Vec::new();
        let (written, read) = tokio::join!(outbox.drive(near), far.read_to_end(&mut got));
        written.unwrap();
        read.unwrap();
        let mut wanted = b"first\n".to_vec();
        wanted.extend(edits.apply(&big));
        wanted.extend_from_slice(b"\nlast\n");
        assert!(got == wanted);
        assert_eq!(budget.queued(), 0);
    }

    #[tokio::test]
    async fn what_is_queued_is_written_at_once_and_what_is_queued_together_in_one_go() {
        struct Writes(Arc<Mutex<Vec<Vec<u8>>>>);
        impl AsyncWrite for Writes {
            fn poll_write(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.0.lock().push(bytes.to_vec());
                Poll::Ready(Ok(bytes.len()))
            }
            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }
        let (outbox, budget) = outbox(1 << 20);
        let writes = Arc::new(Mutex::new(Vec::new()));
        let writer = Writes(writes.clone());
        let driver = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.drive(writer).await }
        });
        tokio::task::yield_now().await;
        outbox.push(b"a");
        assert_eq!(writes.lock().concat(), b"a\n");
        together(|| {
            outbox.push(b"b");
            together(|| outbox.push(b"c"));
            outbox.push(b"d");
            assert_eq!(writes.lock().len(), 1);
        });
        assert_eq!(writes.lock()[1], b"b\nc\nd\n");
        assert_eq!((outbox.queued(), budget.queued()), (0, 0));
        outbox.close();
        driver.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn knows_since_when_a_peer_is_behind() {
        let (outbox, budget) = outbox(10);
        let (near, mut far) = tokio::io::duplex(4);
        let driver = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.drive(near).await }
        });
        outbox.push(b"123456789012345");
        let since = outbox.over_since().unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        assert_eq!(outbox.over_since(), Some(since));
        let mut read = [0; 8];
        far.read_exact(&mut read).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(outbox.over_since(), None);
        outbox.discard();
        driver.await.unwrap().unwrap();
        assert_eq!(budget.queued(), 0);
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_ends_the_writer() {
        let (outbox, budget) = outbox(10);
        let (near, far) = tokio::io::duplex(4);
        drop(far);
        outbox.push(b"lost");
        assert!(outbox.drive(near).await.is_err());
        assert!(!outbox.push(b"more"));
        assert_eq!(budget.queued(), 0);
    }

    #[tokio::test]
    async fn what_many_get_costs_its_bytes_once() {
        let budget = Arc::new(ByteBudget::new(10 << 20));
        let outbox = Outbox::charged(20 << 20, &budget, Tenant::Person(1));
        let list = outbox.share(vec![b'x'; 4 << 20]).unwrap();
        for _ in 0..250 {
            assert!(outbox.push_shared(b"[", &list, b"]"));
        }
        assert_eq!(outbox.queued(), 250 * ((4 << 20) + 3));
        assert!(outbox.over_since().is_some());
        assert_eq!(budget.queued(), (4 << 20) + 250 * 3);
        let (near, mut far) = tokio::io::duplex(1 << 20);
        outbox.close();
        drop(list);
        let mut got = vec![0; 1 << 20];
        let (mut sum, mut at_most) = (0, 0);
        let read = async {
            while let Ok(length @ 1..) = far.read(&mut got).await {
                sum += length;
                at_most = at_most.max(budget.queued());
            }
        };
        let (written, ()) = tokio::join!(outbox.drive(near), read);
        written.unwrap();
        assert_eq!((sum, budget.queued()), (250 * ((4 << 20) + 3), 0));
        assert!(at_most <= (4 << 20) + 250 * 3);
    }

    #[test]
    fn who_holds_most_is_cut_off_before_the_budget_is_exceeded() {
        let budget = Arc::new(ByteBudget::new(1 << 20));
        let of = |uid| Outbox::charged(1 << 30, &budget, Tenant::Person(uid));
        let (greedy, other) = (of(1), of(2));
        assert!(greedy.push(&[b'x'; 600 << 10]));
        // The next frame is not queued first and counted then.
        assert!(other.push(&[b'x'; 500 << 10]));
        assert!(budget.queued() <= 1 << 20);
        assert!(greedy.was_cut_off() && !other.was_cut_off());
        assert!(!greedy.push(b"more"));
        // Who would itself have most is not queued at another's cost.
        let third = of(3);
        assert!(!third.push(&[b'x'; 700 << 10]));
        assert!(third.was_cut_off() && !other.was_cut_off());
        // A little is everybody's.
        assert!(other.push(&[b'x'; 400 << 10]));
        let fourth = of(4);
        assert!(fourth.push(&[b'x'; 60 << 10]) && fourth.push(b"x"));
        drop((greedy, other, third, fourth));
        assert_eq!(budget.queued(), 0);
    }

    #[test]
    fn messages_in_flight_count_and_who_holds_most_is_cut_off_for_them() {
        let budget = Arc::new(ByteBudget::new(1 << 20));
        let of = |uid| Outbox::charged(10, &budget, Tenant::Person(uid));
        let (greedy, other) = (of(1), of(2));
        for _ in 0..6 {
            assert!(greedy.hold(100 << 10));
        }
        // What is in flight is not what the peer does not read.
        assert_eq!((budget.queued(), greedy.over_since()), (600 << 10, None));
        assert!(other.hold(300 << 10));
        // Who would itself have most gets no room at another's cost, and stays.
        assert!(!other.hold(500 << 10) && !greedy.was_cut_off() && !other.was_cut_off());
        assert!(other.hold(200 << 10));
        assert!(greedy.was_cut_off() && !other.was_cut_off() && !greedy.hold(1));
        assert_eq!(budget.queued(), 500 << 10);
        // The calls of the one that was cut off end later, and give nothing back twice.
        (0..6).for_each(|_| greedy.let_go(100 << 10));
        assert_eq!(budget.queued(), 500 << 10);
        other.let_go(300 << 10);
        other.let_go(200 << 10);
        assert_eq!(budget.queued(), 0);
    }

    #[test]
    fn what_a_peer_began_to_say_counts_as_what_is_queued() {
        let budget = Arc::new(ByteBudget::new(1 << 20));
        let lines: Vec<_> = (0..30)
            .map(|uid| Outbox::charged(1 << 30, &budget, Tenant::Person(uid)))
            .collect();
        for (index, line) in lines.iter().enumerate() {
            let mut before = 0;
            for now in [100 << 10, 200 << 10, (200 << 10) + index] {
                if line.keep(before, now) {
                    before = now;
                }
                assert!(budget.queued() <= 1 << 20);
            }
        }
        assert!(lines.iter().filter(|line| line.was_cut_off()).count() >= 25);
        let quiet = Outbox::charged(10, &budget, Tenant::Person(30));
        assert!(quiet.keep(0, 11) && quiet.over_since().is_some());
        assert!(quiet.keep(11, 0) && quiet.over_since().is_none());
        drop((lines, quiet));
        assert_eq!(budget.queued(), 0);
    }

    fn agent(person: u32, session: &str) -> Tenant {
        let session = session.into();
        Tenant::Agent { person, session }
    }

    #[test]
    fn who_has_most_in_many_small_queues_is_cut_off_and_nobody_else() {
        let budget = Arc::new(ByteBudget::new(1 << 20));
        let of = |tenant| Outbox::charged(1 << 30, &budget, tenant);
        let many: Vec<_> = (0..12).map(|_| of(Tenant::Person(1))).collect();
        assert!(many.iter().all(|one| one.keep(0, 80 << 10)));
        // Its one queue is longer than any of theirs, and it has less than they have.
        let other = of(Tenant::Person(2));
        for _ in 0..4 {
            assert!(other.push(&[b'x'; 100 << 10]) && budget.queued() <= 1 << 20);
        }
        let cut_off =
            |queues: &[Arc<Outbox>]| queues.iter().filter(|one| one.was_cut_off()).count();
        assert!(cut_off(&many) >= 4 && !other.was_cut_off());
        // Who asks and has most loses the largest of their own; whoever has less loses nothing,
        // however many they are.
        let third = of(Tenant::Person(3));
        assert!(third.push(&[b'x'; 70 << 10]));
        let before = cut_off(&many);
        let more = of(Tenant::Person(2));
        assert!(more.hold(200 << 10));
        assert!(other.was_cut_off() && !third.was_cut_off() && !more.was_cut_off());
        assert_eq!(cut_off(&many), before);
        drop((many, other, third, more));
        assert_eq!(budget.queued(), 0);
    }

    #[test]
    fn an_agents_worst_costs_the_agent_and_then_its_person_and_nobody_else() {
        let budget = Arc::new(ByteBudget::new(1 << 20));
        let of = |tenant| Outbox::charged(1 << 30, &budget, tenant);
        let (person, quiet) = (of(Tenant::Person(1)), of(agent(1, "quiet")));
        assert!(person.hold(200 << 10) && quiet.hold(70 << 10));
        let greedy: Vec<_> = (0..7).map(|_| of(agent(1, "greedy"))).collect();
        assert!(greedy.iter().all(|one| one.hold(100 << 10)));
        // The person asks for more: the agents together have most, and of them the one that does.
        assert!(person.hold(100 << 10));
        assert!(
            greedy.iter().any(|one| one.was_cut_off())
                && !quiet.was_cut_off()
                && !person.was_cut_off()
        );
        // Another person asks: it costs the same agent.
        let other = of(Tenant::Person(2));
        assert!(other.hold(300 << 10));
        assert!(!quiet.was_cut_off() && !person.was_cut_off() && !other.was_cut_off());
        // An agent that asks takes nothing of its person's, and nothing of another's.
        let last = greedy.iter().find(|one| !one.was_cut_off()).unwrap();
        assert!(!last.hold(900 << 10) && !person.was_cut_off() && !other.was_cut_off());
        // A server that a person's calls had started is theirs; one that all share is an account of
        // its own.
        let server = |person| Tenant::Server {
            id: "s".into(),
            person,
        };
        drop((quiet, greedy));
        let (theirs, shared) = (of(server(Some(1))), of(server(None)));
        assert!(theirs.keep(0, 320 << 10) && shared.keep(0, 150 << 10));
        assert!(theirs.was_cut_off() && !shared.was_cut_off() && !person.was_cut_off());
        drop((person, other, theirs, shared));
        assert_eq!(budget.queued(), 0);
    }

    #[test]
    fn lists_that_nobody_reads_cost_who_asked_for_them() {
        let budget = Arc::new(ByteBudget::new(1 << 20));
        let of = |uid| Outbox::charged(1 << 30, &budget, Tenant::Person(uid));
        let unread: Vec<_> = (0..20).map(|_| of(1)).collect();
        let other = of(2);
        assert!(other.hold(150 << 10));
        for one in &unread {
            let list = one.share(vec![b'x'; 90 << 10]).unwrap();
            assert!(one.push_shared(b"[", &list, b"]"));
            drop(list);
            assert!(budget.queued() <= 1 << 20);
        }
        assert!(other.hold(150 << 10) && !other.was_cut_off());
        assert!(unread.iter().filter(|one| one.was_cut_off()).count() >= 11);
        drop((unread, other));
        assert_eq!(budget.queued(), 0);
    }

    /// The pieces that can be taken at once, if there are any.
    fn take(outbox: &Arc<Outbox>) -> Poll<Option<OutboxBatch>> {
        outbox.poll_taken(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_is_taken_comes_in_order_and_counts_until_it_is_gone() {
        let (outbox, budget) = outbox(1 << 20);
        let big = Bytes::from(vec![b'x'; 3 * BY_REFERENCE]);
        assert!(take(&outbox).is_pending());
        outbox.push(b"first");
        outbox.push_edited(&big, &Edits::new());
        outbox.push(b"last");
        let queued = outbox.queued();
        let Poll::Ready(Some(taken)) = take(&outbox) else {
            panic!("nothing taken");
        };
        assert_eq!(taken.frames, 3);
        assert_eq!(
            taken.pieces.concat(),
            [b"first\n", &big[..], b"\nlast\n"].concat()
        );
        assert!(
            taken
                .pieces
                .iter()
                .any(|piece| piece.as_ptr() == big.as_ptr()),
            "by reference"
        );
        assert!(take(&outbox).is_pending() && !outbox.is_over());
        assert_eq!((outbox.queued(), budget.queued()), (queued, queued));
        outbox.close();
        assert!(outbox.is_over() && matches!(take(&outbox), Poll::Ready(None)));
        drop(taken);
        assert_eq!((outbox.queued(), budget.queued()), (0, 0));
    }

    #[test]
    fn what_was_taken_from_a_queue_that_is_discarded_is_given_back_once() {
        let (outbox, budget) = outbox(1 << 20);
        outbox.push(b"first");
        let taken = take(&outbox);
        outbox.push(b"second");
        outbox.discard();
        assert_eq!(budget.queued(), 0);
        assert!(matches!(take(&outbox), Poll::Ready(None)));
        drop(taken);
        assert_eq!((outbox.queued(), budget.queued()), (0, 0));
    }

    #[tokio::test]
    async fn who_takes_is_woken_by_the_next_frame_and_by_the_end() {
        let (outbox, _) = outbox(1 << 20);
        let taker = tokio::spawn({
            let outbox = outbox.clone();
            async move {
                let mut frames = 0;
                while let Some(taken) = poll_fn(|context| outbox.poll_taken(context)).await {
                    frames += taken.frames;
                }
                frames
            }
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
            outbox.push(b"one");
            together(|| {
                outbox.push(b"two");
                outbox.push(b"three");
            });
        }
        tokio::task::yield_now().await;
        outbox.close();
        assert_eq!(taker.await.unwrap(), 30);
    }
}

//! Writing frames: one first-in-first-out queue per direction, bounded in bytes, drained by one writer.
//!
//! Pushing never waits, so that nobody is held up by a peer that does not read. What is queued is counted: for the
//! peer, whose owner disconnects it when it stays over its budget, and for the whole daemon.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::Instant;

use colibri_wire::splice::Edits;

/// Pieces of a frame from this size on are queued by reference, smaller ones are copied together.
const BY_REFERENCE: usize = 8 * 1024;
/// The most pieces handed to one writev(2).
const MOST_SLICES: usize = 64;

/// Bytes that are queued in all outboxes of a daemon.
#[derive(Debug, Default)]
pub struct Budget {
    queued: AtomicUsize,
    /// Bytes from which on somebody has to look.
    mark: usize,
    above: Notify,
}

impl Budget {
    /// A budget whose [`Budget::above`] tells when more than `mark` bytes are queued.
    pub fn new(mark: usize) -> Budget {
        Budget {
            mark,
            ..Budget::default()
        }
    }

    fn add(&self, length: usize) {
        if self.queued.fetch_add(length, Ordering::Relaxed) + length > self.mark {
            self.above.notify_one();
        }
    }

    /// Waits until more than the mark is queued.
    pub async fn above(&self) {
        self.above.notified().await;
    }

    /// Bytes queued now.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }
}

/// The queue towards one peer.
#[derive(Debug)]
pub struct Outbox {
    inner: Mutex<Inner>,
    work: Notify,
    budget: Arc<Budget>,
    /// Bytes over which the peer is too far behind.
    limit: usize,
}

#[derive(Debug, Default)]
struct Inner {
    ready: VecDeque<Bytes>,
    tail: BytesMut,
    /// Bytes pushed and not yet written.
    queued: usize,
    over_since: Option<Instant>,
    closed: bool,
    broken: bool,
}

impl Outbox {
    /// An empty queue, over its budget above `limit` bytes.
    pub fn new(limit: usize, budget: Arc<Budget>) -> Outbox {
        Outbox {
            inner: Mutex::default(),
            work: Notify::new(),
            budget,
            limit,
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Queues a frame; its line end is added. `false`: the queue is closed, the frame goes nowhere.
    pub fn push(&self, frame: &[u8]) -> bool {
        self.put(frame.len() + 1, |inner| {
            inner.tail.extend_from_slice(frame);
            inner.tail.extend_from_slice(b"\n");
        })
    }

    /// Queues an edited frame; what stays of it is not copied where it is large.
    pub fn push_edited(&self, frame: &Bytes, edits: &Edits) -> bool {
        self.put(edits.edited_length(frame.len()) + 1, |inner| {
            edits.pieces(frame.len(), |piece| match piece {
                Ok(range) if range.len() >= BY_REFERENCE => {
                    let tail = inner.tail.split().freeze();
                    if !tail.is_empty() {
                        inner.ready.push_back(tail);
                    }
                    inner.ready.push_back(frame.slice(range));
                }
                Ok(range) => inner.tail.extend_from_slice(&frame[range]),
                Err(with) => inner.tail.extend_from_slice(with),
            });
            inner.tail.extend_from_slice(b"\n");
        })
    }

    fn put(&self, length: usize, write: impl FnOnce(&mut Inner)) -> bool {
        let mut inner = self.inner();
        if inner.closed || inner.broken {
            return false;
        }
        let wake = inner.queued == 0;
        write(&mut inner);
        inner.queued += length;
        self.budget.add(length);
        if inner.queued > self.limit && inner.over_since.is_none() {
            inner.over_since = Some(Instant::now());
        }
        drop(inner);
        if wake {
            self.work.notify_one();
        }
        true
    }

    /// Since when the peer has been over its budget without a break.
    pub fn over_since(&self) -> Option<Instant> {
        self.inner().over_since
    }

    /// Bytes not yet written.
    pub fn queued(&self) -> usize {
        self.inner().queued
    }

    /// Takes no more; [`Outbox::drive`] ends when everything is written.
    pub fn close(&self) {
        self.inner().closed = true;
        self.work.notify_one();
    }

    /// Takes no more and forgets what is queued.
    pub fn discard(&self) {
        let mut inner = self.inner();
        inner.closed = true;
        inner.broken = true;
        self.forget(&mut inner);
        drop(inner);
        self.work.notify_one();
    }

    fn forget(&self, inner: &mut Inner) {
        self.budget.queued.fetch_sub(inner.queued, Ordering::Relaxed);
        inner.queued = 0;
        inner.ready.clear();
        inner.tail = BytesMut::new();
    }

    /// Writes what is queued until the queue is closed and empty, discarded, or the peer is gone. The writer is shut
    /// down at the end.
    pub async fn drive(&self, mut io: impl AsyncWrite + Unpin) -> std::io::Result<()> {
        let result = self.write_all(&mut io).await;
        self.discard();
        // A peer that is gone cannot be shut down; that it is gone is what `result` says.
        let _ = io.shutdown().await;
        result
    }

    async fn write_all(&self, io: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        let mut batch: VecDeque<Bytes> = VecDeque::new();
        loop {
            if batch.is_empty() {
                let closed = self.take(&mut batch);
                if batch.is_empty() {
                    io.flush().await?;
                    if closed {
                        return Ok(());
                    }
                    self.work.notified().await;
                    continue;
                }
            }
            let slices: Vec<IoSlice<'_>> = batch
                .iter()
                .take(MOST_SLICES)
                .map(|bytes| IoSlice::new(bytes))
                .collect();
            let written = tokio::select! {
                biased;
                () = self.discarded() => return Ok(()),
                written = io.write_vectored(&slices) => written?,
            };
            if written == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            let mut rest = written;
            while rest > 0 {
                let Some(front) = batch.front_mut() else {
                    break;
                };
                let step = rest.min(front.len());
                front.advance(step);
                rest -= step;
                if front.is_empty() {
                    batch.pop_front();
                }
            }
            if !self.wrote(written) {
                return Ok(());
            }
        }
    }

    /// Moves what is queued into an empty batch; tells whether the queue is closed.
    fn take(&self, batch: &mut VecDeque<Bytes>) -> bool {
        let mut inner = self.inner();
        std::mem::swap(batch, &mut inner.ready);
        let tail = inner.tail.split().freeze();
        if tail.is_empty() {
            // An idle peer costs no buffer.
            inner.tail = BytesMut::new();
        } else {
            batch.push_back(tail);
        }
        inner.closed
    }

    /// Counts bytes as written; `false` if the queue was discarded meanwhile.
    fn wrote(&self, written: usize) -> bool {
        let mut inner = self.inner();
        if inner.broken {
            return false;
        }
        inner.queued -= written;
        if inner.queued <= self.limit {
            inner.over_since = None;
        }
        self.budget.queued.fetch_sub(written, Ordering::Relaxed);
        true
    }

    /// Waits until the queue is discarded.
    async fn discarded(&self) {
        while !self.inner().broken {
            self.work.notified().await;
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let queued = self.inner().queued;
        self.budget.queued.fetch_sub(queued, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn outbox(limit: usize) -> (Arc<Outbox>, Arc<Budget>) {
        let budget = Arc::new(Budget::default());
        (Arc::new(Outbox::new(limit, budget.clone())), budget)
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
}

//! The tap: a view of the messages between the daemon and a server.
//!
//! What nobody watches costs one relaxed atomic load a frame. What somebody watches is handed over
//! as it is, to be redacted and shown elsewhere: into a queue with a limit, beyond which frames are
//! dropped and counted, so that who watches slowly, or not at all, holds up nobody.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::relay::Call;
pub use colibri_api::Direction;
use colibri_wire::json::string;

/// The most taps of one server at one time.
pub(crate) const MAX_TAPS: usize = 8;
/// The most frames that wait for one tap.
const MAX_FRAMES: usize = 1024;
/// The most bytes that wait for one tap; a single frame may be longer.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Frames handed out together, so that a part of a burst can be shown while the rest comes.
const MAX_TOGETHER: usize = 64;
/// Shorter frames are copied: a few bytes must not keep a large read buffer alive.
const COPIED: usize = 64 * 1024;

/// Bytes of an id, and characters of a name, that are kept: clients and servers choose them, and
/// they are no part of what a queue counts.
const MAX_KEPT: usize = 256;

fn kept(name: &str) -> String {
    name.chars().take(MAX_KEPT).collect()
}

/// The user of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapCaller {
    /// The client's connection.
    pub connection: u64,
    /// The user.
    pub uid: u32,
    /// The client's process, where the system tells.
    pub pid: Option<i32>,
    /// The client's id of the call, as JSON.
    pub id: Box<str>,
    /// The method.
    pub method: String,
    /// The server's own name of the tool.
    pub tool: Option<String>,
}

impl TapCaller {
    /// The caller of a call.
    pub fn of(call: &Call) -> TapCaller {
        let to = call.target.description();
        TapCaller {
            connection: call.client.session.number,
            uid: call.client.caller.uid,
            pid: call.client.caller.pid,
            id: match call.id_text().len() {
                ..=MAX_KEPT => call.id_text().into(),
                length => string(&format!("[an id of {length} bytes]")).into(),
            },
            method: kept(call.method.map_or(&*to.operation, |method| method.as_str())),
            tool: call.method.map(|_| kept(&to.operation)),
        }
    }
}

/// A frame that passed.
#[derive(Debug, Clone)]
pub struct TappedFrame {
    /// The time.
    pub time: SystemTime,
    /// The direction.
    pub direction: Direction,
    /// The daemon's number of the process.
    pub process: u64,
    /// The process id, of the server or of the one that watches it.
    pub pid: u32,
    /// The frame; empty where it was too long to be read.
    pub frame: Bytes,
    /// Its bytes.
    pub length: u64,
    /// The daemon's number of the call that it sends, and whose call that is.
    pub call: Option<(u64, TapCaller)>,
}

/// The taps of one server.
#[derive(Debug, Default)]
pub struct Taps {
    watched: AtomicBool,
    queues: Mutex<Vec<Arc<TapQueue>>>,
}

#[derive(Debug, Default)]
struct TapQueue {
    waiting: Mutex<QueuedFrame>,
    work: Notify,
}

#[derive(Debug, Default)]
struct QueuedFrame {
    frames: VecDeque<TappedFrame>,
    bytes: usize,
    dropped: u64,
    ended: Option<&'static str>,
}

/// The frames since the last look.
#[derive(Debug, Default)]
pub struct TapBatch {
    /// Frames in the order in which they passed.
    pub frames: Vec<TappedFrame>,
    /// Frames that passed behind these and were dropped.
    pub dropped: u64,
    /// The reason for which there will be no more, if there is one.
    pub ended: Option<&'static str>,
}

impl TapQueue {
    fn put(&self, seen: TappedFrame) {
        let mut waiting = self.waiting.lock();
        let held = seen.frame.len();
        let full = waiting.frames.len() >= MAX_FRAMES || waiting.bytes + held > MAX_BYTES;
        // Once a frame was dropped the rest of the burst is, too: so a gap is one gap, and its
        // place is known.
        if (full && !waiting.frames.is_empty()) || waiting.dropped > 0 {
            waiting.dropped += 1;
        } else {
            waiting.bytes += held;
            waiting.frames.push_back(seen);
        }
        drop(waiting);
        self.work.notify_one();
    }
}

impl Taps {
    /// True if anybody watches.
    pub(crate) fn is_watched(&self) -> bool {
        // What somebody who only just begins to watch misses is over in any order.
        self.watched.load(Ordering::Relaxed)
    }

    /// Shows a frame to all who watch, if there are any. Never waits for one of them.
    pub fn see(&self, mut seen: TappedFrame) {
        if !self.is_watched() {
            return;
        }
        if seen.frame.len() < COPIED {
            seen.frame = Bytes::copy_from_slice(&seen.frame);
        }
        let queues = self.queues.lock();
        for queue in queues.iter() {
            queue.put(seen.clone());
        }
    }

    /// Begins to watch. `None`: `MAX_TAPS` do already.
    pub fn open(self: &Arc<Self>) -> Option<Tap> {
        let queue = Arc::new(TapQueue::default());
        let mut queues = self.queues.lock();
        if queues.len() >= MAX_TAPS {
            return None;
        }
        queues.push(queue.clone());
        self.watched.store(true, Ordering::Relaxed);
        drop(queues);
        Some(Tap {
            taps: self.clone(),
            queue,
        })
    }

    /// Ends all taps, for this reason.
    pub fn close(&self, why: &'static str) {
        for queue in self.queues.lock().iter() {
            queue.waiting.lock().ended.get_or_insert(why);
            queue.work.notify_one();
        }
    }
}

/// One who watches; until it is dropped.
#[derive(Debug)]
pub struct Tap {
    taps: Arc<Taps>,
    queue: Arc<TapQueue>,
}

impl Tap {
    /// Waits until there is something to show, and takes it.
    pub async fn next(&self) -> TapBatch {
        loop {
            let batch = self.take();
            if !batch.frames.is_empty() || batch.dropped > 0 || batch.ended.is_some() {
                return batch;
            }
            self.queue.work.notified().await;
        }
    }

    fn take(&self) -> TapBatch {
        let mut waiting = self.queue.waiting.lock();
        let count = waiting.frames.len().min(MAX_TOGETHER);
        let frames: Vec<TappedFrame> = waiting.frames.drain(..count).collect();
        waiting.bytes -= frames.iter().map(|seen| seen.frame.len()).sum::<usize>();
        let all = waiting.frames.is_empty();
        TapBatch {
            frames,
            dropped: if all {
                std::mem::take(&mut waiting.dropped)
            } else {
                0
            },
            ended: waiting.ended.filter(|_| all),
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let mut queues = self.taps.queues.lock();
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        self.taps
            .watched
            .store(!queues.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(length: usize) -> TappedFrame {
        TappedFrame {
            time: SystemTime::now(),
            direction: Direction::FromServer,
            process: 1,
            pid: 1,
            frame: Bytes::from(vec![b'x'; length]),
            length: length as u64,
            call: None,
        }
    }

    #[tokio::test]
    async fn frames_beyond_the_limit_are_counted_where_they_are_missing() {
        let taps = Arc::new(Taps::default());
        let tap = taps.open().unwrap();
        for _ in 0..MAX_FRAMES + 10 {
            taps.see(seen(1));
        }
        let (mut frames, mut dropped) = (0, 0);
        while dropped == 0 {
            let batch = tap.next().await;
            assert!(batch.frames.len() <= MAX_TOGETHER);
            (frames, dropped) = (frames + batch.frames.len(), batch.dropped);
        }
        assert_eq!((frames, dropped), (MAX_FRAMES, 10));
        taps.see(seen(1));
        let batch = tap.next().await;
        assert_eq!(
            (batch.frames.len(), batch.dropped, batch.ended),
            (1, 0, None)
        );
    }

    #[tokio::test]
    async fn bytes_are_bounded_and_one_long_frame_is_still_seen() {
        let taps = Arc::new(Taps::default());
        let tap = taps.open().unwrap();
        taps.see(seen(2 * MAX_BYTES));
        taps.see(seen(1));
        assert_eq!(tap.queue.waiting.lock().bytes, 2 * MAX_BYTES);
        let batch = tap.next().await;
        assert_eq!((batch.frames.len(), batch.dropped), (1, 1));
        assert_eq!(tap.queue.waiting.lock().bytes, 0);
    }

    #[tokio::test]
    async fn nothing_is_watched_before_and_after() {
        let taps = Arc::new(Taps::default());
        assert!(!taps.is_watched());
        let all: Vec<Tap> = (0..MAX_TAPS).map(|_| taps.open().unwrap()).collect();
        assert!(taps.open().is_none() && taps.is_watched());
        taps.close("gone");
        assert_eq!(all[0].next().await.ended, Some("gone"));
        drop(all);
        assert!(!taps.is_watched());
    }
}

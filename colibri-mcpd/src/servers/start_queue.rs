//! The queue of a server's starts.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The queue of a server's starts, in the order in which they came.
#[derive(Default)]
pub(super) struct StartQueue {
    first: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

/// One start in the queue, until it is dropped.
struct QueuedStart<'a>(&'a StartQueue);

impl Drop for QueuedStart<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl StartQueue {
    /// True if no start waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Waits until this start is the first of the queue, does `work`, and leaves the queue.
    pub(super) async fn as_first<T>(&self, work: impl Future<Output = T>) -> T {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _queued = QueuedStart(self);
        let _first = self.first.lock().await;
        work.await
    }
}

//! A message of a peer while it is in memory: from its first bytes until it is whole, or until it
//! is done with.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::outbox::Outbox;

/// The bytes of a message that is not done with. They count as those of the peer that sends it, to
/// which nothing is queued.
#[derive(Debug)]
pub struct PartialMessage {
    outbox: Arc<Outbox>,
    bytes: usize,
}

impl PartialMessage {
    /// A message of which nothing has come.
    pub fn new(outbox: &Arc<Outbox>) -> PartialMessage {
        PartialMessage {
            outbox: outbox.clone(),
            bytes: 0,
        }
    }

    /// Notes that so many bytes are kept. `false`: there is no room for them, and the peer was cut
    /// off.
    pub fn grow(&mut self, to: usize) -> bool {
        let before = std::mem::replace(&mut self.bytes, to);
        before == to || self.outbox.keep(before, to)
    }

    /// Ready when the peer was cut off.
    pub fn poll_cut_off(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.outbox.poll_taken(context) {
            Poll::Ready(None) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

impl Drop for PartialMessage {
    fn drop(&mut self) {
        self.outbox.keep(self.bytes, 0);
    }
}

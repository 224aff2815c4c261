//! A message that has begun to come and is kept until it is whole.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::outbox::Outbox;

/// The bytes of a message that has not ended. They count as those of the peer that sends it, to which nothing is queued.
#[derive(Debug)]
pub struct Unfinished<'o> {
    outbox: &'o Arc<Outbox>,
    bytes: usize,
}

impl Unfinished<'_> {
    /// A message of which nothing has come.
    pub fn new(outbox: &Arc<Outbox>) -> Unfinished<'_> {
        Unfinished { outbox, bytes: 0 }
    }

    /// Notes that so many bytes are kept. `false`: there is no room for them, and the peer was cut off.
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

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.outbox.keep(self.bytes, 0);
    }
}

//! Calls that wait: for their cancellation, or for a person.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::call::{Call, Chain};
use super::call_outcome::CallOutcome;
use super::client::CancelReason;

/// A call that waits. Its cancellation ends it, whatever it waits for.
pub struct SuspendedCall {
    chain: Arc<Chain>,
    call: Mutex<Option<Box<Call>>>,
    over: Notify,
}

impl SuspendedCall {
    /// Keeps a call until it is cancelled or taken.
    pub fn hold(chain: &Arc<Chain>, call: Box<Call>) -> Arc<SuspendedCall> {
        let (client, id) = (call.client.clone(), call.id.clone());
        let held = Arc::new(SuspendedCall {
            chain: chain.clone(),
            call: Mutex::new(Some(call)),
            over: Notify::new(),
        });
        if !client.sent(&id, held.clone(), 0) {
            held.cancel(0, None);
        }
        held
    }

    /// Holds a call until `after` is done. `None`: it was cancelled meanwhile, and has ended.
    pub async fn until(
        after: impl Future<Output = ()>,
        chain: &Arc<Chain>,
        call: Box<Call>,
    ) -> Option<Box<Call>> {
        let held = SuspendedCall::hold(chain, call);
        tokio::select! {
            () = after => {}
            () = held.over() => return None,
        }
        let call = held.take()?;
        if call.client.unsent(&call.id) {
            return Some(call);
        }
        chain.finish(vec![(call, CallOutcome::Cancelled)]);
        None
    }

    /// The call, unless it was cancelled or taken.
    pub fn take(&self) -> Option<Box<Call>> {
        let call = self.call.lock().take();
        self.over.notify_one();
        call
    }

    /// Does this unless the call was cancelled or taken: it cannot be meanwhile. Whether it was
    /// done.
    pub(crate) fn while_held(&self, act: impl FnOnce()) -> bool {
        let call = self.call.lock();
        let waits = call.is_some();
        if waits {
            act();
        }
        waits
    }

    /// Waits until the call is cancelled or taken.
    pub async fn over(&self) {
        self.over.notified().await;
    }
}

impl CancelReason for SuspendedCall {
    fn cancel(&self, _: u64, _: Option<(&Bytes, std::ops::Range<usize>)>) {
        if let Some(call) = self.take() {
            self.chain.finish(vec![(call, CallOutcome::Cancelled)]);
        }
    }
}

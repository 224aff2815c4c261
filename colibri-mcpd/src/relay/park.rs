//! Calls that wait: for their cancellation, or for a person.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::Notify;

use super::call::{Call, Chain, Outcome};
use super::client::Cancel;

/// A call that waits. Its cancellation ends it, whatever it waits for.
pub struct Parked {
    chain: Arc<Chain>,
    call: Mutex<Option<Box<Call>>>,
    over: Notify,
}

impl Parked {
    /// Keeps a call until it is cancelled or taken.
    pub fn park(chain: &Arc<Chain>, call: Box<Call>) -> Arc<Parked> {
        let (client, id) = (call.client.clone(), call.id.clone());
        let parked = Arc::new(Parked {
            chain: chain.clone(),
            call: Mutex::new(Some(call)),
            over: Notify::new(),
        });
        if !client.sent(&id, parked.clone(), 0) {
            parked.cancel(0, None);
        }
        parked
    }

    /// The call, unless it was cancelled or taken.
    pub fn take(&self) -> Option<Box<Call>> {
        let call = self.call.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        self.over.notify_one();
        call
    }

    /// Waits until the call is cancelled or taken.
    pub async fn over(&self) {
        self.over.notified().await;
    }
}

impl Cancel for Parked {
    fn cancel(&self, _: u64, _: Option<(&Bytes, std::ops::Range<usize>)>) {
        if let Some(call) = self.take() {
            self.chain.finish(vec![(call, Outcome::Cancelled)]);
        }
    }
}

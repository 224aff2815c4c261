//! Changes of the servers' advertised items of which no client was notified yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use colibri_protocol::Features;

/// The features of each server of which something else is offered than before.
pub type ChangedFeatures = BTreeMap<Arc<str>, Features>;

/// The changes since the last call of `take`.
pub struct Changes {
    pending: Mutex<ChangedFeatures>,
    come: watch::Sender<()>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes {
            pending: Mutex::default(),
            come: watch::Sender::new(()),
        }
    }
}

impl Changes {
    /// This has changed.
    pub(super) fn add(&self, changed: ChangedFeatures) {
        if changed.is_empty() {
            return;
        }
        let mut pending = self.pending.lock();
        for (server, features) in changed {
            *pending.entry(server).or_default() |= features;
        }
        drop(pending);
        self.come.send_replace(());
    }

    /// Notifies when there are some, for as long as they are noted at all.
    pub fn come(&self) -> watch::Receiver<()> {
        self.come.subscribe()
    }

    /// Those that were not taken yet.
    pub fn take(&self) -> ChangedFeatures {
        std::mem::take(&mut *self.pending.lock())
    }
}

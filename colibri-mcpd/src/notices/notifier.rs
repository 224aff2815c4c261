//! Telling a notice: to the log, and to all who listen.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::sync::broadcast;
use tracing::{error, info};

use colibri_api::{Notice, NoticeEvent};
use colibri_text::{brief, hex};

/// The number of notices stored for slow readers; older ones are left out.
const KEPT: usize = 256;
/// Characters of a name.
const MAX_NAME: usize = 64;

/// The destinations of notices.
pub struct Notices {
    host: String,
    told: broadcast::Sender<Arc<Notice>>,
}

impl Default for Notices {
    fn default() -> Notices {
        let host = nix::unistd::gethostname().unwrap_or_default();
        Notices {
            host: brief(&host.to_string_lossy(), MAX_NAME),
            told: broadcast::Sender::new(KEPT),
        }
    }
}

/// A name that others chose, as a notice has it.
pub fn name(text: &str) -> Value {
    brief(text, MAX_NAME).into()
}

impl Notices {
    /// Sends a notice. Neither waits nor fails.
    pub fn tell(&self, event: NoticeEvent, facts: impl IntoIterator<Item = (&'static str, Value)>) {
        let mut id = [0; 8];
        // Without randomness, which is as good as impossible, who gets it twice cannot tell.
        let _ = getrandom::fill(&mut id);
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let notice = Notice {
            id: hex(&id),
            event,
            time: since.as_millis().try_into().unwrap_or(u64::MAX),
            host: self.host.clone(),
            facts: facts
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        };
        let facts = serde_json::json!(notice.facts).to_string();
        let facts = colibri_text::json(&facts);
        match event {
            NoticeEvent::ErrorCritical => error!(facts = %facts, "{event}"),
            _ => info!(facts = %facts, "{event}"),
        }
        // Where nobody listens there is nobody to tell.
        let _ = self.told.send(Arc::new(notice));
    }

    /// Listens from now on.
    pub fn watch(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.told.subscribe()
    }
}

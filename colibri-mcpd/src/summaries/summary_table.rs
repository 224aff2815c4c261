//! The summaries that there are.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::catalog::Item;
use colibri_store::{Database, MAX_SUMMARIES, StoredSummary};

/// The time for which a model is not asked again that had nothing to say of a definition, in
/// milliseconds.
const AFTER_NOTHING: u64 = 24 * 3600 * 1000;

/// The key of a stored summary: another schema or another pin is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SummaryKey {
    /// `server:tool:HEX`, HEX telling the schema.
    pub name: String,
    /// SHA-256 of the definition, as it is pinned.
    pub pin: String,
}

impl SummaryKey {
    /// The key of a tool's definition.
    pub(super) fn of(item: &Item) -> SummaryKey {
        let sums = item.sums();
        SummaryKey {
            name: format!("{}:{}:{}", item.server.spec.id, item.own, sums.schema),
            pin: sums.definition.clone(),
        }
    }
}

/// A model's sentence on a definition, which may be empty, and its time.
struct ModelSentence {
    text: Arc<str>,
    at: u64,
}

/// The summaries that there are.
pub struct SummaryTable {
    said: RwLock<HashMap<SummaryKey, ModelSentence>>,
    /// Counts the changes of what there is.
    come: watch::Sender<u64>,
    /// Something was changed by hand: what was refused may be allowed now.
    pub(super) again: Notify,
}

impl SummaryTable {
    /// Those that the store has. Without them there are descriptions: a store that cannot be read
    /// is no reason to end.
    pub fn recall(store: &Database) -> Arc<SummaryTable> {
        let kept = store.summaries().unwrap_or_else(|error| {
            warn!("the summaries of tools were not read: {error}");
            Vec::new()
        });
        let said = kept.into_iter().map(|summary| {
            let StoredSummary {
                key,
                pin,
                text,
                made_at,
            } = summary;
            let said = ModelSentence {
                text: text.into(),
                at: made_at,
            };
            (SummaryKey { name: key, pin }, said)
        });
        Arc::new(SummaryTable {
            said: RwLock::new(said.collect()),
            come: watch::Sender::new(0),
            again: Notify::new(),
        })
    }

    /// The summary of exactly this definition of a tool, if one was made.
    pub fn of(&self, item: &Item) -> Option<Arc<str>> {
        let said = self.said.read();
        if said.is_empty() {
            return None;
        }
        said.get(&SummaryKey::of(item))
            .map(|said| said.text.clone())
            .filter(|text| !text.is_empty())
    }

    /// Notifies when there are others than before: a number that is another one then.
    pub fn come(&self) -> watch::Receiver<u64> {
        self.come.subscribe()
    }

    /// The registry or a pin was changed by hand: what stood against making some may be gone.
    pub(crate) fn try_again(&self) {
        self.again.notify_one();
    }

    /// True if a model is to be asked about it now, in milliseconds since the epoch.
    pub(super) fn is_due(&self, key: &SummaryKey, now: u64) -> bool {
        let said = self.said.read();
        said.get(key)
            .is_none_or(|said| said.text.is_empty() && now.abs_diff(said.at) >= AFTER_NOTHING)
    }

    /// Keeps what a model said.
    pub(super) fn keep(
        &self,
        store: &Database,
        (key, text, at): (&SummaryKey, &str, u64),
        model: &str,
    ) {
        let summary = StoredSummary {
            key: key.name.clone(),
            pin: key.pin.clone(),
            text: text.to_owned(),
            made_at: at,
        };
        if let Err(error) = store.put_summary(&summary, model) {
            warn!("a summary is kept until the daemon ends, and no longer: {error}");
        }
        let mut said = self.said.write();
        let text = text.into();
        said.insert(key.clone(), ModelSentence { text, at });
        if said.len() > MAX_SUMMARIES
            && let Some(oldest) = said
                .iter()
                .min_by_key(|(_, said)| said.at)
                .map(|(key, _)| key.clone())
        {
            said.remove(&oldest);
        }
        drop(said);
        self.come.send_modify(|count| *count += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_the_most_the_oldest_goes() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        let summaries = SummaryTable::recall(&store);
        let key = |at: u64| SummaryKey {
            name: format!("s:{at}:00"),
            pin: "pin".to_owned(),
        };
        let filled = (1..=MAX_SUMMARIES as u64).map(|at| {
            (
                key(at),
                ModelSentence {
                    text: "T".into(),
                    at,
                },
            )
        });
        summaries.said.write().extend(filled);
        for at in [1, MAX_SUMMARIES as u64 + 1] {
            summaries.keep(&store, (&key(at), "T", at), "m");
        }
        assert_eq!(summaries.said.read().len(), MAX_SUMMARIES);
        let gone = [1, 2, MAX_SUMMARIES as u64 + 1].map(|at| summaries.is_due(&key(at), at));
        assert_eq!(gone, [true, false, false]);
    }
}

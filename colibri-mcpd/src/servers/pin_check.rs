//! The definitions that one process lists, and their pin check.
//!
//! Processes of one server need not say the same: each is asked before it is given a call, and
//! again when it tells of a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::listing::Catalogue;
use colibri_policy::{PinCheck, PinStatus};
use colibri_protocol::{Failure, Feature, Features};
use parking_lot::Mutex;

/// The definitions of one process.
pub struct Definitions {
    inner: Mutex<PinStatusInner>,
    /// True if all that it offers is as approved; looked at on each call without a lock.
    clean: AtomicBool,
}

struct PinStatusInner {
    /// The last list, and its pin check.
    said: Option<(Arc<Catalogue>, Arc<PinCheck>)>,
    /// True if somebody reads its lists, or is about to once a burst of changes is over.
    reading: bool,
    /// The features that changed since they were read.
    changed: Features,
}

impl Definitions {
    /// Those of a process that is being started: they are about to be read.
    pub(super) fn unread() -> Definitions {
        Definitions {
            inner: Mutex::new(PinStatusInner {
                said: None,
                reading: true,
                changed: Features::NONE,
            }),
            clean: AtomicBool::new(false),
        }
    }

    /// Its lists of these have changed. `true`: nobody is reading them, so the caller is to.
    pub(super) fn changed(&self, features: Features) -> bool {
        let mut inner = self.inner.lock();
        inner.changed |= features;
        !std::mem::replace(&mut inner.reading, true)
    }

    /// The lists that the reader is to read next. None: all were read, and the next change has
    /// another reader.
    pub(super) fn to_read(&self) -> Features {
        let mut inner = self.inner.lock();
        let features = std::mem::take(&mut inner.changed);
        inner.reading = !features.is_empty();
        features
    }

    /// Notes what the process said, and how that stands.
    pub(super) fn judged(&self, said: Arc<Catalogue>, judgement: Arc<PinCheck>) {
        let clean = judgement.is_clean();
        let mut inner = self.inner.lock();
        inner.said = Some((said, judgement));
        self.clean.store(clean, Ordering::Release);
    }

    /// The last list of the process.
    pub(super) fn said(&self) -> Option<Arc<Catalogue>> {
        self.inner
            .lock()
            .said
            .as_ref()
            .map(|(said, _)| said.clone())
    }

    /// True if something of it is not as approved, but is in what another process said.
    pub(super) fn fall_behind(&self, other: &PinCheck) -> bool {
        let inner = self.inner.lock();
        let judgement = inner.said.as_ref().map(|(_, judgement)| judgement);
        judgement.is_some_and(|mine| {
            Feature::ALL.into_iter().any(|feature| {
                let mut blocked = mine.blocked(feature);
                blocked.any(|name| other.of(feature, name).is_approved())
            })
        })
    }

    /// The refusal of a request to this process about a feature; `None` if there is none.
    pub(super) fn against(&self, server: &str, feature: Feature, name: &str) -> Option<Failure> {
        if self.clean.load(Ordering::Acquire) {
            return None;
        }
        match &self.inner.lock().said {
            Some((_, judgement)) => judgement.of(feature, name).failure(server, feature, name),
            None => {
                let why = "the server has not been asked for it yet".to_owned();
                PinStatus::New { why }.failure(server, feature, name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_protocol::Code;

    fn judgement(tools: &[(&str, bool)]) -> Arc<PinCheck> {
        let standing = |approved| match approved {
            true => PinStatus::Approved,
            false => PinStatus::Changed {
                members: vec!["/description".to_owned()],
            },
        };
        let mut judgement = PinCheck::NOTHING;
        judgement.definitions[Feature::Tool.index()] = tools
            .iter()
            .map(|(name, approved)| ((*name).to_owned(), standing(*approved)))
            .collect();
        Arc::new(judgement)
    }

    #[test]
    fn a_process_gets_no_call_before_it_was_judged() {
        let definitions = Definitions::unread();
        let failure = definitions.against("s", Feature::Tool, "a").unwrap();
        assert_eq!(
            (failure.code, failure.server.as_deref()),
            (Code::PinChanged, Some("s"))
        );
        definitions.judged(Arc::default(), judgement(&[("a", true), ("b", false)]));
        assert!(definitions.against("s", Feature::Tool, "a").is_none());
        assert!(definitions.against("s", Feature::Tool, "b").is_some());
        // The server itself answers for what it does not list.
        assert!(definitions.against("s", Feature::Tool, "c").is_none());
        assert!(definitions.fall_behind(&judgement(&[("b", true)])));
        assert!(!definitions.fall_behind(&judgement(&[("a", false), ("b", false)])));
        definitions.judged(Arc::default(), judgement(&[("a", true), ("b", true)]));
        assert!(definitions.against("s", Feature::Tool, "b").is_none());
    }

    #[test]
    fn a_change_while_they_are_read_is_not_lost() {
        let definitions = Definitions::unread();
        let (tools, prompts) = (
            Features::from(Feature::Tool),
            Features::from(Feature::Prompt),
        );
        assert!(!definitions.changed(tools));
        assert!(!definitions.changed(prompts));
        assert_eq!(definitions.to_read(), tools | prompts);
        assert!(!definitions.changed(tools));
        assert_eq!(definitions.to_read(), tools);
        assert_eq!(definitions.to_read(), Features::NONE);
        assert!(definitions.changed(prompts));
    }
}

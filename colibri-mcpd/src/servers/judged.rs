//! What one process says of its tools, and how that stands to the pins.
//!
//! Processes of one server need not say the same: each is asked before it is given a call, and again when it tells of a
//! change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::listing::Catalogue;
use crate::policy::{Judgement, Standing};
use colibri_protocol::{Failure, Feature};

/// The definitions of one process.
pub struct Definitions {
    inner: Mutex<Inner>,
    /// Whether all its tools are as approved; looked at on each call without a lock.
    clean: AtomicBool,
    /// Whether a burst of changes is being waited out.
    settling: AtomicBool,
}

struct Inner {
    /// What it said last, and how that stands.
    said: Option<(Arc<Catalogue>, Arc<Judgement>)>,
    reading: Reading,
}

/// Whether its list of tools is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Idle,
    Running,
    /// It is, and it changed meanwhile.
    Again,
}

impl Definitions {
    /// Those of a process that is being started: they are about to be read.
    pub(super) fn unread() -> Definitions {
        Definitions {
            inner: Mutex::new(Inner {
                said: None,
                reading: Reading::Running,
            }),
            clean: AtomicBool::new(false),
            settling: AtomicBool::new(false),
        }
    }

    /// A change was told of. `true`: nobody waits out the burst yet, so the caller is to.
    pub(super) fn begin_to_settle(&self) -> bool {
        !self.settling.swap(true, Ordering::AcqRel)
    }

    /// The burst was waited out: the next change begins another.
    pub(super) fn settled(&self) {
        self.settling.store(false, Ordering::Release);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// They have changed. `true`: nobody is reading them, so the caller is to.
    pub(super) fn read_again(&self) -> bool {
        let mut inner = self.inner();
        let idle = inner.reading == Reading::Idle;
        inner.reading = if idle { Reading::Running } else { Reading::Again };
        idle
    }

    /// They have been read. `true`: they changed meanwhile, so the caller is to read them again.
    pub(super) fn was_read(&self) -> bool {
        let mut inner = self.inner();
        let again = inner.reading == Reading::Again;
        inner.reading = if again { Reading::Running } else { Reading::Idle };
        again
    }

    /// Notes what the process said, and how that stands.
    pub(super) fn judged(&self, said: Arc<Catalogue>, judgement: Arc<Judgement>) {
        let clean = judgement.blocked(Feature::Tool).next().is_none();
        let mut inner = self.inner();
        inner.said = Some((said, judgement));
        self.clean.store(clean, Ordering::Release);
    }

    /// What the process said last.
    pub(super) fn said(&self) -> Option<Arc<Catalogue>> {
        self.inner().said.as_ref().map(|(said, _)| said.clone())
    }

    /// Whether one of its tools is not as approved, but is in what another process said.
    pub(super) fn fall_behind(&self, other: &Judgement) -> bool {
        let inner = self.inner();
        let judgement = inner.said.as_ref().map(|(_, judgement)| judgement);
        judgement.is_some_and(|mine| {
            mine.blocked(Feature::Tool)
                .any(|tool| other.of(Feature::Tool, tool).is_approved())
        })
    }

    /// What stands against calling a tool in this process; `None` if nothing does.
    pub(super) fn against(&self, server: &str, tool: &str) -> Option<Failure> {
        if self.clean.load(Ordering::Acquire) {
            return None;
        }
        match &self.inner().said {
            Some((_, judgement)) => judgement.of(Feature::Tool, tool).failure(server, tool),
            None => {
                let why = "the server has not been asked for it yet".to_owned();
                Standing::New { why }.failure(server, tool)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_protocol::Code;

    fn judgement(tools: &[(&str, bool)]) -> Arc<Judgement> {
        let standing = |approved| match approved {
            true => Standing::Approved,
            false => Standing::Changed {
                members: vec!["/description".to_owned()],
            },
        };
        let mut judgement = Judgement::NOTHING;
        judgement.definitions[Feature::Tool.index()] = tools
            .iter()
            .map(|(name, approved)| ((*name).to_owned(), standing(*approved)))
            .collect();
        Arc::new(judgement)
    }

    #[test]
    fn a_process_gets_no_call_before_it_was_judged() {
        let definitions = Definitions::unread();
        let failure = definitions.against("s", "a").unwrap();
        assert_eq!((failure.code, failure.server.as_deref()), (Code::PinChanged, Some("s")));
        definitions.judged(Arc::default(), judgement(&[("a", true), ("b", false)]));
        assert!(definitions.against("s", "a").is_none());
        assert!(definitions.against("s", "b").is_some());
        // The server itself answers for what it does not list.
        assert!(definitions.against("s", "c").is_none());
        assert!(definitions.fall_behind(&judgement(&[("b", true)])));
        assert!(!definitions.fall_behind(&judgement(&[("a", false), ("b", false)])));
        definitions.judged(Arc::default(), judgement(&[("a", true), ("b", true)]));
        assert!(definitions.against("s", "b").is_none());
    }

    #[test]
    fn a_change_while_they_are_read_is_not_lost() {
        let definitions = Definitions::unread();
        assert!(!definitions.read_again());
        assert!(definitions.was_read());
        assert!(!definitions.was_read());
        assert!(definitions.read_again());
    }
}

//! The bytes that a daemon holds for all its peers, and who is cut off when they are used up.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;

/// What each peer may have when the budget of all is used up: nobody is cut off for another's sake.
const EVERYBODYS: usize = 64 * 1024;

/// Who has bytes of a budget.
pub(super) trait Holder: fmt::Debug + Send + Sync {
    /// How many.
    fn held(&self) -> usize;

    /// Takes all of them away, for good.
    fn cut_off(&self);
}

/// Bytes that a daemon holds for all its peers: what is queued for them, and what they began to say.
#[derive(Debug)]
pub struct Budget {
    held: AtomicUsize,
    limit: usize,
    /// Who is cut off when it is used up: the one that holds most.
    clients: Mutex<Vec<Weak<dyn Holder>>>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(usize::MAX)
    }
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Budget {
        Budget {
            held: AtomicUsize::new(0),
            limit,
            clients: Mutex::default(),
        }
    }

    /// Bytes held now.
    pub fn queued(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// From now on this one is cut off if it holds most when the budget is used up.
    pub(super) fn enter(&self, client: Weak<dyn Holder>) {
        let mut clients = self.clients();
        // Those that are gone are looked for when the list is full, and then there is room for as many again: who comes
        // for one request does not look at everybody.
        if clients.len() == clients.capacity() {
            clients.retain(|client| client.strong_count() > 0);
            let there = clients.len();
            clients.reserve(there.max(16));
        }
        clients.push(client);
    }

    /// Whether it has this many more bytes for somebody who holds `has` already.
    pub(super) fn has_room(&self, length: usize, has: usize) -> bool {
        self.queued().saturating_add(length) <= self.limit || has + length <= EVERYBODYS
    }

    fn clients(&self) -> MutexGuard<'_, Vec<Weak<dyn Holder>>> {
        self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes bytes for somebody who holds `has` already. If the budget does not have them, clients are cut off, those
    /// that hold most first. `false`: not even then, or the one that asks would have been the next.
    pub(super) fn take(&self, length: usize, has: usize) -> bool {
        let mut held = self.held.fetch_add(length, Ordering::Relaxed) + length;
        while held > self.limit && has + length > EVERYBODYS {
            let clients: Vec<_> = self.clients().iter().filter_map(Weak::upgrade).collect();
            let most = clients.iter().max_by_key(|client| client.held());
            let Some(most) = most.filter(|most| most.held() > (has + length).max(EVERYBODYS)) else {
                self.give_back(length);
                return false;
            };
            most.cut_off();
            held = self.held.load(Ordering::Relaxed);
        }
        true
    }

    pub(super) fn give_back(&self, length: usize) {
        self.held.fetch_sub(length, Ordering::Relaxed);
    }
}

/// A part of an answer that many get: it costs its bytes once, however many queues it stands in.
#[derive(Debug, Clone)]
pub struct Shared(Bytes);

struct Charged {
    bytes: Vec<u8>,
    budget: Arc<Budget>,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes.len());
    }
}

impl Shared {
    /// Takes the bytes out of the budget until nobody has them any more. `None`: it does not have them.
    pub fn new(bytes: Vec<u8>, budget: &Arc<Budget>) -> Option<Shared> {
        let budget = budget.clone();
        let taken = budget.take(bytes.len(), 0);
        taken.then(|| Shared(Bytes::from_owner(Charged { bytes, budget })))
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nothing;

    impl Holder for Nothing {
        fn held(&self) -> usize {
            0
        }

        fn cut_off(&self) {}
    }

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let budget = Budget::default();
        let enter = || {
            let client: Arc<dyn Holder> = Arc::new(Nothing);
            budget.enter(Arc::downgrade(&client));
            client
        };
        let stay: Vec<_> = (0..100).map(|_| enter()).collect();
        for _ in 0..10_000 {
            enter();
        }
        let there = budget
            .clients()
            .iter()
            .filter(|client| client.strong_count() > 0)
            .count();
        assert_eq!(there, stay.len());
        assert!(budget.clients().len() <= 4 * stay.len(), "{}", budget.clients().len());
    }
}

//! The bytes that a daemon holds for all its peers, and the peer that is cut off when they are used
//! up: always one of the user who holds most, so that nobody loses a connection for what another
//! user does.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes that each peer may have when the budget is used up. No peer that has fewer is cut off.
const EVERYBODYS: usize = 64 * 1024;

/// The party for which the bytes of a peer are held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tenant {
    /// The daemon itself.
    Daemon,
    /// A person, for connections of their own.
    Person(u32),
    /// One instance of an agent, beneath the person for whom it runs.
    Agent {
        /// The person's uid.
        person: u32,
        /// The instance.
        session: Arc<str>,
    },
    /// A server, beneath the person whose process it is.
    Server {
        /// The server's id.
        id: Arc<str>,
        /// The person's uid; `None`: everybody shares the process.
        person: Option<u32>,
    },
}

impl Tenant {
    /// The account: all of one person, or the processes of one server that everybody shares.
    fn account(&self) -> (Option<u32>, Option<&str>) {
        match self {
            Tenant::Daemon => (None, None),
            Tenant::Person(person) | Tenant::Agent { person, .. } => (Some(*person), None),
            Tenant::Server { id, person: None } => (None, Some(id)),
            Tenant::Server { person, .. } => (*person, None),
        }
    }

    /// The part of an account: a person's own connections, their agents or their servers.
    fn part(&self) -> u8 {
        match self {
            Tenant::Daemon | Tenant::Person(_) => 0,
            Tenant::Agent { .. } => 1,
            Tenant::Server { .. } => 2,
        }
    }
}

/// A peer for which bytes of a budget are held.
pub(super) trait BudgetHolder: fmt::Debug + Send + Sync {
    /// The party for which they are held.
    fn tenant(&self) -> &Tenant;

    /// Bytes held, with those that other peers get too.
    fn held(&self) -> usize;

    /// Takes all of them away, for good.
    fn cut_off(&self);
}

/// Bytes that a daemon holds for all its peers: what is queued for them, what is in flight, and
/// messages that have begun.
#[derive(Debug)]
pub struct ByteBudget {
    held: AtomicUsize,
    limit: usize,
    /// The peers that can be cut off when it is used up.
    peers: Mutex<Vec<Weak<dyn BudgetHolder>>>,
}

impl Default for ByteBudget {
    fn default() -> ByteBudget {
        ByteBudget::new(usize::MAX)
    }
}

/// The bytes of one peer, as they are compared.
struct ByteClaim<'a> {
    tenant: &'a Tenant,
    held: usize,
    /// `None`: the peer that asks for more.
    holder: Option<&'a Arc<dyn BudgetHolder>>,
}

/// Keeps the claims with the one key whose claims are most in sum. Of equal ones it is that of the
/// peer that asks.
fn keep_heaviest<'a, K: Ord>(claims: &mut Vec<ByteClaim<'a>>, key: impl Fn(&'a Tenant) -> K) {
    let mut sums = BTreeMap::new();
    for claim in &*claims {
        let (sum, asks) = sums.entry(key(claim.tenant)).or_insert((0, false));
        *sum += claim.held;
        *asks |= claim.holder.is_none();
    }
    let heaviest = sums.into_iter().max_by_key(|(_, sum)| *sum);
    claims.retain(|claim| {
        heaviest
            .as_ref()
            .is_some_and(|(heaviest, _)| key(claim.tenant) == *heaviest)
    });
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> ByteBudget {
        ByteBudget {
            held: AtomicUsize::new(0),
            limit,
            peers: Mutex::default(),
        }
    }

    /// Bytes held now.
    pub fn queued(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Adds a peer that can be cut off.
    pub(super) fn enter(&self, peer: Weak<dyn BudgetHolder>) {
        let mut peers = self.peers.lock();
        // Those that are gone are looked for when the list is full, and then there is room for as
        // many again: who comes for one request does not look at everybody.
        if peers.len() == peers.capacity() {
            peers.retain(|peer| peer.strong_count() > 0);
            let there = peers.len();
            peers.reserve(there.max(16));
        }
        peers.push(peer);
    }

    /// Takes bytes for a peer. If the budget does not have them, peers of the account that holds
    /// most are cut off, the largest first. `false`: the next one would be the peer that asks.
    pub(super) fn take(&self, length: usize, asking: &dyn BudgetHolder) -> bool {
        let mut held = self.held.fetch_add(length, Ordering::Relaxed) + length;
        while held > self.limit && asking.held() + length > EVERYBODYS {
            let Some(most) = self.heaviest(length, asking) else {
                self.give_back(length);
                return false;
            };
            most.cut_off();
            held = self.held.load(Ordering::Relaxed);
        }
        true
    }

    /// The peer that holds most of the account that holds most, if `asking` had so many bytes more;
    /// `None`: it is the one that asks. Whatever account that is, it holds more than an equal
    /// share.
    fn heaviest(&self, more: usize, asking: &dyn BudgetHolder) -> Option<Arc<dyn BudgetHolder>> {
        let peers: Vec<_> = self.peers.lock().iter().filter_map(Weak::upgrade).collect();
        let others = peers
            .iter()
            .filter(|peer| !ptr::addr_eq(&raw const ***peer, asking));
        let others = others.map(|peer| ByteClaim {
            tenant: peer.tenant(),
            held: peer.held(),
            holder: Some(peer),
        });
        let mut claims: Vec<_> = others.filter(|claim| claim.held > EVERYBODYS).collect();
        claims.push(ByteClaim {
            tenant: asking.tenant(),
            held: asking.held() + more,
            holder: None,
        });
        keep_heaviest(&mut claims, Tenant::account);
        keep_heaviest(&mut claims, Tenant::part);
        keep_heaviest(&mut claims, |tenant| tenant);
        let heaviest = claims
            .iter()
            .max_by_key(|claim| (claim.held, claim.holder.is_none()));
        heaviest.and_then(|claim| claim.holder.cloned())
    }

    pub(super) fn give_back(&self, length: usize) {
        self.held.fetch_sub(length, Ordering::Relaxed);
    }
}

/// A part of an answer that many get: it costs its bytes once, however many queues it stands in.
#[derive(Debug, Clone)]
pub struct SharedBytes(Bytes);

struct ChargedBytes {
    bytes: Vec<u8>,
    budget: Arc<ByteBudget>,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for ChargedBytes {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes.len());
    }
}

impl SharedBytes {
    /// Bytes that were taken out of the budget, and go back when nobody has them any more.
    pub(super) fn taken(bytes: Vec<u8>, budget: Arc<ByteBudget>) -> SharedBytes {
        SharedBytes(Bytes::from_owner(ChargedBytes { bytes, budget }))
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

    impl BudgetHolder for Nothing {
        fn tenant(&self) -> &Tenant {
            &Tenant::Daemon
        }

        fn held(&self) -> usize {
            0
        }

        fn cut_off(&self) {}
    }

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let budget = ByteBudget::default();
        let enter = || {
            let peer: Arc<dyn BudgetHolder> = Arc::new(Nothing);
            budget.enter(Arc::downgrade(&peer));
            peer
        };
        let stay: Vec<_> = (0..100).map(|_| enter()).collect();
        for _ in 0..10_000 {
            enter();
        }
        let there = budget
            .peers
            .lock()
            .iter()
            .filter(|peer| peer.strong_count() > 0)
            .count();
        assert_eq!(there, stay.len());
        assert!(
            budget.peers.lock().len() <= 4 * stay.len(),
            "{}",
            budget.peers.lock().len()
        );
    }
}

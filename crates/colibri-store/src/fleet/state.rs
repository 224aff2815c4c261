//! What a host knows of the board and of itself there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::address::BoardAddress;
use crate::hosts::{CountedHost, HostIdentity, HostPlaces};
use crate::lease::HostLease;

/// The reason for which the database is not used at the start.
pub(super) const NOT_YET: &str = "it was not reached yet";

/// The name that stands for all persons.
const EVERYBODY: &str = "*";

/// The hosts whose rows count here, by name.
pub(super) type CountedHosts = Arc<BTreeMap<String, CountedHost>>;

impl CountedHost {
    pub(super) fn counts_for(&self, name: &str, person: &str) -> bool {
        let is_elsewhere = person
            .rsplit_once('@')
            .is_some_and(|(_, host)| host != name);
        !is_elsewhere
            && [person, EVERYBODY]
                .iter()
                .any(|known| self.persons.contains(*known))
    }
}

/// What a host knows of the board and of itself there.
pub(super) struct FleetState {
    pub(super) address: BoardAddress,
    pub(super) host: HostIdentity,
    /// The board's own name, which no other board has, once it is known.
    pub(super) board: Mutex<String>,
    pub(super) counted: Mutex<CountedHosts>,
    /// This run of the daemon: sixteen hex digits.
    pub(super) run: String,
    pub(super) lease: Arc<HostLease>,
    pub(super) places: Mutex<HostPlaces>,
    /// True if other hosts have enrolled.
    pub(super) has_others: AtomicBool,
    /// The reason for which the database is not used now.
    pub(super) away: Mutex<Option<String>>,
    /// Another host has changed something, or the database is back.
    pub(super) woken: Notify,
    /// This host has changed something that others wait for.
    pub(super) wakes: Notify,
}

impl FleetState {
    /// False if hosts.json says another key of this host.
    pub(super) fn counts_key(&self, host: &str, key: &str) -> bool {
        let counted = self.counted.lock().clone();
        let known = counted.get(host);
        known.is_none_or(|known| known.key.to_string() == key.trim())
    }

    /// An instance of this host as the board has it.
    pub(super) fn session(&self, session: &str) -> String {
        match session.contains(':') {
            true => session.to_owned(),
            false => format!("{}:{session}", self.host.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_counts_for_its_persons_and_for_no_account_of_another_host() {
        let key = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        let counted = |persons: &[&str]| CountedHost {
            key: key.parse().unwrap(),
            persons: persons.iter().map(|person| (*person).to_owned()).collect(),
        };
        let some = counted(&["ann", "root@build1", "root@build2"]);
        assert!(some.counts_for("build1", "ann") && some.counts_for("build1", "root@build1"));
        for person in ["bob", "bob@build1", "root@build2", "*", ""] {
            assert!(!some.counts_for("build1", person), "{person}");
        }
        let all = counted(&["*"]);
        assert!(all.counts_for("build1", "bob") && all.counts_for("build1", "bob@build1"));
        assert!(
            !all.counts_for("build1", "bob@build2") && !all.counts_for("build1", "a@build1@build2")
        );
        assert!(!counted(&[]).counts_for("build1", "ann"));
    }
}

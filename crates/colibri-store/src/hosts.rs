//! Hosts of a board, as the daemon names them to the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use colibri_trail::{Signer, Verifier};

/// This host among those of the board.
#[derive(Debug, Clone)]
pub struct HostIdentity {
    /// Its name.
    pub name: String,
    /// The key that its trail signs with.
    pub signer: Arc<Signer>,
}

/// What a host can run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPlaces {
    /// The agents of its registry, with their capabilities, as JSON.
    pub agents: String,
    /// The instances that run, as other hosts show them, as JSON.
    pub instances: String,
    /// The number of instances that may be started automatically now.
    pub free: u32,
}

/// A host whose rows count here.
#[derive(Debug, Clone)]
pub struct CountedHost {
    /// The key of its trail.
    pub key: Verifier,
    /// The persons for whom it counts; `*`: all, but for accounts of other hosts.
    pub persons: BTreeSet<String>,
}

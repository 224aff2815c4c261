//! What a host knows of the board and of itself there.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::address::BoardAddress;
use super::lease::HostLease;

/// The reason for which the database is not used at the start.
pub(super) const NOT_YET: &str = "it was not reached yet";

/// This host among those of the board.
#[derive(Debug, Clone)]
pub struct HostIdentity {
    /// Its name.
    pub name: String,
    /// The key that checks what its trail signs.
    pub key: String,
}

/// What a host can run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPlaces {
    /// The agents of its registry, with their capabilities, as JSON.
    pub agents: String,
    /// The number of instances that may be started automatically now.
    pub free: u32,
}

/// What a host knows of the board and of itself there.
pub(super) struct FleetState {
    pub(super) address: BoardAddress,
    pub(super) host: HostIdentity,
    /// This run of the daemon: sixteen hex digits.
    pub(super) run: String,
    pub(super) lease: Arc<HostLease>,
    pub(super) places: Mutex<HostPlaces>,
    /// The reason for which the database is not used now.
    pub(super) away: Mutex<Option<String>>,
    /// Another host has changed something, or the database is back.
    pub(super) woken: Notify,
    /// This host has changed something that others wait for.
    pub(super) wakes: Notify,
}

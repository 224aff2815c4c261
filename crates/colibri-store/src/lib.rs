//! What the daemon remembers: tasks and schedules, what people spent, the ledger of costs, what was
//! last seen of every server, the index of tools, summaries.
//!
//! [`Database`] is `colibri.db` in the state directory: SQLite, in write-ahead mode and synchronised
//! at each commit. Tasks and schedules alone, the board, may stand in PostgreSQL instead, which
//! many hosts share ([`Fleet`]); their SQL is the same. Which of the two it is, is chosen once, when
//! the store is opened; afterwards [`Database::board`] answers for either. [`cost_ledger`] counts in
//! memory and writes at intervals.
//!
//! PostgreSQL is the feature `fleet`, on by default. Without it [`BoardAddress::parse`] refuses every
//! address.
//!
//! Its promises:
//! - what a method has answered survives the daemon's and the machine's sudden end, and what it had
//!   not answered is there whole or not at all;
//! - no user's tasks keep another from theirs: each has a limit, and the last room is the trail's;
//! - a file of a newer version, of something else, or that others may write, is refused and left as
//!   it is;
//! - an error says which file, why, and what to do.
//!
//! All methods are synchronous. Reads touch memory; a write waits for the disk, so an asynchronous
//! caller wraps it in a blocking section. What a task means, and who is told of it, is left to the
//! daemon's board.

mod actor;
mod board_storage;
mod catalogue;
mod claims;
mod cost;
pub mod cost_ledger;
mod database;
mod error;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(not(feature = "fleet"))]
#[path = "fleet/disabled.rs"]
mod fleet;
mod hosts;
mod lease;
mod ledger;
mod local_board;
mod open;
mod quota;
mod requeue;
mod schedule;
mod search;
mod sqlite_file;
mod statements;
mod step;
mod summaries;
mod task;

pub use actor::Actor;
pub use board_storage::BoardMembership;
pub use catalogue::{CatalogueEntry, CatalogueKey};
pub use claims::{ClaimOrder, Seeks};
pub use cost::UserDay;
pub use database::{Database, now_ms};
pub use error::{StoreError, TaskRefusal};
pub use fleet::{BoardAddress, Fleet};
pub use hosts::{CountedHost, HostIdentity, HostPlaces};
pub use lease::HostLease;
pub use ledger::{CostKey, CostQuery};
pub use search::{FIELDS, ToolIndex};
pub use step::{TaskStep, Tell};
pub use summaries::{MAX_SUMMARIES, StoredSummary};
pub use task::{
    DEFERRED, MAX_CAPABILITIES, MAX_CAPABILITY, MAX_DESCRIPTION, MAX_LABEL, MAX_PAGE, MAX_PRIORITY,
    MAX_TITLE, PAGE_DEFAULT, PRIORITY_DEFAULT, TaskFilter,
};

#[cfg(test)]
mod tests;

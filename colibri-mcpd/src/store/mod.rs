//! SQLite: tasks, schedules, what people spent, the ledger, what was last seen of every server,
//! summaries of tools.
//!
//! One file, `colibri.db`, in the state directory, in write-ahead mode and synchronised at each
//! commit: what a method has answered survives the daemon's and the machine's sudden end, and what
//! it had not answered is there whole or not at all. All methods are synchronous. Reads touch
//! memory; a write waits for the disk, so an asynchronous caller wraps it in a blocking section.
//!
//! Tasks and schedules alone may stand in PostgreSQL instead, which many hosts share (`fleet`).
//! Their SQL is the same.

mod actor;
mod catalogue;
mod claims;
mod cost;
mod database;
mod error;
mod fleet;
mod ledger;
mod open;
mod quota;
mod requeue;
mod row_seal;
mod schedule;
mod search;
mod statements;
mod step;
mod summaries;
mod task;

pub use actor::Actor;
pub use catalogue::{CatalogueEntry, CatalogueKey};
pub use claims::{ClaimOrder, Seeks};
pub use cost::UserDay;
pub use database::Database;
pub(crate) use database::now_ms;
pub use error::{StoreError, TaskRefusal};
pub use fleet::{BoardAddress, CountedHost, Fleet, HostIdentity, HostLease, HostPlaces};
pub use ledger::{CostKey, CostQuery};
pub(crate) use search::FIELDS;
pub use search::ToolIndex;
pub use step::TaskStep;
pub(crate) use step::Tell;
pub(crate) use summaries::MAX_SUMMARIES;
pub use summaries::StoredSummary;
pub(crate) use task::DEFERRED;
pub(crate) use task::MAX_CAPABILITIES;
pub(crate) use task::MAX_CAPABILITY;
pub(crate) use task::MAX_DESCRIPTION;
pub(crate) use task::MAX_LABEL;
pub(crate) use task::MAX_PAGE;
pub(crate) use task::MAX_PRIORITY;
pub(crate) use task::MAX_TITLE;
pub(crate) use task::PAGE_DEFAULT;
pub(crate) use task::PRIORITY_DEFAULT;
pub use task::TaskFilter;

#[cfg(test)]
mod tests;

//! SQLite: tasks, schedules, what people spent, the ledger, what was last seen of every server, summaries of tools.
//!
//! One file, `colibri.db`, in the state directory, in write-ahead mode and synchronised at each commit: what a method
//! has answered survives the daemon's and the machine's sudden end, and what it had not answered is there whole or not
//! at all. All methods are synchronous. Reads touch memory; a write waits for the disk, so an asynchronous caller wraps
//! it in a blocking section.

mod actor;
mod catalogue;
mod claims;
mod cost;
mod database;
mod error;
mod ledger;
mod open;
mod quota;
mod schedule;
mod search;
mod step;
mod summaries;
mod task;

pub use actor::Actor;
pub use catalogue::{CatalogueEntry, CatalogueKey};
pub use claims::{ClaimOrder, MAX_ATTEMPTS, Seeks};
pub use cost::UserDay;
pub use database::Database;
pub(crate) use database::now_ms;
pub use error::{MAX_TASKS, StoreError, TaskRefusal};
pub use ledger::{CostKey, CostQuery};
pub use search::{FIELDS, ToolIndex};
pub use step::TaskStep;
pub(crate) use step::Tell;
pub use summaries::{MAX_SUMMARIES, StoredSummary};
pub(crate) use task::DEFERRED;
pub use task::{
    MAX_CAPABILITIES, MAX_CAPABILITY, MAX_DESCRIPTION, MAX_LABEL, MAX_PAGE, MAX_PRIORITY, MAX_TITLE, PAGE_DEFAULT,
    PRIORITY_DEFAULT, TaskFilter,
};

#[cfg(test)]
mod tests;

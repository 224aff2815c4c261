//! SQLite: tasks, cost mode, what was last seen of every server.
//!
//! One file, `colibri.db`, in the state directory, in write-ahead mode and synchronised at each commit: what a method
//! has answered survives the daemon's and the machine's sudden end, and what it had not answered is there whole or not
//! at all. All methods are synchronous. Reads touch memory; a write waits for the disk, so an asynchronous caller wraps
//! it in a blocking section.

mod catalogue;
mod cost;
mod database;
mod error;
mod open;
mod task;

pub use catalogue::{CatalogueEntry, CatalogueKey};
pub use database::Store;
pub use error::{Error, MAX_TASKS};
pub use task::{
    MAX_CAPABILITIES, MAX_CAPABILITY, MAX_DESCRIPTION, MAX_LABEL, MAX_PAGE, MAX_PRIORITY, MAX_TITLE, PAGE_DEFAULT,
    PRIORITY_DEFAULT, TaskFilter,
};

#[cfg(test)]
mod tests;

//! The board, as calls reach it.

use super::client::Client;
use colibri_policy::Left;

/// Takes what calls did not do.
pub trait Defers: Send + Sync {
    /// Makes a task of it for the person behind a client, unless there is such a task already.
    /// Waits for the disk.
    ///
    /// # Errors
    /// Why there is none.
    fn defer(&self, client: &Client, call: &DeferredCall<'_>) -> anyhow::Result<u64>;

    /// True if a person has claimed this task. Waits for nothing.
    fn has_claimed(&self, uid: u32, task: u64) -> bool;
}

/// A call that was not carried out.
pub struct DeferredCall<'a> {
    /// The server.
    pub server: &'a str,
    /// Its own name of the tool.
    pub tool: &'a str,
    /// The number of the call's `enter` record; 0: there is none.
    pub call: u64,
    /// The code with which it ended.
    pub code: &'a str,
    /// The contract's treatment of it.
    pub left: &'a Left,
}

//! `colibri-mcp integration git` on real repositories made by git(1): what it does, what it
//! refuses, what hostile repositories try, and the same through the daemon with the contract that
//! ships. git(1) must be there.

mod chain;
mod hostile;
mod remote;
mod stage;
mod update;
mod work;

//! What daemon and client share: where things are, and what they say to each other.

pub mod paths;
mod priv_mode;

pub use priv_mode::{HELPER, PrivMode, UnknownPrivMode};

//! The board and who works on it: tasks, agents and their sockets, models, and the integrations.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod agents;
mod campaign;
mod claims;
mod door;
mod fleet;
mod flow;
mod hosts;
mod integrations;
mod integrations_git;
mod model;
mod notes;
mod postgres;
mod signed;
mod tasks;
mod waking;
mod witnesses;

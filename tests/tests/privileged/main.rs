//! The set-user-ID helper as it is installed, and what runs in its jails: Linux, as root.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod as_user;
mod helper;
mod hostile_callers;
mod jailed;
mod jailed_agents;
mod sandbox;

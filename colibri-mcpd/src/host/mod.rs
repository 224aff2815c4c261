//! External servers: registry, names, pool, session, relay, retry, secrets.

pub mod names;
pub mod registry;
pub mod secrets;

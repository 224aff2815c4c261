//! The model relay: an agent's only way to its model. It is plain HTTP on a Unix socket from
//! inside, and goes to one address with the key that is added outside. What a request may be is
//! judged by `colibri-model`; tokens are counted; each request is recorded before its first byte
//! goes out.

mod budget;
mod exchange;
mod mask;
mod relays;
mod wire;

pub use exchange::RecordEvent;
pub use relays::ModelRelays;

#[cfg(test)]
mod tests;

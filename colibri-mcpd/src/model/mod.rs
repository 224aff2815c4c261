//! The model relay: an agent's only way to its model. It is plain HTTP on a Unix socket from
//! inside, and goes to one address with the key that is added outside. What has the provider do
//! more than answer is refused; tokens are counted; each request is recorded before its first byte
//! goes out.

mod api;
mod body;
mod budget;
mod exchange;
mod grammar;
mod inline;
mod mask;
mod names;
mod peek;
mod refusal;
mod relays;
mod request;
mod stream_options;
mod usage;
mod walk;
mod wire;

pub use api::ModelRequestKind;
pub use exchange::RecordEvent;
pub use refusal::ModelRefusal;
pub use relays::ModelRelays;
pub use request::read_body;
pub use usage::{Meter, TokenCounts};
pub use walk::BodyFacts;

#[cfg(test)]
mod tests;
#[cfg(test)]
#[path = "../../../fuzz/src/ways_out.rs"]
#[allow(unreachable_pub, dead_code, reason = "it is the fuzzer's, too")]
mod ways_out;

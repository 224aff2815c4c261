//! The model relay: an agent's only way to its model. It is plain HTTP on a Unix socket from inside, and goes to one
//! address with the key that is added outside. What has the provider do more than answer is refused; tokens are
//! counted; each request is recorded before its first byte goes out.

mod api;
mod body;
mod budget;
mod exchange;
mod grammar;
mod mask;
mod refusal;
mod relays;
mod request;
mod usage;
mod wire;

pub use body::Facts;
pub use exchange::Record;
pub use refusal::Refusal;
pub use relays::ModelRelays;
pub use request::read_body;
pub use usage::{Meter, Tokens};
pub use wire::MAX_BODY;

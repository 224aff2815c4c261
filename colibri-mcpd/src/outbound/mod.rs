//! What the daemon asks of others over HTTP: a client whose every connection keeps to address rules, and over it MCP.
//!
//! [`Client`] is for all of it, servers and authorization servers alike: what it may reach is said once, in [`Rules`], and
//! held against the address that is connected to. [`connect`] makes a session with an MCP endpoint, which is read and
//! written like a process. Neither knows servers, nor who asks.

pub mod address;
mod authorizer;
mod client;
mod dial;
mod endpoint;
mod error;
mod events;
mod fault;
mod lines;
mod origin;
mod session;
pub mod sse;
#[cfg(test)]
mod tests;
mod tls;

pub use address::Allowed;
pub use authorizer::{Anonymous, Authorizer, Challenge};
pub use client::{Client, Limits, Response};
pub use dial::{Dial, Dialer, Io, Rules};
pub use endpoint::{Endpoint, Transport};
pub use error::Error;
pub use fault::{Fault, FaultKind};
pub use lines::Lines;
pub use origin::{Origin, resolve_reference};
pub use session::{Link, connect};

/// A future in a box, which is what a trait object can return.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

//! What the daemon asks of others over HTTP: a client whose every connection keeps to address rules.
//!
//! [`Client`] is for all of it, servers and authorization servers alike: what it may reach is said once, in [`Rules`], and
//! held against the address that is connected to. It knows neither MCP servers nor who asks.

pub mod address;
mod authorizer;
mod client;
mod dial;
mod error;
mod origin;
#[cfg(test)]
mod tests;
mod tls;

pub use authorizer::{Anonymous, Authorizer, Challenge};
pub use client::{Client, Limits, Response};
pub use dial::{Dial, Dialer, Io, Rules};
pub use error::Error;
pub use origin::{Origin, resolve_reference};

/// A future in a box, which is what a trait object can return.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

//! A client of HTTP/1.1 whose every connection keeps to address rules: what it may reach is said once, in [`Rules`], and
//! held against the address that is connected to. It knows neither MCP, nor models, nor who asks.
//!
//! A runtime of tokio is the caller's to bring, with time and input/output.

pub mod address;
mod client;
mod dial;
mod error;
mod origin;
mod retry_after;
#[cfg(test)]
mod tests;
mod tls;

pub use address::Allowed;
pub use client::{Client, Limits, Response};
pub use dial::{Dial, Dialer, Io, Rules};
pub use error::Error;
pub use origin::{Origin, resolve_reference};

/// A future in a box, which is what a trait object can return.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

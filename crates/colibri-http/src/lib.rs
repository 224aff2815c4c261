//! A client of HTTP/1.1 that checks the address of each connection against [`ConnectionRules`]. It
//! knows nothing of MCP, models or clients. [`sse`] reads the events of an answer.
//!
//! The caller provides a runtime of tokio, with time and input/output.

pub mod address;
mod client;
mod dial;
mod error;
mod origin;
mod retry_after;
pub mod sse;
#[cfg(test)]
mod tests;
mod tls;

pub use address::AllowedTarget;
pub use client::{HttpClient, HttpLimits, ResponseStream};
pub use futures_core::future::BoxFuture;

pub use dial::{ConnectionRules, Dial, Dialer, Io};
pub use error::HttpError;
pub use origin::{UrlOrigin, resolve_reference};

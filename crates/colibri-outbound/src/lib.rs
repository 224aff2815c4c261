//! MCP over HTTP: sessions with servers that stand behind a URL, and logins at them.
//!
//! [`connect`] makes a session with an [`Endpoint`], which is read and written like a process:
//! lines of JSON-RPC on either side. [`oauth`] finds out who issues tokens for a server, takes a
//! person through a login, and renews what was given; a session gets its tokens from an
//! [`Authorizer`].
//!
//! Its promises:
//! - what a server may answer with is bounded: heads, lines, streams, connections, waiting;
//! - a session ends with one [`SendError`] that says what failed, and its requests with it;
//! - a token goes to the server that it was issued for, over a way that nobody else can listen to,
//!   and is kept by server and person; none of a client's tokens comes here.
//!
//! It knows neither the registry's entries nor who calls; which addresses may be reached is
//! `colibri-http`'s to say, whether a call may go at all the relay's.

mod authorizer;
mod endpoint;
mod events;
mod lines;
pub mod oauth;
mod send_error;
mod session;
#[cfg(test)]
mod tests;

pub use authorizer::{Anonymous, Authorizer, Challenge};
pub use endpoint::{Endpoint, EndpointTransport};
pub use lines::OutboundLines;
pub use send_error::{SendError, SendErrorKind};
pub use session::{LegacyLink, connect};

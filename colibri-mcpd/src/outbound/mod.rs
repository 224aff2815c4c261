//! MCP over HTTP: [`connect`] makes a session with an endpoint, which is read and written like a
//! process. It knows neither servers nor who asks; what may be reached, and how, is the client's
//! (`colibri-http`).

mod authorizer;
mod endpoint;
mod events;
mod lines;
mod send_error;
mod session;
pub mod sse;
#[cfg(test)]
mod tests;

pub use authorizer::{Anonymous, Authorizer, Challenge};
pub use endpoint::{Endpoint, EndpointTransport};
pub use lines::OutboundLines;
pub use send_error::{SendError, SendErrorKind};
pub use session::{LegacyLink, connect};

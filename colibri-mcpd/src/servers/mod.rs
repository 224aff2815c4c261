//! External servers: what the registry says of them, their processes, and what these say.

mod context;
mod entry;
mod handshake;
mod instance;
mod judged;
mod launch;
mod listing;
mod offer;
pub mod registry;
mod relay;
mod retry;
pub mod secrets;
mod server;
mod slots;
mod state;
mod stderr;
pub mod tap;

pub use context::{Context, Parts};
pub use entry::{Entry, Isolation, Transport, parse};
pub use instance::Session;
pub use listing::{Catalogue, Definition};
pub use server::Server;
pub use state::{ProcessKey, State, Viewer};

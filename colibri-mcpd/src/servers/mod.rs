//! External servers: what the registry says of them, their processes, and what these say.

mod asks;
mod bridged;
mod context;
mod entry;
mod forward;
mod handshake;
mod held;
mod hold;
mod in_flight;
mod instance;
mod judged;
mod launch;
mod life;
mod listing;
mod offer;
mod open_asks;
pub mod registry;
mod retry;
pub mod secrets;
mod server;
mod slots;
mod state;
mod stderr;
mod subscribers;
mod subscriptions;
pub mod tap;
mod tasks;
mod turns;
mod watching;

pub use context::{Context, Parts};
pub use entry::{Entry, Isolation, Transport, parse};
pub use instance::Session;
pub use listing::{Catalogue, Definition, Listing};
pub use server::Server;
pub use state::{ProcessKey, State, Viewer};
pub use subscribers::Subscriber;

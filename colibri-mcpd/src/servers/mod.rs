//! External servers: what the registry says of them, their processes, and what these say.

mod accounts;
mod asked_back;
mod asks;
mod breaker;
mod bridged;
mod calls;
mod context;
mod faults;
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
mod logging;
mod offer;
mod open_asks;
mod opening;
mod remote;
mod retry;
mod server;
mod slots;
mod state;
mod stderr;
mod subscribers;
mod subscriptions;
mod supervision;
pub mod tap;
mod task_listens;
mod tasks;
mod turns;
mod watching;

pub use context::{ServerContext, ServerDependencies};

pub use instance::ServerSession;
pub use listing::{Catalogue, ServerDefinition, ServerList};
pub use server::HostedServer;
pub use state::{ProcessKey, State, Viewer};
pub use stderr::{Allowance, Stderr, StderrExcerpt};
pub use subscribers::Subscriber;

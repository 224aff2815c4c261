//! External servers: what the registry says of them, their processes, and what these say.

mod accounts;
mod advertised;
mod breaker;
mod calls;
mod context;
mod elicitation;
mod faults;
mod forward;
mod handshake;
mod in_flight;
mod launch;
mod life;
mod listing;
mod logging;
mod opening;
mod pin_check;
mod process_subscriptions;
mod remote;
mod retry;
mod server;
mod session;
mod skills;
mod slots;
mod specification;
mod ssh;
mod start_queue;
mod state;
mod stderr;
mod subscribers;
mod subscriptions;
mod supervision;
pub mod tap;
mod task_listens;
mod tasks;

pub(crate) use context::DiscoveryObserver;
pub use context::{ServerContext, ServerDependencies};

pub use listing::{Catalogue, ServerDefinition, ServerList};
pub use server::HostedServer;
pub use session::ServerSession;
pub(crate) use skills::SkillAnswer;
pub use specification::ServerSpecification;
pub use state::{ProcessKey, State, Viewer};
pub use stderr::{Allowance, Stderr, StderrExcerpt};
pub use subscribers::Subscriber;
pub use tasks::TaskOwner;

//! Where bytes and a caller's identity come in: the Unix socket, and what becomes of what each client writes.

mod agent_doors;
pub mod http;
mod inside;
pub mod lines;
mod listener;
mod messages;
mod scheduled;
mod summarised;
mod visitor;

pub use agent_doors::AgentDoors;
pub use listener::{ListenError, Listener};
pub use scheduled::ScheduledCalls;
pub use summarised::SummaryCalls;
pub use visitor::InboundConnection;

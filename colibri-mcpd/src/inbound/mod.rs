//! The way in for bytes and a caller's identity: the Unix socket, and the handling of each client's
//! messages.

mod agent_sockets;
mod connection;
pub mod http;
mod internal_client;
pub mod lines;
mod listener;
mod messages;
mod scheduled_calls;
mod script_connections;
mod summary_calls;

pub use agent_sockets::AgentDoors;
pub use connection::InboundConnection;
pub use listener::{ListenError, Listener};
pub use scheduled_calls::ScheduledCalls;
pub use script_connections::ScriptConnections;
pub use summary_calls::SummaryCalls;

//! Agents: programs that talk to a model and call tools, each instance in a jail whose one way out
//! is its agent socket.

mod autospawn;
mod instance;
mod life;
mod listeners;
mod prompt;
mod record_store;
mod report;
mod roster;
mod start;

pub use autospawn::TaskAgents;
pub use instance::Instance;
pub use listeners::{Doors, ListenGuard, Models};
pub use record_store::EventReader;
pub use roster::{AgentDependencies, AgentRoster};
pub use start::{AgentOrder, AgentWork};

#[cfg(test)]
mod tests;

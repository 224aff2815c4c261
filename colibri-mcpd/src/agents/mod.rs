//! Agents: programs that talk to a model and call tools, each instance in a jail whose one door is the daemon's.

mod autospawn;
mod instance;
mod kept;
mod life;
mod prompt;
mod roster;
mod start;
mod told;
mod ways;

pub use instance::Instance;
pub use kept::EventReader;
pub use roster::{AgentDependencies, AgentRoster};
pub use start::{AgentOrder, AgentWork};
pub use ways::{Doors, ListenGuard, Models};

#[cfg(test)]
mod tests;

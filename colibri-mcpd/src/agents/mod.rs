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
pub use roster::{Agents, Parts};
pub use start::{Order, Work};
pub use ways::{Doors, Models, Open};

#[cfg(test)]
mod tests;

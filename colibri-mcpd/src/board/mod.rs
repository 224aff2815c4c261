//! The board: who takes which task, for how long, and which agent is to have it.
//!
//! Claims and their numbers are the store's; the board adds time (a person's claim lapses, an
//! agent's lasts as long as its instance), the record of each change, those who watch, and the
//! scheduler.

mod change_order;
mod changes;
mod choice;
mod claim_table;
mod deferred;
mod lookup;
mod orders;
mod scheduled;
mod scheduler;
mod timing;

pub use changes::TaskChange;
pub use choice::{AgentDirectory, AgentStarter, Candidate};
pub use lookup::origin;
pub use orders::{Board, BoardActor, TaskCounters};
pub use scheduler::{ScheduledToolCaller, Scheduler};

#[cfg(test)]
mod tests;

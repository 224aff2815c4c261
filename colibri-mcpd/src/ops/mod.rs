//! The answers of the daemon itself: routing, the operators' methods and streams, agents, costs, status, metrics,
//! reload, and `--check`.

pub(crate) mod agents;
pub(crate) mod check;
pub(crate) mod costs;
mod frames;
mod listen;
pub(crate) mod login;
pub(crate) mod metrics;
pub(crate) mod operator;
mod overview;
pub(crate) mod own_target;
pub(crate) mod reload;
pub(crate) mod route;
mod status;
mod stream;
mod sys;
mod task_actor;
pub(crate) mod watch;
mod watch_notices;
mod watch_tasks;
pub(crate) mod witness;

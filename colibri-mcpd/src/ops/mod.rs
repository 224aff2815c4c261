//! The answers of the daemon itself: routing, the operators' methods and streams, agents, costs,
//! status, metrics, reload, and `--check`.

mod agents;
pub(crate) mod check;
mod costs;
mod create_task;
mod end;
mod frames;
mod listen;
mod login;
mod may;
mod method;
pub(crate) mod methods;
pub(crate) mod metrics;
mod operator;
mod overview;
pub(crate) mod own_target;
mod pins;
pub(crate) mod reload;
pub(crate) mod route;
mod script;
mod servers;
mod status;
mod stream;
mod sys;
mod task_actor;
mod watch;
mod watch_messages;
mod watch_notices;
mod watch_tasks;
pub(crate) mod witness;

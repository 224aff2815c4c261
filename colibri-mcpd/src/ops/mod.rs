//! What the daemon answers itself: who answers what, the operators' methods and streams, status, metrics, reload, and
//! `--check`.

pub(crate) mod check;
mod frames;
mod listen;
pub(crate) mod login;
pub(crate) mod metrics;
pub(crate) mod operator;
mod overview;
pub(crate) mod own;
pub(crate) mod reload;
pub(crate) mod route;
mod status;
mod sys;
pub(crate) mod watch;
pub(crate) mod witness;

//! What the daemon answers itself: who answers what, the operators' methods and streams, status, metrics, reload, and
//! `--check`.

pub mod check;
mod frames;
pub mod metrics;
pub mod operator;
mod overview;
pub mod own;
pub mod reload;
pub mod route;
mod status;
mod sys;
pub mod watch;
pub mod witness;

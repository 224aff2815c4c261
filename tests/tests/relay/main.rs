//! The relay and the servers behind it: calls in both eras, what is offered, what is kept and
//! counted, the trail, and what hostile servers try.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod accounts;
mod apps;
mod asking;
mod attacks;
mod contracts;
mod cost;
mod costs;
mod extensions;
mod failures;
mod fidelity;
mod hostile_remote;
mod hostile_scripts;
mod hostile_servers;
mod hosting;
mod login;
mod offered;
mod offers;
mod pins;
mod progress;
mod remote;
mod results;
mod roads;
mod script_flow;
mod scripts;
mod search;
mod shares;
mod skills;
mod ssh;
mod summaries;
mod trail;
mod ways_out;

//! Clients and the commands of people: the socket, HTTP, bridges, what is set up and seen, and what
//! hostile clients try.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod bridging;
mod bring;
mod chibi;
mod client;
mod connect;
mod exporting;
mod hostile_clients;
mod http;
#[cfg(target_os = "linux")]
mod learn;
mod notices;
mod operations;
mod packages;
mod page;
mod private;
mod recordings;
mod replace;
mod seeing;
mod service;

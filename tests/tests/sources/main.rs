//! The sources themselves: their names and dependencies, what pages and scripts name, and the
//! targets of the fuzzer on its seeds.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod language;
mod names;
mod product;
mod roads;
mod rooms;
mod seeds;
mod service_paths;
mod walks;

//! The sources themselves: their names, sizes and dependencies, and the targets of the fuzzer on its seeds.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod language;
mod paths;
mod rooms;
mod seeds;

//! Recordings: what a server was asked and answered in one session, in a file that `replay` answers
//! from and the trail vouches for.
//!
//! A file is lines of JSON: a head, a line for each request with its answer and what came in
//! between, an end with the SHA-256 of all before it. The same digest stands in the trail, in the
//! `tracestate` of a request that the recorder makes last: whoever changes the file would have to
//! change the trail.

mod file;
mod recorder;
mod replay;
mod verify;

pub(crate) use recorder::record;
pub(crate) use replay::replay;
pub(crate) use verify::verify;

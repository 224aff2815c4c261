//! Requests to models: what of them may pass, what they may cost, and what their answers did cost.
//!
//! An agent's request is judged by [`judge_request`] against a table of its interface
//! ([`ModelApi`]) and the [`RequestRules`] of its entry; what may go out is an [`OutgoingRequest`],
//! with the most that it may cost. [`Meter`] counts the tokens of an answer as it comes.
//!
//! Its promises:
//! - a member, value, header or parameter that the tables do not have is refused, with its place,
//!   and without letting the agent write what is said of it;
//! - nothing that has the provider do more than answer passes unless the entry allows it by name;
//! - the cost of a request is never taken for less than what the model may read and write.
//!
//! It listens on nothing and sends nothing: connections, keys, budgets and the trail are left to
//! the daemon's model relay.

mod api;
mod body;
mod grammar;
mod inline;
mod names;
mod peek;
mod refusal;
mod request;
mod rules;
mod stream_options;
mod usage;
mod walk;

pub use api::{ANSWER_FIELDS, ModelRequestKind, error_body, fits};
pub use refusal::ModelRefusal;
pub use request::{ModelRequest, OutgoingRequest, judge_request, read_body};
pub use rules::{ModelAllow, ModelApi, ModelPermissions, RequestRules};
pub use usage::{Meter, TokenCounts};
pub use walk::BodyFacts;

#[cfg(test)]
mod tests;
#[cfg(test)]
#[path = "../../../fuzz/src/ways_out.rs"]
#[allow(unreachable_pub, dead_code, reason = "it is the fuzzer's, too")]
mod ways_out;

// As the modules that the fuzzer and these tests share call it.
#[cfg(test)]
extern crate self as colibri_model;

//! Summaries of tools: one sentence about each, written by a model in the background and kept;
//! until there is one, and without a model, the first sentence of the tool's description.
//!
//! A summary is of exactly one definition: another schema or another pin has none. It is the text
//! of a model that read what a server wrote, so it stands where tools are searched and never in a
//! definition.

mod maker;
mod summary_call;
mod summary_table;
mod tools;

pub use maker::{CallFuture, InternalCalls, SummaryMaker};
pub use summary_table::SummaryTable;

#[cfg(test)]
mod tests;

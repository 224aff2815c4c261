//! What the fuzzer calls, a module a target: whatever bytes come, what each says of them holds. The programs that the
//! fuzzer makes of them stand in `fuzz_targets`; `tests/tests/seeds` calls the same on the seeds in every run of the tests.

pub mod answer;
pub mod bring;
pub mod edits;
pub mod events;
pub mod frames;
pub mod http;
pub mod json;
pub mod metadata;
pub mod names;
pub mod registry;
pub mod retry;
pub mod rewrite;
pub mod salvage;
pub mod uris;

/// A target: its name, and what the fuzzer calls.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 14] = [
    ("answer", answer::run),
    ("bring", bring::run),
    ("edits", edits::run),
    ("events", events::run),
    ("frames", frames::run),
    ("http", http::run),
    ("json", json::run),
    ("metadata", metadata::run),
    ("names", names::run),
    ("registry", registry::run),
    ("retry", retry::run),
    ("rewrite", rewrite::run),
    ("salvage", salvage::run),
    ("uris", uris::run),
];

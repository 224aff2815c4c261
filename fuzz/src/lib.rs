//! What the fuzzer calls, a module a target: whatever bytes come, what each says of them holds. The
//! programs that the fuzzer makes of them stand in `fuzz_targets`; `tests/tests/sources/seeds`
//! calls the same on the seeds in every run of the tests.

pub mod answer;
pub mod bring;
pub mod edits;
pub mod events;
pub mod frames;
pub mod http;
pub mod json;
pub mod metadata;
pub mod model;
pub mod names;
pub mod registry;
pub mod retry;
pub mod rewrite;
pub mod salvage;
pub mod uris;
pub mod ways_out;

/// A target: its name, and what the fuzzer calls.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 16] = [
    ("answer", answer::run),
    ("bring", bring::run),
    ("edits", edits::run),
    ("events", events::run),
    ("frames", frames::run),
    ("http", http::run),
    ("json", json::run),
    ("metadata", metadata::run),
    ("model", model::run),
    ("names", names::run),
    ("registry", registry::run),
    ("retry", retry::run),
    ("rewrite", rewrite::run),
    ("salvage", salvage::run),
    ("uris", uris::run),
    ("ways_out", ways_out::run),
];

/// Awaits what a target does, on one thread; where all wait, time goes on at once.
fn to_its_end<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}

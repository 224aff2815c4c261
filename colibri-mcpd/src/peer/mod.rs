//! A JSON-RPC peer: what is in flight towards it.

mod slab;

pub use slab::Slab;

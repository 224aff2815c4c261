//! The limits on a schema's size, and the refusal of one that is not applied.

/// The most bytes of a schema.
pub(super) const MAX_BYTES: usize = 256 << 10;
/// The most levels of a schema's text.
pub(super) const MAX_LEVELS: usize = 64;
/// The most regular expressions.
pub(super) const MAX_PATTERNS: usize = 64;
/// The most bytes of one regular expression.
pub(super) const MAX_PATTERN: usize = 1_024;
/// Bytes of a compiled regular expression. Far below the size at which regex-automata 0.4 panics
/// (rust-lang/regex#1344).
pub(super) const PATTERN_SIZE: usize = 256 << 10;
/// The most work of one check. A unit is about what comparing a short value takes; measured, all of
/// it takes some tens of milliseconds.
pub(super) const BUDGET: u64 = 4_000_000;
/// The most units of arguments in which strings are read as the values that they spell: a copy is
/// made of them.
pub(super) const MAX_UNQUOTED: u64 = 1 << 16;
/// The most subschemas that are entered one from within the other while checking: it bounds the
/// stack.
pub(super) const MAX_NESTED: usize = 512;
/// The stack of the thread that compiles: enough for [`MAX_SUBSCHEMAS`] in a row.
pub(super) const COMPILE_STACK: usize = 32 << 20;
/// The most characters that a message says of what does not fit.
pub(super) const MAX_SHOWN: usize = 300;
/// The most subschemas that can be reached.
pub(super) const MAX_SUBSCHEMAS: usize = 2_000;
/// The most subschemas that are entered one from within the other while compiling.
pub(super) const MAX_CHAIN: usize = 256;

/// The reason for which a schema is not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(pub(crate) String);

pub(super) fn refuse<T>(why: impl Into<String>) -> Result<T, SchemaError> {
    Err(SchemaError(why.into()))
}

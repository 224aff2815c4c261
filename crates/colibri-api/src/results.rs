//! Results that were too long to be answered at once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer of `colibri_read_result`: a piece of a kept result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResultPiece {
    /// The piece.
    pub text: String,
    /// The offset at which the next piece begins; missing at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

//! The columns of a row's signatures, on a board of many hosts.

/// The sign at the end of a list of a task's columns: here are those of its signatures.
pub(super) const SEAL: &str = "/*seal*/";
/// These columns. Of the result there is the digest alone, which may be of megabytes.
pub(super) const SEAL_COLUMNS: &str = ", host AS seal_host, signature AS seal_signature, state_host AS seal_state_host,
    state_signature AS seal_state, encode(sha256(convert_to(result, 'UTF8')), 'hex') AS seal_result";
/// The same of a schedule.
pub(super) const SCHEDULE_SEAL: &str = "/*seal of schedule*/";
pub(super) const SCHEDULE_SEAL_COLUMNS: &str = ", host AS seal_host, signature AS seal_signature";

/// The signatures of a row, as the board has them.
#[derive(Debug, Clone, Default)]
pub(super) struct RowSeal {
    /// The host that wrote it.
    pub(super) host: Option<String>,
    pub(super) signature: Option<String>,
    /// The host that brought a task into its state.
    pub(super) state_host: Option<String>,
    pub(super) state_signature: Option<String>,
    /// The digest of a task's result.
    pub(super) result: Option<String>,
}

impl RowSeal {
    /// Reads a column, if it is one of a signature.
    pub(super) fn read(&mut self, column: &str, value: impl FnOnce() -> Option<String>) -> bool {
        let field = match column {
            "seal_host" => &mut self.host,
            "seal_signature" => &mut self.signature,
            "seal_state_host" => &mut self.state_host,
            "seal_state" => &mut self.state_signature,
            "seal_result" => &mut self.result,
            _ => return false,
        };
        *field = value();
        true
    }
}

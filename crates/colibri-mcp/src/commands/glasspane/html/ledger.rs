//! The daemon's ledger of tools: the cost of listing them, and the tokens that models reported.

use std::time::{Duration, UNIX_EPOCH};

use colibri_api::{CostDay, CostRow, Costs, CostsBy, CostsRequest};
use serde::Serialize;

use super::names::NAME;
use crate::connection::{DaemonConnection, RequestError};
use colibri_text::brief;

/// The most tools that are shown.
const MAX_ROWS: usize = 1000;

/// The cost of tools since a day. Text in it has been made visible and is bounded.
#[derive(Debug, Serialize)]
pub(super) struct CostTable {
    /// The first day, UTC.
    since: String,
    /// True if it is about everybody, or only about who asked.
    everybody: bool,
    rows: Vec<LedgerRow>,
    /// Tools that are not shown.
    left_out: u64,
    /// The reason for which the newest counts are not in it.
    unwritten: Option<String>,
}

#[derive(Debug, Serialize)]
struct LedgerRow {
    server: String,
    tool: String,
    calls: u64,
    lists: u64,
    /// Bytes of its definition in those lists.
    listed: u64,
    /// The tokens that a model read and wrote, as it reported.
    tokens: u64,
}

/// Requests the costs since the day of this time, milliseconds since the epoch, and the daemon's
/// file of prices. `None`: the daemon tells none.
///
/// # Errors
/// The connection is lost, or the answer cannot be read.
pub(super) fn read(
    connection: &mut DaemonConnection,
    since: u64,
) -> Result<(Option<CostTable>, Option<String>), RequestError> {
    let since = CostDay::of(UNIX_EPOCH + Duration::from_millis(since));
    let asked = CostsRequest {
        since: Some(since),
        by: vec![CostsBy::Tool],
        unused: false,
    };
    let costs = match connection.ask::<Costs>("colibri/costs", &asked) {
        Ok((costs, _)) => costs,
        Err(RequestError::Refused { .. }) => return Ok((None, None)),
        Err(error) => return Err(error),
    };
    let mut rows: Vec<LedgerRow> = costs.rows.iter().map(row).collect();
    rows.retain(|row| row.listed > 0 || row.tokens > 0);
    let beyond = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    let table = CostTable {
        since: since.to_string(),
        everybody: costs.everybody,
        rows,
        left_out: costs.left_out.saturating_add(beyond as u64),
        unwritten: costs.unwritten.as_deref().map(|why| brief(why, 4 * NAME)),
    };
    Ok((Some(table), costs.prices))
}

fn row(of: &CostRow) -> LedgerRow {
    let named = |name: &Option<String>, none: &str| brief(name.as_deref().unwrap_or(none), NAME);
    LedgerRow {
        server: named(&of.server, "model"),
        tool: named(&of.tool, of.method.as_deref().unwrap_or("")),
        calls: of.cost.calls,
        lists: of.cost.lists,
        listed: of.cost.listed_bytes,
        tokens: of.cost.tokens_in.saturating_add(of.cost.tokens_out),
    }
}

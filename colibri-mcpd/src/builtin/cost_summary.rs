//! The words on a caller's cost mode and its budgets.

use colibri_api::{CostMode, DaemonFacts};
use colibri_text::counted;

use crate::relay::cost::time_of_today;

/// The mode with its budgets, and the caller's usage of them.
pub(super) fn cost(daemon: &DaemonFacts) -> String {
    let (mode, spending) = (daemon.cost_mode, &daemon.spending);
    let mut text = match spending.left_bytes {
        Some(_) => budgets(mode),
        None => "none acts, so nothing is held back".to_owned(),
    };
    if spending.set != mode {
        text.push_str(&format!(
            "; went up from {}, whose budget is used up",
            spending.set
        ));
    }
    let today = if spending.until.is_some() {
        " today (UTC)"
    } else {
        ""
    };
    text.push_str(&format!(
        "; {} used{today}",
        counted(spending.spent_bytes, "byte")
    ));
    if spending.before_bytes > 0 {
        let at = spending.chosen_at.and_then(time_of_today);
        let at = at.map_or_else(String::new, |at| format!(" at {at} UTC"));
        let before = spending.before_bytes;
        text.push_str(&format!(
            ", {before} of them before the mode was chosen{at}, which do not count"
        ));
    }
    match spending.left_bytes {
        Some(0) if spending.until.is_some() => {
            text.push_str(", nothing left: until 00:00 UTC tools of servers are refused, Colibri's own tools are not");
            if let Some(larger) = spending.larger {
                text.push_str(&format!(
                    "; cost mode {larger} (colibri_set_cost_mode) acts at once"
                ));
            }
        }
        Some(left) => text.push_str(&format!(", {left} left")),
        None => {}
    }
    text
}

fn budgets(mode: CostMode) -> String {
    let budgets = mode.budgets();
    let result = budgets
        .tool_result_bytes
        .map_or("unlimited".to_owned(), |bytes| format!("{bytes} bytes"));
    format!(
        "{}: {} bytes a session, {} uncompacted turns, tool results {result}",
        mode.name(),
        budgets.session_bytes,
        budgets.uncompacted_turns
    )
}

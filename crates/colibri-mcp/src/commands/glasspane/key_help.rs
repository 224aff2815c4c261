//! The help on keys.

use ratatui::style::Style;

use super::super::screen::{BOLD, StyledLine};

/// The keys, a line each, and the command that starts an agent.
pub(super) fn help() -> Vec<StyledLine> {
    let keys = [
        ("j k, up down", "the agent below, above"),
        (
            "Tab, Shift-Tab",
            "the next agent, the one before, in a circle",
        ),
        (
            "n N",
            "the next, the one before, that needs attention: failed, waiting for a person, stalled",
        ),
        ("a", "only those that need attention, or all"),
        ("Enter", "all about the chosen agent, with its events"),
        ("s", "start an agent: it takes the next task that fits it"),
        ("x", "stop the chosen agent, after a question"),
        ("t", "the servers, and back (operators)"),
        ("r", "news now"),
        ("?", "this"),
        ("q, Esc", "back; from the list: end"),
    ];
    let mut lines: Vec<_> = keys
        .iter()
        .map(|(key, what)| StyledLine::new(format!("  {key}"), BOLD).and(20, *what, Style::new()))
        .collect();
    lines.push(StyledLine::new(
        "  colibri-mcp agent run NAME PROMPT starts one with something to do",
        Style::new(),
    ));
    lines
}

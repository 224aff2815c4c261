//! `colibri-mcp costs`: what calls, lists and agents' models cost.

use std::time::SystemTime;

use anyhow::anyhow;

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::terminal::{self, Style, TextTable};
use colibri_api::{CostDay, CostRow, CostSum, Costs, CostsBy, CostsRequest};
use colibri_text::{counted, visible};

/// The values that are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct CostsArguments {
    /// Adds up by tool, server, agent, user or day; several separated by commas
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "tool")]
    by: Vec<CostsBy>,
    /// From this day on, in UTC: 2026-11-01, or 7d for the last seven [default: all 400 days that are kept]
    #[arg(long, value_name = "DAY", value_parser = since)]
    since: Option<CostDay>,
    /// Only tools that were listed and that nobody called
    #[arg(long)]
    unused: bool,
}

fn since(text: &str) -> anyhow::Result<CostDay> {
    let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()) else {
        return text
            .parse()
            .map_err(|error| anyhow!("{error}; or, as 7d, a number of days"));
    };
    let today = CostDay::of(SystemTime::now());
    Ok(CostDay(today.0.saturating_sub(days.saturating_sub(1))))
}

/// Runs the command.
pub(crate) fn run(arguments: &CostsArguments, context: &CommandContext) -> Result<(), CommandError> {
    let asked = CostsRequest {
        since: arguments.since,
        by: arguments.by.clone(),
        unused: arguments.unused,
    };
    let (costs, raw): (Costs, _) = context.ask("colibri/costs", &asked)?;
    context.print(&raw, || show(&costs, arguments.unused))
}

fn show(costs: &Costs, unused: bool) -> String {
    let whose = if costs.everybody { "everybody" } else { "you alone" };
    let Some(since) = costs.since else {
        return format!("Nothing is counted of {whose}.");
    };
    let mut text = String::new();
    if costs.rows.is_empty() {
        text.push_str("Every tool that was listed was called.\n");
    } else {
        text.push_str(&table(costs, unused));
        text.push('\n');
    }
    if costs.left_out > 0 {
        let left_out = counted(costs.left_out, "row");
        text.push_str(&format!("\n{left_out} that cost less are left out."));
    }
    text.push_str(&format!("\nSince {since}, of {whose}: {}", sum(&costs.sum)));
    if let Some(why) = &costs.unwritten {
        text.push_str(&format!("\nThe newest counts are not in it: {}", visible(why)));
    }
    text
}

fn table(costs: &Costs, unused: bool) -> String {
    let names = costs.by.iter().map(|by| match by {
        CostsBy::Tool => "tool",
        CostsBy::Server => "server",
        CostsBy::Agent => "agent",
        CostsBy::User => "user",
        CostsBy::Day => "day",
    });
    let names: Vec<&str> = names.collect();
    let has_models = costs.sum.model_requests > 0;
    let figures: &[&str] = match (unused, has_models) {
        (true, _) => &["lists", "bytes", "~tokens"],
        (false, false) => &["calls", "failed", "bytes", "~tokens", "ms", "listed"],
        (false, true) => &["calls", "failed", "bytes", "~tokens", "ms", "listed", "model"],
    };
    let headings: Vec<&str> = names.iter().chain(figures).copied().collect();
    let mut table = TextTable::new(&headings);
    for row in &costs.rows {
        let mut cells: Vec<(String, Style)> = names.iter().map(|name| (named(row, name), Style::Plain)).collect();
        cells.extend(shown(&row.cost, unused));
        cells.truncate(headings.len());
        let cells: Vec<(&str, Style)> = cells.iter().map(|(text, style)| (&**text, *style)).collect();
        table.row(&cells);
    }
    table.text()
}

fn named(row: &CostRow, name: &str) -> String {
    let server = row.server.as_deref().unwrap_or("-");
    match name {
        "server" => server.to_owned(),
        "agent" => row.agent.clone().unwrap_or_else(|| "-".to_owned()),
        "user" => row.uid.map_or_else(|| "-".to_owned(), terminal::user),
        "day" => row.day.map_or_else(|| "-".to_owned(), |day| day.to_string()),
        _ => match (&row.tool, row.method.as_deref().unwrap_or("-")) {
            (Some(tool), _) => format!("{server} {tool}"),
            (None, "tools/call") => format!("{server} (no such tool)"),
            (None, "model") => "(agents' models)".to_owned(),
            (None, method) => format!("{server} ({method})"),
        },
    }
}

/// In the order of the headings.
fn shown(cost: &CostSum, unused: bool) -> Vec<(String, Style)> {
    let number = |number: u64| (number.to_string(), Style::Plain);
    if unused {
        return [cost.lists, cost.listed_bytes, cost.estimated_listed_tokens]
            .map(number)
            .to_vec();
    }
    let failed = match cost.errors {
        0 => Style::Plain,
        _ => Style::Odd,
    };
    let each = cost.microseconds.checked_div(cost.calls).unwrap_or_default();
    vec![
        number(cost.calls),
        (cost.errors.to_string(), failed),
        number(cost.bytes()),
        number(cost.estimated_tokens),
        (format!("{}.{}", each / 1000, each / 100 % 10), Style::Plain),
        number(cost.listed_bytes),
        number(cost.tokens_in.saturating_add(cost.tokens_out)),
    ]
}

fn sum(cost: &CostSum) -> String {
    let mut text = format!(
        "{}, {} failed; {} in, {} out, about {} tokens",
        counted(cost.calls, "call"),
        cost.errors,
        terminal::bytes(cost.bytes_in),
        terminal::bytes(cost.bytes_out),
        cost.estimated_tokens
    );
    if cost.listed_bytes > 0 {
        let (bytes, tokens) = (terminal::bytes(cost.listed_bytes), cost.estimated_listed_tokens);
        text.push_str(&format!("; of that {bytes}, about {tokens} tokens, for listing tools"));
    }
    if cost.model_requests > 0 {
        text.push_str(&format!(
            "; models told of {} tokens read and {} written in {}",
            cost.tokens_in,
            cost.tokens_out,
            counted(cost.model_requests, "request")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(by: &[CostsBy], rows: Vec<CostRow>) -> Costs {
        let mut sum = CostSum::default();
        for row in &rows {
            sum.add(&row.cost);
        }
        Costs {
            everybody: true,
            since: Some(CostDay(20_000)),
            by: by.to_vec(),
            rows,
            sum,
            ..Costs::default()
        }
    }

    fn row(tool: Option<&str>, method: &str) -> CostRow {
        let mut cost = CostSum::default();
        cost.add(&CostSum {
            calls: 2,
            bytes_in: 40,
            bytes_out: 4000,
            microseconds: 2500,
            lists: 3,
            listed_bytes: 900,
            ..CostSum::default()
        });
        CostRow {
            server: Some("fs".to_owned()),
            method: Some(method.to_owned()),
            tool: tool.map(str::to_owned),
            cost,
            ..CostRow::default()
        }
    }

    #[test]
    fn costs_are_shown_under_the_names_they_are_added_up_by() {
        let rows = vec![
            row(Some("read\u{1b}[2J\u{202e}"), "tools/call"),
            row(None, "tools/call"),
            row(None, "resources/read"),
        ];
        let text = show(&costs(&[CostsBy::Tool], rows), false);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
        for part in [
            "read",
            "such",
            "resources/read",
            "Since 2024-10-04, of everybody: 6 calls",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let by_day = CostRow {
            uid: Some(4_000_000_000),
            day: Some(CostDay(20_001)),
            ..CostRow::default()
        };
        let text = show(&costs(&[CostsBy::Day, CostsBy::User], vec![by_day]), false);
        assert!(text.contains("2024-10-05") && text.contains("4000000000"), "{text}");
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let none = Costs::default();
        assert_eq!(show(&none, false), "Nothing is counted of you alone.");
        let text = show(&costs(&[CostsBy::Tool], Vec::new()), true);
        assert!(text.starts_with("Every tool"), "{text}");
    }

    #[test]
    fn days_are_given_as_dates_or_as_a_number() {
        assert_eq!(since("2024-10-04").unwrap(), CostDay(20_000));
        let (one, seven) = (since("1d").unwrap(), since("7d").unwrap());
        assert_eq!(one.0 - seven.0, 6);
        for wrong in ["", "d", "-1d", "7", "7 days", "2024-02-30"] {
            assert!(since(wrong).unwrap_err().to_string().contains("YYYY-MM-DD"), "{wrong}");
        }
    }
}

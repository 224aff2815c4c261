//! `colibri-mcp costs`: what calls, lists and agents' models cost, and in money where the operator
//! has written prices.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::anyhow;
use serde_json::json;
use serde_json::value::to_raw_value;

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::prices::{PriceList, PricedSum, PricesError};
use crate::terminal::{self, Style, TextTable};
use colibri_api::{CostDay, CostRow, CostSum, Costs, CostsBy, CostsRequest};
use colibri_text::{brief, counted, visible};

/// The most models that are named because they have no price.
const MAX_NAMED: usize = 5;
/// The most characters of a model's name in a message.
const MAX_NAME: usize = 60;

/// The values that are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct CostsArguments {
    /// Adds up by tool, server, agent, client, model, task, person or day; several separated by
    /// commas
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "tool"
    )]
    by: Vec<CostsBy>,
    /// From this day on, in UTC: 2026-11-01, or 7d for the last seven [default: all 400 days that
    /// are kept]
    #[arg(long, value_name = "DAY", value_parser = since)]
    since: Option<CostDay>,
    /// Only tools that were listed and that nobody called
    #[arg(long)]
    unused: bool,
    /// Prices of models, prices.json(5) [default: prices.json beside the daemon's registry]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

fn since(text: &str) -> anyhow::Result<CostDay> {
    let Some(days) = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u32>().ok())
    else {
        return text
            .parse()
            .map_err(|error| anyhow!("{error}; or, as 7d, a number of days"));
    };
    let today = CostDay::of(SystemTime::now());
    Ok(CostDay(today.0.saturating_sub(days.saturating_sub(1))))
}

/// The money of each row, and of all.
struct Money {
    prices: PriceList,
    /// By the row without its costs.
    rows: HashMap<CostRow, PricedSum>,
    sum: PricedSum,
    /// Names of models without a price.
    unpriced: BTreeSet<String>,
    /// Rows that the daemon left out.
    left_out: u64,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &CostsArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let asked = CostsRequest {
        since: arguments.since,
        by: arguments.by.clone(),
        unused: arguments.unused,
    };
    let mut connection = context.connect()?;
    let (costs, raw) = connection.ask::<Costs>("colibri/costs", &asked)?;
    let prices = read_prices(arguments.prices.as_deref(), &costs);
    let (money, failed) = match prices {
        Err(error) => (None, Some(error)),
        Ok(Some(prices)) if !arguments.unused => {
            let mut by = arguments.by.clone();
            if !by.contains(&CostsBy::Model) {
                by.push(CostsBy::Model);
            }
            let (costs, _) =
                connection.ask::<Costs>("colibri/costs", &CostsRequest { by, ..asked })?;
            (Some(Money::of(prices, &costs, &arguments.by)), None)
        }
        Ok(_) => (None, None),
    };
    let raw = match &money {
        Some(money) => {
            with_money(&costs, money).map_err(|error| CommandError::Machine(error.to_string()))?
        }
        None => raw,
    };
    context.print(&raw, || show(&costs, arguments.unused, money.as_ref()))?;
    match failed {
        Some(error) => Err(CommandError::Data(format!(
            "{error}; so tokens are shown without money"
        ))),
        None => Ok(()),
    }
}

/// The prices in a file that the person names, or in the daemon's, if it is there.
fn read_prices(named: Option<&Path>, costs: &Costs) -> Result<Option<PriceList>, PricesError> {
    let file = named.or(costs.prices.as_deref().map(Path::new));
    let Some(file) = file else { return Ok(None) };
    match PriceList::read(file)? {
        None if named.is_some() => Err(PricesError::Missing {
            file: file.display().to_string(),
        }),
        prices => Ok(prices),
    }
}

impl Money {
    /// The money of costs that are added up by model as well as `by`.
    fn of(prices: PriceList, costs: &Costs, by: &[CostsBy]) -> Money {
        let mut money = Money {
            prices,
            rows: HashMap::new(),
            sum: PricedSum::default(),
            unpriced: BTreeSet::new(),
            left_out: costs.left_out,
        };
        for row in costs.rows.iter().filter(|row| row.cost.model_requests > 0) {
            let model = row.model.as_deref().unwrap_or_default();
            let price = money.prices.price(model, &row.cost);
            if price.is_none() {
                money.unpriced.insert(model.to_owned());
            }
            let key = CostRow {
                model: row.model.clone().filter(|_| by.contains(&CostsBy::Model)),
                ..key(row)
            };
            for sum in [money.rows.entry(key).or_default(), &mut money.sum] {
                sum.add(price, &row.cost);
            }
        }
        money
    }

    fn row(&self, row: &CostRow) -> PricedSum {
        self.rows.get(&key(row)).copied().unwrap_or_default()
    }

    fn said(&self) -> String {
        let (prices, sum) = (&self.prices, &self.sum);
        let mut said = String::new();
        if sum.is_priced {
            said = format!(
                "\n{} {} by the prices of {}",
                sum.amount, prices.currency, prices.date
            );
        }
        if sum.unpriced > 0 {
            let mut names: Vec<String> = (self.unpriced.iter().take(MAX_NAMED))
                .map(|name| match name.as_str() {
                    "" => "models not known by name".to_owned(),
                    name => brief(name, MAX_NAME),
                })
                .collect();
            if self.unpriced.len() > MAX_NAMED {
                names.push(format!("{} more", self.unpriced.len() - MAX_NAMED));
            }
            said.push_str(&format!(
                "\nWithout a price, and so in no sum of money: {}: {}",
                counted(sum.unpriced, "token"),
                names.join(", ")
            ));
        }
        if self.left_out > 0 {
            said.push_str("\nMoney of what is left out is in no sum.");
        }
        said
    }
}

/// A row without its costs.
fn key(row: &CostRow) -> CostRow {
    CostRow {
        cost: CostSum::default(),
        ..row.clone()
    }
}

/// The daemon's answer with money.
fn with_money(
    costs: &Costs,
    money: &Money,
) -> serde_json::Result<Box<serde_json::value::RawValue>> {
    let said = |sum: PricedSum| json!({ "amount": sum.amount.to_number(), "unpriced_tokens": sum.unpriced });
    let mut answer = serde_json::to_value(costs)?;
    for (shown, row) in answer["rows"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .zip(&costs.rows)
    {
        shown["money"] = said(money.row(row));
    }
    answer["money"] = said(money.sum);
    answer["money"]["currency"] = json!(money.prices.currency);
    answer["money"]["date"] = json!(money.prices.date);
    to_raw_value(&answer)
}

fn show(costs: &Costs, unused: bool, money: Option<&Money>) -> String {
    let whose = if costs.everybody {
        "everybody"
    } else {
        "you alone"
    };
    let Some(since) = costs.since else {
        return format!("Nothing is counted of {whose}.");
    };
    let mut text = String::new();
    if costs.rows.is_empty() {
        text.push_str("Every tool that was listed was called.\n");
    } else {
        text.push_str(&table(costs, unused, money));
        text.push('\n');
    }
    if costs.left_out > 0 {
        let left_out = counted(costs.left_out, "row");
        text.push_str(&format!("\n{left_out} that cost less are left out."));
    }
    text.push_str(&format!("\nSince {since}, of {whose}: {}", sum(&costs.sum)));
    if let Some(money) = money {
        text.push_str(&money.said());
    }
    if let Some(why) = &costs.unwritten {
        text.push_str(&format!(
            "\nThe newest counts are not in it: {}",
            visible(why)
        ));
    }
    text
}

fn table(costs: &Costs, unused: bool, money: Option<&Money>) -> String {
    let has_models = costs.sum.model_requests > 0;
    let figures: &[&str] = match (unused, has_models) {
        (true, _) => &["lists", "bytes", "~tokens"],
        (false, false) => &["calls", "failed", "bytes", "~tokens", "ms", "listed"],
        (false, true) => &[
            "calls", "failed", "~tokens", "input", "cached", "stored", "output",
        ],
    };
    let money = money.filter(|_| has_models && !unused);
    let currency = money.map(|money| money.prices.currency.as_str());
    let headings: Vec<&str> = (costs.by.iter().map(|by| by.name()))
        .chain(figures.iter().copied())
        .chain(currency)
        .collect();
    let mut table = TextTable::new(&headings);
    for row in &costs.rows {
        let mut cells: Vec<(String, Style)> = (costs.by.iter())
            .map(|by| (named(row, *by), Style::Plain))
            .collect();
        cells.extend(shown(&row.cost, unused, has_models));
        cells.extend(money.map(|money| (money.row(row).to_string(), Style::Plain)));
        let cells: Vec<(&str, Style)> = cells
            .iter()
            .map(|(text, style)| (&**text, *style))
            .collect();
        table.row(&cells);
    }
    table.text()
}

fn named(row: &CostRow, by: CostsBy) -> String {
    let server = row.server.as_deref().unwrap_or("-");
    let or_none = |name: Option<String>| name.unwrap_or_else(|| "-".to_owned());
    match by {
        CostsBy::Server => server.to_owned(),
        CostsBy::Agent => or_none(row.agent.clone()),
        CostsBy::Client => or_none(row.client.clone()),
        CostsBy::Model => or_none(row.model.clone()),
        CostsBy::Task => or_none(row.task.map(|task| task.to_string())),
        CostsBy::Person => or_none(row.uid.map(terminal::user)),
        CostsBy::Day => or_none(row.day.map(|day| day.to_string())),
        CostsBy::Tool => match (&row.tool, row.method.as_deref().unwrap_or("-")) {
            (Some(tool), _) => format!("{server} {tool}"),
            (None, "tools/call") => format!("{server} (no such tool)"),
            (None, "model") => "(agents' models)".to_owned(),
            (None, method) => format!("{server} ({method})"),
        },
    }
}

/// In the order of the headings.
fn shown(cost: &CostSum, unused: bool, has_models: bool) -> Vec<(String, Style)> {
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
    let failed = (cost.errors.to_string(), failed);
    if has_models {
        return vec![
            number(cost.calls),
            failed,
            number(cost.estimated_tokens),
            number(cost.tokens_fresh()),
            number(cost.tokens_cached),
            number(cost.tokens_cache_write),
            number(cost.tokens_out),
        ];
    }
    let each = cost
        .microseconds
        .checked_div(cost.calls)
        .unwrap_or_default();
    vec![
        number(cost.calls),
        failed,
        number(cost.bytes()),
        number(cost.estimated_tokens),
        (format!("{}.{}", each / 1000, each / 100 % 10), Style::Plain),
        number(cost.listed_bytes),
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
        let (bytes, tokens) = (
            terminal::bytes(cost.listed_bytes),
            cost.estimated_listed_tokens,
        );
        text.push_str(&format!(
            "; of that {bytes}, about {tokens} tokens, for listing tools"
        ));
    }
    if cost.model_requests > 0 {
        text.push_str(&format!(
            "; models told of {} tokens read ({} of them from a cache, {} stored in one) and {} written in {}",
            cost.tokens_in,
            cost.tokens_cached,
            cost.tokens_cache_write,
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
        let text = show(&costs(&[CostsBy::Tool], rows), false, None);
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
        let text = show(
            &costs(&[CostsBy::Day, CostsBy::Person], vec![by_day]),
            false,
            None,
        );
        assert!(
            text.contains("2024-10-05") && text.contains("4000000000"),
            "{text}"
        );
    }

    fn asked(model: &str, agent: &str, tokens: [u64; 4]) -> CostRow {
        let [fresh, cached, stored, tokens_out] = tokens;
        let cost = CostSum {
            model_requests: 1,
            tokens_in: fresh + cached + stored,
            tokens_cached: cached,
            tokens_cache_write: stored,
            tokens_out,
            ..CostSum::default()
        };
        CostRow {
            model: Some(model.to_owned()).filter(|model| !model.is_empty()),
            agent: Some(agent.to_owned()),
            cost,
            ..CostRow::default()
        }
    }

    fn prices() -> PriceList {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("prices.json");
        let list = r#"{"currency":"EUR","date":"2026-11-01","models":[
            {"model":"big-*","input":10,"cached_input":1,"cache_write":12.5,"output":50}]}"#;
        std::fs::write(&file, list).unwrap();
        PriceList::read(&file).unwrap().unwrap()
    }

    #[test]
    fn money_is_added_up_by_what_is_asked_for_and_what_has_no_price_is_named() {
        let by_both = costs(
            &[CostsBy::Agent, CostsBy::Model],
            vec![
                asked("big-1", "coder", [100_000, 1_000_000, 40_000, 10_000]),
                asked("big-2", "coder", [100_000, 0, 0, 0]),
                asked("small\u{1b}[2J", "coder", [7, 0, 0, 3]),
                asked("", "writer", [5, 0, 0, 0]),
            ],
        );
        let money = Money::of(prices(), &by_both, &[CostsBy::Agent]);
        let mut coder = asked("", "coder", [200_007, 1_000_000, 40_000, 10_003]);
        coder.cost.calls = 1;
        let by_agent = costs(
            &[CostsBy::Agent],
            vec![coder, asked("", "writer", [5, 0, 0, 0])],
        );
        let text = show(&by_agent, false, Some(&money));
        // 1 + 1 + 0.5 + 0.5 and 1
        let coder = text.lines().find(|line| line.starts_with("coder")).unwrap();
        let cells: Vec<&str> = coder.split_whitespace().collect();
        assert_eq!(
            cells[4..],
            ["200007", "1000000", "40000", "10003", "4.0000+"],
            "{text}"
        );
        let writer = text
            .lines()
            .find(|line| line.starts_with("writer"))
            .unwrap();
        assert!(writer.ends_with(" -"), "{text}");
        for part in [
            "EUR",
            "\n4.0000 EUR by the prices of 2026-11-01",
            "in no sum of money: 15 tokens: models not known by name, small\\u{1b}[2J",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let answer: serde_json::Value =
            serde_json::from_str(with_money(&by_agent, &money).unwrap().get()).unwrap();
        assert_eq!(
            answer["rows"][0]["money"],
            json!({ "amount": 4.0, "unpriced_tokens": 10 })
        );
        assert_eq!(
            (&answer["money"]["currency"], &answer["money"]["date"]),
            (&json!("EUR"), &json!("2026-11-01"))
        );
        let money = Money::of(prices(), &by_both, &[CostsBy::Agent, CostsBy::Model]);
        let text = show(&by_both, false, Some(&money));
        assert!(
            text.lines()
                .any(|line| line.contains("big-2") && line.ends_with("1.0000")),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let none = Costs::default();
        assert_eq!(show(&none, false, None), "Nothing is counted of you alone.");
        let text = show(&costs(&[CostsBy::Tool], Vec::new()), true, None);
        assert!(text.starts_with("Every tool"), "{text}");
    }

    #[test]
    fn days_are_given_as_dates_or_as_a_number() {
        assert_eq!(since("2024-10-04").unwrap(), CostDay(20_000));
        let (one, seven) = (since("1d").unwrap(), since("7d").unwrap());
        assert_eq!(one.0 - seven.0, 6);
        for wrong in ["", "d", "-1d", "7", "7 days", "2024-02-30"] {
            assert!(
                since(wrong).unwrap_err().to_string().contains("YYYY-MM-DD"),
                "{wrong}"
            );
        }
    }
}

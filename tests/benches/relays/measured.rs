//! What was measured of each, and the table.

use std::collections::BTreeMap;
use std::time::Duration;

use super::speaker::{Cannot, Run};
use super::{DIRECT, Row};

/// One relay in one round.
pub(crate) struct Measured {
    /// From its start to the answer of the first call.
    pub(crate) first: Result<Duration, Cannot>,
    pub(crate) one: Result<Run, Cannot>,
    /// With 16 and 256 in flight.
    pub(crate) rates: [Result<Run, Cannot>; 2],
    /// Resident memory of it and all below it, bytes: after the first call, and after all of them.
    pub(crate) idle: u64,
    pub(crate) loaded: u64,
    /// Processes that it left behind.
    pub(crate) left: usize,
}

/// A figure of one relay in one round.
type Figure = fn(&Measured) -> Option<f64>;

fn quantile(measured: &Measured, percent: usize) -> Option<f64> {
    let times = &measured.one.as_ref().ok()?.times;
    times
        .get(times.len() * percent / 100)
        .map(|time| time.as_secs_f64() * 1e6)
}

fn rate(measured: &Measured, which: usize) -> Option<f64> {
    measured.rates[which].as_ref().ok().map(|run| run.rate)
}

const FIGURES: [(&str, Figure); 8] = [
    ("p50, µs", |measured| quantile(measured, 50)),
    ("p99, µs", |measured| quantile(measured, 99)),
    ("calls/s, 1 in flight", |measured| {
        measured.one.as_ref().ok().map(|run| run.rate)
    }),
    ("16", |measured| rate(measured, 0)),
    ("256", |measured| rate(measured, 1)),
    ("first answer, ms", |measured| {
        measured
            .first
            .as_ref()
            .ok()
            .map(|first| first.as_secs_f64() * 1e3)
    }),
    ("resident, MB", |measured| Some(measured.idle as f64 / 1e6)),
    ("after the load", |measured| {
        Some(measured.loaded as f64 / 1e6)
    }),
];

/// Prints all, as a table for a manual. `rounds` have the rows in order.
pub(crate) fn print(rows: &[&Row], rounds: &[Vec<Measured>]) {
    let place = |name: &str| rows.iter().position(|row| row.name == name).unwrap();
    // The median over the rounds of what is found in each.
    let over = |of: &dyn Fn(&[Measured]) -> Option<f64>| {
        median(rounds.iter().filter_map(|round| of(round)).collect())
    };
    println!(
        "\nmedians of {} rounds; in brackets the ratio to Colibri in the same framing\n",
        rounds.len()
    );
    let names: Vec<&str> = FIGURES.iter().map(|(name, _)| *name).collect();
    println!(
        "| | {} | added p50, µs |\n|---{}|",
        names.join(" | "),
        "|---".repeat(names.len() + 1)
    );
    for (index, row) in rows.iter().enumerate() {
        let ours = (!row.like.is_empty()).then(|| place(row.like));
        let mut cells = Vec::new();
        for (_, figure) in FIGURES {
            let ratio = |round: &[Measured]| Some(figure(&round[index])? / figure(&round[ours?])?);
            cells.push(cell(over(&|round| figure(&round[index])), over(&ratio)));
        }
        let added = |round: &[Measured], which: usize| {
            Some(quantile(&round[which], 50)? - quantile(&round[place(DIRECT)], 50)?)
        };
        let ratio = |round: &[Measured]| Some(added(round, index)? / added(round, ours?)?);
        cells.push(cell(over(&|round| added(round, index)), over(&ratio)));
        println!("| {} | {} |", row.name, cells.join(" | "));
    }
    println!();
    // What did not go, and in how many rounds.
    let mut trouble = BTreeMap::<String, usize>::new();
    for (row, measured) in rounds.iter().flat_map(|round| rows.iter().zip(round)) {
        let mut note =
            |what: String| *trouble.entry(format!("{} {what}", row.name)).or_default() += 1;
        if let Err(why) = &measured.first {
            note(format!("does not work: {why}"));
            continue;
        }
        let [some, many] = &measured.rates;
        for (in_flight, run) in [(1, &measured.one), (16, some), (256, many)] {
            if let Err(why) = run {
                note(format!("cannot do {in_flight} in flight: {why}"));
            }
        }
        if measured.left > 0 {
            note(format!(
                "left {} processes behind, which were killed",
                measured.left
            ));
        }
    }
    for (what, times) in trouble {
        println!("{what} ({times} of {} rounds)", rounds.len());
    }
    println!(
        "How much of a processor the measuring client itself used, with 1, 16 and 256 in flight:"
    );
    for (index, row) in rows.iter().enumerate() {
        let own = |run: &Result<Run, Cannot>| run.as_ref().ok().map(|run| run.own * 100.0);
        let of = |which: &dyn Fn(&Measured) -> Option<f64>| {
            over(&|round| which(&round[index]))
                .map_or("–".to_owned(), |share| format!("{share:.0} %"))
        };
        let shares = [
            of(&|measured| own(&measured.one)),
            of(&|measured| own(&measured.rates[0])),
            of(&|measured| own(&measured.rates[1])),
        ];
        println!("  {}: {}", row.name, shares.join(", "));
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

fn cell(figure: Option<f64>, ratio: Option<f64>) -> String {
    let Some(figure) = figure else {
        return "cannot".to_owned();
    };
    let short = |number: f64| match number.abs() {
        0.0..10.0 => format!("{number:.2}"),
        10.0..100.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    };
    match ratio {
        // Three digits of what is small.
        Some(ratio) if ratio.abs() < 0.1 => format!("{} ({ratio:.4} ×)", short(figure)),
        Some(ratio) => format!("{} ({} ×)", short(figure), short(ratio)),
        None => short(figure),
    }
}

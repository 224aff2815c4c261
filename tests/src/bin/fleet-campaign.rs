//! Runs the campaign of many hosts: `fleet-campaign [ROUNDS [SECONDS [SEED]]]`; by default 1,000
//! rounds, however long they take, of seed 1. It prints a report, and fails if a task was lost,
//! done twice or forged, or has not ended.
//!
//! The other programs are those of the directory that `COLIBRI_TEST_PROGRAMS` names.

use std::process::ExitCode;
use std::time::Duration;

use colibri_tests::fleet::{FleetPlan, run};

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let number = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let report = run(FleetPlan {
        rounds: number(0, 1_000),
        time: Duration::from_secs(number(1, u64::from(u32::MAX))),
        seed: number(2, 1),
    });
    println!("{report}");
    match report.board.faults.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

//! The long form of `tests/tests/board/campaign.rs`: two agents, a thousand tasks, and whatever
//! runs is killed at random, on the host and, as root on Linux, in the sandbox.
//!
//! `cargo bench -p colibri-tests --bench agents -- [host|sandbox] [TASKS [SEED…]]`; by default
//! both, 1,000 tasks, seeds 1, 2 and 3. It prints a report of each campaign, and fails if a promise
//! was broken.

use colibri_tests::campaign::{Host, Plan, run};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let tasks = numbers.first().map_or(1000, |tasks| *tasks as usize);
    let seeds = numbers
        .get(1..)
        .filter(|seeds| !seeds.is_empty())
        .unwrap_or(&[1, 2, 3]);
    let only = |other: &str| words.iter().any(|word| word == other);
    for seed in seeds {
        let plan = Plan {
            seed: *seed,
            tasks,
            kills: tasks / 3,
        };
        if !only("sandbox") {
            println!("on the host\n{}", run(&Host::new(), plan));
        }
        #[cfg(target_os = "linux")]
        if nix::unistd::geteuid().is_root() && !only("host") {
            let ground = colibri_tests::campaign::Jailed::new();
            println!("in the sandbox\n{}", run(&ground, plan));
        }
    }
}

//! Two agents, some tasks, and whatever runs is killed at random: the short form of `cargo bench
//! --bench agents`.

use std::path::Path;
use std::time::Duration;

use colibri_tests::campaign::{Host, Plan, run};
use colibri_tests::{LEGACY, Place, program, wait_for};
use serde_json::json;

/// Another seed is tried with `COLIBRI_SEED`.
fn plan(tasks: usize) -> Plan {
    let seed = std::env::var("COLIBRI_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    Plan {
        seed: seed.unwrap_or(11),
        tasks,
        kills: tasks / 3,
    }
}

#[test]
fn no_task_is_lost_or_done_twice_whatever_is_killed() {
    println!("{}", run(&Host::new(), plan(60)));
}

#[cfg(target_os = "linux")]
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn no_task_of_jailed_agents_is_lost_or_done_twice_whatever_is_killed() {
    println!("{}", run(&colibri_tests::campaign::Jailed::new(), plan(40)));
}

#[test]
fn an_agent_that_cannot_be_started_costs_no_task() {
    let place = Place::new();
    let agent = |program: &Path| {
        let directory = place.directory().display().to_string();
        let args = ["--dir", &directory, "--as", "one"];
        let users = [nix::unistd::geteuid().to_string()];
        let entry = json!({ "command": program, "args": args, "users": users, "autospawn": true });
        place.registry_text(&json!({ "agents": { "one": entry } }).to_string());
    };
    agent(&place.path("missing"));
    let daemon = place.start(&["--write", "--autospawn"]);
    let mut client = daemon.legacy(LEGACY);
    let mut create = || client.call("colibri_create_task", json!({ "title": "t" }));
    for _ in 0..3 {
        create();
    }
    daemon.wait_for_log("autospawn: ");
    // Each of these is a reason to look at the board again.
    for _ in 0..20 {
        create();
        std::thread::sleep(Duration::from_millis(30));
    }
    let starts = place
        .trail()
        .iter()
        .filter(|rec| rec["event"] == "agent-started")
        .count();
    assert!(
        (1..=3).contains(&starts),
        "{starts} starts of what cannot be started"
    );
    let task = |id: u64| {
        let shown = daemon
            .legacy(LEGACY)
            .call("colibri_get_task", json!({ "task": id }));
        shown["structuredContent"]["task"].clone()
    };
    for id in 1..=23 {
        let task = task(id);
        assert_eq!(
            (&task["status"], &task["attempts"]),
            (&json!("queued"), &json!(0)),
            "{task}"
        );
    }
    agent(&program("fixture-agent"));
    daemon.reload();
    create();
    for id in 1..=24 {
        wait_for("a task to be done", || {
            (task(id)["status"] == "done").then_some(())
        });
    }
}

//! Whether a campaign kept the promises.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::{Ground, Report};
use crate::records_in;

/// How often a task comes back before it fails.
const ATTEMPTS: u64 = 3;

/// Holds the tasks against what was ordered and what was recorded.
pub(super) fn verdict(
    ground: &dyn Ground,
    says: &BTreeMap<u64, &'static str>,
    tasks: &BTreeMap<u64, Value>,
    daemon_kills: u64,
) -> Report {
    let mut report = Report::default();
    let orders = orders(ground);
    for (id, task) in tasks {
        let mine: Vec<&Value> = orders
            .iter()
            .filter(|order| order["arguments"]["task"] == *id)
            .collect();
        let wrong = of_task(&mut report, says[id], task, &mine);
        assert_eq!(
            wrong,
            None,
            "task {id} ({}): {task}\norders: {mine:#?}\nrecords: {:#?}",
            says[id],
            steps(ground, *id)
        );
    }
    for order in &orders {
        let step = order["step"].as_str().unwrap_or_default();
        let tool = order["order"].as_str().unwrap_or_default();
        *report.orders.entry(format!("{tool}: {step}")).or_default() += 1;
        let given = order["arguments"]["given"].as_array().into_iter().flatten();
        let given: BTreeSet<u64> = given.filter_map(Value::as_u64).collect();
        assert!(
            given.len() < 2,
            "an instance was given two tasks at once: {order}"
        );
    }
    report.unmade = of_trail(ground, tasks, daemon_kills);
    report
}

/// All orders that agents noted.
fn orders(ground: &dyn Ground) -> Vec<Value> {
    let directories = ground.orders().into_iter();
    let files = directories.flat_map(|directory| {
        fs::read_dir(directory)
            .expect("the agents' orders")
            .flatten()
    });
    let files = files.filter(|file| file.path().extension().is_some_and(|of| of == "orders"));
    let mut orders = Vec::new();
    for file in files {
        let text = fs::read_to_string(file.path()).expect("an agent's orders");
        orders.extend(
            text.lines()
                .map(|line| serde_json::from_str(line).expect("an order")),
        );
    }
    orders
}

/// What is wrong with a task.
fn of_task(report: &mut Report, says: &str, shown: &Value, orders: &[&Value]) -> Option<String> {
    let task = &shown["task"];
    let status = task["status"].as_str().unwrap_or_default();
    *report
        .by_status
        .entry(format!("tasks {status}"))
        .or_default() += 1;
    let given = |tool: &str, step: &str| -> Vec<&Value> {
        let wanted = orders
            .iter()
            .filter(|order| order["order"] == tool && order["step"] == step);
        wanted.map(|order| &order["arguments"]).collect()
    };
    let (tried, told) = (
        given("colibri_finish_task", "try"),
        given("colibri_finish_task", "told"),
    );
    if told.len() > 1 {
        return Some("two finishes were answered with success".to_owned());
    }
    if let Some(told) = told.first()
        && (status != "done" || told["result"] != shown["result"] || told["claim"] != task["claim"])
    {
        return Some(
            "a finish that was answered with success is not the one that is recorded".to_owned(),
        );
    }
    let failed = given("colibri_fail_task", "told");
    if let Some(failed) = failed.first()
        && (status != "failed" || failed["reason"] != task["reason"])
    {
        return Some("a failure that was answered with success is not recorded".to_owned());
    }
    let attempts = task["attempts"].as_u64().unwrap_or(u64::MAX);
    if attempts > ATTEMPTS {
        return Some("it came back too often".to_owned());
    }
    match status {
        "done" => {
            let result = &shown["result"];
            let tried = tried.iter().any(|tried| {
                tried["result"] == *result
                    && tried["claim"] == task["claim"]
                    && result["claim"] == task["claim"]
            });
            let can_be_done = !matches!(says, "fail" | "release" | "crash" | "leave" | "hang");
            if !tried || !can_be_done {
                return Some("its result is nobody's".to_owned());
            }
            task["reason"]
                .is_string()
                .then(|| "it is done, and says why it is not".to_owned())
        }
        "failed" => {
            let reason = task["reason"].as_str().unwrap_or_default();
            if reason.is_empty() || !shown["result"].is_null() {
                return Some("it failed without a reason, or with a result".to_owned());
            }
            let by_order = given("colibri_fail_task", "try")
                .iter()
                .any(|tried| tried["claim"] == task["claim"] && tried["reason"] == reason);
            if attempts != ATTEMPTS && !by_order {
                return Some("it failed, and nobody said so".to_owned());
            }
            let reason: String = reason
                .chars()
                .filter(|c| !c.is_ascii_digit())
                .take(100)
                .collect();
            *report
                .reasons
                .entry(format!("  failed: {reason}"))
                .or_default() += 1;
            None
        }
        "cancelled" => (!told.is_empty() || !shown["result"].is_null())
            .then(|| "it is cancelled, and has a result".to_owned()),
        _ => Some("it has not ended".to_owned()),
    }
}

/// The steps of a task in the trail: from, to, claim, who.
fn steps(ground: &dyn Ground, id: u64) -> Vec<Value> {
    let records = records_in(&ground.state().join("trail")).into_iter();
    let events =
        records.filter(|record| record.rec["event"] == "task" && record.rec["details"]["id"] == id);
    events
        .map(|mut record| record.rec["details"].take())
        .collect()
}

/// Follows each task through the trail. A step is recorded before it is made: where the daemon is
/// killed in between, the next record of that task goes on from where it stood before. There is one
/// such record at most for each such kill. Returns how many there are.
fn of_trail(ground: &dyn Ground, tasks: &BTreeMap<u64, Value>, daemon_kills: u64) -> u64 {
    let mut by_task: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    let (mut started, mut ended, mut ended_again) = (BTreeSet::new(), BTreeSet::new(), 0);
    for record in records_in(&ground.state().join("trail")) {
        let details = &record.rec["details"];
        let session = details["session"].as_str().unwrap_or_default().to_owned();
        match record.rec["event"].as_str() {
            Some("task") => {
                assert!(
                    session.is_empty() || started.contains(&session) && !ended.contains(&session),
                    "a step of an instance that does not run: {details}"
                );
                let id = details["id"].as_u64().expect("a task's number");
                by_task.entry(id).or_default().push(details.clone());
            }
            Some("agent-started") => assert!(
                started.insert(session),
                "an instance started twice: {details}"
            ),
            Some("agent-ended") => {
                assert!(
                    started.contains(&session),
                    "an instance ended that never ran: {details}"
                );
                // An end is recorded before it is noted: where the daemon is killed in between, the
                // next one records it once more.
                if !ended.insert(session) {
                    assert_eq!(
                        details["exit"], "not seen",
                        "an instance ended twice: {details}"
                    );
                    ended_again += 1;
                }
            }
            _ => {}
        }
    }
    assert!(
        ended_again <= daemon_kills,
        "{ended_again} instances ended twice"
    );
    let mut unmade = 0;
    for (id, shown) in tasks {
        let steps = by_task.remove(id).unwrap_or_default();
        let mut made: Vec<&Value> = Vec::new();
        for step in &steps {
            // Steps that were recorded and not made are undone by one that goes on from before
            // them.
            if made.last().is_some_and(|last| last["to"] != step["from"]) {
                made.pop();
                unmade += 1;
            }
            let stood = made.last().map_or(&Value::Null, |last| &last["to"]);
            assert_eq!(stood, &step["from"], "task {id} jumps: {steps:#?}");
            made.push(step);
        }
        let task = &shown["task"];
        let last = made.last().map(|last| (&last["to"], &last["claim"]));
        assert_eq!(
            last,
            Some((&task["status"], &task["claim"])),
            "task {id} is not where the trail leads: {shown}\n{steps:#?}"
        );
        let count = |to: &str| made.iter().filter(|step| step["to"] == to).count();
        let done = usize::from(task["status"] == "done");
        assert_eq!(count("done"), done, "task {id} is done once: {steps:#?}");
        let claims: Vec<u64> = made
            .iter()
            .filter(|step| step["to"] == "claimed")
            .filter_map(|step| step["claim"].as_u64())
            .collect();
        let counted: Vec<u64> = (1..=task["claim"].as_u64().unwrap_or(0)).collect();
        assert_eq!(
            claims, counted,
            "task {id} was claimed by number: {steps:#?}"
        );
    }
    assert_eq!(by_task, BTreeMap::new(), "tasks that nobody created");
    assert!(unmade <= daemon_kills, "{unmade} records of what never was");
    unmade
}

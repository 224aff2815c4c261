//! Reads a board and its hosts' trails, and names each task that was lost, done twice, or forged.
//!
//! It knows nothing else: neither what was ordered nor what was broken meanwhile. The board has,
//! besides its tables, a journal that the database itself keeps: each committed change of a task,
//! in its order. It is no part of Colibri, and no role of a daemon's can write it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde_json::Value;

use crate::{Record, records_in};

/// The journal, once the board's tables are there. Leases and reservations are no steps of a task.
pub const JOURNAL: &str = "
    CREATE SCHEMA journal;
    CREATE TABLE journal.changes (
        n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        task BIGINT NOT NULL,
        status_before TEXT,
        status_after TEXT,
        claim BIGINT NOT NULL,
        is_result BOOLEAN NOT NULL
    );
    CREATE FUNCTION journal.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO journal.changes (task, status_before, claim, is_result)
                VALUES (OLD.id, OLD.status, OLD.claim, FALSE);
        ELSIF TG_OP = 'INSERT' THEN
            INSERT INTO journal.changes (task, status_after, claim, is_result)
                VALUES (NEW.id, NEW.status, NEW.claim, NEW.result IS NOT NULL);
        ELSIF (OLD.status, OLD.claim, OLD.result) IS DISTINCT FROM (NEW.status, NEW.claim, NEW.result) THEN
            INSERT INTO journal.changes (task, status_before, status_after, claim, is_result)
                VALUES (NEW.id, OLD.status, NEW.status, NEW.claim,
                    NEW.result IS NOT NULL AND NEW.result IS DISTINCT FROM OLD.result);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER journal AFTER INSERT OR UPDATE OR DELETE ON colibri.tasks
        FOR EACH ROW EXECUTE FUNCTION journal.note();";

const ENDED: [&str; 3] = ["done", "failed", "cancelled"];

/// A step of a task: its number, where it stood, where it stands, and the claim.
type Step = (u64, String, String, u64);

/// What is wrong with a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskFaultKind {
    /// It was created, or a step of it was answered with success, and the board does not have that.
    Lost,
    /// Two results were accepted, or two had it under one claim.
    Doubled,
    /// The board has something of it that no host has recorded.
    Forged,
    /// It has not ended.
    Open,
}

/// A task with what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskFault {
    /// Its number.
    pub task: u64,
    /// The kind of fault.
    pub kind: TaskFaultKind,
    /// A sentence about it.
    pub text: String,
}

impl fmt::Display for TaskFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            TaskFaultKind::Lost => "lost",
            TaskFaultKind::Doubled => "doubled",
            TaskFaultKind::Forged => "forged",
            TaskFaultKind::Open => "open",
        };
        write!(f, "{kind}: task {}: {}", self.task, self.text)
    }
}

/// What came of a check.
#[derive(Debug, Default)]
pub struct BoardReport {
    /// The faults, by task.
    pub faults: BTreeSet<TaskFault>,
    /// Tasks by status.
    pub tasks: BTreeMap<String, u64>,
    /// Steps that the board has.
    pub steps: u64,
    /// Steps that the callers were told of with success.
    pub answered: u64,
    /// Records of steps that were not made: the host, or its connection, ended between record and
    /// commit.
    pub unmade: u64,
}

impl fmt::Display for BoardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(f, "{fault}")?;
        }
        let tasks: Vec<_> = self
            .tasks
            .iter()
            .map(|(status, count)| format!("{count} {status}"))
            .collect();
        let count = |kind| {
            self.faults
                .iter()
                .filter(|fault| fault.kind == kind)
                .count()
        };
        write!(
            f,
            "tasks: {}; steps: {}, answered {}, recorded and not made {}; lost {}, doubled {}, forged {}, open {}",
            tasks.join(", "),
            self.steps,
            self.answered,
            self.unmade,
            count(TaskFaultKind::Lost),
            count(TaskFaultKind::Doubled),
            count(TaskFaultKind::Forged),
            count(TaskFaultKind::Open)
        )
    }
}

/// One line of the journal, or of the tasks' table.
struct BoardLine {
    task: u64,
    before: String,
    after: String,
    claim: u64,
    is_result: bool,
}

/// Checks a board, which `sql` reads, against the trails in these directories.
///
/// # Errors
/// The board cannot be read.
pub fn check(
    sql: &dyn Fn(&str) -> Result<Vec<String>, String>,
    trails: &[impl AsRef<Path>],
) -> Result<BoardReport, String> {
    let journal =
        "SELECT task, coalesce(status_before, ''), coalesce(status_after, ''), claim, is_result
        FROM journal.changes ORDER BY n";
    let journal = lines(&sql(journal)?)?;
    let tasks = "SELECT id, '', status, claim, result IS NOT NULL FROM colibri.tasks ORDER BY id";
    let tasks: BTreeMap<u64, BoardLine> = lines(&sql(tasks)?)?
        .into_iter()
        .map(|line| (line.task, line))
        .collect();
    let mut check = Check::default();
    for line in &journal {
        check.follow(line);
    }
    for trail in trails {
        check.read_trail(&records_in(trail.as_ref()));
    }
    check.compare(&tasks);
    for task in tasks.values() {
        *check.report.tasks.entry(task.after.clone()).or_default() += 1;
    }
    Ok(check.report)
}

fn lines(rows: &[String]) -> Result<Vec<BoardLine>, String> {
    let read = |row: &String| {
        let mut columns = row.split('|');
        let mut next = || columns.next().unwrap_or_default().to_owned();
        let (task, before, after, claim, is_result) = (next(), next(), next(), next(), next());
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| format!("{row}: not a line of the board"))
        };
        Ok(BoardLine {
            task: number(&task)?,
            before,
            after,
            claim: number(&claim)?,
            is_result: is_result == "t",
        })
    };
    rows.iter().map(read).collect()
}

#[derive(Default)]
struct Check {
    report: BoardReport,
    /// How often the trails have a step.
    recorded: BTreeMap<Step, u64>,
    /// How often they say that a caller was told of it with success.
    answered: BTreeMap<Step, u64>,
    /// How often the board has it.
    made: BTreeMap<Step, u64>,
    /// Where the journal leads, with the highest claim.
    last: BTreeMap<u64, (String, u64)>,
    results: BTreeMap<u64, u64>,
}

/// A call whose answer the trail does not have yet.
struct OpenCall {
    tool: String,
    caller: String,
    at: u64,
}

impl Check {
    fn fault(&mut self, kind: TaskFaultKind, task: u64, text: impl Into<String>) {
        let text = text.into();
        self.report.faults.insert(TaskFault { task, kind, text });
    }

    /// Notes the steps of one host's trail, and which of them were answered with success.
    fn read_trail(&mut self, records: &[Record]) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut calls: BTreeMap<u64, OpenCall> = BTreeMap::new();
        // Steps that no answer was found for yet.
        let mut steps: Vec<(u64, String, Step)> = Vec::new();
        for record in records {
            let rec = &record.rec;
            if record.is("enter") {
                let tool = text(&rec["tool"]);
                if let Some(tool) = tool
                    .strip_prefix("colibri_")
                    .and_then(|tool| tool.strip_suffix("_task"))
                {
                    let call = OpenCall {
                        tool: tool.to_owned(),
                        caller: caller(&rec["session"], &rec["uid"]),
                        at: record.n(),
                    };
                    calls.insert(record.n(), call);
                }
            } else if rec["event"] == "task" {
                let details = &rec["details"];
                let number = |value: &Value| value.as_u64().unwrap_or_default();
                let (from, to) = (text(&details["from"]), text(&details["to"]));
                let step = (number(&details["id"]), from, to, number(&details["claim"]));
                *self.recorded.entry(step.clone()).or_default() += 1;
                steps.push((
                    record.n(),
                    caller(&details["session"], &details["by"]),
                    step,
                ));
            } else if record.is("exit")
                && let Some(call) = calls.remove(&rec["enter"].as_u64().unwrap_or_default())
                && rec["result"] == "SUCCESS"
            {
                let fits = |(at, who, step): &(u64, String, Step)| {
                    *at > call.at && *who == call.caller && is_step_of(&call.tool, step)
                };
                // Calls of one caller may overlap, and a step of one that failed was not made: what
                // was made comes first.
                let is_made = |step: &Step| self.made.get(step) > self.answered.get(step);
                let fitting = steps.iter().enumerate().filter(|(_, step)| fits(step));
                let found =
                    fitting.max_by_key(|(at, step)| (is_made(&step.2), std::cmp::Reverse(*at)));
                match found.map(|(at, _)| at) {
                    Some(at) => *self.answered.entry(steps.remove(at).2).or_default() += 1,
                    // There was none to have, or the caller had it already.
                    None if matches!(&*call.tool, "next" | "start" | "get") => {}
                    None => {
                        let text = format!(
                            "record {}: {} was answered with success, and is no step",
                            call.at, call.tool
                        );
                        self.fault(TaskFaultKind::Forged, 0, text);
                    }
                }
            }
        }
    }

    /// Follows the board's own journal.
    fn follow(&mut self, line: &BoardLine) {
        let BoardLine {
            task,
            before,
            after,
            claim,
            ..
        } = line;
        if after.is_empty() {
            self.fault(
                TaskFaultKind::Lost,
                *task,
                format!("was {before}, and was deleted"),
            );
            return;
        }
        let step = (*task, before.clone(), after.clone(), *claim);
        if ENDED.contains(&before.as_str()) {
            let text =
                format!("had ended ({before}), and was changed to {after} under claim {claim}");
            self.fault(TaskFaultKind::Forged, *task, text);
        }
        let (_, highest) = self.last.get(task).cloned().unwrap_or_default();
        if after == "claimed" && *claim <= highest {
            let text = format!("was claimed under {claim}, after it was under {highest}");
            self.fault(TaskFaultKind::Doubled, *task, text);
        }
        self.last
            .insert(*task, (after.clone(), highest.max(*claim)));
        if line.is_result {
            *self.results.entry(*task).or_default() += 1;
        }
        *self.made.entry(step).or_default() += 1;
        self.report.steps += 1;
    }

    /// Holds board, journal and trails against each other.
    fn compare(&mut self, tasks: &BTreeMap<u64, BoardLine>) {
        let count =
            |of: &BTreeMap<Step, u64>, step: &Step| of.get(step).copied().unwrap_or_default();
        for (step, made) in self.made.clone() {
            let recorded = count(&self.recorded, &step);
            if made > recorded {
                let (task, before, after, claim) = step;
                let text = format!(
                    "came from \"{before}\" to \"{after}\" under claim {claim} {made} times, and the hosts recorded {recorded}"
                );
                self.fault(TaskFaultKind::Forged, task, text);
            }
        }
        let mut finished: BTreeMap<u64, u64> = BTreeMap::new();
        for (step, answered) in self.answered.clone() {
            self.report.answered += answered;
            let (made, (task, before, after, claim)) = (count(&self.made, &step), step);
            if after == "done" {
                *finished.entry(task).or_default() += answered;
            }
            if before != after && answered > made {
                let text = format!(
                    "a caller was told that it is {after} under claim {claim}, and the board never had that"
                );
                self.fault(TaskFaultKind::Lost, task, text);
            }
        }
        for (step, recorded) in &self.recorded {
            let is_change = step.1 != step.2;
            let unmade = recorded.saturating_sub(count(&self.made, step));
            self.report.unmade += if is_change { unmade } else { 0 };
        }
        for (task, results) in self.results.clone() {
            if results > 1 {
                self.fault(
                    TaskFaultKind::Doubled,
                    task,
                    format!("{results} results were accepted"),
                );
            }
        }
        for (task, answers) in finished {
            if answers > 1 {
                let text = format!("{answers} callers were told that their result was accepted");
                self.fault(TaskFaultKind::Doubled, task, text);
            }
        }
        for (task, (status, claim)) in self.last.clone() {
            match tasks.get(&task) {
                None => self.fault(
                    TaskFaultKind::Lost,
                    task,
                    format!("was {status}, and is not on the board"),
                ),
                Some(line) if line.after != status || line.claim < claim => {
                    let text = format!(
                        "is {} under claim {}, and its changes lead to {status}",
                        line.after, line.claim
                    );
                    self.fault(TaskFaultKind::Forged, task, text);
                }
                Some(_) => {}
            }
        }
        for (task, line) in tasks {
            if !self.last.contains_key(task) {
                self.fault(
                    TaskFaultKind::Forged,
                    *task,
                    "is on the board, and nobody put it there",
                );
            }
            if (line.after == "done") != line.is_result {
                let text = format!("is {}, with a result: {}", line.after, line.is_result);
                self.fault(TaskFaultKind::Forged, *task, text);
            }
            if !ENDED.contains(&line.after.as_str()) {
                self.fault(
                    TaskFaultKind::Open,
                    *task,
                    format!("is still {}", line.after),
                );
            }
        }
    }
}

/// The instance, or else the user, that does something.
fn caller(session: &Value, uid: &Value) -> String {
    session
        .as_str()
        .map_or_else(|| uid.to_string(), str::to_owned)
}

/// True if a call of this tool may have made the step.
fn is_step_of(tool: &str, (_, from, to, _): &Step) -> bool {
    match tool {
        "create" => from.is_empty(),
        "next" => to == "claimed",
        "start" => to == "started",
        "finish" => to == "done",
        "fail" => to == "failed",
        "release" => matches!(&**to, "queued" | "failed") && !from.is_empty(),
        "cancel" => to == "cancelled",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A trail with a finish of task 5 under this claim that was answered with success.
    fn trail(directory: &Path, claim: u64) {
        let records = [
            json!({ "n": 1, "kind": "enter", "tool": "colibri_finish_task", "session": "s" }),
            json!({ "n": 2, "kind": "event", "event": "task",
                "details": { "id": 5, "from": "started", "to": "done", "claim": claim, "session": "s" } }),
            json!({ "n": 3, "kind": "exit", "enter": 1, "result": "SUCCESS" }),
        ];
        let lines: Vec<String> = records
            .iter()
            .map(|rec| format!("{}\n", json!({ "rec": rec })))
            .collect();
        std::fs::write(directory.join("00.jsonl"), lines.concat()).unwrap();
    }

    #[test]
    fn two_hosts_that_accepted_a_result_are_found_whatever_the_board_has() {
        let trails = [1, 2].map(|claim| {
            let directory = tempfile::tempdir().unwrap();
            trail(directory.path(), claim);
            directory
        });
        let sql = |sql: &str| {
            let is_journal = sql.contains("journal.changes");
            let rows = if is_journal {
                &["5||started|2|f", "5|started|done|2|t"][..]
            } else {
                &["5||done|2|t"]
            };
            Ok(rows.iter().map(|row| (*row).to_owned()).collect())
        };
        let report = check(&sql, &trails).unwrap();
        let faults: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
        let has = |text: &str| faults.iter().any(|fault| fault.starts_with(text));
        assert!(has("doubled: task 5: 2 callers were told"), "{faults:?}");
        assert!(
            has("lost: task 5: a caller was told that it is done under claim 1"),
            "{faults:?}"
        );
    }
}

//! The steps of a task, with the statuses from and to which they lead: their one table.

use colibri_api::Task;
use colibri_api::TaskStatus::{self, Cancelled, Claimed, Done, Failed, Intake, Queued, Started};

/// A step of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStep {
    /// Somebody takes it.
    Claim,
    /// Its holder begins to work, or reports that work goes on.
    Start,
    /// Its holder gives its result.
    Finish,
    /// Its holder gives up for good.
    Fail,
    /// Its holder gives it back, or is gone.
    Requeue,
    /// It came back for the last time.
    GiveUp,
    /// A request that was taken in becomes work to be done.
    Queue,
    /// It is not to be done any more.
    Cancel,
}

/// Is told of a change before it is committed, with the status before; an error undoes it.
pub type Tell<'a> = &'a dyn Fn(&Task, Option<TaskStatus>) -> Result<(), String>;

/// Each step: its name, where a task must stand for it, and where it stands then.
const TABLE: [(TaskStep, &str, &[TaskStatus], TaskStatus); 8] = [
    (TaskStep::Claim, "next", &[Queued, Intake], Claimed),
    (TaskStep::Start, "start", &[Claimed, Started], Started),
    (TaskStep::Finish, "finish", &[Claimed, Started], Done),
    (TaskStep::Fail, "fail", &[Claimed, Started], Failed),
    (
        TaskStep::Requeue,
        "release",
        &[Claimed, Started, Queued],
        Queued,
    ),
    (
        TaskStep::GiveUp,
        "release",
        &[Claimed, Started, Queued],
        Failed,
    ),
    (TaskStep::Queue, "release", &[Intake], Queued),
    (
        TaskStep::Cancel,
        "cancel",
        &[Intake, Queued, Claimed, Started],
        Cancelled,
    ),
];

impl TaskStep {
    fn row(self) -> (&'static str, &'static [TaskStatus], TaskStatus) {
        let found = TABLE.iter().find(|(step, ..)| *step == self);
        found.map_or(("nothing", &[], Intake), |(_, name, from, to)| {
            (*name, *from, *to)
        })
    }

    /// The callers' name of it.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The required status before it.
    pub fn from(self) -> &'static [TaskStatus] {
        self.row().1
    }

    /// The status after it.
    pub fn to(self) -> TaskStatus {
        self.row().2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_reached_and_what_has_ended_stays_ended() {
        for status in TaskStatus::ALL {
            let reached = TABLE.iter().any(|(.., to)| *to == status);
            assert!(reached || status == Intake, "{status:?}");
            let left = TABLE.iter().any(|(_, _, from, _)| from.contains(&status));
            assert_eq!(
                left,
                !matches!(status, Done | Failed | Cancelled),
                "{status:?}"
            );
        }
    }
}

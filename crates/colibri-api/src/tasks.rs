//! Tasks, as `colibri_list_tasks` and those that create them tell them, and skills.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::may::MayPattern;
use crate::named::named;

named! {
    /// The status of a task.
    pub enum TaskStatus {
        /// As it came; nobody has looked at it.
        Intake = "intake",
        /// To be done.
        Queued = "queued",
        /// Somebody has taken it.
        Claimed = "claimed",
        /// Somebody works on it.
        Started = "started",
        /// Done.
        Done = "done",
        /// Tried, and not done.
        Failed = "failed",
        /// Not to be done any more.
        Cancelled = "cancelled",
    }
}

impl TaskStatus {
    /// True if nothing is done with such a task any more.
    pub fn has_ended(self) -> bool {
        matches!(
            self,
            TaskStatus::Done | TaskStatus::Failed | TaskStatus::Cancelled
        )
    }
}

/// The capability of what no agent is to do.
pub const PERSON: &str = "person";

/// The description of a new task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewTask {
    /// What is to be done, in one line.
    pub title: String,
    /// All that somebody needs to know to do it.
    pub description: String,
    /// Its source.
    pub source: String,
    /// Its place in the policy file.
    pub status: TaskStatus,
    /// The capabilities that its taker needs.
    pub required_capabilities: Vec<String>,
    /// 0 is the lowest.
    pub priority: u8,
    /// The uid of who created it.
    pub created_by: u32,
    /// With whom it is shared, `all` or the gid of a group; none: it is its creator's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub share: Option<TaskShare>,
    /// The limits of whoever takes it.
    #[serde(flatten)]
    pub limits: TaskLimits,
}

/// The limits that a task sets to the session that claims it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskLimits {
    /// The tools that may change something in its name; none: all that its taker may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub may: Option<Vec<MayPattern>>,
    /// True if a person's own command made it; else a tool did, and its text is nobody's word.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_person: bool,
    /// True if a session made it that had read something untrusted or private.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tainted: bool,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// With whom a task is shared: `all`, or a gid in digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum TaskShare {
    /// Everybody on this host.
    All,
    /// The members of a group, by its gid.
    Group(u32),
}

impl From<TaskShare> for String {
    fn from(share: TaskShare) -> String {
        match share {
            TaskShare::All => "all".to_owned(),
            TaskShare::Group(gid) => gid.to_string(),
        }
    }
}

impl TryFrom<String> for TaskShare {
    type Error = std::num::ParseIntError;

    fn try_from(share: String) -> Result<TaskShare, Self::Error> {
        match &*share {
            "all" => Ok(TaskShare::All),
            gid => gid.parse().map(TaskShare::Group),
        }
    }
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Task {
    /// Its number.
    pub id: u64,
    /// Its description.
    #[serde(flatten)]
    pub said: NewTask,
    /// Milliseconds since 1970-01-01 UTC.
    pub created_at: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub updated_at: u64,
    /// The number of its last claim; 0: nobody has claimed it yet.
    #[serde(default)]
    pub claim: u64,
    /// The uid of who has it, or had it when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<u32>,
    /// The agent's instance that has it, or had it when it ended; none: a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_session: Option<String>,
    /// The time at which the claim of a person lapses, or the reservation of a queued task. Milliseconds since
    /// 1970-01-01 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<u64>,
    /// The agent's instance for which it is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_session: Option<String>,
    /// The number of times that it came back to the queue; at the third time it fails.
    #[serde(default)]
    pub attempts: u32,
    /// The reason for which it is queued again, failed or cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The person who created it, where many hosts share the board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// The person who has it, or had it when it ended, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_person: Option<String>,
    /// The host that wrote it, where many hosts share the board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The reason for which it counts as foreign: no host that counts here has signed it as it stands on the board of
    /// many hosts. No agent gets it, and it has no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<String>,
    /// The reason for which no agent takes it now, while it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// The time at which work on it began. Milliseconds since 1970-01-01 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// The time at which it was done, failed or cancelled. Milliseconds since 1970-01-01 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
}

/// The answer of `colibri_get_task`, and of what changes one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct OneTask {
    /// As it is now.
    pub task: Task,
    /// Its result: any JSON value, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Value")]
    pub result: Option<Box<RawValue>>,
}

/// The answer of `colibri_next_task`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NextTask {
    /// The task, now claimed; null: there is none to be had.
    pub task: Option<Task>,
}

/// The answer of `colibri_list_tasks`: a page, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Tasks {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// The beginning of the next page; null: this was the last page.
    pub next_cursor: Option<String>,
}

/// The answer of `colibri_create_task` and `colibri_intake_task`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CreatedTask {
    /// As it was created.
    pub task: Task,
}

/// The times of a schedule; one of these is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Timing {
    /// Minute, hour, day, month and weekday as cron has them, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Every so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_s: Option<u64>,
    /// Once, at this time: RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// A tool that a schedule calls.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ScheduledCall {
    /// Its name, as its creator sees it.
    pub tool: String,
    /// Its arguments: an object.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub arguments: Box<RawValue>,
}

/// The work of a schedule: one of these.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ScheduledWork {
    /// Creates this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<NewTask>,
    /// Calls this tool, as its creator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<ScheduledCall>,
}

/// A schedule.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Schedule {
    /// Its number.
    pub id: u64,
    /// Its times.
    pub timing: Timing,
    /// Its activity.
    pub work: ScheduledWork,
    /// The uid of who created it.
    pub created_by: u32,
    /// The reason for which it counts as foreign, as of a task; it is not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<String>,
    /// Milliseconds since 1970-01-01 UTC.
    pub created_at: u64,
    /// The time of the next run; null: never again.
    pub next_at: Option<u64>,
    /// The time of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<u64>,
    /// The task that it created last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_task: Option<u64>,
    /// The outcome of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_outcome: Option<String>,
    /// The number of runs.
    pub runs: u64,
}

/// The answer of `colibri_schedule_task`: what was created or deleted, or all.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Schedules {
    /// The schedules.
    pub schedules: Vec<Schedule>,
}

/// `colibri/task`: a task has changed.
#[derive(Debug, Serialize, Deserialize)]
pub struct TaskChanged {
    /// The id of the request.
    pub watch: Box<RawValue>,
    /// Its former status; none: it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<TaskStatus>,
    /// The task after the change.
    pub task: Task,
}

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// The occasion to read it.
    pub description: String,
    /// Its `SKILL.md`.
    pub path: String,
}

/// A directory that could be a skill and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SkillProblem {
    /// Its address.
    pub path: String,
    /// The fault.
    pub why: String,
}

/// The answer of `colibri_list_skills`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Skills {
    /// Those that can be used.
    pub skills: Vec<Skill>,
    /// Those that cannot.
    pub problems: Vec<SkillProblem>,
}

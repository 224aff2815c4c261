//! Tasks, as `colibri_list_tasks` and those that create them tell them, and skills.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::named::named;

named! {
    /// Where a task stands.
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

/// What is said of a task when it is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewTask {
    /// What is to be done, in one line.
    pub title: String,
    /// All that somebody needs to know to do it.
    pub description: String,
    /// Where it comes from.
    pub source: String,
    /// Where it stands.
    pub status: TaskStatus,
    /// What somebody must be able to do to take it.
    pub required_capabilities: Vec<String>,
    /// 0 is the lowest.
    pub priority: u8,
    /// The uid of who created it.
    pub created_by: u32,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Task {
    /// Its number.
    pub id: u64,
    /// What was said of it.
    #[serde(flatten)]
    pub said: NewTask,
    /// Milliseconds since 1970-01-01 UTC.
    pub created_at: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub updated_at: u64,
}

/// The answer of `colibri_list_tasks`: a page, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Tasks {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Where the next page begins; null: this was the last page.
    pub next_cursor: Option<String>,
}

/// The answer of `colibri_create_task` and `colibri_intake_task`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CreatedTask {
    /// As it was created.
    pub task: Task,
}

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// When to read it.
    pub description: String,
    /// Its `SKILL.md`.
    pub path: String,
}

/// What could be a skill and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SkillProblem {
    /// Where it is.
    pub path: String,
    /// What is wrong with it.
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

//! Tasks, as `colibri_list_tasks` and those that create them tell them, and skills.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskStatus {
    /// As it came; nobody has looked at it.
    Intake,
    /// To be done.
    Queued,
    /// Somebody has taken it.
    Claimed,
    /// Somebody works on it.
    Started,
    /// Done.
    Done,
    /// Tried, and not done.
    Failed,
    /// Not to be done any more.
    Cancelled,
}

impl TaskStatus {
    /// All of them, in the order of a task's life.
    pub const ALL: [Self; 7] = [
        Self::Intake,
        Self::Queued,
        Self::Claimed,
        Self::Started,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name, as in every answer.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Intake => "intake",
            Self::Queued => "queued",
            Self::Claimed => "claimed",
            Self::Started => "started",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Task {
    /// Its number.
    pub id: u64,
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

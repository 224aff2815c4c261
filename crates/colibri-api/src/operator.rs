//! What operators are answered: `colibri/approvals`, `colibri/approve`, `colibri/deny`, `colibri/reload`, `colibri/pins`,
//! `colibri/pin-diff`, `colibri/pin-accept`.

use serde::{Deserialize, Serialize};

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// By which it is approved.
    pub id: String,
    /// Whose call it is.
    pub uid: u32,
    /// The server.
    pub server: String,
    /// The server's own name of the tool.
    pub tool: String,
    /// Why it waits.
    pub rule: String,
    /// What the tool is to be called with, as it is shown to people.
    #[serde(default)]
    pub arguments: String,
    /// When it was asked for. Seconds since the epoch.
    #[serde(default)]
    pub asked: u64,
    /// When it is refused. Seconds since the epoch.
    pub expires: u64,
}

/// The answer of `colibri/approvals`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approvals {
    /// The oldest first.
    pub approvals: Vec<Approval>,
}

/// The answer of `colibri/approve` and `colibri/deny`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The call.
    pub decided: Approval,
    /// Whether it may be made.
    pub approved: bool,
}

/// A server that a reload left blocked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedServer {
    /// The server.
    pub server: String,
    /// Why.
    pub reason: String,
}

/// The answer of `colibri/reload`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Always.
    pub reloaded: bool,
    /// What is blocked now.
    pub blocked: Vec<BlockedServer>,
}

/// How a definition stands against what was approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinState {
    /// It is as approved.
    Approved,
    /// It was never approved.
    New,
    /// It is not as approved.
    Changed,
}

impl PinState {
    /// The name, as in every answer.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::New => "new",
            Self::Changed => "changed",
        }
    }
}

/// One definition, or the instructions, of one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRow {
    /// The server.
    pub server: String,
    /// The server's own name of the tool; `None`: the instructions.
    pub tool: Option<String>,
    /// Whether it is the instructions.
    pub instructions: bool,
    /// How it stands.
    pub state: PinState,
    /// Why it is not approved.
    pub reason: Option<String>,
    /// The hash of what is approved.
    pub approved: Option<String>,
    /// Who approved it.
    pub by: Option<String>,
    /// The hash of what waits to be accepted.
    pub waiting: Option<String>,
    /// What waits against what is approved; only in answers to `colibri/pin-diff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// The answer of `colibri/pins`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinList {
    /// What is approved and what waits to be.
    pub pins: Vec<PinRow>,
    /// Names that could be taken for others.
    pub look_alikes: Vec<String>,
}

/// The answer of `colibri/pin-diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinDiffs {
    /// The server.
    pub server: String,
    /// What waits, with its differences.
    pub diffs: Vec<PinRow>,
    /// What waits and for which the answer had no room.
    pub left_out: u64,
}

/// One thing that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinAccepted {
    /// The server's own name of the tool; `None`: the instructions.
    pub tool: Option<String>,
    /// Whether it is the instructions.
    pub instructions: bool,
    /// The hash of what is approved now.
    pub sha256: String,
}

/// The answer of `colibri/pin-accept`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinsAccepted {
    /// The server.
    pub server: String,
    /// What was accepted.
    pub accepted: Vec<PinAccepted>,
}

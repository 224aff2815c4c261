//! The operators' requests and their answers: `colibri/approvals`, `colibri/approve`,
//! `colibri/deny`, `colibri/reload`, `colibri/restart`, `colibri/pins`, `colibri/pin-diff`,
//! `colibri/pin-accept`.

use std::fmt;

use colibri_text::{brief, visible};
use serde::{Deserialize, Serialize};

use crate::named::named;

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// By which it is approved.
    pub id: String,
    /// The caller, or the person for whom the calling agent runs.
    pub uid: u32,
    /// The agent that made it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The server.
    pub server: String,
    /// The server's own name of the tool.
    pub tool: String,
    /// The rule for which it waits.
    pub rule: String,
    /// The arguments of the call, as people are shown them.
    #[serde(default)]
    pub arguments: String,
    /// The time of the request. Seconds since the epoch.
    #[serde(default)]
    pub asked: u64,
    /// The time at which it is refused. Seconds since the epoch.
    pub expires: u64,
}

/// The answer of `colibri/approvals`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalsResponse {
    /// The oldest first.
    pub approvals: Vec<Approval>,
}

/// The parameters of `colibri/approve` and `colibri/deny`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRequest {
    /// The id of a waiting call.
    pub id: String,
}

/// The answer of `colibri/approve` and `colibri/deny`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionResponse {
    /// The call.
    pub decided: Approval,
    /// True if it may be made.
    pub approved: bool,
}

/// A server that a reload left blocked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedServer {
    /// The server.
    pub server: String,
    /// The reason.
    pub reason: String,
}

/// The answer of `colibri/reload`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadResponse {
    /// Always.
    pub reloaded: bool,
    /// The servers that are blocked now.
    pub blocked: Vec<BlockedServer>,
    /// True if the client policy has other limits than those that hold: they hold from the daemon's
    /// next start.
    #[serde(default)]
    pub limits_wait: bool,
}

/// The parameters of `colibri/restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRequest {
    /// The server.
    pub server: String,
}

/// The answer of `colibri/restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartResponse {
    /// The server.
    pub server: String,
    /// The number of its processes that were ended.
    pub ended: u64,
}

named! {
    /// The status of a definition beside the approved one.
    pub enum PinState {
        /// It is as approved.
        Approved = "approved",
        /// It was never approved.
        New = "new",
        /// It is not as approved.
        Changed = "changed",
    }
}

/// The subject of a pin: a member `tool`, `prompt`, `resource`, `template`, `skill` or
/// `instructions`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "SubjectMembers", into = "SubjectMembers")]
pub enum PinSubject {
    /// The server's `instructions`.
    Instructions,
    /// A tool, by the server's own name of it.
    Tool(String),
    /// A prompt, by the server's own name of it.
    Prompt(String),
    /// A resource, by the server's own URI of it.
    Resource(String),
    /// A template of resources' URIs, as the server wrote it.
    Template(String),
    /// A skill, by the server's own URI of its `SKILL.md`.
    Skill(String),
}

#[derive(Serialize, Deserialize)]
struct SubjectMembers {
    #[serde(default)]
    tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    template: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skill: Option<String>,
    #[serde(default)]
    instructions: bool,
}

impl TryFrom<SubjectMembers> for PinSubject {
    type Error = &'static str;

    fn try_from(members: SubjectMembers) -> Result<Self, Self::Error> {
        let named = [
            members.tool.map(Self::Tool),
            members.prompt.map(Self::Prompt),
            members.resource.map(Self::Resource),
            members.template.map(Self::Template),
            members.skill.map(Self::Skill),
            members.instructions.then_some(Self::Instructions),
        ];
        let mut named = named.into_iter().flatten();
        match (named.next(), named.next()) {
            (Some(subject), None) => Ok(subject),
            _ => Err(
                "one of tool, prompt, resource, template and skill must be a name, or instructions true",
            ),
        }
    }
}

impl From<PinSubject> for SubjectMembers {
    fn from(subject: PinSubject) -> Self {
        let mut members = Self {
            tool: None,
            prompt: None,
            resource: None,
            template: None,
            skill: None,
            instructions: subject == PinSubject::Instructions,
        };
        match subject {
            PinSubject::Instructions => {}
            PinSubject::Tool(name) => members.tool = Some(name),
            PinSubject::Prompt(name) => members.prompt = Some(name),
            PinSubject::Resource(uri) => members.resource = Some(uri),
            PinSubject::Template(template) => members.template = Some(template),
            PinSubject::Skill(uri) => members.skill = Some(uri),
        }
        members
    }
}

impl PinSubject {
    /// The name that the server gave it; the instructions have none.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Instructions => None,
            Self::Tool(name)
            | Self::Prompt(name)
            | Self::Resource(name)
            | Self::Template(name)
            | Self::Skill(name) => Some(name),
        }
    }

    /// True if `other` is of its kind and has this name as it is shown to people.
    pub fn is_shown_as(&self, other: &Self) -> bool {
        let shown = self.name().map(visible);
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && shown.as_deref() == other.name()
    }
}

impl fmt::Display for PinSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instructions => f.write_str("the instructions"),
            Self::Tool(name) => write!(f, "tool {}", brief(name, 100)),
            Self::Prompt(name) => write!(f, "prompt {}", brief(name, 100)),
            Self::Resource(uri) => write!(f, "resource {}", brief(uri, 100)),
            Self::Template(template) => write!(f, "template {}", brief(template, 100)),
            Self::Skill(uri) => write!(f, "skill {}", brief(uri, 100)),
        }
    }
}

/// One definition, or the instructions, of one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRow {
    /// The server.
    pub server: String,
    /// The part of it.
    #[serde(flatten)]
    pub subject: PinSubject,
    /// Its status.
    pub state: PinState,
    /// The reason for which it is not approved.
    pub reason: Option<String>,
    /// The hash of what is approved.
    pub approved: Option<String>,
    /// The approver.
    pub by: Option<String>,
    /// The hash of what waits to be accepted.
    pub waiting: Option<String>,
    /// The waiting definition beside the approved one; only in answers to `colibri/pin-diff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// The parameters of `colibri/pins`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinsRequest {
    /// Of this server alone.
    #[serde(default)]
    pub server: Option<String>,
}

/// The answer of `colibri/pins`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinList {
    /// The approved definitions, and those that wait for approval.
    pub pins: Vec<PinRow>,
    /// Names that could be taken for others.
    pub look_alikes: Vec<String>,
}

/// The parameters of `colibri/pin-diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinDiffRequest {
    /// The server.
    pub server: String,
    /// Of this alone.
    #[serde(flatten)]
    pub subject: Option<PinSubject>,
}

/// The answer of `colibri/pin-diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinDiffs {
    /// The server.
    pub server: String,
    /// The waiting definitions, with their differences.
    pub diffs: Vec<PinRow>,
    /// The number of waiting definitions for which the answer had no room.
    pub left_out: u64,
}

/// One thing that was seen, or accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinSeen {
    /// The subject.
    #[serde(flatten)]
    pub subject: PinSubject,
    /// Its hash.
    pub sha256: String,
}

/// The parameters of `colibri/pin-accept`: all of it is approved, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinAcceptRequest {
    /// The server.
    pub server: String,
    /// The definitions that were seen.
    pub accept: Vec<PinSeen>,
}

/// The answer of `colibri/pin-accept`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinsAccepted {
    /// The server.
    pub server: String,
    /// The definitions that were accepted.
    pub accepted: Vec<PinSeen>,
}

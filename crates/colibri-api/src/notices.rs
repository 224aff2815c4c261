//! Notices: what somebody may want to know although nobody asked, told once and never waited for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::named::named;

named! {
    /// The subject of a notice.
    pub enum NoticeEvent {
        /// A task is done, or has failed.
        TaskCompleted = "task.completed",
        /// A call waits for a person's word.
        ApprovalWaiting = "approval.waiting",
        /// The trail was sealed.
        TrailSealed = "trail.sealed",
        /// An agent failed, waits for somebody, or is stalled.
        AgentAttention = "agent.attention",
        /// Something without which the daemon cannot do its work.
        ErrorCritical = "error.critical",
    }
}

/// A notice, as it is told to who watches and sent to a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// Sixteen random hex digits: who gets it twice can tell.
    pub id: String,
    /// Its subject.
    pub event: NoticeEvent,
    /// The time, milliseconds since the epoch.
    pub time: u64,
    /// The name of the host.
    pub host: String,
    /// Ids, names (escaped and cut) and numbers. Never arguments, results or secrets.
    pub facts: BTreeMap<String, Value>,
}

/// `colibri/notice`: something happened.
#[derive(Debug, Serialize, Deserialize)]
pub struct NoticeNotification {
    /// The id of the request.
    pub watch: Box<RawValue>,
    /// The subject.
    pub notice: Notice,
}

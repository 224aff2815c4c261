//! The events that wake clients: a task is ready, a person has decided about a call, a notice is
//! about a user. Each has one user, and nobody is told of what is another's.

use std::sync::Arc;

use crate::board::TaskChange;
use crate::notices::name;
use crate::relay::Client;
use colibri_api::{Notice, NoticeEvent, TaskStatus};
use colibri_policy::ApprovalChange;
use serde_json::{Value, json};

/// An event for the clients of one user.
#[derive(Debug, PartialEq)]
pub(super) struct WakeEvent {
    uid: u32,
    /// The agents' instances that it is for, besides the person.
    instances: InstanceAudience,
    /// Ids, numbers and names alone.
    pub(super) data: Value,
}

#[derive(Debug, PartialEq)]
enum InstanceAudience {
    All,
    One(String),
    None,
}

impl WakeEvent {
    /// True if a client is to be told.
    pub(super) fn concerns(&self, client: &Client) -> bool {
        let is_for = match (&client.door, &self.instances) {
            (None, _) | (Some(_), InstanceAudience::All) => true,
            (Some(door), InstanceAudience::One(session)) => *door.session == **session,
            (Some(_), InstanceAudience::None) => false,
        };
        client.caller.uid == self.uid && is_for
    }

    /// A task that can be had now. One that is reserved for an instance is not yet anybody else's.
    pub(super) fn of_task(change: &TaskChange) -> Option<WakeEvent> {
        let TaskChange { task, from } = change;
        let queued = TaskStatus::Queued;
        let is_ready =
            task.said.status == queued && *from != Some(queued) && task.for_session.is_none();
        is_ready.then(|| WakeEvent {
            uid: task.said.created_by,
            instances: InstanceAudience::All,
            data: json!({ "event": "task.ready", "task": task.id }),
        })
    }

    pub(super) fn of_approval(change: &ApprovalChange) -> Option<WakeEvent> {
        let ApprovalChange::Decided { approval, approved } = change else {
            return None;
        };
        Some(WakeEvent {
            uid: approval.uid,
            instances: approval
                .session
                .clone()
                .map_or(InstanceAudience::None, InstanceAudience::One),
            data: json!({ "event": "approval.decided", "approval": approval.id, "approved": approved,
                "server": name(&approval.server), "tool": name(&approval.tool) }),
        })
    }

    /// A notice that is about one user; the others are for operators.
    pub(super) fn of_notice(notice: &Arc<Notice>) -> Option<WakeEvent> {
        let whose = match notice.event {
            NoticeEvent::TaskCompleted => "created_by",
            NoticeEvent::ApprovalWaiting => "uid",
            NoticeEvent::AgentAttention => "for",
            NoticeEvent::TrailSealed | NoticeEvent::ErrorCritical => return None,
        };
        let mut data = json!({ "event": notice.event });
        for (key, value) in &notice.facts {
            data[key] = value.clone();
        }
        Some(WakeEvent {
            uid: notice.facts.get(whose)?.as_u64()?.try_into().ok()?,
            instances: match notice.facts.get("session").and_then(Value::as_str) {
                Some(session) if notice.event == NoticeEvent::ApprovalWaiting => {
                    InstanceAudience::One(session.to_owned())
                }
                _ => InstanceAudience::None,
            },
            data,
        })
    }
}

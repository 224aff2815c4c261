//! The names of what the daemon records beside calls, for the one who writes and those who read.

/// The name of an event. Contracts name further ones, which have an underscore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventName {
    /// A client answered a request of a server.
    Answered,
    /// A person decided about a call.
    Approval,
    /// A server makes a request of a client.
    Asked,
    /// An instance of an agent ended.
    AgentEnded,
    /// An instance of an agent starts.
    AgentStarted,
    /// Somebody ended an instance of an agent.
    AgentStopped,
    /// A cost mode went up.
    CostMode,
    /// A call became a task.
    Deferred,
    /// A model answered.
    ModelAnswer,
    /// A request to a model was refused.
    ModelRefused,
    /// A request goes to a model.
    ModelRequest,
    /// A definition was accepted.
    PinAccepted,
    /// Definitions are blocked.
    PinsBlocked,
    /// Registry and client policy were read again.
    Reload,
    /// An operator ended the processes of a server.
    Restarted,
    /// A result is stored that its client did not get.
    ResultKept,
    /// A schedule is due.
    ScheduleRun,
    /// The daemon starts.
    Start,
    /// The daemon ends.
    Stop,
    /// An operator watches the frames of a server.
    Tap,
    /// A task changed its status.
    Task,
}

impl EventName {
    /// Every event.
    pub const ALL: [EventName; 21] = [
        EventName::Answered,
        EventName::Approval,
        EventName::Asked,
        EventName::AgentEnded,
        EventName::AgentStarted,
        EventName::AgentStopped,
        EventName::CostMode,
        EventName::Deferred,
        EventName::ModelAnswer,
        EventName::ModelRefused,
        EventName::ModelRequest,
        EventName::PinAccepted,
        EventName::PinsBlocked,
        EventName::Reload,
        EventName::Restarted,
        EventName::ResultKept,
        EventName::ScheduleRun,
        EventName::Start,
        EventName::Stop,
        EventName::Tap,
        EventName::Task,
    ];

    /// The name as it stands in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EventName::Answered => "answered",
            EventName::Approval => "approval",
            EventName::Asked => "asked",
            EventName::AgentEnded => "agent-ended",
            EventName::AgentStarted => "agent-started",
            EventName::AgentStopped => "agent-stopped",
            EventName::CostMode => "cost-mode",
            EventName::Deferred => "deferred",
            EventName::ModelAnswer => "model-answer",
            EventName::ModelRefused => "model-refused",
            EventName::ModelRequest => "model-request",
            EventName::PinAccepted => "pin-accepted",
            EventName::PinsBlocked => "pins-blocked",
            EventName::Reload => "reload",
            EventName::Restarted => "restarted",
            EventName::ResultKept => "result-kept",
            EventName::ScheduleRun => "schedule-run",
            EventName::Start => "start",
            EventName::Stop => "stop",
            EventName::Tap => "tap",
            EventName::Task => "task",
        }
    }

    /// The event of this name; `None`: a contract's.
    #[must_use]
    pub fn of(name: &str) -> Option<EventName> {
        EventName::ALL.into_iter().find(|event| event.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_format_has_every_event() {
        let page = include_str!("../../../docs/trail.md");
        for event in EventName::ALL {
            assert!(page.contains(&format!("`{}`", event.name())), "{event:?}");
            assert_eq!(EventName::of(event.name()), Some(event));
            assert!(!event.name().contains('_'), "{event:?} can be a contract's");
        }
        assert_eq!(EventName::of("model_call"), None);
    }
}

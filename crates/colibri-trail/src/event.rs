//! The table of what the daemon records beside calls, for the one who writes and those who read.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::record::Detail;

/// The name of the event of a call that became a task. Its details are those of a contract's event,
/// and `task`.
pub const DEFERRED_EVENT: &str = "deferred";

/// A field of an event: how it is written, and read back.
trait EventField<'a>: Sized {
    /// The detail; `None`: it is left out.
    fn detail(self) -> Option<Detail<'a>>;

    /// The field of a record that has this value; what is missing or of another type is empty, 0 or
    /// false.
    fn read(value: Option<&'a Value>) -> Self;
}

impl<'a> EventField<'a> for &'a str {
    fn detail(self) -> Option<Detail<'a>> {
        Some(Detail::Text(self))
    }

    fn read(value: Option<&'a Value>) -> Self {
        value.and_then(Value::as_str).unwrap_or_default()
    }
}

impl<'a> EventField<'a> for u64 {
    fn detail(self) -> Option<Detail<'a>> {
        Some(Detail::Number(self))
    }

    fn read(value: Option<&'a Value>) -> Self {
        value.and_then(Value::as_u64).unwrap_or_default()
    }
}

impl<'a> EventField<'a> for u32 {
    fn detail(self) -> Option<Detail<'a>> {
        Some(Detail::Number(self.into()))
    }

    fn read(value: Option<&'a Value>) -> Self {
        u64::read(value).try_into().unwrap_or_default()
    }
}

impl<'a> EventField<'a> for bool {
    fn detail(self) -> Option<Detail<'a>> {
        Some(Detail::Flag(self))
    }

    fn read(value: Option<&'a Value>) -> Self {
        value.and_then(Value::as_bool).unwrap_or_default()
    }
}

impl<'a> EventField<'a> for Detail<'a> {
    fn detail(self) -> Option<Detail<'a>> {
        Some(self)
    }

    fn read(value: Option<&'a Value>) -> Self {
        match value {
            Some(Value::Bool(value)) => Detail::Flag(*value),
            Some(Value::Number(_)) => Detail::Number(u64::read(value)),
            _ => Detail::Text(<&str>::read(value)),
        }
    }
}

impl<'a, T: EventField<'a>> EventField<'a> for Option<T> {
    fn detail(self) -> Option<Detail<'a>> {
        self.and_then(T::detail)
    }

    fn read(value: Option<&'a Value>) -> Self {
        value.map(|value| T::read(Some(value)))
    }
}

/// The details that are not left out.
fn there<'a, const N: usize>(
    details: [(&'static str, Option<Detail<'a>>); N],
) -> Vec<(&'static str, Detail<'a>)> {
    let there = |(key, detail): (_, Option<_>)| Some((key, detail?));
    details.into_iter().filter_map(there).collect()
}

macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

macro_rules! events {
    ($($(#[$doc:meta])* $event:ident = $name:literal { $($field:ident $(($key:literal))?: $kind:ty,)* })*) => {
        /// An event. Contracts name further ones, which have an underscore.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "docs/trail.md has the details of each event")]
        pub enum TrailEvent<'a> {
            $($(#[$doc])* $event { $($field: $kind),* },)*
        }

        impl<'a> TrailEvent<'a> {
            /// The names of all events.
            pub const NAMES: &'static [&'static str] = &[DEFERRED_EVENT, $($name),*];

            /// The name as it stands in records.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(TrailEvent::$event { .. } => $name,)*
                }
            }

            /// The details in the order in which records have them.
            #[must_use]
            pub fn details(&self) -> Vec<(&'static str, Detail<'a>)> {
                match *self {
                    $(TrailEvent::$event { $($field),* } => there([$((key!($field $($key)?), $field.detail())),*]),)*
                }
            }

            /// The event of a record. `None`: it is a contract's.
            #[must_use]
            pub fn read(name: &str, details: &'a BTreeMap<String, Value>) -> Option<TrailEvent<'a>> {
                match name {
                    $($name => Some(TrailEvent::$event {
                        $($field: EventField::read(details.get(key!($field $($key)?)))),*
                    }),)*
                    _ => None,
                }
            }
        }
    };
}

events! {
    /// A client answered a request of a server.
    Answered = "answered" {
        server: &'a str,
        method: &'a str,
        uid: u32,
        connection: u64,
        request: u64,
        call: Option<u64>,
        outcome: &'a str,
        answered_by: Option<&'a str>,
        sha256: Option<&'a str>,
        length: Option<u64>,
    }
    /// A person decided about a call.
    Approval = "approval" {
        approval: &'a str,
        by: u32,
        uid: u32,
        approved: bool,
        agent: Option<&'a str>,
        session: Option<&'a str>,
    }
    /// A server makes a request of a client.
    Asked = "asked" {
        server: &'a str,
        method: &'a str,
        uid: u32,
        connection: u64,
        request: u64,
        call: Option<u64>,
        sha256: &'a str,
        length: u64,
    }
    /// An instance of an agent ended.
    AgentEnded = "agent-ended" {
        agent: &'a str,
        session: &'a str,
        person ("for"): u32,
        state: &'a str,
        reason: &'a str,
        exit: &'a str,
        events: Option<u64>,
        sha256: Option<&'a str>,
        calls: Option<u64>,
        tokens_in: Option<u64>,
        tokens_out: Option<u64>,
    }
    /// An instance of an agent starts.
    AgentStarted = "agent-started" {
        agent: &'a str,
        session: &'a str,
        person ("for"): u32,
        by: Detail<'a>,
        task: Option<u64>,
        jail: Option<&'a str>,
    }
    /// Somebody ended an instance of an agent.
    AgentStopped = "agent-stopped" {
        agent: &'a str,
        session: &'a str,
        person ("for"): u32,
        by: u32,
    }
    /// A cost mode went up.
    CostMode = "cost-mode" {
        uid: u32,
        from: &'a str,
        to: &'a str,
        bytes: u64,
        agent: Option<&'a str>,
        session: Option<&'a str>,
    }
    /// A model answered.
    ModelAnswer = "model-answer" {
        agent: &'a str,
        session: &'a str,
        person ("for"): u32,
        n: u64,
        status: u64,
        length: u64,
        tokens_in: u64,
        tokens_out: u64,
        tokens_cached: u64,
        tokens_cache_write: u64,
        count: &'a str,
    }
    /// A request to a model was refused.
    ModelRefused = "model-refused" {
        agent: &'a str,
        session: &'a str,
        person ("for"): u32,
        status: u64,
        why: &'a str,
    }
    /// A request goes to a model.
    ModelRequest = "model-request" {
        agent: &'a str,
        session: &'a str,
        person ("for"): u32,
        n: u64,
        api: &'a str,
        method: &'a str,
        path: &'a str,
        model: Option<&'a str>,
        sha256: &'a str,
        length: u64,
        reserved: u64,
    }
    /// A definition was accepted.
    PinAccepted = "pin-accepted" {
        server: &'a str,
        what: &'a str,
        sha256: &'a str,
        by: u32,
    }
    /// Definitions are blocked.
    PinsBlocked = "pins-blocked" {
        server: &'a str,
        tools: u64,
        others: u64,
        names: &'a str,
        instructions: bool,
    }
    /// Registry and client policy were read again.
    Reload = "reload" {
        good: bool,
    }
    /// An operator ended the processes of a server.
    Restarted = "restarted" {
        server: &'a str,
        ended: u64,
        by: u32,
    }
    /// A result is stored that its client did not get.
    ResultKept = "result-kept" {
        call: u64,
        server: &'a str,
        uid: u32,
        sha256: &'a str,
        length: u64,
    }
    /// A client looks at the daemon's own state, for the first time on its connection.
    Look = "look" {
        uid: u32,
        connection: u64,
        client: Option<&'a str>,
        method: &'a str,
    }
    /// The connection of a client that looked is over.
    LookEnded = "look-ended" {
        uid: u32,
        connection: u64,
        looks: u64,
        failed: u64,
    }
    /// A schedule is due.
    ScheduleRun = "schedule-run" {
        id: u64,
        person ("for"): u32,
    }
    /// A script ended.
    Script = "script" {
        call: u64,
        uid: u32,
        calls: u64,
        failed: u64,
        unsent: u64,
        cancelled: u64,
        bytes: u64,
        returned: u64,
    }
    /// The daemon starts.
    Start = "start" {
        version: &'a str,
    }
    /// The daemon ends.
    Stop = "stop" {
    }
    /// A call waits for a person, since a destination of it stands in what its session has read.
    SuspendedOrigin = "suspended-origin" {
        call: u64,
        uid: u32,
        server: &'a str,
        tool: &'a str,
        argument: &'a str,
        source: &'a str,
        agent: Option<&'a str>,
        session: Option<&'a str>,
    }
    /// A call waits for a person, since it changes what its task may not.
    SuspendedOutsideTask = "suspended-outside-task" {
        call: u64,
        uid: u32,
        server: &'a str,
        tool: &'a str,
        task: Option<u64>,
        why: &'a str,
        agent: Option<&'a str>,
        session: Option<&'a str>,
    }
    /// An operator watches the frames of a server.
    Tap = "tap" {
        server: &'a str,
        by: u32,
        connection: u64,
        full: bool,
    }
    /// A task changed its status.
    Task = "task" {
        id: u64,
        to: &'a str,
        claim: u64,
        from: Option<&'a str>,
        share: Option<Detail<'a>>,
        by: Option<u32>,
        session: Option<&'a str>,
        reason: Option<&'a str>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_format_has_every_event() {
        let page = include_str!("../../../docs/trail.md");
        for name in TrailEvent::NAMES {
            assert!(page.contains(&format!("`{name}`")), "{name}");
            assert!(!name.contains('_'), "{name} can be a contract's");
        }
    }

    #[test]
    fn an_event_is_read_as_it_was_written() {
        for event in [
            TrailEvent::Task {
                id: 7,
                to: "queued",
                claim: 0,
                from: None,
                share: Some(Detail::Number(20)),
                by: Some(1001),
                session: None,
                reason: Some("r"),
            },
            TrailEvent::ScheduleRun {
                id: 1,
                person: 1001,
            },
            TrailEvent::Look {
                uid: 1001,
                connection: 7,
                client: Some("colibri-mcp"),
                method: "colibri/overview",
            },
            TrailEvent::LookEnded {
                uid: 1001,
                connection: 7,
                looks: 40,
                failed: 0,
            },
            TrailEvent::AgentStarted {
                agent: "coder",
                session: "00000000000000aa",
                person: 1001,
                by: Detail::Text("daemon"),
                task: None,
                jail: Some("j"),
            },
            TrailEvent::Stop {},
        ] {
            let value = |detail| match detail {
                Detail::Text(text) => Value::from(text),
                Detail::Number(number) => Value::from(number),
                Detail::Flag(flag) => Value::from(flag),
            };
            let details = event.details();
            let details = details
                .into_iter()
                .map(|(key, detail)| (key.to_owned(), value(detail)));
            let details = details.collect();
            assert_eq!(TrailEvent::read(event.name(), &details), Some(event));
        }
        assert_eq!(TrailEvent::read("model_call", &BTreeMap::new()), None);
    }
}

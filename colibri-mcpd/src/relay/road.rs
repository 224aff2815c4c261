//! The road of a call that was taken in.

use super::call::Call;
use super::call_request::CallArguments;
use colibri_policy::Road;
use colibri_protocol::Method;

/// The road of a call that was taken in by `entry`. A request whose method or tool has a road of
/// its own is on that, whatever connection it came by; a redirected call stays on its own.
pub(super) fn road_of(call: &Call, entry: Road) -> Road {
    if entry == Road::Redirect {
        return entry;
    }
    match call.method {
        Some(Method::ToolsCall) => match (&call.parts.arguments, &call.parts.called) {
            (CallArguments::Within { .. }, Some(_)) => Road::CallTool,
            (CallArguments::Within { .. }, None) => Road::ExternalCallTool,
            _ => entry,
        },
        Some(Method::PromptsGet) => Road::Prompt,
        Some(
            Method::ResourcesRead
            | Method::ResourcesSubscribe
            | Method::ResourcesUnsubscribe
            | Method::SkillsGet
            | Method::DirectoryRead,
        ) => Road::Resource,
        Some(Method::Complete) => Road::Completion,
        Some(Method::SubscriptionsListen) => Road::Subscription,
        Some(Method::TasksGet | Method::TasksUpdate | Method::TasksCancel) => Road::ServerTask,
        None if call.target.description().upstream().is_some() => Road::EntryMethod,
        _ => entry,
    }
}

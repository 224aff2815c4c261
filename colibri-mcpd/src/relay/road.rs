//! The road of a call.

use super::call_request::{CallArguments, CallRequest};
use super::target::TargetDescription;
use colibri_policy::Road;
use colibri_protocol::Method;

/// The road of a request that came by `entry`. One whose method or tool has a road of its own is
/// on that, whatever connection it came by.
pub(super) fn road_of(request: &CallRequest, target: &TargetDescription, entry: Road) -> Road {
    match request.method {
        Some(Method::ToolsCall) => match (&request.parts.arguments, &request.parts.called) {
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
        None if target.upstream().is_some() => Road::EntryMethod,
        _ => entry,
    }
}

//! The methods that a client may call, and the versions that have them.

use super::answer::Capability;
use super::version::Version;

/// The prefix of the operators' methods, which exist only in Colibri.
pub const OPERATORS: &str = "colibri/";

/// A request that a client sends to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `initialize`
    Initialize,
    /// `server/discover`
    Discover,
    /// `ping`
    Ping,
    /// `tools/list`
    ToolsList,
    /// `tools/call`
    ToolsCall,
    /// `resources/list`
    ResourcesList,
    /// `resources/templates/list`
    ResourceTemplatesList,
    /// `resources/read`
    ResourcesRead,
    /// `resources/subscribe`
    ResourcesSubscribe,
    /// `resources/unsubscribe`
    ResourcesUnsubscribe,
    /// `prompts/list`
    PromptsList,
    /// `prompts/get`
    PromptsGet,
    /// `completion/complete`
    Complete,
    /// `logging/setLevel`
    LoggingSetLevel,
    /// `subscriptions/listen`
    SubscriptionsListen,
    /// `tasks/get` of the tasks extension.
    TasksGet,
    /// `tasks/update` of the tasks extension.
    TasksUpdate,
    /// `tasks/cancel` of the tasks extension.
    TasksCancel,
}

impl Method {
    /// All methods.
    pub const ALL: [Method; 18] = [
        Method::Initialize,
        Method::Discover,
        Method::Ping,
        Method::ToolsList,
        Method::ToolsCall,
        Method::ResourcesList,
        Method::ResourceTemplatesList,
        Method::ResourcesRead,
        Method::ResourcesSubscribe,
        Method::ResourcesUnsubscribe,
        Method::PromptsList,
        Method::PromptsGet,
        Method::Complete,
        Method::LoggingSetLevel,
        Method::SubscriptionsListen,
        Method::TasksGet,
        Method::TasksUpdate,
        Method::TasksCancel,
    ];

    /// The method's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Initialize => "initialize",
            Method::Discover => "server/discover",
            Method::Ping => "ping",
            Method::ToolsList => "tools/list",
            Method::ToolsCall => "tools/call",
            Method::ResourcesList => "resources/list",
            Method::ResourceTemplatesList => "resources/templates/list",
            Method::ResourcesRead => "resources/read",
            Method::ResourcesSubscribe => "resources/subscribe",
            Method::ResourcesUnsubscribe => "resources/unsubscribe",
            Method::PromptsList => "prompts/list",
            Method::PromptsGet => "prompts/get",
            Method::Complete => "completion/complete",
            Method::LoggingSetLevel => "logging/setLevel",
            Method::SubscriptionsListen => "subscriptions/listen",
            Method::TasksGet => "tasks/get",
            Method::TasksUpdate => "tasks/update",
            Method::TasksCancel => "tasks/cancel",
        }
    }

    /// The method with this name. `None` for names that no version has, and for `tasks/result` and `tasks/list`: only
    /// 2025-11-25 had them, under a capability that the daemon never declares.
    pub fn parse(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// True if `version` has the method (`ClientRequest` at the end of each `schema.ts`). 2026-07-28 removed the
    /// handshake, `ping`, `logging/setLevel` and the two subscription methods (its changelog, major changes 2, 4 and
    /// 5).
    pub(crate) fn is_in(self, version: Version) -> bool {
        match self {
            Method::Discover
            | Method::SubscriptionsListen
            | Method::TasksGet
            | Method::TasksUpdate
            | Method::TasksCancel => version.is_modern(),
            Method::Initialize
            | Method::Ping
            | Method::LoggingSetLevel
            | Method::ResourcesSubscribe
            | Method::ResourcesUnsubscribe => !version.is_modern(),
            _ => true,
        }
    }

    /// True if a server may request input before it answers the method (2026-07-28, basic/patterns/mrtr, "Supported
    /// Requests").
    pub fn may_ask_back(self) -> bool {
        matches!(self, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
    }

    /// The capability that the method needs; `None` if it needs none. A method whose capability was not declared is
    /// answered with "not found" (2026-07-28, `schema.ts`, `MethodNotFoundError`).
    pub fn capability(self) -> Option<Capability> {
        match self {
            Method::Initialize | Method::Discover | Method::Ping | Method::SubscriptionsListen => None,
            Method::ToolsList | Method::ToolsCall | Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
                Some(Capability::Tools)
            }
            Method::PromptsList | Method::PromptsGet => Some(Capability::Prompts),
            Method::ResourcesList
            | Method::ResourceTemplatesList
            | Method::ResourcesRead
            | Method::ResourcesSubscribe
            | Method::ResourcesUnsubscribe => Some(Capability::Resources),
            Method::Complete => Some(Capability::Completions),
            Method::LoggingSetLevel => Some(Capability::Logging),
        }
    }

    /// True for a method about a server's task. It goes to the process that runs the task, even if that process gets no
    /// new calls any more.
    pub fn is_about_task(self) -> bool {
        matches!(self, Method::TasksGet | Method::TasksUpdate | Method::TasksCancel)
    }

    /// True if a complete modern result of the method carries `ttlMs` and `cacheScope` (2026-07-28,
    /// server/utilities/caching).
    pub(crate) fn is_cacheable(self) -> bool {
        matches!(
            self,
            Method::Discover
                | Method::ToolsList
                | Method::PromptsList
                | Method::ResourcesList
                | Method::ResourceTemplatesList
                | Method::ResourcesRead
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for method in Method::ALL {
            assert_eq!(Method::parse(method.as_str()), Some(method));
        }
        for unknown in [
            "",
            "tools",
            "Tools/list",
            "tasks/result",
            "notifications/initialized",
            "colibri/trail",
        ] {
            assert_eq!(Method::parse(unknown), None);
        }
    }

    /// One row per method: true if legacy versions have it, if modern versions have it, if its result is cacheable.
    #[test]
    fn which_version_has_which_method() {
        for (name, legacy, modern, cacheable) in [
            ("initialize", true, false, false),
            ("server/discover", false, true, true),
            ("ping", true, false, false),
            ("tools/list", true, true, true),
            ("tools/call", true, true, false),
            ("resources/list", true, true, true),
            ("resources/templates/list", true, true, true),
            ("resources/read", true, true, true),
            ("resources/subscribe", true, false, false),
            ("resources/unsubscribe", true, false, false),
            ("prompts/list", true, true, true),
            ("prompts/get", true, true, false),
            ("completion/complete", true, true, false),
            ("logging/setLevel", true, false, false),
            ("subscriptions/listen", false, true, false),
            ("tasks/get", false, true, false),
            ("tasks/update", false, true, false),
            ("tasks/cancel", false, true, false),
        ] {
            let method = Method::parse(name).unwrap();
            for version in Version::ALL {
                let expected = if version.is_modern() { modern } else { legacy };
                assert_eq!(method.is_in(version), expected, "{name} in {version}");
            }
            assert_eq!(method.is_cacheable(), cacheable, "{name}");
        }
    }
}

//! The methods that a client may call, and the versions that have them.

use super::answer::Capability;
use super::feature::Feature;
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
    /// `skills/list` of the skills extension.
    SkillsList,
    /// `skills/get` of the skills extension.
    SkillsGet,
    /// `resources/directory/read` of the skills extension.
    DirectoryRead,
}

/// The facts about one method.
#[derive(Clone, Copy)]
struct MethodFacts {
    name: &'static str,
    versions: MethodVersions,
    /// The capability that the method needs.
    capability: Option<Capability>,
    route: Route,
    may_ask_back: bool,
    is_cacheable: bool,
}

/// The versions that have a method (`ClientRequest` at the end of each `schema.ts`).
#[derive(Clone, Copy)]
enum MethodVersions {
    All,
    /// Those before 2026-07-28, which removed the handshake, `ping`, `logging/setLevel` and the two
    /// subscription methods (its changelog, major changes 2, 4 and 5).
    Legacy,
    Modern,
}

/// The target of a method's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The daemon, which answers from its own state.
    Own,
    /// The daemon, which lists the items of its servers.
    List(Feature),
    /// The item that `params.name` names.
    Named(Feature),
    /// The resource whose URI is `params.uri`.
    Resource,
    /// The skill the URI of whose `SKILL.md` is `params.uri`.
    Skill,
    /// The directory of resources whose URI is `params.uri`.
    Directory,
    /// The prompt or the template that `params.ref` names.
    Reference,
    /// The task whose id is `params.taskId`: the process that runs it answers, even if that process
    /// gets no new calls any more.
    Task,
}

const fn facts(
    name: &'static str,
    versions: MethodVersions,
    capability: Option<Capability>,
    route: Route,
) -> MethodFacts {
    MethodFacts {
        name,
        versions,
        capability,
        route,
        may_ask_back: false,
        is_cacheable: false,
    }
}

impl MethodFacts {
    const fn asking_back(self) -> MethodFacts {
        MethodFacts {
            may_ask_back: true,
            ..self
        }
    }

    const fn cacheable(self) -> MethodFacts {
        MethodFacts {
            is_cacheable: true,
            ..self
        }
    }
}

impl Method {
    /// All methods.
    pub const ALL: [Method; 21] = [
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
        Method::SkillsList,
        Method::SkillsGet,
        Method::DirectoryRead,
    ];

    /// The table of methods: a method that is passed through to servers is one row here.
    const fn facts(self) -> MethodFacts {
        use Capability::{Completions, Logging, Prompts, Resources, Skills, Tools};
        use MethodVersions::{All, Legacy, Modern};
        use Route::{Directory, List, Named, Own, Reference, Resource, Skill, Task};
        match self {
            Method::Initialize => facts("initialize", Legacy, None, Own),
            Method::Discover => facts("server/discover", Modern, None, Own).cacheable(),
            Method::Ping => facts("ping", Legacy, None, Own),
            Method::ToolsList => {
                facts("tools/list", All, Some(Tools), List(Feature::Tool)).cacheable()
            }
            Method::ToolsCall => {
                facts("tools/call", All, Some(Tools), Named(Feature::Tool)).asking_back()
            }
            Method::ResourcesList => facts(
                "resources/list",
                All,
                Some(Resources),
                List(Feature::Resource),
            )
            .cacheable(),
            Method::ResourceTemplatesList => facts(
                "resources/templates/list",
                All,
                Some(Resources),
                List(Feature::Template),
            )
            .cacheable(),
            Method::ResourcesRead => facts("resources/read", All, Some(Resources), Resource)
                .asking_back()
                .cacheable(),
            Method::ResourcesSubscribe => {
                facts("resources/subscribe", Legacy, Some(Resources), Resource)
            }
            Method::ResourcesUnsubscribe => {
                facts("resources/unsubscribe", Legacy, Some(Resources), Resource)
            }
            Method::PromptsList => {
                facts("prompts/list", All, Some(Prompts), List(Feature::Prompt)).cacheable()
            }
            Method::PromptsGet => {
                facts("prompts/get", All, Some(Prompts), Named(Feature::Prompt)).asking_back()
            }
            Method::Complete => facts("completion/complete", All, Some(Completions), Reference),
            Method::LoggingSetLevel => facts("logging/setLevel", Legacy, Some(Logging), Own),
            Method::SubscriptionsListen => facts("subscriptions/listen", Modern, None, Own),
            Method::TasksGet => facts("tasks/get", Modern, Some(Tools), Task),
            Method::TasksUpdate => facts("tasks/update", Modern, Some(Tools), Task),
            Method::TasksCancel => facts("tasks/cancel", Modern, Some(Tools), Task),
            Method::SkillsList => {
                facts("skills/list", All, Some(Skills), List(Feature::Skill)).cacheable()
            }
            Method::SkillsGet => facts("skills/get", All, Some(Skills), Skill).cacheable(),
            Method::DirectoryRead => {
                facts("resources/directory/read", All, Some(Skills), Directory)
            }
        }
    }

    /// The method's name on the wire.
    pub const fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// The method that lists the items of a kind.
    pub fn list_of(feature: Feature) -> Method {
        match feature {
            Feature::Tool => Method::ToolsList,
            Feature::Prompt => Method::PromptsList,
            Feature::Resource => Method::ResourcesList,
            Feature::Template => Method::ResourceTemplatesList,
            Feature::Skill => Method::SkillsList,
        }
    }

    /// The method with this name. `None` for names that no version has, and for `tasks/result` and
    /// `tasks/list`: only 2025-11-25 had them, under a capability that the daemon never declares.
    pub fn parse(name: &str) -> Option<Method> {
        Method::ALL
            .into_iter()
            .find(|method| method.as_str() == name)
    }

    /// True if `version` has the method.
    pub(crate) fn is_in(self, version: Version) -> bool {
        match self.facts().versions {
            MethodVersions::All => true,
            MethodVersions::Legacy => !version.is_modern(),
            MethodVersions::Modern => version.is_modern(),
        }
    }

    /// The target of its requests.
    pub fn route(self) -> Route {
        self.facts().route
    }

    /// The member of `params` with the name, URI or id that a modern request is about, as
    /// `Mcp-Name` repeats it.
    pub(crate) fn subject_key(self) -> Option<&'static str> {
        match self.route() {
            _ if !self.is_in(Version::LATEST) => None,
            Route::Named(_) => Some("name"),
            Route::Resource => Some("uri"),
            Route::Task => Some("taskId"),
            Route::Own | Route::List(_) | Route::Reference | Route::Skill | Route::Directory => {
                None
            }
        }
    }

    /// True if a server may request input before it answers the method (2026-07-28,
    /// basic/patterns/mrtr, "Supported Requests").
    pub fn may_ask_back(self) -> bool {
        self.facts().may_ask_back
    }

    /// The capability that the method needs; `None` if it needs none. A method whose capability was
    /// not declared is answered with "not found" (2026-07-28, `schema.ts`, `MethodNotFoundError`).
    pub fn capability(self) -> Option<Capability> {
        self.facts().capability
    }

    /// True if a complete modern result of the method carries `ttlMs` and `cacheScope` (2026-07-28,
    /// server/utilities/caching).
    pub(crate) fn is_cacheable(self) -> bool {
        self.facts().is_cacheable
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

    /// One row per method: true if legacy versions have it, if modern versions have it, if its
    /// result is cacheable.
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
            ("skills/list", true, true, true),
            ("skills/get", true, true, true),
            ("resources/directory/read", true, true, false),
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

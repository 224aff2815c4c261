//! The extensions and experimental capabilities of servers: those that the daemon serves or passes
//! on, and others.
//!
//! A capability is advertised only if each of its methods and notifications works through the
//! daemon. The tables here say which ones these are. Everything else that a server declares is left
//! out, and `status` names it.

use super::answer::ServerIdentity;
use super::method::Method;
use super::request::META_CLIENT_CAPABILITIES;
use super::{skills, tasks};
use colibri_wire::Json;
use std::collections::BTreeMap;

/// The most bytes of one server's `extensions`, or `experimental`, that are read.
const DECLARED_LIMIT: usize = 16 * 1024;
/// The most extensions of one peer that are read.
const LOOKED_AT: usize = 100;

/// An extension, or an experimental capability, that works through the daemon.
#[derive(Debug)]
pub struct PassedCapability {
    /// Its name in `capabilities.extensions` or `capabilities.experimental`.
    pub name: &'static str,
    /// The methods that a client may call because of it.
    pub methods: &'static [Method],
    /// The notifications that a server sends because of it.
    pub notifications: &'static [&'static str],
}

/// The extensions that are advertised.
pub const EXTENSIONS: [PassedCapability; 3] = [
    PassedCapability {
        name: tasks::EXTENSION,
        methods: &[Method::TasksGet, Method::TasksUpdate, Method::TasksCancel],
        notifications: &["notifications/tasks"],
    },
    // Served for all servers by the daemon itself, which has skills of its own.
    PassedCapability {
        name: skills::EXTENSION,
        methods: &[Method::SkillsList, Method::SkillsGet, Method::DirectoryRead],
        notifications: &[],
    },
    // A page is a resource, and calls the tools of its server (ext-apps, "UI Resource Format").
    PassedCapability {
        name: "io.modelcontextprotocol/ui",
        methods: &[Method::ResourcesRead, Method::ToolsCall],
        notifications: &[],
    },
];

/// The experimental capabilities that are advertised: only where no prefix stands between, to a
/// client that sees the server alone or of a server with `"prefix": false`.
pub const EXPERIMENTAL: [PassedCapability; 1] = [PassedCapability {
    // Messages that Claude Code shows its model, sent whenever the server likes.
    name: CHANNEL_CAPABILITY,
    methods: &[],
    notifications: &[CHANNEL],
}];

/// The name of the experimental capability whose notification is [`CHANNEL`].
pub(crate) const CHANNEL_CAPABILITY: &str = "claude/channel";
/// The notification of the experimental capability `claude/channel`.
pub const CHANNEL: &str = "notifications/claude/channel";

/// The extension of this name, if it is advertised.
fn passed(name: &str) -> Option<&'static PassedCapability> {
    EXTENSIONS.iter().find(|extension| extension.name == name)
}

/// The experimental capability of this name, if it is advertised.
fn passed_experimental(name: &str) -> Option<&'static PassedCapability> {
    EXPERIMENTAL
        .iter()
        .find(|capability| capability.name == name)
}

impl ServerIdentity {
    /// Adds the extensions that a server declares in its `capabilities` and that work through the
    /// daemon; with `experimental` its experimental capabilities too. If two servers declare the
    /// same one with different settings, the settings are left out: the client could not tell them
    /// apart.
    pub fn add_capabilities(&mut self, capabilities: Json<'_>, experimental: bool) {
        add(
            &mut self.extensions,
            capabilities.get("extensions"),
            |name| passed(name).is_some_and(|extension| extension.name != skills::EXTENSION),
        );
        if experimental {
            add(
                &mut self.experimental,
                capabilities.get("experimental"),
                |name| passed_experimental(name).is_some(),
            );
        }
    }
}

/// Adds to `known` what a server declares and `is_passed` takes.
fn add(
    known: &mut BTreeMap<String, String>,
    declared: Option<Json<'_>>,
    is_passed: impl Fn(&str) -> bool,
) {
    let declared = declared.filter(|all| all.is_object() && all.text().len() <= DECLARED_LIMIT);
    for member in declared.iter().flat_map(|all| all.members()) {
        let Some(name) = member.key.as_str().filter(|name| is_passed(name)) else {
            continue;
        };
        if !member.value.is_object() {
            continue;
        }
        let known = known.entry(name.into_owned());
        let settings = known.or_insert_with(|| member.value.text().to_owned());
        if settings != member.value.text() {
            *settings = "{}".to_owned();
        }
    }
}

/// The names of what a server declares in its `capabilities` and nobody is shown, with their kind.
pub fn left_out(capabilities: Json<'_>) -> Vec<String> {
    let unknown = |kind: &'static str, known: fn(&str) -> Option<&'static PassedCapability>| {
        let declared = capabilities.get(kind).filter(Json::is_object);
        let names = declared
            .into_iter()
            .flat_map(|all| all.members())
            .take(LOOKED_AT)
            .filter_map(|member| member.key.as_str());
        let names = names.filter(move |name| known(name).is_none());
        names
            .map(move |name| format!("{kind} {name}"))
            .collect::<Vec<_>>()
    };
    let mut names = unknown("extensions", passed);
    names.extend(unknown("experimental", passed_experimental));
    names
}

/// True if both sides declare an extension that the daemon does not know: the client in `params` of
/// this request, and the server in its `ServerCapabilities`. The notifications of such an extension
/// are relayed unchanged.
pub fn share_unknown(params: Option<Json<'_>>, server: Json<'_>) -> bool {
    let client = || {
        params?
            .get("_meta")?
            .get(META_CLIENT_CAPABILITIES)?
            .get("extensions")
    };
    let Some((client, server)) = client().zip(server.get("extensions")) else {
        return false;
    };
    let declared = client
        .members()
        .take(LOOKED_AT)
        .filter_map(|member| member.key.as_str());
    declared
        .filter(|name| name != tasks::EXTENSION)
        .any(|name| {
            server
                .get(&name)
                .is_some_and(|settings| settings.is_object())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capability, Version, classify, request::SessionPhase};

    #[test]
    fn an_extension_is_shared_by_peers_that_both_declare_it() {
        let json = |text: &'static str| Json::parse(text.as_bytes()).unwrap();
        let client = json(
            r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{},"org.example/x":{}}}}}"#,
        );
        for (server, shared) in [
            (r#"{"extensions":{"org.example/x":{}}}"#, true),
            (r#"{"extensions":{"org.example/x":7}}"#, false),
            (r#"{"extensions":{"org.example/y":{}}}"#, false),
            (
                r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
                false,
            ),
            (r#"{"extensions":[]}"#, false),
            ("{}", false),
        ] {
            assert_eq!(
                share_unknown(Some(client), json(server)),
                shared,
                "{server}"
            );
            assert!(!share_unknown(None, json(server)), "{server}");
        }
    }

    #[test]
    fn what_is_not_in_the_tables_is_named() {
        let capabilities = r#"{"tools":{},"extensions":{"io.modelcontextprotocol/skills":{},"a/b":{}},"experimental":{"claude/channel":{},"x":1}}"#;
        let capabilities = Json::parse(capabilities.as_bytes()).unwrap();
        assert_eq!(left_out(capabilities), ["extensions a/b", "experimental x"]);
        let odd = Json::parse(br#"{"extensions":[1],"experimental":"x"}"#).unwrap();
        assert_eq!(left_out(odd), [""; 0]);
    }

    /// A method of an extension that is advertised is one that requests reach.
    #[test]
    fn each_method_of_an_advertised_extension_is_taken() {
        let all = [Capability::Tools, Capability::Resources, Capability::Skills];
        for method in EXTENSIONS.iter().flat_map(|extension| extension.methods) {
            let params = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"name":"x","uri":"x","taskId":"x"}"#;
            let params = Json::parse(params.as_bytes()).unwrap();
            let request =
                classify(SessionPhase::Fresh, &all, method.as_str(), Some(params)).unwrap();
            assert_eq!(
                (request.method, request.version),
                (Some(*method), Version::LATEST)
            );
        }
    }
}

//! A server's declaration of itself: its handshake and its answer to the probe.

use std::borrow::Cow;

use super::super::answer::META_SERVER_INFO;
use super::super::extensions::CHANNEL_CAPABILITY;
use super::super::feature::Feature;
use super::super::rpc_error::{
    HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION,
};
use super::super::skills;
use super::super::version::Version;
use colibri_text::brief;
use colibri_wire::Json;
use colibri_wire::json::JsonKind;

/// The reason for which a server's answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The answer breaks the protocol.
    #[error("{method}: {what}")]
    Invalid {
        /// The method of the answered request.
        method: &'static str,
        /// The fault and its place.
        what: String,
    },
    /// The server shares no version of MCP with the daemon.
    #[error(
        "{method}: the server speaks MCP {spoken}, and the daemon none of these: update one of them"
    )]
    Version {
        /// The method of the answered request.
        method: &'static str,
        /// The server's versions, shortened.
        spoken: String,
    },
}

/// The capabilities that a server declares, in either era.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Tools.
    pub tools: FeatureSupport,
    /// Prompts.
    pub prompts: FeatureSupport,
    /// Resources, and templates of them.
    pub resources: FeatureSupport,
    /// Skills, as resources.
    pub skills: FeatureSupport,
    /// The server lists directories of resources.
    pub directories: bool,
    /// The server sends messages of the experimental `claude/channel`.
    pub channel: bool,
    /// The server accepts subscriptions to resources.
    pub subscribe: bool,
    /// The server completes arguments.
    pub completions: bool,
    /// The server sends log messages.
    pub logging: bool,
}

/// A server's capability for one kind of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeatureSupport {
    /// The server has things of this kind.
    pub offered: bool,
    /// The server sends notifications of changes to their list.
    pub tells_changes: bool,
}

impl Capabilities {
    /// Reads `capabilities`. A value that is no object declares nothing.
    pub fn read(capabilities: Option<Json<'_>>) -> Capabilities {
        let declared = |name| {
            capabilities
                .and_then(|all| all.get(name))
                .filter(Json::is_object)
        };
        let says = |of: Option<Json<'_>>, key| {
            of.and_then(|of| of.get(key)).and_then(|yes| yes.as_bool()) == Some(true)
        };
        let listed = |name| FeatureSupport {
            offered: declared(name).is_some(),
            tells_changes: says(declared(name), "listChanged"),
        };
        let skills = declared("extensions")
            .filter(|_| declared("resources").is_some())
            .and_then(|all| all.get(skills::EXTENSION))
            .filter(Json::is_object);
        Capabilities {
            skills: FeatureSupport {
                offered: skills.is_some(),
                tells_changes: false,
            },
            directories: says(skills, "directoryRead"),
            channel: declared("experimental")
                .and_then(|all| all.get(CHANNEL_CAPABILITY))
                .is_some_and(|channel| channel.is_object()),
            tools: listed("tools"),
            prompts: listed("prompts"),
            resources: listed("resources"),
            subscribe: says(declared("resources"), "subscribe"),
            completions: declared("completions").is_some(),
            logging: declared("logging").is_some(),
        }
    }

    /// The server's capability for a feature.
    pub fn of(&self, feature: Feature) -> FeatureSupport {
        match feature {
            Feature::Tool => self.tools,
            Feature::Prompt => self.prompts,
            Feature::Resource | Feature::Template => self.resources,
            Feature::Skill => self.skills,
        }
    }
}

/// A server's declaration of itself, in either era.
#[derive(Debug, Clone)]
pub struct ServerSays<'a> {
    /// The version to use with the server.
    pub version: Version,
    /// The capabilities that the server declares.
    pub can: Capabilities,
    /// `capabilities` as written.
    pub capabilities: Option<Json<'a>>,
    /// The server's `Implementation` as written: for people to read, never for decisions.
    pub server_info: Option<Json<'a>>,
    /// The server's instructions. `None` if they are no readable string.
    pub instructions: Option<Cow<'a, str>>,
}

impl<'a> ServerSays<'a> {
    fn read(version: Version, result: Json<'a>, server_info: Option<Json<'a>>) -> ServerSays<'a> {
        let capabilities = result.get("capabilities").filter(Json::is_object);
        ServerSays {
            version,
            can: Capabilities::read(capabilities),
            capabilities,
            server_info: server_info.filter(Json::is_object),
            instructions: result.get("instructions").and_then(|text| text.as_str()),
        }
    }

    /// `name version` of the server, short and fit for a log line.
    pub fn label(&self) -> String {
        let field = |key| {
            let text = self
                .server_info
                .and_then(|info| info.get(key))
                .and_then(|value| value.as_str());
            brief(&text.unwrap_or_default(), 80)
        };
        format!("{} {}", field("name"), field("version"))
            .trim()
            .to_owned()
    }
}

/// Reads the result of `initialize`.
///
/// # Errors
/// A version that the daemon does not support, or an answer that is not one to `initialize`.
pub fn read_initialize_result(result: Json<'_>) -> Result<ServerSays<'_>, Unusable> {
    const METHOD: &str = "initialize";
    let Some(answered) = result
        .get("protocolVersion")
        .and_then(|version| version.as_str())
    else {
        return Err(invalid(
            METHOD,
            "the result has no \"protocolVersion\" that is a string",
        ));
    };
    match Version::parse(&answered).filter(|version| !version.is_modern()) {
        Some(version) => Ok(ServerSays::read(version, result, result.get("serverInfo"))),
        None => Err(Unusable::Version {
            method: METHOD,
            spoken: brief(&answered, 40),
        }),
    }
}

/// A server's era, as found by `server/discover`.
#[derive(Debug, Clone)]
pub enum Probe<'a> {
    /// A modern server, and its declaration.
    Modern(ServerSays<'a>),
    /// A legacy server, or a modern one that supports only legacy versions: it needs `initialize`.
    Legacy,
}

/// Reads the answer to [`super::discover`] (2026-07-28, basic/transports/stdio, "Backward
/// Compatibility"). A discover result and the errors of the modern era come from a modern server,
/// every other answer from a legacy one.
///
/// # Errors
/// [`Unusable::Version`] for a modern server that shares no version with the daemon.
pub fn read_probe<'a>(outcome: Result<Json<'a>, Json<'a>>) -> Result<Probe<'a>, Unusable> {
    const METHOD: &str = "server/discover";
    let (result, versions) = match outcome {
        Ok(result) => (Some(result), result.get("supportedVersions")),
        Err(error) => match error
            .get("code")
            .and_then(|code| code.text().parse::<i64>().ok())
        {
            Some(UNSUPPORTED_PROTOCOL_VERSION) => (
                None,
                error.get("data").and_then(|data| data.get("supported")),
            ),
            Some(code @ (HEADER_MISMATCH | MISSING_REQUIRED_CLIENT_CAPABILITY)) => {
                return Err(invalid(
                    METHOD,
                    &format!("refused with {code}, which this request gives no reason for"),
                ));
            }
            _ => return Ok(Probe::Legacy),
        },
    };
    let Some(versions) = versions.filter(|versions| versions.kind() == JsonKind::Array) else {
        return Ok(Probe::Legacy);
    };
    let mut spoken = String::new();
    let mut best: Option<Version> = None;
    for version in versions
        .elements()
        .take(100)
        .filter_map(|version| version.as_str())
    {
        best = best.max(Version::parse(&version));
        if spoken.len() < 100 {
            spoken.push_str(if spoken.is_empty() { "" } else { ", " });
            spoken.push_str(&brief(&version, 40));
        }
    }
    match (best, result) {
        (Some(version), Some(result)) if version.is_modern() => {
            let info = result
                .get("_meta")
                .and_then(|meta| meta.get(META_SERVER_INFO));
            // Drafts before 2026-07-28 had it as a member of the result.
            Ok(Probe::Modern(ServerSays::read(
                version,
                result,
                info.or(result.get("serverInfo")),
            )))
        }
        (Some(version), None) if version.is_modern() => Err(invalid(
            METHOD,
            &format!("refused {version} and names it as supported"),
        )),
        (Some(_), _) => Ok(Probe::Legacy),
        (None, _) if spoken.is_empty() => Err(invalid(
            METHOD,
            "the server names no version that it speaks",
        )),
        (None, _) => Err(Unusable::Version {
            method: METHOD,
            spoken,
        }),
    }
}

pub(super) fn invalid(method: &'static str, what: &str) -> Unusable {
    Unusable::Invalid {
        method,
        what: what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::version::Version::*;
    use super::*;
    use crate::read_in_tests::json;

    #[test]
    fn reads_an_initialize_result() {
        let text = r#"{"protocolVersion":"2025-03-26","capabilities":{"tools":{"listChanged":true},"x":1e400},
            "serverInfo":{"name":"n\u001b[31m","version":"1"},"instructions":"Use \u0069t."}"#;
        let says = read_initialize_result(json(text)).unwrap();
        assert_eq!(
            (
                says.version,
                says.can.tools.offered,
                says.can.tools.tells_changes
            ),
            (V2025_03_26, true, true)
        );
        assert_eq!(says.instructions.as_deref(), Some("Use it."));
        assert_eq!(says.label(), "n\\u{1b}[31m 1");
        assert_eq!(
            says.capabilities.unwrap().text(),
            r#"{"tools":{"listChanged":true},"x":1e400}"#
        );
    }

    #[test]
    fn reads_hostile_initialize_results() {
        for (text, tools) in [
            (r#"{"protocolVersion":"2024-11-05"}"#, false),
            (
                r#"{"protocolVersion":"2024-11-05","capabilities":[],"serverInfo":7,"instructions":{}}"#,
                false,
            ),
            (
                r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":true},"instructions":"\ud800"}"#,
                false,
            ),
            (
                r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":"yes"}}}"#,
                true,
            ),
        ] {
            let says = read_initialize_result(json(text)).unwrap();
            assert_eq!(
                (
                    says.can.tools.offered,
                    says.can.tools.tells_changes,
                    says.instructions
                ),
                (tools, false, None),
                "{text}"
            );
        }
        for text in [
            "{}",
            "null",
            "[]",
            r#"{"protocolVersion":20251125}"#,
            r#"{"protocolVersion":"\ud800"}"#,
        ] {
            assert!(
                matches!(
                    read_initialize_result(json(text)),
                    Err(Unusable::Invalid { .. })
                ),
                "{text}"
            );
        }
        for text in [
            r#"{"protocolVersion":"2026-07-28"}"#,
            r#"{"protocolVersion":"1.0\u0007"}"#,
        ] {
            assert!(
                matches!(
                    read_initialize_result(json(text)),
                    Err(Unusable::Version { .. })
                ),
                "{text}"
            );
        }
        let long = format!(r#"{{"protocolVersion":"{}"}}"#, "9".repeat(1 << 20));
        assert!(
            read_initialize_result(json(&long))
                .unwrap_err()
                .to_string()
                .len()
                < 200
        );
    }

    #[test]
    fn probes_tell_the_era() {
        let modern = r#"{"resultType":"complete","supportedVersions":["2099-01-01","2026-07-28","2025-11-25"],"capabilities":{"tools":{}},
            "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2"}},"instructions":"Hi"}"#;
        let Probe::Modern(says) = read_probe(Ok(json(modern))).unwrap() else {
            panic!()
        };
        assert_eq!(
            (says.version, says.can.tools.offered, says.label()),
            (V2026_07_28, true, "s 2".to_owned())
        );
        for result in [
            "{}",
            "null",
            r#"{"supportedVersions":"2026-07-28"}"#,
            r#"{"supportedVersions":["2025-11-25"]}"#,
            r#"{"supportedVersions":{"0":"2026-07-28"}}"#,
        ] {
            assert!(
                matches!(read_probe(Ok(json(result))), Ok(Probe::Legacy)),
                "{result}"
            );
        }
        for error in [
            r#"{"code":-32601,"message":"no"}"#,
            r#"{"code":-32602,"message":"no"}"#,
            r#"{"code":-32000,"message":"not initialized"}"#,
            r#"{"code":"x"}"#,
            "null",
            r#"{"code":-32022,"message":"a legacy server's own meaning"}"#,
            r#"{"code":-32022,"data":{"supported":["2025-11-25"],"requested":"2026-07-28"}}"#,
        ] {
            assert!(
                matches!(read_probe(Err(json(error))), Ok(Probe::Legacy)),
                "{error}"
            );
        }
        for (error, is_version) in [
            (
                r#"{"code":-32022,"data":{"supported":["2099-01-01"]}}"#,
                true,
            ),
            (r#"{"code":-32022,"data":{"supported":[1,null,{}]}}"#, false),
            (
                r#"{"code":-32022,"data":{"supported":["2026-07-28"]}}"#,
                false,
            ),
            (r#"{"code":-32021}"#, false),
        ] {
            let unusable = read_probe(Err(json(error))).unwrap_err();
            assert_eq!(
                matches!(unusable, Unusable::Version { .. }),
                is_version,
                "{error}: {unusable}"
            );
        }
        let only_unknown =
            read_probe(Ok(json(r#"{"supportedVersions":["2099-01-01","\u0000"]}"#))).unwrap_err();
        assert!(
            only_unknown.to_string().contains("2099-01-01, \\u{0}"),
            "{only_unknown}"
        );
        let endless = format!(
            r#"{{"supportedVersions":[{}"x"]}}"#,
            "\"2099-01-01\",".repeat(100_000)
        );
        assert!(
            read_probe(Ok(json(&endless)))
                .unwrap_err()
                .to_string()
                .len()
                < 300
        );
    }

    #[test]
    fn capabilities_are_what_is_declared() {
        let read = |text| Capabilities::read(Some(json(text)));
        let all = r#"{"tools":{},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":false},
            "completions":{},"logging":{},"experimental":{}}"#;
        let all = read(all);
        for (feature, offered, tells) in [
            (Feature::Tool, true, false),
            (Feature::Prompt, true, true),
            (Feature::Resource, true, false),
            (Feature::Template, true, false),
        ] {
            let listed = all.of(feature);
            assert_eq!(
                (listed.offered, listed.tells_changes),
                (offered, tells),
                "{feature:?}"
            );
        }
        assert!(all.subscribe && all.completions && all.logging);
        for none in [
            "{}",
            "[]",
            r#"{"tools":true,"prompts":[],"resources":"yes","logging":null,"completions":1}"#,
        ] {
            assert_eq!(read(none), Capabilities::default(), "{none}");
        }
        assert!(!read(r#"{"resources":{"subscribe":"true"}}"#).subscribe);
    }
}

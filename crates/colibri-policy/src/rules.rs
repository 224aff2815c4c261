//! The rules of a registry entry: what of its server may be asked for, and what needs a person
//! first.

use super::tool_rules::ToolRules;
use colibri_protocol::{Code, Failure, Feature};
use colibri_text::Pattern;
use colibri_wire::Json;

/// The verdict of the rules on one tool, prompt or URI. Rules are named as file and key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RuleVerdict {
    /// It may be called.
    #[default]
    Allow,
    /// It may not.
    Deny {
        /// The rule that says so.
        rule: String,
    },
    /// It may be called once a person has approved the call.
    Confirm {
        /// The rule that says so.
        rule: String,
    },
}

impl RuleVerdict {
    /// The answer to who asks for what is denied; `None` for the other verdicts.
    pub fn failure(&self, server: &str, feature: Feature) -> Option<Failure> {
        let RuleVerdict::Deny { rule } = self else {
            return None;
        };
        let denied = Failure::new(
            Code::PolicyDenied,
            format!(
                "the rules of this server do not allow this {}, by {rule}",
                feature.noun()
            ),
        );
        Some(denied.of_server(server).by_rule(rule.clone()))
    }
}

/// The rules of one server.
///
/// Patterns are on the server's own names and URIs, never on exposed ones: what a prefix or a hash
/// makes of a name must not decide about rights.
#[derive(Debug, Clone)]
pub struct ServerRules {
    /// Such as `external-mcp.json: servers.github`.
    place: String,
    tools: ToolRules,
    prompts: ToolRules,
    resources: ToolRules,
}

impl ServerRules {
    /// The rules of an entry on tools, prompts and resources; `file` is the registry's name as
    /// refusals show it.
    pub fn new(
        [tools, prompts, resources]: [&ToolRules; 3],
        file: &str,
        server: &str,
    ) -> ServerRules {
        ServerRules {
            place: format!("{file}: servers.{server}"),
            tools: tools.clone(),
            prompts: prompts.clone(),
            resources: resources.clone(),
        }
    }

    /// The verdict of the rules on an item; `definition` is the server's, of which an explicit
    /// `destructiveHint: true` may tighten the verdict where the entry says `confirm_destructive`.
    /// No annotation ever loosens one: the server that writes them is the one that is to be held
    /// (2025-11-25, "Tool Annotations").
    pub fn judge(&self, feature: Feature, name: &str, definition: &[u8]) -> RuleVerdict {
        let (key, rules) = match feature {
            Feature::Tool => ("tools", &self.tools),
            Feature::Prompt => ("prompts", &self.prompts),
            Feature::Resource | Feature::Template | Feature::Skill => {
                ("resources", &self.resources)
            }
        };
        let first = |list: &[Pattern]| list.iter().position(|pattern| pattern.matches(name));
        let place = |rule: &str| format!("{}.{key}.{rule}", self.place);
        if let Some(index) = first(&rules.deny) {
            return RuleVerdict::Deny {
                rule: place(&format!("deny[{index}]")),
            };
        }
        if !rules.allow.is_empty() && first(&rules.allow).is_none() {
            return RuleVerdict::Deny {
                rule: place("allow"),
            };
        }
        // Who is asked to confirm is told what was written; who is denied, where alone.
        if let Some(pattern) = rules.confirm.iter().find(|pattern| pattern.matches(name)) {
            return RuleVerdict::Confirm {
                rule: place(&format!("confirm {pattern}")),
            };
        }
        if rules.confirm_destructive && says_destructive(definition) {
            return RuleVerdict::Confirm {
                rule: place("confirm_destructive"),
            };
        }
        RuleVerdict::Allow
    }

    /// True if the operator marked the tool as one that may be called again after a failure whose
    /// outcome is unknown.
    pub fn idempotent(&self, tool: &str) -> bool {
        self.tools
            .idempotent
            .iter()
            .any(|pattern| pattern.matches(tool))
    }

    /// True if the operator marked the tool as one that is always listed.
    pub fn always(&self, tool: &str) -> bool {
        self.tools
            .always
            .iter()
            .any(|pattern| pattern.matches(tool))
    }
}

/// True if a definition says `destructiveHint: true`, in any of several members of that name: of
/// two that disagree a reader could see either.
fn says_destructive(definition: &[u8]) -> bool {
    let Some(definition) = Json::part(definition, 0..definition.len()) else {
        return false;
    };
    let annotations = definition
        .members()
        .filter(|member| member.key.is_string("annotations"));
    annotations
        .flat_map(|member| member.value.members())
        .any(|member| {
            member.key.is_string("destructiveHint") && member.value.as_bool() == Some(true)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = br#"{"name":"x"}"#;

    fn rules(allow: &[&str], deny: &[&str], confirm: &[&str]) -> ServerRules {
        let list = |items: &[&str]| items.iter().map(|item| Pattern::new(*item)).collect();
        let rules = ToolRules {
            allow: list(allow),
            deny: list(deny),
            confirm: list(confirm),
            confirm_destructive: true,
            idempotent: list(&["get_*"]),
            always: list(&["get_*"]),
        };
        let prompts = ToolRules {
            deny: list(&["x"]),
            ..ToolRules::default()
        };
        let resources = ToolRules {
            allow: list(&["file:///pub/*"]),
            confirm: list(&["*.key"]),
            ..ToolRules::default()
        };
        ServerRules::new([&rules, &prompts, &resources], "reg.json", "github")
    }

    fn denied(rule: &str) -> RuleVerdict {
        RuleVerdict::Deny {
            rule: rule.to_owned(),
        }
    }

    #[test]
    fn deny_wins_and_names_its_rule() {
        let rules = rules(&["*"], &["x", "delete_*"], &["delete_*", "create_*"]);
        assert_eq!(
            rules.judge(Feature::Tool, "delete_repo", PLAIN),
            denied("reg.json: servers.github.tools.deny[1]")
        );
        assert_eq!(
            rules.judge(Feature::Tool, "create_issue", PLAIN),
            RuleVerdict::Confirm {
                rule: "reg.json: servers.github.tools.confirm \"create_*\"".to_owned()
            }
        );
        assert_eq!(
            rules.judge(Feature::Tool, "get_issue", PLAIN),
            RuleVerdict::Allow
        );
        assert!(rules.idempotent("get_issue") && !rules.idempotent("create_issue"));
        let failure = rules
            .judge(Feature::Tool, "delete_repo", PLAIN)
            .failure("github", Feature::Tool)
            .unwrap();
        assert_eq!(
            (failure.code, failure.server.as_deref()),
            (Code::PolicyDenied, Some("github"))
        );
        assert_eq!(RuleVerdict::Allow.failure("github", Feature::Tool), None);
    }

    #[test]
    fn prompts_and_resources_have_rules_of_their_own() {
        let rules = rules(&["none"], &[], &[]);
        let destructive = br#"{"annotations":{"destructiveHint":true}}"#;
        for (feature, name, expected) in [
            (Feature::Prompt, "y", RuleVerdict::Allow),
            (
                Feature::Prompt,
                "x",
                denied("reg.json: servers.github.prompts.deny[0]"),
            ),
            (Feature::Resource, "file:///pub/a", RuleVerdict::Allow),
            (
                Feature::Resource,
                "file:///a",
                denied("reg.json: servers.github.resources.allow"),
            ),
            (
                Feature::Template,
                "file:///{a}",
                denied("reg.json: servers.github.resources.allow"),
            ),
        ] {
            assert_eq!(rules.judge(feature, name, destructive), expected, "{name}");
        }
        let asks = rules.judge(Feature::Resource, "file:///pub/a.key", PLAIN);
        assert!(
            matches!(asks, RuleVerdict::Confirm { rule } if rule.ends_with("resources.confirm \"*.key\""))
        );
        let failure = rules
            .judge(Feature::Prompt, "x", PLAIN)
            .failure("github", Feature::Prompt);
        assert!(failure.unwrap().message.contains("this prompt"));
    }

    #[test]
    fn what_is_not_allowed_is_denied_and_no_list_allows_all() {
        let some = rules(&["get_*", "list_*"], &[], &[]);
        assert_eq!(
            some.judge(Feature::Tool, "create", PLAIN),
            denied("reg.json: servers.github.tools.allow")
        );
        assert_eq!(
            some.judge(Feature::Tool, "get_x", PLAIN),
            RuleVerdict::Allow
        );
        assert_eq!(
            rules(&[], &[], &[]).judge(Feature::Tool, "anything", PLAIN),
            RuleVerdict::Allow
        );
        // Rules know the server's own names: an exposed one is another name.
        assert!(matches!(
            some.judge(Feature::Tool, "github__get_x", PLAIN),
            RuleVerdict::Deny { .. }
        ));
    }

    #[test]
    fn annotations_tighten_and_never_loosen() {
        let rules = rules(&["*"], &["rm"], &["ask"]);
        let destructive = br#"{"name":"x","annotations":{"destructiveHint":true}}"#;
        assert!(matches!(
            rules.judge(Feature::Tool, "x", destructive),
            RuleVerdict::Confirm { .. }
        ));
        let hidden = br#"{"annotations":{"destructiveHint":false},"annotations":{"destructiveHint":false,"\u0064estructiveHint":true}}"#;
        assert!(matches!(
            rules.judge(Feature::Tool, "x", hidden),
            RuleVerdict::Confirm { .. }
        ));
        for lie in [
            &br#"{"annotations":{"destructiveHint":false,"readOnlyHint":true}}"#[..],
            br#"{"annotations":{"destructiveHint":"true"}}"#,
            br#"{"annotations":null}"#,
            b"",
            b"[",
        ] {
            assert_eq!(rules.judge(Feature::Tool, "x", lie), RuleVerdict::Allow);
            assert!(matches!(
                rules.judge(Feature::Tool, "ask", lie),
                RuleVerdict::Confirm { .. }
            ));
            assert!(matches!(
                rules.judge(Feature::Tool, "rm", lie),
                RuleVerdict::Deny { .. }
            ));
        }
    }
}

//! The rules of a registry entry: what of its server may be asked for, and what needs a person
//! first.

use std::sync::Arc;

use super::place::{RulePlace, first_fit};
use super::tool_rules::ToolRules;
use colibri_protocol::{Code, Failure, Feature};
use colibri_wire::Json;

/// The verdict of the rules on one tool, prompt or URI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RuleVerdict {
    /// It may be called.
    #[default]
    Allow,
    /// It may not.
    Deny {
        /// The rule that says so.
        rule: RulePlace,
        /// The fault of the rule, if it denies because it cannot be applied.
        fault: Option<Arc<str>>,
    },
    /// It may be called once a person has approved the call.
    Confirm {
        /// The rule that says so.
        rule: RulePlace,
    },
}

impl RuleVerdict {
    /// The answer to who asks for what is denied; `None` for the other verdicts.
    pub fn failure(&self, server: &str, feature: Feature) -> Option<Failure> {
        let RuleVerdict::Deny { rule, fault } = self else {
            return None;
        };
        let fault = fault.as_ref().map(|fault| format!(": {fault}"));
        let denied = Failure::new(
            Code::PolicyDenied,
            format!(
                "the rules of this server do not allow this {}, by {rule}{}",
                feature.noun(),
                fault.unwrap_or_default()
            ),
        );
        Some(denied.of_server(server).by_rule(rule.to_string()))
    }

    pub(super) fn denied(rule: &RulePlace) -> RuleVerdict {
        RuleVerdict::Deny {
            rule: rule.clone(),
            fault: None,
        }
    }
}

/// The rules of one server.
///
/// Patterns are on the server's own names and URIs, never on exposed ones: what a prefix or a hash
/// makes of a name must not decide about rights.
#[derive(Debug, Clone)]
pub struct ServerRules {
    tools: ToolRules,
    prompts: ToolRules,
    resources: ToolRules,
}

impl ServerRules {
    /// The rules of an entry on tools, prompts and resources.
    pub fn new([tools, prompts, resources]: [&ToolRules; 3]) -> ServerRules {
        ServerRules {
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
        let rules = match feature {
            Feature::Tool => &self.tools,
            Feature::Prompt => &self.prompts,
            Feature::Resource | Feature::Template | Feature::Skill => &self.resources,
        };
        if let Some(denied) = first_fit(&rules.deny, name) {
            return RuleVerdict::denied(&denied.place);
        }
        if !rules.allow.is_empty() && !rules.allow.iter().any(|pattern| pattern.matches(name)) {
            return RuleVerdict::denied(&rules.allow_place);
        }
        if let Some(confirmed) = first_fit(&rules.confirm, name) {
            return RuleVerdict::Confirm {
                rule: confirmed.place.clone(),
            };
        }
        if let Some(place) = &rules.confirm_destructive
            && says_destructive(definition)
        {
            return RuleVerdict::Confirm {
                rule: place.clone(),
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
    use colibri_json::Document;

    const PLAIN: &[u8] = br#"{"name":"x"}"#;

    /// An entry with these lists, one a line, and rules on prompts and resources.
    fn rules(allow: &[&str], deny: &[&str], confirm: &[&str]) -> ServerRules {
        let list = |key: &str, items: &[&str]| match items {
            [] => String::new(),
            _ => format!("\n\"{key}\": {items:?},"),
        };
        let text = format!(
            r#"{{ "servers": {{ "github": {{
                "tools": {{ {}{}{}
                    "confirm_destructive": true,
                    "idempotent": ["get_*"], "always": ["get_*"] }},
                "prompts": {{ "deny": ["x"] }},
                "resources": {{ "allow": ["file:///pub/*"], "confirm": ["*.key"] }} }} }} }}"#,
            list("allow", allow),
            list("deny", deny),
            list("confirm", confirm)
        );
        let document = Document::parse(text.as_bytes(), "reg.json").unwrap();
        let servers = document.root().object(&["servers"]).unwrap();
        let server = &servers.need("servers").unwrap().members().unwrap()[0];
        let keys = server.value.object(&["tools", "prompts", "resources"]);
        let keys = keys.unwrap();
        let read = |key| ToolRules::read(keys.need(key).unwrap()).unwrap();
        ServerRules::new([&read("tools"), &read("prompts"), &read("resources")])
    }

    fn shown(verdict: RuleVerdict) -> String {
        match verdict {
            RuleVerdict::Allow => "allow".to_owned(),
            RuleVerdict::Deny { rule, .. } => format!("deny {rule}"),
            RuleVerdict::Confirm { rule } => format!("confirm {rule}"),
        }
    }

    #[test]
    fn deny_wins_and_names_its_rule() {
        let rules = rules(&["*"], &["x", "delete_*"], &["delete_*", "create_*"]);
        assert_eq!(
            shown(rules.judge(Feature::Tool, "delete_repo", PLAIN)),
            "deny reg.json:4: servers.github.tools.deny[1]"
        );
        assert_eq!(
            shown(rules.judge(Feature::Tool, "create_issue", PLAIN)),
            "confirm reg.json:5: servers.github.tools.confirm \"create_*\""
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
            (Feature::Prompt, "y", "allow"),
            (
                Feature::Prompt,
                "x",
                "deny reg.json:6: servers.github.prompts.deny[0]",
            ),
            (Feature::Resource, "file:///pub/a", "allow"),
            (
                Feature::Resource,
                "file:///a",
                "deny reg.json:7: servers.github.resources.allow",
            ),
            (
                Feature::Template,
                "file:///{a}",
                "deny reg.json:7: servers.github.resources.allow",
            ),
        ] {
            let verdict = rules.judge(feature, name, destructive);
            assert_eq!(shown(verdict), expected, "{name}");
        }
        let asks = rules.judge(Feature::Resource, "file:///pub/a.key", PLAIN);
        assert!(
            matches!(asks, RuleVerdict::Confirm { rule } if rule.to_string().ends_with("resources.confirm \"*.key\""))
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
            shown(some.judge(Feature::Tool, "create", PLAIN)),
            "deny reg.json:3: servers.github.tools.allow"
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

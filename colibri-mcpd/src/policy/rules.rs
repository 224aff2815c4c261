//! The tool rules of a registry entry: which tools of one server may be called, and which need a person first.

use super::tool_rules::ToolRules;

use super::pattern::Pattern;
use colibri_protocol::{Code, Failure};
use colibri_wire::Json;

/// What the rules say of one tool. Rules are named as file and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may be called.
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

impl Verdict {
    /// The answer to a call of a denied tool; `None` for the other verdicts.
    pub fn failure(&self, server: &str) -> Option<Failure> {
        let Verdict::Deny { rule } = self else { return None };
        let denied = Failure::new(
            Code::PolicyDenied,
            format!("the rules of this server do not allow this tool, by {rule}"),
        );
        Some(denied.of_server(server).by_rule(rule.clone()))
    }
}

/// The rules of one server.
///
/// Patterns are on the server's own tool names, never on exposed ones: what a prefix or a hash makes of a name must not
/// decide about rights.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Such as `external-mcp.json: servers.github.tools`.
    place: String,
    rules: ToolRules,
}

impl Rules {
    /// The rules of an entry; `file` is the registry's name as refusals show it.
    pub fn new(rules: &ToolRules, file: &str, server: &str) -> Rules {
        Rules {
            place: format!("{file}: servers.{server}.tools"),
            rules: rules.clone(),
        }
    }

    /// What the rules say of a tool; `definition` is the server's, of which an explicit `destructiveHint: true` may
    /// tighten the verdict where the entry says `confirm_destructive`. No annotation ever loosens one: the server that
    /// writes them is the one that is to be held (2025-11-25, "Tool Annotations").
    pub fn judge(&self, tool: &str, definition: &[u8]) -> Verdict {
        let first = |list: &[Pattern]| list.iter().position(|pattern| pattern.matches(tool));
        let rules = &self.rules;
        if let Some(index) = first(&rules.deny) {
            return Verdict::Deny {
                rule: format!("{}.deny[{index}]", self.place),
            };
        }
        if !rules.allow.is_empty() && first(&rules.allow).is_none() {
            return Verdict::Deny {
                rule: format!("{}.allow", self.place),
            };
        }
        if let Some(index) = first(&rules.confirm) {
            return Verdict::Confirm {
                rule: format!("{}.confirm[{index}]", self.place),
            };
        }
        if rules.confirm_destructive && says_destructive(definition) {
            return Verdict::Confirm {
                rule: format!("{}.confirm_destructive", self.place),
            };
        }
        Verdict::Allow
    }

    /// Whether the operator marked the tool as one that may be called again after a failure whose outcome is unknown.
    pub fn idempotent(&self, tool: &str) -> bool {
        self.rules.idempotent.iter().any(|pattern| pattern.matches(tool))
    }
}

/// Whether a definition says `destructiveHint: true`, in any of several members of that name: of two that disagree a
/// reader could see either.
fn says_destructive(definition: &[u8]) -> bool {
    let Some(definition) = Json::part(definition, 0..definition.len()) else {
        return false;
    };
    let annotations = definition
        .members()
        .filter(|member| member.key.is_string("annotations"));
    annotations
        .flat_map(|member| member.value.members())
        .any(|member| member.key.is_string("destructiveHint") && member.value.as_bool() == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = br#"{"name":"x"}"#;

    fn rules(allow: &[&str], deny: &[&str], confirm: &[&str]) -> Rules {
        let list = |items: &[&str]| items.iter().map(|item| Pattern::new(*item)).collect();
        let rules = ToolRules {
            allow: list(allow),
            deny: list(deny),
            confirm: list(confirm),
            confirm_destructive: true,
            idempotent: list(&["get_*"]),
        };
        Rules::new(&rules, "reg.json", "github")
    }

    fn denied(rule: &str) -> Verdict {
        Verdict::Deny { rule: rule.to_owned() }
    }

    #[test]
    fn deny_wins_and_names_its_rule() {
        let rules = rules(&["*"], &["x", "delete_*"], &["delete_*", "create_*"]);
        assert_eq!(
            rules.judge("delete_repo", PLAIN),
            denied("reg.json: servers.github.tools.deny[1]")
        );
        assert_eq!(
            rules.judge("create_issue", PLAIN),
            Verdict::Confirm {
                rule: "reg.json: servers.github.tools.confirm[1]".to_owned()
            }
        );
        assert_eq!(rules.judge("get_issue", PLAIN), Verdict::Allow);
        assert!(rules.idempotent("get_issue") && !rules.idempotent("create_issue"));
        let failure = rules.judge("delete_repo", PLAIN).failure("github").unwrap();
        assert_eq!(
            (failure.code, failure.server.as_deref()),
            (Code::PolicyDenied, Some("github"))
        );
        assert_eq!(Verdict::Allow.failure("github"), None);
    }

    #[test]
    fn what_is_not_allowed_is_denied_and_no_list_allows_all() {
        let some = rules(&["get_*", "list_*"], &[], &[]);
        assert_eq!(
            some.judge("create", PLAIN),
            denied("reg.json: servers.github.tools.allow")
        );
        assert_eq!(some.judge("get_x", PLAIN), Verdict::Allow);
        assert_eq!(rules(&[], &[], &[]).judge("anything", PLAIN), Verdict::Allow);
        // Rules know the server's own names: an exposed one is another name.
        assert!(matches!(some.judge("github__get_x", PLAIN), Verdict::Deny { .. }));
    }

    #[test]
    fn annotations_tighten_and_never_loosen() {
        let rules = rules(&["*"], &["rm"], &["ask"]);
        let destructive = br#"{"name":"x","annotations":{"destructiveHint":true}}"#;
        assert!(matches!(rules.judge("x", destructive), Verdict::Confirm { .. }));
        let hidden = br#"{"annotations":{"destructiveHint":false},"annotations":{"destructiveHint":false,"\u0064estructiveHint":true}}"#;
        assert!(matches!(rules.judge("x", hidden), Verdict::Confirm { .. }));
        for lie in [
            &br#"{"annotations":{"destructiveHint":false,"readOnlyHint":true}}"#[..],
            br#"{"annotations":{"destructiveHint":"true"}}"#,
            br#"{"annotations":null}"#,
            b"",
            b"[",
        ] {
            assert_eq!(rules.judge("x", lie), Verdict::Allow);
            assert!(matches!(rules.judge("ask", lie), Verdict::Confirm { .. }));
            assert!(matches!(rules.judge("rm", lie), Verdict::Deny { .. }));
        }
    }
}

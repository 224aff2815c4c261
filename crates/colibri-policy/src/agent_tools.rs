//! The tools that an agent may use: patterns on server ids, and rules on each such server's own
//! names, as the registry has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use colibri_json::{DocumentError, ValueCursor};

use super::place::{RulePlace, first_fit};
use super::rules::RuleVerdict;
use super::tool_rules::ToolRules;
use colibri_text::Pattern;

/// The value of `tools` of an agent's entry. What no pattern fits, the agent has not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentTools {
    /// The place of `tools`.
    place: RulePlace,
    /// The place of `accounts`.
    accounts_place: RulePlace,
    /// Servers, by a pattern on their ids, and the rules on what they offer.
    pub servers: Arc<[(Pattern, ToolRules)]>,
    /// The accounts that it means by the ids of entries, as their servers' ids.
    pub accounts: Arc<BTreeMap<String, String>>,
}

impl AgentTools {
    /// Reads the value of `tools`.
    ///
    /// # Errors
    /// As `read_names`; a name that no server and no pattern of servers can have.
    pub fn read(cursor: &ValueCursor<'_>) -> Result<Self, DocumentError> {
        let mut servers = Vec::new();
        for member in cursor.members()? {
            let id = member.key;
            let legal =
                |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'*');
            if id.is_empty() || id.len() > 32 || !id.bytes().all(legal) {
                return Err(member.key_error("must be a server's id, or a pattern of one with *"));
            }
            servers.push((Pattern::new(id), ToolRules::read_names(&member.value)?));
        }
        Ok(Self {
            servers: servers.into(),
            ..Self::nothing(RulePlace::of_value(cursor))
        })
    }

    /// No tools, of an entry without the key; `place` is the key's.
    pub fn nothing(place: RulePlace) -> Self {
        Self {
            place,
            ..Self::default()
        }
    }

    /// The same with the accounts that it means by the ids of entries, and their place.
    pub fn with_accounts(self, accounts: BTreeMap<String, String>, place: RulePlace) -> Self {
        Self {
            accounts: accounts.into(),
            accounts_place: place,
            ..self
        }
    }

    /// The place of the accounts that it means.
    pub(crate) fn accounts_place(&self) -> &RulePlace {
        &self.accounts_place
    }

    fn of<'a>(&'a self, server: &'a str) -> impl Iterator<Item = &'a (Pattern, ToolRules)> {
        self.servers
            .iter()
            .filter(move |(pattern, _)| pattern.matches(server))
    }

    /// True if the agent may use anything of a server.
    pub(crate) fn has_any(&self, server: &str) -> bool {
        self.of(server).next().is_some()
    }

    /// True if the agent may use something of a server, be it after a person has said so.
    pub fn has(&self, server: &str, name: &str) -> bool {
        !matches!(self.judge(server, name), RuleVerdict::Deny { .. })
    }

    /// The verdict of the rules on an item, by its server's id and its own name or URI. Whatever
    /// pattern fits the server, its `deny` holds, and its `confirm`, which lets through what a
    /// person allows. What `allow` gives is said under the server's own id, if anything stands
    /// there, else under any pattern that fits; all, where no list says what.
    pub fn judge(&self, server: &str, name: &str) -> RuleVerdict {
        let mut fitting = self.of(server).map(|(_, rules)| rules);
        if let Some(denied) = fitting.find_map(|rules| first_fit(&rules.deny, name)) {
            return RuleVerdict::denied(&denied.place);
        }
        let mut fitting = self.of(server).map(|(_, rules)| rules);
        if let Some(confirmed) = fitting.find_map(|rules| first_fit(&rules.confirm, name)) {
            return RuleVerdict::Confirm {
                rule: confirmed.place.clone(),
            };
        }
        let is_own = |(of, _): &&(Pattern, ToolRules)| of.as_str() == server;
        let allows = |rules: &ToolRules| {
            rules.allow.is_empty() || rules.allow.iter().any(|pattern| pattern.matches(name))
        };
        let (allowed, place) = match self.of(server).find(is_own) {
            Some((_, own)) => (allows(own), &own.allow_place),
            None => (self.of(server).any(|(_, rules)| allows(rules)), &self.place),
        };
        match allowed {
            true => RuleVerdict::Allow,
            false => RuleVerdict::denied(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(text: &str) -> AgentTools {
        let text = format!(r#"{{"agents":{text}}}"#);
        let document = colibri_json::Document::parse(text.as_bytes(), "r").unwrap();
        let keys = document.root().object(&["agents"]).unwrap();
        AgentTools::read(keys.get("agents").unwrap()).unwrap()
    }

    fn said(tools: &AgentTools, server: &str, name: &str) -> String {
        match tools.judge(server, name) {
            RuleVerdict::Allow => "allow".to_owned(),
            RuleVerdict::Deny { rule, .. } => format!("deny {rule}"),
            RuleVerdict::Confirm { rule } => format!("confirm {rule}"),
        }
    }

    #[test]
    fn what_no_pattern_fits_an_agent_has_not() {
        let none = tools("{}");
        assert_eq!(said(&none, "git", "status"), "deny r:1: agents");
        assert!(!none.has_any("git") && !none.has("git", "status"));
        let git = tools(r#"{"git":{"allow":["get_*"]}}"#);
        assert_eq!(said(&git, "git", "get_log"), "allow");
        assert_eq!(said(&git, "git", "push"), "deny r:1: agents.git.allow");
        for (server, name) in [("github", "get_log"), ("", "get_log"), ("Git", "get_log")] {
            assert_eq!(
                said(&git, server, name),
                "deny r:1: agents",
                "{server} {name}"
            );
        }
        assert!(git.has_any("git") && !git.has_any("github"));
    }

    #[test]
    fn what_is_to_be_confirmed_need_not_be_allowed_as_well() {
        let fs = tools(r#"{"fs":{"allow":["read_*"],"confirm":["write_*"],"deny":["write_key"]}}"#);
        assert_eq!(said(&fs, "fs", "read_file"), "allow");
        assert_eq!(
            said(&fs, "fs", "write_file"),
            "confirm r:1: agents.fs.confirm \"write_*\""
        );
        assert_eq!(said(&fs, "fs", "write_key"), "deny r:1: agents.fs.deny[0]");
        assert_eq!(said(&fs, "fs", "remove"), "deny r:1: agents.fs.allow");
        assert!(fs.has("fs", "write_file"));
    }

    #[test]
    fn every_pattern_that_fits_can_tighten_and_the_servers_own_says_what_is_allowed() {
        let both = tools(
            r#"{"*":{"allow":["*"],"deny":["delete_*"],"confirm":["create_*"]},"git":{"allow":["get_*","delete_*","create_*"]},
                "all":{}}"#,
        );
        assert_eq!(said(&both, "git", "get_log"), "allow");
        assert_eq!(said(&both, "git", "push"), "deny r:1: agents.git.allow");
        assert_eq!(
            said(&both, "git", "delete_repo"),
            "deny r:1: agents.*.deny[0]"
        );
        assert_eq!(
            said(&both, "git", "create_branch"),
            "confirm r:1: agents.*.confirm \"create_*\""
        );
        assert_eq!(said(&both, "fs", "push"), "allow");
        assert_eq!(said(&both, "all", "push"), "allow", "no list says what");
    }
}

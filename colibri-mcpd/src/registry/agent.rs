//! An agent's entry as the daemon reads it: on top of what the helper understands too, who may have
//! it run, what it may use and spend.

use std::sync::Arc;
use std::time::Duration;

use colibri_json::{DocumentError, Object, ValueCursor};
use colibri_registry::value::unique;
use colibri_registry::{AgentEntry as Base, Stdin, StdioCommand, account_choices};

use super::kinds::{self, AgentKind};
use super::model::{self, ModelSpec};
use colibri_policy::{AgentTools, BoundMay, MayList, MayPlace, PatternScope, RulePlace};

/// One agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSpec {
    /// SHA-256 of the entry's value exactly as it stands in the file, lower-case hex: what the
    /// daemon passes to the helper as `--digest`.
    pub digest: String,
    /// Its process.
    pub command: Box<StdioCommand>,
    /// Its standard input.
    pub stdin: Stdin,
    /// The meaning of the lines that it writes; `None`: none, and its exit alone counts.
    pub events: Option<Arc<AgentKind>>,
    /// Its capabilities, for tasks that need them.
    pub capabilities: Vec<String>,
    /// Its model, behind the relay. `None`: it has none.
    pub model: Option<Box<ModelSpec>>,
    /// The tools that it may use.
    pub tools: AgentTools,
    /// The tools that may change something without a person; `None`: all that it may use.
    pub may: Option<BoundMay>,
    /// The budget of one instance.
    pub budget: AgentBudget,
    /// The most instances at a time.
    pub max: u32,
    /// The users who may have it run, and for whom it is started automatically: names of users, or
    /// uids. Operators always may.
    pub users: Vec<String>,
    /// True if it is started by itself when a task fits it.
    pub autospawn: bool,
    /// True if its instances may have tasks that others share with the person for whom they run.
    pub shared_tasks: bool,
    /// Without an event for so long it is stalled.
    pub stall_after: Duration,
    /// `true`: the entry is read and checked, but no instance is started.
    pub disabled: bool,
}

/// The budget of one instance; `None`: any amount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentBudget {
    /// Bytes of answers through its agent socket.
    pub session_bytes: Option<u64>,
    /// The place of `session_bytes`, if there is a budget.
    pub session_bytes_place: RulePlace,
    /// Tokens of its model, in and out.
    pub tokens: Option<u64>,
    /// Events that it writes.
    pub events: Option<u64>,
    /// Minutes that it runs.
    pub minutes: Option<u64>,
}

/// Without an event for so long an agent is stalled, where the entry says nothing.
const STALL_AFTER: Duration = Duration::from_secs(4 * 3600);
/// The most instances of one agent that an entry may allow.
const MAX_INSTANCES: u64 = 1000;
/// More than anybody means.
const MAX_COUNT: u64 = 1 << 50;

/// Reads an agent's entry.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub(super) fn agent(keys: &Object<'_>, base: Base) -> Result<AgentSpec, DocumentError> {
    Ok(AgentSpec {
        digest: base.digest,
        command: base.command,
        stdin: base.stdin,
        events: keys.read("events", kinds::events)?,
        capabilities: keys
            .read("capabilities", |list| unique(list, capability))?
            .unwrap_or_default(),
        model: keys.read("model", model::read)?.map(Box::new),
        tools: keys
            .read("tools", AgentTools::read)?
            .unwrap_or_else(|| AgentTools::nothing(RulePlace::of_key(keys, "tools")))
            .with_accounts(
                keys.read("accounts", account_choices)?.unwrap_or_default(),
                RulePlace::of_key(keys, "accounts"),
            ),
        may: keys
            .read("may", |list| MayList::read(list, PatternScope::Servers))?
            .map(|may| BoundMay {
                by: MayPlace::File(RulePlace::of_key(keys, "may")),
                may: Arc::new(may),
            }),
        budget: keys.read("budget", budget)?.unwrap_or_default(),
        max: keys
            .get("max")
            .map_or(Ok(1), |v| v.integer(1..=MAX_INSTANCES))? as u32,
        users: keys
            .read("users", |list| unique(list, user))?
            .unwrap_or_default(),
        autospawn: keys
            .read("autospawn", ValueCursor::boolean)?
            .unwrap_or_default(),
        shared_tasks: keys
            .read("shared_tasks", ValueCursor::boolean)?
            .unwrap_or_default(),
        stall_after: keys
            .read("stall_after_s", |v| v.integer(1..=30 * 86_400))?
            .map_or(STALL_AFTER, Duration::from_secs),
        disabled: base.disabled,
    })
}

fn capability(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let text = cursor.text()?;
    if text.is_empty() || text.chars().count() > 64 || text.chars().any(char::is_control) {
        return Err(cursor
            .error("a capability must have 1 to 64 characters, none of them a control character"));
    }
    Ok(text.to_owned())
}

fn user(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let text = cursor.text()?;
    if text.is_empty() || text.len() > 32 {
        return Err(cursor.error("must be a user's name of 1 to 32 bytes, or a uid in digits"));
    }
    Ok(text.to_owned())
}

fn budget(cursor: &ValueCursor<'_>) -> Result<AgentBudget, DocumentError> {
    let keys = cursor.object(&["session_bytes", "tokens", "events", "minutes"])?;
    let count = |key| keys.read(key, |v| v.integer(1..=MAX_COUNT));
    Ok(AgentBudget {
        session_bytes: count("session_bytes")?,
        session_bytes_place: RulePlace::of_key(&keys, "session_bytes"),
        tokens: count("tokens")?,
        events: count("events")?,
        minutes: count("minutes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::parse;
    use colibri_text::Pattern;

    fn one(keys: &str) -> Result<AgentSpec, String> {
        let text = format!(r#"{{"agents":{{"a":{{"command":"/bin/a"{keys}}}}}}}"#);
        let registry = parse(text.as_bytes(), "r").map_err(|error| error.to_string())?;
        Ok(registry.agents["a"].clone())
    }

    #[test]
    fn an_entry_is_read_whole() {
        let agent = one(
            r#","capabilities":["rust"],"tools":{"git":{"allow":["*"]},"fs-*":{"deny":["rm"]}},
               "budget":{"session_bytes":9,"tokens":8,"events":7,"minutes":6},"max":2,"users":["op","1001"],
               "autospawn":true,"stall_after_s":60"#,
        )
        .unwrap();
        assert_eq!(agent.capabilities, ["rust"]);
        assert_eq!(agent.tools.servers[1].1.deny, [Pattern::new("rm")]);
        assert_eq!(agent.budget.minutes, Some(6));
        assert_eq!(
            (agent.max, agent.users.len(), agent.autospawn),
            (2, 2, true)
        );
        assert_eq!(agent.stall_after, Duration::from_secs(60));
    }

    #[test]
    fn an_entry_that_says_little_allows_little() {
        let agent = one("").unwrap();
        assert!(agent.tools.servers.is_empty() && agent.users.is_empty() && !agent.autospawn);
        assert_eq!((agent.max, agent.budget), (1, AgentBudget::default()));
    }

    #[test]
    fn mistakes_are_named() {
        for (keys, wanted) in [
            (r#","tools":{"Git":{}}"#, "a server's id"),
            (r#","tools":{"git":{"idempotent":["x"]}}"#, "idempotent"),
            (r#","budget":{"token":1}"#, "tokens"),
            (r#","budget":{"tokens":0}"#, "budget"),
            (r#","max":0"#, "max"),
            (r#","users":[""]"#, "user"),
            (r#","users":["a","a"]"#, "twice"),
            (r#","capabilities":[""]"#, "capability"),
            (r#","events":"claud""#, "claude"),
        ] {
            let error = one(keys).unwrap_err();
            assert!(error.contains(wanted), "{keys}: {error}");
        }
    }

    #[test]
    fn the_samples_that_ship_are_read_whole() {
        for (id, text) in [
            ("claude", include_str!("../../../etc/agents/claude.json")),
            ("codex", include_str!("../../../etc/agents/codex.json")),
            ("gemini", include_str!("../../../etc/agents/gemini.json")),
            (
                "opencode",
                include_str!("../../../etc/agents/opencode.json"),
            ),
        ] {
            let parts: serde_json::Value = serde_json::from_str(text).unwrap();
            let registry = parse(parts["registry"].to_string().as_bytes(), id).unwrap();
            let agent = &registry.agents[id];
            let budget = &agent.budget;
            assert!(
                agent.model.is_some() && !agent.autospawn && agent.users.is_empty(),
                "{id}"
            );
            assert!(
                budget.session_bytes.is_some()
                    && budget.tokens.is_some()
                    && budget.minutes.is_some(),
                "{id}"
            );
        }
    }
}

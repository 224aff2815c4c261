//! An entry's rules on what its server offers, as the registry has them.

use colibri_json::{DocumentError, ValueCursor};
use colibri_registry::value::unique;

use colibri_text::Pattern;

/// Rules on the server's own names of its tools or prompts, or on its URIs. Patterns know `*`
/// alone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolRules {
    /// The allowed patterns; empty means everything.
    pub allow: Vec<Pattern>,
    /// The denied patterns; they win over `allow`.
    pub deny: Vec<Pattern>,
    /// The patterns that need a person's confirmation.
    pub confirm: Vec<Pattern>,
    /// `true`: a tool that declares `destructiveHint: true` is treated as listed in `confirm`.
    pub confirm_destructive: bool,
    /// Tools that may be called again after a failure whose outcome is unknown.
    pub idempotent: Vec<Pattern>,
    /// Tools that are listed also to who is shown only some and finds the others.
    pub always: Vec<Pattern>,
}

/// The rules that `tools` of a server alone has: prompts and resources have no effects, and are not
/// searched.
const OF_TOOLS: [&str; 3] = ["confirm_destructive", "idempotent", "always"];

impl ToolRules {
    /// Reads the value of `tools`.
    ///
    /// # Errors
    /// An unknown key, a list with nothing or the same thing twice in it, a pattern of no or too
    /// many bytes.
    pub fn read(cursor: &ValueCursor<'_>) -> Result<Self, DocumentError> {
        Self::rules(
            cursor,
            &[&["allow", "deny", "confirm"][..], &OF_TOOLS].concat(),
        )
    }

    /// Reads the value of `prompts` or `resources`.
    ///
    /// # Errors
    /// As [`ToolRules::read`].
    pub fn read_names(cursor: &ValueCursor<'_>) -> Result<Self, DocumentError> {
        Self::rules(cursor, &["allow", "deny", "confirm"])
    }

    fn rules(cursor: &ValueCursor<'_>, keys: &[&str]) -> Result<Self, DocumentError> {
        let keys = cursor.object(keys)?;
        let list = |key: &str| {
            keys.read(key, |list| unique(list, pattern))
                .map(Option::unwrap_or_default)
        };
        // An empty allow reads like "nothing" and would mean "everything".
        if let Some(allow) = keys.get("allow")
            && allow.array()?.is_empty()
        {
            return Err(allow.error("an empty list; leave allow out to allow all, or use disabled"));
        }
        Ok(Self {
            allow: list("allow")?,
            deny: list("deny")?,
            confirm: list("confirm")?,
            confirm_destructive: keys
                .read("confirm_destructive", ValueCursor::boolean)?
                .unwrap_or_default(),
            idempotent: list("idempotent")?,
            always: list("always")?,
        })
    }
}

fn pattern(cursor: &ValueCursor<'_>) -> Result<Pattern, DocumentError> {
    let pattern = cursor.text()?;
    if pattern.is_empty() || pattern.len() > 256 {
        return Err(cursor.error("a pattern must have 1 to 256 bytes"));
    }
    Ok(Pattern::new(pattern))
}

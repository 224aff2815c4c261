//! An entry's rules on what its server offers, as the registry has them.

use colibri_json::{DocumentError, ValueCursor};
use colibri_registry::value::unique;

use super::place::{PlacedPattern, RulePlace};
use colibri_text::Pattern;

/// Rules on the server's own names of its tools or prompts, or on its URIs. Patterns know `*`
/// alone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolRules {
    /// The place of the rules.
    pub place: RulePlace,
    /// The allowed patterns; empty means everything.
    pub allow: Vec<Pattern>,
    /// The place of `allow`, where the rules have it.
    pub allow_place: RulePlace,
    /// The denied patterns; they win over `allow`.
    pub deny: Vec<PlacedPattern>,
    /// The patterns that need a person's confirmation. Their places have them as written.
    pub confirm: Vec<PlacedPattern>,
    /// The place of `confirm_destructive: true`, by which a tool that declares `destructiveHint:
    /// true` is treated as listed in `confirm`.
    pub confirm_destructive: Option<RulePlace>,
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
        let denied = |item: &ValueCursor<'_>| {
            let place = RulePlace::of_value(item);
            pattern(item).map(|pattern| PlacedPattern { pattern, place })
        };
        // Who is asked to confirm is told what was written; who is denied, where alone.
        let confirmed = |item: &ValueCursor<'_>| {
            let pattern = pattern(item)?;
            let key = format!("confirm {pattern}");
            let place = RulePlace::of_part(cursor, item.line(), &key);
            Ok(PlacedPattern { pattern, place })
        };
        // An empty allow reads like "nothing" and would mean "everything".
        if let Some(allow) = keys.get("allow")
            && allow.array()?.is_empty()
        {
            return Err(allow.error("an empty list; leave allow out to allow all, or use disabled"));
        }
        Ok(Self {
            place: RulePlace::of_value(cursor),
            allow: list("allow")?,
            allow_place: RulePlace::of_key(&keys, "allow"),
            deny: keys
                .read("deny", |list| unique(list, denied))?
                .unwrap_or_default(),
            confirm: keys
                .read("confirm", |list| unique(list, confirmed))?
                .unwrap_or_default(),
            confirm_destructive: keys
                .read("confirm_destructive", ValueCursor::boolean)?
                .unwrap_or_default()
                .then(|| RulePlace::of_key(&keys, "confirm_destructive")),
            idempotent: list("idempotent")?,
            always: list("always")?,
        })
    }
}

impl ToolRules {
    /// Takes over the lines of the same rules in a file that was read again.
    pub fn follow(&self, newer: &ToolRules) {
        let lists = [(&self.deny, &newer.deny), (&self.confirm, &newer.confirm)];
        for (own, newer) in lists {
            for (own, newer) in own.iter().zip(newer) {
                own.place.follow(&newer.place);
            }
        }
        self.place.follow(&newer.place);
        self.allow_place.follow(&newer.allow_place);
        if let (Some(own), Some(newer)) = (&self.confirm_destructive, &newer.confirm_destructive) {
            own.follow(newer);
        }
    }
}

fn pattern(cursor: &ValueCursor<'_>) -> Result<Pattern, DocumentError> {
    let pattern = cursor.text()?;
    if pattern.is_empty() || pattern.len() > 256 {
        return Err(cursor.error("a pattern must have 1 to 256 bytes"));
    }
    Ok(Pattern::new(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_json::Document;

    fn read(before: &str) -> ToolRules {
        let text = format!(
            r#"{before}{{"tools":{{"allow":["a"],"deny":["b"],"confirm":["c"],"confirm_destructive":true}}}}"#
        );
        let document = Document::parse(text.as_bytes(), "r").unwrap();
        let keys = document.root().object(&["tools"]).unwrap();
        ToolRules::read(keys.need("tools").unwrap()).unwrap()
    }

    #[test]
    fn rules_that_moved_are_the_same_and_name_their_new_lines() {
        let (old, newer) = (read(""), read("\n\n"));
        assert_eq!(old, newer);
        let verdict_place = old.deny[0].place.clone();
        old.follow(&newer);
        assert_eq!(verdict_place.to_string(), "r:3: tools.deny[0]");
        assert_eq!(old.confirm[0].place.to_string(), "r:3: tools.confirm \"c\"");
        assert_eq!(old.allow_place.to_string(), "r:3: tools.allow");
        let place = old.confirm_destructive.unwrap();
        assert_eq!(place.to_string(), "r:3: tools.confirm_destructive");
    }
}

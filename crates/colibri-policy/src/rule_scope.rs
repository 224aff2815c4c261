//! The servers and items that an entry of `clients.json` grants or denies.

use colibri_json::{DocumentError, ValueCursor};
use colibri_protocol::Feature;
use colibri_registry::is_server_id;
use colibri_text::Pattern;

use super::place::{PlacedPattern, RulePlace, first_fit};

/// The servers and items that an entry grants or denies.
#[derive(Debug)]
pub(super) struct RuleScope {
    pub(super) servers: Pattern,
    tools: Vec<PlacedPattern>,
    prompts: Vec<PlacedPattern>,
    /// On URIs and templates.
    resources: Vec<PlacedPattern>,
}

impl RuleScope {
    fn find(&self, feature: Feature, name: &str) -> Option<&PlacedPattern> {
        let patterns = match feature {
            Feature::Tool => &self.tools,
            Feature::Prompt => &self.prompts,
            Feature::Resource | Feature::Template | Feature::Skill => &self.resources,
        };
        first_fit(patterns, name)
    }
}

/// The first pattern of a list that fits an item.
pub(super) fn find<'r>(
    list: &'r [RuleScope],
    server: &str,
    feature: Feature,
    name: &str,
) -> Option<&'r PlacedPattern> {
    list.iter()
        .filter(|scope| scope.servers.matches(server))
        .find_map(|scope| scope.find(feature, name))
}

/// Reads the value of `servers` or `deny`.
///
/// # Errors
/// Not an object of lists of patterns, or a list that fits nothing.
pub(super) fn scopes(cursor: &ValueCursor<'_>) -> Result<Vec<RuleScope>, DocumentError> {
    cursor
        .members()?
        .into_iter()
        .map(|member| {
            let id = member.key;
            // Ids have no other characters, so that a pattern with one would never fit anything.
            if id.is_empty()
                || !(is_server_id(id) || id.contains('*') && id.bytes().all(in_pattern))
            {
                return Err(member.key_error("must be a server's id, or a pattern of one with *"));
            }
            let servers = Pattern::new(id);
            if !member.value.is_object() {
                let all = patterns(&member.value)?;
                return Ok(RuleScope {
                    servers,
                    tools: all.clone(),
                    prompts: all.clone(),
                    resources: all,
                });
            }
            let keys = member.value.object(&["tools", "prompts", "resources"])?;
            let of = |key| keys.read(key, patterns).map(Option::unwrap_or_default);
            let (tools, prompts, resources) = (of("tools")?, of("prompts")?, of("resources")?);
            if tools.is_empty() && prompts.is_empty() && resources.is_empty() {
                return Err(member
                    .value
                    .error("an empty object grants and denies nothing; leave the server out"));
            }
            Ok(RuleScope {
                servers,
                tools,
                prompts,
                resources,
            })
        })
        .collect()
}

fn patterns(cursor: &ValueCursor<'_>) -> Result<Vec<PlacedPattern>, DocumentError> {
    let patterns = cursor.array()?;
    if patterns.is_empty() {
        return Err(cursor.error("an empty list grants and denies nothing; leave the server out"));
    }
    patterns
        .into_iter()
        .map(|pattern| match pattern.text()? {
            "" => Err(pattern.error("an empty pattern fits nothing")),
            text if text.len() > 256 => Err(pattern.error("a pattern must have at most 256 bytes")),
            text => Ok(PlacedPattern {
                pattern: Pattern::new(text),
                place: RulePlace::of_value(&pattern),
            }),
        })
        .collect()
}

fn in_pattern(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'*')
}

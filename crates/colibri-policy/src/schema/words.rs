//! The requirements of a schema, in words for the caller: no raw JSON of a schema, and no value of
//! the arguments.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

/// The most parts of one keyword that are named.
const MAX_PARTS: usize = 4;
/// The depth to which a schema is described.
const MAX_DEPTH: usize = 3;

/// Says why a value does not fit, without the value. Neither bounded nor escaped.
pub(super) fn reason(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Not { schema } => {
            format!("the value must not be {}", description(schema, MAX_DEPTH))
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            let reasons = context
                .iter()
                .filter_map(|errors| errors.first())
                .map(reason);
            format!("no alternative fits: {}", joined(reasons, "; "))
        }
        _ => error.masked_with("the value").to_string(),
    }
}

/// The first parts, with a word for the rest.
fn joined(parts: impl Iterator<Item = String>, between: &str) -> String {
    let mut parts: Vec<String> = parts.take(MAX_PARTS + 1).collect();
    if parts.len() > MAX_PARTS {
        parts[MAX_PARTS] = "…".to_owned();
    }
    parts.join(between)
}

/// The values that fit a schema, as the words that follow "the value is".
fn description(schema: &Value, depth: usize) -> String {
    let Some(keywords) = schema.as_object().filter(|keywords| !keywords.is_empty()) else {
        return if schema == false {
            "of any kind at all"
        } else {
            "there"
        }
        .to_owned();
    };
    if depth == 0 {
        return "as the schema says".to_owned();
    }
    let parts = keywords.iter().map(|(keyword, wanted)| {
        let all = |between: &str| {
            let schemas = wanted.as_array().into_iter().flatten();
            joined(
                schemas.map(|schema| description(schema, depth - 1)),
                between,
            )
        };
        match (keyword.as_str(), wanted) {
            ("type", Value::Array(types)) => joined(types.iter().map(plain), " or "),
            ("type", kind) => format!("of type {}", plain(kind)),
            ("const", value) => value.to_string(),
            ("enum", Value::Array(values)) => format!(
                "one of {}",
                joined(values.iter().map(Value::to_string), ", ")
            ),
            ("pattern", pattern) => format!("text that matches {}", plain(pattern)),
            ("not", schema) => format!("other than {}", description(schema, depth - 1)),
            ("anyOf" | "oneOf", _) => all(", or "),
            ("allOf", _) => all(", and "),
            ("required", Value::Array(names)) => {
                format!("with {}", joined(names.iter().map(plain), ", "))
            }
            ("properties", Value::Object(members)) => {
                let each = |(name, schema): (&String, &Value)| {
                    format!("{name} is {}", description(schema, depth - 1))
                };
                format!(
                    "an object where {}",
                    joined(members.iter().map(each), " and ")
                )
            }
            ("items" | "contains", schema) => format!(
                "a list whose elements are {}",
                description(schema, depth - 1)
            ),
            (keyword, Value::Number(limit)) => format!("{keyword} {limit}"),
            (keyword, _) => format!("as its {keyword} says"),
        }
    });
    joined(parts, " and ")
}

/// A word of a schema without quotes.
fn plain(word: &Value) -> String {
    word.as_str()
        .map_or_else(|| word.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::{Fit, Schema};
    use super::*;
    use crate::strict_json::Exact;
    use serde_json::json;

    fn said(schema: Value, arguments: Value) -> String {
        let schema = Schema::compile(schema.to_string().as_bytes()).unwrap();
        match schema.check(&Exact::read(arguments.to_string().as_bytes()).unwrap()) {
            Fit::Unfit(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_wanted_is_said_in_words() {
        for (schema, arguments, expected) in [
            (
                json!({ "properties": { "b": { "not": { "pattern": "\\.\\." } } } }),
                json!({ "b": "a..hunter2" }),
                "/b: the value must not be text that matches \\.\\.",
            ),
            (
                json!({ "properties": { "b": { "not": { "anyOf": [{ "pattern": "^-" }, { "enum": ["HEAD", "@"] }] } } } }),
                json!({ "b": "-x" }),
                "/b: the value must not be text that matches ^-, or one of \"HEAD\", \"@\"",
            ),
            (
                json!({ "not": { "required": ["force"], "properties": { "force": { "const": true } } } }),
                json!({ "force": true }),
                "the top level: the value must not be an object where force is true and with force",
            ),
            (
                json!({ "properties": { "n": { "anyOf": [{ "type": "integer" }, { "type": "null" }] } } }),
                json!({ "n": "x" }),
                "/n: no alternative fits: the value is not of type \"integer\"; the value is not of type \"null\"",
            ),
        ] {
            assert_eq!(said(schema, arguments), expected);
        }
    }

    #[test]
    fn what_a_schema_says_is_bounded_and_escaped() {
        let many: Vec<Value> = (0..200)
            .map(|n| json!({ "const": format!("{n}\u{1b}[2J") }))
            .collect();
        let text = said(
            json!({ "properties": { "a": { "not": { "not": { "anyOf": many } } } } }),
            json!({ "a": 1 }),
        );
        assert!(text.len() < 1000 && !text.contains('\u{1b}'), "{text}");
        let mut deep = json!({ "type": "string" });
        for _ in 0..20 {
            deep = json!({ "properties": { "a": deep } });
        }
        let text = said(json!({ "not": deep }), json!({ "a": {} }));
        assert!(
            text.contains("as the schema says") && text.len() < 400,
            "{text}"
        );
    }
}

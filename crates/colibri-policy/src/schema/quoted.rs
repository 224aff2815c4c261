//! Numbers and booleans that a client wrote as strings.
//!
//! Language models write `"3"` where a schema wants 3, and most servers take it. Such arguments do
//! not fit the schema as they are; they do once each of these strings is read as the value that it
//! spells. Only the canonical spelling counts, the one that printing the value gives: `"01"`,
//! `"1.0"`, `"1e3"`, `"+1"`, `" 1"` and `"TRUE"` stay strings.

use std::collections::BTreeSet;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

/// The longest spelling that is looked at, in bytes.
const MAX_LENGTH: usize = 32;

/// True if arguments that do not fit the schema would, were the strings that stand where it wants a
/// number or a boolean the values that they spell.
pub(super) fn fits_unquoted(validator: &Validator, arguments: &Value) -> bool {
    let mut places = BTreeSet::new();
    validator
        .iter_errors(arguments)
        .for_each(|error| collect_places(&error, &mut places));
    let mut unquoted = arguments.clone();
    let mut is_changed = false;
    for place in &places {
        if let Some(value) = unquoted.pointer_mut(place)
            && let Some(spelled) = value.as_str().and_then(spelled_value)
        {
            *value = spelled;
            is_changed = true;
        }
    }
    is_changed && validator.is_valid(&unquoted)
}

/// Collects where the schema wants a value of another type, or one of a list, in every alternative.
fn collect_places(error: &ValidationError<'_>, places: &mut BTreeSet<String>) {
    match error.kind() {
        ValidationErrorKind::Type { .. }
        | ValidationErrorKind::Enum { .. }
        | ValidationErrorKind::Constant { .. } => {
            places.insert(error.instance_path().as_str().to_owned());
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context
                .iter()
                .flatten()
                .for_each(|error| collect_places(error, places));
        }
        _ => {}
    }
}

/// The integer (of 64 bits), number or boolean whose canonical spelling a text is.
fn spelled_value(text: &str) -> Option<Value> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let value = match text {
        "true" => return Some(Value::Bool(true)),
        "false" => return Some(Value::Bool(false)),
        _ if text.contains('.') => {
            let number = text
                .parse::<f64>()
                .ok()
                .filter(|number| number.is_finite())?;
            (number.to_string() == text).then(|| Value::from(number))
        }
        _ if text.starts_with('-') => text.parse::<i64>().ok().map(Value::from),
        _ => text.parse::<u64>().ok().map(Value::from),
    };
    value.filter(|value| text.contains('.') || format!("{value}") == text)
}

#[cfg(test)]
mod tests {
    use super::super::{Fit, Schema};
    use super::*;
    use crate::strict_json::Exact;
    use proptest::prelude::*;
    use serde_json::json;

    /// True if arguments do not fit, but do without quotes.
    fn is_quoted(schema: &Schema, arguments: &Value) -> bool {
        let exact = Exact::read(arguments.to_string().as_bytes()).unwrap();
        matches!(schema.check(&exact), Fit::Unfit(_)) && schema.fits_unquoted(&exact)
    }

    fn schema(value: Value) -> Schema {
        Schema::compile(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn only_the_canonical_spelling_is_a_value() {
        for (text, value) in [
            ("0", json!(0)),
            ("-7", json!(-7)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("1.5", json!(1.5)),
            ("-0.25", json!(-0.25)),
            ("true", json!(true)),
            ("false", json!(false)),
        ] {
            assert_eq!(spelled_value(text), Some(value), "{text}");
        }
        for text in [
            "",
            "01",
            "-0",
            "1.0",
            "1.50",
            ".5",
            "5.",
            "1e3",
            "1.5e3",
            " 1",
            "1 ",
            "1\n",
            "+1",
            "+1.5",
            "-",
            "1_000",
            "0x1",
            "TRUE",
            "True",
            "null",
            "NaN",
            "inf",
            "-inf",
            "--1",
            "-0.0",
            "١",
            "1,5",
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
            "0.1234567890123456789",
            "1000000000000000000000000000000000.5",
        ] {
            assert_eq!(spelled_value(text), None, "{text}");
        }
    }

    #[test]
    fn a_string_fits_where_the_value_that_it_spells_is_wanted() {
        let schema = schema(json!({
            "type": "object",
            "properties": {
                "level": { "type": "integer", "maximum": 9 },
                "ratio": { "type": "number" },
                "deep": { "type": "boolean" },
                "name": { "type": "string" },
                "count": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
                "either": { "oneOf": [{ "type": "boolean" }, { "type": "array" }] },
                "choice": { "enum": [1, 2, true] },
                "one": { "const": 1 },
                "list": { "type": "array", "items": { "type": "integer" } },
                "a~b/c": { "type": "object", "properties": { "n": { "type": ["integer", "boolean"] } } },
            },
            "required": ["name"],
            "additionalProperties": false,
        }));
        for arguments in [
            json!({ "name": "7", "level": "1" }),
            json!({ "name": "x", "ratio": "1.5", "deep": "true" }),
            json!({ "name": "x", "ratio": "3" }),
            json!({ "name": "x", "count": "3", "either": "false" }),
            json!({ "name": "x", "choice": "2", "one": "1" }),
            json!({ "name": "x", "choice": "true" }),
            json!({ "name": "x", "list": [1, "2", "3"] }),
            json!({ "name": "x", "a~b/c": { "n": "4" } }),
        ] {
            assert!(is_quoted(&schema, &arguments), "{arguments}");
        }
        for arguments in [
            json!({ "name": "x", "level": "10" }),
            json!({ "name": "x", "level": "1.5" }),
            json!({ "name": "x", "level": "true" }),
            json!({ "name": "x", "level": "01" }),
            json!({ "name": "x", "deep": "1" }),
            json!({ "name": "x", "deep": 1 }),
            json!({ "name": 7 }),
            json!({ "level": "1" }),
            json!({ "name": "x", "level": "1", "more": 1 }),
            json!({ "name": "x", "choice": "3" }),
            json!({ "name": "x", "list": [1, "two"] }),
            json!({ "name": "x", "list": "[1]" }),
            json!({ "name": "x", "count": "null" }),
            json!({ "name": "x", "a~b/c": "{\"n\":4}" }),
        ] {
            assert!(!is_quoted(&schema, &arguments), "{arguments}");
        }
        assert!(
            !is_quoted(&schema, &json!({ "name": "x", "level": 1 })),
            "it fits as it is"
        );
    }

    proptest! {
        #[test]
        fn every_value_as_it_is_printed_is_its_spelling(integer: i64, number in -1e9..1e9_f64, truth: bool) {
            prop_assert_eq!(spelled_value(&integer.to_string()), Some(json!(integer)));
            prop_assert_eq!(spelled_value(&truth.to_string()), Some(json!(truth)));
            if number.to_string().contains('.') {
                prop_assert_eq!(spelled_value(&number.to_string()), Some(json!(number)));
            }
        }

        #[test]
        fn a_spelling_is_what_printing_its_value_gives(text in "[-+0-9.eE tru]{0,12}") {
            if let Some(value) = spelled_value(&text) {
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }
}

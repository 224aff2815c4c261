//! JSON Schemas of the shared types, in the few words that every client of MCP understands.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The schema of an answer: what is always there is required.
#[must_use]
pub fn of_answer<T: JsonSchema>() -> Value {
    plain(
        SchemaSettings::draft2020_12().for_serialize(),
        |generator| generator.into_root_schema_for::<T>(),
    )
}

/// The schema of arguments: what has a default need not be there.
#[must_use]
pub fn of_arguments<T: JsonSchema>() -> Value {
    plain(
        SchemaSettings::draft2020_12().for_deserialize(),
        |generator| generator.into_root_schema_for::<T>(),
    )
}

fn plain(
    mut settings: SchemaSettings,
    generate: impl FnOnce(schemars::SchemaGenerator) -> schemars::Schema,
) -> Value {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = generate(settings.into_generator()).to_value();
    if let Some(root) = schema.as_object_mut() {
        root.remove("title");
        root.remove("description");
    }
    simplify(&mut schema);
    schema
}

/// Some clients refuse words they do not know: formats of Rust's numbers, `unevaluatedProperties`, which means the same
/// as `additionalProperties` where everything is in one object, and a choice of constants where an `enum` says it.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Object(words) => {
            if words.get("format").is_some_and(number_format) {
                words.remove("format");
            }
            if let Some(others) = words.remove("unevaluatedProperties") {
                words.insert("additionalProperties".to_owned(), others);
            }
            if let Some(names) = words.get("oneOf").and_then(constants) {
                words.remove("oneOf");
                words.insert("type".to_owned(), json!("string"));
                words.insert("enum".to_owned(), names);
            }
            words.values_mut().for_each(simplify);
        }
        _ => {}
    }
}

fn number_format(format: &Value) -> bool {
    let format = format.as_str().unwrap_or_default();
    ["int", "uint", "double", "float"]
        .iter()
        .any(|kind| format.starts_with(kind))
}

/// The constants of a choice among strings.
fn constants(choice: &Value) -> Option<Value> {
    let constant = |one: &Value| {
        one.as_object()
            .and_then(|one: &Map<String, Value>| one.get("const"))
            .cloned()
    };
    choice
        .as_array()?
        .iter()
        .map(constant)
        .collect::<Option<Vec<_>>>()
        .map(Value::Array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FoundTools, ServerTools, Servers, Snapshot, Status, Tasks};

    fn words(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Array(items) => items.iter().for_each(|item| words(item, found)),
            Value::Object(members) => members.iter().for_each(|(word, value)| {
                found.push(word.clone());
                words(value, found);
            }),
            _ => {}
        }
    }

    #[test]
    fn schemas_use_words_that_every_client_knows() {
        for schema in [
            of_answer::<Status>(),
            of_answer::<Snapshot>(),
            of_answer::<Servers>(),
            of_answer::<ServerTools>(),
            of_answer::<FoundTools>(),
            of_answer::<Tasks>(),
        ] {
            let mut found = Vec::new();
            words(&schema, &mut found);
            for odd in [
                "$ref",
                "$defs",
                "$schema",
                "format",
                "unevaluatedProperties",
                "oneOf",
                "const",
            ] {
                assert!(!found.iter().any(|word| word == odd), "{odd}: {schema:#}");
            }
            assert_eq!(
                (&schema["type"], &schema["additionalProperties"]),
                (&json!("object"), &json!(false)),
                "{schema:#}"
            );
        }
    }

    #[test]
    fn answers_require_what_is_always_there_and_nothing_else() {
        let tool = &of_answer::<ServerTools>()["properties"]["tools"]["items"];
        assert_eq!(
            tool["required"],
            json!(["name", "server", "tool", "input_schema"])
        );
        assert_eq!(tool["properties"]["input_schema"]["type"], "object");
        let status = of_answer::<Status>();
        assert_eq!(status["required"].as_array().unwrap().len(), 20);
        assert_eq!(
            status["properties"]["cost_mode"]["enum"],
            json!(["fast", "smart", "max"])
        );
        assert_eq!(
            status["properties"]["registry"]["properties"]["error"]["type"],
            json!(["string", "null"])
        );
        let by_state = &status["properties"]["servers"]["properties"]["by_state"];
        assert_eq!(by_state["type"], "object", "{by_state}");
    }
}

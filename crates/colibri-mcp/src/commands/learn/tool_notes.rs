//! The tools of an observed server, and the shapes of the arguments that they were called with.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The longest name of a key.
const MAX_NAME: usize = 256;
/// The depth and the width of arguments down to which their shape is noted.
const MAX_DEPTH: usize = 8;
const MAX_KEYS: usize = 100;

/// A tool as it was listed and called.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolNote {
    /// Its calls.
    pub calls: u64,
    /// Calls that failed.
    pub failures: u64,
    /// The server says that it only reads.
    pub read_only: bool,
    /// The server says that it destroys.
    pub destructive: bool,
    /// The shape of its arguments in all calls.
    pub arguments: Option<ArgumentShape>,
}

/// The shape of a value, in all calls: types and keys, no value.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArgumentShape {
    /// The number of times that it stood there.
    pub count: u64,
    /// Its types, as JSON Schema names them.
    pub types: BTreeSet<String>,
    /// The members of objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, ArgumentShape>,
    /// The elements of arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Box<ArgumentShape>>,
    /// It is deeper or wider than is noted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_open: bool,
}

impl ArgumentShape {
    /// Notes the shape of a value.
    pub(super) fn take(&mut self, value: &Value, depth: usize) {
        self.count += 1;
        let name = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        self.types.insert(name.to_owned());
        match value {
            Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => self.is_open = true,
            Value::Array(elements) => {
                for element in elements.iter().take(MAX_KEYS) {
                    self.items.get_or_insert_default().take(element, depth + 1);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    let is_known = self.properties.contains_key(key);
                    if !is_known && (self.properties.len() >= MAX_KEYS || key.len() > MAX_NAME) {
                        self.is_open = true;
                    } else {
                        self.properties
                            .entry(key.clone())
                            .or_default()
                            .take(member, depth + 1);
                    }
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, later: ArgumentShape) {
        self.count += later.count;
        self.types.extend(later.types);
        self.is_open |= later.is_open;
        for (key, shape) in later.properties {
            self.properties.entry(key).or_default().add(shape);
        }
        if let Some(items) = later.items {
            self.items.get_or_insert_default().add(*items);
        }
    }

    /// The JSON Schema of these arguments, as a contract has it.
    pub(super) fn schema(&self) -> Value {
        let mut schema = Map::new();
        // Each integer is a number, too.
        let is_number = self.types.contains("number");
        let types = self
            .types
            .iter()
            .filter(|name| !(is_number && *name == "integer"));
        let types: Vec<&String> = types.collect();
        match types[..] {
            [one] => drop(schema.insert("type".to_owned(), json!(one))),
            _ => drop(schema.insert("type".to_owned(), json!(types))),
        }
        if self.types.contains("object") {
            let objects = self.count;
            let is_always = |shape: &ArgumentShape| self.types.len() == 1 && shape.count == objects;
            let always = self.properties.iter().filter(|(_, shape)| is_always(shape));
            let always: Vec<&String> = always.map(|(key, _)| key).collect();
            if !always.is_empty() {
                schema.insert("required".to_owned(), json!(always));
            }
            let properties = self
                .properties
                .iter()
                .map(|(key, shape)| (key.clone(), shape.schema()));
            schema.insert("properties".to_owned(), Value::Object(properties.collect()));
            if self.is_open {
                schema.insert("additionalProperties".to_owned(), json!(true));
            }
        }
        if let Some(items) = &self.items {
            schema.insert("items".to_owned(), items.schema());
        }
        Value::Object(schema)
    }
}

impl ToolNote {
    /// Adds what was seen in another session; what the server says of the tool is what it said
    /// last.
    pub(super) fn add(&mut self, later: ToolNote) {
        self.calls += later.calls;
        self.failures += later.failures;
        self.read_only = later.read_only;
        self.destructive = later.destructive;
        if let Some(arguments) = later.arguments {
            self.arguments.get_or_insert_default().add(arguments);
        }
    }
}

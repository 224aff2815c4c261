//! The parts of contract terms: schemas, places in objects, names and reasons.

use std::fmt;

use colibri_json::{DocumentError, ValueCursor};
use colibri_text::visible;
use colibri_wire::Json;
use serde_json::{Map, Value};

use super::schema::{Schema, every_keyword_applies};
use super::strict_json::Exact;

/// The most keys on the way to a place.
const MAX_DEPTH: usize = 8;

/// A member of an object, or of one within it, by the keys that lead to it: `/branch`,
/// `/usage/tokens`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    /// The place that a text names, if it names one.
    pub(super) fn parse(text: &str) -> Option<Pointer> {
        let keys: Vec<String> = text
            .strip_prefix('/')?
            .split('/')
            .map(str::to_owned)
            .collect();
        let is_odd =
            |key: &String| key.is_empty() || key.contains(|c: char| c == '~' || c.is_control());
        (keys.len() <= MAX_DEPTH && !keys.iter().any(is_odd)).then_some(Pointer(keys))
    }

    /// The place that a contract names in `whose` object.
    pub(super) fn read(cursor: &ValueCursor<'_>, whose: &str) -> Result<Pointer, DocumentError> {
        let why = || cursor.error(format!("must lead to a member of {whose}, like /branch"));
        Pointer::parse(cursor.text()?).ok_or_else(why)
    }

    /// The fault.
    pub(super) fn of<'a>(&self, object: Json<'a>) -> Option<Json<'a>> {
        self.0.iter().try_fold(object, |value, key| value.get(key))
    }

    /// The same of what was read exactly.
    pub(super) fn of_exact<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0
            .iter()
            .try_fold(object, |value, key| value.as_object()?.get(key))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|key| write!(f, "/{}", visible(key)))
    }
}

/// Reads a reason.
pub(super) fn reason(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    match cursor.text()? {
        text if text.trim().is_empty() || text.len() > 500 => {
            Err(cursor
                .error("a reason must have 1 to 500 bytes: it is what the refused caller reads"))
        }
        text => Ok(text.to_owned()),
    }
}

/// A name of ours: lower-case letters, digits and `_`.
pub(super) fn is_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    text.len() <= 40
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(legal)
}

/// True if a text can be the code of an integration's failure.
pub(super) fn is_code(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    // One of digits alone could be a server's number.
    let begins = text.starts_with(|first: char| first.is_ascii_uppercase());
    begins && text.len() <= 40 && text.bytes().all(legal)
}

/// Names, each with its place in `whose` object, at most so many.
pub(super) fn fields(
    cursor: &ValueCursor<'_>,
    whose: &str,
    most: usize,
) -> Result<Vec<(String, Pointer)>, DocumentError> {
    let members = cursor.members()?;
    if members.len() > most {
        return Err(cursor.error(format!("must have at most {most} fields")));
    }
    let field = |member: colibri_json::NamedValue<'_>| {
        if !is_name(member.key) || TAKEN.contains(&member.key) {
            let taken = TAKEN.join(", ");
            let why = format!(
                "a field's name must be of a-z, 0-9 and _, begin with a letter, and be none of {taken}"
            );
            return Err(member.key_error(why));
        }
        Ok((member.key.to_owned(), Pointer::read(&member.value, whose)?))
    };
    members.into_iter().map(field).collect()
}

/// The fields of every contract record.
const TAKEN: [&str; 5] = ["call", "uid", "server", "tool", "latency_ms"];

/// Reads the schema of an object. It is closed, and every keyword of it applies.
pub(super) fn schema(cursor: &ValueCursor<'_>) -> Result<Schema, DocumentError> {
    cursor.members()?;
    let read = Exact::read(cursor.raw())
        .map_err(|inexact| cursor.error(format!("the schema has {inexact}")))?;
    every_keyword_applies(&read.value).map_err(|error| cursor.error(error.to_string()))?;
    let mut value = read.value;
    if let Value::Object(top) = &mut value {
        // What has no properties has no members.
        top.entry("type").or_insert_with(|| "object".into());
        top.entry("properties").or_insert_with(|| Map::new().into());
    }
    close(&mut value);
    Schema::build(value).map_err(|error| cursor.error(error.to_string()))
}

/// Closes every object with listed properties against others, unless it says something of them
/// itself. Branches (`anyOf` and the like) speak of the same value as the schema around them and
/// are left alone.
fn close(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    let says =
        map.contains_key("additionalProperties") || map.contains_key("unevaluatedProperties");
    if map.contains_key("properties") && !says {
        map.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    for (key, value) in map {
        match (key.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(members)) => {
                members.values_mut().for_each(close)
            }
            ("prefixItems", Value::Array(items)) => items.iter_mut().for_each(close),
            ("items" | "contains" | "additionalProperties", inner) => close(inner),
            _ => {}
        }
    }
}

//! Simple schemas, applied to arguments as they are written.
//!
//! Most tools describe an object of strings, numbers, switches, lists and objects of those. For
//! such a schema the common answer, that the arguments fit, is found in one pass over their text
//! that keeps nothing. What is not surely so is left to the validator: this is a shorter way to one
//! of its answers, never another answer.

use std::borrow::Cow;
use std::sync::LazyLock;

use colibri_json::{JsonReader, ValueKind};
use serde_json::{Map, Value};

/// The most members of an object that are told apart.
const MAX_MEMBERS: usize = 64;
/// The most members that an object may have which its schema does not name.
const MAX_OTHERS: usize = 16;
/// The longest arguments, in bytes.
const MAX_LENGTH: usize = 64 << 10;
/// The most digits of a number: all of them fit into 64 bits, and into a float without being
/// rounded twice.
const MAX_DIGITS: usize = 15;

/// Keywords that no value fits or does not fit by.
const ANNOTATIONS: [&str; 13] = [
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "format",
    "readOnly",
    "title",
    "writeOnly",
];

/// A schema of which every keyword is known here.
#[derive(Debug)]
pub(super) struct SimpleSchema(Part);

/// The requirements on a value.
#[derive(Debug, Default)]
struct Part {
    /// The types that are not allowed, a bit each.
    barred: u8,
    /// The strings that are allowed, and no other value.
    choices: Option<Vec<Box<str>>>,
    /// Characters of a string.
    length: NumberBounds<usize>,
    /// Values of a number, which is an integer then.
    range: NumberBounds<i64>,
    /// Elements of an array.
    count: NumberBounds<usize>,
    elements: Option<Box<Part>>,
    members: Option<SimpleMembers>,
    /// One of them at least has to fit as well.
    any_of: Vec<Part>,
}

#[derive(Debug, Default)]
struct SimpleMembers {
    named: Vec<(Box<str>, Part)>,
    /// The named ones that must be there, a bit each.
    required: u64,
    others: Others,
}

/// The requirements on members that the schema does not name.
#[derive(Debug, Default)]
enum Others {
    #[default]
    Any,
    None,
    Fit(Box<Part>),
}

#[derive(Debug, Default)]
struct NumberBounds<T> {
    least: Option<T>,
    most: Option<T>,
}

impl<T: PartialOrd> NumberBounds<T> {
    fn hold(&self, value: &T) -> bool {
        self.least.as_ref().is_none_or(|least| value >= least)
            && self.most.as_ref().is_none_or(|most| value <= most)
    }
}

const TYPES: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];
const NULL: u8 = 1;
const BOOLEAN: u8 = 1 << 1;
const INTEGER: u8 = 1 << 2;
const NUMBER: u8 = 1 << 3;
const STRING: u8 = 1 << 4;
const ARRAY: u8 = 1 << 5;
const OBJECT: u8 = 1 << 6;

/// A value of any kind, read as strictly as others.
static ANY: LazyLock<Part> = LazyLock::new(Part::default);

static ANY_MEMBERS: LazyLock<SimpleMembers> = LazyLock::new(SimpleMembers::default);

impl SimpleSchema {
    /// The most levels of arguments.
    pub(super) const MAX_DEPTH: usize = 16;

    /// The schema, if it is simple.
    pub(super) fn of(schema: &Value) -> Option<SimpleSchema> {
        Part::of(schema).map(SimpleSchema)
    }

    /// True if arguments surely fit, and can be read exactly.
    pub(super) fn surely_fits(&self, arguments: &[u8]) -> bool {
        if arguments.len() > MAX_LENGTH {
            return false;
        }
        let Ok(text) = std::str::from_utf8(arguments) else {
            return false;
        };
        let mut reader = JsonReader::new(text, SimpleSchema::MAX_DEPTH, "");
        reader.kind() == Ok(ValueKind::Object)
            && self.0.fits(&mut reader).is_some()
            && reader.end().is_ok()
    }
}

impl Part {
    fn of(schema: &Value) -> Option<Part> {
        let keywords = match schema {
            Value::Bool(true) => return Some(Part::default()),
            Value::Object(keywords) => keywords,
            _ => return None,
        };
        let mut part = Part::default();
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "type" => part.barred = !types(value)?,
                "enum" => part.choices = Some(choices(value.as_array()?)?),
                "const" => part.choices = Some(choices(std::slice::from_ref(value))?),
                "minLength" => part.length.least = Some(whole(value)?),
                "maxLength" => part.length.most = Some(whole(value)?),
                "minimum" => part.range.least = Some(value.as_i64()?),
                "maximum" => part.range.most = Some(value.as_i64()?),
                "minItems" => part.count.least = Some(whole(value)?),
                "maxItems" => part.count.most = Some(whole(value)?),
                "items" => part.elements = Some(Box::new(Part::of(value)?)),
                "anyOf" => {
                    part.any_of = value
                        .as_array()?
                        .iter()
                        .map(Part::of)
                        .collect::<Option<_>>()?
                }
                "properties" | "required" | "additionalProperties" => {}
                annotation if ANNOTATIONS.contains(&annotation) => {}
                _ => return None,
            }
        }
        if keywords.contains_key("enum") && keywords.contains_key("const") {
            return None;
        }
        part.members = SimpleMembers::of(keywords)?;
        Some(part)
    }

    /// Reads a value that fits; `None` where that is not sure.
    fn fits(&self, reader: &mut JsonReader<'_>) -> Option<()> {
        let kind = reader.kind().ok()?;
        if !self.any_of.is_empty() {
            let fits = |part: &Part| part.fits(&mut reader.clone()).is_some();
            self.any_of.iter().any(fits).then_some(())?;
        }
        if self.choices.is_some() && kind != ValueKind::String {
            return None;
        }
        let is_allowed = |kind: u8| self.barred & kind == 0;
        let fits = match kind {
            ValueKind::Null => is_allowed(NULL) && reader.null().is_ok(),
            ValueKind::Bool => is_allowed(BOOLEAN) && reader.boolean().is_ok(),
            ValueKind::Number => self.fits_number(
                reader.number().ok()?,
                is_allowed(INTEGER),
                is_allowed(NUMBER),
            ),
            ValueKind::String => is_allowed(STRING) && self.fits_string(reader)?,
            ValueKind::Array => {
                let elements = self.elements.as_deref().unwrap_or(&ANY);
                let mut count = 0;
                reader.enter().ok()?;
                while reader.element(count == 0).ok()? {
                    elements.fits(reader)?;
                    count += 1;
                }
                is_allowed(ARRAY) && self.count.hold(&count)
            }
            ValueKind::Object => {
                self.members.as_ref().unwrap_or(&ANY_MEMBERS).fit(reader)?;
                is_allowed(OBJECT)
            }
        };
        fits.then_some(())
    }

    fn fits_string(&self, reader: &mut JsonReader<'_>) -> Option<bool> {
        let Some(choices) = &self.choices else {
            if self.length.least.is_none() && self.length.most.is_none() {
                return reader.pass_string().is_ok().then_some(true);
            }
            return Some(self.length.hold(&reader.characters().ok()?));
        };
        let text = reader.string().ok()?;
        Some(
            choices.iter().any(|choice| **choice == *text)
                && self.length.hold(&text.chars().count()),
        )
    }

    fn fits_number(&self, literal: &str, may_be_integer: bool, may_be_any: bool) -> bool {
        let digits = literal.strip_prefix('-').unwrap_or(literal);
        if digits.len() > MAX_DIGITS || literal == "-0" {
            return false;
        }
        if let Ok(integer) = literal.parse() {
            return (may_be_integer || may_be_any) && self.range.hold(&integer);
        }
        // With a point: never an integer where only zeros follow, for the dialects differ in that.
        let fraction = digits
            .split_once('.')
            .map(|(_, fraction)| fraction)
            .unwrap_or_default();
        let is_plain = fraction.bytes().all(|byte| byte.is_ascii_digit())
            && fraction.bytes().any(|byte| byte != b'0');
        is_plain && may_be_any && self.range.least.is_none() && self.range.most.is_none()
    }
}

impl SimpleMembers {
    /// `None`: not simple. `Some(None)`: the schema says nothing of members.
    fn of(keywords: &Map<String, Value>) -> Option<Option<SimpleMembers>> {
        let [properties, required, others] =
            ["properties", "required", "additionalProperties"].map(|keyword| keywords.get(keyword));
        if properties.is_none() && required.is_none() && others.is_none() {
            return Some(None);
        }
        let mut members = SimpleMembers {
            named: Vec::new(),
            required: 0,
            others: match others {
                None => Others::Any,
                Some(Value::Bool(false)) => Others::None,
                Some(others) => Others::Fit(Box::new(Part::of(others)?)),
            },
        };
        if let Some(properties) = properties {
            for (name, part) in properties.as_object()? {
                members.named.push((name.as_str().into(), Part::of(part)?));
            }
        }
        if members.named.len() > MAX_MEMBERS {
            return None;
        }
        if let Some(required) = required {
            for name in required.as_array()? {
                // A name that only `required` has is of the others.
                let index = members
                    .named
                    .iter()
                    .position(|(known, _)| Some(&**known) == name.as_str())?;
                members.required |= 1 << index;
            }
        }
        Some(Some(members))
    }

    fn fit(&self, reader: &mut JsonReader<'_>) -> Option<()> {
        let mut seen: u64 = 0;
        let mut others = None;
        let mut first = true;
        reader.enter().ok()?;
        while let Some((_, key)) = reader.key(first).ok()? {
            first = false;
            reader.colon().ok()?;
            let part = match self.named.iter().position(|(name, _)| **name == *key) {
                Some(index) if seen & 1 << index != 0 => return None,
                Some(index) => {
                    seen |= 1 << index;
                    &self.named[index].1
                }
                None => {
                    others.get_or_insert_with(OtherKeys::default).add(key)?;
                    match &self.others {
                        Others::Any => &*ANY,
                        Others::None => return None,
                        Others::Fit(part) => part,
                    }
                }
            };
            part.fits(reader)?;
        }
        (self.required & !seen == 0).then_some(())
    }
}

/// The keys of an object that its schema does not name: none stands twice.
#[derive(Default)]
struct OtherKeys<'t> {
    keys: [Option<Cow<'t, str>>; MAX_OTHERS],
}

impl<'t> OtherKeys<'t> {
    /// `None`: it is there already, or they are too many.
    fn add(&mut self, key: Cow<'t, str>) -> Option<()> {
        for place in &mut self.keys {
            match place {
                Some(known) if *known == key => return None,
                Some(_) => {}
                None => {
                    *place = Some(key);
                    return Some(());
                }
            }
        }
        None
    }
}

fn types(value: &Value) -> Option<u8> {
    let names = match value {
        Value::Array(names) => names.as_slice(),
        name => std::slice::from_ref(name),
    };
    names.iter().try_fold(0, |types, name| {
        let name = name.as_str()?;
        let index = TYPES.iter().position(|known| *known == name)?;
        Some(types | 1 << index)
    })
}

fn choices(values: &[Value]) -> Option<Vec<Box<str>>> {
    values
        .iter()
        .map(|value| value.as_str().map(Box::from))
        .collect()
}

fn whole(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::{Fit, Schema};
    use super::*;
    use crate::strict_json::Exact;
    use proptest::prelude::*;
    use serde_json::json;

    fn surely(schema: &Value, arguments: &str) -> bool {
        let schema = Schema::build(schema.clone()).unwrap();
        assert!(schema.simple.is_some(), "not simple");
        schema.surely_fits(arguments.as_bytes())
    }

    #[test]
    fn the_schemas_of_common_tools_are_simple() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "title": "ReadArguments",
            "properties": {
                "path": { "type": "string", "description": "x", "minLength": 1 },
                "head": { "type": "number" },
                "count": { "type": "integer", "minimum": 1, "maximum": 100, "default": 10 },
                "mode": { "type": "string", "enum": ["fast", "é"] },
                "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 3 },
                "since": { "anyOf": [{ "type": "string", "format": "date" }, { "type": "null" }], "default": null },
                "options": { "type": "object", "properties": { "deep": { "type": "boolean" } }, "required": ["deep"] },
            },
            "required": ["path"], "additionalProperties": false,
        });
        for arguments in [
            r#"{"path":"/work/a"}"#,
            r#" { "path" : "a\n\u00e9" , "head" : 1.5 } "#,
            r#"{"path":"a","count":100,"mode":"é","tags":["a","b"],"since":null,"options":{"deep":true,"x":[{"y":1}]}}"#,
            r#"{"since":"x","path":"a","mode":"\u00e9","head":-3}"#,
        ] {
            assert!(surely(&schema, arguments), "{arguments}");
        }
        for arguments in [
            "{}",
            r#"{"path":""}"#,
            r#"{"path":"a","path":"a"}"#,
            r#"{"path":"a","p\u0061th":"a"}"#,
            r#"{"path":"a","count":0}"#,
            r#"{"path":"a","count":1.0}"#,
            r#"{"path":"a","mode":"slow"}"#,
            r#"{"path":"a","tags":["a",1]}"#,
            r#"{"path":"a","tags":["a","b","c","d"]}"#,
            r#"{"path":"a","since":1}"#,
            r#"{"path":"a","options":{}}"#,
            r#"{"path":"a","options":{"deep":true,"x":{"y":1,"y":1}}}"#,
            r#"{"path":"a","other":1}"#,
            r#"{"path":"a"} {}"#,
            r#"{"path":"\ud800"}"#,
            r#"{"path":"a","head":1e400}"#,
            r#"{"path":"a","head":12345678901234567890}"#,
            "[]",
            "",
        ] {
            assert!(!surely(&schema, arguments), "{arguments}");
        }
    }

    #[test]
    fn what_is_not_known_here_is_not_simple() {
        for schema in [
            json!({ "type": "object", "properties": { "a": { "pattern": "x" } } }),
            json!({ "type": "object", "required": ["a"] }),
            json!({ "properties": { "a": { "enum": [1] } } }),
            json!({ "properties": { "a": { "minimum": 0.5 } } }),
            json!({ "properties": { "a": { "$ref": "#/$defs/a" } }, "$defs": { "a": {} } }),
            json!({ "properties": { "a": false } }),
            json!({ "minProperties": 1 }),
            json!({ "oneOf": [{}] }),
        ] {
            assert!(
                Schema::build(schema.clone()).unwrap().simple.is_none(),
                "{schema}"
            );
        }
    }

    #[test]
    fn long_and_deep_arguments_are_left_to_the_validator() {
        let schema = json!({ "type": "object" });
        assert!(surely(
            &schema,
            &format!("{{\"a\":{}1{}}}", "[".repeat(15), "]".repeat(15))
        ));
        assert!(!surely(
            &schema,
            &format!("{{\"a\":{}1{}}}", "[".repeat(16), "]".repeat(16))
        ));
        assert!(!surely(
            &schema,
            &format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_LENGTH))
        ));
    }

    fn schemas() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({})),
            Just(json!(true)),
            prop::sample::subsequence(TYPES.to_vec(), 1..3)
                .prop_map(|types| json!({ "type": types })),
            (0..3_u64, 0..4_u64)
                .prop_map(|(a, b)| json!({ "type": "string", "minLength": a, "maxLength": b })),
            (-3..3_i64, 0..4_i64)
                .prop_map(|(a, b)| json!({ "type": "integer", "minimum": a, "maximum": b })),
            (-3..3_i64).prop_map(|a| json!({ "minimum": a })),
            Just(json!({ "enum": ["a", "é", ""] })),
            Just(json!({ "const": "a", "type": ["string", "null"] })),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                (inner.clone(), 0..3_u64, 0..4_u64).prop_map(
                    |(items, a, b)| json!({ "items": items, "minItems": a, "maxItems": b })
                ),
                prop::collection::vec(inner.clone(), 1..3)
                    .prop_map(|parts| json!({ "anyOf": parts })),
                object(inner.boxed()),
            ]
        })
    }

    fn object(inner: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
        let others = prop_oneof![Just(json!(true)), Just(json!(false)), inner.clone()];
        (
            inner.clone(),
            inner,
            others,
            prop::sample::subsequence(vec!["a", "b"], 0..2),
        )
            .prop_map(|(a, b, others, required)| {
                json!({ "type": "object", "properties": { "a": a, "b": b }, "required": required,
                    "additionalProperties": others })
            })
    }

    fn values() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec![
            "null",
            "true",
            "false",
            "0",
            "-0",
            "1",
            "-2",
            "3",
            "1.0",
            "2.5",
            "1e2",
            "1e400",
            "99999999999999999999",
            "\"\"",
            "\"a\"",
            "\"\\u0061\"",
            "\"é\"",
            "\"abcd\"",
            "\"\\ud83d\\ude00\"",
            "\"\\ud800\"",
            "[]",
            "{}",
        ])
        .prop_map(str::to_owned);
        leaf.prop_recursive(3, 24, 4, |inner| {
            let key = prop::sample::select(vec!["\"a\"", "\"b\"", "\"c\"", "\"d\"", "\"\\u0061\""]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4)
                    .prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::vec((key, inner), 0..4).prop_map(|members| {
                    let members: Vec<_> = members
                        .iter()
                        .map(|(key, value)| format!("{key}: {value}"))
                        .collect();
                    format!("{{{}}}", members.join(" ,"))
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn the_short_way_never_says_anything_else(
            schema in object(schemas().boxed()), draft in prop::sample::select(vec!["2020-12", "draft-07", "draft-04"]),
            a in values(), b in values(), c in proptest::option::of(values()),
        ) {
            let mut schema = schema;
            schema["$schema"] = match draft {
                "2020-12" => json!("https://json-schema.org/draft/2020-12/schema"),
                draft => json!(format!("http://json-schema.org/{draft}/schema#")),
            };
            let Ok(schema) = Schema::build(schema) else { return Ok(()) };
            let c = c.map(|c| format!(",\"c\":{c}")).unwrap_or_default();
            let arguments = format!("{{\"a\":{a},\"b\":{b}{c}}}");
            if schema.surely_fits(arguments.as_bytes()) {
                let exact = Exact::read(arguments.as_bytes()).unwrap();
                prop_assert_eq!(schema.check(&exact), Fit::Fits, "{}", arguments);
            }
        }
    }
}

//! Reading a tool's arguments strictly: what is not known, repeated, of another type or out of
//! bounds is named. Each tool's arguments are a type, and the schema that clients see is derived
//! from it.

use std::fmt;

use colibri_json::nearest;
use colibri_text::brief;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::value::RawValue;

/// The fault of the arguments, in words that a model can act on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArgumentError(pub(super) String);

impl ArgumentError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Reads the arguments of a tool; `None` (no `arguments` at all) counts as an empty object.
///
/// # Errors
/// The first fault of the arguments.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: Option<&'a [u8]>) -> Result<T, ArgumentError> {
    let known = names::<T>();
    let raw = raw.unwrap_or(b"{}");
    if raw.trim_ascii_start().first() != Some(&b'{') {
        return Err(ArgumentError::new("arguments must be a JSON object"));
    }
    let ObjectMembers(members) = serde_json::from_slice(raw).map_err(|error| {
        ArgumentError::new(format!(
            "arguments cannot be read: {}",
            brief(&error.to_string(), 200)
        ))
    })?;
    for (at, (name, _)) in members.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            return Err(unknown(name, &known));
        }
        if members.iter().take(at).any(|(earlier, _)| earlier == name) {
            return Err(ArgumentError::new(format!(
                "argument {name} is given twice"
            )));
        }
    }
    let arguments = ArgumentsDeserializer {
        members: members.iter(),
        value: None,
    };
    T::deserialize(MapAccessDeserializer::new(arguments))
        .map_err(|wrong| ArgumentError(wrong.to_string()))
}

/// The names of a tool's arguments: the fields of its type, which serde hands to a deserializer of
/// structs.
fn names<'a, T: Deserialize<'a>>() -> Vec<&'static str> {
    let mut names = FieldNames(&[]);
    // It reads nothing, so that it fails.
    let _ = T::deserialize(&mut names);
    let mut names = names.0.to_vec();
    names.sort_unstable();
    names
}

/// Learns the fields of a struct, of which it reads nothing.
struct FieldNames(&'static [&'static str]);

impl<'de> Deserializer<'de> for &mut FieldNames {
    type Error = ArgumentFault;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ArgumentFault> {
        self.0 = fields;
        Err(ArgumentFault::unreadable("arguments"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ArgumentFault> {
        Err(ArgumentFault::unreadable("arguments"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The error for an unknown argument: names the nearest known one, or all.
fn unknown(name: &str, known: &[&str]) -> ArgumentError {
    let given = quoted(name);
    ArgumentError::new(match nearest(name, known) {
        Some(nearest) => format!("unknown argument {given}: did you mean {nearest}?"),
        None if known.is_empty() => format!("unknown argument {given}: this tool takes none"),
        None => format!(
            "unknown argument {given}: this tool takes {}",
            known.join(", ")
        ),
    })
}

/// A fault that serde finds in arguments whose names are known.
#[derive(Debug, thiserror::Error)]
enum ArgumentFault {
    #[error("argument {0} is missing")]
    Missing(&'static str),
    /// A value of another kind than the one that is read there.
    #[error("must be {wanted}, not {found}")]
    Kind { wanted: String, found: &'static str },
    #[error("{0}")]
    Value(String),
}

impl ArgumentFault {
    fn unreadable(kind: &str) -> ArgumentFault {
        ArgumentFault::Value(format!("must be {kind}, its value cannot be read as one"))
    }
}

impl serde::de::Error for ArgumentFault {
    fn custom<T: fmt::Display>(message: T) -> ArgumentFault {
        ArgumentFault::Value(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> ArgumentFault {
        let found = match found {
            Unexpected::Str(_) => "a string",
            Unexpected::Map => "an object",
            Unexpected::Seq => "an array",
            Unexpected::Bool(_) => "a boolean",
            Unexpected::Unit => "null",
            _ => "a number",
        };
        let wanted = wanted.to_string();
        ArgumentFault::Kind { wanted, found }
    }

    fn unknown_variant(variant: &str, names: &'static [&'static str]) -> ArgumentFault {
        ArgumentFault::Value(match names {
            [one, other] => format!("must be {one} or {other}, not {}", quoted(variant)),
            _ => format!(
                "must be one of {}, not {}",
                names.join(", "),
                quoted(variant)
            ),
        })
    }

    fn missing_field(name: &'static str) -> ArgumentFault {
        ArgumentFault::Missing(name)
    }
}

/// Arguments, as serde reads them into a tool's type. A fault names the argument that it is about.
struct ArgumentsDeserializer<'m, 'a> {
    members: std::slice::Iter<'m, (String, &'a RawValue)>,
    value: Option<&'m (String, &'a RawValue)>,
}

impl<'a> MapAccess<'a> for ArgumentsDeserializer<'_, 'a> {
    type Error = ArgumentFault;

    fn next_key_seed<K: DeserializeSeed<'a>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ArgumentFault> {
        self.value = self.members.next();
        let name = self
            .value
            .map(|(name, _)| name.as_str().into_deserializer());
        name.map(|name: StrDeserializer<'_, ArgumentFault>| seed.deserialize(name))
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, ArgumentFault> {
        let (name, value) = self
            .value
            .ok_or_else(|| ArgumentFault::custom("arguments cannot be read"))?;
        let read = seed.deserialize(ArgumentText(value.get()));
        read.map_err(|fault| ArgumentFault::Value(format!("argument {name} {fault}")))
    }
}

/// The JSON text of a value within arguments. No argument is read as an object but as its text.
struct ArgumentText<'a>(&'a str);

impl<'de> Deserializer<'de> for ArgumentText<'de> {
    type Error = ArgumentFault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ArgumentFault> {
        match self.0.as_bytes().first() {
            Some(b'"') => visitor.visit_string(self.text()?),
            Some(b'{') => Err(ArgumentFault::invalid_type(Unexpected::Map, &visitor)),
            Some(b'[') => {
                let entries: Vec<&RawValue> = serde_json::from_str(self.0)
                    .map_err(|_| ArgumentFault::unreadable("an array"))?;
                visitor.visit_seq(ArrayEntries(entries.into_iter()))
            }
            Some(b't' | b'f') => visitor.visit_bool(self.0 == "true"),
            Some(b'n') => visitor.visit_unit(),
            _ => match (self.0.parse(), self.0.parse(), self.0.parse::<f64>()) {
                (Ok(number), ..) => visitor.visit_u64(number),
                (_, Ok(number), _) => visitor.visit_i64(number),
                (.., Ok(number)) if number.is_finite() => visitor.visit_f64(number),
                _ => Err(ArgumentFault::unreadable("a number")),
            },
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ArgumentFault> {
        let name = String::deserialize(self)?;
        visitor.visit_enum(name.into_deserializer())
    }

    /// Of serde_json's own types, which are the ones of a value's text.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ArgumentFault> {
        let read =
            serde_json::Deserializer::from_str(self.0).deserialize_newtype_struct(name, visitor);
        read.map_err(|_| ArgumentFault::custom("cannot be read"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

impl ArgumentText<'_> {
    fn text(&self) -> Result<String, ArgumentFault> {
        serde_json::from_str(self.0).map_err(|_| ArgumentFault::unreadable("a string"))
    }
}

/// The entries of an array within arguments.
struct ArrayEntries<'a>(std::vec::IntoIter<&'a RawValue>);

impl<'a> SeqAccess<'a> for ArrayEntries<'a> {
    type Error = ArgumentFault;

    fn next_element_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ArgumentFault> {
        let entry = self
            .0
            .next()
            .map(|entry| seed.deserialize(ArgumentText(entry.get())));
        entry.transpose().map_err(|fault| match fault {
            ArgumentFault::Kind { wanted, .. } => {
                ArgumentFault::Value(format!("holds an entry that is not {wanted}"))
            }
            fault => fault,
        })
    }
}

/// A value for a message: its beginning, in quotation marks, nothing hidden in it.
pub(super) fn quoted(value: &str) -> String {
    format!("\"{}\"", brief(value, 40))
}

/// The arguments of a tool that is called through another.
///
/// # Errors
/// They are no object.
pub(super) fn object(arguments: Option<&RawValue>) -> Result<Option<&[u8]>, ArgumentError> {
    let arguments = arguments.map(|raw| raw.get().as_bytes());
    if arguments.is_some_and(|raw| raw.first() != Some(&b'{')) {
        return Err(ArgumentError(
            "argument arguments must be an object".to_owned(),
        ));
    }
    Ok(arguments)
}

/// An argument that may be left out and, unlike an `Option`, is not null.
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A string of `MIN` to `MAX` characters. Like all of these: also an `Option` that may be left out
/// and is not null.
pub(super) fn name<'de, D, T, const MIN: usize, const MAX: usize>(
    deserializer: D,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<String>,
{
    let text = String::deserialize(deserializer)?;
    let length = text.chars().count();
    if (MIN..=MAX).contains(&length) {
        return Ok(text.into());
    }
    Err(D::Error::custom(format!(
        "has {length} characters, {MIN} to {MAX} are allowed"
    )))
}

/// The same, on one line: no control characters.
pub(super) fn line<'de, D, const MIN: usize, const MAX: usize>(
    deserializer: D,
) -> Result<String, D::Error>
where
    D: Deserializer<'de>,
{
    let text: String = name::<_, _, MIN, MAX>(deserializer)?;
    match text.chars().any(char::is_control) {
        true => Err(D::Error::custom(
            "must be one line without control characters",
        )),
        false => Ok(text),
    }
}

/// The same, that may be left out.
pub(super) fn some_line<'de, D, const MIN: usize, const MAX: usize>(
    deserializer: D,
) -> Result<Option<String>, D::Error>
where
    D: Deserializer<'de>,
{
    line::<D, MIN, MAX>(deserializer).map(Some)
}

/// The same, of several lines: tab, line feed and carriage return are the only control characters.
pub(super) fn text<'de, D, const MIN: usize, const MAX: usize>(
    deserializer: D,
) -> Result<String, D::Error>
where
    D: Deserializer<'de>,
{
    let text: String = name::<_, _, MIN, MAX>(deserializer)?;
    match text
        .chars()
        .any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r'))
    {
        true => Err(D::Error::custom(
            "must have no control characters but tab, LF and CR",
        )),
        false => Ok(text),
    }
}

/// The characters of a label, as a JSON Schema pattern. The code that checks is [`check_label`].
pub(super) const LABEL_PATTERN: &str = "^[A-Za-z0-9._:/@#-]+$";

fn check_label<E: serde::de::Error>(label: &str, max: usize) -> Result<(), E> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._:/@#-".contains(c);
    if !label.is_empty() && label.len() <= max && label.chars().all(legal) {
        return Ok(());
    }
    Err(E::custom(format!(
        "must be 1 to {max} letters, digits or any of . _ : / @ # -, not {}",
        quoted(label)
    )))
}

/// Letters, digits and `._:/@#-`, 1 to `MAX` characters.
pub(super) fn label<'de, D, T, const MAX: usize>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<String>,
{
    let label = String::deserialize(deserializer)?;
    check_label(&label, MAX)?;
    Ok(label.into())
}

/// At most `MOST` different labels of at most `MAX` characters each.
pub(super) fn labels<'de, D, const MOST: usize, const MAX: usize>(
    deserializer: D,
) -> Result<Vec<String>, D::Error>
where
    D: Deserializer<'de>,
{
    let labels = Vec::<String>::deserialize(deserializer)?;
    if labels.len() > MOST {
        return Err(D::Error::custom(format!(
            "has {} entries, at most {MOST} are allowed",
            labels.len()
        )));
    }
    for (at, label) in labels.iter().enumerate() {
        check_label(label, MAX)?;
        if labels[..at].contains(label) {
            return Err(D::Error::custom(format!("names {label} twice")));
        }
    }
    Ok(labels)
}

/// The same, where none and left out are not the same.
pub(super) fn some_labels<'de, D, const MOST: usize, const MAX: usize>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error>
where
    D: Deserializer<'de>,
{
    labels::<D, MOST, MAX>(deserializer).map(Some)
}

/// Any JSON value of at most `MAX` bytes, as it is written.
pub(super) fn bounded<'de, D, const MAX: usize>(deserializer: D) -> Result<Box<RawValue>, D::Error>
where
    D: Deserializer<'de>,
{
    let value = Box::<RawValue>::deserialize(deserializer)?;
    match value.get().len() {
        length if length > MAX => Err(D::Error::custom(format!(
            "has {length} bytes, at most {MAX} are allowed"
        ))),
        _ => Ok(value),
    }
}

/// An integer from `MIN` to `MAX`. As JSON Schema has it, `5.0` is an integer too.
pub(super) fn whole<'de, D, T, const MIN: u32, const MAX: u32>(
    deserializer: D,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<u32>,
{
    let Some(number) = f64::deserialize(deserializer)
        .ok()
        .filter(|number| number.fract() == 0.0)
    else {
        return Err(D::Error::custom("must be an integer"));
    };
    if number < f64::from(MIN) || number > f64::from(MAX) {
        return Err(D::Error::custom(format!("must be from {MIN} to {MAX}")));
    }
    Ok((number as u32).into())
}

/// The members of an object in order, repeated names included, values unread.
pub(super) struct ObjectMembers<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for ObjectMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = ObjectMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(ObjectMembers(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(default, deserialize_with = "line::<_, 1, 3>")]
        title: String,
        #[serde(default, deserialize_with = "labels::<_, 2, 5>")]
        description: Vec<String>,
        #[serde(default, deserialize_with = "whole::<_, _, 1, 100>")]
        limit: Option<u32>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}

    fn read(json: impl AsRef<[u8]>) -> Result<Sample, ArgumentError> {
        super::read(Some(json.as_ref()))
    }

    fn why(json: impl AsRef<[u8]>) -> String {
        read(json).unwrap_err().to_string()
    }

    #[test]
    fn names_the_nearest_known_argument() {
        for (json, wanted) in [
            (
                r#"{"titel":1}"#,
                "unknown argument \"titel\": did you mean title?",
            ),
            (
                r#"{"TITLE":1}"#,
                "unknown argument \"TITLE\": did you mean title?",
            ),
            (
                r#"{"zzzzzzzzzz":1}"#,
                "unknown argument \"zzzzzzzzzz\": this tool takes description, limit, title",
            ),
        ] {
            assert_eq!(why(json), wanted);
        }
        let none = super::read::<Nothing>(Some(b"{\"x\":1}")).unwrap_err();
        assert_eq!(
            none.to_string(),
            "unknown argument \"x\": this tool takes none"
        );
    }

    #[test]
    fn refuses_repeated_names_however_written() {
        assert_eq!(
            why(r#"{"title":"a","titl\u0065":"b"}"#),
            "argument title is given twice"
        );
    }

    #[test]
    fn hides_nothing_of_a_hostile_name() {
        let message = why("{\"\\u202etitle\\u001b[2J\":1}");
        assert!(message.contains("\\u{202e}title\\u{1b}[2J"), "{message}");
    }

    #[test]
    fn refuses_what_is_no_object() {
        for json in [
            "null",
            "[]",
            "1",
            "\"\"",
            "",
            " ",
            "{",
            "{\"title\":}",
            "{} {}",
            "{\"\\ud800\":1}",
        ] {
            assert!(read(json).is_err(), "{json}");
        }
        let deep = format!(
            "{{\"title\":{}{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(why(deep).contains("argument title"));
        assert!(super::read::<Sample>(None).is_ok());
        assert!(read(b"{\"title\":\"\xff\"}").is_err());
    }

    #[test]
    fn checks_types_and_bounds() {
        let is = |json: &str, wanted: &str| {
            let message = why(format!("{{\"limit\":5, \"title\":{json}}}"));
            assert!(
                message.starts_with("argument title ") && message.contains(wanted),
                "{message}"
            );
        };
        is("1", "must be a string, not a number");
        is("null", "must be a string, not null");
        is("{\"a\":1}", "not an object");
        is("[\"a\"]", "must be a string, not an array");
        is("\"\"", "has 0 characters, 1 to 3 are allowed");
        is("\"äöüß\"", "has 4 characters");
        is("\"a\\nb\"", "one line");
        is(
            "\"\\ud800\"",
            "must be a string, its value cannot be read as one",
        );
        is("true", "must be a string, not a boolean");
        let title = read("{\"title\":\"äöü\"}").unwrap().title;
        assert_eq!(title, "äöü");
        for (json, wanted) in [
            ("[1]", "holds an entry that is not a string"),
            ("[[\"a\"]]", "holds an entry that is not a string"),
            ("\"a\"", "must be a sequence, not a string"),
            (
                "[\"a\",\"b\",\"c\"]",
                "has 3 entries, at most 2 are allowed",
            ),
            ("[\"a\",\"a\"]", "names a twice"),
            ("[\"a b\"]", "letters, digits or any of"),
        ] {
            let message = why(format!("{{\"description\":{json},\"title\":\"a\"}}"));
            assert!(
                message.starts_with("argument description ") && message.contains(wanted),
                "{message}"
            );
        }
    }

    #[test]
    fn integers_are_integers() {
        let integer = |json: &str| read(format!("{{\"limit\":{json}}}")).map(|read| read.limit);
        assert_eq!(integer("5"), Ok(Some(5)));
        assert_eq!(integer("5.0"), Ok(Some(5)));
        for bad in [
            "0",
            "101",
            "-1",
            "5.5",
            "1e400",
            "\"5\"",
            "null",
            "true",
            "18446744073709551616",
        ] {
            assert!(integer(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }

        #[test]
        fn only_known_names_pass(names in proptest::collection::vec("[a-z]{1,6}|title|limit", 0..5)) {
            let json = serde_json::Value::from_iter(names.iter().map(|name| (name.clone(), 1))).to_string();
            let all_known = names.iter().all(|name| super::names::<Sample>().contains(&name.as_str()));
            let is_unknown = read(&json).is_err_and(|error| error.to_string().starts_with("unknown argument"));
            prop_assert_eq!(is_unknown, !all_known);
        }
    }
}

//! Reading a tool's arguments strictly: what is not known, repeated, of another type or out of bounds is named.

use colibri_text::{brief, visible};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// What is wrong with the arguments, in words that a model can act on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArgumentError(pub(super) String);

impl ArgumentError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// The members of an arguments object, each value still as written.
#[derive(Debug)]
pub(super) struct Arguments<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Arguments<'a> {
    /// Reads the object; `None` (no `arguments` at all) counts as an empty one. `known` are the argument names of the
    /// tool.
    pub(super) fn read(raw: Option<&'a [u8]>, known: &[&str]) -> Result<Self, ArgumentError> {
        let Some(raw) = raw else {
            return Ok(Self(Vec::new()));
        };
        if raw.trim_ascii_start().first() != Some(&b'{') {
            return Err(ArgumentError::new("arguments must be a JSON object"));
        }
        let Members(members) = serde_json::from_slice(raw)
            .map_err(|e| ArgumentError::new(format!("arguments cannot be read: {}", visible(&e.to_string()))))?;
        for (at, (name, _)) in members.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                return Err(unknown(name, known));
            }
            if members.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(ArgumentError::new(format!("argument {name} is given twice")));
            }
        }
        Ok(Self(members))
    }

    /// The value of an argument, as written.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| *value)
    }

    /// A value of the type that `what` describes.
    fn typed<T: Deserialize<'a>>(&self, name: &str, what: &str) -> Result<Option<T>, ArgumentError> {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        serde_json::from_str(raw.get()).map(Some).map_err(|_| {
            let found = kind(raw.get());
            // The right kind, but with a lone surrogate, out of range, or with other members.
            let why = if what.starts_with(found) {
                "its value cannot be read as one".to_owned()
            } else {
                format!("not {found}")
            };
            ArgumentError::new(format!("argument {name} must be {what}, {why}"))
        })
    }

    /// A string of `min` to `max` characters.
    pub(super) fn string(&self, name: &str, min: usize, max: usize) -> Result<Option<String>, ArgumentError> {
        let Some(value) = self.typed::<String>(name, "a string")? else {
            return Ok(None);
        };
        let length = value.chars().count();
        if (min..=max).contains(&length) {
            Ok(Some(value))
        } else {
            Err(ArgumentError::new(format!(
                "argument {name} has {length} characters, allowed are {min} to {max}"
            )))
        }
    }

    /// Like [`Self::string`], on one line: no control characters.
    pub(super) fn line(&self, name: &str, min: usize, max: usize) -> Result<Option<String>, ArgumentError> {
        let value = self.string(name, min, max)?;
        match &value {
            Some(text) if text.chars().any(char::is_control) => Err(ArgumentError::new(format!(
                "argument {name} must be one line without control characters"
            ))),
            _ => Ok(value),
        }
    }

    /// Like [`Self::string`], of several lines: tab, line feed and carriage return are the only control characters.
    pub(super) fn text(&self, name: &str, min: usize, max: usize) -> Result<Option<String>, ArgumentError> {
        let value = self.string(name, min, max)?;
        match &value {
            Some(text) if text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) => Err(
                ArgumentError::new(format!("argument {name} must be plain text without control characters")),
            ),
            _ => Ok(value),
        }
    }

    /// An integer from `min` to `max`. As JSON Schema has it, `5.0` is an integer too.
    pub(super) fn integer(&self, name: &str, min: u32, max: u32) -> Result<Option<u32>, ArgumentError> {
        let Some(number) = self.typed::<f64>(name, "an integer")? else {
            return Ok(None);
        };
        if number.fract() != 0.0 {
            return Err(ArgumentError::new(format!("argument {name} must be an integer")));
        }
        if number < f64::from(min) || number > f64::from(max) {
            return Err(ArgumentError::new(format!(
                "argument {name} must be from {min} to {max}"
            )));
        }
        Ok(Some(number as u32))
    }

    /// One of `allowed`.
    pub(super) fn choice<T: Copy>(&self, name: &str, allowed: &[(&str, T)]) -> Result<Option<T>, ArgumentError> {
        let names = || allowed.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let Some(value) = self.typed::<String>(name, "a string")? else {
            return Ok(None);
        };
        allowed
            .iter()
            .find(|(known, _)| *known == value)
            .map(|(_, chosen)| Some(*chosen))
            .ok_or_else(|| {
                ArgumentError::new(format!(
                    "argument {name} must be one of {}, not {}",
                    names().join(", "),
                    quoted(&value)
                ))
            })
    }

    /// At most `most` different labels of at most `max` characters each.
    pub(super) fn labels(&self, name: &str, most: usize, max: usize) -> Result<Vec<String>, ArgumentError> {
        let labels = self
            .typed::<Vec<String>>(name, "an array of strings")?
            .unwrap_or_default();
        if labels.len() > most {
            return Err(ArgumentError::new(format!(
                "argument {name} has {} entries, allowed are {most}",
                labels.len()
            )));
        }
        for (at, value) in labels.iter().enumerate() {
            check_label(&format!("{name}[{at}]"), value, max)?;
            if labels.iter().take(at).any(|earlier| earlier == value) {
                return Err(ArgumentError::new(format!("argument {name} names {value} twice")));
            }
        }
        Ok(labels)
    }

    /// A label: letters, digits and `._:/@#-`, 1 to `max` characters.
    pub(super) fn label(&self, name: &str, max: usize) -> Result<Option<String>, ArgumentError> {
        let value = self.typed::<String>(name, "a string")?;
        if let Some(value) = &value {
            check_label(name, value, max)?;
        }
        Ok(value)
    }
}

/// The characters of a label, as a JSON Schema pattern. The code that checks is [`check_label`].
pub(super) const LABEL_PATTERN: &str = "^[A-Za-z0-9._:/@#-]+$";

fn check_label(name: &str, value: &str, max: usize) -> Result<(), ArgumentError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._:/@#-".contains(c);
    if !value.is_empty() && value.len() <= max && value.chars().all(legal) {
        return Ok(());
    }
    Err(ArgumentError::new(format!(
        "argument {name} must be 1 to {max} letters, digits or any of . _ : / @ # -, not {}",
        quoted(value)
    )))
}

/// An argument that the tool needs.
pub(super) fn required<T>(name: &str, value: Option<T>) -> Result<T, ArgumentError> {
    value.ok_or_else(|| ArgumentError::new(format!("argument {name} is missing")))
}

/// The error for an unknown argument: names the nearest known one, or all.
fn unknown(name: &str, known: &[&str]) -> ArgumentError {
    let given = quoted(name);
    let nearest = known
        .iter()
        .map(|k| (distance(name, k), k))
        .min()
        .filter(|(d, k)| *d <= k.len() / 2);
    ArgumentError::new(match nearest {
        Some((_, nearest)) => format!("unknown argument {given}: did you mean {nearest}?"),
        None if known.is_empty() => format!("unknown argument {given}: this tool takes none"),
        None => format!("unknown argument {given}: this tool takes {}", known.join(", ")),
    })
}

/// Edit distance (Levenshtein) in characters, ignoring ASCII case; of the first 64 characters, which is more than any
/// known name has.
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|s| s.chars().take(64).map(|c| c.to_ascii_lowercase()).collect::<Vec<_>>());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (y, above) in b.iter().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// What kind of JSON value this text is.
fn kind(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// A value for a message: its beginning, in quotation marks, nothing hidden in it.
pub(super) fn quoted(value: &str) -> String {
    format!("\"{}\"", brief(value, 40))
}

/// The members of an object in order, repeated names included, values unread.
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn why<T: fmt::Debug>(result: Result<T, ArgumentError>) -> String {
        result.unwrap_err().to_string()
    }

    fn read(json: &str) -> Result<Arguments<'_>, ArgumentError> {
        Arguments::read(Some(json.as_bytes()), &["title", "description", "limit"])
    }

    #[test]
    fn names_the_nearest_known_argument() {
        assert_eq!(
            why(read(r#"{"titel":1}"#)),
            "unknown argument \"titel\": did you mean title?"
        );
        assert_eq!(
            why(read(r#"{"TITLE":1}"#)),
            "unknown argument \"TITLE\": did you mean title?"
        );
        assert_eq!(
            why(read(r#"{"zzzzzzzzzz":1}"#)),
            "unknown argument \"zzzzzzzzzz\": this tool takes title, description, limit"
        );
        assert_eq!(
            why(Arguments::read(Some(b"{\"x\":1}"), &[])),
            "unknown argument \"x\": this tool takes none"
        );
    }

    #[test]
    fn refuses_repeated_names_however_written() {
        assert_eq!(
            why(read(r#"{"title":"a","titl\u0065":"b"}"#)),
            "argument title is given twice"
        );
    }

    #[test]
    fn hides_nothing_of_a_hostile_name() {
        let message = why(read("{\"\\u202etitle\\u001b[2J\":1}"));
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
        let deep = format!("{{\"title\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let deep = read(&deep).unwrap();
        assert!(why(deep.string("title", 1, 5)).contains("must be a string"));
        assert!(Arguments::read(None, &[]).is_ok());
        assert!(
            Arguments::read(Some(b"{\"title\":\"\xff\"}"), &["title"])
                .and_then(|a| a.string("title", 0, 9))
                .is_err()
        );
    }

    #[test]
    fn checks_types_and_bounds() {
        let is = |json: &str, wanted: &str| {
            let json = format!("{{\"title\":{json}}}");
            let arguments = read(&json).unwrap();
            let message = why(arguments.line("title", 1, 3));
            assert!(message.contains(wanted), "{message}");
        };
        is("1", "must be a string, not a number");
        is("null", "must be a string, not null");
        is("[\"a\"]", "not an array");
        is("\"\"", "has 0 characters, allowed are 1 to 3");
        is("\"äöüß\"", "has 4 characters");
        is("\"a\\nb\"", "one line");
        is("\"\\ud800\"", "must be a string, its value cannot be read as one");
        assert_eq!(
            read("{\"title\":\"äöü\"}").unwrap().line("title", 1, 3),
            Ok(Some("äöü".to_owned()))
        );
    }

    #[test]
    fn integers_are_integers() {
        let integer = |json: &str| {
            let json = format!("{{\"limit\":{json}}}");
            read(&json).unwrap().integer("limit", 1, 100)
        };
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
            if let Ok(arguments) = Arguments::read(Some(&bytes), &["title"]) {
                let _ = arguments.text("title", 0, 10);
            }
        }

        #[test]
        fn only_known_names_pass(names in proptest::collection::vec("[a-z]{1,6}|title|limit", 0..5)) {
            let json = serde_json::Value::from_iter(names.iter().map(|name| (name.clone(), 1))).to_string();
            let all_known = names.iter().all(|name| ["title", "description", "limit"].contains(&name.as_str()));
            prop_assert_eq!(read(&json).is_ok(), all_known);
        }
    }
}

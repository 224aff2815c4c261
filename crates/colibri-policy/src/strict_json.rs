//! A strict reader of arguments: it reads a value exactly or not at all.
//!
//! A checker that sees other arguments than the server does checks nothing: of two equal keys one
//! reader takes the first and another the last, a large number loses digits, a lone surrogate
//! becomes U+FFFD. What two readers could see differently is therefore not represented here; the
//! caller decides what that means for the call.

use std::collections::HashSet;

use colibri_json::{HALF_SURROGATE, JsonFault, JsonReader, PathStep, ValueKind};
use colibri_text::brief;
use serde_json::{Map, Number, Value};

/// The deepest nesting of arguments.
pub(super) const MAX_DEPTH: usize = 128;

/// The most bytes of arguments that are read: reading is done between two calls of other clients.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// The name of the whole where a place is named.
const TOP: &str = "the top level";

/// The most values (and keys) of arguments that are read.
const MAX_VALUES: usize = 100_000;

/// Arguments that could be read exactly.
#[derive(Debug, Clone, PartialEq)]
pub struct Exact {
    /// The arguments.
    pub value: Value,
    /// The units on each level, from 0: one for each value, key, and 16 bytes of text.
    pub(super) levels: Vec<u64>,
}

/// The reason for which arguments cannot be read exactly, and the place: a JSON pointer (RFC 6901),
/// shortened, with unusual characters escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why} at {at}")]
pub struct Inexact {
    /// The place.
    pub at: String,
    /// The fault.
    pub why: &'static str,
}

impl Exact {
    /// Reads arguments.
    ///
    /// # Errors
    /// Not a JSON object; a number that neither `i64`, `u64` nor (with at most 17 digits) `f64`
    /// holds; the same key twice in an object; a lone surrogate; more than 128 levels, 4 MiB or a
    /// hundred thousand values.
    pub fn read(arguments: &[u8]) -> Result<Exact, Inexact> {
        let whole = |why| {
            Err(Inexact {
                at: TOP.to_owned(),
                why,
            })
        };
        if arguments.len() > MAX_BYTES {
            return whole("more than 4 MiB");
        }
        let Ok(text) = std::str::from_utf8(arguments) else {
            return whole("text that is not UTF-8");
        };
        let mut reader = JsonReader::new(text, MAX_DEPTH + 1, TOO_DEEP);
        if reader.kind() != Ok(ValueKind::Object) {
            return whole("something other than an object");
        }
        let mut count = LevelCounts::default();
        let value = value(&mut reader, &mut count, 0).map_err(|fault| Inexact {
            at: shown_pointer(&pointer(&fault.steps)),
            why: fault.why,
        })?;
        if reader.end().is_err() {
            return whole("more than one value");
        }
        Ok(Exact {
            value,
            levels: count.levels,
        })
    }

    /// The first place with two keys in one object that some reader could take for one, although
    /// they differ: readers without regard to case exist (Go's encoding/json), and so do such as
    /// drop a NUL or fold compatibility forms.
    pub fn ambiguous(&self) -> Option<String> {
        let mut pointer = Vec::new();
        find_ambiguous(&self.value, &mut pointer).then(|| shown_pointer(&pointer.concat()))
    }
}

fn find_ambiguous(value: &Value, pointer: &mut Vec<String>) -> bool {
    let mut inside = |step: String, value: &Value| {
        pointer.push(step);
        let found = find_ambiguous(value, pointer);
        if !found {
            pointer.pop();
        }
        found
    };
    match value {
        Value::Object(map) => {
            let mut seen = HashSet::new();
            if let Some(key) = map.keys().find(|key| !seen.insert(fold(key))) {
                pointer.push(step(key));
                return true;
            }
            map.iter().any(|(key, value)| inside(step(key), value))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .any(|(index, value)| inside(format!("/{index}"), value)),
        _ => false,
    }
}

fn step(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}

const BROKEN: &str = "something that is not JSON";
const TOO_DEEP: &str = "more than 128 levels";
const TOO_LARGE: &str = "a number beyond 64 bits or 17 digits";

/// The units read so far, by levels.
#[derive(Default)]
struct LevelCounts {
    values: usize,
    levels: Vec<u64>,
}

impl LevelCounts {
    /// Counts a value or key of so many bytes of text.
    fn add(&mut self, depth: usize, bytes: usize) -> Result<(), JsonFault> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(because("more than 100000 values"));
        }
        if self.levels.len() <= depth {
            self.levels.resize(depth + 1, 0);
        }
        self.levels[depth] += 1 + bytes as u64 / 16;
        Ok(())
    }
}

fn because(why: &'static str) -> JsonFault {
    JsonFault {
        at: 0,
        why,
        steps: Vec::new(),
    }
}

/// The reader's fault, in words about arguments.
fn inexact(fault: JsonFault) -> JsonFault {
    let why = match fault.why {
        TOO_DEEP => TOO_DEEP,
        HALF_SURROGATE => "text with a lone surrogate or a broken escape",
        _ => BROKEN,
    };
    JsonFault { why, ..fault }
}

fn value(
    reader: &mut JsonReader<'_>,
    count: &mut LevelCounts,
    depth: usize,
) -> Result<Value, JsonFault> {
    let kind = reader.kind().map_err(inexact)?;
    if depth > MAX_DEPTH {
        return Err(because(TOO_DEEP));
    }
    let start = reader.at();
    let value = match kind {
        ValueKind::Null => reader.null().map(|()| Value::Null).map_err(inexact)?,
        ValueKind::Bool => Value::Bool(reader.boolean().map_err(inexact)?),
        ValueKind::Number => Value::Number(number(reader).ok_or_else(|| because(TOO_LARGE))?),
        ValueKind::String => Value::String(reader.string().map_err(inexact)?.into_owned()),
        ValueKind::Array => elements(reader, count, depth)?,
        ValueKind::Object => members(reader, count, depth)?,
    };
    let bytes = if value.is_string() {
        reader.at() - start
    } else {
        0
    };
    count.add(depth, bytes)?;
    Ok(value)
}

fn members(
    reader: &mut JsonReader<'_>,
    count: &mut LevelCounts,
    depth: usize,
) -> Result<Value, JsonFault> {
    let mut map = Map::new();
    reader.enter().map_err(inexact)?;
    while let Some((_, key)) = reader.key(map.is_empty()).map_err(inexact)? {
        let in_key = |fault: JsonFault| fault.in_key(&key);
        // A key is looked at where its object is (names of properties), and is a value one level
        // below.
        count.add(depth, key.len()).map_err(in_key)?;
        if map.contains_key(&*key) {
            return Err(in_key(because("a key that stands twice in its object")));
        }
        reader.colon().map_err(inexact).map_err(in_key)?;
        let value = value(reader, count, depth + 1).map_err(in_key)?;
        map.insert(key.into_owned(), value);
    }
    Ok(Value::Object(map))
}

fn elements(
    reader: &mut JsonReader<'_>,
    count: &mut LevelCounts,
    depth: usize,
) -> Result<Value, JsonFault> {
    let mut items = Vec::new();
    reader.enter().map_err(inexact)?;
    while reader.element(items.is_empty()).map_err(inexact)? {
        let index = items.len();
        items.push(value(reader, count, depth + 1).map_err(|fault| fault.in_element(index))?);
    }
    Ok(Value::Array(items))
}

/// A number that can be held exactly.
fn number(reader: &mut JsonReader<'_>) -> Option<Number> {
    let literal = reader.number().ok()?;
    let number: Number = serde_json::from_str(literal).ok()?;
    if number.is_i64() || number.is_u64() {
        return Some(number);
    }
    let mantissa = literal.split(['e', 'E']).next().unwrap_or_default();
    let integer = mantissa.len() == literal.len() && !literal.contains('.');
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_matches('0');
    let zero = number.as_f64() == Some(0.0);
    // An integer that no integer type holds would be rounded; the one exception is -0.
    let rounded = integer && !zero || digits.len() > 17 || (zero && !digits.is_empty());
    (!rounded).then_some(number)
}

/// The JSON pointer (RFC 6901) of a place.
fn pointer(steps: &[PathStep]) -> String {
    let steps = steps.iter().rev();
    steps
        .map(|at| match at {
            PathStep::Key(key) => step(key),
            PathStep::Index(index) => format!("/{index}"),
        })
        .collect()
}

/// A pointer as messages show it.
pub(super) fn shown_pointer(pointer: &str) -> String {
    if pointer.is_empty() {
        return TOP.to_owned();
    }
    brief(pointer, 160)
}

/// True if some readers take one key for the other, although they differ.
pub(super) fn look_alike(one: &str, other: &str) -> bool {
    one != other && fold(one) == fold(other)
}

/// A key as readers without regard to case, compatibility forms or NUL see it.
fn fold(key: &str) -> String {
    if key.is_ascii() {
        return key
            .bytes()
            .filter(|byte| *byte != 0)
            .map(|byte| byte.to_ascii_lowercase() as char)
            .collect();
    }
    colibri_wire::keys::fold(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Exact, Inexact> {
        Exact::read(text.as_bytes())
    }

    #[test]
    fn reads_what_it_can_hold() {
        let exact = read(r#" { "a" : [1, -2, 18446744073709551615, 0.30000000000000004, 1e300, -0, 0.0],"b":{"c":"\u00e4\ud83d\ude00"},"d":null,"e":[],"f":{} } "#).unwrap();
        assert_eq!(exact.value["a"][2], json!(u64::MAX));
        assert_eq!(exact.value["b"]["c"], json!("ä😀"));
        assert_eq!(exact.value["a"][3], json!(0.30000000000000004));
        assert_eq!(exact.ambiguous(), None);
        assert_eq!(exact.levels.len(), 3);
    }

    #[test]
    fn refuses_what_two_readers_could_see_differently() {
        for (text, at, why) in [
            (r#"{"a":1,"a":2}"#, "/a", "twice"),
            (r#"{"x":[{"a":1,"\u0061":2}]}"#, "/x/0/a", "twice"),
            (
                r#"{"a":{"n":18446744073709551616}}"#,
                "/a/n",
                "beyond 64 bits",
            ),
            (r#"{"n":-9223372036854775809}"#, "/n", "beyond 64 bits"),
            (r#"{"n":1e400}"#, "/n", "beyond"),
            (r#"{"n":1e-400}"#, "/n", "beyond"),
            (r#"{"n":0.1234567890123456789}"#, "/n", "17 digits"),
            (r#"{"s":"\ud800"}"#, "/s", "lone surrogate"),
            (r#"{"\ud800":1}"#, TOP, "lone surrogate"),
            (r#"[1]"#, TOP, "other than an object"),
            ("\"x\"", TOP, "other than an object"),
            ("", TOP, "other than an object"),
            ("{} {}", TOP, "more than one"),
            ("{\"a\":tru}", "/a", "not JSON"),
            ("{\"a\":01}", "/a", "beyond"),
            ("{\"a\" 1}", "/a", "not JSON"),
            ("{\"a", TOP, "not JSON"),
            ("{\"a\\", TOP, "not JSON"),
        ] {
            let inexact = read(text).unwrap_err();
            assert_eq!(inexact.at, at, "{text}");
            assert!(inexact.why.contains(why), "{text}: {inexact}");
        }
        assert!(Exact::read(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn depth_size_and_number_of_values_are_bounded() {
        let nested =
            |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(&nested(127)).is_ok());
        assert!(read(&nested(128)).unwrap_err().why.contains("128 levels"));
        assert!(read(&nested(100_000)).unwrap_err().at.len() < 300);
        let many = format!("{{\"a\":[{}1]}}", "1,".repeat(MAX_VALUES));
        assert!(read(&many).unwrap_err().why.contains("100000"));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_BYTES));
        assert!(read(&long).unwrap_err().why.contains("4 MiB"));
    }

    #[test]
    fn keys_that_only_look_different_are_remembered() {
        for text in [
            r#"{"branch":1,"Branch":2}"#,
            r#"{"x":{"branch":1,"branch\u0000":2}}"#,
            r#"{"force":1,"ſorce":2,"forſe":1,"forse":2}"#,
            r#"{"branch":1,"\uff42ranch":2}"#,
            r#"{"a":[{"x":1},{"x":1,"X":2}]}"#,
        ] {
            assert!(read(text).unwrap().ambiguous().is_some(), "{text}");
        }
        assert_eq!(
            read(r#"{"a":{"b":1},"b":{"a":1}}"#).unwrap().ambiguous(),
            None
        );
    }

    #[test]
    fn places_show_no_control_characters() {
        let inexact = read("{\"\\u001b[2Ja\u{202e}\":1e999}").unwrap_err();
        assert!(
            !inexact.at.contains('\u{1b}') && !inexact.at.contains('\u{202e}'),
            "{inexact}"
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("finite", |n| n.is_finite())
                .prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(value in value()) {
            let whole = json!({ "a": value });
            prop_assert_eq!(read(&whole.to_string()).unwrap().value, whole);
        }

        #[test]
        fn agrees_with_serde_where_it_reads_at_all(text in r#"[{}\[\]",:a0-9.eE\-\\u ]{0,24}"#) {
            let text = format!("{{\"a\":{text}}}");
            if let Ok(exact) = read(&text) {
                prop_assert_eq!(Some(exact.value), serde_json::from_str::<Value>(&text).ok());
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Exact::read(&bytes);
        }
    }
}

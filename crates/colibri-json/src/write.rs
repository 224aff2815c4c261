//! JSON output.

use colibri_text::push_json_string;

/// Writes one JSON value. Hidden characters, and those that change the direction of text, are
/// escaped ([`push_json_string`]).
#[derive(Debug, Default)]
pub struct JsonWriter {
    out: Vec<u8>,
    /// The current level of nesting, if each value gets a line of its own.
    indent: Option<usize>,
    /// True if a value precedes the next one in its object or array.
    follows: bool,
}

impl JsonWriter {
    /// A writer of compact JSON on one line.
    #[must_use]
    pub fn new() -> JsonWriter {
        JsonWriter::default()
    }

    /// A writer of indented JSON for people, with one value per line.
    #[must_use]
    pub fn pretty() -> JsonWriter {
        JsonWriter {
            indent: Some(0),
            ..JsonWriter::default()
        }
    }

    /// An object; `members` writes each member as [`JsonWriter::key`] and a value.
    pub fn object(&mut self, members: impl FnOnce(&mut JsonWriter)) {
        self.nested(b'{', members, b'}');
    }

    /// An array; `elements` writes its values.
    pub fn array(&mut self, elements: impl FnOnce(&mut JsonWriter)) {
        self.nested(b'[', elements, b']');
    }

    fn nested(&mut self, open: u8, inside: impl FnOnce(&mut JsonWriter), close: u8) {
        self.next();
        self.out.push(open);
        self.follows = false;
        self.indent = self.indent.map(|levels| levels + 1);
        inside(self);
        self.indent = self.indent.map(|levels| levels - 1);
        if self.follows {
            self.line();
        }
        self.out.push(close);
        self.follows = true;
    }

    /// The key of the value that is written next.
    pub fn key(&mut self, key: &str) -> &mut JsonWriter {
        self.next();
        push_json_string(&mut self.out, key);
        self.out.push(b':');
        if self.indent.is_some() {
            self.out.push(b' ');
        }
        self.follows = false;
        self
    }

    /// A string.
    pub fn string(&mut self, value: &str) {
        self.next();
        push_json_string(&mut self.out, value);
        self.follows = true;
    }

    /// A number.
    pub fn number(&mut self, value: impl Into<u64>) {
        self.raw(&value.into().to_string());
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, value: bool) {
        self.raw(if value { "true" } else { "false" });
    }

    /// `null`.
    pub fn null(&mut self) {
        self.raw("null");
    }

    /// A value that is JSON already.
    pub fn raw(&mut self, json: &str) {
        self.next();
        self.out.extend_from_slice(json.as_bytes());
        self.follows = true;
    }

    /// The written JSON.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Writes the separator between the value before and the next one.
    fn next(&mut self) {
        if self.out.last() == Some(&b':') || self.out.ends_with(b": ") {
            return;
        }
        if self.follows {
            self.out.push(b',');
        }
        if !self.out.is_empty() {
            self.line();
        }
    }

    fn line(&mut self) {
        if let Some(levels) = self.indent {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + 2 * levels, b' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn write(writer: &mut JsonWriter, value: &Value) {
        match value {
            Value::Null => writer.null(),
            Value::Bool(value) => writer.boolean(*value),
            Value::Number(number) => match number.as_u64() {
                Some(number) => writer.number(number),
                None => writer.raw(&number.to_string()),
            },
            Value::String(value) => writer.string(value),
            Value::Array(items) => {
                writer.array(|writer| items.iter().for_each(|item| write(writer, item)))
            }
            Value::Object(members) => writer.object(|writer| {
                for (key, value) in members {
                    write(writer.key(key), value);
                }
            }),
        }
    }

    #[test]
    fn stands_as_serde_json_has_it() {
        let value = json!({ "a": [1, "x", { "b: ": null, "e": {} }, []], "c": ": ", "d": [": ", ":", true] });
        let mut compact = JsonWriter::new();
        write(&mut compact, &value);
        assert_eq!(
            String::from_utf8(compact.into_bytes()).unwrap(),
            value.to_string()
        );
        let mut pretty = JsonWriter::pretty();
        write(&mut pretty, &value);
        let wanted = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(String::from_utf8(pretty.into_bytes()).unwrap(), wanted);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in crate::document::tests::json(), pretty in any::<bool>()) {
            let mut writer = if pretty { JsonWriter::pretty() } else { JsonWriter::new() };
            write(&mut writer, &value);
            let text = String::from_utf8(writer.into_bytes()).unwrap();
            prop_assert!(!text.contains(|c| colibri_text::is_hidden(c) && c != '\n'));
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }
}

//! Files that a person owns, changed in place: settings of editors, the registry. What is not to be
//! changed stays as it was, byte for byte: comments, order, indentation.
//!
//! This is the text alone; files are the program's.

mod json;
mod toml;

#[cfg(test)]
mod tests;

/// A value to write, whose members keep their order. `jsonc_parser::json!` makes them.
pub use jsonc_parser::cst::CstInputValue as Value;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// JSON, with comments and trailing commas where there are some.
    Json,
    /// TOML.
    Toml,
}

/// The fault of a text, and its place: line and column count from 1; 0 where the whole is meant.
#[derive(Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
    /// The fault, for people.
    pub why: String,
}

impl TextError {
    fn of_the_whole(why: impl Into<String>) -> TextError {
        TextError {
            line: 0,
            column: 0,
            why: why.into(),
        }
    }
}

impl FileFormat {
    /// The value at the end of `keys`, if there is one.
    ///
    /// # Errors
    /// The text is not of this kind.
    pub fn get(self, text: &str, keys: &[&str]) -> Result<Option<serde_json::Value>, TextError> {
        match self {
            FileFormat::Json => json::get(text, keys),
            FileFormat::Toml => toml::get(text, keys),
        }
    }

    /// The text with `value` at the end of `keys`; what is missing on the way there is made. A
    /// value that is there already stays as it is written.
    ///
    /// # Errors
    /// The text is not of this kind, or something on the way is not an object.
    pub fn set(self, text: &str, keys: &[&str], value: &Value) -> Result<String, TextError> {
        if self.get(text, keys)?.as_ref() == Some(&plain(value)) {
            return Ok(text.to_owned());
        }
        match self {
            FileFormat::Json => json::set(text, keys, value),
            FileFormat::Toml => toml::set(text, keys, value),
        }
    }

    /// The text without what is at the end of `keys`, and without the objects on the way that are
    /// empty then, unless a comment is in one.
    ///
    /// # Errors
    /// The text is not of this kind.
    pub fn remove(self, text: &str, keys: &[&str]) -> Result<String, TextError> {
        if self.get(text, keys)?.is_none() {
            return Ok(text.to_owned());
        }
        match self {
            FileFormat::Json => json::remove(text, keys),
            FileFormat::Toml => toml::remove(text, keys),
        }
    }

    /// True if two texts differ in nothing but layout and the value at the end of `keys`. Text of
    /// another kind is like no other.
    pub fn differ_only_at(self, one: &str, other: &str, keys: &[&str]) -> bool {
        // Setting and removing takes the layout of both to the same.
        let laid_out = |text: &str| {
            let set = self.set(text, keys, &Value::Bool(true));
            set.and_then(|text| self.remove(&text, keys)).ok()
        };
        laid_out(one).is_some_and(|one| laid_out(other) == Some(one))
    }
}

/// A value that was read, to be written elsewhere.
pub fn writable(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => Value::Number(number.to_string()),
        serde_json::Value::String(text) => Value::String(text.clone()),
        serde_json::Value::Array(values) => Value::Array(values.iter().map(writable).collect()),
        serde_json::Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| (key.clone(), writable(value)));
            Value::Object(members.collect())
        }
    }
}

/// A value that a program made, to write.
pub fn to_write(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => Value::Number(number.to_string()),
        serde_json::Value::String(text) => Value::String(text.clone()),
        serde_json::Value::Array(values) => Value::Array(values.iter().map(to_write).collect()),
        serde_json::Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| (key.clone(), to_write(value)));
            Value::Object(members.collect())
        }
    }
}

/// The value, as programs compare it.
fn plain(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(digits) => serde_json::from_str(digits).unwrap_or_default(),
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => values.iter().map(plain).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (key.clone(), plain(value)))
            .collect(),
    }
}

//! The places of rules: file, line and key.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use colibri_json::{DocumentError, Object, ValueCursor};
use colibri_text::Pattern;

/// The place of a rule, such as `/usr/local/etc/colibri/clients.json:12: users.op.gates`.
///
/// It is made when the file is read; a clone allocates nothing. Two places are equal if file and
/// key are: a rule that moved to another line is the same rule.
#[derive(Clone, Default)]
pub struct RulePlace(Arc<PlaceParts>);

#[derive(Default)]
struct PlaceParts {
    /// Empty: the rule stands in no file.
    file: Box<str>,
    key: Box<str>,
    /// From 1; 0: the rule stands on no line.
    line: AtomicU32,
}

impl RulePlace {
    /// The place of a rule that stands in no file, such as `gate:write`.
    pub fn outside_files(rule: &str) -> RulePlace {
        RulePlace::new("", 0, rule)
    }

    /// The place of a key that a file does not have.
    pub(crate) fn in_file(file: &str, key: &str) -> RulePlace {
        RulePlace::new(file, 0, key)
    }

    /// The place of a value.
    pub fn of_value(cursor: &ValueCursor<'_>) -> RulePlace {
        RulePlace::new(cursor.file(), cursor.line(), cursor.path())
    }

    /// The place of a key of an object. A key that the file does not have is on the line of its
    /// object; at the top of the file it is on none.
    pub fn of_key(keys: &Object<'_>, key: &str) -> RulePlace {
        match keys.get(key) {
            Some(value) => RulePlace::of_value(value),
            None => {
                let owner = keys.owner();
                let line = if owner.path().is_empty() {
                    0
                } else {
                    owner.line()
                };
                RulePlace::of_part(owner, line, key)
            }
        }
    }

    /// The place of a part of a value on this line, such as one of the patterns of a list.
    pub(crate) fn of_part(owner: &ValueCursor<'_>, line: usize, part: &str) -> RulePlace {
        let key = match owner.path() {
            "" => part.to_owned(),
            path => format!("{path}.{part}"),
        };
        RulePlace::new(owner.file(), line, &key)
    }

    fn new(file: &str, line: usize, key: &str) -> RulePlace {
        RulePlace(Arc::new(PlaceParts {
            file: file.into(),
            key: key.into(),
            line: AtomicU32::new(line.try_into().unwrap_or_default()),
        }))
    }

    /// The place of a key or part below this one, on the same line.
    pub(crate) fn below(&self, key: &str) -> RulePlace {
        let line = self.0.line.load(Ordering::Relaxed);
        RulePlace::new(
            &self.0.file,
            line as usize,
            &format!("{}.{key}", self.0.key),
        )
    }

    /// Takes over the line of the same rule in a file that was read again. Every clone of this
    /// place has it then.
    pub fn follow(&self, newer: &RulePlace) {
        let line = newer.0.line.load(Ordering::Relaxed);
        self.0.line.store(line, Ordering::Relaxed);
    }
}

impl PartialEq for RulePlace {
    fn eq(&self, other: &RulePlace) -> bool {
        (&self.0.file, &self.0.key) == (&other.0.file, &other.0.key)
    }
}

impl Eq for RulePlace {}

impl From<&DocumentError> for RulePlace {
    fn from(fault: &DocumentError) -> RulePlace {
        RulePlace::new(&fault.file, fault.line, &fault.path)
    }
}

impl fmt::Display for RulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlaceParts { file, key, line } = &*self.0;
        match (&**file, line.load(Ordering::Relaxed)) {
            ("", _) => f.write_str(key),
            (file, 0) => write!(f, "{file}: {key}"),
            (file, line) => write!(f, "{file}:{line}: {key}"),
        }
    }
}

impl fmt::Debug for RulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RulePlace({self})")
    }
}

/// A pattern, and its place in the file.
///
/// Two of them are equal if their patterns are: an entry that moved in its file is the same.
#[derive(Debug, Clone)]
pub struct PlacedPattern {
    /// The pattern.
    pub pattern: Pattern,
    /// Its place.
    pub place: RulePlace,
}

impl PartialEq for PlacedPattern {
    fn eq(&self, other: &PlacedPattern) -> bool {
        self.pattern == other.pattern
    }
}

impl PartialEq<Pattern> for PlacedPattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.pattern == *other
    }
}

/// The first pattern of a list that fits a name.
pub(crate) fn first_fit<'l>(list: &'l [PlacedPattern], name: &str) -> Option<&'l PlacedPattern> {
    list.iter().find(|placed| placed.pattern.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_json::Document;

    #[test]
    fn a_place_is_file_line_and_key() {
        let text = "{\n \"a\": {\n  \"deny\": [\n   \"x\",\n   \"y\"]}}";
        let document = Document::parse(text.as_bytes(), "f.json").unwrap();
        let root = document.root().object(&["a", "b"]).unwrap();
        let a = root.need("a").unwrap().object(&["deny"]).unwrap();
        let items = a.need("deny").unwrap().array().unwrap();
        for (place, text) in [
            (RulePlace::of_value(&items[1]), "f.json:5: a.deny[1]"),
            (RulePlace::of_key(&a, "deny"), "f.json:3: a.deny"),
            (RulePlace::of_key(&a, "allow"), "f.json:2: a.allow"),
            (RulePlace::of_key(&root, "b"), "f.json: b"),
            (RulePlace::outside_files("gate:write"), "gate:write"),
            (
                RulePlace::of_key(&a, "deny").below("x"),
                "f.json:3: a.deny.x",
            ),
        ] {
            assert_eq!(place.to_string(), text);
        }
    }

    #[test]
    fn a_rule_that_moved_is_the_same_and_its_clones_follow() {
        let old = RulePlace::new("f.json", 3, "a.deny[0]");
        let clone = old.clone();
        let newer = RulePlace::new("f.json", 7, "a.deny[0]");
        assert_eq!(old, newer);
        old.follow(&newer);
        assert_eq!(clone.to_string(), "f.json:7: a.deny[0]");
        assert_ne!(old, RulePlace::new("f.json", 3, "a.deny[1]"));
    }
}

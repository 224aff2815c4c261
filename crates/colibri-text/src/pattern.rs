//! Patterns on names: `*` stands for any run of characters, everything else for itself.

use std::fmt;

use crate::brief;

/// The most characters of a pattern in a message.
const MAX_SHOWN: usize = 100;

/// A pattern such as `get_*`. Matching takes time in proportion to pattern × name at worst and
/// never recurses, so that a name from a hostile server cannot make it slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern, as written in a file.
    pub fn new(text: impl Into<String>) -> Pattern {
        Pattern(text.into())
    }

    /// As written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the whole name fits. Names are compared byte by byte: case, and characters that only
    /// look alike, differ.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut p, mut n) = (0, 0);
        // Where to go on after a mismatch: behind the last star, with one more byte of the name
        // given to it.
        let mut back: Option<(usize, usize)> = None;
        while n < name.len() {
            if pattern.get(p) == Some(&b'*') {
                back = Some((p + 1, n));
                p += 1;
            } else if pattern.get(p) == Some(&name[n]) {
                p += 1;
                n += 1;
            } else if let Some((star, taken)) = back {
                back = Some((star, taken + 1));
                p = star;
                n = taken + 1;
            } else {
                return false;
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }
}

/// In quotes, cut and escaped, for messages.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", brief(&self.0, MAX_SHOWN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_stand_for_any_run() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("*", "anything", true),
            ("get_*", "get_", true),
            ("get_*", "get_issue", true),
            ("get_*", "forget_issue", false),
            ("*_issue", "get_issue", true),
            ("*_issue", "get_issues", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbY", false),
            ("get", "get", true),
            ("get", "Get", false),
            ("get", "get ", false),
            ("g?t", "get", false),
            ("[a]", "a", false),
            ("**", "x", true),
            ("", "x", false),
            ("é*", "école", true),
        ] {
            assert_eq!(
                Pattern::new(pattern).matches(name),
                fits,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn a_pattern_made_to_be_slow_is_not() {
        // 256 bytes of pattern against the longest name a server could send in a frame of its own.
        let pattern = Pattern::new("*a".repeat(128));
        assert!(!pattern.matches(&"b".repeat(1 << 20)));
        assert!(!pattern.matches(&format!("{}b", "a".repeat(1 << 16))));
    }

    fn simple(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|skip| simple(rest, &name[skip..])),
            Some((byte, rest)) => name.first() == Some(byte) && simple(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*]{0,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(
                Pattern::new(pattern.clone()).matches(&name),
                simple(pattern.as_bytes(), name.as_bytes())
            );
        }
    }
}

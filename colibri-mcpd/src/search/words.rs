//! The words of a query and of a definition, and their synonyms.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// The most different words of a query that are looked for.
pub(super) const MAX_WORDS: usize = 32;
/// The most words that stand for one.
const MAX_INSTEAD: usize = 40;
/// The most bytes of a word: longer ones are no words of a language.
const MAX_WORD: usize = 64;

/// The words of a text, in lower case: runs of letters and digits, taken apart where a capital
/// begins a new one.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|run| !run.is_empty())
    {
        let parts = parts(run);
        if parts.len() > 1 {
            words.extend(parts.into_iter().filter_map(word));
        }
        words.extend(word(run));
    }
    words
}

fn word(run: &str) -> Option<String> {
    let word = run.to_lowercase();
    (word.len() <= MAX_WORD).then_some(word)
}

/// `readFile` is `read` and `File`, `HTTPServer` is `HTTP` and `Server`.
fn parts(run: &str) -> Vec<&str> {
    let letters: Vec<(usize, char)> = run.char_indices().collect();
    let (mut parts, mut start) = (Vec::new(), 0);
    for pair in 1..letters.len() {
        let (at, letter) = letters[pair];
        let before = letters[pair - 1].1;
        let after = letters
            .get(pair + 1)
            .is_some_and(|(_, after)| after.is_lowercase());
        if letter.is_uppercase() && (!before.is_uppercase() || after) {
            parts.push(&run[start..at]);
            start = at;
        }
    }
    parts.push(&run[start..]);
    parts
}

/// The different words of a query that say something, and how many of those were left out because
/// there were too many.
pub(super) fn asked(query: &str) -> (Vec<String>, usize) {
    let mut all: Vec<String> = Vec::new();
    let mut left_out = 0;
    for word in words(query) {
        match all.len() {
            _ if all.contains(&word) => {}
            // Of these every text has some; a query of nothing else is taken at its word.
            MAX_WORDS.. => left_out += 1,
            _ => all.push(word),
        }
    }
    if all.iter().any(|word| !says_nothing(word)) {
        all.retain(|word| !says_nothing(word));
    }
    (all, left_out)
}

fn says_nothing(word: &str) -> bool {
    word.chars().nth(1).is_none() && word.is_ascii() || NOTHING.binary_search(&word).is_ok()
}

/// Words that are looked for in place of one, and are worth less: those that mean about the same,
/// and those that begin with it (`repo`, `config`).
pub(super) fn instead(word: &str) -> Vec<String> {
    let forms = forms(word);
    let others = forms.iter().filter_map(|form| ALIKE.get(&**form)).flatten();
    let mut instead: Vec<String> = Vec::new();
    for other in others.filter(|other| !forms.iter().any(|form| form == *other)) {
        if instead.len() < MAX_INSTEAD && !instead.iter().any(|known| known == other) {
            instead.push((*other).to_owned());
        }
    }
    if word.chars().count() >= 4 {
        instead.push(format!("{word}*"));
    }
    instead
}

/// The words that stand for one, from the table beside this file, which says how it is written.
static ALIKE: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut alike: HashMap<&str, Vec<&str>> = HashMap::new();
    for line in include_str!("alike.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let (said, meant) = line.split_once('|').unwrap_or((line, line));
        for word in said.split_whitespace() {
            alike
                .entry(word)
                .or_default()
                .extend(meant.split_whitespace());
        }
    }
    alike
});

/// The words of which a word may be a form in English: `folders`, `copies`, `removing`, `stopped`.
fn forms(word: &str) -> Vec<String> {
    let mut forms = vec![word.to_owned()];
    let mut add = |stem: &str, end: &str| {
        if stem.len() >= 2 {
            forms.push(format!("{stem}{end}"));
        }
    };
    if let Some(stem) = word
        .strip_suffix("ies")
        .or_else(|| word.strip_suffix("ied"))
    {
        add(stem, "y");
    }
    for end in ["s", "es", "ed", "d", "ing", "er"] {
        let Some(stem) = word.strip_suffix(end) else {
            continue;
        };
        add(stem, "");
        if end == "ing" {
            add(stem, "e");
        }
        let mut last = stem.chars().rev();
        if matches!((last.next(), last.next()), (Some(one), Some(other)) if one == other) {
            add(stem.get(..stem.len() - 1).unwrap_or_default(), "");
        }
    }
    forms
}

/// All words of which those of a query may be forms.
pub(super) fn all_forms(query: &[String]) -> HashSet<String> {
    query.iter().flat_map(|word| forms(word)).collect()
}

/// The words of a tool's name, as every search compares them.
#[derive(Debug)]
pub(super) struct NameWords {
    /// The forms of each.
    forms: Vec<Vec<String>>,
    /// True if a tool of this name only looks.
    pub(super) looks: bool,
}

impl NameWords {
    pub(super) fn of(name: &str) -> NameWords {
        NameWords {
            forms: asked(name).0.iter().map(|word| forms(word)).collect(),
            looks: looks(name),
        }
    }

    /// The part of them, from 0 to 1, that a query has in some form.
    pub(super) fn named(&self, query: &HashSet<String>) -> f64 {
        let has = |forms: &&Vec<String>| forms.iter().any(|form| query.contains(form));
        self.forms.iter().filter(has).count() as f64 / self.forms.len().max(1) as f64
    }
}

/// True if a query asks to be told something, and not for something to be done.
pub(super) fn asks(query: &str) -> bool {
    query.trim_end().ends_with('?') || words(query).iter().any(|word| ASKING.contains(&&**word))
}

/// True if a tool of this name only looks, or a query says that something is to be looked at.
pub(super) fn looks(text: &str) -> bool {
    words(text).iter().any(|word| LOOKING.contains(&&**word))
}

/// Words of questions.
const ASKING: [&str; 15] = [
    "any", "are", "did", "does", "has", "is", "was", "were", "what", "when", "where", "which",
    "who", "whose", "why",
];
/// Words of tools that look.
const LOOKING: [&str; 19] = [
    "browse", "check", "compare", "describe", "details", "explain", "fetch", "find", "get", "info",
    "list", "open", "query", "read", "retrieve", "search", "show", "status", "summary",
];

/// Words of English that say nothing of what is to be done, in order.
const NOTHING: &[&str] = &[
    "about",
    "after",
    "again",
    "all",
    "already",
    "also",
    "always",
    "am",
    "an",
    "and",
    "another",
    "any",
    "anyone",
    "anything",
    "are",
    "aren",
    "as",
    "ask",
    "asks",
    "at",
    "back",
    "be",
    "because",
    "been",
    "before",
    "best",
    "better",
    "between",
    "bit",
    "but",
    "by",
    "can",
    "coming",
    "could",
    "couldn",
    "d",
    "day",
    "days",
    "did",
    "didn",
    "do",
    "does",
    "doesn",
    "don",
    "each",
    "eight",
    "ever",
    "every",
    "everyone",
    "everything",
    "first",
    "five",
    "for",
    "four",
    "from",
    "good",
    "had",
    "has",
    "hasn",
    "hate",
    "have",
    "haven",
    "he",
    "help",
    "her",
    "his",
    "hour",
    "hours",
    "how",
    "if",
    "in",
    "into",
    "is",
    "isn",
    "it",
    "its",
    "just",
    "last",
    "let",
    "like",
    "live",
    "ll",
    "long",
    "lot",
    "lots",
    "m",
    "many",
    "may",
    "me",
    "might",
    "minute",
    "month",
    "more",
    "most",
    "much",
    "my",
    "need",
    "never",
    "new",
    "next",
    "nice",
    "nine",
    "no",
    "not",
    "now",
    "of",
    "off",
    "old",
    "on",
    "one",
    "only",
    "or",
    "other",
    "others",
    "our",
    "out",
    "over",
    "own",
    "per",
    "please",
    "quite",
    "re",
    "really",
    "right",
    "s",
    "said",
    "say",
    "says",
    "second",
    "seven",
    "she",
    "should",
    "since",
    "six",
    "so",
    "some",
    "someone",
    "something",
    "still",
    "stuff",
    "such",
    "sure",
    "t",
    "tell",
    "ten",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "these",
    "they",
    "thing",
    "things",
    "third",
    "this",
    "those",
    "three",
    "through",
    "to",
    "told",
    "tonight",
    "too",
    "tool",
    "two",
    "under",
    "until",
    "up",
    "us",
    "use",
    "using",
    "ve",
    "very",
    "want",
    "was",
    "way",
    "we",
    "week",
    "were",
    "what",
    "when",
    "where",
    "whether",
    "which",
    "while",
    "who",
    "whom",
    "whose",
    "will",
    "with",
    "without",
    "won",
    "would",
    "year",
    "yesterday",
    "yet",
    "you",
    "your",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_taken_apart() {
        for (text, wanted) in [
            ("read_file", "read file"),
            ("readFile", "read file readfile"),
            ("HTTPServer2", "http server2 httpserver2"),
            ("get-user.byId", "get user by id byid"),
            ("sha256", "sha256"),
            ("Größe ÄndernJetzt", "größe ändern jetzt ändernjetzt"),
            ("日本 \u{0}\"*()", "日本"),
            ("", ""),
        ] {
            assert_eq!(words(text).join(" "), wanted, "{text}");
        }
    }

    #[test]
    fn the_words_of_a_query_say_something_unless_none_does() {
        assert_eq!(
            asked("How can I see what is in my folders?").0,
            ["see", "folders"]
        );
        assert_eq!(asked("what is this").0, ["what", "is", "this"]);
        assert_eq!(asked("a a A").0, ["a"]);
        let many: String = (0..50).map(|number| format!("word{number} ")).collect();
        let (found, left_out) = asked(&many);
        assert_eq!((found.len(), left_out), (MAX_WORDS, 50 - MAX_WORDS));
        assert_eq!(asked(&"x".repeat(4000)).0, [""; 0]);
    }

    #[test]
    fn other_words_stand_for_every_form_of_one() {
        for (word, other) in [
            ("folders", "directory"),
            ("removing", "delete"),
            ("copies", "duplicate"),
            ("stopped", "kill"),
            ("executing", "run"),
            ("repo", "repository"),
            ("repo", "repo*"),
        ] {
            assert!(
                instead(word).iter().any(|found| found == other),
                "{word}: {:?}",
                instead(word)
            );
        }
        assert_eq!(instead("ab"), [""; 0]);
        assert_eq!(instead("quokka"), ["quokka*"]);
    }

    #[test]
    fn a_name_is_in_a_query_whatever_the_forms_of_its_words() {
        let query = all_forms(&asked("reading several files").0);
        for (name, part) in [
            ("read_file", 1.0),
            ("readFiles", 2.0 / 3.0),
            ("file_info", 0.5),
            ("echo", 0.0),
            ("", 0.0),
        ] {
            assert!(
                (NameWords::of(name).named(&query) - part).abs() < 1e-9,
                "{name}: {}",
                NameWords::of(name).named(&query)
            );
        }
    }

    #[test]
    fn a_question_is_told_from_an_order_and_a_tool_that_looks_from_one_that_does() {
        for (query, does_ask) in [
            ("Did Kim write?", true),
            ("tell me what is in it", true),
            ("is it raining", true),
            ("what?", true),
            ("delete the branch", false),
            ("?! send it", false),
            ("", false),
        ] {
            assert_eq!(asks(query), does_ask, "{query}");
        }
        for (name, does_look) in [
            ("getIssue", true),
            ("list_files", true),
            ("forget_it", false),
            ("write", false),
        ] {
            assert_eq!(looks(name), does_look, "{name}");
        }
    }

    #[test]
    fn the_tables_are_in_order() {
        assert!(NOTHING.is_sorted(), "they are looked up by halves");
        for (word, others) in ALIKE.iter() {
            assert_eq!(words(word), [(*word).to_owned()]);
            assert!(
                !others.is_empty() && !says_nothing(word),
                "{word} is never looked up"
            );
            for other in others {
                assert_eq!(words(other), [(*other).to_owned()], "{word}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_has_words_without_anything_but_letters_and_digits(text in any::<String>()) {
            for word in words(&text) {
                prop_assert!(word.len() <= MAX_WORD && !word.is_empty());
                prop_assert!(!word.contains(['"', '*', '\0', ' ', '(', ':', '^']));
                let _ = instead(&word);
            }
            prop_assert!(asked(&text).0.len() <= MAX_WORDS);
        }
    }
}

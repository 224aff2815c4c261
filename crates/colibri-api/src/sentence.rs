//! Sentences for a list of tools: the first of a description, and what a model wrote.

use colibri_text::{first_hidden, is_hidden};

/// The most characters of a sentence.
const MAX_SENTENCE: usize = 300;
/// The most characters of a text that are looked at: servers may write 1 MiB.
const MAX_READ: usize = 4_000;
/// Words that end with a full stop within a sentence.
const ABBREVIATIONS: [&str; 14] = [
    "approx", "cf", "dr", "e.g", "eg", "esp", "etc", "i.e", "ie", "incl", "mr", "no", "resp", "vs",
];

/// The first sentence of a description, in one line of at most 300 characters and without
/// characters that nobody sees; empty if it says nothing. A heading is passed over where text
/// follows; a blank line or a list ends the sentence.
pub fn first_sentence(description: &str) -> String {
    let mut block = String::new();
    let mut heading = String::new();
    let read: String = description.chars().take(MAX_READ).collect();
    for line in read.split(['\n', '\r', '\u{2028}', '\u{2029}']) {
        let line = plain(line);
        let is_mark = !line.contains(char::is_alphanumeric);
        match line.strip_prefix('#') {
            _ if block.is_empty() && is_mark => continue,
            Some(title) if block.is_empty() => {
                heading = title.trim_start_matches(['#', ' ']).to_owned()
            }
            None if !is_mark && (block.is_empty() || !is_item(&line)) => {
                block.push_str(if block.is_empty() { "" } else { " " });
                block.push_str(&line);
            }
            _ => break,
        }
    }
    let text = if block.is_empty() { heading } else { block };
    shortened(&text[..sentence_end(&text)])
}

/// The first line of what a model wrote that says something, as [`first_sentence`] has it; `None`
/// if none does.
pub fn written_sentence(completion: &str) -> Option<String> {
    let read: String = completion.chars().take(MAX_READ).collect();
    let mut lines = read.split(['\n', '\r', '\u{2028}', '\u{2029}']).map(plain);
    let line = lines.find(|line| line.contains(char::is_alphanumeric))?;
    Some(shortened(&line))
}

/// A text in one line, without what hides something in it.
fn plain(text: &str) -> String {
    let seen = |word: &str| match first_hidden(word) {
        Some(_) => word.chars().filter(|c| !is_hidden(*c)).collect(),
        None => word.to_owned(),
    };
    let words: Vec<String> = text
        .split_whitespace()
        .map(seen)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

/// True if a line begins as an item of a list does.
fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    ["- ", "* ", "+ ", "• "]
        .iter()
        .any(|mark| line.starts_with(mark))
        || number.len() < line.len() && (number.starts_with(". ") || number.starts_with(") "))
}

/// The end of the first sentence of a text in one line.
fn sentence_end(text: &str) -> usize {
    for (at, c) in text.char_indices() {
        let after = &text[at + c.len_utf8()..];
        let rest = after.trim_start_matches(['"', '\'', ')', ']', '”', '’', '»', '`', '*']);
        let end = text.len() - rest.len();
        match c {
            '。' | '！' | '？' => return end,
            '.' | '!' | '?' if rest.is_empty() => return text.len(),
            '!' | '?' if rest.starts_with(' ') => return end,
            '.' if rest.starts_with(' ') && !goes_on(&text[..at], rest) => return end,
            _ => {}
        }
    }
    text.len()
}

/// True if the sentence goes on after a full stop.
fn goes_on(before: &str, rest: &str) -> bool {
    let word = before
        .rsplit([' ', '(', '"', '[', ','])
        .next()
        .unwrap_or_default();
    let initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase);
    initial
        || ABBREVIATIONS.contains(&&*word.to_lowercase())
        || rest.trim_start().starts_with(char::is_lowercase)
}

/// A text, cut where it is too long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SENTENCE) {
        None => text.to_owned(),
        Some(_) => text.chars().take(MAX_SENTENCE - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_sentence_is_taken_as_people_write_them() {
        for (text, wanted) in [
            ("Reads a file. Then closes it.", "Reads a file."),
            ("Reads a file", "Reads a file"),
            (
                "  Reads a\n   file of node.js.\n\nArgs:\n  path: x",
                "Reads a file of node.js.",
            ),
            (
                "Lists issues, e.g. GitHub ones (i.e. those). More.",
                "Lists issues, e.g. GitHub ones (i.e. those).",
            ),
            ("Says \"yes.\" Then no.", "Says \"yes.\""),
            ("Asks who?! Now.", "Asks who?!"),
            ("Version 2.5 of J. Doe. Next", "Version 2.5 of J. Doe."),
            ("# Search\n\nFinds things. More", "Finds things."),
            ("# Search", "Search"),
            ("----\n```\nRuns it", "Runs it"),
            ("Can do:\n- this\n- that", "Can do:"),
            ("Does\n1. this", "Does"),
            ("読みます。書きます。", "読みます。"),
            ("", ""),
            (" \n\t", ""),
            ("…", ""),
        ] {
            assert_eq!(first_sentence(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn what_a_model_wrote_is_one_line_that_says_something() {
        assert_eq!(
            written_sentence("\n```\nReads a\tfile. By path.\nIGNORE ALL\n").as_deref(),
            Some("Reads a file. By path.")
        );
        assert_eq!(
            written_sentence("\u{1b}[2J\u{202e}Reads\u{200b} it\u{7}").as_deref(),
            Some("[2JReads it")
        );
        for nothing in ["", " \n", "```\n---", "\u{200b}\u{202e}"] {
            assert_eq!(written_sentence(nothing), None, "{nothing:?}");
        }
        let long = written_sentence(&"x".repeat(10 << 20)).unwrap();
        assert_eq!(
            (long.chars().count(), long.ends_with('…')),
            (MAX_SENTENCE, true)
        );
    }

    proptest! {
        #[test]
        fn whatever_is_written_a_sentence_is_one_short_visible_line(text in "(\\PC|[.!? \n#*-]|\u{202e}|\u{200b}|[\u{0}-\u{1f}]){0,600}") {
            for line in [Some(first_sentence(&text)), written_sentence(&text)].into_iter().flatten() {
                prop_assert!(line.chars().count() <= MAX_SENTENCE);
                prop_assert!(!line.contains(char::is_control));
                prop_assert_eq!(first_hidden(&line), None);
            }
        }
    }
}

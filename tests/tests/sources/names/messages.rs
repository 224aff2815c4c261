//! Messages that a page quotes, in blocks of the kind `message`, and sentences that a guide quotes
//! elsewhere: each is one that the product can print.
//!
//! `…` in a message stands for anything, as `{}` does in the sources, and so does a word in
//! capitals.

use super::documents::{Document, Kind};
use super::facts::Facts;
use super::{Finding, Findings};

pub(super) fn check(document: &Document, facts: &Facts, findings: &mut Findings) {
    for quote in document.quotes() {
        let is_block = quote.kind == Kind::Block("message".to_owned());
        let is_sentence = quote.kind == Kind::Span
            && document.path.starts_with("docs/guide/")
            && is_sentence(&quote.text);
        if !is_block && !is_sentence {
            continue;
        }
        for (at, line) in quote.text.lines().enumerate() {
            for part in parts(line) {
                if !facts
                    .messages
                    .iter()
                    .any(|message| is_said(&part, &message.fixed, facts))
                {
                    findings.push(Finding {
                        file: document.path.clone(),
                        line: quote.line + at,
                        name: part,
                        what: "no message of the product has these words".to_owned(),
                    });
                }
            }
        }
    }
}

/// True for a quoted text of four plain words at least: no command, no name.
fn is_sentence(text: &str) -> bool {
    let is_plain = |word: &&str| {
        word.chars()
            .all(|letter| letter.is_ascii_lowercase() || letter == '\'')
    };
    !text.contains(['_', '&'])
        && !text.contains("colibri-mcp")
        && text.split_whitespace().filter(is_plain).count() >= 4
}

/// The parts of a quoted message that one string of the sources has each: it is composed at colons
/// and semicolons, and of what stands between the marks of left out text.
fn parts(line: &str) -> Vec<String> {
    let mut parts: Vec<String> = line.split(['…', ';']).map(str::to_owned).collect();
    parts = parts
        .iter()
        .flat_map(|part| part.split(": ").map(str::to_owned))
        .collect();
    for part in &mut parts {
        *part = part.trim().trim_end_matches(':').to_owned();
    }
    // One word says nothing: an error's name, a key, a value.
    parts.retain(|part| part.contains(' '));
    parts
}

/// True if a string of the sources, with anything in the place of its placeholders, has these
/// words.
fn is_said(part: &str, fixed: &[String], facts: &Facts) -> bool {
    if fixed.iter().any(|text| contains_words(text, part)) {
        return true;
    }
    // A text, and what is put into the placeholder behind it: `cannot {action}`.
    let is_filled = |text: &String| {
        let filling = part.strip_prefix(text.as_str());
        text.ends_with(' ')
            && filling
                .is_some_and(|filling| filling.contains(' ') && facts.literals.contains(filling))
    };
    if fixed.iter().any(is_filled) {
        return true;
    }
    // The part goes over placeholders: its beginning is the end of one fixed text, its end the
    // beginning of another.
    (0..fixed.len()).any(|first| {
        let text = fixed[first].as_str();
        let overlap = longest_overlap(text, part);
        overlap
            .into_iter()
            .any(|length| follows(&part[length..], &fixed[first + 1..], length, part.len()))
    })
}

/// True if `rest` is a value, then the fixed texts in their order, the last of them perhaps not
/// whole, with a value between each two. A value is one word, and most of the part must be of fixed
/// texts.
fn follows(rest: &str, fixed: &[String], matched: usize, whole: usize) -> bool {
    let is_value = |text: &str| text.split_whitespace().count() <= 1;
    if is_value(rest) && matched * 2 > whole {
        return true;
    }
    let Some((next, later)) = fixed.split_first() else {
        return false;
    };
    // The part ends within this fixed text.
    let ends = (1..=next.len().min(rest.len())).any(|length| {
        let is_end = next.is_char_boundary(length) && rest.ends_with(&next[..length]);
        is_end && is_value(&rest[..rest.len() - length]) && (matched + length) * 2 > whole
    });
    ends || rest.match_indices(next.as_str()).any(|(at, _)| {
        !next.is_empty()
            && is_value(&rest[..at])
            && follows(&rest[at + next.len()..], later, matched + next.len(), whole)
    })
}

/// Lengths of beginnings of `part` that are ends of `text`, the longest first; nothing last.
fn longest_overlap(text: &str, part: &str) -> Vec<usize> {
    let mut lengths: Vec<usize> = (1..=text.len().min(part.len()))
        .rev()
        .filter(|length| part.is_char_boundary(*length) && text.ends_with(&part[..*length]))
        .collect();
    lengths.push(0);
    lengths
}

/// True if the text has the words, from the beginning of one to the end of one.
fn contains_words(text: &str, part: &str) -> bool {
    text.match_indices(part).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + part.len()..].chars().next();
        let is_apart = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
        is_apart(before) && is_apart(after)
    })
}

/// The texts between the placeholders of a format string, with white space as one space.
pub(super) fn fixed_parts(message: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = message.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '{' if letters.peek() == Some(&'{') => {
                letters.next();
                parts.last_mut().unwrap().push('{');
            }
            '{' => {
                letters
                    .by_ref()
                    .take_while(|letter| *letter != '}')
                    .for_each(drop);
                parts.push(String::new());
            }
            letter if letter.is_whitespace() => parts.last_mut().unwrap().push(' '),
            letter => parts.last_mut().unwrap().push(letter),
        }
    }
    parts
}

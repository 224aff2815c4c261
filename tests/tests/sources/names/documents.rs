//! Pages, manuals and scripts, taken apart: what is quoted in them, and their running text.

/// The kind of a quoted text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A back-quoted text, or one that a manual marks.
    Span,
    /// The lines of a block, with the word behind its fence. Blocks of manuals and indented ones
    /// have none.
    Block(String),
    /// A link's target.
    Link,
    /// The path of `.Pa`.
    Path,
}

/// A quoted text.
pub(super) struct Quote {
    pub(super) line: usize,
    pub(super) kind: Kind,
    pub(super) text: String,
}

/// The form of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Markdown,
    Manual,
    Script,
    Unit,
    /// A message of ours.
    Message,
}

/// One page, script or message.
pub(super) struct Document {
    pub(super) path: String,
    pub(super) form: Form,
    pub(super) text: String,
    /// The number of its first line, less one.
    pub(super) offset: usize,
}

impl Document {
    pub(super) fn new(path: &str, text: &str) -> Option<Document> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let form = match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
            "md" => Form::Markdown,
            "1" | "5" | "7" | "8" if path.starts_with("docs/man/") => Form::Manual,
            "service" => Form::Unit,
            "sh" => Form::Script,
            "Debian" => Form::Markdown,
            _ if text.starts_with("#!/bin/sh") || text.starts_with("#!/usr/bin/env bash") => {
                Form::Script
            }
            _ if path == "port/Makefile" => Form::Script,
            _ => return None,
        };
        Some(Document {
            path: path.to_owned(),
            form,
            text: text.to_owned(),
            offset: 0,
        })
    }

    /// The quoted texts of a page or a manual.
    pub(super) fn quotes(&self) -> Vec<Quote> {
        let mut quotes = match self.form {
            Form::Markdown | Form::Message => markdown(&self.text),
            Form::Manual => manual(&self.text),
            Form::Script | Form::Unit => Vec::new(),
        };
        for quote in &mut quotes {
            quote.line += self.offset;
        }
        quotes
    }
}

fn markdown(text: &str) -> Vec<Quote> {
    let mut quotes = Vec::new();
    let mut paragraph = String::new();
    let mut start = 1;
    // The fence in which a line stands: its first line, its word, its text.
    let mut fence: Option<(usize, String, String)> = None;
    let mut was_empty = true;
    let mut in_list = false;
    for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        let trimmed = line.trim_start();
        if let Some(word) = trimmed.strip_prefix("```") {
            match fence.take() {
                Some((line, word, text)) => quotes.push(Quote {
                    line,
                    kind: Kind::Block(word),
                    text,
                }),
                None => {
                    spans(&paragraph, start, &mut quotes);
                    paragraph.clear();
                    fence = Some((number + 1, word.trim().to_owned(), String::new()));
                }
            }
            continue;
        }
        if let Some((_, _, text)) = &mut fence {
            text.push_str(line);
            text.push('\n');
            continue;
        }
        in_list =
            (in_list && (line.starts_with("  ") || line.is_empty())) || trimmed.starts_with("- ");
        let is_indented = line.starts_with("    ") && was_empty && !in_list;
        if is_indented {
            quotes.push(Quote {
                line: number,
                kind: Kind::Block(String::new()),
                text: line.trim().to_owned(),
            });
            continue;
        }
        was_empty = line.trim().is_empty();
        if was_empty || trimmed.starts_with("- ") || trimmed.starts_with('|') {
            spans(&paragraph, start, &mut quotes);
            paragraph.clear();
        }
        if paragraph.is_empty() {
            start = number;
        }
        paragraph.push_str(line);
        paragraph.push('\n');
    }
    spans(&paragraph, start, &mut quotes);
    quotes
}

/// The back-quoted texts and the links of a paragraph that begins in line `start`.
fn spans(paragraph: &str, start: usize, quotes: &mut Vec<Quote>) {
    let line_of = |at: usize| start + paragraph[..at].matches('\n').count();
    let mut rest = 0;
    while let Some(open) = paragraph[rest..].find('`').map(|at| rest + at) {
        let ticks = paragraph[open..]
            .chars()
            .take_while(|letter| *letter == '`')
            .count();
        let mark = "`".repeat(ticks);
        let Some(close) = paragraph[open + ticks..]
            .find(&mark)
            .map(|at| open + ticks + at)
        else {
            break;
        };
        quotes.push(Quote {
            line: line_of(open),
            kind: Kind::Span,
            text: one_line(&paragraph[open + ticks..close]),
        });
        rest = close + ticks;
    }
    for (at, _) in paragraph.match_indices("](") {
        if let Some(end) = paragraph[at..].find(')') {
            quotes.push(Quote {
                line: line_of(at),
                kind: Kind::Link,
                text: paragraph[at + 2..at + end].to_owned(),
            });
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The texts that a manual in mdoc(7) marks as literal, as commands or as paths, and its blocks.
fn manual(text: &str) -> Vec<Quote> {
    let mut quotes = Vec::new();
    let mut block: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        if line.starts_with(".Bd") {
            block = line
                .contains("-literal")
                .then(|| (number + 1, String::new()));
            continue;
        }
        if line.starts_with(".Ed") {
            if let Some((line, text)) = block.take() {
                quotes.push(Quote {
                    line,
                    kind: Kind::Block(String::new()),
                    text,
                });
            }
            continue;
        }
        if let Some((_, text)) = &mut block {
            text.push_str(&unescape(line));
            text.push('\n');
            continue;
        }
        let Some((name, arguments)) = line.strip_prefix('.').and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let arguments = unescape(arguments);
        let (kind, arguments) = match name {
            "Dl" => (Kind::Block(String::new()), arguments),
            "Ql" | "Li" | "Ic" | "Cm" => (Kind::Span, arguments),
            "Pa" => (Kind::Path, arguments),
            "It" if arguments.starts_with("Pa ") => (Kind::Path, arguments[3..].to_owned()),
            _ => continue,
        };
        for text in macro_arguments(&arguments) {
            quotes.push(Quote {
                line: number,
                kind: kind.clone(),
                text,
            });
        }
    }
    quotes
}

fn unescape(text: &str) -> String {
    text.replace("\\-", "-")
        .replace("\\&", "")
        .replace("\\e", "\\")
}

/// The texts of a macro's arguments: punctuation that stands alone divides them.
fn macro_arguments(arguments: &str) -> Vec<String> {
    let mut texts = vec![Vec::new()];
    let mut words = arguments.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "," | "." | ";" | ":" | ")" | "(" => texts.push(Vec::new()),
            "Ns" => {}
            // Another macro ends the text, but for what belongs to a command line.
            "Ar" => texts
                .last_mut()
                .unwrap()
                .extend(words.next().map(str::to_uppercase)),
            "Fl" => texts
                .last_mut()
                .unwrap()
                .extend(words.next().map(|flag| format!("-{flag}"))),
            "Pa" | "Cm" | "Va" => {}
            _ => texts.last_mut().unwrap().push(word.to_owned()),
        }
    }
    let texts = texts
        .into_iter()
        .map(|words: Vec<String>| words.join(" ").trim_matches('"').to_owned());
    texts.filter(|text| !text.is_empty()).collect()
}

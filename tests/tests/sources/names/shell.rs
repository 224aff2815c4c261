//! Lines of shells, taken apart into commands and words.

/// A word of a command: quoting is undone, expansions stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The commands of a text, in which the first line has the number `first`. What follows `#` at the
/// beginning of a word is a comment.
pub(super) fn commands(text: &str, first: usize) -> Vec<Vec<Word>> {
    let mut lexer = Lexer {
        letters: text.chars().collect(),
        at: 0,
        line: first,
        commands: vec![Vec::new()],
        word: None,
    };
    lexer.read(None);
    lexer.commands.retain(|words| !words.is_empty());
    lexer.commands
}

struct Lexer {
    letters: Vec<char>,
    at: usize,
    line: usize,
    commands: Vec<Vec<Word>>,
    word: Option<Word>,
}

impl Lexer {
    fn next(&mut self) -> Option<char> {
        let letter = *self.letters.get(self.at)?;
        self.at += 1;
        if letter == '\n' {
            self.line += 1;
        }
        Some(letter)
    }

    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn push(&mut self, letter: char) {
        let line = self.line;
        let word = self.word.get_or_insert_with(|| Word {
            line,
            text: String::new(),
        });
        word.text.push(letter);
    }

    fn end_word(&mut self) {
        if let Some(word) = self.word.take() {
            self.commands.last_mut().unwrap().push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.commands.push(Vec::new());
    }

    /// Reads up to `end`, or all.
    fn read(&mut self, end: Option<char>) {
        while let Some(letter) = self.next() {
            match letter {
                _ if Some(letter) == end => break,
                '\\' => match self.next() {
                    Some('\n') => {}
                    Some(letter) => self.push(letter),
                    None => {}
                },
                '\'' => {
                    while let Some(letter) = self.next().filter(|letter| *letter != '\'') {
                        self.push(letter);
                    }
                }
                '"' => self.read_quoted(),
                '#' if self.word.is_none() => {
                    while self.peek().is_some_and(|letter| letter != '\n') {
                        self.next();
                    }
                }
                '$' if self.peek() == Some('(') => self.substitute(),
                '`' => self.end_command(),
                ' ' | '\t' => self.end_word(),
                '>' | '<' => {
                    // A number before it is a descriptor's; `&` behind it belongs to it.
                    if self
                        .word
                        .as_ref()
                        .is_some_and(|word| word.text.parse::<u8>().is_ok())
                    {
                        self.word = None;
                    }
                    self.end_word();
                    self.push(letter);
                    if self.peek() == Some('&') {
                        self.next();
                    }
                }
                // The values of a list.
                '(' if self
                    .word
                    .as_ref()
                    .is_some_and(|word| word.text.ends_with('=')) =>
                {
                    while self.next().is_some_and(|letter| letter != ')') {}
                }
                '\n' | ';' | '|' | '&' | '(' | ')' => {
                    let is_alternative = letter == '|' && self.is_inside_word();
                    if is_alternative {
                        self.push(letter)
                    } else {
                        self.end_command()
                    }
                }
                _ => self.push(letter),
            }
        }
        self.end_word();
    }

    /// `enable|disable` is one word of a form.
    fn is_inside_word(&self) -> bool {
        self.word.is_some()
            && self
                .peek()
                .is_some_and(|letter| letter.is_ascii_lowercase())
    }

    fn read_quoted(&mut self) {
        let line = self.line;
        self.word.get_or_insert_with(|| Word {
            line,
            text: String::new(),
        });
        while let Some(letter) = self.next() {
            match letter {
                '"' => break,
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(letter) => self.push(letter),
                },
                '$' if self.peek() == Some('(') => self.substitute(),
                _ => self.push(letter),
            }
        }
    }

    /// `$(…)`: a command of its own, and any value in the word around it.
    fn substitute(&mut self) {
        self.next();
        let outer = self.word.take();
        let place = self.commands.len() - 1;
        self.commands.push(Vec::new());
        self.read(Some(')'));
        // The word goes on in the command around it.
        let around = std::mem::take(&mut self.commands[place]);
        self.commands.push(around);
        self.word = outer;
        self.push('$');
        self.push('_');
    }
}

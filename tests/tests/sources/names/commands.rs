//! Command lines: each command, subcommand and flag that is named is one that the program, the rc
//! script or the unit knows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::Command;

use colibri_tests::program;

use super::documents::{Document, Form, Kind};
use super::facts::{Facts, assignment};
use super::shell::{self, Word};
use super::{Finding, Findings};

/// The programs that describe themselves by `--help`.
const PROGRAMS: [&str; 3] = ["chibi-mcp-bridge", "colibri-mcp", "colibri-mcpd"];
const HELPER: &str = "colibri-jail-helper";
const SCRIPT: &str = "colibri-script";
const MAKE_ROOT: &str = "make-root.sh";

/// The commands that every rc script has, by rc.subr(8), and their prefixes.
const RC_COMMANDS: [&str; 11] = [
    "start", "stop", "restart", "status", "poll", "rcvar", "enable", "disable", "enabled",
    "delete", "describe",
];
const RC_PREFIXES: [&str; 5] = ["", "one", "force", "fast", "quiet"];
/// The commands of systemctl(1) that hold of every unit.
const UNIT_COMMANDS: [&str; 16] = [
    "cat",
    "disable",
    "edit",
    "enable",
    "is-active",
    "is-enabled",
    "kill",
    "list-units",
    "mask",
    "reset-failed",
    "restart",
    "show",
    "start",
    "status",
    "stop",
    "unmask",
];
/// Words before a command that run it.
const WRAPPERS: [&str; 21] = [
    "sudo", "mdo", "doas", "env", "exec", "ssh", "su", "if", "then", "else", "elif", "while",
    "until", "do", "!", "{", "timeout", "chroot", "jexec", "nohup", "time",
];

/// One command of a program, as its help shows it.
#[derive(Default)]
struct Node {
    /// Flags, and whether they take a value.
    flags: BTreeMap<String, bool>,
    takes_arguments: bool,
    has_commands: bool,
    needs_command: bool,
}

/// The commands of the built programs, read when they are asked for.
#[derive(Default)]
pub(super) struct Programs {
    nodes: RefCell<BTreeMap<Vec<String>, Option<std::rc::Rc<Node>>>>,
}

impl Programs {
    /// The command with this path, the program's name first, if there is one.
    fn node(&self, path: &[String]) -> Option<std::rc::Rc<Node>> {
        if let Some(node) = self.nodes.borrow().get(path) {
            return node.clone();
        }
        let answer = Command::new(program(&path[0]))
            .args(&path[1..])
            .arg("--help")
            .env_clear()
            .output()
            .unwrap();
        let help = String::from_utf8_lossy(&answer.stdout).into_owned();
        let node = answer
            .status
            .success()
            .then(|| Node::read(&help, path))
            .flatten();
        let node = node.map(std::rc::Rc::new);
        self.nodes.borrow_mut().insert(path.to_vec(), node.clone());
        node
    }
}

impl Node {
    fn read(help: &str, path: &[String]) -> Option<Node> {
        let mut usage = help.lines().skip_while(|line| !line.starts_with("Usage: "));
        let first = usage
            .next()?
            .strip_prefix("Usage: ")?
            .strip_prefix(&path.join(" "))?;
        if !(first.is_empty() || first.starts_with(' ')) {
            return None;
        }
        // Another form may stand below it: with a command.
        let more: Vec<&str> = usage.take_while(|line| !line.trim().is_empty()).collect();
        let rest = format!("{first} {}", more.join(" "));
        let has = |word: &str| rest.split_whitespace().any(|part| part == word);
        let mut node = Node {
            takes_arguments: help.contains("\nArguments:\n"),
            has_commands: has("<COMMAND>") || has("[COMMAND]"),
            needs_command: first.ends_with("<COMMAND>"),
            ..Node::default()
        };
        for line in help
            .lines()
            .map(str::trim_start)
            .filter(|line| line.starts_with('-'))
        {
            let names = line.split("  ").next().unwrap_or_default();
            let takes_value = names.contains('<');
            let names = names
                .split([' ', ',', '[', '='])
                .filter(|word| word.starts_with('-'));
            node.flags
                .extend(names.map(|name| (name.to_owned(), takes_value)));
        }
        Some(node)
    }
}

/// How strictly the words behind a program are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// A command line.
    Line,
    /// A sentence that goes on behind the command.
    Sentence,
}

/// Finds what a document's command lines name and what there is not.
pub(super) fn check(
    document: &Document,
    facts: &Facts,
    programs: &Programs,
    findings: &mut Findings,
) {
    let checker = Checker {
        document,
        facts,
        programs,
        findings: RefCell::new(findings),
    };
    match document.form {
        Form::Script | Form::Unit => checker.script(),
        Form::Message => checker.message(),
        Form::Markdown | Form::Manual => {
            for quote in document.quotes() {
                match &quote.kind {
                    Kind::Span => checker.lines(&quote.text, quote.line),
                    Kind::Block(word) if matches!(word.as_str(), "" | "sh" | "console") => {
                        for (at, line) in joined_lines(&quote.text) {
                            // A drawing is no command; what stands far behind a command says what
                            // it does.
                            let line = line.trim_start().split("   ").next().unwrap_or_default();
                            if !line.is_ascii() && line.contains(['─', '│', '┤', '►', '◄'])
                            {
                                continue;
                            }
                            checker.lines(without_prompt(line.trim()), quote.line + at);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The lines of a block, those that end in a backslash with the next.
fn joined_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in text.lines().enumerate() {
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => last.push_str(line),
            None => lines.push((at, line.to_owned())),
        }
        goes_on = line.ends_with('\\');
        if goes_on {
            lines.last_mut().unwrap().1.pop();
        }
    }
    lines
}

/// A line without a prompt: `$ `, `# `, `alice$ `, `beta# `.
fn without_prompt(line: &str) -> &str {
    match line.split_once(' ') {
        Some((prompt, rest)) => {
            let name = prompt.trim_end_matches(['$', '#']);
            let is_prompt = name.len() + 1 == prompt.len()
                && name.chars().all(|letter| letter.is_ascii_alphanumeric());
            if is_prompt { rest } else { line }
        }
        None => line,
    }
}

struct Checker<'a> {
    document: &'a Document,
    facts: &'a Facts,
    programs: &'a Programs,
    findings: RefCell<&'a mut Findings>,
}

impl Checker<'_> {
    fn find(&self, line: usize, name: &str, what: &str) {
        self.findings.borrow_mut().push(Finding {
            file: self.document.path.clone(),
            line,
            name: name.to_owned(),
            what: what.to_owned(),
        });
    }

    /// The command lines of a quoted text.
    fn lines(&self, text: &str, line: usize) {
        for words in shell::commands(text, line) {
            self.command(&words, Strictness::Line);
        }
    }

    /// One command, behind assignments and wrappers.
    fn command(&self, words: &[Word], strictness: Strictness) {
        for word in words {
            if let Some((name, value)) = word.text.split_once('=')
                && [
                    "COLIBRI_MCPD_FLAGS",
                    "colibri_mcp_flags",
                    "daemon_flags",
                    "group_flag",
                ]
                .contains(&name)
            {
                self.flags_of("colibri-mcpd", value, word.line);
            }
        }
        let plain: Vec<&Word> = words
            .iter()
            .skip_while(|word| is_assignment(&word.text) || word.text == "sysrc")
            .collect();
        let Some(first) = plain.first() else { return };
        let first = base_name(&first.text);
        match first {
            "cargo" => {
                let package = plain
                    .windows(2)
                    .find(|pair| pair[0].text == "--bin")
                    .map(|pair| &pair[1].text);
                if let (Some(package), Some(at)) =
                    (package, plain.iter().position(|word| word.text == "--"))
                {
                    self.program(base_name(package), &plain[at + 1..], strictness);
                }
            }
            "service" if plain.get(1).is_some_and(|word| is_our_service(&word.text)) => {
                self.service(&plain[2..])
            }
            "systemctl" => self.systemctl(&plain[1..]),
            "journalctl" => {
                let unit = plain
                    .windows(2)
                    .find(|pair| pair[0].text == "-u")
                    .map(|pair| &pair[1]);
                if let Some(unit) = unit {
                    self.unit(unit);
                }
            }
            "sh" if plain
                .get(1)
                .is_some_and(|word| base_name(&word.text) == MAKE_ROOT) =>
            {
                self.make_root(&plain[2..]);
            }
            MAKE_ROOT => self.make_root(&plain[1..]),
            "eval" => {
                for word in &plain[1..] {
                    for words in shell::commands(&word.text, word.line) {
                        self.command(&words, strictness);
                    }
                }
            }
            _ => {
                let at = plain
                    .iter()
                    .position(|word| is_program(base_name(&word.text)));
                let Some(at) = at else { return };
                let is_other = |word: &&Word| ["[", "test", "cargo"].contains(&word.text.as_str());
                let is_wrapped =
                    at == 0 || WRAPPERS.contains(&first) && !plain[..at].iter().any(is_other);
                if is_wrapped {
                    self.program(base_name(&plain[at].text), &plain[at + 1..], strictness);
                }
            }
        }
    }

    fn program(&self, name: &str, words: &[&Word], strictness: Strictness) {
        match name {
            HELPER => self.helper(words),
            SCRIPT => {
                if let Some(word) = words.first().filter(|word| !is_placeholder(&word.text)) {
                    self.find(word.line, &word.text, "colibri-script takes no arguments");
                }
            }
            _ => self.clap(name, words, strictness),
        }
    }

    /// The words behind a program that describes itself.
    fn clap(&self, name: &str, words: &[&Word], strictness: Strictness) {
        let mut path = vec![name.to_owned()];
        let Some(mut node) = self.programs.node(&path) else {
            return;
        };
        let mut parents = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.text.trim_matches(['[', ']']);
            if path.len() == 1 && name == "colibri-mcpd" && self.facts.verbs.contains(text) {
                return;
            }
            if text == "--" || text.starts_with(['>', '<']) {
                return;
            }
            if text.starts_with('-') && text.len() > 1 {
                let flag = text
                    .split('=')
                    .next()
                    .unwrap()
                    .trim_end_matches([',', '.', ';', ':', ')', '…']);
                let known = std::iter::once(&node)
                    .chain(&parents)
                    .find_map(|node| node.flags.get(flag));
                match known {
                    Some(true) if !text.contains('=') => _ = words.next(),
                    Some(_) => {}
                    None if flag.trim_start_matches('-').is_empty() || is_placeholder(flag) => {}
                    None => self.find(
                        word.line,
                        &format!("{} {flag}", path.join(" ")),
                        "no such flag",
                    ),
                }
                continue;
            }
            if is_placeholder(text) || text.is_empty() {
                if node.has_commands {
                    return;
                }
                continue;
            }
            if !node.has_commands {
                if !node.takes_arguments && strictness == Strictness::Line {
                    self.find(
                        word.line,
                        &format!("{} {text}", path.join(" ")),
                        "it takes no arguments",
                    );
                    return;
                }
                continue;
            }
            // A form may name several commands: `enable|disable`.
            let mut next = None;
            for name in text.split('|') {
                let name = name.trim_end_matches([',', '.', ';', ':', ')']);
                let mut longer = path.clone();
                longer.push(name.to_owned());
                match self.programs.node(&longer) {
                    Some(node) => next = Some((longer, node)),
                    None if node.needs_command
                        || strictness == Strictness::Line
                        || path.len() == 1 =>
                    {
                        self.find(word.line, &longer.join(" "), "no such command");
                        return;
                    }
                    None => return,
                }
            }
            let Some((longer, next)) = next else { return };
            parents.push(std::mem::replace(&mut node, next));
            path = longer;
        }
    }

    /// Flags in a variable whose value goes to a program.
    fn flags_of(&self, name: &str, value: &str, line: usize) {
        let words: Vec<Word> = shell::commands(value, line).concat();
        let flags = words.iter().filter(|word| word.text.starts_with("--"));
        for flag in flags {
            self.clap(name, &[flag], Strictness::Line);
        }
    }

    /// The helper's forms are one constant of its sources.
    fn helper(&self, words: &[&Word]) {
        let usage = self
            .facts
            .literals
            .iter()
            .find(|text| text.starts_with("run --session ID --digest"));
        let Some(first) = words.first().filter(|word| !is_placeholder(&word.text)) else {
            return;
        };
        let mut forms: Vec<&str> = usage.map_or(Vec::new(), |usage| usage.split(" | ").collect());
        forms.retain(|form| form.split(' ').next() == Some(first.text.as_str()));
        if forms.is_empty() {
            return self.find(
                first.line,
                &format!("{HELPER} {}", first.text),
                "no such command",
            );
        }
        for word in words.iter().filter(|word| word.text.starts_with("--")) {
            if !forms
                .iter()
                .any(|form| form.split(' ').any(|part| part == word.text))
            {
                self.find(
                    word.line,
                    &format!("{HELPER} {} {}", first.text, word.text),
                    "no such flag",
                );
            }
        }
    }

    fn service(&self, words: &[&Word]) {
        let Some(word) = words.first().filter(|word| !is_placeholder(&word.text)) else {
            return;
        };
        let script = self.facts.text("port/files/colibri_mcp.in");
        let own: Vec<&str> = assignment(script, "extra_commands")
            .split_whitespace()
            .collect();
        let is_known = |name: &str| {
            own.contains(&name)
                || RC_PREFIXES.iter().any(|prefix| {
                    name.strip_prefix(prefix)
                        .is_some_and(|name| RC_COMMANDS.contains(&name) || own.contains(&name))
                })
        };
        if !is_known(&word.text) {
            self.find(
                word.line,
                &format!("service colibri_mcp {}", word.text),
                "no such command of the rc script",
            );
        }
    }

    fn systemctl(&self, words: &[&Word]) {
        let mut words = words.iter().filter(|word| !word.text.starts_with('-'));
        let (Some(command), Some(unit)) = (words.next(), words.next()) else {
            return;
        };
        if !unit.text.starts_with("colibri") {
            return;
        }
        self.unit(unit);
        let reloads = self
            .facts
            .text("deb/colibri-mcpd.service")
            .contains("\nExecReload=");
        let is_known = UNIT_COMMANDS.contains(&command.text.as_str())
            || reloads && ["reload", "reload-or-restart"].contains(&command.text.as_str());
        if !is_known {
            self.find(
                command.line,
                &format!("systemctl {}", command.text),
                "no such command for this unit",
            );
        }
    }

    fn unit(&self, unit: &Word) {
        let name = unit.text.trim_end_matches(".service");
        let is_ours = ["deb", "deb/test.d"].iter().any(|folder| {
            self.facts
                .files
                .contains(&format!("{folder}/{name}.service"))
        });
        if name.starts_with("colibri") && !is_placeholder(name) && !is_ours {
            self.find(unit.line, name, "no such unit");
        }
    }

    fn make_root(&self, words: &[&Word]) {
        let script = self.facts.text("etc/make-root.sh");
        let options = script
            .split("while getopts ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let options = options.unwrap_or_default();
        for word in words.iter().filter(|word| word.text.starts_with('-')) {
            for letter in word.text[1..].chars().take(1) {
                if !options.contains(letter) {
                    self.find(
                        word.line,
                        &format!("{MAKE_ROOT} {}", word.text),
                        "no such option",
                    );
                }
            }
        }
    }

    /// A script or a unit: the variables that hold programs are filled in.
    fn script(&self) {
        let mut text = self.document.text.clone();
        if self.document.form == Form::Unit {
            let lines = text.lines().map(|line| match line.split_once('=') {
                Some((key, value)) if key.starts_with("Exec") => value.to_owned(),
                Some((_, value)) if line.starts_with("Environment=") => value.to_owned(),
                _ if line.starts_with('#') || line.starts_with('[') => String::new(),
                _ => line.to_owned(),
            });
            text = lines.collect::<Vec<_>>().join("\n");
        }
        // Of a makefile the recipes alone, and variables that hold a program.
        if self.document.path.ends_with("Makefile") {
            let lines = text.lines().map(|line| {
                if line.starts_with('\t') || line.starts_with("COMPLETER") {
                    line
                } else {
                    ""
                }
            });
            text = lines.collect::<Vec<_>>().join("\n");
        }
        let mut variables: BTreeMap<String, String> = BTreeMap::new();
        for line in text.lines() {
            if let Some((name, value)) = line.trim().split_once('=') {
                let value = value.trim_matches(['"', '\'', '\t', ' ']);
                if is_program(base_name(value)) && !value.contains(' ') {
                    variables.insert(
                        name.trim_end_matches(['?', ':']).to_owned(),
                        base_name(value).to_owned(),
                    );
                }
            }
        }
        for (name, value) in &variables {
            text = text.replace(&format!("${{{name}}}"), value);
        }
        for words in shell::commands(&text, 1) {
            self.command(&words, Strictness::Line);
            // A variable that holds a command line.
            for word in words
                .iter()
                .filter(|word| is_assignment(&word.text) && !word.text.contains('\n'))
            {
                let value: Vec<Word> =
                    shell::commands(word.text.split_once('=').unwrap().1, word.line).concat();
                let at = value
                    .iter()
                    .position(|word| is_program(base_name(&word.text)));
                if let Some(at) = at.filter(|at| *at + 1 < value.len()) {
                    let rest: Vec<&Word> = value[at + 1..].iter().collect();
                    self.program(base_name(&value[at].text), &rest, Strictness::Line);
                }
            }
        }
    }

    /// The commands that a message names, quoted or not.
    fn message(&self) {
        let text = &self.document.text;
        for name in PROGRAMS.iter().chain([&HELPER]) {
            for (at, _) in text.match_indices(name) {
                let before = text[..at].chars().next_back();
                let rest = &text[at + name.len()..];
                let is_word = before
                    .is_none_or(|letter| !(letter.is_alphanumeric() || letter == '-'))
                    && rest.starts_with(' ');
                if !is_word {
                    continue;
                }
                let end = rest
                    .find(['`', ';', ':', '(', ')', '\n', ',', '"', '\''])
                    .unwrap_or(rest.len());
                let line = self.document.offset + 1;
                let words: Vec<Word> = rest[..end]
                    .split_whitespace()
                    .map(|text| Word {
                        line,
                        text: text.trim_end_matches('.').to_owned(),
                    })
                    .collect();
                let words: Vec<&Word> = words.iter().collect();
                if *name == HELPER {
                    self.helper(&words);
                } else {
                    self.clap(name, &words, Strictness::Sentence);
                }
            }
        }
        for (at, name) in text.match_indices("service colibri_mcp ") {
            let word = text[at + name.len()..]
                .split(|letter: char| !letter.is_ascii_alphanumeric())
                .next();
            let word = Word {
                line: self.document.offset + 1,
                text: word.unwrap_or_default().to_owned(),
            };
            self.service(&[&word]);
        }
    }
}

fn is_our_service(name: &str) -> bool {
    name == "colibri_mcp"
}

fn is_program(name: &str) -> bool {
    PROGRAMS.contains(&name) || name == HELPER || name == SCRIPT
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    })
}

/// A word that stands for others.
pub(super) fn is_placeholder(word: &str) -> bool {
    word.contains(['…', '<', '{', '$', '*'])
        || word.contains("...")
        || word.starts_with(|letter: char| letter.is_ascii_uppercase())
}

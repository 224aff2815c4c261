//! What there is: the words, items, messages and tests of the sources, read as the compiler reads
//! them, and what the packages install.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::messages::fixed_parts;
use crate::product::{packages, rust_files};

/// A message of the product, with where it stands.
pub(super) struct Message {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) text: String,
    /// The texts between its placeholders.
    pub(super) fixed: Vec<String>,
}

/// What a repository has.
#[derive(Default)]
pub(super) struct Facts {
    /// Paths of all files, from the root.
    pub(super) files: BTreeSet<String>,
    /// Contents of the files that are text, but for those of Rust.
    pub(super) texts: BTreeMap<String, String>,
    /// Identifiers, and words of string literals: of sources, scripts and samples. No comments.
    pub(super) words: HashSet<String>,
    /// Types, variants, functions, modules and constants of the product, with the folders of their
    /// packages.
    pub(super) items: BTreeMap<String, BTreeSet<String>>,
    /// The types among them.
    pub(super) types: BTreeMap<String, BTreeSet<String>>,
    pub(super) tests: HashSet<String>,
    /// String literals of the product, its help texts included.
    pub(super) messages: Vec<Message>,
    /// Whole string literals of the product.
    pub(super) literals: HashSet<String>,
    /// Keys that the readers of our files take.
    pub(super) keys: HashSet<String>,
    /// The daemon's verbs that are none of its command line: what it starts itself as, and for
    /// root.
    pub(super) verbs: HashSet<String>,
    /// The opening comments of the libraries.
    pub(super) front_pages: Vec<Message>,
    /// Installed paths: of files, and of directories that the operator fills (these end in a
    /// slash).
    pub(super) installed: BTreeSet<String>,
}

/// Directories in which nothing of ours is read.
const SKIPPED: [&str; 3] = [".git", "target", "node_modules"];

impl Facts {
    pub(super) fn read(root: &Path) -> Facts {
        let mut facts = Facts::default();
        facts.read_files(root, root);
        let products: Vec<PathBuf> = packages(root)
            .iter()
            .map(|package| package.join("src"))
            .collect();
        let sources = rust_files(root);
        let tests: BTreeSet<PathBuf> = sources.iter().flat_map(|path| test_modules(path)).collect();
        for path in sources {
            let relative = path
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            if relative.contains("/sources/names/") {
                continue;
            }
            let tokens: TokenStream = fs::read_to_string(&path).unwrap().parse().unwrap();
            let package = products.iter().find(|folder| path.starts_with(folder));
            let is_product = package.is_some()
                && !tests
                    .iter()
                    .any(|test| path.starts_with(test) || path.with_extension("") == *test);
            let package = package.and_then(|folder| folder.parent()).unwrap_or(root);
            let package = package
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let mut reader = TokenReader {
                facts: &mut facts,
                file: &relative,
                package: &package,
                is_product,
                is_library: relative.ends_with("src/lib.rs") && is_product,
            };
            reader.read(tokens, true);
        }
        facts.read_installed();
        facts
    }

    fn read_files(&mut self, root: &Path, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_symlink() {
                continue;
            }
            let path = entry.path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.read_files(root, &path);
                }
                continue;
            }
            let relative = path
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            self.files.insert(relative.clone());
            let is_text = !name.ends_with(".rs")
                && !relative.starts_with("fuzz/seeds")
                && !relative.contains("corpus/");
            if let Some(text) = is_text.then(|| fs::read_to_string(&path).ok()).flatten() {
                let is_source = [".md", ".lock", ".1", ".5", ".7", ".8"]
                    .iter()
                    .all(|ending| !name.ends_with(ending));
                if is_source {
                    for line in text
                        .lines()
                        .filter(|line| !line.trim_start().starts_with('#'))
                    {
                        self.words.extend(words(line));
                    }
                }
                self.texts.insert(relative, text);
            }
        }
    }

    pub(super) fn text(&self, file: &str) -> &str {
        self.texts.get(file).map_or("", String::as_str)
    }

    /// Reads what the port's list and the Debian package's script install.
    fn read_installed(&mut self) {
        let mut installed = BTreeSet::new();
        for line in self.text("port/pkg-plist").lines() {
            let (mark, path) = match line.strip_prefix('@') {
                Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
                None => ("", line),
            };
            let path = path.replace("%%ETCDIR%%", "etc/colibri");
            let path = if path.starts_with('/') {
                path
            } else {
                format!("/usr/local/{path}")
            };
            match mark {
                _ if mark.starts_with("dir") => _ = installed.insert(format!("{path}/")),
                _ if mark.starts_with("sample") => {
                    installed.insert(path.trim_end_matches(".sample").to_owned());
                    installed.insert(path);
                }
                _ => _ = installed.insert(path),
            }
        }
        // Documents and examples, which the port installs by options, and the rc script, which the
        // framework does.
        let makefile = self.text("port/Makefile").to_owned();
        for name in makefile
            .split_whitespace()
            .filter(|word| word.contains('.') || *word == "sudoers")
        {
            let source = name.rsplit('/').next().unwrap();
            if self.files.contains(&format!("etc/{name}")) || name == "sudoers" {
                installed.insert(format!("/usr/local/share/examples/colibri/{source}"));
            }
        }
        for file in &self.files {
            if let Some(rest) = file
                .strip_prefix("docs/")
                .filter(|rest| rest.ends_with(".md"))
            {
                installed.insert(format!("/usr/local/share/doc/colibri/{rest}"));
            }
            let example = file.strip_prefix("etc/").filter(|rest| rest.contains('/'));
            if let Some(rest) = example {
                installed.insert(format!("/usr/local/share/examples/colibri/{rest}"));
                installed.insert(format!("/usr/share/doc/colibri-mcp/examples/{rest}"));
            }
        }
        for name in assignment(&makefile, "USE_RC_SUBR").split_whitespace() {
            installed.insert(format!("/usr/local/etc/rc.d/{name}"));
        }
        // Debian: `put MODE FILE PLACE`, `packed FILE PLACE`, `install -d … "$root/PLACE"`,
        // redirections to it.
        let build = self
            .text("deb/build")
            .replace("$doc/", "usr/share/doc/colibri-mcp/");
        for line in build.lines() {
            let words: Vec<&str> = line
                .split_whitespace()
                .map(|word| word.trim_matches(['"', ';']))
                .collect();
            match words.as_slice() {
                ["put", _, _, place] | ["packed", _, place] => {
                    installed.insert(format!("/{place}"));
                }
                ["install", "-d", .., place] => {
                    installed.insert(format!("{}/", place.trim_start_matches("$root")));
                }
                _ => {}
            }
        }
        for place in self
            .text("deb/tmpfiles.conf")
            .lines()
            .filter(|line| line.starts_with("d "))
        {
            installed.insert(format!("{}/", place.split_whitespace().nth(1).unwrap()));
        }
        // What scripts of the packages make: files and directories that they have in variables.
        for (path, text) in &self.texts {
            if path.starts_with("port/files/") || path.starts_with("port/pkg-") {
                let values = text
                    .lines()
                    .filter_map(|line| line.split_once('='))
                    .map(|(_, value)| value.trim_matches('"'));
                installed.extend(
                    values
                        .filter(|value| value.starts_with("/var/"))
                        .map(str::to_owned),
                );
            }
        }
        self.installed = installed;
    }
}

/// Modules for tests alone that a source declares and that have a file of their own, as paths
/// without extension.
fn test_modules(path: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(path).unwrap();
    let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("mod" | "lib" | "main") => path.parent().unwrap().to_owned(),
        _ => path.with_extension(""),
    };
    let mut lines = text.lines().skip_while(|line| *line != "#[cfg(test)]");
    let mut modules = Vec::new();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]"
            && let Some(name) = lines
                .next()
                .and_then(|line| line.strip_suffix(';')?.split_once("mod "))
        {
            modules.push(folder.join(name.1));
        }
    }
    modules
}

/// The value of `NAME=` in a makefile or a shell script, or nothing.
pub(super) fn assignment<'a>(text: &'a str, name: &str) -> &'a str {
    let value = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.trim_start_matches(['?', ':']);
        rest.strip_prefix('=')
    });
    value.map_or("", |value| value.trim().trim_matches('"'))
}

/// The words of a text: letters, digits and underscores.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
}

/// Reads the tokens of one file into the facts.
struct TokenReader<'a> {
    facts: &'a mut Facts,
    file: &'a str,
    package: &'a str,
    is_product: bool,
    is_library: bool,
}

/// Whether the next item is a test, or is for tests.
#[derive(Default)]
struct Attributes {
    is_test: bool,
    is_for_tests: bool,
}

impl TokenReader<'_> {
    fn read(&mut self, tokens: TokenStream, is_top: bool) {
        let mut tokens = tokens.into_iter().peekable();
        let mut attributes = Attributes::default();
        let mut previous: Option<String> = None;
        // The name of a constant or of a method, while its value or its arguments are read.
        let mut keys_follow = false;
        let mut verb_follows = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let is_inner = matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == '!');
                    if is_inner {
                        tokens.next();
                    }
                    if let Some(TokenTree::Group(group)) = tokens.peek()
                        && group.delimiter() == Delimiter::Bracket
                    {
                        let group = group.stream();
                        tokens.next();
                        self.read_attribute(group, &mut attributes, is_top && is_inner);
                    }
                }
                TokenTree::Punct(punct) => {
                    if punct.as_char() == ';' {
                        attributes = Attributes::default();
                        keys_follow = false;
                    }
                }
                TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    self.facts.words.insert(name.clone());
                    match previous.as_deref() {
                        Some("fn") if attributes.is_test => {
                            _ = self.facts.tests.insert(name.clone())
                        }
                        _ => {}
                    }
                    let defines = [
                        "struct", "enum", "union", "trait", "type", "mod", "const", "static", "fn",
                    ];
                    if self.is_product
                        && previous
                            .as_deref()
                            .is_some_and(|word| defines.contains(&word))
                    {
                        self.define(&name);
                        let is_type = ["struct", "enum", "union", "trait", "type"]
                            .iter()
                            .any(|word| previous.as_deref() == Some(word));
                        if is_type {
                            let packages = self.facts.types.entry(name.clone()).or_default();
                            packages.insert(self.package.to_owned());
                        }
                    }
                    let is_constant = matches!(previous.as_deref(), Some("const" | "static"));
                    if name == "object"
                        || name == "rules"
                        || is_constant && (name.ends_with("KEYS") || name == "TERM")
                    {
                        keys_follow = true;
                    }
                    verb_follows |= is_constant
                        && name == "ARGUMENT"
                        && self.package == "crates/colibri-confine";
                    previous = Some(name);
                }
                TokenTree::Literal(literal) => {
                    let line = literal.span().start().line;
                    if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                        let text = text.value();
                        self.facts.words.extend(words(&text));
                        if self.is_product && !attributes.is_for_tests {
                            if std::mem::take(&mut verb_follows) {
                                self.facts.verbs.insert(text.clone());
                            }
                            if keys_follow {
                                self.facts.keys.insert(text.clone());
                            }
                            self.facts.literals.insert(text.clone());
                            self.message(line, text);
                        }
                    }
                }
                TokenTree::Group(group) => {
                    let was_product = self.is_product;
                    self.is_product &= !attributes.is_for_tests;
                    if self.is_product && keys_follow {
                        self.read_keys(group.stream());
                    }
                    if self.is_product && group.delimiter() == Delimiter::Brace {
                        self.read_variants(group.stream());
                    }
                    let ends_item = group.delimiter() == Delimiter::Brace;
                    self.read(group.stream(), false);
                    self.is_product = was_product;
                    if ends_item {
                        attributes = Attributes::default();
                        keys_follow = false;
                    }
                }
            }
        }
    }

    fn read_attribute(&mut self, tokens: TokenStream, attributes: &mut Attributes, is_front: bool) {
        let text = tokens.to_string();
        let is_doc = text.starts_with("doc ") || text.starts_with("doc=");
        if !is_doc {
            attributes.is_test |=
                text == "test" || text.ends_with(":: test") || text.starts_with("tokio :: test");
            attributes.is_for_tests |=
                text.starts_with("cfg") && text.contains("test)") || text.contains("(test");
            return self.read(tokens, false);
        }
        for token in tokens {
            if let TokenTree::Literal(literal) = token {
                let line = literal.span().start().line;
                if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                    let text = text.value();
                    if is_front && self.is_library {
                        self.facts.front_pages.push(Message {
                            file: self.file.to_owned(),
                            line,
                            text: text.clone(),
                            fixed: Vec::new(),
                        });
                    }
                    // The help of the programs that have one.
                    let has_help =
                        self.file.contains("/commands/") || self.file.ends_with("config.rs");
                    if self.is_product && has_help && !attributes.is_for_tests {
                        self.message(line, text.trim().to_owned());
                    }
                }
            }
        }
    }

    fn define(&mut self, name: &str) {
        let packages = self.facts.items.entry(name.to_owned()).or_default();
        packages.insert(self.package.to_owned());
    }

    fn message(&mut self, line: usize, text: String) {
        if text.contains(' ') {
            self.facts.messages.push(Message {
                file: self.file.to_owned(),
                line,
                fixed: fixed_parts(&text),
                text,
            });
        }
    }

    fn read_keys(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Literal(literal) => {
                    if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                        self.facts.keys.insert(text.value());
                    }
                }
                TokenTree::Group(group) => self.read_keys(group.stream()),
                _ => {}
            }
        }
    }

    /// Names at the beginning of each part of a list: an enum's variants among them.
    fn read_variants(&mut self, tokens: TokenStream) {
        let mut is_first = true;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if is_first => {
                    let name = ident.to_string();
                    if name.starts_with(|letter: char| letter.is_uppercase()) {
                        self.define(&name);
                    }
                    is_first = false;
                }
                TokenTree::Punct(punct) if matches!(punct.as_char(), ',' | '#' | '|') => {
                    is_first = true
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {}
                _ => is_first = false,
            }
        }
    }
}

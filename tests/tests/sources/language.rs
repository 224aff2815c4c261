//! The language of the product's code (CONTRIBUTING, "Language"): names of types, rooms and files,
//! openings of doc comments, errors that are strings, and `pub` that nobody needs. Run with
//! `--nocapture`, the test prints its figures and, where a figure is over its limit, the places.
//!
//! The product is all of `src` of the programs and of `crates` but what stands below
//! `#[cfg(test)]`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::Span;
use quote::ToTokens;
use syn::visit::{self, Visit};

use crate::product::{packages, repository, rust_files};

/// The most type names that are defined in more than one file.
const SHARED_NAMES: usize = 4;
/// The most doc comments of a hundred that open with a question word.
const OPENERS_PERCENT: usize = 1;
/// The most functions that return a string as their error.
const STRING_ERRORS: usize = 25;
/// The most public functions and constants of a library that no other crate names.
const NEEDLESS_PUBLIC: usize = 5;
/// The most types named by a bare participle or question word.
const PARTICIPLES: usize = 0;

/// Words for which the field has another one: CONTRIBUTING, "Language".
const WORDS: [&str; 45] = [
    "ask",
    "asked",
    "asking",
    "asks",
    "bridged",
    "bring",
    "brought",
    "doer",
    "door",
    "dropped",
    "grave",
    "guest",
    "held",
    "hold",
    "inside",
    "judged",
    "judgement",
    "keeper",
    "keeping",
    "kept",
    "lasting",
    "lessened",
    "noticing",
    "offer",
    "offered",
    "offers",
    "settled",
    "share",
    "shares",
    "shelf",
    "sought",
    "spending",
    "spent",
    "standing",
    "tells",
    "told",
    "turn",
    "turns",
    "undone",
    "visitor",
    "visitors",
    "wanted",
    "watching",
    "ways",
    "whom",
];

/// Names that have one of the words and keep it, with the reason.
const EXCEPTIONS: [(&str, &str); 4] = [
    ("door", "the command that users type"),
    ("DoorArguments", "the arguments of that command"),
    ("TaskShare", "the flag `--share` that users type"),
    ("ParseShare", "reads that flag's value"),
];

/// Words with which no doc comment opens.
const QUESTION_WORDS: [&str; 11] = [
    "How", "That", "What", "When", "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why",
];

/// Names that are no noun although they end like one of the language's nouns would not: irregular
/// participles.
const IRREGULAR: [&str; 32] = [
    "Again",
    "Begun",
    "Built",
    "Chosen",
    "Done",
    "Drawn",
    "Driven",
    "Found",
    "Given",
    "Gone",
    "Heard",
    "Held",
    "Hidden",
    "Kept",
    "Known",
    "Lost",
    "Made",
    "Met",
    "Over",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Sought",
    "Spent",
    "Taken",
    "Told",
    "Undone",
    "Way",
    "Written",
    "Unwritten",
    "Unsaid",
];

/// Nouns that end in "ed".
const NOUNS_IN_ED: [&str; 8] = [
    "Bed", "Feed", "Need", "Seed", "Shed", "Speed", "Thread", "Unsynced",
];

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && {
            let condition = attribute.meta.to_token_stream().to_string();
            condition.contains("(test)") || condition.contains("all (test")
        }
    })
}

/// A place in a source: file from the root of the repository, and line.
type Place = (String, usize);

/// The product's items of one file.
#[derive(Default)]
struct Items {
    file: String,
    /// Modules below `#[cfg(test)]` with a file of their own.
    test_modules: Vec<String>,
    types: Vec<(String, Place)>,
    /// First line of each doc comment.
    docs: Vec<(String, Place)>,
    string_errors: Vec<Place>,
    public: Vec<(String, Place)>,
}

impl Items {
    fn place(&self, span: Span) -> Place {
        (self.file.clone(), span.start().line)
    }

    fn define(&mut self, name: &syn::Ident) {
        self.types.push((name.to_string(), self.place(name.span())));
    }

    fn export(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        if matches!(visibility, syn::Visibility::Public(_)) {
            self.public
                .push((name.to_string(), self.place(name.span())));
        }
    }

    fn function(&mut self, visibility: &syn::Visibility, signature: &syn::Signature) {
        self.export(visibility, &signature.ident);
        self.signature(signature);
    }

    fn signature(&mut self, signature: &syn::Signature) {
        let syn::ReturnType::Type(_, output) = &signature.output else {
            return;
        };
        let output = output.to_token_stream().to_string();
        let strings = [", String >", ", & 'static str >", ", & str >"];
        if output.contains("Result <") && strings.iter().any(|error| output.contains(error)) {
            self.string_errors.push(self.place(signature.ident.span()));
        }
    }

    fn read_docs(&mut self, attributes: &[syn::Attribute]) {
        let text = attributes
            .iter()
            .find_map(|attribute| match &attribute.meta {
                syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                    syn::Expr::Lit(syn::ExprLit {
                        lit: syn::Lit::Str(text),
                        ..
                    }) => Some((text.value(), text.span())),
                    _ => None,
                },
                _ => None,
            });
        if let Some((text, span)) = text {
            self.docs.push((text.trim().to_owned(), self.place(span)));
        }
    }
}

/// Visits what is the product's, and passes over what is a test's.
macro_rules! visit_product {
    ($($visit:ident: $kind:ident, $read:expr;)*) => { $(
        fn $visit(&mut self, item: &'ast syn::$kind) {
            if is_for_tests(&item.attrs) {
                return;
            }
            self.read_docs(&item.attrs);
            let read: fn(&mut Items, &syn::$kind) = $read;
            read(self, item);
            visit::$visit(self, item);
        }
    )* };
}

impl<'ast> Visit<'ast> for Items {
    visit_product! {
        visit_item_struct: ItemStruct, |items, item| items.define(&item.ident);
        visit_item_enum: ItemEnum, |items, item| items.define(&item.ident);
        visit_item_union: ItemUnion, |items, item| items.define(&item.ident);
        visit_item_trait: ItemTrait, |items, item| items.define(&item.ident);
        visit_item_type: ItemType, |items, item| items.define(&item.ident);
        visit_item_const: ItemConst, |items, item| items.export(&item.vis, &item.ident);
        visit_item_static: ItemStatic, |items, item| items.export(&item.vis, &item.ident);
        visit_item_fn: ItemFn, |items, item| items.function(&item.vis, &item.sig);
        visit_impl_item_fn: ImplItemFn, |items, item| items.function(&item.vis, &item.sig);
        visit_trait_item_fn: TraitItemFn, |items, item| items.signature(&item.sig);
        visit_item_impl: ItemImpl, |_, _| ();
        visit_item_use: ItemUse, |_, _| ();
        visit_impl_item_const: ImplItemConst, |items, item| items.export(&item.vis, &item.ident);
        visit_field: Field, |_, _| ();
        visit_variant: Variant, |_, _| ();
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) {
            if item.content.is_none() {
                self.test_modules.push(item.ident.to_string());
            }
            return;
        }
        self.read_docs(&item.attrs);
        visit::visit_item_mod(self, item);
    }
}

/// The whole of the product, as its sources say.
#[derive(Default)]
struct Census {
    files: Vec<String>,
    types: BTreeMap<String, Vec<Place>>,
    docs: Vec<(String, Place)>,
    string_errors: Vec<Place>,
    /// Public functions and constants of libraries that no other crate, test or benchmark names.
    needless_public: Vec<(String, Place)>,
}

impl Census {
    fn take() -> Census {
        let root = repository();
        let relative = |path: &Path| {
            path.strip_prefix(&root)
                .unwrap()
                .to_string_lossy()
                .into_owned()
        };
        let mut census = Census::default();
        let mut public = Vec::new();
        // Words of each file, to see who names an item.
        let mut words: HashMap<String, BTreeSet<PathBuf>> = HashMap::new();
        let mut count_words = |owner: &Path, text: &str| {
            for word in text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')) {
                words
                    .entry(word.to_owned())
                    .or_default()
                    .insert(owner.to_owned());
            }
        };
        for folder in ["tests", "fuzz"] {
            for file in rust_files(&root.join(folder)) {
                count_words(&root.join(folder), &fs::read_to_string(file).unwrap());
            }
        }
        for package in packages(&root) {
            let source = package.join("src");
            for folder in ["tests", "benches", "examples"] {
                for file in rust_files(&package.join(folder)) {
                    count_words(&package.join(folder), &fs::read_to_string(file).unwrap());
                }
            }
            let programs = program_modules(&source);
            let mut modules = Vec::new();
            for path in rust_files(&source) {
                let text = fs::read_to_string(&path).unwrap();
                let is_program = programs.iter().any(|program| {
                    path.starts_with(program) || path == program.with_extension("rs")
                });
                count_words(if is_program { &path } else { &source }, &text);
                let parsed = syn::parse_file(&text)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let mut items = Items {
                    file: relative(&path),
                    ..Items::default()
                };
                items.read_docs(&parsed.attrs);
                items.visit_file(&parsed);
                modules.push((path, items));
            }
            let tests: Vec<PathBuf> = modules
                .iter()
                .flat_map(|(path, items)| {
                    items
                        .test_modules
                        .iter()
                        .map(|name| module_file(path, name))
                })
                .collect();
            let is_library = source.join("lib.rs").exists();
            for (path, items) in modules {
                if tests
                    .iter()
                    .any(|test| path.starts_with(test) || path == test.with_extension("rs"))
                {
                    continue;
                }
                census.files.push(items.file.clone());
                for (name, place) in items.types {
                    census.types.entry(name).or_default().push(place);
                }
                census.docs.extend(items.docs);
                census.string_errors.extend(items.string_errors);
                if is_library
                    && !programs.iter().any(|program| {
                        path.starts_with(program) || path == program.with_extension("rs")
                    })
                {
                    public.extend(items.public.into_iter().map(|item| (source.clone(), item)));
                }
            }
        }
        let is_named_elsewhere =
            |source: &Path, name: &str| words[name].iter().any(|owner| owner != source);
        let needless = public
            .into_iter()
            .filter(|(source, (name, _))| !is_named_elsewhere(source, name));
        census.needless_public = needless.map(|(_, item)| item).collect();
        census
    }
}

/// Modules of the programs of a package that has a library as well, as paths without extension.
fn program_modules(source: &Path) -> Vec<PathBuf> {
    let main = fs::read_to_string(source.join("main.rs")).unwrap_or_default();
    let declared = main
        .lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    declared
        .chain(["main", "bin"])
        .map(|name| source.join(name))
        .collect()
}

/// Path of a module without its extension, from the file that declares it.
fn module_file(parent: &Path, name: &str) -> PathBuf {
    let stem = parent.file_stem().unwrap().to_string_lossy();
    match stem.as_ref() {
        "mod" | "lib" | "main" => parent.with_file_name(name),
        _ => parent.with_extension("").join(name),
    }
}

/// The words of `HelpText` or of `help_text`, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter.is_uppercase() || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().unwrap().extend(letter.to_lowercase());
        }
    }
    words
}

fn is_participle(name: &str) -> bool {
    let regular = name.ends_with("ed")
        && words_of(name)
            .iter()
            .filter(|word| !word.is_empty())
            .count()
            == 1;
    (regular && !NOUNS_IN_ED.contains(&name))
        || IRREGULAR.contains(&name)
        || QUESTION_WORDS.contains(&name)
}

/// A figure with its limit, and where it comes from.
struct Figure {
    name: &'static str,
    count: usize,
    limit: usize,
    places: Vec<String>,
}

impl Figure {
    fn of(name: &'static str, limit: usize, places: Vec<String>) -> Figure {
        Figure {
            name,
            count: places.len(),
            limit,
            places,
        }
    }
}

fn show((file, line): &Place) -> String {
    format!("{file}:{line}")
}

fn show_named((name, place): &(String, Place)) -> String {
    format!("{} {name}", show(place))
}

fn figures(census: &Census) -> Vec<Figure> {
    let types = || {
        census
            .types
            .iter()
            .flat_map(|(name, places)| places.iter().map(move |place| (name, place)))
    };
    let participles = types()
        .filter(|(name, _)| is_participle(name))
        .map(|(name, place)| format!("{} {name}", show(place)));
    let shared = census.types.iter().filter_map(|(name, places)| {
        let files: BTreeSet<&str> = places.iter().map(|(file, _)| file.as_str()).collect();
        (files.len() > 1).then(|| {
            format!(
                "{name}: {}",
                places.iter().map(show).collect::<Vec<_>>().join(" ")
            )
        })
    });
    let has_word = |name: &str| {
        let words = words_of(name);
        words.iter().any(|word| WORDS.contains(&word.as_str()))
            && !EXCEPTIONS.iter().any(|(exception, _)| *exception == name)
    };
    let files = census.files.iter().flat_map(|file| {
        let path = file
            .split_once("src/")
            .map_or("", |(_, path)| path)
            .trim_end_matches(".rs");
        path.split('/')
            .filter(|name| has_word(name))
            .map(move |name| format!("{file} {name}"))
            .collect::<Vec<_>>()
    });
    let first_word = |text: &str| {
        text.split(|letter: char| !letter.is_alphanumeric())
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let openers: Vec<String> = census
        .docs
        .iter()
        .filter(|(text, _)| QUESTION_WORDS.contains(&first_word(text).as_str()))
        .map(show_named)
        .collect();
    let opening = |text: &str| {
        let rest = ["A ", "An ", "The "]
            .iter()
            .find_map(|article| text.strip_prefix(article))
            .unwrap_or(text);
        first_word(rest).to_lowercase()
    };
    let opened_by_words = census
        .docs
        .iter()
        .filter(|(text, _)| WORDS.contains(&opening(text).as_str()));
    vec![
        Figure::of(
            "types named by participles or question words",
            PARTICIPLES,
            participles.collect(),
        ),
        Figure::of(
            "type names with several meanings",
            SHARED_NAMES,
            shared.collect(),
        ),
        Figure {
            name: "doc comments of 100 that open with a question word",
            count: (100 * openers.len()).div_ceil(census.docs.len()),
            limit: OPENERS_PERCENT,
            places: openers,
        },
        Figure::of(
            "types, rooms and files named by words of the left column",
            0,
            types()
                .filter(|(name, _)| has_word(name))
                .map(|(name, place)| format!("{} {name}", show(place)))
                .chain(files)
                .collect(),
        ),
        Figure::of(
            "doc comments that open with a word of the left column",
            0,
            opened_by_words.map(show_named).collect(),
        ),
        Figure::of(
            "functions with a string as their error",
            STRING_ERRORS,
            census.string_errors.iter().map(show).collect(),
        ),
        Figure::of(
            "public functions and constants that no other crate names",
            NEEDLESS_PUBLIC,
            census.needless_public.iter().map(show_named).collect(),
        ),
    ]
}

#[test]
fn the_language_of_the_code_is_the_fields() {
    let census = Census::take();
    let mut over = Vec::new();
    for figure in figures(&census) {
        println!(
            "{:>6} of at most {:>6}: {}",
            figure.count, figure.limit, figure.name
        );
        if figure.count > figure.limit {
            over.push(format!(
                "{}: {} of at most {}\n{}",
                figure.name,
                figure.count,
                figure.limit,
                figure.places.join("\n")
            ));
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n\n"));
}

#[test]
fn a_breach_would_be_found() {
    assert!(is_participle("Kept") && is_participle("Loaded") && is_participle("Which"));
    assert!(!is_participle("Feed") && !is_participle("LoadedFile") && !is_participle("Session"));
    assert_eq!(words_of("HeldCall").join(" "), " held call");
    let mut items = Items::default();
    let source = "/// What is read.\npub struct Asked;\npub fn read() -> Result<(), String> { Ok(()) }\n#[cfg(test)]\nmod tests {\n    struct Kept;\n}\n";
    items.visit_file(&syn::parse_file(source).unwrap());
    assert_eq!(
        items
            .types
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>(),
        ["Asked"]
    );
    assert_eq!(items.docs[0].0, "What is read.");
    assert_eq!(items.string_errors.len(), 1);
}

//! A server as a source has it, before it is one of ours.

use std::collections::BTreeMap;

use super::secret::{looks_secret, name_says_secret};
use super::template::{Template, TemplateValues};

/// The keys that lead to an entry of a file, outermost first.
pub type EntryKeys = Vec<String>;

/// One server of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// Its name, as the source has it.
    pub name: String,
    /// The keys that lead to its entry in the file; none where there is no such entry.
    pub keys: EntryKeys,
    /// The way in which it is reached; or the reason for which it cannot become an entry.
    pub runs: Result<Runs, String>,
    /// The values that its templates need, by key.
    pub wants: BTreeMap<String, Want>,
    /// The facts of the source that an entry does not have, a sentence each.
    pub notes: Vec<String>,
    /// Names of tools that alone may be called, and that may not.
    pub tools: (Vec<String>, Vec<String>),
    /// `timeout_ms` of the entry.
    pub timeout_ms: Option<u64>,
    /// True if the source has it turned off.
    pub disabled: bool,
    /// True if a stranger wrote the source: it was published, or comes with a project. Then no name
    /// in it says what is kept from the person who agrees to it.
    pub is_foreign: bool,
    /// The address from which its bundle was fetched.
    pub published_at: Option<String>,
}

impl Proposal {
    /// A server of which nothing more is said than how it is reached.
    pub fn new(name: impl Into<String>, runs: anyhow::Result<Runs>) -> Proposal {
        Proposal {
            name: name.into(),
            keys: Vec::new(),
            runs: runs.map_err(|error| format!("{error:#}")),
            wants: BTreeMap::new(),
            notes: Vec::new(),
            tools: (Vec::new(), Vec::new()),
            timeout_ms: None,
            disabled: false,
            is_foreign: false,
            published_at: None,
        }
    }

    /// The same by its bundle, which was fetched.
    #[must_use]
    pub fn by_bundle(mut self, bundle: Proposal) -> Proposal {
        let env = match self.runs {
            Ok(Runs::Published(published)) => {
                self.published_at = Some(published.url);
                published.env
            }
            _ => BTreeMap::new(),
        };
        self.runs = bundle.runs.map(|mut runs| {
            if let Runs::Process(process) = &mut runs {
                process.env.extend(env);
            }
            runs
        });
        self.wants.extend(bundle.wants);
        self.notes.extend(bundle.notes);
        self
    }

    /// True if it is Colibri itself, as an editor has it: no server of anybody's.
    pub fn is_colibri(&self) -> bool {
        let Ok(Runs::Process(process)) = &self.runs else {
            return false;
        };
        match &process.program {
            ProposedProgram::Command(command) => command
                .plain()
                .is_some_and(|path| path.rsplit('/').next() == Some("colibri-mcp")),
            _ => false,
        }
    }

    /// The number of secrets that stand in the source itself, in plain text.
    pub fn plain_secrets(&self) -> usize {
        let fields = match &self.runs {
            Ok(Runs::Process(process)) => &process.env,
            Ok(Runs::Remote(remote)) => &remote.headers,
            Ok(Runs::Published(_)) | Err(_) => return 0,
        };
        let is_secret = |name: &str, text: &str| {
            !text.is_empty() && (name_says_secret(name) || looks_secret(text))
        };
        let stands = |(name, field): &(&String, &Field)| {
            field.text.plain().is_some_and(|text| is_secret(name, text))
        };
        fields.iter().filter(stands).count()
    }

    /// The required values that have neither an answer nor a default.
    pub fn missing(&self, answers: &TemplateValues) -> Vec<&str> {
        let Ok(runs) = &self.runs else {
            return Vec::new();
        };
        let needed = runs.keys();
        self.wants
            .iter()
            .filter(|(key, want)| want.required && needed.contains(key.as_str()))
            .filter(|(key, want)| !answers.contains_key(*key) && want.default.is_none())
            .map(|(key, _)| key.as_str())
            .collect()
    }
}

/// The transport of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum Runs {
    /// A process with stdio pipes.
    Process(Box<ProposedProcess>),
    /// An address.
    Remote(ProposedRemote),
    /// A bundle that is fetched first, and says itself how it is reached.
    Published(PublishedBundle),
}

impl Runs {
    /// The keys that its templates ask for.
    pub fn keys(&self) -> std::collections::BTreeSet<&str> {
        let (texts, fields): (Vec<&Template>, _) = match self {
            Runs::Process(process) => {
                let program = match &process.program {
                    ProposedProgram::Command(command) => Some(command),
                    ProposedProgram::Package(_) | ProposedProgram::Bundled { .. } => None,
                };
                let texts = program.into_iter().chain(&process.args).chain(&process.cwd);
                (texts.collect(), &process.env)
            }
            Runs::Remote(remote) => (vec![&remote.url], &remote.headers),
            Runs::Published(published) => (Vec::new(), &published.env),
        };
        let fields = fields.values().map(|field| &field.text);
        texts
            .into_iter()
            .chain(fields)
            .flat_map(Template::keys)
            .collect()
    }
}

/// A server that is a process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProposedProcess {
    /// The executed program.
    pub program: ProposedProgram,
    /// Its arguments.
    pub args: Vec<Template>,
    /// Its environment.
    pub env: BTreeMap<String, Field>,
    /// Its working directory.
    pub cwd: Option<Template>,
}

/// The executed program.
#[derive(Debug, Clone, PartialEq)]
pub enum ProposedProgram {
    /// A program of this machine, by path or by name.
    Command(Template),
    /// A program of a package that is installed first.
    Package(Package),
    /// A program of the bundle that is unpacked first.
    Bundled {
        /// `node`, `python3`, or a path with `${__dirname}`.
        command: Template,
        /// Packages of PyPI that are installed for it.
        requirements: Vec<String>,
        /// True if it runs in an environment with these packages, however few.
        venv: bool,
    },
}

/// A package and the program in it that is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// The registry that publishes it.
    pub registry: PackageRegistry,
    /// Its name there, with extras if it has some: `@scope/name`, `name[extra]`.
    pub name: String,
    /// The version, a range or a tag; `None`: the newest.
    pub version: Option<String>,
    /// The program; `None`: the one of its name.
    pub program: Option<String>,
    /// Further packages that are installed beside it, as the runner was told.
    pub with: Vec<String>,
}

/// The registry that publishes a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageRegistry {
    /// registry.npmjs.org, or what npm(1) is configured for.
    Npm,
    /// pypi.org, or what pip(1) is configured for.
    Pypi,
}

/// A bundle that is published at an address.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedBundle {
    /// The address.
    pub url: String,
    /// The SHA-256 that it must have.
    pub sha256: String,
    /// The variables of its environment besides those of the bundle.
    pub env: BTreeMap<String, Field>,
}

/// A server behind an address.
#[derive(Debug, Clone, PartialEq)]
pub struct ProposedRemote {
    /// The address.
    pub url: Template,
    /// Headers of each request.
    pub headers: BTreeMap<String, Field>,
    /// True if it speaks HTTP+SSE of 2024-11-05.
    pub sse: bool,
}

/// A value of the environment, or of a header.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The value.
    pub text: Template,
    /// True if the source calls it a secret.
    pub secret: bool,
    /// True if it is left out when what it asks for has no answer.
    pub optional: bool,
}

/// The value that a template needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Want {
    /// True if it is a secret.
    pub secret: bool,
    /// True if the server cannot be without it.
    pub required: bool,
    /// Its description, as the source gives it.
    pub description: String,
    /// Its value if nobody gives another.
    pub default: Option<String>,
    /// The permitted values; empty: any.
    pub choices: Vec<String>,
}

//! An entry of an editor's file. All editors have much the same keys; what each calls them, and how
//! it writes gaps, is its [`Dialect`].

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value};

use super::container::{check_container, container_runner, hide_secrets};
use super::proposal::{
    Field, Proposal, ProposedProcess, ProposedProgram, ProposedRemote, Runs, Want,
};
use super::runner;
use super::secret::name_says_secret;
use super::template::{Template, TemplatePart};

/// The names in an editor's files.
#[derive(Clone, Copy)]
pub(super) struct Dialect {
    /// Keys of an address, with whether each is one of HTTP+SSE unless `type` says otherwise.
    pub urls: &'static [(&'static str, bool)],
    /// Key of the environment.
    pub env: &'static str,
    /// Key of the headers.
    pub headers: &'static str,
    /// Names of tools that alone are offered, and that are not.
    pub tools: (&'static str, &'static str),
    /// A time limit of calls, and its milliseconds.
    pub timeout: Option<(&'static str, u64)>,
    /// The template of text that is known only where the file is used.
    pub gaps: fn(&str) -> Template,
    /// Keys that say nothing of how the server runs.
    pub silent: &'static [&'static str],
}

/// Keys that every editor may write and that change nothing here.
const SILENT: &[&str] = &[
    "type",
    "transport",
    "name",
    "description",
    "disabled",
    "enabled",
    "isActive",
    "alwaysAllow",
    "autoApprove",
];

/// Text without gaps.
pub(super) fn no_gaps(text: &str) -> Template {
    Template::from(text)
}

/// `${env:NAME}`, `${NAME}`, `${NAME:-default}`, `${userHome}`, `${input:id}`: what Claude Code,
/// Cursor, Windsurf and VS Code write, and nobody writes by chance.
pub(super) fn dollar_gaps(text: &str) -> Template {
    Template::read(text, "${", '}', |name| {
        let (key, default) = match name.split_once(":-") {
            Some((key, default)) => (key, Some(default.to_owned())),
            None => (name, None),
        };
        let key = key
            .strip_prefix("env:")
            .or_else(|| key.strip_prefix("input:"))
            .unwrap_or(key);
        if key.starts_with("file:") {
            return Some(gap(key, default));
        }
        match key {
            "pathSeparator" | "/" => return Some(TemplatePart::Text("/".to_owned())),
            "userHome" => return Some(gap("HOME", None)),
            _ => {}
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        (!key.is_empty() && key.chars().all(legal)).then(|| gap(key, default))
    })
}

/// A gap.
pub(super) fn gap(key: &str, default: Option<String>) -> TemplatePart {
    let key = key.to_owned();
    TemplatePart::Gap { key, default }
}

/// The members of an object at `path`, below the members of objects.
pub(super) fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Map<String, Value>> {
    path.iter()
        .try_fold(value, |value, key| value.get(key))?
        .as_object()
}

/// Proposals of all entries below a key.
pub(super) fn servers(entries: &Map<String, Value>, dialect: &Dialect) -> Vec<Proposal> {
    entries
        .iter()
        .map(|(name, entry)| server(name, entry, dialect))
        .collect()
}

/// The proposal of an entry.
pub(super) fn server(name: &str, entry: &Value, dialect: &Dialect) -> Proposal {
    let Some(keys) = entry.as_object() else {
        return Proposal::new(name, Err(anyhow!("its entry is not an object")));
    };
    let mut proposal = Proposal::new(name, runs(keys, dialect));
    proposal.disabled = keys.get("disabled") == Some(&Value::Bool(true))
        || keys.get("enabled") == Some(&Value::Bool(false));
    proposal.tools = (
        words(keys.get(dialect.tools.0)),
        words(keys.get(dialect.tools.1)),
    );
    proposal.timeout_ms = dialect.timeout.and_then(|(key, unit)| {
        let limit = keys
            .get(key)
            .and_then(Value::as_f64)
            .filter(|limit| *limit >= 0.001)?;
        Some(((limit * unit as f64) as u64).clamp(1, 86_400_000))
    });
    proposal.notes = notes(keys, dialect);
    ask_for_gaps(&mut proposal);
    proposal
}

/// Every gap that nobody has described is one that must be filled, a secret by its name.
pub(super) fn ask_for_gaps(proposal: &mut Proposal) {
    let Ok(runs) = &proposal.runs else { return };
    let keys: Vec<String> = runs.keys().into_iter().map(str::to_owned).collect();
    for key in keys {
        let secret = name_says_secret(&key);
        proposal.wants.entry(key).or_insert_with(|| Want {
            secret,
            required: true,
            ..Want::default()
        });
    }
}

fn notes(keys: &Map<String, Value>, dialect: &Dialect) -> Vec<String> {
    let known = [
        "command",
        "args",
        "cwd",
        dialect.env,
        dialect.headers,
        dialect.tools.0,
        dialect.tools.1,
    ];
    let known = |key: &str| {
        known.contains(&key)
            || SILENT.contains(&key)
            || dialect.silent.contains(&key)
            || dialect.urls.iter().any(|(url, _)| *url == key)
            || dialect.timeout.is_some_and(|(timeout, _)| timeout == key)
    };
    let unknown: Vec<String> = keys
        .keys()
        .filter(|key| !known(key))
        .map(|key| colibri_text::brief(key, 40).to_string())
        .collect();
    match unknown.as_slice() {
        [] => Vec::new(),
        _ => vec![format!(
            "left out, since an entry has nothing like it: {}",
            unknown.join(", ")
        )],
    }
}

fn runs(keys: &Map<String, Value>, dialect: &Dialect) -> anyhow::Result<Runs> {
    let url = dialect
        .urls
        .iter()
        .find_map(|(key, sse)| Some((keys.get(*key)?, *sse)));
    match (keys.get("command"), url) {
        (Some(_), Some(_)) => Err(anyhow!("it has both a command and an address")),
        (None, None) => Err(anyhow!("it has neither a command nor an address")),
        (Some(command), None) => process(command, keys, dialect),
        (None, Some((url, sse))) => {
            let sse = match keys
                .get("type")
                .or_else(|| keys.get("transport"))
                .and_then(Value::as_str)
            {
                Some("sse") => true,
                Some(_) => false,
                None => sse,
            };
            let url = url.as_str().context("its address is not a string")?;
            if keys.get("headersHelper").is_some() {
                bail!(
                    "a program makes its headers anew for each request (headersHelper): not supported"
                );
            }
            Ok(Runs::Remote(ProposedRemote {
                url: (dialect.gaps)(url),
                headers: fields(keys.get(dialect.headers), dialect)?,
                sse,
            }))
        }
    }
}

fn process(command: &Value, keys: &Map<String, Value>, dialect: &Dialect) -> anyhow::Result<Runs> {
    // OpenCode has all words in one list, others the program alone.
    let mut words: Vec<Template> = match command {
        Value::String(command) => vec![(dialect.gaps)(command)],
        Value::Array(_) => texts(Some(command), dialect)?,
        _ => bail!("its command is not a string"),
    };
    words.extend(texts(keys.get("args"), dialect)?);
    let mut words = words.into_iter();
    let command = words.next().filter(|command| command.plain() != Some(""));
    let command = command.context("its command is empty")?;
    let cwd = match keys.get("cwd") {
        None | Some(Value::Null) => None,
        Some(Value::String(cwd)) => Some((dialect.gaps)(cwd)),
        Some(_) => bail!("its cwd is not a string"),
    };
    let env = fields(keys.get(dialect.env), dialect)?;
    if keys.get("envFile").is_some() {
        bail!("it reads its environment from a file (envFile): name its variables with --env");
    }
    process_of(command, words.collect(), env, cwd)
}

/// A process by the words of its command line: what a runner would fetch becomes a package.
pub(super) fn process_of(
    command: Template,
    args: Vec<Template>,
    env: BTreeMap<String, Field>,
    cwd: Option<Template>,
) -> anyhow::Result<Runs> {
    let (args, env) = match command.plain().and_then(container_runner) {
        Some(runner) => {
            check_container(runner, cfg!(target_os = "freebsd"))?;
            hide_secrets(args, env)
        }
        None => (args, env),
    };
    let (program, args) = match runner::package(&command, &args)? {
        Some((package, args)) => (ProposedProgram::Package(package), args),
        None => (ProposedProgram::Command(command), args),
    };
    Ok(Runs::Process(Box::new(ProposedProcess {
        program,
        args,
        env,
        cwd,
    })))
}

fn texts(list: Option<&Value>, dialect: &Dialect) -> anyhow::Result<Vec<Template>> {
    let list = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => bail!("its arguments are not a list"),
    };
    let text = |item: &Value| scalar(item).map(|text| (dialect.gaps)(&text));
    list.iter()
        .map(|item| text(item).context("one of its arguments is not a string"))
        .collect()
}

fn words(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

fn fields(object: Option<&Value>, dialect: &Dialect) -> anyhow::Result<BTreeMap<String, Field>> {
    let members = match object {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(members)) => members,
        Some(_) => bail!("its environment or headers are not an object"),
    };
    let mut fields = BTreeMap::new();
    for (name, value) in members {
        // What editors write for a variable that is not to be set.
        if value.is_null() {
            continue;
        }
        let text = scalar(value).with_context(|| {
            format!(
                "the value of {} is not a string",
                colibri_text::brief(name, 40)
            )
        })?;
        let field = Field {
            text: (dialect.gaps)(&text),
            secret: false,
            optional: false,
        };
        fields.insert(name.clone(), field);
    }
    Ok(fields)
}

/// A string, or what people write without quotes.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// The gap that stands for the directory to which a bundle is unpacked.
pub(super) const DIRECTORY: &str = "__dirname";

/// Refuses a variable of a stranger's manifest for which an interpreter, or the dynamic linker,
/// loads code: in any case, or from a path that is not in the bundle.
///
/// # Errors
/// It is one.
pub(super) fn check_variable(name: &str, value: &Template) -> anyhow::Result<()> {
    const LOADS: [&str; 13] = [
        "BASH_ENV",
        "BUNDLE_GEMFILE",
        "ENV",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "LUA_CPATH",
        "LUA_INIT",
        "LUA_PATH",
        "NODE_OPTIONS",
        "NODE_REPL_EXTERNAL_MODULE",
        "PERL5DB",
        "PERL5OPT",
        "RUBYOPT",
    ];
    const PATHS: [&str; 13] = [
        "CLASSPATH",
        "GCONV_PATH",
        "GEM_HOME",
        "GEM_PATH",
        "NODE_PATH",
        "OPENSSL_CONF",
        "OPENSSL_ENGINES",
        "OPENSSL_MODULES",
        "PATH",
        "PERL5LIB",
        "PERLLIB",
        "PYTHONPATH",
        "RUBYLIB",
    ];
    // Of Python's, which are many and become more, those that load nothing.
    const HARMLESS: [&str; 9] = [
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONFAULTHANDLER",
        "PYTHONHASHSEED",
        "PYTHONIOENCODING",
        "PYTHONNOUSERSITE",
        "PYTHONOPTIMIZE",
        "PYTHONSAFEPATH",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
    ];
    let begins = ["LD_", "DYLD_", "PYTHON"]
        .iter()
        .any(|start| name.starts_with(start));
    let is_refused = match name {
        _ if PATHS.contains(&name) => !is_below_directory(value),
        _ if HARMLESS.contains(&name) => false,
        _ => begins || LOADS.contains(&name),
    };
    match is_refused {
        true => Err(anyhow!(
            "its variable {} has an interpreter load what is not in it",
            colibri_text::brief(name, 40)
        )),
        false => Ok(()),
    }
}

/// True if each of the paths, between colons, is one below the directory of the bundle.
fn is_below_directory(paths: &Template) -> bool {
    let mut text = String::new();
    for piece in &paths.0 {
        match piece {
            TemplatePart::Text(part) => text.push_str(part),
            // No text of a manifest has a NUL that the system would take.
            TemplatePart::Gap { key, .. } if key == DIRECTORY => text.push('\0'),
            TemplatePart::Gap { .. } => return false,
        }
    }
    text.split(':').all(|path| match path.strip_prefix('\0') {
        Some("") => true,
        Some(below) => {
            below.starts_with('/')
                && !below.contains('\0')
                && below.split('/').all(|part| part != "..")
        }
        None => false,
    })
}

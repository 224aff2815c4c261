//! `colibri-mcp agent add`: an agent on one's own machine, as the examples in `etc/agents` have it.

use std::fs::DirBuilder;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::connect::own_path;
use super::context::CommandContext;
use super::write_gate;
use crate::failure::CommandError;
use crate::install::{self, InstallScope};
use crate::interrupt;
use crate::owned_file::{OwnedFile, agree};
use colibri_api::{is_header_value, paths};
use colibri_mcp::edit::{FileFormat, to_write};
use colibri_mcp::importers::Want;
use colibri_text::visible;

/// The keys of an entry, in the order in which they are written.
const KEYS: [&str; 10] = [
    "command", "args", "env", "cwd", "stdin", "events", "model", "tools", "budget", "max",
];
/// The directories in which programs are that PATH may not name.
const USUAL: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// An agent for which an example is shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShippedAgent {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// OpenCode
    Opencode,
}

/// The agent, and what differs from its example.
#[derive(Debug, clap::Args)]
pub(crate) struct AddAgentArguments {
    /// The agent
    agent: ShippedAgent,
    /// Its program; without this the one on PATH
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// The directory that it works in; without this one of its own
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// A server whose tools it may call, given once for each; without this all that you have now
    #[arg(long, value_name = "SERVER")]
    server: Vec<String>,
    /// Writes without asking, and turns tasks and agents not on
    #[arg(long)]
    yes: bool,
}

/// The page on agents in jails. Of three npm has no program for FreeBSD: their examples run the
/// Linux one.
const JAILED: &str = match cfg!(target_os = "freebsd") {
    true => {
        "make-root.sh -l -a NAME for claude, codex and opencode (docs/linux-programs.md), docs/agents.md for gemini"
    }
    false => "docs/agents.md says how",
};

/// An example as it is shipped.
#[derive(Deserialize)]
struct Example {
    registry: ExampleRegistry,
    own: OwnPart,
}

#[derive(Deserialize)]
struct ExampleRegistry {
    agents: Map<String, Value>,
}

/// The part of an example that holds on a person's own machine.
#[derive(Deserialize)]
struct OwnPart {
    args: Vec<String>,
    /// The variables that differ; one that is null is left out.
    env: Map<String, Value>,
    /// Its settings: files of JSON, by their paths in its home.
    #[serde(default)]
    files: Map<String, Value>,
    /// The limits that the agent's own program keeps.
    confined: String,
}

impl ShippedAgent {
    fn id(self) -> &'static str {
        match self {
            ShippedAgent::Claude => "claude",
            ShippedAgent::Codex => "codex",
            ShippedAgent::Gemini => "gemini",
            ShippedAgent::Opencode => "opencode",
        }
    }

    /// The package of npm that has its program.
    fn package(self) -> &'static str {
        match self {
            ShippedAgent::Claude => "@anthropic-ai/claude-code",
            ShippedAgent::Codex => "@openai/codex",
            ShippedAgent::Gemini => "@google/gemini-cli",
            ShippedAgent::Opencode => "opencode-ai",
        }
    }

    /// The variable in which people have the key of its model.
    fn key_variable(self) -> &'static str {
        match self {
            ShippedAgent::Claude => "ANTHROPIC_API_KEY",
            ShippedAgent::Codex | ShippedAgent::Opencode => "OPENAI_API_KEY",
            ShippedAgent::Gemini => "GEMINI_API_KEY",
        }
    }

    fn example(self) -> Result<Example, CommandError> {
        let text = match self {
            ShippedAgent::Claude => include_str!("../../../../etc/agents/claude.json"),
            ShippedAgent::Codex => include_str!("../../../../etc/agents/codex.json"),
            ShippedAgent::Gemini => include_str!("../../../../etc/agents/gemini.json"),
            ShippedAgent::Opencode => include_str!("../../../../etc/agents/opencode.json"),
        };
        serde_json::from_str(text).map_err(|error| {
            CommandError::Machine(format!("the example of {}: {error}", self.id()))
        })
    }
}

/// The advice for somebody who looks for an agent that is not there, if it is one that could be.
pub(crate) fn advice(id: &str) -> Option<String> {
    ShippedAgent::from_str(id, false).ok()?;
    Some(format!("; colibri-mcp agent add {id} sets that agent up"))
}

/// Sees to it that the user's registry has this agent, where it is one that could be set up.
///
/// # Errors
/// It has not: what to do.
pub(crate) fn check_there(id: &str, context: &CommandContext) -> Result<(), CommandError> {
    let Some(advice) = advice(id).filter(|_| context.place.private) else {
        return Ok(());
    };
    match install::registered(&InstallScope::find(false, &context.place)?)?
        .entries
        .contains_key(id)
    {
        true => Ok(()),
        false => Err(CommandError::Data(format!(
            "there is no agent {id} yet{advice}"
        ))),
    }
}

/// The places of an agent on this machine.
struct AgentPlaces {
    /// Its home, which is not the person's: nothing of the person's own settings and logins is in
    /// it.
    place: PathBuf,
    /// Where it works.
    work: PathBuf,
    /// Its program.
    program: PathBuf,
}

/// All that is written for an agent.
struct AgentPlan {
    id: &'static str,
    entry: Value,
    places: AgentPlaces,
    files: Value,
    confined: String,
    key: KeyPlan,
}

/// The key of the agent's model.
struct KeyPlan {
    /// The name of its secret.
    secret: String,
    /// The text before it in the header.
    prefix: &'static str,
    /// It is kept already.
    is_there: bool,
    variable: &'static str,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &AddAgentArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let scope = InstallScope::find(false, &context.place).map_err(|why| match why {
        CommandError::Refused(_) => CommandError::Refused(format!(
            "the daemon here is colibri's service, whose agents root sets up, each in a jail: {JAILED}; or name your own \
             daemon: --socket {}",
            paths::private().socket.display()
        )),
        why => why,
    })?;
    interrupt::hold_back()?;
    let plan = plan(arguments, &scope)?;
    context.tell(&plan.show(&scope))?;
    let asks = !arguments.yes && io::stdin().is_terminal();
    let opens = asks && context.place.private && !write_gate::is_open(&scope)?;
    if opens {
        context.tell(&format!("\n{}", write_gate::MEANING))?;
    }
    let also = if opens {
        ", and turn tasks and agents on"
    } else {
        ""
    };
    agree(
        &format!(
            "Write agent {} into {}{also}?",
            plan.id,
            scope.registry.display()
        ),
        arguments.yes,
    )?;
    let key = plan.key.find()?;
    let kept = plan.write(&scope, key.as_deref())?;
    if opens {
        write_gate::set(&scope, true)?;
    }
    let told = install::reload(&context.place.socket);
    let mut text = format!("Added agent {}.", plan.id);
    if !write_gate::is_open(&scope)? {
        text.push_str(
            "\nTasks and agents are off: colibri-mcp tasks enable, at a terminal, turns them on.",
        );
    }
    text.push_str(&format!(
        "\nTry it: colibri-mcp agent run {} \"Say what is in your directory.\" --follow",
        plan.id
    ));
    let facts =
        json!({ "added": plan.id, "program": plan.places.program, "directory": plan.places.work });
    told.answer(context, &scope, (text, facts), kept.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// The plan for an agent. Nothing is written yet.
fn plan(arguments: &AddAgentArguments, scope: &InstallScope) -> Result<AgentPlan, CommandError> {
    let (agent, id) = (arguments.agent, arguments.agent.id());
    let known = install::registered(scope)?.entries;
    if known.contains_key(id) {
        return Err(CommandError::Data(format!(
            "there is an entry {id} already: colibri-mcp server enable {id} turns it on, colibri-mcp remove {id} takes it \
             out"
        )));
    }
    let servers = servers(
        &arguments.server,
        // An entry with accounts is no server: its accounts are.
        known
            .iter()
            .filter(|(_, (_, entry))| entry.get("accounts").is_none())
            .map(|(id, (keys, _))| (id.as_str(), keys[0].as_str())),
    )?;
    let place = scope.agent_place(id);
    let places = AgentPlaces {
        work: match &arguments.directory {
            None => place.join("work"),
            Some(directory) => directory
                .canonicalize()
                .map_err(|source| CommandError::File {
                    path: directory.clone(),
                    source,
                })?,
        },
        program: find_program(agent, arguments.program.as_deref())?,
        place,
    };
    let example = agent.example()?;
    let mut entry = example.registry.agents.get(id).cloned().unwrap_or_default();
    let header = entry["model"]["headers"]
        .as_object()
        .and_then(|headers| headers.iter().next());
    let (header, secret) =
        header.ok_or_else(|| CommandError::Machine(format!("the example of {id} has no key")))?;
    let key = KeyPlan {
        secret: secret["secret"].as_str().unwrap_or_default().to_owned(),
        prefix: if header == "authorization" {
            "Bearer "
        } else {
            ""
        },
        is_there: false,
        variable: agent.key_variable(),
    };
    let key = KeyPlan {
        is_there: scope.secrets.join(&key.secret).exists(),
        ..key
    };
    let names = places.names()?;
    for (name, value) in example.own.env {
        entry["env"][name] = value;
    }
    if let Some(env) = entry["env"].as_object_mut() {
        env.retain(|_, value| !value.is_null());
    }
    entry["command"] = json!("@COLIBRI@");
    entry["args"] = json!(example.own.args);
    entry["cwd"] = json!("@WORK@");
    entry["tools"] = servers
        .iter()
        .map(|id| (id.clone(), json!({ "allow": ["*"] })))
        .collect();
    // Its jail, and what is for a service, stay behind.
    if let Some(members) = entry.as_object_mut() {
        members.retain(|key, _| KEYS.contains(&key.as_str()));
    }
    Ok(AgentPlan {
        id,
        entry: filled(&entry, &names),
        files: filled(&Value::Object(example.own.files), &names),
        confined: example.own.confined,
        places,
        key,
    })
}

/// The servers whose tools the agent may call.
fn servers<'a>(
    chosen: &[String],
    known: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Result<Vec<String>, CommandError> {
    let known = known
        .filter(|(_, list)| *list != install::AGENTS)
        .map(|(id, _)| id);
    if chosen.is_empty() {
        return Ok(known.map(str::to_owned).collect());
    }
    match chosen
        .iter()
        .find(|id| !known.clone().any(|known| known == id.as_str()))
    {
        None => Ok(chosen.to_vec()),
        Some(id) => Err(CommandError::Usage(format!(
            "--server {}: your registry has no such server",
            visible(id)
        ))),
    }
}

/// The agent's program: as it is named, else as PATH has it. A relative path is one from here.
fn find_program(agent: ShippedAgent, named: Option<&Path>) -> Result<PathBuf, CommandError> {
    if let Some(named) = named {
        let path = std::path::absolute(named).unwrap_or_else(|_| named.to_owned());
        return match install::is_executable(&path) {
            true => Ok(path),
            false => Err(CommandError::Data(format!(
                "--program {}: it is no program",
                path.display()
            ))),
        };
    }
    install::find_program(agent.id()).ok_or_else(|| {
        CommandError::Data(format!(
            "there is no program {} on PATH: install it (npm install -g {}), or name it with --program PATH",
            agent.id(),
            agent.package()
        ))
    })
}

impl AgentPlaces {
    /// The values of the names in an example.
    fn names(&self) -> Result<Vec<(&'static str, String)>, CommandError> {
        let text = |path: &Path| {
            let text = path
                .to_str()
                .filter(|text| !text.contains(['"', '\\', '@']) && visible(text) == *text);
            text.map(str::to_owned).ok_or_else(|| {
                CommandError::Data(format!(
                    "the path {} cannot stand in an agent's settings: it has a quote, a backslash, @ or hidden characters",
                    path.display()
                ))
            })
        };
        // Many are scripts, whose interpreter is looked for there.
        let found = [Some(self.program.clone()), install::find_program("node")];
        let mut path: Vec<PathBuf> = found
            .iter()
            .flatten()
            .filter_map(|path| path.parent())
            .map(Path::to_owned)
            .collect();
        path.extend(USUAL.map(PathBuf::from));
        let mut at: Vec<String> = Vec::new();
        for directory in &path {
            let directory = text(directory)?;
            if !at.contains(&directory) {
                at.push(directory);
            }
        }
        Ok(vec![
            ("@COLIBRI@", text(Path::new(&own_path()?))?),
            ("@PROGRAM@", text(&self.program)?),
            ("@PLACE@", text(&self.place)?),
            ("@WORK@", text(&self.work)?),
            ("@PATH@", at.join(":")),
        ])
    }
}

/// A value with what this machine has in the place of the names for it, in all its texts.
fn filled(value: &Value, names: &[(&'static str, String)]) -> Value {
    match value {
        Value::String(text) => names
            .iter()
            .fold(text.clone(), |text, (name, value)| {
                text.replace(name, value)
            })
            .into(),
        Value::Array(items) => items.iter().map(|item| filled(item, names)).collect(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| (key.clone(), filled(value, names)));
            Value::Object(members.collect())
        }
        value => value.clone(),
    }
}

impl KeyPlan {
    /// The whole value of the header, from the environment or the terminal; `None`: it is kept
    /// already.
    fn find(&self) -> Result<Option<String>, CommandError> {
        if self.is_there {
            return Ok(None);
        }
        let of_environment = std::env::var(self.variable)
            .ok()
            .filter(|key| !key.is_empty());
        let key = match of_environment {
            Some(key) => Some(key),
            None if io::stdin().is_terminal() => {
                let want = Want {
                    secret: true,
                    required: true,
                    description: "the key of its model, which is not shown".to_owned(),
                    default: None,
                    choices: Vec::new(),
                };
                install::ask(self.variable, &want)?
            }
            None => None,
        };
        let key = key.ok_or_else(|| {
            CommandError::Data(format!(
                "the key of its model is missing: set {} for this command, or say it at a terminal; nothing was written",
                self.variable
            ))
        })?;
        let value = format!("{}{}", self.prefix, key.trim());
        match is_header_value(&value) && !key.trim().contains(' ') {
            true => Ok(Some(value)),
            false => Err(CommandError::Data(
                "the key has a character that no key has; nothing was written".to_owned(),
            )),
        }
    }
}

impl AgentPlan {
    /// All of it but the key, for the person who is asked.
    fn show(&self, scope: &InstallScope) -> String {
        let key = scope.secrets.join(&self.key.secret);
        let key = key.display();
        let from = match (self.key.is_there, std::env::var_os(self.key.variable)) {
            (true, _) => format!("the one that is in {key} already"),
            (false, Some(_)) => format!("from {} of your environment, to {key}", self.key.variable),
            (false, None) => format!("you are asked for it, and it goes to {key}"),
        };
        let lines = [
            ("key", format!("{from}: for the daemon, never for the agent")),
            (
                "confined",
                format!(
                    "by nothing of Colibri's: it runs as you, and reads what you can. {}",
                    self.confined
                ),
            ),
            (
                "note",
                "while it runs, programs of this machine can reach its model on loopback, within its budget".to_owned(),
            ),
        ];
        let lines = lines.map(|(what, text)| format!("\n  {what:<9} {}", visible(&text)));
        install::show_entry(self.id, &self.entry) + &lines.concat()
    }

    /// Writes it; what was kept of the registry.
    fn write(
        &self,
        scope: &InstallScope,
        key: Option<&str>,
    ) -> Result<Option<PathBuf>, CommandError> {
        interrupt::check()?;
        let _alone = scope.lock()?;
        let file = install::registered(scope)?.file;
        let entry = KEYS
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), to_write(self.entry.get(key)?))));
        let entry = colibri_mcp::edit::Value::Object(entry.collect());
        let before = if file.exists() { file.text() } else { "{}\n" };
        let text = FileFormat::Json.set(before, &[install::AGENTS, self.id], &entry);
        let text = text.map_err(|fault| file.fault(fault))?;
        let made = self.write_beside(scope, key);
        let kept = made.and_then(|()| install::rewrite(scope, file, text));
        if kept.is_err() && key.is_some() {
            // What made it fail is said.
            let _ = install::forget(scope, &[scope.secrets.join(&self.key.secret)]);
        }
        let kept = kept?;
        install::agree_to(scope, &[self.id])?;
        Ok(kept)
    }

    /// Writes what the entry needs beside it.
    fn write_beside(&self, scope: &InstallScope, key: Option<&str>) -> Result<(), CommandError> {
        for directory in [&self.places.place, &self.places.work] {
            let made = DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory);
            made.map_err(|source| CommandError::File {
                path: directory.clone(),
                source,
            })?;
        }
        for (path, content) in self.files.as_object().into_iter().flatten() {
            let file = OwnedFile::read(&self.places.place.join(path))?;
            file.changed_to(format!("{content:#}\n")).write()?;
        }
        match key {
            Some(key) => install::put_secret(scope, &self.key.secret, key),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_registry::Registry;

    #[test]
    fn each_example_becomes_an_entry_of_this_machine() {
        let place = tempfile::tempdir().unwrap();
        let scope = InstallScope {
            registry: place.path().join("external-mcp.json"),
            secrets: place.path().join("daemon-secrets"),
            servers: place.path().join("servers"),
            logins: place.path().join("oauth"),
            consent: Some(place.path().join("consent.json")),
            group: None,
        };
        std::fs::write(
            &scope.registry,
            r#"{"servers":{"git":{"command":"/bin/cat"}}}"#,
        )
        .unwrap();
        for agent in ShippedAgent::value_variants() {
            let arguments = AddAgentArguments {
                agent: *agent,
                program: Some("/bin/sh".into()),
                directory: None,
                server: Vec::new(),
                yes: true,
            };
            let plan = plan(&arguments, &scope).unwrap();
            let id = plan.id;
            let shown = plan.show(&scope);
            assert!(
                shown.contains("by nothing of Colibri's") && shown.contains("daemon-secrets"),
                "{shown}"
            );
            plan.write(&scope, Some("a-key")).unwrap();
            let text = std::fs::read_to_string(&scope.registry).unwrap();
            let registry = Registry::parse(text.as_bytes(), "registry").unwrap();
            let entry = &registry.agents[id];
            assert!(!entry.disabled && entry.command.jail.is_none(), "{id}");
            assert!(
                entry.command.args.iter().any(|word| word == "/bin/sh"),
                "{id}"
            );
            assert!(
                entry.command.args.contains(&"127.0.0.1:0".to_owned()),
                "{id}"
            );
            // Only what the forwarder knows is left to name, and the agent gets its own socket, not
            // the person's.
            let left: Vec<&str> = text
                .split('@')
                .filter(|word| word.bytes().all(|b| b.is_ascii_uppercase()))
                .collect();
            assert!(
                left.iter()
                    .all(|name| ["", "ADDRESS", "SOCKET"].contains(name)),
                "{left:?}"
            );
            assert!(
                plan.entry.to_string().contains("@SOCKET@")
                    || plan.files.to_string().contains("$COLIBRI_MCP_SOCKET"),
                "{id}"
            );
            assert_eq!(plan.entry["tools"], json!({ "git": { "allow": ["*"] } }));
            let jailed = &agent.example().unwrap().registry.agents[id]["jail"];
            assert_eq!(
                jailed["abi"] == "linux",
                *agent != ShippedAgent::Gemini,
                "{id}"
            );
            let consent = std::fs::read_to_string(scope.consent.as_ref().unwrap()).unwrap();
            assert!(consent.contains(&entry.digest), "{id}: {consent}");
            assert!(
                super::plan(&arguments, &scope).is_err(),
                "it is there already"
            );
        }
        let key = std::fs::read_to_string(scope.secrets.join("anthropic")).unwrap();
        assert_eq!(key, "a-key");
    }

    #[test]
    fn a_path_that_would_become_settings_of_its_own_is_refused() {
        for bad in ["/x/a\"b", "/x/a\\b", "/x/@SOCKET@", "/x/a\nb"] {
            let places = AgentPlaces {
                place: bad.into(),
                work: "/w".into(),
                program: "/bin/sh".into(),
            };
            assert!(places.names().is_err(), "{bad:?}");
        }
    }
}

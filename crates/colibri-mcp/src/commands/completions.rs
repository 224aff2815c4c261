//! `colibri-mcp completions SHELL`: completion scripts, and the answers to the questions that they
//! ask this program as somebody types. Names of servers, agents, tools and tasks are offered, too:
//! those of the registry, and those of a daemon that runs. None is started for that.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use serde_json::json;

use super::tool_list::of_server;
use crate::connection::{DaemonAddress, DaemonConnection};
use crate::failure::CommandError;
use crate::terminal;
use colibri_api::paths::{self, SERVICE};
use colibri_api::{AgentsResponse, Servers, Tasks};
use colibri_registry::Registry;
use colibri_text::brief;

/// The program that a script asks, which a shell finds on PATH.
const NAME: &str = "colibri-mcp";
/// The variable by which a script asks.
const VARIABLE: &str = "COLIBRI_MCP_COMPLETE";
/// The longest wait for a daemon: somebody waits for the names.
const LIMIT: Duration = Duration::from_millis(500);
/// The most tasks that are offered.
const MAX_TASKS: u32 = 50;
/// The most characters of a task's title beside its number.
const MAX_TITLE: usize = 40;

/// For which shell.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArguments {
    /// The shell that will read the script
    shell: Shell,
}

/// Runs the command: prints the script that asks this program.
pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), CommandError> {
    terminal::print(script(arguments.shell)?.trim_end())
}

fn script(shell: Shell) -> Result<String, CommandError> {
    let shells = Shells::builtins();
    let known = shells.completer(&shell.to_string());
    let known =
        known.ok_or_else(|| CommandError::Usage(format!("{shell}: there is no script for it")))?;
    let mut script = Vec::new();
    known.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Zsh {
        // zsh loads the file as the function of its name when it is first needed, and that time it
        // is to answer, too.
        script.push_str(
            "\nif [ \"$funcstack[1]\" = \"_colibri-mcp\" ]; then _clap_dynamic_completer_colibri_mcp \"$@\"; fi\n",
        );
    }
    Ok(script)
}

/// True if a script of a shell asked, and was answered.
///
/// # Errors
/// The answer cannot be written, or no such shell is known.
pub(crate) fn answer(all: fn() -> Command) -> Result<bool, clap::Error> {
    let asked = CompleteEnv::with_factory(|| offered(&all())).var(VARIABLE);
    asked.try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref())
}

/// The command line as it is offered: what is hidden from people is not, and what has names gets
/// its candidates.
fn offered(all: &Command) -> Command {
    let shown = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let shown: Vec<Command> = shown
        .map(|command| with_names(command.clone(), &[command.get_name()]))
        .collect();
    let options = all
        .get_arguments()
        .cloned()
        .map(|argument| named(argument, &[]));
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .args(options)
        .subcommands(shown)
}

fn with_names(command: Command, path: &[&str]) -> Command {
    let command = command.mut_args(|argument| named(argument, path));
    command.mut_subcommands(|below| {
        let name = below.get_name().to_owned();
        with_names(below, &[path, &[&name]].concat())
    })
}

fn named(argument: Arg, path: &[&str]) -> Arg {
    match NameKind::of(path, argument.get_id().as_str()) {
        Some(kind) if argument.get_possible_values().is_empty() => {
            argument.add(ArgValueCandidates::new(move || kind.candidates(&typed())))
        }
        _ => argument,
    }
}

/// The words of the command line so far, the program's name first.
fn typed() -> Vec<String> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// The things that an argument may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    Server,
    Agent,
    /// A server or an agent.
    Entry,
    Instance,
    /// A tool of the server that was named before.
    Tool,
    Task,
}

impl NameKind {
    /// The kind of an argument, by the command that has it.
    fn of(path: &[&str], argument: &str) -> Option<NameKind> {
        match (path, argument) {
            (_, "server" | "only") => Some(NameKind::Server),
            (["remove"] | ["server", _], "name") => Some(NameKind::Entry),
            (["agent", "run"], "name") | (["trail", ..], "agent") => Some(NameKind::Agent),
            (["agent", "stop" | "log"], "id") => Some(NameKind::Instance),
            (["call" | "tools"], "tool") => Some(NameKind::Tool),
            (_, "task") => Some(NameKind::Task),
            _ => None,
        }
    }

    fn candidates(self, typed: &[String]) -> Vec<CompletionCandidate> {
        let socket = after(typed, "--socket").map(PathBuf::from);
        let address = match typed.iter().any(|word| word == "--service") {
            true => DaemonAddress::of_service(socket),
            false => DaemonAddress::find(socket),
        };
        let mut names = self.of_registry(&address);
        // A daemon that takes its time is left to it.
        let (tell, told) = mpsc::channel();
        let typed = typed.to_vec();
        thread::spawn(move || tell.send(self.of_daemon(&address, &typed)));
        names.extend(
            told.recv_timeout(LIMIT)
                .ok()
                .flatten()
                .into_iter()
                .flatten(),
        );
        let plain = names.into_iter().filter(|(name, _)| is_plain(name));
        let plain =
            plain.map(|(name, help)| CompletionCandidate::new(name).help(help.map(Into::into)));
        plain.collect()
    }

    /// The names in the registry that this user can read.
    fn of_registry(self, address: &DaemonAddress) -> Names {
        let path = match (address.private, address.is_service()) {
            (true, _) => paths::private().registry,
            (false, true) => SERVICE.registry(),
            (false, false) => return Names::new(),
        };
        let read = std::fs::read(path).ok();
        let registry = read
            .and_then(|bytes| Registry::parse(&bytes, "").ok())
            .unwrap_or_default();
        let servers = registry
            .servers
            .into_iter()
            .flat_map(|(id, entry)| match self {
                NameKind::Server => vec![id],
                NameKind::Entry => vec![id, entry.entry_id],
                _ => Vec::new(),
            });
        let agents = registry
            .agents
            .into_keys()
            .filter(|_| matches!(self, NameKind::Agent | NameKind::Entry));
        servers.chain(agents).map(|name| (name, None)).collect()
    }

    /// The names that a daemon knows which runs; `None`: none does, or it does not say.
    fn of_daemon(self, address: &DaemonAddress, typed: &[String]) -> Option<Names> {
        if address.private {
            paths::private().check().ok()?;
        }
        let mut daemon = DaemonConnection::open(&address.socket.clone().into(), true).ok()?;
        let unhelped = |name: String| (name, None);
        let servers = |daemon: &mut DaemonConnection| -> Option<Vec<(String, u64)>> {
            let (known, _) = daemon
                .own_tool::<Servers>("colibri_external_mcp_servers", &json!({}))
                .ok()?;
            Some(
                known
                    .servers
                    .into_iter()
                    .map(|server| (server.id, server.tools))
                    .collect(),
            )
        };
        match self {
            NameKind::Server => Some(
                servers(&mut daemon)?
                    .into_iter()
                    .map(|(id, _)| unhelped(id))
                    .collect(),
            ),
            NameKind::Entry => {
                let agents = NameKind::Agent
                    .of_daemon(address, typed)
                    .unwrap_or_default();
                Some(
                    servers(&mut daemon)?
                        .into_iter()
                        .map(|(id, _)| unhelped(id))
                        .chain(agents)
                        .collect(),
                )
            }
            NameKind::Agent | NameKind::Instance => {
                let (known, _) = daemon
                    .ask::<AgentsResponse>("colibri/agents", &json!({}))
                    .ok()?;
                Some(match self {
                    NameKind::Agent => known
                        .agents
                        .into_iter()
                        .map(|agent| unhelped(agent.agent))
                        .collect(),
                    _ => known
                        .instances
                        .into_iter()
                        .map(|one| (one.id, Some(one.agent)))
                        .collect(),
                })
            }
            NameKind::Tool => {
                let server = server_before(typed)?;
                // One that was never seen would be started for its list.
                let is_seen = servers(&mut daemon)?
                    .iter()
                    .any(|(id, tools)| id == server && *tools > 0);
                let (tools, _) = is_seen
                    .then(|| of_server(&mut daemon, server).ok())
                    .flatten()?;
                Some(tools.into_iter().map(|tool| unhelped(tool.name)).collect())
            }
            NameKind::Task => {
                let asked = json!({ "limit": MAX_TASKS });
                let (known, _) = daemon
                    .own_tool::<Tasks>("colibri_list_tasks", &asked)
                    .ok()?;
                let titled = |id: u64, title: &str| (id.to_string(), Some(brief(title, MAX_TITLE)));
                Some(
                    known
                        .tasks
                        .iter()
                        .map(|task| titled(task.id, &task.said.title))
                        .collect(),
                )
            }
        }
    }
}

/// Names, each with a word on it.
type Names = BTreeSet<(String, Option<String>)>;

/// The word after a flag.
fn after<'a>(typed: &'a [String], flag: &str) -> Option<&'a str> {
    let at = typed.iter().position(|word| word == flag)?;
    typed.get(at + 1).map(String::as_str)
}

/// The server that was named before a tool.
fn server_before(typed: &[String]) -> Option<&str> {
    let at = typed
        .iter()
        .position(|word| matches!(word.as_str(), "call" | "tools"))?;
    let mut words = typed[at + 1..].iter().map(String::as_str);
    words.find(|word| !word.starts_with('-'))
}

/// True if a shell takes a name for nothing but a word: servers choose the names of their tools.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    name.bytes().all(plain)
        && name
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line;
    use clap::ValueEnum as _;
    use std::ffi::OsString;

    fn complete(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = [NAME].iter().chain(words).map(OsString::from).collect();
        let at = words.len() - 1;
        let found = clap_complete::engine::complete(&mut offered(&command_line()), words, at, None)
            .unwrap();
        let text =
            |candidate: &CompletionCandidate| candidate.get_value().to_str().unwrap().to_owned();
        found.iter().map(text).collect()
    }

    #[test]
    fn commands_and_words_are_offered_and_nothing_hidden() {
        assert!(complete(&["tr"]).contains(&"trail".to_owned()));
        assert_eq!(complete(&["trail", "ver"]), ["verify"]);
        assert_eq!(complete(&["demo-"]), [""; 0]);
        assert_eq!(complete(&["connect", "claude-c"]), ["claude-code"]);
        assert_eq!(complete(&["agent", "add", "cl"]), ["claude"]);
        assert!(complete(&["server", "enable", "--"]).contains(&"--service".to_owned()));
    }

    #[test]
    fn each_shell_gets_a_script_that_asks_this_program() {
        for shell in Shell::value_variants() {
            let script = script(*shell).unwrap();
            assert!(
                script.contains(VARIABLE) && script.contains(NAME),
                "{shell}: {script}"
            );
        }
        assert!(
            script(Shell::Zsh)
                .unwrap()
                .starts_with("#compdef colibri-mcp")
        );
    }

    #[test]
    fn what_has_names_is_known_by_its_command() {
        fn count(command: &Command, path: &[&str], found: &mut Vec<(String, NameKind)>) {
            for argument in command.get_arguments() {
                let id = argument.get_id().as_str();
                let kind = NameKind::of(path, id);
                found.extend(kind.map(|kind| (format!("{} {id}", path.join(" ")), kind)));
            }
            for below in command.get_subcommands() {
                count(below, &[path, &[below.get_name()]].concat(), found);
            }
        }
        let mut found = Vec::new();
        count(&offered(&command_line()), &[], &mut found);
        for (place, kind) in [
            ("call server", NameKind::Server),
            ("call tool", NameKind::Tool),
            ("tools tool", NameKind::Tool),
            ("remove name", NameKind::Entry),
            ("server disable name", NameKind::Entry),
            ("agent run name", NameKind::Agent),
            ("agent run task", NameKind::Task),
            ("agent stop id", NameKind::Instance),
            ("tasks finish task", NameKind::Task),
            (" only", NameKind::Server),
        ] {
            assert!(
                found.contains(&(place.to_owned(), kind)),
                "{place}: {found:?}"
            );
        }
    }

    #[test]
    fn a_name_that_is_more_than_a_word_is_not_offered() {
        for (name, plain) in [
            ("echo", true),
            ("get_time", true),
            ("a/b:c@1.0-x", true),
            ("a b", false),
            ("a\nb", false),
            ("\u{1b}[31m", false),
            ("$(id)", false),
            ("-rf", false),
            ("*", false),
            ("", false),
            ("café", false),
        ] {
            assert_eq!(is_plain(name), plain, "{name:?}");
        }
        let typed = [
            "colibri-mcp",
            "--socket",
            "/s",
            "call",
            "--json",
            "time",
            "g",
        ]
        .map(str::to_owned);
        assert_eq!(server_before(&typed), Some("time"));
        assert_eq!(after(&typed, "--socket"), Some("/s"));
    }
}

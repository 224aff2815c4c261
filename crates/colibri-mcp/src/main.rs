//! `colibri-mcp`: what editors start (the bridge) and what people type (commands). It holds no
//! policy.

mod bridge;
mod commands;
mod connection;
mod consent;
mod failure;
mod install;
mod integration;
mod interrupt;
mod otlp;
mod owned_file;
mod prices;
mod private;
mod progress;
mod proofs;
mod recording;
mod records;
mod sandbox;
mod terminal;

use colibri_api::{DaemonFacts, OpenGates, Status};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{CommandFactory, FromArgMatches, Parser};

use colibri_text::visible;
use commands::ClientCommand;
use commands::context::CommandContext;
use connection::{DaemonAddress, DaemonConnection, Hello};
use failure::CommandError;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "colibri-mcp", version, about = ABOUT, long_about = None, help_template = HELP, after_help = EXIT_CODES)]
struct Cli {
    /// The daemon's socket [env: COLIBRI_MCP_SOCKET, then COLIBRI_DAEMON_SOCKET].
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Answers as JSON, for programs.
    #[arg(long, global = true)]
    json: bool,

    /// Keeps both gates closed for this client.
    #[arg(long, global = true)]
    read_only: bool,

    /// Warns if the daemon's write gate is closed.
    #[arg(long, env = "COLIBRI_MCP_WRITE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    write: bool,

    /// Warns if the daemon's external-call gate is closed.
    #[arg(long, env = "COLIBRI_MCP_EXTERNAL_CALL", hide_env_values = true, value_parser = FalseyValueParser::new())]
    external_call: bool,

    /// Warns if the daemon's registry is another file.
    #[arg(
        long,
        value_name = "PATH",
        env = "COLIBRI_MCP_EXTERNAL_CONFIG",
        hide_env_values = true
    )]
    external_config: Option<PathBuf>,

    /// Shows the client this server alone, under its own names.
    #[arg(long, value_name = "SERVER")]
    only: Option<String>,

    #[command(subcommand)]
    command: Option<ClientCommand>,
}

const ABOUT: &str = "\
The Colibri MCP client: a stdio MCP server for your editor, and commands for you.
Without a command it is the bridge that an editor starts; `colibri-mcp connect EDITOR` writes that into its settings.";

// One screen: a long help text of the program or of a flag of its own would have clap break each
// flag into lines.
const HELP: &str = "\
{about}

{usage-heading} {usage}

{before-help}Options:
{options}{after-help}";

const EXIT_CODES: &str = "\
Further commands: learn, script, record, replay, otlp; colibri-mcp(1).
Exit status: 0 done; 1 it failed, or does not hold; 64 wrong command line; 65 refused; 66 no such
file; 69 no daemon, or no server; 70, 74, 77, 130: colibri-mcp(1). `colibri-mcp COMMAND --help` says more.";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some((socket, hello)) = plain_bridge(&arguments, |name| std::env::var_os(name).is_some())
    {
        return bridge::run(DaemonAddress::find(socket), hello);
    }
    match commands::completions::answer(command_line) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(error) => {
            // A shell asked, and nobody reads more than candidates.
            let _ = error.print();
            return ExitCode::FAILURE;
        }
    }
    let parsed = command_line()
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; nothing is left to do if the message itself cannot be
            // written.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() {
                CommandError::USAGE
            } else {
                0
            });
        }
    };
    let is_for_service = cli
        .command
        .as_ref()
        .is_some_and(ClientCommand::is_for_service);
    let place = match is_for_service {
        true => DaemonAddress::of_service(cli.socket.clone()),
        false => DaemonAddress::find(cli.socket.clone()),
    };
    match cli.command {
        Some(_) if cli.only.is_some() => {
            eprintln!(
                "colibri-mcp: --only is for the bridge, which has no command: leave one of the two out"
            );
            ExitCode::from(CommandError::USAGE)
        }
        Some(command) => {
            if cli.json {
                progress::write_events();
            }
            let context = CommandContext {
                place,
                chosen: cli.socket,
                read_only: cli.read_only,
                json: cli.json,
            };
            failure::finish(command.run(&context))
        }
        None => {
            let wanted = OpenGates {
                write: cli.write && !cli.read_only,
                external_call: cli.external_call && !cli.read_only,
            };
            if wanted.write || wanted.external_call || cli.external_config.is_some() {
                let socket = place.socket.clone();
                std::thread::spawn(move || {
                    warn(&socket.into(), &wanted, cli.external_config.as_deref())
                });
            }
            let hello = Hello {
                read_only: cli.read_only,
                only: cli.only,
            };
            bridge::run(place, hello)
        }
    }
}

/// The command line of most bridges: nothing, or `--socket` and `--read-only`. Editors start them
/// by the dozen, and the parser of all commands is half of what one keeps in memory. `None`: it is
/// for that parser.
fn plain_bridge(
    arguments: &[OsString],
    is_set: impl Fn(&str) -> bool,
) -> Option<(Option<PathBuf>, Hello)> {
    if [
        "COLIBRI_MCP_WRITE",
        "COLIBRI_MCP_EXTERNAL_CALL",
        "COLIBRI_MCP_EXTERNAL_CONFIG",
    ]
    .into_iter()
    .any(is_set)
    {
        return None;
    }
    let (mut socket, mut hello) = (None, Hello::default());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.to_str()? {
            "--socket" if socket.is_none() => {
                let path = words.next().filter(|path| !path.is_empty())?;
                // A word with a hyphen may be a flag: which, the parser knows.
                socket = path
                    .to_str()
                    .filter(|path| !path.starts_with('-'))
                    .map(PathBuf::from);
                socket.as_ref()?;
            }
            "--read-only" if !hello.read_only => hello.read_only = true,
            _ => return None,
        }
    }
    Some((socket, hello))
}

/// Says on stderr what the daemon has otherwise than this client was configured to want: closed
/// gates, another registry. Silent if the daemon cannot be asked: then the bridge says so.
fn warn(place: &DaemonAddress, wanted: &OpenGates, registry: Option<&Path>) {
    let Ok(mut connection) = DaemonConnection::open(place, false) else {
        return;
    };
    let Ok((status, _)) = connection.own_tool::<Status>("colibri_status", &serde_json::json!({}))
    else {
        return;
    };
    for warning in warnings(&status.daemon, wanted, registry) {
        eprintln!("colibri-mcp: {}", visible(&warning));
    }
}

fn warnings(daemon: &DaemonFacts, wanted: &OpenGates, registry: Option<&Path>) -> Vec<String> {
    let closed = |what, how| {
        format!(
            "the daemon's {what} gate is closed: it opens when colibri-mcpd is started with {how}"
        )
    };
    let mut warnings = Vec::new();
    if wanted.write && !daemon.gates.write {
        warnings.push(match daemon.private {
            true => {
                "the write gate of your own daemon is closed: colibri-mcp tasks enable opens it"
                    .to_owned()
            }
            false => closed("write", "--write (COLIBRI_MCP_WRITE=1)"),
        });
    }
    if wanted.external_call && !daemon.gates.external_call {
        warnings.push(closed(
            "external-call",
            "--external-call (COLIBRI_MCP_EXTERNAL_CALL=1)",
        ));
    }
    let theirs = Path::new(&daemon.registry.path);
    let same = |path: &Path| {
        path == theirs
            || path
                .canonicalize()
                .is_ok_and(|path| theirs.canonicalize().is_ok_and(|theirs| theirs == path))
    };
    if let Some(path) = registry.filter(|path| !same(path)) {
        warnings.push(format!(
            "the daemon's registry is {}, not {}: colibri-mcpd reads the one it is started with (--external-config)",
            daemon.registry.path,
            path.display()
        ));
    }
    warnings
}

/// The command line. What a command does not use is not in its help.
fn command_line() -> clap::Command {
    let all = unset_what_is_empty(Cli::command());
    let groups = commands::grouped(&all);
    let all = all.before_help(groups);
    let unused: Vec<clap::Arg> = all
        .get_arguments()
        .filter(|argument| argument.is_global_set())
        .map(|argument| argument.clone().global(false).hide(true))
        .collect();
    ["completions", "demo"].into_iter().fold(all, |all, name| {
        all.mut_subcommand(name, |command| command.args(&unused))
    })
}

/// Takes variables that are empty for ones that are not set, for a command and those below it.
fn unset_what_is_empty(command: clap::Command) -> clap::Command {
    let unset = |argument: clap::Arg| match argument.get_env().and_then(std::env::var_os) {
        Some(value) if value.is_empty() => argument.env(None::<&'static str>),
        _ => argument,
    };
    command.mut_args(unset).mut_subcommands(unset_what_is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn a_flag_that_a_command_does_not_use_is_not_in_its_help() {
        let help = |words: &[&str]| {
            command_line()
                .try_get_matches_from(words)
                .unwrap_err()
                .to_string()
        };
        let completions = help(&["colibri-mcp", "completions", "--help"]);
        assert!(
            !completions.contains("--socket") && !completions.contains("--json"),
            "{completions}"
        );
        assert!(help(&["colibri-mcp", "connect", "--help"]).contains("--socket"));
        // An editor's or a person's alias may set it all the same.
        command_line()
            .try_get_matches_from(["colibri-mcp", "--socket", "/x", "completions", "bash"])
            .unwrap();
    }

    #[test]
    fn the_command_line_of_a_bridge_means_the_same_without_the_parser() {
        let words = [
            "--socket",
            "/s",
            "--read-only",
            "--write",
            "status",
            "--socket=/t",
            "-",
            "",
        ];
        let mut plain = 0;
        for number in 0..9_usize.pow(3) {
            let chosen = [number % 9, number / 9 % 9, number / 81];
            let words: Vec<&str> = chosen
                .iter()
                .filter_map(|at| words.get(*at).copied())
                .collect();
            let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
            if let Some(read) = plain_bridge(&arguments, |_| false) {
                let cli = Cli::try_parse_from(["colibri-mcp"].iter().chain(&words)).unwrap();
                assert!(cli.command.is_none() && !cli.json, "{words:?}");
                let hello = Hello {
                    read_only: cli.read_only,
                    only: cli.only,
                };
                assert_eq!((cli.socket, hello), read, "{words:?}");
                plain += 1;
            }
            assert_eq!(
                plain_bridge(&arguments, |name| name == "COLIBRI_MCP_WRITE"),
                None
            );
        }
        assert!(plain > 5, "{plain}");
    }

    #[test]
    fn what_the_daemon_has_otherwise_is_said() {
        let daemon: DaemonFacts = serde_json::from_value(serde_json::json!({
            "version": "1", "uptime_s": 1, "socket": "/s", "gates": { "write": false, "external_call": true },
            "require_jail": false, "clients": 1, "cost_mode": "smart",
            "budgets": { "session_bytes": 1, "uncompacted_turns": 1, "tool_result_bytes": null },
            "registry": { "path": "/etc/one.json", "error": null } }))
        .unwrap();
        let wanted = OpenGates {
            write: true,
            external_call: true,
        };
        let said = |registry| warnings(&daemon, &wanted, registry).join("\n");
        let said_of_another = said(Some(Path::new("/etc/two.json")));
        assert!(
            said_of_another.contains("the daemon's write gate is closed"),
            "{said_of_another}"
        );
        assert!(
            said_of_another.contains("/etc/one.json, not /etc/two.json"),
            "{said_of_another}"
        );
        assert_eq!(said(Some(Path::new("/etc/one.json"))).lines().count(), 1);
        let own = DaemonFacts {
            private: true,
            ..daemon.clone()
        };
        let said = warnings(&own, &wanted, None).join("\n");
        assert!(
            said.contains("colibri-mcp tasks enable") && !said.contains("--write"),
            "{said}"
        );
        assert!(Cli::try_parse_from(["colibri-mcp", "--external-config", "/x"]).is_ok());
    }
}

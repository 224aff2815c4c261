//! `colibri-mcp`: what editors start (the bridge) and what people type (commands). It holds no policy.

mod bridge;
mod commands;
mod connection;
mod failure;
mod lines;
mod records;
mod terminal;

use colibri_api::paths;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::FalseyValueParser;

use bridge::{BridgeError, Ended};
use commands::{Command, Context};
use connection::{Connection, Gate};
use failure::Failure;

/// The Colibri MCP client: a stdio MCP server for your editor, and commands for you.
///
/// Without a command it is the bridge: an editor starts it as its MCP server,
/// and it passes everything on to colibri-mcpd, the daemon that hosts the real
/// servers. `colibri-mcp connect EDITOR` shows what to put into your editor's
/// settings; `colibri-mcp demo` shows all of it at work.
#[derive(Debug, Parser)]
#[command(name = "colibri-mcp", version, verbatim_doc_comment, after_help = EXIT_CODES)]
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
    #[arg(long, env = "COLIBRI_MCP_WRITE", value_parser = FalseyValueParser::new())]
    write: bool,

    /// Warns if the daemon's external call gate is closed.
    #[arg(long, env = "COLIBRI_MCP_EXTERNAL_CALL", value_parser = FalseyValueParser::new())]
    external_call: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

const EXIT_CODES: &str = "\
Exit status:
  0    done
  1    the tool, or the daemon's rules, answered that the call failed: a closed gate,
       policy, the tool's schema, a server that is not there now; the trail or a
       proof does not hold; doctor: a fact does not hold
  64   the command line is wrong
  65   the daemon refused the request: no such server or tool, not for this user;
       no such record or segment, not a proof, not a key
  66   a file is not there
  69   the daemon cannot be reached
  70   the daemon's answer cannot be understood
  74   stdout or a file cannot be written, or a file not read
  77   no permission to open the daemon's socket, or a file; refused by ssh-gate;
       doctor --root without root
  130  interrupted; the call was cancelled at the server";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; nothing is left to do if the message itself cannot be written.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Failure::USAGE } else { 0 });
        }
    };
    let narrow = if cli.read_only {
        vec![Gate::Write, Gate::External]
    } else {
        Vec::new()
    };
    let socket = paths::socket(cli.socket);
    match cli.command {
        Some(command) => {
            let context = Context {
                socket,
                narrow,
                json: cli.json,
            };
            failure::finish(command.run(&context))
        }
        None => {
            let wanted = [(cli.write, Gate::Write), (cli.external_call, Gate::External)];
            let wanted: Vec<Gate> = wanted
                .into_iter()
                .filter(|(flag, _)| *flag)
                .map(|(_, gate)| gate)
                .collect();
            if !wanted.is_empty() && !cli.read_only {
                let socket = socket.clone();
                std::thread::spawn(move || warn_of_closed_gates(&socket, &wanted));
            }
            run_bridge(socket, narrow)
        }
    }
}

/// Bridges until the client or the daemon ends it; says why where that is a failure.
fn run_bridge(socket: PathBuf, narrow: Vec<Gate>) -> ExitCode {
    match bridge::run(socket, narrow) {
        // A client that closes stdout is gone: there is nobody to tell.
        Ok(Ended::Well) | Err(BridgeError::Output(_)) => ExitCode::SUCCESS,
        Ok(Ended::WithoutDaemon) => ExitCode::from(Failure::UNAVAILABLE),
        Err(error @ BridgeError::Replay(_)) => {
            eprintln!("colibri-mcp: {}", terminal::line(&error.to_string()));
            ExitCode::from(Failure::UNAVAILABLE)
        }
    }
}

/// Says on stderr which of the gates that this client was configured to want are closed at the daemon. Silent if the
/// daemon cannot be asked: then the bridge says so.
fn warn_of_closed_gates(socket: &std::path::Path, wanted: &[Gate]) {
    let Ok(mut connection) = Connection::open(socket, &[]) else {
        return;
    };
    let Ok((status, _)) = connection.own_tool::<commands::status::Status>("colibri_status", &serde_json::json!({}))
    else {
        return;
    };
    for gate in wanted {
        let (open, what, how) = match gate {
            Gate::Write => (status.gates.write, "write", "--write (COLIBRI_MCP_WRITE=1)"),
            Gate::External => (
                status.gates.external_call,
                "external call",
                "--external-call (COLIBRI_MCP_EXTERNAL_CALL=1)",
            ),
        };
        if !open {
            eprintln!(
                "colibri-mcp: the daemon's {what} gate is closed: it opens when colibri-mcpd is started with {how}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

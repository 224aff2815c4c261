//! `colibri-mcp learn`: runs a server under observation, and proposes the jail that its use needs.

mod access;
#[cfg(any(target_os = "freebsd", test))]
mod ktrace;
mod learned_server;
mod messages;
mod observation;
mod permission;
mod places;
mod program;
mod proposal;
mod session;
mod shown;
#[cfg(not(target_os = "freebsd"))]
mod strace;
mod tool_notes;
mod tracer;
#[cfg(target_os = "freebsd")]
mod tracer_freebsd;
#[cfg(not(target_os = "freebsd"))]
mod tracer_linux;
mod trial;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;

use colibri_registry::is_server_id;
use colibri_text::{counted, visible};

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::interrupt;
use learned_server::LearnedServer;
use observation::Observation;
use session::{observe, open_record};

/// The server, and the step.
#[derive(Debug, clap::Args)]
pub(crate) struct LearnArguments {
    /// The server's id; without a command, that of an entry that runs without a jail
    server: String,
    /// Keeps the arguments of calls too, for --try, in a file of your own
    #[arg(long, conflicts_with_all = ["propose", "try_out"])]
    record: bool,
    /// A variable of its environment; KEY alone takes its value from yours
    #[arg(long, value_name = "KEY[=VALUE]", requires = "command")]
    env: Vec<String>,
    /// Its working directory
    #[arg(long, value_name = "DIRECTORY", requires = "command")]
    cwd: Option<PathBuf>,
    /// Prints jail entry, policy, mounts, tool rules and contract for what was seen
    #[arg(long, conflicts_with_all = ["try_out", "command"])]
    propose: bool,
    /// Takes a path, a name or an address that nobody named as needed
    #[arg(long, value_name = "THING", conflicts_with = "command")]
    accept: Vec<String>,
    /// Repeats recorded calls with the locked server: those that only read, and others after a
    /// question each
    #[arg(long = "try", conflicts_with = "command")]
    try_out: bool,
    /// Repeats the others without a question
    #[arg(long, requires = "try_out")]
    yes: bool,
    /// The command that starts it, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &LearnArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let id = &arguments.server;
    if !is_server_id(id) {
        return Err(CommandError::Usage(format!(
            "{}: a server's id is 1 to 32 characters of a-z, 0-9 and -, and begins with a letter",
            visible(id)
        )));
    }
    if arguments.propose || arguments.try_out {
        let seen = Observation::read(id)?.ok_or_else(|| {
            CommandError::Data(format!(
                "nothing was learned of {id} yet: colibri-mcp learn {id} -- COMMAND, in the place of COMMAND in an editor's \
                 settings, notes what it does while you use it"
            ))
        })?;
        if let Some(why) = seen.escapes.first() {
            return Err(CommandError::Refused(format!(
                "nothing is proposed for {id}: {}. What it did after that was not seen, and no honest server does it. To \
                 begin anew remove {}",
                visible(why),
                Observation::paths(id).0.display()
            )));
        }
        let proposal = proposal::propose(&seen, &arguments.accept);
        return match arguments.try_out {
            true => trial::run(&seen, &proposal, arguments.yes, context),
            false => shown::print(&seen, &proposal, context).map(|()| ExitCode::SUCCESS),
        };
    }
    if !arguments.accept.is_empty() {
        return Err(CommandError::Usage(
            "--accept goes with --propose or --try".to_owned(),
        ));
    }
    if io::stdin().is_terminal() {
        return Err(CommandError::Usage(format!(
            "learn is an MCP server on its standard input, for a client: put `colibri-mcp learn {id} -- COMMAND` in the place \
             of COMMAND in your editor's settings, or add it as a server: colibri-mcp add {id}-learned -- colibri-mcp learn \
             {id} -- COMMAND"
        )));
    }
    let server = match arguments.command.is_empty() {
        true => LearnedServer::of_entry(id, &context.place)?,
        false => LearnedServer::of_command(
            id,
            &arguments.command,
            &arguments.env,
            arguments.cwd.as_deref(),
        )?,
    };
    Observation::make_directory()?;
    let record = match arguments.record {
        true => Some(open_record(&Observation::paths(id).1)?),
        false => None,
    };
    interrupt::hold_back()?;
    let seen = observe(&server, io::stdin(), io::stdout(), record)?;
    let (all, path) = seen.store()?;
    eprintln!(
        "colibri-mcp: {id}: {} learned, in {}; colibri-mcp learn {id} --propose shows what it needs",
        counted(all.sessions, "session"),
        path.display()
    );
    Ok(ExitCode::SUCCESS)
}

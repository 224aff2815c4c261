//! `colibri-mcp record` and `colibri-mcp replay`: sessions with a server in a file.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::recording;

/// The session to record, or the recording to verify.
#[derive(Debug, clap::Args)]
pub(crate) struct RecordArguments {
    /// The server
    #[arg(required_unless_present = "verify")]
    server: Option<String>,
    /// The new file, of mode 0600: it has the contents of requests and answers
    #[arg(required_unless_present = "verify")]
    file: Option<PathBuf>,
    /// Says whether a recorded session happened so, by the trail
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "file"])]
    verify: Option<PathBuf>,
    /// Prints the proofs of its records, too
    #[arg(long, requires = "verify")]
    proof: bool,
}

/// The recording to answer from.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArguments {
    /// The recording
    file: PathBuf,
    /// Refuses what was not asked then, or is asked more often
    #[arg(long)]
    strict: bool,
}

/// Runs `record`.
pub(crate) fn run(
    arguments: &RecordArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    if let Some(file) = &arguments.verify {
        let mut out = BufWriter::new(io::stdout().lock());
        recording::verify(file, arguments.proof, context, &mut out)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    match (&arguments.server, &arguments.file) {
        (Some(server), Some(file)) => recording::record(server, file, context),
        _ => Err(CommandError::Usage(
            "record SERVER FILE, or record --verify FILE".to_owned(),
        )),
    }
}

/// Runs `replay`.
pub(crate) fn run_replay(arguments: &ReplayArguments) -> Result<(), CommandError> {
    let mut replay = recording::replay(&arguments.file, arguments.strict)?;
    let mut out = BufWriter::new(io::stdout().lock());
    Ok(replay.serve(io::stdin().lock(), &mut out)?)
}

//! The errors of commands, and their exit statuses.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::connection::{RequestError, Unavailable};
use colibri_text::visible_lines;
use colibri_trail::{CosignError, ProofError, TilesError};

/// The reason for which a command did not succeed. Each has its exit status, as in sysexits(3)
/// where that has one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The tool answered that it failed, and its answer has been printed.
    #[error("the tool answered with an error")]
    ToolError,
    /// The command line does not fit.
    #[error("{0}")]
    Usage(String),
    /// The daemon cannot be reached.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A request has no result.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The metrics cannot be read.
    #[error("{socket}: {source}; the daemon serves metrics there if it is started with --metrics-socket", socket = .socket.display())]
    Metrics {
        /// The path where they should be.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A daemon that was named does not say where its state is.
    #[error("{0}; name its state directory with --state-dir")]
    StateUnknown(Box<CommandError>),
    /// A proof cannot be made, or does not hold.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// A recording is not what the trail has.
    #[error("{0}")]
    Contradicted(String),
    /// A collector does not take what there is.
    #[error("{0}")]
    CollectorAway(String),
    /// Tiles cannot be written.
    #[error(transparent)]
    Tiles(#[from] TilesError),
    /// A witness does not sign.
    #[error(transparent)]
    Cosign(#[from] CosignError),
    /// The named thing is not there, or is not what it should be.
    #[error("{0}")]
    Data(String),
    /// A server that was added or enabled does not start.
    #[error("{0}")]
    DeadServer(String),
    /// The person does not want a file written, or cannot be asked.
    #[error("{0}")]
    Declined(String),
    /// A signal told this program to end.
    #[error("interrupted: nothing was written")]
    Interrupted,
    /// A signal told this program to end, and what it watched goes on.
    #[error("{0}")]
    Left(String),
    /// An SSH key asked for more than it may.
    #[error("{0}")]
    Refused(String),
    /// Something of this machine does not work; the text says what.
    #[error("{0}")]
    Machine(String),
    /// The requested thing is root's to see.
    #[error("doctor --root must be run as root")]
    NotRoot,
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// `EX_USAGE`
    pub(crate) const USAGE: u8 = 64;
    /// `EX_UNAVAILABLE`
    pub(crate) const UNAVAILABLE: u8 = 69;

    /// The exit status.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            CommandError::ToolError
            | CommandError::Declined(_)
            | CommandError::Contradicted(_)
            | CommandError::Request(RequestError::Tool(_) | RequestError::InputRequired) => 1,
            CommandError::Usage(_) => Self::USAGE,
            CommandError::Interrupted | CommandError::Left(_) => 130,
            CommandError::Request(RequestError::Refused { .. }) | CommandError::Data(_) => 65,
            CommandError::File { source, .. }
            | CommandError::Proof(ProofError::Io(source))
            | CommandError::Tiles(
                TilesError::File { error: source, .. } | TilesError::Trail(ProofError::Io(source)),
            )
            | CommandError::Cosign(CosignError::File { error: source, .. }) => {
                match source.kind() {
                    io::ErrorKind::NotFound => 66,
                    io::ErrorKind::PermissionDenied => 77,
                    // It was read, and is not what it should be: no text, another format.
                    io::ErrorKind::InvalidData => 65,
                    _ => 74,
                }
            }
            CommandError::Proof(ProofError::NoAnchor) => Self::USAGE,
            CommandError::Proof(
                ProofError::NoRecord(_) | ProofError::NotSealed(_) | ProofError::Form(_),
            ) => 65,
            CommandError::Proof(
                ProofError::Damaged { .. } | ProofError::Root(_) | ProofError::Checkpoint(_),
            ) => 1,
            CommandError::Tiles(TilesError::Busy(_)) => 74,
            CommandError::Tiles(
                TilesError::OtherLog { .. }
                | TilesError::OtherContent { .. }
                | TilesError::NoSeal
                | TilesError::Trail(ProofError::NoRecord(_)),
            ) => 65,
            CommandError::Tiles(_) => 1,
            CommandError::Cosign(CosignError::Older { .. } | CosignError::Inconsistent { .. }) => 1,
            CommandError::Cosign(_) => 65,
            CommandError::Unavailable(unavailable) if unavailable.is_denied() => 77,
            CommandError::NotRoot | CommandError::Refused(_) => 77,
            CommandError::DeadServer(_)
            | CommandError::CollectorAway(_)
            | CommandError::Unavailable(_)
            | CommandError::Request(RequestError::Lost { .. }) => Self::UNAVAILABLE,
            CommandError::Request(RequestError::Unreadable { .. }) | CommandError::Machine(_) => 70,
            CommandError::StateUnknown(why) => why.exit_code(),
            CommandError::Output(_) => 74,
            CommandError::Metrics { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                77
            }
            CommandError::Metrics { .. } => Self::UNAVAILABLE,
        }
    }
}

/// Says why a command failed, and returns the exit status.
pub(crate) fn finish(outcome: Result<ExitCode, CommandError>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // `colibri-mcp tools | head` is no failure.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            if !matches!(failure, CommandError::ToolError) {
                eprintln!("colibri-mcp: {}", visible_lines(&failure.to_string()));
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

//! Why a command did not succeed, and the exit status of each reason.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::connection::{RequestError, Unavailable};
use crate::records::TrailCommandError;
use colibri_trail::ProofError;

/// Why a command did not succeed. Each has its exit status, as in sysexits(3) where that has one.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
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
        /// Where they should be.
        socket: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The trail cannot be read, or does not hold.
    #[error(transparent)]
    Trail(#[from] TrailCommandError),
    /// An SSH key asked for more than it may.
    #[error("{0}")]
    Refused(String),
    /// Something of this machine does not work; the text says what.
    #[error("{0}")]
    Machine(String),
    /// What was asked for is root's to see.
    #[error("doctor --root must be run as root")]
    NotRoot,
    /// Writing failed.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl Failure {
    /// `EX_USAGE`
    pub const USAGE: u8 = 64;
    /// `EX_UNAVAILABLE`
    pub const UNAVAILABLE: u8 = 69;

    /// The exit status.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::ToolError | Failure::Request(RequestError::Tool(_) | RequestError::InputRequired) => 1,
            Failure::Usage(_) => Self::USAGE,
            Failure::Request(RequestError::Refused { .. }) => 65,
            Failure::Unavailable(Unavailable::Denied { .. }) | Failure::NotRoot | Failure::Refused(_) => 77,
            Failure::Unavailable(_) | Failure::Request(RequestError::Lost { .. }) => Self::UNAVAILABLE,
            Failure::Request(RequestError::Unreadable { .. }) | Failure::Machine(_) => 70,
            Failure::Output(_) => 74,
            Failure::Metrics { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 77,
            Failure::Metrics { .. } => Self::UNAVAILABLE,
            Failure::Trail(error) => trail_exit_code(error),
        }
    }
}

fn trail_exit_code(error: &TrailCommandError) -> u8 {
    let io_code = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound => 66,
        io::ErrorKind::PermissionDenied => 77,
        _ => 74,
    };
    match error {
        TrailCommandError::Io { source, .. } | TrailCommandError::Proof(ProofError::Io(source)) => io_code(source),
        TrailCommandError::Output(_) => 74,
        TrailCommandError::Time(_) | TrailCommandError::Proof(ProofError::NoAnchor) => Failure::USAGE,
        TrailCommandError::Server { .. }
        | TrailCommandError::Key { .. }
        | TrailCommandError::Segment(_)
        | TrailCommandError::Proof(ProofError::NoRecord(_) | ProofError::NotSealed(_) | ProofError::Form(_)) => 65,
        TrailCommandError::Proof(ProofError::Damaged { .. } | ProofError::Root(_) | ProofError::Checkpoint(_)) => 1,
    }
}

/// Says why a command failed, and returns the exit status.
pub fn finish(outcome: Result<ExitCode, Failure>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // `colibri-mcp tools | head` is no failure.
        Err(Failure::Output(error) | Failure::Trail(TrailCommandError::Output(error)))
            if error.kind() == io::ErrorKind::BrokenPipe =>
        {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            if !matches!(failure, Failure::ToolError) {
                eprintln!("colibri-mcp: {}", colibri_text::visible_lines(&failure.to_string()));
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

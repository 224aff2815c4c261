//! `colibri-mcp integration NAME`: MCP servers of our own that reach programs and services outside,
//! started and jailed by the daemon like any other. What they may be asked is their contract's to
//! say; what is tried again is the daemon's.

mod api;
mod git;
mod model;
mod notes;
mod serve;
mod tool_call_error;

use std::process::ExitCode;

use crate::failure::CommandError;

/// The integrated service.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Integration {
    /// A model of a provider: one tool, one request a call, one attempt
    ///
    /// The key is read from the environment variable MODEL_API_KEY, which the entry fills from a
    /// secret. Without --url it serves as well, and each call is answered that no model is
    /// connected.
    Model(model::ModelArguments),
    /// A repository's docs/, mirrored one way into a vault of notes
    ///
    /// One tool, notes_sync. Without --repository and --mirror it serves as well, and each call is
    /// answered that no notes are connected.
    Notes(notes::NotesArguments),
    /// A git repository: worktrees on branches feature/*, commits there, status, diff, log, and
    /// fetching origin
    ///
    /// Nothing is pushed, forced or deleted. What origin wants to know of who asks is read from the
    /// environment variable GIT_ORIGIN_TOKEN, which the entry fills from a secret. Without
    /// --repository it serves as well, and each call is answered that no repository is connected.
    Git(git::GitArguments),
}

impl Integration {
    /// Serves stdin and stdout until stdin ends.
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        match self {
            Integration::Model(arguments) => serve::run(model::ModelEndpoint::new(arguments)?),
            Integration::Notes(arguments) => serve::run(notes::Notes::new(arguments)?),
            Integration::Git(arguments) => serve::run(git::Git::new(arguments)?),
        }
    }
}

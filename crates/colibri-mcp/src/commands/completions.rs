//! `colibri-mcp completions SHELL`: completion scripts.

use clap::CommandFactory;
use clap_complete::Shell;

use super::Failure;
use crate::{Cli, terminal};

/// For which shell.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The shell that will read the script
    shell: Shell,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "colibri-mcp", &mut script);
    terminal::print(String::from_utf8_lossy(&script).trim_end())
}

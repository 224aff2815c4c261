//! The client: bridge and operator commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    colibri_mcpd::client::run_cli(std::env::args_os())
}

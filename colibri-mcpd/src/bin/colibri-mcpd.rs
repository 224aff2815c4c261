//! The daemon: flags → Config → run.

use std::process::ExitCode;

fn main() -> ExitCode {
    colibri_mcpd::run::run_cli(std::env::args_os().collect())
}

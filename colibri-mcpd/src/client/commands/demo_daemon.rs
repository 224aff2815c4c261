//! The demo's daemon: `colibri-mcpd` out of this binary, so that `cargo run --bin colibri-mcp -- demo` needs no other.

use std::ffi::OsString;
use std::io::Read;
use std::process::ExitCode;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The daemon's own command line.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What `colibri-mcpd` takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs the daemon until it is told to end, or until stdin ends: then the demo is gone, however it ended.
pub fn run(arguments: Arguments) -> ExitCode {
    std::thread::spawn(|| {
        let mut nothing = [0; 16];
        while std::io::stdin().read(&mut nothing).is_ok_and(|got| got > 0) {}
        // The daemon's own handler drains and cleans up.
        let _ = kill(Pid::this(), Signal::SIGTERM);
    });
    let arguments = std::iter::once(OsString::from("colibri-mcpd"))
        .chain(arguments.arguments)
        .collect();
    crate::server::run_cli(arguments)
}

//! `colibri-script`: started by the daemon for one script, with two pipes.

use std::process::ExitCode;

use colibri_script::{engine, sandbox};

/// The exit status where the sandbox could not be made.
const EXIT_UNSAFE: u8 = 71;

fn main() -> ExitCode {
    if std::env::args_os().len() != 1 {
        eprintln!(
            "colibri-script is started by colibri-mcpd; to try a script, run: colibri-mcp script FILE"
        );
        return ExitCode::from(64);
    }
    if let Err(error) = sandbox::enter() {
        // There is no standard error any more where it fails late: the daemon names the status.
        eprintln!("colibri-script: cannot give up its rights, so it runs nothing: {error:#}");
        return ExitCode::from(EXIT_UNSAFE);
    }
    sandbox::end(engine::serve())
}

//! The demo's daemon, under a supervisor that ends it with the demo.

use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::daemon_program::NAME;
use crate::failure::CommandError;

/// The longest time for the daemon to end before it is killed: longer than its own.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program and its command line.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoDaemonArguments {
    /// The program
    program: PathBuf,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs the daemon until stdin ends: then the demo is over or gone, however it ended.
pub(crate) fn run(arguments: DemoDaemonArguments) -> Result<ExitCode, CommandError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        CommandError::Machine(format!("cannot {what} {NAME}: {error}"))
    };
    let mut daemon = Command::new(&arguments.program)
        .args(&arguments.arguments)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| failed("start", &error))?;
    let (order, ordered) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let mut nothing = [0; 16];
        while std::io::stdin().read(&mut nothing).is_ok_and(|got| got > 0) {}
        drop(order);
    });
    loop {
        if let Some(status) = daemon
            .try_wait()
            .map_err(|error| failed("wait for", &error))?
        {
            return Ok(ExitCode::from(u8::from(!status.success())));
        }
        if ordered.recv_timeout(Duration::from_millis(20))
            == Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
        {
            return end(&mut daemon).map_err(|error| failed("end", &error));
        }
    }
}

/// Ends the daemon as an operator would, and by force if it does not.
fn end(daemon: &mut Child) -> std::io::Result<ExitCode> {
    let pid = i32::try_from(daemon.id()).map_err(std::io::Error::other)?;
    // Not waited for yet, so the number is still its own.
    kill(Pid::from_raw(pid), Signal::SIGTERM)?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if daemon.try_wait()?.is_some() {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    daemon.kill()?;
    daemon.wait()?;
    Ok(ExitCode::FAILURE)
}

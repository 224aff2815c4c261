//! The operator's commands, a file each: its arguments, what it asks the daemon, how it shows the answer.

pub mod approvals;
pub mod call;
pub mod completions;
pub mod connect;
pub mod demo;
pub mod doctor;
pub mod metrics;
pub mod missing;
pub mod pin;
pub mod servers;
pub mod snapshot;
pub mod ssh_gate;
pub mod status;
pub mod tap;
pub mod tasks;
pub mod tools;
pub mod top;
pub mod trail;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use nix::sys::signal::{SigSet, Signal};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::connection::{Connection, Gate, Params};
use crate::failure::Failure;
use crate::terminal;

/// What `colibri-mcp` can be told to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Shows the daemon: version, gates, servers, limits
    Status,
    /// Shows the hosted servers and their processes
    Servers,
    /// Lists the tools, all or those of one server
    Tools(tools::Arguments),
    /// Calls a tool
    Call(call::Arguments),
    /// Lists the tasks
    Tasks(tasks::Arguments),
    /// Shows all that an assistant is told of the daemon in one call
    Snapshot,
    /// Shows, verifies and keeps the trail: the record of every call
    Trail(trail::Arguments),
    /// Shows the daemon's metrics, as Prometheus reads them
    Metrics(metrics::Arguments),
    /// Shows, as they pass, the messages between the daemon and a server (operators)
    Tap(tap::Arguments),
    /// Shows servers, calls, waiting approvals and the trail, and goes on doing so (operators)
    Top(top::Arguments),
    /// Shows the calls that wait for a person (operators)
    Approvals,
    /// Lets a waiting call be made (operators)
    Approve(approvals::Decide),
    /// Refuses a waiting call (operators)
    Deny(approvals::Decide),
    /// Shows and approves what servers say of their tools (operators)
    Pin(pin::Arguments),
    /// Has the daemon read its registry and client policy again (operators)
    Reload,
    /// Shows what to put into an editor's settings
    Connect(connect::Arguments),
    /// Lets an SSH key start the bridge and list tools, and nothing else
    ///
    /// It is the forced command of a key in authorized_keys, so that an editor on another machine can use this
    /// machine's tools without getting a shell:
    ///
    ///   command="/usr/local/bin/colibri-mcp ssh-gate",restrict ssh-ed25519 AAAA... zed
    ///
    /// What the other side asks for (SSH_ORIGINAL_COMMAND) may be nothing, `colibri-mcp`, `colibri-mcp --read-only`,
    /// `colibri-mcp tools [SERVER] [--json]`, the program's name with or without an absolute path. No shell reads it.
    /// Everything else is refused with exit status 77. `ssh-gate --read-only` keeps both gates closed for the key, and
    /// `ssh-gate --socket PATH` chooses the daemon; the other side can choose neither.
    #[command(verbatim_doc_comment)]
    SshGate,
    /// Starts a private daemon, shows it at work, and cleans up
    Demo,
    /// Checks what must hold for jailed servers to run, and says what to do
    Doctor(doctor::Arguments),
    /// Prints a completion script for a shell
    Completions(completions::Arguments),
    /// The demo's daemon: `colibri-mcpd` that ends with its stdin
    #[command(hide = true)]
    DemoDaemon(demo::daemon::Arguments),
    /// The demo's MCP server, on stdio
    #[command(hide = true)]
    DemoServer(demo::server::Arguments),
}

/// What every command is given.
#[derive(Debug)]
pub struct Context {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The socket that a flag names.
    pub chosen: Option<PathBuf>,
    /// The gates this client keeps closed for itself.
    pub narrow: Vec<Gate>,
    /// Whether the answer is for a program.
    pub json: bool,
}

impl Command {
    /// Runs the command.
    pub fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        match self {
            Command::Status => status::run(context)?,
            Command::Servers => servers::run(context)?,
            Command::Tools(arguments) => tools::run(&arguments, context)?,
            Command::Call(arguments) => call::run(&arguments, context)?,
            Command::Tasks(arguments) => tasks::run(&arguments, context)?,
            Command::Snapshot => snapshot::run(context)?,
            Command::Trail(arguments) => return trail::run(&arguments, context),
            Command::Metrics(arguments) => metrics::run(&arguments, context)?,
            Command::Tap(arguments) => tap::run(&arguments, context)?,
            Command::Top(arguments) => return top::run(&arguments, context),
            Command::Approvals => approvals::list(context)?,
            Command::Approve(decide) => approvals::decide(&decide, true, context)?,
            Command::Deny(decide) => approvals::decide(&decide, false, context)?,
            Command::Pin(arguments) => return pin::run(&arguments, context),
            Command::Reload => approvals::reload(context)?,
            Command::Connect(arguments) => connect::run(&arguments, context)?,
            Command::SshGate => return ssh_gate::run(context),
            Command::Demo => demo::run()?,
            Command::Doctor(arguments) => return doctor::run(&arguments, context),
            Command::Completions(arguments) => completions::run(&arguments)?,
            Command::DemoDaemon(arguments) => return demo::daemon::run(arguments),
            Command::DemoServer(arguments) => demo::server::run(&arguments).map_err(Failure::Output)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Context {
    /// The flags with which a bridge reaches the same daemon with the same gates.
    fn flags(&self) -> Result<Vec<String>, Failure> {
        let mut flags = Vec::new();
        if let Some(socket) = &self.chosen {
            let absolute = std::path::absolute(socket).unwrap_or_else(|_| socket.clone());
            let socket = absolute.into_os_string().into_string();
            let socket = socket.map_err(|path| {
                Failure::Usage(format!(
                    "--socket {path:?} is not UTF-8, so no settings file can name it"
                ))
            })?;
            flags.extend(["--socket".to_owned(), socket]);
        }
        if !self.narrow.is_empty() {
            flags.push("--read-only".to_owned());
        }
        Ok(flags)
    }

    /// Connects to the daemon.
    pub fn connect(&self) -> Result<Connection, Failure> {
        Ok(Connection::open(&self.socket, &self.narrow)?)
    }

    /// Asks one of Colibri's own tools, and prints its structured content: as it came, or as `show` makes it.
    fn show<T: DeserializeOwned>(
        &self,
        tool: &str,
        arguments: &Value,
        show: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let (answer, raw) = self.connect()?.own_tool::<T>(tool, arguments)?;
        self.print(&raw, || show(&answer))
    }

    /// Sends an operator's request.
    fn ask(&self, method: &str, params: Params) -> Result<Box<RawValue>, Failure> {
        Ok(self.connect()?.request(method, params)?)
    }

    /// Prints an answer: as it came, or as `show` makes it.
    fn print(&self, raw: &RawValue, show: impl FnOnce() -> String) -> Result<(), Failure> {
        terminal::print(&if self.json { terminal::json(raw) } else { show() })
    }
}

/// From now on the first of these signals is given to `then`, on a thread of its own, and does nothing else.
fn on_signals(signals: &[Signal], then: impl FnOnce(Signal) + Send + 'static) -> Result<(), Failure> {
    let set: SigSet = signals.iter().copied().collect();
    // Blocked here, before any other thread starts, so that only the waiting thread gets them.
    set.thread_block()
        .map_err(|error| Failure::Machine(format!("cannot block signals: {error}")))?;
    std::thread::spawn(move || {
        if let Ok(signal) = set.wait() {
            then(signal);
        }
    });
    Ok(())
}

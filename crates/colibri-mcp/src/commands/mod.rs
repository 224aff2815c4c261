//! The operator's commands, a file each: its arguments, what it asks the daemon, how it shows the answer.

pub(crate) mod add;
pub(crate) mod agent;
mod agent_event;
pub(crate) mod approvals;
pub(crate) mod call;
pub(crate) mod completions;
pub(crate) mod connect;
pub(crate) mod context;
pub(crate) mod costs;
pub(crate) mod definition_tables;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod door;
pub(crate) mod enable;
pub(crate) mod glasspane;
pub(crate) mod import;
pub(crate) mod login;
pub(crate) mod metrics;
pub(crate) mod missing;
pub(crate) mod notices;
pub(crate) mod pin;
pub(crate) mod remove;
mod screen;
pub(crate) mod servers;
pub(crate) mod signals;
pub(crate) mod snapshot;
pub(crate) mod ssh_gate;
pub(crate) mod status;
pub(crate) mod tap;
pub(crate) mod tasks;
pub(crate) mod tool_list;
pub(crate) mod tools;
pub(crate) mod top;
pub(crate) mod trail;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::CommandError;
use crate::integration::Integration;
use crate::{private, terminal};
use context::CommandContext;

/// The commands of `colibri-mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Shows the daemon: version, gates, servers, limits
    Status,
    /// Shows the hosted servers and their processes
    Servers,
    /// Lists the tools, all or those of one server
    Tools(tools::ToolsArguments),
    /// Calls a tool
    Call(call::CallToolArguments),
    /// Lists servers' prompts, or gets one
    Prompts(definition_tables::Prompts),
    /// Lists servers' resources, or reads one
    Resources(definition_tables::Resources),
    /// Lists, creates, claims, ends and watches tasks
    Tasks(tasks::TasksArguments),
    /// Runs agents, shows what they do, and ends them
    #[command(subcommand)]
    Agent(agent::AgentCommand),
    /// Shows all that an assistant is told of the daemon in one call
    Snapshot,
    /// Shows, verifies and keeps the trail: the record of every call
    Trail(trail::TrailArguments),
    /// Shows what calls, lists of tools and agents' models cost
    Costs(costs::CostsArguments),
    /// Shows the daemon's metrics, as Prometheus reads them
    Metrics(metrics::MetricsArguments),
    /// Shows, as they pass, the messages between the daemon and a server (operators)
    Tap(tap::TapArguments),
    /// Shows servers, calls, waiting approvals and the trail, and goes on doing so (operators)
    Top(screen::ScreenArguments),
    /// Shows agents, the calls they make, the servers and jails behind them, and goes on doing so
    Glasspane(glasspane::GlasspaneArguments),
    /// Shows the calls that wait for a person (operators)
    Approvals,
    /// Shows, as it happens, what somebody may want to know: ended tasks, waiting calls, errors (operators)
    Notices,
    /// Lets a waiting call be made (operators)
    Approve(approvals::Decide),
    /// Refuses a waiting call (operators)
    Deny(approvals::Decide),
    /// Shows and approves what servers say of their tools (operators)
    Pin(pin::PinArguments),
    /// Has the daemon read its registry and client policy again (operators)
    Reload,
    /// Adds a server: a command, what npx or uvx would run, or a url
    ///
    /// What a runner would fetch is installed once, in its exact version, into a directory of the server's own, and the
    /// entry runs it from there: nothing is fetched when a server is started. Shows what it will write, what would
    /// confine it and where secrets go, and asks before it writes.
    Add(add::AddArguments),
    /// Adds the servers of an editor, of a server.json, or of an MCPB bundle
    ///
    /// Each server becomes an entry or is refused with its reason; one that is odd never hinders others.
    Import(import::ImportArguments),
    /// Removes a server: its entry, what was installed for it, and its secrets
    Remove(remove::RemoveArguments),
    /// Enables a server that was disabled, or that was edited since you agreed to it
    Enable(enable::EnableArguments),
    /// Keeps a server in the registry, but offers it to nobody
    Disable(enable::EnableArguments),
    /// Ends a server's processes; its next call starts it again (operators)
    Restart(enable::Restart),
    /// Logs you in to a server behind a URL
    Login(login::LoginArguments),
    /// Forgets your login to a server behind a URL
    Logout(login::Logout),
    /// Writes into an editor's settings that it starts the bridge
    Connect(connect::ConnectArguments),
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
    /// Starts a private daemon, shows it at work, and cleans up; `demo agent` runs an agent
    Demo(demo::DemoArguments),
    /// Checks what must hold for jailed servers to run, and says what to do
    Doctor(doctor::DoctorArguments),
    /// Runs a program in an agent's jail, with its model behind the relay
    ///
    /// Listens on loopback, tells the program by ANTHROPIC_BASE_URL, OPENAI_BASE_URL and GOOGLE_GEMINI_BASE_URL (unless
    /// they are set), and passes bytes to the model relay's socket: COLIBRI_MODEL_SOCKET, else model.sock beside
    /// COLIBRI_MCP_SOCKET, else /var/run/colibri/model.sock. Signals are passed on, and the program's exit status is
    /// the command's.
    Door(door::DoorArguments),
    /// Is an MCP server of our own, on stdio, that reaches something outside
    ///
    /// The daemon starts it by an entry of the registry, with its contract: see docs/integrations.md.
    #[command(subcommand)]
    Integration(Integration),
    /// Prints a completion script for a shell
    Completions(completions::CompletionsArguments),
    /// Starts the user's own daemon: what a bridge or a command starts for it
    #[command(hide = true)]
    PrivateDaemon,
    /// The demo's daemon: `colibri-mcpd` that ends with its stdin
    #[command(hide = true)]
    DemoDaemon(demo::daemon::DemoDaemonArguments),
    /// The demo's MCP server, on stdio
    #[command(hide = true)]
    DemoServer(demo::server::DemoServerArguments),
    /// The demo's agent
    #[command(hide = true)]
    DemoAgent,
}

impl ClientCommand {
    /// Runs the command. `command_line` is all that the program takes.
    pub(crate) fn run(
        self,
        context: &CommandContext,
        command_line: impl FnOnce() -> clap::Command,
    ) -> Result<ExitCode, CommandError> {
        match self {
            ClientCommand::Status => status::run(context)?,
            ClientCommand::Servers => servers::run(context)?,
            ClientCommand::Tools(arguments) => tools::run(&arguments, context)?,
            ClientCommand::Call(arguments) => call::run(&arguments, context)?,
            ClientCommand::Prompts(arguments) => definition_tables::prompts(&arguments, context)?,
            ClientCommand::Resources(arguments) => definition_tables::resources(&arguments, context)?,
            ClientCommand::Tasks(arguments) => tasks::run(&arguments, context)?,
            ClientCommand::Agent(command) => return agent::run(&command, context),
            ClientCommand::Snapshot => snapshot::run(context)?,
            ClientCommand::Trail(arguments) => return trail::run(&arguments, context),
            ClientCommand::Costs(arguments) => costs::run(&arguments, context)?,
            ClientCommand::Metrics(arguments) => metrics::run(&arguments, context)?,
            ClientCommand::Tap(arguments) => tap::run(&arguments, context)?,
            ClientCommand::Top(arguments) => return top::run(&arguments, context),
            ClientCommand::Glasspane(arguments) => return glasspane::run(&arguments, context),
            ClientCommand::Approvals => approvals::list(context)?,
            ClientCommand::Notices => notices::run(context)?,
            ClientCommand::Approve(decide) => approvals::decide(&decide, true, context)?,
            ClientCommand::Deny(decide) => approvals::decide(&decide, false, context)?,
            ClientCommand::Pin(arguments) => return pin::run(&arguments, context),
            ClientCommand::Reload => approvals::reload(context)?,
            ClientCommand::Add(arguments) => return add::run(&arguments, context),
            ClientCommand::Import(arguments) => return import::run(&arguments, context),
            ClientCommand::Remove(arguments) => remove::run(&arguments, context)?,
            ClientCommand::Enable(arguments) => enable::run(&arguments, true, context)?,
            ClientCommand::Disable(arguments) => enable::run(&arguments, false, context)?,
            ClientCommand::Restart(arguments) => enable::restart(&arguments, context)?,
            ClientCommand::Login(login) => login.run(context)?,
            ClientCommand::Logout(logout) => logout.run(context)?,
            ClientCommand::Connect(arguments) => connect::run(&arguments, context)?,
            ClientCommand::SshGate => return ssh_gate::run(context),
            ClientCommand::Demo(arguments) => demo::run(&arguments)?,
            ClientCommand::Doctor(arguments) => return doctor::run(&arguments, context),
            ClientCommand::Door(arguments) => return door::run(&arguments),
            ClientCommand::Integration(integration) => return integration.run(),
            ClientCommand::Completions(arguments) => completions::run(&arguments, &command_line())?,
            ClientCommand::PrivateDaemon => {
                if let Err(why) = private::launch() {
                    terminal::print(&format!("{why:#}"))?;
                    return Ok(ExitCode::FAILURE);
                }
            }
            ClientCommand::DemoDaemon(arguments) => return demo::daemon::run(arguments),
            ClientCommand::DemoServer(arguments) => demo::server::run(&arguments)?,
            ClientCommand::DemoAgent => return demo::agent::program::run(context),
        }
        Ok(ExitCode::SUCCESS)
    }
}

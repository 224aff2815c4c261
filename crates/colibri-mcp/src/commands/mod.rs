//! The operator's commands, a file each: its arguments, what it asks the daemon, how it shows the
//! answer.

pub(crate) mod add;
pub(crate) mod agent;
mod agent_event;
mod agent_setup;
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
pub(crate) mod glasspane;
pub(crate) mod import;
pub(crate) mod learn;
pub(crate) mod login;
pub(crate) mod missing;
pub(crate) mod otlp;
pub(crate) mod pin;
pub(crate) mod record;
pub(crate) mod remove;
mod screen;
pub(crate) mod script;
pub(crate) mod server;
pub(crate) mod signals;
pub(crate) mod ssh_gate;
pub(crate) mod status;
pub(crate) mod sync;
pub(crate) mod tasks;
pub(crate) mod tool_list;
pub(crate) mod tools;
pub(crate) mod trail;
pub(crate) mod uninstall;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write_gate;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::CommandError;
use crate::integration::Integration;
use crate::{private, terminal};
use context::CommandContext;

/// The commands of `colibri-mcp`, group by group as the help shows them ([`GROUPS`]).
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Adds a server: a command, what npx or uvx would run, or a url
    ///
    /// What a runner would fetch is installed once, in its exact version, into a directory of the
    /// server's own, and the entry runs it from there: nothing is fetched when a server is started.
    /// Shows what it will write, what would confine it and where secrets go, and asks before it
    /// writes.
    Add(add::AddArguments),
    /// Adds the servers of an editor, of a server.json, or of an MCPB bundle
    ///
    /// Each server becomes an entry or is refused with its reason; one that is odd never hinders
    /// others.
    Import(import::ImportArguments),
    /// Installs what the registry names and this machine lacks, as after the registry was copied
    ///
    /// Each package comes by the hashes of its lock, which stands beside the registry in locks/;
    /// one that differs is refused. Entries that you have not agreed to on this machine are shown,
    /// and turned on if you agree.
    Sync(sync::SyncArguments),
    /// Looks for newer versions of packages, tries them, and takes those that work
    ///
    /// Asks before any new code runs. Each new version is installed beside the old one and started
    /// with an empty home and without its secrets; if its definitions differ from those that were
    /// approved, that is shown, and asked again. Until then the old one stays as it is, and after
    /// it --to takes you back to it.
    Update(update::UpdateArguments),
    /// Removes a server or an agent: its entry, what was installed for it, and its secrets
    Remove(remove::RemoveArguments),
    /// Logs you in to a server behind a URL, or out of it
    Login(login::LoginArguments),
    /// Writes into an editor's settings that it starts the bridge
    Connect(connect::ConnectArguments),
    /// Ends your own daemon and removes its servers, agents, state and backups
    Uninstall(uninstall::UninstallArguments),
    /// Starts a private daemon, shows it at work, and cleans up; `demo agent` runs an agent
    Demo(demo::DemoArguments),
    /// Lists the tools, all or those of one server
    Tools(tools::ToolsArguments),
    /// Calls a tool
    Call(call::CallToolArguments),
    /// Lists servers' prompts, or gets one
    Prompts(definition_tables::Prompts),
    /// Lists servers' resources, or reads one
    Resources(definition_tables::Resources),
    /// Shows the daemon and its servers: version, gates, states, processes, limits, metrics
    Status(status::ShowStatusArguments),
    /// Shows agents, calls, servers and jails on a screen that goes on, or writes a page of a day
    Glasspane(glasspane::GlasspaneArguments),
    /// Shows notices, changes of tasks, or the messages of a server, as they happen
    #[command(subcommand)]
    Watch(watch::WatchCommand),
    /// Shows what calls, lists of tools and agents' models cost
    Costs(costs::CostsArguments),
    /// Shows, verifies and keeps the trail: the record of every call
    Trail(trail::TrailArguments),
    /// Shows, approves and denies the calls that wait for a person (operators)
    #[command(subcommand_required = false)]
    Approvals {
        #[command(subcommand)]
        command: Option<approvals::ApprovalsCommand>,
    },
    /// Shows and approves what servers say of their tools (operators)
    Pin(pin::PinArguments),
    /// Runs agents, shows what they do, and ends them
    #[command(subcommand)]
    Agent(agent::AgentCommand),
    /// Lists, creates, claims and ends tasks
    Tasks(tasks::TasksArguments),
    /// Enables, disables or restarts a server; has the registry read again
    #[command(subcommand)]
    Server(server::ServerCommand),
    /// Checks what must hold for jailed servers to run, and says what to do
    Doctor(doctor::DoctorArguments),
    /// Lets an SSH key start the bridge and list tools, and nothing else
    ///
    /// It is the forced command of a key in authorized_keys, so that an editor on another machine
    /// can use this machine's tools without getting a shell:
    ///
    ///   command="/usr/local/bin/colibri-mcp ssh-gate",restrict ssh-ed25519 AAAA... zed
    ///
    /// What the other side asks for (SSH_ORIGINAL_COMMAND) may be nothing, `colibri-mcp`,
    /// `colibri-mcp --read-only`, `colibri-mcp tools [SERVER] [--json]`, the program's name with or
    /// without an absolute path. No shell reads it. Everything else is refused with exit status 77.
    /// `ssh-gate --read-only` keeps both gates closed for the key, and `ssh-gate --socket PATH`
    /// chooses the daemon; the other side can choose neither.
    #[command(verbatim_doc_comment, hide = true)]
    SshGate(ssh_gate::SshGateArguments),
    /// Runs a program in an agent's jail, with its model behind the relay
    ///
    /// Listens on loopback, tells the program by ANTHROPIC_BASE_URL, OPENAI_BASE_URL and
    /// GOOGLE_GEMINI_BASE_URL (unless they are set), and passes bytes to the model relay's socket:
    /// COLIBRI_MODEL_SOCKET, else model.sock beside COLIBRI_MCP_SOCKET, else
    /// /var/run/colibri/model.sock. Signals are passed on, and the program's exit status is the
    /// command's.
    #[command(hide = true)]
    Door(door::DoorArguments),
    /// Is an MCP server of our own, on stdio, that reaches something outside
    ///
    /// The daemon starts it by an entry of the registry, with its contract: see
    /// docs/integrations.md.
    #[command(subcommand, hide = true)]
    Integration(Integration),
    /// Runs a script that calls tools, as colibri_run_script does
    ///
    /// The script is JavaScript: an ES module, or a function's body that returns something. Each
    /// tool that it calls is a call of yours, with all that holds for those: see docs/scripts.md.
    #[command(hide = true)]
    Script(script::ScriptArguments),
    /// Records a session with a server for `replay`, or verifies a recording by the trail
    ///
    /// A client starts it in place of the bridge: `colibri-mcp record SERVER FILE`. The file is
    /// written when the session has ended.
    #[command(hide = true)]
    Record(record::RecordArguments),
    /// Is an MCP server, on stdio, that answers from a recording
    #[command(hide = true)]
    Replay(record::ReplayArguments),
    /// Exports calls, model requests, agents' runs and tasks as OpenTelemetry's spans
    ///
    /// Follows the trail until it is told to end. The trail is the queue: what a collector does not
    /// take now is exported later.
    #[command(hide = true)]
    Otlp(otlp::OtlpArguments),
    /// Runs a server under observation, and proposes the jail that your use of it needs
    ///
    /// Stands in the place of a server's command: `colibri-mcp learn NAME -- COMMAND` speaks MCP as
    /// the server does, and notes the files, programs and addresses that it uses, and the tools
    /// that are called; no contents, and no values.
    #[command(hide = true)]
    Learn(learn::LearnArguments),
    /// Prints a completion script for a shell
    #[command(hide = true)]
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

/// The commands that people type, by what they want to do, in the order of [`ClientCommand`].
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Set up servers and editors",
        &[
            "add",
            "import",
            "sync",
            "update",
            "remove",
            "login",
            "connect",
            "uninstall",
            "demo",
        ],
    ),
    (
        "Use what servers offer",
        &["tools", "call", "prompts", "resources"],
    ),
    (
        "See what goes on, and what went on",
        &["status", "glasspane", "watch", "costs", "trail"],
    ),
    ("Decide what may be called", &["approvals", "pin"]),
    ("Have agents work", &["agent", "tasks"]),
    ("Operate the service", &["server", "doctor"]),
];

/// The commands with what they do, in their groups, for the help.
pub(crate) fn grouped(all: &clap::Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for name in names {
            let about = all.find_subcommand(name).and_then(clap::Command::get_about);
            text.push_str(&format!(
                "  {name:<10} {}\n",
                about.map(ToString::to_string).unwrap_or_default()
            ));
        }
    }
    text.truncate(text.trim_end().len());
    text
}

impl ClientCommand {
    /// True if the command is about the service, in use or not.
    pub(crate) fn is_for_service(&self) -> bool {
        match self {
            ClientCommand::Add(arguments) => arguments.choices.service,
            ClientCommand::Import(arguments) => arguments.choices.service,
            ClientCommand::Sync(arguments) => arguments.service,
            ClientCommand::Update(arguments) => arguments.service,
            ClientCommand::Remove(arguments) => arguments.service,
            ClientCommand::Server(command) => command.is_for_service(),
            ClientCommand::Doctor(arguments) => arguments.root,
            _ => false,
        }
    }

    /// Runs the command.
    pub(crate) fn run(self, context: &CommandContext) -> Result<ExitCode, CommandError> {
        match self {
            ClientCommand::Add(arguments) => return add::run(&arguments, context),
            ClientCommand::Import(arguments) => return import::run(&arguments, context),
            ClientCommand::Sync(arguments) => return sync::run(&arguments, context),
            ClientCommand::Update(arguments) => return update::run(&arguments, context),
            ClientCommand::Remove(arguments) => remove::run(&arguments, context)?,
            ClientCommand::Login(login) => login.run(context)?,
            ClientCommand::Connect(arguments) => connect::run(&arguments, context)?,
            ClientCommand::Uninstall(arguments) => uninstall::run(&arguments, context)?,
            ClientCommand::Demo(arguments) => demo::run(&arguments)?,
            ClientCommand::Tools(arguments) => tools::run(&arguments, context)?,
            ClientCommand::Call(arguments) => call::run(&arguments, context)?,
            ClientCommand::Prompts(arguments) => definition_tables::prompts(&arguments, context)?,
            ClientCommand::Resources(arguments) => {
                definition_tables::resources(&arguments, context)?
            }
            ClientCommand::Status(arguments) => status::run(&arguments, context)?,
            ClientCommand::Glasspane(arguments) => return glasspane::run(&arguments, context),
            ClientCommand::Watch(topic) => watch::run(&topic, context)?,
            ClientCommand::Costs(arguments) => costs::run(&arguments, context)?,
            ClientCommand::Trail(arguments) => return trail::run(&arguments, context),
            ClientCommand::Approvals { command } => approvals::run(command.as_ref(), context)?,
            ClientCommand::Pin(arguments) => return pin::run(&arguments, context),
            ClientCommand::Agent(command) => return agent::run(&command, context),
            ClientCommand::Tasks(arguments) => tasks::run(&arguments, context)?,
            ClientCommand::Server(command) => server::run(&command, context)?,
            ClientCommand::Doctor(arguments) => return doctor::run(&arguments, context),
            ClientCommand::Script(arguments) => script::run(&arguments, context)?,
            ClientCommand::SshGate(arguments) => return ssh_gate::run(&arguments, context),
            ClientCommand::Door(arguments) => return door::run(&arguments),
            ClientCommand::Integration(integration) => return integration.run(),
            ClientCommand::Record(arguments) => return record::run(&arguments, context),
            ClientCommand::Replay(arguments) => record::run_replay(&arguments)?,
            ClientCommand::Otlp(arguments) => otlp::run(&arguments, context)?,
            ClientCommand::Learn(arguments) => return learn::run(&arguments, context),
            ClientCommand::Completions(arguments) => completions::run(&arguments)?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_people_type_is_in_one_group_and_in_its_order() {
        let all = ClientCommand::augment_subcommands(clap::Command::new("colibri-mcp"));
        let visible = all
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        let visible: Vec<&str> = visible.map(clap::Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        assert_eq!(visible, grouped);
        assert!(visible.len() <= 24, "{visible:?}");
    }
}

//! `colibri-mcp server`: a hosted server enabled, disabled or restarted; the registry read again.

use std::slice;

use clap::Subcommand;

use super::add::introduced;
use super::context::CommandContext;
use super::remove::no_server;
use crate::failure::CommandError;
use crate::install::{self, InstallScope, RegistryFile};
use crate::owned_file::agree;
use colibri_api::{ReloadResponse, RestartRequest, RestartResponse};
use colibri_mcp::edit::{FileFormat, Value};
use colibri_text::{counted, visible};
use serde_json::json;

/// The action.
#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Enables a server or an agent that was disabled, or that was edited since you agreed to it
    Enable(EnableArguments),
    /// Keeps a server or an agent in the registry, but offers it to nobody
    Disable(EnableArguments),
    /// Ends a server's processes; its next call starts it again (operators)
    Restart(Restart),
    /// Has the daemon read its registry and client policy again (operators)
    Reload,
}

/// Runs the command.
pub(crate) fn run(command: &ServerCommand, context: &CommandContext) -> Result<(), CommandError> {
    match command {
        ServerCommand::Enable(arguments) => enable(arguments, true, context),
        ServerCommand::Disable(arguments) => enable(arguments, false, context),
        ServerCommand::Restart(arguments) => restart(arguments, context),
        ServerCommand::Reload => reload(context),
    }
}

/// The server.
#[derive(Debug, clap::Args)]
pub(crate) struct EnableArguments {
    /// The server's id
    name: String,
    /// Writes without asking
    #[arg(long)]
    yes: bool,
    /// In the service's registry, as root
    #[arg(long)]
    service: bool,
}

/// The server.
#[derive(Debug, clap::Args)]
pub(crate) struct Restart {
    /// The server's id
    name: String,
}

/// Enables a server, or disables it.
fn enable(arguments: &EnableArguments, enable: bool, context: &CommandContext) -> Result<(), CommandError> {
    let scope = InstallScope::find(arguments.service)?;
    let id = &arguments.name;
    let RegistryFile { file, entries, read } = install::registered(&scope)?;
    let (list, entry) = entries.get(id).ok_or_else(|| no_server(id, &entries, &scope))?;
    let is_agent = *list == install::AGENTS;
    let keys = [*list, id, "disabled"];
    let text = match enable {
        true => {
            let entry = read.servers.get(id);
            let checked = entry.map_or(Ok(()), |entry| install::check_installed(entry, &scope, id));
            checked.map_err(|error| CommandError::Data(format!("{error:#}")))?;
            FileFormat::Json.remove(file.text(), &keys)
        }
        false => FileFormat::Json.set(file.text(), &keys, &Value::Bool(true)),
    };
    let text = text.map_err(|fault| file.fault(fault))?;
    let (doing, done) = if enable {
        ("Enable", "Enabled")
    } else {
        ("Disable", "Disabled")
    };
    if enable {
        // What is agreed to is what stands there now.
        context.tell(&install::show_entry(id, entry))?;
    }
    agree(&format!("{doing} {id} in {}?", scope.registry.display()), arguments.yes)?;
    let alone = scope.lock()?;
    let kept = install::rewrite(&scope, file, text)?;
    let agreed: &[&str] = if enable { &[id] } else { &[] };
    install::agree_to(&scope, agreed)?;
    let facts = json!({ "server": id, "enabled": enable });
    let told = install::reload(&context.place.socket);
    told.answer(context, &scope, (format!("{done} {id}."), facts), kept.as_deref())?;
    drop(alone);
    if enable && !is_agent {
        introduced(slice::from_ref(id), context)?;
    }
    Ok(())
}

/// Ends a server's processes.
fn restart(arguments: &Restart, context: &CommandContext) -> Result<(), CommandError> {
    let asked = RestartRequest {
        server: arguments.name.clone(),
    };
    let (restarted, raw): (RestartResponse, _) = context.ask("colibri/restart", &asked)?;
    context.print(&raw, || {
        let server = visible(&restarted.server);
        match restarted.ended {
            0 => format!("{server} had no process; its next call starts one."),
            ended => format!(
                "{server}: {} ended; the next call starts one.",
                counted(ended, "process")
            ),
        }
    })
}

/// Has the daemon read registry and client policy again.
fn reload(context: &CommandContext) -> Result<(), CommandError> {
    let (reloaded, raw): (ReloadResponse, _) = context.ask("colibri/reload", &json!({}))?;
    context.print(&raw, || {
        let blocked = reloaded.blocked.iter().map(|blocked| {
            let (server, reason) = (visible(&blocked.server), visible(&blocked.reason));
            format!("\n{server} is blocked: {reason}")
        });
        let waits = match reloaded.limits_wait {
            true => "\nThe limits in clients.json have changed: they hold from the daemon's next start.",
            false => "",
        };
        format!("Reloaded.{}{waits}", blocked.collect::<String>())
    })
}

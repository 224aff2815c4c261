//! `colibri-mcp server`: a hosted server enabled, disabled or restarted; the registry read again.

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

impl ServerCommand {
    /// True if it is about the service, in use or not.
    pub(super) fn is_for_service(&self) -> bool {
        match self {
            ServerCommand::Enable(arguments) | ServerCommand::Disable(arguments) => {
                arguments.service
            }
            ServerCommand::Restart(_) | ServerCommand::Reload => false,
        }
    }
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
fn enable(
    arguments: &EnableArguments,
    enable: bool,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let scope = InstallScope::choose(arguments.service, &context.place)?;
    let id = &arguments.name;
    let RegistryFile {
        file,
        entries,
        read,
    } = install::registered(&scope)?;
    let (keys, _) = entries
        .get(id)
        .ok_or_else(|| no_server(id, &entries, &scope))?;
    // An entry with accounts is a server for each of them.
    let servers: Vec<&str> = read.of_entry(id).map(|(id, _)| id.as_str()).collect();
    let servers = if servers.is_empty() {
        vec![id.as_str()]
    } else {
        servers
    };
    let whole = keys.get(1).filter(|whole| *whole != id);
    let is_off = |id: &String| {
        entries
            .get(id)
            .is_some_and(|(_, entry)| entry.get("disabled") == Some(&json!(true)))
    };
    if let Some(whole) = whole.filter(|whole| enable && is_off(whole)) {
        return Err(CommandError::Data(format!(
            "{whole} is disabled with all its accounts: colibri-mcp server enable {whole}"
        )));
    }
    let keys = install::key_path(keys, Some("disabled"));
    let text = match enable {
        true => {
            let entry = read.of_entry(id).next();
            let checked =
                entry.map_or(Ok(()), |(_, entry)| install::check_installed(entry, &scope));
            checked.map_err(|error| CommandError::Data(format!("{error:#}")))?;
            match whole {
                None => FileFormat::Json.remove(file.text(), &keys),
                // Taken out, it might leave an account without keys, which would go with it.
                Some(_) => FileFormat::Json.set(file.text(), &keys, &Value::Bool(false)),
            }
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
        for (server, (_, entry)) in entries
            .iter()
            .filter(|(server, _)| servers.contains(&server.as_str()))
        {
            context.tell(&install::show_entry(server, entry))?;
        }
    }
    agree(
        &format!("{doing} {id} in {}?", scope.registry.display()),
        arguments.yes,
    )?;
    let alone = scope.lock()?;
    let kept = install::rewrite(&scope, file, text)?;
    let agreed = if enable { servers.as_slice() } else { &[] };
    install::agree_to(&scope, agreed)?;
    let facts = json!({ "server": id, "enabled": enable });
    let told = install::reload(&context.place.socket);
    told.answer(
        context,
        &scope,
        (format!("{done} {id}."), facts),
        kept.as_deref(),
    )?;
    drop(alone);
    let now = install::registered(&scope)?.read;
    let on = now
        .of_entry(id)
        .filter(|(_, entry)| enable && !entry.disabled);
    introduced(&on.map(|(id, _)| id.clone()).collect::<Vec<_>>(), context)
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
            true => {
                "\nThe limits in clients.json have changed: they hold from the daemon's next start."
            }
            false => "",
        };
        format!("Reloaded.{}{waits}", blocked.collect::<String>())
    })
}

//! The write gate of the user's own daemon: tasks and agents, turned on after one question at a
//! terminal. The answer is kept in `consent.json`, which the daemon reads and no client can have it
//! write.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use serde_json::json;

use super::context::CommandContext;
use crate::consent::ConsentFile;
use crate::failure::CommandError;
use crate::install::{self, InstallScope};
use crate::owned_file::agree;

/// What it means that they are on.
pub(crate) const MEANING: &str = "\
Tasks and agents are off for your own daemon. When they are on, every program that uses it (your editors, their models)
can create, take and end tasks and set your cost mode, and you can run the agents of your registry.
colibri-mcp tasks disable turns them off again.";

/// Prompts a person at a terminal whether tasks and agents are turned on, where the command is
/// about to need that and the person's own daemon has them off. Elsewhere the daemon itself
/// answers.
///
/// # Errors
/// The person says no, or the answer cannot be kept.
pub(crate) fn ensure_open(context: &CommandContext) -> Result<(), CommandError> {
    if !context.place.private || context.read_only || !io::stdin().is_terminal() {
        return Ok(());
    }
    let scope = InstallScope::find(false, &context.place)?;
    match is_open(&scope)? {
        true => Ok(()),
        false => open(&scope, context).map(drop),
    }
}

/// Switches tasks and agents on, after a question.
///
/// # Errors
/// There is no terminal, the person says no, or the daemon is not the user's own.
pub(crate) fn enable(context: &CommandContext) -> Result<(), CommandError> {
    let scope = own(context)?;
    if !io::stdin().is_terminal() {
        return Err(CommandError::Refused(
            "tasks and agents are turned on by a person at a terminal, so that no program does it by mistake: say it there"
                .to_owned(),
        ));
    }
    let told = match is_open(&scope)? {
        true => install::reload(&context.place.socket),
        false => open(&scope, context)?,
    };
    told.answer(
        context,
        &scope,
        (
            "Tasks and agents are on.".to_owned(),
            json!({ "write": true }),
        ),
        None,
    )
}

/// Switches tasks and agents off. Agents that run go on to their end.
///
/// # Errors
/// It cannot be written, or the daemon is not the user's own.
pub(crate) fn disable(context: &CommandContext) -> Result<(), CommandError> {
    let scope = own(context)?;
    set(&scope, false)?;
    let told = install::reload(&context.place.socket);
    told.answer(
        context,
        &scope,
        (
            "Tasks and agents are off.".to_owned(),
            json!({ "write": false }),
        ),
        None,
    )
}

/// Prompts, and opens the gate; what a daemon that runs says to it.
fn open(
    scope: &InstallScope,
    context: &CommandContext,
) -> Result<install::ChangeReport, CommandError> {
    context.tell(MEANING)?;
    agree("Turn tasks and agents on?", false)?;
    set(scope, true)?;
    Ok(install::reload(&context.place.socket))
}

/// True if the user turned tasks and agents on.
///
/// # Errors
/// The file of consent cannot be read.
pub(crate) fn is_open(scope: &InstallScope) -> Result<bool, CommandError> {
    Ok(ConsentFile::read(file(scope)?)?.opens_write())
}

/// Switches tasks and agents on or off. The person has been asked.
///
/// # Errors
/// The file of consent cannot be read or written.
pub(crate) fn set(scope: &InstallScope, open: bool) -> Result<(), CommandError> {
    let path = file(scope)?;
    let _alone = scope.lock()?;
    let mut consent = ConsentFile::read(path)?;
    consent.set_write(open);
    consent.write(path).map_err(|source| CommandError::File {
        path: path.to_owned(),
        source,
    })
}

fn file(scope: &InstallScope) -> Result<&Path, CommandError> {
    let none = || {
        CommandError::Refused("the service has a flag for that: colibri-mcpd --write".to_owned())
    };
    scope.consent.as_deref().ok_or_else(none)
}

/// The user's own scope.
fn own(context: &CommandContext) -> Result<InstallScope, CommandError> {
    if !context.place.private {
        return Err(CommandError::Refused(format!(
            "the daemon of {} is not your own: its operator opens its write gate, by colibri-mcpd --write \
             (COLIBRI_MCP_WRITE=1; on FreeBSD sysrc colibri_mcp_write=YES)",
            context.place.socket.display()
        )));
    }
    InstallScope::find(false, &context.place)
}

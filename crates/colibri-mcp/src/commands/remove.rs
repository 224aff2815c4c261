//! `colibri-mcp remove`: a server's entry, what was installed for it, its secrets.

use std::collections::BTreeMap;

use super::agent_setup;
use super::context::CommandContext;
use crate::failure::CommandError;
use crate::install::{self, InstallScope};
use crate::owned_file::agree;
use crate::progress;
use colibri_json::nearest;
use colibri_text::visible;
use serde_json::json;

/// The server.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArguments {
    /// The server's id
    name: String,
    /// Removes without asking
    #[arg(long)]
    yes: bool,
    /// From the service's registry, as root
    #[arg(long)]
    pub service: bool,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &RemoveArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let scope = InstallScope::choose(arguments.service, &context.place)?;
    let id = &arguments.name;
    let known = install::registered(&scope)?;
    let left = install::belongings(&scope, id, &known.entries);
    let mut lines = match known.entries.get(id).map(|(keys, _)| keys.as_slice()) {
        Some([_, entry, _, _]) if known.read.of_entry(entry).count() == 1 => {
            return Err(CommandError::Data(format!(
                "{id} is the only account of {entry}: colibri-mcp remove {entry}"
            )));
        }
        Some([_, entry, _, _]) => vec![format!(
            "{id}: an account of {entry} in {}",
            scope.registry.display()
        )],
        Some(_) => vec![format!("{id}: its entry in {}", scope.registry.display())],
        None if left.is_empty() => return Err(no_server(id, &known.entries, &scope)),
        None => vec![format!("{id}: it has no entry, but this is left of it")],
    };
    lines.extend(
        left.iter()
            .map(|path| format!("  {}", visible(&path.display().to_string()))),
    );
    context.tell(&lines.join("\n"))?;
    agree("Remove this?", arguments.yes)?;
    let _alone = scope.lock()?;
    let _step = progress::step(format!("ending {id} and removing what is left of it"));
    let kept = install::remove(&scope, id, known)?;
    let told = install::reload(&context.place.socket);
    install::forget(&scope, &left)?;
    let facts = json!({ "removed": id, "files": left });
    told.answer(
        context,
        &scope,
        (format!("Removed {id}."), facts),
        kept.as_deref(),
    )
}

/// There is no server of this id.
pub(crate) fn no_server<T>(
    id: &str,
    known: &BTreeMap<String, T>,
    scope: &InstallScope,
) -> CommandError {
    let known: Vec<&str> = known.keys().map(String::as_str).collect();
    let near = nearest(id, &known).map(|near| format!("; did you mean {near}?"));
    CommandError::Data(format!(
        "{} has no server {}{}",
        scope.registry.display(),
        visible(id),
        agent_setup::advice(id).or(near).unwrap_or_default()
    ))
}

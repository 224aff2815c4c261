//! `colibri-mcp remove`: a server's entry, what was installed for it, its secrets.

use std::collections::BTreeSet;

use serde_json::Value;

use super::context::Context;
use crate::failure::Failure;
use crate::install::{self, Scope};
use crate::owned::agree;
use crate::terminal;
use colibri_json::nearest;
use colibri_mcp::edit::Kind;
use colibri_text::visible;

/// Which server.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The server's id
    name: String,
    /// Removes without asking
    #[arg(long)]
    yes: bool,
    /// From the service's registry, as root
    #[arg(long)]
    service: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let scope = Scope::find(arguments.service)?;
    let id = &arguments.name;
    let (file, ids) = install::registered(&scope)?;
    let list = *ids.get(id).ok_or_else(|| no_server(id, ids.keys(), &scope))?;
    let value = |list: &str| Kind::Json.get(file.text(), &[list]).map_err(|fault| file.fault(fault));
    let entry = value(list)?
        .and_then(|entries| entries.get(id).cloned())
        .unwrap_or_default();
    let mut named = BTreeSet::new();
    for list in ids.values().collect::<BTreeSet<_>>() {
        for (other, entry) in value(list)?.as_ref().and_then(Value::as_object).into_iter().flatten() {
            if other != id {
                secrets(entry, &mut named);
            }
        }
    }
    let mut own = BTreeSet::new();
    // The secrets of jailed servers lie elsewhere, and are root's to remove.
    if entry.get("jail").is_none() {
        secrets(&entry, &mut own);
    }
    let gone: Vec<String> = own.difference(&named).cloned().collect();
    let mut lines = vec![format!("{id}: its entry in {}", scope.registry.display())];
    let prefix = scope.prefix(id);
    if prefix.exists() {
        lines.push(format!("  {}, which was installed for it", prefix.display()));
    }
    lines.extend(
        gone.iter()
            .map(|name| format!("  {}", scope.secrets.join(name).display())),
    );
    terminal::print(&lines.join("\n"))?;
    agree("Remove this?", arguments.yes)?;
    let text = Kind::Json
        .remove(file.text(), &[list, id])
        .map_err(|fault| file.fault(fault))?;
    let kept = install::rewrite(&scope, file, text)?;
    install::agree_to(&scope, &[])?;
    let said = kept.map(|kept| format!("\nThe registry as it was: {}", kept.display()));
    let reloaded = install::reload(&context.place.socket);
    install::forget(&scope, id, &gone)?;
    terminal::print(&format!("Removed {id}.{}\n{reloaded}", said.unwrap_or_default()))
}

/// The names of the secrets that an entry names.
fn secrets(entry: &Value, found: &mut BTreeSet<String>) {
    let objects = ["env", "headers"].iter().filter_map(|key| entry.get(key)?.as_object());
    let names = objects
        .flat_map(|fields| fields.values())
        .filter_map(|value| value.get("secret")?.as_str());
    found.extend(
        names
            .filter(|name| colibri_registry::is_secret_name(name))
            .map(str::to_owned),
    );
}

/// There is no server of this id.
pub(crate) fn no_server<'i>(id: &str, known: impl Iterator<Item = &'i String>, scope: &Scope) -> Failure {
    let known: Vec<&str> = known.map(String::as_str).collect();
    let near = nearest(id, &known).map(|near| format!("; did you mean {near}?"));
    Failure::Data(format!(
        "{} has no server {}{}",
        scope.registry.display(),
        visible(id),
        near.unwrap_or_default()
    ))
}

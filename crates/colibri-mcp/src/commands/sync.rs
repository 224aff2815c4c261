//! `colibri-mcp sync`: the machine as the registry says, after it was copied from another one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use colibri_registry::{PackageOrigin, PackagePin, ServerEntry, sha256_hex};
use serde_json::json;

use super::add::introduced;
use super::context::CommandContext;
use crate::failure::CommandError;
use crate::install::{self, InstallScope, PackageLock, PackageTools, RegistryFile};
use crate::interrupt;
use crate::owned_file::agree;
use colibri_mcp::importers::{MAX_ARCHIVE, Package, PackageRegistry, PublishedBundle};
use colibri_text::{counted, visible, visible_lines};

/// The options.
#[derive(Debug, clap::Args)]
pub(crate) struct SyncArguments {
    /// A bundle that an entry names by its SHA-256; may be given more than once
    #[arg(long, value_name = "FILE")]
    bundle: Vec<PathBuf>,
    /// Installs and turns on without asking
    #[arg(long)]
    yes: bool,
    /// As the service's registry says, as root
    #[arg(long)]
    pub service: bool,
}

/// A server for which something is to be done.
struct SyncStep<'r> {
    id: &'r str,
    /// The id of its entry, whose accounts have one package together.
    entry_id: &'r str,
    /// The digest of its entry, as it is shown.
    entry: &'r str,
    /// The package that is to be installed.
    lock: Option<(PackagePin, PackageLock)>,
    /// The reason for which it is, as the person reads it.
    note: &'static str,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &SyncArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let scope = InstallScope::choose(arguments.service, &context.place)?;
    interrupt::hold_back()?;
    let tools =
        PackageTools::new(false).map_err(|why| CommandError::Machine(format!("{why:#}")))?;
    let bundles = bundles(&arguments.bundle)?;
    let RegistryFile { entries, read, .. } = install::registered(&scope)?;
    let agreed = install::agreements(&scope, &read)?;
    let (mut steps, mut refused) = (Vec::new(), Vec::new());
    for (id, why) in &read.refused {
        refused.push((id.clone(), why.to_string()));
    }
    for (id, entry) in &read.servers {
        let is_agreed = agreed
            .as_ref()
            .is_none_or(|agreed| agreed.get(id) == Some(&entry.digest));
        match step(id, entry, &scope, &tools) {
            Ok(Some(step)) => steps.push(step),
            Ok(None) if is_agreed => {}
            Ok(None) => steps.push(SyncStep {
                id,
                entry_id: &entry.entry_id,
                entry: &entry.digest,
                lock: None,
                note: "you have not agreed to it on this machine",
            }),
            Err(why) => refused.push((id.clone(), format!("{why:#}"))),
        }
    }
    interrupt::check()?;
    for step in &steps {
        let mut text = match entries.get(step.id) {
            Some((_, entry)) => install::show_entry(step.id, entry),
            None => step.id.to_owned(),
        };
        if let Some((pin, lock)) = &step.lock {
            let place = scope.prefix(step.entry_id).join(pin.directory());
            text.push_str(&format!(
                "\n  installs  {}",
                counted(lock.count(), "package")
            ));
            text.push_str(&format!(
                "\n            in {}",
                visible(&place.display().to_string())
            ));
            if lock.scripts {
                text.push_str("\n  note      scripts of packages are run while they are installed");
            }
        }
        context.tell(&format!("{text}\n  note      {}\n", step.note))?;
    }
    for (id, why) in &refused {
        eprintln!(
            "colibri-mcp: {} is refused: {}",
            visible(id),
            visible_lines(why)
        );
    }
    let mut done = Vec::new();
    if !steps.is_empty() {
        let what = counted(steps.len() as u64, "server");
        agree(&format!("Install and turn on {what}?"), arguments.yes)?;
        let _alone = scope.lock()?;
        let (mut installed, mut packages) = (Vec::new(), BTreeSet::new());
        for step in &steps {
            interrupt::check()?;
            let outcome = match packages.contains(step.entry_id) {
                true => Ok(()),
                false => carry_out(step, &scope, &tools, &bundles),
            };
            match outcome {
                Ok(()) => {
                    installed.push((step.id, step.entry));
                    packages.insert(step.entry_id);
                }
                Err(why) => {
                    eprintln!(
                        "colibri-mcp: {} was not installed: {}",
                        step.id,
                        visible_lines(&format!("{why:#}"))
                    );
                    refused.push((step.id.to_owned(), format!("{why:#}")));
                }
            }
        }
        let stands = install::agree_to_shown(&scope, &installed)?;
        for (id, _) in installed.iter().filter(|(id, _)| !stands.contains(id)) {
            let why = "its entry was changed or taken out meanwhile: colibri-mcp sync shows it as it stands".to_owned();
            eprintln!("colibri-mcp: {id} was not turned on: {why}");
            refused.push(((*id).to_owned(), why));
        }
        done = stands;
    }
    let on = |id: &str| read.servers.get(id).is_some_and(|entry| !entry.disabled);
    let without_secrets: BTreeMap<&str, Vec<PathBuf>> = read
        .servers
        .keys()
        .filter_map(|id| {
            Some((
                id.as_str(),
                install::absent_secrets(&scope, &entries.get(id)?.1),
            ))
        })
        .filter(|(id, absent)| !absent.is_empty() && on(id))
        .collect();
    let mut said = match done.is_empty() {
        true => "Nothing had to be installed.".to_owned(),
        false => format!("Installed and turned on: {}.", done.join(", ")),
    };
    for (id, files) in &without_secrets {
        let files: Vec<String> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        said.push_str(&format!(
            "\n{id} needs a secret that is not here: put it into {}",
            files.join(", ")
        ));
    }
    let reasons = refused
        .iter()
        .map(|(id, reason)| json!({ "server": id, "reason": reason }));
    let facts = json!({ "synced": done, "refused": reasons.collect::<Vec<_>>(), "without_secrets": without_secrets });
    let told = install::reload(&context.place.socket);
    told.answer(context, &scope, (said, facts), None)?;
    interrupt::release()?;
    let ready = done
        .iter()
        .filter(|id| on(id) && !without_secrets.contains_key(*id));
    let ready: Vec<String> = ready.map(|id| (*id).to_owned()).collect();
    introduced(&ready, context)?;
    match refused.first() {
        None => Ok(ExitCode::SUCCESS),
        Some(_) => {
            let ids: Vec<&str> = refused.iter().map(|(id, _)| id.as_str()).collect();
            let ids = visible(&ids.join(", ")).into_owned();
            Err(CommandError::Data(format!(
                "not as the registry says: {ids}; every other server is"
            )))
        }
    }
}

/// The files of bundles, by their SHA-256.
fn bundles(files: &[PathBuf]) -> Result<BTreeMap<String, Vec<u8>>, CommandError> {
    let read = |path: &PathBuf| {
        let failed = |source| CommandError::File {
            path: path.clone(),
            source,
        };
        if path.metadata().map_err(failed)?.len() > MAX_ARCHIVE as u64 {
            return Err(CommandError::Data(format!(
                "{} has more than 256 MiB",
                path.display()
            )));
        }
        let bytes = fs::read(path).map_err(failed)?;
        Ok((sha256_hex(&bytes), bytes))
    };
    files.iter().map(read).collect()
}

/// The work for one entry; `None`: what it needs is installed.
fn step<'r>(
    id: &'r str,
    entry: &'r ServerEntry,
    scope: &InstallScope,
    tools: &PackageTools,
) -> anyhow::Result<Option<SyncStep<'r>>> {
    let Some(pin) = entry
        .command
        .as_ref()
        .and_then(|command| command.package.as_ref())
    else {
        return Ok(None);
    };
    let entry_id = &entry.entry_id;
    let lock = match PackageLock::of(pin, scope, entry_id)? {
        Some(lock) => lock,
        None => resolve_again(pin, tools)?,
    };
    let note = match install::installed(pin, scope, entry_id) {
        Some(record) if !record.can_run() => "the program that runs it is gone from this machine",
        Some(record) if install::check_files(pin, scope, entry_id, &record).is_err() => {
            "what was installed was changed since; it is installed anew"
        }
        Some(_) => return Ok(None),
        None => "it is not installed on this machine",
    };
    let lock = Some((pin.clone(), lock));
    Ok(Some(SyncStep {
        id,
        entry_id,
        entry: &entry.digest,
        lock,
        note,
    }))
}

/// The lock of a package whose lock was not copied with the registry: if its registry has now what
/// it had then, it is the same.
fn resolve_again(pin: &PackagePin, tools: &PackageTools) -> anyhow::Result<PackageLock> {
    let (registry, name, version) = match &pin.origin {
        PackageOrigin::Npm { name, version } => (PackageRegistry::Npm, name, version),
        PackageOrigin::Pypi { name, version } => (PackageRegistry::Pypi, name, version),
        PackageOrigin::Bundle { .. } => {
            bail!(
                "its lock is not here: copy locks/{}.json along with the registry",
                pin.lock
            )
        }
    };
    let (lock, _) = tools.resolve(&Package {
        registry,
        name: name.clone(),
        version: Some(version.clone()),
        program: None,
        with: Vec::new(),
    })?;
    let now = lock.pin()?.lock;
    match now == pin.lock {
        true => Ok(lock),
        false => Err(anyhow!(
            "{} is sha256:{now} with all that it needs now, and its entry says sha256:{}: copy locks/{}.json along with \
             the registry, or look at what there is now: colibri-mcp update NAME --to {version}",
            pin.origin,
            pin.lock,
            pin.lock
        )),
    }
}

fn carry_out(
    step: &SyncStep<'_>,
    scope: &InstallScope,
    tools: &PackageTools,
    bundles: &BTreeMap<String, Vec<u8>>,
) -> anyhow::Result<()> {
    let Some((pin, lock)) = &step.lock else {
        return Ok(());
    };
    let fetched = match &pin.origin {
        PackageOrigin::Bundle { sha256 } if !bundles.contains_key(sha256) => {
            let url = lock.url.clone().with_context(|| {
                format!("its bundle was a file: sync --bundle FILE, where the SHA-256 of FILE is {sha256}")
            })?;
            let (sha256, env) = (sha256.clone(), BTreeMap::new());
            Some(install::fetch_bundle(&PublishedBundle { url, sha256, env })?.0)
        }
        _ => None,
    };
    let given = match &pin.origin {
        PackageOrigin::Bundle { sha256 } => bundles.get(sha256).map(Vec::as_slice),
        _ => None,
    };
    install::discard(pin, scope, step.entry_id)?;
    tools.install(lock, fetched.as_deref().or(given), scope, step.entry_id)?;
    lock.write(scope)
}

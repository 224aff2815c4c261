//! The writing: packages, secrets, the registry, what the person agreed to; and the daemon is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown, fchown};
use std::path::{Path, PathBuf};

use colibri_files::StagedFile;
use colibri_registry::{PackagePin, Registry};
use serde_json::{Value, json};

use super::lock;
use super::package::PackageTools;
use super::plan::InstallPlan;
use super::scope::InstallScope;
use crate::commands::context::CommandContext;
use crate::connection::DaemonConnection;
use crate::consent::ConsentFile;
use crate::failure::CommandError;
use crate::interrupt;
use crate::owned_file::OwnedFile;
use colibri_api::ReloadResponse;
use colibri_mcp::edit::{FileFormat, Value as Text};
use colibri_text::visible;

/// The keys below which a registry has its servers, and its agents.
const LISTS: [&str; 3] = ["servers", "mcpServers", AGENTS];
pub(crate) const AGENTS: &str = "agents";
/// A registry without any.
const EMPTY: &str = "{}\n";

fn failed(path: &Path) -> impl Fn(std::io::Error) -> CommandError + '_ {
    move |source| CommandError::File {
        path: path.to_owned(),
        source,
    }
}

/// A registry that is there.
pub(crate) struct RegistryFile {
    /// The file.
    pub file: OwnedFile,
    /// The entries by id, and those of accounts by the ids of their servers.
    pub entries: RegistryEntries,
    /// The same as the daemon reads them.
    pub read: Registry,
}

/// # Errors
/// The registry cannot be read as the daemon reads it.
pub(crate) fn registered(scope: &InstallScope) -> Result<RegistryFile, CommandError> {
    if scope.registry.is_symlink() {
        return Err(CommandError::Data(format!(
            "{} is a symbolic link, and colibri-mcpd reads none: put the file itself there; nothing was written",
            scope.registry.display()
        )));
    }
    let file = OwnedFile::read(&scope.registry)?;
    let mut entries = BTreeMap::new();
    let mut known = Registry::default();
    if file.exists() {
        known = read(scope, file.text())?;
        for list in LISTS {
            let found = FileFormat::Json.get(file.text(), &[list]);
            let found = found.map_err(|fault| file.fault(fault))?;
            let found = found
                .as_ref()
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            for (id, entry) in found {
                let keys = vec![list.to_owned(), id.clone()];
                if list != AGENTS {
                    entries.extend(accounts(&keys, id, entry));
                }
                entries.insert(id.clone(), (keys, entry.clone()));
            }
        }
    }
    let read = known;
    Ok(RegistryFile {
        file,
        entries,
        read,
    })
}

/// A registry as the daemon reads it.
fn read(scope: &InstallScope, text: &str) -> Result<Registry, CommandError> {
    Registry::parse(text.as_bytes(), &scope.registry.display().to_string())
        .map_err(|error| CommandError::Data(format!("{error}; nothing was written")))
}

/// Entries, each with the keys that lead to it in the file.
type RegistryEntries = BTreeMap<String, (Vec<String>, Value)>;

/// The accounts of an entry, each as an entry that has its keys beside those that all of them
/// share.
fn accounts(keys: &[String], id: &str, entry: &Value) -> RegistryEntries {
    let accounts = entry
        .get("accounts")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let whole = |(name, own): (&String, &Value)| {
        let mut whole = entry.clone();
        if let (Some(whole), Some(own)) = (whole.as_object_mut(), own.as_object()) {
            whole.remove("accounts");
            whole.extend(own.clone());
        }
        let keys = [keys, &["accounts".to_owned(), name.clone()]].concat();
        (format!("{id}-{name}"), (keys, whole))
    };
    accounts.map(whole).collect()
}

/// These keys, and one below them, as they lead through a file.
pub(crate) fn key_path<'k>(keys: &'k [String], below: Option<&'k str>) -> Vec<&'k str> {
    keys.iter().map(String::as_str).chain(below).collect()
}

/// The outcome of the writing.
#[derive(Debug, Default)]
pub(crate) struct WriteOutcome {
    /// The backup of the registry.
    pub kept: Option<PathBuf>,
    /// The ids whose entries were written.
    pub ids: Vec<String>,
    /// Those that were not, and why.
    pub failed: Vec<(String, String)>,
}

/// Writes what plans say: packages and secrets first, then all entries in one step, then that the
/// user agreed to them. Of a server that cannot be written nothing stays, and the others are.
///
/// # Errors
/// The registry cannot be written; then nothing of any server stays.
pub(crate) fn write(
    plans: &[InstallPlan],
    scope: &InstallScope,
    tools: &PackageTools,
) -> Result<WriteOutcome, CommandError> {
    let _alone = scope.lock()?;
    let known = registered(scope)?;
    let mut written = WriteOutcome::default();
    let mut ready = Vec::new();
    for plan in plans {
        // What is there is another's: nothing of it may be touched, nor undone.
        if let Some(why) = taken(plan, &known.entries).or_else(|| shared(plan, &ready)) {
            written.failed.push((plan.id.clone(), why));
            continue;
        }
        match prepare(plan, scope, tools) {
            Ok(()) => ready.push(plan),
            Err(failure) => {
                undo(plan, scope);
                written.failed.push((plan.id.clone(), failure.to_string()));
            }
        }
    }
    if interrupt::is_told() {
        ready.iter().for_each(|plan| undo(plan, scope));
        return Err(CommandError::Interrupted);
    }
    let outcome = write_entries(&ready, scope, known.file, &known.entries, &mut written);
    let is_written = |plan: &&InstallPlan| outcome.is_ok() && written.ids.contains(&plan.id);
    ready
        .iter()
        .filter(|plan| !is_written(plan))
        .for_each(|plan| undo(plan, scope));
    outcome?;
    if !written.ids.is_empty() {
        let ids: Vec<&str> = written.ids.iter().map(String::as_str).collect();
        agree_to(scope, &ids)?;
    }
    Ok(written)
}

/// The reason for which a server cannot be written beside those that are there.
fn taken(plan: &InstallPlan, entries: &RegistryEntries) -> Option<String> {
    if entries.contains_key(&plan.id) {
        return Some(already(&plan.id));
    }
    plan.secrets.iter().find_map(|(_, file, _)| {
        let names = |entry: &Value| secrets_of(entry).contains(file);
        let (other, _) = entries.iter().find(|(_, (_, entry))| names(entry))?;
        Some(format!(
            "its secret would be the file {file}, which is {other}'s"
        ))
    })
}

/// The reason for which a server cannot be written beside those that are about to be.
fn shared(plan: &InstallPlan, ready: &[&InstallPlan]) -> Option<String> {
    plan.secrets.iter().find_map(|(_, file, _)| {
        let has = |other: &&&InstallPlan| other.secrets.iter().any(|(_, own, _)| own == file);
        let other = ready.iter().find(has)?;
        Some(format!(
            "its secret would be the file {file}, which is {}'s",
            other.id
        ))
    })
}

/// The reason for which a server of this id cannot be added.
pub(crate) fn already(id: &str) -> String {
    format!("there is a server {id} already: colibri-mcp remove {id} first")
}

fn prepare(
    plan: &InstallPlan,
    scope: &InstallScope,
    tools: &PackageTools,
) -> Result<(), CommandError> {
    let machine = |error: anyhow::Error| CommandError::Machine(format!("{}: {error:#}", plan.id));
    // No entry has this id: what is there was left when somebody put an older registry back.
    gone(&scope.prefix(&plan.id))?;
    if let Some(package) = &plan.package {
        tools
            .install(&package.lock, package.bundle.as_deref(), scope, &plan.id)
            .and_then(|()| package.lock.write(scope))
            .map_err(machine)?;
    }
    if let Some(command) = plan.command() {
        scope.check_reach(Path::new(command))?;
    }
    plan.secrets
        .iter()
        .try_for_each(|(_, file, value)| put_secret(scope, file, value))
}

/// Takes away what was written for a server beside its entry.
fn undo(plan: &InstallPlan, scope: &InstallScope) {
    let mut paths = vec![scope.prefix(&plan.id)];
    if let Some(pin) = plan
        .package
        .as_ref()
        .and_then(|package| package.lock.pin().ok())
    {
        let _ = forget_lock(scope, &pin);
    }
    paths.extend(
        plan.secrets
            .iter()
            .map(|(_, file, _)| scope.secrets.join(file)),
    );
    // What made it fail is said; this can only fail for the same reason.
    let _ = forget(scope, &paths);
}

fn write_entries(
    plans: &[&InstallPlan],
    scope: &InstallScope,
    file: OwnedFile,
    known: &RegistryEntries,
    written: &mut WriteOutcome,
) -> Result<(), CommandError> {
    let list = if known.values().any(|(keys, _)| keys[0] == LISTS[1]) {
        LISTS[1]
    } else {
        LISTS[0]
    };
    let mut text = if file.exists() {
        file.text().to_owned()
    } else {
        EMPTY.to_owned()
    };
    for plan in plans {
        let changed = FileFormat::Json.set(&text, &[list, plan.id.as_str()], &plan.entry);
        let changed = changed.map_err(|fault| file.fault(fault))?;
        match read(scope, &changed)
            .map(|registry| registry.refused.get(&plan.id).map(ToString::to_string))
        {
            Ok(None) => {
                text = changed;
                written.ids.push(plan.id.clone());
            }
            Ok(Some(why)) => written.failed.push((plan.id.clone(), why)),
            Err(failure) => written.failed.push((plan.id.clone(), failure.to_string())),
        }
    }
    if !written.ids.is_empty() {
        written.kept = rewrite(scope, file, text)?;
    }
    Ok(())
}

/// Writes another text of the registry; what was kept of the old one.
///
/// # Errors
/// The daemon could not read it so, and nothing was written.
pub(crate) fn rewrite(
    scope: &InstallScope,
    file: OwnedFile,
    text: String,
) -> Result<Option<PathBuf>, CommandError> {
    read(scope, &text)?;
    let is_new = !file.exists();
    let kept = file.changed_to(text).write()?;
    if let (true, Some(group)) = (is_new, scope.group) {
        own(&scope.registry, group, 0o640)?;
    }
    Ok(kept)
}

/// Lets the service's daemon read a file of root's.
fn own(path: &Path, group: u32, mode: u32) -> Result<(), CommandError> {
    chown(path, Some(0), Some(group)).map_err(failed(path))?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed(path))
}

/// Writes a secret into a file of its own, for the daemon alone.
///
/// # Errors
/// It cannot be written, and nothing of it stays.
pub(crate) fn put_secret(
    scope: &InstallScope,
    name: &str,
    value: &str,
) -> Result<(), CommandError> {
    let directory = &scope.secrets;
    let mode = if scope.is_service() { 0o750 } else { 0o700 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(directory)
        .map_err(failed(directory))?;
    if let Some(group) = scope.group {
        own(directory, group, 0o750)?;
    }
    let path = directory.join(name);
    let write = || {
        let mut staged = StagedFile::create(&path)?;
        let file = staged.file();
        file.write_all(value.as_bytes())?;
        if let Some(group) = scope.group {
            fchown(&*file, Some(0), Some(group))?;
            file.set_permissions(Permissions::from_mode(0o440))?;
        }
        staged.commit_synced()
    };
    write().map_err(failed(&path))
}

/// Notes that the user agreed to these entries as they stand in the registry now: the private
/// daemon offers no others. Those whose entry is gone are forgotten. The service reads no such
/// file, and there is none.
///
/// # Errors
/// It cannot be read or written.
pub(crate) fn agree_to(scope: &InstallScope, ids: &[&str]) -> Result<(), CommandError> {
    if scope.consent.is_none() {
        return Ok(());
    }
    let registry = read(scope, OwnedFile::read(&scope.registry)?.text())?;
    note_consent(scope, &registry, ids)
}

/// The same for entries that were shown, each with its digest then, as far as they stand so still:
/// those.
///
/// # Errors
/// As above.
pub(crate) fn agree_to_shown<'s>(
    scope: &InstallScope,
    shown: &[(&'s str, &str)],
) -> Result<Vec<&'s str>, CommandError> {
    let registry = read(scope, OwnedFile::read(&scope.registry)?.text())?;
    let stands = shown
        .iter()
        .filter(|(id, digest)| digest_of(&registry, id).is_some_and(|now| now == digest));
    let stands: Vec<&str> = stands.map(|(id, _)| *id).collect();
    note_consent(scope, &registry, &stands)?;
    Ok(stands)
}

fn note_consent(
    scope: &InstallScope,
    registry: &Registry,
    ids: &[&str],
) -> Result<(), CommandError> {
    let Some(path) = &scope.consent else {
        return Ok(());
    };
    let mut consent = settled_consent(path, registry)?;
    consent
        .servers
        .retain(|id, _| digest_of(registry, id).is_some());
    for id in ids {
        if let Some(digest) = digest_of(registry, id) {
            consent.servers.insert((*id).to_owned(), digest.clone());
        }
    }
    consent.write(path).map_err(failed(path))
}

/// The digest of a server's or an agent's entry.
fn digest_of<'r>(registry: &'r Registry, id: &str) -> Option<&'r String> {
    let server = registry.servers.get(id).map(|entry| &entry.digest);
    server.or(registry.agents.get(id).map(|entry| &entry.digest))
}

/// The consent of this file. Of an entry that an update was writing it is to the one that stands in
/// the registry.
fn settled_consent(path: &Path, registry: &Registry) -> Result<ConsentFile, CommandError> {
    let mut consent = ConsentFile::read(path)?;
    for (id, digest) in std::mem::take(&mut consent.next) {
        if digest_of(registry, &id) == Some(&digest) {
            consent.servers.insert(id, digest);
        }
    }
    Ok(consent)
}

/// The digests of an entry's servers.
pub(crate) fn digests(registry: &Registry, id: &str) -> EntryDigests {
    let servers = registry.of_entry(id);
    servers
        .map(|(id, entry)| (id.clone(), entry.digest.clone()))
        .collect()
}

/// Puts another package in place of a server's, whose entry has these digests, and notes that the
/// user agreed to that. What was kept of the registry. Whenever this ends, the user has agreed to
/// the entry that stands there.
///
/// # Errors
/// It cannot be written, or the entry is another by now; then it is as it was.
pub(crate) fn put_package(
    scope: &InstallScope,
    id: &str,
    pin: &PackagePin,
    agreed: &EntryDigests,
) -> Result<Option<PathBuf>, CommandError> {
    let RegistryFile {
        file,
        entries,
        read: now,
    } = registered(scope)?;
    let is_agreed = digests(&now, id) == *agreed;
    let (keys, _) = entries.get(id).filter(|_| is_agreed).ok_or_else(|| {
        CommandError::Data(format!(
            "the entry of {id} was changed or taken out meanwhile; nothing was written"
        ))
    })?;
    let mut text = file.text().to_owned();
    for (key, value) in [
        ("from", pin.origin.to_string()),
        ("lock", format!("sha256:{}", pin.lock)),
    ] {
        let changed = FileFormat::Json.set(&text, &key_path(keys, Some(key)), &Text::String(value));
        text = changed.map_err(|fault| file.fault(fault))?;
    }
    let next = read(scope, &text)?;
    let servers = digests(&next, id);
    if let Some(path) = &scope.consent {
        let mut consent = settled_consent(path, &now)?;
        consent.next.extend(servers.clone());
        consent.write(path).map_err(failed(path))?;
    }
    let kept = rewrite(scope, file, text)?;
    agree_to(
        scope,
        &servers.keys().map(String::as_str).collect::<Vec<_>>(),
    )?;
    Ok(kept)
}

/// The digests of the entries that a user agreed to, by server.
pub(crate) type EntryDigests = BTreeMap<String, String>;

/// The digests of the entries that the user agreed to; `None`: the service reads no such file.
///
/// # Errors
/// It cannot be read.
pub(crate) fn agreements(
    scope: &InstallScope,
    registry: &Registry,
) -> Result<Option<EntryDigests>, CommandError> {
    let consent = scope
        .consent
        .as_ref()
        .map(|path| settled_consent(path, registry));
    Ok(consent.transpose()?.map(|consent| consent.servers))
}

/// Takes a server's entry out, if it has one. What was kept of the registry.
///
/// # Errors
/// The registry cannot be written, and nothing was.
pub(crate) fn remove(
    scope: &InstallScope,
    id: &str,
    known: RegistryFile,
) -> Result<Option<PathBuf>, CommandError> {
    let kept = match known.entries.get(id) {
        None => None,
        Some((keys, _)) => {
            let text = known
                .file
                .text_without(FileFormat::Json, &key_path(keys, None))?;
            // The daemon would miss a registry that is gone, and keep to the old one.
            rewrite(scope, known.file, text.unwrap_or_else(|| EMPTY.to_owned()))?
        }
    };
    agree_to(scope, &[])?;
    Ok(kept)
}

/// The belongings of a server beside its entry, as far as they are there: packages, those of its
/// secrets that no other entry names, logins. Of a server without an entry: what was left of it, as
/// when somebody put an older registry back.
pub(crate) fn belongings(
    scope: &InstallScope,
    id: &str,
    entries: &RegistryEntries,
) -> Vec<PathBuf> {
    // An account is a part of its entry, and what others have of both is others'.
    let own = entries.get(id).map(|(keys, _)| keys.as_slice());
    let is_part =
        |keys: &[String]| own.is_some_and(|own| own.starts_with(keys) || keys.starts_with(own));
    let others = entries
        .iter()
        .filter(|(other, (keys, _))| *other != id && !is_part(keys));
    let named: BTreeSet<String> = others
        .clone()
        .flat_map(|(_, (_, entry))| secrets_of(entry))
        .collect();
    let is_of = |id: &str, name: &str| {
        name.strip_prefix(id)
            .is_some_and(|rest| rest.starts_with('-'))
    };
    let secrets = match entries.get(id) {
        // The secrets of jailed servers lie elsewhere, and are root's to remove.
        Some((_, entry)) if entry.get("jail").is_some() => BTreeSet::new(),
        Some((_, entry)) => secrets_of(entry),
        None => names_in(&scope.secrets)
            .filter(|name| is_of(id, name) && !others.clone().any(|(other, _)| is_of(other, name)))
            .collect(),
    };
    let secrets = secrets
        .difference(&named)
        .map(|name| scope.secrets.join(name));
    let accounts = entries
        .iter()
        .filter(|(_, (keys, _))| own.is_some_and(|own| keys.starts_with(own)));
    let servers: Vec<&str> = accounts
        .map(|(server, _)| server.as_str())
        .chain([id])
        .collect();
    let is_login = |name: &String| {
        servers
            .iter()
            .any(|server| name.starts_with(&format!("login.{server}.")))
    };
    let logins = names_in(&scope.logins).filter(is_login);
    let lock_of = |entry: &Value| {
        Some(
            entry
                .get("lock")?
                .as_str()?
                .strip_prefix("sha256:")?
                .to_owned(),
        )
    };
    let shared: BTreeSet<String> = others
        .filter_map(|(_, (_, entry))| lock_of(entry))
        .collect();
    let lock = entries.get(id).and_then(|(_, entry)| lock_of(entry));
    let lock = lock.filter(|lock| is_file_name(lock) && !shared.contains(lock));
    let lock = lock.map(|lock| lock::path(scope, &lock));
    let paths = [scope.prefix(id), scope.agent_place(id)]
        .into_iter()
        .chain(lock)
        .chain(secrets);
    let paths = paths.chain(logins.map(|name| scope.logins.join(name)));
    paths
        .filter(|path| path.symlink_metadata().is_ok())
        .collect()
}

/// Takes away all installed versions of a server but the one that it runs and the one before, which
/// has a copy of its lock beside its files.
///
/// # Errors
/// Something cannot be removed.
pub(crate) fn tidy(
    scope: &InstallScope,
    id: &str,
    now: &PackagePin,
    before: &PackagePin,
) -> Result<(), CommandError> {
    let prefix = scope.prefix(id);
    let others =
        names_in(&prefix).filter(|name| ![now, before].iter().any(|pin| pin.directory() == *name));
    others
        .map(|name| prefix.join(name))
        .try_for_each(|path| gone(&path))?;
    forget_lock(scope, before)
}

/// Takes away a version that was installed and is not run.
///
/// # Errors
/// Something cannot be removed.
pub(crate) fn uninstall(
    pin: &PackagePin,
    scope: &InstallScope,
    id: &str,
) -> Result<(), CommandError> {
    gone(&scope.prefix(id).join(pin.directory()))?;
    forget_lock(scope, pin)
}

/// Takes away a lock that no entry names.
fn forget_lock(scope: &InstallScope, pin: &PackagePin) -> Result<(), CommandError> {
    let registry = registered(scope)?.read;
    let mut packages = registry
        .servers
        .values()
        .filter_map(|entry| entry.command.as_ref()?.package.as_ref());
    match packages.any(|other| other.lock == pin.lock) {
        true => Ok(()),
        false => gone(&lock::path(scope, &pin.lock)),
    }
}

/// True if a hash out of an entry leads nowhere else.
fn is_file_name(hash: &str) -> bool {
    hash.bytes().all(|b| b.is_ascii_hexdigit())
}

fn names_in(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// The files of the secrets that an entry names and that are not there.
pub(crate) fn absent_secrets(scope: &InstallScope, entry: &Value) -> Vec<PathBuf> {
    let files = secrets_of(entry)
        .into_iter()
        .map(|name| scope.secrets.join(name));
    files
        .filter(|file| entry.get("jail").is_none() && !file.exists())
        .collect()
}

/// The names of the secrets that an entry names, wherever in it.
fn secrets_of(entry: &Value) -> BTreeSet<String> {
    let below: Vec<&Value> = match entry {
        Value::Object(members) => members.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    let own = entry.get("secret").and_then(Value::as_str);
    let own = own
        .filter(|name| colibri_registry::is_secret_name(name))
        .map(str::to_owned);
    own.into_iter()
        .chain(below.into_iter().flat_map(secrets_of))
        .collect()
}

/// Removes files and directories, and what of ours is empty then.
///
/// # Errors
/// Something cannot be removed.
pub(crate) fn forget(scope: &InstallScope, paths: &[PathBuf]) -> Result<(), CommandError> {
    paths.iter().try_for_each(|path| gone(path))?;
    if !scope.is_service() {
        for directory in [
            &scope.servers,
            &scope.agents(),
            &scope.secrets,
            &scope.logins,
            &lock::directory(scope),
        ] {
            // It is not there, or something else is in it.
            let _ = fs::remove_dir(directory);
        }
    }
    Ok(())
}

fn gone(path: &Path) -> Result<(), CommandError> {
    let removed = match path.is_dir() && !path.is_symlink() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

/// The outcome of a change: in words, and as JSON.
pub(crate) struct ChangeReport {
    text: String,
    facts: Value,
}

impl ChangeReport {
    /// Answers with this, and what was done, and what was kept of the registry.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn answer(
        self,
        context: &CommandContext,
        scope: &InstallScope,
        (mut text, mut facts): (String, Value),
        kept: Option<&Path>,
    ) -> Result<(), CommandError> {
        if let Some(kept) = kept {
            text.push_str(&format!("\nThe registry as it was: {}", kept.display()));
        }
        facts["registry"] = json!(scope.registry);
        facts["backup"] = json!(kept);
        facts["daemon"] = self.facts;
        context.answer(&facts, &format!("{text}\n{}", self.text))
    }
}

/// Has a daemon that runs read its registry again; what it says. None is started for that.
pub(crate) fn reload(socket: &Path) -> ChangeReport {
    let Ok(mut connection) = DaemonConnection::open(&socket.to_owned().into(), false) else {
        return ChangeReport {
            text: "No daemon runs; it reads the registry when it starts.".to_owned(),
            facts: json!({ "running": false }),
        };
    };
    match connection.ask::<ReloadResponse>("colibri/reload", &json!({})) {
        Ok((reloaded, _)) => {
            let blocked = reloaded.blocked.iter().map(|blocked| {
                let (server, reason) = (visible(&blocked.server), visible(&blocked.reason));
                format!("\n{server} is blocked: {reason}")
            });
            ChangeReport {
                text: format!(
                    "The daemon has read the registry again.{}",
                    blocked.collect::<String>()
                ),
                facts: json!({ "running": true, "reloaded": true, "blocked": reloaded.blocked }),
            }
        }
        Err(error) => ChangeReport {
            text: format!(
                "The daemon did not take it over: {}",
                colibri_text::visible_lines(&error.to_string())
            ),
            facts: json!({ "running": true, "reloaded": false, "reason": error.to_string() }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_registry::PackageOrigin;

    #[test]
    fn whenever_an_update_ends_the_user_has_agreed_to_the_entry_that_stands_there() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let scope = InstallScope {
            registry: path("external-mcp.json"),
            secrets: path("secrets"),
            servers: path("servers"),
            logins: path("logins"),
            consent: Some(path("consent.json")),
            group: None,
        };
        let pin = |version: &str, lock: &str| PackagePin {
            origin: PackageOrigin::parse(&format!("npm:p@{version}")).unwrap(),
            lock: lock.repeat(32),
        };
        let entry = |pin: &PackagePin| json!({ "from": pin.origin.to_string(), "lock": format!("sha256:{}", pin.lock) });
        let (old, new) = (pin("1.0.0", "0a"), pin("1.1.0", "0b"));
        let other = json!({ "command": "/bin/true" });
        let text = json!({ "servers": { "p": entry(&old), "other": other } }).to_string();
        fs::write(&scope.registry, text).unwrap();
        agree_to(&scope, &["p"]).unwrap();
        let agreed = |id: &str| {
            let registry = registered(&scope).unwrap().read;
            let agreed = agreements(&scope, &registry).unwrap().unwrap();
            agreed.get(id) == Some(&registry.servers[id].digest)
        };
        assert!(agreed("p") && !agreed("other"));
        // A power cut before the registry was written, and one after.
        let before = fs::read(&scope.registry).unwrap();
        let file = scope.consent.clone().unwrap();
        let mut old_consent = settled_consent(&file, &registered(&scope).unwrap().read).unwrap();
        let agreed_to = digests(&registered(&scope).unwrap().read, "p");
        assert!(
            put_package(&scope, "p", &new, &EntryDigests::new()).is_err(),
            "nobody agreed to that one"
        );
        put_package(&scope, "p", &new, &agreed_to).unwrap();
        assert!(agreed("p"));
        let registry = registered(&scope).unwrap().read;
        let package = registry.servers["p"]
            .command
            .as_ref()
            .unwrap()
            .package
            .clone();
        assert_eq!(package, Some(new.clone()));
        old_consent
            .next
            .insert("p".to_owned(), registry.servers["p"].digest.clone());
        old_consent.write(&file).unwrap();
        assert!(agreed("p"));
        let after = fs::read(&scope.registry).unwrap();
        fs::write(&scope.registry, &before).unwrap();
        assert!(agreed("p"));
        // What is done next keeps it so.
        fs::write(&scope.registry, &after).unwrap();
        agree_to(&scope, &["other"]).unwrap();
        assert!(agreed("p") && agreed("other"));
        assert!(
            !fs::read_to_string(path("consent.json"))
                .unwrap()
                .contains("next")
        );
        assert!(put_package(&scope, "gone", &new, &agreed_to).is_err());
        // What was shown and stands otherwise by now is agreed to by nobody.
        let digest = registered(&scope).unwrap().read.servers["p"].digest.clone();
        let text = json!({ "servers": { "p": entry(&new), "other": { "command": "/bin/false" } } })
            .to_string();
        fs::write(&scope.registry, text).unwrap();
        let shown = [
            ("p", digest.as_str()),
            ("other", &digest),
            ("gone", &digest),
        ];
        assert_eq!(agree_to_shown(&scope, &shown).unwrap(), ["p"]);
        assert!(agreed("p") && !agreed("other"));
    }
}

//! The writing: packages, secrets, the registry, what the person agreed to; and the daemon is told.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use colibri_registry::Registry;
use serde_json::{Value, json};

use super::files;
use super::plan::{Installs, Plan};
use super::scope::Scope;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::owned::Owned;
use colibri_api::Reloaded;
use colibri_mcp::bring::Archive;
use colibri_mcp::edit::Kind;
use colibri_text::visible;

/// The keys below which a registry has its servers.
const LISTS: [&str; 2] = ["servers", "mcpServers"];

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |source| Failure::File {
        path: path.to_owned(),
        source,
    }
}

/// The entries of a registry that is there, by id, with the list that each stands in.
///
/// # Errors
/// The registry cannot be read as the daemon reads it.
pub(crate) fn registered(scope: &Scope) -> Result<(Owned, BTreeMap<String, &'static str>), Failure> {
    let file = Owned::read(&scope.registry)?;
    let mut found = BTreeMap::new();
    if file.exists() {
        read(scope, file.text())?;
        for list in LISTS {
            let entries = Kind::Json.get(file.text(), &[list]);
            let entries = entries.map_err(|fault| file.fault(fault))?;
            let ids = entries.as_ref().and_then(Value::as_object).into_iter().flatten();
            found.extend(ids.map(|(id, _)| (id.clone(), list)));
        }
    }
    Ok((file, found))
}

/// A registry as the daemon reads it.
fn read(scope: &Scope, text: &str) -> Result<Registry, Failure> {
    Registry::parse(text.as_bytes(), &scope.registry.display().to_string())
        .map_err(|error| Failure::Data(format!("{error}; nothing was written")))
}

/// What came of the writing.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// What was kept of the registry.
    pub kept: Option<PathBuf>,
    /// The ids whose entries were written.
    pub ids: Vec<String>,
    /// Those that were not, and why.
    pub failed: Vec<(String, String)>,
}

/// Writes what plans say: packages and secrets first, then all entries in one step. Of a server that cannot be written
/// nothing stays, and the others are.
///
/// # Errors
/// The registry cannot be written; then nothing of any server stays.
pub(crate) fn write(plans: &[Plan], scope: &Scope) -> Result<Written, Failure> {
    let mut written = Written::default();
    let mut ready = Vec::new();
    for plan in plans {
        match prepare(plan, scope) {
            Ok(()) => ready.push(plan),
            Err(failure) => {
                undo(plan, scope);
                written.failed.push((plan.id.clone(), failure.to_string()));
            }
        }
    }
    let outcome = write_entries(&ready, scope, &mut written);
    let is_written = |plan: &&Plan| outcome.is_ok() && written.ids.contains(&plan.id);
    ready
        .iter()
        .filter(|plan| !is_written(plan))
        .for_each(|plan| undo(plan, scope));
    outcome.map(|()| written)
}

fn prepare(plan: &Plan, scope: &Scope) -> Result<(), Failure> {
    install(plan, scope, &scope.prefix(&plan.id))?;
    plan.secrets
        .iter()
        .try_for_each(|(_, file, value)| put_secret(scope, file, value))
}

/// Takes away what was written for a server beside its entry.
fn undo(plan: &Plan, scope: &Scope) {
    let secrets: Vec<String> = plan.secrets.iter().map(|(_, file, _)| file.clone()).collect();
    // What made it fail is said; this can only fail for the same reason.
    let _ = forget(scope, &plan.id, &secrets);
}

fn write_entries(plans: &[&Plan], scope: &Scope, written: &mut Written) -> Result<(), Failure> {
    let (file, ids) = registered(scope)?;
    let list = if ids.values().any(|list| *list == LISTS[1]) {
        LISTS[1]
    } else {
        LISTS[0]
    };
    let mut text = if file.exists() {
        file.text().to_owned()
    } else {
        "{}\n".to_owned()
    };
    for plan in plans {
        let changed = Kind::Json.set(&text, &[list, plan.id.as_str()], &plan.entry);
        let changed = changed.map_err(|fault| file.fault(fault))?;
        match read(scope, &changed).map(|registry| registry.refused.get(&plan.id).map(ToString::to_string)) {
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
pub(crate) fn rewrite(scope: &Scope, file: Owned, text: String) -> Result<Option<PathBuf>, Failure> {
    read(scope, &text)?;
    let is_new = !file.exists();
    let kept = file.changed_to(text).write()?;
    if let (true, Some(group)) = (is_new, scope.group) {
        own(&scope.registry, group, 0o640)?;
    }
    Ok(kept)
}

/// Lets the service's daemon read a file of root's.
fn own(path: &Path, group: u32, mode: u32) -> Result<(), Failure> {
    chown(path, Some(0), Some(group)).map_err(failed(path))?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed(path))
}

fn install(plan: &Plan, scope: &Scope, prefix: &Path) -> Result<(), Failure> {
    if matches!(plan.installs, Installs::Nothing) {
        return Ok(());
    }
    let mode = if scope.is_service() { 0o755 } else { 0o700 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(&scope.servers)
        .map_err(failed(&scope.servers))?;
    // Nobody else comes in before all of it has been looked at.
    let mut make = DirBuilder::new();
    match make.mode(0o700).create(prefix) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // No entry names it: somebody put an older registry back.
            fs::remove_dir_all(prefix).map_err(failed(prefix))?;
            make.create(prefix).map_err(failed(prefix))?;
        }
        Err(source) => return Err(failed(prefix)(source)),
    }
    let said = |why: String| Failure::Machine(format!("{}: {why}", plan.id));
    let (what, hash) = match &plan.installs {
        Installs::Nothing => return Ok(()),
        Installs::Npm(npm, exact) => {
            npm.install(prefix).map_err(said)?;
            (format!("npm:{exact}"), npm.integrity.clone())
        }
        Installs::Pypi(pypi, exact) => {
            pypi.install(&prefix.join("venv")).map_err(said)?;
            (format!("pypi:{exact}"), format!("sha256-{}", pypi.sha256))
        }
        Installs::Bundle { bytes, sha256, venv } => {
            unpack(bytes, &prefix.join("bundle"), mode).map_err(said)?;
            if let Some(venv) = venv {
                venv.install(&prefix.join("venv")).map_err(said)?;
            }
            (format!("mcpb:{}", plan.name), format!("sha256-{sha256}"))
        }
    };
    files::record(prefix, &what, &hash).map_err(said)?;
    fs::set_permissions(prefix, Permissions::from_mode(mode)).map_err(failed(prefix))
}

/// Unpacks a bundle that was looked at into a directory that is made.
fn unpack(bytes: &[u8], into: &Path, mode: u32) -> Result<(), String> {
    let mut archive = Archive::open(bytes)?;
    let paths: Vec<(String, bool)> = archive
        .files()
        .map(|(path, executable)| (path.to_owned(), executable))
        .collect();
    let make = |directory: &Path| {
        let made = DirBuilder::new().recursive(true).mode(mode).create(directory);
        made.map_err(|error| format!("{}: {error}", directory.display()))
    };
    make(into)?;
    for (path, executable) in paths {
        let content = archive.read(&path)?;
        let path = into.join(path);
        path.parent().map_or(Ok(()), make)?;
        // The owner's own, and for the service's daemon to read.
        let mode = (if executable { 0o755 } else { 0o644 }) & (mode | 0o600);
        let mut file = OpenOptions::new();
        let file = file.write(true).create_new(true).mode(mode).open(&path);
        let written = file.and_then(|mut file| file.write_all(&content));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn put_secret(scope: &Scope, name: &str, value: &str) -> Result<(), Failure> {
    let directory = &scope.secrets;
    let mode = if scope.is_service() { 0o750 } else { 0o700 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(directory)
        .map_err(failed(directory))?;
    let path = directory.join(name);
    let at = failed(&path);
    let new = directory.join(format!(".{name}-{}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(&at)?;
    let written = file.write_all(value.as_bytes()).and_then(|()| file.sync_all());
    let owned = written.map_err(&at).and_then(|()| match scope.group {
        Some(group) => own(directory, group, 0o750).and_then(|()| own(&new, group, 0o440)),
        None => Ok(()),
    });
    if let Err(error) = owned.and_then(|()| fs::rename(&new, &path).map_err(&at)) {
        // What is half written is of no use.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    Ok(())
}

/// Notes that the user agreed to these entries as they stand in the registry now: the private daemon offers no others.
/// Those whose entry is gone are forgotten. The service reads no such file, and there is none.
///
/// # Errors
/// It cannot be read or written.
pub(crate) fn agree_to(scope: &Scope, ids: &[&str]) -> Result<(), Failure> {
    let Some(path) = &scope.consent else {
        return Ok(());
    };
    let registry = read(scope, Owned::read(&scope.registry)?.text())?;
    let known = Owned::read(path)?;
    let known: Value = serde_json::from_str(known.text()).unwrap_or_default();
    let mut servers = BTreeMap::new();
    for (id, digest) in known.get("servers").and_then(Value::as_object).into_iter().flatten() {
        if registry.servers.contains_key(id) {
            servers.insert(id.as_str(), digest.as_str().unwrap_or_default());
        }
    }
    for id in ids {
        if let Some(entry) = registry.servers.get(*id) {
            servers.insert(id, &entry.digest);
        }
    }
    let text = format!("{:#}\n", json!({ "servers": servers }));
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed(directory))?;
    // It has the mode 0600, and comes in the other's place in one step.
    let mut new = tempfile::NamedTempFile::new_in(directory).map_err(failed(directory))?;
    new.write_all(text.as_bytes()).map_err(failed(path))?;
    new.persist(path).map_err(|error| failed(path)(error.error))?;
    Ok(())
}

/// Removes what was installed for a server, and those of its secrets that no other entry names.
///
/// # Errors
/// Something cannot be removed.
pub(crate) fn forget(scope: &Scope, id: &str, secrets: &[String]) -> Result<(), Failure> {
    let prefix = scope.prefix(id);
    let paths = secrets.iter().map(|name| scope.secrets.join(name));
    for path in paths {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(&path)(error)),
            _ => {}
        }
    }
    match fs::remove_dir_all(&prefix) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(&prefix)(error)),
        _ => Ok(()),
    }
}

/// Has a daemon that runs read its registry again; what it says. None is started for that.
pub(crate) fn reload(socket: &Path) -> String {
    let Ok(mut connection) = Connection::open(&socket.to_owned().into(), false) else {
        return "No daemon runs; it reads the registry when it starts.".to_owned();
    };
    match connection.ask::<Reloaded>("colibri/reload", &json!({})) {
        Ok((reloaded, _)) => {
            let blocked = reloaded.blocked.iter().map(|blocked| {
                let (server, reason) = (visible(&blocked.server), visible(&blocked.reason));
                format!("\n{server} is blocked: {reason}")
            });
            format!("The daemon has read the registry again.{}", blocked.collect::<String>())
        }
        Err(error) => format!(
            "The daemon did not take it over: {}",
            colibri_text::visible_lines(&error.to_string())
        ),
    }
}

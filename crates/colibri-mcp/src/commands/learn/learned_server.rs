//! The server that is observed: its command, its variables, and its place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use colibri_api::{complete_command, paths};
use colibri_registry::{EntryValue, StdioCommand};
use colibri_text::visible;

use super::observation::Observation;
use crate::connection::DaemonAddress;
use crate::failure::CommandError;
use crate::install::{self, InstallScope, find_program};

/// The server of a session.
#[derive(Debug)]
pub(super) struct LearnedServer {
    pub id: String,
    /// The program, an absolute path, and its arguments.
    pub words: Vec<String>,
    pub from: Option<String>,
    /// Variables with their values, which go to the server and nowhere else.
    pub variables: Vec<(String, String)>,
    pub directory: PathBuf,
    pub home: PathBuf,
}

impl LearnedServer {
    /// The server of a command line.
    ///
    /// # Errors
    /// There is no such program, directory or variable.
    pub(super) fn of_command(
        id: &str,
        command: &[String],
        env: &[String],
        cwd: Option<&Path>,
    ) -> Result<LearnedServer, CommandError> {
        let mut words = command.to_vec();
        if let Some(first) = words.first_mut() {
            *first = program_path(first)?;
        }
        let mut own = BTreeMap::new();
        for pair in env {
            let (key, value) = match pair.split_once('=') {
                Some((key, value)) => (key, value.to_owned()),
                None => (pair.as_str(), install::value_of(pair, "--env")?),
            };
            // As the registry's reader takes it.
            let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            if key.is_empty()
                || key.len() > 128
                || key.starts_with(|c: char| c.is_ascii_digit())
                || !key.bytes().all(is_name)
            {
                return Err(CommandError::Usage(format!(
                    "--env {}: not the name of a variable",
                    visible(key)
                )));
            }
            own.insert(key.to_owned(), value);
        }
        let home = home_of(&own);
        let directory = cwd.unwrap_or(Path::new("/")).to_owned();
        let directory = directory
            .canonicalize()
            .map_err(|source| CommandError::File {
                path: directory,
                source,
            })?;
        Ok(LearnedServer {
            id: id.to_owned(),
            words,
            from: None,
            variables: variables(own, &home),
            directory,
            home,
        })
    }

    /// The server of an entry that runs without a jail.
    ///
    /// # Errors
    /// There is no such entry, or nothing of it could be observed.
    pub(super) fn of_entry(id: &str, place: &DaemonAddress) -> Result<LearnedServer, CommandError> {
        let scope = InstallScope::find(false, place)?;
        let registry = install::registered(&scope)?;
        let entry = registry.read.servers.get(id).ok_or_else(|| {
            CommandError::Data(format!(
                "{} has no server {id}: give its command after --",
                scope.registry.display()
            ))
        })?;
        let Some(command) = &entry.command else {
            return Err(CommandError::Data(format!(
                "{id} has a url: nothing is started for it that could be observed"
            )));
        };
        let mut command: StdioCommand = (**command).clone();
        if command.jail.is_some() {
            return Err(CommandError::Data(format!(
                "{id} runs in a jail already; what it does there was decided by its policy"
            )));
        }
        complete_command(&mut command, &scope.servers, &entry.entry_id)
            .map_err(|fault| CommandError::Data(fault.to_string()))?;
        let mut own = BTreeMap::new();
        for (name, value) in &command.env {
            let value = match value {
                EntryValue::Plain(text) => text.clone(),
                EntryValue::Secret(secret) => {
                    let path = scope.secrets.join(secret);
                    let read = std::fs::read_to_string(&path);
                    let read = read.map_err(|source| CommandError::File { path, source })?;
                    read.trim_end_matches('\n').to_owned()
                }
            };
            own.insert(name.clone(), value);
        }
        let program = command.program.to_string_lossy().into_owned();
        let home = home_of(&own);
        Ok(LearnedServer {
            id: id.to_owned(),
            words: [vec![program], command.args.clone()].concat(),
            from: command
                .package
                .as_ref()
                .map(|package| package.origin.to_string()),
            variables: variables(own, &home),
            directory: command.cwd.clone().unwrap_or_else(|| PathBuf::from("/")),
            home,
        })
    }

    /// The server as it was learned, with the variables of this environment.
    ///
    /// # Errors
    /// A variable has no value.
    pub(super) fn of_observation(seen: &Observation) -> Result<LearnedServer, CommandError> {
        let mut own =
            BTreeMap::from([("HOME".to_owned(), seen.home.to_string_lossy().into_owned())]);
        for name in &seen.variables {
            own.insert(name.clone(), install::value_of(name, "the variable")?);
        }
        Ok(LearnedServer {
            id: seen.server.clone(),
            words: seen.command.clone(),
            from: seen.from.clone(),
            variables: variables(own, &seen.home),
            directory: seen.directory.clone(),
            home: seen.home.clone(),
        })
    }
}

/// The absolute path of a program, as a person names it.
fn program_path(name: &str) -> Result<String, CommandError> {
    let path = match name.contains('/') {
        true => std::path::absolute(name)
            .ok()
            .filter(|path| install::is_executable(path)),
        false => find_program(name),
    };
    let path = path.and_then(|path| path.into_os_string().into_string().ok());
    path.ok_or_else(|| CommandError::Data(format!("{}: there is no such program", visible(name))))
}

/// The variables that a server gets, as the daemon would give them: those of its entry or of
/// `--env`, and no others.
fn variables(own: BTreeMap<String, String>, home: &Path) -> Vec<(String, String)> {
    let mut all = BTreeMap::from([
        ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("HOME".to_owned(), home.to_string_lossy().into_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ]);
    all.extend(own);
    all.into_iter().collect()
}

/// The home directory that a server gets: that of its variables, else the person's.
fn home_of(own: &BTreeMap<String, String>) -> PathBuf {
    let given = own
        .get("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute());
    given.unwrap_or_else(paths::home)
}

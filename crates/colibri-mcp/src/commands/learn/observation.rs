//! An observation: the accesses of one server in all sessions that were observed, without contents
//! and values.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use colibri_api::paths;
use colibri_files::{FileLock, LockWait, replace_file};
use serde::{Deserialize, Serialize};

use super::access::ObservedAccess;
use super::places;
use super::tool_notes::ToolNote;
use crate::failure::CommandError;

/// The most files that are noted one by one; of more, their directories.
const MAX_FILES: usize = 20_000;
/// The depth of a directory that stands for files beyond that.
const COARSE_DEPTH: usize = 4;
/// The most addresses, names and reasons of a kind.
const MAX_OTHERS: usize = 1_000;
/// The most places that a person named.
const MAX_NAMED: usize = 1_000;

/// All that was seen of a server.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Observation {
    /// Its id.
    pub server: String,
    /// The observed sessions.
    pub sessions: u64,
    /// Its command: the program, an absolute path, and its arguments.
    pub command: Vec<String>,
    /// The package of its entry, if it has one.
    pub from: Option<String>,
    /// The names of the variables that it was given.
    pub variables: Vec<String>,
    /// Its working directory.
    pub directory: PathBuf,
    /// The home directory that it was given.
    pub home: PathBuf,
    /// Directories of its program, with what each is.
    pub programs: BTreeMap<PathBuf, String>,
    /// Files, by their absolute paths.
    pub files: BTreeMap<String, FileNote>,
    /// Accesses to files whose names are no plain text; their directories stand for them.
    pub odd_names: u64,
    /// Accesses to files beyond the number that is noted.
    pub left_out: u64,
    /// Addresses that it connected to.
    pub addresses: BTreeMap<SocketAddr, ContactNote>,
    /// Names that it looked up.
    pub names: BTreeMap<String, ContactNote>,
    /// Addresses that it listened at.
    pub listens: BTreeMap<SocketAddr, ContactNote>,
    /// Unix sockets that it connected to.
    pub sockets: BTreeMap<String, ContactNote>,
    /// The most processes that it was at a time.
    pub processes: u64,
    /// Tools, by name.
    pub tools: BTreeMap<String, ToolNote>,
    /// Methods that it requested of the client.
    pub requests: BTreeSet<String>,
    /// The reasons for which the observation proves nothing.
    pub escapes: BTreeSet<String>,
    /// Reasons for which something was not seen.
    pub unseen: BTreeSet<String>,
}

/// The accesses to a file or directory.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileNote {
    #[serde(default, skip_serializing_if = "is_zero")]
    pub read: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub executed: u64,
    /// Attempts that failed; of secrets alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// It is a directory, or stands for the files in one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub directory: bool,
    /// The place that a person named, at or above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<NamedPlace>,
}

/// A place that a person named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct NamedPlace {
    pub path: PathBuf,
    /// The place of the name: an argument of the command, a variable, an argument of a tool.
    pub by: String,
}

/// The contacts with an address or a name.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ContactNote {
    pub count: u64,
    /// The place where a person named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The places and hosts that a person named, in a session. They are not stored as such: arguments
/// of tools are values.
#[derive(Debug, Default)]
pub(super) struct NamedThings {
    home: PathBuf,
    places: Vec<NamedPlace>,
    hosts: BTreeMap<String, String>,
}

impl NamedThings {
    /// None yet, of a person with this home.
    pub(super) fn of(home: &Path) -> NamedThings {
        NamedThings {
            home: home.to_owned(),
            ..NamedThings::default()
        }
    }

    /// Takes a text that stands somewhere for the place or the host that it names, if it names one.
    pub(super) fn take(&mut self, text: &str, by: &str) {
        let value =
            text.split_once('=')
                .map_or(text, |(flag, value)| match flag.starts_with('-') {
                    true => value,
                    false => text,
                });
        if let Some((_, rest)) = value
            .split_once("://")
            .filter(|_| !value.starts_with("file:"))
        {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = authority.rsplit('@').next().unwrap_or_default();
            let host = match host.strip_prefix('[') {
                Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
                None => host.split(':').next().unwrap_or_default(),
            };
            if !host.is_empty() && host.len() < 256 && self.hosts.len() < MAX_NAMED {
                self.hosts
                    .entry(host.to_ascii_lowercase())
                    .or_insert_with(|| by.to_owned());
            }
            return;
        }
        let path = Path::new(value.strip_prefix("file://").unwrap_or(value));
        if !path.is_absolute() || value.len() > 4096 || self.places.len() >= MAX_NAMED {
            return;
        }
        let real = path
            .canonicalize()
            .unwrap_or_else(|_| super::access::absolute(Path::new("/"), path));
        if places::is_work(&real, &self.home) && !self.places.iter().any(|known| known.path == real)
        {
            self.places.push(NamedPlace {
                path: real,
                by: by.to_owned(),
            });
        }
    }

    /// The outermost place that was named, at or above a path.
    fn place(&self, path: &Path) -> Option<&NamedPlace> {
        let above = self
            .places
            .iter()
            .filter(|place| path.starts_with(&place.path));
        above.min_by_key(|place| place.path.as_os_str().len())
    }
}

/// All that is noted in a session, by the readers of the trace and of the messages.
#[derive(Debug, Default)]
pub(super) struct SessionNotes {
    pub seen: Observation,
    pub named: NamedThings,
}

impl SessionNotes {
    /// Notes an access.
    pub(super) fn note(&mut self, access: ObservedAccess) {
        self.seen.note(access, &self.named);
    }
}

impl Observation {
    /// The file of a server's observation, and of the arguments that its tools were called with.
    pub(super) fn paths(server: &str) -> (PathBuf, PathBuf) {
        let directory = paths::private().state_dir.join("learned");
        (
            directory.join(format!("{server}.json")),
            directory.join(format!("{server}.calls.jsonl")),
        )
    }

    /// Makes the directory of observations, for its user alone.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn make_directory() -> Result<PathBuf, CommandError> {
        let path = paths::private().state_dir.join("learned");
        match DirBuilder::new().recursive(true).mode(0o700).create(&path) {
            Ok(()) => Ok(path),
            Err(source) => Err(CommandError::File { path, source }),
        }
    }

    /// Adds this to what was seen of its server before.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(super) fn store(self) -> Result<(Observation, PathBuf), CommandError> {
        let directory = Observation::make_directory()?;
        let failed = |source| CommandError::File {
            path: directory.clone(),
            source,
        };
        let open = File::open(&directory).map_err(failed)?;
        let _lock = FileLock::of(open, LockWait::Forever).map_err(failed)?;
        let mut all = Observation::read(&self.server)?.unwrap_or_default();
        all.add(self);
        let path = all.write()?;
        Ok((all, path))
    }

    /// Reads what was seen of a server; `None`: nothing yet.
    ///
    /// # Errors
    /// The file cannot be read, or is not what this program writes.
    pub(super) fn read(server: &str) -> Result<Option<Observation>, CommandError> {
        let (path, _) = Observation::paths(server);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CommandError::File { path, source }),
        };
        let read = serde_json::from_slice(&text);
        let read = read.map_err(|error| {
            CommandError::Data(format!(
                "{}: {error}; remove the file, and learn anew",
                path.display()
            ))
        });
        read.map(Some)
    }

    /// Puts this in the place of what was seen before.
    ///
    /// # Errors
    /// The system's.
    fn write(&self) -> Result<PathBuf, CommandError> {
        let (path, _) = Observation::paths(&self.server);
        let text = serde_json::to_string_pretty(self).map_err(io::Error::from);
        let written =
            text.and_then(|text| replace_file(&path, format!("{text}\n").as_bytes(), 0o600));
        match written {
            Ok(()) => Ok(path),
            Err(source) => Err(CommandError::File { path, source }),
        }
    }

    /// Notes an access. After one that escapes the tracer nothing is believed any more.
    pub(super) fn note(&mut self, access: ObservedAccess, named: &NamedThings) {
        if !self.escapes.is_empty() {
            return;
        }
        match access {
            ObservedAccess::Read { path, is_directory } => {
                self.file(&path, is_directory, named, |note| note.read += 1)
            }
            ObservedAccess::Write { path } => {
                // A name is changed in its directory, which a link may lead to.
                let real = path.parent().and_then(|above| above.canonicalize().ok());
                let path = match (real, path.file_name()) {
                    (Some(real), Some(name)) => real.join(name),
                    _ => path,
                };
                self.file(&path, false, named, |note| note.written += 1);
            }
            ObservedAccess::Execute { path } => {
                let real = path.canonicalize().unwrap_or(path);
                self.file(&real, false, named, |note| note.executed += 1);
                if let Some(interpreter) = super::program::interpreter(&real) {
                    self.file(&interpreter, false, named, |note| note.executed += 1);
                }
            }
            ObservedAccess::Miss { path } => {
                if places::secret(&path).is_some() {
                    self.file(&path, false, named, |note| note.missed += 1);
                }
            }
            ObservedAccess::Connect { address } => {
                let by = named.hosts.get(&address.ip().to_string()).cloned();
                contact(&mut self.addresses, address, by);
            }
            ObservedAccess::Bind { address } => contact(&mut self.listens, address, None),
            ObservedAccess::ConnectLocal { path } => {
                contact(&mut self.sockets, path.to_string_lossy().into_owned(), None);
            }
            ObservedAccess::Lookup { name } => {
                let by = named.hosts.get(&name).cloned();
                contact(&mut self.names, name, by);
            }
            ObservedAccess::Processes { count } => self.processes = self.processes.max(count),
            ObservedAccess::Escape { why } => drop(self.escapes.insert(why)),
            ObservedAccess::Unseen { why } => drop(self.unseen.insert(why)),
        }
    }

    fn file(
        &mut self,
        path: &Path,
        is_directory: bool,
        named: &NamedThings,
        count: impl FnOnce(&mut FileNote),
    ) {
        let mut path = path;
        let mut is_directory = is_directory;
        let is_plain = |path: &Path| {
            path.to_str()
                .is_some_and(|text| !text.chars().any(colibri_text::is_hidden))
        };
        if !is_plain(path) {
            self.odd_names += 1;
        }
        while !is_plain(path) {
            is_directory = true;
            path = path.parent().unwrap_or(Path::new("/"));
        }
        let is_known = |files: &BTreeMap<String, FileNote>, path: &Path| {
            path.to_str().is_some_and(|text| files.contains_key(text))
        };
        if self.files.len() >= MAX_FILES && !is_known(&self.files, path) {
            is_directory = true;
            let coarse = path.ancestors().skip(1).find(|above| {
                is_known(&self.files, above) || above.components().count() <= COARSE_DEPTH
            });
            path = coarse.unwrap_or(Path::new("/"));
            if !is_known(&self.files, path) && self.files.len() >= MAX_FILES + MAX_OTHERS {
                self.left_out += 1;
                return;
            }
        }
        let text = path.to_string_lossy().into_owned();
        let note = self.files.entry(text).or_default();
        note.directory |= is_directory;
        if note.named.is_none() {
            note.named = named.place(path).cloned();
        }
        if note.named.is_some() && !note.directory {
            note.directory = path.is_dir();
        }
        count(note);
    }

    /// Adds what was seen in another session. The command is that of the later one.
    pub(super) fn add(&mut self, later: Observation) {
        self.sessions += later.sessions;
        self.server = later.server;
        self.command = later.command;
        self.from = later.from;
        self.variables = later.variables;
        self.directory = later.directory;
        self.home = later.home;
        self.programs.extend(later.programs);
        for (path, note) in later.files {
            let known = self.files.entry(path).or_default();
            known.read += note.read;
            known.written += note.written;
            known.executed += note.executed;
            known.missed += note.missed;
            known.directory |= note.directory;
            known.named = note.named.or(known.named.take());
        }
        self.odd_names += later.odd_names;
        self.left_out += later.left_out;
        add_contacts(&mut self.addresses, later.addresses);
        add_contacts(&mut self.names, later.names);
        add_contacts(&mut self.listens, later.listens);
        add_contacts(&mut self.sockets, later.sockets);
        self.processes = self.processes.max(later.processes);
        for (name, note) in later.tools {
            self.tools.entry(name).or_default().add(note);
        }
        self.requests.extend(later.requests);
        self.escapes.extend(later.escapes);
        self.unseen.extend(later.unseen);
    }

    /// The IP addresses of the name servers that it asked.
    pub(super) fn resolvers(&self) -> BTreeSet<IpAddr> {
        let dns = self.addresses.keys().filter(|address| address.port() == 53);
        dns.map(SocketAddr::ip).collect()
    }
}

fn contact<K: Ord>(notes: &mut BTreeMap<K, ContactNote>, key: K, by: Option<String>) {
    if notes.len() >= MAX_OTHERS && !notes.contains_key(&key) {
        return;
    }
    let note = notes.entry(key).or_default();
    note.count += 1;
    note.named = note.named.take().or(by);
}

fn add_contacts<K: Ord>(notes: &mut BTreeMap<K, ContactNote>, later: BTreeMap<K, ContactNote>) {
    for (key, note) in later {
        let known = notes.entry(key).or_default();
        known.count += note.count;
        known.named = note.named.or(known.named.take());
    }
}

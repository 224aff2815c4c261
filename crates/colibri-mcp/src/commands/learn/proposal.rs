//! The proposal for a server: the least that its observed sessions need, each part with what was
//! seen for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use super::observation::{FileNote, Observation};
use super::places;
use colibri_text::counted;

/// The depth down to which a directory to be mounted is searched for secrets, and the most names
/// that are looked at.
const SEARCH_DEPTH: usize = 4;
const SEARCH_NAMES: usize = 20_000;
/// The most lines of what was left out, of each reason.
const MAX_LEFT_OUT: usize = 20;

/// A part of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PartKind {
    /// A directory or file that the jail's root has of its own, to be read and executed.
    Root,
    /// A directory of the host, to be read.
    Mount,
    /// A directory of the host, to be written as well.
    WritableMount,
    /// A program that was executed, for which something else has to show it.
    Program,
    /// An address that may be connected to.
    Address,
    /// The number of processes at a time.
    Processes,
    /// A tool that may be called.
    Tool,
    /// A tool that may be called after a person's yes.
    ConfirmedTool,
    /// A kind of request to the client.
    Request,
    /// A variable that is given.
    Variable,
}

/// One part, with what was seen for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ProposalPart {
    pub kind: PartKind,
    pub value: String,
    pub seen: String,
}

/// Something that was seen and is not proposed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Omission {
    pub value: String,
    pub why: String,
    pub seen: String,
    /// True if no honest need explains it.
    pub is_suspicious: bool,
}

/// By each place that a person named, where it was named and what was accessed there.
type AccessesByPlace<'s> = BTreeMap<PathBuf, (String, Vec<(&'s Path, &'s FileNote)>)>;

/// A proposal.
#[derive(Debug, Default, Serialize)]
pub(super) struct JailProposal {
    pub parts: Vec<ProposalPart>,
    pub left_out: Vec<Omission>,
    /// Warnings for who takes it.
    pub warnings: Vec<String>,
}

/// Makes the proposal of an observation. `accepted` are paths and addresses that a person takes as
/// needed although nobody named them.
pub(super) fn propose(seen: &Observation, accepted: &[String]) -> JailProposal {
    let mut proposal = JailProposal::default();
    let mut roots: BTreeMap<PathBuf, FileNote> = BTreeMap::new();
    let mut shown = AccessesByPlace::new();
    let programs = outermost(seen.programs.keys());
    for (text, note) in &seen.files {
        let path = Path::new(text);
        let is_read = note.read + note.executed > 0;
        if note.executed > 0 {
            proposal.part(PartKind::Program, text, counts(note));
        }
        let is_work = note.named.is_some() && places::secret(path).is_none();
        let program = programs
            .iter()
            .find(|program| path.starts_with(program) && !is_work);
        if let Some(directory) = program {
            if is_read {
                add(roots.entry(directory.clone()).or_default(), note);
            }
            if note.written > 0 && !is_bytecode(path) {
                let why = "its own program is not writable in a jail: have it write elsewhere (its documentation)";
                proposal.leave(text, why, note, true);
            }
        } else if let Some(secret) = places::secret(path) {
            proposal.leave(text, &format!("{secret}: never proposed"), note, true);
        } else if places::is_everywhere(path) || is_own(seen, path) {
            // Without a line: each jail has it.
        } else if let Some(system) = places::system(path) {
            if is_read {
                add(roots.entry(system).or_default(), note);
            }
            if note.written > 0 {
                proposal.leave(text, "a part of the system is never writable", note, true);
            }
        } else if let Some((place, by)) = place_of(path, note, &seen.home, accepted) {
            shown
                .entry(place)
                .or_insert_with(|| (by, Vec::new()))
                .1
                .push((path, note));
        } else if path.starts_with(&seen.home) {
            let why = "below the home directory, which a jail does not have: put it into the root, or name its place \
                       to the server, if it fails without";
            proposal.leave(text, why, note, true);
        } else {
            let why =
                "nobody named this place: not by the command, a variable, nor a tool's argument";
            proposal.leave(text, why, note, true);
        }
    }
    for (path, note) in roots {
        let what = seen
            .programs
            .get(&path)
            .map_or("the system", String::as_str);
        proposal.part(
            PartKind::Root,
            &path.to_string_lossy(),
            format!("{what}: {}", counts(&note)),
        );
    }
    proposal.mounts(shown, &seen.home);
    proposal.network(seen, accepted);
    proposal.part(
        PartKind::Processes,
        &seen.processes.max(1).to_string(),
        format!("{} at a time", counted(seen.processes.max(1), "process")),
    );
    proposal.tools(seen);
    for name in &seen.variables {
        proposal.part(
            PartKind::Variable,
            name,
            "it was given; whether it reads it is not seen".to_owned(),
        );
    }
    proposal.limits_of_sight(seen);
    proposal.parts.sort_by_key(|part| part.kind);
    proposal.left_out.sort_by_key(|left| !left.is_suspicious);
    proposal
}

/// The directories that lie in no other of them.
fn outermost<'p>(directories: impl Iterator<Item = &'p PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for directory in directories {
        // In order, a directory comes before what is in it.
        if !found.iter().any(|outer| directory.starts_with(outer)) {
            found.push(directory.clone());
        }
    }
    found
}

/// True if a path is in a directory of each jail's own and in no place that a person named, and the
/// server made it, or what it is in.
pub(super) fn is_own(seen: &Observation, path: &Path) -> bool {
    // The home of a jail is /tmp.
    let is_there = places::is_temporary(path) || path.starts_with(&seen.home) && path != seen.home;
    let note = |path: &Path| path.to_str().and_then(|text| seen.files.get(text));
    let is_made = |path: &Path| note(path).is_some_and(|note| note.written > 0);
    let is_named = note(path).is_some_and(|note| note.named.is_some());
    let top = if places::is_temporary(path) {
        Path::new("/tmp")
    } else {
        &seen.home
    };
    is_there
        && !is_named
        && path
            .ancestors()
            .take_while(|above| *above != top)
            .any(is_made)
}

/// True if a file is what Python stores beside a module: it does without.
pub(super) fn is_bytecode(path: &Path) -> bool {
    path.components()
        .any(|part| part.as_os_str() == "__pycache__")
}

/// The place that a person named for a path, or took as needed, and by what.
fn place_of(
    path: &Path,
    note: &FileNote,
    home: &Path,
    accepted: &[String],
) -> Option<(PathBuf, String)> {
    if let Some(named) = &note.named {
        return Some((named.path.clone(), named.by.clone()));
    }
    let mut accepted = accepted.iter().map(Path::new);
    let accepted =
        accepted.find(|accepted| path.starts_with(accepted) && places::is_work(accepted, home))?;
    Some((accepted.to_owned(), "--accept".to_owned()))
}

fn add(sum: &mut FileNote, note: &FileNote) {
    sum.read += note.read;
    sum.executed += note.executed;
}

fn counts(note: &FileNote) -> String {
    let numbers = [
        ("read", note.read),
        ("written", note.written),
        ("executed", note.executed),
        ("tried in vain", note.missed),
    ];
    let said = numbers.iter().filter(|(_, number)| *number > 0);
    said.map(|(what, number)| format!("{what} {}", counted(*number, "time")))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The directory that all of these are in; a directory is in itself.
fn common_directory<'p>(paths: impl Iterator<Item = (&'p Path, bool)>) -> Option<PathBuf> {
    let directories = paths.map(|(path, is_directory)| {
        if is_directory {
            path
        } else {
            path.parent().unwrap_or(path)
        }
    });
    directories.map(Path::to_path_buf).reduce(|common, path| {
        let both = common
            .components()
            .zip(path.components())
            .take_while(|(a, b)| a == b);
        both.map(|(part, _)| part).collect()
    })
}

/// Names of secrets in a directory, the first few.
fn secrets_in(directory: &Path) -> Vec<String> {
    let (mut found, mut looked, mut open) = (Vec::new(), 0, vec![(directory.to_owned(), 0)]);
    while let Some((path, depth)) = open.pop() {
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            looked += 1;
            if looked > SEARCH_NAMES || found.len() == 5 {
                return found;
            }
            let inner = entry.path();
            if places::secret(&inner).is_some() {
                found.push(inner.display().to_string());
            } else if depth < SEARCH_DEPTH && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push((inner, depth + 1));
            }
        }
    }
    found
}

impl JailProposal {
    fn part(&mut self, kind: PartKind, value: &str, seen: String) {
        self.parts.push(ProposalPart {
            kind,
            value: value.to_owned(),
            seen,
        });
    }

    fn leave(&mut self, value: &str, why: &str, note: &FileNote, is_suspicious: bool) {
        self.leave_with(value, why, counts(note), is_suspicious);
    }

    /// Many of one reason stand as their number.
    fn leave_with(&mut self, value: &str, why: &str, seen: String, is_suspicious: bool) {
        let same = self.left_out.iter_mut().filter(|left| left.why == why);
        if same.count() < MAX_LEFT_OUT {
            self.left_out.push(Omission {
                value: value.to_owned(),
                why: why.to_owned(),
                seen,
                is_suspicious,
            });
        } else {
            let more = format!("more than {MAX_LEFT_OUT} of these are not shown: {why}");
            if !self.warnings.contains(&more) {
                self.warnings.push(more);
            }
        }
    }

    /// Adds the directories of the host that are to be shown: no wider than what was accessed below
    /// a named place.
    fn mounts(&mut self, shown: AccessesByPlace<'_>, home: &Path) {
        let mut mounts: BTreeMap<PathBuf, (bool, String)> = BTreeMap::new();
        for (place, (by, accesses)) in shown {
            let Some(mut directory) = common_directory(
                accesses
                    .iter()
                    .map(|(path, note)| (*path, note.directory && note.written == 0)),
            ) else {
                continue;
            };
            if place.is_dir() && !directory.starts_with(&place) {
                directory.clone_from(&place);
            }
            let mut sum = FileNote::default();
            for (_, note) in &accesses {
                add(&mut sum, note);
                sum.written += note.written;
            }
            let text = directory.to_string_lossy().into_owned();
            let is_path = colibri_registry_path(&text);
            if !places::is_work(&directory, home) || !is_path {
                let why = match is_path {
                    true => {
                        "its directory may not be shown to a jail: give the server one of its own"
                    }
                    false => "a jail's paths have no comma and no equals sign: rename it",
                };
                self.leave(&text, why, &sum, false);
                continue;
            }
            let seen = format!("{}; named by {by}", counts(&sum));
            let mount = mounts.entry(directory).or_insert((false, seen));
            mount.0 |= sum.written > 0;
        }
        let all: Vec<(PathBuf, bool)> = mounts
            .iter()
            .map(|(path, (write, _))| (path.clone(), *write))
            .collect();
        for (path, (write, seen)) in mounts {
            // One in another is shown by it; the outer one is then as writable as the inner.
            if all
                .iter()
                .any(|(outer, _)| path != *outer && path.starts_with(outer))
            {
                continue;
            }
            let write = write
                || all
                    .iter()
                    .any(|(inner, write)| *write && inner.starts_with(&path));
            for secret in secrets_in(&path) {
                self.warnings.push(format!(
                    "{} holds a secret, which the server will see: {secret}; move it",
                    path.display()
                ));
            }
            let kind = if write {
                PartKind::WritableMount
            } else {
                PartKind::Mount
            };
            self.part(kind, &path.to_string_lossy(), seen);
        }
    }

    fn network(&mut self, seen: &Observation, accepted: &[String]) {
        let mut named: BTreeMap<SocketAddr, String> = BTreeMap::new();
        for (name, note) in &seen.names {
            let by = match &note.named {
                Some(by) => by.clone(),
                None if accepted.contains(name) => "--accept".to_owned(),
                None => {
                    let lookups = counted(note.count, "lookup");
                    self.leave_with(
                        name,
                        "a name that nobody named; --accept NAME takes it as needed",
                        lookups,
                        true,
                    );
                    continue;
                }
            };
            // An address is a named host's only if the host has it: the server says nothing that is
            // believed.
            for address in (name.as_str(), 0).to_socket_addrs().into_iter().flatten() {
                let of_it = seen
                    .addresses
                    .keys()
                    .filter(|known| known.ip() == address.ip().to_canonical());
                named.extend(of_it.map(|known| (*known, format!("{name}, named by {by}"))));
            }
        }
        let resolvers = seen.resolvers();
        let own: BTreeSet<String> = std::fs::read_to_string("/etc/resolv.conf")
            .unwrap_or_default()
            .lines()
            .filter_map(|line| Some(line.strip_prefix("nameserver")?.trim().to_owned()))
            .collect();
        let mut asks_names = false;
        for (address, note) in &seen.addresses {
            let seen = counted(note.count, "connection");
            let is_resolver =
                resolvers.contains(&address.ip()) && own.contains(&address.ip().to_string());
            let is_accepted = accepted
                .iter()
                .any(|text| *text == address.to_string() || *text == address.ip().to_string());
            match (named.get(address), &note.named) {
                _ if is_resolver && address.port() == 53 => asks_names = true,
                // getaddrinfo(3) sorts addresses by connecting without sending.
                _ if address.port() == 0 => {}
                (Some(by), _) => self.part(
                    PartKind::Address,
                    &address.to_string(),
                    format!("{seen}; {by}"),
                ),
                (None, Some(by)) => self.part(
                    PartKind::Address,
                    &address.to_string(),
                    format!("{seen}; named by {by}"),
                ),
                (None, None) if is_accepted => {
                    self.part(
                        PartKind::Address,
                        &address.to_string(),
                        format!("{seen}; --accept"),
                    );
                }
                (None, None) => {
                    let why = "an address that nobody named; --accept ADDRESS takes it as needed";
                    self.leave_with(&address.to_string(), why, seen, true);
                }
            }
        }
        let goes_out = self.parts.iter().any(|part| part.kind == PartKind::Address);
        for resolver in resolvers.iter().filter(|_| asks_names && goes_out) {
            let address = SocketAddr::new(*resolver, 53);
            self.part(
                PartKind::Address,
                &address.to_string(),
                "the name server of this host".to_owned(),
            );
        }
        for (address, note) in &seen.listens {
            if !address.ip().is_loopback() && address.port() != 0 {
                let listens = counted(note.count, "time");
                self.leave_with(
                    &address.to_string(),
                    "it listens for others: no server of MCP on stdio needs that",
                    listens,
                    true,
                );
            }
        }
        for (path, note) in &seen.sockets {
            let why = "a socket of the host: no jail has it";
            self.leave_with(path, why, counted(note.count, "connection"), true);
        }
    }

    fn tools(&mut self, seen: &Observation) {
        for (name, note) in &seen.tools {
            let mut said = counted(note.calls, "call");
            if note.failures > 0 {
                said.push_str(&format!(", {} failed", note.failures));
            }
            match (note.calls, note.destructive) {
                (0, _) => self.leave_with(
                    name,
                    "a tool that was never called",
                    "listed".to_owned(),
                    false,
                ),
                (_, true) => {
                    said.push_str("; the server calls it destructive");
                    self.part(PartKind::ConfirmedTool, name, said);
                }
                (_, false) => self.part(PartKind::Tool, name, said),
            }
        }
        for method in &seen.requests {
            let kind = match method.as_str() {
                "elicitation/create" => "elicitation",
                "sampling/createMessage" => "sampling",
                "roots/list" => "roots",
                _ => continue,
            };
            self.part(PartKind::Request, kind, format!("it sent {method}"));
        }
    }

    fn limits_of_sight(&mut self, seen: &Observation) {
        self.warnings.extend(seen.unseen.iter().cloned());
        if seen.left_out > 0 {
            self.warnings.push(format!(
                "{} to files are not noted: there were too many files",
                counted(seen.left_out, "access")
            ));
        }
        if seen.odd_names > 0 {
            let odd = counted(seen.odd_names, "access");
            self.warnings.push(format!(
                "{odd} to files whose names are no plain text: their directories stand for them"
            ));
        }
        if !seen.tools.values().any(|tool| tool.calls > 0) {
            self.warnings
                .push("no tool was called while it was observed".to_owned());
        }
    }

    /// The values of all parts of a kind.
    pub(super) fn values(&self, kind: PartKind) -> impl Iterator<Item = &str> {
        self.parts
            .iter()
            .filter(move |part| part.kind == kind)
            .map(|part| part.value.as_str())
    }
}

/// True if the policy's and the registry's readers take the path (`jail_path`, `is_plain_path`).
fn colibri_registry_path(text: &str) -> bool {
    text.len() <= 800 && !text.contains([',', '='])
}

/// The contract of the tools that were called.
pub(super) fn contract(seen: &Observation) -> Value {
    let called = seen.tools.iter().filter(|(_, note)| note.calls > 0);
    let tools = called.map(|(name, note)| {
        let schema = note
            .arguments
            .as_ref()
            .map_or_else(|| json!({ "type": "object" }), |shape| shape.schema());
        let reason = "these arguments alone were seen when the server was learned";
        (name.clone(), json!({ "when": schema, "reason": reason }))
    });
    json!({
        "about": format!("{}, as it was used in {}", seen.server, counted(seen.sessions, "session")),
        "tools": tools.collect::<serde_json::Map<_, _>>(),
        "others": { "deny": "this tool was not used when the server was learned" },
    })
}

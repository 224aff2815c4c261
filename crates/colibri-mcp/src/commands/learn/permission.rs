//! The check of observed accesses against a proposal: each that the jail of the proposal would
//! refuse.

use std::path::Path;

use super::observation::Observation;
use super::places;
use super::proposal::{JailProposal, PartKind, is_bytecode, is_own};

/// The outcome of the check.
#[derive(Debug, Default)]
pub(super) struct PermissionReport {
    /// The accesses that the proposal permits, of each kind and thing one.
    pub permitted: u64,
    /// Those that it refuses, as sentences.
    pub refused: Vec<String>,
}

/// Holds all that was seen against a proposal.
pub(super) fn check(proposal: &JailProposal, seen: &Observation) -> PermissionReport {
    let mut report = PermissionReport::default();
    for (text, note) in &seen.files {
        let path = Path::new(text);
        for (number, what, is_permitted) in [
            (note.read, "read", may_read(proposal, seen, path)),
            (note.executed, "execute", may_read(proposal, seen, path)),
            (note.written, "write", may_write(proposal, seen, path)),
        ] {
            if number > 0 {
                report.take(is_permitted, || format!("{what} {text}"));
            }
        }
    }
    let has = |kind, value: &str| proposal.values(kind).any(|part| part == value);
    for address in seen.addresses.keys().filter(|address| address.port() != 0) {
        let text = address.to_string();
        // A name is asked for in vain where there is no network: a server that needs none goes on.
        let is_resolver =
            address.port() == 53 && seen.names.values().all(|note| note.named.is_none());
        report.take(
            has(PartKind::Address, &text) || is_resolver && seen.names.is_empty(),
            || format!("connect to {text}"),
        );
    }
    for path in seen.sockets.keys() {
        report.take(false, || format!("connect to the socket {path}"));
    }
    for address in seen.listens.keys().filter(|address| address.port() != 0) {
        report.take(address.ip().is_loopback(), || {
            format!("listen at {address}")
        });
    }
    let most = proposal
        .values(PartKind::Processes)
        .find_map(|text| text.parse::<u64>().ok());
    report.take(seen.processes <= most.unwrap_or(1), || {
        format!("have {} processes at a time", seen.processes)
    });
    for (name, _) in seen.tools.iter().filter(|(_, note)| note.calls > 0) {
        let is_there = has(PartKind::Tool, name) || has(PartKind::ConfirmedTool, name);
        report.take(is_there, || format!("call the tool {name}"));
    }
    report
}

impl PermissionReport {
    fn take(&mut self, is_permitted: bool, what: impl FnOnce() -> String) {
        match is_permitted {
            true => self.permitted += 1,
            false => self.refused.push(what()),
        }
    }
}

fn is_below(proposal: &JailProposal, kinds: &[PartKind], path: &Path) -> bool {
    let mut parts = proposal
        .parts
        .iter()
        .filter(|part| kinds.contains(&part.kind));
    parts.any(|part| path.starts_with(&part.value))
}

fn may_read(proposal: &JailProposal, seen: &Observation, path: &Path) -> bool {
    let kinds = [PartKind::Root, PartKind::Mount, PartKind::WritableMount];
    is_below(proposal, &kinds, path) || places::is_everywhere(path) || is_own(seen, path)
}

fn may_write(proposal: &JailProposal, seen: &Observation, path: &Path) -> bool {
    is_below(proposal, &[PartKind::WritableMount], path)
        || places::is_everywhere(path) && path.starts_with("/dev")
        || is_own(seen, path)
        || is_below(proposal, &[PartKind::Root], path) && is_bytecode(path)
}

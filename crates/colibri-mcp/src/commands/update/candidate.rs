//! The version that a server could be updated to.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, bail};
use colibri_mcp::importers::{Package, PackageRegistry};
use colibri_registry::{PackageOrigin, PackagePin};
use serde_json::{Value, json};

use crate::install::{EntryDigests, InstallScope, PackageLock, PackageTools};
use colibri_text::visible;

/// The most packages that are named in a line.
const MAX_NAMED: usize = 12;

/// Another version of a server's package.
#[derive(Debug)]
pub(super) struct UpdateCandidate {
    /// The server.
    pub id: String,
    /// The digests of its entry, to which the user agreed.
    pub entry: EntryDigests,
    /// Its package now.
    pub old: PackagePin,
    /// The other one.
    pub pin: PackagePin,
    /// The lock of that.
    pub lock: PackageLock,
    /// The packages that differ, a few words each.
    changes: Vec<String>,
    /// Packages in it that have scripts.
    scripted: Vec<String>,
}

impl UpdateCandidate {
    /// The versions, hashes and packages, as the person agrees to them.
    pub(super) fn show(&self) -> String {
        let mut text = format!(
            "{}\n  from      {}\n  to        {}",
            self.id, self.old.origin, self.pin.origin
        );
        text.push_str(&format!("\n  lock      sha256:{}", self.pin.lock));
        let mut named = self
            .changes
            .iter()
            .take(MAX_NAMED)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        if self.changes.len() > MAX_NAMED {
            named.push_str(&format!(", and {} more", self.changes.len() - MAX_NAMED));
        }
        if !named.is_empty() {
            text.push_str(&format!("\n  packages  {}", visible(&named)));
        }
        if !self.scripted.is_empty() {
            let how = if self.lock.scripts {
                "are run"
            } else {
                "are not run"
            };
            let names = self.scripted.join(", ");
            text.push_str(&format!(
                "\n  note      scripts of these packages {how}: {}",
                visible(&names)
            ));
        }
        text
    }

    /// The same for a program.
    pub(super) fn facts(&self) -> Value {
        json!({ "server": self.id, "from": self.old.origin.to_string(), "to": self.pin.origin.to_string(),
            "lock": format!("sha256:{}", self.pin.lock), "packages": self.changes })
    }
}

/// The newest version of a server's package, or the one that was asked for; `None`: it is the one
/// that there is. One that is still installed is taken as it was locked then.
///
/// # Errors
/// It cannot be found out.
pub(super) fn find(
    (id, entry): (&str, EntryDigests),
    old: &PackagePin,
    to: Option<&str>,
    scope: &InstallScope,
    tools: &PackageTools,
) -> anyhow::Result<Option<UpdateCandidate>> {
    let current =
        PackageLock::of(old, scope, id)?.context("its lock is not here: colibri-mcp sync")?;
    let (registry, name, version) = match &old.origin {
        PackageOrigin::Npm { name, version } => (PackageRegistry::Npm, name, version),
        PackageOrigin::Pypi { name, version } => (PackageRegistry::Pypi, name, version),
        PackageOrigin::Bundle { .. } => bail!("{}", way_of_bundle(id)),
    };
    let (lock, scripted) = match to
        .map(|to| installed(id, old, to, scope))
        .transpose()?
        .flatten()
    {
        Some(lock) => (lock, Vec::new()),
        None => tools.resolve(&Package {
            registry,
            name: name.clone(),
            // What is newer the registry's own program knows.
            version: Some(to.map_or_else(|| format!(">={version}"), str::to_owned)),
            program: current.program.clone(),
            with: current.with.clone(),
        })?,
    };
    let pin = lock.pin()?;
    let is_same = pin == *old || (to.is_none() && pin.origin == old.origin);
    Ok((!is_same).then(|| UpdateCandidate {
        id: id.to_owned(),
        entry,
        old: old.clone(),
        changes: changes(&current, &lock),
        pin,
        lock,
        scripted,
    }))
}

/// The words about a bundle, which is updated by hand.
pub(super) fn way_of_bundle(id: &str) -> String {
    format!(
        "it is a bundle, and no registry says what is newer: get the newer file, then colibri-mcp remove {id}, and \
         colibri-mcp import FILE"
    )
}

/// The lock of another version that is still installed.
fn installed(
    id: &str,
    old: &PackagePin,
    to: &str,
    scope: &InstallScope,
) -> anyhow::Result<Option<PackageLock>> {
    for entry in fs::read_dir(scope.prefix(id))
        .into_iter()
        .flatten()
        .flatten()
    {
        let Ok(text) = fs::read(entry.path().join("lock.json")) else {
            continue;
        };
        let Ok(lock) = serde_json::from_slice::<PackageLock>(&text) else {
            continue;
        };
        let pin = lock.pin()?;
        if pin != *old
            && pin.origin.version() == Some(to)
            && entry.file_name() == *pin.directory()
            && crate::install::installed(&pin, scope, id).is_some()
        {
            return PackageLock::of(&pin, scope, id);
        }
    }
    Ok(None)
}

/// The packages that differ between two locks: `name 1 to 2`, `+name 2`, `-name 1`.
fn changes(old: &PackageLock, new: &PackageLock) -> Vec<String> {
    let by_name = |lock: &PackageLock| {
        let mut packages: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, version) in lock.packages() {
            packages.entry(name).or_default().push(version);
        }
        packages
    };
    let (old, new) = (by_name(old), by_name(new));
    let mut changes = Vec::new();
    for (name, versions) in &new {
        match old.get(name) {
            Some(before) if before == versions => {}
            Some(before) => changes.push(format!(
                "{name} {} to {}",
                before.join("/"),
                versions.join("/")
            )),
            None => changes.push(format!("+{name} {}", versions.join("/"))),
        }
    }
    let gone = old.iter().filter(|(name, _)| !new.contains_key(*name));
    changes.extend(gone.map(|(name, versions)| format!("-{name} {}", versions.join("/"))));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(packages: &[(&str, &str)]) -> PackageLock {
        let hash = "0".repeat(64);
        let lines = packages
            .iter()
            .map(|(name, version)| format!("{name}=={version} --hash=sha256:{hash}"));
        PackageLock {
            from: format!("pypi:{}=={}", packages[0].0, packages[0].1),
            run: packages[0].0.to_owned(),
            program: None,
            with: Vec::new(),
            scripts: false,
            url: None,
            requirements: Some(lines.collect()),
            npm: None,
        }
    }

    #[test]
    fn what_an_update_changes_is_named() {
        let old = lock(&[("time", "1"), ("a", "1"), ("b", "1")]);
        let new = lock(&[("time", "2"), ("a", "1"), ("c", "3")]);
        assert_eq!(changes(&old, &new), ["+c 3", "time 1 to 2", "-b 1"]);
        let candidate = UpdateCandidate {
            id: "time".to_owned(),
            entry: EntryDigests::new(),
            old: old.pin().unwrap(),
            pin: new.pin().unwrap(),
            changes: (0..20).map(|n| format!("p{n}\u{202e} 1 to 2")).collect(),
            lock: new,
            scripted: vec!["esbuild".to_owned()],
        };
        let shown = candidate.show();
        for part in [
            "pypi:time==1",
            "pypi:time==2",
            "lock      sha256:",
            "and 8 more",
            "are not run: esbuild",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains('\u{202e}'), "{shown}");
        assert_eq!(candidate.facts()["to"], "pypi:time==2");
    }
}

//! The lock of a server's packages: each by version and by the hashes of its files, for every
//! platform. It stands in `locks/HASH.json` beside the registry, so that both are copied together,
//! and the entry names it by its hash.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use colibri_api::BUNDLE_DIRECTORY;
use colibri_files::replace_file;
use colibri_registry::{PackageOrigin, PackagePin, sha256_hex};
use colibri_text::brief;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::scope::InstallScope;

/// The most bytes of a lock: that of a package with two thousand others has a few.
const MAX_BYTES: u64 = 16 << 20;

/// The packages of a server, as the person agreed to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackageLock {
    /// The package, as the entry names it.
    pub from: String,
    /// The program that is run: its path in npm's package, its name in Python's environment; for a
    /// bundle `node`, `python3`, or its path with the word for the bundle's directory.
    pub run: String,
    /// The program that the person named; absent: the one of the package's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Packages that the person named beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    /// True if scripts of packages are run while they are installed, and packages may be built.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scripts: bool,
    /// The address of a bundle that was fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Packages of PyPI, a line of requirements.txt each, with the hashes of all its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Vec<String>>,
    /// Packages of npm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub npm: Option<NpmLock>,
}

/// The two files by which npm-ci(1) installs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NpmLock {
    /// `package.json`
    pub package: Value,
    /// `package-lock.json`
    pub lock: Value,
}

impl PackageLock {
    /// Its text, of which the entry has the hash.
    ///
    /// # Errors
    /// None that are known.
    pub(crate) fn text(&self) -> anyhow::Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    /// The package and the hash of this lock, as an entry has them.
    ///
    /// # Errors
    /// The package has a name or a version that no entry can have.
    pub(crate) fn pin(&self) -> anyhow::Result<PackagePin> {
        let origin = PackageOrigin::parse(&self.from);
        let origin = origin.with_context(|| {
            format!(
                "{} cannot be an entry's",
                colibri_text::brief(&self.from, 120)
            )
        })?;
        let lock = sha256_hex(self.text()?);
        Ok(PackagePin { origin, lock })
    }

    /// The number of packages in it.
    pub(crate) fn count(&self) -> u64 {
        let npm = self
            .npm
            .as_ref()
            .and_then(|npm| npm.lock.get("packages")?.as_object());
        let npm = npm.map_or(0, |packages| packages.len().saturating_sub(1));
        (npm + self.requirements.as_ref().map_or(0, Vec::len)) as u64
    }

    /// Its packages, each with its versions.
    pub(crate) fn packages(&self) -> Vec<(String, String)> {
        let npm = self
            .npm
            .as_ref()
            .and_then(|npm| npm.lock.get("packages")?.as_object());
        let npm = npm.into_iter().flatten().filter_map(|(path, facts)| {
            let (_, name) = path.rsplit_once("node_modules/")?;
            Some((name.to_owned(), facts.get("version")?.as_str()?.to_owned()))
        });
        let lines = self.requirements.iter().flatten().filter_map(|line| {
            let (name, rest) = line.split_once("==")?;
            Some((
                name.to_owned(),
                rest.split_whitespace()
                    .next()?
                    .trim_end_matches(';')
                    .to_owned(),
            ))
        });
        let mut all: Vec<_> = npm.chain(lines).collect();
        all.sort();
        all.dedup();
        all
    }

    /// The lock of an entry: from beside the registry, or from the package that is installed by it.
    /// `None`: neither has it.
    ///
    /// # Errors
    /// It is not the one that the entry names by its hash, or of another package.
    pub(crate) fn of(
        pin: &PackagePin,
        scope: &InstallScope,
        id: &str,
    ) -> anyhow::Result<Option<PackageLock>> {
        let beside = path(scope, &pin.lock);
        let installed = copy_in(&scope.prefix(id).join(pin.directory()));
        let Some(path) = [beside, installed].into_iter().find(|path| path.exists()) else {
            return Ok(None);
        };
        let at = || path.display().to_string();
        let facts = path.metadata().with_context(at)?;
        if !facts.is_file() || facts.len() > MAX_BYTES {
            bail!("{}: it is not a file of at most 16 MiB", at());
        }
        let text = fs::read(&path).with_context(at)?;
        let hash = sha256_hex(&text);
        if hash != pin.lock {
            bail!(
                "{}: its SHA-256 is {hash}, which is another than its entry names",
                at()
            );
        }
        let lock: PackageLock = serde_json::from_slice(&text).with_context(at)?;
        if lock.from != pin.origin.to_string() {
            let from = colibri_text::brief(&lock.from, 120);
            bail!(
                "its entry says {}, and the lock that the entry names is of {from}",
                pin.origin
            );
        }
        lock.check().with_context(at)?;
        Ok(Some(lock))
    }

    /// Refuses a lock in which a package manager would read something else than packages by version
    /// and hash: whoever wrote it may be a stranger.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if let Some(npm) = &self.npm {
            npm.check()?;
        }
        let program = self.program.iter().find(|name| !is_file_name(name));
        if let Some(word) = program.or_else(|| self.with.iter().find(|word| !is_package_word(word)))
        {
            bail!(
                "{:?} is no package or program of a registry",
                brief(word, 80)
            );
        }
        let odd = self
            .requirements
            .iter()
            .flatten()
            .find(|line| !is_requirement(line));
        if let Some(line) = odd {
            bail!("{:?} is no package by version and hash", brief(line, 80));
        }
        let origin = PackageOrigin::parse(&self.from).context("it is of no package")?;
        let is_its = match &origin {
            PackageOrigin::Npm { name, version } => self.npm.as_ref().is_some_and(|npm| {
                let packages = npm.lock.get("packages");
                let facts =
                    packages.and_then(|packages| packages.get(format!("node_modules/{name}")));
                facts
                    .and_then(|facts| facts.get("version"))
                    .and_then(Value::as_str)
                    == Some(version)
            }),
            PackageOrigin::Pypi { name, version } => self.packages().iter().any(|(other, has)| {
                let bare = |name: &str| normal(name.split('[').next().unwrap_or_default());
                bare(other) == bare(name) && has == version
            }),
            PackageOrigin::Bundle { .. } => true,
        };
        // A program of the machine is none of the package's.
        let runs_its = match &origin {
            PackageOrigin::Npm { name, .. } => {
                self.run.starts_with(&format!("node_modules/{name}/"))
            }
            PackageOrigin::Pypi { .. } => is_file_name(&self.run),
            PackageOrigin::Bundle { .. } => {
                matches!(self.run.as_str(), "node" | "python3")
                    || self.run.starts_with(&format!("{BUNDLE_DIRECTORY}/"))
            }
        };
        if self.run.split('/').any(|part| part == "..") || !runs_its {
            bail!("{:?} is no program of {origin}", brief(&self.run, 120));
        }
        match is_its {
            true => Ok(()),
            false => Err(anyhow!("{origin} is not in it")),
        }
    }

    /// Writes it beside the registry.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, scope: &InstallScope) -> anyhow::Result<()> {
        let text = self.text()?;
        let path = path(scope, &sha256_hex(&text));
        let mode = if scope.is_service() { 0o755 } else { 0o700 };
        let directory = path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(directory);
        made.with_context(|| directory.display().to_string())?;
        let mode = if scope.is_service() { 0o644 } else { 0o600 };
        replace_file(&path, text.as_bytes(), mode).with_context(|| path.display().to_string())
    }
}

impl NpmLock {
    /// Refuses what npm-ci(1) would install from elsewhere than a registry, or put elsewhere than
    /// below `node_modules`.
    fn check(&self) -> anyhow::Result<()> {
        let version = self.lock.get("lockfileVersion").and_then(Value::as_u64);
        if !matches!(version, Some(2 | 3)) || self.lock.get("dependencies").is_some() {
            bail!(
                "its package-lock.json is not of version 2 or 3, or has dependencies beside its packages"
            );
        }
        let packages = self.lock.get("packages").and_then(Value::as_object);
        for (path, facts) in packages
            .into_iter()
            .flatten()
            .filter(|(path, _)| !path.is_empty())
        {
            let text = |key: &str| facts.get(key).and_then(Value::as_str);
            let hash = text("integrity").and_then(|hash| hash.split_once('-'));
            let is_hashed = hash.is_some_and(|(kind, hash)| {
                matches!(kind, "sha1" | "sha256" | "sha384" | "sha512") && !hash.is_empty()
            });
            let is_below =
                path.starts_with("node_modules/") && !path.split('/').any(|part| part == "..");
            let is_fetched = text("resolved")
                .is_none_or(|url| url.starts_with("https://") || url.starts_with("http://"));
            let is_bundled = facts.get("inBundle") == Some(&Value::Bool(true));
            if facts.get("link").is_some() || !is_below || !is_fetched || !(is_hashed || is_bundled)
            {
                bail!(
                    "{}: it comes from no registry, or has no hash",
                    brief(path, 120)
                );
            }
        }
        Ok(())
    }
}

/// True if this is one name of a file.
fn is_file_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// True if a package manager takes this for a package of its registry: no option, no address, no
/// path, no archive.
fn is_package_word(word: &str) -> bool {
    const ARCHIVES: [&str; 6] = [".gz", ".tar", ".tgz", ".whl", ".zip", ".bz2"];
    let (scope, name) = match word.strip_prefix('@').map(|scoped| scoped.split_once('/')) {
        Some(Some((scope, name))) => (scope, name),
        Some(None) => return false,
        None => ("x", word),
    };
    is_file_name(scope)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-[],@=<>~!*^+".contains(c))
        && !ARCHIVES
            .iter()
            .any(|end| name.to_ascii_lowercase().ends_with(end))
}

/// The path of a lock beside the registry.
pub(super) fn path(scope: &InstallScope, hash: &str) -> PathBuf {
    directory(scope).join(format!("{hash}.json"))
}

/// The directory of the locks.
pub(super) fn directory(scope: &InstallScope) -> PathBuf {
    scope.registry.with_file_name("locks")
}

/// The copy of a lock in the directory of the package that was installed by it.
pub(super) fn copy_in(prefix: &Path) -> PathBuf {
    prefix.join("lock.json")
}

/// A name as PEP 503 compares it.
pub(super) fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

/// True if a line of requirements.txt is a package of PyPI by version and hashes, for some
/// platforms or for all: no option, no address, no path.
pub(super) fn is_requirement(line: &str) -> bool {
    let mut words = line.split(" --hash=sha256:");
    let package = words.next().unwrap_or_default();
    let (exact, marker) = package.split_once(" ; ").unwrap_or((package, ""));
    let Some((name, version)) = exact.split_once("==") else {
        return false;
    };
    let is_word = |word: &str, more: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let is_marker = |c: char| c.is_ascii_alphanumeric() || " ._<>=!'\"()-~".contains(c);
    let hashes: Vec<&str> = words.collect();
    is_word(name, "._-[],")
        && is_word(version, "._+!-")
        && marker.chars().all(is_marker)
        && !marker.contains("--")
        && !hashes.is_empty()
        && hashes
            .iter()
            .all(|hash| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lock() -> PackageLock {
        PackageLock {
            from: "pypi:time==1".to_owned(),
            run: "time".to_owned(),
            program: None,
            with: Vec::new(),
            scripts: false,
            url: None,
            requirements: Some(vec![format!("time==1 --hash=sha256:{}", "0".repeat(64))]),
            npm: None,
        }
    }

    fn scope_in(place: &Path) -> InstallScope {
        InstallScope {
            registry: place.join("external-mcp.json"),
            secrets: place.join("secrets"),
            servers: place.join("servers"),
            logins: place.join("logins"),
            consent: Some(place.join("consent.json")),
            group: None,
        }
    }

    #[test]
    fn a_lock_is_the_one_that_its_entry_names() {
        let place = tempfile::tempdir().unwrap();
        let scope = scope_in(place.path());
        let pin = lock().pin().unwrap();
        assert_eq!(PackageLock::of(&pin, &scope, "s").unwrap(), None);
        lock().write(&scope).unwrap();
        assert_eq!(PackageLock::of(&pin, &scope, "s").unwrap(), Some(lock()));
        // Another of the same package, and the same lock under another package's name.
        let other = PackagePin {
            origin: PackageOrigin::parse("pypi:time==2").unwrap(),
            ..pin.clone()
        };
        let said = PackageLock::of(&other, &scope, "s")
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("says pypi:time==2") && said.contains("is of pypi:time==1"),
            "{said}"
        );
        fs::write(path(&scope, &pin.lock), "{}").unwrap();
        let said = PackageLock::of(&pin, &scope, "s").unwrap_err().to_string();
        assert!(said.contains("which is another"), "{said}");
    }

    #[test]
    fn a_lock_of_a_strangers_tells_a_package_manager_nothing_else() {
        let hash = "0".repeat(64);
        for line in [
            format!("a==1 --hash=sha256:{hash}"),
            format!("a_b.c==1!2.0+x --hash=sha256:{hash} --hash=sha256:{hash}"),
            format!(
                "a==1 ; python_full_version >= '3.11' and sys_platform == 'win32' --hash=sha256:{hash}"
            ),
        ] {
            assert!(is_requirement(&line), "{line}");
        }
        for line in [
            "a==1".to_owned(),
            "-r /etc/passwd".to_owned(),
            format!("--index-url=http://x a==1 --hash=sha256:{hash}"),
            format!("a==1 --index-url=http://x --hash=sha256:{hash}"),
            format!("a==1 ; --index-url=http://x --hash=sha256:{hash}"),
            format!("a @ http://x --hash=sha256:{hash}"),
            format!("a==1\n-e . --hash=sha256:{hash}"),
            format!("a>=1 --hash=sha256:{hash}"),
            "a==1 --hash=sha256:00".to_owned(),
            String::new(),
        ] {
            assert!(!is_requirement(&line), "{line}");
        }
        for change in [
            |lock: &mut PackageLock| lock.requirements = Some(vec!["-e .".to_owned()]),
            |lock: &mut PackageLock| lock.requirements = None,
            |lock: &mut PackageLock| lock.from = "pypi:time==2".to_owned(),
            |lock: &mut PackageLock| lock.run = "../x".to_owned(),
            |lock: &mut PackageLock| lock.run = "/bin/sh".to_owned(),
            |lock: &mut PackageLock| lock.program = Some("../x".to_owned()),
            |lock: &mut PackageLock| lock.with = vec!["x @ https://evil/x.tar.gz".to_owned()],
            |lock: &mut PackageLock| lock.with = vec!["/tmp/x".to_owned()],
            |lock: &mut PackageLock| lock.with = vec!["x.tar.gz".to_owned()],
            |lock: &mut PackageLock| lock.with = vec!["--index-url=https://evil".to_owned()],
            |lock: &mut PackageLock| lock.with = vec!["x\n-e .".to_owned()],
            |lock: &mut PackageLock| lock.with = vec!["user/repository".to_owned()],
            |lock: &mut PackageLock| lock.with = vec!["@scope".to_owned()],
        ] {
            let mut changed = lock();
            change(&mut changed);
            assert!(changed.check().is_err(), "{changed:?}");
        }
        lock().check().unwrap();
        for with in ["mcp[cli]>=1.2", "@scope/name@1.2.3", "name@^1"] {
            let with = vec![with.to_owned()];
            PackageLock { with, ..lock() }.check().unwrap();
        }
        let bundle = |run: &str| PackageLock {
            from: format!("mcpb:sha256:{}", "0".repeat(64)),
            run: run.to_owned(),
            ..lock()
        };
        for (run, is_its) in [
            ("node", true),
            ("${__dirname}/bin/x", true),
            ("/bin/sh", false),
            ("${__dirname}/../sh", false),
            ("sh", false),
        ] {
            assert_eq!(bundle(run).check().is_ok(), is_its, "{run}");
        }
        let npm_at = |path: &str, facts: Value| PackageLock {
            from: "npm:p@1.0.0".to_owned(),
            run: "node_modules/p/p.js".to_owned(),
            requirements: None,
            npm: Some(NpmLock {
                package: Value::Null,
                lock: json!({ "lockfileVersion": 3, "packages": {
                    "": {}, "node_modules/p": { "version": "1.0.0", "integrity": "sha512-x" }, path: facts } }),
            }),
            ..lock()
        };
        let npm = |facts: Value| npm_at("node_modules/p", facts);
        npm(json!({ "version": "1.0.0", "integrity": "sha512-x" }))
            .check()
            .unwrap();
        for facts in [
            json!({ "version": "1.0.0" }),
            json!({ "version": "1.0.0", "link": true, "resolved": "../x" }),
            json!({ "version": "1.0.1", "integrity": "sha512-x" }),
            json!({ "version": "1.0.0", "integrity": "" }),
            json!({ "version": "1.0.0", "integrity": "sha512-" }),
            json!({ "version": "1.0.0", "inBundle": false }),
            json!({ "version": "1.0.0", "integrity": "sha512-x", "link": true }),
            json!({ "version": "1.0.0", "integrity": "sha512-x", "resolved": "file:../x.tgz" }),
            json!({ "version": "1.0.0", "integrity": "sha512-x", "resolved": "git+ssh://h/x" }),
        ] {
            assert!(npm(facts.clone()).check().is_err(), "{facts}");
        }
        for path in ["../x", "node_modules/../../x", "/etc/x", "x"] {
            let facts = json!({ "version": "1.0.0", "integrity": "sha512-x" });
            assert!(npm_at(path, facts).check().is_err(), "{path}");
        }
        let mut old = npm(json!({ "version": "1.0.0", "integrity": "sha512-x" }));
        old.check().unwrap();
        if let Some(npm) = &mut old.npm {
            npm.lock["lockfileVersion"] = json!(1);
        }
        assert!(old.check().is_err());
    }
}

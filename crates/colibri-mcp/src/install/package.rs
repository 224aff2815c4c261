//! The way of a package from its registry to its directory: its lock, and the installation by that.

use std::cell::OnceCell;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use colibri_api::{BUNDLE_DIRECTORY, InstalledPackage};
use colibri_files::replace_file;
use colibri_mcp::importers::{Archive, Package, PackageRegistry};
use colibri_registry::{PackageOrigin, PackagePin};
use colibri_text::counted;
use tempfile::TempDir;

use super::lock::{self, PackageLock};
use super::pypi::{self, PythonTool};
use super::scope::InstallScope;
use super::tools::{need, node, text};
use super::{files, npm};
use crate::progress;

/// The programs that resolve and install packages, with one cache for all that one command does.
#[derive(Debug)]
pub(crate) struct PackageTools {
    stage: TempDir,
    python: OnceCell<PythonTool>,
    /// True if scripts of packages are run while they are installed, and packages may be built.
    pub scripts: bool,
}

impl PackageTools {
    /// With a temporary directory, which is gone with this.
    ///
    /// # Errors
    /// That cannot be made.
    pub(crate) fn new(scripts: bool) -> anyhow::Result<PackageTools> {
        Ok(PackageTools {
            stage: tempfile::tempdir().context("no temporary directory")?,
            python: OnceCell::new(),
            scripts,
        })
    }

    fn python(&self) -> anyhow::Result<&PythonTool> {
        if self.python.get().is_none() {
            let made = PythonTool::new(self.stage.path())?;
            return Ok(self.python.get_or_init(|| made));
        }
        self.python.get().context("Python is gone")
    }

    /// Finds out what a package is now: its lock, and the packages in it that have scripts.
    ///
    /// # Errors
    /// It is not there, or a program that would find it is not.
    pub(crate) fn resolve(&self, package: &Package) -> anyhow::Result<(PackageLock, Vec<String>)> {
        let _step = progress::step(format!("looking for {} and what it needs", package.name));
        match package.registry {
            PackageRegistry::Npm => npm::resolve(self.stage.path(), package, self.scripts),
            PackageRegistry::Pypi => Ok((
                pypi::resolve(self.python()?, package, self.scripts)?,
                Vec::new(),
            )),
        }
    }

    /// The lines of a lock for the requirements of a bundle.
    ///
    /// # Errors
    /// As above.
    pub(super) fn resolve_all(&self, words: &[String]) -> anyhow::Result<Vec<String>> {
        let _step = progress::step("looking for what the bundle needs");
        self.python()?.resolve(words, self.scripts)
    }

    /// Installs the package of a lock into its directory, unless it is there. What is half there is
    /// taken away before, and what is whole has its record, which is written last.
    ///
    /// # Errors
    /// It cannot be installed; then nothing of it stays.
    pub(crate) fn install(
        &self,
        lock: &PackageLock,
        bundle: Option<&[u8]>,
        scope: &InstallScope,
        id: &str,
    ) -> anyhow::Result<()> {
        let pin = lock.pin()?;
        if InstalledPackage::of(&pin, &scope.servers, id).is_ok() {
            return Ok(());
        }
        let _step = progress::step(match lock.count() {
            0 => format!("installing {id}"),
            count => format!("installing {} for {id}", counted(count, "package")),
        });
        let prefix = scope.prefix(id).join(pin.directory());
        let installed = self.install_into(&prefix, &pin, lock, bundle, scope);
        if installed.is_err() {
            // What made it fail is said.
            let _ = fs::remove_dir_all(&prefix);
            let _ = fs::remove_dir(scope.prefix(id));
        }
        installed
    }

    fn install_into(
        &self,
        prefix: &Path,
        pin: &PackagePin,
        lock: &PackageLock,
        bundle: Option<&[u8]>,
        scope: &InstallScope,
    ) -> anyhow::Result<()> {
        let mode = if scope.is_service() { 0o755 } else { 0o700 };
        let at = || prefix.display().to_string();
        let above = prefix.parent().unwrap_or(&scope.servers);
        let made = DirBuilder::new().recursive(true).mode(mode).create(above);
        made.with_context(|| above.display().to_string())?;
        match fs::remove_dir_all(prefix) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(at);
            }
            _ => {}
        }
        // Nobody else comes in before all of it has been looked at.
        DirBuilder::new()
            .mode(0o700)
            .create(prefix)
            .with_context(at)?;
        let command = self.put_files(prefix, pin, lock, bundle, mode)?;
        if let Some(program) = command.first() {
            scope.check_reach(Path::new(program))?;
        }
        let of_file = if scope.is_service() { 0o644 } else { 0o600 };
        replace_file(&lock::copy_in(prefix), lock.text()?.as_bytes(), of_file).with_context(at)?;
        let record = InstalledPackage {
            from: pin.origin.to_string(),
            lock: format!("sha256:{}", pin.lock),
            command,
            files: format!("sha256-{}", files::hash(prefix)?),
        };
        // All files are on the disk before the record that says so.
        nix::unistd::sync();
        let record = format!("{}\n", serde_json::to_string_pretty(&record)?);
        replace_file(&InstalledPackage::path(prefix), record.as_bytes(), of_file)
            .with_context(at)?;
        fs::set_permissions(prefix, Permissions::from_mode(mode)).with_context(at)
    }

    /// Puts the files of a package where they belong; the command that runs it.
    fn put_files(
        &self,
        prefix: &Path,
        pin: &PackagePin,
        lock: &PackageLock,
        bundle: Option<&[u8]>,
        mode: u32,
    ) -> anyhow::Result<Vec<String>> {
        let venv = prefix.join("venv");
        if let Some(lines) = &lock.requirements {
            self.python()?.install(lines, lock.scripts, &venv)?;
        }
        match (&pin.origin, &lock.npm, bundle) {
            (PackageOrigin::Npm { .. }, Some(files), _) => {
                npm::install(self.stage.path(), lock, files, prefix)
            }
            (PackageOrigin::Pypi { name, .. }, _, _) => Ok(vec![
                text(&pypi::interpreter(&venv))?,
                text(&pypi::program(lock, name, &venv)?)?,
            ]),
            (PackageOrigin::Bundle { .. }, _, Some(bytes)) => {
                let directory = prefix.join("bundle");
                unpack(bytes, &directory, mode)?;
                let program = match lock.run.as_str() {
                    "node" => node()?,
                    "python3" if lock.requirements.is_some() => pypi::interpreter(&venv),
                    "python3" => need("python3", "Python 3")?,
                    path => PathBuf::from(path.replace(BUNDLE_DIRECTORY, &text(&directory)?)),
                };
                Ok(vec![text(&program)?])
            }
            (PackageOrigin::Bundle { sha256 }, ..) => {
                bail!("the bundle of SHA-256 {sha256} is not at hand")
            }
            (PackageOrigin::Npm { .. }, None, _) => bail!("its lock has no packages of npm"),
        }
    }
}

/// Unpacks a bundle that was looked at into a directory that is made.
fn unpack(bytes: &[u8], into: &Path, mode: u32) -> anyhow::Result<()> {
    let mut archive = Archive::open(bytes)?;
    let paths: Vec<(String, bool)> = archive
        .files()
        .map(|(path, executable)| (path.to_owned(), executable))
        .collect();
    let make = |directory: &Path| {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(directory);
        made.with_context(|| directory.display().to_string())
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
        written.with_context(|| path.display().to_string())?;
    }
    Ok(())
}

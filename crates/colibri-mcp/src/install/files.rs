//! The check that the files of an installed package are those that were installed.
//!
//! [`InstalledPackage`] has the hash of all files as they were after the installation. Archives are
//! checked by npm(1), pip(1), uv or by us while they are installed; the files when consent is given
//! anew (`colibri-mcp server enable`), and by `colibri-mcp sync`.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use colibri_api::InstalledPackage;
use colibri_registry::{PackagePin, ServerEntry};
use sha2::{Digest as _, Sha256};

use super::scope::InstallScope;

/// The record of an installed package; `None`: it is not installed.
pub(crate) fn installed(
    pin: &PackagePin,
    scope: &InstallScope,
    id: &str,
) -> Option<InstalledPackage> {
    InstalledPackage::of(pin, &scope.servers, id).ok()
}

/// True if the files of an installed package are those that were installed.
///
/// # Errors
/// They are not, or cannot be read.
pub(crate) fn check_files(
    pin: &PackagePin,
    scope: &InstallScope,
    id: &str,
    record: &InstalledPackage,
) -> anyhow::Result<()> {
    let prefix = scope.prefix(id).join(pin.directory());
    match record.files == format!("sha256-{}", hash(&prefix)?) {
        true => Ok(()),
        false => Err(anyhow!(
            "{} is not as it was installed: colibri-mcp sync installs it anew",
            prefix.display()
        )),
    }
}

/// True if what is installed for an entry is as it was installed; for one without a package nothing
/// is.
///
/// # Errors
/// It is not, or not there.
pub(crate) fn check_installed(entry: &ServerEntry, scope: &InstallScope) -> anyhow::Result<()> {
    let id = &entry.entry_id;
    match entry
        .command
        .as_ref()
        .and_then(|command| command.package.as_ref())
    {
        None => Ok(()),
        Some(pin) => check_files(
            pin,
            scope,
            id,
            &InstalledPackage::of(pin, &scope.servers, id)?,
        ),
    }
}

/// Takes the record of an installed package away: without it the package is not installed, and its
/// next installation begins with an empty directory.
///
/// # Errors
/// It cannot be taken away.
pub(crate) fn discard(pin: &PackagePin, scope: &InstallScope, id: &str) -> anyhow::Result<()> {
    let path = InstalledPackage::path(&scope.prefix(id).join(pin.directory()));
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// SHA-256 over all files below, in the order of their paths: kind, length of path, path, length,
/// content. What Python makes of its sources as it runs (`__pycache__`) is removed before: it makes
/// it anew, and would run what somebody else had put there.
///
/// What is neither a file nor a link is refused, and so is a file by which who runs it becomes who
/// installed it: archives can hold both, and where root installs for the service the latter would
/// be root.
pub(super) fn hash(prefix: &Path) -> anyhow::Result<String> {
    let mut paths = Vec::new();
    list(prefix, &mut paths)?;
    paths.retain(|path| *path != InstalledPackage::path(prefix));
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        let failed = |error: std::io::Error| anyhow!("{}: {error}", path.display());
        let facts = path.symlink_metadata().map_err(failed)?;
        let below = path
            .strip_prefix(prefix)
            .unwrap_or(&path)
            .as_os_str()
            .as_bytes();
        if !(facts.is_file() || facts.is_symlink()) {
            bail!("{}: it is neither a file nor a link", path.display());
        }
        if facts.is_file() && facts.permissions().mode() & 0o6000 != 0 {
            bail!("{}: it is set-user-ID or set-group-ID", path.display());
        }
        let kind = match (facts.is_symlink(), facts.permissions().mode() & 0o111 != 0) {
            (true, _) => b'l',
            (false, true) => b'x',
            (false, false) => b'f',
        };
        hash.update([kind]);
        hash.update((below.len() as u64).to_be_bytes());
        hash.update(below);
        if facts.is_symlink() {
            let target = path.read_link().map_err(failed)?;
            let target = target.as_os_str().as_bytes();
            hash.update((target.len() as u64).to_be_bytes());
            hash.update(target);
            continue;
        }
        hash.update(facts.len().to_be_bytes());
        let mut file = fs::File::open(&path).map_err(failed)?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer).map_err(failed)? {
                0 => break,
                read => hash.update(&buffer[..read]),
            }
        }
    }
    Ok(colibri_text::hex(&hash.finalize()))
}

fn list(directory: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let failed = |error: std::io::Error| anyhow!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        match kind.is_dir() {
            true if entry.file_name() == "__pycache__" => {
                let failed = |error: std::io::Error| anyhow!("{}: {error}", entry.path().display());
                fs::remove_dir_all(entry.path()).map_err(failed)?;
            }
            true => list(&entry.path(), found)?,
            false => found.push(entry.path()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_changed_are_noticed() {
        let place = tempfile::tempdir().unwrap();
        let scope = InstallScope {
            registry: place.path().join("external-mcp.json"),
            secrets: place.path().join("secrets"),
            servers: place.path().join("servers"),
            logins: place.path().join("logins"),
            consent: None,
            group: None,
        };
        let pin = PackagePin {
            origin: colibri_registry::PackageOrigin::parse("pypi:a==1").unwrap(),
            lock: "0".repeat(64),
        };
        let prefix = scope.prefix("s").join(pin.directory());
        fs::create_dir_all(prefix.join("a/__pycache__")).unwrap();
        fs::write(prefix.join("a/b.py"), "1").unwrap();
        let record = InstalledPackage {
            from: "pypi:a==1".to_owned(),
            lock: format!("sha256:{}", pin.lock),
            command: vec!["/bin/a".to_owned()],
            files: format!("sha256-{}", hash(&prefix).unwrap()),
        };
        let check = || check_files(&pin, &scope, "s", &record);
        check().unwrap();
        // What Python would run instead of the source is not left there.
        let cache = prefix.join("a/__pycache__");
        fs::create_dir_all(cache.join("__pycache__")).unwrap();
        fs::write(cache.join("b.cpython-311.pyc"), "x").unwrap();
        check().unwrap();
        assert!(!cache.exists());
        let elsewhere = place.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("b.cpython-311.pyc"), "x").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &cache).unwrap();
        assert!(check().is_err());
        assert!(
            elsewhere.join("b.cpython-311.pyc").exists(),
            "nothing elsewhere is removed"
        );
        fs::remove_file(&cache).unwrap();
        fs::write(prefix.join("a/b.py"), "2").unwrap();
        assert!(
            check()
                .unwrap_err()
                .to_string()
                .contains("not as it was installed")
        );
        fs::write(prefix.join("a/b.py"), "1").unwrap();
        check().unwrap();
        fs::write(prefix.join("a/new"), "").unwrap();
        assert!(check().is_err());
    }

    #[test]
    fn nothing_is_installed_that_gives_its_owners_rights_away() {
        for mode in [0o4755, 0o2755] {
            let prefix = tempfile::tempdir().unwrap();
            let program = prefix.path().join("su");
            fs::write(&program, "").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
            let said = hash(prefix.path()).unwrap_err().to_string();
            assert!(said.contains("su: it is set-user-ID"), "{mode:o}: {said}");
        }
        let prefix = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&prefix.path().join("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(
            hash(prefix.path())
                .unwrap_err()
                .to_string()
                .contains("neither a file")
        );
    }
}

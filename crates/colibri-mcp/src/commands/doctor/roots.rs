//! The root of an ephemeral jail: is what a server needs really in it?

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

/// The most symbolic links that are followed for one path (as MAXSYMLINKS), and scripts for one
/// command.
const MAX_LINKS: usize = 32;
const MAX_SCRIPTS: usize = 4;

/// The most bytes of a program that are read: the first line of a script.
const MAX_BYTES: u64 = 4096;

/// Checks that `program`, a path as the jail sees it, can start in `root`: it is there and
/// executable, and so is the interpreter of a script. Which libraries a binary lacks its dynamic
/// linker says when it is started.
pub(super) fn can_start(root: &Path, program: &Path) -> anyhow::Result<()> {
    let mut program = program.to_owned();
    for _ in 0..MAX_SCRIPTS {
        let place = inside(root, &program)?;
        let shown = program.display();
        let facts = place
            .metadata()
            .with_context(|| format!("{shown} in {}", root.display()))?;
        if !facts.is_file() || facts.mode() & 0o111 == 0 {
            bail!("{shown} in {} is no executable file", root.display());
        }
        let mut content = Vec::new();
        File::open(&place)
            .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut content))
            .with_context(|| format!("{shown} in {}", root.display()))?;
        let Some(next) = interpreter(&content) else {
            return Ok(());
        };
        program = next;
    }
    Err(anyhow!(
        "{} is a script of a script of a script",
        program.display()
    ))
}

/// Checks that nobody but `owner`, who is root, can make or rename a directory in `root`. The
/// jail's root is a view of it (nullfs), so whoever moves a directory out of it lets out a process
/// that has it open. What is in `/dev` and `/tmp` is covered.
pub(super) fn is_owners_alone(root: &Path, owner: u32) -> anyhow::Result<()> {
    let covered = [root.join("dev"), root.join("tmp")];
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        let failed = |error: std::io::Error| anyhow!("{}: {error}", directory.display());
        let facts = directory.symlink_metadata().map_err(failed)?;
        if facts.uid() != owner || facts.mode() & 0o022 != 0 {
            bail!(
                "others than uid {owner} can write to {}",
                directory.display()
            );
        }
        for entry in directory.read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() && !covered.contains(&entry.path()) {
                left.push(entry.path());
            }
        }
    }
    Ok(())
}

/// The program that runs a script: after `#!`, or, behind env(1), the word that it looks up, where
/// that is a path.
fn interpreter(content: &[u8]) -> Option<PathBuf> {
    let line = content
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let words: Vec<_> = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    let first = words.first()?;
    Some(PathBuf::from(OsStr::from_bytes(first)))
}

/// The path on the host of the jail's `path`: symbolic links are followed as the jail would follow
/// them, absolute ones from its root, and none leads out of it.
pub(super) fn inside(root: &Path, path: &Path) -> anyhow::Result<PathBuf> {
    let mut links = 0;
    let mut at = PathBuf::new();
    let mut left: Vec<_> = path
        .components()
        .rev()
        .map(|part| part.as_os_str().to_owned())
        .collect();
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next() {
            Some(Component::Normal(name)) => at.push(name),
            Some(Component::ParentDir) => {
                at.pop();
                continue;
            }
            Some(Component::RootDir) => {
                at = PathBuf::new();
                continue;
            }
            _ => continue,
        }
        let place = root.join(&at);
        let Ok(target) = place.read_link() else {
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            bail!(
                "{} in {}: too many symbolic links",
                path.display(),
                root.display()
            );
        }
        at.pop();
        left.extend(
            target
                .components()
                .rev()
                .map(|part| part.as_os_str().to_owned()),
        );
    }
    Ok(root.join(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn links_are_followed_as_the_jail_would() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir_all(root.join("usr/lib")).unwrap();
        symlink("/usr/lib", root.join("lib")).unwrap();
        symlink("../../../../../../etc", root.join("usr/up")).unwrap();
        symlink("/loop", root.join("loop")).unwrap();
        let at = |path: &str| inside(root, Path::new(path));
        assert_eq!(at("/lib/x").unwrap(), root.join("usr/lib/x"));
        assert_eq!(at("/usr/up/passwd").unwrap(), root.join("etc/passwd"));
        assert_eq!(at("/../../etc/passwd").unwrap(), root.join("etc/passwd"));
        assert!(at("/loop/x").unwrap_err().to_string().contains("links"));
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir_all(root.join("var/tmp")).unwrap();
        std::fs::create_dir(root.join("tmp")).unwrap();
        let mode = |name: &str, mode| {
            std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(mode))
                .unwrap();
        };
        mode("tmp", 0o1777);
        mode("var", 0o755);
        mode("var/tmp", 0o755);
        symlink("tmp", root.join("var/link")).unwrap();
        let owner = nix::unistd::getuid().as_raw();
        is_owners_alone(root, owner).unwrap();
        for (wrong, right) in [(0o1777, 0o755), (0o775, 0o700)] {
            mode("var/tmp", wrong);
            let told = is_owners_alone(root, owner).unwrap_err().to_string();
            assert!(told.ends_with("/var/tmp"), "{told}");
            mode("var/tmp", right);
        }
        assert!(is_owners_alone(root, owner + 1).is_err());
    }

    #[test]
    fn a_missing_command_or_interpreter_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir_all(root.join("bin")).unwrap();
        let put = |name: &str, content: &[u8], mode| {
            let path = root.join("bin").join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let start = |name: &str| can_start(root, &Path::new("/bin").join(name));
        assert!(start("none").unwrap_err().to_string().contains("/bin/none"));
        put("plain", b"x", 0o644);
        assert!(
            start("plain")
                .unwrap_err()
                .to_string()
                .contains("no executable")
        );
        put("script", b"#! /bin/shell -e\n", 0o755);
        assert!(
            start("script")
                .unwrap_err()
                .to_string()
                .contains("/bin/shell")
        );
        put("self", b"#!/bin/self\n", 0o755);
        assert!(
            start("self")
                .unwrap_err()
                .to_string()
                .contains("script of a script")
        );
        put("shell", b"\x7fELF", 0o755);
        start("script").unwrap();
        // On this machine itself it can start, by definition.
        can_start(Path::new("/"), &std::env::current_exe().unwrap()).unwrap();
    }
}

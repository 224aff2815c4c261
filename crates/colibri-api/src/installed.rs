//! `installed.json`: the record of a package that was installed for an entry, in the package's
//! directory. It is written last, so that a directory without one is no installation.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use colibri_registry::{EntryValue, PackageOrigin, PackagePin, StdioCommand};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

/// The name of the record.
const RECORD: &str = "installed.json";
/// The most bytes of one.
const MAX_BYTES: u64 = 64 * 1024;
/// The word for the bundle's directory in the arguments and variables of an entry, as in the
/// bundle's manifest.
pub const BUNDLE_DIRECTORY: &str = "${__dirname}";

/// The record of an installed package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstalledPackage {
    /// The package, as the entry names it.
    pub from: String,
    /// The lock by which it was installed, as the entry names it.
    pub lock: String,
    /// The program, an absolute path, and its first arguments.
    pub command: Vec<String>,
    /// The hash of all its files, as they were after the installation.
    pub files: String,
}

/// A package that cannot be run as it is.
#[derive(Debug, thiserror::Error)]
pub enum PackageFault {
    /// It is not installed, or by another lock.
    #[error("{package} is not installed here as its entry has it: colibri-mcp sync installs it")]
    Absent {
        /// The package.
        package: String,
    },
    /// The record is not what `colibri-mcp` writes.
    #[error("{path}: {why}; colibri-mcp sync installs it anew", path = .path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl InstalledPackage {
    /// True if its program is there: an interpreter belongs to the machine, and may be gone.
    pub fn can_run(&self) -> bool {
        self.command
            .first()
            .is_some_and(|program| Path::new(program).exists())
    }

    /// The path of the record in a package's directory.
    pub fn path(prefix: &Path) -> PathBuf {
        prefix.join(RECORD)
    }

    /// The record of the package that an entry has. `servers` is the directory of all servers, `id`
    /// the entry's.
    ///
    /// # Errors
    /// It is not installed, or somebody else could have written the record.
    pub fn of(
        pin: &PackagePin,
        servers: &Path,
        id: &str,
    ) -> Result<InstalledPackage, PackageFault> {
        let path = InstalledPackage::path(&servers.join(id).join(pin.directory()));
        let package = pin.origin.to_string();
        let fault = |why: String| PackageFault::Record {
            path: path.clone(),
            why,
        };
        let facts = match path.symlink_metadata() {
            Ok(facts) => facts,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(PackageFault::Absent { package });
            }
            Err(error) => return Err(fault(error.to_string())),
        };
        if !facts.is_file() || facts.len() > MAX_BYTES {
            return Err(fault("it is not a file of at most 64 KiB".to_owned()));
        }
        if ![0, Uid::effective().as_raw()].contains(&facts.uid()) || facts.mode() & 0o022 != 0 {
            let (uid, mode) = (facts.uid(), facts.mode() & 0o7777);
            return Err(fault(format!(
                "it belongs to uid {uid} with mode {mode:04o}, so others could change it"
            )));
        }
        let text = std::fs::read(&path).map_err(|error| fault(error.to_string()))?;
        let record: InstalledPackage =
            serde_json::from_slice(&text).map_err(|error| fault(error.to_string()))?;
        if record.from != package || record.lock != format!("sha256:{}", pin.lock) {
            return Err(PackageFault::Absent { package });
        }
        match record.command.first() {
            Some(program) if program.starts_with('/') => Ok(record),
            _ => Err(fault("it names no program".to_owned())),
        }
    }
}

/// Completes the command of an entry that has a package by what is installed for it; one that has
/// none stays as it is.
///
/// # Errors
/// As [`InstalledPackage::of`].
pub fn complete_command(
    command: &mut StdioCommand,
    servers: &Path,
    id: &str,
) -> Result<(), PackageFault> {
    let Some(pin) = &command.package else {
        return Ok(());
    };
    let installed = InstalledPackage::of(pin, servers, id)?;
    if let PackageOrigin::Bundle { .. } = pin.origin {
        let directory = servers.join(id).join(pin.directory()).join("bundle");
        let directory = directory.to_string_lossy();
        let put_in = |text: &mut String| *text = text.replace(BUNDLE_DIRECTORY, &directory);
        command.args.iter_mut().for_each(put_in);
        for value in command.env.values_mut() {
            if let EntryValue::Plain(text) = value {
                put_in(text);
            }
        }
    }
    let mut words = installed.command.into_iter();
    command.program = words.next().map(PathBuf::from).unwrap_or_default();
    command.args.splice(0..0, words);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_registry::Registry;
    use std::fs::{Permissions, create_dir_all, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    fn command_of(from: &str) -> StdioCommand {
        let lock = "0a".repeat(32);
        let text = format!(
            r#"{{"servers":{{"s":{{"from":"{from}","lock":"sha256:{lock}","args":["${{__dirname}}/x","-v"],
            "env":{{"A":"${{__dirname}}"}}}}}}}}"#
        );
        let mut registry = Registry::parse(text.as_bytes(), "r").unwrap();
        *registry.servers.remove("s").unwrap().command.unwrap()
    }

    #[test]
    fn a_package_is_run_as_it_was_installed_and_not_before() {
        let place = tempfile::tempdir().unwrap();
        let servers = place.path();
        let bundle = format!("mcpb:sha256:{}", "0b".repeat(32));
        let mut command = command_of(&bundle);
        let said = complete_command(&mut command, servers, "s")
            .unwrap_err()
            .to_string();
        assert!(
            said.contains(&bundle) && said.contains("colibri-mcp sync"),
            "{said}"
        );
        let prefix = servers.join("s/bundle-0a0a0a0a0a0a");
        create_dir_all(&prefix).unwrap();
        let path = InstalledPackage::path(&prefix);
        let record = |from: &str, lock: &str, program: &str| {
            let record = InstalledPackage {
                from: from.to_owned(),
                lock: format!("sha256:{}", lock.repeat(32)),
                command: vec![program.to_owned(), "-B".to_owned()],
                files: String::new(),
            };
            write(&path, serde_json::to_string(&record).unwrap()).unwrap();
            set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        };
        for (from, lock, program) in [
            ("pypi:x==1", "0a", "/bin/python3"),
            (bundle.as_str(), "0b", "/bin/python3"),
            (&bundle, "0a", "python3"),
        ] {
            record(from, lock, program);
            assert!(
                complete_command(&mut command, servers, "s").is_err(),
                "{from} {lock} {program}"
            );
        }
        record(&bundle, "0a", "/bin/python3");
        complete_command(&mut command, servers, "s").unwrap();
        let inside = prefix.join("bundle").display().to_string();
        assert_eq!(command.program, Path::new("/bin/python3"));
        assert_eq!(
            command.args,
            ["-B".to_owned(), format!("{inside}/x"), "-v".to_owned()]
        );
        assert_eq!(command.env["A"], EntryValue::Plain(inside));
        for text in ["", "{}", "[]"] {
            write(&path, text).unwrap();
            assert!(
                complete_command(&mut command_of(&bundle), servers, "s").is_err(),
                "{text}"
            );
        }
        record(&bundle, "0a", "/bin/python3");
        set_permissions(&path, Permissions::from_mode(0o622)).unwrap();
        let said = complete_command(&mut command_of(&bundle), servers, "s")
            .unwrap_err()
            .to_string();
        assert!(said.contains("0622"), "{said}");
    }

    #[test]
    fn what_is_no_bundle_has_its_words_as_they_stand() {
        let place = tempfile::tempdir().unwrap();
        let prefix = place.path().join("s/1-0a0a0a0a0a0a");
        create_dir_all(&prefix).unwrap();
        let path = InstalledPackage::path(&prefix);
        let record = format!(
            r#"{{"from":"npm:x@1","lock":"sha256:{}","command":["/bin/node","/x.js"],"files":""}}"#,
            "0a".repeat(32)
        );
        write(&path, record).unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let mut command = command_of("npm:x@1");
        complete_command(&mut command, place.path(), "s").unwrap();
        assert_eq!(command.args, ["/x.js", "${__dirname}/x", "-v"]);
    }
}

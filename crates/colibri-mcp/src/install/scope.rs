//! The scope of changes: this user's own servers, or the service's.

use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use colibri_api::paths::{self, DAEMON_USER, SERVICE};
use colibri_files::{FileLock, LockWait};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Group, Uid};

use crate::connection::DaemonAddress;
use crate::failure::CommandError;

/// The scope of changes, and the places of everything in it.
#[derive(Debug, Clone)]
pub(crate) struct InstallScope {
    /// The registry.
    pub registry: PathBuf,
    /// Secrets of servers without a jail.
    pub secrets: PathBuf,
    /// The directory of installed servers, a directory each.
    pub servers: PathBuf,
    /// Tokens of the people who logged in at servers.
    pub logins: PathBuf,
    /// The file of the user's agreements; `None`: the service, which never reads it.
    pub consent: Option<PathBuf>,
    /// The group of the service's daemon, which reads registry and secrets.
    pub group: Option<u32>,
}

impl InstallScope {
    /// The same as [`InstallScope::find`], for a command that has the flag. Where the service is
    /// installed and not in use, the person is told which of the two it is about.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn choose(
        service: bool,
        place: &DaemonAddress,
    ) -> Result<InstallScope, CommandError> {
        let scope = InstallScope::find(service, place)?;
        if !service && place.private && SERVICE.installed().is_some() {
            eprintln!(
                "colibri-mcp: this is about your own registry, {}; the registry of colibri's service, which is installed \
                 here, is {}: --service, as root",
                scope.registry.display(),
                SERVICE.registry().display()
            );
        }
        Ok(scope)
    }

    /// This user's own, or with `service` the service's.
    ///
    /// # Errors
    /// The daemon at `place` is the service's, whose registry root alone writes.
    pub(crate) fn find(service: bool, place: &DaemonAddress) -> Result<InstallScope, CommandError> {
        match (service, SERVICE.installed()) {
            (false, _) if !place.is_service() => {
                let own = paths::private();
                Ok(InstallScope {
                    secrets: own.registry.with_file_name("daemon-secrets"),
                    registry: own.registry,
                    servers: own.servers,
                    logins: own.state_dir.join("oauth"),
                    consent: Some(own.consent),
                    group: None,
                })
            }
            (false, _) => {
                let reason = match SERVICE.in_use() {
                    Some(evidence) => evidence.to_string(),
                    None => format!("{} is its socket", place.socket.display()),
                };
                Err(CommandError::Refused(format!(
                    "the daemon here is colibri's service ({reason}), whose registry {} is root's: as root, say it again \
                     with --service; or name your own daemon: --socket {}",
                    SERVICE.registry().display(),
                    paths::private().socket.display()
                )))
            }
            (true, None) => Err(CommandError::Usage(
                "--service: no service of colibri is installed here; without the flag it is your own registry"
                    .to_owned(),
            )),
            (true, Some(_)) if !Uid::effective().is_root() => Err(CommandError::Refused(
                "the service's registry is root's: say it again as root".to_owned(),
            )),
            (true, Some(_)) => {
                let group = Group::from_name(DAEMON_USER).ok().flatten();
                let group = group
                    .ok_or_else(|| CommandError::Machine(format!("there is no group {DAEMON_USER} on this machine")))?;
                // The daemon reads what root writes here, and runs it.
                umask(Mode::from_bits_truncate(0o022));
                let registry = SERVICE.registry();
                Ok(InstallScope {
                    secrets: registry.with_file_name("daemon-secrets"),
                    servers: paths::servers(&registry),
                    registry,
                    logins: Path::new(SERVICE.state).join("oauth"),
                    consent: None,
                    group: Some(group.gid.as_raw()),
                })
            }
        }
    }

    /// True if they are the service's.
    pub(crate) fn is_service(&self) -> bool {
        self.consent.is_none()
    }

    /// Waits for its turn to change anything of these; another may be installing for minutes.
    ///
    /// # Errors
    /// The registry's directory can be neither opened nor made.
    pub(crate) fn lock(&self) -> Result<FileLock, CommandError> {
        let directory = self.registry.parent().unwrap_or(Path::new("/"));
        let failed = |source| CommandError::File {
            path: directory.to_owned(),
            source,
        };
        let mut make = DirBuilder::new();
        let mode = if self.is_service() { 0o755 } else { 0o700 };
        make.recursive(true)
            .mode(mode)
            .create(directory)
            .map_err(failed)?;
        let lock = |wait| FileLock::of(File::open(directory)?, wait);
        let locked = match lock(LockWait::Never) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                eprintln!(
                    "colibri-mcp: waiting for another that changes {}",
                    self.registry.display()
                );
                lock(LockWait::Forever)
            }
            locked => locked,
        };
        locked.map_err(failed)
    }

    /// True if the service's daemon can run a program, and nobody but root could put another in its
    /// place: root finds some in places that are root's alone, and with the PATH of who became
    /// root, in places that are a user's.
    ///
    /// # Errors
    /// It cannot: why.
    pub(crate) fn check_reach(&self, program: &Path) -> Result<(), CommandError> {
        let Some(group) = self.group else {
            return Ok(());
        };
        let real = program
            .canonicalize()
            .map_err(|source| CommandError::File {
                path: program.to_owned(),
                source,
            })?;
        let closed = real.ancestors().find(|path| {
            let may = |facts: Metadata| {
                facts.mode() & if facts.gid() == group { 0o011 } else { 0o001 } != 0
            };
            !path.metadata().is_ok_and(may)
        });
        let changed_by = real.ancestors().find_map(|path| {
            let facts = path.metadata().ok()?;
            let is_sticky = path.is_dir() && facts.mode() & 0o1000 != 0;
            match facts.uid() {
                0 if facts.mode() & 0o002 == 0 || is_sticky => None,
                0 => Some((path, "everybody".to_owned())),
                uid => Some((path, format!("uid {uid}"))),
            }
        });
        if let Some((path, who)) = changed_by {
            return Err(CommandError::Data(format!(
                "{} is {}, and {} is {who}'s to change: the service runs what root alone can change",
                program.display(),
                real.display(),
                path.display()
            )));
        }
        match closed {
            None => Ok(()),
            Some(path) => Err(CommandError::Data(format!(
                "{} is {}, which the daemon's user cannot run: {} is closed to others; install it for everybody",
                program.display(),
                real.display(),
                path.display()
            ))),
        }
    }

    /// The directory of a server's packages.
    pub(crate) fn prefix(&self, id: &str) -> PathBuf {
        self.servers.join(id)
    }

    /// The directory of the agents that were set up.
    pub(crate) fn agents(&self) -> PathBuf {
        self.servers.with_file_name("agents")
    }

    /// The directory of an agent: its home, and its work where no other directory was chosen.
    pub(crate) fn agent_place(&self, id: &str) -> PathBuf {
        self.agents().join(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt as _, chown};

    #[test]
    fn the_service_runs_nothing_that_others_than_root_can_change() {
        let mut scope = InstallScope {
            registry: PathBuf::new(),
            secrets: PathBuf::new(),
            servers: PathBuf::new(),
            logins: PathBuf::new(),
            consent: None,
            group: Some(12345),
        };
        scope.check_reach(Path::new("/bin/sh")).unwrap();
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("bin/program");
        std::fs::create_dir(place.path().join("bin")).unwrap();
        write(&program, "").unwrap();
        let with = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for path in [place.path(), &place.path().join("bin"), &program] {
            with(path, 0o755);
        }
        if !Uid::effective().is_root() {
            let said = scope.check_reach(&program).unwrap_err().to_string();
            return assert!(said.contains("root alone"), "{said}");
        }
        scope.check_reach(&program).unwrap();
        for path in [place.path().join("bin"), program.clone()] {
            with(&path, 0o757);
            let said = scope.check_reach(&program).unwrap_err().to_string();
            assert!(said.contains("everybody's to change"), "{said}");
            with(&path, 0o755);
            chown(&path, Some(12345), None).unwrap();
            let said = scope.check_reach(&program).unwrap_err().to_string();
            assert!(said.contains("uid 12345's to change"), "{said}");
            chown(&path, Some(0), None).unwrap();
        }
        // What is a user's own, the user alone runs.
        with(&program, 0o757);
        scope.group = None;
        scope.check_reach(&program).unwrap();
    }
}

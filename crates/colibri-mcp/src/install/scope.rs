//! Whose servers are changed: this user's own, or the service's.

use std::fs::{DirBuilder, File, Metadata};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use colibri_api::paths;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Group, Uid};

use crate::failure::Failure;

/// Below it root installs what the service's servers need: programs that other programs run, hier(7).
const SERVICE_SERVERS: &str = "/usr/local/libexec/colibri/servers";

/// Whose servers are changed, and where everything of theirs is.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// The registry.
    pub registry: PathBuf,
    /// Secrets of servers without a jail.
    pub secrets: PathBuf,
    /// What is installed for servers, a directory each.
    pub servers: PathBuf,
    /// Tokens of the people who logged in at servers.
    pub logins: PathBuf,
    /// What the user agreed to; `None`: the service, which never reads it.
    pub consent: Option<PathBuf>,
    /// The group of the service's daemon, which reads registry and secrets.
    pub group: Option<u32>,
}

impl Scope {
    /// This user's own, or with `service` the service's.
    ///
    /// # Errors
    /// Where the service is installed its registry alone counts, and root alone writes it.
    pub(crate) fn find(service: bool) -> Result<Scope, Failure> {
        let installed = paths::service();
        match (service, installed) {
            (false, None) => {
                let own = paths::private();
                Ok(Scope {
                    secrets: own.registry.with_file_name("daemon-secrets"),
                    registry: own.registry,
                    servers: own.servers,
                    logins: own.state_dir.join("oauth"),
                    consent: Some(own.consent),
                    group: None,
                })
            }
            (false, Some(file)) => Err(Failure::Refused(format!(
                "colibri's service is installed here ({file}), so its registry counts, which is root's: as root, say it \
                 again with --service"
            ))),
            (true, None) => Err(Failure::Usage(
                "--service: no service of colibri is installed here; without the flag it is your own registry"
                    .to_owned(),
            )),
            (true, Some(_)) if !Uid::effective().is_root() => Err(Failure::Refused(
                "the service's registry is root's: say it again as root".to_owned(),
            )),
            (true, Some(_)) => {
                let group = Group::from_name("colibri").ok().flatten();
                let group =
                    group.ok_or_else(|| Failure::Machine("there is no group colibri on this machine".to_owned()))?;
                // The daemon reads what root writes here, and runs it.
                umask(Mode::from_bits_truncate(0o022));
                let registry = PathBuf::from(colibri_registry::PATH);
                Ok(Scope {
                    secrets: registry.with_file_name("daemon-secrets"),
                    registry,
                    servers: PathBuf::from(SERVICE_SERVERS),
                    logins: paths::state_dir_of_clients().join("oauth"),
                    consent: None,
                    group: Some(group.gid.as_raw()),
                })
            }
        }
    }

    /// Whether they are the service's.
    pub(crate) fn is_service(&self) -> bool {
        self.consent.is_none()
    }

    /// Waits for its turn to change anything of these; another may be installing for minutes.
    ///
    /// # Errors
    /// The registry's directory can be neither opened nor made.
    pub(crate) fn lock(&self) -> Result<Flock<File>, Failure> {
        let directory = self.registry.parent().unwrap_or(Path::new("/"));
        let failed = |source| Failure::File {
            path: directory.to_owned(),
            source,
        };
        let mut make = DirBuilder::new();
        let mode = if self.is_service() { 0o755 } else { 0o700 };
        make.recursive(true).mode(mode).create(directory).map_err(failed)?;
        let open = File::open(directory).map_err(failed)?;
        let locked = Flock::lock(open, FlockArg::LockExclusiveNonblock).or_else(|(open, _)| {
            eprintln!(
                "colibri-mcp: waiting for another that changes {}",
                self.registry.display()
            );
            Flock::lock(open, FlockArg::LockExclusive)
        });
        locked.map_err(|(_, errno)| failed(errno.into()))
    }

    /// Whether the service's daemon can run a program: root finds some in places that are root's alone.
    ///
    /// # Errors
    /// It cannot: why.
    pub(crate) fn check_reach(&self, program: &Path) -> Result<(), Failure> {
        let Some(group) = self.group else { return Ok(()) };
        let real = program.canonicalize().map_err(|source| Failure::File {
            path: program.to_owned(),
            source,
        })?;
        let closed = real.ancestors().find(|path| {
            let may = |facts: Metadata| facts.mode() & if facts.gid() == group { 0o011 } else { 0o001 } != 0;
            !path.metadata().is_ok_and(may)
        });
        match closed {
            None => Ok(()),
            Some(path) => Err(Failure::Data(format!(
                "{} is {}, which the daemon's user cannot run: {} is closed to others; install it for everybody",
                program.display(),
                real.display(),
                path.display()
            ))),
        }
    }

    /// Where a server's packages are.
    pub(crate) fn prefix(&self, id: &str) -> PathBuf {
        self.servers.join(id)
    }
}

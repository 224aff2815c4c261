//! Paths: those of the service on this system (`colibri-paths`), and those of a user's own files:
//! the XDG directories.
//!
//! The user's are those of who runs this program, as the user database has it: never of `HOME`, and
//! never relative to the current directory, which may be somebody else's project.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

pub use colibri_paths::{DAEMON_USER, JAIL_ROOTS, MAKE_ROOT, SERVICE};

/// The paths of the daemon that runs for one user alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Private {
    /// The registry.
    pub registry: PathBuf,
    /// The client policy.
    pub clients: PathBuf,
    /// The hosts that count on a board of many.
    pub hosts: PathBuf,
    /// Skills.
    pub skills: PathBuf,
    /// Store and trail, pins and log.
    pub state_dir: PathBuf,
    /// The daemon's log.
    pub log: PathBuf,
    /// The entries that the user agreed to.
    pub consent: PathBuf,
    /// The socket: beside the rest, and not under `XDG_RUNTIME_DIR`, which an agent keeps from what
    /// it starts.
    pub socket: PathBuf,
    /// The directory of installed servers, with a directory for each.
    pub servers: PathBuf,
}

/// The paths of the user who runs this program.
pub fn private() -> Private {
    private_of(&home(), |variable| {
        std::env::var_os(variable).map(PathBuf::from)
    })
}

fn private_of(home: &Path, variable: impl Fn(&str) -> Option<PathBuf>) -> Private {
    // XDG Base Directory Specification: a relative path is invalid, and ignored.
    let set = |name| variable(name).filter(|path| path.is_absolute());
    let of = |name, fallback| {
        set(name)
            .unwrap_or_else(|| home.join(fallback))
            .join("colibri")
    };
    let configuration = of("XDG_CONFIG_HOME", ".config");
    let state_dir = of("XDG_STATE_HOME", ".local/state");
    Private {
        registry: configuration.join("external-mcp.json"),
        clients: configuration.join("clients.json"),
        hosts: configuration.join("hosts.json"),
        skills: configuration.join("skills"),
        log: state_dir.join("colibri-mcpd.log"),
        consent: state_dir.join("consent.json"),
        socket: state_dir.join("colibri.sock"),
        servers: of("XDG_DATA_HOME", ".local/share").join("servers"),
        state_dir,
    }
}

impl Private {
    /// True if nobody but this user and root can put anything in place of what is the user's: the
    /// directory of the state, and all above it and above the registry, as far as they are there.
    /// Whoever else could would be the daemon that the user's editors speak to, or what it starts.
    ///
    /// # Errors
    /// Which directory somebody else can write in, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let directories = [Some(self.state_dir.as_path()), self.registry.parent()];
        directories
            .into_iter()
            .flatten()
            .try_for_each(check_place)
            .map_err(|why| {
                format!("{why}; choose another place by XDG_CONFIG_HOME and XDG_STATE_HOME, or mend that")
            })?;
        match std::fs::metadata(&self.state_dir) {
            Ok(facts) if facts.uid() != Uid::effective().as_raw() || facts.mode() & 0o022 != 0 => {
                Err(format!(
                    "{} must be yours, and nobody else's to write in: its owner is uid {}, its mode {:04o}",
                    self.state_dir.display(),
                    facts.uid(),
                    facts.mode() & 0o7777
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Holds a file or a directory and all above it, without the links that lead to them, against what
/// others could do there: each belongs to this user or root, and nobody else writes in it. What is
/// not there is passed over.
///
/// # Errors
/// Which of them somebody else can change.
pub fn check_place(path: &Path) -> Result<(), String> {
    let there = path.ancestors().find_map(|path| path.canonicalize().ok());
    let user = Uid::effective();
    let own_group = User::from_uid(user)
        .ok()
        .flatten()
        .map(|user| user.gid.as_raw());
    // Root, by another number where a namespace has none for it.
    let root = std::fs::metadata("/").map_or(0, |facts| facts.uid());
    for path in there.iter().flat_map(|path| path.ancestors()) {
        let failed = |why: String| {
            let path = path.display();
            Err(format!("{path}: {why}"))
        };
        let facts = match path.metadata() {
            Ok(facts) => facts,
            Err(error) => return failed(error.to_string()),
        };
        // In /tmp and its like each has but what is its own. A group of the user's own has nobody
        // else in it.
        let is_sticky = facts.mode() & 0o1000 != 0;
        let by_group = facts.mode() & 0o020 != 0 && own_group != Some(facts.gid());
        if ![0, root, user.as_raw()].contains(&facts.uid()) {
            return failed(format!(
                "it belongs to uid {}, who could put other files there",
                facts.uid()
            ));
        }
        if !is_sticky && (by_group || facts.mode() & 0o002 != 0) {
            let mode = facts.mode() & 0o7777;
            return failed(format!(
                "others could put other files there (mode {mode:04o})"
            ));
        }
    }
    Ok(())
}

/// The home directory of who runs this program, as getpwuid(3) has it; without one, a directory
/// that is not there.
pub fn home() -> PathBuf {
    let user = User::from_uid(Uid::effective()).ok().flatten();
    user.map_or_else(|| PathBuf::from("/nonexistent"), |user| user.dir)
}

/// The socket that a flag or the environment names.
pub fn named_socket(flag: Option<PathBuf>) -> Option<PathBuf> {
    let from = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    flag.or_else(|| from("COLIBRI_MCP_SOCKET"))
        .or_else(|| from("COLIBRI_DAEMON_SOCKET"))
}

/// True if a daemon of this process's user is the service's, unless a flag makes it the user's own:
/// on FreeBSD anybody's is, elsewhere that of the service's user.
fn is_service_daemon() -> bool {
    let user = || User::from_uid(Uid::effective()).ok().flatten();
    cfg!(target_os = "freebsd") || user().is_some_and(|user| user.name == DAEMON_USER)
}

/// A path of the service's, or the user's own.
fn of_the_daemon(service: impl Into<PathBuf>, own: impl FnOnce(Private) -> PathBuf) -> PathBuf {
    match is_service_daemon() {
        true => service.into(),
        false => own(private()),
    }
}

/// The socket of a daemon, as flag, environment and user have it.
pub fn socket(flag: Option<PathBuf>) -> PathBuf {
    named_socket(flag).unwrap_or_else(|| of_the_daemon(SERVICE.socket, |private| private.socket))
}

/// The registry of a daemon.
pub fn registry() -> PathBuf {
    of_the_daemon(SERVICE.registry(), |private| private.registry)
}

/// The client policy of a daemon.
pub fn clients() -> PathBuf {
    of_the_daemon(SERVICE.clients(), |private| private.clients)
}

/// The hosts that count on a board of many, for a daemon.
pub fn hosts() -> PathBuf {
    of_the_daemon(SERVICE.hosts(), |private| private.hosts)
}

/// Store and trail of a daemon.
pub fn state_dir() -> PathBuf {
    of_the_daemon(SERVICE.state, |private| private.state_dir)
}

/// The directory of the servers that were installed for the entries of a registry.
pub fn servers(registry: &Path) -> PathBuf {
    match registry == SERVICE.registry() || registry == Path::new(colibri_registry::PATH) {
        true => PathBuf::from(SERVICE.servers),
        false => private().servers,
    }
}

/// A daemon's directories of skills: one, if it is there.
pub fn skills() -> Vec<PathBuf> {
    Some(of_the_daemon(SERVICE.skills(), |private| private.skills))
        .filter(|path| path.exists())
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_paths_are_those_of_xdg_or_of_the_home_directory() {
        let paths = private_of(Path::new("/home/u"), |_| None);
        assert_eq!(
            paths.registry,
            Path::new("/home/u/.config/colibri/external-mcp.json")
        );
        assert_eq!(
            paths.consent,
            Path::new("/home/u/.local/state/colibri/consent.json")
        );
        assert_eq!(
            paths.socket,
            Path::new("/home/u/.local/state/colibri/colibri.sock")
        );
        assert_eq!(
            paths.servers,
            Path::new("/home/u/.local/share/colibri/servers")
        );
        let paths = private_of(Path::new("/home/u"), |name| {
            Some(PathBuf::from(format!("/x/{name}")))
        });
        assert_eq!(
            paths.registry,
            Path::new("/x/XDG_CONFIG_HOME/colibri/external-mcp.json")
        );
        assert_eq!(
            paths.socket,
            Path::new("/x/XDG_STATE_HOME/colibri/colibri.sock")
        );
        assert_eq!(paths.state_dir, Path::new("/x/XDG_STATE_HOME/colibri"));
        assert_eq!(paths.servers, Path::new("/x/XDG_DATA_HOME/colibri/servers"));
    }

    #[test]
    fn a_relative_directory_is_none() {
        let relative = private_of(Path::new("/home/u"), |_| Some(PathBuf::from("project")));
        assert_eq!(relative, private_of(Path::new("/home/u"), |_| None));
    }

    #[test]
    fn where_others_write_nothing_is_ones_own() {
        use std::fs::{Permissions, create_dir_all, set_permissions};
        use std::os::unix::fs::{PermissionsExt as _, chown};

        let place = tempfile::tempdir().unwrap();
        let own = private_of(place.path(), |_| None);
        own.check().unwrap();
        create_dir_all(&own.state_dir).unwrap();
        create_dir_all(own.registry.parent().unwrap()).unwrap();
        let with = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        with(&own.state_dir, 0o700);
        own.check().unwrap();
        let configuration = place.path().join(".config");
        for (path, mode, why) in [
            (own.state_dir.as_path(), 0o770, "nobody else's to write in"),
            (own.state_dir.as_path(), 0o702, "others could put"),
            (own.state_dir.parent().unwrap(), 0o777, "others could put"),
            (configuration.as_path(), 0o777, "others could put"),
        ] {
            with(path, mode);
            let said = own.check().unwrap_err();
            assert!(said.contains(why), "{}: {said}", path.display());
            with(path, 0o700);
        }
        with(own.state_dir.parent().unwrap(), 0o1777);
        own.check().unwrap();
        // Who is not root cannot give a directory away.
        if Uid::effective().is_root() {
            chown(&configuration, Some(12345), None).unwrap();
            assert!(own.check().unwrap_err().contains("uid 12345"));
            chown(&configuration, Some(0), None).unwrap();
            chown(&own.state_dir, Some(12345), None).unwrap();
            assert!(own.check().unwrap_err().contains("uid 12345"));
        }
    }

    #[test]
    fn packages_are_found_where_they_were_installed_for_a_registry() {
        assert_eq!(servers(&SERVICE.registry()), Path::new(SERVICE.servers));
        let own = private();
        assert_eq!(servers(&own.registry), own.servers);
    }

    #[test]
    fn the_home_directory_is_that_of_the_user_database() {
        let user = User::from_uid(Uid::effective()).unwrap().unwrap();
        assert_eq!(home(), user.dir);
    }
}

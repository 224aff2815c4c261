//! The service of Colibri MCP on each system: its paths, the commands that manage it, and evidence
//! that it is in use.
//!
//! Daemon, client and library take all of these from here. The set-user-ID helper has its own fixed
//! paths, the same on every system (`colibri_registry::PATH`, `colibri_jail_helper::POLICY`): on
//! FreeBSD they lie in the service's directory, elsewhere they are those of its development
//! sandbox.
#![forbid(unsafe_code)]

mod in_use;

use std::path::{Path, PathBuf};

use in_use::ServiceManager;
pub use in_use::ServiceUse;

/// The user of the service's daemon, and that user's group.
pub const DAEMON_USER: &str = "colibri";

/// The directory of jails' roots. FreeBSD alone has jails.
pub const JAIL_ROOTS: &str = "/usr/local/libexec/colibri/roots";

/// The script that makes a jail's root.
pub const MAKE_ROOT: &str = "/usr/local/libexec/colibri/make-root.sh";

/// The service as the package of one system installs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemService {
    /// The directory of the files that root writes.
    pub configuration: &'static str,
    /// Store and trail.
    pub state: &'static str,
    /// The socket.
    pub socket: &'static str,
    /// The servers that `--service` installs: programs that other programs run, hier(7).
    pub servers: &'static str,
    /// The command that starts it.
    pub start: &'static str,
    /// The command that stops it.
    pub stop: &'static str,
    manager: ServiceManager,
}

/// The service of the FreeBSD package.
pub const FREEBSD: SystemService = SystemService {
    configuration: "/usr/local/etc/colibri",
    state: "/var/db/colibri",
    socket: "/var/run/colibri/colibri.sock",
    servers: "/usr/local/libexec/colibri/servers",
    start: "service colibri_mcp start",
    stop: "service colibri_mcp stop",
    manager: ServiceManager::Rc,
};

/// The service of the Debian package, and of every other system with systemd.
pub const LINUX: SystemService = SystemService {
    configuration: "/etc/colibri",
    state: "/var/lib/colibri",
    socket: "/run/colibri/colibri.sock",
    servers: "/usr/local/libexec/colibri/servers",
    start: "systemctl start colibri-mcpd",
    stop: "systemctl stop colibri-mcpd",
    manager: ServiceManager::Systemd,
};

/// The service of this system.
pub const SERVICE: SystemService = if cfg!(target_os = "freebsd") {
    FREEBSD
} else {
    LINUX
};

impl SystemService {
    /// The registry.
    pub fn registry(&self) -> PathBuf {
        self.file("external-mcp.json")
    }

    /// The client policy.
    pub fn clients(&self) -> PathBuf {
        self.file("clients.json")
    }

    /// The hosts that count on a board of many.
    pub fn hosts(&self) -> PathBuf {
        self.file("hosts.json")
    }

    /// The skills.
    pub fn skills(&self) -> PathBuf {
        self.file("skills")
    }

    /// The contract of a server's tools, where proposals put it.
    pub fn contract(&self, server: &str) -> PathBuf {
        self.file("contracts").join(format!("{server}.json"))
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(self.configuration).join(name)
    }

    /// The directory of the socket.
    pub fn socket_directory(&self) -> &'static Path {
        Path::new(self.socket).parent().unwrap_or(Path::new("/"))
    }

    /// True if a path is the service's socket, also by way of a link: `/var/run` is one on Linux
    /// (FHS 3.0, 5.13).
    pub fn is_socket(&self, path: &Path) -> bool {
        let own = Path::new(self.socket);
        let real = |path: &Path| path.parent()?.canonicalize().ok();
        path == own
            || path.file_name() == own.file_name()
                && real(path).is_some_and(|it| Some(it) == real(own))
    }

    /// The file that shows that the service is installed on this machine, in use or not.
    pub fn installed(&self) -> Option<PathBuf> {
        self.manager.installed(Path::new("/"))
    }

    /// The evidence that the service is in use on this machine: it is enabled, or it runs. Without
    /// it each user has a daemon of their own, whether or not a package installed the service's
    /// files.
    pub fn in_use(&self) -> Option<ServiceUse> {
        self.manager.in_use(self.socket, Path::new("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_has_its_own_paths() {
        for (service, kind, path) in [
            (
                FREEBSD,
                "registry",
                "/usr/local/etc/colibri/external-mcp.json",
            ),
            (FREEBSD, "clients", "/usr/local/etc/colibri/clients.json"),
            (FREEBSD, "hosts", "/usr/local/etc/colibri/hosts.json"),
            (FREEBSD, "skills", "/usr/local/etc/colibri/skills"),
            (
                FREEBSD,
                "contract",
                "/usr/local/etc/colibri/contracts/git.json",
            ),
            (FREEBSD, "state", "/var/db/colibri"),
            (FREEBSD, "socket", "/var/run/colibri/colibri.sock"),
            (FREEBSD, "servers", "/usr/local/libexec/colibri/servers"),
            (LINUX, "registry", "/etc/colibri/external-mcp.json"),
            (LINUX, "clients", "/etc/colibri/clients.json"),
            (LINUX, "hosts", "/etc/colibri/hosts.json"),
            (LINUX, "skills", "/etc/colibri/skills"),
            (LINUX, "contract", "/etc/colibri/contracts/git.json"),
            (LINUX, "state", "/var/lib/colibri"),
            (LINUX, "socket", "/run/colibri/colibri.sock"),
            (LINUX, "servers", "/usr/local/libexec/colibri/servers"),
        ] {
            let found = match kind {
                "registry" => service.registry(),
                "clients" => service.clients(),
                "hosts" => service.hosts(),
                "skills" => service.skills(),
                "contract" => service.contract("git"),
                "state" => service.state.into(),
                "socket" => service.socket.into(),
                _ => service.servers.into(),
            };
            assert_eq!(found, Path::new(path), "{kind}");
        }
    }

    #[test]
    fn a_socket_is_known_by_the_directory_that_it_lies_in() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("run");
        std::fs::create_dir(&run).unwrap();
        std::os::unix::fs::symlink(&run, place.path().join("link")).unwrap();
        let socket = run.join("colibri.sock").display().to_string();
        let service = SystemService {
            socket: socket.leak(),
            ..LINUX
        };
        assert!(service.is_socket(&run.join("colibri.sock")));
        assert!(service.is_socket(&place.path().join("link/colibri.sock")));
        assert!(!service.is_socket(&run.join("other.sock")));
        assert!(!service.is_socket(&place.path().join("colibri.sock")));
        assert!(FREEBSD.is_socket(Path::new("/var/run/colibri/colibri.sock")));
    }
}

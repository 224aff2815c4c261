//! The places of a system: secrets, files of the base system, pseudo-files of the kernel.

use std::path::{Component, Path, PathBuf};

use colibri_api::paths::{self, SERVICE};
use colibri_jail_helper::POLICY as HELPER_POLICY;
use colibri_text::Pattern;

/// Names of files and directories that hold secrets, wherever they stand, in lower case. A `*`
/// stands for any characters.
const SECRET_NAMES: &[(&str, &str)] = &[
    (".ssh", "keys of SSH"),
    ("id_rsa*", "a key of SSH"),
    ("id_ed25519*", "a key of SSH"),
    ("id_ecdsa*", "a key of SSH"),
    (".gnupg", "keys of GnuPG"),
    (".aws", "keys of a cloud"),
    (".azure", "keys of a cloud"),
    (".oci", "keys of a cloud"),
    ("gcloud", "keys of a cloud"),
    (".kube", "keys of clusters"),
    (".docker", "keys of registries"),
    ("rclone", "keys of storage"),
    (".terraform.d", "keys of a cloud"),
    (".vault-token", "a token"),
    (".netrc", "passwords"),
    (".npmrc", "a token"),
    (".pypirc", "a token"),
    (".pgpass", "passwords"),
    (".my.cnf", "passwords"),
    (".git-credentials", "passwords"),
    (".password-store", "passwords"),
    ("keyrings", "passwords"),
    ("kwalletd", "passwords"),
    ("keychains", "passwords"),
    ("*.kdbx", "passwords"),
    ("credentials", "passwords or tokens"),
    ("credentials.toml", "a token"),
    ("credentials.json", "a token"),
    (".env", "variables with secrets"),
    (".env.*", "variables with secrets"),
    ("*_history", "a history of commands"),
    (".lesshst", "a history of commands"),
    (".mozilla", "a browser's profile"),
    (".thunderbird", "a mail program's profile"),
    ("google-chrome*", "a browser's profile"),
    ("chromium", "a browser's profile"),
    ("bravesoftware", "a browser's profile"),
    ("microsoft-edge*", "a browser's profile"),
    ("vivaldi", "a browser's profile"),
    (".claude", "an agent's login"),
    (".claude.json", "an agent's login"),
    (".codex", "an agent's login"),
    (".gemini", "an agent's login"),
    ("opencode", "an agent's login"),
    ("gh", "a login"),
    (".bitcoin", "a wallet"),
    (".ethereum", "a wallet"),
];

/// Paths that hold the system's secrets, with all below them.
const SECRET_PATHS: &[(&str, &str)] = &[
    ("/etc/shadow", "password hashes"),
    ("/etc/gshadow", "password hashes"),
    ("/etc/master.passwd", "password hashes"),
    ("/etc/spwd.db", "password hashes"),
    ("/etc/sudoers", "the system's administration"),
    ("/etc/sudoers.d", "the system's administration"),
    ("/etc/ssh", "the host's keys"),
    ("/etc/ssl/private", "the host's keys"),
];

/// The base system, which a jail's root has of its own.
const SYSTEM: &[&str] = &[
    "/usr", "/lib", "/lib32", "/lib64", "/libexec", "/bin", "/sbin",
];

/// Files and directories of /etc that programs read, without secrets.
const SETTINGS: &[&str] = &[
    "alternatives",
    "bindresvport.blacklist",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "ethers",
    "gai.conf",
    "gitconfig",
    "group",
    "host.conf",
    "hostname",
    "hosts",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "libmap.conf",
    "locale.alias",
    "localtime",
    "login.conf",
    "login.conf.db",
    "lsb-release",
    "malloc.conf",
    "mime.types",
    "networks",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki",
    "protocols",
    "pwd.db",
    "resolv.conf",
    "services",
    "ssl",
    "terminfo",
    "timezone",
    "openssl.cnf",
];

/// Devices that a jail has too.
const DEVICES: &[&str] = &[
    "null", "zero", "full", "random", "urandom", "stdin", "stdout", "stderr", "fd",
];

/// Pseudo-files that the run time of a program reads: facts of the machine, and of the process
/// itself.
const KERNEL: &[&str] = &[
    "/proc/self",
    "/proc/thread-self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
];

/// Roots of a system that hold no one's work: a place named there is named by nobody.
const NOT_WORK: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/libexec", "/proc", "/root", "/run",
    "/sbin", "/sys", "/tmp", "/usr", "/var/db", "/var/lib", "/var/log", "/var/run",
];

/// The secret that a path leads to, if it does.
pub(super) fn secret(path: &Path) -> Option<&'static str> {
    let own = paths::private();
    let own_files = [
        own.registry.parent(),
        Some(own.state_dir.as_path()),
        Some(Path::new(SERVICE.configuration)),
        Some(Path::new(SERVICE.state)),
        Some(SERVICE.socket_directory()),
        Path::new(HELPER_POLICY).parent(),
    ];
    if own_files
        .into_iter()
        .flatten()
        .any(|own| path.starts_with(own))
    {
        return Some("Colibri's own files");
    }
    let by_path = SECRET_PATHS
        .iter()
        .find(|(secret, _)| path.starts_with(secret));
    // A package's own files bear any name; a person's secrets do not stand in the base system.
    let by_name = || {
        let is_system = system(path).is_some();
        let parts = path
            .components()
            .filter(|_| !is_system)
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().to_ascii_lowercase()),
                _ => None,
            });
        let mut parts = parts.collect::<Vec<_>>().into_iter();
        parts.find_map(|part| {
            SECRET_NAMES
                .iter()
                .find(|(name, _)| Pattern::new(*name).matches(&part))
        })
    };
    by_path.or_else(by_name).map(|(_, what)| *what)
}

/// The directory of the base system, or the file of /etc, that a jail's root has of its own.
pub(super) fn system(path: &Path) -> Option<PathBuf> {
    if let Some(found) = SYSTEM.iter().find(|system| path.starts_with(system)) {
        // What an administrator keeps in /usr may be anything.
        let is_private = path.starts_with("/usr/home") || path.starts_with("/usr/local/etc");
        return (!is_private).then(|| PathBuf::from(found));
    }
    let name = path.strip_prefix("/etc").ok()?.components().next()?;
    let is_known = SETTINGS.iter().any(|setting| name.as_os_str() == *setting);
    is_known.then(|| Path::new("/etc").join(name))
}

/// True if a jail has this without anything said in its entry: a device, or a fact of the kernel;
/// or if FreeBSD's loader of programs does without it.
pub(super) fn is_everywhere(path: &Path) -> bool {
    path == Path::new("/")
        || path == Path::new("/var/run/ld-elf.so.hints")
        || DEVICES
            .iter()
            .any(|name| path.starts_with(Path::new("/dev").join(name)))
        || path.starts_with("/dev/pts")
        || KERNEL.iter().any(|name| path.starts_with(name))
}

/// True if a place may be shown to a jail because a person named it: their work, and no more than
/// that.
pub(super) fn is_work(path: &Path, home: &Path) -> bool {
    let depth = path.components().count();
    depth >= 3
        && !home.starts_with(path)
        && !NOT_WORK.iter().any(|root| path.starts_with(root))
        && secret(path).is_none()
}

/// True if a path is in a directory that each jail has of its own, empty at its start.
pub(super) fn is_temporary(path: &Path) -> bool {
    path.starts_with("/tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_wherever_they_stand() {
        for path in [
            "/home/u/.ssh/id_ed25519",
            "/home/u/.SSH/config",
            "/work/project/.env",
            "/work/project/.env.local",
            "/home/u/.bash_history",
            "/home/u/.python_history",
            "/home/u/.config/google-chrome/Default/Cookies",
            "/home/u/.mozilla/firefox/x/logins.json",
            "/home/u/.aws/credentials",
            "/home/u/.gnupg",
            "/srv/backup/id_rsa.old",
            "/etc/shadow",
            "/etc/ssh/ssh_host_ed25519_key",
            "/usr/local/etc/colibri/secrets/github",
            &format!("{}/trail/1", SERVICE.state),
        ] {
            assert!(secret(Path::new(path)).is_some(), "{path}");
            assert!(!is_work(Path::new(path), Path::new("/home/u")), "{path}");
        }
        assert_eq!(
            secret(&paths::private().registry),
            Some("Colibri's own files")
        );
        for path in [
            "/usr/lib/python3/http/cookies.py",
            "/work/project/src/main.rs",
            "/usr/share/gh/x",
        ] {
            assert_eq!(secret(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn nobodys_work_is_a_home_or_a_part_of_the_system() {
        let home = Path::new("/home/u");
        for path in [
            "/",
            "/home",
            "/home/u",
            "/etc/x",
            "/usr/src",
            "/srv",
            "/root/x",
            "/proc/1/fd",
            "/tmp/x",
        ] {
            assert!(!is_work(Path::new(path), home), "{path}");
        }
        for path in ["/home/u/project", "/srv/data", "/var/tmp/x"] {
            assert!(is_work(Path::new(path), home), "{path}");
        }
    }

    #[test]
    fn a_jails_root_has_the_base_system_and_its_settings_alone() {
        let of = |path| system(Path::new(path));
        assert_eq!(of("/usr/bin/python3.11"), Some("/usr".into()));
        assert_eq!(of("/etc/ssl/certs/ca.pem"), Some("/etc/ssl".into()));
        for path in [
            "/etc/cron.d/x",
            "/usr/local/etc/x",
            "/usr/home/u/x",
            "/opt/x",
            "/library/x",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
        assert!(
            is_everywhere(Path::new("/proc/self/maps")) && is_everywhere(Path::new("/dev/urandom"))
        );
        for path in [
            "/proc/1/environ",
            "/dev/mem",
            "/dev/sda",
            "/proc/kcore",
            "/sys/firmware",
        ] {
            assert!(!is_everywhere(Path::new(path)), "{path}");
        }
    }
}

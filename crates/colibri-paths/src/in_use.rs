//! The evidence that the service is in use: files of systemd(1) or rc(8), which everybody can read,
//! and the socket.

use std::fmt;
use std::fs::{read_dir, read_link, read_to_string};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The name of the unit.
const UNIT: &str = "colibri-mcpd.service";
/// The directories of units, the one that counts most first: systemd.unit(5).
const UNIT_DIRECTORIES: &[&str] = &[
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// The link that systemd keeps while the unit is active.
const UNIT_INVOCATION: &str = "/run/systemd/units/invocation:colibri-mcpd.service";

/// The rc script, and its name.
const RC_SCRIPT: &str = "/usr/local/etc/rc.d/colibri_mcp";
const RC_NAME: &str = "colibri_mcp";
/// The variable that enables it.
const RC_ENABLE: &str = "colibri_mcp_enable";
/// The files that set it, the one that counts most last: rc.conf(5), `load_rc_config` of
/// rc.subr(8).
const RC_FILES: &[&str] = &["/etc/rc.conf", "/etc/rc.conf.local"];
/// The directories of which each has a file for the script, or a directory of files.
const RC_DIRECTORIES: &[&str] = &["/etc/rc.conf.d", "/usr/local/etc/rc.conf.d"];
/// The file that daemon(8) keeps while the daemon runs.
const RC_PID: &str = "/var/run/colibri_mcpd.pid";

/// The program that starts the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServiceManager {
    /// systemd(1).
    Systemd,
    /// rc(8).
    Rc,
}

/// The evidence that the service is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceUse {
    /// It is enabled: the file says so.
    Enabled(PathBuf),
    /// It runs.
    Running,
}

impl fmt::Display for ServiceUse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceUse::Enabled(file) => write!(out, "{} enables it", file.display()),
            ServiceUse::Running => out.write_str("it runs"),
        }
    }
}

impl ServiceManager {
    /// The file that shows that the service is installed in the file system at `root`.
    pub(crate) fn installed(self, root: &Path) -> Option<PathBuf> {
        let files: Vec<PathBuf> = match self {
            ServiceManager::Systemd => unit_files(root).collect(),
            ServiceManager::Rc => vec![below(root, RC_SCRIPT)],
        };
        // /dev/null, to which a mask leads, is none.
        files.into_iter().find(|file| file.is_file())
    }

    /// The evidence in the file system at `root` that the service with this socket is in use.
    pub(crate) fn in_use(self, socket: &str, root: &Path) -> Option<ServiceUse> {
        let (enabled, running) = match self {
            ServiceManager::Systemd => (enabled_unit(root), UNIT_INVOCATION),
            // A variable may outlive the package.
            ServiceManager::Rc => (
                self.installed(root).and_then(|_| enabling_rc_file(root)),
                RC_PID,
            ),
        };
        if let Some(file) = enabled {
            return Some(ServiceUse::Enabled(file));
        }
        // The socket comes last: whoever may not open it sees by the manager's file that the daemon
        // runs.
        let runs =
            is_there(&below(root, running)) || UnixStream::connect(below(root, socket)).is_ok();
        runs.then_some(ServiceUse::Running)
    }
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// True if a file or a link is there, also one that leads nowhere.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// The files of the unit, in the order in which they count.
fn unit_files(root: &Path) -> impl Iterator<Item = PathBuf> {
    UNIT_DIRECTORIES
        .iter()
        .map(|directory| below(root, directory).join(UNIT))
}

/// The link that has a target start the unit, unless the unit is masked or gone.
fn enabled_unit(root: &Path) -> Option<PathBuf> {
    let unit = unit_files(root).find(|unit| is_there(unit))?;
    if is_masked(&unit) {
        return None;
    }
    let directories = UNIT_DIRECTORIES
        .iter()
        .map(|directory| below(root, directory));
    let entries = directories
        .filter_map(|directory| read_dir(directory).ok())
        .flatten();
    let targets = entries.flatten().map(|entry| entry.path());
    let has_links = |path: &PathBuf| {
        path.extension()
            .is_some_and(|kind| kind == "wants" || kind == "requires")
    };
    let targets = targets.filter(has_links);
    let mut links = targets.map(|target| target.join(UNIT));
    links.find(|link| is_there(link) && !is_masked(link))
}

/// True if a unit file is a link to /dev/null or empty, by which systemctl(1) masks one.
fn is_masked(unit: &Path) -> bool {
    let is_empty = || {
        unit.metadata()
            .is_ok_and(|facts| facts.is_file() && facts.len() == 0)
    };
    read_link(unit).is_ok_and(|target| target == Path::new("/dev/null")) || is_empty()
}

/// The file whose value of the variable counts, if that value is one of rc.subr(8)'s for yes. Files
/// are read and not run: a value that a command or a condition makes is not seen.
fn enabling_rc_file(root: &Path) -> Option<PathBuf> {
    let mut files: Vec<PathBuf> = RC_FILES.iter().map(|file| below(root, file)).collect();
    for directory in RC_DIRECTORIES {
        let path = below(root, directory).join(RC_NAME);
        let entries = read_dir(&path).into_iter().flatten().flatten();
        let mut several: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        several.sort();
        files.push(path);
        files.append(&mut several);
    }
    let mut values = files.into_iter().filter_map(|file| {
        let value = last_value(&read_to_string(&file).ok()?, RC_ENABLE)?;
        Some((file, value))
    });
    let (file, value) = values.next_back()?;
    let is_yes = ["yes", "true", "on", "1"].contains(&value.to_ascii_lowercase().as_str());
    is_yes.then_some(file)
}

/// The last value that a file of sh(1) assigns to a variable.
fn last_value(text: &str, variable: &str) -> Option<String> {
    let mut values = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let value = line.strip_prefix(variable)?.strip_prefix('=')?;
        Some(match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split(quote).next(),
            _ => value.split([' ', '\t', ';', '#']).next(),
        })
    });
    values.next_back().flatten().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FREEBSD, LINUX, SystemService};
    use std::fs::{create_dir_all, remove_file, write};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    /// A file system of its own.
    struct Root(tempfile::TempDir);

    impl Root {
        fn new() -> Root {
            Root(tempfile::tempdir().unwrap())
        }

        fn path(&self, path: &str) -> PathBuf {
            let path = below(self.0.path(), path);
            create_dir_all(path.parent().unwrap()).unwrap();
            path
        }

        fn file(&self, path: &str, text: &str) {
            write(self.path(path), text).unwrap();
        }

        fn link(&self, path: &str, target: &str) {
            symlink(target, self.path(path)).unwrap();
        }

        fn remove(&self, path: &str) {
            remove_file(self.path(path)).unwrap();
        }

        fn in_use(&self, service: &SystemService) -> Option<ServiceUse> {
            service.manager.in_use(service.socket, self.0.path())
        }

        fn enabled(&self, path: &str) -> Option<ServiceUse> {
            Some(ServiceUse::Enabled(self.path(path)))
        }
    }

    const PACKAGED: &str = "/lib/systemd/system/colibri-mcpd.service";
    const WANTS: &str = "/etc/systemd/system/multi-user.target.wants/colibri-mcpd.service";
    const OWN: &str = "/etc/systemd/system/colibri-mcpd.service";

    #[test]
    fn a_unit_counts_when_it_is_enabled_and_not_when_its_file_lies_there() {
        let root = Root::new();
        assert_eq!(root.in_use(&LINUX), None);
        root.file(PACKAGED, "[Service]\n");
        assert_eq!(root.in_use(&LINUX), None, "installed, never enabled");
        assert_eq!(
            LINUX.manager.installed(root.0.path()),
            Some(root.path(PACKAGED))
        );
        root.link(WANTS, PACKAGED);
        assert_eq!(root.in_use(&LINUX), root.enabled(WANTS));
        root.remove(WANTS);
        assert_eq!(root.in_use(&LINUX), None, "disabled again");
        // `systemctl enable --runtime`, and a target that requires it.
        for link in [
            "/run/systemd/system/multi-user.target.wants/colibri-mcpd.service",
            "/etc/systemd/system/x.target.requires/colibri-mcpd.service",
        ] {
            root.link(link, PACKAGED);
            assert_eq!(root.in_use(&LINUX), root.enabled(link));
            root.remove(link);
        }
        // Neither the rest of a unit nor another one enables it.
        root.file(
            "/etc/systemd/system/colibri-mcpd.service.d/override.conf",
            "[Service]\n",
        );
        root.link(
            "/etc/systemd/system/multi-user.target.wants/other.service",
            PACKAGED,
        );
        assert_eq!(root.in_use(&LINUX), None);
    }

    #[test]
    fn a_masked_unit_closes_nothing() {
        for mask in [OWN, "/run/systemd/system/colibri-mcpd.service"] {
            let root = Root::new();
            root.file(PACKAGED, "[Service]\n");
            root.link(WANTS, PACKAGED);
            root.link(mask, "/dev/null");
            assert_eq!(root.in_use(&LINUX), None, "{mask}");
            assert_eq!(
                LINUX.manager.installed(root.0.path()),
                Some(root.path(PACKAGED))
            );
            root.remove(mask);
            root.file(mask, "");
            assert_eq!(root.in_use(&LINUX), None, "{mask}");
            root.file(mask, "[Service]\n");
            assert_eq!(root.in_use(&LINUX), root.enabled(WANTS));
        }
        // A unit of the administrator's own counts more than a mask that ends with this boot.
        let root = Root::new();
        root.file(OWN, "[Service]\n");
        root.link("/run/systemd/system/colibri-mcpd.service", "/dev/null");
        root.link(WANTS, OWN);
        assert_eq!(root.in_use(&LINUX), root.enabled(WANTS));
        // What a removed package leaves behind.
        root.remove(OWN);
        root.remove("/run/systemd/system/colibri-mcpd.service");
        assert_eq!(root.in_use(&LINUX), None);
    }

    #[test]
    fn a_service_that_runs_counts_enabled_or_not() {
        let root = Root::new();
        root.file(PACKAGED, "[Service]\n");
        root.link(OWN, "/dev/null");
        root.link(UNIT_INVOCATION, "0123456789abcdef");
        assert_eq!(
            root.in_use(&LINUX),
            Some(ServiceUse::Running),
            "masked while it ran"
        );
        root.remove(UNIT_INVOCATION);
        assert_eq!(root.in_use(&LINUX), None);
        for service in [LINUX, FREEBSD] {
            let root = Root::new();
            let socket = root.path(service.socket);
            let listener = UnixListener::bind(&socket).unwrap();
            assert_eq!(
                root.in_use(&service),
                Some(ServiceUse::Running),
                "no manager at all"
            );
            drop(listener);
            assert_eq!(
                root.in_use(&service),
                None,
                "a killed daemon leaves its socket"
            );
        }
        let root = Root::new();
        root.file(RC_PID, "");
        assert_eq!(root.in_use(&FREEBSD), Some(ServiceUse::Running));
    }

    #[test]
    fn an_rc_script_counts_when_its_variable_says_yes() {
        let root = Root::new();
        let files = [
            "/etc/rc.conf",
            "/etc/rc.conf.local",
            "/etc/rc.conf.d/colibri_mcp",
            "/usr/local/etc/rc.conf.d/colibri_mcp",
        ];
        root.file(files[0], "colibri_mcp_enable=\"YES\"\n");
        assert_eq!(root.in_use(&FREEBSD), None, "the package is gone");
        root.file(RC_SCRIPT, "#!/bin/sh\n");
        root.remove(files[0]);
        assert_eq!(root.in_use(&FREEBSD), None, "installed, never enabled");
        // Each file counts more than those before it.
        for file in files {
            root.file(file, "hostname=x\ncolibri_mcp_enable=\"YES\"\n");
            assert_eq!(root.in_use(&FREEBSD), root.enabled(file));
            root.file(file, "colibri_mcp_enable=NO\n");
            assert_eq!(root.in_use(&FREEBSD), None, "{file}");
        }
        root.remove(files[2]);
        root.remove(files[3]);
        for (text, counts) in [
            ("colibri_mcp_enable='yes'", true),
            ("colibri_mcp_enable=On # since Monday", true),
            ("  export colibri_mcp_enable=1; x=y", true),
            ("colibri_mcp_enable=\"TRUE\"", true),
            (
                "colibri_mcp_enable=\"YES\"\ncolibri_mcp_enable=\"NO\"",
                false,
            ),
            (
                "colibri_mcp_enable=\"NO\"\ncolibri_mcp_enable=\"YES\"",
                true,
            ),
            ("#colibri_mcp_enable=\"YES\"", false),
            (
                "colibri_mcp_enabled=\"YES\"\nmy_colibri_mcp_enable=\"YES\"",
                false,
            ),
            ("colibri_mcp_enable=\"\"", false),
            ("colibri_mcp_enable=", false),
        ] {
            root.file(files[1], text);
            assert_eq!(root.in_use(&FREEBSD).is_some(), counts, "{text}");
        }
        // The script's own file may be a directory of files.
        let one = "/usr/local/etc/rc.conf.d/colibri_mcp/one";
        root.file(one, "colibri_mcp_enable=\"YES\"\n");
        assert_eq!(root.in_use(&FREEBSD), root.enabled(one));
    }
}

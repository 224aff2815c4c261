//! The privilege backend of a jailed server: the command line that runs `colibri-jail-helper`.
//!
//! The helper's whole input is a server's name and the digest of its entry. Where and as whom the
//! server runs is not the daemon's to say, so none of it appears here.

use super::launch::{JailConfig, LaunchSettings, LaunchSpec, SpawnError};
use super::supervisor;
use super::sys::{self, Session};
use colibri_api::{HELPER, PrivMode};
use colibri_registry::Stdin;
use nix::sys::statvfs::{FsFlags, statvfs};
use secrecy::ExposeSecret as _;
use std::ffi::OsString;
use std::fmt;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// mdo(1), of FreeBSD's base system.
const MDO: &str = "/usr/bin/mdo";

/// sudo(8), of a package on FreeBSD.
const SUDO: &str = if cfg!(target_os = "freebsd") {
    "/usr/local/bin/sudo"
} else {
    "/usr/bin/sudo"
};

/// A program with its arguments and its whole environment; nothing is inherited.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// Absolute path.
    pub program: PathBuf,
    /// Arguments without the program's name.
    pub arguments: Vec<OsString>,
    /// Every variable.
    pub environment: Vec<(OsString, OsString)>,
    /// Absolute path of the working directory.
    pub directory: PathBuf,
    /// The privilege backend; `None` if root is not needed.
    pub privilege: Option<PrivMode>,
}

impl fmt::Debug for CommandLine {
    /// Shows the names of variables only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("CommandLine")
            .field("program", &self.program)
            .field("arguments", &self.arguments)
            .field("environment", &names)
            .field("directory", &self.directory)
            .field("privilege", &self.privilege)
            .finish()
    }
}

/// The command line that has the helper run with these arguments. Its environment is empty: the
/// helper forgets any, and mdo and sudo have less to be misled by.
pub(super) fn helper_command(mode: PrivMode, arguments: &[&str]) -> CommandLine {
    let (program, before): (_, &[&str]) = match mode {
        PrivMode::Helper => (HELPER, &[]),
        // -i keeps the groups: a rule for the uid alone suffices (mdo(1)).
        PrivMode::Mdo => (MDO, &["-i", "-u", "root", "--", HELPER]),
        PrivMode::Sudo => (SUDO, &["-n", "--", HELPER]),
    };
    CommandLine {
        program: PathBuf::from(program),
        arguments: before.iter().chain(arguments).map(OsString::from).collect(),
        environment: Vec::new(),
        directory: PathBuf::from("/"),
        privilege: Some(mode),
    }
}

/// The command line that starts a jailed server or agent.
pub fn jail_wrap(mode: PrivMode, jail: &JailConfig) -> CommandLine {
    helper_command(
        mode,
        &[
            "run",
            "--session",
            &jail.session,
            "--digest",
            &jail.digest,
            &jail.server,
        ],
    )
}

/// The command line that starts what `order` asks for, below its supervisor.
///
/// # Errors
/// A host server in mdo mode, where whoever runs as colibri can become root; a program that is
/// missing or not executable; for a jailed server, no helper.
pub fn prepare_spawn_command(
    settings: &LaunchSettings,
    order: &LaunchSpec,
) -> Result<CommandLine, SpawnError> {
    match order {
        LaunchSpec::Jailed(jail) => Ok(jail_wrap(reachable(settings.priv_mode)?, jail)),
        LaunchSpec::Host { .. } if settings.priv_mode == PrivMode::Mdo => {
            Err(SpawnError::HostInMdoMode)
        }
        LaunchSpec::Host {
            program,
            arguments,
            environment,
            directory,
            stdin,
            ..
        } => {
            let path = environment.get("PATH").map(|path| path.expose_secret());
            check_program(program, path.unwrap_or(&settings.path))?;
            let mut carried: Vec<(OsString, OsString)> = Vec::new();
            let base = [
                ("PATH", settings.path.as_str()),
                ("HOME", settings.home.as_str()),
                ("LANG", "C.UTF-8"),
            ];
            for (name, value) in base
                .into_iter()
                .filter(|(name, _)| !environment.contains_key(*name))
            {
                carried.push((supervisor::carried(name.as_ref()), value.into()));
            }
            for (name, value) in environment {
                carried.push((
                    supervisor::carried(name.as_ref()),
                    value.expose_secret().into(),
                ));
            }
            Ok(CommandLine {
                arguments: supervised(settings, (Session::Own, *stdin), program)
                    .chain(arguments.iter().map(OsString::from))
                    .collect(),
                environment: carried,
                directory: directory.clone().unwrap_or_else(|| PathBuf::from("/")),
                program: settings.supervisor.clone(),
                privilege: None,
            })
        }
        LaunchSpec::Script { program } => Ok(CommandLine {
            program: settings.supervisor.clone(),
            arguments: supervised(settings, (Session::Shared, Stdin::Pipe), program).collect(),
            environment: Vec::new(),
            directory: PathBuf::from("/"),
            privilege: None,
        }),
    }
}

/// The supervisor's arguments up to the program that it runs.
fn supervised(
    settings: &LaunchSettings,
    (session, stdin): (Session, Stdin),
    program: &Path,
) -> impl Iterator<Item = OsString> {
    [
        supervisor::ARGUMENT.into(),
        "--grace-ms".into(),
        settings.grace.as_millis().to_string().into(),
        "--parent".into(),
        std::process::id().to_string().into(),
        "--session".into(),
        session.word().into(),
        "--stdin".into(),
        supervisor::stdin_word(stdin).into(),
        "--".into(),
        program.as_os_str().to_owned(),
    ]
    .into_iter()
}

/// The mode that is used where `wanted` is asked for: found out once, with a warning in the log
/// when it is another. After the helper was exchanged the daemon is started again anyway.
pub(super) fn reachable(wanted: PrivMode) -> Result<PrivMode, SpawnError> {
    static FOUND: OnceLock<PrivMode> = OnceLock::new();
    once(&FOUND, wanted, || {
        let obstacle = obstacle(Path::new(HELPER))?;
        match obstacle.filter(|_| fall_back(wanted, obstacle) == PrivMode::Sudo) {
            Some(why) if !Path::new(SUDO).exists() => Err(SpawnError::HelperPowerless { why }),
            _ => Ok(obstacle),
        }
    })
}

fn once(
    found: &OnceLock<PrivMode>,
    wanted: PrivMode,
    look: impl FnOnce() -> Result<Option<&'static str>, SpawnError>,
) -> Result<PrivMode, SpawnError> {
    if let Some(mode) = found.get() {
        return Ok(*mode);
    }
    let obstacle = look()?;
    let mode = fall_back(wanted, obstacle);
    if let Some(why) = obstacle.filter(|_| mode != wanted && found.get().is_none()) {
        tracing::warn!("{HELPER} cannot gain root: {why}; trying sudo -n instead");
    }
    Ok(*found.get_or_init(|| mode))
}

/// `helper` becomes `sudo` where the helper cannot gain root; mdo and sudo do not need its setuid
/// bit.
fn fall_back(wanted: PrivMode, obstacle: Option<&str>) -> PrivMode {
    match (wanted, obstacle) {
        (PrivMode::Helper, Some(_)) => PrivMode::Sudo,
        (mode, _) => mode,
    }
}

/// The reason for which the helper, being there, could not gain root by itself.
fn obstacle(helper: &Path) -> Result<Option<&'static str>, SpawnError> {
    let file =
        std::fs::symlink_metadata(helper).map_err(|error| SpawnError::HelperMissing { error })?;
    let mount = statvfs(helper).map_err(|error| SpawnError::HelperMissing {
        error: error.into(),
    })?;
    Ok(if !file.is_file() {
        Some("it is not a regular file")
    } else if file.uid() != 0 {
        Some("its owner is not root")
    } else if file.mode() & 0o4000 == 0 {
        Some("it has no setuid bit")
    } else if mount.flags().contains(FsFlags::ST_NOSUID) {
        Some("its file system is mounted nosuid")
    } else if !sys::can_gain_privileges().unwrap_or(false) {
        Some("this process was started so that it can gain no privilege (no_new_privs)")
    } else {
        None
    })
}

/// An early look at a host server's program, for an error that names it; the kernel decides at the
/// start.
///
/// # Errors
/// It is missing or not executable, or it is a script whose interpreter is missing, which may be
/// looked for in `path`.
pub fn check_program(program: &Path, path: &str) -> Result<(), SpawnError> {
    let failed = |error| SpawnError::Program {
        program: program.to_owned(),
        error,
    };
    let file = std::fs::metadata(program).map_err(failed)?;
    if !file.is_file() || file.mode() & 0o111 == 0 {
        return Err(failed(std::io::Error::other("not an executable file")));
    }
    match missing_interpreter(program, path) {
        Some(interpreter) => Err(SpawnError::Interpreter {
            program: program.to_owned(),
            interpreter,
        }),
        None => Ok(()),
    }
}

/// The missing program of a script's first line: the interpreter, or the program that env(1) is to
/// find in `path`.
fn missing_interpreter(program: &Path, path: &str) -> Option<String> {
    let mut first = Vec::new();
    let mut file = std::fs::File::open(program).ok()?.take(256);
    file.read_to_end(&mut first).ok()?;
    let first = first
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut words = std::str::from_utf8(first).ok()?.split_ascii_whitespace();
    let interpreter = Path::new(words.next()?);
    if !interpreter.exists() {
        return Some(interpreter.display().to_string());
    }
    if interpreter.file_name()? != "env" {
        return None;
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    let is_there = |directory: &str| Path::new(directory).join(name).exists();
    (!name.contains('/') && !path.split(':').any(is_there))
        .then(|| format!("{name}, in PATH {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn how_root_is_reached_is_found_out_once() {
        let found = OnceLock::new();
        let missing = || {
            Err(SpawnError::HelperMissing {
                error: std::io::ErrorKind::NotFound.into(),
            })
        };
        assert!(once(&found, PrivMode::Helper, missing).is_err());
        assert_eq!(
            once(&found, PrivMode::Helper, || Ok(Some("why"))).unwrap(),
            PrivMode::Sudo
        );
        assert_eq!(
            once(&found, PrivMode::Helper, || panic!("looked at again")).unwrap(),
            PrivMode::Sudo
        );
    }

    #[test]
    fn a_script_without_its_interpreter_is_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let asks = |line: &str| {
            let path = directory.path().join("script");
            std::fs::write(&path, line).unwrap();
            missing_interpreter(&path, "/nowhere:/bin:/usr/bin")
        };
        assert_eq!(asks("#!/bin/sh\n"), None);
        assert_eq!(asks("#! /usr/bin/env -S sh -c\n"), None);
        assert_eq!(asks("\u{7f}ELF"), None);
        assert_eq!(
            asks("#!/opt/none/node --x\nrest").as_deref(),
            Some("/opt/none/node")
        );
        let told = asks("#!/usr/bin/env -S A=1 no-such-node\n").unwrap();
        assert_eq!(told, "no-such-node, in PATH /nowhere:/bin:/usr/bin");
    }

    fn words(command: &CommandLine) -> Vec<String> {
        std::iter::once(command.program.as_os_str())
            .chain(command.arguments.iter().map(OsString::as_os_str))
            .map(|word| word.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn every_mode_runs_the_same_helper_with_an_empty_environment() {
        let session = "0123456789abcdef";
        let jail = JailConfig {
            session: session.into(),
            server: "github".into(),
            digest: "d".repeat(64),
        };
        let run = format!("run --session {session} --digest {} github", "d".repeat(64));
        let helper = "/usr/local/libexec/colibri-jail-helper";
        for (mode, before) in [
            (PrivMode::Helper, String::new()),
            (PrivMode::Mdo, "/usr/bin/mdo -i -u root -- ".to_owned()),
            (PrivMode::Sudo, format!("{SUDO} -n -- ")),
        ] {
            let command = jail_wrap(mode, &jail);
            assert_eq!(words(&command).join(" "), format!("{before}{helper} {run}"));
            assert!(command.environment.is_empty());
        }
    }

    #[test]
    fn says_why_a_helper_cannot_gain_root() {
        let directory = tempfile::tempdir().unwrap();
        let helper = directory.path().join("helper");
        assert!(matches!(
            obstacle(&helper),
            Err(SpawnError::HelperMissing { .. })
        ));
        std::fs::write(&helper, "").unwrap();
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let wanted = if nix::unistd::geteuid().is_root() {
            "no setuid bit"
        } else {
            "owner is not root"
        };
        assert!(obstacle(&helper).unwrap().unwrap().contains(wanted));
        assert!(
            obstacle(directory.path())
                .unwrap()
                .unwrap()
                .contains("regular file")
        );
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&helper, &link).unwrap();
        assert!(obstacle(&link).unwrap().unwrap().contains("regular file"));
    }

    #[test]
    fn only_the_setuid_helper_falls_back_to_sudo() {
        for (wanted, obstacle, used) in [
            (PrivMode::Helper, None, PrivMode::Helper),
            (PrivMode::Helper, Some("nosuid"), PrivMode::Sudo),
            (PrivMode::Mdo, Some("nosuid"), PrivMode::Mdo),
            (PrivMode::Sudo, Some("nosuid"), PrivMode::Sudo),
        ] {
            assert_eq!(fall_back(wanted, obstacle), used);
        }
    }

    fn host(program: &str) -> LaunchSpec {
        LaunchSpec::Host {
            server: "s".into(),
            program: program.into(),
            arguments: vec!["a b".into(), ";rm -rf /".into()],
            environment: [
                ("TOKEN".to_owned(), "hush".to_owned().into()),
                ("LANG".to_owned(), "x".to_owned().into()),
            ]
            .into(),
            directory: None,
            stdin: colibri_registry::Stdin::Pipe,
        }
    }

    #[test]
    fn host_servers_get_a_built_environment_that_does_not_work_on_the_keeper() {
        let settings = LaunchSettings::new(PrivMode::Helper, "/bin/keeper".into());
        let command = prepare_spawn_command(&settings, &host("/bin/sh")).unwrap();
        let names: Vec<_> = command
            .environment
            .iter()
            .map(|(name, _)| name.to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "COLIBRI_KEEPER_PATH",
                "COLIBRI_KEEPER_HOME",
                "COLIBRI_KEEPER_LANG",
                "COLIBRI_KEEPER_TOKEN"
            ]
        );
        let words = words(&command);
        assert_eq!(words[..3], ["/bin/keeper", "keeper", "--grace-ms"]);
        assert_eq!(words[6..8], ["--session", "own"]);
        assert_eq!(
            words[8..],
            ["--stdin", "pipe", "--", "/bin/sh", "a b", ";rm -rf /"]
        );
        assert!(!format!("{command:?}").contains("hush"));
        assert!(!format!("{:?}", host("/bin/sh")).contains("hush"));
    }

    #[test]
    fn refuses_programs_that_are_not_there_and_host_servers_in_mdo_mode() {
        let settings = LaunchSettings::new(PrivMode::Helper, "/bin/keeper".into());
        for program in ["/nonexistent", "/etc/passwd", "/etc"] {
            let refused = prepare_spawn_command(&settings, &host(program));
            assert!(
                matches!(refused, Err(SpawnError::Program { .. })),
                "{program}"
            );
        }
        let mdo = LaunchSettings::new(PrivMode::Mdo, "/bin/keeper".into());
        assert!(matches!(
            prepare_spawn_command(&mdo, &host("/bin/sh")),
            Err(SpawnError::HostInMdoMode)
        ));
    }
}

//! The private daemon: where no service is in use, a `colibri-mcpd` of the user's own is started by
//! the first that needs it, bridge or command, and ends when nobody has for a while.
//!
//! Everything about it is found through the user database and the XDG directories, nothing by
//! `PATH` or the current directory: an editor starts the bridge in whatever project is open.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use colibri_api::paths::{self, Private, SERVICE};
use colibri_files::{FileLock, LockWait};
use colibri_text::{counted, visible};

use crate::progress;

/// The daemon's program.
const NAME: &str = "colibri-mcpd";
/// The places where it is looked for when it is not beside this program.
const USUAL: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
/// The longest time for a daemon to listen, and for another process that starts it.
const LIMIT: Duration = Duration::from_secs(20);
/// Between two looks whether it listens.
const PAUSE: Duration = Duration::from_millis(5);
/// The most of what a daemon says that does not come up.
const MAX_LINES: usize = 5;
/// The variable that says after how many seconds without a client it ends, and what holds without
/// it.
const END_IDLE: &str = "COLIBRI_MCP_END_IDLE";
const END_IDLE_S: u64 = 600;
/// The variables that it gets: nothing of the editor's, which may hold keys, and nothing that makes
/// it another one.
const KEPT: &[&str] = &[
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "COLIBRI_MCP_ALLOW_ROOT",
    END_IDLE,
    "COLIBRI_MCP_LOG",
];

/// The command of this program that starts the daemon.
pub(crate) const LAUNCH: &str = "private-daemon";

/// Sees to it that the user's daemon listens. A process that ends as soon as it does starts it, so
/// that it is nobody's child: an editor may end, with its bridge, all that descends from it, and
/// others use the daemon, too.
///
/// # Errors
/// Why it does not, as a sentence that says what to do.
pub(crate) fn start() -> anyhow::Result<()> {
    let this = own_program()?;
    let mut launch = Command::new(&this);
    launch
        .arg(LAUNCH)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let _step = progress::step("starting your daemon");
    let launched = launch
        .output()
        .with_context(|| this.display().to_string())?;
    match launched.status.success() {
        true => Ok(()),
        false => Err(anyhow!(
            String::from_utf8_lossy(&launched.stdout)
                .trim_end()
                .to_owned()
        )),
    }
}

/// The same in the process that is started for it.
///
/// # Errors
/// As above.
pub(crate) fn launch() -> anyhow::Result<()> {
    start_at(&paths::private(), &paths::home())
}

/// This program; after an upgrade, what stands in its place.
fn own_program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find out where this program is")?;
    let beside = own.with_file_name("colibri-mcp");
    Ok(if own.is_file() { own } else { beside })
}

fn start_at(own: &Private, home: &Path) -> anyhow::Result<()> {
    let bridges = home.join(".chibi/mcp-bridge.toml");
    let check_needed = || match own.registry.exists() || own.consent.exists() || bridges.exists() {
        true => Ok(()),
        false => Err(anyhow!(
            "colibri-mcpd is not running, and you have no servers yet that it would be started for: colibri-mcp add \
             makes {}{}",
            own.registry.display(),
            unused_service()
        )),
    };
    check_needed()?;
    let at = |path: &Path| path.display().to_string();
    let mut make = DirBuilder::new();
    make.recursive(true)
        .mode(0o700)
        .create(&own.state_dir)
        .with_context(|| at(&own.state_dir))?;
    own.check().map_err(anyhow::Error::msg)?;
    let _one_at_a_time = hold_start(own)?;
    // All may have been removed meanwhile.
    check_needed()?;
    if listens(&own.socket) {
        return Ok(());
    }
    let program = program()?;
    let said = own.state_dir.join("start.errors");
    let mut options = File::options();
    let mut errors = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&said)
        .with_context(|| at(&said))?;
    let stderr = errors.try_clone().with_context(|| at(&said))?;
    let mut daemon = Command::new(&program)
        .arg("--private")
        .env_clear()
        .envs(environment(std::env::vars_os()))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .with_context(|| at(&program))?;
    come_up(&mut daemon, own, &mut errors)?;
    let told = format!(
        "colibri-mcp: started a daemon of your own ({NAME}, process {}); it ends {} after its last client, and its log \
         is {}{}\n",
        daemon.id(),
        patience(std::env::var(END_IDLE).ok().as_deref()),
        visible(&own.log.display().to_string()),
        unused_service()
    );
    // It runs, whether or not somebody reads that.
    let _ = io::stderr().write_all(told.as_bytes());
    Ok(())
}

/// Waits until the daemon listens.
fn come_up(daemon: &mut Child, own: &Private, errors: &mut File) -> anyhow::Result<()> {
    let until = Instant::now() + LIMIT;
    while !listens(&own.socket) {
        let why = match daemon.try_wait() {
            Ok(Some(status)) => format!("it ended at once, with {status}"),
            Err(error) => error.to_string(),
            Ok(None) if Instant::now() < until => {
                std::thread::sleep(PAUSE);
                continue;
            }
            Ok(None) => {
                // Nobody else knows of it.
                let _ = daemon.kill().and_then(|()| daemon.wait());
                format!(
                    "it did not listen on {} within {} s",
                    own.socket.display(),
                    LIMIT.as_secs()
                )
            }
        };
        let mut text = String::new();
        // What cannot be read is not shown.
        let _ = errors
            .seek(SeekFrom::Start(0))
            .and_then(|_| errors.take(8192).read_to_string(&mut text));
        let lines: String = text
            .lines()
            .take(MAX_LINES)
            .map(|line| format!("\n  {line}"))
            .collect();
        bail!(
            "a daemon of your own could not be started: {why}. Its log is {}{lines}",
            own.log.display()
        );
    }
    Ok(())
}

/// The note that the service is there and not meant, and how it is.
fn unused_service() -> String {
    match SERVICE.installed() {
        Some(_) if SERVICE.in_use().is_none() => format!(
            "; colibri's service is installed here, but neither enabled nor running: `{}` starts it",
            SERVICE.start
        ),
        _ => String::new(),
    }
}

fn listens(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Waits until nobody else starts the user's daemon, and keeps others from it for as long as the
/// lock is held.
///
/// # Errors
/// Another one takes too long, or the lock cannot be opened.
pub(crate) fn hold_start(own: &Private) -> anyhow::Result<FileLock> {
    let path = own.state_dir.join("start.lock");
    let at = || path.display().to_string();
    match FileLock::of_file(&path, LockWait::Within(LIMIT)) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => bail!(
            "{}: another colibri-mcp has been starting the daemon for {} s: try again",
            at(),
            LIMIT.as_secs()
        ),
        locked => locked.with_context(at),
    }
}

/// The daemon's program: beside this one, or where packages put it.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find out where this program is")?;
    let beside = own.parent().map(Path::to_owned);
    let places = beside.into_iter().chain(USUAL.iter().map(PathBuf::from));
    let found = places
        .map(|place| place.join(NAME))
        .find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "there is no {NAME} beside {} nor in {}",
            own.display(),
            USUAL.join(", ")
        )
    })
}

/// The part of an environment that the daemon gets.
fn environment(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut kept: Vec<_> = all
        .filter(|(name, _)| name.to_str().is_some_and(|name| KEPT.contains(&name)))
        .collect();
    kept.push(("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()));
    kept
}

/// The time after its last client at which a daemon ends that was started with this variable, in
/// words.
fn patience(end_idle: Option<&str>) -> String {
    let seconds = end_idle
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(END_IDLE_S);
    match seconds.is_multiple_of(60) {
        true => counted(seconds / 60, "minute"),
        false => counted(seconds, "second"),
    }
}

/// True if an error of connect(2) means that nobody listens.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_gets_nothing_of_an_editors_environment() {
        let all = [
            ("PATH", ".:/home/u/project/bin"),
            ("ANTHROPIC_API_KEY", "secret"),
            ("LD_PRELOAD", "./x.so"),
            ("COLIBRI_MCP_EXTERNAL_CONFIG", "./external-mcp.json"),
            ("COLIBRI_MCP_WRITE", "1"),
            ("XDG_STATE_HOME", "/home/u/state"),
        ];
        let kept = environment(all.iter().map(|(name, value)| (name.into(), value.into())));
        let kept: Vec<_> = kept
            .iter()
            .filter_map(|(name, value)| name.to_str().zip(value.to_str()))
            .collect();
        assert_eq!(
            kept,
            [
                ("XDG_STATE_HOME", "/home/u/state"),
                ("PATH", "/usr/local/bin:/usr/bin:/bin")
            ]
        );
    }

    #[test]
    fn without_a_registry_nothing_is_started() {
        let home = tempfile::tempdir().unwrap();
        let under = |name: &str| home.path().join(name);
        let own = Private {
            registry: under("r"),
            clients: under("c"),
            hosts: under("h"),
            skills: under("s"),
            state_dir: under("state"),
            log: under("state/log"),
            consent: under("state/consent"),
            socket: under("state/socket"),
            servers: under("servers"),
        };
        let said = start_at(&own, home.path()).unwrap_err().to_string();
        assert!(said.contains("colibri-mcp add makes"), "{said}");
        assert!(std::fs::read_dir(home.path()).unwrap().next().is_none());
    }
}

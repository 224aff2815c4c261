//! The servers of `mcp-bridge.toml`, run by a private daemon of the bridge's own: the same program,
//! the same chain, with registry, trail, pins and socket below `<home>/mcp-bridge/colibri`.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};
use colibri_api::paths;
use colibri_client::{ClientError, Daemon};
use colibri_files::replace_file_unsynced;
use colibri_registry::Registry;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::config::ConfiguredServer;

/// The program that starts a private daemon.
const STARTER: &str = "colibri-mcp";
/// The setting that lets root run a daemon.
const ALLOW_ROOT: &str = "COLIBRI_MCP_ALLOW_ROOT";
/// The places where it is looked for when it is not beside this one.
const USUAL: &[&str] = &["/usr/local/bin", "/usr/bin"];

/// These servers, and the daemon that runs them.
#[derive(Debug)]
pub(crate) struct OwnServers {
    /// The directories in the daemon's XDG variables.
    place: PathBuf,
    servers: Vec<ConfiguredServer>,
    /// The files are as they are to be, and the daemon knows.
    is_ready: Mutex<bool>,
}

impl OwnServers {
    /// Those of a home.
    pub(crate) fn new(home: &Path, servers: Vec<ConfiguredServer>) -> OwnServers {
        OwnServers {
            place: home.join("mcp-bridge"),
            servers,
            is_ready: Mutex::new(false),
        }
    }

    /// The id of a server, by it or by the name that the file has.
    pub(crate) fn id<'s>(&'s self, name: &str) -> Option<&'s str> {
        let by = |is: fn(&ConfiguredServer) -> &str| {
            self.servers.iter().find(|server| is(server) == name)
        };
        by(|server| &server.id)
            .or_else(|| by(|server| &server.name))
            .map(|server| server.id.as_str())
    }

    /// The reason for which a server of the file does not run.
    pub(crate) fn is_out(&self, id: &str) -> Option<&str> {
        let server = self.servers.iter().find(|server| server.id == id)?;
        server.entry.as_ref().err().map(String::as_str)
    }

    /// The socket of their daemon.
    pub(crate) fn socket(&self) -> PathBuf {
        self.place.join("colibri/colibri.sock")
    }

    /// True if any of them can run.
    pub(crate) fn run(&self) -> bool {
        self.servers.iter().any(|server| server.entry.is_ok())
    }

    /// A connection to their daemon, which is started where it does not run.
    pub(crate) fn connect(&self, until: Instant) -> anyhow::Result<Daemon> {
        // One starts it, and the others wait.
        let mut is_ready = self.is_ready.lock();
        if Instant::now() >= until {
            // Another request was starting it meanwhile. Not tried again here: those that wait
            // would queue up.
            bail!("the private daemon of mcp-bridge.toml's servers did not start in time");
        }
        let directory = self.place.join("colibri");
        // Whoever can write to this directory can put a socket there.
        paths::check_place(&directory).map_err(anyhow::Error::msg)?;
        if !*is_ready {
            self.write(&directory)?;
        }
        let socket = self.socket();
        let mut daemon = match Daemon::connect(&socket, until) {
            Err(ClientError::Io { source, .. }) if is_absent(&source) => {
                self.start()?;
                *is_ready = true;
                return Daemon::connect(&socket, until).map_err(anyhow::Error::from);
            }
            other => other?,
        };
        if !*is_ready {
            // An earlier bridge started it, so its registry may be older than the file.
            daemon.request("colibri/reload", "{}")?;
        }
        *is_ready = true;
        Ok(daemon)
    }

    /// Writes the registry and that its user agrees to it: the file is the user's, and its servers
    /// are meant to run.
    fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let mut make = DirBuilder::new();
        let made = make.recursive(true).mode(0o700).create(directory);
        made.with_context(|| directory.display().to_string())?;
        let path = directory.join("external-mcp.json");
        let entries: Map<String, Value> = self
            .servers
            .iter()
            .filter_map(|server| Some((server.id.clone(), server.entry.clone().ok()?)))
            .collect();
        let text = json!({ "servers": entries }).to_string();
        let registry =
            Registry::<colibri_registry::ServerEntry, colibri_registry::AgentEntry>::parse(
                text.as_bytes(),
                &path.display().to_string(),
            )?;
        let agreed: Map<String, Value> = registry
            .servers
            .iter()
            .map(|(id, entry)| (id.clone(), Value::String(entry.digest.clone())))
            .collect();
        let consent = json!({ "servers": agreed }).to_string();
        replace_private_file(&path, &text)?;
        replace_private_file(&directory.join("consent.json"), &consent)
    }

    fn start(&self) -> anyhow::Result<()> {
        if nix::unistd::geteuid().is_root() && std::env::var(ALLOW_ROOT).as_deref() != Ok("1") {
            bail!(
                "the servers of mcp-bridge.toml run as the bridge's user, and this bridge runs as root: run it as another \
                 user, or set {ALLOW_ROOT}=1 in its environment if that is meant"
            );
        }
        let own = std::env::current_exe()?;
        let beside = own.parent().map(Path::to_owned);
        let places = beside.into_iter().chain(USUAL.iter().map(PathBuf::from));
        let program = places
            .map(|place| place.join(STARTER))
            .find(|path| path.is_file());
        let program = program.with_context(|| {
            format!(
                "there is no {STARTER} beside {} nor in {}",
                own.display(),
                USUAL.join(", ")
            )
        })?;
        let mut command = Command::new(&program);
        for variable in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"] {
            command.env(variable, &self.place);
        }
        command
            .arg("private-daemon")
            .current_dir("/")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        let started = command
            .output()
            .with_context(|| program.display().to_string())?;
        match started.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&started.stdout);
                let why = match said.trim_end() {
                    "" => started.status.to_string(),
                    said => said.to_owned(),
                };
                Err(anyhow!("the private daemon cannot be started: {why}"))
            }
        }
    }
}

/// True if an error of connect(2) means that nobody listens.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset)
}

/// Replaces a file of this user's alone.
///
/// # Errors
/// The system's, with the path.
pub(crate) fn replace_private_file(path: &Path, text: &str) -> anyhow::Result<()> {
    replace_file_unsynced(path, text.as_bytes(), 0o600).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    fn own(home: &Path) -> OwnServers {
        let server = ConfiguredServer {
            name: "a".to_owned(),
            id: "a".to_owned(),
            entry: Ok(json!({ "command": "/bin/true" })),
        };
        OwnServers::new(home, vec![server])
    }

    #[test]
    fn who_waited_in_vain_for_its_turn_starts_nothing() {
        let home = tempfile::tempdir().unwrap();
        let error = own(home.path())
            .connect(Instant::now())
            .unwrap_err()
            .to_string();
        assert!(!home.path().join("mcp-bridge").exists(), "{error}");
    }

    #[test]
    fn who_listens_where_others_can_write_is_not_asked() {
        let home = tempfile::tempdir().unwrap();
        let others = home.path().join("mcp-bridge");
        fs::create_dir_all(others.join("colibri")).unwrap();
        fs::set_permissions(&others, fs::Permissions::from_mode(0o777)).unwrap();
        let listener = UnixListener::bind(others.join("colibri/colibri.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let error = own(home.path())
            .connect(Instant::now() + Duration::from_secs(1))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("others could put other files there"),
            "{error}"
        );
        assert!(listener.accept().is_err());
    }
}

//! The files that decide what is allowed: registry and client policy, what a private daemon's user
//! agreed to, and the hosts that count on a board of many. Read together, and never taken for
//! absent where they should be there: without the registry nothing is served, without the client
//! policy everybody may call everything.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use parking_lot::Mutex;
use tracing::warn;

use crate::config::DaemonConfig;
use crate::registry::{self, LoadedRegistry};
use colibri_files::replace_file;
use colibri_policy::{BoardHosts, Clients, Gates, PinError, Pins, TrustMode, UserConsent};

/// The file in the state directory that names, a path a line, the files that were in force.
const MEMORY: &str = "files-in-force";

/// The files as they were read.
pub struct SourceFiles {
    /// The client policy.
    pub clients: Clients,
    /// The registry.
    pub registry: LoadedRegistry,
    /// The hosts that count on a board of many; none without a board.
    pub hosts: BoardHosts,
    /// The gates that are open by flags, and by the consent of a private daemon's user.
    pub gates: Gates,
}

/// The facts about the files beyond their contents.
pub struct SourceMetadata {
    memory: PathBuf,
    in_force: Mutex<BTreeSet<PathBuf>>,
}

impl SourceMetadata {
    /// Recalls which files were in force when a daemon last ran with this state directory.
    ///
    /// # Errors
    /// What was remembered cannot be read.
    pub fn recall(config: &DaemonConfig) -> anyhow::Result<SourceMetadata> {
        let memory = config.state_dir.join(MEMORY);
        let text = match std::fs::read_to_string(&memory) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => bail!("cannot read {}: {error}", memory.display()),
        };
        let in_force = text.lines().map(PathBuf::from).collect();
        Ok(SourceMetadata {
            memory,
            in_force: Mutex::new(in_force),
        })
    }

    /// Reads the files.
    ///
    /// # Errors
    /// Everything that is wrong with them; a file that is missing although a flag names it or it
    /// was in force before.
    pub fn read(&self, config: &DaemonConfig) -> anyhow::Result<SourceFiles> {
        let rules = registry::RegistryRules {
            require_jail: config.require_jail,
            priv_mode: config.priv_mode,
        };
        let clients = Clients::read(&config.clients).map_err(anyhow::Error::from);
        let clients = clients.and_then(|clients| {
            let flag = "--clients (COLIBRI_MCP_CLIENTS)";
            self.check_absent(
                clients.is_absent(),
                &config.clients,
                config.clients_named.then_some(flag),
            )?;
            let alone = config.consent.is_some() && clients.is_absent();
            Ok(if alone { clients.alone() } else { clients })
        });
        let mut gates = Gates::new(config.write, config.external_call);
        let loaded = LoadedRegistry::read(&config.registry, rules).map_err(anyhow::Error::from);
        let loaded = loaded.and_then(|mut loaded| {
            let flag = "--external-config (COLIBRI_MCP_EXTERNAL_CONFIG)";
            self.check_absent(
                loaded.is_absent,
                &config.registry,
                config.registry_named.then_some(flag),
            )?;
            if let Some(path) = &config.consent {
                let consent = UserConsent::read(path)?;
                gates = Gates::new(consent.opens_write(), config.external_call).by_consent();
                for (id, server) in &mut loaded.servers {
                    let refusal = || consent.refusal(id, &server.entry.digest);
                    server.refusal = server.refusal.take().or_else(refusal);
                }
                for (id, agent) in &mut loaded.agents {
                    let refusal = || consent.refusal(id, &agent.entry.digest);
                    agent.refusal = agent.refusal.take().or_else(refusal);
                }
            }
            Ok(loaded)
        });
        let read = |_| -> anyhow::Result<BoardHosts> {
            let hosts = BoardHosts::read(&config.hosts)?;
            let flag = config.hosts_named.then_some("--hosts (COLIBRI_MCP_HOSTS)");
            self.check_absent(hosts.is_absent, &config.hosts, flag)?;
            Ok(hosts)
        };
        let hosts = config
            .board
            .as_ref()
            .map_or(Ok(BoardHosts::default()), read);
        match (clients, loaded, hosts) {
            (Ok(clients), Ok(mut registry), Ok(hosts)) => {
                registry
                    .notes
                    .extend(clients.unknown_accounts(&registry.servers));
                Ok(SourceFiles {
                    clients,
                    registry,
                    hosts,
                    gates,
                })
            }
            (clients, registry, hosts) => {
                let errors = [clients.err(), registry.err(), hosts.err()];
                let errors: Vec<_> = errors
                    .iter()
                    .flatten()
                    .map(|error| format!("{error:#}"))
                    .collect();
                Err(anyhow!(errors.join("; ")))
            }
        }
    }

    /// Refuses a file that is not there and must be.
    fn check_absent(
        &self,
        is_absent: bool,
        path: &Path,
        named: Option<&str>,
    ) -> anyhow::Result<()> {
        let shown = path.display();
        let in_force = self.in_force.lock();
        match named {
            _ if !is_absent => Ok(()),
            Some(flag) => Err(anyhow!(
                "there is no {shown}, which {flag} names: correct the path, or put the file there"
            )),
            None if in_force.contains(&absolute(path)) => Err(anyhow!(
                "{shown} is gone, and was in force before: put it back; to go on without it, take its line out of {} and \
                 start the daemon again",
                self.memory.display()
            )),
            None => Ok(()),
        }
    }

    /// Remembers which files are in force now.
    pub(crate) fn remember(&self, config: &DaemonConfig, files: &SourceFiles) {
        let mut in_force = self.in_force.lock();
        let before = in_force.len();
        for (path, is_absent) in [
            (&config.clients, files.clients.is_absent()),
            (&config.registry, files.registry.is_absent),
            (
                &config.hosts,
                files.hosts.is_absent || config.board.is_none(),
            ),
        ] {
            if !is_absent {
                in_force.insert(absolute(path));
            }
        }
        if in_force.len() == before {
            return;
        }
        let lines: String = in_force
            .iter()
            .map(|path| format!("{}\n", path.display()))
            .collect();
        if let Err(error) = replace_file(&self.memory, lines.as_bytes(), 0o600) {
            warn!(
                "{}: {error}; should a file of the configuration be gone at the next start, that will not be noticed",
                self.memory.display()
            );
        }
    }
}

/// The pins that definitions are checked against.
///
/// # Errors
/// A file of pins that cannot be read.
pub(crate) fn open_pins(config: &DaemonConfig) -> Result<Pins, PinError> {
    let trust = if config.pin_strict {
        TrustMode::Strict
    } else {
        TrustMode::FirstUse
    };
    Pins::open(&config.state_dir, config.pins.as_deref(), trust)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

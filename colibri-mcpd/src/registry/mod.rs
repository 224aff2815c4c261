//! The registry as the daemon holds it: read from disk, and checked.

mod agent;
mod entry;
mod http_keys;
mod kinds;
mod model;
mod oauth_key;
pub mod secrets;

pub use agent::{AgentBudget, AgentSpec as AgentEntry};
pub use entry::{EntryTransport, Isolation, ServerSpec, TimeLimits, parse};
pub use kinds::{AgentKind, LineShape, MemberPattern, Path as MemberPath};
pub use model::ModelSpec;

use anyhow::Context as _;

use colibri_api::{HELPER, PrivMode, complete_command, paths};
use colibri_policy::Contract;
use colibri_policy::file::{self, FileError};
use colibri_protocol::Method;
use colibri_protocol::method::OPERATORS;
use colibri_registry::{EntryValue, StdioCommand};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The path of the registry that the helper reads. Only there can an entry have a jail.
pub(crate) const FIXED_PATH: &str = colibri_registry::PATH;

/// The daemon's start options that decide which entries it may serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryRules {
    /// `--require-jail`: no server on the host.
    pub require_jail: bool,
    /// In mdo mode no server runs on the host either.
    pub priv_mode: PrivMode,
}

/// A registry that was read.
#[derive(Debug, Clone, Default)]
pub struct LoadedRegistry {
    /// Every entry, refused and disabled ones included, by server id.
    pub servers: BTreeMap<String, RegisteredServer>,
    /// Every agent, refused and disabled ones included, by its id.
    pub agents: BTreeMap<String, RegisteredAgent>,
    /// Notes for the operator that are no errors.
    pub notes: Vec<String>,
    /// True if there is no file.
    pub is_absent: bool,
}

/// An entry, and whether it may be served.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisteredServer {
    /// As the file has it.
    pub entry: Arc<ServerSpec>,
    /// The reason for which it is not served: state `blocked`. `None`: it is, unless
    /// `entry.disabled`.
    pub refusal: Option<String>,
}

/// An agent's entry, and whether it may be run.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisteredAgent {
    /// As the file has it.
    pub entry: Arc<AgentEntry>,
    /// The reason for which no instance is started. `None`: some may be, unless `entry.disabled`.
    pub refusal: Option<String>,
}

impl RegisteredServer {
    /// The contract that the entry names.
    ///
    /// # Errors
    /// Why it cannot be used. What it was to forbid is not known then, so the server is not served.
    pub fn contract(&self) -> anyhow::Result<Option<Contract>> {
        let read = self
            .entry
            .contract
            .as_deref()
            .map(Contract::read)
            .transpose();
        read.context("its contract cannot be used")
    }

    /// The reason for which the server is not served.
    pub fn fault(&self) -> Option<String> {
        let contract = || self.contract().err().map(|error| format!("{error:#}"));
        self.refusal.clone().or_else(contract)
    }

    /// The callers that share a process: as the entry says, else `user`, or `call` where its jail
    /// has only a `root_path`.
    pub fn isolation(&self) -> Isolation {
        let only_root_path = match &self.entry.transport {
            EntryTransport::Stdio(command) => command
                .jail
                .as_ref()
                .is_some_and(|jail| jail.only_root_path),
            EntryTransport::Http { .. } => false,
        };
        self.entry.isolation.unwrap_or(if only_root_path {
            Isolation::Call
        } else {
            Isolation::User
        })
    }
}

impl LoadedRegistry {
    /// True if anything of it is started by the helper.
    pub(crate) fn needs_helper(&self) -> bool {
        let server =
            |server: &RegisteredServer| server.refusal.is_none() && server.entry.is_jailed();
        let agent =
            |agent: &RegisteredAgent| agent.refusal.is_none() && agent.entry.command.jail.is_some();
        self.servers.values().any(server) || self.agents.values().any(agent)
    }

    /// Reads the registry at `path`. A missing file is an empty registry with a note.
    ///
    /// # Errors
    /// Not a regular file (a symbolic link is none); owned by somebody other than root, or this
    /// user where it is not at `FIXED_PATH`; writable by group or others; wrong contents.
    pub fn read(path: &Path, rules: RegistryRules) -> Result<Self, FileError> {
        let bytes = match file::read(path, colibri_json::MAX_BYTES, path == Path::new(FIXED_PATH))?
        {
            Some(bytes) => bytes,
            None => {
                let note = format!(
                    "there is no registry at {}: no external servers",
                    path.display()
                );
                return Ok(Self {
                    servers: BTreeMap::new(),
                    agents: BTreeMap::new(),
                    notes: vec![note],
                    is_absent: true,
                });
            }
        };
        let registry = parse(&bytes.content, &path.to_string_lossy())?;
        let mut notes = Vec::new();
        if bytes.mode & 0o004 != 0 && registry.servers.values().any(holds_plain_values) {
            notes.push(format!(
                "{} is readable by everyone and holds values that may be tokens: chmod 0640, or use {{\"secret\": NAME}}",
                path.display()
            ));
        }
        let server = |entry, refusal| RegisteredServer {
            entry: Arc::new(entry),
            refusal,
        };
        let packages = paths::servers(path);
        let read = registry.servers.into_iter().map(|(id, mut entry)| {
            let absent = match &mut entry.transport {
                EntryTransport::Stdio(command) => {
                    complete_command(command, &packages, &entry.entry_id).err()
                }
                EntryTransport::Http { .. } => None,
            };
            let refusal =
                refusal(&entry, path, rules).or_else(|| absent.map(|absent| absent.to_string()));
            (id, server(entry, refusal))
        });
        let refused = registry.refused.into_iter().map(|(id, error)| {
            let refused = server(ServerSpec::refused(&id), Some(error.to_string()));
            (id, refused)
        });
        let servers: BTreeMap<String, RegisteredServer> = read.chain(refused).collect();
        for (id, agent) in &registry.agents {
            let unknown = agent
                .tools
                .accounts
                .iter()
                .filter(|(_, server)| !servers.contains_key(*server));
            notes.extend(unknown.map(|(of, server)| {
                format!("agent {id}: accounts.{of}: there is no account {server}")
            }));
        }
        let agents = registry.agents.into_iter().map(|(id, entry)| {
            let refusal = command_refusal(&entry.command, path, rules);
            let entry = Arc::new(entry);
            (id, RegisteredAgent { entry, refusal })
        });
        Ok(Self {
            servers,
            agents: agents.collect(),
            notes,
            is_absent: false,
        })
    }
}

/// The reason for which an entry is not served by this daemon, although the file is right.
fn refusal(entry: &ServerSpec, path: &Path, rules: RegistryRules) -> Option<String> {
    let is_own = |method: &&String| {
        Method::parse(method).is_some()
            || method.starts_with("notifications/")
            || method.starts_with(OPERATORS)
    };
    if let Some(method) = entry.methods.iter().find(is_own) {
        return Some(format!(
            "\"methods\" lists {method}, which is MCP's or Colibri's own: take it out"
        ));
    }
    match &entry.transport {
        // It runs nothing on this host.
        EntryTransport::Http { .. } => None,
        EntryTransport::Stdio(command) => command_refusal(command, path, rules),
    }
}

/// The reason for which a process is not started by this daemon.
fn command_refusal(command: &StdioCommand, path: &Path, rules: RegistryRules) -> Option<String> {
    if command.jail.is_some() {
        return (path != Path::new(FIXED_PATH)).then(|| {
            format!(
                "what is jailed must stand in {FIXED_PATH}, where {HELPER} reads it; this registry is {}",
                path.display()
            )
        });
    }
    let why = if rules.require_jail {
        "this daemon starts nothing outside a jail (--require-jail): give the entry a jail"
    } else if rules.priv_mode == PrivMode::Mdo {
        "priv mode mdo refuses processes on the host: give the entry a jail"
    } else {
        return None;
    };
    let why = match command.ssh.is_some() {
        true => why.replace(
            "give the entry a jail",
            "ssh runs outside; run that client in another daemon",
        ),
        false => why.to_owned(),
    };
    Some(why)
}

fn holds_plain_values(entry: &ServerSpec) -> bool {
    let values = match &entry.transport {
        EntryTransport::Stdio(command) => &command.env,
        EntryTransport::Http { headers, .. } => headers,
    };
    values
        .values()
        .any(|value| matches!(value, EntryValue::Plain(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    const RULES: RegistryRules = RegistryRules {
        require_jail: false,
        priv_mode: PrivMode::Helper,
    };

    struct Directory(tempfile::TempDir);

    impl Directory {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self, content: &str, mode: u32) -> PathBuf {
            let path = self.0.path().join("external-mcp.json");
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn read(&self, content: &str) -> LoadedRegistry {
            LoadedRegistry::read(&self.file(content, 0o600), RULES).unwrap()
        }
    }

    const THREE: &str = r#"{"servers":{
        "host":{"command":"/bin/x"},
        "jailed":{"command":"/bin/x","jail":{"name":"j"}},
        "web":{"url":"https://example.org"}}}"#;

    #[test]
    fn a_missing_file_is_an_empty_registry() {
        let directory = Directory::new();
        let loaded = LoadedRegistry::read(&directory.0.path().join("none.json"), RULES).unwrap();
        assert!(loaded.servers.is_empty());
        assert!(
            loaded.notes[0].contains("no registry"),
            "{:?}",
            loaded.notes
        );
    }

    #[test]
    fn entries_that_cannot_be_served_say_why() {
        let directory = Directory::new();
        let loaded = directory.read(THREE);
        assert_eq!(loaded.servers["host"].refusal, None);
        assert_eq!(loaded.servers["web"].refusal, None);
        let refusal = loaded.servers["jailed"].refusal.clone().unwrap();
        assert!(
            refusal.contains("/usr/local/etc/colibri/external-mcp.json"),
            "{refusal}"
        );

        let path = directory.file(THREE, 0o600);
        let strict = LoadedRegistry::read(
            &path,
            RegistryRules {
                require_jail: true,
                ..RULES
            },
        )
        .unwrap();
        assert!(
            strict.servers["host"]
                .refusal
                .as_ref()
                .unwrap()
                .contains("--require-jail")
        );
        let mdo = LoadedRegistry::read(
            &path,
            RegistryRules {
                priv_mode: PrivMode::Mdo,
                ..RULES
            },
        )
        .unwrap();
        assert!(
            mdo.servers["host"]
                .refusal
                .as_ref()
                .unwrap()
                .contains("mdo")
        );
    }

    #[test]
    fn an_entry_as_editors_have_it_blocks_itself_alone() {
        let directory = Directory::new();
        let loaded =
            directory.read(r#"{"mcpServers":{"a":{"command":"/x"},"b_c":{"command":"npx"}}}"#);
        assert_eq!(loaded.servers["a"].refusal, None);
        let refusal = loaded.servers["b_c"].refusal.clone().unwrap();
        assert!(
            refusal.contains("external-mcp.json:1:") && refusal.contains("rename it"),
            "{refusal}"
        );
    }

    #[test]
    fn methods_of_the_protocol_are_nobodys_to_list() {
        let directory = Directory::new();
        let refusal = |method: &str| {
            let entry = format!(
                "{{\"servers\":{{\"a\":{{\"command\":\"/x\",\"methods\":[\"ok/x\",\"{method}\"]}}}}}}"
            );
            directory.read(&entry).servers["a"].refusal.clone()
        };
        for own in [
            "tools/call",
            "resources/read",
            "initialize",
            "notifications/cancelled",
            "colibri/approve",
        ] {
            let refusal = refusal(own).unwrap_or_else(|| panic!("{own} is let pass"));
            assert!(
                refusal.contains(own) && refusal.contains("take it out"),
                "{refusal}"
            );
        }
        assert_eq!(refusal("files/watch"), None);
    }

    #[test]
    fn jailed_entries_are_served_from_the_fixed_path() {
        let registry = entry::parse(THREE.as_bytes(), "f").unwrap();
        assert_eq!(
            refusal(&registry.servers["jailed"], Path::new(FIXED_PATH), RULES),
            None
        );
    }

    #[test]
    fn isolation_has_its_defaults() {
        let directory = Directory::new();
        let of = |keys: &str| {
            directory
                .read(&format!(
                    "{{\"servers\":{{\"a\":{{\"command\":\"/x\"{keys}}}}}}}"
                ))
                .servers["a"]
                .isolation()
        };
        assert_eq!(of(""), Isolation::User);
        assert_eq!(of(",\"jail\":{\"root_path\":\"/r\"}"), Isolation::Call);
        assert_eq!(of(",\"jail\":{\"path\":\"/r\"}"), Isolation::User);
        assert_eq!(
            of(",\"jail\":{\"root_path\":\"/r\"},\"isolation\":\"shared\""),
            Isolation::Shared
        );
    }

    #[test]
    fn modes_and_kinds_of_files_are_checked() {
        let directory = Directory::new();
        for mode in [0o660, 0o602, 0o666, 0o620] {
            let refused = LoadedRegistry::read(&directory.file("{}", mode), RULES);
            assert!(matches!(refused, Err(FileError::Unsafe { .. })), "{mode:o}");
        }
        for mode in [0o400, 0o440, 0o600, 0o640, 0o644] {
            LoadedRegistry::read(&directory.file("{}", mode), RULES).unwrap();
        }
        let file = directory.file("{}", 0o600);
        let link = directory.0.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let refused = LoadedRegistry::read(&link, RULES).unwrap_err();
        assert!(refused.to_string().contains("symbolic link"), "{refused}");
        let refused = LoadedRegistry::read(directory.0.path(), RULES).unwrap_err();
        assert!(refused.to_string().contains("regular file"), "{refused}");
        let fifo = directory.0.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let refused = LoadedRegistry::read(&fifo, RULES).unwrap_err();
        assert!(refused.to_string().contains("regular file"), "{refused}");
        assert!(LoadedRegistry::read(Path::new("/dev/zero"), RULES).is_err());
    }

    #[test]
    fn contents_are_read_strictly_and_bounded() {
        let directory = Directory::new();
        let error = LoadedRegistry::read(
            &directory.file("{\"servers\":{\"a\":{\"comand\":\"/x\"}}}", 0o600),
            RULES,
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("did you mean \"command\"?"),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains("external-mcp.json:1:18: servers.a.comand: "),
            "{error}"
        );
        let huge = directory.file("", 0o600);
        std::fs::File::options()
            .write(true)
            .open(&huge)
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        let error = LoadedRegistry::read(&huge, RULES).unwrap_err();
        assert!(error.to_string().contains("1 MiB"), "{error}");
    }

    #[test]
    fn world_readable_values_are_noted() {
        let directory = Directory::new();
        let plain = r#"{"servers":{"a":{"command":"/x","env":{"TOKEN":"hush"}}}}"#;
        let loaded = LoadedRegistry::read(&directory.file(plain, 0o644), RULES).unwrap();
        assert!(
            loaded.notes[0].contains("readable by everyone") && !loaded.notes[0].contains("hush")
        );
        assert!(
            LoadedRegistry::read(&directory.file(plain, 0o640), RULES)
                .unwrap()
                .notes
                .is_empty()
        );
        let secret = r#"{"servers":{"a":{"command":"/x","env":{"TOKEN":{"secret":"t"}}}}}"#;
        assert!(
            LoadedRegistry::read(&directory.file(secret, 0o644), RULES)
                .unwrap()
                .notes
                .is_empty()
        );
    }
}

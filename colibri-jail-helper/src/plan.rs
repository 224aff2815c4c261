//! From an entry and the policy to a plan: every decision is taken here, on values alone, before
//! anything of the system is looked at. What acts on a plan decides nothing more.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use colibri_json::JsonWriter;
use colibri_registry::{
    self as registry, Abi, AgentEntry, EntryValue, Jail, Network, RctlResource, Registry, Stdin,
    StdioCommand,
};

use crate::limits::PlannedLimits;
use crate::names::{self, EntryDigest, JailName, ServerId, SessionId};
use crate::passwd::PasswdEntry;
use crate::policy::{Policy, Uids};
use crate::record::RecordFact;
use crate::refusal::{HelperExit, HelperRefusal};

/// Everything that `run` does for one server or agent.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfinementPlan {
    /// The server, or the agent: no two entries of a registry have the same id.
    pub server: ServerId,
    /// The parts that only an agent has; `None` for a server.
    pub agent: Option<PlannedAgent>,
    /// The entry's digest.
    pub digest: EntryDigest,
    /// The place where the server runs.
    pub place: ServerPlace,
    /// Numeric user id of the server, or the range of which each instance has one.
    pub uids: Uids,
    /// Numeric group id of the server; it has no supplementary groups.
    pub gid: u32,
    /// The program, inside the jail.
    pub program: PathBuf,
    /// Its arguments, without its name.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: Vec<Variable>,
    /// Its working directory, inside the jail.
    pub cwd: PathBuf,
    /// Its limits.
    pub limits: PlannedLimits,
}

/// The parts that an agent has and a server has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedAgent {
    /// Its standard input.
    pub stdin: Stdin,
    /// The required owner of its socket directory: the policy's caller, whoever started the helper.
    pub door_owner: u32,
}

impl PlannedAgent {
    /// An instance's agent socket on the host: the directory of the sockets that the daemon listens
    /// on for it alone. It follows from the session, so that nobody can ask for another one.
    #[must_use]
    pub fn door(session: &SessionId) -> PathBuf {
        Path::new(DOORS_DIR).join(session.as_str())
    }
}

/// The tree in which linux(4) looks for each file of a Linux program first
/// (`compat.linux.emul_path`).
pub const LINUX_TREE: &str = "/compat/linux";

/// The path of the socket directory in every agent's jail.
pub const DOOR: &str = "/var/run/colibri";

/// The agent sockets of all instances, under the name that has no symlink in it (see
/// [`crate::STATE_DIR`]).
const DOORS_DIR: &str = if cfg!(target_os = "linux") {
    "/run/colibri/doors"
} else {
    "/var/run/colibri/doors"
};

/// The daemon's socket for programs that speak MCP, in every agent's jail.
pub const DOOR_SOCKET: &str = "/var/run/colibri/colibri.sock";

/// The place where a server runs.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerPlace {
    /// In a jail of its own, for its life.
    Ephemeral(Ephemeral),
    /// In a jail that is already there.
    Persistent {
        /// The jail's name.
        jail: JailName,
        /// The path that the kernel must report for it.
        root_path: Option<PathBuf>,
    },
}

/// A jail of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Ephemeral {
    /// The root: shown read-only, nosuid.
    pub root: PathBuf,
    /// The system that its programs are made for.
    pub abi: Abi,
    /// The network.
    pub network: PlannedNetwork,
    /// Bytes of `/tmp`.
    pub tmp: u64,
    /// Directories of the host, outermost first.
    pub mounts: Vec<PlannedMount>,
    /// `allow.*` parameters to set, without `allow.`; all others that the kernel knows are cleared.
    pub allow: Vec<String>,
}

impl Ephemeral {
    fn write(&self, out: &mut JsonWriter) {
        out.key("root").string(&self.root.to_string_lossy());
        out.key("abi").string(match self.abi {
            Abi::FreeBsd => "freebsd",
            Abi::Linux => "linux",
        });
        match &self.network {
            PlannedNetwork::Loopback => out.key("network").string("loopback"),
            PlannedNetwork::Families { ip4, ip6 } => {
                ip4.write(out.key("ip4"));
                ip6.write(out.key("ip6"));
            }
        }
        out.key("tmp").number(self.tmp);
        out.key("mounts").array(|out| {
            for mount in &self.mounts {
                out.object(|out| {
                    out.key("path").string(&mount.path.to_string_lossy());
                    out.key("owner").number(mount.owner);
                    out.key("at").string(&mount.at.to_string_lossy());
                    out.key("write").boolean(mount.write);
                    out.key("bounded").boolean(mount.bounded);
                });
            }
        });
        out.key("allow")
            .array(|out| self.allow.iter().for_each(|name| out.string(name)));
    }
}

/// A jail's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedNetwork {
    /// Of the host's stack, what each family says.
    Families {
        /// IPv4.
        ip4: PlannedFamily,
        /// IPv6.
        ip6: PlannedFamily,
    },
    /// A stack of its own, in which there is 127.0.0.1 and nothing else: for an agent with a model.
    Loopback,
}

impl PlannedNetwork {
    /// No network at all.
    pub const NONE: Self = Self::Families {
        ip4: PlannedFamily::Disable,
        ip6: PlannedFamily::Disable,
    };
}

/// A jail's addresses of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedFamily {
    /// None.
    Disable,
    /// The host network, loopback services included.
    Inherit,
    /// These.
    Addresses(Vec<IpAddr>),
}

impl PlannedFamily {
    fn write(&self, out: &mut JsonWriter) {
        match self {
            Self::Disable => out.string("disable"),
            Self::Inherit => out.string("inherit"),
            Self::Addresses(addresses) => out.array(|out| {
                addresses
                    .iter()
                    .for_each(|address| out.string(&address.to_string()));
            }),
        }
    }
}

/// A directory of the host shown inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMount {
    /// On the host.
    pub path: PathBuf,
    /// Its required owner.
    pub owner: u32,
    /// The path in the jail.
    pub at: PathBuf,
    /// Writable inside.
    pub write: bool,
    /// Must be the root of a file system of its own.
    pub bounded: bool,
}

/// A variable of the server's environment.
#[derive(Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The source of its value.
    pub value: VariableValue,
}

/// The source of a variable's value.
#[derive(Clone, PartialEq, Eq)]
pub enum VariableValue {
    /// From the entry, or from the helper's own.
    Plain(String),
    /// From the secret file of this name.
    Secret(String),
}

impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl std::fmt::Debug for VariableValue {
    /// Never shows a value: plain ones may be secrets that somebody pasted.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.source())
    }
}

impl VariableValue {
    fn source(&self) -> String {
        match self {
            Self::Plain(_) => "plain".to_owned(),
            Self::Secret(name) => format!("secret {name}"),
        }
    }
}

/// The search path of a server: the base system's and the packages' directories, as in FreeBSD's
/// login.conf(5).
const PATH: &str = "/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin";

impl ConfinementPlan {
    /// Makes the plan for `server`, or for the agent of this name. `caller` is the account of the
    /// policy's caller, which neither may have.
    ///
    /// # Errors
    /// The first rule that refuses. No path has been looked at.
    pub fn make(
        server: &ServerId,
        registry: &Registry,
        policy: &Policy,
        caller: PasswdEntry,
    ) -> Result<Self, HelperRefusal> {
        let id = server.as_str();
        let (digest, disabled, command, agent) =
            match (registry.servers.get(id), registry.agents.get(id)) {
                (Some(entry), _) => (
                    &entry.digest,
                    entry.disabled,
                    entry.command.as_deref(),
                    None,
                ),
                (None, Some(agent)) => (
                    &agent.digest,
                    agent.disabled,
                    Some(&*agent.command),
                    Some(agent),
                ),
                (None, None) => {
                    let what = "no entry of this name; see external-mcp.json(5)";
                    return Err(HelperRefusal::file("registry", what));
                }
            };
        let digest = EntryDigest::parse(digest.as_bytes())
            .ok_or_else(|| HelperRefusal::system("registry", "hash the entry", "not a SHA-256"))?;
        if !policy.lists_server(id) {
            return Err(HelperRefusal::policy(
                "servers",
                "the policy's servers do not list this id",
            ));
        }
        if disabled {
            return Err(HelperRefusal::policy("disabled", "the entry is disabled"));
        }
        let Some(command) = command else {
            return Err(HelperRefusal::policy(
                "jail",
                "the entry has a url: nothing is started for it",
            ));
        };
        let Some(jail) = &command.jail else {
            return Err(HelperRefusal::policy(
                "jail",
                "the entry has no jail: the daemon starts it, not this helper",
            ));
        };
        let limits = PlannedLimits::new(&jail.limits, &policy.limits);
        let place = match &jail.name {
            Some(name) => persistent(name, jail, policy)?,
            None => ephemeral(jail, agent, policy, &limits)?,
        };
        let user_name = user_name(id, jail);
        let user = policy.users.get(user_name).ok_or_else(|| {
            HelperRefusal::policy("users", "the policy's users do not list the server's user")
        })?;
        if user.uids.range().contains(&caller.uid) || user.gid == caller.gid {
            return Err(HelperRefusal::policy(
                "users",
                "the server's ids are the caller's; give it ids of its own",
            ));
        }
        if shares_uid(server, user_name, registry) {
            return Err(HelperRefusal::policy(
                "users",
                "another entry has the same uid; one uid per entry",
            ));
        }
        let home = match &place {
            // The root is read-only: /tmp is the only place to write that every ephemeral jail has.
            ServerPlace::Ephemeral(_) => "/tmp",
            ServerPlace::Persistent { .. } => "/",
        };
        Ok(Self {
            server: server.clone(),
            digest,
            uids: user.uids,
            gid: user.gid,
            program: command.program.clone(),
            args: command.args.clone(),
            env: environment(command, agent.is_some(), home),
            cwd: command.cwd.clone().unwrap_or_else(|| PathBuf::from("/")),
            limits,
            agent: agent.map(|agent| PlannedAgent {
                stdin: agent.stdin,
                door_owner: caller.uid,
            }),
            place,
        })
    }

    /// The fact by which an agent has a persistent jail's one agent socket.
    pub fn door_in_persistent(&self) -> Option<RecordFact> {
        match &self.place {
            ServerPlace::Persistent { jail, .. } if self.agent.is_some() => {
                Some(RecordFact::Door(jail.clone()))
            }
            _ => None,
        }
    }

    /// True if the policy says `"bounded": false` of a mount: what leaves it on the host lets the
    /// jail out.
    pub fn is_unbounded(&self) -> bool {
        matches!(&self.place, ServerPlace::Ephemeral(jail) if jail.mounts.iter().any(|mount| !mount.bounded))
    }

    /// The names of the secrets that the server is given, each once.
    pub fn secrets(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .env
            .iter()
            .filter_map(|variable| match &variable.value {
                VariableValue::Secret(name) => Some(name.as_str()),
                VariableValue::Plain(_) => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The plan as JSON, for people; of variables their names, and where their values come from.
    pub fn to_json(&self) -> String {
        let mut out = JsonWriter::pretty();
        out.object(|out| {
            let kind = if self.agent.is_some() {
                "agent"
            } else {
                "server"
            };
            out.key(kind).string(self.server.as_str());
            out.key("digest").string(self.digest.as_str());
            out.key("place").object(|out| match &self.place {
                ServerPlace::Ephemeral(jail) => out.key("ephemeral").object(|out| jail.write(out)),
                ServerPlace::Persistent { jail, root_path } => {
                    out.key("persistent").object(|out| {
                        out.key("jail").string(jail.as_str());
                        if let Some(path) = root_path {
                            out.key("root_path").string(&path.to_string_lossy());
                        }
                    })
                }
            });
            match self.uids {
                Uids::Shared(uid) => out.key("uid").number(uid),
                Uids::Each(first, last) => out.key("uids").array(|out| {
                    out.number(first);
                    out.number(last);
                }),
            }
            out.key("gid").number(self.gid);
            out.key("program").string(&self.program.to_string_lossy());
            out.key("args")
                .array(|out| self.args.iter().for_each(|arg| out.string(arg)));
            out.key("env").object(|out| {
                for variable in &self.env {
                    out.key(&variable.name).string(&variable.value.source());
                }
            });
            out.key("cwd").string(&self.cwd.to_string_lossy());
            if let Some(agent) = &self.agent {
                out.key("stdin").string(match agent.stdin {
                    Stdin::Null => "null",
                    Stdin::Pipe => "pipe",
                });
                out.key("door").object(|out| {
                    out.key("of").string(DOORS_DIR);
                    out.key("owner").number(agent.door_owner);
                    out.key("at").string(DOOR);
                });
            }
            out.key("limits").object(|out| self.limits.write(out));
        });
        let mut json = String::from_utf8_lossy(&out.into_bytes()).into_owned();
        json.push('\n');
        json
    }

    /// Refuses a plan that was made from another entry than the daemon read.
    ///
    /// # Errors
    /// [`HelperExit::TryLater`]: the daemon has to read the registry again.
    pub fn confirm_digest(&self, digest: &EntryDigest) -> Result<(), HelperRefusal> {
        if self.digest == *digest {
            return Ok(());
        }
        Err(HelperRefusal::new(
            HelperExit::TryLater,
            "digest",
            "registry changed, run service colibri_mcp reload",
        ))
    }
}

/// The policy's name for the server's user: the entry's `user`, else the server's id.
fn user_name<'a>(server: &'a str, jail: &'a Jail) -> &'a str {
    jail.user.as_deref().unwrap_or(server)
}

/// A uid is the last wall between two servers or agents of one host (limits per uid, files in
/// shared mounts), so no two entries have the same, whether the other one may run or not. No two
/// users of a policy have one in common.
fn shares_uid(server: &ServerId, user: &str, registry: &Registry) -> bool {
    let servers = registry
        .servers
        .iter()
        .map(|(id, entry)| (id, entry.jail()));
    let agents = registry
        .agents
        .iter()
        .map(|(id, agent)| (id, agent.command.jail.as_ref()));
    servers
        .chain(agents)
        .filter(|(id, _)| id.as_str() != server.as_str())
        .any(|(id, jail)| jail.is_some_and(|jail| user_name(id, jail) == user))
}

fn persistent(name: &str, jail: &Jail, policy: &Policy) -> Result<ServerPlace, HelperRefusal> {
    let listed = policy
        .persistent
        .iter()
        .find(|listed| listed.as_str() == name);
    let Some(name) = listed else {
        return Err(HelperRefusal::policy(
            "persistent",
            "the policy's persistent jails do not list this one",
        ));
    };
    let foreign = jail.ip4 != Network::Disable
        || jail.ip6 != Network::Disable
        || !jail.mounts.is_empty()
        || !jail.allow.is_empty()
        || jail.abi != Abi::default()
        || jail.limits.get(RctlResource::Tmp).is_some();
    if foreign {
        return Err(HelperRefusal::policy(
            "persistent",
            "abi, ip4, ip6, mounts, allow and limits.tmp belong to ephemeral jails; this jail has its own, from jail.conf(5)",
        ));
    }
    Ok(ServerPlace::Persistent {
        jail: name.clone(),
        root_path: jail.root_path.clone(),
    })
}

fn ephemeral(
    jail: &Jail,
    agent: Option<&AgentEntry>,
    policy: &Policy,
    limits: &PlannedLimits,
) -> Result<ServerPlace, HelperRefusal> {
    let root = jail
        .path
        .as_ref()
        .filter(|path| policy.ephemeral.contains(path))
        .ok_or_else(|| {
            HelperRefusal::policy(
                "ephemeral",
                "the policy's ephemeral roots do not list this path",
            )
        })?;
    if !policy.abi.contains(&jail.abi) {
        let what = "the policy's abi does not list the one that the entry asks for";
        return Err(HelperRefusal::policy("abi", what));
    }
    let mut mounts = jail
        .mounts
        .iter()
        .map(|mount| planned_mount(mount, policy))
        .collect::<Result<Vec<_>, _>>()?;
    mounts.sort_by(|a, b| a.at.cmp(&b.at));
    if mounts
        .windows(2)
        .any(|pair| pair[1].at.starts_with(&pair[0].at))
    {
        // The inner mount point would be a directory of the outer mount, which its owner can swap.
        return Err(HelperRefusal::policy(
            "mounts",
            "a mount lies at or below another one",
        ));
    }
    let overlaps = |own: &str| {
        mounts
            .iter()
            .any(|m| m.at.starts_with(own) || Path::new(own).starts_with(&m.at))
    };
    if agent.is_some() && overlaps(DOOR) {
        let what = "a mount lies at, above or below /var/run/colibri, where an agent has its door";
        return Err(HelperRefusal::policy("mounts", what));
    }
    if jail.abi == Abi::Linux && ["/proc", "/sys", LINUX_TREE].into_iter().any(overlaps) {
        let what = "a mount lies at, above or below /proc, /sys or /compat/linux, where \"abi\": \"linux\" has its own";
        return Err(HelperRefusal::policy("mounts", what));
    }
    for name in &jail.allow {
        if !policy.allow.contains(name) {
            return Err(HelperRefusal::policy(
                "allow",
                "the policy does not list an allow parameter that the entry asks for",
            ));
        }
    }
    Ok(ServerPlace::Ephemeral(Ephemeral {
        root: root.clone(),
        abi: jail.abi,
        network: network(jail, agent, policy)?,
        tmp: limits.get(RctlResource::Tmp).unwrap_or_default(),
        mounts,
        allow: jail.allow.clone(),
    }))
}

fn planned_mount(
    mount: &registry::JailMount,
    policy: &Policy,
) -> Result<PlannedMount, HelperRefusal> {
    let plain = |path: &Path| path.to_str().is_some_and(names::is_plain_path);
    policy
        .mounts
        .iter()
        .find(|listed| {
            listed.path == mount.path
                && listed.at == mount.at
                && (listed.write || !mount.write)
                && plain(&mount.at)
        })
        .map(|listed| PlannedMount {
            path: mount.path.clone(),
            owner: listed.owner,
            at: mount.at.clone(),
            write: mount.write,
            bounded: listed.bounded,
        })
        .ok_or_else(|| {
            HelperRefusal::policy(
                "mounts",
                "the policy does not list a mount that the entry asks for",
            )
        })
}

fn network(
    jail: &Jail,
    agent: Option<&AgentEntry>,
    policy: &Policy,
) -> Result<PlannedNetwork, HelperRefusal> {
    if !agent.is_some_and(|agent| agent.loopback) {
        return Ok(PlannedNetwork::Families {
            ip4: family(&jail.ip4, policy)?,
            ip6: family(&jail.ip6, policy)?,
        });
    }
    if policy.network.loopback {
        return Ok(PlannedNetwork::Loopback);
    }
    let what = "an agent with a model needs \"loopback\" in the policy's network";
    Err(HelperRefusal::policy("network", what))
}

fn family(asked: &Network, policy: &Policy) -> Result<PlannedFamily, HelperRefusal> {
    match asked {
        Network::Disable => Ok(PlannedFamily::Disable),
        Network::Inherit if policy.network.inherit => Ok(PlannedFamily::Inherit),
        Network::Inherit => Err(HelperRefusal::policy(
            "network",
            "the policy does not give the host network",
        )),
        Network::Addresses(addresses) => {
            if addresses
                .iter()
                .all(|address| policy.network.addresses.contains(address))
            {
                Ok(PlannedFamily::Addresses(addresses.clone()))
            } else {
                Err(HelperRefusal::policy(
                    "network",
                    "the policy does not list an address that the entry asks for",
                ))
            }
        }
    }
}

fn environment(command: &StdioCommand, is_agent: bool, home: &str) -> Vec<Variable> {
    let own = [("HOME", home), ("LANG", "C.UTF-8"), ("PATH", PATH)];
    let own = own
        .into_iter()
        .chain(is_agent.then_some(("COLIBRI_MCP_SOCKET", DOOR_SOCKET)))
        .filter(|(name, _)| !command.env.contains_key(*name))
        .map(|(name, value)| Variable {
            name: name.to_owned(),
            value: VariableValue::Plain(value.to_owned()),
        });
    let named = command.env.iter().map(|(name, value)| Variable {
        name: name.clone(),
        value: match value {
            EntryValue::Plain(text) => VariableValue::Plain(text.clone()),
            EntryValue::Secret(secret) => VariableValue::Secret(secret.clone()),
        },
    });
    own.chain(named).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CALLER: PasswdEntry = PasswdEntry { uid: 900, gid: 901 };

    const POLICY: &str = r#"{ "caller": "colibri", "servers": ["docs", "other", "build", "web", "coder"],
  "ephemeral": ["/r/docs", "/r/other"], "persistent": ["build0"],
  "users": { "docs": {"uid": 871, "gid": 871}, "other": {"uid": 872, "gid": 872}, "build": {"uid": 873, "gid": 873},
             "coder": {"uid": 875, "gid": 875},
             "self": {"uid": 900, "gid": 871}, "group": {"uid": 874, "gid": 901} },
  "network": ["192.0.2.7"], "mounts": [ {"path": "/home/op/p", "owner": 1001, "at": "/work", "write": false},
                                        {"path": "/home/op/q", "owner": 1001, "at": "/work/q", "write": true},
                                        {"path": "/home/op/r", "owner": 1001, "at": "/var/run", "write": false} ],
  "allow": ["raw_sockets"], "limits": { "memory": "1G", "processes": 10, "tmp": "8M" } }"#;

    fn plan_of(server: &str, servers: &str) -> Result<ConfinementPlan, HelperRefusal> {
        let registry =
            Registry::parse(format!("{{\"servers\":{{{servers}}}}}").as_bytes(), "r").unwrap();
        let policy = Policy::parse(POLICY.as_bytes(), "p").unwrap();
        ConfinementPlan::make(
            &ServerId::parse(server.as_bytes()).unwrap(),
            &registry,
            &policy,
            CALLER,
        )
    }

    fn docs(jail: &str) -> Result<ConfinementPlan, HelperRefusal> {
        plan_of(
            "docs",
            &format!(r#""docs":{{"command":"/bin/s","jail":{{{jail}}}}}"#),
        )
    }

    #[test]
    fn an_allowed_entry_becomes_a_plan() {
        let plan = docs(
            r#""path":"/r/docs","ip4":["192.0.2.7"],"mounts":[{"path":"/home/op/p","at":"/work"}],
               "allow":["raw_sockets"],"limits":{"processes":50,"open_files":20}"#,
        )
        .unwrap();
        assert_eq!((plan.uids, plan.gid), (Uids::Shared(871), 871));
        assert_eq!(
            plan.limits.get(RctlResource::Processes),
            Some(10),
            "the policy's is the lesser"
        );
        assert_eq!(plan.limits.get(RctlResource::OpenFiles), Some(20));
        assert_eq!(plan.limits.get(RctlResource::Memory), Some(1 << 30));
        assert!(plan.limits.needs_racct);
        let ServerPlace::Ephemeral(jail) = &plan.place else {
            panic!()
        };
        let ip4 = PlannedFamily::Addresses(vec!["192.0.2.7".parse().unwrap()]);
        let ip6 = PlannedFamily::Disable;
        assert_eq!(jail.network, PlannedNetwork::Families { ip4, ip6 });
        assert_eq!(plan.agent, None, "a server has no door");
        assert_eq!(jail.tmp, 8 << 20);
        assert_eq!(jail.mounts[0].owner, 1001);
    }

    #[test]
    fn each_rule_refuses() {
        for (jail, rule) in [
            (r#""path":"/r/elsewhere""#, "ephemeral"),
            (r#""path":"/r/docs/sub""#, "ephemeral"),
            (r#""name":"build1""#, "persistent"),
            (r#""name":"build0","ip4":["192.0.2.7"]"#, "persistent"),
            (r#""name":"build0","allow":["raw_sockets"]"#, "persistent"),
            (r#""path":"/r/docs","ip4":["192.0.2.8"]"#, "network"),
            (r#""path":"/r/docs","ip4":"inherit""#, "network"),
            (r#""path":"/r/docs","ip6":["2001:db8::1"]"#, "network"),
            (r#""path":"/r/docs","user":"root""#, "users"),
            (r#""path":"/r/docs","user":"self""#, "users"),
            (r#""path":"/r/docs","user":"group""#, "users"),
            (r#""path":"/r/docs","allow":["sysvipc"]"#, "allow"),
            (r#""path":"/r/docs","abi":"linux""#, "abi"),
            (r#""name":"build0","abi":"linux""#, "persistent"),
            (
                r#""path":"/r/docs","mounts":[{"path":"/home/op/x","at":"/work"}]"#,
                "mounts",
            ),
            (
                r#""path":"/r/docs","mounts":[{"path":"/home/op/p","at":"/other"}]"#,
                "mounts",
            ),
            (
                r#""path":"/r/docs","mounts":[{"path":"/home/op/p","at":"/work","write":true}]"#,
                "mounts",
            ),
            (
                r#""path":"/r/docs","mounts":[{"path":"/home/op/p","at":"/work"},{"path":"/home/op/q","at":"/work/q"}]"#,
                "mounts",
            ),
        ] {
            let refusal = docs(jail).expect_err(jail);
            assert_eq!(
                (refusal.rule, refusal.exit),
                (rule, HelperExit::Policy),
                "{jail}"
            );
        }
    }

    #[test]
    fn linux_programs_run_where_the_policy_lists_them() {
        let docs = |abi: &str, at: &str| {
            let policy = POLICY
                .replace(
                    r#""network": ["#,
                    &format!(r#""abi": [{abi}], "network": ["#),
                )
                .replace("\"/work\"", &format!("\"{at}\""));
            let jail = format!(
                r#""path":"/r/docs","abi":"linux","mounts":[{{"path":"/home/op/p","at":"{at}"}}]"#
            );
            let registry =
                format!(r#"{{"servers":{{"docs":{{"command":"/bin/s","jail":{{{jail}}}}}}}}}"#);
            let registry = Registry::parse(registry.as_bytes(), "r").unwrap();
            let policy = Policy::parse(policy.as_bytes(), "p").unwrap();
            ConfinementPlan::make(
                &ServerId::parse(b"docs").unwrap(),
                &registry,
                &policy,
                CALLER,
            )
        };
        let both = r#""freebsd", "linux""#;
        let plan = docs(both, "/work").unwrap();
        assert!(matches!(&plan.place, ServerPlace::Ephemeral(jail) if jail.abi == Abi::Linux));
        assert!(plan.to_json().contains("\"abi\": \"linux\""));
        assert_eq!(docs(r#""freebsd""#, "/work").unwrap_err().rule, "abi");
        assert_eq!(docs("", "/work").unwrap_err().rule, "abi");
        for at in [
            "/proc",
            "/proc/self",
            "/sys/class",
            "/compat",
            "/compat/linux",
            "/compat/linux/proc",
        ] {
            assert_eq!(docs(both, at).unwrap_err().rule, "mounts", "{at}");
        }
        docs(both, "/process").unwrap();
    }

    #[test]
    fn what_is_not_a_jailed_listed_enabled_entry_is_refused() {
        for (server, servers, rule) in [
            ("docs", r#""other":{"command":"/bin/s"}"#, "registry"),
            ("web", r#""web":{"url":"https://a.example"}"#, "jail"),
            ("docs", r#""docs":{"command":"/bin/s"}"#, "jail"),
            (
                "docs",
                r#""docs":{"command":"/bin/s","jail":{"path":"/r/docs"},"disabled":true}"#,
                "disabled",
            ),
            (
                "unlisted",
                r#""unlisted":{"command":"/bin/s","jail":{"path":"/r/docs","user":"docs"}}"#,
                "servers",
            ),
        ] {
            assert_eq!(
                plan_of(server, servers).expect_err(servers).rule,
                rule,
                "{servers}"
            );
        }
    }

    /// The plan of an agent `coder` with these keys of its jail and of its entry, beside a server
    /// `docs`.
    fn coder_with(policy: &str, jail: &str, keys: &str) -> Result<ConfinementPlan, HelperRefusal> {
        let registry = format!(
            r#"{{"servers":{{"docs":{{"command":"/bin/s","jail":{{"path":"/r/docs"}}}}}},
                "agents":{{"coder":{{"command":"/bin/a","jail":{{{jail}}}{keys}}}}}}}"#
        );
        let registry = Registry::parse(registry.as_bytes(), "r").unwrap();
        let policy = Policy::parse(policy.as_bytes(), "p").unwrap();
        ConfinementPlan::make(
            &ServerId::parse(b"coder").unwrap(),
            &registry,
            &policy,
            CALLER,
        )
    }

    const MODEL: &str = r#","model":{"url":"https://a.example","api":"anthropic"}"#;

    #[test]
    fn an_agent_is_planned_as_a_server_is_with_a_door() {
        let plan = coder_with(POLICY, r#""path":"/r/other""#, "").unwrap();
        let (stdin, door_owner) = (Stdin::Null, CALLER.uid);
        assert_eq!(plan.agent, Some(PlannedAgent { stdin, door_owner }));
        let ServerPlace::Ephemeral(jail) = &plan.place else {
            panic!()
        };
        assert_eq!(jail.network, PlannedNetwork::NONE);
        let json = plan.to_json();
        for shown in [
            "\"agent\": \"coder\"",
            "\"stdin\": \"null\"",
            "/doors\"",
            "\"COLIBRI_MCP_SOCKET\"",
        ] {
            assert!(json.contains(shown), "{shown}: {json}");
        }
        let plan = coder_with(POLICY, r#""path":"/r/other""#, r#","stdin":"pipe""#).unwrap();
        assert_eq!(plan.agent.unwrap().stdin, Stdin::Pipe);
        let session = SessionId::parse(b"0123456789abcdef").unwrap();
        assert!(PlannedAgent::door(&session).ends_with("colibri/doors/0123456789abcdef"));
        assert_eq!(plan.door_in_persistent(), None);
        let plan = coder_with(POLICY, r#""name":"build0""#, MODEL).unwrap();
        let build0 = JailName::parse("build0").unwrap();
        assert_eq!(plan.door_in_persistent(), Some(RecordFact::Door(build0)));
    }

    #[test]
    fn an_agents_environment_names_its_door_unless_the_entry_does() {
        let value = |keys| {
            let plan = coder_with(POLICY, r#""path":"/r/other""#, keys).unwrap();
            let of_socket = |v: Variable| (v.name == "COLIBRI_MCP_SOCKET").then_some(v.value);
            plan.env
                .into_iter()
                .filter_map(of_socket)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            value(""),
            [VariableValue::Plain(format!("{DOOR}/colibri.sock"))]
        );
        assert_eq!(
            value(r#","env":{"COLIBRI_MCP_SOCKET":"/x"}"#),
            [VariableValue::Plain("/x".to_owned())]
        );
    }

    #[test]
    fn an_agent_with_a_model_needs_loopback_in_the_policy() {
        let refused = coder_with(POLICY, r#""path":"/r/other""#, MODEL).unwrap_err();
        assert_eq!(
            (refused.rule, refused.exit),
            ("network", HelperExit::Policy)
        );
        let policy = POLICY.replace(r#""network": ["#, r#""network": ["loopback", "#);
        let plan = coder_with(&policy, r#""path":"/r/other""#, MODEL).unwrap();
        let ServerPlace::Ephemeral(jail) = &plan.place else {
            panic!()
        };
        assert_eq!(jail.network, PlannedNetwork::Loopback);
        assert!(plan.to_json().contains("\"network\": \"loopback\""));
    }

    #[test]
    fn nothing_is_mounted_over_a_door() {
        let jail = r#""path":"/r/other","mounts":[{"path":"/home/op/r","at":"/var/run"}]"#;
        assert_eq!(coder_with(POLICY, jail, "").unwrap_err().rule, "mounts");
        assert!(
            docs(&jail.replace("/r/other", "/r/docs")).is_ok(),
            "a server may have it"
        );
    }

    #[test]
    fn an_agent_never_shares_a_uid_with_a_server() {
        let refused = coder_with(POLICY, r#""path":"/r/other","user":"docs""#, "").unwrap_err();
        assert_eq!(refused.rule, "users");
        let both = r#"{"servers":{"docs":{"command":"/bin/s","jail":{"path":"/r/docs"}}},
                       "agents":{"coder":{"command":"/bin/a","jail":{"path":"/r/other","user":"docs"}}}}"#;
        let registry = Registry::parse(both.as_bytes(), "r").unwrap();
        let policy = Policy::parse(POLICY.as_bytes(), "p").unwrap();
        let docs = ServerId::parse(b"docs").unwrap();
        assert_eq!(
            ConfinementPlan::make(&docs, &registry, &policy, CALLER)
                .unwrap_err()
                .rule,
            "users"
        );
    }

    #[test]
    fn an_agent_must_be_listed_enabled_and_jailed() {
        let unlisted = POLICY.replace(r#", "coder"]"#, "]");
        let jail = r#""path":"/r/other""#;
        assert_eq!(coder_with(&unlisted, jail, "").unwrap_err().rule, "servers");
        assert_eq!(
            coder_with(POLICY, jail, r#","disabled":true"#)
                .unwrap_err()
                .rule,
            "disabled"
        );
        let registry =
            Registry::parse(br#"{"agents":{"coder":{"command":"/bin/a"}}}"#, "r").unwrap();
        let policy = Policy::parse(POLICY.as_bytes(), "p").unwrap();
        let coder = ServerId::parse(b"coder").unwrap();
        assert_eq!(
            ConfinementPlan::make(&coder, &registry, &policy, CALLER)
                .unwrap_err()
                .rule,
            "jail"
        );
    }

    #[test]
    fn two_entries_never_share_a_uid() {
        let two = r#""docs":{"command":"/bin/s","jail":{"path":"/r/docs"}},
                     "other":{"command":"/bin/s","jail":{"path":"/r/other","user":"docs"}}"#;
        assert_eq!(plan_of("docs", two).unwrap_err().rule, "users");
        assert_eq!(plan_of("other", two).unwrap_err().rule, "users");
    }

    #[test]
    fn the_environment_is_the_entrys_and_three_more() {
        let plan = plan_of(
            "docs",
            r#""docs":{"command":"/bin/s","jail":{"path":"/r/docs"},
                       "env":{"A":"1","PATH":"/x","T":{"secret":"tok"},"U":{"secret":"tok"}}}"#,
        )
        .unwrap();
        let names: Vec<&str> = plan.env.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(names, ["HOME", "LANG", "A", "PATH", "T", "U"]);
        assert_eq!(plan.secrets(), ["tok"]);
    }

    #[test]
    fn no_value_is_shown() {
        let plan = plan_of(
            "docs",
            r#""docs":{"command":"/bin/s","jail":{"path":"/r/docs"},"env":{"A":"hunter2"}}"#,
        )
        .unwrap();
        let shown = plan.to_json() + &format!("{plan:?}");
        assert!(!shown.contains("hunter2"));
        assert!(shown.contains("\"A\""));
    }

    #[test]
    fn another_digest_is_refused() {
        let plan = docs(r#""path":"/r/docs""#).unwrap();
        assert!(plan.confirm_digest(&plan.digest).is_ok());
        let other = EntryDigest::parse("0".repeat(64).as_bytes()).unwrap();
        assert_eq!(
            plan.confirm_digest(&other).unwrap_err().exit,
            HelperExit::TryLater
        );
    }

    proptest! {
        /// Whatever an entry asks for, a plan has nothing that the policy does not list.
        #[test]
        fn no_plan_exceeds_the_policy(
            path in "/r/(docs|other|x)", write in any::<bool>(), user in "(docs|other|self|group|root)",
            ip in 0u8..12, allow in "(raw_sockets|sysvipc|mlock)", processes in 1u64..1000, tmp in 1u64..1 << 40,
        ) {
            let jail = format!(
                r#""path":"{path}","user":"{user}","ip4":["192.0.2.{}"],"allow":["{allow}"],
                   "mounts":[{{"path":"/home/op/p","at":"/work","write":{write}}}],
                   "limits":{{"processes":{processes},"tmp":{tmp}}}"#, ip + 1);
            if let Ok(plan) = docs(&jail) {
                let ServerPlace::Ephemeral(jail) = &plan.place else { panic!() };
                prop_assert!(path != "/r/x" && !write && ip == 6 && allow == "raw_sockets");
                prop_assert!([871, 872].map(Uids::Shared).contains(&plan.uids));
                prop_assert!(plan.limits.get(RctlResource::Processes).unwrap() <= 10 && jail.tmp <= 8 << 20);
            }
        }
    }
}

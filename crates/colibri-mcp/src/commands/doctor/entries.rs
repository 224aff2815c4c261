//! The checks of registry and policy: roots, commands, persistent jails, limits.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use colibri_jail_helper::plan::DOOR;
use colibri_jail_helper::policy::Policy;
use colibri_registry::{Jail, Registry, StdioCommand};

use super::accounts::DAEMON;
use super::fact::{Amiss, CheckOutcome, ExaminedHost};
use super::ownership::{RequiredOwnership, is_as, is_roots_alone};
use super::system::{kernel, mount_points, run};
use colibri_text::counted;

pub(super) fn read_registry(host: &ExaminedHost) -> Result<Registry, Amiss> {
    let path = host.registry.display();
    let bytes = std::fs::read(&host.registry).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Amiss::Note(format!("there is no {path}: no external servers"))
        }
        std::io::ErrorKind::PermissionDenied => {
            Amiss::Skipped(format!("{path}: only root and the daemon can read it"))
        }
        _ => Amiss::Bad(format!("{path}: {error}")),
    })?;
    Registry::parse(&bytes, &path.to_string()).map_err(|error| Amiss::Bad(error.to_string()))
}

pub(super) fn registry(host: &ExaminedHost) -> CheckOutcome {
    if host.registry.exists() {
        is_roots_alone(&host.registry)?;
    }
    let registry = read_registry(host)?;
    let mut seen = counted(registry.servers.len() as u64, "server");
    if !registry.agents.is_empty() {
        seen.push_str(&format!(
            ", {}",
            counted(registry.agents.len() as u64, "agent")
        ));
    }
    Ok(format!("{}: {seen}", host.registry.display()))
}

pub(super) fn policy(host: &ExaminedHost) -> CheckOutcome {
    let path = &host.policy;
    if !path.exists() {
        let missing = format!("there is no {}", path.display());
        let jailed = read_registry(host).is_ok_and(|registry| jails(&registry).next().is_some());
        return Err(if jailed {
            Amiss::Bad(missing)
        } else {
            Amiss::Note(missing)
        });
    }
    is_roots_alone(path)?;
    let policy = read_policy(path)?;
    if policy.caller != DAEMON {
        let caller = policy.caller;
        return Err(Amiss::Note(format!(
            "the caller is {caller}: the daemon must run as that user"
        )));
    }
    if path.metadata().is_ok_and(|facts| facts.mode() & 0o077 != 0) {
        return Err(Amiss::Note(format!(
            "{} can be read by others than root",
            path.display()
        )));
    }
    Ok(path.display().to_string())
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| shown.to_string())?;
    Policy::parse(&bytes, &shown).map_err(anyhow::Error::from)
}

/// The mounts whose risk the policy takes by name; the helper refuses all others that are no file
/// systems of their own.
pub(super) fn unbounded_mounts(host: &ExaminedHost) -> CheckOutcome {
    if !host.policy.exists() {
        return Ok("no policy".to_owned());
    }
    let mounts = read_policy(&host.policy)?.mounts;
    let unbounded: Vec<String> = mounts
        .iter()
        .filter(|mount| !mount.bounded)
        .map(|mount| mount.path.display().to_string())
        .collect();
    if unbounded.is_empty() {
        return Ok(counted(mounts.len() as u64, "mount"));
    }
    Err(Amiss::Note(format!(
        "\"bounded\": false for {}",
        unbounded.join(", ")
    )))
}

pub(super) fn secrets(host: &ExaminedHost) -> anyhow::Result<String> {
    let directory = host.policy.with_file_name("secrets");
    if !directory.exists() {
        return Ok("none".to_owned());
    }
    is_roots_alone(&directory)?;
    let wanted = |mode| RequiredOwnership {
        uid: 0,
        group: None,
        mode,
    };
    is_as(&directory, &wanted(0o700))?;
    let entries = directory
        .read_dir()
        .with_context(|| directory.display().to_string())?;
    let mut count = 0;
    for entry in entries {
        let entry = entry.with_context(|| directory.display().to_string())?;
        is_as(&entry.path(), &wanted(0o400))?;
        count += 1;
    }
    Ok(format!("{}: {count}", directory.display()))
}

pub(super) fn helper_check(host: &ExaminedHost) -> anyhow::Result<String> {
    let ran = run(&host.helper.to_string_lossy(), &["check"])?;
    match ran.status {
        Some(0) => Ok(ran.out.lines().collect::<Vec<_>>().join("; ")),
        _ => {
            let bad = ran
                .out
                .lines()
                .filter(|line| !line.ends_with(": good"))
                .chain(ran.err.lines());
            Err(anyhow!(bad.collect::<Vec<_>>().join("; ")))
        }
    }
}

/// The entries with a jail that are not disabled: of servers, and of agents.
fn jails(registry: &Registry) -> impl Iterator<Item = (&String, &StdioCommand, &Jail)> {
    let servers = registry.servers.iter().filter(|(_, entry)| !entry.disabled);
    let servers = servers.filter_map(|(id, entry)| Some((id, entry.command.as_deref()?)));
    let agents = registry.agents.iter().filter(|(_, agent)| !agent.disabled);
    servers
        .chain(agents.map(|(id, agent)| (id, &*agent.command)))
        .filter_map(|(id, command)| Some((id, command, command.jail.as_ref()?)))
}

/// Applies a check to every entry in a jail, which says what is good or wrong with it; `None` where
/// it is not about that kind of jail, which is called so.
pub(super) fn each_jail(
    host: &ExaminedHost,
    kind: &str,
    check: impl Fn(&str, &StdioCommand, &Jail) -> Option<anyhow::Result<String>>,
) -> CheckOutcome {
    let registry = read_registry(host)?;
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (id, command, jail) in jails(&registry) {
        match check(id, command, jail) {
            Some(Ok(seen)) => good.push(seen),
            Some(Err(wrong)) => bad.push(format!("{id}: {wrong:#}")),
            None => {}
        }
    }
    match (good.is_empty(), bad.is_empty()) {
        (true, true) => Err(Amiss::Skipped(format!("no entry has {kind} jail"))),
        (false, true) => Ok(good.join(", ")),
        _ => Err(Amiss::Bad(bad.join("; "))),
    }
}

/// Applies a check to the root of every ephemeral jail.
pub(super) fn each_root(
    host: &ExaminedHost,
    check: fn(&StdioCommand, &Path) -> anyhow::Result<()>,
) -> CheckOutcome {
    each_jail(host, "an ephemeral", |id, command, jail| {
        match (&jail.name, &jail.path) {
            (None, Some(root)) => Some(check(command, root).map(|()| id.to_owned())),
            _ => None,
        }
    })
}

pub(super) fn root_is_complete(_command: &StdioCommand, root: &Path) -> anyhow::Result<()> {
    is_roots_alone(root)?;
    for name in ["dev", "tmp"] {
        let point = root.join(name);
        let facts = point
            .symlink_metadata()
            .with_context(|| point.display().to_string())?;
        let open = facts.mode() & 0o022 != 0 && facts.mode() & 0o1000 == 0;
        if !facts.is_dir() || facts.uid() != 0 || open {
            bail!(
                "{} must be a directory of root's, sticky if others may write it",
                point.display()
            );
        }
    }
    let inner = mount_points()?
        .into_iter()
        .find(|point| point != root && point.starts_with(root));
    match inner {
        Some(point) => Err(anyhow!(
            "{} is mounted in it, which the jail will not see",
            point.display()
        )),
        None => Ok(()),
    }
}

/// The agents that may use any model whose name does not say that it searches by itself.
pub(super) fn agent_models(host: &ExaminedHost) -> CheckOutcome {
    let Ok(registry) = read_registry(host) else {
        return Err(Amiss::Skipped("the registry was not read".to_owned()));
    };
    let with_model = registry
        .agents
        .iter()
        .filter(|(_, agent)| !agent.disabled && agent.loopback);
    let (choosing, named): (Vec<_>, Vec<_>) =
        with_model.partition(|(_, agent)| agent.chooses_model);
    let names = |agents: Vec<(&String, _)>| {
        agents
            .into_iter()
            .map(|(id, _)| id.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    match (choosing.is_empty(), named.is_empty()) {
        (true, true) => Err(Amiss::Skipped(
            "no entry of an agent has a model".to_owned(),
        )),
        (true, false) => Ok(names(named)),
        _ => Err(Amiss::Note(format!(
            "no \"models\" for {}",
            names(choosing)
        ))),
    }
}

/// True if the roots of agents have a place for their agent sockets.
pub(super) fn agent_roots(host: &ExaminedHost) -> CheckOutcome {
    let registry = read_registry(host)?;
    each_jail(host, "an agent's", |id, _, jail| {
        let root = jail
            .path
            .as_deref()
            .filter(|_| registry.agents.contains_key(id))?;
        Some(has_place_for_a_door(root).map(|()| id.to_owned()))
    })
}

fn has_place_for_a_door(root: &Path) -> anyhow::Result<()> {
    let mut point = root.to_owned();
    for name in Path::new(DOOR).iter().skip(1) {
        point.push(name);
        match point.symlink_metadata() {
            Ok(facts) if facts.is_dir() => {}
            Ok(_) => bail!("{} is no directory", point.display()),
            Err(error) => bail!("{}: {error}", point.display()),
        }
    }
    Ok(())
}

pub(super) fn persistent_jails(host: &ExaminedHost) -> CheckOutcome {
    each_jail(host, "a persistent", |id, _, jail| {
        let name = jail.name.as_ref()?;
        Some(persistent_jail(name, jail.root_path.as_deref()).map(|()| format!("{id} in {name}")))
    })
}

fn persistent_jail(name: &str, root_path: Option<&Path>) -> anyhow::Result<()> {
    let path = run("/usr/sbin/jls", &["-j", name, "path"])?;
    if path.status != Some(0) {
        bail!("jail {name} is not running");
    }
    if let Some(wanted) = root_path.filter(|wanted| Path::new(&path.out) != *wanted) {
        bail!(
            "jail {name} is at {}, not at {}",
            path.out,
            wanted.display()
        );
    }
    // A kernel without mac_do has no such parameter, and nothing to inherit.
    let mdo = run("/usr/sbin/jls", &["-j", name, "mac.do"])?;
    if mdo.status == Some(0) && mdo.out == "inherit" {
        bail!("jail {name} inherits mac.do: a server could become root in it");
    }
    Ok(())
}

/// Memory in large pages is wired, and the kernel counts it for no user and no jail.
pub(super) fn large_pages(host: &ExaminedHost) -> CheckOutcome {
    if jails(&read_registry(host)?).next().is_none() {
        return Err(Amiss::Skipped("no entry has a jail".to_owned()));
    }
    match kernel("vm.pmap.pg_ps_enabled").as_deref() {
        Some("1") => Err(Amiss::Note(
            "vm.pmap.pg_ps_enabled is 1: a server can take all memory by shm_create_largepage(3)"
                .to_owned(),
        )),
        _ => Ok("this kernel has no large pages".to_owned()),
    }
}

pub(super) fn resource_accounting(host: &ExaminedHost) -> CheckOutcome {
    if kernel("kern.racct.enable").as_deref() == Some("1") {
        return Ok("kern.racct.enable is 1".to_owned());
    }
    let asking: Vec<_> = read_registry(host)
        .map(|registry| {
            jails(&registry)
                .filter(|(_, _, jail)| jail.limits.need_accounting())
                .map(|(id, ..)| id.clone())
                .collect()
        })
        .unwrap_or_default();
    if asking.is_empty() {
        return Err(Amiss::Note(
            "off: limits hold for each process, not for a server as a whole, and none for shared memory".to_owned(),
        ));
    }
    Err(Amiss::Bad(format!(
        "off, and these entries ask for memory or processes: {}",
        asking.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use colibri_jail_helper::policy::Uids;

    use super::*;
    use crate::commands::doctor::roots;
    use colibri_api::PrivMode;
    use std::path::PathBuf;

    struct Etc(tempfile::TempDir);

    impl Etc {
        fn with(registry: &str) -> (Etc, ExaminedHost) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("external-mcp.json");
            std::fs::write(&path, registry).unwrap();
            let host = ExaminedHost::here(
                &Path::new("/s").to_owned().into(),
                Some("/d".into()),
                PrivMode::Helper,
                false,
            );
            let host = ExaminedHost {
                policy: path.with_file_name("jail-policy.json"),
                registry: path,
                ..host
            };
            (Etc(directory), host)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }
    }

    #[test]
    fn a_registry_below_tmp_is_not_roots() {
        let (_etc, host) = Etc::with(r#"{"servers":{}}"#);
        assert!(
            matches!(registry(&host), Err(Amiss::Bad(wrong)) if wrong.starts_with("/tmp ") || wrong.contains("writable"))
        );
    }

    #[test]
    fn a_wrong_registry_is_named_with_its_place() {
        let (_etc, host) = Etc::with(r#"{"servers":{"a":{"comand":"/x"}}}"#);
        let Err(Amiss::Bad(wrong)) = read_registry(&host) else {
            panic!()
        };
        assert!(
            wrong.contains(":1:18:") && wrong.contains("command"),
            "{wrong}"
        );
    }

    #[test]
    fn roots_without_command_are_found_and_disabled_entries_are_not_looked_at() {
        let (etc, host) = Etc::with("");
        let root = etc.path("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(
            &host.registry,
            format!(
                r#"{{"servers":{{"a":{{"command":"/bin/a","jail":{{"path":"{0}"}}}},
                   "b":{{"command":"/bin/b","disabled":true,"jail":{{"path":"{0}"}}}},
                   "c":{{"command":"/bin/c"}}}}}}"#,
                root.display()
            ),
        )
        .unwrap();
        let outcome = each_root(&host, |command, root| {
            roots::can_start(root, &command.program)
        });
        let Err(Amiss::Bad(wrong)) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(
            wrong.starts_with("a: /bin/a in ") && !wrong.contains("b:"),
            "{wrong}"
        );
    }

    #[test]
    fn an_agents_root_without_a_place_for_its_door_is_found() {
        let (etc, host) = Etc::with("");
        let root = etc.path("root");
        std::fs::create_dir_all(root.join("var")).unwrap();
        let registry = format!(
            r#"{{"servers":{{"s":{{"command":"/bin/s","jail":{{"path":"{0}"}}}}}},
                "agents":{{"a":{{"command":"/bin/a","jail":{{"path":"{0}"}}}}}}}}"#,
            root.display()
        );
        std::fs::write(&host.registry, registry).unwrap();
        let wrong = || match agent_roots(&host) {
            Err(Amiss::Bad(wrong)) => wrong,
            other => panic!("{other:?}"),
        };
        assert!(
            wrong().starts_with("a: ") && wrong().contains("var/run: No such file"),
            "{}",
            wrong()
        );
        std::os::unix::fs::symlink("/run", root.join("var/run")).unwrap();
        assert!(wrong().contains("var/run is no directory"), "{}", wrong());
        std::fs::remove_file(root.join("var/run")).unwrap();
        std::fs::create_dir_all(root.join(DOOR.trim_start_matches('/'))).unwrap();
        assert_eq!(agent_roots(&host), Ok("a".to_owned()));
    }

    #[test]
    fn agents_that_choose_their_model_are_named() {
        let seen = |model: &str| {
            let (_etc, host) = Etc::with(&format!(
                r#"{{"agents":{{"a":{{"command":"/bin/a","model":{{"url":"https://x.example","api":"gemini"{model}}}}},
                    "b":{{"command":"/bin/b"}},"c":{{"command":"/bin/c","model":{{}},"disabled":true}}}}}}"#
            ));
            agent_models(&host)
        };
        let note = || Err(Amiss::Note("no \"models\" for a".to_owned()));
        assert_eq!(seen(""), note());
        assert_eq!(seen(r#","models":[]"#), note());
        assert_eq!(
            seen(r#","models":["gemini-2.5-flash"]"#),
            Ok("a".to_owned())
        );
        let (_etc, host) = Etc::with(r#"{"servers":{}}"#);
        assert!(matches!(agent_models(&host), Err(Amiss::Skipped(_))));
    }

    #[test]
    fn mounts_that_may_let_a_jail_out_are_named() {
        let (etc, host) = Etc::with("");
        assert_eq!(unbounded_mounts(&host), Ok("no policy".to_owned()));
        let policy = |bounded: &str| {
            let policy = format!(
                r#"{{"caller":"colibri","servers":[],"users":{{}},"mounts":[
                    {{"path":"/a","owner":7,"at":"/work"}},{{"path":"/b","owner":7,"at":"/work"{bounded}}}]}}"#
            );
            std::fs::write(etc.path("jail-policy.json"), policy).unwrap();
        };
        policy("");
        assert_eq!(unbounded_mounts(&host), Ok("2 mounts".to_owned()));
        policy(r#","bounded":false"#);
        let named = Amiss::Note("\"bounded\": false for /b".to_owned());
        assert_eq!(unbounded_mounts(&host), Err(named));
    }

    #[test]
    fn the_samples_that_ship_are_right() {
        let policy = include_str!("../../../../../etc/jail-policy.json.sample");
        let policy = Policy::parse(policy.as_bytes(), "jail-policy.json.sample").unwrap();
        let registry = include_str!("../../../../../etc/external-mcp.json.sample");
        let registry = Registry::parse(registry.as_bytes(), "external-mcp.json.sample").unwrap();
        for (id, entry) in &registry.servers {
            assert!(
                entry.disabled,
                "{id}: nothing in a sample may run by itself"
            );
            let Some(command) = &entry.command else {
                panic!("{id}")
            };
            let jail = command.jail.as_ref().unwrap();
            assert!(
                policy.lists_server(id) && policy.users.contains_key(id.as_str()),
                "{id}"
            );
            match (&jail.name, &jail.path) {
                (Some(name), _) => assert!(
                    policy
                        .persistent
                        .iter()
                        .any(|listed| listed.as_str() == name),
                    "{id}"
                ),
                (None, path) => assert!(
                    policy
                        .ephemeral
                        .iter()
                        .any(|listed| Some(listed) == path.as_ref()),
                    "{id}"
                ),
            }
        }
    }

    #[test]
    fn the_samples_of_agents_that_ship_are_right() {
        type Parts = std::collections::BTreeMap<String, Box<serde_json::value::RawValue>>;
        for (id, text) in [
            (
                "claude",
                include_str!("../../../../../etc/agents/claude.json"),
            ),
            (
                "codex",
                include_str!("../../../../../etc/agents/codex.json"),
            ),
            (
                "gemini",
                include_str!("../../../../../etc/agents/gemini.json"),
            ),
            (
                "opencode",
                include_str!("../../../../../etc/agents/opencode.json"),
            ),
        ] {
            let parts: Parts = serde_json::from_str(text).unwrap();
            let registry = Registry::parse(parts["registry"].get().as_bytes(), id).unwrap();
            let policy = Policy::parse(parts["policy"].get().as_bytes(), id).unwrap();
            let agent = &registry.agents[id];
            assert!(
                agent.disabled,
                "{id}: nothing in a sample may run by itself"
            );
            assert_eq!(
                (
                    agent.command.program.to_str(),
                    agent.command.args[..2].join(" ").as_str()
                ),
                (Some("/usr/local/bin/colibri-mcp"), "door --"),
                "{id}: its model is behind the forwarder"
            );
            let jail = agent.command.jail.as_ref().unwrap();
            assert!(
                policy.lists_server(id) && policy.users.contains_key(id),
                "{id}"
            );
            assert!(
                policy
                    .ephemeral
                    .iter()
                    .any(|root| Some(root) == jail.path.as_ref()),
                "{id}"
            );
            assert!(agent.loopback && policy.network.loopback, "{id}");
            assert!(!agent.chooses_model, "{id}");
            let ([asked], [listed]) = (&jail.mounts[..], &policy.mounts[..]) else {
                panic!("{id}")
            };
            assert_eq!(
                (&asked.path, &asked.at, asked.write),
                (&listed.path, &listed.at, listed.write),
                "{id}"
            );
            assert!(
                listed.bounded && policy.users[id].uids == Uids::Shared(listed.owner),
                "{id}: it can write its work"
            );
            // Its bridge is told the agent socket: what is not installed in the root would be a
            // daemon of its own.
            assert!(
                text.contains("/var/run/colibri/colibri.sock") || id == "gemini",
                "{id}: {text}"
            );
        }
        let settings = include_str!("../../../../../etc/agents/gemini-settings.json");
        let settings: serde_json::Value = serde_json::from_str(settings).unwrap();
        assert_eq!(
            settings["mcpServers"]["colibri"]["args"][1],
            "/var/run/colibri/colibri.sock"
        );
    }
}

//! `--check`: says what is wrong with the configuration, and does nothing else.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use colibri_registry::{EntryValue, StdioCommand};
use nix::unistd::{Gid, Group};

use crate::config::DaemonConfig;
use crate::daemon::sources::{SourceFiles, SourceMetadata, open_pins};
use crate::log;
use crate::notices::Webhook;
use crate::registry::EntryTransport;
use crate::registry::secrets::SecretStore;
use crate::registry::{FIXED_PATH, LoadedRegistry, RegisteredAgent, RegisteredServer};
use colibri_api::paths::{self, DAEMON_USER, SERVICE};
use colibri_api::{HELPER, PrivMode};
use colibri_confine::{PATH, check_program};
use colibri_policy::{SystemAccounts, UserDatabase as _};

/// The helper's policy, beside the registry that it reads.
const POLICY: &str = "jail-policy.json";
/// The mode that the helper is installed with: only its group, the daemon's, may execute it.
const HELPER_MODE: u32 = 0o4550;

/// Checks all that can be seen beforehand. What keeps the daemon or every jailed server from
/// starting is an error; what keeps a single server from it is told on standard error. Returns what
/// to say of a good one.
///
/// # Errors
/// Every fault.
pub(crate) fn configuration(config: &DaemonConfig) -> Result<String, Vec<String>> {
    let mut faults: Vec<String> = open_pins(config)
        .err()
        .map(|error| error.to_string())
        .into_iter()
        .collect();
    faults.extend(socket_group(config));
    let secrets = SecretStore::beside(&config.registry);
    let webhook = config
        .webhook
        .as_ref()
        .map(|settings| Webhook::open(settings, &secrets));
    faults.extend(
        webhook
            .and_then(Result::err)
            .map(|error| format!("{error:#}")),
    );
    if config.syslog
        && let Err(error) = log::reach_syslogd()
    {
        faults.push(error.to_string());
    }
    match SourceMetadata::recall(config).and_then(|sources| sources.read(config)) {
        Ok(SourceFiles { registry, .. }) => {
            tell_entries(config, &registry);
            if registry.servers.values().any(is_started_by_helper)
                || registry.agents.values().any(is_jailed)
            {
                faults.extend(policy_fault(Path::new(FIXED_PATH)));
                faults.extend(helper_fault(config.priv_mode, Path::new(HELPER)));
            }
            let read = match registry.is_absent {
                true => format!("there is no {}, so no servers", config.registry.display()),
                false => format!("{}: {}", config.registry.display(), counted(&registry)),
            };
            let good = format!("{read}, configuration is good");
            if faults.is_empty() {
                Ok(good)
            } else {
                Err(faults)
            }
        }
        Err(error) => {
            faults.push(format!("{error:#}"));
            Err(faults)
        }
    }
}

fn is_started_by_helper(server: &RegisteredServer) -> bool {
    server.refusal.is_none() && !server.entry.disabled && server.entry.is_jailed()
}

fn is_jailed(agent: &RegisteredAgent) -> bool {
    agent.refusal.is_none() && !agent.entry.disabled && agent.entry.command.jail.is_some()
}

/// Prints the entries of the registry that would not be served, and its oddities.
fn tell_entries(config: &DaemonConfig, registry: &LoadedRegistry) {
    let secrets = SecretStore::beside(&config.registry);
    for (id, server) in registry
        .servers
        .iter()
        .filter(|(_, server)| !server.entry.disabled)
    {
        if let Some(reason) = server.fault() {
            eprintln!("colibri-mcpd: server {id} would be blocked: {reason}");
        } else if let EntryTransport::Stdio(command) = &server.entry.transport
            && let Some(missing) = missing(command, &secrets)
        {
            eprintln!("colibri-mcpd: server {id} would not start: {missing}");
        }
    }
    for (id, agent) in registry
        .agents
        .iter()
        .filter(|(_, agent)| !agent.entry.disabled)
    {
        if let Some(reason) = &agent.refusal {
            eprintln!("colibri-mcpd: agent {id} would not be run: {reason}");
        } else if let Some(missing) = missing(&agent.entry.command, &secrets) {
            eprintln!("colibri-mcpd: agent {id} would not start: {missing}");
        }
        let unknown =
            |user: &&String| user.parse::<u32>().is_err() && SystemAccounts.uid(user).is_none();
        for user in agent.entry.users.iter().filter(unknown) {
            eprintln!("colibri-mcpd: agent {id}: there is no user {user}, whom its users name");
        }
    }
    // The answer itself says that there is no file.
    for note in registry.notes.iter().filter(|_| !registry.is_absent) {
        eprintln!("colibri-mcpd: {note}");
    }
    let service = SERVICE.registry();
    if config.registry != service
        && config.registry == paths::private().registry
        && service.exists()
    {
        eprintln!(
            "colibri-mcpd: that is your own; the service's is {}: colibri-mcpd --check --as {DAEMON_USER}",
            service.display()
        );
    }
}

/// The missing requirements of a server on the host. Of jailed ones the helper's own check tells,
/// which may look into their roots.
fn missing(command: &StdioCommand, secrets: &SecretStore) -> Option<String> {
    if command.jail.is_some() {
        return None;
    }
    let path = match command.env.get("PATH") {
        Some(EntryValue::Plain(path)) => path,
        _ => PATH,
    };
    if let Err(error) = check_program(&command.program, path) {
        return Some(error.to_string());
    }
    if let Some(directory) = command.cwd.as_ref().filter(|directory| !directory.is_dir()) {
        return Some(format!("its cwd {} is no directory", directory.display()));
    }
    secrets
        .resolve(&command.env)
        .err()
        .map(|error| error.to_string())
}

/// The number of servers and agents, and of those that are not served.
fn counted(registry: &LoadedRegistry) -> String {
    let disabled = registry
        .servers
        .values()
        .filter(|server| server.entry.disabled)
        .count();
    let is_blocked =
        |server: &&RegisteredServer| server.refusal.is_some() || server.contract().is_err();
    let enabled = registry
        .servers
        .values()
        .filter(|server| !server.entry.disabled);
    let blocked = enabled.filter(is_blocked).count();
    let mut text = colibri_text::counted(registry.servers.len() as u64, "server");
    for (count, what) in [(disabled, "disabled"), (blocked, "blocked")] {
        if count > 0 {
            text += &format!(", {count} of them {what}");
        }
    }
    if !registry.agents.is_empty() {
        text += &format!(
            "; {}",
            colibri_text::counted(registry.agents.len() as u64, "agent")
        );
        let refused = |agent: &&RegisteredAgent| agent.entry.disabled || agent.refusal.is_some();
        let refused = registry.agents.values().filter(refused).count();
        if refused > 0 {
            text += &format!(", {refused} of them not run");
        }
    }
    text
}

/// The reason for which the helper would start nothing, whatever the request.
fn policy_fault(registry: &Path) -> Option<String> {
    let policy = registry.with_file_name(POLICY);
    let error = std::fs::symlink_metadata(&policy).err()?;
    Some(format!(
        "no jailed server can be started: {}: {error}; see jail-policy.json(5)",
        policy.display()
    ))
}

/// The reason for which the helper would not work with this privilege backend.
fn helper_fault(mode: PrivMode, helper: &Path) -> Option<String> {
    let shown = helper.display();
    let found = match std::fs::symlink_metadata(helper) {
        Ok(found) => found,
        Err(error) => {
            return Some(format!(
                "no jailed server can be started: {shown}: {error}; install the package again"
            ));
        }
    };
    let mode_of = found.mode() & 0o7777;
    (mode == PrivMode::Helper && (mode_of != HELPER_MODE || found.uid() != 0)).then(|| {
        format!(
            "{shown} has mode {mode_of:04o} and belongs to uid {}; it must have mode {HELPER_MODE:04o} and belong to \
             root, with the daemon's group: install the package again",
            found.uid()
        )
    })
}

/// The reason for which permitted users cannot open the socket: no such group, or another one on
/// the directory or on the socket.
pub(crate) fn socket_group(config: &DaemonConfig) -> Option<String> {
    let wanted = match &config.socket_group {
        None => None,
        Some(name) => match Group::from_name(name) {
            Ok(Some(group)) => Some(group.gid),
            _ => {
                return Some(format!(
                    "--socket-group: there is no group {name}: pw groupadd {name}, or correct the name"
                ));
            }
        },
    };
    let directory = config.socket.parent().unwrap_or(Path::new(".")).to_owned();
    let has = std::fs::metadata(&directory).ok()?.gid();
    if let Some(wanted) = wanted.filter(|wanted| wanted.as_raw() != has) {
        return Some(wrong_group(
            &directory,
            has,
            wanted.as_raw(),
            "chgrp it, and restart the daemon",
        ));
    }
    // A daemon that runs gave its socket the group that the directory had then.
    let socket = std::fs::symlink_metadata(&config.socket).ok()?.gid();
    let changed = || wrong_group(&config.socket, socket, has, "restart the daemon");
    (config.socket_group.is_some() && socket != has).then(changed)
}

fn wrong_group(path: &Path, has: u32, wanted: u32, advice: &str) -> String {
    let name = |gid| match Group::from_gid(Gid::from_raw(gid)) {
        Ok(Some(group)) => group.name,
        _ => gid.to_string(),
    };
    format!(
        "{} has the group {}, not {}, whose members therefore cannot open the socket: {advice}",
        path.display(),
        name(has),
        name(wanted)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_keeps_every_jailed_server_from_starting_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let registry = directory.path().join("external-mcp.json");
        let fault = policy_fault(&registry).unwrap();
        assert!(fault.contains("jail-policy.json"), "{fault}");
        std::fs::write(registry.with_file_name(POLICY), "{}").unwrap();
        assert_eq!(policy_fault(&registry), None);

        let helper = directory.path().join("helper");
        assert!(
            helper_fault(PrivMode::Sudo, &helper)
                .unwrap()
                .contains("install")
        );
        std::fs::write(&helper, "").unwrap();
        for (mode, good) in [
            (0o4555, false),
            (0o550, false),
            (0o4550, nix::unistd::geteuid().is_root()),
        ] {
            std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(mode)).unwrap();
            let fault = helper_fault(PrivMode::Helper, &helper);
            assert_eq!(fault.is_none(), good, "{fault:?}");
            assert!(fault.is_none_or(
                |fault| fault.contains(&format!("{mode:04o}")) && fault.contains("4550")
            ));
            // The others come with root already.
            assert_eq!(helper_fault(PrivMode::Sudo, &helper), None);
        }
    }
}

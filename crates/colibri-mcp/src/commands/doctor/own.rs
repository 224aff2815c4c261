//! The facts that must hold for a daemon of the user's own, where no service is in use.

use colibri_registry::StdioCommand;
use std::os::unix::fs::MetadataExt as _;

use anyhow::Context as _;
use nix::unistd::geteuid;

use super::entries::read_registry;
use super::fact::{Amiss, CheckOutcome, DoctorCheck, ExaminedHost, Sight};
use super::machine::{SANDBOX, SYSTEM};
use super::service::{ROOM, daemon_answers, state_directory};
use crate::consent::ConsentFile;
use crate::private;
use colibri_api::complete_command;
use colibri_text::counted;

/// Every fact of a user's own daemon.
pub(super) const TABLE: &[DoctorCheck] = &[
    SYSTEM,
    SANDBOX,
    DoctorCheck {
        name: "the daemon's program is there",
        sight: Sight::Everywhere,
        check: |_| Ok(private::program()?.display().to_string()),
        remedy: "put colibri-mcpd beside colibri-mcp",
    },
    DoctorCheck {
        name: "the registry is yours, and right",
        sight: Sight::Everywhere,
        check: registry,
        remedy: "colibri-mcp add or import makes it; correct what is named; chmod go-w, if others may write to it",
    },
    DoctorCheck {
        name: "the programs of its servers and agents are there",
        sight: Sight::Everywhere,
        check: programs,
        remedy: "colibri-mcp sync installs packages; correct the path of another command",
    },
    DoctorCheck {
        name: "you agreed to each of its servers and agents as it stands there",
        sight: Sight::Everywhere,
        check: agreed,
        remedy: "look at the entry, then: colibri-mcp server enable NAME; until then it is not served",
    },
    DoctorCheck {
        name: "the state directory is yours, and outlives a boot",
        sight: Sight::Everywhere,
        check: state,
        remedy: "chown it to yourself and chmod 700; set XDG_STATE_HOME to a directory on a disk",
    },
    ROOM,
    DoctorCheck {
        name: "the daemon answers, or can be started",
        sight: Sight::Everywhere,
        check: |host| match host.socket.exists() {
            true => Ok(daemon_answers(host)?),
            false => Ok("it does not run: it is started when it is needed".to_owned()),
        },
        remedy: "colibri-mcp status starts it, or says why it does not start; its log is colibri-mcpd.log in the state \
                 directory",
    },
];

fn state(host: &ExaminedHost) -> CheckOutcome {
    // As a daemon that others could stand in for is refused.
    host.own()?.check().map_err(Amiss::Bad)?;
    let state_dir = host.state_dir()?;
    match state_dir.exists() {
        true => state_directory(host),
        false => Ok(format!("{} is made when it is needed", state_dir.display())),
    }
}

fn registry(host: &ExaminedHost) -> CheckOutcome {
    let servers = counted(read_registry(host)?.servers.len() as u64, "server");
    let path = host.registry.display();
    let facts = host.registry.metadata().with_context(|| path.to_string())?;
    if facts.uid() != geteuid().as_raw() {
        return Err(Amiss::Bad(format!("{path} belongs to uid {}", facts.uid())));
    }
    if facts.mode() & 0o022 != 0 {
        return Err(Amiss::Bad(format!(
            "{path} is writable by others (mode {:04o})",
            facts.mode() & 0o7777
        )));
    }
    Ok(format!("{path}: {servers}"))
}

/// An enabled server or agent: its program, if it has one, its digest, and the id of its entry.
type EnabledEntry<'a> = (Option<&'a StdioCommand>, &'a str, &'a str);

/// Says for which enabled servers and agents something is wrong.
fn each(
    host: &ExaminedHost,
    wrong: impl Fn(&str, EnabledEntry<'_>) -> Option<String>,
) -> CheckOutcome {
    let registry = match read_registry(host) {
        Ok(registry) => registry,
        // It has a fact of its own.
        Err(_) => {
            return Err(Amiss::Skipped(
                "there is no registry that can be read".to_owned(),
            ));
        }
    };
    let servers = registry.servers.iter().filter(|(_, entry)| !entry.disabled);
    let servers = servers.map(|(id, entry)| {
        let command = entry.command.as_deref();
        (
            id,
            (command, entry.digest.as_str(), entry.entry_id.as_str()),
        )
    });
    let agents = registry.agents.iter().filter(|(_, entry)| !entry.disabled);
    let agents = agents.map(|(id, entry)| {
        (
            id,
            (Some(&*entry.command), entry.digest.as_str(), id.as_str()),
        )
    });
    let counts = [
        (servers.clone().count(), "server"),
        (agents.clone().count(), "agent"),
    ];
    let counts = counts
        .into_iter()
        .filter(|(count, noun)| *count > 0 || *noun == "server");
    let counts: Vec<String> = counts
        .map(|(count, noun)| counted(count as u64, noun))
        .collect();
    let wrong: Vec<_> = servers
        .chain(agents)
        .filter_map(|(id, entry)| Some(format!("{id}: {}", wrong(id, entry)?)))
        .collect();
    match wrong.is_empty() {
        true => Ok(counts.join(", ")),
        false => Err(Amiss::Bad(wrong.join("; "))),
    }
}

fn programs(host: &ExaminedHost) -> CheckOutcome {
    let servers = &host.own()?.servers;
    each(host, |_, (command, _, entry)| {
        let mut command = command?.clone();
        if let Err(fault) = complete_command(&mut command, servers, entry) {
            return Some(fault.to_string());
        }
        let program = command.program.display();
        match command.program.metadata() {
            Ok(facts) if facts.is_file() && facts.mode() & 0o111 != 0 => None,
            Ok(_) => Some(format!("{program} is no program")),
            Err(error) => Some(format!("{program}: {error}")),
        }
    })
}

fn agreed(host: &ExaminedHost) -> CheckOutcome {
    let path = &host.own()?.consent;
    let consent = match std::fs::read_to_string(path) {
        Ok(text) => ConsentFile::parse(&text).with_context(|| path.display().to_string())?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => ConsentFile::default(),
        Err(error) => return Err(Amiss::Bad(format!("{}: {error}", path.display()))),
    };
    each(host, |id, (_, digest, _)| match consent.servers.get(id) {
        Some(agreed)
            if agreed == digest || consent.next.get(id).is_some_and(|next| next == digest) =>
        {
            None
        }
        Some(_) => Some("it was changed since".to_owned()),
        None => Some("you have not yet".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::examine::examine;
    use super::*;
    use colibri_api::PrivMode;
    use colibri_api::paths::Private;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    #[test]
    fn what_would_keep_a_server_from_a_person_is_named() {
        let home = tempfile::tempdir().unwrap();
        let own = Private {
            registry: home.path().join("config/external-mcp.json"),
            clients: home.path().join("config/clients.json"),
            hosts: home.path().join("config/hosts.json"),
            skills: home.path().join("config/skills"),
            state_dir: home.path().to_owned(),
            log: home.path().join("log"),
            consent: home.path().join("consent.json"),
            socket: home.path().join("socket"),
            servers: home.path().join("servers"),
        };
        fs::create_dir(home.path().join("config")).unwrap();
        let host = ExaminedHost {
            helper: "/nonexistent".into(),
            registry: own.registry.clone(),
            policy: home.path().join("jail-policy.json"),
            socket: own.socket.clone(),
            state_dir: Some(own.state_dir.clone()),
            private: Some(own),
            priv_mode: PrivMode::Helper,
            as_root: false,
        };
        let of = |name: &str| {
            let found = examine(&host);
            assert_eq!(found.len(), TABLE.len(), "facts of the service");
            let found = found
                .into_iter()
                .find(|found| found.fact.contains(name))
                .unwrap();
            (found.outcome, found.seen)
        };
        assert_eq!(of("the registry").0, "note");
        assert_eq!(of("programs").0, "skipped");
        let write = |text: &str| fs::write(&host.registry, text).unwrap();
        write(
            r#"{"servers": {"gone": {"command": "/nonexistent/server"}, "off": {"command": "/no", "disabled": true}},
                "agents": {"idle": {"command": "/bin/sh", "disabled": true}}}"#,
        );
        assert_eq!(of("the registry").0, "good");
        let (outcome, seen) = of("programs");
        assert!(
            outcome == "bad" && seen.contains("gone: /nonexistent/server") && !seen.contains("off"),
            "{seen}"
        );
        assert_eq!(
            of("you agreed"),
            ("bad", "gone: you have not yet".to_owned())
        );
        let digest = &read_registry(&host).unwrap().servers["gone"].digest;
        let consent = |digest: &str| {
            fs::write(
                home.path().join("consent.json"),
                format!(r#"{{"servers":{{"gone":"{digest}"}}}}"#),
            )
        };
        consent("00").unwrap();
        assert_eq!(
            of("you agreed"),
            ("bad", "gone: it was changed since".to_owned())
        );
        consent(digest).unwrap();
        assert_eq!(of("you agreed").0, "good");
        assert_eq!(of("the daemon answers").0, "good");
        fs::write(&host.socket, "").unwrap();
        assert_eq!(of("the daemon answers").0, "bad");
        let allow =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        allow(home.path(), 0o700);
        let (outcome, seen) = of("the state directory");
        assert_ne!(outcome, "bad", "{seen}");
        allow(host.registry.parent().unwrap(), 0o777);
        let (outcome, seen) = of("the state directory");
        assert!(
            outcome == "bad" && seen.contains("others could put other files there"),
            "{seen}"
        );
    }
}

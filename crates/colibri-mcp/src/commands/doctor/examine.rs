//! Every fact that must hold for the service's jailed servers to run, in one table.

use super::accounts::{daemon_group, daemon_user, people};
use super::entries::{
    agent_models, agent_roots, each_root, helper_check, large_pages, persistent_jails, policy,
    registry, resource_accounting, root_is_complete, secrets, unbounded_mounts,
};
use super::fact::{CheckedFact, DoctorCheck, ExaminedHost, Sight, found};
use super::linux_abi::{linux_kernel, linux_roots};
use super::machine::{SANDBOX, SYSTEM, audit, can_make_jails, leftovers, modules};
use super::own;
use super::ownership::is_roots_alone;
use super::privilege::{contract, helper_mode, helper_mount, mdo_rule, reaches_root};
use super::release::{advisories, today};
use super::roots;
use super::service::{ROOM, daemon_answers, socket, state_directory};
use super::system::kernel;

/// The remedy off FreeBSD for facts that only jails need.
const NO_JAILS: &str = "nothing, unless this machine is to run the helper's development sandbox: without FreeBSD's jails \
                        servers run on the host, as you";

/// The remedy, on FreeBSD and elsewhere.
const fn on_freebsd(there: &'static str, elsewhere: &'static str) -> &'static str {
    if cfg!(target_os = "freebsd") {
        there
    } else {
        elsewhere
    }
}

const TABLE: &[DoctorCheck] = &[
    SYSTEM,
    DoctorCheck {
        name: "no security advisory about jails is open for this release",
        sight: Sight::FreeBsd,
        check: |_| advisories(&kernel("kern.osrelease").unwrap_or_default(), today()),
        remedy: "update the kernel (freebsd-update fetch install, or pkg upgrade -r FreeBSD-base) and reboot; then ask \
                 freebsd-version -ku and pkg audit",
    },
    DoctorCheck {
        name: "the user of the daemon is there",
        sight: Sight::Everywhere,
        check: |_| Ok(daemon_user()?),
        remedy: on_freebsd(
            "install the package, or: pw groupadd colibri && pw useradd colibri -g colibri -d /nonexistent \
                 -s /usr/sbin/nologin",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "the daemon's group has no other member",
        sight: Sight::Everywhere,
        check: |_| Ok(daemon_group()?),
        remedy: on_freebsd(
            "pw groupmod colibri -d NAME: whoever is in it may execute the helper and read the registry",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "the people's group is another one, with members",
        sight: Sight::Everywhere,
        check: |_| people(),
        remedy: on_freebsd(
            "pw groupadd mcpusers; pw groupmod mcpusers -m NAME for everybody who may open the socket",
            NO_JAILS,
        ),
    },
    SANDBOX,
    DoctorCheck {
        name: "the daemon answers",
        sight: Sight::Everywhere,
        check: |host| Ok(daemon_answers(host)?),
        remedy: on_freebsd(
            "service colibri_mcp start; and be a member of mcpusers, in a session that began after that",
            "systemctl start colibri-mcpd; or name the socket of another daemon with --socket",
        ),
    },
    DoctorCheck {
        name: "the socket is the daemon's and open to the people's group alone",
        sight: Sight::FreeBsdRoot,
        check: |host| Ok(socket(host)?),
        remedy: "stop the service, remove the directory of the socket, start the service: it makes it as it must be",
    },
    DoctorCheck {
        name: "the state directory is the daemon's, and outlives a boot",
        sight: Sight::Everywhere,
        check: state_directory,
        remedy: on_freebsd(
            "service colibri_mcp start makes it; on a live image set colibri_mcp_state_dir to a directory on a disk",
            "colibri-mcpd makes it when it starts; --state-dir chooses another",
        ),
    },
    ROOM,
    DoctorCheck {
        name: "the helper is installed",
        sight: Sight::Helper,
        check: |host| {
            is_roots_alone(&host.helper)?;
            Ok(host.helper.display().to_string())
        },
        remedy: on_freebsd(
            "install the package; every directory above the helper must be root's and writable by root alone",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "the helper may be executed by the daemon alone",
        sight: Sight::Helper,
        check: helper_mode,
        remedy: on_freebsd(
            "chown root:colibri and chmod 4550 the helper (0550 for priv mode mdo or sudo)",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "the helper's file system lets it become root",
        sight: Sight::Helper,
        check: helper_mount,
        remedy: on_freebsd(
            "mount it without nosuid; or use priv mode mdo, and read what that grants: colibri(7)",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "helper and this version speak of the same things",
        sight: Sight::HelperRoot,
        check: |host| Ok(contract(host)?),
        remedy: on_freebsd(
            "install both from one package, then: service colibri_mcp restart",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "priv mode: the daemon's user reaches root through the helper",
        sight: Sight::FreeBsdRoot,
        check: reaches_root,
        remedy: "see the facts about the helper; for sudo and mdo install the rule of /usr/local/share/examples/colibri",
    },
    DoctorCheck {
        name: "priv mode mdo: the module is there, with a rule for the daemon",
        sight: Sight::FreeBsd,
        check: mdo_rule,
        remedy: "mac_do_load=\"YES\" in /boot/loader.conf, and in /etc/sysctl.conf the rule of \
                 /usr/local/share/examples/colibri/mdo-15.conf (mdo-14.conf)",
    },
    DoctorCheck {
        name: "the registry is root's, and right",
        sight: Sight::Everywhere,
        check: registry,
        remedy: on_freebsd(
            "chown root:colibri, chmod 0640, and correct what is named; then service colibri_mcp reload",
            "correct what is named, then: colibri-mcp server reload",
        ),
    },
    DoctorCheck {
        name: "entries of agents name the models that they may use",
        sight: Sight::Everywhere,
        check: agent_models,
        remedy: "\"models\" in the \"model\" of each, as etc/agents has it: without it the agent chooses, the dearest as well; \
                 external-mcp.json(5)",
    },
    DoctorCheck {
        name: "the policy is root's, and right",
        sight: Sight::Root,
        check: policy,
        remedy: on_freebsd(
            "chown root:wheel, chmod 0600, and correct what is named: jail-policy.json(5)",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "secrets are root's alone",
        sight: Sight::Root,
        check: |host| Ok(secrets(host)?),
        remedy: on_freebsd(
            "chown root, chmod 0700 the directory secrets and 0400 each file in it",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "the helper would start every jailed server",
        sight: Sight::FreeBsdRoot,
        check: |host| Ok(helper_check(host)?),
        remedy: "correct what the helper names: external-mcp.json(5), jail-policy.json(5)",
    },
    DoctorCheck {
        name: "roots of ephemeral jails are root's, with dev and tmp, and nothing mounted in them",
        sight: Sight::Root,
        check: |host| each_root(host, root_is_complete),
        remedy: on_freebsd(
            "mkdir dev tmp in it, owned by root; build it with make-root.sh: a thin jail's root is not complete",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "nobody but root can make a directory in the roots of ephemeral jails",
        sight: Sight::Root,
        check: |host| each_root(host, |_, root| roots::is_owners_alone(root, 0)),
        remedy: on_freebsd(
            "in ROOT: find . -type d ! -path ./tmp \\( -perm +022 -o ! -user 0 \\) -exec chown root {} + -exec chmod go-w {} +; \
             whoever renames a directory of theirs lets the jail out",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "commands start in the roots of their jails",
        sight: Sight::Root,
        check: |host| {
            each_root(host, |command, root| {
                roots::can_start(root, &command.program)
            })
        },
        remedy: on_freebsd(
            "install what is missing into the root: pkg --rootdir ROOT install NAME, or make-root.sh",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "roots of agents have a directory for their doors",
        sight: Sight::Root,
        check: agent_roots,
        remedy: "mkdir -p ROOT/var/run/colibri, all of it directories and no links; make-root.sh -a makes it",
    },
    DoctorCheck {
        name: "the kernel runs programs made for Linux, where an entry has them, and will after a boot",
        sight: Sight::FreeBsd,
        check: linux_kernel,
        remedy: "sysrc linux_enable=YES && service linux start; docs/linux-programs.md",
    },
    DoctorCheck {
        name: "roots of programs made for Linux have what those expect",
        sight: Sight::Root,
        check: linux_roots,
        remedy: "mkdir ROOT/proc ROOT/sys (in ROOT/compat/linux if it is there, with dev); make-root.sh -l makes it",
    },
    DoctorCheck {
        name: "what jails are shown of the host are file systems of its own",
        sight: Sight::Root,
        check: unbounded_mounts,
        remedy: "whoever renames a directory in such a place lets the jail out of it; make-root.sh -w makes a better one",
    },
    DoctorCheck {
        name: "persistent jails run, at the path the entry says, without mdo rules of the host",
        sight: Sight::FreeBsd,
        check: persistent_jails,
        remedy: "service jail start NAME; make root_path what jls -d shows; set mac.do=disable in jail.conf(5)",
    },
    DoctorCheck {
        name: "file systems for jails are loaded, or can be",
        sight: Sight::FreeBsd,
        check: |_| Ok(modules()?),
        remedy: "nullfs_load=\"YES\" and tmpfs_load=\"YES\" in /boot/loader.conf: nothing is loaded once securelevel is up",
    },
    DoctorCheck {
        name: "resource limits that entries ask for can be kept",
        sight: Sight::FreeBsd,
        check: resource_accounting,
        remedy: "kern.racct.enable=1 in /boot/loader.conf, and reboot; or leave memory and processes to the policy",
    },
    DoctorCheck {
        name: "jailed servers have no large pages of memory, which no limit counts",
        sight: Sight::FreeBsd,
        check: large_pages,
        remedy: "vm.pmap.pg_ps_enabled=0 in /boot/loader.conf, and reboot, which takes them from the whole host; or trust \
                 the servers with its memory",
    },
    DoctorCheck {
        name: "jails can be made here",
        sight: Sight::FreeBsd,
        check: |_| can_make_jails(),
        remedy: "run the service on the host, or raise children.max of the jail it is in",
    },
    DoctorCheck {
        name: "the audit log takes lines",
        sight: Sight::Everywhere,
        check: |_| audit(),
        remedy: on_freebsd(
            "service syslogd start; or \"audit\": \"best-effort\" in the policy, which starts servers unrecorded",
            NO_JAILS,
        ),
    },
    DoctorCheck {
        name: "nothing is left of servers that have ended",
        sight: Sight::FreeBsdRoot,
        check: |_| Ok(leftovers()?),
        remedy: "service colibri_mcp sweep",
    },
];

/// Checks every fact of the service, or of a user's own daemon, in the order of the table.
pub(super) fn examine(host: &ExaminedHost) -> Vec<CheckedFact> {
    let table = if host.private.is_some() {
        own::TABLE
    } else {
        TABLE
    };
    table.iter().map(|fact| found(fact, host)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_api::PrivMode;

    #[test]
    fn the_table_has_each_fact_once_and_a_remedy_for_each() {
        for table in [TABLE, own::TABLE] {
            let mut names: Vec<_> = table.iter().map(|fact| fact.name).collect();
            assert!(
                table.iter().all(|fact| fact.remedy.len() > 10),
                "a remedy says what to do"
            );
            names.sort_unstable();
            let before = names.len();
            names.dedup();
            assert_eq!(names.len(), before);
        }
    }

    #[test]
    fn advice_for_a_service_is_given_where_there_is_one() {
        let advice =
            |fact: &&DoctorCheck| !matches!(fact.sight, Sight::FreeBsd | Sight::FreeBsdRoot);
        for fact in TABLE.iter().filter(advice) {
            for word in ["pw group", "service ", "loader.conf", "chown"] {
                assert!(
                    cfg!(target_os = "freebsd") || !fact.remedy.contains(word),
                    "{}: {}",
                    fact.name,
                    fact.remedy
                );
            }
        }
    }

    #[test]
    fn a_machine_without_anything_is_examined_to_the_end() {
        let nowhere = std::path::Path::new("/nonexistent/colibri");
        let host = ExaminedHost {
            private: None,
            helper: nowhere.join("helper"),
            registry: nowhere.join("external-mcp.json"),
            policy: nowhere.join("jail-policy.json"),
            socket: nowhere.join("socket"),
            state_dir: Some(nowhere.join("state")),
            priv_mode: PrivMode::Helper,
            as_root: false,
        };
        let found = examine(&host);
        let of = |name: &str| found.iter().find(|found| found.fact == name).unwrap();
        let helper = of("the helper is installed");
        if cfg!(target_os = "freebsd") {
            assert_eq!(helper.outcome, "bad");
            // The first directory that is not there is what is named.
            assert!(helper.seen.contains("/nonexistent"));
        } else {
            assert_eq!(
                (helper.outcome, helper.remedy),
                ("skipped", None),
                "nobody needs one here"
            );
        }
        assert_eq!(of("the daemon answers").outcome, "bad");
        assert_eq!(of("the registry is root's, and right").outcome, "note");
    }
}

//! The table of facts, and their checks.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use colibri_jail_helper::STATE_DIR;
use nix::unistd::{Group, User, getuid};

use super::entries::{
    each_root, helper_check, persistent_jails, policy, registry, resource_accounting, root_is_complete, secrets,
};
use super::examine::{Fact, Host, Outcome, Sight};
use super::files::{Wanted, is_as, is_roots_alone};
use super::privilege::{contract, helper_mode, helper_mount, mdo_rule, reaches_root};
use super::roots;
use super::system::{is_on_tmpfs, kernel, mount_points, run};

/// The daemon's user and group.
pub(super) const DAEMON: &str = "colibri";
/// The daemon's program, which runs others as its user.
pub(super) const DAEMON_PROGRAM: &str = "/usr/local/sbin/colibri-mcpd";
/// The group of those who may open the socket.
const PEOPLE: &str = "mcpusers";

/// What to do off FreeBSD about facts that only jails need.
const NO_JAILS: &str = "nothing, unless this machine is to run the helper's development sandbox: without FreeBSD's jails \
                        servers run on the host, as you";

/// What to do, on FreeBSD and elsewhere.
const fn on_freebsd(there: &'static str, elsewhere: &'static str) -> &'static str {
    if cfg!(target_os = "freebsd") { there } else { elsewhere }
}

pub(super) const TABLE: &[Fact] = &[
    Fact {
        name: "the system is FreeBSD",
        sight: Sight::Everywhere,
        check: |_| match cfg!(target_os = "freebsd") {
            true => Outcome::Good(
                kernel("kern.version")
                    .unwrap_or_default()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .into(),
            ),
            false => Outcome::Note("jails need FreeBSD; elsewhere servers run on the host".to_owned()),
        },
        remedy: "install Colibri on a FreeBSD host to run servers in jails",
    },
    Fact {
        name: "no jail advisory is open for this release",
        sight: Sight::FreeBsd,
        check: |_| advisories(&kernel("kern.osrelease").unwrap_or_default()),
        remedy: "update the kernel (freebsd-update fetch install, or pkg upgrade -r FreeBSD-base) and reboot",
    },
    Fact {
        name: "the user of the daemon is there",
        sight: Sight::Everywhere,
        check: |_| daemon_user().into(),
        remedy: on_freebsd(
            "install the package, or: pw groupadd colibri && pw useradd colibri -g colibri -d /nonexistent \
                 -s /usr/sbin/nologin",
            NO_JAILS,
        ),
    },
    Fact {
        name: "the daemon's group has no other member",
        sight: Sight::Everywhere,
        check: |_| daemon_group().into(),
        remedy: on_freebsd(
            "pw groupmod colibri -d NAME: whoever is in it may execute the helper and read the registry",
            NO_JAILS,
        ),
    },
    Fact {
        name: "the people's group is another one, with members",
        sight: Sight::Everywhere,
        check: |_| people(),
        remedy: on_freebsd(
            "pw groupadd mcpusers; pw groupmod mcpusers -m NAME for everybody who may open the socket",
            NO_JAILS,
        ),
    },
    Fact {
        name: "the daemon answers",
        sight: Sight::Everywhere,
        check: |host| daemon_answers(host).into(),
        remedy: on_freebsd(
            "service colibri_mcp start; and be a member of mcpusers, in a session that began after that",
            "start it: colibri-mcpd; or name its socket with --socket",
        ),
    },
    Fact {
        name: "the socket is the daemon's and open to the people's group alone",
        sight: Sight::FreeBsdRoot,
        check: |host| socket(host).into(),
        remedy: "stop the service, remove the directory of the socket, start the service: it makes it as it must be",
    },
    Fact {
        name: "the state directory is the daemon's, and outlives a boot",
        sight: Sight::Everywhere,
        check: state_directory,
        remedy: on_freebsd(
            "service colibri_mcp start makes it; on a live image set colibri_mcp_state_dir to a directory on a disk",
            "colibri-mcpd makes it when it starts; --state-dir chooses another",
        ),
    },
    Fact {
        name: "the helper is installed",
        sight: Sight::Everywhere,
        check: |host| {
            is_roots_alone(&host.helper)
                .map(|()| host.helper.display().to_string())
                .into()
        },
        remedy: on_freebsd(
            "install the package; every directory above the helper must be root's and writable by root alone",
            NO_JAILS,
        ),
    },
    Fact {
        name: "the helper may be executed by the daemon alone",
        sight: Sight::Everywhere,
        check: helper_mode,
        remedy: on_freebsd(
            "chown root:colibri and chmod 4550 the helper (0550 for priv mode mdo or sudo)",
            NO_JAILS,
        ),
    },
    Fact {
        name: "the helper's file system lets it become root",
        sight: Sight::Everywhere,
        check: helper_mount,
        remedy: on_freebsd(
            "mount it without nosuid; or use priv mode mdo, and read what that grants: colibri(7)",
            NO_JAILS,
        ),
    },
    Fact {
        name: "helper and this version speak of the same things",
        sight: Sight::Root,
        check: |host| contract(host).into(),
        remedy: on_freebsd(
            "install both from one package, then: service colibri_mcp restart",
            NO_JAILS,
        ),
    },
    Fact {
        name: "priv mode: the daemon's user reaches root through the helper",
        sight: Sight::FreeBsdRoot,
        check: reaches_root,
        remedy: "see the facts about the helper; for sudo and mdo install the rule of /usr/local/share/examples/colibri",
    },
    Fact {
        name: "priv mode mdo: the module is there, with a rule for the daemon",
        sight: Sight::FreeBsd,
        check: mdo_rule,
        remedy: "mac_do_load=\"YES\" in /boot/loader.conf, and in /etc/sysctl.conf the rule of \
                 /usr/local/share/examples/colibri/mdo-15.conf (mdo-14.conf)",
    },
    Fact {
        name: "the registry is root's, and right",
        sight: Sight::Everywhere,
        check: registry,
        remedy: on_freebsd(
            "chown root:colibri, chmod 0640, and correct what is named; then service colibri_mcp reload",
            "correct what is named, then: colibri-mcp reload",
        ),
    },
    Fact {
        name: "the policy is root's, and right",
        sight: Sight::Root,
        check: policy,
        remedy: on_freebsd(
            "chown root:wheel, chmod 0600, and correct what is named: jail-policy.json(5)",
            NO_JAILS,
        ),
    },
    Fact {
        name: "secrets are root's alone",
        sight: Sight::Root,
        check: |host| secrets(host).into(),
        remedy: on_freebsd(
            "chown root, chmod 0700 the directory secrets and 0400 each file in it",
            NO_JAILS,
        ),
    },
    Fact {
        name: "the helper would start every jailed server",
        sight: Sight::FreeBsdRoot,
        check: |host| helper_check(host).into(),
        remedy: "correct what the helper names: external-mcp.json(5), jail-policy.json(5)",
    },
    Fact {
        name: "roots of ephemeral jails are root's, with dev and tmp, and nothing mounted in them",
        sight: Sight::Root,
        check: |host| each_root(host, root_is_complete),
        remedy: on_freebsd(
            "mkdir dev tmp in it, owned by root; build it with make-root.sh: a thin jail's root is not complete",
            NO_JAILS,
        ),
    },
    Fact {
        name: "commands start in the roots of their jails",
        sight: Sight::Root,
        check: |host| each_root(host, |command, root| roots::can_start(root, &command.program)),
        remedy: on_freebsd(
            "install what is missing into the root: pkg --rootdir ROOT install NAME, or make-root.sh",
            NO_JAILS,
        ),
    },
    Fact {
        name: "persistent jails run, at the path the entry says, without mdo rules of the host",
        sight: Sight::FreeBsd,
        check: persistent_jails,
        remedy: "service jail start NAME; make root_path what jls -d shows; set mac.do=disable in jail.conf(5)",
    },
    Fact {
        name: "file systems for jails are loaded, or can be",
        sight: Sight::FreeBsd,
        check: |_| modules().into(),
        remedy: "nullfs_load=\"YES\" and tmpfs_load=\"YES\" in /boot/loader.conf: nothing is loaded once securelevel is up",
    },
    Fact {
        name: "resource limits that entries ask for can be kept",
        sight: Sight::FreeBsd,
        check: resource_accounting,
        remedy: "kern.racct.enable=1 in /boot/loader.conf, and reboot; or leave memory and processes to the policy",
    },
    Fact {
        name: "jails can be made here",
        sight: Sight::FreeBsd,
        check: |_| can_make_jails(),
        remedy: "run the service on the host, or raise children.max of the jail it is in",
    },
    Fact {
        name: "the audit log takes lines",
        sight: Sight::Everywhere,
        check: |_| audit(),
        remedy: on_freebsd(
            "service syslogd start; or \"audit\": \"best-effort\" in the policy, which starts servers unrecorded",
            NO_JAILS,
        ),
    },
    Fact {
        name: "nothing is left of servers that have ended",
        sight: Sight::FreeBsdRoot,
        check: |_| leftovers().into(),
        remedy: "service colibri_mcp sweep",
    },
];

/// Advisories about jails: number, release, the patch level that has the correction. Only what bears on servers in jails
/// as the helper makes them, or enters them.
const ADVISORIES: &[(&str, u32, u32, u32)] = &[
    // Directories passed between jails that share a writable mount. FreeBSD 15 was never affected.
    ("CVE-2025-15576 (FreeBSD-SA-26:04.jail)", 14, 3, 9),
    ("CVE-2025-15547 (allow.mount.nullfs)", 14, 3, 9),
];

/// The oldest release that the binaries run on.
const OLDEST: (u32, u32) = (14, 0);

fn advisories(release: &str) -> Outcome {
    let Some((major, minor, patch)) = parse_release(release) else {
        return Outcome::Note(format!("release {release:?} is not understood"));
    };
    if (major, minor) < OLDEST {
        return Outcome::Bad(format!("{release} is older than FreeBSD {}.{}", OLDEST.0, OLDEST.1));
    }
    // A release before the one an advisory names got no correction at all.
    let open: Vec<_> = ADVISORIES
        .iter()
        .filter(|(_, in_major, in_minor, corrected)| {
            major == *in_major
                && (minor < *in_minor || (minor == *in_minor && patch.is_some_and(|patch| patch < *corrected)))
        })
        .map(|(name, ..)| *name)
        .collect();
    if open.is_empty() {
        Outcome::Good(format!("{release}; this version knows advisories up to February 2026"))
    } else {
        Outcome::Bad(format!("{release} is open to {}", open.join(", ")))
    }
}

/// `15.1-RELEASE-p3` as (15, 1, Some(3)). A branch that is no release (`-STABLE`, `-CURRENT`) has no patch level.
pub(super) fn parse_release(release: &str) -> Option<(u32, u32, Option<u32>)> {
    let mut parts = release.split('-');
    let (major, minor) = parts.next()?.split_once('.')?;
    let kind = parts.next()?;
    let patch = match parts.next() {
        Some(level) => Some(level.strip_prefix('p')?.parse().ok()?),
        None => (kind == "RELEASE").then_some(0),
    };
    Some((major.parse().ok()?, minor.parse().ok()?, patch))
}

pub(super) fn user(name: &str) -> Result<User, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(format!("there is no user {name}")),
        Err(error) => Err(format!("looking up {name}: {error}")),
    }
}

fn group(name: &str) -> Result<Group, String> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group),
        Ok(None) => Err(format!("there is no group {name}")),
        Err(error) => Err(format!("looking up {name}: {error}")),
    }
}

fn daemon_user() -> Result<String, String> {
    let user = user(DAEMON)?;
    let group = group(DAEMON)?;
    if user.uid.is_root() {
        return Err(format!("{DAEMON} is another name of root"));
    }
    if user.gid != group.gid {
        return Err(format!(
            "the primary group of {DAEMON} is gid {}, not {DAEMON}",
            user.gid
        ));
    }
    Ok(format!("uid {}, gid {}", user.uid, user.gid))
}

/// Everybody in a group: its members, and those whose primary group it is.
fn members(group: &Group) -> Vec<String> {
    let mut members = group.mem.clone();
    // The file is what the helper trusts; users of a directory service are seen only as members.
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    for line in passwd.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<_> = line.split(':').collect();
        if let [name, _, _, gid, ..] = fields.as_slice()
            && gid.parse() == Ok(group.gid.as_raw())
            && !members.iter().any(|member| member == name)
        {
            members.push((*name).to_owned());
        }
    }
    members
}

fn daemon_group() -> Result<String, String> {
    let others: Vec<_> = members(&group(DAEMON)?)
        .into_iter()
        .filter(|name| name != DAEMON)
        .collect();
    if others.is_empty() {
        return Ok("the daemon alone".to_owned());
    }
    Err(format!("members besides the daemon: {}", others.join(", ")))
}

fn people() -> Outcome {
    let group = match group(PEOPLE) {
        Ok(group) => group,
        Err(wrong) => return Outcome::Bad(wrong),
    };
    let members = members(&group);
    if members.iter().any(|name| name == DAEMON) {
        return Outcome::Bad(format!("{DAEMON} is in {PEOPLE}: hosted servers could open the socket"));
    }
    if members.is_empty() {
        return Outcome::Note("nobody is in it: only root can use the daemon".to_owned());
    }
    Outcome::Good(members.join(", "))
}

fn daemon_answers(host: &Host) -> Result<String, String> {
    UnixStream::connect(&host.socket)
        .map(|_| host.socket.display().to_string())
        .map_err(|error| format!("{}: {error}", host.socket.display()))
}

fn socket(host: &Host) -> Result<String, String> {
    let uid = user(DAEMON)?.uid.as_raw();
    let directory = host.socket.parent().unwrap_or(Path::new("/"));
    let wanted = |mode| Wanted {
        uid,
        group: Some(PEOPLE),
        mode,
    };
    let directory = is_as(directory, &wanted(0o750))?;
    let socket = is_as(&host.socket, &wanted(0o660))?;
    Ok(format!("{directory}; {socket}"))
}

fn state_directory(host: &Host) -> Outcome {
    let path = &host.state_dir;
    let facts = match path.symlink_metadata() {
        Ok(facts) => facts,
        Err(error) => return Outcome::Bad(format!("{}: {error}", path.display())),
    };
    if cfg!(target_os = "freebsd") {
        let uid = match user(DAEMON) {
            Ok(user) => user.uid.as_raw(),
            Err(wrong) => return Outcome::Bad(wrong),
        };
        if facts.uid() != uid || facts.mode() & 0o027 != 0 {
            return Outcome::Bad(format!(
                "{}: uid {}, mode {:04o}; must be the daemon's, 0750 or less",
                path.display(),
                facts.uid(),
                facts.mode() & 0o7777
            ));
        }
    }
    match is_on_tmpfs(path) {
        Ok(true) => Outcome::Note(format!(
            "{} is on a tmpfs: trail, pins and tasks end with this boot",
            path.display()
        )),
        Ok(false) => Outcome::Good(path.display().to_string()),
        Err(wrong) => Outcome::Skipped(wrong),
    }
}

fn modules() -> Result<String, String> {
    let missing: Vec<_> = ["nullfs", "tmpfs"]
        .into_iter()
        .filter(|name| !run("/sbin/kldstat", &["-q", "-m", name]).is_ok_and(|ran| ran.status == Some(0)))
        .collect();
    let level: i32 = kernel("kern.securelevel")
        .and_then(|level| level.parse().ok())
        .unwrap_or(-1);
    if missing.is_empty() {
        return Ok(format!("nullfs, tmpfs; securelevel {level}"));
    }
    if level > 0 {
        return Err(format!(
            "not loaded: {}; securelevel {level} forbids loading",
            missing.join(", ")
        ));
    }
    Ok(format!(
        "not loaded yet: {}; the service loads them",
        missing.join(", ")
    ))
}

fn can_make_jails() -> Outcome {
    let number = |name: &str| kernel(name).and_then(|value| value.parse::<i64>().ok()).unwrap_or(0);
    if number("security.jail.jailed") == 0 {
        return Outcome::Good("this is no jail itself".to_owned());
    }
    let (most, now) = (
        number("security.jail.children.max"),
        number("security.jail.children.cur"),
    );
    if now >= most {
        return Outcome::Bad(format!("this is a jail with {now} children of at most {most}"));
    }
    Outcome::Note(format!("this is a jail, with {} more children at most", most - now))
}

fn audit() -> Outcome {
    let path = if cfg!(target_os = "freebsd") {
        "/var/run/log"
    } else {
        "/dev/log"
    };
    match Path::new(path).metadata() {
        Ok(facts) if facts.file_type().is_socket() => Outcome::Good(path.to_owned()),
        Ok(_) => Outcome::Bad(format!("{path} is no socket")),
        Err(error) if cfg!(target_os = "freebsd") => Outcome::Bad(format!("{path}: {error}")),
        Err(error) => Outcome::Note(format!("{path}: {error}")),
    }
}

/// Staged directories and jails whose helper does not live.
fn leftovers() -> Result<String, String> {
    if !getuid().is_root() {
        return Err("only root can see them".to_owned());
    }
    let alive = run("/bin/ps", &["-axww", "-o", "command"])?.out;
    let jails = run("/usr/sbin/jls", &["name"])?.out;
    let staged = mount_points()?;
    let staged = staged
        .iter()
        .filter_map(|point| point.strip_prefix(STATE_DIR).ok()?.iter().next()?.to_str());
    let names = jails.lines().filter_map(|name| name.strip_prefix("colibri-"));
    let mut left: Vec<_> = staged
        .chain(names)
        .filter(|session| !alive.contains(&format!("run --session {session} ")))
        .map(str::to_owned)
        .collect();
    left.sort_unstable();
    left.dedup();
    if left.is_empty() {
        return Ok("no jail, no mount".to_owned());
    }
    Err(format!("left of sessions {}", left.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_with_the_advisories() {
        for (release, open) in [
            ("14.3-RELEASE-p8", true),
            ("14.3-RELEASE", true),
            ("14.2-RELEASE-p20", true),
            ("14.3-RELEASE-p9", false),
            ("14.4-RELEASE", false),
            ("15.1-RELEASE-p1", false),
            ("15.1-STABLE", false),
        ] {
            assert_eq!(matches!(advisories(release), Outcome::Bad(_)), open, "{release}");
        }
        assert!(matches!(advisories("13.5-RELEASE-p10"), Outcome::Bad(_)));
        for odd in ["", "x", "15", "15.x-RELEASE", "15.1-RELEASE-q1", "6.1.0-13-amd64"] {
            assert!(!matches!(advisories(odd), Outcome::Good(_)), "{odd}");
        }
    }
}

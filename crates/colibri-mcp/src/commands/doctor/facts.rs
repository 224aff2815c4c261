//! The table of facts, and their checks.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use colibri_jail_helper::policy::Policy;
use colibri_jail_helper::{CONTRACT, POLICY, STATE_DIR};
use colibri_registry::{Command, Jail, Registry};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{Group, User, getuid};

use super::examine::{Fact, Host, Outcome, Sight};
use super::files::{Wanted, is_as, is_roots_alone};
use super::roots;
use super::system::{is_on_tmpfs, kernel, mount_points, run};
use colibri_api::PrivMode;

/// The daemon's user and group.
const DAEMON: &str = "colibri";
/// The daemon's program, which runs others as its user.
const DAEMON_PROGRAM: &str = "/usr/local/sbin/colibri-mcpd";
/// The group of those who may open the socket.
const PEOPLE: &str = "mcpusers";

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
        remedy: "install the package, or: pw groupadd colibri && pw useradd colibri -g colibri -d /nonexistent \
                 -s /usr/sbin/nologin",
    },
    Fact {
        name: "the daemon's group has no other member",
        sight: Sight::Everywhere,
        check: |_| daemon_group().into(),
        remedy: "pw groupmod colibri -d NAME: whoever is in it may execute the helper and read the registry",
    },
    Fact {
        name: "the people's group is another one, with members",
        sight: Sight::Everywhere,
        check: |_| people(),
        remedy: "pw groupadd mcpusers; pw groupmod mcpusers -m NAME for everybody who may open the socket",
    },
    Fact {
        name: "the daemon answers",
        sight: Sight::Everywhere,
        check: |host| daemon_answers(host).into(),
        remedy: "service colibri_mcp start; and be a member of mcpusers, in a session that began after that",
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
        remedy: "service colibri_mcp start makes it; on a live image set colibri_mcp_state_dir to a directory on a disk",
    },
    Fact {
        name: "the helper is installed",
        sight: Sight::Everywhere,
        check: |host| {
            is_roots_alone(&host.helper)
                .map(|()| host.helper.display().to_string())
                .into()
        },
        remedy: "install the package; every directory above the helper must be root's and writable by root alone",
    },
    Fact {
        name: "the helper may be executed by the daemon alone",
        sight: Sight::Everywhere,
        check: helper_mode,
        remedy: "chown root:colibri and chmod 4550 the helper (0550 for priv mode mdo or sudo)",
    },
    Fact {
        name: "the helper's file system lets it become root",
        sight: Sight::Everywhere,
        check: helper_mount,
        remedy: "mount it without nosuid; or use priv mode mdo, and read what that grants: colibri(7)",
    },
    Fact {
        name: "helper and this version speak of the same things",
        sight: Sight::Root,
        check: |host| contract(host).into(),
        remedy: "install both from one package, then: service colibri_mcp restart",
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
        remedy: "chown root:colibri, chmod 0640, and correct what is named; then service colibri_mcp reload",
    },
    Fact {
        name: "the policy is root's, and right",
        sight: Sight::Root,
        check: policy,
        remedy: "chown root:wheel, chmod 0600, and correct what is named: jail-policy.json(5)",
    },
    Fact {
        name: "secrets are root's alone",
        sight: Sight::Root,
        check: |host| secrets(host).into(),
        remedy: "chown root, chmod 0700 the directory secrets and 0400 each file in it",
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
        remedy: "mkdir dev tmp in it, owned by root; build it with make-root.sh: a thin jail's root is not complete",
    },
    Fact {
        name: "commands start in the roots of their jails",
        sight: Sight::Root,
        check: |host| each_root(host, |command, root| roots::can_start(root, &command.program)),
        remedy: "install what is missing into the root: pkg --rootdir ROOT install NAME, or make-root.sh",
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
        remedy: "service syslogd start; or \"audit\": \"best-effort\" in the policy, which starts servers unrecorded",
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
fn parse_release(release: &str) -> Option<(u32, u32, Option<u32>)> {
    let mut parts = release.split('-');
    let (major, minor) = parts.next()?.split_once('.')?;
    let kind = parts.next()?;
    let patch = match parts.next() {
        Some(level) => Some(level.strip_prefix('p')?.parse().ok()?),
        None => (kind == "RELEASE").then_some(0),
    };
    Some((major.parse().ok()?, minor.parse().ok()?, patch))
}

fn user(name: &str) -> Result<User, String> {
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

fn helper_mode(host: &Host) -> Outcome {
    let bare = is_as(&host.helper, &wanted_helper(0o550));
    let setuid = is_as(&host.helper, &wanted_helper(0o4550));
    match (host.priv_mode, setuid, bare) {
        (_, Ok(seen), _) => Outcome::Good(seen),
        (PrivMode::Mdo | PrivMode::Sudo, _, Ok(seen)) => Outcome::Good(seen),
        (_, Err(wrong), _) => Outcome::Bad(wrong),
    }
}

fn wanted_helper(mode: u32) -> Wanted {
    Wanted {
        uid: 0,
        group: Some(DAEMON),
        mode,
    }
}

fn helper_mount(host: &Host) -> Outcome {
    let flags = match statvfs(&host.helper) {
        Ok(facts) => facts.flags(),
        Err(error) => return Outcome::Skipped(format!("{}: {error}", host.helper.display())),
    };
    match (flags.contains(FsFlags::ST_NOSUID), host.priv_mode) {
        (false, _) => Outcome::Good("not mounted nosuid".to_owned()),
        (true, PrivMode::Helper) => Outcome::Bad("mounted nosuid: the set-user-ID bit does nothing".to_owned()),
        (true, mode) => Outcome::Good(format!("mounted nosuid, which priv mode {mode} does not mind")),
    }
}

fn contract(host: &Host) -> Result<String, String> {
    let ran = run(&host.helper.to_string_lossy(), &["--version"])?;
    let number = ran.out.rsplit(' ').next().and_then(|word| word.parse::<u32>().ok());
    match number {
        Some(CONTRACT) => Ok(ran.out),
        _ => Err(format!("the helper says {:?}; contract {CONTRACT} is wanted", ran.out)),
    }
}

/// A real attempt, as the daemon's user, with the one request that does nothing. Where the helper reaches root it says
/// something about the policy at worst; where it does not, it says that.
fn reaches_root(host: &Host) -> Outcome {
    let helper = host.helper.to_string_lossy();
    let before: &[&str] = match host.priv_mode {
        PrivMode::Helper => &[],
        PrivMode::Mdo => &["/usr/bin/mdo", "-i", "-u", "root", "--"],
        PrivMode::Sudo => &["/usr/local/bin/sudo", "-n", "--"],
    };
    // Never through su(1): what that runs keeps root's terminal.
    let words = [&["as", DAEMON, "--"], before, &[&*helper, "check"]].concat();
    let command = format!("colibri-mcpd {}", words.join(" "));
    match run(DAEMON_PROGRAM, &words) {
        // Root was reached, and found something wrong in the files (78), which is another fact; or told the daemon's user,
        // whom it knew, that the report is root's alone.
        Ok(ran) if matches!(ran.status, Some(0 | 78)) || ran.err.contains("rule 'root'") => Outcome::Good(command),
        Ok(ran) => Outcome::Bad(format!(
            "{command} ended with {}: {}",
            ran.status.map_or("a signal".to_owned(), |status| status.to_string()),
            ran.err.lines().next().unwrap_or("no message")
        )),
        Err(wrong) => Outcome::Bad(wrong),
    }
}

fn mdo_rule(host: &Host) -> Outcome {
    if host.priv_mode != PrivMode::Mdo {
        return Outcome::Skipped(format!("priv mode is {}", host.priv_mode));
    }
    let uid = match user(DAEMON) {
        Ok(user) => user.uid.as_raw(),
        Err(wrong) => return Outcome::Bad(wrong),
    };
    if !Path::new("/usr/bin/mdo").exists() {
        return Outcome::Bad("there is no /usr/bin/mdo: FreeBSD 14.2 or later has it".to_owned());
    }
    match (
        kernel("security.mac.do.enabled").as_deref(),
        kernel("security.mac.do.rules"),
    ) {
        (None, _) => Outcome::Bad("the module mac_do is not loaded".to_owned()),
        (Some("0"), _) => Outcome::Bad("security.mac.do.enabled is 0".to_owned()),
        (_, rules) => {
            let rules = rules.unwrap_or_default();
            let major = parse_release(&kernel("kern.osrelease").unwrap_or_default()).map_or(15, |release| release.0);
            match has_rule(&rules, uid, major) {
                true => Outcome::Good(rules),
                false => Outcome::Bad(format!(
                    "no rule for uid {uid} in {rules:?}; in this release's grammar it is {}",
                    if major >= 15 {
                        format!("uid={uid}>uid=0")
                    } else {
                        format!("uid={uid}:0")
                    }
                )),
            }
        }
    }
}

/// Whether mac_do(4) rules let `uid` become root with `mdo -i`: rules are separated by `;` and their halves by `>` from 15
/// on, by `,` and `:` before.
fn has_rule(rules: &str, uid: u32, major: u32) -> bool {
    let (between, within) = if major >= 15 { (';', '>') } else { (',', ':') };
    rules.split(between).any(|rule| {
        let Some((from, to)) = rule.split_once(within) else {
            return false;
        };
        let targets: Vec<_> = to.split(',').map(str::trim).collect();
        let grants = |target: &&str| match major {
            15.. => matches!(*target, "any" | "uid=0" | "uid=*" | "uid=any"),
            _ => matches!(*target, "any" | "*" | "0"),
        };
        from.trim() == format!("uid={uid}") && targets.iter().any(grants)
    })
}

fn read_registry(host: &Host) -> Result<Registry, Outcome> {
    let path = host.registry.display();
    let bytes = std::fs::read(&host.registry).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Outcome::Note(format!("there is no {path}: no external servers")),
        std::io::ErrorKind::PermissionDenied => {
            Outcome::Skipped(format!("{path}: only root and the daemon can read it"))
        }
        _ => Outcome::Bad(format!("{path}: {error}")),
    })?;
    Registry::parse(&bytes, &path.to_string()).map_err(|error| Outcome::Bad(error.to_string()))
}

fn registry(host: &Host) -> Outcome {
    if host.registry.exists()
        && let Err(wrong) = is_roots_alone(&host.registry)
    {
        return Outcome::Bad(wrong);
    }
    match read_registry(host) {
        Ok(registry) => Outcome::Good(format!(
            "{}: {} servers",
            host.registry.display(),
            registry.servers.len()
        )),
        Err(outcome) => outcome,
    }
}

fn policy(host: &Host) -> Outcome {
    let path = host
        .registry
        .with_file_name(Path::new(POLICY).file_name().unwrap_or_default());
    let jailed = read_registry(host).is_ok_and(|registry| jails(&registry).next().is_some());
    if !path.exists() {
        let missing = format!("there is no {}", path.display());
        return if jailed {
            Outcome::Bad(missing)
        } else {
            Outcome::Note(missing)
        };
    }
    if let Err(wrong) = is_roots_alone(&path) {
        return Outcome::Bad(wrong);
    }
    let read = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()));
    match read.and_then(|bytes| Policy::parse(&bytes, &path.to_string_lossy()).map_err(|error| error.to_string())) {
        Ok(policy) if policy.caller != DAEMON => Outcome::Note(format!(
            "the caller is {}: the daemon must run as that user",
            policy.caller
        )),
        Ok(_) if path.metadata().is_ok_and(|facts| facts.mode() & 0o077 != 0) => {
            Outcome::Note(format!("{} can be read by others than root", path.display()))
        }
        Ok(_) => Outcome::Good(path.display().to_string()),
        Err(wrong) => Outcome::Bad(wrong),
    }
}

fn secrets(host: &Host) -> Result<String, String> {
    let directory = host.registry.with_file_name("secrets");
    if !directory.exists() {
        return Ok("none".to_owned());
    }
    is_roots_alone(&directory)?;
    let wanted = |mode| Wanted {
        uid: 0,
        group: None,
        mode,
    };
    is_as(&directory, &wanted(0o700))?;
    let entries = directory
        .read_dir()
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut count = 0;
    for entry in entries {
        let entry = entry.map_err(|error| format!("{}: {error}", directory.display()))?;
        is_as(&entry.path(), &wanted(0o400))?;
        count += 1;
    }
    Ok(format!("{}: {count}", directory.display()))
}

fn helper_check(host: &Host) -> Result<String, String> {
    let ran = run(&host.helper.to_string_lossy(), &["check"])?;
    match ran.status {
        Some(0) => Ok(ran.out.lines().collect::<Vec<_>>().join("; ")),
        _ => {
            let bad = ran
                .out
                .lines()
                .filter(|line| !line.ends_with(": good"))
                .chain(ran.err.lines());
            Err(bad.collect::<Vec<_>>().join("; "))
        }
    }
}

/// The entries with a jail that are not disabled.
fn jails(registry: &Registry) -> impl Iterator<Item = (&String, &Command, &Jail)> {
    registry
        .servers
        .iter()
        .filter(|(_, entry)| !entry.disabled)
        .filter_map(|(id, entry)| {
            let command = entry.command.as_deref()?;
            Some((id, command, command.jail.as_ref()?))
        })
}

/// Applies a check to the root of every ephemeral jail.
fn each_root(host: &Host, check: fn(&Command, &Path) -> Result<(), String>) -> Outcome {
    let registry = match read_registry(host) {
        Ok(registry) => registry,
        Err(outcome) => return outcome,
    };
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (id, command, jail) in jails(&registry) {
        if let (None, Some(root)) = (&jail.name, &jail.path) {
            match check(command, root) {
                Ok(()) => good.push(id.as_str()),
                Err(wrong) => bad.push(format!("{id}: {wrong}")),
            }
        }
    }
    match (good.is_empty(), bad.is_empty()) {
        (true, true) => Outcome::Skipped("no entry has an ephemeral jail".to_owned()),
        (false, true) => Outcome::Good(good.join(", ")),
        _ => Outcome::Bad(bad.join("; ")),
    }
}

fn root_is_complete(_command: &Command, root: &Path) -> Result<(), String> {
    is_roots_alone(root)?;
    for name in ["dev", "tmp"] {
        let point = root.join(name);
        let facts = point
            .symlink_metadata()
            .map_err(|error| format!("{}: {error}", point.display()))?;
        let open = facts.mode() & 0o022 != 0 && facts.mode() & 0o1000 == 0;
        if !facts.is_dir() || facts.uid() != 0 || open {
            return Err(format!(
                "{} must be a directory of root's, sticky if others may write it",
                point.display()
            ));
        }
    }
    let inner = mount_points()?
        .into_iter()
        .find(|point| point != root && point.starts_with(root));
    match inner {
        Some(point) => Err(format!(
            "{} is mounted in it, which the jail will not see",
            point.display()
        )),
        None => Ok(()),
    }
}

fn persistent_jails(host: &Host) -> Outcome {
    let registry = match read_registry(host) {
        Ok(registry) => registry,
        Err(outcome) => return outcome,
    };
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (id, _, jail) in jails(&registry) {
        let Some(name) = &jail.name else { continue };
        match persistent_jail(name, jail.root_path.as_deref()) {
            Ok(()) => good.push(format!("{id} in {name}")),
            Err(wrong) => bad.push(format!("{id}: {wrong}")),
        }
    }
    match (good.is_empty(), bad.is_empty()) {
        (true, true) => Outcome::Skipped("no entry has a persistent jail".to_owned()),
        (false, true) => Outcome::Good(good.join(", ")),
        _ => Outcome::Bad(bad.join("; ")),
    }
}

fn persistent_jail(name: &str, root_path: Option<&Path>) -> Result<(), String> {
    let path = run("/usr/sbin/jls", &["-j", name, "path"])?;
    if path.status != Some(0) {
        return Err(format!("jail {name} is not running"));
    }
    if let Some(wanted) = root_path.filter(|wanted| Path::new(&path.out) != *wanted) {
        return Err(format!("jail {name} is at {}, not at {}", path.out, wanted.display()));
    }
    // A kernel without mac_do has no such parameter, and nothing to inherit.
    let mdo = run("/usr/sbin/jls", &["-j", name, "mac.do"])?;
    if mdo.status == Some(0) && mdo.out == "inherit" {
        return Err(format!("jail {name} inherits mac.do: a server could become root in it"));
    }
    Ok(())
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

fn resource_accounting(host: &Host) -> Outcome {
    if kernel("kern.racct.enable").as_deref() == Some("1") {
        return Outcome::Good("kern.racct.enable is 1".to_owned());
    }
    let asking: Vec<_> = read_registry(host)
        .map(|registry| {
            jails(&registry)
                .filter(|(_, _, jail)| jail.limits.memory.is_some() || jail.limits.processes.is_some())
                .map(|(id, ..)| id.clone())
                .collect()
        })
        .unwrap_or_default();
    if asking.is_empty() {
        return Outcome::Note("off: limits hold for each process, not for a server as a whole".to_owned());
    }
    Outcome::Bad(format!(
        "off, and these entries ask for memory or processes: {}",
        asking.join(", ")
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
    use std::path::PathBuf;

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

    #[test]
    fn mdo_rules_are_read_in_both_grammars() {
        for (rules, major, granted) in [
            ("uid=748>uid=0", 15, true),
            ("gid=0>any; uid=748>gid=5,uid=0", 15, true),
            ("uid=748>any", 15, true),
            ("uid=748>uid=1001", 15, false),
            ("uid=7480>uid=0", 15, false),
            ("uid=748:0", 15, false),
            ("uid=748:0", 14, true),
            ("gid=0:any,uid=748:0", 14, true),
            ("uid=748:80", 14, false),
            ("uid=748>uid=0", 14, false),
            ("", 15, false),
        ] {
            assert_eq!(has_rule(rules, 748, major), granted, "{rules} on {major}");
        }
    }

    struct Etc(tempfile::TempDir);

    impl Etc {
        fn with(registry: &str) -> (Etc, Host) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("external-mcp.json");
            std::fs::write(&path, registry).unwrap();
            let host = Host::here("/s".into(), "/d".into(), PrivMode::Helper, false);
            let host = Host { registry: path, ..host };
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
            matches!(registry(&host), Outcome::Bad(wrong) if wrong.starts_with("/tmp ") || wrong.contains("writable"))
        );
    }

    #[test]
    fn a_wrong_registry_is_named_with_its_place() {
        let (_etc, host) = Etc::with(r#"{"servers":{"a":{"comand":"/x"}}}"#);
        let Err(Outcome::Bad(wrong)) = read_registry(&host) else {
            panic!()
        };
        assert!(wrong.contains(":1:18:") && wrong.contains("command"), "{wrong}");
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
        let outcome = each_root(&host, |command, root| roots::can_start(root, &command.program));
        let Outcome::Bad(wrong) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(wrong.starts_with("a: /bin/a in ") && !wrong.contains("b:"), "{wrong}");
    }

    #[test]
    fn the_samples_that_ship_are_right() {
        let policy = include_str!("../../../../../etc/jail-policy.json.sample");
        let policy = Policy::parse(policy.as_bytes(), "jail-policy.json.sample").unwrap();
        let registry = include_str!("../../../../../etc/external-mcp.json.sample");
        let registry = Registry::parse(registry.as_bytes(), "external-mcp.json.sample").unwrap();
        for (id, entry) in &registry.servers {
            assert!(entry.disabled, "{id}: nothing in a sample may run by itself");
            let Some(command) = &entry.command else { panic!("{id}") };
            let jail = command.jail.as_ref().unwrap();
            assert!(
                policy.lists_server(id) && policy.users.contains_key(id.as_str()),
                "{id}"
            );
            match (&jail.name, &jail.path) {
                (Some(name), _) => assert!(policy.persistent.iter().any(|listed| listed.as_str() == name), "{id}"),
                (None, path) => assert!(
                    policy.ephemeral.iter().any(|listed| Some(listed) == path.as_ref()),
                    "{id}"
                ),
            }
        }
    }
}

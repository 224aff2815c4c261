//! Building an instance's root from mounts, each noted by file system id as soon as it is there,
//! and undoing them by that id. A path can be mounted over, or lead elsewhere tomorrow; an id is
//! the one mount or none.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use colibri_jail_helper::STATE_DIR;
use colibri_jail_helper::names::SessionId;
use colibri_jail_helper::plan::{DOOR, Ephemeral};
use colibri_jail_helper::record::RecordFact;
use colibri_jail_helper::refusal::HelperRefusal;
use colibri_registry::Abi;
use nix::errno::Errno;

use crate::act::files::{self, RequiredOwner};
use crate::act::state::InstanceRecord;
use crate::act::{agent_socket, devfs};
use crate::sys::{self, MountedFileSystem, Parameters};

/// The time for which an unmount is tried before it is forced: a dying process holds its nodes for
/// a moment.
const BUSY: Duration = Duration::from_secs(2);

/// The time for which a forced unmount is tried after that.
const FORCED: Duration = Duration::from_secs(10);

/// True if a jail can connect to the Unix sockets of the host that lie below a directory which it
/// is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sockets {
    /// Not where the kernel can keep it from them (15).
    Barred,
    /// An agent socket is for that.
    Reached,
}

/// Mounts everything of an ephemeral root below the instance's staging directory: for Linux
/// programs what Linux has in `/proc`, `/sys` and `/dev`, too; at last an agent socket.
///
/// # Errors
/// A step failed. What was mounted until then is in the record.
pub(crate) fn stage(
    jail: &Ephemeral,
    door: Option<&OwnedFd>,
    record: &mut InstanceRecord,
) -> Result<(), HelperRefusal> {
    let top = record.root();
    let top_text = top.to_string_lossy().into_owned();
    let root = files::open_directory(&jail.root, RequiredOwner::Root)?;
    let options = |p: Parameters| p.flag("ro").and_then(|p| p.flag("nosuid"));
    mount_from(&root, &top_text, Sockets::Barred, options, record)?;
    let staged = files::open_directory(&top, RequiredOwner::Root)?;
    let mut point =
        |kind: &str, at: &str, options: &dyn Fn(Parameters) -> Result<Parameters, Errno>| {
            files::open_mount_point(&staged, Path::new(at))?;
            let options = |p: Parameters| p.text("from", kind).and_then(options);
            mount(kind, &format!("{top_text}{at}"), options, record).map_err(HelperRefusal::from)
        };
    let size = jail.tmp.to_string();
    let sized = |p: Parameters| p.text("size", &size)?.text("mode", "01777")?.flag("nosuid");
    let tree = match jail.abi {
        Abi::FreeBsd => "",
        Abi::Linux => files::linux_tree(&staged)?,
    };
    // Of two, the first is that of FreeBSD's own programs.
    if !tree.is_empty() {
        devfs::restrict(&point("devfs", "/dev", &Ok)?, Abi::FreeBsd)?;
    }
    devfs::restrict(&point("devfs", &format!("{tree}/dev"), &Ok)?, jail.abi)?;
    point("tmpfs", "/tmp", &sized)?;
    if jail.abi == Abi::Linux {
        let told = |p: Parameters| p.flag("ro")?.flag("nosuid")?.flag("noexec");
        point("linprocfs", &format!("{tree}/proc"), &told)?;
        point("linsysfs", &format!("{tree}/sys"), &told)?;
        // As links to the files, which Linux programs read there. Whatever is opened by one has the
        // options of its own mount.
        point("fdescfs", &format!("{tree}/dev/fd"), &|p| {
            p.flag("linrdlnk")
        })?;
        point("tmpfs", &format!("{tree}/dev/shm"), &sized)?;
    }
    for shown in &jail.mounts {
        // The owner of the source may rename what is on its way at any moment. What is mounted is
        // what was walked to.
        let source = files::open_source(shown)?;
        files::open_mount_point(&staged, &shown.at)?;
        let at = format!("{top_text}{}", shown.at.display());
        let options = |p: Parameters| {
            let p = p.flag("nosuid")?;
            if shown.write { Ok(p) } else { p.flag("ro") }
        };
        mount_from(&source, &at, Sockets::Barred, options, record)?;
    }
    if let Some(door) = door {
        files::open_mount_point(&staged, Path::new(DOOR))?;
        mount_from(
            door,
            &format!("{top_text}{DOOR}"),
            Sockets::Reached,
            only_sockets,
            record,
        )?;
    }
    Ok(())
}

/// Mounts an agent's socket directory so that nothing in it can be written, executed or gained by.
fn only_sockets(p: Parameters) -> Result<Parameters, Errno> {
    p.flag("ro")?.flag("nosuid")?.flag("noexec")
}

/// Walks to the directory of an agent's socket in the persistent jail with this root.
///
/// # Errors
/// Another agent has its agent socket there, or something else is mounted; it is not there, or not
/// root's alone, on the way as well.
pub(crate) fn door_in(jail: &str) -> Result<(OwnedFd, String), HelperRefusal> {
    let at = format!("{}{DOOR}", jail.trim_end_matches('/'));
    match all_mounted()?.iter().find(|mount| mount.on == at) {
        Some(door) if door.from.starts_with(STATE_DIR) => return Err(agent_socket::taken()),
        Some(_) => {
            return Err(HelperRefusal::file(
                agent_socket::RULE,
                format!("{at}: something is mounted there"),
            ));
        }
        None => {}
    }
    let root = files::open_directory(Path::new(jail), RequiredOwner::Root)?;
    let point = files::open_mount_point(&root, Path::new(DOOR))?;
    Ok((point, at))
}

/// Shows an agent socket in a persistent jail. Root of that jail may rename what is on the way
/// there, and the daemon what is on the way to the agent socket: so the agent socket is first
/// mounted where neither can go, and from there on exactly the directory that was walked to. By
/// that source it is known, whatever it is mounted on.
///
/// # Errors
/// A step failed. What was mounted until then is in the record.
pub(crate) fn show_door(
    jail: &str,
    door: &OwnedFd,
    record: &mut InstanceRecord,
) -> Result<(), HelperRefusal> {
    let failed = |tried| move |error| HelperRefusal::system("mount", tried, error);
    let (point, at) = door_in(jail)?;
    let staged = record.root().to_string_lossy().into_owned();
    mount_from(door, &staged, Sockets::Reached, only_sockets, record)?;
    nix::unistd::fchdir(&point).map_err(failed("go to where the door is to be"))?;
    let shown = nmount("nullfs", ".", |p| {
        p.text("target", &staged).and_then(only_sockets)
    });
    nix::unistd::chdir("/").map_err(failed("go back to /"))?;
    let found: Vec<MountedFileSystem> = all_mounted()?
        .into_iter()
        .filter(|m| m.from == staged)
        .collect();
    for mounted in &found {
        record.note(fact_of(mounted))?;
    }
    shown?;
    if !matches!(&found[..], [mounted] if mounted.on == at) {
        return Err(HelperRefusal::file(
            agent_socket::RULE,
            format!("{at}: moved while the door was mounted"),
        ));
    }
    Ok(())
}

fn all_mounted() -> Result<Vec<MountedFileSystem>, HelperRefusal> {
    sys::all_mounted()
        .map_err(|error| HelperRefusal::system("mount", "list what is mounted", error))
}

fn fact_of(mounted: &MountedFileSystem) -> RecordFact {
    RecordFact::Mount {
        fsid: mounted.fsid,
        at: mounted.on.clone(),
    }
}

/// A nullfs of exactly the directory that a descriptor is open on: nmount(2) takes paths alone, so
/// this process goes there and mounts ".".
fn mount_from(
    source: &OwnedFd,
    at: &str,
    sockets: Sockets,
    options: impl Fn(Parameters) -> Result<Parameters, Errno>,
    record: &mut InstanceRecord,
) -> Result<(), HelperRefusal> {
    let failed = |tried| move |error| HelperRefusal::system("mount", tried, error);
    nix::unistd::fchdir(source).map_err(failed("go to the directory to be shown"))?;
    let open = |p: Parameters| p.text("target", ".").and_then(&options);
    let barred = |p: Parameters| open(p)?.flag("nounixbypass");
    let mounted = match sockets {
        Sockets::Reached => mount("nullfs", at, open, record),
        Sockets::Barred => match mount("nullfs", at, barred, record) {
            Err(Mounting::UnknownOption) => mount("nullfs", at, open, record),
            mounted => mounted,
        },
    };
    nix::unistd::chdir("/").map_err(failed("go back to /"))?;
    mounted.map(drop).map_err(HelperRefusal::from)
}

/// The reason for which nothing was mounted.
enum Mounting {
    /// The kernel does not know an option.
    UnknownOption,
    /// Anything else.
    Refused(HelperRefusal),
}

impl From<Mounting> for HelperRefusal {
    fn from(mounting: Mounting) -> Self {
        match mounting {
            Mounting::UnknownOption => {
                Self::system("mount", "mount", "the kernel does not know an option")
            }
            Mounting::Refused(refusal) => refusal,
        }
    }
}

/// Mounts, notes, and opens the root of what was mounted.
fn mount(
    kind: &str,
    at: &str,
    options: impl FnOnce(Parameters) -> Result<Parameters, Errno>,
    record: &mut InstanceRecord,
) -> Result<OwnedFd, Mounting> {
    let failed =
        |tried| move |error| Mounting::Refused(HelperRefusal::system("mount", tried, error));
    nmount(kind, at, options)?;
    let flags =
        nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_CLOEXEC;
    let opened = nix::fcntl::open(at, flags, nix::sys::stat::Mode::empty())
        .map_err(failed("open what was mounted"))?;
    let mounted = sys::mounted_at(opened.as_fd()).map_err(failed("examine what was mounted"))?;
    if mounted.on != at || mounted.kind != kind {
        // Not ours, so not noted; the record's own mounts are undone by the caller.
        return Err(not_mounted(kind, at, "it is not what is there now"));
    }
    record.note(fact_of(&mounted)).map_err(Mounting::Refused)?;
    Ok(opened)
}

/// nmount(2).
fn nmount(
    kind: &str,
    at: &str,
    options: impl FnOnce(Parameters) -> Result<Parameters, Errno>,
) -> Result<(), Mounting> {
    let parameters = Parameters::new()
        .text("fstype", kind)
        .and_then(|p| p.text("fspath", at))
        .and_then(options)
        .and_then(|p| p.room("errmsg", 256));
    let mut parameters = parameters.map_err(|error| not_mounted(kind, at, &error.to_string()))?;
    let Err(error) = sys::nmount(&mut parameters, 0) else {
        return Ok(());
    };
    let why = parameters.read_text("errmsg");
    if error == Errno::EINVAL && why.contains("unknown") {
        return Err(Mounting::UnknownOption);
    }
    Err(not_mounted(kind, at, &format!("{error} {why}")))
}

fn not_mounted(kind: &str, at: &str, why: &str) -> Mounting {
    Mounting::Refused(HelperRefusal::system(
        "mount",
        &format!("mount {kind} on {at}"),
        why,
    ))
}

/// Undoes the mounts that an instance's facts tell of, last first. Returns what could not be
/// undone.
pub(crate) fn undo(session: &SessionId, facts: &[RecordFact]) -> Vec<String> {
    let mut left = Vec::new();
    for fact in facts.iter().rev() {
        if let RecordFact::Mount { fsid, at } = fact
            && let Err(error) = unmount(session, *fsid, at)
        {
            left.push(format!("{at} is still mounted: {error}"));
        }
    }
    left
}

/// The session whose directory a file system is mounted in or, as an agent socket in a persistent
/// jail is, mounted from.
fn session_of(mount: &MountedFileSystem) -> Option<SessionId> {
    [&mount.on, &mount.from].into_iter().find_map(|path| {
        let below = path.strip_prefix(STATE_DIR)?.strip_prefix('/')?;
        SessionId::parse(below.split('/').next()?.as_bytes())
    })
}

/// Undoes what is mounted in or from the directories of such sessions, whatever records say: last
/// first.
pub(crate) fn undo_strays(doomed: &dyn Fn(&SessionId) -> bool) -> Vec<String> {
    let mounted = match sys::all_mounted() {
        Ok(mounted) => mounted,
        Err(error) => return vec![format!("mounts cannot be listed: {error}")],
    };
    let mut left = Vec::new();
    for mount in mounted.iter().rev() {
        if let Some(session) = session_of(mount).filter(doomed)
            && let Err(error) = unmount(&session, mount.fsid, &mount.on)
        {
            left.push(format!("{} is still mounted: {error}", mount.on));
        }
    }
    left
}

/// Unmounts one file system, if the kernel says that it is mounted at `at` and is this session's:
/// with patience while it is busy, then by force, again and again. One that is not there, or has
/// its id from a later mount elsewhere, is unmounted already.
///
/// Force alone does not end it: the kernel can answer EBUSY to force too, and the same unmount
/// succeeds later (observed once on 15.1, in a sweep right after the supervisor of an ephemeral
/// jail was killed; the cause was not found).
fn unmount(session: &SessionId, fsid: [i32; 2], at: &str) -> Result<(), Errno> {
    let begun = Instant::now();
    loop {
        if !sys::all_mounted()?.iter().any(|mount| {
            mount.fsid == fsid && mount.on == at && session_of(mount).as_ref() == Some(session)
        }) {
            return Ok(());
        }
        match sys::unmount(fsid, begun.elapsed() >= BUSY) {
            Ok(()) | Err(Errno::ENOENT | Errno::EINVAL) => return Ok(()),
            Err(Errno::EBUSY) if begun.elapsed() < BUSY + FORCED => {
                std::thread::sleep(Duration::from_millis(20))
            }
            Err(error) => return Err(error),
        }
    }
}

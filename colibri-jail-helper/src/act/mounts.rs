//! Building an instance's root from mounts, each noted by file system id as soon as it is there, and undoing them by
//! that id. A path can be mounted over, or lead elsewhere tomorrow; an id is the one mount or none.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use colibri_jail_helper::STATE_DIR;
use colibri_jail_helper::names::SessionId;
use colibri_jail_helper::plan::Ephemeral;
use colibri_jail_helper::record::Fact;
use colibri_jail_helper::refusal::Refusal;
use nix::errno::Errno;

use crate::act::devfs;
use crate::act::files::{self, Trust};
use crate::act::state::Record;
use crate::sys::{self, Parameters};

/// How long an unmount is tried before it is forced: a dying process holds its nodes for a moment.
const BUSY: Duration = Duration::from_secs(2);

/// How long force is tried after that.
const FORCED: Duration = Duration::from_secs(10);

/// Mounts everything of an ephemeral root below the instance's staging directory.
///
/// # Errors
/// A step failed. What was mounted until then is in the record.
pub(crate) fn stage(jail: &Ephemeral, record: &mut Record) -> Result<(), Refusal> {
    let top = record.root();
    let top_text = top.to_string_lossy().into_owned();
    let root = files::open_directory(&jail.root, Trust::Root)?;
    let options = |p: Parameters| p.flag("ro").and_then(|p| p.flag("nosuid"));
    mount_from(&root, &top_text, options, record)?;
    let staged = files::open_directory(&top, Trust::Root)?;
    files::open_mount_point(&staged, Path::new("/dev"))?;
    let dev = format!("{top_text}/dev");
    let devfs = mount("devfs", &dev, |p| p.text("from", "devfs"), record)?;
    devfs::restrict(&devfs)?;
    files::open_mount_point(&staged, Path::new("/tmp"))?;
    let size = jail.tmp.to_string();
    let options = |p: Parameters| {
        p.text("from", "tmpfs")
            .and_then(|p| p.text("size", &size))
            .and_then(|p| p.text("mode", "01777"))?
            .flag("nosuid")
    };
    mount("tmpfs", &format!("{top_text}/tmp"), options, record)?;
    for shown in &jail.mounts {
        // The owner of the source may rename what is on its way at any moment. What is mounted is what was walked to.
        let source = files::open_directory(&shown.path, Trust::Owner(shown.owner))?;
        files::open_mount_point(&staged, &shown.at)?;
        let at = format!("{top_text}{}", shown.at.display());
        let options = |p: Parameters| {
            let p = p.flag("nosuid")?;
            if shown.write { Ok(p) } else { p.flag("ro") }
        };
        mount_from(&source, &at, options, record)?;
    }
    Ok(())
}

/// A nullfs of exactly the directory that a descriptor is open on: nmount(2) takes paths alone, so this process goes
/// there and mounts ".".
fn mount_from(
    source: &OwnedFd,
    at: &str,
    options: impl Fn(Parameters) -> Result<Parameters, Errno>,
    record: &mut Record,
) -> Result<(), Refusal> {
    let failed = |tried| move |error| Refusal::system("mount", tried, error);
    nix::unistd::fchdir(source).map_err(failed("go to the directory to be shown"))?;
    // A Unix socket below the directory is the host's: where the kernel can (15), the jail cannot connect to it.
    let closed = |p: Parameters| p.text("target", ".")?.flag("nounixbypass").and_then(&options);
    let mounted = match mount("nullfs", at, closed, record) {
        Err(Mounting::UnknownOption) => mount("nullfs", at, |p| p.text("target", ".").and_then(&options), record),
        mounted => mounted,
    };
    nix::unistd::chdir("/").map_err(failed("go back to /"))?;
    mounted.map(drop).map_err(Refusal::from)
}

/// Why nothing was mounted.
enum Mounting {
    /// The kernel does not know an option.
    UnknownOption,
    /// Anything else.
    Refused(Refusal),
}

impl From<Mounting> for Refusal {
    fn from(mounting: Mounting) -> Self {
        match mounting {
            Mounting::UnknownOption => Self::system("mount", "mount", "the kernel does not know an option"),
            Mounting::Refused(refusal) => refusal,
        }
    }
}

/// Mounts, notes, and opens the root of what was mounted.
fn mount(
    kind: &str,
    at: &str,
    options: impl FnOnce(Parameters) -> Result<Parameters, Errno>,
    record: &mut Record,
) -> Result<OwnedFd, Mounting> {
    let failed = |tried| move |error| Mounting::Refused(Refusal::system("mount", tried, error));
    let refused = |error: String| Mounting::Refused(Refusal::system("mount", &format!("mount {kind} on {at}"), error));
    let parameters = Parameters::new()
        .text("fstype", kind)
        .and_then(|p| p.text("fspath", at))
        .and_then(options)
        .and_then(|p| p.room("errmsg", 256));
    let mut parameters = parameters.map_err(failed("name a mount"))?;
    if let Err(error) = sys::nmount(&mut parameters, 0) {
        let why = parameters.read_text("errmsg");
        return Err(if error == Errno::EINVAL && why.contains("unknown") {
            Mounting::UnknownOption
        } else {
            refused(format!("{error} {why}"))
        });
    }
    let flags = nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_CLOEXEC;
    let opened = nix::fcntl::open(at, flags, nix::sys::stat::Mode::empty()).map_err(failed("open what was mounted"))?;
    let mounted = sys::mounted_at(opened.as_fd()).map_err(failed("examine what was mounted"))?;
    if mounted.on != at || mounted.kind != kind {
        // Not ours, so not noted; the record's own mounts are undone by the caller.
        return Err(refused("it is not what is there now".to_owned()));
    }
    let fact = Fact::Mount {
        fsid: mounted.fsid,
        at: at.to_owned(),
    };
    record.note(fact).map_err(Mounting::Refused)?;
    Ok(opened)
}

/// Undoes the mounts that an instance's facts tell of, last first. Returns what could not be undone.
pub(crate) fn undo(session: &SessionId, facts: &[Fact]) -> Vec<String> {
    let below = format!("{STATE_DIR}/{session}/");
    let mut left = Vec::new();
    for fact in facts.iter().rev() {
        if let Fact::Mount { fsid, at } = fact
            && at.starts_with(&below)
            && let Err(error) = unmount(*fsid, at)
        {
            left.push(format!("{at} is still mounted: {error}"));
        }
    }
    left
}

/// Undoes what is mounted in the directories of such sessions, whatever records say: last first.
pub(crate) fn undo_strays(doomed: &dyn Fn(&SessionId) -> bool) -> Vec<String> {
    let mounted = match sys::all_mounted() {
        Ok(mounted) => mounted,
        Err(error) => return vec![format!("mounts cannot be listed: {error}")],
    };
    let mut left = Vec::new();
    for mount in mounted.iter().rev() {
        let below = mount.on.strip_prefix(STATE_DIR).and_then(|rest| rest.strip_prefix('/'));
        let session = below.and_then(|rest| SessionId::parse(rest.split('/').next()?.as_bytes()));
        if session.as_ref().is_some_and(doomed)
            && let Err(error) = unmount(mount.fsid, &mount.on)
        {
            left.push(format!("{} is still mounted: {error}", mount.on));
        }
    }
    left
}

/// Unmounts one file system, if the kernel says that it is mounted at `at`: with patience while it is busy, then by
/// force, again and again. One that is not there, or has its id from a later mount elsewhere, is unmounted already.
///
/// Force alone does not end it: the kernel can answer EBUSY to force too, and the same unmount succeeds later (observed
/// once on 15.1, in a sweep right after the supervisor of an ephemeral jail was killed; the cause was not found).
fn unmount(fsid: [i32; 2], at: &str) -> Result<(), Errno> {
    let begun = Instant::now();
    loop {
        if !sys::all_mounted()?
            .iter()
            .any(|mount| mount.fsid == fsid && mount.on == at)
        {
            return Ok(());
        }
        match sys::unmount(fsid, begun.elapsed() >= BUSY) {
            Ok(()) | Err(Errno::ENOENT | Errno::EINVAL) => return Ok(()),
            Err(Errno::EBUSY) if begun.elapsed() < BUSY + FORCED => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(error),
        }
    }
}

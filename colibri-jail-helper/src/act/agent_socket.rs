//! An agent socket: the one directory of the host that it reaches, made by the daemon and shown by
//! the helper. The daemon owns it, and may be hostile: what is shown is what was walked to,
//! whatever it is called by then.

use std::os::fd::OwnedFd;

use colibri_jail_helper::names::SessionId;
use colibri_jail_helper::plan::PlannedAgent;
use colibri_jail_helper::refusal::{HelperExit, HelperRefusal};
use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, SFlag, fstatat};

use crate::act::files::{self, RequiredOwner};

/// The name of the rule in every refusal of an agent socket.
pub(crate) const RULE: &str = "door";

/// The most sockets in the directory of one agent socket.
const MAX_SOCKETS: usize = 8;

/// The refusal of a second agent in a persistent jail.
pub(crate) fn taken() -> HelperRefusal {
    HelperRefusal::new(
        HelperExit::TryLater,
        RULE,
        "another agent is in this persistent jail, where there is one door at a time",
    )
}

/// Opens the directory of an instance's sockets.
///
/// # Errors
/// [`HelperExit::File`]: it is not there, there is a symlink on the way, it is somebody else's,
/// or holds anything but a few sockets of its owner's. Names in it are not told: they are the owner's words.
pub(crate) fn open(agent: &PlannedAgent, session: &SessionId) -> Result<OwnedFd, HelperRefusal> {
    let path = PlannedAgent::door(session);
    let refuse = |what: &str| HelperRefusal::file(RULE, format!("{}: {what}", path.display()));
    let door = files::open_directory(&path, RequiredOwner::Owner(agent.door_owner)).map_err(
        |refusal| HelperRefusal {
            rule: RULE,
            ..refusal
        },
    )?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let unreadable = |error| refuse(&format!("cannot be read: {error}"));
    let mut listed = Dir::openat(&door, ".", flags, Mode::empty()).map_err(unreadable)?;
    let mut sockets = 0;
    for entry in listed.iter() {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = fstatat(&door, name, AtFlags::AT_SYMLINK_NOFOLLOW).map_err(unreadable)?;
        if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
            return Err(refuse("holds something else than a socket"));
        }
        if stat.st_uid != agent.door_owner {
            return Err(refuse("holds a socket of somebody else's"));
        }
        sockets += 1;
        if sockets > MAX_SOCKETS {
            return Err(refuse("holds more sockets than an agent has"));
        }
    }
    Ok(door)
}

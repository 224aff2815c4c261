//! The requesting user, and the change of this process to root.

use colibri_jail_helper::refusal::{HelperExit, HelperRefusal};
use nix::unistd::{
    Gid, Uid, getegid, geteuid, getgid, getgroups, getresgid, getresuid, getuid, setgroups,
};
use nix::unistd::{setresgid, setresuid};

/// The user who started the helper, as the kernel says; or the user for whom sudo(8) did, if sudo's
/// user is the policy's caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestingUser {
    /// The real user id.
    pub uid: u32,
}

impl RequestingUser {
    /// Whoever started the helper. To be asked first: becoming root changes it.
    pub(crate) fn from_kernel() -> Self {
        Self {
            uid: getuid().as_raw(),
        }
    }

    /// The caller, where root is what sudo(8) made of the caller: that one must not learn by a way
    /// to root what it is not told otherwise. `sudo_uid` counts for nothing but to take rights
    /// away.
    pub(crate) fn through_sudo(self, sudo_uid: Option<u32>, caller: u32) -> Self {
        match sudo_uid {
            Some(uid) if self.is_root() && uid == caller => Self { uid },
            _ => self,
        }
    }

    /// Root may ask whatever the policy's caller may, and more.
    pub(crate) fn is_root(self) -> bool {
        self.uid == 0
    }
}

/// Makes all ids and groups root's.
///
/// This comes before anything else: as long as the real uid is the caller's, the caller may send
/// signals, and stop the program at any instruction.
///
/// # Errors
/// Not root, with the reason; or an id that did not become 0.
pub(crate) fn become_root() -> Result<(), HelperRefusal> {
    if !geteuid().is_root() {
        return Err(not_root());
    }
    let failed = |tried| move |error| HelperRefusal::system("identity", tried, error);
    setgroups(&[]).map_err(failed("setgroups"))?;
    setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0)).map_err(failed("setresgid"))?;
    setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).map_err(failed("setresuid"))?;
    verify(0, 0)
}

/// Gives up root for good: no supplementary groups, all group ids, then all user ids.
///
/// # Errors
/// An id that did not change.
pub(crate) fn become_user(uid: u32, gid: u32) -> Result<(), HelperRefusal> {
    let failed = |tried| move |error| HelperRefusal::system("identity", tried, error);
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    setgroups(&[]).map_err(failed("setgroups"))?;
    setresgid(group, group, group).map_err(failed("setresgid"))?;
    setresuid(user, user, user).map_err(failed("setresuid"))?;
    verify(uid, gid)?;
    // What has to fail is tried: a process that could come back would do so when it is taken over.
    if setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_ok() {
        return Err(HelperRefusal::system(
            "identity",
            "give up root",
            "it can be taken back",
        ));
    }
    Ok(())
}

/// The kernel's word that all ids are these, and no group is left. A FreeBSD kernel puts the
/// effective group into the list for programs linked before 15, so that one group alone, equal to
/// `gid`, is none.
fn verify(uid: u32, gid: u32) -> Result<(), HelperRefusal> {
    let failed = |tried| move |error| HelperRefusal::system("identity", tried, error);
    let users = getresuid().map_err(failed("getresuid"))?;
    let groups = getresgid().map_err(failed("getresgid"))?;
    let others = getgroups().map_err(failed("getgroups"))?;
    let users_good = [users.real, users.effective, users.saved]
        .iter()
        .all(|id| id.as_raw() == uid);
    let groups_good = [groups.real, groups.effective, groups.saved]
        .iter()
        .all(|id| id.as_raw() == gid);
    let none_left = others.iter().all(|id| id.as_raw() == gid) && others.len() <= 1;
    let current = getuid().as_raw() == uid && getegid().as_raw() == gid && getgid().as_raw() == gid;
    if users_good && groups_good && none_left && current {
        Ok(())
    } else {
        Err(HelperRefusal::system(
            "identity",
            "set ids and groups",
            "they are not what was set",
        ))
    }
}

/// The refusal of a program that is installed set-user-ID and runs without root.
fn not_root() -> HelperRefusal {
    let reason = if crate::sys::is_barred_from_privilege().unwrap_or(false) {
        "the caller runs with no_new_privs (PROC_NO_NEW_PRIVS), under which set-user-ID has no effect"
    } else if on_nosuid_mount() {
        "the helper lies on a file system mounted nosuid; use priv mode mdo or sudo"
    } else {
        "the helper's file is not set-user-ID root; it must be 4550 root:colibri"
    };
    HelperRefusal::new(
        HelperExit::System,
        "identity",
        format!("not running as root: {reason}"),
    )
}

fn on_nosuid_mount() -> bool {
    let Ok(executable) = std::env::current_exe() else {
        return false;
    };
    crate::sys::is_on_nosuid_mount(&executable).unwrap_or(false)
}

//! Linux: for the development sandbox alone.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

use colibri_jail_helper::names::SessionId;
use colibri_registry::RctlResource;
use nix::errno::Errno;

use super::ResourceLimit;

/// A resource of setrlimit(2), as libc types it here.
pub(crate) type Resource = libc::__rlimit_resource_t;

/// Every limit of getrlimit(2), and what bounds it in a server.
pub(crate) const RESOURCES: &[(Resource, ResourceLimit)] = &[
    (
        libc::RLIMIT_CPU,
        ResourceLimit::Planned(RctlResource::CpuSeconds),
    ),
    (
        libc::RLIMIT_FSIZE,
        ResourceLimit::Planned(RctlResource::FileSize),
    ),
    // Both are part of the address space.
    (
        libc::RLIMIT_DATA,
        ResourceLimit::Planned(RctlResource::Memory),
    ),
    (
        libc::RLIMIT_RSS,
        ResourceLimit::Planned(RctlResource::Memory),
    ),
    (
        libc::RLIMIT_AS,
        ResourceLimit::Planned(RctlResource::Memory),
    ),
    (
        libc::RLIMIT_STACK,
        ResourceLimit::Planned(RctlResource::Stack),
    ),
    (libc::RLIMIT_CORE, ResourceLimit::Fixed(0)),
    (
        libc::RLIMIT_NPROC,
        ResourceLimit::Planned(RctlResource::Processes),
    ),
    (
        libc::RLIMIT_NOFILE,
        ResourceLimit::Planned(RctlResource::OpenFiles),
    ),
    (
        libc::RLIMIT_MEMLOCK,
        ResourceLimit::Planned(RctlResource::LockedMemory),
    ),
    // Locks of files have not been counted since Linux 2.4.25.
    (libc::RLIMIT_LOCKS, ResourceLimit::Fixed(1024)),
    (libc::RLIMIT_SIGPENDING, ResourceLimit::Fixed(1024)),
    (libc::RLIMIT_MSGQUEUE, ResourceLimit::Fixed(800 << 10)),
    // No better priority than the ordinary one, and no real-time class.
    (libc::RLIMIT_NICE, ResourceLimit::Fixed(0)),
    (libc::RLIMIT_RTPRIO, ResourceLimit::Fixed(0)),
    (libc::RLIMIT_RTTIME, ResourceLimit::Fixed(0)),
];

/// Every kernel knows the limits above.
pub(crate) const YOUNG: &[Resource] = &[];

/// The last signal's number.
pub(crate) const MAX_SIGNAL: c_int = 64;

/// The limits that every system sets, and that a helper neither dies nor starves of.
pub(crate) const HARMLESS: &[Resource] = &[
    libc::RLIMIT_NPROC,
    libc::RLIMIT_MEMLOCK,
    libc::RLIMIT_SIGPENDING,
    libc::RLIMIT_MSGQUEUE,
    libc::RLIMIT_NICE,
    libc::RLIMIT_RTPRIO,
];

/// Always true: the kernel itself refuses `..` from what was moved out of a bound directory
/// (path_connected).
pub(crate) fn holds_its_files(_: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(true)
}

/// Forgets the environment: nothing that a caller put there is ever read.
pub(crate) fn clear_environment() -> Result<(), Errno> {
    // SAFETY: one thread, and no reference into the environment is held.
    Errno::result(unsafe { libc::clearenv() }).map(drop)
}

fn prctl(option: c_int, value: libc::c_ulong) -> Result<c_int, Errno> {
    // SAFETY: the options used here take one number, and no pointer; the unused arguments must be 0
    // (prctl(2)).
    Errno::result(unsafe {
        libc::prctl(
            option,
            value,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
        )
    })
}

/// True if this process, and all it starts, is barred from gaining privilege by a set-user-ID bit.
pub(crate) fn is_barred_from_privilege() -> Result<bool, Errno> {
    Ok(prctl(libc::PR_GET_NO_NEW_PRIVS, 0)? == 1)
}

/// Bars this process, and all it starts, from gaining privilege by execve(2).
pub(crate) fn bar_from_privilege() -> Result<(), Errno> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map(drop)
}

/// Sets the signal that this process gets when its parent dies; `None`: no signal.
pub(crate) fn signal_on_parent_death(
    signal: Option<nix::sys::signal::Signal>,
) -> Result<(), Errno> {
    let number = signal.map_or(0, |signal| signal as libc::c_ulong);
    prctl(libc::PR_SET_PDEATHSIG, number).map(drop)
}

/// Switches off tracing by others of the same user, and core dumps, until the next execve(2).
pub(crate) fn bar_tracing() -> Result<(), Errno> {
    prctl(libc::PR_SET_DUMPABLE, 0).map(drop)
}

/// Goes back to the ordinary scheduling class, priority and processors.
pub(crate) fn reset_scheduling() -> Result<(), Errno> {
    // SAFETY: the structures are plain numbers, live through the calls, of the sizes that are
    // passed; the kernel takes of the processors those that there are.
    unsafe {
        let ordinary: libc::sched_param = std::mem::zeroed();
        Errno::result(libc::sched_setscheduler(0, libc::SCHED_OTHER, &ordinary))?;
        let mut processors: libc::cpu_set_t = std::mem::zeroed();
        for number in 0..libc::CPU_SETSIZE as usize {
            libc::CPU_SET(number, &mut processors);
        }
        Errno::result(libc::sched_setaffinity(
            0,
            size_of::<libc::cpu_set_t>(),
            &processors,
        ))?;
    }
    super::clear_nice()
}

/// The fault of the standard descriptors, which must be three anonymous pipes, read from and
/// written to as their numbers say; `None` if there is none.
pub(crate) fn fault_of_pipes() -> Option<String> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let mut seen = Vec::new();
    for (number, wanted) in [
        (0, OFlag::O_RDONLY),
        (1, OFlag::O_WRONLY),
        (2, OFlag::O_WRONLY),
    ] {
        // SAFETY: borrowed for two calls that fail on a number that is no descriptor.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let anonymous =
            nix::sys::statfs::fstatfs(fd).is_ok_and(|facts| facts.filesystem_type() == PIPEFS);
        if !anonymous {
            return Some(format!("descriptor {number} is not a pipe"));
        }
        let mode = fcntl(fd, FcntlArg::F_GETFL)
            .map(|flags| OFlag::from_bits_truncate(flags) & OFlag::O_ACCMODE);
        if mode != Ok(wanted) {
            return Some(format!("descriptor {number} is the wrong end of a pipe"));
        }
        seen.push(nix::sys::stat::fstat(fd).ok().map(|facts| facts.st_ino));
    }
    seen.sort_unstable();
    seen.dedup();
    (seen.len() != 3).then(|| "two of the descriptors 0, 1 and 2 are one pipe".to_owned())
}

/// PIPEFS_MAGIC of linux/magic.h: the file system of anonymous pipes alone.
const PIPEFS: nix::sys::statfs::FsType = nix::sys::statfs::FsType(0x5049_5045);

/// True if a file has an access control list that says more than its mode.
pub(crate) fn has_acl(fd: std::os::fd::BorrowedFd<'_>) -> Result<bool, Errno> {
    // SAFETY: a C string, and no buffer: the size alone is asked for.
    let size = unsafe {
        libc::fgetxattr(
            fd.as_raw_fd(),
            c"system.posix_acl_access".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    match Errno::result(size) {
        Ok(_) => Ok(true),
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Linux has no login classes: the pid namespace is what holds a server's processes together.
pub(crate) fn mark(_: &SessionId) -> Result<(), Errno> {
    Ok(())
}

/// Leaves the session keyring that was inherited, in which the caller may keep its keys, for an
/// empty one (keyrings(7)). Where a kernel knows no keys, or a container's filter lets nobody ask
/// for them, there is nothing to leave.
pub(crate) fn leave_keyring() -> Result<(), Errno> {
    const JOIN_SESSION_KEYRING: c_int = 1;
    // SAFETY: numbers, and no name: the new keyring is nobody else's.
    let joined = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            JOIN_SESSION_KEYRING,
            std::ptr::null::<libc::c_char>(),
        )
    };
    match Errno::result(joined) {
        Ok(_) | Err(Errno::ENOSYS | Errno::EPERM) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Puts the next child of this process, and all below it, into a pid namespace of its own.
pub(crate) fn separate_children() -> Result<(), Errno> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWPID)
}

/// Raises the loopback interface of this process's network namespace, which then has 127.0.0.1 and
/// ::1 (netdevice(7)).
pub(crate) fn raise_loopback() -> Result<(), Errno> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero ifreq is valid; the ioctls take a pointer to a live one, whose name ends
    // with a NUL, and of its union the flags alone are used.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        Errno::result(libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFFLAGS,
            &mut request,
        ))?;
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        Errno::result(libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS,
            &mut request,
        ))
        .map(drop)
    }
}

/// close_range(2).
pub(crate) fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: closing touches no memory. The callers hold no owner of what is closed that they use
    // afterwards: one calls this before anything was opened, the others are about to exec or to
    // wait only.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) };
    Errno::result(done).map(drop)
}

/// Closes every descriptor beyond 2 except `kept`.
pub(crate) fn close_all_but(kept: c_int) -> Result<(), Errno> {
    let kept = u32::try_from(kept).map_err(|_| Errno::EBADF)?;
    if kept > 3 {
        close_range(3, kept - 1)?;
    }
    close_range(kept.max(2) + 1, u32::MAX)
}

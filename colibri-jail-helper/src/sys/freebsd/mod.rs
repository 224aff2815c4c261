//! FreeBSD: a process's own state, by system call. Constants and structures that the libc crate
//! does not have are those of the headers named beside them, here and in the files below.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

use colibri_jail_helper::names::SessionId;
use colibri_registry::RctlResource;
use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::ResourceLimit;

mod jail;
mod kernel;

pub(crate) use jail::*;
pub(crate) use kernel::*;
use kernel::{c_string, sysctl_read};

/// A resource of setrlimit(2), as libc types it here.
pub(crate) type Resource = c_int;

/// Every limit of sys/resource.h, and what bounds it in a server. The kernel counts the last seven
/// for a user id.
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
        libc::RLIMIT_MEMLOCK,
        ResourceLimit::Planned(RctlResource::LockedMemory),
    ),
    (
        libc::RLIMIT_NOFILE,
        ResourceLimit::Planned(RctlResource::OpenFiles),
    ),
    (
        libc::RLIMIT_NPROC,
        ResourceLimit::Planned(RctlResource::Processes),
    ),
    (
        libc::RLIMIT_SBSIZE,
        ResourceLimit::Planned(RctlResource::SocketBuffers),
    ),
    (
        libc::RLIMIT_NPTS,
        ResourceLimit::Planned(RctlResource::Terminals),
    ),
    (
        libc::RLIMIT_SWAP,
        ResourceLimit::Planned(RctlResource::Swap),
    ),
    (
        libc::RLIMIT_KQUEUES,
        ResourceLimit::Planned(RctlResource::Kqueues),
    ),
    (
        libc::RLIMIT_UMTXP,
        ResourceLimit::Planned(RctlResource::SharedLocks),
    ),
    (
        RLIMIT_PIPEBUF,
        ResourceLimit::Planned(RctlResource::PipeBuffers),
    ),
];

/// sys/resource.h of FreeBSD 15.
const RLIMIT_PIPEBUF: Resource = 15;

/// The limits that a kernel which is still in use does not know.
pub(crate) const YOUNG: &[Resource] = &[RLIMIT_PIPEBUF];

/// The last signal's number (`_SIG_MAXSIG` of sys/_sigset.h).
pub(crate) const MAX_SIGNAL: c_int = 128;

/// Root can lift every limit here.
pub(crate) const HARMLESS: &[Resource] = &[];

/// The ABI note that the kernel reads a program's FreeBSD version from (sys/elf_common.h,
/// NT_FREEBSD_ABI_TAG). zig's link drops the one of crt1, and without it the kernel takes the
/// program for one of FreeBSD 2 and changes signals.
#[repr(C)]
struct AbiNote {
    name_size: u32,
    description_size: u32,
    kind: u32,
    name: [u8; 8],
    version: u32,
}

#[used]
// SAFETY: the section holds ELF notes, and this is one, of the layout that the kernel expects.
#[unsafe(link_section = ".note.tag")]
static ABI_NOTE: AbiNote = AbiNote {
    name_size: 8,
    description_size: 4,
    kind: 1,
    name: *b"FreeBSD\0",
    version: 1_400_500,
};

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
    fn setloginclass(class: *const c_char) -> c_int;
    fn setlogin(name: *const c_char) -> c_int;
    fn acl_get_fd_np(fd: c_int, kind: c_int) -> *mut c_void;
    fn acl_is_trivial_np(acl: *mut c_void, trivial: *mut c_int) -> c_int;
    fn acl_free(acl: *mut c_void) -> c_int;
}

/// Forgets the environment: nothing that a caller put there is ever read.
pub(crate) fn clear_environment() -> Result<(), Errno> {
    // SAFETY: one thread, and no reference into the environment is held; an empty environment is a
    // null pointer, as getenv(3) and environ(7) allow.
    unsafe { environ = std::ptr::null_mut() };
    Ok(())
}

/// procctl(2) on this process, with an argument of type `T`.
fn procctl<T>(command: c_int, argument: *mut T) -> Result<(), Errno> {
    // SAFETY: every caller passes the type that procctl(2) names for its command, or null where it
    // takes none.
    let done = unsafe {
        libc::procctl(
            libc::P_PID,
            libc::id_t::from(std::process::id()),
            command,
            argument.cast(),
        )
    };
    Errno::result(done).map(drop)
}

/// True if this process, and all it starts, is barred from gaining privilege by a set-user-ID bit.
pub(crate) fn is_barred_from_privilege() -> Result<bool, Errno> {
    let mut state: c_int = 0;
    procctl(libc::PROC_NO_NEW_PRIVS_STATUS, &mut state)?;
    Ok(state == libc::PROC_NO_NEW_PRIVS_ENABLE)
}

/// Bars this process, and all it starts, from gaining privilege by execve(2).
pub(crate) fn bar_from_privilege() -> Result<(), Errno> {
    let mut on = libc::PROC_NO_NEW_PRIVS_ENABLE;
    procctl(libc::PROC_NO_NEW_PRIVS_CTL, &mut on)
}

/// Sets the signal that this process gets when its parent dies; `None`: no signal.
pub(crate) fn signal_on_parent_death(signal: Option<Signal>) -> Result<(), Errno> {
    let mut number: c_int = signal.map_or(0, |signal| signal as c_int);
    procctl(libc::PROC_PDEATHSIG_CTL, &mut number)
}

/// Switches off tracing and core dumps of this process and all it starts, execve(2) included.
pub(crate) fn bar_tracing() -> Result<(), Errno> {
    let mut off = libc::PROC_TRACE_CTL_DISABLE_EXEC;
    procctl(libc::PROC_TRACE_CTL, &mut off)
}

/// Marks this process, and everything below it, as a session's: login class and login name, which
/// only root can change. The kernel tells 17 bytes of each, so the name is the session's sixteen
/// digits and nothing else. The caller leads a session of its own: a login name is its whole
/// session's.
pub(crate) fn mark(session: &SessionId) -> Result<(), Errno> {
    let (class, name) = (c_string(&session.mark())?, c_string(session.as_str())?);
    // SAFETY: C strings that live through the calls.
    unsafe {
        Errno::result(setloginclass(class.as_ptr()))?;
        Errno::result(setlogin(name.as_ptr())).map(drop)
    }
}

/// Goes back to the ordinary scheduling class, priority and processors.
pub(crate) fn reset_scheduling() -> Result<(), Errno> {
    const RTP_SET: c_int = 1;
    /// The set of processors that processes have unless somebody gave them another (cpuset(2)).
    const DEFAULT_SET: libc::cpusetid_t = 1;
    let mut ordinary = libc::rtprio {
        type_: libc::RTP_PRIO_NORMAL,
        prio: 0,
    };
    // SAFETY: the structures are plain numbers, live through the calls, of the sizes that are
    // passed. In a jail there is no default set to go to, which does no harm: the jail's own is the
    // widest then.
    unsafe {
        Errno::result(libc::rtprio(RTP_SET, 0, &mut ordinary))?;
        libc::cpuset_setid(libc::CPU_WHICH_PID, -1, DEFAULT_SET);
        let mut processors: libc::cpuset_t = std::mem::zeroed();
        let size = size_of::<libc::cpuset_t>();
        let (set, which) = (libc::CPU_LEVEL_CPUSET, libc::CPU_WHICH_PID);
        Errno::result(libc::cpuset_getaffinity(
            set,
            which,
            -1,
            size,
            &mut processors,
        ))?;
        Errno::result(libc::cpuset_setaffinity(
            libc::CPU_LEVEL_WHICH,
            which,
            -1,
            size,
            &processors,
        ))?;
    }
    super::clear_nice()
}

/// The fault of the standard descriptors, which must be ends of three anonymous pipes; `None` if
/// there is none. Both ends of such a pipe can be read and written here (pipe(2)), so that ends are
/// told by the kernel's own addresses of them.
pub(crate) fn fault_of_pipes() -> Option<String> {
    let Ok(pipes) = pipes_of_this_process() else {
        return Some("the kernel does not tell what the descriptors are".to_owned());
    };
    let mut ends = Vec::new();
    for number in 0..=2 {
        let Some((_, pipe)) = pipes.iter().find(|(fd, _)| *fd == number) else {
            return Some(format!("descriptor {number} is not a pipe"));
        };
        if ends.iter().any(|end| pipe.contains(end)) {
            return Some("two of the descriptors 0, 1 and 2 are one pipe".to_owned());
        }
        ends.extend(pipe);
    }
    None
}

/// The descriptors of this process that are anonymous pipes, each with the addresses of both ends
/// of the pipe.
fn pipes_of_this_process() -> Result<Vec<(c_int, [u64; 2])>, Errno> {
    /// sys/sysctl.h, and of sys/user.h: what a pipe is called, and where a pipe's ends stand in
    /// struct kinfo_file.
    const KERN_PROC_FILEDESC: c_int = 33;
    const PIPE: c_int = 3;
    const ENDS: usize = 304;
    let pid = c_int::try_from(std::process::id()).map_err(|_| Errno::EINVAL)?;
    let oid = [libc::CTL_KERN, libc::KERN_PROC, KERN_PROC_FILEDESC, pid];
    let mut buffer = vec![0; 1 << 20];
    let size = sysctl_read(&oid, &mut buffer)?;
    let mut rest = &buffer[..size];
    let int = |record: &[u8], at: usize| {
        record
            .get(at..at + 4)?
            .try_into()
            .ok()
            .map(c_int::from_ne_bytes)
    };
    let long = |record: &[u8], at: usize| {
        record
            .get(at..at + 8)?
            .try_into()
            .ok()
            .map(u64::from_ne_bytes)
    };
    let mut found = Vec::new();
    // Each record begins with its own size, kind and descriptor.
    while let Some(length) = int(rest, 0)
        .and_then(|length| usize::try_from(length).ok())
        .filter(|n| *n > 0)
    {
        let record = rest.get(..length).ok_or(Errno::EINVAL)?;
        if let (Some(PIPE), Some(fd)) = (int(record, 4), int(record, 8)) {
            let ends = long(record, ENDS)
                .zip(long(record, ENDS + 8))
                .ok_or(Errno::EINVAL)?;
            found.push((fd, [ends.0, ends.1]));
        }
        rest = &rest[length..];
    }
    Ok(found)
}

/// True if a file has an access control list, of either kind, that says more than its mode
/// (acl(3)).
pub(crate) fn has_acl(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    const ACCESS: c_int = 2;
    const NFS4: c_int = 4;
    let fd = fd.as_raw_fd();
    // SAFETY: numbers go in; the list that comes out is freed once and not used after that.
    unsafe {
        let kind = if libc::fpathconf(fd, libc::_PC_ACL_NFS4) == 1 {
            NFS4
        } else if libc::fpathconf(fd, libc::_PC_ACL_EXTENDED) == 1 {
            ACCESS
        } else {
            return Ok(false);
        };
        let list = acl_get_fd_np(fd, kind);
        if list.is_null() {
            return Err(Errno::last());
        }
        let mut trivial = 0;
        let told = Errno::result(acl_is_trivial_np(list, &mut trivial));
        acl_free(list);
        told.map(|_| trivial == 0)
    }
}

/// Makes this process the reaper of all below it.
pub(crate) fn become_reaper() -> Result<(), Errno> {
    procctl::<c_void>(libc::PROC_REAP_ACQUIRE, std::ptr::null_mut())
}

/// sys/procctl.h
#[repr(C)]
struct ReaperKill {
    signal: c_int,
    flags: c_uint,
    subtree: libc::pid_t,
    killed: c_uint,
    first_failed: libc::pid_t,
    pad: [c_uint; 15],
}

/// Signals every descendant of this reaper, and nothing else.
pub(crate) fn signal_descendants(signal: Signal) -> Result<(), Errno> {
    let mut request = ReaperKill {
        signal: signal as c_int,
        flags: 0,
        subtree: 0,
        killed: 0,
        first_failed: 0,
        pad: [0; 15],
    };
    procctl(libc::PROC_REAP_KILL, &mut request)
}

/// close_range(2).
pub(crate) fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: closing touches no memory. The callers hold no owner of what is closed that they use
    // afterwards: one calls this before anything was opened, the other is about to exec.
    Errno::result(unsafe { libc::close_range(first, last, 0) }).map(drop)
}

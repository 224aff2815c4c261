//! FreeBSD: jails, mounts, devfs rules, process control, resource rules, by system call. Constants and structures that
//! the libc crate does not have are those of the headers named beside them.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use colibri_jail_helper::names::SessionId;
use nix::errno::Errno;
use nix::sys::signal::Signal;

/// A resource of setrlimit(2), as libc types it here.
pub type Resource = c_int;

/// Every limit that is inherited.
pub const RESOURCES: &[Resource] = &[
    libc::RLIMIT_CPU,
    libc::RLIMIT_FSIZE,
    libc::RLIMIT_DATA,
    libc::RLIMIT_STACK,
    libc::RLIMIT_CORE,
    libc::RLIMIT_RSS,
    libc::RLIMIT_MEMLOCK,
    libc::RLIMIT_NPROC,
    libc::RLIMIT_NOFILE,
    libc::RLIMIT_SBSIZE,
    libc::RLIMIT_AS,
    libc::RLIMIT_NPTS,
    libc::RLIMIT_SWAP,
    libc::RLIMIT_KQUEUES,
    libc::RLIMIT_UMTXP,
    RLIMIT_PIPEBUF,
];

/// sys/resource.h of FreeBSD 15.
const RLIMIT_PIPEBUF: Resource = 15;

/// The limits that a kernel which is still in use does not know.
pub const YOUNG: &[Resource] = &[RLIMIT_PIPEBUF];

/// The last signal's number (`_SIG_MAXSIG` of sys/_sigset.h).
pub const MAX_SIGNAL: c_int = 128;

/// Root can lift every limit here.
pub const HARMLESS: &[Resource] = &[];

/// The ABI note that the kernel reads a program's FreeBSD version from (sys/elf_common.h, NT_FREEBSD_ABI_TAG). zig's
/// link drops the one of crt1, and without it the kernel takes the program for one of FreeBSD 2 and changes signals.
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
    fn rctl_add_rule(input: *const c_char, input_size: usize, output: *mut c_char, output_size: usize) -> c_int;
    fn rctl_remove_rule(input: *const c_char, input_size: usize, output: *mut c_char, output_size: usize) -> c_int;
    fn rctl_get_rules(input: *const c_char, input_size: usize, output: *mut c_char, output_size: usize) -> c_int;
}

/// Forgets the environment: nothing that a caller put there is ever read.
pub fn clear_environment() -> Result<(), Errno> {
    // SAFETY: one thread, and no reference into the environment is held; an empty environment is a null pointer, as
    // getenv(3) and environ(7) allow.
    unsafe { environ = std::ptr::null_mut() };
    Ok(())
}

/// procctl(2) on this process, with an argument of type `T`.
fn procctl<T>(command: c_int, argument: *mut T) -> Result<(), Errno> {
    // SAFETY: every caller passes the type that procctl(2) names for its command, or null where it takes none.
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

/// Whether this process, and all it starts, is barred from gaining privilege by a set-user-ID bit.
pub fn is_barred_from_privilege() -> Result<bool, Errno> {
    let mut state: c_int = 0;
    procctl(libc::PROC_NO_NEW_PRIVS_STATUS, &mut state)?;
    Ok(state == libc::PROC_NO_NEW_PRIVS_ENABLE)
}

/// Bars this process, and all it starts, from gaining privilege by execve(2).
pub fn bar_from_privilege() -> Result<(), Errno> {
    let mut on = libc::PROC_NO_NEW_PRIVS_ENABLE;
    procctl(libc::PROC_NO_NEW_PRIVS_CTL, &mut on)
}

/// Sets the signal that this process gets when its parent dies; `None`: no signal.
pub fn signal_on_parent_death(signal: Option<Signal>) -> Result<(), Errno> {
    let mut number: c_int = signal.map_or(0, |signal| signal as c_int);
    procctl(libc::PROC_PDEATHSIG_CTL, &mut number)
}

/// Switches off tracing and core dumps of this process and all it starts, execve(2) included.
pub fn bar_tracing() -> Result<(), Errno> {
    let mut off = libc::PROC_TRACE_CTL_DISABLE_EXEC;
    procctl(libc::PROC_TRACE_CTL, &mut off)
}

/// Marks this process, and everything below it, as a session's: login class and login name, which only root can change.
/// The kernel tells 17 bytes of each, so the name is the session's sixteen digits and nothing else. The caller leads a
/// session of its own: a login name is its whole session's.
pub fn mark(session: &SessionId) -> Result<(), Errno> {
    let (class, name) = (c_string(&session.mark())?, c_string(session.as_str())?);
    // SAFETY: C strings that live through the calls.
    unsafe {
        Errno::result(setloginclass(class.as_ptr()))?;
        Errno::result(setlogin(name.as_ptr())).map(drop)
    }
}

/// Goes back to the ordinary scheduling class, priority and processors.
pub fn reset_scheduling() -> Result<(), Errno> {
    const RTP_SET: c_int = 1;
    /// The set of processors that processes have unless somebody gave them another (cpuset(2)).
    const DEFAULT_SET: libc::cpusetid_t = 1;
    let mut ordinary = libc::rtprio {
        type_: libc::RTP_PRIO_NORMAL,
        prio: 0,
    };
    // SAFETY: the structures are plain numbers, live through the calls, of the sizes that are passed. In a jail there is
    // no default set to go to, which does no harm: the jail's own is the widest then.
    unsafe {
        Errno::result(libc::rtprio(RTP_SET, 0, &mut ordinary))?;
        libc::cpuset_setid(libc::CPU_WHICH_PID, -1, DEFAULT_SET);
        let mut processors: libc::cpuset_t = std::mem::zeroed();
        let size = size_of::<libc::cpuset_t>();
        let (set, which) = (libc::CPU_LEVEL_CPUSET, libc::CPU_WHICH_PID);
        Errno::result(libc::cpuset_getaffinity(set, which, -1, size, &mut processors))?;
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

/// What is wrong with the standard descriptors, which must be ends of three anonymous pipes; `None`: nothing. Both ends of
/// such a pipe can be read and written here (pipe(2)), so that ends are told by the kernel's own addresses of them.
pub fn fault_of_pipes() -> Option<String> {
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

/// The descriptors of this process that are anonymous pipes, each with the addresses of both ends of the pipe.
fn pipes_of_this_process() -> Result<Vec<(c_int, [u64; 2])>, Errno> {
    /// sys/sysctl.h, and of sys/user.h: what a pipe is called, and where a pipe's ends stand in struct kinfo_file.
    const KERN_PROC_FILEDESC: c_int = 33;
    const PIPE: c_int = 3;
    const ENDS: usize = 304;
    let pid = c_int::try_from(std::process::id()).map_err(|_| Errno::EINVAL)?;
    let oid = [libc::CTL_KERN, libc::KERN_PROC, KERN_PROC_FILEDESC, pid];
    let mut buffer = vec![0; 1 << 20];
    let size = sysctl_read(&oid, &mut buffer)?;
    let mut rest = &buffer[..size];
    let int = |record: &[u8], at: usize| record.get(at..at + 4)?.try_into().ok().map(c_int::from_ne_bytes);
    let long = |record: &[u8], at: usize| record.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    let mut found = Vec::new();
    // Each record begins with its own size, kind and descriptor.
    while let Some(length) = int(rest, 0)
        .and_then(|length| usize::try_from(length).ok())
        .filter(|n| *n > 0)
    {
        let record = rest.get(..length).ok_or(Errno::EINVAL)?;
        if let (Some(PIPE), Some(fd)) = (int(record, 4), int(record, 8)) {
            let ends = long(record, ENDS).zip(long(record, ENDS + 8)).ok_or(Errno::EINVAL)?;
            found.push((fd, [ends.0, ends.1]));
        }
        rest = &rest[length..];
    }
    Ok(found)
}

/// Whether a file has an access control list, of either kind, that says more than its mode (acl(3)).
pub fn has_acl(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
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
pub fn become_reaper() -> Result<(), Errno> {
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
pub fn signal_descendants(signal: Signal) -> Result<(), Errno> {
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

fn c_string(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| Errno::EINVAL)
}

/// The parameters of jail_set(2), jail_get(2) or nmount(2): names and values, in order.
#[derive(Default)]
pub struct Parameters(Vec<(CString, Vec<u8>)>);

impl Parameters {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A name with the bytes of its value, which the kernel may overwrite.
    pub fn bytes(mut self, name: &str, value: Vec<u8>) -> Result<Self, Errno> {
        self.0.push((c_string(name)?, value));
        Ok(self)
    }

    /// A string.
    pub fn text(self, name: &str, value: &str) -> Result<Self, Errno> {
        self.bytes(name, c_string(value)?.into_bytes_with_nul())
    }

    /// A number.
    pub fn number(self, name: &str, value: c_int) -> Result<Self, Errno> {
        self.bytes(name, value.to_ne_bytes().to_vec())
    }

    /// A name alone, which is what a boolean is.
    pub fn flag(self, name: &str) -> Result<Self, Errno> {
        self.bytes(name, Vec::new())
    }

    /// Room for a string that the kernel writes.
    pub fn room(self, name: &str, size: usize) -> Result<Self, Errno> {
        self.bytes(name, vec![0; size])
    }

    /// The string that now stands in a parameter.
    pub fn read_text(&self, name: &str) -> String {
        let bytes = self
            .0
            .iter()
            .find(|(n, _)| n.as_bytes() == name.as_bytes())
            .map_or(&[][..], |(_, v)| v);
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// The number that now stands in a parameter.
    pub fn read_number(&self, name: &str) -> Option<c_int> {
        let (_, bytes) = self.0.iter().find(|(n, _)| n.as_bytes() == name.as_bytes())?;
        Some(c_int::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
    }

    fn vectors(&mut self) -> Vec<libc::iovec> {
        let mut vectors = Vec::with_capacity(self.0.len() * 2);
        for (name, value) in &mut self.0 {
            let name_size = name.as_bytes_with_nul().len();
            vectors.push(libc::iovec {
                iov_base: name.as_ptr().cast_mut().cast(),
                iov_len: name_size,
            });
            let base = if value.is_empty() {
                std::ptr::null_mut()
            } else {
                value.as_mut_ptr().cast()
            };
            vectors.push(libc::iovec {
                iov_base: base,
                iov_len: value.len(),
            });
        }
        vectors
    }
}

/// sys/jail.h (15): returns a descriptor that owns the jail.
pub const JAIL_OWN_DESC: c_int = 0x80;

/// jail_set(2). Returns the jail's id.
pub fn jail_set(parameters: &mut Parameters, flags: c_int) -> Result<c_int, Errno> {
    let mut vectors = parameters.vectors();
    // SAFETY: the vectors point into `parameters`, which lives through the call and is ours to write.
    Errno::result(unsafe { libc::jail_set(vectors.as_mut_ptr(), vectors.len() as c_uint, flags) })
}

/// jail_get(2). Returns the jail's id.
pub fn jail_get(parameters: &mut Parameters, flags: c_int) -> Result<c_int, Errno> {
    let mut vectors = parameters.vectors();
    // SAFETY: as for jail_set.
    Errno::result(unsafe { libc::jail_get(vectors.as_mut_ptr(), vectors.len() as c_uint, flags) })
}

/// jail_attach(2): puts this process into a jail.
pub fn jail_attach(jid: c_int) -> Result<(), Errno> {
    // SAFETY: takes a number.
    Errno::result(unsafe { libc::jail_attach(jid) }).map(drop)
}

/// jail_remove(2): ends a jail and kills all that is in it.
pub fn jail_remove(jid: c_int) -> Result<(), Errno> {
    // SAFETY: takes a number.
    Errno::result(unsafe { libc::jail_remove(jid) }).map(drop)
}

/// Takes a descriptor that jail_set(2) has made, and sets it close-on-exec, which the kernel does not.
pub fn take_descriptor(fd: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: the kernel has just made it for this process, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    Ok(fd)
}

/// nmount(2).
pub fn nmount(parameters: &mut Parameters, flags: c_int) -> Result<(), Errno> {
    let mut vectors = parameters.vectors();
    // SAFETY: as for jail_set.
    Errno::result(unsafe { libc::nmount(vectors.as_mut_ptr(), vectors.len() as c_uint, flags) }).map(drop)
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// `f_fsid`.
    pub fsid: [i32; 2],
    /// Its type.
    pub kind: String,
    /// Where it is mounted.
    pub on: String,
}

impl Mounted {
    fn from_statfs(found: &libc::statfs) -> Self {
        let text = |chars: &[c_char]| {
            let bytes: Vec<u8> = chars.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        // SAFETY: fsid_t is a struct of two i32 (sys/_types.h), whose field libc keeps private.
        let fsid = unsafe { std::ptr::from_ref(&found.f_fsid).cast::<[i32; 2]>().read() };
        Self {
            fsid,
            kind: text(&found.f_fstypename),
            on: text(&found.f_mntonname),
        }
    }
}

/// The file system that a descriptor lies on.
pub fn mounted_at(fd: BorrowedFd<'_>) -> Result<Mounted, Errno> {
    // SAFETY: an all-zero statfs is valid, and the call writes no more than one.
    let found = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        Errno::result(libc::fstatfs(fd.as_raw_fd(), &mut found))?;
        found
    };
    Ok(Mounted::from_statfs(&found))
}

/// Every mounted file system.
pub fn all_mounted() -> Result<Vec<Mounted>, Errno> {
    const MNT_NOWAIT: c_int = 2;
    // SAFETY: a null buffer asks for the number; then the buffer has room for as many bytes as are told, and only the
    // entries that the kernel says it wrote are looked at.
    unsafe {
        let number = Errno::result(libc::getfsstat(std::ptr::null_mut(), 0, MNT_NOWAIT))?;
        let mut found: Vec<libc::statfs> = vec![std::mem::zeroed(); number as usize + 16];
        let size = std::mem::size_of_val(found.as_slice()) as libc::c_long;
        let number = Errno::result(libc::getfsstat(found.as_mut_ptr(), size, MNT_NOWAIT))?;
        Ok(found.iter().take(number as usize).map(Mounted::from_statfs).collect())
    }
}

/// unmount(2) by file system id.
pub fn unmount(fsid: [i32; 2], force: bool) -> Result<(), Errno> {
    let name = c_string(&format!("FSID:{}:{}", fsid[0], fsid[1]))?;
    let flags = libc::MNT_BYFSID | if force { libc::MNT_FORCE } else { 0 };
    // SAFETY: a C string that lives through the call.
    Errno::result(unsafe { libc::unmount(name.as_ptr(), flags) }).map(drop)
}

/// sys/fs/devfs/devfs.h
#[repr(C)]
struct DevfsRule {
    magic: u32,
    id: u32,
    conditions: c_int,
    device_flags: c_int,
    pattern: [u8; 200],
    actions: c_int,
    boolean_actions: c_int,
    uid: u32,
    gid: u32,
    mode: u16,
    included_set: u16,
}

const fn ioctl_number(direction: u64, number: u64, size: usize) -> u64 {
    direction | ((size as u64 & 0x1fff) << 16) | ((b'D' as u64) << 8) | number
}

const IOC_IN: u64 = 0x8000_0000;
const IOC_INOUT: u64 = 0xc000_0000;

/// Adds a rule to a set of devfs(8): hides everything, or shows what matches the pattern. A rule of this number that is
/// there already stays.
pub fn devfs_add_rule(devfs: BorrowedFd<'_>, set: u16, number: u16, show: Option<&str>) -> Result<(), Errno> {
    const MAGIC: u32 = 0xdb0a_087a;
    let mut rule = DevfsRule {
        magic: MAGIC,
        id: (u32::from(set) << 16) | u32::from(number),
        conditions: if show.is_some() { 0x002 } else { 0 },
        device_flags: 0,
        pattern: [0; 200],
        actions: 0x001,
        boolean_actions: if show.is_some() { 0x002 } else { 0x001 },
        uid: 0,
        gid: 0,
        mode: 0,
        included_set: 0,
    };
    for (to, from) in rule.pattern.iter_mut().take(199).zip(show.unwrap_or_default().bytes()) {
        *to = from;
    }
    let request = ioctl_number(IOC_INOUT, 0, std::mem::size_of::<DevfsRule>());
    // SAFETY: DEVFSIO_RADD takes a pointer to a devfs_rule, of this layout.
    match Errno::result(unsafe { libc::ioctl(devfs.as_raw_fd(), request, &mut rule) }) {
        Ok(_) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a devfs mount follow a set, now and for devices that appear later.
pub fn devfs_use_set(devfs: BorrowedFd<'_>, set: u16) -> Result<(), Errno> {
    for number in [10, 11] {
        let request = ioctl_number(IOC_IN, number, std::mem::size_of::<u16>());
        let mut set = set;
        // SAFETY: DEVFSIO_SUSE and DEVFSIO_SAPPLY take a pointer to a devfs_rsnum, which is 16 bits.
        Errno::result(unsafe { libc::ioctl(devfs.as_raw_fd(), request, &mut set) })?;
    }
    Ok(())
}

/// A number that sysctl(3) knows by name; `None` if it does not.
pub fn sysctl_number(name: &str) -> Option<c_int> {
    let name = c_string(name).ok()?;
    let mut value: c_int = 0;
    let mut size = std::mem::size_of::<c_int>();
    // SAFETY: pointer and size are of one c_int; nothing is set.
    let done = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            std::ptr::from_mut(&mut value).cast(),
            &mut size,
            std::ptr::null(),
            0,
        )
    };
    (done == 0).then_some(value)
}

/// Whether sysctl(3) knows the name, whatever its value.
pub fn sysctl_exists(name: &str) -> bool {
    oid_of(name).is_ok()
}

fn oid_of(name: &str) -> Result<Vec<c_int>, Errno> {
    let name = c_string(name)?;
    let mut oid = [0; 24];
    let mut size = oid.len();
    // SAFETY: `oid` has room for `size` numbers, the most that there are (CTL_MAXNAME).
    Errno::result(unsafe { libc::sysctlnametomib(name.as_ptr(), oid.as_mut_ptr(), &mut size) })?;
    Ok(oid[..size].to_vec())
}

fn sysctl_read(oid: &[c_int], buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut size = buffer.len();
    // SAFETY: the pointers and sizes are of live slices; nothing is set.
    let done = unsafe {
        libc::sysctl(
            oid.as_ptr(),
            oid.len() as c_uint,
            buffer.as_mut_ptr().cast(),
            &mut size,
            std::ptr::null(),
            0,
        )
    };
    Errno::result(done)?;
    Ok(size)
}

/// The names below a node of sysctl(3), as the kernel has them, in its order. The first two numbers of the object ids
/// are those of sysctl(8): {0, 1} gives a name, {0, 2} what comes next.
pub fn sysctl_names_below(node: &str) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    let mut at = oid_of(node)?;
    let prefix = format!("{node}.");
    loop {
        let mut buffer = [0; 24 * 4];
        let next = match sysctl_read(&[&[0, 2], at.as_slice()].concat(), &mut buffer) {
            Ok(size) => &buffer[..size],
            Err(Errno::ENOENT) => return Ok(names),
            Err(error) => return Err(error),
        };
        at = next
            .chunks_exact(4)
            .map(|n| c_int::from_ne_bytes([n[0], n[1], n[2], n[3]]))
            .collect();
        let mut text = [0; 512];
        let size = sysctl_read(&[&[0, 1], at.as_slice()].concat(), &mut text)?;
        let name = CStr::from_bytes_until_nul(&text[..size])
            .map_err(|_| Errno::EINVAL)?
            .to_string_lossy()
            .into_owned();
        match name.strip_prefix(&prefix) {
            Some(rest) => names.push(rest.to_owned()),
            None => return Ok(names),
        }
    }
}

/// A process, as far as sweeping needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// The session whose mark it bears.
    pub session: Option<SessionId>,
}

/// The session of a process of this login class and login name, each as far as the kernel tells it (LOGINCLASSLEN,
/// LOGNAMELEN): all sixteen digits, and the same ones in both.
fn marked(class: &[c_char], name: &[c_char]) -> Option<SessionId> {
    let text = |chars: &[c_char]| -> Vec<u8> { chars.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect() };
    let session = SessionId::parse(&text(name))?;
    let told = text(class);
    (told.len() == class.len() - 1 && session.mark().as_bytes().starts_with(&told)).then_some(session)
}

/// Every process, zombies left out.
pub fn processes() -> Result<Vec<Process>, Errno> {
    const KERN_PROC_PROC: c_int = 8;
    const ZOMBIE: c_char = 5;
    let oid = [libc::CTL_KERN, libc::KERN_PROC, KERN_PROC_PROC, 0];
    let stride = std::mem::size_of::<libc::kinfo_proc>();
    // Room for more than there can be: what does not fit is an ENOMEM, and tried again with twice the room.
    let mut room = 1 << 20;
    let (buffer, size) = loop {
        let mut buffer = vec![0; room];
        match sysctl_read(&oid[..3], &mut buffer) {
            Ok(size) => break (buffer, size),
            Err(Errno::ENOMEM) if room < 1 << 28 => room *= 2,
            Err(error) => return Err(error),
        }
    };
    let mut found = Vec::new();
    for bytes in buffer[..size].chunks_exact(stride) {
        // SAFETY: kinfo_proc is plain data, and the slice is as long as one; it may lie at any address.
        let process: libc::kinfo_proc = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        if process.ki_structsize as usize != stride {
            return Err(Errno::ENOTSUP);
        }
        if process.ki_stat == ZOMBIE {
            continue;
        }
        found.push(Process {
            pid: process.ki_pid,
            session: marked(&process.ki_loginclass, &process.ki_login),
        });
    }
    Ok(found)
}

/// Adds a resource rule, rctl(8) grammar.
pub fn add_resource_rule(rule: &str) -> Result<(), Errno> {
    let rule = c_string(rule)?;
    let size = rule.as_bytes_with_nul().len();
    // SAFETY: pointer and size are of one C string; no output is asked for.
    Errno::result(unsafe { rctl_add_rule(rule.as_ptr(), size, std::ptr::null_mut(), 0) }).map(drop)
}

/// Removes all resource rules that match.
pub fn remove_resource_rules(filter: &str) -> Result<(), Errno> {
    let filter = c_string(filter)?;
    let size = filter.as_bytes_with_nul().len();
    // SAFETY: as for add_resource_rule.
    Errno::result(unsafe { rctl_remove_rule(filter.as_ptr(), size, std::ptr::null_mut(), 0) }).map(drop)
}

/// The resource rules that match.
pub fn resource_rules(filter: &str) -> Result<Vec<String>, Errno> {
    let filter = c_string(filter)?;
    let size = filter.as_bytes_with_nul().len();
    let mut output = vec![0u8; 1 << 20];
    // SAFETY: pointers and sizes are of one C string and one buffer.
    let done = unsafe { rctl_get_rules(filter.as_ptr(), size, output.as_mut_ptr().cast(), output.len()) };
    Errno::result(done)?;
    let end = output.iter().position(|b| *b == 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&output[..end]).into_owned();
    Ok(text
        .split(',')
        .filter(|rule| !rule.is_empty())
        .map(str::to_owned)
        .collect())
}

/// close_range(2).
pub fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: closing touches no memory. The callers hold no owner of what is closed that they use afterwards: one
    // calls this before anything was opened, the other is about to exec.
    Errno::result(unsafe { libc::close_range(first, last, 0) }).map(drop)
}

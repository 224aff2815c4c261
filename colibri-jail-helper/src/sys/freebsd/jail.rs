//! Jails, mounts and the rules of devfs mounts.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

use super::kernel::c_string;

/// The parameters of jail_set(2), jail_get(2) or nmount(2): names and values, in order.
#[derive(Default)]
pub(crate) struct Parameters(Vec<(CString, Vec<u8>)>);

impl Parameters {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A name with the bytes of its value, which the kernel may overwrite.
    pub(crate) fn bytes(mut self, name: &str, value: Vec<u8>) -> Result<Self, Errno> {
        self.0.push((c_string(name)?, value));
        Ok(self)
    }

    /// A string.
    pub(crate) fn text(self, name: &str, value: &str) -> Result<Self, Errno> {
        self.bytes(name, c_string(value)?.into_bytes_with_nul())
    }

    /// A number.
    pub(crate) fn number(self, name: &str, value: c_int) -> Result<Self, Errno> {
        self.bytes(name, value.to_ne_bytes().to_vec())
    }

    /// A name alone, which is what a boolean is.
    pub(crate) fn flag(self, name: &str) -> Result<Self, Errno> {
        self.bytes(name, Vec::new())
    }

    /// Room for a string that the kernel writes.
    pub(crate) fn room(self, name: &str, size: usize) -> Result<Self, Errno> {
        self.bytes(name, vec![0; size])
    }

    /// The string that now stands in a parameter.
    pub(crate) fn read_text(&self, name: &str) -> String {
        let bytes = self
            .0
            .iter()
            .find(|(n, _)| n.as_bytes() == name.as_bytes())
            .map_or(&[][..], |(_, v)| v);
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// The number that now stands in a parameter.
    pub(crate) fn read_number(&self, name: &str) -> Option<c_int> {
        let (_, bytes) = self
            .0
            .iter()
            .find(|(n, _)| n.as_bytes() == name.as_bytes())?;
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
pub(crate) const JAIL_OWN_DESC: c_int = 0x80;

/// jail_set(2). Returns the jail's id.
pub(crate) fn jail_set(parameters: &mut Parameters, flags: c_int) -> Result<c_int, Errno> {
    let mut vectors = parameters.vectors();
    // SAFETY: the vectors point into `parameters`, which lives through the call and is ours to
    // write.
    Errno::result(unsafe { libc::jail_set(vectors.as_mut_ptr(), vectors.len() as c_uint, flags) })
}

/// jail_get(2). Returns the jail's id.
pub(crate) fn jail_get(parameters: &mut Parameters, flags: c_int) -> Result<c_int, Errno> {
    let mut vectors = parameters.vectors();
    // SAFETY: as for jail_set.
    Errno::result(unsafe { libc::jail_get(vectors.as_mut_ptr(), vectors.len() as c_uint, flags) })
}

/// jail_attach(2): puts this process into a jail.
pub(crate) fn jail_attach(jid: c_int) -> Result<(), Errno> {
    // SAFETY: takes a number.
    Errno::result(unsafe { libc::jail_attach(jid) }).map(drop)
}

/// jail_remove(2): ends a jail and kills all that is in it.
pub(crate) fn jail_remove(jid: c_int) -> Result<(), Errno> {
    // SAFETY: takes a number.
    Errno::result(unsafe { libc::jail_remove(jid) }).map(drop)
}

/// Takes a descriptor that jail_set(2) has made, and sets it close-on-exec, which the kernel does
/// not.
pub(crate) fn take_descriptor(fd: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: the kernel has just made it for this process, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    nix::fcntl::fcntl(
        &fd,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC),
    )?;
    Ok(fd)
}

/// nmount(2).
pub(crate) fn nmount(parameters: &mut Parameters, flags: c_int) -> Result<(), Errno> {
    let mut vectors = parameters.vectors();
    // SAFETY: as for jail_set.
    Errno::result(unsafe { libc::nmount(vectors.as_mut_ptr(), vectors.len() as c_uint, flags) })
        .map(drop)
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountedFileSystem {
    /// `f_fsid`.
    pub fsid: [i32; 2],
    /// Its type.
    pub kind: String,
    /// The mount's source, in the words of the program that mounted it.
    pub from: String,
    /// The directory on which it is mounted.
    pub on: String,
}

impl MountedFileSystem {
    fn from_statfs(found: &libc::statfs) -> Self {
        let text = |chars: &[c_char]| {
            let bytes: Vec<u8> = chars
                .iter()
                .take_while(|c| **c != 0)
                .map(|c| *c as u8)
                .collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        // SAFETY: fsid_t is a struct of two i32 (sys/_types.h), whose field libc keeps private.
        let fsid = unsafe { std::ptr::from_ref(&found.f_fsid).cast::<[i32; 2]>().read() };
        Self {
            fsid,
            kind: text(&found.f_fstypename),
            from: text(&found.f_mntfromname),
            on: text(&found.f_mntonname),
        }
    }
}

/// The file system that a descriptor lies on.
pub(crate) fn mounted_at(fd: BorrowedFd<'_>) -> Result<MountedFileSystem, Errno> {
    // SAFETY: an all-zero statfs is valid, and the call writes no more than one.
    let found = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        Errno::result(libc::fstatfs(fd.as_raw_fd(), &mut found))?;
        found
    };
    Ok(MountedFileSystem::from_statfs(&found))
}

/// True if the file system of `fd` holds its files itself, so that `..` leads from each of them to
/// its root at most. A view of another file system (nullfs, unionfs, what a fuse program shows)
/// does not, and a network's may not: a server exports directories.
pub(crate) fn holds_its_files(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let kind = mounted_at(fd)?.kind;
    Ok(matches!(kind.as_str(), "ufs" | "zfs" | "tmpfs"))
}

/// Every mounted file system.
pub(crate) fn all_mounted() -> Result<Vec<MountedFileSystem>, Errno> {
    const MNT_NOWAIT: c_int = 2;
    // SAFETY: a null buffer asks for the number; then the buffer has room for as many bytes as are
    // told, and only the entries that the kernel says it wrote are looked at.
    unsafe {
        let number = Errno::result(libc::getfsstat(std::ptr::null_mut(), 0, MNT_NOWAIT))?;
        let mut found: Vec<libc::statfs> = vec![std::mem::zeroed(); number as usize + 16];
        let size = std::mem::size_of_val(found.as_slice()) as libc::c_long;
        let number = Errno::result(libc::getfsstat(found.as_mut_ptr(), size, MNT_NOWAIT))?;
        Ok(found
            .iter()
            .take(number as usize)
            .map(MountedFileSystem::from_statfs)
            .collect())
    }
}

/// unmount(2) by file system id.
pub(crate) fn unmount(fsid: [i32; 2], force: bool) -> Result<(), Errno> {
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

/// sys/ioccom.h
const fn ioctl_number(direction: u64, group: u8, number: u64, size: usize) -> u64 {
    direction | ((size as u64 & 0x1fff) << 16) | ((group as u64) << 8) | number
}

const IOC_IN: u64 = 0x8000_0000;
const IOC_INOUT: u64 = 0xc000_0000;

/// Adds a rule to a set of devfs(8): hides everything, or shows what matches the pattern. A rule of
/// this number that is there already stays.
pub(crate) fn devfs_add_rule(
    devfs: BorrowedFd<'_>,
    set: u16,
    number: u16,
    show: Option<&str>,
) -> Result<(), Errno> {
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
    for (to, from) in rule
        .pattern
        .iter_mut()
        .take(199)
        .zip(show.unwrap_or_default().bytes())
    {
        *to = from;
    }
    let request = ioctl_number(IOC_INOUT, b'D', 0, std::mem::size_of::<DevfsRule>());
    // SAFETY: DEVFSIO_RADD takes a pointer to a devfs_rule, of this layout.
    match Errno::result(unsafe { libc::ioctl(devfs.as_raw_fd(), request, &mut rule) }) {
        Ok(_) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a devfs mount follow a set, now and for devices that appear later.
pub(crate) fn devfs_use_set(devfs: BorrowedFd<'_>, set: u16) -> Result<(), Errno> {
    for number in [10, 11] {
        let request = ioctl_number(IOC_IN, b'D', number, std::mem::size_of::<u16>());
        let mut set = set;
        // SAFETY: DEVFSIO_SUSE and DEVFSIO_SAPPLY take a pointer to a devfs_rsnum, which is 16
        // bits.
        Errno::result(unsafe { libc::ioctl(devfs.as_raw_fd(), request, &mut set) })?;
    }
    Ok(())
}

/// net/if.h: a request about an interface, of which the flags alone are used here.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: [u16; 8],
}

/// net/if.h: struct ifaliasreq.
#[repr(C)]
struct AliasRequest {
    name: [u8; 16],
    address: libc::sockaddr_in,
    destination: libc::sockaddr_in,
    mask: libc::sockaddr_in,
    vhid: c_int,
}

const LOOPBACK: [u8; 16] = *b"lo0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// Gives the loopback interface of this process's network stack, a jail's own, 127.0.0.1/8, and
/// raises it, as `ifconfig lo0 inet 127.0.0.1/8 up` does.
pub(crate) fn raise_loopback() -> Result<(), Errno> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let internet = |address: [u8; 4]| libc::sockaddr_in {
        sin_len: size_of::<libc::sockaddr_in>() as u8,
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address),
        },
        sin_zero: [0; 8],
    };
    let mut alias = AliasRequest {
        name: LOOPBACK,
        address: internet([127, 0, 0, 1]),
        // SAFETY: all zeros are "none", which the length of 0 says.
        destination: unsafe { std::mem::zeroed() },
        mask: internet([255, 0, 0, 0]),
        vhid: 0,
    };
    let mut flags = InterfaceRequest {
        name: LOOPBACK,
        flags: [0; 8],
    };
    let add_address = ioctl_number(IOC_IN, b'i', 43, size_of::<AliasRequest>());
    let get_flags = ioctl_number(IOC_INOUT, b'i', 17, size_of::<InterfaceRequest>());
    let set_flags = ioctl_number(IOC_IN, b'i', 16, size_of::<InterfaceRequest>());
    // SAFETY: SIOCAIFADDR takes a pointer to an ifaliasreq, SIOCGIFFLAGS and SIOCSIFFLAGS one to an
    // ifreq (sys/sockio.h), each of this layout and live through the call.
    unsafe {
        Errno::result(libc::ioctl(socket.as_raw_fd(), add_address, &mut alias))?;
        Errno::result(libc::ioctl(socket.as_raw_fd(), get_flags, &mut flags))?;
        flags.flags[0] |= libc::IFF_UP as u16;
        Errno::result(libc::ioctl(socket.as_raw_fd(), set_flags, &mut flags)).map(drop)
    }
}

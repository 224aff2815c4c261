//! The ways out of a jail that are system calls.

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What a system call that answers -1 came to.
pub(super) fn done(answer: impl Into<i64>) -> io::Result<()> {
    match answer.into() {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

pub(super) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers; what comes is nobody else's.
    unsafe {
        let fd = libc::socket(domain, kind, protocol);
        done(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

pub(crate) fn raw_socket() -> io::Result<()> {
    socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP).map(drop)
}

pub(crate) fn signal(pid: i32, number: c_int) -> io::Result<()> {
    // SAFETY: takes numbers.
    done(unsafe { libc::kill(pid, number) })
}

pub(crate) fn chroot() -> io::Result<()> {
    // SAFETY: a C string.
    done(unsafe { libc::chroot(c"/tmp".as_ptr()) })
}

/// Goes up from a descriptor of the root, and looks for a directory of the host.
pub(crate) fn out_by_directory() -> io::Result<()> {
    let top = std::fs::File::open("/")?;
    // SAFETY: a live descriptor and C strings.
    unsafe {
        done(libc::fchdir(top.as_raw_fd()))?;
        done(libc::access(
            c"../../../../usr/local/etc/colibri".as_ptr(),
            libc::F_OK,
        ))
    }
}

pub(crate) fn device_node() -> io::Result<()> {
    // SAFETY: a C string.
    done(unsafe { libc::mknod(c"/tmp/mem".as_ptr(), libc::S_IFCHR | 0o666, 0x101) })
}

pub(crate) fn become_root() -> io::Result<()> {
    // SAFETY: takes numbers.
    done(unsafe { libc::setuid(0) })
}

pub(crate) fn root_group() -> io::Result<()> {
    // SAFETY: one number, and a pointer to it.
    unsafe {
        let root = 0;
        match libc::setgroups(1, &root) {
            0 => Ok(()),
            _ => done(libc::setgid(0)),
        }
    }
}

pub(crate) fn raise_limit() -> io::Result<()> {
    let most = libc::rlimit {
        rlim_cur: 1 << 20,
        rlim_max: 1 << 20,
    };
    // SAFETY: a live rlimit.
    done(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &most) })
}

pub(crate) fn set_clock() -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live timespec.
    done(unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &time) })
}

pub(crate) fn set_hostname() -> io::Result<()> {
    // SAFETY: one byte, and its length.
    done(unsafe { libc::sethostname(c"x".as_ptr(), 1) })
}

/// Puts a byte into the input queue of whoever's terminal descriptor 0 is.
pub(crate) fn push_into_terminal() -> io::Result<()> {
    let byte = b'x';
    // SAFETY: a pointer to one byte.
    done(unsafe { libc::ioctl(0, libc::TIOCSTI, &byte) })
}

/// A segment that a test has made on the host.
pub(crate) fn shared_memory(key: i32) -> io::Result<()> {
    // SAFETY: takes numbers.
    done(unsafe { libc::shmget(key as libc::key_t, 0, 0) })
}

/// Dumps core, of a child.
pub(crate) fn core_dump() -> io::Result<()> {
    // SAFETY: one thread; the child does nothing but end.
    unsafe {
        let child = libc::fork();
        done(child)?;
        if child == 0 {
            libc::abort();
        }
        let mut status = 0;
        done(libc::waitpid(child, &mut status, 0))?;
        match libc::WCOREDUMP(status) {
            true => Ok(()),
            false => Err(io::Error::other("no core")),
        }
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::*;

#[cfg(target_os = "linux")]
pub(crate) use super::linux_ways::*;

#[cfg(target_os = "linux")]
mod linux {
    use super::*;

    pub(crate) fn packet_socket() -> io::Result<()> {
        socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(drop)
    }

    /// Asks for the loopback interface to be taken down (rtnetlink(7)).
    pub(crate) fn change_network() -> io::Result<()> {
        let netlink = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        let mut message = Vec::new();
        // The header: length, type, request with acknowledgement, number, sender; then ifinfomsg of
        // interface 1.
        message.extend_from_slice(&32u32.to_ne_bytes());
        message.extend_from_slice(&libc::RTM_SETLINK.to_ne_bytes());
        message.extend_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes());
        message.extend_from_slice(&[0; 12]);
        message.extend_from_slice(&1i32.to_ne_bytes());
        message.extend_from_slice(&0u32.to_ne_bytes());
        message.extend_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
        let mut answer = [0u8; 256];
        // SAFETY: live buffers, and their lengths.
        unsafe {
            done(libc::send(
                netlink.as_raw_fd(),
                message.as_ptr().cast(),
                message.len(),
                0,
            ) as i64)?;
            done(libc::recv(
                netlink.as_raw_fd(),
                answer.as_mut_ptr().cast(),
                answer.len(),
                0,
            ) as i64)?;
        }
        match i32::from_ne_bytes(answer[16..20].try_into().unwrap()) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    pub(crate) fn trace(pid: i32) -> io::Result<()> {
        // SAFETY: this request takes neither an address nor data.
        done(unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0) })
    }

    /// Reads from another process where the same program would have something.
    pub(crate) fn read_memory(pid: i32) -> io::Result<()> {
        let mut byte = [0u8; 1];
        let here = libc::iovec {
            iov_base: byte.as_mut_ptr().cast(),
            iov_len: 1,
        };
        let there = libc::iovec {
            iov_base: raw_socket as fn() -> io::Result<()> as *mut _,
            iov_len: 1,
        };
        // SAFETY: one byte here; the other address is the other process's.
        done(unsafe { libc::process_vm_readv(pid, &here, 1, &there, 1, 0) } as i64)
    }

    pub(crate) fn mount() -> io::Result<()> {
        let (kind, at) = (c"tmpfs".as_ptr(), c"/tmp".as_ptr());
        // SAFETY: C strings, and no data.
        done(unsafe { libc::mount(kind, at, kind, 0, std::ptr::null()) })
    }

    pub(crate) fn unmount(path: &CStr) -> io::Result<()> {
        // SAFETY: a C string.
        done(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) })
    }

    pub(crate) fn new_confinement() -> io::Result<()> {
        // SAFETY: takes a number.
        done(unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) })
    }

    /// Joins the namespaces of process 1.
    pub(crate) fn join_others() -> io::Result<()> {
        // SAFETY: takes numbers; the descriptor is nobody else's.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, 1, 0);
            done(fd)?;
            let process = OwnedFd::from_raw_fd(fd as c_int);
            done(libc::setns(
                process.as_raw_fd(),
                libc::CLONE_NEWNET | libc::CLONE_NEWNS,
            ))
        }
    }

    /// As root of a user namespace of its own, in which it may mount: has the root written to, or
    /// what lies below a mount seen. Whatever of the two works, worked.
    pub(crate) fn root_of_own_namespace() -> io::Result<()> {
        // SAFETY: one thread; C strings, and no data.
        unsafe {
            let child = libc::fork();
            done(child)?;
            if child > 0 {
                let mut status = 0;
                done(libc::waitpid(child, &mut status, 0))?;
                return match libc::WEXITSTATUS(status) {
                    0 => Ok(()),
                    error => Err(io::Error::from_raw_os_error(error)),
                };
            }
            let none = std::ptr::null();
            let outcome = done(libc::unshare(
                libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET,
            ))
            .and_then(|()| {
                let again = libc::MS_REMOUNT | libc::MS_BIND;
                let written = done(libc::mount(none, c"/".as_ptr(), none, again, none.cast()));
                written.or_else(|_| unmount(c"/var/run/colibri"))
            })
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
            libc::_exit(outcome.err().unwrap_or(0))
        }
    }

    /// A key in the session's keyring that a test put there before it started the helper
    /// (keyctl(2)).
    pub(crate) fn key_of_session() -> io::Result<()> {
        const SEARCH: c_int = 10;
        const SESSION: c_int = -3;
        let (kind, name) = (c"user".as_ptr(), c"colibri-test".as_ptr());
        // SAFETY: C strings and numbers.
        done(unsafe { libc::syscall(libc::SYS_keyctl, SEARCH, SESSION, kind, name, 0) })
    }

    /// Opens by its number the root of the file system that the jail's root lies on.
    pub(crate) fn file_by_handle() -> io::Result<()> {
        let top = std::fs::File::open("/")?;
        // struct file_handle: size, type (FILEID_INO32_GEN), inode 2 and its generation.
        let handle: [u32; 4] = [8, 1, 2, 0];
        // SAFETY: a live descriptor and a live handle of the size that stands in it.
        done(unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                top.as_raw_fd(),
                &handle,
                libc::O_RDONLY,
            )
        })
    }

    pub(crate) fn load_module() -> io::Result<()> {
        // SAFETY: an empty image, and no parameters.
        done(unsafe {
            libc::syscall(
                libc::SYS_init_module,
                std::ptr::null::<u8>(),
                0,
                c"".as_ptr(),
            )
        })
    }
}

#[cfg(target_os = "freebsd")]
pub(crate) use freebsd::*;

#[cfg(target_os = "freebsd")]
mod freebsd {
    use super::*;

    unsafe extern "C" {
        fn fhopen(handle: *const u8, flags: c_int) -> c_int;
        fn kldload(file: *const libc::c_char) -> c_int;
    }

    fn vector(bytes: &CStr) -> libc::iovec {
        libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.to_bytes_with_nul().len(),
        }
    }

    fn vectors(pairs: &[(&CStr, &CStr)]) -> Vec<libc::iovec> {
        pairs
            .iter()
            .flat_map(|(name, value)| [vector(name), vector(value)])
            .collect()
    }

    /// Takes the loopback interface down: SIOCSIFFLAGS with none.
    pub(crate) fn change_network() -> io::Result<()> {
        const SIOCSIFFLAGS: u64 = 0x8020_6910;
        let any = socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?;
        let internet = socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap_or(any);
        let mut request = [0u8; 32];
        request[..3].copy_from_slice(b"lo0");
        // SAFETY: a live ifreq, whose flags are all zero.
        done(unsafe { libc::ioctl(internet.as_raw_fd(), SIOCSIFFLAGS, request.as_mut_ptr()) })
    }

    pub(crate) fn trace(pid: i32) -> io::Result<()> {
        // SAFETY: touches no memory of ours.
        done(unsafe { libc::ptrace(libc::PT_ATTACH, pid, std::ptr::null_mut(), 0) })
    }

    pub(crate) fn mount() -> io::Result<()> {
        let mut vectors = vectors(&[
            (c"fstype", c"tmpfs"),
            (c"fspath", c"/tmp"),
            (c"from", c"tmpfs"),
        ]);
        // SAFETY: the vectors point to C strings.
        done(unsafe { libc::nmount(vectors.as_mut_ptr(), vectors.len() as u32, 0) })
    }

    pub(crate) fn unmount(path: &CStr) -> io::Result<()> {
        // SAFETY: a C string.
        done(unsafe { libc::unmount(path.as_ptr(), libc::MNT_FORCE) })
    }

    /// Makes a jail of its own.
    pub(crate) fn new_confinement() -> io::Result<()> {
        let mut vectors = vectors(&[(c"path", c"/tmp"), (c"name", c"inner")]);
        // SAFETY: the vectors point to C strings.
        done(unsafe {
            libc::jail_set(
                vectors.as_mut_ptr(),
                vectors.len() as u32,
                libc::JAIL_CREATE | libc::JAIL_ATTACH,
            )
        })
    }

    /// Enters any other jail.
    pub(crate) fn join_others() -> io::Result<()> {
        let mut outcome = Err(io::Error::from_raw_os_error(libc::EINVAL));
        for jid in 1..200 {
            // SAFETY: takes a number.
            match done(unsafe { libc::jail_attach(jid) }) {
                Ok(()) => return Ok(()),
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    pub(crate) fn file_by_handle() -> io::Result<()> {
        let handle = [0u8; 64];
        // SAFETY: more room than a handle has.
        done(unsafe { fhopen(handle.as_ptr(), libc::O_RDONLY) })
    }

    pub(crate) fn load_module() -> io::Result<()> {
        // SAFETY: a C string.
        done(unsafe { kldload(c"fusefs".as_ptr()) })
    }
}

/// A path for a system call.
pub(crate) fn path(text: &str) -> CString {
    CString::new(text).unwrap()
}

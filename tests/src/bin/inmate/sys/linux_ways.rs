//! The ways out that Linux programs have, which FreeBSD's linux(4) must hold as well.

use std::ffi::{c_int, c_long};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::ways::{core_dump, done, mount, set_hostname, socket};

/// Attaches to a process without stopping it.
pub(crate) fn seize(pid: i32) -> io::Result<()> {
    // SAFETY: this request takes neither an address nor data.
    done(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) })
}

/// Mounts, and names the host, from a child that asked clone(2) for namespaces of its own: linux(4)
/// takes the flags, and makes none. Whatever of the two works, worked.
pub(crate) fn clone_into_namespaces() -> io::Result<()> {
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWNET
        | libc::SIGCHLD;
    // SAFETY: one thread; without a stack the child goes on here as after fork(2), and ends.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, c_long::from(flags), 0, 0, 0, 0);
        done(child)?;
        if child == 0 {
            let outcome = mount().or_else(|_| set_hostname());
            libc::_exit(
                outcome.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0),
            );
        }
        let mut status = 0;
        done(libc::waitpid(child as c_int, &mut status, 0))?;
        match libc::WEXITSTATUS(status) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// A copy of this program in memory, set-user-ID. Returns its path.
pub(crate) fn set_user_id_in_memory() -> io::Result<String> {
    // SAFETY: a C string; the descriptor is nobody else's, and stays open for the program that is
    // started from it.
    let fd = unsafe { libc::memfd_create(c"copy".as_ptr(), 0) };
    done(fd)?;
    // SAFETY: as above.
    let mut copy = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    io::copy(&mut File::open("/proc/self/exe")?, &mut copy)?;
    // SAFETY: takes numbers.
    done(unsafe { libc::fchmod(fd, 0o6755) })?;
    std::mem::forget(copy);
    Ok(format!("/proc/self/fd/{fd}"))
}

/// Asks for another address on the loopback interface (rtnetlink(7)).
pub(crate) fn other_addresses() -> io::Result<()> {
    let netlink = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let mut message = Vec::new();
    // The header; ifaddrmsg: IPv4, /8, interface 1; the attribute IFA_LOCAL.
    message.extend_from_slice(&32u32.to_ne_bytes());
    message.extend_from_slice(&libc::RTM_NEWADDR.to_ne_bytes());
    message.extend_from_slice(
        &((libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE) as u16).to_ne_bytes(),
    );
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&[libc::AF_INET as u8, 8, 0, 0]);
    message.extend_from_slice(&1u32.to_ne_bytes());
    message.extend_from_slice(&8u16.to_ne_bytes());
    message.extend_from_slice(&libc::IFA_LOCAL.to_ne_bytes());
    message.extend_from_slice(&[127, 0, 0, 9]);
    message[0] = message.len() as u8;
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
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Writes to the page that old Linux programs call, from a child, which must not live on.
pub(crate) fn vsyscall_page() -> io::Result<()> {
    // SAFETY: one thread; the child writes to an address that is not this program's, and ends by
    // that or by itself.
    unsafe {
        let child = libc::fork();
        done(child)?;
        if child == 0 {
            std::ptr::without_provenance_mut::<u8>(0xffff_ffff_ff60_0000).write_volatile(0xc3);
            libc::_exit(0);
        }
        let mut status = 0;
        done(libc::waitpid(child, &mut status, 0))?;
        match libc::WIFSIGNALED(status) {
            true => Err(io::Error::other(format!(
                "signal {}",
                libc::WTERMSIG(status)
            ))),
            false => Ok(()),
        }
    }
}

/// Takes every capability (capset(2)), and uses one.
pub(crate) fn capabilities() -> io::Result<()> {
    // The header: version 3, this process; the sets for two times 32 capabilities.
    let (header, all) = ([0x2008_0522u32, 0], [u32::MAX; 6]);
    // SAFETY: live arrays of the layouts and sizes that version 3 has; takes numbers.
    unsafe {
        done(libc::syscall(libc::SYS_capset, &header, &all))?;
        done(libc::setuid(0))
    }
}

/// Turns off what keeps new programs from more rights, and looks.
pub(crate) fn privileges_again() -> io::Result<()> {
    // SAFETY: takes numbers.
    unsafe {
        done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0))?;
        match libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::other("still there")),
        }
    }
}

/// Writes 64 MiB into a file.
pub(crate) fn fill(path: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    let written = (0..64).try_for_each(|_| file.write_all(&[1; 1 << 20]));
    std::fs::remove_file(path)?;
    written
}

/// Dumps core, once this process has said that it may be dumped.
pub(crate) fn core_if_dumpable() -> io::Result<()> {
    // SAFETY: takes numbers.
    done(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) })?;
    core_dump()
}

/// Rings and programs in the kernel: io_uring(7), bpf(2), userfaultfd(2), perf_event_open(2).
/// Whatever works, worked.
pub(crate) fn kernel_rings() -> io::Result<()> {
    let room = [0u8; 256];
    // SAFETY: a zeroed buffer that is larger than what each call takes, and numbers.
    unsafe {
        done(libc::syscall(libc::SYS_io_uring_setup, 4, &room))
            .or_else(|_| done(libc::syscall(libc::SYS_bpf, 0, &room, 128)))
            .or_else(|_| done(libc::syscall(libc::SYS_userfaultfd, 0)))
            .or_else(|_| {
                done(libc::syscall(
                    libc::SYS_perf_event_open,
                    &room,
                    0,
                    -1,
                    -1,
                    0,
                ))
            })
    }
}

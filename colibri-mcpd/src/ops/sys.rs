//! The system's figures of this process's memory.

#![allow(unsafe_code, reason = "system calls that no safe library offers")]

use std::io;

/// Resident memory of this process, bytes: from proc(5).
///
/// # Errors
/// The system does not say, or says it in an unknown form.
#[cfg(target_os = "linux")]
pub(super) fn resident_bytes() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        })
        .map(|kib: u64| kib * 1024)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/status has no VmRSS"))
}

/// Resident memory of this process, bytes: from the `kern.proc.pid` node of sysctl(3).
///
/// # Errors
/// The system does not say, or says it in an unknown form.
#[cfg(target_os = "freebsd")]
pub(super) fn resident_bytes() -> io::Result<u64> {
    let mib = [
        libc::CTL_KERN,
        libc::KERN_PROC,
        libc::KERN_PROC_PID,
        nix::unistd::getpid().as_raw(),
    ];
    let mut info = std::mem::MaybeUninit::<libc::kinfo_proc>::zeroed();
    let mut length = size_of::<libc::kinfo_proc>();
    // SAFETY: `mib` has four elements, as said; `info` may be written for `length` bytes, and the
    // kernel writes no more; nothing is set, so there is no new value.
    let result = unsafe {
        libc::sysctl(
            mib.as_ptr(),
            4,
            info.as_mut_ptr().cast(),
            &mut length,
            std::ptr::null(),
            0,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: kinfo_proc holds integers and raw pointers only, for which zero bytes, and any others
    // that the kernel wrote over them, are values.
    let info = unsafe { info.assume_init() };
    // SAFETY: getpagesize(3) has no conditions.
    let page = unsafe { libc::getpagesize() };
    match (u64::try_from(info.ki_rssize), u64::try_from(page)) {
        (Ok(pages), Ok(page)) => Ok(pages * page),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "kern.proc.pid has no size",
        )),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_is_in_memory() {
        let bytes = super::resident_bytes().unwrap();
        assert!((1 << 20..1 << 40).contains(&bytes), "{bytes}");
    }
}

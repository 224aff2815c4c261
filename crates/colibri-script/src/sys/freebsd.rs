//! FreeBSD: the rights of the two pipes, and capability mode.

use anyhow::Context as _;

/// The descriptors that may be open: the pipes.
pub(crate) const DESCRIPTORS: u64 = 2;

/// Gives up every right but to compute, to read the one pipe and to write the other.
///
/// # Errors
/// A step failed.
pub(crate) fn restrict() -> anyhow::Result<()> {
    parts::be_courteous()?;
    parts::limit_pipes()?;
    parts::enter_capability_mode()
}

/// The steps, each for itself.
pub mod parts {
    use super::*;

    fn checked(done: libc::c_int, what: &'static str) -> anyhow::Result<()> {
        match done {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).context(what),
        }
    }

    /// Lets everything else go first, and keeps the process from being traced or dumped
    /// (procctl(2)).
    ///
    /// # Errors
    /// A system call failed.
    pub fn be_courteous() -> anyhow::Result<()> {
        // A daemon further back keeps its processes there: nobody but root moves forward again.
        // SAFETY: two plain system calls on numbers.
        let done = unsafe {
            let place = libc::getpriority(libc::PRIO_PROCESS, 0).max(10);
            libc::setpriority(libc::PRIO_PROCESS, 0, place)
        };
        checked(done, "setpriority")?;
        let mut disable: libc::c_int = libc::PROC_TRACE_CTL_DISABLE_EXEC;
        // SAFETY: the call reads one int, which lives until it returns.
        let done = unsafe {
            libc::procctl(
                libc::P_PID,
                0,
                libc::PROC_TRACE_CTL,
                (&raw mut disable).cast(),
            )
        };
        checked(done, "PROC_TRACE_CTL")
    }

    /// Leaves standard input the right to be read and standard output the right to be written
    /// (rights(4)).
    ///
    /// # Errors
    /// cap_rights_limit(2) failed.
    pub fn limit_pipes() -> anyhow::Result<()> {
        for (descriptor, right) in [(0, libc::CAP_READ), (1, libc::CAP_WRITE)] {
            // SAFETY: the rights are plain numbers, for which all zeroes is a value; the C library
            // fills them in, and both calls only read and write them. The list of rights ends with
            // 0 (cap_rights_init(3)).
            let done = unsafe {
                let mut rights: libc::cap_rights_t = std::mem::zeroed();
                libc::__cap_rights_init(libc::CAP_RIGHTS_VERSION, &raw mut rights, right, 0_u64);
                libc::cap_rights_limit(descriptor, &raw const rights)
            };
            checked(done, "cap_rights_limit")?;
        }
        Ok(())
    }

    /// Leaves the process no name of any kind: no file, no address, no other process
    /// (cap_enter(2)).
    ///
    /// # Errors
    /// The kernel has no capability mode.
    pub fn enter_capability_mode() -> anyhow::Result<()> {
        // SAFETY: takes and returns numbers.
        checked(unsafe { libc::cap_enter() }, "cap_enter")
    }
}

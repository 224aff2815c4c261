//! Linux: no new privileges, Landlock without a single grant, and a filter of system calls.

use std::collections::BTreeMap;

use anyhow::Context as _;

/// The descriptors that may be open: Landlock's ruleset needs one beside the pipes, for a moment.
pub(crate) const DESCRIPTORS: u64 = 3;

/// Gives up every right but to compute, to read the one pipe and to write the other.
///
/// # Errors
/// A step failed. A kernel without Landlock is none: the filter alone lets nothing be opened
/// either.
pub(crate) fn restrict() -> anyhow::Result<()> {
    parts::be_courteous()?;
    parts::refuse_privileges()?;
    parts::grant_no_files()?;
    parts::filter_calls()
}

/// The steps, each for itself.
pub mod parts {
    use super::*;
    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset,
        RulesetAttr as _, Scope,
    };
    use seccompiler::{
        SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };

    /// The newest Landlock whose rights are all taken away.
    const NEWEST: ABI = ABI::V6;

    /// Lets everything else go first, and keeps the process from being traced or dumped.
    ///
    /// # Errors
    /// prctl(2) or setpriority(2) failed.
    pub fn be_courteous() -> anyhow::Result<()> {
        // SAFETY: plain system calls on numbers.
        let failed = unsafe {
            // A daemon further back keeps its processes there: nobody but root moves forward again.
            let place = libc::getpriority(libc::PRIO_PROCESS, 0).max(10);
            libc::setpriority(libc::PRIO_PROCESS, 0, place) != 0
                || libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) != 0
        };
        match failed {
            true => Err(std::io::Error::last_os_error()).context("setpriority or PR_SET_DUMPABLE"),
            false => Ok(()),
        }
    }

    /// No program that it runs gains rights (prctl(2) `PR_SET_NO_NEW_PRIVS`).
    ///
    /// # Errors
    /// prctl(2) failed.
    pub fn refuse_privileges() -> anyhow::Result<()> {
        // SAFETY: a plain system call on numbers.
        match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).context("PR_SET_NO_NEW_PRIVS"),
        }
    }

    /// Handles every right of Landlock and grants none: files, TCP, abstract sockets and signals of
    /// others. `false`: the kernel has no Landlock.
    ///
    /// # Errors
    /// The kernel has it, and refused.
    pub fn grant_no_files() -> anyhow::Result<bool> {
        let restricted = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?
            .restrict_self()?;
        Ok(restricted.ruleset != landlock::RulesetStatus::NotEnforced)
    }

    /// Ends the process at any system call but those for reading, writing, memory, clocks and its
    /// own end.
    ///
    /// # Errors
    /// The kernel has no seccomp(2) filters.
    pub fn filter_calls() -> anyhow::Result<()> {
        let number = |argument: u8, is: u64| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, is)
        };
        let no_bits = |argument: u8, bits: u64| {
            SeccompCondition::new(
                argument,
                SeccompCmpArgLen::Dword,
                SeccompCmpOp::MaskedEq(bits),
                0,
            )
        };
        let rule = |conditions: Vec<_>| anyhow::Ok(vec![SeccompRule::new(conditions)?]);
        let executable = libc::PROT_EXEC as u64;
        let (kind, private) = (
            (libc::MAP_ANONYMOUS | libc::MAP_TYPE) as u64,
            (libc::MAP_ANONYMOUS | libc::MAP_PRIVATE) as u64,
        );
        let own_memory = SeccompCondition::new(
            3,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(kind),
            private,
        );
        let rules: BTreeMap<i64, Vec<SeccompRule>> = [
            (libc::SYS_read, rule(vec![number(0, 0)?])?),
            (libc::SYS_write, rule(vec![number(0, 1)?])?),
            (
                libc::SYS_mmap,
                rule(vec![no_bits(2, executable)?, own_memory?])?,
            ),
            (libc::SYS_munmap, Vec::new()),
            (libc::SYS_mremap, Vec::new()),
            (libc::SYS_madvise, Vec::new()),
            (libc::SYS_brk, Vec::new()),
            (libc::SYS_futex, Vec::new()),
            (libc::SYS_clock_gettime, Vec::new()),
            (libc::SYS_gettimeofday, Vec::new()),
            (libc::SYS_exit, Vec::new()),
            (libc::SYS_exit_group, Vec::new()),
            (libc::SYS_rt_sigreturn, Vec::new()),
        ]
        .into();
        let filter = SeccompFilter::new(
            rules,
            SeccompAction::KillProcess,
            SeccompAction::Allow,
            std::env::consts::ARCH
                .try_into()
                .context("no filter for this processor")?,
        )?;
        let program: seccompiler::BpfProgram = filter.try_into()?;
        seccompiler::apply_filter_all_threads(&program).context("seccomp")
    }
}

//! The rights of the process, given up one by one before it reads the script.
//!
//! What remains: reading standard input, writing standard output, memory up to a limit, clocks, and
//! its own end.

use std::hash::RandomState;
use std::process::ExitCode;

use anyhow::Context as _;
use colibri_api::script::ScriptLimits;
use nix::sys::resource::{Resource, setrlimit};

use crate::sys;

/// The bytes of address space beside the interpreter's: program, libraries, messages, and the
/// allocator's reserve.
const AROUND: u64 = 512 << 20;

/// The limit of all that is mapped.
#[cfg(target_os = "linux")]
const ADDRESS_SPACE: Resource = Resource::RLIMIT_AS;
#[cfg(target_os = "freebsd")]
const ADDRESS_SPACE: Resource = Resource::RLIMIT_VMEM;

/// Gives up everything. Afterwards the process has two descriptors.
///
/// # Errors
/// A right could not be given up.
pub fn enter() -> anyhow::Result<()> {
    let limits = ScriptLimits::DEFAULT;
    // The keys of this thread's hash tables are drawn once: later there is no randomness to be had.
    let _ = RandomState::new();
    bound_resources(&limits)?;
    close_descriptors()?;
    sys::restrict()
}

/// Closes every descriptor but the two pipes.
///
/// # Errors
/// close_range(2) failed.
pub fn close_descriptors() -> anyhow::Result<()> {
    sys::close_above_output().context("closing descriptors")
}

/// Sets the limits of the process, which it cannot raise again.
///
/// # Errors
/// setrlimit(2) failed.
pub fn bound_resources(limits: &ScriptLimits) -> anyhow::Result<()> {
    let seconds = limits.cpu_ms / 1000 + 1;
    let bounds = [
        (ADDRESS_SPACE, limits.memory + AROUND),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_CPU, seconds),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_MEMLOCK, 0),
        (Resource::RLIMIT_NOFILE, sys::DESCRIPTORS),
        (Resource::RLIMIT_NPROC, 0),
    ];
    for (resource, most) in bounds {
        let most = most as libc::rlim_t;
        setrlimit(resource, most, most).with_context(|| format!("setrlimit {resource:?}"))?;
    }
    Ok(())
}

/// Ends the process at once, without what a program does at its end otherwise: the sandbox does not
/// let it.
pub fn end(code: ExitCode) -> ! {
    sys::exit(u8::from(code != ExitCode::SUCCESS))
}

pub use sys::parts;

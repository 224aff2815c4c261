//! The last steps of the child: from a copy of the supervisor to the server.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;

use colibri_jail_helper::limits::PlannedLimits;
use colibri_jail_helper::names::SessionId;
use colibri_jail_helper::plan::ConfinementPlan;
use colibri_jail_helper::refusal::HelperRefusal;
use colibri_jail_helper::{STARTED, UNBOUNDED};
use colibri_registry::{RctlResource, Stdin};
use nix::poll::PollTimeout;
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, SFlag, stat, umask};
use nix::unistd::{AccessFlags, access, execve, getppid, setsid};

use crate::act::secrets::Environment;
use crate::act::{identity, tell};
use crate::sys::{self, ResourceLimit};

/// Everything that a child needs to become the server.
pub(crate) struct ServerChild<'p> {
    /// The plan.
    pub plan: &'p ConfinementPlan,
    /// The instance, whose mark the process bears.
    pub session: &'p SessionId,
    /// The whole environment.
    pub environment: &'p Environment,
    /// Numeric user id.
    pub uid: u32,
    /// The jail's id, for the `started` line.
    pub jid: i32,
}

impl ServerChild<'_> {
    /// Makes this process the server. `enter` puts it into the jail; it is called once everything
    /// that a hostile root of a persistent jail could reach through this process is closed or
    /// barred.
    ///
    /// # Errors
    /// A step failed and nothing was executed; the caller says so and ends.
    pub(crate) fn execute(
        self,
        enter: impl FnOnce() -> Result<(), HelperRefusal>,
    ) -> Result<Infallible, HelperRefusal> {
        let failed = |tried| move |error| HelperRefusal::system("server", tried, error);
        let parent = getppid();
        let program = c_string(self.plan.program.as_os_str().as_bytes())?;
        let mut args = vec![program.clone()];
        for arg in &self.plan.args {
            args.push(c_string(arg.as_bytes())?);
        }
        let environment = self.environment.to_c_strings()?;
        setsid().map_err(failed("begin a session"))?;
        sys::close_from(3).map_err(failed("close descriptors"))?;
        set_limits(&self.plan.limits)?;
        sys::mark(self.session).map_err(failed("set login class and name"))?;
        sys::bar_from_privilege().map_err(failed("bar from privilege"))?;
        sys::bar_tracing().map_err(failed("bar tracing"))?;
        enter()?;
        identity::become_user(self.uid, self.plan.gid)?;
        sys::signal_on_parent_death(Some(Signal::SIGKILL))
            .map_err(failed("set the parent-death signal"))?;
        if getppid() != parent {
            return Err(HelperRefusal::system(
                "server",
                "start",
                "the supervisor is gone",
            ));
        }
        umask(Mode::S_IWOTH);
        std::env::set_current_dir(&self.plan.cwd).map_err(|_| {
            HelperRefusal::file(
                "cwd",
                "the entry's cwd is not a directory that the server may enter",
            )
        })?;
        sys::reset_signals().map_err(failed("reset signals"))?;
        let regular = stat(program.as_c_str()).is_ok_and(|stat| {
            SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
        });
        if !regular || access(program.as_c_str(), AccessFlags::X_OK).is_err() {
            return Err(HelperRefusal::file(
                "command",
                "the command is not a program in the jail that its user may execute",
            ));
        }
        // From here on the exit code is the server's, so the line must have been written.
        let unbounded = if self.plan.is_unbounded() {
            UNBOUNDED
        } else {
            ""
        };
        if !tell::whole_line(
            &format!("{STARTED}{}{unbounded}", self.jid),
            PollTimeout::NONE,
        ) {
            return Err(HelperRefusal::system(
                "server",
                "say that the server started",
                "nobody reads stderr",
            ));
        }
        let Err(error) = execve(&program, &args, &environment);
        tell::refusal(&format!("the command could not be executed: {error}"));
        // What env(1) and shells exit with when execve(2) fails.
        std::process::exit(if error == nix::errno::Errno::ENOENT {
            127
        } else {
            126
        })
    }
}

/// The standard input of the server or agent, for the process that becomes it or makes it, before
/// that one leaves the host's root: an agent may have /dev/null, and the supervisor alone the
/// lifeline.
///
/// # Errors
/// /dev/null cannot be opened.
pub(crate) fn choose_input(plan: &ConfinementPlan) -> Result<(), HelperRefusal> {
    match plan.agent.map(|agent| agent.stdin) {
        Some(Stdin::Null) => detach_input(),
        Some(Stdin::Pipe) | None => Ok(()),
    }
}

/// Puts /dev/null in the place of stdin.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn detach_input() -> Result<(), HelperRefusal> {
    let null = File::open("/dev/null")
        .map_err(|error| HelperRefusal::system("run", "open /dev/null", error))?;
    nix::unistd::dup2_stdin(&null)
        .map_err(|error| HelperRefusal::system("run", "detach stdin", error))
}

/// Sets every limit that this kernel knows.
fn set_limits(limits: &PlannedLimits) -> Result<(), HelperRefusal> {
    for (which, bound) in sys::RESOURCES {
        let most = match bound {
            ResourceLimit::Fixed(most) => Some(*most),
            ResourceLimit::Planned(limit) => limits.get(*limit),
        };
        let Some(most) = most else { continue };
        // A soft limit as every login has it: some programs reserve their whole stack limit for
        // each thread.
        let soft = match bound {
            ResourceLimit::Planned(RctlResource::Stack) => most.min(8 << 20),
            _ => most,
        };
        sys::lower_limit(*which, soft, most)
            .map_err(|error| HelperRefusal::system("limits", "set a limit", error))?;
    }
    Ok(())
}

fn c_string(bytes: &[u8]) -> Result<CString, HelperRefusal> {
    CString::new(bytes)
        .map_err(|_| HelperRefusal::file("registry", "a NUL in the command or an argument"))
}

//! The development sandbox of Linux: namespaces in the place of a jail, so that everything around
//! it can be tried for real. It is no jail, is never packaged, and does nothing that FreeBSD alone
//! can do.
//!
//! ```text
//! outer ── supervisor ── init (pid 1 of the pid namespace) ── server
//! ```
//!
//! The init mounts, in a mount namespace of its own, so that nothing has to be unmounted: when it
//! is killed, or its supervisor is, the kernel kills all that is in the namespace, and the mounts
//! are gone with the last of them.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use colibri_jail_helper::names::SessionId;
use colibri_jail_helper::plan::{ConfinementPlan, DOOR, Ephemeral, PlannedNetwork, ServerPlace};
use colibri_jail_helper::record::RecordFact;
use colibri_jail_helper::refusal::{HelperExit, HelperRefusal};
use colibri_registry::Abi;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Pid, pipe2, pivot_root};

use crate::act::agent_socket;
use crate::act::files::{self, RequiredOwner};
use crate::act::secrets::Environment;
use crate::act::server::{self, ServerChild};
use crate::act::state::InstanceRecord;
use crate::act::tell;
use crate::sys::{self, WaitStatus};

/// Refuses what this system cannot do, before anything is made.
///
/// # Errors
/// "FreeBSD only", for persistent jails, addresses, the host network, `allow` and resource
/// accounting.
pub(crate) fn check(plan: &ConfinementPlan) -> Result<(), HelperRefusal> {
    let only = |what| Err(freebsd_only(what));
    let ServerPlace::Ephemeral(jail) = &plan.place else {
        return only("persistent jails");
    };
    if ![PlannedNetwork::NONE, PlannedNetwork::Loopback].contains(&jail.network) {
        return only("jail networks");
    }
    if jail.abi == Abi::Linux {
        // Its programs are Linux's own here, and see what those of every other entry do.
        return only("\"abi\": \"linux\"");
    }
    if !jail.allow.is_empty() {
        return only("allow parameters");
    }
    if plan.limits.needs_racct {
        return only("limits of a whole instance (rctl)");
    }
    files::check_places(jail, plan.agent.is_some())
}

fn freebsd_only(what: &str) -> HelperRefusal {
    HelperRefusal::file("platform", format!("{what}: FreeBSD only"))
}

/// A running sandbox.
pub(crate) struct Sandbox {
    init: Pid,
    report: OwnedFd,
    main: Option<i32>,
    empty: bool,
}

// What the init says on its pipe: one of these, then what belongs to it.
const STAGED: u8 = b'S';
const REFUSED: u8 = b'R';
const ENDED: u8 = b'E';

impl Sandbox {
    /// Makes the sandbox and starts the server in it.
    ///
    /// # Errors
    /// A step failed; nothing runs.
    pub(crate) fn create(
        plan: &ConfinementPlan,
        uid: u32,
        environment: &Environment,
        record: &mut InstanceRecord,
    ) -> Result<Self, HelperRefusal> {
        let failed = |tried| move |error| HelperRefusal::system("sandbox", tried, error);
        let ServerPlace::Ephemeral(jail) = &plan.place else {
            return Err(freebsd_only("persistent jails"));
        };
        record.note(RecordFact::Ephemeral)?;
        let (report, to_supervisor) = pipe2(OFlag::O_CLOEXEC).map_err(failed("make a pipe"))?;
        sys::separate_children().map_err(failed("make a pid namespace"))?;
        let Some(init) = sys::fork().map_err(failed("fork"))? else {
            drop(report);
            let session = record.session().clone();
            let init = Init {
                plan,
                uid,
                jail,
                environment,
                session: &session,
                supervisor: &to_supervisor,
            };
            let Err(error) = init.run(record);
            let mut message = vec![REFUSED, error.exit as u8];
            message.extend_from_slice(error.detail.as_bytes());
            let _ = nix::unistd::write(&to_supervisor, &message);
            std::process::exit(error.exit as i32)
        };
        drop(to_supervisor);
        let mut sandbox = Self {
            init,
            report,
            main: None,
            empty: false,
        };
        let mut first = [0];
        let got = read(&sandbox.report, &mut first);
        if got == 1 && first[0] == STAGED {
            return Ok(sandbox);
        }
        let refusal = sandbox.refusal_of_init();
        sandbox.kill();
        let _ = sys::wait(Some(init), true);
        Err(refusal)
    }

    fn refusal_of_init(&mut self) -> HelperRefusal {
        let mut exit = [0];
        if read(&self.report, &mut exit) != 1 {
            return HelperRefusal::system("sandbox", "make the sandbox", "its init was killed");
        }
        let mut detail = Vec::new();
        let mut buffer = [0; 256];
        loop {
            match read(&self.report, &mut buffer) {
                0 => break,
                n => detail.extend_from_slice(&buffer[..n]),
            }
        }
        let exit = if exit[0] == HelperExit::File as u8 {
            HelperExit::File
        } else {
            HelperExit::System
        };
        HelperRefusal::new(exit, "sandbox", String::from_utf8_lossy(&detail))
    }

    /// The jail's id: there is none here.
    pub(crate) fn jid(&self) -> i32 {
        0
    }

    /// A descriptor that becomes readable when something ended, besides SIGCHLD.
    pub(crate) fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.main.is_none().then(|| self.report.as_fd())
    }

    /// Notes what has ended since.
    ///
    /// # Errors
    /// waitpid(2) failed.
    pub(crate) fn reap(&mut self) -> Result<(), HelperRefusal> {
        if !self.empty {
            let waited = sys::wait(Some(self.init), false);
            match waited
                .map_err(|error| HelperRefusal::system("sandbox", "wait for the init", error))?
            {
                WaitStatus::NoneYet => {}
                WaitStatus::Child(..) | WaitStatus::NoChildren => self.empty = true,
            }
        }
        let mut ready = [PollFd::new(self.report.as_fd(), PollFlags::POLLIN)];
        if self.main.is_none() && poll(&mut ready, PollTimeout::ZERO).is_ok_and(|n| n > 0) {
            let mut message = [0; 5];
            let code = match read(&self.report, &mut message) {
                5 if message[0] == ENDED => {
                    i32::from_le_bytes([message[1], message[2], message[3], message[4]])
                }
                // The init is gone without a word: it was killed, and the server with it.
                _ => 128 + Signal::SIGKILL as i32,
            };
            self.main = Some(code);
        }
        Ok(())
    }

    /// The server's exit code, once it has ended.
    pub(crate) fn main_code(&self) -> Option<i32> {
        self.main
    }

    /// True if no process is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// Sends SIGTERM to every process of the sandbox.
    pub(crate) fn terminate(&self) {
        let _ = kill(self.init, Signal::SIGTERM);
    }

    /// Kills every process of the sandbox.
    pub(crate) fn kill(&self) {
        let _ = kill(self.init, Signal::SIGKILL);
    }
}

fn read(fd: &OwnedFd, buffer: &mut [u8]) -> usize {
    nix::unistd::read(fd, buffer).unwrap_or(0)
}

/// Undoes what a record tells of. Nothing outlives the sandbox's processes, and they do not outlive
/// their supervisor.
pub(crate) fn clear(_: &SessionId, _: &[RecordFact]) -> Vec<String> {
    Vec::new()
}

/// Undoes what no record tells of; see [`clear`].
pub(crate) fn clear_strays(_: &BTreeSet<SessionId>) -> Vec<String> {
    Vec::new()
}

/// The first process of the sandbox: mounts, starts the server, reaps, and tells the supervisor.
struct Init<'p> {
    plan: &'p ConfinementPlan,
    uid: u32,
    jail: &'p Ephemeral,
    environment: &'p Environment,
    session: &'p SessionId,
    supervisor: &'p OwnedFd,
}

impl Init<'_> {
    fn run(self, record: &InstanceRecord) -> Result<std::convert::Infallible, HelperRefusal> {
        let failed = |tried| move |error| HelperRefusal::system("sandbox", tried, error);
        sys::signal_on_parent_death(Some(Signal::SIGKILL))
            .map_err(failed("set the parent-death signal"))?;
        // The supervisor may have died before that. Its pid is not visible from here; its end of
        // the pipe is.
        let mut reader = [PollFd::new(self.supervisor.as_fd(), PollFlags::empty())];
        if poll(&mut reader, PollTimeout::ZERO).is_ok_and(|n| n > 0) {
            return Err(HelperRefusal::system(
                "sandbox",
                "start",
                "the supervisor is gone",
            ));
        }
        let kinds = CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWUTS;
        server::choose_input(self.plan)?;
        sys::leave_keyring().map_err(failed("leave the keyring"))?;
        unshare(kinds).map_err(failed("make namespaces"))?;
        if self.jail.network == PlannedNetwork::Loopback {
            sys::raise_loopback().map_err(failed("raise the loopback interface"))?;
        }
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
            .map_err(failed("make mounts private"))?;
        self.stage(&record.root())?;
        nix::unistd::sethostname(self.session.mark()).map_err(failed("set the host name"))?;
        // The record's lock must not live on in this process: the supervisor's death has to free
        // it.
        sys::close_all_but(self.supervisor.as_raw_fd()).map_err(failed("close descriptors"))?;
        self.say(&[STAGED])?;
        let Some(main) = sys::fork().map_err(failed("fork"))? else {
            let server = ServerChild {
                plan: self.plan,
                session: self.session,
                environment: self.environment,
                uid: self.uid,
                jid: 0,
            };
            let Err(refusal) = server.execute(|| Ok(()));
            tell::refusal(&refusal.line(false));
            std::process::exit(refusal.exit as i32)
        };
        for own_copy in 0..=2 {
            let _ = nix::unistd::close(own_copy);
        }
        self.attend(main)
    }

    /// Reaps until nobody is left; passes SIGTERM on to all.
    fn attend(&self, main: Pid) -> Result<std::convert::Infallible, HelperRefusal> {
        let awaited: SigSet = [Signal::SIGCHLD, Signal::SIGTERM].into_iter().collect();
        loop {
            loop {
                match sys::wait(None, false)
                    .map_err(|error| HelperRefusal::system("sandbox", "wait", error))?
                {
                    WaitStatus::Child(pid, ended) if pid == main => {
                        let code = ended.code().to_le_bytes();
                        self.say(&[ENDED, code[0], code[1], code[2], code[3]])?;
                    }
                    WaitStatus::Child(..) => {}
                    WaitStatus::NoneYet => break,
                    WaitStatus::NoChildren => std::process::exit(0),
                }
            }
            let signal = awaited
                .wait()
                .map_err(|error| HelperRefusal::system("sandbox", "wait for a signal", error))?;
            if signal == Signal::SIGTERM {
                // All in the namespace but this process (kill(2)).
                let _ = kill(Pid::from_raw(-1), Signal::SIGTERM);
            }
        }
    }

    fn say(&self, message: &[u8]) -> Result<(), HelperRefusal> {
        nix::unistd::write(self.supervisor, message)
            .map(drop)
            .map_err(|error| HelperRefusal::system("sandbox", "report to the supervisor", error))
    }

    /// Builds the root at `at` and makes it this process's own.
    fn stage(&self, at: &Path) -> Result<(), HelperRefusal> {
        let failed = |tried| move |error| HelperRefusal::system("sandbox", tried, error);
        let none = None::<&str>;
        let root = files::open_directory(&self.jail.root, RequiredOwner::Root)?;
        bind(&root, at, MsFlags::MS_RDONLY)?;
        let staged = files::open_directory(at, RequiredOwner::Root)?;
        let dev = files::open_mount_point(&staged, Path::new("/dev"))?;
        let tmp = files::open_mount_point(&staged, Path::new("/tmp"))?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        mount(
            Some("tmpfs"),
            path_of(&dev).as_str(),
            Some("tmpfs"),
            flags,
            Some("size=64k,mode=0755"),
        )
        .map_err(failed("mount /dev"))?;
        let dev = files::open_directory(&at.join("dev"), RequiredOwner::Root)?;
        with_no_mask(|| {
            for (name, minor) in [("null", 3), ("zero", 5), ("random", 8), ("urandom", 9)] {
                let path = format!("{}/{name}", path_of(&dev));
                mknod(
                    path.as_str(),
                    SFlag::S_IFCHR,
                    Mode::from_bits_truncate(0o666),
                    makedev(1, minor),
                )
                .map_err(failed("make a device"))?;
            }
            Ok(())
        })?;
        let read_only = flags | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(none, &at.join("dev"), none, read_only, none)
            .map_err(failed("make /dev read-only"))?;
        let options = format!("size={},mode=1777", self.jail.tmp);
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(
            Some("tmpfs"),
            path_of(&tmp).as_str(),
            Some("tmpfs"),
            flags,
            Some(options.as_str()),
        )
        .map_err(failed("mount /tmp"))?;
        // Some programs find themselves by /proc/self. Where the root has a place for it they get
        // their own processes' directories and nothing of the kernel's; FreeBSD's jails have none.
        if let Ok(proc) = files::open_mount_point(&staged, Path::new("/proc")) {
            let flags =
                MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            let own = Some("subset=pid,hidepid=invisible");
            mount(
                Some("proc"),
                path_of(&proc).as_str(),
                Some("proc"),
                flags,
                own,
            )
            .map_err(failed("mount /proc"))?;
        }
        for shown in &self.jail.mounts {
            let source = files::open_source(shown)?;
            // Checked through the staged root, mounted by path below it: all of it is root's, and
            // read-only.
            files::open_mount_point(&staged, &shown.at)?;
            let below = shown.at.strip_prefix("/").unwrap_or(&shown.at);
            let restricted = if shown.write {
                MsFlags::empty()
            } else {
                MsFlags::MS_RDONLY
            };
            bind(&source, &at.join(below), restricted)?;
        }
        if let Some(agent) = &self.plan.agent {
            let source = agent_socket::open(agent, self.session)?;
            files::open_mount_point(&staged, Path::new(DOOR))?;
            let below = DOOR.trim_start_matches('/');
            bind(
                &source,
                &at.join(below),
                MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC,
            )?;
        }
        std::env::set_current_dir(at)
            .map_err(|error| HelperRefusal::system("sandbox", "enter the staged root", error))?;
        pivot_root(".", ".").map_err(failed("pivot_root"))?;
        umount2(".", MntFlags::MNT_DETACH).map_err(failed("leave the old root"))?;
        std::env::set_current_dir("/")
            .map_err(|error| HelperRefusal::system("sandbox", "enter the new root", error))
    }
}

/// The path by which mount(2) reaches exactly what a descriptor is open on.
fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Shows a directory, in any case without devices and set-user-ID.
fn bind(source: &OwnedFd, at: &Path, restricted: MsFlags) -> Result<(), HelperRefusal> {
    let failed = |tried| move |error| HelperRefusal::system("sandbox", tried, error);
    let none = None::<&str>;
    mount(
        Some(path_of(source).as_str()),
        at,
        none,
        MsFlags::MS_BIND,
        none,
    )
    .map_err(failed("bind a directory"))?;
    let flags = restricted
        | MsFlags::MS_BIND
        | MsFlags::MS_REMOUNT
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV;
    mount(none, at, none, flags, none).map_err(failed("restrict a bound directory"))
}

/// Runs `make` with no mode bits masked: devices are for everybody.
fn with_no_mask(make: impl FnOnce() -> Result<(), HelperRefusal>) -> Result<(), HelperRefusal> {
    let mask = nix::sys::stat::umask(Mode::empty());
    let made = make();
    nix::sys::stat::umask(mask);
    made
}

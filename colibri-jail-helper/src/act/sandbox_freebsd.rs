//! The jail of an instance: making it or entering it, starting the server in it, and undoing all of
//! it.
//!
//! ```text
//! outer ── supervisor (reaper, owns the jail's descriptor) ── server, in the jail
//! ```

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use colibri_jail_helper::STATE_DIR;
use colibri_jail_helper::limits::PlannedLimits;
use colibri_jail_helper::names::{self, JailName, SessionId};
use colibri_jail_helper::plan::{
    ConfinementPlan, Ephemeral, PlannedFamily, PlannedNetwork, ServerPlace,
};
use colibri_jail_helper::record::RecordFact;
use colibri_jail_helper::refusal::{HelperExit, HelperRefusal};
use colibri_registry::{Abi, RctlResource};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::act::secrets::Environment;
use crate::act::server::{self, ServerChild};
use crate::act::state::InstanceRecord;
use crate::act::{agent_socket, files, mounts, tell};
use crate::sys::{self, Parameters, WaitStatus};

/// The most bytes of a jail's path (MAXPATHLEN) and name (MAXHOSTNAMELEN).
const PATH_ROOM: usize = 1024;
const NAME_ROOM: usize = 256;

/// The most bytes of the kernel's own explanation.
const ERRMSG_ROOM: usize = 1024;

/// Refuses what the state of the system does not allow, before anything is made.
///
/// # Errors
/// A path that is not as it must be, a live jail in the way, a persistent jail that does not run or
/// is not the one the entry means, resource accounting that is off, a kernel in which a jail has no
/// network stack of its own.
pub(crate) fn check(plan: &ConfinementPlan) -> Result<(), HelperRefusal> {
    if plan.limits.needs_racct && !racct() {
        return Err(HelperRefusal::file(
            "racct",
            "limits.memory, swap, processes and threads of an entry need resource accounting: put kern.racct.enable=1 \
             into /boot/loader.conf and reboot",
        ));
    }
    match &plan.place {
        ServerPlace::Ephemeral(jail) => {
            if jail.abi == Abi::Linux {
                require_linux()?;
            }
            files::check_places(jail, plan.agent.is_some())?;
            refuse_jails_in_the_way(&jail.root)?;
            refuse_thin_root(&jail.root)?;
            if jail.network == PlannedNetwork::Loopback
                && sys::sysctl_number("kern.features.vimage") != Some(1)
            {
                let what = "give a jail a network stack of its own";
                return Err(HelperRefusal::system(
                    "vimage",
                    what,
                    "this kernel is built without VIMAGE",
                ));
            }
        }
        ServerPlace::Persistent { jail, root_path } => {
            let found = find_persistent(jail, root_path.as_deref())?;
            if plan.agent.is_some() {
                mounts::door_in(&found.path)?;
            }
        }
    }
    Ok(())
}

fn racct() -> bool {
    sys::sysctl_number("kern.racct.enable") == Some(1)
}

/// The modules without which no Linux program starts, or not all of its file systems are there.
/// They are looked for, since nmount(2) would load those of file systems by itself.
const LINUX_MODULES: &[&str] = &["linux64elf", "linprocfs", "linsysfs", "fdescfs"];

/// Refuses where Linux programs cannot run: loading modules into the kernel is the administrator's.
fn require_linux() -> Result<(), HelperRefusal> {
    match LINUX_MODULES.iter().find(|name| !sys::has_module(name)) {
        None => Ok(()),
        Some(missing) => Err(HelperRefusal::file(
            "linux",
            format!(
                "\"abi\": \"linux\" needs the kernel module {missing}, which is not loaded: sysrc linux_enable=YES and \
                 service linux start"
            ),
        )),
    }
}

/// A live jail, as jail_get(2) tells.
struct Live {
    jid: i32,
    name: String,
    path: String,
}

impl Live {
    /// One of the helper's own: by name, and by the place of its root, which nobody else can have.
    fn session(&self) -> Option<SessionId> {
        let session = SessionId::from_mark(&self.name)?;
        (self.path == format!("{STATE_DIR}/{session}/root")).then_some(session)
    }
}

fn jails() -> Result<Vec<Live>, HelperRefusal> {
    let failed = |error| HelperRefusal::system("jails", "list the jails", error);
    let mut found = Vec::new();
    let mut last = 0;
    loop {
        let parameters = Parameters::new()
            .number("lastjid", last)
            .and_then(|p| p.room("name", NAME_ROOM))
            .and_then(|p| p.room("path", PATH_ROOM));
        let mut parameters = parameters.map_err(failed)?;
        match sys::jail_get(&mut parameters, 0) {
            Ok(jid) => {
                last = jid;
                found.push(Live {
                    jid,
                    name: parameters.read_text("name"),
                    path: parameters.read_text("path"),
                });
            }
            Err(Errno::ENOENT) => return Ok(found),
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Two jails that share directories can pass descriptors and links to each other. A jail whose root
/// is `/` (a service jail) is the host in this respect, and in nobody's way.
fn refuse_jails_in_the_way(root: &Path) -> Result<(), HelperRefusal> {
    let root = root.to_string_lossy();
    for jail in jails()? {
        let near =
            names::is_at_or_below(&root, &jail.path) || names::is_at_or_below(&jail.path, &root);
        if near && jail.path != "/" && jail.session().is_none() {
            return Err(HelperRefusal::policy(
                "jail path",
                "a live jail has its root at, above or below the entry's path",
            ));
        }
    }
    Ok(())
}

/// A nullfs of a directory does not show what is mounted below it: the base of a thin jail would be
/// missing.
fn refuse_thin_root(root: &Path) -> Result<(), HelperRefusal> {
    let below = format!("{}/", root.display());
    let mounted = sys::all_mounted()
        .map_err(|error| HelperRefusal::system("mounts", "list what is mounted", error))?;
    if mounted.iter().any(|mount| mount.on.starts_with(&below)) {
        let what = format!(
            "{}: something is mounted below it (a thin jail?); the root must be complete",
            root.display()
        );
        return Err(HelperRefusal::file("root", what));
    }
    Ok(())
}

/// A persistent jail that is as the entry says.
fn find_persistent(name: &JailName, root_path: Option<&Path>) -> Result<Live, HelperRefusal> {
    let failed = |error| HelperRefusal::system("jails", "look a jail up", error);
    let mac_do = sys::sysctl_exists("security.jail.param.mac.do.");
    let parameters = Parameters::new()
        .text("name", name.as_str())
        .and_then(|p| p.room("path", PATH_ROOM));
    let parameters = if mac_do {
        parameters.and_then(|p| p.number("mac.do", 0))
    } else {
        parameters
    };
    let mut parameters = parameters.map_err(failed)?;
    let jid = match sys::jail_get(&mut parameters, 0) {
        Ok(jid) => jid,
        Err(Errno::ENOENT) => {
            return Err(HelperRefusal::new(
                HelperExit::TryLater,
                "jail",
                "the jail is not running; start it with service jail start",
            ));
        }
        Err(error) => return Err(failed(error)),
    };
    let path = parameters.read_text("path");
    if root_path.is_some_and(|wanted| wanted.to_string_lossy() != path) {
        return Err(HelperRefusal::policy(
            "root_path",
            "the running jail of this name has another path than the entry says",
        ));
    }
    if mac_do && parameters.read_number("mac.do") == Some(libc::JAIL_SYS_INHERIT) {
        let what = "the jail inherits mac.do, by which its processes can become root in it; set mac.do=disable";
        return Err(HelperRefusal::policy("mac.do", what));
    }
    Ok(Live {
        jid,
        name: name.to_string(),
        path,
    })
}

/// A running instance.
pub(crate) struct Sandbox {
    jid: i32,
    main: Pid,
    code: Option<i32>,
    empty: bool,
    // Held for its life alone: the kernel removes the jail with the last copy, whatever ends this
    // process.
    _owner: Option<OwnedFd>,
}

impl Sandbox {
    /// Makes or enters the jail and starts the server in it.
    ///
    /// # Errors
    /// A step failed; what was made is in the record.
    pub(crate) fn create(
        plan: &ConfinementPlan,
        uid: u32,
        environment: &Environment,
        record: &mut InstanceRecord,
    ) -> Result<Self, HelperRefusal> {
        let failed = |tried| move |error| HelperRefusal::system("jail", tried, error);
        sys::become_reaper().map_err(failed("become the reaper"))?;
        let session = record.session().clone();
        let door = plan
            .agent
            .map(|agent| agent_socket::open(&agent, &session))
            .transpose()?;
        let mut raises_loopback = false;
        let (jid, owner) = match &plan.place {
            ServerPlace::Ephemeral(jail) => {
                record.note(RecordFact::Ephemeral)?;
                mounts::stage(jail, door.as_ref(), record)?;
                raises_loopback = jail.network == PlannedNetwork::Loopback;
                make_jail(jail, &session, &record.root())?
            }
            ServerPlace::Persistent { jail, root_path } => {
                record.note(RecordFact::Persistent(jail.clone()))?;
                let found = find_persistent(jail, root_path.as_deref())?;
                if let Some(door) = &door {
                    mounts::show_door(&found.path, door, record)?;
                }
                (found.jid, None)
            }
        };
        // A directory, with which nobody enters a jail.
        drop(door);
        record.note(RecordFact::Jid(jid))?;
        if racct() {
            record.note(RecordFact::Rules)?;
            add_rules(&session, &plan.limits)?;
        }
        match sys::fork().map_err(failed("fork"))? {
            Some(main) => Ok(Self {
                jid,
                main,
                code: None,
                empty: false,
                _owner: owner,
            }),
            None => {
                let server = ServerChild {
                    plan,
                    session: &session,
                    environment,
                    uid,
                    jid,
                };
                let enter = || {
                    sys::jail_attach(jid).map_err(failed("enter the jail"))?;
                    // In the stack of its own that the jail has; no user but root can.
                    match raises_loopback {
                        true => {
                            sys::raise_loopback().map_err(failed("raise the loopback interface"))
                        }
                        false => Ok(()),
                    }
                };
                let Err(refusal) = server::choose_input(plan).and_then(|()| server.execute(enter));
                tell::refusal(&refusal.line(false));
                std::process::exit(refusal.exit as i32)
            }
        }
    }

    /// The jail's id.
    pub(crate) fn jid(&self) -> i32 {
        self.jid
    }

    /// A descriptor that becomes readable when something ended: SIGCHLD tells it all here.
    pub(crate) fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Reaps what has ended. As the reaper, this process gets every descendant, orphans included.
    ///
    /// # Errors
    /// waitpid(2) failed.
    pub(crate) fn reap(&mut self) -> Result<(), HelperRefusal> {
        while !self.empty {
            match sys::wait(None, false)
                .map_err(|error| HelperRefusal::system("jail", "wait", error))?
            {
                WaitStatus::Child(pid, ended) if pid == self.main => self.code = Some(ended.code()),
                WaitStatus::Child(..) => {}
                WaitStatus::NoneYet => break,
                WaitStatus::NoChildren => self.empty = true,
            }
        }
        Ok(())
    }

    /// The server's exit code, once it has ended.
    pub(crate) fn main_code(&self) -> Option<i32> {
        self.code
    }

    /// True if no process is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// Sends SIGTERM to every process below this one.
    pub(crate) fn terminate(&self) {
        // ESRCH: nobody is left, which the next reap finds.
        let _ = sys::signal_descendants(Signal::SIGTERM);
    }

    /// Kills every process below this one.
    pub(crate) fn kill(&self) {
        let _ = sys::signal_descendants(Signal::SIGKILL);
    }
}

/// Makes the jail, empty. It persists until it is removed; where the kernel has owning descriptors
/// (15), it is removed with the one that is returned.
fn make_jail(
    jail: &Ephemeral,
    session: &SessionId,
    root: &Path,
) -> Result<(i32, Option<OwnedFd>), HelperRefusal> {
    let failed = |error| HelperRefusal::system("jail", "name the jail's parameters", error);
    let allow = allow_parameters(jail)?;
    let build = |own: bool| -> Result<Parameters, Errno> {
        let mut parameters = Parameters::new()
            .text("path", &root.to_string_lossy())?
            .text("name", &session.mark())?
            .text("host.hostname", &session.mark())?
            .number("children.max", 0)?
            .number("enforce_statfs", 2)?
            .flag("persist")?;
        for module in ["sysvmsg", "sysvsem", "sysvshm"] {
            // Parameters of modules: where one is not there, neither is what it would allow.
            if sys::sysctl_exists(&format!("security.jail.param.{module}.")) {
                parameters = parameters.number(module, libc::JAIL_SYS_DISABLE)?;
            }
        }
        if sys::sysctl_exists("security.jail.param.mac.do.") {
            parameters = parameters.number("mac.do", libc::JAIL_SYS_DISABLE)?;
        }
        for parameter in &allow {
            parameters = parameters.flag(parameter)?;
        }
        parameters = match &jail.network {
            PlannedNetwork::Loopback => parameters.number("vnet", libc::JAIL_SYS_NEW)?,
            PlannedNetwork::Families { ip4, ip6 } => {
                let parameters = family_parameter(parameters, "ip4", ip4)?;
                family_parameter(parameters, "ip6", ip6)?
            }
        };
        if own {
            parameters = parameters.number("desc", -1)?;
        }
        parameters.room("errmsg", ERRMSG_ROOM)
    };
    let mut parameters = build(true).map_err(failed)?;
    match sys::jail_set(&mut parameters, libc::JAIL_CREATE | sys::JAIL_OWN_DESC) {
        Ok(jid) => {
            let fd = parameters.read_number("desc").filter(|fd| *fd > 2);
            let fd = fd.ok_or_else(|| {
                HelperRefusal::system("jail", "own the jail", "the kernel gave no descriptor")
            })?;
            let owner = sys::take_descriptor(fd)
                .map_err(|error| HelperRefusal::system("jail", "own the jail", error))?;
            Ok((jid, Some(owner)))
        }
        // A kernel before 15 does not know the flag, and says so by an EINVAL without a word. Any
        // other EINVAL has one.
        Err(Errno::EINVAL) if parameters.read_text("errmsg").is_empty() => {
            let mut parameters = build(false).map_err(failed)?;
            let made = sys::jail_set(&mut parameters, libc::JAIL_CREATE);
            made.map(|jid| (jid, None))
                .map_err(|error| refused_jail(error, &parameters))
        }
        Err(error) => Err(refused_jail(error, &parameters)),
    }
}

fn family_parameter(
    parameters: Parameters,
    family: &str,
    network: &PlannedFamily,
) -> Result<Parameters, Errno> {
    match network {
        PlannedFamily::Disable => parameters.number(family, libc::JAIL_SYS_DISABLE),
        PlannedFamily::Inherit => parameters.number(family, libc::JAIL_SYS_INHERIT),
        PlannedFamily::Addresses(addresses) => {
            let bytes = addresses.iter().flat_map(address_bytes).collect();
            parameters
                .number(family, libc::JAIL_SYS_NEW)?
                .bytes(&format!("{family}.addr"), bytes)
        }
    }
}

fn refused_jail(error: Errno, parameters: &Parameters) -> HelperRefusal {
    HelperRefusal::system(
        "jail",
        "make the jail",
        format!("{error} {}", parameters.read_text("errmsg")),
    )
}

fn address_bytes(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Every `allow` parameter that this kernel knows, as itself if the plan has it, else negated: what
/// a kernel will allow by default tomorrow is then refused today.
///
/// `suser` stays: with `allow.nosuser` the child could enter the jail as root and not give up root
/// in it (observed: setgroups(2) fails with EPERM). No process of the jail is root after that, and
/// none can become it.
fn allow_parameters(jail: &Ephemeral) -> Result<Vec<String>, HelperRefusal> {
    let known = sys::sysctl_names_below("security.jail.param.allow")
        .map_err(|error| HelperRefusal::system("jail", "list the allow parameters", error))?;
    let mut parameters = Vec::new();
    // A node that is a parameter itself is listed with a dot at its end (`mount.`).
    for name in known.iter().map(|name| name.trim_end_matches('.')) {
        let wanted = name == "suser" || jail.allow.iter().any(|asked| asked == name);
        parameters.push(match (wanted, name.rsplit_once('.')) {
            (true, _) => format!("allow.{name}"),
            (false, Some((above, last))) => format!("allow.{above}.no{last}"),
            (false, None) => format!("allow.no{name}"),
        });
    }
    if let Some(unknown) = jail
        .allow
        .iter()
        .find(|asked| !known.iter().any(|name| name == *asked))
    {
        return Err(HelperRefusal::file(
            "allow",
            format!("this kernel knows no parameter allow.{unknown}"),
        ));
    }
    Ok(parameters)
}

/// The limits that rctl(8) holds for an instance as a whole. `swapuse` alone counts shared memory
/// that nobody has mapped, as of shm_open(SHM_ANON); threads are counted by nothing else.
const RULES: &[(&str, RctlResource)] = &[
    ("vmemoryuse", RctlResource::Memory),
    ("swapuse", RctlResource::Swap),
    ("maxproc", RctlResource::Processes),
    ("nthr", RctlResource::Threads),
];

/// Rules on the login class, which is the instance's alone, in an ephemeral jail and in a
/// persistent one.
fn add_rules(session: &SessionId, limits: &PlannedLimits) -> Result<(), HelperRefusal> {
    let class = session.mark();
    for (resource, limit) in RULES {
        if let Some(most) = limits.get(*limit) {
            sys::add_resource_rule(&format!("loginclass:{class}:{resource}:deny={most}"))
                .map_err(|error| HelperRefusal::system("rctl", "add a resource rule", error))?;
        }
    }
    Ok(())
}

/// Undoes what a record tells of: processes, jail, mounts, rules, in this order. Returns what is
/// left.
pub(crate) fn clear(session: &SessionId, facts: &[RecordFact]) -> Vec<String> {
    let mut left = Vec::new();
    match jails() {
        Ok(jails) => {
            for jail in jails
                .iter()
                .filter(|jail| jail.session().as_ref() == Some(session))
            {
                left.extend(remove_jail(jail));
            }
        }
        Err(refusal) => left.push(refusal.detail),
    }
    left.extend(kill_marked(&|marked| marked == session));
    left.extend(mounts::undo(session, facts));
    // One that was made by a helper that was killed before it could note it.
    left.extend(mounts::undo_strays(&|of| of == session));
    if facts.contains(&RecordFact::Rules) {
        let filter = format!("loginclass:{}", session.mark());
        match sys::remove_resource_rules(&filter) {
            Ok(()) | Err(Errno::ESRCH | Errno::ENOSYS) => {}
            Err(error) => left.push(format!("resource rules of {}: {error}", session.mark())),
        }
    }
    left
}

fn remove_jail(jail: &Live) -> Option<String> {
    match sys::jail_remove(jail.jid) {
        // EINVAL: it has just gone.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => None,
        Err(error) => Some(format!("jail {} cannot be removed: {error}", jail.name)),
    }
}

/// Kills every process that bears the mark of such a session, again and again until none does: one
/// may fork while it is looked for.
fn kill_marked(doomed: &dyn Fn(&SessionId) -> bool) -> Option<String> {
    let mut alive = Vec::new();
    for _ in 0..100 {
        let processes = match sys::processes() {
            Ok(processes) => processes,
            Err(error) => return Some(format!("processes cannot be listed: {error}")),
        };
        alive = processes
            .into_iter()
            .filter(|process| process.session.as_ref().is_some_and(doomed))
            .map(|process| process.pid)
            .collect();
        if alive.is_empty() {
            return None;
        }
        for pid in &alive {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Some(format!(
        "processes that do not end when they are killed: {alive:?}"
    ))
}

/// Undoes what no record tells of: a record may be lost, the marks are not. `live` are the sessions
/// that somebody owns.
pub(crate) fn clear_strays(live: &BTreeSet<SessionId>) -> Vec<String> {
    let mut left = Vec::new();
    let strange = |session: &SessionId| !live.contains(session);
    match jails() {
        Ok(jails) => {
            for jail in jails
                .iter()
                .filter(|jail| jail.session().as_ref().is_some_and(strange))
            {
                left.extend(remove_jail(jail));
            }
        }
        Err(refusal) => left.push(refusal.detail),
    }
    left.extend(kill_marked(&strange));
    left.extend(mounts::undo_strays(&strange));
    if let Ok(rules) = sys::resource_rules("loginclass:") {
        let marks: BTreeSet<&str> = rules
            .iter()
            .filter_map(|rule| rule.split(':').nth(1))
            .collect();
        for mark in marks
            .into_iter()
            .filter(|mark| SessionId::from_mark(mark).as_ref().is_some_and(strange))
        {
            if let Err(error) = sys::remove_resource_rules(&format!("loginclass:{mark}")) {
                left.push(format!("resource rules of {mark}: {error}"));
            }
        }
    }
    left
}

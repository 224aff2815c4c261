//! `/var/run/colibri-jail`: one lock for counting, creating and sweeping, and one directory per
//! instance with its record, which its supervisor holds flocked for as long as it lives. The kernel
//! drops the lock with its holder, so that "nobody owns this" is a fact and not a guess about pids.
//!
//! ```text
//! lock                 flocked while instances are counted, made, removed or swept; in it, by whom
//! starts               the last minute's starts: seconds since boot, server
//! <session>/record     facts, in the order they came to be (colibri_jail_helper::record)
//! <session>/stop       FIFO: a byte in it is the order to end
//! <session>/root       where an ephemeral jail's root is staged
//! ```

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use colibri_jail_helper::STATE_DIR;
use colibri_jail_helper::names::SessionId;
use colibri_jail_helper::plan::ConfinementPlan;
use colibri_jail_helper::policy::Policy;
use colibri_jail_helper::record::RecordFact;
use colibri_jail_helper::refusal::{HelperExit, HelperRefusal};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, mkfifoat, unlinkat};

use crate::act::agent_socket;
use crate::act::files::{self, RequiredOwner};

/// The most bytes of a record or of `starts` that are read.
const MAX_FILE: u64 = 1 << 20;

/// The longest that the lock is waited for. It is held for a few file operations, or by a sweep,
/// which can take its time over mounts that are busy.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(15);

/// The state directory.
pub(crate) struct StateDirectory {
    directory: OwnedFd,
    verb: &'static str,
}

/// The state directory, locked.
pub(crate) struct LockedStateDirectory<'s> {
    state: &'s StateDirectory,
    _lock: Flock<File>,
}

/// An instance's directory, with its record locked by this process.
pub(crate) struct InstanceRecord {
    session: SessionId,
    directory: OwnedFd,
    file: Flock<File>,
    facts: Vec<RecordFact>,
}

/// An instance's record, as found.
pub(crate) enum RecordLookup {
    /// A live helper has it.
    Owned(Vec<RecordFact>),
    /// Nobody has it; now this process does.
    Abandoned(InstanceRecord),
    /// There is none.
    Absent,
}

fn failed(tried: &'static str) -> impl Fn(Errno) -> HelperRefusal {
    move |error| HelperRefusal::system("state", tried, error)
}

fn failed_io(tried: &'static str) -> impl Fn(std::io::Error) -> HelperRefusal {
    move |error| HelperRefusal::system("state", tried, error)
}

fn private(directory: &OwnedFd) -> Result<(), HelperRefusal> {
    let stat = fstat(directory).map_err(failed("examine the state directory"))?;
    if stat.st_uid == 0 && stat.st_mode & 0o077 == 0 {
        return Ok(());
    }
    Err(HelperRefusal::file(
        "state",
        format!("{STATE_DIR} must be root's and 0700; remove it and start again"),
    ))
}

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

impl StateDirectory {
    /// Opens the state directory for a request; makes it if it is not there (`/var/run` is emptied
    /// at boot).
    ///
    /// # Errors
    /// It, or a directory above it, is not root's alone.
    pub(crate) fn open(verb: &'static str) -> Result<Self, HelperRefusal> {
        let path = Path::new(STATE_DIR);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(HelperRefusal::system(
                "state",
                "name the state directory",
                "no parent",
            ));
        };
        let parent = files::open_directory(parent, RequiredOwner::Root)?;
        match mkdirat(parent.as_fd(), name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(failed("make the state directory")(error)),
        }
        let directory = openat(parent.as_fd(), name, DIRECTORY, Mode::empty())
            .map_err(|_| HelperRefusal::file("state", format!("{STATE_DIR} is not a directory")))?;
        private(&directory)?;
        Ok(Self { directory, verb })
    }

    /// Waits for the lock, and writes into it who has it then.
    ///
    /// # Errors
    /// The lock's file cannot be opened; or another process keeps the lock, which is named.
    pub(crate) fn lock(&self) -> Result<LockedStateDirectory<'_>, HelperRefusal> {
        let mut file = self.open_file(&self.directory, "lock")?;
        let deadline = Instant::now() + MAX_LOCK_WAIT;
        // flock(2) has no time-out.
        let mut lock = loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => break lock,
                Err((unlocked, Errno::EWOULDBLOCK)) if Instant::now() < deadline => {
                    file = unlocked;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err((unlocked, Errno::EWOULDBLOCK)) => {
                    let mut holder = String::new();
                    let _ = unlocked.take(64).read_to_string(&mut holder);
                    let what = format!(
                        "process {} has kept the lock for {MAX_LOCK_WAIT:?}",
                        holder.trim()
                    );
                    return Err(HelperRefusal::new(HelperExit::TryLater, "lock", what));
                }
                Err((_, error)) => return Err(failed("lock the state")(error)),
            }
        };
        // For whoever waits in vain; on a full disk that one is not told.
        let holder = format!("{} ({})\n", std::process::id(), self.verb);
        let _ = lock
            .set_len(0)
            .and_then(|()| lock.write_all(holder.as_bytes()));
        Ok(LockedStateDirectory {
            state: self,
            _lock: lock,
        })
    }

    fn open_file(&self, directory: &OwnedFd, name: &str) -> Result<File, HelperRefusal> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        Ok(File::from(
            openat(directory.as_fd(), name, flags, mode)
                .map_err(failed("open a file of the state"))?,
        ))
    }

    /// Signals a live supervisor to end, and waits until it has; gives the record to the caller if
    /// the supervisor left it behind.
    ///
    /// # Errors
    /// It is still there after `patience`.
    pub(crate) fn end(
        &self,
        session: &SessionId,
        patience: Duration,
    ) -> Result<Option<InstanceRecord>, HelperRefusal> {
        let deadline = Instant::now() + patience;
        let mut asked = false;
        loop {
            match self.lock()?.find(session)? {
                RecordLookup::Absent => return Ok(None),
                RecordLookup::Abandoned(record) => return Ok(Some(record)),
                RecordLookup::Owned(_) if !asked => asked = self.order_to_end(session)?,
                RecordLookup::Owned(_) => {}
            }
            if Instant::now() >= deadline {
                return Err(HelperRefusal::new(
                    HelperExit::TryLater,
                    "stop",
                    "the instance is still ending",
                ));
            }
            // flock(2) has no time-out; the supervisor takes seconds at most.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes the order into the instance's FIFO. `false`: nobody reads it, as in the moment
    /// between making the record and opening the FIFO, or at the very end.
    ///
    /// # Errors
    /// The FIFO cannot be opened.
    pub(crate) fn order_to_end(&self, session: &SessionId) -> Result<bool, HelperRefusal> {
        let path = format!("{session}/stop");
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match openat(self.directory.as_fd(), path.as_str(), flags, Mode::empty()) {
            Ok(fifo) => Ok(nix::unistd::write(&fifo, b"x").is_ok()),
            Err(Errno::ENXIO | Errno::ENOENT) => Ok(false),
            Err(error) => Err(failed("open the stop FIFO")(error)),
        }
    }
}

impl LockedStateDirectory<'_> {
    /// The sessions that have a directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn sessions(&self) -> Result<Vec<SessionId>, HelperRefusal> {
        let again = openat(self.state.directory.as_fd(), ".", DIRECTORY, Mode::empty());
        let mut directory = again
            .and_then(Dir::from_fd)
            .map_err(failed("read the state directory"))?;
        let mut sessions = Vec::new();
        for entry in directory.iter() {
            let entry = entry.map_err(failed("read the state directory"))?;
            sessions.extend(SessionId::parse(entry.file_name().to_bytes()));
        }
        sessions.sort();
        Ok(sessions)
    }

    /// Looks at one instance.
    ///
    /// # Errors
    /// Its record cannot be opened or read.
    pub(crate) fn find(&self, session: &SessionId) -> Result<RecordLookup, HelperRefusal> {
        let directory = match openat(
            self.state.directory.as_fd(),
            session.as_str(),
            DIRECTORY,
            Mode::empty(),
        ) {
            Ok(directory) => directory,
            Err(Errno::ENOENT) => return Ok(RecordLookup::Absent),
            Err(error) => return Err(failed("open an instance's directory")(error)),
        };
        let mut file = self.state.open_file(&directory, "record")?;
        let mut bytes = Vec::new();
        (&mut file)
            .take(MAX_FILE)
            .read_to_end(&mut bytes)
            .map_err(failed_io("read a record"))?;
        let facts = RecordFact::read_all(&bytes);
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(RecordLookup::Abandoned(InstanceRecord {
                session: session.clone(),
                directory,
                file,
                facts,
            })),
            Err((_, Errno::EWOULDBLOCK)) => Ok(RecordLookup::Owned(facts)),
            Err((_, error)) => Err(failed("lock a record")(error)),
        }
    }

    /// The instances that a live supervisor has.
    ///
    /// # Errors
    /// The directory or a record cannot be read.
    pub(crate) fn owned(&self) -> Result<Vec<(SessionId, Vec<RecordFact>)>, HelperRefusal> {
        let mut owned = Vec::new();
        for session in self.sessions()? {
            if let RecordLookup::Owned(facts) = self.find(&session)? {
                owned.push((session, facts));
            }
        }
        Ok(owned)
    }

    /// Counts what lives and what was started lately, and refuses one more than the policy allows,
    /// or than leaves other servers some. A start that is admitted counts from now on. Returns the
    /// uid for the instance.
    ///
    /// # Errors
    /// [`HelperExit::Limit`], naming the number; [`HelperExit::TryLater`] where something else is
    /// in the way.
    pub(crate) fn admit(
        &self,
        plan: &ConfinementPlan,
        policy: &Policy,
    ) -> Result<u32, HelperRefusal> {
        let refuse = |rule, what: &str| Err(HelperRefusal::new(HelperExit::Limit, rule, what));
        let server = &plan.server;
        let owned = self.owned()?;
        let all = owned.len() as u64;
        let of_this = owned
            .iter()
            .filter(|(_, facts)| facts.contains(&RecordFact::Server(server.clone())))
            .count() as u64;
        // Those of abandoned instances too: something of them may still run.
        let mut taken = Vec::new();
        let door = plan.door_in_persistent();
        for session in self.sessions()? {
            let (RecordLookup::Owned(facts)
            | RecordLookup::Abandoned(InstanceRecord { facts, .. })) = self.find(&session)?
            else {
                continue;
            };
            if door.as_ref().is_some_and(|door| facts.contains(door)) {
                return Err(agent_socket::taken());
            }
            taken.extend(facts.iter().filter_map(|fact| match fact {
                RecordFact::Uid(uid) => Some(*uid),
                _ => None,
            }));
        }
        if all >= policy.max {
            return refuse("max", "as many instances run as the policy's max allows");
        }
        if of_this >= policy.max_per_server {
            return refuse(
                "max_per_server",
                "as many instances of this server run as max_per_server allows",
            );
        }
        let Some(uid) = plan.uids.free(&taken) else {
            return refuse("uids", "each uid of the server's range has an instance");
        };
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
            .map_err(failed("read the clock"))?
            .tv_sec();
        let mut file = self.state.open_file(&self.state.directory, "starts")?;
        let mut text = String::new();
        // What cannot be read as text was not written by us, and counts for nothing.
        let _ = (&mut file).take(MAX_FILE).read_to_string(&mut text);
        let mut starts: Vec<(i64, &str)> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(at, server)| Some((at.parse().ok()?, server)))
            .filter(|(at, _)| (now - 59..=now).contains(at))
            .collect();
        if starts.len() as u64 >= policy.starts_per_minute {
            return refuse(
                "starts_per_minute",
                "as many starts in a minute as starts_per_minute allows",
            );
        }
        let of_this = starts
            .iter()
            .filter(|(_, other)| *other == server.as_str())
            .count() as u64;
        if of_this >= policy.starts_per_minute_of_one() {
            return refuse(
                "starts_per_minute",
                "this server has had three quarters of starts_per_minute, the rest is for others",
            );
        }
        starts.push((now, server.as_str()));
        let text: String = starts
            .iter()
            .map(|(at, server)| format!("{at} {server}\n"))
            .collect();
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(text.as_bytes())
        };
        write(&mut file).map_err(failed_io("write the starts"))?;
        Ok(uid)
    }

    /// Makes an instance's directory and its record, locked by this process.
    ///
    /// # Errors
    /// The session has a directory already.
    pub(crate) fn create(
        &self,
        session: &SessionId,
        facts: Vec<RecordFact>,
    ) -> Result<InstanceRecord, HelperRefusal> {
        let top = self.state.directory.as_fd();
        match mkdirat(top, session.as_str(), Mode::S_IRWXU) {
            Ok(()) => {}
            Err(Errno::EEXIST) => {
                return Err(HelperRefusal::new(
                    HelperExit::TryLater,
                    "session",
                    "an instance of this session exists; run sweep",
                ));
            }
            Err(error) => return Err(failed("make an instance's directory")(error)),
        }
        let directory = openat(top, session.as_str(), DIRECTORY, Mode::empty())
            .map_err(failed("open an instance's directory"))?;
        let made = self.fill(session, &directory, facts);
        if made.is_err() {
            // What of it was made goes again, on a full disk above all.
            let _ = self.remove_all(session, &directory);
        }
        made
    }

    fn fill(
        &self,
        session: &SessionId,
        directory: &OwnedFd,
        facts: Vec<RecordFact>,
    ) -> Result<InstanceRecord, HelperRefusal> {
        let file = self.state.open_file(directory, "record")?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, error)| failed("lock a record")(error))?;
        let mut record = InstanceRecord {
            session: session.clone(),
            directory: directory
                .try_clone()
                .map_err(failed_io("keep an instance's directory"))?,
            file,
            facts: Vec::new(),
        };
        for fact in facts {
            record.note(fact)?;
        }
        mkfifoat(directory.as_fd(), "stop", Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(failed("make the stop FIFO"))?;
        mkdirat(directory.as_fd(), "root", Mode::S_IRWXU)
            .map_err(failed("make the staging directory"))?;
        Ok(record)
    }

    /// Removes an instance's directory: the last step of a teardown.
    ///
    /// # Errors
    /// Something is still in it, such as a file system that could not be unmounted.
    pub(crate) fn remove(&self, record: &InstanceRecord) -> Result<(), HelperRefusal> {
        self.remove_all(&record.session, &record.directory)
    }

    fn remove_all(&self, session: &SessionId, directory: &OwnedFd) -> Result<(), HelperRefusal> {
        let gone = |result: Result<(), Errno>| match result {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(failed("remove an instance's directory")(error)),
        };
        // `root` first: while it cannot go, the record stays for the next sweep.
        gone(unlinkat(
            directory.as_fd(),
            "root",
            UnlinkatFlags::RemoveDir,
        ))?;
        gone(unlinkat(
            directory.as_fd(),
            "stop",
            UnlinkatFlags::NoRemoveDir,
        ))?;
        gone(unlinkat(
            directory.as_fd(),
            "record",
            UnlinkatFlags::NoRemoveDir,
        ))?;
        gone(unlinkat(
            self.state.directory.as_fd(),
            session.as_str(),
            UnlinkatFlags::RemoveDir,
        ))
    }
}

impl InstanceRecord {
    /// The instance.
    pub(crate) fn session(&self) -> &SessionId {
        &self.session
    }

    /// The facts of all that has been made so far, oldest first.
    pub(crate) fn facts(&self) -> &[RecordFact] {
        &self.facts
    }

    /// Adds a fact, on disk before this returns.
    ///
    /// # Errors
    /// It cannot be written; then what it tells of must be undone at once.
    pub(crate) fn note(&mut self, fact: RecordFact) -> Result<(), HelperRefusal> {
        let line = fact.to_line();
        self.facts.push(fact);
        self.file
            .seek(SeekFrom::End(0))
            .map_err(failed_io("write a record"))?;
        self.file
            .write_all(line.as_bytes())
            .map_err(failed_io("write a record"))
    }

    /// The path at which the instance's root is staged.
    pub(crate) fn root(&self) -> PathBuf {
        Path::new(STATE_DIR)
            .join(self.session.as_str())
            .join("root")
    }

    /// The FIFO in which the order to end comes. Open for writing too, so that it never reports a
    /// hang-up.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn open_stop(&self) -> Result<OwnedFd, HelperRefusal> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(
            self.directory.as_fd(),
            OsStr::new("stop"),
            flags,
            Mode::empty(),
        )
        .map_err(failed("open the stop FIFO"))
    }
}

//! Signals to everything below this process.

use nix::sys::signal::Signal;

/// Sends `signal` to every descendant of this process that can be found, which must be their
/// reaper.
///
/// The kernel does it in one call (procctl(2) `PROC_REAP_KILL`), through nested reapers too.
#[cfg(target_os = "freebsd")]
pub(super) fn signal_descendants(signal: Signal) {
    // What fails here is seen by the caller: it goes on until no descendant is left.
    let _ = super::sys::signal_all_reaped(signal);
}

/// Sends `signal` to every descendant of this process that can be found, which must be their
/// reaper.
///
/// `/proc/PID/task/TID/children` (proc_pid_task_tid(5)) is a moving picture: a process that forks
/// meanwhile may be missed. Its orphans come to the reaper, so repeating this until no child is
/// left finds all.
#[cfg(target_os = "linux")]
pub(super) fn signal_descendants(signal: Signal) {
    use std::collections::BTreeSet;

    let mut family = BTreeSet::from([std::process::id() as i32]);
    let mut unvisited: Vec<i32> = family.iter().copied().collect();
    while let Some(parent) = unvisited.pop() {
        for child in children(parent) {
            if family.insert(child) {
                unvisited.push(child);
                // Between the listing and the signal the child may end and its number go to a
                // stranger. The handle holds on to one process; that its parent is of the family
                // shows that it is the right one.
                let Ok(handle) = super::sys::process_handle(child) else {
                    continue;
                };
                if parent_of(child).is_some_and(|parent| family.contains(&parent)) {
                    let _ = super::sys::signal_by_handle(&handle, signal);
                }
            }
        }
    }
}

/// True if descendants can be found and signalled at all: better no server than one that cannot be
/// ended.
///
/// # Errors
/// Says what is missing.
#[cfg(target_os = "linux")]
pub(super) fn check() -> std::io::Result<()> {
    let failed = |what: &str, error| std::io::Error::other(format!("{what}: {error}"));
    let own = std::process::id() as i32;
    std::fs::read(format!("/proc/{own}/task/{own}/children"))
        .map_err(|error| failed("no list of children in /proc (CONFIG_PROC_CHILDREN)", error))?;
    super::sys::process_handle(own)
        .map_err(|error| failed("no pidfd_open(2) (Linux 5.3)", error))?;
    Ok(())
}

/// True if descendants can be found and signalled at all: always, here.
///
/// # Errors
/// None.
#[cfg(target_os = "freebsd")]
pub(super) fn check() -> std::io::Result<()> {
    Ok(())
}

/// The most processes of a server that are counted: a fork bomb must not cost whoever asks for the
/// servers.
const MAX_COUNTED: usize = 1_000;

/// A look at the processes of this machine, to count those of servers.
pub struct Processes {
    #[cfg(target_os = "freebsd")]
    all: Vec<super::sys::Relation>,
}

impl Processes {
    /// The number of a server's processes: all below its supervisor, which may be several processes
    /// itself. Of a jailed one those count that are not root's: no policy lets a server be root,
    /// and all of the helper, and of sudo(8), is.
    ///
    /// `None`: the system does not show them (`hidepid` of proc(5), `security.bsd.see_jail_proc`),
    /// none is left, or they are more than `MAX_COUNTED`.
    pub fn count(&self, supervisor: u32, jailed: bool) -> Option<usize> {
        let mut family = vec![i32::try_from(supervisor).ok()?];
        let mut count = 0;
        let mut next = 0;
        while let Some(parent) = family.get(next).copied() {
            if family.len() > MAX_COUNTED {
                return None;
            }
            next += 1;
            for (pid, uid) in self.children(parent) {
                // A moving picture: a number that is used again must not lead in a circle.
                if !family.contains(&pid) {
                    family.push(pid);
                    count += usize::from(!jailed || uid != 0);
                }
            }
        }
        (count > 0).then_some(count)
    }
}

#[cfg(target_os = "freebsd")]
impl Processes {
    /// Looks at all processes at once (sysctl `kern.proc`); empty where the kernel refuses.
    pub fn look() -> Self {
        Self {
            all: super::sys::relations()
                .unwrap_or_default()
                .into_iter()
                .filter(|process| !process.is_zombie)
                .collect(),
        }
    }

    /// Process ids and real user ids.
    fn children(&self, parent: i32) -> impl Iterator<Item = (i32, u32)> {
        let children = self
            .all
            .iter()
            .filter(move |process| process.parent == parent);
        children.map(|process| (process.pid, process.uid))
    }
}

#[cfg(target_os = "linux")]
impl Processes {
    /// Looks at each process when it is asked for.
    pub fn look() -> Self {
        Self {}
    }

    /// Process ids and real user ids (`Uid:` of proc_pid_status(5)), zombies left out.
    fn children(&self, parent: i32) -> impl Iterator<Item = (i32, u32)> {
        children(parent).into_iter().filter_map(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name))?;
                line.split_ascii_whitespace().next()
            };
            if field("State:")? == "Z" {
                return None;
            }
            Some((pid, field("Uid:")?.parse().ok()?))
        })
    }
}

/// The processes whose parent this one is, those that have ended and were not waited for among
/// them.
#[cfg(target_os = "linux")]
pub(super) fn children_of(pid: i32) -> Vec<i32> {
    children(pid)
}

/// The processes whose parent this one is, those that have ended and were not waited for among
/// them.
#[cfg(target_os = "freebsd")]
pub(super) fn children_of(pid: i32) -> Vec<i32> {
    let all = super::sys::relations().unwrap_or_default();
    let children = all.iter().filter(|process| process.parent == pid);
    children.map(|process| process.pid).collect()
}

#[cfg(target_os = "linux")]
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            list.split_ascii_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The parent's pid: the second field after the program's name, which stands in parentheses and may
/// hold any byte (proc_pid_stat(5)).
#[cfg(target_os = "linux")]
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &stat[stat.iter().rposition(|&b| b == b')')? + 1..];
    std::str::from_utf8(after_name)
        .ok()?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn finds_children_and_parents() {
        let mut child = Command::new("/bin/cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let own = std::process::id() as i32;
        assert!(children(own).contains(&pid));
        assert_eq!(parent_of(pid), Some(own));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!children(own).contains(&pid));
        assert_eq!(parent_of(pid), None);
    }

    #[test]
    fn counts_what_is_below_a_supervisor() {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", "cat | cat | cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while Processes::look().count(shell.id(), false) != Some(3) {
            assert!(
                std::time::Instant::now() < until,
                "three programs in a pipeline"
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(Processes::look().count(shell.id(), false), None);
    }
}

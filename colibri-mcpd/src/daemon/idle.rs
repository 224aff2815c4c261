//! The end of a daemon that was started for its clients and has nothing to do any more.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::connections::Load;

/// The interval of the checks.
const LOOK: Duration = Duration::from_secs(5);

/// Waits until nobody has been connected for `limit` and none of the daemon's agents ran, or until
/// the daemon's program was replaced, nobody waits for an answer and no agent runs: who comes next
/// starts the new one. `load` is what clients make of it, `agents` counts those that run. Without a
/// limit the daemon is a service, and ends when it is told to.
pub async fn is_over(
    load: impl Fn() -> Load,
    agents: impl Fn() -> usize,
    limit: Option<Duration>,
) -> &'static str {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    let program = Program::find();
    let (mut since, mut came) = (Instant::now(), 0);
    loop {
        sleep(LOOK.min(limit)).await;
        let (load, agents) = (load(), agents());
        // A command comes and goes between two looks.
        if load.clients + agents > 0 || load.came != came {
            (since, came) = (Instant::now(), load.came);
        } else if since.elapsed() >= limit {
            return "no client";
        }
        if load.in_flight + agents == 0 && program.as_ref().is_some_and(Program::was_replaced) {
            return "its program was replaced";
        }
    }
}

/// The program that runs.
struct Program {
    path: PathBuf,
    identity: FileIdentity,
}

/// The facts that distinguish a file from the one that replaces it.
type FileIdentity = (u64, u64, i64, i64);

impl Program {
    fn find() -> Option<Program> {
        let path = std::env::current_exe().ok()?;
        let identity = identity(&path)?;
        Some(Program { path, identity })
    }

    /// True if another one is in its place. While there is none at all, it is being replaced.
    fn was_replaced(&self) -> bool {
        identity(&self.path).is_some_and(|now| now != self.identity)
    }
}

fn identity(path: &std::path::Path) -> Option<FileIdentity> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.dev(), about.ino(), about.mtime(), about.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A load of nobody, after so many connections.
    fn after(came: u64) -> Load {
        Load {
            clients: 0,
            came,
            in_flight: 0,
            queued: 0,
            most_queued: 0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_and_goes_between_two_looks_keeps_the_daemon() {
        let (begun, looks) = (Instant::now(), Cell::new(0));
        let commands = || {
            looks.set(looks.get() + 1);
            after(looks.get().min(20))
        };
        let limit = Duration::from_secs(10);
        assert_eq!(is_over(commands, || 0, Some(limit)).await, "no client");
        assert_eq!(begun.elapsed(), 20 * LOOK + limit);
        let begun = Instant::now();
        assert_eq!(is_over(|| after(0), || 0, Some(limit)).await, "no client");
        assert_eq!(begun.elapsed(), limit);
    }

    #[test]
    fn a_program_that_is_gone_is_not_replaced_yet() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("colibri-mcpd");
        std::fs::write(&path, "1").unwrap();
        let identity = identity(&path).unwrap();
        let program = Program { path, identity };
        assert!(!program.was_replaced());
        let kept = directory.path().join("old");
        std::fs::rename(&program.path, kept).unwrap();
        assert!(!program.was_replaced());
        std::fs::write(&program.path, "2").unwrap();
        assert!(program.was_replaced());
    }
}

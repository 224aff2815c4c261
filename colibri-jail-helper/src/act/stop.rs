//! `stop` and `sweep`: ending what lives, and undoing what a killed helper left.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use colibri_jail_helper::audit::{AuditEvent, AuditLine};
use colibri_jail_helper::names::SessionId;
use colibri_jail_helper::record::RecordFact;
use colibri_jail_helper::refusal::{HelperExit, HelperRefusal};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::act::identity::RequestingUser;
use crate::act::sandbox;
use crate::act::state::{InstanceRecord, LockedStateDirectory, RecordLookup, StateDirectory};
use crate::act::syslog::{SyslogSeverity, send_line};

/// The longest that an instance takes to end: grace, TERM, KILL, and unmounting.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest time that killed supervisors take to be gone.
const MAX_KILLED: Duration = Duration::from_secs(5);

/// Ends one instance: by order if a supervisor lives, else by undoing what its record tells of.
/// What is not there has ended already.
///
/// # Errors
/// Something is left.
pub(crate) fn stop(asker: RequestingUser, session: &SessionId) -> Result<(), HelperRefusal> {
    let state = StateDirectory::open("stop")?;
    let abandoned = state.end(session, PATIENCE)?;
    let left = match &abandoned {
        Some(record) => undo(&state.lock()?, record),
        None => Vec::new(),
    };
    let line = AuditLine::new(AuditEvent::Stop)
        .with("session", session.as_str())
        .with("uid", &asker.uid.to_string());
    report(line, &left)
}

/// Ends every instance, whoever started it and whatever keeps its pipes open, and undoes what is
/// left. A supervisor that somebody has stopped is continued; one that does not end for all that is
/// killed.
///
/// # Errors
/// Something is left.
pub(crate) fn stop_all(asker: RequestingUser) -> Result<(), HelperRefusal> {
    let state = StateDirectory::open("stop --all")?;
    let begun = Instant::now();
    loop {
        // Under the lock, so that a pid is of whom the record says: its supervisor can neither
        // remove the record nor, before that, end.
        let locked = state.lock()?;
        let owned = locked.owned()?;
        if owned.is_empty() {
            break;
        }
        if begun.elapsed() > PATIENCE + MAX_KILLED {
            let what = format!("{} instances do not end", owned.len());
            return Err(HelperRefusal::new(HelperExit::TryLater, "stop", what));
        }
        let order = if begun.elapsed() > PATIENCE {
            Signal::SIGKILL
        } else {
            Signal::SIGCONT
        };
        for (session, facts) in &owned {
            state.order_to_end(session)?;
            for fact in facts {
                if let RecordFact::Supervisor(pid) = fact {
                    let _ = kill(Pid::from_raw(*pid), order);
                }
            }
        }
        drop(locked);
        std::thread::sleep(Duration::from_millis(50));
    }
    sweep_for(asker, &state)
}

/// Undoes everything that no live helper owns. The lock is held throughout, so that nothing is made
/// meanwhile; what lives is not touched.
///
/// # Errors
/// Something is left.
pub(crate) fn sweep(asker: RequestingUser) -> Result<(), HelperRefusal> {
    sweep_for(asker, &StateDirectory::open("sweep")?)
}

fn sweep_for(asker: RequestingUser, state: &StateDirectory) -> Result<(), HelperRefusal> {
    let locked = state.lock()?;
    let mut left = Vec::new();
    let mut live = BTreeSet::new();
    let mut swept = 0;
    for session in locked.sessions()? {
        match locked.find(&session)? {
            RecordLookup::Owned(_) => {
                live.insert(session);
            }
            RecordLookup::Abandoned(record) => {
                left.extend(undo(&locked, &record));
                swept += 1;
            }
            RecordLookup::Absent => {}
        }
    }
    left.extend(sandbox::clear_strays(&live));
    let line = AuditLine::new(AuditEvent::Sweep)
        .with("uid", &asker.uid.to_string())
        .with("swept", &swept.to_string())
        .with("live", &live.len().to_string());
    drop(locked);
    report(line, &left)
}

/// Undoes what a record tells of. While something is left the record stays, for the next sweep.
fn undo(locked: &LockedStateDirectory<'_>, record: &InstanceRecord) -> Vec<String> {
    let mut left = sandbox::clear(record.session(), record.facts());
    if left.is_empty() {
        left.extend(locked.remove(record).err().map(|refusal| refusal.detail));
    }
    left
}

fn report(line: AuditLine, left: &[String]) -> Result<(), HelperRefusal> {
    if left.is_empty() {
        let _ = send_line(SyslogSeverity::Info, &line.with("left", "nothing"));
        return Ok(());
    }
    let what = left.join("; ");
    let _ = send_line(
        SyslogSeverity::Warning,
        &line.with("left", "something").with("what", &what),
    );
    Err(HelperRefusal::new(
        HelperExit::System,
        "teardown",
        format!("left behind: {what}"),
    ))
}

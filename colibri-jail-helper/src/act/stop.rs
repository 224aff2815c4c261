//! `stop` and `sweep`: ending what lives, and undoing what a killed helper left.

use std::collections::BTreeSet;
use std::time::Duration;

use colibri_jail_helper::audit::{Event, Line};
use colibri_jail_helper::names::SessionId;
use colibri_jail_helper::refusal::{Exit, Refusal};

use crate::act::cell;
use crate::act::identity::Asker;
use crate::act::state::{Found, Locked, Record, State};
use crate::act::syslog::{Severity, send_line};

/// The longest that an instance takes to end: grace, TERM, KILL, and unmounting.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends one instance: by order if a supervisor lives, else by undoing what its record tells of. What is not there has
/// ended already.
///
/// # Errors
/// Something is left.
pub fn stop(asker: Asker, session: &SessionId) -> Result<(), Refusal> {
    let state = State::open()?;
    let abandoned = state.end(session, PATIENCE)?;
    let left = match &abandoned {
        Some(record) => undo(&state.lock()?, record),
        None => Vec::new(),
    };
    let line = Line::new(Event::Stop)
        .with("session", session.as_str())
        .with("uid", &asker.uid.to_string());
    report(line, &left)
}

/// Undoes everything that no live helper owns. The lock is held throughout, so that nothing is made meanwhile; what
/// lives is not touched.
///
/// # Errors
/// Something is left.
pub fn sweep(asker: Asker) -> Result<(), Refusal> {
    let state = State::open()?;
    let locked = state.lock()?;
    let mut left = Vec::new();
    let mut live = BTreeSet::new();
    let mut swept = 0;
    for session in locked.sessions()? {
        match locked.find(&session)? {
            Found::Owned(_) => {
                live.insert(session);
            }
            Found::Abandoned(record) => {
                left.extend(undo(&locked, &record));
                swept += 1;
            }
            Found::Absent => {}
        }
    }
    left.extend(cell::clear_strays(&live));
    let line = Line::new(Event::Sweep)
        .with("uid", &asker.uid.to_string())
        .with("swept", &swept.to_string())
        .with("live", &live.len().to_string());
    drop(locked);
    report(line, &left)
}

fn undo(locked: &Locked<'_>, record: &Record) -> Vec<String> {
    let mut left = cell::clear(record.session(), record.facts());
    left.extend(locked.remove(record).err().map(|refusal| refusal.detail));
    left
}

fn report(line: Line, left: &[String]) -> Result<(), Refusal> {
    if left.is_empty() {
        let _ = send_line(Severity::Info, &line.with("left", "nothing"));
        return Ok(());
    }
    let what = left.join("; ");
    let _ = send_line(Severity::Warning, &line.with("left", "something").with("what", &what));
    Err(Refusal::new(Exit::System, "teardown", format!("left behind: {what}")))
}

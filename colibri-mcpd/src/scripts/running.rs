//! The number of scripts that run, of each user and of all.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::relay::Call;
use colibri_protocol::{Code, Failure};

/// The most scripts that run at once, and of them the most of one user.
const MAX_SCRIPTS: usize = 16;
const MAX_OF_USER: usize = 4;

/// The number of scripts that run, by their users.
#[derive(Default)]
pub(super) struct RunningScripts(Mutex<BTreeMap<u32, usize>>);

impl RunningScripts {
    /// Counts a script among those that run, until the guard is dropped.
    ///
    /// # Errors
    /// Too many run.
    pub(super) fn guard(self: &Arc<RunningScripts>, call: &Call) -> Result<ScriptGuard, Failure> {
        if call.client.outer.is_some() {
            let failure = Failure::new(Code::ScriptFailed, "a script cannot run another script");
            return Err(failure.advising("write both as one script"));
        }
        let uid = call.client.caller.uid;
        let mut running = self.0.lock();
        if running.get(&uid).is_some_and(|count| *count >= MAX_OF_USER) {
            let why = format!("{MAX_OF_USER} scripts of this user run already");
            return Err(Failure::new(Code::LimitUser, why));
        }
        if running.values().sum::<usize>() >= MAX_SCRIPTS {
            let why = format!("{MAX_SCRIPTS} scripts run already");
            return Err(Failure::new(Code::DaemonBusy, why));
        }
        *running.entry(uid).or_default() += 1;
        Ok(ScriptGuard {
            running: self.clone(),
            uid,
        })
    }
}

/// One of the scripts that run.
pub(super) struct ScriptGuard {
    running: Arc<RunningScripts>,
    uid: u32,
}

impl Drop for ScriptGuard {
    fn drop(&mut self) {
        let mut running = self.running.0.lock();
        if let Some(count) = running.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.uid);
            }
        }
    }
}

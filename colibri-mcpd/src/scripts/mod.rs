//! Scripts: a call of `colibri_run_script` becomes many, each of which passes all that any call passes.
//!
//! The script runs in a process of its own, `colibri-script`, which gives up all its rights before it reads the script
//! ([`process`]). The daemon treats what that process writes as an attacker's ([`session`]). A client within the daemon
//! makes the calls, behind [`ScriptConnector`].

mod outcome;
mod process;
mod requests;
mod session;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::DuplexStream;

use crate::confine::Spawner;
use crate::relay::{Call, CallOutcome, Chain, SuspendedCall};
use colibri_api::script::{ScriptLimits, ScriptOrder};
use colibri_protocol::{Code, Failure};
use session::ScriptSession;

/// The program that runs scripts.
const PROGRAM: &str = "colibri-script";
/// The most scripts that run at once, and of them the most of one user.
const MAX_SCRIPTS: usize = 16;
const MAX_OF_USER: usize = 4;

/// The connection within the daemon on which the calls of one script are made. Dropping it cancels those in flight.
pub trait ScriptConnection: Send + Sync {
    /// Sends a request.
    fn send(&self, request: Bytes);
}

/// Makes such connections.
pub trait ScriptConnector: Send + Sync {
    /// A connection for the script that a call runs, and the stream of what is answered on it.
    fn connect(&self, call: &Call) -> Option<(Box<dyn ScriptConnection>, DuplexStream)>;
}

/// The scripts of all users.
#[derive(Default)]
pub struct Scripts {
    parts: OnceLock<ScriptParts>,
    running: Mutex<BTreeMap<u32, usize>>,
}

struct ScriptParts {
    spawner: Arc<dyn Spawner>,
    connector: Arc<dyn ScriptConnector>,
    program: PathBuf,
}

impl Scripts {
    /// Sets how scripts are started: once, when the daemon starts.
    pub fn begin(&self, spawner: Arc<dyn Spawner>, connector: Arc<dyn ScriptConnector>, program: PathBuf) {
        let _ = self.parts.set(ScriptParts {
            spawner,
            connector,
            program,
        });
    }

    /// Runs the script of a call, which ends when the script does.
    pub(crate) fn run(
        self: &Arc<Scripts>,
        chain: &Arc<Chain>,
        call: Box<Call>,
        (script, seconds): (String, u32),
        tools: BTreeMap<String, Vec<String>>,
    ) {
        let order = ScriptOrder {
            script,
            tools,
            limits: ScriptLimits {
                time_ms: u64::from(seconds) * 1000,
                ..ScriptLimits::DEFAULT
            },
        };
        let begun = self.guard(&call).and_then(|guard| {
            let parts = self.parts.get().ok_or_else(unavailable)?;
            let connected = parts.connector.connect(&call).ok_or_else(unavailable)?;
            Ok((guard, parts.spawner.clone(), parts.program.clone(), connected))
        });
        let (guard, spawner, program, (connection, answers)) = match begun {
            Ok(begun) => begun,
            Err(failure) => return chain.finish(vec![(call, CallOutcome::Failed(failure))]),
        };
        let mut session = ScriptSession::new(&call, &order, connection, answers);
        let held = SuspendedCall::hold(chain, call);
        let chain = chain.clone();
        tokio::spawn(async move {
            let end = tokio::select! {
                biased;
                () = held.over() => None,
                end = session.serve(&order, &*spawner, program, guard) => Some(end),
            };
            let returned = end
                .as_ref()
                .and_then(|end| end.as_ref().ok())
                .map_or(0, |done| done.value.get().len());
            session.record_end(&chain.recorder, returned);
            let printed = session.end().await;
            let (Some(end), Some(call)) = (end, held.take()) else {
                return;
            };
            if !call.client.unsent(&call.id) {
                return chain.finish(vec![(call, CallOutcome::Cancelled)]);
            }
            // A result over its limit is stored: not on a thread that serves clients.
            tokio::task::spawn_blocking(move || {
                let outcome = match end {
                    Ok(done) => outcome::returned(&chain, &call, &done, &printed),
                    Err(failure) => CallOutcome::Failed(failure),
                };
                chain.finish(vec![(call, outcome)]);
            });
        });
    }

    /// Counts a script among those that run, until the guard is dropped.
    ///
    /// # Errors
    /// Too many run.
    fn guard(self: &Arc<Scripts>, call: &Call) -> Result<ScriptGuard, Failure> {
        if call.client.outer.is_some() {
            let failure = Failure::new(Code::ScriptFailed, "a script cannot run another script");
            return Err(failure.advising("write both as one script"));
        }
        let uid = call.client.caller.uid;
        let mut running = self.running.lock();
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
            scripts: self.clone(),
            uid,
        })
    }
}

/// One of the scripts that run.
struct ScriptGuard {
    scripts: Arc<Scripts>,
    uid: u32,
}

impl Drop for ScriptGuard {
    fn drop(&mut self) {
        let mut running = self.scripts.running.lock();
        if let Some(count) = running.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.uid);
            }
        }
    }
}

fn unavailable() -> Failure {
    Failure::new(Code::DaemonStopping, "the daemon starts no scripts now")
}

/// The path of `colibri-script` for a daemon with this path: beside it, or in the `libexec` beside its directory.
#[must_use]
pub fn program_beside(daemon: &Path) -> PathBuf {
    let directory = daemon.parent().unwrap_or(Path::new("/"));
    let beside = directory.join(PROGRAM);
    if beside.is_file() {
        return beside;
    }
    directory
        .parent()
        .unwrap_or(Path::new("/"))
        .join("libexec")
        .join(PROGRAM)
}

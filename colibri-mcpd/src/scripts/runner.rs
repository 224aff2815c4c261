//! The scripts of all users: each is started, served and answered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::connection::ScriptConnector;
use super::outcome;
use super::running::RunningScripts;
use super::session::ScriptSession;
use crate::relay::{Call, CallOutcome, Chain, SuspendedCall};
use colibri_api::script::{ScriptLimits, ScriptOrder};
use colibri_confine::Spawner;
use colibri_protocol::{Code, Failure};
use colibri_wire::json::string;

/// The program that runs scripts.
const PROGRAM: &str = "colibri-script";

/// The scripts of all users.
#[derive(Default)]
pub struct Scripts {
    parts: OnceLock<ScriptParts>,
    running: Arc<RunningScripts>,
}

struct ScriptParts {
    spawner: Arc<dyn Spawner>,
    connector: Arc<dyn ScriptConnector>,
    program: PathBuf,
}

impl Scripts {
    /// Sets how scripts are started: once, when the daemon starts.
    pub fn begin(
        &self,
        spawner: Arc<dyn Spawner>,
        connector: Arc<dyn ScriptConnector>,
        program: PathBuf,
    ) {
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
        let begun = self.running.guard(&call).and_then(|guard| {
            let parts = self.parts.get().ok_or_else(unavailable)?;
            let connected = parts.connector.connect(&call).ok_or_else(unavailable)?;
            Ok((
                guard,
                parts.spawner.clone(),
                parts.program.clone(),
                connected,
            ))
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
                    Ok(done) => {
                        chain.note_script(&call, done.value.get(), &printed.printed);
                        outcome::returned(&chain, &call, &done, &printed)
                    }
                    Err(failure) => {
                        chain.note_script(&call, &string(&failure.message), &printed.printed);
                        CallOutcome::Failed(failure)
                    }
                };
                chain.finish(vec![(call, outcome)]);
            });
        });
    }
}

fn unavailable() -> Failure {
    Failure::new(Code::DaemonStopping, "the daemon starts no scripts now")
}

/// The path of `colibri-script` for a daemon with this path: beside it, or in the `libexec` beside
/// its directory.
pub(crate) fn program_beside(daemon: &Path) -> PathBuf {
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

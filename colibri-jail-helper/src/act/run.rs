//! `run`: from the request to the last trace of the instance.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::Path;

use colibri_jail_helper::audit::{AuditEvent, AuditLine};
use colibri_jail_helper::names::{EntryDigest, ServerId, SessionId};
use colibri_jail_helper::passwd::PasswdEntry;
use colibri_jail_helper::plan::{ConfinementPlan, ServerPlace};
use colibri_jail_helper::policy::{Audit, Policy};
use colibri_jail_helper::record::RecordFact;
use colibri_jail_helper::refusal::{HelperExit, HelperRefusal};
use colibri_json::MAX_BYTES;
use colibri_registry::{PATH, Registry};
use nix::unistd::Pid;

use crate::act::identity::RequestingUser;
use crate::act::sandbox::{self, Sandbox};
use crate::act::secrets::Environment;
use crate::act::state::{InstanceRecord, StateDirectory};
use crate::act::syslog::{SyslogSeverity, send_line};
use crate::act::{agent_socket, files, server, supervise};
use crate::sys::{self, ProcessEnd, WaitStatus};

/// One request to run a server, from a caller who may ask.
pub(crate) struct ServerRun<'r> {
    /// The requesting user.
    pub asker: RequestingUser,
    /// The policy.
    pub policy: &'r Policy,
    /// The account of the policy's caller.
    pub caller: PasswdEntry,
    /// The new instance.
    pub session: &'r SessionId,
    /// The entry's hash, as the daemon loaded it.
    pub digest: &'r EntryDigest,
    /// The server.
    pub server: &'r ServerId,
}

/// Reads the registry that root trusts.
///
/// # Errors
/// It is not root's alone, or not as external-mcp.json(5) says.
pub(crate) fn read_registry() -> Result<Registry, HelperRefusal> {
    let bytes = files::read(Path::new(PATH), MAX_BYTES, files::WRITABLE_BY_OTHERS)?;
    Registry::parse(&bytes, PATH)
        .map_err(|error| HelperRefusal::file("registry", error.to_string()))
}

impl ServerRun<'_> {
    /// Starts the server and stays until it has ended. Returns the server's exit code, or
    /// [`HelperExit::System`] if something of the instance could not be undone.
    ///
    /// # Errors
    /// A refusal; then nothing was started, and what was made is undone.
    pub(crate) fn supervise(&self) -> Result<i32, HelperRefusal> {
        let (plan, environment) = self.plan()?;
        let state = StateDirectory::open("run")?;
        let (mut record, uid) = {
            let locked = state.lock()?;
            let uid = locked.admit(&plan, self.policy)?;
            let mut facts = vec![
                RecordFact::Server(self.server.clone()),
                RecordFact::Caller(self.asker.uid),
                RecordFact::Uid(uid),
                RecordFact::Supervisor(Pid::this().as_raw()),
            ];
            facts.extend(plan.door_in_persistent());
            (locked.create(self.session, facts)?, uid)
        };
        let outcome = self.live(&plan, uid, environment, &mut record);
        let mut left = sandbox::clear(self.session, record.facts());
        if matches!(&outcome, Ok((end, _)) if !end.empty) {
            left.push("processes that did not end when they were killed".to_owned());
        }
        // While something is left the record stays, for `stop` and `sweep` to find.
        if left.is_empty() {
            let removed = state.lock().and_then(|locked| locked.remove(&record));
            left.extend(removed.err().map(|refusal| refusal.detail));
        }
        let (end, jid) = outcome?;
        let clean = left.is_empty();
        let line = self
            .line(AuditEvent::End)
            .with("jid", &jid.to_string())
            .with("status", &end.code.to_string())
            .with("cause", end.cause.word())
            .with("left", if clean { "nothing" } else { "something" })
            .with("what", &left.join("; "));
        // Nothing can be refused any more; the line is lost if nobody listens.
        let _ = send_line(
            if clean {
                SyslogSeverity::Info
            } else {
                SyslogSeverity::Warning
            },
            &line,
        );
        Ok(if clean {
            end.code
        } else {
            HelperExit::System as i32
        })
    }

    fn plan(&self) -> Result<(ConfinementPlan, Environment), HelperRefusal> {
        let registry = read_registry()?;
        let plan = ConfinementPlan::make(self.server, &registry, self.policy, self.caller)?;
        plan.confirm_digest(self.digest)?;
        sandbox::check(&plan)?;
        if let Some(agent) = &plan.agent {
            agent_socket::open(agent, self.session)?;
        }
        let environment = Environment::build(&plan)?;
        Ok((plan, environment))
    }

    /// Acts and watches.
    fn live(
        &self,
        plan: &ConfinementPlan,
        uid: u32,
        environment: Environment,
        record: &mut InstanceRecord,
    ) -> Result<(supervise::InstanceEnd, i32), HelperRefusal> {
        let stop = record.open_stop()?;
        let place = match &plan.place {
            ServerPlace::Ephemeral(_) => "ephemeral",
            ServerPlace::Persistent { jail, .. } => jail.as_str(),
        };
        let line = self
            .line(AuditEvent::Start)
            .with("jail", place)
            .with("as", &format!("{uid}:{}", plan.gid));
        if let Err(error) = send_line(SyslogSeverity::Info, &line)
            && self.policy.audit == Audit::Require
        {
            let what = "hand the audit line to syslogd, which the policy requires";
            return Err(HelperRefusal::system("audit", what, error));
        }
        let mut sandbox = Sandbox::create(plan, uid, &environment, record)?;
        drop(environment);
        // No copy of the server's stdout may stay here: its end is how the daemon sees the
        // server's. One of stderr does, only to see whether there is still somebody who reads it.
        let heard = std::io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| HelperRefusal::system("run", "keep an eye on stderr", error))?;
        detach_output()?;
        let watched = supervise::watch(&mut sandbox, &stop, &heard);
        sandbox.kill();
        watched.map(|end| (end, sandbox.jid()))
    }

    fn line(&self, event: AuditEvent) -> AuditLine {
        AuditLine::new(event).run(self.server, self.digest, self.session, self.asker.uid)
    }
}

/// Puts /dev/null in the place of stdout and stderr.
fn detach_output() -> Result<(), HelperRefusal> {
    let failed = |tried| move |error| HelperRefusal::system("run", tried, error);
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| HelperRefusal::system("run", "open /dev/null", error))?;
    nix::unistd::dup2_stdout(&null).map_err(failed("detach stdout"))?;
    nix::unistd::dup2_stderr(&null).map_err(failed("detach stderr"))
}

/// The outer process: waits for the inner one and ends as it did. It is the caller's child, which a
/// caller can kill without kill(2) (by closing a descriptor of pdfork(2), for one), and on the
/// caller's terminal, where it can be stopped: so its end must end nothing else, and nothing may
/// wait for it.
///
/// # Errors
/// The system refuses; the inner process goes on.
pub(crate) fn relay(inner: Pid) -> Result<i32, HelperRefusal> {
    sys::ignore_signals();
    detach_output()?;
    // The read end of the lifeline; a copy here would keep the daemon's writes from failing.
    let _ = server::detach_input();
    match sys::wait(Some(inner), true)
        .map_err(|error| HelperRefusal::system("run", "wait", error))?
    {
        WaitStatus::Child(_, ProcessEnd::Exited(status)) => Ok(status),
        WaitStatus::Child(_, ProcessEnd::Signaled(number)) => sys::die_by(number),
        WaitStatus::NoneYet | WaitStatus::NoChildren => Ok(HelperExit::System as i32),
    }
}

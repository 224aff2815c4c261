//! The setuid-root helper: the only code of Colibri MCP that runs as root. Its whole input is a
//! request (a server's name, an instance's id); everything else it reads from files that only root
//! can write. `docs/jail-helper.md` says how it is laid out.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use colibri_jail_helper::audit::{AuditEvent, AuditLine};
use colibri_jail_helper::passwd::{self, PasswdEntry};
use colibri_jail_helper::policy::Policy;
use colibri_jail_helper::refusal::HelperRefusal;
use colibri_jail_helper::request::HelperRequest;
use colibri_jail_helper::{CONTRACT, POLICY};
use colibri_json::MAX_BYTES;

use crate::act::identity::{self, RequestingUser};
use crate::act::run::{self, ServerRun};
use crate::act::syslog::{SyslogSeverity, send_line};
use crate::act::{files, report, reset, stop, tell};

mod act;
mod sys;

/// The host's user database.
const PASSWD: &str = "/etc/passwd";

/// The most bytes of it.
const MAX_PASSWD: usize = 4 << 20;

fn main() {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let request = HelperRequest::parse(&args);
    // The one request that needs no right and touches nothing.
    if request == Ok(HelperRequest::Version) {
        let _ = writeln!(
            std::io::stdout(),
            "colibri-jail-helper {} contract {CONTRACT}",
            env!("CARGO_PKG_VERSION")
        );
        return;
    }
    let mut asker = RequestingUser::from_kernel();
    // Read before the environment is forgotten; counts for root alone.
    let sudo_uid = std::env::var("SUDO_UID")
        .ok()
        .and_then(|uid| uid.parse().ok());
    // A request that is none is said to be none, installed or not.
    let ready = identity::become_root().and_then(|()| reset::forget());
    let outcome = (request.clone())
        .and_then(|request| ready.and_then(|()| perform(&mut asker, sudo_uid, request)));
    let code = match outcome {
        Ok(code) => code,
        Err(refusal) => {
            tell_of(&refusal, asker, request.as_ref().ok());
            refusal.exit as i32
        }
    };
    std::process::exit(code)
}

/// True if it may be asked, then a process of its own for it, away from the asker's terminal:
/// nothing that holds a lock can be stopped by a key, or be ended with the asker's child.
fn perform(
    asker: &mut RequestingUser,
    sudo_uid: Option<u32>,
    request: HelperRequest,
) -> Result<i32, HelperRefusal> {
    let failed = |tried| move |error| HelperRefusal::system("start", tried, error);
    let rules = match request.is_teardown() && asker.is_root() {
        true => None,
        false => Some(rules_for(asker, sudo_uid)?),
    };
    if request.is_roots_alone() && !asker.is_root() {
        return Err(HelperRefusal::policy("root", "only root may ask for this"));
    }
    if matches!(request, HelperRequest::Run { .. }) {
        reset::require_pipes()?;
    }
    match sys::fork().map_err(failed("fork"))? {
        Some(inner) => run::relay(inner),
        None => {
            nix::unistd::setsid().map_err(failed("begin a session"))?;
            sys::signals_of_supervisor().map_err(failed("set signals"))?;
            act(*asker, request, rules)
        }
    }
}

/// The policy and its caller's account, who must be the asker, unless that is root.
fn rules_for(
    asker: &mut RequestingUser,
    sudo_uid: Option<u32>,
) -> Result<(Policy, PasswdEntry), HelperRefusal> {
    let policy = read_policy()?;
    let caller = caller(&policy)?;
    *asker = asker.through_sudo(sudo_uid, caller.uid);
    if !asker.is_root() && asker.uid != caller.uid {
        return Err(HelperRefusal::policy(
            "caller",
            "only the policy's caller and root may ask",
        ));
    }
    Ok((policy, caller))
}

fn act(
    asker: RequestingUser,
    request: HelperRequest,
    rules: Option<(Policy, PasswdEntry)>,
) -> Result<i32, HelperRefusal> {
    match (request, &rules) {
        (HelperRequest::Stop { session }, _) => stop::stop(asker, &session)?,
        (HelperRequest::StopAll, _) => stop::stop_all(asker)?,
        (HelperRequest::Sweep, _) => stop::sweep(asker)?,
        (
            HelperRequest::Run {
                session,
                digest,
                server,
            },
            Some((policy, caller)),
        ) => {
            let run = ServerRun {
                asker,
                policy,
                caller: *caller,
                session: &session,
                digest: &digest,
                server: &server,
            };
            return run.supervise();
        }
        (HelperRequest::Plan { server }, Some((policy, caller))) => {
            report::plan(&server, policy, *caller)?
        }
        (HelperRequest::Check, Some((policy, caller))) => report::check(policy, *caller)?,
        // `--version` was answered, and all others have read the policy.
        (
            HelperRequest::Version
            | HelperRequest::Run { .. }
            | HelperRequest::Plan { .. }
            | HelperRequest::Check,
            _,
        ) => {}
    }
    Ok(0)
}

fn read_policy() -> Result<Policy, HelperRefusal> {
    let bytes = files::read(Path::new(POLICY), MAX_BYTES, files::WRITABLE_BY_OTHERS)?;
    Policy::parse(&bytes, POLICY).map_err(|error| HelperRefusal::file("policy", error.to_string()))
}

fn caller(policy: &Policy) -> Result<PasswdEntry, HelperRefusal> {
    let passwd = files::read(Path::new(PASSWD), MAX_PASSWD, files::WRITABLE_BY_OTHERS)?;
    passwd::account(&passwd, &policy.caller)
        .filter(|account| account.uid != 0)
        .ok_or_else(|| {
            HelperRefusal::file(
                "policy",
                format!("the policy's caller is no user of {PASSWD}, or is root"),
            )
        })
}

/// One line on stderr, one for the audit.
///
/// What runs a server has root told no more than the caller: through mdo(1) the two look the same.
fn tell_of(refusal: &HelperRefusal, asker: RequestingUser, request: Option<&HelperRequest>) {
    let mut line = AuditLine::new(AuditEvent::Refuse)
        .with("request", request.map_or("none", HelperRequest::verb))
        .with("uid", &asker.uid.to_string());
    match request {
        Some(HelperRequest::Run {
            session,
            digest,
            server,
        }) => {
            line = line
                .with("entry", server.as_str())
                .with("digest", digest.as_str())
                .with("session", session.as_str());
        }
        Some(HelperRequest::Plan { server }) => line = line.with("entry", server.as_str()),
        Some(HelperRequest::Stop { session }) => line = line.with("session", session.as_str()),
        _ => {}
    }
    let line = line
        .with("exit", &(refusal.exit as i32).to_string())
        .with("rule", refusal.rule)
        .with("why", &refusal.detail);
    let _ = send_line(SyslogSeverity::Warning, &line);
    let is_run = matches!(request, Some(HelperRequest::Run { .. }));
    tell::refusal(&refusal.line(asker.is_root() && !is_run));
}

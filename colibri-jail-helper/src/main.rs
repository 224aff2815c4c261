//! The setuid-root helper: the only code of Colibri MCP that runs as root. Its whole input is a request (a server's
//! name, an instance's id); everything else it reads from files that only root can write. `docs/jail-helper.md` says how
//! it is laid out.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use colibri_jail_helper::audit::{Event, Line};
use colibri_jail_helper::passwd::{self, Account};
use colibri_jail_helper::policy::Policy;
use colibri_jail_helper::refusal::Refusal;
use colibri_jail_helper::request::Request;
use colibri_jail_helper::{CONTRACT, POLICY};
use colibri_json::MAX_BYTES;

use crate::act::identity::{self, Asker};
use crate::act::run::Run;
use crate::act::syslog::{Severity, send_line};
use crate::act::{files, report, reset, stop, tell};

mod act;
mod sys;

/// The host's user database.
const PASSWD: &str = "/etc/passwd";

/// The most bytes of it.
const PASSWD_MAX: usize = 4 << 20;

fn main() {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let request = Request::parse(&args);
    // The one request that needs no right and touches nothing.
    if request == Ok(Request::Version) {
        let _ = writeln!(
            std::io::stdout(),
            "colibri-jail-helper {} contract {CONTRACT}",
            env!("CARGO_PKG_VERSION")
        );
        return;
    }
    let verb = request.as_ref().map_or("none", |request| request.verb());
    let (asker, outcome) = match identity::become_root() {
        Ok(asker) => (asker, reset::forget().and_then(|()| perform(asker, request.clone()))),
        Err(refusal) => (
            Asker {
                uid: nix::unistd::getuid().as_raw(),
            },
            Err(refusal),
        ),
    };
    let code = match outcome {
        Ok(code) => code,
        Err(refusal) => {
            tell_of(&refusal, asker, verb, request.ok().as_ref());
            refusal.exit as i32
        }
    };
    std::process::exit(code)
}

fn perform(asker: Asker, request: Result<Request, Refusal>) -> Result<i32, Refusal> {
    let request = request?;
    let policy = read_policy()?;
    let caller = caller(&policy)?;
    if !asker.is_root() && asker.uid != caller.uid {
        return Err(Refusal::policy("caller", "only the policy's caller and root may ask"));
    }
    match request {
        Request::Run {
            session,
            digest,
            server,
        } => {
            let run = Run {
                asker,
                policy: &policy,
                caller,
                session: &session,
                digest: &digest,
                server: &server,
            };
            return run.start();
        }
        Request::Stop { session } => stop::stop(asker, &session)?,
        Request::Sweep => stop::sweep(asker)?,
        Request::Plan { server } => report::plan(&server, &policy, caller)?,
        Request::Check => report::check(asker, &policy, caller)?,
        Request::Version => {}
    }
    Ok(0)
}

fn read_policy() -> Result<Policy, Refusal> {
    let bytes = files::read(Path::new(POLICY), MAX_BYTES, files::WRITABLE_BY_OTHERS)?;
    Policy::parse(&bytes, POLICY).map_err(|error| Refusal::file("policy", error.to_string()))
}

fn caller(policy: &Policy) -> Result<Account, Refusal> {
    let passwd = files::read(Path::new(PASSWD), PASSWD_MAX, files::WRITABLE_BY_OTHERS)?;
    passwd::account(&passwd, &policy.caller)
        .filter(|account| account.uid != 0)
        .ok_or_else(|| {
            Refusal::file(
                "policy",
                format!("the policy's caller is no user of {PASSWD}, or is root"),
            )
        })
}

/// One line on stderr, one for the audit.
fn tell_of(refusal: &Refusal, asker: Asker, verb: &'static str, request: Option<&Request>) {
    let mut line = Line::new(Event::Refuse)
        .with("request", verb)
        .with("uid", &asker.uid.to_string());
    match request {
        Some(Request::Run {
            session,
            digest,
            server,
        }) => {
            line = line
                .with("entry", server.as_str())
                .with("digest", digest.as_str())
                .with("session", session.as_str());
        }
        Some(Request::Plan { server }) => line = line.with("entry", server.as_str()),
        Some(Request::Stop { session }) => line = line.with("session", session.as_str()),
        _ => {}
    }
    let line = line
        .with("exit", &(refusal.exit as i32).to_string())
        .with("rule", refusal.rule)
        .with("why", &refusal.detail);
    let _ = send_line(Severity::Warning, &line);
    tell::refusal(&refusal.line(asker.is_root()));
}

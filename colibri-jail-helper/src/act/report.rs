//! `plan` and `check`: saying what would be done, and what is wrong, without doing anything.

use std::os::fd::AsFd;
use std::time::Duration;

use colibri_jail_helper::names::ServerId;
use colibri_jail_helper::passwd::PasswdEntry;
use colibri_jail_helper::plan::ConfinementPlan;
use colibri_jail_helper::policy::Policy;
use colibri_jail_helper::refusal::{HelperExit, HelperRefusal};

use crate::act::run::read_registry;
use crate::act::sandbox;
use crate::act::secrets::Environment;
use crate::sys;

/// The longest time that a reader may take for the requested output.
const MAX_UNREAD: Duration = Duration::from_secs(10);

/// Prints the plan of one server as JSON.
///
/// # Errors
/// What `run` would refuse.
pub(crate) fn plan(
    server: &ServerId,
    policy: &Policy,
    caller: PasswdEntry,
) -> Result<(), HelperRefusal> {
    let plan = ConfinementPlan::make(server, &read_registry()?, policy, caller)?;
    sandbox::check(&plan)?;
    print(&plan.to_json())
}

/// Says of every jailed entry whether `run` would refuse it, one line each.
///
/// # Errors
/// The registry cannot be read, or at least one entry is refused.
pub(crate) fn check(policy: &Policy, caller: PasswdEntry) -> Result<(), HelperRefusal> {
    let registry = read_registry()?;
    let (mut bad, mut said) = (0, String::new());
    let servers = registry
        .servers
        .iter()
        .map(|(id, e)| (id, e.jail().is_some() && !e.disabled));
    let agents = registry
        .agents
        .iter()
        .map(|(id, a)| (id, a.command.jail.is_some() && !a.disabled));
    let runnable = servers
        .chain(agents)
        .filter_map(|(id, runs)| runs.then_some(id));
    for id in runnable {
        let Some(server) = ServerId::parse(id.as_bytes()) else {
            continue;
        };
        let refused = ConfinementPlan::make(&server, &registry, policy, caller).and_then(|plan| {
            sandbox::check(&plan).and_then(|()| Environment::build(&plan).map(drop))
        });
        match refused {
            Ok(()) => said.push_str(&format!("{id}: good\n")),
            Err(refusal) => {
                bad += 1;
                said.push_str(&format!("{id}: {}\n", refusal.line(true)));
            }
        }
    }
    print(&said)?;
    match bad {
        0 => Ok(()),
        _ => Err(HelperRefusal::new(
            HelperExit::File,
            "check",
            format!("{bad} of the jailed entries would be refused"),
        )),
    }
}

/// Writes to stdout, within a time: a closed or full one is the asker's own loss, and no program of
/// root's waits for it.
fn print(text: &str) -> Result<(), HelperRefusal> {
    let stdout = std::io::stdout();
    let mut rest = text.as_bytes();
    let written = sys::within(MAX_UNREAD, || {
        while !rest.is_empty() {
            rest = &rest[nix::unistd::write(stdout.as_fd(), rest)?..];
        }
        Ok(())
    });
    written.flatten().map_err(|error: nix::errno::Errno| {
        HelperRefusal::system("print", "write to stdout", error)
    })
}

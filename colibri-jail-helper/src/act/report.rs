//! `plan` and `check`: saying what would be done, and what is wrong, without doing anything.

use std::io::Write;

use colibri_jail_helper::names::ServerId;
use colibri_jail_helper::passwd::Account;
use colibri_jail_helper::plan::Plan;
use colibri_jail_helper::policy::Policy;
use colibri_jail_helper::refusal::{Exit, Refusal};
use colibri_jail_helper::registry::Transport;

use crate::act::run::read_registry;
use crate::act::secrets::Environment;
use crate::act::{cell, identity::Asker};

/// Prints the plan of one server as JSON.
///
/// # Errors
/// What `run` would refuse.
pub fn plan(server: &ServerId, policy: &Policy, caller: Account) -> Result<(), Refusal> {
    let plan = Plan::make(server, &read_registry()?, policy, caller)?;
    cell::check(&plan)?;
    let json = serde_json::to_string_pretty(&plan).map_err(|error| Refusal::system("plan", "print", error))?;
    print(&json)
}

/// Says of every jailed entry whether `run` would refuse it, one line each.
///
/// # Errors
/// The registry cannot be read, or at least one entry is refused.
pub fn check(asker: Asker, policy: &Policy, caller: Account) -> Result<(), Refusal> {
    let registry = read_registry()?;
    let mut bad = 0;
    for (id, entry) in &registry.servers {
        let jailed = matches!(&entry.transport, Transport::Stdio(command) if command.jail.is_some());
        let Some(server) = ServerId::parse(id.as_bytes()) else {
            continue;
        };
        if !jailed || entry.disabled {
            continue;
        }
        let refused = Plan::make(&server, &registry, policy, caller)
            .and_then(|plan| cell::check(&plan).and_then(|()| Environment::build(&plan).map(drop)));
        match refused {
            Ok(()) => print(&format!("{id}: good"))?,
            Err(refusal) => {
                bad += 1;
                print(&format!("{id}: {}", refusal.line(asker.is_root())))?;
            }
        }
    }
    match bad {
        0 => Ok(()),
        _ => Err(Refusal::new(
            Exit::File,
            "check",
            format!("{bad} of the jailed entries would be refused"),
        )),
    }
}

/// Writes a line to stdout; a closed or full one is the asker's own loss.
fn print(text: &str) -> Result<(), Refusal> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| Refusal::system("print", "write to stdout", error))
}

//! `colibri-mcp update`: newer versions of the packages of servers.

mod candidate;
mod trial;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};
use colibri_api::paths::{self, SERVICE};
use colibri_api::{
    PinAcceptRequest, PinList, PinSeen, PinsAccepted, PinsRequest, complete_command,
};
use colibri_registry::{PackageOrigin, PackagePin, ServerEntry};
use serde_json::{Value, json};

use self::candidate::{UpdateCandidate, find, way_of_bundle};
use self::trial::{ServerTrial, TrialOutcome};
use super::add::{INTRODUCTION, introduced, started};
use super::context::CommandContext;
use super::pin::{seen, show_difference};
use super::remove::no_server;
use crate::failure::CommandError;
use crate::install::{self, InstallScope, PackageTools, RegistryFile};
use crate::interrupt;
use crate::owned_file::agree;
use colibri_text::{counted, visible, visible_lines};

/// The servers, and what to do with them.
#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArguments {
    /// These servers; without one, all that have a package
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only says which newer versions there are
    #[arg(long, conflicts_with_all = ["yes", "approve"])]
    check: bool,
    /// To this version, newer or older, of one server
    #[arg(long, value_name = "VERSION", requires = "names")]
    to: Option<String>,
    /// Installs and tries new versions, and takes those whose definitions are as approved, without
    /// asking
    #[arg(long)]
    yes: bool,
    /// Takes new versions whose definitions are other than approved too, and approves those
    #[arg(long, requires = "yes")]
    approve: bool,
    /// Runs the scripts of packages while they are installed, and builds packages
    #[arg(long)]
    scripts: bool,
    /// In the service's registry, as root
    #[arg(long)]
    pub service: bool,
}

/// The outcome for one server.
#[derive(Default)]
struct UpdateReport {
    /// The entries whose servers run a new version.
    taken: Vec<String>,
    /// Their servers, each with the definitions that were approved with it.
    approved: Vec<(String, Vec<PinSeen>)>,
    /// Those that stay as they were, and why.
    failed: Vec<(String, String)>,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &UpdateArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let scope = InstallScope::choose(arguments.service, &context.place)?;
    interrupt::hold_back()?;
    let machine = |why: anyhow::Error| CommandError::Machine(format!("{why:#}"));
    let tools = PackageTools::new(arguments.scripts).map_err(machine)?;
    let RegistryFile { entries, read, .. } = install::registered(&scope)?;
    if let Some(name) = arguments
        .names
        .iter()
        .find(|name| !entries.contains_key(*name))
    {
        return Err(no_server(name, &entries, &scope));
    }
    if arguments.to.is_some() && arguments.names.len() > 1 {
        return Err(CommandError::Usage("--to: name one server".to_owned()));
    }
    let agreed = install::agreements(&scope, &read)?;
    let is_named = |(id, entry): &(&String, &ServerEntry)| {
        arguments.names.is_empty()
            || arguments
                .names
                .iter()
                .any(|name| name == *id || *name == entry.entry_id)
    };
    let (mut found, mut current, mut bundles) = (Vec::new(), Vec::new(), Vec::new());
    let mut report = UpdateReport::default();
    let mut seen = BTreeSet::new();
    for (_, entry) in read.servers.iter().filter(is_named) {
        // The accounts of an entry have one package.
        let id = &entry.entry_id;
        if !seen.insert(id) {
            continue;
        }
        let Some(pin) = package_of(entry) else {
            if !arguments.names.is_empty() {
                let why =
                    "its entry has no package: its command is a program of this machine".to_owned();
                report.failed.push((id.clone(), why));
            }
            continue;
        };
        // Whoever names one is told by a failure.
        if matches!(pin.origin, PackageOrigin::Bundle { .. }) && arguments.names.is_empty() {
            bundles.push(id.clone());
            continue;
        }
        let digests = install::digests(&read, id);
        let is_other = |(server, digest): (&String, &String)| {
            let agreed = agreed.as_ref();
            agreed.is_some_and(|agreed| agreed.get(server) != Some(digest))
        };
        if digests.iter().any(is_other) {
            let why = format!(
                "you have not agreed to its entry as it stands: colibri-mcp server enable {id}"
            );
            report.failed.push((id.clone(), why));
            continue;
        }
        match find((id, digests), pin, arguments.to.as_deref(), &scope, &tools) {
            Ok(Some(candidate)) => found.push(candidate),
            Ok(None) => current.push(id.clone()),
            Err(why) => report.failed.push((id.clone(), format!("{why:#}"))),
        }
    }
    interrupt::check()?;
    for candidate in &found {
        context.tell(&candidate.show())?;
    }
    for id in &current {
        context.tell(&format!("{id}: there is no newer version"))?;
    }
    for id in &bundles {
        context.tell(&format!("{id}: {}", way_of_bundle(id)))?;
    }
    tell_failures(&report.failed, "was not looked for");
    let updates: Vec<Value> = found.iter().map(UpdateCandidate::facts).collect();
    if arguments.check || found.is_empty() {
        let text = match found.len() as u64 {
            0 => "Nothing to update.".to_owned(),
            number => format!(
                "There are newer versions for {}: colibri-mcp update",
                counted(number, "server")
            ),
        };
        let facts = json!({ "updates": updates, "current": current, "bundles": bundles,
            "failed": failures(&report.failed) });
        context.answer(&facts, &text)?;
        return outcome(&report);
    }
    let number = counted(found.len() as u64, "new version");
    agree(
        &format!("Install {number}, and run what is new to try it?"),
        arguments.yes,
    )?;
    let alone = scope.lock()?;
    let updater = Updater {
        arguments,
        context,
        scope: &scope,
        tools: &tools,
        state_dir: match scope.is_service() {
            true => SERVICE.state.into(),
            false => context
                .state_dir(None)
                .unwrap_or_else(|_| paths::private().state_dir),
        },
    };
    for candidate in &found {
        interrupt::check()?;
        match updater.take(candidate) {
            Ok(approved) => {
                report.taken.push(candidate.id.clone());
                report.approved.extend(approved);
            }
            Err(why) => report
                .failed
                .push((candidate.id.clone(), format!("{why:#}"))),
        }
    }
    // A daemon that is started may wait for the same directory.
    drop(alone);
    tell_failures(&report.failed, "stays as it was");
    let ids = &report.taken;
    let back = found
        .iter()
        .filter(|candidate| ids.contains(&candidate.id))
        .filter_map(|candidate| {
            let version = candidate.old.origin.version()?;
            Some(format!(
                "colibri-mcp update {} --to {version}",
                candidate.id
            ))
        });
    let back: Vec<String> = back.collect();
    let said = match ids.is_empty() {
        true => "No server was updated.".to_owned(),
        false => format!(
            "Updated {}. Back to the version before: {}",
            ids.join(", "),
            back.join("; ")
        ),
    };
    let facts = json!({ "updates": updates, "current": current, "bundles": bundles, "updated": ids,
        "failed": failures(&report.failed) });
    let told = install::reload(&context.place.socket);
    told.answer(context, &scope, (said, facts), None)?;
    interrupt::release()?;
    let is_on = |id: &&String| read.servers.get(*id).is_some_and(|entry| !entry.disabled);
    let servers = report.approved.iter().map(|(id, _)| id);
    let on: Vec<String> = servers.filter(is_on).cloned().collect();
    for (id, approved) in &report.approved {
        if on.contains(id)
            && !approved.is_empty()
            && let Err(why) = approve(id, approved, context)
        {
            let why = visible_lines(&why.to_string()).into_owned();
            eprintln!(
                "colibri-mcp: {id}: not all definitions were approved: {why}; colibri-mcp pin diff {id}"
            );
        }
    }
    introduced(&on, context)?;
    outcome(&report)
}

fn package_of(entry: &ServerEntry) -> Option<&PackagePin> {
    entry.command.as_ref()?.package.as_ref()
}

/// The means of an update.
struct Updater<'u> {
    arguments: &'u UpdateArguments,
    context: &'u CommandContext,
    scope: &'u InstallScope,
    tools: &'u PackageTools,
    /// The state directory of the daemon that has the servers.
    state_dir: PathBuf,
}

impl Updater<'_> {
    /// Installs a new version, tries it, and puts it in place of the old one; its servers, each
    /// with the definitions that are approved with it.
    fn take(&self, candidate: &UpdateCandidate) -> anyhow::Result<Vec<(String, Vec<PinSeen>)>> {
        let (scope, id) = (self.scope, candidate.id.as_str());
        let was_there = install::installed(&candidate.pin, scope, id).is_some();
        self.tools.install(&candidate.lock, None, scope, id)?;
        let taken = self.try_out(candidate).and_then(|approved| {
            candidate.lock.write(scope)?;
            install::put_package(scope, id, &candidate.pin, &candidate.entry)?;
            Ok(approved)
        });
        match &taken {
            // The old one can be gone back to.
            Ok(_) => install::tidy(scope, id, &candidate.pin, &candidate.old)?,
            Err(_) if was_there || self.has_entry_of(candidate) => {}
            Err(_) => install::uninstall(&candidate.pin, scope, id)?,
        }
        taken
    }

    /// True if the entry has the new version although not all could be written, or that is not
    /// known.
    fn has_entry_of(&self, candidate: &UpdateCandidate) -> bool {
        install::registered(self.scope).map_or(true, |registry| {
            let entry = registry.read.of_entry(&candidate.id).next();
            entry.and_then(|(_, entry)| package_of(entry)) == Some(&candidate.pin)
        })
    }

    /// Starts a new version as each of the entry's servers, and has the person agree to what it
    /// defines.
    fn try_out(&self, candidate: &UpdateCandidate) -> anyhow::Result<Vec<(String, Vec<PinSeen>)>> {
        let registry = install::registered(self.scope)?.read;
        if install::digests(&registry, &candidate.id) != candidate.entry {
            bail!("its entry was changed or taken out meanwhile");
        }
        let servers = registry.of_entry(&candidate.id).map(|(id, entry)| {
            let outcome = self.try_server(id, entry, candidate)?;
            Ok((id.clone(), outcome.diffs.diffs.iter().map(seen).collect()))
        });
        servers.collect()
    }

    /// The same for one server.
    fn try_server(
        &self,
        id: &str,
        entry: &ServerEntry,
        candidate: &UpdateCandidate,
    ) -> anyhow::Result<TrialOutcome> {
        let mut command = entry
            .command
            .as_deref()
            .cloned()
            .context("it has no command")?;
        command.package = Some(candidate.pin.clone());
        complete_command(&mut command, &self.scope.servers, &candidate.id)?;
        let mut trial = ServerTrial {
            id,
            command,
            state_dir: &self.state_dir,
            with_secrets: false,
        };
        let outcome = match trial.run(self.scope) {
            Ok(outcome) => outcome,
            Err(why) => {
                let why = trial.without_home(&why);
                self.context
                    .tell(&format!("{id}: {}", visible_lines(&why.to_string())))?;
                let question = format!("Try {id} with its secrets and its own home?");
                agree(&question, self.arguments.approve).map_err(|_| why)?;
                trial.with_secrets = true;
                trial
                    .run(self.scope)
                    .context("nor does it start with them")?
            }
        };
        self.context.tell(&format!(
            "{id} starts, and offers {}.",
            counted(outcome.tools, "tool")
        ))?;
        if outcome.is_same() {
            return Ok(outcome);
        }
        for pin in &outcome.diffs.diffs {
            self.context.tell(&show_difference(pin))?;
        }
        for tool in &outcome.gone {
            self.context
                .tell(&format!("{id} {}: it is gone", visible(tool)))?;
        }
        if outcome.diffs.left_out > 0 {
            bail!(
                "{} more definitions differ than can be shown",
                outcome.diffs.left_out
            );
        }
        if self.arguments.yes && !self.arguments.approve {
            bail!(
                "its definitions are not those that were approved: look at them without --yes, or say --approve too"
            );
        }
        agree(
            &format!("Take {id} with these definitions?"),
            self.arguments.approve,
        )
        .map_err(|_| anyhow!("its definitions are not those that were approved"))?;
        Ok(outcome)
    }
}

/// Approves definitions at the daemon that serves them now: it has them once it has started the
/// server. Those that it never had it has approved at first sight.
fn approve(id: &str, approved: &[PinSeen], context: &CommandContext) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    started(&mut connection, id, Instant::now() + INTRODUCTION)?;
    let server = Some(id.to_owned());
    let (pins, _) = connection.ask::<PinList>("colibri/pins", &PinsRequest { server })?;
    let waiting = pins
        .pins
        .iter()
        .filter(|pin| pin.waiting.is_some())
        .map(seen);
    let (accept, others): (Vec<PinSeen>, Vec<PinSeen>) =
        waiting.partition(|pin| approved.contains(pin));
    if !accept.is_empty() {
        let server = id.to_owned();
        connection
            .ask::<PinsAccepted>("colibri/pin-accept", &PinAcceptRequest { server, accept })?;
    }
    match others.first() {
        None => Ok(()),
        Some(other) => Err(CommandError::Data(format!(
            "{} is another with its secrets and its own home",
            other.subject
        ))),
    }
}

fn tell_failures(failed: &[(String, String)], what: &str) {
    for (id, why) in failed {
        eprintln!("colibri-mcp: {id} {what}: {}", visible_lines(why));
    }
}

fn failures(failed: &[(String, String)]) -> Vec<Value> {
    let facts = failed
        .iter()
        .map(|(id, reason)| json!({ "server": id, "reason": reason }));
    facts.collect()
}

fn outcome(report: &UpdateReport) -> Result<ExitCode, CommandError> {
    let failed: Vec<&str> = report.failed.iter().map(|(id, _)| id.as_str()).collect();
    match failed.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(CommandError::Data(format!(
            "not updated, and as before: {}",
            failed.join(", ")
        ))),
    }
}

//! `colibri-mcp add`: a server by its command line, or by its address.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde_json::json;

use super::connect::Replacement;
use super::context::CommandContext;
use super::tool_list::OWN;
use crate::connection::DaemonConnection;
use crate::failure::CommandError;
use crate::install::{
    self, InputAnswers, InstallPlan, InstallScope, PackageTools, RegistryFile, WriteOutcome,
};
use crate::interrupt;
use crate::owned_file::agree;
use crate::progress;
use colibri_api::{ServerFacts, ServerState, ServerTools, Servers};
use colibri_mcp::importers::{self, Proposal, Runs};
use colibri_registry::is_server_id;
use colibri_text::{counted, visible, visible_lines};

/// The time that servers that came in may take to tell what they offer: longer than the 30 s in
/// which each is ready or has failed, unless its `start_timeout_ms` says otherwise.
pub(crate) const INTRODUCTION: Duration = Duration::from_secs(35);
/// Between two questions whether one has.
const PAUSE: Duration = Duration::from_millis(100);

/// The server.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArguments {
    /// The server's id: a-z, 0-9 and -, a letter first, at most 32; or ssh://HOST/ID, for a server
    /// of another host
    name: String,
    /// Its address, for a server that speaks HTTP; or ssh://HOST/ID
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "env", "cwd"])]
    url: Option<String>,
    /// The server speaks the HTTP+SSE of 2024-11-05
    #[arg(long, requires = "url")]
    sse: bool,
    /// A header of each request; KEY alone takes its value from your environment, or asks
    #[arg(long, value_name = "KEY[=VALUE]", requires = "url")]
    header: Vec<String>,
    /// A variable of its environment; KEY alone takes its value from yours, or asks
    #[arg(long, value_name = "KEY[=VALUE]")]
    env: Vec<String>,
    /// Its working directory
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<String>,
    #[command(flatten)]
    pub choices: Choices,
    /// The command that starts it, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The options of all commands that add servers.
#[derive(Debug, clap::Args)]
pub(crate) struct Choices {
    /// Writes without asking
    #[arg(long)]
    pub yes: bool,
    /// Runs the scripts of packages while they are installed, and builds packages
    #[arg(long)]
    pub scripts: bool,
    /// Into the service's registry, as root
    #[arg(long)]
    pub service: bool,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &AddArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let is_elsewhere = arguments.name.starts_with("ssh://");
    let (name, url) = match arguments.name.rsplit_once('/') {
        Some((_, server)) if is_elsewhere => (server, Some(&arguments.name)),
        _ => (&*arguments.name, arguments.url.as_ref()),
    };
    if is_elsewhere
        && (arguments.url.is_some() || !arguments.command.is_empty() || !arguments.env.is_empty())
    {
        let why = "ssh://HOST/ID says all: leave command, --url and --env out";
        return Err(CommandError::Usage(why.to_owned()));
    }
    if url.is_none() && arguments.command.is_empty() {
        let why =
            "say what the server is: its command after --, --url URL, or ssh://HOST/ID as its name";
        return Err(CommandError::Usage(why.to_owned()));
    }
    if !is_server_id(name) {
        return Err(CommandError::Usage(format!(
            "{}: a server's id is 1 to 32 characters of a-z, 0-9 and -, and begins with a letter",
            visible(name)
        )));
    }
    let proposal = match url {
        Some(url) => importers::url(
            name,
            url,
            pairs(&arguments.header, "--header")?,
            arguments.sse,
        ),
        None => {
            let env = pairs(&arguments.env, "--env")?;
            let command = from_here(&arguments.command);
            importers::command(name, &command, env, arguments.cwd.as_deref())
        }
    };
    let offers = vec![(name.to_owned(), proposal, None)];
    bring_in(
        offers,
        &InputAnswers::default(),
        &arguments.choices,
        None,
        context,
    )
}

/// The words of a command: a relative path is one from where the person is.
fn from_here(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    if let Some(first) = words.first_mut()
        && first.contains('/')
        && let Ok(path) = Path::new(first.as_str()).canonicalize()
        && !first.starts_with('/')
        && let Some(path) = path.to_str()
    {
        path.clone_into(first);
    }
    words
}

fn pairs(given: &[String], flag: &str) -> Result<BTreeMap<String, String>, CommandError> {
    let mut pairs = BTreeMap::new();
    for pair in given {
        let (key, value) = match pair.split_once('=') {
            Some((key, value)) => (key, value.to_owned()),
            None => (pair.as_str(), install::value_of(pair, flag)?),
        };
        pairs.insert(key.to_owned(), value);
    }
    Ok(pairs)
}

/// The ids of servers that do not work, each with the reason.
type DeadServers = BTreeMap<String, CommandError>;

/// A server that may come in: its id, what its source says, and the bundle that it comes in.
pub(crate) type ServerProposal = (String, Proposal, Option<Rc<[u8]>>);

/// Shows what would be written for each, asks, and writes it. One that cannot become an entry says
/// why. With a `replacement` they leave the editor's file once they are here and start.
///
/// # Errors
/// None of them became an entry, the person does not want it, or one of the files cannot be
/// written.
pub(crate) fn bring_in(
    offers: Vec<ServerProposal>,
    answers: &InputAnswers,
    choices: &Choices,
    replacement: Option<Replacement>,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let scope = InstallScope::choose(choices.service, &context.place)?;
    interrupt::hold_back()?;
    let tools = PackageTools::new(choices.scripts)
        .map_err(|why| CommandError::Machine(format!("{why:#}")))?;
    let RegistryFile {
        entries: known,
        read: known_registry,
        ..
    } = install::registered(&scope)?;
    let (mut plans, mut refused): (Vec<InstallPlan>, Vec<(String, String)>) =
        (Vec::new(), Vec::new());
    let (mut present, mut keys) = (Vec::new(), BTreeMap::new());
    for (id, mut proposal, mut bundle) in offers {
        let name = proposal.name.clone();
        keys.insert(id.clone(), proposal.keys.clone());
        if let Ok(Runs::Published(published)) = &proposal.runs {
            (proposal, bundle) = match install::fetch_bundle(published) {
                Ok((bytes, its_own)) => (proposal.by_bundle(its_own), Some(bytes)),
                Err(why) => (
                    Proposal {
                        runs: Err(format!("{why:#}")),
                        ..proposal
                    },
                    None,
                ),
            };
        }
        let plan = match (
            &proposal.runs,
            known.contains_key(&id) && replacement.is_none(),
        ) {
            _ if id == OWN => Err(anyhow!(
                "{OWN} is what the daemon calls itself: give it another name"
            )),
            (Err(why), _) => Err(anyhow!(why.clone())),
            (_, true) => Err(anyhow!(install::already(&id))),
            (Ok(_), false) => answers
                .of(&mut proposal)
                .and_then(|answers| {
                    install::plan(&proposal, &id, &answers, bundle.as_ref(), &tools)
                })
                .and_then(|plan| plan.for_scope(&scope)),
        };
        match (plan, known.get(&id)) {
            (Ok(plan), None) => plans.push(plan),
            (Ok(plan), Some((_, entry))) if install::is_same(&plan, entry, &scope) => {
                present.push(plan)
            }
            (Ok(_), Some(_)) => {
                refused.push((name, format!("another one: {}", install::already(&id))))
            }
            (Err(why), _) => refused.push((name, format!("{why:#}"))),
        }
    }
    interrupt::check()?;
    for plan in &plans {
        context.tell(&format!(
            "{}\n",
            install::show(plan, &scope, cfg!(target_os = "freebsd"))
        ))?;
    }
    for (name, why) in &refused {
        eprintln!(
            "colibri-mcp: {} is refused: {}",
            visible(name),
            visible_lines(why)
        );
    }
    if plans.is_empty() && present.is_empty() {
        return Err(CommandError::Data(
            "no server can be added; nothing was written".to_owned(),
        ));
    }
    let what = counted(plans.len() as u64, "server");
    let agreed = install::agreements(&scope, &known_registry)?.unwrap_or_default();
    for plan in &present {
        let stands = known_registry
            .servers
            .get(&plan.id)
            .map(|entry| &entry.digest);
        if let (Some((_, entry)), true) = (known.get(&plan.id), stands != agreed.get(&plan.id)) {
            context.tell(&install::show_entry(&plan.id, entry))?;
        }
    }
    let mut question = format!("Write {what} into {}?", scope.registry.display());
    if let Some(replacement) = &replacement {
        let all = || plans.iter().chain(&present);
        let moved: Vec<_> = all()
            .filter_map(|plan| keys.get(&plan.id).cloned())
            .collect();
        let secrets = all()
            .flat_map(|plan| &plan.secrets)
            .map(|(_, _, value)| value.as_str());
        context.tell(&replacement.announcement(
            &moved,
            &refused,
            &secrets.collect::<Vec<_>>(),
        )?)?;
        question = format!(
            "Move {} into {}?",
            counted(moved.len() as u64, "server"),
            scope.registry.display()
        );
    }
    agree(&question, choices.yes)?;
    let mut written = match plans.is_empty() {
        true => WriteOutcome::default(),
        false => install::write(&plans, &scope, &tools)?,
    };
    if !present.is_empty() {
        let _alone = scope.lock()?;
        let shown = present.iter().filter_map(|plan| {
            let entry = known_registry.servers.get(&plan.id)?;
            Some((plan.id.as_str(), entry.digest.as_str()))
        });
        install::agree_to_shown(&scope, &shown.collect::<Vec<_>>())?;
    }
    for (id, why) in &written.failed {
        eprintln!("colibri-mcp: {id} was not written: {}", visible_lines(why));
    }
    if written.ids.is_empty() && present.is_empty() {
        return Err(CommandError::Data(
            "no server was added; nothing of them stays".to_owned(),
        ));
    }
    let said = match written.ids.is_empty() {
        true => format!("All of them are in {} already.", scope.registry.display()),
        false => format!(
            "Added {} to {}.",
            written.ids.join(", "),
            scope.registry.display()
        ),
    };
    refused.append(&mut written.failed);
    let refused = refused
        .iter()
        .map(|(server, reason)| json!({ "server": server, "reason": reason }));
    let mut facts = json!({ "added": written.ids, "refused": refused.collect::<Vec<_>>() });
    let told = install::reload(&context.place.socket);
    // What is turned off where it comes from stays so.
    let RegistryFile { entries, .. } = install::registered(&scope)?;
    let has = |id: &str, key: &str| {
        entries
            .get(id)
            .is_some_and(|(_, entry)| entry.get(key).is_some())
    };
    let there: Vec<String> = written
        .ids
        .iter()
        .chain(present.iter().map(|plan| &plan.id))
        .cloned()
        .collect();
    let on: Vec<String> = there
        .iter()
        .filter(|id| !has(id, "disabled"))
        .cloned()
        .collect();
    let Some(replacement) = replacement else {
        told.answer(context, &scope, (said, facts), written.kept.as_deref())?;
        interrupt::release()?;
        introduced(&on, context)?;
        return Ok(ExitCode::SUCCESS);
    };
    context.tell(&said)?;
    interrupt::release()?;
    let dead = introduce_all(&on, context)?;
    // What does not start here may do so where it is; an address is as good from both, unless
    // nothing starts here.
    let is_address = |id: &String, why: &CommandError| {
        has(id, "url") && matches!(why, CommandError::DeadServer(_))
    };
    let stays = |id: &&String| dead.get(*id).is_some_and(|why| !is_address(id, why));
    let (staying, moved): (Vec<&String>, Vec<&String>) = there.iter().partition(stays);
    let keys_of = |ids: &[&String]| {
        ids.iter()
            .filter_map(|id| keys.get(*id).cloned())
            .collect::<Vec<_>>()
    };
    if !staying.is_empty() {
        context.tell(&replacement.staying(&keys_of(&staying)))?;
    }
    if !moved.is_empty() {
        let entries = keys_of(&moved);
        let outcome = replacement.write(&entries).inspect_err(|_| {
            eprintln!(
                "colibri-mcp: they are in {} now, and where they were too",
                scope.registry.display()
            );
        })?;
        facts["moved"] = json!(moved);
        facts["file"] = json!(outcome.path);
        facts["original"] = json!(outcome.original);
        told.answer(
            context,
            &scope,
            (outcome.text, facts),
            written.kept.as_deref(),
        )?;
    }
    dead_servers(dead)?;
    Ok(ExitCode::SUCCESS)
}

/// Has the daemon start servers that a person just agreed to, and says what they offer, or why they
/// do not start: an agent that asks for tools once, when it starts, then gets theirs. The user's
/// own daemon is started for that. Where another one does not run, or does not serve them, that is
/// said.
///
/// # Errors
/// One of them does not work: a script that adds it must not go on as if it did.
pub(crate) fn introduced(ids: &[String], context: &CommandContext) -> Result<(), CommandError> {
    dead_servers(introduce_all(ids, context)?)
}

/// The same; those that do not work.
fn introduce_all(ids: &[String], context: &CommandContext) -> Result<DeadServers, CommandError> {
    let until = Instant::now() + INTRODUCTION;
    let (mut told, mut dead) = (Vec::new(), DeadServers::new());
    for id in ids {
        match introduce(id, context, until) {
            Ok(text) => told.push(format!("{id} {text}")),
            Err(why) if context.place.private || matches!(why, CommandError::DeadServer(_)) => {
                dead.insert(id.clone(), why);
            }
            Err(why) => told.push(format!(
                "{id} was not started: {}",
                visible_lines(&why.to_string())
            )),
        }
    }
    if !told.is_empty() {
        context.tell(&told.join("\n"))?;
    }
    Ok(dead)
}

/// # Errors
/// There are servers that do not work.
fn dead_servers(dead: DeadServers) -> Result<(), CommandError> {
    if dead.is_empty() {
        return Ok(());
    }
    let dead = dead
        .iter()
        .map(|(id, why)| format!("{id} is there and does not work: {why}"));
    Err(CommandError::DeadServer(format!(
        "{}; what starts then: colibri-mcp status. To take one out: colibri-mcp remove NAME",
        dead.collect::<Vec<_>>().join("; ")
    )))
}

fn introduce(id: &str, context: &CommandContext, until: Instant) -> Result<String, CommandError> {
    let answer = started(&mut context.connect()?, id, until)?;
    let tools = answer.tools.len() as u64 + answer.left_out + answer.unlistable;
    Ok(format!("offers {}.", counted(tools, "tool")))
}

/// Has a daemon start a server, and waits for its tools.
///
/// # Errors
/// It does not start, or not within this time.
pub(crate) fn started(
    connection: &mut DaemonConnection,
    id: &str,
    until: Instant,
) -> Result<ServerTools, CommandError> {
    let _step = progress::step(format!("starting {id}"));
    loop {
        interrupt::check()?;
        let asked = json!({ "server": id });
        let (answer, _) =
            connection.own_tool::<ServerTools>("colibri_external_mcp_list_tools", &asked)?;
        match start_outcome(&answer, Instant::now() >= until) {
            StartOutcome::Ready => return Ok(answer),
            StartOutcome::Failed(why) => return Err(CommandError::DeadServer(why)),
            StartOutcome::Starting => {}
        }
        // A look is no call: however often this asks, nothing of it is recorded one by one.
        while Instant::now() < until {
            std::thread::sleep(PAUSE);
            let (all, _) = connection.ask::<Servers>("colibri/servers", &json!({}))?;
            let is_starting =
                |server: &ServerFacts| server.id == id && server.state == ServerState::Starting;
            if !all.servers.iter().any(is_starting) {
                break;
            }
        }
    }
}

/// The outcome of a server's start.
#[derive(Debug, PartialEq, Eq)]
enum StartOutcome {
    Ready,
    Starting,
    Failed(String),
}

fn start_outcome(answer: &ServerTools, is_late: bool) -> StartOutcome {
    let Some(unseen) = answer.not_seen.first() else {
        return StartOutcome::Ready;
    };
    StartOutcome::Failed(match unseen.state {
        ServerState::Starting if is_late => {
            format!("it still starts after {} s", INTRODUCTION.as_secs())
        }
        ServerState::Starting => return StartOutcome::Starting,
        state => {
            let reason = unseen.reason.as_deref().unwrap_or("it gives no reason");
            format!("{state}: {reason}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_come_to_start_is_no_success() {
        let unseen = |state: &str| {
            let unseen = json!([{ "server": "s", "state": state, "reason": "no module" }]);
            serde_json::from_value(json!({ "tools": [], "left_out": 0, "not_seen": unseen }))
                .unwrap()
        };
        assert_eq!(
            start_outcome(&unseen("starting"), false),
            StartOutcome::Starting
        );
        for (state, is_late, wanted) in [
            ("starting", true, "it still starts after 35 s"),
            ("failed", false, "failed: no module"),
        ] {
            assert_eq!(
                start_outcome(&unseen(state), is_late),
                StartOutcome::Failed(wanted.to_owned())
            );
        }
    }
}

//! A git repository: an agent's worktrees in it, what they have that is not committed, commits on
//! their branches, and what origin has and how it is taken in.

mod child;
mod definitions;
mod history;
mod names;
mod pending;
mod placing;
mod session;
mod update;
mod work;
mod worktree;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::stat::{Mode, umask};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::child::{ChildBounds, GRACE};
use self::history::{Against, LineRange};
use self::names::{
    CommitMessage, CommitName, MAX_COUNT, MAX_LINES, MAX_PATHS, RemoteUrl, Slug, WorktreePath,
    person,
};
use self::session::{Credential, GIT, GitSession, Repository, machine, unconnected};
use self::update::UpdateAction;
use super::serve::ToolServer;
use super::tool_call_error::{ToolCallError, result};
use crate::failure::CommandError;
use colibri_text::brief;

/// The variable with the secret for origin.
const SECRET: &str = "GIT_ORIGIN_TOKEN";
/// The longest time for a call, and for one that reaches origin or takes it in.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_LONG: Duration = Duration::from_secs(120);

/// The repository, and the author of commits.
#[derive(Debug, clap::Args)]
pub(crate) struct GitArguments {
    /// The repository, an absolute path
    #[arg(long, value_name = "DIRECTORY")]
    repository: Option<PathBuf>,
    /// The URL to fetch from, whatever the repository's configuration says: https://…, http://… or
    /// file:///…
    #[arg(long, value_name = "URL", requires = "repository")]
    origin: Option<String>,
    /// The user name for origin beside the secret, if it needs one
    #[arg(long, value_name = "NAME", default_value = "git")]
    user: String,
    /// The author of commits: 'NAME <ADDRESS>'
    #[arg(long, value_name = "PERSON", requires = "repository")]
    author: Option<String>,
    /// The path of git, an absolute path
    #[arg(long, value_name = "FILE", default_value = GIT)]
    git: PathBuf,
}

/// The repository, or that there is none.
pub(super) struct Git {
    repository: Option<Arc<Repository>>,
}

/// A call whose arguments are known.
enum GitCall {
    Fetch,
    WorktreeAdd(Slug),
    WorktreeRemove(WorktreeRemoval),
    Worktrees,
    Commit(Commit),
    Update(Update),
    Status(Slug),
    Diff(Diff),
    Log(LogArguments),
    Show(ShowArguments),
    Blame(BlameArguments),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoGitArguments {}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WorktreeName {
    slug: Slug,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    slug: Slug,
    message: CommitMessage,
    paths: Vec<WorktreePath>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Diff {
    slug: Slug,
    #[serde(default)]
    against: Against,
    #[serde(default)]
    paths: Vec<WorktreePath>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct LogArguments {
    slug: Option<Slug>,
    count: Option<u8>,
    #[serde(default)]
    paths: Vec<WorktreePath>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowArguments {
    commit: CommitName,
    #[serde(default)]
    paths: Vec<WorktreePath>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BlameArguments {
    slug: Slug,
    path: WorktreePath,
    from: Option<u32>,
    count: Option<u32>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WorktreeRemoval {
    slug: Slug,
    #[serde(default)]
    discard: bool,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
    slug: Slug,
    action: UpdateAction,
}

impl Git {
    /// The repository of a command line; its secret comes from the environment.
    pub(super) fn new(arguments: GitArguments) -> Result<Git, CommandError> {
        let wrong =
            |what: &str, why: &str| CommandError::Usage(format!("integration git: {what} {why}"));
        // What is checked out is for an agent of the same group to change.
        umask(Mode::S_IWOTH);
        let Some(path) = arguments.repository else {
            return Ok(Git { repository: None });
        };
        for (what, path) in [("--repository", &path), ("--git", &arguments.git)] {
            let is_plain = path
                .to_str()
                .is_some_and(|text| !text.contains(char::is_control));
            if !path.is_absolute() || !is_plain {
                return Err(wrong(
                    what,
                    "must be an absolute path of UTF-8 without control characters",
                ));
            }
        }
        let origin = arguments
            .origin
            .as_deref()
            .map(RemoteUrl::parse)
            .transpose();
        let origin = origin.map_err(|why| wrong("--origin", &format!("{why:#}")))?;
        let person = arguments.author.as_deref().map(person).transpose();
        let secret = std::env::var(SECRET)
            .ok()
            .filter(|secret| !secret.is_empty());
        let is_safe = origin.as_ref().is_none_or(RemoteUrl::keeps_secrets);
        if secret.is_some() && !is_safe {
            return Err(wrong(
                SECRET,
                "is sent by https, or to this machine, and nowhere else",
            ));
        }
        if arguments
            .user
            .contains(|c: char| c.is_control() || c == ':')
        {
            return Err(wrong("--user", "must have no colon"));
        }
        let credential = secret.map(|secret| {
            let pair = STANDARD.encode(format!("{}:{secret}", arguments.user));
            Credential { secret, pair }
        });
        Ok(Git {
            repository: Some(Arc::new(Repository {
                git: arguments.git,
                path,
                origin,
                credential,
                person: person.map_err(|why| wrong("--author", &format!("{why:#}")))?,
            })),
        })
    }

    async fn answer(&self, asked: Result<GitCall, ToolCallError>) -> Result<Value, ToolCallError> {
        let asked = asked?;
        let Some(repository) = self.repository.clone() else {
            return Err(unconnected("the entry's command names no --repository"));
        };
        let patience = match asked {
            GitCall::Fetch | GitCall::Update(_) => PATIENCE_LONG,
            _ => PATIENCE,
        };
        let (bounds, want) =
            ChildBounds::new(patience).map_err(|error| machine("a pipe", &error))?;
        let work = tokio::task::spawn_blocking(move || asked.answer(&repository, bounds));
        let answer = work
            .await
            .map_err(|error| unconnected(&error.to_string()))?;
        // Dropped earlier, with this call, it has the work end.
        drop(want);
        answer
    }
}

impl GitCall {
    /// Reads the arguments of a call; `None`: there is no such tool.
    fn read(name: &str, arguments: &Value) -> Option<Result<GitCall, ToolCallError>> {
        Some(match name {
            "git_fetch" => read(arguments).map(|NoGitArguments {}| GitCall::Fetch),
            "git_worktree_add" => {
                read(arguments).map(|WorktreeName { slug }| GitCall::WorktreeAdd(slug))
            }
            "git_worktree_remove" => read(arguments).map(GitCall::WorktreeRemove),
            "git_worktrees" => read(arguments).map(|NoGitArguments {}| GitCall::Worktrees),
            "git_update" => read(arguments).map(GitCall::Update),
            "git_commit" => read(arguments).and_then(|commit: Commit| match commit.paths.len() {
                1..=MAX_PATHS => Ok(GitCall::Commit(commit)),
                _ => Err(invalid(&format!("paths must name 1 to {MAX_PATHS}"))),
            }),
            "git_status" => read(arguments).map(|WorktreeName { slug }| GitCall::Status(slug)),
            "git_diff" => read(arguments)
                .and_then(|diff: Diff| bounded(&diff.paths).map(|()| GitCall::Diff(diff))),
            "git_log" => {
                read(arguments).and_then(|log: LogArguments| match log.count.unwrap_or(1) {
                    1..=MAX_COUNT => bounded(&log.paths).map(|()| GitCall::Log(log)),
                    _ => Err(invalid(&format!("count must be 1 to {MAX_COUNT}"))),
                })
            }
            "git_show" => read(arguments)
                .and_then(|show: ShowArguments| bounded(&show.paths).map(|()| GitCall::Show(show))),
            "git_blame" => {
                read(arguments).and_then(|blame: BlameArguments| match (blame.from, blame.count) {
                    (Some(0), _) => Err(invalid("from must be 1 or more")),
                    (_, None | Some(1..=MAX_LINES)) => Ok(GitCall::Blame(blame)),
                    _ => Err(invalid(&format!("count must be 1 to {MAX_LINES}"))),
                })
            }
            "git_push" => {
                let why = "pushing is for people: say what is ready, and on which branch";
                Err(ToolCallError::permanent("GIT_PUSH_REFUSED", why))
            }
            _ => return None,
        })
    }

    /// Does it, on a thread that may wait.
    fn answer(self, repository: &Repository, bounds: ChildBounds) -> Result<Value, ToolCallError> {
        let slug = match &self {
            GitCall::Fetch | GitCall::Worktrees | GitCall::Show(_) => None,
            GitCall::WorktreeAdd(slug) | GitCall::Status(slug) => Some(slug),
            GitCall::WorktreeRemove(removal) => Some(&removal.slug),
            GitCall::Update(update) => Some(&update.slug),
            GitCall::Blame(blame) => Some(&blame.slug),
            GitCall::Commit(commit) => Some(&commit.slug),
            GitCall::Diff(diff) => Some(&diff.slug),
            GitCall::Log(log) => log.slug.as_ref(),
        };
        // Without a worktree there is no branch that is meant.
        let head = slug.map_or_else(|| "refs/heads/none".to_owned(), Slug::reference);
        let session = GitSession::open(repository, &head, bounds)?;
        match self {
            GitCall::Fetch => work::fetch(&session),
            GitCall::WorktreeAdd(slug) => work::worktree_add(&session, &slug),
            GitCall::WorktreeRemove(WorktreeRemoval { slug, discard }) => {
                worktree::remove(&session, &slug, discard)
            }
            GitCall::Worktrees => worktree::list(&session),
            GitCall::Update(Update { slug, action }) => update::update(&session, &slug, action),
            GitCall::Commit(Commit {
                slug,
                message,
                paths,
            }) => work::commit(&session, &slug, &message, &paths),
            GitCall::Status(slug) => work::status(&session, &slug),
            GitCall::Diff(Diff {
                slug,
                against,
                paths,
            }) => history::diff(&session, &slug, against, &paths),
            GitCall::Log(LogArguments { slug, count, paths }) => {
                history::log(&session, slug.as_ref(), count.unwrap_or(20), &paths)
            }
            GitCall::Show(ShowArguments { commit, paths }) => {
                history::show(&session, &commit, &paths)
            }
            GitCall::Blame(BlameArguments {
                slug,
                path,
                from,
                count,
            }) => {
                let (from, count) = (from.unwrap_or(1), count.unwrap_or(200));
                history::blame(&session, &slug, &path, LineRange { from, count })
            }
        }
    }
}

fn read<T: DeserializeOwned>(arguments: &Value) -> Result<T, ToolCallError> {
    // Left out, they are none.
    let arguments = if arguments.is_null() {
        json!({})
    } else {
        arguments.clone()
    };
    serde_json::from_value(arguments).map_err(|error| invalid(&error.to_string()))
}

/// Refuses more paths than a command line is given.
fn bounded(paths: &[WorktreePath]) -> Result<(), ToolCallError> {
    match paths.len() {
        0..=MAX_PATHS => Ok(()),
        _ => Err(invalid(&format!("paths must name at most {MAX_PATHS}"))),
    }
}

fn invalid(why: &str) -> ToolCallError {
    ToolCallError::permanent("ARGUMENTS_INVALID", brief(why, 300))
}

impl ToolServer for Git {
    const NAME: &'static str = "colibri-git";
    const GRACE: Duration = GRACE.saturating_mul(2);

    fn list(&self) -> Value {
        definitions::list()
    }

    async fn call(&self, name: &str, arguments: &Value) -> Option<Value> {
        let asked = GitCall::read(name, arguments)?;
        let told = |said: &Value| match (said["message"].as_str(), &said["diff"], &said["blame"]) {
            (Some(message), Value::String(diff), _) => {
                let (sha, author, date) = (&said["sha"], &said["author"], &said["date"]);
                format!("{sha} {author} {date}\n\n{message}\n\n{diff}")
            }
            (_, Value::String(text), _) | (_, _, Value::String(text)) => text.clone(),
            _ => said.to_string(),
        };
        Some(result(self.answer(asked).await, told))
    }
}

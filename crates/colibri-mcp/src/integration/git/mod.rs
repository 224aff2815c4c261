//! A git repository: an agent's worktrees in it, what they have that is not committed, commits on their branches, and
//! what origin has.

mod child;
mod names;
mod session;
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
use self::names::{
    CommitMessage, MAX_MESSAGE, MAX_PATH, MAX_PATHS, MAX_SLUG, RemoteUrl, SLUG_PATTERN, Slug, WorktreePath, person,
};
use self::session::{Credential, GIT, GitSession, Repository, machine, unconnected};
use self::work::Against;
use super::serve::ToolServer;
use super::tool_call_error::{ToolCallError, output_schema, result};
use crate::failure::CommandError;
use colibri_text::brief;

/// The variable with the secret for origin.
const SECRET: &str = "GIT_ORIGIN_TOKEN";
/// The longest time for a call, and for one that reaches origin.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_REMOTE: Duration = Duration::from_secs(120);
/// The most commits of a log.
const MAX_COUNT: u8 = 200;

/// The repository, and the author of commits.
#[derive(Debug, clap::Args)]
pub(crate) struct GitArguments {
    /// The repository, an absolute path
    #[arg(long, value_name = "DIRECTORY")]
    repository: Option<PathBuf>,
    /// The URL to fetch from, whatever the repository's configuration says: https://…, http://… or file:///…
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
    Commit(Commit),
    Status(Slug),
    Diff(Diff),
    Log(LogArguments),
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
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct LogArguments {
    slug: Option<Slug>,
    count: Option<u8>,
}

impl Git {
    /// The repository of a command line; its secret comes from the environment.
    pub(super) fn new(arguments: GitArguments) -> Result<Git, CommandError> {
        let wrong = |what: &str, why: &str| CommandError::Usage(format!("integration git: {what} {why}"));
        // What is checked out is for an agent of the same group to change.
        umask(Mode::S_IWOTH);
        let Some(path) = arguments.repository else {
            return Ok(Git { repository: None });
        };
        for (what, path) in [("--repository", &path), ("--git", &arguments.git)] {
            let is_plain = path.to_str().is_some_and(|text| !text.contains(char::is_control));
            if !path.is_absolute() || !is_plain {
                return Err(wrong(
                    what,
                    "must be an absolute path of UTF-8 without control characters",
                ));
            }
        }
        let origin = arguments.origin.as_deref().map(RemoteUrl::parse).transpose();
        let origin = origin.map_err(|why| wrong("--origin", &format!("{why:#}")))?;
        let person = arguments.author.as_deref().map(person).transpose();
        let secret = std::env::var(SECRET).ok().filter(|secret| !secret.is_empty());
        let is_safe = origin.as_ref().is_none_or(RemoteUrl::keeps_secrets);
        if secret.is_some() && !is_safe {
            return Err(wrong(SECRET, "is sent by https, or to this machine, and nowhere else"));
        }
        if arguments.user.contains(|c: char| c.is_control() || c == ':') {
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
        let patience = if matches!(asked, GitCall::Fetch) {
            PATIENCE_REMOTE
        } else {
            PATIENCE
        };
        let (bounds, want) = ChildBounds::new(patience).map_err(|error| machine("a pipe", &error))?;
        let work = tokio::task::spawn_blocking(move || asked.answer(&repository, bounds));
        let answer = work.await.map_err(|error| unconnected(&error.to_string()))?;
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
            "git_worktree_add" => read(arguments).map(|WorktreeName { slug }| GitCall::WorktreeAdd(slug)),
            "git_commit" => read(arguments).and_then(|commit: Commit| match commit.paths.len() {
                1..=MAX_PATHS => Ok(GitCall::Commit(commit)),
                _ => Err(invalid(&format!("paths must name 1 to {MAX_PATHS}"))),
            }),
            "git_status" => read(arguments).map(|WorktreeName { slug }| GitCall::Status(slug)),
            "git_diff" => read(arguments).map(GitCall::Diff),
            "git_log" => read(arguments).and_then(|log: LogArguments| match log.count.unwrap_or(1) {
                1..=MAX_COUNT => Ok(GitCall::Log(log)),
                _ => Err(invalid(&format!("count must be 1 to {MAX_COUNT}"))),
            }),
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
            GitCall::Fetch => None,
            GitCall::WorktreeAdd(slug) | GitCall::Status(slug) => Some(slug),
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
            GitCall::Commit(Commit { slug, message, paths }) => work::commit(&session, &slug, &message, &paths),
            GitCall::Status(slug) => work::status(&session, &slug),
            GitCall::Diff(Diff { slug, against }) => work::diff(&session, &slug, against),
            GitCall::Log(LogArguments { slug, count }) => work::log(&session, slug.as_ref(), count.unwrap_or(20)),
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

fn invalid(why: &str) -> ToolCallError {
    ToolCallError::permanent("ARGUMENTS_INVALID", brief(why, 300))
}

impl ToolServer for Git {
    const NAME: &'static str = "colibri-git";
    const GRACE: Duration = GRACE.saturating_mul(2);

    fn list(&self) -> Value {
        let text = |about: &str| json!({ "type": "string", "description": about });
        let slug = json!({ "type": "string", "pattern": SLUG_PATTERN, "maxLength": MAX_SLUG,
            "description": "The worktree's name: .worktrees/claude/SLUG, on the branch feature/SLUG" });
        let sha = text("The commit that the branch is at");
        let branch = text("The branch");
        let truncated = json!({ "type": "boolean", "description": "Whether there is more" });
        let tool = |name: &str, about: &str, input: Value, required: &[&str], output: Value, hints: [bool; 3]| {
            let all: Vec<&str> = output
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| &**key)
                .collect();
            let [reads, again, open] = hints;
            json!({
                "name": name,
                "description": about,
                "inputSchema": { "type": "object", "properties": input, "required": required, "additionalProperties": false },
                "outputSchema": output_schema(output.clone(), &all),
                "annotations": { "readOnlyHint": reads, "destructiveHint": false, "idempotentHint": again, "openWorldHint": open },
            })
        };
        let one =
            |about: &str| json!({ "type": "string", "minLength": 1, "maxLength": MAX_MESSAGE, "description": about });
        let objects = |about: &str| json!({ "type": "array", "items": { "type": "object" }, "description": about });
        json!([
            tool(
                "git_fetch",
                "Fetches origin's branches. Nothing in worktrees changes.",
                json!({}),
                &[],
                json!({ "branch": branch, "sha": sha }),
                [false, true, true]
            ),
            tool(
                "git_worktree_add",
                "Makes the worktree .worktrees/claude/SLUG on a new branch feature/SLUG at origin/main.",
                json!({ "slug": slug }),
                &["slug"],
                json!({ "slug": slug, "branch": branch, "sha": sha, "worktree": text("Where it is, in the repository") }),
                [false, false, false]
            ),
            tool(
                "git_commit",
                "Commits files of a worktree on its branch: as they are there now, new and removed ones too.",
                json!({ "slug": slug, "message": one("What the commit says"), "paths": {
                    "type": "array", "minItems": 1, "maxItems": MAX_PATHS,
                    "items": { "type": "string", "minLength": 1, "maxLength": MAX_PATH },
                    "description": "Files and directories, by their paths in the worktree; \".\" is all of it" } }),
                &["slug", "message", "paths"],
                json!({ "slug": slug, "branch": branch, "sha": sha, "parent": text("The commit before"),
                    "files": { "type": "integer", "minimum": 1, "description": "How many files changed" } }),
                [false, false, false]
            ),
            tool(
                "git_status",
                "Which files of a worktree are not as its branch has them.",
                json!({ "slug": slug }),
                &["slug"],
                json!({ "slug": slug, "branch": branch, "sha": sha, "truncated": truncated,
                    "changes": objects("Each with path, and state: two letters as git-status(1) has them") }),
                [true, true, false]
            ),
            tool(
                "git_diff",
                "What changed in a worktree since its last commit, or on its branch since it left origin/main.",
                json!({ "slug": slug, "against": { "enum": ["branch", "origin/main"], "default": "branch",
                    "description": "The worktree against its branch, or the branch against origin/main" } }),
                &["slug"],
                json!({ "slug": slug, "branch": branch, "sha": sha, "diff": text("A patch"), "truncated": truncated }),
                [true, true, false]
            ),
            tool(
                "git_log",
                "The last commits of a worktree's branch, or of origin/main if no slug is given.",
                json!({ "slug": slug, "count": { "type": "integer", "minimum": 1, "maximum": MAX_COUNT, "default": 20 } }),
                &[],
                json!({ "branch": branch, "sha": sha, "commits": objects("Each with sha, author, date and subject") }),
                [true, true, false]
            ),
            tool(
                "git_push",
                "Asks for a branch to be pushed, which people do: it is refused, and becomes a task for a person.",
                json!({ "branch": text("What to push, as feature/SLUG"), "sha": text("The commit that is ready") }),
                &["branch"],
                json!({ "branch": branch, "sha": sha }),
                [false, true, false]
            ),
        ])
    }

    async fn call(&self, name: &str, arguments: &Value) -> Option<Value> {
        let asked = GitCall::read(name, arguments)?;
        let told = |said: &Value| said["diff"].as_str().map_or_else(|| said.to_string(), str::to_owned);
        Some(result(self.answer(asked).await, told))
    }
}

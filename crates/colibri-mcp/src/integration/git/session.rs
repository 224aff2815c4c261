//! git(1) over a repository that others write to, without anything of theirs that says what is run.
//!
//! Whoever can write to a worktree may have written to the repository's configuration and hooks
//! too. So git never sees them: for each call it gets a directory of our own for the repository's
//! (gitrepository-layout(5)), with our configuration, in which objects and references alone are
//! links to the repository's.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use colibri_text::brief;
use nix::errno::Errno;
use tempfile::TempDir;

use super::child::{self, ChildBounds, ChildOutcome, MAX_ERR, StopReason};
use super::names::RemoteUrl;
use crate::integration::tool_call_error::ToolCallError;

/// The path of git(1), unless the command line names another.
pub(super) const GIT: &str = if cfg!(target_os = "freebsd") {
    "/usr/local/bin/git"
} else {
    "/usr/bin/git"
};
/// The only PATH for git's helpers and the programs that they start.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The most bytes of what a command says that is read whole.
pub(super) const MAX_OUT: usize = 1 << 20;

/// Our configuration, instead of the repository's, the user's and the system's. What these could
/// run or change is said here too where it has a default that does so. Locks and modes of files in
/// the repository are as ever; what is checked out may be written by the group, for agents.
const CONFIG: &str = "[core]
\trepositoryFormatVersion = 0
\tbare = false
\thooksPath = /dev/null
\tfsmonitor = false
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\talternateRefsCommand = true
\tcommitGraph = false
\tlogAllRefUpdates = false
\tsharedRepository = 0644
\tprotectHFS = true
\tprotectNTFS = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
[credential]
\thelper =
[submodule]
\trecurse = false
[fetch]
\trecurseSubmodules = false
[http]
\tfollowRedirects = false
\tlowSpeedLimit = 1000
\tlowSpeedTime = 30
[log]
\tshowSignature = false
\tmailmap = false
[user]
\tuseConfigOnly = true
";

/// The repository, as a command line names it.
pub(super) struct Repository {
    pub(super) git: PathBuf,
    /// Its path, absolute; its own directory is `.git` there.
    pub(super) path: PathBuf,
    pub(super) origin: Option<RemoteUrl>,
    pub(super) credential: Option<Credential>,
    /// Name and address of who commits.
    pub(super) person: Option<(String, String)>,
}

/// The credential for origin.
pub(super) struct Credential {
    pub(super) secret: String,
    /// User and secret, as a request has them.
    pub(super) pair: String,
}

/// One call's git.
pub(super) struct GitSession<'a> {
    pub(super) repository: &'a Repository,
    own: TempDir,
    bounds: ChildBounds,
}

impl<'a> GitSession<'a> {
    /// Looks whether the repository is one, and makes the directory that stands for it, whose HEAD
    /// is `reference`.
    ///
    /// # Errors
    /// There is none, or none that git can be let near.
    pub(super) fn open(
        repository: &'a Repository,
        reference: &str,
        bounds: ChildBounds,
    ) -> Result<GitSession<'a>, ToolCallError> {
        let theirs = repository.path.join(".git");
        for directory in [
            &*repository.path,
            &theirs,
            &theirs.join("objects"),
            &theirs.join("refs"),
        ] {
            if !is_directory(directory) {
                let why = format!(
                    "{} is no directory: is this a repository?",
                    directory.display()
                );
                return Err(unconnected(&why));
            }
        }
        // Objects of other repositories, which are none of the caller's.
        for odd in ["objects/info/alternates", "objects/info/http-alternates"] {
            if theirs.join(odd).symlink_metadata().is_ok() {
                return Err(refused(format!(
                    "the repository has .git/{odd}, which is for a person to look at"
                )));
            }
        }
        let own = make_own(repository, &theirs, reference)
            .map_err(|error| machine("a directory of its own", &error))?;
        let session = GitSession {
            repository,
            own,
            bounds,
        };
        session.look_at_format(&theirs.join("config"))?;
        Ok(session)
    }

    /// A file of this call's alone.
    pub(super) fn own(&self, name: &str) -> PathBuf {
        self.own.path().join(name)
    }

    /// git in the directory of our own, with an environment of ours alone.
    pub(super) fn git<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let own = self.own.path();
        let mut command = Command::new(&self.repository.git);
        command.arg("--no-pager").args(arguments);
        command.current_dir(own).stdin(Stdio::null()).env_clear();
        command
            .env("PATH", PATH)
            .env("LC_ALL", "C")
            .env("TZ", "UTC");
        for name in ["HOME", "XDG_CONFIG_HOME", "TMPDIR"] {
            command.env(name, own);
        }
        for name in ["GIT_DIR", "GIT_COMMON_DIR"] {
            command.env(name, own);
        }
        command.env("GIT_CONFIG_GLOBAL", own.join("config"));
        command.env("GIT_INDEX_FILE", own.join("index"));
        for (name, value) in [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", "false"),
            ("GIT_EDITOR", "false"),
            ("GIT_SSH_COMMAND", "false"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_PROTOCOL_FROM_USER", "0"),
        ] {
            command.env(name, value);
        }
        let origin = self.repository.origin.as_ref();
        // Empty would be as if it were not there.
        command.env(
            "GIT_ALLOW_PROTOCOL",
            origin.map_or("none", |origin| origin.protocol),
        );
        if let Some((name, address)) = &self.repository.person {
            for (role, value) in [("NAME", name), ("EMAIL", address)] {
                command.env(format!("GIT_AUTHOR_{role}"), value);
                command.env(format!("GIT_COMMITTER_{role}"), value);
            }
        }
        command
    }

    /// Runs git to its end, whatever that is; at most so many bytes of what it says.
    pub(super) fn run(
        &self,
        command: &mut Command,
        most: usize,
    ) -> Result<ChildOutcome, ToolCallError> {
        child::run(command, most, &self.bounds).map_err(|stopped| match stopped {
            StopReason::Late => ToolCallError::permanent(
                "GIT_TIMEOUT",
                format!("{} took too long, and was ended", told(command)),
            ),
            StopReason::Unwanted => {
                ToolCallError::permanent("GIT_TIMEOUT", "the call was given up")
            }
            StopReason::System(error) => {
                machine(&self.repository.git.display().to_string(), &error)
            }
        })
    }

    /// The output of git, which must be a success and at most 1 MiB.
    pub(super) fn say(&self, command: &mut Command) -> Result<Vec<u8>, ToolCallError> {
        self.succeed(command, MAX_OUT).map(|ended| ended.out)
    }

    /// The same with another bound, and what git complains of beside.
    pub(super) fn succeed(
        &self,
        command: &mut Command,
        most: usize,
    ) -> Result<ChildOutcome, ToolCallError> {
        let ended = self.run(command, most)?;
        if ended.is_cut {
            return Err(refused(format!(
                "{} says more than {most} bytes: ask for less",
                told(command)
            )));
        }
        match ended.status.success() {
            true => Ok(ended),
            false => Err(self.failed(command, &ended)),
        }
    }

    /// The text of git, which may be cut.
    pub(super) fn text(
        &self,
        command: &mut Command,
        most: usize,
    ) -> Result<ChildOutcome, ToolCallError> {
        let ended = self.run(command, most)?;
        match ended.is_cut || ended.status.success() {
            true => Ok(ended),
            false => Err(self.failed(command, &ended)),
        }
    }

    /// The one line that git says.
    pub(super) fn line(&self, command: &mut Command) -> Result<String, ToolCallError> {
        let said = self.say(command)?;
        Ok(String::from_utf8_lossy(&said).trim_end().to_owned())
    }

    /// The reason for which a command failed.
    pub(super) fn failed(&self, command: &Command, ended: &ChildOutcome) -> ToolCallError {
        let said = String::from_utf8_lossy(&ended.err);
        let status = ended
            .status
            .code()
            .map_or_else(|| "a signal".to_owned(), |code| format!("status {code}"));
        let said = said.trim();
        let is_cut = ended.err.len() >= MAX_ERR;
        let mut hidden = said.to_owned();
        if let Some(Credential { secret, pair }) = &self.repository.credential {
            for word in [pair, secret] {
                hidden = without(&hidden, word, is_cut);
            }
        }
        let message = format!(
            "{} ended with {status}: {}",
            told(command),
            brief(&hidden, 512)
        );
        match reason(said) {
            Reason::Busy => ToolCallError::transient("GIT_BUSY", message),
            Reason::Denied => ToolCallError::permanent("GIT_DENIED", message),
            Reason::Unreachable => ToolCallError::transient("GIT_UNREACHABLE", message),
            Reason::Other => ToolCallError::permanent("GIT_FAILED", message),
        }
    }

    /// True if our configuration may stand for the repository's. Theirs is read as a file of words,
    /// without what it includes.
    fn look_at_format(&self, config: &Path) -> Result<(), ToolCallError> {
        let mut command = self.git(["config", "--no-includes", "--null", "--file"]);
        command.arg(config).args(["--get-regexp", "^extensions\\."]);
        let ended = self.run(&mut command, MAX_OUT)?;
        let said = String::from_utf8_lossy(&ended.out).to_ascii_lowercase();
        let mut extensions = said.split('\0').filter(|line| !line.is_empty());
        // git's own worktrees may have it, and sha1 is what is meant without.
        let known = |line: &&str| {
            line.starts_with("extensions.worktreeconfig\n")
                || *line == "extensions.objectformat\nsha1"
        };
        match (ended.status.code(), extensions.find(|line| !known(line))) {
            (Some(0 | 1), None) => Ok(()),
            (Some(0 | 1), Some(odd)) => {
                let why = format!(
                    "the repository has an extension that is not known here: {}",
                    brief(&odd.replace('\n', "="), 80)
                );
                Err(refused(why))
            }
            _ => Err(self.failed(&command, &ended)),
        }
    }
}

/// A refusal for the present state.
pub(super) fn refused(why: impl Into<String>) -> ToolCallError {
    ToolCallError::permanent("GIT_REFUSED", why)
}

/// There is nothing to work with.
pub(super) fn unconnected(why: &str) -> ToolCallError {
    ToolCallError::permanent(
        "INTEGRATION_UNAVAILABLE",
        format!("{why}; git not connected"),
    )
}

/// A refusal of the system. What it has too few of now it may have in a while, and a program that
/// is being replaced is there soon.
pub(super) fn machine(what: &str, error: &io::Error) -> ToolCallError {
    const PASSING: [Errno; 7] = [
        Errno::EAGAIN,
        Errno::ENOMEM,
        Errno::EMFILE,
        Errno::ENFILE,
        Errno::ENOSPC,
        Errno::EDQUOT,
        Errno::ETXTBSY,
    ];
    let errno = error.raw_os_error().map(Errno::from_raw);
    ToolCallError {
        transient: errno.is_some_and(|errno| PASSING.contains(&errno)),
        ..unconnected(&format!("{what}: {error}"))
    }
}

/// True if there is a directory, and no link to one.
pub(super) fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|facts| facts.is_dir())
}

fn make_own(repository: &Repository, theirs: &Path, reference: &str) -> io::Result<TempDir> {
    let own = tempfile::Builder::new()
        .prefix("colibri-git-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .tempdir()?;
    let at = own.path();
    fs::write(at.join("HEAD"), format!("ref: {reference}\n"))?;
    let mut config = CONFIG.to_owned();
    if let Some(directory) = repository.origin.as_ref().and_then(RemoteUrl::directory) {
        // It is another's, and named by the operator.
        config += &format!("[safe]\n\tdirectory = \"{}\"\n", directory.display());
    }
    fs::write(at.join("config"), config)?;
    for name in ["objects", "refs", "packed-refs", "shallow"] {
        symlink(theirs.join(name), at.join(name))?;
    }
    Ok(own)
}

/// A file with these contents that a child reads from its start.
pub(super) fn input(path: &Path, contents: &[u8]) -> io::Result<File> {
    fs::write(path, contents)?;
    File::open(path)
}

/// The name of a command in a message: `git fetch`.
fn told(command: &Command) -> String {
    let arguments = command.get_args().filter_map(OsStr::to_str);
    let name = arguments
        .into_iter()
        .find(|argument| !argument.starts_with('-'));
    format!("git {}", name.unwrap_or_default())
}

/// A text without a secret, nor the beginning of one that was cut at its end.
fn without(text: &str, secret: &str, is_cut: bool) -> String {
    let text = text.replace(secret, "[secret]");
    let begun = secret.char_indices().rev().map(|(end, _)| &secret[..end]);
    let rest = begun.filter(|begun| is_cut && !begun.is_empty());
    match rest.into_iter().find_map(|begun| text.strip_suffix(begun)) {
        Some(before) => format!("{before}[secret]"),
        None => text,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Reason {
    Busy,
    Denied,
    Unreachable,
    Other,
}

/// The meaning of git(1)'s text, in the words of its source and of curl's. What the other side says
/// stands on lines of its own, which begin with `remote:`.
fn reason(said: &str) -> Reason {
    const BUSY: [&str; 4] = [
        ".lock': File exists",
        "but expected",
        "incorrect old value provided",
        "reference already exists",
    ];
    const DENIED: [&str; 5] = [
        "Authentication failed",
        "could not read Username",
        "could not read Password",
        "returned error: 401",
        "returned error: 403",
    ];
    const UNREACHABLE: [&str; 5] = [
        "unable to access '",
        "the remote end hung up",
        "early EOF",
        "RPC failed",
        "expected flush after",
    ];
    let ours = || said.lines().filter(|line| !line.starts_with("remote:"));
    let has = |words: &[&str]| ours().any(|line| words.iter().any(|word| line.contains(word)));
    // 404 is a decision too: forges answer so for what one may not see.
    let is_gone = has(&[
        "returned error: 404",
        "not found",
        "server certificate verification failed",
    ]);
    match () {
        () if has(&DENIED) => Reason::Denied,
        () if has(&BUSY) => Reason::Busy,
        () if has(&UNREACHABLE) && !is_gone => Reason::Unreachable,
        () => Reason::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_says_has_a_class() {
        for (said, meant) in [
            (
                "fatal: Authentication failed for 'https://h/p/'",
                Reason::Denied,
            ),
            (
                "fatal: could not read Username for 'https://h': terminal prompts disabled",
                Reason::Denied,
            ),
            (
                "fatal: unable to access 'https://h/p/': The requested URL returned error: 403",
                Reason::Denied,
            ),
            (
                "fatal: unable to access 'https://h/p/': The requested URL returned error: 503",
                Reason::Unreachable,
            ),
            (
                "fatal: unable to access 'https://h/p/': Could not resolve host: h",
                Reason::Unreachable,
            ),
            (
                "fatal: unable to access 'https://h/p/': The requested URL returned error: 404",
                Reason::Other,
            ),
            ("fatal: repository 'https://h/p/' not found", Reason::Other),
            (
                "error: RPC failed; curl 18 transfer closed\nfatal: early EOF",
                Reason::Unreachable,
            ),
            (
                "fatal: Unable to create '/r/.git/shallow.lock': File exists.",
                Reason::Busy,
            ),
            (
                "fatal: update_ref failed for ref 'refs/heads/feature/x': cannot lock ref 'refs/heads/feature/x': Unable to \
                 create '/r/.git/refs/heads/feature/x.lock': File exists.",
                Reason::Busy,
            ),
            (
                "fatal: cannot lock ref 'refs/heads/feature/x': is at 0123 but expected 4567",
                Reason::Busy,
            ),
            (
                "error: cannot lock ref 'refs/remotes/origin/a/b': 'refs/remotes/origin/a' exists; cannot create \
                 'refs/remotes/origin/a/b'",
                Reason::Other,
            ),
            (
                "fatal: cannot lock ref 'refs/heads/feature/x': Unable to create '/r/.git/refs/heads/feature/x.lock': \
                 Permission denied",
                Reason::Other,
            ),
            ("fatal: not a tree object", Reason::Other),
            // The other side has no say in it.
            (
                "remote: Authentication failed\nfatal: early EOF",
                Reason::Unreachable,
            ),
            (
                "remote: x.lock': File exists\nfatal: bad pack",
                Reason::Other,
            ),
        ] {
            assert_eq!(reason(said), meant, "{said}");
        }
    }
}

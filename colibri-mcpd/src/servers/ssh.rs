//! Servers of other hosts: whose key is shown, and what to do when ssh(1) fails.

use anyhow::bail;
use nix::unistd::{Uid, User};

use colibri_confine::ServerExit;
use colibri_protocol::{Code, Failure};
use colibri_registry::{SshTarget, is_user_name};

/// Exit statuses: of ssh(1) itself, of a shell without the program, and of `colibri-mcp` for what
/// it refuses and for a daemon that does not listen (sysexits(3)).
const SSH_FAILED: u8 = 255;
const NO_PROGRAM: u8 = 127;
const REFUSED: u8 = 77;
const NO_DAEMON: u8 = 69;

/// The remedy for a connection that failed.
pub(super) struct SshAdvice {
    /// A sentence that says what to do.
    pub text: String,
    /// True if another try would fail as well.
    pub lasts: bool,
}

/// The name of the user whose key is shown, where the entry has a key for each.
///
/// # Errors
/// There is none for this user; the sentence says what to do.
pub(super) fn key_owner(target: &SshTarget, uid: Option<u32>) -> anyhow::Result<Option<String>> {
    let Some(keys) = &target.keys else {
        return Ok(None);
    };
    let shown = keys.display();
    let Some(uid) = uid else {
        bail!("the keys in {shown} are each one user's, and this process would be everybody's");
    };
    let name = User::from_uid(Uid::from_raw(uid))
        .ok()
        .flatten()
        .map(|user| user.name);
    let Some(name) = name.filter(|name| is_user_name(name)) else {
        bail!("the keys in {shown} go by user names, and uid {uid} has none that could be a file");
    };
    match keys.join(&name).metadata() {
        Ok(file) if file.is_file() => Ok(Some(name)),
        _ => bail!(
            "{name} has no key for {}: have the operator put a private key of {name}'s into {shown}/{name}, mode 0600, \
             owned by this daemon's user",
            target.host
        ),
    }
}

/// What to do about the end of ssh(1). Its words, and those of the other host, are in `wrote`: a
/// host that lies there gets a wrong remedy shown for itself, and nothing else.
pub(super) fn advice(
    target: &SshTarget,
    exit: Option<ServerExit>,
    wrote: &str,
) -> Option<SshAdvice> {
    let SshTarget { host, server, .. } = target;
    let has = |words: &str| wrote.contains(words);
    let lasting = |text: String| Some(SshAdvice { text, lasts: true });
    let passing = |text: String| Some(SshAdvice { text, lasts: false });
    match exit? {
        ServerExit::Status(NO_PROGRAM) => lasting(format!(
            "{host} has no colibri-mcp where its key's command looks for it: install it there, or name its path in \
             authorized_keys"
        )),
        ServerExit::Status(REFUSED) => lasting(format!(
            "{host} does not let this key reach the server {server}: its authorized_keys names another one, its policy \
             shuts this account out, or its colibri-mcp is older than `ssh-gate SERVER` and has to be upgraded"
        )),
        ServerExit::Status(NO_DAEMON) => passing(format!("start colibri-mcpd on {host}")),
        ServerExit::Status(SSH_FAILED) if has("IDENTIFICATION HAS CHANGED") => lasting(format!(
            "the key of {host} is not the one that is known: it was installed anew, or somebody is in between. Ask its \
             operator for the fingerprint, and only then replace its line in known_hosts (ssh-keygen -R {host})"
        )),
        ServerExit::Status(SSH_FAILED)
            if has("Host key verification failed") || has("host key is known") =>
        {
            lasting(format!(
                "the key of {host} is not known here, and nobody is asked: compare its fingerprint, then add it to \
                 known_hosts of this daemon's user (ssh-keyscan {host})"
            ))
        }
        ServerExit::Status(SSH_FAILED) if has("Permission denied") => lasting(format!(
            "{host} takes none of the keys shown (passwords are never asked for): add the public key to authorized_keys \
             there, with command=\"colibri-mcp ssh-gate {server}\",restrict before it"
        )),
        ServerExit::Status(SSH_FAILED)
            if has("Bad owner or permissions") || has("Bad configuration") =>
        {
            lasting("put right the file of ssh_config(5) that is named".to_owned())
        }
        ServerExit::Status(SSH_FAILED) => passing(format!(
            "{host} was not reached, or the connection broke: see that it is up, and try `ssh {host}` as this daemon's \
             user"
        )),
        _ => None,
    }
}

/// The failure of a host that does not answer the first question.
pub(super) fn unanswered(target: &SshTarget, failure: Failure) -> Failure {
    if failure.code != Code::TimeoutStart {
        return failure;
    }
    let message = format!(
        "{}: {} was connected to, or is being connected to, and said nothing of MCP: see what its key's command in \
         authorized_keys starts, or raise start_timeout_ms",
        failure.message, target.host
    );
    Failure { message, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(keys: Option<&str>) -> SshTarget {
        SshTarget {
            keys: keys.map(Into::into),
            ..SshTarget::from_url("ssh://build1/git").unwrap()
        }
    }

    #[test]
    fn each_failure_has_its_remedy() {
        for (status, wrote, remedy, lasts) in [
            (
                255,
                "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\\nHost key verification failed.",
                "fingerprint",
                true,
            ),
            (
                255,
                "No ED25519 host key is known for build1\\nHost key verification failed.",
                "ssh-keyscan build1",
                true,
            ),
            (
                255,
                "a@build1: Permission denied (publickey,password).",
                "authorized_keys",
                true,
            ),
            (
                255,
                "ssh: connect to host build1 port 22: Connection refused",
                "is up",
                false,
            ),
            (255, "", "ssh build1", false),
            (
                127,
                "sh: 1: colibri-mcp: not found",
                "install it there",
                true,
            ),
            (77, "this SSH key may only", "server git", true),
            (
                69,
                "colibri-mcpd is not running",
                "start colibri-mcpd on build1",
                false,
            ),
        ] {
            let advice = advice(&target(None), Some(ServerExit::Status(status)), wrote).unwrap();
            assert!(
                advice.text.contains(remedy),
                "{status} {wrote}: {}",
                advice.text
            );
            assert_eq!(advice.lasts, lasts, "{wrote}");
        }
        assert!(advice(&target(None), Some(ServerExit::Status(0)), "").is_none());
        assert!(advice(&target(None), None, "").is_none());
    }

    #[test]
    fn each_user_shows_a_key_of_their_own_or_none_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let target = target(directory.path().to_str());
        let user = User::from_uid(nix::unistd::geteuid()).unwrap().unwrap();
        let own = || key_owner(&target, Some(user.uid.as_raw()));
        assert!(own().unwrap_err().to_string().contains("mode 0600"));
        std::fs::write(directory.path().join(&user.name), "").unwrap();
        assert_eq!(own().unwrap(), Some(user.name.clone()));
        assert!(
            key_owner(&target, None)
                .unwrap_err()
                .to_string()
                .contains("everybody's")
        );
        assert!(key_owner(&target, Some(3_999_999_999)).is_err());
        assert_eq!(key_owner(&self::target(None), None).unwrap(), None);
    }
}

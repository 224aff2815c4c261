//! A server of another host's daemon, reached through that host's sshd(8).

use std::path::{Path, PathBuf};

use colibri_json::{DocumentError, ValueCursor};

use crate::value::{is_server_id, path};

/// OpenSSH's client, as FreeBSD's base system and Debian have it.
pub(crate) const SSH: &str = "/usr/bin/ssh";

/// The most characters of a host's name (RFC 1035, section 2.3.4).
const MAX_HOST: usize = 253;

/// The options of every connection, which win over each file of ssh_config(5): nothing is asked of
/// a person, only a host whose key is known is talked to, and neither host nor file opens a way
/// back here or keeps a call waiting.
const OPTIONS: &[&str] = &[
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "NoHostAuthenticationForLocalhost=no",
    "VerifyHostKeyDNS=no",
    "UpdateHostKeys=no",
    "KnownHostsCommand=none",
    "PreferredAuthentications=publickey",
    "IdentityAgent=none",
    "AddKeysToAgent=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "Tunnel=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "EscapeChar=none",
    "ForkAfterAuthentication=no",
    "StdinNull=no",
    "SessionType=default",
    "SendEnv=-*",
    "ControlMaster=no",
    "ControlPath=none",
    "ConnectionAttempts=1",
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "LogLevel=ERROR",
];

/// The `ssh` of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    /// The host, as ssh_config(5) or the resolver knows it.
    pub host: String,
    /// The id of the server there.
    pub server: String,
    /// The file of ssh_config(5) that is read in place of the usual ones.
    pub config: Option<PathBuf>,
    /// The directory with a private key for each user, by the user's name. `None`: all users come
    /// with the daemon's.
    pub keys: Option<PathBuf>,
}

/// The keys of `ssh`.
const SSH_KEYS: &[&str] = &["host", "server", "config", "keys"];

/// True if ssh(1) can take this for nothing but a host: `[A-Za-z0-9][A-Za-z0-9._-]*`.
#[must_use]
fn is_ssh_host(host: &str) -> bool {
    host.len() <= MAX_HOST
        && host.starts_with(|first: char| first.is_ascii_alphanumeric())
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

impl SshTarget {
    /// The target of `ssh://HOST/SERVER`; `None`: the text is no such address.
    #[must_use]
    pub fn from_url(url: &str) -> Option<SshTarget> {
        let (host, server) = url.strip_prefix("ssh://")?.split_once('/')?;
        (is_ssh_host(host) && is_server_id(server)).then(|| SshTarget {
            host: host.to_owned(),
            server: server.to_owned(),
            config: None,
            keys: None,
        })
    }

    /// The arguments of ssh(1). `user` is the name of the user whose key is shown, where each has
    /// one.
    #[must_use]
    pub fn arguments(&self, user: Option<&str>) -> Vec<String> {
        let mut words = vec!["-T".to_owned()];
        let text = |path: &Path| path.to_string_lossy().into_owned();
        if let Some(config) = &self.config {
            words.extend(["-F".to_owned(), text(config)]);
        }
        if let Some(key) = self
            .keys
            .as_deref()
            .zip(user)
            .map(|(keys, user)| keys.join(user))
        {
            words.extend(["-i".to_owned(), text(&key)]);
            words.extend(["-o".to_owned(), "IdentitiesOnly=yes".to_owned()]);
        }
        words.extend(
            OPTIONS
                .iter()
                .flat_map(|option| ["-o".to_owned(), (*option).to_owned()]),
        );
        words.extend(["--".to_owned(), self.host.clone()]);
        words.extend([
            "colibri-mcp".to_owned(),
            "--only".to_owned(),
            self.server.clone(),
        ]);
        words
    }
}

/// Reads the `ssh` of an entry.
///
/// # Errors
/// A key that is not known, or a value that no host, server or path has.
pub(crate) fn ssh(cursor: &ValueCursor<'_>) -> Result<SshTarget, DocumentError> {
    let keys = cursor.object(SSH_KEYS)?;
    let (host, server) = (keys.need("host")?, keys.need("server")?);
    if !is_ssh_host(host.text()?) {
        return Err(host.error(
            "must be a host's name of letters, digits, . _ and -, a letter or digit first; user, port and key go into \
             ssh_config(5)",
        ));
    }
    if !is_server_id(server.text()?) {
        return Err(
            server.error("must be the id of a server there: 1 to 32 characters of a-z, 0-9 and -, a letter first")
        );
    }
    Ok(SshTarget {
        host: host.text()?.to_owned(),
        server: server.text()?.to_owned(),
        config: keys.read("config", path)?,
        keys: keys.read("keys", path)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    fn read(ssh: &str) -> Result<SshTarget, String> {
        let text = format!("{{\"servers\":{{\"s\":{{\"ssh\":{ssh}}}}}}}");
        let mut registry: Registry =
            Registry::parse(text.as_bytes(), "f").map_err(|error| error.to_string())?;
        match registry.refused.remove("s") {
            Some(error) => Err(error.to_string()),
            None => Ok(registry.servers["s"].command.clone().unwrap().ssh.unwrap()),
        }
    }

    #[test]
    fn an_entry_names_host_and_server() {
        let target = read(r#"{"host":"build1.example.org","server":"git"}"#).unwrap();
        let words = target.arguments(Some("anna"));
        assert_eq!(
            words[words.len() - 5..],
            ["--", "build1.example.org", "colibri-mcp", "--only", "git"]
        );
        assert!(!words.contains(&"-i".to_owned()), "{words:?}");
        assert_eq!(
            SshTarget::from_url("ssh://build1.example.org/git"),
            Some(target)
        );
        let target =
            read(r#"{"host":"b","server":"git","config":"/c/ssh_config","keys":"/k"}"#).unwrap();
        let words = target.arguments(Some("anna"));
        assert_eq!(words[..5], ["-T", "-F", "/c/ssh_config", "-i", "/k/anna"]);
    }

    #[test]
    fn what_ssh_could_take_for_something_else_is_refused_alone() {
        for host in [
            "",
            "-oProxyCommand=sh",
            "a b",
            "a@b",
            "a:22",
            "[::1]",
            "a%h",
            "$(sh)",
            "a/b",
            ".a",
            "_a",
            "ä",
            "a\\n",
        ] {
            let refused = read(&format!(r#"{{"host":"{host}","server":"git"}}"#)).unwrap_err();
            assert!(
                refused.contains("f:1:") && refused.contains("ssh.host"),
                "{host}: {refused}"
            );
            assert_eq!(
                SshTarget::from_url(&format!("ssh://{host}/git")),
                None,
                "{host}"
            );
        }
        for wrong in [
            r#"{"host":"a"}"#,
            r#"{"server":"a"}"#,
            r#"{"host":"a","server":"Git"}"#,
            r#"{"host":"a","server":"--x"}"#,
            r#"{"host":"a","server":"x;sh"}"#,
            r#"{"host":"a","server":"x","user":"b"}"#,
            r#"{"host":"a","server":"x","config":"none"}"#,
            r#"{"host":"a","server":"x","keys":"../k"}"#,
            r#""a/x""#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        for beside in [
            r#""command":"/bin/x""#,
            r#""url":"http://h""#,
            r#""args":["x"]"#,
            r#""env":{}"#,
            r#""jail":{}"#,
        ] {
            let text =
                format!(r#"{{"servers":{{"s":{{"ssh":{{"host":"a","server":"x"}},{beside}}}}}}}"#);
            let read: Result<Registry, _> = Registry::parse(text.as_bytes(), "f");
            assert!(
                read.map_or(true, |read| read.refused.contains_key("s")),
                "{beside}"
            );
        }
    }
}

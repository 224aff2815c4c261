//! An sshd(8) of a test's own: an ordinary process on loopback, with its own configuration, keys
//! and port in a directory.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::unistd::{User, geteuid};

use crate::wait_for;

/// Debian's, of the package openssh-server. FreeBSD's base system has it at the same place.
const SSHD: &str = "/usr/sbin/sshd";
/// The directory that an sshd of root's wants to be there.
const EMPTY: &str = "/run/sshd";

/// The server, and what its clients need.
pub struct Sshd {
    directory: tempfile::TempDir,
    child: Child,
    port: u16,
}

impl Sshd {
    /// Starts one in a directory of its own, with these keys: a name and its forced command, none
    /// for a key that is not taken.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start(keys: &[(&str, &str)]) -> Sshd {
        let directory = tempfile::tempdir().expect("a directory for sshd");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).expect("its mode");
        let at = |name: &str| directory.path().join(name).display().to_string();
        for name in ["host", "other"]
            .into_iter()
            .chain(keys.iter().map(|(name, _)| *name))
        {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", &at(name)])
                .status();
            assert!(made.expect("ssh-keygen can be started").success());
        }
        let public =
            |name: &str| fs::read_to_string(at(&format!("{name}.pub"))).expect("a public key");
        let lines = keys.iter().map(|(name, command)| match *command {
            "" => String::new(),
            command => format!("command=\"{command}\",restrict {}", public(name)),
        });
        fs::write(at("authorized_keys"), lines.collect::<String>()).expect("authorized_keys");
        fs::write(at("known_hosts"), format!("build1 {}", public("host"))).expect("known_hosts");
        fs::write(at("changed_hosts"), format!("build1 {}", public("other"))).expect("known_hosts");
        fs::write(at("no_hosts"), "").expect("known_hosts");
        fs::write(at("banner"), "{\"jsonrpc\":\"2.0\"} Authorized use only\n").expect("the banner");
        if geteuid().is_root() {
            // It stays, since sshds of other tests use it at the same time; Debian's own unit makes
            // it too.
            let _ = fs::create_dir(EMPTY);
        }
        // Whoever takes the port in between: the next one is tried.
        let (child, port) = wait_for("sshd", || {
            let free = TcpListener::bind("127.0.0.1:0")
                .ok()?
                .local_addr()
                .ok()?
                .port();
            let config = format!(
                "ListenAddress 127.0.0.1\nPort {free}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
                 PasswordAuthentication yes\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nPidFile none\n\
                 Banner {}\nAcceptEnv *\nLogLevel VERBOSE\n",
                at("host"),
                at("authorized_keys"),
                at("banner")
            );
            fs::write(at("sshd_config"), config).expect("sshd_config");
            let log = fs::File::create(at("log")).expect("a log");
            let mut child = Command::new(SSHD)
                .args(["-D", "-e", "-f", &at("sshd_config")])
                .stdin(Stdio::null())
                .stderr(log)
                .spawn()
                .expect("sshd can be started");
            wait_for("sshd to listen, or to end", || match child.try_wait() {
                Ok(Some(_)) => Some(None),
                _ => TcpStream::connect(("127.0.0.1", free))
                    .ok()
                    .map(|_| Some(())),
            })
            .map(|()| (child, free))
        });
        Sshd {
            directory,
            child,
            port,
        }
    }

    /// The path of a client's file of ssh_config(5), which shows this key and holds `known` for the
    /// known hosts. `more` are further lines.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn config(&self, key: &str, known: &str, more: &str) -> PathBuf {
        let user = User::from_uid(geteuid())
            .ok()
            .flatten()
            .expect("a user with a name");
        let at = |name: &str| self.directory.path().join(name);
        let text = format!(
            "Host *\n{more}Host build1\nHostName 127.0.0.1\nPort {}\nHostKeyAlias build1\nUser {}\nIdentityFile {}\n\
             IdentitiesOnly yes\nUserKnownHostsFile {}\nGlobalKnownHostsFile /dev/null\n",
            self.port,
            user.name,
            at(key).display(),
            at(known).display()
        );
        let path = at(&format!("config-{key}-{known}-{}", more.len()));
        fs::write(&path, text).expect("ssh_config");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("its mode");
        path
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The directory of its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // It is this test's, and may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! The socket: made safely, guarded against a second daemon, and removed at the end.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use colibri_files::{FileLock, LockWait};
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use super::connection::InboundConnection;
use super::http::Front;
use super::{http, lines};
use crate::daemon::Daemon;
use colibri_peer::{Frame, FrameReader, Outbox};
use colibri_policy::Caller;
use colibri_policy::quota::{ConnectionPermit, Full, TurnedAway};
use colibri_protocol::{Code, Failure, Version};
use colibri_wire::salvage::Salvage;

/// The mode of the socket: owner and group may open it.
const MODE: u32 = 0o660;
/// The time in which a refused client must send its request and read the refusal.
const TOLD: Duration = Duration::from_secs(2);

/// The reason for which there is no socket to listen on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The directory is not there, or not ours to write in.
    #[error("cannot use the directory {path} for the socket: {error}; create it, owned by the daemon's user", path = .path.display())]
    Directory {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Something else has that name.
    #[error("{path} exists and is no socket; it is not removed: choose another --socket or move it away", path = .path.display())]
    NoSocket {
        /// The socket's path.
        path: PathBuf,
    },
    /// Another daemon answers.
    #[error("a daemon already listens on {path}: stop it first, or choose another --socket", path = .path.display())]
    Alive {
        /// The socket's path.
        path: PathBuf,
    },
    /// A stale socket of somebody else's.
    #[error("{path} is a socket of uid {owner}, not of this daemon; it is not removed", path = .path.display())]
    Foreign {
        /// The socket's path.
        path: PathBuf,
        /// The server that has it.
        owner: u32,
    },
    /// The system refuses.
    #[error("cannot listen on {path}: {error}", path = .path.display())]
    Bind {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// A socket that is listened on; it is removed when this is dropped.
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of our socket: another's in its place is not ours to remove.
    identity: (u64, u64),
}

impl Listener {
    /// Makes the socket. A stale one of our own is replaced, a live daemon is never displaced, and
    /// what is no socket is never removed.
    ///
    /// # Errors
    /// What stands in its place, or what the system says.
    pub fn bind(path: &Path) -> Result<Listener, ListenError> {
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let directory_error = |error| ListenError::Directory {
            path: directory.to_owned(),
            error,
        };
        if !cfg!(target_os = "freebsd") {
            std::fs::create_dir_all(directory).map_err(directory_error)?;
        }
        // One daemon at a time looks and binds. The lock goes with the descriptor; no lock file is
        // left.
        let handle = File::options()
            .read(true)
            .custom_flags(nix::libc::O_DIRECTORY | nix::libc::O_CLOEXEC)
            .open(directory)
            .map_err(directory_error)?;
        let _lock = FileLock::of(handle, LockWait::Forever).map_err(directory_error)?;
        let bind_error = |error| ListenError::Bind {
            path: path.to_owned(),
            error,
        };
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(bind_error(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(ListenError::NoSocket {
                    path: path.to_owned(),
                });
            }
            Ok(found) => {
                if std::os::unix::net::UnixStream::connect(path).is_ok() {
                    return Err(ListenError::Alive {
                        path: path.to_owned(),
                    });
                }
                if found.uid() != nix::unistd::geteuid().as_raw() {
                    return Err(ListenError::Foreign {
                        path: path.to_owned(),
                        owner: found.uid(),
                    });
                }
                info!(path = %path.display(), "replacing a stale socket");
                std::fs::remove_file(path).map_err(bind_error)?;
            }
        }
        // Nobody else may connect between bind(2) and chmod(2): that takes the right to write,
        // which the umask of the daemon leaves to nobody else (`harden`). It is not changed here:
        // other threads make files meanwhile.
        let socket = UnixListener::bind(path).map_err(bind_error)?;
        let group = std::fs::metadata(directory).map_err(bind_error)?.gid();
        let made = std::fs::symlink_metadata(path).map_err(bind_error)?;
        if made.gid() != group
            && let Err(error) = std::os::unix::fs::lchown(path, None, Some(group))
        {
            warn!(
                path = %path.display(),
                group,
                "the socket does not get its directory's group, whose members therefore cannot open it: {error}; \
                 on Linux, chmod g+s the directory"
            );
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))
            .map_err(bind_error)?;
        Ok(Listener {
            socket,
            path: path.to_owned(),
            identity: (made.dev(), made.ino()),
        })
    }

    /// Waits for the next one who connects.
    pub async fn next(&self) -> UnixStream {
        next(&self.socket).await
    }

    /// Accepts clients for as long as this is polled.
    pub async fn accept(&self, daemon: &Arc<Daemon>) {
        let front = Front::new(daemon.clone());
        loop {
            let stream = self.next().await;
            let caller = match caller(&stream) {
                Ok(caller) => caller,
                Err(error) => {
                    warn!("a client without credentials is not served: {error}");
                    continue;
                }
            };
            let newcomer = Newcomer {
                daemon: daemon.clone(),
                front: front.clone(),
                caller,
                stream,
            };
            let is_operator = daemon.chain.rules.clients.load().operates_anyway(&caller);
            match daemon.host.shares().admit(caller.uid, is_operator) {
                Ok(place) => drop(tokio::spawn(newcomer.serve(place))),
                Err(full) => {
                    if let Some(turned_away) = daemon.host.shares().of(caller.uid).turn_away() {
                        tokio::spawn(newcomer.admit_operator(full, turned_away));
                    }
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|found| {
            found.file_type().is_socket() && (found.dev(), found.ino()) == self.identity
        });
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            warn!(path = %self.path.display(), "the socket could not be removed: {error}");
        }
    }
}

/// Waits for the next one who connects to a socket.
pub(super) async fn next(socket: &UnixListener) -> UnixStream {
    loop {
        match socket.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                // Out of descriptors, most likely: it goes by when a client leaves.
                error!("accepting a client failed: {error}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The peer's credentials, from the kernel (SO_PEERCRED, LOCAL_PEERCRED).
pub(super) fn caller(stream: &UnixStream) -> io::Result<Caller> {
    let credentials = stream.peer_cred()?;
    Ok(Caller {
        uid: credentials.uid(),
        gid: credentials.gid(),
        pid: credentials.pid(),
    })
}

/// True if a connection speaks HTTP: its first byte is a letter, as no message begins. Waits for
/// that byte.
pub(super) async fn speaks_http(stream: &UnixStream) -> bool {
    let mut first = [0];
    loop {
        let look = || Ok(recv(stream.as_raw_fd(), &mut first, MsgFlags::MSG_PEEK)?);
        if stream.readable().await.is_err() {
            return false;
        }
        match stream.try_io(Interest::READABLE, look) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            looked => {
                return looked.is_ok_and(|length| length == 1) && first[0].is_ascii_alphabetic();
            }
        }
    }
}

/// A client that has connected and is not served yet.
struct Newcomer {
    daemon: Arc<Daemon>,
    front: Arc<Front>,
    caller: Caller,
    stream: UnixStream,
}

impl Newcomer {
    /// Serves it in its place.
    async fn serve(self, place: ConnectionPermit) {
        let visitor = InboundConnection::enter(self.daemon, self.caller);
        let is_http = tokio::select! {
            biased;
            _ = visitor.connection.told_to_go() => false,
            is_http = speaks_http(&self.stream) => is_http,
        };
        if is_http {
            http::serve(self.front, visitor, self.stream).await;
        } else {
            let (reader, writer) = self.stream.into_split();
            lines::serve(visitor, reader, writer).await;
        }
        drop(place);
    }

    /// Serves it although there is no place for it, if it is an operator's and there is one that is
    /// kept for them.
    async fn admit_operator(self, full: Full, turned_away: TurnedAway) {
        let (caller, clients) = (self.caller, self.daemon.chain.rules.clients.load_full());
        // The user database may be elsewhere: not on a thread that serves clients.
        let turn = self.daemon.tools.of(caller.uid, None).await;
        let rights = spawn_blocking(move || clients.rights(&caller)).await;
        drop(turn);
        let full = match rights {
            Ok(rights) if rights.operator => {
                match self.daemon.host.shares().admit(caller.uid, true) {
                    Ok(place) => {
                        drop(turned_away);
                        return self.serve(place).await;
                    }
                    Err(full) => full,
                }
            }
            _ => full,
        };
        warn!(uid = caller.uid, "a client is turned away: {full}");
        match timeout(TOLD, speaks_http(&self.stream)).await {
            Ok(true) => http::turn_away(self.stream, full.to_string()).await,
            _ => turn_away(&self.daemon, self.stream, full).await,
        }
        drop(turned_away);
    }
}

/// Answers a client's first request with why it is not served.
pub(super) async fn turn_away(daemon: &Daemon, stream: UnixStream, full: Full) {
    let (reader, writer) = stream.into_split();
    let code = match full {
        Full::All(_) | Full::KeptBack(..) | Full::Doors(_) => Code::DaemonBusy,
        Full::User(_) | Full::Newcomers(..) | Full::Door(_) => Code::LimitUser,
    };
    let mut failure = Failure::new(code, full.to_string());
    if let Some(limit) = full.limit() {
        failure = failure.by_rule(daemon.chain.rules.clients.load().limit_place(limit));
    }
    let answer = failure.answer(None, Version::LATEST_LEGACY);
    // Nothing of its request is kept but the id.
    let mut reader = FrameReader::new(reader, 64 * 1024);
    let asked = async {
        while reader.fill().await.unwrap_or(false) {
            while let Some(frame) = reader.pop() {
                let id = match frame {
                    Frame::Line(line) => Salvage::id_of(&line),
                    Frame::TooLong { id, .. } => id,
                    Frame::Endless { .. } => None,
                };
                if id.is_some() {
                    return id;
                }
            }
        }
        None
    };
    let id = timeout(TOLD, asked).await.ok().flatten();
    let outbox = Outbox::new(usize::MAX, daemon.budget.clone());
    outbox.push(&answer.to_message(id.as_deref()));
    outbox.close();
    let _ = timeout(TOLD, outbox.drive(writer)).await;
}

//! Agent sockets: for each instance of an agent a directory of its own with a socket in it. Which
//! socket a connection came in on says whose it is, which no peer can say otherwise; what it may do
//! there, the relay knows.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use colibri_files::{FileLock, LockWait};
use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use super::connection::InboundConnection;
use super::listener::{caller, next, speaks_http, turn_away};
use super::{http, lines};
use crate::agents::{Doors, ListenGuard};
use crate::daemon::Daemon;
use crate::daemon::connections::Connection;
use crate::relay::AgentSocket;
use colibri_policy::{Caller, UserUsage};

/// The directory of the agents' sockets, beside the daemon's own socket.
const DIRECTORY: &str = "doors";
/// The socket for MCP in an agent socket's directory.
const SOCKET: &str = "colibri.sock";
/// The connections that one agent socket takes at a time.
const MAX_CONNECTIONS: usize = 16;
/// The reason for which connections are closed with their agent socket.
const CLOSED: &str = "its agent's door is closed";

/// Makes agent sockets.
pub struct AgentDoors {
    daemon: Weak<Daemon>,
    directory: PathBuf,
    /// The directory, locked: it is this daemon's for as long as it runs. Made when the first agent
    /// socket is.
    own: Mutex<Option<FileLock>>,
}

impl AgentDoors {
    /// Those of a daemon, beside its socket. What an earlier daemon left there is removed.
    pub fn beside(daemon: Weak<Daemon>, socket: &Path) -> Arc<dyn Doors> {
        let beside = socket.parent().filter(|path| !path.as_os_str().is_empty());
        let doors = AgentDoors {
            daemon,
            directory: beside.unwrap_or(Path::new(".")).join(DIRECTORY),
            own: Mutex::default(),
        };
        if fs::symlink_metadata(&doors.directory).is_ok()
            && let Err(error) = doors.take()
        {
            warn!("agents get no doors: {error}");
        }
        Arc::new(doors)
    }

    /// Makes the directory ours: one of an earlier daemon is emptied, one of another that runs is
    /// left alone.
    fn take(&self) -> io::Result<()> {
        let mut own = self.own.lock();
        if own.is_some() {
            return Ok(());
        }
        let because = |why: &dyn std::fmt::Display| {
            io::Error::other(format!("{}: {why}", self.directory.display()))
        };
        match fs::DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(because(&error));
            }
            _ => {}
        }
        let handle = File::options()
            .read(true)
            .custom_flags(nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC)
            .open(&self.directory)
            .map_err(|error| because(&error))?;
        let owner = handle.metadata()?.uid();
        if owner != nix::unistd::geteuid().as_raw() {
            return Err(because(&format!(
                "it is of uid {owner}, not of this daemon; move it away"
            )));
        }
        handle.set_permissions(Permissions::from_mode(0o700))?;
        let lock = FileLock::of(handle, LockWait::Never).map_err(|_| {
            because(
                &"another daemon has its agents' doors there; give this one a --socket elsewhere",
            )
        })?;
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            info!(path = %path.display(), "removing a door that an earlier daemon left");
            if let Err(error) = remove(&path) {
                warn!(path = %path.display(), "a door that an earlier daemon left stays: {error}");
            }
        }
        *own = Some(lock);
        Ok(())
    }
}

/// Removes an agent socket's directory: sockets, and nothing else that should stand in it.
fn remove(directory: &Path) -> io::Result<()> {
    if fs::symlink_metadata(directory)?.is_dir() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // Of the entry itself: what a link leads to is none of ours.
            if entry.file_type()?.is_socket() {
                fs::remove_file(entry.path())?;
            }
        }
    }
    fs::remove_dir(directory)
}

impl Doors for AgentDoors {
    fn open(
        &self,
        door: Arc<AgentSocket>,
        person: Caller,
    ) -> io::Result<(Box<Path>, Box<dyn ListenGuard>)> {
        let daemon = self.daemon.upgrade();
        let daemon = daemon.ok_or_else(|| io::Error::other("the daemon has ended"))?;
        let session = &*door.session;
        if session.len() != 16
            || !session
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        {
            return Err(io::Error::other(
                "an instance's session is sixteen hexadecimal digits",
            ));
        }
        self.take()?;
        let path = self.directory.join(session);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let made = SocketDirectory {
            identity: identity(&path)?,
            path,
        };
        let socket = made.path.join(SOCKET);
        let listener = UnixListener::bind(&socket).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot listen on {}: {error}", socket.display()),
            )
        })?;
        fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
        fs::set_permissions(&made.path, Permissions::from_mode(0o755))?;
        daemon.board.serve(&door);
        let inside = Arc::new(AgentSocketContext {
            share: daemon.host.shares().of_agent(person.uid),
            daemon,
            door,
            person,
            open: Mutex::new(Some(Vec::new())),
        });
        let accepting = tokio::spawn(inside.clone().accept(listener));
        let path = made.path.clone().into_boxed_path();
        let open = OpenAgentSocket {
            accepting,
            inside,
            _made: made,
        };
        Ok((path, Box::new(open)))
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// A directory that was made; it goes when this is dropped, unless another stands in its place.
struct SocketDirectory {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketDirectory {
    fn drop(&mut self) {
        let ours = identity(&self.path).is_ok_and(|found| found == self.identity);
        if ours && let Err(error) = remove(&self.path) {
            warn!(path = %self.path.display(), "an agent's door could not be removed: {error}");
        }
    }
}

/// A listening agent socket. When it is dropped, it closes: its connections end, and its directory
/// is removed.
struct OpenAgentSocket {
    accepting: JoinHandle<()>,
    inside: Arc<AgentSocketContext>,
    _made: SocketDirectory,
}

impl ListenGuard for OpenAgentSocket {}

impl Drop for OpenAgentSocket {
    fn drop(&mut self) {
        self.accepting.abort();
        let connections = self.inside.open.lock().take().unwrap_or_default();
        for connection in connections.iter().filter_map(Weak::upgrade) {
            connection.tell_to_go(CLOSED);
        }
    }
}

/// The parts that the connections of one agent socket share.
struct AgentSocketContext {
    daemon: Arc<Daemon>,
    door: Arc<AgentSocket>,
    /// For whom the agent runs.
    person: Caller,
    /// The instance's own quota, apart from the person's: an agent must not lock its person out.
    share: Arc<UserUsage>,
    /// Its connections; `None`: it is closed.
    open: Mutex<Option<Vec<Weak<Connection>>>>,
}

impl AgentSocketContext {
    async fn accept(self: Arc<Self>, listener: UnixListener) {
        loop {
            let stream = next(&listener).await;
            let peer = match caller(&stream) {
                Ok(peer) => peer,
                Err(error) => {
                    warn!(
                        session = &*self.door.session,
                        "a connection without credentials is not served: {error}"
                    );
                    continue;
                }
            };
            match self
                .daemon
                .host
                .shares()
                .admit_agent(&self.share, MAX_CONNECTIONS)
            {
                Ok(place) => {
                    let inside = self.clone();
                    tokio::spawn(async move {
                        inside.serve(stream, peer).await;
                        drop(place);
                    });
                }
                Err(full) => {
                    debug!(
                        session = &*self.door.session,
                        "a connection is turned away: {full}"
                    );
                    if let Some(turned_away) = self.share.turn_away() {
                        let inside = self.clone();
                        tokio::spawn(async move {
                            turn_away(&inside.daemon, stream, full).await;
                            drop(turned_away);
                        });
                    }
                }
            }
        }
    }

    /// Serves a connection: lines alone, so that there are fewer ways in.
    async fn serve(&self, stream: UnixStream, peer: Caller) {
        let visitor =
            InboundConnection::through(&self.daemon, &self.door, (self.person, peer), &self.share);
        match &mut *self.open.lock() {
            Some(open) => {
                open.retain(|connection| connection.strong_count() > 0);
                open.push(Arc::downgrade(&visitor.connection));
            }
            None => visitor.connection.tell_to_go(CLOSED),
        }
        let is_http = tokio::select! {
            biased;
            _ = visitor.connection.told_to_go() => false,
            is_http = speaks_http(&stream) => is_http,
        };
        if is_http {
            visitor.leave();
            http::refuse_at_door(stream).await;
        } else {
            let (reader, writer) = stream.into_split();
            lines::serve(visitor, reader, writer).await;
        }
    }
}

//! A cable between a daemon and the database that breaks when it is told to: in the middle of a
//! request or of an answer, behind a COMMIT, for a while in both directions, or for notifications
//! alone.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The name of PostgreSQL's socket in its directory.
const SOCKET: &str = ".s.PGSQL.5432";
/// The type of a notification among the server's messages (PostgreSQL's documentation, "Message
/// Formats").
const NOTIFICATION: u8 = b'A';
/// The most bytes of a message that are believed.
const MAX_MESSAGE: usize = 64 << 20;

/// The place at which a connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CableBreak {
    /// In the middle of the next request: the database never has it whole.
    Request,
    /// In the middle of the next answer.
    Answer,
    /// After the next COMMIT: the database does it, and the daemon does not learn that.
    Commit,
}

struct CableState {
    to: PathBuf,
    next_break: Mutex<Option<CableBreak>>,
    still_until: Mutex<Option<Instant>>,
    drops_notifications: AtomicBool,
    breaks: AtomicU64,
    drops: AtomicU64,
    is_over: AtomicBool,
}

/// A socket in a directory of its own whose connections lead to the database's.
pub struct Cable {
    directory: TempDir,
    state: Arc<CableState>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cable {
    /// A cable to the database whose socket is in this directory.
    ///
    /// # Panics
    /// If its own socket cannot be made.
    pub fn to(database: &Path) -> Cable {
        let directory = tempfile::Builder::new().prefix("colibri-cable-").tempdir();
        let directory = directory.expect("a temporary directory");
        let listener = UnixListener::bind(directory.path().join(SOCKET)).expect("a socket");
        let state = Arc::new(CableState {
            to: database.join(SOCKET),
            next_break: Mutex::default(),
            still_until: Mutex::default(),
            drops_notifications: AtomicBool::new(false),
            breaks: AtomicU64::new(0),
            drops: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let all = state.clone();
        spawn(move || {
            for near in listener.incoming().flatten() {
                if all.is_over.load(Ordering::Relaxed) {
                    return;
                }
                // A database that is not there: the daemon finds its connection closed.
                if let Ok(far) = UnixStream::connect(&all.to) {
                    connect(&all, &near, &far);
                }
            }
        });
        Cable { directory, state }
    }

    /// The address of a database at the other end.
    pub fn url(&self, database: &str) -> String {
        let directory = self
            .directory
            .path()
            .display()
            .to_string()
            .replace('/', "%2F");
        format!("postgres://{directory}/{database}")
    }

    /// Breaks one connection at this place, once it gets there.
    pub fn break_at(&self, place: CableBreak) {
        *lock(&self.state.next_break) = Some(place);
    }

    /// Lets nothing through for so long.
    pub fn hold(&self, time: Duration) {
        *lock(&self.state.still_until) = Some(Instant::now() + time);
    }

    /// From now on the database's notifications are lost, or are not.
    pub fn drop_notifications(&self, lost: bool) {
        self.state
            .drops_notifications
            .store(lost, Ordering::Relaxed);
    }

    /// The number of notifications that were lost.
    pub fn drops(&self) -> u64 {
        self.state.drops.load(Ordering::Relaxed)
    }

    /// The number of connections that were broken.
    pub fn breaks(&self) -> u64 {
        self.state.breaks.load(Ordering::Relaxed)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // The thread that accepts connections looks.
        let _ = UnixStream::connect(self.directory.path().join(SOCKET));
    }
}

impl CableState {
    fn wait(&self) {
        while lock(&self.still_until).is_some_and(|until| Instant::now() < until) {
            sleep(Duration::from_millis(10));
        }
    }

    /// True if a connection is to break here; the next one does not.
    fn breaks_at(&self, place: CableBreak) -> bool {
        let mut next = lock(&self.next_break);
        let is_here = *next == Some(place);
        if is_here {
            *next = None;
        }
        is_here
    }
}

/// Carries one connection's bytes until either end closes it.
fn connect(state: &Arc<CableState>, near: &UnixStream, far: &UnixStream) {
    let loses_answer = Arc::new(AtomicBool::new(false));
    let both = || Some((near.try_clone().ok()?, far.try_clone().ok()?));
    let (Some(requests), Some(answers)) = (both(), both()) else {
        return;
    };
    let (one, two) = (state.clone(), state.clone());
    let loses = loses_answer.clone();
    spawn(move || {
        let _ = carry_requests(&one, &requests.0, &requests.1, &loses);
        close(&requests);
    });
    spawn(move || {
        let _ = carry_answers(&two, &answers.1, &answers.0, &loses_answer);
        close(&answers);
    });
}

fn close((near, far): &(UnixStream, UnixStream)) {
    let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
}

fn carry_requests(
    state: &CableState,
    mut from: &UnixStream,
    mut to: &UnixStream,
    loses: &AtomicBool,
) -> io::Result<()> {
    let mut bytes = [0; 16 << 10];
    loop {
        let length = from.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        state.wait();
        let request = &bytes[..length];
        if state.breaks_at(CableBreak::Request) {
            return broken(state, to, request);
        }
        if request.windows(6).any(|part| part == b"COMMIT") && state.breaks_at(CableBreak::Commit) {
            loses.store(true, Ordering::Relaxed);
        }
        to.write_all(request)?;
    }
}

fn carry_answers(
    state: &CableState,
    mut from: &UnixStream,
    mut to: &UnixStream,
    loses: &AtomicBool,
) -> io::Result<()> {
    loop {
        // A type of one byte, and a length that counts itself.
        let mut message = vec![0; 5];
        from.read_exact(&mut message)?;
        let length = u32::from_be_bytes([message[1], message[2], message[3], message[4]]) as usize;
        if !(4..MAX_MESSAGE).contains(&length) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        message.resize(length + 1, 0);
        from.read_exact(&mut message[5..])?;
        state.wait();
        if loses.load(Ordering::Relaxed) {
            return broken(state, to, &[]);
        }
        if message[0] == NOTIFICATION && state.drops_notifications.load(Ordering::Relaxed) {
            state.drops.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        if state.breaks_at(CableBreak::Answer) {
            return broken(state, to, &message);
        }
        to.write_all(&message)?;
    }
}

/// Sends half of some bytes, after which the connection is closed.
fn broken(state: &CableState, mut to: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    state.breaks.fetch_add(1, Ordering::Relaxed);
    to.write_all(&bytes[..bytes.len() / 2])
}

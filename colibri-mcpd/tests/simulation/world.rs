//! What everybody in a simulated world can see: the clock, the log, the model's books, and what
//! went wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream};
use tokio::sync::watch;
use tokio::time::Instant;

/// The world of one seed.
pub(crate) struct World {
    /// No fault happens in a calm world, so every call must come back with its tool's answer.
    pub calm: bool,
    began: Instant,
    books: Mutex<Books>,
}

/// What is noted.
#[derive(Default)]
pub(crate) struct Books {
    /// Every event, for who has to find out what happened.
    pub log: String,
    /// FNV-1a over the log: two runs of one seed have the same.
    pub hash: u64,
    /// What must not be.
    pub failures: Vec<String>,
    /// Server processes that run.
    pub processes: usize,
    /// The same, of each server.
    pub running: BTreeMap<String, usize>,
    /// When the daemon was told to end.
    pub shutdown: Option<Instant>,
    /// How often what happened, so that one can see that it does.
    pub counts: BTreeMap<&'static str, u64>,
    /// The calls that clients made of servers' tools, by tag.
    pub calls: BTreeMap<String, Made>,
    /// How often each server's tools have changed.
    pub changes: BTreeMap<String, u64>,
    /// The resources that anybody ever wanted to be told of, each with its server.
    pub asked_for: BTreeSet<(String, String)>,
}

/// A call of a server's tool.
pub(crate) struct Made {
    pub uid: u32,
    pub connection: String,
    /// Its connection closed the gate, so no server may see it.
    pub narrow: bool,
    /// How often it was made: a retry that is made twice is two calls to a server that has no
    /// retries.
    pub times: u32,
    /// Processes that it came to.
    pub arrived: u32,
}

impl World {
    pub(crate) fn new(calm: bool) -> Arc<World> {
        Arc::new(World {
            calm,
            began: Instant::now(),
            books: Mutex::new(Books {
                hash: 0xCBF2_9CE4_8422_2325,
                ..Books::default()
            }),
        })
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }

    /// Notes an event.
    pub(crate) fn note(&self, who: &str, what: &str) {
        let at = self.began.elapsed().as_millis();
        let what = without_states(what);
        let mut books = self.books();
        let before = books.log.len();
        writeln!(books.log, "{at:>7} ms  {who}: {what}").unwrap();
        let mut hash = books.hash;
        for byte in &books.log.as_bytes()[before..] {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
        books.hash = hash;
    }

    /// Notes what must not be.
    pub(crate) fn fail(&self, who: &str, what: &str) {
        self.note(who, &format!("VIOLATION: {what}"));
        self.books().failures.push(format!("{who}: {what}"));
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.books().counts.entry(what).or_default() += 1;
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.books().shutdown.is_some()
    }
}

/// The daemon's own states are never the same twice: only that there is one is noted.
fn without_states(text: &str) -> String {
    let mut parts = text.split("\"requestState\":\"");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (state, rest) = part.split_once('"').unwrap_or((part, ""));
        let state = if state.starts_with("state of ") {
            state
        } else {
            "…"
        };
        out.push_str(&format!("\"requestState\":\"{state}\"{rest}"));
    }
    out
}

/// A pipe: what is written to the first comes out of the second. Dropping either end is seen at the
/// other.
pub(crate) fn pipe(capacity: usize) -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(capacity)
}

/// The writing end of a pipe to a process, whose closing is seen even when the process reads no
/// more: the lifeline.
pub(crate) struct Lifeline {
    pub pipe: DuplexStream,
    /// Dropped with it.
    pub _alive: watch::Sender<()>,
}

impl AsyncWrite for Lifeline {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

/// Lines of a reader, split as simply as can be: the simulation must not share the daemon's codec.
pub(crate) struct Lines<R> {
    io: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(io: R) -> Lines<R> {
        Lines {
            io,
            buffer: Vec::new(),
        }
    }

    /// The next line; `None` at the end. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Some(line);
            }
            let mut chunk = [0; 1024];
            match self.io.read(&mut chunk).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

/// How long the model waits for what must come; by its own clock, so it costs nothing.
pub(crate) const FOREVER: Duration = Duration::from_secs(600);

//! Connections: one request, one answer. Whose the other end is, is looked up before a byte is
//! taken and again before anything is done; what is not this user's is closed without a word.

use std::io::{self, BufReader, Read, Write as _};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use colibri_client::lock;
use colibri_client::peer::{self, ConnectionTable, LOOKS, PeerError};
use colibri_files::{LineRead, read_line};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Backlog, listen};

use crate::answers::{AnswerSources, failure};
use crate::claim::BridgeLock;
use crate::say::say;
use crate::strangers::Strangers;

/// The most connections that wait to be looked up.
const MAX_UNKNOWN: usize = 2048;
/// The most connections at once.
const MAX_CONNECTIONS: usize = 256;
/// No request is longer, in bytes.
const MAX_REQUEST: usize = 4 << 20;
/// The longest time for a request to arrive.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// The longest time in which a client must read it.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// The bytes and the time for which a client that goes on sending is read, so that it gets the
/// answer all the same.
const DRAINED: usize = 64 << 20;
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// Between two words about strangers, or about what the system refuses.
const SAID: Duration = Duration::from_secs(60);
/// After an accept(2) that failed, as where there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The bridge, as its connections share it.
#[derive(Debug)]
pub(crate) struct ChibiBridge {
    answers: Arc<AnswerSources>,
    claim: Arc<BridgeLock>,
    strangers: Strangers,
    /// The longest time for an answer.
    limit: Duration,
    began: Instant,
    /// The time at which the last connection came or ended, in milliseconds since the beginning.
    last: AtomicU64,
    open: AtomicUsize,
}

/// A message that is printed at most once a minute, however often others give cause for it, with
/// its last time.
struct Seldom(Option<Instant>);

impl Seldom {
    fn say(&mut self, text: impl FnOnce() -> String) {
        if self.0.is_none_or(|said| said.elapsed() > SAID) {
            self.0 = Some(Instant::now());
            say(&text());
        }
    }
}

/// A connection that is counted.
struct CountedConnection(Arc<ChibiBridge>);

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.touch();
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ChibiBridge {
    /// A bridge that was not asked yet, and answers within `limit`.
    pub(crate) fn new(
        answers: Arc<AnswerSources>,
        claim: Arc<BridgeLock>,
        limit: Duration,
    ) -> Arc<ChibiBridge> {
        Arc::new(ChibiBridge {
            answers,
            claim,
            strangers: Strangers::default(),
            limit,
            began: Instant::now(),
            last: AtomicU64::new(0),
            open: AtomicUsize::new(0),
        })
    }

    fn touch(&self) {
        self.last
            .store(self.began.elapsed().as_millis() as u64, Ordering::SeqCst);
    }

    /// Serves until nobody has connected for `idle`, and ends the process.
    ///
    /// # Errors
    /// No thread can be started, or the listener is none of IPv4.
    pub(crate) fn serve(
        self: Arc<Self>,
        listener: &TcpListener,
        idle: Duration,
    ) -> anyhow::Result<()> {
        use io::ErrorKind::{ConnectionAborted, Interrupted};
        // Without more descriptors fewer connections wait.
        let _ = getrlimit(Resource::RLIMIT_NOFILE)
            .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
        // As many as the system lets wait: a connection beyond that is tried again by its client
        // only after a second.
        let _ = listen(listener, Backlog::MAXALLOWABLE);
        let Ok(SocketAddr::V4(address)) = listener.local_addr() else {
            bail!("the listener has no address of IPv4");
        };
        let watched = self.clone();
        let watch = std::thread::Builder::new().spawn(move || watched.watch(idle));
        watch.context("cannot start a thread")?;
        let (give, unknown) = mpsc::sync_channel(MAX_UNKNOWN);
        let looking = self.clone();
        let looks = std::thread::Builder::new().spawn(move || looking.look_up(&unknown, address));
        looks.context("cannot start a thread")?;
        let mut faults = Seldom(None);
        loop {
            match listener.accept() {
                // Where too many wait the next ones wait with the system, as long as it takes to
                // read its table.
                Ok((stream, from)) => {
                    let is_dropped =
                        self.strangers.is_passed_over(from, Instant::now()) || has_left(&stream);
                    if !is_dropped && give.send(stream).is_err() {
                        bail!("connections are not looked up any more");
                    }
                }
                // Nothing, or a caller that is gone already: FreeBSD says so here.
                Err(error) if matches!(error.kind(), Interrupted | ConnectionAborted) => {}
                Err(error) => {
                    faults.say(|| format!("a connection cannot be accepted: {error}"));
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Serves those connections that are this user's. Others take no place and keep no bridge
    /// awake. One reading of the system's table, which may be long, serves all that wait: nobody is
    /// kept waiting by how many there are.
    fn look_up(self: Arc<Self>, unknown: &Receiver<TcpStream>, listener: SocketAddrV4) {
        let (mut refused, mut faults) = (Seldom(None), Seldom(None));
        let mut waiting: Vec<(TcpStream, usize)> = Vec::new();
        while let Some(first) = match waiting.pop() {
            Some(first) => Some(first),
            None => unknown.recv().ok().map(|stream| (stream, 1)),
        } {
            let room = MAX_UNKNOWN.saturating_sub(waiting.len());
            let more = unknown.try_iter().take(room).map(|stream| (stream, 1));
            let all: Vec<_> = std::mem::take(&mut waiting)
                .into_iter()
                .chain([first])
                .chain(more)
                .collect();
            let table = match ConnectionTable::read() {
                Ok(table) => table,
                Err(why) => {
                    refused.say(|| format!("connections are refused: {why}"));
                    continue;
                }
            };
            for (stream, looks) in all {
                match table.check_caller(&stream) {
                    Ok(()) => self.admit(stream, &mut faults),
                    Err(PeerError::Unseen) if looks < LOOKS && !has_left(&stream) => {
                        waiting.push((stream, looks + 1))
                    }
                    // Whoever it was is gone.
                    Err(PeerError::Closed) => {}
                    Err(why) => {
                        if let PeerError::Stranger(uid) = why {
                            self.strangers.count_refusal(uid, Instant::now());
                        }
                        refused.say(|| match stream.peer_addr() {
                            Ok(from) => format!("a connection from {from} was refused: {why}"),
                            Err(_) => format!("a connection that is gone was refused: {why}"),
                        });
                    }
                }
            }
            self.strangers
                .pass_over(table.callers(listener), Instant::now());
        }
    }

    /// Serves a connection of this user's, if there is a place for it.
    fn admit(self: &Arc<Self>, stream: TcpStream, faults: &mut Seldom) {
        self.touch();
        let until = Instant::now() + self.limit;
        let counted = CountedConnection(self.clone());
        if self.open.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
            let why = format!("too many connections at once: {MAX_CONNECTIONS} are open");
            // It is sent without waiting, or not at all.
            let _ = stream
                .set_nonblocking(true)
                .and_then(|()| finish(&stream, &failure(&why), false));
            return;
        }
        let served = std::thread::Builder::new().spawn(move || counted.serve(stream, until));
        if let Err(error) = served {
            faults.say(|| format!("cannot start a thread: {error}"));
        }
    }

    /// Renews the lock, and ends the process when it is no longer ours or nobody comes any more.
    fn watch(&self, idle: Duration) {
        let heartbeat = Duration::from_secs(lock::HEARTBEAT_SECS);
        let mut renewed = Instant::now();
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::SeqCst));
            let quiet = self.began.elapsed().saturating_sub(last);
            let is_idle = self.open.load(Ordering::SeqCst) == 0;
            if is_idle && quiet >= idle {
                let _nobody_renews_it = self.claim.give_up();
                say(&format!(
                    "no connection for {} s (idle_timeout_minutes): the bridge ends",
                    idle.as_secs()
                ));
                std::process::exit(0);
            }
            if renewed.elapsed() >= heartbeat {
                renewed = Instant::now();
                if let Err(error) = self.claim.renew() {
                    let _nobody_renews_it = self.claim.give_up();
                    say(&format!(
                        "the lock cannot be renewed, so the bridge ends: {error}"
                    ));
                    std::process::exit(1);
                }
            }
            let to_renew = heartbeat.saturating_sub(renewed.elapsed());
            let to_end = if is_idle {
                idle.saturating_sub(quiet)
            } else {
                heartbeat
            };
            // A connection that ends meanwhile is seen a second later.
            let pause = to_renew
                .min(to_end)
                .clamp(Duration::from_millis(20), Duration::from_secs(1));
            std::thread::sleep(pause);
        }
    }
}

impl CountedConnection {
    fn serve(self, mut stream: TcpStream, until: Instant) {
        let request = match read_request(&mut stream, until) {
            Ok(Some(request)) => request,
            Ok(None) => {
                let why = format!("the request is over {MAX_REQUEST} bytes");
                let _ = finish(&stream, &failure(&why), true);
                return;
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                let why = format!(
                    "no request came within {} s: a request is a JSON object and a line end",
                    REQUEST_LIMIT.as_secs()
                );
                let _ = finish(&stream, &failure(&why), true);
                return;
            }
            // Whoever it was is gone.
            Err(_) => return,
        };
        if peer::check_caller(&stream).is_err() {
            return;
        }
        let (give, take) = mpsc::channel();
        let limit = self.0.limit.as_secs();
        let worker = std::thread::Builder::new().spawn(move || {
            // The place is taken until the work is done, whether or not somebody still waits for
            // it.
            let counted = self;
            let answer = match String::from_utf8(request) {
                Ok(request) => counted.0.answers.answer(&request, until),
                Err(_) => failure("the request is not UTF-8"),
            };
            let _ = give.send(answer);
        });
        let answer = match worker {
            Ok(_) => take.recv_timeout(until.saturating_duration_since(Instant::now())),
            Err(_) => Ok(failure("cannot start a thread: try again")),
        };
        let answer = answer.unwrap_or_else(|_| {
            failure(&format!(
                "no answer yet after {limit} s (timeout_seconds of mcp-bridge.toml); the call may still be carried out"
            ))
        });
        // A client that is gone misses nothing.
        let _ = finish(&stream, &answer, true);
    }
}

/// True if a client has closed its connection, or its side of it, and has sent nothing that is
/// still to be read.
fn has_left(stream: &TcpStream) -> bool {
    let look = || {
        stream.set_nonblocking(true)?;
        let seen = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        seen
    };
    match look() {
        Ok(seen) => seen == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

/// The bytes of a request, up to a line end or the end of what the client sends; `None`: they are
/// too many.
fn read_request(stream: &mut TcpStream, until: Instant) -> io::Result<Option<Vec<u8>>> {
    let until = until.min(Instant::now() + REQUEST_LIMIT);
    let mut request = Vec::new();
    // One byte more than a request may have: a longer one is refused at once.
    let mut input = BufReader::with_capacity(16 << 10, ClientStream { stream, until })
        .take(MAX_REQUEST as u64 + 1);
    match read_line(&mut input, MAX_REQUEST, &mut request)? {
        LineRead::TooLong { .. } => Ok(None),
        LineRead::Line | LineRead::Unterminated => Ok(Some(request)),
        // As one that had left before it was looked up.
        LineRead::End => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A connection on which each read ends by a deadline.
struct ClientStream<'s> {
    stream: &'s mut TcpStream,
    until: Instant,
}

impl Read for ClientStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let remaining = self.until.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(remaining))?;
        self.stream.read(into)
    }
}

/// Sends the answer. Closing what still holds unread bytes would take it back, so they are read
/// first.
fn finish(mut stream: &TcpStream, answer: &str, drain: bool) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_LIMIT))?;
    stream.write_all(format!("{answer}\n").as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let until = Instant::now() + DRAIN_LIMIT;
    let (mut drained, mut piece) = (0, vec![0; 64 << 10]);
    while drain && drained < DRAINED {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => break,
            length => drained += length,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the request of a client that sends this and keeps its connection open.
    fn read(sent: &[u8]) -> Option<Vec<u8>> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(sent).unwrap());
            read_request(&mut stream, Instant::now() + Duration::from_secs(60)).unwrap()
        })
    }

    #[test]
    fn a_request_over_the_limit_is_refused_before_it_ends() {
        assert_eq!(read(b"{}\r\nmore"), Some(b"{}\r".to_vec()));
        let mut request = vec![b'x'; MAX_REQUEST];
        request.push(b'\n');
        assert_eq!(
            read(&request).map(|request| request.len()),
            Some(MAX_REQUEST)
        );
        request[MAX_REQUEST] = b'x';
        assert_eq!(read(&request), None);
    }
}

//! A client in either framing, one thread that does as little as it can.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// How long a relay may take to be there.
const START: Duration = Duration::from_secs(60);
/// How long an answer may take.
const ANSWER: u16 = 20_000;
/// What is said, and answered.
const TEXT: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"b","version":"1"}}}"#
);
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Which era a client over HTTP is of.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// What was seen with so many calls in flight.
#[derive(Clone)]
pub(crate) struct Run {
    /// Calls a second.
    pub(crate) rate: f64,
    /// How long each took, sorted, where but one is in flight.
    pub(crate) times: Vec<Duration>,
    /// How much of the time this client used a processor.
    pub(crate) own: f64,
}

/// Why something cannot be measured.
pub(crate) type Cannot = String;

pub(crate) struct Speaker {
    framing: Framing,
    next: u64,
}

enum Framing {
    Lines {
        to: File,
        from: File,
        tool: &'static str,
    },
    Http(Http),
}

struct Http {
    at: Address,
    era: Era,
    session: Option<String>,
    tool: &'static str,
}

enum Address {
    Port(u16),
    Socket(PathBuf),
}

impl Speaker {
    pub(crate) fn lines(to: OwnedFd, from: OwnedFd, tool: &'static str) -> Speaker {
        let (to, from) = (to.into(), from.into());
        Speaker {
            framing: Framing::Lines { to, from, tool },
            next: 1,
        }
    }

    pub(crate) fn http_on_port(port: u16) -> Speaker {
        let http = Http {
            at: Address::Port(port),
            era: Era::Legacy,
            session: None,
            tool: "echo",
        };
        Speaker {
            framing: Framing::Http(http),
            next: 1,
        }
    }

    pub(crate) fn http_on_socket(socket: &Path, era: Era) -> Speaker {
        let http = Http {
            at: Address::Socket(socket.to_owned()),
            era,
            session: None,
            tool: "echo__echo",
        };
        Speaker {
            framing: Framing::Http(http),
            next: 1,
        }
    }

    /// Makes the handshake, if there is one, as soon as it is listened to.
    pub(crate) fn open(&mut self) -> Result<(), Cannot> {
        match &mut self.framing {
            Framing::Lines { to, from, .. } => {
                say(to, format!("{INITIALIZE}\n").as_bytes())?;
                let mut got = Vec::new();
                while !got.ends_with(b"\n") {
                    hear(from, &mut got)?;
                }
                say(to, format!("{INITIALIZED}\n").as_bytes())
            }
            Framing::Http(http) => http.open(),
        }
    }

    pub(crate) fn one_call(&mut self) -> Result<(), Cannot> {
        self.run(1, Duration::ZERO).map(drop)
    }

    /// Keeps so many calls in flight for so long.
    pub(crate) fn run(&mut self, in_flight: usize, span: Duration) -> Result<Run, Cannot> {
        let used = processor_time();
        let mut times = Vec::new();
        let (answered, took) = match &mut self.framing {
            Framing::Lines { to, from, tool } => {
                let mut next = || call(tool, "", counted(&mut self.next)) + "\n";
                lines((to, from), &mut next, in_flight, span, &mut times)
            }
            Framing::Http(http) => http.run(&mut self.next, in_flight, span, &mut times),
        }?;
        let took = took.as_secs_f64();
        times.sort();
        Ok(Run {
            rate: answered as f64 / took,
            times,
            own: (processor_time() - used) / took,
        })
    }
}

fn counted(next: &mut u64) -> u64 {
    *next += 1;
    *next
}

/// Seconds that this process has used.
fn processor_time() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
}

fn call(tool: &str, more: &str, id: u64) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":\
         {{\"text\":\"{TEXT}\"}}{more}}}}}"
    )
}

pub(crate) fn connect_unix(socket: &Path) -> UnixStream {
    connect(|| UnixStream::connect(socket)).unwrap()
}

/// Tries until it is listened to.
fn connect<T>(mut once: impl FnMut() -> std::io::Result<T>) -> Result<T, Cannot> {
    let until = Instant::now() + START;
    loop {
        match once() {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => return Err(format!("nobody listens: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn say(to: &mut File, bytes: &[u8]) -> Result<(), Cannot> {
    to.write_all(bytes)
        .map_err(|error| format!("it reads no more: {error}"))
}

/// Reads what there is.
fn hear(from: &mut File, got: &mut Vec<u8>) -> Result<(), Cannot> {
    let mut look = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    if poll(&mut look, PollTimeout::from(ANSWER)).unwrap() == 0 {
        return Err(format!("no answer within {} s", ANSWER / 1000));
    }
    let mut buffer = [0; 64 * 1024];
    let read = from.read(&mut buffer).map_err(|error| error.to_string())?;
    got.extend_from_slice(&buffer[..read]);
    if read == 0 {
        Err("it closed the connection".to_owned())
    } else {
        Ok(())
    }
}

/// Calls on one connection until the time is over and all are answered. How many there were, and
/// how long it took.
fn lines(
    (to, from): (&mut File, &mut File),
    next: &mut impl FnMut() -> String,
    in_flight: usize,
    span: Duration,
    times: &mut Vec<Duration>,
) -> Result<(usize, Duration), Cannot> {
    let (mut waiting, mut answered, mut got) = (in_flight, 0, Vec::new());
    let start = Instant::now();
    let mut sent = start;
    say(
        to,
        (0..in_flight)
            .map(|_| next())
            .collect::<String>()
            .as_bytes(),
    )?;
    while waiting > 0 {
        hear(from, &mut got)?;
        let Some(end) = got.iter().rposition(|byte| *byte == b'\n') else {
            continue;
        };
        let mut came = 0;
        for line in got[..end].split(|byte| *byte == b'\n') {
            came += usize::from(is_answer(line)?);
        }
        got.drain(..=end);
        if in_flight == 1 && came == 1 {
            times.push(sent.elapsed());
        }
        answered += came;
        if start.elapsed() < span {
            sent = Instant::now();
            say(to, (0..came).map(|_| next()).collect::<String>().as_bytes())?;
        } else {
            waiting -= came;
        }
    }
    Ok((answered, start.elapsed()))
}

/// Whether a message answers a call; what it says about the relay itself does not.
fn is_answer(message: &[u8]) -> Result<bool, Cannot> {
    let text = String::from_utf8_lossy(message);
    if text.contains(TEXT) {
        return Ok(true);
    }
    if text.contains("\"result\":") || text.contains("\"error\":") {
        return Err(format!(
            "it answers {}",
            text.chars().take(300).collect::<String>()
        ));
    }
    Ok(false)
}

/// One connection with one request.
struct Connection {
    /// It is waited for no more.
    done: bool,
    stream: File,
    got: Vec<u8>,
    sent: Instant,
}

impl Http {
    fn connect(&self) -> Result<Connection, Cannot> {
        let stream: OwnedFd = match &self.at {
            Address::Port(port) => {
                let stream = connect(|| TcpStream::connect(("127.0.0.1", *port)))?;
                stream.set_nodelay(true).unwrap();
                stream.into()
            }
            Address::Socket(socket) => connect_unix(socket).into(),
        };
        Ok(Connection {
            done: false,
            stream: stream.into(),
            got: Vec::new(),
            sent: Instant::now(),
        })
    }

    fn open(&mut self) -> Result<(), Cannot> {
        let mut connection = self.connect()?;
        if self.era == Era::Modern {
            return Ok(());
        }
        let head = connection.exchange(&self.post(INITIALIZE))?;
        self.session = field(&head, "mcp-session-id").map(str::to_owned);
        connection.exchange(&self.post(INITIALIZED)).map(drop)
    }

    fn post(&self, body: &str) -> String {
        let host = match self.at {
            Address::Port(port) => format!("127.0.0.1:{port}"),
            Address::Socket(_) => "localhost".to_owned(),
        };
        let more = match (self.era, &self.session) {
            (Era::Modern, _) => format!(
                "2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {}",
                self.tool
            ),
            (Era::Legacy, Some(session)) => format!("2025-11-25\r\nMcp-Session-Id: {session}"),
            (Era::Legacy, None) => "2025-11-25".to_owned(),
        };
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {more}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn next(&self, next: &mut u64) -> String {
        let meta = match self.era {
            Era::Legacy => "",
            Era::Modern => {
                ",\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
                 \"io.modelcontextprotocol/clientCapabilities\":{}}"
            }
        };
        self.post(&call(self.tool, meta, counted(next)))
    }

    /// As many connections as calls in flight, each kept alive, or opened again by the relay's
    /// wish.
    fn run(
        &self,
        next: &mut u64,
        in_flight: usize,
        span: Duration,
        times: &mut Vec<Duration>,
    ) -> Result<(usize, Duration), Cannot> {
        let mut crowd = (0..in_flight)
            .map(|_| self.connect())
            .collect::<Result<Vec<_>, _>>()?;
        let start = Instant::now();
        let (mut answered, mut closed) = (0, 0);
        for connection in &mut crowd {
            connection.send(&self.next(next))?;
        }
        while !crowd.is_empty() {
            let mut looks: Vec<_> = crowd
                .iter()
                .map(|one| PollFd::new(one.stream.as_fd(), PollFlags::POLLIN))
                .collect();
            if poll(&mut looks, PollTimeout::from(ANSWER)).unwrap() == 0 {
                return Err(format!(
                    "{} of {in_flight} without an answer for {} s",
                    crowd.len(),
                    ANSWER / 1000
                ));
            }
            let ready: Vec<bool> = looks
                .iter()
                .map(|look| look.any().unwrap_or(false))
                .collect();
            for (connection, _) in crowd.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                if let Err(why) = hear(&mut connection.stream, &mut connection.got) {
                    closed += 1;
                    // Between two requests a server may close a connection.
                    if !connection.got.is_empty() || closed > 2 * in_flight {
                        return Err(why);
                    }
                    *connection = self.connect()?;
                    connection.send(&self.next(next))?;
                    continue;
                }
                if connection.whole()?.is_none() {
                    continue;
                }
                if !is_answer(&connection.got)? {
                    return Err(String::from_utf8_lossy(&connection.got).into_owned());
                }
                if in_flight == 1 {
                    times.push(connection.sent.elapsed());
                }
                answered += 1;
                if start.elapsed() < span {
                    connection.send(&self.next(next))?;
                } else {
                    connection.done = true;
                }
            }
            crowd.retain(|connection| !connection.done);
        }
        Ok((answered, start.elapsed()))
    }
}

impl Connection {
    fn send(&mut self, request: &str) -> Result<(), Cannot> {
        self.got.clear();
        self.sent = Instant::now();
        say(&mut self.stream, request.as_bytes())
    }

    /// Sends a request and returns the head of its response.
    fn exchange(&mut self, request: &str) -> Result<String, Cannot> {
        self.send(request)?;
        loop {
            hear(&mut self.stream, &mut self.got)?;
            if let Some(head) = self.whole()? {
                return Ok(head);
            }
        }
    }

    /// The head of the response, if all of it is there.
    fn whole(&self) -> Result<Option<String>, Cannot> {
        let Some(end) = self.got.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let (head, body) = (&self.got[..end], &self.got[end + 4..]);
        let head = String::from_utf8_lossy(head);
        if !head.starts_with("HTTP/1.1 20") {
            let text = String::from_utf8_lossy(&self.got);
            return Err(format!(
                "it answers {}",
                text.chars().take(300).collect::<String>()
            ));
        }
        let is_whole = match field(&head, "content-length") {
            Some(length) => length
                .parse()
                .is_ok_and(|length: usize| body.len() >= length),
            None if field(&head, "transfer-encoding").is_some() => body.ends_with(b"0\r\n\r\n"),
            None => true,
        };
        Ok(is_whole.then(|| head.into_owned()))
    }
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields
        .filter(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
        .next()
}

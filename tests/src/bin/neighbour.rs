//! A user who does their worst to the daemon, until its input ends:
//!
//! ```text
//! neighbour SOCKET ATTACK COUNT
//! ```
//!
//! - `bodies`: COUNT connections with 1.02 MiB of an HTTP body that does not end, and one byte more
//!   every so often;
//! - `lines`: COUNT connections with 15 MB of a line that does not end, likewise;
//! - `connections`: COUNT connections that say nothing;
//! - `lists`: asks for `tools/list` on COUNT connections and reads no answer;
//! - `unread`: calls `fix__huge` for 1 MiB on COUNT connections, 18 times each, and reads no
//!   answer;
//! - `noise`: calls `noise__echo` COUNT times, each when the one before was answered;
//! - `pings`: COUNT pings a second;
//! - `models`: COUNT requests with a body of 1.5 MiB that does not end, likewise, to the model
//!   relay at SOCKET.
//!
//! A connection that is closed is made anew. It prints `ready` when every connection has been used
//! once, and at its end how many pings it sent in a second. Whether anybody answers does not
//! matter, so a program that only reads can stand in the daemon's place.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Between two bytes of what does not end.
const DRIP: Duration = Duration::from_millis(200);
/// Before a connection is made anew.
const PAUSE: Duration = Duration::from_millis(50);
/// How long one answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pings are sent so often.
const BEAT: Duration = Duration::from_millis(5);

const INITIALIZE: &str = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\
                          \"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"n\",\"version\":\"1\"}}}\n";

/// Pings that were sent.
static PINGS: AtomicUsize = AtomicUsize::new(0);

/// Uses one connection until it is closed; `done` is called when it has done its worst.
type Attack = fn(UnixStream, usize, &dyn Fn()) -> io::Result<()>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, name, count] = &arguments[..] else {
        eprintln!("usage: neighbour SOCKET ATTACK COUNT");
        exit(64)
    };
    let count: usize = count.parse().unwrap_or(1);
    let (attack, connections): (Attack, usize) = match name.as_str() {
        "bodies" => (body, count),
        "lines" => (line, count),
        "connections" => (nothing, count),
        "lists" => (list, count),
        "unread" => (unread, count),
        "noise" => (noise, 1),
        "pings" => (pings, 1),
        "models" => (model, count),
        _ => exit(64),
    };
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With fewer descriptors it has fewer connections.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    let ready = &*Box::leak(Box::new(AtomicUsize::new(0)));
    for _ in 0..connections {
        let socket = socket.clone();
        let worker = thread::Builder::new()
            .stack_size(128 * 1024)
            .spawn(move || {
                let first = AtomicUsize::new(0);
                let done = || {
                    if first.swap(1, Ordering::Relaxed) == 0 {
                        ready.fetch_add(1, Ordering::Relaxed);
                    }
                };
                loop {
                    // Whatever ends it, it is tried again.
                    let _ = UnixStream::connect(Path::new(&socket))
                        .and_then(|stream| attack(stream, count, &done));
                    done();
                    thread::sleep(PAUSE);
                }
            });
        if worker.is_err() {
            ready.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread::spawn(move || {
        while ready.load(Ordering::Relaxed) < connections {
            thread::sleep(BEAT);
        }
        println!("ready");
    });
    let begun = Instant::now();
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    let pings = PINGS.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    if pings > 0.0 {
        println!("{pings:.0} pings a second");
    }
    exit(0)
}

/// One byte every so often, until the connection is closed.
fn drip(mut stream: UnixStream) -> io::Result<()> {
    loop {
        thread::sleep(DRIP);
        stream.write_all(b"x")?;
    }
}

fn body(mut stream: UnixStream, _: usize, done: &dyn Fn()) -> io::Result<()> {
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Accept: application/json, text/event-stream\r\nContent-Length: 4000000\r\n\r\n\"";
    stream.write_all(head.as_bytes())?;
    stream.write_all(&vec![b'x'; 1_070_000])?;
    done();
    drip(stream)
}

fn model(mut stream: UnixStream, _: usize, done: &dyn Fn()) -> io::Result<()> {
    let head = "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:8377\r\nContent-Type: application/json\r\n\
                Content-Length: 4000000\r\n\r\n\"";
    stream.write_all(head.as_bytes())?;
    // Of one agent's few are read at a time.
    done();
    stream.write_all(&vec![b'x'; 3 << 19])?;
    drip(stream)
}

fn line(mut stream: UnixStream, _: usize, done: &dyn Fn()) -> io::Result<()> {
    let chunk = vec![b'['; 1_000_000];
    for _ in 0..15 {
        stream.write_all(&chunk)?;
    }
    done();
    drip(stream)
}

fn nothing(mut stream: UnixStream, _: usize, done: &dyn Fn()) -> io::Result<()> {
    done();
    stream.read(&mut [0; 1024]).map(drop)
}

fn list(mut stream: UnixStream, _: usize, done: &dyn Fn()) -> io::Result<()> {
    stream.write_all(INITIALIZE.as_bytes())?;
    stream.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n")?;
    done();
    drip(stream)
}

fn call(id: usize, tool: &str, arguments: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":\
         {arguments}}}}}\n"
    )
}

fn unread(mut stream: UnixStream, _: usize, done: &dyn Fn()) -> io::Result<()> {
    stream.write_all(INITIALIZE.as_bytes())?;
    for id in 1..=18 {
        stream.write_all(call(id, "fix__huge", "{\"bytes\":1048576}").as_bytes())?;
    }
    done();
    drip(stream)
}

fn noise(mut stream: UnixStream, count: usize, done: &dyn Fn()) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(INITIALIZE.as_bytes())?;
    done();
    for id in 1..=count {
        stream.write_all(call(id, "noise__echo", "{\"text\":\"x\"}").as_bytes())?;
        match stream.read(&mut [0; 64 * 1024]) {
            Ok(0) => break,
            // A program that only reads does not answer.
            _ => continue,
        }
    }
    Ok(())
}

fn pings(mut stream: UnixStream, a_second: usize, done: &dyn Fn()) -> io::Result<()> {
    let mut answers = stream.try_clone()?;
    thread::spawn(move || io::copy(&mut answers, &mut io::sink()));
    stream.write_all(INITIALIZE.as_bytes())?;
    done();
    let (begun, mut sent) = (Instant::now(), 0);
    loop {
        let due = (begun.elapsed().as_secs_f64() * a_second as f64) as usize;
        let until = due.min(sent + a_second / 50);
        let lines: String = (sent..until)
            .map(|id| {
                format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}}\n",
                    id + 1
                )
            })
            .collect();
        stream.write_all(lines.as_bytes())?;
        PINGS.fetch_add(until - sent, Ordering::Relaxed);
        sent = due;
        thread::sleep(BEAT);
    }
}

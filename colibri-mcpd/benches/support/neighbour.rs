//! A bad neighbour: what one client does to another's calls, and to the daemon's memory.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Daemon, INITIALIZE, Session, connect};
use crate::{SPAN, resident};

/// What a client may do, until it is told to stop.
type Bad = fn(&Path, &AtomicBool);

const NEIGHBOURS: [(&str, Bad); 4] = [
    ("sends 15 MB of odd keys", odd_keys),
    ("keeps 30 unfinished lines", unfinished_lines),
    ("asks for 200 lists of 4 MB", lists),
    ("has a server that writes a million lines to stderr", shouts),
];

/// What a neighbour did.
pub(crate) struct Seen {
    /// The neighbour.
    pub(crate) name: &'static str,
    /// Another client's p99 without it, and with it.
    pub(crate) p99: [Duration; 2],
    /// The most memory of the daemon meanwhile, bytes.
    pub(crate) resident: u64,
}

/// Measures each, on a daemon of its own.
pub(crate) fn all(directory: &Path, command: &[String]) -> Vec<Seen> {
    let directory = directory.join("neighbours");
    std::fs::create_dir(&directory).expect("directory");
    let program = std::env::current_exe().expect("own path").display().to_string();
    let server = |name: &str| format!("\"{name}\":{{\"command\":\"{program}\",\"args\":[\"{name}-server\"]}}");
    let servers = ["echo", "wide", "shouting"].map(server).join(",");
    std::fs::write(
        directory.join("registry.json"),
        format!("{{\"servers\":{{{servers}}}}}"),
    )
    .expect("registry");
    let measured = NEIGHBOURS.iter().enumerate().map(|(index, (name, bad))| {
        let daemon = Daemon::start(&directory, &format!("with-{index}"), command);
        let mut quiet = Session::open(&daemon.socket);
        let without = p99(&mut quiet);
        let (stop, most) = (AtomicBool::new(false), AtomicU64::new(0));
        let with = std::thread::scope(|scope| {
            scope.spawn(|| bad(&daemon.socket, &stop));
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    most.fetch_max(resident(daemon.child.id()), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            // It has to have begun.
            std::thread::sleep(SPAN / 3);
            let with = p99(&mut quiet);
            stop.store(true, Ordering::Relaxed);
            with
        });
        Seen {
            name,
            p99: [without, with],
            resident: most.into_inner(),
        }
    });
    measured.collect()
}

fn p99(session: &mut Session) -> Duration {
    let mut times = Vec::new();
    let until = Instant::now() + 2 * SPAN;
    while Instant::now() < until {
        let start = Instant::now();
        session.send(call("echo__echo").as_bytes());
        session.read_lines(1);
        times.push(start.elapsed());
    }
    times.sort();
    times[times.len() * 99 / 100]
}

fn call(tool: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{{\"text\":\"x\"}}}}}}\n"
    )
}

/// A connection after its handshake, which may be ended at any time.
fn open(socket: &Path) -> std::io::Result<UnixStream> {
    let mut stream = connect(socket);
    stream.write_all(INITIALIZE.as_bytes())?;
    let _ = stream.read(&mut [0; 4096])?;
    Ok(stream)
}

fn odd_keys(socket: &Path, stop: &AtomicBool) {
    let keys: String = (0..)
        .map(|n| format!("\"\u{ff2e}ame\\u004b{n}\":0,"))
        .take(15_000_000 / 22)
        .collect();
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{{keys}\"name\":\"echo__echo\",\"arguments\":{{\"text\":\"x\"}}}}}}\n"
    );
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = open(socket) else { continue };
        while !stop.load(Ordering::Relaxed)
            && stream.write_all(line.as_bytes()).is_ok()
            && stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0)
        {}
    }
}

fn unfinished_lines(socket: &Path, stop: &AtomicBool) {
    let line = vec![b'x'; 15_000_000];
    let streams: Vec<_> = (0..30).filter_map(|_| open(socket).ok()).map(Arc::new).collect();
    std::thread::scope(|scope| {
        for stream in &streams {
            // Who is let go has nothing more to write to.
            scope.spawn(|| (&**stream).write_all(&line));
        }
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    });
}

fn lists(socket: &Path, stop: &AtomicBool) {
    let lists = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n";
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = open(socket) else { continue };
        for id in 0..200 {
            let list = lists.replace(":1,", &format!(":{id},"));
            if stream.write_all(list.as_bytes()).is_err() {
                break;
            }
        }
        // They are read, as slowly as it takes to throw them away.
        let mut buffer = vec![0; 64 * 1024];
        let (mut lines, mut read) = (0, 1);
        while lines < 200 && read > 0 && !stop.load(Ordering::Relaxed) {
            read = stream.read(&mut buffer).unwrap_or(0);
            lines += memchr::memchr_iter(b'\n', &buffer[..read]).count();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn shouts(socket: &Path, stop: &AtomicBool) {
    let Ok(mut stream) = open(socket) else { return };
    let patience = Some(Duration::from_millis(100));
    stream.set_read_timeout(patience).expect("time-out");
    while !stop.load(Ordering::Relaxed) {
        if stream.write_all(call("shouting__echo").as_bytes()).is_err() {
            return;
        }
        while !stop.load(Ordering::Relaxed) && stream.read(&mut [0; 4096]).is_err() {}
    }
}

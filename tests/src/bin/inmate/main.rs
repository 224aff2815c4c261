//! The server of the helper's tests: does as its first argument says, well or badly. It is copied
//! into a jail's root and started there by the helper, so that what a server can do is tried from
//! where a server stands.

// A part of the tests: what fails here fails them.
#![allow(clippy::unwrap_used)]

mod mcp;
mod sys;
mod ways;

use std::io::{BufRead, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio, exit};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rest: Vec<&str> = args.iter().skip(2).map(String::as_str).collect();
    match args.get(1).map(String::as_str).unwrap_or("echo") {
        "echo" => echo(),
        "mcp" => mcp::serve(),
        "mcp-deaf" => {
            mcp::serve();
            sys::block_signals();
            sys::wait_forever()
        }
        "kill-all" => {
            sys::kill_all();
            sys::wait_forever()
        }
        "exit" => exit(rest[0].parse().unwrap()),
        "signal" => sys::raise(rest[0].parse().unwrap()),
        "hang" => {
            say("ready");
            sys::wait_forever()
        }
        "stubborn" => {
            sys::block_signals();
            say("ready");
            sys::wait_forever()
        }
        "detach" => {
            for _ in 0..5 {
                start("detached");
            }
            say("ready");
            wait_for_end();
        }
        // A grandchild in a session of its own, deaf to signals, that holds every pipe it was
        // given.
        "detached" => {
            sys::setsid();
            start("stubborn-silent");
        }
        "stubborn-silent" => {
            sys::block_signals();
            sys::wait_forever()
        }
        "forkbomb" => {
            let mut children = 0;
            while children < 10_000 && try_start("stubborn-silent") {
                children += 1;
            }
            say(&format!("children {children}"));
            wait_for_end();
        }
        "hog" => {
            let mut held: Vec<Vec<u8>> = Vec::new();
            loop {
                let mut piece = Vec::new();
                if piece.try_reserve_exact(16 << 20).is_err() || held.len() > 4096 {
                    break;
                }
                piece.resize(16 << 20, 1);
                held.push(piece);
            }
            say(&format!("held {}", held.len() * 16));
            wait_for_end();
        }
        "facts" => facts(),
        "facts-and-wait" => {
            facts();
            wait_for_end();
        }
        "agent" => agent(),
        "ways" => ways::try_all(&rest),
        "listen" => ways::listen_everywhere(),
        "euid" => say(&sys::effective_uid().to_string()),
        "list" => {
            say(&format!("list {}", names_in(rest[0]).join(" ")));
            say("end");
        }
        "attack" => attack(&rest),
        "flood" => {
            let line = vec![b'x'; 1 << 16];
            while std::io::stdout().write_all(&line).is_ok() {}
        }
        "swap" => swap(rest[0], rest[1]),
        "rewrite" => rewrite(rest[0], rest[1]),
        "timer" => {
            sys::set_timer(std::time::Duration::from_secs(rest[0].parse().unwrap()));
            become_program(&rest[1..])
        }
        "burdened" => {
            sys::burden();
            become_program(&rest)
        }
        #[cfg(target_os = "freebsd")]
        "fill-sockets" => {
            for _ in 0..rest[0].parse::<usize>().unwrap() / 2 {
                start("fill-streams");
                start("fill-datagrams");
            }
            wait_for_end();
        }
        #[cfg(target_os = "freebsd")]
        "fill-streams" => fill_sockets(libc::SOCK_STREAM, 4096),
        #[cfg(target_os = "freebsd")]
        "fill-datagrams" => fill_sockets(libc::SOCK_DGRAM, 1),
        #[cfg(target_os = "freebsd")]
        "take" => take(&rest),
        #[cfg(target_os = "freebsd")]
        "mortal" => {
            sys::freebsd::die_with_parent();
            become_program(&rest)
        }
        #[cfg(target_os = "freebsd")]
        "in-class" => {
            sys::freebsd::set_class(rest[0]);
            become_program(&rest[1..])
        }
        #[cfg(target_os = "freebsd")]
        "undying" => sys::freebsd::outlive_kill(rest[0]),
        #[cfg(target_os = "freebsd")]
        "pdfork" => pdfork(rest[0], &rest[1..]),
        #[cfg(target_os = "freebsd")]
        "trace" => trace(rest[0]),
        other => {
            eprintln!("inmate: unknown word {other}");
            exit(2)
        }
    }
}

fn say(text: &str) {
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "{text}");
    let _ = stdout.flush();
}

fn echo() {
    for line in std::io::stdin().lock().lines() {
        say(&line.unwrap());
    }
}

fn wait_for_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn me() -> Command {
    Command::new(std::env::args_os().next().unwrap())
}

fn start(word: &str) {
    assert!(try_start(word));
}

fn try_start(word: &str) -> bool {
    match me().arg(word).stdin(Stdio::inherit()).spawn() {
        Ok(mut child) => {
            if word == "detached" {
                let _ = child.wait();
            }
            true
        }
        Err(_) => false,
    }
}

/// A small agent: says what its standard input gives, asks for its task at its door, says what it
/// was told, and talks to itself over the loopback interface, if there is one.
fn agent() {
    let mut input = String::new();
    if !sys::is_pipe(0) {
        std::io::stdin().read_to_string(&mut input).unwrap();
        say(&format!("input {:?}", input));
    }
    let socket = std::env::var("COLIBRI_MCP_SOCKET").unwrap();
    match UnixStream::connect(&socket) {
        Ok(mut door) => {
            door.write_all(b"what shall I do?\n").unwrap();
            let mut told = String::new();
            std::io::BufReader::new(door).read_line(&mut told).unwrap();
            say(&format!("told {}", told.trim()));
        }
        Err(error) => say(&format!("no door: {error}")),
    }
    say(&format!("loopback {}", talks_to_itself()));
    wait_for_end();
}

fn talks_to_itself() -> bool {
    let Ok(listener) = std::net::TcpListener::bind("127.0.0.1:0") else {
        return false;
    };
    let Ok(mut there) = TcpStream::connect(listener.local_addr().unwrap()) else {
        return false;
    };
    let (mut here, _) = listener.accept().unwrap();
    let mut byte = [0];
    there.write_all(b"x").is_ok() && here.read_exact(&mut byte).is_ok()
}

/// Fills the buffers of Unix sockets of this kind with messages of this length, and keeps them
/// until the end.
#[cfg(target_os = "freebsd")]
fn fill_sockets(kind: i32, length: usize) {
    let (pairs, bytes) = sys::fill::sockets(kind, length);
    say(&format!("filled {pairs} pairs, {bytes} bytes"));
    wait_for_end();
}

/// Takes of each resource that is named as much as there is, and says how much that was.
#[cfg(target_os = "freebsd")]
fn take(resources: &[&str]) {
    for resource in resources {
        let most = match *resource {
            "terminals" => sys::fill::terminals(),
            "kqueues" => sys::fill::kqueues(),
            "pipes" => sys::fill::pipes(),
            "shared-locks" => sys::fill::shared_locks(),
            "threads" => sys::fill::threads(),
            "shared-memory" => sys::fill::shared_memory(),
            "large-pages" => match sys::fill::large_pages() {
                Ok(most) => most,
                Err(error) => {
                    say(&format!("{resource} {error}"));
                    continue;
                }
            },
            other => panic!("no resource {other}"),
        };
        say(&format!("{resource} {most}"));
    }
    say("end");
    wait_for_end();
}

/// Swaps a directory against a link to /etc and back, at least 2,000 times and until the file
/// `enough` is there: what the owner of a shown directory can do to it. Run on the host, by
/// `tests/freebsd/run.sh`.
fn swap(directory: &str, enough: &str) {
    let (aside, link) = (format!("{directory}.aside"), format!("{directory}.link"));
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    let mut rounds = 0;
    while rounds < 2000 || !std::path::Path::new(enough).exists() {
        std::fs::rename(directory, &aside).unwrap();
        std::fs::rename(&link, directory).unwrap();
        std::fs::rename(directory, &link).unwrap();
        std::fs::rename(&aside, directory).unwrap();
        rounds += 1;
    }
    std::fs::remove_file(&link).unwrap();
    say(&rounds.to_string());
}

/// Writes the last byte of a file anew, a blank or the end of a line in turn, until the file
/// `enough` is there. Run on the host.
fn rewrite(file: &str, enough: &str) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    let last = file.metadata().unwrap().len() - 1;
    let mut rounds = 0u64;
    while !rounds.is_multiple_of(100) || !std::path::Path::new(enough).exists() {
        file.write_all_at(
            if rounds.is_multiple_of(2) {
                b"\n"
            } else {
                b" "
            },
            last,
        )
        .unwrap();
        rounds += 1;
    }
    say(&rounds.to_string());
}

/// Executes a program in the place of this one.
fn become_program(words: &[&str]) -> ! {
    use std::os::unix::process::CommandExt;
    eprintln!(
        "inmate: {}",
        Command::new(words[0]).args(&words[1..]).exec()
    );
    exit(2)
}

/// Starts a program with pdfork(2) and, once the file `now` is there, closes the descriptor, at
/// which the kernel kills the child: what a compromised daemon can do to a helper that it may not
/// signal. Run on the host.
#[cfg(target_os = "freebsd")]
fn pdfork(now: &str, words: &[&str]) {
    let Some(descriptor) = sys::freebsd::fork_with_descriptor() else {
        become_program(words)
    };
    while !std::path::Path::new(now).exists() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    drop(descriptor);
}

/// As root of a persistent jail, tries to trace every process that appears there, until the file
/// `enough` is there. Says how many were seen, how many refused, and what each that could be traced
/// was running.
#[cfg(target_os = "freebsd")]
fn trace(enough: &str) {
    use std::collections::BTreeSet;
    use sys::freebsd::{Traced, last_pid};
    let me = std::process::id() as i32;
    let (mut refused, mut attached) = (BTreeSet::new(), BTreeSet::new());
    say("tracing");
    while !std::path::Path::new(enough).exists() {
        for _ in 0..500 {
            let last = last_pid();
            for pid in (last - 8..=last + 1).filter(|pid| *pid > 1 && *pid != me) {
                match sys::freebsd::trace(pid) {
                    Traced::Nobody => {}
                    Traced::Refused => {
                        refused.insert(pid);
                    }
                    Traced::Attached(program) => {
                        attached.insert((pid, program));
                    }
                }
            }
        }
    }
    say(&format!("refused {}", refused.len()));
    for (pid, program) in &attached {
        say(&format!("attached {pid} {program}"));
    }
    say("end");
}

/// What the process was given, one fact a line.
fn facts() {
    for line in sys::facts() {
        say(&line);
    }
    let mut environment: Vec<(String, String)> = std::env::vars().collect();
    environment.sort();
    for (name, value) in environment {
        say(&format!("env {name}={value}"));
    }
    say(&format!(
        "cwd {}",
        std::env::current_dir().unwrap().display()
    ));
    for directory in ["/", "/dev", "/tmp"] {
        say(&format!("ls {directory} {}", names_in(directory).join(" ")));
    }
    say("end");
}

fn names_in(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Tries what a hostile server would; says of each whether it worked.
fn attack(paths: &[&str]) {
    let tell = |what: &str, worked: bool| {
        say(&format!(
            "{what}: {}",
            if worked { "WORKED" } else { "failed" }
        ))
    };
    for target in paths.iter().filter(|t| t.contains(':')) {
        let connected = target
            .to_socket_addrs()
            .is_ok_and(|mut a| a.any(|a| TcpStream::connect(a).is_ok()));
        tell(&format!("connect {target}"), connected);
    }
    for path in paths.iter().filter(|t| t.starts_with('/')) {
        tell(
            &format!("see {path}"),
            std::fs::symlink_metadata(path).is_ok(),
        );
        tell(
            &format!("talk to {path}"),
            UnixStream::connect(path).is_ok(),
        );
    }
    #[cfg(target_os = "linux")]
    for name in paths.iter().filter_map(|t| t.strip_prefix('@')) {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        tell(
            &format!("talk to @{name}"),
            UnixStream::connect_addr(&address).is_ok(),
        );
    }
    for pid in paths.iter().filter_map(|t| t.strip_prefix("pid ")) {
        let pid = pid.parse().unwrap();
        tell(&format!("signal {pid}"), sys::kill(pid));
        #[cfg(target_os = "linux")]
        tell(&format!("trace {pid}"), sys::trace(pid));
    }
    tell("write to /", std::fs::write("/written", b"x").is_ok());
    tell(
        "write to /dev",
        std::fs::write("/dev/written", b"x").is_ok(),
    );
    tell(
        "write to /tmp",
        std::fs::write("/tmp/written", b"x").is_ok(),
    );
    tell(
        "fill /tmp beyond its size",
        std::fs::write("/tmp/filled", vec![0; 3 << 20]).is_ok(),
    );
    for (what, worked) in sys::attacks() {
        tell(what, worked);
    }
    say("end");
}

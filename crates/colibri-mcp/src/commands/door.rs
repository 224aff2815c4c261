//! `colibri-mcp door -- COMMAND`: the forwarder in an agent's jail. It listens on loopback and
//! passes bytes to the socket of the model relay; what may pass is decided there. Outside of a
//! jail, where neither its port nor the agent socket is known beforehand, the command's words name
//! them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::io::{self, Read as _, Write as _, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use colibri_jail_helper::plan::DOOR_SOCKET;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::CommandError;

/// The most connections at a time.
const MAX_CONNECTIONS: usize = 64;
/// The name of the relay's socket beside it.
const NAME: &str = "model.sock";
/// The names for the address and for the agent socket in a command's words and variables.
const ADDRESS: &str = "@ADDRESS@";
const AGENT_SOCKET: &str = "@SOCKET@";
/// The variables that name a program's model, and the path that it expects there.
const TOLD: [(&str, &str); 3] = [
    ("ANTHROPIC_BASE_URL", ""),
    ("GOOGLE_GEMINI_BASE_URL", ""),
    ("OPENAI_BASE_URL", "/v1"),
];
/// The signals that are the command's.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];
/// The time and the bytes for which a client that is told that there is no relay is read.
const LINGER: Duration = Duration::from_secs(2);
const MAX_LINGERING: u64 = 64 << 20;
/// Exit statuses of a shell: the command is not there, or cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// The address to listen on, and the program to run.
#[derive(Debug, clap::Args)]
pub(crate) struct DoorArguments {
    /// The address to listen on: an address of loopback
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8377")]
    listen: SocketAddr,
    /// The program that talks to a model, and its arguments; `@ADDRESS@` and `@SOCKET@` in them,
    /// and in the environment, stand for the address and the agent socket
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command; its exit status is ours.
pub(crate) fn run(arguments: &DoorArguments) -> Result<ExitCode, CommandError> {
    if !arguments.listen.ip().is_loopback() {
        return Err(CommandError::Usage(format!(
            "--listen {}: must be an address of loopback, such as 127.0.0.1:8377",
            arguments.listen
        )));
    }
    let machine =
        |what: String| move |error: io::Error| CommandError::Machine(format!("{what}: {error}"));
    let listener = TcpListener::bind(arguments.listen)
        .map_err(machine(format!("cannot listen on {}", arguments.listen)))?;
    let address = listener
        .local_addr()
        .map_err(machine("listening".to_owned()))?;
    let [program, rest @ ..] = &arguments.command[..] else {
        return Err(CommandError::Usage("the command is missing".to_owned()));
    };
    let names = [
        (ADDRESS, address.to_string()),
        (AGENT_SOCKET, agent_socket().display().to_string()),
    ];
    let mut command = Command::new(program);
    command.args(rest.iter().map(|word| filled(word, &names)));
    for (name, value) in env::vars_os() {
        let filled = filled(&value, &names);
        if filled != value {
            command.env(name, filled);
        }
    }
    for (name, path) in TOLD.iter().filter(|(name, _)| env::var_os(name).is_none()) {
        command.env(name, format!("http://{address}{path}"));
    }
    // Before the command is there: a signal that came in between would end this program alone. They
    // are caught and not blocked, since a mask would be the command's as well.
    let signals = runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(machine("signals".to_owned()))?;
    let caught = {
        let _inside = signals.enter();
        PASSED_ON
            .into_iter()
            .map(|passed_on| Ok((passed_on, signal(SignalKind::from_raw(passed_on as i32))?)))
            .collect::<io::Result<Vec<_>>>()
            .map_err(machine("signals".to_owned()))?
    };
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("colibri-mcp: cannot run {}: {error}", program.display());
            let is_there = error.kind() != io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if is_there { NOT_RUN } else { NOT_FOUND }));
        }
    };
    let socket: Arc<Path> = socket().into();
    thread::spawn(move || listen(&listener, &socket));
    let pid = Pid::from_raw(child.id().cast_signed());
    for (passed_on, mut arrivals) in caught {
        signals.spawn(async move {
            while arrivals.recv().await.is_some() {
                // It may have ended just now.
                let _ = kill(pid, passed_on);
            }
        });
    }
    thread::spawn(move || signals.block_on(pending::<()>()));
    let status = child
        .wait()
        .map_err(machine("waiting for the command".to_owned()))?;
    let status = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(
        status
            .and_then(|status| u8::try_from(status).ok())
            .unwrap_or(1),
    ))
}

/// A word with what is known here in the place of the names for it. One that is no UTF-8 has none.
fn filled(word: &OsStr, names: &[(&str, String)]) -> OsString {
    match word.to_str() {
        Some(text) => names
            .iter()
            .fold(text.to_owned(), |text, (name, value)| {
                text.replace(name, value)
            })
            .into(),
        None => word.to_owned(),
    }
}

/// The agent socket.
fn agent_socket() -> PathBuf {
    env::var_os("COLIBRI_MCP_SOCKET").map_or_else(|| DOOR_SOCKET.into(), PathBuf::from)
}

/// The socket of the relay.
fn socket() -> PathBuf {
    let named = env::var_os("COLIBRI_MODEL_SOCKET").map(PathBuf::from);
    named.unwrap_or_else(|| agent_socket().with_file_name(NAME))
}

fn listen(listener: &TcpListener, socket: &Arc<Path>) {
    let open = Arc::new(AtomicUsize::new(0));
    for inside in listener.incoming().flatten() {
        if open.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (socket, open) = (socket.clone(), open.clone());
        thread::spawn(move || {
            // One that is gone ends it, whichever it is.
            let _ = pass(inside, &socket);
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Passes bytes both ways until one side is gone.
fn pass(mut inside: TcpStream, socket: &Path) -> io::Result<()> {
    inside.set_nodelay(true)?;
    let mut relay = match UnixStream::connect(socket) {
        Ok(relay) => relay,
        Err(error) => {
            let why = format!(
                "colibri-mcp door: cannot reach the model relay at {}: {error}. Has the agent's entry a \"model\", and \
                 may it open Unix sockets?\n",
                socket.display()
            );
            let length = why.len();
            write!(
                inside,
                "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: \
                 {length}\r\n\r\n{why}"
            )?;
            inside.shutdown(Shutdown::Write)?;
            // Closed with something unread, the connection would be reset, and the answer lost.
            inside.set_read_timeout(Some(LINGER))?;
            return copy(&mut inside.take(MAX_LINGERING), &mut io::sink()).map(drop);
        }
    };
    let (mut from_inside, mut to_relay) = (inside.try_clone()?, relay.try_clone()?);
    let asking = thread::spawn(move || {
        let _ = copy(&mut from_inside, &mut to_relay);
        let _ = to_relay.shutdown(Shutdown::Write);
    });
    let _ = copy(&mut relay, &mut inside);
    let _ = inside.shutdown(Shutdown::Both);
    let _ = asking.join();
    Ok(())
}

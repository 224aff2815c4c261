//! The chibi bridge, from a client's side: found, started where it does not run, asked.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::error::ClientError;
use crate::lock::{self, LockFile};
use crate::peer;
use crate::sys;
use crate::tool::{McpTool, mcp_tool_from_info, parse_mcp_path};

/// The bridge's program.
const PROGRAM: &str = "chibi-mcp-bridge";
/// The bridge's configuration, in the home.
const CONFIGURATION: &str = "mcp-bridge.toml";
/// The file, in the home, of the process that starts the bridge just now.
const STARTING: &str = "mcp-bridge-spawning.lock";
/// The age at which the maker of that file is taken to be gone.
const ORPHAN: Duration = Duration::from_secs(60);
/// The log of a bridge that was started here, in the home.
const LOG: &str = "mcp-bridge.log";
/// The longest time for a bridge to start.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks whether it did.
const PAUSE: Duration = Duration::from_millis(20);
/// The time beyond the bridge's own limit for which an answer is waited for.
const ANSWER_MARGIN: Duration = Duration::from_secs(3);
/// The longest time for a connection, and for the sending of a request.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// No answer is longer, in bytes.
const MAX_ANSWER: u64 = 64 << 20;

/// The address of the bridge that runs for a home, as its lock file has it: of a process that is
/// there, renewed within the last 45 s. Who listens there, [`send_request`] looks up.
///
/// # Errors
/// [`ClientError::NotRunning`].
pub fn read_bridge_address(home: &Path) -> Result<SocketAddr, ClientError> {
    let path = home.join(lock::FILE);
    let not = |why: &str| {
        Err(ClientError::NotRunning(format!(
            "{}: {why}",
            path.display()
        )))
    };
    match LockFile::read(home) {
        Ok(lock) if lock.is_alive(lock::now()) => Ok(lock.address.into()),
        Ok(_) => not("it is left of a bridge that is gone"),
        Err(error) => not(&error.to_string()),
    }
}

/// The address of the bridge for a home, which is started where none runs: `chibi-mcp-bridge`
/// beside this program, or on `PATH`, in a session of its own. Waits up to 10 s for it; of many
/// callers one starts it.
///
/// # Errors
/// [`ClientError::NotStarted`], with what the bridge said; [`ClientError::Io`].
pub fn ensure_bridge_running(home: &Path) -> Result<SocketAddr, ClientError> {
    if let Ok(address) = read_bridge_address(home) {
        return Ok(address);
    }
    let home = std::path::absolute(home).map_err(ClientError::io(home.display().to_string()))?;
    let mut make = DirBuilder::new();
    let made = make.recursive(true).mode(0o700).create(&home);
    made.map_err(ClientError::io(home.display().to_string()))?;
    let until = Instant::now() + START_LIMIT;
    let mut own: Option<(Starting, Child)> = None;
    loop {
        if let Ok(address) = read_bridge_address(&home) {
            if let Some((_, mut bridge)) = own {
                // Whoever embeds this need not know of the process: it is waited for when it ends.
                std::thread::spawn(move || bridge.wait());
            }
            return Ok(address);
        }
        match &mut own {
            None => {
                if let Some(turn) = Starting::begin(&home)? {
                    own = Some((turn, start(&home)?));
                }
            }
            Some((_, bridge)) => {
                // Where another was faster, it ends, and the other's address is there.
                if let Ok(Some(status)) = bridge.try_wait()
                    && read_bridge_address(&home).is_err()
                {
                    return Err(ClientError::NotStarted(format!(
                        "it ended with {status}{}",
                        last_words(&home)
                    )));
                }
            }
        }
        if Instant::now() >= until {
            let why = match own {
                Some(_) => format!(
                    "it did not listen within {} s{}",
                    START_LIMIT.as_secs(),
                    last_words(&home)
                ),
                None => format!(
                    "{} says that another program is starting it",
                    home.join(STARTING).display()
                ),
            };
            return Err(ClientError::NotStarted(why));
        }
        std::thread::sleep(PAUSE);
    }
}

/// The lock for starting the bridge: while it is there, nobody else starts one.
struct Starting(PathBuf);

impl Starting {
    /// `None`: somebody else has it.
    fn begin(home: &Path) -> Result<Option<Starting>, ClientError> {
        let path = home.join(STARTING);
        let failed = |source| ClientError::io(path.display().to_string())(source);
        let is_orphan =
            |path: &Path| match fs::symlink_metadata(path).and_then(|facts| facts.modified()) {
                Ok(made) => made.elapsed().unwrap_or_else(|ahead| ahead.duration()) > ORPHAN,
                Err(_) => false,
            };
        if is_orphan(&path) {
            fs::remove_file(&path).or_else(absent).map_err(failed)?;
        }
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
        {
            Ok(_) => Ok(Some(Starting(path))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // Left behind, it is an orphan a minute later.
        let _ = fs::remove_file(&self.0);
    }
}

fn absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// Starts the bridge; what it says goes to a file.
fn start(home: &Path) -> Result<Child, ClientError> {
    let program = program().ok_or_else(|| {
        ClientError::NotStarted(format!(
            "there is no {PROGRAM} beside this program nor on PATH"
        ))
    })?;
    let path = home.join(LOG);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let log = options.custom_flags(libc::O_NOFOLLOW).open(&path);
    let log = log.map_err(ClientError::io(path.display().to_string()))?;
    let mut command = Command::new(&program);
    command.env("CHIBI_HOME", home).current_dir(home);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    sys::detach(&mut command);
    command
        .spawn()
        .map_err(ClientError::io(program.display().to_string()))
}

/// The bridge's program. A relative part of `PATH` is somebody's project.
fn program() -> Option<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| own.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = beside
        .into_iter()
        .chain(std::env::split_paths(&path))
        .collect();
    let absolute = places.into_iter().filter(|place| place.is_absolute());
    absolute
        .map(|place| place.join(PROGRAM))
        .find(|path| path.is_file())
}

/// The last words of the bridge, for an error.
fn last_words(home: &Path) -> String {
    let mut text = String::new();
    // What cannot be read is not shown.
    let _ =
        File::open(home.join(LOG)).and_then(|file| file.take(64 << 10).read_to_string(&mut text));
    text.lines()
        .last()
        .map(|line| format!(": {line}"))
        .unwrap_or_default()
}

/// Sends one request, a JSON object in one line, and waits up to 30 s for the answer. Before the
/// first byte it looks up in the system's table whose the listener is.
///
/// # Errors
/// [`ClientError::NotOurs`]: it is not this user's, and nothing was sent. [`ClientError::TimedOut`], [`ClientError::Io`],
/// [`ClientError::Unreadable`].
pub fn send_request(addr: SocketAddr, text: &str) -> Result<String, ClientError> {
    send_within(
        addr,
        text,
        Duration::from_secs(lock::ANSWER_SECS) + ANSWER_MARGIN,
    )
}

/// The same with another limit.
fn send_within(addr: SocketAddr, text: &str, limit: Duration) -> Result<String, ClientError> {
    let until = Instant::now() + limit;
    let doing = |what: &str| format!("{what} the bridge at {addr}");
    let SocketAddr::V4(address) = addr else {
        let source = peer::PeerError::Unseen;
        return Err(ClientError::NotOurs {
            address: addr,
            source,
        });
    };
    let mut stream = TcpStream::connect_timeout(&addr, SEND_LIMIT)
        .map_err(ClientError::io(doing("connecting to")))?;
    let own = match stream
        .local_addr()
        .map_err(ClientError::io(doing("connecting to")))?
    {
        SocketAddr::V4(own) => own,
        SocketAddr::V6(_) => {
            return Err(ClientError::NotOurs {
                address: addr,
                source: peer::PeerError::Unseen,
            });
        }
    };
    peer::check_listener(address, own).map_err(|source| ClientError::NotOurs {
        address: addr,
        source,
    })?;
    let limited = stream.set_write_timeout(Some(SEND_LIMIT));
    limited.map_err(ClientError::io(doing("asking")))?;
    let sent = stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.shutdown(Shutdown::Write));
    let answer = read_answer(&mut stream, until)
        .map_err(ClientError::io(doing("waiting for the answer of")))?;
    // A bridge that refuses a request need not read all of it.
    match sent {
        Err(source) if answer.is_empty() => Err(ClientError::io(doing("asking"))(source)),
        _ => Ok(answer),
    }
}

fn read_answer(stream: &mut TcpStream, until: Instant) -> io::Result<String> {
    let mut answer = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) if (answer.len() + length) as u64 > MAX_ANSWER => {
                return Err(io::Error::other("it is over 64 MiB"));
            }
            Ok(length) => answer.extend_from_slice(piece.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An answer that is whole is one, however its connection ends.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !answer.is_empty() => {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(answer)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Sends a request to the bridge of a home; the answer, if it is no failure.
fn ask(home: &Path, request: &Value) -> Result<Value, ClientError> {
    let address = ensure_bridge_running(home)?;
    // It ran just now; should it be gone, so is its lock.
    let limit = LockFile::read(home).map_or(lock::ANSWER_SECS, |lock| lock.answer_secs);
    let text = send_within(
        address,
        &request.to_string(),
        Duration::from_secs(limit) + ANSWER_MARGIN,
    )?;
    let answer: Value = serde_json::from_str(&text)
        .map_err(|error| ClientError::Unreadable(format!("the bridge's: {error}")))?;
    match (answer["ok"].as_bool(), answer["error"].as_str()) {
        (Some(true), _) => Ok(answer),
        (Some(false), Some(said)) => Err(ClientError::Refused(said.to_owned())),
        _ => Err(ClientError::Unreadable(
            "the bridge's says neither ok nor error".to_owned(),
        )),
    }
}

/// The tools of a home's bridge, which is started where it does not run. Without an
/// `mcp-bridge.toml`, and where no daemon is expected ([`Daemon::expected_socket`]), there are
/// none, and nothing is started.
///
/// One line on standard error says how many there are, `[MCP: N tools loaded]`, or why there are
/// none, `[MCP: bridge unavailable: …]`: no reason for a program to end, so an error may be
/// dropped. Further lines, `[MCP: server X: …]`, say of servers why their tools are not among them.
///
/// # Errors
/// Those of [`ensure_bridge_running`] and [`send_request`]; [`ClientError::Refused`].
pub fn load_mcp_tools(home: &Path) -> Result<Vec<McpTool>, ClientError> {
    load_tools(home, Daemon::expected_socket().as_deref())
}

fn load_tools(home: &Path, daemon: Option<&Path>) -> Result<Vec<McpTool>, ClientError> {
    if !home.join(CONFIGURATION).exists() && daemon.is_none() {
        return Ok(Vec::new());
    }
    let answer = ask(home, &json!({ "op": "list_tools" }));
    let loaded = answer.and_then(|answer| Ok((read_tools(&answer)?, notes(&answer))));
    let lines = match &loaded {
        Ok((tools, notes)) => format!("[MCP: {} tools loaded]\n{notes}", tools.len()),
        Err(error) => format!("[MCP: bridge unavailable: {error}]\n"),
    };
    // Where nobody reads it, the tools are there all the same.
    let _ = io::stderr().write_all(lines.as_bytes());
    loaded.map(|(tools, _)| tools)
}

/// The bridge's notes, a line each.
fn notes(answer: &Value) -> String {
    let notes = answer["notes"].as_array().into_iter().flatten();
    let lines = notes.filter_map(Value::as_str).map(|note| {
        let note: String = note
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        format!("[MCP: {note}]\n")
    });
    lines.collect()
}

fn read_tools(answer: &Value) -> Result<Vec<McpTool>, ClientError> {
    let unreadable = || ClientError::Unreadable("the bridge's list is none of tools".to_owned());
    let tools = answer["tools"].as_array().ok_or_else(unreadable)?;
    let tool = |tool: &Value| {
        let text = |key: &str| tool[key].as_str();
        let parameters = tool["parameters"].clone();
        Some(mcp_tool_from_info(
            text("server")?,
            text("name")?,
            text("description")?,
            parameters,
        ))
    };
    tools
        .iter()
        .map(tool)
        .collect::<Option<_>>()
        .ok_or_else(unreadable)
}

/// Calls a tool through the bridge of a home, which is started where it does not run. What the tool
/// said, as text.
///
/// # Errors
/// [`ClientError::NotATool`]; [`ClientError::Refused`]: the tool or the bridge says that it failed;
/// those of [`ensure_bridge_running`] and [`send_request`].
pub fn execute_mcp_tool(tool: &McpTool, args: &Value, home: &Path) -> Result<String, ClientError> {
    let (server, name) =
        parse_mcp_path(&tool.path).ok_or_else(|| ClientError::NotATool(tool.path.clone()))?;
    let answer = ask(
        home,
        &json!({ "op": "call_tool", "server": server, "tool": name, "args": args }),
    )?;
    let result = answer["result"].as_str().map(str::to_owned);
    result.ok_or_else(|| ClientError::Unreadable("the bridge's has no result".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn home() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    /// A bridge that answers one request, and tells what it was.
    fn bridge(home: &Path, answer: Value) -> std::thread::JoinHandle<Value> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else {
            panic!()
        };
        let (pid, now) = (std::process::id(), lock::now());
        let lock = LockFile {
            pid,
            address,
            started: now,
            timestamp: Some(now),
            answer_secs: 27,
        };
        fs::write(home.join(lock::FILE), lock.text()).unwrap();
        fs::write(home.join(CONFIGURATION), "").unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            stream.read_to_string(&mut request).unwrap();
            stream.write_all(answer.to_string().as_bytes()).unwrap();
            serde_json::from_str(&request).unwrap()
        })
    }

    #[test]
    fn without_a_configuration_and_a_service_there_are_no_tools_and_nothing_is_started() {
        let home = home();
        assert!(load_tools(home.path(), None).unwrap().is_empty());
        assert!(fs::read_dir(home.path()).unwrap().next().is_none());
    }

    #[test]
    fn tools_are_loaded_and_called() {
        let home = home();
        let info = json!({ "server": "s", "name": "greet", "description": "Greets.", "parameters": { "type": "object" } });
        let asked = bridge(home.path(), json!({ "ok": true, "tools": [info] }));
        let tools = load_mcp_tools(home.path()).unwrap();
        assert_eq!(asked.join().unwrap(), json!({ "op": "list_tools" }));
        assert_eq!((tools.len(), tools[0].name.as_str()), (1, "s_greet"));

        let asked = bridge(home.path(), json!({ "ok": true, "result": "hello" }));
        let args = json!({ "name": "world" });
        assert_eq!(
            execute_mcp_tool(&tools[0], &args, home.path()).unwrap(),
            "hello"
        );
        let wanted = json!({ "op": "call_tool", "server": "s", "tool": "greet", "args": args });
        assert_eq!(asked.join().unwrap(), wanted);

        let asked = bridge(
            home.path(),
            json!({ "ok": false, "error": "tool error: no" }),
        );
        let error = execute_mcp_tool(&tools[0], &args, home.path()).unwrap_err();
        asked.join().unwrap();
        assert!(
            matches!(&error, ClientError::Refused(said) if said == "tool error: no"),
            "{error}"
        );
        for strange in [
            json!({ "ok": true }),
            json!([]),
            json!({ "ok": true, "tools": [{ "name": 1 }] }),
        ] {
            let asked = bridge(home.path(), strange);
            assert!(matches!(
                load_mcp_tools(home.path()),
                Err(ClientError::Unreadable(_))
            ));
            asked.join().unwrap();
        }
        let elsewhere = McpTool {
            path: "/bin/true".to_owned(),
            ..tools[0].clone()
        };
        assert!(matches!(
            execute_mcp_tool(&elsewhere, &args, home.path()),
            Err(ClientError::NotATool(_))
        ));
    }

    #[test]
    fn a_listener_that_may_be_anybodys_is_sent_nothing() {
        // Whoever listens at every address has what nobody has at this one.
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = send_request(SocketAddr::from(([127, 0, 0, 1], port)), "secret").unwrap_err();
        assert!(matches!(error, ClientError::NotOurs { .. }), "{error}");
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = String::new();
        stream.read_to_string(&mut got).unwrap();
        assert_eq!(got, "");
        let v6 = send_request("[::1]:1".parse().unwrap(), "secret").unwrap_err();
        assert!(matches!(v6, ClientError::NotOurs { .. }), "{v6}");
    }

    #[test]
    fn a_lock_without_a_bridge_is_no_address() {
        let home = home();
        let said = |home: &Path| read_bridge_address(home).unwrap_err().to_string();
        assert!(
            said(home.path()).contains("mcp-bridge.lock"),
            "{}",
            said(home.path())
        );
        let address = "127.0.0.1:9".parse().unwrap();
        let old = LockFile {
            pid: std::process::id(),
            address,
            started: 1,
            timestamp: Some(1),
            answer_secs: 27,
        };
        fs::write(home.path().join(lock::FILE), old.text()).unwrap();
        assert!(said(home.path()).contains("gone"));
        let now = LockFile {
            timestamp: Some(lock::now()),
            ..old
        };
        fs::write(home.path().join(lock::FILE), now.text()).unwrap();
        assert_eq!(
            read_bridge_address(home.path()).unwrap(),
            SocketAddr::from(address)
        );
        // What somebody linked there is not read.
        let elsewhere = home.path().join("elsewhere");
        fs::rename(home.path().join(lock::FILE), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, home.path().join(lock::FILE)).unwrap();
        assert!(matches!(
            read_bridge_address(home.path()),
            Err(ClientError::NotRunning(_))
        ));
    }

    #[test]
    fn one_starts_the_bridge_and_who_is_gone_starts_none() {
        let home = home();
        let turn = Starting::begin(home.path()).unwrap().unwrap();
        assert!(Starting::begin(home.path()).unwrap().is_none());
        drop(turn);
        let turn = Starting::begin(home.path()).unwrap().unwrap();
        std::mem::forget(turn);
        let left = File::options()
            .write(true)
            .open(home.path().join(STARTING))
            .unwrap();
        left.set_modified(std::time::SystemTime::now() - Duration::from_secs(59))
            .unwrap();
        assert!(Starting::begin(home.path()).unwrap().is_none());
        left.set_modified(std::time::SystemTime::now() - Duration::from_secs(61))
            .unwrap();
        assert!(Starting::begin(home.path()).unwrap().is_some());
    }
}

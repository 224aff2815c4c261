//! A real installation for the tests: user and groups, the binary set-user-ID root, policy and
//! registry at the paths that the helper trusts, a syslog socket. The paths are the machine's own,
//! so one test at a time has them, across all test programs; what was there before comes back
//! afterwards.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and their names say what they are"
)]

pub mod sys;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::{PATIENCE, copy_program, program};

pub const HELPER: &str = "/usr/local/libexec/colibri-jail-helper";
pub const CONFIG: &str = "/usr/local/etc/colibri";
pub const STATE: &str = "/run/colibri-jail";
pub const ROOTS: &str = "/usr/local/colibri-test-roots";
/// The directory of the daemon's socket, where doors are; `/var/run` leads there.
pub const RUN: &str = "/run/colibri";
pub const SERVER_UID: u32 = 7871;
pub const OTHER_UID: u32 = 7872;

// What the helper exits with: sysexits(3).
pub const USAGE: i32 = 64;
pub const SYSTEM: i32 = 71;
pub const LIMIT: i32 = 69;
pub const LATER: i32 = 75;
pub const POLICY: i32 = 77;
pub const FILE: i32 = 78;

/// The installation. Dropping it takes everything away again.
pub struct Installed {
    _lock: Flock<fs::File>,
    pub caller: u32,
    pub group: u32,
    syslog: PathBuf,
    lines: Receiver<String>,
    markers: u32,
    moved: Vec<(PathBuf, PathBuf)>,
}

/// One call of the helper, as the caller makes it unless something else is said.
pub struct Call {
    pub command: Command,
    stdin: Option<Vec<u8>>,
}

/// An agent's door.
pub struct Door {
    pub directory: PathBuf,
    pub listener: UnixListener,
}

/// What came of a call.
#[derive(Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Outcome {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// A fresh session id.
pub fn session() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{:08x}{:08x}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

impl Installed {
    /// Installs, as root.
    pub fn set_up() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "this needs root");
        let lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open("/tmp/colibri-installed.lock")
            .unwrap();
        let lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
        let group = group("colibri");
        let caller = user("colibri", group);
        let mut moved = Vec::new();
        for path in [CONFIG, HELPER, "/dev/log", RUN] {
            let aside = PathBuf::from(format!("{path}.before-test"));
            if !aside.exists() && fs::symlink_metadata(path).is_ok() {
                fs::rename(path, &aside).unwrap();
            } else {
                remove(Path::new(path));
            }
            moved.push((PathBuf::from(path), aside));
        }
        fs::create_dir_all("/usr/local/libexec").unwrap();
        install(
            &program("colibri-jail-helper"),
            Path::new(HELPER),
            group,
            0o4550,
        );
        fs::DirBuilder::new().mode(0o755).create(CONFIG).unwrap();
        let secrets = format!("{CONFIG}/secrets");
        fs::DirBuilder::new().mode(0o700).create(secrets).unwrap();
        fs::DirBuilder::new().mode(0o750).create(RUN).unwrap();
        chown(RUN, Some(caller), Some(self::group("mcpusers"))).unwrap();
        let syslog = PathBuf::from("/dev/log");
        let socket = UnixDatagram::bind(&syslog).unwrap();
        fs::set_permissions(&syslog, fs::Permissions::from_mode(0o666)).unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || listen(&socket, &sender));
        remove(Path::new(ROOTS));
        remove(Path::new(STATE));
        let installed = Self {
            _lock: lock,
            caller,
            group,
            syslog,
            lines,
            markers: 0,
            moved,
        };
        installed.make_root("one");
        installed.make_root("two");
        installed.write_policy(&installed.policy());
        installed.write_registry(&default_registry("[\"echo\"]"));
        installed
    }

    /// A root directory with the inmate, its libraries, and the mount points.
    pub fn make_root(&self, name: &str) -> PathBuf {
        let root = Path::new(ROOTS).join(name);
        for directory in ["bin", "dev", "tmp", "work", "var/run/colibri"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        put_program(&program("inmate"), &root, "bin/inmate");
        root
    }

    pub fn policy(&self) -> String {
        format!(
            r#"{{"caller":"colibri","audit":"require","servers":["one","two"],"max":60,"max_per_server":55,
              "starts_per_minute":10000,"ephemeral":["{ROOTS}/one","{ROOTS}/two"],"persistent":["build0"],
              "users":{{"one":{{"uid":{SERVER_UID},"gid":{SERVER_UID}}},"two":{{"uid":{OTHER_UID},"gid":{OTHER_UID}}}}},
              "network":["192.0.2.7","loopback"],
              "mounts":[{{"path":"/usr/local/colibri-test-shared","owner":{SERVER_UID},"at":"/work","write":true,"bounded":false}}],
              "allow":[],
              "limits":{{"memory":"1G","processes":40,"open_files":64,"file_size":"8M","tmp":"2M"}}}}"#
        )
    }

    pub fn write_policy(&self, text: &str) {
        self.write("jail-policy.json", text.as_bytes(), 0o644);
    }

    /// A client policy by which everybody may do everything, and start as many jailed servers as
    /// they will.
    pub fn write_open_clients(&self) {
        let text = r#"{"limits":{"starts_per_user":0},
            "others":{"gates":["write","external-call"],"servers":{"*":["*"]},"operator":true}}"#;
        self.write("clients.json", text.as_bytes(), 0o644);
    }

    pub fn write_registry(&self, text: &str) {
        self.write("external-mcp.json", text.as_bytes(), 0o640);
    }

    pub fn write(&self, name: &str, bytes: &[u8], mode: u32) {
        let path = Path::new(CONFIG).join(name);
        remove(&path);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .unwrap();
        file.write_all(bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(
            &path,
            Some(0),
            Some(if name == "external-mcp.json" {
                self.group
            } else {
                0
            }),
        )
        .unwrap();
    }

    /// A call with these arguments, as the policy's caller, on pipes, with no environment.
    pub fn call(&self, args: &[&str]) -> Call {
        let mut call = self.call_as(self.caller, self.group, &[]);
        call.command.args(args);
        call
    }

    /// A call by root.
    pub fn call_root(&self, args: &[&str]) -> Call {
        let mut call = self.call_as(0, 0, &[]);
        call.command.args(args);
        call
    }

    pub fn call_as(&self, uid: u32, gid: u32, groups: &'static [libc::gid_t]) -> Call {
        let mut command = Command::new(HELPER);
        command
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        sys::before_exec(&mut command, move || {
            sys::groups(groups);
            sys::become_user(uid, gid);
        });
        Call {
            command,
            stdin: None,
        }
    }

    /// `run` of a server in a new session, with the digest that the registry has now.
    pub fn run(&self, server: &str) -> (Call, String) {
        let session = session();
        let digest = self.digest(server);
        (
            self.call(&["run", "--session", &session, "--digest", &digest, server]),
            session,
        )
    }

    pub fn digest(&self, server: &str) -> String {
        let text = fs::read(format!("{CONFIG}/external-mcp.json")).unwrap_or_default();
        let registry = colibri_registry::Registry::parse(&text, "r");
        registry
            .ok()
            .and_then(|r| {
                let of_server = r.servers.get(server).map(|e| e.digest.clone());
                of_server.or_else(|| r.agents.get(server).map(|a| a.digest.clone()))
            })
            .unwrap_or("0".repeat(64))
    }

    /// The door of a session as the daemon makes it, with one socket, on which the test listens.
    pub fn door(&self, session: &str) -> Door {
        let directory = Path::new(RUN).join("doors").join(session);
        let make = |path: &Path, mode| {
            if !path.exists() {
                fs::DirBuilder::new().mode(mode).create(path).unwrap();
                chown(path, Some(self.caller), Some(self.group)).unwrap();
            }
        };
        make(directory.parent().unwrap(), 0o700);
        make(&directory, 0o755);
        let listener = self.listen_in(&directory, "colibri.sock");
        Door {
            directory,
            listener,
        }
    }

    /// A socket that everybody may connect to, the caller's.
    pub fn listen_in(&self, directory: &Path, name: &str) -> UnixListener {
        let path = directory.join(name);
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        chown(&path, Some(self.caller), Some(self.group)).unwrap();
        listener
    }

    /// `run` of an agent in a new session, with its door.
    pub fn run_agent(&self, agent: &str) -> (Call, String, Door) {
        let (call, session) = self.run(agent);
        let door = self.door(&session);
        (call, session, door)
    }

    /// The audit lines that came since the last look. A marker goes through the same socket, so
    /// that all are here. What others have to say to the machine's syslogd, daemons for one, is
    /// left out.
    pub fn audit(&mut self) -> Vec<String> {
        self.markers += 1;
        let marker = format!("marker {}", self.markers);
        UnixDatagram::unbound()
            .unwrap()
            .send_to(marker.as_bytes(), &self.syslog)
            .unwrap();
        let mut lines = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap();
            if line == marker {
                return lines;
            }
            if line.contains(">colibri-jail-helper[") {
                lines.push(line);
            }
        }
    }

    /// Asserts that a call was refused: this exit code, one line on stderr with this word, nothing
    /// on stdout, one audit line, nothing left.
    pub fn assert_refused(&mut self, what: &str, mut call: Call, exit: i32, word: &str) -> Outcome {
        self.audit();
        let outcome = call.finish();
        self.assert_refusal(what, &outcome, exit, word);
        outcome
    }

    pub fn assert_refusal(&mut self, what: &str, outcome: &Outcome, exit: i32, word: &str) {
        assert_eq!(outcome.code(), Some(exit), "{what}: {outcome:?}");
        assert_eq!(
            outcome.stderr.matches('\n').count(),
            1,
            "{what}: one line: {outcome:?}"
        );
        assert!(
            outcome.stderr.starts_with("helper: ") && outcome.stderr.contains(word),
            "{what}: {outcome:?}"
        );
        assert!(outcome.stdout.is_empty(), "{what}: nothing on stdout");
        let audit = self.audit();
        assert_eq!(audit.len(), 1, "{what}: one audit line: {audit:?}");
        assert!(
            audit[0].contains("event=refuse") && audit[0].contains(&format!("exit={exit}")),
            "{what}: {audit:?}"
        );
        assert!(
            audit[0].bytes().all(|b| (b' '..=b'~').contains(&b)),
            "{what}: {audit:?}"
        );
        self.assert_nothing_left(what);
    }

    /// No instance, no mount, no process of a server.
    pub fn assert_nothing_left(&self, what: &str) {
        let mut sessions: Vec<String> = names_in(STATE);
        sessions.retain(|name| name.len() == 16);
        assert!(sessions.is_empty(), "{what}: left {sessions:?}");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(
            !mounts.contains("colibri-jail"),
            "{what}: left a mount: {mounts}"
        );
        assert_eq!(
            processes_of(&[SERVER_UID, OTHER_UID]),
            Vec::<i32>::new(),
            "{what}: left processes"
        );
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        for pid in processes_of(&[SERVER_UID, OTHER_UID]) {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(pid),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
        // A process takes its time to die: a gigabyte has to be given back first.
        let deadline = Instant::now() + PATIENCE;
        while !processes_of(&[SERVER_UID, OTHER_UID]).is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        remove(Path::new(ROOTS));
        remove(Path::new(STATE));
        for (path, aside) in self.moved.drain(..) {
            remove(&path);
            if aside.exists() {
                let _ = fs::rename(aside, path);
            }
        }
    }
}

impl Call {
    /// Writes this to the server's stdin before closing it.
    pub fn with_stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin = Some(bytes.to_vec());
        self
    }

    /// Runs `prepare` in the child, after its ids are set.
    pub fn prepared(mut self, prepare: impl Fn() + Send + Sync + 'static) -> Self {
        sys::before_exec(&mut self.command, prepare);
        self
    }

    /// Starts the helper, closes its stdin, and waits for it and for the ends of its pipes.
    pub fn finish(&mut self) -> Outcome {
        let mut child = self.command.spawn().unwrap();
        let input = self.stdin.take();
        let stdin = child.stdin.take();
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            let _ = stdin.write_all(&input);
        }
        outcome(child)
    }

    /// Starts the helper and leaves it running.
    pub fn start(mut self) -> Running {
        let mut child = self.command.spawn().unwrap();
        let stdin = child.stdin.take();
        Running {
            child: Some(child),
            stdin,
            seen: Vec::new(),
        }
    }
}

/// A helper that runs.
pub struct Running {
    pub child: Option<Child>,
    pub stdin: Option<ChildStdin>,
    seen: Vec<u8>,
}

impl Running {
    pub fn pid(&self) -> i32 {
        self.child.as_ref().unwrap().id() as i32
    }

    /// The supervisor: the only child of the outer process.
    pub fn supervisor(&self) -> i32 {
        children_of(self.pid())[0]
    }

    /// Reads stdout until `text` has come.
    pub fn await_output(&mut self, text: &str) -> String {
        let stdout = self.child.as_mut().unwrap().stdout.as_mut().unwrap();
        let mut byte = [0; 4096];
        loop {
            let seen = String::from_utf8_lossy(&self.seen).into_owned();
            if seen.contains(text) {
                return seen;
            }
            let n = stdout.read(&mut byte).unwrap();
            if n == 0 {
                let mut stderr = String::new();
                let _ = self
                    .child
                    .as_mut()
                    .unwrap()
                    .stderr
                    .as_mut()
                    .unwrap()
                    .read_to_string(&mut stderr);
                panic!("ended before {text:?}: {seen:?} {stderr:?}");
            }
            self.seen.extend_from_slice(&byte[..n]);
        }
    }

    pub fn send(&mut self, text: &str) {
        self.stdin
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    /// Closes stdin and waits.
    pub fn end(mut self) -> Outcome {
        self.stdin.take();
        outcome(self.child.take().unwrap())
    }

    /// Waits with stdin open.
    pub fn wait(mut self) -> Outcome {
        let _open = self.stdin.take();
        outcome(self.child.take().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            self.stdin.take();
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for a helper and reads its pipes to their ends, both at once.
fn outcome(mut child: Child) -> Outcome {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.as_mut().map(|s| s.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut output = Vec::new();
    if let Some(stdout) = stdout.as_mut() {
        stdout.read_to_end(&mut output).unwrap();
    }
    let status = child.wait().unwrap();
    Outcome {
        status,
        stdout: output,
        stderr: errors.join().unwrap(),
    }
}

/// A registry with `one` and `two`, both the inmate, with these arguments.
pub fn default_registry(args: &str) -> String {
    format!(
        r#"{{"servers":{{
          "one":{{"command":"/bin/inmate","args":{args},"jail":{{"path":"{ROOTS}/one"}}}},
          "two":{{"command":"/bin/inmate","args":["echo"],"jail":{{"path":"{ROOTS}/two"}}}} }}}}"#
    )
}

/// A registry with the agent `one` alone: the inmate with these arguments, and these more keys in
/// its entry.
pub fn agent_of(args: &str, keys: &str) -> String {
    format!(
        r#"{{"agents":{{"one":{{"command":"/bin/inmate","args":{args},"jail":{{"path":"{ROOTS}/one"}}{keys}}}}}}}"#
    )
}

/// The key of an agent that has a model, and so a loopback interface.
pub const MODEL: &str = r#","model":{"url":"https://api.example","api":"anthropic"}"#;

/// A registry with `one` alone, whose entry is this.
pub fn registry_of(entry: &str) -> String {
    format!(r#"{{"servers":{{"one":{entry}}}}}"#)
}

/// Waits until `done`, looking again and again: for states of the system that nothing announces.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn names_in(path: &str) -> Vec<String> {
    fs::read_dir(path)
        .map(|dir| {
            dir.flatten()
                .filter_map(|e| e.file_name().into_string().ok())
                .collect()
        })
        .unwrap_or_default()
}

fn status_field(pid: &str, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1).map(str::to_owned)
}

/// The live processes whose real uid is one of these.
pub fn processes_of(uids: &[u32]) -> Vec<i32> {
    names_in("/proc")
        .into_iter()
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        .filter(|pid| {
            status_field(pid, "Uid:").is_some_and(|uid| uids.iter().any(|u| u.to_string() == uid))
        })
        .filter(|pid| status_field(pid, "State:").is_some_and(|state| state != "Z" && state != "X"))
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

pub fn children_of(pid: i32) -> Vec<i32> {
    names_in("/proc")
        .into_iter()
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        .filter(|name| status_field(name, "PPid:").is_some_and(|parent| parent == pid.to_string()))
        .filter_map(|name| name.parse().ok())
        .collect()
}

pub fn resident_kib(pid: i32) -> u64 {
    status_field(&pid.to_string(), "VmRSS:")
        .and_then(|kib| kib.parse().ok())
        .unwrap()
}

fn listen(socket: &UnixDatagram, lines: &Sender<String>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n) = socket.recv(&mut buffer) {
        if lines
            .send(String::from_utf8_lossy(&buffer[..n]).into_owned())
            .is_err()
        {
            return;
        }
    }
}

/// Removes a file, a symlink or a tree; what is not there is removed already.
pub fn remove(path: &Path) {
    if let Ok(found) = fs::symlink_metadata(path) {
        if found.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }
}

pub fn install(from: &Path, to: &Path, group: u32, mode: u32) {
    remove(to);
    copy_program(from, to);
    chown(to, Some(0), Some(group)).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).unwrap();
}

/// Copies a program into a root, with its libraries.
pub fn put_program(program: &Path, root: &Path, at: &str) {
    copy(program, &root.join(at));
    let listed = Command::new("ldd").arg(program).output().unwrap();
    for word in String::from_utf8(listed.stdout)
        .unwrap()
        .split_whitespace()
        .filter(|w| w.starts_with('/'))
    {
        copy(Path::new(word), &root.join(&word[1..]));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    copy_program(from, to);
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
}

fn id_in(file: &str, name: &str) -> Option<u32> {
    let text = fs::read_to_string(file).unwrap();
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

/// The number of a system group, which is made if there is none.
pub fn group(name: &str) -> u32 {
    if id_in("/etc/group", name).is_none() {
        assert!(
            Command::new("groupadd")
                .args(["-r", name])
                .status()
                .unwrap()
                .success()
        );
    }
    id_in("/etc/group", name).unwrap()
}

/// The number of a system user, who is made if there is none.
pub fn user(name: &str, group: u32) -> u32 {
    if id_in("/etc/passwd", name).is_none() {
        let args = [
            "-r",
            "-M",
            "-d",
            "/nonexistent",
            "-s",
            "/usr/sbin/nologin",
            "-g",
            &group.to_string(),
            name,
        ];
        assert!(
            Command::new("useradd")
                .args(args)
                .status()
                .unwrap()
                .success()
        );
    }
    id_in("/etc/passwd", name).unwrap()
}

/// A link, for paths under test.
pub fn link(to: &str, at: &Path) {
    symlink(to, at).unwrap();
}

/// An owned descriptor as a child's standard stream.
pub fn stream(fd: impl Into<OwnedFd>) -> Stdio {
    Stdio::from(fd.into())
}

/// Writes to a pipe until it is full.
pub fn fill(writer: &std::io::PipeWriter) {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while nix::unistd::write(writer, &[b'x'; 4096]).is_ok() {}
    while nix::unistd::write(writer, b"x").is_ok() {}
    fcntl(writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
}

//! A private daemon: its own directory, registry, socket and state, and the check at its end that
//! nothing is left.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::client::{Client, Era};
use crate::http::Http;
use crate::{copy_program, processes_with, program, wait_for};

/// Where a daemon lives. It outlasts the daemon, so that another can be started on the same state.
pub struct Place {
    directory: tempfile::TempDir,
    daemon: Option<PathBuf>,
    user: Option<u32>,
}

impl Place {
    /// A new directory, empty but for a registry without servers.
    ///
    /// # Panics
    /// If it cannot be made.
    #[expect(clippy::new_without_default, reason = "a place is made on purpose")]
    pub fn new() -> Place {
        let directory = tempfile::Builder::new().prefix("colibri-e2e-").tempdir();
        let place = Place {
            directory: directory.expect("a temporary directory"),
            daemon: None,
            user: None,
        };
        fs::create_dir(place.path("frames")).expect("a directory for frames");
        place.registry(&json!({}));
        place
    }

    /// A place with one server, the fixture with these arguments and keys of its entry, called
    /// `fix`.
    pub fn of_fixture(args: &[&str], more: Value) -> Place {
        let place = Place::new();
        place.registry(&json!({ "fix": place.fixture("fix", args, more) }));
        place
    }

    /// An empty one, with this program as its daemon: one that runs the daemon's library.
    pub fn with_daemon(daemon: PathBuf) -> Place {
        Place {
            daemon: Some(daemon),
            ..Place::new()
        }
    }

    /// An empty one whose daemon is this user's; of who runs the test if there is none.
    ///
    /// # Panics
    /// If the program cannot be copied to where that user reaches it.
    pub fn of_user(user: Option<u32>) -> Place {
        let mut place = Place::new();
        if user.is_some() {
            let copy = place.path("colibri-mcpd");
            copy_program(&program("colibri-mcpd"), &copy);
            place.daemon = Some(copy);
            place.user = user;
        }
        place
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The socket's path.
    pub fn socket(&self) -> PathBuf {
        self.path("colibri.sock")
    }

    /// What every process of this daemon has in its command line.
    fn mark(&self) -> String {
        self.directory.path().display().to_string()
    }

    /// A registry entry for the fixture server, which keeps its record under the name `as`. `args`
    /// are more of its arguments (see the fixture), `more` further keys of the entry.
    pub fn fixture(&self, name: &str, args: &[&str], more: Value) -> Value {
        let mut all = vec![
            "--dir".to_owned(),
            self.mark(),
            "--as".to_owned(),
            name.to_owned(),
        ];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        let mut entry = json!({ "command": program("fixture-server"), "args": all });
        for (key, value) in more.as_object().into_iter().flatten() {
            entry[key] = value.clone();
        }
        entry
    }

    /// A registry entry for the library server, which speaks this version, and has and answers what
    /// `says` says (see the fixture). `more` are further keys of the entry.
    ///
    /// # Panics
    /// If what it says cannot be written.
    pub fn library(&self, name: &str, speak: &str, more: Value, says: &Value) -> Value {
        fs::write(self.path(&format!("{name}.json")), says.to_string())
            .expect("what a server says");
        let args = ["--dir", &self.mark(), "--as", name, "--speak", speak];
        let mut entry = json!({ "command": program("library-server"), "args": args });
        for (key, value) in more.as_object().into_iter().flatten() {
            entry[key] = value.clone();
        }
        entry
    }

    /// Writes the registry with these servers.
    pub fn registry(&self, servers: &Value) {
        self.registry_text(&json!({ "servers": servers }).to_string());
    }

    /// Adds a server `brief`, whose process ends once it was idle for a second, to the registry.
    ///
    /// # Panics
    /// If there is no registry.
    pub fn add_brief(&self) {
        let text = fs::read(self.path("external-mcp.json")).expect("the registry");
        let mut registry: Value = serde_json::from_slice(&text).expect("the registry");
        registry["servers"]["brief"] = self.fixture("brief", &[], json!({ "idle_timeout_s": 1 }));
        self.registry_text(&registry.to_string());
    }

    /// Writes the registry as it stands here.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn registry_text(&self, text: &str) {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = file
            .open(self.path("external-mcp.json"))
            .expect("the registry");
        file.write_all(text.as_bytes())
            .expect("writing the registry");
    }

    /// Writes the client policy.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn clients(&self, text: &str) {
        let path = self.path("clients.json");
        fs::write(&path, text).expect("the client policy");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("its mode");
    }

    /// Says which hosts count on a board of many.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn hosts(&self, text: &str) {
        let path = self.path("hosts.json");
        fs::write(&path, text).expect("the hosts that count");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("its mode");
    }

    /// Limits the daemon, and leaves everybody what they may without a client policy.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn limits(&self, limits: Value) {
        let all = json!({ "gates": ["write", "external-call"], "servers": { "*": ["*"] } });
        let mut own = all.clone();
        own["operator"] = json!(true);
        let users = json!({ nix::unistd::geteuid().to_string(): own });
        self.clients(&json!({ "limits": limits, "users": users, "others": all }).to_string());
    }

    /// Puts down a secret for the daemon, as the manual has it.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn secret(&self, name: &str, value: &str) {
        let directory = self.path("daemon-secrets");
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        fs::create_dir_all(&directory).expect("making the directory of secrets");
        mode(&directory, 0o750).expect("its mode");
        let file = directory.join(name);
        // The one that is replaced can be read alone.
        let _ = fs::remove_file(&file);
        fs::write(&file, format!("{value}\n")).expect("writing a secret");
        mode(&file, 0o440).expect("its mode");
    }

    /// Puts down a frame that the fixture's tool `frame` answers with; `@ID@` in it becomes the
    /// request's id.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn frame(&self, case: &str, bytes: &[u8]) {
        fs::write(self.path("frames").join(case), bytes).expect("writing a frame");
    }

    /// Writes what a fixture of this name lists from now on, whenever it is asked: a JSON array of
    /// tools. `which` is `definitions`, or `turned` for one that turns (see the fixture).
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn defines(&self, name: &str, which: &str, tools: &str) {
        // Replaced as a whole: the fixture may be reading it.
        let new = self.path(&format!("{name}.{which}.new"));
        fs::write(&new, tools).expect("writing definitions");
        fs::rename(new, self.path(&format!("{name}.{which}"))).expect("replacing definitions");
    }

    /// Lets calls of the fixture's tool `wait` go on whose argument `until` is this.
    ///
    /// # Panics
    /// If the file that says so cannot be made.
    pub fn release(&self, what: &str) {
        fs::write(self.path(&format!("release-{what}")), "").expect("releasing");
    }

    /// What the fixture of this name has recorded: (process id, kind, bytes), in order.
    pub fn record(&self, name: &str) -> Vec<(i32, String, Vec<u8>)> {
        let bytes = fs::read(self.path(&format!("{name}.record"))).unwrap_or_default();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        lines
            .filter_map(|line| {
                let line = line.strip_suffix(b"\n")?;
                let mut parts = line.splitn(3, |byte| *byte == b' ');
                let pid = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
                let kind = String::from_utf8(parts.next()?.to_vec()).ok()?;
                Some((pid, kind, parts.next().unwrap_or_default().to_vec()))
            })
            .collect()
    }

    /// What the fixture of this name has recorded of this kind, in order.
    pub fn recorded(&self, name: &str, kind: &str) -> Vec<String> {
        let records = self
            .record(name)
            .into_iter()
            .filter(|(_, of, _)| of == kind);
        records
            .map(|(_, _, text)| String::from_utf8_lossy(&text).into_owned())
            .collect()
    }

    /// The lines that the fixture of this name received and that contain `text`, in order.
    pub fn received(&self, name: &str, text: &str) -> Vec<String> {
        let lines = self.recorded(name, "line").into_iter();
        lines.filter(|line| line.contains(text)).collect()
    }

    /// Waits until a file of the state directory says this: what was learned is written behind an
    /// answer's back.
    ///
    /// # Panics
    /// If none comes to say it.
    pub fn wait_for_state(&self, text: &str) {
        wait_for("what was learned on disk", || {
            let files = fs::read_dir(self.path("state")).ok()?.flatten();
            let mut found = files.filter_map(|file| fs::read(file.path()).ok());
            let says = |bytes: Vec<u8>| {
                bytes
                    .windows(text.len())
                    .any(|window| window == text.as_bytes())
            };
            found.any(says).then_some(())
        });
    }

    /// The processes of the fixture of this name that were started, in order.
    pub fn started(&self, name: &str) -> Vec<i32> {
        let starts = self
            .record(name)
            .into_iter()
            .filter(|(_, kind, _)| kind == "start");
        starts.map(|(pid, _, _)| pid).collect()
    }

    /// `colibri-mcpd` with this place's paths and no environment but what every program needs.
    pub fn command(&self, flags: &[&str]) -> Command {
        self.command_at(&self.socket(), flags)
    }

    /// The same on another socket.
    pub fn command_at(&self, socket: &Path, flags: &[&str]) -> Command {
        let daemon = self
            .daemon
            .clone()
            .unwrap_or_else(|| program("colibri-mcpd"));
        let mut command = self.at_home(Command::new(daemon));
        command
            .arg("--socket")
            .arg(socket)
            .arg("--external-config")
            .arg(self.path("external-mcp.json"))
            .arg("--state-dir")
            .arg(self.path("state"))
            .args(flags)
            .stdin(Stdio::null());
        // A file that is named must be there.
        let clients = self.path("clients.json");
        if clients.exists() {
            command.arg("--clients").arg(clients);
        }
        let hosts = self.path("hosts.json");
        if hosts.exists() && flags.contains(&"--board") {
            command.arg("--hosts").arg(hosts);
        }
        command
    }

    /// `colibri-mcp` towards this place's socket.
    pub fn colibri_mcp(&self, args: &[&str]) -> Command {
        let mut command = self.at_home(Command::new(program("colibri-mcp")));
        command.arg("--socket").arg(self.socket()).args(args);
        command
    }

    /// A command whose home this place is.
    fn at_home(&self, mut command: Command) -> Command {
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.directory.path())
            .env("XDG_CONFIG_HOME", self.path(".config"))
            .env("XDG_STATE_HOME", self.path(".local/state"));
        command
    }

    /// The same as somebody who is no operator where `clients.json` names none: root is one always,
    /// so as another user if the test is root. Who uses it has opened the place to the group.
    ///
    /// # Panics
    /// If the program cannot be copied to where that user reaches it.
    pub fn stranger(&self, args: &[&str]) -> Command {
        if !nix::unistd::geteuid().is_root() {
            return self.colibri_mcp(args);
        }
        let copy = self.path("colibri-mcp");
        if !copy.exists() {
            copy_program(&program("colibri-mcp"), &copy);
        }
        let mut command = Command::new(copy);
        command
            .env_clear()
            .arg("--socket")
            .arg(self.socket())
            .args(args);
        command.uid(54_321).gid(0);
        command
    }

    /// Starts a daemon with the external-call gate open, and waits until it listens.
    pub fn start(&self, flags: &[&str]) -> Daemon<'_> {
        let mut all = vec!["--external-call"];
        all.extend(flags);
        self.start_plain(&all)
    }

    /// Starts a daemon with these flags alone, and waits until it listens.
    ///
    /// # Panics
    /// If it ends instead.
    pub fn start_plain(&self, flags: &[&str]) -> Daemon<'_> {
        self.start_in(&[], flags)
    }

    /// The same, with these variables in its environment too.
    ///
    /// # Panics
    /// If it ends instead.
    pub fn start_in(&self, environment: &[(&str, &str)], flags: &[&str]) -> Daemon<'_> {
        let log = self.path("log");
        let from = fs::metadata(&log).map_or(0, |log| log.len() as usize);
        let mut options = File::options();
        let log = options.create(true).append(true).open(log).expect("a log");
        let mut command = self.command(flags);
        if let Some(user) = self.user {
            self.give_to(user);
            command.uid(user).gid(user);
        } else if nix::unistd::geteuid().is_root() {
            command.arg("--allow-root");
        }
        command
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().expect("colibri-mcpd can be started");
        let mut daemon = Daemon {
            place: self,
            child,
            from,
            over: false,
        };
        wait_for("the daemon's socket", || {
            if let Ok(Some(status)) = daemon.child.try_wait() {
                daemon.over = true;
                panic!("the daemon did not start: {status}\n{}", daemon.log());
            }
            UnixStream::connect(self.socket()).ok()
        });
        daemon
    }

    /// Makes the place and all that is in it another user's.
    fn give_to(&self, user: u32) {
        let own = format!("{user}:{user}");
        let given = Command::new("chown")
            .arg("-R")
            .arg(own)
            .arg(self.directory())
            .status();
        assert!(
            given.expect("chown can be started").success(),
            "the place is not given away"
        );
    }

    /// Runs a daemon that is expected to refuse, to its end: exit status and what it wrote.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn refused(&self, flags: &[&str]) -> (Option<i32>, String) {
        let output = self
            .command(flags)
            .output()
            .expect("colibri-mcpd can be started");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Waits until no process of this place is left.
    ///
    /// # Panics
    /// If some are left; they are killed.
    fn assert_empty(&self) {
        let mark = self.mark();
        let mut left = Vec::new();
        for _ in 0..2_000 {
            left = processes_with(&mark);
            // A bridge is the client's, and lives for as long as the client wants.
            left.retain(|(_, line)| !line.contains("/colibri-mcp "));
            if left.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        for (pid, _) in &left {
            // It may have ended just now.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        panic!("processes were left: {left:?}");
    }

    /// The group that may open the socket and enter the directory, for tests that have clients of
    /// another user.
    ///
    /// # Panics
    /// If the mode cannot be changed.
    pub fn open_to_group(&self) {
        let mode = fs::Permissions::from_mode(0o750);
        fs::set_permissions(self.directory.path(), mode).expect("changing a mode");
    }

    /// The directory itself.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// A connection to a socket as this user and group, if the test is root, through a copy of the
/// program `raw-client` in `directory`.
///
/// # Panics
/// If that cannot be started.
pub fn connect_as(directory: &Path, socket: &Path, (uid, gid): (u32, u32)) -> UnixStream {
    let copy = directory.join("raw-client");
    if !copy.exists() {
        copy_program(&program("raw-client"), &copy);
    }
    let (near, far) = UnixStream::pair().expect("a pair of sockets");
    let mut command = Command::new(copy);
    command.arg(socket);
    if nix::unistd::geteuid().is_root() {
        command.uid(uid).gid(gid);
    }
    let input = OwnedFd::from(far.try_clone().expect("a second handle"));
    command.stdin(input).stdout(OwnedFd::from(far));
    let mut child = command.spawn().expect("starting raw-client");
    // It ends with its connection.
    std::thread::spawn(move || child.wait());
    near
}

/// A running daemon. At its end, and when it is dropped, no process and no socket of it may be
/// left.
pub struct Daemon<'a> {
    place: &'a Place,
    child: Child,
    /// Where its part of the log begins.
    from: usize,
    over: bool,
}

impl Daemon<'_> {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// A connection on which nothing was said yet.
    ///
    /// # Panics
    /// If it is refused.
    pub fn connect(&self) -> Client {
        Client::over(UnixStream::connect(self.place.socket()).expect("connecting"))
    }

    /// A connection of another user, if the test is root. The place is open to the group.
    pub fn stream_of(&self, uid: u32) -> UnixStream {
        connect_as(self.place.directory(), &self.place.socket(), (uid, 0))
    }

    /// A connection that speaks HTTP.
    ///
    /// # Panics
    /// If it is refused.
    pub fn http(&self) -> Http {
        Http::over(UnixStream::connect(self.place.socket()).expect("connecting"))
    }

    /// A legacy client, initialized in this version.
    pub fn legacy(&self, version: &str) -> Client {
        let mut client = self.connect();
        client.initialize(version);
        client
    }

    /// A legacy client that has not finished its handshake: the daemon tells it nothing that it did
    /// not ask for.
    pub fn quiet(&self, version: &str) -> Client {
        let mut client = self.connect();
        client.open(version);
        client
    }

    /// A modern client.
    pub fn modern(&self) -> Client {
        let mut client = self.connect();
        client.era = Era::Modern;
        client
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.place.path("log")).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(self.from..).unwrap_or_default()).into_owned()
    }

    /// Waits until its log contains this.
    pub fn wait_for_log(&self, text: &str) {
        wait_for(&format!("{text:?} in the log"), || {
            self.log().contains(text).then_some(())
        });
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it is not there any more.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("the daemon runs");
    }

    /// Has it read the registry again, and waits until it has.
    pub fn reload(&self) {
        let count = || {
            let log = self.log();
            log.matches("registry reloaded").count() + log.matches("nothing was taken over").count()
        };
        let before = count();
        self.signal(Signal::SIGHUP);
        wait_for("the registry to be read again", || {
            (count() > before).then_some(())
        });
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// If it does not end.
    pub fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let status = wait_for("the daemon to end", || child.try_wait().expect("waiting"));
        self.over = true;
        status
    }

    /// Ends it with SIGTERM and checks that it ended well and left nothing.
    ///
    /// # Panics
    /// If not.
    pub fn stop(mut self) {
        self.end();
    }

    /// Kills it and checks that no process is left. The socket stays, as nobody could remove it.
    ///
    /// # Panics
    /// If it does not die, or if processes are left.
    pub fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
        self.place.assert_empty();
    }

    fn end(&mut self) {
        if !self.over {
            self.signal(Signal::SIGTERM);
            let status = self.wait();
            assert!(
                status.success(),
                "the daemon ended with {status}:\n{}",
                self.log()
            );
            assert!(!self.place.socket().exists(), "the socket was left");
        }
        self.place.assert_empty();
    }

    /// Bytes of memory that are resident now, where the system says so in /proc.
    pub fn resident(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// Calls a tool without arguments on a connection of its own: the daemon serves others.
    ///
    /// # Panics
    /// If the call fails.
    pub fn assert_serves(&self, tool: &str) {
        let result = self.legacy(crate::LEGACY).call(tool, json!({}));
        assert_ne!(result["isError"], true, "{tool}: {result}");
    }

    /// Waits as long as it takes for a process of `brief` to have been called and to be ended as
    /// idle: whatever was idle for as long before is over as well.
    ///
    /// # Panics
    /// If it is not.
    pub fn outlast_brief(&self) {
        self.assert_serves("brief__count");
        let has_ended = || {
            self.place
                .record("brief")
                .iter()
                .any(|(_, kind, _)| kind == "eof")
        };
        crate::wait_for("brief to end", || has_ended().then_some(()));
    }

    /// What `colibri_external_mcp_servers` says of a server.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn server(&self, id: &str) -> Value {
        let answer = self
            .legacy(crate::LEGACY)
            .call("colibri_external_mcp_servers", json!({}));
        let servers = answer["structuredContent"]["servers"].as_array();
        let mut servers = servers.expect("a list of servers").iter();
        let found = servers.find(|server| server["id"] == id);
        found.expect("the server is known").clone()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return self.end();
        }
        eprintln!("the daemon's log:\n{}", self.log());
        if !self.over {
            // The test has failed already: what can be ended is ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        for (pid, _) in processes_with(&self.place.mark()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

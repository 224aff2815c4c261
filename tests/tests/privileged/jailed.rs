//! Jailed servers behind the real daemon: `colibri-mcpd` as the user `colibri`, the helper
//! set-user-ID root, registry and policy at the paths that it trusts, servers in the development
//! sandbox of Linux. What a hostile server tries there is tried through calls, and nothing of it
//! may be left. What is true of jails is shown by `tests/freebsd/run.sh`.
#![cfg(target_os = "linux")]
// Helpers outside #[test] functions are tests too.

use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use colibri_tests::installed::{
    self, CONFIG, HELPER, Installed, OTHER_UID, ROOTS, SERVER_UID, STATE,
};
use colibri_tests::{
    Client, LEGACY, code_of, connect_as, processes_with, program, text_of, wait_for,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The real daemon as the user `colibri`, with the registry at the fixed path.
struct Service {
    directory: tempfile::TempDir,
    child: Child,
    caller: u32,
}

impl Service {
    fn start(system: &Installed, flags: &[&str]) -> Service {
        let directory = tempfile::Builder::new()
            .prefix("colibri-jailed-")
            .tempdir()
            .unwrap();
        let at = |name: &str| directory.path().join(name);
        // The programs are copied: a user like colibri may not reach where they were built.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["colibri-mcpd", "colibri-mcp"] {
            installed::install(&program(name), &at(name), 0, 0o755);
        }
        for name in ["state", "run"] {
            fs::create_dir(at(name)).unwrap();
            chown(at(name), Some(system.caller), Some(system.group)).unwrap();
        }
        let child = Self::command(system, directory.path(), flags)
            .spawn()
            .unwrap();
        let mut service = Service {
            directory,
            child,
            caller: system.caller,
        };
        service.wait_until_it_listens();
        service
    }

    fn command(system: &Installed, directory: &Path, flags: &[&str]) -> Command {
        let at = |name: &str| directory.join(name);
        let mut command = Command::new(at("colibri-mcpd"));
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .current_dir("/")
            .arg("--external-call")
            .args(["--external-config", &format!("{CONFIG}/external-mcp.json")])
            .arg("--socket")
            .arg(at("run/colibri.sock"))
            .arg("--state-dir")
            .arg(at("state"))
            .args(flags)
            .uid(system.caller)
            .gid(system.group)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(
                File::options()
                    .create(true)
                    .append(true)
                    .open(at("log"))
                    .unwrap(),
            );
        command
    }

    fn wait_until_it_listens(&mut self) {
        wait_for("the daemon's socket", || {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "the daemon ended:\n{}", self.log());
            UnixStream::connect(self.socket()).ok()
        });
    }

    /// Starts it again after its end, in the same place.
    fn start_again(&mut self, system: &Installed) {
        let _ = fs::remove_file(self.socket());
        self.child = Self::command(system, self.directory.path(), &[])
            .spawn()
            .unwrap();
        self.wait_until_it_listens();
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("run/colibri.sock")
    }

    /// The records of its trail.
    fn trail(&self) -> Vec<Value> {
        let segments = fs::read_dir(self.directory.path().join("state/trail")).unwrap();
        let mut segments: Vec<PathBuf> = segments.map(|entry| entry.unwrap().path()).collect();
        segments.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        });
        segments.sort();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        let text: String = segments.into_iter().map(read).collect();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|mut line| line["rec"].take()).collect()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    fn client(&self) -> Client {
        let mut client = Client::over(UnixStream::connect(self.socket()).unwrap());
        client.initialize(LEGACY);
        client
    }

    /// A client for which the tools of these servers are listed.
    fn client_of(&self, servers: &[&str]) -> Client {
        let mut client = self.client();
        wait_for("the servers' tools", || {
            let tools = client.tools();
            let listed = |server: &&str| tools.contains(&format!("{server}__run"));
            servers.iter().all(listed).then_some(())
        });
        client
    }

    /// What `colibri_external_mcp_servers` says of a server.
    fn server(&self, id: &str) -> Value {
        let answer = self
            .client()
            .call("colibri_external_mcp_servers", json!({}));
        let servers = answer["structuredContent"]["servers"].as_array().unwrap();
        servers
            .iter()
            .find(|server| server["id"] == id)
            .unwrap()
            .clone()
    }

    fn reload(&self) {
        let before = self.log().matches("registry reloaded").count();
        kill(Pid::from_raw(self.pid()), Signal::SIGHUP).unwrap();
        wait_for("the registry to be read again", || {
            (self.log().matches("registry reloaded").count() > before).then_some(())
        });
    }

    /// Ends it as an operator does.
    fn stop(mut self, system: &Installed) {
        kill(Pid::from_raw(self.pid()), Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}:\n{}", self.log());
        self.assert_nothing_left(system);
    }

    /// Kills it, and tells what that took until nothing was left.
    fn kill(&mut self, system: &Installed) {
        let started = Instant::now();
        kill(Pid::from_raw(self.pid()), Signal::SIGKILL).unwrap();
        self.child.wait().unwrap();
        wait_for("the end of all servers", || {
            let of_helper = processes_with(HELPER).is_empty();
            (of_helper && installed::processes_of(&[SERVER_UID, OTHER_UID]).is_empty())
                .then_some(())
        });
        println!(
            "{} ms from the daemon's SIGKILL to the end of all servers",
            started.elapsed().as_millis()
        );
        self.assert_nothing_left(system);
    }

    /// No process of the daemon, the helper or a server, no mount, record or staged directory.
    fn assert_nothing_left(&self, system: &Installed) {
        assert_eq!(installed::processes_of(&[self.caller]), Vec::<i32>::new());
        assert_eq!(processes_with(HELPER), []);
        system.assert_nothing_left("the service");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}

/// A registry in which both servers are the inmate as an MCP server, `one` with this word.
fn registry(word: &str) -> String {
    let entry = |name: &str, word: &str, env: Value| json!({ "command": "/bin/inmate", "args": [word], "env": env, "jail": { "path": format!("{ROOTS}/{name}") } });
    json!({ "servers": {
        "one": entry("one", word, json!({})),
        "two": entry("two", "mcp", json!({ "TOKEN": { "secret": "token" } })) } })
    .to_string()
}

/// The installation with this registry and a secret of server `two`.
fn install(word: &str) -> Installed {
    let system = Installed::set_up();
    system.write("secrets/token", b"s3cret-t0ken\n", 0o400);
    system.write_registry(&registry(word));
    system
}

#[cfg_attr(not(root), ignore = "needs root")]
#[test]
fn who_has_none_gets_a_process_of_who_has_several() {
    let system = install("mcp");
    let entry = json!({ "command": "/bin/inmate", "args": ["mcp"], "jail": { "path": format!("{ROOTS}/one") },
        "isolation": "client", "start_timeout_ms": 20_000 });
    system.write_registry(&json!({ "servers": { "one": entry } }).to_string());
    let policy = system.policy();
    system.write_policy(&policy.replace(r#""max_per_server":55"#, r#""max_per_server":2"#));
    let service = Service::start(&system, &[]);
    let mut own = [service.client_of(&["one"]), service.client()];
    for client in &mut own {
        run(client, "one", &["facts"]);
    }
    let as_other = (OTHER_UID, system.group);
    let mut other = Client::over(connect_as(
        service.directory.path(),
        &service.socket(),
        as_other,
    ));
    other.initialize(LEGACY);
    assert!(run(&mut other, "one", &["facts"]).contains("end"));
    drop((own, other));
    system.write_policy(&policy);
    service.stop(&system);
}

/// Runs the inmate's words in a server, and returns what they said.
fn run(client: &mut Client, server: &str, words: &[&str]) -> String {
    let result = client.call(&format!("{server}__run"), json!({ "words": words }));
    assert_ne!(result["isError"], true, "{result}");
    text_of(&result).to_owned()
}

#[cfg_attr(not(root), ignore = "needs root")]
#[test]
fn one_user_takes_no_more_of_a_jailed_server_than_a_share() {
    let system = install("mcp");
    let entry = json!({ "command": "/bin/inmate", "args": ["mcp"], "jail": { "path": format!("{ROOTS}/one") },
        "isolation": "client", "start_timeout_ms": 5000 });
    system.write_registry(&json!({ "servers": { "one": entry } }).to_string());
    let everybody =
        json!({ "gates": ["external-call"], "servers": { "*": ["*"] }, "operator": true });
    for limit in ["processes_per_user", "starts_per_user"] {
        let clients = tempfile::NamedTempFile::new().unwrap();
        let text = json!({ "limits": { limit: 1 }, "others": everybody }).to_string();
        fs::write(clients.path(), text).unwrap();
        fs::set_permissions(clients.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let service = Service::start(&system, &["--clients", clients.path().to_str().unwrap()]);
        let mut first = service.client_of(&["one"]);
        run(&mut first, "one", &["facts"]);
        let mut second = service.client();
        let answer = second.ask(
            "tools/call",
            json!({ "name": "one__run", "arguments": { "words": ["facts"] } }),
        );
        assert_eq!(code_of(&answer), Some("LIMIT_USER"), "{answer}");
        assert!(
            answer.to_string().contains(&format!("limits.{limit}")),
            "{answer}"
        );
        // The server did nothing wrong.
        assert_eq!(service.server("one")["state"], "ready");
        if limit == "processes_per_user" {
            drop(first);
            run(&mut second, "one", &["facts"]);
        }
        service.stop(&system);
    }
}

/// The same, but goes on after the first line.
fn begin(client: &mut Client, server: &str, words: &[&str]) -> String {
    let result = client.call(
        &format!("{server}__run"),
        json!({ "words": words, "leave": true }),
    );
    assert_ne!(result["isError"], true, "{result}");
    text_of(&result).to_owned()
}

/// A call that is refused with this code: the text for the model.
fn refused(client: &mut Client, server: &str, code: &str) -> String {
    let result = client.call(&format!("{server}__run"), json!({ "words": ["facts"] }));
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(code_of(&result), Some(code), "{result}");
    text_of(&result).to_owned()
}

/// The outer process of the helper of a server, and its supervisor.
fn helper_of(service: &Service, server: &str) -> (i32, i32) {
    let outer = service.server(server)["processes"][0]["pid"]
        .as_i64()
        .unwrap() as i32;
    (outer, installed::children_of(outer)[0])
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_jailed_server_is_served_shown_and_counted() {
    let mut system = install("mcp");
    let service = Service::start(&system, &[]);
    let mut client = service.client_of(&["one", "two"]);
    let facts = run(&mut client, "one", &["facts"]);
    for fact in [
        "uid 7871 7871",
        "gid 7871 7871",
        "groups 0",
        "fds 0 1 2",
        "ls /dev null random urandom zero",
    ] {
        assert!(facts.lines().any(|line| line == fact), "{fact}: {facts}");
    }
    // The secret is in the environment of its own server, and nowhere in the daemon.
    assert!(run(&mut client, "two", &["facts"]).contains("env TOKEN=s3cret-t0ken"));
    assert!(!facts.contains("s3cret"));
    assert!(!service.log().contains("s3cret"));

    let shown = service.server("one");
    assert_eq!(shown["state"], "ready", "{shown}");
    assert_eq!(
        shown["jail"],
        json!({ "name": "ephemeral", "network": "none" })
    );
    let process = &shown["processes"][0];
    let session = process["jail"]
        .as_str()
        .unwrap()
        .strip_prefix("colibri-")
        .unwrap();
    assert!(
        installed::names_in(STATE)
            .iter()
            .any(|name| name == session),
        "{shown}"
    );
    assert_eq!(
        (&process["count"], &process["jid"]),
        (&json!(1), &Value::Null),
        "{shown}"
    );
    let audit = system.audit().join("\n");
    assert!(
        audit.contains(&format!("session={session}")) && !audit.contains("s3cret"),
        "{audit}"
    );

    // Five that are detached, and deaf; the one that started them is gone.
    assert_eq!(begin(&mut client, "one", &["detach"]), "ready\n");
    wait_for("six processes", || {
        (service.server("one")["processes"][0]["count"] == 6).then_some(())
    });
    assert_eq!(service.server("two")["processes"][0]["count"], 1);
    let mut command = Command::new(service.directory.path().join("colibri-mcp"));
    let output = command
        .arg("--socket")
        .arg(service.socket())
        .arg("status")
        .env("COLUMNS", "200")
        .output()
        .unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("6 processes") && table.contains(session),
        "{table}"
    );
    assert!(table.contains("jail ephemeral, network none"), "{table}");

    let (outer, supervisor) = helper_of(&service, "one");
    for pid in [outer, supervisor] {
        let kib = installed::resident_kib(pid);
        assert!(kib < 4096, "resident: {kib} KiB");
    }
    service.stop(&system);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_hostile_server_reaches_nothing() {
    let system = install("mcp");
    // A program with the set-user-ID bit of root in the server's own root.
    let su = Path::new(ROOTS).join("one/bin/su");
    fs::copy(Path::new(ROOTS).join("one/bin/inmate"), &su).unwrap();
    fs::set_permissions(&su, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(fs::metadata(&su).unwrap().uid(), 0);

    let listeners = ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"].map(|at| TcpListener::bind(at).ok());
    let mut targets: Vec<String> = listeners
        .iter()
        .flatten()
        .map(|listener| listener.local_addr().unwrap())
        .filter(|address| !address.ip().is_unspecified())
        .map(|address| address.to_string())
        .collect();
    // The host's own address, by asking the kernel which it would send from; nothing is sent.
    let asked = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let any = listeners[2].as_ref().unwrap().local_addr().unwrap();
    match asked {
        Ok(own) => targets.push(format!("{}:{}", own.ip(), any.port())),
        Err(error) => println!("no address of this host to try: {error}"),
    }
    let name = format!("colibri-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    UnixStream::connect_addr(&address).unwrap();
    targets.push(format!("@{name}"));

    let service = Service::start(&system, &[]);
    let mut client = service.client_of(&["one", "two"]);
    fs::set_permissions(service.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    run(&mut client, "two", &["facts"]);
    let victim = installed::processes_of(&[OTHER_UID])[0];
    let (outer, supervisor) = helper_of(&service, "two");
    for pid in [victim, outer, supervisor, service.pid()] {
        targets.push(format!("pid {pid}"));
        targets.push(format!("/proc/{pid}/environ"));
        targets.push(format!("/proc/{pid}/root"));
    }
    targets.push(service.socket().display().to_string());
    for path in [
        "/dev/log",
        "/etc/passwd",
        "/etc/shadow",
        "/proc/1/environ",
        "/proc/self/environ",
        "/home",
        "/root",
        "/run",
        "/sys",
        "/usr",
        &format!("{CONFIG}/external-mcp.json"),
        &format!("{CONFIG}/jail-policy.json"),
        &format!("{CONFIG}/secrets/token"),
        &format!("{ROOTS}/two"),
        STATE,
        HELPER,
    ] {
        targets.push(path.to_owned());
    }
    // From outside they can be reached, or their failing inside would show nothing.
    for target in &targets {
        if let Ok(address) = target.parse::<std::net::SocketAddr>() {
            std::net::TcpStream::connect(address).unwrap();
        }
    }
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    for program in ["", "/bin/su"] {
        let words: Vec<&str> = [program, "attack"]
            .into_iter()
            .chain(targets.iter().copied())
            .collect();
        let told = run(
            &mut client,
            "one",
            &words[usize::from(program.is_empty())..],
        );
        assert!(told.ends_with("end\n"), "{told}");
        assert!(!told.contains("s3cret"), "{told}");
        let tried = told.lines().count();
        assert!(tried > targets.len(), "{told}");
        let worked: Vec<&str> = told
            .lines()
            .filter(|line| line.ends_with("WORKED"))
            .collect();
        assert_eq!(worked, ["write to /tmp: WORKED"], "{told}");
        println!("{} attempts failed", tried - 2);
    }
    // The bit gave it nothing.
    let facts = run(&mut client, "one", &["/bin/su", "facts"]);
    assert!(facts.contains("uid 7871 7871\n"), "{facts}");
    // Who kills all that it can reach kills itself alone.
    let id = client.request_tool("one__run", json!({ "words": ["kill-all"] }));
    let answer = client.answer(id);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(installed::processes_of(&[OTHER_UID]), [victim]);
    assert!(run(&mut client, "two", &["facts"]).contains("end"));
    assert!(run(&mut client, "one", &["facts"]).contains("end"));
    service.stop(&system);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_one_server_exhausts_another_still_has() {
    let system = install("mcp");
    let service = Service::start(&system, &[]);
    let mut client = service.client_of(&["one", "two"]);
    let told = begin(&mut client, "one", &["forkbomb"]);
    let children: u64 = told
        .trim()
        .strip_prefix("children ")
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=40).contains(&children), "{told}");
    let shown = service.server("one");
    let count = shown["processes"][0]["count"].as_u64().unwrap();
    assert!((children..=40).contains(&count), "{shown}");
    assert!(run(&mut client, "two", &["facts"]).contains("uid 7872 7872"));
    let told = begin(&mut client, "two", &["hog"]);
    let held: u64 = told.trim().strip_prefix("held ").unwrap().parse().unwrap();
    assert!(held <= 1024, "{held} MiB");
    assert!(run(&mut client, "two", &["facts"]).contains("uid 7872 7872"));
    service.stop(&system);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn servers_end_with_the_daemon_however_it_ends() {
    let mut system = install("mcp-deaf");
    let mut service = Service::start(&system, &[]);
    for round in 0..2 {
        let mut client = service.client_of(&["one", "two"]);
        begin(&mut client, "one", &["detach"]);
        begin(&mut client, "two", &["detach"]);
        system.audit();
        if round == 0 {
            service.kill(&system);
            // Neither the end of its input nor SIGTERM moves it; it has less time for both than it
            // has in the other round.
            let audit = system.audit();
            let abandoned = "status=137 cause=abandoned left=nothing";
            assert!(
                audit
                    .iter()
                    .any(|line| line.contains("event=end entry=one") && line.contains(abandoned)),
                "{audit:?}"
            );
            service.start_again(&system);
        }
    }
    service.stop(&system);
    let audit = system.audit();
    let of_one = audit
        .iter()
        .find(|line| line.contains("event=end entry=one"))
        .unwrap();
    assert!(
        of_one.contains("status=137 cause=lifeline left=nothing"),
        "{audit:?}"
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_killed_helper_is_swept_after_and_its_server_starts_again() {
    let mut system = install("mcp");
    let mut service = Service::start(&system, &[]);
    let mut client = service.client_of(&["one", "two"]);
    let other = {
        run(&mut client, "two", &["facts"]);
        installed::processes_of(&[OTHER_UID])
    };
    for kill_outer in [false, true] {
        begin(&mut client, "one", &["detach"]);
        let (outer, supervisor) = helper_of(&service, "one");
        let session = service.server("one")["processes"][0]["jail"]
            .as_str()
            .unwrap()[8..]
            .to_owned();
        system.audit();
        kill(
            Pid::from_raw(if kill_outer { outer } else { supervisor }),
            Signal::SIGKILL,
        )
        .unwrap();
        wait_for("the sweep", || {
            let gone = !installed::names_in(STATE).contains(&session);
            (gone && installed::processes_of(&[SERVER_UID]).is_empty()).then_some(())
        });
        wait_for("the audit of the sweep", || {
            system
                .audit()
                .iter()
                .any(|line| line.contains("event=sweep"))
                .then_some(())
        });
        assert!(run(&mut client, "one", &["facts"]).contains("end"));
        assert_eq!(service.server("one")["state"], "ready");
        assert_eq!(
            installed::processes_of(&[OTHER_UID]),
            other,
            "the other server was not touched"
        );
    }
    // Both at once: the record stays until the next daemon starts.
    begin(&mut client, "one", &["detach"]);
    let (_, supervisor) = helper_of(&service, "one");
    let pids = [service.pid(), supervisor];
    for pid in pids {
        kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    }
    for pid in pids {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    service.child.wait().unwrap();
    wait_for("the end of all servers", || {
        installed::processes_of(&[SERVER_UID, OTHER_UID])
            .is_empty()
            .then_some(())
    });
    wait_for("the other server's record to go", || {
        let sessions = installed::names_in(STATE)
            .into_iter()
            .filter(|name| name.len() == 16);
        (sessions.count() == 1).then_some(())
    });
    service.start_again(&system);
    let sessions = installed::names_in(STATE)
        .into_iter()
        .filter(|name| name.len() == 16);
    assert_eq!(sessions.count(), 0, "swept before the daemon listens");
    service.stop(&system);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn refusals_of_the_helper_say_what_to_do_and_which_state_follows() {
    let mut system = install("mcp");
    let service = Service::start(&system, &[]);
    let mut client = service.client_of(&["one", "two"]);

    // The entry on disk is not the one that the daemon has read: it waits for a reload.
    let end = |client: &mut Client| {
        let id = client.request_tool("one__run", json!({ "words": ["kill-all"] }));
        client.answer(id);
    };
    run(&mut client, "one", &["facts"]);
    end(&mut client);
    system.write_registry(&registry("mcp-deaf"));
    let text = refused(&mut client, "one", "INTEGRATION_UNAVAILABLE");
    assert!(
        text.contains("registry changed, run service colibri_mcp reload"),
        "{text}"
    );
    assert_eq!(service.server("one")["state"], "backing off");
    service.reload();
    assert!(run(&mut client, "one", &["facts"]).contains("end"));

    // A rule of the policy: it is named, to the caller of the tool and in the state, and is no
    // secret of the operator's.
    let policy = system.policy();
    end(&mut client);
    system.write_policy(&policy.replace(r#""servers":["one","two"]"#, r#""servers":["two"]"#));
    let text = refused(&mut client, "one", "SERVER_UNSTARTABLE");
    assert!(
        text.contains("refused by rule 'servers'") && text.contains("jail-policy.json"),
        "{text}"
    );
    let shown = service.server("one");
    assert_eq!(shown["state"], "failed", "{shown}");
    assert!(
        shown["reason"].as_str().unwrap().contains("rule 'servers'"),
        "{shown}"
    );
    assert!(run(&mut client, "two", &["facts"]).contains("end"));
    // The helper reads its policy at each start: nothing has to be told that it is right again.
    system.write_policy(&policy);
    let answer = wait_for("the next start", || {
        let result = client.call("one__run", json!({ "words": ["facts"] }));
        (result["isError"] != true).then_some(result)
    });
    assert!(text_of(&answer).contains("end"));

    // No more than so many at once: a start waits its turn, which does not come here.
    let mut short: Value = serde_json::from_str(&registry("mcp")).unwrap();
    short["servers"]["one"]["start_timeout_ms"] = json!(5000);
    system.write_registry(&short.to_string());
    service.reload();
    run(&mut client, "one", &["facts"]);
    end(&mut client);
    system.write_policy(&policy.replace(r#""max":60"#, r#""max":1"#));
    let text = refused(&mut client, "one", "TIMEOUT_START");
    assert!(
        text.contains("a limit of the jail policy is reached"),
        "{text}"
    );
    assert_eq!(service.server("one")["state"], "backing off");
    system.write_policy(&policy);
    system.write_registry(&registry("mcp"));

    // What stays until somebody repairs it: a program that is not there, a file that is not root's
    // alone, no helper.
    let program = Path::new(ROOTS).join("one/bin/inmate");
    let aside = Path::new(ROOTS).join("one/bin/aside");
    fs::rename(&program, &aside).unwrap();
    service.reload();
    let text = refused(&mut client, "one", "SERVER_UNSTARTABLE");
    assert!(text.contains("command"), "{text}");
    assert_eq!(service.server("one")["state"], "failed");
    fs::rename(&aside, &program).unwrap();

    fs::set_permissions(
        format!("{CONFIG}/jail-policy.json"),
        fs::Permissions::from_mode(0o666),
    )
    .unwrap();
    service.reload();
    let before = service.trail().len();
    let text = refused(&mut client, "one", "SERVER_UNSTARTABLE");
    // The helper ends with 78, which stays: one attempt, after which nothing waits.
    let records = service.trail().split_off(before);
    assert!(
        records.iter().all(|record| record["kind"] != "retry"),
        "{records:?}"
    );
    let exit = records
        .iter()
        .find(|record| record["kind"] == "exit")
        .unwrap();
    assert_eq!(
        (&exit["attempt_number"], &exit["error_class"]),
        (&json!(1), &json!("permanent")),
        "{exit}"
    );
    assert!(
        text.contains("jail-policy.json") && text.contains("colibri-jail-helper check"),
        "{text}"
    );
    assert_eq!(service.server("one")["state"], "failed");
    system.write_policy(&policy);

    let helper_aside = format!("{HELPER}.aside");
    fs::rename(HELPER, &helper_aside).unwrap();
    service.reload();
    let text = refused(&mut client, "one", "SERVER_UNSTARTABLE");
    assert!(text.contains("install colibri-jail-helper"), "{text}");
    assert_eq!(service.server("one")["state"], "failed");
    fs::rename(&helper_aside, HELPER).unwrap();

    service.reload();
    assert!(run(&mut client, "one", &["facts"]).contains("end"));
    assert!(!system.audit().join("\n").contains("s3cret"));
    service.stop(&system);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_demo_is_confined_where_root_has_prepared_it_and_says_why_not_elsewhere() {
    let mut system = install("mcp");
    let directory = tempfile::Builder::new()
        .prefix("colibri-jailed-")
        .tempdir()
        .unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let client = directory.path().join("colibri-mcp");
    installed::install(&program("colibri-mcp"), &client, 0, 0o755);
    installed::install(
        &program("colibri-mcpd"),
        &client.with_file_name("colibri-mcpd"),
        0,
        0o755,
    );
    let demo = |uid: u32, gid: u32| {
        let output = Command::new(&client)
            .arg("demo")
            .env_clear()
            .current_dir("/")
            .uid(uid)
            .gid(gid)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let complaints = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), complaints.as_str()),
            (Some(0), ""),
            "{said}"
        );
        assert!(
            said.contains("met Colibri") && said.contains("/trail: sound"),
            "{said}"
        );
        said
    };
    let on_the_host = "The server runs as a process of this host, not in a jail:\n";
    let (stranger, caller, group) = (12345, system.caller, system.group);

    let said = demo(0, 0);
    assert!(said.contains(&format!(
        "{on_the_host}   {CONFIG}/external-mcp.json has no jailed server called demo\n"
    )));
    let said = demo(stranger, stranger);
    assert!(
        said.contains(on_the_host) && said.contains("Permission denied"),
        "{said}"
    );

    // With a second server, which would leave a trace in the audit if the demo started it.
    installed::put_program(&client, &Path::new(ROOTS).join("one"), "bin/colibri-mcp");
    let mut servers: Value = serde_json::from_str(&registry("mcp")).unwrap();
    servers["servers"]["one"]["disabled"] = json!(true);
    servers["servers"]["demo"] = json!({
        "command": "/bin/colibri-mcp", "args": ["demo-server", "--notes", "/tmp"],
        "jail": { "path": format!("{ROOTS}/one"), "user": "demo" } });
    system.write_registry(&servers.to_string());
    let said = demo(0, 0);
    assert!(
        said.contains(on_the_host) && said.contains("rule 'servers'"),
        "{said}"
    );

    let demo_uid = SERVER_UID + 10;
    let user = format!(r#""users":{{"demo":{{"uid":{demo_uid},"gid":{demo_uid}}},"#);
    let policy = system
        .policy()
        .replace(r#""servers":["one","two"]"#, r#""servers":["two","demo"]"#);
    system.write_policy(&policy.replace(r#""users":{"#, &user));
    system.audit();
    let said = demo(0, 0);
    assert!(
        said.contains("in the helper's development sandbox, which is no jail"),
        "{said}"
    );
    system.assert_nothing_left("the demo");
    assert_eq!(installed::processes_of(&[demo_uid]), Vec::<i32>::new());
    // What would be run is root's alone to ask.
    let said = demo(caller, group);
    assert!(
        said.contains(on_the_host) && said.contains("rule 'root'"),
        "{said}"
    );
    let audit = system.audit();
    assert!(
        audit
            .iter()
            .any(|line| line.contains("event=start entry=demo")),
        "{audit:?}"
    );
    assert!(
        !audit.iter().any(|line| line.contains("entry=two")),
        "{audit:?}"
    );
    // Who may read the registry and not run the helper, or the reverse, gets no jail either.
    let said = demo(stranger, group);
    assert!(
        said.contains(on_the_host) && said.contains("caller"),
        "{said}"
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_daemon_for_jailed_servers_alone_starts_no_other() {
    let system = install("mcp");
    let mut servers: Value = serde_json::from_str(&registry("mcp")).unwrap();
    servers["servers"]["host"] =
        json!({ "command": Path::new(ROOTS).join("one/bin/inmate"), "args": ["mcp"] });
    system.write_registry(&servers.to_string());
    let service = Service::start(&system, &["--require-jail"]);
    let mut client = service.client_of(&["one", "two"]);
    assert!(!client.tools().iter().any(|tool| tool.starts_with("host__")));
    let shown = service.server("host");
    assert_eq!(shown["state"], "blocked", "{shown}");
    assert!(
        shown["reason"].as_str().unwrap().contains("--require-jail"),
        "{shown}"
    );
    assert!(run(&mut client, "one", &["facts"]).contains("end"));
    // Every process of the daemon's user is the daemon.
    assert_eq!(installed::processes_of(&[system.caller]), [service.pid()]);
    service.stop(&system);
}

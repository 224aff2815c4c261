//! The chibi bridge and the library, as built: against a client that was written from the protocol
//! alone (`tests/chibi/chibi_client.py`), and against local users and clients that mean harm.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use colibri_tests::{Place, is_alive, program, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A home of bridges; the daemons that were started for it end with it.
struct Home {
    directory: tempfile::TempDir,
}

/// A bridge that was started; it is killed if it still runs at the end.
struct Bridge {
    process: Child,
    home: PathBuf,
    stderr: PathBuf,
}

impl Home {
    fn new(configuration: &str) -> Home {
        let directory = tempfile::Builder::new()
            .prefix("colibri-chibi-")
            .tempdir()
            .unwrap();
        let home = Home { directory };
        if !configuration.is_empty() {
            fs::write(home.path("mcp-bridge.toml"), configuration).unwrap();
        }
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The table of a fixture server.
    fn server(&self, name: &str, to: &str) -> String {
        let directory = self.directory.path().display();
        let fixture = program("fixture-server");
        format!(
            "[servers.{name}]\ncommand = \"{}\"\nargs = [\"--dir\", \"{directory}\", \"--as\", \"{to}\"]\n",
            fixture.display()
        )
    }

    fn command(&self, stderr: &str) -> Command {
        let mut command = Command::new(program("chibi-mcp-bridge"));
        command
            .env_clear()
            .env("PATH", "relative:/usr/local/bin:/usr/bin:/bin")
            .env("CHIBI_HOME", self.directory.path())
            .env("COLIBRI_MCP_ALLOW_ROOT", "1")
            .env("COLIBRI_MCP_END_IDLE", "60")
            .stdin(Stdio::null())
            .stdout(File::create(self.path("stdout")).unwrap())
            .stderr(File::create(self.path(stderr)).unwrap());
        command
    }

    fn spawn(&self, mut command: Command, stderr: &str) -> Bridge {
        let process = command.spawn().unwrap();
        let (home, stderr) = (self.directory.path().to_owned(), self.path(stderr));
        Bridge {
            process,
            home,
            stderr,
        }
    }

    /// A bridge that listens.
    fn bridge(&self) -> Bridge {
        let bridge = self.spawn(self.command("stderr"), "stderr");
        bridge.listening();
        bridge
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What the log of the private daemon's start says is the only place where its number
        // stands.
        for name in ["stderr", "mcp-bridge.log", "stderr-2"] {
            let said = fs::read_to_string(self.path(name)).unwrap_or_default();
            for pid in said.split("(colibri-mcpd, process ").skip(1) {
                let Some(pid) = pid.split(')').next().and_then(|pid| pid.parse().ok()) else {
                    continue;
                };
                if is_alive(pid) {
                    // It may end by itself just now.
                    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
                    wait_for("the daemon's end", || (!is_alive(pid)).then_some(()));
                }
            }
        }
    }
}

impl Bridge {
    fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    fn listening(&self) -> String {
        let address = |said: &str| {
            Some(
                said.split("[mcp-bridge] listening on ")
                    .nth(1)?
                    .lines()
                    .next()?
                    .to_owned(),
            )
        };
        wait_for("a bridge that listens", || address(&self.said()))
    }

    fn lock(&self) -> Value {
        serde_json::from_slice(&fs::read(self.home.join("mcp-bridge.lock")).unwrap()).unwrap()
    }

    fn has_lock(&self) -> bool {
        self.home.join("mcp-bridge.lock").exists()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.listening()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    /// Sends these bytes, half-closes, and reads to the end.
    fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // It may have been answered before it was all sent.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    fn ask(&self, request: &Value) -> Value {
        serde_json::from_slice(&self.raw(request.to_string().as_bytes())).unwrap()
    }

    /// Answers of the independent client.
    fn python(&self, requests: &[Value]) -> Vec<Value> {
        let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("chibi/chibi_client.py");
        let mut command = Command::new("python3");
        command
            .arg(client)
            .arg(&self.home)
            .args(requests.iter().map(Value::to_string));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().try_into().unwrap())
    }

    fn ended(&mut self) -> ExitStatus {
        wait_for("the bridge's end", || self.process.try_wait().unwrap())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn error(answer: &Value) -> &str {
    assert_eq!(answer["ok"], false, "{answer}");
    answer["error"].as_str().unwrap()
}

fn call(server: &str, tool: &str, args: Value) -> Value {
    json!({ "op": "call_tool", "server": server, "tool": tool, "args": args })
}

fn schema(server: &str, tool: &str) -> Value {
    json!({ "op": "get_schema", "server": server, "tool": tool })
}

#[test]
fn every_operation_of_an_independent_client() {
    let home = Home::new("");
    let configuration =
        home.server("My_Files", "f") + "[servers.gone]\ncommand = \"no-such-program\"\n";
    fs::write(home.path("mcp-bridge.toml"), configuration).unwrap();
    fs::create_dir(home.path("frames")).unwrap();
    let failed = json!({ "isError": true, "content": [
        { "type": "text", "text": "no" },
        { "type": "image", "mimeType": "image/png", "data": "" },
        { "type": "text", "text": "disk" },
    ] });
    let frame = format!("{{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{failed}}}");
    fs::write(home.path("frames/failed"), frame).unwrap();
    let mut bridge = home.bridge();
    let said = bridge.said();
    assert!(
        said.contains("\"My_Files\" is called my-files here"),
        "{said}"
    );
    let lock = bridge.lock();
    assert_eq!(lock["pid"], bridge.process.id());
    assert_eq!(lock["address"], bridge.listening());
    assert_eq!(
        (&lock["heartbeat_secs"], lock["started"].as_u64()),
        (&json!(30), lock["timestamp"].as_u64())
    );

    let answers = bridge.python(&[
        json!({ "op": "list_tools" }),
        call("my-files", "echo", json!({ "n": 1, "text": "a\nb" })),
        call("My_Files", "frame", json!({ "case": "failed" })),
        schema("my-files", "echo"),
        call("nowhere", "echo", json!({})),
        schema("my-files", "nothing"),
        call("my-files", "nothing", json!({})),
        call("gone", "echo", json!({})),
        json!({ "op": "stop" }),
        json!([]),
        schema("nowhere", "echo"),
    ]);
    let tools = answers[0]["tools"].as_array().unwrap();
    let echo = tools.iter().find(|tool| tool["name"] == "echo").unwrap();
    assert_eq!(echo["server"], "my-files");
    assert!(
        echo["description"].is_string() && echo["parameters"]["type"] == "object",
        "{echo}"
    );
    let keys: Vec<_> = echo.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["description", "name", "parameters", "server"]);
    assert!(
        tools.iter().all(|tool| tool["server"] == "my-files"),
        "Colibri's own tools are of no server"
    );
    assert_eq!(
        answers[1],
        json!({ "ok": true, "result": "{\"n\":1,\"text\":\"a\\nb\"}" })
    );
    assert_eq!(
        error(&answers[2]),
        "tool error: no\n[image: image/png]\ndisk"
    );
    assert_eq!(
        answers[3],
        json!({ "ok": true, "schema": echo["parameters"] })
    );
    assert_eq!(error(&answers[4]), "unknown server: nowhere");
    assert_eq!(error(&answers[5]), "unknown tool: nothing");
    assert_eq!(error(&answers[6]), "unknown tool: nothing");
    assert!(
        error(&answers[7]).contains("no-such-program is not on PATH"),
        "{}",
        answers[7]
    );
    assert_eq!(error(&answers[8]), "unknown op: stop");
    assert!(
        error(&answers[9]).contains("not a JSON object"),
        "{}",
        answers[9]
    );
    assert_eq!(error(&answers[10]), "unknown server: nowhere");

    // A server that is gone in the middle of a call is an error, and the next call is answered.
    let died = bridge.ask(&call("my-files", "die_mid_answer", json!({})));
    assert!(error(&died).starts_with("tool error: "), "{died}");
    assert_eq!(
        bridge.ask(&call("my-files", "echo", json!({})))["result"],
        "{}"
    );
    // The whole chain recorded it.
    let trail = home.path("mcp-bridge/colibri/trail");
    let recorded: String = fs::read_dir(trail)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap_or_default())
        .collect();
    assert!(recorded.contains("\"tool\":\"echo\""), "{recorded}");
    kill(bridge.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(bridge.ended().signal(), Some(Signal::SIGTERM as i32));
    assert!(!bridge.has_lock());
    assert_eq!(fs::read_to_string(home.path("stdout")).unwrap(), "");
}

#[test]
fn without_a_file_there_are_no_servers_and_a_broken_one_says_where() {
    let bridge_of = |configuration: &str| {
        let home = Home::new(configuration);
        let mut command = home.command("stderr");
        command.env("COLIBRI_MCP_SOCKET", home.path("no-service.sock"));
        let bridge = home.spawn(command, "stderr");
        let listed = bridge.ask(&json!({ "op": "list_tools" }));
        // A service that is down is an error that says so.
        assert!(error(&listed).contains("no-service.sock"), "{listed}");
        bridge.said()
    };
    assert!(!bridge_of("").contains("config"));
    for (broken, wanted) in [
        ("idle_timeout_minutes = 5\n[servers.a\n", "line 2, column "),
        (
            "[servers.a]\ncommand = \"x\"\nargs = \"y\"\n",
            "line 3, column 8: args must be",
        ),
        (
            "[servers.a]\nargs = []\n",
            "line 1, column 1: a has neither a command nor a url",
        ),
        (
            "idle_timeout_minutes = -1\n",
            "line 1, column 24: idle_timeout_minutes",
        ),
    ] {
        let said = bridge_of(broken);
        let line = said
            .lines()
            .find(|line| line.starts_with("[mcp-bridge] config parse error: "));
        assert!(
            line.is_some_and(|line| line.contains(wanted)),
            "{broken}: {said}"
        );
    }
    // What others may write in is not the user's own.
    let home = Home::new("[servers.a]\ncommand = \"/bin/true\"\n");
    let file = home.path("mcp-bridge.toml");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let said = home.bridge().said();
    assert!(
        said.contains("config parse error: ") && said.contains("others could"),
        "{said}"
    );
}

#[test]
fn without_servers_and_a_service_the_list_is_empty() {
    let home = Home::new("");
    let bridge = home.bridge();
    assert_eq!(
        bridge.ask(&json!({ "op": "list_tools" })),
        json!({ "ok": true, "tools": [] })
    );
    assert!(
        !home.path("mcp-bridge").exists(),
        "a daemon was started for nothing"
    );
}

#[test]
fn the_services_servers_are_offered_and_a_name_in_both_is_the_files() {
    let place = Place::new();
    place.registry(&json!({
        "both": place.fixture("service-both", &[], json!({})),
        "theirs": place.fixture("service-theirs", &[], json!({})),
    }));
    let daemon = place.start(&[]);
    let home = Home::new("");
    fs::write(
        home.path("mcp-bridge.toml"),
        home.server("both", "own-both"),
    )
    .unwrap();
    let mut command = home.command("stderr");
    command.env("COLIBRI_MCP_SOCKET", place.socket());
    let bridge = home.spawn(command, "stderr");
    bridge.listening();
    let listed = bridge.ask(&json!({ "op": "list_tools" }));
    let of = |server: &str| {
        let tools = listed["tools"].as_array().unwrap().iter();
        tools
            .filter(|tool| tool["server"] == server && tool["name"] == "echo")
            .count()
    };
    assert_eq!((of("both"), of("theirs")), (1, 1), "{listed}");
    for server in ["both", "theirs"] {
        assert_eq!(
            bridge.ask(&call(server, "echo", json!({})))["result"],
            "{}",
            "{server}"
        );
    }
    assert!(home.path("own-both.record").exists());
    assert_eq!(
        error(&bridge.ask(&call("neither", "echo", json!({})))),
        "unknown server: neither"
    );
    assert_eq!(
        error(&bridge.ask(&call("theirs", "nothing", json!({})))),
        "unknown tool: nothing"
    );
    drop(bridge);
    drop(daemon);
}

#[test]
fn what_a_bridge_wrote_and_did_not_live_to_tell_its_daemon_the_next_one_tells() {
    let home = Home::new("");
    let written = Home::new("");
    let (one, two) = (home.server("one", "a"), home.server("two", "a"));
    for (home, servers, name) in [(&home, &one, "one"), (&written, &two, "two")] {
        fs::write(home.path("mcp-bridge.toml"), servers).unwrap();
        assert_eq!(
            home.bridge().ask(&call(name, "echo", json!({})))["ok"],
            true
        );
    }
    for name in ["external-mcp.json", "consent.json"] {
        let name = format!("mcp-bridge/colibri/{name}");
        fs::copy(written.path(&name), home.path(&name)).unwrap();
    }
    fs::write(home.path("mcp-bridge.toml"), two).unwrap();
    let bridge = home.spawn(home.command("stderr-2"), "stderr-2");
    let answer = bridge.ask(&call("two", "echo", json!({})));
    assert_eq!(answer["ok"], true, "{answer}");
}

/// An MCP server with the model adapter's tool, which answers with a sentence, and counts its calls
/// in a file.
const MODEL: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "m", "version": "1"}}
    elif asked["method"] == "tools/list":
        schema = {"type": "object"}
        result = {"tools": [{"name": "complete", "description": "Asks. A model.", "inputSchema": schema}]}
    elif asked["method"] == "tools/call":
        given = asked["params"]["arguments"]
        open(sys.argv[1], "a").write(given["model"] + " " + str(given["max_tokens"]) + "\n")
        said = {"ok": True, "completion": "Says what it does.\nAnd more."}
        result = {"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

#[test]
fn summaries_take_the_place_of_descriptions_and_are_kept() {
    let home = Home::new("");
    fs::write(home.path("model.py"), MODEL).unwrap();
    let asked = home.path("asked");
    let model = format!(
        "[summary]\nmodel = \"some/model\"\n[servers.model-api]\ncommand = \"python3\"\nargs = [\"{}\", \"{}\"]\n",
        home.path("model.py").display(),
        asked.display()
    );
    fs::write(home.path("mcp-bridge.toml"), model).unwrap();
    let bridge = home.bridge();
    let described = || {
        let listed = bridge.ask(&json!({ "op": "list_tools" }));
        listed["tools"][0]["description"]
            .as_str()
            .map(str::to_owned)
    };
    // Until there is one, it is the first sentence.
    let until = wait_for("the tool", described);
    assert!(
        ["Asks.", "Says what it does."].contains(&&*until),
        "{until}"
    );
    wait_for("the summary", || {
        (described()? == "Says what it does.").then_some(())
    });
    assert_eq!(fs::read_to_string(&asked).unwrap(), "some/model 300\n");
    drop(bridge);
    let cache = fs::read_to_string(home.path("mcp-bridge/cache.jsonl")).unwrap();
    let line: Value = serde_json::from_str(&cache).unwrap();
    // printf '{"type":"object"}' | sha256sum
    assert_eq!(line["key"], "model-api:complete:a2c799262a3ce3c1");
    assert_eq!(line["summary"], "Says what it does.");
    // The next bridge asks nobody again.
    let bridge = home.bridge();
    let listed = bridge.ask(&json!({ "op": "list_tools" }));
    assert_eq!(listed["tools"][0]["description"], "Says what it does.");
    assert_eq!(fs::read_to_string(&asked).unwrap().lines().count(), 1);
}

#[test]
fn a_call_that_is_not_answered_is_answered_before_clients_give_up() {
    let home = Home::new("");
    fs::write(home.path("mcp-bridge.toml"), home.server("a", "a")).unwrap();
    let bridge = home.bridge();
    // The independent client waits 30 s.
    let answers = bridge.python(&[call("a", "never", json!({}))]);
    assert!(
        error(&answers[0]).contains("did not answer in time")
            || error(&answers[0]).contains("no answer yet"),
        "{answers:?}"
    );
}

#[test]
fn a_hundred_connections_at_once_are_answered() {
    let home = Home::new("");
    fs::write(home.path("mcp-bridge.toml"), home.server("a", "a")).unwrap();
    let bridge = home.bridge();
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..100)
            .map(|number| {
                let bridge = &bridge;
                scope.spawn(move || {
                    (
                        number,
                        bridge.ask(&call("a", "echo", json!({ "n": number }))),
                    )
                })
            })
            .collect();
        for one in asked {
            let (number, answer) = one.join().unwrap();
            assert_eq!(
                answer,
                json!({ "ok": true, "result": format!("{{\"n\":{number}}}") })
            );
        }
    });
}

/// Python that becomes another user, holds as many sockets as its limits allow it, up to 18,000,
/// and has four processes connect without end: one closes at once, one after a byte, one
/// half-closes before, and one keeps its last 200 connections. They come from addresses of their
/// own, so that they take no port that others need. It says how many sockets it holds when all are
/// at it, and ends with its standard input.
const FLOOD: &str = r#"import os, resource, signal, socket, sys
host, port = sys.argv[1].rsplit(':', 1)
to, uid, most = (host, int(port)), int(sys.argv[2]), 18000
for limit in (most + 1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]):
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        break
    except (OSError, ValueError): pass
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
# The table is long, and long to read.
near = socket.create_server(('127.0.0.1', 0))
held = []
try:
    while len(held) < most:
        held += [socket.create_connection(near.getsockname()), near.accept()[0]]
except OSError: pass
def flood(kind, go):
    os.read(go, 1)
    kept = []
    while True:
        stream = socket.socket()
        try:
            # IP_BIND_ADDRESS_NO_PORT: connect(2) chooses it.
            stream.setsockopt(socket.IPPROTO_IP, 24, 1)
            stream.bind((f'127.0.0.{kind + 2}', 0))
            stream.settimeout(5)
            stream.connect(to)
            if kind > 0: stream.send(b'{')
            if kind == 2: stream.shutdown(socket.SHUT_WR)
        except OSError: pass
        kept.append(stream)
        if len(kept) > (200 if kind == 3 else 0): kept.pop(0).close()
go, at_it = os.pipe()
children = []
for kind in range(4):
    child = os.fork()
    if child == 0:
        # It ends with its parent, whatever ends that.
        import ctypes
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        flood(kind, go)
    children.append(child)
os.write(at_it, b'xxxx')
print(len(held), flush=True)
sys.stdin.read()
for child in children: os.kill(child, signal.SIGKILL)
"#;

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn another_user_who_connects_without_end_keeps_nobody_waiting() {
    const CALLS: usize = 5;
    // After that clients give up.
    const LIMIT: Duration = Duration::from_secs(30);
    let home = Home::new("");
    fs::write(home.path("mcp-bridge.toml"), home.server("a", "a")).unwrap();
    let bridge = home.bridge();
    let ask = |number| bridge.ask(&call("a", "echo", json!({ "n": number })));
    assert_eq!(ask(CALLS)["ok"], true);
    // A Python that the other user can read.
    let mut command = Command::new("/usr/bin/env");
    command
        .args(["PATH=/usr/local/bin:/usr/bin:/bin", "python3", "-c", FLOOD])
        .args([&bridge.listening(), "60802"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut flood = command.spawn().unwrap();
    let mut held = String::new();
    BufReader::new(flood.stdout.take().unwrap())
        .read_line(&mut held)
        .unwrap();
    assert!(held.trim().parse::<usize>().unwrap() > 100, "{held}");
    let (done, answered) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..CALLS {
                let _ = done.send(ask(number));
            }
        });
        let answers: Vec<_> = (0..CALLS)
            .map_while(|_| answered.recv_timeout(LIMIT).ok())
            .collect();
        // They end before anything can fail here.
        drop(flood.stdin.take());
        assert!(flood.wait().unwrap().success());
        assert_eq!(
            answers.len(),
            CALLS,
            "answers within {LIMIT:?} each, beside {held}"
        );
        for (number, answer) in answers.iter().enumerate() {
            assert_eq!(answer["result"], format!("{{\"n\":{number}}}"));
        }
    });
}

#[test]
fn clients_that_do_harm_hinder_nobody() {
    let home = Home::new("");
    let bridge = home.bridge();
    let works = || assert!(!error(&bridge.ask(&call("x", "y", json!({})))).is_empty());
    let unreadable = |bytes: &[u8], why: &str| {
        let answer: Value = serde_json::from_slice(&bridge.raw(bytes)).unwrap();
        assert!(error(&answer).contains(why), "{answer}");
    };
    // Who closes without having sent a byte is not even looked up.
    assert_eq!(bridge.raw(b""), b"");
    unreadable(b"\n{\"op\":\"list_tools\"}", "not a JSON object");
    unreadable(b"GET / HTTP/1.1\r\n\r\n", "not a JSON object");
    unreadable(b"{\"op\":\"list_", "not a JSON object");
    unreadable(b"{\"op\":\"\xff\"}", "not UTF-8");
    unreadable(&b"[".repeat(100_000), "not a JSON object");
    unreadable(&b" ".repeat(5 << 20), "over 4194304 bytes");
    works();
    // Many that say nothing, or half of something, and stay.
    let silent: Vec<TcpStream> = (0..50).map(|_| bridge.connect()).collect();
    let mut half: Vec<TcpStream> = (0..50).map(|_| bridge.connect()).collect();
    for stream in &mut half {
        stream.write_all(b"{\"op\":").unwrap();
    }
    works();
    // They are told, and closed.
    for mut stream in silent.into_iter().chain(half) {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("no request came within 10 s"), "{answer}");
    }
    works();
}

#[test]
fn who_sends_and_closes_at_once_has_nothing_done() {
    let home = Home::new("");
    fs::write(home.path("mcp-bridge.toml"), home.server("a", "a")).unwrap();
    let bridge = home.bridge();
    bridge.ask(&call("a", "echo", json!({})));
    let effects = || {
        fs::read_to_string(home.path("a.record"))
            .unwrap()
            .matches(" effect ")
            .count()
    };
    bridge.ask(&call("a", "count", json!({})));
    assert_eq!(effects(), 1);
    for _ in 0..20 {
        let mut stream = bridge.connect();
        stream
            .write_all(call("a", "count", json!({})).to_string().as_bytes())
            .unwrap();
        drop(stream);
    }
    // Those that were there when they were accepted, which they were before the next one is
    // answered.
    let accepted: Vec<TcpStream> = (0..5)
        .map(|_| {
            let mut stream = bridge.connect();
            let request = call("a", "count", json!({})).to_string();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(bridge.ask(&call("a", "echo", json!({})))["ok"], true);
    drop(accepted);
    // Whoever is gone cannot be seen, so nothing is done for it; who stays is served after it.
    assert_eq!(bridge.ask(&call("a", "echo", json!({})))["ok"], true);
    assert_eq!(bridge.ask(&call("a", "count", json!({})))["ok"], true);
    assert_eq!(effects(), 2);
}

/// Python that sends a request over a connection which it then resets, and another from the same
/// port: of that one it says when it is there, and what comes back.
const SAME_PORT: &str = "import socket,struct,sys\nh,p=sys.argv[1].rsplit(':',1)\ndef connected(port):\n \
    s=socket.socket()\n s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\n s.bind((h,port))\n s.settimeout(60)\n \
    s.connect((h,int(p)))\n return s\n\
    s=connected(0)\ns.sendall(sys.argv[2].encode()+b'\\n')\nport=s.getsockname()[1]\n\
    s.setsockopt(socket.SOL_SOCKET,socket.SO_LINGER,struct.pack('ii',1,0))\ns.close()\n\
    s=connected(port)\nprint('there',flush=True)\ns.sendall(sys.argv[3].encode()+b'\\n')\nprint(s.makefile().read())\n";

#[test]
fn what_somebody_left_is_not_done_for_who_has_the_port_now() {
    let home = Home::new("");
    fs::write(home.path("mcp-bridge.toml"), home.server("a", "a")).unwrap();
    let bridge = home.bridge();
    let (left, asked) = (call("a", "count", json!({})), call("a", "echo", json!({})));
    assert_eq!(bridge.ask(&asked)["ok"], true);
    // All of that happens before the bridge looks at the first connection.
    kill(bridge.pid(), Signal::SIGSTOP).unwrap();
    let mut command = Command::new("python3");
    command
        .args(["-c", SAME_PORT, &bridge.listening()])
        .args([left.to_string(), asked.to_string()])
        .stdout(Stdio::piped());
    let mut client = command.spawn().unwrap();
    let mut said = BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "there\n");
    kill(bridge.pid(), Signal::SIGCONT).unwrap();
    let mut answer = String::new();
    said.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"ok\":true"), "{answer}");
    assert!(client.wait().unwrap().success());
    // What is asked now is done after what was left would have been.
    for _ in 0..5 {
        assert_eq!(bridge.ask(&asked)["ok"], true);
    }
    let recorded = fs::read_to_string(home.path("a.record")).unwrap();
    assert_eq!(recorded.matches(" effect ").count(), 0, "{recorded}");
}

#[test]
fn it_ends_as_usual_where_nobody_reads_what_it_says() {
    let home = Home::new("idle_timeout_minutes = 0.01\n");
    let mut command = home.command("stderr");
    command.stderr(Stdio::piped());
    let mut bridge = home.spawn(command, "stderr");
    let mut line = String::new();
    let mut said = BufReader::new(bridge.process.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(line.contains("listening on"), "{line}");
    drop(said);
    assert_eq!(bridge.ended().code(), Some(0));
    assert!(!bridge.has_lock());
}

#[test]
fn of_two_bridges_at_once_one_stays() {
    for round in 0..20 {
        let home = Home::new("");
        // What an earlier one left: of a process that is gone, of one that is another's, or no lock
        // at all.
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let left = |pid: u32, timestamp: u64| {
            json!({ "pid": pid, "address": "127.0.0.1:9", "started": 1, "heartbeat_secs": 30, "timestamp": timestamp })
                .to_string()
        };
        match round % 4 {
            0 => {}
            1 => fs::write(home.path("mcp-bridge.lock"), left(i32::MAX as u32, now)).unwrap(),
            2 => fs::write(
                home.path("mcp-bridge.lock"),
                left(std::process::id(), now - 60),
            )
            .unwrap(),
            _ => fs::write(home.path("mcp-bridge.lock"), "{").unwrap(),
        }
        let (first, second) = (home.command("stderr"), home.command("stderr-2"));
        let mut both = [home.spawn(first, "stderr"), home.spawn(second, "stderr-2")];
        let loser = wait_for("one that ends", || {
            both.iter_mut()
                .position(|one| one.process.try_wait().unwrap().is_some())
        });
        assert_eq!(both[loser].ended().code(), Some(1));
        let said = both[loser].said();
        let winner = &both[1 - loser];
        let pid = winner.process.id();
        assert!(
            said.contains(&format!(
                "another bridge runs for this home: process {pid}, listening on"
            )),
            "{said}"
        );
        assert!(!said.contains("[mcp-bridge] listening"), "{said}");
        assert_eq!(winner.lock()["pid"], pid);
        assert!(!winner.raw(b"{}").is_empty());
    }
}

#[test]
fn it_ends_when_nobody_comes_and_with_every_signal_that_ends_it() {
    let home = Home::new("idle_timeout_minutes = 0.01\n");
    let mut bridge = home.bridge();
    assert_eq!(bridge.ended().code(), Some(0));
    assert!(!bridge.has_lock(), "{}", bridge.said());
    let home = Home::new("");
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGALRM,
        Signal::SIGABRT,
        Signal::SIGXCPU,
        Signal::SIGPROF,
    ] {
        let mut bridge = home.bridge();
        kill(bridge.pid(), signal).unwrap();
        // Where whoever started the tests ignores a signal, as a shell does for what runs in the
        // background, it says by its status which one it was.
        let ended = bridge.ended();
        let by = ended.signal().or(ended.code().map(|status| status - 128));
        assert_eq!(by, Some(signal as i32), "{ended}");
        assert!(!bridge.has_lock(), "{signal}");
    }
    // What leaves it no time leaves its lock, and the next bridge replaces that.
    let mut bridge = home.bridge();
    kill(bridge.pid(), Signal::SIGKILL).unwrap();
    bridge.ended();
    assert!(bridge.has_lock());
    assert!(colibri_client::read_bridge_address(&bridge.home).is_err());
    let next = home.bridge();
    assert_eq!(next.lock()["pid"], next.process.id());
}

/// Python that connects to an address, sends a request and prints what comes back; run as another
/// user.
const STRANGER: &str = "import socket,sys\nh,p=sys.argv[1].rsplit(':',1)\ns=socket.create_connection((h,int(p)),60)\n\
    try:\n s.sendall(b'{\"op\":\"list_tools\"}\\n')\n print(s.recv(4096))\nexcept OSError as e: print(b'')\n";

/// What another user than the bridge's is told.
fn as_user(uid: u32, address: &str) -> String {
    let mut command = Command::new("/usr/bin/env");
    command
        .args([
            "PATH=/usr/local/bin:/usr/bin:/bin",
            "python3",
            "-c",
            STRANGER,
            address,
        ])
        .uid(uid)
        .gid(uid)
        .current_dir("/");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn another_users_connection_is_refused_roots_bridge_included() {
    let (own, other) = (60_801, 60_802);
    let roots = Home::new("");
    let bridge = roots.bridge();
    assert!(as_user(0, &bridge.listening()).contains("ok"));
    assert_eq!(as_user(own, &bridge.listening()).trim(), "b''");
    assert!(
        bridge
            .said()
            .contains("was refused: the other end is uid 60801's"),
        "{}",
        bridge.said()
    );

    let home = Home::new("");
    let mut command = home.command("stderr");
    command.uid(own).gid(own);
    std::os::unix::fs::chown(home.directory.path(), Some(own), Some(own)).unwrap();
    let bridge = home.spawn(command, "stderr");
    let address = bridge.listening();
    assert!(as_user(own, &address).contains("ok"), "{}", bridge.said());
    // Root may do everything, and is another user all the same.
    for stranger in [0, other] {
        assert_eq!(as_user(stranger, &address).trim(), "b''", "{stranger}");
    }
    // The library does not speak to another user's listener either.
    let error = colibri_client::send_request(address.parse().unwrap(), "{}").unwrap_err();
    assert!(error.to_string().contains("uid 60801's"), "{error}");
}

#[test]
fn a_server_that_changed_says_in_every_answer_why_its_tools_are_gone() {
    let home = Home::new("");
    fs::write(home.path("mcp-bridge.toml"), home.server("a", "a")).unwrap();
    let defined = |description: &str| {
        let tools = json!([
            { "name": "echo", "description": description, "inputSchema": { "type": "object" } },
            { "name": "count", "inputSchema": { "type": "object" } },
        ]);
        fs::write(home.path("a.definitions.new"), tools.to_string()).unwrap();
        fs::rename(home.path("a.definitions.new"), home.path("a.definitions")).unwrap();
    };
    defined("Says it again.");
    let bridge = home.bridge();
    let listed = bridge.ask(&json!({ "op": "list_tools" }));
    assert_eq!(listed["tools"].as_array().unwrap().len(), 2, "{listed}");
    assert!(listed.get("notes").is_none(), "{listed}");
    defined("Says it again, and sends it elsewhere.");
    let colibri_mcp = |args: &[&str]| {
        let mut command = Command::new(program("colibri-mcp"));
        let socket = home.path("mcp-bridge/colibri/colibri.sock");
        let output = command
            .arg("--socket")
            .arg(socket)
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    colibri_mcp(&["server", "restart", "a"]);
    // The next process says what it has before it is called.
    let listed = wait_for("the tool to be gone", || {
        bridge.ask(&call("a", "count", json!({})));
        let listed = bridge.ask(&json!({ "op": "list_tools" }));
        (listed["tools"].as_array().unwrap().len() == 1).then_some(listed)
    });
    let note = listed["notes"][0].as_str().unwrap().to_owned();
    assert!(note.starts_with("server a: 1 tool blocked"), "{note}");
    assert!(note.contains("colibri.sock pin diff a`"), "{note}");
    let why = error(&bridge.ask(&schema("a", "echo"))).to_owned();
    assert_eq!(why, format!("unknown tool: echo; {note}"));
    assert!(error(&bridge.ask(&call("a", "echo", json!({})))).contains("pin"));
    assert!(bridge.said().contains(&note), "{}", bridge.said());
    // What is advised helps.
    let shown = colibri_mcp(&["pin", "diff", "a"]);
    let hash = shown
        .split("--sha256 ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    colibri_mcp(&["pin", "accept", "a", "echo", "--sha256", hash.unwrap()]);
    assert_eq!(bridge.ask(&call("a", "echo", json!({})))["ok"], true);
    assert!(
        bridge
            .ask(&json!({ "op": "list_tools" }))
            .get("notes")
            .is_none()
    );
}

#[test]
fn a_server_of_the_service_whose_tools_are_all_blocked_says_so() {
    let place = Place::new();
    place.registry(&json!({ "theirs": place.fixture("theirs", &[], json!({})) }));
    place.defines(
        "theirs",
        "definitions",
        r#"[{"name":"echo","inputSchema":{"type":"object"}}]"#,
    );
    let daemon = place.start(&[]);
    let home = Home::new("");
    let mut command = home.command("stderr");
    command.env("COLIBRI_MCP_SOCKET", place.socket());
    let bridge = home.spawn(command, "stderr");
    bridge.listening();
    assert_eq!(bridge.ask(&call("theirs", "echo", json!({})))["ok"], true);
    place.defines(
        "theirs",
        "definitions",
        r#"[{"name":"echo","description":"Sends it elsewhere.","inputSchema":{"type":"object"}}]"#,
    );
    assert!(
        place
            .colibri_mcp(&["server", "restart", "theirs"])
            .output()
            .unwrap()
            .status
            .success()
    );
    // The next process says what it has before it is called.
    let note = wait_for("the tool to be gone", || {
        bridge.ask(&call("theirs", "echo", json!({})));
        let listed = bridge.ask(&json!({ "op": "list_tools" }));
        listed["tools"]
            .as_array()
            .unwrap()
            .is_empty()
            .then(|| listed["notes"][0].as_str().unwrap().to_owned())
    });
    assert!(note.starts_with("server theirs: 1 tool blocked"), "{note}");
    for asked in ["echo", "other"] {
        let why = error(&bridge.ask(&schema("theirs", asked))).to_owned();
        assert_eq!(why, format!("unknown tool: {asked}; {note}"));
    }
    assert_eq!(
        error(&bridge.ask(&schema("nobodys", "echo"))),
        "unknown server: nobodys"
    );
    drop(bridge);
    daemon.stop();
}

#[test]
fn an_answer_may_take_as_long_as_the_file_says() {
    let home = Home::new("");
    let configuration = "timeout_seconds = 1\n".to_owned() + &home.server("a", "a");
    fs::write(home.path("mcp-bridge.toml"), configuration).unwrap();
    let bridge = home.bridge();
    assert_eq!(bridge.lock()["answer_secs"], 1);
    // The first may wait for daemon and server to start.
    wait_for("an answer", || {
        let answer = bridge.ask(&call("a", "echo", json!({})));
        (answer["ok"] == true).then_some(())
    });
    let why = error(&bridge.ask(&call("a", "never", json!({})))).to_owned();
    assert!(
        why.contains("in time") || why.contains("after 1 s"),
        "{why}"
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn root_is_told_how_its_bridge_runs_the_files_servers() {
    let home = Home::new("");
    fs::write(home.path("mcp-bridge.toml"), home.server("a", "a")).unwrap();
    let mut command = home.command("stderr");
    command.env_remove("COLIBRI_MCP_ALLOW_ROOT");
    // Another test may have its daemon at the service's place.
    command.env("COLIBRI_MCP_SOCKET", home.path("no-service.sock"));
    let bridge = home.spawn(command, "stderr");
    bridge.listening();
    let listed = bridge.ask(&json!({ "op": "list_tools" }));
    let why = error(&listed);
    assert!(
        why.contains("COLIBRI_MCP_ALLOW_ROOT=1") && !why.contains("--allow-root"),
        "{why}"
    );
}

#[test]
fn without_a_file_the_library_offers_the_services_tools() {
    if let Some(home) = std::env::var_os(EMBEDDING).map(PathBuf::from) {
        let tools = colibri_client::load_mcp_tools(&home).unwrap();
        assert!(
            tools.iter().any(|tool| tool.name == "theirs_echo"),
            "{tools:?}"
        );
        return;
    }
    let place = Place::of_fixture(&[], json!({}));
    place.registry(&json!({ "theirs": place.fixture("theirs", &[], json!({})) }));
    let daemon = place.start(&[]);
    let home = Home::new("");
    let bridge = program("chibi-mcp-bridge");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "--nocapture",
            "chibi::without_a_file_the_library_offers_the_services_tools",
        ])
        .env(EMBEDDING, home.directory.path())
        .env("COLIBRI_MCP_SOCKET", place.socket())
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", bridge.parent().unwrap().display()),
        );
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lock: Value =
        serde_json::from_slice(&fs::read(home.path("mcp-bridge.lock")).unwrap()).unwrap();
    let pid = i32::try_from(lock["pid"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    wait_for("the bridge's end", || (!is_alive(pid)).then_some(()));
    daemon.stop();
}

#[test]
fn the_library_says_why_there_are_no_tools_of_a_daemon_that_is_down() {
    if let Some(home) = std::env::var_os(EMBEDDING).map(PathBuf::from) {
        let why = colibri_client::load_mcp_tools(&home)
            .unwrap_err()
            .to_string();
        assert!(why.contains("nobody.sock"), "{why}");
        return;
    }
    let home = Home::new("");
    let bridge = program("chibi-mcp-bridge");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "--nocapture",
            "chibi::the_library_says_why_there_are_no_tools_of_a_daemon_that_is_down",
        ])
        .env(EMBEDDING, home.directory.path())
        .env("COLIBRI_MCP_SOCKET", home.path("nobody.sock"))
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", bridge.parent().unwrap().display()),
        );
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("[MCP: bridge unavailable: "), "{said}");
    let lock: Value =
        serde_json::from_slice(&fs::read(home.path("mcp-bridge.lock")).unwrap()).unwrap();
    let pid = i32::try_from(lock["pid"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    wait_for("the bridge's end", || (!is_alive(pid)).then_some(()));
}

/// What says that this process is to be the embedding program of the tests that start one.
const EMBEDDING: &str = "COLIBRI_TEST_CHIBI_HOME";

#[test]
fn the_library_starts_the_bridge_once_and_calls_through_it() {
    if let Some(home) = std::env::var_os(EMBEDDING).map(PathBuf::from) {
        let tools = colibri_client::load_mcp_tools(&home).unwrap();
        let echo = tools.iter().find(|tool| tool.name == "a_echo").unwrap();
        assert!(colibri_client::is_mcp_tool(echo));
        assert_eq!(
            colibri_client::execute_mcp_tool(echo, &json!({ "x": 1 }), &home).unwrap(),
            "{\"x\":1}"
        );
        return;
    }
    let home = Home::new("");
    fs::write(home.path("mcp-bridge.toml"), home.server("a", "a")).unwrap();
    let bridge = program("chibi-mcp-bridge");
    let programs = bridge.parent().unwrap();
    let embedding: Vec<Child> = (0..5)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args([
                    "--exact",
                    "--nocapture",
                    "chibi::the_library_starts_the_bridge_once_and_calls_through_it",
                ])
                .env(EMBEDDING, home.directory.path())
                .env(
                    "PATH",
                    format!("relative:{}:/usr/bin:/bin", programs.display()),
                )
                .env("COLIBRI_MCP_ALLOW_ROOT", "1")
                .env("COLIBRI_MCP_END_IDLE", "60")
                .stderr(Stdio::piped())
                .stdout(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for one in embedding {
        let output = one.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("[MCP: 27 tools loaded]"),
            "{output:?}"
        );
    }
    let said = fs::read_to_string(home.path("mcp-bridge.log")).unwrap();
    assert_eq!(said.matches("listening on").count(), 1, "{said}");
    assert!(!home.path("mcp-bridge-spawning.lock").exists());
    let lock: Value =
        serde_json::from_slice(&fs::read(home.path("mcp-bridge.lock")).unwrap()).unwrap();
    let pid = i32::try_from(lock["pid"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    wait_for("the bridge's end", || (!is_alive(pid)).then_some(()));
}

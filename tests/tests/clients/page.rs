//! The page that `glasspane --open` serves: its token, its cookie, its news, answers in it, and
//! what strangers try.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use colibri_tests::{
    Daemon, HEADLESS, LEGACY, PATIENCE, Place, Record, code_of, headless_meta, wait_for,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A page that is served. It ends with this.
pub(crate) struct ServedPage {
    child: Child,
    file: PathBuf,
    port: u16,
    /// The folder of its paths, and its token.
    folder: String,
    token: String,
}

/// A response: its status, its head, its body.
struct PageResponse {
    status: u16,
    head: String,
    body: String,
}

impl ServedPage {
    /// Serves a page of this place's daemon; what `BROWSER` names is given the file.
    fn start(place: &Place, browser: &str) -> ServedPage {
        let state = place.path("state");
        let flags = [
            "--json",
            "glasspane",
            "--open",
            "--state-dir",
            state.to_str().unwrap(),
        ];
        ServedPage::of(place.colibri_mcp(&flags), &place.path("tmp"), browser)
    }

    /// Serves the page that this command serves, with this directory for temporary files.
    pub(crate) fn of(mut command: Command, temporary: &Path, browser: &str) -> ServedPage {
        fs::create_dir_all(temporary).unwrap();
        let mut child = command
            .env("BROWSER", browser)
            .env("TMPDIR", temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let said: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let file = PathBuf::from(said["file"].as_str().unwrap());
        let text = fs::read_to_string(&file).unwrap();
        let address = text
            .split("url=http://127.0.0.1:")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap();
        let (port, path) = address.split_once('/').unwrap();
        let (folder, token) = path.split_once("/enter?").unwrap();
        assert_eq!(said["address"], format!("127.0.0.1:{port}"));
        assert_eq!((folder.len(), token.len()), (32, 64), "128 and 256 bits");
        ServedPage {
            child,
            file,
            port: port.parse().unwrap(),
            folder: folder.to_owned(),
            token: token.to_owned(),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request, and begins to read what comes.
    fn send(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n",
            body.len()
        );
        if !fields.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&format!("Host: 127.0.0.1:{}\r\n", self.port));
        }
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        // Who is not served may be told so before all of it is read.
        let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes());
        BufReader::new(stream)
    }

    fn ask(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> PageResponse {
        let mut reader = self.send(method, path, fields, body);
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).unwrap() > 2 {
            head.push_str(&line);
            line.clear();
        }
        let length = head
            .split("content-length: ")
            .nth(1)
            .map_or("0", |rest| rest.split('\r').next().unwrap());
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        PageResponse {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head,
            body: String::from_utf8(body).unwrap(),
        }
    }

    fn get(&self, place: &str, fields: &[(&str, &str)]) -> PageResponse {
        self.ask("GET", &format!("/{}/{place}", self.folder), fields, "")
    }

    /// Brings the token, and returns the cookie.
    fn enter(&self) -> String {
        let entered = self.get(&format!("enter?{}", self.token), &[]);
        assert_eq!(entered.status, 200, "{}", entered.head);
        let cookie = entered
            .head
            .split("set-cookie: ")
            .nth(1)
            .unwrap()
            .split('\r')
            .next()
            .unwrap();
        let terms = format!("; Path=/{}/; HttpOnly; SameSite=Strict", self.folder);
        assert!(cookie.ends_with(&terms), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }

    /// The page's content.
    fn data(&self, cookie: &str) -> Value {
        let page = self.get("", &[("Cookie", cookie)]);
        assert_eq!(page.status, 200, "{}", page.head);
        let data = page
            .body
            .split("id=\"data\">")
            .nth(1)
            .unwrap()
            .split("</script>")
            .next()
            .unwrap();
        serde_json::from_str(data).unwrap()
    }

    /// Sends an answer to a waiting call.
    fn decide(&self, approval: &str, approve: bool, fields: &[(&str, &str)]) -> PageResponse {
        let body = json!({ "id": approval, "approve": approve }).to_string();
        self.ask("POST", &format!("/{}/decide", self.folder), fields, &body)
    }

    /// Answers a waiting call as the page itself does: the status, and whether the page says that
    /// it can be approved.
    pub(crate) fn answer(&self, approval: &str, approve: bool) -> (u16, bool) {
        let cookie = self.enter();
        let live = self.data(&cookie)["head"]["live"].take();
        let origin = format!("http://127.0.0.1:{}", self.port);
        let fields = [
            ("Content-Type", "application/json"),
            ("Cookie", &*cookie),
            ("Origin", &origin),
            ("X-Colibri-Page", live["secret"].as_str().unwrap()),
        ];
        let answer = self.decide(approval, approve, &fields);
        (answer.status, live["no_approval"].is_null())
    }

    /// The next event of this name that is as it should be.
    fn event<T>(&self, cookie: &str, name: &str, mut look: impl FnMut(Value) -> Option<T>) -> T {
        let path = format!("/{}/events?0-0", self.folder);
        let mut stream = self.send("GET", &path, &[("Cookie", cookie)], "");
        let (mut line, mut is_named) = (String::new(), false);
        loop {
            line.clear();
            assert!(
                stream.read_line(&mut line).unwrap() > 0,
                "the stream has ended"
            );
            if let Some(event) = line.strip_prefix("event: ") {
                is_named = event.trim() == name;
            }
            let data = line.strip_prefix("data: ").filter(|_| is_named);
            if let Some(found) = data.and_then(|data| look(serde_json::from_str(data).unwrap())) {
                return found;
            }
        }
    }

    fn end(mut self, signal: Signal) -> Option<i32> {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        let status = self.child.wait().unwrap();
        assert!(
            !self.file.parent().unwrap().exists(),
            "the file is left behind"
        );
        status.code()
    }
}

impl Drop for ServedPage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A place whose fixture's tool `count` waits for a person, who may approve their own calls.
fn place() -> Place {
    let place = Place::of_fixture(&[], json!({ "tools": { "confirm": ["count"] } }));
    let rights = json!({ "gates": ["external-call"], "servers": { "*": ["*"] }, "operator": true, "self_approve": true });
    let uid = nix::unistd::geteuid().to_string();
    place.clients(&json!({ "users": { uid: rights } }).to_string());
    place
}

fn waiting(present: &Value) -> Option<Value> {
    present["now"]["waiting"].as_array()?.first().cloned()
}

#[test]
fn the_token_opens_the_page_once_and_a_stranger_gets_nothing() {
    let place = place();
    let daemon = place.start(&[]);
    let page = ServedPage::start(&place, "/nonexistent/browser");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&page.file), mode(page.file.parent().unwrap())),
        (0o600, 0o700)
    );
    // What ps(1) shows of anybody, and the environment that others of this user see.
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        for name in ["cmdline", "environ"] {
            let shown = fs::read(process.path().join(name)).unwrap_or_default();
            let has = |secret: &str| {
                shown
                    .windows(secret.len())
                    .any(|part| part == secret.as_bytes())
            };
            assert!(
                !has(&page.token) && !has(&page.folder),
                "{:?}/{name}",
                process.path()
            );
        }
    }
    let rebound = format!("evil.example:{}", page.port);
    let of_name = format!("localhost:{}", page.port);
    let enter = format!("enter?{}", page.token);
    let wrong = format!("enter?{}", "0".repeat(64));
    for (path, fields, status) in [
        ("", &[][..], 403),
        (&*wrong, &[], 403),
        ("enter", &[], 403),
        ("events?0-0", &[], 403),
        (&enter, &[("Host", &*rebound)], 403),
        (&enter, &[("Host", &*of_name)], 403),
        ("", &[("Cookie", "colibri_page=")], 403),
        ("elsewhere", &[], 403),
    ] {
        let refused = page.get(path, fields);
        assert_eq!(
            (refused.status, &*refused.body),
            (status, ""),
            "{path} {fields:?}"
        );
        assert!(!refused.head.contains("set-cookie"), "{}", refused.head);
    }
    for path in ["/", "/favicon.ico", "/enter", "//", "/../", "/%00/"] {
        let refused = page.ask("GET", path, &[], "");
        assert_eq!((refused.status, &*refused.body), (404, ""), "{path}");
    }
    assert!(page.file.exists(), "nobody has brought the token");

    let cookie = page.enter();
    wait_for("the file to go", || (!page.file.exists()).then_some(()));
    assert_eq!(page.get(&enter, &[]).status, 403, "it works once");
    let shown = page.get("", &[("Cookie", &cookie)]);
    assert!(shown.body.starts_with("<!doctype html>") && shown.body.contains("<noscript>"));
    for policy in [
        "default-src 'none'",
        "connect-src 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(
            shown.head.contains(policy) || shown.body.contains(policy),
            "{policy}"
        );
    }
    assert!(
        shown.head.contains("no-store") && shown.head.contains("nosniff"),
        "{}",
        shown.head
    );

    // Of another run there is no way in, whose browser has both cookies.
    let other = ServedPage::start(&place, "/nonexistent/browser");
    let others = other.enter();
    assert_ne!(
        (&page.folder, &page.token, &cookie),
        (&other.folder, &other.token, &others)
    );
    assert_eq!(page.get("", &[("Cookie", &others)]).status, 403);
    assert_eq!(
        page.get("", &[("Cookie", &format!("{others}; {cookie}"))])
            .status,
        200
    );
    assert_eq!(other.end(Signal::SIGTERM), Some(143));
    assert_eq!(page.end(Signal::SIGINT), Some(0), "as a person ends it");
    daemon.stop();
}

#[test]
fn what_happens_is_news_and_an_answer_needs_origin_and_value() {
    let place = place();
    let daemon = place.start(&[]);
    let page = ServedPage::start(&place, "/nonexistent/browser");
    let cookie = page.enter();
    let live = &page.data(&cookie)["head"]["live"];
    assert_eq!(live["no_approval"], Value::Null);
    let value = live["secret"].as_str().unwrap().to_owned();
    let mut client = daemon.legacy(LEGACY);
    let decide = |approval: &Value, approve: bool, fields: &[(&str, &str)]| {
        page.decide(approval["approval"].as_str().unwrap(), approve, fields)
    };
    let origin = format!("http://127.0.0.1:{}", page.port);
    let effects = || place.recorded("fix", "effect").len();

    let call = client.request_tool("fix__count", json!({ "path": "/etc" }));
    let one = page.event(&cookie, "present", |present| waiting(&present));
    assert_eq!(
        (&one["server"], &one["tool"]),
        (&json!("fix"), &json!("count"))
    );
    let arguments = one["arguments"].as_str().unwrap();
    assert!(
        arguments.contains("path: \"/etc\"") && !one["rule"].as_str().unwrap().is_empty(),
        "{one}"
    );
    let json = ("Content-Type", "application/json");
    let (own, right) = (("Cookie", &*cookie), ("X-Colibri-Page", &*value));
    for fields in [
        &[json, right, ("Origin", &origin)][..],
        &[json, own, right],
        &[json, own, ("Origin", &origin)],
        &[json, own, right, ("Origin", "null")],
        &[json, own, right, ("Origin", "http://evil.example")],
        &[
            json,
            own,
            right,
            ("Origin", &origin),
            ("Host", "evil.example"),
        ],
        &[json, own, ("X-Colibri-Page", "0"), ("Origin", &origin)],
    ] {
        let refused = decide(&one, true, fields);
        assert_eq!((refused.status, &*refused.body), (403, ""), "{fields:?}");
    }
    let good = [json, own, right, ("Origin", &*origin)];
    for body in [
        "",
        "{}",
        "[]",
        "{\"id\":1,\"approve\":true}",
        &format!("{{\"id\":\"{}\"}}", "x".repeat(5000)),
    ] {
        let refused = page.ask("POST", &format!("/{}/decide", page.folder), &good, body);
        assert_eq!((refused.status, &*refused.body), (400, ""), "{body}");
    }
    assert_eq!(effects(), 0, "nothing of this was an answer");
    let unknown = decide(&json!({ "approval": "00000000" }), true, &good);
    assert_eq!(unknown.status, 409, "{}", unknown.body);
    assert!(unknown.body.contains("refused"), "{}", unknown.body);

    let decided = decide(&one, true, &good);
    assert_eq!(
        (decided.status, &*decided.body),
        (200, "{\"said\":\"Approved: fix count\"}")
    );
    let answer = client.answer(call);
    assert_eq!((code_of(&answer), effects()), (None, 1), "{answer}");
    let counted = |record: Value| {
        let lanes = record["day"]["lanes"]["list"].as_array()?.clone();
        let names = record["day"]["names"].as_array()?.clone();
        let named =
            |span: &Value| names[span[5].as_u64().unwrap() as usize] == "count" && span[1].is_u64();
        lanes
            .iter()
            .flat_map(|lane| lane["spans"].as_array().unwrap())
            .any(named)
            .then_some(())
    };
    page.event(&cookie, "record", counted);

    // A call whose client replied by itself is shown as one whose client cannot be asked.
    let mut client = daemon.connect();
    client.open_as(HEADLESS, LEGACY, json!({ "elicitation": {} }));
    let params = json!({ "name": "fix__count", "arguments": {}, "_meta": headless_meta() });
    let call = client.request("tools/call", params);
    let asked = client.notification("elicitation/create");
    client.send(
        json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "decline" } })
            .to_string(),
    );
    wait_for("the reply", || {
        let is_programs = |record: &Record| record.rec["details"]["answered_by"] == "program";
        place.records().iter().any(is_programs).then_some(())
    });
    let two = page.event(&cookie, "present", |present| {
        waiting(&present).filter(|two| *two != one)
    });
    assert_eq!(decide(&two, false, &good).status, 200);
    assert_eq!(code_of(&client.answer(call)), Some("APPROVAL_DENIED"));
    let told = |record: Value| {
        record
            .to_string()
            .contains("a person refused the call")
            .then_some(())
    };
    page.event(&cookie, "record", told);

    // A daemon that goes is said to have gone, and what the trail has stays.
    daemon.stop();
    page.event(&cookie, "present", |present| {
        present["now_trouble"].as_str().map(str::to_owned)
    });
    assert!(page.data(&cookie)["record"]["day"].is_object());
    let again: Daemon = place.start(&[]);
    page.event(&cookie, "present", |present| {
        present["now"].is_object().then_some(())
    });
    assert_eq!(page.end(Signal::SIGHUP), Some(129));
    again.stop();
}

#[test]
fn who_holds_connections_keeps_no_browser_out() {
    let place = place();
    let daemon = place.start(&[]);
    let page = ServedPage::start(&place, "/nonexistent/browser");
    let mut held = Vec::new();
    for number in 0..300 {
        let mut stream = page.connect();
        let _ = match number % 3 {
            0 => Ok(()),
            1 => stream.write_all(format!("GET /{}/ HTTP/1.1\r\nX: ", page.folder).as_bytes()),
            _ => {
                stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx")
            }
        };
        held.push(stream);
    }
    let cookie = page.enter();
    // A head without an end is not read to its end.
    let mut endless = page.connect();
    let head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let _ = endless.write_all(head.as_bytes());
    let mut answer = Vec::new();
    let _ = endless.read_to_end(&mut answer);
    assert!(
        !answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    // Whoever has the cookie stays, whatever others do.
    let path = format!("/{}/events?0-0", page.folder);
    let mut news = page.send("GET", &path, &[("Cookie", &cookie)], "");
    let mut line = String::new();
    news.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    held.extend((0..300).map(|_| page.connect()));
    let mut client = daemon.legacy(LEGACY);
    client.call("fix__echo", json!({ "the": "news" }));
    wait_for("news of the call", || {
        line.clear();
        news.read_line(&mut line).unwrap();
        (line.starts_with("data: ") && line.contains("\"echo\"")).then_some(())
    });
    assert_eq!(page.get("", &[("Cookie", &cookie)]).status, 200);
    drop(held);
    assert_eq!(page.end(Signal::SIGINT), Some(0));
    daemon.stop();
}

/// Ends threads that look at this, once it is dropped.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn who_opens_connections_without_end_keeps_no_browser_from_its_first_request() {
    let place = place();
    let daemon = place.start(&[]);
    let page = ServedPage::start(&place, "/nonexistent/browser");
    let (port, over, opened) = (page.port, AtomicBool::new(false), AtomicUsize::new(0));
    // Each has a new one for every one that it lost.
    let flood = || {
        let mut held = VecDeque::new();
        while !over.load(Ordering::Relaxed) {
            held.extend(TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
            if held.len() > 2 {
                held.pop_front();
            }
            opened.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..150 {
            scope.spawn(flood);
        }
        wait_for("a flood", || {
            (opened.load(Ordering::Relaxed) > 1000).then_some(())
        });
        // They end as well if this fails.
        let _ending = Ending(&over);
        let cookie = page.enter();
        for _ in 0..20 {
            assert_eq!(page.get("", &[("Cookie", &cookie)]).status, 200);
        }
    });
    assert_eq!(page.end(Signal::SIGINT), Some(0));
    daemon.stop();
}

#[test]
fn a_browser_is_given_the_file_and_nothing_else() {
    let place = place();
    let daemon = place.start(&[]);
    let (browser, told) = (place.path("browser"), place.path("told"));
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" >{0}.new && mv {0}.new {0}\n",
        told.display()
    );
    fs::write(&browser, script).unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o700)).unwrap();
    // The first that can be started.
    let page = ServedPage::start(
        &place,
        &format!("/nonexistent/browser:{} --new %s", browser.display()),
    );
    let arguments = wait_for("the browser", || fs::read_to_string(&told).ok());
    assert_eq!(arguments, format!("--new\n{}\n", page.file.display()));
    assert_eq!(page.end(Signal::SIGINT), Some(0));
    daemon.stop();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn another_user_reads_neither_file_nor_page() {
    let place = place();
    let daemon = place.start(&[]);
    let page = ServedPage::start(&place, "/nonexistent/browser");
    let as_nobody = |script: String| {
        let output = Command::new("bash")
            .arg("-c")
            .arg(script)
            .uid(65_534)
            .gid(65_534)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(
        as_nobody(format!(
            "cat {0}; ls {1}",
            page.file.display(),
            page.file.parent().unwrap().display()
        )),
        ""
    );
    let environment = format!("cat /proc/{}/environ /proc/{0}/maps", page.child.id());
    assert_eq!(as_nobody(environment), "");
    for path in [format!("/{}/", page.folder), "/".to_owned()] {
        let answer = as_nobody(format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n' >&3 && cat <&3",
            port = page.port
        ));
        assert!(
            answer.starts_with("HTTP/1.1 40") && answer.contains("content-length: 0"),
            "{answer}"
        );
    }
    assert_eq!(page.end(Signal::SIGINT), Some(0));
    daemon.stop();
}

#[test]
fn flags_that_do_not_fit_are_named() {
    let place = place();
    for flags in [
        &["--open", "--html", "x.html"][..],
        &["--open", "--once"],
        &["--open", "--until", "2026"],
        &["--open", "--servers"],
        &["--replace", "--open"],
        &["--since", "2026"],
    ] {
        let output = place
            .colibri_mcp(&["glasspane"])
            .args(flags)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(64), "{flags:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(flags[0]),
            "{flags:?} {output:?}"
        );
    }
    // Without daemon and trail there is nothing to serve.
    let state = place.path("nowhere");
    let output = place
        .colibri_mcp(&[
            "glasspane",
            "--open",
            "--state-dir",
            state.to_str().unwrap(),
        ])
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("the daemon tells nothing"),
        "{output:?}"
    );
}

//! What people see: `tap`, `top`, and why a call cannot be made.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use colibri_tests::{Client, Daemon, LEGACY, Place, program, text_of, wait_for};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Runs `colibri-mcp` to its end: exit status, stdout, stderr.
fn run(place: &Place, args: &[&str]) -> (Option<i32>, String, String) {
    let output = place
        .colibri_mcp(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    said(output)
}

fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// What comes from a program, as far as it has come.
fn gathered(mut from: impl Read + Send + 'static) -> Arc<Mutex<Vec<u8>>> {
    let all = Arc::new(Mutex::new(Vec::new()));
    let gathered = all.clone();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        // The end of a pseudo-terminal is an error on some systems.
        while let Ok(length @ 1..) = from.read(&mut piece) {
            all.lock().unwrap().extend_from_slice(&piece[..length]);
        }
    });
    gathered
}

/// Begins to tap a server on a connection of its own: the connection, and the request's id.
fn tap(daemon: &Daemon, server: &str, full: bool) -> (Client, u64) {
    let mut operator = daemon.connect();
    let id = operator.request(
        "colibri/watch",
        json!({ "topic": "messages", "server": server, "full": full }),
    );
    let begun = operator.notification("colibri/watching");
    assert_eq!(
        (&begun["params"]["watch"], &begun["params"]["server"]["id"]),
        (&json!(id), &json!(server))
    );
    (operator, id)
}

/// The next frame that passes and that is wanted.
fn frame(operator: &mut Client, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let frame = operator.notification("colibri/frame")["params"].take();
        if wanted(&frame) {
            return frame;
        }
    }
}

/// The message in a frame.
fn message(frame: &Value) -> Value {
    serde_json::from_str(frame["frame"].as_str().unwrap()).unwrap()
}

// The tap.

#[test]
fn a_tap_shows_both_directions_with_the_ids_of_both_sides() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let (mut operator, id) = tap(&daemon, "fix", false);
    // The server's process is started only now.
    let mut client = daemon.legacy(LEGACY);
    client.send(
        r#"{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"fix__progress","arguments":{"n":1},"_meta":{"progressToken":"p"}}}"#,
    );
    let probe = frame(&mut operator, |frame| frame["direction"] == "to-server");
    assert_eq!(
        (&probe["kind"], &probe["method"]),
        (&json!("request"), &json!("server/discover"))
    );
    assert_eq!(
        probe["client"],
        Value::Null,
        "the daemon's own question: {probe}"
    );
    let hello = frame(&mut operator, |frame| {
        frame["direction"] == "from-server" && frame["method"] == "initialize"
    });
    assert!(
        message(&hello)["result"]["serverInfo"].is_object(),
        "{hello}"
    );

    let sent = frame(&mut operator, |frame| frame["method"] == "tools/call");
    assert_eq!(sent["direction"], "to-server");
    assert_eq!(
        (&sent["client"]["id"], &sent["tool"]),
        (&json!("mine"), &json!("progress")),
        "{sent}"
    );
    assert_eq!(sent["client"]["uid"], nix::unistd::geteuid().as_raw());
    let number = sent["id"].as_u64().expect("our integer");
    let inside = message(&sent);
    assert_eq!(
        (&inside["id"], &inside["params"]["name"]),
        (&json!(number), &json!("progress"))
    );
    assert_eq!(
        inside["params"]["_meta"]["progressToken"], number,
        "what a name sounds like is not always a secret"
    );

    let progress = frame(&mut operator, |frame| {
        frame["method"] == "notifications/progress"
    });
    let answer = frame(&mut operator, |frame| {
        frame["kind"] == "result" && frame["id"] == number
    });
    for back in [&progress, &answer] {
        assert_eq!(back["direction"], "from-server");
        assert_eq!(
            (&back["client"], &back["tool"]),
            (&sent["client"], &json!("progress")),
            "{back}"
        );
    }
    assert_eq!(text_of(&message(&answer)["result"]), "done");
    let answered =
        std::iter::repeat_with(|| client.message()).find(|message| message["id"] == "mine");
    assert_eq!(text_of(&answered.unwrap()["result"]), "done");

    // A cancelled tap sees nothing more, and has no answer.
    operator.notify("notifications/cancelled", json!({ "requestId": id }));
    operator.ask("colibri/approvals", json!({}));
    client.call("fix__count", json!({}));
    operator.ask("colibri/approvals", json!({}));
    let after = operator
        .others
        .iter()
        .filter(|message| message["id"] == id || message["params"]["tool"] == "count");
    assert_eq!(after.count(), 0, "{:?}", operator.others);

    // Who looked is on record.
    let state = place.path("state");
    let (status, shown, _) = run(
        &place,
        &[
            "--json",
            "trail",
            "--state-dir",
            state.to_str().unwrap(),
            "show",
        ],
    );
    let event = shown
        .lines()
        .find(|line| line.contains("\"tap\""))
        .expect("an event");
    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!(
        (status, &event["details"]["server"]),
        (Some(0), &json!("fix")),
        "{event}"
    );
    assert_eq!(event["details"]["by"], nix::unistd::geteuid().as_raw());
}

#[test]
fn a_tap_shows_cancellations_and_calls_that_were_in_flight_before() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let waits = client.request_tool("fix__wait", json!({ "until": "told" }));
    let never = client.request_tool("fix__never", json!({}));
    wait_for("the calls", || place.received("fix", "\"never\"").pop());
    let (mut operator, _) = tap(&daemon, "fix", false);
    client.notify("notifications/cancelled", json!({ "requestId": never }));
    let cancelled = frame(&mut operator, |frame| {
        frame["method"] == "notifications/cancelled"
    });
    assert_eq!(cancelled["client"]["id"], never, "{cancelled}");
    assert_eq!(message(&cancelled)["params"]["requestId"], cancelled["id"]);
    place.release("told");
    // The request itself is shown, too, if its process was started only now.
    let answer = frame(&mut operator, |frame| {
        frame["tool"] == "wait" && frame["kind"] == "result"
    });
    assert_eq!(answer["client"]["id"], waits, "{answer}");
    client.answer(waits);
}

#[test]
fn nothing_secret_and_nothing_a_terminal_acts_on_leaves_the_daemon() {
    let place = Place::of_fixture(&[], json!({ "env": { "TOKEN": { "secret": "fix" } } }));
    place.secret("fix", "hunter2-hunter2");
    place.frame(
        "hostile",
        "\u{1b}]0;pwned\u{7}\u{1b}[2J\n{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{\"content\":[],\"x\":\"\u{9b}31m\u{202e}\u{e0041}\"}}"
            .as_bytes(),
    );
    let daemon = place.start(&[]);
    let mut child = place
        .colibri_mcp(&["watch", "messages", "fix"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("watching fix"), "{line}");
    let mut client = daemon.legacy(LEGACY);
    client.call(
        "fix__echo",
        json!({ "note": "it is hunter2-hunter2", "api_key": "open sesame" }),
    );
    client.call("fix__environment", json!({}));
    client.call("fix__frame", json!({ "case": "hostile" }));
    client.call("fix__echo", json!({ "the": "end" }));
    let out = gathered(child.stdout.take().unwrap());
    let shown = wait_for("the answer to the last call", || {
        let shown = String::from_utf8(out.lock().unwrap().clone()).ok()?;
        shown.contains(r#"{\"the\":\"end\"}"#).then_some(shown)
    });
    for secret in ["hunter2", "sesame"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.matches("[redacted]").count() >= 5, "{shown}");
    let unsafe_ones = |c: char| c.is_control() && c != '\n' || "\u{202e}\u{e0041}".contains(c);
    assert!(!shown.contains(unsafe_ones), "{shown:?}");
    assert!(
        shown.contains("\\u001b]0;pwned\\u0007") && shown.contains("\\u202e"),
        "{shown}"
    );
    assert!(
        shown.contains("-->") && shown.contains("tools/call echo"),
        "{shown}"
    );
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(
        rest.contains("interrupted") && rest.contains(" 0 dropped"),
        "{rest}"
    );
    daemon.assert_serves("fix__count");
}

#[test]
fn long_frames_are_cut_unless_all_of_them_is_wanted() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let (mut short, _) = tap(&daemon, "fix", false);
    let (mut full, _) = tap(&daemon, "fix", true);
    daemon
        .legacy(LEGACY)
        .call("fix__huge", json!({ "bytes": 100_000 }));
    let huge = |frame: &Value| frame["tool"] == "huge" && frame["kind"] == "result";
    let cut = frame(&mut short, huge);
    assert_eq!(
        (&cut["cut"], cut["frame"].as_str().unwrap().len() <= 4096),
        (&json!(true), true),
        "{cut}"
    );
    assert!(cut["length"].as_u64().unwrap() > 100_000);
    let whole = frame(&mut full, huge);
    assert_eq!(whole["cut"], false);
    assert_eq!(text_of(&message(&whole)["result"]).len(), 100_000);
}

#[test]
fn who_watches_slowly_holds_up_nobody_and_is_told_what_is_missing() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.call("fix__count", json!({}));
    let (mut slow, _) = tap(&daemon, "fix", false);
    // Nobody reads what the tap is sent.
    client.call("fix__flood", json!({ "thousands": 30 }));
    client.call("fix__count", json!({}));
    let (mut shown, mut dropped) = (0, 0);
    while shown + dropped < 30_000 {
        let message = slow.message();
        match message["method"].as_str() {
            Some("colibri/frame") => shown += 1,
            Some("colibri/dropped") => dropped += message["params"]["dropped"].as_u64().unwrap(),
            other => panic!("{other:?}: {message}"),
        }
    }
    assert!(dropped > 0 && shown > 0, "{shown} shown, {dropped} dropped");
    // From here on it sees again.
    client.call("fix__echo", json!({ "and": "now" }));
    frame(&mut slow, |frame| {
        frame["tool"] == "echo" && frame["kind"] == "result"
    });
}

#[test]
fn a_tap_outlasts_a_change_of_the_entry_and_ends_with_its_removal_or_the_daemon() {
    let place = Place::of_fixture(&[], json!({}));
    let mut daemon = place.start(&[]);
    let (mut operator, id) = tap(&daemon, "fix", false);
    place.registry(&json!({
        "fix": place.fixture("fix", &["--tool", "one_more"], json!({})),
        "other": place.fixture("other", &[], json!({})),
    }));
    daemon.reload();
    daemon.legacy(LEGACY).call("fix__echo", json!({}));
    frame(&mut operator, |frame| {
        frame["tool"] == "echo" && frame["kind"] == "result"
    });
    place.registry(&json!({ "other": place.fixture("other", &[], json!({})) }));
    daemon.reload();
    let ended = operator.answer(id);
    assert!(
        ended["result"]["ended"]
            .as_str()
            .unwrap()
            .contains("removed"),
        "{ended}"
    );
    let (mut operator, id) = tap(&daemon, "other", false);
    daemon.signal(Signal::SIGTERM);
    let ended = operator.answer(id);
    assert!(
        ended["result"]["ended"]
            .as_str()
            .unwrap()
            .contains("ending"),
        "{ended}"
    );
    assert!(daemon.wait().success());
}

#[test]
fn taps_of_what_is_not_there_and_too_many_of_them_are_refused() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let (status, _, text) = run(&place, &["watch", "messages", "fxi"]);
    assert_eq!(status, Some(65), "{text}");
    assert!(
        text.contains("there is no server") && text.contains("fxi"),
        "{text}"
    );
    let taps: Vec<_> = (0..8).map(|_| tap(&daemon, "fix", false)).collect();
    let (status, _, text) = run(&place, &["watch", "messages", "fix"]);
    assert_eq!(status, Some(65), "{text}");
    assert!(text.contains("8 taps"), "{text}");
    drop(taps);
    wait_for("room for a tap", || {
        let mut operator = daemon.connect();
        let id = operator.request(
            "colibri/watch",
            json!({ "topic": "messages", "server": "fix" }),
        );
        let first = operator.message();
        (first["id"] != id).then_some(())
    });
}

#[test]
fn only_operators_watch() {
    let place = Place::of_fixture(&[], json!({}));
    place.open_to_group();
    let clients = json!({ "others": { "gates": ["external-call"], "servers": { "*": ["*"] } } });
    fs::write(place.path("clients.json"), clients.to_string()).unwrap();
    fs::set_permissions(
        place.path("clients.json"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    let _daemon = place.start(&[]);
    for args in [
        &["watch", "messages", "fix"][..],
        &["watch", "messages", "no-such"],
        &["glasspane", "--servers", "--once"],
        &["--json", "glasspane", "--servers"],
        &["trail", "show"],
    ] {
        let output = place.stranger(args).stdin(Stdio::null()).output().unwrap();
        let (status, out, text) = said(output);
        assert_eq!((status, out.as_str()), (Some(65), ""), "{args:?}: {text}");
        assert!(text.contains("operator"), "{args:?}: {text}");
        assert!(
            !text.contains("no server"),
            "what there is is not told: {text}"
        );
    }
    let (status, out, _) = said(place.stranger(&["status"]).output().unwrap());
    assert_eq!((status, out.contains("fix")), (Some(0), true), "{out}");
}

#[test]
fn who_is_no_operator_any_more_sees_no_more() {
    let place = Place::of_fixture(&[], json!({}));
    place.open_to_group();
    let uid = nix::unistd::geteuid();
    let stranger = if uid.is_root() { 54_321 } else { uid.as_raw() };
    let rule = |operator: bool| {
        let all = json!({ "gates": ["external-call"], "servers": { "*": ["*"] } });
        let mut clients = json!({ "others": all, "users": { stranger.to_string(): all } });
        clients["users"][stranger.to_string()]["operator"] = json!(operator);
        fs::write(place.path("clients.json"), clients.to_string()).unwrap();
        fs::set_permissions(
            place.path("clients.json"),
            fs::Permissions::from_mode(0o600),
        )
        .unwrap();
    };
    rule(true);
    let daemon = place.start(&[]);
    let mut command = place.stranger(&["watch", "messages", "fix"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = gathered(child.stderr.take().unwrap());
    let told = || String::from_utf8_lossy(&told.lock().unwrap()).into_owned();
    wait_for("the tap", || told().contains("watching fix").then_some(()));
    rule(false);
    daemon.reload();
    daemon.legacy(LEGACY).call("fix__echo", json!({}));
    wait_for("its end", || {
        told().contains("no operator any more").then_some(())
    });
    assert!(child.wait().unwrap().success());
    let mut shown = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut shown)
        .unwrap();
    assert_eq!(shown, "");
}

// The view.

#[test]
fn who_waits_for_approval_is_told_for_what() {
    let place = Place::of_fixture(&[], json!({ "tools": { "confirm": ["count"] } }));
    let daemon = place.start(&[]);
    let waiting = |text: &str| {
        let id = text.split("colibri-mcp approvals approve ").nth(1)?;
        Some(
            id.chars()
                .take_while(char::is_ascii_hexdigit)
                .collect::<String>(),
        )
    };
    let mut command = place.colibri_mcp(&["call", "fix", "count", "n=1"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = gathered(child.stderr.take().unwrap());
    let id = wait_for("what it waits for", || {
        waiting(&String::from_utf8_lossy(&told.lock().unwrap()))
    });
    let (status, _, error) = run(&place, &["approvals", "deny", &id]);
    assert_eq!(status, Some(0), "{error}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    // Over the bridge too, for clients that ask for progress.
    let mut client = daemon.legacy(LEGACY);
    let call =
        json!({ "name": "fix__count", "arguments": {}, "_meta": { "progressToken": "mine" } });
    let call = client.request("tools/call", call);
    let progress = client.notification("notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "mine", "{progress}");
    let id = waiting(progress["params"]["message"].as_str().unwrap()).unwrap();
    assert_eq!(
        progress["params"]["_meta"]["org.colibri/approval"],
        id.as_str()
    );
    client.notify("notifications/cancelled", json!({ "requestId": call }));
}

#[test]
fn the_servers_are_shown_once_as_plain_text() {
    let place = Place::of_fixture(&[], json!({ "tools": { "confirm": ["count"] } }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.call("fix__echo", json!({}));
    client.call("fix__exit", json!({}));
    let waits = client.request_tool("fix__count", json!({}));
    daemon.wait_for_log("waits for `colibri-mcp approvals approve`");
    let (_, status, _) = run(&place, &["status"]);
    assert!(status.contains("calls that wait"), "{status}");
    // Standard output is no terminal, which says the same as --once.
    for args in [
        &["glasspane", "--servers", "--once"][..],
        &["glasspane", "--servers"],
    ] {
        let (status, text, error) = run(&place, args);
        assert_eq!(status, Some(0), "{error}");
        let line = text
            .lines()
            .find(|line| line.starts_with("  fix "))
            .expect("a line of the server");
        let words: Vec<&str> = line.split_whitespace().collect();
        // Server, state of one or two words, calls/s, p50, p95 with their units, calls, errors,
        // busy, processes.
        let numbers = &words[words.len() - 4..];
        assert_eq!(numbers, ["2", "1", "0", "0"], "{text}");
        for part in [
            "colibri-mcpd ",
            "gates: write closed, external-call open",
            "backing off",
            "SERVER_DIED",
            "APPROVALS WAITING: 1",
            "  fix count by ",
            "TRAIL (UTC)",
            "it wrote: ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text:?}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
    let (status, text, _) = run(&place, &["--json", "glasspane", "--servers"]);
    let overview: Value = serde_json::from_str(&text).unwrap();
    let fix = &overview["servers"][1];
    assert_eq!(
        (status, &fix["id"], &fix["calls"]["finished"]),
        (Some(0), &json!("fix"), &json!(2)),
        "{text}"
    );
    assert_eq!(overview["approvals"][0]["tool"], "count");
    client.notify("notifications/cancelled", json!({ "requestId": waits }));
}

/// A pseudo-terminal with a program in it, and what the program has drawn.
struct Terminal {
    slave: OwnedFd,
    keyboard: fs::File,
    written: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Terminal {
    fn start(mut command: Command) -> Terminal {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let keyboard = fs::File::from(pty.master.try_clone().unwrap());
        let written = gathered(fs::File::from(pty.master));
        Terminal {
            slave: pty.slave,
            keyboard,
            written,
            child,
        }
    }

    fn is_raw(&self) -> bool {
        let flags = tcgetattr(&self.slave).unwrap().local_flags;
        !flags.contains(LocalFlags::ICANON) && !flags.contains(LocalFlags::ECHO)
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// The screen as a terminal would show it: moves, clears and characters, which is all that is
    /// sent.
    fn screen(&self) -> String {
        let text = self.written();
        let mut cells = vec![vec![' '; 80]; 24];
        let (mut row, mut column) = (0_usize, 0_usize);
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            if c != '\u{1b}' {
                if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                    *cell = c;
                }
                column += 1;
                continue;
            }
            if rest.next() != Some('[') {
                continue;
            }
            let mut parameters = String::new();
            let last = loop {
                match rest.next() {
                    Some(c) if c.is_ascii_alphabetic() => break c,
                    Some(c) => parameters.push(c),
                    None => break ' ',
                }
            };
            match last {
                'H' => {
                    let mut numbers = parameters
                        .split(';')
                        .map(|number| number.parse().unwrap_or(1_usize));
                    (row, column) = (
                        numbers.next().unwrap_or(1) - 1,
                        numbers.next().unwrap_or(1) - 1,
                    );
                }
                'J' => cells = vec![vec![' '; 80]; 24],
                _ => {}
            }
        }
        let lines: Vec<String> = cells
            .into_iter()
            .map(|line| line.into_iter().collect())
            .collect();
        lines.join("\n")
    }

    fn wait_for(&self, what: &str) {
        wait_for(&format!("{what:?} on the screen"), || {
            self.screen().contains(what).then_some(())
        });
    }

    fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    /// Waits for its end, and checks that the terminal is as it was before: exit status.
    fn end(mut self) -> Option<i32> {
        let child = &mut self.child;
        let status = wait_for("the end of top", || child.try_wait().unwrap());
        assert!(!self.is_raw(), "the terminal was left in raw mode");
        let tail = |what: &str| self.written().rfind(what);
        wait_for("the last bytes", || {
            (tail("\u{1b}[?1049l") > tail("\u{1b}[?1049h")).then_some(())
        });
        wait_for("a cursor", || {
            (tail("\u{1b}[?25h") > tail("\u{1b}[?25l")).then_some(())
        });
        status.code()
    }
}

fn glasspane(place: &Place, args: &[&str]) -> Terminal {
    let mut all = vec!["glasspane", "--servers", "--interval", "1"];
    all.extend(args);
    Terminal::start(place.colibri_mcp(&all))
}

#[test]
fn glasspane_takes_keys_shows_changes_and_gives_the_terminal_back() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut terminal = glasspane(&place, &[]);
    terminal.wait_for("q quit");
    assert!(terminal.is_raw());
    assert!(
        terminal.screen().contains("  fix "),
        "{}",
        terminal.screen()
    );
    terminal.press(b"s");
    terminal.wait_for("sort (by calls/s)");
    terminal.press(b"jj");
    terminal.wait_for("> fix");
    daemon.legacy(LEGACY).call("fix__echo", json!({}));
    terminal.wait_for("ready");
    assert!(
        terminal.written().contains("\u{1b}[38;5;"),
        "colours, where nobody forbids them"
    );
    // A larger window: its last line is further down.
    let mut stty = Command::new("stty");
    stty.args(["rows", "40", "cols", "120"]);
    let resized = stty
        .stdin(terminal.slave.try_clone().unwrap())
        .status()
        .unwrap();
    assert!(resized.success());
    wait_for("the last line of 40", || {
        terminal.written().contains("\u{1b}[40;1H").then_some(())
    });
    terminal.press(b"q");
    assert_eq!(terminal.end(), Some(0));
    // Ctrl-C is a key like another.
    let mut terminal = glasspane(&place, &["--no-color"]);
    terminal.wait_for("ready");
    for colour in ["\u{1b}[38;", "\u{1b}[48;"] {
        assert!(
            !terminal.written().contains(colour),
            "{:?}",
            terminal.written()
        );
    }
    terminal.press(b"\x03");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn glasspane_gives_the_terminal_back_on_signals() {
    let place = Place::of_fixture(&[], json!({}));
    let _daemon = place.start(&[]);
    for (signal, status) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let terminal = glasspane(&place, &[]);
        terminal.wait_for("q quit");
        kill(Pid::from_raw(terminal.child.id() as i32), signal).unwrap();
        assert_eq!(terminal.end(), Some(status));
    }
}

#[test]
fn glasspane_says_that_the_daemon_is_gone_and_finds_the_next_one() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut terminal = glasspane(&place, &[]);
    terminal.wait_for("TRAIL (UTC)");
    daemon.kill();
    terminal.wait_for("NO NEWS: ");
    let daemon = place.start(&[]);
    wait_for("news", || {
        (!terminal.screen().contains("NO NEWS")).then_some(())
    });
    terminal.press(b"q");
    assert_eq!(terminal.end(), Some(0));
    daemon.stop();
    // Without a daemon from the start it says so as every command does, and touches no terminal.
    let (status, _, text) = run(&place, &["glasspane", "--servers"]);
    assert_eq!(
        (status, text.contains("not running")),
        (Some(69), true),
        "{text}"
    );
}

/// A daemon with an agent that says what an attacker would, and stays.
fn place_of_an_agent() -> Place {
    let place = Place::new();
    let script = r#"echo '{"type":"system","subtype":"init","session_id":"\u001b[2Jevil"}'; echo '{"type":"assistant","text":"\u009b31m\u202e"}'; exec sleep 600"#;
    let agent =
        json!({ "command": "/bin/sh", "args": ["-c", script], "events": "claude", "max": 2 });
    place.registry_text(&json!({ "agents": { "coder": agent } }).to_string());
    place
}

#[test]
fn glasspane_is_a_snapshot_for_programs_and_text_where_there_is_no_terminal() {
    let place = place_of_an_agent();
    let _daemon = place.start(&["--write"]);
    let (status, text, error) = run(&place, &["glasspane"]);
    assert_eq!(status, Some(0), "{error}");
    assert!(text.contains("none runs; 1 agent can be started"), "{text}");
    let (status, id, error) = run(&place, &["--json", "agent", "run", "coder"]);
    assert_eq!(status, Some(0), "{error}");
    let id: Value = serde_json::from_str(&id).unwrap();
    let id = id["instance"]["id"].as_str().unwrap().to_owned();
    let snapshot = wait_for("an agent that works", || {
        let (_, text, _) = run(&place, &["--json", "glasspane"]);
        let snapshot: Value = serde_json::from_str(&text).unwrap();
        (snapshot["panes"][0]["state"] == "working").then_some(snapshot)
    });
    assert_eq!(snapshot["schema"], "colibri.glasspane.snapshot.v1");
    let pane = &snapshot["panes"][0];
    assert_eq!(
        (&pane["id"], &pane["agent"]),
        (&json!(id), &json!("coder")),
        "{snapshot}"
    );
    assert_eq!(
        (&pane["session_id"], &pane["jail"]),
        (&json!("\\u{1b}[2Jevil"), &Value::Null)
    );
    assert!(pane["last_event_at"].as_u64() > Some(0) && snapshot["time"].as_u64() > Some(0));
    for key in [
        "stalled",
        "attention",
        "tokens",
        "calls",
        "waiting_approvals",
        "cwd",
    ] {
        assert!(!pane[key].is_null(), "{key}: {snapshot}");
    }
    let (_, text, _) = run(&place, &["glasspane", "--once"]);
    assert!(
        text.contains("agents: 1 running, 0 ended") && text.contains("working"),
        "{text}"
    );
    assert!(
        text.contains("event  coder             agent-started"),
        "its records: {text}"
    );
    assert!(
        !text.contains(|c: char| c.is_control() && c != '\n'),
        "{text:?}"
    );
}

#[test]
fn the_page_of_glasspane_holds_what_an_attacker_says_as_text() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let tools = daemon.modern().tools();
    assert!(tools.len() > 5, "{tools:?}");
    let state = place.path("hostile");
    let made = Command::new(program("recorded-day"))
        .arg(&state)
        .args(["1000", "hostile"])
        .status();
    assert!(made.unwrap().success());
    let file = place.path("page.html");
    let html = |more: &[&str]| {
        let path = file.to_str().unwrap();
        let command = [
            "glasspane",
            "--html",
            path,
            "--state-dir",
            state.to_str().unwrap(),
        ];
        run(&place, &[&command[..], more].concat())
    };
    let (status, text, error) = html(&[]);
    assert_eq!(
        (status, text.contains("open it in a browser")),
        (Some(0), true),
        "{error}"
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let page = fs::read_to_string(&file).unwrap();
    assert!(
        page.contains("default-src 'none'; script-src 'sha256-"),
        "{page}"
    );
    assert_eq!(
        (
            page.matches("<script").count(),
            page.matches("</script").count()
        ),
        (2, 2)
    );
    assert!(!page.contains("<img") && !page.contains(['\u{202e}', '\u{2028}', '\0', '\u{1b}']));
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let names: Vec<&str> = (data["record"]["day"]["names"].as_array().unwrap().iter())
        .map(|name| name.as_str().unwrap())
        .collect();
    let said = [
        "</script><script>document.title=",
        "<img src=x onerror=",
        "\\u{202e}gnp.exe",
        "a\\u{0}b",
    ];
    for said in said {
        assert!(
            names.iter().any(|name| name.contains(said)),
            "{said}: {names:?}"
        );
    }
    assert!(
        names.iter().all(|name| name.chars().count() <= 1000),
        "{names:?}"
    );
    assert_eq!(data["head"]["verdict"]["sound"], true);
    let listed = data["head"]["ledger"]["rows"].as_array().unwrap();
    assert!(
        listed.iter().any(|row| row["tool"] == "colibri_status"
            && row["listed"].as_u64() > Some(100)
            && row["calls"] == 0),
        "{listed:?}"
    );
    // A page of its own is replaced, anything else is not.
    assert_eq!(html(&[]).0, Some(0));
    fs::write(&file, "mine").unwrap();
    let (status, _, error) = html(&[]);
    assert_eq!(
        (status, error.contains("--replace")),
        (Some(65), true),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(html(&["--replace"]).0, Some(0));
    // Nothing is silently ignored.
    for wrong in [
        &["glasspane", "--since", "2026"][..],
        &["glasspane", "--html", "x", "--once"],
    ] {
        assert_eq!(run(&place, wrong).0, Some(64), "{wrong:?}");
    }
    let (status, _, error) = html(&["--since", "2026-11-21", "--until", "2026-11-21"]);
    assert_eq!(
        (status, error.contains("not before the end")),
        (Some(64), true),
        "{error}"
    );
}

#[test]
fn glasspane_starts_shows_and_stops_an_agent_and_gives_the_terminal_back() {
    let place = place_of_an_agent();
    let daemon = place.start(&["--write"]);
    let mut terminal = Terminal::start(place.colibri_mcp(&["glasspane", "--interval", "1"]));
    terminal.wait_for("none runs; 1 agent can be started: s");
    assert!(terminal.is_raw());
    terminal.press(b"s");
    terminal.wait_for("START WHICH AGENT?");
    terminal.press(b"j\r");
    terminal.wait_for("agents: 1 running");
    terminal.press(b"\t\r");
    terminal.wait_for(r"assistant  \u{9b}31m");
    terminal.wait_for("calls itself \\u{1b}[2Jevil");
    terminal.press(b"xn");
    terminal.press(b"x");
    terminal.wait_for("y stop it");
    terminal.press(b"y");
    terminal.wait_for("agents: 0 running, 1 ended");
    // The daemon goes, and another one comes.
    daemon.kill();
    terminal.wait_for("NO NEWS: ");
    let daemon = place.start(&["--write"]);
    wait_for("news", || {
        (!terminal.screen().contains("NO NEWS")).then_some(())
    });
    terminal.press(b"q");
    assert_eq!(terminal.end(), Some(0));
    daemon.stop();
}

// Why a call cannot be made.

#[test]
fn a_call_of_what_is_not_there_says_what_was_meant() {
    let place = Place::of_fixture(&[], json!({}));
    let _daemon = place.start(&[]);
    for args in [
        &["call", "fxi", "echo"][..],
        &["call", "fxi", "echo", "a=1"],
        &["tools", "fxi"],
    ] {
        let (status, _, text) = run(&place, args);
        assert_eq!(status, Some(65), "{args:?}: {text}");
        assert!(
            text.contains("there is no server fxi; did you mean fix?"),
            "{args:?}: {text}"
        );
    }
    for args in [
        &["call", "fix", "ehco"][..],
        &["call", "fix", "ehco", "a=1"],
        &["call", "fix", "ehco", "--args", "{}"],
    ] {
        let (status, out, text) = run(&place, args);
        assert_eq!((status, out.as_str()), (Some(65), ""), "{args:?}: {text}");
        assert!(
            text.contains("server fix has no tool ehco; did you mean echo?"),
            "{args:?}: {text}"
        );
    }
    let (status, _, text) = run(&place, &["call", "colibri", "colibri_statsu", "a=1"]);
    assert_eq!(status, Some(65), "{text}");
    assert!(text.contains("did you mean colibri_status?"), "{text}");
}

#[test]
fn a_call_that_cannot_be_made_now_says_why() {
    let place = Place::new();
    place.registry(&json!({
        "fix": place.fixture("fix", &[], json!({})),
        "slow": place.fixture("slow", &["--at-start", "silence"], json!({})),
        "away": { "url": "http://127.0.0.1:9/mcp" },
        "broken": { "command": "/no/such/program" },
    }));
    let daemon = place.start_plain(&[]);
    for args in [
        &["call", "fix", "echo", "a=1"][..],
        &["call", "fix", "echo"],
    ] {
        let (status, out, text) = run(&place, args);
        let said = out + &text;
        assert_eq!(status, Some(1), "{args:?}: {said}");
        assert!(
            said.contains("gate") && said.contains("closed") && said.contains("--external-call"),
            "{args:?}: {said}"
        );
    }
    daemon.stop();
    let daemon = place.start(&[]);
    for (server, why) in [
        ("slow", "still starting"),
        ("away", "allow_addresses"),
        ("broken", "/no/such/program"),
    ] {
        let (status, _, text) = run(&place, &["call", server, "echo", "a=1"]);
        assert_eq!(status, Some(1), "{server}: {text}");
        assert!(
            text.contains(server) && text.contains(why),
            "{server}: {text}"
        );
    }
    drop(daemon);
}

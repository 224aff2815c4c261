//! The bridge against scripted daemons: each test is both the client and the daemon.

use super::*;
use std::io::{BufRead, BufReader};
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// A line with its newline, from a socket.
struct Lines(BufReader<UnixStream>);

impl Lines {
    fn next(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }
}

/// One side of a connection.
struct Peer {
    lines: Lines,
    stream: UnixStream,
}

impl Peer {
    fn over(stream: UnixStream) -> Peer {
        Peer {
            lines: Lines(BufReader::new(stream.try_clone().unwrap())),
            stream,
        }
    }

    /// The daemon's side of the next connection, with its hello read and checked.
    fn accept(listener: &UnixListener) -> Peer {
        let mut peer = Peer::over(listener.accept().unwrap().0);
        assert_eq!(peer.lines.next(), "{\"colibri\":1,\"narrow\":[]}\n");
        peer
    }

    fn expect(&mut self, line: &str) {
        assert_eq!(self.lines.next(), format!("{line}\n"));
    }

    fn say(&mut self, line: &str) {
        self.stream
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }
}

/// A client with a bridge of its own.
struct Client {
    peer: Peer,
    bridge: Arc<StdioBridge<UnixStream>>,
    receive: JoinHandle<Result<BridgeEnd, BridgeError>>,
    send: JoinHandle<Result<(), BridgeError>>,
}

impl Client {
    fn start(socket: &Path) -> Client {
        let (stream, inside) = UnixStream::pair().unwrap();
        let bridge = Arc::new(StdioBridge::new(
            socket.to_owned(),
            Hello::default(),
            inside.try_clone().unwrap(),
        ));
        let (one, other) = (bridge.clone(), bridge.clone());
        Client {
            peer: Peer::over(stream),
            bridge,
            receive: std::thread::spawn(move || one.receive()),
            send: std::thread::spawn(move || other.send(inside)),
        }
    }

    fn expect_error(&mut self, id: &str, code: Code) -> String {
        let line = self.lines.next();
        let value: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        assert_eq!(value["id"].to_string(), id, "{line}");
        assert_eq!(value["error"]["code"], code.row().number, "{line}");
        value["error"]["message"].as_str().unwrap().to_owned()
    }

    /// Returns once the bridge has noticed that its daemon is gone.
    fn wait_until_down(&self) {
        let up = |state: &mut StdioBridgeState| matches!(state.link, DaemonLink::Up(_));
        self.bridge
            .changed
            .wait_while(&mut self.bridge.state.lock(), up);
    }

    /// Closes stdin, and returns how the bridge ended and what was still delivered.
    fn finish(mut self) -> (BridgeEnd, String) {
        self.peer.stream.shutdown(Shutdown::Write).unwrap();
        self.send.join().unwrap().unwrap();
        let ended = self.receive.join().unwrap().unwrap();
        drop(self.bridge);
        let mut rest = String::new();
        self.peer.lines.0.read_to_string(&mut rest).unwrap();
        (ended, rest)
    }
}

impl Deref for Client {
    type Target = Peer;

    fn deref(&self) -> &Peer {
        &self.peer
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Peer {
        &mut self.peer
    }
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("colibri.sock")
    }

    /// Listens where the last daemon did.
    fn listen(&self) -> UnixListener {
        let _ = std::fs::remove_file(self.socket());
        UnixListener::bind(self.socket()).unwrap()
    }
}

/// A client whose bridge is connected to a daemon.
fn connected() -> (Place, UnixListener, Client, Peer) {
    let place = Place::new();
    let listener = place.listen();
    let client = Client::start(&place.socket());
    let daemon = Peer::accept(&listener);
    (place, listener, client, daemon)
}

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const OPENED: &str = r#"{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}}"#;
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn call(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{}}}}"#)
}

fn answer(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":1e400}}}}"#)
}

/// A client with an open legacy session, and its daemon.
fn open_session(place: &Place) -> (Client, Peer) {
    let listener = place.listen();
    let mut client = Client::start(&place.socket());
    let mut daemon = Peer::accept(&listener);
    client.say(INITIALIZE);
    daemon.expect(INITIALIZE);
    daemon.say(OPENED);
    client.expect(OPENED);
    client.say(INITIALIZED);
    daemon.expect(INITIALIZED);
    (client, daemon)
}

#[test]
fn passes_bytes_both_ways_as_they_are() {
    let (_place, _listener, mut client, mut daemon) = connected();
    for line in [
        "{\"id\":1,\"method\":\"m\",\"big\":123456789012345678901234567890}",
        "",
        "not json",
        "{\"\\ud800\":1}",
        "[1,2",
    ] {
        client.say(line);
        daemon.expect(line);
        daemon.say(line);
        client.expect(line);
    }
}

#[test]
fn a_line_in_many_pieces_arrives_whole() {
    let (_place, _listener, mut client, mut daemon) = connected();
    for byte in call("1").bytes() {
        client.stream.write_all(&[byte]).unwrap();
    }
    client.say("");
    daemon.expect(&call("1"));
    for byte in answer("1").bytes() {
        daemon.stream.write_all(&[byte]).unwrap();
    }
    daemon.say("");
    client.expect(&answer("1"));
}

#[test]
fn the_end_of_stdin_passes_on_and_pending_answers_still_arrive() {
    let (_place, _listener, mut client, mut daemon) = connected();
    client.say(&call("1"));
    client.stream.write_all(call("2").as_bytes()).unwrap();
    let daemon = std::thread::spawn(move || {
        daemon.expect(&call("1"));
        daemon.expect(&call("2"));
        assert_eq!(
            daemon.lines.next(),
            "",
            "the end of stdin reaches the daemon"
        );
        daemon.say(&answer("1"));
        daemon.say(&answer("2"));
    });
    assert_eq!(
        client.finish(),
        (
            BridgeEnd::Well,
            format!("{}\n{}\n", answer("1"), answer("2"))
        )
    );
    daemon.join().unwrap();
}

#[test]
fn a_daemon_that_never_closes_does_not_keep_the_bridge() {
    let (_place, _listener, mut client, mut daemon) = connected();
    client.say(r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#);
    daemon.expect(r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#);
    assert_eq!(client.finish(), (BridgeEnd::Well, String::new()));
}

#[test]
fn without_a_daemon_every_request_is_told_how_to_start_it_and_the_first_after_its_start_works() {
    let place = Place::new();
    let mut client = Client::start(&place.socket());
    client.say(INITIALIZE);
    let text = client.expect_error("\"i\"", Code::DaemonUnreachable);
    assert!(text.contains("Start it with"), "{text}");
    client.say(INITIALIZED);
    client.say(&call("7"));
    client.expect_error("7", Code::DaemonUnreachable);
    client.say(&format!("[{},{}]", call("8"), call("9")));
    let batch: Vec<serde_json::Value> = serde_json::from_str(&client.lines.next()).unwrap();
    assert_eq!(
        (batch[0]["id"].as_u64(), batch[1]["id"].as_u64()),
        (Some(8), Some(9))
    );
    let listener = place.listen();
    client.say(&call("10"));
    let mut daemon = Peer::accept(&listener);
    daemon.expect(&call("10"));
    daemon.say(&answer("10"));
    client.expect(&answer("10"));
}

#[test]
fn ends_without_a_daemon_when_stdin_ends() {
    let place = Place::new();
    let mut client = Client::start(&place.socket());
    client.say(&call("1"));
    let (ended, rest) = client.finish();
    assert_eq!(ended, BridgeEnd::WithoutDaemon);
    assert!(rest.contains("\"code\":106"), "{rest}");
}

#[test]
fn a_restart_fails_what_was_in_flight_and_opens_the_session_again() {
    let place = Place::new();
    let (mut client, mut daemon) = open_session(&place);
    client.say(&call("1"));
    client.say(&call("2"));
    client.say(&call("3"));
    client.say(r#"{"method":"notifications/cancelled","params":{"requestId":3}}"#);
    daemon.expect(&call("1"));
    daemon.expect(&call("2"));
    daemon.expect(&call("3"));
    daemon.lines.next();
    daemon.say(&answer("1"));
    client.expect(&answer("1"));
    daemon
        .stream
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"resul")
        .unwrap();
    let listener = place.listen();
    drop(daemon);
    assert!(
        client
            .expect_error("2", Code::ConnectionLost)
            .contains("restarted")
    );
    let mut daemon = Peer::accept(&listener);
    daemon.expect(INITIALIZE);
    daemon.say(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    client.expect(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    daemon.say(OPENED);
    daemon.expect(INITIALIZED);
    client.expect(CHANGED);
    client.say(&call("4"));
    daemon.expect(&call("4"));
    daemon.say(&answer("4"));
    client.expect(&answer("4"));
}

#[test]
fn what_came_with_the_answer_to_a_repeated_initialize_is_passed_on_at_once() {
    let place = Place::new();
    let (mut client, daemon) = open_session(&place);
    let listener = place.listen();
    drop(daemon);
    let mut daemon = Peer::accept(&listener);
    daemon.expect(INITIALIZE);
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    daemon.say(&format!("{OPENED}\n{notification}"));
    daemon.expect(INITIALIZED);
    client.expect(CHANGED);
    // The daemon says nothing more.
    client.expect(notification);
}

#[test]
fn requests_during_a_restart_wait_for_the_new_daemon() {
    let place = Place::new();
    let (mut client, daemon) = open_session(&place);
    std::fs::remove_file(place.socket()).unwrap();
    drop(daemon);
    client.wait_until_down();
    client.say(&call("5"));
    let listener = place.listen();
    let mut daemon = Peer::accept(&listener);
    daemon.expect(INITIALIZE);
    daemon.say(OPENED);
    daemon.expect(INITIALIZED);
    client.expect(CHANGED);
    daemon.expect(&call("5"));
}

#[test]
fn a_restart_keeps_the_log_level() {
    let place = Place::new();
    let (mut client, mut daemon) = open_session(&place);
    let level =
        r#"{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"debug"}}"#;
    client.say(level);
    daemon.expect(level);
    daemon.say(&answer("5"));
    client.expect(&answer("5"));
    let listener = place.listen();
    drop(daemon);
    let mut daemon = Peer::accept(&listener);
    daemon.expect(INITIALIZE);
    daemon.say(OPENED);
    daemon.expect(INITIALIZED);
    daemon.expect(level);
    daemon.say(&answer("5"));
    client.expect(CHANGED);
}

#[test]
fn a_restart_keeps_subscriptions_to_resources() {
    let place = Place::new();
    let (mut client, mut daemon) = open_session(&place);
    let ask = |id: u32, method: &str, uri: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/{method}","params":{{"uri":"{uri}"}}}}"#
        )
    };
    for (id, method, uri) in [
        (5, "subscribe", "s+a"),
        (6, "subscribe", "s+b"),
        (7, "subscribe", "s+c"),
        (8, "unsubscribe", "s+b"),
    ] {
        let line = ask(id, method, uri);
        client.say(&line);
        daemon.expect(&line);
        daemon.say(&answer(&id.to_string()));
        client.expect(&answer(&id.to_string()));
    }
    let listener = place.listen();
    drop(daemon);
    let mut daemon = Peer::accept(&listener);
    daemon.expect(INITIALIZE);
    daemon.say(OPENED);
    daemon.expect(INITIALIZED);
    daemon.expect(&ask(5, "subscribe", "s+a"));
    daemon.expect(&ask(7, "subscribe", "s+c"));
    daemon.say(&answer("5"));
    daemon.say(&answer("7"));
    client.expect(CHANGED);
    for uri in ["s+a", "s+c"] {
        let updated =
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":""#;
        client.expect(&format!("{updated}{uri}\"}}}}"));
    }
    // The answers were had already; what comes next is news.
    daemon.say(&answer("9"));
    client.expect(&answer("9"));
}

#[test]
fn an_initialize_in_flight_is_sent_again() {
    let (_place, listener, mut client, mut daemon) = connected();
    client.say(INITIALIZE);
    daemon.expect(INITIALIZE);
    drop(daemon);
    let mut daemon = Peer::accept(&listener);
    daemon.expect(INITIALIZE);
    daemon.say(OPENED);
    client.expect(OPENED);
}

#[test]
fn a_modern_client_gets_its_subscription_back_and_one_acknowledgement() {
    let (_place, listener, mut client, mut daemon) = connected();
    let listen = r#"{"jsonrpc":"2.0","id":"sub","method":"subscriptions/listen","params":{"notifications":{}}}"#;
    let acknowledged = r#"{"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"sub"}}}"#;
    client.say(listen);
    daemon.expect(listen);
    daemon.say(acknowledged);
    client.expect(acknowledged);
    drop(daemon);
    let mut daemon = Peer::accept(&listener);
    daemon.expect(listen);
    daemon.say(acknowledged);
    daemon.say(CHANGED);
    client.expect(CHANGED);
}

#[test]
fn a_late_answer_to_the_old_daemon_does_not_reach_the_new_one() {
    let place = Place::new();
    let (mut client, mut daemon) = open_session(&place);
    let question = r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}"#;
    daemon.say(question);
    client.expect(question);
    let listener = place.listen();
    drop(daemon);
    client.expect(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"colibri-mcpd restarted"}}"#,
    );
    let mut daemon = Peer::accept(&listener);
    daemon.expect(INITIALIZE);
    daemon.say(OPENED);
    daemon.expect(INITIALIZED);
    client.expect(CHANGED);
    client.say(r#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}"#);
    client.say(&call("2"));
    daemon.expect(&call("2"));
    daemon.say(question);
    client.expect(question);
    client.say(r#"{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}"#);
    daemon.expect(r#"{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}"#);
}

#[test]
fn a_daemon_of_another_version_ends_the_bridge() {
    let place = Place::new();
    let (client, daemon) = open_session(&place);
    let listener = place.listen();
    drop(daemon);
    let mut daemon = Peer::accept(&listener);
    daemon.expect(INITIALIZE);
    daemon.say(&OPENED.replace("2025-11-25", "2025-06-18"));
    assert!(matches!(
        client.receive.join().unwrap(),
        Err(BridgeError::Replay(_))
    ));
}

#[test]
fn a_closed_stdout_ends_the_bridge() {
    let place = Place::new();
    let listener = place.listen();
    let client = Client::start(&place.socket());
    let mut daemon = Peer::accept(&listener);
    client.stream.shutdown(Shutdown::Both).unwrap();
    drop(client.peer);
    daemon.say(CHANGED);
    let ended = client.receive.join().unwrap();
    assert!(
        matches!(ended, Err(BridgeError::Output(_)) | Ok(BridgeEnd::Well)),
        "{ended:?}"
    );
}

#[test]
fn frames_at_the_limit_pass_and_longer_ones_are_answered_and_skipped() {
    let (_place, _listener, mut client, mut daemon) = connected();
    let start = r#"{"jsonrpc":"2.0","id":"big","method":"m","params":""#;
    let exact = format!("{start}{}\"}}", "x".repeat(MAX_LINE - start.len() - 2));
    let mut writer = client.stream.try_clone().unwrap();
    let lines = [exact.clone(), format!("{exact} "), call("1")];
    let written = std::thread::spawn(move || {
        lines
            .iter()
            .for_each(|line| writer.write_all(format!("{line}\n").as_bytes()).unwrap())
    });
    assert!(daemon.lines.next() == format!("{exact}\n"));
    assert!(
        client
            .expect_error("\"big\"", Code::FrameTooLong)
            .contains("16777216")
    );
    daemon.expect(&call("1"));
    written.join().unwrap();
    let start = r#"{"jsonrpc":"2.0","id":1,"result":""#;
    let answer_line = format!("{start}{}\"}}", "x".repeat(MAX_LINE));
    let written = std::thread::spawn(move || {
        daemon.say(&answer_line);
        daemon.say(CHANGED);
        daemon
    });
    client.expect_error("1", Code::FrameTooLong);
    client.expect(CHANGED);
    written.join().unwrap();
}

#[test]
fn a_slow_client_blocks_only_its_own_direction() {
    let (_place, _listener, mut client, mut daemon) = connected();
    let filler = format!("{{\"method\":\"{}\"}}", "x".repeat(1 << 20));
    let mut flood = daemon.stream.try_clone().unwrap();
    let line = format!("{filler}\n");
    let flooding =
        std::thread::spawn(move || (0..8).for_each(|_| flood.write_all(line.as_bytes()).unwrap()));
    for n in 0..100 {
        client.say(&call(&n.to_string()));
        daemon.expect(&call(&n.to_string()));
    }
    for _ in 0..8 {
        client.expect(&filler);
    }
    flooding.join().unwrap();
}

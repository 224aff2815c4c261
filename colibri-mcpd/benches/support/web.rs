//! A server behind a URL that does as little as it can, and what a call of it takes directly and
//! through a daemon.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Daemon, connect};

/// Calls of each way, of which the first tenth is not counted.
const CALLS: usize = 5000;

/// What a call takes.
pub(crate) struct Seen {
    /// Median over a connection of the client's own that is kept.
    pub(crate) direct: Duration,
    /// Median through the daemon.
    pub(crate) through: Duration,
}

/// Makes the same calls directly and through the daemon, in turns.
pub(crate) fn compare(directory: &Path, daemon: &[String]) -> Seen {
    std::fs::create_dir(directory).expect("directory");
    let (mut server, port) = start();
    std::fs::write(
        directory.join("registry.json"),
        format!(
            "{{\"servers\":{{\"web\":{{\"url\":\"http://127.0.0.1:{port}/mcp\",\"allow_addresses\":[\"loopback\"]}}}}}}"
        ),
    )
    .expect("registry");
    let daemon = Daemon::start(directory, "web", daemon);
    let mut straight = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    straight.set_nodelay(true).expect("no delay");
    let mut line = connect(&daemon.socket);
    let mut times = [Vec::new(), Vec::new()];
    for number in 0..CALLS {
        let body = call("echo", number);
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
             Mcp-Name: echo\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        times[0].push(timed(&mut straight, request.as_bytes()));
        let request = format!("{}\n", call("web__echo", number));
        times[1].push(timed(&mut line, request.as_bytes()));
    }
    drop(daemon);
    let _ = server.kill();
    let _ = server.wait();
    let [direct, through] = times.map(|mut times| {
        times.drain(..CALLS / 10);
        times.sort();
        times[times.len() / 2]
    });
    Seen { direct, through }
}

/// Until the whole answer has come, which ends with two braces.
fn timed(stream: &mut (impl Read + Write), request: &[u8]) -> Duration {
    let mut buffer = [0; 4096];
    let mut length = 0;
    let start = Instant::now();
    stream.write_all(request).expect("write");
    while !buffer[..length].ends_with(b"}}") && !buffer[..length].ends_with(b"}}\n") {
        let read = stream.read(&mut buffer[length..]).expect("read");
        assert!(read > 0, "the connection ended");
        length += read;
    }
    let spent = start.elapsed();
    let answer = String::from_utf8_lossy(&buffer[..length]);
    assert!(
        answer.contains("\"content\"") && !answer.contains("isError"),
        "{answer}"
    );
    spent
}

fn call(tool: &str, number: usize) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{number},\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":\
         {{\"text\":\"{text}\"}},\"_meta\":{{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
         \"io.modelcontextprotocol/clientInfo\":{{\"name\":\"b\",\"version\":\"1\"}},\
         \"io.modelcontextprotocol/clientCapabilities\":{{}}}}}}}}",
        text = "x".repeat(crate::SMALL)
    )
}

fn start() -> (Child, u16) {
    let mut server = Command::new(std::env::current_exe().expect("own path"))
        .arg("web-server")
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the server");
    let mut port = [0; 2];
    let said = server
        .stdout
        .as_mut()
        .expect("stdout")
        .read_exact(&mut port);
    said.expect("its port");
    (server, u16::from_be_bytes(port))
}

/// The server: says its port, and answers each connection on a thread of its own.
pub(crate) fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let mut stdout = std::io::stdout();
    stdout
        .write_all(&port.to_be_bytes())
        .and_then(|()| stdout.flush())
        .expect("say the port");
    for stream in listener.incoming().flatten() {
        let _ = stream.set_nodelay(true);
        std::thread::spawn(move || answer(stream));
    }
}

fn answer(mut stream: TcpStream) {
    let (mut buffer, mut length) = (vec![0; 64 * 1024], 0);
    loop {
        let text = String::from_utf8_lossy(&buffer[..length]);
        let whole = text.find("\r\n\r\n").and_then(|end| {
            let field = text[..end].to_ascii_lowercase();
            let count: usize = field
                .split_once("content-length: ")?
                .1
                .lines()
                .next()?
                .trim()
                .parse()
                .ok()?;
            text.get(end + 4..end + 4 + count)
        });
        if let Some(body) = whole {
            let message = answered(body);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length:";
            if stream
                .write_all(format!("{head} {}\r\n\r\n{message}", message.len()).as_bytes())
                .is_err()
            {
                return;
            }
            length = 0;
        }
        match stream.read(&mut buffer[length..]) {
            Ok(read @ 1..) => length += read,
            _ => return,
        }
    }
}

fn answered(request: &str) -> String {
    let id = request.split_once("\"id\":").map_or("null", |(_, rest)| {
        rest.split([',', '}']).next().unwrap_or("null")
    });
    let result = if request.contains("\"server/discover\"") {
        r#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private""#
    } else if request.contains("\"tools/list\"") {
        r#""tools":[{"name":"echo","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private""#
    } else {
        r#""content":[{"type":"text","text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}]"#
    };
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"complete\",{result}}}}}"
    )
}

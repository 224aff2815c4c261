//! Many connections with one call each, by lines and by HTTP.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::support::{INITIALIZE, connect};

/// How many connections there are.
pub(crate) const CONNECTIONS: usize = 64;

/// How calls are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Lines,
    /// Modern POSTs, each connection kept alive.
    Http,
}

impl Framing {
    /// A call of the echo server's tool.
    fn call(self) -> String {
        let text = "x".repeat(64);
        let params = format!("\"name\":\"echo__echo\",\"arguments\":{{\"text\":\"{text}\"}}");
        let line = |params: &str| {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{{params}}}}}")
        };
        match self {
            Framing::Lines => line(&params) + "\n",
            Framing::Http => {
                let meta = "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
                            \"io.modelcontextprotocol/clientCapabilities\":{}}";
                let body = line(&format!("{params},{meta}"));
                format!(
                    "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                     Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
                     Mcp-Method: tools/call\r\nMcp-Name: echo__echo\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                )
            }
        }
    }

    /// Whether these bytes are a whole answer.
    fn is_whole(self, bytes: &[u8]) -> bool {
        match self {
            Framing::Lines => bytes.ends_with(b"\n"),
            Framing::Http => {
                let text = String::from_utf8_lossy(bytes);
                let Some((head, body)) = text.split_once("\r\n\r\n") else {
                    return false;
                };
                assert!(head.starts_with("HTTP/1.1 200 "), "{text}");
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                length.is_some_and(|length| body.len() == length.parse::<usize>().expect("a length"))
            }
        }
    }
}

/// Calls a second of all connections together.
pub(crate) fn rate(socket: &Path, framing: Framing, span: Duration) -> f64 {
    let call = framing.call();
    let mut crowd: Vec<(UnixStream, Vec<u8>)> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = connect(socket);
            if framing == Framing::Lines {
                stream.write_all(INITIALIZE.as_bytes()).expect("write");
                let mut answer = [0; 4096];
                assert!(stream.read(&mut answer).expect("read") > 0);
            }
            stream.write_all(call.as_bytes()).expect("write");
            (stream, Vec::new())
        })
        .collect();
    let (start, mut answered, mut buffer) = (Instant::now(), 0_usize, vec![0; 64 * 1024]);
    while start.elapsed() < span {
        let mut looks: Vec<_> = crowd
            .iter()
            .map(|(stream, _)| PollFd::new(stream.as_fd(), PollFlags::POLLIN))
            .collect();
        poll(&mut looks, PollTimeout::from(10_000_u16)).expect("poll");
        let ready: Vec<usize> = (0..looks.len())
            .filter(|index| looks[*index].any().unwrap_or(false))
            .collect();
        assert!(!ready.is_empty(), "no answer within 10 s");
        for index in ready {
            let (stream, got) = &mut crowd[index];
            let read = stream.read(&mut buffer).expect("read");
            assert!(read > 0, "a connection ended");
            got.extend_from_slice(&buffer[..read]);
            if framing.is_whole(got) {
                got.clear();
                answered += 1;
                stream.write_all(call.as_bytes()).expect("write");
            }
        }
    }
    answered as f64 / start.elapsed().as_secs_f64()
}
